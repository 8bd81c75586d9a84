//! How many refusals are written: a burst whole, and of what goes on for long some a second.

use std::time::{Duration, Instant};

/// Refusals that are written after a while without any, however fast they come.
const BURST: u32 = 2_000;
/// One more for each such time: 5 a second, 432,000 a day.
const INTERVAL: Duration = Duration::from_millis(200);

/// What is left to be written.
#[derive(Debug)]
pub(super) struct Allowance {
    left: u32,
    /// Until when what has come back is counted.
    counted: Instant,
}

impl Allowance {
    pub(super) fn full(now: Instant) -> Allowance {
        Allowance {
            left: BURST,
            counted: now,
        }
    }

    /// Whether one more is written.
    pub(super) fn takes(&mut self, now: Instant) -> bool {
        let intervals =
            now.saturating_duration_since(self.counted).as_nanos() / INTERVAL.as_nanos();
        let back = u32::try_from(intervals).unwrap_or(u32::MAX).min(BURST);
        self.left = self.left.saturating_add(back).min(BURST);
        self.counted = match self.left {
            BURST => now,
            _ => self.counted + INTERVAL * back,
        };
        let is_left = self.left > 0;
        self.left -= u32::from(is_left);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_written_whole_and_then_five_a_second() {
        let start = Instant::now();
        let mut allowance = Allowance::full(start);
        let mut written = |from: Duration, until: Duration, count: u32| {
            let step = (until - from) / count;
            let times = (0..count).map(|one| start + from + step * one);
            times.filter(|now| allowance.takes(*now)).count()
        };
        let seconds = Duration::from_secs;
        assert_eq!(written(seconds(0), Duration::from_millis(1), 3_000), 2_000);
        let more = written(seconds(1), seconds(11), 10_000);
        assert!((50..=56).contains(&more), "{more}");
        assert_eq!(written(seconds(1_000), seconds(1_001), 5_000), 2_004);
    }
}
