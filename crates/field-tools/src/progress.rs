//! How far a bulk copy has come: counters that workers raise and a display reads.

use penstock_model::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one bulk copy. Only ever raised, except that the bytes of an attempt that failed are taken
/// back.
#[derive(Debug, Default)]
pub struct Progress {
    files_total: AtomicU64,
    files_ended: AtomicU64,
    bytes_total: AtomicU64,
    bytes_moved: AtomicU64,
    bytes_before: AtomicU64,
    files_kept: AtomicU64,
}

/// What the counters say at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressReading {
    /// Files to copy.
    pub files_total: u64,
    /// Of these, copied, skipped or failed.
    pub files_ended: u64,
    /// Bytes to copy.
    pub bytes_total: Bytes,
    /// Of these, moved or found to be there already.
    pub bytes_moved: Bytes,
    /// Of these, found to be there already.
    pub bytes_before: Bytes,
    /// Files under way of which the bytes that have arrived stay when the copy ends now.
    pub files_kept: u64,
}

impl Progress {
    /// Nothing to do yet.
    pub fn new() -> Progress {
        Progress::default()
    }

    /// More work became known.
    pub fn expect(&self, files: u64, bytes: Bytes) {
        self.files_total.fetch_add(files, Ordering::Relaxed);
        self.bytes_total.fetch_add(bytes.0, Ordering::Relaxed);
    }

    pub fn moved(&self, bytes: u64) {
        self.bytes_moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes of the total were there before.
    pub fn found(&self, bytes: u64) {
        self.bytes_before.fetch_add(bytes, Ordering::Relaxed);
        self.moved(bytes);
    }

    /// What was found is not what it should be, and moves again.
    pub fn lose(&self, bytes: u64) {
        self.bytes_before.fetch_sub(bytes, Ordering::Relaxed);
        self.take_back(bytes);
    }

    /// A file is under way whose bytes stay where they have arrived, until this is dropped.
    pub fn keeping(self: &Arc<Self>) -> KeptFile {
        self.files_kept.fetch_add(1, Ordering::Relaxed);
        KeptFile(Arc::clone(self))
    }

    /// Bytes as they were counted elsewhere, in the place of all counted so far.
    pub fn measured(&self, moved: Bytes, total: Bytes) {
        self.bytes_moved.store(moved.0, Ordering::Relaxed);
        self.bytes_total.store(total.0, Ordering::Relaxed);
    }

    /// These bytes will move again.
    pub fn take_back(&self, bytes: u64) {
        self.bytes_moved.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A file ended, well or not.
    pub fn file_ended(&self) {
        self.files_ended.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters now. Each is exact; together they may be from slightly different moments.
    pub fn read(&self) -> ProgressReading {
        ProgressReading {
            files_total: self.files_total.load(Ordering::Relaxed),
            files_ended: self.files_ended.load(Ordering::Relaxed),
            bytes_total: Bytes(self.bytes_total.load(Ordering::Relaxed)),
            bytes_moved: Bytes(self.bytes_moved.load(Ordering::Relaxed)),
            bytes_before: Bytes(self.bytes_before.load(Ordering::Relaxed)),
            files_kept: self.files_kept.load(Ordering::Relaxed),
        }
    }
}

/// See [`Progress::keeping`].
#[derive(Debug)]
pub struct KeptFile(Arc<Progress>);

impl Drop for KeptFile {
    fn drop(&mut self) {
        self.0.files_kept.fetch_sub(1, Ordering::Relaxed);
    }
}
