//! Another server, as bad as a test needs it: it answers each connection with a script.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use url::Url;

/// What the server does after it has read a request's head.
#[derive(Clone)]
pub enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Reads and forgets this many bytes.
    Read(usize),
    /// Does nothing for so long.
    Pause(Duration),
}

/// A scripted server. Every connection gets the same script and is closed after it.
pub struct Peer {
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    pub async fn new(script: Vec<Step>) -> Peer {
        Peer::by_method(move |_| script.clone()).await
    }

    /// The script depends on the head of the request.
    pub async fn by_method(script: impl Fn(&str) -> Vec<Step> + Send + 'static) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let steps = script(&head);
                seen.lock().push(head);
                tokio::spawn(async move {
                    for step in steps {
                        match step {
                            Step::Send(bytes) => {
                                if stream.write_all(&bytes).await.is_err() {
                                    return;
                                }
                            }
                            Step::Read(count) => {
                                let mut scratch = vec![0; count];
                                if stream.read_exact(&mut scratch).await.is_err() {
                                    return;
                                }
                            }
                            Step::Pause(span) => tokio::time::sleep(span).await,
                        }
                    }
                });
            }
        });
        Peer { address, heads }
    }

    pub fn url(&self) -> Url {
        Url::parse(&format!("http://{}/f", self.address)).expect("valid URL")
    }

    /// The heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }
}

/// A step that sends text.
pub fn send(text: impl Into<String>) -> Step {
    Step::Send(text.into().into_bytes())
}
