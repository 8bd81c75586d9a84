//! Rate drops, and what they were made of.
//!
//! In each stretch of time the rate is the product of three measured factors: slots allowed × share of them
//! in use × rate per running file. The logarithmic-mean split gives each factor its exact part of a drop,
//! without residual. It tells which factor fell, not why a storage element was slow: that is for the stages
//! and the failures beside it. Where no work was queued the rate says nothing of the links: that is no drop.

use super::sampled::{Bin, SampleSums};
use crate::facts::TransferFacts;
use penstock_model::Timestamp;
use serde::Serialize;

/// A drop is a stretch below this part of the usual rate …
const DROP_BELOW: f64 = 0.7;
/// … for at least this many bins: one bin alone is noise.
const BINS_MIN: usize = 2;

/// A stretch of time in which the rate was well below the usual one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateDrop {
    /// Where it began, to the length of a bin.
    pub from: Timestamp,
    /// Where it ended; the end of the window when it had not ended.
    pub to: Timestamp,
    /// Mean rate of the bins outside all drops.
    pub usual: Factors,
    /// Mean rate inside.
    pub seen: Factors,
    /// The factors that fell, the largest part first. The parts add up to 100 %.
    pub causes: Vec<DropCause>,
    /// Failed attempts of the population in this time.
    pub errors: u64,
}

/// A rate and its factors: `megabits_per_second = limit · in_use · megabits_per_second_per_file`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Factors {
    /// The rate.
    pub megabits_per_second: f64,
    /// Files that were allowed to move at once, over all links.
    pub limit: f64,
    /// The part of them that did, 0 to 1.
    pub in_use: f64,
    /// Rate of one moving file.
    pub megabits_per_second_per_file: f64,
}

/// One part of a drop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DropCause {
    /// Which factor fell.
    pub cause: Cause,
    /// Its part of all that fell, 0 to 100: not by how much it fell, which is between `usual` and `seen`.
    pub share_percent: f64,
}

/// Which factor of the rate fell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Fewer files were allowed to move at once.
    LowerLimit,
    /// Fewer files moved although files waited: the link was not fed.
    NotFed,
    /// Fewer files moved because none waited: nobody asked for more.
    NothingWaited,
    /// Each moving file was slower.
    SlowerFiles,
}

impl Cause {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Cause::LowerLimit => "lower limit of files at once",
            Cause::NotFed => "fewer files at once, although files were queued and slots were free",
            Cause::NothingWaited => "fewer files at once, because none were queued",
            Cause::SlowerFiles => "slower files",
        }
    }
}

/// Finds the drops of a window and splits each into its causes.
pub(super) fn find_drops(sampled: &SampleSums, transfers: &[&TransferFacts]) -> Vec<RateDrop> {
    let bins = sampled.bins();
    let seconds = |n: usize| sampled.seconds_of(n);
    let rate = |(n, bin): (usize, &Bin)| bin.is_known().then(|| bin.moved as f64 / seconds(n));
    let rates: Vec<Option<f64>> = bins.iter().enumerate().map(rate).collect();
    let Some(usual) = median(rates.iter().copied().flatten().collect()).filter(|rate| *rate > 0.0)
    else {
        return Vec::new();
    };
    let low = |rate: &Option<f64>| rate.is_some_and(|rate| rate < usual * DROP_BELOW);
    // Everything starts slowly; what comes before the usual rate was first reached is no drop.
    let begin = rates
        .iter()
        .position(|rate| rate.is_some() && !low(rate))
        .unwrap_or(rates.len());
    let low_rates = find_stretches(&rates, begin, low);
    let outside = (begin..rates.len())
        .filter(|n| !low_rates.iter().any(|(from, to)| (from..to).contains(&n)));
    let baseline = factors(&bins, outside, seconds);
    let is_idle = |n: usize| {
        let (bin, Some(usual)) = (&bins[n], baseline.as_ref()) else {
            return false;
        };
        let of_bin = factors(&bins, [n], seconds);
        let in_use = ratio(bin.active as f64, bin.limit);
        let per_file = of_bin.map_or(0.0, |seen| seen.megabits_per_second_per_file);
        let is_slow = per_file < usual.megabits_per_second_per_file * DROP_BELOW;
        !bin.has_queue && in_use < usual.in_use * DROP_BELOW && !is_slow
    };
    // A stretch ends where nothing is queued any more; there it begins anew only with work.
    let busy: Vec<Option<f64>> = (rates.iter().enumerate())
        .map(|(n, rate)| rate.map(|rate| if is_idle(n) { f64::INFINITY } else { rate }))
        .collect();
    let stretches = find_stretches(&busy, begin, low);
    let errors = |from: Timestamp, to: Timestamp| {
        let times = transfers.iter().flat_map(|transfer| &transfer.errors);
        times.filter(|(at, _)| from <= *at && *at < to).count() as u64
    };
    let explained = |(from, to): &(usize, usize)| {
        let seen = factors(&bins, *from..*to, seconds)?;
        let (from_at, to_at) = (sampled.begin_of(*from), sampled.begin_of(*to));
        let inside = &bins[*from..*to];
        let unfed: u64 = inside.iter().map(|bin| bin.unfed).sum();
        let free: f64 = inside.iter().map(|bin| bin.limit - bin.active as f64).sum();
        Some(RateDrop {
            from: from_at,
            to: to_at,
            usual: baseline?,
            seen,
            causes: split(&baseline?, &seen, unfed as f64 * 2.0 > free),
            errors: errors(from_at, to_at),
        })
    };
    let explained = stretches.iter().filter_map(explained);
    let is_drop = |drop: &RateDrop| {
        let main = drop.causes.first().map(|cause| cause.cause);
        main != Some(Cause::NothingWaited)
    };
    explained.filter(is_drop).collect()
}

/// Runs of low bins, as half-open ranges. A bin without a sample neither begins nor ends one.
fn find_stretches(
    rates: &[Option<f64>],
    begin: usize,
    low: impl Fn(&Option<f64>) -> bool,
) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    let mut run: Option<(usize, usize, usize)> = None;
    for (n, rate) in rates.iter().enumerate().skip(begin) {
        if low(rate) {
            let (from, _, count) = run.unwrap_or((n, n, 0));
            run = Some((from, n + 1, count + 1));
        } else if rate.is_some() {
            found.extend(
                run.take()
                    .filter(|run| run.2 >= BINS_MIN)
                    .map(|(from, to, _)| (from, to)),
            );
        }
    }
    found.extend(
        run.filter(|run| run.2 >= BINS_MIN)
            .map(|(from, to, _)| (from, to)),
    );
    found
}

fn factors(
    bins: &[Bin],
    which: impl IntoIterator<Item = usize>,
    seconds_of: impl Fn(usize) -> f64,
) -> Option<Factors> {
    let mut sum = Bin::default();
    let mut seconds = 0.0;
    for n in which.into_iter().filter(|n| bins[*n].is_known()) {
        sum.moved = sum.moved.saturating_add(bins[n].moved);
        sum.active += bins[n].active;
        sum.limit += bins[n].limit;
        seconds += seconds_of(n);
    }
    let megabits = sum.moved as f64 * 8.0 / 1e6;
    (seconds > 0.0).then(|| Factors {
        megabits_per_second: megabits / seconds,
        limit: sum.limit / seconds,
        in_use: ratio(sum.active as f64, sum.limit),
        megabits_per_second_per_file: ratio(megabits, sum.active as f64),
    })
}

/// The logarithmic-mean split: with R = a·b·c, each factor x takes L(R₁, R₀) · ln(x₁/x₀), which add up to R₁
/// − R₀; in shares the common L cancels. Factors that rose are left out.
fn split(usual: &Factors, seen: &Factors, files_waited: bool) -> Vec<DropCause> {
    let fewer = if files_waited {
        Cause::NotFed
    } else {
        Cause::NothingWaited
    };
    let parts = [
        (Cause::LowerLimit, log_ratio(seen.limit, usual.limit)),
        (fewer, log_ratio(seen.in_use, usual.in_use)),
        (
            Cause::SlowerFiles,
            log_ratio(
                seen.megabits_per_second_per_file,
                usual.megabits_per_second_per_file,
            ),
        ),
    ];
    let fell = parts.into_iter().filter(|(_, part)| *part < 0.0);
    let whole: f64 = fell.clone().map(|(_, part)| part).sum();
    let share = |(cause, part): (Cause, f64)| DropCause {
        cause,
        share_percent: part / whole * 100.0,
    };
    let mut causes: Vec<DropCause> = fell.map(share).collect();
    causes.sort_by(|a, b| b.share_percent.total_cmp(&a.share_percent));
    causes
}

/// ln(seen / usual). A factor that fell to nothing counts as a fall to a billionth, which takes nearly all of
/// the drop.
fn log_ratio(seen: f64, usual: f64) -> f64 {
    if usual <= 0.0 {
        return 0.0;
    }
    (seen.max(usual * 1e-9) / usual).ln()
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
