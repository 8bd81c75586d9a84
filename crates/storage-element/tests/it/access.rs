//! Who may do what: tokens, scopes, and what nobody is asked for.

use crate::site::{Site, path};
use penstock_decide::authorization::GroupRule;
use penstock_model::Right;

async fn check(site: &Site, scope: &str, method: &str, path: &str, expected: u16) {
    let token = site.token(scope);
    let extra: &[(&str, &str)] = match method {
        "MOVE" => &[("destination", "/foo/bar/moved")],
        "PROPFIND" => &[("depth", "1")],
        _ => &[],
    };
    let response = site.send_as(&token, method, path, extra, b"").await;
    assert_eq!(
        response.status,
        expected,
        "{scope}: {method} {path}: {}",
        response.text()
    );
    if expected == 403 {
        assert!(
            response.text().starts_with("not allowed on /"),
            "{}",
            response.text()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_ends_at_a_whole_name() {
    let site = Site::new().await;
    site.put("/foo/bar/f", b"x").await;
    site.put("/foo/bargain", b"x").await;
    let read = "storage.read:/foo/bar";
    check(&site, read, "GET", "/foo/bar/f", 200).await;
    check(&site, read, "GET", "/foo/bargain", 403).await;
    check(&site, read, "GET", "/foo/bar/missing", 404).await;
    check(&site, read, "GET", "/foo/missing", 403).await;
    check(&site, read, "GET", "/foo/bar/..%2fbargain", 400).await;
    check(&site, read, "PUT", "/foo/bar/new", 403).await;
    check(&site, read, "DELETE", "/foo/bar/f", 403).await;
    check(&site, read, "PROPFIND", "/foo/bar", 207).await;
    // Clients resolve '..' before they send; whoever does not is refused.
    for escape in ["/foo/bar/../bargain", "/foo/bar/%2e%2e/bargain"] {
        let token = site.token(read);
        let head = format!("GET {escape} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n");
        let answer = site.raw(&(head + "Connection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{escape}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn create_makes_new_files_and_their_parents_and_touches_nothing_else() {
    let site = Site::new().await;
    site.put("/foo/bar/old", b"x").await;
    let create = "storage.create:/foo/bar";
    check(&site, create, "PUT", "/foo/bar/new", 201).await;
    check(&site, create, "PUT", "/foo/bar/deep/er/new", 201).await;
    check(&site, create, "PUT", "/foo/bar/old", 403).await;
    check(&site, create, "DELETE", "/foo/bar/old", 403).await;
    check(&site, create, "GET", "/foo/bar/old", 403).await;
    check(&site, create, "HEAD", "/foo/bar/old", 200).await;
    check(&site, create, "MKCOL", "/foo/bar/d", 201).await;
    check(&site, create, "MKCOL", "/foo", 405).await;
    check(&site, create, "MOVE", "/foo/bar/new", 201).await;
    check(&site, create, "MOVE", "/foo/bar/old", 403).await;
    check(&site, "storage.modify:/foo/bar", "PUT", "/foo/bar/old", 204).await;
    check(&site, "storage.modify:/foo/bar", "GET", "/foo/bar/old", 403).await;
    check(
        &site,
        "storage.modify:/foo/bar",
        "DELETE",
        "/foo/bar/old",
        204,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_token_is_401_with_a_challenge() {
    let site = Site::new().await;
    site.put("/f", b"x").await;
    let cases = [
        ("expired", site.token_with(|claims| claims.exp -= 1200)),
        (
            "wrong audience",
            site.token_with(|claims| claims.aud = vec!["https://other".to_owned()]),
        ),
        (
            "wrong issuer",
            site.token_with(|claims| claims.iss = "https://evil.example.org".to_owned()),
        ),
        (
            "unknown version",
            site.token_with(|claims| claims.wlcg_ver = "2.0".to_owned()),
        ),
        ("no storage path", site.token("storage.read")),
        ("not a token", "nonsense".to_owned()),
        ("foreign key", Site::new().await.token("storage.read:/")),
    ];
    for (what, token) in cases {
        let response = site.send_as(&token, "GET", "/f", &[], b"").await;
        assert_eq!(
            (response.status, response.header("www-authenticate")),
            (401, "Bearer"),
            "{what}"
        );
        assert!(!response.text().contains(&token), "{what} shows the token");
    }
    let nobody = site.send_bare("GET", "/f", &[], b"").await;
    assert_eq!(
        (nobody.status, nobody.header("www-authenticate")),
        (401, "Bearer")
    );
    let anywhere =
        site.token_with(|claims| claims.aud = vec!["https://wlcg.cern.ch/jwt/v1/any".to_owned()]);
    assert_eq!(
        site.send_as(&anywhere, "GET", "/f", &[], b"").await.status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn anybody_may_read_what_is_public_and_nothing_else() {
    let site = Site::new().await;
    site.put("/public/f", b"open").await;
    site.put("/publication", b"closed").await;
    let bare = async |method: &str, path: &str| {
        site.send_bare(method, path, &[("depth", "1")], b"")
            .await
            .status
    };
    assert_eq!(bare("GET", "/public/f").await, 200);
    assert_eq!(bare("PROPFIND", "/public").await, 207);
    assert_eq!(bare("GET", "/public/").await, 200);
    assert_eq!(bare("GET", "/public/missing").await, 404);
    assert_eq!(bare("PUT", "/public/g").await, 401);
    assert_eq!(bare("DELETE", "/public/f").await, 401);
    assert_eq!(bare("GET", "/publication").await, 401);
    assert_eq!(bare("GET", "/").await, 401);
    check(&site, "storage.read:/elsewhere", "GET", "/public/f", 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_the_query_counts() {
    let site = Site::new().await;
    site.put("/f", b"x").await;
    let token = site.token("storage.read:/");
    let response = site
        .send_bare("GET", &format!("/f?authz=Bearer%20{token}"), &[], b"")
        .await;
    assert_eq!(response.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_count_only_without_capabilities() {
    let site = Site::with(|config| {
        config.access.group_rules = vec![GroupRule {
            group: "/atlas".to_owned(),
            path: path("/atlas"),
            rights: vec![Right::Read, Right::Modify],
        }];
    })
    .await;
    let member = |scope: &str| {
        site.token_with(|claims| {
            claims.scope = scope.to_owned();
            claims.wlcg_groups = vec!["/atlas".to_owned()];
        })
    };
    let put =
        async |token: String, path: &str| site.send_as(&token, "PUT", path, &[], b"x").await.status;
    assert_eq!(put(member(""), "/atlas/f").await, 201);
    assert_eq!(put(member(""), "/cms/f").await, 403);
    assert_eq!(put(member("storage.read:/"), "/atlas/g").await, 403);
}
