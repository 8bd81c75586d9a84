//! Starting over after any end: pools are matched with their namespace, unfinished writes are removed, files that it does
//! not know go into quarantine, trash is counted. Refuses to start with a lost or old namespace; a disk that is not there
//! keeps nothing but its own files away.

use crate::config::{PoolConfig, StorageConfig};
use crate::opening::Leftovers;
use crate::pool::Pool;
use crate::reaper::Pools;
use crate::upkeep::Upkeep;
use penstock_model::{Bytes, PoolName};
use penstock_persistence::namespace::{Change, ChangeError, Namespace, NamespaceError, TrashQuery};
use penstock_protocol::tls::TlsError;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use uuid::Uuid;

/// Why a storage element cannot start.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The namespace cannot be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// Recovery could not be written down.
    #[error("recovery cannot be recorded: {0}")]
    Change(#[from] ChangeError),
    /// No pool is configured.
    #[error("no pool is configured; add one [[storage.pools]] section with a name and a directory")]
    NoPool,
    /// A pool's name cannot be used.
    #[error("pool '{0}': a name has letters, digits, '-', '_' and '.', and names one pool only")]
    PoolName(PoolName),
    /// A pool's directory cannot be used.
    #[error("pool {pool}: {path} cannot be used: {source}", path = path.display())]
    PoolDirectory {
        /// The pool.
        pool: PoolName,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The directory belongs to another namespace, or to another pool of this one.
    #[error(
        "pool {pool}: {path} belongs to pool {theirs} of namespace {their_namespace}, not to this one \
         ({ours}); if the namespace database was lost, restore it from a backup; if this is another pool's \
         directory, correct the configuration; only if its data is worthless, empty the directory",
        path = path.display()
    )]
    ForeignPool {
        /// The pool as configured.
        pool: PoolName,
        /// Its directory.
        path: PathBuf,
        /// The pool's name in `pool.json`.
        theirs: PoolName,
        /// The namespace in `pool.json`.
        their_namespace: Uuid,
        /// The namespace that was opened.
        ours: Uuid,
    },
    /// The namespace is an old copy: files were written since it was made.
    #[error(
        "pool {pool}: {files} files are not in the namespace, or are trash there and were restored since: it is an older \
         copy than the pool has seen; restore a newer one, or have `penstock fsck --repair` enter these files again"
    )]
    OldNamespace {
        /// The pool.
        pool: PoolName,
        /// Files that it does not know.
        files: u64,
    },
    /// Another process uses the pool.
    #[error("pool {pool}: {path} is in use by another process; stop that one first", path = path.display())]
    PoolInUse {
        /// The pool.
        pool: PoolName,
        /// Its directory.
        path: PathBuf,
    },
    /// A directory without `pool.json` that is not empty.
    #[error(
        "pool {pool}: {path} is not empty and has no pool.json; use an empty directory or put it back",
        path = path.display()
    )]
    NotAPool {
        /// The pool.
        pool: PoolName,
        /// Its directory.
        path: PathBuf,
    },
    /// `pool.json` cannot be understood.
    #[error(
        "pool {pool}: {path} cannot be read: {why}; restore it from a backup",
        path = path.display()
    )]
    PoolIdentity {
        /// The pool.
        pool: PoolName,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The trust for outgoing connections cannot be read.
    #[error("outgoing connections: {0}")]
    Tls(#[from] TlsError),
    /// The system gives no thread.
    #[error("a thread cannot be started: {0}")]
    Thread(io::Error),
}

/// Takes from others on the machine what an earlier version, or whoever made the files, let them see of the namespace.
pub(crate) fn keep_namespace_private(config: &StorageConfig) {
    let database = &config.namespace;
    let beside = |suffix: &str| {
        let mut path = database.clone().into_os_string();
        path.push(suffix);
        PathBuf::from(path)
    };
    hide_all([database.clone(), beside("-wal"), beside("-shm")]);
}

/// The same of a pool: the directories are enough, however many files are in them.
pub(crate) fn keep_pool_private(pool: &Pool) {
    hide_all(
        ["incoming", "data", "partial", "quarantine", "pool.json"]
            .map(|name| pool.directory.join(name)),
    );
}

fn hide_all<const N: usize>(paths: [PathBuf; N]) {
    for path in paths {
        if let Err(why) = hide_from_others(&path) {
            let path = path.display();
            tracing::warn!(%path, %why, "others on this machine may be able to read it; chmod go-rwx");
        }
    }
}

fn hide_from_others(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(why),
    };
    let mode = metadata.permissions().mode() & 0o7777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => std::fs::set_permissions(path, Permissions::from_mode(mode & 0o7700)),
    }
}

/// Opens all pools of a namespace and cleans up after the last run. All are looked at before anything is changed in any.
/// Those that cannot be used now are left to their own threads, which try again.
pub(crate) fn recover(namespace: &Namespace, upkeep: &Upkeep) -> Result<(), OpenError> {
    upkeep.inspect_all()?;
    namespace.apply(Change::ReserveIds(namespace.first_id()))?;
    namespace.apply(Change::RaiseLowWater(namespace.first_id()))?;
    let Leftovers {
        unfinished,
        quarantined,
    } = upkeep.prepare_all()?;
    for (name, trash) in namespace.trash_usage(&TrashQuery::default())? {
        match upkeep.pools().get(&name) {
            Some(pool) => pool.occupy(trash),
            None => {
                let files = trash.files;
                tracing::warn!(pool = %name, files, "trash in a pool that is not configured stays");
            }
        }
    }
    if unfinished + quarantined > 0 {
        tracing::info!(
            unfinished,
            quarantined,
            "cleaned up what the last run left unfinished"
        );
    }
    Ok(())
}

/// The pools as they are configured, with what the namespace knows of them.
pub(crate) fn configured_pools(
    namespace: &Namespace,
    configs: &[PoolConfig],
    free_reserve: Bytes,
) -> Result<Pools, OpenError> {
    if configs.is_empty() {
        return Err(OpenError::NoPool);
    }
    let usage = namespace.pool_usage()?;
    let mut pools = Pools::new();
    for config in configs {
        let known = usage.get(&config.name).copied().unwrap_or_default();
        let name = config.name.as_str();
        let valid = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !valid || pools.contains_key(&config.name) {
            return Err(OpenError::PoolName(config.name.clone()));
        }
        let pool = Arc::new(Pool::new(config, known.bytes, free_reserve));
        pools.insert(config.name.clone(), pool);
    }
    for (name, known) in &usage {
        if known.files > 0 && !pools.contains_key(name) {
            let files = known.files;
            tracing::error!(pool = %name, files, "files are in a pool that is not configured");
        }
    }
    Ok(pools)
}
