//! Files from disk to tape. A copy is on tape only when the sync that covers it has returned, and a file only when all its copies
//! are. Which tapes are wanted for that is decided in `archive_demand`.

use super::{CopyTelling, Effect, RequestEngine, Turnout};
use crate::aggregate::{AggregateMember, index_bytes};
use crate::data_set::DataSetName;
use crate::drive_pool::{DriveState, DriveWork, MountPurpose};
use crate::live_set::{ArchiveEntry, ArchiveGroup, CopyStage, RequestTarget};
use crate::record::{DriveRecord, Record};
use crate::request::{
    ArchiveRequest, DriveName, FamilyName, FileId, LibraryName, RequestOutcome, TapeName,
};
use std::collections::BTreeSet;

/// What a drive writes next.
enum NextWrite {
    File(FileId),
    Aggregate(Vec<FileId>),
}

impl RequestEngine {
    /// Orders the next write or sync; without one the drive stays idle.
    pub(super) fn write_next(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) -> bool {
        let Some(mount) = self.live.mount(drive) else {
            return false;
        };
        let is_full = mount.unsynced_bytes >= self.policy.sync_bytes
            || mount.unsynced_marks >= self.policy.sync_files;
        let has_unsynced = !mount.unsynced.is_empty();
        let next = match self.is_trickle(now_ns, drive) {
            true => None,
            false => self.next_write(now_ns, drive),
        };
        match next {
            Some(NextWrite::File(file)) if !is_full => {
                let begun = DriveRecord::WriteBegun {
                    at_ns: now_ns,
                    drive: drive.clone(),
                    file,
                };
                self.keep_begun(&[file], begun, out);
                out.effects.extend(self.write_effect(drive, file));
            }
            Some(NextWrite::Aggregate(members)) if !is_full => {
                let begun = DriveRecord::AggregateBegun {
                    at_ns: now_ns,
                    drive: drive.clone(),
                    members: members.clone(),
                };
                self.keep_begun(&members, begun, out);
                out.effects.extend(self.aggregate_effect(drive, members));
            }
            _ if has_unsynced => {
                self.keep(
                    out,
                    DriveRecord::SyncBegun {
                        at_ns: now_ns,
                        drive: drive.clone(),
                    },
                );
                out.effects.push(Effect::Sync {
                    drive: drive.clone(),
                });
            }
            _ => return false,
        }
        self.watchdog.begin(now_ns, drive);
        self.trickles.begin_work(now_ns, drive);
        true
    }

    pub(super) fn write_effect(&self, drive: &DriveName, file: FileId) -> Option<Effect> {
        Some(Effect::Write {
            drive: drive.clone(),
            file,
            begin_bytes: self.live.mount(drive)?.head_bytes,
            size_bytes: self.live.archives.get(&file)?.size_bytes,
        })
    }

    pub(super) fn aggregate_effect(
        &self,
        drive: &DriveName,
        members: Vec<FileId>,
    ) -> Option<Effect> {
        let size = |file: &FileId| self.live.archives.get(file).map_or(0, |one| one.size_bytes);
        let members = members.into_iter().map(|file| AggregateMember {
            file,
            size_bytes: size(&file),
        });
        Some(Effect::WriteAggregate {
            drive: drive.clone(),
            begin_bytes: self.live.mount(drive)?.head_bytes,
            members: members.collect(),
        })
    }

    /// The oldest files of the group that this mount goes on with, if they fit on the tape. A tape on which they do not fit is full.
    fn next_write(&mut self, now_ns: i64, drive: &DriveName) -> Option<NextWrite> {
        let mount = self.live.mount(drive)?;
        let MountPurpose::Archive(family) = &mount.purpose else {
            return None;
        };
        let (family, tape, data_set) = (family.clone(), mount.tape.clone(), mount.data_set.clone());
        let facts = self.live.tapes.get(&tape)?;
        let library = facts.library.clone();
        if !self.live.is_writable(&tape) || !self.has_room(now_ns, &library) {
            return None;
        }
        let (capacity, free) = (facts.capacity_bytes, facts.free_bytes());
        let group = self.next_group(now_ns, drive, (&family, &library), data_set.as_ref())?;
        let queue = self.live.families.get(&family)?.get(&group)?;
        let (_, first) = queue.files.first()?;
        let size = |file: &FileId| self.live.archives.get(file).map(|entry| entry.size_bytes);
        if !group.is_packed {
            return (size(first)? <= free).then_some(NextWrite::File(*first));
        }
        let room = self.policy.aggregate.bytes_max_on(capacity).min(free);
        let (mut members, mut sizes) = (Vec::new(), 0_u64);
        for (_, file) in queue
            .files
            .iter()
            .take(self.policy.aggregate.files_max.max(1))
        {
            let with = sizes.saturating_add(size(file)?);
            let index = index_bytes(members.len() + 1);
            if with.saturating_add(index) > room {
                break;
            }
            sizes = with;
            members.push(*file);
        }
        match members.len() {
            0 => (size(first)? <= free).then_some(NextWrite::File(*first)),
            1 => Some(NextWrite::File(*first)),
            _ => Some(NextWrite::Aggregate(members)),
        }
    }

    /// The group that a mount writes next: that of the data set of which it wrote last, so that a data set lies together, else the
    /// oldest one that no other drive writes. A group that has waited for too long goes first.
    fn next_group(
        &mut self,
        now_ns: i64,
        drive: &DriveName,
        (family, library): (&FamilyName, &LibraryName),
        current: Option<&DataSetName>,
    ) -> Option<ArchiveGroup> {
        let elsewhere = self.data_sets_elsewhere(drive, family);
        let groups = self.live.families.get(family)?.iter();
        let groups = groups.filter(|(group, _)| !group.taken.contains(library));
        let oldest =
            groups.filter_map(|(group, queue)| Some((group.clone(), queue.files.first()?.0)));
        let mut ready = Vec::new();
        for (group, oldest_ns) in oldest.collect::<Vec<_>>() {
            if !self.is_group_ready(now_ns, family, &group) {
                continue;
            }
            let is_late = now_ns.saturating_sub(oldest_ns) > self.policy.oldest_wait_ns;
            let late_ns = match is_late {
                true => oldest_ns,
                false => i64::MAX,
            };
            let is_current = group.data_set.as_ref() == current;
            let is_elsewhere = group
                .data_set
                .as_ref()
                .is_some_and(|set| elsewhere.contains(set));
            let rank = (late_ns, !is_current, is_elsewhere, oldest_ns);
            ready.push((rank, group));
        }
        ready.into_iter().min().map(|(_, group)| group)
    }

    /// Whether a group may be written now. Most may without a look at all of their files, which would cost more with each that is
    /// queued.
    fn is_group_ready(&mut self, now_ns: i64, family: &FamilyName, group: &ArchiveGroup) -> bool {
        let waits = group.is_packed || group.is_background || {
            let set = group.data_set.clone().map(|name| (family.clone(), name));
            let set = set.and_then(|key| self.live.data_sets.get(&key));
            set.is_some_and(|set| {
                let end_ns = set.since_ns.saturating_add(self.policy.data_set_wait_ns);
                set.is_complete() == Some(false) && now_ns < end_ns
            })
        };
        !waits || {
            let sum = self.group_sum(family, group);
            sum.is_some_and(|sum| self.ready_at_ns(family, group, &sum) <= now_ns)
        }
    }

    fn data_sets_elsewhere(&self, drive: &DriveName, family: &FamilyName) -> BTreeSet<DataSetName> {
        let drives = self.live.drives.0.iter();
        let others = drives.filter_map(|(name, other)| match &other.state {
            DriveState::Mounted(mount) if name != drive => match &mount.purpose {
                MountPurpose::Archive(of) if of == family => mount.data_set.clone(),
                MountPurpose::Archive(_) | MountPurpose::Recall => None,
            },
            _ => None,
        });
        others.collect()
    }

    pub(super) fn file_written(
        &mut self,
        now_ns: i64,
        drive: &DriveName,
        file: FileId,
        out: &mut Turnout,
    ) {
        if self.work_of(drive) == Some(&DriveWork::Writing(file)) {
            self.add_fed(now_ns, drive);
            let drive = drive.clone();
            self.keep(
                out,
                DriveRecord::WriteEnded {
                    at_ns: now_ns,
                    drive,
                    file,
                },
            );
        }
    }

    pub(super) fn aggregate_written(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) {
        if let Some(DriveWork::WritingAggregate(_)) = self.work_of(drive) {
            self.add_fed(now_ns, drive);
            let drive = drive.clone();
            self.keep(
                out,
                DriveRecord::AggregateEnded {
                    at_ns: now_ns,
                    drive,
                },
            );
        }
    }

    /// The tape is at its end, sooner than its capacity said.
    pub(super) fn tape_full(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) {
        let Some(mount) = self.live.mount(drive) else {
            return;
        };
        if !matches!(
            mount.work,
            DriveWork::Writing(_) | DriveWork::WritingAggregate(_)
        ) {
            return;
        }
        let tape = mount.tape.clone();
        self.keep(out, Record::TapeFilled { tape });
        self.return_work(now_ns, drive, out);
        self.is_decision_due = true;
    }

    pub(super) fn synced(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) {
        let Some(mount) = self.live.mount(drive) else {
            return;
        };
        if mount.work != DriveWork::Syncing {
            return;
        }
        let tape = mount.tape.clone();
        self.add_fed(now_ns, drive);
        let Some(mount) = self.live.mount(drive) else {
            return;
        };
        for file in mount.unsynced.clone() {
            self.copy_synced(file, &tape, out);
        }
        self.resume_writing(now_ns, drive, out);
        let drive = drive.clone();
        self.keep(
            out,
            DriveRecord::SyncEnded {
                at_ns: now_ns,
                drive,
            },
        );
    }

    /// A request that is asked again may want something else: its class has changed.
    pub(super) fn ask_again(&mut self, at_ns: i64, request: ArchiveRequest, out: &mut Turnout) {
        let file = request.file;
        let entry = self.live.archives.get(&file);
        // What others want as well stays as it is.
        let is_alone = |entry: &&ArchiveEntry| entry.askers.keys().eq([&request.request]);
        let Some(entry) = entry.filter(is_alone) else {
            return;
        };
        if entry.is_as_wanted(&request) {
            return;
        }
        self.keep(out, Record::ArchiveChanged { at_ns, request });
        let entry = self.live.archives.get(&file);
        let done = entry.filter(|entry| entry.missing() == 0 && !entry.is_in_drive());
        if let Some(copies) = done.map(ArchiveEntry::synced) {
            for request in self.askers_of(RequestTarget::Archive(file)) {
                self.end(out, request, RequestOutcome::Archived(copies.clone()));
            }
        }
    }

    /// One copy of a file is safe. With the last one its requests end.
    fn copy_synced(&mut self, file: FileId, tape: &TapeName, out: &mut Turnout) {
        let Some(entry) = self.live.archives.get(&file) else {
            return;
        };
        let (mut copies, mut is_last, mut made) = (Vec::new(), entry.missing() == 0, None);
        for stage in entry.copies.values() {
            match stage {
                CopyStage::Unsynced(copy) if copy.tape == *tape => {
                    made = Some(copy.clone());
                    copies.push(copy.clone());
                }
                CopyStage::Synced(copy) => copies.push(copy.clone()),
                CopyStage::Unsynced(_) | CopyStage::Writing => is_last = false,
            }
        }
        let Some(made) = made else {
            return;
        };
        let askers = self.askers_of(RequestTarget::Archive(file));
        if is_last {
            let outcome = RequestOutcome::Archived(copies);
            for request in askers {
                self.end(out, request, outcome.clone());
            }
        } else if self.policy.copy_telling == CopyTelling::Each {
            let told = askers.into_iter().map(|request| Effect::CopyMade {
                request,
                copy: made.clone(),
            });
            out.effects.extend(told);
        }
    }
}
