//! Folds samples into what a report tells of them: the rate in equal bins, and how full each link was.
//!
//! Takes one sample at a time, so that a week of them needs no more memory than a minute.

use super::{Feeding, RateOverTime, plural, within};
use crate::plot;
use crate::rate::{Counted, UNIT, Window, megabits_per_second};
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
}

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
pub(super) struct Sampled {
    window: Window,
    bin_seconds: u64,
    bins: Vec<Bin>,
    links: BTreeMap<LinkId, LinkSums>,
}

impl Sampled {
    /// Will count the samples of `links` inside `window`.
    pub fn new<'a>(window: Window, links: impl IntoIterator<Item = &'a LinkId>) -> Sampled {
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
        Sampled {
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
        let Some(link) = self.links.get_mut(&sample.link) else {
            return;
        };
        let (active, limit) = (u64::from(sample.active.0), u64::from(sample.limit.0));
        link.samples += 1;
        link.active += active;
        link.limit += limit;
        link.unfed += u64::from(sample.queued > 0 && active < limit);
        // A sample tells of the second that ends with it, hence the step back into it.
        let offset_ms = sample
            .at
            .0
            .saturating_sub(1)
            .saturating_sub(self.window.from.0)
            .max(0) as u64;
        let index = (offset_ms / 1000 / self.bin_seconds) as usize;
        if let (Some(bin), Some(of_link)) = (self.bins.get_mut(index), link.in_bins.get_mut(index))
        {
            *of_link += 1;
            bin.samples += 1;
            bin.moved = bin.moved.saturating_add(sample.moved.0);
            bin.active += active;
            bin.limit += limit as f64;
            bin.unfed += if sample.queued > 0 {
                limit.saturating_sub(active)
            } else {
                0
            };
        }
    }

    /// How full a link was; `None` without samples.
    pub fn feeding(&self, link: &LinkId) -> Option<Feeding> {
        let sums = self.links.get(link).filter(|sums| sums.samples > 0)?;
        let samples = sums.samples as f64;
        Some(Feeding {
            active_mean: sums.active as f64 / samples,
            limit_mean: sums.limit as f64 / samples,
            unfed_percent: sums.unfed as f64 / samples * 100.0,
        })
    }

    /// The mean rate of each bin; `None` when there was no sample at all.
    pub fn rate_over_time(&self, population: &str) -> Option<RateOverTime> {
        if self.bins.iter().all(|bin| bin.samples == 0) {
            return None;
        }
        let rate = |(n, bin): (usize, &Bin)| {
            let moved = (bin.samples > 0).then_some(Bytes(bin.moved))?;
            Some(megabits_per_second(moved, self.seconds_of(n)))
        };
        let links = plural(self.links.len(), "link");
        Some(RateOverTime {
            unit: UNIT,
            population: format!("every transfer on the {links} of: {population}"),
            counted: Counted::MovedBytes,
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
        left.clamp(1.0, full)
    }
}
