//! Where files with too few copies are looked for: among those of a tape that is out of use, and among all. In the trash files get no
//! further copies, but what they have on a lost tape is given up once their data is known to be good elsewhere.

use super::super::copy_uri::CopyUri;
use super::super::disk_side::DiskSide;
use super::moves::comparison_of;
use crate::config::ArchiveClasses;
use penstock_persistence::namespace::{EntryId, Namespace, NamespaceError, TrashedFile};
use penstock_tape::repack::DiskComparison;
use penstock_tape::request::{FileId, TapeCopy, TapeName};
use penstock_tape::tape_care::UnreadableCopies;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Files that are looked up at once.
const PAGE_FILES: usize = 1_000;
/// Bytes of files in the trash that are read before the next of them are looked up.
const PAGE_READ_BYTES: u64 = 10_000_000_000;
/// Between two pages of a pass through all files.
const PAGE_PAUSE: Duration = Duration::from_millis(20);

/// What is looked through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// Copies of files on a tape that is out of use.
    Tape(TapeScope),
    /// The same, of files in the trash.
    Trash(TapeScope),
    /// All files with copies on tape.
    All { after: EntryId },
}

/// Copies on a tape: their names begin so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TapeScope {
    pub tape: TapeName,
    pub prefix: String,
    pub after: String,
}

/// Files that may have too few copies.
#[derive(Debug, Default)]
pub(in crate::nearline) struct FewCopies {
    pub(super) files: BTreeSet<EntryId>,
    /// Files of the trash, and their copies on the tape that is out of use, which are needed no more.
    pub(super) given_up: BTreeMap<EntryId, Vec<String>>,
    /// Files of the trash whose copies on that tape are all that is left of them.
    pub(super) kept: BTreeSet<EntryId>,
    /// Files of the trash have too few copies, and are to have more if they are restored.
    pub(super) has_poor_trash: bool,
    /// Where the pass goes on; `None`: it has come to the end of the scope.
    pub(super) next: Option<Scope>,
}

/// A search on another thread.
pub(super) struct CopySearch {
    pub namespace: Arc<Namespace>,
    pub disk: DiskSide,
    pub classes: ArchiveClasses,
    /// Each can have one copy of a file.
    pub libraries: usize,
    pub readable: BTreeSet<TapeName>,
    pub unreadable: UnreadableCopies,
    /// Files of the trash of which it is known that nothing but their copies on lost tapes is left.
    pub kept: BTreeSet<EntryId>,
}

impl CopySearch {
    /// The next files that may have too few copies. Blocks.
    pub(super) fn find(
        &self,
        scope: Scope,
        is_over: impl Fn() -> bool,
    ) -> Result<FewCopies, NamespaceError> {
        match scope {
            Scope::Tape(scope) => self.find_on_tape(scope),
            Scope::Trash(scope) => self.find_in_trash(scope, is_over),
            Scope::All { after } => self.find_in_all(after, is_over),
        }
    }

    fn find_on_tape(&self, scope: TapeScope) -> Result<FewCopies, NamespaceError> {
        let page = self
            .namespace
            .tape_copies_with(&scope.prefix, &scope.after, PAGE_FILES)?;
        let next = page.last().map(|(_, last)| {
            let after = last.clone();
            Scope::Tape(TapeScope { after, ..scope })
        });
        let ids: Vec<EntryId> = page.into_iter().map(|(file, _)| file).collect();
        let known = self.namespace.tape_files_of(&ids)?;
        let known = known.into_iter().flatten().map(|file| file.id);
        Ok(FewCopies {
            files: known.collect(),
            next,
            ..FewCopies::default()
        })
    }

    fn find_in_trash(
        &self,
        scope: TapeScope,
        is_over: impl Fn() -> bool,
    ) -> Result<FewCopies, NamespaceError> {
        let page = self
            .namespace
            .tape_copies_with(&scope.prefix, &scope.after, PAGE_FILES)?;
        let ids: Vec<EntryId> = page.iter().map(|(file, _)| *file).collect();
        let known = self.namespace.tape_files_of(&ids)?;
        let mut found = FewCopies::default();
        let (mut last, mut read_bytes) = (None, 0_u64);
        for ((file, uri), known) in page.into_iter().zip(known) {
            if read_bytes >= PAGE_READ_BYTES || is_over() {
                break;
            }
            last = Some(uri.clone());
            if known.is_some() {
                continue;
            }
            let trashed = self.namespace.trashed(file)?;
            let Some(trashed) = trashed.filter(|trashed| !trashed.is_evicted()) else {
                continue;
            };
            if self.has_good_copy(file)? {
                found.has_poor_trash = true;
            } else if self.kept.contains(&file) {
                continue;
            } else {
                read_bytes = read_bytes.saturating_add(trashed.size.0);
                match self.compare_trashed(&trashed, &is_over) {
                    DiskComparison::Same => {}
                    DiskComparison::Differs => {
                        found.kept.insert(file);
                        continue;
                    }
                    DiskComparison::Unknown => continue,
                }
            }
            found.given_up.entry(file).or_default().push(uri);
        }
        found.next = last.map(|after| Scope::Trash(TapeScope { after, ..scope }));
        Ok(found)
    }

    fn find_in_all(
        &self,
        mut after: EntryId,
        is_over: impl Fn() -> bool,
    ) -> Result<FewCopies, NamespaceError> {
        let mut found = FewCopies::default();
        loop {
            let page = self.namespace.tape_copies(after, PAGE_FILES)?;
            let Some((last, _)) = page.last() else {
                return Ok(found);
            };
            after = *last;
            let suspects = page.into_iter().filter(|(_, uris)| self.is_suspect(uris));
            let suspects: Vec<(EntryId, Vec<String>)> = suspects.collect();
            let ids: Vec<EntryId> = suspects.iter().map(|(file, _)| *file).collect();
            let known = self.namespace.tape_files_of(&ids)?;
            for ((file, uris), known) in suspects.into_iter().zip(known) {
                if known.is_some() {
                    found.files.insert(file);
                } else if !found.has_poor_trash {
                    found.has_poor_trash = self.is_poor_trash(file, &uris)?;
                }
            }
            if found.files.len() >= PAGE_FILES || is_over() {
                found.next = Some(Scope::All { after });
                return Ok(found);
            }
            std::thread::sleep(PAGE_PAUSE);
        }
    }

    /// A class may want more of these copies.
    fn is_suspect(&self, uris: &[String]) -> bool {
        let copies = self.classes.0.iter().map(|class| class.copies);
        let copies_max = copies.max().unwrap_or(1).max(1) as usize;
        let uris = uris.iter().filter_map(|uri| CopyUri::parse(uri));
        let tapes: Vec<TapeName> = uris.map(|uri| uri.copy.tape).collect();
        tapes.len() < copies_max || tapes.iter().any(|tape| !self.readable.contains(tape))
    }

    /// In the trash, and with fewer copies than its class wants.
    fn is_poor_trash(&self, file: EntryId, uris: &[String]) -> Result<bool, NamespaceError> {
        let trashed = self.namespace.trashed(file)?;
        let Some(trashed) = trashed.filter(|trashed| !trashed.is_evicted()) else {
            return Ok(false);
        };
        let class = self.classes.class_of(&trashed.path, trashed.size);
        let wanted = class.map_or(1, |class| class.copies).max(1) as usize;
        let uris = uris.iter().filter_map(|uri| CopyUri::parse(uri));
        let good = uris.filter(|uri| self.is_good(file, &uri.copy));
        let libraries: BTreeSet<_> = good.map(|uri| uri.library).collect();
        Ok(libraries.len() < wanted.min(self.libraries))
    }

    fn has_good_copy(&self, file: EntryId) -> Result<bool, NamespaceError> {
        let copies = self.namespace.tape_copies_of(file)?;
        let mut copies = copies
            .iter()
            .filter_map(|copy| Some(CopyUri::parse(&copy.uri)?.copy));
        Ok(copies.any(|copy| self.is_good(file, &copy)))
    }

    /// As [`penstock_tape::live_set::LiveSet::is_good`].
    fn is_good(&self, file: EntryId, copy: &TapeCopy) -> bool {
        self.readable.contains(&copy.tape) && !self.unreadable.contains(FileId(file.0), copy)
    }

    fn compare_trashed(&self, trashed: &TrashedFile, is_over: impl Fn() -> bool) -> DiskComparison {
        comparison_of(
            FileId(trashed.file.0),
            self.disk.read_trashed_as_written(trashed, is_over),
        )
    }
}
