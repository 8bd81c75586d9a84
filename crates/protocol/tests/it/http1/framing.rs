//! Raw bytes in, what the server made of them out.

use super::service::{exchange, limits, readable, start};
use proptest::prelude::*;

#[track_caller]
fn check(request: &str, expected: &str) {
    assert_eq!(served(&[request.as_bytes()]), expected, "for {request:?}");
}

fn served(pieces: &[&[u8]]) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(async { readable(&exchange(start(limits()).await, pieces).await) })
}

#[test]
fn requests_end_where_their_framing_says() {
    check("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "200 GET / []");
    check(
        "GET /%2f?a=b HTTP/1.1\r\nHost: a\r\n\r\n",
        "200 GET /%2f?a=b []",
    );
    check("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "200 GET / []");
    check(
        "PROPFIND /d HTTP/1.1\r\nHost: a\r\nDepth: 0\r\n\r\n",
        "200 PROPFIND /d []",
    );
    check(
        "PUT /f HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "200 PUT /f [abc]",
    );
    check(
        "PUT /f HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "200 PUT /f []",
    );
    check(
        "PUT /f HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "200 PUT /f [abc]",
    );
    check(
        "GET http://a/x?y HTTP/1.1\r\nHost: a\r\n\r\n",
        "200 GET http://a/x?y []",
    );
    check("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "200 OPTIONS * []");
}

#[test]
fn chunks_are_joined_and_what_surrounds_them_is_dropped() {
    let put = "PUT /f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(&format!("{put}3\r\nabc\r\n0\r\n\r\n"), "200 PUT /f [abc]");
    check(&format!("{put}0\r\n\r\n"), "200 PUT /f []");
    check(
        &format!("{put}00003\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"),
        "200 PUT /f [abc0123456789]",
    );
    check(
        &format!("{put}3;name=value\r\nabc\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n"),
        "200 PUT /f [abc]",
    );
    check(
        &format!("{put}3\r\nabc\r\n0\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n"),
        "200 PUT /f [abc] | 200 GET /next []",
    );
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    check(
        &format!("{}{}{}", get("/1"), get("/2"), get("/3")),
        "200 GET /1 [] | 200 GET /2 [] | 200 GET /3 []",
    );
    check(
        &format!(
            "PUT /f HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc{}",
            get("/2")
        ),
        "200 PUT /f [abc] | 200 GET /2 []",
    );
    check(&format!("{}{}", get("/close"), get("/2")), "200 bye +close");
    check(
        &format!("{}{}", get("/nothing"), get("/2")),
        "204 | 200 GET /2 []",
    );
}

#[test]
fn empty_lines_between_requests_mean_nothing_however_they_are_cut() {
    let pieces: [&[u8]; 3] = [
        b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n\r\n\r",
        b"\n\r",
        b"\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    assert_eq!(served(&pieces), "200 GET /1 [] | 200 GET /2 []");
}

#[test]
fn what_two_readers_could_take_differently_is_refused() {
    let post = |headers: &str, body: &str| {
        format!("POST /f HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n{body}")
    };
    let chunks = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let contradict = "400 Content-Length and Transfer-Encoding contradict each other +close";
    check(
        &post("Content-Length: 5\r\nTransfer-Encoding: chunked", chunks),
        contradict,
    );
    check(
        &post("Transfer-Encoding: chunked\r\nContent-Length: 0", chunks),
        contradict,
    );
    let differ = "400 there are several Content-Length headers that differ +close";
    check(
        &post("Content-Length: 5\r\nContent-Length: 6", "abcdef"),
        differ,
    );
    let number = "400 Content-Length is not a number of bytes +close";
    for length in ["+5", "-1", "5, 5", "0x5", "", "5 5", "99999999999999999999"] {
        check(&post(&format!("Content-Length: {length}"), "abcde"), number);
    }
    let unknown = "501 the only Transfer-Encoding known here is 'chunked' +close";
    for coding in [
        "gzip",
        "gzip, chunked",
        "chunked, chunked",
        "xchunked",
        "chunked;q=1",
        "identity",
        "\u{b}chunked",
    ] {
        let expected = if coding.starts_with('\u{b}') {
            "400 the head is not HTTP: invalid header value +close"
        } else {
            unknown
        };
        check(
            &post(&format!("Transfer-Encoding: {coding}"), chunks),
            expected,
        );
    }
    check(
        &post(
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            chunks,
        ),
        unknown,
    );
    check(
        "POST /f HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "400 HTTP/1.0 knows no Transfer-Encoding +close",
    );
}

#[test]
fn heads_that_are_not_well_formed_are_refused() {
    let folded = "400 a header is folded over several lines +close";
    check("GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n", folded);
    check("GET / HTTP/1.1\r\n Host: a\r\n\r\n", folded);
    let not_http = |why: &str| format!("400 the head is not HTTP: {why} +close");
    check(
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        &not_http("invalid header name"),
    );
    check(
        "GET / HTTP/1.1\r\n: a\r\n\r\n",
        &not_http("invalid header name"),
    );
    check(
        "GET / HTTP/1.1\r\nHost\r\n\r\n",
        &not_http("invalid header name"),
    );
    check(
        "GET / HTTP/1.1\nHost: a\n\n",
        "400 a line ends with LF instead of CRLF +close",
    );
    check(
        "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
        "400 a CR stands without LF +close",
    );
    check(
        "GET / HTTP/1.1\r\nHost: a\0\r\n\r\n",
        "400 the head holds a NUL +close",
    );
    check(
        "GET / HTTP/1.1\r\n\r\n",
        "400 the Host header is missing +close",
    );
    check(
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "400 there is more than one Host header +close",
    );
    let version = "505 only HTTP/1.0 and HTTP/1.1 are spoken here +close";
    check("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", version);
    check("GET / HTTP/3.1\r\nHost: a\r\n\r\n", version);
    check("\x16\x03\x01\x02\r\n\r\n", &not_http("invalid token"));
    check(
        "GET / HTTP/1.1\r\nHost: a\r\nExpect: a-miracle\r\n\r\n",
        "417 the only expectation known here is '100-continue' +close",
    );
}

#[test]
fn chunked_coding_that_is_not_well_formed_ends_the_body_with_an_error() {
    let check = |body: &str, expected: &str| {
        let request =
            format!("PUT /f HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        check(&request, &format!("200 PUT /f {expected} +close"));
    };
    let size = "the body is malformed: a chunk's size is not a hex number of at most 64 bits";
    for bad in [
        "",
        "g",
        "-1",
        "+1",
        "0x1",
        " 1",
        "1 ",
        "11111111111111111",
        "1\t",
        "\u{1}",
    ] {
        check(&format!("{bad}\r\nabc\r\n0\r\n\r\n"), size);
    }
    let crlf = "the body is malformed: a line of the chunked coding does not end with CRLF";
    check("3\nabc\n0\n\n", crlf);
    check("3;a\rb\r\nabc\r\n0\r\n\r\n", crlf);
    check(
        "3\r\nabcd\r\n0\r\n\r\n",
        "the body is malformed: a chunk is longer than its size",
    );
    check(
        "ffffffffffffffff\r\nabc",
        "the connection ended before the body: 18446744073709551612 bytes are missing",
    );
    check(
        "3\r\nabc\r\n",
        "the connection ended before the body: the last chunk is missing",
    );
    check(
        "3\r\nabc\r\n0\r\n",
        "the connection ended before the body: the last chunk is missing",
    );
    check(
        &format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(2000)),
        "the body is malformed: a line of the chunked coding is too long",
    );
    let trailers = "T: 12345678\r\n".repeat(1000);
    check(
        &format!("0\r\n{trailers}\r\n"),
        "the body is malformed: the trailers are too long",
    );
}

#[test]
fn heads_are_bounded() {
    let head = |count: usize, size: usize| {
        let headers: String = (0..count)
            .map(|index| format!("X-{index}: {}\r\n", "x".repeat(size)))
            .collect();
        format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n")
    };
    check(&head(99, 100), "200 GET / []");
    check(&head(100, 1), "431 more than 100 headers +close");
    check(&head(200, 1), "431 more than 128 headers +close");
    check(&head(60, 1000), "200 GET / []");
    check(
        &head(70, 1000),
        "431 the head is longer than 65536 bytes +close",
    );
    check(
        &"x".repeat(200_000),
        "414 the request line is longer than 65536 bytes +close",
    );
    check(
        &format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(66_000)),
        "414 the request line is longer than 65536 bytes +close",
    );
}

#[test]
fn http_1_0_is_answered_and_closed() {
    check("GET / HTTP/1.0\r\n\r\n", "200 GET / [] +close");
    let kept = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    check(&format!("{kept}{kept}"), "200 GET / [] | 200 GET / []");
    let raw = served_raw("GET /chunks HTTP/1.0\r\n\r\n");
    assert!(
        raw.ends_with("\r\n\r\nonetwothree") && !raw.contains("Transfer-Encoding"),
        "{raw}"
    );
}

#[test]
fn answers_of_unknown_length_come_in_chunks() {
    let raw = served_raw("GET /chunks HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        raw.ends_with("\r\n\r\n3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n"),
        "{raw}"
    );
    assert!(
        raw.contains("Transfer-Encoding: chunked\r\n") && !raw.contains("Content-Length"),
        "{raw}"
    );
}

#[test]
fn the_answer_to_head_has_no_body() {
    let head = served_raw("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        head.contains("Content-Length: 1234\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let head = served_raw("HEAD /refuse HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        head.contains("Content-Length: 2\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let head = served_raw("HEAD /chunks HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        head.contains("Transfer-Encoding: chunked\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let none = served_raw("GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        !none.contains("Content-Length") && none.ends_with("\r\n\r\n"),
        "{none}"
    );
    assert!(none.contains("\r\nDate: "), "{none}");
}

fn served_raw(request: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(async { exchange(start(limits()).await, &[request.as_bytes()]).await })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// However the network cuts the bytes, the same requests come out.
    #[test]
    fn splits_of_the_stream_change_nothing(mut cuts in prop::collection::vec(0usize..400, 0..12)) {
        let stream = "GET /1 HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n\
            PUT /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world\
            \r\nPUT /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
            5;x=y\r\nhello\r\n00c\r\n, wide world\r\n0\r\nT: v\r\n\r\n\
            POST /4 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx";
        let expected = "200 GET /1 [] | 200 PUT /2 [hello world] | 200 PUT /3 [hello, wide world] | \
            400 there are several Content-Length headers that differ +close";
        cuts.iter_mut().for_each(|cut| *cut %= stream.len());
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([stream.len()]) {
            pieces.push(&stream.as_bytes()[from..cut]);
            from = cut;
        }
        prop_assert_eq!(served(&pieces), expected);
    }

    /// No bytes make the server panic or hang.
    #[test]
    fn noise_is_answered_or_dropped(
        noise in prop::collection::vec(
            prop_oneof![any::<u8>(), prop::sample::select(&b"\r\n :/1GET"[..])],
            0..600,
        ),
        framed in any::<bool>(),
    ) {
        let head: &[u8] = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut bytes = if framed { head.to_vec() } else { Vec::new() };
        bytes.extend_from_slice(&noise);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let address = start(limits()).await;
            let mut tcp = tokio::net::TcpStream::connect(address).await.expect("connect");
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let _ = tcp.write_all(&bytes).await;
            let _ = tcp.shutdown().await;
            let mut all = Vec::new();
            let read = tokio::time::timeout(super::service::PATIENCE, tcp.read_to_end(&mut all)).await;
            assert!(read.is_ok(), "the server neither answered nor closed");
        });
    }
}
