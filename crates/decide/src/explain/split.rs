//! The exact split of a change of the rate into its factors.
//!
//! R = limit · fed · stage rate · moving share · success. Each factor x takes L(R₁, R₀) · ln(x₁/x₀), where L is the
//! logarithmic mean; these parts add up to R₁ − R₀ without residual. It says which factor fell, not why.

use super::signals::LinkSignals;
use serde::Serialize;
use std::ops::Range;

/// A factor of the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Factor {
    /// How many files may move at once.
    Limit,
    /// The part of these slots that is in use.
    Fed,
    /// Bytes per second of a file while its bytes move.
    StageRate,
    /// The part of a slot's time in which bytes move: falls when files are small or operations slow.
    MovingShare,
    /// The part of the bytes that are not of failed attempts.
    Success,
}

/// The factors, as far as they are known, and the rate in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Factors {
    /// Bytes per second that count: those of failed attempts do not, where they are known.
    pub rate: f64,
    /// Files that may move at once.
    pub limit: Option<f64>,
    /// Files that do.
    pub active: Option<f64>,
    /// The part of the slots' time in which bytes move.
    pub moving_share: Option<f64>,
    /// The part of the bytes that count.
    pub success: Option<f64>,
}

/// A factor that falls to nothing counts as a fall to this part, which takes nearly all of a drop.
const NOTHING: f64 = 1e-9;
/// A failed attempt that moved a smaller part of what a copied file has is no matter of bytes.
const FAILED_PART_MIN: f64 = 0.1;
/// Logarithms whose sum is a smaller part of their magnitudes cancel: no scale follows from them.
const CANCELED: f64 = 0.01;

/// One part of a change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Which factor; several when their product is all that is known.
    pub factors: Vec<Factor>,
    pub from: f64,
    /// What it became.
    pub to: f64,
    /// Bytes per second of the change that it makes.
    pub change: f64,
}

impl Factors {
    /// Measured over some bins; `None` when the bytes are not known.
    pub fn of(link: &LinkSignals, bin_seconds: u32, spans: &[Range<usize>]) -> Option<Factors> {
        let seconds = f64::from(bin_seconds.max(1));
        let rate = link.copied_bytes.mean(spans)? / seconds;
        let failed = link.failed_bytes.mean(spans).map(|bytes| bytes / seconds);
        let active = link.active.mean(spans);
        let ended = link.failed_attempts().mean(spans);
        let finished = link.finished_files.mean(spans);
        // Attempts that failed before they moved much held slots: bytes do not tell what they took.
        let files = finished.filter(|files| *files > 0.0);
        let of_attempts = ended.filter(|ended| *ended > 0.0).zip(files);
        let tells_of_failures = |failed: f64| {
            of_attempts
                .is_none_or(|(ended, files)| failed / ended >= FAILED_PART_MIN * rate / files)
        };
        let failed = failed.filter(|failed| tells_of_failures(*failed));
        let success = failed.map(|failed| match rate + failed > 0.0 {
            true => rate / (rate + failed),
            false => 1.0,
        });
        let moving_share = (|| {
            let attempts = finished? + ended.unwrap_or(0.0);
            let slot_seconds = active.filter(|active| *active > 0.0)? * seconds;
            let idle = attempts * link.overhead_seconds.mean(spans)? / slot_seconds;
            // Slots that ended within the bin were in no sample of it: more overhead than time is a rounding.
            Some((1.0 - idle).clamp(0.02, 1.0))
        })();
        Some(Factors {
            rate,
            limit: link.limit.mean(spans),
            active,
            moving_share,
            success,
        })
    }

    /// The product form of it, factors that cannot be told apart merged. What only one of the two knows is merged, too.
    fn product(&self, other: &Factors) -> Vec<(Vec<Factor>, f64)> {
        let both = |mine: Option<f64>, theirs: Option<f64>| mine.filter(|_| theirs.is_some());
        let active = both(self.active, other.active);
        // A limit of 0 tells nothing of the slots in use: on either side, it is merged with them.
        let some = |limit: Option<f64>| limit.filter(|limit| *limit > 0.0);
        let limit = both(some(self.limit), some(other.limit));
        let moving_share = both(self.moving_share, other.moving_share);
        let success = both(self.success, other.success);
        let mut product = Vec::new();
        let mut rest = vec![Factor::StageRate];
        let mut known = 1.0;
        match (active, limit) {
            (Some(active), Some(limit)) => {
                product.push((vec![Factor::Limit], limit));
                product.push((vec![Factor::Fed], active / limit));
                known *= active;
            }
            (Some(active), None) => {
                product.push((vec![Factor::Limit, Factor::Fed], active));
                known *= active;
            }
            (None, Some(limit)) => {
                product.push((vec![Factor::Limit], limit));
                rest.insert(0, Factor::Fed);
                known *= limit;
            }
            (None, None) => rest
                .splice(0..0, [Factor::Limit, Factor::Fed])
                .for_each(drop),
        }
        let mut add = |factor: Factor, value: Option<f64>| match value {
            Some(value) => {
                product.push((vec![factor], value));
                known *= value;
            }
            None => rest.push(factor),
        };
        add(Factor::MovingShare, moving_share);
        add(Factor::Success, success);
        // What is left of the rate is the one factor that is not measured by itself.
        let left = if known > 0.0 { self.rate / known } else { 0.0 };
        product.push((rest, left));
        product
    }

    /// Bytes per second of one file that runs.
    pub fn rate_per_file(&self) -> Option<f64> {
        self.active
            .filter(|active| *active > 0.0)
            .map(|active| self.rate / active)
    }

    /// The part of the slots in use.
    pub fn fed(&self) -> Option<f64> {
        let limit = self.limit.filter(|limit| *limit > 0.0)?;
        Some(self.active? / limit)
    }
}

/// Splits the change from `from` to `to`. The parts add up to it.
pub fn split(from: &Factors, to: &Factors) -> Vec<Part> {
    let mut before = from.product(to);
    let mut after = to.product(from);
    keep_unmeasured(&mut before, &mut after);
    let pairs = || before.iter().zip(&after);
    let logs: Vec<f64> = pairs()
        .map(|((_, from), (_, to))| log_ratio(*from, *to))
        .collect();
    let is_positive = pairs().all(|((_, from), (_, to))| *from > 0.0 && *to > 0.0);
    let scale = scale(from.rate, to.rate, &logs, is_positive);
    let mut changes: Vec<f64> = logs.iter().map(|log| scale * log).collect();
    // What rounding leaves over, and all of a change that no scale can tell, is of the factor that is not measured.
    let rest = to.rate - from.rate - changes.iter().sum::<f64>();
    if let Some(last) = changes.last_mut() {
        *last += rest;
    }
    let parts = before.into_iter().zip(after).zip(changes);
    parts
        .map(|(((factors, from), (_, to)), change)| Part {
            factors,
            from,
            to,
            change,
        })
        .collect()
}

/// Where no file moves, nothing is known of the rate of each: it counts as what it was on the other side.
fn keep_unmeasured(before: &mut [(Vec<Factor>, f64)], after: &mut [(Vec<Factor>, f64)]) {
    let is_unmeasured = |product: &[(Vec<Factor>, f64)]| {
        let measured = product.split_last().map_or(product, |(_, others)| others);
        measured.iter().any(|(_, value)| *value <= 0.0)
    };
    let (no_before, no_after) = (is_unmeasured(before), is_unmeasured(after));
    if let (Some((_, from)), Some((_, to))) = (before.last_mut(), after.last_mut()) {
        match (no_before, no_after) {
            (false, true) => *to = *from,
            (true, false) => *from = *to,
            (true, true) | (false, false) => {}
        }
    }
}

/// Bytes per second for each unit of ln: the logarithmic mean of the rates. A factor that is 0 on one side (no files at
/// once: no rate per file) has no logarithm; the change is then divided by the bounded logarithms, unless they cancel.
fn scale(from: f64, to: f64, logs: &[f64], is_positive: bool) -> f64 {
    if is_positive {
        return logarithmic_mean(from, to);
    }
    let sum: f64 = logs.iter().sum();
    let all: f64 = logs.iter().map(|log| log.abs()).sum();
    match sum.abs() > CANCELED * all {
        true => (to - from) / sum,
        false => 0.0,
    }
}

fn logarithmic_mean(one: f64, other: f64) -> f64 {
    match (other / one - 1.0).abs() < 1e-6 {
        true => (one + other) / 2.0,
        false => (other - one) / (other / one).ln(),
    }
}

fn log_ratio(from: f64, to: f64) -> f64 {
    match (from > 0.0, to > 0.0) {
        (false, false) => 0.0,
        (false, true) => -NOTHING.ln(),
        (true, _) => (to.max(from * NOTHING) / from).ln(),
    }
}

/// The parts that took from the rate, each with its share of all that did, the largest first.
pub fn falls(parts: &[Part]) -> Vec<(&Part, f64)> {
    let fell = || parts.iter().filter(|part| part.change < 0.0);
    let whole: f64 = fell().map(|part| part.change).sum();
    let mut shares: Vec<(&Part, f64)> = fell().map(|part| (part, part.change / whole)).collect();
    shares.sort_by(|a, b| {
        b.1.total_cmp(&a.1)
            .then_with(|| a.0.factors.cmp(&b.0.factors))
    });
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::signals::{FailureGroup, Series};
    use penstock_model::{Errno, Phase, Side};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn factors(rate: f64, limit: f64, active: f64) -> Factors {
        Factors {
            rate,
            limit: Some(limit),
            active: Some(active),
            moving_share: None,
            success: None,
        }
    }

    #[test]
    fn half_of_the_files_at_an_unchanged_rate_each_is_all_feeding() {
        // 10 April 2006: 200 to 100 MB/s, "too few concurrent transfers".
        let parts = split(&factors(200e6, 30.0, 30.0), &factors(100e6, 30.0, 15.0));
        let shares = falls(&parts);
        assert_eq!(shares[0].0.factors, [Factor::Fed]);
        assert!((shares[0].1 - 1.0).abs() < 1e-9);
        assert!((shares[0].0.change + 100e6).abs() < 1.0);
    }

    #[test]
    fn what_is_not_known_is_merged_and_not_guessed() {
        let unknown = Factors {
            limit: None,
            ..factors(200e6, 1.0, 30.0)
        };
        let parts = split(&unknown, &factors(100e6, 30.0, 15.0));
        let names: Vec<&[Factor]> = parts.iter().map(|part| part.factors.as_slice()).collect();
        assert_eq!(
            names,
            [
                &[Factor::Limit, Factor::Fed][..],
                &[Factor::StageRate, Factor::MovingShare, Factor::Success]
            ]
        );
    }

    #[test]
    fn failures_that_moved_next_to_nothing_are_told_with_the_rate_of_slots() {
        let success = |failed: f64| {
            let group = FailureGroup::new(Side::Source, Phase::Transfer, Errno::EIO, "");
            let link = LinkSignals {
                copied_bytes: Series::constant(100.0, 4),
                failed_bytes: Series::constant(failed, 4),
                finished_files: Series::constant(10.0, 4),
                failures: BTreeMap::from([(group, Series::constant(5.0, 4))]),
                ..LinkSignals::default()
            };
            let spans = 0..4;
            Factors::of(&link, 1, std::slice::from_ref(&spans))
                .expect("bytes are known")
                .success
        };
        assert_eq!(success(0.0), None);
        assert_eq!(success(4.0), None);
        assert_eq!(success(50.0), Some(100.0 / 150.0));
    }

    #[test]
    fn a_factor_that_fell_to_nothing_takes_nearly_all() {
        let parts = split(&factors(200e6, 30.0, 30.0), &factors(0.0, 30.0, 30.0));
        let shares = falls(&parts);
        assert_eq!(shares[0].0.factors[0], Factor::StageRate);
        assert!(shares[0].1 > 0.99);
    }

    #[test]
    fn where_no_file_moves_the_slots_take_all() {
        let parts = split(&factors(200e6, 30.0, 30.0), &factors(0.0, 30.0, 0.0));
        let shares = falls(&parts);
        assert_eq!(shares[0].0.factors, [Factor::Fed]);
        assert!(shares[0].1 > 0.99, "{parts:?}");
    }

    #[test]
    fn what_doubles_while_another_halves_is_told_of_both() {
        let parts = split(&factors(200e6, 10.0, 10.0), &factors(200e6, 20.0, 20.0));
        let limit = parts.iter().find(|part| part.factors == [Factor::Limit]);
        let change = limit.map_or(0.0, |part| part.change);
        assert!((change - 200e6 * 2f64.ln()).abs() < 1.0, "{parts:?}");
    }

    fn or_nothing(values: std::ops::Range<f64>) -> impl Strategy<Value = f64> {
        prop_oneof![1 => Just(0.0), 4 => values]
    }

    fn any() -> impl Strategy<Value = Factors> {
        let part = || proptest::option::of(or_nothing(0.01..1.0));
        let count = || proptest::option::of(or_nothing(0.1..500.0));
        (or_nothing(0.0..1e10), count(), count(), part(), part()).prop_map(
            |(rate, limit, active, moving_share, success)| Factors {
                rate,
                limit,
                active,
                moving_share,
                success,
            },
        )
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_change(from in any(), to in any()) {
            let whole = to.rate - from.rate;
            let parts = split(&from, &to);
            let sum: f64 = parts.iter().map(|part| part.change).sum();
            let bound = 1e-9 * from.rate.max(to.rate);
            prop_assert!((sum - whole).abs() <= bound, "{sum} of {whole}");
            let mut all: Vec<Factor> = parts.iter().flat_map(|part| part.factors.clone()).collect();
            all.sort();
            prop_assert_eq!(all.len(), 5);
            let shares = falls(&parts);
            if !shares.is_empty() {
                prop_assert!((shares.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
            }
        }
    }
}
