//! Both clocks of this process, read together wherever something ends by its term or is written down: see
//! `decide::clock`. Measurements of how long something took read `Instant` themselves.

use parking_lot::Mutex;
use penstock_clock::wall_clock;
use penstock_decide::clock::{ClockReading, ClockTracker, ClockTrust, ClockView, TrustChange};
use penstock_model::Timestamp;
use std::time::{Duration, Instant};

/// The time by which terms end: the wall clock, unless that is doubted.
#[derive(Debug)]
pub(crate) struct BelievedClock {
    started: Instant,
    tracker: Mutex<ClockTracker>,
}

impl BelievedClock {
    /// `newest` is the newest time that the last run wrote down.
    pub(crate) fn start(newest: Option<Timestamp>) -> BelievedClock {
        let started = Instant::now();
        BelievedClock {
            started,
            tracker: Mutex::new(ClockTracker::begin(reading(started), newest)),
        }
    }

    /// What is over by now is over.
    pub(crate) fn now(&self) -> Timestamp {
        self.look().believed
    }

    /// Whether the wall clock is believed.
    pub(crate) fn standing(&self) -> ClockTrust {
        self.look().trust
    }

    /// The time that is written down as when something happened, and from which terms begin.
    pub(crate) fn recorded(&self) -> Timestamp {
        self.look().recorded
    }

    /// Reads the clocks, and tells operators when they are doubted.
    fn look(&self) -> ClockView {
        let view = {
            let mut tracker = self.tracker.lock();
            tracker.observe(reading(self.started))
        };
        if let Some(TrustChange::Lost { because, left }) = view.change {
            let minutes = left.as_secs().div_ceil(60);
            tracing::warn!(
                "{because}: uploads, locks and files in quarantine or trash do not expire by it until it is set right, or \
                 has gone steadily for {minutes} min"
            );
        }
        view
    }
}

fn reading(started: Instant) -> ClockReading {
    ClockReading {
        wall: wall_clock(),
        monotonic: started.elapsed(),
    }
}

/// A duration as stage clocks hold it.
pub(crate) fn microseconds(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
