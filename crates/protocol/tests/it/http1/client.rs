//! How the client takes what servers send, and what it does when they do not.

use super::service::{PATIENCE, limits, read_until, start};
use super::tls::get;
use http::Method;
use penstock_protocol::http1::client::{Client, ClientConfig, ClientError, ClientRequest};
use penstock_protocol::tls::ClientTls;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

pub fn config() -> ClientConfig {
    let dir = TempDir::new().expect("dir");
    ClientConfig::new(ClientTls::from_ca_directory(dir.path()).expect("directory"))
}

pub fn client() -> Client {
    Client::new(config())
}

fn hasty() -> Client {
    Client::new(ClientConfig {
        response_timeout: Duration::from_millis(200),
        stall_timeout: Duration::from_millis(200),
        ..config()
    })
}

/// A server that gives each connection the next of `answers` after a request's head, then closes it. Gives
/// back its URL and what it was asked.
pub async fn scripted(
    answers: Vec<&'static str>,
) -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("http://{}/f", listener.local_addr().expect("address"));
    let (asked, questions) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        for answer in answers {
            let (mut tcp, _) = listener.accept().await.expect("accept");
            let question = read_until(&mut tcp, "\r\n\r\n").await;
            asked.send(question).expect("the test listens");
            tcp.write_all(answer.as_bytes()).await.expect("write");
            tcp.shutdown().await.expect("shutdown");
        }
        std::future::pending::<()>().await;
    });
    (url, questions)
}

/// What a GET makes of an answer: the body, or the error without the URL.
async fn outcome(answer: &'static str) -> String {
    let (url, _questions) = scripted(vec![answer]).await;
    let outcome = async {
        let mut response = client().send(get(&url)).await?;
        let body = response.read_all(20).await?;
        Ok::<_, ClientError>(format!(
            "{} [{}]",
            response.status.as_u16(),
            String::from_utf8_lossy(&body)
        ))
    };
    let outcome = tokio::time::timeout(PATIENCE, outcome)
        .await
        .expect("in time");
    outcome.unwrap_or_else(|why| why.to_string().replace(&format!("{url}: "), ""))
}

#[tokio::test]
async fn responses_end_where_their_framing_says() {
    for (answer, expected) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            "200 [abc]",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef",
            "200 [abc]",
        ),
        ("HTTP/1.1 200\r\n\r\nuntil close", "200 [until close]"),
        ("HTTP/1.0 200 OK\r\n\r\nold", "200 [old]"),
        (
            "HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n",
            "204 []",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            "200 [abcde]",
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\n\r\n\
             HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
            "200 [x]",
        ),
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
            "404 [no]",
        ),
        // XRootD 5.5.3, when it tells a digest of a part.
        (
            "HTTP/1.1 206 Partial Content\r\nContent-Length: 2\r\nContent-Range: bytes 0-1/9\nDigest: adler32=1\r\n\r\nab",
            "206 [ab]",
        ),
    ] {
        assert_eq!(outcome(answer).await, expected, "for {answer:?}");
    }
}

#[tokio::test]
async fn responses_that_are_cut_off_or_make_no_sense_are_errors() {
    for (answer, expected) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
            "only 3 of 5 bytes came",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "the response is malformed: after 3 bytes the last chunk is missing",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\nabc",
            "more than 20 bytes",
        ),
        (
            "HTTP/1.1 200 OK\r\n\r\n0123456789012345678901234567890",
            "more than 20 bytes",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "the response is malformed: Content-Length and Transfer-Encoding contradict each other",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
            "the response is malformed: there are several Content-Length headers that differ",
        ),
        (
            "SSH-2.0-OpenSSH_9.2\r\n\r\n",
            "the response is malformed: the head is not HTTP: invalid HTTP version",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 4\n\nabc\r\n\r\n",
            "the response is malformed: its head has an empty line before its end",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 4\n\r\nabc\r\n\r\n",
            "the response is malformed: its head has an empty line before its end",
        ),
        (
            "HTTP/1.1 200 OK\nContent-Length: 4\n folded: 1\r\n\r\nabcd",
            "the response is malformed: a header is folded over several lines",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "the response is malformed: interim responses without end, or a change of protocol",
        ),
        (
            "",
            "the server closed the connection before it answered: unexpected end of file",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-",
            "the connection failed: unexpected end of file",
        ),
    ] {
        assert_eq!(outcome(answer).await, expected, "for {answer:?}");
    }
}

#[tokio::test]
async fn the_answer_to_head_has_a_length_and_no_body() {
    let (url, _questions) = scripted(vec!["HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n"]).await;
    let mut response = client()
        .send(ClientRequest::new(Method::HEAD, url.parse().expect("URL")))
        .await
        .expect("response");
    assert_eq!(response.content_length(), Some(77));
    assert_eq!(response.read(&mut [0; 9]).await.expect("end"), 0);
}

#[tokio::test]
async fn a_request_says_what_it_must_and_nothing_twice() {
    let (url, mut questions) = scripted(vec!["HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]).await;
    let mut request = get(&format!("{url}?a=b%20c#fragment"));
    for (name, value) in [
        ("host", "elsewhere"),
        ("content-length", "7"),
        ("transferheaderauthorization", "Bearer x"),
    ] {
        request.headers.insert(name, value.parse().expect("valid"));
    }
    client().send(request).await.expect("response");
    let host = url.trim_start_matches("http://").trim_end_matches("/f");
    let agent = concat!("penstock/", env!("CARGO_PKG_VERSION"));
    let expected = format!(
        "GET /f?a=b%20c HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}\r\n\
         TransferHeaderAuthorization: Bearer x\r\n\r\n"
    );
    assert_eq!(questions.recv().await.expect("a request"), expected);
}

#[tokio::test]
async fn servers_that_keep_silent_are_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("http://{}/f", listener.local_addr().expect("address"));
    let error = hasty().send(get(&url)).await.err().expect("silence");
    assert_eq!(
        error.to_string(),
        format!("{url}: timeout after 200 ms while waiting for the response")
    );

    let answering = tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut tcp, _) = listener.accept().await.expect("accept");
            let _ = tcp
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")
                .await;
            open.push(tcp);
        }
    });
    let mut response = hasty().send(get(&url)).await.expect("a head");
    let error = response.read_all(10).await.expect_err("silence");
    let expected =
        format!("{url}: timeout after 200 ms while waiting for the next byte of the body");
    assert_eq!(error.to_string(), expected);
    answering.abort();
}

#[tokio::test]
async fn connections_are_kept_unless_the_body_was_left() {
    let address = start(limits()).await;
    let client = client();
    let port = async || {
        let url = format!("http://{address}/port");
        client
            .send(get(&url))
            .await
            .expect("response")
            .read_all(10)
            .await
            .expect("body")
    };
    let first = port().await;
    assert_eq!(port().await, first);
    drop(
        client
            .send(get(&format!("http://{address}/chunks")))
            .await
            .expect("response"),
    );
    let second = port().await;
    assert_ne!(second, first, "an unread body closes its connection");
    client
        .send(get(&format!("http://{address}/close")))
        .await
        .expect("response")
        .read_all(10)
        .await
        .expect("body");
    assert_ne!(port().await, second, "the server asked to close");
}

#[tokio::test]
async fn a_connection_serves_nobody_but_the_user_who_opened_it() {
    let address = start(limits()).await;
    let client = client();
    let port = async |token: &str, query: &str| {
        let mut request = get(&format!("http://{address}/port{query}"));
        if let Ok(value) = token.parse() {
            request.headers.insert(http::header::AUTHORIZATION, value);
        }
        let mut response = client.send(request).await.expect("response");
        response.read_all(10).await.expect("body")
    };
    let alice = port("Bearer alice", "").await;
    let bob = port("Bearer bob", "").await;
    let nobody = port("\n", "").await;
    let carol = port("\n", "?authz=carol").await;
    let all: HashSet<_> = [&alice, &bob, &nobody, &carol].into();
    assert_eq!(all.len(), 4, "one connection each");
    assert_eq!(port("\n", "?authz=carol").await, carol);
    assert_eq!(port("\n", "?page=2").await, nobody);
    assert_eq!(port("Bearer bob", "").await, bob);
    assert_eq!(port("Bearer alice", "").await, alice);
}

#[tokio::test]
async fn many_users_keep_no_more_connections_than_one() {
    let address = start(limits()).await;
    let client = Client::new(ClientConfig {
        idle_per_host: 2,
        ..config()
    });
    let port = async |user: &str| {
        let mut request = get(&format!("http://{address}/port"));
        let token = format!("Bearer {user}").parse().expect("a header");
        request.headers.insert(http::header::AUTHORIZATION, token);
        let mut response = client.send(request).await.expect("response");
        response.read_all(10).await.expect("body")
    };
    let (first, second, third) = (port("a").await, port("b").await, port("c").await);
    assert_eq!(port("c").await, third);
    assert_eq!(port("b").await, second);
    assert_ne!(port("a").await, first, "the longest idle one made room");
}

/// A server that answers the first request of each connection and closes the connection at the second.
async fn forgetful() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("http://{}/f", listener.local_addr().expect("address"));
    tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.expect("accept");
            tokio::spawn(async move {
                read_until(&mut tcp, "\r\n\r\n").await;
                tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .await
                    .expect("write");
                read_until(&mut tcp, "\r\n\r\n").await;
            });
        }
    });
    url
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closed_is_replaced_when_repeating_is_harmless() {
    let url = forgetful().await;
    let client = client();
    let request = |method: Method| ClientRequest::new(method, url.parse().expect("URL"));
    for method in [
        Method::GET,
        Method::GET,
        Method::from_bytes(b"PROPFIND").expect("valid"),
        Method::DELETE,
    ] {
        let body = client
            .send(request(method))
            .await
            .expect("repeated")
            .read_all(10)
            .await;
        assert_eq!(body.expect("body"), b"ok");
    }
    let body = client
        .send_bytes(request(Method::PUT), b"")
        .await
        .expect("repeated")
        .read_all(10)
        .await;
    assert_eq!(body.expect("body"), b"ok");
    // What a second one meets may be what the first has written.
    let mut only_if_absent = request(Method::PUT);
    let any = http::HeaderValue::from_static("*");
    only_if_absent
        .headers
        .insert(http::header::IF_NONE_MATCH, any);
    for request in [request(Method::POST), only_if_absent] {
        let error = client.send(request).await.err().expect("not repeated");
        assert!(matches!(error, ClientError::Closed { .. }), "{error}");
        let next = client.send(ClientRequest::new(Method::GET, url.parse().expect("URL")));
        let body = next.await.expect("a new connection").read_all(10).await;
        assert_eq!(body.expect("body"), b"ok");
    }
}

#[tokio::test]
async fn redirects_are_followed_and_secrets_stay_at_home() {
    let stranger = start(limits()).await;
    let location = format!("http://{stranger}/headers");
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
    );
    let home: &'static str = "HTTP/1.1 302 Found\r\nLocation: /g?h#i\r\nContent-Length: 0\r\n\r\n";
    let (url, mut questions) = scripted(vec![home, answer.leak()]).await;
    let mut request = get(&url);
    for name in [
        "authorization",
        "cookie",
        "transferheaderauthorization",
        "depth",
        "want-digest",
    ] {
        request.headers.insert(name, "x".parse().expect("valid"));
    }
    let mut response = client().send_following(request).await.expect("response");
    assert_eq!(response.final_url().as_str(), location);
    let seen = String::from_utf8(response.read_all(1000).await.expect("body")).expect("text");
    assert_eq!(seen, "depth host user-agent want-digest");
    let _first = questions.recv().await.expect("asked");
    let second = questions.recv().await.expect("asked");
    assert!(
        second.starts_with("GET /g?h HTTP/1.1\r\n") && second.contains("Authorization: x\r\n"),
        "{second}"
    );
}

#[tokio::test]
async fn redirects_that_lead_nowhere_end() {
    let circle = "HTTP/1.1 302 Found\r\nLocation: /f\r\nContent-Length: 0\r\n\r\n";
    let (url, _questions) = scripted(vec![circle; 6]).await;
    let error = client()
        .send_following(get(&url))
        .await
        .err()
        .expect("a circle");
    assert_eq!(error.to_string(), format!("{url}: more than 5 redirects"));

    let nowhere = "HTTP/1.1 302 Found\r\nLocation: gopher://x/\r\nContent-Length: 0\r\n\r\n";
    let (url, _questions) = scripted(vec![nowhere]).await;
    let error = client()
        .send_following(get(&url))
        .await
        .err()
        .expect("another scheme");
    let expected = "'gopher://x/' cannot be reached: its scheme is none of https, davs, http, dav";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn addresses_that_a_rule_forbids_are_not_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let port = listener.local_addr().expect("address").port();
    let client =
        client().with_resolved_check(Arc::new(|_host, server| match server.ip().is_loopback() {
            true => Err(format!("{} is this machine", server.ip())),
            false => Ok(()),
        }));
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]"] {
        let url = format!("http://{host}:{port}/");
        let error = client.send(get(&url)).await.err().expect("forbidden");
        assert!(
            matches!(error, ClientError::Forbidden { .. }),
            "{host}: {error}"
        );
    }
    let nobody = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(nobody.is_err(), "somebody connected");
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_named() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        listener.local_addr().expect("address").port()
    };
    let error = client()
        .send(get(&format!("http://127.0.0.1:{port}/")))
        .await
        .err()
        .expect("refused");
    let expected =
        format!("cannot connect to 127.0.0.1 port {port}: Connection refused (os error 111)");
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_secret_in_a_query_is_not_shown() {
    let (url, _questions) = scripted(vec![""]).await;
    let error = client()
        .send(get(&format!("{url}?authz=secret")))
        .await
        .err()
        .expect("closed");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn ipv6_addresses_are_reached() {
    let Ok(listener) = TcpListener::bind("[::1]:0").await else {
        return; // No IPv6 on this machine.
    };
    let address = listener.local_addr().expect("address");
    let server = tokio::spawn(async move {
        let (mut tcp, _): (TcpStream, _) = listener.accept().await.expect("accept");
        let question = read_until(&mut tcp, "\r\n\r\n").await;
        tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await
            .expect("write");
        question
    });
    client()
        .send(get(&format!("dav://{address}/f")))
        .await
        .expect("response");
    assert!(
        server
            .await
            .expect("asked")
            .contains(&format!("Host: {address}\r\n"))
    );
}

const NOISE_STARTS: [&str; 3] = [
    "",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
];

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 48, ..Default::default() })]

    /// No bytes make the client panic or hang.
    #[test]
    fn noise_is_a_response_or_an_error(
        start in proptest::sample::select(&NOISE_STARTS[..]),
        noise in proptest::collection::vec(
            proptest::prop_oneof![proptest::prelude::any::<u8>(), proptest::sample::select(&b"\r\n :/1HT"[..])],
            0..600,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
            let url = format!("http://{}/f", listener.local_addr().expect("address"));
            tokio::spawn(async move {
                let (mut tcp, _) = listener.accept().await.expect("accept");
                read_until(&mut tcp, "\r\n\r\n").await;
                let _ = tcp.write_all(&[start.as_bytes(), &noise].concat()).await;
                let _ = tcp.shutdown().await;
            });
            let outcome = async {
                let mut response = client().send(get(&url)).await?;
                response.read_all(10_000).await
            };
            let ended = tokio::time::timeout(PATIENCE, outcome).await;
            assert!(ended.is_ok(), "the client waits for what cannot come");
        });
    }
}
