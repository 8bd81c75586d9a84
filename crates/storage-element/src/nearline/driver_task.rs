//! What the driver and a tape system say to each other: what is asked for, what is to be done for it, and what has become of files.

use super::wording::WaitStatus;
use penstock_model::{Bytes, Timestamp};
use penstock_persistence::namespace::EntryId;
use penstock_tape::data_set::DataSet;
use penstock_tape::request::{ActivityName, ChallengeName, FamilyName, VoName as TapeVo};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// A file that is to be put on tape.
#[derive(Debug, Clone)]
pub(super) struct TapePut {
    pub file: EntryId,
    pub size: Bytes,
    pub family: FamilyName,
    pub vo: TapeVo,
    /// Each in another library.
    pub copies: u32,
    /// Whether it is written together with other small files, as one object.
    pub is_packed: bool,
    /// How long it waits for others at most; `None`: as long as it pays.
    pub wait_max: Option<Duration>,
    /// Files that it is to lie beside.
    pub data_set: Option<DataSet>,
    pub account: TapeAccount,
}

/// For what a file is read or written, for accounting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TapeAccount {
    pub activity: Option<ActivityName>,
    pub challenge: Option<ChallengeName>,
}

impl TapeAccount {
    pub(super) fn of(activity: Option<&str>, challenge: Option<&str>) -> TapeAccount {
        TapeAccount {
            activity: activity.map(|name| ActivityName(name.into())),
            challenge: challenge.map(|name| ChallengeName(name.into())),
        }
    }
}

/// A file that somebody waits for.
#[derive(Debug, Clone)]
pub(super) struct TapeGet {
    pub file: EntryId,
    pub size: Bytes,
    /// Its copies, as the tape system has named them.
    pub uris: Vec<String>,
    pub vo: TapeVo,
    pub account: TapeAccount,
}

/// What the driver does for a tape system, in this order.
#[derive(Debug)]
pub(super) enum DriverTask<Try, Work> {
    /// Records to be kept, before anything that follows is done.
    Persist(Vec<String>),
    /// Has the tape system do something, now that its records are kept.
    Begin(Work),
    /// Makes a place for a file on disk, and has it brought there.
    Bring(Try, EntryId),
    /// What was brought is to be looked at.
    Check(Try),
    /// Nothing more comes of it.
    Abandon(Try),
    Tell(TapeOutcome),
}

/// What has become of a file.
#[derive(Debug)]
pub(super) enum TapeOutcome {
    /// It is on tape, durably; one name for each copy.
    Archived { file: EntryId, uris: Vec<String> },
    /// It has a further copy on tape, durably.
    CopyMade {
        file: EntryId,
        /// As the tape system names it,
        uri: String,
        /// and the one in whose place it is.
        instead_of: Option<String>,
        /// It was on tape only before, and was brought for that.
        is_brought: bool,
    },
    /// Its copy on disk is not the file, or nobody can read it, and one on tape is good: that one is brought.
    DiskCopyDamaged(EntryId),
    /// A file of the trash had these copies, on a tape that is lost.
    LostInTrash { file: EntryId, uris: Vec<String> },
    /// It will not be brought, for what users are told.
    NotRecalled { file: EntryId, error: String },
    /// Nothing was done for it now: it is asked for again after a pause.
    Later(EntryId),
    /// Files of these sizes that are not brought now, since no pool took one that is no larger: they are asked for again after a pause.
    NoRoom {
        files: Vec<(EntryId, Bytes)>,
        lack: RoomLack,
    },
    /// These copies are not to be removed any more: they are gone from tape, or needed again.
    RemovalsEnded(Vec<String>),
}

impl TapeOutcome {
    /// The file that has a further copy.
    pub(super) fn copied_file(&self) -> Option<EntryId> {
        match self {
            TapeOutcome::CopyMade { file, .. } => Some(*file),
            TapeOutcome::Archived { .. }
            | TapeOutcome::DiskCopyDamaged(_)
            | TapeOutcome::LostInTrash { .. }
            | TapeOutcome::NotRecalled { .. }
            | TapeOutcome::Later(_)
            | TapeOutcome::NoRoom { .. }
            | TapeOutcome::RemovalsEnded(_) => None,
        }
    }
}

/// How a try to bring a file has ended.
#[derive(Debug)]
pub(super) enum RecallEnd {
    Brought,
    /// Other bytes than those of the file have come, for what users are told.
    WrongData(String),
    /// The disk, or the namespace.
    NotTaken(LocalError),
    /// Nobody needs it any more.
    Gone,
}

/// Why no pool takes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum RoomLack {
    #[error("no pool has room for it")]
    Full,
    /// Each is drained or disabled, or its disk fails.
    #[error("no pool takes files")]
    OutOfService,
}

/// What on this side keeps a file from being brought, put or removed now.
#[derive(Debug, Error)]
pub(super) enum LocalError {
    /// No pool takes it, nor any file as large.
    #[error("{0}")]
    NoRoom(RoomLack),
    #[error("as many files go to each pool with room for it as may")]
    PoolsBusy,
    #[error("its data of before is still being removed from its disk")]
    Removing,
    #[error("the pool of the file is out of service")]
    PoolAway,
    #[error("what comes from tape cannot be kept: {0}")]
    Disk(#[from] io::Error),
    #[error("the namespace cannot be asked: {0}")]
    Namespace(String),
}

/// What is known of a file that is to be brought.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecallOutlook {
    /// When it will be on disk.
    pub at: Option<Timestamp>,
    /// Why its tape is in no drive.
    pub waits_for: Option<Arc<WaitStatus>>,
}

/// What is known of all files that are to be brought.
pub(crate) type RecallOutlooks = BTreeMap<EntryId, RecallOutlook>;

/// Finds that out, which may take seconds.
pub(super) type Forecast = Box<dyn FnOnce() -> RecallOutlooks + Send>;
