//! Jobs and files as FTS's REST interface shows them: the same keys, the same words.

mod file;

pub use file::{FileObject, JobColumns};

use penstock_decide::wording;
use penstock_journal::{JobRow, TransferRow};
use penstock_model::ids::{JobId, TransferId};
use penstock_model::tape::STAGING_SECONDS_DEFAULT;
use penstock_model::text::plural;
use penstock_model::{
    ChecksumMode, CopyMode, Failure, IpVersion, LedgerEntry, Locality, Overwrite, Problem,
    Timestamp, TransferEvent, TransferState, WaitReason,
};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// A time as FTS clients parse it, or null.
fn time(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, |at| json!(at.to_fts()))
}

fn object<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// A job object with all keys of FTS's job table. Long because each key has its line.
pub fn job(row: &JobRow, host: &str) -> Map<String, Value> {
    let parameters = &row.parameters;
    let overwrite = match parameters.overwrite {
        Overwrite::Never => Value::Null,
        Overwrite::Always => json!("Y"),
        Overwrite::OnRetry => json!("R"),
        Overwrite::IntermediateHops => json!("M"),
        Overwrite::OnlyOnDisk => json!("D"),
        Overwrite::IntermediateHopsAndOnlyOnDisk => json!("Q"),
    };
    let verify = match parameters.verify_checksum {
        ChecksumMode::None => "n",
        ChecksumMode::Source => "s",
        ChecksumMode::Target => "t",
        ChecksumMode::Both => "b",
    };
    let numbers = [
        ("nostreams", parameters.streams.map(u64::from)),
        ("timeout", parameters.timeout_seconds),
        ("buffersize", parameters.buffer.map(|buffer| buffer.0)),
    ];
    let numbers = numbers.into_iter();
    let mut internal: Vec<String> = numbers
        .filter_map(|(name, number)| Some(format!("{name}:{}", number?)))
        .collect();
    let words = [
        parameters.strict_copy.then_some("strict"),
        parameters.ip_version.map(IpVersion::name),
        parameters.removes_source.then_some("delete_source"),
    ];
    internal.extend(words.into_iter().flatten().map(str::to_owned));
    let internal = (!internal.is_empty()).then(|| internal.join(","));
    object([
        ("job_id", json!(row.id.to_string())),
        ("job_state", json!(row.state.name())),
        ("job_type", json!(parameters.kind.fts_letter())),
        ("source_se", json!(row.source.as_str())),
        ("dest_se", json!(row.destination.as_str())),
        ("cancel_job", json!(false)),
        ("submit_host", json!(host)),
        ("user_dn", json!(row.user.as_str())),
        ("cred_id", json!(row.delegation.as_str())),
        ("vo_name", json!(row.vo.as_str())),
        ("reason", json!(row.reason)),
        ("submit_time", json!(time(Some(row.submitted_at)))),
        ("priority", json!(parameters.priority.get())),
        (
            "max_time_in_queue",
            json!(parameters.expires_at.map(Timestamp::unix_seconds)),
        ),
        (
            "destination_spacetoken",
            json!(parameters.destination_space.as_deref().unwrap_or_default()),
        ),
        (
            "source_spacetoken",
            json!(parameters.source_space.as_deref().unwrap_or_default()),
        ),
        ("internal_job_params", json!(internal)),
        ("dst_file_report", json!(parameters.report_existing)),
        ("overwrite_flag", json!(overwrite)),
        ("job_finished", json!(time(row.finished_at))),
        (
            "copy_pin_lifetime",
            json!(seconds(parameters.staging.map(|staging| {
                staging.pin_seconds.unwrap_or(STAGING_SECONDS_DEFAULT)
            }))),
        ),
        ("verify_checksum", json!(verify)),
        (
            "bring_online",
            json!(seconds(
                parameters.staging.map(|staging| staging.within_seconds)
            )),
        ),
        (
            "archive_timeout",
            json!(seconds(parameters.archive_seconds)),
        ),
        ("target_qos", json!(null)),
        ("job_metadata", json!(parameters.metadata)),
        ("retry", json!(parameters.retries_max.unwrap_or(0))),
        (
            "retry_delay",
            json!(parameters.retry_delay_seconds.unwrap_or(0)),
        ),
        ("os_project_id", json!(null)),
    ])
}

/// Where the log of a file is asked for, at this service. FTS's is a file on the transfer host.
fn log_place(job: JobId, transfer: TransferId) -> String {
    format!("/jobs/{job}/files/{transfer}/log")
}

/// Seconds as FTS shows them: -1 when there are none.
fn seconds(given: Option<u64>) -> i64 {
    given.map_or(-1, |given| i64::try_from(given).unwrap_or(i64::MAX))
}

/// What the client gave, and `dst_file` for a file that was in the way when the job asked for that.
pub(crate) fn file_metadata<'a>(given: &'a Value, failure: Option<&Failure>) -> Cow<'a, Value> {
    let Some(found) = failure.and_then(|failure| failure.found.as_ref()) else {
        return Cow::Borrowed(given);
    };
    let mut metadata = match given {
        Value::Object(keys) => keys.clone(),
        Value::Null => Map::new(),
        // As FTS keeps what is no object.
        other => object([("label", other.clone())]),
    };
    let checksum = found.checksum.as_ref();
    metadata.insert(
        "dst_file".to_owned(),
        json!({
            "file_size": found.size.map(|size| size.0),
            "checksum_type": checksum.map(|sum| sum.algorithm().name().to_uppercase()),
            "checksum_value": checksum.map(|sum| sum.hex()),
            "file_on_tape": found.locality.is_some_and(Locality::is_on_tape),
            "file_on_disk": found.locality.is_none_or(Locality::is_on_disk),
        }),
    );
    Cow::Owned(Value::Object(metadata))
}

/// The reason that clients match on: the failure in FTS's form, also while a retry is awaited.
pub(super) fn reason(state: &TransferState) -> String {
    match state {
        TransferState::Failed { failure, .. } => failure.to_string(),
        TransferState::Submitted {
            last: Some(failure),
            ..
        } => failure.to_string(),
        TransferState::Canceled { reason, .. } => reason.clone(),
        TransferState::Staging { recall, .. } | TransferState::Recalling { recall, .. } => recall
            .last
            .as_ref()
            .map_or_else(String::new, ToString::to_string),
        TransferState::NotUsed
        | TransferState::Submitted { last: None, .. }
        | TransferState::Active { .. }
        | TransferState::Archiving { .. }
        | TransferState::Finished { .. } => String::new(),
    }
}

/// Only the keys that a client asked for; all of them present.
pub fn select(object: Map<String, Value>, fields: &[&str]) -> Value {
    let pick = |field: &&str| {
        (
            (*field).to_owned(),
            object.get(*field).cloned().unwrap_or(Value::Null),
        )
    };
    Value::Object(fields.iter().map(pick).collect())
}

/// A failed attempt as FTS lists retries.
pub fn retry(entry: &LedgerEntry, host: &str) -> Option<Value> {
    match &entry.event {
        TransferEvent::AttemptFailed {
            attempt, failure, ..
        } => Some(json!({
            "file_id": entry.transfer.0,
            "attempt": attempt.0,
            "datetime": entry.at.to_fts(),
            "reason": failure.to_string(),
            "transfer_host": host,
            "log_file": log_place(entry.job, entry.transfer),
        })),
        _ => None,
    }
}

/// How a file was copied: what its job asked for beside what was in effect. `null` until it has arrived, and for what
/// nobody told.
pub(super) fn copied(state: &TransferState, job: &JobRow) -> Value {
    let TransferState::Finished { mode, report, .. } = state else {
        return Value::Null;
    };
    json!({
        "mode": mode.map(CopyMode::name),
        "not_offered": report.not_offered,
        "asked": { "streams": job.parameters.streams, "buffer_bytes": job.parameters.buffer },
        "in_effect": report.streams,
    })
}

/// What becomes of a job, for people: lines about how many of its files are in which state.
pub fn explanation(job: &JobRow, counts: &[(String, u64)]) -> Map<String, Value> {
    let files: u64 = counts.iter().map(|(_, count)| count).sum();
    let (id, state) = (job.id, job.state.name());
    let files = plural(files, "file");
    let mut lines = vec![format!("job {id} is {state}: {files}")];
    for (name, text) in [
        ("FINISHED", "arrived"),
        ("ACTIVE", "moving"),
        ("STARTED", "being recalled from tape"),
        ("STAGING", "waiting for a tape system"),
        ("ARCHIVING", "arrived, not on tape yet"),
        ("SUBMITTED", "queued"),
        ("FAILED", "failed"),
        ("CANCELED", "canceled"),
        ("NOT_USED", "held in reserve"),
    ] {
        if let Some((_, number)) = counts.iter().find(|(counted, _)| counted == name) {
            lines.push(format!("{text}: {number}"));
        }
    }
    object([
        ("job_id", json!(id.to_string())),
        ("job_state", json!(state)),
        ("lines", json!(lines)),
    ])
}

/// What becomes of a file, for people.
pub fn explained(
    row: &TransferRow,
    job: &JobRow,
    waiting: Option<&WaitReason>,
    now: Timestamp,
) -> Value {
    json!({
        "file_id": row.id.0,
        "state": row.fts_state(),
        "source": row.request.source.to_string(),
        "destination": row.request.destination.to_string(),
        "waiting": waiting,
        "text": wording::transfer_state(&row.state, waiting, now),
        "copied": copied(&row.state, job),
        "problem": problem(&row.state),
    })
}

/// Why a file failed, as users are told it everywhere.
fn problem(state: &TransferState) -> Option<Problem> {
    match state {
        TransferState::Failed { failure, .. } => Some(failure.problem()),
        TransferState::Submitted { .. }
        | TransferState::Staging { .. }
        | TransferState::Recalling { .. }
        | TransferState::Active { .. }
        | TransferState::Archiving { .. }
        | TransferState::Finished { .. }
        | TransferState::Canceled { .. }
        | TransferState::NotUsed => None,
    }
}

/// Reads a job id.
pub fn job_id(text: &str) -> Option<JobId> {
    uuid::Uuid::parse_str(text.trim()).ok().map(JobId)
}

/// Reads a file id.
pub fn transfer_id(text: &str) -> Option<TransferId> {
    text.trim().parse().ok().map(TransferId)
}

/// Reads a whole number, also one that is written `5.0`: JSON does not tell it from 5.
pub fn whole(number: &serde_json::Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        // Large ones are read with an error in the last place. Beyond, a float does not tell one from the next.
        let exact = |float: &f64| {
            let error = (float - float.round()).abs();
            error <= float.abs() * f64::EPSILON && float.abs() <= 9_007_199_254_740_992.0
        };
        let float = number.as_f64().filter(exact);
        float.map(|float| float.round() as i64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_may_have_a_point() {
        let read = |text: &str| whole(&text.parse().expect("a number"));
        for (text, expected) in [
            ("5", Some(5)),
            ("5.0", Some(5)),
            ("-3.0", Some(-3)),
            ("5e2", Some(500)),
            ("2246850803757175.0", Some(2_246_850_803_757_175)),
            ("1e-300", None),
            ("5.5", None),
            ("1e300", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
