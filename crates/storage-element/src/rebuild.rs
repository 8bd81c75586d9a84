//! Makes a lost namespace again from its pools. Reads pools and writes a database; file data is never touched.

use crate::pool_files::{CommonIdentity, PoolFilesError, PoolRoot, lock_pools, marks};
use penstock_clock::wall_clock;
use penstock_model::PoolName;
use penstock_persistence::namespace::{
    FoundFile, LogCondition, NamespaceError, NamespaceLock, PoolLogs, Rebuild, RebuildError,
    Rebuilt, take_place,
};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thiserror::Error;
use uuid::Uuid;

/// Files between two reports of progress.
const REPORT_EVERY: u64 = 1000;

/// What is to be made again.
#[derive(Debug, Clone)]
pub struct RebuildRequest {
    /// The database.
    pub namespace: PathBuf,
    /// All pools that belong to it.
    pub pools: Vec<PoolRoot>,
    /// A database that is there is kept under another name; otherwise it is an error.
    pub replace: bool,
    /// Only look what would become of it.
    pub dry_run: bool,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildProgress {
    /// Files that were looked at.
    pub done: u64,
    /// Files in all pools.
    pub total: u64,
}

/// What became of it.
#[derive(Debug, Clone)]
pub struct RebuildReport {
    /// The namespace's identity.
    pub namespace: Uuid,
    /// What it holds.
    pub rebuilt: Rebuilt,
    /// What each pool's directory log was found to be.
    pub logs: Vec<(PoolName, Result<LogCondition, String>)>,
    /// The last number in the log that goes furthest.
    pub sequence: u64,
    /// Files whose label could not be read although they are there.
    pub unreadable: Vec<(PathBuf, String)>,
    /// Files that lie in quarantine, and stay there.
    pub quarantined: u64,
    /// Where the database is that was there before.
    pub set_aside: Option<PathBuf>,
    /// How long it took.
    pub taken: Duration,
}

/// Why it could not be done. Then nothing has changed.
#[derive(Debug, Error)]
pub enum RebuildFailure {
    /// There is a namespace.
    #[error(
        "{path} exists; a rebuild would take its place: `penstock fsck --dir D` checks and mends it, `penstock rebuild \
         --dir D --replace` keeps it under another name and makes a new one",
        path = .0.display()
    )]
    Exists(PathBuf),
    /// It is in use.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A pool cannot be read.
    #[error(transparent)]
    Pool(#[from] PoolFilesError),
    /// A directory log cannot be read.
    #[error("a directory log cannot be read: {0}")]
    Log(io::Error),
    /// The new database cannot be written.
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
}

/// Makes the namespace again. Blocks for as long as it takes to read the label of each file.
pub fn rebuild(
    order: &RebuildRequest,
    progress: impl Fn(RebuildProgress),
) -> Result<RebuildReport, RebuildFailure> {
    let begun = Instant::now();
    let database = &order.namespace;
    let _lock = NamespaceLock::take(database)?;
    if database.exists() && !order.replace && !order.dry_run {
        return Err(RebuildFailure::Exists(database.clone()));
    }
    let CommonIdentity {
        namespace,
        ids_below,
        records_seen,
    } = marks(&order.pools)?;
    let _locks = lock_pools(&order.pools)?;
    let places = order.pools.iter();
    let places: Vec<_> = places
        .map(|pool| (pool.name.clone(), pool.directory.clone()))
        .collect();
    let mut logs = PoolLogs::read(namespace, &places).map_err(RebuildFailure::Log)?;
    let conditions = std::mem::take(&mut logs.conditions).into_iter().collect();
    let sequence = logs.sequence;
    let FileCount {
        total,
        quarantined,
        id_max,
    } = count(&order.pools, ids_below)?;
    let mut part = database.clone().into_os_string();
    part.push(".rebuilding");
    let part = PathBuf::from(part);
    let _ = std::fs::remove_file(&part);
    let part_guard = PartFile(&part);
    let mut rebuild = Rebuild::begin(&part, namespace, logs, id_max)?;
    let (mut done, mut unreadable) = (0, Vec::new());
    for pool in &order.pools {
        rebuild.know_pool(&pool.name)?;
        for directory in pool.data_directories()? {
            for file in pool.files_of(directory)? {
                let looked = file.look().and_then(|seen| Ok((seen, file.label()?)));
                let (size, modified, label) = match looked {
                    Ok(((size, modified), label)) => (size, modified, label),
                    Err(why) => {
                        unreadable.push((file.path.clone(), why.to_string()));
                        (penstock_model::Bytes(0), wall_clock(), None)
                    }
                };
                let found = FoundFile {
                    id: file.id,
                    size,
                    modified,
                    label: label.map(crate::file_label::Label::found),
                };
                rebuild.add(&pool.name, found)?;
                done += 1;
                if done % REPORT_EVERY == 0 {
                    progress(RebuildProgress { done, total });
                }
            }
        }
    }
    let rebuilt = rebuild.finish(&part, records_seen)?;
    let set_aside = match order.dry_run {
        true => None,
        false => take_place(&part, database, wall_clock()).map_err(RebuildError::File)?,
    };
    drop(part_guard);
    Ok(RebuildReport {
        namespace,
        rebuilt,
        logs: conditions,
        sequence,
        unreadable,
        quarantined,
        set_aside,
        taken: begun.elapsed(),
    })
}

/// The files of all pools.
struct FileCount {
    total: u64,
    quarantined: u64,
    /// The largest of their ids, and of those that were given.
    id_max: u64,
}

fn count(pools: &[PoolRoot], ids_below: u64) -> Result<FileCount, PoolFilesError> {
    let (mut total, mut quarantined, mut id_max) = (0, 0, ids_below);
    for pool in pools {
        for directory in pool.data_directories()? {
            let files = pool.files_of(directory)?;
            total += files.len() as u64;
            id_max = files.last().map_or(id_max, |file| id_max.max(file.id.0));
        }
        let aside = pool.quarantined()?;
        quarantined += aside.len() as u64;
        id_max = aside.last().map_or(id_max, |file| id_max.max(file.id.0));
    }
    Ok(FileCount {
        total,
        quarantined,
        id_max,
    })
}

/// Removed unless it has taken its place.
struct PartFile<'a>(&'a PathBuf);

impl Drop for PartFile<'_> {
    fn drop(&mut self) {
        // Gone when it has its name.
        let _ = std::fs::remove_file(self.0);
    }
}
