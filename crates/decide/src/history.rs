//! What may go of the history that a service keeps: given how long it is to be kept, and how far those have come who
//! follow the record.
//!
//! Somebody slow holds history back, but not for ever: beyond a bound it goes all the same, and that is told.

use penstock_model::Timestamp;
use std::time::Duration;

/// History is kept for as long at least: clients ask for jobs that have just ended, and the live page looks back.
pub const KEPT_AT_LEAST: Duration = Duration::from_secs(3600);
/// How much of the writer's time may go into removing: one part in so many.
const WRITER_SHARE: u32 = 20;
/// How long a step should hold the writer up.
const STEP_TARGET: Duration = Duration::from_millis(4);
/// The shortest wait between two steps.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Rows of a step, at first and at the bounds.
const ROWS_FIRST: usize = 100;
const ROWS_MIN: usize = 20;
const ROWS_MAX: usize = 2000;

/// How long what is kept. `None`: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Jobs after their end, with all that happened to their files.
    pub history: Option<Duration>,
    /// Samples of links, one a second.
    pub samples: Option<Duration>,
    /// Samples of minutes.
    pub minutes: Option<Duration>,
    /// Who changed which setting or ban.
    pub audit: Option<Duration>,
    /// For how much longer somebody who has not taken it can hold history back.
    pub held_max: Duration,
}

/// Somebody who follows the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryFollower {
    pub name: String,
    /// The last entry that was taken. `None`: that is not known yet.
    pub taken: Option<u64>,
}

/// A job that ended: the oldest that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oldest {
    pub ended: Timestamp,
    /// Its last entry.
    pub sequence: u64,
}

/// What may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruningBound {
    /// Jobs that ended before this time, if their last entry is not after `taken_by_all`.
    pub ended_before: Option<Timestamp>,
    /// So far all have come who follow the record.
    pub taken_by_all: u64,
    /// Jobs that ended before this time, whoever has not taken them.
    pub ended_long_before: Option<Timestamp>,
    /// Samples before this time.
    pub samples_before: Option<Timestamp>,
    /// Samples of minutes before this time.
    pub minutes_before: Option<Timestamp>,
    /// Changes of settings and bans before this time.
    pub audit_before: Option<Timestamp>,
}

/// What stays although its time is over, and because of whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverdueHistory {
    /// Those who have not taken the oldest of it, in the order of their names.
    pub by: Vec<String>,
    /// For how long the oldest of it has been held.
    pub since: Duration,
    /// How long until it goes all the same.
    pub left: Duration,
}

/// What may go now.
pub fn what_may_go(
    now: Timestamp,
    retention: &Retention,
    followers: &[HistoryFollower],
) -> PruningBound {
    let before = |kept: Option<Duration>| kept.map(|kept| earlier(now, kept.max(KEPT_AT_LEAST)));
    let ended_before = before(retention.history);
    let taken = followers.iter().map(|one| one.taken.unwrap_or(0)).min();
    PruningBound {
        ended_before,
        taken_by_all: taken.unwrap_or(u64::MAX),
        ended_long_before: ended_before.map(|time| earlier(time, retention.held_max)),
        samples_before: before(retention.samples),
        minutes_before: before(retention.minutes),
        audit_before: before(retention.audit),
    }
}

/// Whether somebody holds history back. `None`: nobody does.
pub fn what_is_held(
    now: Timestamp,
    retention: &Retention,
    followers: &[HistoryFollower],
    oldest: Option<Oldest>,
) -> Option<OverdueHistory> {
    let oldest = oldest?;
    let due = what_may_go(now, retention, followers).ended_before?;
    if oldest.ended >= due {
        return None;
    }
    let lags = |one: &&HistoryFollower| one.taken.unwrap_or(0) < oldest.sequence;
    let mut by: Vec<String> = followers
        .iter()
        .filter(lags)
        .map(|one| one.name.clone())
        .collect();
    if by.is_empty() {
        return None;
    }
    by.sort();
    let since = due.since(oldest.ended);
    Some(OverdueHistory {
        by,
        since,
        left: retention.held_max.saturating_sub(since),
    })
}

/// How large the steps are in which history is removed, and how far apart: so that none holds the writer up for more
/// than a few milliseconds, and all together take a small part of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepPace {
    /// Rows of the next step.
    pub rows: usize,
    /// The wait before it.
    pub pause: Duration,
}

impl Default for StepPace {
    fn default() -> StepPace {
        StepPace {
            rows: ROWS_FIRST,
            pause: PAUSE_MIN,
        }
    }
}

impl StepPace {
    /// After a step that removed something and took so long.
    pub fn after(self, took: Duration) -> StepPace {
        let rows = if took > STEP_TARGET {
            self.rows / 2
        } else if took < STEP_TARGET / 2 {
            self.rows * 2
        } else {
            self.rows
        };
        StepPace {
            rows: rows.clamp(ROWS_MIN, ROWS_MAX),
            pause: (took * (WRITER_SHARE - 1)).max(PAUSE_MIN),
        }
    }
}

fn earlier(time: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp(time.0.saturating_sub(by))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const NOW: Timestamp = Timestamp(1_000 * 86_400_000);

    fn days_ago(days: i64) -> Timestamp {
        Timestamp(NOW.0 - days * 86_400_000)
    }

    fn retention() -> Retention {
        Retention {
            history: Some(90 * DAY),
            samples: Some(30 * DAY),
            minutes: Some(400 * DAY),
            audit: None,
            held_max: 7 * DAY,
        }
    }

    fn follows(name: &str, taken: Option<u64>) -> HistoryFollower {
        HistoryFollower {
            name: name.to_owned(),
            taken,
        }
    }

    #[test]
    fn each_kind_goes_with_its_own_time_and_nothing_that_is_kept_for_ever() {
        let may = what_may_go(NOW, &retention(), &[]);
        assert_eq!(may.ended_before, Some(days_ago(90)));
        assert_eq!(may.ended_long_before, Some(days_ago(97)));
        assert_eq!(may.samples_before, Some(days_ago(30)));
        assert_eq!(may.minutes_before, Some(days_ago(400)));
        assert_eq!((may.audit_before, may.taken_by_all), (None, u64::MAX));
        let forever = Retention {
            history: None,
            ..retention()
        };
        let may = what_may_go(NOW, &forever, &[]);
        assert_eq!((may.ended_before, may.ended_long_before), (None, None));
    }

    #[test]
    fn nothing_goes_that_the_slowest_has_not_taken() {
        let followers = [follows("a", Some(70)), follows("b", Some(30))];
        let may = what_may_go(NOW, &retention(), &followers);
        assert_eq!(may.taken_by_all, 30);
        let followers = [follows("a", Some(70)), follows("new", None)];
        assert_eq!(what_may_go(NOW, &retention(), &followers).taken_by_all, 0);
    }

    #[test]
    fn however_short_the_time_is_what_has_just_ended_stays() {
        let short = Retention {
            history: Some(Duration::ZERO),
            ..retention()
        };
        let may = what_may_go(NOW, &short, &[]);
        assert_eq!(may.ended_before, Some(earlier(NOW, KEPT_AT_LEAST)));
    }

    #[test]
    fn who_holds_history_back_is_named_with_the_time_that_is_left() {
        let followers = [follows("slow", Some(9)), follows("fast", Some(10))];
        let oldest = |days, sequence| {
            let ended = days_ago(days);
            Some(Oldest { ended, sequence })
        };
        let held = |oldest| what_is_held(NOW, &retention(), &followers, oldest);
        assert_eq!(held(None), None);
        assert_eq!(held(oldest(89, 10)), None, "it is kept anyway");
        assert_eq!(held(oldest(92, 9)), None, "it goes with the next step");
        let told = held(oldest(92, 10)).expect("held");
        assert_eq!(told.by, ["slow"]);
        assert_eq!((told.since, told.left), (2 * DAY, 5 * DAY));
        let told = held(oldest(99, 11)).expect("held");
        assert_eq!(told.by, ["fast", "slow"]);
        assert_eq!(told.left, Duration::ZERO);
    }

    #[test]
    fn steps_become_as_large_as_the_writer_bears() {
        let mut pace = StepPace::default();
        for _ in 0..10 {
            pace = pace.after(Duration::from_micros(500));
        }
        assert_eq!((pace.rows, pace.pause), (ROWS_MAX, PAUSE_MIN));
        for _ in 0..20 {
            pace = pace.after(Duration::from_millis(30));
        }
        assert_eq!(pace.rows, ROWS_MIN);
        assert_eq!(pace.pause, Duration::from_millis(570));
    }
}
