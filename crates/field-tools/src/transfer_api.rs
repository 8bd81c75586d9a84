//! A client of the FTS REST interface, as far as people need it: submit, look, cancel, and ask why.
//!
//! Speaks what any FTS3 service speaks; `explain` and `overview` are answered by Penstock's only.

mod bans;
mod search;

pub use bans::{BanInfo, StorageBanRequest};
pub use search::{FindQuestion, FoundPage};

use crate::credentials::Credentials;
use crate::job_list::Entry;
use crate::json_interface::JsonInterface;
use crate::remote_error::RemoteError;
use http::Method;
use penstock_model::Timestamp;
use penstock_protocol::http1::client::Client;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Bytes that one answer may have: 10,000 files at about 2 kB each, with room.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Job ids asked for at once, so that the request line stays short.
const IDS_PER_REQUEST: usize = 50;

/// A transfer service, and what it is shown.
#[derive(Clone)]
pub struct TransferService(JsonInterface);

/// The tokens by which one end of a job's files is reached.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum EndTokens {
    /// The one that the service is shown.
    #[default]
    OfSubmission,
    /// One for all files.
    One(String),
    /// One for each file, in their order; `None` where a token is of no use.
    Each(Vec<Option<String>>),
}

impl From<Option<String>> for EndTokens {
    fn from(token: Option<String>) -> EndTokens {
        token.map_or(EndTokens::OfSubmission, EndTokens::One)
    }
}

impl EndTokens {
    fn of_file(&self, at: usize) -> Option<&str> {
        match self {
            EndTokens::OfSubmission => None,
            EndTokens::One(token) => Some(token),
            EndTokens::Each(tokens) => tokens.get(at)?.as_deref(),
        }
    }
}

/// The tokens by which a job's files are reached.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct JobTokens {
    pub sources: EndTokens,
    pub destinations: EndTokens,
}

/// What holds for every file of a submission.
#[derive(Clone)]
pub struct SubmitOptions {
    /// FTS's `verify_checksum`: both, source, target or none.
    pub verify: &'static str,
    /// Replace destinations that exist.
    pub overwrite: bool,
    /// Retries per file; `None` leaves it to the service.
    pub retries: Option<u32>,
    /// 1 to 5.
    pub priority: u8,
    /// Share label.
    pub activity: String,
    /// What the job is for; comes back in its metadata.
    pub label: Option<String>,
    /// What tape systems at its ends do.
    pub tape: TapeOptions,
    /// By which tokens the files are reached.
    pub tokens: JobTokens,
}

/// What tape systems at the ends of a submission's files do. Names are FTS's; whole seconds count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TapeOptions {
    /// Sources are brought from tape within this time.
    pub bring_online: Option<Duration>,
    /// Sources stay on disk for this time.
    pub copy_pin_lifetime: Option<Duration>,
    /// Copies are on tape within this time.
    pub archive_timeout: Option<Duration>,
    /// A source is deleted when its copy is on tape. Only Penstock's service knows it, and only with `archive_timeout`.
    pub delete_source: bool,
}

impl TapeOptions {
    /// Adds what was asked for. What was not is left out: the service's defaults are none of it.
    fn add_to(&self, params: &mut Value) {
        for (name, span) in [
            ("bring_online", self.bring_online),
            ("copy_pin_lifetime", self.copy_pin_lifetime),
            ("archive_timeout", self.archive_timeout),
        ] {
            if let Some(span) = span {
                params[name] = json!(span.as_secs());
            }
        }
        if self.delete_source {
            params["delete_source"] = json!(true);
        }
    }
}

/// The processes of a service, as one of them tells them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodesInfo {
    /// The one that tells this.
    pub node: String,
    /// Who leads, as far as it knows.
    pub leader: Option<String>,
    /// Which leadership it is.
    pub epoch: u64,
    pub nodes: Vec<NodeInfo>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Its name.
    pub node: String,
    /// `leader`, `follower` or `silent`.
    pub role: String,
    /// Where the others reach it.
    pub address: String,
    /// Attempts that run there.
    pub active: u32,
    /// How many may.
    pub active_max: u32,
    pub version: String,
    /// How long ago it told that it is there.
    pub seen_seconds: u64,
}

/// A job as the service tells it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobInfo {
    pub job_id: String,
    /// SUBMITTED, ACTIVE, FINISHED, FINISHEDDIRTY, FAILED, CANCELED and others of FTS.
    pub job_state: String,
    pub reason: Option<String>,
    /// UTC, `YYYY-MM-DDTHH:MM:SS`.
    pub submit_time: Option<String>,
    /// Likewise; `None` while it runs.
    pub job_finished: Option<String>,
    /// 1 to 5.
    pub priority: Option<u8>,
    /// On whose behalf.
    pub vo_name: Option<String>,
    /// Who submitted it.
    pub user_dn: Option<String>,
    /// Its first source's storage element.
    pub source_se: Option<String>,
    /// Its last destination's storage element.
    pub dest_se: Option<String>,
}

/// A file of a job as the service tells it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileInfo {
    pub file_id: u64,
    /// SUBMITTED, ACTIVE, FINISHED, FAILED, CANCELED and others of FTS.
    pub file_state: String,
    pub source_surl: String,
    /// Where it goes.
    pub dest_surl: String,
    /// Why it failed.
    pub reason: Option<String>,
    /// In bytes.
    pub filesize: Option<u64>,
    /// Mean rate in MiB/s.
    pub throughput: Option<f64>,
    /// Seconds that the last attempt took.
    pub tx_duration: Option<f64>,
}

/// What the service does at the moment.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Overview {
    /// Over all links.
    pub totals: Totals,
    /// Each link that was seen.
    #[serde(default)]
    pub links: Vec<LinkInfo>,
}

/// What one link does at the moment.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct LinkInfo {
    /// Storage element that files come from.
    pub source: String,
    /// Storage element that files go to.
    pub destination: String,
    /// Files that move.
    pub active: u32,
    /// Files that may move at once.
    pub limit: u32,
    /// Files that wait.
    pub queued: u64,
    /// Bytes that moved since the service began.
    pub moved_bytes: u64,
}

/// A file that moves now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunningFile {
    pub transfer: u64,
    pub job: String,
    pub moved_bytes: u64,
    /// `None`: not known yet.
    pub size_bytes: Option<u64>,
    /// For how long it runs.
    pub seconds: f64,
}

/// The part of the overview that tells them.
#[derive(Debug, Default, Deserialize)]
struct RunningView {
    #[serde(default)]
    active_transfers: Vec<RunningFile>,
}

/// Counts and sums over all links.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Files that wait.
    pub submitted: u64,
    /// Files that move.
    pub active: u64,
    /// Files that arrived.
    pub finished: u64,
    /// Files that failed.
    pub failed: u64,
    /// Files that were canceled.
    pub canceled: u64,
    pub moved_bytes: u64,
    /// Bytes per second at the moment.
    pub rate_bytes_per_second: u64,
}

impl JobInfo {
    /// True when it will not change again. States that we do not know count as open.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self.job_state.as_str(),
            "FINISHED" | "FINISHEDDIRTY" | "FAILED" | "CANCELED"
        )
    }

    /// True when every file arrived.
    pub fn is_finished(&self) -> bool {
        self.job_state == "FINISHED"
    }
}

impl FileInfo {
    /// True when it will not change again.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self.file_state.as_str(),
            "FINISHED" | "FAILED" | "CANCELED" | "NOT_USED"
        )
    }
}

impl TransferService {
    /// The service at `base`, such as `https://fts.example.org:8446`.
    pub fn new(client: Client, base: Url, credentials: Arc<dyn Credentials>) -> TransferService {
        TransferService(JsonInterface {
            client,
            base,
            credentials,
            answer_bytes_max: ANSWER_BYTES_MAX,
            whose: "a transfer service",
        })
    }

    /// Submits one job; gives back its id.
    pub async fn submit(
        &self,
        files: &[Entry],
        options: &SubmitOptions,
    ) -> Result<String, RemoteError> {
        #[derive(Deserialize)]
        struct SubmitReply {
            job_id: String,
        }
        let body = submission(files, options).to_string();
        let accepted: SubmitReply = self
            .exchange(Method::POST, "jobs", Some(body.as_bytes()))
            .await?;
        Ok(accepted.job_id)
    }

    pub async fn job(&self, id: &str) -> Result<JobInfo, RemoteError> {
        self.exchange(Method::GET, &format!("jobs/{}", segment(id)), None)
            .await
    }

    /// Several jobs, in any order. A job that the service does not know is an error.
    pub async fn jobs(&self, ids: &[String]) -> Result<Vec<JobInfo>, RemoteError> {
        let mut jobs = Vec::with_capacity(ids.len());
        for part in ids.chunks(IDS_PER_REQUEST) {
            match part {
                // With one id the answer is an object, with several a list.
                [id] => jobs.push(self.job(id).await?),
                _ => {
                    let joined = part
                        .iter()
                        .map(|id| segment(id))
                        .collect::<Vec<_>>()
                        .join(",");
                    let found: Vec<Value> = self
                        .exchange(Method::GET, &format!("jobs/{joined}"), None)
                        .await?;
                    for value in found {
                        jobs.push(self.found_job(value)?);
                    }
                }
            }
        }
        Ok(jobs)
    }

    fn found_job(&self, value: Value) -> Result<JobInfo, RemoteError> {
        let id = value
            .get("job_id")
            .and_then(Value::as_str)
            .unwrap_or("a job")
            .to_owned();
        match value.get("http_status").and_then(Value::as_str) {
            Some(status) if status.starts_with("404") => {
                Err(RemoteError::not_found(format!("job {id}")))
            }
            _ => serde_json::from_value(value)
                .map_err(|why| RemoteError::nonsense(&self.0.base, format!("job {id}: {why}"))),
        }
    }

    /// The files of a job.
    pub async fn files(&self, id: &str) -> Result<Vec<FileInfo>, RemoteError> {
        self.exchange(Method::GET, &format!("jobs/{}/files", segment(id)), None)
            .await
    }

    /// Jobs in the given states; without any, those that have not ended.
    pub async fn list(&self, states: &[String], limit: u32) -> Result<Vec<JobInfo>, RemoteError> {
        let mut path = format!("jobs?limit={limit}");
        if !states.is_empty() {
            let states: Vec<String> = states
                .iter()
                .map(|state| segment(&state.to_ascii_uppercase()))
                .collect();
            // FTS lists ended jobs only when it is told how far back to look, in hours.
            path += &format!("&state_in={}&time_window=168", states.join(","));
        }
        self.exchange(Method::GET, &path, None).await
    }

    /// Cancels a job; gives back how it stands then.
    pub async fn cancel(&self, id: &str) -> Result<JobInfo, RemoteError> {
        self.exchange(Method::DELETE, &format!("jobs/{}", segment(id)), None)
            .await
    }

    /// Why each file of a job waits or failed, as the service words it.
    pub async fn explain(&self, id: &str) -> Result<Value, RemoteError> {
        self.exchange(
            Method::GET,
            &format!("api/v1/jobs/{}/explain", segment(id)),
            None,
        )
        .await
    }

    /// What the live page asks for, at a path of the service.
    pub async fn live<T: DeserializeOwned>(&self, path: &str) -> Result<T, RemoteError> {
        self.exchange(Method::GET, path, None).await
    }

    /// What moves now.
    pub async fn overview(&self) -> Result<Overview, RemoteError> {
        self.exchange(Method::GET, "api/v1/overview", None).await
    }

    /// Files of some jobs that move now. Empty where the service does not tell it.
    pub async fn running(&self, jobs: &[String]) -> Result<Vec<RunningFile>, RemoteError> {
        let mut running = Vec::new();
        for part in jobs.chunks(IDS_PER_REQUEST) {
            let ids: Vec<String> = part.iter().map(|id| segment(id)).collect();
            let place = format!("api/v1/overview?jobs={}", ids.join(","));
            let seen: RunningView = match self.exchange(Method::GET, &place, None).await {
                Err(RemoteError::NotFound { .. }) => return Ok(Vec::new()),
                seen => seen?,
            };
            let files = seen.active_transfers.into_iter();
            running.extend(files.filter(|file| part.contains(&file.job)));
        }
        Ok(running)
    }

    /// The processes of the service. Answered by Penstock only.
    pub async fn nodes(&self) -> Result<NodesInfo, RemoteError> {
        self.exchange(Method::GET, "api/v1/nodes", None).await
    }

    /// Where rates fell and rose. Answered by Penstock only.
    pub async fn rate_changes(&self, window: &ExplainedTimes) -> Result<Value, RemoteError> {
        let path = format!("api/v1/explain{}", window.query());
        self.exchange(Method::GET, &path, None).await
    }

    /// One of these changes by its id, with all that is known of it. Answered by Penstock only.
    pub async fn rate_change(
        &self,
        id: &str,
        window: &ExplainedTimes,
    ) -> Result<Value, RemoteError> {
        let path = format!("api/v1/explain/{}{}", segment(id), window.query());
        self.exchange(Method::GET, &path, None).await
    }

    /// The story of a path of the storage element that the service's own site runs. Answered by Penstock only.
    pub async fn path_story(
        &self,
        path: &str,
        window: &ExplainedTimes,
    ) -> Result<Value, RemoteError> {
        let query = window.query();
        let sign = if query.is_empty() { '?' } else { '&' };
        let path = format!("api/v1/explain/path{query}{sign}path={}", segment(path));
        self.exchange(Method::GET, &path, None).await
    }

    /// The incidents of a window, those of one class or all. Answered by Penstock only.
    pub async fn incidents(
        &self,
        window: &ExplainedTimes,
        class: Option<&str>,
    ) -> Result<Value, RemoteError> {
        let mut query = window.query();
        if let Some(class) = class {
            let sign = if query.is_empty() { '?' } else { '&' };
            query += &format!("{sign}class={}", segment(class));
        }
        let path = format!("api/v1/incidents{query}");
        self.exchange(Method::GET, &path, None).await
    }

    /// One of them by its id, with all that is known of it. Answered by Penstock only.
    pub async fn incident(&self, id: &str, window: &ExplainedTimes) -> Result<Value, RemoteError> {
        let path = format!("api/v1/incidents/{}{}", segment(id), window.query());
        self.exchange(Method::GET, &path, None).await
    }

    /// What was sampled of the service's host in the last seconds. Answered by Penstock only.
    pub async fn host(
        &self,
        seconds: u64,
        resolution_seconds: Option<u32>,
    ) -> Result<Value, RemoteError> {
        let resolution = resolution_seconds.map(|seconds| format!("&resolution={seconds}"));
        let path = format!(
            "api/v1/host?seconds={seconds}{}",
            resolution.unwrap_or_default()
        );
        self.exchange(Method::GET, &path, None).await
    }

    pub(crate) async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<T, RemoteError> {
        self.0.exchange(method, &format!("/{path}"), body).await
    }
}

/// Ids and states have plain characters; anything else must not become part of the path's structure.
/// Which time is explained, on which link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExplainedTimes {
    /// Seconds before its end; `None`: the service chooses.
    pub seconds: Option<u64>,
    /// Where it ends; `None`: now.
    pub until: Option<Timestamp>,
    /// Seconds of an interval.
    pub resolution_seconds: Option<u32>,
    /// Whose rates; `None`: those of each link.
    pub population: Option<PopulationParameter>,
}

/// Whose rates are asked for, as a parameter of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PopulationParameter {
    /// `link`, `vo`, `server` or `pool`.
    pub name: &'static str,
    pub value: String,
}

impl ExplainedTimes {
    fn query(&self) -> String {
        let number =
            |name: &str, value: Option<String>| value.map(|value| format!("{name}={value}"));
        let parts = [
            number("seconds", self.seconds.map(|seconds| seconds.to_string())),
            number("until", self.until.map(|until| until.0.to_string())),
            number(
                "resolution",
                self.resolution_seconds.map(|seconds| seconds.to_string()),
            ),
            self.population
                .as_ref()
                .map(|of| format!("{}={}", of.name, segment(&of.value))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        match parts.is_empty() {
            true => String::new(),
            false => format!("?{}", parts.join("&")),
        }
    }
}

pub(crate) fn segment(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                (byte as char).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

fn submission(files: &[Entry], options: &SubmitOptions) -> Value {
    let tokens = &options.tokens;
    let file = |(at, entry): (usize, &Entry)| {
        let checksum = entry.checksum.as_ref().map(|checksum| {
            format!(
                "{}:{}",
                checksum.algorithm().name().to_ascii_uppercase(),
                checksum.hex()
            )
        });
        let mut file = json!({
            "sources": [entry.source.as_str()],
            "destinations": [entry.destination.as_str()],
            "activity": options.activity,
            "checksum": checksum,
        });
        if let Some(token) = tokens.sources.of_file(at) {
            file["source_tokens"] = json!([token]);
        }
        if let Some(token) = tokens.destinations.of_file(at) {
            file["destination_tokens"] = json!([token]);
        }
        file
    };
    let mut params = json!({
        "verify_checksum": options.verify,
        "overwrite": options.overwrite,
        // FTS: 0 is the service's default, a negative number is never.
        "retry": options.retries.map_or(0, |retries| if retries == 0 { -1 } else { i64::from(retries) }),
        "priority": options.priority,
        "job_metadata": options.label.as_ref().map(|label| json!({ "label": label })),
    });
    options.tape.add_to(&mut params);
    json!({
        "files": files.iter().enumerate().map(file).collect::<Vec<_>>(),
        "params": params,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Checksum, FileUrl};

    #[test]
    fn a_submission_is_what_fts_expects() {
        let entry = Entry {
            source: FileUrl::parse("https://a/f").expect("valid"),
            destination: FileUrl::parse("davs://b/f").expect("valid"),
            checksum: Checksum::parse("adler32:1a2b"),
        };
        let options = SubmitOptions {
            verify: "both",
            overwrite: true,
            retries: Some(0),
            priority: 4,
            activity: "default".into(),
            label: None,
            tape: TapeOptions {
                bring_online: Some(Duration::from_secs(3_600)),
                ..TapeOptions::default()
            },
            tokens: JobTokens {
                sources: EndTokens::OfSubmission,
                destinations: EndTokens::Each(vec![Some("t".into())]),
            },
        };
        let expected = json!({
            "files": [{
                "sources": ["https://a/f"],
                "destinations": ["davs://b/f"],
                "activity": "default",
                "checksum": "ADLER32:00001a2b",
                "destination_tokens": ["t"],
            }],
            "params": {
                "verify_checksum": "both", "overwrite": true, "retry": -1, "priority": 4,
                "job_metadata": null, "bring_online": 3600,
            },
        });
        assert_eq!(submission(std::slice::from_ref(&entry), &options), expected);
        let tape = TapeOptions {
            copy_pin_lifetime: Some(Duration::from_secs(5)),
            archive_timeout: Some(Duration::from_secs(6)),
            delete_source: true,
            bring_online: None,
        };
        let moved = submission(&[entry], &SubmitOptions { tape, ..options });
        let params = &moved["params"];
        let told = ["copy_pin_lifetime", "archive_timeout", "delete_source"];
        let told = told.map(|name| params[name].clone());
        assert_eq!(told, [json!(5), json!(6), json!(true)]);
        assert!(params.get("bring_online").is_none());
    }

    #[test]
    fn an_id_cannot_leave_its_place_in_the_path() {
        assert_eq!(segment("0192d3a4-abcd"), "0192d3a4-abcd");
        assert_eq!(segment("../x?y"), "..%2Fx%3Fy");
    }
}
