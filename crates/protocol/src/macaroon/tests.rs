//! Golden values were computed with Python's `hmac`; the first are those that libmacaroons documents.

use super::*;
use penstock_model::Right;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const HERE: &str = "192.0.2.7";

fn keys() -> RootKeys {
    let key: String = (0..32).map(|byte| format!("{byte:02x}")).collect();
    RootKeys::parse(&key).expect("a key")
}

fn alice() -> Identity {
    Identity {
        method: Method::Token,
        user: UserName::new("alice"),
        issuer: "https://issuer.example.org".to_owned(),
        vo: Some(VoName::new("atlas")),
        fqans: Vec::new(),
        groups: Vec::new(),
        capabilities: capabilities(
            "storage.read:/ storage.create:/a%20b/ storage.modify:/c",
            &NamespacePath::root(),
        )
        .expect("valid"),
        expires: Timestamp(NOW.0 + 900_000),
        delegation: CredentialId::new("0123456789abcdef"),
        scope: String::new(),
    }
}

fn made(caveats: &[&str]) -> String {
    let caveats: Vec<Caveat> = caveats
        .iter()
        .map(|caveat| Caveat::parse(caveat.as_bytes()).expect("a caveat"))
        .collect();
    let identity = alice();
    let grant = Grant {
        identity: &identity,
        caveats: &caveats,
        expires: Timestamp(NOW.0 + 600_000),
    };
    issue(&keys(), "https://se.example.org", &grant).expect("issued")
}

/// The same macaroon with a caveat that its holder adds.
fn narrowed(text: &str, caveat: &str) -> String {
    let mut macaroon = wire::from_text(text).expect("readable");
    macaroon.narrow(caveat.as_bytes().to_vec());
    wire::to_text(&macaroon).expect("short")
}

fn verified(text: &str) -> Result<VerifiedMacaroon, MacaroonError> {
    verify(&keys(), text, HERE.parse().expect("an address"), NOW)
}

#[test]
fn the_chain_is_that_of_libmacaroons() {
    let key = b"this is our super secret key; only we should know it";
    let mut macaroon = Macaroon::mint(key, "http://mybank/", b"we used our secret key".to_vec());
    let first = "e3d9e02908526c4c0039ae15114115d97fdd68bf2ba379b342aaf0f617d0552f";
    assert_eq!(hex(&macaroon.signature), first);
    macaroon.narrow(b"account = 3735928559".to_vec());
    let second = "1efe4763f290dbce0c1d08477367e11f4eee456a64933cf662d79772dbb82128";
    assert_eq!(hex(&macaroon.signature), second);
    assert_eq!(
        wire::to_text(&macaroon).expect("short"),
        "MDAxY2xvY2F0aW9uIGh0dHA6Ly9teWJhbmsvCjAwMjZpZGVudGlmaWVyIHdlIHVzZWQgb3VyIHNlY3JldCBrZXkKMDAxZG\
         NpZCBhY2NvdW50ID0gMzczNTkyODU1OQowMDJmc2lnbmF0dXJlIB7-R2PykNvODB0IR3Nn4R9O7kVqZJM89mLXl3LbuCEoCg"
    );
}

#[test]
fn both_versions_of_the_format_name_one_macaroon() {
    let version_1 = "MDAxOGxvY2F0aW9uIGh0dHBzOi8vc2UKMDAxNGlkZW50aWZpZXIgaWQtMQowMDEyY2lkIHBhdGg6L2EvYg\
                     owMDFmY2lkIGFjdGl2aXR5OkxJU1QsRE9XTkxPQUQKMDAyNGNpZCBiZWZvcmU6MjAzMC0wMS0wMVQwMDowMDow\
                     MFoKMDAyZnNpZ25hdHVyZSB6kpVhzrPOZvuqFcK-AJlG6mgB7nu-8acsj9niKuP0XQo";
    let version_2 = "AgEKaHR0cHM6Ly9zZQIEaWQtMQACCXBhdGg6L2EvYgACFmFjdGl2aXR5OkxJU1QsRE9XTkxPQUQAAhtiZW\
                     ZvcmU6MjAzMC0wMS0wMVQwMDowMDowMFoAAAYgepKVYc6zzmb7qhXCvgCZRupoAe57vvGnLI_Z4irj9F0";
    let one = wire::from_text(version_1).expect("readable");
    assert_eq!(wire::from_text(version_2).expect("readable"), one);
    assert_eq!(
        wire::from_text(&format!("{version_2}=")).expect("padded"),
        one
    );
    assert!(one.is_signed_by(keys().newest()));
    assert_eq!(
        one.caveats,
        [
            b"path:/a/b".as_slice(),
            b"activity:LIST,DOWNLOAD",
            b"before:2030-01-01T00:00:00Z"
        ]
    );
    assert_eq!(wire::to_text(&one).expect("short"), version_1);
    // Genuine, but its identifier is not one that we write.
    assert_eq!(verified(version_1), Err(MacaroonError::Identifier));
}

#[test]
fn a_macaroon_carries_what_its_requester_held() {
    let got = verified(&made(&["path:/a b", "activity:DOWNLOAD,LIST"])).expect("genuine");
    let expected = alice();
    assert_eq!(got.identity.capabilities, expected.capabilities);
    assert_eq!(got.identity.user, expected.user);
    assert_eq!(got.identity.vo, expected.vo);
    assert_eq!(got.identity.delegation, expected.delegation);
    assert_eq!(got.identity.expires, Timestamp(NOW.0 + 600_000));
    assert_eq!(
        got.attenuation.paths,
        [NamespacePath::parse("/a b").expect("valid")]
    );
    let activities: Vec<&str> = got
        .attenuation
        .activities
        .iter()
        .flatten()
        .map(|activity| activity.name())
        .collect();
    assert_eq!(activities, ["LIST", "DOWNLOAD"]);
    assert!(
        got.identity
            .capabilities
            .iter()
            .any(|held| held.right == Right::Modify)
    );
}

#[test]
fn its_holder_can_only_narrow_it() {
    let wide = made(&["activity:DOWNLOAD,LIST"]);
    let narrow = narrowed(&narrowed(&wide, "activity:DOWNLOAD,UPLOAD"), "path:/a");
    let got = verified(&narrow).expect("genuine").attenuation;
    assert_eq!(
        got.activities.expect("narrowed").len(),
        1,
        "an activity taken away stays away"
    );
    assert_eq!(got.paths.len(), 1);
    let shorter = narrowed(&wide, "before:2027-01-15T08:05:00Z");
    assert_eq!(
        verified(&shorter).expect("alive").identity.expires,
        Timestamp(1_800_000_300_000)
    );
    let longer = narrowed(&wide, "before:2099-01-01T00:00:00Z");
    assert_eq!(
        verified(&longer).expect("alive").identity.expires,
        Timestamp(NOW.0 + 600_000)
    );
}

fn check_refused(caveat: &str, expected: &str) {
    let why = verified(&narrowed(&made(&[]), caveat)).expect_err(caveat);
    assert_eq!(why.to_string(), expected, "{caveat}");
}

#[test]
fn a_caveat_that_does_not_hold_or_is_unknown_refuses() {
    check_refused(
        "before:2020-01-01T00:00:00Z",
        "the macaroon expired at 2020-01-01T00:00:00Z; get a new one",
    );
    check_refused(
        "ip:192.0.2.8",
        "a caveat of the macaroon forbids its use from 192.0.2.7",
    );
    check_refused(
        "ip:2001:db8::/32",
        "a caveat of the macaroon forbids its use from 192.0.2.7",
    );
    check_refused("name:bob", "a caveat of the macaroon names another user");
    let unknown = "the macaroon has a caveat that is not understood: \
                   'colour:red' is none of path:, activity:, before:, ip: and name:";
    check_refused("colour:red", unknown);
    for odd in [
        "",
        "path",
        "path:a",
        "path:/a/../b",
        "activity:",
        "activity:READ",
        "before:soon",
        "ip:x",
        "PATH:/",
    ] {
        let refused = verified(&narrowed(&made(&[]), odd));
        assert!(
            matches!(refused, Err(MacaroonError::Caveat(_))),
            "{odd}: {refused:?}"
        );
    }
    for fine in [
        "ip:10.0.0.0/8,192.0.2.0/24",
        "ip:0.0.0.0/0",
        "ip:192.0.2.7",
        "name:alice",
        "path:/",
    ] {
        assert!(verified(&narrowed(&made(&[]), fine)).is_ok(), "{fine}");
    }
}

#[test]
fn an_address_that_is_written_as_ipv6_is_the_same_address() {
    let text = made(&["ip:192.0.2.0/24"]);
    let mapped = "::ffff:192.0.2.7".parse().expect("an address");
    assert!(verify(&keys(), &text, mapped, NOW).is_ok());
    let other = "::ffff:192.0.3.7".parse().expect("an address");
    assert_eq!(
        verify(&keys(), &text, other, NOW),
        Err(MacaroonError::Address(other))
    );
}

#[test]
fn a_new_key_keeps_old_macaroons_until_the_old_one_is_removed() {
    let old_key: String = (0..32).map(|byte| format!("{byte:02x}")).collect();
    let new_key = "ab".repeat(32);
    let old = made(&[]);
    let peer = HERE.parse().expect("an address");
    let both = RootKeys::parse(&format!("# newest first\n{new_key}\n\n{old_key}\n")).expect("keys");
    assert!(verify(&both, &old, peer, NOW).is_ok());
    assert_eq!(both.newest(), [0xab; 32]);
    let new = RootKeys::parse(&new_key).expect("a key");
    assert_eq!(verify(&new, &old, peer, NOW), Err(MacaroonError::Signature));
    assert_eq!(format!("{both:?}"), "RootKeys(2 keys)");
    for wrong in [
        "",
        "# none",
        "abcd",
        &"ab".repeat(33),
        &"zz".repeat(32),
        &format!("{new_key}\n").repeat(9),
    ] {
        assert!(RootKeys::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_key_file_is_private_and_never_overwritten() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("macaroon-root");
    assert!(RootKeys::load(&path).expect("no trouble").is_none());
    RootKeys::create(&path).expect("made");
    assert_eq!(path.metadata().expect("there").mode() & 0o777, 0o600);
    assert!(RootKeys::create(&path).is_err());
    assert!(RootKeys::load(&path).expect("readable").is_some());
    std::fs::write(&path, "secret").expect("written");
    let why = RootKeys::load(&path).expect_err("no key").to_string();
    assert!(
        why.contains("a line is not a key") && !why.contains("secret"),
        "{why}"
    );
}

#[test]
fn too_much_is_refused() {
    let mut text = made(&[]);
    (0..CAVEATS_MAX).for_each(|_| text = narrowed(&text, "path:/"));
    assert_eq!(verified(&text), Err(MacaroonError::TooLong));
    assert_eq!(
        verified(&"A".repeat(TOKEN_BYTES_MAX + 1)),
        Err(MacaroonError::TooLong)
    );
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        use base64::Engine;
        let text = base64::engine::general_purpose::URL_SAFE.encode(&bytes);
        let _ = verified(&text);
        let _ = verified(&String::from_utf8_lossy(&bytes));
        let mut second = vec![2];
        second.extend(&bytes);
        let _ = verified(&base64::engine::general_purpose::URL_SAFE.encode(&second));
        let _ = Caveat::parse(&bytes);
        let _ = parse_request(&bytes);
        let _ = parse_token_form(&bytes);
    }

    #[test]
    fn what_is_written_is_read_back(
        identifier in proptest::collection::vec(any::<u8>(), 0..200),
        caveats in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..8),
    ) {
        let mut macaroon = Macaroon::mint(b"key", "here", identifier);
        caveats.into_iter().for_each(|caveat| macaroon.narrow(caveat));
        let text = wire::to_text(&macaroon).expect("short");
        let again = wire::from_text(&text).expect("readable");
        prop_assert!(again.is_signed_by(b"key"));
        prop_assert!(!again.is_signed_by(b"kez"));
        prop_assert_eq!(again, macaroon);
    }

    #[test]
    fn no_caveat_can_be_changed_removed_or_moved(at in 0usize..3, byte in 0usize..9, flip in 1u8..=255) {
        let text = made(&["path:/a/bcd", "activity:LIST,DOWNLOAD"]);
        let genuine = wire::from_text(&text).expect("readable");
        let mut changed = genuine.clone();
        changed.caveats[at][byte] ^= flip;
        prop_assert!(!changed.is_signed_by(keys().newest()));
        let mut removed = genuine.clone();
        removed.caveats.remove(at);
        prop_assert!(!removed.is_signed_by(keys().newest()));
        let mut moved = genuine.clone();
        moved.caveats.swap(at, at + 1);
        prop_assert!(!moved.is_signed_by(keys().newest()));
        let mut renamed = genuine;
        let position = byte % renamed.identifier.len();
        renamed.identifier[position] ^= flip;
        prop_assert!(!renamed.is_signed_by(keys().newest()));
    }

    #[test]
    fn caveats_are_read_as_they_are_written(bits in 0u32..=32, address in any::<u32>(), end in 0i64..4_000_000_000) {
        let address = std::net::Ipv4Addr::from(address);
        for text in [format!("ip:{address}/{bits}"), format!("before:{}Z", Timestamp(end * 1000).to_fts())] {
            let caveat = Caveat::parse(text.as_bytes()).expect("a caveat");
            prop_assert_eq!(caveat.to_string(), text);
        }
    }
}
