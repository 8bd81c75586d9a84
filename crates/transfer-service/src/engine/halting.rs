//! Halting links whose transfers all fail in one way, and trying them again.

use super::{Action, Effects, Engine, LinkNotice, Now, Outcome};
use penstock_decide::halting::{LinkHealth, Verdict};
use penstock_model::{LinkChange, LinkEvent, LinkId, Timestamp, TransferId, WaitReason};
use penstock_persistence::journal::Record;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// What the transfers since the start told about their links.
#[derive(Default)]
pub(super) struct Halting {
    health: BTreeMap<LinkId, LinkHealth>,
    /// When halted links are tried.
    trials: BinaryHeap<Reverse<(Timestamp, LinkId)>>,
}

impl Halting {
    /// When the next trial is due.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.trials.peek().map(|Reverse((at, _))| *at)
    }
}

impl Engine {
    /// An attempt on this link has ended and given its slots back. True when nothing but trials starts there.
    pub(super) fn learn(
        &mut self,
        now: Now,
        link: &LinkId,
        (transfer, outcome): (TransferId, &Outcome),
        effects: &mut Effects,
    ) -> bool {
        let policy = self.config.halting;
        let health = self.halting.health.entry(link.clone()).or_default();
        let verdict = match outcome {
            Outcome::Landed { .. } => health.landed(),
            Outcome::Failed { failure, .. } => health.failed(now.at, failure, policy),
            Outcome::Stopped | Outcome::Dropped | Outcome::Tidied => {
                health.ended_without_telling(now.at)
            }
        };
        let is_halted = health.is_halted();
        self.follow(now, link, (transfer, verdict), effects);
        is_halted
    }

    /// A transfer that was let pass did not run after all.
    pub(super) fn pass_unused(
        &mut self,
        now: Now,
        (transfer, link): (TransferId, &LinkId),
        effects: &mut Effects,
    ) {
        let health = self.halting.health.get(link);
        let verdict = health.map(|health| health.ended_without_telling(now.at));
        let verdict = verdict.unwrap_or(Verdict::Unchanged);
        self.follow(now, link, (transfer, verdict), effects);
    }

    /// Lets one transfer pass on each halted link whose time has come.
    pub(super) fn try_halted(&mut self, now: Now, effects: &mut Effects) {
        while let Some(Reverse((at, link))) = self.halting.trials.pop() {
            if at > now.at {
                self.halting.trials.push(Reverse((at, link)));
                return;
            }
            let health = self.halting.health.get(&link);
            if health.is_some_and(LinkHealth::is_halted) {
                self.scheduler.let_one_pass(&link);
                tell(now, &link, LinkEvent::Tried, effects);
            }
        }
    }

    fn follow(
        &mut self,
        now: Now,
        link: &LinkId,
        (by, verdict): (TransferId, Verdict),
        effects: &mut Effects,
    ) {
        let notice = match verdict {
            Verdict::Unchanged => return,
            Verdict::TryAnother => return self.scheduler.let_one_pass(link),
            Verdict::Reopen => {
                self.scheduler.reopen(link);
                tell(now, link, LinkEvent::Reopened { by }, effects);
                LinkNotice::Reopened
            }
            Verdict::Halt(halt) => {
                let event = LinkEvent::Halted {
                    by,
                    until: halt.until,
                    failures: halt.failures,
                    last: halt.last.clone(),
                };
                tell(now, link, event, effects);
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
fn tell(now: Now, link: &LinkId, event: LinkEvent, effects: &mut Effects) {
    let change = LinkChange {
        at: now.at,
        link: link.clone(),
        event,
    };
    effects.records.push(Record::LinkChanged(Box::new(change)));
}
