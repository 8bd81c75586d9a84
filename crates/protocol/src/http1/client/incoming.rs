//! A response's body on its way here, and the connection's way back to those that are idle.

use super::ClientError;
use super::exchange::{Exchange, body_of};
use super::idle_connections::{ConnectionKey, IdleConnections};
use crate::http1::body::Body;
use crate::http1::head::{ResponseHead, ResponseLength};
use crate::http1::wire::Wire;
use crate::stream::{ProbeOwner, TcpProbe};
use http::{HeaderMap, StatusCode};
use penstock_model::TcpSummary;
use penstock_model::url::redact;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// A response. Its connection is kept for the next request once the body was read to its end; dropped
/// before, the connection closes.
pub struct ClientResponse {
    /// The final status.
    pub status: StatusCode,
    /// With lower-case names.
    pub headers: HeaderMap,
    content_length: Option<u64>,
    ends_by_closing: bool,
    url: Url,
    body: Body,
    got: u64,
    stall_timeout: Duration,
    reusable: bool,
    connection: Option<Box<ReusableConnection>>,
    last_tcp: Option<TcpSummary>,
    may_show_text: bool,
}

/// What goes back to the idle connections.
struct ReusableConnection {
    wire: Wire,
    probes: ProbeOwner,
    idle: Arc<IdleConnections>,
    key: ConnectionKey,
}

impl ClientResponse {
    /// Takes over an exchange whose response has begun.
    pub(super) fn new(exchange: Exchange, head: ResponseHead) -> ClientResponse {
        let may_show_text = exchange.may_show_text();
        let mut incoming = ClientResponse {
            status: head.status,
            headers: head.headers,
            content_length: head.content_length,
            ends_by_closing: head.length == ResponseLength::UntilClose,
            url: exchange.url,
            body: body_of(head.length),
            got: 0,
            stall_timeout: exchange.stall_timeout,
            reusable: head.keep_alive,
            connection: Some(Box::new(ReusableConnection {
                wire: exchange.wire,
                probes: exchange.probes,
                idle: exchange.idle,
                key: exchange.key,
            })),
            last_tcp: None,
            may_show_text,
        };
        incoming.release_at_end();
        incoming
    }

    /// Whether what the server writes may be shown to who sent us there. Not when it has an address that is not public
    /// and is reached only because the site allows any port there: then it may be anything.
    pub fn may_show_text(&self) -> bool {
        self.may_show_text
    }

    /// What `Content-Length` says, also in answer to `HEAD`.
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// True when nothing but the end of the connection ends the body (RFC 9112 §8): then a sender that died looks like
    /// one that was done.
    pub fn ends_by_closing(&self) -> bool {
        self.ends_by_closing
    }

    /// The URL that answered, after redirects.
    pub fn final_url(&self) -> &Url {
        &self.url
    }

    /// Body bytes read so far.
    pub fn got(&self) -> u64 {
        self.got
    }

    /// State of the TCP connection; after the end of the body, its state at that time. Its counters run from the begin of
    /// this request.
    pub fn tcp_info(&self) -> Option<TcpSummary> {
        match &self.connection {
            Some(kept) => kept.wire.tcp_info(),
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

    /// The certificate that the server showed, as PEM, while the body lasts; believed or not, as the trust of the client says.
    pub fn peer_certificate_pem(&self) -> Option<String> {
        let kept = self.connection.as_ref()?;
        kept.wire.stream.peer_certificate_pem()
    }

    /// The certificate of the authority by which the server is believed, as PEM, while the body lasts. `None`: it is not believed, or
    /// the session was resumed.
    pub fn peer_authority_pem(&self) -> Option<String> {
        let kept = self.connection.as_ref()?;
        kept.wire.stream.peer_authority_pem()
    }

    /// Waits differently for the body, for example for a stream of progress reports.
    pub fn set_stall_timeout(&mut self, stall_timeout: Duration) {
        self.stall_timeout = stall_timeout;
    }

    /// Reads some bytes of the body into `buffer` (which must not be empty); 0 at the end. Fills as much as
    /// is there. Loses nothing when dropped.
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
            self.last_tcp = kept.wire.tcp_info();
            if self.reusable {
                kept.idle.give_back(kept.key, kept.wire);
            }
        }
    }
}
