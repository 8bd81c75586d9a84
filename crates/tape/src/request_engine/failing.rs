//! What fails, and what that concerns: a file, a tape, a drive or a library. Whatever is not concerned goes on.

use super::{Effect, RequestEngine, TapeIncident, Turnout};
use crate::drive_pool::{DownReason, DriveFault, DriveState, DriveWork};
use crate::live_set::{LibraryPause, RecallEntry, RequestTarget};
use crate::record::{DriveRecord, Record, TapeFault, TapeFinding, TapeState};
use crate::request::{DriveName, FileId, LibraryName, RequestOutcome, TapeErrorScope, TapeName};
use crate::tape_care::UnreadableCopy;

impl RequestEngine {
    pub(super) fn failed(
        &mut self,
        now_ns: i64,
        drive: &DriveName,
        scope: TapeErrorScope,
        out: &mut Turnout,
    ) {
        let work = self.work_of(drive).cloned();
        match scope {
            // Of an aggregate `NotTaken` names the file; without a name the drive is not trusted.
            TapeErrorScope::File if matches!(work, Some(DriveWork::WritingAggregate(_))) => {
                self.drive_failed(now_ns, drive, out);
            }
            TapeErrorScope::File => self.file_failed(now_ns, drive, work, out),
            TapeErrorScope::Tape => {
                let activity = self.state(drive).and_then(DriveState::activity);
                let finding = activity.map(TapeFinding::Error);
                self.tape_failed(now_ns, drive, finding, out);
            }
            TapeErrorScope::Drive => self.drive_failed(now_ns, drive, out),
            TapeErrorScope::Library => self.library_failed(now_ns, drive, out),
        }
        self.is_decision_due = true;
    }

    /// The tape in a drive is of no use any more.
    pub(super) fn tape_failed(
        &mut self,
        now_ns: i64,
        drive: &DriveName,
        finding: Option<TapeFinding>,
        out: &mut Turnout,
    ) {
        let tape = self.state(drive).and_then(DriveState::tape).cloned();
        self.return_work(now_ns, drive, out);
        if let Some(tape) = tape {
            let drive = drive.clone();
            let fault = finding.map(|finding| TapeFault { drive, finding });
            self.change_tape(&tape, (TapeState::Broken, fault), out);
        }
        self.dismount(now_ns, drive, out);
        self.is_decision_due = true;
    }

    pub(super) fn return_work(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) {
        if self.live.mount(drive).is_some() {
            let drive = drive.clone();
            self.keep(
                out,
                DriveRecord::WorkReturned {
                    at_ns: now_ns,
                    drive,
                },
            );
        }
    }

    fn file_failed(
        &mut self,
        now_ns: i64,
        drive: &DriveName,
        work: Option<DriveWork>,
        out: &mut Turnout,
    ) {
        let tape = self.live.mount(drive).map(|mount| mount.tape.clone());
        // Files that were written before it and are not safe are written again.
        self.return_work(now_ns, drive, out);
        match (work, tape) {
            (Some(DriveWork::Reading(file)), Some(tape)) => {
                self.fail_copy(file, &tape, TapeErrorScope::File, out);
            }
            (Some(DriveWork::Writing(file)), _) => {
                let outcome = RequestOutcome::NoCopyLeft(TapeErrorScope::File);
                for request in self.askers_of(RequestTarget::Archive(file)) {
                    self.end(out, request, outcome.clone());
                }
            }
            _ => {}
        }
    }

    /// The disk could not take or give a file, which is no fault of tape or drive: its requests end, and the drive goes on.
    pub(super) fn not_taken(
        &mut self,
        now_ns: i64,
        drive: &DriveName,
        file: FileId,
        out: &mut Turnout,
    ) {
        let target = match self.work_of(drive) {
            Some(DriveWork::Reading(of)) if *of == file => RequestTarget::Recall(file),
            Some(work) if work.members().contains(&file) => RequestTarget::Archive(file),
            _ => return,
        };
        for request in self.askers_of(target) {
            self.end(out, request, RequestOutcome::NotTaken);
        }
        let given_up = DriveRecord::WorkGivenUp {
            at_ns: now_ns,
            drive: drive.clone(),
        };
        self.keep(out, given_up);
        // The head may be anywhere: the order is found anew.
        self.orders.remove(drive);
        self.is_decision_due = true;
    }

    /// The pauses of libraries end now.
    pub(super) fn retry_libraries(&mut self, now_ns: i64, out: &mut Turnout) {
        let due = |(library, pause): (&LibraryName, &LibraryPause)| {
            let probe_ns = now_ns;
            (library.clone(), LibraryPause { probe_ns, ..*pause })
        };
        let paused: Vec<_> = self.live.libraries.iter().map(due).collect();
        for (library, pause) in paused {
            self.keep(out, Record::LibraryPaused { library, pause });
        }
        let full: Vec<_> = self.live.full_libraries.iter().map(due).collect();
        for (library, pause) in full {
            self.keep(out, Record::WritingPaused { library, pause });
        }
        self.is_decision_due = true;
    }

    /// Passes over to another copy, or ends the requests when there is none.
    fn fail_copy(
        &mut self,
        file: FileId,
        tape: &TapeName,
        scope: TapeErrorScope,
        out: &mut Turnout,
    ) {
        if scope == TapeErrorScope::File {
            self.note_unreadable(file, tape, out);
        }
        // The copy is not as it was written: that is what they wanted to know.
        let entry = self.live.recalls.get(&file);
        for request in entry.map_or_else(Vec::new, RecallEntry::verifiers) {
            self.end(out, request, RequestOutcome::NoCopyLeft(scope));
        }
        let tape = tape.clone();
        self.keep(out, Record::CopyFailed { file, tape, scope });
        let entry = self.live.recalls.get(&file);
        if entry.is_some_and(|entry| entry.copies.is_empty()) {
            for request in self.askers_of(RequestTarget::Recall(file)) {
                self.end(out, request, RequestOutcome::NoCopyLeft(scope));
            }
        }
    }

    /// The first one of a tape is an incident.
    fn note_unreadable(&mut self, file: FileId, tape: &TapeName, out: &mut Turnout) {
        let entry = self.live.recalls.get(&file);
        let copies = entry.map_or(&[][..], |entry| &entry.copies);
        let Some(copy) = copies.iter().find(|copy| copy.tape == *tape) else {
            return;
        };
        let copy = UnreadableCopy::of(copy);
        if !self.live.has_unreadable(tape) {
            let incident = TapeIncident::FilesUnreadable(tape.clone());
            out.effects.push(Effect::Open(incident));
        }
        self.keep(out, Record::CopyUnreadable { file, copy });
    }

    /// A copy that could not be read can be, or is needed no more.
    pub(super) fn mend_copy(&mut self, file: FileId, copy: UnreadableCopy, out: &mut Turnout) {
        if !self.live.unreadable.of(file).any(|known| *known == copy) {
            return;
        }
        let tape = copy.tape.clone();
        let copy = Some(copy);
        self.keep(out, Record::CopyMended { file, copy });
        if !self.live.has_unreadable(&tape) {
            let incident = TapeIncident::FilesUnreadable(tape);
            out.effects.push(Effect::Close(incident));
        }
    }

    /// A tape is used or not. Of a broken one each file goes to its other copy; of a disabled one those that have another.
    pub(super) fn change_tape(
        &mut self,
        tape: &TapeName,
        (state, fault): (TapeState, Option<TapeFault>),
        out: &mut Turnout,
    ) {
        let before = self.live.tapes.get(tape).map(|tape| tape.state);
        if before.is_none_or(|before| before == state) {
            return;
        }
        let changed = Record::TapeChanged {
            tape: tape.clone(),
            state,
            fault,
        };
        self.keep(out, changed);
        self.is_decision_due = true;
        match (state, before) {
            (TapeState::Active | TapeState::ReadOnly, Some(TapeState::Broken)) => {
                out.effects
                    .push(Effect::Close(TapeIncident::TapeBroken(tape.clone())));
            }
            (TapeState::Active | TapeState::ReadOnly, _) => {}
            (TapeState::Disabled | TapeState::Broken, _) => {
                let is_broken = state == TapeState::Broken;
                if is_broken {
                    out.effects
                        .push(Effect::Open(TapeIncident::TapeBroken(tape.clone())));
                    self.give_up_copies(tape, out);
                }
                for (file, has_other) in self.queued_on(tape) {
                    if is_broken || has_other {
                        self.fail_copy(file, tape, TapeErrorScope::Tape, out);
                    }
                }
            }
        }
    }

    /// Files that are to be read from a tape, and whether each has another copy.
    fn queued_on(&self, tape: &TapeName) -> Vec<(FileId, bool)> {
        let queued = self.live.queues.get(tape).map(|queue| &queue.files);
        let files = queued.into_iter().flatten().map(|file| {
            let entry = self.live.recalls.get(file);
            let has_other = entry.is_some_and(|entry| entry.copies.len() > 1);
            (*file, has_other)
        });
        files.collect()
    }

    /// A tape is no longer configured: its files go to their other copies, and those without one are told so.
    pub(super) fn retire_tape(&mut self, tape: &TapeName, out: &mut Turnout) {
        let retired = Record::TapeRetired { tape: tape.clone() };
        self.keep(out, retired);
        self.give_up_copies(tape, out);
        for (file, has_other) in self.queued_on(tape) {
            if has_other {
                self.fail_copy(file, tape, TapeErrorScope::Tape, out);
            } else {
                for request in self.askers_of(RequestTarget::Recall(file)) {
                    self.end(out, request, RequestOutcome::NoTape);
                }
            }
        }
    }

    /// A copy that was made on a tape is none of those of a file when the others are made after the tape broke.
    fn give_up_copies(&mut self, tape: &TapeName, out: &mut Turnout) {
        if self.live.has_synced_copies(tape) {
            let tape = tape.clone();
            self.keep(out, Record::CopiesGivenUp { tape });
        }
    }

    /// A drive does not do what it is told, and says so.
    pub(super) fn drive_failed(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) {
        self.give_up_drive(now_ns, (drive, false), out);
    }

    fn give_up_drive(
        &mut self,
        now_ns: i64,
        (drive, is_silent): (&DriveName, bool),
        out: &mut Turnout,
    ) {
        let activity = self.state(drive).and_then(DriveState::activity);
        let fault = activity.map(|activity| DriveFault {
            activity,
            is_silent,
        });
        if self.take_down(now_ns, drive, (DownReason::Failed, fault), out) {
            let incident = TapeIncident::DriveDown(drive.clone());
            out.effects.push(Effect::Open(incident));
        }
    }

    /// A drive is not used any more. Its tape stays in it until somebody has taken it out. False: it was down already.
    pub(super) fn take_down(
        &mut self,
        now_ns: i64,
        drive: &DriveName,
        (why, fault): (DownReason, Option<DriveFault>),
        out: &mut Turnout,
    ) -> bool {
        if matches!(self.state(drive), None | Some(DriveState::Down { .. })) {
            return false;
        }
        self.return_work(now_ns, drive, out);
        self.trickles.forget(drive);
        let (at_ns, drive) = (now_ns, drive.clone());
        let down = DriveRecord::DriveDown {
            at_ns,
            drive: drive.clone(),
            why,
            fault,
        };
        self.keep(out, down);
        out.effects.push(Effect::Abort { drive });
        self.is_decision_due = true;
        true
    }

    /// Nothing more is mounted in the library, except one tape after each pause. No file fails for it.
    fn library_failed(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) {
        let Some(library) = self
            .live
            .drives
            .0
            .get(drive)
            .map(|drive| drive.library.clone())
        else {
            return;
        };
        let before = self.live.libraries.get(&library).copied();
        let paused = Record::LibraryPaused {
            library: library.clone(),
            pause: self.next_pause(now_ns, before),
        };
        self.keep(out, paused);
        if before.is_none() {
            out.effects
                .push(Effect::Open(TapeIncident::LibraryPaused(library)));
        }
        self.return_work(now_ns, drive, out);
        match self.state(drive) {
            Some(DriveState::Mounting { .. }) => {
                let (at_ns, drive) = (now_ns, drive.clone());
                self.keep(out, DriveRecord::DriveFreed { at_ns, drive });
            }
            // What is in a drive is no more to be had than what is not.
            Some(DriveState::Mounted(_)) => self.dismount(now_ns, drive, out),
            Some(DriveState::Free | DriveState::Dismounting { .. } | DriveState::Down { .. })
            | None => {}
        }
    }

    /// How long a library is left alone after one more failure.
    fn next_pause(&self, now_ns: i64, before: Option<LibraryPause>) -> LibraryPause {
        let pause_ns = match before {
            None => self.policy.pause_first_ns,
            // Only what was to try it tells that it still fails.
            Some(before) if now_ns < before.probe_ns => before.pause_ns,
            Some(before) => (before.pause_ns * 2).min(self.policy.pause_max_ns),
        };
        LibraryPause {
            since_ns: before.map_or(now_ns, |before| before.since_ns),
            probe_ns: now_ns + pause_ns,
            pause_ns,
        }
    }

    /// The library takes no data now: nothing is written there for a while, and what lies there is read.
    pub(super) fn library_full(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) {
        let (at_ns, name) = (now_ns, drive.clone());
        match self.work_of(drive) {
            Some(DriveWork::Writing(_) | DriveWork::WritingAggregate(_)) => {
                self.keep(out, DriveRecord::WorkGivenUp { at_ns, drive: name });
            }
            Some(DriveWork::Syncing) => self.return_work(now_ns, drive, out),
            Some(DriveWork::Idle { .. } | DriveWork::Reading(_)) | None => return,
        }
        let Some(library) = self.live.drives.0.get(drive).map(|one| one.library.clone()) else {
            return;
        };
        let before = self.live.full_libraries.get(&library).copied();
        let paused = Record::WritingPaused {
            library: library.clone(),
            pause: self.next_pause(now_ns, before),
        };
        self.keep(out, paused);
        if before.is_none() {
            let incident = TapeIncident::LibraryFull(library);
            out.effects.push(Effect::Open(incident));
        }
        self.is_decision_due = true;
    }

    /// Whether a library takes data, or is to be tried now.
    pub(super) fn has_room(&self, now_ns: i64, library: &LibraryName) -> bool {
        let pause = self.live.full_libraries.get(library);
        pause.is_none_or(|pause| now_ns >= pause.probe_ns)
    }

    /// Something was made safe in the library of a drive: it takes data. What was written before it was full tells nothing.
    pub(super) fn resume_writing(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) {
        let library = self.live.drives.0.get(drive).map(|drive| &drive.library);
        let full = library.filter(|library| self.live.full_libraries.contains_key(*library));
        let full = full.filter(|library| self.has_room(now_ns, library));
        if let Some(library) = full.cloned() {
            let resumed = Record::WritingResumed {
                library: library.clone(),
            };
            self.keep(out, resumed);
            let incident = TapeIncident::LibraryFull(library);
            out.effects.push(Effect::Close(incident));
            self.is_decision_due = true;
        }
    }

    /// Drives that have done nothing for too long are taken out of use, and what they had is done elsewhere.
    pub(super) fn watch(&mut self, now_ns: i64, out: &mut Turnout) {
        let limits = self.policy.watchdog;
        for drive in self.watchdog.overdue(now_ns, &self.live.drives, limits) {
            self.give_up_drive(now_ns, (&drive, true), out);
        }
    }
}
