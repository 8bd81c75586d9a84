//! The free space of a file system, shared by the pools on it: what one of them promises no other can.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One file system. It is asked by threads that may wait for it; who needs its numbers takes the last ones.
#[derive(Debug, Default)]
pub(crate) struct FileSystem {
    /// What it had free when it was last asked, less what came since.
    free: AtomicU64,
    /// Promised to writers and not on the disk yet.
    unallocated: AtomicU64,
    /// Somebody has asked since it was last looked at.
    is_wanted: AtomicBool,
}

impl FileSystem {
    /// What is neither used nor promised.
    pub(crate) fn free(&self) -> u64 {
        self.is_wanted.store(true, Ordering::Relaxed);
        let free = self.free.load(Ordering::Relaxed);
        free.saturating_sub(self.unallocated.load(Ordering::Relaxed))
    }

    /// Asks the system. One that does not answer takes no files. Blocks.
    pub(crate) fn look(&self, directory: &Path) {
        let stat = rustix::fs::statvfs(directory);
        self.set_free(stat.map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize)));
    }

    /// Whether somebody has asked since this was last called.
    pub(crate) fn take_wanted(&self) -> bool {
        self.is_wanted.swap(false, Ordering::Relaxed)
    }

    pub(super) fn set_free(&self, free: u64) {
        self.free.store(free, Ordering::Relaxed);
    }

    pub(super) fn promise(&self, bytes: u64) {
        self.unallocated.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Promised bytes that are on the disk now, or are promised no more.
    pub(super) fn allocated(&self, bytes: u64) {
        self.unallocated.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that have come since it was asked.
    pub(super) fn took(&self, bytes: u64) {
        let less = |free: u64| Some(free.saturating_sub(bytes));
        let _ = self
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Bytes that were removed since it was asked.
    pub(super) fn gave_back(&self, bytes: u64) {
        let more = |free: u64| Some(free.saturating_add(bytes));
        let _ = self
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}
