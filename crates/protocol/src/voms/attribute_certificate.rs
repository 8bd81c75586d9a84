//! Reading attribute certificates (RFC 5755 §4.1) as VOMS servers write them: one holder by issuer and serial
//! number, one issuer by name, one attribute with groups and roles. What else the standard offers is malformed
//! here, because guessing what it grants would be worse than granting nothing.

use super::VomsError;
use crate::der::{DerError, Reader, tag};
use openssl::hash::MessageDigest;
use openssl::x509::X509;
use penstock_model::Timestamp;

/// 1.3.6.1.4.1.8005.100.100.4: groups and roles, "FQANs".
const FQANS: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 4];
/// 1.3.6.1.4.1.8005.100.100.10: the certificate of the VOMS server, and those between it and its authority.
const SIGNER_CHAIN: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 10];
/// 1.3.6.1.4.1.8005.100.100.11: attributes with values, which grant nothing here.
const TAGS: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 11];
/// 2.5.29.35, 2.5.29.55, 2.5.29.56.
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
const TARGETS: &[u8] = &[0x55, 0x1d, 0x37];
const NO_REVOCATION: &[u8] = &[0x55, 0x1d, 0x38];

/// Attribute certificates in one proxy; users of several VOs have one for each.
const CERTIFICATES_MAX: usize = 8;
/// Certificates that one may bring to prove its signer.
const SIGNERS_MAX: usize = 8;
const TARGETS_MAX: usize = 32;
/// Tags of GeneralName (RFC 5280 §4.2.1.6).
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;
const UTC_Z: usize = 15;

/// One attribute certificate, not yet believed.
pub(super) struct AttributeCertificate<'a> {
    /// What the signature is over.
    pub signed: &'a [u8],
    /// The AlgorithmIdentifier's object identifier.
    algorithm: &'a [u8],
    pub signature: &'a [u8],
    pub holder: Holder<'a>,
    /// A Name in DER.
    pub issuer: &'a [u8],
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// A name that can stand in a path.
    pub vo: &'a str,
    /// The VOMS server, likewise.
    pub host: &'a str,
    /// At least one, in printable ASCII.
    pub fqans: Vec<&'a str>,
    /// For whom it is meant; `None`: for all.
    pub targets: Option<Vec<&'a str>>,
    signers: Option<&'a [u8]>,
}

/// For whose certificate it was made.
pub(super) struct Holder<'a> {
    /// A Name in DER.
    pub name: &'a [u8],
    /// As in the certificate's DER.
    pub serial: &'a [u8],
    /// A Name in DER.
    pub entity: Option<&'a [u8]>,
}

/// All in the value of a proxy's extension: `SEQUENCE { SEQUENCE OF AttributeCertificate }`.
pub(super) fn attribute_certificates(
    value: &[u8],
) -> Result<Vec<AttributeCertificate<'_>>, VomsError> {
    let mut outer = Reader::new(value);
    let mut inner = Reader::new(outer.expect(tag::SEQUENCE)?);
    outer.end()?;
    let mut list = Reader::new(inner.expect(tag::SEQUENCE)?);
    inner.end()?;
    let mut certificates = Vec::new();
    while !list.is_empty() {
        if certificates.len() == CERTIFICATES_MAX {
            return Err(VomsError::TooMany);
        }
        certificates.push(AttributeCertificate::parse(list.expect(tag::SEQUENCE)?)?);
    }
    Ok(certificates)
}

/// The serial number as it stands in a certificate's DER (RFC 5280 §4.1).
pub(super) fn serial_of(certificate: &[u8]) -> Result<&[u8], DerError> {
    let mut certificate = Reader::new(Reader::new(certificate).expect(tag::SEQUENCE)?);
    let mut body = Reader::new(certificate.expect(tag::SEQUENCE)?);
    body.optional(tag::context(0))?;
    body.expect(tag::INTEGER)
}

impl<'a> AttributeCertificate<'a> {
    fn parse(content: &'a [u8]) -> Result<AttributeCertificate<'a>, VomsError> {
        let mut whole = Reader::new(content);
        let signed = whole.element()?;
        let algorithm = whole.expect(tag::SEQUENCE)?;
        let signature = match whole.expect(tag::BIT_STRING)?.split_first() {
            Some((0, signature)) => signature,
            _ => return Err(VomsError::Malformed),
        };
        whole.end()?;
        let mut info = Reader::new(Reader::new(signed).expect(tag::SEQUENCE)?);
        if info.expect(tag::INTEGER)? != [1] {
            return Err(VomsError::Malformed);
        }
        let holder = Holder::parse(info.expect(tag::SEQUENCE)?)?;
        let mut issuer = Reader::new(info.expect(tag::context(0))?);
        let issuer_name = directory_name(issuer.expect(tag::SEQUENCE)?)?;
        issuer.end()?;
        // RFC 5755 §4.2.4: what is signed says how.
        if info.expect(tag::SEQUENCE)? != algorithm {
            return Err(VomsError::Algorithm);
        }
        info.expect(tag::INTEGER)?;
        let mut validity = Reader::new(info.expect(tag::SEQUENCE)?);
        let not_before = time(validity.expect(tag::GENERALIZED_TIME)?)?;
        let not_after = time(validity.expect(tag::GENERALIZED_TIME)?)?;
        validity.end()?;
        let granted = VomsAttribute::parse(info.expect(tag::SEQUENCE)?)?;
        info.optional(tag::BIT_STRING)?;
        let extensions = Extensions::parse(info.optional(tag::SEQUENCE)?.unwrap_or_default())?;
        info.end()?;
        Ok(AttributeCertificate {
            signed,
            algorithm: Reader::new(algorithm).expect(tag::OBJECT_IDENTIFIER)?,
            signature,
            holder,
            issuer: issuer_name,
            not_before,
            not_after,
            vo: granted.vo,
            host: granted.host,
            fqans: granted.fqans,
            targets: extensions.targets,
            signers: extensions.signers,
        })
    }

    /// What was hashed to sign it; `None`: nothing that is safe any more.
    pub(super) fn digest(&self) -> Option<MessageDigest> {
        // 1.2.840.113549.1.1.11 to 13 (RFC 8017), 1.2.840.10045.4.3.2 to 4 (RFC 5758).
        match self.algorithm {
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11] => Some(MessageDigest::sha256()),
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12] => Some(MessageDigest::sha384()),
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13] => Some(MessageDigest::sha512()),
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2] => Some(MessageDigest::sha256()),
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3] => Some(MessageDigest::sha384()),
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4] => Some(MessageDigest::sha512()),
            _ => None,
        }
    }

    /// The certificates that it brings, its signer's first: `SEQUENCE { SEQUENCE OF Certificate }`.
    pub(super) fn signer_chain(&self) -> Result<Vec<X509>, VomsError> {
        let Some(value) = self.signers else {
            return Ok(Vec::new());
        };
        let mut outer = Reader::new(value);
        let mut inner = Reader::new(outer.expect(tag::SEQUENCE)?);
        outer.end()?;
        let mut list = Reader::new(inner.expect(tag::SEQUENCE)?);
        inner.end()?;
        let mut chain = Vec::new();
        while !list.is_empty() {
            if chain.len() == SIGNERS_MAX {
                return Err(VomsError::TooMany);
            }
            let certificate = X509::from_der(list.element()?);
            chain.push(certificate.map_err(|_| VomsError::Malformed)?);
        }
        Ok(chain)
    }
}

impl<'a> Holder<'a> {
    /// RFC 5755 §4.1: `baseCertificateID [0]`, `entityName [1]`, `objectDigestInfo [2]`.
    fn parse(content: &'a [u8]) -> Result<Holder<'a>, VomsError> {
        let mut holder = Reader::new(content);
        let mut base = Reader::new(holder.expect(tag::context(0))?);
        let name = directory_name(base.expect(tag::SEQUENCE)?)?;
        let serial = base.expect(tag::INTEGER)?;
        base.optional(tag::BIT_STRING)?;
        base.end()?;
        let entity = holder.optional(tag::context(1))?;
        let entity = entity.map(directory_name).transpose()?;
        holder.end()?;
        Ok(Holder {
            name,
            serial,
            entity,
        })
    }
}

/// The only name of GeneralNames, which must be a directory's: `[4] EXPLICIT Name`.
fn directory_name(names: &[u8]) -> Result<&[u8], VomsError> {
    let mut names = Reader::new(names);
    let mut name = Reader::new(names.expect(tag::context(4))?);
    names.end()?;
    let der = name.element()?;
    name.end()?;
    Ok(der)
}

/// What the attribute says.
struct VomsAttribute<'a> {
    vo: &'a str,
    host: &'a str,
    fqans: Vec<&'a str>,
}

impl<'a> VomsAttribute<'a> {
    /// `SEQUENCE OF Attribute`; the one of VOMS must be there once, with one IetfAttrSyntax (RFC 5755 §4.4).
    fn parse(content: &'a [u8]) -> Result<VomsAttribute<'a>, VomsError> {
        let mut attributes = Reader::new(content);
        let mut granted = None;
        while !attributes.is_empty() {
            let mut attribute = Reader::new(attributes.expect(tag::SEQUENCE)?);
            let name = attribute.expect(tag::OBJECT_IDENTIFIER)?;
            let mut values = Reader::new(attribute.expect(tag::SET)?);
            attribute.end()?;
            if name != FQANS {
                continue;
            }
            let value = VomsAttribute::of_syntax(values.expect(tag::SEQUENCE)?)?;
            values.end()?;
            if granted.replace(value).is_some() {
                return Err(VomsError::Malformed);
            }
        }
        granted.ok_or(VomsError::Malformed)
    }

    fn of_syntax(content: &'a [u8]) -> Result<VomsAttribute<'a>, VomsError> {
        let mut syntax = Reader::new(content);
        let mut authority = Reader::new(syntax.expect(tag::context(0))?);
        let (vo, host) = policy_authority(authority.expect(URI)?)?;
        authority.end()?;
        let mut values = Reader::new(syntax.expect(tag::SEQUENCE)?);
        syntax.end()?;
        let mut fqans = Vec::new();
        while !values.is_empty() {
            if fqans.len() == super::FQANS_MAX {
                return Err(VomsError::TooMany);
            }
            fqans.push(printable(values.expect(tag::OCTET_STRING)?)?);
        }
        match fqans.is_empty() {
            false => Ok(VomsAttribute { vo, host, fqans }),
            true => Err(VomsError::Malformed),
        }
    }
}

/// `dteam://voms.example.org:15000`. Both names become parts of a path, and must be harmless there.
fn policy_authority(uri: &[u8]) -> Result<(&str, &str), VomsError> {
    let (vo, server) = printable(uri)?
        .split_once("://")
        .ok_or(VomsError::Malformed)?;
    let (host, _port) = server.rsplit_once(':').ok_or(VomsError::Malformed)?;
    let harmless = |name: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (1..=255).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(allowed)
    };
    match harmless(vo) && harmless(host) {
        true => Ok((vo, host)),
        false => Err(VomsError::Malformed),
    }
}

fn printable(bytes: &[u8]) -> Result<&str, VomsError> {
    let text = str::from_utf8(bytes).map_err(|_| VomsError::Malformed)?;
    match text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() || byte == b' ')
    {
        true => Ok(text),
        false => Err(VomsError::Malformed),
    }
}

/// RFC 5755 §4.2.6: `YYYYMMDDHHMMSSZ`.
fn time(text: &[u8]) -> Result<Timestamp, VomsError> {
    let is_time = text.len() == UTC_Z
        && text.ends_with(b"Z")
        && text[..UTC_Z - 1].iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(text).ok().filter(|_| is_time);
    let time = openssl::asn1::Asn1Time::from_str(text.ok_or(VomsError::Malformed)?);
    let time = time.map_err(|_| VomsError::Malformed)?;
    crate::x509::timestamp(&time).map_err(|_| VomsError::Malformed)
}

#[derive(Default)]
struct Extensions<'a> {
    targets: Option<Vec<&'a str>>,
    signers: Option<&'a [u8]>,
}

impl<'a> Extensions<'a> {
    fn parse(content: &'a [u8]) -> Result<Extensions<'a>, VomsError> {
        let mut list = Reader::new(content);
        let mut found = Extensions::default();
        while !list.is_empty() {
            let mut extension = Reader::new(list.expect(tag::SEQUENCE)?);
            let name = extension.expect(tag::OBJECT_IDENTIFIER)?;
            let critical = extension.optional(tag::BOOLEAN)?;
            let value = extension.expect(tag::OCTET_STRING)?;
            extension.end()?;
            let is_first = match name {
                SIGNER_CHAIN => found.signers.replace(value).is_none(),
                TARGETS => found.targets.replace(targets(value)?).is_none(),
                AUTHORITY_KEY | NO_REVOCATION | TAGS => true,
                _ if critical.is_none_or(|critical| critical == [0]) => true,
                _ => return Err(VomsError::CriticalExtension),
            };
            if !is_first {
                return Err(VomsError::Malformed);
            }
        }
        Ok(found)
    }
}

/// The names of an extension's targets. RFC 5755 §4.3.2 has `SEQUENCE OF SEQUENCE OF Target`, others leave out
/// one level; a Target is `targetName [0]`. Groups and certificates as targets are nobody that we are.
fn targets(value: &[u8]) -> Result<Vec<&str>, VomsError> {
    let mut open = vec![Reader::new(value)];
    let mut names = Vec::new();
    let mut seen = 0;
    while let Some(mut reader) = open.pop() {
        while !reader.is_empty() {
            let (found, content) = reader.any()?;
            seen += 1;
            if seen > 3 * TARGETS_MAX {
                return Err(VomsError::TooMany);
            }
            match found {
                URI | DNS_NAME => names.push(printable(content)?),
                _ if found == tag::SEQUENCE || found == tag::context(0) => {
                    open.push(Reader::new(content))
                }
                _ => {}
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_server_s_name_cannot_lead_out_of_the_directory() {
        let names = |uri: &'static str| policy_authority(uri.as_bytes()).ok();
        assert_eq!(names("dteam://voms.org:15000"), Some(("dteam", "voms.org")));
        for bad in [
            "dteam",
            "../x://h:1",
            "a/b://h:1",
            "dteam://../h:1",
            "://h:1",
            "dteam://:1",
            "d\0://h:1",
        ] {
            assert_eq!(names(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_are_in_utc_to_the_second() {
        assert_eq!(time(b"20261121115718Z"), Ok(Timestamp(1_795_262_238_000)));
        for bad in [
            &b"20261121115718"[..],
            b"20261121115718.5Z",
            b"261121115718Z",
            b"20261321115718Z",
            b"",
        ] {
            assert_eq!(time(bad), Err(VomsError::Malformed));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = attribute_certificates(&bytes);
            let _ = AttributeCertificate::parse(&bytes);
            let _ = targets(&bytes);
            let _ = serial_of(&bytes);
        }
    }
}
