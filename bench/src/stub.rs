//! A storage element that takes no time: every source is an empty file, every copy succeeds at once, or when
//! it is let go. With it a transfer service is measured alone, as FTS3 was.

use crate::error::{BenchError, doing};
use crate::process::free_port;
use crate::servers::Certificates;
use crate::servers::penstock::{STUB_HELD, STUB_QUICK, STUB_SOURCE};
use http::{HeaderMap, Method, StatusCode};
use parking_lot::{Mutex, MutexGuard};
use penstock_model::Bytes;
use penstock_protocol::http1::Limits;
use penstock_protocol::http1::server::{Connection, Request};
use penstock_protocol::tls::ServerTls;
use penstock_protocol::tpc::{Marker, Outcome, write_marker, write_outcome};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Between the markers of a copy that is held.
const MARKER_INTERVAL: Duration = Duration::from_secs(1);
/// Between those of copies of which thousands are held: what dCache sends.
const MARKER_INTERVAL_OF_MANY: Duration = Duration::from_secs(5);
/// Paths that begin so are noted when they are first asked for.
pub const NOTED: &str = "/noted-";
/// Sources of the grid, and as many destinations: from each of them to each is a link.
pub const GRID_SIDE: u8 = 32;

/// A source of the grid.
pub fn grid_source(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 1, number + 1))
}

/// A destination of the grid. It holds copies like [`STUB_HELD`].
pub fn grid_destination(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 2, number + 1))
}

/// All storage elements of the grid.
pub fn grid_hosts() -> impl Iterator<Item = IpAddr> {
    (0..GRID_SIDE).flat_map(|number| [grid_source(number), grid_destination(number)])
}

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
    /// When each path that begins with [`NOTED`] was first asked for.
    noted: Mutex<HashMap<String, Instant>>,
    /// The next request is the first, whose time is to be kept.
    expects_first: AtomicBool,
    first: Mutex<Option<Instant>>,
    /// Copies that are held now.
    held: AtomicU64,
    /// True: copies are let go.
    gate: watch::Sender<bool>,
}

impl Stub {
    /// Listens on the addresses of the stubs.
    pub async fn start(certificates: &Certificates) -> Result<Stub, BenchError> {
        let tls = ServerTls::load(&certificates.certificate, &certificates.key)?;
        let grid_tls = ServerTls::load(&certificates.grid.0, &certificates.grid.1)?;
        let state = Arc::new(State {
            landed: Mutex::default(),
            noted: Mutex::default(),
            expects_first: AtomicBool::new(false),
            first: Mutex::default(),
            held: AtomicU64::new(0),
            gate: watch::Sender::new(false),
        });
        let port = free_port(STUB_SOURCE, &[])?;
        let mut tasks = JoinSet::new();
        let few = [STUB_SOURCE, STUB_QUICK, STUB_HELD].map(|host| (host, &tls));
        for (host, tls) in few
            .into_iter()
            .chain(grid_hosts().map(|host| (host, &grid_tls)))
        {
            let address = SocketAddr::new(host, port);
            let listener = TcpListener::bind(address)
                .await
                .or_else(doing(format!("cannot listen on {address}")))?;
            let role = Role::of(host);
            tasks.spawn(accept(listener, tls.clone(), Arc::clone(&state), role));
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

    /// When a path that begins with [`NOTED`] was first asked for.
    pub fn first_asked(&self, path: &str) -> Option<Instant> {
        locked(&self.state.noted).get(path).copied()
    }

    /// Forgets when it was asked first, and looks out for the next request.
    pub fn expect_first(&self) {
        *locked(&self.state.first) = None;
        self.state.expects_first.store(true, Ordering::Relaxed);
    }

    /// When it was asked first since [`Stub::expect_first`].
    pub fn first_since(&self) -> Option<Instant> {
        *locked(&self.state.first)
    }

    /// Holds copies to [`STUB_HELD`] and the grid, or lets them go.
    pub fn let_go(&self, go: bool) {
        self.state.gate.send_replace(go);
    }
}

/// What an address does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Has every file.
    Source,
    /// Takes files at once.
    Quick,
    /// Holds files, and sends a marker after each such time.
    Held(Duration),
}

impl Role {
    fn of(host: IpAddr) -> Role {
        let is_grid_destination = (0..GRID_SIDE).any(|number| grid_destination(number) == host);
        match host {
            STUB_QUICK => Role::Quick,
            STUB_HELD => Role::Held(MARKER_INTERVAL),
            _ if is_grid_destination => Role::Held(MARKER_INTERVAL_OF_MANY),
            _ => Role::Source,
        }
    }
}

async fn accept(listener: TcpListener, tls: ServerTls, state: Arc<State>, role: Role) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((tcp, _)) = accepted {
                    let (tls, state) = (tls.clone(), Arc::clone(&state));
                    connections.spawn(async move {
                        // A client that fails its handshake sees so itself.
                        if let Ok(stream) = tls.accept(tcp).await {
                            serve(Connection::new(stream, Limits::default()), &state, role).await;
                        }
                    });
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut connection: Connection, state: &State, role: Role) {
    while let Ok(Some(request)) = connection.next_request().await {
        if answer(&mut connection, &request, state, role)
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
    role: Role,
) -> std::io::Result<()> {
    let headers = HeaderMap::new();
    if state.expects_first.swap(false, Ordering::Relaxed) {
        *locked(&state.first) = Some(Instant::now());
    }
    if request.path().starts_with(NOTED) {
        state.note(request.path());
    }
    if request.method.as_str() == "COPY" {
        return copy(connection, request.path(), state, role).await;
    }
    if request.method == Method::HEAD {
        let is_there = role == Role::Source || state.has_landed(request.path());
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
    role: Role,
) -> std::io::Result<()> {
    connection
        .start_chunked(StatusCode::ACCEPTED, HeaderMap::new())
        .await?;
    if let Role::Held(interval) = role {
        let mut gate = state.gate.subscribe();
        state.held.fetch_add(1, Ordering::Relaxed);
        let held = hold(connection, &mut gate, interval).await;
        state.held.fetch_sub(1, Ordering::Relaxed);
        held?;
    }
    locked(&state.landed).insert(path.to_owned());
    let text = write_outcome(&Outcome::Success("Created".to_owned()));
    connection.write_chunk(text.as_bytes()).await?;
    connection.end_chunks().await
}

/// Sends markers until copies are let go.
async fn hold(
    connection: &mut Connection,
    gate: &mut watch::Receiver<bool>,
    interval: Duration,
) -> std::io::Result<()> {
    let mut moved = 0;
    loop {
        let opened = tokio::time::timeout(interval, gate.wait_for(|go| *go))
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
        locked(&self.landed).contains(path)
    }

    fn note(&self, path: &str) {
        let now = Instant::now();
        locked(&self.noted).entry(path.to_owned()).or_insert(now);
    }
}

/// What is guarded here is changed in one step, so that a panic elsewhere leaves nothing half done.
fn locked<T>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    guarded.lock()
}
