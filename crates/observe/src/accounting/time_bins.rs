//! Amounts over time, in bins that become coarser as the time that they cover grows: any period fits into one plot.

use crate::rate::Window;
use penstock_model::Timestamp;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Lengths of bins in seconds. Each divides the next one, and the last one is a day.
const STEPS_SECONDS: [i64; 7] = [10, 60, 300, 900, 3_600, 21_600, 86_400];
/// Bins between the first and the last amount, as long as they are shorter than a day.
const BINS_MAX: i64 = 240;
/// Bins that are told at most; days are put together above it.
const BINS_TOLD_MAX: u64 = 400;
/// What took longer counts where it ended: its begin is not to be believed.
const SPREAD_MS_MAX: i64 = 31 * 86_400_000;
/// Times farther from 1970 are those of rows that cannot be true.
const TIME_MS_MAX: i64 = 1 << 52;
/// A bin of which less is in the window counts as so much of it: rates of moments tell nothing.
const BIN_PART_MIN: f64 = 0.1;

/// Amounts of several keys.
#[derive(Debug)]
pub(super) struct TimeBins<K> {
    /// What moved before it is left out.
    begin: Timestamp,
    step: usize,
    sums: HashMap<(K, i64), u128>,
    range: Option<(i64, i64)>,
}

/// All bins of a window.
pub(super) struct ToldBins<K> {
    pub(super) from: Timestamp,
    pub(super) bin_seconds: u64,
    /// How much of each bin lies in the window.
    pub(super) seconds: Vec<f64>,
    pub(super) sums: BTreeMap<K, Vec<u128>>,
}

impl<K: Ord + Hash + Clone> TimeBins<K> {
    pub(super) fn since(begin: Timestamp) -> TimeBins<K> {
        TimeBins {
            begin,
            step: 0,
            sums: HashMap::new(),
            range: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sums.len()
    }

    /// Adds an amount, evenly between two moments. Nothing of it is lost by rounding.
    pub(super) fn add(&mut self, key: &K, from: Timestamp, to: Timestamp, amount: u128) {
        let (from, to) = (believable(from), believable(to));
        let length = to.0 - from.0;
        let (begin, amount) = match (1..=SPREAD_MS_MAX).contains(&length) {
            true if from < self.begin && self.begin < to => {
                let inside = to.0 - self.begin.0;
                (self.begin.0, amount * inside as u128 / length as u128)
            }
            true => (from.0, amount),
            false => (to.0, amount),
        };
        let length = to.0.saturating_sub(begin).max(1);
        let last = (to.0 - i64::from(begin < to.0)).max(begin);
        self.cover(begin.div_euclid(1000), last.div_euclid(1000));
        let bin_ms = STEPS_SECONDS[self.step] * 1000;
        let (mut at, mut given) = (begin, 0);
        loop {
            let bin = at.div_euclid(bin_ms);
            let end = ((bin + 1) * bin_ms).min(to.0);
            let until = match end >= to.0 {
                true => amount,
                false => amount * (end - begin) as u128 / length as u128,
            };
            *self.sums.entry((key.clone(), bin)).or_default() += until - given;
            if end >= to.0 {
                return;
            }
            (at, given) = (end, until);
        }
    }

    /// Makes bins coarser until they are not too many.
    fn cover(&mut self, first: i64, last: i64) {
        let (known_first, known_last) = self.range.unwrap_or((first, last));
        let (first, last) = (known_first.min(first), known_last.max(last));
        self.range = Some((first, last));
        let before = self.step;
        let is_too_fine = |step: usize| {
            let bin = |at: i64| at.div_euclid(STEPS_SECONDS[step]);
            bin(last) - bin(first) >= BINS_MAX
        };
        while self.step + 1 < STEPS_SECONDS.len() && is_too_fine(self.step) {
            self.step += 1;
        }
        if self.step == before {
            return;
        }
        let factor = STEPS_SECONDS[self.step] / STEPS_SECONDS[before];
        for ((key, bin), amount) in std::mem::take(&mut self.sums) {
            *self.sums.entry((key, bin.div_euclid(factor))).or_default() += amount;
        }
    }

    /// All bins of a window. What lies outside of it is left out.
    pub(super) fn told(self, window: Window) -> ToldBins<K> {
        let step = STEPS_SECONDS[self.step];
        let window = Window {
            from: believable(window.from),
            to: believable(window.to),
            ..window
        };
        let first = window.from.0.div_euclid(step * 1000);
        let last = window.to.0.saturating_sub(1).div_euclid(step * 1000);
        let count = u64::try_from(last.saturating_sub(first).saturating_add(1)).unwrap_or(1);
        let factor = count.div_ceil(BINS_TOLD_MAX).max(1);
        let count = count.div_ceil(factor).max(1) as usize;
        let bin_seconds = factor * step as u64;
        let bin_ms = i64::try_from(bin_seconds * 1000).unwrap_or(i64::MAX);
        let from = Timestamp(first * step * 1000);
        let inside = |bin: usize| {
            let begin = from.0.saturating_add(bin as i64 * bin_ms);
            let (begin, end) = (
                begin.max(window.from.0),
                begin.saturating_add(bin_ms).min(window.to.0),
            );
            let most = bin_seconds as f64;
            (end.saturating_sub(begin) as f64 / 1000.0).clamp(most * BIN_PART_MIN, most)
        };
        let mut sums: BTreeMap<K, Vec<u128>> = BTreeMap::new();
        for ((key, bin), amount) in self.sums {
            let place = bin
                .checked_sub(first)
                .and_then(|at| usize::try_from(at).ok());
            let place = place.map(|at| at / factor as usize);
            if let Some(place) = place.filter(|place| *place < count) {
                sums.entry(key).or_insert_with(|| vec![0; count])[place] += amount;
            }
        }
        ToldBins {
            from,
            bin_seconds,
            seconds: (0..count).map(inside).collect(),
            sums,
        }
    }
}

fn believable(at: Timestamp) -> Timestamp {
    Timestamp(at.0.clamp(-TIME_MS_MAX, TIME_MS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::WindowRule;
    use proptest::prelude::*;

    fn window(from: i64, to: i64) -> Window {
        Window {
            from: Timestamp(from),
            to: Timestamp(to),
            rule: WindowRule::AsAsked,
        }
    }

    #[test]
    fn an_amount_is_spread_over_the_time_in_which_it_moved() {
        let mut bins = TimeBins::since(Timestamp(i64::MIN));
        bins.add(&"a", Timestamp(5_000), Timestamp(25_000), 200);
        let told = bins.told(window(0, 30_000));
        assert_eq!(
            (told.bin_seconds, &told.sums["a"]),
            (10, &vec![50, 100, 50])
        );
        assert_eq!(told.seconds, [10.0, 10.0, 10.0]);
    }

    #[test]
    fn what_moved_before_the_begin_is_left_out() {
        let mut bins = TimeBins::since(Timestamp(15_000));
        bins.add(&"a", Timestamp(5_000), Timestamp(25_000), 200);
        let told = bins.told(window(15_000, 30_000));
        assert_eq!(
            (&told.sums["a"], told.seconds),
            (&vec![50, 50], vec![5.0, 10.0])
        );
    }

    #[test]
    fn bins_become_coarser_and_a_begin_that_is_not_to_be_believed_is_not() {
        let mut bins = TimeBins::since(Timestamp(i64::MIN));
        bins.add(&"a", Timestamp(0), Timestamp(10_000), 7);
        bins.add(&"a", Timestamp(0), Timestamp(7 * 86_400_000), 700);
        let told = bins.told(window(0, 7 * 86_400_000));
        assert_eq!((told.bin_seconds, told.sums["a"].len()), (3_600, 168));
        assert_eq!(told.sums["a"].iter().sum::<u128>(), 707);
        let mut bins = TimeBins::since(Timestamp(i64::MIN));
        bins.add(&"a", Timestamp(0), Timestamp(1_700_000_000_000), 7);
        assert_eq!(bins.len(), 1);
        bins.add(&"a", Timestamp(i64::MIN), Timestamp(i64::MAX), 5);
        let told = bins.told(window(i64::MIN, i64::MAX));
        assert_eq!(told.sums["a"].iter().sum::<u128>(), 12);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_times_lie(
            rows in proptest::collection::vec((0i64..4_000_000_000, -5_000i64..4_000_000_000, 0u64..1_000_000), 1..40),
        ) {
            let mut bins = TimeBins::since(Timestamp(i64::MIN));
            for (from, length, amount) in &rows {
                bins.add(&(), Timestamp(*from), Timestamp(from + length), u128::from(*amount));
            }
            let told = bins.told(window(-10_000, 9_000_000_000));
            prop_assert!(told.seconds.len() <= BINS_TOLD_MAX as usize);
            let all: u64 = rows.iter().map(|row| row.2).sum();
            let found: u128 = told.sums.values().flatten().sum();
            prop_assert_eq!(found, u128::from(all));
        }
    }
}
