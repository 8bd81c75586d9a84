//! Jobs: what one submission asked for, and how a job's state follows from its transfers.

use crate::checksum::{Checksum, ChecksumAlgorithm};
use crate::ids::{Activity, CredentialId, JobId, LinkId, TransferId, UserName, VoName};
use crate::problem::Side;
use crate::tape::{Recall, Staging, TapeNotes};
use crate::transfer::TransferState;
use crate::units::{Bytes, Priority, Timestamp};
use crate::url::FileUrl;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// Which ends have their checksum verified. Names as in FTS (`verify_checksum`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChecksumMode {
    /// No verification beyond what the storage elements do themselves.
    #[default]
    None,
    /// The source's checksum equals the one given by the user.
    Source,
    /// The destination's checksum equals the one given by the user, or the source's.
    Target,
    /// Both of the above, and source and destination agree.
    Both,
}

/// What may happen to a destination that exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overwrite {
    /// Fail with "Destination file exists and overwrite is not enabled".
    #[default]
    Never,
    /// Replace it.
    Always,
    /// Replace it when this is not the first attempt.
    OnRetry,
    /// Replace what is in the way of all hops but the last.
    IntermediateHops,
    /// Replace it unless it is on tape.
    OnlyOnDisk,
    /// Replace what is in the way of all hops but the last, and there unless it is on tape.
    IntermediateHopsAndOnlyOnDisk,
}

/// How the transfers of a job depend on each other. FTS calls it the job type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Not at all (`N`).
    #[default]
    Independent,
    /// Not at all, and all go the same way (`Y`). FTS moves them in one session; here connections are kept for every
    /// job, so it is a label, and one file that fails fails alone.
    Session,
    /// All bring the same file from different places: one that arrives is enough (`R`).
    Replicas(Selection),
    /// Each begins where the one before it ended (`H`).
    Hops,
}

impl JobKind {
    /// The letter on the wire.
    pub fn fts_letter(self) -> &'static str {
        match self {
            JobKind::Independent => "N",
            JobKind::Session => "Y",
            JobKind::Replicas(_) => "R",
            JobKind::Hops => "H",
        }
    }

    /// Whether its transfers begin at once, not one after the other.
    pub fn begins_together(self) -> bool {
        match self {
            JobKind::Independent | JobKind::Session => true,
            JobKind::Replicas(_) | JobKind::Hops => false,
        }
    }
}

/// How the next replica is chosen. Names as in FTS (`selection_strategy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// In the order of the submission.
    Orderly,
    /// The link with the fewest waiting files.
    #[default]
    Queue,
    /// The link on which most transfers succeed.
    Success,
    /// The link that moves most bytes per second.
    Throughput,
    /// The link on which a file moves fastest.
    FileThroughput,
    /// The link with the fewest waiting bytes.
    PendingData,
    /// The link on which the waiting bytes take the least time.
    WaitingTime,
    /// The same, where failures count as waiting.
    WaitingTimeWithError,
    /// The link on which this file ends first: waiting bytes and its own at the speed of one file.
    Duration,
}

impl Selection {
    /// Every strategy.
    pub const ALL: [Selection; 9] = [
        Selection::Orderly,
        Selection::Queue,
        Selection::Success,
        Selection::Throughput,
        Selection::FileThroughput,
        Selection::PendingData,
        Selection::WaitingTime,
        Selection::WaitingTimeWithError,
        Selection::Duration,
    ];

    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Selection::Orderly => "orderly",
            Selection::Queue => "queue",
            Selection::Success => "success",
            Selection::Throughput => "throughput",
            Selection::FileThroughput => "file-throughput",
            Selection::PendingData => "pending-data",
            Selection::WaitingTime => "waiting-time",
            Selection::WaitingTimeWithError => "waiting-time-with-error",
            Selection::Duration => "duration",
        }
    }

    /// The strategy of that name; `auto` means `queue`.
    pub fn parse(name: &str) -> Option<Selection> {
        if name == "auto" {
            return Some(Selection::Queue);
        }
        Selection::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// A version of the Internet protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpVersion {
    /// Version 4.
    V4,
    /// Version 6.
    V6,
}

impl IpVersion {
    /// FTS's word.
    pub fn name(self) -> &'static str {
        match self {
            IpVersion::V4 => "ipv4",
            IpVersion::V6 => "ipv6",
        }
    }
}

/// What holds for every file of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobParameters {
    /// How its transfers depend on each other.
    #[serde(default)]
    pub kind: JobKind,
    /// Which ends are verified.
    pub verify_checksum: ChecksumMode,
    /// What may happen to existing destinations.
    pub overwrite: Overwrite,
    /// How many times a recoverable failure is tried again. `None`: the service's default.
    pub retries_max: Option<u32>,
    /// Seconds before the first retry. `None`: the service's default; later retries back off from it.
    pub retry_delay_seconds: Option<u64>,
    /// Scheduling priority.
    pub priority: Priority,
    /// Seconds one attempt may take. `None`: from the file's size.
    pub timeout_seconds: Option<u64>,
    /// No stat, no existence check, no size or checksum comparison.
    pub strict_copy: bool,
    /// Keep what a failed copy left behind.
    pub disable_cleanup: bool,
    /// Tell size and checksum of a file that is in the way (`dst_file_report`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub report_existing: bool,
    /// TCP streams asked for. What was in effect is recorded by the mover.
    pub streams: Option<u32>,
    /// TCP buffer asked for, in bytes. Kernels tune it better, so it is only recorded beside what was in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Bytes>,
    /// By which the service connects to both ends; `None`: by either. How the ends connect to each other is theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_version: Option<IpVersion>,
    /// When a job that still waits is given up.
    pub expires_at: Option<Timestamp>,
    /// In URLs of S3, the bucket is the first part of the path for sure (`s3alternate`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub s3_path_style: bool,
    /// Whatever the client wants back, unchanged.
    pub metadata: Value,
    /// Names the delegated proxy by which ends are reached that have no token of their own. The newest of that name
    /// when an attempt starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<CredentialId>,
    /// Files come from tape: of several hops, those of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<Staging>,
    /// Seconds within which files must be on tape after their copy, of several hops after the last
    /// (`archive_timeout`). `None`: that is not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_seconds: Option<u64>,
    /// A file's source is removed when its copy is on tape and has the same size and checksum (`delete_source`). Goes
    /// with `archive_seconds` only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removes_source: bool,
    /// The space of an SRM that files are read from (`source_spacetoken`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_space: Option<String>,
    /// The space of an SRM that files are written to (`destination_spacetoken`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_space: Option<String>,
    /// Brought back at this time from a backup, or found in a database that had lost its last records: what was open
    /// then may have arrived before, and what the record knows from before says nothing of who has written to a
    /// destination since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_at: Option<Timestamp>,
}

impl JobParameters {
    /// How each transfer of a job begins that was submitted then.
    pub fn first_state(&self, submitted_at: Timestamp) -> TransferState {
        match (self.kind.begins_together(), self.staging) {
            (false, _) => TransferState::NotUsed,
            (true, None) => TransferState::submitted(),
            (true, Some(_)) => TransferState::staging(Recall::begun(submitted_at)),
        }
    }
}

impl Default for JobParameters {
    fn default() -> Self {
        JobParameters {
            kind: JobKind::Independent,
            verify_checksum: ChecksumMode::None,
            overwrite: Overwrite::Never,
            retries_max: None,
            retry_delay_seconds: None,
            priority: Priority::default(),
            timeout_seconds: None,
            strict_copy: false,
            disable_cleanup: false,
            report_existing: false,
            streams: None,
            buffer: None,
            ip_version: None,
            expires_at: None,
            s3_path_style: false,
            metadata: Value::Null,
            proxy: None,
            staging: None,
            archive_seconds: None,
            removes_source: false,
            source_space: None,
            destination_space: None,
            restored_at: None,
        }
    }
}

/// One accepted submission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its identity.
    pub id: JobId,
    /// Who submitted it.
    pub user: UserName,
    /// On whose behalf.
    pub vo: VoName,
    /// Names the submitter's identity, 16 hex digits (`cred_id`).
    pub delegation: CredentialId,
    /// When it was accepted.
    pub submitted_at: Timestamp,
    /// What holds for every file.
    pub parameters: JobParameters,
    /// The files, in the order of the submission.
    pub transfers: Vec<TransferRequest>,
}

/// One file to move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferRequest {
    /// Its identity; given by the engine, unique in the service.
    pub id: TransferId,
    /// Position in the submission (`file_index`).
    pub index: u32,
    pub source: FileUrl,
    /// Where it goes.
    pub destination: FileUrl,
    /// The size the user says it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// The checksum the user says it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// The algorithm to compare with, when no value was given.
    pub checksum_algorithm: ChecksumAlgorithm,
    /// Share label.
    pub activity: Activity,
    /// Marks the packets of this transfer for the networks it crosses (experiment and activity, 65..=65535).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scitag: Option<u16>,
    /// Whatever the client wants back, unchanged. One value for all pairs of a file.
    pub metadata: Arc<Value>,
    /// Token for the source. The token itself is stored apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_credential: Option<CredentialId>,
    /// Token for the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_credential: Option<CredentialId>,
    /// The query of the source's URL as it was submitted, when it holds credentials. It is stored apart, as tokens are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_query: Option<CredentialId>,
    /// The same of the destination's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_query: Option<CredentialId>,
    /// What tape systems are told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tape: Option<Arc<TapeNotes>>,
}

impl TransferRequest {
    /// The pair of storage elements between which it moves.
    pub fn link(&self) -> LinkId {
        LinkId {
            source: self.source.storage(),
            destination: self.destination.storage(),
        }
    }

    /// Where the file is at one end, and the token for it. Whatever is not the source's is the destination's.
    pub fn end(&self, side: Side) -> (&FileUrl, Option<&CredentialId>) {
        match side {
            Side::Source => (&self.source, self.source_credential.as_ref()),
            Side::Destination | Side::Network | Side::Service => {
                (&self.destination, self.destination_credential.as_ref())
            }
        }
    }

    /// Names the query with credentials that belongs to the URL of one end.
    pub fn query(&self, side: Side) -> Option<&CredentialId> {
        match side {
            Side::Source => self.source_query.as_ref(),
            Side::Destination | Side::Network | Side::Service => self.destination_query.as_ref(),
        }
    }

    /// What is stored apart by which its destination is reached.
    pub fn destination_secrets(&self) -> impl Iterator<Item = &CredentialId> {
        let both = [&self.destination_credential, &self.destination_query];
        both.into_iter().flatten()
    }

    /// The tokens for its ends.
    pub fn tokens(&self) -> impl Iterator<Item = &CredentialId> {
        let both = [&self.source_credential, &self.destination_credential];
        both.into_iter().flatten()
    }

    /// Whether its file is to be brought to disk and that is all.
    pub fn stays(&self) -> bool {
        self.source == self.destination
    }
}

/// A job's state, as FTS names them on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JobState {
    /// Nothing has started.
    Submitted,
    /// Nothing moves, and tape systems are bringing files to disk.
    Staging,
    /// Something moves, or has ended while something else has not.
    Active,
    /// All that has not ended has arrived and waits to be on tape.
    Archiving,
    /// Every file arrived.
    Finished,
    /// Some files arrived, some did not.
    FinishedDirty,
    /// Nothing arrived, at least one file failed.
    Failed,
    /// Nothing arrived, everything was canceled.
    Canceled,
}

impl JobState {
    /// All of them, in the order of a job's life.
    pub const ALL: [JobState; 8] = [
        JobState::Submitted,
        JobState::Staging,
        JobState::Active,
        JobState::Archiving,
        JobState::Finished,
        JobState::FinishedDirty,
        JobState::Failed,
        JobState::Canceled,
    ];

    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Submitted => "SUBMITTED",
            JobState::Staging => "STAGING",
            JobState::Active => "ACTIVE",
            JobState::Archiving => "ARCHIVING",
            JobState::Finished => "FINISHED",
            JobState::FinishedDirty => "FINISHEDDIRTY",
            JobState::Failed => "FAILED",
            JobState::Canceled => "CANCELED",
        }
    }

    /// True when it will never change again.
    pub fn is_terminal(self) -> bool {
        match self {
            JobState::Submitted | JobState::Staging | JobState::Active | JobState::Archiving => {
                false
            }
            JobState::Finished
            | JobState::FinishedDirty
            | JobState::Failed
            | JobState::Canceled => true,
        }
    }
}

/// Rolls the states of a job's transfers up into the job's state. Always consistent, because nothing else stores
/// it. An empty job (which submission refuses) counts as finished.
pub fn job_state<'a>(
    kind: JobKind,
    states: impl IntoIterator<Item = &'a TransferState>,
) -> JobState {
    let mut tally = JobTally::default();
    states.into_iter().for_each(|state| tally.add(state));
    tally.state(kind)
}

/// How many transfers of a job are in which state: the roll-up of a job that is followed event by event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobTally {
    unused: u32,
    waiting: u32,
    staging: u32,
    active: u32,
    archiving: u32,
    finished: u32,
    failed: u32,
    canceled: u32,
}

impl JobTally {
    /// Counts a transfer.
    pub fn add(&mut self, state: &TransferState) {
        *self.of(state) += 1;
    }

    /// Takes back what was added.
    pub fn remove(&mut self, state: &TransferState) {
        let count = self.of(state);
        *count = count.saturating_sub(1);
    }

    /// The job's state.
    pub fn state(&self, kind: JobKind) -> JobState {
        match kind {
            JobKind::Independent | JobKind::Session => self.independent(),
            JobKind::Replicas(_) => self.replicas(),
            JobKind::Hops => self.hops(),
        }
    }

    fn of(&mut self, state: &TransferState) -> &mut u32 {
        match state {
            TransferState::NotUsed => &mut self.unused,
            TransferState::Submitted { .. } => &mut self.waiting,
            TransferState::Staging { .. } | TransferState::Recalling { .. } => &mut self.staging,
            TransferState::Active { .. } => &mut self.active,
            TransferState::Archiving { .. } => &mut self.archiving,
            TransferState::Finished { .. } => &mut self.finished,
            TransferState::Failed { .. } => &mut self.failed,
            TransferState::Canceled { .. } => &mut self.canceled,
        }
    }

    /// Of a job that has not ended; `to_come` may begin yet.
    fn open(&self, to_come: u32) -> JobState {
        let ended = self.finished + self.failed + self.canceled;
        let on_the_way = self.waiting + self.staging + to_come;
        match (self.active, self.archiving, ended, on_the_way) {
            (0, 1.., _, 0) => JobState::Archiving,
            (0, 0, 0, _) if self.staging > 0 => JobState::Staging,
            (0, 0, 0, _) => JobState::Submitted,
            _ => JobState::Active,
        }
    }

    /// What has begun and not ended.
    fn going_on(&self) -> u32 {
        self.waiting + self.staging + self.active + self.archiving
    }

    fn independent(&self) -> JobState {
        if self.going_on() + self.unused > 0 {
            return self.open(self.unused);
        }
        match (self.finished, self.failed, self.canceled) {
            (_, 0, 0) => JobState::Finished,
            (0, 0, _) => JobState::Canceled,
            (0, _, _) => JobState::Failed,
            (_, _, _) => JobState::FinishedDirty,
        }
    }

    /// What was not needed, or failed before another one arrived, does not count.
    fn replicas(&self) -> JobState {
        match (self.finished, self.going_on(), self.failed, self.canceled) {
            (1.., ..) => JobState::Finished,
            (0, 1.., ..) => self.open(0),
            (0, 0, 1.., _) => JobState::Failed,
            (0, 0, 0, 1..) => JobState::Canceled,
            (0, 0, 0, 0) => JobState::Submitted,
        }
    }

    /// A hop that fails ends the job; those after it stay unused.
    fn hops(&self) -> JobState {
        match (self.failed, self.canceled, self.going_on() + self.unused) {
            (1.., ..) => JobState::Failed,
            (0, 1.., _) => JobState::Canceled,
            (0, 0, 1..) => self.open(self.unused),
            (0, 0, 0) => JobState::Finished,
        }
    }
}
