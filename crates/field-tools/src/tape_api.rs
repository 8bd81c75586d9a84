//! The tape system of a storage element, as its door tells it to administrators.

use crate::credentials::Credentials;
use crate::json_interface::JsonInterface;
use crate::remote_error::RemoteError;
use http::Method;
use penstock_model::Timestamp;
use penstock_protocol::http1::client::Client;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use url::Url;

/// Bytes that one answer may have.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The tape system of one storage element, and what its door is shown.
#[derive(Clone)]
pub struct TapeApi(JsonInterface);

/// Files and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeAmount {
    pub files: u64,
    pub bytes: u64,
}

/// What waits and runs of one kind of commands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeKindCounts {
    /// They wait for others of their family.
    pub collecting: TapeAmount,
    pub queued: TapeAmount,
    pub running: TapeAmount,
    /// They wait for their next try.
    pub delayed: TapeAmount,
    /// When the oldest that does not run was asked for, in nanoseconds of Unix.
    pub oldest_waiting_ns: Option<i64>,
}

/// Of all kinds: `put`, `get`, `remove`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeCounts {
    pub kinds: BTreeMap<String, TapeKindCounts>,
    /// Requests that have not ended.
    pub requests: u64,
    pub settled: u64,
    /// Commands that did not end when they were stopped.
    pub lost: u64,
}

/// Something that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeIncident {
    pub what: String,
    pub since: Timestamp,
    /// The last words of the command that failed.
    pub fault: Option<String>,
}

/// What the tape system does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeStatus {
    pub counts: TapeCounts,
    /// Files are being put on tape.
    pub is_admitting: bool,
    pub incidents: Vec<TapeIncident>,
}

impl TapeApi {
    /// That of the storage element with this door, such as `https://se.example.org:8443`.
    pub fn new(client: Client, door: Url, credentials: Arc<dyn Credentials>) -> TapeApi {
        TapeApi(JsonInterface {
            client,
            base: door,
            credentials,
            answer_bytes_max: ANSWER_BYTES_MAX,
            whose: "a tape system",
        })
    }

    /// What waits, what runs, and what is wrong.
    pub async fn status(&self) -> Result<TapeStatus, RemoteError> {
        self.0
            .exchange(Method::GET, "/.penstock/tape/status", None)
            .await
    }

    /// Has what waits for its next try tried now.
    pub async fn retry(&self) -> Result<(), RemoteError> {
        self.0
            .order(Method::POST, "/.penstock/tape/retry", Some(b"{}"))
            .await
    }
}
