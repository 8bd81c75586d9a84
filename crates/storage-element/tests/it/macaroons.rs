//! Macaroons at the door: what is asked for, what is given, and that it never carries more.

use crate::site::{Response, Site, Trust};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

const REQUEST: &[(&str, &str)] = &[("content-type", "application/macaroon-request")];
const FORM: &[(&str, &str)] = &[("content-type", "application/x-www-form-urlencoded")];

fn document(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("content-type"), "application/json");
    assert_eq!(response.header("cache-control"), "no-store");
    serde_json::from_slice(&response.body).expect("JSON")
}

/// Asks with a credential; gives the macaroon.
async fn ask(site: &Site, credential: &str, path: &str, caveats: &[&str]) -> String {
    let body = json!({"caveats": caveats, "validity": "PT5M"}).to_string();
    let response = site
        .send_as(credential, "POST", path, REQUEST, body.as_bytes())
        .await;
    let answer = document(&response);
    let seconds = answer["expires_in"].as_u64().expect("seconds");
    assert!((280..=300).contains(&seconds), "{seconds}");
    answer["macaroon"].as_str().expect("text").to_owned()
}

async fn check(site: &Site, credential: &str, request: &str, expected: u16) {
    let (method, path) = request.split_once(' ').expect("method and path");
    let (path, destination) = path.split_once(' ').unwrap_or((path, "/elsewhere"));
    let extra: &[(&str, &str)] = match method {
        "MOVE" => &[("destination", destination)],
        "PROPFIND" => &[("depth", "1")],
        _ => &[],
    };
    let response = site.send_as(credential, method, path, extra, b"").await;
    assert_eq!(response.status, expected, "{request}: {}", response.text());
}

/// The authority must outlive the site: its certificates are read when a connection is made.
async fn site() -> (Site, Trust) {
    let trust = Trust::new();
    let site = Site::with_tls(&trust).await;
    site.put("/a/b/f", b"x").await;
    site.put("/a/bc", b"x").await;
    (site, trust)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_macaroon_does_what_its_caveats_leave() {
    let (site, _trust) = site().await;
    let all = site.token("storage.read:/ storage.modify:/");
    let reading = ask(&site, &all, "/a/b", &["activity:DOWNLOAD,LIST"]).await;
    for (request, expected) in [
        ("GET /a/b/f", 200),
        ("HEAD /a/b/f", 200),
        ("PROPFIND /a/b", 207),
        ("GET /a/b/missing", 404),
        ("GET /a/bc", 403),
        ("PROPFIND /a", 403),
        ("PUT /a/b/new", 403),
        ("DELETE /a/b/f", 403),
        ("MKCOL /a/b/d", 403),
        ("MOVE /a/b/f /a/b/g", 403),
    ] {
        check(&site, &reading, request, expected).await;
    }
    let writing = ask(&site, &all, "/a/b", &["activity:UPLOAD"]).await;
    check(&site, &writing, "PUT /a/b/new", 201).await;
    check(&site, &writing, "PUT /a/b/new", 403).await;
    check(&site, &writing, "GET /a/b/new", 403).await;
    check(&site, &writing, "MOVE /a/b/new /a/b/old", 403).await;
    let managing = ask(&site, &all, "/a/b", &["activity:MANAGE,DELETE,UPLOAD"]).await;
    check(&site, &managing, "PUT /a/b/new", 204).await;
    check(&site, &managing, "MOVE /a/b/new /a/b/old", 201).await;
    check(&site, &managing, "MOVE /a/b/old /a/old", 403).await;
    check(&site, &managing, "DELETE /a/b/old", 204).await;
    let query = format!("/a/b/f?authz=Bearer%20{reading}");
    assert_eq!(site.send_bare("GET", &query, &[], b"").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_macaroon_never_carries_more_than_its_requester_held() {
    let (site, _trust) = site().await;
    let reader = site.token("storage.read:/a/b");
    let everything = "activity:LIST,DOWNLOAD,MANAGE,UPLOAD,DELETE";
    let macaroon = ask(&site, &reader, "/a/b", &[everything, "path:/"]).await;
    check(&site, &macaroon, "GET /a/b/f", 200).await;
    check(&site, &macaroon, "GET /a/bc", 403).await;
    check(&site, &macaroon, "PUT /a/b/f", 403).await;
    check(&site, &macaroon, "DELETE /a/b/f", 403).await;
    // Asking again with a macaroon takes its caveats along.
    let narrow = ask(&site, &macaroon, "/a/b", &["activity:DOWNLOAD"]).await;
    let again = ask(&site, &narrow, "/a/b", &[everything]).await;
    check(&site, &again, "GET /a/b/f", 200).await;
    check(&site, &again, "PROPFIND /a/b", 403).await;
    // There is nothing to hand on elsewhere, and for nobody.
    let body = br#"{"validity":"PT5M"}"#;
    let elsewhere = site.send_as(&reader, "POST", "/c", REQUEST, body).await;
    assert_eq!(elsewhere.status, 403, "{}", elsewhere.text());
    let nobody = site.send_bare("POST", "/a", REQUEST, body).await;
    assert_eq!(
        (nobody.status, nobody.header("www-authenticate")),
        (401, "Bearer")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn its_life_is_bounded_by_the_site_and_by_the_requesters_token() {
    let (site, _trust) = site().await;
    let lives = async |token: &str, validity: &str, caveats: &[&str]| {
        let body = json!({"caveats": caveats, "validity": validity}).to_string();
        let response = site
            .send_as(token, "POST", "/a", REQUEST, body.as_bytes())
            .await;
        document(&response)["expires_in"].as_u64().expect("seconds")
    };
    // The site's maximum is one hour, the token lives ten minutes unless said otherwise.
    let long = site.token_with(|claims| claims.exp += 86_400);
    assert_eq!(lives(&long, "PT12H", &[]).await, 3600);
    assert_eq!(lives(&long, "PT10S", &[]).await, 10);
    let short = lives(&site.token("storage.read:/"), "PT12H", &[]).await;
    assert!((590..=600).contains(&short), "{short}");
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let soon = penstock_model::Timestamp(now.as_millis() as i64 + 100_000).to_fts();
    let asked = lives(&long, "PT1H", &[&format!("before:{soon}Z")]).await;
    assert!((90..=100).contains(&asked), "{asked}");
    let past = site.token_with(|claims| claims.exp += 86_400);
    let over = json!({"caveats": ["before:2020-01-01T00:00:00Z"], "validity": "PT1H"}).to_string();
    let response = site
        .send_as(&past, "POST", "/a", REQUEST, over.as_bytes())
        .await;
    let macaroon = document(&response)["macaroon"]
        .as_str()
        .expect("text")
        .to_owned();
    check(&site, &macaroon, "GET /a/b/f", 401).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_refused_as_by_xrootd() {
    let (site, _trust) = site().await;
    let long = format!(
        r#"{{"caveats":["name:{}"],"validity":"PT1M"}}"#,
        "x".repeat(5000)
    );
    for (content_type, body, expected) in [
        ("application/json", r#"{"validity":"PT1M"}"#, 415),
        ("application/macaroon-request", "{}", 400),
        ("application/macaroon-request", "no JSON", 400),
        (
            "application/macaroon-request",
            r#"{"validity":"1 hour"}"#,
            400,
        ),
        (
            "application/macaroon-request",
            r#"{"caveats":["x:y"],"validity":"PT1M"}"#,
            400,
        ),
        ("application/macaroon-request", long.as_str(), 413),
        (
            "Application/Macaroon-Request; charset=utf-8",
            r#"{"validity":"PT1M"}"#,
            200,
        ),
    ] {
        let extra = [("content-type", content_type)];
        let response = site.send("POST", "/a", &extra, body.as_bytes()).await;
        assert_eq!(
            response.status,
            expected,
            "{content_type} {body}: {}",
            response.text()
        );
    }
    assert_eq!(site.send("POST", "/a", &[], b"").await.status, 415);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_endpoint_can_be_discovered_and_used() {
    let (site, _trust) = site().await;
    let discovery = "/.well-known/oauth-authorization-server";
    for path in [discovery.to_owned(), format!("{discovery}/a")] {
        let response = site.send_bare("GET", &path, &[], b"").await;
        let found: Value = serde_json::from_slice(&response.body).expect("JSON");
        let endpoint = site.url("/.oauth2/token").to_string();
        assert_eq!(found["token_endpoint"], Value::String(endpoint), "{path}");
    }
    let token = site.token("storage.read:/");
    for name in ["scope", "scopes"] {
        let form = format!("grant_type=client_credentials&expire_in=60&{name}=DOWNLOAD:/a/b");
        let response = site
            .send_as(&token, "POST", "/.oauth2/token", FORM, form.as_bytes())
            .await;
        let answer = document(&response);
        assert_eq!(
            (&answer["expires_in"], &answer["token_type"]),
            (&json!(60), &json!("bearer"))
        );
        let macaroon = answer["access_token"].as_str().expect("text");
        check(&site, macaroon, "GET /a/b/f", 200).await;
        check(&site, macaroon, "GET /a/bc", 403).await;
    }
    let wrong = b"grant_type=client_credentials&scope=DOWNLOAD:/a+LIST:/b";
    let response = site
        .send_as(&token, "POST", "/.oauth2/token", FORM, wrong)
        .await;
    assert_eq!(response.status, 400, "{}", response.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn macaroons_need_tls_and_a_root_key() {
    let plain = Site::new().await;
    let body = br#"{"validity":"PT1M"}"#;
    let response = plain.send("POST", "/", REQUEST, body).await;
    assert_eq!(response.status, 403, "{}", response.text());
    let discovery = "/.well-known/oauth-authorization-server";
    assert_eq!(plain.status("GET", discovery).await, 404);
    let without = Site::with(|config| config.macaroons = None).await;
    assert_eq!(without.send("POST", "/", REQUEST, body).await.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_macaroon_is_401() {
    let (site, _trust) = site().await;
    let all = site.token("storage.read:/ storage.modify:/");
    let genuine = ask(&site, &all, "/a/b", &["activity:DOWNLOAD"]).await;
    for position in [30, genuine.len() / 2, genuine.len() - 10] {
        let mut changed = genuine.clone().into_bytes();
        changed[position] = if changed[position] == b'A' {
            b'B'
        } else {
            b'A'
        };
        let changed = String::from_utf8(changed).expect("ASCII");
        let response = site.send_as(&changed, "GET", "/a/b/f", &[], b"").await;
        // The location is a hint that nobody signs.
        let expected = if position == 30 { 200 } else { 401 };
        assert_eq!(response.status, expected, "{position}: {}", response.text());
        assert!(!response.text().contains(&changed));
    }
}

const LOCK: &str = "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>";

/// Takes a lock; gives back its token, with brackets.
async fn locked(site: &Site, credential: &str, path: &str) -> String {
    let extra = [("depth", "0")];
    let answer = site
        .send_as(credential, "LOCK", path, &extra, LOCK.as_bytes())
        .await;
    assert!(
        [200, 201].contains(&answer.status),
        "{path}: {}",
        answer.text()
    );
    answer.header("lock-token").to_owned()
}

/// The statuses of writing under a lock, refreshing it and releasing it.
async fn using(site: &Site, credential: &str, path: &str, lock: &str) -> [u16; 3] {
    let shown = format!("({lock})");
    let held = [("if", shown.as_str())];
    let written = site.send_as(credential, "PUT", path, &held, b"x").await;
    let refreshed = site.send_as(credential, "LOCK", path, &held, b"").await;
    let named = [("lock-token", lock)];
    let released = site.send_as(credential, "UNLOCK", path, &named, b"").await;
    [written.status, refreshed.status, released.status]
}

#[tokio::test(flavor = "multi_thread")]
async fn who_holds_a_link_touches_no_locks_but_those_made_through_it() {
    let (site, _trust) = site().await;
    let maker = site.token("storage.read:/ storage.modify:/");
    let drop_box = ask(&site, &maker, "/a", &["activity:UPLOAD,LIST"]).await;
    let managing = ["activity:MANAGE,UPLOAD,LIST,DELETE"];
    let link = ask(&site, &maker, "/a", &managing).await;
    let other = ask(&site, &maker, "/a", &managing).await;

    let own = locked(&site, &maker, "/a/b/f").await;
    assert_eq!(using(&site, &drop_box, "/a/b/f", &own).await, [403; 3]);
    assert_eq!(using(&site, &link, "/a/b/f", &own).await, [423, 403, 403]);
    assert_eq!(using(&site, &maker, "/a/b/f", &own).await, [204, 200, 204]);

    let made = locked(&site, &link, "/a/bc").await;
    assert_eq!(using(&site, &other, "/a/bc", &made).await, [423, 403, 403]);
    assert_eq!(using(&site, &link, "/a/bc", &made).await, [204, 200, 204]);
    // Whoever made the link may undo what is done through it.
    let made = locked(&site, &link, "/a/bc").await;
    assert_eq!(using(&site, &maker, "/a/bc", &made).await, [204, 200, 204]);
}
