//! Files that were looked at a moment ago. Who asks for a file's size does it several times for each transfer; one look at
//! the disk serves them all.

use penstock_persistence::namespace::EntryId;
use std::sync::atomic::{AtomicU64, Ordering};

/// Files that are remembered. Another one may take a place; then it is looked at again.
const PLACES: usize = 4096;

/// By the low bits of its id, the last file that was looked at, and when.
#[derive(Debug)]
pub(crate) struct Seen(Box<[AtomicU64]>);

impl Default for Seen {
    fn default() -> Seen {
        Seen((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Seen {
    /// It was not looked at in this minute.
    pub(crate) fn is_due(&self, file: EntryId, minute: u64) -> bool {
        self.place(file).load(Ordering::Relaxed) != mark(file, minute)
    }

    pub(crate) fn note(&self, file: EntryId, minute: u64) {
        self.place(file)
            .store(mark(file, minute), Ordering::Relaxed);
    }

    fn place(&self, file: EntryId) -> &AtomicU64 {
        &self.0[file.0 as usize % PLACES]
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
        let seen = Seen::default();
        let (file, other) = (EntryId(5), EntryId(5 + PLACES as u64));
        assert!(seen.is_due(file, 0));
        seen.note(file, 0);
        assert!(!seen.is_due(file, 0) && seen.is_due(file, 1));
        assert!(seen.is_due(other, 0));
        seen.note(other, 0);
        assert!(seen.is_due(file, 0));
    }
}
