//! Bytes that pass, counted by the second.

use parking_lot::Mutex;
use serde::Serialize;
use std::time::Instant;

/// Seconds that are kept.
const SECONDS: usize = 64;

/// Which way bytes pass through a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Into the pool.
    In,
    /// Out of the pool.
    Out,
}

/// Bytes of one second, both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SecondTraffic {
    /// Bytes written into the pool.
    pub in_bytes: u64,
    /// Bytes read from the pool.
    pub out_bytes: u64,
}

/// Counts bytes; remembers the last minute by the second.
pub(crate) struct Meter {
    started: Instant,
    state: Mutex<MeterState>,
}

struct MeterState {
    second: u64,
    ring: [SecondTraffic; SECONDS],
    total: SecondTraffic,
}

impl Meter {
    pub(crate) fn new() -> Meter {
        Meter {
            started: Instant::now(),
            state: Mutex::new(MeterState {
                second: 0,
                ring: [SecondTraffic::default(); SECONDS],
                total: SecondTraffic::default(),
            }),
        }
    }

    pub(crate) fn add(&self, direction: Direction, bytes: u64) {
        let mut state = self.state.lock();
        state.advance(self.started.elapsed().as_secs());
        let slot = state.second as usize % SECONDS;
        match direction {
            Direction::In => {
                state.ring[slot].in_bytes += bytes;
                state.total.in_bytes += bytes;
            }
            Direction::Out => {
                state.ring[slot].out_bytes += bytes;
                state.total.out_bytes += bytes;
            }
        }
    }

    /// All bytes since the start, and those of the last whole seconds, latest first, at most `seconds`.
    pub(crate) fn read(&self, seconds: usize) -> (SecondTraffic, Vec<SecondTraffic>) {
        let mut state = self.state.lock();
        state.advance(self.started.elapsed().as_secs());
        let whole = state.second.min(seconds.min(SECONDS - 1) as u64);
        let history = (1..=whole)
            .map(|ago| state.ring[(state.second - ago) as usize % SECONDS])
            .collect();
        (state.total, history)
    }
}

impl MeterState {
    fn advance(&mut self, second: u64) {
        let skipped = second.saturating_sub(self.second).min(SECONDS as u64);
        for step in 0..skipped {
            self.ring[(second - step) as usize % SECONDS] = SecondTraffic::default();
        }
        self.second = self.second.max(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_in_the_second_in_which_they_moved() {
        let mut state = MeterState {
            second: 0,
            ring: [SecondTraffic {
                in_bytes: 7,
                out_bytes: 0,
            }; SECONDS],
            total: SecondTraffic::default(),
        };
        state.advance(3);
        let empty = state.ring.iter().filter(|slot| slot.in_bytes == 0).count();
        assert_eq!((state.second, empty), (3, 3));
        state.advance(3 + 1000);
        assert!(state.ring.iter().all(|slot| slot.in_bytes == 0));
    }
}
