//! The files below a directory of a storage element, found by listing level after level. What cannot be listed is told, and
//! the rest is found.

use crate::bulk_copy::each_of;
use crate::path_filter::PathFilter;
use crate::remote::{Info, Remote, path_of};
use crate::remote_error::RemoteError;
use penstock_model::{Bytes, NamespacePath};
use std::sync::Arc;
use url::Url;

/// Files that one walk may find.
pub const FILES_MAX: usize = 1_000_000;
/// How deep directories may be nested.
const DEPTH_MAX: usize = 200;

/// What a walk found.
#[derive(Debug, Default)]
pub struct RemoteTree {
    /// Directories below the root, parents before children.
    pub directories: Vec<RemoteDirectory>,
    pub files: Vec<RemoteFile>,
    /// What is missing from all this, and why.
    pub problems: Vec<RemoteError>,
}

/// One directory of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteDirectory {
    pub url: Url,
    /// Names from the root of the walk down.
    pub names: Vec<String>,
    /// The rest of what the listing told.
    pub info: Info,
}

/// One file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    pub url: Url,
    /// Names from the root of the walk down.
    pub names: Vec<String>,
    pub size: Option<Bytes>,
    /// The rest of what the listing told.
    pub info: Info,
}

/// Finds everything below `root` that the filter takes, listing `parallel` directories at once.
pub async fn walk(
    remote: &Remote,
    root: &Url,
    parallel: usize,
    filter: &PathFilter,
) -> Result<RemoteTree, RemoteError> {
    let mut tree = RemoteTree::default();
    let top = path_of(root)?;
    let mut level = vec![root.clone()];
    for depth in 0..DEPTH_MAX {
        let remote = Arc::new(remote.clone());
        let listings = each_of(level, parallel, |directory| {
            let remote = Arc::clone(&remote);
            async move {
                let listing = remote.list(&directory).await;
                (directory, listing)
            }
        })
        .await;
        level = Vec::new();
        for (directory, listing) in listings {
            let listing = match listing {
                Ok(listing) => listing,
                Err(why) if depth == 0 => return Err(why),
                Err(why) => {
                    tree.problems.push(why);
                    continue;
                }
            };
            for href in listing.unnameable {
                let detail = format!("it lists '{href}', which is not a valid path");
                tree.problems
                    .push(RemoteError::nonsense(&directory, detail));
            }
            for info in listing.entries {
                let Some((url, names)) = place_below(&top, &info) else {
                    let detail = format!("it lists {}, which is elsewhere", info.url);
                    tree.problems
                        .push(RemoteError::nonsense(&directory, detail));
                    continue;
                };
                match info.is_directory {
                    true if filter.enters(&names) => {
                        level.push(url.clone());
                        tree.directories.push(RemoteDirectory { url, names, info });
                    }
                    false if filter.takes_file(&names) => tree.files.push(RemoteFile {
                        url,
                        names,
                        size: info.size_bytes,
                        info,
                    }),
                    true | false => {}
                }
            }
        }
        if tree.files.len().max(tree.problems.len()) > FILES_MAX {
            break;
        }
        if level.is_empty() {
            tree.files.sort_by(|a, b| a.names.cmp(&b.names));
            keep_meant(&mut tree.directories, filter, &tree.files);
            return Ok(tree);
        }
    }
    Err(RemoteError::nonsense(
        root,
        format!("more than {FILES_MAX} files, or nested deeper than {DEPTH_MAX}; copy it in parts"),
    ))
}

/// Where an entry is below the top; `None` when it is not.
fn place_below(top: &NamespacePath, info: &Info) -> Option<(Url, Vec<String>)> {
    let url = Url::parse(&info.url).ok()?;
    let path = path_of(&url).ok()?;
    let names = path.names().get(top.names().len()..)?.to_vec();
    // A walk of a file finds the file.
    let is_below = !names.is_empty() || !info.is_directory;
    (path.is_within(top) && is_below).then_some((url, names))
}

/// Leaves out directories in which nothing is that a filter takes.
fn keep_meant(directories: &mut Vec<RemoteDirectory>, filter: &PathFilter, files: &[RemoteFile]) {
    if filter.is_empty() {
        return;
    }
    let holds_file = |names: &[String]| {
        let at = files.partition_point(|file| file.names.as_slice() < names);
        files
            .get(at)
            .is_some_and(|file| file.names.starts_with(names))
    };
    directories.retain(|directory| {
        filter.takes_directory(&directory.names) || holds_file(&directory.names)
    });
}
