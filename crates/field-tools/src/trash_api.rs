//! The trash of a storage element, as its door tells it to administrators: listed, restored, emptied.

use crate::credentials::Credentials;
use crate::json_interface::JsonInterface;
use crate::remote_error::RemoteError;
use http::Method;
use penstock_model::{NamespacePath, Timestamp};
use penstock_protocol::http1::client::Client;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use url::{Url, form_urlencoded};

/// Bytes that one answer may have. A page of the trash has a quarter, beyond its first file.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Where a door has it.
const TRASH: &str = "/.penstock/trash";

/// The trash of one storage element, and what its door is shown.
#[derive(Clone)]
pub struct TrashApi(JsonInterface);

/// A file that was removed or replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrashedInfo {
    /// Its number, in hexadecimal.
    pub id: String,
    /// Where it was; `None`: not known.
    pub path: Option<String>,
    /// The pool that keeps its data.
    pub pool: String,
    pub size_bytes: u64,
    /// Of its data.
    pub checksums: Vec<String>,
    pub owner: Option<String>,
    /// When it was written.
    pub created: Timestamp,
    pub removed: Timestamp,
    pub removed_by: Option<String>,
}

/// Some files of the trash.
#[derive(Debug, Deserialize)]
pub struct TrashPage {
    /// How long files are kept.
    pub kept_seconds: u64,
    /// The token issuer of the storage element's own site.
    pub issuer: Option<String>,
    /// Those that were removed first before others.
    pub files: Vec<TrashedInfo>,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// A file that is back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredInfo {
    pub path: String,
    /// Its directory was gone and was made again.
    pub parent_made: bool,
    /// A storage element of an earlier version tells neither of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// When it came back, by the clock there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<Timestamp>,
}

/// What one request has removed for good, or would.
#[derive(Debug, Default, Deserialize)]
pub struct EmptiedInfo {
    pub files: u64,
    pub bytes: u64,
    /// Asking again removes more.
    pub is_more: bool,
    /// Trash that cannot be removed; not told while there is more.
    pub stays: Vec<StayInfo>,
}

/// Trash of one pool that cannot be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StayInfo {
    pub pool: String,
    pub files: u64,
    pub bytes: u64,
    /// What the pool is or does, in words that follow its name.
    pub why: String,
}

impl TrashApi {
    /// That of the storage element with this door, such as `https://se.example.org:8443`.
    pub fn new(client: Client, door: Url, credentials: Arc<dyn Credentials>) -> TrashApi {
        TrashApi(JsonInterface {
            client,
            base: door,
            credentials,
            answer_bytes_max: ANSWER_BYTES_MAX,
            whose: "a trash",
        })
    }

    /// Files that were at a path or below it, at most so many, from the given place on.
    pub async fn list(
        &self,
        within: Option<&NamespacePath>,
        limit: usize,
        after: Option<&str>,
    ) -> Result<TrashPage, RemoteError> {
        let limit = limit.to_string();
        let path = within.map(ToString::to_string);
        let query = [
            ("path", path.as_deref()),
            ("limit", Some(limit.as_str())),
            ("after", after),
        ];
        self.exchange(Method::GET, "", &query, None).await
    }

    /// Makes a file visible again, where it was or elsewhere.
    pub async fn restore(
        &self,
        id: &str,
        to: Option<&NamespacePath>,
    ) -> Result<RestoredInfo, RemoteError> {
        let body = match to {
            Some(to) => json!({"to": to.to_string()}),
            None => json!({}),
        };
        let body = body.to_string();
        let place = format!("/{id}");
        self.exchange(Method::POST, &place, &[], Some(body.as_bytes()))
            .await
    }

    /// Removes some files for good: those that were at a path or below it, and were removed so many seconds ago.
    pub async fn empty(
        &self,
        within: Option<&NamespacePath>,
        older_than_seconds: Option<u64>,
    ) -> Result<EmptiedInfo, RemoteError> {
        self.delete(within, older_than_seconds, None).await
    }

    /// What [`TrashApi::empty`] would remove until there is no more.
    pub async fn would_empty(
        &self,
        within: Option<&NamespacePath>,
        older_than_seconds: Option<u64>,
    ) -> Result<EmptiedInfo, RemoteError> {
        let dry_run = Some("true");
        self.delete(within, older_than_seconds, dry_run).await
    }

    async fn delete(
        &self,
        within: Option<&NamespacePath>,
        older_than_seconds: Option<u64>,
        dry_run: Option<&str>,
    ) -> Result<EmptiedInfo, RemoteError> {
        let path = within.map(ToString::to_string);
        let seconds = older_than_seconds.map(|seconds| seconds.to_string());
        let query = [
            ("path", path.as_deref()),
            ("older_than", seconds.as_deref()),
            ("dry_run", dry_run),
        ];
        self.exchange(Method::DELETE, "", &query, None).await
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        place: &str,
        query: &[(&str, Option<&str>)],
        body: Option<&[u8]>,
    ) -> Result<T, RemoteError> {
        let mut path = format!("{TRASH}{place}");
        let given = query
            .iter()
            .filter_map(|(name, value)| Some((name, (*value)?)));
        let mut text = form_urlencoded::Serializer::new(String::new());
        let text = text.extend_pairs(given).finish();
        if !text.is_empty() {
            path = format!("{path}?{text}");
        }
        self.0.exchange(method, &path, body).await
    }
}
