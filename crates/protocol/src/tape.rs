//! The WLCG Tape REST API, version 1, as a client reads and writes it: discovery, stage requests, their progress,
//! and where files are.
//!
//! Bytes in, values out; the calls themselves are made elsewhere. Answers of tape systems are bounded and may be any
//! nonsense.

pub mod server;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};
use penstock_model::tape::{StageFile, with_single_slashes};
use penstock_model::{FileProgress, Locality, StageRequestId, Timestamp, ToldPlace};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use url::Url;

/// Where a storage element tells of its tape interface.
pub const WELL_KNOWN: &str = "/.well-known/wlcg-tape-rest-api";
/// Bytes of a discovery document; they have a few hundred.
pub const DISCOVERY_BYTES_MAX: u64 = 64 << 10;
/// Bytes of an answer to a stage request.
pub const STAGED_BYTES_MAX: u64 = 64 << 10;
/// Bytes that an answer may have for each file that was asked about, and beside them.
pub const BYTES_PER_FILE_MAX: u64 = 8 << 10;
/// Characters of the name of a stage request. Those of dCache, EOS and StoRM are UUIDs.
const REQUEST_ID_MAX: usize = 256;
/// Characters of what a tape system says of one file.
const ERROR_CHARS_MAX: usize = 300;
/// Endpoints of a discovery document that are looked at.
const ENDPOINTS_MAX: usize = 100;

/// Why an answer of a tape system cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TapeAnswerError {
    /// Not the document that was expected.
    #[error("its answer is not understood: {0}")]
    Malformed(String),
    /// It offers other versions only.
    #[error("it offers no version 1 of the tape interface")]
    NoVersion,
    /// The answer is about another request.
    #[error("its answer is about the request {0}")]
    OtherRequest(String),
}

fn malformed(why: impl ToString) -> TapeAnswerError {
    TapeAnswerError::Malformed(shortened(&why.to_string()))
}

/// A tape interface, as a storage element announces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapeInterface {
    /// The site's name, by which clients address notes to it.
    pub site: String,
    /// Where calls go.
    uri: Url,
}

impl TapeInterface {
    /// Reads the discovery document, and takes the endpoint of version 1. Minor versions are not told apart.
    pub fn parse(body: &[u8]) -> Result<TapeInterface, TapeAnswerError> {
        #[derive(Deserialize)]
        struct DiscoveryDocument {
            sitename: String,
            endpoints: Vec<Endpoint>,
        }
        #[derive(Deserialize)]
        struct Endpoint {
            uri: String,
            version: String,
        }
        let document: DiscoveryDocument = serde_json::from_slice(body).map_err(malformed)?;
        let endpoints = document.endpoints.into_iter().take(ENDPOINTS_MAX);
        let is_first = |version: &str| {
            let number = version.trim_start_matches(['v', 'V']);
            number == "1" || number.starts_with("1.")
        };
        let endpoint = endpoints
            .into_iter()
            .find(|endpoint| is_first(&endpoint.version))
            .ok_or(TapeAnswerError::NoVersion)?;
        let uri = Url::parse(&endpoint.uri).map_err(malformed)?;
        let is_http = ["https", "davs", "http", "dav"].contains(&uri.scheme());
        let has_login = !uri.username().is_empty() || uri.password().is_some();
        if !is_http || uri.cannot_be_a_base() || uri.host_str().is_none() || has_login {
            return Err(malformed("its address is not one of a server"));
        }
        Ok(TapeInterface {
            site: shortened(&document.sitename),
            uri,
        })
    }

    /// Where calls go.
    pub fn uri(&self) -> &Url {
        &self.uri
    }

    /// `POST`: asks for files to be brought to disk.
    pub fn stage(&self) -> Url {
        self.at(&["stage"])
    }

    /// `GET`: how far a stage request is. `DELETE`: nobody wants it any more.
    pub fn request(&self, id: &StageRequestId) -> Url {
        self.at(&["stage", id.as_str()])
    }

    /// `POST`: some files of a stage request are not wanted any more.
    pub fn cancel(&self, id: &StageRequestId) -> Url {
        self.at(&["stage", id.as_str(), "cancel"])
    }

    /// `POST`: some files of a stage request need not stay on disk.
    pub fn release(&self, id: &StageRequestId) -> Url {
        self.at(&["release", id.as_str()])
    }

    /// `POST`: asks where files are.
    pub fn archive_info(&self) -> Url {
        self.at(&["archiveinfo"])
    }

    fn at(&self, parts: &[&str]) -> Url {
        let mut url = self.uri.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.path_segments_mut()
            .expect("parse lets only addresses of servers pass")
            .pop_if_empty()
            .extend(parts);
        url
    }
}

/// The body of a stage request. How long anybody waits for a file, this interface has no word for.
pub fn stage_body(files: &[StageFile]) -> Vec<u8> {
    #[derive(Serialize)]
    struct Body<'a> {
        files: Vec<File<'a>>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct File<'a> {
        path: &'a str,
        /// ISO 8601.
        #[serde(skip_serializing_if = "Option::is_none")]
        disk_lifetime: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        targeted_metadata: Option<&'a Value>,
    }
    let files = files.iter().map(|file| File {
        path: &file.path,
        disk_lifetime: file.pin_seconds.map(|seconds| format!("PT{seconds}S")),
        targeted_metadata: file.targeted_metadata.as_ref(),
    });
    let files = files.collect();
    serde_json::to_vec(&Body { files }).expect("text and values are always JSON")
}

/// The body of every call that is about paths.
pub fn paths_body(paths: &[String]) -> Vec<u8> {
    #[derive(Serialize)]
    struct Body<'a> {
        paths: &'a [String],
    }
    serde_json::to_vec(&Body { paths }).expect("text is always JSON")
}

/// The name that a tape system gave to a stage request.
pub fn parse_staged(body: &[u8]) -> Result<StageRequestId, TapeAnswerError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct StageReply {
        request_id: String,
    }
    let document: StageReply = serde_json::from_slice(body).map_err(malformed)?;
    let id = document.request_id;
    let is_plain = id.bytes().all(|byte| byte.is_ascii_graphic());
    // As parts of a path they would lead elsewhere.
    if id.is_empty() || id.len() > REQUEST_ID_MAX || !is_plain || id == "." || id == ".." {
        return Err(malformed("the name of the request"));
    }
    Ok(StageRequestId::new(id))
}

/// How far a stage request is, as its tape system tells it. Absent is what it does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageRequestStatus {
    /// When all of it had its end.
    pub completed: Option<Timestamp>,
    /// When all of it will be on disk, as far as can be foreseen. Penstock tells it.
    pub expected: Option<Timestamp>,
    /// A file stands here as often as the tape system names it.
    pub files: Vec<StagedFileStatus>,
}

/// How far one file of it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedFileStatus {
    /// With single slashes.
    pub path: String,
    pub progress: FileProgress,
    /// Nobody wants it any more; its progress is a failure as well.
    pub is_canceled: bool,
    /// A drive or a command works on it.
    pub is_started: bool,
    /// What it waits for. Penstock tells it.
    pub waits_for: Option<String>,
    /// The cause of a failure, by its name. Penstock tells it.
    pub code: Option<String>,
    /// When it will be on disk, as far as can be foreseen. Penstock tells it.
    pub expected: Option<Timestamp>,
}

/// Reads how far a stage request is.
pub fn parse_stage_status(
    body: &[u8],
    id: &StageRequestId,
) -> Result<StageRequestStatus, TapeAnswerError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ProgressReply {
        id: Option<String>,
        files: Vec<File>,
        #[serde(default)]
        completed_at: Value,
        #[serde(default)]
        expected_at: Value,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct File {
        path: String,
        on_disk: Option<bool>,
        state: Option<String>,
        error: Option<String>,
        #[serde(default)]
        waits_for: Value,
        #[serde(default)]
        code: Value,
        #[serde(default)]
        expected_at: Value,
    }
    let document: ProgressReply = serde_json::from_slice(body).map_err(malformed)?;
    if let Some(other) = document.id.filter(|told| told != id.as_str()) {
        return Err(TapeAnswerError::OtherRequest(shortened(&other)));
    }
    let status = |file: File| {
        let said = file.error.as_deref().filter(|text| !text.is_empty());
        let failed = |otherwise: &str| FileProgress::Failed(shortened(said.unwrap_or(otherwise)));
        let state = file.state.as_deref().map(str::to_ascii_uppercase);
        let progress = match (file.on_disk, said, state.as_deref()) {
            (Some(true), ..) => FileProgress::OnDisk,
            (_, _, Some("FAILED")) => failed("it failed and does not say why"),
            (_, _, Some("CANCELLED" | "CANCELED")) => failed("it was canceled there"),
            (_, Some(_), _) => failed(""),
            (None, None, Some("COMPLETED")) => FileProgress::OnDisk,
            (Some(false), None, Some("COMPLETED")) => failed("it is no longer on disk"),
            (_, None, _) => FileProgress::Pending,
        };
        let is_failed = matches!(progress, FileProgress::Failed(_));
        let is_canceled = matches!(state.as_deref(), Some("CANCELLED" | "CANCELED"));
        StagedFileStatus {
            path: with_single_slashes(&file.path),
            progress,
            is_canceled: is_failed && is_canceled,
            is_started: state.as_deref() == Some("STARTED"),
            waits_for: file.waits_for.as_str().map(shortened),
            code: file.code.as_str().map(shortened),
            expected: told_time(&file.expected_at),
        }
    };
    Ok(StageRequestStatus {
        completed: told_time(&document.completed_at),
        expected: told_time(&document.expected_at),
        files: document.files.into_iter().map(status).collect(),
    })
}

/// Seconds of Unix, as in the examples of the specification, or milliseconds, as dCache writes them.
fn told_time(value: &Value) -> Option<Timestamp> {
    const SECONDS_MAX: i64 = 100_000_000_000;
    match value.as_i64()? {
        ..=0 => None,
        seconds @ ..SECONDS_MAX => Some(Timestamp(seconds * 1_000)),
        millis => Some(Timestamp(millis)),
    }
}

/// How far the files of a stage request are, by path. A file stands in it as often as the tape system names it.
pub fn parse_progress(
    body: &[u8],
    id: &StageRequestId,
) -> Result<Vec<(String, FileProgress)>, TapeAnswerError> {
    let status = parse_stage_status(body, id)?;
    let files = status.files.into_iter();
    Ok(files.map(|file| (file.path, file.progress)).collect())
}

/// Where files are, by path; or what the tape system says of them instead.
pub fn parse_archive_info(body: &[u8]) -> Result<Vec<(String, ToldPlace)>, TapeAnswerError> {
    #[derive(Deserialize)]
    struct File {
        path: String,
        locality: Option<String>,
        error: Option<String>,
    }
    let files: Vec<File> = serde_json::from_slice(body).map_err(malformed)?;
    let located = |file: File| {
        let place = match (file.error, file.locality) {
            (Some(error), _) => Err(shortened(&error)),
            (None, Some(name)) => Locality::parse(&name)
                .ok_or_else(|| format!("it is in a place called '{}'", shortened(&name))),
            (None, None) => Err("it does not say where it is".to_owned()),
        };
        (with_single_slashes(&file.path), place)
    };
    Ok(files.into_iter().map(located).collect())
}

/// Carries what the storage element at the destination of a copy is told of its file for tape, as gfal2 sends it.
pub const ARCHIVE_METADATA: HeaderName = HeaderName::from_static("archivemetadata");
/// The same in a push, which the source passes on.
pub const TRANSFER_HEADER_ARCHIVE_METADATA: HeaderName =
    HeaderName::from_static("transferheaderarchivemetadata");

/// The value of [`ARCHIVE_METADATA`]: base64 of the JSON.
pub fn archive_note(note: &Value) -> HeaderValue {
    let text = STANDARD.encode(note.to_string());
    HeaderValue::try_from(text).expect("base64 is ASCII")
}

/// Bytes of a note that are read; FTS takes 1,024 of its clients.
const NOTE_BYTES_MAX: usize = 4 << 10;

/// The JSON of such a value; `None`: it is too long, or no object of JSON in base64.
pub fn read_archive_note(value: &[u8]) -> Option<String> {
    let value = value.trim_ascii();
    let is_short = value.len() <= NOTE_BYTES_MAX.div_ceil(3) * 4;
    let decoded = is_short.then(|| STANDARD.decode(value).ok())??;
    let text = String::from_utf8(decoded).ok()?;
    serde_json::from_str::<serde_json::Map<String, Value>>(&text).ok()?;
    Some(text)
}

/// On one line, and not longer than people read.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(ERROR_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests;
