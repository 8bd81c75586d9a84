//! Macaroons: whoever changes one gains nothing; and what is asked for when one is made.

use super::{Target, texts};
use penstock_model::{CredentialId, NamespacePath, Timestamp, UserName, VoName};
use penstock_protocol::identity::{Identity, Method};
use penstock_protocol::macaroon::{
    Caveat, Grant, RootKeys, issue, looks_like_one, parse_request, parse_token_form, verify,
};
use penstock_protocol::token::capabilities;
use std::sync::LazyLock;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const ENDS: Timestamp = Timestamp(NOW.0 + 600_000);
const CAVEATS: [&str; 3] = ["path:/a", "activity:LIST,DOWNLOAD", "ip:192.0.2.0/24"];

pub const TARGET: Target = Target {
    name: "macaroon",
    check,
    seeds: || {
        let made = (0..=CAVEATS.len()).map(|count| made(count).into_bytes());
        made.chain(texts(&CAVEATS)).collect()
    },
};

pub const REQUESTS: Target = Target {
    name: "macaroon_request",
    check: check_request,
    seeds: || {
        texts(&[
            r#"{"caveats": ["activity:DOWNLOAD,LIST", "path:/a"], "validity": "PT60M"}"#,
            r#"{"validity": "P1DT2H3M4S"}"#,
            "grant_type=client_credentials&expire_in=3600&scopes=DOWNLOAD:/a%20b LIST:/a+b",
        ])
    },
};

static KEYS: LazyLock<RootKeys> = LazyLock::new(|| {
    let key: String = (0..32).map(|byte| format!("{byte:02x}")).collect();
    RootKeys::parse(&key).expect("a key")
});

static ALICE: LazyLock<Identity> = LazyLock::new(|| Identity {
    method: Method::Token,
    user: UserName::new("alice"),
    issuer: "https://issuer.example.org".to_owned(),
    vo: Some(VoName::new("atlas")),
    fqans: Vec::new(),
    groups: Vec::new(),
    capabilities: capabilities("storage.read:/ storage.create:/a", &NamespacePath::root())
        .expect("valid"),
    expires: ENDS,
    delegation: CredentialId::new("0123456789abcdef"),
    scope: String::new(),
});

fn made(caveats: usize) -> String {
    let caveats: Vec<Caveat> = CAVEATS[..caveats]
        .iter()
        .map(|caveat| Caveat::parse(caveat.as_bytes()).expect("a caveat"))
        .collect();
    let grant = Grant {
        identity: &ALICE,
        caveats: &caveats,
        expires: ENDS,
    };
    issue(&KEYS, "https://se.example.org", &grant).expect("issued")
}

fn check(data: &[u8]) {
    if let Ok(caveat) = Caveat::parse(data) {
        let written = caveat.to_string();
        assert_eq!(Caveat::parse(written.as_bytes()), Ok(caveat), "{written}");
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let peer = "192.0.2.7".parse().expect("an address");
    let Ok(verified) = verify(&KEYS, text, peer, NOW) else {
        return;
    };
    assert!(looks_like_one(text));
    // Its holder can add caveats and nothing else: whoever it is, they hold what Alice held, or less.
    let identity = &verified.identity;
    assert_eq!(identity.user, ALICE.user);
    assert_eq!(identity.capabilities, ALICE.capabilities);
    assert!(identity.expires <= ENDS);
    assert!(verify(&KEYS, text, peer, ENDS).is_err());
    // Which of the seeds it came from is told by the place of Alice's name.
    let texts: Vec<String> = verified.caveats.iter().map(Caveat::to_string).collect();
    let name = texts.iter().position(|text| text == "name:alice");
    let own = name.expect("her name is in all of them");
    assert!(
        own <= CAVEATS.len() && texts[..own] == CAVEATS[..own],
        "{texts:?}"
    );
    if own > 0 {
        assert!(
            verified
                .attenuation
                .paths
                .iter()
                .any(|path| path.to_string() == "/a")
        );
    }
}

fn check_request(data: &[u8]) {
    for wanted in [parse_request(data), parse_token_form(data)]
        .into_iter()
        .flatten()
    {
        assert!(wanted.caveats.len() <= 64 + data.len() / 4);
        for caveat in wanted.caveats {
            let written = caveat.to_string();
            assert_eq!(Caveat::parse(written.as_bytes()), Ok(caveat), "{written}");
        }
    }
}
