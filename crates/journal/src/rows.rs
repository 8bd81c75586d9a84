//! What readers get: jobs and transfers as they are stored.

use penstock_model::{
    Ban, CredentialId, JobId, JobParameters, JobState, StageRequestId, StorageId, Timestamp,
    TransferId, TransferRequest, TransferState, UserName, VoName,
};

/// A job without its transfers.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRow {
    /// Its identity.
    pub id: JobId,
    /// Who submitted it.
    pub user: UserName,
    /// On whose behalf.
    pub vo: VoName,
    /// Names the submitter's identity.
    pub delegation: CredentialId,
    /// When it was accepted.
    pub submitted_at: Timestamp,
    /// When its last transfer ended.
    pub finished_at: Option<Timestamp>,
    /// What holds for every file.
    pub parameters: JobParameters,
    /// Storage element of the first source.
    pub source: StorageId,
    /// Storage element of the first destination.
    pub destination: StorageId,
    /// The roll-up of its transfers, read in the same transaction.
    pub state: JobState,
    /// The failure that best explains a job that did not finish well.
    pub reason: Option<String>,
}

/// A transfer as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferRow {
    /// Its identity.
    pub id: TransferId,
    pub job: JobId,
    pub request: TransferRequest,
    /// Where it stands.
    pub state: TransferState,
    /// Size at the source, once an attempt has looked.
    pub size_bytes: Option<u64>,
    /// When its latest attempt started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// The issuer of a token of it has not yet given what the token is renewed with, for which it waits.
    pub awaits_token: bool,
    /// An end of it is banned, so that it waits if it has not begun. Readers do not look; see [`TransferRow::judge`].
    pub is_banned: bool,
    /// What its tape systems did.
    pub tape: TapeTimes,
}

impl TransferRow {
    /// FTS's word on the wire for where it stands.
    pub fn fts_state(&self) -> &'static str {
        match (&self.state, self.awaits_token, self.is_banned) {
            (TransferState::Submitted { .. }, true, _) => "TOKEN_PREP",
            (TransferState::Staging { .. }, true, _) => "TOKEN_PREP",
            (TransferState::Submitted { .. }, false, true) => "ON_HOLD",
            (TransferState::Staging { .. }, false, true) => "ON_HOLD_STAGING",
            (state, ..) => state.fts_name(),
        }
    }

    /// Looks whether bans concern it, as a transfer of this VO.
    pub fn judge(&mut self, bans: &[Ban], vo: &VoName) {
        if bans.is_empty() {
            self.is_banned = false;
            return;
        }
        let link = self.request.link();
        self.is_banned = bans.iter().any(|ban| match ban {
            Ban::Storage(ban) => ban.covers(&link.source, vo) || ban.covers(&link.destination, vo),
            Ban::User(_) => false,
        });
    }
}

/// When tape systems were at a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TapeTimes {
    /// The latest stage request that it was part of.
    pub request: Option<StageRequestId>,
    /// When that was accepted.
    pub staging_started_at: Option<Timestamp>,
    /// When the file was on disk, or was given up.
    pub staging_finished_at: Option<Timestamp>,
    /// When the copy had arrived that had to be put on tape.
    pub archiving_started_at: Option<Timestamp>,
    /// When it was on tape, or was given up.
    pub archiving_finished_at: Option<Timestamp>,
}

/// A transfer that was looked for, with what is needed of its job to show it.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundTransfer {
    pub transfer: TransferRow,
    /// Who submitted it.
    pub user: UserName,
    /// On whose behalf.
    pub vo: VoName,
    /// When its job was accepted.
    pub submitted_at: Timestamp,
    /// What holds for every file of its job.
    pub parameters: JobParameters,
}
