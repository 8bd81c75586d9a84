//! How a server treats clients that wait, stall, leave or send what nobody reads.

use super::service::{exchange, limits, read_body, read_to_end, read_until, readable, start};
use http::{HeaderMap, StatusCode};
use penstock_protocol::http1::Limits;
use penstock_protocol::http1::server::{Connection, RequestError};
use penstock_protocol::stream::Stream;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// A connection for a test that drives the server's end itself.
async fn pair(limits: Limits) -> (TcpStream, Connection) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let client = TcpStream::connect(listener.local_addr().expect("address"))
        .await
        .expect("connect");
    let (accepted, _) = listener.accept().await.expect("accept");
    (client, Connection::new(Stream::plain(accepted), limits))
}

fn hasty() -> Limits {
    Limits {
        head_timeout: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(200),
        body_stall_timeout: Duration::from_millis(200),
        ..limits()
    }
}

#[tokio::test]
async fn a_client_that_waits_is_told_to_continue_when_its_body_is_wanted() {
    let mut tcp = TcpStream::connect(start(limits()).await)
        .await
        .expect("connect");
    let head = "PUT /f HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    for _ in 0..2 {
        tcp.write_all(head.as_bytes()).await.expect("write");
        assert_eq!(
            read_until(&mut tcp, "\r\n\r\n").await,
            "HTTP/1.1 100 Continue\r\n\r\n"
        );
        tcp.write_all(b"abc").await.expect("write");
        assert!(
            read_until(&mut tcp, "PUT /f [abc]")
                .await
                .starts_with("HTTP/1.1 200 OK\r\n")
        );
    }
}

#[tokio::test]
async fn a_client_that_waits_is_refused_without_its_body_and_the_connection_ends() {
    let mut tcp = TcpStream::connect(start(limits()).await)
        .await
        .expect("connect");
    let head =
        "PUT /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    tcp.write_all(head.as_bytes()).await.expect("write");
    assert_eq!(readable(&read_to_end(&mut tcp).await), "403 no +close");
}

#[tokio::test]
async fn a_client_that_does_not_wait_after_all_is_not_told_to_continue() {
    let request =
        "PUT /f HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc";
    let answers = exchange(start(limits()).await, &[request.as_bytes()]).await;
    assert_eq!(readable(&answers), "200 PUT /f [abc]");
}

#[tokio::test]
async fn a_small_body_that_nobody_read_does_not_end_the_connection() {
    let address = start(limits()).await;
    let put = "PUT /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let get = "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(
        readable(&exchange(address, &[put.as_bytes(), get.as_bytes()]).await),
        "403 no | 200 GET /2 []"
    );
    // The body may also come after the answer was decided.
    let (head, body) = put.split_at(put.len() - 3);
    let pieces = [head.as_bytes(), body.as_bytes(), get.as_bytes()];
    assert_eq!(
        readable(&exchange(address, &pieces).await),
        "403 no | 200 GET /2 []"
    );
}

#[tokio::test]
async fn an_early_refusal_reaches_a_client_that_is_still_sending() {
    let mut tcp = TcpStream::connect(start(limits()).await)
        .await
        .expect("connect");
    tcp.write_all(b"PUT /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n")
        .await
        .expect("write");
    for _ in 0..40 {
        tcp.write_all(&[7; 100_000])
            .await
            .expect("the server reads on, so that nothing is reset");
    }
    tcp.shutdown().await.expect("shutdown");
    assert_eq!(readable(&read_to_end(&mut tcp).await), "403 no +close");
}

#[tokio::test]
async fn a_body_that_stands_still_is_given_up() {
    let mut tcp = TcpStream::connect(start(hasty()).await)
        .await
        .expect("connect");
    tcp.write_all(b"PUT /f HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
        .await
        .expect("write");
    assert_eq!(
        readable(&read_to_end(&mut tcp).await),
        "200 PUT /f no byte of the body came for 200 ms +close"
    );
}

#[tokio::test]
async fn a_body_that_is_cut_off_is_an_error_not_an_end() {
    let request = "PUT /f HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab";
    let answers = exchange(start(limits()).await, &[request.as_bytes()]).await;
    assert_eq!(
        readable(&answers),
        "200 PUT /f the connection ended before the body: 3 bytes are missing +close"
    );
}

#[tokio::test]
async fn a_head_that_trickles_in_is_given_up() {
    let mut tcp = TcpStream::connect(start(hasty()).await)
        .await
        .expect("connect");
    let started = Instant::now();
    for byte in b"GET / HTTP/1.1\r\nHost: abcdefghijklmnopqrstuvwxyz" {
        if tcp.write_all(&[*byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        if started.elapsed() > Duration::from_millis(400) {
            break;
        }
    }
    assert_eq!(
        readable(&read_to_end(&mut tcp).await),
        "408 the head took longer than 200 ms +close"
    );
}

#[tokio::test]
async fn the_answer_of_an_old_connection_is_its_last() {
    let old = Limits {
        age_max: Duration::ZERO,
        ..limits()
    };
    for (limits, expected) in [(limits(), "200 GET /1 []"), (old, "200 GET /1 [] +close")] {
        let mut tcp = TcpStream::connect(start(limits).await)
            .await
            .expect("connect");
        tcp.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n")
            .await
            .expect("write");
        let answer = read_until(&mut tcp, "GET /1 []").await;
        assert_eq!(readable(&answer), expected);
    }
}

#[tokio::test]
async fn a_silent_connection_is_closed_without_a_word() {
    let mut tcp = TcpStream::connect(start(hasty()).await)
        .await
        .expect("connect");
    assert_eq!(read_to_end(&mut tcp).await, "");
    let mut tcp = TcpStream::connect(start(hasty()).await)
        .await
        .expect("connect");
    tcp.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .expect("write");
    assert_eq!(readable(&read_to_end(&mut tcp).await), "200 GET /1 []");
}

#[tokio::test]
async fn a_dismissed_connection_answers_a_request_that_has_begun_to_come() {
    let (mut tcp, mut connection) = pair(limits()).await;
    tcp.write_all(b"PUT /f HTTP/1.1\r\nHost: a\r\n")
        .await
        .expect("write");
    let waiting = tokio::time::timeout(Duration::from_millis(50), connection.next_request()).await;
    assert!(waiting.is_err(), "its head is not complete");
    // What nobody reads would reset the connection, and destroy the answer.
    tcp.write_all(&[b'x'; 32 << 10]).await.expect("write");
    let (told, ()) = tokio::join!(read_to_end(&mut tcp), async {
        connection.dismiss().await;
        drop(connection);
    });
    let told = readable(&told);
    assert!(
        told.starts_with("503 ") && told.ends_with("+close"),
        "{told}"
    );
}

#[tokio::test]
async fn a_dismissed_connection_without_a_request_ends_in_order() {
    let (mut tcp, mut connection) = pair(limits()).await;
    let begun = Instant::now();
    let (told, ()) = tokio::join!(read_to_end(&mut tcp), async {
        connection.dismiss().await;
        drop(connection);
    });
    assert_eq!(told, "");
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_client_that_takes_nothing_does_not_hold_the_server() {
    let (mut client, mut server) = pair(hasty()).await;
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .expect("write");
    server
        .next_request()
        .await
        .expect("valid")
        .expect("a request");
    let answer = vec![7; 64 << 20];
    let error = server
        .respond(StatusCode::OK, HeaderMap::new(), &answer)
        .await
        .expect_err("nobody reads");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!(
        server.next_request().await.expect("no request").is_none(),
        "half an answer went out"
    );
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_while_its_request_is_worked_on() {
    let (mut client, mut server) = pair(limits()).await;
    client
        .write_all(b"COPY / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .expect("write");
    server
        .next_request()
        .await
        .expect("valid")
        .expect("a request");
    let waiting = tokio::time::timeout(Duration::from_millis(50), server.peer_closed()).await;
    assert!(waiting.is_err(), "the client is still there");
    drop(client);
    tokio::time::timeout(super::service::PATIENCE, server.peer_closed())
        .await
        .expect("noticed");
}

#[tokio::test]
async fn watching_a_client_loses_nothing_of_what_it_pipelines() {
    let (mut client, mut server) = pair(limits()).await;
    client
        .write_all(b"COPY /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")
        .await
        .expect("write");
    server
        .next_request()
        .await
        .expect("valid")
        .expect("a request");
    client
        .write_all(b"abcGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .expect("write");
    let waiting = tokio::time::timeout(Duration::from_millis(50), server.peer_closed()).await;
    assert!(waiting.is_err(), "the client is still there");
    assert_eq!(read_body(&mut server).await.expect("body"), b"abc");
    server
        .respond(StatusCode::OK, HeaderMap::new(), b"")
        .await
        .expect("answered");
    let next = server
        .next_request()
        .await
        .expect("valid")
        .expect("a request");
    assert_eq!(next.target, "/2");
}

#[tokio::test]
async fn a_request_without_an_answer_ends_the_connection() {
    let (mut client, mut server) = pair(limits()).await;
    client
        .write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .expect("write");
    server
        .next_request()
        .await
        .expect("valid")
        .expect("a request");
    assert!(server.next_request().await.expect("no request").is_none());
}

#[tokio::test]
async fn a_second_answer_is_refused() {
    let (mut client, mut server) = pair(limits()).await;
    client
        .write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .expect("write");
    server
        .next_request()
        .await
        .expect("valid")
        .expect("a request");
    server
        .respond(StatusCode::OK, HeaderMap::new(), b"")
        .await
        .expect("answered");
    assert!(
        server
            .respond(StatusCode::OK, HeaderMap::new(), b"")
            .await
            .is_err()
    );
    assert!(server.write_chunk(b"x").await.is_err());
}

#[tokio::test]
async fn a_refused_request_says_who_and_why() {
    let (mut client, mut server) = pair(limits()).await;
    client
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .await
        .expect("write");
    client.shutdown().await.expect("shutdown");
    let error = server.next_request().await.expect_err("malformed");
    let peer = client.local_addr().expect("address");
    let expected =
        format!("request of {peer} refused with 400 Bad Request: the Host header is missing");
    assert_eq!(error.to_string(), expected);
    assert!(matches!(
        error,
        RequestError::Refused {
            status: StatusCode::BAD_REQUEST,
            ..
        }
    ));
}
