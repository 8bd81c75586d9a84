//! FTS3's published rules (release 3.14, `OptimizerConnections`), to compare with. One decision a minute.

use super::Bounds;
use penstock_model::Fts3Reason;
use std::collections::VecDeque;

/// Seconds between two decisions.
const CYCLE_SECONDS: f64 = 60.0;
/// Minutes that are remembered.
const MINUTES_MAX: usize = 30;
/// The weight of the newest rate, once a minute.
pub(super) const FTS3_MINUTE_WEIGHT: f64 = 0.1;

/// FTS's optimizer modes that tune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fts3Mode {
    /// 1: no growth beyond the queue.
    Conservative,
    /// 2 and 3.
    Normal,
}

/// What the rules look at.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Fts3Observation {
    /// Bytes per second in its window.
    pub throughput: f64,
    /// Percent of the transfers that ended well; failures that no retry helps do not count.
    pub success: f64,
    /// Retries in the window.
    pub retries: u64,
    /// Mean size of files, bytes.
    pub size: f64,
    /// Waiting.
    pub queue: u64,
}

/// What happened on a link in some time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Fts3Sample {
    /// How long it was.
    pub seconds: f64,
    /// Bytes that moved.
    pub bytes: u64,
    /// Files that arrived.
    pub landed: LandedFiles,
    /// Attempts that failed and are tried again.
    pub failed: u64,
    /// Waiting, at the end.
    pub queue: u64,
}

/// Files that arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LandedFiles {
    pub count: u64,
    pub bytes: u64,
    /// The seconds that they took together.
    pub seconds: f64,
}

impl LandedFiles {
    fn plus(self, other: LandedFiles) -> LandedFiles {
        LandedFiles {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
            seconds: self.seconds + other.seconds,
        }
    }
}

/// Its memory of one link.
#[derive(Debug, Clone)]
pub struct Fts3Tuner {
    mode: Fts3Mode,
    bounds: Bounds,
    /// An operator gave the bounds.
    is_configured: bool,
    value: Option<u32>,
    average: f64,
    before: Option<Fts3Observation>,
    minutes: VecDeque<Fts3Sample>,
}

impl Fts3Tuner {
    /// One that has decided nothing yet, with bounds that an operator gave, or that hold where nobody did.
    pub fn new(mode: Fts3Mode, bounds: Bounds, is_configured: bool) -> Fts3Tuner {
        Fts3Tuner {
            mode,
            bounds,
            is_configured,
            value: None,
            average: 0.0,
            before: None,
            minutes: VecDeque::from([Fts3Sample::default()]),
        }
    }

    /// What holds now; as many as may run before the first decision.
    pub fn limit(&self) -> u32 {
        self.bounds.clamp(self.value.unwrap_or(self.first()))
    }

    fn first(&self) -> u32 {
        match self.is_configured {
            true => self.bounds.max,
            false => self.bounds.min.midpoint(self.bounds.max),
        }
    }

    /// Other bounds hold from now on.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// The smoothed rate, bytes per second.
    pub fn smoothed(&self) -> f64 {
        self.average
    }

    /// Connections of one copy: those of a number that are left over, when few transfers are there to use them.
    pub fn streams(&self, active: u32, queued: u64) -> u32 {
        let transfers = u64::from(active) + queued;
        match (self.mode, transfers) {
            (Fts3Mode::Conservative, _) | (_, 0) => 1,
            (Fts3Mode::Normal, _) => {
                let each = u64::from(self.limit()) / transfers;
                u32::try_from(each.clamp(1, 16)).unwrap_or(16)
            }
        }
    }

    /// Takes about a second in; `Some` once a minute.
    pub fn see(&mut self, sample: &Fts3Sample) -> Option<(u32, Fts3Reason)> {
        let Some(minute) = self.minutes.back_mut() else {
            self.minutes.push_back(*sample);
            return None;
        };
        minute.seconds += sample.seconds;
        minute.bytes += sample.bytes;
        minute.landed = minute.landed.plus(sample.landed);
        minute.failed += sample.failed;
        minute.queue = sample.queue;
        let is_first = self.value.is_none();
        if minute.seconds < CYCLE_SECONDS && !is_first {
            return None;
        }
        let seen = self.window();
        if self.minutes.len() == MINUTES_MAX {
            self.minutes.pop_front();
        }
        self.minutes.push_back(Fts3Sample::default());
        Some(self.decide(seen))
    }

    /// Five minutes where files take seconds, a quarter of an hour where they take minutes, and half an hour.
    fn window(&self) -> Fts3Observation {
        let all = sum(self.minutes.iter());
        let mean = all.landed.seconds / (all.landed.count.max(1)) as f64;
        let minutes = match mean {
            _ if mean < 30.0 => 5,
            _ if mean < 900.0 => 15,
            _ => 30,
        };
        let seen = sum(self.minutes.iter().rev().take(minutes));
        let ended = seen.landed.count + seen.failed;
        Fts3Observation {
            throughput: seen.bytes as f64 / seen.seconds.max(1.0),
            success: match ended {
                0 => 100.0,
                ended => (100.0 * seen.landed.count as f64 / ended as f64).ceil(),
            },
            retries: seen.failed,
            size: seen.landed.bytes as f64 / seen.landed.count.max(1) as f64,
            queue: self.minutes.back().map_or(0, |last| last.queue),
        }
    }

    /// Takes a minute's view and gives the next number.
    pub fn decide(&mut self, seen: Fts3Observation) -> (u32, Fts3Reason) {
        let average_before = self.average;
        if seen.throughput > 0.0 {
            self.average = match average_before > 0.0 {
                true => {
                    FTS3_MINUTE_WEIGHT * seen.throughput
                        + (1.0 - FTS3_MINUTE_WEIGHT) * average_before
                }
                false => seen.throughput,
            };
        }
        let before = self.before.replace(seen);
        let (Some(value), Some(before)) = (self.value, before) else {
            let first = self.bounds.clamp(self.first());
            self.value = Some(first);
            return (first, Fts3Reason::NoInformation);
        };
        let (next, because) = self.next(value, average_before, before, seen);
        let next = self.bounds.clamp(next);
        self.value = Some(next);
        (next, because)
    }

    fn next(
        &self,
        value: u32,
        average_before: f64,
        before: Fts3Observation,
        seen: Fts3Observation,
    ) -> (u32, Fts3Reason) {
        let magnitude = |value: f64| value.max(1.0).log10().round() as i64;
        let less = value.saturating_sub(1);
        if seen.success < 97.0 {
            let improves = seen.success > before.success && seen.success >= 96.0;
            return match improves && seen.retries <= before.retries {
                true => (value, Fts3Reason::Improving),
                false => (less, Fts3Reason::BadEfficiency),
            };
        }
        if self.average == 0.0 {
            return (value, Fts3Reason::NoThroughput);
        }
        if seen.queue < u64::from(value) {
            return (value, Fts3Reason::QueueEmptying);
        }
        let because = match self.average >= average_before {
            true => Fts3Reason::Good,
            false if magnitude(seen.size) < magnitude(before.size) => Fts3Reason::SmallerFiles,
            false if magnitude(self.average) < magnitude(average_before) => {
                return (less, Fts3Reason::WorseThroughput);
            }
            false => return (value, Fts3Reason::SmallDeterioration),
        };
        let (step, most) = match self.mode {
            Fts3Mode::Conservative => (1, seen.queue),
            Fts3Mode::Normal => (2, seen.queue.saturating_mul(16)),
        };
        let most = u32::try_from(most.max(1)).unwrap_or(u32::MAX);
        ((value + step).min(most.max(value)), because)
    }
}

fn sum<'a>(samples: impl Iterator<Item = &'a Fts3Sample>) -> Fts3Sample {
    samples.fold(Fts3Sample::default(), |sum, one| Fts3Sample {
        seconds: sum.seconds + one.seconds,
        bytes: sum.bytes + one.bytes,
        landed: sum.landed.plus(one.landed),
        failed: sum.failed + one.failed,
        queue: one.queue,
    })
}
