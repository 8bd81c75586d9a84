//! More work than slots: who waits, who is refused, and that every slot comes back.

use crate::peer::{Peer, Step, send};
use crate::site::{DEADLINE, Site, client, content, eventually, headers};
use http::Method;
use penstock_decide::admission::QueueLimits;
use penstock_protocol::http1::client::{ClientRequest, ClientResponse};
use penstock_protocol::pace::PaceLimit;
use penstock_storage_element::StorageConfig;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn narrow_site(movers_max: u32, queue_max: u32) -> Site {
    Site::with(|config| {
        config.pools[0].movers = QueueLimits {
            movers_max,
            queue_max,
            ..QueueLimits::default()
        };
        // Whoever holds a slot here is to hold it, however busy the machine is.
        config.limits.stall_timeout = DEADLINE;
    })
    .await
}

fn queued(site: &Site) -> u32 {
    site.storage.snapshot().pools[0].movers_queued
}

async fn begin_pull(site: &Site, path: &str, peer: &Peer) -> ClientResponse {
    let mut request =
        ClientRequest::new(Method::from_bytes(b"COPY").expect("method"), site.url(path));
    let bearer = format!("Bearer {}", site.token("storage.modify:/"));
    request.headers = headers(&[("authorization", &bearer), ("source", peer.url().as_str())]);
    client().send(request).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_waits_sends_markers_without_bytes_then_runs() {
    let site = narrow_site(1, 10).await;
    let mut holder = site.begin_writing("/slow", Some(4)).await;
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
    holder.write_all(b"one").await.expect("sent");
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
    let holder = site.begin_writing("/slow", Some(4)).await;
    eventually("the slot is taken", || {
        site.storage.snapshot().movers_total == 1
    })
    .await;
    let waiting = site.begin_writing("/waiting", Some(4)).await;
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
    let holder = site.begin_writing("/slow", Some(4)).await;
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
    let mut holder = site.begin_writing("/slow", Some(1000)).await;
    eventually("the slot is taken", || {
        site.storage.snapshot().movers_total == 1
    })
    .await;
    let answer = tokio::spawn({
        let request = {
            let mut request = ClientRequest::new(Method::GET, site.url("/f"));
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
        tokio::time::sleep(Duration::from_millis(50)).await;
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

fn active(site: &Site) -> u32 {
    site.storage.snapshot().pools[0].movers_active
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slow_uploads_of_one_user_leave_a_mover_to_another() {
    let site = Site::with(|config| {
        config.pools[0].movers = QueueLimits {
            movers_max: 4,
            queue_max: 10,
            ..QueueLimits::default()
        };
        config.limits.stall_timeout = DEADLINE;
        config.limits.first_byte_timeout = DEADLINE;
    })
    .await;
    site.put("/f", b"x").await;
    let mut flood = Vec::new();
    for index in 0..6 {
        flood.push(site.begin_writing(&format!("/slow/{index}"), Some(4)).await);
    }
    eventually("the flood has its share and waits", || {
        (active(&site), queued(&site)) == (3, 3)
    })
    .await;
    let bob = site.token_with(|claims| claims.sub = "bob".to_owned());
    assert_eq!(site.send_as(&bob, "GET", "/f", &[], b"").await.status, 200);
    assert_eq!(site.send_as(&bob, "PUT", "/g", &[], b"y").await.status, 201);
    drop(flood);
    site.settles_with(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_without_a_byte_has_no_mover() {
    let site = Site::with(|config| {
        // One may wait: whichever request the server reads first, none is refused.
        config.pools[0].movers = QueueLimits {
            movers_max: 1,
            queue_max: 1,
            ..QueueLimits::default()
        };
        config.limits.stall_timeout = DEADLINE;
    })
    .await;
    let mut silent = site.begin_put("/silent", Some(4)).await;
    for index in 0..5 {
        site.put(&format!("/f{index}"), b"x").await;
    }
    assert_eq!(site.storage.snapshot().movers_total, 0);
    silent.write_all(b"done").await.expect("sent");
    assert_eq!(silent.finish().await.expect("an answer").status, 201);
    site.settles_with(6).await;
}

/// Bytes that come far apart, but never so far that the body stands still.
fn drip(seconds: u64) -> Vec<Step> {
    let drop = [Step::Pause(Duration::from_millis(100)), send("x")];
    let drops = std::iter::repeat_n(drop, 10 * seconds as usize);
    drops.flatten().collect()
}

/// A minimum that only a fast line keeps, as a mean over less than a pause may last.
fn hurried(config: &mut StorageConfig) {
    config.limits.stall_timeout = DEADLINE;
    config.limits.body_pace = PaceLimit {
        bytes_per_second_min: 10_000_000,
        interval: Duration::from_millis(300),
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_drips_ends_a_copy() {
    let site = Site::with(|config| {
        config.limits.stall_timeout = Duration::from_millis(700);
        config.limits.body_pace = PaceLimit {
            bytes_per_second_min: 1000,
            interval: Duration::from_millis(300),
        };
    })
    .await;
    let head = send("HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\nx");
    let peer = Peer::new([vec![head], drip(20)].concat()).await;
    let mut response = begin_pull(&site, "/g", &peer).await;
    let text = String::from_utf8(response.read_all(1 << 20).await.expect("whole")).expect("text");
    assert!(text.contains("at least 1000 bytes a second must"), "{text}");
    site.settles_with(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_may_pause_for_as_long_as_a_body_may_stand_still() {
    let site = Site::with(hurried).await;
    let pause = Step::Pause(Duration::from_secs(2));
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    let peer = Peer::new(vec![send(head), pause.clone(), send("o"), pause, send("k")]).await;
    let mut response = begin_pull(&site, "/g", &peer).await;
    let text = String::from_utf8(response.read_all(1 << 20).await.expect("whole")).expect("text");
    assert!(text.ends_with("success: Created\n"), "{text}");
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_may_pause_for_as_long_as_a_body_may_stand_still() {
    let site = Site::with(hurried).await;
    site.put("/f", &content(8_000_000)).await;
    let peer = Peer::by_method(|head| match head.starts_with("PUT") {
        true => vec![
            send("HTTP/1.1 100 Continue\r\n\r\n"),
            Step::Pause(Duration::from_secs(2)),
            Step::Read(8_000_000),
            send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"),
        ],
        false => vec![send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")],
    })
    .await;
    let mut request =
        ClientRequest::new(Method::from_bytes(b"COPY").expect("method"), site.url("/f"));
    let bearer = format!("Bearer {}", site.token("storage.read:/"));
    request.headers = headers(&[
        ("authorization", &bearer),
        ("destination", peer.url().as_str()),
    ]);
    let mut response = client().send(request).await.expect("an answer");
    let text = String::from_utf8(response.read_all(1 << 20).await.expect("whole")).expect("text");
    assert!(text.ends_with("success: Created\n"), "{text}");
}

/// The head of a PUT whose client waits to be told to send its body.
async fn ask_to_put(site: &Site, path: &str, length: usize) -> TcpStream {
    let mut tcp = TcpStream::connect(site.address).await.expect("connects");
    let token = site.token("storage.modify:/");
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nExpect: 100-continue\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    tcp.write_all(head.as_bytes()).await.expect("sent");
    tcp
}

/// The next head that the door sends.
async fn told(tcp: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(DEADLINE, tcp.read_u8()).await;
        head.push(byte.expect("in time").expect("an answer"));
    }
    String::from_utf8_lossy(&head).into_owned()
}

async fn narrow_and_patient_site(queue_max: u32) -> Site {
    Site::with(|config| {
        config.pools[0].movers = QueueLimits {
            movers_max: 1,
            queue_max,
            ..QueueLimits::default()
        };
        config.limits.stall_timeout = DEADLINE;
        config.limits.first_byte_timeout = DEADLINE;
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_before_sending_is_told_to_continue_when_a_mover_is_there() {
    let site = narrow_and_patient_site(10).await;
    let mut holder = site.begin_writing("/slow", Some(4)).await;
    eventually("the slot is taken", || active(&site) == 1).await;
    let mut asking = ask_to_put(&site, "/f", 4).await;
    eventually("it waits", || queued(&site) == 1).await;
    let early = tokio::time::timeout(Duration::from_millis(500), asking.read_u8()).await;
    assert!(early.is_err(), "told something while there is no mover");
    holder.write_all(b"one").await.expect("sent");
    holder.finish().await.expect("an answer");
    assert!(told(&mut asking).await.starts_with("HTTP/1.1 100 "));
    asking.write_all(b"done").await.expect("sent");
    assert!(told(&mut asking).await.starts_with("HTTP/1.1 201 "));
    site.settles_with(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_before_sending_is_refused_before_a_byte() {
    let site = narrow_and_patient_site(0).await;
    let holder = site.begin_writing("/slow", Some(4)).await;
    eventually("the slot is taken", || active(&site) == 1).await;
    let mut asking = ask_to_put(&site, "/f", 4).await;
    let answer = told(&mut asking).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.to_lowercase().contains("retry-after: "), "{answer}");
    drop(holder);
    site.settles_with(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_before_sending_and_leaves_gives_up_the_place_in_the_queue() {
    let site = narrow_and_patient_site(10).await;
    let holder = site.begin_writing("/slow", Some(4)).await;
    eventually("the slot is taken", || active(&site) == 1).await;
    let asking = ask_to_put(&site, "/f", 4).await;
    eventually("it waits", || queued(&site) == 1).await;
    drop(asking);
    eventually("it is gone", || queued(&site) == 0).await;
    drop(holder);
    site.settles_with(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_wait_to_be_told_is_served_in_turn() {
    let site = narrow_and_patient_site(10).await;
    let mut holder = site.begin_writing("/slow", Some(4)).await;
    eventually("the slot is taken", || active(&site) == 1).await;
    let data = content(300_000);
    let mut asking = ask_to_put(&site, "/f", data.len()).await;
    eventually("it waits", || queued(&site) == 1).await;
    let (mut answers, mut body) = asking.split();
    let sending = async {
        body.write_all(&data).await.expect("sent");
    };
    let waiting = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        holder.write_all(b"one").await.expect("sent");
        holder.finish().await.expect("an answer");
        let mut created = [0; 12];
        answers.read_exact(&mut created).await.expect("an answer");
        assert_eq!(&created, b"HTTP/1.1 201");
    };
    tokio::join!(sending, waiting);
    assert!(site.get("/f").await.body == data);
    site.settles_with(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_told_to_continue_and_sends_nothing_holds_no_mover_for_long() {
    let site = narrow_and_patient_site(10).await;
    let mut silent = ask_to_put(&site, "/silent", 4).await;
    assert!(told(&mut silent).await.starts_with("HTTP/1.1 100 "));
    site.put("/f", b"x").await;
    assert_eq!(site.storage.snapshot().movers_total, 0);
    silent.write_all(b"done").await.expect("sent");
    assert!(told(&mut silent).await.starts_with("HTTP/1.1 201 "));
    site.settles_with(2).await;
}
