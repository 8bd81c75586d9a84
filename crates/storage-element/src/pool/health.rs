//! How a pool's disk does: what failed, what that means for the pool, and whether it answers at all.

use parking_lot::{Mutex, MutexGuard};
use penstock_decide::pool_condition::{
    FAILURES_WINDOW, FaultPersistence, PastFailure, PoolCondition, RELAPSE_WINDOW, ReadOnlyReason,
    judge_writes,
};
use penstock_model::{PoolName, TimeSpan};
use penstock_protocol::exposition::Counter;
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A thread that waits for its disk for longer has a disk that does not answer.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Failures that are remembered.
const FAILURES_KEPT: usize = 100;
/// How long a read that failed is worth an alarm.
const READ_ALARM: Duration = Duration::from_secs(3600);

/// How a pool's disk does.
#[derive(Debug)]
pub(crate) struct DiskHealth {
    started: Instant,
    state: Mutex<DiskRecord>,
    /// Something failed that the pool's own thread should look at now.
    is_suspicious: AtomicBool,
    /// Threads of the pool that wait for its disk, since so many milliseconds after the start plus one. 0: it does not.
    waiting: [AtomicU64; 2],
    pub writes_failed: Counter,
    pub reads_failed: Counter,
}

#[derive(Debug, Default)]
struct DiskRecord {
    condition: PoolCondition,
    failures: Vec<(Instant, FaultPersistence, String)>,
    /// A file found no room although there should have been some.
    no_room: Vec<(Instant, String)>,
    /// When it was taken out.
    relapses: Vec<Instant>,
    last_read_failure: Option<(Instant, String)>,
    /// Nothing was found out since the start.
    is_unknown: bool,
}

/// Which thread of a pool waits for the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DiskThread {
    Upkeep,
    Commit,
}

impl Default for DiskHealth {
    /// Nothing was looked at yet.
    fn default() -> DiskHealth {
        DiskHealth {
            started: Instant::now(),
            state: Mutex::default(),
            is_suspicious: AtomicBool::new(false),
            waiting: Default::default(),
            writes_failed: Counter::default(),
            reads_failed: Counter::default(),
        }
    }
}

impl DiskHealth {
    pub(crate) fn condition(&self) -> PoolCondition {
        let condition = self.state().condition.clone();
        match (&condition, self.silent_for()) {
            (PoolCondition::Sound, Some(silent)) => PoolCondition::Silent {
                seconds: silent.as_secs(),
            },
            _ => condition,
        }
    }

    /// Until its own thread has looked it is not used.
    pub(crate) fn begin(&self) {
        let mut state = self.state();
        state.is_unknown = true;
        state.condition = PoolCondition::Away {
            why: "its disk has not answered since the start".to_owned(),
        };
    }

    /// What its own thread has found. Tells the log of a change.
    pub(crate) fn set(&self, pool: &PoolName, condition: PoolCondition) {
        let mut state = self.state();
        if state.condition == condition {
            return;
        }
        let was_unknown = std::mem::take(&mut state.is_unknown);
        match &condition {
            PoolCondition::Sound if was_unknown => {}
            PoolCondition::Sound => {
                tracing::warn!(%pool, "the pool works again");
                state.failures.clear();
                state.no_room.clear();
            }
            PoolCondition::ReadOnly { .. } => {
                tracing::error!(%pool, "pool {pool} {condition}");
                let now = Instant::now();
                state.relapses.retain(|at| now - *at < RELAPSE_WINDOW);
                if state.condition == PoolCondition::Sound {
                    state.relapses.push(now);
                }
            }
            PoolCondition::Silent { .. } | PoolCondition::Away { .. } => {
                tracing::error!(%pool, "pool {pool} {condition}");
            }
        }
        state.condition = condition;
    }

    /// How often it was taken out lately.
    pub(crate) fn relapses(&self) -> u32 {
        u32::try_from(self.state().relapses.len()).unwrap_or(u32::MAX)
    }

    /// A write failed. What its client did wrong, or the process as a whole, is not held against the disk.
    pub(crate) fn write_failed(&self, pool: &PoolName, source: &io::Error) {
        let failure = match Errno::from_io_error(source) {
            Some(Errno::NOSPC | Errno::DQUOT) => {
                let mut state = self.state();
                if state.no_room.len() < FAILURES_KEPT {
                    state.no_room.push((Instant::now(), source.to_string()));
                }
                drop(state);
                self.is_suspicious.store(true, Ordering::Relaxed);
                return;
            }
            // Of an upload that was given up a file may be missing; or the whole pool is.
            Some(Errno::NOENT) => {
                self.is_suspicious.store(true, Ordering::Relaxed);
                return;
            }
            Some(Errno::ROFS | Errno::NOTDIR | Errno::ACCESS | Errno::PERM) => {
                FaultPersistence::Permanent
            }
            Some(errno) if is_disk_errno(errno) => FaultPersistence::Passing,
            _ => return,
        };
        self.failed(pool, failure, source.to_string());
    }

    /// The disk took too long.
    pub(crate) fn stalled(&self, pool: &PoolName, after: Duration) {
        let text = format!("no answer for {}", TimeSpan(after));
        self.failed(pool, FaultPersistence::Passing, text);
    }

    fn failed(&self, pool: &PoolName, failure: FaultPersistence, text: String) {
        self.writes_failed.increment();
        tracing::error!(%pool, why = text, "a pool's disk failed");
        let now = Instant::now();
        let mut state = self.state();
        state
            .failures
            .retain(|(at, ..)| now - *at < FAILURES_WINDOW);
        if state.failures.len() < FAILURES_KEPT {
            state.failures.push((now, failure, text));
        }
        let past = |(at, failure, text): &(Instant, FaultPersistence, String)| PastFailure {
            failure: *failure,
            ago: now - *at,
            text: text.clone(),
        };
        let failures: Vec<PastFailure> = state.failures.iter().map(past).collect();
        let is_sound = state.condition == PoolCondition::Sound;
        drop(state);
        self.is_suspicious.store(true, Ordering::Relaxed);
        if let Some(why) = judge_writes(&failures)
            && is_sound
        {
            self.set(pool, PoolCondition::ReadOnly { why });
        }
    }

    /// It could not be made ready for new files, or its mark could not be written.
    pub(crate) fn unprepared(&self, pool: &PoolName, why: String) {
        self.writes_failed.increment();
        let why = ReadOnlyReason::Unprepared { why };
        self.set(pool, PoolCondition::ReadOnly { why });
    }

    /// Files found no room while there is some after all: the disk refuses them for another reason.
    pub(crate) fn judge_no_room(&self, pool: &PoolName, is_room: bool) {
        let refused = std::mem::take(&mut self.state().no_room);
        if is_room {
            for (_, text) in refused {
                self.failed(pool, FaultPersistence::Passing, text);
            }
        }
    }

    /// Bytes of a file could not be read.
    pub(crate) fn read_failed(&self, text: String) {
        self.reads_failed.increment();
        self.state().last_read_failure = Some((Instant::now(), text));
        self.is_suspicious.store(true, Ordering::Relaxed);
    }

    /// The last of the reads that failed lately.
    pub(crate) fn last_read_failure(&self) -> Option<String> {
        let state = self.state();
        let last = state.last_read_failure.as_ref();
        last.filter(|(at, _)| at.elapsed() < READ_ALARM)
            .map(|(_, text)| text.clone())
    }

    /// Whether something failed since this was last called.
    pub(crate) fn take_suspicion(&self) -> bool {
        self.is_suspicious.swap(false, Ordering::Relaxed)
    }

    /// Does what may wait for the disk.
    pub(crate) fn during<T>(&self, work: DiskThread, done: impl FnOnce() -> T) -> T {
        let waiting = &self.waiting[work as usize];
        let since = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        waiting.store(since + 1, Ordering::Relaxed);
        let result = done();
        waiting.store(0, Ordering::Relaxed);
        result
    }

    /// How long a thread has waited for the disk, when that is too long.
    fn silent_for(&self) -> Option<Duration> {
        let since = self.waiting.iter().filter_map(|waiting| {
            let since = waiting.load(Ordering::Relaxed).checked_sub(1)?;
            Some(Duration::from_millis(since))
        });
        let longest = self.started.elapsed().saturating_sub(since.min()?);
        (longest > SILENCE_MAX).then_some(longest)
    }

    fn state(&self) -> MutexGuard<'_, DiskRecord> {
        self.state.lock()
    }
}

/// An error that speaks of the disk: not of what was asked of it, and not of this process.
fn is_disk_errno(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::IO
            | Errno::ROFS
            | Errno::NXIO
            | Errno::NODEV
            | Errno::STALE
            | Errno::UCLEAN
            | Errno::TIMEDOUT
            | Errno::REMOTEIO
            | Errno::BADMSG
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(standing: &DiskHealth, errno: Errno) {
        standing.write_failed(&PoolName::new("p"), &errno.into());
    }

    #[test]
    fn some_failures_of_the_disk_take_a_pool_out_and_mistakes_of_clients_do_not() {
        let standing = DiskHealth::default();
        for _ in 0..10 {
            // Too large for the file system, no descriptor left, an upload that was given up.
            for errno in [Errno::FBIG, Errno::MFILE, Errno::NOENT] {
                failed(&standing, errno);
            }
        }
        assert_eq!(standing.condition(), PoolCondition::Sound);
        failed(&standing, Errno::IO);
        failed(&standing, Errno::IO);
        assert!(standing.condition().takes_files());
        failed(&standing, Errno::IO);
        assert!(!standing.condition().takes_files() && standing.condition().gives_files());
        assert_eq!(standing.writes_failed.read(), 3);
    }

    #[test]
    fn a_file_system_that_became_read_only_takes_its_pool_out_at_once() {
        let standing = DiskHealth::default();
        failed(&standing, Errno::ROFS);
        let PoolCondition::ReadOnly { why } = standing.condition() else {
            panic!("it takes files");
        };
        assert_eq!(
            why.to_string(),
            "a write failed (Read-only file system (os error 30))"
        );
        standing.set(&PoolName::new("p"), PoolCondition::Sound);
        assert_eq!(standing.relapses(), 1);
        failed(&standing, Errno::IO);
        assert!(
            standing.condition().takes_files(),
            "what was before counts no more"
        );
    }

    #[test]
    fn want_of_room_counts_only_where_there_is_room() {
        let (standing, pool) = (DiskHealth::default(), PoolName::new("p"));
        for is_room in [false, true] {
            for _ in 0..3 {
                failed(&standing, Errno::NOSPC);
            }
            assert!(standing.take_suspicion());
            standing.judge_no_room(&pool, is_room);
            assert_eq!(standing.condition().takes_files(), !is_room);
        }
    }
}
