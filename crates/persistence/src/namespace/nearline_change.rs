//! What may happen to files on tape, and to requests for them, as values.

use super::{DataSetJoin, EntryId, FileOnTape};
use penstock_model::{
    Bytes, NamespacePath, PoolName, ProblemCode, StageRequestId, Timestamp, UserName, VoName,
};
use std::time::Duration;

/// What may happen to files on tape.
#[derive(Debug, Clone, PartialEq)]
pub enum NearlineChange {
    /// It is decided to which data sets these files belong. A file that belongs to one stays in it.
    JoinDataSets {
        joins: Vec<DataSetJoin>,
        at: Timestamp,
    },
    /// The file is on tape, durably. When it is gone by now, its copies on tape are to be removed.
    Archived {
        file: EntryId,
        /// One for each copy, as the tape system names it.
        uris: Vec<String>,
        at: Timestamp,
    },
    /// A file that is on tape has a further copy there, durably. When it is gone by now, or the copy of before is, the new one is to be
    /// removed.
    CopyMade {
        file: EntryId,
        /// As the tape system names the new copy,
        uri: String,
        /// and the one in whose place it is; `None`: it is beside those that there are.
        instead_of: Option<String>,
        at: Timestamp,
    },
    /// Makes a file visible that is on tape and on no disk, and of which the namespace knew nothing any more. Refused when it knows
    /// it, or when another file has a copy of this name.
    ReenterOnTape {
        file: FileOnTape,
        /// Where. Nothing may stand there; missing parents are made.
        to: NamespacePath,
        at: Timestamp,
    },
    /// The copy on disk is no longer kept; its data becomes trash that is over its time. Refused with
    /// [`super::ChangeRefusal::KeptOnDisk`] unless the file is on tape, in this pool, and pinned by nobody.
    Evict {
        file: EntryId,
        pool: PoolName,
        at: Timestamp,
    },
    /// The data of the copy on disk is not there any more. Refused with [`super::ChangeRefusal::KeptOnDisk`] unless the file is on tape and
    /// in this pool. Whoever was told that it is on disk waits again.
    LoseDiskCopy {
        file: EntryId,
        pool: PoolName,
        at: Timestamp,
    },
    /// These copies are on a tape that is lost, and the file is in the trash: it has its other copies from now on, and without any it is put
    /// on tape anew when it is restored. Of a file that is not in the trash nothing is changed.
    LoseCopiesInTrash { file: EntryId, uris: Vec<String> },
    /// A copy on disk is there, durably. Ends the wait of all who asked for it.
    Recalled {
        file: EntryId,
        pool: PoolName,
        /// Where its copy on disk was while it came, in a pool that is away: that one counts no more from now on, and its data goes
        /// when the pool is back. `None`: it was on tape only. Refused with [`super::ChangeRefusal::CopyElsewhere`] when it is
        /// neither so.
        instead_of: Option<PoolName>,
        at: Timestamp,
    },
    /// The file will not come: whoever waits for it is told why.
    RecallFailed {
        file: EntryId,
        problem: StageProblem,
        at: Timestamp,
    },
    /// These are on disk, in pools that answer: whoever waits for them waits no more.
    OnDisk { files: Vec<EntryId>, at: Timestamp },
    /// Its recall has begun.
    RecallStarted { file: EntryId, at: Timestamp },
    /// Their recalls cannot begin yet: whoever waits for them is told what for.
    RecallDelayed {
        files: Vec<EntryId>,
        problem: StageProblem,
    },
    /// Somebody asks for files.
    Stage(NewStageRequest),
    /// Whoever asked no longer wants these files, by their numbers in the request; what is on disk is no longer pinned.
    ReleaseStaged {
        request: StageRequestId,
        files: Vec<u32>,
        at: Timestamp,
    },
    /// The same for all requests of a user that name these files. In parts: what is reported tells whether there is more.
    ReleaseOfUser {
        user: UserName,
        files: Vec<EntryId>,
        at: Timestamp,
    },
    /// Forgets a request, with all its pins. In parts: what is reported tells whether there is more.
    ForgetStage(StageRequestId),
    /// Ends pins whose time is over, and forgets requests that were made before, of which no file waits or is pinned any
    /// more. In parts: what is reported tells whether there is more.
    PruneStages { before: Timestamp, at: Timestamp },
    /// Adds records of whoever drives the tape system.
    AppendJournal(Vec<String>),
    /// Puts these in the place of all of them.
    ReplaceJournal(Vec<String>),
    /// These copies are gone from tape.
    ForgetRemovals(Vec<String>),
}

/// Rows of stage requests that one change looks after, so that others have their turn.
pub(super) const STAGE_ROWS_MAX: usize = 1_000;

impl NearlineChange {
    /// About how many rows it may change: how long it keeps others waiting.
    pub(super) fn weight(&self) -> usize {
        match self {
            NearlineChange::Stage(request) => request.files.len(),
            NearlineChange::ReleaseStaged { files, .. } => files.len(),
            NearlineChange::ReleaseOfUser { .. }
            | NearlineChange::ForgetStage(_)
            | NearlineChange::PruneStages { .. } => STAGE_ROWS_MAX,
            NearlineChange::AppendJournal(records) | NearlineChange::ReplaceJournal(records) => {
                records.len()
            }
            NearlineChange::ForgetRemovals(uris) => uris.len(),
            NearlineChange::OnDisk { files, .. } | NearlineChange::RecallDelayed { files, .. } => {
                files.len()
            }
            NearlineChange::JoinDataSets { joins, .. } => joins.len(),
            NearlineChange::Archived { .. }
            | NearlineChange::Evict { .. }
            | NearlineChange::LoseDiskCopy { .. }
            | NearlineChange::LoseCopiesInTrash { .. }
            | NearlineChange::CopyMade { .. }
            | NearlineChange::ReenterOnTape { .. }
            | NearlineChange::Recalled { .. }
            | NearlineChange::RecallFailed { .. }
            | NearlineChange::RecallStarted { .. } => 1,
        }
    }
}

/// How far a file of a stage request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageProgress {
    /// It waits for its turn.
    Waiting {
        /// When it began to be read, if a try was in vain, or its copy on disk was lost again.
        begun: Option<Timestamp>,
        /// Beside its turn.
        waits_for: Option<StageProblem>,
    },
    /// It is being read from tape.
    Started { at: Timestamp },
    /// It is on disk, or was.
    OnDisk {
        begun: Option<Timestamp>,
        since: Timestamp,
        /// `None`: it was let go, or its time is over.
        pinned_until: Option<Timestamp>,
    },
    /// It will not come.
    Failed {
        begun: Option<Timestamp>,
        problem: StageProblem,
        at: Timestamp,
    },
    /// Whoever asked no longer wanted it, and it was not on disk.
    Canceled {
        begun: Option<Timestamp>,
        at: Timestamp,
    },
}

/// One file of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedFile {
    /// As it was asked for.
    pub path: String,
    /// `None`: there is no such file, or nobody may have it on disk.
    pub entry: Option<EntryId>,
    /// How long it shall stay on disk.
    pub pin: Duration,
    pub progress: StageProgress,
    /// What it is wanted for, in the words of whoever asked.
    pub activity: Option<String>,
}

impl StagedFile {
    /// It waits, or its pin has not ended: it counts against what its user and its VO may keep on disk.
    pub(super) fn is_held(&self) -> bool {
        match &self.progress {
            StageProgress::Waiting { .. } | StageProgress::Started { .. } => true,
            StageProgress::OnDisk { pinned_until, .. } => pinned_until.is_some(),
            StageProgress::Failed { .. } | StageProgress::Canceled { .. } => false,
        }
    }
}

/// What is in the way of a file that somebody wants on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageProblem {
    pub code: ProblemCode,
    /// One sentence for whoever asked.
    pub text: String,
}

/// How many bytes stage requests may keep on disk, those that are still to come included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinQuota {
    /// Those of one user.
    pub user: Bytes,
    /// Those of all users of a VO together.
    pub vo: Bytes,
    /// Those of everybody.
    pub all: Bytes,
}

/// A request to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewStageRequest {
    pub id: StageRequestId,
    pub user: Option<UserName>,
    pub vo: Option<VoName>,
    /// The data challenge or activity that it is part of.
    pub challenge: Option<String>,
    pub at: Timestamp,
    /// It was made for somebody who reads a file. How many there are of those is bounded by their files only.
    pub is_of_reader: bool,
    /// Files beyond it fail.
    pub quota: PinQuota,
    /// Pools that do not answer: what they hold is waited for.
    pub pools_away: Vec<PoolName>,
    pub files: Vec<RequestedFile>,
}

/// One file of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedFile {
    /// As it is asked for.
    pub path: String,
    /// The file, or why there is nothing to wait for.
    pub found: Result<EntryId, StageProblem>,
    /// How long it shall stay on disk.
    pub pin: Duration,
    /// What it is wanted for, in the words of whoever asks.
    pub activity: Option<String>,
}
