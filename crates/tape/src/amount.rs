//! Files and their bytes, counted together.

use serde::Serialize;

/// So many files, of so many bytes together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TapeAmount {
    pub files: u64,
    pub bytes: u64,
}

impl TapeAmount {
    /// One file more.
    pub fn add(&mut self, size_bytes: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(size_bytes);
    }

    /// All of these together.
    pub fn sum(amounts: impl IntoIterator<Item = TapeAmount>) -> TapeAmount {
        let mut sum = TapeAmount::default();
        for amount in amounts {
            sum.files += amount.files;
            sum.bytes = sum.bytes.saturating_add(amount.bytes);
        }
        sum
    }
}
