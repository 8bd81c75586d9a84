//! Files that are written once more: those of a tape that is emptied, those whose copy on a tape cannot be read, and those with too few
//! copies.

use super::super::TapeLibraries;
use super::super::copy_uri::CopyUri;
use super::super::disk_side::DiskSide;
use super::listing::ListedFile;
use super::moves::{MoveContext, MoveGoal, TapeMoves, is_same_on_disk};
use super::{CareNews, Stage, blocking, logged, running};
use crate::nearline::tape_order::{TapeOrder, TapeOutcome};
use penstock_persistence::namespace::EntryId;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::repack::{RepackOrder, RepackStep};
use penstock_tape::request::{FileId, TapeCopy, TapeName};
use penstock_tape::request_engine::Input;

/// Until a file that could not be mended is tried again.
const MENDING_REST_NS: i64 = 3_600 * SECOND_NS;

/// Why files are written once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoveKind {
    /// Their copies cannot be read.
    Mending,
    /// They have too few copies.
    Copying,
    /// Their tape is to be emptied.
    Repack,
}

impl MoveKind {
    pub(super) const ALL: [MoveKind; 3] = [MoveKind::Mending, MoveKind::Copying, MoveKind::Repack];
}

impl TapeLibraries {
    /// Files of which a copy cannot be read, of one tape.
    pub(super) fn begin_mending(&mut self, now_ns: i64) {
        if self.care.mending.is_some() {
            return;
        }
        self.care.unmended.retain(|_, until_ns| *until_ns > now_ns);
        if self.engine.live().unreadable.is_empty() {
            return;
        }
        let held = self.care.held_for_others(MoveKind::Mending);
        let unmended = &self.care.unmended;
        let unreadable = &self.engine.live().unreadable;
        let is_open = |file: &FileId| !held.contains(file) && !unmended.contains_key(file);
        let mut open = unreadable.iter().filter(|(file, _)| is_open(file));
        let Some((_, first)) = open.next() else {
            return;
        };
        let tape = first.tape.clone();
        let of_tape = unreadable.iter();
        let of_tape = of_tape.filter(|(file, copy)| copy.tape == tape && is_open(file));
        let files = of_tape.map(|(file, copy)| ListedFile {
            hint: 0,
            begin_bytes: copy.begin_bytes,
            file: *file,
            size_bytes: 0,
        });
        let mut files: Vec<ListedFile> = files.collect();
        files.sort();
        self.care.mending = Some(TapeMoves::new(MoveGoal::Mend(tape), files));
    }

    pub(super) fn go_on_moving(&mut self, now_ns: i64) -> Vec<TapeOrder> {
        let mut orders = Vec::new();
        for kind in MoveKind::ALL {
            orders.extend(self.ask_moves(kind));
        }
        if self.care.mending.as_ref().is_some_and(TapeMoves::is_done) {
            self.care.mending = None;
            // Perhaps there are those of another tape.
            self.care.is_due = true;
        }
        match self.care.repack.take() {
            Some((tape, Stage::Running(moves))) if moves.is_done() => {
                orders.extend(self.end_repack_pass(now_ns, &tape));
                self.care.is_due = true;
            }
            other => self.care.repack = other,
        }
        orders.extend(self.go_on_copying(now_ns));
        orders
    }

    fn ask_moves(&mut self, kind: MoveKind) -> Vec<TapeOrder> {
        let now_ns = self.now_ns();
        let held = self.care.held_for_others(kind);
        let (care, live) = (&mut self.care, self.engine.live());
        let context = MoveContext {
            namespace: &self.namespace,
            pools: self.disk.pools(),
            classes: &care.classes,
            part_bytes: care.config.part_bytes,
            live,
            libraries: self.libraries.len(),
            now_ns,
            copies_wait_ns: care.config.copies_wait_ns,
        };
        let moves = match kind {
            MoveKind::Mending => care.mending.as_mut(),
            MoveKind::Copying => care.copying.moves_mut(),
            MoveKind::Repack => running(&mut care.repack),
        };
        let Some(moves) = moves else {
            return Vec::new();
        };
        // Those are mended, not moved with the others.
        let is_skipped = |file: FileId| {
            let is_mended = live.unreadable.contains_key(&file);
            held.contains(&file)
                || match kind {
                    MoveKind::Mending => false,
                    MoveKind::Copying => is_mended && !care.unmended.contains_key(&file),
                    MoveKind::Repack => is_mended,
                }
        };
        let what = "files of a tape cannot be looked up";
        let Some(next) = logged(what, moves.next(&context, is_skipped)) else {
            return Vec::new();
        };
        let mut orders = Vec::new();
        if let Some(tape) = moves.goal.tape().cloned() {
            for file in next.gone {
                orders.extend(self.mended(file, &tape));
            }
        }
        for file in next.hopeless {
            self.care.unmended.insert(file, i64::MAX);
        }
        for file in next.lost {
            self.care.copying.note_lost(file, now_ns);
        }
        let (mut recalls, mut archives) = (Vec::new(), Vec::new());
        for order in next.orders {
            match order {
                RepackOrder::CompareDisk(file) => self.compare_disk(file),
                RepackOrder::Recall(request) => recalls.push(request),
                RepackOrder::Archive(request) => archives.push(request),
            }
        }
        if !recalls.is_empty() {
            orders.extend(self.input(Input::Recall(recalls)));
        }
        // All of a part at once, so that small files are written together.
        if !archives.is_empty() {
            orders.extend(self.input(Input::Archive(archives)));
        }
        orders
    }

    fn compare_disk(&self, file: FileId) {
        let disk: DiskSide = self.disk.clone();
        blocking(
            &self.care.sender,
            move || is_same_on_disk(&disk, file),
            move |is_same| CareNews::Compared { file, is_same },
        );
    }

    pub(super) fn take_steps(&mut self, steps: Vec<RepackStep>) -> Vec<TapeOrder> {
        let mut orders = Vec::new();
        for step in steps {
            orders.extend(self.take_step(step));
        }
        orders
    }

    fn take_step(&mut self, step: RepackStep) -> Vec<TapeOrder> {
        self.care.is_due = true;
        match step {
            RepackStep::OnDisk(_) => Vec::new(),
            RepackStep::Written {
                file,
                instead_of,
                to,
                is_brought,
            } => self.written(file, (instead_of, to), is_brought),
            RepackStep::Stays { file, why } => {
                tracing::warn!(
                    file = file.0,
                    ?why,
                    "a file on tape could not be written there again now; it stays where it is"
                );
                let until_ns = self.now_ns().saturating_add(MENDING_REST_NS);
                if self.engine.live().unreadable.contains_key(&file) {
                    self.care.unmended.insert(file, until_ns);
                }
                Vec::new()
            }
        }
    }

    /// The namespace is told first; only then the old copy, which may be one that could not be read, counts for nothing.
    fn written(
        &mut self,
        file: FileId,
        (instead_of, to): (Option<TapeCopy>, TapeCopy),
        is_brought: bool,
    ) -> Vec<TapeOrder> {
        let id = EntryId(file.0);
        let what = "a file that was written to tape again cannot be looked up; its copies are told as before";
        let Some(found) = logged(what, self.namespace.tape_file(id)) else {
            return Vec::new();
        };
        let mut orders = Vec::new();
        if let Some(found) = found
            && let Some(facts) = self.engine.live().tapes.get(&to.tape)
        {
            let uris = found.copies.into_iter().map(|copy| copy.uri);
            let mut known = uris.filter_map(|uri| Some((CopyUri::parse(&uri)?.copy, uri)));
            let old = instead_of.as_ref();
            let old = old.map(|old| known.find(|(copy, _)| copy == old).map(|(_, uri)| uri));
            // Where the old one is none of its copies any more, the new one counts for nothing.
            if old != Some(None) {
                let uri = CopyUri {
                    library: facts.library.clone(),
                    copy: to,
                    size_bytes: found.size.0,
                };
                orders.push(TapeOrder::Tell(TapeOutcome::CopyMade {
                    file: id,
                    uri: uri.to_string(),
                    instead_of: old.flatten(),
                    is_brought,
                }));
            }
        }
        if let Some(old) = instead_of {
            orders.extend(self.mended(file, &old.tape));
        }
        orders
    }

    /// The copy of a file on this tape counts for nothing any more.
    fn mended(&mut self, file: FileId, tape: &TapeName) -> Vec<TapeOrder> {
        let unreadable = self.engine.live().unreadable.get(&file);
        match unreadable.is_some_and(|copy| copy.tape == *tape) {
            true => self.input(Input::CopyMended(file)),
            false => Vec::new(),
        }
    }
}
