//! Serves a router over TLS: connections counted, idle ones closed, FTS's doubled slashes understood, clients
//! known by their certificates.

use super::connection_timeouts::{ActiveRequest, BoundedWriter};
use super::unread_body::UnreadBody;
use super::{ApiError, RefusalToLog};
use axum::Router;
use axum::http::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST,
    TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use penstock_clock::wall_clock;
use penstock_model::ProblemCode;
use penstock_protocol::connections::{ConnectionSlot, Connections};
use penstock_protocol::http1::CONNECTION_AGE_MAX;
use penstock_protocol::http1::tally::RequestTally;
use penstock_protocol::listener::{ClientConnection, Listener, NewConnection};
use penstock_protocol::pace::PaceLimit;
use penstock_protocol::stream::Stream;
use penstock_protocol::tls::ServerTls;
use penstock_protocol::x509::{
    CertificateError, CertificateHolder, ClientCertificate, KeptCertificate,
};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};

/// How long open connections may go on after the shutdown signal.
const DRAIN_GRACE: Duration = Duration::from_secs(5);

/// How long a connection may take to end whose place others need.
const LEAVE_GRACE: Duration = Duration::from_secs(1);

/// The certificate that came with a request's connection, as handlers find it among the request's extensions.
#[derive(Debug, Clone)]
pub(super) enum ShownCertificate {
    /// Believed; and the certificate as PEM.
    Known(CertificateHolder, Arc<String>),
    /// Not believed, for this reason.
    Doubtful(String),
}

/// The address at the other end, as handlers find it among the request's extensions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) SocketAddr);

/// What clients may do to this port, and where their requests are counted.
#[derive(Debug, Clone)]
pub struct ServeLimits {
    /// The client connections of the process, this port's among others.
    pub connections: Connections,
    /// A request's head must arrive within this time, also on an idle connection.
    pub head_timeout: Duration,
    /// How long a client may take nothing of an answer.
    pub stall_timeout: Duration,
    /// How slowly it may take one.
    pub body_pace: PaceLimit,
    pub requests: Arc<RequestTally>,
}

/// Serves until the shutdown signal, then lets open requests end.
pub async fn serve(
    listener: TcpListener,
    tls: ServerTls,
    router: Router,
    limits: ServeLimits,
    shutdown: watch::Receiver<bool>,
) {
    let accepting = Listener {
        socket: listener,
        tls: Some(tls),
        connections: limits.connections.clone(),
    };
    let port = Arc::new(Port {
        router,
        limits,
        shutdown: shutdown.clone(),
    });
    let open = accepting.accept(shutdown, |connection| {
        Arc::clone(&port).connection(connection)
    });
    open.await.drain(DRAIN_GRACE).await;
}

/// Resolves at the shutdown signal, or when nobody can send it any more.
async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    drop(shutdown.wait_for(|stop| *stop).await.map(|stop| *stop));
}

/// What every connection of the port needs.
struct Port {
    router: Router,
    limits: ServeLimits,
    shutdown: watch::Receiver<bool>,
}

impl Port {
    /// Serves one connection to its end.
    async fn connection(self: Arc<Port>, connection: NewConnection) {
        if let Some(ClientConnection {
            stream,
            certificate,
            slot,
        }) = connection.handshake().await
        {
            let client = certificate.map(|certificate| Client::of(certificate, &stream));
            self.requests(stream, client, Arc::new(slot)).await;
        }
    }

    async fn requests(
        &self,
        stream: Stream,
        client: Option<Client>,
        admitted: Arc<ConnectionSlot>,
    ) {
        let service = Prepare {
            router: self.router.clone(),
            peer: stream.peer_addr().ok().map(Peer),
            requests: Arc::clone(&self.limits.requests),
            client: client.map(|client| Arc::new(Mutex::new(client))),
            begun: Instant::now(),
            admitted: Arc::clone(&admitted),
        };
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_timeout)
            .max_headers(100)
            .max_buf_size(64 * 1024);
        let stream = BoundedWriter::new(stream, self.limits.stall_timeout, self.limits.body_pace);
        let serving =
            http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let mut serving = std::pin::pin!(serving);
        let mut shutdown = self.shutdown.clone();
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            // It waits for a request; one that has come meanwhile is answered.
            () = admitted.asked_to_go() => {
                serving.as_mut().graceful_shutdown();
                let grace = match admitted.may_linger() {
                    true => LEAVE_GRACE,
                    false => Duration::ZERO,
                };
                match tokio::time::timeout(grace, serving).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                }
            }
            () = stopped(&mut shutdown) => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended with an error");
        }
    }
}

/// Who is at the other end of a connection, by its certificate.
struct Client {
    shown: ShownCertificate,
    kept: Option<KeptCertificate>,
    pem: Arc<String>,
    peer: Option<SocketAddr>,
}

impl Client {
    fn of(certificate: ClientCertificate, stream: &Stream) -> Client {
        let pem = Arc::new(stream.peer_certificate_pem().unwrap_or_default());
        let peer = stream.peer_addr().ok();
        if let Ok(certified) = &certificate.certified
            && let Some(why) = certified.attributes.refusal()
        {
            let user = &certified.subject;
            tracing::warn!(?peer, user, %why, "attributes of a VO do not count");
        }
        Client {
            shown: shown(certificate.certified, &pem, peer),
            kept: certificate.kept,
            pem,
            peer,
        }
    }

    /// What its certificate says may have changed since the last request.
    async fn judge_again(&mut self) {
        if let Some(kept) = &mut self.kept
            && let Some(judged) = kept.judged_again(wall_clock()).await
        {
            self.shown = shown(judged, &self.pem, self.peer);
        }
    }

    fn is_believed_no_more(&self) -> bool {
        self.kept.is_some() && matches!(self.shown, ShownCertificate::Doubtful(_))
    }
}

/// Tells the log about a certificate that is not believed.
fn shown(
    judged: Result<CertificateHolder, CertificateError>,
    pem: &Arc<String>,
    peer: Option<SocketAddr>,
) -> ShownCertificate {
    match judged {
        Ok(certified) => ShownCertificate::Known(certified, Arc::clone(pem)),
        Err(why) => {
            tracing::warn!(
                ?peer,
                why = why.for_operators(),
                "a certificate is not believed"
            );
            ShownCertificate::Doubtful(why.to_string())
        }
    }
}

/// The router behind a step that adds the client's certificate, and collapses doubled slashes: FTS's Python
/// client asks for `//jobs`, and a redirect would lose the body of its POST.
#[derive(Clone)]
struct Prepare {
    router: Router,
    peer: Option<Peer>,
    requests: Arc<RequestTally>,
    client: Option<Arc<Mutex<Client>>>,
    /// When the connection was made.
    begun: Instant,
    admitted: Arc<ConnectionSlot>,
}

impl tower_service::Service<Request<hyper::body::Incoming>> for Prepare {
    type Response = axum::response::Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        // Routers are always ready.
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<hyper::body::Incoming>) -> Self::Future {
        let in_hand = ActiveRequest::new(&self.admitted);
        let (method, began) = (request.method().clone(), Instant::now());
        let requests = Arc::clone(&self.requests);
        let refused = match in_hand.has_place() {
            true => ambiguity(request.headers(), request.version())
                .map(|why| ApiError::new(ProblemCode::RequestMalformed, why)),
            false => Some(ApiError::new(
                ProblemCode::ServiceBusy,
                "too many connections; try again in a while",
            )),
        };
        if let Some(refused) = refused {
            let mut refused = guarded(refused.into_response());
            let close = HeaderValue::from_static("close");
            refused.headers_mut().insert(CONNECTION, close);
            requests.count(&method, refused.status(), began.elapsed());
            return Box::pin(async move { Ok(in_hand.until_sent(refused)) });
        }
        let (head, body) = request.into_parts();
        let (body, unread) = UnreadBody::lend(&head.headers, body);
        let mut request = Request::from_parts(head, body);
        if let Some(uri) = collapsed(request.uri()) {
            *request.uri_mut() = uri;
        }
        let (peer, path) = (self.peer, request.uri().path().to_owned());
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        let (mut router, client) = (self.router.clone(), self.client.clone());
        let is_old = self.begun.elapsed() >= CONNECTION_AGE_MAX;
        Box::pin(async move {
            let mut is_last = is_old;
            if let Some(client) = client {
                // Nobody else waits for it: a connection has one request at a time.
                let mut client = client.lock().await;
                client.judge_again().await;
                is_last |= client.is_believed_no_more();
                request.extensions_mut().insert(client.shown.clone());
            }
            let mut answer = guarded(told(&method, router.call(request).await?));
            if is_last {
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            if let Some(RefusalToLog(why)) = answer.extensions_mut().remove() {
                let (status, peer) = (answer.status(), peer.map(|peer| peer.0));
                tracing::warn!(?peer, %method, path, %status, why, "refused a request");
            }
            requests.count(&method, answer.status(), began.elapsed());
            unread.take().await;
            Ok(in_hand.until_sent(answer))
        })
    }
}

/// The same answer; a wrong method, which the router answers with `Allow` and nothing else, in the form of all errors.
fn told(method: &Method, answer: Response) -> Response {
    let is_bare = !answer.headers().contains_key(CONTENT_TYPE);
    let allowed = answer.headers().get(ALLOW).cloned();
    let (StatusCode::METHOD_NOT_ALLOWED, true, Some(allowed)) = (answer.status(), is_bare, allowed)
    else {
        return answer;
    };
    let methods = allowed.to_str().unwrap_or_default();
    let text = format!("{method} is not offered here; use one of {methods}");
    let mut refused = ApiError::new(ProblemCode::MethodNotAllowed, text).into_response();
    refused.headers_mut().insert(ALLOW, allowed);
    refused
}

/// The same answer with what keeps browsers from taking it for something else, from framing it, and from keeping it,
/// unless it says otherwise: most answers are JSON for one caller.
fn guarded(mut answer: Response) -> Response {
    let guards = [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in guards {
        let entry = answer.headers_mut().entry(name);
        entry.or_insert(HeaderValue::from_static(value));
    }
    answer
}

/// Why somebody in between might read a request in another way than we do (RFC 9112 §3.2, §6.1); then where the next
/// one begins is not sure either. What hyper refuses by itself is not looked for; a `Content-Length` beside a
/// `Transfer-Encoding` it drops, and closes after the answer.
fn ambiguity(headers: &HeaderMap, version: Version) -> Option<&'static str> {
    let mut credentials = headers.get_all(AUTHORIZATION).iter();
    let first = credentials.next();
    if credentials.any(|other| Some(other) != first) {
        return Some("there are two Authorization headers that differ");
    }
    if version == Version::HTTP_11 && headers.get_all(HOST).iter().count() != 1 {
        return Some("there must be one Host header");
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next()?;
    let is_chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    (!is_chunked || codings.next().is_some())
        .then_some("the only Transfer-Encoding known here is 'chunked'")
}

/// The same target with single slashes; `None` when it has no double ones.
fn collapsed(uri: &Uri) -> Option<Uri> {
    // `//jobs` looks like an authority to a URL parser, so the text is taken apart by hand.
    let text = uri
        .path_and_query()
        .map_or_else(|| uri.to_string(), ToString::to_string);
    let (path, query) = text
        .split_once('?')
        .map_or((text.as_str(), None), |(path, query)| (path, Some(query)));
    if !path.contains("//") {
        return None;
    }
    let mut single = String::with_capacity(path.len());
    for character in path.chars() {
        if !(character == '/' && single.ends_with('/')) {
            single.push(character);
        }
    }
    if let Some(query) = query {
        single = format!("{single}?{query}");
    }
    single.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_with_two_credentials_is_refused() {
        let why = |values: &[&'static str]| {
            let values = values.iter().map(|value| HeaderValue::from_static(value));
            let mut headers: HeaderMap = values.map(|value| (AUTHORIZATION, value)).collect();
            headers.insert(HOST, HeaderValue::from_static("h"));
            ambiguity(&headers, Version::HTTP_11)
        };
        assert_eq!(why(&["Bearer a"]), None);
        assert_eq!(why(&["Bearer a", "Bearer a"]), None);
        assert!(why(&["Bearer a", "Bearer b"]).is_some());
    }

    #[test]
    fn an_answer_keeps_its_own_rules_for_browsers() {
        let page = guarded(([(CACHE_CONTROL, "max-age=60")], "x").into_response());
        assert_eq!(page.headers()[CACHE_CONTROL], "max-age=60");
        assert_eq!(page.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
        let error = guarded(ApiError::new(ProblemCode::ResourceNotFound, "x").into_response());
        assert_eq!(error.headers()[CACHE_CONTROL], "no-store");
        assert_eq!(error.headers()[X_FRAME_OPTIONS], "DENY");
    }

    #[test]
    fn doubled_slashes_mean_single_ones() {
        let collapse =
            |text: &str| collapsed(&text.parse().expect("a target")).map(|uri| uri.to_string());
        assert_eq!(collapse("//"), Some("/".to_owned()));
        assert_eq!(collapse("//jobs?a=b//c"), Some("/jobs?a=b//c".to_owned()));
        assert_eq!(
            collapse("//jobs//x/files"),
            Some("/jobs/x/files".to_owned())
        );
        assert_eq!(collapse("/jobs"), None);
    }
}
