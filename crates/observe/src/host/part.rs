//! A part of an interval: what is counted in it is taken to be spread evenly.

/// So much of so much, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) us: u64,
    /// The whole, which is not 0.
    pub(super) of_us: u64,
}

impl Part {
    /// The same part of a count.
    pub(super) fn of(self, count: u64) -> u64 {
        let part = u128::from(count) * u128::from(self.us.min(self.of_us));
        u64::try_from(part / u128::from(self.of_us.max(1))).unwrap_or(count)
    }
}
