//! What an observed error means: whose fault it is, whether a retry helps, and which POSIX error it resembles.
//!
//! FTS3 decides this by searching message texts; here it follows from what was observed. The error numbers and the
//! few fixed texts are those that FTS clients match on.

use crate::copy_failure::CopyCause;
use penstock_model::{Concern, Errno, Failure, Phase, ProblemCode, Retry, Side};

/// What an agent saw when something did not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
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

/// Turns an observation into a failure with everything a retry decision needs.
pub fn classify(side: Side, phase: Phase, observed: &Observed, detail: String) -> Failure {
    let (errno, retry) = match observed {
        Observed::Status(status) => of_status(*status),
        Observed::NameUnknown => (Errno::ECOMM, Retry::Later),
        Observed::Refused => (Errno::ECONNREFUSED, Retry::Later),
        Observed::Untrusted => (Errno::EPERM, Retry::Never),
        Observed::TimedOut | Observed::JobTimedOut => (Errno::ETIMEDOUT, Retry::Later),
        Observed::Broken => (Errno::ECOMM, Retry::Later),
        Observed::Malformed => (Errno::EINVAL, Retry::Later),
        Observed::Exists => (Errno::EEXIST, Retry::Never),
        Observed::SizeMismatch => (Errno::EINVAL, Retry::Later),
        // FTS tries no checksum mismatch again. But a flipped bit on the way is worth another attempt; what the source
        // itself tells of the file is not.
        Observed::ChecksumMismatch if side == Side::Source => (Errno::EIO, Retry::Never),
        Observed::ChecksumMismatch => (Errno::EIO, Retry::Later),
        Observed::UserChecksumMismatch => (Errno::EIO, Retry::Never),
        Observed::ChecksumUnavailable => (Errno::EOPNOTSUPP, Retry::Never),
        Observed::IsDirectory => (Errno::EISDIR, Retry::Never),
        Observed::CopyFailed(cause) => of_copy(side, *cause),
        Observed::Said(errno) => (*errno, of_errno(side, *errno)),
        Observed::Forbidden => (Errno::EACCES, Retry::Never),
        Observed::TooManyRedirects => (Errno::ELOOP, Retry::Never),
        // A clock is set right by its time service, or by who reads of it.
        Observed::ClockSkew => (Errno::EACCES, Retry::Later),
        Observed::Canceled => (Errno::ECANCELED, Retry::Never),
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
    pub fn failed(self, text: &str) -> Observed {
        match (self.absent, self.checksum) {
            (false, true) => Observed::ChecksumMismatch,
            (true, true) if CopyCause::read(text) == CopyCause::ChecksumMismatch => {
                Observed::ChecksumMismatch
            }
            _ => Observed::Exists,
        }
    }
}

/// What an observation says something about. In doubt it is the storage element or the link: that users cannot halt a
/// link for each other does not rest on this alone.
fn concern_of(side: Side, observed: &Observed) -> Concern {
    let there = match side {
        Side::Source | Side::Destination => Concern::StorageElement,
        Side::Network => Concern::Link,
        Side::Service => return Concern::Service,
    };
    match observed {
        Observed::Status(status) | Observed::CopyFailed(CopyCause::Refused(status)) => match status
        {
            401 | 403 | 407 => Concern::Credential,
            408 | 429 => there,
            400..=499 | 501 => Concern::Request,
            _ => there,
        },
        Observed::NameUnknown
        | Observed::Refused
        | Observed::Untrusted
        | Observed::TimedOut
        | Observed::Broken
        | Observed::Malformed
        | Observed::ClockSkew
        | Observed::CopyFailed(CopyCause::Unknown) => there,
        Observed::CopyFailed(CopyCause::Denied) => Concern::Credential,
        Observed::CopyFailed(
            CopyCause::Exists | CopyCause::ChecksumMismatch | CopyCause::Missing,
        )
        | Observed::Exists
        | Observed::SizeMismatch
        | Observed::ChecksumMismatch
        | Observed::UserChecksumMismatch
        | Observed::ChecksumUnavailable
        | Observed::IsDirectory
        | Observed::JobTimedOut
        | Observed::Forbidden
        | Observed::TooManyRedirects
        | Observed::Canceled => Concern::Request,
        Observed::Said(errno) => match *errno {
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
fn code_of(side: Side, phase: Phase, observed: &Observed) -> ProblemCode {
    match observed {
        Observed::Status(status) | Observed::CopyFailed(CopyCause::Refused(status)) => {
            ProblemCode::of_status(*status)
        }
        Observed::NameUnknown => ProblemCode::NameUnresolved,
        Observed::Refused => ProblemCode::ConnectionRefused,
        Observed::Untrusted => ProblemCode::TlsUntrusted,
        Observed::TimedOut => ProblemCode::ConnectionTimeout,
        Observed::Broken if side == Side::Service => ProblemCode::InternalError,
        Observed::Broken => ProblemCode::ConnectionBroken,
        Observed::Malformed => ProblemCode::PeerMalformed,
        Observed::Exists | Observed::CopyFailed(CopyCause::Exists) => ProblemCode::PathExists,
        Observed::SizeMismatch => ProblemCode::SizeMismatch,
        Observed::ChecksumMismatch | Observed::CopyFailed(CopyCause::ChecksumMismatch) => {
            ProblemCode::ChecksumMismatch
        }
        Observed::UserChecksumMismatch => ProblemCode::ChecksumExpectedWrong,
        Observed::ChecksumUnavailable => ProblemCode::ChecksumUnavailable,
        Observed::IsDirectory => ProblemCode::PathIsDirectory,
        Observed::CopyFailed(CopyCause::Denied) => ProblemCode::PermissionDenied,
        Observed::CopyFailed(CopyCause::Missing) => ProblemCode::PathNotFound,
        Observed::CopyFailed(CopyCause::Unknown) => ProblemCode::CopyFailed,
        Observed::JobTimedOut => ProblemCode::TransferTimeout,
        Observed::TooManyRedirects => ProblemCode::RedirectsTooMany,
        Observed::Said(errno) => errno.problem_code(side, phase),
        Observed::Forbidden => ProblemCode::AddressNotAllowed,
        Observed::ClockSkew => ProblemCode::ClockSkew,
        Observed::Canceled => ProblemCode::TransferCanceled,
    }
}

/// What the passive end said is its own; the rest is between the two.
fn of_copy(side: Side, cause: CopyCause) -> (Errno, Retry) {
    match cause {
        CopyCause::Exists => (Errno::EEXIST, Retry::Never),
        CopyCause::Refused(status @ (401 | 403 | 404 | 409 | 410 | 423)) => of_status(status),
        CopyCause::Denied => (Errno::EACCES, Retry::Never),
        CopyCause::Missing => (Errno::ENOENT, of_errno(side, Errno::ENOENT)),
        CopyCause::ChecksumMismatch | CopyCause::Refused(_) | CopyCause::Unknown => {
            (Errno::EIO, Retry::Later)
        }
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

    fn check(side: Side, observed: Observed, expected: &str) {
        let failure = classify(side, Phase::Transfer, &observed, "text".into());
        assert_eq!(format!("{failure} {:?}", failure.retry), expected);
    }

    #[test]
    fn only_what_other_files_may_meet_speaks_of_a_storage_element_or_the_link() {
        let shared = |side, observed: Observed| {
            let failure = classify(side, Phase::Transfer, &observed, "text".into());
            failure.concern.is_shared()
        };
        for observed in [
            Observed::Status(400),
            Observed::Status(401),
            Observed::Status(403),
            Observed::Status(404),
            Observed::Status(405),
            Observed::Status(409),
            Observed::Status(413),
            Observed::Status(423),
            Observed::Exists,
            Observed::SizeMismatch,
            Observed::ChecksumMismatch,
            Observed::UserChecksumMismatch,
            Observed::ChecksumUnavailable,
            Observed::IsDirectory,
            Observed::JobTimedOut,
            Observed::Forbidden,
            Observed::CopyFailed(CopyCause::Refused(403)),
            Observed::CopyFailed(CopyCause::Refused(409)),
            Observed::CopyFailed(CopyCause::Denied),
            Observed::Said(Errno::ENOENT),
            Observed::Said(Errno::EACCES),
        ] {
            for side in [Side::Source, Side::Destination, Side::Network] {
                assert!(!shared(side, observed.clone()), "{side:?} {observed:?}");
            }
        }
        for observed in [
            Observed::Status(429),
            Observed::Status(500),
            Observed::Status(503),
            Observed::Status(507),
            Observed::NameUnknown,
            Observed::Refused,
            Observed::Untrusted,
            Observed::TimedOut,
            Observed::Broken,
            Observed::CopyFailed(CopyCause::Unknown),
            Observed::CopyFailed(CopyCause::Refused(503)),
            Observed::Said(Errno::ECONNREFUSED),
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
            (Side::Source, Observed::Status(404), "path-not-found"),
            (Side::Source, Observed::Status(401), "credentials-refused"),
            (
                Side::Destination,
                Observed::Status(403),
                "permission-denied",
            ),
            (Side::Destination, Observed::Status(409), "path-busy"),
            (Side::Destination, Observed::Status(423), "path-locked"),
            (Side::Destination, Observed::Status(507), "pool-full"),
            (Side::Destination, Observed::Status(503), "peer-busy"),
            (Side::Destination, Observed::Status(500), "peer-failed"),
            (
                Side::Destination,
                Observed::Status(504),
                "connection-timeout",
            ),
            (Side::Source, Observed::Status(405), "feature-unsupported"),
            (Side::Source, Observed::Status(400), "request-malformed"),
            (Side::Network, Observed::NameUnknown, "name-unresolved"),
            (Side::Network, Observed::Refused, "connection-refused"),
            (Side::Network, Observed::Untrusted, "tls-untrusted"),
            (Side::Network, Observed::Broken, "connection-broken"),
            (Side::Service, Observed::Broken, "internal-error"),
            (Side::Source, Observed::Malformed, "peer-malformed"),
            (Side::Destination, Observed::Exists, "path-exists"),
            (Side::Destination, Observed::SizeMismatch, "size-mismatch"),
            (
                Side::Source,
                Observed::UserChecksumMismatch,
                "checksum-expected-wrong",
            ),
            (
                Side::Source,
                Observed::ChecksumUnavailable,
                "checksum-unavailable",
            ),
            (Side::Source, Observed::IsDirectory, "path-is-directory"),
            (
                Side::Network,
                Observed::CopyFailed(CopyCause::ChecksumMismatch),
                "checksum-mismatch",
            ),
            (
                Side::Network,
                Observed::CopyFailed(CopyCause::Unknown),
                "copy-failed",
            ),
            (
                Side::Network,
                Observed::CopyFailed(CopyCause::Refused(507)),
                "pool-full",
            ),
            (Side::Network, Observed::JobTimedOut, "transfer-timeout"),
            (
                Side::Network,
                Observed::TooManyRedirects,
                "redirects-too-many",
            ),
            (
                Side::Source,
                Observed::Said(Errno::ENOTDIR),
                "parent-is-file",
            ),
            (Side::Network, Observed::Forbidden, "address-not-allowed"),
            (Side::Source, Observed::ClockSkew, "clock-skew"),
            (Side::Service, Observed::Canceled, "transfer-canceled"),
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
        assert_eq!(failed(true, false, mismatch), Observed::Exists);
        assert_eq!(failed(false, true, ""), Observed::ChecksumMismatch);
        assert_eq!(failed(true, true, mismatch), Observed::ChecksumMismatch);
        assert_eq!(failed(true, true, "the file exists"), Observed::Exists);
    }

    #[test]
    fn what_the_passive_end_of_a_copy_refused_is_told_as_its_own() {
        let copy = Observed::CopyFailed;
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
            Observed::TooManyRedirects,
            "SOURCE [40] text Never",
        );
        check(
            Side::Source,
            Observed::IsDirectory,
            "SOURCE [21] text Never",
        );
    }

    #[test]
    fn observations_become_what_fts_clients_know() {
        check(Side::Source, Observed::Status(404), "SOURCE [2] text Never");
        check(
            Side::Destination,
            Observed::Exists,
            "DESTINATION [17] text Never",
        );
        check(
            Side::Destination,
            Observed::Status(503),
            "DESTINATION [11] text Later",
        );
        check(
            Side::Destination,
            Observed::Status(507),
            "DESTINATION [28] text Later",
        );
        check(
            Side::Network,
            Observed::TimedOut,
            "TRANSFER [110] text Later",
        );
        check(
            Side::Source,
            Observed::ChecksumMismatch,
            "SOURCE [5] text Never",
        );
        check(
            Side::Destination,
            Observed::ChecksumMismatch,
            "DESTINATION [5] text Later",
        );
        check(
            Side::Destination,
            Observed::UserChecksumMismatch,
            "DESTINATION [5] text Never",
        );
        check(
            Side::Source,
            Observed::Said(Errno::ENOENT),
            "SOURCE [2] text Never",
        );
        check(
            Side::Destination,
            Observed::Said(Errno::ENOENT),
            "DESTINATION [2] text Later",
        );
        check(
            Side::Network,
            Observed::Said(Errno::ECOMM),
            "TRANSFER [70] text Later",
        );
        check(
            Side::Service,
            Observed::Canceled,
            "GENERAL_FAILURE [125] text Never",
        );
    }
}
