//! The method table: every method on what exists and what does not.

use crate::site::{Response, Site, check, content};

#[tokio::test(flavor = "multi_thread")]
async fn every_method_answers_as_webdav_clients_expect() {
    let site = Site::new().await;
    check(&site, "PUT", "/d/f", &[], 201).await;
    check(&site, "PUT", "/d/f", &[], 204).await;
    check(&site, "PUT", "/d", &[], 409).await;
    check(&site, "PUT", "/new/", &[], 409).await;
    check(&site, "PUT", "/d/f/below", &[], 409).await;
    check(
        &site,
        "PUT",
        "/d/f",
        &[("content-range", "bytes 0-1/5")],
        400,
    )
    .await;
    check(&site, "GET", "/d/f", &[], 200).await;
    check(&site, "GET", "/nothing", &[], 404).await;
    check(&site, "HEAD", "/d/f", &[], 200).await;
    check(&site, "HEAD", "/d", &[], 200).await;
    check(&site, "HEAD", "/nothing", &[], 404).await;
    check(&site, "MKCOL", "/d", &[], 405).await;
    check(&site, "MKCOL", "/d/", &[], 405).await;
    check(&site, "MKCOL", "/d/e", &[], 201).await;
    check(&site, "MKCOL", "/x/y", &[], 409).await;
    check(&site, "PROPFIND", "/d", &[("depth", "1")], 207).await;
    check(&site, "PROPFIND", "/d", &[("depth", "infinity")], 403).await;
    check(&site, "PROPFIND", "/d", &[], 403).await;
    check(&site, "PROPFIND", "/d/f", &[], 207).await;
    check(&site, "PROPFIND", "/missing", &[], 404).await;
    check(&site, "PROPFIND", "/d", &[("depth", "2")], 400).await;
    check(&site, "PROPFIND", "/nothing", &[("depth", "0")], 404).await;
    check(&site, "MOVE", "/d/f", &[], 400).await;
    check(&site, "MOVE", "/nothing", &[("destination", "/d/g")], 404).await;
    check(&site, "MOVE", "/d/f", &[("destination", "/x/g")], 409).await;
    check(
        &site,
        "MOVE",
        "/d/f",
        &[("destination", "http://elsewhere/g")],
        502,
    )
    .await;
    check(&site, "MOVE", "/d", &[("destination", "/d/e/d")], 403).await;
    check(
        &site,
        "MOVE",
        "/d/f",
        &[("destination", site.url("/d/g").as_str())],
        201,
    )
    .await;
    check(&site, "PUT", "/d/f", &[], 201).await;
    check(
        &site,
        "MOVE",
        "/d/g",
        &[("destination", "/d/f"), ("overwrite", "F")],
        412,
    )
    .await;
    check(&site, "MOVE", "/d/g", &[("destination", "/d/f")], 204).await;
    check(&site, "DELETE", "/nothing", &[], 404).await;
    check(&site, "DELETE", "/d/f", &[], 204).await;
    check(&site, "DELETE", "/d/f", &[], 404).await;
    check(&site, "DELETE", "/", &[], 403).await;
    check(&site, "LOCK", "/d", &[], 400).await;
    check(&site, "UNLOCK", "/d", &[], 400).await;
    check(&site, "PROPPATCH", "/d", &[], 400).await;
    check(&site, "PATCH", "/d", &[], 405).await;
    check(&site, "POST", "/d", &[], 415).await;
    site.settles_with(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_tells_the_methods_to_anybody() {
    let site = Site::new().await;
    let response = site.send_bare("OPTIONS", "/anything", &[], b"").await;
    assert_eq!((response.status, response.header("dav")), (200, "1, 2"));
    assert_eq!(response.header("ms-author-via"), "DAV");
    // Clients that send large files in pieces look for this first.
    assert!(response.header("upload-limit").contains("max-age="));
    // The same at each door, so that two URLs of one file are known.
    let elsewhere = site.send_bare("OPTIONS", "/d/f", &[], b"").await;
    let storage = response.header("penstock-storage");
    assert_eq!(
        (storage.len(), storage),
        (36, elsewhere.header("penstock-storage"))
    );
    for method in [
        "GET",
        "HEAD",
        "PUT",
        "DELETE",
        "MKCOL",
        "PROPFIND",
        "MOVE",
        "COPY",
        "LOCK",
        "UNLOCK",
        "PROPPATCH",
    ] {
        assert!(response.header("allow").contains(method), "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_replaces_the_version_that_it_names_and_no_other() {
    let site = Site::new().await;
    for path in ["/d/f", "/d/g", "/d/new", "/d/h/x"] {
        site.put(path, path.as_bytes()).await;
    }
    let etag = |path: &'static str| {
        let site = &site;
        async move {
            let head = site.send("HEAD", path, &[], b"").await;
            head.header("etag").to_owned()
        }
    };
    let to = site.url("/d/g");
    let (seen, other) = (etag("/d/g").await, etag("/d/f").await);
    let condition = |url: &str, tag: &str| format!("<{url}> ([{tag}])");
    let moved = async |place: &str, condition: &str| {
        let headers = [
            ("destination", place),
            ("overwrite", "T"),
            ("if", condition),
        ];
        site.send("MOVE", "/d/new", &headers, b"").await.status
    };
    assert_eq!(
        moved(to.as_str(), &condition(to.as_str(), &other)).await,
        412
    );
    let tree = site.url("/d/h");
    assert_eq!(
        moved(tree.as_str(), &condition(tree.as_str(), &seen)).await,
        412
    );
    assert_eq!(
        moved(to.as_str(), &condition(to.as_str(), &seen)).await,
        204
    );
    assert_eq!(site.get("/d/g").await.body, b"/d/new");
    assert_eq!(site.get("/d/h/x").await.body, b"/d/h/x");
    site.settles_with(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_comes_back_whole_and_in_parts() {
    let site = Site::new().await;
    let data = content(3_300_000);
    site.put("/d/f", &data).await;
    let whole = site.get("/d/f").await;
    assert_eq!(whole.header("accept-ranges"), "bytes");
    assert_eq!(whole.header("content-length"), "3300000");
    assert!(whole.body == data);
    for (range, part) in [
        ("bytes=0-0", 0..1),
        ("bytes=1000000-2999999", 1_000_000..3_000_000),
        ("bytes=-7", 3_299_993..3_300_000),
        ("bytes=3299990-", 3_299_990..3_300_000),
        ("bytes=3299990-99999999", 3_299_990..3_300_000),
    ] {
        let response = site.send("GET", "/d/f", &[("range", range)], b"").await;
        assert_eq!(response.status, 206, "{range}");
        let told = format!("bytes {}-{}/3300000", part.start, part.end - 1);
        assert_eq!(response.header("content-range"), told);
        assert!(response.body == data[part], "{range}");
    }
    let outside = site
        .send("GET", "/d/f", &[("range", "bytes=3300000-")], b"")
        .await;
    assert_eq!(
        (outside.status, outside.header("content-range")),
        (416, "bytes */3300000")
    );
}

/// What a client reads out of `multipart/byteranges`: per part what `Content-Range` says, and the bytes.
fn parts(response: &Response) -> Vec<(String, Vec<u8>)> {
    let kind = response.header("content-type");
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .expect(kind);
    let find = |bytes: &[u8], text: &str| {
        bytes
            .windows(text.len())
            .position(|window| window == text.as_bytes())
    };
    let delimiter = format!("\r\n--{boundary}");
    let mut rest =
        &response.body[find(&response.body, &delimiter).expect("a part") + delimiter.len()..];
    let mut parts = Vec::new();
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let head_end = find(part, "\r\n\r\n").expect("a head");
        let head = String::from_utf8(part[..head_end].to_vec()).expect("text");
        assert!(
            head.starts_with("Content-Type: application/octet-stream\r\n"),
            "{head}"
        );
        let range = head
            .split("Content-Range: ")
            .nth(1)
            .expect("a range")
            .to_owned();
        let body = &part[head_end + 4..];
        let end = find(body, &delimiter).expect("an end");
        parts.push((range, body[..end].to_vec()));
        rest = &body[end + delimiter.len()..];
    }
    assert_eq!(rest, b"--\r\n");
    parts
}

#[tokio::test(flavor = "multi_thread")]
async fn several_parts_come_in_one_answer() {
    let site = Site::new().await;
    let data = content(3_300_000);
    site.put("/d/f", &data).await;
    let ask = async |range: &str| site.send("GET", "/d/f", &[("range", range)], b"").await;
    let response = ask("bytes=2000000-2999999,0-1,-5,1000-1000").await;
    assert_eq!(
        (response.status, response.header("content-range")),
        (206, "")
    );
    let got = parts(&response);
    let expected = [2_000_000..3_000_000, 0..2, 3_299_995..3_300_000, 1000..1001];
    assert_eq!(got.len(), expected.len());
    for ((told, bytes), range) in got.iter().zip(expected) {
        assert_eq!(
            *told,
            format!("bytes {}-{}/3300000", range.start, range.end - 1)
        );
        assert!(bytes[..] == data[range], "{told}");
    }
    // What comes to one part is sent as one.
    for (range, told) in [
        ("bytes=0-9,5-19", "bytes 0-19/3300000"),
        ("bytes=7-8,9999999-", "bytes 7-8/3300000"),
    ] {
        let response = ask(range).await;
        assert_eq!(
            (response.status, response.header("content-range")),
            (206, told)
        );
    }
    let etag = response.header("etag").to_owned();
    let conditional = [("range", "bytes=0-1,5-6"), ("if-range", etag.as_str())];
    let fresh = site.send("GET", "/d/f", &conditional, b"").await;
    assert_eq!(parts(&fresh).len(), 2);
    let dated = [
        ("range", "bytes=0-1,5-6"),
        ("if-range", "Sat, 21 Nov 2026 06:19:51 GMT"),
    ];
    let whole = site.send("GET", "/d/f", &dated, b"").await;
    assert_eq!((whole.status, whole.body.len()), (200, data.len()));
    let empty = ask(&format!("bytes={}", "1-2,".repeat(1025))).await;
    assert_eq!(empty.status, 416);
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_is_a_file() {
    let site = Site::new().await;
    site.put("/empty", b"").await;
    let response = site
        .send("GET", "/empty", &[("want-digest", "adler32")], b"")
        .await;
    assert_eq!(
        (response.status, response.header("content-length")),
        (200, "0")
    );
    assert_eq!(response.header("digest"), "adler32=00000001");
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entity_tags_tell_versions_apart() {
    let site = Site::new().await;
    site.put("/f", b"one").await;
    let first = site
        .send("HEAD", "/f", &[], b"")
        .await
        .header("etag")
        .to_owned();
    let unchanged = site
        .send("GET", "/f", &[("if-none-match", &first)], b"")
        .await;
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    site.put("/f", b"two").await;
    let second = site
        .send("HEAD", "/f", &[], b"")
        .await
        .header("etag")
        .to_owned();
    assert_ne!(first, second);
    check(&site, "DELETE", "/f", &[("if-match", &first)], 412).await;
    let stale = site
        .send(
            "GET",
            "/f",
            &[("range", "bytes=0-0"), ("if-range", &first)],
            b"",
        )
        .await;
    assert_eq!((stale.status, stale.text().as_str()), (200, "two"));
    check(&site, "DELETE", "/f", &[("if-match", &second)], 204).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn digests_are_told_in_every_algorithm_that_was_asked_for() {
    let site = Site::new().await;
    site.put("/f", b"Wikipedia").await;
    for (wanted, told) in [
        ("adler32", "adler32=11e60398"),
        ("crc32c", "crc32c="),
        ("md5", "md5=nGdyhoZqrTj46bZg9UEYFA=="),
        ("sha-256", "sha-256="),
        (
            "unixcksum;q=1, md5;q=0.1, adler32;q=0.5",
            "adler32=11e60398",
        ),
    ] {
        for method in ["HEAD", "GET"] {
            let response = site
                .send(method, "/f", &[("want-digest", wanted)], b"")
                .await;
            let digest = response.header("digest");
            assert!(digest.starts_with(told), "{method} {wanted}: {digest}");
        }
    }
    assert_eq!(site.get("/f").await.header("digest"), "");
    let asked = [("want-repr-digest", "adler=5, md5=9, unixsum=10")];
    let md5 = "md5=:nGdyhoZqrTj46bZg9UEYFA==:";
    for (method, path) in [("HEAD", "/f"), ("GET", "/f"), ("PUT", "/g")] {
        let response = site.send(method, path, &asked, b"Wikipedia").await;
        assert_eq!(response.header("repr-digest"), md5, "{method}");
        assert_eq!(response.header("digest"), "", "{method}");
    }
    // The computed ones are kept beside the one that was computed while the bytes passed.
    let file = site
        .storage
        .namespace()
        .lookup(&crate::site::path("/f"))
        .expect("readable")
        .expect("there");
    crate::site::eventually("all checksums are stored", || {
        site.storage
            .namespace()
            .checksums(file.id)
            .expect("readable")
            .len()
            == 4
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_name_everything_once_also_beyond_a_page() {
    let site = Site::with(|config| config.limits.remove_entries_max = 5000).await;
    let namespace = site.storage.namespace();
    for index in 0..2300 {
        let change = penstock_persistence::namespace::Change::MakeDirectory {
            path: crate::site::path(&format!("/d{index:04}")),
            owner: None,
            at: penstock_model::Timestamp(0),
        };
        namespace.submit(change, |result| drop(result.expect("made")));
    }
    site.put("/file & <co>", b"12345").await;
    let response = site.send("PROPFIND", "/", &[("depth", "1")], b"").await;
    assert_eq!(response.status, 207);
    let listed = penstock_protocol::webdav::parse_multistatus(&response.body).expect("well-formed");
    assert_eq!(listed.len(), 2302);
    let html = site.get("/").await.text();
    assert!(
        html.contains("<a href=\"/file%20%26%20%3Cco%3E\">file &amp; &lt;co&gt;</a>"),
        "{html}"
    );
    let depth_zero = site
        .send("PROPFIND", "/file%20&%20%3Cco%3E", &[("depth", "0")], b"")
        .await;
    assert!(
        depth_zero.text().contains("getcontentlength>5<"),
        "{}",
        depth_zero.text()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_directory_is_emptied_first_or_kept() {
    let site = Site::new().await;
    for index in 0..25 {
        site.put(&format!("/d/{index}"), b"x").await;
    }
    let refused = site.send("DELETE", "/d", &[], b"").await;
    assert_eq!(refused.status, 409);
    assert_eq!(
        refused.text(),
        "/d has 20 entries or more; remove its entries first\n"
    );
    for index in 0..10 {
        assert_eq!(site.status("DELETE", &format!("/d/{index}")).await, 204);
    }
    assert_eq!(site.status("DELETE", "/d/").await, 204);
    site.settles_with(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_it_removes_an_empty_directory_and_nothing_else() {
    let site = Site::new().await;
    site.put("/d/e/f", b"kept").await;
    let only_empty = [("penstock-delete", "empty-directory")];
    for kept in ["/d", "/d/e", "/d/e/f"] {
        let refused = site.send("DELETE", kept, &only_empty, b"").await;
        assert_eq!(refused.status, 412, "{kept}");
        assert!(refused.text().contains("not an empty directory"), "{kept}");
    }
    check(&site, "DELETE", "/d", &[("penstock-delete", "all")], 400).await;
    assert_eq!(site.get("/d/e/f").await.body, b"kept");
    check(&site, "DELETE", "/d/e/f", &[], 204).await;
    check(&site, "DELETE", "/d", &only_empty, 412).await;
    check(&site, "DELETE", "/d/e", &only_empty, 204).await;
    check(&site, "DELETE", "/d", &only_empty, 204).await;
    check(&site, "DELETE", "/d", &only_empty, 404).await;
    let options = site.send_bare("OPTIONS", "/d", &[], b"").await;
    assert_eq!(options.header("penstock-delete"), "empty-directory");
    site.settles_with(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_deleted_can_still_be_read_by_those_who_began() {
    use penstock_protocol::http1::client::ClientRequest;
    let site = Site::new().await;
    let data = content(20_000_000);
    site.put("/f", &data).await;
    let mut request = ClientRequest::new(http::Method::GET, site.url("/f"));
    let bearer = format!("Bearer {}", site.token("storage.read:/"));
    request.headers = crate::site::headers(&[("authorization", &bearer)]);
    let mut response = crate::site::client()
        .send(request)
        .await
        .expect("an answer");
    assert_eq!(site.status("DELETE", "/f").await, 204);
    assert!(response.read_all(1 << 30).await.expect("all of it") == data);
    site.settles_with(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_issuer_is_published_at_the_door() {
    let site = Site::new().await;
    let configuration = site
        .send_bare("GET", "/.well-known/openid-configuration", &[], b"")
        .await;
    assert_eq!(
        (configuration.status, configuration.header("content-type")),
        (200, "application/json")
    );
    assert!(
        configuration
            .text()
            .contains("\"jwks_uri\":\"https://issuer.example.org/jwks\"")
    );
    let keys = site.send_bare("GET", "/jwks", &[], b"").await;
    assert!(keys.text().contains("\"kid\""), "{}", keys.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_counted_while_they_move() {
    use penstock_protocol::http1::client::ClientRequest;
    let site = Site::new().await;
    site.put("/f", &content(30_000_000)).await;
    let mut request = ClientRequest::new(http::Method::GET, site.url("/f"));
    let bearer = format!("Bearer {}", site.token("storage.read:/"));
    request.headers = crate::site::headers(&[("authorization", &bearer)]);
    let mut response = crate::site::client()
        .send(request)
        .await
        .expect("an answer");
    let mut buffer = vec![0; 1 << 20];
    response.read(&mut buffer).await.expect("bytes");
    crate::site::eventually("the running mover has moved bytes", || {
        let snapshot = site.storage.snapshot();
        snapshot
            .movers
            .iter()
            .any(|mover| mover.running && (1..30_000_000).contains(&mover.moved.0))
    })
    .await;
    response.read_all(1 << 30).await.expect("all of it");
    crate::site::eventually("the seconds add up", || {
        let pool = &site.storage.snapshot().pools[0];
        let out: u64 = pool
            .moved_by_second
            .iter()
            .map(|second| second.out_bytes)
            .sum();
        out == 30_000_000 && pool.moved.out_bytes == 30_000_000
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_with_many_properties_comes_in_pieces() {
    let site = Site::new().await;
    let text = "x".repeat(15_000);
    let update = format!(
        "<propertyupdate xmlns='DAV:'><set><prop><a xmlns='y:'>{text}</a></prop></set></propertyupdate>"
    );
    for number in 0..90 {
        let path = format!("/d/{number:02}");
        site.put(&path, b"").await;
        let kept = site.send("PROPPATCH", &path, &[], update.as_bytes()).await;
        assert_eq!(kept.status, 207);
    }
    let listed = site.send("PROPFIND", "/d", &[("depth", "1")], b"").await;
    assert_eq!(
        (listed.status, listed.header("transfer-encoding")),
        (207, "chunked")
    );
    assert_eq!(listed.text().matches(&text).count(), 90);
    assert!(listed.text().trim_end().ends_with("</D:multistatus>"));
}
