//! The clocks of this machine, read in one place.

use parking_lot::Mutex;
use penstock_clock::wall_clock;
use penstock_decide::clock::{ClockCheck, ClockReading, ClockTrust};
use penstock_model::Timestamp;
use std::time::{Duration, Instant};

/// The time by which terms end: the wall clock, unless that is doubted. See `decide::clock`.
#[derive(Debug)]
pub(crate) struct BelievedClock {
    started: Instant,
    state: Mutex<(ClockCheck, ClockTrust)>,
}

impl BelievedClock {
    /// `newest` is the newest time that the last run wrote down.
    pub(crate) fn start(newest: Option<Timestamp>) -> BelievedClock {
        let started = Instant::now();
        let check = ClockCheck::begin(reading(started), newest);
        BelievedClock {
            started,
            state: Mutex::new((check, ClockTrust::Credible)),
        }
    }

    /// What is over by now is over.
    pub(crate) fn now(&self) -> Timestamp {
        self.look().believed
    }

    /// Whether the wall clock is believed.
    pub(crate) fn standing(&self) -> ClockTrust {
        self.look().standing
    }

    fn look(&self) -> ClockLook {
        let mut state = self.state.lock();
        let (check, before) = &mut *state;
        let reading = reading(self.started);
        let standing = check.observe(reading);
        if let (ClockTrust::Credible, ClockTrust::Doubted { because, left }) =
            (std::mem::replace(before, standing), standing)
        {
            let minutes = left.as_secs().div_ceil(60);
            tracing::warn!(
                "{because}: uploads, locks and files in quarantine or trash do not expire by it until it is set right, or \
                 has gone steadily for {minutes} min"
            );
        }
        ClockLook {
            believed: check.believed(reading),
            recorded: check.recorded(reading),
            standing,
        }
    }

    /// The time that is written down as when something happened, and from which terms begin.
    pub(crate) fn recorded(&self) -> Timestamp {
        self.look().recorded
    }
}

struct ClockLook {
    believed: Timestamp,
    recorded: Timestamp,
    standing: ClockTrust,
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
