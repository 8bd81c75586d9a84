//! Why a file could not be written. Nothing of it is left then. A plain value, which a pool can answer with from
//! another process: what the system or a database said is text here.

use crate::disk_full::is_no_space;
use penstock_model::{Checksum, ChecksumAlgorithm, NamespacePath, PoolName, TimeSpan};
use penstock_persistence::namespace::{ChangeError, ChangeRefusal};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use thiserror::Error;

/// Why a file could not be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
pub(crate) enum WriteError {
    /// The pool's disk or its configured capacity is used up.
    #[error("pool {pool} has no room for it; the partial file was removed")]
    NoSpace { pool: PoolName },
    /// The pool's disk failed.
    #[error("pool {pool} cannot write: {why}; the partial file was removed")]
    Disk { pool: PoolName, why: String },
    /// The pool's disk takes no bytes.
    #[error("pool {pool} took no byte for {}; the partial file was removed", TimeSpan(*after))]
    DiskStalled { pool: PoolName, after: Duration },
    /// The pool takes no bytes now.
    #[error("pool {pool} takes no bytes now; try again later")]
    PoolFailing { pool: PoolName },
    /// Nobody knows yet whether the file becomes visible.
    #[error(
        "the namespace did not answer for {}, so it is not known whether the file was written; look at it before you \
         send it again",
        TimeSpan(*after)
    )]
    Unanswered { after: Duration },
    /// The bytes that came are not the expected ones.
    #[error("checksum mismatch: expected {expected}, got {got}; the file was removed")]
    ChecksumMismatch { expected: Checksum, got: Checksum },
    /// The expected value cannot be compared.
    #[error(
        "this server cannot compute {0}, so the expected value could not be verified; the file was removed"
    )]
    ChecksumUnavailable(ChecksumAlgorithm),
    /// More or fewer bytes came than were announced.
    #[error("{got} bytes came where {expected} were announced; the partial file was removed")]
    WrongSize { expected: u64, got: u64 },
    /// The namespace did not take the entry.
    #[error("{0}")]
    Commit(CommitError),
    /// Somebody else is writing this path.
    #[error("{0} is being written by another client; try again when that write has ended")]
    BeingWritten(NamespacePath),
    /// The server stops.
    #[error("this server is stopping; try again later")]
    Stopping,
}

impl WriteError {
    /// What a disk's error means.
    pub(crate) fn of_io(pool: PoolName, source: io::Error) -> WriteError {
        match is_no_space(&source) {
            true => WriteError::NoSpace { pool },
            false => WriteError::Disk {
                pool,
                why: source.to_string(),
            },
        }
    }
}

/// Why the namespace did not make a change, by what helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
pub(crate) enum CommitError {
    /// Another request: the tree does not allow it.
    #[error("{0}")]
    Refused(ChangeRefusal),
    /// Time.
    #[error("{0}")]
    Later(String),
    /// Room on the disk of the namespace.
    #[error("{0}")]
    DiskFull(String),
    /// An operator.
    #[error("{0}")]
    Failed(String),
}

impl From<&ChangeError> for CommitError {
    fn from(error: &ChangeError) -> CommitError {
        match error {
            ChangeError::Refused(refusal) => CommitError::Refused(refusal.clone()),
            ChangeError::Busy | ChangeError::Stopped | ChangeError::Unsettled => {
                CommitError::Later(error.to_string())
            }
            ChangeError::Database(_) if error.is_disk_full() => {
                CommitError::DiskFull(error.to_string())
            }
            ChangeError::Database(_) | ChangeError::Doubtful(_) => {
                CommitError::Failed(error.to_string())
            }
        }
    }
}
