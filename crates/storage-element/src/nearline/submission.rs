//! Stage requests as clients make them: who wants which files, and what is answered for each.

use super::Nearline;
use penstock_model::{Bytes, PoolName, StageRequestId, Timestamp, UserName, VoName};
use penstock_persistence::namespace::{
    EntryId, NewStageRequest, PinQuota, RequestedFile, StageProblem,
};
use std::sync::atomic::Ordering;
use std::time::Duration;
use uuid::Uuid;

/// One file that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SubmittedFile {
    pub path: String,
    /// The file, or why there is nothing to wait for.
    pub found: Result<EntryId, StageProblem>,
    /// How long it shall stay on disk; `None`: as the site thinks best.
    pub pin: Option<Duration>,
    /// What it is wanted for, in the words of whoever asks.
    pub activity: Option<String>,
}

/// Who asks for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Submission {
    pub user: Option<UserName>,
    pub vo: Option<VoName>,
    /// The data challenge or activity that it is part of.
    pub challenge: Option<String>,
    pub at: Timestamp,
    /// It is asked for somebody who reads a file.
    pub is_of_reader: bool,
    pub files: Vec<SubmittedFile>,
}

impl Nearline {
    /// The request as the namespace keeps it. Which of its files are on disk is found out there.
    pub(crate) fn stage_request(&self, submission: Submission) -> NewStageRequest {
        let requested = |file: SubmittedFile| RequestedFile {
            path: file.path,
            found: file.found,
            pin: file
                .pin
                .unwrap_or(self.config.pin_usual)
                .min(self.config.pin_max),
            activity: file.activity,
        };
        NewStageRequest {
            id: StageRequestId::new(Uuid::new_v4().to_string()),
            user: submission.user,
            vo: submission.vo,
            challenge: submission.challenge,
            at: submission.at,
            is_of_reader: submission.is_of_reader,
            quota: self.pin_quota(),
            pools_away: self.pools_away(),
            files: submission.files.into_iter().map(requested).collect(),
        }
    }

    fn pools_away(&self) -> Vec<PoolName> {
        let away = self.pools.values().filter(|pool| !pool.is_in_reach());
        away.map(|pool| pool.name.clone()).collect()
    }

    /// What users, VOs and all together may keep on disk: what is configured, else shares of the room for files on tape. What all
    /// may is never less than what the site gives to one.
    fn pin_quota(&self) -> PinQuota {
        let (user, vo) = (self.config.pins_user_max, self.config.pins_vo_max);
        let room = self.tape_room().0;
        let all = Bytes(room / 4 * 3);
        PinQuota {
            user: user.unwrap_or(Bytes(room / 4)),
            vo: vo.unwrap_or(Bytes(room / 2)),
            all: [user, vo].into_iter().flatten().fold(all, Bytes::max),
        }
    }

    /// What files on tape, and those that go there, take or may take on disk. Files that are on disk only leave it never, and are
    /// no part of it. Of a pool that is away, its room as it was known last.
    fn tape_room(&self) -> Bytes {
        let free = self.pools.values();
        let free = free.map(|pool| pool.view().available().0);
        let taken = self.tape_bytes_on_disk.load(Ordering::Relaxed);
        Bytes(free.fold(taken, u64::saturating_add))
    }
}
