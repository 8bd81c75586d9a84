//! The clock by which a transfer's records are written, and what a time in them means by that clock now.
//!
//! A service that begins to lead does not know how far its clock has gone since the records before: the time that it was
//! down looks like a leap. The storage element where a copy may still run tells its own time, which the leap did not
//! move; and what was recorded before this leader is older than it. This module knows neither copies nor files.

use crate::destination::CLOCK_DOUBT;
use penstock_model::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the clock of the records shows at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordClock {
    /// The time.
    pub at: Timestamp,
    /// Since when it has gone as time passes. What it showed before is not comparable.
    pub steady_since: Timestamp,
}

/// A recorded time by the clock of now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedTime {
    /// It was not before.
    pub earliest: Timestamp,
    /// It was not after.
    pub latest: Timestamp,
}

impl RecordClock {
    /// What it shows when this time has passed.
    pub fn after(self, passed: Duration) -> RecordClock {
        RecordClock {
            at: self.at + passed,
            ..self
        }
    }

    /// A recorded time by this clock. `witness`: what a clock shows at the same instant that went on meanwhile; one that
    /// is always wrong by more than [`CLOCK_DOUBT`] cannot be told from a leap of ours.
    pub fn read(self, recorded: Timestamp, witness: Option<Timestamp>) -> RecordedTime {
        if (self.steady_since..=self.at).contains(&recorded) {
            return RecordedTime::exact(recorded);
        }
        // It was written before the clock was steady, whatever that showed then.
        let bound = self.steady_since;
        let Some(witness) = witness else {
            return RecordedTime {
                earliest: recorded,
                latest: recorded.max(bound),
            };
        };
        let beyond_doubt = |by: Duration| match by > CLOCK_DOUBT {
            true => by,
            false => Duration::ZERO,
        };
        let ahead = beyond_doubt(self.at.since(witness));
        let behind = beyond_doubt(witness.since(self.at));
        RecordedTime {
            earliest: recorded - behind,
            latest: recorded.max((recorded + ahead).min(bound)),
        }
    }
}

impl RecordedTime {
    /// One by a clock that has not leapt since.
    pub fn exact(at: Timestamp) -> RecordedTime {
        RecordedTime {
            earliest: at,
            latest: at,
        }
    }
}

impl std::ops::Add<Duration> for RecordedTime {
    type Output = RecordedTime;

    fn add(self, by: Duration) -> RecordedTime {
        RecordedTime {
            earliest: self.earliest + by,
            latest: self.latest + by,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1000)
    }

    fn check(recorded: i64, witness: Option<i64>, expected: (i64, i64)) {
        let clock = RecordClock {
            at: at(5000),
            steady_since: at(4000),
        };
        let (earliest, latest) = expected;
        let expected = RecordedTime {
            earliest: at(earliest),
            latest: at(latest),
        };
        let read = clock.read(at(recorded), witness.map(at));
        assert_eq!(read, expected, "{recorded} with {witness:?}");
    }

    #[test]
    fn what_a_steady_clock_has_recorded_is_exact_whatever_another_shows() {
        for witness in [None, Some(1), Some(9000)] {
            check(4000, witness, (4000, 4000));
            check(5000, witness, (5000, 5000));
        }
    }

    #[test]
    fn what_was_recorded_before_is_as_old_as_two_clocks_say() {
        for witness in [4940, 5000, 5060] {
            check(1000, Some(witness), (1000, 1000));
        }
        // Ours is ahead: less time has passed than it says.
        check(1000, Some(3800), (1000, 2200));
        // Ours is behind: more has.
        check(1000, Some(6200), (-200, 1000));
    }

    #[test]
    fn nothing_that_was_recorded_before_is_younger_than_the_steady_clock() {
        check(1000, Some(1), (1000, 4000));
        check(1000, None, (1000, 4000));
        // By a clock that was ahead.
        check(9000, Some(5000), (9000, 9000));
    }
}
