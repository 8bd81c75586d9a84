//! What an observed error means: whose fault it is, whether a retry helps, and which POSIX error it resembles.
//!
//! FTS3 decides this by searching message texts; here it follows from what was observed. The error numbers and the
//! few fixed texts are those that FTS clients match on.

use penstock_model::{Errno, Failure, Phase, Retry, Side};

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
    /// The storage element said that a third-party copy failed.
    CopyFailed,
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
        Observed::TimedOut => (Errno::ETIMEDOUT, Retry::Later),
        Observed::Broken => (Errno::ECOMM, Retry::Later),
        Observed::Malformed => (Errno::EINVAL, Retry::Later),
        Observed::Exists => (Errno::EEXIST, Retry::Never),
        Observed::SizeMismatch => (Errno::EINVAL, Retry::Later),
        // FTS lists checksum mismatches as not worth a retry; a flipped bit on the way would be, a rotten source not.
        // The source's own disagreement with the user's value is final; the rest may be the network's doing.
        Observed::ChecksumMismatch if side == Side::Source => (Errno::EIO, Retry::Never),
        Observed::ChecksumMismatch => (Errno::EIO, Retry::Later),
        Observed::CopyFailed => (Errno::EIO, Retry::Later),
        Observed::Said(errno) => (*errno, of_errno(side, *errno)),
        Observed::Forbidden => (Errno::EACCES, Retry::Never),
        // A clock is set right by its time service, or by who reads of it.
        Observed::ClockSkew => (Errno::EACCES, Retry::Later),
        Observed::Canceled => (Errno::ECANCELED, Retry::Never),
    };
    Failure {
        side,
        retry,
        phase,
        errno,
        detail,
        found: None,
        busy: None,
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
