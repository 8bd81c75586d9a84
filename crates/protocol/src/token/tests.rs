//! Tokens of every kind, good and bad, against issuers that live in memory.

use super::*;
use crate::identity::Identity;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use parking_lot::Mutex;
use penstock_model::{NamespacePath, Right, VoName};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const LOCAL: &str = "https://se.example.org:8443";
const REMOTE: &str = "https://iam.example.org/";
const NOW: Timestamp = Timestamp(1_795_241_992_000);
const HOUR: Duration = Duration::from_secs(3600);

/// An RSA issuer with one key.
struct Issuer {
    key: PKey<Private>,
    jwk: Value,
}

static SIGNER: LazyLock<Signer> = LazyLock::new(|| {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("a curve");
    let key = PKey::from_ec_key(EcKey::generate(&group).expect("a key")).expect("a key");
    Signer::from_pem(&key.private_key_to_pem_pkcs8().expect("PEM")).expect("a signer")
});
static RSA: LazyLock<Issuer> = LazyLock::new(|| rsa_issuer("rsa1"));
static OTHER_RSA: LazyLock<Issuer> = LazyLock::new(|| rsa_issuer("rsa2"));

fn rsa_issuer(kid: &str) -> Issuer {
    let key = Rsa::generate(2048).expect("a key");
    let encode = |number: &openssl::bn::BigNumRef| URL_SAFE_NO_PAD.encode(number.to_vec());
    let jwk =
        json!({"kty": "RSA", "kid": kid, "use": "sig", "n": encode(key.n()), "e": encode(key.e())});
    Issuer {
        key: PKey::from_rsa(key).expect("a key"),
        jwk,
    }
}

/// Documents by address, and how often each was fetched.
#[derive(Clone, Default)]
struct Web {
    pages: Arc<Mutex<HashMap<String, Value>>>,
    fetches: Arc<Mutex<Vec<String>>>,
}

impl Web {
    fn with_remote() -> Web {
        let web = Web::default();
        web.publish(&[&RSA.jwk]);
        web
    }

    fn publish(&self, keys: &[&Value]) {
        let mut pages = self.pages.lock();
        let configuration = json!({"issuer": REMOTE, "jwks_uri": "https://iam.example.org/keys"});
        pages.insert(
            "https://iam.example.org/.well-known/openid-configuration".to_owned(),
            configuration,
        );
        pages.insert(
            "https://iam.example.org/keys".to_owned(),
            json!({ "keys": keys }),
        );
    }

    fn go_down(&self) {
        self.pages.lock().clear();
    }

    fn key_fetches(&self) -> usize {
        let fetches = self.fetches.lock();
        fetches
            .iter()
            .filter(|url| url.ends_with("openid-configuration"))
            .count()
    }
}

impl FetchDocument for Web {
    fn fetch<'a>(&'a self, url: &'a str) -> DocumentFetch<'a> {
        self.fetches.lock().push(url.to_owned());
        let page = self.pages.lock().get(url).map(Value::to_string);
        Box::pin(async move {
            page.map(String::into_bytes)
                .ok_or_else(|| "connection refused".to_owned())
        })
    }
}

fn trusted(issuer: &str, prefix: &str, vo: Option<&str>) -> TrustedIssuer {
    TrustedIssuer {
        issuer: issuer.to_owned(),
        prefix: NamespacePath::parse(prefix).expect("a path"),
        vos: vo.map_or(IssuerVos::Unlisted, |vo| IssuerVos::One(VoName::new(vo))),
        life_max: LIFE_MAX,
        rights: Right::ALL.to_vec(),
    }
}

fn verifier(web: &Web) -> Verifier {
    let issuers = vec![
        trusted(LOCAL, "/", None),
        trusted(REMOTE, "/data/cms", Some("cms")),
    ];
    Verifier::new(
        issuers,
        vec![LOCAL.to_owned(), "se.example.org".to_owned()],
        web.clone(),
    )
    .with_local_keys(LOCAL, &SIGNER.jwks())
}

/// Good claims for `issuer`.
fn claims(issuer: &str) -> Value {
    let now = NOW.unix_seconds();
    json!({
        "iss": issuer, "sub": "alice", "aud": LOCAL, "exp": now + 600, "nbf": now - 10, "iat": now - 10,
        "jti": "1", "scope": "openid storage.read:/a storage.modify:/a/b", "wlcg.ver": "1.0",
    })
}

fn with(mut claims: Value, name: &str, value: Value) -> Value {
    match value {
        Value::Null => drop(claims.as_object_mut().expect("an object").remove(name)),
        value => claims[name] = value,
    }
    claims
}

fn remote_token(claims: &Value) -> String {
    signed(&RSA.key, "RS256", Some("rsa1"), claims)
}

/// Of our own issuer.
fn own_token(claims: &Value) -> String {
    let claims: Claims = serde_json::from_value(claims.clone()).expect("claims");
    SIGNER.sign(&claims).expect("signed")
}

fn signed(key: &PKey<Private>, algorithm: &str, kid: Option<&str>, claims: &Value) -> String {
    let mut header = json!({"typ": "JWT", "alg": algorithm});
    if let Some(kid) = kid {
        header["kid"] = json!(kid);
    }
    let digest = match algorithm {
        "RS512" => MessageDigest::sha512(),
        _ => MessageDigest::sha256(),
    };
    let unsigned = assembled(header, claims, "");
    let text = unsigned.trim_end_matches('.');
    let mut signer = openssl::sign::Signer::new(digest, key).expect("a signer");
    let signature = signer.sign_oneshot_to_vec(text.as_bytes()).expect("signed");
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Any header, any signature.
fn assembled(header: Value, claims: &Value, signature: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{signature}", part(&header), part(claims))
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("a runtime").block_on(future)
}

fn verify(token: &str) -> Result<Arc<Identity>, TokenError> {
    run(verifier(&Web::with_remote()).verify(token, NOW))
}

fn check_refused(token: &str, expected: &str) {
    let text = verify(token).expect_err("refused").to_string();
    assert_eq!(text, expected);
    let signature = token.rsplit('.').next().unwrap_or_default();
    assert!(signature.len() < 8 || !text.contains(signature), "{text}");
}

/// The remote issuer's token with one claim changed.
fn check_claim(name: &str, value: Value, expected: &str) {
    check_refused(&remote_token(&with(claims(REMOTE), name, value)), expected);
}

#[test]
fn a_token_of_our_own_issuer_needs_no_fetch() {
    let web = Web::default();
    let own = Claims {
        iss: LOCAL.to_owned(),
        sub: "bob".to_owned(),
        aud: vec![LOCAL.to_owned(), "https://other".to_owned()],
        exp: NOW.unix_seconds() + 1,
        nbf: None,
        iat: NOW.unix_seconds(),
        jti: "7".to_owned(),
        scope: "storage.create:/up/ fts".to_owned(),
        wlcg_ver: "1.0".to_owned(),
        wlcg_groups: vec!["/atlas/prod".to_owned()],
        client_id: Some("cli".to_owned()),
    };
    let token = SIGNER.sign(&own).expect("signed");
    let identity = run(verifier(&web).verify(&token, NOW)).expect("accepted");
    assert_eq!(identity.user.as_str(), "bob");
    let vo = identity.vo.as_ref().expect("a VO of the issuer's group");
    assert!(vo.as_str().starts_with("atlas@se.example.org~"), "{vo}");
    assert_eq!(identity.capabilities[0].to_string(), "storage.create:/up/");
    assert!(
        identity.groups.is_empty(),
        "groups do not count beside capabilities"
    );
    assert!(identity.has_scope("fts") && !identity.has_scope("ft"));
    assert_eq!(identity.expires, NOW + Duration::from_secs(1));
    assert_eq!(web.fetches.lock().len(), 0);
}

#[test]
fn a_token_of_a_remote_issuer_speaks_of_its_part_of_the_namespace() {
    let identity = verify(&remote_token(&claims(REMOTE))).expect("accepted");
    let scopes: Vec<String> = identity
        .capabilities
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        scopes,
        ["storage.read:/data/cms/a", "storage.modify:/data/cms/a/b"]
    );
    assert_eq!(identity.vo, Some(VoName::new("cms")));
    assert_eq!(identity.delegation.as_str().len(), 16);
    let again = verify(&remote_token(&with(claims(REMOTE), "jti", json!("2")))).expect("accepted");
    assert_eq!(
        identity.delegation, again.delegation,
        "the same subject has the same delegation"
    );
}

#[test]
fn a_token_for_another_server_speaks_of_its_subject_when_its_issuer_has_signed_it() {
    let verifier = verifier(&Web::with_remote());
    let elsewhere = with(claims(REMOTE), "aud", json!("https://another.example.org"));
    let genuine = remote_token(&elsewhere);
    let origin = run(verifier.origin(&genuine, NOW)).expect("genuine");
    let [alice, mallory] = ["alice", "mallory"].map(|subject| delegation_id(REMOTE, subject));
    let [cms, atlas] = ["cms", "atlas"].map(VoName::new);
    assert!(origin.is_of(&alice, &atlas), "her own");
    assert!(origin.is_of(&mallory, &cms), "a service of the VO");
    assert!(!origin.is_of(&mallory, &atlas));
    let (signed_part, _) = genuine.rsplit_once('.').expect("three parts");
    let forged = run(verifier.origin(&format!("{signed_part}.AAAA"), NOW));
    assert_eq!(forged, Err(TokenError::Signature));
    // Where the site names no VO, the token's own counts.
    let own = own_token(&with(
        with(claims(LOCAL), "aud", json!(["https://another.example.org"])),
        "wlcg.groups",
        json!(["/cms"]),
    ));
    let origin = run(verifier.origin(&own, NOW)).expect("genuine");
    assert!(!origin.is_of(&mallory, &cms), "anybody can call a group so");
    assert!(origin.is_of(&mallory, &crate::vo::of_token_group(LOCAL, "cms")));
}

#[test]
fn a_token_has_another_name_for_each_submitter() {
    let [alice, mallory] = ["alice", "mallory"].map(|subject| delegation_id(REMOTE, subject));
    assert_ne!(job_token_id(&alice, "t"), job_token_id(&mallory, "t"));
    assert_eq!(job_token_id(&alice, "t"), job_token_id(&alice, "t"));
}

#[test]
fn groups_count_when_there_is_no_capability() {
    let grouped = with(claims(LOCAL), "wlcg.groups", json!(["/cms/uscms", "/cms"]));
    let token = |claims: &Value| {
        SIGNER
            .sign(
                &serde_json::from_value(with(claims.clone(), "aud", json!([LOCAL])))
                    .expect("claims"),
            )
            .expect("signed")
    };
    let identity =
        verify(&token(&with(grouped.clone(), "scope", json!("openid")))).expect("accepted");
    assert_eq!(identity.groups, ["/cms/uscms", "/cms"]);
    let computing =
        verify(&token(&with(grouped, "scope", json!("compute.create")))).expect("accepted");
    assert!(computing.groups.is_empty() && computing.capabilities.is_empty());
    let bare = verify(&token(&claims(LOCAL))).expect("accepted");
    assert_eq!(bare.vo, None, "no group, no VO");
}

#[test]
fn an_issuer_makes_members_of_the_vos_that_the_site_lists_for_it_and_of_no_others() {
    let vo_by_scope = |vos: IssuerVos, groups: Value, scope: &str| {
        let issuer = TrustedIssuer {
            vos,
            ..trusted(LOCAL, "/", None)
        };
        let verifier = Verifier::new(vec![issuer], vec![LOCAL.to_owned()], Web::default())
            .with_local_keys(LOCAL, &SIGNER.jwks());
        let claims = with(
            with(claims(LOCAL), "aud", json!([LOCAL])),
            "wlcg.groups",
            groups,
        );
        let claims = serde_json::from_value(with(claims, "scope", json!(scope))).expect("claims");
        let token = SIGNER.sign(&claims).expect("signed");
        run(verifier.verify(&token, NOW)).expect("accepted")
    };
    let vo_by = |vos: IssuerVos, groups: Value| vo_by_scope(vos, groups, "storage.read:/");
    let named =
        |vos: IssuerVos, groups: Value| vo_by(vos, groups).vo.as_ref().map(ToString::to_string);
    let one = || IssuerVos::One(VoName::new("cms"));
    let listed = || IssuerVos::Listed(vec![VoName::new("cms"), VoName::new("atlas")]);
    let cms = Some("cms".to_owned());
    assert_eq!(named(one(), json!(["/atlas"])), cms);
    assert_eq!(named(listed(), json!(["/cms/prod"])), cms);
    assert_eq!(named(listed(), json!(["/lhcb", "/cms"])), cms);
    for strangers in [json!(["/lhcb"]), json!(["/cmsx"]), json!(["/"]), json!([])] {
        assert_eq!(named(listed(), strangers), None);
    }
    let by_groups = |groups: Value| vo_by_scope(listed(), groups, "openid").groups.clone();
    assert_eq!(
        by_groups(json!(["/lhcb/x", "/cms/prod", "/cmsx"])),
        ["/cms/prod"]
    );
    // Nothing that anybody else is called.
    let (victims, private) = ("cms", vo_by(listed(), json!([])).vo_or_private());
    for group in [victims, "Alice@lab", private.as_str()] {
        let vo = named(IssuerVos::Unlisted, json!([format!("/{group}")])).expect("derived");
        assert!(vo != group && vo.contains("@se.example.org~"), "{vo}");
    }
}

#[test]
fn who_belongs_to_no_vo_shares_jobs_with_nobody() {
    let web = Web::with_remote();
    let private = |issuer: &str, subject: &str| {
        let claims = with(claims(issuer), "sub", json!(subject));
        let verifier = Verifier::new(
            vec![trusted(LOCAL, "/", None), trusted(REMOTE, "/", None)],
            vec![LOCAL.to_owned()],
            web.clone(),
        )
        .with_local_keys(LOCAL, &SIGNER.jwks());
        let token = match issuer {
            REMOTE => remote_token(&claims),
            _ => {
                let claims = serde_json::from_value(with(claims, "aud", json!([LOCAL])));
                SIGNER.sign(&claims.expect("claims")).expect("signed")
            }
        };
        let identity = run(verifier.verify(&token, NOW)).expect("accepted");
        (identity.vo_or_private(), identity)
    };
    let (alice, identity) = private(REMOTE, "alice");
    assert_eq!(alice, private(REMOTE, "alice").0);
    for (other, stranger) in [private(REMOTE, "bob"), private(LOCAL, "alice")] {
        assert_ne!(alice, other);
        assert!(identity.submitted(&identity.user, &identity.delegation));
        assert!(!stranger.submitted(&identity.user, &identity.delegation));
    }
}

#[test]
fn names_of_subjects_do_not_depend_on_where_the_issuer_ends() {
    assert_ne!(
        delegation_id("https://idp.example.org/", "xalice"),
        delegation_id("https://idp.example.org/x", "alice")
    );
}

#[test]
fn time_is_strict_at_the_end_and_lenient_at_the_beginning() {
    let now = NOW.unix_seconds();
    check_claim(
        "exp",
        json!(now),
        "the token expired at 2026-11-21T06:19:52Z; get a new one",
    );
    check_claim(
        "exp",
        json!(now - 5),
        "the token expired at 2026-11-21T06:19:47Z; get a new one",
    );
    check_claim(
        "nbf",
        json!(now + 61),
        "the token is not valid before 2026-11-21T06:20:53Z; check the clocks",
    );
    for (name, value) in [
        ("nbf", json!(now + 60)),
        ("nbf", Value::Null),
        ("exp", json!(now as f64 + 0.5)),
    ] {
        let token = remote_token(&with(claims(REMOTE), name, value.clone()));
        assert!(verify(&token).is_ok(), "{name}={value}");
    }
}

#[test]
fn every_required_claim_is_required() {
    for name in ["iss", "sub", "exp", "iat", "jti", "aud", "wlcg.ver"] {
        let expected =
            format!("the token has no valid claim '{name}', which the WLCG profile requires");
        check_claim(name, Value::Null, &expected);
        check_claim(name, json!({}), &expected);
    }
    for (name, value) in [
        ("sub", json!("")),
        ("exp", json!("soon")),
        ("exp", json!(-1)),
        ("exp", json!(1e300)),
        ("nbf", json!("soon")),
        ("scope", json!(["storage.read:/"])),
        ("wlcg.groups", json!("/cms")),
        ("wlcg.groups", json!([1])),
    ] {
        check_claim(
            name,
            value,
            &format!("the token has no valid claim '{name}', which the WLCG profile requires"),
        );
    }
}

#[test]
fn the_audience_is_compared_as_text() {
    let accepted = |aud: Value| verify(&remote_token(&with(claims(REMOTE), "aud", aud))).is_ok();
    assert!(accepted(json!("se.example.org")) && accepted(json!(["https://x", LOCAL])));
    assert!(accepted(json!(ANY_AUDIENCE)));
    for wrong in [
        "https://other",
        "https://se.example.org",
        "https://se.example.org:8443/",
        "SE.EXAMPLE.ORG",
        "",
    ] {
        assert!(!accepted(json!(wrong)), "{wrong}");
    }
    assert!(!accepted(json!([])));
    check_claim(
        "aud",
        json!("https://other"),
        "the token is meant for another audience (https://other); ask for one with an audience of this service: \
         https://se.example.org:8443, se.example.org",
    );
}

#[test]
fn who_may_administer_names_this_service_and_nobody_else_could_use_it() {
    let admin = |aud: Value| {
        with(
            with(claims(LOCAL), "scope", json!("penstock.admin")),
            "aud",
            aud,
        )
    };
    assert!(verify(&own_token(&admin(json!([LOCAL])))).is_ok());
    for aud in [json!([ANY_AUDIENCE]), json!([LOCAL, ANY_AUDIENCE])] {
        let refused = verify(&own_token(&admin(aud.clone()))).expect_err("for any");
        assert_eq!(refused, TokenError::AdminForAny, "{aud}");
        assert!(
            refused.to_string().contains("penstock token --admin"),
            "{refused}"
        );
        // That of another site counts for nothing here, and was meant for that site alone.
        let foreign = with(
            with(
                claims(REMOTE),
                "scope",
                json!("storage.read:/ penstock.admin"),
            ),
            "aud",
            aud,
        );
        assert_eq!(
            verify(&remote_token(&foreign)),
            Err(TokenError::AdminForAny)
        );
    }
    let ended = with(admin(json!([LOCAL])), "exp", json!(NOW.unix_seconds()));
    let refused = verify(&own_token(&ended)).expect_err("ended");
    assert!(
        refused
            .to_string()
            .ends_with("make a new one on the site's machine: penstock token --admin --dir SITE"),
        "{refused}"
    );
}

#[test]
fn a_token_lives_no_longer_than_the_site_lets_those_of_its_issuer() {
    let now = NOW.unix_seconds();
    let life = |begins: i64, ends: i64| {
        let made = with(claims(REMOTE), "iat", json!(begins));
        verify(&remote_token(&with(made, "exp", json!(ends))))
    };
    let max = LIFE_MAX.as_secs() as i64;
    assert!(life(now - 10, now - 10 + max).is_ok());
    assert!(life(now + 3600, now + max).is_ok(), "clocks differ");
    for (begins, ends) in [
        (now, now + max + 1),
        (now, now + 3000 * 365 * 86_400),
        (now - max, now + 600),
        (now + max, now + max + 600),
    ] {
        let refused = life(begins, ends).expect_err("too long");
        assert!(matches!(refused, TokenError::Life { .. }), "{refused}");
    }
    let refused = life(now, now + 40 * 86_400).expect_err("too long");
    assert_eq!(
        refused.to_string(),
        "the token is made for 40 days, and this site takes tokens of 'https://iam.example.org/' for 30 days at most \
         (token_life_max); get one with a shorter life"
    );
}

#[test]
fn a_newer_minor_version_is_accepted_and_another_major_one_is_not() {
    let accepted = |version: &str| {
        verify(&remote_token(&with(
            claims(REMOTE),
            "wlcg.ver",
            json!(version),
        )))
        .is_ok()
    };
    assert!(accepted("1.0") && accepted("1.3") && accepted("1.99"));
    assert!(!accepted("2.0") && !accepted("0.9") && !accepted("1.x") && !accepted("10.0"));
    check_claim(
        "wlcg.ver",
        json!("2.0"),
        "the token follows version '2.0' of the WLCG profile; only 1.x is known",
    );
}

#[test]
fn a_storage_scope_that_is_not_understood_spoils_the_token() {
    check_claim(
        "scope",
        json!("openid storage.read"),
        "the token carries an invalid scope: 'storage.read' has no path; write 'storage.read:/path'",
    );
    check_claim(
        "scope",
        json!("storage.read:/a/%2e%2e/b"),
        "the token carries an invalid scope: the path of 'storage.read' is refused: \
         the path must not contain '..'",
    );
}

#[test]
fn only_asymmetric_signatures_are_looked_at() {
    let claims = claims(REMOTE);
    let none = assembled(json!({"alg": "none", "kid": "rsa1"}), &claims, "");
    check_refused(
        &none,
        "the token's signature algorithm 'none' is not accepted; use RS256 or ES256",
    );
    // The public key as an HMAC secret: the classic confusion.
    let secret = PKey::hmac(RSA.jwk["n"].as_str().expect("a modulus").as_bytes()).expect("a key");
    let hmac = signed(&secret, "HS256", Some("rsa1"), &claims);
    check_refused(
        &hmac,
        "the token's signature algorithm 'HS256' is not accepted; use RS256 or ES256",
    );
    let longer = signed(&RSA.key, "RS512", Some("rsa1"), &claims);
    check_refused(
        &longer,
        "the token's signature algorithm 'RS512' is not accepted; use RS256 or ES256",
    );
    let rsa_signature = remote_token(&claims)
        .rsplit('.')
        .next()
        .expect("a signature")
        .to_owned();
    let renamed = assembled(
        json!({"alg": "ES256", "kid": "rsa1"}),
        &claims,
        &rsa_signature,
    );
    check_refused(&renamed, "the token's signature is not valid");
}

#[test]
fn a_signature_by_another_key_or_over_another_text_is_not_valid() {
    let other = signed(&OTHER_RSA.key, "RS256", Some("rsa1"), &claims(REMOTE));
    check_refused(&other, "the token's signature is not valid");
    let good = remote_token(&claims(REMOTE));
    let (_, signature) = good.rsplit_once('.').expect("three parts");
    let admin = with(claims(REMOTE), "sub", json!("admin"));
    let changed = assembled(
        json!({"alg": "RS256", "kid": "rsa1", "typ": "JWT"}),
        &admin,
        signature,
    );
    check_refused(&changed, "the token's signature is not valid");
    let cut = &good[..good.len() - 4];
    assert_eq!(verify(cut), Err(TokenError::Signature));
    let own_key_for_another_issuer = SIGNER
        .sign(&serde_json::from_value(with(claims(REMOTE), "aud", json!([LOCAL]))).expect("claims"))
        .expect("signed");
    assert!(matches!(
        verify(&own_key_for_another_issuer),
        Err(TokenError::UnknownKey { .. })
    ));
}

#[test]
fn a_header_must_name_a_key_and_demand_nothing_else() {
    let unnamed = signed(&RSA.key, "RS256", None, &claims(REMOTE));
    check_refused(&unnamed, "the token is malformed: the header has no 'kid'");
    let unknown = signed(&RSA.key, "RS256", Some("rsa9"), &claims(REMOTE));
    check_refused(
        &unknown,
        "the issuer 'https://iam.example.org/' publishes no usable key 'rsa9'",
    );
    let critical = json!({"alg": "RS256", "kid": "rsa1", "crit": ["x"]});
    check_refused(
        &assembled(critical, &claims(REMOTE), "AAAA"),
        "the token is malformed: the header demands an unknown extension",
    );
}

#[test]
fn strangers_make_us_fetch_nothing() {
    let web = Web::with_remote();
    for stranger in [
        "https://evil.example.org",
        "https://iam.example.org",
        "http://iam.example.org/",
    ] {
        let token = remote_token(&claims(stranger));
        let refused = run(verifier(&web).verify(&token, NOW));
        assert_eq!(refused, Err(TokenError::Issuer(stranger.to_owned())));
    }
    assert_eq!(web.fetches.lock().len(), 0);
}

#[test]
fn what_is_no_token_is_malformed() {
    for text in [
        "",
        "x",
        "a.b",
        "a.b.c",
        "....",
        "e30.e30.",
        "W10.e30.x",
        "é.é.é",
    ] {
        assert!(
            matches!(verify(text), Err(TokenError::Malformed(_))),
            "{text}"
        );
    }
    assert_eq!(
        verify(&"x".repeat(TOKEN_BYTES_MAX + 1)),
        Err(TokenError::TooLong)
    );
}

#[test]
fn an_unknown_key_is_looked_for_at_most_once_a_minute() {
    let web = Web::with_remote();
    let verifier = verifier(&web);
    let new = signed(&OTHER_RSA.key, "RS256", Some("rsa2"), &claims(REMOTE));
    run(async {
        let old = remote_token(&claims(REMOTE));
        assert!(verifier.verify(&old, NOW).await.is_ok());
        for seconds in [1, 30, 59] {
            let refused = verifier
                .verify(&new, NOW + Duration::from_secs(seconds))
                .await;
            assert!(
                matches!(refused, Err(TokenError::UnknownKey { .. })),
                "{refused:?}"
            );
        }
        assert_eq!(web.key_fetches(), 1);
        web.publish(&[&RSA.jwk, &OTHER_RSA.jwk]);
        assert!(
            verifier
                .verify(&new, NOW + Duration::from_secs(61))
                .await
                .is_ok()
        );
        assert_eq!(web.key_fetches(), 2);
    });
}

#[test]
fn an_issuer_that_comes_up_after_us_is_asked_again_soon() {
    let web = Web::with_remote();
    let verifier = verifier(&web);
    web.go_down();
    run(async {
        let token = remote_token(&claims(REMOTE));
        for milliseconds in [0, 500, 900] {
            let at = NOW + Duration::from_millis(milliseconds);
            let refused = verifier.verify(&token, at).await;
            assert!(
                matches!(refused, Err(TokenError::KeysUnavailable { .. })),
                "{refused:?}"
            );
        }
        web.publish(&[&RSA.jwk]);
        let at = NOW + Duration::from_secs(2);
        assert!(verifier.verify(&token, at).await.is_ok());
    });
}

#[test]
fn an_outage_of_the_issuer_is_survived_for_two_days() {
    let web = Web::with_remote();
    let verifier = verifier(&web);
    let lasting = |jti: u32| {
        let end = NOW.unix_seconds() + 10 * 86_400;
        remote_token(&with(
            with(claims(REMOTE), "exp", json!(end)),
            "jti",
            json!(jti.to_string()),
        ))
    };
    run(async {
        assert!(verifier.verify(&lasting(1), NOW).await.is_ok());
        web.go_down();
        assert!(verifier.verify(&lasting(2), NOW + HOUR * 5).await.is_ok());
        assert_eq!(web.key_fetches(), 1, "keys are good for six hours");
        assert!(verifier.verify(&lasting(3), NOW + HOUR * 7).await.is_ok());
        assert!(
            verifier
                .verify(&lasting(4), NOW + HOUR * 7 + Duration::from_secs(100))
                .await
                .is_ok()
        );
        assert_eq!(
            web.key_fetches(),
            2,
            "an issuer that does not answer is left alone for a while"
        );
        assert!(verifier.verify(&lasting(5), NOW + HOUR * 47).await.is_ok());
        let refused = verifier.verify(&lasting(6), NOW + HOUR * 49).await;
        assert!(
            matches!(refused, Err(TokenError::KeysUnavailable { .. })),
            "{refused:?}"
        );
        web.publish(&[&RSA.jwk]);
        assert!(verifier.verify(&lasting(6), NOW + HOUR * 50).await.is_ok());
    });
}

#[test]
fn a_long_token_ends_with_its_key() {
    let web = Web::with_remote();
    let verifier = verifier(&web);
    let end = NOW.unix_seconds() + 86_400;
    let token = remote_token(&with(claims(REMOTE), "exp", json!(end)));
    run(async {
        assert!(verifier.verify(&token, NOW).await.is_ok());
        web.publish(&[&OTHER_RSA.jwk]);
        for hours in [1, 5] {
            assert!(verifier.verify(&token, NOW + HOUR * hours).await.is_ok());
        }
        assert_eq!(web.key_fetches(), 1, "keys are kept for hours");
        let refused = verifier.verify(&token, NOW + HOUR * 7).await;
        assert!(
            matches!(refused, Err(TokenError::UnknownKey { .. })),
            "{refused:?}"
        );
        assert_eq!(web.key_fetches(), 2);
    });
}

#[test]
fn documents_of_another_issuer_or_without_protection_are_not_believed() {
    let keys = "https://iam.example.org/keys";
    for configuration in [
        json!({"issuer": "https://iam.example.org", "jwks_uri": keys}),
        json!({"issuer": REMOTE, "jwks_uri": "http://iam.example.org/keys"}),
        json!({"issuer": REMOTE}),
        json!([]),
    ] {
        let web = Web::with_remote();
        let address = "https://iam.example.org/.well-known/openid-configuration".to_owned();
        web.pages.lock().insert(address, configuration.clone());
        let refused = run(verifier(&web).verify(&remote_token(&claims(REMOTE)), NOW));
        assert!(
            matches!(refused, Err(TokenError::KeysUnavailable { .. })),
            "{configuration}"
        );
    }
}

#[test]
fn keys_that_are_too_weak_or_not_for_signing_are_left_out() {
    let weak = with(RSA.jwk.clone(), "n", json!("AQAB"));
    let encryption = with(RSA.jwk.clone(), "use", json!("enc"));
    let other = with(RSA.jwk.clone(), "alg", json!("RS512"));
    let nameless = with(RSA.jwk.clone(), "kid", Value::Null);
    let secret = json!({"kty": "oct", "kid": "rsa1", "k": "AAAA"});
    for key in [weak, encryption, other, nameless, secret] {
        assert!(keys::key_set(&json!({"keys": [key]})).is_empty(), "{key}");
    }
    assert_eq!(keys::key_set(&json!({"keys": [1, RSA.jwk, "x"]})).len(), 1);
    for nonsense in [
        json!(null),
        json!({"keys": {}}),
        json!({"keys": [{"kty": "EC", "crv": "P-256"}]}),
    ] {
        assert!(keys::key_set(&nonsense).is_empty());
    }
}

#[test]
fn a_verdict_is_remembered_until_the_token_ends_or_the_trust_changes() {
    let web = Web::with_remote();
    let verifier = verifier(&web);
    let token = remote_token(&claims(REMOTE));
    run(async {
        assert!(verifier.verify(&token, NOW).await.is_ok());
        let later = NOW + Duration::from_secs(600);
        assert!(matches!(
            verifier.verify(&token, later).await,
            Err(TokenError::Expired(_))
        ));
        verifier
            .clone()
            .replace_trust(vec![trusted(LOCAL, "/", None)], vec![LOCAL.to_owned()]);
        let refused = verifier.verify(&token, NOW).await;
        assert_eq!(refused, Err(TokenError::Issuer(REMOTE.to_owned())));
        verifier.replace_trust(vec![trusted(REMOTE, "/new", None)], vec!["x".to_owned()]);
        assert!(matches!(
            verifier.verify(&token, NOW).await,
            Err(TokenError::Audience { .. })
        ));
    });
}

#[test]
fn an_issuer_may_have_several_prefixes() {
    let issuers = vec![
        trusted(LOCAL, "/disk", None),
        trusted(LOCAL, "/tape", Some("x")),
    ];
    let verifier = Verifier::new(issuers, vec![LOCAL.to_owned()], Web::default())
        .with_local_keys(LOCAL, &SIGNER.jwks());
    let claims = with(
        with(claims(LOCAL), "scope", json!("storage.read:/a")),
        "aud",
        json!([LOCAL]),
    );
    let token = SIGNER
        .sign(&serde_json::from_value(claims).expect("claims"))
        .expect("signed");
    let identity = run(verifier.verify(&token, NOW)).expect("accepted");
    let scopes: Vec<String> = identity
        .capabilities
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(scopes, ["storage.read:/disk/a", "storage.read:/tape/a"]);
    assert_eq!(identity.vo, Some(VoName::new("x")));
}

#[test]
fn names_of_credentials_have_the_form_that_clients_know() {
    // SHA-256 of "abc" begins so (FIPS 180-4).
    assert_eq!(
        credential_id("abc").as_str(),
        "ba7816bf8f01cfea414140de5dae2223"
    );
    assert_eq!(delegation_id("a", "bc").as_str().len(), 16);
    assert_ne!(delegation_id("a", "bc"), delegation_id("ab", "c"));
    assert_eq!(
        openid_configuration("https://h/")["jwks_uri"],
        "https://h/jwks"
    );
    assert_eq!(openid_configuration("https://h")["issuer"], "https://h");
    assert_eq!(SIGNER.jwks()["keys"][0]["kid"], SIGNER.kid());
    assert!(
        SIGNER.jwks()["keys"][0].get("d").is_none(),
        "the private half stays here"
    );
}

#[test]
fn a_key_of_another_curve_does_not_sign() {
    let group = EcGroup::from_curve_name(Nid::SECP384R1).expect("a curve");
    let key = PKey::from_ec_key(EcKey::generate(&group).expect("a key")).expect("a key");
    let pem = key.private_key_to_pem_pkcs8().expect("PEM");
    assert!(matches!(
        Signer::from_pem(&pem),
        Err(SignerError::Key { .. })
    ));
    assert!(matches!(
        Signer::from_pem(b"x"),
        Err(SignerError::Key { .. })
    ));
    let missing = Signer::load(std::path::Path::new("/nowhere/key.pem"))
        .err()
        .expect("refused");
    assert!(
        missing
            .to_string()
            .starts_with("cannot read the signing key /nowhere/key.pem"),
        "{missing}"
    );
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(
        text in "\\PC{0,80}",
        header in "[ -~]{0,40}",
        payload: Vec<u8>,
        scope in "\\PC{0,60}",
    ) {
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let shaped = format!("{}.{}.{}", part(header.as_bytes()), part(&payload), part(&payload));
        let named = assembled(json!({"alg": "ES256", "kid": text}), &claims(LOCAL), &part(&payload));
        let verifier = verifier(&Web::default());
        run(async {
            for token in [&text, &shaped, &named] {
                assert!(verifier.verify(token, NOW).await.is_err());
            }
        });
        let _ = capabilities(&scope, &NamespacePath::root());
        let _ = capabilities(&format!("storage.read:/{scope}"), &NamespacePath::root());
        let key = json!({"kty": "EC", "crv": "P-256", "kid": "x", "x": part(&payload), "y": text});
        let _ = keys::key_set(&json!({"keys": [key]}));
    }
}
