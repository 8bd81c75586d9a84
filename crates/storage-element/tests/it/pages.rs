//! Pages for browsers, and what keeps users' files from acting in the door's name.

use crate::site::{Response, Site, Trust};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

async fn browse(site: &Site, path: &str) -> Response {
    site.send("GET", path, &[BROWSER], b"").await
}

async fn anonymous(site: &Site, path: &str) -> Response {
    site.send_bare("GET", path, &[BROWSER], b"").await
}

/// A macaroon for a path, as `authz=` takes it.
async fn link(site: &Site, path: &str, activities: &str) -> String {
    let request = format!("{{\"caveats\":[\"activity:{activities}\"],\"validity\":\"PT5M\"}}");
    let media = [("content-type", "application/macaroon-request")];
    let made = site.send("POST", path, &media, request.as_bytes()).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let text = made.text();
    let value = text.split("\"macaroon\":\"").nth(1).expect("a macaroon");
    let value = value.split('"').next().expect("its end");
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}

#[tokio::test]
async fn browsers_get_pages_and_programs_get_what_they_always_got() {
    let site = Site::new().await;
    site.put("/d/sub/f", b"x").await;
    site.put("/d/a.txt", b"hello").await;
    let page = browse(&site, "/d/").await;
    assert_eq!(page.status, 200);
    let html = page.text();
    assert!(html.starts_with("<!doctype html>"), "{html}");
    assert!(html.contains("href=\"/d/sub/\"") && html.contains("href=\"/d/a.txt\""));
    assert!(
        html.contains("data-can=\"create replace mkdir delete rename\""),
        "{html}"
    );
    let policy = page.header("content-security-policy");
    for rule in [
        "script-src 'self'",
        "frame-ancestors 'none'",
        "default-src 'none'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert_eq!(page.header("referrer-policy"), "no-referrer");
    assert_eq!(page.header("cache-control"), "private, no-store");

    for accept in ["*/*", "application/xml"] {
        let plain = site.send("GET", "/d/", &[("accept", accept)], b"").await;
        assert!(
            plain.text().starts_with("<!DOCTYPE html>"),
            "{}",
            plain.text()
        );
        assert!(!plain.text().contains("script"), "no page for {accept}");
    }
    assert_eq!(browse(&site, "/d/a.txt").await.body, b"hello");
    let details = browse(&site, "/d/a.txt?details").await.text();
    assert!(
        details.contains("062c0215") && details.contains("(5 bytes)"),
        "{details}"
    );
    let program = site.get("/d/a.txt?details").await;
    assert_eq!(program.body, b"hello");
}

#[tokio::test]
async fn a_refusal_is_a_page_for_browsers_with_the_same_status() {
    let site = Site::new().await;
    site.put("/d/f", b"x").await;
    let page = anonymous(&site, "/d/").await;
    assert_eq!(page.status, 401);
    assert_eq!(page.header("www-authenticate"), "Bearer");
    assert!(
        page.text().contains("data-status=\"401\""),
        "{}",
        page.text()
    );
    assert!(!page.text().contains("href=\"/d/f\""));
    let missing = browse(&site, "/<script>").await;
    assert_eq!(missing.status, 404);
    assert!(!missing.text().contains("<script>"), "{}", missing.text());
    let bad = [BROWSER, ("authorization", "Bearer nonsense")];
    assert_eq!(site.send_bare("GET", "/d/", &bad, b"").await.status, 401);
    let broken = browse(&site, "/d/a%0ab").await;
    assert_eq!(broken.status, 400, "a name with a line break is no name");
}

#[tokio::test]
async fn large_directories_are_paged_both_ways() {
    let site = Site::new().await;
    let root = site.storage.namespace();
    for number in 0..2100 {
        use penstock_persistence::namespace::Change;
        let path = crate::site::path(&format!("/d{number:05}"));
        let at = penstock_model::Timestamp(0);
        let change = Change::MakeDirectory {
            path,
            owner: None,
            at,
        };
        root.submit(change, |_| ());
    }
    site.put("/e", b"").await;
    let first = browse(&site, "/").await.text();
    assert_eq!(first.matches("<tr data-kind").count(), 1000);
    assert!(first.contains("href=\"/?after=d00999\"") && !first.contains("rel=\"previous\""));
    let second = browse(&site, "/?after=d00999").await.text();
    assert!(second.contains("/d01000/") && second.contains("/d01999/"));
    assert!(second.contains("?before=d01000") && second.contains("?after=d01999"));
    let last = browse(&site, "/?after=d01999").await.text();
    assert_eq!(last.matches("<tr data-kind").count(), 101);
    assert!(!last.contains("rel=\"next\""));
    let back = browse(&site, "/?before=d02000").await.text();
    assert!(back.contains("\"/d01000/\"") && back.contains("\"/d01999/\""));
    let past = browse(&site, "/?after=zzz").await;
    assert_eq!(past.status, 200);
}

#[tokio::test]
async fn files_of_users_cannot_run_in_the_name_of_the_door() {
    let site = Site::new().await;
    for name in ["a.html", "b.SVG", "c.js", "d.root", "e"] {
        let path = format!("/d/{name}");
        site.put(&path, b"<script>alert(1)</script>").await;
        let got = browse(&site, &path).await;
        assert_eq!(got.header("content-type"), "application/octet-stream");
        assert_eq!(got.header("x-content-type-options"), "nosniff");
        assert_eq!(
            got.header("content-security-policy"),
            "default-src 'none'; sandbox"
        );
        let active = !["d.root", "e"].contains(&name);
        assert_eq!(
            got.header("content-disposition") == "attachment",
            active,
            "{name}"
        );
    }
}

#[tokio::test]
async fn nothing_can_be_kept_where_the_door_keeps_its_own() {
    let site = Site::new().await;
    site.put("/f", b"x").await;
    let asset = site.send_bare("GET", "/.penstock/pages.js", &[], b"").await;
    assert_eq!(
        (asset.status, asset.header("content-type")),
        (200, "text/javascript; charset=utf-8")
    );
    for (method, path, expected) in [
        ("PUT", "/.penstock/pages.js", 405),
        ("PUT", "/%2Epenstock/x", 404),
        ("MKCOL", "/.penstock", 404),
        ("DELETE", "/.penstock/pages.js", 405),
        ("PROPFIND", "/.penstock/", 404),
        ("GET", "/.penstock/uploads", 404),
    ] {
        assert_eq!(site.status(method, path).await, expected, "{method} {path}");
    }
    let to = [("destination", "/.penstock/f")];
    assert_eq!(site.send("MOVE", "/f", &to, b"").await.status, 403);
}

#[tokio::test]
async fn public_areas_need_no_sign_in_and_end_at_their_borders() {
    let site = Site::new().await;
    site.put("/public/d/f", b"open").await;
    site.put("/publicity/f", b"closed").await;
    let page = anonymous(&site, "/public/d/").await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("not signed in") && page.text().contains("data-can=\"\""));
    for (path, expected) in [
        ("/public", 200),
        ("/public/", 200),
        ("//public//d", 200),
        ("/%70ublic/d/f", 200),
        ("/public/./d/f", 200),
        ("/public/d/f?details", 200),
        ("/public%2Fd/f", 400),
        ("/publicity/", 401),
        ("/publicity/f", 401),
        ("/Public/d/f", 401),
        ("/public%20/f", 401),
        ("/", 401),
        ("/public/none", 404),
    ] {
        assert_eq!(anonymous(&site, path).await.status, expected, "{path}");
    }
    // As they are, because a client would tidy them up.
    for path in ["/public/../publicity/f", "/public/%2e%2e/publicity/f"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = site.raw(&request).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
    }
    for method in ["PUT", "DELETE", "MKCOL"] {
        let refused = site.send_bare(method, "/public/d/f", &[], b"").await;
        assert_eq!(refused.status, 401, "{method}");
    }
}

#[tokio::test]
async fn a_shared_link_shows_what_is_below_its_path_and_nothing_else() {
    let trust = Trust::new();
    let site = Site::with_tls(&trust).await;
    site.put("/d/sub/f", b"shared").await;
    site.put("/e", b"not shared").await;
    let authz = link(&site, "/d", "DOWNLOAD,LIST").await;
    let page = anonymous(&site, &format!("/d/?authz={authz}")).await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("referrer-policy"), "no-referrer");
    let html = page.text();
    assert!(
        html.contains(&format!("href=\"/d/sub/?authz={authz}\"")),
        "{html}"
    );
    assert!(
        html.contains("data-can=\"\""),
        "neither changed nor handed on by a link of its own: {html}"
    );
    let file = anonymous(&site, &format!("/d/sub/f?authz={authz}")).await;
    assert_eq!(file.body, b"shared");
    assert_eq!(file.header("cache-control"), "private");
    assert_eq!(file.header("referrer-policy"), "no-referrer");
    for path in ["/", "/e", "/dd"] {
        let outside = anonymous(&site, &format!("{path}?authz={authz}")).await;
        assert_eq!(outside.status, 403, "{path}");
    }
    let put = format!("/d/new?authz={authz}");
    assert_eq!(site.send_bare("PUT", &put, &[], b"x").await.status, 403);
}

#[tokio::test]
async fn a_drop_box_takes_new_files_and_gives_none() {
    let trust = Trust::new();
    let site = Site::with_tls(&trust).await;
    site.put("/box/old", b"mine").await;
    let authz = link(&site, "/box", "UPLOAD,LIST").await;
    let page = anonymous(&site, &format!("/box/?authz={authz}")).await;
    assert!(
        page.text().contains("data-can=\"create\""),
        "{}",
        page.text()
    );
    let at = |name: &str| format!("/box/{name}?authz={authz}");
    assert_eq!(
        site.send_bare("PUT", &at("new"), &[], b"x").await.status,
        201
    );
    assert_eq!(
        site.send_bare("PUT", &at("old"), &[], b"x").await.status,
        403
    );
    assert_eq!(
        site.send_bare("GET", &at("old"), &[], b"").await.status,
        403
    );
    assert_eq!(
        site.send_bare("DELETE", &at("old"), &[], b"").await.status,
        403
    );
    // Nor does it take others' files out of the way, or keep others from a name.
    let to = ("destination", "/box/gone");
    for (method, name, headers) in [
        ("MOVE", "old", vec![to]),
        (
            "MOVE",
            "new",
            vec![("destination", "/box/old"), ("overwrite", "T")],
        ),
        ("COPY", "old", vec![to]),
        ("MKCOL", "directory", vec![]),
        ("LOCK", "free", vec![]),
        ("PROPPATCH", "old", vec![]),
    ] {
        let lock = "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope>\
                    <locktype><write/></locktype></lockinfo>";
        let body: &[u8] = if method == "LOCK" {
            lock.as_bytes()
        } else {
            b""
        };
        let refused = site.send_bare(method, &at(name), &headers, body).await;
        assert_eq!(refused.status, 403, "{method} {name}: {}", refused.text());
    }
    assert_eq!(site.get("/box/old").await.text(), "mine");
}

#[tokio::test]
async fn a_listing_for_programs_can_neither_act_nor_deceive() {
    let site = Site::new().await;
    site.put("/d/x%E2%80%AEgpj.exe", b"x").await;
    let listing = site.send("GET", "/d", &[("accept", "*/*")], b"").await;
    assert!(
        listing.text().contains(">x⟨U+202E⟩gpj.exe<"),
        "{}",
        listing.text()
    );
    let policy = listing.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("cache-control", "private, no-store"),
        ("referrer-policy", "no-referrer"),
    ] {
        assert_eq!(listing.header(name), value, "{name}");
    }
    let missing = site.send("GET", "/missing", &[], b"").await;
    assert_eq!(missing.header("x-content-type-options"), "nosniff");
    assert_eq!(missing.header("cache-control"), "no-store");
    let keys = site.send_bare("GET", "/jwks", &[], b"").await;
    assert_eq!(keys.header("x-content-type-options"), "nosniff");
    assert_eq!(keys.header("strict-transport-security"), "", "no TLS");
    let trust = Trust::new();
    let site = Site::with_tls(&trust).await;
    let keys = site.send_bare("GET", "/jwks", &[], b"").await;
    assert_eq!(keys.header("strict-transport-security"), "max-age=31536000");
}
