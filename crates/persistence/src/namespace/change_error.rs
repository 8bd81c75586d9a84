//! Why a change of the namespace is not made.

use super::EntryId;
use crate::journal::remedy_of_sqlite;
use penstock_journal::Remedy;
use penstock_model::{NamespacePath, PATH_BYTES_MAX};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thiserror::Error;

/// Properties that one entry may have.
pub const PROPERTIES_MAX: usize = 64;
/// Bytes that all properties of one entry may have together, names included.
pub const PROPERTIES_BYTES_MAX: usize = 64 * 1024;

/// Why the tree does not allow a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum ChangeRefusal {
    /// The destination exists and may not be replaced.
    #[error("{0} exists")]
    Exists(NamespacePath),
    /// Another entry than the expected one stands there, or none.
    #[error("{0} has changed since the request began")]
    Changed(NamespacePath),
    /// A file was expected, a directory stands there.
    #[error("{0} is a directory")]
    IsDirectory(NamespacePath),
    /// Nothing stands there.
    #[error("{0} does not exist")]
    NotFound(NamespacePath),
    /// It is not in the trash, or no longer.
    #[error("file {0} is not in the trash")]
    NotTrash(EntryId),
    /// It is not on tape, or pinned, or its data is still being removed.
    #[error(
        "the copy on disk of file {0} must stay as it is: it is not on tape, pinned, or just being removed"
    )]
    KeptOnDisk(EntryId),
    /// More stage requests than one user may have.
    #[error(
        "you have {0} stage requests, and too few of them are over; release files that are no longer needed, or ask later"
    )]
    TooManyStages(i64),
    /// Nothing is to be brought from tape to there.
    #[error("file {0} is gone, or on disk in another pool")]
    CopyElsewhere(EntryId),
    /// The tape system names two files alike.
    #[error("the copy {uri} on tape is that of file {other}; no other file can have it")]
    CopyOfAnother { uri: String, other: EntryId },
    /// They name more than those of one user may.
    #[error(
        "your stage requests name {files} files in {mebibytes} MiB, and too few of them are over; release files that are no \
         longer needed, or ask later"
    )]
    TooManyStagedFiles {
        /// Those that are kept.
        files: i64,
        mebibytes: i64,
    },
    /// The directory that should hold it does not exist.
    #[error("the directory {0} does not exist; make it first")]
    ParentMissing(NamespacePath),
    /// A file stands where a directory is needed.
    #[error("{0} is a file, so nothing can be below it")]
    ParentIsFile(NamespacePath),
    /// A directory cannot be moved into itself, and nothing onto itself.
    #[error("{0} cannot be moved onto or below itself")]
    IntoItself(NamespacePath),
    /// What is below could not be named any more.
    #[error(
        "a path below {0} would be longer than {PATH_BYTES_MAX} bytes; choose a shorter name, or first rename the entries below"
    )]
    TooLongBelow(NamespacePath),
    /// The root stays.
    #[error("the root directory can be neither removed nor moved nor replaced")]
    Root,
    /// More properties than one entry should have.
    #[error(
        "{0} would have more than {PROPERTIES_MAX} properties, or more than {PROPERTIES_BYTES_MAX} bytes of them; \
         remove some"
    )]
    TooManyProperties(NamespacePath),
    /// More entries than one transaction should remove.
    #[error("{path} has {entries_max} entries or more; remove its entries first")]
    TooManyEntries {
        /// The directory.
        path: NamespacePath,
        /// The bound.
        entries_max: usize,
    },
}

/// Why a change was not made. Nothing of it is stored then.
#[derive(Debug, Clone, Error)]
pub enum ChangeError {
    /// The tree does not allow it.
    #[error("{0}")]
    Refused(#[from] ChangeRefusal),
    /// Too many changes wait; try again.
    #[error("the namespace is overloaded; try again in some seconds")]
    Busy,
    /// The namespace is being closed.
    #[error("the namespace is closing; try again after the restart")]
    Stopped,
    /// SQLite failed, and nothing was stored.
    #[error("the namespace database failed: {0}; an operator must check its disk")]
    Database(Arc<rusqlite::Error>),
    /// A commit failed in a way that a restart may undo: whether this is stored is not known. Data that it speaks of
    /// must stay.
    #[error(
        "the namespace database failed in a commit, so it is not known whether the change was made: {0}; an operator \
         must check its disk; look before you try again"
    )]
    Doubtful(Arc<rusqlite::Error>),
    /// After such a commit no change is taken until the database works again.
    #[error(
        "the namespace database failed and takes no changes until its disk is in order; try again later"
    )]
    Unsettled,
}

impl ChangeError {
    /// The database's disk failed, so that other changes fare no better.
    pub(super) fn is_of_disk(&self) -> bool {
        match self {
            ChangeError::Database(error) => remedy_of_sqlite(error) == Remedy::Wait,
            ChangeError::Doubtful(_) | ChangeError::Unsettled => true,
            ChangeError::Refused(_) | ChangeError::Busy | ChangeError::Stopped => false,
        }
    }

    /// The database's own disk has no room left.
    pub fn is_disk_full(&self) -> bool {
        match self {
            ChangeError::Database(error) => {
                error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
            }
            ChangeError::Refused(_)
            | ChangeError::Busy
            | ChangeError::Stopped
            | ChangeError::Doubtful(_)
            | ChangeError::Unsettled => false,
        }
    }
}

impl From<rusqlite::Error> for ChangeError {
    fn from(error: rusqlite::Error) -> Self {
        ChangeError::Database(Arc::new(error))
    }
}
