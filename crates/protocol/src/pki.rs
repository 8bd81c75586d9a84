//! The keys and certificates with which a site starts: its own certificate authority, host certificates, the
//! hashed trust directory of the grid, and the key that signs tokens.
//!
//! Files are made whole or not at all, private ones with mode 0600, and never overwritten: a lost CA key
//! cannot be had again. Certificates are RSA, because the oldest clients of the field know nothing else.

mod existing;
mod foreign;
mod hashed_directory;

pub use existing::open_ca;
pub use foreign::{ForeignAuthority, names_host};

use crate::x509::{self, CertificateError};
use hashed_directory::{Policy, place};

use openssl::asn1::{Asn1Integer, Asn1Time, Asn1TimeRef};
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Private};
use openssl::rsa::Rsa;
use openssl::stack::{Stack, StackRef};
use openssl::x509::extension::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName,
    SubjectKeyIdentifier,
};
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::X509VerifyParam;
use openssl::x509::{
    X509, X509Builder, X509Crl, X509Name, X509NameBuilder, X509NameRef, X509PurposeId, X509Ref,
    X509StoreContext, X509VerifyResult,
};
use penstock_clock::wall_clock;
use penstock_model::Timestamp;
use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// How long a new certificate authority lasts.
pub const CA_LIFETIME: Duration = Duration::from_secs(3650 * 86_400);
/// How long a host certificate lasts unless another time is given: the 397 days that browsers accept.
pub const HOST_LIFETIME: Duration = Duration::from_secs(397 * 86_400);

/// Clients whose clock is behind must not refuse a new certificate.
const BACKDATED: Duration = Duration::from_secs(3600);
// The authority outlives 2030, up to which NIST SP 800-57 recommends 2048 bits.
const CA_RSA_BITS: u32 = 3072;
const HOST_RSA_BITS: u32 = 2048;
/// The bound of X.520 on a common name is 64 characters, of which " CA" takes three.
const SITE_NAME_MAX: usize = 61;
/// That of usual systems: keys of 112 bits of security at least, no SHA-1 in signatures.
const CLIENT_SECURITY_LEVEL: i32 = 2;
// OpenSSL's X509_V_ERR_… (x509_vfy.h).
const INVALID_PURPOSE: i32 = 26;
const PERMITTED_VIOLATION: i32 = 47;
const EXCLUDED_VIOLATION: i32 = 48;
const INVALID_CA: i32 = 79;
/// Of a name that is refused: strangers choose names.
const NAME_CHARS_SHOWN: usize = 100;
const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// Why a key or certificate could not be made, read or installed.
#[derive(Debug, Error)]
pub enum PkiError {
    /// Nothing is ever overwritten.
    #[error("{} exists already; move it away first if it shall be replaced", .0.display())]
    Exists(PathBuf),
    /// The file system refused.
    #[error("{path}: {why}", path = .path.display())]
    File {
        /// Which file or directory.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// The file holds no certificate or key in PEM form.
    #[error("{path} holds no usable {what} in PEM form: {why}", path = .path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// What OpenSSL says.
        why: ErrorStack,
    },
    /// A name that cannot stand in a certificate.
    #[error("'{0}' cannot be used in a certificate: {1}")]
    Name(String, &'static str),
    /// A policy that is left of another authority of this name, which this one would inherit.
    #[error(
        "{path} is there without the authority {subject} to which it applies, and lets it certify other names; remove the \
         file if that authority was removed here",
        path = .path.display()
    )]
    LeftPolicy {
        /// Which file.
        path: PathBuf,
        /// The authority of which it speaks.
        subject: String,
    },
    /// An authority without a policy, to which that of another one would apply.
    #[error(
        "{path} is an authority without a signing policy, and its name has the hash of {subject}, whose policy would lock out \
         its users; write a policy for it first",
        path = .path.display()
    )]
    WithoutPolicy {
        /// The file of the authority.
        path: PathBuf,
        /// The authority that was to come beside it.
        subject: String,
    },
    /// A directory whose files make no certificate authority that could be used.
    #[error("cannot use the CA in {path}: {1}", path = .0.display())]
    Authority(PathBuf, String),
    /// A certificate of a host that is refused by whoever trusts its authority.
    #[error("clients would refuse the certificate of '{host}': {why}")]
    Refused {
        /// The name or address under which it is refused.
        host: String,
        why: String,
    },
    /// OpenSSL failed, for want of randomness or memory.
    #[error("OpenSSL could not make the certificate: {0}")]
    OpenSsl(#[from] ErrorStack),
}

/// A certificate authority with its private key.
pub struct CertificateAuthority {
    certificate: X509,
    key: PKey<Private>,
}

impl CertificateAuthority {
    /// The certificate, without the key.
    pub fn certificate(&self) -> &X509 {
        &self.certificate
    }

    /// Writes `ca.pem` and `ca.key` into a directory, which has neither.
    pub fn save(&self, dir: &Path) -> Result<(), PkiError> {
        let (certificate_path, key_path) = (dir.join("ca.pem"), dir.join("ca.key"));
        refuse_existing(&[&certificate_path, &key_path])?;
        write_new(&key_path, &self.key.private_key_to_pem_pkcs8()?, PRIVATE)?;
        write_new(&certificate_path, &self.certificate.to_pem()?, PUBLIC)
    }
}

/// Makes a certificate authority for a site: `ca.pem` and `ca.key` in `dir`, subject
/// `/DC=penstock/O=<site>/CN=<site> CA`.
pub fn create_ca(dir: &Path, site: &str) -> Result<CertificateAuthority, PkiError> {
    check_site_name(site)?;
    refuse_existing(&[&dir.join("ca.pem"), &dir.join("ca.key")])?;
    let key = PKey::from_rsa(Rsa::generate(CA_RSA_BITS)?)?;
    let subject = name_of(site, &format!("{site} CA"))?;
    let mut builder = started(&subject, &subject, &key)?;
    set_validity(&mut builder, CA_LIFETIME, None)?;
    builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
    builder.append_extension(
        KeyUsage::new()
            .critical()
            .key_cert_sign()
            .crl_sign()
            .build()?,
    )?;
    let context = builder.x509v3_context(None, None);
    let identifier = SubjectKeyIdentifier::new().build(&context)?;
    builder.append_extension(identifier)?;
    builder.sign(&key, digest_for(&key))?;
    let certificate = builder.build();
    let authority = CertificateAuthority { certificate, key };
    authority.save(dir)?;
    Ok(authority)
}

/// Makes `cert.pem` and `key.pem` in `dir` for a host under all its names and addresses; good as server and
/// as client. It ends with the authority if `lifetime` would outlast it. What clients that trust the authority would
/// refuse is not made.
pub fn issue_host_certificate(
    authority: &CertificateAuthority,
    hosts: &[String],
    lifetime: Duration,
    dir: &Path,
) -> Result<(), PkiError> {
    let (certificate_path, key_path) = (dir.join("cert.pem"), dir.join("key.pem"));
    refuse_existing(&[&certificate_path, &key_path])?;
    let key = PKey::from_rsa(Rsa::generate(HOST_RSA_BITS)?)?;
    let certificate = host_certificate(authority, hosts, lifetime, &key)?;
    for host in hosts {
        let Err(why) = verify(&certificate, authority, host)? else {
            continue;
        };
        // One name that is not allowed spoils the certificate for all: which one is it?
        for host in hosts {
            let alone = std::slice::from_ref(host);
            let alone = host_certificate(authority, alone, lifetime, &key)?;
            if let Err(why) = verify(&alone, authority, host)? {
                return Err(refused(host, why));
            }
        }
        return Err(refused(host, why));
    }
    write_new(&key_path, &key.private_key_to_pem_pkcs8()?, PRIVATE)?;
    write_new(&certificate_path, &certificate.to_pem()?, PUBLIC)
}

fn host_certificate(
    authority: &CertificateAuthority,
    hosts: &[String],
    lifetime: Duration,
    key: &PKey<Private>,
) -> Result<X509, PkiError> {
    let names = subject_alternative_name(hosts)?;
    let issuer = authority.certificate.subject_name();
    let organisation = issuer.entries_by_nid(Nid::ORGANIZATIONNAME).next();
    let organisation = organisation.and_then(|entry| entry.data().to_string().ok());
    let site = organisation.unwrap_or_else(|| "site".to_owned());
    // A long host name stands among the alternative names only; clients look there first anyway (RFC 6125
    // §6.4.4).
    let common: String = hosts[0].chars().take(64).collect();
    let subject = name_of(&site, &common)?;
    let mut builder = started(&subject, issuer, key)?;
    set_validity(&mut builder, lifetime, Some(&authority.certificate))?;
    builder.append_extension(BasicConstraints::new().critical().build()?)?;
    let usage = KeyUsage::new()
        .critical()
        .digital_signature()
        .key_encipherment()
        .build()?;
    builder.append_extension(usage)?;
    builder.append_extension(
        ExtendedKeyUsage::new()
            .server_auth()
            .client_auth()
            .build()?,
    )?;
    let context = builder.x509v3_context(Some(&authority.certificate), None);
    let mut identifiers = vec![
        names.build(&context)?,
        SubjectKeyIdentifier::new().build(&context)?,
    ];
    // An authority that others have made need not have an identifier.
    if authority.certificate.subject_key_id().is_some() {
        identifiers.push(AuthorityKeyIdentifier::new().keyid(true).build(&context)?);
    }
    for extension in identifiers {
        builder.append_extension(extension)?;
    }
    builder.sign(&authority.key, digest_for(&authority.key))?;
    Ok(builder.build())
}

/// The digest with which a key signs: Ed25519 and Ed448 bring their own.
fn digest_for(key: &PKey<Private>) -> MessageDigest {
    match key.id() {
        Id::ED25519 | Id::ED448 => MessageDigest::null(),
        _ => MessageDigest::sha256(),
    }
}

/// Whether a client that trusts the authority believes that this is the server of the host.
fn verify(
    certificate: &X509,
    authority: &CertificateAuthority,
    host: &str,
) -> Result<Result<(), X509VerifyResult>, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    store.add_cert(authority.certificate.clone())?;
    let none = Stack::new()?;
    verify_server(store, certificate, &none, host)
}

/// Whether a client that trusts what is in the store believes that this is the server of the host, as
/// `openssl verify -purpose sslserver -verify_hostname`.
pub(crate) fn verify_server(
    store: X509StoreBuilder,
    certificate: &X509Ref,
    chain: &StackRef<X509>,
    host: &str,
) -> Result<Result<(), X509VerifyResult>, ErrorStack> {
    let verified = verified_chain(store, certificate, chain, host)?;
    Ok(verified.map(drop))
}

/// The same; gives the certificates by which it is believed, that of the authority last.
pub(crate) fn verified_chain(
    mut store: X509StoreBuilder,
    certificate: &X509Ref,
    chain: &StackRef<X509>,
    host: &str,
) -> Result<Result<Vec<X509>, X509VerifyResult>, ErrorStack> {
    let mut parameters = X509VerifyParam::new()?;
    parameters.set_purpose(X509PurposeId::SSL_SERVER)?;
    parameters.set_auth_level(CLIENT_SECURITY_LEVEL);
    match host.parse() {
        Ok(address) => parameters.set_ip(address)?,
        Err(_) => parameters.set_host(host)?,
    }
    store.set_param(&parameters)?;
    let mut context = X509StoreContext::new()?;
    context.init(&store.build(), certificate, chain, |context| {
        Ok(match context.verify_cert()? {
            true => {
                let used = context.chain();
                Ok(used.map_or_else(Vec::new, |used| {
                    used.iter().map(|one| one.to_owned()).collect()
                }))
            }
            false => Err(context.error()),
        })
    })
}

fn refused(host: &str, why: X509VerifyResult) -> PkiError {
    let why = match why.as_raw() {
        INVALID_CA => {
            "the certificate of its authority is not one of an authority (CA:TRUE)".to_owned()
        }
        INVALID_PURPOSE => {
            "the certificate of its authority does not allow it to vouch for servers".to_owned()
        }
        PERMITTED_VIOLATION | EXCLUDED_VIOLATION => {
            "the name constraints of the authority do not allow it".to_owned()
        }
        _ => why.error_string().to_owned(),
    };
    let host = host.to_owned();
    PkiError::Refused { host, why }
}

/// Puts a CA certificate into a hashed trust directory (`<hash>.0`, or the next free number) with the signing
/// policy that Globus clients demand. Does nothing when the same certificate is there already. Gives back its
/// path.
pub fn install_ca(ca_pem: &Path, certificates_dir: &Path) -> Result<PathBuf, PkiError> {
    let certificate = read_certificate(ca_pem)?;
    let policy = signing_policy(certificate.subject_name())?;
    place(&certificate, Some(&policy), certificates_dir)
}

/// Makes the key that signs tokens: EC P-256, PKCS#8 PEM.
pub fn create_signing_key(path: &Path) -> Result<(), PkiError> {
    refuse_existing(&[path])?;
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    let key = PKey::from_ec_key(EcKey::generate(&group)?)?;
    write_new(path, &key.private_key_to_pem_pkcs8()?, PRIVATE)
}

/// From when until when the certificates of a PEM file are all valid: that of a host, and those between it and its
/// authority.
pub fn life(certificates: &Path) -> Result<(Timestamp, Timestamp), PkiError> {
    let chain = X509::stack_from_pem(&read(certificates)?).map_err(|why| PkiError::Content {
        path: certificates.to_owned(),
        what: "certificate",
        why,
    })?;
    // A file without any is what `read_certificate` refuses with a reason.
    let chain = match chain.is_empty() {
        true => vec![read_certificate(certificates)?],
        false => chain,
    };
    let mut life = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    for certificate in &chain {
        life.0 = life.0.max(timestamp(certificate.not_before())?);
        life.1 = life.1.min(timestamp(certificate.not_after())?);
    }
    Ok(life)
}

/// When a revocation list was made, and when the next one is due; `None` when it does not tell.
pub fn revocation_list_life(list: &Path) -> Result<(Timestamp, Option<Timestamp>), PkiError> {
    let bytes = read(list)?;
    let parsed = X509Crl::from_pem(&bytes).or_else(|_| X509Crl::from_der(&bytes));
    let parsed = parsed.map_err(|why| PkiError::Content {
        path: list.to_owned(),
        what: "revocation list",
        why,
    })?;
    let next = parsed.next_update().map(timestamp).transpose()?;
    Ok((timestamp(parsed.last_update())?, next))
}

fn timestamp(time: &Asn1TimeRef) -> Result<Timestamp, PkiError> {
    let span = Asn1Time::from_unix(0)?.diff(time)?;
    let seconds = i64::from(span.days) * 86_400 + i64::from(span.secs);
    Ok(Timestamp(seconds * 1000))
}

fn check_site_name(site: &str) -> Result<(), PkiError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || " ._-".contains(c);
    let refused = |why| Err(PkiError::Name(site.to_owned(), why));
    match site {
        "" => refused("it is empty"),
        _ if site.len() > SITE_NAME_MAX => refused("it is longer than 61 characters"),
        _ if !site.chars().all(allowed) => refused("use letters, digits, blanks, '.', '_' and '-'"),
        // Some who read names take several blanks for one, and leave out those at the ends.
        _ if site.split(' ').any(str::is_empty) => refused("use single blanks, between words only"),
        _ => Ok(()),
    }
}

fn subject_alternative_name(hosts: &[String]) -> Result<SubjectAlternativeName, PkiError> {
    if hosts.is_empty() {
        return Err(PkiError::Name(
            String::new(),
            "a host certificate needs at least one name",
        ));
    }
    let mut names = SubjectAlternativeName::new();
    for host in hosts {
        // What looks like neither an address nor a name could smuggle a further entry past OpenSSL's parser.
        let label = |c: char| c.is_ascii_alphanumeric() || "-.*_".contains(c);
        if host.parse::<IpAddr>().is_ok() {
            names.ip(host);
        } else if !host.is_empty() && host.len() <= 253 && host.chars().all(label) {
            names.dns(host);
        } else {
            return Err(PkiError::Name(
                host.clone(),
                "it is neither a host name nor an address",
            ));
        }
    }
    Ok(names)
}

fn name_of(site: &str, common: &str) -> Result<X509Name, ErrorStack> {
    let mut name = X509NameBuilder::new()?;
    name.append_entry_by_nid(Nid::DOMAINCOMPONENT, "penstock")?;
    name.append_entry_by_nid(Nid::ORGANIZATIONNAME, site)?;
    name.append_entry_by_nid(Nid::COMMONNAME, common)?;
    Ok(name.build())
}

fn started(
    subject: &X509NameRef,
    issuer: &X509NameRef,
    key: &PKey<Private>,
) -> Result<X509Builder, ErrorStack> {
    let mut serial = BigNum::new()?;
    // RFC 5280 §4.1.2.2: positive, at most 20 octets; random, so that two authorities never agree by chance.
    serial.rand(159, MsbOption::ONE, false)?;
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    builder.set_serial_number(Asn1Integer::from_bn(&serial)?.as_ref())?;
    builder.set_subject_name(subject)?;
    builder.set_issuer_name(issuer)?;
    builder.set_pubkey(key)?;
    Ok(builder)
}

fn set_validity(
    builder: &mut X509Builder,
    lifetime: Duration,
    issuer: Option<&X509>,
) -> Result<(), ErrorStack> {
    let now = Duration::from_secs(wall_clock().0.unsigned_abs() / 1000);
    let at =
        |time: Duration| Asn1Time::from_unix(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    let end = at(now + lifetime)?;
    builder.set_not_before(at(now.saturating_sub(BACKDATED))?.as_ref())?;
    match issuer {
        Some(issuer) if issuer.not_after() < end => builder.set_not_after(issuer.not_after()),
        _ => builder.set_not_after(&end),
    }
}

/// Which subjects an authority may sign. Our own authorities sign below their organisation only; for others we do not know, and
/// allow any.
fn signing_policy(subject: &X509NameRef) -> Result<Policy, PkiError> {
    let authority = slash_form(subject)?;
    let signs = match authority.rsplit_once('/') {
        Some((above, _)) if above.starts_with("/DC=penstock/O=") => format!("{above}/*"),
        _ => "*".to_owned(),
    };
    Ok(Policy { authority, signs })
}

/// `/DC=penstock/O=site/CN=site CA`: the form in which grid software has always written subjects. Errors: it could be read as
/// that of another name, or cannot stand in a signing policy.
fn slash_form(name: &X509NameRef) -> Result<String, PkiError> {
    let refused = |name: &str, why| {
        let shown: String = name.chars().take(NAME_CHARS_SHOWN).collect();
        Err(PkiError::Name(shown, why))
    };
    match x509::slash_form(name) {
        Ok(written) if written.contains(['\'', '"']) => {
            refused(&written, "quotes cannot be written into a signing policy")
        }
        Ok(written) => Ok(written),
        Err(CertificateError::OpenSsl(why)) => Err(why.into()),
        Err(CertificateError::Name(name)) => refused(&name, "it could be read as another name"),
        Err(why) => refused(&why.to_string(), "it cannot be written"),
    }
}

/// The subject of a certificate in slash form.
pub fn subject_of(certificate: &X509Ref) -> Result<String, PkiError> {
    slash_form(certificate.subject_name())
}

fn read_certificate(path: &Path) -> Result<X509, PkiError> {
    X509::from_pem(&read(path)?).map_err(|why| PkiError::Content {
        path: path.to_owned(),
        what: "certificate",
        why,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, PkiError> {
    fs::read(path).map_err(in_file(path))
}

fn in_file(path: &Path) -> impl Fn(io::Error) -> PkiError + '_ {
    move |why| PkiError::File {
        path: path.to_owned(),
        why,
    }
}

fn refuse_existing(paths: &[&Path]) -> Result<(), PkiError> {
    match paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => Err(PkiError::Exists(path.to_path_buf())),
        None => Ok(()),
    }
}

/// Writes beside the target, then links it into place: a link never replaces a file, and a crash leaves
/// either the whole file or none.
fn write_new(path: &Path, content: &[u8], mode: u32) -> Result<(), PkiError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(directory).map_err(in_file(directory))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = directory.join(format!(".{name}.{}", uuid::Uuid::new_v4().simple()));
    let written = write_synced(&draft, content, mode).and_then(|()| fs::hard_link(&draft, path));
    // The draft goes in any case; when that fails, it is a hidden file of the same mode, and harmless.
    let _ = fs::remove_file(&draft);
    match written {
        Ok(()) => {
            let synced = fs::File::open(directory).and_then(|opened| opened.sync_all());
            synced.map_err(in_file(directory))
        }
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
            Err(PkiError::Exists(path.to_owned()))
        }
        Err(why) => Err(in_file(path)(why)),
    }
}

/// Puts a public file in the place of one that is there.
fn replace(path: &Path, content: &[u8]) -> Result<(), PkiError> {
    let draft = path.with_extension(format!("new-{}", uuid::Uuid::new_v4().simple()));
    let replaced = write_synced(&draft, content, PUBLIC).and_then(|()| fs::rename(&draft, path));
    replaced.map_err(|why| {
        let _ = fs::remove_file(&draft);
        in_file(path)(why)
    })
}

fn write_synced(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::time::SystemTime;

    fn site() -> (tempfile::TempDir, CertificateAuthority) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let authority = create_ca(&dir.path().join("ca"), "lab").expect("made");
        (dir, authority)
    }

    fn verifies(certificate: &X509, authority: &CertificateAuthority, host: &str) -> bool {
        let verdict = verify(certificate, authority, host);
        verdict.expect("verification ran").is_ok()
    }

    #[test]
    fn a_copy_of_an_authority_issues_what_the_first_one_vouches_for() {
        let (dir, authority) = site();
        let second = dir.path().join("second");
        let copy = open_ca(&dir.path().join("ca")).expect("readable");
        copy.save(&second).expect("copied");
        let host = ["localhost".to_owned()];
        issue_host_certificate(&copy, &host, HOST_LIFETIME, &dir.path().join("host"))
            .expect("issued");
        let issued = dir.path().join("host/cert.pem");
        let certificate = read_certificate(&issued).expect("readable");
        assert!(verifies(&certificate, &authority, "localhost"));
        let mode = fs::metadata(second.join("ca.key")).expect("there").mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(copy.save(&second), Err(PkiError::Exists(_))));
    }

    #[test]
    fn what_makes_no_authority_is_not_copied() {
        let (dir, authority) = site();
        let at = |name: &str| dir.path().join(name);
        create_ca(&at("other"), "other").expect("made");
        let host = ["localhost".to_owned()];
        issue_host_certificate(&authority, &host, HOST_LIFETIME, &at("host")).expect("issued");
        let refused = |certificate: &str, key: &str| {
            let _ = fs::remove_dir_all(at("mixed"));
            fs::create_dir(at("mixed")).expect("made");
            fs::copy(at(certificate), at("mixed/ca.pem")).expect("copied");
            fs::copy(at(key), at("mixed/ca.key")).expect("copied");
            open_ca(&at("mixed")).err().expect("refused").to_string()
        };
        let why = refused("ca/ca.pem", "other/ca.key");
        assert!(why.contains("ca.key is not the key of ca.pem"), "{why}");
        let why = refused("host/cert.pem", "host/key.pem");
        assert!(why.contains("signs itself"), "{why}");
    }

    #[test]
    fn a_host_certificate_is_good_for_each_of_its_names_and_for_no_other() {
        let (dir, authority) = site();
        let hosts = ["localhost", "se.example.org", "127.0.0.2", "::1"].map(str::to_owned);
        let host_dir = dir.path().join("host");
        issue_host_certificate(&authority, &hosts, HOST_LIFETIME, &host_dir).expect("issued");
        let certificate = read_certificate(&host_dir.join("cert.pem")).expect("readable");
        for host in &hosts {
            assert!(verifies(&certificate, &authority, host), "{host}");
        }
        for host in ["other.example.org", "127.0.0.3"] {
            assert!(!verifies(&certificate, &authority, host), "{host}");
        }
        let (_, ends) = life(&host_dir.join("cert.pem")).expect("readable");
        let expected = SystemTime::now() + HOST_LIFETIME;
        let expected = expected
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("after 1970");
        assert!(ends.unix_seconds().abs_diff(expected.as_secs() as i64) < 60);
        assert_eq!(
            slash_form(certificate.subject_name()).expect("plain"),
            "/DC=penstock/O=lab/CN=localhost"
        );
    }

    #[test]
    fn a_host_certificate_never_outlives_its_authority() {
        let (dir, authority) = site();
        let host_dir = dir.path().join("host");
        issue_host_certificate(&authority, &["h".to_owned()], CA_LIFETIME * 2, &host_dir)
            .expect("issued");
        let (_, authority_ends) = life(&dir.path().join("ca/ca.pem")).expect("readable");
        assert_eq!(
            life(&host_dir.join("cert.pem")).expect("readable").1,
            authority_ends
        );
    }

    #[test]
    fn nothing_is_overwritten_and_keys_are_private() {
        let (dir, _) = site();
        let key = dir.path().join("ca/ca.key");
        let before = fs::read(&key).expect("readable");
        let refused = create_ca(&dir.path().join("ca"), "lab")
            .err()
            .expect("refused");
        assert!(
            refused
                .to_string()
                .ends_with("move it away first if it shall be replaced"),
            "{refused}"
        );
        assert_eq!(fs::read(&key).expect("readable"), before);
        assert_eq!(key.metadata().expect("there").mode() & 0o777, 0o600);
        let signing = dir.path().join("keys/token-signing.pem");
        create_signing_key(&signing).expect("made");
        assert!(matches!(
            create_signing_key(&signing),
            Err(PkiError::Exists(_))
        ));
        assert_eq!(signing.metadata().expect("there").mode() & 0o777, 0o600);
        let left: Vec<_> = fs::read_dir(dir.path().join("ca"))
            .expect("readable")
            .collect();
        assert_eq!(left.len(), 2, "no draft stays behind");
    }

    #[test]
    fn an_authority_read_again_signs_as_before() {
        let (dir, authority) = site();
        let again = open_ca(&dir.path().join("ca")).expect("readable");
        let host_dir = dir.path().join("host");
        issue_host_certificate(&again, &["h".to_owned()], HOST_LIFETIME, &host_dir)
            .expect("issued");
        let certificate = read_certificate(&host_dir.join("cert.pem")).expect("readable");
        assert!(verifies(&certificate, &authority, "h"));
    }

    #[test]
    fn installing_twice_changes_nothing_and_another_authority_of_that_name_comes_beside() {
        let (dir, authority) = site();
        let trust = dir.path().join("certificates");
        let pem = dir.path().join("ca/ca.pem");
        let first = install_ca(&pem, &trust).expect("installed");
        assert_eq!(install_ca(&pem, &trust).expect("installed"), first);
        let hash = format!("{:08x}", authority.certificate().subject_name_hash());
        assert_eq!(first, trust.join(format!("{hash}.0")));
        create_ca(&dir.path().join("other"), "lab").expect("made");
        let second = install_ca(&dir.path().join("other/ca.pem"), &trust).expect("installed");
        assert_eq!(second, trust.join(format!("{hash}.1")));
        let policy =
            fs::read_to_string(trust.join(format!("{hash}.signing_policy"))).expect("readable");
        assert_eq!(
            policy,
            "access_id_CA      X509         '/DC=penstock/O=lab/CN=lab CA'\n\
             pos_rights        globus       CA:sign\n\
             cond_subjects     globus       '\"/DC=penstock/O=lab/*\"'\n"
        );
    }

    #[test]
    fn names_that_could_be_misread_are_refused() {
        let (dir, authority) = site();
        let refused = |site: &str| create_ca(&dir.path().join("x"), site).is_err();
        assert!(refused("") && refused("a/b") && refused("a'b") && refused(&"x".repeat(62)));
        assert!(refused("a  b") && refused(" a") && refused("a "));
        for host in ["", "a,DNS:evil", "a b", "x\n"] {
            let hosts = [host.to_owned()];
            let refused =
                issue_host_certificate(&authority, &hosts, HOST_LIFETIME, &dir.path().join("h"));
            assert!(matches!(refused, Err(PkiError::Name(..))), "{host:?}");
        }
        assert!(
            issue_host_certificate(&authority, &[], HOST_LIFETIME, &dir.path().join("h")).is_err()
        );
    }
}
