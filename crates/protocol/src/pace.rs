//! How slow the other end may be while bytes move. A bound on each wait alone would let somebody send a byte
//! a minute and hold a mover for years.

use penstock_model::TimeSpan;
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
    /// 50 kB/s over two minutes: a bad line passes, also one that stands still for a minute in between; a drip does not.
    fn default() -> PaceLimit {
        PaceLimit {
            bytes_per_second_min: 50_000,
            interval: Duration::from_secs(120),
        }
    }
}

impl PaceLimit {
    /// The same where a body may stand still for so long: the mean is taken over two such pauses at least, so that one
    /// of them passes on a line of twice the least pace.
    pub fn with_pauses(self, pause_max: Duration) -> PaceLimit {
        PaceLimit {
            interval: self.interval.max(pause_max.saturating_mul(2)),
            ..self
        }
    }

    /// How long so many bytes may take at the least pace, and an interval more; `None`: as long as they like.
    pub fn longest(&self, bytes: u64) -> Option<Duration> {
        let seconds = bytes.checked_div(self.bytes_per_second_min)?;
        Some(self.interval.saturating_add(Duration::from_secs(seconds)))
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
                    "only {} bytes moved in {}; at least {} bytes a second must (rate_min of this site)",
                    self.moved,
                    TimeSpan(self.waited),
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
        check(&[(20, 1), (50, 1), (49, 1), (2, 1), (1, 1)], 3);
    }

    #[test]
    fn slow_but_steady_goes_on_for_ever() {
        check(&[(30, 1_500_000); 100], 100);
    }

    #[test]
    fn a_pause_is_forgiven_when_the_rest_of_its_interval_was_fast() {
        check(&[(60, 0), (59, 6_000_000), (1, 0), (60, 0), (60, 1)], 4);
    }

    #[test]
    fn a_pause_that_is_allowed_is_never_too_slow() {
        let pause = Duration::from_secs(600);
        let mut pace = Pace::new(PaceLimit::default().with_pauses(pause));
        assert!(pace.until_judged() >= pause);
        assert!(pace.step(pause, 0).is_ok());
        assert!(pace.step(pause, 600 * 100_000).is_ok());
        // Standing still again and again is a drip.
        assert!(pace.step(pause, 1).is_ok() && pace.step(pause, 1).is_err());
        let short = Duration::from_secs(10);
        assert_eq!(
            PaceLimit::default().with_pauses(short),
            PaceLimit::default()
        );
    }

    #[test]
    fn without_a_minimum_nothing_is_too_slow() {
        let mut pace = Pace::new(PaceLimit::NONE);
        assert!(pace.step(Duration::from_secs(86_400), 0).is_ok());
    }
}
