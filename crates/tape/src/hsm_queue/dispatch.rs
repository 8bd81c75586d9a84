//! Which command is started when a slot is free: VOs in turn by what they have, and within one as [`HsmRank`] says. While the
//! HSM as a whole does not work, one canary at a time.

use super::entry::{HsmEntry, HsmPause, HsmRank, HsmStage};
use super::record::{HsmCommandRecord, HsmRecord};
use super::work::{HsmCommand, HsmCommandId, HsmKind, HsmTarget, HsmWork};
use super::{HsmEffect, HsmQueue, Turnout};
use crate::request::{FamilyName, FileId, VoName};
use std::collections::{BTreeMap, BTreeSet};

/// What is not started although it is queued.
struct HeldBack {
    /// Files of which copies are being removed are not put.
    removed: BTreeSet<FileId>,
    /// Files of this size, and larger ones, are not fetched.
    get_bytes_min: Option<u64>,
}

impl HsmQueue {
    /// Lets go what has waited long enough: batches, and what is to be tried again.
    pub(super) fn release(&mut self, now_ns: i64, out: &mut Turnout) {
        let batch = self.policy.batch;
        let families = self.live.families.iter().filter(|(_, family)| {
            let oldest_ns = family.files.first().map(|(since_ns, _)| *since_ns);
            // One that came while the clock was ahead has waited for an unknown time.
            let is_old =
                |since_ns| since_ns > now_ns || now_ns.saturating_sub(since_ns) >= batch.age_ns;
            family.bytes >= batch.bytes
                || family.files.len() >= batch.files
                || oldest_ns.is_some_and(is_old)
        });
        let families: Vec<FamilyName> = families.map(|(family, _)| family.clone()).collect();
        for family in families {
            let at_ns = now_ns;
            self.keep(out, HsmRecord::BatchReleased { at_ns, family });
        }
        while let Some(target) = self.due(now_ns) {
            let tries = self
                .live
                .entries
                .get(&target)
                .map_or(0, |entry| entry.tries);
            self.requeue(out, target, tries);
        }
    }

    /// Something whose pause is over. So is one that would last longer than any: it began while the clock was ahead.
    fn due(&self, now_ns: i64) -> Option<HsmTarget> {
        let longest_ns = now_ns.saturating_add(self.policy.retry_max_ns);
        let (first, last) = (self.live.delayed.first(), self.live.delayed.last());
        let first = first.filter(|(until_ns, _)| *until_ns <= now_ns);
        let last = last.filter(|(until_ns, _)| *until_ns > longest_ns);
        first.or(last).map(|(_, target)| target.clone())
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
            let Some((vo, target)) = self.next_of(now_ns, kind, &running) else {
                return;
            };
            *running.entry(vo).or_default() += 1;
            self.start(now_ns, target, false, out);
        }
    }

    /// The VO with the fewest slots, of several the one that has waited longest for its turn, and its first target.
    fn next_of(
        &self,
        now_ns: i64,
        kind: HsmKind,
        running: &BTreeMap<VoName, usize>,
    ) -> Option<(VoName, HsmTarget)> {
        let vos = self.live.queued.get(&kind)?.iter();
        let held = self.held_back(now_ns, kind);
        let firsts = vos.filter_map(|(vo, ranks)| {
            let mut targets = ranks.iter().map(|rank| &rank.target);
            Some((
                vo,
                targets.find(|target| !self.is_held_back(target, &held))?,
            ))
        });
        let (vo, target) = firsts.min_by_key(|(vo, _)| {
            let turn = self.turns.get(&(kind, (*vo).clone()));
            (running.get(*vo).copied().unwrap_or(0), turn.copied(), *vo)
        })?;
        Some((vo.clone(), target.clone()))
    }

    /// What of a kind is not started now although it is queued.
    fn held_back(&self, now_ns: i64, kind: HsmKind) -> HeldBack {
        HeldBack {
            removed: self.files_being_removed(kind),
            get_bytes_min: self.held_bytes_min(now_ns),
        }
    }

    fn is_held_back(&self, target: &HsmTarget, held: &HeldBack) -> bool {
        let bytes = || {
            let entry = self.live.entries.get(target);
            entry.map_or(0, |entry| entry.work.size_bytes())
        };
        match target {
            HsmTarget::Put(file) => held.removed.contains(file),
            HsmTarget::Get(_) => held.get_bytes_min.is_some_and(|min| bytes() >= min),
            HsmTarget::Remove(_) => false,
        }
    }

    /// Files of which a copy is being removed, or shall be because somebody asks for it: a put that finds that copy there would take
    /// it for its own.
    fn files_being_removed(&self, kind: HsmKind) -> BTreeSet<FileId> {
        if kind != HsmKind::Put {
            return BTreeSet::new();
        }
        // They are the last targets in their order.
        let entries = self.live.entries.values().rev();
        let removals = entries.map_while(|entry| match entry.work {
            HsmWork::Remove { of, .. } => Some((entry, of)),
            HsmWork::Put { .. } | HsmWork::Get { .. } => None,
        });
        let counts = |entry: &HsmEntry| {
            let is_running = matches!(entry.stage, HsmStage::Running(_));
            is_running || !entry.askers.is_empty()
        };
        let removed = removals.filter_map(|(entry, of)| of.filter(|_| counts(entry)));
        removed.collect()
    }

    /// Starts a canary when it is time for one. A kind that nothing is left of has nothing to be stopped.
    fn probe(&mut self, now_ns: i64, kind: HsmKind, pause: &HsmPause, out: &mut Turnout) {
        // A pause that would last longer than it is long began while the clock was ahead.
        let left_ns = pause.probe_ns.saturating_sub(now_ns);
        let is_paused = left_ns > 0 && left_ns <= pause.pause_ns;
        if is_paused || self.live.runs_of(kind).any(|run| run.is_canary) {
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
        let held = self.held_back(now_ns, kind);
        let all = ranks.flatten().map(|rank: &HsmRank| &rank.target);
        let mut all = all.filter(|target| !self.is_held_back(target, &held));
        let first = all.clone().next();
        let untried = all.find(|target| !pause.tried.contains(target));
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
        let record = HsmCommandRecord::CommandBegun {
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
