//! Attributes of a VO in a proxy certificate: attribute certificates (RFC 5755) as VOMS servers sign them, and
//! whether they count.
//!
//! They count when a VOMS server signed them that the site knows for that VO, for the holder of this very
//! certificate, for now and for here. Otherwise the holder is known all the same, without a VO.

mod attribute_certificate;
mod servers;

pub use servers::VomsServers;

use crate::der::DerError;
use crate::x509::CertificateError;
use attribute_certificate::{AttributeCertificate, attribute_certificates};
use openssl::error::ErrorStack;
use openssl::sign::Verifier;
use openssl::x509::{X509, X509Name, X509Ref};
use penstock_model::{Timestamp, VoName};
use servers::ServerTrust;
use std::cmp::Ordering;
use std::path::PathBuf;
use thiserror::Error;

/// 1.3.6.1.4.1.8005.100.100.5: where a proxy carries attribute certificates.
pub(crate) const ATTRIBUTE_CERTIFICATES: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 5];
/// Attributes that one proxy may carry; members of the largest VOs have some dozens.
const FQANS_MAX: usize = 512;
/// A VOMS server's clock may be ahead of ours by so much.
const SKEW_MS: i64 = 300_000;

/// What a VO says of the holder of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voms {
    /// The VO of the first attribute certificate.
    pub vo: VoName,
    /// Groups and roles as they came, in order: `/dteam/prod/Role=NULL/Capability=NULL`.
    pub fqans: Vec<String>,
    /// When the first of the attribute certificates ends.
    pub expires: Timestamp,
}

impl Voms {
    /// Groups and roles in plain form, without what says nothing: `/dteam/prod`, `/dteam/Role=production`.
    pub fn groups(&self) -> Vec<String> {
        self.fqans.iter().map(|fqan| plain(fqan)).collect()
    }
}

/// An FQAN without a role or capability that is none.
fn plain(fqan: &str) -> String {
    let without = fqan.strip_suffix("/Capability=NULL").unwrap_or(fqan);
    let without = without.strip_suffix("/Role=NULL").unwrap_or(without);
    without.to_owned()
}

/// What became of the attributes in a client's proxies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attributes {
    /// There are none, or the site knows no VOMS server at all.
    Absent,
    /// They count.
    Counted(Voms),
    /// They do not count, for this reason.
    Refused(VomsError),
}

impl Attributes {
    pub fn counted(&self) -> Option<&Voms> {
        match self {
            Attributes::Counted(voms) => Some(voms),
            Attributes::Absent | Attributes::Refused(_) => None,
        }
    }

    /// Why what was shown does not count.
    pub fn refusal(&self) -> Option<&VomsError> {
        match self {
            Attributes::Refused(why) => Some(why),
            Attributes::Absent | Attributes::Counted(_) => None,
        }
    }
}

/// Why attributes do not count.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VomsError {
    /// Not DER, or not what RFC 5755 and VOMS ask for.
    #[error("they are malformed")]
    Malformed,
    /// More than a certificate may sensibly carry.
    #[error("there are more than {FQANS_MAX} of them")]
    TooMany,
    /// No directory for that VO.
    #[error("the VO '{0}' is not known here; the site would need {1}")]
    UnknownVo(String, PathBuf),
    /// The VO is known, its server is not.
    #[error("{host} is not known here as a VOMS server of '{vo}'; the site would need {}", lsc.display())]
    UnknownServer {
        vo: String,
        /// The server that the attributes name.
        host: String,
        /// The file that would make it known.
        lsc: PathBuf,
    },
    /// The certificate of the server is not to be had.
    #[error("they come without the certificate of the VOMS server that signed them")]
    NoSigner,
    /// The certificate of the server is not believed.
    #[error("the VOMS server's certificate is not believed: {0}")]
    Signer(String),
    /// Another server than the one that the site knows.
    #[error("they were signed by {signer}, which {} does not list", lsc.display())]
    OtherSigner {
        /// The subject of the signer.
        signer: String,
        /// What the site knows.
        lsc: PathBuf,
    },
    /// Changed on the way, or never signed by that server.
    #[error("their signature is not valid")]
    Signature,
    /// SHA-1 and older, or unknown.
    #[error(
        "they are signed in a way that is not accepted; the VOMS server must use SHA-256 or better"
    )]
    Algorithm,
    /// Stolen, or kept from an older certificate.
    #[error("they were made for another certificate; make a new proxy")]
    OtherHolder,
    #[error("they are not valid before {}Z; check the clocks", .0.to_fts())]
    NotYetValid(Timestamp),
    /// No longer.
    #[error("they expired at {}Z; make a new proxy", .0.to_fts())]
    Expired(Timestamp),
    /// Meant for other services.
    #[error("they are meant for other services than this one")]
    Target,
    /// The server speaks for one VO and no other.
    #[error("'{fqan}' is not a group of the VO '{vo}'")]
    OtherVo {
        /// Which attribute.
        fqan: String,
        /// The VO that its server speaks for.
        vo: String,
    },
    /// An extension that must be understood and is not.
    #[error("they have a critical extension that is not known here")]
    CriticalExtension,
    /// The site's files are not in order.
    #[error("{} cannot be used: {why}", path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// For want of memory.
    #[error("OpenSSL failed: {0}")]
    OpenSsl(String),
}

impl From<DerError> for VomsError {
    fn from(_: DerError) -> VomsError {
        VomsError::Malformed
    }
}

impl From<ErrorStack> for VomsError {
    fn from(why: ErrorStack) -> VomsError {
        VomsError::OpenSsl(why.to_string())
    }
}

/// Who checks the certificate of a VOMS server: gives back the path from it to a trusted authority.
pub(crate) trait Trust {
    /// The path from the first of these certificates, or why there is none.
    fn path_of(&self, chain: &[X509]) -> Result<Vec<X509>, CertificateError>;
}

/// What the attribute certificates in an extension's value say of `holder`, an end entity. All of them must
/// be in order: an odd one beside a good one is no accident.
pub(crate) fn judge(
    value: &[u8],
    holder: &X509Ref,
    servers: &VomsServers,
    trust: &impl Trust,
    now: Timestamp,
) -> Result<Voms, VomsError> {
    let mut voms: Option<Voms> = None;
    for certificate in attribute_certificates(value)? {
        check_signer(&certificate, servers, trust)?;
        check_holder(&certificate, holder)?;
        check_time(&certificate, now)?;
        check_targets(&certificate, servers)?;
        check_fqans(&certificate)?;
        let voms = voms.get_or_insert_with(|| Voms {
            vo: VoName::new(certificate.vo),
            fqans: Vec::new(),
            expires: certificate.not_after,
        });
        voms.expires = voms.expires.min(certificate.not_after);
        let more = certificate.fqans.iter().map(|fqan| (*fqan).to_owned());
        voms.fqans.extend(more);
        if voms.fqans.len() > FQANS_MAX {
            return Err(VomsError::TooMany);
        }
    }
    voms.ok_or(VomsError::Malformed)
}

/// That a server which the site knows for this VO has signed it.
fn check_signer(
    certificate: &AttributeCertificate,
    servers: &VomsServers,
    trust: &impl Trust,
) -> Result<(), VomsError> {
    let not_believed = |why: CertificateError| VomsError::Signer(why.to_string());
    let signer = match servers.known(certificate.vo, certificate.host)? {
        ServerTrust::Names(list) => {
            let chain = certificate.signer_chain()?;
            let signer = chain.first().ok_or(VomsError::NoSigner)?.clone();
            let path = trust.path_of(&chain).map_err(not_believed)?;
            list.check(&path)?;
            signer
        }
        ServerTrust::Certificates(kept, lsc) => {
            let name = X509Name::from_der(certificate.issuer)?;
            let mut kept = kept.into_iter();
            let signer = kept.find(|kept| {
                kept.subject_name()
                    .try_cmp(&name)
                    .is_ok_and(Ordering::is_eq)
            });
            let signer = signer.ok_or_else(|| VomsError::UnknownServer {
                vo: certificate.vo.to_owned(),
                host: certificate.host.to_owned(),
                lsc,
            })?;
            trust
                .path_of(std::slice::from_ref(&signer))
                .map_err(not_believed)?;
            signer
        }
    };
    // RFC 5755 §5: the issuer that it names is the one whose key has signed it.
    let issuer = X509Name::from_der(certificate.issuer)?;
    if signer.subject_name().try_cmp(&issuer)? != Ordering::Equal {
        return Err(VomsError::NoSigner);
    }
    let digest = certificate.digest().ok_or(VomsError::Algorithm)?;
    let key = signer.public_key()?;
    let mut verifier = Verifier::new(digest, &key).map_err(|_| VomsError::Signature)?;
    let valid = verifier.verify_oneshot(certificate.signature, certificate.signed);
    match valid {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => Err(VomsError::Signature),
    }
}

/// RFC 5755 §4.2.2 wants issuer and serial number of the holder's certificate. VOMS servers write the
/// certificate's own subject where its issuer belongs, so VOMS libraries accept either, and so do we: the
/// serial number must fit in both cases.
fn check_holder(certificate: &AttributeCertificate, holder: &X509Ref) -> Result<(), VomsError> {
    let name = X509Name::from_der(certificate.holder.name)?;
    let is = |other: &openssl::x509::X509NameRef| name.try_cmp(other).is_ok_and(Ordering::is_eq);
    let named = is(holder.issuer_name()) || is(holder.subject_name());
    let numbered =
        attribute_certificate::serial_of(&holder.to_der()?)? == certificate.holder.serial;
    let entity = match certificate.holder.entity {
        None => true,
        Some(entity) => {
            let entity = X509Name::from_der(entity)?;
            entity.try_cmp(holder.subject_name())? == Ordering::Equal
        }
    };
    match named && numbered && entity {
        true => Ok(()),
        false => Err(VomsError::OtherHolder),
    }
}

fn check_time(certificate: &AttributeCertificate, now: Timestamp) -> Result<(), VomsError> {
    if now.0.saturating_add(SKEW_MS) < certificate.not_before.0 {
        return Err(VomsError::NotYetValid(certificate.not_before));
    }
    match now < certificate.not_after {
        true => Ok(()),
        false => Err(VomsError::Expired(certificate.not_after)),
    }
}

/// RFC 5755 §4.3.2: with targets, it is worth something to those only.
fn check_targets(
    certificate: &AttributeCertificate,
    servers: &VomsServers,
) -> Result<(), VomsError> {
    let Some(targets) = &certificate.targets else {
        return Ok(());
    };
    let named = targets.iter().any(|target| servers.is_here(target));
    named.then_some(()).ok_or(VomsError::Target)
}

/// A server speaks for its VO alone; without this any VO could make members of every other.
fn check_fqans(certificate: &AttributeCertificate) -> Result<(), VomsError> {
    let vo = certificate.vo;
    let foreign = certificate.fqans.iter().find(|fqan| {
        let below = fqan
            .strip_prefix('/')
            .and_then(|fqan| fqan.strip_prefix(vo));
        !below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    match foreign {
        None => Ok(()),
        Some(fqan) => Err(VomsError::OtherVo {
            fqan: (*fqan).to_owned(),
            vo: vo.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn what_says_nothing_is_left_out_of_a_group() {
        for (fqan, group) in [
            ("/dteam/Role=NULL/Capability=NULL", "/dteam"),
            ("/dteam/prod/Role=NULL/Capability=NULL", "/dteam/prod"),
            (
                "/dteam/Role=production/Capability=NULL",
                "/dteam/Role=production",
            ),
            ("/dteam/Role=production", "/dteam/Role=production"),
            ("/dteam/Role=NULL", "/dteam"),
            ("/dteam/Role=x/Capability=y", "/dteam/Role=x/Capability=y"),
            ("/dteam", "/dteam"),
        ] {
            assert_eq!(plain(fqan), group);
        }
    }
}
