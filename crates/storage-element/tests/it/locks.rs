//! Locks at the door: who is stopped by them, who is not, and that they last.

use crate::site::{Response, Site, check, content, eventually};
use std::sync::Arc;

const EXCLUSIVE: &str = "<d:lockinfo xmlns:d='DAV:'><d:lockscope><d:exclusive/></d:lockscope>\
    <d:locktype><d:write/></d:locktype><d:owner><d:href>mailto:me</d:href></d:owner></d:lockinfo>";
const SHARED: &str = "<d:lockinfo xmlns:d='DAV:'><d:lockscope><d:shared/></d:lockscope>\
    <d:locktype><d:write/></d:locktype></d:lockinfo>";

async fn lock(site: &Site, path: &str, extra: &[(&str, &str)], body: &str) -> Response {
    site.send("LOCK", path, extra, body.as_bytes()).await
}

/// Takes a lock and gives back its token, with brackets.
async fn locked(site: &Site, path: &str, depth: &str) -> String {
    let response = lock(site, path, &[("depth", depth)], EXCLUSIVE).await;
    assert!(
        [200, 201].contains(&response.status),
        "{path}: {}",
        response.text()
    );
    response.header("lock-token").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_file_is_changed_with_its_token_only() {
    let site = Site::new().await;
    site.put("/d/f", b"x").await;
    site.put("/d/g", b"x").await;
    let response = lock(&site, "/d/f", &[("timeout", "Second-100")], EXCLUSIVE).await;
    assert_eq!(response.status, 200);
    let text = response.text();
    assert!(
        text.contains(
            "<D:owner><x:href xmlns:x=\"DAV:\">mailto:me</x:href></D:owner><D:timeout>Second-100<"
        ),
        "{text}"
    );
    let token = response.header("lock-token").to_owned();
    let shown = format!("({token})");
    let held = [("if", shown.as_str())];
    let refused = site.send("PUT", "/d/f", &[], b"y").await;
    assert_eq!(refused.status, 423);
    assert!(
        refused
            .text()
            .contains("<D:lock-token-submitted><D:href>/d/f</D:href></D:lock-token-submitted>"),
        "{}",
        refused.text()
    );
    for (method, path, extra) in [
        ("DELETE", "/d/f", None),
        ("MOVE", "/d/f", Some("/d/h")),
        ("MOVE", "/d/g", Some("/d/f")),
        ("COPY", "/d/g", Some("/d/f")),
    ] {
        let destination = extra.map(|to| ("destination", to));
        let extra: Vec<(&str, &str)> = destination.into_iter().collect();
        check(&site, method, path, &extra, 423).await;
    }
    let pull = [("source", "https://127.0.0.1:1/x"), ("overwrite", "T")];
    check(&site, "COPY", "/d/f", &pull, 423).await;
    let patch =
        "<propertyupdate xmlns='DAV:'><set><prop><a xmlns='x:'/></prop></set></propertyupdate>";
    assert_eq!(
        site.send("PROPPATCH", "/d/f", &[], patch.as_bytes())
            .await
            .status,
        423
    );
    assert_eq!(
        site.send("PROPPATCH", "/d/f", &held, patch.as_bytes())
            .await
            .status,
        207
    );
    // Reading is free, and so is everything beside it.
    check(&site, "GET", "/d/f", &[], 200).await;
    check(&site, "COPY", "/d/f", &[("destination", "/d/copy")], 201).await;
    check(&site, "PUT", "/d/g", &[], 204).await;
    assert_eq!(site.send("PUT", "/d/f", &held, b"z").await.status, 204);
    check(&site, "UNLOCK", "/d/g", &[("lock-token", &token)], 409).await;
    check(&site, "UNLOCK", "/d/f", &[("lock-token", &token)], 204).await;
    check(&site, "UNLOCK", "/d/f", &[("lock-token", &token)], 409).await;
    check(&site, "PUT", "/d/f", &held, 412).await;
    check(&site, "PUT", "/d/f", &[], 204).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_belongs_to_who_took_it_and_needs_the_right_to_write() {
    let site = Site::new().await;
    site.put("/d/f", b"x").await;
    let reader = site.token("storage.read:/");
    let refused = site
        .send_as(&reader, "LOCK", "/d/f", &[], EXCLUSIVE.as_bytes())
        .await;
    assert_eq!(refused.status, 403);
    let nobody = site
        .send_bare("LOCK", "/public/f", &[], EXCLUSIVE.as_bytes())
        .await;
    assert_eq!(nobody.status, 401);
    let creator = site.token("storage.create:/");
    let refused = site
        .send_as(&creator, "LOCK", "/d/f", &[], EXCLUSIVE.as_bytes())
        .await;
    assert_eq!(refused.status, 403);
    let free = site
        .send_as(&creator, "LOCK", "/d/new", &[], EXCLUSIVE.as_bytes())
        .await;
    assert_eq!(
        (free.status, site.status("GET", "/d/new").await),
        (403, 404)
    );

    let token = locked(&site, "/d/f", "0").await;
    let shown = format!("({token})");
    let bob = site.token_with(|claims| claims.sub = "bob".to_owned());
    let as_bob = async |method: &str, header: (&str, &str)| {
        site.send_as(&bob, method, "/d/f", &[header], b"")
            .await
            .status
    };
    assert_eq!(as_bob("PUT", ("if", &shown)).await, 423);
    assert_eq!(as_bob("DELETE", ("if", &shown)).await, 423);
    assert_eq!(as_bob("UNLOCK", ("lock-token", &token)).await, 403);
    assert_eq!(as_bob("LOCK", ("if", &shown)).await, 403);
    assert_eq!(
        site.send("LOCK", "/d/f", &[("if", &shown)], b"")
            .await
            .status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_directory_keeps_its_members_together() {
    let site = Site::new().await;
    site.put("/top/flat/f", b"x").await;
    site.put("/top/deep/e/f", b"x").await;
    let flat = locked(&site, "/top/flat", "0").await;
    let deep = locked(&site, "/top/deep", "infinity").await;
    for path in [
        "/top/flat/new",
        "/top/deep/new",
        "/top/deep/e/f",
        "/top/deep/e/new",
        "/top/deep/a/b/c",
        "/top/flat/a/b",
    ] {
        check(&site, "PUT", path, &[], 423).await;
    }
    check(&site, "PUT", "/top/flat/f", &[], 204).await;
    check(&site, "DELETE", "/top/flat/f", &[], 423).await;
    check(&site, "MKCOL", "/top/flat/e", &[], 423).await;
    check(
        &site,
        "MOVE",
        "/top/flat/f",
        &[("destination", "/elsewhere")],
        423,
    )
    .await;
    check(
        &site,
        "MOVE",
        "/top/deep/e/f",
        &[("destination", "/elsewhere")],
        423,
    )
    .await;
    let tagged = format!("</top/flat> ({flat})");
    check(&site, "PUT", "/top/flat/new", &[("if", &tagged)], 201).await;
    let untagged = format!("({deep})");
    check(&site, "PUT", "/top/deep/a/b/c", &[("if", &untagged)], 201).await;
    // Locks do not meet: with the directory's lock no other is possible below, nor above.
    assert_eq!(
        lock(&site, "/top/deep/e/f", &[], EXCLUSIVE).await.status,
        423
    );
    let above = lock(&site, "/top", &[], EXCLUSIVE).await;
    assert_eq!(above.status, 207);
    assert!(
        above
            .text()
            .contains("<D:href>/top/deep/</D:href><D:status>HTTP/1.1 423 Locked")
            && above
                .text()
                .contains("<D:href>/top/</D:href><D:status>HTTP/1.1 424"),
        "{}",
        above.text()
    );
    assert_eq!(
        lock(&site, "/top", &[("depth", "0")], SHARED).await.status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_with_a_locked_member_is_neither_removed_nor_moved() {
    let site = Site::new().await;
    site.put("/d/e/f", b"x").await;
    site.put("/d/g", b"x").await;
    let token = locked(&site, "/d/e/f", "0").await;
    for (method, extra) in [("DELETE", None), ("MOVE", Some("/x"))] {
        let extra: Vec<_> = extra.map(|to| ("destination", to)).into_iter().collect();
        let response = site.send(method, "/d", &extra, b"").await;
        assert_eq!(response.status, 207, "{method}");
        let text = response.text();
        assert!(
            text.contains("<D:href>/d/e/f</D:href><D:status>HTTP/1.1 423"),
            "{text}"
        );
        check(&site, "GET", "/d/g", &[], 200).await;
    }
    let tagged = format!("</d/e/f> ({token})");
    check(
        &site,
        "MOVE",
        "/d",
        &[("destination", "/x"), ("if", &tagged)],
        201,
    )
    .await;
    // The lock stayed behind and ended there; the file at its new place is free.
    check(&site, "PUT", "/x/e/f", &[], 204).await;
    check(&site, "PUT", "/d/e/f", &[], 201).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_locks_live_together() {
    let site = Site::new().await;
    site.put("/f", b"x").await;
    let first = lock(&site, "/f", &[("depth", "0")], SHARED).await;
    let bob = site.token_with(|claims| claims.sub = "bob".to_owned());
    let second = site
        .send_as(&bob, "LOCK", "/f", &[("depth", "0")], SHARED.as_bytes())
        .await;
    assert_eq!((first.status, second.status), (200, 200));
    assert_eq!(second.text().matches("<D:activelock>").count(), 2);
    assert_eq!(lock(&site, "/f", &[], EXCLUSIVE).await.status, 423);
    let shown = format!("({})", second.header("lock-token"));
    assert_eq!(
        site.send_as(&bob, "PUT", "/f", &[("if", &shown)], b"y")
            .await
            .status,
        204
    );
    check(&site, "PUT", "/f", &[("if", &shown)], 423).await;
    let question =
        "<propfind xmlns='DAV:'><prop><lockdiscovery/><supportedlock/></prop></propfind>";
    let told = site
        .send("PROPFIND", "/f", &[("depth", "0")], question.as_bytes())
        .await;
    assert_eq!(
        told.text().matches("<D:activelock>").count(),
        2,
        "{}",
        told.text()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_locked_is_locked_after_a_restart_until_its_time_is_over() {
    let site = Site::with(|config| {
        config.limits.lock_timeout_max = std::time::Duration::from_secs(3);
    })
    .await;
    site.put("/f", b"x").await;
    locked(&site, "/f", "0").await;
    // Reopened from the same directory, as by a new process.
    let site = site
        .reopen(|config| {
            config.limits.lock_timeout_max = std::time::Duration::from_secs(3);
        })
        .await;
    let response = site.send("PUT", "/f", &[], b"y").await;
    assert_eq!(response.status, 423, "{}", response.text());
    let mut status = 423;
    let begun = std::time::Instant::now();
    while status == 423 && begun.elapsed() < crate::site::DEADLINE {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        status = site.send("PUT", "/f", &[], b"y").await.status;
    }
    assert_eq!(status, 204);
    let namespace = Arc::clone(&site.storage);
    eventually("the lock is dropped", || {
        namespace
            .namespace()
            .locks()
            .is_ok_and(|locks| locks.is_empty())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_user_can_only_take_so_many_locks() {
    let site = Site::with(|config| config.limits.locks_per_user_max = 2).await;
    for (path, expected) in [("/1", 201), ("/2", 201), ("/3", 507)] {
        assert_eq!(
            lock(&site, path, &[], EXCLUSIVE).await.status,
            expected,
            "{path}"
        );
    }
    // The one that was refused left nothing behind.
    check(&site, "HEAD", "/3", &[], 404).await;
    let bob = site.token_with(|claims| claims.sub = "bob".to_owned());
    let other = site
        .send_as(&bob, "LOCK", "/4", &[], EXCLUSIVE.as_bytes())
        .await;
    assert_eq!(other.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_is_being_written_is_not_locked_behind_the_writers_back() {
    let site = Site::new().await;
    site.put("/d/g", b"x").await;
    let data = content(3_000_000);
    let mut upload = site.begin_put("/d/f", Some(3_000_000)).await;
    upload.write_all(&data[..1_500_000]).await.expect("sent");
    eventually("bytes are on the disk", || site.files_on_disk().0 == 1).await;
    let refused = lock(&site, "/d", &[], EXCLUSIVE).await;
    assert_eq!((refused.status, refused.header("retry-after")), (409, "10"));
    assert_eq!(lock(&site, "/d/g", &[], EXCLUSIVE).await.status, 200);
    upload.write_all(&data[1_500_000..]).await.expect("sent");
    assert_eq!(upload.finish().await.expect("an answer").status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_being_written_is_neither_removed_nor_moved() {
    let site = Site::new().await;
    site.put("/d/f", b"old").await;
    site.put("/other", b"other").await;
    let data = content(3_000_000);
    let mut upload = site.begin_put("/d/f", Some(3_000_000)).await;
    upload.write_all(&data[..1_500_000]).await.expect("sent");
    eventually("bytes are on the disk", || site.files_on_disk().0 == 1).await;
    for (method, path, destination) in [
        ("DELETE", "/d/f", None),
        ("DELETE", "/d", None),
        ("MOVE", "/d/f", Some("/x")),
        ("MOVE", "/d", Some("/x")),
        ("MOVE", "/other", Some("/d/f")),
        ("COPY", "/other", Some("/d/f")),
        ("COPY", "/other", Some("/d")),
    ] {
        let extra: Vec<_> = destination
            .map(|to| ("destination", to))
            .into_iter()
            .collect();
        let response = site.send(method, path, &extra, b"").await;
        assert_eq!(
            (
                response.status,
                response.header("retry-after"),
                response.text().as_str()
            ),
            (
                409,
                "10",
                "/d/f is being written by another client; try again when that write has ended\n"
            ),
            "{method} {path} {destination:?}"
        );
    }
    upload.write_all(&data[1_500_000..]).await.expect("sent");
    assert_eq!(upload.finish().await.expect("an answer").status, 204);
    check(&site, "DELETE", "/d", &[], 204).await;
    check(&site, "GET", "/d/f", &[], 404).await;
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_if_header_is_a_condition_of_its_own() {
    let site = Site::new().await;
    site.put("/f", b"x").await;
    let tag = site.get("/f").await.header("etag").to_owned();
    for (condition, expected) in [
        (format!("([{tag}])"), 204),
        ("([\"other\"])".to_owned(), 412),
        ("(Not [\"other\"])".to_owned(), 204),
        ("(<opaquelocktoken:none>)".to_owned(), 412),
        (
            "(<opaquelocktoken:none>) (Not <DAV:no-lock>)".to_owned(),
            204,
        ),
        (
            "<http://elsewhere.example.org/f> (Not <DAV:no-lock>)".to_owned(),
            204,
        ),
        ("</g> ([\"x\"])".to_owned(), 412),
        ("nonsense".to_owned(), 400),
    ] {
        let condition = match condition.starts_with("([\"") && expected == 204 {
            // The file has another tag after each write.
            true => format!("([{}])", site.get("/f").await.header("etag")),
            false => condition,
        };
        check(&site, "PUT", "/f", &[("if", &condition)], expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_merely_reads_neither_releases_nor_prolongs_a_lock() {
    let site = Site::new().await;
    site.put("/d/f", b"x").await;
    let token = locked(&site, "/d", "infinity").await;
    let shown = format!("({token})");
    for (scope, refresh, release) in [
        ("storage.read:/", 403, 403),
        // What may be written is a part of what is locked.
        ("storage.read:/ storage.modify:/d/f", 403, 403),
        ("storage.modify:/d", 200, 204),
    ] {
        let same_user = site.token(scope);
        let ask = async |method: &str, header: (&str, &str)| {
            let asked = [header];
            let answer = site.send_as(&same_user, method, "/d/f", &asked, b"");
            answer.await.status
        };
        assert_eq!(ask("LOCK", ("if", &shown)).await, refresh, "{scope}");
        assert_eq!(
            ask("UNLOCK", ("lock-token", &token)).await,
            release,
            "{scope}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_if_header_tells_nothing_of_what_may_not_be_seen() {
    let site = Site::new().await;
    site.put("/secret/f", b"x").await;
    let tag = site.get("/secret/f").await.header("etag").to_owned();
    let condition = format!("</secret/f> ([{tag}])");
    let stranger = site.token("storage.modify:/d storage.read:/d");
    let shown = [("if", condition.as_str())];
    let response = site.send_as(&stranger, "PUT", "/d/f", &shown, b"y").await;
    assert_eq!(response.status, 412);
    check(&site, "PUT", "/d/f", &shown, 201).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_holders_of_a_shared_lock_may_remove_what_is_locked() {
    let site = Site::new().await;
    site.put("/d/f", b"x").await;
    let mine = lock(&site, "/d", &[], SHARED).await;
    let bob = site.token_with(|claims| claims.sub = "bob".to_owned());
    let body = SHARED.as_bytes();
    let his = site
        .send_as(&bob, "LOCK", "/d/f", &[("depth", "0")], body)
        .await;
    assert_eq!((mine.status, his.status), (200, 200));
    let exclusive = site
        .send_as(&bob, "LOCK", "/d/f", &[], EXCLUSIVE.as_bytes())
        .await;
    assert_eq!(exclusive.status, 423);
    check(&site, "DELETE", "/d", &[], 423).await;
    let shown = format!("({})", mine.header("lock-token"));
    check(&site, "DELETE", "/d", &[("if", &shown)], 204).await;
    // Both locks have ended with it.
    site.put("/d/f", b"new").await;
    let gone = ("lock-token", his.header("lock-token"));
    assert_eq!(
        site.send_as(&bob, "UNLOCK", "/d/f", &[gone], b"")
            .await
            .status,
        409
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_replaced_takes_no_lock_of_others_with_it() {
    let site = Site::new().await;
    site.put("/d/f", b"x").await;
    site.put("/new/f", b"y").await;
    site.put("/g", b"z").await;
    let bob = site.token_with(|claims| claims.sub = "bob".to_owned());
    let held = site
        .send_as(
            &bob,
            "LOCK",
            "/d/f",
            &[("depth", "0")],
            EXCLUSIVE.as_bytes(),
        )
        .await;
    assert_eq!(held.status, 200);
    for (method, from) in [
        ("MOVE", "/new"),
        ("COPY", "/new"),
        ("MOVE", "/g"),
        ("COPY", "/g"),
    ] {
        check(&site, method, from, &[("destination", "/d")], 207).await;
    }
    assert_eq!(site.get("/d/f").await.body, b"x");
}
