//! More work than slots: who waits, who is refused, and that every slot comes back.

use crate::peer::{Peer, Step, send};
use crate::site::{DEADLINE, Site, client, content, eventually, headers};
use http::Method;
use penstock_decide::admission::QueueLimits;
use penstock_protocol::http1::client::{Incoming, Outgoing};

async fn narrow_site(movers_max: u32, queue_max: u32) -> Site {
    Site::with(|config| {
        config.pools[0].movers = QueueLimits {
            movers_max,
            queue_max,
        };
    })
    .await
}

fn queued(site: &Site) -> u32 {
    site.storage.snapshot().pools[0].movers_queued
}

async fn begin_pull(site: &Site, path: &str, peer: &Peer) -> Incoming {
    let mut request = Outgoing::new(Method::from_bytes(b"COPY").expect("method"), site.url(path));
    let bearer = format!("Bearer {}", site.token("storage.modify:/"));
    request.headers = headers(&[("authorization", &bearer), ("source", peer.url().as_str())]);
    client().send(request).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_waits_sends_markers_without_bytes_then_runs() {
    let site = narrow_site(1, 10).await;
    let mut holder = site.begin_put("/slow", Some(4)).await;
    eventually("the slot is taken", || {
        site.storage.snapshot().movers_total == 1
    })
    .await;
    let peer = Peer::new(vec![send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")]).await;
    let mut response = begin_pull(&site, "/g", &peer).await;
    assert_eq!(response.status, 202);
    let mut buffer = vec![0; 4096];
    let count = response.read(&mut buffer).await.expect("a marker");
    let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
    assert!(
        text.starts_with("Perf Marker\nTimestamp: ") && !text.contains("Stripe"),
        "{text}"
    );
    assert_eq!((queued(&site), peer.heads().len()), (1, 0));
    holder.write_all(b"done").await.expect("sent");
    holder.finish().await.expect("an answer");
    let rest = String::from_utf8(response.read_all(1 << 20).await.expect("whole")).expect("text");
    assert!(rest.ends_with("success: Created\n"), "{rest}");
    assert!(rest.contains("Penstock-Stages: wait="), "{rest}");
    site.settles_with(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_with_a_time_to_try_again() {
    let site = narrow_site(1, 1).await;
    site.put("/f", b"x").await;
    let holder = site.begin_put("/slow", Some(4)).await;
    eventually("the slot is taken", || {
        site.storage.snapshot().movers_total == 1
    })
    .await;
    let waiting = site.begin_put("/waiting", Some(4)).await;
    eventually("the queue is full", || queued(&site) == 1).await;
    for (method, path) in [("GET", "/f"), ("PUT", "/g")] {
        let response = site.send(method, path, &[], b"").await;
        assert_eq!(response.status, 503, "{method}: {}", response.text());
        assert!(
            response
                .header("retry-after")
                .parse::<u64>()
                .is_ok_and(|seconds| seconds >= 1)
        );
    }
    // What needs no mover is served on.
    assert_eq!(site.status("HEAD", "/f").await, 200);
    drop((holder, waiting));
    site.settles_with(1).await;
    assert_eq!(site.status("GET", "/f").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_leave_the_queue_free_their_place() {
    let site = narrow_site(1, 10).await;
    site.put("/f", b"x").await;
    let holder = site.begin_put("/slow", Some(4)).await;
    eventually("the slot is taken", || {
        site.storage.snapshot().movers_total == 1
    })
    .await;
    let peer = Peer::new(vec![Step::Pause(DEADLINE)]).await;
    let copy = begin_pull(&site, "/g", &peer).await;
    eventually("the copy waits", || queued(&site) == 1).await;
    drop(copy);
    eventually("the copy left", || queued(&site) == 0).await;
    assert_eq!(peer.heads().len(), 0);
    drop(holder);
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_waits_too_long_is_told_so() {
    let site = narrow_site(1, 10).await;
    site.put("/f", b"x").await;
    let mut holder = site.begin_put("/slow", Some(1000)).await;
    eventually("the slot is taken", || {
        site.storage.snapshot().movers_total == 1
    })
    .await;
    let answer = tokio::spawn({
        let request = {
            let mut request = Outgoing::new(Method::GET, site.url("/f"));
            let bearer = format!("Bearer {}", site.token("storage.read:/"));
            request.headers = headers(&[("authorization", &bearer)]);
            request
        };
        async move {
            client()
                .send(request)
                .await
                .expect("an answer")
                .status
                .as_u16()
        }
    });
    // The writer moves on, so that it is not given up itself.
    while !answer.is_finished() {
        holder.write_all(b"x").await.expect("sent");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(answer.await.expect("no panic"), 503);
    drop(holder);
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_mixed_work_leaves_every_slot_free_and_every_file_whole() {
    let site = std::sync::Arc::new(narrow_site(4, 1000).await);
    let data = std::sync::Arc::new(content(300_000));
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..40usize {
        let (site, data) = (site.clone(), data.clone());
        tasks.spawn(async move {
            let path = format!("/d/{}", index % 10);
            match index % 4 {
                3 => {
                    let mut upload = site.begin_put(&path, Some(300_000)).await;
                    let _ = upload.write_all(&data[..index * 1000]).await;
                }
                2 => {
                    let response = site.send("GET", &path, &[], b"").await;
                    // 503: it was replaced while the reader waited for its slot.
                    assert!(
                        [200, 404, 503].contains(&response.status),
                        "{}",
                        response.status
                    );
                    assert!(response.status != 200 || response.body == *data);
                }
                _ => {
                    let response = site.send("PUT", &path, &[], &data).await;
                    assert!(
                        [201, 204, 409].contains(&response.status),
                        "{}",
                        response.status
                    );
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    let count = || site.storage.snapshot().pools[0].files;
    eventually("all movers ended", || {
        site.storage.snapshot().movers_total == 0
    })
    .await;
    site.settles_with(count()).await;
    for index in 0..10 {
        let response = site.get(&format!("/d/{index}")).await;
        assert!(
            response.status == 404 || response.body == *data,
            "/d/{index}"
        );
    }
}
