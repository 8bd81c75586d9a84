//! The rules of the WLCG token profile 1.3, one table each, with tokens of issuers that the door meets over TLS.

use crate::issuer::{EC, FORGED, Issuer, Key, RSA, now, signature, unsigned};
use crate::site::{AUDIENCE, Site, Trust, path};
use openssl::pkey::PKey;
use penstock_decide::authorization::GroupRule;
use penstock_model::{Right, VoName};
use penstock_protocol::token::{IssuerVos, LIFE_MAX};
use penstock_storage_element::{StorageConfig, TrustedIssuerConfig};
use serde_json::{Value, json};

/// A door that trusts one issuer for `/wlcg` and another one for `/other`.
struct World {
    site: Site,
    wlcg: Issuer,
    other: Issuer,
    _trust: Trust,
}

impl World {
    async fn new() -> World {
        World::start(true).await
    }

    async fn start(tls: bool) -> World {
        let trust = Trust::new();
        // One name with a final slash and one without: both are common.
        let wlcg = Issuer::start(&trust, "/").await;
        let other = Issuer::start(&trust, "").await;
        let places = [
            (&wlcg, "wlcg", "/wlcg"),
            (&other, "other", "/other"),
            (&wlcg, "wlcg", "/shared"),
            (&other, "other", "/shared"),
        ];
        let issuers = places.map(|(issuer, vo, prefix)| TrustedIssuerConfig {
            issuer: issuer.url.clone(),
            prefix: path(prefix),
            vos: IssuerVos::One(VoName::new(vo)),
            life_max: LIFE_MAX,
            rights: Right::ALL.to_vec(),
        });
        let certificates = trust.certificates();
        let change = |config: &mut StorageConfig| {
            config.access.issuers = issuers.to_vec();
            config.access.group_rules = group_rules();
            config.outbound.certificates = Some(certificates);
        };
        let site = match tls {
            true => Site::with_tls_and(&trust, change).await,
            false => Site::with(change).await,
        };
        for file in [
            "/wlcg/foo/f",
            "/wlcg/foo/sub/g",
            "/wlcg/foobar/f",
            "/wlcg/protected/p",
            "/wlcg/a b",
            "/wlcg/%252e%252e",
            "/other/o",
        ] {
            site.put(file, b"x").await;
        }
        World {
            site,
            wlcg,
            other,
            _trust: trust,
        }
    }

    /// Sends `METHOD path [destination]` with a token; the status and the text of the answer.
    async fn send(&self, token: &str, request: &str) -> (u16, String) {
        let mut words = request.split(' ');
        let method = words.next().expect("a method");
        let path = words.next().expect("a path");
        let destination = words.next().unwrap_or("/wlcg/foo/moved");
        let extra: &[(&str, &str)] = match method {
            "MOVE" => &[("destination", destination)],
            "PROPFIND" => &[("depth", "1")],
            _ => &[],
        };
        let body: &[u8] = if method == "PUT" { b"y" } else { b"" };
        let response = self.site.send_as(token, method, path, extra, body).await;
        if response.status == 401 {
            let challenge = response.header("www-authenticate");
            let invalid = "Bearer error=\"invalid_token\"";
            assert!(challenge.starts_with(invalid), "{request}: {challenge}");
        }
        (response.status, response.text())
    }

    async fn check(&self, what: &str, token: &str, request: &str, expected: u16) {
        let (status, text) = self.send(token, request).await;
        assert_eq!(status, expected, "{what}: {request}: {text}");
        assert!(
            !text.contains(token),
            "{what}: the answer shows the token: {text}"
        );
    }

    /// A token of the first issuer with claims changed; `null` removes one.
    async fn check_claims(&self, changes: Value, expected: u16) {
        let mut claims = self.wlcg.claims("storage.read:/");
        let held = claims.as_object_mut().expect("an object");
        for (name, value) in changes.as_object().expect("an object") {
            match value {
                Value::Null => drop(held.remove(name)),
                value => drop(held.insert(name.clone(), value.clone())),
            }
        }
        let what = changes.to_string();
        self.check(&what, &RSA.sign(&claims), "GET /wlcg/foo/f", expected)
            .await;
    }
}

fn group_rules() -> Vec<GroupRule> {
    let rule = |group: &str, below: &str, rights: &[Right]| GroupRule {
        group: group.to_owned(),
        path: path(below),
        rights: rights.to_vec(),
    };
    vec![
        rule("/wlcg", "/wlcg", &[Right::Read, Right::Modify]),
        rule("/wlcg", "/wlcg/protected", &[Right::Read]),
        rule(
            "/wlcg/test",
            "/wlcg/protected",
            &[Right::Read, Right::Modify],
        ),
        rule("/other", "/", &[Right::Read, Right::Modify]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audience_must_name_this_service() {
    let world = World::new().await;
    for (audience, expected) in [
        (json!(AUDIENCE), 200),
        (json!([AUDIENCE]), 200),
        (json!(["https://elsewhere", AUDIENCE]), 200),
        (json!("https://wlcg.cern.ch/jwt/v1/any"), 200),
        (json!(["https://wlcg.cern.ch/jwt/v1/any"]), 200),
        (json!("https://wlcg.cern.ch/jwt/v1/any/"), 401),
        (json!("https://elsewhere"), 401),
        (json!(format!("{AUDIENCE}/")), 401),
        (json!(AUDIENCE.to_uppercase()), 401),
        (json!("https://se.example.org"), 401),
        (json!("se.example.org:8443"), 401),
        (json!("any"), 401),
        (json!(""), 401),
        (json!([]), 401),
        (json!([7]), 401),
        (json!({"aud": AUDIENCE}), 401),
        (Value::Null, 401),
    ] {
        world
            .check_claims(json!({ "aud": audience }), expected)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn required_claims_are_required_and_unknown_ones_mean_nothing() {
    let world = World::new().await;
    for name in ["iss", "sub", "exp", "iat", "jti", "wlcg.ver"] {
        let missing = json!({ name: null });
        world.check_claims(missing, 401).await;
        world.check_claims(json!({ name: "" }), 401).await;
    }
    let now = now();
    for (changes, expected) in [
        (json!({"nbf": null}), 200),
        (json!({"exp": now - 1}), 401),
        (json!({"exp": now as f64 + 1000.5}), 200),
        (json!({"exp": "9999999999"}), 401),
        (json!({"exp": -1}), 401),
        (json!({"exp": 1e300}), 401),
        // Clocks may differ by a minute at the beginning, by nothing at the end.
        (json!({"nbf": now + 40}), 200),
        (json!({"nbf": now + 90}), 401),
        (json!({"nbf": "soon"}), 401),
        (json!({"wlcg.ver": "1.1"}), 200),
        (json!({"wlcg.ver": "1.27"}), 200),
        (json!({"wlcg.ver": "2.0"}), 401),
        (json!({"wlcg.ver": "0.9"}), 401),
        (json!({"wlcg.ver": 1.0}), 401),
        (json!({"wlcg.ver": "1.0; admin"}), 401),
        (
            json!({"admin": true, "scopes": "storage.modify:/", "groups": ["/wlcg"]}),
            200,
        ),
        (json!({"scope": ["storage.read:/"]}), 401),
        (json!({"wlcg.groups": "/wlcg"}), 401),
        (json!({"iss": "https://evil.example.org"}), 401),
        (json!({"iss": world.wlcg.url.trim_end_matches('/')}), 401),
        (json!({"iss": format!("{}/", world.other.url)}), 401),
        // Every issuer here publishes the same keys; the name alone decides what they may speak of.
        (json!({"iss": world.other.url}), 403),
    ] {
        world.check_claims(changes, expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_good_signature_by_a_published_key_counts() {
    let world = World::new().await;
    let claims = world.wlcg.claims("storage.read:/");
    let text = claims.to_string();
    let header = |algorithm: &str, kid: &str| {
        json!({"alg": algorithm, "typ": "JWT", "kid": kid}).to_string()
    };
    let hmac = |key: &Key| {
        let signed = unsigned(&header("HS256", "rsa"), &text);
        let secret = PKey::hmac(&key.pem).expect("a key");
        format!("{signed}.{}", signature(&secret, "HS256", &signed))
    };
    let good = RSA.sign(&claims);
    let (signed, signature) = good.rsplit_once('.').expect("three parts");
    let other_claims = RSA.sign(&world.wlcg.claims("storage.modify:/"));
    let (other_signed, _) = other_claims.rsplit_once('.').expect("three parts");
    for (what, token, expected) in [
        ("RS256", good.clone(), 200),
        ("ES256", EC.sign(&claims), 200),
        (
            "alg none",
            format!("{}.", unsigned(&header("none", "rsa"), &text)),
            401,
        ),
        (
            "alg None",
            format!("{}.", unsigned(&header("None", "rsa"), &text)),
            401,
        ),
        (
            "alg none with a signature",
            format!("{}.{signature}", unsigned(&header("none", "rsa"), &text)),
            401,
        ),
        ("HS256 by the public RSA key", hmac(&RSA), 401),
        ("HS256 by the public EC key", hmac(&EC), 401),
        (
            "another algorithm of the same key",
            RSA.sign_text(&header("RS512", "rsa"), &text),
            401,
        ),
        (
            "the other key's name",
            RSA.sign_text(&header("RS256", "ec"), &text),
            401,
        ),
        ("a forged key", FORGED.sign(&claims), 401),
        ("no kid", RSA.sign_text(r#"{"alg":"RS256"}"#, &text), 401),
        (
            "an empty kid",
            RSA.sign_text(&header("RS256", ""), &text),
            401,
        ),
        (
            "a kid that is a path",
            RSA.sign_text(&header("RS256", "../../rsa"), &text),
            401,
        ),
        (
            "a key that the token brings along",
            with_own_key(&text),
            401,
        ),
        (
            "an extension that must be understood",
            RSA.sign_text(
                r#"{"alg":"RS256","kid":"rsa","crit":["b64"],"b64":false}"#,
                &text,
            ),
            401,
        ),
        ("no signature", format!("{signed}."), 401),
        ("two parts", signed.to_owned(), 401),
        (
            "the signature of another text",
            format!("{other_signed}.{signature}"),
            401,
        ),
        (
            "half a signature",
            format!("{signed}.{}", &signature[..40]),
            401,
        ),
        ("a fourth part", format!("{good}.{signature}"), 401),
    ] {
        world.check(what, &token, "GET /wlcg/foo/f", expected).await;
    }
}

/// Signed with a key of the attacker's own, which stands in the header (RFC 7515 §4.1.3).
fn with_own_key(claims: &str) -> String {
    let header = json!({"alg": "RS256", "kid": "rsa", "jwk": FORGED.public,
                        "jku": "https://evil.example.org/keys"});
    FORGED.sign_text(&header.to_string(), claims)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_stands_twice_spoils_the_token() {
    let world = World::new().await;
    let claims = world.wlcg.claims("storage.read:/").to_string();
    let twice = |more: &str| format!("{}{more}}}", claims.strip_suffix('}').expect("an object"));
    let header = r#"{"alg":"RS256","kid":"rsa"}"#;
    for (what, token, expected) in [
        ("once", RSA.sign_text(header, &claims), 200),
        (
            "two scopes",
            RSA.sign_text(header, &twice(r#","scope":"storage.modify:/""#)),
            401,
        ),
        (
            "two ends",
            RSA.sign_text(header, &twice(r#","exp":9999999999"#)),
            401,
        ),
        (
            "written with an escape",
            RSA.sign_text(header, &twice(r#","\u0073ub":"admin""#)),
            401,
        ),
        (
            "two algorithms",
            RSA.sign_text(r#"{"alg":"none","kid":"rsa","alg":"RS256"}"#, &claims),
            401,
        ),
        (
            "two names of a key",
            RSA.sign_text(r#"{"alg":"RS256","kid":"x","kid":"rsa"}"#, &claims),
            401,
        ),
    ] {
        world.check(what, &token, "GET /wlcg/foo/f", expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_allows_what_the_profile_says_and_nothing_beside() {
    let world = World::new().await;
    let both = "storage.read:/foo storage.modify:/foo/sub";
    for (scope, request, expected) in [
        // Reading, at whole names only.
        ("storage.read:/foo", "GET /wlcg/foo/f", 200),
        ("storage.read:/foo", "HEAD /wlcg/foo", 200),
        ("storage.read:/foo", "PROPFIND /wlcg/foo", 207),
        ("storage.read:/foo", "GET /wlcg/foo/missing", 404),
        ("storage.read:/foo", "GET /wlcg/foobar/f", 403),
        ("storage.read:/foo", "GET /wlcg/foobar/missing", 403),
        ("storage.read:/foo", "GET /wlcg/f", 403),
        ("storage.read:/foo/f", "GET /wlcg/foo/f", 200),
        ("storage.read:/foo/f", "GET /wlcg/foo/sub/g", 403),
        ("storage.read:/", "GET /wlcg/foobar/f", 200),
        // Reading implies no change.
        ("storage.read:/", "PUT /wlcg/foo/new", 403),
        ("storage.read:/", "PUT /wlcg/foo/f", 403),
        ("storage.read:/", "DELETE /wlcg/foo/f", 403),
        ("storage.read:/", "MKCOL /wlcg/foo/d", 403),
        ("storage.read:/", "MOVE /wlcg/foo/f", 403),
        // Creating: new files, their parents, stat and renaming, but nothing of what is there.
        ("storage.create:/foo/new", "MKCOL /wlcg/foo", 405),
        ("storage.create:/deep/er/dir", "MKCOL /wlcg/deep", 201),
        ("storage.create:/deep/er/dir", "MKCOL /wlcg/deeper", 403),
        ("storage.create:/deep/er/dir", "HEAD /wlcg/deep", 200),
        ("storage.create:/deep/er/dir", "HEAD /wlcg/foo", 403),
        (
            "storage.create:/deep/er/dir",
            "PUT /wlcg/deep/er/dir/file",
            201,
        ),
        ("storage.create:/deep/er/dir", "PUT /wlcg/deep/er/file", 403),
        (
            "storage.create:/deep/er/dir",
            "PUT /wlcg/deep/er/dir/file",
            403,
        ),
        (
            "storage.create:/deep/er/dir",
            "DELETE /wlcg/deep/er/dir/file",
            403,
        ),
        (
            "storage.create:/deep/er/dir",
            "GET /wlcg/deep/er/dir/file",
            403,
        ),
        (
            "storage.create:/deep/er/dir",
            "HEAD /wlcg/deep/er/dir/file",
            200,
        ),
        (
            "storage.create:/deep/er/dir",
            "MOVE /wlcg/deep/er/dir/file /wlcg/deep/er/dir/renamed",
            201,
        ),
        (
            "storage.create:/deep/er/dir",
            "MOVE /wlcg/deep/er/dir/renamed /wlcg/deep/er/out",
            403,
        ),
        (
            "storage.create:/deep",
            "MOVE /wlcg/deep/er/dir/renamed /wlcg/deep/er/dir/renamed2",
            201,
        ),
        (
            "storage.create:/ storage.read:/",
            "MOVE /wlcg/foo/f /wlcg/foobar/f",
            403,
        ),
        // A directory may hold what others made.
        (
            "storage.create:/deep",
            "MOVE /wlcg/deep/er/dir /wlcg/deep/er/moved",
            403,
        ),
        // Modifying: all of that, and overwriting and removing, but not reading.
        (
            "storage.modify:/deep",
            "PUT /wlcg/deep/er/dir/renamed2",
            204,
        ),
        ("storage.modify:/deep", "PUT /wlcg/deep/er/dir/second", 201),
        ("storage.modify:/deep", "GET /wlcg/deep/er/dir/second", 403),
        ("storage.modify:/deep", "HEAD /wlcg/deep/er/dir/second", 200),
        (
            "storage.modify:/deep",
            "MOVE /wlcg/deep/er/dir/second /wlcg/deep/er/dir/renamed2",
            204,
        ),
        (
            "storage.modify:/deep",
            "MOVE /wlcg/deep/er/dir/renamed2 /wlcg/foo/out",
            403,
        ),
        ("storage.modify:/deep", "DELETE /wlcg/deep", 204),
        // Staging is neither reading nor looking for others.
        ("storage.stage:/", "GET /wlcg/foo/f", 403),
        ("storage.stage:/", "HEAD /wlcg/foo/f", 200),
        ("storage.poll:/", "HEAD /wlcg/foo/f", 403),
        // Several scopes are a union.
        (both, "GET /wlcg/foo/sub/g", 200),
        (both, "PUT /wlcg/foo/sub/new", 201),
        (both, "PUT /wlcg/foo/new", 403),
        (
            "storage.read:/foobar storage.read:/foo",
            "GET /wlcg/foo/f",
            200,
        ),
        // A final slash means a directory.
        ("storage.read:/foo/", "GET /wlcg/foo/f", 200),
        ("storage.read:/foo/f/", "GET /wlcg/foo/f", 403),
        ("storage.create:/foo/new/", "PUT /wlcg/foo/new", 403),
        ("storage.create:/foo/new/", "PUT /wlcg/foo/new/file", 201),
        // What is not of the profile means nothing.
        ("openid", "GET /wlcg/foo/f", 403),
        ("openid offline_access", "PUT /wlcg/foo/x", 403),
        ("", "GET /wlcg/foo/f", 403),
        ("STORAGE.READ:/", "GET /wlcg/foo/f", 403),
        ("storage.readable:/ read:/", "GET /wlcg/foo/f", 403),
        ("compute.read", "GET /wlcg/foo/f", 403),
    ] {
        world
            .check(scope, &world.wlcg.token(scope), request, expected)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_whose_path_could_be_misread_spoils_the_token() {
    let world = World::new().await;
    for (scope, expected) in [
        ("storage.read:/a%20b", 200),
        ("storage.read:/./a%20b", 200),
        ("storage.read://a%20b", 200),
        ("storage.read:/%61%20b", 200),
        ("storage.read", 401),
        ("storage.read:", 401),
        ("storage.read:foo", 401),
        ("storage.read:/foo/../a%20b", 401),
        ("storage.read:/foo/%2e%2E/a%20b", 401),
        ("storage.read:/..", 401),
        ("storage.read:/foo%2Fx", 401),
        ("storage.read:/%zz", 401),
        ("storage.read:/%ff", 401),
        ("storage.read:/foo%00", 401),
        // One bad scope is not left out: the rest could mean something else without it.
        ("storage.read:/ storage.modify:/../", 401),
    ] {
        world
            .check(scope, &world.wlcg.token(scope), "GET /wlcg/a%20b", expected)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoded_path_is_decoded_once_and_never_leads_upwards() {
    let world = World::start(false).await;
    let token = world
        .wlcg
        .token("storage.read:/foo storage.read:/%252e%252e");
    for (target, expected) in [
        ("/wlcg/foo/f", 200),
        ("/wlcg/%66oo/f", 200),
        ("/wlcg//foo/./f", 200),
        ("/wlcg/foo/../foobar/f", 400),
        ("/wlcg/foo/%2e%2e/foobar/f", 400),
        ("/wlcg/foo/.%2E/foobar/f", 400),
        ("/wlcg/foo%2Ff", 400),
        ("/wlcg/foo%2f..%2ffoobar%2ff", 400),
        ("/wlcg/foo/f%00", 400),
        // Encoded twice it is a name like any other.
        ("/wlcg/%252e%252e", 200),
        ("/wlcg/foo/%252e%252e/f", 404),
        ("/wlcg/foo%252Ff", 403),
        ("/wlcg/foo%5c..%5cfoobar", 403),
        ("/%77lcg/foobar/f", 403),
    ] {
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        let answer = world.site.raw(&request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {expected} ")),
            "{target}: {answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_count_whole_and_only_without_capabilities() {
    let world = World::new().await;
    let all = json!(["/wlcg", "/wlcg/test"]);
    for (groups, scope, request, expected) in [
        (json!(["/wlcg"]), "", "GET /wlcg/foo/f", 200),
        (json!(["/wlcg"]), "openid", "PUT /wlcg/foo/g1", 201),
        (json!(["/wlcg"]), "", "GET /wlcg/protected/p", 200),
        (json!(["/wlcg"]), "", "PUT /wlcg/protected/new", 403),
        (json!(["/wlcg"]), "", "DELETE /wlcg/protected/p", 403),
        (json!(["/wlcg/test"]), "", "PUT /wlcg/protected/g2", 201),
        // A part of a group is not the group.
        (json!(["/wlcg/test"]), "", "GET /wlcg/foo/f", 403),
        (json!(["/wlcg/other"]), "", "GET /wlcg/foo/f", 403),
        (json!(["/wlcgx"]), "", "GET /wlcg/foo/f", 403),
        (json!(["wlcg"]), "", "GET /wlcg/foo/f", 403),
        (json!([]), "", "GET /wlcg/foo/f", 403),
        (all.clone(), "", "PUT /wlcg/protected/g3", 201),
        (all.clone(), "", "GET /wlcg/foo/missing", 404),
        (all.clone(), "", "GET /other/o", 403),
        // Any capability makes groups void.
        (
            all.clone(),
            "storage.read:/protected",
            "GET /wlcg/foo/f",
            403,
        ),
        (
            all.clone(),
            "storage.read:/protected",
            "PUT /wlcg/protected/g4",
            403,
        ),
        (
            all.clone(),
            "storage.read:/protected",
            "GET /wlcg/protected/p",
            200,
        ),
        (all.clone(), "compute.create", "GET /wlcg/foo/f", 403),
    ] {
        let mut claims = world.wlcg.claims(scope);
        claims["wlcg.groups"] = groups.clone();
        let what = format!("{groups} {scope}");
        world
            .check(&what, &RSA.sign(&claims), request, expected)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_speaks_only_of_its_own_part_of_the_namespace() {
    let world = World::new().await;
    let everything = "storage.read:/ storage.modify:/";
    let (wlcg, other) = (world.wlcg.token(everything), world.other.token(everything));
    for (what, token, request, expected) in [
        ("its own", &wlcg, "GET /wlcg/foo/f", 200),
        ("the other's", &wlcg, "GET /other/o", 403),
        ("the other's", &wlcg, "PUT /other/new", 403),
        ("the other's", &wlcg, "DELETE /other/o", 403),
        ("out", &wlcg, "MOVE /wlcg/foo/f /other/f", 403),
        ("in", &wlcg, "MOVE /other/o /wlcg/o", 403),
        ("above", &wlcg, "PROPFIND /", 403),
        ("above", &wlcg, "PUT /new", 403),
        ("its own", &other, "GET /other/o", 200),
        ("the other's", &other, "GET /wlcg/foo/f", 403),
        // A prefix is itself a directory on the way.
        ("its prefix", &other, "PROPFIND /other", 207),
    ] {
        world.check(what, token, request, expected).await;
    }
    // The site's rule for the group is about the whole namespace; the issuer's word is not.
    for (issuer, request, expected) in [
        (&world.other, "GET /other/o", 200),
        (&world.other, "GET /wlcg/foo/f", 403),
        (&world.other, "MOVE /other/o /wlcg/o", 403),
        (&world.wlcg, "GET /other/o", 403),
    ] {
        let mut claims = issuer.claims("");
        claims["wlcg.groups"] = json!(["/other", "/wlcg"]);
        world
            .check("by groups", &RSA.sign(&claims), request, expected)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_may_have_sixteen_kilobytes() {
    let world = World::new().await;
    let padded = |bytes: usize| {
        let mut claims = world.wlcg.claims("storage.read:/");
        claims["padding"] = json!("");
        let bare = RSA.sign(&claims).len();
        // Three bytes are written as four.
        claims["padding"] = json!("p".repeat((bytes - bare) * 3 / 4));
        RSA.sign(&claims)
    };
    let (largest, larger) = (padded(16 * 1024), padded(16 * 1024 + 8));
    assert!(
        (16_380..=16_384).contains(&largest.len()),
        "{}",
        largest.len()
    );
    world
        .check("16 KiB", &largest, "GET /wlcg/foo/f", 200)
        .await;
    let (status, text) = world.send(&larger, "GET /wlcg/foo/f").await;
    assert_eq!(
        (status, text.trim()),
        (401, "the token is longer than 16384 bytes")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tokens_make_one_fetch_and_an_outage_of_the_issuer_stops_nobody() {
    let world = World::new().await;
    world.wlcg.publish(&[&RSA]);
    for _ in 0..5 {
        let token = world.wlcg.token("storage.read:/");
        world.check("good", &token, "GET /wlcg/foo/f", 200).await;
    }
    assert_eq!(world.wlcg.fetches(), 1);
    // A key of an unknown name may be new, but is looked for at most once a minute.
    let new = EC.sign(&world.wlcg.claims("storage.read:/"));
    for _ in 0..3 {
        world
            .check("unknown key", &new, "GET /wlcg/foo/f", 401)
            .await;
    }
    assert_eq!(world.wlcg.fetches(), 1);
    world.wlcg.stop();
    let token = world.wlcg.token("storage.read:/");
    world.check("outage", &token, "GET /wlcg/foo/f", 200).await;
    // An issuer that was never reached is our trouble and not the client's.
    world.other.stop();
    let token = world.other.token("storage.read:/");
    world
        .check("never reached", &token, "GET /other/o", 503)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_subject_of_two_issuers_is_two_owners() {
    let world = World::new().await;
    let (mine, other) = (
        world.wlcg.token("storage.create:/"),
        world.other.token("storage.create:/"),
    );
    let check = async |token: &str, request: &str, expected: u16| {
        world.check("create", token, request, expected).await;
    };
    check(&mine, "PUT /shared/f", 201).await;
    check(&other, "MOVE /shared/f /shared/taken", 403).await;
    check(&mine, "MOVE /shared/f /shared/g", 201).await;
    check(&other, "MOVE /shared/g /shared/taken", 403).await;
}
