//! Parts of a directory for which the site has rules of their own keep them, whatever is done with the directory.

use crate::site::{Response, Site, path};
use penstock_decide::authorization::GroupRule;
use penstock_model::Right;

const EXCLUSIVE: &str = "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope>\
    <locktype><write/></locktype></lockinfo>";

/// Members of `/atlas` may do all below `/d` and `/e`, and only read what is called `kept` there.
async fn site() -> Site {
    let rule = |below: &str, rights: &[Right]| GroupRule {
        group: "/atlas".to_owned(),
        path: path(below),
        rights: rights.to_vec(),
    };
    let all = [Right::Read, Right::Modify];
    let site = Site::with(|config| {
        config.access.group_rules = vec![
            rule("/d", &all),
            rule("/e", &all),
            rule("/d/kept", &[Right::Read]),
            rule("/d/x/kept", &[Right::Read]),
            rule("/e/secret", &[]),
        ];
    })
    .await;
    for file in [
        "/d/kept/f",
        "/d/free/f",
        "/e/x/kept/f",
        "/e/x/free",
        "/e/f",
        "/e/secret/f",
    ] {
        site.put(file, b"x").await;
    }
    site
}

async fn ask(site: &Site, method: &str, at: &str, to: Option<&str>) -> Response {
    let member = site.token_with(|claims| {
        claims.scope = String::new();
        claims.wlcg_groups = vec!["/atlas".to_owned()];
    });
    let extra: Vec<_> = to.map(|to| ("destination", to)).into_iter().collect();
    site.send_as(&member, method, at, &extra, b"").await
}

async fn check(site: &Site, method: &str, at: &str, to: Option<&str>, expected: u16) {
    let response = ask(site, method, at, to).await;
    let what = format!("{method} {at} {to:?}: {}", response.text());
    assert_eq!(response.status, expected, "{what}");
    if expected == 403 {
        assert!(response.text().contains("kept"), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_only_be_read_does_not_go_with_its_directory() {
    let site = site().await;
    check(&site, "DELETE", "/d/kept", None, 403).await;
    check(&site, "DELETE", "/d", None, 403).await;
    check(&site, "MOVE", "/d", Some("/e/d"), 403).await;
    check(&site, "MOVE", "/e/x", Some("/d"), 403).await;
    check(&site, "COPY", "/e/f", Some("/d"), 403).await;
    check(&site, "COPY", "/e/x", Some("/d"), 403).await;
    assert_eq!(site.get("/d/kept/f").await.body, b"x");
    check(&site, "MOVE", "/d/free", Some("/e/free"), 201).await;
    check(&site, "DELETE", "/e/free", None, 204).await;
    // Scopes count by themselves, and rules not at all then.
    assert_eq!(site.send("DELETE", "/d/kept", &[], b"").await.status, 204);
    check(&site, "DELETE", "/d", None, 204).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_comes_to_where_it_may_only_be_read() {
    let site = site().await;
    check(&site, "MOVE", "/e/x", Some("/d/x"), 403).await;
    assert_eq!(site.status("HEAD", "/d/x").await, 404);
    let copied = ask(&site, "COPY", "/e/x", Some("/d/x")).await;
    assert_eq!(copied.status, 207, "{}", copied.text());
    assert!(copied.text().contains("/d/x/kept"), "{}", copied.text());
    assert_eq!(site.status("HEAD", "/d/x/kept").await, 404);
    assert_eq!(site.status("HEAD", "/d/x/free").await, 200);
    check(&site, "DELETE", "/d/x", None, 204).await;
    check(&site, "DELETE", "/e/x/kept", None, 204).await;
    check(&site, "MOVE", "/e/x", Some("/d/x"), 201).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_read_is_not_read_by_copying_or_moving_its_directory() {
    let site = site().await;
    let copied = ask(&site, "COPY", "/e", Some("/d/e")).await;
    assert_eq!(copied.status, 207, "{}", copied.text());
    assert!(copied.text().contains("/d/e/secret"), "{}", copied.text());
    assert_eq!(site.status("HEAD", "/d/e/secret").await, 404);
    assert_eq!(site.get("/d/e/x/kept/f").await.body, b"x");
    let moved = ask(&site, "MOVE", "/e", Some("/d/again")).await;
    assert_eq!(moved.status, 403, "{}", moved.text());
    assert_eq!(site.status("HEAD", "/e/secret/f").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_locks_what_he_may_not_write() {
    let site = site().await;
    let member = site.token_with(|claims| {
        claims.scope = String::new();
        claims.wlcg_groups = vec!["/atlas".to_owned()];
    });
    for (depth, expected) in [("infinity", 403), ("0", 200)] {
        let asked = [("depth", depth)];
        let body = EXCLUSIVE.as_bytes();
        let response = site.send_as(&member, "LOCK", "/d", &asked, body).await;
        assert_eq!(response.status, expected, "{depth}: {}", response.text());
    }
}
