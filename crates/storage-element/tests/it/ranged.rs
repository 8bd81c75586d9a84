//! A source that gives parts of one file, as slow, forgetful or busy as a test needs it.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

/// How the source behaves. The default does everything right.
#[derive(Clone, Default)]
pub struct Ways {
    /// Bytes per second and connection.
    pub rate: Option<usize>,
    /// Headers of every answer, each with its line end, besides length and range.
    pub headers: String,
    /// Answers whole files only.
    pub whole_only: bool,
    /// `Content-Range` does not tell the size.
    pub hides_size: bool,
    /// Requests that are served at once; others get 503.
    pub at_once_max: Option<usize>,
    /// From this request on (counted from 1) answers are of another version, with this in place of `headers`.
    pub changes_at: Option<(usize, String)>,
    /// These requests (counted from 1) get half of their bytes and then silence.
    pub stands_still_at: Vec<usize>,
    /// These requests get half of their bytes and then the end of the connection.
    pub breaks_at: Vec<usize>,
    /// These requests are never answered.
    pub ignores_at: Vec<usize>,
}

pub struct Ranged {
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

struct Shared {
    data: Vec<u8>,
    ways: Ways,
    heads: Arc<Mutex<Vec<String>>>,
    serving: AtomicUsize,
}

impl Ranged {
    pub async fn new(data: Vec<u8>, ways: Ways) -> Ranged {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::new(Shared {
            data,
            ways,
            heads: Arc::clone(&heads),
            serving: AtomicUsize::new(0),
        });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                // A client that leaves is no failure of the test.
                tokio::spawn(async move { drop(shared.serve(stream).await) });
            }
        });
        Ranged { address, heads }
    }

    pub fn url(&self) -> Url {
        Url::parse(&format!("http://{}/f", self.address)).expect("valid URL")
    }

    /// The heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }

    /// How many requests asked for a part.
    pub fn ranges(&self) -> usize {
        let heads = self.heads();
        heads
            .iter()
            .filter(|head| head.contains("range: bytes="))
            .count()
    }
}

impl Shared {
    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await?);
            }
            let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
            let count = {
                let mut heads = self.heads.lock();
                heads.push(head.clone());
                heads.len()
            };
            let before = self.serving.fetch_add(1, Ordering::SeqCst);
            if self.ways.at_once_max.is_some_and(|max| before >= max) {
                self.serving.fetch_sub(1, Ordering::SeqCst);
                let busy = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\nbusy\n";
                stream.write_all(busy).await?;
                continue;
            }
            if self.ways.ignores_at.contains(&count) {
                std::future::pending::<()>().await;
            }
            let answered = self.answer(&mut stream, &head, count).await;
            self.serving.fetch_sub(1, Ordering::SeqCst);
            answered?;
        }
    }

    async fn answer(
        &self,
        stream: &mut TcpStream,
        head: &str,
        count: usize,
    ) -> std::io::Result<()> {
        let size = self.data.len();
        let headers = match &self.ways.changes_at {
            Some((from, headers)) if count >= *from => headers,
            _ => &self.ways.headers,
        };
        let asked = head
            .split_once("range: bytes=")
            .and_then(|(_, rest)| rest.split_once("\r\n"))
            .and_then(|(range, _)| range.split_once('-'))
            .map(|(first, last)| -> (usize, usize) {
                (
                    first.parse().expect("a number"),
                    last.parse().expect("a number"),
                )
            })
            .filter(|_| !self.ways.whole_only);
        let (status, range, body) = match asked {
            Some((first, _)) if first >= size => (
                "416 Range Not Satisfiable",
                format!("Content-Range: bytes */{size}\r\n"),
                &[][..],
            ),
            Some((first, last)) => {
                let last = last.min(size - 1);
                let told = match self.ways.hides_size {
                    true => "*".to_owned(),
                    false => size.to_string(),
                };
                let range = format!("Content-Range: bytes {first}-{last}/{told}\r\n");
                ("206 Partial Content", range, &self.data[first..=last])
            }
            None => ("200 OK", String::new(), &self.data[..]),
        };
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status}\r\n{headers}{range}Content-Length: {length}\r\n\r\n");
        stream.write_all(answer.as_bytes()).await?;
        if head.starts_with("head ") {
            return Ok(());
        }
        let half = &body[..length / 2];
        if self.ways.stands_still_at.contains(&count) {
            stream.write_all(half).await?;
            std::future::pending::<()>().await;
        }
        if self.ways.breaks_at.contains(&count) {
            stream.write_all(half).await?;
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        let Some(rate) = self.ways.rate else {
            return stream.write_all(body).await;
        };
        for piece in body.chunks((rate / 100).max(1)) {
            stream.write_all(piece).await?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}
