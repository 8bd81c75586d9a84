//! Which command is started when a slot is free: VOs in turn by what they have, and within one as [`HsmRank`] says. While the
//! HSM as a whole does not work, one canary at a time.

use super::entry::{HsmPause, HsmRank};
use super::record::HsmRecord;
use super::work::{HsmCommand, HsmCommandId, HsmKind, HsmTarget};
use super::{HsmEffect, HsmQueue, Turnout};
use crate::request::{FamilyName, VoName};
use std::collections::BTreeMap;

impl HsmQueue {
    /// Lets go what has waited long enough: batches, and what is to be tried again.
    pub(super) fn release(&mut self, now_ns: i64, out: &mut Turnout) {
        let batch = self.policy.batch;
        let families = self.live.families.iter().filter(|(_, family)| {
            let oldest_ns = family.files.first().map(|(since_ns, _)| *since_ns);
            let is_old = |since_ns| now_ns.saturating_sub(since_ns) >= batch.age_ns;
            family.bytes >= batch.bytes
                || family.files.len() >= batch.files
                || oldest_ns.is_some_and(is_old)
        });
        let families: Vec<FamilyName> = families.map(|(family, _)| family.clone()).collect();
        for family in families {
            let at_ns = now_ns;
            self.keep(out, HsmRecord::BatchReleased { at_ns, family });
        }
        while let Some((until_ns, target)) = self.live.delayed.first().cloned() {
            if until_ns > now_ns {
                return;
            }
            let tries = self
                .live
                .entries
                .get(&target)
                .map_or(0, |entry| entry.tries);
            self.requeue(out, target, tries);
        }
    }

    pub(super) fn dispatch(&mut self, now_ns: i64, out: &mut Turnout) {
        for kind in HsmKind::ALL {
            match self.live.pause(kind).cloned() {
                Some(pause) => self.probe(now_ns, kind, &pause, out),
                None => self.fill(now_ns, kind, out),
            }
        }
    }

    /// Gives all free slots of a kind.
    fn fill(&mut self, now_ns: i64, kind: HsmKind, out: &mut Turnout) {
        let mut running: BTreeMap<VoName, usize> = BTreeMap::new();
        for run in self.live.runs_of(kind) {
            *running.entry(run.vo.clone()).or_default() += 1;
        }
        let taken: usize = running.values().sum();
        for _ in taken..self.policy.slots(kind) {
            let Some((vo, target)) = self.next_of(kind, &running) else {
                return;
            };
            *running.entry(vo).or_default() += 1;
            self.start(now_ns, target, false, out);
        }
    }

    /// The VO with the fewest slots, of several the one that has waited longest for its turn, and its first target.
    fn next_of(
        &self,
        kind: HsmKind,
        running: &BTreeMap<VoName, usize>,
    ) -> Option<(VoName, HsmTarget)> {
        let vos = self.live.queued.get(&kind)?.iter();
        let (vo, ranks) = vos.min_by_key(|(vo, _)| {
            let turn = self.turns.get(&(kind, (*vo).clone()));
            (running.get(*vo).copied().unwrap_or(0), turn.copied(), *vo)
        })?;
        Some((vo.clone(), ranks.first()?.target.clone()))
    }

    /// Starts a canary when it is time for one. A kind that nothing is left of has nothing to be stopped.
    fn probe(&mut self, now_ns: i64, kind: HsmKind, pause: &HsmPause, out: &mut Turnout) {
        if pause.probe_ns > now_ns || self.live.runs_of(kind).any(|run| run.is_canary) {
            return;
        }
        let taken = self.live.runs_of(kind).count();
        if taken == 0 && self.live.open_of(kind).0 == 0 {
            return self.resume_kind(now_ns, kind, out);
        }
        if taken >= self.policy.slots(kind) {
            return;
        }
        let ranks = self
            .live
            .queued
            .get(&kind)
            .into_iter()
            .flat_map(BTreeMap::values);
        let mut all = ranks.clone().flatten().map(|rank: &HsmRank| &rank.target);
        let untried = all.find(|target| !pause.tried.contains(target));
        let first = ranks.flatten().next().map(|rank| &rank.target);
        if let Some(target) = untried.or(first).cloned() {
            self.start(now_ns, target, true, out);
        }
    }

    fn start(&mut self, now_ns: i64, target: HsmTarget, is_canary: bool, out: &mut Turnout) {
        let Some(entry) = self.live.entries.get(&target) else {
            return;
        };
        let command = HsmCommandId(self.live.next_command);
        let start = HsmCommand {
            command,
            work: entry.work.clone(),
            vo: entry.vo.clone(),
        };
        self.turns
            .insert((target.kind(), entry.vo.clone()), command.0);
        let record = HsmRecord::CommandBegun {
            at_ns: now_ns,
            command,
            target,
            is_canary,
        };
        self.keep(out, record);
        self.progress.begin(now_ns, command);
        out.effects.push(HsmEffect::Start(start));
    }
}
