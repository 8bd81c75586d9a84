//! More clients than places, and clients that are too slow.

use crate::site::{Site, eventually};
use penstock_protocol::connections::{ConnectionLimits, Connections};
use penstock_protocol::pace::PaceLimit;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

async fn crowded_site(connections_max: usize, per_client_max: usize) -> Site {
    Site::with(|config| {
        config.limits.connections = Connections::new(ConnectionLimits {
            connections_max,
            per_client_max,
            handshakes_max: 10,
        });
    })
    .await
}

async fn connect(site: &Site) -> TcpStream {
    let url = site.url("/");
    let address = (url.host_str().expect("a host"), url.port().expect("a port"));
    TcpStream::connect(address).await.expect("a connection")
}

async fn read_to_end(tcp: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), tcp.read_to_end(&mut text)).await;
    // A reset ends it as well.
    drop(read.expect("the door closes"));
    String::from_utf8_lossy(&text).into_owned()
}

/// A client in the middle of an upload.
async fn begin_work(site: &Site, path: &str) -> TcpStream {
    begin_work_of(site, path, 4).await
}

async fn begin_work_of(site: &Site, path: &str, length: usize) -> TcpStream {
    let mut tcp = connect(site).await;
    let token = site.token("storage.modify:/");
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n"
    );
    tcp.write_all(head.as_bytes()).await.expect("sent");
    tcp
}

#[tokio::test(flavor = "multi_thread")]
async fn who_finds_every_place_at_work_is_told_to_come_back() {
    let site = crowded_site(2, 2).await;
    let mut workers = [begin_work(&site, "/a").await, begin_work(&site, "/b").await];
    for worker in &mut workers {
        worker.write_all(b"d").await.expect("sent");
    }
    eventually("both work", || site.storage.snapshot().movers_total == 2).await;
    let answer = read_to_end(&mut connect(&site).await).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("Retry-After: 10\r\n"), "{answer}");
    for worker in &mut workers {
        worker.write_all(b"one").await.expect("sent");
        let mut created = [0; 12];
        worker.read_exact(&mut created).await.expect("an answer");
        assert_eq!(&created, b"HTTP/1.1 201");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_makes_room_for_one_with_a_request() {
    let site = crowded_site(2, 2).await;
    let mut idle = [connect(&site).await, connect(&site).await];
    eventually("both are there", || {
        site.storage.snapshot().connections == 2
    })
    .await;
    let mut worker = begin_work(&site, "/a").await;
    worker.write_all(b"done").await.expect("sent");
    let mut created = [0; 12];
    worker.read_exact(&mut created).await.expect("an answer");
    assert_eq!(&created, b"HTTP/1.1 201");
    assert_eq!(read_to_end(&mut idle[0]).await, "");
}

/// A connection whose place somebody else needs: it closes with an answer when its request has begun to come.
#[tokio::test(flavor = "multi_thread")]
async fn who_loses_a_place_with_a_request_on_its_way_is_told_so() {
    let site = crowded_site(1, 1).await;
    let mut first = connect(&site).await;
    let begun = b"GET /a HTTP/1.1\r\nHost: x\r\n";
    first.write_all(begun).await.expect("sent");
    eventually("it is there", || site.storage.snapshot().connections == 1).await;
    // The beginning of its head has been read, or is read now.
    let mut second = begin_work(&site, "/b").await;
    second.write_all(b"done").await.expect("sent");
    let answer = read_to_end(&mut first).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer:?}");
    assert!(answer.contains("Connection: close\r\n"), "{answer}");
    let mut created = [0; 12];
    second.read_exact(&mut created).await.expect("an answer");
    assert_eq!(&created, b"HTTP/1.1 201");
}

/// More than are asked to go at once before newcomers are turned away.
const FLOOD: usize = 400;

/// A connection of another client of this machine.
async fn connect_from(site: &Site, client: [u8; 4]) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind((Ipv4Addr::from(client), 0).into())
        .expect("an address of this machine");
    socket.connect(site.address).await.expect("a connection")
}

/// Clients that begin a request and hold on when they are told that it is not served.
#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_leave_when_asked_keeps_nobody_out() {
    for (connections_max, per_client_max) in [(100, 100), (400, 50)] {
        let site = crowded_site(connections_max, per_client_max).await;
        let mut held = Vec::new();
        for number in 0..per_client_max + FLOOD {
            let client = match per_client_max < connections_max {
                true => [127, 0, 1, 1],
                false => [127, 0, 1, 1 + (number % 8) as u8],
            };
            let mut tcp = connect_from(&site, client).await;
            // A reset ends it, and it has been turned away then.
            drop(tcp.write_all(b"GET /a HTTP/1.1\r\nX: ").await);
            held.push(tcp);
        }
        for client in [[127, 0, 2, 1], [127, 0, 1, 1]] {
            for _ in 0..10 {
                let mut honest = connect_from(&site, client).await;
                let asked = b"OPTIONS / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
                drop(honest.write_all(asked).await);
                let answer = read_to_end(&mut honest).await;
                let limits = (connections_max, per_client_max);
                assert!(
                    answer.starts_with("HTTP/1.1 200 "),
                    "{limits:?} {client:?}: {answer:?}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_drips_is_ended_and_leaves_nothing() {
    let site = Site::with(|config| {
        config.limits.body_pace = PaceLimit {
            bytes_per_second_min: 1000,
            interval: Duration::from_millis(300),
        };
    })
    .await;
    let mut worker = begin_work_of(&site, "/a", 10_000).await;
    let answer = loop {
        // The door closes sooner or later; what is written after that is lost.
        let mut first = [0; 9];
        let dripped = worker.write_all(b"x").await;
        let told = tokio::time::timeout(Duration::from_millis(150), worker.read_exact(&mut first));
        if let (Ok(_), _) | (_, Err(_)) = (told.await, dripped) {
            let first = String::from_utf8_lossy(&first).into_owned();
            break first + &read_to_end(&mut worker).await;
        }
    };
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("1000 bytes a second"), "{answer}");
    site.settles_with(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_may_pause_for_as_long_as_a_body_may_stand_still() {
    let site = Site::with(|config| {
        config.limits.stall_timeout = Duration::from_secs(20);
        config.limits.body_pace = PaceLimit {
            bytes_per_second_min: 10_000_000,
            interval: Duration::from_millis(300),
        };
    })
    .await;
    let mut worker = begin_work(&site, "/a").await;
    for part in [b"do", b"ne"] {
        worker.write_all(part).await.expect("sent");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let mut created = [0; 12];
    worker.read_exact(&mut created).await.expect("an answer");
    assert_eq!(&created, b"HTTP/1.1 201");
}
