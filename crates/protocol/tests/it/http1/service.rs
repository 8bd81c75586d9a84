//! A small service for the tests, and ways to talk to it in raw bytes.

use http::{HeaderMap, Method, StatusCode};
use penstock_protocol::http1::Limits;
use penstock_protocol::http1::server::{BodyError, Connection, Request};
use penstock_protocol::stream::Stream;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Long enough for a busy machine, short enough for a person.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn limits() -> Limits {
    Limits::default()
}

/// Serves plain connections until the runtime ends.
pub async fn start(limits: Limits) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.expect("accept");
            tokio::spawn(serve(Connection::new(Stream::plain(tcp), limits.clone())));
        }
    });
    address
}

pub async fn serve(mut connection: Connection) {
    while let Ok(Some(request)) = connection.next_request().await {
        if answer(&mut connection, request).await.is_err() {
            return;
        }
    }
}

async fn answer(connection: &mut Connection, request: Request) -> std::io::Result<()> {
    let mut headers = HeaderMap::new();
    match request.path() {
        "/refuse" => {
            connection
                .respond(StatusCode::FORBIDDEN, headers, b"no")
                .await
        }
        "/nothing" => {
            connection
                .respond(StatusCode::NO_CONTENT, headers, b"")
                .await
        }
        "/chunks" => {
            connection.start_chunked(StatusCode::OK, headers).await?;
            for piece in ["one", "", "two", "three"] {
                connection.write_chunk(piece.as_bytes()).await?;
            }
            connection.end_chunks().await
        }
        "/port" => {
            let port = connection.peer_addr().port().to_string();
            connection
                .respond(StatusCode::OK, headers, port.as_bytes())
                .await
        }
        "/close" => {
            headers.insert("connection", "close".parse().expect("valid"));
            connection.respond(StatusCode::OK, headers, b"bye").await
        }
        "/length" => {
            let body = read_body(connection).await;
            let text = body.map_or_else(|why| why.to_string(), |body| body.len().to_string());
            connection
                .respond(StatusCode::OK, headers, text.as_bytes())
                .await
        }
        "/headers" => {
            let mut names: Vec<&str> = request.headers.keys().map(|name| name.as_str()).collect();
            names.sort_unstable();
            connection
                .respond(StatusCode::OK, headers, names.join(" ").as_bytes())
                .await
        }
        _ if request.method == Method::HEAD => {
            connection
                .respond_head_only(StatusCode::OK, headers, 1234)
                .await
        }
        _ => {
            let text = match read_body(connection).await {
                Ok(body) => {
                    let body = String::from_utf8_lossy(&body);
                    format!("{} {} [{body}]", request.method, request.target)
                }
                Err(why) => format!("{} {} {why}", request.method, request.target),
            };
            connection
                .respond(StatusCode::OK, headers, text.as_bytes())
                .await
        }
    }
}

pub async fn read_body(connection: &mut Connection) -> Result<Vec<u8>, BodyError> {
    let mut whole = Vec::new();
    let mut piece = [0; 1000];
    loop {
        match connection.read_body(&mut piece).await? {
            0 => return Ok(whole),
            count => whole.extend_from_slice(&piece[..count]),
        }
    }
}

/// Sends bytes and gives back everything that comes until the server closes.
pub async fn exchange(address: SocketAddr, pieces: &[&[u8]]) -> String {
    let mut tcp = TcpStream::connect(address).await.expect("connect");
    tcp.set_nodelay(true).expect("nodelay");
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 {
            // Lets the server read what was sent, so that pieces are seen apart.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if tcp.write_all(piece).await.is_err() {
            break;
        }
    }
    let _ = tcp.shutdown().await;
    read_to_end(&mut tcp).await
}

pub async fn read_to_end(tcp: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let read = tokio::time::timeout(PATIENCE, tcp.read_to_end(&mut all)).await;
    read.expect("the server closes in time")
        .expect("the answer is not cut by a reset");
    String::from_utf8(all).expect("text")
}

/// Reads until the text ends with `end`.
pub async fn read_until(tcp: &mut TcpStream, end: &str) -> String {
    let mut all = Vec::new();
    while !all.ends_with(end.as_bytes()) {
        let byte = tokio::time::timeout(PATIENCE, tcp.read_u8()).await;
        all.push(
            byte.expect("an answer in time")
                .unwrap_or_else(|why| panic!("{why} after {:?}", String::from_utf8_lossy(&all))),
        );
    }
    String::from_utf8(all).expect("text")
}

/// Answers as one readable line: `200 GET / [] | 400 …`. `+close` marks an answer that ends the connection.
pub fn readable(mut answers: &str) -> String {
    let mut lines = Vec::new();
    while let Some((head, rest)) = answers.split_once("\r\n\r\n") {
        let header = |name: &str| {
            let line = head
                .lines()
                .find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")));
            line.map(|line| line[name.len() + 1..].trim().to_owned())
        };
        let status = head.split(' ').nth(1).unwrap_or("?");
        let length = header("content-length").map_or(0, |length| length.parse().expect("a number"));
        let length = if rest.is_empty() { 0 } else { length };
        let body = rest[..length].trim_end();
        let close = if header("connection").as_deref() == Some("close") {
            " +close"
        } else {
            ""
        };
        lines.push(format!("{status} {body}{close}").trim_end().to_owned());
        answers = &rest[length..];
    }
    lines.join(" | ")
}
