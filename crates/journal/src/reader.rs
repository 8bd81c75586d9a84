//! What a journal answers. Every back end gives the same answers: the conformance suite holds them to it.

use crate::{FoundPage, HistoryFacts, JobName, JobRow, JournalError, TransferFilter, TransferRow};
use penstock_model::{
    Ban, BanChange, CredentialId, JobId, JobState, LedgerEntry, LinkChange, LinkId, LinkSample,
    MinuteSamples, SettingChange, StorageId, StoredToken, Timestamp, TransferId, TuningDecision,
    UserName, VoName,
};
use std::fmt;

/// Reads beside the writer, and sees whole transactions only. Calls block for microseconds to milliseconds; an async
/// task makes them on a thread for blocking work.
pub trait JournalReader: fmt::Debug + Send + Sync {
    /// One job; `None` when it is not known.
    fn job(&self, id: JobId) -> Result<Option<JobRow>, JournalError>;
    /// The transfers of a job in the order of the submission; empty when the job is not known.
    fn transfers(&self, job: JobId) -> Result<Vec<TransferRow>, JournalError>;
    /// Some transfers of a job in the order of the submission, from the one after `after` on: for jobs of any size.
    fn transfers_after(
        &self,
        job: JobId,
        after: TransferId,
        limit: usize,
    ) -> Result<Vec<TransferRow>, JournalError>;
    /// What one transfer asked for.
    fn transfer(&self, id: TransferId) -> Result<Option<TransferRow>, JournalError>;
    /// How many transfers of a job are in which state, by the states' names on the wire, in their order.
    fn state_counts(&self, job: JobId) -> Result<Vec<(String, u64)>, JournalError>;
    /// Jobs that fit a filter.
    fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, JournalError>;
    /// Transfers that fit a filter.
    fn find(&self, filter: &TransferFilter) -> Result<FoundPage, JournalError>;
    /// The different names of the latest jobs.
    fn recent_names(&self, name: JobName) -> Result<Vec<String>, JournalError>;
    /// The sequence number of the ledger's last entry; 0 when there is none.
    fn last_sequence(&self) -> Result<u64, JournalError>;
    /// The ledger after a sequence number, at most `limit` entries.
    fn entries_after(&self, sequence: u64, limit: usize) -> Result<Vec<LedgerEntry>, JournalError>;
    /// The ledger of one transfer, at most `limit` entries.
    fn entries_of(
        &self,
        transfer: TransferId,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, JournalError>;
    /// Samples with `from <= at < to`, oldest first.
    fn samples_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<LinkSample>, JournalError>;
    /// Minutes that begin in `from <= begin < to`, oldest first; of one minute there may be several parts.
    fn minutes_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<MinuteSamples>, JournalError>;
    /// What became of a link in `from <= at <= to`, oldest first; of more than `limit`, the latest.
    fn link_changes(
        &self,
        link: &LinkId,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Vec<LinkChange>, JournalError>;
    /// Decisions about the number of transfers, newest first.
    fn tunings(&self, filter: &TuningFilter) -> Result<Vec<TuningDecision>, JournalError>;
    /// The latest changes of settings, newest first, at most `limit`.
    fn setting_changes(&self, limit: usize) -> Result<Vec<SettingChange>, JournalError>;
    /// The bans that hold.
    fn bans(&self) -> Result<Vec<Ban>, JournalError>;
    /// The latest changes of bans, newest first, at most `limit`.
    fn ban_changes(&self, limit: usize) -> Result<Vec<BanChange>, JournalError>;
    /// How much history there is, and what was removed of it.
    fn history(&self) -> Result<HistoryFacts, JournalError>;
    /// The token stored under a name; `None` also when the reader was opened without keys.
    fn token(&self, id: &CredentialId) -> Result<Option<StoredToken>, JournalError>;
}

/// Which jobs a listing wants. `None` and empty mean: any.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Only jobs with open transfers, or also those that ended at or after `ended_since`.
    pub ended_since: Option<Timestamp>,
    /// States as on the wire.
    pub states: Vec<String>,
    /// Submitted by.
    pub user: Option<UserName>,
    /// On behalf of.
    pub vo: Option<VoName>,
    /// First source's storage element.
    pub source: Option<StorageId>,
    /// First destination's storage element.
    pub destination: Option<StorageId>,
    /// Identity of the submitter.
    pub delegation: Option<CredentialId>,
    /// At most this many, newest first.
    pub limit: usize,
}

impl JobFilter {
    /// Jobs in this state.
    pub fn wants(&self, state: JobState) -> bool {
        self.states.is_empty() || self.states.iter().any(|name| name == state.name())
    }

    /// Some of the states that are no end.
    pub fn wants_open(&self) -> bool {
        let open = [
            JobState::Submitted,
            JobState::Staging,
            JobState::Active,
            JobState::Archiving,
        ];
        open.into_iter().any(|state| self.wants(state))
    }
}

/// Which decisions about the number of transfers a question wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TuningFilter {
    pub source: Option<StorageId>,
    pub destination: Option<StorageId>,
    /// Of links only, not of storage elements.
    pub links_only: bool,
    /// At most.
    pub limit: usize,
}
