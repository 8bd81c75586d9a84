//! What readers get: jobs and transfers as they are stored.

use penstock_model::{
    CredentialId, JobId, JobParameters, JobState, StorageId, Timestamp, TransferId,
    TransferRequest, TransferState, UserName, VoName,
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
    /// Its job.
    pub job: JobId,
    /// What was asked.
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
}

impl TransferRow {
    /// FTS's word on the wire for where it stands.
    pub fn fts_state(&self) -> &'static str {
        match (&self.state, self.awaits_token) {
            (TransferState::Submitted { .. }, true) => "TOKEN_PREP",
            (state, _) => state.fts_name(),
        }
    }
}

/// A transfer that was looked for, with what is needed of its job to show it.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundTransfer {
    /// The transfer.
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
