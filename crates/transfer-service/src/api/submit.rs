//! `POST /jobs`: from FTS's submission document to a valid [`NewJob`].
//!
//! Keys, defaults and limits follow FTS3's REST server; unknown keys are tolerated, because every client sends some.
//! What this version cannot do (tape, several hops) is refused by name and never silently dropped.

use crate::submission::{NewJob, NewTransfer};
use penstock_model::{
    Activity, Bytes, Checksum, ChecksumAlgorithm, ChecksumMode, CredentialId, FileUrl, JobId,
    JobParameters, Overwrite, Priority, Timestamp, UserName, VoName,
};
use penstock_protocol::token::credential_id;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;
use uuid::Uuid;

/// The namespace of deterministic job ids (`base_id` of `/whoami`).
pub const BASE_ID: Uuid = uuid::uuid!("01874efb-4735-4595-bc9c-591aef8240c9");
/// Bytes of `job_metadata`, as JSON.
const JOB_METADATA_MAX: usize = 2048;
/// Bytes of a file's `metadata`, as JSON.
const FILE_METADATA_MAX: usize = 4096;
/// Streams that one transfer may ask for.
const STREAMS_MAX: i64 = 100;

/// Why a submission is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidSubmission {
    /// 400: the document says something that cannot be done.
    #[error("{0}")]
    Bad(String),
    /// 405: deletion jobs, as FTS answers them.
    #[error("Deletion jobs are no longer supported by FTS")]
    Deletion,
}

fn bad(text: impl Into<String>) -> InvalidSubmission {
    InvalidSubmission::Bad(text.into())
}

/// Who submits, with the token that stands in where files bring none of their own.
#[derive(Debug, Clone)]
pub struct Submitter<'a> {
    /// The subject.
    pub user: &'a UserName,
    /// The VO.
    pub vo: &'a VoName,
    /// Names the identity.
    pub delegation: &'a CredentialId,
    /// The bearer token of the request.
    pub token: &'a str,
}

/// Reads a submission. `fresh_id` is the id of a job that does not ask for a deterministic one; the flag tells
/// whether it does.
pub fn parse_submission(
    body: &[u8],
    submitter: &Submitter<'_>,
    fresh_id: Uuid,
    now: Timestamp,
) -> Result<(NewJob, bool), InvalidSubmission> {
    let document: Value = serde_json::from_slice(body)
        .map_err(|why| bad(format!("the body is not valid JSON: {why}")))?;
    let document = document
        .as_object()
        .ok_or_else(|| bad("the body must be a JSON object with 'files'"))?;
    if document
        .get("delete")
        .is_some_and(|value| value.as_array().is_some_and(|list| !list.is_empty()))
    {
        return Err(InvalidSubmission::Deletion);
    }
    let empty = Map::new();
    let params = match document.get("params") {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(params)) => params,
        Some(_) => return Err(bad("'params' must be an object")),
    };
    let files = match document.get("files") {
        Some(Value::Array(files)) if !files.is_empty() => files,
        _ => {
            return Err(bad(
                "No transfers have been specified: 'files' must be a list with at least one entry",
            ));
        }
    };
    refuse_unsupported(params)?;
    let mut credentials = BTreeMap::new();
    let mut transfers = Vec::with_capacity(files.len());
    for (index, file) in files.iter().enumerate() {
        let parsed = transfer(file, submitter, &mut credentials);
        transfers.push(parsed.map_err(|why| match why {
            InvalidSubmission::Bad(text) => bad(format!("files[{index}]: {text}")),
            deletion @ InvalidSubmission::Deletion => deletion,
        })?);
    }
    let any_checksum = transfers.iter().any(|transfer| transfer.checksum.is_some());
    let parameters = parameters(params, any_checksum, now)?;
    let (id, given) = job_id(params, submitter.vo, fresh_id)?;
    let job = NewJob {
        id,
        user: submitter.user.clone(),
        vo: submitter.vo.clone(),
        delegation: submitter.delegation.clone(),
        parameters,
        transfers,
        credentials: credentials.into_iter().collect(),
    };
    Ok((job, given))
}

fn refuse_unsupported(params: &Map<String, Value>) -> Result<(), InvalidSubmission> {
    let positive = |key: &str| {
        params
            .get(key)
            .and_then(Value::as_f64)
            .is_some_and(|value| value > 0.0)
    };
    if flag(params, "multihop")? {
        return Err(bad(
            "'multihop' jobs are not offered by this service: submit one job for each hop",
        ));
    }
    for key in ["bring_online", "copy_pin_lifetime", "archive_timeout"] {
        if positive(key) {
            return Err(bad(format!(
                "'{key}': staging and archiving are not offered by this service"
            )));
        }
    }
    for key in ["overwrite_when_only_on_disk", "overwrite_hop"] {
        if flag(params, key)? {
            return Err(bad(format!(
                "'{key}' needs a tape destination or a multihop job"
            )));
        }
    }
    Ok(())
}

fn job_id(
    params: &Map<String, Value>,
    vo: &VoName,
    fresh: Uuid,
) -> Result<(JobId, bool), InvalidSubmission> {
    match params.get("id_generator").and_then(Value::as_str) {
        None | Some("standard") => Ok((JobId(fresh), false)),
        Some("deterministic") => {
            let sid = params
                .get("sid")
                .and_then(Value::as_str)
                .filter(|sid| !sid.is_empty());
            let sid = sid
                .ok_or_else(|| bad("'id_generator' is 'deterministic', so 'sid' must be given"))?;
            let of_vo = Uuid::new_v5(&BASE_ID, vo.as_str().as_bytes());
            Ok((JobId(Uuid::new_v5(&of_vo, sid.as_bytes())), true))
        }
        Some(other) => Err(bad(format!(
            "'id_generator' is '{other}'; use 'standard' or 'deterministic'"
        ))),
    }
}

fn parameters(
    params: &Map<String, Value>,
    any_checksum: bool,
    now: Timestamp,
) -> Result<JobParameters, InvalidSubmission> {
    let overwrite = match (
        flag(params, "overwrite")?,
        flag(params, "overwrite_on_retry")?,
    ) {
        (true, true) => {
            return Err(bad(
                "at most one of 'overwrite' and 'overwrite_on_retry' may be true",
            ));
        }
        (true, false) => Overwrite::Always,
        (false, true) => Overwrite::OnRetry,
        (false, false) => Overwrite::Never,
    };
    let retries = integer(params, "retry")?;
    Ok(JobParameters {
        verify_checksum: checksum_mode(params.get("verify_checksum"), any_checksum)?,
        overwrite,
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
        streams: integer(params, "nostreams")?
            .filter(|n| *n > 0)
            .map(|n| n.min(STREAMS_MAX) as u32),
        expires_at: expiry(params.get("max_time_in_queue"), now)?,
        metadata: job_metadata(params.get("job_metadata"))?,
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
fn job_metadata(value: Option<&Value>) -> Result<Value, InvalidSubmission> {
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
    object.insert("auth_method".to_owned(), json!("oauth2"));
    Ok(Value::Object(object))
}

fn transfer(
    file: &Value,
    submitter: &Submitter<'_>,
    credentials: &mut BTreeMap<CredentialId, String>,
) -> Result<NewTransfer, InvalidSubmission> {
    let file = file
        .as_object()
        .ok_or_else(|| bad("must be an object with 'sources' and 'destinations'"))?;
    let source = only_url(file, "sources")?;
    let destination = only_url(file, "destinations")?;
    if source == destination {
        return Err(bad(format!(
            "source and destination are the same: {source}"
        )));
    }
    let (algorithm, checksum) = checksum(file.get("checksum"))?;
    let mut keep = |token: &str| {
        let id = credential_id(token);
        credentials.insert(id.clone(), token.to_owned());
        Some(id)
    };
    let source_token = only_token(file, "source_tokens")?.unwrap_or(submitter.token);
    let destination_token = only_token(file, "destination_tokens")?.unwrap_or(submitter.token);
    let activity = file
        .get("activity")
        .and_then(Value::as_str)
        .filter(|label| !label.is_empty());
    Ok(NewTransfer {
        source,
        destination,
        size: size(file.get("filesize"))?,
        checksum,
        checksum_algorithm: algorithm,
        activity: Activity::new(activity.unwrap_or("default")),
        scitag: scitag(file.get("scitag"))?,
        metadata: file_metadata(file)?,
        source_credential: keep(source_token),
        destination_credential: keep(destination_token),
    })
}

fn only_url(file: &Map<String, Value>, key: &str) -> Result<FileUrl, InvalidSubmission> {
    let urls = file.get(key).and_then(Value::as_array);
    let urls = urls.ok_or_else(|| bad(format!("'{key}' must be a list of URLs")))?;
    match urls.as_slice() {
        [Value::String(url)] => FileUrl::parse(url).map_err(|why| bad(why.to_string())),
        [] => Err(bad(format!("'{key}' names no URL"))),
        [_] => Err(bad(format!("'{key}' must be a list of URLs"))),
        _ => Err(bad(format!(
            "'{key}' names several URLs: multi-replica jobs are not offered by this service"
        ))),
    }
}

fn only_token<'a>(
    file: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a str>, InvalidSubmission> {
    match file.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(tokens)) => match tokens.as_slice() {
            [Value::String(token)] if !token.is_empty() => Ok(Some(token)),
            _ => Err(bad(format!("'{key}' must hold one token for each URL"))),
        },
        Some(_) => Err(bad(format!("'{key}' must be a list of tokens"))),
    }
}

/// `ALGORITHM` or `ALGORITHM:value`; ADLER32 when nothing is said.
fn checksum(
    value: Option<&Value>,
) -> Result<(ChecksumAlgorithm, Option<Checksum>), InvalidSubmission> {
    let text = match value {
        None | Some(Value::Null) => return Ok((ChecksumAlgorithm::Adler32, None)),
        Some(Value::String(text)) if text.is_empty() => {
            return Ok((ChecksumAlgorithm::Adler32, None));
        }
        Some(Value::String(text)) => text,
        Some(_) => return Err(bad("'checksum' must be text: ALGORITHM or ALGORITHM:value")),
    };
    let name = text.split(':').next().unwrap_or_default();
    let Some(algorithm) = ChecksumAlgorithm::parse(name) else {
        let known: Vec<_> = ChecksumAlgorithm::ALL
            .iter()
            .map(|known| known.name())
            .collect();
        return Err(bad(format!(
            "the checksum algorithm '{name}' is not known; use one of {}",
            known.join(", ")
        )));
    };
    if !text.contains(':') || text.ends_with(':') {
        return Ok((algorithm, None));
    }
    let value = Checksum::parse(text)
        .ok_or_else(|| bad(format!("'{text}' is not a valid {algorithm} checksum")))?;
    Ok((algorithm, Some(value)))
}

/// Bytes; clients send integers and floats, and 0 for unknown.
fn size(value: Option<&Value>) -> Result<Option<Bytes>, InvalidSubmission> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => match number.as_f64() {
            Some(bytes) if (0.0..=9.0e18).contains(&bytes) => {
                let exact = number.as_u64().unwrap_or(bytes as u64);
                Ok((exact > 0).then_some(Bytes(exact)))
            }
            _ => Err(bad("'filesize' must be a number of bytes, not negative")),
        },
        Some(_) => Err(bad("'filesize' must be a number of bytes")),
    }
}

fn scitag(value: Option<&Value>) -> Result<Option<u16>, InvalidSubmission> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|tag| u16::try_from(tag).ok()) {
            Some(tag) if tag >= 65 => Ok(Some(tag)),
            _ => Err(bad("'scitag' must be an integer from 65 to 65535")),
        },
    }
}

fn file_metadata(file: &Map<String, Value>) -> Result<Value, InvalidSubmission> {
    let metadata = match file.get("metadata").or_else(|| file.get("file_metadata")) {
        None | Some(Value::Null) => return Ok(Value::Null),
        Some(Value::String(label)) => json!({ "label": label }),
        Some(other) => other.clone(),
    };
    if metadata.to_string().len() > FILE_METADATA_MAX {
        return Err(bad(format!(
            "'metadata' is longer than {FILE_METADATA_MAX} bytes"
        )));
    }
    Ok(metadata)
}

/// A switch: true, false or absent. Clients also send null.
fn flag(params: &Map<String, Value>, key: &str) -> Result<bool, InvalidSubmission> {
    match params.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => Err(bad(format!("'{key}' must be true or false"))),
    }
}

/// An integer, also as text (the command line client sends `nostreams` so).
fn integer(params: &Map<String, Value>, key: &str) -> Result<Option<i64>, InvalidSubmission> {
    match params.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => number
            .as_i64()
            .or_else(|| number.as_f64().map(|float| float as i64))
            .map(Some)
            .ok_or(()),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
        Some(Value::String(text)) => text.trim().parse().map(Some).map_err(|_| ()),
        Some(_) => Err(()),
    }
    .map_err(|()| bad(format!("'{key}' must be an integer")))
}

/// A positive integer; absent, 0 and negative mean: the service's own.
fn positive(params: &Map<String, Value>, key: &str) -> Result<Option<u64>, InvalidSubmission> {
    Ok(integer(params, key)?
        .and_then(|value| u64::try_from(value).ok())
        .filter(|value| *value > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(body: &[u8]) -> Result<(NewJob, bool), InvalidSubmission> {
        let (user, vo, delegation) = (
            UserName::new("alice"),
            VoName::new("cms"),
            CredentialId::new("d"),
        );
        let submitter = Submitter {
            user: &user,
            vo: &vo,
            delegation: &delegation,
            token: "submit-token",
        };
        parse_submission(body, &submitter, Uuid::nil(), Timestamp(0))
    }

    fn one(params: &str, file: &str) -> Result<NewJob, String> {
        let ends = r#""sources":["https://a/f"],"destinations":["https://b/g"]"#;
        let body = format!(r#"{{"params":{params},"files":[{{{ends}{file}}}]}}"#);
        read(body.as_bytes())
            .map(|(job, _)| job)
            .map_err(|why| why.to_string())
    }

    fn refused(params: &str, file: &str, expected: &str) {
        assert_eq!(one(params, file).expect_err("must be refused"), expected);
    }

    #[test]
    fn defaults_are_those_of_fts() {
        let job = one("null", "").expect("valid");
        assert_eq!(job.parameters.retries_max, None);
        assert_eq!(job.parameters.priority.get(), 3);
        assert_eq!(job.parameters.verify_checksum, ChecksumMode::None);
        assert_eq!(job.parameters.metadata, json!({"auth_method": "oauth2"}));
        assert_eq!(
            job.transfers[0].checksum_algorithm,
            ChecksumAlgorithm::Adler32
        );
        assert_eq!(
            job.transfers[0].source_credential,
            Some(credential_id("submit-token"))
        );
    }

    #[test]
    fn the_many_ways_to_say_a_thing_are_understood() {
        let job = one(
            r#"{"retry":-1,"nostreams":"4","priority":9,"verify_checksum":"b","max_time_in_queue":"2m","reuse":false,
                "job_metadata":"x","timeout":100,"account":"unknown keys are tolerated"}"#,
            r#","filesize":5e6,"checksum":"ADLER32:1a","metadata":"m","scitag":65,"activity":null,
               "source_tokens":["s"],"destination_tokens":["d"]"#,
        );
        let job = job.expect("valid");
        assert_eq!(job.parameters.retries_max, Some(0));
        assert_eq!(job.parameters.streams, Some(4));
        assert_eq!(job.parameters.priority.get(), 5);
        assert_eq!(job.parameters.verify_checksum, ChecksumMode::Both);
        assert_eq!(job.parameters.expires_at, Some(Timestamp(120_000)));
        assert_eq!(job.parameters.metadata["label"], "x");
        let file = &job.transfers[0];
        assert_eq!(file.size, Some(Bytes(5_000_000)));
        assert_eq!(file.checksum.as_ref().map(Checksum::hex), Some("0000001a"));
        assert_eq!(file.metadata, json!({"label": "m"}));
        assert_eq!(job.credentials.len(), 2);
    }

    #[test]
    fn a_checksum_that_the_user_gives_is_verified_even_if_nothing_else_is_asked() {
        let job = one(r#"{"verify_checksum":false}"#, r#","checksum":"md5:00""#).expect("valid");
        assert_eq!(job.parameters.verify_checksum, ChecksumMode::Target);
    }

    #[test]
    fn a_deterministic_id_follows_from_vo_and_sid() {
        let job = one(r#"{"id_generator":"deterministic","sid":"abc"}"#, "").expect("valid");
        let of_vo = Uuid::new_v5(&BASE_ID, b"cms");
        assert_eq!(job.id, JobId(Uuid::new_v5(&of_vo, b"abc")));
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        refused(
            "{}",
            r#","scitag":1"#,
            "files[0]: 'scitag' must be an integer from 65 to 65535",
        );
        refused(
            "{}",
            r#","checksum":"sha512:1""#,
            "files[0]: the checksum algorithm 'sha512' is not known; use one of adler32, crc32c, md5, sha-256",
        );
        refused(
            "{}",
            r#","checksum":"adler32:xyz""#,
            "files[0]: 'adler32:xyz' is not a valid adler32 checksum",
        );
        refused(
            "{}",
            r#","source_tokens":["a","b"]"#,
            "files[0]: 'source_tokens' must hold one token for each URL",
        );
        refused(
            r#"{"multihop":true}"#,
            "",
            "'multihop' jobs are not offered by this service: submit one job for each hop",
        );
        refused(
            r#"{"bring_online":3600}"#,
            "",
            "'bring_online': staging and archiving are not offered by this service",
        );
        refused(r#"{"retry":"many"}"#, "", "'retry' must be an integer");
        refused(
            r#"{"overwrite":true,"overwrite_on_retry":true}"#,
            "",
            "at most one of 'overwrite' and 'overwrite_on_retry' may be true",
        );
        refused(
            r#"{"id_generator":"deterministic"}"#,
            "",
            "'id_generator' is 'deterministic', so 'sid' must be given",
        );
    }

    #[test]
    fn documents_that_are_no_submissions_are_refused() {
        let text = |body: &str| {
            read(body.as_bytes())
                .expect_err("must be refused")
                .to_string()
        };
        assert!(text("{").starts_with("the body is not valid JSON"));
        assert_eq!(text("[]"), "the body must be a JSON object with 'files'");
        assert!(text(r#"{"files":[]}"#).starts_with("No transfers have been specified"));
        assert_eq!(
            text(r#"{"delete":["https://a/f"]}"#),
            "Deletion jobs are no longer supported by FTS"
        );
        let gopher = r#"{"files":[{"sources":["gopher://a/f"],"destinations":["https://b/g"]}]}"#;
        assert_eq!(
            text(gopher),
            "files[0]: 'gopher://a/f': scheme 'gopher' is not supported; use one of https, davs, http, dav"
        );
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&body);
        }

        #[test]
        fn no_value_in_a_known_place_makes_it_panic(key in "[a-z_]{3,20}", value in "[-0-9a-z\"{}\\[\\],.: ]{0,20}") {
            let _ = one(&format!("{{\"{key}\":{value}}}"), &format!(",\"{key}\":{value}"));
            for known in ["retry", "max_time_in_queue", "job_metadata", "nostreams"] {
                let _ = one(&format!("{{\"{known}\":{value}}}"), "");
            }
            for known in ["filesize", "checksum", "scitag", "metadata"] {
                let _ = one("{}", &format!(",\"{known}\":{value}"));
            }
        }
    }
}
