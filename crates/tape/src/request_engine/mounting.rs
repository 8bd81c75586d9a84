//! Tapes into drives and out of them.

use super::{Effect, QueueWait, RequestEngine, TapeIncident, Turnout};
use crate::drive_pool::{DriveClass, DriveState, DriveWork, MountPurpose};
use crate::live_set::RecallEntry;
use crate::mount_decision::{
    DriveSupply, MountCandidate, MountDecision, MountTarget, MountWait, decide_mounts, worth_at_ns,
};
use crate::record::{DriveRecord, Record, TapeFinding};
use crate::request::{DriveName, FamilyName, FileId, LibraryName, TapeName, VoName};
use std::collections::{BTreeMap, BTreeSet};

/// What may be mounted, and what waits for a tape that cannot be.
#[derive(Default)]
pub(super) struct Demand {
    pub(super) candidates: Vec<MountCandidate>,
    /// With the age of the oldest request.
    pub(super) blocked: Vec<(MountTarget, DriveClass, i64)>,
    /// Families for which no tape is left.
    pub(super) without_tape: BTreeSet<FamilyName>,
    /// Families that nothing can be written of now, although there is a tape for them.
    pub(super) held: BTreeMap<FamilyName, QueueWait>,
    /// When the first of what is still waited for may be written.
    next_ready_ns: Option<i64>,
}

impl Demand {
    /// Something may be written from then on.
    pub(super) fn ready(&mut self, at_ns: i64) {
        let earlier = self.next_ready_ns.map_or(at_ns, |next| next.min(at_ns));
        self.next_ready_ns = Some(earlier);
    }
}

impl RequestEngine {
    pub(super) fn mounted(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) {
        let Some(DriveState::Mounting { .. }) = self.state(drive) else {
            return;
        };
        let ready = DriveRecord::MountReady {
            at_ns: now_ns,
            drive: drive.clone(),
        };
        self.keep(out, ready);
        let library = self.live.drives.0.get(drive).map(|drive| &drive.library);
        if let Some(library) = library.filter(|library| self.live.libraries.contains_key(*library))
        {
            let library = library.clone();
            self.keep(
                out,
                Record::LibraryResumed {
                    library: library.clone(),
                },
            );
            out.effects
                .push(Effect::Close(TapeIncident::LibraryPaused(library)));
            self.is_decision_due = true;
        }
    }

    /// Where data ends on a tape, before it is mounted. One that has less than was safe there is not to be trusted.
    pub(super) fn data_ends(
        &mut self,
        now_ns: i64,
        drive: &DriveName,
        end_bytes: u64,
        out: &mut Turnout,
    ) {
        let Some(DriveState::Mounting { tape, .. }) = self.state(drive) else {
            return;
        };
        let Some(facts) = self.live.tapes.get(tape) else {
            return;
        };
        let (tape, synced_bytes) = (tape.clone(), facts.synced_bytes);
        if end_bytes < synced_bytes {
            let lost = TapeFinding::DataLost {
                end_bytes,
                synced_bytes,
            };
            self.tape_failed(now_ns, drive, Some(lost), out);
        } else if end_bytes != facts.written_bytes {
            self.keep(out, Record::TapeFound { tape, end_bytes });
        }
    }

    pub(super) fn dismounted(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) {
        if let Some(DriveState::Dismounting { .. }) = self.state(drive) {
            self.keep(
                out,
                DriveRecord::DriveFreed {
                    at_ns: now_ns,
                    drive: drive.clone(),
                },
            );
            if let Some(order) = self.orders.remove(drive) {
                self.calibrations.forget(drive, &order.tape);
            }
            self.is_decision_due = true;
        }
    }

    pub(super) fn dismount(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) {
        let state = self.state(drive);
        let Some(tape) = state.and_then(DriveState::tape).cloned() else {
            return;
        };
        let begun = DriveRecord::DismountBegun {
            at_ns: now_ns,
            drive: drive.clone(),
        };
        self.keep(out, begun);
        self.watchdog.begin(now_ns, drive);
        self.trickles.forget(drive);
        let drive = drive.clone();
        out.effects.push(Effect::Dismount { drive, tape });
    }

    /// Gives free drives to tapes. Why others wait is kept for [`RequestEngine::recall_waits`] and
    /// [`RequestEngine::archive_waits`].
    pub(super) fn decide(&mut self, now_ns: i64, out: &mut Turnout) {
        self.is_decision_due = false;
        self.wanted.clear();
        self.decided.clear();
        self.held.clear();
        self.next_worth_ns = None;
        self.close_data_sets(now_ns, out);
        self.prefer_readable(now_ns, out);
        let free = self.live.drives.free();
        let may_dismount = self.live.drives.0.values().any(|drive| {
            matches!(&drive.state, DriveState::Mounted(mount)
                if matches!(mount.work, DriveWork::Idle { .. }))
        });
        if free.is_empty() && !may_dismount {
            return;
        }
        let demand = self.demand(now_ns);
        let supply = DriveSupply {
            free,
            in_use: self.live.drives.in_use(),
            vo_in_use: self.vo_in_use(),
            background_reads_left: Some(self.background_reads_left(now_ns)),
        };
        let policy = &self.policy.mount;
        let decided = decide_mounts(now_ns, policy, &demand.candidates, supply);
        let next = demand.candidates.iter();
        let next = next.map(|candidate| worth_at_ns(policy, candidate));
        let next = next.chain(demand.next_ready_ns);
        self.next_worth_ns = next.filter(|at| *at > now_ns).min();
        self.perform(now_ns, &decided, out);
        self.find_oldest(now_ns, &demand, out);
        self.find_without_tape(demand.without_tape, out);
        self.decided = decided;
        self.held = demand.held;
    }

    fn perform(&mut self, now_ns: i64, decided: &[MountDecision], out: &mut Turnout) {
        for MountDecision {
            target,
            class,
            choice,
            ..
        } in decided
        {
            let (purpose, tape) = match target {
                MountTarget::Recall(tape) => (MountPurpose::Recall, tape),
                MountTarget::Archive(family, tape) => (MountPurpose::Archive(family.clone()), tape),
            };
            match choice {
                // A tape may be wanted to read and to write: the other waits for the next decision.
                Ok(_) if self.live.drives.drive_of(tape).is_some() => {
                    self.next_worth_ns = Some(now_ns);
                }
                Ok((drive, _)) => {
                    // Each decision gives a family one more tape of a library.
                    if purpose.is_archive() {
                        self.next_worth_ns = Some(now_ns);
                    }
                    let (drive, tape) = (drive.clone(), tape.clone());
                    self.watchdog.begin(now_ns, &drive);
                    let begun = DriveRecord::MountBegun {
                        at_ns: now_ns,
                        drive: drive.clone(),
                        tape: tape.clone(),
                        purpose: purpose.clone(),
                    };
                    self.keep(out, begun);
                    out.effects.push(Effect::Mount {
                        drive,
                        tape,
                        purpose,
                    });
                }
                Err(MountWait::NoFreeDrive) => {
                    self.wanted.insert(class.clone());
                }
                Err(
                    MountWait::NotWorthIt { .. }
                    | MountWait::ClassBusy { .. }
                    | MountWait::VoBusy { .. }
                    | MountWait::FamilyBusy { .. }
                    | MountWait::BackgroundBusy,
                ) => {}
            }
        }
    }

    fn demand(&mut self, now_ns: i64) -> Demand {
        let mut demand = Demand::default();
        let mut probes: BTreeMap<LibraryName, bool> = BTreeMap::new();
        let (mut in_use, mut down, mut coming) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for drive in self.live.drives.0.values() {
            match &drive.state {
                DriveState::Down { tape, .. } => down.extend(tape.clone()),
                state => in_use.extend(state.tape().cloned()),
            }
            if let DriveState::Mounting { tape, .. } = &drive.state {
                coming.push(tape.clone());
            }
        }
        // For whom a drive mounts is known by what is queued for its tape.
        for tape in coming {
            self.queue_sum(&tape);
        }
        for tape in self.live.queues.keys().cloned().collect::<Vec<_>>() {
            // What is being read is not summed up: that would cost more with each file that is queued for it.
            if in_use.contains(&tape) {
                continue;
            }
            let Some(sum) = self.queue_sum(&tape) else {
                continue;
            };
            let Some(facts) = self.live.tapes.get(&tape) else {
                continue;
            };
            let class = facts.class();
            let target = MountTarget::Recall(tape.clone());
            let is_down = down.contains(&tape);
            if sum.is_background && self.background_reads_left(now_ns) == 0 {
                let held_ns = self.live.background_held_ns.filter(|at| *at > now_ns);
                demand.next_ready_ns = demand.next_ready_ns.into_iter().chain(held_ns).min();
                continue;
            }
            let may = self.live.is_readable(&tape)
                && !is_down
                && self.may_mount(now_ns, &class.library, &mut probes);
            match may {
                false => demand.blocked.push((target, class, sum.oldest_ns)),
                true => demand.candidates.push(MountCandidate {
                    target,
                    class,
                    bytes: sum.bytes,
                    files: sum.files,
                    oldest_ns: sum.oldest_ns,
                    deadline_ns: sum.deadline_ns,
                    priority: sum.priority,
                    vo: sum.vo,
                    mounts: 0,
                    last_read_ns: self.live.last_reads.get(&tape).copied(),
                    is_background: sum.is_background,
                }),
            }
        }
        self.add_archives(now_ns, &mut probes, &mut demand);
        demand
    }

    /// Whether tapes of a library are mounted. After a pause, one is.
    pub(super) fn may_mount(
        &self,
        now_ns: i64,
        library: &LibraryName,
        probes: &mut BTreeMap<LibraryName, bool>,
    ) -> bool {
        if !self.live.libraries.contains_key(library) {
            return true;
        }
        let is_first = !std::mem::replace(probes.entry(library.clone()).or_default(), true);
        self.is_library_working(now_ns, library) && is_first
    }

    /// Whether a library works, or is to be tried now.
    pub(super) fn is_library_working(&self, now_ns: i64, library: &LibraryName) -> bool {
        let Some(pause) = self.live.libraries.get(library) else {
            return true;
        };
        let drives = self.live.drives.0.values();
        let mut of_library = drives.filter(|drive| drive.library == *library);
        let is_tried = of_library.any(|drive| matches!(drive.state, DriveState::Mounting { .. }));
        now_ns >= pause.probe_ns && !is_tried
    }

    /// How many more drives may read what nobody waits for.
    fn background_reads_left(&self, now_ns: i64) -> u32 {
        if self.live.is_background_held(now_ns) {
            return 0;
        }
        let drives = self.live.drives.0.values();
        let busy = drives.filter(|drive| match &drive.state {
            DriveState::Mounting { tape, purpose, .. } => {
                let sum = self.sums.get(tape);
                *purpose == MountPurpose::Recall && sum.is_some_and(|sum| sum.is_background)
            }
            DriveState::Mounted(mount) => match mount.work {
                DriveWork::Reading(file) => {
                    let entry = self.live.recalls.get(&file);
                    entry.is_some_and(RecallEntry::is_background)
                }
                _ => false,
            },
            DriveState::Free | DriveState::Dismounting { .. } | DriveState::Down { .. } => false,
        });
        let busy = u32::try_from(busy.count()).unwrap_or(u32::MAX);
        self.policy.background_drives_max.saturating_sub(busy)
    }

    /// Tapes from which something is asked, or that have a copy of it, and that can be read as things stand.
    fn readable<'a>(
        &'a self,
        now_ns: i64,
        tapes: impl Iterator<Item = &'a TapeName>,
    ) -> BTreeSet<&'a TapeName> {
        let mut classes = BTreeSet::new();
        let mut stuck = BTreeSet::new();
        for drive in self.live.drives.0.values() {
            match &drive.state {
                DriveState::Down { tape, .. } => stuck.extend(tape),
                _ => drop(classes.insert((&drive.library, &drive.kind))),
            }
        }
        let away = self.live.libraries.keys();
        let away = away.filter(|library| !self.is_library_working(now_ns, library));
        let away: BTreeSet<&LibraryName> = away.collect();
        let is_readable = |name: &&TapeName| {
            let tape = self.live.tapes.get(*name);
            tape.is_some_and(|tape| {
                self.live.is_readable(name)
                    && !stuck.contains(name)
                    && !away.contains(&tape.library)
                    && classes.contains(&(&tape.library, &tape.kind))
            })
        };
        tapes.filter(is_readable).collect()
    }

    /// Files of a tape that cannot be read now go to another copy that can. The copy that is left stays theirs.
    fn prefer_readable(&mut self, now_ns: i64, out: &mut Turnout) {
        let queued = self.readable(now_ns, self.live.queues.keys());
        if queued.len() == self.live.queues.len() {
            return;
        }
        let all = self.readable(now_ns, self.live.tapes.keys());
        let mut moves = Vec::new();
        for (tape, queue) in &self.live.queues {
            if queued.contains(tape) {
                continue;
            }
            for file in &queue.files {
                let entry = self.live.recalls.get(file);
                // A copy that is to be verified is no other one.
                let entry = entry.filter(|entry| entry.verifiers().is_empty());
                let copies = entry.map_or(&[][..], |entry| &entry.copies);
                let mut others = copies.iter().map(|copy| &copy.tape);
                let other = others.find(|other| all.contains(other));
                moves.extend(other.map(|tape| (*file, tape.clone())));
            }
        }
        for (file, tape) in moves {
            self.keep(out, Record::CopyPreferred { file, tape });
        }
    }

    /// Drives that each VO has. A drive belongs to the VO of what is queued for its tape, else of what it reads or writes.
    fn vo_in_use(&self) -> BTreeMap<VoName, u32> {
        let mut in_use = BTreeMap::new();
        for drive in self.live.drives.0.values() {
            if let Some(vo) = self.vo_of(&drive.state) {
                *in_use.entry(vo).or_insert(0) += 1;
            }
        }
        in_use
    }

    fn vo_of(&self, state: &DriveState) -> Option<VoName> {
        let queued = |tape: &TapeName| self.sums.get(tape).map(|sum| sum.vo.clone());
        let first = |entry: Option<&RecallEntry>| {
            let asker = entry?.askers.values().next()?;
            Some(asker.vo.clone())
        };
        let written = |file: &FileId| {
            let asker = self.live.archives.get(file)?.askers.values().next()?;
            Some(asker.vo.clone())
        };
        match state {
            DriveState::Mounting { tape, .. } | DriveState::Dismounting { tape, .. } => {
                queued(tape)
            }
            DriveState::Mounted(mount) => match &mount.work {
                DriveWork::Reading(file) => first(self.live.recalls.get(file)),
                DriveWork::Writing(file) => written(file),
                DriveWork::WritingAggregate(members) => written(members.first()?),
                DriveWork::Idle { .. } | DriveWork::Syncing => queued(&mount.tape),
            },
            DriveState::Free | DriveState::Down { .. } => None,
        }
    }

    /// Takes out tapes that nothing is asked from: at once when others want the drive, else after a while.
    pub(super) fn dismount_idle(&mut self, now_ns: i64, out: &mut Turnout) {
        let delay = self.policy.dismount_delay_ns;
        let most = self.policy.files_per_mount_max;
        let drives = self.live.drives.0.iter();
        let over = drives.filter_map(|(name, drive)| {
            let DriveState::Mounted(mount) = &drive.state else {
                return None;
            };
            let DriveWork::Idle { since_ns } = mount.work else {
                return None;
            };
            let is_over = now_ns - since_ns >= delay
                || most.is_some_and(|most| mount.files >= most)
                || !self.live.is_readable(&mount.tape)
                || self.trickles.is_ending(name);
            Some((name.clone(), drive.class(), is_over))
        });
        for (drive, class, is_over) in over.collect::<Vec<_>>() {
            // One drive for each class that is wanted; the next decision sees whether that is enough.
            if is_over || self.wanted.remove(&class) {
                self.dismount(now_ns, &drive, out);
            }
        }
    }

    /// Opens an incident for what waits too long while a drive is free, and closes it when that is over.
    fn find_oldest(&mut self, now_ns: i64, demand: &Demand, out: &mut Turnout) {
        let free = self.live.drives.free();
        let candidates = demand.candidates.iter();
        let candidates = candidates.map(|one| (&one.target, &one.class, one.oldest_ns));
        let blocked = demand
            .blocked
            .iter()
            .map(|(target, class, oldest_ns)| (target, class, *oldest_ns));
        let mut waiting = BTreeSet::new();
        for (target, class, oldest_ns) in candidates.chain(blocked) {
            let (MountTarget::Recall(tape) | MountTarget::Archive(_, tape)) = target;
            let is_old = now_ns - oldest_ns > self.policy.oldest_wait_ns;
            let is_mounted = || {
                let drive = self.live.drives.drive_of(tape);
                drive.is_some_and(|(_, drive)| !matches!(drive.state, DriveState::Down { .. }))
            };
            // That a library is paused is known already.
            let is_full = matches!(target, MountTarget::Archive(..))
                && self.live.full_libraries.contains_key(&class.library);
            let is_paused = is_full || self.live.libraries.contains_key(&class.library);
            if is_old && free.contains_key(class) && !is_paused && !is_mounted() {
                waiting.insert(target.clone());
            }
        }
        for target in waiting.difference(&self.waiting) {
            out.effects
                .push(Effect::Open(TapeIncident::OldestWaits(target.clone())));
        }
        for target in self.waiting.difference(&waiting) {
            out.effects
                .push(Effect::Close(TapeIncident::OldestWaits(target.clone())));
        }
        self.waiting = waiting;
    }

    /// Opens an incident for each family of which files cannot be written on any tape, and closes it when one can.
    fn find_without_tape(&mut self, without: BTreeSet<FamilyName>, out: &mut Turnout) {
        for family in without.difference(&self.without_tape) {
            let incident = TapeIncident::NoTapeLeft(family.clone());
            out.effects.push(Effect::Open(incident));
        }
        for family in self.without_tape.difference(&without) {
            let incident = TapeIncident::NoTapeLeft(family.clone());
            out.effects.push(Effect::Close(incident));
        }
        self.without_tape = without;
    }
}
