//! Files through the server and the client, with and without TLS: the bytes that arrive are the bytes of
//! the file.

use super::pki::Ca;
use super::service::{limits, read_body, start};
use super::tls::{client_trusting, get};
use http::{HeaderMap, Method, StatusCode};
use penstock_protocol::http1::client::{Client, ClientError, ClientRequest, UploadStart};
use penstock_protocol::http1::server::Connection;
use penstock_protocol::stream::Stream;
use penstock_protocol::tls::ServerTls;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use tempfile::TempDir;
use tokio::net::TcpListener;

const MIB: u64 = 1 << 20;

fn content(size: u64) -> Vec<u8> {
    (0..size)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("file");
    file.write_all(bytes).expect("write");
    file
}

/// A server that answers every GET with `range` of `file`, and every PUT with the length and sum of its
/// body.
struct Lab {
    url: String,
    client: Client,
    _dirs: TempDir,
}

async fn lab(tls: bool, file: File, range: Range<u64>) -> Lab {
    let dirs = TempDir::new().expect("dir");
    let ca = Ca::new("Test CA");
    ca.install(dirs.path());
    let host = ca.issue(dirs.path(), &["127.0.0.1"]);
    let server = ServerTls::load(&host.chain, &host.key).expect("load");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let url = format!("{}://{address}/f", if tls { "https" } else { "http" });
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.expect("accept");
            let stream = match tls {
                true => server.accept(tcp).await.expect("handshake"),
                false => Stream::plain(tcp),
            };
            let mut connection = Connection::new(stream, limits());
            while let Ok(Some(request)) = connection.next_request().await {
                let headers = HeaderMap::new();
                let done = match request.method {
                    Method::GET => {
                        let sent = connection
                            .send_file(StatusCode::OK, headers, &file, range.clone())
                            .await;
                        sent.map(|sent| assert_eq!(sent.bytes, range.end - range.start))
                    }
                    _ => {
                        let body = read_body(&mut connection).await.expect("body");
                        connection.respond(StatusCode::OK, headers, &body).await
                    }
                };
                if done.is_err() {
                    break;
                }
            }
        }
    });
    Lab {
        url,
        client: client_trusting(dirs.path()),
        _dirs: dirs,
    }
}

#[tokio::test]
async fn a_file_arrives_as_it_is_whatever_its_size() {
    for tls in [false, true] {
        for size in [0, 1, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 5 * MIB + 3] {
            let bytes = content(size);
            let lab = lab(tls, file_of(&bytes), 0..size).await;
            // Twice, because the second answer shows that the first ended where it should.
            for _ in 0..2 {
                let mut response = lab.client.send(get(&lab.url)).await.expect("response");
                assert_eq!(response.content_length(), Some(size));
                assert!(
                    response.read_all(size).await.expect("body") == bytes,
                    "{size} bytes, TLS {tls}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_range_of_a_file_arrives_as_it_is() {
    let bytes = content(3 * MIB);
    for tls in [false, true] {
        for range in [
            0..1,
            5..70,
            1000..100_000,
            MIB - 1..2 * MIB + 1,
            3 * MIB - 1..3 * MIB,
            MIB..MIB,
        ] {
            let lab = lab(tls, file_of(&bytes), range.clone()).await;
            let mut response = lab.client.send(get(&lab.url)).await.expect("response");
            let got = response.read_all(3 * MIB).await.expect("body");
            assert!(
                got == bytes[range.start as usize..range.end as usize],
                "{range:?}, TLS {tls}"
            );
        }
    }
}

#[tokio::test]
async fn a_file_that_shrinks_while_it_is_sent_is_cut_off_not_padded() {
    for tls in [false, true] {
        let lab = lab(tls, file_of(&content(2 * MIB)), 0..3 * MIB).await;
        let mut response = lab.client.send(get(&lab.url)).await.expect("response");
        let error = response.read_all(3 * MIB).await.expect_err("cut off");
        assert!(matches!(error, ClientError::TooShort { .. }), "{error}");
        assert!(
            response.read(&mut [0]).await.is_err(),
            "an error stays an error"
        );
    }
}

#[tokio::test]
async fn an_upload_of_a_file_arrives_as_it_is() {
    for tls in [false, true] {
        for size in [0, 1, 64 * 1024 + 1, 9 * MIB + 3] {
            for announced in [Some(size), None] {
                let bytes = content(size + 5);
                let lab = lab(tls, file_of(b""), 0..0).await;
                let put = ClientRequest::new(Method::PUT, lab.url.parse().expect("URL"));
                let UploadStart::Ready(mut upload) = lab
                    .client
                    .start_upload(put, announced, true)
                    .await
                    .expect("started")
                else {
                    panic!("answered early")
                };
                let sent = upload
                    .send_file(&file_of(&bytes), 5..size + 5)
                    .await
                    .expect("sent");
                assert_eq!(sent.bytes, size);
                let mut response = upload.finish().await.expect("response");
                let got = response.read_all(size).await.expect("body");
                assert!(
                    got == bytes[5..],
                    "{size} bytes, TLS {tls}, announced {announced:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_probe_sees_the_connection_while_it_lasts() {
    let bytes = content(2 * MIB);
    let lab = lab(false, file_of(&bytes), 0..2 * MIB).await;
    let mut response = lab.client.send(get(&lab.url)).await.expect("response");
    let probe = response.tcp_probe().expect("a body to come");
    let watcher = tokio::task::spawn_blocking(move || {
        assert!(probe.read().is_some_and(|tcp| tcp.rtt_us > 0));
        probe
    });
    let probe = watcher.await.expect("seen");
    drop(response);
    assert_eq!(probe.read(), None);
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_file() {
    let address = start(limits()).await;
    let client = client_trusting(TempDir::new().expect("dir").path());
    let url = format!("http://{address}/port");
    let first = client
        .send(get(&url))
        .await
        .expect("response")
        .read_all(10)
        .await
        .expect("body");
    let second = client
        .send(get(&url))
        .await
        .expect("response")
        .read_all(10)
        .await
        .expect("body");
    assert_eq!(first, second);
}

#[tokio::test]
async fn a_small_file_that_cannot_be_read_can_still_be_answered_with_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("http://{}/f", listener.local_addr().expect("address"));
    tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.expect("accept");
        let mut connection = Connection::new(Stream::plain(tcp), limits());
        connection
            .next_request()
            .await
            .expect("valid")
            .expect("a request");
        let (status, headers) = (StatusCode::OK, HeaderMap::new());
        let sent = connection
            .send_file(status, headers.clone(), &file_of(b"abc"), 0..9)
            .await;
        assert!(sent.is_err() && connection.can_answer());
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        connection
            .respond(status, headers, b"the file is shorter than its size")
            .await
            .expect("answered");
    });
    let client = client_trusting(TempDir::new().expect("dir").path());
    let mut response = client.send(get(&url)).await.expect("response");
    assert_eq!(response.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(
        response.read_all(100).await.expect("body"),
        b"the file is shorter than its size"
    );
}

#[tokio::test]
async fn a_file_that_must_come_from_the_disk_arrives_as_it_is() {
    use rustix::fs::{Advice, fadvise};
    let bytes = content(7 * MIB + 11);
    for tls in [false, true] {
        let file = file_of(&bytes);
        file.sync_all().expect("on disk");
        fadvise(&file, 0, None, Advice::DontNeed).expect("out of the cache");
        let lab = lab(tls, file, 0..bytes.len() as u64).await;
        let mut response = lab.client.send(get(&lab.url)).await.expect("response");
        let got = response.read_all(bytes.len() as u64).await.expect("body");
        assert!(got == bytes, "TLS {tls}");
    }
}
