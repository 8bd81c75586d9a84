//! Copies on disk that are not what was written, of files that are on tape.

use super::asking::Lookup;
use super::{Driver, LOOK_WAIT};
use crate::nearline::tape_system::TapeSystem;
use crate::pool::Pool;
use penstock_model::PoolName;
use penstock_persistence::namespace::{EntryId, NearlineChange};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Data that was put out of the way of what comes from tape, and in which pool. It goes when the file has come, to whichever pool, or is
/// gone: what comes from tape may be none.
#[derive(Debug, Default)]
pub(super) struct SetAside(BTreeMap<EntryId, PoolName>);

impl<S: TapeSystem> Driver<S> {
    /// At a start: what was put out of the way before.
    pub(super) async fn find_set_aside(&mut self) {
        let pools: Vec<Arc<Pool>> = self.context.pools.values().cloned().collect();
        for pool in pools.into_iter().filter(|pool| pool.is_in_reach()) {
            let name = pool.name.clone();
            let found = on_disk(move || pool.files_before_recall()).await;
            match found {
                Ok(files) => {
                    let files = files.into_iter().map(|file| (file, name.clone()));
                    self.set_aside.0.extend(files);
                }
                Err(why) => {
                    tracing::warn!(pool = %name, %why, "damaged copies on disk that wait for what comes from tape are not known");
                }
            }
        }
    }

    /// The file is on tape only from now on.
    pub(super) async fn lose_damaged_copy(&mut self, file: EntryId) {
        let Lookup::File(found) = self.tape_file(file) else {
            return;
        };
        let pool = found.pool.and_then(|pool| self.context.pools.get(&pool));
        // A pool whose disk has just gone misses all of its files.
        let pool = pool.filter(|pool| pool.is_in_reach() && pool.is_laid_out());
        let Some(pool) = pool.cloned() else {
            return;
        };
        // First, while nothing comes from tape to where it is. Where the disk is slow, the file is one whose data is missing.
        let at = Arc::clone(&pool);
        if let Err(why) = on_disk(move || at.put_before_recall(file)).await {
            tracing::warn!(%file, pool = %pool.name, %why, "a damaged copy on disk cannot be put out of the way now");
            return;
        }
        let (name, at) = (pool.name.clone(), self.recorded());
        let lost = NearlineChange::LoseDiskCopy {
            file,
            pool: name.clone(),
            at,
        };
        if self.must(lost).await.is_none() {
            // It is in the trash by now, or is needed on disk: whoever removes or reads it finds it there.
            let at = Arc::clone(&pool);
            if let Err(why) = on_disk(move || at.take_back_before_recall(file)).await {
                tracing::warn!(%file, pool = %name, %why, "a damaged copy on disk stays out of the way");
            }
            return;
        }
        tracing::error!(%file, pool = %name, "a damaged copy on disk counts no more; the file is read from tape");
        pool.bury(found.size);
        pool.release(found.size);
        self.set_aside.0.insert(file, name);
        self.context.put_faults.forget(file);
        // Whoever was told that it is on disk waits for it again.
        self.retries.add(file, Some((found.size, false)));
    }

    /// What was put out of the way of files that are there again, or are gone.
    pub(super) async fn drop_set_aside(&mut self) {
        let files: Vec<EntryId> = self.set_aside.0.keys().copied().collect();
        for file in files {
            self.drop_set_aside_of(file).await;
        }
    }

    /// The same of one file.
    pub(super) async fn drop_set_aside_of(&mut self, file: EntryId) {
        let Some(name) = self.set_aside.0.get(&file) else {
            return;
        };
        let is_over = match self.tape_file(file) {
            Lookup::File(found) => found.pool.is_some(),
            Lookup::Gone => true,
            Lookup::Unknown => false,
        };
        let pool = self.context.pools.get(name);
        let pool = pool.filter(|pool| is_over && pool.is_in_reach());
        let Some(pool) = pool.cloned() else {
            return;
        };
        let name = pool.name.clone();
        match on_disk(move || pool.drop_before_recall(file)).await {
            Ok(()) => drop(self.set_aside.0.remove(&file)),
            Err(why) => {
                tracing::warn!(%file, pool = %name, %why, "a damaged copy on disk could not be removed; it is tried again");
            }
        }
    }
}

/// Does it on another thread. Errors: also when the disk does not answer.
async fn on_disk<T: Send + 'static>(
    task: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::time::timeout(LOOK_WAIT, tokio::task::spawn_blocking(task)).await;
    let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "the disk does not answer");
    done.map_err(silent)?.map_err(io::Error::other)?
}
