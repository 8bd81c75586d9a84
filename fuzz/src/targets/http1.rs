//! What a client may send to the server: requests, bodies in chunks, noise. Each accepted request must have one
//! meaning, whatever the network makes of it and whoever writes it again.

use super::{Target, texts};
use http::{HeaderMap, Method, StatusCode, header};
use penstock_protocol::http1::Limits;
use penstock_protocol::http1::server::{Connection, Request};
use penstock_protocol::pace::PaceLimit;
use penstock_protocol::stream::Stream;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Small enough that a socket's buffer takes it, so that one thread can play both ends.
const INPUT_BYTES_MAX: usize = 8 << 10;

/// Headers that a request may have.
const HEADERS_MAX: usize = 100;

pub const TARGET: Target = Target {
    name: "http1",
    check,
    seeds: || {
        texts(&[
            "GET /a%20b?c HTTP/1.1\r\nHost: x\r\n\r\nPUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
            "PUT /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n\
             OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
            "PUT /c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\r\n\r\nGET http://x/y HTTP/1.1\r\nHost: x\r\n\r\n",
            "PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
            "GET / HTTP/1.1\nHost: x\n\n",
            "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
        ])
    },
};

/// A request as it was understood.
#[derive(Debug, PartialEq)]
struct Understood {
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
});

fn check(data: &[u8]) {
    let data = &data[..data.len().min(INPUT_BYTES_MAX)];
    let (requests, answers) = serve(&[data]);
    // One answer for each request, and one more at most: for what is none.
    let statuses = answers
        .windows(9)
        .filter(|text| text == b"HTTP/1.1 ")
        .count();
    assert!(
        statuses >= requests.len(),
        "{statuses} answers to {}",
        requests.len()
    );
    // The meaning does not depend on how the network cuts it.
    if let Some((first, rest)) = data.split_first() {
        let (again, _) = serve(&[&[*first], &rest[..rest.len() / 2], &rest[rest.len() / 2..]]);
        assert_eq!(again, requests);
    }
    for request in requests {
        // Written again, it says of itself what it had not to say before: its host and the length of its body.
        if without_framing(&request.headers).len() + 2 > HEADERS_MAX {
            continue;
        }
        let by_length = written(&request, &[b"", &request.body]);
        let (again, _) = serve(&[&by_length]);
        assert_eq!(again.len(), 1, "{}", String::from_utf8_lossy(&by_length));
        assert_same(&again[0], &request);
        let chunks: Vec<&[u8]> = request.body.chunks(1 + request.body.len() / 3).collect();
        let (again, _) = serve(&[&written(&request, &chunks)]);
        assert_eq!(again.len(), 1);
        assert_same(&again[0], &request);
    }
}

fn assert_same(again: &Understood, meant: &Understood) {
    assert_eq!(
        (&again.method, &again.target),
        (&meant.method, &meant.target)
    );
    assert_eq!(again.body, meant.body);
    assert_eq!(
        without_framing(&again.headers),
        without_framing(&meant.headers)
    );
}

fn without_framing(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in [
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::EXPECT,
        header::HOST,
    ] {
        headers.remove(name);
    }
    headers
}

/// The same request as another party would write it: a body of a known length when there are two pieces of which the
/// first is empty, else chunks.
fn written(request: &Understood, body: &[&[u8]]) -> Vec<u8> {
    let mut out = format!(
        "{} {} HTTP/1.1\r\nHost: x\r\n",
        request.method, request.target
    )
    .into_bytes();
    for (name, value) in &without_framing(&request.headers) {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    match body {
        [b"", whole] => {
            out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", whole.len()).as_bytes());
            out.extend_from_slice(whole);
        }
        chunks => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            for chunk in chunks {
                out.extend_from_slice(format!("{:X};x=\"y\"\r\n", chunk.len()).as_bytes());
                out.extend_from_slice(chunk);
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(b"0\r\n\r\n");
        }
    }
    out
}

/// Everything that a server understands of these pieces, and what it answers.
fn serve(pieces: &[&[u8]]) -> (Vec<Understood>, Vec<u8>) {
    let (mut client, server) = UnixStream::pair().expect("a pair of sockets");
    // What the server reads is the same, and no port is used up.
    let server = TcpStream::from(OwnedFd::from(server));
    server.set_nonblocking(true).expect("a socket");
    let requests = RUNTIME.block_on(async {
        let server = tokio::net::TcpStream::from_std(server).expect("a runtime");
        let limits = Limits {
            body_pace: PaceLimit::NONE,
            head_timeout: Duration::from_secs(5),
            ..Limits::default()
        };
        let mut connection = Connection::new(Stream::plain(server), limits);
        let mut requests = Vec::new();
        let serving = async {
            while let Ok(Some(request)) = connection.next_request().await {
                let Some(understood) = take(&mut connection, request).await else {
                    break;
                };
                requests.push(understood);
            }
        };
        let sending = async {
            for piece in pieces {
                // A server that refuses the rest has closed.
                let _ = client.write_all(piece);
                tokio::task::yield_now().await;
            }
            let _ = client.shutdown(Shutdown::Write);
        };
        tokio::join!(serving, sending);
        requests
    });
    let mut answers = Vec::new();
    // A reset ends the answers as well.
    let _ = client.read_to_end(&mut answers);
    (requests, answers)
}

/// A request whose body came whole. Like the door, it ends with the first body that does not.
async fn take(connection: &mut Connection, request: Request) -> Option<Understood> {
    let mut body = Vec::new();
    let mut buffer = [0; 512];
    loop {
        match connection.read_body(&mut buffer).await.ok()? {
            0 => break,
            count => body.extend_from_slice(&buffer[..count]),
        }
    }
    let answered = connection
        .respond(StatusCode::OK, HeaderMap::new(), b"")
        .await;
    answered.ok()?;
    Some(Understood {
        method: request.method,
        target: request.target,
        headers: request.headers,
        body,
    })
}
