//! What is configured and what lies in drives, as it is found at a start.

use super::{Effect, Input, RequestEngine, Turnout};
use crate::drive_pool::DriveState;
use crate::record::{Record, Tape};
use crate::request::{DriveName, LibraryId, LibraryName, TapeName};
use std::collections::BTreeMap;

/// All libraries that are configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    pub libraries: BTreeMap<LibraryName, LibraryId>,
    pub drives: BTreeMap<DriveName, FoundDrive>,
    /// Facts of each tape; of one that is known already its own count.
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
        for (library, id) in inventory.libraries {
            if self.live.library_ids.get(&library) != Some(&id) {
                self.keep(&mut out, Record::LibraryKnown { library, id });
            }
        }
        for (drive, found) in inventory.drives {
            self.find_drive(now_ns, drive, found, &mut out);
        }
        for (tape, facts) in inventory.tapes {
            self.take(now_ns, Input::TapeAdded { tape, facts }, &mut out);
        }
        out.all()
    }

    fn find_drive(&mut self, now_ns: i64, drive: DriveName, found: FoundDrive, out: &mut Turnout) {
        let FoundDrive {
            library,
            kind,
            tape: in_it,
        } = found;
        let is_away = match self.state(&drive) {
            // A mount that was ordered may not have begun.
            Some(DriveState::Mounted(mount)) => in_it.as_ref() != Some(&mount.tape),
            Some(
                DriveState::Free
                | DriveState::Mounting { .. }
                | DriveState::Dismounting { .. }
                | DriveState::Down { .. },
            )
            | None => false,
        };
        if is_away {
            self.return_work(now_ns, &drive, out);
            let (at_ns, drive) = (now_ns, drive.clone());
            self.keep(out, Record::DriveFreed { at_ns, drive });
        }
        let added = Input::DriveAdded {
            drive,
            library,
            kind,
        };
        self.take(now_ns, added, out);
    }
}
