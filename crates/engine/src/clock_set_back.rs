//! A wall clock that is set back while the service runs: what was to happen after a while happens after that while, and
//! not when the clock has come so far again. What operators and users have named by date stays as they named it. And
//! since when the clock has gone steadily, either way: agents judge by that how old a record is.

use super::{Engine, Now};
use penstock_decide::clock::LEAP_TOLERANCE;
use penstock_decide::record_clock::RecordClock;
use penstock_model::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

/// Clocks are corrected by less all the time.
const SET_BACK_MIN: Duration = Duration::from_secs(1);

impl Engine {
    /// Compares the clocks with what they showed at the last input.
    pub(super) fn follow_clock(&mut self, now: Now) {
        let before = std::mem::replace(&mut self.looked_at, now);
        if has_leapt(self.steady_since, now) {
            self.steady_since = now;
        }
        if let Some(by) = set_back_by(before, now) {
            bring_forward(&mut self.delayed, by);
            self.halting.bring_forward(by);
            self.owing.bring_forward(by);
            self.tape.bring_forward(by);
        }
    }

    /// What the clock of the records shows, as of the last input.
    pub(super) fn record_clock(&self) -> RecordClock {
        RecordClock {
            at: self.looked_at.at,
            steady_since: self.steady_since.at,
        }
    }
}

fn has_leapt(since: Now, now: Now) -> bool {
    let expected = expected(since, now);
    now.at.since(expected).max(expected.since(now.at)) > LEAP_TOLERANCE
}

/// What the wall clock should show now.
fn expected(before: Now, now: Now) -> Timestamp {
    before.at + now.running().saturating_sub(before.running())
}

fn set_back_by(before: Now, now: Now) -> Option<Duration> {
    let by = expected(before, now).since(now.at);
    (by >= SET_BACK_MIN).then_some(by)
}

/// Makes all entries of a heap due earlier by this much.
pub(super) fn bring_forward<T: Ord>(
    waiting: &mut BinaryHeap<Reverse<(Timestamp, T)>>,
    by: Duration,
) {
    let earlier = |Reverse((at, what))| Reverse((at - by, what));
    *waiting = waiting.drain().map(earlier).collect();
}

/// The same for a set.
pub(super) fn bring_forward_set<T: Ord>(waiting: &mut BTreeSet<(Timestamp, T)>, by: Duration) {
    let before = std::mem::take(waiting);
    *waiting = before
        .into_iter()
        .map(|(at, what)| (at - by, what))
        .collect();
}
