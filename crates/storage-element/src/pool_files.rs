//! The files of a pool as they lie on its disk, for tools that look at pools without serving them.

use crate::file_label::{Label, read_label};
use crate::pool::{IDS_PER_DIRECTORY, POOL_VERSION, PoolIdentity, identity_path, lock_pool};
use penstock_model::{Bytes, PoolName, Timestamp};
use penstock_persistence::namespace::EntryId;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thiserror::Error;
use uuid::Uuid;

/// A pool's name and directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRoot {
    /// As configured.
    pub name: PoolName,
    /// Where its files are.
    pub directory: PathBuf,
}

/// Why pools cannot be looked at.
#[derive(Debug, Error)]
pub enum PoolFilesError {
    /// A file or directory of a pool cannot be read.
    #[error("pool {pool}: {path} cannot be read: {source}; is its disk mounted and well?", path = path.display())]
    Unreadable {
        pool: PoolName,
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// `pool.json` is not what it should be.
    #[error("pool {pool}: {path} cannot be used: {why}", path = path.display())]
    Identity {
        pool: PoolName,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The pools are not of one namespace.
    #[error(
        "pool {one} belongs to namespace {one_namespace}, pool {other} to {other_namespace}: name pools of one \
         storage element only"
    )]
    TwoNamespaces {
        one: PoolName,
        one_namespace: Uuid,
        /// Another one.
        other: PoolName,
        other_namespace: Uuid,
    },
    /// A storage element, or another tool, uses the pool.
    #[error("pool {pool}: {path} is in use by another process; stop that one first", path = path.display())]
    InUse {
        pool: PoolName,
        /// Its directory.
        path: PathBuf,
    },
    #[error("no pool is configured, so there is nothing to look at")]
    NoPool,
}

/// What the pools say of themselves together.
pub(crate) struct CommonIdentity {
    pub namespace: Uuid,
    /// Files of the pools have ids below this.
    pub ids_below: u64,
    pub records_seen: u64,
}

/// Reads the marks of pools, which must be of one namespace.
pub(crate) fn marks(pools: &[PoolRoot]) -> Result<CommonIdentity, PoolFilesError> {
    let mut marks: Option<(PoolName, CommonIdentity)> = None;
    for pool in pools {
        let identity = identity(pool)?;
        let (first, known) = marks.get_or_insert_with(|| {
            let known = CommonIdentity {
                namespace: identity.namespace,
                ids_below: 0,
                records_seen: 0,
            };
            (pool.name.clone(), known)
        });
        if known.namespace != identity.namespace {
            return Err(PoolFilesError::TwoNamespaces {
                one: first.clone(),
                one_namespace: known.namespace,
                other: pool.name.clone(),
                other_namespace: identity.namespace,
            });
        }
        let ids_below = identity.ids_below.max(identity.low_water);
        known.ids_below = known.ids_below.max(ids_below.0);
        known.records_seen = known.records_seen.max(identity.records_seen);
    }
    marks.map(|(_, marks)| marks).ok_or(PoolFilesError::NoPool)
}

/// Keeps every other process off the pools as long as the files are open.
pub(crate) fn lock_pools(pools: &[PoolRoot]) -> Result<Vec<File>, PoolFilesError> {
    let mut locks = Vec::with_capacity(pools.len());
    for pool in pools {
        match lock_pool(&pool.directory) {
            Ok(lock) => locks.extend(lock),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                return Err(PoolFilesError::InUse {
                    pool: pool.name.clone(),
                    path: pool.directory.clone(),
                });
            }
            Err(source) => {
                return Err(pool.unreadable(pool.directory.join("pool.lock"), source));
            }
        }
    }
    Ok(locks)
}

fn identity(pool: &PoolRoot) -> Result<PoolIdentity, PoolFilesError> {
    let path = identity_path(&pool.directory);
    let text = std::fs::read(&path).map_err(|source| PoolFilesError::Unreadable {
        pool: pool.name.clone(),
        path: path.clone(),
        source,
    })?;
    let wrong = |why: String| PoolFilesError::Identity {
        pool: pool.name.clone(),
        path: path.clone(),
        why,
    };
    let identity: PoolIdentity =
        serde_json::from_slice(&text).map_err(|why| wrong(why.to_string()))?;
    if identity.version > POOL_VERSION {
        let version = identity.version;
        return Err(wrong(format!(
            "version {version} is newer than this program"
        )));
    }
    match identity.pool == pool.name {
        true => Ok(identity),
        false => Err(wrong(format!("it is of pool {}", identity.pool))),
    }
}

/// A file's data on the disk.
pub(crate) struct OnDisk {
    pub id: EntryId,
    pub path: PathBuf,
}

impl OnDisk {
    /// Its size and when it was last written.
    pub(crate) fn look(&self) -> io::Result<(Bytes, Timestamp)> {
        let metadata = std::fs::metadata(&self.path)?;
        let modified = metadata.mtime() * 1000 + metadata.mtime_nsec() / 1_000_000;
        Ok((Bytes(metadata.len()), Timestamp(modified)))
    }

    pub(crate) fn label(&self) -> io::Result<Option<Label>> {
        read_label(&self.path)
    }
}

impl PoolRoot {
    /// The numbers of its data directories, in order.
    pub(crate) fn data_directories(&self) -> Result<Vec<u64>, PoolFilesError> {
        let root = self.directory.join("data");
        let mut numbers = numbers_in(&root).map_err(|source| self.unreadable(root, source))?;
        numbers.sort_unstable_by_key(|(number, _)| *number);
        Ok(numbers.into_iter().map(|(number, _)| number).collect())
    }

    /// The files of one data directory, in the order of their ids.
    pub(crate) fn files_of(&self, directory: u64) -> Result<Vec<OnDisk>, PoolFilesError> {
        let path = self.directory.join("data").join(format!("{directory:x}"));
        let found = match numbers_in(&path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Vec::new(),
            found => found.map_err(|source| self.unreadable(path, source))?,
        };
        let mut files: Vec<OnDisk> = found
            .into_iter()
            .map(|(id, path)| OnDisk {
                id: EntryId(id),
                path,
            })
            .collect();
        files.sort_unstable_by_key(|file| file.id);
        Ok(files)
    }

    /// Where the data of a file belongs.
    pub(crate) fn place_of(&self, id: EntryId) -> PathBuf {
        let directory = format!("{:x}", id.0 / IDS_PER_DIRECTORY);
        self.directory
            .join("data")
            .join(directory)
            .join(id.to_string())
    }

    /// Files that a start has put aside because no entry knew them: `quarantine/<id>-<seconds since 1970>`. Unfinished uploads
    /// (`partial-…`) are not among them.
    pub(crate) fn quarantined(&self) -> Result<Vec<OnDisk>, PoolFilesError> {
        let root = self.directory.join("quarantine");
        let entries = match std::fs::read_dir(&root) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|source| self.unreadable(root.clone(), source))?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| self.unreadable(root.clone(), source))?;
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.split_once('-'));
            if let Some(id) = id.and_then(|(id, _)| u64::from_str_radix(id, 16).ok()) {
                files.push(OnDisk {
                    id: EntryId(id),
                    path: entry.path(),
                });
            }
        }
        files.sort_unstable_by_key(|file| file.id);
        Ok(files)
    }

    pub(crate) fn unreadable(&self, path: PathBuf, source: io::Error) -> PoolFilesError {
        PoolFilesError::Unreadable {
            pool: self.name.clone(),
            path,
            source,
        }
    }
}

/// What is called by a hexadecimal number.
fn numbers_in(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| u64::from_str_radix(name, 16).ok());
        if let Some(number) = number {
            found.push((number, entry.path()));
        }
    }
    Ok(found)
}
