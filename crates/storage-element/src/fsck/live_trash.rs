//! Files that an older copy of a namespace has as trash although they were restored since: left so, their data would be
//! removed when the trash is over its time.

use super::places::{no_place, places};
use super::{Check, FsckFailure, LiveTrashEntry, MissingData, PoolState};
use crate::pool_files::{OnDisk, PoolRoot};
use penstock_clock::wall_clock;
use penstock_model::NamespacePath;
use penstock_persistence::namespace::{Change, EntryId, TrashedFile};

impl Check<'_> {
    /// Holds a file of the trash against the last word of the logs.
    pub(super) fn look_at_trash(
        &mut self,
        pool: &PoolRoot,
        id: EntryId,
        data: Option<&OnDisk>,
    ) -> Result<(), FsckFailure> {
        let Some(trashed) = self.namespace.trashed(id)? else {
            return Ok(());
        };
        if trashed.is_evicted() {
            return Ok(());
        }
        let Some(place) = self.words.restored(&trashed) else {
            return Ok(());
        };
        let path = match place {
            Some((parent, name)) => self.path_in(parent, name)?,
            None => None,
        };
        let path = path.unwrap_or_else(|| trashed.path.clone());
        if data.is_none() {
            return self.miss_restored(pool, &trashed, &path);
        }
        let mut finding = LiveTrashEntry {
            path: path.to_string(),
            id: id.to_string(),
            pool: pool.name.to_string(),
            size: trashed.size.0,
            entered: None,
            why: None,
        };
        if self.repair.mends {
            let (entered, why) = self.restore(id, path)?;
            (finding.entered, finding.why) = (Some(entered.to_string()), why);
        }
        let is_mended = finding.entered.is_some();
        self.report.restored.add(finding, is_mended);
        Ok(())
    }

    /// The namespace knows directories that have moved since; the logs know those that it does not.
    pub(super) fn path_in(
        &self,
        parent: EntryId,
        name: &str,
    ) -> Result<Option<NamespacePath>, FsckFailure> {
        let known = self.namespace.path_of(parent)?;
        let directory = known.or_else(|| self.words.path_of(parent));
        Ok(directory.and_then(|directory| directory.child(name).ok()))
    }

    fn restore(
        &self,
        file: EntryId,
        path: NamespacePath,
    ) -> Result<(NamespacePath, Option<String>), FsckFailure> {
        let path = Some(path).filter(|path| !path.is_root());
        let mut why = None;
        for to in places(file, path) {
            let at = wall_clock();
            let change = Change::RestoreTrash {
                file,
                to: to.clone(),
                at,
            };
            match self.take_place(change)? {
                None => return Ok((to, why)),
                Some(taken) => why = why.or(Some(taken)),
            }
        }
        Err(no_place())
    }

    fn miss_restored(
        &mut self,
        pool: &PoolRoot,
        trashed: &TrashedFile,
        path: &NamespacePath,
    ) -> Result<(), FsckFailure> {
        let is_mended = self.may_remove(&pool.name, PoolState::InReach);
        if is_mended {
            let forgotten = Change::ForgetTrash {
                files: vec![trashed.file],
                at: wall_clock(),
            };
            self.mend(forgotten)?;
        }
        let finding = MissingData {
            path: path.to_string(),
            id: trashed.file.to_string(),
            pool: pool.name.to_string(),
            pool_state: PoolState::InReach,
            size: trashed.size.0,
        };
        self.tell_missing(finding, is_mended);
        Ok(())
    }
}
