//! A certificate authority that somebody else has made: read as a file of a stranger, and refused where clients would
//! refuse what it signs.

use super::{CertificateAuthority, PkiError, signing_policy};
use openssl::asn1::Asn1Time;
use openssl::error::ErrorStack;
use openssl::pkey::{Id, PKey, Private};
use openssl::x509::{X509, X509VerifyResult};
use std::cmp::Ordering;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes that are read of a certificate or key.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// What NIST SP 800-57 and the security level 2 of OpenSSL demand.
const RSA_BITS_MIN: u32 = 2048;
/// X509_V_ERR_KEYUSAGE_NO_CERTSIGN (x509_vfy.h).
const NO_CERTSIGN: i32 = 32;

/// Reads `ca.pem` and `ca.key` of a directory, and refuses what cannot sign certificates of hosts. Whether it may sign for
/// a certain host is found out when it does.
pub fn open_ca(dir: &Path) -> Result<CertificateAuthority, PkiError> {
    let refused = |why: String| PkiError::Authority(dir.to_owned(), why);
    let certificate = read_regular(&dir.join("ca.pem"))
        .map_err(|why| refused(format!("ca.pem cannot be read: {why}")))?;
    let certificate = X509::from_pem(&certificate)
        .map_err(|_| refused("ca.pem holds no certificate in PEM form".to_owned()))?;
    let key = read_regular(&dir.join("ca.key"))
        .map_err(|why| refused(format!("ca.key cannot be read: {why}")))?;
    let key = private_key(&key).map_err(refused)?;
    match why_unfit(&certificate, &key)? {
        Some(why) => Err(refused(why)),
        None => Ok(CertificateAuthority { certificate, key }),
    }
}

/// Never waits for a writer, and reads no more than is sensible.
fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if !opened.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    opened.take(FILE_BYTES_MAX).read_to_end(&mut content)?;
    Ok(content)
}

/// Never asks for a password.
fn private_key(pem: &[u8]) -> Result<PKey<Private>, String> {
    let mut is_encrypted = false;
    let key = PKey::private_key_from_pem_callback(pem, |_| {
        is_encrypted = true;
        Err(ErrorStack::get())
    });
    key.map_err(|_| match is_encrypted {
        true => "ca.key is encrypted; a copy without a password is needed (openssl pkey -in ca.key -out …)"
            .to_owned(),
        false => "ca.key holds no private key in PEM form".to_owned(),
    })
}

/// Why certificates that this key signs would be of no use, whatever host they are for.
fn why_unfit(certificate: &X509, key: &PKey<Private>) -> Result<Option<String>, ErrorStack> {
    let now = Asn1Time::days_from_now(0)?;
    let has_expired = certificate.not_after().compare(&now)? == Ordering::Less;
    // Clients would need the whole chain, and OpenSSL looks at the purposes of the key here as well.
    let signs_itself = certificate.issued(certificate);
    let why = if !certificate.public_key()?.public_eq(key) {
        "ca.key is not the key of ca.pem".to_owned()
    } else if !matches!(
        key.id(),
        Id::RSA | Id::RSA_PSS | Id::EC | Id::ED25519 | Id::ED448
    ) {
        "its key is neither RSA nor EC, Ed25519 or Ed448, so that clients do not take it".to_owned()
    } else if matches!(key.id(), Id::RSA | Id::RSA_PSS) && key.bits() < RSA_BITS_MIN {
        let bits = key.bits();
        format!("its RSA key has {bits} bits, and clients take none below {RSA_BITS_MIN}")
    } else if has_expired {
        "its certificate has expired".to_owned()
    } else if signs_itself.as_raw() == NO_CERTSIGN {
        "its certificate does not allow its key to sign certificates (keyUsage)".to_owned()
    } else if signs_itself != X509VerifyResult::OK {
        "its certificate is not one of an authority that signs itself".to_owned()
    } else if let Err(why) = signing_policy(certificate.subject_name()) {
        format!("its name cannot be written into a signing policy: {why}")
    } else {
        return Ok(None);
    };
    Ok(Some(why))
}

#[cfg(test)]
mod tests {
    use super::super::{HOST_LIFETIME, create_ca, issue_host_certificate};
    use super::*;
    use openssl::ec::{EcGroup, EcKey};
    use openssl::nid::Nid;
    use openssl::rsa::Rsa;
    use openssl::symm::Cipher;
    use openssl::x509::extension::{BasicConstraints, KeyUsage};
    use openssl::x509::{X509Builder, X509Extension};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;

    /// What is wrong with an authority, in the words of which the command makes its sentence.
    struct Lab(tempfile::TempDir);

    impl Lab {
        fn new() -> Lab {
            let lab = Lab(tempfile::tempdir().expect("a temporary directory"));
            fs::create_dir(lab.ca()).expect("made");
            lab
        }

        fn ca(&self) -> std::path::PathBuf {
            self.0.path().join("ca")
        }

        /// Writes an authority with this key, and with what is added to its certificate.
        fn write(&self, key: &PKey<Private>, add: impl FnOnce(&mut X509Builder)) {
            let name = super::super::name_of("lab", "lab CA").expect("a name");
            let mut builder = super::super::started(&name, &name, key).expect("started");
            super::super::set_validity(&mut builder, HOST_LIFETIME, None).expect("set");
            add(&mut builder);
            let digest = super::super::digest_for(key);
            builder.sign(key, digest).expect("signed");
            let pem = builder.build().to_pem().expect("PEM");
            fs::write(self.ca().join("ca.pem"), pem).expect("written");
            let pem = key.private_key_to_pem_pkcs8().expect("PEM");
            fs::write(self.ca().join("ca.key"), pem).expect("written");
        }

        /// Why no site can be made with it for these hosts.
        fn refusal(&self, hosts: &[&str]) -> Option<String> {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            let host = self.0.path().join("host");
            let _ = fs::remove_dir_all(&host);
            let made = open_ca(&self.ca())
                .and_then(|ca| issue_host_certificate(&ca, &hosts, HOST_LIFETIME, &host));
            if made.is_err() {
                assert!(!host.exists(), "something was made");
            }
            made.err().map(|why| why.to_string())
        }
    }

    fn authority(builder: &mut X509Builder) {
        let ca = BasicConstraints::new()
            .critical()
            .ca()
            .build()
            .expect("built");
        builder.append_extension(ca).expect("added");
    }

    fn rsa(bits: u32) -> PKey<Private> {
        PKey::from_rsa(Rsa::generate(bits).expect("a key")).expect("a key")
    }

    fn ec() -> PKey<Private> {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("a curve");
        PKey::from_ec_key(EcKey::generate(&group).expect("a key")).expect("a key")
    }

    #[track_caller]
    fn check(lab: &Lab, hosts: &[&str], expected: &str) {
        let why = lab.refusal(hosts).expect("refused");
        assert!(why.contains(expected), "{why}");
    }

    #[test]
    fn authorities_with_any_usual_kind_of_key_issue_certificates() {
        let ed25519 = PKey::generate_ed25519().expect("a key");
        let ed448 = PKey::generate_ed448().expect("a key");
        for key in [rsa(2048), ec(), ed25519, ed448] {
            let lab = Lab::new();
            lab.write(&key, authority);
            assert_eq!(
                lab.refusal(&["localhost", "127.0.0.1"]),
                None,
                "{:?}",
                key.id()
            );
        }
    }

    #[test]
    fn a_weak_key_is_refused() {
        let lab = Lab::new();
        lab.write(&rsa(1024), authority);
        check(&lab, &["h"], "its RSA key has 1024 bits");
    }

    #[test]
    fn a_certificate_of_no_authority_is_refused() {
        let lab = Lab::new();
        lab.write(&ec(), |builder| {
            let none = BasicConstraints::new().critical().build().expect("built");
            builder.append_extension(none).expect("added");
        });
        check(&lab, &["h"], "not one of an authority (CA:TRUE)");
        lab.write(&ec(), |builder| {
            authority(builder);
            let usage = KeyUsage::new().critical().digital_signature().build();
            builder
                .append_extension(usage.expect("built"))
                .expect("added");
        });
        check(&lab, &["h"], "does not allow its key to sign");
    }

    #[test]
    fn an_authority_that_may_not_vouch_for_the_host_is_refused_with_its_name() {
        let lab = Lab::new();
        lab.write(&ec(), |builder| {
            authority(builder);
            // Deprecated because its text can be misused; this one is ours.
            #[expect(deprecated)]
            let constraints = X509Extension::new_nid(
                None,
                Some(&builder.x509v3_context(None, None)),
                Nid::NAME_CONSTRAINTS,
                "critical,permitted;DNS:example.org",
            );
            builder
                .append_extension(constraints.expect("built"))
                .expect("added");
        });
        assert_eq!(lab.refusal(&["se.example.org"]), None);
        check(
            &lab,
            &["se.example.org", "se.example.com"],
            "'se.example.com': the name constraints of the authority do not allow it",
        );
    }

    #[test]
    fn an_encrypted_key_is_refused_and_no_password_asked_for() {
        let lab = Lab::new();
        let key = ec();
        lab.write(&key, authority);
        let path = lab.ca().join("ca.key");
        let cipher = Cipher::aes_256_cbc();
        let modern = key.private_key_to_pem_pkcs8_passphrase(cipher, b"secret");
        let old = key
            .ec_key()
            .expect("EC")
            .private_key_to_pem_passphrase(cipher, b"secret");
        for pem in [modern.expect("PEM"), old.expect("PEM")] {
            fs::write(&path, pem).expect("written");
            check(&lab, &["h"], "ca.key is encrypted");
        }
    }

    #[test]
    fn what_is_no_regular_file_is_not_read() {
        let lab = Lab::new();
        create_ca(&lab.0.path().join("other"), "other").expect("made");
        check(&lab, &["h"], "ca.pem cannot be read: No such file");
        fs::copy(lab.0.path().join("other/ca.pem"), lab.ca().join("ca.pem")).expect("copied");
        let path = lab.ca().join("ca.key");
        fs::create_dir(&path).expect("made");
        check(
            &lab,
            &["h"],
            "ca.key cannot be read: it is not a regular file",
        );
        fs::remove_dir(&path).expect("removed");
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, &path, FileType::Fifo, mode, 0).expect("made");
        check(
            &lab,
            &["h"],
            "ca.key cannot be read: it is not a regular file",
        );
        fs::remove_file(&path).expect("removed");
        fs::write(&path, "nonsense").expect("written");
        check(&lab, &["h"], "ca.key holds no private key");
        fs::write(lab.ca().join("ca.pem"), "nonsense").expect("written");
        check(&lab, &["h"], "ca.pem holds no certificate");
    }
}
