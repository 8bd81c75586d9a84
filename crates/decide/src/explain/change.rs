//! Where a rate changed: segments of ln(rate), the drops among them, and the periods with which they recur.
//!
//! Looks back over a window ([`stretches_of`]). It knows rates and queues only; why a rate fell is for the rules.

mod rate_rises;
mod segments;

pub use rate_rises::{Rise, rises_of};

use super::signals::{LinkSignals, Series};
use super::split::Factors;
use segments::{segment, sigma};
use std::collections::BTreeSet;
use std::ops::Range;

/// A drop is a stretch below this part of the usual rate …
pub const DROP_BELOW: f64 = 0.7;
/// … for at least this many bins: one bin alone is noise.
pub const DROP_BINS_MIN: usize = 2;
/// A segment of so many bins is a usual rate by itself; a shorter one counts with those before it only.
const USUAL_BINS_MIN: usize = 5;
/// The rate's standard deviation is never taken for less than this part of it.
const SIGMA_MIN: f64 = 0.02;
/// Sums that a processor makes at once.
const SUMS: usize = 8;
/// A link without a queue is idle when it uses fewer than this part of the slots that it uses else.
const BUSY_SHARE_MIN: f64 = 0.85;
/// Slots are left free when files waited for this part of the time in which they were.
pub(super) const UNFED_SHARE_MIN: f64 = 0.3;
/// Periods that are looked for.
const PERIOD_SECONDS: Range<u64> = 3_600..7 * 86_400 + 1;
/// A period counts when it was seen in at least so many cycles …
const CYCLES_MIN: usize = 3;
/// … in this part of all cycles of the window …
const CYCLES_PART_MIN: f64 = 0.75;
/// … and when that is this unlikely by chance …
const CHANCE_MAX: f64 = 1e-3;
/// … or, for a profile of all phases, when it predicts this part of the variance of cycles it was not made of, and
/// the gain of a cycle is this many standard errors from none.
const PROFILE_PART_MIN: f64 = 0.1;
const PROFILE_ERRORS_MIN: f64 = 3.0;

/// A stretch of low rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowRate {
    /// There was work, and it went slower. Without work the rate says nothing of the link.
    pub has_work: bool,
    pub bins: Range<usize>,
    /// The usual bins before it, against which it is low.
    pub baseline: Vec<Range<usize>>,
    /// It recurs with this period, in seconds.
    pub period_seconds: Option<u64>,
}

/// All of a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stretches {
    /// In order.
    pub low: Vec<LowRate>,
    /// Bins with work outside all of them, from where the usual rate was first reached.
    pub usual: Vec<Range<usize>>,
}

/// Finds the stretches of low rate of a link, or of several together.
pub fn stretches_of(link: &LinkSignals, bin_seconds: u32) -> Stretches {
    let moved = &link.copied_bytes;
    let rates: Vec<Option<f64>> = (0..moved.0.len()).map(|bin| moved.at(bin)).collect();
    let all = find(&rates, bin_seconds);
    let is_idle = idle_bins(link, bin_seconds, &all.usual);
    if !is_idle.iter().any(|idle| *idle) {
        return all;
    }
    let busy: Vec<Option<f64>> = rates
        .iter()
        .zip(&is_idle)
        .map(|(rate, idle)| rate.filter(|_| !idle))
        .collect();
    let mut with_work = find(&busy, bin_seconds);
    // A stretch ends where nothing is queued any more.
    with_work.low = with_work
        .low
        .into_iter()
        .flat_map(|low| parts_with_work(low, &is_idle))
        .collect();
    let idle = runs(&is_idle)
        .into_iter()
        .filter(|run| run.len() >= DROP_BINS_MIN);
    let lulls = idle.map(|bins| LowRate {
        has_work: false,
        baseline: before(&with_work.usual, bins.start),
        bins,
        period_seconds: None,
    });
    let is_low = |lull: &LowRate| {
        let rate = |spans: &[Range<usize>]| moved.mean(spans);
        let usual = rate(&lull.baseline);
        usual.is_some_and(|usual| {
            rate(std::slice::from_ref(&lull.bins)).is_none_or(|low| low < usual * DROP_BELOW)
        })
    };
    let lulls: Vec<LowRate> = lulls.filter(is_low).collect();
    with_work.low.extend(lulls);
    with_work.low.sort_by_key(|low| low.bins.start);
    with_work
}

/// Bins in which fewer slots than usual are used, by files as fast as usual, and no file waited while they were free, neither for a
/// slot nor for a tape. Usual is the part of the
/// limit that was used before; where no limit is known, the number. Files that are shorter than the time between two
/// samples are in none: then a bin is idle in which no slot was used and the rate was below the usual one.
fn idle_bins(link: &LinkSignals, bin_seconds: u32, usual: &[Range<usize>]) -> Vec<bool> {
    let Some(factors) = Factors::of(link, bin_seconds, usual) else {
        return Vec::new();
    };
    let per_file = factors.rate_per_file();
    let (fed, usual_active) = (factors.fed(), link.active.mean(usual));
    let moved = &link.copied_bytes;
    let is_idle = |bin: usize| {
        let (Some(queued), Some(active)) = (link.queued.at(bin), link.active.at(bin)) else {
            return false;
        };
        let rate = moved.at(bin).unwrap_or(0.0) / f64::from(bin_seconds.max(1));
        let recalls = link.recalls.at(bin).unwrap_or(0.0);
        let is_silent = queued <= 0.0 && active <= 0.0 && rate < factors.rate * DROP_BELOW;
        if is_silent && recalls <= 0.0 {
            return true;
        }
        let Some(per_file) = per_file else {
            return false;
        };
        let of_limit = link.limit.at(bin).zip(fed).map(|(limit, fed)| limit * fed);
        let Some(busy) = of_limit.or(usual_active) else {
            return false;
        };
        let is_slow = active > 0.0 && rate / active < per_file * DROP_BELOW;
        // Files that come one by one are queued for a moment in nearly each bin.
        let free = busy - active;
        let unfed = link.unfed.at(bin);
        let is_empty = queued <= 0.0 || unfed.is_some_and(|unfed| unfed < free * UNFED_SHARE_MIN);
        let awaits_tape = recalls > 0.0 && recalls >= free * UNFED_SHARE_MIN;
        is_empty && !awaits_tape && active < busy * BUSY_SHARE_MIN && !is_slow
    };
    (0..moved.0.len()).map(is_idle).collect()
}

fn parts_with_work(low: LowRate, is_idle: &[bool]) -> Vec<LowRate> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    for bin in low
        .bins
        .clone()
        .filter(|bin| !is_idle.get(*bin).copied().unwrap_or(false))
    {
        match parts.last_mut().filter(|part| part.end == bin) {
            Some(part) => part.end = bin + 1,
            None => parts.push(bin..bin + 1),
        }
    }
    let whole = |bins: &Range<usize>| bins.len() >= DROP_BINS_MIN;
    parts
        .into_iter()
        .filter(whole)
        .map(|bins| LowRate {
            bins,
            ..low.clone()
        })
        .collect()
}

fn find(rates: &[Option<f64>], bin_seconds: u32) -> Stretches {
    let Some(typical) = median(rates.iter().flatten().copied().filter(|rate| *rate > 0.0)) else {
        return Stretches::default();
    };
    // A rate of 0 has no logarithm; a hundredth of the usual one is as low as it gets.
    let logs: Vec<Option<f64>> = rates
        .iter()
        .map(|rate| rate.map(|rate| (rate.max(0.0) + typical * 0.01).ln()))
        .collect();
    let mut found = find_in(&logs);
    let profiles = profiles(&logs, bin_seconds);
    if !profiles.is_empty() {
        let rest: Vec<Option<f64>> = (0..logs.len())
            .map(|bin| {
                let usual: f64 = profiles.iter().map(|profile| profile.at(bin)).sum();
                Some(logs[bin]? - usual)
            })
            .collect();
        let beyond = find_in(&rest);
        for low in &mut found.low {
            let covered = beyond
                .low
                .iter()
                .map(|other| overlap(&low.bins, &other.bins))
                .max();
            if covered.unwrap_or(0) * 2 < low.bins.len() {
                low.period_seconds = profiles.first().map(|profile| profile.seconds);
            }
        }
        let known = found.low.clone();
        let new = |low: &LowRate| {
            known
                .iter()
                .all(|other| overlap(&low.bins, &other.bins) == 0)
        };
        found.low.extend(beyond.low.into_iter().filter(new));
        found.low.sort_by_key(|low| low.bins.start);
    }
    name_periods(&mut found.low, &logs, bin_seconds);
    found
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> usize {
    one.end
        .min(other.end)
        .saturating_sub(one.start.max(other.start))
}

/// Segments the known bins and takes those well below the usual level before them.
fn find_in(logs: &[Option<f64>]) -> Stretches {
    let known: Vec<usize> = (0..logs.len()).filter(|bin| logs[*bin].is_some()).collect();
    let values: Vec<f64> = logs.iter().flatten().copied().collect();
    let Some(typical) = median(values.iter().copied()) else {
        return Stretches::default();
    };
    let smooth = median_of_three(&values);
    let segments = segment(&smooth, sigma(&values));
    let fall = -DROP_BELOW.ln();
    let mut usual = OrderedValues::default();
    let mut last_usual: Option<f64> = None;
    let mut low: Vec<(Range<usize>, f64)> = Vec::new();
    let mut begin = None;
    for segment in segments {
        let Some(level) = median(smooth[segment.clone()].iter().copied()) else {
            continue;
        };
        // A few bins are no usual rate: at a start they may hold what several files moved at once.
        let is_enough = usual.0.len() >= USUAL_BINS_MIN;
        let baseline = usual
            .median()
            .filter(|_| is_enough)
            .map(|usual| last_usual.map_or(usual, |last| last.max(usual)));
        let Some(baseline) = baseline else {
            // Everything starts slowly; what comes before the usual rate was first reached is no drop.
            if level >= typical - fall {
                begin.get_or_insert(segment.start);
                last_usual = (segment.len() >= USUAL_BINS_MIN).then_some(level);
                usual.extend(&values[segment]);
            }
            continue;
        };
        if level < baseline - fall {
            match low
                .last_mut()
                .filter(|(before, _)| before.end == segment.start)
            {
                Some((before, _)) => before.end = segment.end,
                None => low.push((segment, baseline)),
            }
        } else {
            if segment.len() >= USUAL_BINS_MIN {
                last_usual = Some(level);
            }
            usual.extend(&values[segment]);
        }
    }
    let Some(begin) = begin else {
        return Stretches::default();
    };
    let edges = |(bins, baseline): (Range<usize>, f64)| {
        let is_low = |n: &usize| values[*n] < baseline - fall;
        let inside: Vec<usize> = bins.clone().filter(is_low).collect();
        let (mut first, mut last) = (*inside.first()?, *inside.last()?);
        while first > begin && is_low(&(first - 1)) {
            first -= 1;
        }
        while last + 1 < values.len() && is_low(&(last + 1)) {
            last += 1;
        }
        (inside.len() >= DROP_BINS_MIN).then(|| known[first]..known[last] + 1)
    };
    let bins: Vec<Range<usize>> = low.into_iter().filter_map(edges).collect();
    let is_usual: Vec<bool> = (0..logs.len())
        .map(|bin| {
            logs[bin].is_some() && bin >= known[begin] && !bins.iter().any(|low| low.contains(&bin))
        })
        .collect();
    let usual = runs(&is_usual);
    let stretch = |bins: Range<usize>| LowRate {
        has_work: true,
        baseline: before(&usual, bins.start),
        bins,
        period_seconds: None,
    };
    Stretches {
        low: bins.into_iter().map(stretch).collect(),
        usual,
    }
}

/// The latest usual run before a bin that is long enough to speak for itself; with those before it when none is.
fn before(usual: &[Range<usize>], bin: usize) -> Vec<Range<usize>> {
    let mut taken: Vec<Range<usize>> = Vec::new();
    for run in usual.iter().rev().filter(|run| run.start < bin) {
        taken.insert(0, run.start..run.end.min(bin));
        if taken.iter().map(ExactSizeIterator::len).sum::<usize>() >= USUAL_BINS_MIN * 2 {
            break;
        }
    }
    taken
}

fn runs(flags: &[bool]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for bin in (0..flags.len()).filter(|bin| flags[*bin]) {
        match runs.last_mut().filter(|run| run.end == bin) {
            Some(run) => run.end = bin + 1,
            None => runs.push(bin..bin + 1),
        }
    }
    runs
}

fn median_of_three(values: &[f64]) -> Vec<f64> {
    let n = values.len();
    let middle = |at: usize| match at == 0 || at + 1 == n {
        true => values[at],
        false => {
            let (a, b, c) = (values[at - 1], values[at], values[at + 1]);
            a.max(b).min(a.min(b).max(c))
        }
    };
    (0..n).map(middle).collect()
}

/// The usual course of a period: the median of the same phase, without the level.
struct Profile {
    seconds: u64,
    phases: Vec<f64>,
}

impl Profile {
    fn at(&self, bin: usize) -> f64 {
        self.phases[bin % self.phases.len()]
    }
}

/// The periods that explain a significant part of the variance, each with its profile.
fn profiles(logs: &[Option<f64>], bin_seconds: u32) -> Vec<Profile> {
    let Some(level) = median(logs.iter().flatten().copied()) else {
        return Vec::new();
    };
    let mut rest: Vec<Option<f64>> = logs.iter().map(|log| log.map(|log| log - level)).collect();
    let mut found = Vec::new();
    // Two periods, of a day and of a week or of hours, are what is met.
    for _ in 0..2 {
        let periods = candidate_periods(&rest, bin_seconds);
        let gains: Vec<(usize, f64)> = periods
            .into_iter()
            .filter_map(|period| Some((period, explained_part(&rest, period)?)))
            .collect();
        let Some(best) = gains.iter().map(|(_, gain)| *gain).reduce(f64::max) else {
            break;
        };
        // Multiples of a period explain as much: the shortest is the period.
        let Some((period, _)) = gains.into_iter().find(|(_, gain)| *gain >= best * 0.9) else {
            break;
        };
        let phases: Vec<f64> = (0..period)
            .map(|phase| phase_median(&rest, period, phase))
            .collect();
        for (bin, value) in rest.iter_mut().enumerate() {
            *value = value.map(|value| value - phases[bin % period]);
        }
        found.push(Profile {
            seconds: period as u64 * u64::from(bin_seconds),
            phases,
        });
    }
    found
}

/// Lags at which the series resembles itself more than at lags around them.
fn candidate_periods(values: &[Option<f64>], bin_seconds: u32) -> Vec<usize> {
    let bins = |seconds: u64| {
        usize::try_from(seconds.div_ceil(u64::from(bin_seconds.max(1)))).unwrap_or(usize::MAX)
    };
    let (shortest, longest) = (bins(PERIOD_SECONDS.start), bins(PERIOD_SECONDS.end - 1));
    let longest = longest.min(values.len() / CYCLES_MIN);
    if shortest < 4 || longest < shortest {
        return Vec::new();
    }
    let plain: Vec<f64> = values.iter().map(|value| value.unwrap_or(0.0)).collect();
    let own: f64 = plain.iter().map(|value| value * value).sum();
    if own <= 0.0 {
        return Vec::new();
    }
    let likeness = |lag: usize| {
        product_sum(&plain[lag..], &plain) / own * plain.len() as f64 / (plain.len() - lag) as f64
    };
    let likenesses: Vec<f64> = (shortest - 1..=longest + 1).map(likeness).collect();
    let near = (shortest / 4).max(1);
    let is_peak = |n: &usize| {
        let around = n.saturating_sub(near)..(n + near + 1).min(likenesses.len());
        likenesses[*n] > 0.1
            && likenesses[around]
                .iter()
                .all(|other| *other <= likenesses[*n])
    };
    (1..likenesses.len() - 1)
        .filter(is_peak)
        .map(|n| n + shortest - 1)
        .take(64)
        .collect()
}

/// The sum of the products of two series, as long as the shorter one. Several sums at once, because each has to wait for itself.
fn product_sum(one: &[f64], other: &[f64]) -> f64 {
    let length = one.len().min(other.len());
    let (ones, one) = one[..length].as_chunks::<SUMS>();
    let (others, other) = other[..length].as_chunks::<SUMS>();
    let mut sums = [0.0; SUMS];
    for (one, other) in ones.iter().zip(others) {
        for (sum, (one, other)) in sums.iter_mut().zip(one.iter().zip(other)) {
            *sum += one * other;
        }
    }
    let rest: f64 = one.iter().zip(other).map(|(one, other)| one * other).sum();
    sums.iter().sum::<f64>() + rest
}

/// The part of the variance of each cycle that the other cycles predict; `None` when that is not significant.
fn explained_part(values: &[Option<f64>], period: usize) -> Option<f64> {
    let cycles = values.len() / period;
    if cycles < CYCLES_MIN {
        return None;
    }
    let mut gains = vec![0.0; cycles];
    let mut whole = 0.0;
    let mut ordered: Vec<f64> = Vec::new();
    for phase in 0..period {
        ordered.clear();
        let of_phase = values.iter().skip(phase).step_by(period).flatten();
        ordered.extend(of_phase.filter(|value| value.is_finite()));
        ordered.sort_unstable_by(f64::total_cmp);
        for (cycle, gain) in gains.iter_mut().enumerate() {
            let Some(value) = values[cycle * period + phase] else {
                continue;
            };
            let rest = value - median_without(&ordered, value);
            *gain += value * value - rest * rest;
            whole += value * value;
        }
    }
    let mean = gains.iter().sum::<f64>() / cycles as f64;
    let squares: f64 = gains.iter().map(|gain| (gain - mean).powi(2)).sum();
    let error = (squares / (cycles - 1) as f64 / cycles as f64).sqrt();
    let part = mean * cycles as f64 / whole;
    (part >= PROFILE_PART_MIN && mean > PROFILE_ERRORS_MIN * error).then_some(part)
}

/// The median of ordered values without one of them; 0 when there is no other.
fn median_without(ordered: &[f64], value: f64) -> f64 {
    let place = ordered.partition_point(|other| other.total_cmp(&value).is_lt());
    let middle = ordered.len().saturating_sub(1) / 2;
    let middle = middle + usize::from(place <= middle);
    ordered.get(middle).copied().unwrap_or(0.0)
}

fn phase_median(values: &[Option<f64>], period: usize, phase: usize) -> f64 {
    let of_phase = values.iter().skip(phase).step_by(period);
    median(of_phase.flatten().copied()).unwrap_or(0.0)
}

/// Names the period of stretches that come at the same phase of most cycles.
fn name_periods(low: &mut [LowRate], logs: &[Option<f64>], bin_seconds: u32) {
    let middles: Vec<usize> = low
        .iter()
        .map(|low| (low.bins.start + low.bins.end) / 2)
        .collect();
    let mut periods = BTreeSet::new();
    for (n, first) in middles.iter().enumerate().take(200) {
        for later in middles[n + 1..].iter().take(8) {
            let seconds = (later - first) as u64 * u64::from(bin_seconds);
            if PERIOD_SECONDS.contains(&seconds) {
                periods.insert(later - first);
            }
        }
    }
    for period in periods {
        for first in 0..middles.len() {
            let of_period = members(&middles, middles[first], period, logs);
            for member in of_period {
                let seconds = (period as u64 * u64::from(bin_seconds) + 30) / 60 * 60;
                let known = low[member].period_seconds;
                low[member].period_seconds =
                    Some(known.map_or(seconds, |known| known.min(seconds)));
            }
        }
    }
}

/// The stretches that lie whole periods from `anchor`; none when that may be by chance.
fn members(middles: &[usize], anchor: usize, period: usize, logs: &[Option<f64>]) -> Vec<usize> {
    let tolerance = (period / 100).max(2);
    let distance = |middle: usize| {
        let phase = (middle + period * (anchor / period + 1) - anchor) % period;
        phase.min(period - phase)
    };
    let members: Vec<usize> = (0..middles.len())
        .filter(|n| distance(middles[*n]) <= tolerance)
        .collect();
    let at_phase = (anchor % period..logs.len()).step_by(period);
    let cycles = at_phase.filter(|bin| logs[*bin].is_some()).count();
    let density = middles.len() as f64 * (2 * tolerance + 1) as f64 / logs.len() as f64;
    let is_often =
        members.len() >= CYCLES_MIN && members.len() as f64 >= cycles as f64 * CYCLES_PART_MIN;
    let chance = density.min(1.0).powi(members.len() as i32 - 1);
    if is_often && chance < CHANCE_MAX {
        members
    } else {
        Vec::new()
    }
}

/// Values in their order, because the median is asked for after each segment.
#[derive(Debug, Default)]
struct OrderedValues(Vec<f64>);

impl OrderedValues {
    fn extend(&mut self, values: &[f64]) {
        for value in values.iter().filter(|value| value.is_finite()) {
            let place = self
                .0
                .partition_point(|known| known.total_cmp(value).is_lt());
            self.0.insert(place, *value);
        }
    }

    /// As [`median`] has it.
    fn median(&self) -> Option<f64> {
        self.0.get(self.0.len() / 2).copied()
    }
}

pub(super) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    let (_, median, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    Some(*median)
}

#[cfg(test)]
mod tests;
