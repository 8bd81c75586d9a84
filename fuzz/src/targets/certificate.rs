//! Certificates: chains that somebody shows, files that an authority publishes, attributes inside a proxy.

use super::Target;
use openssl::asn1::{Asn1Integer, Asn1Object, Asn1OctetString, Asn1Time};
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, KeyUsage};
use openssl::x509::{X509, X509Builder, X509Extension, X509Name, X509NameBuilder};
use penstock_model::Timestamp;
use penstock_protocol::voms::VomsServers;
use penstock_protocol::x509::{CertificateHolder, ClientCertificates};
use std::sync::LazyLock;
use tempfile::TempDir;

const NOW_SECONDS: i64 = 1_750_000_000;
const CA: &str = "/DC=lab/CN=CA";
const ALICE: &str = "/DC=lab/CN=Alice";
/// `id-ppl-inheritAll`, as the proxies of grid tools have it (RFC 3820 §3.8).
const INHERIT_ALL: &[u8] = &[0x30, 12, 0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 21, 1];
const VOMS_EXTENSION: &str = "1.3.6.1.4.1.8005.100.100.5";
/// Certificates of a chain are kept apart by their length, in two bytes.
const CHAIN_MAX: usize = 8;

pub const CHAINS: Target = Target {
    name: "certificate_chain",
    check: check_chain,
    seeds: || {
        let lab = &*LAB;
        let proxy = make(
            Some(&lab.alice),
            &format!("{ALICE}/CN=1"),
            Kind::Proxy(None),
        );
        [
            vec![&lab.alice],
            vec![&proxy, &lab.alice],
            vec![&lab.authority],
        ]
        .map(|chain| {
            let parts = chain.into_iter().map(|holder| {
                let der = holder.certificate.to_der().expect("DER");
                [&(der.len() as u16).to_be_bytes()[..], &der].concat()
            });
            parts.collect::<Vec<_>>().concat()
        })
        .to_vec()
    },
};

pub const FILES: Target = Target {
    name: "authority_files",
    check: check_files,
    seeds: || {
        let policy = "access_id_CA X509 '/DC=lab/CN=CA'\npos_rights globus CA:sign\n\
                      cond_subjects globus '\"/DC=lab/*\" \"/DC=other/*\"'\n";
        let namespaces = "TO Issuer \"/DC=lab/CN=CA\" \\\n PERMIT Subject \"/DC=lab/.*\"\n";
        let list = "-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n";
        let whole = |number: u8, text: &str| [&[number], text.as_bytes()].concat();
        vec![whole(0, policy), whole(1, namespaces), whole(2, list)]
    },
};

pub const ATTRIBUTES: Target = Target {
    name: "voms_attributes",
    check: check_attributes,
    seeds: || {
        // SEQUENCE OF SEQUENCE OF AttributeCertificate, with the beginnings of one.
        let holder = [
            0x30, 0x10, 0xa0, 0x0e, 0x30, 0x09, 0xa4, 0x07, 0x30, 0x05, 0x31, 0x03, 0x30, 0x01,
            0x02, 0x01, 1, 1,
        ];
        let info = [&[2, 1, 1][..], &holder].concat();
        let wrap = |content: &[u8]| [&[0x30, content.len() as u8][..], content].concat();
        vec![
            wrap(&wrap(&wrap(&wrap(&info)))),
            wrap(&wrap(&[])),
            vec![0x30, 0x80],
            vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
        ]
    },
};

#[derive(Clone)]
struct Holder {
    certificate: X509,
    key: PKey<Private>,
}

#[derive(Clone, Copy)]
enum Kind<'a> {
    Authority,
    User,
    /// With the value of its VOMS extension.
    Proxy(Option<&'a [u8]>),
}

struct Lab {
    directory: TempDir,
    authority: Holder,
    alice: Holder,
    judge: ClientCertificates,
}

static LAB: LazyLock<Lab> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    let vomsdir = directory.path().join("vomsdir/lab");
    std::fs::create_dir_all(&vomsdir).expect("a directory");
    std::fs::write(
        vomsdir.join("voms.example.org.lsc"),
        "/DC=lab/CN=voms\n/DC=lab/CN=CA\n",
    )
    .expect("written");
    let authority = make(None, CA, Kind::Authority);
    let alice = make(Some(&authority), ALICE, Kind::User);
    let servers = VomsServers::new(
        &directory.path().join("vomsdir"),
        &["se.example.org".to_owned()],
    );
    let judge = ClientCertificates::with_voms(directory.path(), servers);
    let lab = Lab {
        directory,
        authority,
        alice,
        judge,
    };
    lab.install("0", &lab.authority.certificate.to_pem().expect("PEM"));
    lab
});

impl Lab {
    fn install(&self, ending: &str, content: &[u8]) {
        std::fs::write(self.file(ending), content).expect("written");
        self.judge.reload();
    }

    fn file(&self, ending: &str) -> std::path::PathBuf {
        let hash = self.authority.certificate.subject_name_hash();
        self.directory.path().join(format!("{hash:08x}.{ending}"))
    }

    fn judge(&self, chain: &[X509]) -> Option<CertificateHolder> {
        let certified = self
            .judge
            .verify(chain, Timestamp(NOW_SECONDS * 1000))
            .ok()?;
        // The authority has signed for itself and one user, and that user for proxies of hers.
        assert!([ALICE, CA].contains(&certified.subject.as_str()));
        assert_eq!(certified.issuer, CA);
        assert!(certified.expires.0 > NOW_SECONDS * 1000);
        // No VOMS server has signed anything.
        assert!(certified.attributes.counted().is_none());
        Some(certified)
    }
}

/// The certificate of the one user, in PEM.
pub(super) fn alice_pem() -> Vec<u8> {
    LAB.alice.certificate.to_pem().expect("PEM")
}

/// A directory of the one authority.
pub(super) fn authorities() -> &'static std::path::Path {
    LAB.directory.path()
}

/// When the certificates are good.
pub(super) fn now() -> Timestamp {
    Timestamp(NOW_SECONDS * 1000)
}

fn check_chain(data: &[u8]) {
    let mut chain = Vec::new();
    let mut rest = data;
    while let Some((length, after)) = rest.split_at_checked(2)
        && chain.len() < CHAIN_MAX
    {
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let (der, after) = after.split_at(length.min(after.len()));
        chain.extend(X509::from_der(der));
        rest = after;
    }
    LAB.judge(&chain);
}

fn check_files(data: &[u8]) {
    let Some((which, content)) = data.split_first() else {
        return;
    };
    let lab = &*LAB;
    let ending = ["signing_policy", "namespaces", "r0"][usize::from(which % 3)];
    lab.install(ending, content);
    lab.judge(std::slice::from_ref(&lab.alice.certificate));
    std::fs::remove_file(lab.file(ending)).expect("removed");
    lab.judge.reload();
    let believed = lab.judge(std::slice::from_ref(&lab.alice.certificate));
    assert!(believed.is_some(), "nothing of the file stays");
}

fn check_attributes(data: &[u8]) {
    if data.len() > 32 << 10 {
        return;
    }
    let lab = &*LAB;
    let proxy = make(
        Some(&lab.alice),
        &format!("{ALICE}/CN=1"),
        Kind::Proxy(Some(data)),
    );
    let chain = [proxy.certificate, lab.alice.certificate.clone()];
    // Attributes that do not count cost nobody their name.
    assert!(lab.judge(&chain).is_some());
}

fn name(slashed: &str) -> X509Name {
    let mut name = X509NameBuilder::new().expect("a name");
    for part in slashed.split('/').skip(1) {
        let (key, value) = part.split_once('=').expect("key and value");
        name.append_entry_by_text(key, value).expect("a part");
    }
    name.build()
}

fn make(signer: Option<&Holder>, subject: &str, kind: Kind<'_>) -> Holder {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("a curve");
    let key = match (kind, signer) {
        // A key of its own would cost most of the time and change nothing.
        (Kind::Proxy(_), Some(signer)) => signer.key.clone(),
        _ => PKey::from_ec_key(EcKey::generate(&group).expect("a key")).expect("a key"),
    };
    let mut builder = X509Builder::new().expect("a builder");
    builder.set_version(2).expect("a version");
    let serial = BigNum::from_u32(1).and_then(|serial| Asn1Integer::from_bn(&serial));
    builder
        .set_serial_number(&serial.expect("a number"))
        .expect("set");
    let own = name(subject);
    builder.set_subject_name(&own).expect("set");
    let issuer = signer.map_or(&*own, |signer| signer.certificate.subject_name());
    builder.set_issuer_name(issuer).expect("set");
    let time = |seconds| Asn1Time::from_unix(NOW_SECONDS + seconds).expect("a time");
    builder.set_not_before(&time(-3600)).expect("set");
    builder.set_not_after(&time(3600)).expect("set");
    builder.set_pubkey(&key).expect("set");
    let mut usage = KeyUsage::new();
    usage.critical().digital_signature();
    if let Kind::Authority = kind {
        let constraints = BasicConstraints::new().critical().ca().build();
        builder
            .append_extension(constraints.expect("built"))
            .expect("set");
        usage.key_cert_sign().crl_sign();
    }
    builder
        .append_extension(usage.build().expect("built"))
        .expect("set");
    if let Kind::Proxy(attributes) = kind {
        append(&mut builder, "1.3.6.1.5.5.7.1.14", true, INHERIT_ALL);
        if let Some(attributes) = attributes {
            append(&mut builder, VOMS_EXTENSION, false, attributes);
        }
    }
    let by = signer.map_or(&key, |signer| &signer.key);
    builder.sign(by, MessageDigest::sha256()).expect("signed");
    Holder {
        certificate: builder.build(),
        key,
    }
}

fn append(builder: &mut X509Builder, oid: &str, critical: bool, value: &[u8]) {
    let oid = Asn1Object::from_str(oid).expect("an identifier");
    let value = Asn1OctetString::new_from_bytes(value).expect("bytes");
    let extension = X509Extension::new_from_der(&oid, critical, &value);
    builder
        .append_extension(extension.expect("an extension"))
        .expect("set");
}
