//! What errors say that a disk is full.

use std::io;

/// Why nothing more can be written to a disk that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fullness {
    /// It has no room.
    Disk,
    /// Its user may have no more, however much is free.
    Quota,
}

/// Whether an error says that no more can be written, and why.
pub(crate) fn fullness(why: &io::Error) -> Option<Fullness> {
    match why.kind() {
        io::ErrorKind::StorageFull => Some(Fullness::Disk),
        io::ErrorKind::QuotaExceeded => Some(Fullness::Quota),
        _ => None,
    }
}

/// The disk has no room, or its user may have no more.
pub(crate) fn is_no_space(why: &io::Error) -> bool {
    fullness(why).is_some()
}
