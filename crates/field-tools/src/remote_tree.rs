//! The files below a directory of a storage element, found by listing level after level.

use crate::bulk_copy::each_of;
use crate::remote::{Info, Remote, path_of};
use crate::remote_error::RemoteError;
use penstock_model::Bytes;
use std::sync::Arc;
use url::Url;

/// Files that one walk may find.
pub const FILES_MAX: usize = 1_000_000;
/// How deep directories may be nested.
const DEPTH_MAX: usize = 200;

/// What a walk found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteTree {
    /// Directories below the root, parents before children, as names from the root down.
    pub directories: Vec<Vec<String>>,
    pub files: Vec<RemoteFile>,
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

/// Finds everything below `root`, listing `parallel` directories at once.
pub async fn walk(remote: &Remote, root: &Url, parallel: usize) -> Result<RemoteTree, RemoteError> {
    let mut tree = RemoteTree::default();
    let depth = path_of(root)?.names().len();
    let mut level = vec![root.clone()];
    for _ in 0..DEPTH_MAX {
        let remote = Arc::new(remote.clone());
        let listings = each_of(level, parallel, |directory| {
            let remote = Arc::clone(&remote);
            async move { remote.list(&directory).await }
        })
        .await;
        level = Vec::new();
        for listing in listings {
            for info in listing? {
                let url = Url::parse(&info.url)
                    .map_err(|why| RemoteError::nonsense(root, why.to_string()))?;
                let names = path_of(&url)?
                    .names()
                    .get(depth..)
                    .unwrap_or_default()
                    .to_vec();
                match info.is_directory {
                    true => {
                        tree.directories.push(names);
                        level.push(url);
                    }
                    false => tree.files.push(RemoteFile {
                        url,
                        names,
                        size: info.size_bytes,
                        info,
                    }),
                }
            }
        }
        if tree.files.len() > FILES_MAX {
            break;
        }
        if level.is_empty() {
            tree.files.sort_by(|a, b| a.names.cmp(&b.names));
            return Ok(tree);
        }
    }
    Err(RemoteError::nonsense(
        root,
        format!("more than {FILES_MAX} files, or nested deeper than {DEPTH_MAX}; copy it in parts"),
    ))
}
