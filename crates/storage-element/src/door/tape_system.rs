//! What administrators are told of the tape system, and what they order it.

use super::answer::{Problem, Reply, json_answer};
use super::document_body::read_body;
use super::handler_context::{Door, RETRY_AFTER_SECONDS};
use super::list::unread;
use super::reserved::TapePlace;
use crate::nearline::{LiveBytes, Nearline, NearlineStatus};
use crate::nearline_inbox::NearlineMessage;
use crate::tape_operator::{OperatorError, OperatorOrder, OperatorReply};
use http::StatusCode;
use penstock_model::ProblemCode;
use penstock_protocol::http1::server::Connection;
use penstock_tape::record::TapeState;
use penstock_tape::request::{DriveName, TapeName};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// The longest order.
const ORDER_BYTES_MAX: usize = 4 << 10;

/// `{"state": "up"}`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DriveOrder {
    state: DriveChange,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DriveChange {
    Up,
    Down,
}

/// `{"state": "enabled"}`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TapeOrder {
    state: TapeChange,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TapeChange {
    Enabled,
    Disabled,
}

/// The caller is an administrator.
pub(super) async fn answer(
    door: &Door,
    connection: &mut Connection,
    nearline: &Nearline,
    place: TapePlace,
) -> Result<Reply, Problem> {
    let order = match place {
        TapePlace::Drive(name) => {
            let body = read_body(connection, "POST", ORDER_BYTES_MAX).await?;
            let order: DriveOrder = parse(&body, "{\"state\": \"up\"} or \"down\"")?;
            let drive = DriveName(name.into());
            match order.state {
                DriveChange::Up => OperatorOrder::DriveUp(drive),
                DriveChange::Down => OperatorOrder::DriveDown(drive),
            }
        }
        TapePlace::Tape(name) => {
            let body = read_body(connection, "POST", ORDER_BYTES_MAX).await?;
            let order: TapeOrder = parse(&body, "{\"state\": \"enabled\"} or \"disabled\"")?;
            let state = match order.state {
                TapeChange::Enabled => TapeState::Active,
                TapeChange::Disabled => TapeState::Disabled,
            };
            OperatorOrder::Tape(TapeName(name.into()), state)
        }
        TapePlace::OkToStop(name) => OperatorOrder::MayStop(name),
        TapePlace::Retry => {
            nearline.inbox.send(NearlineMessage::RetryNow);
            return Ok(json_answer(StatusCode::ACCEPTED, &json!({})).into());
        }
        _ => {
            let status = full_status(door, nearline).await?;
            return Ok(json_answer(StatusCode::OK, &json!(status)).into());
        }
    };
    match nearline.operate(order).await {
        Ok(OperatorReply::Done) => Ok(json_answer(StatusCode::OK, &json!({})).into()),
        Ok(OperatorReply::Answer(answer)) => Ok(json_answer(StatusCode::OK, &json!(answer)).into()),
        // Nothing else is replied to these.
        Ok(OperatorReply::Account(_) | OperatorReply::Metrics(_)) => {
            Err(problem(&OperatorError::Silent))
        }
        Err(why) => Err(problem(&why)),
    }
}

/// With what is needed of each tape, which only the namespace tells.
pub(super) async fn full_status(
    door: &Door,
    nearline: &Nearline,
) -> Result<NearlineStatus, Problem> {
    let mut status = nearline.status();
    if let Some(libraries) = &mut status.libraries {
        let namespace = Arc::clone(&door.storage.namespace);
        let live = tokio::task::spawn_blocking(move || Nearline::live_bytes(&namespace));
        let live = live.await.map_err(unread)?;
        let live =
            live.map_err(|why| Problem::new(ProblemCode::NamespaceFailed, why.to_string()))?;
        for tape in &mut libraries.tapes {
            let of_tape: Option<&LiveBytes> = live.get(&TapeName(tape.name.as_str().into()));
            tape.live = of_tape.copied().unwrap_or_default();
        }
    }
    Ok(status)
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8], form: &str) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|why| {
        let text = format!("the order is not understood ({why}); send {form}");
        Problem::new(ProblemCode::RequestMalformed, text)
    })
}

pub(super) fn problem(why: &OperatorError) -> Problem {
    let text = why.to_string();
    match why {
        OperatorError::Unknown(_) => Problem::new(ProblemCode::ResourceNotFound, text),
        OperatorError::NoLibraries => Problem::new(ProblemCode::FeatureUnsupported, text),
        OperatorError::Busy | OperatorError::Silent => {
            Problem::busy(ProblemCode::ServiceBusy, text, RETRY_AFTER_SECONDS)
        }
        OperatorError::Namespace(_) => Problem::new(ProblemCode::NamespaceFailed, text),
    }
}
