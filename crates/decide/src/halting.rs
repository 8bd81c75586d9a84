//! Whether a link is halted: after a run of failures of one kind the queue must not drain into errors, one
//! retry of every file at a time. A halted link lets one transfer pass now and then, and opens again when one
//! arrives.
//!
//! A link is everybody's, so nobody halts it for others. Only failures count that speak of a storage element or of the
//! link. While others have something to do there, no user's failures make up more than half of a run, and those of no VO
//! when others are there: a storage element that refuses one VO works for the rest. And who comes to a halted link by whom
//! it is untried yet, is tried at once.

use penstock_model::{Failure, FailureKind, Timestamp, UserName, VoName};
use std::collections::BTreeMap;
use std::time::Duration;

/// A halted link is tried at least this often.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// When links are halted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HaltPolicy {
    /// Failures of one kind in a row, with nothing that arrived between them, of several users where several use the
    /// link. 0: never.
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

/// On whose behalf a transfer runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransferOwner {
    /// Whose rights and shares count.
    pub vo: VoName,
    pub user: UserName,
}

/// Who else has something on a link, waiting or running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkCotenants {
    /// Nobody.
    None,
    /// Others of the same VO only.
    SameVo,
    /// Somebody of another VO.
    OtherVos,
}

/// A failure, with what must be known to count it.
#[derive(Debug, Clone, Copy)]
pub struct FailedTransfer<'a> {
    pub failure: &'a Failure,
    pub party: &'a TransferOwner,
    /// Who else uses the link.
    pub company: LinkCotenants,
}

/// A link that is halted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halt {
    /// When the next transfer is tried.
    pub until: Timestamp,
    /// Failures of one kind in a row so far.
    pub failures: u32,
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
    run: Run,
    halted: Option<Trials>,
}

/// The trials of a halted link.
#[derive(Debug, Clone, Copy)]
struct Trials {
    /// When the next one may start.
    next_at: Timestamp,
    /// How many have failed.
    failed: u32,
}

/// Failures of one kind in a row.
#[derive(Debug, Clone, Default)]
struct Run {
    kind: Option<FailureKind>,
    by: BTreeMap<TransferOwner, u32>,
    last: Option<TransferOwner>,
}

impl Run {
    fn add(&mut self, failure: &Failure, party: &TransferOwner) {
        let kind = failure.kind();
        if self.kind != Some(kind) {
            *self = Run {
                kind: Some(kind),
                ..Run::default()
            };
        }
        let count = self.by.entry(party.clone()).or_default();
        *count = count.saturating_add(1);
        self.last = Some(party.clone());
    }

    fn length(&self) -> u32 {
        let counts = self.by.values();
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Whether it is enough to halt the link, with others there.
    fn is_enough(&self, company: LinkCotenants, needed: u32) -> bool {
        let by_one_max = needed.div_ceil(2);
        let of_users = |users: &mut dyn Iterator<Item = u32>| {
            users.fold(0u32, |sum, count| sum.saturating_add(count.min(by_one_max)))
        };
        match company {
            LinkCotenants::None => self.length() >= needed,
            LinkCotenants::SameVo => {
                self.by.len() > 1 && of_users(&mut self.by.values().copied()) >= needed
            }
            LinkCotenants::OtherVos => {
                let mut vos: BTreeMap<&VoName, u32> = BTreeMap::new();
                for (party, count) in &self.by {
                    let of_vo = vos.entry(&party.vo).or_default();
                    *of_vo = of_vo.saturating_add((*count).min(by_one_max));
                }
                vos.len() > 1 && of_users(&mut vos.values().copied()) >= needed
            }
        }
    }
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
    pub fn failed(
        &mut self,
        now: Timestamp,
        failed: FailedTransfer<'_>,
        policy: HaltPolicy,
    ) -> Verdict {
        let FailedTransfer {
            failure,
            party,
            company,
        } = failed;
        if !failure.concern.is_shared() {
            // The next trial is somebody else's.
            if self.is_halted() {
                self.run.last = Some(party.clone());
            }
            return self.ended_without_telling(now);
        }
        self.run.add(failure, party);
        let failed = match self.halted {
            // It was started before the link was halted.
            Some(trials) if now < trials.next_at => return Verdict::Unchanged,
            Some(trials) => trials.failed + 1,
            None if policy.failures > 0 && self.run.is_enough(company, policy.failures) => 0,
            None => return Verdict::Unchanged,
        };
        let wait = policy
            .wait
            .saturating_mul(1 << failed.min(16))
            .min(WAIT_MAX);
        let until = now + wait;
        self.halted = Some(Trials {
            next_at: until,
            failed,
        });
        Verdict::Halt(Halt {
            until,
            failures: self.run.length(),
            last: failure.clone(),
        })
    }

    /// A transfer was stopped, or failed for a reason of its own.
    pub fn ended_without_telling(&self, now: Timestamp) -> Verdict {
        match self.halted {
            Some(trials) if now >= trials.next_at => Verdict::TryAnother,
            Some(_) | None => Verdict::Unchanged,
        }
    }

    /// Whether a halted link is news to this one: nobody of its VO has failed in the run, or one other user alone.
    pub fn is_untried_by(&self, party: &TransferOwner) -> bool {
        let mut failed = self.run.by.keys();
        let is_of_one = self.run.by.len() == 1;
        self.is_halted()
            && (failed.all(|other| other.vo != party.vo)
                || is_of_one && !self.run.by.contains_key(party))
    }

    /// Somebody by whom the link is untried has something to do there. True when that is tried at once.
    pub fn try_newcomer(&mut self, now: Timestamp) -> bool {
        match &mut self.halted {
            Some(trials) if now < trials.next_at => {
                trials.next_at = now;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Whether nothing starts but trials.
    pub fn is_halted(&self) -> bool {
        self.halted.is_some()
    }

    /// Whether a failure that speaks of a storage element or of the link costs its file no retry: nothing starts here but
    /// trials, or this party alone has failed as often as would halt a link that nobody else used. Its files wait longer
    /// and longer then, and are not lost while others go on.
    pub fn excuses(&self, party: &TransferOwner, policy: HaltPolicy) -> bool {
        let of_party = self.run.by.get(party).copied().unwrap_or_default();
        self.is_halted() || (policy.failures > 0 && of_party >= policy.failures)
    }

    /// Whether the time of the next trial has come.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.halted.is_some_and(|trials| now >= trials.next_at)
    }

    /// The clock was set back by this much: the next trial waits no longer for that.
    pub fn bring_forward(&mut self, by: Duration) {
        if let Some(trials) = &mut self.halted {
            trials.next_at = trials.next_at - by;
        }
    }

    /// Who failed last: a trial goes to somebody else, if there is anybody.
    pub fn last_party(&self) -> Option<&TransferOwner> {
        self.run.last.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Concern, Errno, Phase, Retry, Side};

    const POLICY: HaltPolicy = HaltPolicy {
        failures: 3,
        wait: Duration::from_secs(30),
    };

    fn failure(errno: Errno, concern: Concern) -> Failure {
        Failure {
            side: Side::Destination,
            retry: Retry::Later,
            concern,
            phase: Phase::Preparation,
            errno,
            detail: "a test says so".to_owned(),
            found: None,
            busy: None,
            code: None,
        }
    }

    fn refused() -> Failure {
        failure(Errno::ECONNREFUSED, Concern::StorageElement)
    }

    fn party(name: &str) -> TransferOwner {
        let (vo, user) = name.split_once('/').expect("vo/user");
        TransferOwner {
            vo: VoName::new(vo),
            user: UserName::new(user),
        }
    }

    /// One of a single user who is alone on the link.
    fn fail(health: &mut LinkHealth, at: i64, failure: &Failure, policy: HaltPolicy) -> Verdict {
        let failed = FailedTransfer {
            failure,
            party: &party("cms/alice"),
            company: LinkCotenants::None,
        };
        health.failed(Timestamp(at), failed, policy)
    }

    /// Whether a link on which others have something to do is halted after so many failures of these.
    fn is_halted_by(company: LinkCotenants, run: &[(&str, u32)]) -> bool {
        let policy = HaltPolicy {
            failures: 20,
            ..POLICY
        };
        let mut health = LinkHealth::default();
        for (name, count) in run {
            for at in 0..*count {
                let failed = FailedTransfer {
                    failure: &refused(),
                    party: &party(name),
                    company,
                };
                health.failed(Timestamp(at.into()), failed, policy);
            }
        }
        health.is_halted()
    }

    /// When the next trial may start after failures at these seconds.
    fn halted_until(health: &mut LinkHealth, failures: &[(i64, Failure)]) -> Option<i64> {
        let mut until = None;
        for (at, failure) in failures {
            if let Verdict::Halt(halt) = fail(health, at * 1000, failure, POLICY) {
                until = Some(halt.until.0 / 1000);
            }
        }
        until
    }

    #[test]
    fn who_fails_alone_beside_others_loses_no_retries_for_it() {
        let (mut health, alone) = (LinkHealth::default(), party("cms/alice"));
        for _ in 0..POLICY.failures {
            assert!(!health.excuses(&alone, POLICY));
            let failed = FailedTransfer {
                failure: &refused(),
                party: &alone,
                company: LinkCotenants::OtherVos,
            };
            let verdict = health.failed(Timestamp(0), failed, POLICY);
            assert_eq!(verdict, Verdict::Unchanged);
        }
        assert!(health.excuses(&alone, POLICY));
        assert!(!health.excuses(&party("atlas/bob"), POLICY));
        health.landed();
        assert!(!health.excuses(&alone, POLICY));
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
        let timeout = failure(Errno::ETIMEDOUT, Concern::Link);
        let mixed = [(0, refused()), (1, refused()), (2, timeout), (3, refused())];
        assert_eq!(halted_until(&mut health, &mixed), None);
        let missing = failure(Errno::EAGAIN, Concern::Request);
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
        let missing = failure(Errno::EAGAIN, Concern::Request);
        let verdict = fail(&mut health, 31_000, &missing, POLICY);
        assert_eq!(verdict, Verdict::TryAnother);
        assert_eq!(health.landed(), Verdict::Reopen);
        assert!(!health.is_halted());
    }

    #[test]
    fn mistakes_of_a_user_never_halt_a_link() {
        for concern in [Concern::Request, Concern::Credential, Concern::Service] {
            let own: Vec<_> = (0..1000)
                .map(|at| (at, failure(Errno::EAGAIN, concern)))
                .collect();
            assert_eq!(halted_until(&mut LinkHealth::default(), &own), None);
        }
    }

    #[test]
    fn failures_of_one_user_or_vo_alone_halt_no_link_that_others_use() {
        use LinkCotenants::{None, OtherVos, SameVo};
        assert!(is_halted_by(None, &[("cms/alice", 20)]));
        assert!(!is_halted_by(SameVo, &[("cms/alice", 1000)]));
        assert!(!is_halted_by(
            SameVo,
            &[("cms/alice", 1000), ("cms/bob", 9)]
        ));
        assert!(is_halted_by(SameVo, &[("cms/alice", 10), ("cms/bob", 10)]));
        let of_one_vo = [("cms/alice", 1000), ("cms/bob", 1000)];
        assert!(!is_halted_by(OtherVos, &of_one_vo));
        assert!(is_halted_by(
            OtherVos,
            &[("cms/alice", 1000), ("cms/bob", 1000), ("lab/carol", 10)]
        ));
    }

    #[test]
    fn who_comes_to_a_link_that_another_one_halted_is_tried_at_once() {
        let mut health = LinkHealth::default();
        let run: Vec<_> = (0..3).map(|_| (0, refused())).collect();
        halted_until(&mut health, &run);
        assert!(health.is_untried_by(&party("cms/bob")) && health.is_untried_by(&party("lab/bob")));
        assert!(!health.is_untried_by(&party("cms/alice")));
        assert_eq!(health.last_party(), Some(&party("cms/alice")));
        assert!(health.try_newcomer(Timestamp(1_000)));
        assert!(!health.try_newcomer(Timestamp(1_000)), "one at a time");
        let failed = FailedTransfer {
            failure: &refused(),
            party: &party("lab/bob"),
            company: LinkCotenants::OtherVos,
        };
        let verdict = health.failed(Timestamp(2_000), failed, POLICY);
        assert!(
            matches!(&verdict, Verdict::Halt(halt) if halt.until == Timestamp(62_000)),
            "{verdict:?}"
        );
        for name in ["cms/bob", "lab/bob", "lab/carol"] {
            assert!(!health.is_untried_by(&party(name)), "{name}");
        }
        assert!(health.is_untried_by(&party("atlas/dave")));
        assert_eq!(health.last_party(), Some(&party("lab/bob")));
    }

    #[test]
    fn it_can_be_switched_off() {
        let off = HaltPolicy {
            failures: 0,
            ..POLICY
        };
        let mut health = LinkHealth::default();
        for at in 0..100 {
            let verdict = fail(&mut health, at, &refused(), off);
            assert_eq!(verdict, Verdict::Unchanged);
        }
    }
}
