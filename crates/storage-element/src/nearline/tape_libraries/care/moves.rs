//! Files of a tape that are moved to others: all of them, so that it can be written anew, or those whose copy there cannot be read.

use super::super::copy_uri::CopyUri;
use super::super::disk_side::DiskSide;
use super::super::request_kind::RequestKind;
use super::listing::ListedFile;
use crate::config::ArchiveClasses;
use crate::reaper::Pools;
use penstock_model::Archival;
use penstock_persistence::namespace::{EntryId, Namespace, NamespaceError, TapeFile};
use penstock_tape::data_set::{DataSet, DataSetName, HintSource};
use penstock_tape::repack::{LiveFile, MoveWork, Repack, RepackOrder, RepackStep};
use penstock_tape::request::{
    Asker, FamilyName, FileId, RequestId, RequestOutcome, TapeName, VoName,
};
use std::collections::{BTreeSet, VecDeque};

/// Files that are looked up, and in the request engine, at once.
const BATCH_FILES: usize = 1_000;

/// What of a file has to be known to move it.
pub(super) struct MoveContext<'a> {
    pub namespace: &'a Namespace,
    pub pools: &'a Pools,
    pub classes: &'a ArchiveClasses,
    pub part_bytes: u64,
}

/// How far the files of one tape are.
pub(super) struct TapeMoves {
    pub tape: TapeName,
    /// Only files whose copies there cannot be read.
    is_mending: bool,
    together: Vec<String>,
    /// Not looked up yet.
    left: VecDeque<ListedFile>,
    batch: Repack,
    pub moved_files: u64,
}

/// What may be done now.
#[derive(Default)]
pub(super) struct NextMoves {
    pub orders: Vec<RepackOrder>,
    /// Files without a copy on the tape any more.
    pub gone: Vec<FileId>,
    /// Files of which there is nothing but a copy that cannot be read.
    pub hopeless: Vec<FileId>,
}

impl TapeMoves {
    pub(super) fn new(
        tape: TapeName,
        is_mending: bool,
        together: Vec<String>,
        files: Vec<ListedFile>,
    ) -> TapeMoves {
        TapeMoves {
            batch: Repack::new(tape.clone(), asker(), 0, []),
            tape,
            is_mending,
            together,
            left: files.into(),
            moved_files: 0,
        }
    }

    /// Nothing is left that could be moved now.
    pub(super) fn is_done(&self) -> bool {
        self.left.is_empty() && self.batch.is_done()
    }

    /// Files that were not looked up yet, or are being moved.
    pub(super) fn left_files(&self) -> u64 {
        (self.left.len() + self.batch.left_files()) as u64
    }

    pub(super) fn open_files(&self) -> impl Iterator<Item = FileId> {
        self.batch.files()
    }

    /// Whether the copy of a file on disk is needed for it.
    pub(super) fn holds(&self, file: FileId) -> bool {
        self.batch.files().any(|held| held == file)
    }

    /// What may be asked for now. Some files are passed over.
    pub(super) fn next(
        &mut self,
        context: &MoveContext<'_>,
        is_skipped: impl Fn(FileId) -> bool,
    ) -> Result<NextMoves, NamespaceError> {
        let mut next = NextMoves::default();
        while self.batch.is_done() && !self.left.is_empty() {
            let (mut listed, mut ids) = (Vec::new(), Vec::new());
            while let Some(one) = self.left.pop_front() {
                // What is moved for another reason already.
                if !is_skipped(one.file) {
                    ids.push(EntryId(one.file.0));
                    listed.push(one);
                }
                if ids.len() >= BATCH_FILES {
                    break;
                }
            }
            let found = match context.namespace.tape_files_of(&ids) {
                Ok(found) => found,
                Err(why) => {
                    listed
                        .into_iter()
                        .rev()
                        .for_each(|one| self.left.push_front(one));
                    return Err(why);
                }
            };
            let mut files = Vec::new();
            for (one, found) in listed.into_iter().zip(found) {
                let live = found.and_then(|found| self.live_file(context, &one, &found));
                match live {
                    Some(live) if live.is_unreadable && !has_source(&live) => {
                        next.hopeless.push(one.file);
                    }
                    Some(live) => files.push(live),
                    None => next.gone.push(one.file),
                }
            }
            self.batch = Repack::new(self.tape.clone(), asker(), context.part_bytes, files);
        }
        next.orders = self.batch.next(|work, file| {
            let kind = match work {
                MoveWork::Read => RequestKind::MoveRead,
                MoveWork::Write => RequestKind::MoveWrite,
            };
            kind.of_file(file)
        });
        Ok(next)
    }

    /// `None`: it has no copy there any more.
    fn live_file(
        &self,
        context: &MoveContext<'_>,
        listed: &ListedFile,
        found: &TapeFile,
    ) -> Option<LiveFile> {
        let uris = found
            .copies
            .iter()
            .filter_map(|copy| CopyUri::parse(&copy.uri));
        let (here, elsewhere): (Vec<CopyUri>, Vec<CopyUri>) =
            uris.partition(|uri| uri.copy.tape == self.tape);
        let begins_here = here.first()?.copy.begin_bytes;
        if found.archival != Archival::Cached || begins_here != listed.begin_bytes {
            return None;
        }
        let class = context.classes.class_of(&found.path, found.size);
        let pool = found.pool.as_ref().and_then(|pool| context.pools.get(pool));
        let not_in: BTreeSet<_> = elsewhere.iter().map(|uri| uri.library.clone()).collect();
        let copies = here.into_iter().chain(elsewhere);
        Some(LiveFile {
            file: listed.file,
            size_bytes: found.size.0,
            copies: copies.map(|uri| uri.copy).collect(),
            not_in,
            family: FamilyName(context.classes.family_of(&found.path, found.size).into()),
            is_packed: class.is_some_and(|class| found.size < class.packed_below),
            data_set: self.together.get(listed.hint).map(|hint| data_set(hint)),
            is_on_disk: pool.is_some_and(|pool| pool.is_in_reach()),
            is_unreadable: self.is_mending,
        })
    }

    pub(super) fn told(
        &mut self,
        request: RequestId,
        outcome: &RequestOutcome,
    ) -> Option<RepackStep> {
        let step = self.batch.told(request, outcome);
        self.count(step)
    }

    pub(super) fn compared(&mut self, file: FileId, is_same: bool) -> Option<RepackStep> {
        let step = self.batch.compared(file, is_same);
        self.count(step)
    }

    fn count(&mut self, step: Option<RepackStep>) -> Option<RepackStep> {
        match &step {
            Some(RepackStep::Moved { .. }) => self.moved_files += 1,
            Some(RepackStep::OnDisk(_) | RepackStep::Stays { .. }) | None => {}
        }
        step
    }
}

/// Whether it can come from elsewhere than its place on the tape.
fn has_source(file: &LiveFile) -> bool {
    file.is_on_disk || file.copies.len() > 1
}

/// Files that a hint names lie beside each other.
fn data_set(hint: &str) -> DataSet {
    DataSet {
        name: DataSetName(vec![hint.into()]),
        expected_files: None,
        expected_bytes: None,
        source: HintSource::Path,
        has_blank_hints: false,
    }
}

pub(super) fn asker() -> Asker {
    Asker {
        vo: VoName("site".into()),
        priority: 0,
        deadline_ns: None,
        // It is canceled at the next start.
        lease_ns: i64::MAX,
    }
}

/// Whether the copy of a file on disk is what is known of the file. Blocks.
pub(super) fn is_same_on_disk(disk: &DiskSide, file: FileId) -> bool {
    match disk.is_as_written(file) {
        Ok(true) => true,
        Ok(false) => {
            tracing::error!(
                file = file.0,
                "the copy on disk of a file is damaged: its checksum differs"
            );
            false
        }
        Err(why) => {
            tracing::warn!(file = file.0, %why, "the copy on disk of a file cannot be compared now");
            false
        }
    }
}
