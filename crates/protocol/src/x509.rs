//! Certificates of users: chains from a proxy (RFC 3820) over its user to a trusted authority, revocation
//! lists, signing policies, and the name that the field knows the user by.
//!
//! The TLS handshake proves that the client holds the key of its certificate, whoever issued that; whether
//! the certificate means anything is judged here, so that a refusal reaches the client as a text.
//! Says who somebody is; what they may do is decided by `decide::authorization`.

mod authorities;
mod extensions;
mod names;
mod namespaces;
pub(crate) mod signing_policy;

#[cfg(test)]
mod tests;

pub use authorities::{AuthoritiesWithoutPolicy, signers_of, without_policy};
pub(crate) use authorities::{Stamp, stamp};
pub use extensions::Proxy;
pub(crate) use names::{comparable_name, has_look_of, slash_form};

use crate::identity::{Identity, Method, NameSource, delegation_id};
use crate::membership::{MemberRules, Membership};
use crate::voms::{self, ATTRIBUTE_CERTIFICATES, Attributes, VomsError, VomsServers};
use authorities::Authorities;
use openssl::asn1::{Asn1Time, Asn1TimeRef};
use openssl::error::ErrorStack;
use openssl::sha::sha256;
use openssl::ssl::SslRef;
use openssl::stack::Stack;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::verify::{X509VerifyFlags, X509VerifyParam};
use openssl::x509::{CrlStatus, X509, X509PurposeId, X509Ref, X509StoreContext, X509VerifyResult};
use parking_lot::{Mutex, MutexGuard};
use penstock_model::{Timestamp, UserName, VoName};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as AtomicOrdering};
use std::time::Duration;
use thiserror::Error;

/// How long a verdict about the certificate of a kept connection stands when nothing else says that it must be asked for
/// again: what an authority has taken back in the meantime counts then.
const JUDGED_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Certificates that a client may show: a user's, its authorities', and a few generations of proxies.
const CHAIN_MAX: usize = 16;
/// Chains remembered for resumed sessions, whose handshake shows only the first certificate.
const REMEMBERED_MAX: usize = 16_384;
/// OpenSSL's level with at least 80 bits of security: RSA of 1024 bits, which old proxies have, and no
/// signature by SHA-1 or MD5.
const SECURITY_LEVEL: i32 = 1;

/// Why a certificate is not believed. The text is for its owner.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// No path to a trusted authority, or something on it is out of date or out of order.
    #[error("the certificate {subject} is not accepted: {why}; {remedy}")]
    NotTrusted {
        /// Which one of the chain.
        subject: String,
        /// OpenSSL's word for it.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A proxy that could not be honoured.
    #[error("the proxy certificate is not accepted: {0}")]
    Proxy(&'static str),
    /// Its authority has taken it back.
    #[error("the certificate {0} was revoked by its authority; get a new one")]
    Revoked(String),
    /// Nobody knows what the authority has taken back since.
    #[error(
        "the revocation list of {0} is out of date, so its certificates are not accepted; \
         ask the site to fetch it"
    )]
    OldRevocationList(String),
    /// The authority may not sign that name.
    #[error(
        "{authority} may not sign for {subject}: the site's signing policy does not list that name"
    )]
    SigningPolicy {
        /// Who signed.
        authority: String,
        /// What was signed.
        subject: String,
    },
    /// An authority that has the name of one that the site trusts, and another key.
    #[error("{0} is not the authority of that name which this site trusts: it has another key")]
    AnotherAuthority(String),
    /// A name that could be read as another one.
    #[error("the certificate's subject cannot be written without ambiguity: {0}")]
    Name(String),
    /// More than [`CHAIN_MAX`].
    #[error(
        "the certificate comes with more than {CHAIN_MAX} others; send those that lead to its authority"
    )]
    TooMany,
    /// A resumed session whose certificates are remembered no longer.
    #[error("the session is too old to tell whose it is; connect again without resuming it")]
    Forgotten,
    /// The site's files are not in order.
    #[error(
        "this site cannot judge the certificate: a file of its authority cannot be used; the site's log names it"
    )]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// For want of memory.
    #[error("OpenSSL failed: {0}")]
    OpenSsl(#[from] ErrorStack),
}

impl CertificateError {
    /// With what concerns the site alone: for its log.
    pub fn for_operators(&self) -> String {
        match self {
            CertificateError::Unusable { path, why } => {
                format!("{} cannot be used: {why}", path.display())
            }
            other => other.to_string(),
        }
    }
}

/// Somebody whose certificate is believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateHolder {
    /// The end entity, without the names that proxies append: `/DC=lab/OU=Users/CN=Alice`.
    pub subject: String,
    /// The authority that signed the end entity's certificate.
    pub issuer: String,
    /// Whether it came by a proxy, and the narrowest of them.
    pub proxy: Proxy,
    /// When the first certificate of the chain ends, or the VO's attributes that count.
    pub expires: Timestamp,
    /// What a VO says of the end entity by the last of its proxies that carries attributes.
    pub attributes: Attributes,
    /// The VO that the site takes it for when there are no such attributes.
    pub member_of: Option<VoName>,
}

impl CertificateHolder {
    /// The same in the terms of every credential.
    pub fn identity(&self) -> Identity {
        let voms = self.attributes.counted();
        let fqans = voms.map(|voms| voms.fqans.clone()).unwrap_or_default();
        // As FTS: with other attributes, somebody's delegated credentials are other ones.
        let named: Vec<&str> = std::iter::once(self.subject.as_str())
            .chain(fqans.iter().map(String::as_str))
            .collect();
        let delegation = delegation_id(NameSource::CertificateSubject, &named);
        Identity {
            method: Method::Certificate,
            user: UserName::new(self.subject.as_str()),
            issuer: self.issuer.clone(),
            vo: voms.map(|voms| voms.vo.clone()).or(self.member_of.clone()),
            fqans,
            groups: voms.map(voms::Voms::groups).unwrap_or_default(),
            capabilities: Vec::new(),
            expires: self.expires,
            delegation,
            scope: String::new(),
        }
    }
}

/// Judges the certificates of clients. Cheap to clone; clones share what they know.
#[derive(Clone)]
pub struct ClientCertificates(Arc<Inner>);

struct Inner {
    authorities: Authorities,
    voms: Option<VomsServers>,
    membership: Membership,
    /// By the SHA-256 of the client's own certificate.
    remembered: Mutex<HashMap<[u8; 32], CachedChain>>,
    /// Raised when whom to believe may have changed.
    reloads: AtomicU64,
}

/// A chain that was believed, in DER because parsed certificates take several times the memory.
struct CachedChain {
    expires: Timestamp,
    chain: Chain,
}

/// A chain in DER, shared by all connections that it has come by.
type Chain = Arc<Vec<Vec<u8>>>;

/// The certificate that the client of a connection has shown.
pub struct ClientCertificate {
    pub certified: Result<CertificateHolder, CertificateError>,
    /// To be asked again while the connection is kept; `None` when it is not believed.
    pub kept: Option<KeptCertificate>,
}

/// A certificate that was believed, and may have been revoked since.
pub struct KeptCertificate {
    clients: ClientCertificates,
    chain: Chain,
    judged: Timestamp,
    reloads: u64,
}

impl KeptCertificate {
    /// Whose it is now, when that is to be asked again: a minute after the last time, and at once when the site has
    /// reloaded whom it trusts. `None`: the last verdict stands.
    pub async fn judged_again(
        &mut self,
        now: Timestamp,
    ) -> Option<Result<CertificateHolder, CertificateError>> {
        let reloads = self.clients.0.reloads.load(AtomicOrdering::Acquire);
        if reloads == self.reloads && now < self.judged + JUDGED_AGAIN_AFTER {
            return None;
        }
        let (clients, chain) = (self.clients.clone(), Arc::clone(&self.chain));
        let judged = tokio::task::spawn_blocking(move || clients.verify(&parsed(&chain)?, now));
        // Only a shutdown of the runtime, or a panic that was reported already, ends it early.
        let judged = judged.await.unwrap_or(Err(CertificateError::Forgotten));
        // A refusal does not stand: what is wrong may be mended in a moment.
        if judged.is_ok() {
            (self.judged, self.reloads) = (now, reloads);
        }
        Some(judged)
    }
}

impl ClientCertificates {
    /// Trusts the authorities of a hashed directory (`<hash>.0`), within their `<hash>.namespaces` or
    /// `<hash>.signing_policy` if there is one, and with their revocation lists `<hash>.r0` if there are any.
    /// Changes of these files are seen within seconds.
    pub fn from_ca_directory(directory: &Path) -> ClientCertificates {
        ClientCertificates::new(directory, None)
    }

    /// The same, and asks the attributes of proxies what VO they are of.
    pub fn with_voms(directory: &Path, servers: VomsServers) -> ClientCertificates {
        ClientCertificates::new(directory, Some(servers))
    }

    fn new(directory: &Path, voms: Option<VomsServers>) -> ClientCertificates {
        ClientCertificates(Arc::new(Inner {
            authorities: Authorities::new(directory),
            voms,
            membership: Membership::default(),
            remembered: Mutex::default(),
            reloads: AtomicU64::default(),
        }))
    }

    /// From now on takes subjects without attributes for members of VOs by these rules.
    pub fn replace_members(&self, rules: MemberRules) {
        self.0.membership.replace(rules);
        self.0.reloads.fetch_add(1, AtomicOrdering::Release);
    }

    /// The VO that a subject in slash form is taken for when its proxies say nothing and this authority signed it.
    pub fn member_of(&self, subject: &str, ca: &str) -> Option<VoName> {
        self.0.membership.vo_of(subject, ca)
    }

    /// Looks at the directory again, without waiting for those seconds, also for the connections that are open.
    pub fn reload(&self) {
        self.0.authorities.forget();
        self.0.reloads.fetch_add(1, AtomicOrdering::Release);
    }

    /// Whose certificate a handshake showed. Blocks on files and arithmetic.
    pub(crate) fn judge(&self, shown: HandshakeCertificates, now: Timestamp) -> ClientCertificate {
        // Before the files are read: what is reloaded meanwhile counts the next time.
        let reloads = self.0.reloads.load(AtomicOrdering::Acquire);
        match self.judge_shown(shown, now) {
            Ok((certified, chain)) => ClientCertificate {
                certified: Ok(certified),
                kept: Some(KeptCertificate {
                    clients: self.clone(),
                    chain,
                    judged: now,
                    reloads,
                }),
            },
            Err(why) => ClientCertificate {
                certified: Err(why),
                kept: None,
            },
        }
    }

    fn judge_shown(
        &self,
        shown: HandshakeCertificates,
        now: Timestamp,
    ) -> Result<(CertificateHolder, Chain), CertificateError> {
        let name = sha256(&shown.leaf.to_der()?);
        let Some(others) = shown.others else {
            let chain = self.remembered_chain(&name)?;
            return Ok((self.verify(&parsed(&chain)?, now)?, chain));
        };
        let chain: Vec<X509> = std::iter::once(shown.leaf).chain(others).collect();
        let certified = self.verify(&chain, now)?;
        let chain: Result<_, _> = chain
            .iter()
            .map(|certificate| certificate.to_der())
            .collect();
        let chain = Arc::new(chain?);
        let remembered = CachedChain {
            expires: certified.expires,
            chain: Arc::clone(&chain),
        };
        self.remember(name, remembered, now);
        Ok((certified, chain))
    }

    /// Believes a chain, the client's certificate first, or says why not. Blocks on files and arithmetic.
    pub fn verify(
        &self,
        chain: &[X509],
        now: Timestamp,
    ) -> Result<CertificateHolder, CertificateError> {
        let (leaf, others) = chain.split_first().ok_or(CertificateError::Forgotten)?;
        if chain.len() > CHAIN_MAX {
            return Err(CertificateError::TooMany);
        }
        let trusted = self.trusted(chain, X509PurposeId::SSL_CLIENT, now)?;
        let verified = verified_chain(leaf, others, &trusted)?;
        let proxies: Vec<Proxy> = verified
            .iter()
            .map(|certificate| extensions::proxy(certificate))
            .collect::<Result<_, _>>()?;
        // RFC 3820 §4.1: proxies come first; OpenSSL has refused any other order.
        let end_entity = proxies
            .iter()
            .take_while(|kind| **kind != Proxy::None)
            .count();
        let issued = &verified[end_entity..];
        for pair in issued.windows(2) {
            self.check_authority(&pair[0], &pair[1], now)?;
        }
        let subject = slash_form(issued[0].subject_name())?;
        let mut expires = Timestamp(i64::MAX);
        for certificate in &verified {
            expires = expires.min(timestamp(certificate.not_after())?);
        }
        let attributes = self.attributes(&verified[..end_entity], &issued[0], now)?;
        if let Some(voms) = attributes.counted() {
            expires = expires.min(voms.expires);
        }
        let issuer = slash_form(issued[0].issuer_name())?;
        Ok(CertificateHolder {
            member_of: self.member_of(&subject, &issuer),
            issuer,
            proxy: proxies.into_iter().max().unwrap_or(Proxy::None),
            subject,
            expires,
            attributes,
        })
    }

    /// What a VO says of `end_entity`. As with VOMS libraries, the last proxy that carries attributes counts,
    /// and is not made up for by an earlier one when they are not in order. `proxies`: the last one first.
    fn attributes(
        &self,
        proxies: &[X509],
        end_entity: &X509Ref,
        now: Timestamp,
    ) -> Result<Attributes, CertificateError> {
        let Some(servers) = self.0.voms.as_ref().filter(|servers| servers.exist()) else {
            return Ok(Attributes::Absent);
        };
        for proxy in proxies {
            let der = proxy.to_der()?;
            let judged = match extensions::extension(&der, ATTRIBUTE_CERTIFICATES) {
                Ok(None) => continue,
                Ok(Some((_, value))) => {
                    voms::judge(value, end_entity, servers, &VomsTrust(self, now), now)
                }
                Err(_) => Err(VomsError::Malformed),
            };
            return Ok(judged.map_or_else(Attributes::Refused, Attributes::Counted));
        }
        Ok(Attributes::Absent)
    }

    /// The chain of a resumed session. OpenSSL's session tickets hold only its first certificate.
    fn remembered_chain(&self, name: &[u8; 32]) -> Result<Chain, CertificateError> {
        let remembered = self.lock_remembered();
        let known = remembered.get(name).ok_or(CertificateError::Forgotten)?;
        Ok(Arc::clone(&known.chain))
    }

    /// Only what was believed is remembered, so that strangers cannot fill the memory.
    fn remember(&self, name: [u8; 32], chain: CachedChain, now: Timestamp) {
        let mut remembered = self.lock_remembered();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, chain| now < chain.expires);
        }
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(name, chain);
    }

    fn lock_remembered(&self) -> MutexGuard<'_, HashMap<[u8; 32], CachedChain>> {
        self.0.remembered.lock()
    }

    /// The authorities of the directory that the chain could lead to, with the rules that it must obey.
    fn trusted(
        &self,
        chain: &[X509],
        purpose: X509PurposeId,
        now: Timestamp,
    ) -> Result<X509Store, CertificateError> {
        let mut rules = X509VerifyParam::new()?;
        if purpose == X509PurposeId::SSL_CLIENT {
            rules.set_flags(X509VerifyFlags::ALLOW_PROXY_CERTS)?;
        }
        rules.set_purpose(purpose)?;
        rules.set_auth_level(SECURITY_LEVEL);
        rules.set_time(now.0.div_euclid(1000));
        let mut store = X509StoreBuilder::new()?;
        store.set_param(&rules)?;
        let mut seen = Vec::new();
        let mut open: Vec<X509> = chain.to_vec();
        while let Some(certificate) = open.pop() {
            let hash = certificate.issuer_name_hash();
            if seen.contains(&hash) || seen.len() >= 2 * CHAIN_MAX {
                continue;
            }
            seen.push(hash);
            for authority in &self.0.authorities.of_issuer(&certificate)?.certificates {
                store.add_cert(authority.clone())?;
                open.push(authority.clone());
            }
        }
        Ok(store.build())
    }

    /// Whether `authority` stands by what it signed: revocation lists and signing policy.
    fn check_authority(
        &self,
        signed: &X509,
        authority: &X509,
        now: Timestamp,
    ) -> Result<(), CertificateError> {
        let files = self.0.authorities.of_issuer(signed)?;
        let names = (
            slash_form(authority.subject_name())?,
            slash_form(signed.subject_name())?,
        );
        let key = authority.public_key()?;
        // Rules go by names of authorities, and one that is trusted for others could sign for one of this name.
        let (mut is_named, mut is_known) = (false, false);
        for known in &files.certificates {
            let has_name =
                known.subject_name().try_cmp(authority.subject_name())? == Ordering::Equal;
            is_named |= has_name;
            is_known |= has_name && known.public_key()?.public_eq(&key);
        }
        if is_named && !is_known {
            return Err(CertificateError::AnotherAuthority(names.0));
        }
        let mut valid = None;
        for list in &files.revocation_lists {
            let same = list.issuer_name().try_cmp(authority.subject_name())? == Ordering::Equal;
            // Another authority of the same name or hash may have a list here; it says nothing of this one.
            if !same || !list.verify(&key)? {
                continue;
            }
            if let CrlStatus::Revoked(_) = list.get_by_cert(signed) {
                return Err(CertificateError::Revoked(names.1));
            }
            let ends = list.next_update().map(timestamp).transpose()?;
            let current = ends.is_none_or(|ends| now < ends);
            valid = Some(valid.unwrap_or(false) || current);
        }
        if valid == Some(false) {
            return Err(CertificateError::OldRevocationList(names.0));
        }
        match files.permit(&names.0, &names.1) {
            true => Ok(()),
            false => Err(CertificateError::SigningPolicy {
                authority: names.0,
                subject: names.1,
            }),
        }
    }
}

fn parsed(chain: &[Vec<u8>]) -> Result<Vec<X509>, ErrorStack> {
    chain.iter().map(|der| X509::from_der(der)).collect()
}

/// Believes the certificates of VOMS servers as those of clients, except that proxies sign no attributes and
/// that a server's certificate need not be good for clients.
struct VomsTrust<'a>(&'a ClientCertificates, Timestamp);

impl voms::Trust for VomsTrust<'_> {
    fn path_of(&self, chain: &[X509]) -> Result<Vec<X509>, CertificateError> {
        let VomsTrust(clients, now) = *self;
        let (signer, others) = chain.split_first().ok_or(CertificateError::Forgotten)?;
        let trusted = clients.trusted(chain, X509PurposeId::ANY, now)?;
        let path = verified_chain(signer, others, &trusted)?;
        for pair in path.windows(2) {
            clients.check_authority(&pair[0], &pair[1], now)?;
        }
        Ok(path)
    }
}

/// What a handshake showed.
pub(crate) struct HandshakeCertificates {
    leaf: X509,
    /// `None` when the session was resumed.
    others: Option<Vec<X509>>,
}

impl HandshakeCertificates {
    /// `None`: the client has shown no certificate.
    pub(crate) fn by(ssl: &SslRef) -> Option<HandshakeCertificates> {
        let leaf = ssl.peer_certificate()?;
        let others = match ssl.session_reused() {
            true => None,
            false => Some(
                ssl.peer_cert_chain()
                    .map(|chain| chain.iter().map(X509Ref::to_owned).collect())
                    .unwrap_or_default(),
            ),
        };
        Some(HandshakeCertificates { leaf, others })
    }
}

/// The path from `leaf` to an authority of `trusted`, both included. OpenSSL checks signatures, times, names,
/// basic constraints, key usages and, for proxies, the subject rule and path lengths of RFC 3820.
fn verified_chain(
    leaf: &X509,
    others: &[X509],
    trusted: &X509Store,
) -> Result<Vec<X509>, CertificateError> {
    let mut untrusted = Stack::new()?;
    for other in others {
        untrusted.push(other.clone())?;
    }
    let mut context = X509StoreContext::new()?;
    let (verdict, blamed, chain) = context.init(trusted, leaf, &untrusted, |context| {
        context.verify_cert()?;
        let chain = context
            .chain()
            .map(|chain| chain.iter().map(X509Ref::to_owned).collect());
        Ok((
            context.error(),
            context.current_cert().map(X509Ref::to_owned),
            chain.unwrap_or_default(),
        ))
    })?;
    let chain: Vec<X509> = chain;
    if verdict == X509VerifyResult::OK && !chain.is_empty() {
        return Ok(chain);
    }
    let blamed = blamed.as_ref().unwrap_or(leaf);
    Err(CertificateError::NotTrusted {
        subject: slash_form(blamed.subject_name())?,
        why: verdict.error_string().to_owned(),
        remedy: remedy(verdict),
    })
}

// OpenSSL's X509_V_ERR_… (x509_vfy.h).
const UNKNOWN_ISSUER_LOCALLY: i32 = 20;
const UNKNOWN_ISSUER: i32 = 2;
const SELF_SIGNED: i32 = 18;
const SELF_SIGNED_IN_CHAIN: i32 = 19;
const UNVERIFIABLE_LEAF: i32 = 21;
const NOT_YET_VALID: i32 = 9;
const EXPIRED: i32 = 10;

fn remedy(verdict: X509VerifyResult) -> &'static str {
    match verdict.as_raw() {
        UNKNOWN_ISSUER
        | UNKNOWN_ISSUER_LOCALLY
        | SELF_SIGNED
        | SELF_SIGNED_IN_CHAIN
        | UNVERIFIABLE_LEAF => {
            "send all certificates up to the authority's, and ask the site to trust that authority"
        }
        NOT_YET_VALID => "check the clocks",
        EXPIRED => "make a new proxy, or have the certificate renewed",
        _ => "use a certificate of an authority that the site trusts, or an RFC 3820 proxy of one",
    }
}

pub(crate) fn timestamp(time: &Asn1TimeRef) -> Result<Timestamp, ErrorStack> {
    let span = Asn1Time::from_unix(0)?.diff(time)?;
    let seconds = i64::from(span.days) * 86_400 + i64::from(span.secs);
    Ok(Timestamp(seconds * 1000))
}
