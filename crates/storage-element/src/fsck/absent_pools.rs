//! Pools that hold files and cannot be looked at: those that are not configured, and those that an operator says are lost.

use super::{Check, FsckFailure, FsckRequest, MissingData};
use crate::pool::IDS_PER_DIRECTORY;
use crate::pool_files::{PoolFilesError, PoolRoot, identity};
use penstock_model::PoolName;
use penstock_persistence::namespace::{Change, EntryId};

/// The pools to look at. Errors: a lost one is there after all; one is not there and nobody said that it is lost.
pub(super) fn present_pools(request: &FsckRequest) -> Result<Vec<PoolRoot>, FsckFailure> {
    let mut present = Vec::new();
    for pool in &request.pools {
        let is_lost = request.lost_pools.contains(&pool.name);
        match identity(pool) {
            Ok(_) if is_lost => return Err(FsckFailure::NotLost(pool.clone())),
            Ok(_) => present.push(pool.clone()),
            Err(PoolFilesError::Unreadable { .. }) if is_lost => {}
            Err(PoolFilesError::Unreadable { pool, path, source }) => {
                return Err(FsckFailure::Away { pool, path, source });
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(present)
}

impl Check<'_> {
    /// Tells the entries of a pool that cannot be looked at. Those of a lost one, and its trash, are removed where that was asked
    /// for.
    pub(super) fn miss_pool(&mut self, pool: &PoolName, is_lost: bool) -> Result<(), FsckFailure> {
        let is_removed = is_lost && self.repair.removes_missing;
        for group in self.namespace.id_groups(pool, IDS_PER_DIRECTORY)? {
            let from = EntryId(group * IDS_PER_DIRECTORY);
            let end = EntryId(from.0 + IDS_PER_DIRECTORY);
            for file in self.namespace.files_of_pool(pool, from, end)? {
                let path = self.namespace.path_of(file.id)?;
                let is_mended = match &path {
                    Some(path) if is_removed => self.remove_missing(path, file.id)?,
                    Some(_) | None => false,
                };
                let finding = MissingData {
                    path: path.map_or_else(|| file.name.clone(), |path| path.to_string()),
                    id: file.id.to_string(),
                    pool: pool.to_string(),
                    size: file.size.0,
                };
                self.report.missing.add(finding, is_mended);
            }
            if is_removed {
                let trash = self.namespace.trash_of_pool(pool, from, end)?;
                self.namespace
                    .apply(Change::ForgetTrash(trash.into_iter().collect()))?;
            }
        }
        Ok(())
    }
}
