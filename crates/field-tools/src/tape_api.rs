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
use std::time::Duration;
use url::Url;

/// Bytes that one answer may have.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The tape system of one storage element, and what its door is shown.
#[derive(Clone)]
pub struct TapeApi(JsonInterface);

/// Files and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeAmountDocument {
    pub files: u64,
    pub bytes: u64,
}

/// What waits and runs of what is written, read or removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeWorkCounts {
    /// They wait for others, with which they are written together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collecting: Option<TapeAmountDocument>,
    /// They wait for a command, or for a tape in a drive.
    pub queued: TapeAmountDocument,
    pub running: TapeAmountDocument,
    /// They wait for their next try.
    pub delayed: TapeAmountDocument,
    /// When the oldest that does not run was asked for.
    pub oldest_waiting: Option<Timestamp>,
}

/// All of it. What a tape system does not have is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeCountsDocument {
    pub archives: TapeWorkCounts,
    pub recalls: TapeWorkCounts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removals: Option<TapeWorkCounts>,
    /// Commands of an HSM that did not end when they were stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_commands: Option<u64>,
}

impl TapeCountsDocument {
    /// Those that there are, with what is done to their files.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &TapeWorkCounts)> {
        let both = [("archives", &self.archives), ("recalls", &self.recalls)];
        let removals = self.removals.iter().map(|counts| ("removals", counts));
        both.into_iter().chain(removals)
    }
}

/// Something that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeIncidentDocument {
    /// As the interface's description lists them; empty: an older storage element does not tell it.
    #[serde(default)]
    pub code: String,
    pub what: String,
    pub since: Timestamp,
    /// The last words of the command that failed.
    pub fault: Option<String>,
}

/// What the tape system does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TapeStatusDocument {
    pub counts: TapeCountsDocument,
    pub incidents: Vec<TapeIncidentDocument>,
    /// Of an HSM that is driven by commands; an older storage element does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hsm: Option<HsmStatusDocument>,
    /// Of tape libraries; `None`: an HSM is driven by commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libraries: Option<TapeLibrariesDocument>,
}

/// What fails of the commands of an HSM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmStatusDocument {
    pub program: String,
    /// Of each operation that has failed since the service started.
    pub failures: Vec<HsmOperationFailures>,
    /// The first files that wait for their next try.
    pub delayed: Vec<DelayedHsmFile>,
}

/// Failures of one operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmOperationFailures {
    /// `put`, `get` or `remove`.
    pub operation: String,
    /// Since the service started.
    pub count: u64,
    pub last: HsmFailure,
}

/// One failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmFailure {
    pub at: Timestamp,
    /// The path of the file, or the copy that was to be removed.
    pub name: String,
    /// `None`: the program did not exit by itself.
    pub code: Option<i32>,
    /// The first line of what it wrote to standard error.
    pub text: String,
}

/// A file that waits for its next try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayedHsmFile {
    pub operation: String,
    /// Its path, or the copy that is to be removed.
    pub name: String,
    pub tries: u32,
    pub next_try: Timestamp,
    pub code: Option<i32>,
    pub text: String,
}

/// What drives and tapes of libraries do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TapeLibrariesDocument {
    pub drives: Vec<TapeDrive>,
    pub tapes: Vec<LibraryTape>,
    /// Families of which files are to be written.
    pub families: Vec<TapeFamily>,
    /// The last mounts that have ended, the newest first.
    pub mounts: Vec<TapeMount>,
    /// What nobody waits for.
    #[serde(default)]
    pub care: TapeCareDocument,
}

/// What is done for tapes that nobody waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeCareDocument {
    /// It rests until then.
    pub held_until: Option<Timestamp>,
    /// The tape whose files are read and compared.
    pub verifying: Option<VerifyingTape>,
    pub repacks: Vec<TapeRepack>,
    /// Files that had too few copies on tape and get further ones.
    #[serde(default)]
    pub copying: Option<TapeCopying>,
    /// Files without a copy that can be read.
    #[serde(default)]
    pub without_copy_files: u64,
    /// The first of them.
    #[serde(default)]
    pub without_copy: Vec<FileWithoutCopy>,
    /// Files of which a copy cannot be read, and has not been written again.
    pub unreadable_files: u64,
    /// The first of them.
    pub unreadable: Vec<UnreadableFile>,
}

/// A tape whose files are read and compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyingTape {
    pub tape: String,
    /// `None`: they are being listed.
    pub left_files: Option<u64>,
}

/// A tape that is to be emptied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeRepack {
    pub tape: String,
    pub since: Timestamp,
    /// `operator`, or `automatic`.
    pub order: String,
    /// Of the pass that runs.
    pub moved_files: u64,
    /// `None`: no pass runs.
    pub left_files: Option<u64>,
    /// Why the tape is not written anew yet.
    pub waits_for: Option<String>,
}

/// Files that get further copies on tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeCopying {
    /// Since the look began that found them.
    pub copied_files: u64,
    /// That were found and have no further copy yet.
    pub left_files: u64,
}

/// A file that is on no disk and on no tape that is in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileWithoutCopy {
    pub file: u64,
    pub path: String,
    /// One that has a copy of it.
    pub tape: String,
}

/// A copy of a file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableFile {
    pub file: u64,
    pub path: Option<String>,
    pub tape: String,
    /// The file is on disk, or has a copy on tape that is not known to be unreadable.
    pub has_other_copy: Option<bool>,
}

/// How well a tape is known to be readable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeVerification {
    /// When it is read next; `None`: when an operator says so.
    pub due: Option<Timestamp>,
    /// When all of it had been read last.
    pub ended: Option<Timestamp>,
    pub is_running: bool,
    /// Since it was verified for the first time.
    pub read_files: u64,
    pub read_bytes: u64,
    pub unreadable_files: u64,
}

/// A tape that was in a drive, and what its time went to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TapeMount {
    pub drive: String,
    pub tape: String,
    pub library: String,
    pub kind: String,
    /// The family that was written; `None`: files were read.
    pub family: Option<String>,
    pub begin: Timestamp,
    pub end: Timestamp,
    /// In the time of the library, which may run faster.
    pub wall_ns: i64,
    /// They sum to `wall_ns`.
    pub phases_ns: BTreeMap<String, i64>,
    pub files: u64,
    pub payload_bytes: u64,
    pub moved_bytes: u64,
    /// Bytes of files in a second of all its time, and bytes in a second while the drive read or wrote.
    pub payload_rate: u64,
    pub drive_rate: u64,
    /// Bytes moved for a byte of a file; `None`: no file was done.
    pub amplification: Option<f64>,
    /// Mounts of the same tape that ended in the day before it.
    pub mounts_before: u64,
    /// Files that were done, by VO.
    pub vos: BTreeMap<String, u64>,
}

/// Data sets, and what clients have said of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeDataSets {
    /// Those that files joined last first.
    pub data_sets: Vec<TapeDataSet>,
    pub hints: Vec<TapeHints>,
}

/// A data set. See the interface's description for what each figure means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeDataSet {
    pub family: String,
    pub levels: Vec<String>,
    pub source: String,
    pub expected_files: Option<u64>,
    pub expected_bytes: Option<u64>,
    pub files: u64,
    pub bytes: u64,
    pub on_tape_files: u64,
    pub on_tape_bytes: u64,
    pub on_disk_files: u64,
    pub first: Timestamp,
    pub last: Timestamp,
    pub is_complete: Option<bool>,
    pub archived: Option<Timestamp>,
    pub awaited_files: u64,
    pub expected_on_disk: Option<Timestamp>,
}

/// What the hints of one sender were worth: `named`, `blank`, `unreadable` or `absent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeHints {
    pub sender: String,
    pub hint: String,
    pub files: u64,
    pub last: Timestamp,
}

/// What drives did for whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TapeDriveAccount {
    /// From when on mounts are counted; `None`: all.
    pub from: Option<Timestamp>,
    pub until: Timestamp,
    pub drive_times: Vec<TapeDriveTime>,
    /// The last ones, the newest first.
    pub mounts: Vec<TapeMount>,
    pub hints: Vec<TapeHintVerdict>,
    pub vos: Vec<VoTapes>,
}

/// Time of drives of one kind for one user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeDriveTime {
    /// `None`: nobody's files were done.
    pub vo: Option<String>,
    pub activity: Option<String>,
    pub challenge: Option<String>,
    pub kind: String,
    pub mounts: u64,
    /// In the time of the library, which may run faster.
    pub occupied_ns: i64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// So many data sets of one source came to this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeHintVerdict {
    pub source: String,
    pub verdict: String,
    pub data_sets: u64,
}

/// What one VO has on tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoTapes {
    pub vo: String,
    pub tapes: u64,
    pub capacity_bytes: u64,
    pub written_bytes: u64,
    pub live: TapeAmountDocument,
}

/// A drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeDrive {
    pub name: String,
    pub library: String,
    pub kind: String,
    /// `free`, `mounting`, `idle`, `reading`, `writing`, `syncing`, `dismounting` or `down`.
    pub state: String,
    pub since: Option<Timestamp>,
    pub tape: Option<String>,
    /// The family that is written.
    pub family: Option<String>,
    /// Files that were read or written since the tape is in it.
    pub files: u64,
}

/// A tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryTape {
    pub name: String,
    pub library: String,
    pub kind: String,
    /// `active`, `read-only`, `disabled`, `broken` or `not-configured`.
    pub state: String,
    pub family: Option<String>,
    pub capacity_bytes: u64,
    /// From its beginning to the end of what was written.
    pub written_bytes: u64,
    /// What of that is needed.
    pub live: TapeAmountDocument,
    /// The rest.
    #[serde(default)]
    pub dead_bytes: u64,
    #[serde(default)]
    pub verification: TapeVerification,
    /// Wraps of which a drive has told where they end.
    #[serde(default)]
    pub wraps_known: u64,
    /// Locates on it from which it is learnt how long others take.
    #[serde(default)]
    pub locates_known: u64,
    pub drive: Option<String>,
    /// Files that are to be read from it.
    pub queued: TapeAmountDocument,
    pub oldest_waiting: Option<Timestamp>,
    /// Why it is not read now. `None`: it is in a drive or on its way, or nothing waits.
    pub waits_for: Option<TapeWaitDocument>,
}

/// Files that are to be written to tapes of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeFamily {
    pub name: String,
    pub queued: TapeAmountDocument,
    pub oldest_waiting: Option<Timestamp>,
    /// Why no further drive writes them.
    pub waits_for: Option<TapeWaitDocument>,
}

/// What files wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeWaitDocument {
    /// As the interface's description lists them.
    pub code: String,
    pub what: String,
    /// When that ends, if nothing changes and if it is known.
    pub until: Option<Timestamp>,
}

/// Whether something may be stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StopAnswerDocument {
    pub is_ok: bool,
    /// What a stop would do.
    pub because: Vec<StopReasonDocument>,
}

/// What a stop would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum StopReasonDocument {
    Unknown,
    RecallsWait {
        files: u64,
        bytes: u64,
        tapes: Vec<String>,
    },
    ArchivesWait {
        family: String,
        files: u64,
    },
    NoOtherCopy {
        files: u64,
        bytes: u64,
        /// The first of them, by their numbers.
        first: Vec<u64>,
    },
    WorkDoneAgain {
        drive: String,
        reading: Option<u64>,
        unsynced_files: u64,
        unsynced_bytes: u64,
    },
    /// What a newer storage element tells.
    #[serde(other)]
    Other,
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
    pub async fn status(&self) -> Result<TapeStatusDocument, RemoteError> {
        let path = place(&self.0.base, &["status"]);
        self.0.exchange(Method::GET, &path, None).await
    }

    /// Data sets, the newest first; of a name, when one is given.
    pub async fn data_sets(
        &self,
        name: Option<&str>,
        limit: usize,
    ) -> Result<TapeDataSets, RemoteError> {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", &limit.to_string());
        if let Some(name) = name {
            query.append_pair("name", name);
        }
        let path = place(&self.0.base, &["data-sets"]) + "?" + &query.finish();
        self.0.exchange(Method::GET, &path, None).await
    }

    /// What drives did since then; `None`: ever.
    pub async fn account(&self, since: Option<Timestamp>) -> Result<TapeDriveAccount, RemoteError> {
        let mut path = place(&self.0.base, &["account"]);
        if let Some(since) = since {
            path += &format!("?since={}", since.0);
        }
        self.0.exchange(Method::GET, &path, None).await
    }

    /// Has what waits for its next try tried now.
    pub async fn retry(&self) -> Result<(), RemoteError> {
        let path = place(&self.0.base, &["retry"]);
        self.0.order(Method::POST, &path, Some(b"{}")).await
    }

    /// Takes a drive out of use, or back: `down` or `up`.
    pub async fn change_drive(&self, drive: &str, state: &str) -> Result<(), RemoteError> {
        self.change(&["drive", drive], state).await
    }

    /// Takes a tape out of use, or back: `enabled`, `disabled` or `read_only`.
    pub async fn change_tape(&self, tape: &str, state: &str) -> Result<(), RemoteError> {
        self.change(&["tape", tape], state).await
    }

    /// Has a tape emptied and written anew; what `together` names is written beside each other.
    pub async fn repack(&self, tape: &str, together: &[String]) -> Result<(), RemoteError> {
        let body = serde_json::json!({ "together": together }).to_string();
        self.post(&["tape", tape, "repack"], &body).await
    }

    /// The tape stays as it is.
    pub async fn stop_repack(&self, tape: &str) -> Result<(), RemoteError> {
        let path = place(&self.0.base, &["tape", tape, "repack"]);
        self.0.order(Method::DELETE, &path, None).await
    }

    /// Has the files of a tape read and compared.
    pub async fn verify(&self, tape: &str) -> Result<(), RemoteError> {
        self.post(&["tape", tape, "verify"], "{}").await
    }

    /// Has a tape on which nothing lives written anew.
    pub async fn relabel(&self, tape: &str) -> Result<(), RemoteError> {
        self.post(&["tape", tape, "relabel"], "{}").await
    }

    /// What nobody waits for rests for so long. Zero: it goes on.
    pub async fn hold_background(&self, span: Duration) -> Result<(), RemoteError> {
        let body = serde_json::json!({ "hold_seconds": span.as_secs() }).to_string();
        self.post(&["background"], &body).await
    }

    async fn post(&self, of: &[&str], body: &str) -> Result<(), RemoteError> {
        let path = place(&self.0.base, of);
        let body = Some(body.as_bytes());
        self.0.order(Method::POST, &path, body).await
    }

    async fn change(&self, of: &[&str], state: &str) -> Result<(), RemoteError> {
        let body = serde_json::json!({ "state": state }).to_string();
        self.post(of, &body).await
    }

    /// Whether a drive, a library or a tape may be stopped.
    pub async fn ok_to_stop(&self, name: &str) -> Result<StopAnswerDocument, RemoteError> {
        let path = place(&self.0.base, &["ok-to-stop", name]);
        self.0.exchange(Method::GET, &path, None).await
    }
}

/// A path of the tape system. Whatever a name holds, it is one part of the path.
fn place(door: &Url, parts: &[&str]) -> String {
    let mut url = door.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.clear().extend([".penstock", "tape"]).extend(parts);
    }
    url.path().to_owned()
}
