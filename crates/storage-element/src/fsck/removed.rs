//! Entries of an older copy of a namespace whose files were removed or replaced since: what was stored in their place since
//! then belongs where they stand.

use super::{Check, Facts, FsckFailure, RemovedEntry};
use crate::pool_files::PoolRoot;
use penstock_clock::wall_clock;
use penstock_model::{NamespacePath, PoolName};
use penstock_persistence::namespace::{Change, EntryId, EntryKind, Replace, TrashedFile};

impl Check<'_> {
    /// Puts into the trash what the directory logs have as removed, for as long as if it were removed now. An entry whose data is
    /// gone from a pool that is here goes altogether.
    pub(super) fn remove_again(&mut self) -> Result<(), FsckFailure> {
        let trashed: Vec<TrashedFile> = self.words.trashed().cloned().collect();
        for file in trashed {
            let Some(path) = self.namespace.path_of(file.file)? else {
                continue;
            };
            let has_data = self.has_data(&file.pool, file.file)?;
            if self.repair.mends {
                self.namespace.apply(Change::Remove {
                    path: path.clone(),
                    only: Some(file.file),
                    entries_max: 1,
                    by: file.by.clone(),
                    at: wall_clock(),
                })?;
                if !has_data {
                    self.namespace.apply(Change::ForgetTrash(vec![file.file]))?;
                }
            }
            let finding = RemovedEntry {
                path: path.to_string(),
                id: file.file.to_string(),
                pool: file.pool.to_string(),
                size: file.size.0,
                removed_ms: file.removed.0,
                has_data,
            };
            self.report.removed.add(finding, self.repair.mends);
            self.removed.insert(file.file);
        }
        Ok(())
    }

    /// What may stand where the label of a file says that the file belongs: an older file that has no data any more. Each path has
    /// one file at a time, so the younger one was there last.
    pub(super) fn replaceable(
        &self,
        place: &NamespacePath,
        facts: &Facts<'_>,
    ) -> Result<Replace, FsckFailure> {
        let (Some(label), Some(entry)) = (facts.label, self.namespace.lookup(place)?) else {
            return Ok(Replace::Refused);
        };
        let EntryKind::File { pool, .. } = &entry.kind else {
            return Ok(Replace::Refused);
        };
        let is_older = entry.created <= label.created;
        Ok(match is_older && !self.has_data(pool, entry.id)? {
            true => Replace::Only(entry.id),
            false => Replace::Refused,
        })
    }

    /// Whether a pool may have the data of a file. One that is not here may.
    fn has_data(&self, pool: &PoolName, file: EntryId) -> Result<bool, FsckFailure> {
        let is_it = |one: &&PoolRoot| one.name == *pool;
        let Some(pool) = self.pools.iter().find(is_it) else {
            return Ok(true);
        };
        let place = pool.place_of(file);
        let at = |source| FsckFailure::File {
            path: place.clone(),
            source,
        };
        Ok(
            place.try_exists().map_err(at)?
                || self.quarantined.contains(&(pool.name.clone(), file)),
        )
    }
}
