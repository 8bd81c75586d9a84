//! Rate over time per link and in total, second by second, from samples; 15 minutes at most. Longer windows are
//! [`crate::rate_curve`].
//!
//! A bounded ring that is fed samples in the order of time. It knows nothing of where they come from.

use penstock_model::{LinkId, LinkSample, Timestamp};
use serde::Serialize;
use std::collections::BTreeMap;

/// How far back the ring reaches.
pub const SECONDS_MAX: i64 = 900;
/// Links told apart in one second; the bytes of further ones count only in the total.
pub const LINKS_MAX: usize = 256;
/// Of each rate in a [`Snapshot`].
pub(crate) const UNIT: &str = "bytes per second";
/// Whose bytes a [`Snapshot`] counts.
pub(crate) const POPULATION: &str =
    "all bytes that moved on the links of this service, also of attempts that fail later";
/// A sample tells of the time since the link's sample before it, but never of more than this.
const SAMPLE_MS_MAX: i64 = 2500;
/// Assumed for the first sample of a link.
const SAMPLE_MS: i64 = 1000;

/// What one link did in one second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Point {
    moved: u64,
    active: u32,
    limit: u32,
    queued: u64,
}

#[derive(Debug, Clone, Default)]
struct Second {
    moved: u64,
    links: BTreeMap<LinkId, Point>,
}

/// The ring. Each second holds the bytes that moved in it, whole seconds of the wall clock.
#[derive(Debug, Clone, Default)]
pub struct RateSeries {
    /// By the number of the second since 1970.
    seconds: BTreeMap<i64, Second>,
    last_of_link: BTreeMap<LinkId, Timestamp>,
    newest: Option<Timestamp>,
}

/// A piece of the series, ready for JSON. All lists of one snapshot are equally long; entry `n` belongs to
/// the step that begins at `from + n · step_seconds`. `null`: nothing is known of that step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Snapshot {
    /// Always `bytes per second`.
    pub unit: &'static str,
    /// Whose bytes.
    pub population: &'static str,
    /// Length of each step.
    pub step_seconds: i64,
    /// Where the first step begins, milliseconds since 1970.
    pub from: Timestamp,
    /// Where the last step ends.
    pub to: Timestamp,
    /// All links together, also those that are not listed.
    pub total: Vec<Option<u64>>,
    /// Each link, by name.
    pub links: Vec<LinkSeries>,
}

/// One link in a [`Snapshot`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkSeries {
    #[serde(flatten)]
    pub link: LinkId,
    /// Bytes per second.
    pub rates: Vec<Option<u64>>,
    /// Transfers running at the end of the second.
    pub active: Vec<Option<u32>>,
    /// How many may run.
    pub limit: Vec<Option<u32>>,
    /// Transfers waiting.
    pub queued: Vec<Option<u64>>,
}

impl RateSeries {
    /// Empty.
    pub fn new() -> RateSeries {
        RateSeries::default()
    }

    /// The time of the newest sample taken.
    pub fn newest(&self) -> Option<Timestamp> {
        self.newest
    }

    /// Takes one sample. Its bytes are spread over the time since the sample before it, so that a sampler
    /// that is a little late draws no dip. Samples older than the ring, and repeated ones, are ignored.
    pub fn push(&mut self, sample: &LinkSample) {
        let at = sample.at.0;
        let newest = self.newest.map_or(at, |newest| newest.0.max(at));
        let before = self.last_of_link.get(&sample.link).map(|last| last.0);
        let repeated = before.is_some_and(|before| at <= before);
        if repeated || at <= newest - SECONDS_MAX * 1000 {
            return;
        }
        let begin = before
            .filter(|before| at - before <= SAMPLE_MS_MAX)
            .unwrap_or(at - SAMPLE_MS);
        for (second, moved) in spread(begin, at, sample.moved.0) {
            self.add(second, moved, sample);
        }
        self.last_of_link.insert(sample.link.clone(), sample.at);
        self.newest = Some(Timestamp(newest));
        self.forget_before(newest.div_euclid(1000) - SECONDS_MAX);
    }

    fn add(&mut self, second: i64, moved: u64, sample: &LinkSample) {
        let slot = self.seconds.entry(second).or_default();
        slot.moved = slot.moved.saturating_add(moved);
        if slot.links.len() >= LINKS_MAX && !slot.links.contains_key(&sample.link) {
            return;
        }
        let point = slot.links.entry(sample.link.clone()).or_default();
        point.moved = point.moved.saturating_add(moved);
        point.active = sample.active.0;
        point.limit = sample.limit.0;
        point.queued = sample.queued;
    }

    fn forget_before(&mut self, oldest: i64) {
        while let Some(entry) = self.seconds.first_entry()
            && *entry.key() < oldest
        {
            entry.remove();
        }
        if self.last_of_link.len() > LINKS_MAX {
            self.last_of_link
                .retain(|_, last| last.0.div_euclid(1000) >= oldest);
        }
    }

    /// The seconds that ended after `after` and not after `now`; only those that are complete, because a
    /// sample of a later moment has been taken or because none can come any more.
    pub fn snapshot(&self, after: Timestamp, now: Timestamp) -> Snapshot {
        let settled = Timestamp(now.0.saturating_sub(SAMPLE_MS_MAX));
        let end = self
            .newest
            .map_or(settled, |newest| newest.min(now).max(settled))
            .0
            .div_euclid(1000);
        let oldest = end - SECONDS_MAX;
        let begin = after.0.saturating_add(999).div_euclid(1000);
        let begin = begin.max(oldest).min(end);
        self.seconds_between(begin, end)
    }

    /// The seconds from that of one time up to that of another, of a window that is over.
    pub fn snapshot_between(&self, from: Timestamp, to: Timestamp) -> Snapshot {
        let end = to.0.div_euclid(1000);
        let begin = from.0.div_euclid(1000).clamp(end - SECONDS_MAX, end);
        self.seconds_between(begin, end)
    }

    fn seconds_between(&self, begin: i64, end: i64) -> Snapshot {
        let within = || self.seconds.range(begin..end);
        let length = usize::try_from(end - begin).unwrap_or(0);
        let mut total = vec![None; length];
        let mut links: BTreeMap<&LinkId, LinkSeries> = BTreeMap::new();
        for (second, slot) in within() {
            let index = usize::try_from(second - begin).unwrap_or(0);
            total[index] = Some(slot.moved);
            for (link, point) in &slot.links {
                let series = links
                    .entry(link)
                    .or_insert_with(|| LinkSeries::unknown(link, length));
                series.rates[index] = Some(point.moved);
                series.active[index] = Some(point.active);
                series.limit[index] = Some(point.limit);
                series.queued[index] = Some(point.queued);
            }
        }
        Snapshot {
            unit: UNIT,
            population: POPULATION,
            step_seconds: 1,
            from: Timestamp(begin * 1000),
            to: Timestamp(end * 1000),
            total,
            links: links.into_values().collect(),
        }
    }
}

impl LinkSeries {
    fn unknown(link: &LinkId, length: usize) -> LinkSeries {
        LinkSeries {
            link: link.clone(),
            rates: vec![None; length],
            active: vec![None; length],
            limit: vec![None; length],
            queued: vec![None; length],
        }
    }
}

/// Shares `moved` among the seconds between two times in milliseconds, by time; the last one takes the
/// remainder, so that no byte is lost or made.
fn spread(begin: i64, end: i64, moved: u64) -> Vec<(i64, u64)> {
    let span = u128::try_from(end - begin).unwrap_or(1).max(1);
    let mut shares = Vec::new();
    let mut left = moved;
    let mut from = begin;
    while from < end {
        let second = from.div_euclid(1000);
        let to = ((second + 1) * 1000).min(end);
        let part = u128::try_from(to - from).unwrap_or(0) * u128::from(moved) / span;
        let part = if to == end {
            left
        } else {
            u64::try_from(part).unwrap_or(left).min(left)
        };
        left -= part;
        shares.push((second, part));
        from = to;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Bytes, Slots, StorageId};
    use proptest::prelude::*;

    fn sample(at: i64, link: &str, moved: u64) -> LinkSample {
        LinkSample {
            at: Timestamp(at),
            link: LinkId {
                source: StorageId::new(format!("https://{link}")),
                destination: StorageId::new("https://in2p3"),
            },
            moved: Bytes(moved),
            active: Slots(3),
            limit: Slots(10),
            queued: 7,
        }
    }

    fn totals(samples: &[LinkSample]) -> Vec<Option<u64>> {
        let mut series = RateSeries::new();
        samples.iter().for_each(|sample| series.push(sample));
        let now = series.newest().unwrap_or_default();
        series.snapshot(Timestamp(0), now).total
    }

    #[test]
    fn a_sampler_that_is_a_little_late_draws_no_dip() {
        let late = [1000, 2000, 3300, 4300, 5300, 6000];
        let mut before = 0;
        let samples: Vec<LinkSample> = late
            .into_iter()
            .map(|at| {
                let moved = (at - before) as u64;
                before = at;
                sample(at, "cern", moved)
            })
            .collect();
        assert_eq!(totals(&samples), vec![Some(1000); 6]);
    }

    #[test]
    fn a_second_without_a_sample_is_unknown_and_not_zero() {
        let samples = [sample(1000, "cern", 10), sample(8000, "cern", 20)];
        let expected = vec![Some(10), None, None, None, None, None, None, Some(20)];
        assert_eq!(totals(&samples), expected);
    }

    #[test]
    fn a_second_that_is_not_over_is_not_shown() {
        assert_eq!(
            totals(&[sample(1000, "cern", 10), sample(1500, "cern", 20)]),
            vec![Some(10)]
        );
    }

    #[test]
    fn time_goes_on_while_nothing_is_sampled() {
        let mut series = RateSeries::new();
        series.push(&sample(1000, "cern", 10));
        let later = series.snapshot(Timestamp(0), Timestamp(9_000));
        assert_eq!(later.to, Timestamp(6_000));
        assert_eq!(later.total, [Some(10), None, None, None, None, None]);
    }

    #[test]
    fn a_sample_that_comes_twice_counts_once() {
        let one = sample(1000, "cern", 10);
        assert_eq!(totals(&[one.clone(), one]), vec![Some(10)]);
    }

    #[test]
    fn the_ring_forgets_what_is_older_than_a_quarter_of_an_hour() {
        let mut series = RateSeries::new();
        (1..=5000).for_each(|second| series.push(&sample(second * 1000, "cern", 1)));
        assert!(series.seconds.len() as i64 <= SECONDS_MAX + 1);
        let snapshot = series.snapshot(Timestamp(0), Timestamp(5_000_000));
        assert_eq!(snapshot.total.len() as i64, SECONDS_MAX);
        assert_eq!(snapshot.to, Timestamp(5_000_000));
    }

    proptest! {
        #[test]
        fn bytes_are_neither_lost_nor_made(
            steps in proptest::collection::vec((1i64..4000, 0u64..1_000_000_000), 1..100),
        ) {
            let mut at = 1_000_000;
            let samples: Vec<LinkSample> = steps
                .iter()
                .map(|(step, moved)| {
                    at += step;
                    sample(at, "cern", *moved)
                })
                .collect();
            let mut series = RateSeries::new();
            samples.iter().for_each(|sample| series.push(sample));
            let ring: u64 = series.seconds.values().map(|second| second.moved).sum();
            prop_assert_eq!(ring, steps.iter().map(|(_, moved)| moved).sum::<u64>());
        }
    }
}
