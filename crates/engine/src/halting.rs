//! Halting links whose transfers all fail in one way, and trying them again.

use super::clock_set_back::bring_forward;
use super::{Action, AttemptOutcome, Effects, Engine, LinkNotice, Now};
use penstock_decide::halting::{FailedTransfer, LinkHealth, TransferOwner, Verdict};
use penstock_decide::scheduler::{LinkNumber, QueueEntry};
use penstock_model::{LinkChange, LinkEvent, LinkId, Record, Timestamp, TransferId, WaitReason};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

/// What the transfers told about their links since these are known.
#[derive(Default)]
pub(super) struct LinkHalts {
    pub(super) health: BTreeMap<LinkId, LinkHealth>,
    /// When halted links are tried.
    pub(super) trials: BinaryHeap<Reverse<(Timestamp, LinkId)>>,
    /// Those to which somebody has come by whom they are untried.
    newcomers: BTreeSet<LinkId>,
}

impl LinkHalts {
    /// When the next trial is due.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.trials.peek().map(|Reverse((at, _))| *at)
    }

    /// The clock was set back by this much.
    pub(super) fn bring_forward(&mut self, by: Duration) {
        bring_forward(&mut self.trials, by);
        self.health
            .values_mut()
            .for_each(|health| health.bring_forward(by));
    }

    /// Nothing uses these links any more.
    pub(super) fn forget(&mut self, links: &[LinkId]) {
        for link in links {
            self.health.remove(link);
            self.newcomers.remove(link);
        }
        let health = &self.health;
        self.trials
            .retain(|Reverse((_, link))| health.contains_key(link));
    }

    /// Something begins to wait on a link.
    pub(super) fn queued(&mut self, waiting: &QueueEntry) {
        let health = self.health.get(&waiting.link);
        let Some(health) = health.filter(|health| health.is_halted()) else {
            return;
        };
        let party = TransferOwner {
            vo: waiting.vo.clone(),
            user: waiting.user.clone(),
        };
        if health.is_untried_by(&party) {
            self.newcomers.insert(waiting.link.clone());
        }
    }
}

/// How an attempt on a link ended.
pub(super) struct EndedAttempt<'a> {
    pub(super) transfer: TransferId,
    pub(super) link: &'a LinkId,
    /// The link's number in the scheduler.
    pub(super) number: LinkNumber,
    pub(super) party: &'a TransferOwner,
    pub(super) outcome: &'a AttemptOutcome,
}

impl Engine {
    /// An attempt on this link has ended and given its slots back. True when it has only told again that the link is
    /// halted: that costs no retry. Failures of a file's own do, so that bad files run out.
    pub(super) fn learn(
        &mut self,
        now: Now,
        EndedAttempt {
            transfer,
            link,
            number,
            party,
            outcome,
        }: EndedAttempt<'_>,
        effects: &mut Effects,
    ) -> bool {
        let policy = self.config.halting;
        let company = self.scheduler.company(number, party);
        let health = self.halting.health.entry(link.clone()).or_default();
        let verdict = match outcome {
            AttemptOutcome::Landed { .. } => health.landed(),
            AttemptOutcome::Failed { failure, .. } => {
                let failed = FailedTransfer {
                    failure,
                    party,
                    company,
                };
                health.failed(now.at, failed, policy)
            }
            AttemptOutcome::Blocked { .. }
            | AttemptOutcome::Stopped
            | AttemptOutcome::Unsettled
            | AttemptOutcome::Dropped
            | AttemptOutcome::Tidied
            | AttemptOutcome::Untidied { .. } => health.ended_without_telling(now.at),
        };
        let is_excused = health.excuses(party, policy);
        self.apply_verdict(now, link, verdict, transfer, effects);
        match outcome {
            AttemptOutcome::Failed { failure, .. } => is_excused && failure.concern.is_shared(),
            AttemptOutcome::Landed { .. }
            | AttemptOutcome::Blocked { .. }
            | AttemptOutcome::Stopped
            | AttemptOutcome::Unsettled
            | AttemptOutcome::Dropped
            | AttemptOutcome::Tidied
            | AttemptOutcome::Untidied { .. } => false,
        }
    }

    /// A transfer that was let pass did not run after all.
    pub(super) fn pass_unused(
        &mut self,
        now: Now,
        transfer: TransferId,
        link: &LinkId,
        effects: &mut Effects,
    ) {
        let health = self.halting.health.get(link);
        let verdict = health.map(|health| health.ended_without_telling(now.at));
        let verdict = verdict.unwrap_or(Verdict::Unchanged);
        self.apply_verdict(now, link, verdict, transfer, effects);
    }

    /// Lets one transfer pass on each halted link whose time has come, or to which somebody has come whose files have
    /// not failed there.
    pub(super) fn try_halted(&mut self, now: Now, effects: &mut Effects) {
        for link in std::mem::take(&mut self.halting.newcomers) {
            let health = self.halting.health.get_mut(&link);
            if health.is_some_and(|health| health.try_newcomer(now.at)) {
                self.let_one_pass(&link);
                record_link_event(now, &link, LinkEvent::Tried, effects);
            }
        }
        while let Some(Reverse((at, link))) = self.halting.trials.pop() {
            if at > now.at {
                self.halting.trials.push(Reverse((at, link)));
                return;
            }
            let health = self.halting.health.get(&link);
            if health.is_some_and(|health| health.is_due(now.at)) {
                self.let_one_pass(&link);
                record_link_event(now, &link, LinkEvent::Tried, effects);
            }
        }
    }

    /// Of somebody else than who failed last, if there is anybody.
    fn let_one_pass(&mut self, link: &LinkId) {
        let health = self.halting.health.get(link);
        let after = health.and_then(LinkHealth::last_party);
        self.scheduler.let_one_pass(link, after);
    }

    fn apply_verdict(
        &mut self,
        now: Now,
        link: &LinkId,
        verdict: Verdict,
        by: TransferId,
        effects: &mut Effects,
    ) {
        let notice = match verdict {
            Verdict::Unchanged => return,
            Verdict::TryAnother => return self.let_one_pass(link),
            Verdict::Reopen => {
                self.scheduler.reopen(link);
                record_link_event(now, link, LinkEvent::Reopened { by }, effects);
                LinkNotice::Reopened
            }
            Verdict::Halt(halt) => {
                let event = LinkEvent::Halted {
                    by,
                    until: halt.until,
                    failures: halt.failures,
                    last: halt.last.clone(),
                };
                record_link_event(now, link, event, effects);
                let because = WaitReason::LinkHalted {
                    until: halt.until,
                    failures: halt.failures,
                    last: halt.last.clone(),
                };
                self.scheduler.halt(link, because);
                self.halting
                    .trials
                    .push(Reverse((halt.until, link.clone())));
                LinkNotice::Halted(halt)
            }
        };
        effects.actions.push(Action::Tell {
            link: link.clone(),
            notice,
        });
    }
}

/// Records what became of a link.
fn record_link_event(now: Now, link: &LinkId, event: LinkEvent, effects: &mut Effects) {
    let change = LinkChange {
        at: now.at,
        link: link.clone(),
        event,
    };
    effects.records.push(Record::LinkChanged(Box::new(change)));
}
