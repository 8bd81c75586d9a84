//! Starting over after any end: pools are matched with their namespace, unfinished writes are removed, files that it does
//! not know go into quarantine, trash is counted. Refuses to start with a lost or old namespace; a disk that is not there
//! keeps nothing but its own files away.

use crate::config::{PoolConfig, StorageConfig};
use crate::open_error::OpenError;
use crate::pool::{Pool, identity_path};
use crate::pool_opening::Leftovers;
use crate::pool_watch::Upkeep;
use crate::private_files;
use crate::reaper::Pools;
use penstock_decide::pool_selection::PoolMode;
use penstock_model::Bytes;
use penstock_persistence::namespace::{Change, Namespace, TrashQuery};
use std::path::PathBuf;
use std::sync::Arc;

/// Takes from others on the machine what an earlier version, or whoever made the files, let them see of the namespace.
pub(crate) fn keep_namespace_private(config: &StorageConfig) {
    let database = &config.namespace;
    let beside = |suffix: &str| {
        let mut path = database.clone().into_os_string();
        path.push(suffix);
        PathBuf::from(path)
    };
    private_files::hide_all([database.clone(), beside("-wal"), beside("-shm")]);
}

/// Refuses to make a namespace where there is none while pools belong to one: it would be in the way of theirs.
pub(crate) fn refuse_lost_namespace(config: &StorageConfig) -> Result<(), OpenError> {
    if config.namespace.exists() {
        return Ok(());
    }
    let mut pools = config.pools.iter();
    let pool = pools
        .find(|pool| pool.mode != PoolMode::Disabled && identity_path(&pool.directory).exists());
    match pool {
        Some(pool) => Err(OpenError::NamespaceLost {
            path: config.namespace.clone(),
            pool: pool.name.clone(),
            directory: pool.directory.clone(),
        }),
        None => Ok(()),
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
