//! The clocks of this machine, read in one place.

use penstock_decide::clock_doubt::{ClockDoubt, Clocks, Leap};
use penstock_model::Timestamp;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time by which terms end: the wall clock, unless that has leaped.
#[derive(Debug)]
pub(crate) struct BelievedClock {
    started: Instant,
    state: Mutex<(ClockDoubt, Option<Leap>)>,
}

impl BelievedClock {
    /// `newest` is the newest time that the last run wrote down.
    pub(crate) fn start(newest: Option<Timestamp>) -> BelievedClock {
        let clocks = Clocks {
            wall: now(),
            since_start: Duration::ZERO,
        };
        BelievedClock {
            started: Instant::now(),
            state: Mutex::new((ClockDoubt::at_start(clocks, newest), None)),
        }
    }

    /// What is over by now is over.
    pub(crate) fn now(&self) -> Timestamp {
        let clocks = Clocks {
            wall: now(),
            since_start: self.started.elapsed(),
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (doubt, before) = &mut *state;
        let (believed, leap) = doubt.believe(clocks);
        if let (Some(leap), None) = (leap, *before) {
            let (ahead, seconds) = (leap.ahead.as_secs(), leap.believed_in.as_secs());
            tracing::warn!(
                ahead,
                "the clock is ahead of what was expected; nothing expires by it for {seconds} s"
            );
        }
        *before = leap;
        believed
    }

    /// The date as the system tells it.
    pub(crate) fn wall(&self) -> Timestamp {
        now()
    }

    /// What an operator should know of the clock.
    pub(crate) fn finding(&self) -> Option<String> {
        self.now();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1.map(|leap| {
            format!(
                "the clock is {} s ahead of what was expected, so unfinished uploads, locks and files in quarantine do \
                 not expire for {} s; check the time of this machine",
                leap.ahead.as_secs(),
                leap.believed_in.as_secs()
            )
        })
    }
}

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(0) + since_epoch
}

/// A duration as stage clocks hold it.
pub(crate) fn microseconds(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
