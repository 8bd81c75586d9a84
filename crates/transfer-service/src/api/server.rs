//! Serves a router over TLS: connections bounded, idle ones closed, FTS's doubled slashes understood, clients
//! known by their certificates.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use penstock_protocol::stream::Stream;
use penstock_protocol::tls::ServerTls;
use penstock_protocol::x509::Certified;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Connections served at once; more wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 4096;
/// A request's head must arrive within this time, also on an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long open connections may go on after the shutdown signal.
const DRAIN_GRACE: Duration = Duration::from_secs(5);
/// Pause after an accept error, so that an exhausted process does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The certificate that came with a request's connection, as handlers find it among the request's extensions.
#[derive(Debug, Clone)]
pub(super) enum Shown {
    /// Believed.
    Known(Certified),
    /// Not believed, for this reason.
    Doubtful(String),
}

/// Serves until the shutdown signal, then lets open requests end.
pub async fn serve(
    listener: TcpListener,
    tls: ServerTls,
    router: Router,
    mut shutdown: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &slots) => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            () = stopped(&mut shutdown) => break,
        };
        let Some((tcp, permit)) = accepted else {
            continue;
        };
        let (tls, router, shutdown) = (tls.clone(), router.clone(), shutdown.clone());
        connections.spawn(async move {
            let _permit = permit;
            match tls.accept(tcp).await {
                Ok(stream) => {
                    let shown = shown_by(&tls, &stream).await;
                    connection(stream, shown, router, shutdown).await;
                }
                Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
            }
        });
    }
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_GRACE, all_ended).await.is_err() {
        connections.abort_all();
    }
}

/// Resolves at the shutdown signal, or when nobody can send it any more.
async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    drop(shutdown.wait_for(|stop| *stop).await.map(|stop| *stop));
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = slots.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((tcp, _)) => Some((tcp, permit)),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn shown_by(tls: &ServerTls, stream: &Stream) -> Option<Shown> {
    match tls.client_of(stream, crate::run::wall_clock()).await? {
        Ok(certified) => {
            if let Some(why) = certified.attributes.refusal() {
                let (peer, user) = (stream.peer_addr().ok(), &certified.subject);
                tracing::warn!(?peer, user, %why, "attributes of a VO do not count");
            }
            Some(Shown::Known(certified))
        }
        Err(why) => {
            let peer = stream.peer_addr().ok();
            tracing::warn!(?peer, %why, "a certificate is not believed");
            Some(Shown::Doubtful(why.to_string()))
        }
    }
}

async fn connection(
    stream: Stream,
    shown: Option<Shown>,
    router: Router,
    mut shutdown: watch::Receiver<bool>,
) {
    let service = Prepare { router, shown };
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(100)
        .max_buf_size(64 * 1024);
    let serving = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stopped(&mut shutdown) => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

/// The router behind a step that adds the client's certificate, and collapses doubled slashes: FTS's Python
/// client asks for `//jobs`, and a redirect would lose the body of its POST.
#[derive(Clone)]
struct Prepare {
    router: Router,
    shown: Option<Shown>,
}

impl tower_service::Service<Request<hyper::body::Incoming>> for Prepare {
    type Response = axum::response::Response;
    type Error = Infallible;
    type Future = <Router as tower_service::Service<Request<Body>>>::Future;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        // Routers are always ready.
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<hyper::body::Incoming>) -> Self::Future {
        let mut request = request.map(Body::new);
        if let Some(uri) = collapsed(request.uri()) {
            *request.uri_mut() = uri;
        }
        if let Some(shown) = &self.shown {
            request.extensions_mut().insert(shown.clone());
        }
        self.router.call(request)
    }
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
