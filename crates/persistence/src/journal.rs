//! The transfer service's journal: jobs, where each transfer stands, and the ledger of what happened to it.
//!
//! The writer appends records in one transaction at a time (the caller groups them); readers answer questions from
//! connections of their own and never disturb it. Nothing here selects which work to do.

mod history;
mod memory;
mod postgres;
mod reader;
mod rows;
mod search;
mod sqlite;
mod tidyings;
mod tokens;
mod tunings;

pub use history::{HistoryFacts, OldestEnded, PruneStep, Pruned, PrunedTotals};
pub use memory::MemoryJournal;
pub(crate) use postgres::partitions;
pub use postgres::{PostgresJournal, PostgresReader};
pub use reader::{JobFilter, JournalReader, TuningFilter};
pub use rows::{FoundTransfer, JobRow, TapeTimes, TransferRow};
pub use search::{FoundPage, JobName, TransferFilter};
pub(crate) use sqlite::schema as sqlite_schema;
pub use sqlite::{SqliteJournal, SqliteReader};
pub use tidyings::Tidying;
pub use tokens::{JobToken, Renewal, RenewedToken, StoredToken};

use crate::postgres::DatabaseError;
use crate::sealing::SealingError;
use penstock_model::{
    Ban, BanChange, CredentialId, Epoch, Job, JobId, JobState, LinkChange, LinkSample, Priority,
    SettingChange, Settings, Timestamp, TransferEvent, TransferId, TransferRequest, TransferState,
    TuningDecision,
};
use std::collections::BTreeSet;
use thiserror::Error;

/// Numbers of transfers and of ledger entries that may have been given and are not known any more: after the return of a
/// backup, or where a database has lost its last commits. They are leapt over, so that none is given twice.
pub(crate) const LOST_NUMBERS_MAX: i64 = 1_000_000_000;

/// Something to persist. The journal stores records of one call in one transaction, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// A job was accepted, with the tokens that its transfers refer to. They are stored sealed.
    JobAccepted {
        /// The job with all its transfers.
        job: Box<Job>,
        /// Tokens that the transfers refer to.
        tokens: Vec<JobToken>,
    },
    /// Something happened to a transfer: a line of the ledger, and where the transfer stands from then on.
    Happened {
        /// Wall clock.
        at: Timestamp,
        /// Monotonic clock of this process, microseconds since it started.
        monotonic_us: u64,
        /// The job.
        job: JobId,
        /// The transfer.
        transfer: TransferId,
        /// What happened.
        event: TransferEvent,
        /// The state that `advance` made of it.
        state: TransferState,
    },
    /// The last open transfer of a job ended. `state` is the roll-up of its transfers. Tokens that no open job
    /// refers to any more are gone.
    JobEnded {
        /// The job.
        job: JobId,
        /// When.
        at: Timestamp,
        /// How it ended.
        state: JobState,
    },
    /// An issuer gave something newer for a token.
    TokenRenewed {
        /// Under which name transfers refer to it.
        id: CredentialId,
        /// What it gave.
        renewed: RenewedToken,
    },
    /// A job that has not ended got another priority.
    Reprioritised {
        /// The job.
        job: JobId,
        /// The new priority.
        priority: Priority,
    },
    /// An operator changed a setting.
    Configured(Box<SettingChange>),
    /// A ban was imposed, changed or lifted.
    Banned(Box<BanChange>),
    /// A link was halted, tried or opened again.
    LinkChanged(Box<LinkChange>),
    /// How many transfers run on a link, or at a storage element, was decided anew.
    Tuned(Box<TuningDecision>),
    /// A transfer has ended, or is about to, and something has to be looked after at its destination. Takes the place
    /// of what was noted of the same transfer before.
    TidyingOwed(Box<Tidying>),
    /// That was done.
    TidiedUp {
        /// The transfer that had ended.
        transfer: TransferId,
    },
    /// What a link did in the last second.
    Sampled(LinkSample),
}

/// What a restart finds beside the jobs that have not ended.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    /// The highest transfer id ever given, also when that transfer is no longer kept.
    pub transfer_id_max: u64,
    /// What operators have set.
    pub settings: Settings,
    /// The bans that hold.
    pub bans: Vec<Ban>,
    /// The last decision about each link and storage element that was tuned.
    pub tunings: Vec<TuningDecision>,
    /// What has to be looked after at destinations of transfers that have ended, by transfer.
    pub tidyings: Vec<Tidying>,
    /// Tokens that are to be renewed, and for which their issuers have given nothing yet.
    pub tokens_awaited: BTreeSet<CredentialId>,
}

/// A job that has not ended, as a restart finds it.
#[derive(Debug, Clone, PartialEq)]
pub struct UnfinishedJob {
    /// The job; its `transfers` are the open ones only.
    pub job: Job,
    /// Where each of these stands, in their order.
    pub states: Vec<TransferState>,
    /// One state for each way in which others of it have ended.
    pub ended: Vec<TransferState>,
}

impl UnfinishedJob {
    /// Adds one of its transfers to the open ones, or its state to those that have ended.
    pub(crate) fn sort_in(&mut self, request: TransferRequest, state: TransferState) {
        match state.is_terminal() {
            true => self.add_ended(state),
            false => {
                self.job.transfers.push(request);
                self.states.push(state);
            }
        }
    }

    /// Adds a way in which some have ended, unless it is there.
    pub(crate) fn add_ended(&mut self, state: TransferState) {
        let name = state.fts_name();
        if self.ended.iter().all(|seen| seen.fts_name() != name) {
            self.ended.push(state);
        }
    }
}

/// Why the journal could not be read or written.
#[derive(Debug, Error)]
pub enum JournalError {
    /// SQLite says so; a full disk arrives here.
    #[error("the journal {path} cannot be used: {source}")]
    Sqlite {
        /// The database file.
        path: String,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// PostgreSQL, or the way to it.
    #[error(transparent)]
    Database(#[from] DatabaseError),
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
        /// Why.
        detail: String,
    },
    /// A secret was sealed with a key that this process does not have (yet).
    #[error("a {what} in the journal {path} cannot be opened: {source}")]
    Sealed {
        /// The database.
        path: String,
        /// Which kind of secret.
        what: &'static str,
        /// Why.
        #[source]
        source: SealingError,
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
    /// Written by a later version.
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
            JournalError::Database(DatabaseError::Unacceptable { .. })
            | JournalError::Unstorable { .. } => Remedy::LeaveOut,
            JournalError::Database(error) if error.may_pass() => Remedy::Wait,
            JournalError::Sqlite { source, .. } => remedy_of_sqlite(source),
            JournalError::Deposed { .. } | JournalError::Overtaken { .. } => Remedy::ReadAnew,
            // Another node may have the key.
            JournalError::Sealed {
                source: SealingError::UnknownKey,
                ..
            } => Remedy::Wait,
            JournalError::Database(_)
            | JournalError::Sealed { .. }
            | JournalError::Corrupt { .. }
            | JournalError::TooNew { .. } => Remedy::Repair,
        }
    }
}

pub(crate) fn remedy_of_sqlite(error: &rusqlite::Error) -> Remedy {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::CannotOpen
            | ErrorCode::DiskFull
            | ErrorCode::ReadOnly
            | ErrorCode::OperationInterrupted
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::SchemaChanged,
        ) => Remedy::Wait,
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
            Remedy::LeaveOut
        }
        Some(_) => Remedy::Repair,
        // A value that SQLite was not even asked to take.
        None => match error {
            rusqlite::Error::ToSqlConversionFailure(_) => Remedy::LeaveOut,
            _ => Remedy::Repair,
        },
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
    fn prune(&mut self, step: &PruneStep) -> Result<Pruned, JournalError>;
    /// What holds for all jobs: settings, bans, numbers that are taken.
    fn load_standing(&mut self) -> Result<Standing, JournalError>;
    /// Hands over every job that has not ended, one after the other, the oldest first: there may be more than fit into
    /// memory in this form.
    fn load_unfinished(&mut self, take: &mut dyn FnMut(UnfinishedJob)) -> Result<(), JournalError>;
    /// The token stored under a name; `None` when there is none (or no more).
    fn token(&mut self, id: &CredentialId) -> Result<Option<StoredToken>, JournalError>;
}

#[cfg(test)]
mod conformance;

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn what_sqlite_says_is_final_only_when_time_cannot_help() {
        let check = |codes: &[i32], expected: Remedy| {
            for code in codes {
                let source = rusqlite::Error::SqliteFailure(ffi::Error::new(*code), None);
                let error = JournalError::Sqlite {
                    path: String::new(),
                    source,
                };
                assert_eq!(error.remedy(), expected, "code {code}: {error}");
                assert_eq!(error.may_pass(), expected == Remedy::Wait, "code {code}");
            }
        };
        let passing = [
            ffi::SQLITE_BUSY,
            ffi::SQLITE_BUSY_SNAPSHOT,
            ffi::SQLITE_LOCKED,
            ffi::SQLITE_IOERR,
            ffi::SQLITE_IOERR_READ,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_IOERR_SHORT_READ,
            ffi::SQLITE_NOMEM,
            ffi::SQLITE_CANTOPEN,
            ffi::SQLITE_FULL,
            ffi::SQLITE_READONLY,
            ffi::SQLITE_INTERRUPT,
            ffi::SQLITE_PROTOCOL,
            ffi::SQLITE_SCHEMA,
        ];
        check(&passing, Remedy::Wait);
        let of_the_record = [
            ffi::SQLITE_CONSTRAINT,
            ffi::SQLITE_CONSTRAINT_PRIMARYKEY,
            ffi::SQLITE_MISMATCH,
            ffi::SQLITE_TOOBIG,
        ];
        check(&of_the_record, Remedy::LeaveOut);
        let of_the_file = [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB, ffi::SQLITE_PERM];
        check(&of_the_file, Remedy::Repair);
        let missing = JournalError::Sqlite {
            path: String::new(),
            source: rusqlite::Error::QueryReturnedNoRows,
        };
        assert_eq!(missing.remedy(), Remedy::Repair);
    }
}
