//! What an observed error means: whose fault it is, whether a retry helps, and which POSIX error it resembles.
//!
//! FTS3 decides this by searching message texts; here it follows from what was observed. The error numbers and the
//! few fixed texts are those that FTS clients match on.

use crate::copy_failure::CopyCause;
use penstock_model::{Concern, Errno, Failure, Phase, ProblemCode, Retry, Side};

/// What an agent saw when something did not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedFailure {
    /// The storage element answered with this HTTP status.
    Status(u16),
    /// The name has no address.
    NameUnknown,
    /// Nothing accepts connections there.
    Refused,
    /// TLS failed: certificates, names, versions.
    Untrusted,
    /// No answer, or no bytes, for longer than allowed.
    TimedOut,
    /// The connection broke.
    Broken,
    /// The answer was not understood.
    Malformed,
    /// The destination exists and may not be replaced.
    Exists,
    /// Sizes differ.
    SizeMismatch,
    /// Checksums differ.
    ChecksumMismatch,
    /// The file has another checksum than its user says, and its source contradicts the user.
    UserChecksumMismatch,
    /// There is no checksum to compare with.
    ChecksumUnavailable,
    /// A directory stands where a file was expected.
    IsDirectory,
    /// The storage element said that a third-party copy failed, and as far as it said, why.
    CopyFailed(CopyCause),
    /// The time is over that the job allows.
    JobTimedOut,
    /// One redirect followed another.
    TooManyRedirects,
    /// A library said that it did not work, with this error number.
    Said(Errno),
    /// Refused by our own rules (an address, a redirect).
    Forbidden,
    /// The clocks here and there differ by more than the other side allows.
    ClockSkew,
    /// Somebody asked to stop.
    Canceled,
}

/// Whether a path that a storage element of ours refuses with this code will be refused the next time as well.
pub fn is_final(code: ProblemCode) -> bool {
    matches!(code, ProblemCode::ParentIsFile | ProblemCode::PathReserved)
}

/// Turns an observation into a failure with everything a retry decision needs.
pub fn classify(side: Side, phase: Phase, observed: &ObservedFailure, detail: String) -> Failure {
    let (errno, retry) = match observed {
        ObservedFailure::Status(status) => of_status(*status),
        ObservedFailure::NameUnknown => (Errno::ECOMM, Retry::Later),
        ObservedFailure::Refused => (Errno::ECONNREFUSED, Retry::Later),
        ObservedFailure::Untrusted => (Errno::EPERM, Retry::Never),
        ObservedFailure::TimedOut | ObservedFailure::JobTimedOut => {
            (Errno::ETIMEDOUT, Retry::Later)
        }
        ObservedFailure::Broken => (Errno::ECOMM, Retry::Later),
        ObservedFailure::Malformed => (Errno::EINVAL, Retry::Later),
        ObservedFailure::Exists => (Errno::EEXIST, Retry::Never),
        ObservedFailure::SizeMismatch => (Errno::EINVAL, Retry::Later),
        // FTS tries no checksum mismatch again. But a flipped bit on the way is worth another attempt; what the source
        // itself tells of the file is not.
        ObservedFailure::ChecksumMismatch if side == Side::Source => (Errno::EIO, Retry::Never),
        ObservedFailure::ChecksumMismatch => (Errno::EIO, Retry::Later),
        ObservedFailure::UserChecksumMismatch => (Errno::EIO, Retry::Never),
        ObservedFailure::ChecksumUnavailable => (Errno::EOPNOTSUPP, Retry::Never),
        ObservedFailure::IsDirectory => (Errno::EISDIR, Retry::Never),
        ObservedFailure::CopyFailed(cause) => of_copy(side, *cause),
        ObservedFailure::Said(errno) => (*errno, of_errno(side, *errno)),
        ObservedFailure::Forbidden => (Errno::EACCES, Retry::Never),
        ObservedFailure::TooManyRedirects => (Errno::ELOOP, Retry::Never),
        // A clock is set right by its time service, or by who reads of it.
        ObservedFailure::ClockSkew => (Errno::EACCES, Retry::Later),
        ObservedFailure::Canceled => (Errno::ECANCELED, Retry::Never),
    };
    Failure {
        side,
        retry,
        concern: concern_of(side, observed),
        phase,
        errno,
        detail,
        found: None,
        busy: None,
        code: Some(code_of(side, phase, observed)),
    }
}

/// What a PUT depended on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutConditions {
    /// That nothing is there (`If-None-Match: *`).
    pub absent: bool,
    /// That what arrives has a checksum (`Digest`).
    pub checksum: bool,
}

impl PutConditions {
    /// What a 412 to it means (RFC 9110 §15.5.13). Where both were asked for, there is nothing but the answer's words to
    /// go by.
    pub fn failed(self, text: &str) -> ObservedFailure {
        match (self.absent, self.checksum) {
            (false, true) => ObservedFailure::ChecksumMismatch,
            (true, true) if CopyCause::read(text) == CopyCause::ChecksumMismatch => {
                ObservedFailure::ChecksumMismatch
            }
            _ => ObservedFailure::Exists,
        }
    }
}

/// What an observation says something about. In doubt it is the storage element or the link: that users cannot halt a
/// link for each other does not rest on this alone.
fn concern_of(side: Side, observed: &ObservedFailure) -> Concern {
    let there = match side {
        Side::Source | Side::Destination => Concern::StorageElement,
        Side::Network => Concern::Link,
        Side::Service => return Concern::Service,
    };
    match observed {
        ObservedFailure::Status(status)
        | ObservedFailure::CopyFailed(CopyCause::Refused(status)) => match status {
            401 | 403 | 407 => Concern::Credential,
            408 | 429 => there,
            400..=499 | 501 => Concern::Request,
            _ => there,
        },
        ObservedFailure::NameUnknown
        | ObservedFailure::Refused
        | ObservedFailure::Untrusted
        | ObservedFailure::TimedOut
        | ObservedFailure::Broken
        | ObservedFailure::Malformed
        | ObservedFailure::ClockSkew
        | ObservedFailure::CopyFailed(CopyCause::Unknown | CopyCause::Unsettled) => there,
        ObservedFailure::CopyFailed(CopyCause::Denied) => Concern::Credential,
        ObservedFailure::CopyFailed(
            CopyCause::Exists | CopyCause::ChecksumMismatch | CopyCause::Missing,
        )
        | ObservedFailure::Exists
        | ObservedFailure::SizeMismatch
        | ObservedFailure::ChecksumMismatch
        | ObservedFailure::UserChecksumMismatch
        | ObservedFailure::ChecksumUnavailable
        | ObservedFailure::IsDirectory
        | ObservedFailure::JobTimedOut
        | ObservedFailure::Forbidden
        | ObservedFailure::TooManyRedirects
        | ObservedFailure::Canceled => Concern::Request,
        ObservedFailure::Said(errno) => match *errno {
            Errno::EPERM | Errno::EACCES => Concern::Credential,
            Errno::ENOENT
            | Errno::E2BIG
            | Errno::EEXIST
            | Errno::ENOTDIR
            | Errno::EISDIR
            | Errno::EINVAL
            | Errno::EFBIG
            | Errno::ENAMETOOLONG
            | Errno::ENOSYS
            | Errno::ELOOP
            | Errno::EPROTONOSUPPORT
            | Errno::EOPNOTSUPP
            | Errno::ECANCELED => Concern::Request,
            _ => there,
        },
    }
}

/// The cause as users are told it.
fn code_of(side: Side, phase: Phase, observed: &ObservedFailure) -> ProblemCode {
    match observed {
        ObservedFailure::Status(status)
        | ObservedFailure::CopyFailed(CopyCause::Refused(status)) => {
            ProblemCode::of_status(*status)
        }
        ObservedFailure::NameUnknown => ProblemCode::NameUnresolved,
        ObservedFailure::Refused => ProblemCode::ConnectionRefused,
        ObservedFailure::Untrusted => ProblemCode::TlsUntrusted,
        ObservedFailure::TimedOut => ProblemCode::ConnectionTimeout,
        ObservedFailure::Broken if side == Side::Service => ProblemCode::InternalError,
        ObservedFailure::Broken => ProblemCode::ConnectionBroken,
        ObservedFailure::Malformed => ProblemCode::PeerMalformed,
        ObservedFailure::Exists | ObservedFailure::CopyFailed(CopyCause::Exists) => {
            ProblemCode::PathExists
        }
        ObservedFailure::SizeMismatch => ProblemCode::SizeMismatch,
        ObservedFailure::ChecksumMismatch
        | ObservedFailure::CopyFailed(CopyCause::ChecksumMismatch) => ProblemCode::ChecksumMismatch,
        ObservedFailure::UserChecksumMismatch => ProblemCode::ChecksumExpectedWrong,
        ObservedFailure::ChecksumUnavailable => ProblemCode::ChecksumUnavailable,
        ObservedFailure::IsDirectory => ProblemCode::PathIsDirectory,
        ObservedFailure::CopyFailed(CopyCause::Denied) => ProblemCode::PermissionDenied,
        ObservedFailure::CopyFailed(CopyCause::Missing) => ProblemCode::PathNotFound,
        ObservedFailure::CopyFailed(CopyCause::Unknown) => ProblemCode::CopyFailed,
        ObservedFailure::CopyFailed(CopyCause::Unsettled) => ProblemCode::WriteUnsettled,
        ObservedFailure::JobTimedOut => ProblemCode::TransferTimeout,
        ObservedFailure::TooManyRedirects => ProblemCode::RedirectsTooMany,
        ObservedFailure::Said(errno) => errno.problem_code(side, phase),
        ObservedFailure::Forbidden => ProblemCode::AddressNotAllowed,
        ObservedFailure::ClockSkew => ProblemCode::ClockSkew,
        ObservedFailure::Canceled => ProblemCode::TransferCanceled,
    }
}

/// What the passive end said is its own; the rest is between the two.
fn of_copy(side: Side, cause: CopyCause) -> (Errno, Retry) {
    match cause {
        CopyCause::Exists => (Errno::EEXIST, Retry::Never),
        CopyCause::Refused(status @ (401 | 403 | 404 | 409 | 410 | 423)) => of_status(status),
        CopyCause::Denied => (Errno::EACCES, Retry::Never),
        CopyCause::Missing => (Errno::ENOENT, of_errno(side, Errno::ENOENT)),
        CopyCause::ChecksumMismatch
        | CopyCause::Refused(_)
        | CopyCause::Unknown
        | CopyCause::Unsettled => (Errno::EIO, Retry::Later),
    }
}

/// By FTS3's lists of what is not worth a retry at which end. A missing directory at a destination is, because somebody
/// may make it.
fn of_errno(side: Side, errno: Errno) -> Retry {
    let everywhere = [
        Errno::EPERM,
        Errno::EACCES,
        Errno::ENAMETOOLONG,
        Errno::EPROTONOSUPPORT,
        Errno::ECANCELED,
    ];
    let here: &[Errno] = match side {
        Side::Source => &[Errno::ENOENT, Errno::EISDIR, Errno::E2BIG, Errno::ENOTDIR],
        Side::Destination => &[
            Errno::EISDIR,
            Errno::E2BIG,
            Errno::EROFS,
            Errno::EFAULT,
            Errno::EEXIST,
        ],
        Side::Network => &[
            Errno::ENOENT,
            Errno::ENOSPC,
            Errno::EEXIST,
            Errno::EFBIG,
            Errno::EROFS,
        ],
        Side::Service => &[],
    };
    match everywhere.contains(&errno) || here.contains(&errno) {
        true => Retry::Never,
        false => Retry::Later,
    }
}

fn of_status(status: u16) -> (Errno, Retry) {
    match status {
        400 => (Errno::EINVAL, Retry::Never),
        401 => (Errno::EACCES, Retry::Never),
        403 => (Errno::EPERM, Retry::Never),
        404 | 410 => (Errno::ENOENT, Retry::Never),
        405 | 501 => (Errno::EPROTONOSUPPORT, Retry::ElsewhereOnly),
        408 | 504 => (Errno::ETIMEDOUT, Retry::Later),
        409 | 423 => (Errno::EAGAIN, Retry::Later),
        412 => (Errno::EEXIST, Retry::Never),
        413 | 507 => (Errno::ENOSPC, Retry::Later),
        429 | 503 => (Errno::EAGAIN, Retry::Later),
        _ => (Errno::EIO, Retry::Later),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(side: Side, observed: ObservedFailure, expected: &str) {
        let failure = classify(side, Phase::Transfer, &observed, "text".into());
        assert_eq!(format!("{failure} {:?}", failure.retry), expected);
    }

    #[test]
    fn only_what_other_files_may_meet_speaks_of_a_storage_element_or_the_link() {
        let shared = |side, observed: ObservedFailure| {
            let failure = classify(side, Phase::Transfer, &observed, "text".into());
            failure.concern.is_shared()
        };
        for observed in [
            ObservedFailure::Status(400),
            ObservedFailure::Status(401),
            ObservedFailure::Status(403),
            ObservedFailure::Status(404),
            ObservedFailure::Status(405),
            ObservedFailure::Status(409),
            ObservedFailure::Status(413),
            ObservedFailure::Status(423),
            ObservedFailure::Exists,
            ObservedFailure::SizeMismatch,
            ObservedFailure::ChecksumMismatch,
            ObservedFailure::UserChecksumMismatch,
            ObservedFailure::ChecksumUnavailable,
            ObservedFailure::IsDirectory,
            ObservedFailure::JobTimedOut,
            ObservedFailure::Forbidden,
            ObservedFailure::CopyFailed(CopyCause::Refused(403)),
            ObservedFailure::CopyFailed(CopyCause::Refused(409)),
            ObservedFailure::CopyFailed(CopyCause::Denied),
            ObservedFailure::Said(Errno::ENOENT),
            ObservedFailure::Said(Errno::EACCES),
        ] {
            for side in [Side::Source, Side::Destination, Side::Network] {
                assert!(!shared(side, observed.clone()), "{side:?} {observed:?}");
            }
        }
        for observed in [
            ObservedFailure::Status(429),
            ObservedFailure::Status(500),
            ObservedFailure::Status(503),
            ObservedFailure::Status(507),
            ObservedFailure::NameUnknown,
            ObservedFailure::Refused,
            ObservedFailure::Untrusted,
            ObservedFailure::TimedOut,
            ObservedFailure::Broken,
            ObservedFailure::CopyFailed(CopyCause::Unknown),
            ObservedFailure::CopyFailed(CopyCause::Refused(503)),
            ObservedFailure::Said(Errno::ECONNREFUSED),
        ] {
            for side in [Side::Source, Side::Destination, Side::Network] {
                assert!(shared(side, observed.clone()), "{side:?} {observed:?}");
            }
            assert!(!shared(Side::Service, observed.clone()), "{observed:?}");
        }
    }

    #[test]
    fn an_observation_has_the_code_that_users_are_told() {
        let code =
            |side, observed| classify(side, Phase::Transfer, &observed, String::new()).code();
        for (side, observed, expected) in [
            (Side::Source, ObservedFailure::Status(404), "path-not-found"),
            (
                Side::Source,
                ObservedFailure::Status(401),
                "credentials-refused",
            ),
            (
                Side::Destination,
                ObservedFailure::Status(403),
                "permission-denied",
            ),
            (Side::Destination, ObservedFailure::Status(409), "path-busy"),
            (
                Side::Destination,
                ObservedFailure::Status(423),
                "path-locked",
            ),
            (Side::Destination, ObservedFailure::Status(507), "pool-full"),
            (Side::Destination, ObservedFailure::Status(503), "peer-busy"),
            (
                Side::Destination,
                ObservedFailure::Status(500),
                "peer-failed",
            ),
            (
                Side::Destination,
                ObservedFailure::Status(504),
                "connection-timeout",
            ),
            (
                Side::Source,
                ObservedFailure::Status(405),
                "feature-unsupported",
            ),
            (
                Side::Source,
                ObservedFailure::Status(400),
                "request-malformed",
            ),
            (
                Side::Network,
                ObservedFailure::NameUnknown,
                "name-unresolved",
            ),
            (
                Side::Network,
                ObservedFailure::Refused,
                "connection-refused",
            ),
            (Side::Network, ObservedFailure::Untrusted, "tls-untrusted"),
            (Side::Network, ObservedFailure::Broken, "connection-broken"),
            (Side::Service, ObservedFailure::Broken, "internal-error"),
            (Side::Source, ObservedFailure::Malformed, "peer-malformed"),
            (Side::Destination, ObservedFailure::Exists, "path-exists"),
            (
                Side::Destination,
                ObservedFailure::SizeMismatch,
                "size-mismatch",
            ),
            (
                Side::Source,
                ObservedFailure::UserChecksumMismatch,
                "checksum-expected-wrong",
            ),
            (
                Side::Source,
                ObservedFailure::ChecksumUnavailable,
                "checksum-unavailable",
            ),
            (
                Side::Source,
                ObservedFailure::IsDirectory,
                "path-is-directory",
            ),
            (
                Side::Network,
                ObservedFailure::CopyFailed(CopyCause::ChecksumMismatch),
                "checksum-mismatch",
            ),
            (
                Side::Network,
                ObservedFailure::CopyFailed(CopyCause::Unknown),
                "copy-failed",
            ),
            (
                Side::Network,
                ObservedFailure::CopyFailed(CopyCause::Refused(507)),
                "pool-full",
            ),
            (
                Side::Network,
                ObservedFailure::JobTimedOut,
                "transfer-timeout",
            ),
            (
                Side::Network,
                ObservedFailure::TooManyRedirects,
                "redirects-too-many",
            ),
            (
                Side::Source,
                ObservedFailure::Said(Errno::ENOTDIR),
                "parent-is-file",
            ),
            (
                Side::Network,
                ObservedFailure::Forbidden,
                "address-not-allowed",
            ),
            (Side::Source, ObservedFailure::ClockSkew, "clock-skew"),
            (
                Side::Service,
                ObservedFailure::Canceled,
                "transfer-canceled",
            ),
        ] {
            assert_eq!(
                code(side, observed.clone()).name(),
                expected,
                "{observed:?}"
            );
        }
    }

    #[test]
    fn a_precondition_that_failed_is_the_one_that_was_sent() {
        let failed = |absent, checksum, text| PutConditions { absent, checksum }.failed(text);
        let mismatch = "answered PUT with 412 Precondition Failed: checksum mismatch: expected adler32:00000001, got \
                        adler32:00000002; the file was removed";
        assert_eq!(failed(true, false, mismatch), ObservedFailure::Exists);
        assert_eq!(failed(false, true, ""), ObservedFailure::ChecksumMismatch);
        assert_eq!(
            failed(true, true, mismatch),
            ObservedFailure::ChecksumMismatch
        );
        assert_eq!(
            failed(true, true, "the file exists"),
            ObservedFailure::Exists
        );
    }

    #[test]
    fn what_the_passive_end_of_a_copy_refused_is_told_as_its_own() {
        let copy = ObservedFailure::CopyFailed;
        check(
            Side::Destination,
            copy(CopyCause::Refused(403)),
            "DESTINATION [1] text Never",
        );
        check(
            Side::Source,
            copy(CopyCause::Refused(401)),
            "SOURCE [13] text Never",
        );
        check(
            Side::Network,
            copy(CopyCause::Unknown),
            "TRANSFER [5] text Later",
        );
        check(
            Side::Destination,
            copy(CopyCause::ChecksumMismatch),
            "DESTINATION [5] text Later",
        );
        check(
            Side::Source,
            ObservedFailure::TooManyRedirects,
            "SOURCE [40] text Never",
        );
        check(
            Side::Source,
            ObservedFailure::IsDirectory,
            "SOURCE [21] text Never",
        );
    }

    #[test]
    fn observations_become_what_fts_clients_know() {
        check(
            Side::Source,
            ObservedFailure::Status(404),
            "SOURCE [2] text Never",
        );
        check(
            Side::Destination,
            ObservedFailure::Exists,
            "DESTINATION [17] text Never",
        );
        check(
            Side::Destination,
            ObservedFailure::Status(503),
            "DESTINATION [11] text Later",
        );
        check(
            Side::Destination,
            ObservedFailure::Status(507),
            "DESTINATION [28] text Later",
        );
        check(
            Side::Network,
            ObservedFailure::TimedOut,
            "TRANSFER [110] text Later",
        );
        check(
            Side::Source,
            ObservedFailure::ChecksumMismatch,
            "SOURCE [5] text Never",
        );
        check(
            Side::Destination,
            ObservedFailure::ChecksumMismatch,
            "DESTINATION [5] text Later",
        );
        check(
            Side::Destination,
            ObservedFailure::UserChecksumMismatch,
            "DESTINATION [5] text Never",
        );
        check(
            Side::Source,
            ObservedFailure::Said(Errno::ENOENT),
            "SOURCE [2] text Never",
        );
        check(
            Side::Destination,
            ObservedFailure::Said(Errno::ENOENT),
            "DESTINATION [2] text Later",
        );
        check(
            Side::Network,
            ObservedFailure::Said(Errno::ECOMM),
            "TRANSFER [70] text Later",
        );
        check(
            Side::Service,
            ObservedFailure::Canceled,
            "GENERAL_FAILURE [125] text Never",
        );
    }
}
