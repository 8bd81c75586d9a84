//! Whether a drive, a library or a tape may be stopped: what would wait for it, and which files can then be read nowhere else.
//!
//! Pure. What is asked for comes from the live set; which files lie on tape, asked for or not, only the namespace knows: it is
//! given as a catalogue.

use crate::drive_pool::{Drive, DriveState, DriveWork};
use crate::live_set::{ArchiveGroup, LiveSet};
use crate::record::Tape;
use crate::request::{DriveName, FamilyName, FileId, LibraryName, TapeCopy, TapeName};
use serde::Serialize;
use std::collections::BTreeSet;

/// What would be stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopTarget {
    Drive(DriveName),
    Library(LibraryName),
    Tape(TapeName),
}

/// A file on tape, as the namespace knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CataloguedFile {
    pub file: FileId,
    pub size_bytes: u64,
    pub copies: Vec<TapeCopy>,
}

/// Names that are listed in a reason, at most; counts are of all.
const NAMED_MAX: usize = 20;

/// What a stop would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum StopReason {
    /// Nothing of this name is known.
    Unknown,
    /// Files that are asked for could be read nowhere else.
    RecallsWait {
        files: u64,
        bytes: u64,
        /// The first of their tapes.
        tapes: BTreeSet<TapeName>,
    },
    /// Files of a family could be written nowhere else.
    ArchivesWait { family: FamilyName, files: u64 },
    /// Files on tape, asked for or not, without another copy that can be read.
    NoOtherCopy {
        files: u64,
        bytes: u64,
        /// The first of them.
        first: Vec<FileId>,
    },
    /// A drive would be stopped in the middle; what it does and has not synced is done again elsewhere.
    WorkDoneAgain {
        drive: DriveName,
        reading: Option<FileId>,
        unsynced_files: u64,
        unsynced_bytes: u64,
    },
}

impl StopReason {
    /// Whether it speaks against the stop. Work that is done again only costs time.
    pub fn is_against(&self) -> bool {
        match self {
            StopReason::Unknown
            | StopReason::RecallsWait { .. }
            | StopReason::ArchivesWait { .. }
            | StopReason::NoOtherCopy { .. } => true,
            StopReason::WorkDoneAgain { .. } => false,
        }
    }
}

/// The answer, with all that a stop would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StopAnswer {
    pub is_ok: bool,
    pub because: Vec<StopReason>,
}

/// Whether something may be stopped. Of a drive it is assumed that its tape is taken out.
pub fn ok_to_stop(
    live: &LiveSet,
    target: &StopTarget,
    catalogue: impl IntoIterator<Item = CataloguedFile>,
) -> StopAnswer {
    let rest = Rest { live, target };
    let mut because = Vec::new();
    if !rest.is_known() {
        because.push(StopReason::Unknown);
    }
    because.extend(rest.recalls_wait());
    because.extend(rest.archives_wait());
    because.extend(rest.no_other_copy(catalogue));
    because.extend(rest.work_done_again());
    StopAnswer {
        is_ok: !because.iter().any(StopReason::is_against),
        because,
    }
}

/// A site without what is stopped.
struct Rest<'a> {
    live: &'a LiveSet,
    target: &'a StopTarget,
}

impl Rest<'_> {
    fn is_known(&self) -> bool {
        match self.target {
            StopTarget::Drive(drive) => self.live.drives.0.contains_key(drive),
            StopTarget::Tape(tape) => self.live.tapes.contains_key(tape),
            StopTarget::Library(library) => {
                let mut drives = self.live.drives.0.values();
                let mut tapes = self.live.tapes.values();
                drives.any(|drive| drive.library == *library)
                    || tapes.any(|tape| tape.library == *library)
            }
        }
    }

    fn is_drive_stopped(&self, name: &DriveName, drive: &Drive) -> bool {
        match self.target {
            StopTarget::Drive(stopped) => stopped == name,
            StopTarget::Library(library) => *library == drive.library,
            StopTarget::Tape(_) => false,
        }
    }

    /// Whether a tape needs what is stopped: it is that, lies in it, or may be read by that drive.
    fn is_concerned(&self, name: &TapeName, tape: &Tape) -> bool {
        match self.target {
            StopTarget::Tape(stopped) => stopped == name,
            StopTarget::Library(library) => *library == tape.library,
            StopTarget::Drive(drive) => {
                let drive = self.live.drives.0.get(drive);
                drive.is_some_and(|drive| drive.class() == tape.class())
            }
        }
    }

    /// Whether a tape can be used without what is stopped.
    fn is_usable(&self, name: &TapeName, tape: &Tape) -> bool {
        let is_stopped = match self.target {
            StopTarget::Tape(stopped) => stopped == name,
            StopTarget::Library(library) => *library == tape.library,
            StopTarget::Drive(_) => false,
        };
        let holder = self.live.drives.drive_of(name);
        let is_stuck = holder.is_some_and(|(holder, drive)| {
            matches!(drive.state, DriveState::Down { .. }) && !self.is_drive_stopped(holder, drive)
        });
        let class = tape.class();
        let mut drives = self.live.drives.0.iter();
        !is_stopped
            && !is_stuck
            && self.live.is_readable(name)
            && !self.live.libraries.contains_key(&tape.library)
            && drives.any(|(name, drive)| {
                drive.class() == class
                    && !matches!(drive.state, DriveState::Down { .. })
                    && !self.is_drive_stopped(name, drive)
            })
    }

    /// Whether of these copies one needs what is stopped, and none can be read without it.
    fn is_lost(&self, copies: &[TapeCopy]) -> bool {
        let known = |copy: &&TapeCopy| self.live.tapes.contains_key(&copy.tape);
        let known = || copies.iter().filter(known);
        let tapes =
            || known().filter_map(|copy| Some((&copy.tape, self.live.tapes.get(&copy.tape)?)));
        tapes().any(|(name, tape)| self.is_concerned(name, tape))
            && !tapes().any(|(name, tape)| self.is_usable(name, tape))
    }

    fn recalls_wait(&self) -> Option<StopReason> {
        let (mut files, mut bytes, mut tapes) = (0, 0_u64, BTreeSet::new());
        let entries = self.live.recalls.values();
        for entry in entries.filter(|entry| self.is_lost(&entry.copies)) {
            files += 1;
            bytes = bytes.saturating_add(entry.size_bytes);
            if tapes.len() < NAMED_MAX {
                tapes.extend(entry.tape().cloned());
            }
        }
        (files > 0).then_some(StopReason::RecallsWait {
            files,
            bytes,
            tapes,
        })
    }

    fn archives_wait(&self) -> Vec<StopReason> {
        let families = self.live.families.iter();
        let waiting = families.filter_map(|(family, groups)| {
            let waits = |group: &ArchiveGroup| {
                let writable = || {
                    let tapes = self.live.tapes.iter();
                    tapes.filter(|(_, tape)| {
                        let is_new = tape.family.is_none() && tape.written_bytes == 0;
                        let is_its = tape.family.as_ref() == Some(family);
                        (is_new || is_its)
                            && tape.free_bytes() > 0
                            && !group.taken.contains(&tape.library)
                    })
                };
                // Each missing copy needs a library of its own.
                let usable = writable().filter(|(name, tape)| self.is_usable(name, tape));
                let libraries: BTreeSet<&LibraryName> =
                    usable.map(|(_, tape)| &tape.library).collect();
                writable().any(|(name, tape)| self.is_concerned(name, tape))
                    && libraries.len() < group.missing as usize
            };
            let waiting = groups.iter().filter(|(group, _)| waits(group));
            let files: usize = waiting.map(|(_, queue)| queue.files.len()).sum();
            (files > 0).then(|| StopReason::ArchivesWait {
                family: family.clone(),
                files: files as u64,
            })
        });
        waiting.collect()
    }

    fn no_other_copy(
        &self,
        catalogue: impl IntoIterator<Item = CataloguedFile>,
    ) -> Option<StopReason> {
        let (mut files, mut bytes, mut first) = (0, 0_u64, Vec::new());
        for one in catalogue {
            if self.is_lost(&one.copies) {
                files += 1;
                bytes = bytes.saturating_add(one.size_bytes);
                if first.len() < NAMED_MAX {
                    first.push(one.file);
                }
            }
        }
        (files > 0).then_some(StopReason::NoOtherCopy {
            files,
            bytes,
            first,
        })
    }

    fn work_done_again(&self) -> Vec<StopReason> {
        let drives = self.live.drives.0.iter();
        let stopped = drives.filter(|(name, drive)| {
            let is_holder = match self.target {
                StopTarget::Tape(tape) => drive.state.tape() == Some(tape),
                StopTarget::Drive(_) | StopTarget::Library(_) => false,
            };
            is_holder || self.is_drive_stopped(name, drive)
        });
        let working = stopped.filter_map(|(name, drive)| {
            let DriveState::Mounted(mount) = &drive.state else {
                return None;
            };
            let reading = match mount.work {
                DriveWork::Reading(file) => Some(file),
                DriveWork::Idle { .. }
                | DriveWork::Writing(_)
                | DriveWork::WritingAggregate(_)
                | DriveWork::Syncing => None,
            };
            let is_working = !matches!(mount.work, DriveWork::Idle { .. });
            (is_working || !mount.unsynced.is_empty()).then(|| StopReason::WorkDoneAgain {
                drive: name.clone(),
                reading,
                unsynced_files: mount.unsynced.len() as u64,
                unsynced_bytes: mount.unsynced_bytes,
            })
        });
        working.collect()
    }
}

#[cfg(test)]
mod tests;
