//! What lies on a tape, as the namespace says it. A tape may hold millions of files: they are listed on another thread.

use super::super::copy_uri::{COPY_SCHEME, CopyUri};
use penstock_model::NamespacePath;
use penstock_persistence::namespace::{EntryId, Namespace, NamespaceError};
use penstock_tape::request::{FileId, LibraryName, TapeName};

/// Files that are looked up at once.
const PAGE_FILES: usize = 1_000;
/// Files of one listing; those behind them are found by the next one.
const LISTED_FILES_MAX: usize = 1_000_000;

/// A file on a tape. Its order is that in which files are read, or moved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::nearline) struct ListedFile {
    /// The place in the list of hints; behind all of them: it is in none.
    pub hint: usize,
    pub begin_bytes: u64,
    pub file: FileId,
    pub size_bytes: u64,
}

/// With which the names of all copies on a tape begin.
pub(super) fn prefix_of(library: &LibraryName, tape: &TapeName) -> String {
    format!("{COPY_SCHEME}{}/{}/", library.0, tape.0)
}

/// Files of a tape, in the order of hints, then in that in which they lie there. Blocks.
pub(super) fn list(
    namespace: &Namespace,
    prefix: &str,
    together: &[String],
) -> Result<Vec<ListedFile>, NamespaceError> {
    let hints = together.iter().map(|path| NamespacePath::parse(path).ok());
    let hints: Vec<Option<NamespacePath>> = hints.collect();
    let (mut listed, mut after) = (Vec::new(), String::new());
    while listed.len() < LISTED_FILES_MAX {
        let page = namespace.tape_copies_with(prefix, &after, PAGE_FILES)?;
        let Some((_, last)) = page.last() else { break };
        after.clone_from(last);
        let places = match hints.is_empty() {
            true => vec![0; page.len()],
            false => hint_places(namespace, &page, &hints)?,
        };
        for ((file, uri), hint) in page.iter().zip(places) {
            if let Some(uri) = CopyUri::parse(uri) {
                listed.push(ListedFile {
                    hint,
                    begin_bytes: uri.copy.begin_bytes,
                    file: FileId(file.0),
                    size_bytes: uri.size_bytes,
                });
            }
        }
    }
    listed.sort();
    Ok(listed)
}

/// Of each file the first hint that names it, or a directory above it.
fn hint_places(
    namespace: &Namespace,
    page: &[(EntryId, String)],
    hints: &[Option<NamespacePath>],
) -> Result<Vec<usize>, NamespaceError> {
    let ids: Vec<EntryId> = page.iter().map(|(file, _)| *file).collect();
    let found = namespace.tape_files_of(&ids)?;
    let places = found.into_iter().map(|file| {
        let path = file.map(|file| file.path)?;
        let is_named =
            |hint: &Option<NamespacePath>| hint.as_ref().is_some_and(|hint| path.is_within(hint));
        hints.iter().position(is_named)
    });
    Ok(places.map(|place| place.unwrap_or(hints.len())).collect())
}
