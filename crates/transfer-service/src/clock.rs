//! The clock of this process, and whether what it says is believed: see `decide::clock`.

use parking_lot::{Mutex, MutexGuard};
use penstock_clock::wall_clock;
use penstock_decide::clock::{ClockCheck, ClockReading, ClockTrust};
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
    check: ClockCheck,
    standing: ClockTrust,
    knows_record: bool,
    /// When the journal was written before this process.
    written_at: Option<Timestamp>,
}

impl ClockWatch {
    pub(crate) fn start() -> ClockWatch {
        let started = Instant::now();
        let check = ClockCheck::begin(reading(started), None);
        ClockWatch {
            started,
            state: Mutex::new(ClockState {
                check,
                standing: ClockTrust::Credible,
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
            state.check = ClockCheck::begin(reading(self.started), Some(newest));
        }
        drop(state);
        self.is_credible();
    }

    /// Whether what cannot be taken back may be done on the word of the clock. Tells operators when that changes.
    pub(crate) fn is_credible(&self) -> bool {
        let mut state = self.state();
        let standing = state.check.observe(reading(self.started));
        match (std::mem::replace(&mut state.standing, standing), standing) {
            (ClockTrust::Credible, ClockTrust::Doubted { because, left }) => {
                let minutes = left.as_secs().div_ceil(60);
                tracing::error!(
                    "{because}: nothing expires and nothing is removed from history until it is set right, or has gone \
                     steadily for {minutes} min"
                );
            }
            (ClockTrust::Doubted { .. }, ClockTrust::Credible) => {
                tracing::info!("the clock is believed again");
            }
            (ClockTrust::Credible, ClockTrust::Credible)
            | (ClockTrust::Doubted { .. }, ClockTrust::Doubted { .. }) => {}
        }
        standing == ClockTrust::Credible
    }

    /// The time that is written into records now.
    pub(crate) fn recorded(&self) -> Timestamp {
        self.is_credible();
        self.state().check.recorded(reading(self.started))
    }

    /// As of the last look.
    pub(crate) fn standing(&self) -> ClockTrust {
        self.state().standing
    }
}

fn reading(started: Instant) -> ClockReading {
    ClockReading {
        wall: wall_clock(),
        monotonic: started.elapsed(),
    }
}
