//! What is told of the work of drives: their mounts, and their time by whom they worked for.

use penstock_model::Timestamp;
use penstock_tape::data_set::{HintSource, HintVerdict};
use penstock_tape::mount_account::MountPhase;
use serde::Serialize;
use std::collections::BTreeMap;

/// What drives did, for administrators.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DriveAccount {
    /// From when on mounts are counted, by their ends; `None`: all.
    pub from: Option<Timestamp>,
    pub until: Timestamp,
    /// By VO, activity, challenge and kind of drive.
    pub drive_times: Vec<DriveTimeStatus>,
    /// The last mounts of those, the newest first.
    pub mounts: Vec<MountStatus>,
    /// What was said of data sets that are done, and what that was worth.
    pub hints: Vec<HintVerdictStatus>,
}

/// What drives of one kind did for one user.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DriveTimeStatus {
    /// `None`: nobody's files were done.
    pub vo: Option<String>,
    pub activity: Option<String>,
    pub challenge: Option<String>,
    pub kind: String,
    pub mounts: u64,
    /// In the time of the library.
    pub occupied_ns: i64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// So many data sets of one source came to this.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HintVerdictStatus {
    pub source: HintSource,
    pub verdict: HintVerdict,
    pub data_sets: u64,
}

/// A tape that was in a drive, and what its time went to.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct MountStatus {
    pub drive: String,
    pub tape: String,
    pub library: String,
    pub kind: String,
    /// The family that was written; `None`: files were read.
    pub family: Option<String>,
    pub begin: Timestamp,
    pub end: Timestamp,
    /// In the time of the library.
    pub wall_ns: i64,
    /// They sum to `wall_ns`.
    pub phases_ns: BTreeMap<MountPhase, i64>,
    pub files: u64,
    /// Of files that were done.
    pub payload_bytes: u64,
    /// With what had to be moved again.
    pub moved_bytes: u64,
    /// Bytes of files in a second of all its time, and bytes in a second while the drive read or wrote.
    pub payload_rate: u64,
    pub drive_rate: u64,
    /// Bytes moved for a byte of a file; `None`: no file was done.
    pub amplification: Option<f64>,
    /// Mounts of the same tape that ended in the day before it.
    pub mounts_before: u64,
    /// By VO, those whose files were done.
    pub vos: BTreeMap<String, u64>,
}
