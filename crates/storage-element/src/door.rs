//! The door: HTTP, with or without TLS, as WebDAV and third-party copy clients speak it. It says who may
//! come in, hands requests to their handlers and tells every client how its request ended.

mod access_check;
mod answer;
mod archive_word;
mod byteranges;
mod caller;
mod conditions;
mod copy;
mod cross_site_request;
mod destination;
mod document_body;
mod duplicate;
mod fallback_door;
mod handler_context;
mod health_endpoints;
mod html;
mod list;
mod locality;
mod lock;
mod lock_conditions;
mod macaroon;
mod pages;
mod properties;
mod pull;
mod pull_source;
mod push;
mod push_leftover;
mod read;
mod remote;
mod remote_removals;
mod reserved;
mod resumable;
mod revoked_requests;
mod share;
mod slot;
mod striped;
mod tape;
mod tape_accounts;
mod tape_system;
mod trash;
mod tree;
mod tree_rights;
mod wanted_digest;
mod write;
mod write_ticket;

use crate::storage::Storage;
use answer::{METHODS, Problem, ProblemForm, Reply, Response};
use caller::Client;
pub(crate) use fallback_door::FallbackPort;
use handler_context::{Call, Door, RETRY_AFTER_SECONDS};
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use penstock_model::{NamespacePath, ProblemCode};
use penstock_persistence::access_links::LinkEnd;
use penstock_persistence::namespace::{Refusal, RequestOrigin};
use penstock_protocol::deletion::{EMPTY_DIRECTORY, PENSTOCK_DELETE};
use penstock_protocol::http1::Limits;
use penstock_protocol::http1::server::{Connection, Request, RequestError};
use penstock_protocol::listener::{ClientConnection, Listener, NewConnection};
use penstock_protocol::monitoring::Monitor;
use penstock_protocol::resumable::UPLOAD_LIMIT;
use penstock_protocol::site_document;
use penstock_protocol::storage_id::{PENSTOCK_STORAGE, StorageId};
use penstock_protocol::tape::WELL_KNOWN;
use penstock_protocol::tls::ServerTls;
use penstock_protocol::told::RepeatedErrors;
use penstock_protocol::tpc::request_id;
use penstock_protocol::x509::ClientCertificate;
use percent_encoding::percent_decode_str;
use remote_removals::{Removals, report_panic};
use serde_json::Value;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Between two looks for expired uploads.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// After the grace of a shutdown: for last lines to be written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Where a door is, and how it speaks.
pub struct DoorConfig {
    /// Bound already.
    pub listener: TcpListener,
    /// HTTPS with it, plain HTTP without.
    pub tls: Option<ServerTls>,
    /// Answers monitors. Without it the door has nothing for them.
    pub monitor: Option<Arc<dyn Monitor>>,
    /// No door of this host is without TLS, so browsers may be told to use nothing else.
    pub tls_only: bool,
}

/// Serves one address until `shutdown` turns true; then takes no more requests, gives running ones
/// `shutdown_grace`, and sees removals at other servers through. Several doors may share one storage.
///
/// Errors: the listener cannot be used.
pub async fn serve(
    storage: Arc<Storage>,
    config: DoorConfig,
    shutdown: watch::Receiver<bool>,
) -> io::Result<()> {
    let DoorConfig {
        listener,
        tls,
        monitor,
        tls_only,
    } = config;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let sweeping = tokio::spawn(sweep(Arc::clone(&storage), shutdown.clone()));
    let door = Arc::new(Door {
        storage: Arc::clone(&storage),
        monitor,
        tls_only,
        shutdown: shutdown.clone(),
        removals: Removals::default(),
        is_stand_in: false,
    });
    let port = Listener {
        socket: listener,
        tls,
        connections: storage.settings().limits.connections.clone(),
    };
    let open = port.accept(shutdown, |connection| {
        let door = Arc::clone(&door);
        let counted = CountedConnection::new(&storage);
        async move {
            door.connection(connection).await;
            drop(counted);
        }
    });
    let open = open.await;
    report_panic(sweeping.await);
    let grace = storage.settings().limits.shutdown_grace + LAST_LINES;
    open.drain(grace).await;
    door.removals.wait_for_all().await;
    Ok(())
}

/// Logs a request that failed here. A disk that is full or fails does that to each request: one line a minute tells it.
fn tell_failed(request: &Request, problem: &Problem) {
    static TOLD: LazyLock<RepeatedErrors> = LazyLock::new(RepeatedErrors::default);
    let (status, text, path) = (problem.status, problem.text(), request.path());
    // One error, whichever file it meets.
    let file = percent_decode_str(path).decode_utf8_lossy();
    if let Some(passed_over) = TOLD.tells(&text.replace(&*file, "/")) {
        tracing::warn!(method = %request.method, path, %status, text, passed_over, "a request failed");
    }
}

/// Resolves at the shutdown signal, or when nobody can send it any more.
async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    drop(shutdown.wait_for(|stop| *stop).await.map(|stop| *stop));
}

/// Removes expired uploads now and then.
async fn sweep(storage: Arc<Storage>, mut shutdown: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = shutdown.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(SWEEP_INTERVAL) => {}
        }
        storage.remove_expired_uploads();
    }
}

/// One client connection in the count that is shown.
struct CountedConnection(Arc<Storage>);

impl CountedConnection {
    fn new(storage: &Arc<Storage>) -> CountedConnection {
        storage.connections.fetch_add(1, Ordering::Relaxed);
        CountedConnection(Arc::clone(storage))
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Door {
    /// Serves one connection to its end. Long because each way in which it ends is told here.
    async fn connection(&self, connection: NewConnection) {
        let Some(connection) = connection.handshake().await else {
            return;
        };
        let ClientConnection {
            stream,
            certificate,
            slot: admitted,
        } = connection;
        let settings = self.storage.settings();
        let limits = Limits {
            head_timeout: settings.limits.head_timeout,
            idle_timeout: settings.limits.idle_timeout,
            body_stall_timeout: settings.limits.stall_timeout,
            body_pace: settings.limits.body_pace,
            ..Limits::default()
        };
        let mut connection = Connection::new(stream, limits);
        let peer = connection.peer_addr();
        let (shown, mut kept) = match certificate {
            None => (None, None),
            Some(ClientCertificate { certified, kept }) => (Some(certified), kept),
        };
        let mut client = Client::by_certificate(shown, peer);
        let mut shutdown = self.shutdown.clone();
        loop {
            admitted.waits();
            // A request that has come is served: its client must not take the end of the connection for its answer.
            let request = tokio::select! {
                biased;
                request = connection.next_request() => request,
                () = admitted.asked_to_go() => {
                    if admitted.may_linger() {
                        connection.dismiss().await;
                    }
                    return;
                }
                () = stopped(&mut shutdown) => return connection.dismiss().await,
            };
            match request {
                Ok(Some(request)) => {
                    if !admitted.works() {
                        let told = self.turn_away(&mut connection).await;
                        // Closes it so that the answer arrives.
                        if told.is_ok() && admitted.may_linger() {
                            let _ = connection.next_request().await;
                        }
                        return;
                    }
                    if *self.shutdown.borrow() {
                        connection.close_after_answer();
                    }
                    if revoked_requests::is_believed_no_more(&mut client, kept.as_mut(), peer).await
                    {
                        connection.close_after_answer();
                    }
                    client.begins();
                    let (request, share_end) = share::resolved(self, request);
                    let began = Instant::now();
                    // Apart, so that a connection that waits takes no room for what answers one.
                    let answer =
                        Box::pin(self.answer(&mut connection, &client, &request, share_end));
                    let answered = tokio::select! {
                        biased;
                        answered = answer => answered,
                        why = self.revocation(&client, kept.as_mut()) => {
                            let (method, path) = (&request.method, request.path());
                            tracing::warn!(%peer, %method, path, why, "gave up a request");
                            return;
                        }
                    };
                    if let Some(status) = connection.answered_with() {
                        let requests = &self.storage.metrics().requests;
                        requests.count(&request.method, status, began.elapsed());
                    }
                    if let Err(why) = answered {
                        tracing::debug!(peer = %connection.peer_addr(), %why, "an answer did not arrive");
                        return;
                    }
                }
                Ok(None) => return,
                Err(RequestError::Broken { .. }) => return,
                Err(why @ RequestError::Refused { .. }) => {
                    let peer = connection.peer_addr().ip();
                    if let Some(passed_over) = settings.limits.connections.tells(peer) {
                        tracing::info!(%why, passed_over, "refused what is no request");
                    }
                    return;
                }
            }
        }
    }

    /// The last answer of a connection whose place others have.
    async fn turn_away(&self, connection: &mut Connection) -> io::Result<()> {
        let problem = Problem::busy(
            ProblemCode::ServiceBusy,
            "too many connections; try again in a while",
            RETRY_AFTER_SECONDS,
        );
        connection.close_after_answer();
        self.send(connection, problem.answer(&HeaderMap::new()))
            .await
    }

    async fn answer(
        &self,
        connection: &mut Connection,
        client: &Client,
        request: &Request,
        share_end: Option<LinkEnd>,
    ) -> io::Result<()> {
        let mut held = None;
        let handled = match share_end {
            Some(end) => Err(share::ended(end)),
            None => self.handle(connection, client, request).await,
        };
        let answer = match handled {
            Ok(Reply::Sent(result)) => return result,
            Ok(Reply::Response(answer)) => answer,
            Ok(Reply::InTurn(answer, turn)) => {
                held = Some(turn);
                answer
            }
            Err(problem) => {
                self.note_refusal(connection, client, request, &problem);
                if problem.status.is_server_error() {
                    tell_failed(request, &problem);
                }
                if problem.is_denial() && !problem.is_logged {
                    let (method, path, peer) =
                        (&request.method, request.path(), connection.peer_addr());
                    let (status, text) = (problem.status, problem.text());
                    tracing::warn!(%peer, %method, path, %status, why = text, "refused a request");
                }
                // WLCG Tape REST, "Error handling": errors are problem documents (RFC 7807, by now RFC 9457).
                if reserved::is_tape_interface(request.path()) {
                    problem.answer_as(ProblemForm::Document)
                } else if pages::wants_page(request) {
                    pages::problem(request, problem)
                } else {
                    problem.answer(&request.headers)
                }
            }
        };
        let sent = self.send(connection, answer).await;
        drop(held);
        sent
    }

    /// Tells the ledger of a request that was not fulfilled. What merely is not there, or has no such method, is left out:
    /// clients ask for it to find out.
    fn note_refusal(
        &self,
        connection: &Connection,
        client: &Client,
        request: &Request,
        problem: &Problem,
    ) {
        let asked_to_find_out = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED];
        let status = problem.status;
        let is_refusal = status.is_client_error() || status.is_server_error();
        if !is_refusal || asked_to_find_out.contains(&status) {
            return;
        }
        let identity = client.asks().map(|sender| sender.identity);
        let identity = identity.map(|it| (it.user.clone(), it.vo.clone()));
        let (user, vo) = identity.unzip();
        let origin = RequestOrigin {
            user,
            vo: vo.flatten(),
            client: Some(connection.peer_addr().to_string()),
            copy: request_id(&request.headers).map(str::to_owned),
            challenge: access_check::challenge_of(&request.headers),
        };
        let refusal = Refusal {
            method: request.method.to_string(),
            path: NamespacePath::from_encoded(request.path()).ok(),
            status: status.as_u16(),
            code: problem.cause.code.name().to_owned(),
            detail: problem.text().to_owned(),
        };
        self.storage.recorder.refuse(origin, refusal);
    }

    async fn send(&self, connection: &mut Connection, answer: Response) -> io::Result<()> {
        let answer = self.guarded(answer, connection.is_tls());
        connection
            .respond(answer.status, answer.headers, &answer.body)
            .await
    }

    /// Adds what keeps browsers from making more of an answer than it is.
    fn guarded(&self, mut answer: Response, is_tls: bool) -> Response {
        let headers = &mut answer.headers;
        if !answer.body.is_empty() {
            let nosniff = HeaderValue::from_static("nosniff");
            headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(nosniff);
        }
        if answer.status.is_client_error() || answer.status.is_server_error() {
            let no_store = HeaderValue::from_static("no-store");
            headers.entry(CACHE_CONTROL).or_insert(no_store);
        }
        // RFC 6797 §7.2: never without TLS; and never where the same host has a door without it.
        if is_tls && self.tls_only {
            let year = HeaderValue::from_static("max-age=31536000");
            headers.insert(STRICT_TRANSPORT_SECURITY, year);
        }
        answer
    }

    /// Long because what is refused before the method counts stands here in its order.
    async fn handle(
        &self,
        connection: &mut Connection,
        client: &Client,
        request: &Request,
    ) -> Result<Reply, Problem> {
        if let Some(answer) = self.public(request, connection.is_tls()) {
            return Ok(answer.into());
        }
        if request.target.contains('#') {
            // RFC 9112 §3.2: a client that sends a fragment means less than what stands before it.
            let text = "the request's target has a fragment ('#'); encode it as %23";
            return Err(Problem::bad_request(text));
        }
        let path = NamespacePath::from_encoded(request.path())
            .map_err(|why| Problem::bad_request(why.to_string()))?;
        if self.is_stand_in {
            // The next request is for the door itself, as soon as it answers.
            connection.close_after_answer();
            let peer = connection.peer_addr();
            return self
                .stand_in_answer(request, &path, peer)
                .await
                .map(Reply::from);
        }
        let upload = resumable::upload_of(&path);
        let trash = reserved::trash_place_of(&path);
        let tape = reserved::tape_place_of(&path);
        let share = reserved::share_place_of(&path);
        if upload.is_none()
            && share.is_none()
            && trash.is_none()
            && tape.is_none()
            && !(self.monitor.is_some() && health_endpoints::reserved_question(&path).is_some())
            && let Some(asset) = reserved::asset(request, &path)
        {
            return asset.map(Reply::from);
        }
        let caller = self
            .identify(request, client, connection.peer_addr())
            .await?;
        cross_site_request::refuse(request, &caller)?;
        if let Some(told) = self.tell_monitor(request, &path, &caller).await? {
            return Ok(told.into());
        }
        let call = &Call {
            request,
            caller: &caller,
            path: &path,
        };
        if let Some(upload) = upload {
            return Box::pin(resumable::resource(self, connection, call, upload)).await;
        }
        if let Some(place) = trash {
            return Box::pin(trash::answer(self, connection, call, place)).await;
        }
        if let Some(place) = share {
            return Box::pin(share::answer(self, connection, call, place)).await;
        }
        if let Some(place) = tape {
            return Box::pin(tape::answer(self, connection, call, place)).await;
        }
        // What each holds while it waits is its own, so that the short ones are answered without room for the others.
        match request.method.as_str() {
            "PUT" if resumable::begins_upload(request) => {
                Box::pin(resumable::begin(self, connection, call)).await
            }
            "GET" if pages::wants_page(request) => {
                Box::pin(pages::get(self, connection, call)).await
            }
            "GET" | "HEAD" => read::read(self, connection, call).await,
            "PUT" => Box::pin(write::put(self, connection, call)).await,
            "POST" => Box::pin(macaroon::post(self, connection, call)).await,
            "DELETE" => Box::pin(tree::delete(self, call)).await,
            "MKCOL" => Box::pin(tree::make_directory(self, call)).await,
            "MOVE" => Box::pin(tree::rename(self, call)).await,
            "PROPFIND" => Box::pin(list::propfind(self, connection, call)).await,
            "PROPPATCH" => Box::pin(properties::proppatch(self, connection, call)).await,
            "LOCK" => Box::pin(lock::lock(self, connection, call)).await,
            "UNLOCK" => Box::pin(lock::unlock(self, call)).await,
            "COPY" => Box::pin(copy::copy(self, connection, call)).await,
            other => Err(Problem::method(format!(
                "{other} is not supported; use one of {METHODS}"
            ))),
        }
    }

    /// What anybody may ask: the methods, and the documents of the site, its token issuer and its macaroons.
    fn public(&self, request: &Request, is_tls: bool) -> Option<Response> {
        if request.method == Method::OPTIONS {
            let methods = reserved::methods_of(request.path());
            let mut answer =
                Response::new(StatusCode::OK).with(ALLOW, HeaderValue::from_static(methods));
            if methods == METHODS {
                answer = answer
                    .with(UPLOAD_LIMIT, resumable::offered(self))
                    .with(PENSTOCK_DELETE, EMPTY_DIRECTORY)
                    .with(
                        PENSTOCK_STORAGE,
                        StorageId(self.storage.namespace.uuid()).header_value(),
                    );
            }
            return Some(lock_conditions::with_compliance(answer));
        }
        if request.method != Method::GET && request.method != Method::HEAD {
            return None;
        }
        if is_tls && let Some(answer) = macaroon::discovery(self, request) {
            return Some(answer);
        }
        if request.path() == WELL_KNOWN {
            return tape::discovery(self, request, is_tls);
        }
        let settings = self.storage.settings();
        let issuer = settings.issuer.as_ref();
        let document: &Value = match request.path() {
            "/.well-known/openid-configuration" => &issuer?.openid_configuration,
            "/jwks" => &issuer?.jwks,
            // Without TLS nobody could tell whether it is ours.
            site_document::WELL_KNOWN if is_tls => settings.site_document.as_ref()?,
            _ => return None,
        };
        let mut answer = Response::new(StatusCode::OK)
            .with(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        answer.body = document.to_string().into_bytes();
        Some(answer)
    }
}
