//! The transfer service's journal in SQLite and in PostgreSQL.

mod postgres;
mod rows;
mod search;
mod sqlite;
mod tidyings;
mod tokens;
mod tunings;

pub(crate) use postgres::partitions;
pub use postgres::{PostgresJournal, PostgresReader};
pub(crate) use sqlite::schema as sqlite_schema;
pub use sqlite::{SqliteJournal, SqliteReader, TakenMinutes};

use crate::postgres::DatabaseError;
use crate::sealing::SealingError;
use penstock_journal::{JournalError, Remedy};
use thiserror::Error;

/// Numbers of transfers and of ledger entries that may have been given and are not known any more: after the return of a
/// backup, or where a database has lost its last commits. They are leapt over, so that none is given twice.
pub(crate) const LOST_NUMBERS_MAX: i64 = 1_000_000_000;

/// What SQLite says, and of which file.
#[derive(Debug, Error)]
#[error("the journal {path} cannot be used: {why}")]
struct SqliteFailure {
    path: String,
    why: rusqlite::Error,
}

impl From<SqliteFailure> for JournalError {
    fn from(failure: SqliteFailure) -> JournalError {
        JournalError::Backend {
            remedy: remedy_of_sqlite(&failure.why),
            why: Box::new(failure),
        }
    }
}

impl From<DatabaseError> for JournalError {
    fn from(error: DatabaseError) -> JournalError {
        JournalError::Backend {
            remedy: match &error {
                DatabaseError::Unacceptable { .. } => Remedy::LeaveOut,
                error if error.may_pass() => Remedy::Wait,
                _ => Remedy::Repair,
            },
            why: Box::new(error),
        }
    }
}

/// A secret was sealed with a key that this process does not have (yet).
#[derive(Debug, Error)]
#[error("a {what} in the journal {journal} cannot be opened: {why}")]
struct SealedSecret {
    journal: String,
    what: &'static str,
    why: SealingError,
}

impl From<SealedSecret> for JournalError {
    fn from(sealed: SealedSecret) -> JournalError {
        JournalError::Backend {
            remedy: match sealed.why {
                // Another node may have the key.
                SealingError::UnknownKey => Remedy::Wait,
                _ => Remedy::Repair,
            },
            why: Box::new(sealed),
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
                let path = String::new();
                let error = JournalError::from(SqliteFailure { path, why: source });
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
        let missing = SqliteFailure {
            path: String::new(),
            why: rusqlite::Error::QueryReturnedNoRows,
        };
        assert_eq!(JournalError::from(missing).remedy(), Remedy::Repair);
    }
}
