//! The files below a local directory, in a stable order. What cannot be read or named is told, and the rest is found. Each directory
//! is opened from the one above it, so that none is entered through a link that has taken its place.

use crate::local_place::{Directory, FileVersion, LocalPlace, MissingDirectories};
use crate::local_source::LocalSource;
use crate::path_filter::PathFilter;
use crate::unfinished_downloads::is_part_name;
use penstock_model::NamespacePath;
use penstock_model::path::InvalidPath;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::fs::FileType;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Files that one walk may find, and problems.
pub const FILES_MAX: usize = 1_000_000;
/// How deep directories may be nested.
const DEPTH_MAX: usize = 200;

/// What a walk found.
#[derive(Debug, Default)]
pub struct LocalTree {
    /// Directories below the root, parents before children, as names from the root down.
    pub directories: Vec<Vec<String>>,
    /// Files, as names from the root down.
    pub files: Vec<LocalFile>,
    /// What is neither file nor directory, and parts of downloads.
    pub left_out: Vec<LeftOut>,
    /// Names from the root down of what may hide files that the filter takes, such as symbolic links with other names.
    pub passed_over: Vec<Vec<String>>,
    /// What is missing from all this, and why.
    pub problems: Vec<WalkError>,
}

/// One file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFile {
    pub source: LocalSource,
    /// Names from the root of the walk down.
    pub names: Vec<String>,
}

/// What a tree has beside files and directories that are its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub path: PathBuf,
    /// Names from the root of the walk down.
    pub names: Vec<String>,
    pub kind: SpecialKind,
}

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecialKind {
    /// Not followed, because a loop or a way out of the tree may hide behind it.
    SymbolicLink,
    Socket,
    Pipe,
    Device,
    /// What an interrupted copy has left, or has the name of such a file.
    UnfinishedDownload,
}

impl SpecialKind {
    fn of(kind: FileType) -> SpecialKind {
        match kind {
            _ if kind.is_symlink() => SpecialKind::SymbolicLink,
            _ if kind.is_socket() => SpecialKind::Socket,
            _ if kind.is_fifo() => SpecialKind::Pipe,
            _ => SpecialKind::Device,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            SpecialKind::SymbolicLink => "symbolic link",
            SpecialKind::Socket => "socket",
            SpecialKind::Pipe => "named pipe",
            SpecialKind::Device => "device",
            SpecialKind::UnfinishedDownload => "part of a download",
        }
    }
}

/// Why a tree, or a part of it, cannot be walked.
#[derive(Debug, Error)]
pub enum WalkError {
    /// A directory cannot be read.
    #[error("cannot read {}: {why}", shown(.path))]
    Unreadable {
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// A name that no URL can carry.
    #[error("{}: the name is not UTF-8; rename it", shown(.0))]
    NotUtf8(PathBuf),
    /// A name that no storage element can have.
    #[error("{}: {why}; rename it", shown(.path))]
    Name { path: PathBuf, why: InvalidPath },
    /// More than [`FILES_MAX`] files or too deep.
    #[error(
        "{} has more than {FILES_MAX} files or is nested deeper than {DEPTH_MAX}; copy it in parts", shown(.0)
    )]
    TooLarge(PathBuf),
}

impl WalkError {
    /// What it is about.
    pub fn path(&self) -> &Path {
        match self {
            WalkError::Unreadable { path, .. }
            | WalkError::Name { path, .. }
            | WalkError::NotUtf8(path)
            | WalkError::TooLarge(path) => path,
        }
    }
}

/// A path as people can read it and tell it from any other: bytes that are no text are written as `\xff`.
pub fn shown(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("a string takes all text");
        }
    }
    text
}

/// Finds everything below `root` that the filter takes.
pub fn walk(root: &Path, filter: &PathFilter) -> Result<LocalTree, WalkError> {
    let mut tree = LocalTree::default();
    // The root, and those on the way down to the directory that is read.
    let mut entered: Vec<Directory> = Vec::new();
    let mut waiting = vec![Vec::new()];
    while let Some(names) = waiting.pop() {
        entered.truncate(names.len());
        let (directory, entries) = match enter(root, entered.last(), &names) {
            Ok(read) => read,
            Err(why) if names.is_empty() => return Err(why),
            Err(why) => {
                tree.problems.push(why);
                continue;
            }
        };
        // The last one is entered first.
        for entry in entries.iter().rev() {
            match look_at(root, &directory, entry, &names) {
                Ok(Found::Directory(names)) if filter.enters(&names) => waiting.push(names),
                Ok(Found::File(file)) if filter.takes_file(&file.names) => tree.files.push(file),
                Ok(Found::Special(left_out)) if filter.takes_file(&left_out.names) => {
                    tree.left_out.push(left_out);
                }
                // To a filter it is a directory as well: nobody looks which.
                Ok(Found::Special(left_out)) if filter.enters(&left_out.names) => {
                    tree.passed_over.push(left_out.names);
                }
                Ok(Found::Directory(_) | Found::File(_) | Found::Special(_)) => {}
                Err(why) => tree.problems.push(why),
            }
        }
        if tree.files.len().max(tree.problems.len()) > FILES_MAX || names.len() > DEPTH_MAX {
            return Err(WalkError::TooLarge(root.to_owned()));
        }
        entered.push(directory);
        if !names.is_empty() {
            tree.directories.push(names);
        }
    }
    tree.files.sort_by(|a, b| a.names.cmp(&b.names));
    tree.left_out.sort_by(|a, b| a.names.cmp(&b.names));
    tree.problems.sort_by(|a, b| a.path().cmp(b.path()));
    keep_meant(&mut tree.directories, filter, &tree.files);
    Ok(tree)
}

/// Opens a directory from the one above it; the root by its path. Gives back what is in it, too.
fn enter(
    root: &Path,
    above: Option<&Directory>,
    names: &[String],
) -> Result<(Directory, Vec<OsString>), WalkError> {
    let missing = MissingDirectories::Refused;
    let opened = match (above, names.last()) {
        (Some(above), Some(name)) => above.enter(name.as_ref(), missing),
        (None, _) | (_, None) => Directory::open(root, missing),
    };
    let read = opened.and_then(|directory| Ok((directory.names()?, directory)));
    let (entries, directory) = read.map_err(|why| WalkError::Unreadable {
        path: root.join(names.iter().collect::<PathBuf>()),
        why,
    })?;
    Ok((directory, entries))
}

/// Leaves out directories in which nothing is that a filter takes.
fn keep_meant(directories: &mut Vec<Vec<String>>, filter: &PathFilter, files: &[LocalFile]) {
    if filter.is_empty() {
        return;
    }
    let holds_file = |names: &Vec<String>| {
        let at = files.partition_point(|file| file.names.as_slice() < names.as_slice());
        files
            .get(at)
            .is_some_and(|file| file.names.starts_with(names))
    };
    directories.retain(|names| filter.takes_directory(names) || holds_file(names));
}

enum Found {
    Directory(Vec<String>),
    File(LocalFile),
    Special(LeftOut),
}

fn look_at(
    root: &Path,
    directory: &Directory,
    name: &OsStr,
    above: &[String],
) -> Result<Found, WalkError> {
    let path = directory.path().join(name);
    let names = [above, &[valid_name(name, &path)?]].concat();
    let unreadable = |why| WalkError::Unreadable {
        path: path.clone(),
        why,
    };
    let found = directory.look(name).map_err(unreadable)?;
    let found = found.ok_or_else(|| unreadable(io::ErrorKind::NotFound.into()))?;
    let special = |kind| LeftOut {
        path: path.clone(),
        names: names.clone(),
        kind,
    };
    if names.last().is_some_and(|name| is_part_name(name)) {
        return Ok(Found::Special(special(SpecialKind::UnfinishedDownload)));
    }
    if found.is_dir() {
        return Ok(Found::Directory(names));
    }
    if !found.is_file() {
        return Ok(Found::Special(special(SpecialKind::of(found.file_type()))));
    }
    let place = LocalPlace::below(root, &names).expect("a name was given");
    let source = LocalSource::seen(place, FileVersion::of(&found));
    Ok(Found::File(LocalFile { source, names }))
}

/// The name of a file, when a storage element can have it.
pub fn valid_name(name: &OsStr, path: &Path) -> Result<String, WalkError> {
    let name = name
        .to_str()
        .ok_or_else(|| WalkError::NotUtf8(path.to_owned()))?;
    let checked = NamespacePath::root().child(name);
    checked.map_err(|why| WalkError::Name {
        path: path.to_owned(),
        why,
    })?;
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn joined(names: &[Vec<String>]) -> Vec<String> {
        names.iter().map(|names| names.join("/")).collect()
    }

    fn files_of(tree: &LocalTree) -> Vec<(String, u64)> {
        let files = tree.files.iter();
        files
            .map(|f| (f.names.join("/"), f.source.size().0))
            .collect()
    }

    fn made(root: &Path) {
        std::fs::create_dir_all(root.join("b/c")).expect("made");
        std::fs::create_dir_all(root.join("a")).expect("made");
        std::fs::write(root.join("b/c/f"), b"123").expect("written");
        std::fs::write(root.join("a/g"), b"").expect("written");
        std::os::unix::fs::symlink(root, root.join("a/loop")).expect("linked");
    }

    #[test]
    fn parents_come_before_children_and_links_are_not_followed() {
        let root = tempfile::tempdir().expect("a directory");
        made(root.path());
        let tree = walk(root.path(), &PathFilter::default()).expect("readable");
        assert_eq!(joined(&tree.directories), ["a", "b", "b/c"]);
        let expected = [("a/g".to_owned(), 0), ("b/c/f".to_owned(), 3)];
        assert_eq!(files_of(&tree), expected);
        let link = LeftOut {
            path: root.path().join("a/loop"),
            names: vec!["a".to_owned(), "loop".to_owned()],
            kind: SpecialKind::SymbolicLink,
        };
        assert_eq!(tree.left_out, [link]);
        assert!(tree.problems.is_empty());
    }

    #[test]
    fn a_link_that_has_taken_the_place_of_a_directory_is_not_entered() {
        let root = tempfile::tempdir().expect("a directory");
        made(root.path());
        let missing = MissingDirectories::Refused;
        let top = Directory::open(root.path(), missing).expect("opened");
        let read = |name: &str| enter(root.path(), Some(&top), &[name.to_owned()]);
        let (directory, entries) = read("b").expect("a directory");
        assert_eq!(entries, ["c"]);
        std::fs::rename(root.path().join("b"), root.path().join("aside")).expect("renamed");
        std::os::unix::fs::symlink("a", root.path().join("b")).expect("linked");
        let told = read("b").expect_err("a link").to_string();
        assert!(
            told.contains("b is a symbolic link, which is not followed"),
            "{told}"
        );
        let names = ["b".to_owned(), "c".to_owned()];
        let (_, entries) = enter(root.path(), Some(&directory), &names).expect("the same");
        assert_eq!(entries, ["f"]);
    }

    #[test]
    fn parts_of_downloads_are_no_files_of_the_tree() {
        let root = tempfile::tempdir().expect("a directory");
        made(root.path());
        for name in [".penstock-0123.part", ".penstock-0123.json"] {
            std::fs::write(root.path().join("b").join(name), b"x").expect("written");
        }
        let tree = walk(root.path(), &PathFilter::default()).expect("readable");
        assert_eq!(tree.files.len(), 2);
        let kinds: Vec<&str> = tree.left_out.iter().map(|one| one.kind.name()).collect();
        let part = "part of a download";
        assert_eq!(kinds, ["symbolic link", part, part]);
    }

    #[test]
    fn a_filter_takes_files_and_the_directories_that_hold_them() {
        let root = tempfile::tempdir().expect("a directory");
        made(root.path());
        let filter = PathFilter {
            include: vec!["f".parse().expect("a pattern")],
            exclude: Vec::new(),
        };
        let tree = walk(root.path(), &filter).expect("readable");
        assert_eq!(files_of(&tree), [("b/c/f".to_owned(), 3)]);
        assert_eq!(joined(&tree.directories), ["b", "b/c"]);
        assert!(tree.left_out.is_empty());
    }

    #[test]
    fn names_that_cannot_be_used_are_told_and_the_rest_is_found() {
        let root = tempfile::tempdir().expect("a directory");
        made(root.path());
        let bad = std::ffi::OsString::from_vec(b"b\xe4d".to_vec());
        std::fs::create_dir(root.path().join(&bad)).expect("made");
        std::fs::write(root.path().join(&bad).join("x"), b"").expect("written");
        std::fs::write(root.path().join("new\nline"), b"").expect("written");
        let tree = walk(root.path(), &PathFilter::default()).expect("readable");
        assert_eq!(tree.files.len(), 2);
        let mut told: Vec<String> = tree.problems.iter().map(ToString::to_string).collect();
        told.sort();
        let top = root.path().display();
        let expected = [
            format!("{top}/b\\xe4d: the name is not UTF-8; rename it"),
            format!(
                "{top}/new\nline: the path contains a character that no file name may have; rename it"
            ),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_link_that_no_filter_names_may_hide_files_that_it_takes() {
        let root = tempfile::tempdir().expect("made");
        for name in ["run", "old", "a.root"] {
            std::os::unix::fs::symlink("elsewhere", root.path().join(name)).expect("linked");
        }
        let filter = |include: &[&str], exclude: &[&str]| {
            let patterns = |texts: &[&str]| {
                let texts = texts.iter();
                texts.map(|text| text.parse().expect("a pattern")).collect()
            };
            PathFilter {
                include: patterns(include),
                exclude: patterns(exclude),
            }
        };
        let found = |include: &[&str], exclude: &[&str]| {
            let tree = walk(root.path(), &filter(include, exclude)).expect("walked");
            let left_out = tree.left_out.into_iter().map(|left_out| left_out.names);
            (
                left_out.flatten().collect::<Vec<_>>(),
                tree.passed_over.into_iter().flatten().collect::<Vec<_>>(),
            )
        };
        let of = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let got = found(&["*.root"], &["old"]);
        assert_eq!(got, (of(&["a.root"]), of(&["run"])));
        assert_eq!(found(&[], &[]), (of(&["a.root", "old", "run"]), of(&[])));
    }
}
