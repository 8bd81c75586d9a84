//! Files on tape that have fewer copies than their class wants get further ones: after a tape was lost, or when a class wants more than
//! it did. Files of a tape that is out of use are found by the names of their copies; all files are looked through, with pauses, when
//! classes have changed.

use super::super::TapeLibraries;
use super::super::copy_uri::CopyUri;
use super::few_copies::{CopySearch, FewCopies, Scope, TapeScope};
use super::listing::{ListedFile, prefix_of};
use super::moves::{LostFile, MoveGoal, Stays, TapeMoves, tape_of_lost};
use super::moving::{MoveKind, tell_stays};
use super::{CareNews, Stage, blocking, logged};
use crate::config::ArchiveClasses;
use crate::nearline::driver_task::TapeOutcome;
use crate::nearline::tape_libraries::LibraryTask;
use crate::nearline::wording::{files_without_copy, log_begin, log_end};
use penstock_model::PoolName;
use penstock_persistence::namespace::EntryId;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::request::{FileId, TapeName};
use penstock_tape::request_engine::Input;
use penstock_tape::tape_care::CareStep;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::sync::Arc;

/// Between two passes, in the time of the libraries.
const PASS_INTERVAL_NS: i64 = 3_600 * SECOND_NS;
/// Between two passes through all files, when some could not be copied.
const WHOLE_PASS_INTERVAL_NS: i64 = 24 * 3_600 * SECOND_NS;
/// Files without a copy that are told of by name, of one tape.
const LOST_NAMED: usize = 100;

/// Files without a copy that can be read, of one tape.
#[derive(Debug, Clone)]
pub(super) struct LostFiles {
    pub since_ns: i64,
    pub files: u64,
    /// The first of them.
    pub named: Vec<LostFile>,
}

impl LostFiles {
    fn words(&self, tape: &TapeName) -> String {
        let first = self.named.first();
        let first = first.map_or_else(String::new, |one| one.path.to_string());
        files_without_copy(&tape.0, self.files, &first)
    }
}

/// One search for files with too few copies, which are copied as they are found.
struct CopyPass {
    /// Not looked through yet.
    scopes: VecDeque<Scope>,
    /// Tapes whose files it has looked up, and the one that it looks at now.
    tapes: BTreeSet<TapeName>,
    current: Option<TapeName>,
    /// Files are being found, or copied.
    stage: Stage<TapeMoves>,
    /// What classes want, when all files are looked through.
    classes: Option<String>,
    copied_files: u64,
    /// They may lack a copy still.
    failed_files: u64,
    /// Some are in the trash.
    has_poor_trash: bool,
    /// By tape, of all its pages.
    stays: BTreeMap<Option<TapeName>, Stays>,
    lost: BTreeMap<TapeName, LostFiles>,
}

/// Which files get further copies.
#[derive(Default)]
pub(super) struct FurtherCopies {
    pass: Option<CopyPass>,
    due_ns: i64,
    /// From when on all files may be looked through.
    whole_due_ns: i64,
    /// Pools that were away while files in them lacked a copy.
    away_pools: BTreeSet<PoolName>,
    /// Files of the trash of which nothing but their copies on lost tapes is left.
    kept_trash: BTreeSet<EntryId>,
    /// As the last pass has found them, or this one already has.
    pub(super) lost: BTreeMap<TapeName, LostFiles>,
}

impl FurtherCopies {
    /// Files that are being copied.
    pub(super) fn moves(&self) -> Option<&TapeMoves> {
        match &self.pass.as_ref()?.stage {
            Stage::Listing => None,
            Stage::Running(moves) => Some(moves),
        }
    }

    pub(super) fn moves_mut(&mut self) -> Option<&mut TapeMoves> {
        match &mut self.pass.as_mut()?.stage {
            Stage::Listing => None,
            Stage::Running(moves) => Some(moves),
        }
    }

    /// Files that this pass has copied, and those that it has found and not copied yet. `None`: there were none.
    pub(super) fn progress(&self) -> Option<(u64, u64)> {
        let copied = self.pass.as_ref()?.copied_files;
        let (now_copied, left) = self
            .moves()
            .map_or((0, 0), |moves| (moves.moved_files, moves.left_files()));
        let copied = copied + now_copied;
        (copied + left > 0).then_some((copied, left))
    }

    /// The next pass begins as soon as this one has ended, and looks through all files if some lack copies.
    pub(super) fn hasten(&mut self) {
        (self.due_ns, self.whole_due_ns) = (0, 0);
        self.kept_trash.clear();
    }

    /// These pools are away, and have files that lack a copy.
    pub(super) fn note_away_pools(&mut self, pools: BTreeSet<PoolName>) {
        self.away_pools.extend(pools);
    }

    /// Files that could not be copied may be, once their pool is back.
    pub(super) fn look_at_away_pools(&mut self, is_in_reach: impl Fn(&PoolName) -> bool) {
        let before = self.away_pools.len();
        self.away_pools.retain(|pool| !is_in_reach(pool));
        if self.away_pools.len() < before {
            self.hasten();
        }
    }

    /// A file has no copy left. It is told at once, and counts for one tape.
    pub(super) fn note_lost(&mut self, file: LostFile, now_ns: i64) {
        let Some(pass) = &mut self.pass else {
            return;
        };
        let tape = file.tape.clone();
        let is_counted = match &pass.current {
            Some(current) => *current == tape,
            None => !pass.tapes.contains(&tape),
        };
        if !is_counted {
            return;
        }
        let since_ns = self.lost.get(&tape).map_or(now_ns, |known| known.since_ns);
        let found = pass.lost.entry(tape.clone()).or_insert(LostFiles {
            since_ns,
            files: 0,
            named: Vec::new(),
        });
        found.files += 1;
        if found.named.len() < LOST_NAMED {
            found.named.push(file);
        }
        let known = self.lost.get(&tape).map_or(0, |known| known.files);
        if known == 0 {
            log_begin(&found.words(&tape), None);
        }
        if found.files > known {
            self.lost.insert(tape, found.clone());
        }
    }

    /// A tape is used again: files may be copied from it.
    fn tape_is_back(&mut self, tape: &TapeName) {
        self.hasten();
        if let Some(pass) = &mut self.pass {
            pass.lost.remove(tape);
        }
        if let Some(lost) = self.lost.remove(tape) {
            log_end(&lost.words(tape));
        }
    }

    /// What a pass has not found again is over.
    fn tell_ends(&mut self, found: BTreeMap<TapeName, LostFiles>) {
        let over = self.lost.iter();
        for (tape, lost) in over.filter(|(tape, _)| !found.contains_key(*tape)) {
            log_end(&lost.words(tape));
        }
        self.lost = found;
    }

    /// What people should look at, and since when.
    pub(super) fn incidents(&self) -> impl Iterator<Item = (i64, String)> {
        let lost = self.lost.iter();
        lost.map(|(tape, lost)| (lost.since_ns, lost.words(tape)))
    }
}

impl TapeLibraries {
    /// Since when tapes are out of use, or that they are not any more.
    pub(super) fn note_use_of_tapes(&mut self) -> Vec<LibraryTask> {
        let live = self.engine.live();
        let changed = live.tapes.keys().filter_map(|tape| {
            let is_used = live.is_readable(tape) || live.relabeling.contains(tape);
            let care = live.care.get(tape);
            let is_noted = care.is_some_and(|care| care.out_of_use_ns.is_some());
            match (is_used, is_noted) {
                (false, false) => Some((tape.clone(), CareStep::OutOfUse)),
                (true, true) => Some((tape.clone(), CareStep::InUse)),
                (true, false) | (false, true) => None,
            }
        });
        let changed: Vec<(TapeName, CareStep)> = changed.collect();
        let mut orders = Vec::new();
        for (tape, step) in changed {
            if step == CareStep::InUse {
                self.care.further_copies.tape_is_back(&tape);
            }
            orders.extend(self.care_step(tape, step));
        }
        orders
    }

    /// Files of tapes that have been out of use for too long, and all files when classes have changed.
    pub(super) fn begin_copy_pass(&mut self, now_ns: i64) {
        let further = &self.care.further_copies;
        if further.pass.is_some() || now_ns < further.due_ns {
            return;
        }
        let live = self.engine.live();
        let wait_ns = self.care.config.copies_wait_ns;
        let lost = live.tapes.iter();
        let lost = lost.filter(|(tape, _)| live.is_lost(tape, (now_ns, wait_ns)));
        let tapes = lost.map(|(tape, facts)| TapeScope {
            tape: tape.clone(),
            prefix: prefix_of(&facts.library, tape),
            after: String::new(),
        });
        let tapes: Vec<TapeScope> = tapes.collect();
        let mut scopes: VecDeque<Scope> = tapes.iter().cloned().map(Scope::Tape).collect();
        let classes = words_of(&self.care.classes, self.libraries.len());
        let is_new = live.compared_classes.as_ref() != Some(&classes);
        let classes = (is_new && now_ns >= further.whole_due_ns).then_some(classes);
        scopes.extend(classes.as_ref().map(|_| Scope::All { after: EntryId(0) }));
        // What is in the trash may have to be read. It comes last.
        scopes.extend(tapes.into_iter().map(Scope::Trash));
        let further = &mut self.care.further_copies;
        further.due_ns = now_ns.saturating_add(PASS_INTERVAL_NS);
        if classes.is_some() {
            further.whole_due_ns = now_ns.saturating_add(WHOLE_PASS_INTERVAL_NS);
        }
        further.pass = Some(CopyPass {
            scopes,
            tapes: BTreeSet::new(),
            current: None,
            stage: Stage::Running(TapeMoves::new(MoveGoal::Copy, Vec::new())),
            classes,
            copied_files: 0,
            failed_files: 0,
            has_poor_trash: false,
            stays: BTreeMap::new(),
            lost: BTreeMap::new(),
        });
    }

    /// What was found is copied before more is looked for.
    pub(super) fn go_on_copy_pass(&mut self) -> Vec<LibraryTask> {
        let Some(pass) = &mut self.care.further_copies.pass else {
            return Vec::new();
        };
        let Stage::Running(moves) = &pass.stage else {
            return Vec::new();
        };
        if !moves.is_done() {
            return Vec::new();
        }
        pass.copied_files += moves.moved_files;
        pass.failed_files += moves.failed_files;
        pass.stays
            .entry(pass.current.clone())
            .or_default()
            .extend(&moves.stays);
        match pass.scopes.pop_front() {
            Some(scope) => {
                pass.stage = Stage::Listing;
                pass.current = match &scope {
                    Scope::Tape(scope) | Scope::Trash(scope) => Some(scope.tape.clone()),
                    Scope::All { .. } => None,
                };
                pass.tapes.extend(pass.current.clone());
                self.find_few_copies(scope);
                Vec::new()
            }
            None => self.end_copy_pass(),
        }
    }

    fn find_few_copies(&self, scope: Scope) {
        let live = self.engine.live();
        let readable = live.tapes.keys().filter(|tape| live.is_readable(tape));
        let search = CopySearch {
            namespace: Arc::clone(&self.namespace),
            disk: self.disk.clone(),
            classes: self.care.classes.clone(),
            libraries: self.libraries.len(),
            readable: readable.cloned().collect(),
            unreadable: live.unreadable.clone(),
            kept: self.care.further_copies.kept_trash.clone(),
        };
        let news = self.care.sender.clone();
        let what = "files with too few copies on tape cannot be looked for";
        blocking(
            &self.care.sender,
            move || logged(what, search.find(scope, || news.is_closed())),
            CareNews::FewCopies,
        );
    }

    pub(super) fn take_few_copies(&mut self, found: Option<FewCopies>) -> Vec<LibraryTask> {
        let further = &mut self.care.further_copies;
        let Some(pass) = &mut further.pass else {
            return Vec::new();
        };
        let Some(found) = found else {
            // The next pass begins anew.
            (further.pass, further.whole_due_ns) = (None, 0);
            return Vec::new();
        };
        let FewCopies {
            files,
            given_up,
            kept,
            has_poor_trash,
            next,
        } = found;
        further.kept_trash.extend(kept);
        pass.has_poor_trash |= has_poor_trash;
        if let Some(next) = next {
            pass.scopes.push_front(next);
        }
        let files = files.into_iter().map(|file| ListedFile {
            hint: 0,
            begin_bytes: 0,
            file: FileId(file.0),
            size_bytes: 0,
        });
        let moves = TapeMoves::new(MoveGoal::Copy, files.collect());
        pass.stage = Stage::Running(moves);
        let tape = pass.current.clone();
        let times = (self.now_ns(), self.care.config.copies_wait_ns);
        let live = self.engine.live();
        // It may have come back while its files were listed.
        let is_lost = tape.is_some_and(|tape| live.is_lost(&tape, times));
        let mut orders = Vec::new();
        if has_poor_trash {
            // All files are looked through until none is left that could be restored with too few copies.
            orders.extend(self.input(Input::ClassesCompared(String::new())));
        }
        let given_up = given_up.into_iter().filter(|_| is_lost);
        let lost = given_up.map(|(file, uris)| TapeOutcome::LostInTrash { file, uris });
        orders.extend(lost.map(LibraryTask::Tell));
        orders
    }

    /// The copy of a file on disk, which was to be written to tape, is not the file.
    pub(super) fn note_damaged(&mut self, file: FileId) {
        let moves = self.care.further_copies.moves();
        if !moves.is_some_and(|moves| moves.holds(file)) {
            return;
        }
        let what = "a file whose copy on disk is damaged cannot be looked up";
        let found = logged(what, self.namespace.tape_file(EntryId(file.0)));
        let Some(found) = found.flatten() else {
            return;
        };
        let uris = found.copies.iter();
        let uris = uris.filter_map(|copy| CopyUri::parse(&copy.uri));
        let copies: Vec<CopyUri> = uris.collect();
        let live = self.engine.live();
        let now_ns = self.now_ns();
        let times = (now_ns, self.care.config.copies_wait_ns);
        let is_good = copies.iter().any(|uri| live.is_good(file, &uri.copy));
        if let Some(tape) = tape_of_lost(live, &copies, times)
            && !is_good
        {
            let path = found.path;
            let lost = LostFile { file, path, tape };
            self.care.further_copies.note_lost(lost, now_ns);
        }
    }

    fn end_copy_pass(&mut self) -> Vec<LibraryTask> {
        let further = &mut self.care.further_copies;
        let Some(pass) = further.pass.take() else {
            return Vec::new();
        };
        further.tell_ends(pass.lost);
        for (tape, stays) in pass.stays {
            let of = (MoveKind::FurtherCopy, tape);
            tell_stays(&mut self.care.stays_told, of, stays.text());
        }
        if pass.copied_files > 0 {
            tracing::info!(
                files = pass.copied_files,
                "files on tape that had too few copies have further ones"
            );
        }
        match (pass.classes, pass.copied_files, pass.failed_files) {
            (Some(_), 0, 0) if pass.has_poor_trash => Vec::new(),
            (Some(classes), 0, 0) => self.input(Input::ClassesCompared(classes)),
            (Some(_), _, 0) => {
                // Whether all have enough now the next pass tells: some may want more than one.
                further.whole_due_ns = 0;
                Vec::new()
            }
            (_, _, _) => Vec::new(),
        }
    }
}

/// What classes want of files, where it decides about their copies.
fn words_of(classes: &ArchiveClasses, libraries: usize) -> String {
    let mut words = format!("{libraries} libraries");
    for class in &classes.0 {
        let (path, copies) = (&class.path, class.copies);
        let (min, max) = (class.size_min.0, class.size_max.0);
        let _ = write!(words, "; {copies} of {min} to {max} in {path}");
    }
    words
}
