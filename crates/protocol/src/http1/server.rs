//! The server's end of a connection: one request after the other, answered in order.
//!
//! The caller drives it: `while let Some(request) = connection.next_request().await? { … respond … }`.
//! Calling `next_request` again matters even after an error answer: it closes the connection so that the
//! answer arrives. Every future may be dropped; a connection whose answer was cut that way takes no further
//! request.
//!
//! An idle connection costs about 6 KiB of memory here (4 KiB of it the buffer); TLS adds about 18 KiB.

mod answer;
mod request;

pub use super::body::{BodyError, BodyLength};
pub use crate::stream::FileSent;
pub use request::{Request, RequestError};

use super::Limits;
use super::body::Body;
use super::compose;
use super::head::{self, HeadRejection, LineEnd, RequestHead};
use super::wire::Wire;
use crate::pace::Pace;
use crate::stream::{ProbeOwner, Stream, TcpProbe};
use http::{Method, StatusCode};
use penstock_model::{TcpSummary, TimeSpan};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

/// How long a connection that is closed early is read on, so that the client sees the answer, not a reset.
const LINGER: Duration = Duration::from_secs(2);
/// The same for one that is closed while it waits: its client has nothing to lose but a request that is on its way.
const IDLE_LINGER: Duration = Duration::from_millis(250);
/// What is said to whose request comes when its connection has to go.
const BUSY_TEXT: &str = "too many connections, or the service is ending; try again in a while\n";
const BUSY_RETRY_SECONDS: u64 = 10;
/// Bytes kept of what a client sends while its request is still being worked on.
const PIPELINED_BYTES_MAX: usize = 64 << 10;

/// One accepted connection.
pub struct Connection {
    wire: Wire,
    limits: Limits,
    peer: SocketAddr,
    begun: Instant,
    state: ConnectionPhase,
    probes: ProbeOwner,
    /// Of the request's body.
    pace: Pace,
    /// Of the latest answer.
    told: Option<StatusCode>,
}

/// What a connection is doing.
#[derive(Clone, Copy)]
enum ConnectionPhase {
    /// Between requests.
    Idle,
    /// A request was handed out.
    Serving(CurrentRequest),
    /// Its last answer is out; to be closed with care.
    Closing,
    /// Cut in the middle of an answer, or failed: nothing more can be said.
    Broken,
}

/// The request being served.
#[derive(Clone, Copy)]
struct CurrentRequest {
    body: Body,
    /// The client holds its body back until it is told to continue.
    awaits_continue: bool,
    head_only: bool,
    modern: bool,
    keep_alive: bool,
    answer: ReplyProgress,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplyProgress {
    Outstanding,
    /// The body is being written, in chunks or (for HTTP/1.0) until the connection closes.
    Streaming,
}

impl Connection {
    /// Takes over a connection that was just accepted.
    pub fn new(stream: Stream, limits: Limits) -> Connection {
        // A client that has gone already has no address; its first read will end the connection.
        let peer = stream
            .peer_addr()
            .unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        stream.bear_silence(limits.body_stall_timeout);
        let mut wire = Wire::new(stream);
        let pace = Pace::new(limits.body_pace.with_pauses(limits.body_stall_timeout));
        wire.pace = pace;
        Connection {
            wire,
            pace,
            limits,
            peer,
            begun: Instant::now(),
            state: ConnectionPhase::Idle,
            probes: ProbeOwner::default(),
            told: None,
        }
    }

    /// The client's address (unspecified when it had gone before it was asked for).
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// The status that the latest request was answered with; `None` before its answer begins.
    pub fn answered_with(&self) -> Option<StatusCode> {
        self.told
    }

    /// Makes the answer to the request at hand the connection's last.
    pub fn close_after_answer(&mut self) {
        if let ConnectionPhase::Serving(serving) = &mut self.state {
            serving.keep_alive = false;
        }
    }

    /// State of the TCP connection. Its counters run from the begin of the request at hand.
    pub fn tcp_info(&self) -> Option<TcpSummary> {
        self.wire.tcp_info()
    }

    /// A view of the TCP connection for another task. Errors: no descriptor left.
    pub fn tcp_probe(&mut self) -> io::Result<TcpProbe> {
        self.probes.probe(&self.wire.stream)
    }

    /// True when the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.wire.stream.is_tls()
    }

    /// The next request; `None` when the client closed the connection, sent nothing for the idle timeout,
    /// or was told that the connection ends. A malformed request is answered here (400, 408, 414, 417, 431,
    /// 501, 505).
    pub async fn next_request(&mut self) -> Result<Option<Request>, RequestError> {
        match std::mem::replace(&mut self.state, ConnectionPhase::Broken) {
            ConnectionPhase::Idle => self.state = ConnectionPhase::Idle,
            ConnectionPhase::Closing => {
                self.close_gently().await;
                return Ok(None);
            }
            // Served without an answer, or cut in the middle of one: the client must not take what follows
            // for it.
            ConnectionPhase::Serving(_) | ConnectionPhase::Broken => return Ok(None),
        }
        if self.wire.unread().is_empty() {
            self.wire.tidy();
            match timeout(self.limits.idle_timeout, self.wire.fill()).await {
                Ok(Ok(count)) if count > 0 => {}
                Ok(Ok(_)) | Ok(Err(_)) | Err(_) => {
                    self.state = ConnectionPhase::Closing;
                    self.close_gently().await;
                    return Ok(None);
                }
            }
        }
        let limit = self.limits.head_timeout;
        let read = match timeout(limit, self.read_head()).await {
            Ok(read) => read,
            Err(_) => Err(HeadError::Refused(HeadRejection {
                status: StatusCode::REQUEST_TIMEOUT,
                why: format!("the head took longer than {}", TimeSpan(limit)),
            })),
        };
        match read {
            Ok(Some(head)) => Ok(Some(self.begin(head))),
            Ok(None) => Ok(None),
            Err(HeadError::Broken(why)) => {
                self.state = ConnectionPhase::Broken;
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
            // Up to the first byte that is not of an empty line, also when the network cuts one in two.
            if empty_lines > 0 {
                self.wire.consume(empty_lines);
                searched = 0;
            }
            let unread = self.wire.unread();
            match head::head_end(unread, searched) {
                Some(end) if end <= max => {
                    let parsed = head::parse_request(&unread[..end], self.limits.headers_max);
                    let parsed = parsed.map_err(HeadError::Refused)?;
                    self.wire.consume(end);
                    return Ok(Some(parsed));
                }
                Some(_) => return Err(HeadError::Refused(HeadRejection::too_large(unread, max))),
                None if unread.len() >= max => {
                    return Err(HeadError::Refused(HeadRejection::too_large(unread, max)));
                }
                None => head::check_lines(unread, searched, LineEnd::Crlf)
                    .map_err(HeadError::Refused)?,
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
        self.told = None;
        self.wire.begin_request();
        self.pace.restart();
        self.wire.pace.restart();
        let body = match head.body {
            BodyLength::Empty => Body::Done,
            BodyLength::Fixed(length) => Body::fixed(length),
            BodyLength::Chunked => Body::ChunkSize,
        };
        self.state = ConnectionPhase::Serving(CurrentRequest {
            body,
            awaits_continue: head.expects_continue && !body.is_done(),
            head_only: head.method == Method::HEAD,
            modern: head.modern,
            keep_alive: head.keep_alive && self.begun.elapsed() < self.limits.age_max,
            answer: ReplyProgress::Outstanding,
        });
        Request {
            method: head.method,
            target: head.target,
            headers: head.headers,
            body: head.body,
        }
    }

    async fn refuse(&mut self, refusal: HeadRejection) -> RequestError {
        self.state = ConnectionPhase::Broken;
        let text = format!("{}\n", refusal.why);
        let mut out = Vec::with_capacity(256);
        compose::status_line(&mut out, refusal.status);
        compose::date(&mut out);
        out.extend_from_slice(b"Content-Type: text/plain\r\nConnection: close\r\n");
        compose::number(&mut out, "Content-Length", text.len() as u64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(text.as_bytes());
        if self.wire.write_all(&out, LINGER).await.is_ok() {
            self.state = ConnectionPhase::Closing;
            self.close_gently().await;
        }
        RequestError::Refused {
            peer: self.peer,
            status: refusal.status,
            why: refusal.why,
        }
    }

    /// Ends a connection that waits for a request, because others need its place or the service ends. A request of which
    /// something has come is answered with 503, so that its client knows that nothing was done. Of one that is still on its
    /// way the client learns by the orderly end of the connection that it was not served (RFC 9112 §9.5, §9.6).
    pub async fn dismiss(&mut self) {
        match self.state {
            ConnectionPhase::Idle => {}
            ConnectionPhase::Closing => return self.close_gently().await,
            ConnectionPhase::Serving(_) | ConnectionPhase::Broken => return,
        }
        self.state = ConnectionPhase::Broken;
        // What has come by now, without waiting.
        let comes = timeout(Duration::ZERO, self.wire.fill()).await;
        let has_gone = matches!(comes, Ok(Ok(0) | Err(_)));
        if self.wire.unread().is_empty() || has_gone {
            return self.close_within(IDLE_LINGER).await;
        }
        let mut out = Vec::with_capacity(256);
        compose::status_line(&mut out, StatusCode::SERVICE_UNAVAILABLE);
        compose::date(&mut out);
        out.extend_from_slice(b"Content-Type: text/plain\r\nConnection: close\r\n");
        compose::number(&mut out, "Retry-After", BUSY_RETRY_SECONDS);
        compose::number(&mut out, "Content-Length", BUSY_TEXT.len() as u64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(BUSY_TEXT.as_bytes());
        if self.wire.write_all(&out, LINGER).await.is_ok() {
            self.close_gently().await;
        }
    }

    /// Says goodbye, then reads what the client still sends for a moment: closing a socket with unread
    /// bytes would reset the connection and could destroy the answer on its way.
    async fn close_gently(&mut self) {
        self.close_within(LINGER).await;
    }

    async fn close_within(&mut self, linger: Duration) {
        self.state = ConnectionPhase::Broken;
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
        let _ = timeout(linger, lingering).await;
    }

    /// Reads some bytes of the request's body into `buffer` (which must not be empty); 0 at the end. Fills
    /// as much as is there. Before the first byte, a client that waits for it is told to continue.
    pub async fn read_body(&mut self, buffer: &mut [u8]) -> Result<usize, BodyError> {
        self.tell_to_continue().await?;
        let stall = self.limits.body_stall_timeout;
        let serving = match &mut self.state {
            ConnectionPhase::Serving(serving) => serving,
            ConnectionPhase::Idle | ConnectionPhase::Closing => return Ok(0),
            // Not the end: a body that was cut must not pass for a whole one.
            ConnectionPhase::Broken => {
                return Err(BodyError::Io(io::ErrorKind::NotConnected.into()));
            }
        };
        let read = read_at_pace(
            &mut serving.body,
            &mut self.wire,
            buffer,
            stall,
            &mut self.pace,
        )
        .await;
        if read.is_err() {
            serving.keep_alive = false;
        }
        read
    }

    /// Waits until something of the request's body has come, and takes nothing of it. A client that waits for it is told
    /// to continue. For what costs more than a connection and should not be held for who sends nothing.
    pub async fn body_begins(&mut self) -> Result<(), BodyError> {
        self.tell_to_continue().await?;
        let stall = self.limits.body_stall_timeout;
        let begun = timeout(stall, self.body_comes()).await;
        let begun = begun.unwrap_or(Err(BodyError::Stalled { after: stall }));
        if let (Err(_), ConnectionPhase::Serving(serving)) = (&begun, &mut self.state) {
            serving.keep_alive = false;
        }
        begun
    }

    /// The same without a word to the client and without a bound. Loses nothing when dropped.
    pub async fn body_comes(&mut self) -> Result<(), BodyError> {
        let ConnectionPhase::Serving(serving) = &self.state else {
            return Err(BodyError::Io(io::ErrorKind::NotConnected.into()));
        };
        if serving.body.is_done() || !self.wire.unread().is_empty() {
            return Ok(());
        }
        match self.wire.fill().await? {
            0 => Err(BodyError::TooShort {
                missing: "nothing of it came".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// The client holds the request's body back until it is told to continue (RFC 9110 §10.1.1).
    pub fn holds_body_back(&self) -> bool {
        let ConnectionPhase::Serving(serving) = &self.state else {
            return false;
        };
        serving.awaits_continue && self.wire.unread().is_empty()
    }

    /// Tells a client that waits for it to send the request's body. Not to be dropped before it is done.
    pub async fn tell_to_continue(&mut self) -> io::Result<()> {
        let ConnectionPhase::Serving(mut serving) = self.state else {
            return Ok(());
        };
        if !serving.awaits_continue {
            return Ok(());
        }
        if self.wire.unread().is_empty() {
            self.state = ConnectionPhase::Broken;
            let told = b"HTTP/1.1 100 Continue\r\n\r\n";
            self.wire
                .write_all(told, self.limits.body_stall_timeout)
                .await?;
        }
        serving.awaits_continue = false;
        self.state = ConnectionPhase::Serving(serving);
        Ok(())
    }

    /// Resolves when the client has gone, or floods the connection while it waits for its answer. What it
    /// sends meanwhile is kept. For use beside long work; loses nothing when dropped.
    pub async fn peer_closed(&mut self) {
        while self.wire.unread().len() < PIPELINED_BYTES_MAX {
            match self.wire.fill().await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

/// Reads some bytes of a body, and judges how fast they come. Chunk sizes that drip count as nothing.
async fn read_at_pace(
    body: &mut Body,
    wire: &mut Wire,
    buffer: &mut [u8],
    stall: Duration,
    pace: &mut Pace,
) -> Result<usize, BodyError> {
    // One wait, however often it is judged: else a body could stand still for longer.
    let mut reading = pin!(body.read(wire, buffer, stall));
    loop {
        let begun = Instant::now();
        let read = timeout(pace.until_judged(), &mut reading).await;
        let moved = match &read {
            Ok(Ok(count)) => *count as u64,
            Ok(Err(_)) | Err(_) => 0,
        };
        pace.step(begun.elapsed(), moved)
            .map_err(BodyError::TooSlow)?;
        if let Ok(read) = read {
            return read;
        }
    }
}

/// Why reading a head came to nothing.
enum HeadError {
    Refused(HeadRejection),
    Broken(io::Error),
}
