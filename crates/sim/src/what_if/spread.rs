//! How many transfers ran beside each one, and what that did to its rate.

use penstock_observe::recorded::RecordedTransfer;
use std::collections::BTreeMap;

/// Fewer transfers than these tell nothing.
const POINTS_MIN: usize = 10;
/// The standard deviation of the numbers' logarithm from which on the numbers differ enough: a sixth more or less.
const SPREAD_MIN: f64 = 0.15;
/// Of the rates of single transfers, the one that so many parts of them do not exceed is what one transfer reaches.
const RATE_QUANTILE: f64 = 0.95;
/// More at once make something slower when it moves so many times as much with few as with many.
const FALL_MIN: f64 = 1.15;
/// A number of transfers at once counts when so large a part of the time has it.
const OFTEN: f64 = 0.02;
/// Seconds that a transfer moves at least.
const MOVING_MIN: f64 = 1e-3;

/// Seconds in which a transfer can move bytes.
pub(super) fn moving_seconds(transfer: &RecordedTransfer) -> f64 {
    let took = transfer.ended.since(transfer.started);
    let moving = took.saturating_sub(transfer.overhead);
    moving.as_secs_f64().max(MOVING_MIN)
}

/// What some transfers did together, by how many of them moved.
#[derive(Debug, Clone, Default)]
pub(super) struct JointRates {
    active: u32,
    rate: f64,
    since: f64,
    /// The number of transfers times seconds.
    slot_seconds: f64,
    /// Seconds and bytes.
    by_number: BTreeMap<u32, (f64, f64)>,
}

impl JointRates {
    fn until(&mut self, now: f64) {
        let seconds = now - self.since;
        self.since = now;
        self.slot_seconds += seconds * f64::from(self.active);
        if self.active > 0 && seconds > 0.0 {
            let known = self.by_number.entry(self.active).or_default();
            known.0 += seconds;
            known.1 += seconds * self.rate;
        }
    }

    /// What it reaches in the busier half of the time; where more at once made it slower, by the law of a plan's pools:
    /// capacity / (1 + (number / halved_at)²), whose reciprocal is a line over the squares of the numbers.
    pub(super) fn reach(&self) -> Reach {
        let all: f64 = self.by_number.values().map(|(seconds, _)| seconds).sum();
        let flat = Reach {
            capacity: rate_of(self.by_number.values().rev(), all / 2.0),
            halved_at: None,
        };
        let often = self.by_number.iter();
        let often = often.filter(|(_, (seconds, bytes))| *seconds >= OFTEN * all && *bytes > 0.0);
        let points: Vec<(f64, f64, f64)> = often
            .map(|(number, (seconds, bytes))| {
                (f64::from(*number).powi(2), seconds / bytes, *seconds)
            })
            .collect();
        let weights: f64 = points.iter().map(|point| point.2).sum();
        let mean = |part: fn(&(f64, f64, f64)) -> f64| {
            let parts = points.iter().map(|point| part(point) * point.2);
            parts.sum::<f64>() / weights
        };
        let (number, inverse) = (mean(|point| point.0), mean(|point| point.1));
        let spread = points.iter().map(|it| it.2 * (it.0 - number).powi(2));
        let both = points
            .iter()
            .map(|it| it.2 * (it.0 - number) * (it.1 - inverse));
        let slope = both.sum::<f64>() / spread.sum::<f64>();
        let least = inverse - slope * number;
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return flat;
        };
        let fall = (least + slope * last.0) / (least + slope * first.0);
        match slope > 0.0 && least > 0.0 && fall >= FALL_MIN {
            true => Reach {
                capacity: least.recip(),
                halved_at: Some((least / slope).sqrt()),
            },
            false => flat,
        }
    }
}

/// What something that is full reaches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reach {
    /// Bytes per second.
    pub(super) capacity: f64,
    /// So many at once halve it; `None`: more at once do not make it slower.
    pub(super) halved_at: Option<f64>,
}

/// Bytes per second in so many seconds of those that come first.
fn rate_of<'a>(by_number: impl Iterator<Item = &'a (f64, f64)>, enough: f64) -> f64 {
    let (mut seconds, mut bytes) = (0.0, 0.0);
    for (of_seconds, of_bytes) in by_number {
        seconds += of_seconds;
        bytes += of_bytes;
        if seconds >= enough {
            break;
        }
    }
    bytes / f64::max(seconds, MOVING_MIN)
}

/// What ran beside each transfer.
#[derive(Debug, Clone)]
pub(super) struct Concurrency {
    /// Of each transfer: how many moved on its link, out of its source and into its destination while it did, on average,
    /// itself included.
    pub(super) numbers: Vec<[f64; 3]>,
    /// Of each transfer: bytes per second while it moved.
    pub(super) rates: Vec<f64>,
    /// Of each transfer: seconds in which it moved.
    pub(super) seconds: Vec<f64>,
    /// Of links, then of storage elements outwards, then inwards.
    together: Vec<JointRates>,
    links: usize,
    storages: usize,
}

impl Concurrency {
    /// Bytes per second of some transfers while they moved.
    pub(super) fn mean_rate(&self, transfers: &[(usize, &RecordedTransfer)]) -> f64 {
        let bytes: f64 = transfers.iter().map(|(_, one)| one.bytes as f64).sum();
        let seconds: f64 = transfers.iter().map(|(at, _)| self.seconds[*at]).sum();
        bytes / seconds.max(MOVING_MIN)
    }

    /// What the fastest of some transfers reach.
    pub(super) fn high_rate(&self, transfers: &[(usize, &RecordedTransfer)]) -> f64 {
        let mut rates: Vec<f64> = transfers.iter().map(|(at, _)| self.rates[*at]).collect();
        rates.sort_by(f64::total_cmp);
        let last = rates.len().saturating_sub(1) as f64;
        rates
            .get((last * RATE_QUANTILE) as usize)
            .copied()
            .unwrap_or(0.0)
    }

    pub(super) fn on_link(&self, link: usize) -> &JointRates {
        &self.together[link]
    }

    pub(super) fn out_of(&self, storage: usize) -> &JointRates {
        &self.together[self.links + storage]
    }

    pub(super) fn into(&self, storage: usize) -> &JointRates {
        &self.together[self.links + self.storages + storage]
    }
}

/// Goes through all beginnings and ends in their order. `ends` are the storage elements of each link.
pub(super) fn beside(
    transfers: &[RecordedTransfer],
    ends: &[(usize, usize)],
    storages: usize,
) -> Concurrency {
    let seconds: Vec<f64> = transfers.iter().map(moving_seconds).collect();
    let rates = transfers.iter().zip(&seconds);
    let rates: Vec<f64> = rates.map(|(one, took)| one.bytes as f64 / took).collect();
    let begin = transfers.iter().map(|one| one.started).min();
    let mut steps: Vec<(f64, bool, usize)> = Vec::with_capacity(2 * transfers.len());
    for (at, transfer) in transfers.iter().enumerate() {
        let ended = transfer.ended.since(begin.unwrap_or(transfer.started));
        let ended = ended.as_secs_f64();
        steps.push((ended - seconds[at], true, at));
        steps.push((ended, false, at));
    }
    // Ends come before beginnings of the same instant.
    steps.sort_by(|one, other| {
        let by_time = one.0.total_cmp(&other.0);
        by_time.then(one.1.cmp(&other.1)).then(one.2.cmp(&other.2))
    });
    let mut beside = Concurrency {
        numbers: vec![[0.0; 3]; transfers.len()],
        rates,
        seconds,
        together: vec![JointRates::default(); ends.len() + 2 * storages],
        links: ends.len(),
        storages,
    };
    for (now, begins, at) in steps {
        let link = transfers[at].link;
        let (from, to) = ends[link];
        let places = [
            link,
            beside.links + from,
            beside.links + beside.storages + to,
        ];
        for (number, place) in places.into_iter().enumerate() {
            let together = &mut beside.together[place];
            together.until(now);
            match begins {
                true => {
                    together.active += 1;
                    together.rate += beside.rates[at];
                    beside.numbers[at][number] = -together.slot_seconds;
                }
                false => {
                    together.active = together.active.saturating_sub(1);
                    together.rate -= beside.rates[at];
                    beside.numbers[at][number] += together.slot_seconds;
                    beside.numbers[at][number] /= beside.seconds[at];
                }
            }
        }
    }
    beside
}

/// How the rate of a transfer falls with the number beside it, by least squares of the logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Regression {
    /// 1: with twice as many, each is half as fast. 0: each stays as fast.
    pub(super) slope: f64,
    /// The part of the differences of rates that it explains.
    pub(super) fit: f64,
    points: usize,
}

impl Regression {
    /// Of numbers and rates; `None`: the numbers hardly differ, or there are too few.
    pub(super) fn of(points: impl Iterator<Item = (f64, f64)>) -> Option<Regression> {
        let points = points.filter(|(number, rate)| *number > 0.0 && *rate > 0.0);
        let points: Vec<(f64, f64)> = points.map(|(one, rate)| (one.ln(), rate.ln())).collect();
        let count = points.len() as f64;
        let mean = |part: fn(&(f64, f64)) -> f64| points.iter().map(part).sum::<f64>() / count;
        let (number, rate) = (mean(|point| point.0), mean(|point| point.1));
        let (mut numbers, mut rates, mut both) = (0.0, 0.0, 0.0);
        for (one, other) in &points {
            numbers += (one - number).powi(2);
            rates += (other - rate).powi(2);
            both += (one - number) * (other - rate);
        }
        if points.len() < POINTS_MIN || (numbers / count).sqrt() < SPREAD_MIN {
            return None;
        }
        Some(Regression {
            slope: -both / numbers,
            fit: match rates > 0.0 {
                true => (both * both / (numbers * rates)).min(1.0),
                false => 1.0,
            },
            points: points.len(),
        })
    }

    /// The slope in standard errors of it.
    pub(super) fn errors(&self) -> f64 {
        let rest = (1.0 - self.fit).max(1e-12);
        (self.fit * (self.points as f64 - 2.0) / rest).sqrt()
    }
}
