//! What a door and a pool say to each other about one write: which pool takes the file, its opening, its end, and what
//! came of it. Beside these, `mover` has the request for a slot, `uploads` the form of an upload, `write_error` what
//! goes wrong.
//!
//! Plain values only, without a handle of this process and without the namespace: a pool may be served by another
//! process one day, and nothing here would change. What answers them in this process is `storage::pool_side`. The bytes
//! themselves are handed over without a copy, see `docs/decisions/0015-messages-to-pools.md`.

use crate::config::TapeTerms;
use crate::uploads::Plan;
use penstock_decide::admission::Requester;
use penstock_decide::pool_selection::PoolReason;
use penstock_model::{Bytes, Checksum, ChecksumAlgorithm, NamespacePath, PoolName, UserName};
use penstock_persistence::namespace::{EntryId, Replace, RequestOrigin};
use serde::{Deserialize, Serialize};

/// Asks which pool takes a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlacementQuery {
    /// `None`: not known yet.
    pub size: Option<u64>,
    pub requester: Requester,
}

/// The pool that takes it, and why. Promises nothing: space is promised as the bytes come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolChoice {
    pub pool: PoolName,
    pub because: Vec<PoolReason>,
}

/// Begins to write a file. The path is claimed, and locks were looked at, by whoever sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenWrite {
    pub write: WriteCapability,
    pub path: NamespacePath,
    /// The directory that will hold it, for its label; `None`: it is made with the file.
    pub parent: Option<EntryId>,
    pub owner: Option<UserName>,
    /// What the ledger tells of the request.
    pub origin: RequestOrigin,
    pub replace: Replace,
    /// Bytes, when announced. Another number is an error.
    pub size: Option<u64>,
    pub algorithms: Vec<ChecksumAlgorithm>,
    /// The entry whose properties it gets; `None`: it keeps those of the file that it replaces.
    pub properties_of: Option<EntryId>,
    pub tape: TapeTerms,
}

/// Names one write at its pool: who has it may append to the file, finish it and give it up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriteCapability {
    pub pool: PoolName,
    /// The file's id, which is given once.
    pub file: EntryId,
}

/// All bytes have come: makes the file durable and visible, if these are its checksums.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FinishWrite {
    pub expected: Vec<Checksum>,
}

/// Begins an upload in several requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BeginUpload {
    pub plan: Plan,
    pub pool: PoolName,
}

/// All bytes of an upload have come: makes a file of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FinishUpload {
    pub write: WriteCapability,
    pub parent: Option<EntryId>,
    /// What the ledger tells of the request that ends it.
    pub origin: RequestOrigin,
    pub replace: Replace,
    /// Computed of the whole file.
    pub algorithms: Vec<ChecksumAlgorithm>,
    /// Which values those must have, beside the planned ones.
    pub expected: Vec<Checksum>,
    pub tape: TapeTerms,
}

/// A file that is durable and visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredFile {
    pub id: EntryId,
    pub size: Bytes,
    pub writes: DiskWriteCounts,
    pub checksums: Vec<Checksum>,
    /// It took the place of something.
    pub replaced: bool,
    pub write_us: u64,
    pub checksum_us: u64,
    pub commit_us: u64,
}

/// How a file was written: disks like it in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct DiskWriteCounts {
    pub count: u64,
    /// Those that did not begin where the one before ended.
    pub elsewhere: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TapeSizes;
    use crate::mover::{MoverRequest, PoolQueueFull};
    use crate::write_error::{CommitError, WriteError};
    use penstock_decide::admission::AdmissionReason;
    use penstock_decide::pool_selection::PlacementRefusal;
    use penstock_persistence::namespace::{ArchiveWord, ChangeRefusal, MoverKind};
    use serde::de::DeserializeOwned;
    use std::fmt::Debug;
    use std::time::Duration;

    fn crosses<T: Serialize + DeserializeOwned + PartialEq + Debug>(message: T) {
        let bytes = serde_json::to_vec(&message).expect("a plain value");
        let come: T = serde_json::from_slice(&bytes).expect("the same form");
        assert_eq!(come, message);
    }

    fn path() -> NamespacePath {
        NamespacePath::parse("/d/f").expect("valid")
    }

    fn sum() -> Checksum {
        Checksum::parse("adler32:11e60398").expect("valid")
    }

    fn write() -> WriteCapability {
        WriteCapability {
            pool: PoolName::new("p1"),
            file: EntryId(7),
        }
    }

    fn origin() -> RequestOrigin {
        RequestOrigin {
            user: Some(UserName::new("alice")),
            client: Some("127.0.0.1:1".to_owned()),
            ..RequestOrigin::default()
        }
    }

    fn requester() -> Requester {
        Requester {
            vo: None,
            user: Some(UserName::new("https://issuer.example.org alice")),
            address: std::net::Ipv4Addr::LOCALHOST.into(),
        }
    }

    #[test]
    fn each_request_to_a_pool_crosses_a_wire() {
        crosses(PlacementQuery {
            size: Some(1),
            requester: requester(),
        });
        crosses(MoverRequest {
            kind: MoverKind::Put,
            path: path(),
            peer: "127.0.0.1:1".to_owned(),
            copy: Some("7-1".to_owned()),
            challenge: Some("scitag:66".to_owned()),
            file_size: Some(penstock_model::Bytes(3)),
            user: Some(UserName::new("alice")),
            requester: requester(),
            pool: PoolName::new("p1"),
            selection: serde_json::json!([{"reason": "least_loaded"}]),
        });
        for replace in [
            Replace::Allowed,
            Replace::Refused,
            Replace::Only(EntryId(3)),
            Replace::Tree(20),
        ] {
            crosses(OpenWrite {
                write: write(),
                path: path(),
                parent: Some(EntryId(2)),
                owner: Some(UserName::new("alice")),
                origin: origin(),
                replace,
                size: None,
                algorithms: vec![ChecksumAlgorithm::Adler32],
                properties_of: Some(EntryId(1)),
                tape: TapeTerms {
                    sizes: TapeSizes(vec![(Bytes(1), Bytes(9))]),
                    word: ArchiveWord {
                        metadata: Some("{}".to_owned()),
                        submission: Some("7".to_owned()),
                        challenge: None,
                    },
                },
            });
        }
        crosses(FinishWrite {
            expected: vec![sum()],
        });
        crosses(BeginUpload {
            plan: Plan {
                path: path(),
                user: Some(UserName::new("alice")),
                holder: None,
                macaroon: None,
                length: Some(10),
                must_be_absent: true,
                only: Some(EntryId(3)),
                expected: vec![sum()],
            },
            pool: PoolName::new("p1"),
        });
        crosses(FinishUpload {
            write: write(),
            parent: None,
            origin: origin(),
            replace: Replace::Allowed,
            algorithms: vec![ChecksumAlgorithm::Adler32],
            expected: vec![sum()],
            tape: TapeTerms::default(),
        });
    }

    #[test]
    fn each_answer_of_a_pool_crosses_a_wire() {
        crosses(PoolChoice {
            pool: PoolName::new("p1"),
            because: Vec::new(),
        });
        crosses(PlacementRefusal::NoSpace);
        crosses(PoolQueueFull {
            pool: PoolName::new("p1"),
            reason: AdmissionReason::QueueFull {
                queued: 1,
                queue_max: 1,
            },
            retry_after_seconds: 5,
        });
        crosses(write());
        crosses(StoredFile {
            id: EntryId(7),
            size: Bytes(10),
            writes: DiskWriteCounts {
                count: 2,
                elsewhere: 1,
            },
            checksums: vec![sum()],
            replaced: true,
            write_us: 1,
            checksum_us: 2,
            commit_us: 3,
        });
        let pool = || PoolName::new("p1");
        let why = || "as the disk says".to_owned();
        let after = Duration::from_secs(60);
        for error in [
            WriteError::NoSpace { pool: pool() },
            WriteError::Disk {
                pool: pool(),
                why: why(),
            },
            WriteError::DiskStalled {
                pool: pool(),
                after,
            },
            WriteError::PoolFailing { pool: pool() },
            WriteError::Unanswered { after },
            WriteError::ChecksumMismatch {
                expected: sum(),
                got: sum(),
            },
            WriteError::ChecksumUnavailable(ChecksumAlgorithm::Adler32),
            WriteError::WrongSize {
                expected: 1,
                got: 2,
            },
            WriteError::Commit(CommitError::Refused(ChangeRefusal::Exists(path()))),
            WriteError::Commit(CommitError::Later(why())),
            WriteError::Commit(CommitError::DiskFull(why())),
            WriteError::Commit(CommitError::Failed(why())),
            WriteError::BeingWritten(path()),
            WriteError::Stopping,
        ] {
            crosses(error);
        }
    }
}
