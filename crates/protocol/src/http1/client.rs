//! The client: one request at a time per connection, connections kept for reuse by the same user.
//!
//! Bodies are streamed both ways. Trust, addresses and time are bounded by configuration; every error names
//! the host or the URL (without its query, which may hold a secret).

mod connect;
mod error;
mod exchange;
mod idle_connections;
mod incoming;
mod reach;
mod redirect;
mod upload;

use super::near_ends::NearEnd;
pub use super::near_ends::NearEnds;
pub use crate::stream::{FileSent, TcpProbe};
pub use connect::ResolvedCheck;
pub use error::ClientError;
pub use incoming::ClientResponse;
pub use reach::{OffLimits, Reach, ReachRules};
pub use upload::{Upload, UploadStart};

use crate::tls::{ClientIdentity, ClientTls};
use exchange::{Exchange, RequestBody};
use http::header::EXPECT;
use http::{HeaderMap, Method};
use idle_connections::{ConnectionKey, IdleConnections};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// How a client behaves.
#[derive(Clone)]
pub struct ClientConfig {
    /// Who is trusted.
    pub tls: ClientTls,
    /// For resolving, for each address tried, and for the TLS handshake.
    pub connect_timeout: Duration,
    /// From the end of the request to the head of its response.
    pub response_timeout: Duration,
    /// How long a body, either way, may stand still.
    pub stall_timeout: Duration,
    /// Idle connections kept per scheme, host and port. One serves only requests with the credentials of its first.
    pub idle_per_host: usize,
    /// The `User-Agent`, unless a request brings its own.
    pub user_agent: String,
    /// Told of the near end of each connection.
    pub near_ends: NearEnds,
}

impl ClientConfig {
    /// Usual values: 15 s to connect, 120 s to the response, 60 s without a byte, 64 idle connections per
    /// host.
    pub fn new(tls: ClientTls) -> ClientConfig {
        ClientConfig {
            tls,
            connect_timeout: Duration::from_secs(15),
            response_timeout: Duration::from_secs(120),
            stall_timeout: Duration::from_secs(60),
            idle_per_host: 64,
            user_agent: concat!("penstock/", env!("CARGO_PKG_VERSION")).to_owned(),
            near_ends: NearEnds::default(),
        }
    }
}

/// A request to be sent. `Host`, `Content-Length`, `Transfer-Encoding`, `Connection` and `Expect` are the
/// client's own business: such headers are not sent.
#[derive(Debug, Clone)]
pub struct ClientRequest {
    pub method: Method,
    /// Schemes `https` and `davs` mean TLS, `http` and `dav` do not.
    pub url: Url,
    /// As they shall be sent.
    pub headers: HeaderMap,
    /// Shown to a TLS server that asks. Requests of one identity never use the connections or TLS sessions of
    /// another, or of none.
    pub identity: Option<ClientIdentity>,
}

impl ClientRequest {
    /// A request without headers of its own.
    pub fn new(method: Method, url: Url) -> ClientRequest {
        ClientRequest {
            method,
            url,
            headers: HeaderMap::new(),
            identity: None,
        }
    }
}

/// Speaks to servers. Cheap to clone; clones share connections and TLS sessions.
#[derive(Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
    idle: Arc<IdleConnections>,
    check: Option<ResolvedCheck>,
    reach: Option<Reach>,
}

impl Client {
    /// A client without connections yet.
    pub fn new(config: ClientConfig) -> Client {
        let idle = IdleConnections::new(config.idle_per_host);
        Client {
            config: Arc::new(config),
            idle,
            check: None,
            reach: None,
        }
    }

    /// A client that asks `check` before it connects to an address, with the host's name as in the URL. An
    /// address for which it gives a reason is not tried. Starts without connections, because those made
    /// before were not checked.
    pub fn with_resolved_check(&self, check: ResolvedCheck) -> Client {
        let idle = IdleConnections::new(self.config.idle_per_host);
        Client {
            config: Arc::clone(&self.config),
            idle,
            check: Some(check),
            reach: self.reach.clone(),
        }
    }

    /// A client with the same connections that waits differently for responses, for example for a server
    /// that answers only when its work is done.
    pub fn with_response_timeout(&self, response_timeout: Duration) -> Client {
        let config = ClientConfig {
            response_timeout,
            ..ClientConfig::clone(&self.config)
        };
        Client {
            config: Arc::new(config),
            idle: Arc::clone(&self.idle),
            check: self.check.clone(),
            reach: self.reach.clone(),
        }
    }

    /// The configuration in use.
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Sends a request without a body and waits for the head of its response. Follows no redirect.
    pub async fn send(&self, request: ClientRequest) -> Result<ClientResponse, ClientError> {
        self.send_whole(request, RequestBody::None).await
    }

    /// Sends a request with a body that is in memory.
    pub async fn send_bytes(
        &self,
        request: ClientRequest,
        body: &[u8],
    ) -> Result<ClientResponse, ClientError> {
        self.send_whole(request, RequestBody::Bytes(body)).await
    }

    /// Begins a request whose body follows piece by piece: `length` bytes, or chunked without.
    ///
    /// With `expect_continue` the server is asked first (RFC 9110 §10.1.1): a final answer comes back as
    /// [`UploadStart::Answered`] before any byte was sent; a server that says nothing for a second gets the
    /// body.
    pub async fn start_upload(
        &self,
        request: ClientRequest,
        length: Option<u64>,
        expect_continue: bool,
    ) -> Result<UploadStart, ClientError> {
        // RFC 9110 §10.1.1: nothing may be expected for an empty body.
        let expect_continue = expect_continue && length != Some(0);
        let body = RequestBody::Stream {
            length,
            expect_continue,
        };
        let (exchange, reused) = self.begin(&request, &body, Reuse::Allowed).await?;
        if !expect_continue {
            return Ok(UploadStart::Ready(Upload::new(exchange, length)));
        }
        match exchange.await_continue(length).await {
            Err(why) if reused && why.allows_new_connection() => {
                let (exchange, _) = self.begin(&request, &body, Reuse::Refused).await?;
                exchange.await_continue(length).await
            }
            outcome => outcome,
        }
    }

    /// Sends on a kept connection if there is one, else on a new one. When the server had closed the kept
    /// one, and repeating does no harm, tries once more on a new one.
    async fn send_whole(
        &self,
        request: ClientRequest,
        body: RequestBody<'_>,
    ) -> Result<ClientResponse, ClientError> {
        let (exchange, reused) = self.begin(&request, &body, Reuse::Allowed).await?;
        match exchange.into_response().await {
            Err(why) if reused && may_repeat(&request) && why.allows_new_connection() => {
                let (exchange, _) = self.begin(&request, &body, Reuse::Refused).await?;
                exchange.into_response().await
            }
            outcome => outcome,
        }
    }

    /// Sends the request's head, with the body if it is in memory. Tells whether the connection was used
    /// before.
    async fn begin(
        &self,
        request: &ClientRequest,
        body: &RequestBody<'_>,
        reuse: Reuse,
    ) -> Result<(Exchange, bool), ClientError> {
        let key = ConnectionKey::of(request)?;
        if reuse == Reuse::Allowed
            && let Some(wire) = self.idle.take(&key)
        {
            let exchange = Exchange::new(wire, self, key.clone(), request);
            match exchange.write_request(request, body).await {
                Ok(exchange) => return Ok((exchange, true)),
                // A request that could not be written whole was not understood, so a new connection is
                // harmless.
                Err(why) if why.allows_new_connection() => {}
                Err(why) => return Err(why),
            }
        }
        let to = connect::ConnectTarget {
            endpoint: &key.endpoint,
            identity: request.identity.as_ref(),
        };
        let (stream, near_end) = connect::connect(to, &self.config, self.check.as_ref()).await?;
        let wire = super::wire::Wire::new(stream).with_near_end(near_end);
        let exchange = Exchange::new(wire, self, key, request);
        Ok((exchange.write_request(request, body).await?, false))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reuse {
    Allowed,
    Refused,
}

/// Methods that may be sent twice without a trace. `COPY`, `MOVE` and `MKCOL` are idempotent by their
/// registration, but their second answer would misreport what the first did, as would that to a write where nothing may be
/// yet.
fn may_repeat(request: &ClientRequest) -> bool {
    let method = &request.method;
    let is_for_absent = request.headers.contains_key(http::header::IF_NONE_MATCH);
    method.is_safe() || method.as_str() == "PROPFIND" || (method.is_idempotent() && !is_for_absent)
}

/// Header names that the client writes itself.
const OWN_HEADERS: [http::HeaderName; 5] = [
    http::header::HOST,
    http::header::CONTENT_LENGTH,
    http::header::TRANSFER_ENCODING,
    http::header::CONNECTION,
    EXPECT,
];
