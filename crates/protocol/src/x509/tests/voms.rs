//! Attributes of VOs in proxies: as VOMS servers make them, and as attackers would like to have them.

use super::*;
use crate::voms::Voms;
use openssl::sign::Signer;
use openssl::x509::X509NameRef;
use proptest::prelude::*;

const SERVER: &str = "/DC=lab/OU=Hosts/CN=voms.lab";
const HOST: &str = "voms.lab";
const ECDSA_SHA256: &[u8] = &[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const ECDSA_SHA1: &[u8] = &[6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1];
/// 1.3.6.1.4.1.8005.100.100.x
const VOMS_ARC: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64];
const NAMED: &[&str] = &[
    "/dteam/Role=NULL/Capability=NULL",
    "/dteam/prod/Role=admin/Capability=NULL",
];

/// An element of DER.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = match content.len() {
        short @ 0..0x80 => vec![short as u8],
        long => [&[0x82][..], &(long as u16).to_be_bytes()].concat(),
    };
    // Lengths from 128 to 255 have a shorter form, which DER demands.
    let length = match length.as_slice() {
        [0x82, 0, low] => vec![0x81, *low],
        _ => length,
    };
    [&[tag][..], &length, &content].concat()
}

/// What an attribute certificate is to be.
#[derive(Clone)]
struct Attested {
    holder: Holder,
    /// Whose name it bears as its issuer.
    server: Holder,
    /// Who really signs.
    signer: Holder,
    /// Certificates that it brings.
    brings: Vec<Holder>,
    authority: String,
    fqans: Vec<String>,
    begins: &'static str,
    ends: &'static str,
    algorithm: &'static [u8],
    /// A further extension.
    extension: Vec<u8>,
}

impl Attested {
    fn certificate(&self) -> Vec<u8> {
        let general_name = |name: &X509NameRef| der(0xa4, &[&name.to_der().expect("der")]);
        let subject = general_name(self.holder.certificate.issuer_name());
        let serial = self.holder.certificate.serial_number();
        let serial = der(2, &[&serial.to_bn().expect("number").to_vec()]);
        let holder = der(0x30, &[&der(0xa0, &[&der(0x30, &[&subject]), &serial])]);
        let issuer = general_name(self.server.certificate.subject_name());
        let issuer = der(0xa0, &[&der(0x30, &[&issuer])]);
        let algorithm = der(0x30, &[self.algorithm]);
        let time = |text: &str| der(0x18, &[text.as_bytes()]);
        let validity = der(0x30, &[&time(self.begins), &time(self.ends)]);
        let fqans: Vec<u8> = self
            .fqans
            .iter()
            .flat_map(|fqan| der(4, &[fqan.as_bytes()]))
            .collect();
        let authority = der(0xa0, &[&der(0x86, &[self.authority.as_bytes()])]);
        let syntax = der(0x30, &[&authority, &der(0x30, &[&fqans])]);
        let name = |last: u8| der(6, &[VOMS_ARC, &[last]]);
        let attribute = der(0x30, &[&name(4), &der(0x31, &[&syntax])]);
        let brings = self
            .brings
            .iter()
            .map(|holder| holder.certificate.to_der().expect("der"));
        let brings: Vec<u8> = brings.flatten().collect();
        let chain = der(4, &[&der(0x30, &[&der(0x30, &[&brings])])]);
        let chain = match self.brings.is_empty() {
            true => Vec::new(),
            false => der(0x30, &[&name(10), &chain]),
        };
        let info = der(
            0x30,
            &[
                &[2, 1, 1],
                &holder,
                &issuer,
                &algorithm,
                &[2, 1, 5],
                &validity,
                &der(0x30, &[&attribute]),
                &der(0x30, &[&chain, &self.extension]),
            ],
        );
        let digest = match self.algorithm == ECDSA_SHA1 {
            true => MessageDigest::sha1(),
            false => MessageDigest::sha256(),
        };
        let mut signer = Signer::new(digest, &self.signer.key).expect("signer");
        let signature = signer.sign_oneshot_to_vec(&info).expect("signed");
        der(0x30, &[&info, &algorithm, &der(3, &[&[0], &signature])])
    }

    /// The value of the extension that carries it.
    fn value(&self) -> Vec<u8> {
        value(&[self.certificate()])
    }
}

fn value(certificates: &[Vec<u8>]) -> Vec<u8> {
    der(0x30, &[&der(0x30, &[&certificates.concat()])])
}

/// A lab whose site knows a VOMS server of `dteam` by an LSC file.
fn voms_lab() -> (Lab, Attested) {
    let mut lab = lab();
    let server = make(Some(&lab.authority), &wanted(SERVER, Kind::User));
    let vomsdir = lab.directory.path().join("vomsdir");
    std::fs::create_dir_all(vomsdir.join("dteam")).expect("made");
    let servers = VomsServers::new(&vomsdir, &["se.lab".to_owned()]);
    lab.judge = ClientCertificates::with_voms(lab.directory.path(), servers);
    lab.list(&format!("{SERVER}\n{CA}\n"));
    let attested = Attested {
        holder: lab.alice.clone(),
        server: server.clone(),
        signer: server.clone(),
        brings: vec![server],
        authority: format!("dteam://{HOST}:15000"),
        fqans: NAMED.iter().map(|fqan| (*fqan).to_owned()).collect(),
        // NOW is 2025-06-15 15:06:40.
        begins: "20250615150000Z",
        ends: "20250615180000Z",
        algorithm: ECDSA_SHA256,
        extension: Vec::new(),
    };
    (lab, attested)
}

impl Lab {
    fn list(&self, text: &str) {
        let path = self
            .directory
            .path()
            .join("vomsdir/dteam")
            .join(format!("{HOST}.lsc"));
        std::fs::write(path, text).expect("written");
    }

    fn voms_proxy(&self, signer: &Holder, value: &[u8]) -> Holder {
        self.proxy(signer, Kind::VomsProxy(value))
    }

    fn attributes(&self, value: &[u8]) -> Attributes {
        let proxy = self.voms_proxy(&self.alice, value);
        let told = self
            .says(&[&proxy, &self.alice])
            .expect("the identity counts in any case");
        assert_eq!(told.subject, ALICE);
        told.attributes
    }

    #[track_caller]
    fn counts(&self, attested: &Attested) -> Voms {
        match self.attributes(&attested.value()) {
            Attributes::Counted(voms) => voms,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn discounts(&self, attested: &Attested, expected: &str) {
        match self.attributes(&attested.value()) {
            Attributes::Refused(why) => assert!(why.to_string().contains(expected), "{why}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn attributes_of_a_known_server_make_the_identity() {
    let (lab, attested) = voms_lab();
    let proxy = lab.voms_proxy(&lab.alice, &attested.value());
    let told = lab.says(&[&proxy, &lab.alice]).expect("believed");
    let identity = told.identity();
    assert_eq!(identity.vo, Some(VoName::new("dteam")));
    assert_eq!(identity.fqans, NAMED);
    assert_eq!(identity.groups, ["/dteam", "/dteam/prod/Role=admin"]);
    // 2025-06-15 18:00, when the attributes end and the certificates do not.
    assert_eq!(identity.expires, Timestamp(1_750_010_400_000));
    assert_eq!(
        identity.delegation.as_str().len(),
        16,
        "as FTS clients expect"
    );
    let plain = lab.says(&[&lab.alice]).expect("believed").identity();
    assert_ne!(identity.delegation, plain.delegation);
    assert_eq!((plain.vo, plain.groups.len()), (None, 0));
}

#[test]
fn without_a_directory_of_servers_nobody_has_attributes() {
    let (lab, attested) = voms_lab();
    std::fs::remove_dir_all(lab.directory.path().join("vomsdir")).expect("removed");
    assert_eq!(lab.attributes(&attested.value()), Attributes::Absent);
}

#[test]
fn attributes_of_another_holder_do_not_count() {
    let (lab, attested) = voms_lab();
    let bob = Wanted {
        serial: 8,
        ..wanted("/DC=lab/OU=Users/CN=Bob", Kind::User)
    };
    let bob = make(Some(&lab.authority), &bob);
    let stolen = lab.voms_proxy(&bob, &attested.value());
    let told = lab.says(&[&stolen, &bob]).expect("Bob is Bob");
    let why = told.attributes.refusal().expect("refused").to_string();
    assert!(why.contains("another certificate"), "{why}");
    // The same serial number of another authority.
    let rogue = make(None, &wanted("/DC=lab/CN=Other CA", Kind::Authority));
    let other = Attested {
        holder: make(Some(&rogue), &wanted(ALICE, Kind::User)),
        ..attested
    };
    lab.discounts(&other, "another certificate");
}

#[test]
fn attributes_count_for_their_time_only() {
    let (lab, attested) = voms_lab();
    let of = |begins, ends| Attested {
        begins,
        ends,
        ..attested.clone()
    };
    lab.discounts(
        &of("20250615140000Z", "20250615150640Z"),
        "expired at 2025-06-15",
    );
    lab.discounts(
        &of("20250615151141Z", "20250615180000Z"),
        "not valid before",
    );
    lab.counts(&of("20250615151100Z", "20250615180000Z"));
}

#[test]
fn a_server_must_be_listed_with_its_authority() {
    let (lab, attested) = voms_lab();
    for (list, counts) in [
        (format!("{SERVER}\n{CA}\n"), true),
        (format!("# both\n{SERVER}\n{CA}\n{CA}\n{CA}\n"), true),
        (
            format!("/CN=old\n{CA}\n------ NEXT CHAIN ------\n{SERVER}\n{CA}\n"),
            true,
        ),
        (format!("{SERVER}x\n{CA}\n"), false),
        (format!("{SERVER}\n/DC=lab/CN=Other CA\n"), false),
        (format!("{CA}\n{SERVER}\n"), false),
        (format!("{SERVER}\n{CA}\n/CN=above\n"), false),
    ] {
        lab.list(&list);
        match counts {
            true => drop(lab.counts(&attested)),
            false => lab.discounts(&attested, "does not list"),
        }
    }
    for list in [
        format!("{SERVER}\n"),
        String::new(),
        format!("{SERVER}\n{SERVER}\n"),
    ] {
        lab.list(&list);
        lab.discounts(&attested, "and, below, that of its authority");
    }
}

#[test]
fn a_server_that_is_not_known_for_the_vo_does_not_count() {
    let (lab, attested) = voms_lab();
    let of = |authority: &str| Attested {
        authority: authority.to_owned(),
        ..attested.clone()
    };
    lab.discounts(&of("atlas://voms.lab:15000"), "the VO 'atlas' is not known");
    lab.discounts(
        &of("dteam://other.lab:15000"),
        "not known here as a VOMS server",
    );
    lab.discounts(&of("../dteam://voms.lab:15000"), "malformed");
}

#[test]
fn a_server_speaks_for_its_own_vo_only() {
    let (lab, attested) = voms_lab();
    for foreign in ["/atlas/Role=NULL/Capability=NULL", "/dteamx", "dteam", "/"] {
        let mut fqans = attested.fqans.clone();
        fqans.push(foreign.to_owned());
        let attested = Attested {
            fqans,
            ..attested.clone()
        };
        lab.discounts(&attested, "is not a group of the VO 'dteam'");
    }
}

#[test]
fn a_forged_signature_does_not_count() {
    let (lab, attested) = voms_lab();
    let own_key = Attested {
        signer: lab.alice.clone(),
        ..attested.clone()
    };
    lab.discounts(&own_key, "signature is not valid");
    // Signed by a user of the same authority, under the user's own name.
    let own_name = Attested {
        server: lab.alice.clone(),
        signer: lab.alice.clone(),
        brings: vec![lab.alice.clone()],
        ..attested.clone()
    };
    lab.discounts(&own_name, "does not list");
    // An authority of the same name that nobody trusts, and its server of the same name.
    let rogue = make(None, &wanted(CA, Kind::Authority));
    let twin = make(Some(&rogue), &wanted(SERVER, Kind::User));
    for brings in [vec![twin.clone()], vec![twin.clone(), rogue]] {
        let forged = Attested {
            server: twin.clone(),
            signer: twin.clone(),
            brings,
            ..attested.clone()
        };
        lab.discounts(&forged, "certificate is not believed");
    }
    // A proxy of the server signs nothing.
    let proxy = lab.proxy(&attested.server, FULL);
    let delegated = Attested {
        signer: proxy.clone(),
        server: proxy.clone(),
        brings: vec![proxy, attested.server.clone()],
        ..attested.clone()
    };
    lab.discounts(&delegated, "certificate is not believed");
    let weak = Attested {
        algorithm: ECDSA_SHA1,
        ..attested.clone()
    };
    lab.discounts(&weak, "SHA-256");
    let alone = Attested {
        brings: Vec::new(),
        ..attested
    };
    lab.discounts(&alone, "without the certificate of the VOMS server");
}

#[test]
fn a_revoked_server_does_not_count() {
    let (lab, mut attested) = voms_lab();
    let alice = Wanted {
        serial: 9,
        ..wanted(ALICE, Kind::User)
    };
    // The list of the lab names number 7, which is the server's.
    let alice = make(Some(&lab.authority), &alice);
    attested.holder = alice.clone();
    lab.install(
        "r0",
        &lab.revocation_list(Some(&attested.server), &lab.authority),
    );
    let proxy = lab.voms_proxy(&alice, &attested.value());
    let told = lab
        .says(&[&proxy, &alice])
        .expect("Alice's is another number");
    let why = told.attributes.refusal().expect("refused").to_string();
    assert!(why.contains("was revoked"), "{why}");
}

#[test]
fn certificates_of_servers_are_the_older_way_to_know_them() {
    let (lab, attested) = voms_lab();
    let vomsdir = lab.directory.path().join("vomsdir/dteam");
    std::fs::remove_file(vomsdir.join(format!("{HOST}.lsc"))).expect("removed");
    let alone = Attested {
        brings: Vec::new(),
        ..attested
    };
    lab.discounts(&alone, "not known here as a VOMS server");
    let keep = |holder: &Holder| {
        let pem = holder.certificate.to_pem().expect("pem");
        std::fs::write(vomsdir.join("server.pem"), pem).expect("written");
    };
    keep(&alone.server);
    assert_eq!(lab.counts(&alone).fqans, NAMED);
    let twin = make(Some(&lab.authority), &wanted(SERVER, Kind::User));
    keep(&twin);
    lab.discounts(&alone, "signature is not valid");
    std::fs::write(vomsdir.join("server.pem"), "nonsense").expect("written");
    lab.discounts(&alone, "it holds no certificate");
}

#[test]
fn attributes_for_some_services_count_there_only() {
    let (lab, attested) = voms_lab();
    let meant_for = |names: &[&str]| {
        let target = |name: &&str| der(0xa0, &[&der(0x86, &[name.as_bytes()])]);
        let targets: Vec<u8> = names.iter().flat_map(target).collect();
        let value = der(4, &[&der(0x30, &[&der(0x30, &[&targets])])]);
        Attested {
            extension: der(0x30, &[&[6, 3, 0x55, 0x1d, 0x37], &[1, 1, 0xff], &value]),
            ..attested.clone()
        }
    };
    lab.counts(&meant_for(&["other.lab", "https://se.lab:8443/"]));
    lab.discounts(&meant_for(&["other.lab"]), "other services");
    lab.discounts(&meant_for(&[]), "other services");
}

#[test]
fn an_unknown_critical_extension_discounts_all() {
    let (lab, attested) = voms_lab();
    let with = |criticality: &[u8]| Attested {
        extension: der(0x30, &[&[6, 3, 0x2a, 3, 4], criticality, &[4, 0]]),
        ..attested.clone()
    };
    lab.counts(&with(&[]));
    lab.discounts(&with(&[1, 1, 0xff]), "critical extension");
}

#[test]
fn the_last_proxy_with_attributes_is_the_one_that_counts() {
    let (lab, attested) = voms_lab();
    let fewer = Attested {
        fqans: vec!["/dteam".to_owned()],
        ..attested.clone()
    };
    let first = lab.voms_proxy(&lab.alice, &attested.value());
    let fqans = |chain: &[&Holder]| {
        let attributes = lab.says(chain).expect("believed").attributes;
        attributes.counted().map(|voms| voms.fqans.len())
    };
    let bare = lab.proxy(&first, FULL);
    assert_eq!(fqans(&[&bare, &first, &lab.alice]), Some(2));
    let second = lab.voms_proxy(&first, &fewer.value());
    assert_eq!(fqans(&[&second, &first, &lab.alice]), Some(1));
    // What is out of order is not made up for by what lies above it.
    let broken = lab.voms_proxy(&first, b"nonsense");
    assert_eq!(fqans(&[&broken, &first, &lab.alice]), None);
    let limited = Kind::Proxy {
        policy: LIMITED,
        path_length: None,
        critical: true,
    };
    let limited = lab.proxy(&lab.alice, limited);
    let below = lab.voms_proxy(&limited, &attested.value());
    let told = lab.says(&[&below, &limited, &lab.alice]).expect("believed");
    assert_eq!(told.proxy, Proxy::Limited);
    assert!(
        told.attributes.counted().is_some(),
        "who moves data has a VO"
    );
}

#[test]
fn every_attribute_certificate_of_a_proxy_must_be_in_order() {
    let (lab, attested) = voms_lab();
    let more = Attested {
        fqans: vec!["/dteam/more".to_owned()],
        ..attested.clone()
    };
    let both = value(&[attested.certificate(), more.certificate()]);
    let Attributes::Counted(voms) = lab.attributes(&both) else {
        panic!("both are in order");
    };
    assert_eq!(
        voms.groups(),
        ["/dteam", "/dteam/prod/Role=admin", "/dteam/more"]
    );
    let late = Attested {
        ends: "20250615150001Z",
        ..more
    };
    let odd = value(&[attested.certificate(), late.certificate()]);
    assert!(lab.attributes(&odd).refusal().is_some());
    assert!(lab.attributes(&value(&[])).refusal().is_some());
    assert!(
        lab.attributes(&value(&vec![attested.certificate(); 9]))
            .refusal()
            .is_some()
    );
}

#[test]
fn no_flipped_bit_gives_other_attributes() {
    let (lab, attested) = voms_lab();
    let genuine = lab.counts(&attested);
    let value = attested.value();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(400));
    let place = (0..value.len(), 0..8_u8);
    runner
        .run(&place, |(byte, bit)| {
            let mut tampered = value.clone();
            tampered[byte] ^= 1 << bit;
            // Its holder may sign any proxy, with whatever is in it.
            match lab.attributes(&tampered) {
                Attributes::Counted(voms) => prop_assert_eq!(&voms, &genuine),
                Attributes::Absent | Attributes::Refused(_) => {}
            }
            Ok(())
        })
        .expect("no forgery");
}
