//! What a submission's `params` say of the whole job.

use super::file::FileEntry;
use super::{BASE_ID, InvalidSubmission, Means, Submitter, bad, flag, integer, positive, tape};
use penstock_engine::checked_submission::NewTransfer;
use penstock_model::{
    Bytes, ChecksumMode, IpVersion, JobId, JobKind, JobParameters, Priority, Timestamp, VoName,
};
use serde_json::{Map, Value, json};
use std::time::Duration;
use uuid::Uuid;

/// Bytes of `job_metadata`, as JSON.
pub(super) const JOB_METADATA_MAX: usize = 2048;
/// Streams that one transfer may ask for.
const STREAMS_MAX: i64 = 100;

pub(super) fn refuse_unsupported(params: &Map<String, Value>) -> Result<(), InvalidSubmission> {
    let quality = params.get("target_qos");
    if quality.is_some_and(|name| !name.is_null() && name != "") {
        return Err(bad(
            "'target_qos': changing the quality of service of a file (CDMI) is not offered",
        ));
    }
    Ok(())
}

/// What a job of so many entries is, by any of them that has replicas, or else its first. Several pairs in one entry are
/// replicas of one file; `multihop` makes the entries the hops of one way.
pub(super) fn kind(
    params: &Map<String, Value>,
    files: usize,
    entry: &FileEntry,
) -> Result<JobKind, InvalidSubmission> {
    match (entry.has_replicas(), flag(params, "multihop")?, files) {
        (false, false, _) if flag(params, "reuse")? => Ok(JobKind::Session),
        (false, false, _) => Ok(JobKind::Independent),
        (false, true, _) => Ok(JobKind::Hops),
        (true, true, _) => Err(bad(
            "a multihop job cannot have several sources or destinations for one hop",
        )),
        (true, false, 1) if flag(params, "reuse")? => Err(bad(
            "'reuse' cannot be combined with several sources or destinations",
        )),
        (true, false, 1) => Ok(JobKind::Replicas(entry.selection)),
        (true, false, _) => Err(bad(
            "a job with several sources or destinations for one file can hold that file only: submit one job \
             for each file",
        )),
    }
}

/// What goes in one session goes between the same two storage elements.
pub(super) fn one_way(transfers: &[NewTransfer]) -> Result<(), InvalidSubmission> {
    let way = |transfer: &NewTransfer| (transfer.source.storage(), transfer.destination.storage());
    match transfers.windows(2).all(|two| way(&two[0]) == way(&two[1])) {
        true => Ok(()),
        false => Err(bad(
            "Reuse jobs can only contain transfers for the same source and destination storage",
        )),
    }
}

pub(super) fn job_id(
    params: &Map<String, Value>,
    vo: &VoName,
    fresh: Uuid,
) -> Result<(JobId, bool), InvalidSubmission> {
    let generator = match params.get("id_generator") {
        None | Some(Value::Null) => "standard",
        Some(Value::String(name)) => name,
        Some(_) => "",
    };
    match generator {
        "standard" => Ok((JobId(fresh), false)),
        "deterministic" => {
            let sid = params
                .get("sid")
                .and_then(Value::as_str)
                .filter(|sid| !sid.is_empty());
            let sid = sid
                .ok_or_else(|| bad("'id_generator' is 'deterministic', so 'sid' must be given"))?;
            let of_vo = Uuid::new_v5(&BASE_ID, vo.as_str().as_bytes());
            Ok((JobId(Uuid::new_v5(&of_vo, sid.as_bytes())), true))
        }
        other => Err(bad(format!(
            "'id_generator' is '{other}'; use 'standard' or 'deterministic'"
        ))),
    }
}

pub(super) fn parameters(
    params: &Map<String, Value>,
    kind: JobKind,
    transfers: &[NewTransfer],
    submitter: &Submitter<'_>,
    now: Timestamp,
) -> Result<JobParameters, InvalidSubmission> {
    let any_checksum = transfers.iter().any(|transfer| transfer.checksum.is_some());
    let staging = tape::staging(params)?;
    tape::may_stay(kind, staging, transfers)?;
    let retries = integer(params, "retry")?;
    Ok(JobParameters {
        kind,
        verify_checksum: checksum_mode(params.get("verify_checksum"), any_checksum)?,
        overwrite: tape::overwrite(params, kind, transfers)?,
        // 0: the service's default; negative: never.
        retries_max: match retries.unwrap_or(0) {
            0 => None,
            count if count < 0 => Some(0),
            count => Some(u32::try_from(count).map_err(|_| bad("'retry' is too large"))?),
        },
        retry_delay_seconds: positive(params, "retry_delay")?,
        priority: integer(params, "priority")?
            .map(Priority::clamped)
            .unwrap_or_default(),
        timeout_seconds: positive(params, "timeout")?,
        strict_copy: flag(params, "strict_copy")?,
        disable_cleanup: flag(params, "disable_cleanup")?,
        report_existing: flag(params, "dst_file_report")?,
        streams: integer(params, "nostreams")?
            .filter(|n| *n > 0)
            .map(|n| n.min(STREAMS_MAX) as u32),
        buffer: positive(params, "buffer_size")?.map(Bytes),
        // As in FTS, version 4 wins.
        ip_version: match (flag(params, "ipv4")?, flag(params, "ipv6")?) {
            (true, _) => Some(IpVersion::V4),
            (false, true) => Some(IpVersion::V6),
            (false, false) => None,
        },
        expires_at: expiry(params.get("max_time_in_queue"), now)?,
        s3_path_style: flag(params, "s3alternate")?,
        metadata: job_metadata(params.get("job_metadata"), submitter.means)?,
        proxy: match submitter.means {
            Means::Token(_) => None,
            Means::Proxy => Some(submitter.delegation.clone()),
        },
        staging,
        archive_seconds: tape::archive_seconds(params)?,
        removes_source: tape::removes_source(params, kind, transfers)?,
        source_space: tape::space(params, "source_spacetoken")?,
        destination_space: tape::space(params, "destination_spacetoken")?,
        restored_at: None,
    })
}

/// `true`, `false`, or a word of which the first letter counts: none, source, target, both.
fn checksum_mode(
    value: Option<&Value>,
    any_checksum: bool,
) -> Result<ChecksumMode, InvalidSubmission> {
    match value {
        None | Some(Value::Null | Value::Bool(false)) if any_checksum => Ok(ChecksumMode::Target),
        None | Some(Value::Null | Value::Bool(false)) => Ok(ChecksumMode::None),
        Some(Value::Bool(true)) => Ok(ChecksumMode::Both),
        Some(Value::String(word)) => match word.to_ascii_lowercase().chars().next() {
            Some('n') => Ok(ChecksumMode::None),
            Some('s') => Ok(ChecksumMode::Source),
            Some('t') => Ok(ChecksumMode::Target),
            Some('b') => Ok(ChecksumMode::Both),
            _ => Err(bad(format!(
                "'verify_checksum' is '{word}'; use none, source, target or both"
            ))),
        },
        Some(_) => Err(bad(
            "'verify_checksum' must be true, false, or one of none, source, target, both",
        )),
    }
}

/// Hours as a number, or a number with one of the suffixes s, m, h, d.
fn expiry(value: Option<&Value>, now: Timestamp) -> Result<Option<Timestamp>, InvalidSubmission> {
    let refused =
        || bad("'max_time_in_queue' must be hours, or a number with the suffix s, m, h or d");
    let seconds = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(hours)) => hours.as_f64().ok_or_else(refused)? * 3600.0,
        Some(Value::String(text)) => {
            let text = text.trim();
            let (number, unit) = match text.char_indices().last() {
                Some((at, 's')) => (&text[..at], 1.0),
                Some((at, 'm')) => (&text[..at], 60.0),
                Some((at, 'h')) => (&text[..at], 3600.0),
                Some((at, 'd')) => (&text[..at], 86_400.0),
                _ => (text, 3600.0),
            };
            number.trim().parse::<f64>().map_err(|_| refused())? * unit
        }
        Some(_) => return Err(refused()),
    };
    if !seconds.is_finite() || seconds < 0.0 {
        return Err(refused());
    }
    Ok((seconds > 0.0).then(|| now + Duration::from_secs_f64(seconds.min(1e10))))
}

/// An object is kept, text becomes `{"label": text}`; the way of authentication is added, as FTS does.
fn job_metadata(value: Option<&Value>, means: Means<'_>) -> Result<Value, InvalidSubmission> {
    let mut object = match value {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(object)) => object.clone(),
        Some(Value::String(label)) => Map::from_iter([("label".to_owned(), json!(label))]),
        Some(other) => Map::from_iter([("label".to_owned(), other.clone())]),
    };
    if Value::Object(object.clone()).to_string().len() > JOB_METADATA_MAX {
        return Err(bad(format!(
            "'job_metadata' is longer than {JOB_METADATA_MAX} bytes"
        )));
    }
    let method = match means {
        Means::Token(_) => "oauth2",
        Means::Proxy => "certificate",
    };
    object.insert("auth_method".to_owned(), json!(method));
    Ok(Value::Object(object))
}
