//! Copies on disk that are not what was written, of files that are on tape.

use super::Driver;
use super::asking::Lookup;
use crate::nearline::tape_system::TapeSystem;
use penstock_persistence::namespace::{EntryId, NearlineChange};

impl<S: TapeSystem> Driver<S> {
    /// The file is on tape only from now on. Its data stays where it is until a recall puts it out of its way, and goes when the file
    /// has come: what comes from tape may be none.
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
        let (name, at) = (pool.name.clone(), self.now());
        let lost = NearlineChange::LoseDiskCopy {
            file,
            pool: name.clone(),
            at,
        };
        if self.must(lost).await.is_none() {
            return;
        }
        tracing::error!(%file, pool = %name, "a damaged copy on disk counts no more; the file is read from tape");
        pool.bury(found.size);
        pool.release(found.size);
        self.context.put_faults.forget(file);
        // Whoever was told that it is on disk waits for it again.
        self.retries.add(file, Some((found.size, false)));
    }
}
