//! How a request waits for its mover, and how long.

use super::answer::Problem;
use super::handler_context::{Door, RETRY_AFTER_SECONDS};
use crate::mover::{Mover, MoverRequest, PoolQueueFull};
use penstock_model::{ProblemCode, TimeSpan};
use penstock_persistence::namespace::MoverOutcome;
use penstock_protocol::http1::server::{BodyError, Connection};
use std::pin::pin;
use std::time::Duration;

/// How long a mover is held for a client that was told to send its body and has not begun.
const BODY_BEGIN_WAIT: Duration = Duration::from_secs(5);

/// A mover for the body of a request: one is taken when something of the body has come, so that nobody holds a slot who
/// has nothing to send. A client that holds its body back (RFC 9110 §10.1.1) is told to send it when a mover is there, and
/// refused before it has sent a byte when there is none; the mover is held for it for a moment only. May be dropped.
pub(super) async fn mover_for_body(
    door: &Door,
    connection: &mut Connection,
    request: MoverRequest,
) -> Result<Mover, NoMover> {
    if connection.holds_body_back() {
        let mut mover = door.storage.arrive(request.clone())?;
        {
            let mut waiting = pin!(wait_for_slot(door, &mut mover, None));
            tokio::select! {
                biased;
                waited = &mut waiting => waited?,
                come = connection.body_comes() => {
                    // It does not wait to be told.
                    come?;
                    waiting.await?;
                }
            }
        }
        connection.tell_to_continue().await.map_err(BodyError::Io)?;
        match tokio::time::timeout(BODY_BEGIN_WAIT, connection.body_comes()).await {
            Ok(come) => return come.map(|()| mover).map_err(NoMover::Body),
            Err(_) => mover.end(MoverOutcome::Aborted(format!(
                "the client was asked to send its file and sent nothing for {}; the slot was given to others",
                TimeSpan(BODY_BEGIN_WAIT)
            ))),
        }
    }
    connection.body_begins().await?;
    let mut mover = door.storage.arrive(request)?;
    wait_for_slot(door, &mut mover, None).await?;
    Ok(mover)
}

/// Why a body gets no mover.
pub(super) enum NoMover {
    /// It did not come.
    Body(BodyError),
    /// None was to be had.
    Refused(Problem),
}

impl From<BodyError> for NoMover {
    fn from(why: BodyError) -> NoMover {
        NoMover::Body(why)
    }
}

impl From<Problem> for NoMover {
    fn from(why: Problem) -> NoMover {
        NoMover::Refused(why)
    }
}

impl From<PoolQueueFull> for NoMover {
    fn from(why: PoolQueueFull) -> NoMover {
        NoMover::Refused(why.into())
    }
}

/// Waits until a mover has its slot, as long as its client is there. With `connection` a client that
/// leaves is noticed at once; one that sends a body is noticed when the body is read.
pub(super) async fn wait_for_slot(
    door: &Door,
    mover: &mut Mover,
    connection: Option<&mut Connection>,
) -> Result<(), Problem> {
    if mover.is_running() {
        return Ok(());
    }
    let limit = door.storage.settings().limits.first_byte_timeout;
    let gone = async {
        match connection {
            Some(connection) => connection.peer_closed().await,
            None => std::future::pending().await,
        }
    };
    let why = mover.waits_because().map(|reason| format!(" ({reason})"));
    tokio::select! {
        waited = mover.wait() => Ok(waited?),
        () = gone => Err(Problem::new(ProblemCode::BodyIncomplete, "the client left while it waited")),
        () = tokio::time::sleep(limit) => {
            let (why, limit) = (why.unwrap_or_default(), TimeSpan(limit));
            let text = format!("no mover became free in {limit}{why}; try again later");
            tracing::info!(text, "a mover waited in vain");
            mover.record_refusal(text.clone());
            Err(Problem::busy(ProblemCode::PoolBusy, text, RETRY_AFTER_SECONDS))
        }
    }
}
