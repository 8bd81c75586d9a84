//! Starting over after any end: pools are matched with their namespace, unfinished writes are removed,
//! trash is emptied. Refuses to start rather than delete data that a lost or old namespace does not know.

use crate::config::PoolConfig;
use crate::pool::{
    Label, POOL_VERSION, Pool, PoolIdentity, identity_path, sync_directory, write_label,
};
use crate::reaper::{self, Pools};
use penstock_model::{Bytes, NamespacePath, PoolName, Timestamp};
use penstock_persistence::namespace::{
    Change, ChangeError, EntryId, Namespace, NamespaceError, PoolUsage,
};
use penstock_protocol::tls::TlsError;
use std::collections::HashSet;
use std::fs::File;
use std::io;
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
    /// The namespace is an old copy: files may have been written since.
    #[error(
        "pool {pool}: the namespace is older than the pool's data (ids from {namespace} against {in_pool}); \
         it is an old copy, and starting would delete every file written since; restore a newer one"
    )]
    OldNamespace {
        /// The pool.
        pool: PoolName,
        /// The mark in the namespace.
        namespace: EntryId,
        /// The mark in the pool.
        in_pool: EntryId,
    },
    /// The namespace is an older copy from the same run, and there are files that it does not know.
    #[error(
        "pool {pool}: {files} files are not in the namespace, which is an older copy (it has recorded {namespace} \
         movers, the pool has seen {in_pool}); starting would delete them; restore a newer copy, or move these files away"
    )]
    CopyOfNamespace {
        /// The pool.
        pool: PoolName,
        /// Files that would be deleted.
        files: u64,
        /// What the namespace has recorded.
        namespace: u64,
        /// What it had recorded according to the pool.
        in_pool: u64,
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
    /// The namespace knows files in this pool and the directory is empty.
    #[error(
        "pool {pool}: {path} is empty, but the namespace knows {files} files there; is its disk mounted?",
        path = path.display()
    )]
    Vanished {
        /// The pool.
        pool: PoolName,
        /// Its directory.
        path: PathBuf,
        /// Files that should be there.
        files: u64,
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
    /// A pool's unfinished uploads cannot be read.
    #[error(
        "the unfinished uploads of a pool cannot be read: {0}; check the directory 'partial' of each pool"
    )]
    Uploads(io::Error),
    /// The system gives no thread.
    #[error("a thread cannot be started: {0}")]
    Thread(io::Error),
}

/// What recovery found and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Recovered {
    /// Files that were being written.
    pub unfinished: u64,
    /// Complete files that were never acknowledged.
    pub orphans: u64,
    /// Removed files whose data was still there.
    pub trash: u64,
}

/// Opens all pools of a namespace and cleans up after the last run.
pub(crate) fn recover(
    namespace: &Namespace,
    configs: &[PoolConfig],
    free_reserve: Bytes,
) -> Result<(Pools, Recovered), OpenError> {
    let pools = inspect_all(namespace, configs, free_reserve)?;
    let mut recovered = Recovered::default();
    for pool in pools.values() {
        let at = |path: PathBuf| move |source| directory_error(pool, path, source);
        for name in ["incoming", "data"] {
            let path = pool.directory.join(name);
            std::fs::create_dir_all(&path).map_err(at(path))?;
        }
        // The last run may have been killed after it made a directory there and before that was durable.
        sync_directory(&pool.data_root()).map_err(at(pool.data_root()))?;
        recovered.unfinished += pool
            .clear_incoming()
            .map_err(at(pool.directory.join("incoming")))?;
        recovered.orphans += remove_orphans(namespace, pool)?;
        check_labels(pool);
    }
    for trashed in namespace.trash(usize::MAX)? {
        if let Some(pool) = pools.get(&trashed.pool) {
            pool.occupy(trashed.size);
        }
    }
    recovered.trash = reaper::replay(namespace, &pools);
    namespace.apply(Change::RaiseLowWater(namespace.first_id()))?;
    write_identities(namespace, &pools)?;
    if recovered != Recovered::default() {
        let Recovered {
            unfinished,
            orphans,
            trash,
        } = recovered;
        tracing::info!(
            unfinished,
            orphans,
            trash,
            "removed what the last run left unfinished"
        );
    }
    Ok((pools, recovered))
}

/// Looks at every pool before anything is changed in any.
fn inspect_all(
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
        inspect(namespace, &pool, known)?;
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

/// Decides whether a pool's directory may be used with this namespace. Changes nothing.
fn inspect(namespace: &Namespace, probe: &Pool, known: PoolUsage) -> Result<(), OpenError> {
    let path = identity_path(&probe.directory);
    let pool = probe.name.clone();
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return inspect_new(probe, known),
        Err(source) => return Err(OpenError::PoolDirectory { pool, path, source }),
    };
    let identity: PoolIdentity = match serde_json::from_slice(&text) {
        Ok(identity) => identity,
        Err(why) => {
            let why = why.to_string();
            return Err(OpenError::PoolIdentity { pool, path, why });
        }
    };
    if identity.version > POOL_VERSION {
        let why = format!("version {} is newer than this program", identity.version);
        return Err(OpenError::PoolIdentity { pool, path, why });
    }
    if identity.namespace != namespace.uuid() || identity.pool != probe.name {
        return Err(OpenError::ForeignPool {
            pool,
            path: probe.directory.clone(),
            theirs: identity.pool,
            their_namespace: identity.namespace,
            ours: namespace.uuid(),
        });
    }
    if identity.low_water > namespace.low_water() {
        return Err(OpenError::OldNamespace {
            pool,
            namespace: namespace.low_water(),
            in_pool: identity.low_water,
        });
    }
    // A copy made during the run that wrote the mark has the same ids; how far it had come tells it apart.
    let records = namespace.records_ever()?;
    if identity.records_seen > records {
        let trash = namespace.trash(usize::MAX)?;
        let trash: HashSet<EntryId> = trash.iter().map(|trashed| trashed.file).collect();
        let unknown = orphans(namespace, probe)?;
        let files = unknown.iter().filter(|id| !trash.contains(id)).count() as u64;
        if files > 0 {
            return Err(OpenError::CopyOfNamespace {
                pool,
                files,
                namespace: records,
                in_pool: identity.records_seen,
            });
        }
    }
    Ok(())
}

/// A directory without `pool.json` becomes a pool only when it is empty and nothing is expected in it.
fn inspect_new(probe: &Pool, known: PoolUsage) -> Result<(), OpenError> {
    let (pool, path) = (probe.name.clone(), probe.directory.clone());
    let holds_anything = match std::fs::read_dir(&path) {
        // A fresh ext4 file system is not empty: it has `lost+found`.
        Ok(entries) => entries
            .flatten()
            .any(|entry| entry.file_name() != "lost+found" && !is_empty_layout(&entry.path())),
        Err(why) if why.kind() == io::ErrorKind::NotFound => false,
        Err(source) => return Err(OpenError::PoolDirectory { pool, path, source }),
    };
    if known.files > 0 {
        let files = known.files;
        return Err(OpenError::Vanished { pool, path, files });
    }
    if holds_anything {
        return Err(OpenError::NotAPool { pool, path });
    }
    Ok(())
}

/// An empty `incoming` or `data`, as a first start leaves when it is killed before it has written
/// `pool.json`.
fn is_empty_layout(path: &Path) -> bool {
    let ours = path
        .file_name()
        .is_some_and(|name| name == "incoming" || name == "data");
    ours && std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Complete files of the last run without an entry.
fn orphans(namespace: &Namespace, pool: &Pool) -> Result<Vec<EntryId>, OpenError> {
    let mut orphans = Vec::new();
    let mut failure = None;
    pool.each_file(namespace.low_water(), |id| {
        match namespace.holds_file(id, &pool.name) {
            Ok(true) => Ok(()),
            Ok(false) => {
                orphans.push(id);
                Ok(())
            }
            Err(why) => {
                failure = Some(why);
                Err(io::Error::other("the namespace cannot be read"))
            }
        }
    })
    .map_err(|source| match failure.take() {
        Some(why) => OpenError::Namespace(why),
        None => directory_error(pool, pool.data_root(), source),
    })?;
    Ok(orphans)
}

/// Removes complete files of the last run that never got an entry: nobody was told that they exist.
fn remove_orphans(namespace: &Namespace, pool: &Pool) -> Result<u64, OpenError> {
    let orphans = orphans(namespace, pool)?;
    // Trash has no entry either; its turn comes afterwards and finds the data gone, which is no error.
    for id in &orphans {
        pool.remove(*id)
            .map_err(|source| directory_error(pool, pool.data_path(*id), source))?;
    }
    Ok(orphans.len() as u64)
}

/// Tells an operator once when files cannot describe themselves.
fn check_labels(pool: &Pool) {
    let path = pool.directory.join("incoming").join("label-test");
    let label = Label {
        version: POOL_VERSION,
        path: NamespacePath::root(),
        size: Bytes(0),
        checksums: Vec::new(),
        owner: None,
        created: Timestamp(0),
    };
    let written = File::create(&path).and_then(|file| write_label(&file, &label));
    if let Err(why) = written {
        tracing::warn!(
            pool = %pool.name,
            %why,
            "files in this pool cannot describe themselves, so the namespace could not be rebuilt from it; \
             use a file system with extended attributes"
        );
    }
    // What stays is removed with the other unfinished files at the next start.
    let _ = std::fs::remove_file(&path);
}

/// Marks every pool as this namespace's, with how far the namespace had come.
pub(crate) fn write_identities(namespace: &Namespace, pools: &Pools) -> Result<(), OpenError> {
    let records_seen = namespace.records_ever()?;
    for pool in pools.values() {
        let identity = PoolIdentity {
            version: POOL_VERSION,
            pool: pool.name.clone(),
            namespace: namespace.uuid(),
            low_water: namespace.first_id(),
            records_seen,
        };
        let written = pool.write_identity(&identity);
        written.map_err(|source| directory_error(pool, identity_path(&pool.directory), source))?;
    }
    Ok(())
}

fn directory_error(pool: &Pool, path: PathBuf, source: io::Error) -> OpenError {
    OpenError::PoolDirectory {
        pool: pool.name.clone(),
        path,
        source,
    }
}
