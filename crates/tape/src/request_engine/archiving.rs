//! Files from disk to tape. A file is on tape only when the sync that covers it has returned.

use super::{Effect, RequestEngine, Turnout};
use crate::drive_pool::{DriveWork, MountPurpose};
use crate::live_set::{ArchiveStage, RequestTarget};
use crate::record::Record;
use crate::request::{DriveName, FamilyName, FileId, RequestOutcome, TapeCopy, TapeName};

impl RequestEngine {
    /// Orders the next write or sync; without one the drive stays idle.
    pub(super) fn write_next(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) -> bool {
        let Some(mount) = self.live.mount(drive) else {
            return false;
        };
        let is_full = mount.unsynced_bytes >= self.policy.sync_bytes
            || mount.unsynced.len() >= self.policy.sync_files;
        let has_unsynced = !mount.unsynced.is_empty();
        let next = match &mount.purpose {
            MountPurpose::Archive(family) if self.live.is_active(&mount.tape) => {
                self.fitting(family, &mount.tape)
            }
            _ => None,
        };
        match next {
            Some(file) if !is_full => {
                let begun = Record::WriteBegun {
                    drive: drive.clone(),
                    file,
                };
                self.keep(out, begun);
                out.effects.extend(self.write_effect(drive, file));
            }
            _ if has_unsynced => {
                self.keep(
                    out,
                    Record::SyncBegun {
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

    /// The oldest file of a family, if it fits on the tape. A tape on which it does not fit is full.
    fn fitting(&self, family: &FamilyName, tape: &TapeName) -> Option<FileId> {
        let (_, file) = self.live.families.get(family)?.first()?;
        let size = self.live.archives.get(file)?.size_bytes;
        let tape = self.live.tapes.get(tape)?;
        let free = tape.capacity_bytes.saturating_sub(tape.written_bytes);
        (size <= free).then_some(*file)
    }

    pub(super) fn file_written(
        &mut self,
        now_ns: i64,
        drive: &DriveName,
        file: FileId,
        out: &mut Turnout,
    ) {
        if self.work_of(drive) == Some(&DriveWork::Writing(file)) {
            let drive = drive.clone();
            self.keep(
                out,
                Record::WriteEnded {
                    at_ns: now_ns,
                    drive,
                    file,
                },
            );
        }
    }

    /// The tape is at its end, sooner than its capacity said.
    pub(super) fn tape_full(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) {
        let Some(mount) = self.live.mount(drive) else {
            return;
        };
        if !matches!(mount.work, DriveWork::Writing(_)) {
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
        for file in mount.unsynced.clone() {
            let stage = self.live.archives.get(&file).map(|entry| entry.stage);
            let Some(ArchiveStage::Unsynced { begin_bytes }) = stage else {
                continue;
            };
            for request in self.askers_of(RequestTarget::Archive(file)) {
                let copy = TapeCopy {
                    tape: tape.clone(),
                    begin_bytes,
                };
                self.end(out, request, RequestOutcome::Archived(copy));
            }
        }
        let drive = drive.clone();
        self.keep(
            out,
            Record::SyncEnded {
                at_ns: now_ns,
                drive,
            },
        );
    }

    /// The tape that a family is written to next, if one can be in a library that is not paused: the fullest of its own on which its
    /// oldest file fits, else a new one.
    pub(super) fn writable_tape(&self, family: &FamilyName) -> Option<TapeName> {
        let (_, file) = self.live.families.get(family)?.first()?;
        let size = self.live.archives.get(file)?.size_bytes;
        let in_drives = self.live.drives.tapes();
        let fits = self.live.tapes.iter().filter(|(name, tape)| {
            let is_its = tape.family.as_ref().is_none_or(|of| of == family);
            let free = tape.capacity_bytes.saturating_sub(tape.written_bytes);
            is_its
                && free >= size
                && self.live.is_active(name)
                && !in_drives.contains(name)
                && (tape.family.is_some() || tape.written_bytes == 0)
        });
        let best = fits.max_by_key(|(name, tape)| {
            let is_its = tape.family.is_some();
            let is_paused = self.live.libraries.contains_key(&tape.library);
            (
                !is_paused,
                is_its,
                tape.written_bytes,
                std::cmp::Reverse(*name),
            )
        });
        best.map(|(name, _)| name.clone())
    }
}
