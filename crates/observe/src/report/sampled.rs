//! Folds samples into what a report tells of them: the rate in equal bins, and how full each link was.
//!
//! Takes one sample at a time, so that a week of them needs no more memory than a minute.

use super::{LinkFill, RateOverTime, within};
use crate::plot;
use crate::rate::{ByteCount, UNIT, Window, megabits_per_second};
use penstock_model::text::plural;
use penstock_model::{Bytes, LinkId, LinkSample, Timestamp};
use std::collections::BTreeMap;

/// Sums over one bin, all links together. A sample stands for one second of its link; a link without a sample
/// in a second had no work then, and all its slots were free.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Bin {
    /// Samples taken. 0: nothing is known of this time, not even whether the service ran.
    pub samples: u64,
    pub moved: u64,
    pub active: u64,
    pub limit: f64,
    /// Slots that were free while files waited on their link.
    pub unfed: u64,
    /// Whether any file waited.
    pub has_queue: bool,
    /// Some sample tells what moved.
    pub is_sampled: bool,
}

impl Bin {
    /// Whether anything is known of this time.
    pub fn is_known(&self) -> bool {
        self.samples > 0 || self.is_sampled
    }
}

/// A sample stands for so much time before it.
const SAMPLE_MS: i64 = 1_000;

#[derive(Debug, Clone, Default)]
struct LinkSums {
    samples: u64,
    active: u64,
    limit: u64,
    unfed: u64,
    /// Samples per bin.
    in_bins: Vec<u32>,
}

/// The fold.
#[derive(Debug, Clone)]
pub(super) struct SampleSums {
    window: Window,
    bin_seconds: u64,
    bins: Vec<Bin>,
    links: BTreeMap<LinkId, LinkSums>,
}

impl SampleSums {
    /// Will count the samples of `links` inside `window`.
    pub fn new<'a>(window: Window, links: impl IntoIterator<Item = &'a LinkId>) -> SampleSums {
        let span = window.seconds().ceil().max(1.0) as u64;
        let bin_seconds = plot::bin_seconds(span);
        let bins = span.div_ceil(bin_seconds) as usize;
        let empty = |link: &LinkId| {
            let in_bins = vec![0; bins];
            (
                link.clone(),
                LinkSums {
                    in_bins,
                    ..LinkSums::default()
                },
            )
        };
        SampleSums {
            window,
            bin_seconds,
            bins: vec![Bin::default(); bins],
            links: links.into_iter().map(empty).collect(),
        }
    }

    /// Counts one sample, unless it is of another link or time.
    pub fn add(&mut self, sample: &LinkSample) {
        if !within(sample.at, self.window) {
            return;
        }
        if !self.links.contains_key(&sample.link) {
            return;
        }
        let (active, limit) = (u64::from(sample.active.0), u64::from(sample.limit.0));
        self.add_moved(sample);
        let link = self.links.get_mut(&sample.link).expect("found above");
        let index = bin_of(self.window, self.bin_seconds, sample.at.0 - 1);
        let (Some(bin), Some(of_link)) = (self.bins.get_mut(index), link.in_bins.get_mut(index))
        else {
            return;
        };
        link.samples += 1;
        link.active += active;
        link.limit += limit;
        link.unfed += u64::from(sample.queued > 0 && active < limit);
        *of_link += 1;
        bin.samples += 1;
        bin.active += active;
        bin.limit += limit as f64;
        bin.has_queue |= sample.queued > 0;
        bin.unfed += match sample.queued > 0 {
            true => limit.saturating_sub(active),
            false => 0,
        };
    }

    /// Spreads the bytes of a sample over the time for which it stands.
    fn add_moved(&mut self, sample: &LinkSample) {
        let (from, to) = (self.window.from.0, self.window.to.0);
        let begin = sample.at.0.saturating_sub(SAMPLE_MS).max(from);
        let end = sample.at.0.min(to);
        // Where nothing runs any more, all of it moved before the end of the window; else a part by time.
        let late_ms = (sample.at.0 - end).clamp(0, SAMPLE_MS);
        let moved = match sample.active.0 {
            0 => sample.moved.0,
            _ => part(sample.moved.0, SAMPLE_MS - late_ms, SAMPLE_MS),
        };
        let last = self.bins.len() - 1;
        let bin_ms = i64::try_from(self.bin_seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let (mut at, mut left) = (begin.min(end - 1).max(from), moved);
        while left > 0 {
            let index = bin_of(self.window, self.bin_seconds, at).min(last);
            let bin_end = i64::try_from(index + 1).unwrap_or(i64::MAX);
            let until = from.saturating_add(bin_end.saturating_mul(bin_ms)).min(end);
            let here = match until >= end || index == last {
                true => left,
                false => part(moved, until - at, end - begin).min(left),
            };
            let bin = &mut self.bins[index];
            bin.moved = bin.moved.saturating_add(here);
            bin.is_sampled = true;
            (at, left) = (until, left - here);
        }
    }

    /// How full a link was; `None` without samples.
    pub fn feeding(&self, link: &LinkId) -> Option<LinkFill> {
        let sums = self.links.get(link).filter(|sums| sums.samples > 0)?;
        let samples = sums.samples as f64;
        Some(LinkFill {
            active_mean: sums.active as f64 / samples,
            limit_mean: sums.limit as f64 / samples,
            unfed_percent: sums.unfed as f64 / samples * 100.0,
        })
    }

    /// The mean rate of each bin; `None` when there was no sample at all.
    pub fn rate_over_time(&self, population: &str) -> Option<RateOverTime> {
        if !self.bins.iter().any(|bin| bin.is_known()) {
            return None;
        }
        let rate = |(n, bin): (usize, &Bin)| {
            let moved = bin.is_known().then_some(Bytes(bin.moved))?;
            Some(megabits_per_second(moved, self.seconds_of(n)))
        };
        let links = plural(self.links.len() as u64, "link");
        Some(RateOverTime {
            unit: UNIT,
            population: format!("every transfer on the {links} of: {population}"),
            counted: ByteCount::MovedBytes,
            from: self.window.from,
            bin_seconds: self.bin_seconds,
            megabits_per_second: self.bins.iter().enumerate().map(rate).collect(),
        })
    }

    /// All bins, in order, with the slots of links that had no work for a part of a bin.
    pub fn bins(&self) -> Vec<Bin> {
        let mut bins = self.bins.clone();
        for link in self.links.values().filter(|link| link.samples > 0) {
            let limit_mean = link.limit as f64 / link.samples as f64;
            for (n, bin) in bins
                .iter_mut()
                .enumerate()
                .filter(|(_, bin)| bin.samples > 0)
            {
                let idle_seconds = (self.seconds_of(n) - f64::from(link.in_bins[n])).max(0.0);
                bin.limit += idle_seconds * limit_mean;
            }
        }
        bins
    }

    /// The length of a full bin.
    pub fn bin_seconds(&self) -> u64 {
        self.bin_seconds
    }

    /// Where bin `n` begins.
    pub fn begin_of(&self, n: usize) -> Timestamp {
        let offset = (n as u64)
            .saturating_mul(self.bin_seconds)
            .saturating_mul(1000);
        Timestamp(
            self.window
                .from
                .0
                .saturating_add(i64::try_from(offset).unwrap_or(i64::MAX)),
        )
    }

    /// The length of bin `n` in seconds; the last one may end with the window, before it is full.
    pub fn seconds_of(&self, n: usize) -> f64 {
        let full = self.bin_seconds as f64;
        let left = self.window.seconds() - n as f64 * full;
        match left > 0.0 {
            true => left.min(full),
            false => full,
        }
    }
}

/// The bin of a moment.
fn bin_of(window: Window, bin_seconds: u64, at_ms: i64) -> usize {
    let offset_ms = at_ms.saturating_sub(window.from.0).max(0) as u64;
    (offset_ms / 1000 / bin_seconds) as usize
}

fn part(bytes: u64, ms: i64, of_ms: i64) -> u64 {
    let (ms, of_ms) = (ms.max(0) as u128, of_ms.max(1) as u128);
    u64::try_from(u128::from(bytes) * ms / of_ms).unwrap_or(u64::MAX)
}
