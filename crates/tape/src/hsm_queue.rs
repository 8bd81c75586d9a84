//! Decides what an HSM does next that is driven by commands: which file is put, fetched or removed, which command is
//! stopped, what becomes of requests when one fails, and when the HSM as a whole is left alone.
//!
//! `(now, input) -> effects`, as [`crate::request_engine`] for libraries. The first effect holds records; whoever drives the
//! queue persists them before it performs the others, and performs all of them before the next input. All that must survive
//! is in [`HsmLiveSet`], which records alone change; watchdog, turns and remembered faults are made anew after a restart.
//!
//! A restart takes each command that was running as unknown and begins it again, under another number: the commands of an
//! HSM must be idempotent. A put whose URI was recorded is not begun again; that it is stored is told again.

mod asking;
mod counts;
mod dispatch;
mod ending;
mod entry;
mod fault;
mod incident;
mod live_set;
mod policy;
mod record;
mod room_hold;
mod watch;
mod work;

pub use counts::{HsmCounts, HsmKindCounts};
pub use entry::{HsmEntry, HsmOutage, HsmPause, HsmRank, HsmRun, HsmStage};
pub use fault::{DiskFault, HsmExitCode};
pub use incident::{HsmIncident, HsmIncidentEnd};
pub use live_set::{CollectingFamily, HsmLiveSet};
pub use policy::{HsmBatch, HsmLimits, HsmPolicy, HsmWidePattern};
pub use record::{HsmCommandRecord, HsmOutageRecord, HsmRecord};
pub use work::{
    HsmCommand, HsmCommandEnd, HsmCommandId, HsmFault, HsmFaultSource, HsmGet, HsmKind, HsmOutcome,
    HsmPut, HsmRemove, HsmStop, HsmTarget, HsmUri, HsmWork,
};

use crate::locate::SECOND_NS;
use crate::request::{RequestId, VoName};
use fault::FaultMemory;
use room_hold::RoomHold;
use std::collections::BTreeMap;
use watch::CommandProgress;

/// What may happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HsmInput {
    Put(Vec<HsmPut>),
    Get(Vec<HsmGet>),
    Remove(Vec<HsmRemove>),
    /// Whoever asked no longer wants it. A remove goes on all the same.
    Cancel(Vec<RequestId>),
    /// Of gets.
    Renew {
        requests: Vec<RequestId>,
        lease_ns: i64,
    },
    /// An operator wants what waits for its next try to be tried now.
    RetryNow(Vec<HsmTarget>),
    /// A pool has taken the file of a get, before its command runs.
    RoomFound(HsmCommandId),
    /// Bytes of its file since the command began.
    Progressed {
        command: HsmCommandId,
        bytes: u64,
    },
    Ended {
        command: HsmCommandId,
        end: HsmCommandEnd,
    },
    /// Nothing but the time that has passed.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HsmEffect {
    /// Before all others of the same input.
    Persist(Vec<HsmRecord>),
    /// The next news of it is `HsmInput::Ended`, at the latest when its time limit has passed.
    Start(HsmCommand),
    /// It ends by that, and `HsmInput::Ended` follows.
    Stop(HsmCommandId),
    /// Whoever is told has to have kept it before the next input: it is told again only after a restart that comes before
    /// that.
    Tell {
        request: RequestId,
        outcome: HsmOutcome,
    },
    /// The program tells by its exit code that this is wrong with the disk that its file is on.
    Disk {
        target: HsmTarget,
        fault: DiskFault,
    },
    Open {
        incident: HsmIncident,
        /// The fault by which it is known.
        fault: Option<HsmFault>,
    },
    Close(HsmIncidentEnd),
    /// Give a tick then. A later one replaces it.
    WakeAt(i64),
}

/// Effects as they come up.
#[derive(Debug, Default)]
struct Turnout {
    records: Vec<HsmRecord>,
    effects: Vec<HsmEffect>,
}

impl Turnout {
    fn into_effects(self) -> Vec<HsmEffect> {
        let persist = (!self.records.is_empty()).then_some(HsmEffect::Persist(self.records));
        persist.into_iter().chain(self.effects).collect()
    }
}

/// The queue of one HSM.
#[derive(Debug, Clone)]
pub struct HsmQueue {
    policy: HsmPolicy,
    live: HsmLiveSet,
    progress: CommandProgress,
    faults: FaultMemory,
    /// When each VO has last been given a slot, counted in slots.
    turns: BTreeMap<(HsmKind, VoName), u64>,
    /// Requests that were told with the last input, whose end is recorded with the next one.
    told: Vec<RequestId>,
    incidents: BTreeMap<HsmIncident, i64>,
    room_hold: Option<RoomHold>,
    wake_ns: Option<i64>,
}

impl HsmQueue {
    /// A queue that knows what these records make up. Then comes [`HsmQueue::resume`].
    pub fn restore<'a>(
        policy: HsmPolicy,
        records: impl IntoIterator<Item = &'a HsmRecord>,
    ) -> HsmQueue {
        HsmQueue {
            policy,
            live: HsmLiveSet::of(records),
            progress: CommandProgress::default(),
            faults: FaultMemory::default(),
            turns: BTreeMap::new(),
            told: Vec::new(),
            incidents: BTreeMap::new(),
            room_hold: None,
            wake_ns: None,
        }
    }

    /// What it knows: the listing of everything.
    pub fn live(&self) -> &HsmLiveSet {
        &self.live
    }

    /// The records that make up just what it knows, in place of all before.
    pub fn records(&self) -> Vec<HsmRecord> {
        self.live.records()
    }

    /// How much waits and how much runs.
    pub fn counts(&self) -> HsmCounts {
        self.live.counts()
    }

    /// Incidents that are open, and since when.
    pub fn incidents(&self) -> &BTreeMap<HsmIncident, i64> {
        &self.incidents
    }

    /// How it drives the HSM.
    pub fn policy(&self) -> &HsmPolicy {
        &self.policy
    }

    /// After a restart, before all inputs: nobody runs what was running, and what may not have been told is told.
    pub fn resume(&mut self, now_ns: i64) -> Vec<HsmEffect> {
        let mut out = Turnout::default();
        let runs: Vec<HsmCommandId> = self.live.runs.keys().copied().collect();
        for command in runs {
            self.keep(&mut out, HsmCommandRecord::CommandEnded { command });
        }
        let lost: Vec<HsmCommandId> = self.live.lost.keys().copied().collect();
        for command in lost {
            self.keep(&mut out, HsmCommandRecord::LostCommandGone { command });
        }
        let entries = self.live.entries.iter();
        let left = entries
            .filter(|(_, entry)| matches!(entry.stage, HsmStage::Running(_)) || !entry.is_wanted());
        let left: Vec<(HsmTarget, u32)> = left
            .map(|(target, entry)| (target.clone(), entry.tries))
            .collect();
        for (target, tries) in left {
            self.requeue(&mut out, target, tries);
        }
        for (request, outcome) in self.live.settled.clone() {
            out.effects.push(HsmEffect::Tell { request, outcome });
        }
        if let Some(outage) = &self.live.outage {
            let (since_ns, fault) = (outage.since_ns, Some(outage.fault.clone()));
            self.incidents.insert(HsmIncident::Outage, since_ns);
            let incident = HsmIncident::Outage;
            out.effects.push(HsmEffect::Open { incident, fault });
        }
        self.told = self.live.settled.keys().copied().collect();
        self.go_on(now_ns, &mut out);
        out.into_effects()
    }

    /// Takes one input. Effects are performed in their order.
    pub fn handle(&mut self, now_ns: i64, input: HsmInput) -> Vec<HsmEffect> {
        let mut out = Turnout::default();
        // Those that were told with the last input know it by now.
        for request in std::mem::take(&mut self.told) {
            self.keep(&mut out, HsmRecord::RequestEnded { request });
        }
        self.take(now_ns, input, &mut out);
        self.go_on(now_ns, &mut out);
        out.into_effects()
    }

    /// What follows from the time, and from whatever has changed.
    fn go_on(&mut self, now_ns: i64, out: &mut Turnout) {
        self.expire(now_ns, out);
        self.watch(now_ns, out);
        self.release(now_ns, out);
        self.dispatch(now_ns, out);
        self.raise(now_ns, out);
        self.wake(now_ns, out);
    }

    fn take(&mut self, now_ns: i64, input: HsmInput, out: &mut Turnout) {
        match input {
            HsmInput::Put(puts) => {
                for put in puts {
                    self.ask_put(now_ns, put, out);
                }
            }
            HsmInput::Get(gets) => {
                for get in gets {
                    self.ask_get(now_ns, get, out);
                }
            }
            HsmInput::Remove(removes) => {
                for remove in removes {
                    self.ask_remove(now_ns, remove, out);
                }
            }
            HsmInput::Cancel(requests) => {
                for request in requests {
                    self.cancel(now_ns, request, HsmOutcome::Canceled, out);
                }
            }
            HsmInput::Renew { requests, lease_ns } => {
                for request in requests {
                    if self.live.requests.contains_key(&request) {
                        self.keep(out, HsmRecord::LeaseRenewed { request, lease_ns });
                    }
                }
            }
            HsmInput::RetryNow(targets) => {
                self.room_hold = None;
                for kind in HsmKind::ALL {
                    if targets.iter().any(|target| target.kind() == kind) {
                        self.probe_now(now_ns, kind, out);
                    }
                }
                for target in targets {
                    let entry = self.live.entries.get(&target);
                    // What only waits for its batch has not failed: to put it now would make half a batch of it.
                    if entry.is_some_and(|entry| matches!(entry.stage, HsmStage::Delayed { .. })) {
                        self.try_now(target, out);
                    }
                }
            }
            HsmInput::RoomFound(command) => self.found_room(command),
            HsmInput::Progressed { command, bytes } => self.progress.moved(now_ns, command, bytes),
            HsmInput::Ended { command, end } => self.ended(now_ns, command, end, out),
            HsmInput::Tick => {}
        }
    }

    /// Records something, which changes the state.
    fn keep(&mut self, out: &mut Turnout, record: impl Into<HsmRecord>) {
        let record = record.into();
        self.live.apply(&record);
        out.records.push(record);
    }

    /// Tells a request how it ends.
    fn settle(&mut self, out: &mut Turnout, request: RequestId, outcome: HsmOutcome) {
        let settled = outcome.clone();
        let record = HsmRecord::RequestSettled {
            request,
            outcome: settled,
        };
        self.keep(out, record);
        self.told.push(request);
        out.effects.push(HsmEffect::Tell { request, outcome });
    }

    /// Settles all who ask for a target, which is done then.
    fn settle_all(&mut self, out: &mut Turnout, target: HsmTarget, outcome: &HsmOutcome) {
        let askers = self.live.entries.get(&target).map(|entry| &entry.askers);
        let askers: Vec<RequestId> =
            askers.map_or_else(Vec::new, |askers| askers.keys().copied().collect());
        for request in askers {
            self.settle(out, request, outcome.clone());
        }
        self.keep(out, HsmRecord::Done { target });
    }

    /// Puts a target that does not run any more back into the queue, or takes it out when nobody wants it.
    fn requeue(&mut self, out: &mut Turnout, target: HsmTarget, tries: u32) {
        let entry = self.live.entries.get(&target);
        match entry.is_some_and(HsmEntry::is_wanted) {
            true => self.keep(out, HsmRecord::Requeued { target, tries }),
            false => self.keep(out, HsmRecord::Done { target }),
        }
    }

    /// When the first thing is due that no input tells.
    fn wake(&mut self, now_ns: i64, out: &mut Turnout) {
        let live = &self.live;
        let limits = &self.policy;
        let lease = live.leases.first().map(|(lease_ns, _)| *lease_ns);
        let delayed = live.delayed.first().map(|(until_ns, _)| *until_ns);
        let batches = live.families.values().filter_map(|family| {
            let (since_ns, _) = family.files.first()?;
            Some(since_ns.saturating_add(limits.batch.age_ns))
        });
        let pauses = live.outage.iter().flat_map(|outage| &outage.pauses);
        let is_probed = |kind| live.runs_of(kind).any(|run| run.is_canary);
        let probes = pauses
            .filter(|(kind, _)| !is_probed(**kind))
            .map(|(_, pause)| pause.probe_ns);
        let told = (!self.told.is_empty()).then_some(now_ns);
        let overdue = self.progress.next_ns(live, limits);
        let oldest = self.next_oldest_ns(now_ns);
        let room = self.room_hold_ends_ns(now_ns);
        let others = [lease, delayed, told, overdue, oldest, room]
            .into_iter()
            .flatten();
        let next = batches.chain(probes).chain(others).min();
        let next = next.map(|at_ns| at_ns.max(now_ns.saturating_add(SECOND_NS)));
        if next != self.wake_ns {
            self.wake_ns = next;
            out.effects.extend(next.map(HsmEffect::WakeAt));
        }
    }
}

#[cfg(test)]
mod tests;
