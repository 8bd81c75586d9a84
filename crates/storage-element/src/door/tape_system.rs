//! What administrators are told of the tape system, and what they order it.

use super::answer::{Problem, Reply, json_answer};
use super::document_body::read_body;
use super::handler_context::{Door, RETRY_AFTER_SECONDS};
use super::list::unread;
use super::reserved::TapeResource;
use crate::nearline::{LiveBytes, Nearline, NearlineStatus};
use crate::nearline_inbox::NearlineMessage;
use crate::tape_operator::{OperatorError, OperatorOrder, OperatorReply};
use http::StatusCode;
use penstock_model::{NamespacePath, ProblemCode};
use penstock_persistence::namespace::NamespaceError;
use penstock_protocol::http1::server::Connection;
use penstock_tape::record::TapeState;
use penstock_tape::request::{DriveName, TapeName};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The longest order.
const ORDER_BYTES_MAX: usize = 4 << 10;
/// The longest list of files that belong together, in bytes and in lines.
const HINTS_BYTES_MAX: usize = 1 << 20;
const HINTS_MAX: usize = 1_000;

/// `{"state": "up"}`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DriveChangeDocument {
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
struct TapeChangeDocument {
    state: TapeChange,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TapeChange {
    Enabled,
    Disabled,
    ReadOnly,
}

/// `{"together": ["/atlas/raw/run1", "/atlas/raw/run2"]}`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RepackDocument {
    #[serde(default)]
    together: Vec<String>,
}

/// `{"hold_seconds": 86400}`; 0: it goes on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldDocument {
    hold_seconds: u64,
}

/// Hints that are paths of this storage element, and not too many.
fn checked_hints(together: Vec<String>) -> Result<Vec<String>, Problem> {
    let malformed = |text: String| Problem::new(ProblemCode::RequestMalformed, text);
    if together.len() > HINTS_MAX {
        let text = format!("the list has more than {HINTS_MAX} lines; name directories");
        return Err(malformed(text));
    }
    for hint in &together {
        if let Err(why) = NamespacePath::parse(hint) {
            return Err(malformed(format!("'{hint}' is not a path: {why}")));
        }
    }
    Ok(together)
}

/// The caller is an administrator. `is_end`: what was ordered there before is to end.
pub(super) async fn answer(
    door: &Door,
    connection: &mut Connection,
    nearline: &Nearline,
    (place, is_end): (TapeResource, bool),
) -> Result<Reply, Problem> {
    let order = match place {
        TapeResource::Drive(name) => {
            let body = read_body(connection, "POST", ORDER_BYTES_MAX).await?;
            let order: DriveChangeDocument = parse(&body, "{\"state\": \"up\"} or \"down\"")?;
            let drive = DriveName(name.into());
            match order.state {
                DriveChange::Up => OperatorOrder::DriveUp(drive),
                DriveChange::Down => OperatorOrder::DriveDown(drive),
            }
        }
        TapeResource::Tape(name) => {
            let body = read_body(connection, "POST", ORDER_BYTES_MAX).await?;
            let order: TapeChangeDocument = parse(
                &body,
                "{\"state\": \"enabled\"}, \"disabled\" or \"read_only\"",
            )?;
            let state = match order.state {
                TapeChange::Enabled => TapeState::Active,
                TapeChange::Disabled => TapeState::Disabled,
                TapeChange::ReadOnly => TapeState::ReadOnly,
            };
            OperatorOrder::Tape(TapeName(name.into()), state)
        }
        TapeResource::Repack(name) if is_end => OperatorOrder::StopRepack(TapeName(name.into())),
        TapeResource::Repack(name) => {
            let body = read_body(connection, "POST", HINTS_BYTES_MAX).await?;
            let order: RepackDocument = parse(&body, "{\"together\": [\"/directory\"]}")?;
            let tape = TapeName(name.into());
            let together = checked_hints(order.together)?;
            OperatorOrder::Repack { tape, together }
        }
        TapeResource::Verify(name) => OperatorOrder::Verify(TapeName(name.into())),
        TapeResource::Relabel(name) => OperatorOrder::Relabel(TapeName(name.into())),
        TapeResource::Background => {
            let body = read_body(connection, "POST", ORDER_BYTES_MAX).await?;
            let order: HoldDocument = parse(&body, "{\"hold_seconds\": 86400}")?;
            OperatorOrder::HoldBackground(Duration::from_secs(order.hold_seconds))
        }
        TapeResource::OkToStop(name) => OperatorOrder::MayStop(name),
        TapeResource::Retry => {
            nearline.inbox.send(NearlineMessage::RetryNow);
            return Ok(json_answer(StatusCode::ACCEPTED, &json!({})).into());
        }
        TapeResource::Status => {
            let status = full_status(door, nearline).await?;
            return Ok(json_answer(StatusCode::OK, &json!(status)).into());
        }
        // Others answer these.
        TapeResource::Stages
        | TapeResource::Stage(_)
        | TapeResource::Cancel(_)
        | TapeResource::Release(_)
        | TapeResource::ArchiveInfo
        | TapeResource::DataSets
        | TapeResource::Account
        | TapeResource::Metrics => {
            let text = "there is no operation here";
            return Err(Problem::new(ProblemCode::ResourceNotFound, text.to_owned()));
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
    if let Some(hsm) = status.hsm.as_mut().filter(|hsm| !hsm.delayed.is_empty()) {
        let namespace = Arc::clone(&door.storage.namespace);
        let mut delayed = std::mem::take(&mut hsm.delayed);
        let named = tokio::task::spawn_blocking(move || {
            for waiting in &mut delayed {
                let file = waiting.file.map(|file| namespace.tape_file(file));
                // One that cannot be looked up is named by its number.
                if let Some(Ok(Some(found))) = file {
                    waiting.name_by(&found.path);
                }
            }
            delayed
        });
        hsm.delayed = named.await.map_err(unread)?;
    }
    if let Some(libraries) = &mut status.libraries {
        let namespace = Arc::clone(&door.storage.namespace);
        let mut unreadable = std::mem::take(&mut libraries.care.unreadable);
        let found = tokio::task::spawn_blocking(move || {
            let live = Nearline::live_bytes(&namespace)?;
            Nearline::name_unreadable(&namespace, &mut unreadable)?;
            Ok::<_, NamespaceError>((live, unreadable))
        });
        let found = found.await.map_err(unread)?;
        let (live, unreadable) =
            found.map_err(|why| Problem::new(ProblemCode::NamespaceFailed, why.to_string()))?;
        libraries.care.unreadable = unreadable;
        for tape in &mut libraries.tapes {
            let of_tape: Option<&LiveBytes> = live.get(&TapeName(tape.name.as_str().into()));
            tape.live = of_tape.copied().unwrap_or_default();
            tape.dead_bytes = tape.written_bytes.saturating_sub(tape.live.bytes);
        }
    }
    Ok(status)
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8], form: &str) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|why| {
        let text = format!("the request cannot be parsed ({why}); send {form}");
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
        OperatorError::TapeState { .. } | OperatorError::Kept { .. } => {
            Problem::new(ProblemCode::TapeInUse, text)
        }
        OperatorError::Namespace(_) => Problem::new(ProblemCode::NamespaceFailed, text),
    }
}
