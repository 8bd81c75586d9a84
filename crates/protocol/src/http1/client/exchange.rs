//! One request and its response on one connection.

use super::super::body::Body;
use super::super::compose;
use super::super::head::{self, ResponseLength};
use super::super::wire::Wire;
use super::connect::Endpoint;
use super::pool::Pool;
use super::{ClientConfig, ClientError, FileSent, OWN_HEADERS, Outgoing};
use crate::stream::{ProbeOwner, TcpProbe};
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use penstock_model::TcpSummary;
use penstock_model::url::redact;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use url::Url;

/// How long a server may think about `Expect: 100-continue` before it gets the body anyway.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer is waited for after the server broke an upload off.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a response's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Interim responses (1xx) before the final one.
const INTERIM_MAX: usize = 8;
/// Bytes of an early answer's body that are shown.
const DETAIL_BYTES_MAX: u64 = 1024;
/// Between pieces of this size an upload looks for an early answer.
const PIECE_BYTES: u64 = 8 << 20;

/// What follows a request's head.
pub(super) enum RequestBody<'bytes> {
    None,
    Bytes(&'bytes [u8]),
    Stream {
        length: Option<u64>,
        expect_continue: bool,
    },
}

/// A connection with a request on it, until the head of the response.
pub(super) struct Exchange {
    wire: Wire,
    probes: ProbeOwner,
    pool: Arc<Pool>,
    endpoint: Endpoint,
    method: Method,
    url: Url,
    response_timeout: Duration,
    stall_timeout: Duration,
    user_agent: String,
}

impl Exchange {
    pub(super) fn new(
        wire: Wire,
        config: &ClientConfig,
        pool: &Arc<Pool>,
        endpoint: Endpoint,
        request: &Outgoing,
    ) -> Exchange {
        Exchange {
            wire,
            probes: ProbeOwner::default(),
            pool: Arc::clone(pool),
            endpoint,
            method: request.method.clone(),
            url: request.url.clone(),
            response_timeout: config.response_timeout,
            stall_timeout: config.stall_timeout,
            user_agent: config.user_agent.clone(),
        }
    }

    fn shown(&self) -> String {
        redact(self.url.as_str())
    }

    /// Writes the head, and the body if it is in memory.
    pub(super) async fn write_request(
        mut self,
        request: &Outgoing,
        body: &RequestBody<'_>,
    ) -> Result<Exchange, ClientError> {
        let head = self.compose_head(&request.headers, body);
        let bytes: &[u8] = match body {
            RequestBody::Bytes(bytes) => bytes,
            RequestBody::None | RequestBody::Stream { .. } => &[],
        };
        let written = self
            .wire
            .write_parts(&[&head, bytes], self.stall_timeout)
            .await;
        let written = match written {
            Ok(()) => self.wire.stream.flush().await,
            Err(why) => Err(why),
        };
        match written {
            Ok(()) => Ok(self),
            Err(why) => Err(self.write_failed(why).await),
        }
    }

    fn compose_head(&self, headers: &HeaderMap, body: &RequestBody<'_>) -> Vec<u8> {
        let mut target = self.url.path().to_owned();
        if target.is_empty() {
            target.push('/');
        }
        if let Some(query) = self.url.query() {
            target.push('?');
            target.push_str(query);
        }
        let mut out = Vec::with_capacity(1024);
        compose::request_line(&mut out, &self.method, &target);
        out.extend_from_slice(format!("Host: {}\r\n", self.endpoint.host_header()).as_bytes());
        if !headers.contains_key(USER_AGENT)
            && let Ok(agent) = HeaderValue::from_str(&self.user_agent)
        {
            compose::header(&mut out, &USER_AGENT, &agent);
        }
        compose::headers(&mut out, headers, &OWN_HEADERS);
        match body {
            // RFC 9110 §8.6: methods that usually have content say so when they have none.
            RequestBody::None if [Method::PUT, Method::POST].contains(&self.method) => {
                compose::number(&mut out, "Content-Length", 0);
            }
            RequestBody::None => {}
            RequestBody::Bytes(bytes) => {
                compose::number(&mut out, "Content-Length", bytes.len() as u64)
            }
            RequestBody::Stream {
                length: Some(length),
                ..
            } => {
                compose::number(&mut out, "Content-Length", *length);
            }
            RequestBody::Stream { length: None, .. } => {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            }
        }
        if let RequestBody::Stream {
            expect_continue: true,
            ..
        } = body
        {
            out.extend_from_slice(b"Expect: 100-continue\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out
    }

    /// What to say when a write failed: the server's answer if it sent one before it closed, else the failure.
    async fn write_failed(&mut self, why: io::Error) -> ClientError {
        if why.kind() == io::ErrorKind::TimedOut {
            return self.timeout("sending the body", self.stall_timeout);
        }
        let spoken = timeout(LAST_WORDS_TIMEOUT, self.read_head(Interim::Skip)).await;
        match spoken {
            Ok(Ok(head)) => self.early_answer(head).await,
            Ok(Err(_)) | Err(_) => ClientError::Closed {
                url: self.shown(),
                when: "while the request was being sent",
                why,
            },
        }
    }

    async fn early_answer(&mut self, head: head::ResponseHead) -> ClientError {
        let mut body = body_of(head.length);
        let mut detail = vec![0; DETAIL_BYTES_MAX as usize];
        let mut got = 0;
        while got < detail.len() {
            match body
                .read(&mut self.wire, &mut detail[got..], LAST_WORDS_TIMEOUT)
                .await
            {
                Ok(0) | Err(_) => break,
                Ok(count) => got += count,
            }
        }
        let detail = String::from_utf8_lossy(&detail[..got]).trim().to_owned();
        ClientError::EarlyAnswer {
            url: self.shown(),
            status: head.status,
            detail,
        }
    }

    fn timeout(&self, phase: &'static str, limit: Duration) -> ClientError {
        ClientError::Timeout {
            url: self.shown(),
            phase,
            limit,
        }
    }

    /// Waits for the final response's head.
    pub(super) async fn into_response(mut self) -> Result<Incoming, ClientError> {
        let limit = self.response_timeout;
        match timeout(limit, self.read_head(Interim::Skip)).await {
            Ok(Ok(head)) => Ok(self.into_incoming(head)),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(self.timeout("waiting for the response", limit)),
        }
    }

    /// Waits for permission to send the body.
    pub(super) async fn await_continue(
        mut self,
        length: Option<u64>,
    ) -> Result<UploadStart, ClientError> {
        match timeout(CONTINUE_TIMEOUT, self.read_head(Interim::StopAtContinue)).await {
            Err(_) => Ok(UploadStart::Ready(self.into_upload(length))),
            Ok(Ok(head)) if head.status == StatusCode::CONTINUE => {
                Ok(UploadStart::Ready(self.into_upload(length)))
            }
            // The body stays here, so the server would take the next request for it: not to be used again.
            Ok(Ok(head)) => {
                let mut incoming = self.into_incoming(head);
                incoming.reusable = false;
                Ok(UploadStart::Answered(incoming))
            }
            Ok(Err(why)) => Err(why),
        }
    }

    pub(super) fn into_upload(self, length: Option<u64>) -> Upload {
        Upload {
            exchange: self,
            length,
            sent: 0,
        }
    }

    fn into_incoming(self, head: head::ResponseHead) -> Incoming {
        let mut incoming = Incoming {
            status: head.status,
            headers: head.headers,
            content_length: head.content_length,
            url: self.url,
            body: body_of(head.length),
            got: 0,
            stall_timeout: self.stall_timeout,
            reusable: head.keep_alive,
            connection: Some(Box::new(Kept {
                wire: self.wire,
                probes: self.probes,
                pool: self.pool,
                endpoint: self.endpoint,
            })),
            last_tcp: None,
        };
        incoming.release_at_end();
        incoming
    }

    /// Reads heads until the one wanted. Loses nothing when dropped.
    async fn read_head(&mut self, interim: Interim) -> Result<head::ResponseHead, ClientError> {
        for _ in 0..=INTERIM_MAX {
            let head = self.read_one_head().await?;
            let continues =
                head.status == StatusCode::CONTINUE && interim == Interim::StopAtContinue;
            if !head.status.is_informational() || continues {
                return Ok(head);
            }
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                break;
            }
        }
        let why = "interim responses without end, or a change of protocol".to_owned();
        Err(ClientError::Malformed {
            url: self.shown(),
            why,
        })
    }

    async fn read_one_head(&mut self) -> Result<head::ResponseHead, ClientError> {
        let mut searched = 0;
        loop {
            let unread = self.wire.unread();
            if let Some(end) = head::head_end(unread, searched).filter(|end| *end <= HEAD_BYTES_MAX)
            {
                let parsed = head::parse_response(&unread[..end], &self.method);
                let parsed = parsed.map_err(|why| ClientError::Malformed {
                    url: self.shown(),
                    why,
                })?;
                self.wire.consume(end);
                return Ok(parsed);
            }
            searched = unread.len();
            if searched >= HEAD_BYTES_MAX {
                let why = format!("its head is longer than {HEAD_BYTES_MAX} bytes");
                return Err(ClientError::Malformed {
                    url: self.shown(),
                    why,
                });
            }
            let why = match self.wire.fill().await {
                Ok(count) if count > 0 => continue,
                Ok(_) => io::ErrorKind::UnexpectedEof.into(),
                Err(why) => why,
            };
            return Err(match searched {
                0 => ClientError::Closed {
                    url: self.shown(),
                    when: "before it answered",
                    why,
                },
                _ => ClientError::Io {
                    url: self.shown(),
                    why,
                },
            });
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Interim {
    Skip,
    StopAtContinue,
}

fn body_of(length: ResponseLength) -> Body {
    match length {
        ResponseLength::Empty => Body::Done,
        ResponseLength::Fixed(length) => Body::fixed(length),
        ResponseLength::Chunked => Body::ChunkSize,
        ResponseLength::UntilClose => Body::UntilClose,
    }
}

/// How an upload begins.
pub enum UploadStart {
    /// The server wants the body (or did not say).
    Ready(Upload),
    /// The server answered without wanting the body: an error, or a redirect.
    Answered(Incoming),
}

/// A request whose body is being sent. Dropped before [`Upload::finish`], the connection closes, and the server sees
/// a body that was cut off.
pub struct Upload {
    exchange: Exchange,
    length: Option<u64>,
    sent: u64,
}

impl Upload {
    /// Bytes of the body sent so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// State of the TCP connection.
    pub fn tcp_info(&self) -> Option<TcpSummary> {
        self.exchange.wire.stream.tcp_info()
    }

    /// A view of the TCP connection for another task. Errors: no descriptor left.
    pub fn tcp_probe(&mut self) -> io::Result<TcpProbe> {
        self.exchange.probes.probe(&self.exchange.wire.stream)
    }

    /// The server's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.exchange.wire.stream.peer_addr().ok()
    }

    /// Sends a piece of the body. After an error the upload is of no use. Errors: `EarlyAnswer` when the server
    /// answered instead of reading on, `TooLong` beyond the announced length.
    pub async fn write_all(&mut self, piece: &[u8]) -> Result<(), ClientError> {
        self.claim(piece.len() as u64)?;
        self.look_for_answer().await?;
        if piece.is_empty() {
            return Ok(());
        }
        let stall = self.exchange.stall_timeout;
        let written = match self.length {
            Some(_) => self.exchange.wire.write_all(piece, stall).await,
            None => {
                let size = format!("{:x}\r\n", piece.len());
                self.exchange
                    .wire
                    .write_parts(&[size.as_bytes(), piece, b"\r\n"], stall)
                    .await
            }
        };
        match written {
            Ok(()) => {
                self.sent += piece.len() as u64;
                Ok(())
            }
            Err(why) => Err(self.exchange.write_failed(why).await),
        }
    }

    /// Sends a range of a file, by the kernel where there is no TLS. Errors as [`Upload::write_all`], and `File`.
    pub async fn send_file(
        &mut self,
        file: &File,
        range: Range<u64>,
    ) -> Result<FileSent, ClientError> {
        let mut total = FileSent::default();
        let mut position = range.start;
        self.claim(range.end.saturating_sub(range.start))?;
        while position < range.end {
            self.look_for_answer().await?;
            let piece = (range.end - position).min(PIECE_BYTES);
            let stall = self.exchange.stall_timeout;
            let wire = &mut self.exchange.wire;
            if self.length.is_none() {
                let size = format!("{piece:x}\r\n");
                if let Err(why) = wire.write_all(size.as_bytes(), stall).await {
                    return Err(self.exchange.write_failed(why).await);
                }
            }
            let mut sending = wire.stream.send_file(file, position, piece, stall).await;
            if self.length.is_none() && sending.is_ok() {
                sending = wire.write_all(b"\r\n", stall).await.and(sending);
            }
            match sending {
                Ok(sent) => {
                    total.bytes += sent.bytes;
                    total.read_time += sent.read_time;
                    total.network_time += sent.network_time;
                }
                Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(ClientError::File {
                        url: self.exchange.shown(),
                        why,
                    });
                }
                Err(why) => return Err(self.exchange.write_failed(why).await),
            }
            position += piece;
            self.sent += piece;
        }
        Ok(total)
    }

    /// Ends the body and waits for the response. Errors: `TooShort` when fewer bytes were sent than announced.
    pub async fn finish(mut self) -> Result<Incoming, ClientError> {
        if let Some(expected) = self.length.filter(|length| *length != self.sent) {
            return Err(ClientError::TooShort {
                url: self.exchange.shown(),
                expected,
                got: self.sent,
            });
        }
        let stall = self.exchange.stall_timeout;
        let mut ended = Ok(());
        if self.length.is_none() {
            ended = self.exchange.wire.write_all(b"0\r\n\r\n", stall).await;
        }
        if ended.is_ok() {
            ended = self.exchange.wire.stream.flush().await;
        }
        match ended {
            Ok(()) => self.exchange.into_response().await,
            Err(why) => Err(self.exchange.write_failed(why).await),
        }
    }

    /// Refuses bytes beyond the announced length, which the server would take for the next request.
    fn claim(&self, count: u64) -> Result<(), ClientError> {
        match self.length {
            Some(limit) if self.sent + count > limit => Err(ClientError::TooLong {
                url: self.exchange.shown(),
                limit,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// A server that answers in the middle of a body does not want the rest. Does not wait.
    async fn look_for_answer(&mut self) -> Result<(), ClientError> {
        if self.exchange.wire.unread().is_empty() && self.exchange.wire.try_fill().is_none() {
            return Ok(());
        }
        // An end of the stream without an answer shows itself in the next write.
        match timeout(
            LAST_WORDS_TIMEOUT,
            self.exchange.read_head(Interim::StopAtContinue),
        )
        .await
        {
            Ok(Ok(head)) if head.status == StatusCode::CONTINUE => Ok(()),
            Ok(Ok(head)) => Err(self.exchange.early_answer(head).await),
            Ok(Err(why)) => Err(why),
            Err(_) => Ok(()),
        }
    }
}

/// A response. Its connection is kept for the next request once the body was read to its end; dropped before, the
/// connection closes.
pub struct Incoming {
    /// The final status.
    pub status: StatusCode,
    /// With lower-case names.
    pub headers: HeaderMap,
    content_length: Option<u64>,
    url: Url,
    body: Body,
    got: u64,
    stall_timeout: Duration,
    reusable: bool,
    connection: Option<Box<Kept>>,
    last_tcp: Option<TcpSummary>,
}

/// What goes back to the pool.
struct Kept {
    wire: Wire,
    probes: ProbeOwner,
    pool: Arc<Pool>,
    endpoint: Endpoint,
}

impl Incoming {
    /// What `Content-Length` says, also in answer to `HEAD`.
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// The URL that answered, after redirects.
    pub fn final_url(&self) -> &Url {
        &self.url
    }

    /// Body bytes read so far.
    pub fn got(&self) -> u64 {
        self.got
    }

    /// State of the TCP connection; after the end of the body, its state at that time.
    pub fn tcp_info(&self) -> Option<TcpSummary> {
        match &self.connection {
            Some(kept) => kept.wire.stream.tcp_info(),
            None => self.last_tcp,
        }
    }

    /// A view of the TCP connection for another task while this one reads. `None` once the body has ended.
    pub fn tcp_probe(&mut self) -> Option<TcpProbe> {
        let kept = self.connection.as_mut()?;
        kept.probes.probe(&kept.wire.stream).ok()
    }

    /// The server's address, while the body lasts.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.connection
            .as_ref()
            .and_then(|kept| kept.wire.stream.peer_addr().ok())
    }

    /// Waits differently for the body, for example for a stream of progress reports.
    pub fn set_stall_timeout(&mut self, stall_timeout: Duration) {
        self.stall_timeout = stall_timeout;
    }

    /// Reads some bytes of the body into `buffer` (which must not be empty); 0 at the end. Fills as much as is
    /// there. Loses nothing when dropped.
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ClientError> {
        let url = || redact(self.url.as_str());
        let Some(kept) = self.connection.as_mut() else {
            return match self.body.is_done() {
                true => Ok(0),
                // An end that follows an error must not look like the end of the body.
                false => Err(ClientError::Io {
                    url: url(),
                    why: io::ErrorKind::NotConnected.into(),
                }),
            };
        };
        match self
            .body
            .read(&mut kept.wire, buffer, self.stall_timeout)
            .await
        {
            Ok(count) => {
                self.got += count as u64;
                self.release_at_end();
                Ok(count)
            }
            Err(why) => {
                self.connection = None;
                Err(ClientError::of_body(
                    why,
                    url(),
                    self.content_length,
                    self.got,
                ))
            }
        }
    }

    /// Reads the whole body. Errors: `TooLong` beyond `limit` bytes.
    pub async fn read_all(&mut self, limit: u64) -> Result<Vec<u8>, ClientError> {
        let too_long = |url: &Url| ClientError::TooLong {
            url: redact(url.as_str()),
            limit,
        };
        if self
            .body
            .remaining()
            .is_some_and(|remaining| remaining > limit)
        {
            return Err(too_long(&self.url));
        }
        let mut whole = Vec::new();
        let mut piece = vec![0; 16 << 10];
        loop {
            let count = self.read(&mut piece).await?;
            if count == 0 {
                return Ok(whole);
            }
            if (whole.len() + count) as u64 > limit {
                return Err(too_long(&self.url));
            }
            whole.extend_from_slice(&piece[..count]);
        }
    }

    /// Gives the connection back as soon as the last byte was read.
    fn release_at_end(&mut self) {
        if self.body.is_done()
            && let Some(kept) = self.connection.take()
        {
            self.last_tcp = kept.wire.stream.tcp_info();
            if self.reusable {
                kept.pool.give_back(kept.endpoint, kept.wire);
            }
        }
    }
}
