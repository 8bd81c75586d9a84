//! Uploads in several requests: what was acknowledged stays, through lost connections and restarts, and the file
//! appears whole or not at all.

use crate::nearline::{EVICTS_ALL, with_tape};
use crate::site::{DEADLINE, Response, Site, content, eventually};
use penstock_model::Bytes;
use penstock_persistence::namespace::EntryId;
use penstock_storage_element::StorageConfig;
use std::time::Duration;

const PARTIAL: (&str, &str) = ("content-type", "application/partial-upload");

async fn begin(site: &Site, path: &str, extra: &[(&str, &str)]) -> Response {
    let mut headers = vec![("upload-complete", "?0")];
    headers.extend(extra);
    site.send("PUT", path, &headers, b"").await
}

/// Begins an upload that must be accepted; gives back where it goes on.
async fn begun(site: &Site, path: &str, extra: &[(&str, &str)]) -> String {
    let answer = begin(site, path, extra).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.header("upload-complete"), "?0");
    answer.header("location").to_owned()
}

async fn patch(site: &Site, upload: &str, offset: usize, complete: &str, body: &[u8]) -> Response {
    let offset = offset.to_string();
    let headers = [
        PARTIAL,
        ("upload-offset", offset.as_str()),
        ("upload-complete", complete),
    ];
    site.send("PATCH", upload, &headers, body).await
}

async fn offset(site: &Site, upload: &str) -> String {
    let answer = site.send("HEAD", upload, &[], b"").await;
    assert_eq!(answer.status, 204, "{upload}");
    format!(
        "{} {}",
        answer.header("upload-offset"),
        answer.header("upload-complete")
    )
}

#[tokio::test]
async fn a_file_comes_in_pieces_and_appears_with_the_last_one() {
    let site = Site::new().await;
    let data = content(3_000_000);
    let upload = begun(&site, "/d/f", &[("upload-length", "3000000")]).await;
    assert!(upload.starts_with("/.penstock/uploads/"), "{upload}");
    let first = patch(&site, &upload, 0, "?0", &data[..1_500_000]).await;
    assert_eq!(
        (first.status, first.header("upload-offset")),
        (204, "1500000")
    );
    assert_eq!(offset(&site, &upload).await, "1500000 ?0");
    assert_eq!(site.status("HEAD", "/d/f").await, 404, "not visible yet");
    let early = patch(&site, &upload, 1_500_000, "?1", &data[..10]).await;
    assert_eq!(
        early.status,
        400,
        "shorter than announced: {}",
        early.text()
    );
    let wrong = patch(&site, &upload, 7, "?0", b"x").await;
    assert_eq!(
        (wrong.status, wrong.header("upload-offset")),
        (409, "1500000")
    );
    let last = patch(&site, &upload, 1_500_000, "?1", &data[1_500_000..]).await;
    assert_eq!(
        (last.status, last.header("upload-complete")),
        (201, "?1"),
        "{}",
        last.text()
    );
    let got = site
        .send("GET", "/d/f", &[("want-digest", "adler32")], b"")
        .await;
    assert_eq!(
        (got.body == data, last.header("etag")),
        (true, got.header("etag"))
    );
    let plain = site
        .send("PUT", "/d/g", &[("want-digest", "adler32")], &data)
        .await;
    assert_eq!(got.header("digest"), plain.header("digest"));
    assert_eq!(
        offset(&site, &upload).await,
        "3000000 ?1",
        "for a client that lost the answer"
    );
    assert_eq!(
        patch(&site, &upload, 3_000_000, "?1", b"").await.status,
        400
    );
    site.settles_with(2).await;
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_restart_and_the_rest_does_not() {
    let site = Site::new().await;
    let data = content(2_000_000);
    let upload = begun(&site, "/d/f", &[]).await;
    patch(&site, &upload, 0, "?0", &data[..1_200_000]).await;
    let finished = begun(&site, "/d/g", &[]).await;
    assert_eq!(patch(&site, &finished, 0, "?1", b"whole").await.status, 201);
    let directory = site.close().await;

    // As after a kill in the middle of a piece: bytes behind what the record says.
    let id = upload.rsplit('/').next().expect("an id");
    let file = directory.path().join("pools/p1/partial").join(id);
    let mut bytes = std::fs::read(&file).expect("kept");
    assert_eq!(bytes.len(), 1_200_000);
    bytes.extend_from_slice(b"never acknowledged");
    std::fs::write(&file, bytes).expect("written");
    std::fs::write(file.with_extension("new"), b"half a record").expect("written");

    let site = Site::again(directory, |_| {}).await;
    assert_eq!(offset(&site, &upload).await, "1200000 ?0");
    assert_eq!(offset(&site, &finished).await, "5 ?1");
    let reserved = site.storage.snapshot().pools[0].reserved;
    assert_eq!(reserved, Bytes(1_200_000), "counts against the pool");
    let last = patch(&site, &upload, 1_200_000, "?1", &data[1_200_000..]).await;
    assert_eq!(last.status, 201, "{}", last.text());
    assert!(site.get("/d/f").await.body == data);
    site.settles_with(2).await;
}

#[tokio::test]
async fn an_upload_whose_file_did_not_become_visible_stays_for_as_long_as_was_told() {
    let site = Site::new().await;
    let upload = begun(&site, "/d/f", &[]).await;
    let first = patch(&site, &upload, 0, "?0", b"acknowledged").await;
    assert_eq!(first.status, 204, "{}", first.text());
    let next = EntryId(site.storage.namespace().allocate().0 + 1);
    let in_the_way = format!("pools/p1/incoming/{next}");
    std::fs::write(site.directory.path().join(in_the_way), b"").expect("written");
    let failed = patch(&site, &upload, 12, "?1", b"").await;
    assert_eq!(failed.status, 500, "{}", failed.text());
    let site = Site::again(site.close().await, |_| {}).await;
    let kept = site.send("HEAD", &upload, &[], b"").await;
    let left = kept.header("upload-limit").strip_prefix("max-age=");
    let left: u64 = left.expect("told").parse().expect("a number");
    assert!(left > 23 * 3600, "{left} s are left");
    let last = patch(&site, &upload, 12, "?1", b"").await;
    assert_eq!(last.status, 201, "{}", last.text());
    assert_eq!(site.get("/d/f").await.body, b"acknowledged");
    // Of a finished one the answer alone is kept, also by later starts.
    let site = Site::again(site.close().await, |_| {}).await;
    let kept = site.send("HEAD", &upload, &[], b"").await;
    assert_eq!(kept.header("upload-complete"), "?1");
    let left = kept.header("upload-limit").strip_prefix("max-age=");
    let left: u64 = left.expect("told").parse().expect("a number");
    assert!(left <= 600, "{left} s are left");
    site.settles_with(1).await;
}

#[tokio::test]
async fn a_restart_takes_no_finished_upload_for_a_damaged_one() {
    let changes = |config: &mut StorageConfig| {
        with_tape(config, EVICTS_ALL);
        config.limits.trash = Duration::ZERO;
    };
    let site = Site::with(changes).await;
    let mut uploads = Vec::new();
    for path in ["/tape/f", "/d/removed"] {
        let upload = begun(&site, path, &[]).await;
        assert_eq!(patch(&site, &upload, 0, "?1", b"whole").await.status, 201);
        uploads.push(upload);
    }
    site.becomes("/tape/f", "TAPE").await;
    assert_eq!(site.status("DELETE", "/d/removed").await, 204);
    let site = Site::again(site.close().await, changes).await;
    assert_eq!(offset(&site, &uploads[0]).await, "5 ?1");
    assert_eq!(site.status("HEAD", &uploads[1]).await, 404);
    let quarantine = site.directory.path().join("pools/p1/quarantine");
    let kept = std::fs::read_dir(quarantine).map_or(0, Iterator::count);
    assert_eq!(kept, 0, "nothing is damaged");
}

#[tokio::test]
async fn the_rules_of_put_hold_at_both_ends() {
    let site = Site::new().await;
    site.put("/d/f", b"old").await;
    let absent = [("if-none-match", "*")];
    assert_eq!(begin(&site, "/d/f", &absent).await.status, 412);
    let upload = begun(&site, "/d/new", &absent).await;
    site.put("/d/new", b"somebody was faster").await;
    assert_eq!(patch(&site, &upload, 0, "?1", b"late").await.status, 412);
    assert_eq!(site.get("/d/new").await.body, b"somebody was faster");

    let tag = site.get("/d/f").await.header("etag").to_owned();
    let upload = begun(&site, "/d/f", &[("if-match", tag.as_str())]).await;
    site.put("/d/f", b"newer").await;
    assert_eq!(patch(&site, &upload, 0, "?1", b"late").await.status, 412);

    let upload = begun(&site, "/d/f", &[]).await;
    assert_eq!(patch(&site, &upload, 0, "?1", b"latest").await.status, 204);
    assert_eq!(site.get("/d/f").await.body, b"latest");

    let digest = [("digest", "adler32=00000001")];
    let upload = begun(&site, "/d/sum", &digest).await;
    let refused = patch(&site, &upload, 0, "?1", b"other bytes").await;
    assert_eq!(refused.status, 412, "{}", refused.text());
    assert_eq!(
        site.status("HEAD", &upload).await,
        404,
        "its bytes are the wrong ones"
    );
    for (path, extra, expected) in [
        ("/d/", vec![], 409),
        ("/d/f/below", vec![], 409),
        (
            "/d/x",
            vec![("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==")],
            400,
        ),
        ("/d/x", vec![("upload-length", "-1")], 400),
        ("/.penstock/x", vec![], 404),
    ] {
        assert_eq!(
            begin(&site, path, &extra).await.status,
            expected,
            "{path} {extra:?}"
        );
    }
    let odd = site
        .send("PUT", "/d/x", &[("upload-complete", "yes")], b"")
        .await;
    assert_eq!(odd.status, 400);
    let whole = site
        .send("PUT", "/d/x", &[("upload-complete", "?1")], b"x")
        .await;
    assert_eq!(whole.status, 201, "complete at once is a PUT");
}

#[tokio::test]
async fn an_upload_is_its_users_own() {
    let site = Site::new().await;
    let upload = begun(&site, "/d/f", &[]).await;
    let other = site.token_with(|claims| claims.sub = "mallory".to_owned());
    let narrow = site.token("storage.read:/ storage.create:/elsewhere");
    let head = [PARTIAL, ("upload-offset", "0"), ("upload-complete", "?1")];
    for method in ["HEAD", "PATCH", "DELETE"] {
        let foreign = site.send_as(&other, method, &upload, &head, b"").await;
        assert_eq!(foreign.status, 404, "{method}");
        let outside = site.send_as(&narrow, method, &upload, &head, b"").await;
        assert_eq!(outside.status, 403, "{method}");
        for path in [
            upload.as_str(),
            "/.penstock/uploads/00000000-0000-0000-0000-000000000000",
        ] {
            let nobody = site.send_bare(method, path, &head, b"").await;
            assert_eq!(
                (nobody.status, nobody.header("www-authenticate")),
                (401, "Bearer")
            );
        }
    }
    assert_eq!(site.status("GET", &upload).await, 405);
    assert_eq!(site.status("DELETE", &upload).await, 204);
    assert_eq!(site.status("HEAD", &upload).await, 404);
    site.settles_with(0).await;
}

#[tokio::test]
async fn uploads_are_bounded_per_user_and_expire() {
    let site = Site::with(|config| {
        config.limits.uploads_per_user_max = 2;
        config.limits.upload_bytes_per_user_max = Bytes(1000);
        config.limits.upload_expiry = Duration::from_secs(1);
        config.pools[0].capacity = Some(Bytes(1500));
    })
    .await;
    let length = |bytes: &'static str| [("upload-length", bytes)];
    assert_eq!(begin(&site, "/a", &length("1001")).await.status, 507);
    let first = begun(&site, "/a", &length("900")).await;
    assert_eq!(begin(&site, "/b", &length("101")).await.status, 507);
    let second = begun(&site, "/b", &[]).await;
    assert_eq!(begin(&site, "/c", &[]).await.status, 429);
    let large = patch(&site, &second, 0, "?0", &content(200)).await;
    assert_eq!(large.status, 507, "{}", large.text());
    // What was only announced keeps nobody else out.
    assert_eq!(site.storage.snapshot().pools[0].reserved, Bytes(0));
    site.put("/d", &content(1400)).await;
    assert_eq!(site.status("DELETE", "/d").await, 204);
    crate::site::eventually("both have expired", || {
        site.storage.remove_expired_uploads();
        let left = std::fs::read_dir(site.directory.path().join("pools/p1/partial"));
        left.expect("the directory stays").count() == 0
    })
    .await;
    assert_eq!(site.storage.snapshot().pools[0].reserved, Bytes(0));
    assert_eq!(site.status("HEAD", &first).await, 404);
    assert_eq!(site.status("HEAD", &second).await, 404);
    site.put("/d", &content(700)).await;
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_uploads_that_do_not_fit_together_some_finish_and_none_is_stuck() {
    const LENGTH: usize = 4_000_000;
    const FIRST: usize = 400_000;
    const SECOND: usize = 800_000;
    let small = |config: &mut penstock_storage_element::StorageConfig| {
        config.pools[0].capacity = Some(Bytes(10_000_000));
    };
    let site = Site::with(small).await;
    let data = content(LENGTH);
    let mut uploads = Vec::new();
    for name in ["/a", "/b", "/c", "/d"] {
        uploads.push(begun(&site, name, &[("upload-length", "4000000")]).await);
    }
    let reserved = |site: &Site| site.storage.snapshot().pools[0].reserved.0 as usize;
    for upload in &uploads {
        let first = patch(&site, upload, 0, "?0", &data[..FIRST]).await;
        assert_eq!(first.status, 204, "{}", first.text());
    }
    assert_eq!(
        reserved(&site),
        4 * FIRST,
        "little has come, little is kept"
    );
    let limit = |head: &Response| -> u64 {
        let (_, seconds) = head
            .header("upload-limit")
            .split_once('=')
            .expect("a limit");
        seconds.parse().expect("a number")
    };
    let before = limit(&site.send("HEAD", &uploads[2], &[], b"").await);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let mut told = Vec::new();
    for upload in &uploads {
        let second = patch(&site, upload, FIRST, "?0", &data[FIRST..SECOND]).await;
        told.push(second.status);
    }
    assert_eq!(told, [204, 204, 507, 507]);
    let refused = site.send("HEAD", &uploads[2], &[], b"").await;
    assert_eq!(refused.header("upload-offset"), "400000");
    assert!(limit(&refused) < before, "it stays for what comes only");
    assert_eq!(reserved(&site), 2 * LENGTH + 2 * FIRST);

    // A restart changes nothing of that.
    let site = Site::again(site.close().await, small).await;
    assert_eq!(reserved(&site), 2 * LENGTH + 2 * FIRST);
    let other = patch(&site, &uploads[3], FIRST, "?0", &data[FIRST..SECOND]).await;
    assert_eq!(other.status, 507, "{}", other.text());
    for upload in &uploads[..2] {
        let last = patch(&site, upload, SECOND, "?1", &data[SECOND..]).await;
        assert_eq!(last.status, 201, "{}", last.text());
    }
    // With room again, the others go on from where they were.
    for (upload, away) in [(&uploads[2], "/a"), (&uploads[3], "/b")] {
        assert_eq!(site.status("DELETE", away).await, 204);
        let free = || site.storage.snapshot().pools[0].free >= Some(Bytes(3_600_000));
        crate::site::eventually("there is room", free).await;
        let last = patch(&site, upload, FIRST, "?1", &data[FIRST..]).await;
        assert_eq!(last.status, 201, "{}", last.text());
    }
    assert!(site.get("/c").await.body == data);
    site.settles_with(2).await;
}

#[tokio::test]
async fn a_piece_whose_connection_is_lost_is_kept_as_far_as_it_came() {
    use tokio::io::AsyncWriteExt;
    let site = Site::new().await;
    let upload = begun(&site, "/d/f", &[("upload-length", "3000000")]).await;
    let token = site.token("storage.modify:/");
    let mut stream = tokio::net::TcpStream::connect(site.address)
        .await
        .expect("connects");
    let head = format!(
        "PATCH {upload} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nUpload-Offset: 0\r\n\
         Upload-Complete: ?1\r\nContent-Type: application/partial-upload\r\nContent-Length: 3000000\r\n\r\n"
    );
    let data = content(3_000_000);
    stream.write_all(head.as_bytes()).await.expect("writes");
    stream.write_all(&data[..1_000_000]).await.expect("writes");
    // The connection stays open, as one whose client has vanished: whoever asks next takes the upload over.
    let deadline = std::time::Instant::now() + crate::site::DEADLINE;
    let kept = loop {
        let told = site.send("HEAD", &upload, &[], b"").await;
        let kept: usize = told.header("upload-offset").parse().expect("a number");
        if kept > 0 {
            break kept;
        }
        assert!(std::time::Instant::now() < deadline, "nothing was kept");
        // The first HEAD may have come before the piece: then the piece is refused, and sent again.
        stream = tokio::net::TcpStream::connect(site.address)
            .await
            .expect("connects");
        stream.write_all(head.as_bytes()).await.expect("writes");
        stream.write_all(&data[..1_000_000]).await.expect("writes");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(kept <= 1_000_000, "{kept}");
    let last = patch(&site, &upload, kept, "?1", &data[kept..]).await;
    assert_eq!(last.status, 201, "{}", last.text());
    assert!(site.get("/d/f").await.body == data);
    drop(stream);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_respects_a_lock_that_came_after_it() {
    const EXCLUSIVE: &[u8] = b"<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope>\
        <locktype><write/></locktype></lockinfo>";
    let site = Site::new().await;
    site.put("/d/f", b"old").await;
    let upload = begun(&site, "/d/f", &[]).await;
    assert_eq!(patch(&site, &upload, 0, "?0", b"new ").await.status, 204);
    let bob = site.token_with(|claims| claims.sub = "bob".to_owned());
    let his = site
        .send_as(&bob, "LOCK", "/d/f", &[("depth", "0")], EXCLUSIVE)
        .await;
    assert_eq!(his.status, 200);
    let refused = patch(&site, &upload, 4, "?1", b"file").await;
    assert_eq!(refused.status, 423, "{}", refused.text());
    assert_eq!(site.get("/d/f").await.body, b"old");
    // Nothing is lost: the upload goes on when the lock has ended, or with the lock of its user.
    let released = ("lock-token", his.header("lock-token"));
    assert_eq!(
        site.send_as(&bob, "UNLOCK", "/d/f", &[released], b"")
            .await
            .status,
        204
    );
    let mine = site
        .send("LOCK", "/d/f", &[("depth", "0")], EXCLUSIVE)
        .await;
    let told = offset(&site, &upload).await;
    let arrived: usize = told
        .split(' ')
        .next()
        .expect("a word")
        .parse()
        .expect("a number");
    let shown = format!("</d/f> ({})", mine.header("lock-token"));
    let at = arrived.to_string();
    let headers = [
        PARTIAL,
        ("upload-offset", &at),
        ("upload-complete", "?1"),
        ("if", &shown),
    ];
    let rest = &b"new file"[arrived..];
    let last = site.send("PATCH", &upload, &headers, rest).await;
    assert_eq!(last.status, 204, "{}", last.text());
    assert_eq!(site.get("/d/f").await.body, b"new file");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_whose_client_was_never_told_of_it_leaves_nothing() {
    use tokio::io::AsyncWriteExt;
    let site = Site::with(|config| config.limits.stall_timeout = 4 * DEADLINE).await;
    let token = site.token("storage.modify:/");
    let head = format!(
        "PUT /f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nUpload-Complete: ?0\r\n\
         Content-Length: 100\r\n\r\nthe first part"
    );
    let mut client = tokio::net::TcpStream::connect(site.address)
        .await
        .expect("connects");
    client.write_all(head.as_bytes()).await.expect("sent");
    let partial = site.directory.path().join("pools/p1/partial");
    let left = || std::fs::read_dir(&partial).expect("readable").count();
    eventually("it is being written", || {
        site.storage.snapshot().movers_total == 1 && left() > 0
    })
    .await;
    site.reload(|config| config.access.banned = vec!["alice".to_owned()]);
    eventually("nothing is left of it", || left() == 0).await;
    site.settles_with(0).await;
}
