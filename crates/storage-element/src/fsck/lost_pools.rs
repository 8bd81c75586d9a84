//! Pools whose files cannot be looked at: they are not configured, or their disk is away. They may come back, so their entries
//! are removed only for whoever names the pool.

use super::{Check, FsckFailure, MissingData, PoolState};
use crate::pool::IDS_PER_DIRECTORY;
use crate::pool_files::{PoolFilesError, PoolRoot, marks};
use penstock_clock::wall_clock;
use penstock_model::PoolName;
use penstock_persistence::namespace::{Change, EntryId};
use std::collections::{BTreeMap, BTreeSet};

/// The pools whose files can be looked at, and those that are away. Errors: all are away, told of the first.
pub(super) fn in_reach(
    pools: &[PoolRoot],
) -> Result<(Vec<PoolRoot>, BTreeMap<PoolName, PoolState>), FsckFailure> {
    let (mut there, mut away, mut first) = (Vec::new(), BTreeMap::new(), None);
    for pool in pools {
        match marks(std::slice::from_ref(pool)) {
            Ok(_) => there.push(pool.clone()),
            Err(why @ PoolFilesError::Unreadable { .. }) => {
                first = first.or(Some(why));
                away.insert(pool.name.clone(), PoolState::Away);
            }
            Err(other) => return Err(other.into()),
        }
    }
    match first {
        Some(why) if there.is_empty() => Err(why.into()),
        Some(_) | None => Ok((there, away)),
    }
}

impl Check<'_> {
    /// Tells of all entries in pools that are out of reach.
    pub(super) fn look_at_lost_pools(
        &mut self,
        with_files: &BTreeSet<PoolName>,
        away: &BTreeMap<PoolName, PoolState>,
    ) -> Result<(), FsckFailure> {
        for name in with_files.iter().chain(self.only_pool) {
            if self.pools.iter().any(|pool| pool.name == *name) {
                continue;
            }
            let state = away.get(name).copied();
            self.look_at_lost_pool(name, state.unwrap_or(PoolState::NotConfigured))?;
        }
        Ok(())
    }

    fn look_at_lost_pool(&mut self, pool: &PoolName, state: PoolState) -> Result<(), FsckFailure> {
        let is_named = self.only_pool == Some(pool);
        for group in self.namespace.id_groups(pool, IDS_PER_DIRECTORY)? {
            let from = EntryId(group * IDS_PER_DIRECTORY);
            let end = EntryId(from.0 + IDS_PER_DIRECTORY);
            for file in self.namespace.files_of_pool(pool, from, end)? {
                if self.settled.insert(file.id) {
                    self.miss(pool, state, &file)?;
                }
            }
            if is_named && self.repair.removes_missing {
                let trash = self.namespace.trash_of_pool(pool, from, end)?;
                let forgotten = Change::ForgetTrash {
                    files: trash.into_iter().collect(),
                    at: wall_clock(),
                };
                self.mend(forgotten)?;
            }
        }
        Ok(())
    }

    /// Entries of a pool that answers may be removed when no other pool is named.
    /// The copy on disk of a file that is on tape may be given up.
    pub(super) fn may_lose(&self, pool: &PoolName, state: PoolState) -> bool {
        let is_looked_at = state == PoolState::InReach && self.repair.mends;
        is_looked_at || self.may_remove(pool, state)
    }

    pub(super) fn may_remove(&self, pool: &PoolName, state: PoolState) -> bool {
        let is_meant = match self.only_pool {
            Some(only) => only == pool,
            None => state == PoolState::InReach,
        };
        is_meant && self.repair.removes_missing
    }

    pub(super) fn tell_missing(&mut self, finding: MissingData, is_mended: bool) {
        if finding.pool_state == PoolState::Away {
            let away = &mut self.report.pools_away;
            *away.entry(finding.pool.clone()).or_default() += u64::from(!is_mended);
        }
        self.report.missing.add(finding, is_mended);
    }
}
