//! Tapes whose files are read and compared, one after the other.

use super::super::TapeLibraries;
use super::super::copy_uri::CopyUri;
use super::super::request_kind::RequestKind;
use super::listing::ListedFile;
use super::moves::asker;
use super::{ListPurpose, Stage, logged};
use crate::nearline::tape_libraries::LibraryTask;
use penstock_persistence::namespace::EntryId;
use penstock_tape::request::{ReadPurpose, RecallRequest, TapeName};
use penstock_tape::request_engine::Input;
use penstock_tape::tape_care::CareStep;

impl TapeLibraries {
    /// A tape whose time has come, the one first that has waited for longest.
    pub(super) fn begin_verification(&mut self, now_ns: i64) -> Vec<LibraryTask> {
        if self.care.verification.is_some() {
            return Vec::new();
        }
        let live = self.engine.live();
        let (mut unplanned, mut due) = (Vec::new(), Vec::new());
        for (tape, facts) in &live.tapes {
            if facts.written_bytes == 0 || !live.is_readable(tape) {
                continue;
            }
            let known = live.care.get(tape).map(|care| &care.verification);
            match known.and_then(|known| known.due_ns) {
                None => unplanned.push(tape.clone()),
                Some(due_ns) if due_ns <= now_ns => due.push((due_ns, tape.clone())),
                Some(_) => {}
            }
        }
        let mut orders = Vec::new();
        if let Some(every_ns) = self.care.config.verify_every_ns {
            for tape in unplanned {
                let due_ns = now_ns.saturating_add(every_ns);
                orders.extend(self.care_step(tape, CareStep::VerificationDue { due_ns }));
            }
        }
        if let Some((_, tape)) = due.into_iter().min() {
            let known = self.engine.live().care.get(&tape);
            if known.is_none_or(|care| care.verification.reached_bytes.is_none()) {
                let step = CareStep::VerificationReached { to_bytes: 0 };
                orders.extend(self.care_step(tape.clone(), step));
            }
            self.list(ListPurpose::Verification, &tape, Vec::new());
            self.care.verification = Some((tape, Stage::Listing));
        }
        orders
    }

    pub(super) fn go_on_verifying(&mut self, now_ns: i64) -> Vec<LibraryTask> {
        let Some((tape, Stage::Running(pass))) = &mut self.care.verification else {
            return Vec::new();
        };
        let live = self.engine.live();
        // It may have been relabeled, or taken out of use, in the meantime.
        let known = live.care.get(tape).map(|care| &care.verification);
        let is_planned = known.is_some_and(|known| known.reached_bytes.is_some());
        if !is_planned || !live.is_readable(tape) {
            self.care.verification = None;
            return Vec::new();
        }
        if pass.is_open() {
            return Vec::new();
        }
        let (tape, reached, part) = (tape.clone(), pass.reached_bytes(), pass.next());
        let mut orders = Vec::new();
        match reached {
            None => {
                self.care.verification = None;
                let every_ns = self.care.config.verify_every_ns;
                let due_ns = every_ns.map_or(i64::MAX, |every_ns| now_ns.saturating_add(every_ns));
                let step = CareStep::VerificationEnded { due_ns };
                orders.extend(self.care_step(tape, step));
            }
            Some(to_bytes) => {
                let step = CareStep::VerificationReached { to_bytes };
                orders.extend(self.care_step(tape.clone(), step));
                orders.extend(self.ask_verification(&tape, &part));
            }
        }
        self.care.is_due = true;
        orders
    }

    fn ask_verification(&mut self, tape: &TapeName, part: &[ListedFile]) -> Vec<LibraryTask> {
        let ids: Vec<EntryId> = part.iter().map(|one| EntryId(one.file.0)).collect();
        let what = "files that are to be verified cannot be looked up";
        let found = logged(what, self.namespace.tape_files_of(&ids));
        let (Some(found), Some((_, Stage::Running(pass)))) = (found, &mut self.care.verification)
        else {
            // It begins anew from where it had come.
            self.care.verification = None;
            return Vec::new();
        };
        let mut requests = Vec::new();
        for (one, found) in part.iter().zip(found) {
            // One that was removed or moved since it was listed has nothing to be verified there.
            let copies = found.iter().flat_map(|found| &found.copies);
            let mut copies = copies.filter_map(|copy| CopyUri::parse(&copy.uri));
            let is_it =
                |uri: &CopyUri| uri.copy.tape == *tape && uri.copy.begin_bytes == one.begin_bytes;
            let Some(copy) = copies.find(is_it) else {
                continue;
            };
            pass.asked(one.file);
            requests.push(RecallRequest {
                challenge: None,
                request: RequestKind::Verification.of_file(one.file),
                file: one.file,
                size_bytes: copy.size_bytes,
                copies: vec![copy.copy],
                asker: asker(),
                activity: None,
                purpose: ReadPurpose::Verification,
            });
        }
        self.input(Input::Recall(requests))
    }
}
