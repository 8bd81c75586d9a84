//! Whether a link is halted: after a run of failures of one kind the queue must not drain into errors, one
//! retry of every file at a time. A halted link lets one transfer pass now and then, and opens again when one
//! arrives.

use penstock_model::{Failure, FailureKind, Retry, Side, Timestamp};
use std::time::Duration;

/// A halted link is tried at least this often.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// When links are halted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HaltPolicy {
    /// Failures of one kind in a row, with nothing that arrived between them. 0: never.
    pub failures: u32,
    /// The wait before the first trial; it doubles with each trial that fails, up to ten minutes.
    pub wait: Duration,
}

impl Default for HaltPolicy {
    fn default() -> HaltPolicy {
        HaltPolicy {
            failures: 20,
            wait: Duration::from_secs(30),
        }
    }
}

/// A link that is halted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halt {
    /// When the next transfer is tried.
    pub until: Timestamp,
    /// Failures of one kind in a row so far.
    pub failures: u32,
    /// The last of them.
    pub last: Failure,
}

/// What the end of a transfer means for its link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing changes.
    Unchanged,
    /// From now on, or for longer, nothing starts until then.
    Halt(Halt),
    /// The trial has told nothing about the link: the next one may start.
    TryAnother,
    /// It works again.
    Reopen,
}

/// What the latest transfers of one link told about it.
#[derive(Debug, Clone, Default)]
pub struct LinkHealth {
    alike: u32,
    kind: Option<FailureKind>,
    /// When the next trial may start, and how many have failed.
    halted: Option<(Timestamp, u32)>,
}

impl LinkHealth {
    /// A transfer has arrived.
    pub fn landed(&mut self) -> Verdict {
        let was_halted = std::mem::take(self).halted.is_some();
        match was_halted {
            true => Verdict::Reopen,
            false => Verdict::Unchanged,
        }
    }

    /// A transfer has failed.
    pub fn failed(&mut self, now: Timestamp, failure: &Failure, policy: HaltPolicy) -> Verdict {
        if !speaks_of_the_link(failure) {
            return self.ended_without_telling(now);
        }
        let kind = failure.kind();
        self.alike = match self.kind == Some(kind) {
            true => self.alike.saturating_add(1),
            false => 1,
        };
        self.kind = Some(kind);
        let trials = match self.halted {
            // It was started before the link was halted.
            Some((until, _)) if now < until => return Verdict::Unchanged,
            Some((_, trials)) => trials + 1,
            None if policy.failures > 0 && self.alike >= policy.failures => 0,
            None => return Verdict::Unchanged,
        };
        let wait = policy
            .wait
            .saturating_mul(1 << trials.min(16))
            .min(WAIT_MAX);
        let until = now + wait;
        self.halted = Some((until, trials));
        Verdict::Halt(Halt {
            until,
            failures: self.alike,
            last: failure.clone(),
        })
    }

    /// A transfer was stopped, or failed for a reason of its own.
    pub fn ended_without_telling(&self, now: Timestamp) -> Verdict {
        match self.halted {
            Some((until, _)) if now >= until => Verdict::TryAnother,
            Some(_) | None => Verdict::Unchanged,
        }
    }

    /// Whether nothing starts but trials.
    pub fn is_halted(&self) -> bool {
        self.halted.is_some()
    }
}

/// What would fail again for the same file says nothing about others.
fn speaks_of_the_link(failure: &Failure) -> bool {
    failure.retry == Retry::Later && failure.side != Side::Service
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Errno, Phase};

    const POLICY: HaltPolicy = HaltPolicy {
        failures: 3,
        wait: Duration::from_secs(30),
    };

    fn failure(errno: Errno, retry: Retry) -> Failure {
        Failure {
            side: Side::Destination,
            retry,
            phase: Phase::Preparation,
            errno,
            detail: "a test says so".to_owned(),
            found: None,
            busy: None,
        }
    }

    fn refused() -> Failure {
        failure(Errno::ECONNREFUSED, Retry::Later)
    }

    /// When the next trial may start after failures at these seconds.
    fn halted_until(health: &mut LinkHealth, failures: &[(i64, Failure)]) -> Option<i64> {
        let mut until = None;
        for (at, failure) in failures {
            if let Verdict::Halt(halt) = health.failed(Timestamp(at * 1000), failure, POLICY) {
                until = Some(halt.until.0 / 1000);
            }
        }
        until
    }

    #[test]
    fn a_run_of_failures_of_one_kind_halts_the_link() {
        let mut health = LinkHealth::default();
        let run: Vec<_> = (0..3).map(|at| (at, refused())).collect();
        assert_eq!(halted_until(&mut health, &run), Some(32));
        assert!(health.is_halted());
    }

    #[test]
    fn failures_of_many_kinds_and_those_of_files_do_not() {
        let mut health = LinkHealth::default();
        let timeout = failure(Errno::ETIMEDOUT, Retry::Later);
        let mixed = [(0, refused()), (1, refused()), (2, timeout), (3, refused())];
        assert_eq!(halted_until(&mut health, &mixed), None);
        let missing = failure(Errno::ENOENT, Retry::Never);
        let own: Vec<_> = (0..9).map(|at| (at, missing.clone())).collect();
        assert_eq!(halted_until(&mut LinkHealth::default(), &own), None);
    }

    #[test]
    fn an_arrival_begins_the_count_anew() {
        let mut health = LinkHealth::default();
        assert_eq!(
            halted_until(&mut health, &[(0, refused()), (1, refused())]),
            None
        );
        assert_eq!(health.landed(), Verdict::Unchanged);
        assert_eq!(
            halted_until(&mut health, &[(2, refused()), (3, refused())]),
            None
        );
    }

    #[test]
    fn trials_become_rarer_but_never_rarer_than_ten_minutes() {
        let mut health = LinkHealth::default();
        let run: Vec<_> = (0..3).map(|_| (0, refused())).collect();
        let mut until = halted_until(&mut health, &run).expect("halted");
        let mut waits = Vec::new();
        for _ in 0..6 {
            let next = halted_until(&mut health, &[(until, refused())]).expect("halted");
            waits.push(next - until);
            until = next;
        }
        assert_eq!(waits, [60, 120, 240, 480, 600, 600]);
    }

    #[test]
    fn what_was_running_when_the_link_was_halted_makes_it_no_worse() {
        let mut health = LinkHealth::default();
        let run: Vec<_> = (0..3).map(|_| (0, refused())).collect();
        halted_until(&mut health, &run);
        assert_eq!(
            halted_until(&mut health, &[(1, refused()), (2, refused())]),
            None
        );
    }

    #[test]
    fn an_arrival_opens_it_and_a_file_of_its_own_fault_lets_another_try() {
        let mut health = LinkHealth::default();
        let run: Vec<_> = (0..3).map(|_| (0, refused())).collect();
        halted_until(&mut health, &run);
        let missing = failure(Errno::ENOENT, Retry::Never);
        let verdict = health.failed(Timestamp(31_000), &missing, POLICY);
        assert_eq!(verdict, Verdict::TryAnother);
        assert_eq!(health.landed(), Verdict::Reopen);
        assert!(!health.is_halted());
    }

    #[test]
    fn it_can_be_switched_off() {
        let off = HaltPolicy {
            failures: 0,
            ..POLICY
        };
        let mut health = LinkHealth::default();
        for at in 0..100 {
            let verdict = health.failed(Timestamp(at), &refused(), off);
            assert_eq!(verdict, Verdict::Unchanged);
        }
    }
}
