//! How slow the other end may be while bytes move. A bound on each wait alone would let somebody send a byte
//! a minute and hold a mover for years.

use std::io;
use std::time::Duration;

/// The slowest that is put up with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceLimit {
    /// Bytes per second, as a mean over [`PaceLimit::interval`]. 0: anything.
    pub bytes_per_second_min: u64,
    /// The waiting time over which the mean is taken. Time spent on our own disks is none.
    pub interval: Duration,
}

impl PaceLimit {
    /// Anything is put up with.
    pub const NONE: PaceLimit = PaceLimit {
        bytes_per_second_min: 0,
        interval: Duration::from_secs(60),
    };
}

impl Default for PaceLimit {
    /// 1 kB/s over a minute: a tape or a modem passes, a drip does not.
    fn default() -> PaceLimit {
        PaceLimit {
            bytes_per_second_min: 1000,
            ..PaceLimit::NONE
        }
    }
}

/// The pace of one body, measured.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    limit: PaceLimit,
    waited: Duration,
    moved: u64,
}

impl Pace {
    /// Measures from now on.
    pub fn new(limit: PaceLimit) -> Pace {
        Pace {
            limit,
            waited: Duration::ZERO,
            moved: 0,
        }
    }

    /// Takes another body's measure.
    pub fn restart(&mut self) {
        *self = Pace::new(self.limit);
    }

    /// How long a wait may be before it has to be judged; never zero.
    pub fn until_judged(&self) -> Duration {
        let left = self.limit.interval.saturating_sub(self.waited);
        left.max(Duration::from_millis(1))
    }

    /// One step: this long was waited, and so much moved. Errors: `TimedOut`, too little in an interval.
    pub fn step(&mut self, waited: Duration, moved: u64) -> io::Result<()> {
        self.waited += waited;
        self.moved = self.moved.saturating_add(moved);
        if self.waited < self.limit.interval {
            return Ok(());
        }
        let wanted = u128::from(self.limit.bytes_per_second_min) * self.waited.as_millis() / 1000;
        if u128::from(self.moved) < wanted {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "only {} bytes moved in {} s; at least {} bytes a second must",
                    self.moved,
                    self.waited.as_secs(),
                    self.limit.bytes_per_second_min
                ),
            ));
        }
        self.restart();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(steps: &[(u64, u64)], survives: usize) {
        let mut pace = Pace::new(PaceLimit::default());
        let passed = steps.iter().take_while(|&&(seconds, moved)| {
            pace.step(Duration::from_secs(seconds), moved).is_ok()
        });
        assert_eq!(passed.count(), survives, "{steps:?}");
    }

    #[test]
    fn a_drip_is_cut_after_an_interval() {
        check(&[(20, 1), (20, 1), (19, 1), (2, 1), (1, 1)], 3);
    }

    #[test]
    fn slow_but_steady_goes_on_for_ever() {
        check(&[(30, 30_000); 100], 100);
    }

    #[test]
    fn a_pause_is_forgiven_when_the_rest_of_its_interval_was_fast() {
        check(&[(1, 1_000_000), (58, 0), (1, 0), (59, 0), (1, 1)], 4);
    }

    #[test]
    fn without_a_minimum_nothing_is_too_slow() {
        let mut pace = Pace::new(PaceLimit::NONE);
        assert!(pace.step(Duration::from_secs(86_400), 0).is_ok());
    }
}
