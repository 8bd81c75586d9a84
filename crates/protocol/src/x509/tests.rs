//! Chains as users have them, and as attackers would like to have them.

mod voms;

use super::*;
use openssl::asn1::{Asn1Integer, Asn1Object, Asn1OctetString};
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{
    AuthorityKeyIdentifier, BasicConstraints, KeyUsage, SubjectKeyIdentifier,
};
use openssl::x509::{X509Builder, X509Extension, X509NameBuilder};
use std::time::Duration;
use tempfile::TempDir;

const HOUR: i64 = 3600;
const NOW: i64 = 1_750_000_000;
const INHERIT_ALL: &[u8] = &[0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 21, 1];
const INDEPENDENT: &[u8] = &[0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 21, 2];
const LIMITED: &[u8] = &[0x30, 13, 6, 11, 0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9];

/// A certificate with its key.
#[derive(Clone)]
struct Holder {
    certificate: X509,
    key: PKey<Private>,
}

/// What a certificate is to be.
struct Wanted<'a> {
    subject: &'a str,
    ends: i64,
    serial: u32,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Authority,
    User,
    /// Signs nothing, by its key usage.
    UserWithoutSignature,
    Proxy {
        policy: &'a [u8],
        path_length: Option<u8>,
        critical: bool,
    },
    /// A full proxy that carries attributes of a VO: the value of their extension.
    VomsProxy(&'a [u8]),
}

const FULL: Kind<'static> = Kind::Proxy {
    policy: INHERIT_ALL,
    path_length: None,
    critical: true,
};

fn name(slashed: &str) -> openssl::x509::X509Name {
    let mut name = X509NameBuilder::new().expect("name");
    for part in slashed.split('/').skip(1) {
        let (key, value) = part.split_once('=').expect("key and value");
        // '|' stands for a slash inside a value.
        name.append_entry_by_text(key, &value.replace('|', "/"))
            .expect("part");
    }
    name.build()
}

fn proxy_info(policy: &[u8], path_length: Option<u8>) -> Vec<u8> {
    let length = path_length
        .map(|length| vec![2, 1, length])
        .unwrap_or_default();
    let content = [length.as_slice(), policy].concat();
    [&[0x30, content.len() as u8][..], content.as_slice()].concat()
}

fn add_kind(builder: &mut X509Builder, kind: &Kind) {
    let usage = || {
        let mut usage = KeyUsage::new();
        usage.critical();
        usage
    };
    let extensions = match kind {
        Kind::Authority => vec![
            BasicConstraints::new().critical().ca().build(),
            usage().key_cert_sign().crl_sign().build(),
        ],
        Kind::User => vec![
            BasicConstraints::new().critical().build(),
            usage().digital_signature().key_encipherment().build(),
        ],
        Kind::UserWithoutSignature => vec![usage().key_encipherment().build()],
        Kind::Proxy {
            policy,
            path_length,
            critical,
        } => {
            let value = Asn1OctetString::new_from_bytes(&proxy_info(policy, *path_length));
            let oid = Asn1Object::from_str("1.3.6.1.5.5.7.1.14").expect("oid");
            let value = value.expect("value");
            vec![
                usage().digital_signature().key_encipherment().build(),
                X509Extension::new_from_der(&oid, *critical, &value),
            ]
        }
        Kind::VomsProxy(attributes) => {
            add_kind(builder, &FULL);
            let value = Asn1OctetString::new_from_bytes(attributes).expect("value");
            let oid = Asn1Object::from_str("1.3.6.1.4.1.8005.100.100.5").expect("oid");
            vec![X509Extension::new_from_der(&oid, false, &value)]
        }
    };
    for extension in extensions {
        builder
            .append_extension(extension.expect("extension"))
            .expect("extension");
    }
}

fn make(signer: Option<&Holder>, wanted: &Wanted) -> Holder {
    make_naming_keys(signer, wanted, false)
}

/// `names_keys`: with the extensions by which a certificate names its signer's key (RFC 5280 §4.2.1.1).
fn make_naming_keys(signer: Option<&Holder>, wanted: &Wanted, names_keys: bool) -> Holder {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("curve");
    let key = PKey::from_ec_key(EcKey::generate(&group).expect("key")).expect("key");
    let mut builder = X509::builder().expect("builder");
    builder.set_version(2).expect("version");
    let subject = name(wanted.subject);
    builder.set_subject_name(&subject).expect("subject");
    let issuer = signer.map_or(&*subject, |signer| signer.certificate.subject_name());
    builder.set_issuer_name(issuer).expect("issuer");
    builder.set_pubkey(&key).expect("key");
    let serial = BigNum::from_u32(wanted.serial).expect("serial");
    let serial = Asn1Integer::from_bn(&serial).expect("serial");
    builder.set_serial_number(&serial).expect("serial");
    let time = |seconds| Asn1Time::from_unix(seconds).expect("time");
    builder.set_not_before(&time(NOW - HOUR)).expect("begin");
    builder.set_not_after(&time(wanted.ends)).expect("end");
    add_kind(&mut builder, &wanted.kind);
    if names_keys {
        let above = signer.map(|signer| &*signer.certificate);
        let own = SubjectKeyIdentifier::new().build(&builder.x509v3_context(above, None));
        builder
            .append_extension(own.expect("extension"))
            .expect("extension");
        if above.is_some() {
            let of_signer = AuthorityKeyIdentifier::new()
                .keyid(true)
                .build(&builder.x509v3_context(above, None));
            builder
                .append_extension(of_signer.expect("extension"))
                .expect("extension");
        }
    }
    let signed_by = signer.map_or(&key, |signer| &signer.key);
    builder
        .sign(signed_by, MessageDigest::sha256())
        .expect("signed");
    Holder {
        certificate: builder.build(),
        key,
    }
}

fn wanted<'a>(subject: &'a str, kind: Kind<'a>) -> Wanted<'a> {
    Wanted {
        subject,
        ends: NOW + 24 * HOUR,
        serial: 7,
        kind,
    }
}

/// A directory that trusts one authority, and a user of it.
struct Lab {
    directory: TempDir,
    authority: Holder,
    alice: Holder,
    judge: ClientCertificates,
}

const CA: &str = "/DC=lab/CN=Lab CA";
const ALICE: &str = "/DC=lab/OU=Users/CN=Alice";

fn lab() -> Lab {
    let directory = tempfile::tempdir().expect("directory");
    let lasting = Wanted {
        ends: NOW + 1000 * HOUR,
        ..wanted(CA, Kind::Authority)
    };
    let authority = make(None, &lasting);
    let alice = make(Some(&authority), &wanted(ALICE, Kind::User));
    let judge = ClientCertificates::from_ca_directory(directory.path());
    let lab = Lab {
        directory,
        authority,
        alice,
        judge,
    };
    lab.install("0", &lab.authority.certificate.to_pem().expect("pem"));
    lab.install("signing_policy", policy("/DC=lab/*").as_bytes());
    lab
}

fn policy(pattern: &str) -> String {
    format!(
        "access_id_CA X509 '{CA}'\npos_rights globus CA:sign\ncond_subjects globus '\"{pattern}\"'\n"
    )
}

impl Lab {
    fn install(&self, ending: &str, content: &[u8]) {
        let hash = self.authority.certificate.subject_name_hash();
        let path = self.directory.path().join(format!("{hash:08x}.{ending}"));
        std::fs::write(path, content).expect("written");
        self.judge.reload();
    }

    fn proxy(&self, signer: &Holder, kind: Kind) -> Holder {
        let above = slash_form(signer.certificate.subject_name()).expect("plain");
        make(Some(signer), &wanted(&format!("{above}/CN=1234"), kind))
    }

    fn says(&self, chain: &[&Holder]) -> Result<CertificateHolder, String> {
        self.says_at(chain, NOW)
    }

    fn says_at(&self, chain: &[&Holder], seconds: i64) -> Result<CertificateHolder, String> {
        self.judged(chain, seconds).map_err(|why| why.to_string())
    }

    fn judged(
        &self,
        chain: &[&Holder],
        seconds: i64,
    ) -> Result<CertificateHolder, CertificateError> {
        let chain = chain.iter().map(|holder| holder.certificate.clone());
        let chain: Vec<X509> = chain.collect();
        self.judge.verify(&chain, Timestamp(seconds * 1000))
    }

    #[track_caller]
    fn refuses(&self, chain: &[&Holder], expected: &str) {
        let why = self.says(chain).expect_err(expected);
        assert!(why.contains(expected), "{why}");
    }

    /// A revocation list of the authority, by `openssl ca`: the crate cannot make any.
    fn revocation_list(&self, revoked: Option<&Holder>, signer: &Holder) -> Vec<u8> {
        let at = tempfile::tempdir().expect("directory");
        let file = |name: &str| at.path().join(name).display().to_string();
        let write =
            |name: &str, content: &[u8]| std::fs::write(file(name), content).expect("written");
        let index = revoked.map_or(String::new(), |_| {
            format!("R\t400101000000Z\t250101000000Z\t07\tunknown\t{ALICE}\n")
        });
        write("index", index.as_bytes());
        write("number", b"01\n");
        write("ca.pem", &signer.certificate.to_pem().expect("pem"));
        write(
            "ca.key",
            &signer.key.private_key_to_pem_pkcs8().expect("pem"),
        );
        let settings = format!(
            "[ca]\ndefault_ca=d\n[d]\ndatabase={}\ncrlnumber={}\ndefault_md=sha256\n",
            file("index"),
            file("number")
        );
        write("cnf", settings.as_bytes());
        let output = std::process::Command::new("openssl")
            .args([
                "ca",
                "-gencrl",
                "-config",
                &file("cnf"),
                "-cert",
                &file("ca.pem"),
            ])
            .args(["-keyfile", &file("ca.key"), "-out", &file("crl")])
            .args([
                "-crl_lastupdate",
                "20250101000000Z",
                "-crl_nextupdate",
                "20250701000000Z",
            ])
            .output()
            .expect("openssl runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        std::fs::read(file("crl")).expect("made")
    }
}

#[test]
fn a_user_and_a_proxy_of_a_proxy_have_the_users_name_and_the_first_end() {
    let lab = lab();
    let told = lab.says(&[&lab.alice]).expect("believed");
    let expected = CertificateHolder {
        subject: ALICE.to_owned(),
        issuer: CA.to_owned(),
        proxy: Proxy::None,
        expires: Timestamp((NOW + 24 * HOUR) * 1000),
        attributes: Attributes::Absent,
        member_of: None,
    };
    assert_eq!(told, expected);

    let subject = format!("{ALICE}/CN=1");
    let first = make(
        Some(&lab.alice),
        &Wanted {
            ends: NOW + HOUR,
            ..wanted(&subject, FULL)
        },
    );
    let second = lab.proxy(&first, FULL);
    let told = lab.says(&[&second, &first, &lab.alice]).expect("believed");
    let expires = Timestamp((NOW + HOUR) * 1000);
    assert_eq!(
        told,
        CertificateHolder {
            proxy: Proxy::Full,
            expires,
            ..expected
        }
    );
    // Clients order what follows their own certificate as they like, and may add the authority.
    let shuffled = [&second, &lab.authority, &lab.alice, &first];
    assert_eq!(lab.says(&shuffled), Ok(told));
}

#[test]
fn one_limited_proxy_limits_all_that_follow() {
    let lab = lab();
    let limited = lab.proxy(
        &lab.alice,
        Kind::Proxy {
            policy: LIMITED,
            path_length: None,
            critical: true,
        },
    );
    let full = lab.proxy(&limited, FULL);
    let told = lab.says(&[&full, &limited, &lab.alice]).expect("believed");
    assert_eq!((told.proxy, told.subject.as_str()), (Proxy::Limited, ALICE));
}

#[test]
fn another_authority_of_the_same_name_is_not_believed() {
    let lab = lab();
    let rogue = make(None, &wanted(CA, Kind::Authority));
    let mallory = make(Some(&rogue), &wanted(ALICE, Kind::User));
    lab.refuses(&[&mallory], "certificate signature failure");
    lab.refuses(
        &[&mallory, &rogue],
        &format!("the certificate {ALICE} is not accepted"),
    );
    let stranger = make(None, &wanted("/DC=other/CN=CA", Kind::Authority));
    let bob = make(Some(&stranger), &wanted("/DC=other/CN=Bob", Kind::User));
    lab.refuses(&[&bob], "ask the site to trust that authority");
    lab.refuses(&[&bob, &stranger], "ask the site to trust that authority");
}

#[test]
fn an_authority_that_is_trusted_makes_no_other_one_of_a_name_that_is_trusted() {
    let lab = lab();
    let made = |signer, subject, kind| make_naming_keys(signer, &wanted(subject, kind), true);
    let trusted = |subject| {
        let authority = made(None, subject, Kind::Authority);
        let hash = authority.certificate.subject_name_hash();
        let path = lab.directory.path().join(format!("{hash:08x}.0"));
        let pem = authority.certificate.to_pem().expect("pem");
        std::fs::write(path, pem).expect("written");
        lab.judge.reload();
        authority
    };
    let (first, other) = (
        trusted("/DC=lab/CN=First CA"),
        trusted("/DC=lab/CN=Other CA"),
    );
    let alice = made(Some(&first), ALICE, Kind::User);
    assert!(lab.says(&[&alice]).is_ok());
    let posing = made(Some(&other), "/DC=lab/CN=First CA", Kind::Authority);
    let mallory = made(Some(&posing), ALICE, Kind::User);
    lab.refuses(
        &[&mallory, &posing],
        "not the authority of that name which this site trusts",
    );
    // One of a name that nobody else has it may make.
    let below = make(
        Some(&other),
        &wanted("/DC=lab/CN=Other CA 2", Kind::Authority),
    );
    let bob = make(Some(&below), &wanted("/DC=lab/OU=Users/CN=Bob", Kind::User));
    let told = lab.says(&[&bob, &below]).expect("believed");
    assert_eq!(told.issuer, "/DC=lab/CN=Other CA 2");
}

#[test]
fn what_has_ended_or_not_begun_is_refused() {
    let lab = lab();
    let late = lab
        .says_at(&[&lab.alice], NOW + 25 * HOUR)
        .expect_err("ended");
    assert!(late.contains("has expired; make a new proxy"), "{late}");
    let early = lab
        .says_at(&[&lab.alice], NOW - 2 * HOUR)
        .expect_err("not begun");
    assert!(early.contains("check the clocks"), "{early}");
    let subject = format!("{ALICE}/CN=1");
    let old = Wanted {
        ends: NOW - 1,
        ..wanted(&subject, FULL)
    };
    lab.refuses(&[&make(Some(&lab.alice), &old), &lab.alice], "has expired");
}

#[test]
fn a_proxy_goes_no_further_than_its_signer_allows() {
    let lab = lab();
    let last = lab.proxy(
        &lab.alice,
        Kind::Proxy {
            policy: INHERIT_ALL,
            path_length: Some(0),
            critical: true,
        },
    );
    assert!(lab.says(&[&last, &lab.alice]).is_ok());
    let beyond = lab.proxy(&last, FULL);
    lab.refuses(
        &[&beyond, &last, &lab.alice],
        "proxy path length constraint exceeded",
    );
}

#[test]
fn a_proxy_must_be_signed_by_the_one_it_names() {
    let lab = lab();
    let bob = make(
        Some(&lab.authority),
        &wanted("/DC=lab/OU=Users/CN=Bob", Kind::User),
    );
    // Bob signs, and writes Alice's name.
    let forged = Holder {
        certificate: lab.alice.certificate.clone(),
        key: bob.key.clone(),
    };
    let forged = lab.proxy(&forged, FULL);
    lab.refuses(&[&forged, &lab.alice], "certificate signature failure");
    // Bob signs under his own name a proxy whose subject begins with Alice's.
    let named = make(Some(&bob), &wanted(&format!("{ALICE}/CN=1"), FULL));
    lab.refuses(&[&named, &bob], "proxy subject name violation");
    let two = make(
        Some(&lab.alice),
        &wanted(&format!("{ALICE}/CN=1/CN=2"), FULL),
    );
    lab.refuses(&[&two, &lab.alice], "proxy subject name violation");
    let unnamed = make(Some(&lab.alice), &wanted(&format!("{ALICE}/OU=1"), FULL));
    lab.refuses(&[&unnamed, &lab.alice], "proxy subject name violation");
}

#[test]
fn only_who_may_sign_makes_proxies_and_users_make_no_users() {
    let lab = lab();
    let mute = make(
        Some(&lab.authority),
        &wanted(ALICE, Kind::UserWithoutSignature),
    );
    lab.refuses(&[&lab.proxy(&mute, FULL), &mute], "is not accepted");
    let user = make(
        Some(&lab.alice),
        &wanted("/DC=lab/OU=Users/CN=Root", Kind::User),
    );
    lab.refuses(&[&user, &lab.alice], "is not accepted");
    // A proxy that a proxy of the old, pre-standard kind would be: an ordinary certificate.
    let old = make(
        Some(&lab.alice),
        &wanted(&format!("{ALICE}/CN=proxy"), Kind::User),
    );
    lab.refuses(&[&old, &lab.alice], "or an RFC 3820 proxy of one");
    // A proxy of a proxy cannot be passed off as a user's certificate.
    let proxy = lab.proxy(&lab.alice, FULL);
    let user = make(
        Some(&proxy),
        &wanted(&format!("{ALICE}/CN=1234/CN=2"), Kind::User),
    );
    lab.refuses(&[&user, &proxy, &lab.alice], "is not accepted");
}

#[test]
fn a_proxy_without_inherited_rights_is_refused() {
    let lab = lab();
    let unknown = [0x30, 6, 6, 4, 0x2b, 6, 1, 4];
    let with_text = [&[0x30, 13][..], &INHERIT_ALL[2..], &[4, 1, b'x']].concat();
    for (policy, critical, expected) in [
        (INDEPENDENT, true, "it inherits no rights"),
        (&unknown, true, "policy language is not known"),
        (&with_text, true, "its language forbids"),
        (INHERIT_ALL, false, "not critical"),
    ] {
        let proxy = lab.proxy(
            &lab.alice,
            Kind::Proxy {
                policy,
                path_length: None,
                critical,
            },
        );
        let why = lab.says(&[&proxy, &lab.alice]).expect_err(expected);
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn a_revocation_list_counts_when_its_authority_signed_it_and_while_it_is_current() {
    let lab = lab();
    let rogue = make(None, &wanted(CA, Kind::Authority));
    lab.install("r0", &lab.revocation_list(Some(&lab.alice), &rogue));
    assert!(
        lab.says(&[&lab.alice]).is_ok(),
        "another authority's list says nothing"
    );
    lab.install("r1", &lab.revocation_list(None, &lab.authority));
    assert!(lab.says(&[&lab.alice]).is_ok());
    lab.install("r1", &lab.revocation_list(Some(&lab.alice), &lab.authority));
    let proxy = lab.proxy(&lab.alice, FULL);
    for chain in [&[&lab.alice][..], &[&proxy, &lab.alice]] {
        lab.refuses(chain, "was revoked by its authority");
    }
    lab.install("r1", &lab.revocation_list(None, &lab.authority));
    let lasting = Wanted {
        ends: NOW + 1000 * HOUR,
        ..wanted(ALICE, Kind::User)
    };
    let alice = make(Some(&lab.authority), &lasting);
    assert!(lab.says(&[&alice]).is_ok());
    let late = lab
        .says_at(&[&alice], NOW + 400 * HOUR)
        .expect_err("an old list");
    assert!(
        late.starts_with("the revocation list of /DC=lab/CN=Lab CA is out of date"),
        "{late}"
    );
    lab.install("r1", b"nonsense");
    lab.refuses(
        &[&lab.alice],
        "a file of its authority cannot be used; the site's log names it",
    );
    let why = lab
        .judged(&[&lab.alice], NOW)
        .expect_err("unusable")
        .for_operators();
    assert!(why.contains("it holds no revocation list"), "{why}");
}

#[test]
fn a_change_of_the_files_is_seen_without_being_told() {
    let lab = lab();
    assert!(lab.says(&[&lab.alice]).is_ok());
    let hash = lab.authority.certificate.subject_name_hash();
    let path = lab.directory.path().join(format!("{hash:08x}.r0"));
    std::fs::write(path, lab.revocation_list(Some(&lab.alice), &lab.authority)).expect("written");
    let started = std::time::Instant::now();
    while lab.says(&[&lab.alice]).is_ok() {
        assert!(started.elapsed() < Duration::from_secs(20), "not seen");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_authority_signs_within_its_policy() {
    let lab = lab();
    lab.install("signing_policy", policy("/DC=lab/OU=Hosts/*").as_bytes());
    lab.refuses(
        &[&lab.alice],
        "the site's signing policy does not list that name",
    );
    lab.install("signing_policy", policy("/DC=lab/OU=Users/*").as_bytes());
    // The policy speaks of what the authority signs, not of the user's proxies.
    assert!(
        lab.says(&[&lab.proxy(&lab.alice, FULL), &lab.alice])
            .is_ok()
    );
}

#[test]
fn a_namespaces_file_counts_instead_of_the_signing_policy() {
    let lab = lab();
    let rule = |pattern: &str| format!("TO Issuer \"{CA}\" \\\n  PERMIT Subject \"{pattern}\"\n");
    lab.install("namespaces", rule("/DC=lab/OU=Hosts/.*").as_bytes());
    lab.refuses(&[&lab.alice], "does not list that name");
    lab.install("namespaces", rule("/DC=lab/OU=Users/.*").as_bytes());
    lab.install("signing_policy", policy("/DC=lab/OU=Hosts/*").as_bytes());
    assert!(lab.says(&[&lab.alice]).is_ok());
    lab.install("namespaces", b"what is this");
    lab.refuses(&[&lab.alice], "this site cannot judge the certificate");
}

#[test]
fn a_name_that_reads_as_another_is_refused() {
    let lab = lab();
    let disguised = make(
        Some(&lab.authority),
        &wanted("/DC=lab/OU=Users/CN=x|CN=Alice", Kind::User),
    );
    lab.refuses(&[&disguised], "without ambiguity");
    let robot = make(
        Some(&lab.authority),
        &wanted("/DC=lab/CN=host|se.example.org", Kind::User),
    );
    let told = lab.says(&[&robot]).expect("believed");
    assert_eq!(told.subject, "/DC=lab/CN=host/se.example.org");
    let accented = make(
        Some(&lab.authority),
        &wanted("/DC=lab/CN=Zo\u{eb}", Kind::User),
    );
    let told = lab.says(&[&accented]).expect("believed");
    assert_eq!(told.subject, "/DC=lab/CN=Zo\\xC3\\xAB");
}

#[test]
fn a_kept_connection_is_asked_again_after_a_minute_and_when_the_site_reloads() {
    let lab = lab();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().expect("a runtime");
    let at = |seconds: i64| Timestamp((NOW + seconds) * 1000);
    let shown = || HandshakeCertificates {
        leaf: lab.alice.certificate.clone(),
        others: Some(Vec::new()),
    };
    let judged = lab.judge.judge(shown(), at(0));
    assert_eq!(judged.certified.expect("believed").subject, ALICE);
    let mut kept = judged.kept.expect("believed");
    let mut again = |seconds| runtime.block_on(kept.judged_again(at(seconds)));
    assert!(again(59).is_none());
    assert!(again(61).expect("due").is_ok());
    assert!(again(62).is_none(), "the new verdict stands");
    // Installing a file reloads.
    lab.install("r0", &lab.revocation_list(Some(&lab.alice), &lab.authority));
    for _ in 0..2 {
        let why = again(63).expect("due").expect_err("revoked");
        assert!(matches!(why, CertificateError::Revoked(_)), "{why}");
    }
    lab.install("r0", &lab.revocation_list(None, &lab.authority));
    assert!(again(64).expect("due").is_ok());
    let refused = lab.judge.judge(shown(), at(30 * HOUR));
    assert!(refused.certified.is_err() && refused.kept.is_none());
}

#[test]
fn attributes_that_are_the_same_text_when_joined_are_not_the_same_identity() {
    let certified = |fqans: &[&str]| CertificateHolder {
        subject: ALICE.to_owned(),
        issuer: CA.to_owned(),
        proxy: Proxy::None,
        expires: Timestamp(NOW * 1000),
        attributes: Attributes::Counted(crate::voms::Voms {
            vo: VoName::new("lab"),
            fqans: fqans.iter().map(|fqan| (*fqan).to_owned()).collect(),
            expires: Timestamp(NOW * 1000),
        }),
        member_of: None,
    };
    let id = |fqans: &[&str]| certified(fqans).identity().delegation;
    assert_ne!(id(&["/lab/a", "/lab/b"]), id(&["/lab/a/lab/b"]));
}
