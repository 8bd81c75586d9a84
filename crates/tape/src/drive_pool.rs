//! The drives of a site, and what each is doing. Counts are taken from the drives themselves, so none can be wrong.

use crate::data_set::DataSetName;
use crate::request::{DriveName, FamilyName, FileId, LibraryName, TapeName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What a tape is in a drive for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MountPurpose {
    Recall,
    /// For files of this family.
    Archive(FamilyName),
}

impl MountPurpose {
    /// Whether files are written.
    pub fn is_archive(&self) -> bool {
        matches!(self, MountPurpose::Archive(_))
    }
}

/// What a drive with a tape is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriveWork {
    /// Nothing, since then.
    Idle {
        since_ns: i64,
    },
    Reading(FileId),
    Writing(FileId),
    /// Small files, as one object.
    WritingAggregate(Vec<FileId>),
    /// Makes durable what has been written.
    Syncing,
}

impl DriveWork {
    /// Files that are being written.
    pub fn members(&self) -> &[FileId] {
        match self {
            DriveWork::Writing(file) => std::slice::from_ref(file),
            DriveWork::WritingAggregate(members) => members,
            DriveWork::Idle { .. } | DriveWork::Reading(_) | DriveWork::Syncing => &[],
        }
    }
}

/// A tape in a drive, with all that was done since it came there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub tape: TapeName,
    pub purpose: MountPurpose,
    pub since_ns: i64,
    /// Where the head stands.
    pub head_bytes: u64,
    /// Whether it surely stands there: not after a failure.
    pub is_head_known: bool,
    pub work: DriveWork,
    /// Files that were read or written.
    pub files: u64,
    /// Files that were written and that no sync covers, in their order.
    pub unsynced: Vec<FileId>,
    pub unsynced_bytes: u64,
    /// With how many file marks: an aggregate has one.
    pub unsynced_marks: usize,
    /// The data set whose file was written last.
    pub data_set: Option<DataSetName>,
}

/// Where a drive stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriveState {
    Free,
    /// A tape is on its way into it.
    Mounting {
        tape: TapeName,
        purpose: MountPurpose,
        since_ns: i64,
    },
    Mounted(Mount),
    /// A tape is on its way out of it.
    Dismounting {
        tape: TapeName,
        since_ns: i64,
        /// What the tape was there for; older records do not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        purpose: Option<MountPurpose>,
    },
    /// Out of use, perhaps with a tape in it.
    Down {
        tape: Option<TapeName>,
        #[serde(default)]
        why: DownReason,
        /// What it did when it failed; older records do not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<DriveFault>,
    },
}

/// What a drive with a tape does, or the robot for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveActivity {
    Mount,
    Idle,
    Read,
    Write,
    Sync,
    Dismount,
}

/// How a drive failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveFault {
    pub activity: DriveActivity,
    /// It reported no error: it did nothing for too long.
    pub is_silent: bool,
}

/// Why a drive is out of use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DownReason {
    /// It did not do what it was told.
    #[default]
    Failed,
    /// An operator said so.
    Operator,
}

impl DriveState {
    /// What it does; `None` without a tape, and while it is down.
    pub fn activity(&self) -> Option<DriveActivity> {
        match self {
            DriveState::Free | DriveState::Down { .. } => None,
            DriveState::Mounting { .. } => Some(DriveActivity::Mount),
            DriveState::Dismounting { .. } => Some(DriveActivity::Dismount),
            DriveState::Mounted(mount) => Some(match mount.work {
                DriveWork::Idle { .. } => DriveActivity::Idle,
                DriveWork::Reading(_) => DriveActivity::Read,
                DriveWork::Writing(_) | DriveWork::WritingAggregate(_) => DriveActivity::Write,
                DriveWork::Syncing => DriveActivity::Sync,
            }),
        }
    }

    /// The tape that is in it, or on its way.
    pub fn tape(&self) -> Option<&TapeName> {
        match self {
            DriveState::Free => None,
            DriveState::Mounting { tape, .. } | DriveState::Dismounting { tape, .. } => Some(tape),
            DriveState::Mounted(mount) => Some(&mount.tape),
            DriveState::Down { tape, .. } => tape.as_ref(),
        }
    }

    /// What its tape is there for, if something is being done with it.
    pub fn purpose(&self) -> Option<&MountPurpose> {
        match self {
            DriveState::Mounting { purpose, .. } => Some(purpose),
            DriveState::Mounted(mount) => Some(&mount.purpose),
            DriveState::Free | DriveState::Dismounting { .. } | DriveState::Down { .. } => None,
        }
    }

    /// What it is not free for others for: until it is empty, what its tape was there for.
    pub fn occupied_for(&self) -> Option<&MountPurpose> {
        match self {
            DriveState::Dismounting { purpose, .. } => purpose.as_ref(),
            state => state.purpose(),
        }
    }
}

/// A drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    pub library: LibraryName,
    /// The name of its kind.
    pub kind: String,
    pub state: DriveState,
}

/// Drives of one library and kind: they take the same tapes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DriveClass {
    pub library: LibraryName,
    pub kind: String,
}

/// All drives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrivePool(pub BTreeMap<DriveName, Drive>);

impl DrivePool {
    /// Drives that can take a tape, by their class.
    pub fn free(&self) -> BTreeMap<DriveClass, Vec<DriveName>> {
        let mut free: BTreeMap<DriveClass, Vec<DriveName>> = BTreeMap::new();
        for (name, drive) in &self.0 {
            if drive.state == DriveState::Free {
                free.entry(drive.class()).or_default().push(name.clone());
            }
        }
        free
    }

    /// How many drives of each class are occupied with recalls, and how many with archiving.
    pub fn in_use(&self) -> BTreeMap<(DriveClass, bool), u32> {
        let mut in_use = BTreeMap::new();
        for drive in self.0.values() {
            if let Some(purpose) = drive.state.occupied_for() {
                *in_use
                    .entry((drive.class(), purpose.is_archive()))
                    .or_insert(0) += 1;
            }
        }
        in_use
    }

    /// Tapes that are in drives or on their way.
    pub fn tapes(&self) -> BTreeSet<&TapeName> {
        let states = self.0.values().map(|drive| &drive.state);
        states.filter_map(DriveState::tape).collect()
    }

    /// The drive in which a tape is.
    pub fn drive_of(&self, tape: &TapeName) -> Option<(&DriveName, &Drive)> {
        let mut drives = self.0.iter();
        drives.find(|(_, drive)| drive.state.tape() == Some(tape))
    }
}

impl Drive {
    /// Which tapes it takes.
    pub fn class(&self) -> DriveClass {
        DriveClass {
            library: self.library.clone(),
            kind: self.kind.clone(),
        }
    }
}
