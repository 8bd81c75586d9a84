//! What a person should look at: one incident for each cause, however many files it concerns.

use super::record::HsmOutageRecord;
use super::work::{HsmCommandId, HsmFault, HsmKind, HsmTarget};
use super::{HsmEffect, HsmQueue, Turnout};
use crate::amount::TapeAmount;
use serde::{Deserialize, Serialize};

/// Something that a person should look at. After a restart those that are still true are opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HsmIncident {
    /// The HSM as a whole does not work. Commands are not started but a canary; new files are not admitted while puts are
    /// concerned.
    Outage,
    /// Files that are never given up have failed too often.
    FilesFail(HsmKind),
    /// A request is older than it should be, waits for no next try, and a slot is free.
    OldestWaits(HsmKind),
    /// A command did not end although it was stopped. Its slot is used by others.
    CommandLost(HsmCommandId),
}

/// An incident that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HsmIncidentEnd {
    pub incident: HsmIncident,
    pub since_ns: i64,
    pub until_ns: i64,
    /// Of an outage: what waited for its end.
    pub waited: Option<TapeAmount>,
}

impl HsmQueue {
    pub(super) fn open(
        &mut self,
        now_ns: i64,
        incident: HsmIncident,
        fault: Option<HsmFault>,
        out: &mut Turnout,
    ) {
        if self.incidents.insert(incident, now_ns).is_none() {
            out.effects.push(HsmEffect::Open { incident, fault });
        }
    }

    pub(super) fn close(
        &mut self,
        now_ns: i64,
        incident: HsmIncident,
        waited: Option<TapeAmount>,
        out: &mut Turnout,
    ) {
        if let Some(since_ns) = self.incidents.remove(&incident) {
            out.effects.push(HsmEffect::Close(HsmIncidentEnd {
                incident,
                since_ns,
                until_ns: now_ns,
                waited,
            }));
        }
    }

    /// Opens and closes the incidents that follow from what is in the queue.
    pub(super) fn raise(&mut self, now_ns: i64, out: &mut Turnout) {
        for kind in [HsmKind::Put, HsmKind::Remove] {
            let most = self.live.tried.get(&kind).and_then(|tried| tried.last());
            let failing = most.filter(|(tries, _)| *tries >= self.policy.tries_max);
            let incident = HsmIncident::FilesFail(kind);
            match failing.and_then(|(_, target)| self.live.entries.get(target)) {
                Some(entry) if !self.incidents.contains_key(&incident) => {
                    let fault = entry.fault.clone();
                    self.open(now_ns, incident, fault, out);
                }
                Some(_) => {}
                None => self.close(now_ns, incident, None, out),
            }
        }
        for kind in HsmKind::ALL {
            let incident = HsmIncident::OldestWaits(kind);
            match self.overdue(now_ns, kind) {
                Some(target) if !self.incidents.contains_key(&incident) => {
                    let entry = self.live.entries.get(&target);
                    let fault = entry.and_then(|entry| entry.fault.clone());
                    self.open(now_ns, incident, fault, out);
                    // Whatever it waits for: it is tried once at once.
                    self.try_now(target, out);
                    self.dispatch(now_ns, out);
                }
                Some(_) => {}
                None => self.close(now_ns, incident, None, out),
            }
        }
    }

    /// What has waited too long although a slot is free.
    fn overdue(&self, now_ns: i64, kind: HsmKind) -> Option<HsmTarget> {
        let is_free = self.live.runs_of(kind).count() < self.policy.slots(kind);
        let (since_ns, target) = self.live.waiting.get(&kind)?.first()?;
        let is_old = now_ns.saturating_sub(*since_ns) >= self.policy.oldest_wait_ns;
        // What waits for room is told of as such.
        let is_held = kind == HsmKind::Get && self.room_hold.is_some();
        let is_overdue = is_free && is_old && !is_held && self.live.pause(kind).is_none();
        is_overdue.then(|| target.clone())
    }

    /// When what waits longest will have waited too long.
    pub(super) fn next_oldest_ns(&self, now_ns: i64) -> Option<i64> {
        let kinds = HsmKind::ALL.into_iter();
        let ends = kinds.filter_map(|kind| {
            let (since_ns, _) = self.live.waiting.get(&kind)?.first()?;
            Some(since_ns.saturating_add(self.policy.oldest_wait_ns))
        });
        ends.filter(|end_ns| *end_ns > now_ns).min()
    }

    /// The next canary of a kind that is paused starts now.
    pub(super) fn probe_now(&mut self, now_ns: i64, kind: HsmKind, out: &mut Turnout) {
        let outage = self.live.outage.as_ref();
        let paused = outage.and_then(|outage| Some((outage, outage.pauses.get(&kind)?)));
        if let Some((outage, pause)) = paused {
            let record = HsmOutageRecord::Paused {
                at_ns: now_ns,
                kind,
                probe_ns: now_ns,
                pause_ns: pause.pause_ns,
                fault: outage.fault.clone(),
            };
            self.keep(out, record);
        }
    }

    /// Tries something now that waits for its next try, or for its batch.
    pub(super) fn try_now(&mut self, target: HsmTarget, out: &mut Turnout) {
        let entry = self.live.entries.get(&target);
        if let Some(tries) = entry
            .filter(|entry| entry.is_held())
            .map(|entry| entry.tries)
        {
            self.requeue(out, target, tries);
        }
    }
}
