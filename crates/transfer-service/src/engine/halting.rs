//! Halting links whose transfers all fail in one way, and trying them again.

use super::{Action, Effects, Engine, LinkNotice, Now, Outcome};
use penstock_decide::halting::{LinkHealth, Verdict};
use penstock_model::{LinkId, Timestamp, WaitReason};
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
        outcome: &Outcome,
        effects: &mut Effects,
    ) -> bool {
        let policy = self.config.halting;
        let health = self.halting.health.entry(link.clone()).or_default();
        let verdict = match outcome {
            Outcome::Landed { .. } => health.landed(),
            Outcome::Failed { failure, .. } => health.failed(now.at, failure, policy),
            Outcome::Stopped => health.ended_without_telling(now.at),
        };
        let is_halted = health.is_halted();
        self.follow(link, verdict, effects);
        is_halted
    }

    /// A transfer that was let pass did not run after all.
    pub(super) fn pass_unused(&mut self, now: Now, link: &LinkId, effects: &mut Effects) {
        let health = self.halting.health.get(link);
        let verdict = health.map(|health| health.ended_without_telling(now.at));
        self.follow(link, verdict.unwrap_or(Verdict::Unchanged), effects);
    }

    /// Lets one transfer pass on each halted link whose time has come.
    pub(super) fn try_halted(&mut self, now: Now) {
        while let Some(Reverse((at, link))) = self.halting.trials.pop() {
            if at > now.at {
                self.halting.trials.push(Reverse((at, link)));
                return;
            }
            let health = self.halting.health.get(&link);
            if health.is_some_and(LinkHealth::is_halted) {
                self.scheduler.let_one_pass(&link);
            }
        }
    }

    fn follow(&mut self, link: &LinkId, verdict: Verdict, effects: &mut Effects) {
        let notice = match verdict {
            Verdict::Unchanged => return,
            Verdict::TryAnother => return self.scheduler.let_one_pass(link),
            Verdict::Reopen => {
                self.scheduler.reopen(link);
                LinkNotice::Reopened
            }
            Verdict::Halt(halt) => {
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
