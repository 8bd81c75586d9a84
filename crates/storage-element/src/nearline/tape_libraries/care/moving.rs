//! Files that are written once more: those of a tape that is emptied, those whose copy on a tape cannot be read, and those with too few
//! copies.

use super::super::TapeLibraries;
use super::super::copy_uri::CopyUri;
use super::super::disk_side::DiskSide;
use super::listing::ListedFile;
use super::moves::{MoveContext, MoveGoal, TapeMoves, compare_on_disk};
use super::{CareNews, Stage, blocking, logged, running};
use crate::nearline::driver_task::TapeOutcome;
use crate::nearline::tape_libraries::LibraryTask;
use penstock_persistence::namespace::{EntryId, TapeCopyUri};
use penstock_tape::locate::SECOND_NS;
use penstock_tape::repack::{RepackOrder, RepackStep};
use penstock_tape::request::{FileId, RequestOutcome, TapeCopy, TapeName};
use penstock_tape::request_engine::Input;
use penstock_tape::tape_care::UnreadableCopy;
use std::collections::BTreeMap;

/// Until a file that could not be mended is tried again.
const MENDING_REST_NS: i64 = 3_600 * SECOND_NS;

/// Why files are written once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MoveKind {
    /// Their copies cannot be read.
    Mending,
    /// They have too few copies.
    FurtherCopy,
    /// Their tape is to be emptied.
    Repack,
}

impl MoveKind {
    pub(super) const ALL: [MoveKind; 3] =
        [MoveKind::Mending, MoveKind::FurtherCopy, MoveKind::Repack];
}

/// What was said last of files that could not be moved.
pub(super) type StaysTold = BTreeMap<(MoveKind, Option<TapeName>), String>;

/// Says which files could not be moved, once for each pass, and only if it is not what was said of the pass before.
pub(super) fn tell_stays(
    told: &mut StaysTold,
    of: (MoveKind, Option<TapeName>),
    reasons: Option<String>,
) {
    let Some(reasons) = reasons else {
        told.remove(&of);
        return;
    };
    if told.get(&of) != Some(&reasons) {
        let tape = of.1.as_ref().map(|tape| tracing::field::display(&tape.0));
        tracing::warn!(
            tape,
            reasons,
            "no new copy on tape could be made of some files; their old copies stay; the next try is in an hour"
        );
        told.insert(of, reasons);
    }
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
        let mut open = unreadable.copies().filter(|(file, _)| is_open(file));
        let Some((_, first)) = open.next() else {
            return;
        };
        let tape = first.tape.clone();
        let of_tape = unreadable.copies();
        let of_tape = of_tape.filter(|(file, copy)| copy.tape == tape && is_open(file));
        let files = of_tape.map(|(file, copy)| ListedFile {
            hint: 0,
            begin_bytes: copy.begin_bytes,
            file,
            size_bytes: 0,
        });
        let mut files: Vec<ListedFile> = files.collect();
        files.sort();
        self.care.mending = Some(TapeMoves::new(MoveGoal::Mend(tape), files));
    }

    pub(super) fn go_on_moving(&mut self, now_ns: i64) -> Vec<LibraryTask> {
        let mut orders = Vec::new();
        for kind in MoveKind::ALL {
            orders.extend(self.ask_moves(kind));
        }
        let mended = self.care.mending.take_if(|moves| moves.is_done());
        if let Some(moves) = mended {
            let tape = moves.goal.tape().cloned();
            tell_stays(
                &mut self.care.stays_told,
                (MoveKind::Mending, tape),
                moves.stays.text(),
            );
            // Perhaps there are those of another tape.
            self.care.is_due = true;
        }
        match self.care.repack.take() {
            Some((tape, Stage::Running(moves))) if moves.is_done() => {
                let of = (MoveKind::Repack, Some(tape.clone()));
                tell_stays(&mut self.care.stays_told, of, moves.stays.text());
                orders.extend(self.end_repack_pass(now_ns, &tape));
                self.care.is_due = true;
            }
            other => self.care.repack = other,
        }
        orders.extend(self.go_on_copy_pass());
        orders
    }

    fn ask_moves(&mut self, kind: MoveKind) -> Vec<LibraryTask> {
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
            MoveKind::FurtherCopy => care.further_copies.moves_mut(),
            MoveKind::Repack => running(&mut care.repack),
        };
        let Some(moves) = moves else {
            return Vec::new();
        };
        // Those are mended, not moved with the others.
        let is_skipped = |file: FileId| {
            let is_mended = live.unreadable.has_file(file);
            held.contains(&file)
                || match kind {
                    MoveKind::Mending => false,
                    MoveKind::FurtherCopy => is_mended && !care.unmended.contains_key(&file),
                    MoveKind::Repack => is_mended,
                }
        };
        let what = "files of a tape cannot be looked up";
        let Some(next) = logged(what, moves.next(&context, is_skipped)) else {
            return Vec::new();
        };
        let mut orders = Vec::new();
        if kind == MoveKind::Mending {
            for file in next.gone {
                orders.extend(self.forget_replaced(file));
                self.rest_unmended(file);
            }
        }
        for file in next.hopeless {
            self.rest_unmended(file);
        }
        for file in next.lost {
            self.care.further_copies.note_lost(file, now_ns);
        }
        let further = &mut self.care.further_copies;
        further.note_away_pools(next.away_pools);
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
            move || compare_on_disk(&disk, file),
            move |comparison| CareNews::Compared { file, comparison },
        );
    }

    pub(super) fn take_steps(&mut self, steps: Vec<RepackStep>) -> Vec<LibraryTask> {
        let mut orders = Vec::new();
        for step in steps {
            self.care.is_due = true;
            match step {
                RepackStep::OnDisk(_) => {}
                RepackStep::Damaged(file) => {
                    let file = EntryId(file.0);
                    orders.push(LibraryTask::Tell(TapeOutcome::DiskCopyDamaged(file)));
                }
                RepackStep::Written {
                    file,
                    instead_of,
                    to,
                    is_brought,
                } => {
                    let Some(copies) = self.copies_of(file) else {
                        continue;
                    };
                    let places = (instead_of.as_ref(), &to);
                    // Until the namespace has been told it is not written once more.
                    self.rest_unmended(file);
                    match self.written(file, &copies, places, is_brought) {
                        Some(made) => orders.push(LibraryTask::Tell(made)),
                        None => orders.extend(self.forget_replaced(file)),
                    }
                }
                RepackStep::Stays { file, why } => self.stays(file, &why),
            }
        }
        orders
    }

    fn stays(&mut self, file: FileId, why: &RequestOutcome) {
        tracing::debug!(
            file = file.0,
            ?why,
            "a file on tape could not be written there again"
        );
        self.rest_unmended(file);
    }

    /// A file of which a copy cannot be read is left alone for a while.
    fn rest_unmended(&mut self, file: FileId) {
        if self.engine.live().unreadable.has_file(file) {
            let until_ns = self.now_ns().saturating_add(MENDING_REST_NS);
            self.care.unmended.insert(file, until_ns);
        }
    }

    /// As the namespace tells them; none of a file that was removed. `None`: it cannot be asked.
    fn copies_of(&self, file: FileId) -> Option<Vec<TapeCopyUri>> {
        let what = "a file that was written to tape again cannot be looked up; its copies are told as before";
        let found = logged(what, self.namespace.tape_file(EntryId(file.0)))?;
        Some(found.map_or_else(Vec::new, |found| found.copies))
    }

    /// A file that was written to another tape before a restart: in place of its copy on a tape that is emptied, or of one that could
    /// not be read; else beside those that it has, where none of them is in that library.
    pub(super) fn written_before(&self, file: FileId, written: &[TapeCopy]) -> Option<RepackStep> {
        let live = self.engine.live();
        let is_left = |copy: &TapeCopy| {
            let care = live.care.get(&copy.tape);
            care.is_some_and(|care| care.repack.is_some()) || live.unreadable.contains(file, copy)
        };
        let to = written.iter().find(|to| !is_left(to))?.clone();
        let library = &live.tapes.get(&to.tape)?.library;
        let copies = self.copies_of(file)?;
        let known = copies.iter().filter_map(|copy| CopyUri::parse(&copy.uri));
        let known: Vec<CopyUri> = known.collect();
        let left = known.iter().filter(|known| is_left(&known.copy));
        let instead_of = left.min_by_key(|known| known.library != *library);
        if instead_of.is_none() && known.iter().any(|known| known.library == *library) {
            return None;
        }
        Some(RepackStep::Written {
            file,
            instead_of: instead_of.map(|known| known.copy.clone()),
            to,
            is_brought: false,
        })
    }

    /// What the namespace is told. `None`: the file is gone, or has the old copy no more, and the new one counts for nothing.
    fn written(
        &self,
        file: FileId,
        copies: &[TapeCopyUri],
        (instead_of, to): (Option<&TapeCopy>, &TapeCopy),
        is_brought: bool,
    ) -> Option<TapeOutcome> {
        let known = copies
            .iter()
            .filter_map(|copy| Some((&copy.uri, CopyUri::parse(&copy.uri)?)));
        let known: Vec<(&String, CopyUri)> = known.collect();
        let old = match instead_of {
            Some(old) => Some(known.iter().find(|(_, known)| known.copy == *old)?),
            None => None,
        };
        let uri = CopyUri {
            library: self.engine.live().tapes.get(&to.tape)?.library.clone(),
            copy: to.clone(),
            size_bytes: known.first()?.1.size_bytes,
        };
        Some(TapeOutcome::CopyMade {
            file: EntryId(file.0),
            uri: uri.to_string(),
            instead_of: old.map(|(uri, _)| (*uri).clone()),
            is_brought,
        })
    }

    /// What is known of copies that could not be read counts for nothing once the namespace has them no more, neither in the tree nor
    /// in the trash: a file that is restored has the copies that it had.
    pub(in super::super) fn forget_replaced(&mut self, file: FileId) -> Vec<LibraryTask> {
        let unreadable = &self.engine.live().unreadable;
        if !unreadable.has_file(file) {
            return Vec::new();
        }
        let what = "copies of a file that could not be read cannot be looked up";
        let found = logged(what, self.namespace.tape_copies_of(EntryId(file.0)));
        let Some(found) = found else {
            return Vec::new();
        };
        let uris = found.iter().filter_map(|copy| CopyUri::parse(&copy.uri));
        let copies: Vec<TapeCopy> = uris.map(|uri| uri.copy).collect();
        let is_replaced = |known: &&UnreadableCopy| !copies.iter().any(|copy| known.is(copy));
        let replaced = unreadable.of(file).filter(is_replaced).cloned();
        let replaced: Vec<UnreadableCopy> = replaced.collect();
        let mut orders = Vec::new();
        for copy in replaced {
            self.care.unmended.remove(&file);
            orders.extend(self.input(Input::CopyMended { file, copy }));
        }
        orders
    }
}
