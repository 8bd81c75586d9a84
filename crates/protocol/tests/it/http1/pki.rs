//! A private CA and host certificates for the tests.

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509NameBuilder};
use std::path::{Path, PathBuf};

pub struct Ca {
    certificate: X509,
    key: PKey<Private>,
}

pub struct HostFiles {
    pub chain: PathBuf,
    pub key: PathBuf,
}

fn new_key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("curve");
    PKey::from_ec_key(EcKey::generate(&group).expect("key")).expect("key")
}

fn builder(name: &str, serial: u32, key: &PKey<Private>) -> X509Builder {
    let mut subject = X509NameBuilder::new().expect("name");
    subject.append_entry_by_text("CN", name).expect("name");
    let subject = subject.build();
    let mut builder = X509::builder().expect("builder");
    builder.set_version(2).expect("version");
    builder.set_subject_name(&subject).expect("subject");
    builder.set_issuer_name(&subject).expect("issuer");
    builder.set_pubkey(key).expect("key");
    let serial = BigNum::from_u32(serial)
        .and_then(|serial| serial.to_asn1_integer())
        .expect("serial");
    builder.set_serial_number(&serial).expect("serial");
    builder
        .set_not_before(&Asn1Time::days_from_now(0).expect("time"))
        .expect("time");
    builder
        .set_not_after(&Asn1Time::days_from_now(1).expect("time"))
        .expect("time");
    builder
}

impl Ca {
    pub fn new(name: &str) -> Ca {
        let key = new_key();
        let mut builder = builder(name, 1, &key);
        builder
            .append_extension(BasicConstraints::new().critical().ca().build().expect("ca"))
            .expect("ca");
        builder.sign(&key, MessageDigest::sha256()).expect("sign");
        Ca {
            certificate: builder.build(),
            key,
        }
    }

    /// Puts the CA where clients look: as `<hash>.0`.
    pub fn install(&self, dir: &Path) {
        let name = format!("{:08x}.0", self.certificate.subject_name_hash());
        std::fs::write(dir.join(name), self.certificate.to_pem().expect("pem")).expect("write");
    }

    pub fn pem(&self) -> Vec<u8> {
        self.certificate.to_pem().expect("pem")
    }

    /// A user's certificate and key, in PEM.
    pub fn user(&self, name: &str, serial: u32) -> Vec<u8> {
        let key = new_key();
        let mut builder = builder(name, serial, &key);
        builder
            .set_issuer_name(self.certificate.subject_name())
            .expect("issuer");
        builder
            .sign(&self.key, MessageDigest::sha256())
            .expect("sign");
        let mut pem = builder.build().to_pem().expect("pem");
        pem.extend(key.private_key_to_pem_pkcs8().expect("pem"));
        pem
    }

    /// A host certificate for the addresses and names given, `chain.pem` and `key.pem` in `dir`.
    pub fn issue(&self, dir: &Path, hosts: &[&str]) -> HostFiles {
        let key = new_key();
        let mut builder = builder("host", 2, &key);
        builder
            .set_issuer_name(self.certificate.subject_name())
            .expect("issuer");
        let mut names = SubjectAlternativeName::new();
        for host in hosts {
            match host.parse::<std::net::IpAddr>() {
                Ok(_) => names.ip(host),
                Err(_) => names.dns(host),
            };
        }
        let names = names
            .build(&builder.x509v3_context(Some(&self.certificate), None))
            .expect("names");
        builder.append_extension(names).expect("names");
        builder
            .sign(&self.key, MessageDigest::sha256())
            .expect("sign");
        let files = HostFiles {
            chain: dir.join("chain.pem"),
            key: dir.join("key.pem"),
        };
        std::fs::write(&files.chain, builder.build().to_pem().expect("pem")).expect("write");
        std::fs::write(&files.key, key.private_key_to_pem_pkcs8().expect("pem")).expect("write");
        files
    }
}
