//! Why files wait for a tape, for people: from what was decided last, and from the state of tapes, drives and libraries.

use super::RequestEngine;
use crate::drive_pool::{DriveClass, DriveState, MountPurpose};
use crate::mount_decision::{MountDecision, MountTarget, MountWait};
use crate::request::{DriveName, FamilyName, TapeName, VoName};
use std::collections::BTreeMap;

/// What the files of a tape, or of a family, wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueWait {
    /// Their tape is out of use.
    TapeNotInUse,
    /// Their tape is in a drive that is down.
    DriveDown(DriveName),
    /// Their library does not work, and is tried again then.
    LibraryPaused { probe_ns: i64 },
    /// Their library has no room for more data, and is tried again then.
    LibraryFull { probe_ns: i64 },
    /// No drive that takes their tape works.
    NoDrive,
    /// Nobody waits for any of them, and such work rests until then.
    BackgroundHeld { until_ns: i64 },
    /// Nobody waits for any of them, and so many drives do such work already.
    BackgroundBusy { max: u32 },
    /// They wait for others of their data set, or until they fill an aggregate, until then at most.
    Collecting { until_ns: i64 },
    /// Each tape that has room for them is in a drive already.
    TapesInDrives,
    /// No tape is left on which they can be written.
    NoTapeLeft,
    /// No drive was given to them.
    Mount { wait: MountWait, vo: VoName },
    /// All drives that could take their tape are in use.
    NoFreeDrive,
}

impl RequestEngine {
    /// What files wait for that are to be read, by tape. Tapes that are in a drive or on their way are left out, and those that are
    /// decided about next.
    pub fn recall_waits(&self, now_ns: i64) -> BTreeMap<TapeName, QueueWait> {
        let mut decided = BTreeMap::new();
        for one in &self.decided {
            if let MountTarget::Recall(tape) = &one.target {
                decided.insert(tape, one);
            }
        }
        let tapes = self.live.queues.keys();
        let waits = tapes.filter_map(|tape| {
            let wait = self.recall_wait(now_ns, tape, decided.get(tape).copied())?;
            Some((tape.clone(), wait))
        });
        waits.collect()
    }

    fn recall_wait(
        &self,
        now_ns: i64,
        tape: &TapeName,
        decided: Option<&MountDecision>,
    ) -> Option<QueueWait> {
        match self.live.drives.drive_of(tape) {
            Some((name, drive)) => match drive.state {
                DriveState::Down { .. } => return Some(QueueWait::DriveDown(name.clone())),
                DriveState::Free
                | DriveState::Mounting { .. }
                | DriveState::Mounted(_)
                | DriveState::Dismounting { .. } => return None,
            },
            None if !self.live.is_readable(tape) => return Some(QueueWait::TapeNotInUse),
            None => {}
        }
        let class = self.live.tapes.get(tape)?.class();
        if let Some(wait) = self.class_wait(&class) {
            return Some(wait);
        }
        if self.sums.get(tape).is_some_and(|sum| sum.is_background) && decided.is_none() {
            return Some(match self.live.background_held_ns {
                Some(until_ns) if until_ns > now_ns => QueueWait::BackgroundHeld { until_ns },
                Some(_) | None => self.background_busy(),
            });
        }
        self.decided_wait(decided, &class)
    }

    /// What files wait for that are to be written, by family. A family that is decided about next is left out, and one that is
    /// written already, unless it may not have another drive.
    pub fn archive_waits(&self) -> BTreeMap<FamilyName, QueueWait> {
        let families = self.live.families.keys();
        let waits = families.filter_map(|family| {
            let wait = self.archive_wait(family)?;
            Some((family.clone(), wait))
        });
        waits.collect()
    }

    fn archive_wait(&self, family: &FamilyName) -> Option<QueueWait> {
        if self.without_tape.contains(family) {
            return Some(QueueWait::NoTapeLeft);
        }
        let of_family = self
            .decided
            .iter()
            .filter(|one| matches!(&one.target, MountTarget::Archive(other, _) if other == family));
        let decided = of_family.max_by_key(|one| one.choice.is_err());
        let drives = self.live.drives.0.values();
        let is_written = drives
            .filter_map(|drive| drive.state.purpose())
            .any(|purpose| matches!(purpose, MountPurpose::Archive(other) if other == family));
        match decided {
            Some(one) => self.decided_wait(Some(one), &one.class),
            None if is_written => None,
            None => {
                let held = self.held.get(family).cloned();
                held.or_else(|| self.paused_or_busy())
            }
        }
    }

    /// A family about which nothing was decided: a library is paused, or nothing could be decided because all drives are in use.
    fn paused_or_busy(&self) -> Option<QueueWait> {
        if let Some(pause) = self.live.libraries.values().next() {
            let probe_ns = pause.probe_ns;
            return Some(QueueWait::LibraryPaused { probe_ns });
        }
        if let Some(pause) = self.live.full_libraries.values().next() {
            let probe_ns = pause.probe_ns;
            return Some(QueueWait::LibraryFull { probe_ns });
        }
        let mut drives = self.live.drives.0.values();
        if drives.all(|drive| matches!(drive.state, DriveState::Down { .. })) {
            return Some(QueueWait::NoDrive);
        }
        let is_free = !self.live.drives.free().is_empty();
        (!is_free).then_some(QueueWait::NoFreeDrive)
    }

    fn background_busy(&self) -> QueueWait {
        QueueWait::BackgroundBusy {
            max: self.policy.background_drives_max,
        }
    }

    /// What keeps all tapes of a class out of drives.
    fn class_wait(&self, class: &DriveClass) -> Option<QueueWait> {
        if let Some(pause) = self.live.libraries.get(&class.library) {
            let probe_ns = pause.probe_ns;
            return Some(QueueWait::LibraryPaused { probe_ns });
        }
        let drives = self.live.drives.0.values();
        let mut of_class = drives
            .filter(|drive| drive.library == class.library && drive.kind == class.kind)
            .filter(|drive| !matches!(drive.state, DriveState::Down { .. }));
        of_class.next().is_none().then_some(QueueWait::NoDrive)
    }

    fn decided_wait(
        &self,
        decided: Option<&MountDecision>,
        class: &DriveClass,
    ) -> Option<QueueWait> {
        match decided.map(|one| (&one.choice, &one.vo)) {
            Some((Err(MountWait::NoFreeDrive), _)) => Some(QueueWait::NoFreeDrive),
            Some((Err(MountWait::BackgroundBusy), _)) => Some(self.background_busy()),
            Some((Err(wait), vo)) => Some(QueueWait::Mount {
                wait: *wait,
                vo: vo.clone(),
            }),
            // It was given a drive then; if it has none, it is decided about anew.
            Some((Ok(_), _)) => None,
            None => {
                let is_free = self.live.drives.free().contains_key(class);
                (!is_free).then_some(QueueWait::NoFreeDrive)
            }
        }
    }
}
