//! What a link did between two messages of the optimizer, and how it is at the moment of one.

use penstock_model::{TuningPolicy, TuningSeen};

/// What a link did since it was last told.
#[derive(Debug, Default)]
pub(super) struct LinkTally {
    pub(super) landed: u32,
    pub(super) failed: u32,
    pub(super) retried: u32,
    pub(super) seconds: f64,
    pub(super) bytes: f64,
    pub(super) squares: f64,
    pub(super) smoothed: f64,
    /// How many might run when it was last told.
    pub(super) limit: Option<u32>,
}

impl LinkTally {
    fn mean(&self, sum: f64) -> f64 {
        match self.landed {
            0 => 0.0,
            landed => sum / f64::from(landed),
        }
    }

    /// Seconds.
    pub(super) fn duration_mean(&self) -> f64 {
        self.mean(self.seconds)
    }

    /// Bytes.
    pub(super) fn size_mean(&self) -> f64 {
        self.mean(self.bytes)
    }

    /// Bytes.
    pub(super) fn size_deviation(&self) -> f64 {
        (self.mean(self.squares) - self.size_mean().powi(2))
            .max(0.0)
            .sqrt()
    }

    /// 100 when nothing ended: nothing failed either.
    pub(super) fn success_percent(&self) -> f64 {
        match self.landed + self.failed {
            0 => 100.0,
            all => 100.0 * f64::from(self.landed) / f64::from(all),
        }
    }
}

/// A link at this moment.
pub(super) struct LinkState<'a> {
    pub(super) source: &'a str,
    pub(super) destination: &'a str,
    pub(super) active: u32,
    pub(super) limit: u32,
    pub(super) queued: u64,
    pub(super) bytes_per_second: u64,
    pub(super) because: Option<&'a str>,
    pub(super) tuning: TuningPolicy,
    pub(super) seen: &'a TuningSeen,
}
