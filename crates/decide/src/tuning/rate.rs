//! Rates with their errors.

use std::collections::VecDeque;

/// What a file is worth beside its bytes: opening, committing and closing one costs a storage element about as much as
/// so many bytes do.
const FILE_WORTH: f64 = 1_000_000.0;
/// No rate is known better than so, in logarithms.
const ERROR_MIN: f64 = 0.01;
/// How much more or less may run than the limit says before a sample counts as one of that limit.
const CLOSE: f64 = 0.15;
/// Samples that are remembered.
const SAMPLES_MAX: usize = 12;

/// What was seen in about a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// How long it was.
    pub seconds: f64,
    /// Bytes that moved, and count.
    pub bytes: u64,
    /// Files that arrived.
    pub files: u64,
    /// How many ran, on average.
    pub active: f64,
    /// More would have run but for this limit.
    pub is_full: bool,
    /// How often a storage element said that it is overloaded.
    pub pushed_back: u32,
    /// For how many seconds it wants to be left alone.
    pub quiet_for: f64,
}

/// Work per second at a number of transfers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How many ran.
    pub active: f64,
    /// The natural logarithm of work per second.
    pub ln: f64,
    /// Its standard error.
    pub error: f64,
}

impl Rate {
    /// The standard error of the difference of two.
    pub(super) fn error_beside(self, other: Rate) -> f64 {
        self.error.hypot(other.error)
    }

    /// Whether this larger number is worth it beside a smaller one. `None`: the difference is within its error, and
    /// there is time to look longer.
    pub(super) fn pays_beside(self, smaller: Rate, worth: f64, is_patient: bool) -> Option<bool> {
        let grown = (self.active / smaller.active.max(f64::MIN_POSITIVE)).ln();
        let gained = self.ln - smaller.ln - worth * grown;
        match gained.abs() < self.error_beside(smaller) && is_patient {
            true => None,
            false => Some(gained > 0.0),
        }
    }
}

/// Samples since the last change took effect, the latest ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Window {
    /// Seconds since the number of running transfers came close to the limit.
    settled: f64,
    samples: VecDeque<Sample>,
}

impl Window {
    pub(super) fn take(&mut self, sample: &Sample, limit: u32, settle: f64) {
        let limit = f64::from(limit);
        let is_close = (sample.active - limit).abs() <= (CLOSE * limit).max(1.0);
        if !(sample.is_full && is_close) {
            // A change shows only when it is in effect, and nothing can be learnt of a limit that limits nothing.
            *self = Window::default();
            return;
        }
        self.settled += sample.seconds;
        if self.settled <= settle {
            return;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(*sample);
    }

    pub(super) fn seconds(&self) -> f64 {
        self.samples.iter().map(|sample| sample.seconds).sum()
    }

    /// The rate over all of it, once it is so long.
    pub(super) fn rate(&self, seconds_min: f64) -> Option<Rate> {
        match self.seconds() >= seconds_min {
            true => rate_of(self.samples.iter()),
            false => None,
        }
    }

    /// The rate of the last seconds.
    pub(super) fn latest(&self, seconds: f64) -> Option<Rate> {
        let mut left = seconds;
        let latest = self.samples.iter().rev().take_while(|sample| {
            let is_in = left > 0.0;
            left -= sample.seconds;
            is_in
        });
        rate_of(latest)
    }
}

fn rate_of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Rate> {
    let (mut seconds, mut work, mut running) = (0.0, 0.0, 0.0);
    let mut logs = Vec::with_capacity(SAMPLES_MAX);
    for sample in samples {
        let done = sample.bytes as f64 + FILE_WORTH * sample.files as f64;
        seconds += sample.seconds;
        work += done;
        running += sample.active * sample.seconds;
        logs.push((done / sample.seconds).max(1.0).ln());
    }
    if logs.len() < 2 {
        return None;
    }
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    Some(Rate {
        active: running / seconds,
        ln: (work / seconds).max(1.0).ln(),
        error: error.max(ERROR_MIN),
    })
}
