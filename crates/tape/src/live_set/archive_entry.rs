//! Files that are to be written, copy by copy. Each copy of a file goes to another library; until the sync that covers it a copy
//! counts for nothing, and is queued again when its drive fails.

use super::{DriveWork, LiveSet, RequestTarget};
use crate::aggregate::aggregate_bytes;
use crate::data_set::{DataSetName, HintSource, HintVerdict};
use crate::request::{
    ActivityName, AggregateExtent, ArchiveRequest, Asker, ChallengeName, DriveName, FamilyName,
    FileId, LibraryName, RequestId, TapeCopy, TapeName, VoName,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Where one copy of a file stands that a drive has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyStage {
    Writing,
    /// Written there, and not safe.
    Unsynced(TapeCopy),
    /// Safe.
    Synced(TapeCopy),
}

/// A file that is to be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveEntry {
    pub size_bytes: u64,
    pub family: FamilyName,
    pub askers: BTreeMap<RequestId, Asker>,
    pub since_ns: i64,
    pub is_packed: bool,
    pub data_set: Option<DataSetName>,
    /// Copies that are asked for.
    pub wanted: u32,
    /// Nobody waits for it.
    pub is_background: bool,
    /// Libraries that it is not written in, since they have it.
    #[serde(default)]
    pub not_in: BTreeSet<LibraryName>,
    /// Copies that are there or on their way.
    pub copies: BTreeMap<LibraryName, CopyStage>,
    /// Of the first who asked, for accounting.
    pub vo: Option<VoName>,
    pub activity: Option<ActivityName>,
    pub challenge: Option<ChallengeName>,
}

impl ArchiveEntry {
    /// Copies that no drive has begun.
    pub fn missing(&self) -> u32 {
        let begun = u32::try_from(self.copies.len()).unwrap_or(u32::MAX);
        self.wanted.saturating_sub(begun)
    }

    /// Copies that are safe.
    pub fn synced(&self) -> Vec<TapeCopy> {
        let stages = self.copies.values();
        let synced = stages.filter_map(|stage| match stage {
            CopyStage::Synced(copy) => Some(copy.clone()),
            CopyStage::Writing | CopyStage::Unsynced(_) => None,
        });
        synced.collect()
    }

    fn is_synced_on(&self, tape: &TapeName) -> bool {
        let mut stages = self.copies.values();
        stages.any(|stage| matches!(stage, CopyStage::Synced(copy) if copy.tape == *tape))
    }

    /// Whether a request wants the same of it.
    pub fn is_as_wanted(&self, request: &ArchiveRequest) -> bool {
        self.family == request.family
            && self.wanted == request.wishes.copies.max(1)
            && self.is_packed == request.wishes.is_packed
    }

    /// Whether a drive has a copy of it that is not safe yet.
    pub fn is_in_drive(&self) -> bool {
        let mut stages = self.copies.values();
        stages.any(|stage| !matches!(stage, CopyStage::Synced(_)))
    }

    /// Files of the family that may be written before or after it.
    pub fn group(&self) -> ArchiveGroup {
        ArchiveGroup {
            data_set: self.data_set.clone(),
            is_packed: self.is_packed,
            is_background: self.is_background,
            taken: self.copies.keys().chain(&self.not_in).cloned().collect(),
            missing: self.missing(),
        }
    }
}

/// Files of a family that may be written one after the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ArchiveGroup {
    pub data_set: Option<DataSetName>,
    pub is_packed: bool,
    #[serde(default)]
    pub is_background: bool,
    /// Libraries that have a copy, or are about to.
    pub taken: BTreeSet<LibraryName>,
    /// Copies that no drive has begun.
    pub missing: u32,
}

/// Files of a group, by age.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveQueue {
    pub files: BTreeSet<(i64, FileId)>,
    /// Another one after each change.
    pub revision: u64,
}

/// A data set as far as it has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDataSet {
    pub source: HintSource,
    pub since_ns: i64,
    /// When its last file came.
    pub last_ns: i64,
    pub came_files: u64,
    pub came_bytes: u64,
    pub expected_files: Option<u64>,
    pub expected_bytes: Option<u64>,
    /// Files that are not done.
    pub open: BTreeSet<FileId>,
}

impl OpenDataSet {
    /// Whether all has come that was announced. `None`: nothing was announced.
    pub fn is_complete(&self) -> Option<bool> {
        let reached = |expected: Option<u64>, came: u64| expected.map(|expected| came >= expected);
        let files = reached(self.expected_files, self.came_files);
        let bytes = reached(self.expected_bytes, self.came_bytes);
        // Either figure may be wrong by a little: what is reached first counts.
        match (files, bytes) {
            (None, one) | (one, None) => one,
            (Some(files), Some(bytes)) => Some(files || bytes),
        }
    }
}

impl LiveSet {
    pub(super) fn add_archive(&mut self, at_ns: i64, request: &ArchiveRequest) {
        let ArchiveRequest {
            request: id,
            file,
            asker,
            wishes,
            ..
        } = request;
        let wanted = wishes.copies.max(1);
        self.requests.insert(*id, RequestTarget::Archive(*file));
        self.leases.insert((asker.lease_ns, *id));
        self.unqueue_archive(*file);
        if let Some(entry) = self.archives.get_mut(file) {
            let has_left = entry.askers.is_empty();
            entry.askers.insert(*id, asker.clone());
            entry.wanted = entry.wanted.max(wanted);
            entry.is_background &= wishes.is_background;
            if has_left {
                self.join_data_set(at_ns, request);
            }
        } else {
            let entry = ArchiveEntry {
                size_bytes: request.size_bytes,
                family: request.family.clone(),
                askers: BTreeMap::from([(*id, asker.clone())]),
                since_ns: at_ns,
                is_packed: wishes.is_packed,
                data_set: wishes.data_set.as_ref().map(|set| set.name.clone()),
                wanted,
                is_background: wishes.is_background,
                not_in: wishes.not_in.clone(),
                copies: BTreeMap::new(),
                vo: Some(asker.vo.clone()),
                activity: wishes.activity.clone(),
                challenge: wishes.challenge.clone(),
            };
            self.archives.insert(*file, entry);
            self.join_data_set(at_ns, request);
        }
        self.queue_archive(*file);
    }

    /// Copies that are safe, or on their way, stay.
    pub(super) fn change_archive(&mut self, at_ns: i64, request: &ArchiveRequest) {
        self.unqueue_archive(request.file);
        if let Some(entry) = self.archives.get_mut(&request.file) {
            let data_set = request.wishes.data_set.as_ref().map(|set| set.name.clone());
            let joined = (request.family.clone(), data_set.clone());
            let left = (
                std::mem::replace(&mut entry.family, request.family.clone()),
                std::mem::replace(&mut entry.data_set, data_set),
            );
            entry.wanted = request.wishes.copies.max(1);
            entry.is_packed = request.wishes.is_packed;
            if left != joined {
                if let (family, Some(name)) = left
                    && let Some(open) = self.data_sets.get_mut(&(family, name))
                {
                    open.open.remove(&request.file);
                }
                self.join_data_set(at_ns, request);
            }
        }
        self.queue_archive(request.file);
    }

    fn join_data_set(&mut self, at_ns: i64, request: &ArchiveRequest) {
        let Some(set) = &request.wishes.data_set else {
            return;
        };
        if set.has_blank_hints {
            let key = (HintSource::ClientMetadata, HintVerdict::Blank);
            *self.hint_verdicts.entry(key).or_default() += 1;
        }
        let key = (request.family.clone(), set.name.clone());
        let open = self.data_sets.entry(key).or_insert_with(|| OpenDataSet {
            source: set.source,
            since_ns: at_ns,
            last_ns: at_ns,
            came_files: 0,
            came_bytes: 0,
            expected_files: None,
            expected_bytes: None,
            open: BTreeSet::new(),
        });
        open.last_ns = at_ns;
        open.came_files += 1;
        open.came_bytes = open.came_bytes.saturating_add(request.size_bytes);
        open.expected_files = open.expected_files.max(set.expected_files);
        open.expected_bytes = open.expected_bytes.max(set.expected_bytes);
        open.open.insert(request.file);
    }

    /// A file that nobody asks for any more has not come yet: when it is asked for again, it is counted then.
    pub(super) fn leave_data_set(&mut self, file: FileId) {
        let entry = self.archives.get(&file);
        let Some(entry) = entry.filter(|entry| entry.askers.is_empty()) else {
            return;
        };
        let (family, size_bytes) = (entry.family.clone(), entry.size_bytes);
        let key = entry.data_set.clone().map(|name| (family, name));
        if let Some(open) = key.and_then(|key| self.data_sets.get_mut(&key)) {
            open.came_files = open.came_files.saturating_sub(1);
            open.came_bytes = open.came_bytes.saturating_sub(size_bytes);
        }
    }

    pub(super) fn close_data_set(
        &mut self,
        family: &FamilyName,
        data_set: &DataSetName,
        verdict: HintVerdict,
    ) {
        let key = (family.clone(), data_set.clone());
        if let Some(closed) = self.data_sets.remove(&key) {
            let count = self.hint_verdicts.entry((closed.source, verdict));
            *count.or_default() += 1;
        }
    }

    /// Takes a file out of the queue in which it is, before its copies change.
    pub(super) fn unqueue_archive(&mut self, file: FileId) {
        let Some(entry) = self.archives.get(&file) else {
            return;
        };
        let (family, group) = (entry.family.clone(), entry.group());
        let place = (entry.since_ns, file);
        let revision = self.next_revision();
        let Some(groups) = self.families.get_mut(&family) else {
            return;
        };
        if let Some(queue) = groups.get_mut(&group) {
            queue.revision = revision;
            queue.files.remove(&place);
            if queue.files.is_empty() {
                groups.remove(&group);
            }
        }
        if groups.is_empty() {
            self.families.remove(&family);
        }
    }

    /// Puts a file into the queue of what is missing of it; one that nobody asks for leaves when no drive has it any more.
    pub(super) fn queue_archive(&mut self, file: FileId) {
        let Some(entry) = self.archives.get(&file) else {
            return;
        };
        let family = entry.family.clone();
        if entry.askers.is_empty() {
            if !entry.is_in_drive() {
                let key = entry.data_set.clone().map(|name| (family, name));
                self.archives.remove(&file);
                if let Some(open) = key.and_then(|key| self.data_sets.get_mut(&key)) {
                    open.open.remove(&file);
                }
            }
            return;
        }
        if entry.missing() == 0 {
            return;
        }
        let (group, place) = (entry.group(), (entry.since_ns, file));
        let revision = self.next_revision();
        let groups = self.families.entry(family).or_default();
        let queue = groups.entry(group).or_default();
        queue.files.insert(place);
        queue.revision = revision;
    }

    fn library_of(&self, tape: &TapeName) -> Option<LibraryName> {
        self.tapes.get(tape).map(|tape| tape.library.clone())
    }

    /// The stage of the copy that lies on a tape, or is written to it.
    fn set_stage(&mut self, file: FileId, tape: &TapeName, stage: Option<CopyStage>) {
        let Some(library) = self.library_of(tape) else {
            return;
        };
        self.unqueue_archive(file);
        if let Some(entry) = self.archives.get_mut(&file) {
            match stage {
                Some(stage) => entry.copies.insert(library, stage),
                None => entry.copies.remove(&library),
            };
        }
        self.queue_archive(file);
    }

    pub(super) fn begin_write(&mut self, drive: &DriveName, work: DriveWork) {
        let files = work.members().to_vec();
        let Some(mount) = self.mount_mut(drive) else {
            return;
        };
        mount.work = work;
        let tape = mount.tape.clone();
        let first = files.first().and_then(|file| self.archives.get(file));
        let data_set = first.and_then(|entry| entry.data_set.clone());
        for file in files {
            self.set_stage(file, &tape, Some(CopyStage::Writing));
        }
        if let Some(mount) = self.mount_mut(drive) {
            mount.data_set = data_set;
        }
    }

    pub(super) fn end_write(&mut self, at_ns: i64, drive: &DriveName) {
        let Some(mount) = self.mount_mut(drive) else {
            return;
        };
        let work = std::mem::replace(&mut mount.work, DriveWork::Idle { since_ns: at_ns });
        let (tape, begin_bytes) = (mount.tape.clone(), mount.head_bytes);
        let (files, is_aggregate) = match work {
            DriveWork::Writing(file) => (vec![file], false),
            DriveWork::WritingAggregate(members) => (members, true),
            DriveWork::Idle { .. } | DriveWork::Reading(_) | DriveWork::Syncing => return,
        };
        let size = |file: &FileId| self.archives.get(file).map_or(0, |entry| entry.size_bytes);
        let sizes: Vec<u64> = files.iter().map(size).collect();
        let size_bytes = match is_aggregate {
            true => aggregate_bytes(sizes.iter().copied()),
            false => sizes.iter().sum(),
        };
        let aggregate = is_aggregate.then_some(AggregateExtent {
            begin_bytes,
            size_bytes,
        });
        let mut at = begin_bytes;
        for (file, size) in files.iter().zip(sizes) {
            let copy = TapeCopy {
                tape: tape.clone(),
                begin_bytes: at,
                aggregate,
            };
            self.set_stage(*file, &tape, Some(CopyStage::Unsynced(copy)));
            at = at.saturating_add(size);
        }
        let Some(mount) = self.mount_mut(drive) else {
            return;
        };
        mount.files += files.len() as u64;
        mount.head_bytes = begin_bytes.saturating_add(size_bytes);
        mount.unsynced_bytes = mount.unsynced_bytes.saturating_add(size_bytes);
        mount.unsynced_marks += 1;
        mount.unsynced.extend(files);
        let written_bytes = mount.head_bytes;
        if let Some(tape) = self.tapes.get_mut(&tape) {
            tape.written_bytes = written_bytes;
        }
    }

    pub(super) fn end_sync(&mut self, at_ns: i64, drive: &DriveName) {
        let Some(mount) = self.mount_mut(drive) else {
            return;
        };
        mount.work = DriveWork::Idle { since_ns: at_ns };
        mount.unsynced_bytes = 0;
        mount.unsynced_marks = 0;
        let (tape, files) = (mount.tape.clone(), std::mem::take(&mut mount.unsynced));
        let synced_bytes = mount.head_bytes;
        if let Some(tape) = self.tapes.get_mut(&tape) {
            tape.synced_bytes = synced_bytes;
        }
        let Some(library) = self.library_of(&tape) else {
            return;
        };
        for file in files {
            let entry = self.archives.get(&file);
            let stage = entry.and_then(|entry| entry.copies.get(&library));
            if let Some(CopyStage::Unsynced(copy)) = stage {
                let synced = CopyStage::Synced(copy.clone());
                self.set_stage(file, &tape, Some(synced));
            }
        }
    }

    /// Files of which a copy is safe on a tape, and others are not yet.
    pub fn has_synced_copies(&self, tape: &TapeName) -> bool {
        let mut archives = self.archives.values();
        archives.any(|entry| entry.is_synced_on(tape))
    }

    /// Copies that were safe on a tape are queued again.
    pub(super) fn give_up_copies(&mut self, tape: &TapeName) {
        let archives = self.archives.iter();
        let on_it = archives.filter(|(_, entry)| entry.is_synced_on(tape));
        let on_it = on_it.map(|(file, _)| *file).collect();
        self.return_copies(tape, on_it);
    }

    /// Copies on a tape that are not safe are given up, and queued again.
    pub(super) fn return_copies(&mut self, tape: &TapeName, files: Vec<FileId>) {
        for file in files {
            self.set_stage(file, tape, None);
        }
    }
}
