//! All that an HSM is asked for and has not done: what records make up. Nothing changes it but a record, so that it is the
//! same after a restart. Queues are indexes of entries. Beside them only the bytes of a collecting family are
//! counted; tests compare them with its entries.

use super::entry::{HsmEntry, HsmOutage, HsmPause, HsmRank, HsmRun, HsmStage};
use super::record::{HsmCommandRecord, HsmOutageRecord, HsmRecord};
use super::work::{
    HsmCommandId, HsmGet, HsmKind, HsmOutcome, HsmPut, HsmRemove, HsmTarget, HsmWork,
};
use crate::request::{Asker, FamilyName, FileId, RequestId, VoName};
use std::collections::{BTreeMap, BTreeSet};

/// Puts of one family that wait for more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectingFamily {
    pub files: BTreeSet<(i64, FileId)>,
    /// Of these files together.
    pub bytes: u64,
}

/// The state of the queue of an HSM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HsmLiveSet {
    pub entries: BTreeMap<HsmTarget, HsmEntry>,
    pub requests: BTreeMap<RequestId, HsmTarget>,
    /// Of gets, by the moment at which they end.
    pub leases: BTreeSet<(i64, RequestId)>,
    pub families: BTreeMap<FamilyName, CollectingFamily>,
    /// What could be started now, by VOs.
    pub queued: BTreeMap<HsmKind, BTreeMap<VoName, BTreeSet<HsmRank>>>,
    pub delayed: BTreeSet<(i64, HsmTarget)>,
    /// What has failed at least once, by tries.
    pub tried: BTreeMap<HsmKind, BTreeSet<(u32, HsmTarget)>>,
    /// What waits for its batch or for a slot, by age.
    pub waiting: BTreeMap<HsmKind, BTreeSet<(i64, HsmTarget)>>,
    pub runs: BTreeMap<HsmCommandId, HsmRun>,
    /// Commands that did not end when they were stopped.
    pub lost: BTreeMap<HsmCommandId, i64>,
    /// How requests end that may not have been told.
    pub settled: BTreeMap<RequestId, HsmOutcome>,
    pub outage: Option<HsmOutage>,
    pub next_command: u64,
}

impl HsmLiveSet {
    /// What these records make up.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a HsmRecord>) -> HsmLiveSet {
        let mut live = HsmLiveSet::default();
        for record in records {
            live.apply(record);
        }
        live
    }

    /// The records that make up just this, in place of all that have led to it.
    pub fn records(&self) -> Vec<HsmRecord> {
        let next_command = HsmCommandId(self.next_command);
        let mut records = vec![HsmRecord::Numbered { next_command }];
        let entries = self.entries.values();
        records.extend(entries.map(|entry| HsmRecord::EntryKept {
            entry: entry.clone(),
        }));
        let runs = self.runs.iter().map(|(command, run)| {
            HsmRecord::Command(HsmCommandRecord::RunKept {
                command: *command,
                run: run.clone(),
            })
        });
        records.extend(runs);
        let lost = self.lost.iter().map(|(command, since_ns)| {
            HsmRecord::Command(HsmCommandRecord::LostKept {
                command: *command,
                since_ns: *since_ns,
            })
        });
        records.extend(lost);
        let settled = self.settled.iter();
        records.extend(settled.map(|(request, outcome)| HsmRecord::RequestSettled {
            request: *request,
            outcome: outcome.clone(),
        }));
        let outage = self.outage.iter().cloned();
        let outage = outage.map(|outage| HsmOutageRecord::OutageKept { outage });
        records.extend(outage.map(HsmRecord::Outage));
        records
    }

    /// Takes one record. What it names and is not there is passed over.
    pub fn apply(&mut self, record: &HsmRecord) {
        match record {
            HsmRecord::PutAsked { at_ns, put } => self.add_put(*at_ns, put),
            HsmRecord::GetAsked { at_ns, get } => self.add_get(*at_ns, get),
            HsmRecord::RemoveAsked { at_ns, remove } => self.add_remove(*at_ns, remove),
            HsmRecord::LeaseRenewed { request, lease_ns } => self.renew(*request, *lease_ns),
            HsmRecord::RequestSettled { request, outcome } => self.settle(*request, outcome),
            HsmRecord::RequestEnded { request } => {
                self.settled.remove(request);
            }
            HsmRecord::BatchReleased { at_ns, family } => self.release(*at_ns, family),
            HsmRecord::Requeued { target, tries } => self.change(target, |entry| {
                entry.stage = HsmStage::Queued;
                entry.tries = *tries;
            }),
            HsmRecord::Delayed {
                target,
                until_ns,
                tries,
                fault,
            } => self.change(target, |entry| {
                let until_ns = *until_ns;
                entry.stage = HsmStage::Delayed { until_ns };
                entry.tries = *tries;
                entry.fault = Some(fault.clone());
            }),
            HsmRecord::Done { target } => self.remove(target),
            HsmRecord::Numbered { next_command } => {
                self.next_command = self.next_command.max(next_command.0);
            }
            HsmRecord::EntryKept { entry } => self.keep(entry),
            HsmRecord::Command(record) => self.apply_to_command(record),
            HsmRecord::Outage(record) => self.apply_to_outage(record),
        }
    }

    fn apply_to_command(&mut self, record: &HsmCommandRecord) {
        match record {
            HsmCommandRecord::CommandBegun {
                at_ns,
                command,
                target,
                is_canary,
            } => self.begin(*at_ns, *command, target, *is_canary),
            HsmCommandRecord::StopOrdered {
                at_ns,
                command,
                why,
            } => {
                if let Some(run) = self.runs.get_mut(command) {
                    run.stop = Some((*at_ns, *why));
                }
            }
            HsmCommandRecord::CommandEnded { command } => {
                self.runs.remove(command);
            }
            HsmCommandRecord::CommandLost { at_ns, command } => {
                self.runs.remove(command);
                self.lost.insert(*command, *at_ns);
            }
            HsmCommandRecord::LostCommandGone { command } => {
                self.lost.remove(command);
            }
            HsmCommandRecord::RunKept { command, run } => {
                self.runs.insert(*command, run.clone());
            }
            HsmCommandRecord::LostKept { command, since_ns } => {
                self.lost.insert(*command, *since_ns);
            }
        }
    }

    fn apply_to_outage(&mut self, record: &HsmOutageRecord) {
        match record {
            HsmOutageRecord::Paused {
                at_ns,
                kind,
                probe_ns,
                pause_ns,
                fault,
            } => {
                let outage = self.outage.get_or_insert_with(|| HsmOutage {
                    since_ns: *at_ns,
                    fault: fault.clone(),
                    pauses: BTreeMap::new(),
                    files: 0,
                    bytes: 0,
                });
                let pause = HsmPause {
                    probe_ns: *probe_ns,
                    pause_ns: *pause_ns,
                    tried: BTreeSet::new(),
                };
                outage.pauses.insert(*kind, pause);
            }
            HsmOutageRecord::CanaryFailed {
                kind,
                target,
                probe_ns,
                pause_ns,
            } => {
                let pauses = self.outage.as_mut().map(|outage| &mut outage.pauses);
                if let Some(pause) = pauses.and_then(|pauses| pauses.get_mut(kind)) {
                    pause.probe_ns = *probe_ns;
                    pause.pause_ns = *pause_ns;
                    pause.tried.insert(target.clone());
                }
            }
            HsmOutageRecord::Resumed { kind, files, bytes } => {
                if let Some(outage) = &mut self.outage {
                    outage.pauses.remove(kind);
                    outage.files += files;
                    outage.bytes += bytes;
                }
                self.outage.take_if(|outage| outage.pauses.is_empty());
            }
            HsmOutageRecord::OutageKept { outage } => self.outage = Some(outage.clone()),
        }
    }

    /// The pause of a kind of commands, if there is one.
    pub fn pause(&self, kind: HsmKind) -> Option<&HsmPause> {
        self.outage.as_ref()?.pauses.get(&kind)
    }

    /// Commands of a kind that have a slot.
    pub fn runs_of(&self, kind: HsmKind) -> impl Iterator<Item = &HsmRun> {
        let runs = self.runs.values();
        runs.filter(move |run| run.target.kind() == kind)
    }

    /// Files and bytes of a kind that are asked for and not done.
    pub fn open_of(&self, kind: HsmKind) -> (u64, u64) {
        let entries = self.entries.iter();
        let own = entries.filter(|(target, _)| target.kind() == kind);
        own.fold((0, 0), |(files, bytes), (_, entry)| {
            (files + 1, bytes + entry.work.size_bytes())
        })
    }

    fn add_put(&mut self, at_ns: i64, put: &HsmPut) {
        let asker = Asker {
            vo: put.vo.clone(),
            priority: put.priority,
            deadline_ns: None,
            lease_ns: i64::MAX,
        };
        let work = HsmWork::Put {
            file: put.file,
            size_bytes: put.size_bytes,
            family: put.family.clone(),
        };
        self.add(at_ns, Some((put.request, asker)), work, &put.vo);
    }

    fn add_get(&mut self, at_ns: i64, get: &HsmGet) {
        let work = HsmWork::Get {
            file: get.file,
            size_bytes: get.size_bytes,
            uri: get.uri.clone(),
        };
        self.leases.insert((get.asker.lease_ns, get.request));
        let asker = (get.request, get.asker.clone());
        self.add(at_ns, Some(asker), work, &get.asker.vo);
    }

    fn add_remove(&mut self, at_ns: i64, remove: &HsmRemove) {
        let asker = remove.request.map(|request| {
            let asker = Asker {
                vo: remove.vo.clone(),
                priority: 0,
                deadline_ns: None,
                lease_ns: i64::MAX,
            };
            (request, asker)
        });
        let work = HsmWork::Remove {
            uri: remove.uri.clone(),
            of: remove.of,
            size_bytes: remove.size_bytes,
        };
        self.add(at_ns, asker, work, &remove.vo);
    }

    fn add(&mut self, at_ns: i64, asker: Option<(RequestId, Asker)>, work: HsmWork, vo: &VoName) {
        let target = work.target();
        if let Some((request, _)) = &asker {
            self.requests.insert(*request, target.clone());
        }
        if self.entries.contains_key(&target) {
            return self.change(&target, |entry| entry.askers.extend(asker));
        }
        let stage = match work {
            HsmWork::Put { .. } => HsmStage::Collecting,
            HsmWork::Get { .. } | HsmWork::Remove { .. } => HsmStage::Queued,
        };
        let entry = HsmEntry {
            work,
            vo: vo.clone(),
            askers: asker.into_iter().collect(),
            since_ns: at_ns,
            ready_ns: at_ns,
            tries: 0,
            stage,
            fault: None,
        };
        self.entries.insert(target.clone(), entry);
        self.index(&target);
    }

    /// Takes an entry of a snapshot.
    fn keep(&mut self, entry: &HsmEntry) {
        let target = entry.work.target();
        for (request, asker) in &entry.askers {
            self.requests.insert(*request, target.clone());
            if target.kind() == HsmKind::Get {
                self.leases.insert((asker.lease_ns, *request));
            }
        }
        self.unindex(&target);
        self.entries.insert(target.clone(), entry.clone());
        self.index(&target);
    }

    fn renew(&mut self, request: RequestId, lease_ns: i64) {
        let Some(target) = self.requests.get(&request) else {
            return;
        };
        let entry = self.entries.get_mut(target);
        if target.kind() == HsmKind::Get
            && let Some(asker) = entry.and_then(|entry| entry.askers.get_mut(&request))
        {
            self.leases.remove(&(asker.lease_ns, request));
            asker.lease_ns = lease_ns;
            self.leases.insert((lease_ns, request));
        }
    }

    fn settle(&mut self, request: RequestId, outcome: &HsmOutcome) {
        self.settled.insert(request, outcome.clone());
        let Some(target) = self.requests.remove(&request) else {
            return;
        };
        let mut asker = None;
        self.change(&target, |entry| asker = entry.askers.remove(&request));
        if let Some(asker) = asker {
            self.leases.remove(&(asker.lease_ns, request));
        }
    }

    fn release(&mut self, at_ns: i64, family: &FamilyName) {
        let files = self.families.get(family).map(|family| family.files.clone());
        for (_, file) in files.unwrap_or_default() {
            self.change(&HsmTarget::Put(file), |entry| {
                entry.stage = HsmStage::Queued;
                entry.ready_ns = at_ns;
            });
        }
    }

    fn begin(&mut self, at_ns: i64, command: HsmCommandId, target: &HsmTarget, is_canary: bool) {
        self.next_command = self.next_command.max(command.0 + 1);
        let Some(vo) = self.entries.get(target).map(|entry| entry.vo.clone()) else {
            return;
        };
        self.change(target, |entry| entry.stage = HsmStage::Running(command));
        let run = HsmRun {
            target: target.clone(),
            vo,
            begun_ns: at_ns,
            is_canary,
            stop: None,
        };
        self.runs.insert(command, run);
    }

    fn remove(&mut self, target: &HsmTarget) {
        self.unindex(target);
        self.entries.remove(target);
    }

    fn change(&mut self, target: &HsmTarget, change: impl FnOnce(&mut HsmEntry)) {
        self.unindex(target);
        if let Some(entry) = self.entries.get_mut(target) {
            change(entry);
        }
        self.index(target);
    }

    fn index(&mut self, target: &HsmTarget) {
        let Some(entry) = self.entries.get(target) else {
            return;
        };
        let kind = target.kind();
        if entry.tries > 0 {
            let tried = self.tried.entry(kind).or_default();
            tried.insert((entry.tries, target.clone()));
        }
        if matches!(entry.stage, HsmStage::Collecting | HsmStage::Queued) {
            let waiting = self.waiting.entry(kind).or_default();
            waiting.insert((entry.since_ns, target.clone()));
        }
        match (&entry.stage, target, entry.work.family()) {
            (HsmStage::Collecting, HsmTarget::Put(file), Some(family)) => {
                let family = self.families.entry(family.clone()).or_default();
                if family.files.insert((entry.since_ns, *file)) {
                    family.bytes += entry.work.size_bytes();
                }
            }
            (HsmStage::Queued, _, _) => {
                let vos = self.queued.entry(kind).or_default();
                let ranks = vos.entry(entry.vo.clone()).or_default();
                ranks.insert(entry.rank());
            }
            (HsmStage::Delayed { until_ns }, _, _) => {
                self.delayed.insert((*until_ns, target.clone()));
            }
            (HsmStage::Collecting | HsmStage::Running(_), _, _) => {}
        }
    }

    fn unindex(&mut self, target: &HsmTarget) {
        let Some(entry) = self.entries.get(target) else {
            return;
        };
        let kind = target.kind();
        remove_from(&mut self.tried, &kind, &(entry.tries, target.clone()));
        remove_from(&mut self.waiting, &kind, &(entry.since_ns, target.clone()));
        match (&entry.stage, target, entry.work.family()) {
            (HsmStage::Collecting, HsmTarget::Put(file), Some(name)) => {
                if let Some(family) = self.families.get_mut(name) {
                    if family.files.remove(&(entry.since_ns, *file)) {
                        family.bytes -= entry.work.size_bytes();
                    }
                    if family.files.is_empty() {
                        self.families.remove(name);
                    }
                }
            }
            (HsmStage::Queued, _, _) => {
                if let Some(vos) = self.queued.get_mut(&kind) {
                    remove_from(vos, &entry.vo, &entry.rank());
                    if vos.is_empty() {
                        self.queued.remove(&kind);
                    }
                }
            }
            (HsmStage::Delayed { until_ns }, _, _) => {
                self.delayed.remove(&(*until_ns, target.clone()));
            }
            (HsmStage::Collecting | HsmStage::Running(_), _, _) => {}
        }
    }
}

/// Removes a value from the set of a key, and a set that is empty then.
fn remove_from<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
