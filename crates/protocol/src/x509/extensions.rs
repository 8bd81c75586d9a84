//! What a certificate's extensions say that OpenSSL does not tell: whether it is a proxy (RFC 3820), and what
//! of its signer's rights it carries.

use super::CertificateError;
use crate::der::{DerError, Reader, tag};
use openssl::x509::X509Ref;

/// 1.3.6.1.5.5.7.1.14, id-pe-proxyCertInfo.
const PROXY_CERT_INFO: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 14];
/// 1.3.6.1.5.5.7.21.1, id-ppl-inheritAll.
const INHERIT_ALL: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 1];
/// 1.3.6.1.5.5.7.21.2, id-ppl-independent.
const INDEPENDENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 2];
/// 1.3.6.1.4.1.3536.1.1.1.9, Globus's limited proxy: may move data, may not start jobs.
const LIMITED: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9];

/// How much a certificate may do in the name of its end entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proxy {
    /// It is the end entity's own.
    None,
    /// Everything that the end entity may.
    Full,
    /// The same for moving data, nothing for starting jobs.
    Limited,
}

/// What kind of certificate this is. Errors: a proxy that carries no rights that we could honour.
pub(super) fn proxy(certificate: &X509Ref) -> Result<Proxy, CertificateError> {
    let der = certificate.to_der().map_err(CertificateError::OpenSsl)?;
    let malformed = |DerError| CertificateError::Proxy("its extensions are malformed");
    let Some((critical, value)) = extension(&der, PROXY_CERT_INFO).map_err(malformed)? else {
        return Ok(Proxy::None);
    };
    // RFC 3820 §3.8: critical, so that who does not know proxies refuses them.
    if !critical {
        return Err(CertificateError::Proxy("its proxyCertInfo is not critical"));
    }
    let (language, has_policy) = proxy_policy(value).map_err(malformed)?;
    match language {
        // RFC 3820 §3.8.2: these two languages have no policy text.
        INHERIT_ALL | INDEPENDENT if has_policy => Err(CertificateError::Proxy(
            "its proxyCertInfo has a policy that its language forbids",
        )),
        INHERIT_ALL => Ok(Proxy::Full),
        LIMITED => Ok(Proxy::Limited),
        INDEPENDENT => Err(CertificateError::Proxy(
            "it is independent, so it inherits no rights; make one that inherits them",
        )),
        _ => Err(CertificateError::Proxy(
            "its policy language is not known here; make one that inherits all rights",
        )),
    }
}

/// RFC 3820 §3.8: `SEQUENCE { pCPathLenConstraint INTEGER OPTIONAL, proxyPolicy }`, the latter
/// `SEQUENCE { OID, OCTET STRING OPTIONAL }`. Gives back the language, and whether there is a text.
fn proxy_policy(value: &[u8]) -> Result<(&[u8], bool), DerError> {
    let mut outer = Reader::new(value);
    let mut info = Reader::new(outer.expect(tag::SEQUENCE)?);
    outer.end()?;
    info.optional(tag::INTEGER)?;
    let mut policy = Reader::new(info.expect(tag::SEQUENCE)?);
    info.end()?;
    let language = policy.expect(tag::OBJECT_IDENTIFIER)?;
    let text = policy.optional(tag::OCTET_STRING)?;
    policy.end()?;
    Ok((language, text.is_some()))
}

/// An extension's criticality and value (RFC 5280 §4.1). An extension that is there twice is malformed.
pub(super) fn extension<'a>(
    certificate: &'a [u8],
    oid: &[u8],
) -> Result<Option<(bool, &'a [u8])>, DerError> {
    let mut certificate = Reader::new(Reader::new(certificate).expect(tag::SEQUENCE)?);
    let mut body = Reader::new(certificate.expect(tag::SEQUENCE)?);
    let mut extensions = Reader::new(&[]);
    while !body.is_empty() {
        if let (found, content) = body.any()?
            && found == tag::context(3)
        {
            extensions = Reader::new(Reader::new(content).expect(tag::SEQUENCE)?);
        }
    }
    let mut found = None;
    while !extensions.is_empty() {
        let mut extension = Reader::new(extensions.expect(tag::SEQUENCE)?);
        let name = extension.expect(tag::OBJECT_IDENTIFIER)?;
        let critical = extension.optional(tag::BOOLEAN)? == Some(&[0xff]);
        let value = extension.expect(tag::OCTET_STRING)?;
        if name == oid && found.replace((critical, value)).is_some() {
            return Err(DerError);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = extension(&bytes, PROXY_CERT_INFO);
            let _ = proxy_policy(&bytes);
        }
    }
}
