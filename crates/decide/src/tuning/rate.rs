//! Rates with their errors.

use penstock_model::TrialResult;
use std::collections::VecDeque;

/// What a file is worth beside its bytes: opening, committing and closing one costs a storage element about as much as
/// so many bytes do.
const FILE_COST_BYTES: f64 = 1_000_000.0;
/// No rate is known better than so, in logarithms.
const ERROR_MIN: f64 = 0.005;
/// How much a second differs from the next one before anything was seen, in logarithms, and how many seconds of
/// looking that is worth.
const NOISE_FIRST: f64 = 0.05;
const NOISE_FIRST_SECONDS: f64 = 4.0;
/// Seconds over which the noise is remembered.
const NOISE_MEMORY_SECONDS: f64 = 60.0;
/// How much more or less may run than the limit says before a sample counts as one of that limit.
const SAMPLE_LIMIT_RATIO: f64 = 0.15;
/// Samples that are remembered.
const SAMPLES_MAX: usize = 16;

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
    /// Attempts that failed in a way that a retry may help: their bytes were moved for nothing.
    pub failed: u64,
    /// Seconds between two reports of how far a transfer is: what began later is not in `bytes` yet.
    pub lag: f64,
    /// How often a storage element said that it is overloaded.
    pub pushed_back: u32,
    /// For how many seconds it wants to be left alone.
    pub quiet_for: f64,
}

/// Comparisons of the rates at two numbers.
pub(super) trait Comparison {
    /// The standard error of the difference of two.
    fn error_beside(self, other: Self) -> f64;
    /// What this larger number brings beside a smaller one, less what it must bring. In logarithms.
    fn gained_beside(self, smaller: Self, worth: f64) -> f64;
}

impl Comparison for TrialResult {
    fn error_beside(self, other: TrialResult) -> f64 {
        // By hand: `hypot` of the C library would ask for glibc 2.35, and servers have 2.34.
        (self.error * self.error + other.error * other.error).sqrt()
    }

    fn gained_beside(self, smaller: TrialResult, worth: f64) -> f64 {
        let grown = (self.active / smaller.active.max(f64::MIN_POSITIVE)).ln();
        self.ln - smaller.ln - worth * grown
    }
}

/// What several looks have told of one difference: its mean, weighted by their errors.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct MeanDifference {
    sum: f64,
    weight: f64,
}

impl MeanDifference {
    pub(super) fn of(gained: f64, error: f64) -> MeanDifference {
        let weight = 1.0 / error.max(ERROR_MIN).powi(2);
        MeanDifference {
            sum: gained * weight,
            weight,
        }
    }

    pub(super) fn and(self, other: MeanDifference) -> MeanDifference {
        MeanDifference {
            sum: self.sum + other.sum,
            weight: self.weight + other.weight,
        }
    }

    pub(super) fn mean(self) -> f64 {
        self.sum / self.weight.max(f64::MIN_POSITIVE)
    }

    pub(super) fn error(self) -> f64 {
        1.0 / self.weight.max(f64::MIN_POSITIVE).sqrt()
    }
}

/// How much one second differs from another at the same number: what is seen in two or three seconds says too little
/// of that, so it is remembered over changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Noise {
    squares: f64,
    seconds: f64,
}

impl Default for Noise {
    fn default() -> Noise {
        Noise {
            squares: NOISE_FIRST * NOISE_FIRST * NOISE_FIRST_SECONDS,
            seconds: NOISE_FIRST_SECONDS,
        }
    }
}

impl Noise {
    /// Takes how far the newest second lies from the mean of those before it, of which there are so many.
    fn take(&mut self, differs: f64, before: usize) {
        let fades = 1.0 - 1.0 / NOISE_MEMORY_SECONDS;
        let of_one = differs * differs / (1.0 + 1.0 / before as f64);
        // What is far out is a change, not noise.
        let of_one = of_one.min(9.0 * self.squares / self.seconds);
        self.squares = self.squares * fades + of_one;
        self.seconds = self.seconds * fades + 1.0;
    }

    /// Of one second.
    fn deviation(self) -> f64 {
        (self.squares / self.seconds).sqrt()
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
    /// Takes a second in. `settle`: how many are to pass first.
    pub(super) fn take(&mut self, sample: &Sample, limit: u32, settle: f64, noise: &mut Noise) {
        let limit = f64::from(limit);
        let is_close = (sample.active - limit).abs() <= (SAMPLE_LIMIT_RATIO * limit).max(1.0);
        if !(sample.is_full && is_close) {
            // A change shows only when it is in effect, and nothing can be learnt of a limit that limits nothing.
            *self = Window::default();
            return;
        }
        self.settled += sample.seconds;
        if self.settled <= settle {
            return;
        }
        let before: Vec<f64> = self.samples.iter().rev().take(4).map(log_of).collect();
        if !before.is_empty() && log_of(sample) > 0.0 {
            let mean = before.iter().sum::<f64>() / before.len() as f64;
            noise.take(log_of(sample) - mean, before.len());
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(*sample);
    }

    pub(super) fn seconds(&self) -> f64 {
        self.samples.iter().map(|sample| sample.seconds).sum()
    }

    /// The rate over all of it; `None` when nothing at all was done: of a standstill nothing can be learnt.
    pub(super) fn rate(&self, noise: Noise) -> Option<TrialResult> {
        rate_of(self.samples.iter(), noise)
    }

    /// The rate of the last seconds.
    pub(super) fn latest(&self, seconds: f64, noise: Noise) -> Option<TrialResult> {
        let mut left = seconds;
        let latest = self.samples.iter().rev().take_while(|sample| {
            let is_in = left > 0.0;
            left -= sample.seconds;
            is_in
        });
        rate_of(latest, noise)
    }
}

/// What was done in a sample: bytes and files that were not in vain.
fn work(sample: &Sample) -> f64 {
    sample.bytes as f64 + FILE_COST_BYTES * sample.files as f64
}

fn log_of(sample: &Sample) -> f64 {
    (work(sample) / sample.seconds).max(1.0).ln()
}

fn rate_of<'a>(samples: impl Iterator<Item = &'a Sample>, noise: Noise) -> Option<TrialResult> {
    let (mut seconds, mut done, mut running) = (0.0, 0.0, 0.0);
    let (mut landed, mut failed, mut count) = (0, 0, 0.0);
    for sample in samples {
        seconds += sample.seconds;
        done += work(sample);
        running += sample.active * sample.seconds;
        landed += sample.files;
        failed += sample.failed;
        count += 1.0;
    }
    if done < 1.0 || seconds <= 0.0 {
        return None;
    }
    // What is not known to have arrived may still do so.
    let arrives = (landed as f64 + 1.0) / (landed as f64 + failed as f64 + 1.0);
    let error = noise.deviation() / f64::sqrt(count);
    Some(TrialResult {
        active: running / seconds,
        ln: (done * arrives / seconds).max(1.0).ln(),
        error: error.max(ERROR_MIN),
    })
}
