//! Which time to believe where something would be removed because its time is over.
//!
//! A clock that leaps forward, after a wrong answer of a time server or a flat battery, would end everything at once that
//! has a term, and what is removed does not come back with the right time. So a leap counts only when it has lasted: until
//! then time goes on as the monotonic clock says. A machine that was switched off for long looks the same; there it costs
//! an hour of patience.

use penstock_model::Timestamp;
use std::time::Duration;

/// What the two clocks may differ by without doubt.
pub const LEAP_TOLERANCE: Duration = Duration::from_secs(600);
/// How long a process may have been down without doubt.
pub const DOWN_TIME_TOLERANCE: Duration = Duration::from_secs(3600);
/// How long a leap must have lasted by the monotonic clock to be believed.
pub const CONFIRMATION: Duration = Duration::from_secs(3600);

/// What is known of a clock. Times without a date are those of the monotonic clock, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockDoubt {
    /// When both clocks were last in agreement.
    agreed: (Timestamp, Duration),
    /// Since when they are not.
    leaped: Option<Duration>,
}

/// What the clocks show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// The date.
    pub wall: Timestamp,
    /// Time since the start, which no time server changes.
    pub since_start: Duration,
}

/// A clock that has leaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leap {
    /// How far ahead the date is of what is believed.
    pub ahead: Duration,
    /// How long it must go on to be believed.
    pub believed_in: Duration,
}

impl ClockDoubt {
    /// At the start; `newest` is the newest time that the last run wrote down.
    pub fn at_start(clocks: Clocks, newest: Option<Timestamp>) -> ClockDoubt {
        let believed = newest.filter(|newest| clocks.wall.since(*newest) > DOWN_TIME_TOLERANCE);
        ClockDoubt {
            agreed: (believed.unwrap_or(clocks.wall), clocks.since_start),
            leaped: believed.map(|_| clocks.since_start),
        }
    }

    /// The time by which terms end now, and what is doubted.
    pub fn believe(&mut self, clocks: Clocks) -> (Timestamp, Option<Leap>) {
        let (wall, at) = self.agreed;
        let expected = wall + clocks.since_start.saturating_sub(at);
        let ahead = clocks.wall.since(expected);
        if ahead <= LEAP_TOLERANCE {
            // Also when it was set back: then less is over, which removes nothing.
            self.agreed = (clocks.wall, clocks.since_start);
            self.leaped = None;
            return (clocks.wall, None);
        }
        let since = *self.leaped.get_or_insert(clocks.since_start);
        let lasted = clocks.since_start.saturating_sub(since);
        if lasted >= CONFIRMATION {
            self.agreed = (clocks.wall, clocks.since_start);
            self.leaped = None;
            return (clocks.wall, None);
        }
        let believed_in = CONFIRMATION.saturating_sub(lasted);
        (expected, Some(Leap { ahead, believed_in }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    fn clocks(wall: u64, since_start: u64) -> Clocks {
        Clocks {
            wall: Timestamp(0) + Duration::from_secs(wall),
            since_start: Duration::from_secs(since_start),
        }
    }

    /// Looks at (wall, monotonic) seconds one after the other; gives back what is believed and whether there is doubt.
    fn check(newest: Option<u64>, looks: &[(u64, u64)], expected: &[(u64, bool)]) {
        let newest = newest.map(|seconds| Timestamp(0) + Duration::from_secs(seconds));
        let mut doubt = ClockDoubt::at_start(clocks(looks[0].0, looks[0].1), newest);
        let believed: Vec<(u64, bool)> = looks
            .iter()
            .map(|(wall, since_start)| {
                let (time, leap) = doubt.believe(clocks(*wall, *since_start));
                (time.since(Timestamp(0)).as_secs(), leap.is_some())
            })
            .collect();
        assert_eq!(believed, expected, "{newest:?} {looks:?}");
    }

    #[test]
    fn a_leap_forward_counts_when_it_has_lasted() {
        let later = 100 * DAY;
        check(
            None,
            &[
                (1000, 0),
                (1060, 60),
                (later, 120),
                (later + 3599, 3719),
                (later + 3600, 3720),
                (later + 3660, 3780),
            ],
            &[
                (1000, false),
                (1060, false),
                (1120, true),
                (4719, true),
                (later + 3600, false),
                (later + 3660, false),
            ],
        );
    }

    #[test]
    fn a_leap_that_is_taken_back_never_counted() {
        check(
            None,
            &[
                (1000, 0),
                (50 * DAY, 60),
                (1120, 120),
                (50 * DAY, 3700),
                (50 * DAY + 60, 3760),
            ],
            &[
                (1000, false),
                (1060, true),
                (1120, false),
                (4700, true),
                (4760, true),
            ],
        );
    }

    #[test]
    fn small_steps_and_steps_back_are_taken_as_they_are() {
        check(
            None,
            &[(10_000, 0), (10_600, 60), (5000, 120), (5060, 180)],
            &[
                (10_000, false),
                (10_600, false),
                (5000, false),
                (5060, false),
            ],
        );
    }

    #[test]
    fn a_date_far_behind_the_last_record_is_doubted_at_the_start() {
        let newest = 10 * DAY;
        check(
            Some(newest),
            &[(newest + 3600, 0)],
            &[(newest + 3600, false)],
        );
        check(
            Some(newest),
            &[
                (20 * DAY, 0),
                (20 * DAY + 3599, 3599),
                (20 * DAY + 3600, 3600),
            ],
            &[
                (newest, true),
                (newest + 3599, true),
                (20 * DAY + 3600, false),
            ],
        );
        // A record of the future says nothing.
        check(Some(30 * DAY), &[(20 * DAY, 0)], &[(20 * DAY, false)]);
    }
}
