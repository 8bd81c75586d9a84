//! A storage element that takes no time: every source is an empty file, every copy succeeds at once, or when
//! it is let go. With it a transfer service is measured alone, as FTS3 was.

use crate::error::{BenchError, doing};
use crate::process::free_port;
use crate::servers::Certificates;
use crate::servers::penstock::{STUB_HELD, STUB_QUICK, STUB_SOURCE};
use http::{HeaderMap, Method, StatusCode};
use penstock_model::Bytes;
use penstock_protocol::http1::Limits;
use penstock_protocol::http1::server::{Connection, Request};
use penstock_protocol::tls::ServerTls;
use penstock_protocol::tpc::{Marker, Outcome, write_marker, write_outcome};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Between the markers of a copy that is held.
const MARKER_INTERVAL: Duration = Duration::from_secs(1);

/// The stub, on all its addresses. Dropped, it ends.
pub struct Stub {
    /// The same on each address.
    pub port: u16,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

struct State {
    /// Paths of copies that have ended.
    landed: Mutex<HashSet<String>>,
    /// Copies that are held now.
    held: AtomicU64,
    /// True: copies are let go.
    gate: watch::Sender<bool>,
}

impl Stub {
    /// Listens on the addresses of the stubs.
    pub async fn start(certificates: &Certificates) -> Result<Stub, BenchError> {
        let tls = ServerTls::load(&certificates.certificate, &certificates.key)?;
        let state = Arc::new(State {
            landed: Mutex::default(),
            held: AtomicU64::new(0),
            gate: watch::Sender::new(false),
        });
        let port = free_port(STUB_SOURCE, &[])?;
        let mut tasks = JoinSet::new();
        for host in [STUB_SOURCE, STUB_QUICK, STUB_HELD] {
            let address = SocketAddr::new(host, port);
            let listener = TcpListener::bind(address)
                .await
                .or_else(doing(format!("cannot listen on {address}")))?;
            tasks.spawn(accept(listener, tls.clone(), Arc::clone(&state), host));
        }
        Ok(Stub {
            port,
            state,
            _tasks: tasks,
        })
    }

    /// Copies that are held now.
    pub fn held(&self) -> u64 {
        self.state.held.load(Ordering::Relaxed)
    }

    /// Holds copies to [`STUB_HELD`], or lets them go.
    pub fn let_go(&self, go: bool) {
        self.state.gate.send_replace(go);
    }
}

async fn accept(listener: TcpListener, tls: ServerTls, state: Arc<State>, host: IpAddr) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((tcp, _)) = accepted {
                    let (tls, state) = (tls.clone(), Arc::clone(&state));
                    connections.spawn(async move {
                        // A client that fails its handshake sees so itself.
                        if let Ok(stream) = tls.accept(tcp).await {
                            serve(Connection::new(stream, Limits::default()), &state, host).await;
                        }
                    });
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut connection: Connection, state: &State, host: IpAddr) {
    while let Ok(Some(request)) = connection.next_request().await {
        if answer(&mut connection, &request, state, host)
            .await
            .is_err()
        {
            return;
        }
    }
}

async fn answer(
    connection: &mut Connection,
    request: &Request,
    state: &State,
    host: IpAddr,
) -> std::io::Result<()> {
    let headers = HeaderMap::new();
    if request.method.as_str() == "COPY" {
        return copy(connection, request.path(), state, host).await;
    }
    if request.method == Method::HEAD {
        let is_there = host == STUB_SOURCE || state.has_landed(request.path());
        let status = if is_there {
            StatusCode::OK
        } else {
            StatusCode::NOT_FOUND
        };
        return connection.respond_head_only(status, headers, 0).await;
    }
    let status = match request.method.as_str() {
        "MKCOL" => StatusCode::METHOD_NOT_ALLOWED,
        "DELETE" => StatusCode::NO_CONTENT,
        _ => StatusCode::NOT_IMPLEMENTED,
    };
    connection.respond(status, headers, b"").await
}

async fn copy(
    connection: &mut Connection,
    path: &str,
    state: &State,
    host: IpAddr,
) -> std::io::Result<()> {
    connection
        .start_chunked(StatusCode::ACCEPTED, HeaderMap::new())
        .await?;
    if host == STUB_HELD {
        let mut gate = state.gate.subscribe();
        state.held.fetch_add(1, Ordering::Relaxed);
        let held = hold(connection, &mut gate).await;
        state.held.fetch_sub(1, Ordering::Relaxed);
        held?;
    }
    state
        .landed
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(path.to_owned());
    let text = write_outcome(&Outcome::Success("Created".to_owned()));
    connection.write_chunk(text.as_bytes()).await?;
    connection.end_chunks().await
}

/// Sends markers until copies are let go.
async fn hold(
    connection: &mut Connection,
    gate: &mut watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut moved = 0;
    loop {
        let opened = tokio::time::timeout(MARKER_INTERVAL, gate.wait_for(|go| *go))
            .await
            .is_ok();
        if opened {
            return Ok(());
        }
        moved += 1;
        let marker = Marker {
            moved: Some(Bytes(moved)),
            stripes: 1,
            ..Marker::default()
        };
        connection
            .write_chunk(write_marker(&marker).as_bytes())
            .await?;
    }
}

impl State {
    fn has_landed(&self, path: &str) -> bool {
        self.landed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(path)
    }
}
