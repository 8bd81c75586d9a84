//! `POST /jobs`: from FTS's submission document to a valid [`NewJob`].
//!
//! Keys, defaults and limits follow FTS3's REST server; unknown keys are tolerated, because every client sends some.
//! What this version cannot do is refused by name and never silently dropped.

mod tape;

use super::wire::whole;
use crate::submission::{NewJob, NewTransfer};
use crate::tokens::{TokenClients, renewal_of};
use penstock_model::{
    Access, Activity, Bytes, Checksum, ChecksumAlgorithm, ChecksumMode, CredentialId, FileUrl,
    IpVersion, JobId, JobKind, JobParameters, Priority, Selection, Timestamp, UserName, VoName,
};
use penstock_persistence::journal::JobToken;
use penstock_protocol::token::{contents, credential_id};
use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use thiserror::Error;
use uuid::Uuid;

/// The namespace of deterministic job ids (`base_id` of `/whoami`).
pub const BASE_ID: Uuid = uuid::uuid!("01874efb-4735-4595-bc9c-591aef8240c9");
/// Bytes of `job_metadata`, as JSON.
const JOB_METADATA_MAX: usize = 2048;
/// Bytes of a file's `metadata`, as JSON.
const FILE_METADATA_MAX: usize = 4096;
/// Bytes of a file's `staging_metadata` and `archive_metadata`, as JSON.
const TAPE_METADATA_MAX: usize = 1024;
/// Characters of a share label, as wide as FTS's column.
const ACTIVITY_CHARS_MAX: usize = 255;
/// Pairs of sources and destinations of one file.
const PAIRS_MAX: usize = 1000;
/// Files in one job.
const FILES_MAX: usize = 200_000;
/// Bytes of `params`, and of one entry of `files`, as JSON.
const PARAMS_BYTES_MAX: usize = 64 << 10;
const FILE_BYTES_MAX: usize = 1 << 20;
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

/// Who submits, and what stands in where files bring no tokens of their own.
#[derive(Debug, Clone)]
pub struct Submitter<'a> {
    /// The subject.
    pub user: &'a UserName,
    /// The VO.
    pub vo: &'a VoName,
    /// Names the identity.
    pub delegation: &'a CredentialId,
    /// By what the files are reached.
    pub means: Means<'a>,
    /// The issuers at which tokens are renewed.
    pub clients: &'a TokenClients,
}

/// By what files are reached that bring no tokens of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means<'a> {
    /// The bearer token of the request.
    Token(&'a str),
    /// The newest proxy that the submitter's identity has delegated.
    Proxy,
}

/// Reads a submission. `fresh_id` is the id of a job that does not ask for a deterministic one; the flag tells
/// whether it does.
pub fn parse_submission(
    body: &[u8],
    submitter: &Submitter<'_>,
    fresh_id: Uuid,
    now: Timestamp,
) -> Result<(NewJob, bool), InvalidSubmission> {
    let document = Document::read(body)?;
    let params = document.params()?;
    let files = document.files()?;
    refuse_unsupported(&params)?;
    let mut tokens = BTreeMap::new();
    let mut transfers = Vec::with_capacity(files.len());
    let mut selection = Selection::default();
    for (index, file) in files.iter().enumerate() {
        let in_file = |why| match why {
            InvalidSubmission::Bad(text) => bad(format!("files[{index}]: {text}")),
            deletion @ InvalidSubmission::Deletion => deletion,
        };
        // One at a time: as a value it takes many times the memory that its text takes.
        let file = bounded(file, FILE_BYTES_MAX).map_err(in_file)?;
        transfers.extend(pairs(&file, submitter, &mut tokens).map_err(in_file)?);
        if index == 0 {
            selection = selection_of(&file).map_err(in_file)?;
        }
    }
    let kind = kind(&params, files.len(), transfers.len(), selection)?;
    if kind == JobKind::Session {
        one_way(&transfers)?;
    }
    let parameters = parameters(&params, kind, &transfers, submitter, now)?;
    let (id, given) = job_id(&params, submitter.vo, fresh_id)?;
    let job = NewJob {
        id,
        user: submitter.user.clone(),
        vo: submitter.vo.clone(),
        delegation: submitter.delegation.clone(),
        parameters,
        transfers,
        tokens: job_tokens(
            tokens,
            flag(&params, "unmanaged_tokens")?,
            submitter.clients,
            now,
        )?,
    };
    Ok((job, given))
}

/// The tokens that a job brings, each with how it is renewed, unless the job's user does that (`unmanaged_tokens`).
/// Errors: one has ended, so that its files could only fail.
fn job_tokens(
    tokens: BTreeMap<CredentialId, String>,
    unmanaged: bool,
    clients: &TokenClients,
    now: Timestamp,
) -> Result<Vec<JobToken>, InvalidSubmission> {
    let job_token = |(id, text): (CredentialId, String)| {
        let told = contents(&text);
        if let Some(told) = told.as_ref().filter(|told| told.expires <= now) {
            let (issuer, ended) = (&told.issuer, told.expires.to_fts());
            return Err(bad(format!(
                "a token of {issuer} for the files expired at {ended}Z; get a new one"
            )));
        }
        let renewal = match unmanaged {
            true => None,
            false => told.and_then(|told| renewal_of(told, clients)),
        };
        Ok(JobToken { id, text, renewal })
    };
    tokens.into_iter().map(job_token).collect()
}

/// A submission in its parts, which are text still. Keys that are not known are skipped, however large or deep.
#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    files: Option<&'a RawValue>,
    #[serde(borrow)]
    delete: Option<&'a RawValue>,
}

impl Document<'_> {
    fn read(body: &[u8]) -> Result<Document<'_>, InvalidSubmission> {
        let invalid = |why| bad(format!("the body is not valid JSON: {why}"));
        if body.trim_ascii_start().first() != Some(&b'{') {
            let _: IgnoredAny = serde_json::from_slice(body).map_err(invalid)?;
            return Err(bad("the body must be a JSON object with 'files'"));
        }
        let document: Document<'_> = serde_json::from_slice(body).map_err(invalid)?;
        let Some(list) = document.delete else {
            return Ok(document);
        };
        match list.get().strip_prefix('[') {
            Some(entries) if entries.trim_ascii_start().starts_with(']') => Ok(document),
            Some(_) => Err(InvalidSubmission::Deletion),
            None => Err(bad("'delete' must be a list")),
        }
    }

    fn params(&self) -> Result<Map<String, Value>, InvalidSubmission> {
        let in_params = |why| match why {
            InvalidSubmission::Bad(text) => bad(format!("'params': {text}")),
            deletion @ InvalidSubmission::Deletion => deletion,
        };
        match self.params.map(|params| bounded(params, PARAMS_BYTES_MAX)) {
            None => Ok(Map::new()),
            Some(read) => match read.map_err(in_params)? {
                Value::Object(params) => Ok(params),
                _ => Err(bad("'params' must be an object")),
            },
        }
    }

    /// The text of each entry of `files`.
    fn files(&self) -> Result<Vec<&RawValue>, InvalidSubmission> {
        let list = self.files.map_or("", RawValue::get);
        let mut entries = serde_json::Deserializer::from_str(list);
        let files = match list.starts_with('[') {
            true => entries
                .deserialize_seq(Entries)
                .map_err(|why| bad(format!("'files': {why}")))?,
            false => Vec::new(),
        };
        match files.is_empty() {
            true => Err(bad(
                "No transfers have been specified: 'files' must be a list with at least one entry",
            )),
            false => Ok(files),
        }
    }
}

/// Reads a list's entries as text, and stops beyond [`FILES_MAX`].
struct Entries;

impl<'a> Visitor<'a> for Entries {
    type Value = Vec<&'a RawValue>;

    fn expecting(&self, told: &mut fmt::Formatter<'_>) -> fmt::Result {
        told.write_str("a list of files")
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        let mut files = Vec::new();
        while let Some(file) = list.next_element()? {
            if files.len() == FILES_MAX {
                return Err(S::Error::custom(format_args!(
                    "one job can hold {FILES_MAX} files; submit several jobs"
                )));
            }
            files.push(file);
        }
        Ok(files)
    }
}

fn bounded(text: &RawValue, bytes_max: usize) -> Result<Value, InvalidSubmission> {
    if text.get().len() > bytes_max {
        return Err(bad(format!("it is longer than {bytes_max} bytes")));
    }
    serde_json::from_str(text.get()).map_err(|why| bad(format!("it is not valid JSON: {why}")))
}

fn refuse_unsupported(params: &Map<String, Value>) -> Result<(), InvalidSubmission> {
    let quality = params.get("target_qos");
    if quality.is_some_and(|name| !name.is_null() && name != "") {
        return Err(bad(
            "'target_qos': changing the quality of service of a file (CDMI) is not offered",
        ));
    }
    Ok(())
}

/// Several pairs in one entry are replicas of one file; `multihop` makes the entries the hops of one way.
fn kind(
    params: &Map<String, Value>,
    files: usize,
    pairs: usize,
    selection: Selection,
) -> Result<JobKind, InvalidSubmission> {
    let has_replicas = pairs > files;
    match (has_replicas, flag(params, "multihop")?, files) {
        (false, false, _) if flag(params, "reuse")? => Ok(JobKind::Session),
        (false, false, _) => Ok(JobKind::Independent),
        (false, true, _) => Ok(JobKind::Hops),
        (true, true, _) => Err(bad(
            "a multihop job cannot have several sources or destinations for one hop",
        )),
        (true, false, 1) if flag(params, "reuse")? => Err(bad(
            "'reuse' cannot be combined with several sources or destinations",
        )),
        (true, false, 1) => Ok(JobKind::Replicas(selection)),
        (true, false, _) => Err(bad(
            "a job with several sources or destinations for one file can hold that file only: submit one job \
             for each file",
        )),
    }
}

/// What goes in one session goes between the same two storage elements.
fn one_way(transfers: &[NewTransfer]) -> Result<(), InvalidSubmission> {
    let way = |transfer: &NewTransfer| (transfer.source.storage(), transfer.destination.storage());
    match transfers.windows(2).all(|two| way(&two[0]) == way(&two[1])) {
        true => Ok(()),
        false => Err(bad(
            "Reuse jobs can only contain transfers for the same source and destination storage",
        )),
    }
}

fn selection_of(file: &Value) -> Result<Selection, InvalidSubmission> {
    match file.get("selection_strategy") {
        None | Some(Value::Null) => Ok(Selection::default()),
        Some(name) => name.as_str().and_then(Selection::parse).ok_or_else(|| {
            bad(format!(
                "'selection_strategy' is {name}; use {}",
                strategies()
            ))
        }),
    }
}

fn strategies() -> String {
    let names = Selection::ALL.map(Selection::name);
    format!("auto, {}", names.join(", "))
}

fn job_id(
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

fn parameters(
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

/// Every source of an entry with every destination of it.
fn pairs(
    file: &Value,
    submitter: &Submitter<'_>,
    credentials: &mut BTreeMap<CredentialId, String>,
) -> Result<Vec<NewTransfer>, InvalidSubmission> {
    selection_of(file)?;
    let file = file
        .as_object()
        .ok_or_else(|| bad("must be an object with 'sources' and 'destinations'"))?;
    let sources = ends(file, "sources", "source_tokens", submitter, credentials)?;
    let destinations = ends(
        file,
        "destinations",
        "destination_tokens",
        submitter,
        credentials,
    )?;
    let number = sources.len().saturating_mul(destinations.len());
    if number > PAIRS_MAX {
        return Err(bad(format!(
            "its sources and destinations make {number} pairs, more than {PAIRS_MAX}"
        )));
    }
    let (algorithm, checksum) = checksum(file.get("checksum"))?;
    let activity = activity(file.get("activity"))?;
    for key in ["staging_metadata", "archive_metadata"] {
        check_object(file.get(key), key)?;
    }
    let of_all = NewTransfer {
        source: sources[0].url.clone(),
        destination: destinations[0].url.clone(),
        size: size(file.get("filesize"))?,
        checksum,
        checksum_algorithm: algorithm,
        activity,
        scitag: scitag(file.get("scitag"))?,
        metadata: file_metadata(file)?,
        source_credential: None,
        destination_credential: None,
        tape: tape::notes(file)?,
    };
    let mut pairs = Vec::with_capacity(number);
    for source in &sources {
        for destination in &destinations {
            pairs.push(NewTransfer {
                source: source.url.clone(),
                destination: destination.url.clone(),
                source_credential: source.credential.clone(),
                destination_credential: destination.credential.clone(),
                ..of_all.clone()
            });
        }
    }
    Ok(pairs)
}

/// One end of a pair.
struct End {
    url: FileUrl,
    /// `None`: it is reached by the submitter's proxy.
    credential: Option<CredentialId>,
}

/// The URLs under a key, each with its token, or with that of the request, if any, where none are given.
fn ends(
    file: &Map<String, Value>,
    urls: &str,
    tokens: &str,
    submitter: &Submitter<'_>,
    credentials: &mut BTreeMap<CredentialId, String>,
) -> Result<Vec<End>, InvalidSubmission> {
    let listed = file.get(urls).and_then(Value::as_array);
    let listed = listed.ok_or_else(|| bad(format!("'{urls}' must be a list of URLs")))?;
    if listed.is_empty() {
        return Err(bad(format!("'{urls}' names no URL")));
    }
    let own = match file.get(tokens) {
        None | Some(Value::Null) => None,
        Some(Value::Array(own)) if own.len() == listed.len() => Some(own),
        Some(Value::Array(_)) => {
            return Err(bad(format!("'{tokens}' must hold one token for each URL")));
        }
        Some(_) => return Err(bad(format!("'{tokens}' must be a list of tokens"))),
    };
    let mut ends = Vec::with_capacity(listed.len());
    for (at, url) in listed.iter().enumerate() {
        let Value::String(url) = url else {
            return Err(bad(format!("'{urls}' must be a list of URLs")));
        };
        let token = match own.map(|own| &own[at]) {
            None => match submitter.means {
                Means::Token(token) => Some(token),
                Means::Proxy => None,
            },
            Some(Value::String(token)) if !token.is_empty() => Some(token.as_str()),
            Some(_) => return Err(bad(format!("'{tokens}' must hold one token for each URL"))),
        };
        let url = FileUrl::parse(url).map_err(|why| bad(why.to_string()))?;
        // A cloud storage is reached with keys; a token is not for its eyes.
        let token = token.filter(|_| url.access() != Access::Cloud);
        let credential = token.map(credential_id);
        if let (Some(id), Some(token)) = (&credential, token) {
            credentials.insert(id.clone(), token.to_owned());
        }
        ends.push(End { url, credential });
    }
    Ok(ends)
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

/// A share label; `default` when nothing is said.
fn activity(value: Option<&Value>) -> Result<Activity, InvalidSubmission> {
    match value {
        None | Some(Value::Null) => Ok(Activity::new("default")),
        Some(Value::String(label)) if label.is_empty() => Ok(Activity::new("default")),
        Some(Value::String(label)) if label.chars().count() <= ACTIVITY_CHARS_MAX => {
            Ok(Activity::new(label.as_str()))
        }
        Some(_) => Err(bad(format!(
            "'activity' must be text of at most {ACTIVITY_CHARS_MAX} characters"
        ))),
    }
}

/// What is about tape must have FTS's form, also where nothing comes from tape.
fn check_object(value: Option<&Value>, key: &str) -> Result<(), InvalidSubmission> {
    match value {
        None | Some(Value::Null) => Ok(()),
        Some(object @ Value::Object(_)) if object.to_string().len() <= TAPE_METADATA_MAX => Ok(()),
        Some(Value::Object(_)) => Err(bad(format!(
            "'{key}' is longer than {TAPE_METADATA_MAX} bytes"
        ))),
        Some(_) => Err(bad(format!("'{key}' must be an object"))),
    }
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
        Some(value) => match value.as_number().and_then(whole).map(u16::try_from) {
            Some(Ok(tag)) if tag >= 65 => Ok(Some(tag)),
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
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use penstock_protocol::oauth::ClientCredentials;
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
            means: Means::Token("submit-token"),
            clients: &clients(),
        };
        parse_submission(body, &submitter, Uuid::nil(), Timestamp(0))
    }

    fn clients() -> TokenClients {
        let clients = TokenClients::default();
        let client = ClientCredentials {
            id: "penstock".to_owned(),
            secret: "s".to_owned(),
        };
        clients.replace(BTreeMap::from([("https://iam/".to_owned(), client)]));
        clients
    }

    #[test]
    fn a_token_is_renewed_when_its_user_its_scope_and_its_issuer_allow_it() {
        let token = |issuer: &str, scope: &str| {
            let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let claims =
                json!({"iss": issuer, "scope": scope, "aud": ["se"], "nbf": 1000, "exp": 4600});
            format!("{}.{}.x", part(json!({"alg": "RS256"})), part(claims))
        };
        let check = |params: &str, token: &str, renew_at: Option<i64>| {
            let tokens = format!(r#","source_tokens":["{token}"],"destination_tokens":["opaque"]"#);
            let job = one(params, &tokens).expect("valid");
            let renewals: Vec<i64> = job
                .tokens
                .iter()
                .filter_map(|token| Some(token.renewal.as_ref()?.renew_at.0))
                .collect();
            assert_eq!(renewals, Vec::from_iter(renew_at), "{params} {token}");
        };
        let lasting = token("https://iam/", "storage.read:/ offline_access");
        check("{}", &lasting, Some(4_300_000));
        check(r#"{"unmanaged_tokens":false}"#, &lasting, Some(4_300_000));
        check(r#"{"unmanaged_tokens":true}"#, &lasting, None);
        check("{}", &token("https://iam/", "storage.read:/"), None);
        check("{}", &token("https://other/", "offline_access"), None);
        let claims = json!({"iss": "https://iam/", "exp": 0});
        let ended = URL_SAFE_NO_PAD.encode(claims.to_string());
        let tokens = format!(r#","source_tokens":["e30.{ended}.x"]"#);
        let why = one("{}", &tokens).expect_err("ended");
        assert_eq!(
            why,
            "a token of https://iam/ for the files expired at 1970-01-01T00:00:00Z; get a new one"
        );
    }

    fn one(params: &str, file: &str) -> Result<NewJob, String> {
        let ends = r#""sources":["https://a/f"],"destinations":["https://b/g"]"#;
        let body = format!(r#"{{"params":{params},"files":[{{{ends}{file}}}]}}"#);
        read(body.as_bytes())
            .map(|(job, _)| job)
            .map_err(|why| why.to_string())
    }

    fn whole(body: &str) -> Result<usize, String> {
        let read = read(body.as_bytes());
        read.map(|(job, _)| job.transfers.len())
            .map_err(|why| why.to_string())
    }

    const FILE: &str = r#"{"sources":["https://a/f"],"destinations":["https://b/g"]}"#;

    #[test]
    fn what_is_too_large_is_refused_before_it_takes_memory() {
        let files =
            |file: &str, count: usize| format!(r#"{{"files":[{}]}}"#, vec![file; count].join(","));
        assert_eq!(whole(&files(FILE, 1000)), Ok(1000));
        assert_eq!(
            whole(&files("0", FILES_MAX + 1)),
            Err("'files': one job can hold 200000 files; submit several jobs at line 1 column 400003".into())
        );
        let numbers = "0,".repeat(FILE_BYTES_MAX) + "0";
        assert_eq!(
            whole(&files(&format!(r#"{{"metadata":[{numbers}]}}"#), 1)),
            Err("files[0]: it is longer than 1048576 bytes".into())
        );
        assert_eq!(
            whole(&format!(
                r#"{{"params":{{"job_metadata":[{numbers}]}},"files":[{FILE}]}}"#
            )),
            Err("'params': it is longer than 65536 bytes".into())
        );
    }

    #[test]
    fn what_nobody_reads_is_skipped_however_deep_it_is() {
        let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(
            whole(&format!(r#"{{"new":{open}{close},"files":[{FILE}]}}"#)),
            Ok(1)
        );
        let deep = format!(r#"{{"files":[{{"new":{open}{close}}}]}}"#);
        let refused = whole(&deep).expect_err("a file is read whole");
        assert!(
            refused.starts_with("files[0]: it is not valid JSON: recursion limit"),
            "{refused}"
        );
        assert!(whole(&format!(r#"{{"files":[{FILE}],"new":{open}"#)).is_err());
    }

    #[test]
    fn a_key_that_stands_twice_is_refused() {
        let refused = whole(&format!(r#"{{"files":[{FILE}],"files":[{FILE}]}}"#));
        assert_eq!(
            refused,
            Err("the body is not valid JSON: duplicate field `files` at line 1 column 77".into())
        );
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
            r#","filesize":5e6,"checksum":"ADLER32:1a","metadata":"m","scitag":65.0,"activity":null,
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
        assert_eq!(job.tokens.len(), 2);
    }

    /// What a job's parameters are, in FTS's words, when `value` is given for `key`.
    fn shown(key: &str, value: &str) -> Result<String, String> {
        let job = one(&format!("{{\"{key}\":{value}}}"), "")?;
        let default = one("{}", "")?.parameters;
        let differs = job.parameters != default || job.id != JobId(Uuid::nil());
        Ok(match differs {
            false => "default".to_owned(),
            true => format!("{:?}", job.parameters),
        })
    }

    #[test]
    fn null_and_what_switches_off_mean_the_default_for_every_parameter_of_a_job() {
        let check = |key: &str, values: &[&str]| {
            for value in values.iter().chain(&["null"]) {
                assert_eq!(
                    shown(key, value).as_deref(),
                    Ok("default"),
                    "{key}: {value}"
                );
            }
        };
        check("verify_checksum", &["false", "\"none\"", "\"n\""]);
        for switch in [
            "overwrite",
            "overwrite_on_retry",
            "overwrite_hop",
            "overwrite_when_only_on_disk",
            "reuse",
            "multihop",
            "dst_file_report",
            "strict_copy",
            "disable_cleanup",
            "ipv4",
            "ipv6",
        ] {
            check(switch, &["false"]);
            let refused = shown(switch, "\"yes\"").expect_err("no switch");
            assert_eq!(refused, format!("'{switch}' must be true or false"));
        }
        for off in ["bring_online", "copy_pin_lifetime", "archive_timeout"] {
            check(off, &["-1"]);
        }
        for number in [
            "retry",
            "retry_delay",
            "timeout",
            "nostreams",
            "buffer_size",
        ] {
            check(number, &["0", "\"0\"", "\"\""]);
            assert!(shown(number, "[]").is_err(), "{number}");
        }
        check("priority", &["3", "\"3\""]);
        check("max_time_in_queue", &["0", "\"0\"", "\"0s\""]);
        check("id_generator", &["\"standard\""]);
        check("target_qos", &["\"\""]);
        check("job_metadata", &["{}"]);
        // Sent by clients, without a meaning here.
        for ignored in [
            "account",
            "fail_nearline",
            "gridftp",
            "credential",
            "credentials",
            "sid",
            "new",
        ] {
            check(ignored, &["\"x\"", "5", "{}", "true"]);
        }
    }

    #[test]
    fn every_parameter_of_a_job_is_understood() {
        let check = |key: &str, value: &str, expected: &str| {
            let shown = shown(key, value).unwrap_or_else(|why| why);
            assert!(shown.contains(expected), "{key}: {value}: {shown}");
        };
        check("verify_checksum", "true", "verify_checksum: Both");
        check("verify_checksum", "\"Source\"", "verify_checksum: Source");
        check("verify_checksum", "\"t\"", "verify_checksum: Target");
        check(
            "verify_checksum",
            "\"x\"",
            "use none, source, target or both",
        );
        check("overwrite", "true", "overwrite: Always");
        check("overwrite_on_retry", "true", "overwrite: OnRetry");
        check("dst_file_report", "true", "report_existing: true");
        check("reuse", "true", "kind: Session");
        check("multihop", "true", "kind: Hops");
        check("strict_copy", "true", "strict_copy: true");
        check("disable_cleanup", "true", "disable_cleanup: true");
        check("retry", "-1", "retries_max: Some(0)");
        check("retry", "\"5\"", "retries_max: Some(5)");
        check("retry_delay", "30", "retry_delay_seconds: Some(30)");
        check("priority", "0", "priority: Priority(1)");
        check("priority", "77", "priority: Priority(5)");
        check("timeout", "60", "timeout_seconds: Some(60)");
        check("nostreams", "500", "streams: Some(100)");
        check("buffer_size", "1024", "buffer: Some(Bytes(1024))");
        check("bring_online", "3600", "within_seconds: 3600");
        check("copy_pin_lifetime", "\"60\"", "pin_seconds: Some(60)");
        check("archive_timeout", "0", "archive_seconds: Some(0)");
        check("ipv4", "true", "ip_version: Some(V4)");
        check("ipv6", "true", "ip_version: Some(V6)");
        for (value, milliseconds) in [
            ("2", "7200000"),
            ("\"2\"", "7200000"),
            ("0.5", "1800000"),
            ("\"90s\"", "90000"),
            ("\"90m\"", "5400000"),
            ("\"2h\"", "7200000"),
            ("\" 1 d \"", "86400000"),
        ] {
            check(
                "max_time_in_queue",
                value,
                &format!("expires_at: Some(Timestamp({milliseconds}))"),
            );
        }
        for wrong in ["-1", "\"2w\"", "\"\"", "true", "\"nan\"", "[]"] {
            check(
                "max_time_in_queue",
                wrong,
                "must be hours, or a number with the suffix",
            );
        }
        check(
            "id_generator",
            "\"random\"",
            "use 'standard' or 'deterministic'",
        );
        check("id_generator", "5", "use 'standard' or 'deterministic'");
        check("target_qos", "\"disk\"", "is not offered");
        check("job_metadata", "[1]", "\"label\": Array [Number(1)]");
        let long = format!("\"{}\"", "x".repeat(JOB_METADATA_MAX));
        check(
            "job_metadata",
            &long,
            "'job_metadata' is longer than 2048 bytes",
        );
        let both = one(r#"{"ipv4":true,"ipv6":true}"#, "").expect("valid");
        assert_eq!(both.parameters.ip_version, Some(IpVersion::V4), "as in FTS");
    }

    #[test]
    fn every_key_of_a_file_is_understood_and_null_means_its_default() {
        let file = |key: &str, value: &str| {
            one("{}", &format!(",\"{key}\":{value}")).map(|job| format!("{:?}", job.transfers[0]))
        };
        let default = one("{}", "").map(|job| format!("{:?}", job.transfers[0]));
        let off = |key: &str, values: &[&str]| {
            for value in values.iter().chain(&["null"]) {
                assert_eq!(file(key, value), default, "{key}: {value}");
            }
        };
        off("source_tokens", &[]);
        off("destination_tokens", &[]);
        off("filesize", &["0", "0.0"]);
        off("checksum", &["\"\"", "\"ADLER32\"", "\"adler32:\""]);
        off("activity", &["\"\"", "\"default\""]);
        off("scitag", &[]);
        off("metadata", &[]);
        off("staging_metadata", &["{}"]);
        off("archive_metadata", &["{}"]);
        off("selection_strategy", &["\"auto\"", "\"orderly\""]);
        off("unheard_of", &["1", "[[]]"]);
        let check = |key: &str, value: &str, expected: &str| {
            let shown = file(key, value).unwrap_or_else(|why| why);
            assert!(shown.contains(expected), "{key}: {value}: {shown}");
        };
        check("filesize", "5", "size: Some(Bytes(5))");
        check("filesize", "-1", "must be a number of bytes, not negative");
        check("filesize", "\"5\"", "must be a number of bytes");
        check(
            "activity",
            "\"User Subscriptions\"",
            "Activity(\"User Subscriptions\")",
        );
        check("activity", "5", "must be text of at most 255 characters");
        check(
            "activity",
            &format!("\"{}\"", "x".repeat(256)),
            "at most 255 characters",
        );
        check("scitag", "65535", "scitag: Some(65535)");
        for wrong in ["64", "65536", "-1", "65.5", "\"70\""] {
            check(
                "scitag",
                wrong,
                "'scitag' must be an integer from 65 to 65535",
            );
        }
        check("metadata", "[1]", "metadata: Array [Number(1)]");
        let long = format!("\"{}\"", "x".repeat(FILE_METADATA_MAX));
        check("metadata", &long, "'metadata' is longer than 4096 bytes");
        for tape in ["staging_metadata", "archive_metadata"] {
            check(tape, "\"x\"", &format!("'{tape}' must be an object"));
            let long = format!("{{\"k\":\"{}\"}}", "x".repeat(TAPE_METADATA_MAX));
            check(tape, &long, &format!("'{tape}' is longer than 1024 bytes"));
        }
        check("checksum", "5", "'checksum' must be text");
        check("checksum", "\"ADLER32:A\"", "hex: \"0000000a\"");
        check("selection_strategy", "\"\"", "'selection_strategy' is \"\"");
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
            r#"{"overwrite_hop":true}"#,
            "",
            "'overwrite_hop' needs a multihop job",
        );
        refused(
            "{}",
            r#","selection_strategy":"best""#,
            "files[0]: 'selection_strategy' is \"best\"; use auto, orderly, queue, success, throughput, \
             file-throughput, pending-data, waiting-time, waiting-time-with-error, duration",
        );
        refused(
            r#"{"overwrite_when_only_on_disk":true}"#,
            "",
            "'overwrite_when_only_on_disk' needs a tape destination: 'archive_timeout' above 0",
        );
        refused(r#"{"retry":"many"}"#, "", "'retry' must be an integer");
        refused(
            r#"{"overwrite":true,"overwrite_on_retry":true}"#,
            "",
            "at most one of 'overwrite', 'overwrite_on_retry', 'overwrite_hop' and 'overwrite_when_only_on_disk' may \
             be true, or the last two",
        );
        refused(
            r#"{"id_generator":"deterministic"}"#,
            "",
            "'id_generator' is 'deterministic', so 'sid' must be given",
        );
    }

    #[test]
    fn several_sources_of_one_file_are_replicas_each_with_its_token() {
        let body = r#"{"files":[{"sources":["https://a/f","https://c/f"],"destinations":["https://b/f"],
            "source_tokens":["ta","tc"],"destination_tokens":["tb"],"selection_strategy":"orderly"}]}"#;
        let (job, _) = read(body.as_bytes()).expect("valid");
        assert_eq!(job.parameters.kind, JobKind::Replicas(Selection::Orderly));
        let tokens: Vec<_> = job
            .transfers
            .iter()
            .map(|pair| (pair.source.as_str(), pair.source_credential.clone()))
            .collect();
        let of = |token| Some(credential_id(token));
        assert_eq!(
            tokens,
            [("https://a/f", of("ta")), ("https://c/f", of("tc"))]
        );
        assert_eq!(job.transfers[1].destination_credential, of("tb"));
        let (accepted, _) = job.into_job(1, Timestamp(0));
        let indices: Vec<u32> = accepted.transfers.iter().map(|one| one.index).collect();
        assert_eq!(indices, [0, 0], "FTS counts files, not replicas");
    }

    #[test]
    fn hops_and_replicas_do_not_mix_and_replicas_come_alone() {
        let text = |params: &str, files: &str| {
            let body = format!(r#"{{"params":{params},"files":[{files}]}}"#);
            read(body.as_bytes())
                .map(|(job, _)| job.parameters.kind)
                .map_err(|why| why.to_string())
        };
        let hop = r#"{"sources":["https://a/f"],"destinations":["https://b/f"]}"#;
        let replicas =
            r#"{"sources":["https://a/f","https://c/f"],"destinations":["https://b/f"]}"#;
        let session = r#"{"reuse":true}"#;
        assert_eq!(text(session, hop), Ok(JobKind::Session));
        let elsewhere = r#"{"sources":["https://c/f"],"destinations":["https://b/g"]}"#;
        let mixed = text(session, &format!("{hop},{elsewhere}"));
        assert!(mixed.is_err_and(|why| why.contains("same source and destination storage")));
        let hops = r#"{"multihop":true}"#;
        assert_eq!(text(hops, &format!("{hop},{hop}")), Ok(JobKind::Hops));
        assert!(text(hops, replicas).is_err_and(|why| why.contains("multihop")));
        let two = format!("{replicas},{hop}");
        assert!(text("{}", &two).is_err_and(|why| why.contains("that file only")));
        assert!(text(r#"{"reuse":true}"#, replicas).is_err_and(|why| why.contains("'reuse'")));
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
        assert_eq!(text(r#"{"delete":{}}"#), "'delete' must be a list");
        assert_eq!(
            text(r#"{"delete":["https://a/f"]}"#),
            "Deletion jobs are no longer supported by FTS"
        );
        let gopher = r#"{"files":[{"sources":["gopher://a/f"],"destinations":["https://b/g"]}]}"#;
        assert!(text(gopher).starts_with(
            "files[0]: 'gopher://a/f': scheme 'gopher' is not supported; use one of https, davs,"
        ));
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
