//! From the time of libraries to that of people, and back. A moment is told alike whenever it is told: the clock is looked at once, and
//! again only when it was set.

use penstock_model::Timestamp;

/// A clock that differs by more from what it should tell was set.
const SET_CLOCK_MS: u64 = 1_000;

/// A moment by both, and how fast the time of libraries runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct LibraryClock {
    library_ns: i64,
    wall: Timestamp,
    factor: i64,
}

impl LibraryClock {
    pub(super) fn new(library_ns: i64, wall: Timestamp, factor: u32) -> LibraryClock {
        LibraryClock {
            library_ns,
            wall,
            factor: i64::from(factor.max(1)),
        }
    }

    /// Follows a clock that was set.
    pub(super) fn compare(&mut self, now_ns: i64, wall: Timestamp) {
        if self.wall(now_ns).0.abs_diff(wall.0) > SET_CLOCK_MS {
            (self.library_ns, self.wall) = (now_ns, wall);
        }
    }

    pub(super) fn wall(&self, at_ns: i64) -> Timestamp {
        let after_ns = at_ns.saturating_sub(self.library_ns);
        let after_ms = after_ns.div_euclid(self.factor).div_euclid(1_000_000);
        Timestamp(self.wall.0.saturating_add(after_ms))
    }

    /// The same the other way round.
    pub(super) fn library_ns(&self, at: Timestamp) -> i64 {
        let after_ms = at.0.saturating_sub(self.wall.0);
        let after_ns = after_ms
            .saturating_mul(1_000_000)
            .saturating_mul(self.factor);
        self.library_ns.saturating_add(after_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS_NS: i64 = 1_000_000;

    #[test]
    fn a_moment_is_told_alike_however_late_and_follows_a_clock_that_was_set() {
        let begin = Timestamp(1_000_000);
        for factor in [1_u32, 80, 2_000] {
            let mut clock = LibraryClock::new(7 * MS_NS, begin, factor);
            let now_ns = |after_us: i64| 7 * MS_NS + after_us * 1_000 * i64::from(factor);
            let at_ns = now_ns(12_345);
            assert_eq!(clock.wall(at_ns), Timestamp(begin.0 + 12));
            assert_eq!(clock.library_ns(Timestamp(begin.0 + 12)), now_ns(12_000));
            // Of now and of the clock each tells a little more or less.
            for (after_us, told_ms) in [(20_000, 19), (20_400, 21), (999_999, 1_500)] {
                clock.compare(now_ns(after_us), Timestamp(begin.0 + told_ms));
                assert_eq!(clock.wall(at_ns), Timestamp(begin.0 + 12));
            }
            assert_eq!(clock.wall(now_ns(-1)), Timestamp(begin.0 - 1), "before");
            clock.compare(now_ns(20_000), Timestamp(begin.0 + 60_020));
            assert_eq!(clock.wall(at_ns), Timestamp(begin.0 + 60_012));
            clock.compare(now_ns(30_000), Timestamp(begin.0 + 30));
            assert_eq!(clock.wall(at_ns), Timestamp(begin.0 + 12));
        }
    }
}
