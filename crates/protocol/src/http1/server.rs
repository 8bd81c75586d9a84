//! The server's end of a connection: one request after the other, answered in order.
//!
//! The caller drives it: `while let Some(request) = connection.next_request().await? { … respond … }`. Calling
//! `next_request` again matters even after an error answer: it closes the connection so that the answer arrives.
//! Every future may be dropped; a connection whose answer was cut that way takes no further request.
//!
//! An idle connection costs about 5 KiB without TLS (4 KiB of buffer), with TLS what OpenSSL keeps besides.

use super::Limits;
use super::body::Body;
pub use super::body::BodyError;
use super::compose;
use super::head::{self, Refusal, RequestHead};
use super::wire::Wire;
pub use crate::stream::FileSent;
use crate::stream::{ProbeOwner, Stream, TcpProbe};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use penstock_model::TcpSummary;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

/// An unread request body up to this size is read and thrown away, so that the connection can go on.
const DRAIN_BYTES_MAX: u64 = 64 << 10;
/// Files up to this size leave in one write with their head.
const SMALL_FILE_BYTES_MAX: u64 = 64 << 10;
/// How long a connection that is closed early is read on, so that the client sees the answer, not a reset.
const LINGER: Duration = Duration::from_secs(2);
/// Bytes kept of what a client sends while its request is still being worked on.
const PIPELINED_BYTES_MAX: usize = 64 << 10;

/// A request's head.
#[derive(Debug, Clone)]
pub struct Request {
    /// Any token, so that the methods of WebDAV are there.
    pub method: Method,
    /// As the client sent it: still percent-encoded, with its query.
    pub target: String,
    /// With lower-case names.
    pub headers: HeaderMap,
    /// How the body ends.
    pub body: BodyLength,
}

/// How a request's body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// There is none.
    Empty,
    /// After this many bytes.
    Fixed(u64),
    /// With the last chunk.
    Chunked,
}

impl Request {
    /// The target's path, still percent-encoded, without query. Also that of an absolute target (RFC 9112 §3.2.2).
    pub fn path(&self) -> &str {
        let target = self.target.split(['?', '#']).next().unwrap_or_default();
        match target.split_once("://") {
            Some((scheme, rest)) if !scheme.contains('/') => {
                rest.find('/').map_or("/", |at| &rest[at..])
            }
            Some(_) | None => target,
        }
    }

    /// What follows the first `?`, still percent-encoded.
    pub fn query(&self) -> Option<&str> {
        let target = self.target.split('#').next().unwrap_or_default();
        target.split_once('?').map(|(_, query)| query)
    }
}

/// Why there is no next request. The client was answered where that made sense; drop the connection.
#[derive(Debug, Error)]
pub enum RequestError {
    /// What came is no request that can be accepted.
    #[error("request of {peer} refused with {status}: {why}")]
    Refused {
        /// The client.
        peer: SocketAddr,
        /// What it was answered.
        status: StatusCode,
        /// Why.
        why: String,
    },
    /// The connection ended or failed in the middle of a head.
    #[error("{peer} went away in the middle of a request: {why}")]
    Broken {
        /// The client.
        peer: SocketAddr,
        /// What happened.
        why: io::Error,
    },
}

/// One accepted connection.
pub struct Connection {
    wire: Wire,
    limits: Limits,
    peer: SocketAddr,
    state: State,
    probes: ProbeOwner,
}

/// What a connection is doing.
enum State {
    /// Between requests.
    Idle,
    /// A request was handed out.
    Serving(Serving),
    /// Its last answer is out; to be closed with care.
    Closing,
    /// Cut in the middle of an answer, or failed: nothing more can be said.
    Broken,
}

/// The request being served.
#[derive(Clone, Copy)]
struct Serving {
    body: Body,
    /// The client holds its body back until it is told to continue.
    awaits_continue: bool,
    head_only: bool,
    modern: bool,
    keep_alive: bool,
    answer: Answer,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Outstanding,
    /// The body is being written, in chunks or (for HTTP/1.0) until the connection closes.
    Streaming,
}

/// How an answer's body is announced.
#[derive(Clone, Copy)]
enum Announce {
    Length(u64),
    Chunks,
}

impl Connection {
    /// Takes over a connection that was just accepted.
    pub fn new(stream: Stream, limits: Limits) -> Connection {
        // A client that has gone already has no address; its first read will end the connection.
        let peer = stream
            .peer_addr()
            .unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        Connection {
            wire: Wire::new(stream),
            limits,
            peer,
            state: State::Idle,
            probes: ProbeOwner::default(),
        }
    }

    /// The client's address (unspecified when it had gone before it was asked for).
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// State of the TCP connection.
    pub fn tcp_info(&self) -> Option<TcpSummary> {
        self.wire.stream.tcp_info()
    }

    /// A view of the TCP connection for another task. Errors: no descriptor left.
    pub fn tcp_probe(&mut self) -> io::Result<TcpProbe> {
        self.probes.probe(&self.wire.stream)
    }

    /// True when the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.wire.stream.is_tls()
    }

    /// The next request; `None` when the client closed the connection, sent nothing for the idle timeout, or was
    /// told that the connection ends. A malformed request is answered here (400, 408, 417, 431, 501, 505).
    pub async fn next_request(&mut self) -> Result<Option<Request>, RequestError> {
        match std::mem::replace(&mut self.state, State::Broken) {
            State::Idle => self.state = State::Idle,
            State::Closing => {
                self.close_gently().await;
                return Ok(None);
            }
            // Served without an answer, or cut in the middle of one: the client must not take what follows for it.
            State::Serving(_) | State::Broken => return Ok(None),
        }
        if self.wire.unread().is_empty() {
            self.wire.shrink();
            match timeout(self.limits.idle_timeout, self.wire.fill()).await {
                Ok(Ok(count)) if count > 0 => {}
                Ok(Ok(_)) | Ok(Err(_)) | Err(_) => {
                    self.state = State::Closing;
                    self.close_gently().await;
                    return Ok(None);
                }
            }
        }
        let limit = self.limits.head_timeout;
        let read = match timeout(limit, self.read_head()).await {
            Ok(read) => read,
            Err(_) => Err(HeadError::Refused(Refusal {
                status: StatusCode::REQUEST_TIMEOUT,
                why: format!("the head took longer than {} s", limit.as_secs()),
            })),
        };
        match read {
            Ok(Some(head)) => Ok(Some(self.begin(head))),
            Ok(None) => Ok(None),
            Err(HeadError::Broken(why)) => {
                self.state = State::Broken;
                Err(RequestError::Broken {
                    peer: self.peer,
                    why,
                })
            }
            Err(HeadError::Refused(refusal)) => Err(self.refuse(refusal).await),
        }
    }

    /// Reads until a head is complete and takes it from the buffer. `None`: closed between requests.
    async fn read_head(&mut self) -> Result<Option<RequestHead>, HeadError> {
        let max = self.limits.head_bytes_max;
        let mut searched = 0;
        loop {
            let empty_lines = head::leading_empty_lines(self.wire.unread());
            if searched == 0 && empty_lines > 0 {
                self.wire.consume(empty_lines);
            }
            let unread = self.wire.unread();
            match head::head_end(unread, searched) {
                Some(end) if end <= max => {
                    let parsed = head::parse_request(&unread[..end], self.limits.headers_max);
                    let parsed = parsed.map_err(HeadError::Refused)?;
                    self.wire.consume(end);
                    return Ok(Some(parsed));
                }
                Some(_) => return Err(HeadError::Refused(Refusal::too_large(max))),
                None if unread.len() >= max => {
                    return Err(HeadError::Refused(Refusal::too_large(max)));
                }
                None => head::check_lines(unread, searched).map_err(HeadError::Refused)?,
            }
            searched = unread.len();
            let nothing_yet = unread.len() <= 1;
            match self.wire.fill().await {
                Ok(0) if nothing_yet => return Ok(None),
                Ok(0) => return Err(HeadError::Broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(why) => return Err(HeadError::Broken(why)),
            }
        }
    }

    fn begin(&mut self, head: RequestHead) -> Request {
        let body = match head.body {
            BodyLength::Empty => Body::Done,
            BodyLength::Fixed(length) => Body::fixed(length),
            BodyLength::Chunked => Body::ChunkSize,
        };
        self.state = State::Serving(Serving {
            body,
            awaits_continue: head.expects_continue && !body.is_done(),
            head_only: head.method == Method::HEAD,
            modern: head.modern,
            keep_alive: head.keep_alive,
            answer: Answer::Outstanding,
        });
        Request {
            method: head.method,
            target: head.target,
            headers: head.headers,
            body: head.body,
        }
    }

    async fn refuse(&mut self, refusal: Refusal) -> RequestError {
        self.state = State::Broken;
        let text = format!("{}\n", refusal.why);
        let mut out = Vec::with_capacity(256);
        compose::status_line(&mut out, refusal.status);
        compose::date(&mut out);
        out.extend_from_slice(b"Content-Type: text/plain\r\nConnection: close\r\n");
        compose::number(&mut out, "Content-Length", text.len() as u64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(text.as_bytes());
        if self.wire.write_all(&out, LINGER).await.is_ok() {
            self.state = State::Closing;
            self.close_gently().await;
        }
        RequestError::Refused {
            peer: self.peer,
            status: refusal.status,
            why: refusal.why,
        }
    }

    /// Says goodbye, then reads what the client still sends for a moment: closing a socket with unread bytes would
    /// reset the connection and could destroy the answer on its way.
    async fn close_gently(&mut self) {
        self.state = State::Broken;
        let lingering = async {
            let _ = self.wire.stream.shutdown().await;
            let mut scratch = vec![0; 16 << 10];
            while let Ok(count) = self.wire.read(&mut scratch, LINGER).await {
                if count == 0 {
                    break;
                }
            }
        };
        // Either the client has closed too, or it had its time.
        let _ = timeout(LINGER, lingering).await;
    }

    /// Reads some bytes of the request's body into `buffer` (which must not be empty); 0 at the end. Fills as much
    /// as is there. Before the first byte, a client that waits for it is told to continue.
    pub async fn read_body(&mut self, buffer: &mut [u8]) -> Result<usize, BodyError> {
        let State::Serving(mut serving) = self.state else {
            return Ok(0);
        };
        let stall = self.limits.body_stall_timeout;
        if serving.awaits_continue {
            if self.wire.unread().is_empty() {
                self.state = State::Broken;
                self.wire
                    .write_all(b"HTTP/1.1 100 Continue\r\n\r\n", stall)
                    .await?;
            }
            serving.awaits_continue = false;
            self.state = State::Serving(serving);
        }
        let State::Serving(serving) = &mut self.state else {
            return Ok(0);
        };
        let read = serving.body.read(&mut self.wire, buffer, stall).await;
        if read.is_err() {
            serving.keep_alive = false;
        }
        read
    }

    /// Bytes of the request's body that were not read yet; `None` when it is chunked.
    pub fn body_remaining(&self) -> Option<u64> {
        match &self.state {
            State::Serving(serving) => serving.body.remaining(),
            State::Idle | State::Closing | State::Broken => Some(0),
        }
    }

    /// Answers with a whole body. Adds `Content-Length`, `Date` and `Connection`. An unread request body is drained
    /// when it is small; else the connection closes afterwards. For `HEAD` the body is only measured.
    pub async fn respond(
        &mut self,
        status: StatusCode,
        headers: HeaderMap,
        body: &[u8],
    ) -> io::Result<()> {
        let (serving, head) =
            self.answer_head(status, &headers, Announce::Length(body.len() as u64))?;
        let body = if serving.head_only || bodyless(status) {
            &[]
        } else {
            body
        };
        self.wire
            .write_parts(&[&head, body], self.limits.body_stall_timeout)
            .await?;
        self.answered(serving).await
    }

    /// Answers a `HEAD`: the length is announced, nothing follows.
    pub async fn respond_head_only(
        &mut self,
        status: StatusCode,
        headers: HeaderMap,
        content_length: u64,
    ) -> io::Result<()> {
        let (mut serving, head) =
            self.answer_head(status, &headers, Announce::Length(content_length))?;
        // Without HEAD the client waits for a body that will not come; only closing tells it.
        serving.keep_alive &= serving.head_only || bodyless(status) || content_length == 0;
        self.wire
            .write_all(&head, self.limits.body_stall_timeout)
            .await?;
        self.answered(serving).await
    }

    /// Answers with bytes of a file. The caller gives `Content-Range` and the like.
    ///
    /// Errors: `UnexpectedEof` when the file is shorter than the range, `TimedOut` when the client takes nothing;
    /// the connection is of no use afterwards.
    pub async fn send_file(
        &mut self,
        status: StatusCode,
        headers: HeaderMap,
        file: &File,
        range: Range<u64>,
    ) -> io::Result<FileSent> {
        let length = range.end.saturating_sub(range.start);
        let (serving, head) = self.answer_head(status, &headers, Announce::Length(length))?;
        let stall = self.limits.body_stall_timeout;
        let mut sent = FileSent::default();
        let started = Instant::now();
        if serving.head_only || bodyless(status) {
            self.wire.write_all(&head, stall).await?;
        } else if length <= SMALL_FILE_BYTES_MAX {
            let mut out = head;
            let body = out.len();
            out.resize(body + length as usize, 0);
            file.read_exact_at(&mut out[body..], range.start)?;
            sent.read_time = started.elapsed();
            self.wire.write_all(&out, stall).await?;
            sent.bytes = length;
            sent.network_time = started.elapsed() - sent.read_time;
        } else {
            self.wire.write_all(&head, stall).await?;
            sent = self
                .wire
                .stream
                .send_file(file, range.start, length, stall)
                .await?;
        }
        self.answered(serving).await?;
        Ok(sent)
    }

    /// Begins an answer whose length is not known: chunks, or for HTTP/1.0 bytes until the connection closes.
    pub async fn start_chunked(
        &mut self,
        status: StatusCode,
        headers: HeaderMap,
    ) -> io::Result<()> {
        let (mut serving, head) = self.answer_head(status, &headers, Announce::Chunks)?;
        self.wire
            .write_all(&head, self.limits.body_stall_timeout)
            .await?;
        serving.answer = Answer::Streaming;
        self.state = State::Serving(serving);
        Ok(())
    }

    /// Sends a piece at once. Empty pieces send nothing.
    pub async fn write_chunk(&mut self, piece: &[u8]) -> io::Result<()> {
        let serving = self.streaming()?;
        if !piece.is_empty() && !serving.head_only {
            let stall = self.limits.body_stall_timeout;
            self.state = State::Broken;
            if serving.modern {
                let size = format!("{:x}\r\n", piece.len());
                self.wire
                    .write_parts(&[size.as_bytes(), piece, b"\r\n"], stall)
                    .await?;
            } else {
                self.wire.write_all(piece, stall).await?;
            }
            self.state = State::Serving(serving);
        }
        Ok(())
    }

    /// Ends an answer that was begun with [`Connection::start_chunked`].
    pub async fn end_chunks(&mut self) -> io::Result<()> {
        let serving = self.streaming()?;
        self.state = State::Broken;
        if serving.modern && !serving.head_only {
            self.wire
                .write_all(b"0\r\n\r\n", self.limits.body_stall_timeout)
                .await?;
        }
        self.answered(serving).await
    }

    /// Resolves when the client has gone, or floods the connection while it waits for its answer. What it sends
    /// meanwhile is kept. For use beside long work; loses nothing when dropped.
    pub async fn peer_closed(&mut self) {
        while self.wire.unread().len() < PIPELINED_BYTES_MAX {
            match self.wire.fill().await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    fn streaming(&self) -> io::Result<Serving> {
        match self.state {
            State::Serving(serving) if serving.answer == Answer::Streaming => Ok(serving),
            State::Serving(_) | State::Idle | State::Closing | State::Broken => Err(out_of_turn()),
        }
    }

    /// Composes the head of the answer and decides whether the connection goes on. From here to `answered` the
    /// connection counts as broken, so that a dropped future cannot leave half an answer behind.
    fn answer_head(
        &mut self,
        status: StatusCode,
        headers: &HeaderMap,
        announce: Announce,
    ) -> io::Result<(Serving, Vec<u8>)> {
        let mut serving = match self.state {
            State::Serving(serving) if serving.answer == Answer::Outstanding => serving,
            State::Serving(_) | State::Idle | State::Closing | State::Broken => {
                return Err(out_of_turn());
            }
        };
        let until_close = matches!(announce, Announce::Chunks) && !serving.modern;
        // A client that was not told to continue may send its body or not: only closing is unambiguous.
        let drainable = serving
            .body
            .remaining()
            .is_some_and(|bytes| bytes <= DRAIN_BYTES_MAX);
        let asked_to_close = headers
            .get(CONNECTION)
            .is_some_and(|value| value.as_bytes() == b"close");
        serving.keep_alive &=
            drainable && !serving.awaits_continue && !asked_to_close && !until_close;

        let room = match announce {
            Announce::Length(length) if length <= SMALL_FILE_BYTES_MAX => length as usize,
            Announce::Length(_) | Announce::Chunks => 0,
        };
        let mut out = Vec::with_capacity(512 + room);
        compose::status_line(&mut out, status);
        if !headers.contains_key(DATE) {
            compose::date(&mut out);
        }
        compose::headers(
            &mut out,
            headers,
            &[CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION],
        );
        match announce {
            // RFC 9110 §8.6: neither of them in 1xx and 204.
            _ if status.is_informational() || status == StatusCode::NO_CONTENT => {}
            Announce::Length(length) => compose::number(&mut out, "Content-Length", length),
            Announce::Chunks if serving.modern => {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n")
            }
            Announce::Chunks => {}
        }
        let connection = match (serving.keep_alive, serving.modern) {
            (true, true) => None,
            (true, false) => Some("keep-alive"),
            (false, _) => Some("close"),
        };
        if let Some(connection) = connection {
            compose::header(&mut out, &CONNECTION, &HeaderValue::from_static(connection));
        }
        out.extend_from_slice(b"\r\n");
        self.state = State::Broken;
        Ok((serving, out))
    }

    /// The answer is out: makes ready for the next request, or for closing.
    async fn answered(&mut self, mut serving: Serving) -> io::Result<()> {
        self.wire.stream.flush().await?;
        if serving.keep_alive && !serving.body.is_done() {
            let draining = async {
                let mut scratch = vec![0; 4 << 10];
                while serving
                    .body
                    .read(&mut self.wire, &mut scratch, LINGER)
                    .await?
                    > 0
                {}
                Ok::<(), BodyError>(())
            };
            serving.keep_alive = matches!(timeout(LINGER, draining).await, Ok(Ok(())));
        }
        self.state = if serving.keep_alive {
            State::Idle
        } else {
            State::Closing
        };
        Ok(())
    }
}

/// Why reading a head came to nothing.
enum HeadError {
    Refused(Refusal),
    Broken(io::Error),
}

/// Answers with these statuses end with their head.
fn bodyless(status: StatusCode) -> bool {
    status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
}

fn out_of_turn() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        "no request waits for this answer: it was answered already, or the connection was cut in the middle of it",
    )
}
