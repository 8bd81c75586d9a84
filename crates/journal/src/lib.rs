//! What a journal is: jobs, where each transfer stands, and the ledger of what happened to it; written by one, read by
//! many. The databases that keep one are elsewhere; here is the form that keeps it in memory.
//!
//! The writer appends records in one transaction at a time (the caller groups them); readers answer questions from
//! connections of their own and never disturb it. Nothing here selects which work to do.
#![forbid(unsafe_code)]

mod history;
mod memory;
mod reader;
mod rows;
mod search;

pub use history::{HistoryFacts, OldestEnded, PruneReport, PruneStep, PrunedTotals};
pub use memory::MemoryJournal;
pub use reader::{JobFilter, JournalReader, TuningFilter};
pub use rows::{FoundTransfer, JobRow, TapeTimes, TransferRow};
pub use search::{FoundPage, JobName, TransferFilter};

use penstock_model::{CredentialId, Epoch, Record, RestartFacts, StoredToken, UnfinishedJob};
use std::error::Error;

/// Why the journal could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The back end says so; a full disk arrives here.
    #[error("{why}")]
    Backend {
        /// What it says, with its name.
        why: Box<dyn Error + Send + Sync>,
        /// What helps.
        remedy: Remedy,
    },
    /// Another node leads: this one must write nothing more. It is no use to try again.
    #[error(
        "this node's turn to lead, epoch {epoch}, is over: the journal {database} belongs to epoch {current}"
    )]
    Deposed {
        /// The database's address.
        database: String,
        /// With which it was opened.
        epoch: Epoch,
        /// That of the leader there is now.
        current: Epoch,
    },
    /// What is there is not what this leader has left: it has to be read anew.
    #[error(
        "the journal {database} is not as this node left it: {detail}; the database has lost its last records, or \
         something else writes it"
    )]
    Overtaken {
        /// The database's address.
        database: String,
        /// What was found.
        detail: String,
    },
    /// A record has no form in which it could be stored.
    #[error("a record cannot be written into the journal {path}: {detail}")]
    Unstorable {
        /// The database.
        path: String,
        detail: String,
    },
    /// A stored value is not readable by this version.
    #[error("the journal {path} holds a {what} that this version cannot read: {detail}")]
    Corrupt {
        /// The database file.
        path: String,
        /// Which kind of value.
        what: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    #[error(
        "the journal {path} was written by a later version (schema {found}, this one knows {known}): upgrade"
    )]
    TooNew {
        /// The database file.
        path: String,
        /// Its schema.
        found: u32,
        /// The newest schema known here.
        known: u32,
    },
}

/// What helps when the journal cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Time: the same may succeed a while later.
    Wait,
    /// Reading what is there now, by whoever leads then.
    ReadAnew,
    /// Leaving out the record that is not taken: the others may be.
    LeaveOut,
    /// Only a person.
    Repair,
}

impl JournalError {
    /// The database is away or busy: the same may succeed a while later, when nothing else is done about it.
    pub fn may_pass(&self) -> bool {
        self.remedy() == Remedy::Wait
    }

    /// What helps.
    pub fn remedy(&self) -> Remedy {
        match self {
            JournalError::Backend { remedy, .. } => *remedy,
            JournalError::Unstorable { .. } => Remedy::LeaveOut,
            JournalError::Deposed { .. } | JournalError::Overtaken { .. } => Remedy::ReadAnew,
            JournalError::Corrupt { .. } | JournalError::TooNew { .. } => Remedy::Repair,
        }
    }
}

/// Where an engine persists before it acts. One owner; [`Journal::append`] is all or nothing.
pub trait Journal: Send {
    /// Stores the records durably in one transaction and returns the ledger's last sequence number.
    fn append(&mut self, records: &[Record]) -> Result<u64, JournalError>;
    /// Seals some secrets with the newest key that another one had sealed. True when a pass over all of them has
    /// ended; the next call begins another.
    fn seal_some_anew(&mut self) -> Result<bool, JournalError>;
    /// Removes some of what may go, in one short transaction: what it had removed after a loss of power may be there
    /// again, and goes anew. Never touches what is open, and gives no number free.
    fn prune(&mut self, step: &PruneStep) -> Result<PruneReport, JournalError>;
    /// What holds for all jobs: settings, bans, numbers that are taken.
    fn load_standing(&mut self) -> Result<RestartFacts, JournalError>;
    /// Hands over every job that has not ended, one after the other, the oldest first: there may be more than fit into
    /// memory in this form.
    fn load_unfinished(&mut self, take: &mut dyn FnMut(UnfinishedJob)) -> Result<(), JournalError>;
    /// The token stored under a name; `None` when there is none (or no more).
    fn token(&mut self, id: &CredentialId) -> Result<Option<StoredToken>, JournalError>;
}
