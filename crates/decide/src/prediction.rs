//! How long a transfer will hold its slots, from what earlier ones on its link took: a part that every file costs, and
//! one that grows with its size. Learnt from the latest attempts that brought their files, by medians, so that a few
//! that hung or flew change nothing.

use penstock_model::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// What is expected while nothing is known: a second for each file, and 20 MB/s.
const PRIOR: Model = Model {
    overhead_ms: 1_000,
    bytes_per_second: 20_000_000,
};
/// For a file of unknown size, while nothing is known.
const PRIOR_UNSIZED_MS: u64 = 10_000;
/// Attempts that are remembered.
const SEEN_MAX: usize = 48;
/// Fewer tell no line, only how far they are from what was expected.
const LINE_MIN: usize = 9;
/// No transfer is expected to take less: nothing is free.
const MS_MIN: u64 = 10;

/// A size in a byte, to an eighth: what is remembered of each file that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SizeClass(u8);

impl SizeClass {
    /// Of a size; unknown ones have a class of their own.
    pub fn of(size: Option<Bytes>) -> SizeClass {
        let Some(Bytes(size)) = size else {
            return SizeClass(0);
        };
        if size < 4 {
            return SizeClass(1);
        }
        let octave = size.ilog2().min(61);
        let quarter = (size >> (octave - 2)) & 3;
        SizeClass(2 + (4 * (octave - 2)) as u8 + quarter as u8)
    }

    /// The size in the middle of the class.
    pub fn size(self) -> Option<Bytes> {
        match self.0 {
            0 => None,
            1 => Some(Bytes(1)),
            class => {
                let (octave, quarter) = (u32::from(class - 2) / 4, u64::from(class - 2) % 4);
                // With the two highest bits behind the first, and half of what comes behind these.
                Some(Bytes(((2 * (4 + quarter) + 1) << octave) >> 1))
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Model {
    overhead_ms: u64,
    bytes_per_second: u64,
}

impl Model {
    fn ms(self, size: u64) -> u64 {
        let moving = u128::from(size) * 1000 / u128::from(self.bytes_per_second.max(1));
        let moving = u64::try_from(moving).unwrap_or(u64::MAX);
        self.overhead_ms.saturating_add(moving).max(MS_MIN)
    }
}

/// What is known of a link's transfers.
#[derive(Debug, Clone)]
pub struct Durations {
    /// Sizes in bytes and times in milliseconds, the oldest first.
    seen: VecDeque<(u64, u64)>,
    model: Model,
    /// Of half of them it took less.
    usual_ms: u64,
    learnt: u64,
}

impl Default for Durations {
    fn default() -> Durations {
        Durations {
            seen: VecDeque::new(),
            model: PRIOR,
            usual_ms: PRIOR_UNSIZED_MS,
            learnt: 0,
        }
    }
}

impl Durations {
    /// Whether any transfer has told something.
    pub fn is_known(&self) -> bool {
        !self.seen.is_empty()
    }

    /// How long a transfer of that size is expected to hold its slots, in milliseconds.
    pub fn predict_ms(&self, size: Option<Bytes>) -> u64 {
        match size {
            Some(size) => self.model.ms(size.0),
            None => self.usual_ms,
        }
    }

    /// How long so many transfers take together, one after the other: of so many bytes in all, and others of unknown
    /// size.
    pub fn predict_sum_ms(&self, sized: u64, bytes: u64, unsized_ones: u64) -> u64 {
        let overhead = sized.saturating_mul(self.model.overhead_ms);
        let moving = Model {
            overhead_ms: 0,
            ..self.model
        };
        let moving = if bytes == 0 { 0 } else { moving.ms(bytes) };
        let others = unsized_ones.saturating_mul(self.usual_ms);
        overhead.saturating_add(moving).saturating_add(others)
    }

    /// A transfer of that size has arrived and held its slots for so long.
    pub fn learn(&mut self, size: Bytes, took: Duration) {
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        if self.seen.len() == SEEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back((size.0, took.max(MS_MIN)));
        self.learnt += 1;
        // Medians move slowly: once many are known, not every attempt is worth sorting them.
        if self.seen.len() < SEEN_MAX || self.learnt.is_multiple_of(8) {
            self.usual_ms = median(self.seen.iter().map(|(_, ms)| *ms).collect());
            self.model = fit(self.seen.make_contiguous());
        }
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// A line through the medians of the smallest and the largest third: half of each would have to be wrong to bend it.
fn fit(seen: &[(u64, u64)]) -> Model {
    let mut by_size = seen.to_vec();
    by_size.sort_unstable();
    let third = by_size.len() / 3;
    let (small, large) = (&by_size[..third], &by_size[by_size.len() - third..]);
    let middle = |part: &[(u64, u64)]| {
        let sizes = median(part.iter().map(|(size, _)| *size).collect());
        (sizes, median(part.iter().map(|(_, ms)| *ms).collect()))
    };
    let ((size_small, ms_small), (size_large, ms_large)) = (middle(small), middle(large));
    let tells_a_line = by_size.len() >= LINE_MIN
        && size_large / 4 > size_small
        && ms_large > ms_small.saturating_add(ms_small / 4);
    if !tells_a_line {
        return scaled(seen);
    }
    let (bytes, ms) = (size_large - size_small, ms_large - ms_small);
    let rate = u128::from(bytes) * 1000 / u128::from(ms);
    let moving = Model {
        overhead_ms: 0,
        bytes_per_second: u64::try_from(rate).unwrap_or(u64::MAX).max(1),
    };
    let moving_ms = |size: u64| (u128::from(size) * 1000 / rate.max(1)) as u64;
    let overheads = seen
        .iter()
        .map(|(size, ms)| ms.saturating_sub(moving_ms(*size)));
    Model {
        overhead_ms: median(overheads.collect()),
        ..moving
    }
}

/// The expected time, scaled by the median ratio of observed to expected times.
fn scaled(seen: &[(u64, u64)]) -> Model {
    let factors = seen
        .iter()
        .map(|(size, ms)| (u128::from(*ms) * 1_000_000 / u128::from(PRIOR.ms(*size))) as u64);
    let millionths = median(factors.collect()).max(1);
    let rate = u128::from(PRIOR.bytes_per_second) * 1_000_000 / u128::from(millionths);
    Model {
        overhead_ms: PRIOR.overhead_ms * millionths / 1_000_000,
        bytes_per_second: u64::try_from(rate).unwrap_or(u64::MAX).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MB: u64 = 1_000_000;

    /// A link that takes two seconds for a file and moves 50 MB/s; every fifth transfer hangs.
    fn taught(sizes: &[u64], count: u64) -> Durations {
        let mut durations = Durations::default();
        for number in 0..count {
            let size = sizes[number as usize % sizes.len()];
            let ms = match number % 5 {
                4 => 500_000,
                _ => 2_000 + size / 50_000,
            };
            durations.learn(Bytes(size), Duration::from_millis(ms));
        }
        durations
    }

    fn is_near(value: u64, expected: u64) -> bool {
        value.abs_diff(expected) * 10 <= expected
    }

    #[test]
    fn what_a_file_takes_is_learnt_in_spite_of_some_that_hang() {
        let durations = taught(&[MB, 10 * MB, 100 * MB, 1_000 * MB, 4_000 * MB, 7 * MB], 60);
        for (size, expected) in [(MB, 2_020), (500 * MB, 12_000), (4_000 * MB, 82_000)] {
            let told = durations.predict_ms(Some(Bytes(size)));
            assert!(is_near(told, expected), "{size}: {told} for {expected}");
        }
    }

    #[test]
    fn files_of_one_size_tell_their_time() {
        let durations = taught(&[100 * MB], 20);
        let told = durations.predict_ms(Some(Bytes(100 * MB)));
        assert!(is_near(told, 4_000), "{told}");
        assert!(is_near(durations.predict_ms(None), 4_000));
    }

    #[test]
    fn one_attempt_is_better_than_none() {
        let durations = taught(&[100 * MB], 1);
        assert!(is_near(durations.predict_ms(Some(Bytes(100 * MB))), 4_000));
        assert!(durations.is_known() && !Durations::default().is_known());
    }

    #[test]
    fn many_take_what_they_take_one_by_one() {
        let durations = taught(&[MB, 1_000 * MB, 20 * MB], 48);
        let one = durations.predict_ms(Some(Bytes(100 * MB)));
        let sum = durations.predict_sum_ms(10, 1_000 * MB, 2);
        assert!(
            is_near(sum, 10 * one + 2 * durations.predict_ms(None)),
            "{sum}"
        );
    }

    proptest! {
        #[test]
        fn a_class_tells_the_size_to_an_eighth(size in 4u64..1 << 61) {
            let told = SizeClass::of(Some(Bytes(size))).size().expect("known").0;
            prop_assert!(told.abs_diff(size) <= size / 8 + 1, "{told} for {size}");
        }

        #[test]
        fn whatever_was_seen_larger_files_are_not_expected_sooner(
            seen in proptest::collection::vec((any::<u64>(), any::<u32>()), 0..100),
            sizes in (any::<u64>(), any::<u64>()),
        ) {
            let mut durations = Durations::default();
            for (size, ms) in seen {
                durations.learn(Bytes(size), Duration::from_millis(u64::from(ms)));
            }
            let (small, large) = (sizes.0.min(sizes.1), sizes.0.max(sizes.1));
            let (small, large) = [small, large].map(|size| durations.predict_ms(Some(Bytes(size)))).into();
            prop_assert!(small <= large && small >= MS_MIN);
            durations.predict_sum_ms(sizes.0, sizes.1, 3);
        }
    }
}
