//! How rows are made and read, in every back end.

use penstock_journal::JournalError;
use penstock_model::{JobKind, JobState, Priority, Timestamp, TransferState, job_state};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Display;

/// A job's state from those of its transfers, one of each kind, and a failure that explains it.
pub(super) fn roll_up(kind: JobKind, states: &[TransferState]) -> (JobState, Option<String>) {
    let reason = states.iter().find_map(|state| match state {
        TransferState::Failed { failure, .. } => Some(failure.to_string()),
        TransferState::Canceled { reason, .. } => Some(reason.clone()),
        TransferState::NotUsed
        | TransferState::Staging { .. }
        | TransferState::Recalling { .. }
        | TransferState::Submitted { .. }
        | TransferState::Active { .. }
        | TransferState::Archiving { .. }
        | TransferState::Finished { .. } => None,
    });
    let state = job_state(kind, states);
    (state, if state.is_terminal() { reason } else { None })
}

/// Stored parameters with another priority. What users wrote into them stays as it is, byte by byte.
pub(super) fn with_priority(parameters: &str, priority: Priority) -> serde_json::Result<String> {
    with_field(parameters, "priority", &priority)
}

/// Stored parameters of a job whose record may lack what came last.
pub(super) fn with_restored_at(parameters: &str, at: Timestamp) -> serde_json::Result<String> {
    with_field(parameters, "restored_at", &at)
}

fn with_field(parameters: &str, name: &str, value: &impl Serialize) -> serde_json::Result<String> {
    let mut fields: BTreeMap<&str, Box<RawValue>> = serde_json::from_str(parameters)?;
    fields.insert(name, serde_json::value::to_raw_value(value)?);
    serde_json::to_string(&fields)
}

/// Tells of a job that cannot be read. The others go on, and it stays as it is until somebody has looked.
pub(super) fn skip(job: &str, error: &JournalError) {
    tracing::error!(job, %error, "an open job cannot be read and is left alone: restore its rows from a backup");
}

/// What a row holds. Nothing when it cannot be read: that is told, the service does without it, and the row stays as it
/// is until somebody has looked.
pub(super) fn unless_unreadable<T>(
    table: &'static str,
    key: &dyn Display,
    read: Result<T, JournalError>,
) -> Result<Option<T>, JournalError> {
    match read {
        Err(error @ JournalError::Corrupt { .. }) => {
            tracing::error!(table, %key, %error, "a row of the journal cannot be read and is left alone: restore it from a backup");
            Ok(None)
        }
        read => read.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_changed_and_nothing_else() {
        let before =
            r#"{"kind":"independent","priority":3,"metadata":{"a":"\u0000","b":1e400,"b":2}}"#;
        let after = with_priority(before, Priority::clamped(5)).expect("an object");
        assert_eq!(
            after,
            r#"{"kind":"independent","metadata":{"a":"\u0000","b":1e400,"b":2},"priority":5}"#
        );
    }
}
