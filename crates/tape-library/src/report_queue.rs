//! Reports of drives, by the time at which they come, and the time itself.
//!
//! Drives do their work at once and say when it would have been done. Virtual time therefore goes on only while no drive works.

use crate::definition::LibraryTime;
use parking_lot::{Condvar, Mutex, MutexGuard};
use penstock_tape::request::DriveName;
use penstock_tape::request_engine::DriveReport;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What a drive says, and when that was taken: times never go back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveMessage {
    pub at_ns: i64,
    pub drive: DriveName,
    pub report: DriveReport,
}

#[derive(Debug, Default)]
struct State {
    now_ns: i64,
    /// Drives that work.
    busy: usize,
    number: u64,
    reports: BTreeMap<(i64, u64), (DriveName, DriveReport)>,
    /// Grows when a drive is told to stop: what came before is over.
    generations: BTreeMap<DriveName, u64>,
    is_closed: bool,
}

#[derive(Debug)]
pub(crate) struct ReportQueue {
    time: LibraryTime,
    opened: Instant,
    opened_ns: i64,
    state: Mutex<State>,
    changed: Condvar,
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

impl ReportQueue {
    pub(crate) fn new(time: LibraryTime) -> ReportQueue {
        let opened_ns = match time {
            LibraryTime::Real => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, nanoseconds),
            LibraryTime::Scaled { origin_ns, .. } | LibraryTime::Virtual { origin_ns } => origin_ns,
        };
        let state = State {
            now_ns: opened_ns,
            ..State::default()
        };
        ReportQueue {
            time,
            opened: Instant::now(),
            opened_ns,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn factor(&self) -> i64 {
        match self.time {
            LibraryTime::Real | LibraryTime::Virtual { .. } => 1,
            LibraryTime::Scaled { factor, .. } => i64::from(factor.max(1)),
        }
    }

    pub(crate) fn now_ns(&self) -> i64 {
        match self.time {
            LibraryTime::Virtual { .. } => self.state.lock().now_ns,
            LibraryTime::Real | LibraryTime::Scaled { .. } => {
                let passed = nanoseconds(self.opened.elapsed());
                let passed = passed.saturating_mul(self.factor());
                self.opened_ns.saturating_add(passed)
            }
        }
    }

    pub(crate) fn begin_work(&self) {
        self.state.lock().busy += 1;
    }

    pub(crate) fn end_work(&self) {
        self.state.lock().busy -= 1;
        self.changed.notify_all();
    }

    pub(crate) fn generation(&self, drive: &DriveName) -> u64 {
        let state = self.state.lock();
        state.generations.get(drive).copied().unwrap_or(0)
    }

    /// Whatever a drive was doing is over; what it would have reported is not.
    pub(crate) fn stop(&self, drive: &DriveName) -> u64 {
        let mut state = self.state.lock();
        state.reports.retain(|_, (of, _)| of != drive);
        let generation = state.generations.entry(drive.clone()).or_default();
        *generation += 1;
        *generation
    }

    /// A report of a drive, unless it has been told to stop since.
    pub(crate) fn add(
        &self,
        at_ns: i64,
        (drive, generation): (&DriveName, u64),
        report: DriveReport,
    ) {
        let mut state = self.state.lock();
        if state.generations.get(drive).copied().unwrap_or(0) != generation {
            return;
        }
        state.number += 1;
        let number = state.number;
        let report = (drive.clone(), report);
        state.reports.insert((at_ns, number), report);
        drop(state);
        self.changed.notify_all();
    }

    /// Nobody waits any longer.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// The next report, when its time has come; `None` when `until_ns` comes first, or the library is closed.
    pub(crate) fn next(&self, until_ns: i64) -> Option<DriveMessage> {
        let mut state = self.state.lock();
        loop {
            let first = state.reports.keys().next().copied();
            if state.is_closed {
                return None;
            }
            if let LibraryTime::Virtual { .. } = self.time {
                if state.busy > 0 {
                    self.changed.wait(&mut state);
                    continue;
                }
                return self.next_virtual(&mut state, first, until_ns);
            }
            let now_ns = self.now_ns();
            match first {
                Some(key) if key.0 <= now_ns => return pop(&mut state, key, now_ns),
                _ if until_ns <= now_ns => return None,
                _ => {}
            }
            let next_ns = first.map_or(until_ns, |(at_ns, _)| at_ns.min(until_ns));
            let wait_ns = (next_ns - now_ns) / self.factor();
            let wait = Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(0) + 1);
            // A bounded wait, since the end of time is no instant.
            let wait = wait.min(Duration::from_secs(3_600));
            self.changed.wait_for(&mut state, wait);
        }
    }

    fn next_virtual(
        &self,
        state: &mut MutexGuard<'_, State>,
        first: Option<(i64, u64)>,
        until_ns: i64,
    ) -> Option<DriveMessage> {
        match first {
            Some(key) if key.0 <= until_ns => {
                state.now_ns = state.now_ns.max(key.0);
                let now_ns = state.now_ns;
                pop(state, key, now_ns)
            }
            _ => {
                if until_ns < i64::MAX {
                    state.now_ns = state.now_ns.max(until_ns);
                }
                None
            }
        }
    }
}

fn pop(state: &mut State, key: (i64, u64), at_ns: i64) -> Option<DriveMessage> {
    let (drive, report) = state.reports.remove(&key)?;
    Some(DriveMessage {
        at_ns,
        drive,
        report,
    })
}
