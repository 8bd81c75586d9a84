//! What is configured and what lies in drives, as it is found at a start.

use super::{Effect, Input, RequestEngine, Turnout};
use crate::drive_pool::DriveState;
use crate::record::{DriveRecord, Record, Tape};
use crate::request::{DriveName, LibraryId, LibraryName, TapeName};
use std::collections::BTreeMap;

/// All libraries that are configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    pub libraries: BTreeMap<LibraryName, LibraryId>,
    pub drives: BTreeMap<DriveName, FoundDrive>,
    /// Facts of each tape; of one that is known already only its capacity counts.
    pub tapes: BTreeMap<TapeName, Tape>,
}

/// A drive as its library has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDrive {
    pub library: LibraryName,
    pub kind: String,
    /// The tape that is in it.
    pub tape: Option<TapeName>,
}

impl RequestEngine {
    /// Takes what is configured, and what is in drives, before `resume`: what was ordered is ordered again only where it can still
    /// be done.
    pub fn take_inventory(&mut self, now_ns: i64, inventory: Inventory) -> Vec<Effect> {
        let mut out = Turnout::default();
        self.forget_pauses(&inventory, &mut out);
        for (library, id) in inventory.libraries {
            if self.live.library_ids.get(&library) != Some(&id) {
                self.keep(&mut out, Record::LibraryKnown { library, id });
            }
        }
        let drives = self.live.drives.0.iter();
        let gone = drives.filter(|(drive, known)| {
            let found = inventory.drives.get(*drive);
            found.is_none_or(|found| found.library != known.library || found.kind != known.kind)
        });
        for drive in gone.map(|(drive, _)| drive.clone()).collect::<Vec<_>>() {
            self.return_work(now_ns, &drive, &mut out);
            let at_ns = now_ns;
            self.keep(&mut out, DriveRecord::DriveRemoved { at_ns, drive });
        }
        for (drive, found) in inventory.drives {
            self.find_drive(now_ns, drive, found, &mut out);
        }
        let tapes = self.live.tapes.keys();
        let gone = tapes.filter(|tape| {
            !inventory.tapes.contains_key(*tape) && !self.live.retired.contains(*tape)
        });
        for tape in gone.cloned().collect::<Vec<_>>() {
            self.retire_tape(&tape, &mut out);
        }
        for (tape, facts) in inventory.tapes {
            if self.live.retired.contains(&tape) {
                let tape = tape.clone();
                self.keep(&mut out, Record::TapeReturned { tape });
            }
            let (capacity_bytes, known) = (facts.capacity_bytes, self.live.tapes.get(&tape));
            if known.is_some_and(|known| known.capacity_bytes != capacity_bytes) {
                let tape = tape.clone();
                let changed = Record::TapeCapacity {
                    tape,
                    capacity_bytes,
                };
                self.keep(&mut out, changed);
            }
            self.take(now_ns, Input::TapeAdded { tape, facts }, &mut out);
        }
        self.leave_retired(now_ns, &mut out);
        out.all()
    }

    /// Nobody waits for a library that is no longer configured.
    fn forget_pauses(&mut self, inventory: &Inventory, out: &mut Turnout) {
        let is_gone = |library: &&LibraryName| !inventory.libraries.contains_key(*library);
        let paused = self.live.libraries.keys().filter(is_gone);
        let paused: Vec<LibraryName> = paused.cloned().collect();
        for library in paused {
            self.keep(out, Record::LibraryResumed { library });
        }
        let full = self.live.full_libraries.keys().filter(is_gone);
        let full: Vec<LibraryName> = full.cloned().collect();
        for library in full {
            self.keep(out, Record::WritingResumed { library });
        }
    }

    /// A tape that was on its way into a drive when it was retired is not used there. `resume` orders what is recorded here.
    fn leave_retired(&mut self, now_ns: i64, out: &mut Turnout) {
        let drives = self.live.drives.0.iter();
        let coming = drives.filter(|(_, drive)| match &drive.state {
            DriveState::Mounting { tape, .. } => self.live.retired.contains(tape),
            DriveState::Free
            | DriveState::Mounted(_)
            | DriveState::Dismounting { .. }
            | DriveState::Down { .. } => false,
        });
        for drive in coming.map(|(drive, _)| drive.clone()).collect::<Vec<_>>() {
            let at_ns = now_ns;
            self.keep(out, DriveRecord::DismountBegun { at_ns, drive });
        }
    }

    /// A drive that is configured. One that holds another tape than was recorded, or none, is free: its library has put the others
    /// back into their slots.
    fn find_drive(&mut self, now_ns: i64, drive: DriveName, found: FoundDrive, out: &mut Turnout) {
        let FoundDrive {
            library,
            kind,
            tape: in_it,
        } = found;
        let down = match self.state(&drive) {
            Some(DriveState::Mounted(mount)) if in_it.as_ref() != Some(&mount.tape) => None,
            Some(DriveState::Down { tape, why, fault }) if tape.is_some() && *tape != in_it => {
                Some((*why, *fault))
            }
            // A mount that was ordered may not have begun, and a dismount may have ended.
            Some(
                DriveState::Free
                | DriveState::Mounted(_)
                | DriveState::Mounting { .. }
                | DriveState::Dismounting { .. }
                | DriveState::Down { .. },
            )
            | None => {
                let added = Input::DriveAdded {
                    drive,
                    library,
                    kind,
                };
                return self.take(now_ns, added, out);
            }
        };
        self.return_work(now_ns, &drive, out);
        let (at_ns, freed) = (now_ns, drive.clone());
        let freed = DriveRecord::DriveFreed {
            at_ns,
            drive: freed,
        };
        self.keep(out, freed);
        if let Some((why, fault)) = down {
            let down = DriveRecord::DriveDown {
                at_ns,
                drive,
                why,
                fault,
            };
            self.keep(out, down);
        }
    }
}
