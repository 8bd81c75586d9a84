//! What PUT promises: all of it, as announced, or nothing.

use crate::site::{DEADLINE, Site, content, eventually, headers};
use http::Method;
use penstock_persistence::namespace::{MoverKind, MoverOutcome};
use penstock_protocol::http1::client::{ClientRequest, UploadStart};

#[tokio::test(flavor = "multi_thread")]
async fn a_chunked_body_needs_no_length() {
    let site = Site::new().await;
    for length in [0, 5, 1 << 20, 2_500_000] {
        let data = content(length);
        let mut upload = site.begin_put("/f", None).await;
        for piece in data.chunks(300_000) {
            upload.write_all(piece).await.expect("sent");
        }
        let response = upload.finish().await.expect("an answer");
        assert!(
            response.status.is_success(),
            "{length}: {}",
            response.status
        );
        assert!(site.get("/f").await.body == data, "{length}");
    }
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_visible_before_the_last_byte_and_the_old_bytes_stay_until_then() {
    let site = Site::new().await;
    site.put("/old", b"old").await;
    let data = content(3_000_000);
    for path in ["/old", "/new"] {
        let mut upload = site.begin_put(path, Some(3_000_000)).await;
        upload.write_all(&data[..2_900_000]).await.expect("sent");
        eventually("bytes are on the disk", || site.files_on_disk().0 == 1).await;
        match path {
            "/old" => assert_eq!(site.get(path).await.text(), "old"),
            _ => assert_eq!(site.status("GET", path).await, 404),
        }
        upload.write_all(&data[2_900_000..]).await.expect("sent");
        upload.finish().await.expect("an answer");
        assert!(site.get(path).await.body == data);
    }
    site.settles_with(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_ends_early_leaves_nothing() {
    let site = Site::new().await;
    for length in [Some(3_000_000), None] {
        let mut upload = site.begin_put("/f", length).await;
        upload.write_all(&content(1_500_000)).await.expect("sent");
        eventually("a mover runs", || site.storage.snapshot().movers_total == 1).await;
        drop(upload);
        site.settles_with(0).await;
    }
    assert_eq!(site.status("GET", "/f").await, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stands_still_is_given_up_and_its_slot_is_free() {
    let site = Site::new().await;
    let mut upload = site.begin_put("/f", Some(3_000_000)).await;
    upload.write_all(&content(1_500_000)).await.expect("sent");
    eventually("a mover runs", || site.storage.snapshot().movers_total == 1).await;
    site.settles_with(0).await;
    drop(upload);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expected_digest_is_enforced_and_a_wrong_file_removed() {
    let site = Site::new().await;
    let put =
        async |header: (&str, &str), body: &[u8]| site.send("PUT", "/f", &[header], body).await;
    let wrong = put(("digest", "adler32=11e60399"), b"Wikipedia").await;
    assert_eq!(wrong.status, 412);
    assert_eq!(
        wrong.text(),
        "checksum mismatch: expected adler32:11e60399, got adler32:11e60398; the file was removed\n"
    );
    assert_eq!(
        put(("content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="), b"Wikipedia")
            .await
            .status,
        412
    );
    assert_eq!(
        put(("digest", "md5=nonsense"), b"Wikipedia").await.status,
        400
    );
    site.settles_with(0).await;
    assert_eq!(
        put(("digest", "adler32=11E60398"), b"Wikipedia")
            .await
            .status,
        201
    );
    assert_eq!(
        put(("digest", "md5=nGdyhoZqrTj46bZg9UEYFA=="), b"Wikipedia")
            .await
            .status,
        204
    );
    let large = content(2_000_000);
    assert_eq!(
        put(("digest", "adler32=00000000"), &large).await.status,
        412
    );
    assert_eq!(site.get("/f").await.text(), "Wikipedia");
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn put_tells_the_digest_that_is_wanted() {
    let site = Site::new().await;
    let response = site
        .send("PUT", "/f", &[("want-digest", "md5")], b"Wikipedia")
        .await;
    assert_eq!(response.header("digest"), "md5=nGdyhoZqrTj46bZg9UEYFA==");
}

#[tokio::test(flavor = "multi_thread")]
async fn if_none_match_forbids_to_replace() {
    let site = Site::new().await;
    let absent = [("if-none-match", "*")];
    assert_eq!(site.send("PUT", "/f", &absent, b"one").await.status, 201);
    assert_eq!(site.send("PUT", "/f", &absent, b"two").await.status, 412);
    assert_eq!(site.get("/f").await.text(), "one");
    // The file appears while the bytes are on their way: the commit decides.
    let mut request = ClientRequest::new(Method::PUT, site.url("/g"));
    let bearer = format!("Bearer {}", site.token("storage.modify:/"));
    request.headers = headers(&[("authorization", &bearer), ("if-none-match", "*")]);
    let begun = crate::site::client()
        .start_upload(request, Some(3), false)
        .await
        .expect("begins");
    let UploadStart::Ready(mut upload) = begun else {
        panic!("answered early");
    };
    upload.write_all(b"t").await.expect("sent");
    eventually("a mover runs", || site.storage.snapshot().movers_total == 1).await;
    site.slip_in("/f", "/g");
    upload.write_all(b"wo").await.expect("sent");
    assert_eq!(upload.finish().await.expect("an answer").status, 412);
    assert_eq!(site.get("/g").await.text(), "one");
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_of_one_path_do_not_meet() {
    let site = Site::new().await;
    let mut upload = site.begin_writing("/f", Some(3)).await;
    eventually("a mover runs", || site.storage.snapshot().movers_total == 1).await;
    let second = site.send("PUT", "/f", &[], b"two").await;
    assert_eq!(second.status, 409);
    assert!(second.text().contains("being written"), "{}", second.text());
    // Who looks for a file is told that one may come.
    for (path, code) in [("/f", "path-not-there-yet"), ("/g", "path-not-found")] {
        let look = site.send("HEAD", path, &[], b"").await;
        assert_eq!(look.status, 404);
        assert_eq!(look.headers["penstock-problem"], code);
    }
    upload.write_all(b"st").await.expect("sent");
    upload.finish().await.expect("an answer");
    assert_eq!(site.get("/f").await.text(), "1st");
    site.put("/f", b"two").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_first_is_told_to_continue_or_why_not() {
    let site = Site::new().await;
    let bearer = format!("Bearer {}", site.token("storage.modify:/"));
    let head = |path: &str| {
        format!(
            "PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer}\r\nContent-Length: 3\r\n\
             Expect: 100-continue\r\nConnection: close\r\n\r\n"
        )
    };
    let accepted = site.raw(&(head("/f") + "abc")).await;
    assert!(accepted.contains("201 Created"), "{accepted}");
    let refused = site.raw(&head("/f/below")).await;
    assert!(
        refused.starts_with("HTTP/1.1 409") && !refused.contains("100 Continue"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_announced_and_does_not_come_keeps_no_room_from_others() {
    let site = Site::with(|config| {
        config.pools[0].capacity = Some(penstock_model::Bytes(10_000_000));
        config.limits.stall_timeout = DEADLINE;
    })
    .await;
    let mut announced = site.begin_writing("/announced", Some(9_000_000)).await;
    announced
        .write_all(&content(1_500_000))
        .await
        .expect("sent");
    eventually("it is being written", || site.files_on_disk().0 == 1).await;
    let reserved = site.storage.snapshot().pools[0].reserved.0;
    assert!((1_000_000..3_000_000).contains(&reserved), "{reserved}");
    site.put("/other", &content(6_000_000)).await;
    // The one that announced more than is left now is told so on the way, and leaves nothing.
    for _ in 0..70 {
        if announced.write_all(&content(100_000)).await.is_err() {
            break;
        }
    }
    if let Ok(response) = announced.finish().await {
        assert_eq!(response.status, 507);
    }
    site.settles_with(1).await;
    // What cannot fit is refused before a byte of it is sent.
    let large = site.send("PUT", "/large", &[], &content(5_000_000)).await;
    assert_eq!(large.status, 507, "{}", large.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_answers_507_and_keeps_nothing() {
    let site =
        Site::with(|config| config.pools[0].capacity = Some(penstock_model::Bytes(1_000_000)))
            .await;
    site.put("/first", &content(600_000)).await;
    let refused = site.send("PUT", "/second", &[], &content(600_000)).await;
    assert_eq!(refused.status, 507);
    assert!(
        refused
            .text()
            .starts_with("no pool has enough space for a file of 600000 bytes"),
        "{}",
        refused.text()
    );
    // Without a length the pool fills up on the way.
    let mut upload = site.begin_put("/third", None).await;
    for _ in 0..30 {
        if upload.write_all(&content(100_000)).await.is_err() {
            break;
        }
    }
    if let Ok(response) = upload.finish().await {
        assert_eq!(response.status, 507);
    }
    site.settles_with(1).await;
    assert_eq!(site.status("DELETE", "/first").await, 204);
    site.settles_with(0).await;
    // The file is gone from the disk a moment before its space counts as free.
    let used = || site.storage.snapshot().pools[0].used;
    crate::site::eventually("its space is free", || used().0 == 0).await;
    site.put("/second", &content(600_000)).await;
    let alarms = site.storage.snapshot().alarms;
    assert_eq!(alarms, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_pool_gives_files_and_takes_none() {
    use penstock_decide::pool_selection::PoolMode;
    let mut saved = None;
    let site = Site::with(|config| saved = Some(config.clone())).await;
    site.put("/f", b"kept").await;
    let mut config = saved.expect("seen");
    config.pools[0].mode = PoolMode::Drained;
    site.storage.reload(config.clone()).expect("reloaded");
    assert_eq!(site.send("PUT", "/g", &[], b"x").await.status, 503);
    assert_eq!(site.get("/f").await.text(), "kept");
    assert_eq!(site.storage.snapshot().alarms, ["pool p1 is drained"]);
    config.pools[0].mode = PoolMode::Disabled;
    site.storage.reload(config).expect("reloaded");
    assert_eq!(site.status("GET", "/f").await, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mover_leaves_a_record_with_its_clocks() {
    let site = Site::new().await;
    site.put("/d/f", &content(5_000_000)).await;
    site.get("/d/f").await;
    site.send("PUT", "/d/g", &[("digest", "adler32=00000000")], b"x")
        .await;
    let records = || {
        site.storage
            .namespace()
            .mover_records(0, 10)
            .expect("readable")
    };
    eventually("three movers are recorded", || records().len() == 3).await;
    let records = records();
    let (put, get, failed) = (&records[0].1, &records[1].1, &records[2].1);
    assert_eq!(
        (put.kind, put.moved.0, &put.outcome),
        (MoverKind::Put, 5_000_000, &MoverOutcome::Done)
    );
    assert!(
        put.stages.network_us > 0 && put.stages.write_us > 0 && put.stages.commit_us > 0,
        "{put:?}"
    );
    assert!(put.stages.checksum_us > 0 && put.tcp.is_some(), "{put:?}");
    assert_eq!(put.selection[0]["reason"], "drawn");
    assert_eq!((get.kind, get.moved.0), (MoverKind::Get, 5_000_000));
    assert!(get.stages.network_us > 0 && get.tcp.is_some(), "{get:?}");
    assert!(matches!(&failed.outcome, MoverOutcome::Failed(why) if why.contains("mismatch")));
    assert_eq!(
        put.user
            .as_ref()
            .map(|user| user.as_str().contains("alice")),
        Some(true)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_replaced_after_the_condition_was_judged_stays() {
    let site = Site::new().await;
    site.put("/f", b"first").await;
    site.put("/other", b"second").await;
    let tag = site.get("/f").await.headers["etag"].clone();
    let token = site.token("storage.modify:/");
    let mut request = ClientRequest::new(Method::PUT, site.url("/f"));
    request.headers = headers(&[("authorization", &format!("Bearer {token}"))]);
    request.headers.insert("if-match", tag);
    let started = site
        .client
        .start_upload(request, Some(2_000_000), true)
        .await;
    let Ok(UploadStart::Ready(mut upload)) = started else {
        panic!("the condition holds");
    };
    site.slip_in("/other", "/f");
    upload.write_all(&content(2_000_000)).await.expect("sent");
    let answer = upload.finish().await.expect("an answer");
    assert_eq!(answer.status, 412);
    assert_eq!(site.get("/f").await.text(), "second");
    // The start removes what was replaced.
    site.reopen(|_| {}).await.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_too_long_for_the_file_to_tell_is_written_all_the_same() {
    let site = Site::new().await;
    let deep = "/directory".repeat(400);
    site.put(&deep, b"deep").await;
    assert_eq!(site.get(&deep).await.text(), "deep");
}
