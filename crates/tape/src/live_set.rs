//! All that is asked for and not done, all drives, all tapes: what records make up. Nothing changes it but a record, so that it is
//! the same after a restart. Queues are indexes of it. Beside it are counted only what a mount has written and not synced, which tests
//! compare with its files, and how much of a data set came.

mod archive_entry;
mod care;
mod families_as_pairs;
mod locates;
mod recall_entry;

pub use archive_entry::{ArchiveEntry, ArchiveGroup, ArchiveQueue, CopyStage, OpenDataSet};
pub use recall_entry::RecallEntry;

use crate::calibration::ObservedLocate;
use crate::data_set::{DataSetName, HintSource, HintVerdict};
use crate::drive_pool::{Drive, DrivePool, DriveState, DriveWork, Mount, MountPurpose};
use crate::mount_account::MountLedger;
use crate::record::{DriveRecord, Record, Tape, TapeState};
use crate::request::{
    DriveName, FamilyName, FileId, LibraryId, LibraryName, RequestId, RequestOutcome, TapeName,
};
use crate::tape_care::{TapeCare, UnreadableCopies};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Moments of relabels that are kept.
const RELABELS_MAX: usize = 1_000;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestTarget {
    Recall(FileId),
    Archive(FileId),
}

/// Why a library is left alone, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryPause {
    pub since_ns: i64,
    pub probe_ns: i64,
    pub pause_ns: i64,
}

/// Files that wait for one tape.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeQueue {
    pub files: BTreeSet<FileId>,
    /// Another one after each change, so that what was summed up over it is known to be old.
    pub revision: u64,
}

/// The state of the request engine. Stored as a whole when records are cut short; what an older one does not hold is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveSet {
    pub drives: DrivePool,
    pub tapes: BTreeMap<TapeName, Tape>,
    /// Those of them that are no longer configured: they are neither read nor written.
    pub retired: BTreeSet<TapeName>,
    pub recalls: BTreeMap<FileId, RecallEntry>,
    pub archives: BTreeMap<FileId, ArchiveEntry>,
    pub requests: BTreeMap<RequestId, RequestTarget>,
    /// How requests end that may not have been told.
    pub settled: BTreeMap<RequestId, RequestOutcome>,
    /// By the moment at which they end.
    pub leases: BTreeSet<(i64, RequestId)>,
    /// Files to be read that no drive reads now.
    pub queues: BTreeMap<TapeName, TapeQueue>,
    /// Files of which copies are to be written that no drive has.
    #[serde(with = "families_as_pairs")]
    pub families: BTreeMap<FamilyName, BTreeMap<ArchiveGroup, ArchiveQueue>>,
    /// Data sets of which files are queued or still to come.
    #[serde(with = "crate::as_pairs")]
    pub data_sets: BTreeMap<(FamilyName, DataSetName), OpenDataSet>,
    /// What hints were worth.
    #[serde(with = "crate::as_pairs")]
    pub hint_verdicts: BTreeMap<(HintSource, HintVerdict), u64>,
    pub libraries: BTreeMap<LibraryName, LibraryPause>,
    /// Those that take no data now.
    pub full_libraries: BTreeMap<LibraryName, LibraryPause>,
    /// Which libraries these are, whatever lies where they are configured.
    pub library_ids: BTreeMap<LibraryName, LibraryId>,
    /// When a file was last read from each tape.
    pub last_reads: BTreeMap<TapeName, i64>,
    /// The newest locates on each tape, the oldest first.
    pub locates: BTreeMap<TapeName, VecDeque<ObservedLocate>>,
    /// Tapes that are being given up, and when the last ones were.
    pub relabeling: BTreeSet<TapeName>,
    pub relabels_ns: VecDeque<i64>,
    /// What is done for tapes that nobody waits for.
    pub care: BTreeMap<TapeName, TapeCare>,
    pub unreadable: UnreadableCopies,
    /// What classes wanted of files when all of them had it last.
    pub compared_classes: Option<String>,
    /// Background work rests until then.
    pub background_held_ns: Option<i64>,
    /// What the time of mounts went to.
    pub mounts: MountLedger,
    /// The last revision of a queue: none has one that another had before it.
    revision: u64,
}

impl LiveSet {
    /// What these records make up.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> LiveSet {
        let mut live = LiveSet::default();
        for record in records {
            live.apply(record);
        }
        live
    }

    /// Takes one record. What it names and is not there is passed over. Long because each record has its arm.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Drive(record) => {
                let mut mounts = std::mem::take(&mut self.mounts);
                mounts.take(self, record);
                self.mounts = mounts;
                self.apply_to_drive(record);
            }
            Record::Snapshot(live) => self.clone_from(live),
            Record::LibraryKnown { library, id } => {
                self.library_ids.insert(library.clone(), id.clone());
            }
            Record::DriveAdded {
                drive,
                library,
                kind,
            } => {
                let added = Drive {
                    library: library.clone(),
                    kind: kind.clone(),
                    state: DriveState::Free,
                };
                self.drives.0.insert(drive.clone(), added);
            }
            Record::TapeAdded { tape, facts } => {
                self.tapes.insert(tape.clone(), facts.clone());
            }
            Record::TapeChanged { tape, state, fault } => {
                if let Some(tape) = self.tapes.get_mut(tape) {
                    // Whoever takes a broken tape back into use takes it as it is.
                    if tape.state == TapeState::Broken {
                        tape.synced_bytes = 0;
                    }
                    tape.state = *state;
                    tape.fault.clone_from(fault);
                }
            }
            Record::TapeRetired { tape } => {
                self.retired.insert(tape.clone());
            }
            Record::TapeReturned { tape } => {
                self.retired.remove(tape);
            }
            Record::TapeFound { tape, end_bytes } => {
                if let Some(tape) = self.tapes.get_mut(tape) {
                    tape.written_bytes = *end_bytes;
                    tape.synced_bytes = *end_bytes;
                }
            }
            Record::TapeCapacity {
                tape,
                capacity_bytes,
            } => {
                if let Some(tape) = self.tapes.get_mut(tape) {
                    tape.capacity_bytes = *capacity_bytes;
                }
            }
            Record::TapeMeasured {
                tape,
                wrap_ends_bytes,
            } => {
                if let Some(tape) = self.tapes.get_mut(tape) {
                    tape.wrap_ends_bytes = Some(wrap_ends_bytes.clone());
                }
            }
            Record::TapeFilled { tape } => {
                if let Some(tape) = self.tapes.get_mut(tape) {
                    tape.ended_bytes = Some(tape.written_bytes);
                }
            }
            Record::CopiesGivenUp { tape } => self.give_up_copies(tape),
            Record::RecallAsked { at_ns, request } => self.add_recall(*at_ns, request),
            Record::ArchiveAsked { at_ns, request } => self.add_archive(*at_ns, request),
            Record::ArchiveChanged { at_ns, request } => self.change_archive(*at_ns, request),
            Record::LeaseRenewed { request, lease_ns } => self.renew(*request, *lease_ns),
            Record::RequestSettled { request, outcome } => {
                self.settle(*request, outcome);
                self.settled.insert(*request, outcome.clone());
            }
            Record::RequestEnded { request, outcome } => {
                if let Some(outcome) = outcome {
                    self.settle(*request, outcome);
                }
                self.settled.remove(request);
            }
            Record::CopyFailed { file, tape, .. } => self.fail_copy(*file, tape),
            Record::CopyUnreadable { file, copy } => {
                self.unreadable.insert(*file, copy.clone());
            }
            Record::Care { at_ns, tape, step } => {
                self.care
                    .entry(tape.clone())
                    .or_default()
                    .take(*at_ns, step);
            }
            Record::CopyMended { file, copy } => match copy {
                Some(copy) => self.unreadable.remove(*file, copy),
                None => self.unreadable.remove_file(*file),
            },
            Record::CopyPreferred { file, tape } => self.prefer_copy(*file, tape),
            Record::RelabelBegun { at_ns, tape } => {
                self.relabeling.insert(tape.clone());
                self.relabels_ns.push_back(*at_ns);
                while self.relabels_ns.len() > RELABELS_MAX {
                    self.relabels_ns.pop_front();
                }
            }
            Record::RelabelEnded { tape } => {
                self.relabeling.remove(tape);
                self.locates.remove(tape);
                self.care.remove(tape);
                self.unreadable.remove_tape(tape);
                if let Some(tape) = self.tapes.get_mut(tape) {
                    tape.family = None;
                    tape.ended_bytes = None;
                    tape.written_bytes = 0;
                    tape.synced_bytes = 0;
                    tape.state = TapeState::Active;
                }
            }
            Record::ClassesCompared { classes } => self.compared_classes = Some(classes.clone()),
            Record::BackgroundHeld { until_ns } => self.background_held_ns = Some(*until_ns),
            Record::DataSetClosed {
                family,
                data_set,
                verdict,
            } => self.close_data_set(family, data_set, *verdict),
            Record::LibraryPaused { library, pause } => {
                self.libraries.insert(library.clone(), *pause);
            }
            Record::LibraryResumed { library } => {
                self.libraries.remove(library);
            }
            Record::WritingPaused { library, pause } => {
                self.full_libraries.insert(library.clone(), *pause);
            }
            Record::WritingResumed { library } => {
                self.full_libraries.remove(library);
            }
        }
    }

    /// Long because each record has its arm.
    fn apply_to_drive(&mut self, record: &DriveRecord) {
        match record {
            DriveRecord::MountBegun {
                at_ns,
                drive,
                tape,
                purpose,
            } => {
                if let Some(drive) = self.drives.0.get_mut(drive) {
                    drive.state = DriveState::Mounting {
                        tape: tape.clone(),
                        purpose: purpose.clone(),
                        since_ns: *at_ns,
                    };
                }
                if let MountPurpose::Archive(family) = purpose
                    && let Some(tape) = self.tapes.get_mut(tape)
                {
                    tape.family = Some(family.clone());
                }
            }
            DriveRecord::MountReady { at_ns, drive } => self.mounted(*at_ns, drive),
            DriveRecord::ReadBegun {
                drive,
                file,
                is_compared,
                ..
            } => self.begin_read(drive, *file, *is_compared),
            DriveRecord::ReadEnded {
                at_ns,
                drive,
                file,
                located_ns,
            } => self.end_read(*at_ns, drive, *file, *located_ns),
            DriveRecord::WriteBegun { drive, file, .. } => {
                self.begin_write(drive, DriveWork::Writing(*file));
            }
            DriveRecord::AggregateBegun { drive, members, .. } => {
                self.begin_write(drive, DriveWork::WritingAggregate(members.clone()));
            }
            DriveRecord::WriteEnded { at_ns, drive, .. }
            | DriveRecord::AggregateEnded { at_ns, drive } => {
                self.end_write(*at_ns, drive);
            }
            DriveRecord::SyncBegun { drive, .. } => {
                if let Some(mount) = self.mount_mut(drive) {
                    mount.work = DriveWork::Syncing;
                }
            }
            DriveRecord::SyncEnded { at_ns, drive } => self.end_sync(*at_ns, drive),
            DriveRecord::WorkReturned { at_ns, drive } => self.return_work(*at_ns, drive),
            DriveRecord::WorkGivenUp { at_ns, drive } => self.give_up_work(*at_ns, drive),
            DriveRecord::DismountBegun { at_ns, drive } => {
                if let Some(drive) = self.drives.0.get_mut(drive)
                    && let Some(tape) = drive.state.tape()
                {
                    drive.state = DriveState::Dismounting {
                        tape: tape.clone(),
                        since_ns: *at_ns,
                        purpose: drive.state.occupied_for().cloned(),
                    };
                }
            }
            DriveRecord::DriveFreed { drive, .. } => {
                if let Some(drive) = self.drives.0.get_mut(drive) {
                    drive.state = DriveState::Free;
                }
            }
            DriveRecord::DriveDown {
                drive, why, fault, ..
            } => {
                if let Some(drive) = self.drives.0.get_mut(drive) {
                    let (tape, why, fault) = (drive.state.tape().cloned(), *why, *fault);
                    drive.state = DriveState::Down { tape, why, fault };
                }
            }
            DriveRecord::DriveRemoved { drive, .. } => {
                self.drives.0.remove(drive);
            }
        }
    }

    /// The mount of a drive.
    pub fn mount(&self, drive: &DriveName) -> Option<&Mount> {
        match &self.drives.0.get(drive)?.state {
            DriveState::Mounted(mount) => Some(mount),
            DriveState::Free
            | DriveState::Mounting { .. }
            | DriveState::Dismounting { .. }
            | DriveState::Down { .. } => None,
        }
    }

    fn mount_mut(&mut self, drive: &DriveName) -> Option<&mut Mount> {
        match &mut self.drives.0.get_mut(drive)?.state {
            DriveState::Mounted(mount) => Some(mount),
            DriveState::Free
            | DriveState::Mounting { .. }
            | DriveState::Dismounting { .. }
            | DriveState::Down { .. } => None,
        }
    }

    /// Whether a tape can be read, as far as it alone is concerned.
    pub fn is_readable(&self, tape: &TapeName) -> bool {
        let state = self.tapes.get(tape).map(|tape| tape.state);
        let is_read = matches!(state, Some(TapeState::Active | TapeState::ReadOnly));
        is_read && !self.relabeling.contains(tape) && !self.retired.contains(tape)
    }

    /// Whether it can be written to.
    pub fn is_writable(&self, tape: &TapeName) -> bool {
        let state = self.tapes.get(tape).map(|tape| tape.state);
        state == Some(TapeState::Active) && self.is_readable(tape)
    }

    /// Whether background work rests.
    pub fn is_background_held(&self, now_ns: i64) -> bool {
        self.background_held_ns.is_some_and(|until| now_ns < until)
    }

    fn mounted(&mut self, at_ns: i64, name: &DriveName) {
        let Some(drive) = self.drives.0.get_mut(name) else {
            return;
        };
        if let DriveState::Mounting {
            tape,
            purpose,
            since_ns,
        } = &drive.state
        {
            let written = self.tapes.get(tape).map_or(0, |tape| tape.written_bytes);
            drive.state = DriveState::Mounted(Mount {
                head_bytes: if purpose.is_archive() { written } else { 0 },
                is_head_known: !purpose.is_archive(),
                tape: tape.clone(),
                purpose: purpose.clone(),
                since_ns: *since_ns,
                work: DriveWork::Idle { since_ns: at_ns },
                files: 0,
                unsynced: Vec::new(),
                unsynced_bytes: 0,
                unsynced_marks: 0,
                data_set: None,
            });
        }
    }

    /// Puts a file into the queue of its tape, or out of the set when nobody asks for it any more.
    fn queue(&mut self, file: FileId) {
        if self
            .recalls
            .get(&file)
            .is_some_and(|entry| entry.askers.is_empty())
        {
            self.recalls.remove(&file);
        }
        if let Some(tape) = self.recalls.get(&file).and_then(RecallEntry::tape).cloned() {
            let queue = self.queues.entry(tape.clone()).or_default();
            queue.files.insert(file);
            self.touch(&tape);
        }
    }

    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// What was summed up over the queue of a tape is old.
    fn touch(&mut self, tape: &TapeName) {
        let revision = self.next_revision();
        if let Some(queue) = self.queues.get_mut(tape) {
            queue.revision = revision;
        }
    }

    fn unqueue(&mut self, file: FileId) {
        let Some(tape) = self.recalls.get(&file).and_then(RecallEntry::tape).cloned() else {
            return;
        };
        self.touch(&tape);
        if let Some(queue) = self.queues.get_mut(&tape) {
            queue.files.remove(&file);
            if queue.files.is_empty() {
                self.queues.remove(&tape);
            }
        }
    }

    fn begin_read(&mut self, drive: &DriveName, file: FileId, is_compared: bool) {
        self.unqueue(file);
        if let Some(entry) = self.recalls.get_mut(&file) {
            entry.is_compared = is_compared;
            entry.read_by = Some(drive.clone());
        }
        if let Some(mount) = self.mount_mut(drive) {
            mount.work = DriveWork::Reading(file);
        }
    }

    fn return_work(&mut self, at_ns: i64, drive: &DriveName) {
        let Some(mount) = self.mount_mut(drive) else {
            return;
        };
        let unsynced = std::mem::take(&mut mount.unsynced);
        mount.unsynced_bytes = 0;
        mount.unsynced_marks = 0;
        let tape = mount.tape.clone();
        self.return_copies(&tape, unsynced);
        self.give_up_work(at_ns, drive);
    }

    /// What a drive does is to be done again, if somebody asks for it still. What it has written before stays.
    fn give_up_work(&mut self, at_ns: i64, drive: &DriveName) {
        let Some(mount) = self.mount_mut(drive) else {
            return;
        };
        let work = std::mem::replace(&mut mount.work, DriveWork::Idle { since_ns: at_ns });
        mount.is_head_known = false;
        let tape = mount.tape.clone();
        self.return_copies(&tape, work.members().to_vec());
        match work {
            DriveWork::Reading(file) => {
                if let Some(entry) = self.recalls.get_mut(&file) {
                    entry.read_by = None;
                }
                self.queue(file);
            }
            DriveWork::Idle { .. }
            | DriveWork::Writing(_)
            | DriveWork::WritingAggregate(_)
            | DriveWork::Syncing => {}
        }
    }

    fn renew(&mut self, request: RequestId, lease_ns: i64) {
        let asker = match self.requests.get(&request) {
            Some(RequestTarget::Recall(file)) => {
                let entry = self.recalls.get_mut(file);
                entry.and_then(|entry| entry.askers.get_mut(&request))
            }
            Some(RequestTarget::Archive(file)) => {
                let entry = self.archives.get_mut(file);
                entry.and_then(|entry| entry.askers.get_mut(&request))
            }
            None => None,
        };
        if let Some(asker) = asker {
            self.leases.remove(&(asker.lease_ns, request));
            asker.lease_ns = lease_ns;
            self.leases.insert((lease_ns, request));
        }
    }

    fn settle(&mut self, request: RequestId, outcome: &RequestOutcome) {
        self.note_verification(request, outcome);
        let is_archived = matches!(outcome, RequestOutcome::Archived(_));
        self.end(request, is_archived);
    }

    /// A request is over. A file that nobody asks for any more leaves its queue; one that a drive has stays until that is done.
    fn end(&mut self, request: RequestId, is_archived: bool) {
        let Some(target) = self.requests.remove(&request) else {
            return;
        };
        match target {
            RequestTarget::Recall(file) => {
                let Some(entry) = self.recalls.get_mut(&file) else {
                    return;
                };
                if let Some(asker) = entry.askers.remove(&request) {
                    self.leases.remove(&(asker.lease_ns, request));
                }
                entry.background.remove(&request);
                if entry.read_by.is_some() {
                    return;
                }
                let is_over = entry.askers.is_empty();
                if let Some(tape) = entry.tape().cloned() {
                    self.touch(&tape);
                }
                if is_over {
                    self.unqueue(file);
                    self.recalls.remove(&file);
                }
            }
            RequestTarget::Archive(file) => {
                self.unqueue_archive(file);
                let entry = self.archives.get_mut(&file);
                if let Some(asker) = entry.and_then(|entry| entry.askers.remove(&request)) {
                    self.leases.remove(&(asker.lease_ns, request));
                }
                if !is_archived {
                    self.leave_data_set(file);
                }
                self.queue_archive(file);
            }
        }
    }
}
