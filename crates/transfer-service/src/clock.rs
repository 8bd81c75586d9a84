//! The clock of this process, and whether what it says is believed: see `decide::clock`.

use parking_lot::{Mutex, MutexGuard};
use penstock_clock::wall_clock;
use penstock_decide::clock::{ClockReading, ClockTracker, ClockTrust, ClockView, TrustChange};
use penstock_engine::Now;
use penstock_model::Timestamp;
use std::time::Instant;

/// The wall clock and the process's own clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineClock(Instant);

impl EngineClock {
    pub(crate) fn start() -> EngineClock {
        EngineClock(Instant::now())
    }

    /// `at`: what is written into records now.
    pub(crate) fn now(self, at: Timestamp) -> Now {
        Now {
            at,
            monotonic_us: self.0.elapsed().as_micros() as u64,
        }
    }

    /// A time of the process's clock as the engine reads it.
    pub(crate) fn monotonic_us(self, at: Instant) -> u64 {
        at.saturating_duration_since(self.0).as_micros() as u64
    }
}

/// Watches the wall clock.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    started: Instant,
    state: Mutex<ClockState>,
}

#[derive(Debug)]
struct ClockState {
    tracker: ClockTracker,
    knows_record: bool,
    /// When the journal was written before this process.
    written_at: Option<Timestamp>,
}

impl ClockWatch {
    pub(crate) fn start() -> ClockWatch {
        let started = Instant::now();
        ClockWatch {
            started,
            state: Mutex::new(ClockState {
                tracker: ClockTracker::begin(reading(started), None),
                knows_record: false,
                written_at: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock()
    }

    /// When an earlier process wrote the journal last. A service without work records nothing for long.
    pub(crate) fn was_written(&self, at: Timestamp) {
        self.state().written_at = Some(at);
    }

    /// The time of the newest record of an earlier process. Only the first counts.
    pub(crate) fn compare_with_record(&self, newest: Timestamp) {
        let mut state = self.state();
        let newest = state.written_at.map_or(newest, |at| at.max(newest));
        if !std::mem::replace(&mut state.knows_record, true) {
            let reading = reading(self.started);
            state.tracker.compare_with_record(reading, newest);
        }
        drop(state);
        self.look();
    }

    /// Whether what cannot be taken back may be done on the word of the clock.
    pub(crate) fn is_credible(&self) -> bool {
        self.trust() == ClockTrust::Credible
    }

    /// Whether the clock is believed now.
    pub(crate) fn trust(&self) -> ClockTrust {
        self.look().trust
    }

    /// The time that is written into records now.
    pub(crate) fn recorded(&self) -> Timestamp {
        self.look().recorded
    }

    /// As of the last look.
    pub(crate) fn standing(&self) -> ClockTrust {
        self.state().tracker.trust()
    }

    /// Reads the clocks, and tells operators when they begin or cease to be doubted.
    fn look(&self) -> ClockView {
        let view = self.state().tracker.observe(reading(self.started));
        match view.change {
            Some(TrustChange::Lost { because, left }) => {
                let minutes = left.as_secs().div_ceil(60);
                tracing::error!(
                    "{because}: nothing expires and nothing is removed from history until it is set right, or has gone \
                     steadily for {minutes} min"
                );
            }
            Some(TrustChange::Regained) => tracing::info!("the clock is believed again"),
            None => {}
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
