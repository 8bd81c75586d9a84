//! Why an attempt did not succeed, in the terms that a retry decision and a person need.

use crate::checksum::Checksum;
use crate::problem::{Problem, ProblemCode, Retry, Side};
use crate::tape::Locality;
use crate::units::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// What a failure says something about. Only what concerns a storage element or the link says something about other
/// files as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Concern {
    /// This file, or what was asked for it: a path, a checksum, a file that is in the way.
    #[default]
    Request,
    /// What its user may do.
    Credential,
    /// The storage element at one end.
    StorageElement,
    /// The network between the ends, or their way to copy.
    Link,
    Service,
}

impl Concern {
    /// Whether other files on the same link may meet the same failure.
    pub fn is_shared(self) -> bool {
        match self {
            Concern::StorageElement | Concern::Link => true,
            Concern::Request | Concern::Credential | Concern::Service => false,
        }
    }
}

/// When in the life of an attempt it happened. Names as in FTS messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Looking at source and destination, before bytes move.
    Preparation,
    /// Moving bytes.
    Transfer,
    /// Verifying size and checksum afterwards.
    Finalization,
    /// In this service, outside any copy.
    Service,
    /// Bringing the file from tape to disk, before any copy.
    Staging,
    /// Waiting until the file is on tape, after the copy.
    Archiving,
}

/// POSIX error numbers (Linux values), because FTS clients match on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Errno(pub i32);

impl Errno {
    pub const EPERM: Errno = Errno(1);
    pub const ENOENT: Errno = Errno(2);
    pub const EIO: Errno = Errno(5);
    pub const E2BIG: Errno = Errno(7);
    pub const EAGAIN: Errno = Errno(11);
    pub const EACCES: Errno = Errno(13);
    pub const EFAULT: Errno = Errno(14);
    pub const EEXIST: Errno = Errno(17);
    pub const ENOTDIR: Errno = Errno(20);
    pub const EISDIR: Errno = Errno(21);
    pub const EINVAL: Errno = Errno(22);
    pub const EFBIG: Errno = Errno(27);
    pub const ENOSPC: Errno = Errno(28);
    pub const EROFS: Errno = Errno(30);
    pub const ENAMETOOLONG: Errno = Errno(36);
    pub const ENOSYS: Errno = Errno(38);
    pub const ELOOP: Errno = Errno(40);
    pub const ECOMM: Errno = Errno(70);
    pub const EPROTONOSUPPORT: Errno = Errno(93);
    pub const EOPNOTSUPP: Errno = Errno(95);
    pub const ENETUNREACH: Errno = Errno(101);
    pub const ETIMEDOUT: Errno = Errno(110);
    pub const ECONNREFUSED: Errno = Errno(111);
    pub const EHOSTDOWN: Errno = Errno(112);
    pub const EHOSTUNREACH: Errno = Errno(113);
    pub const ECANCELED: Errno = Errno(125);
}

impl Errno {
    /// Its symbol in POSIX, for those that this service gives.
    pub fn name(self) -> Option<&'static str> {
        let name = match self {
            Errno::EPERM => "EPERM",
            Errno::ENOENT => "ENOENT",
            Errno::EIO => "EIO",
            Errno::E2BIG => "E2BIG",
            Errno::EAGAIN => "EAGAIN",
            Errno::EACCES => "EACCES",
            Errno::EFAULT => "EFAULT",
            Errno::EEXIST => "EEXIST",
            Errno::ENOTDIR => "ENOTDIR",
            Errno::EISDIR => "EISDIR",
            Errno::EINVAL => "EINVAL",
            Errno::EFBIG => "EFBIG",
            Errno::ENOSPC => "ENOSPC",
            Errno::EROFS => "EROFS",
            Errno::ENAMETOOLONG => "ENAMETOOLONG",
            Errno::ENOSYS => "ENOSYS",
            Errno::ELOOP => "ELOOP",
            Errno::ECOMM => "ECOMM",
            Errno::EPROTONOSUPPORT => "EPROTONOSUPPORT",
            Errno::EOPNOTSUPP => "EOPNOTSUPP",
            Errno::ETIMEDOUT => "ETIMEDOUT",
            Errno::ECONNREFUSED => "ECONNREFUSED",
            Errno::ECANCELED => "ECANCELED",
            _ => return None,
        };
        Some(name)
    }

    /// The cause that it comes nearest to, at this side and in this phase of an attempt.
    pub fn problem_code(self, side: Side, phase: Phase) -> ProblemCode {
        match self {
            Errno::EPERM | Errno::EACCES | Errno::EROFS => ProblemCode::PermissionDenied,
            Errno::ENOENT => ProblemCode::PathNotFound,
            Errno::EEXIST => ProblemCode::PathExists,
            Errno::ENOTDIR => ProblemCode::ParentIsFile,
            Errno::EISDIR => ProblemCode::PathIsDirectory,
            Errno::EINVAL | Errno::E2BIG | Errno::EFBIG | Errno::ENAMETOOLONG => {
                ProblemCode::RequestMalformed
            }
            Errno::ENOSPC => ProblemCode::PoolFull,
            Errno::ENOSYS | Errno::EPROTONOSUPPORT | Errno::EOPNOTSUPP => match phase {
                Phase::Staging | Phase::Archiving => ProblemCode::TapeUnsupported,
                Phase::Preparation | Phase::Transfer | Phase::Finalization | Phase::Service => {
                    ProblemCode::FeatureUnsupported
                }
            },
            Errno::ELOOP => ProblemCode::RedirectsTooMany,
            Errno::EAGAIN => ProblemCode::PeerBusy,
            Errno::ECANCELED => ProblemCode::TransferCanceled,
            Errno::ECONNREFUSED => ProblemCode::ConnectionRefused,
            Errno::ETIMEDOUT => match phase {
                Phase::Staging => ProblemCode::TapeTimeout,
                Phase::Archiving => ProblemCode::ArchiveTimeout,
                Phase::Service => ProblemCode::QueueTimeout,
                Phase::Preparation | Phase::Transfer | Phase::Finalization => {
                    ProblemCode::ConnectionTimeout
                }
            },
            Errno::ECOMM if side != Side::Service => ProblemCode::ConnectionBroken,
            // EIO, and what libraries give beyond the list of this file.
            _ => match (side, phase) {
                (Side::Service, _) => ProblemCode::InternalError,
                (_, Phase::Staging | Phase::Archiving) => ProblemCode::TapeFailed,
                (Side::Network, _) => ProblemCode::CopyFailed,
                (Side::Source | Side::Destination, _) => ProblemCode::PeerFailed,
            },
        }
    }
}

/// Why an attempt did not succeed. `detail` is one line for people: what happened, to which thing, what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Where the fault lies.
    pub side: Side,
    /// Whether trying again can help.
    pub retry: Retry,
    /// What it says something about. Records of earlier versions do not tell.
    #[serde(default)]
    pub concern: Concern,
    pub phase: Phase,
    /// The POSIX error that comes nearest.
    pub errno: Errno,
    /// One line for people. Never holds a secret.
    pub detail: String,
    /// The file that was in the way, when the job asked to be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Box<FoundFile>>,
    /// A storage element said that it has too much to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Busy>,
    /// The cause, where more is known of it than the rest tells. Records of earlier versions have none; a name of a
    /// later version is passed over.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known_code"
    )]
    pub code: Option<ProblemCode>,
}

/// Nodes of two versions read each other's records.
fn known_code<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<ProblemCode>, D::Error> {
    let name = Option::<String>::deserialize(reader)?;
    Ok(name.as_deref().and_then(ProblemCode::by_name))
}

/// A storage element has too much to do and wants to be left alone for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy {
    /// Which end.
    pub by: Side,
    /// For how long (`Retry-After`).
    pub seconds: u32,
}

/// A file at a destination, as its storage element tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    pub size: Option<Bytes>,
    pub checksum: Option<Checksum>,
    /// Where it is, when its storage element has tape and tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,
}

/// What failures have in common when they have one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FailureKind {
    /// Where the fault lies.
    pub side: Side,
    pub phase: Phase,
    /// The POSIX error that comes nearest.
    pub errno: Errno,
}

impl Failure {
    /// What it has in common with others of its kind.
    pub fn kind(&self) -> FailureKind {
        FailureKind {
            side: self.side,
            phase: self.phase,
            errno: self.errno,
        }
    }

    /// The cause: as it was told, else what side, phase and error number come nearest to.
    pub fn code(&self) -> ProblemCode {
        self.code
            .unwrap_or_else(|| self.errno.problem_code(self.side, self.phase))
    }

    /// The same towards users. The sentence is FTS's detail without its scope and number.
    pub fn problem(&self) -> Problem {
        Problem {
            side: self.side,
            retry: self.retry,
            ..Problem::new(self.code(), self.detail.clone())
        }
    }
}

impl fmt::Display for Failure {
    /// FTS's form, `SCOPE [errno] text`, which clients match on. What happens around tape has scopes of its own.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = match self.phase {
            Phase::Staging => "STAGING",
            Phase::Archiving => "ARCHIVING",
            Phase::Preparation | Phase::Transfer | Phase::Finalization | Phase::Service => {
                self.side.fts_scope()
            }
        };
        write!(out, "{scope} [{}] {}", self.errno.0, self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_an_earlier_version_has_a_code_too() {
        let old = r#"{"side":"destination","retry":"later","phase":"preparation","errno":28,"detail":"no room"}"#;
        let failure: Failure = serde_json::from_str(old).expect("readable");
        assert_eq!(
            (failure.code, failure.code()),
            (None, ProblemCode::PoolFull)
        );
        let problem = failure.problem();
        assert_eq!(problem.side, Side::Destination);
        assert_eq!(problem.message, "no room");
    }

    #[test]
    fn a_stored_code_outranks_the_error_number_and_an_unknown_one_is_passed_over() {
        let read = |code: &str| -> Failure {
            let text = format!(
                r#"{{"side":"source","retry":"never","phase":"transfer","errno":5,"detail":"x","code":"{code}"}}"#
            );
            serde_json::from_str(&text).expect("readable")
        };
        assert_eq!(
            read("checksum-mismatch").code(),
            ProblemCode::ChecksumMismatch
        );
        assert_eq!(read("a-code-of-tomorrow").code(), ProblemCode::PeerFailed);
        let written = serde_json::to_value(read("checksum-mismatch")).expect("plain data");
        assert_eq!(written["code"], "checksum-mismatch");
        let without = serde_json::to_value(read("a-code-of-tomorrow")).expect("plain data");
        assert!(without.get("code").is_none());
    }
}
