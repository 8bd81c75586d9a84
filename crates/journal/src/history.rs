//! What is to be removed of a journal because its time is over, what was, and how much there is.

use penstock_model::Timestamp;

/// What may go, and how much of it at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneStep {
    /// Jobs that ended before this time, as far as everybody who follows the ledger has taken their entries. `None`:
    /// none.
    pub ended_before: Option<Timestamp>,
    /// Up to here all who follow the ledger have taken it.
    pub taken_by_all: u64,
    /// Jobs that ended before this time go even if somebody has not taken their entries. `None`: none.
    pub ended_long_before: Option<Timestamp>,
    /// Samples of links before this time. `None`: none.
    pub samples_before: Option<Timestamp>,
    /// Samples of minutes before this time. `None`: none.
    pub minutes_before: Option<Timestamp>,
    /// Changes of settings and bans before this time. `None`: none.
    pub audit_before: Option<Timestamp>,
    /// Rows to remove, about. One transfer goes with all its entries, however many there are.
    pub rows_max: usize,
}

/// What a step has removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PruneReport {
    pub jobs: u64,
    pub transfers: u64,
    /// Entries of the ledger.
    pub entries: u64,
    /// Samples of links.
    pub samples: u64,
    /// Samples of minutes.
    pub minutes: u64,
    /// Changes of links, settings and bans.
    pub changes: u64,
    /// Jobs of which somebody had not taken all entries.
    pub untaken: u64,
    /// The latest end of a job among them.
    pub until: Option<Timestamp>,
    /// There may be more to remove.
    pub has_more: bool,
}

impl PruneReport {
    /// Rows of all kinds.
    pub fn rows(&self) -> u64 {
        self.jobs + self.transfers + self.entries + self.samples + self.minutes + self.changes
    }
}

/// What was removed since the journal was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrunedTotals {
    pub jobs: u64,
    pub transfers: u64,
    /// Entries of the ledger.
    pub entries: u64,
    /// Samples of links.
    pub samples: u64,
    /// Samples of minutes.
    pub minutes: u64,
    /// Of jobs that ended up to here not all are kept. `None`: nothing was removed.
    pub until: Option<Timestamp>,
}

/// A job that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldestEnded {
    pub at: Timestamp,
    /// Its last entry in the ledger is not later than this one.
    pub sequence: u64,
}

/// How much history there is. Each answer is a look-up; nothing is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistoryFacts {
    /// What it takes on the disk, with what was not yet written into place.
    pub size_bytes: u64,
    /// Room in it that is free, and filled before the file grows. `None`: the database does not say.
    pub free_bytes: Option<u64>,
    /// The last entry of the ledger; 0: none was ever made.
    pub sequence_last: u64,
    /// The first that is kept, with its time.
    pub entry_oldest: Option<(u64, Timestamp)>,
    /// The job that ended first, of those that are kept.
    pub ended_oldest: Option<OldestEnded>,
    /// The oldest sample of a link.
    pub sample_oldest: Option<Timestamp>,
    /// The oldest sample of a minute.
    pub minute_oldest: Option<Timestamp>,
    /// What was removed.
    pub pruned: PrunedTotals,
}
