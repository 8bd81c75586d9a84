//! The tape system of a storage element, as its door tells it to administrators.

use crate::credentials::Credentials;
use crate::question::Question;
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
pub struct TapeApi {
    client: Client,
    door: Url,
    credentials: Arc<dyn Credentials>,
}

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
        TapeApi {
            client,
            door,
            credentials,
        }
    }

    /// What waits, what runs, and what is wrong.
    pub async fn status(&self) -> Result<TapeStatus, RemoteError> {
        let (url, text) = self.exchange(Method::GET, "status", None).await?;
        serde_json::from_slice(&text).map_err(|why| {
            RemoteError::nonsense(&url, format!("not an answer about a tape system: {why}"))
        })
    }

    /// Has what waits for its next try tried now.
    pub async fn retry(&self) -> Result<(), RemoteError> {
        self.exchange(Method::POST, "retry", Some(b"{}")).await?;
        Ok(())
    }

    async fn exchange(
        &self,
        method: Method,
        place: &str,
        body: Option<&[u8]>,
    ) -> Result<(Url, Vec<u8>), RemoteError> {
        let mut url = self.door.clone();
        url.set_path(&format!("/.penstock/tape/{place}"));
        url.set_query(None);
        let question = Question {
            method,
            url: &url,
            body,
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        let text = question.ask(&self.client, &*self.credentials).await?;
        Ok((url, text))
    }
}
