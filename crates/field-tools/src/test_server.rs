//! A small HTTP server for tests: what it answers, in what order, and what changes meanwhile is decided by the test.

use crate::credentials::OneToken;
use crate::remote::Remote;
use http::HeaderMap;
use penstock_protocol::http1::client::{Client, ClientConfig};
use penstock_protocol::tls::ClientTls;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use url::Url;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct TestRequest {
    pub method: String,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl TestRequest {
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }
}

/// What is answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct TestReply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl TestReply {
    pub fn status(status: u16) -> TestReply {
        TestReply {
            status,
            ..TestReply::default()
        }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> TestReply {
        self.headers.push((name, value.into()));
        self
    }

    /// 207 with these paths; those that end with a slash are directories.
    pub fn listing<'a>(paths: impl IntoIterator<Item = &'a str>) -> TestReply {
        let mut body = "<d:multistatus xmlns:d='DAV:'>".to_owned();
        for path in paths {
            let kind = match path.ends_with('/') {
                true => "<d:resourcetype><d:collection/></d:resourcetype>",
                false => "<d:resourcetype/><d:getcontentlength>1</d:getcontentlength>",
            };
            body += &format!(
                "<d:response><d:href>{path}</d:href><d:propstat><d:prop>{kind}</d:prop>\
                 <d:status>HTTP/1.1 200 OK</d:status></d:propstat></d:response>"
            );
        }
        TestReply {
            status: 207,
            body: (body + "</d:multistatus>").into_bytes(),
            ..TestReply::default()
        }
    }
}

type Handler = dyn FnMut(&TestRequest) -> TestReply + Send;

/// Serves on loopback until it is dropped, and remembers what was asked.
pub(crate) struct TestServer {
    origin: String,
    seen: Arc<Mutex<Vec<TestRequest>>>,
    serving: JoinHandle<()>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl TestServer {
    pub async fn start(handler: impl FnMut(&TestRequest) -> TestReply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("known");
        let seen: Arc<Mutex<Vec<TestRequest>>> = Arc::default();
        let handler: Arc<Mutex<Box<Handler>>> = Arc::new(Mutex::new(Box::new(handler)));
        let noting = Arc::clone(&seen);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&handler), Arc::clone(&noting)));
            }
        });
        TestServer {
            origin: format!("http://{address}"),
            seen,
            serving,
        }
    }

    pub fn url(&self, path: &str) -> Url {
        Url::parse(&format!("{}{path}", self.origin)).expect("a URL")
    }

    pub fn remote(&self) -> Remote {
        let nobody = tempfile::tempdir().expect("made");
        let tls = ClientTls::from_ca_directory(nobody.path()).expect("a directory");
        let client = Client::new(ClientConfig::new(tls));
        Remote::new(client, Arc::new(OneToken(None)))
    }

    /// One header of what was asked by a method; empty where it was not there.
    pub fn headers(&self, method: &str, name: &str) -> Vec<String> {
        let seen = self.seen.lock().expect("nobody panicked");
        let of_method = seen.iter().filter(|request| request.method == method);
        of_method
            .map(|request| request.header(name).to_owned())
            .collect()
    }

    /// What was asked by a method, as paths.
    pub fn asked(&self, method: &str) -> Vec<String> {
        let seen = self.seen.lock().expect("nobody panicked");
        let of_method = seen.iter().filter(|request| request.method == method);
        of_method.map(|request| request.path.clone()).collect()
    }
}

async fn serve(
    mut stream: TcpStream,
    handler: Arc<Mutex<Box<Handler>>>,
    seen: Arc<Mutex<Vec<TestRequest>>>,
) {
    let Some(request) = read(&mut stream).await else {
        return;
    };
    let reply = {
        let mut handler = handler.lock().expect("nobody panicked");
        handler(&request)
    };
    let is_head = request.method == "HEAD";
    seen.lock().expect("nobody panicked").push(request);
    let mut head = format!("HTTP/1.1 {} Told\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let has_length = reply
        .headers
        .iter()
        .any(|(name, _)| ["content-length", "transfer-encoding"].contains(name));
    if !has_length && reply.status != 204 {
        head += &format!("content-length: {}\r\n", reply.body.len());
    }
    let mut bytes = (head + "\r\n").into_bytes();
    if !is_head {
        bytes.extend_from_slice(&reply.body);
    }
    let _ = stream.write_all(&bytes).await;
    let _ = stream.shutdown().await;
}

/// The head, the leave to send the body, and the body.
async fn read(stream: &mut TcpStream) -> Option<TestRequest> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        let name = http::HeaderName::from_bytes(name.as_bytes()).ok()?;
        headers.append(name, value.parse().ok()?);
    }
    if headers.contains_key("expect") {
        stream
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
            .await
            .ok()?;
    }
    let length = headers.get("content-length");
    let length: usize = length.map_or(Some(0), |value| value.to_str().ok()?.parse().ok())?;
    let mut body = bytes.split_off(end);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(TestRequest {
        method,
        path,
        headers,
        body,
    })
}
