//! What the namespace knows of the tapes: which files lie on them, and how much of each is needed still. Found out whenever somebody
//! asks, so that it is what the namespace says; it reads all names of copies, a page at a time, and blocks.

use super::copy_uri::CopyUri;
use crate::config::ArchiveClasses;
use penstock_persistence::namespace::{EntryId, Namespace, NamespaceError};
use penstock_tape::live_set::LiveSet;
use penstock_tape::ok_to_stop::{CataloguedFile, StopAnswer, StopTarget, ok_to_stop};
use penstock_tape::request::{FamilyName, FileId, TapeName};
use serde::Serialize;
use std::collections::BTreeMap;
use std::vec::IntoIter;

/// Files that are read at once.
const PAGE_FILES: usize = 1_000;

/// Files with copies on tape, page by page. After an error there are no more.
struct Catalogue<'a> {
    namespace: &'a Namespace,
    after: EntryId,
    page: IntoIter<(EntryId, Vec<String>)>,
    is_over: bool,
    error: Option<NamespaceError>,
}

impl<'a> Catalogue<'a> {
    fn of(namespace: &'a Namespace) -> Catalogue<'a> {
        Catalogue {
            namespace,
            after: EntryId(0),
            page: Vec::new().into_iter(),
            is_over: false,
            error: None,
        }
    }

    fn next_file(&mut self) -> Option<(EntryId, Vec<String>)> {
        if let Some(file) = self.page.next() {
            return Some(file);
        }
        if self.is_over {
            return None;
        }
        match self.namespace.tape_copies(self.after, PAGE_FILES) {
            Ok(page) => {
                self.is_over = page.is_empty();
                self.after = page.last().map_or(self.after, |(file, _)| *file);
                self.page = page.into_iter();
            }
            Err(why) => {
                self.is_over = true;
                self.error = Some(why);
            }
        }
        self.page.next()
    }
}

impl Iterator for &mut Catalogue<'_> {
    type Item = CataloguedFile;

    fn next(&mut self) -> Option<CataloguedFile> {
        loop {
            let (file, uris) = self.next_file()?;
            let copies = uris.iter().filter_map(|uri| CopyUri::parse(uri));
            let copies: Vec<CopyUri> = copies.collect();
            if let Some(first) = copies.first() {
                return Some(CataloguedFile {
                    file: FileId(file.0),
                    size_bytes: first.size_bytes,
                    copies: copies.into_iter().map(|uri| uri.copy).collect(),
                });
            }
        }
    }
}

/// Whether something may be stopped. Errors: the namespace cannot be asked, so nobody knows.
pub(super) fn may_stop(
    namespace: &Namespace,
    live: &LiveSet,
    target: &StopTarget,
) -> Result<StopAnswer, NamespaceError> {
    let mut catalogue = Catalogue::of(namespace);
    let answer = ok_to_stop(live, target, &mut catalogue);
    match catalogue.error {
        None => Ok(answer),
        Some(why) => Err(why),
    }
}

/// How far a tape is written, as far as files that are known lie on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrittenTape {
    /// Of the last file.
    pub family: FamilyName,
    pub end_bytes: u64,
}

/// What files tell of the tapes on which they lie, when the records of the engine are lost.
pub(super) fn written_tapes(
    namespace: &Namespace,
    classes: &ArchiveClasses,
) -> Result<BTreeMap<TapeName, WrittenTape>, NamespaceError> {
    let mut tapes: BTreeMap<TapeName, WrittenTape> = BTreeMap::new();
    let mut after = EntryId(0);
    loop {
        let page = namespace.tape_copies(after, PAGE_FILES)?;
        let Some((last, _)) = page.last() else {
            return Ok(tapes);
        };
        after = *last;
        let ids: Vec<EntryId> = page.iter().map(|(file, _)| *file).collect();
        let files = namespace.tape_files_of(&ids)?;
        for ((_, uris), file) in page.iter().zip(files) {
            // What is in the trash tells of no class.
            let Some(file) = file else { continue };
            for uri in uris.iter().filter_map(|uri| CopyUri::parse(uri)) {
                let end_bytes = uri.copy.begin_bytes.saturating_add(uri.size_bytes);
                let family = classes.family_of(&file.path, file.size);
                let written = WrittenTape {
                    family: FamilyName(family.into()),
                    end_bytes,
                };
                let known = tapes
                    .entry(uri.copy.tape)
                    .or_insert_with(|| written.clone());
                if known.end_bytes < end_bytes {
                    *known = written;
                }
            }
        }
    }
}

/// What of a tape is needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct LiveBytes {
    pub files: u64,
    pub bytes: u64,
}

/// What of each tape is needed: by files, by trash, and by files that were removed and may be brought back for a while.
pub(crate) fn live_bytes(
    namespace: &Namespace,
) -> Result<BTreeMap<TapeName, LiveBytes>, NamespaceError> {
    let mut tapes: BTreeMap<TapeName, LiveBytes> = BTreeMap::new();
    let mut add = |uri: &str| {
        if let Some(uri) = CopyUri::parse(uri) {
            let live = tapes.entry(uri.copy.tape).or_default();
            live.files += 1;
            live.bytes = live.bytes.saturating_add(uri.size_bytes);
        }
    };
    let mut catalogue = Catalogue::of(namespace);
    while let Some((_, uris)) = catalogue.next_file() {
        uris.iter().for_each(|uri| add(uri));
    }
    if let Some(why) = catalogue.error {
        return Err(why);
    }
    let mut after = String::new();
    loop {
        let page = namespace.owed_tape_removals(&after, PAGE_FILES)?;
        let Some(last) = page.last() else {
            return Ok(tapes);
        };
        after.clone_from(last);
        page.iter().for_each(|uri| add(uri));
    }
}
