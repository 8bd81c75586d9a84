//! What the pools on one file system have in common: what one of them promises no other can, and what one writes or
//! removes all others have less or more room for. How much is free each asks for itself, since quotas of directories
//! (XFS, ext4 projects) differ.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// One file system. It is asked by threads that may wait for it; who needs its numbers takes the last ones.
#[derive(Debug, Default)]
pub(crate) struct FileSystem {
    /// Bytes that came since the start, less those that were removed.
    came: AtomicI64,
    /// Files likewise.
    files_came: AtomicI64,
    /// Promised to writers and not on the disk yet.
    unallocated: AtomicU64,
    /// Somebody has asked since it was last looked at.
    is_wanted: AtomicBool,
}

/// What a directory had free when it was last looked at.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FreeSpace {
    free: u64,
    /// Files that could still be made, less a reserve; `None`: as many as there is room for.
    files: Option<u64>,
    /// What had come by then.
    came: i64,
    files_came: i64,
}

/// Of all files that a file system can hold, one in so many is never taken by files of a pool, and this many at most: so
/// that the pool's own files can still be written, and no file is refused that was let in a moment before.
const FILES_KEPT_BACK: (u64, u64) = (100, 1000);

impl FileSystem {
    /// What is neither used nor promised, of what was free at that look.
    pub(super) fn free(&self, seen: FreeSpace) -> u64 {
        self.is_wanted.store(true, Ordering::Relaxed);
        let came = self.came.load(Ordering::Relaxed).saturating_sub(seen.came);
        let free = seen.free.saturating_add_signed(came.saturating_neg());
        free.saturating_sub(self.unallocated.load(Ordering::Relaxed))
    }

    /// How many files could still be made, of those that could at that look. `None`: that depends on their bytes alone.
    pub(super) fn files_left(&self, seen: FreeSpace) -> Option<u64> {
        let came = self.files_came.load(Ordering::Relaxed);
        let came = came.saturating_sub(seen.files_came);
        let left = seen.files?;
        Some(left.saturating_add_signed(came.saturating_neg()))
    }

    /// Asks the system for what a directory has free. Blocks.
    pub(super) fn look(&self, directory: &Path) -> io::Result<FreeSpace> {
        let came = self.came.load(Ordering::Relaxed);
        let files_came = self.files_came.load(Ordering::Relaxed);
        let stat = rustix::fs::statvfs(directory)?;
        let (part, most) = FILES_KEPT_BACK;
        let kept_back = (stat.f_files / part).min(most);
        Ok(FreeSpace {
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            // Btrfs and others count none.
            files: (stat.f_files > 0).then(|| stat.f_favail.saturating_sub(kept_back)),
            came,
            files_came,
        })
    }

    /// Whether somebody has asked since this was last called.
    pub(crate) fn take_wanted(&self) -> bool {
        self.is_wanted.swap(false, Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn with_free(&self, free: u64, files: Option<u64>) -> FreeSpace {
        FreeSpace {
            free,
            files,
            came: self.came.load(Ordering::Relaxed),
            files_came: self.files_came.load(Ordering::Relaxed),
        }
    }

    pub(super) fn promise(&self, bytes: u64) {
        self.unallocated.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Promised bytes that are on the disk now, or are promised no more.
    pub(super) fn allocated(&self, bytes: u64) {
        self.unallocated.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes have come.
    pub(super) fn took(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.came.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A file has come, whose bytes are counted already.
    pub(super) fn took_file(&self) {
        self.files_came.fetch_add(1, Ordering::Relaxed);
    }

    /// A file of so many bytes was removed.
    pub(super) fn gave_back(&self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.came.fetch_sub(bytes, Ordering::Relaxed);
        self.files_came.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a directory is of a file system that opens a known file without asking anybody: those of networks ask their
/// servers, however much they have in memory.
pub(super) fn is_on_local_disk(directory: &Path) -> io::Result<bool> {
    // As in `linux/magic.h`.
    const EXT: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    const TMPFS: i64 = 0x0102_1994;
    let found = rustix::fs::statfs(directory)?;
    Ok([EXT, XFS, BTRFS, TMPFS].contains(&found.f_type))
}

#[cfg(test)]
mod tests {
    use crate::crash::tests::open_with;
    use penstock_model::PoolName;
    use std::sync::Arc;

    #[tokio::test]
    async fn pools_in_directories_of_one_file_system_share_what_is_free_there() {
        let directory = tempfile::tempdir().expect("made");
        let storage = open_with(directory.path(), &["one", "other"], Default::default());
        let [one, other] = ["one", "other"].map(|name| {
            let pool = storage.pool(&PoolName::new(name)).expect("known");
            pool.file_system()
        });
        assert!(
            Arc::ptr_eq(&one, &other),
            "what is promised counts for both"
        );
    }
}
