//! Files that were written or looked at a moment ago. Who asks for a file's size does it several times for each transfer;
//! one look at the disk serves them all.

use penstock_persistence::namespace::EntryId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Files that are remembered: as many as a busy pool is asked about in a minute. Another one may take a place; then it is
/// looked at again.
const PLACES: usize = 65_536;

/// By the low bits of its id, the last file that was there, and when.
#[derive(Debug)]
pub(crate) struct RecentSizeChecks {
    started: Instant,
    places: Box<[AtomicU64]>,
}

impl Default for RecentSizeChecks {
    fn default() -> RecentSizeChecks {
        RecentSizeChecks {
            started: Instant::now(),
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl RecentSizeChecks {
    /// It was neither written nor looked at in this minute.
    pub(crate) fn is_due(&self, file: EntryId) -> bool {
        self.is_due_in(self.minute(), file)
    }

    pub(crate) fn note(&self, file: EntryId) {
        self.note_in(self.minute(), file);
    }

    fn minute(&self) -> u64 {
        self.started.elapsed().as_secs() / 60
    }

    fn is_due_in(&self, minute: u64, file: EntryId) -> bool {
        self.place(file).load(Ordering::Relaxed) != mark(file, minute)
    }

    fn note_in(&self, minute: u64, file: EntryId) {
        self.place(file)
            .store(mark(file, minute), Ordering::Relaxed);
    }

    fn place(&self, file: EntryId) -> &AtomicU64 {
        &self.places[file.0 as usize % PLACES]
    }
}

/// Never 0. Ids stay far below 2^44, and what is mixed up costs one look that was not made.
fn mark(file: EntryId, minute: u64) -> u64 {
    ((minute + 1) << 44) ^ file.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_looked_at_once_in_a_minute() {
        let seen = RecentSizeChecks::default();
        let (file, other) = (EntryId(5), EntryId(5 + PLACES as u64));
        assert!(seen.is_due_in(0, file));
        seen.note_in(0, file);
        assert!(!seen.is_due_in(0, file) && seen.is_due_in(1, file));
        assert!(seen.is_due_in(0, other));
        seen.note_in(0, other);
        assert!(seen.is_due_in(0, file));
    }
}
