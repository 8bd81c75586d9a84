//! COPY: this storage element as the active party of a third-party copy (draft-http-tpc-01). The answer
//! is a stream of markers while the copy waits and runs, and always a last line that tells the outcome. A
//! client that leaves cancels.
//!
//! What is known to be wrong before the other side was asked is a plain status; everything later is a
//! `failure:` line, because davix takes most statuses for "not supported".

use super::answer::{Problem, Reply};
use super::leftover::Leftover;
use super::{Call, Door, duplicate, pull, push};
use crate::mover::MoverView;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::Mutex;
use penstock_clock::wall_clock;
use penstock_decide::admission::PreemptionReason;
use penstock_model::MoverReport;
use penstock_model::url::redact;
use penstock_protocol::hosts::Listing;
use penstock_protocol::http1::client::{ClientError, Incoming, Outgoing};
use penstock_protocol::http1::server::Connection;
use penstock_protocol::tpc::{
    CopyRequest, Credential, Direction, InvalidCopy, Marker, Outcome, write_marker, write_outcome,
};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;
use url::Url;

/// A copy that ends within this time is answered whole, in one write.
const QUIET: Duration = Duration::from_millis(250);
/// Redirects followed on the other side.
const REDIRECTS_MAX: usize = 5;
/// Bytes of another server's error text that are passed on.
const DETAIL_BYTES_MAX: u64 = 300;

/// The mover of a copy, as the one who writes the markers sees it.
#[derive(Default)]
pub(super) struct Watched(Mutex<Option<MoverView>>);

/// A copy that has succeeded.
pub(super) struct Copied {
    pub report: MoverReport,
}

/// A copy that has not.
pub(super) enum CopyFailure {
    /// It is our fault and was found before any byte moved.
    Early(Problem),
    /// One line for people.
    Late(String),
}

impl CopyFailure {
    /// The mover ended for another one. Clients take it for what a status would tell: come back later.
    pub(super) fn preempted(why: &PreemptionReason) -> CopyFailure {
        CopyFailure::Late(format!("{}: {why}", StatusCode::SERVICE_UNAVAILABLE))
    }
}

pub(super) async fn copy(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    if duplicate::stays_here(door, &request.headers) {
        return duplicate::copy(door, connection, call).await;
    }
    let asked = CopyRequest::parse(&request.headers).map_err(|why| match why {
        InvalidCopy::Scheme { .. } => Problem::new(StatusCode::NOT_IMPLEMENTED, why.to_string()),
        why => Problem::bad_request(why.to_string()),
    })?;
    match asked.credential {
        None | Some(Credential::None) => {}
        Some(Credential::Gridsite | Credential::Oidc) => {
            return Err(Problem::bad_request(
                "only 'Credential: none' is supported; pass the other side's token as \
                 'TransferHeaderAuthorization'",
            ));
        }
    }
    let client_info = asked.client_info.as_deref().unwrap_or_default();
    tracing::debug!(%path, remote = shown(asked.direction.remote()), client_info, "copy");
    let watched = Watched::default();
    let remote = asked.direction.remote().clone();
    match asked.direction {
        Direction::Pull { .. } => {
            let pull = pull::prepare(door, call, asked)?;
            check_server(door, &remote)?;
            watched.follow(pull.view());
            let work = pull::run(door, pull, &watched);
            drive(door, connection, &watched, work).await
        }
        Direction::Push { .. } => {
            let push = push::prepare(door, caller, path, asked)?;
            check_server(door, &remote)?;
            watched.follow(push.view());
            let leftover = Leftover::of(door);
            let work = push::run(door, push, &leftover);
            let reply = drive(door, connection, &watched, work).await;
            // A push that was given up half-way has been dropped by now, and its connection closed. Its client's
            // connection is held until that is cleaned up, so that no more of this goes on than there are connections.
            leftover.remove().await;
            reply
        }
    }
}

/// The site allows connections to this server.
fn check_server(door: &Door, url: &Url) -> Result<(), Problem> {
    let judged = door.storage.settings().outbound.allow.judge(url);
    judged.map(drop).map_err(|why| {
        let server = url.host_str().unwrap_or_default();
        tracing::warn!(
            server,
            port = url.port(),
            "refused to connect to a server that is not allowed"
        );
        Problem::new(StatusCode::FORBIDDEN, why.to_string())
    })
}

/// What a server answers may be shown to the client: the site lists it by its name and port. Others may be anything.
fn may_show(door: &Door, url: &Url) -> bool {
    let judged = door.storage.settings().outbound.allow.judge(url);
    judged == Ok(Listing::Named)
}

/// Runs a copy and tells the client how it goes.
async fn drive(
    door: &Door,
    connection: &mut Connection,
    watched: &Watched,
    work: impl Future<Output = Result<Copied, CopyFailure>>,
) -> Result<Reply, Problem> {
    let mut work = pin!(work);
    let headers = HeaderMap::from_iter([(
        CONTENT_TYPE,
        HeaderValue::from_static("text/perf-marker-stream"),
    )]);
    let quick = tokio::select! {
        biased;
        result = &mut work => Some(result),
        () = connection.peer_closed() => return Ok(Reply::Sent(Err(client_left()))),
        () = tokio::time::sleep(QUIET) => None,
    };
    if let Some(result) = quick {
        let text = match result {
            Err(CopyFailure::Early(problem)) => return Err(problem),
            other => last_lines(watched, other),
        };
        let sent = connection.respond(StatusCode::ACCEPTED, headers, text.as_bytes());
        return Ok(Reply::Sent(sent.await));
    }
    Ok(Reply::Sent(
        stream(door, connection, headers, watched, work).await,
    ))
}

/// The answer of a copy that takes a while.
async fn stream(
    door: &Door,
    connection: &mut Connection,
    headers: HeaderMap,
    watched: &Watched,
    mut work: std::pin::Pin<&mut impl Future<Output = Result<Copied, CopyFailure>>>,
) -> io::Result<()> {
    let limits = door.storage.settings().limits.clone();
    connection
        .start_chunked(StatusCode::ACCEPTED, headers)
        .await?;
    let mut stopping = pin!(stopping(door, limits.shutdown_grace, watched));
    let text = loop {
        let marker = watched.marker(None);
        connection.write_chunk(marker.as_bytes()).await?;
        tokio::select! {
            biased;
            result = &mut work => break last_lines(watched, result),
            // Returning drops the work, which removes what it has written and frees its slot.
            () = connection.peer_closed() => return Err(client_left()),
            () = &mut stopping => {
                let text = "this server is stopping; the partial file was removed".to_owned();
                break write_outcome(&Outcome::Aborted(text));
            }
            () = tokio::time::sleep(limits.marker_interval) => {}
        }
    };
    connection.write_chunk(text.as_bytes()).await?;
    connection.end_chunks().await
}

/// Resolves when a stopping server can wait no longer: at once for a copy that has not begun.
async fn stopping(door: &Door, grace: Duration, watched: &Watched) {
    let mut shutdown = door.shutdown.clone();
    // An error means that whoever could stop the server is gone, which stops it as well.
    let _ = shutdown.wait_for(|stop| *stop).await;
    if watched.is_running() {
        tokio::time::sleep(grace).await;
    }
}

/// The last marker, with the mover's report, and the outcome.
fn last_lines(watched: &Watched, result: Result<Copied, CopyFailure>) -> String {
    match result {
        Ok(copied) => {
            let mut text = watched.marker(Some(copied.report));
            text.push_str(&write_outcome(&Outcome::Success("Created".to_owned())));
            text
        }
        Err(CopyFailure::Early(problem)) => {
            // No other words tell a client that this end is busy, once the answer has begun.
            let text = match problem.status {
                StatusCode::SERVICE_UNAVAILABLE => format!("{}: {}", problem.status, problem.text),
                _ => problem.text,
            };
            write_outcome(&Outcome::Failure(text))
        }
        Err(CopyFailure::Late(text)) => write_outcome(&Outcome::Failure(text)),
    }
}

fn client_left() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "the client left, so its copy was cancelled",
    )
}

impl Watched {
    /// From now on the markers tell of this mover.
    pub(super) fn follow(&self, view: MoverView) {
        *self.0.lock() = Some(view);
    }

    fn is_running(&self) -> bool {
        let view = self.0.lock();
        view.as_ref().is_some_and(MoverView::is_running)
    }

    fn marker(&self, report: Option<MoverReport>) -> String {
        let view = self.0.lock();
        let running = view.as_ref().filter(|view| view.is_running());
        write_marker(&Marker {
            timestamp_s: wall_clock().unix_seconds(),
            stripe_index: 0,
            moved: running.map(MoverView::moved),
            stripes: 1,
            remote: running.and_then(MoverView::remote),
            report,
        })
    }
}

/// Sends a request without a body and follows redirects, but only to allowed hosts; secrets stay behind
/// when the place changes.
pub(super) async fn send_following(
    door: &Door,
    mut request: Outgoing,
) -> Result<Incoming, CopyFailure> {
    for _ in 0..=REDIRECTS_MAX {
        let response = door.storage.client.send(request.clone()).await;
        let mut response = response.map_err(|why| late(door, &request.url, &why))?;
        match follow(door, request, &mut response).await? {
            None => return Ok(response),
            Some(next) => request = next,
        }
    }
    Err(CopyFailure::Late(format!(
        "more than {REDIRECTS_MAX} redirects"
    )))
}

/// The request that a redirect asks for; `None` when the response is none.
pub(super) async fn follow(
    door: &Door,
    request: Outgoing,
    response: &mut Incoming,
) -> Result<Option<Outgoing>, CopyFailure> {
    let from = request.url.clone();
    let late = |why: ClientError| late(door, &from, &why);
    let Some(location) = response.redirect().map_err(late)? else {
        return Ok(None);
    };
    check_server(door, &location).map_err(|problem| {
        let from = shown(&from);
        CopyFailure::Late(format!("{from} redirects: {}", problem.text))
    })?;
    let next = door
        .storage
        .client
        .redirected(request, response.status, location)
        .map_err(late)?;
    // Read to its end, the connection can be used again; a failure here matters to nobody.
    let _ = response.read_all(DETAIL_BYTES_MAX).await;
    Ok(Some(next))
}

/// Why another server could not be spoken with.
pub(super) fn late(door: &Door, url: &Url, why: &ClientError) -> CopyFailure {
    CopyFailure::Late(match may_show(door, url) {
        true => why.to_string(),
        false => why.without_foreign_text(),
    })
}

/// What another server said instead of doing its part, in one line.
pub(super) async fn refusal(door: &Door, response: &mut Incoming) -> String {
    let status = response.status;
    let url = shown(response.final_url());
    if !may_show(door, response.final_url()) {
        return format!("{url} answered {status}");
    }
    let detail = response.read_all(64 << 10).await.unwrap_or_default();
    let detail = String::from_utf8_lossy(&detail);
    let line: String = detail
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(DETAIL_BYTES_MAX as usize)
        .collect();
    let line = line.trim();
    let separator = if line.is_empty() { "" } else { ": " };
    format!("{url} answered {status}{separator}{line}")
}

/// A URL without its secrets.
pub(super) fn shown(url: &Url) -> String {
    redact(url.as_str())
}
