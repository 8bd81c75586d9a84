//! Tokens: text that somebody shows, and claims under a signature that is good.

use super::{Target, texts};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use penstock_model::{Capability, NamespacePath, Right, Timestamp};
use penstock_protocol::identity::Identity;
use penstock_protocol::token::{
    Claims, DocumentFetch, FetchDocument, IssuerVos, LIFE_MAX, Signer, TrustedIssuer, Verifier,
};
use serde_json::Value;
use std::sync::{Arc, LazyLock};
use tokio::runtime::Runtime;

const ISSUER: &str = "https://se.example.org:8443";
const PREFIX: &str = "/data/lab";
const NOW: Timestamp = Timestamp(1_795_241_992_000);
const NOW_SECONDS: i64 = NOW.0 / 1000;
const SCOPE: &str = "storage.read:/a storage.create:/b%20c";

pub const TEXTS: Target = Target {
    name: "token",
    check: check_text,
    seeds: || {
        let made = [0, 3600].map(|more| SITE.signer.sign(&claims(more)).expect("signed"));
        let none = "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL3NlLmV4YW1wbGUub3JnOjg0NDMifQ.";
        texts(&[&made[0], &made[1], none, "a.b.c"])
    },
};

pub const CLAIMS: Target = Target {
    name: "token_claims",
    check: check_claims,
    seeds: || {
        let full = serde_json::to_string(&claims(0)).expect("JSON");
        let odd = full.replace("\"sub\"", "\"sub\":\"root\",\"sub\"");
        let wide = full.replace(SCOPE, "storage.modify:/../x storage.read:/%2e%2e openid");
        let other = full.replace("https://wlcg.cern.ch/jwt/v1/any", "https://elsewhere");
        texts(&[&full, &odd, &wide, &other, &full.replace("\"1.0\"", "1.0")])
    },
};

struct Site {
    signer: Signer,
    key: PKey<Private>,
    verifier: Verifier,
    runtime: Runtime,
}

static SITE: LazyLock<Site> = LazyLock::new(|| {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("a curve");
    let key = PKey::from_ec_key(EcKey::generate(&group).expect("a key")).expect("a key");
    let pem = key.private_key_to_pem_pkcs8().expect("PEM");
    let signer = Signer::from_pem(&pem).expect("a signer");
    let audiences = vec!["https://se.example.org".to_owned()];
    let verifier = Verifier::new(vec![trusted(ISSUER, PREFIX)], audiences, Nowhere);
    Site {
        verifier: verifier.with_local_keys(ISSUER, &signer.jwks()),
        key,
        signer,
        runtime: tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime"),
    }
});

pub(super) fn trusted(issuer: &str, prefix: &str) -> TrustedIssuer {
    TrustedIssuer {
        issuer: issuer.to_owned(),
        prefix: NamespacePath::from_encoded(prefix).expect("a path"),
        vos: IssuerVos::Unlisted,
        life_max: LIFE_MAX,
        rights: Right::ALL.to_vec(),
    }
}

/// A token with good claims and no good signature.
pub(super) fn unsigned_with_kid(issuer: &str, algorithm: &str, kid: &str) -> String {
    let head = serde_json::json!({ "alg": algorithm, "kid": kid, "typ": "JWT" });
    let claims = Claims {
        iss: issuer.to_owned(),
        ..claims(0)
    };
    let claims = serde_json::to_vec(&claims).expect("JSON");
    let signature = [7; 64];
    [head.to_string().as_bytes(), &claims[..], &signature[..]]
        .map(encoded)
        .join(".")
}

/// Base64 as tokens have it (RFC 7515 §2).
fn encoded(bytes: &[u8]) -> String {
    let text = openssl::base64::encode_block(bytes);
    text.replace('+', "-").replace('/', "_").replace('=', "")
}

/// No other issuer can be reached.
struct Nowhere;

impl FetchDocument for Nowhere {
    fn fetch<'a>(&'a self, _: &'a str) -> DocumentFetch<'a> {
        Box::pin(std::future::ready(Err("nothing is there".to_owned())))
    }
}

fn claims(more_seconds: i64) -> Claims {
    Claims {
        iss: ISSUER.to_owned(),
        sub: "alice".to_owned(),
        aud: vec!["https://wlcg.cern.ch/jwt/v1/any".to_owned()],
        exp: NOW_SECONDS + 600 + more_seconds,
        nbf: None,
        iat: NOW_SECONDS,
        jti: "1".to_owned(),
        scope: SCOPE.to_owned(),
        wlcg_ver: "1.0".to_owned(),
        wlcg_groups: vec!["/lab".to_owned()],
        client_id: None,
    }
}

fn verify(token: &str) -> Option<Arc<Identity>> {
    let verified = SITE
        .runtime
        .block_on(SITE.verifier.verify(token, NOW))
        .ok()?;
    assert_eq!(verified.issuer, ISSUER);
    assert!(verified.expires > NOW);
    // Whatever the scope says, it stays below the prefix of its issuer.
    for Capability { path, .. } in &verified.capabilities {
        let text = path.to_string();
        assert!(text == PREFIX || text.starts_with("/data/lab/"), "{text}");
        assert!(
            text.split('/').all(|part| part != ".." && part != "."),
            "{text}"
        );
    }
    Some(verified)
}

fn check_text(data: &[u8]) {
    let Some(identity) = std::str::from_utf8(data).ok().and_then(verify) else {
        return;
    };
    // Nobody but the signer can have made it, and the signer made two.
    let meant = verify(&SITE.signer.sign(&claims(0)).expect("signed")).expect("good");
    assert_eq!(identity.user, meant.user);
    assert_eq!(identity.capabilities, meant.capabilities);
    assert_eq!(identity.groups, meant.groups);
}

fn check_claims(data: &[u8]) {
    let header = serde_json::json!({"typ": "JWT", "alg": "ES256", "kid": SITE.signer.kid()});
    // By hand, because the claims may be anything.
    let head = serde_json::to_vec(&header).expect("JSON");
    let signed = format!("{}.{}", encoded(&head), encoded(data));
    let mut signer =
        openssl::sign::Signer::new(MessageDigest::sha256(), &SITE.key).expect("a signer");
    let signature = signer
        .sign_oneshot_to_vec(signed.as_bytes())
        .expect("signed");
    let numbers = EcdsaSig::from_der(&signature).expect("a signature");
    // RFC 7518 §3.4: both numbers, one after the other.
    let numbers =
        [numbers.r(), numbers.s()].map(|number| number.to_vec_padded(32).expect("32 bytes"));
    let token = format!("{signed}.{}", encoded(&numbers.concat()));
    let Some(identity) = verify(&token) else {
        return;
    };
    let said: Value = serde_json::from_slice(data).expect("what counts is JSON");
    assert_eq!(said["iss"], ISSUER);
    assert_eq!(said["sub"], identity.user.as_str());
    let end = said["exp"].as_f64().expect("a token without end is none");
    assert!(identity.expires.0 as f64 <= (end + 1.0) * 1000.0);
}
