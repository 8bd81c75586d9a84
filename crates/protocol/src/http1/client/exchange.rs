//! One request and its response on one connection.

use super::super::body::Body;
use super::super::compose;
use super::super::head::{self, ResponseLength};
use super::super::wire::Wire;
use super::idle_connections::{ConnectionKey, IdleConnections};
use super::{
    Client, ClientError, ClientRequest, ClientResponse, OWN_HEADERS, Reach, Upload, UploadStart,
};
use crate::problem::told_code;
use crate::stream::ProbeOwner;
use http::header::{RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use penstock_model::url::redact;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use url::Url;

/// How long a server may think about `Expect: 100-continue` before it gets the body anyway.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer is waited for after the server broke an upload off.
pub(super) const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a response's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Interim responses (1xx) before the final one.
const INTERIM_MAX: usize = 8;
/// Bytes of an early answer's body that are shown.
const DETAIL_BYTES_MAX: u64 = 1024;

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
    pub(super) wire: Wire,
    pub(super) probes: ProbeOwner,
    pub(super) idle: Arc<IdleConnections>,
    pub(super) key: ConnectionKey,
    method: Method,
    pub(super) url: Url,
    response_timeout: Duration,
    pub(super) stall_timeout: Duration,
    user_agent: String,
    reach: Option<Reach>,
}

impl Exchange {
    pub(super) fn new(
        wire: Wire,
        client: &Client,
        key: ConnectionKey,
        request: &ClientRequest,
    ) -> Exchange {
        let config = &client.config;
        Exchange {
            wire,
            probes: ProbeOwner::default(),
            idle: Arc::clone(&client.idle),
            key,
            method: request.method.clone(),
            url: request.url.clone(),
            response_timeout: config.response_timeout,
            stall_timeout: config.stall_timeout,
            user_agent: config.user_agent.clone(),
            reach: client.reach.clone(),
        }
    }

    /// See [`ClientResponse::may_show_text`].
    pub(super) fn may_show_text(&self) -> bool {
        let server = self.wire.stream.peer_addr();
        self.reach
            .as_ref()
            .is_none_or(|reach| server.is_ok_and(|server| reach.is_known_server(server)))
    }

    pub(super) fn shown(&self) -> String {
        redact(self.url.as_str())
    }

    /// Writes the head, and the body if it is in memory.
    pub(super) async fn write_request(
        mut self,
        request: &ClientRequest,
        body: &RequestBody<'_>,
    ) -> Result<Exchange, ClientError> {
        let head = self.compose_head(&request.headers, body);
        self.wire.begin_request();
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
        out.extend_from_slice(format!("Host: {}\r\n", self.key.endpoint.host_header()).as_bytes());
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

    /// What to say when a write failed: the server's answer if it sent one before it closed, else the
    /// failure.
    pub(super) async fn write_failed(&mut self, why: io::Error) -> ClientError {
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

    pub(super) async fn early_answer(&mut self, head: head::ResponseHead) -> ClientError {
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
        let detail = match self.may_show_text() {
            true => String::from_utf8_lossy(&detail[..got]).trim().to_owned(),
            false => String::new(),
        };
        let retry_after = head.headers.get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        ClientError::EarlyAnswer {
            url: self.shown(),
            status: head.status,
            retry_after_seconds: retry_after,
            told: told_code(&head.headers),
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
    pub(super) async fn into_response(mut self) -> Result<ClientResponse, ClientError> {
        let limit = self.response_timeout;
        match timeout(limit, self.read_head(Interim::Skip)).await {
            Ok(Ok(head)) => Ok(ClientResponse::new(self, head)),
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
            Err(_) => Ok(UploadStart::Ready(Upload::new(self, length))),
            Ok(Ok(head)) if head.status == StatusCode::CONTINUE => {
                Ok(UploadStart::Ready(Upload::new(self, length)))
            }
            // The body stays here, so the server would take the next request for it: not to be used again.
            Ok(Ok(mut head)) => {
                head.keep_alive = false;
                Ok(UploadStart::Answered(ClientResponse::new(self, head)))
            }
            Ok(Err(why)) => Err(why),
        }
    }

    /// Reads heads until the one wanted. Loses nothing when dropped.
    pub(super) async fn read_head(
        &mut self,
        interim: Interim,
    ) -> Result<head::ResponseHead, ClientError> {
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
pub(super) enum Interim {
    Skip,
    StopAtContinue,
}

pub(super) fn body_of(length: ResponseLength) -> Body {
    match length {
        ResponseLength::Empty => Body::Done,
        ResponseLength::Fixed(length) => Body::fixed(length),
        ResponseLength::Chunked => Body::ChunkSize,
        ResponseLength::UntilClose => Body::UntilClose,
    }
}
