//! Locates as drives have made them, by the tape: what calibration is made of.

use super::LiveSet;
use crate::calibration::ObservedLocate;
use crate::drive_pool::DriveWork;
use crate::request::{DriveName, FileId, TapeName};

/// The newest locates of a tape that are kept, when its wraps are not known and when they are.
const LOCATES_MAX: usize = 256;
const LOCATES_MEASURED_MAX: usize = 64;

impl LiveSet {
    pub(super) fn end_read(
        &mut self,
        at_ns: i64,
        drive: &DriveName,
        file: FileId,
        located_ns: Option<i64>,
    ) {
        let entry = self.recalls.get_mut(&file);
        let (begin, end) = entry.map_or((None, None), |entry| {
            entry.read_by = None;
            let begin = entry.copies.first().map(|copy| copy.begin_bytes);
            (begin, entry.end_bytes())
        });
        // Who came while it was only compared still wants it.
        self.queue(file);
        let Some(mount) = self.mount_mut(drive) else {
            return;
        };
        let from_bytes = mount.head_bytes;
        let is_from_known = std::mem::replace(&mut mount.is_head_known, true);
        mount.work = DriveWork::Idle { since_ns: at_ns };
        mount.files += 1;
        mount.head_bytes = end.unwrap_or(mount.head_bytes);
        let tape = mount.tape.clone();
        self.last_reads.insert(tape.clone(), at_ns);
        if let (Some(took_ns), Some(to_bytes), true) = (located_ns, begin, is_from_known)
            && to_bytes != from_bytes
        {
            let located = ObservedLocate {
                from_bytes,
                to_bytes,
                took_ns,
            };
            self.add_locate(tape, located);
        }
    }

    fn add_locate(&mut self, tape: TapeName, located: ObservedLocate) {
        let facts = self.tapes.get(&tape);
        let is_measured = facts.is_some_and(|facts| facts.wrap_ends_bytes.is_some());
        let most = match is_measured {
            true => LOCATES_MEASURED_MAX,
            false => LOCATES_MAX,
        };
        let locates = self.locates.entry(tape).or_default();
        while locates.len() >= most {
            locates.pop_front();
        }
        locates.push_back(located);
    }
}
