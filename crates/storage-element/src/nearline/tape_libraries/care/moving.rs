//! Files that are moved: those of a tape that is emptied, and those whose copy on a tape cannot be read.

use super::super::TapeLibraries;
use super::super::copy_uri::CopyUri;
use super::super::disk_side::DiskSide;
use super::listing::ListedFile;
use super::moves::{MoveContext, TapeMoves, is_same_on_disk};
use super::{CareNews, Stage, blocking, logged};
use crate::nearline::driver_task::TapeOutcome;
use crate::nearline::tape_libraries::LibraryTask;
use penstock_persistence::namespace::{EntryId, TapeCopyUri};
use penstock_tape::locate::SECOND_NS;
use penstock_tape::repack::{RepackOrder, RepackStep};
use penstock_tape::request::{FileId, RequestOutcome, TapeCopy, TapeName};
use penstock_tape::request_engine::Input;

/// Until a file that could not be mended is tried again.
const MENDING_REST_NS: i64 = 3_600 * SECOND_NS;

/// Why files are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MoveKind {
    /// Their copies cannot be read.
    Mending,
    /// Their tape is to be emptied.
    Repack,
}

impl TapeLibraries {
    /// Files of which a copy cannot be read, of one tape.
    pub(super) fn begin_mending(&mut self, now_ns: i64) {
        if self.care.mending.is_some() {
            return;
        }
        self.care.unmended.retain(|_, until_ns| *until_ns > now_ns);
        let repack = match &self.care.repack {
            Some((_, Stage::Running(moves))) => Some(moves),
            Some((_, Stage::Listing)) | None => None,
        };
        let unreadable = self.engine.live().unreadable.iter();
        let mut open = unreadable.filter(|(file, _)| {
            let is_held = repack.is_some_and(|moves| moves.holds(**file));
            !is_held && !self.care.unmended.contains_key(file)
        });
        let Some((_, first)) = open.next() else {
            return;
        };
        let tape = first.tape.clone();
        let of_tape = self.engine.live().unreadable.iter();
        let of_tape = of_tape
            .filter(|(file, copy)| copy.tape == tape && !self.care.unmended.contains_key(file));
        let files = of_tape.map(|(file, copy)| ListedFile {
            hint: 0,
            begin_bytes: copy.begin_bytes,
            file: *file,
            size_bytes: 0,
        });
        let mut files: Vec<ListedFile> = files.collect();
        files.sort();
        self.care.mending = Some(TapeMoves::new(tape, true, Vec::new(), files));
    }

    pub(super) fn go_on_moving(&mut self, now_ns: i64) -> Vec<LibraryTask> {
        let mut orders = self.ask_moves(MoveKind::Mending);
        orders.extend(self.ask_moves(MoveKind::Repack));
        if self.care.mending.as_ref().is_some_and(TapeMoves::is_done) {
            self.care.mending = None;
            // Perhaps there are those of another tape.
            self.care.is_due = true;
        }
        match self.care.repack.take() {
            Some((_, Stage::Running(moves))) if moves.is_done() => {
                orders.extend(self.end_repack_pass(now_ns, &moves.tape));
                self.care.is_due = true;
            }
            running => self.care.repack = running,
        }
        orders
    }

    fn ask_moves(&mut self, kind: MoveKind) -> Vec<LibraryTask> {
        let (care, unreadable) = (&mut self.care, &self.engine.live().unreadable);
        let context = MoveContext {
            namespace: &self.namespace,
            pools: self.disk.pools(),
            classes: &care.classes,
            part_bytes: care.config.part_bytes,
        };
        let moves = match (kind, &mut care.repack) {
            (MoveKind::Mending, _) => care.mending.as_mut(),
            (MoveKind::Repack, Some((_, Stage::Running(moves)))) => Some(moves),
            (MoveKind::Repack, Some((_, Stage::Listing)) | None) => None,
        };
        let Some(moves) = moves else {
            return Vec::new();
        };
        let tape = moves.tape.clone();
        // Those are mended, not moved with the others.
        let is_skipped = |file: FileId| kind == MoveKind::Repack && unreadable.contains_key(&file);
        let what = "files of a tape cannot be looked up";
        let Some(next) = logged(what, moves.next(&context, is_skipped)) else {
            return Vec::new();
        };
        let mut orders = Vec::new();
        for file in next.gone {
            orders.extend(self.mended(file, &tape));
        }
        for file in next.hopeless {
            self.care.unmended.insert(file, i64::MAX);
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

    pub(super) fn take_steps(&mut self, steps: Vec<RepackStep>) -> Vec<LibraryTask> {
        let (mut orders, mut left) = (Vec::new(), Vec::new());
        for step in steps {
            self.care.is_due = true;
            match step {
                RepackStep::OnDisk(_) => {}
                RepackStep::Moved {
                    file,
                    from,
                    to,
                    is_brought,
                } => {
                    let Some(copies) = self.copies_of(file) else {
                        continue;
                    };
                    let moved = self.moved(file, &copies, (&from, &to), is_brought);
                    orders.extend(moved.map(LibraryTask::Tell));
                    left.push((file, from.tape));
                }
                RepackStep::Stays { file, why } => self.stays(file, &why),
            }
        }
        // The namespace is told of all first; only then the old copies, which may be some that could not be read, count for nothing.
        for (file, tape) in left {
            orders.extend(self.mended(file, &tape));
        }
        orders
    }

    fn stays(&mut self, file: FileId, why: &RequestOutcome) {
        tracing::warn!(
            file = file.0,
            ?why,
            "a file on tape could not be moved now; it stays where it is"
        );
        let until_ns = self.now_ns().saturating_add(MENDING_REST_NS);
        if self.engine.live().unreadable.contains_key(&file) {
            self.care.unmended.insert(file, until_ns);
        }
    }

    /// As the namespace tells them; none of a file that was removed. `None`: it cannot be asked.
    fn copies_of(&self, file: FileId) -> Option<Vec<TapeCopyUri>> {
        let what = "a file that was moved cannot be looked up; it stays where it is";
        let found = logged(what, self.namespace.tape_file(EntryId(file.0)))?;
        Some(found.map_or_else(Vec::new, |found| found.copies))
    }

    /// A file that was written to another tape before a restart: in place of its copy on a tape that is emptied, or of one that could
    /// not be read. `None`: it has none such any more, and the new copy counts for nothing.
    pub(super) fn moved_before(&self, file: FileId, written: &[TapeCopy]) -> Option<RepackStep> {
        let live = self.engine.live();
        let unreadable = live.unreadable.get(&file);
        let is_left = |copy: &TapeCopy| {
            let care = live.care.get(&copy.tape);
            let place = (&copy.tape, copy.begin_bytes);
            care.is_some_and(|care| care.repack.is_some())
                || unreadable.is_some_and(|known| (&known.tape, known.begin_bytes) == place)
        };
        let copies = self.copies_of(file)?;
        let mut copies = copies
            .iter()
            .filter_map(|copy| Some(CopyUri::parse(&copy.uri)?.copy));
        Some(RepackStep::Moved {
            file,
            from: copies.find(is_left)?,
            to: written.iter().find(|to| !is_left(to))?.clone(),
            is_brought: false,
        })
    }

    /// What the namespace is told. `None`: the file has no such copy any more, and the new one counts for nothing.
    fn moved(
        &self,
        file: FileId,
        copies: &[TapeCopyUri],
        (old, to): (&TapeCopy, &TapeCopy),
        is_brought: bool,
    ) -> Option<TapeOutcome> {
        let mut known = copies
            .iter()
            .filter_map(|copy| Some((&copy.uri, CopyUri::parse(&copy.uri)?)));
        let (from, size_bytes) = known
            .find_map(|(uri, known)| (known.copy == *old).then_some((uri, known.size_bytes)))?;
        let to = CopyUri {
            library: self.engine.live().tapes.get(&to.tape)?.library.clone(),
            copy: to.clone(),
            size_bytes,
        };
        Some(TapeOutcome::Moved {
            file: EntryId(file.0),
            from: from.clone(),
            to: to.to_string(),
            is_brought,
        })
    }

    /// The copy of a file on this tape counts for nothing any more.
    fn mended(&mut self, file: FileId, tape: &TapeName) -> Vec<LibraryTask> {
        let unreadable = self.engine.live().unreadable.get(&file);
        match unreadable.is_some_and(|copy| copy.tape == *tape) {
            true => self.input(Input::CopyMended(file)),
            false => Vec::new(),
        }
    }
}
