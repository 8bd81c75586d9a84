//! COPY: this storage element as the active party of a third-party copy (draft-http-tpc-01). The answer
//! is a stream of markers while the copy waits and runs, and always a last line that tells the outcome. A
//! client that leaves cancels.
//!
//! What is known to be wrong before the other side was asked is a plain status; everything later is a
//! `failure:` line, because davix takes most statuses for "not supported".

use super::answer::{Problem, Reply};
use super::handler_context::{Call, Door};
use super::push_leftover::LeftoverGuard;
use super::remote::{CopyFailure, CopyMover, LateFailure, check_server, redacted};
use super::{duplicate, pull, push};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use penstock_model::{MoverReport, ProblemCode};
use penstock_protocol::http1::server::Connection;
use penstock_protocol::tpc::{
    CopyRequest, Credential, Direction, InvalidCopy, Outcome, write_outcome,
};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

/// A copy that ends within this time is answered whole, in one write.
const QUIET: Duration = Duration::from_millis(250);

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
    let order = CopyRequest::parse(&request.headers).map_err(|why| match why {
        InvalidCopy::Scheme { .. } => {
            Problem::new(ProblemCode::FeatureUnsupported, why.to_string())
        }
        why => Problem::bad_request(why.to_string()),
    })?;
    match order.credential {
        None | Some(Credential::None) => {}
        Some(Credential::Gridsite | Credential::Oidc) => {
            return Err(Problem::bad_request(
                "only 'Credential: none' is supported; pass the other side's token as \
                 'TransferHeaderAuthorization'",
            ));
        }
    }
    let client_info = order.client_info.as_deref().unwrap_or_default();
    tracing::debug!(%path, remote = redacted(order.direction.remote()), client_info, "copy");
    let mover = CopyMover::default();
    let remote = order.direction.remote().clone();
    match order.direction {
        Direction::Pull { .. } => {
            let pull = pull::prepare(door, call, order)?;
            check_server(door, &remote)?;
            mover.follow(pull.view());
            let work = pull::run(door, pull, &mover);
            drive(door, connection, &mover, work).await
        }
        Direction::Push { .. } => {
            let push = push::prepare(door, caller, path, order)?;
            check_server(door, &remote)?;
            mover.follow(push.view());
            let leftover = LeftoverGuard::of(door);
            let work = push::run(door, push, &leftover);
            let reply = drive(door, connection, &mover, work).await;
            // A push that was given up half-way has been dropped by now, and its connection closed. Its client's
            // connection is held until that is cleaned up, so that no more of this goes on than there are connections.
            leftover.remove().await;
            reply
        }
    }
}

/// Runs a copy and tells the client how it goes.
async fn drive(
    door: &Door,
    connection: &mut Connection,
    mover: &CopyMover,
    work: impl Future<Output = Result<MoverReport, CopyFailure>>,
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
            other => last_lines(mover, other),
        };
        let sent = connection.respond(StatusCode::ACCEPTED, headers, text.as_bytes());
        return Ok(Reply::Sent(sent.await));
    }
    Ok(Reply::Sent(
        stream(door, connection, headers, mover, work).await,
    ))
}

/// The answer of a copy that takes a while.
async fn stream(
    door: &Door,
    connection: &mut Connection,
    headers: HeaderMap,
    mover: &CopyMover,
    mut work: std::pin::Pin<&mut impl Future<Output = Result<MoverReport, CopyFailure>>>,
) -> io::Result<()> {
    let limits = door.storage.settings().limits.clone();
    connection
        .start_chunked(StatusCode::ACCEPTED, headers)
        .await?;
    let mut stopping = pin!(stopping(door, limits.shutdown_grace, mover));
    let text = loop {
        let marker = mover.marker(None);
        connection.write_chunk(marker.as_bytes()).await?;
        tokio::select! {
            biased;
            result = &mut work => break last_lines(mover, result),
            // Returning drops the work, which removes what it has written and frees its slot.
            () = connection.peer_closed() => return Err(client_left()),
            () = &mut stopping => {
                let text = "this server is stopping; the partial file was removed".to_owned();
                let cause = mover.marker_of_failure(ProblemCode::ServiceStopping);
                break cause + &write_outcome(&Outcome::Aborted(text));
            }
            () = tokio::time::sleep(limits.marker_interval) => {}
        }
    };
    connection.write_chunk(text.as_bytes()).await?;
    connection.end_chunks().await
}

/// Resolves when a stopping server can wait no longer: at once for a copy that has not begun.
async fn stopping(door: &Door, grace: Duration, mover: &CopyMover) {
    let mut shutdown = door.shutdown.clone();
    // An error means that whoever could stop the server is gone, which stops it as well.
    let _ = shutdown.wait_for(|stop| *stop).await;
    if mover.is_running() {
        tokio::time::sleep(grace).await;
    }
}

/// The last marker, with the mover's report, and the outcome.
fn last_lines(mover: &CopyMover, result: Result<MoverReport, CopyFailure>) -> String {
    match result {
        Ok(report) => {
            let mut text = mover.marker(Some(report));
            text.push_str(&write_outcome(&Outcome::Success("Created".to_owned())));
            text
        }
        Err(CopyFailure::Early(problem)) => {
            let code = problem.cause.code;
            // No other words tell a client that this end is busy, once the answer has begun.
            let text = match problem.status {
                StatusCode::SERVICE_UNAVAILABLE => {
                    format!("{}: {}", problem.status, problem.text())
                }
                _ => problem.cause.message,
            };
            failed(mover, Some(code), text)
        }
        Err(CopyFailure::Late(LateFailure { text, code })) => failed(mover, code, text),
    }
}

fn failed(mover: &CopyMover, code: Option<ProblemCode>, text: String) -> String {
    let cause = code.map(|code| mover.marker_of_failure(code));
    cause.unwrap_or_default() + &write_outcome(&Outcome::Failure(text))
}

fn client_left() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "the client left, so its copy was cancelled",
    )
}
