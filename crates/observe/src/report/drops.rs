//! Rate drops of a report, and what they were made of: slots allowed × share of them in use × rate per running file.
//!
//! Found and split by `decide::explain`; here they get the report's unit and words. Why a storage element was slow is
//! for the rules there, and for the stages and failures beside it in the report.

use super::sampled::{Bin, SampleSums};
use crate::facts::TransferFacts;
use penstock_decide::explain::change::stretches_of;
use penstock_decide::explain::signals::{LinkSignals, Series};
use penstock_decide::explain::split::{self, Factor};
use penstock_model::Timestamp;
use serde::Serialize;

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
    pub cause: FallenFactor,
    /// Its part of all that fell, 0 to 100: not by how much it fell, which is between `usual` and `seen`.
    pub share_percent: f64,
}

/// Which factor of the rate fell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FallenFactor {
    /// Fewer files were allowed to move at once.
    LowerLimit,
    /// Fewer files moved although files waited: the link was not fed.
    NotFed,
    /// Fewer files moved because none waited: nobody asked for more.
    NothingWaited,
    /// Each moving file was slower.
    SlowerFiles,
}

impl FallenFactor {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            FallenFactor::LowerLimit => "lower limit of files at once",
            FallenFactor::NotFed => {
                "fewer files at once, although files were queued and slots were free"
            }
            FallenFactor::NothingWaited => "fewer files at once, because none were queued",
            FallenFactor::SlowerFiles => "slower files",
        }
    }
}

/// Finds the drops of a window and splits each into its causes.
pub(super) fn find_drops(sampled: &SampleSums, transfers: &[&TransferFacts]) -> Vec<RateDrop> {
    let bins = sampled.bins();
    let bin_seconds = u32::try_from(sampled.bin_seconds()).unwrap_or(u32::MAX);
    let found = stretches_of(&signals_of(sampled, &bins), bin_seconds);
    let seconds = |n: usize| sampled.seconds_of(n);
    let usual = factors(&bins, found.usual.into_iter().flatten(), seconds);
    let errors = |from: Timestamp, to: Timestamp| {
        let times = transfers.iter().flat_map(|transfer| &transfer.errors);
        times.filter(|(at, _)| from <= *at && *at < to).count() as u64
    };
    let drops = found.low.into_iter().filter(|low| low.has_work);
    let explained = drops.filter_map(|low| {
        let (usual, seen) = (usual?, factors(&bins, low.bins.clone(), seconds)?);
        let (from, to) = (
            sampled.begin_of(low.bins.start),
            sampled.begin_of(low.bins.end),
        );
        let inside = &bins[low.bins];
        let unfed: u64 = inside.iter().map(|bin| bin.unfed).sum();
        let free: f64 = inside.iter().map(|bin| bin.limit - bin.active as f64).sum();
        let fewer = match unfed as f64 * 2.0 > free {
            true => FallenFactor::NotFed,
            false => FallenFactor::NothingWaited,
        };
        Some(RateDrop {
            from,
            to,
            usual,
            seen,
            causes: causes(&usual, &seen, fewer),
            errors: errors(from, to),
        })
    });
    let is_drop = |drop: &RateDrop| {
        let main = drop.causes.first().map(|cause| cause.cause);
        main != Some(FallenFactor::NothingWaited)
    };
    explained.filter(is_drop).collect()
}

/// The bins as the explainer takes them. The last one may be shorter; its sums are those of a full one.
fn signals_of(sampled: &SampleSums, bins: &[Bin]) -> LinkSignals {
    let full = sampled.bin_seconds() as f64;
    let column = |value: &dyn Fn(&Bin, f64) -> f64| {
        let known =
            |(n, bin): (usize, &Bin)| bin.is_known().then(|| value(bin, sampled.seconds_of(n)));
        Series(bins.iter().enumerate().map(known).collect())
    };
    LinkSignals {
        copied_bytes: column(&|bin, seconds| bin.moved as f64 * full / seconds),
        active: column(&|bin, seconds| bin.active as f64 / seconds),
        limit: column(&|bin, seconds| bin.limit / seconds),
        queued: column(&|bin, _| f64::from(u8::from(bin.has_queue))),
        unfed: column(&|bin, seconds| bin.unfed as f64 / seconds),
        ..LinkSignals::default()
    }
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

/// The factors that fell, with their shares. Factors that rose are left out.
fn causes(usual: &Factors, seen: &Factors, fewer: FallenFactor) -> Vec<DropCause> {
    let measured = |factors: &Factors| split::Factors {
        rate: factors.megabits_per_second,
        limit: Some(factors.limit),
        active: Some(factors.in_use * factors.limit),
        moving_share: None,
        success: None,
    };
    let cause = |factor: &Factor| match factor {
        Factor::Limit => FallenFactor::LowerLimit,
        Factor::Fed => fewer,
        Factor::StageRate | Factor::MovingShare | Factor::Success => FallenFactor::SlowerFiles,
    };
    let parts = split::split(&measured(usual), &measured(seen));
    let falls = split::falls(&parts).into_iter();
    falls
        .filter_map(|(part, share)| {
            let cause = cause(part.factors.first()?);
            Some(DropCause {
                cause,
                share_percent: share * 100.0,
            })
        })
        .collect()
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
