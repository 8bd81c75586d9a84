//! The files below a local directory, in a stable order.

use penstock_model::Bytes;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Files that one walk may find.
pub const FILES_MAX: usize = 1_000_000;
/// How deep directories may be nested.
const DEPTH_MAX: usize = 200;

/// What a walk found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LocalTree {
    /// Directories below the root, parents before children, as names from the root down.
    pub directories: Vec<Vec<String>>,
    /// Files, as names from the root down.
    pub files: Vec<LocalFile>,
    /// What is neither file nor directory, and links: not followed, because a loop or a way out of the tree
    /// may hide behind them.
    pub skipped: Vec<PathBuf>,
}

/// One file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFile {
    pub path: PathBuf,
    /// Names from the root of the walk down.
    pub names: Vec<String>,
    /// Its size when it was seen.
    pub size: Bytes,
}

/// Why a tree cannot be walked.
#[derive(Debug, Error)]
pub enum WalkError {
    /// A directory cannot be read.
    #[error("cannot read {path}: {why}")]
    Unreadable {
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// A name that no URL can carry.
    #[error("{0} has a name that is not UTF-8; rename it")]
    Name(PathBuf),
    /// More than [`FILES_MAX`] files or too deep.
    #[error(
        "{0} has more than {FILES_MAX} files or is nested deeper than {DEPTH_MAX}; copy it in parts"
    )]
    TooLarge(PathBuf),
}

/// Finds everything below `root`.
pub fn walk(root: &Path) -> Result<LocalTree, WalkError> {
    let mut tree = LocalTree::default();
    let mut open = vec![(root.to_owned(), Vec::new())];
    while let Some((directory, names)) = open.pop() {
        let mut entries = read_sorted(&directory)?;
        // The stack gives the last one first.
        entries.reverse();
        for entry in entries {
            let path = entry.path();
            let name = entry
                .file_name()
                .into_string()
                .map_err(|_| WalkError::Name(path.clone()))?;
            let unreadable = |why| WalkError::Unreadable {
                path: path.clone(),
                why,
            };
            let kind = entry.file_type().map_err(unreadable)?;
            let mut names = names.clone();
            names.push(name);
            if kind.is_dir() {
                open.push((path, names));
            } else if kind.is_file() {
                let size = Bytes(entry.metadata().map_err(unreadable)?.len());
                tree.files.push(LocalFile { path, names, size });
            } else {
                tree.skipped.push(path);
            }
        }
        if tree.files.len() > FILES_MAX || names.len() > DEPTH_MAX {
            return Err(WalkError::TooLarge(root.to_owned()));
        }
        if !names.is_empty() {
            tree.directories.push(names);
        }
    }
    tree.files.sort_by(|a, b| a.names.cmp(&b.names));
    Ok(tree)
}

fn read_sorted(directory: &Path) -> Result<Vec<std::fs::DirEntry>, WalkError> {
    let entries = std::fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut entries = entries.map_err(|why| WalkError::Unreadable {
        path: directory.to_owned(),
        why,
    })?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_before_children_and_links_are_not_followed() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("b/c")).expect("made");
        std::fs::create_dir_all(at("a")).expect("made");
        std::fs::write(at("b/c/f"), b"123").expect("written");
        std::fs::write(at("a/g"), b"").expect("written");
        std::os::unix::fs::symlink(root.path(), at("a/loop")).expect("linked");

        let tree = walk(root.path()).expect("readable");
        let joined: Vec<String> = tree
            .directories
            .iter()
            .map(|names| names.join("/"))
            .collect();
        assert_eq!(joined, ["a", "b", "b/c"]);
        let files: Vec<(String, u64)> = tree
            .files
            .iter()
            .map(|f| (f.names.join("/"), f.size.0))
            .collect();
        assert_eq!(files, [("a/g".to_owned(), 0), ("b/c/f".to_owned(), 3)]);
        assert_eq!(tree.skipped, [at("a/loop")]);
    }
}
