//! Room on disk: copies of files that are on tape leave pools that have become full.

use super::driver::{Driver, Lookup};
use super::tape_system::TapeSystem;
use crate::pool::Pool;
use penstock_model::Bytes;
use penstock_persistence::namespace::{EntryId, NearlineChange};
use std::sync::Arc;

/// Files that are looked up at once.
const PAGE_FILES: usize = 200;
/// Pages in one look; the next one goes on.
const PAGES_MAX: usize = 50;

/// What is missing of the free space that is kept, or of what a file that waits needs; `None`: nothing, or not known.
fn missing(
    used: Bytes,
    available: Bytes,
    keep_free_permille: u16,
    waiting: Option<Bytes>,
) -> Option<u64> {
    let whole = u128::from(used.0) + u128::from(available.0);
    let wanted = whole * u128::from(keep_free_permille) / 1_000;
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    // Half of what is wanted may do, where blocks are shared: a pool that is smaller is emptied as far as may be.
    let whole = u64::try_from(whole).unwrap_or(u64::MAX);
    let waiting = waiting.filter(|room| room.0 / 2 <= whole);
    wanted
        .max(waiting.map_or(0, |room| room.0.min(whole)))
        .checked_sub(available.0)
        .filter(|missing| *missing > 0)
}

impl<S: TapeSystem> Driver<S> {
    /// Lets copies go from each pool until so much is free as shall be.
    pub(super) async fn make_room(&mut self) {
        let pools: Vec<Arc<Pool>> = self.context.pools.values().cloned().collect();
        for pool in pools {
            let view = pool.view();
            let Some(available) = view.known_available() else {
                continue;
            };
            let used = pool.used_by_files();
            let waiting = self.room_wait.largest();
            if let Some(missing) = missing(used, available, self.keep_free_permille(), waiting) {
                self.evict(&pool, missing).await;
            }
        }
    }

    /// Lets the copy of a file go that was on disk for a while only, unless somebody wants it there.
    pub(super) async fn let_go(&mut self, file: EntryId) {
        let Lookup::File(found) = self.tape_file(file) else {
            return;
        };
        if !self.has_readable_copy(file, &found.copies) {
            return;
        }
        if let Some(pool) = found.pool {
            let evict = NearlineChange::Evict {
                file,
                pool: pool.clone(),
                at: self.believed_now(),
            };
            match self.change(evict).await {
                // Before that is done nobody can have it brought to this pool.
                Ok(_) => self.context.reaper.look_again_in(&pool),
                Err(why) => tracing::debug!(%file, %why, "a copy on disk stays"),
            }
        }
    }

    /// Lets copies go from a pool, the oldest files first, until so many bytes are free or no copy may go.
    async fn evict(&mut self, pool: &Arc<Pool>, missing: u64) {
        let (mut freed, mut files, mut after) = (0_u64, 0_u64, EntryId(0));
        'pages: for _ in 0..PAGES_MAX {
            let namespace = &self.context.namespace;
            let page =
                namespace.evictable_files(&pool.name, after, self.believed_now(), PAGE_FILES);
            let page = match page {
                Ok(page) => page,
                Err(why) => {
                    tracing::error!(%why, "files that may leave a disk cannot be listed");
                    break;
                }
            };
            let Some(last) = page.last() else { break };
            after = last.id;
            for file in &page {
                if freed >= missing {
                    break 'pages;
                }
                // On disk is the last copy that can be read, or one that is written to tape anew.
                if self.is_held(file.id) || !self.has_readable_copy(file.id, &file.copies) {
                    continue;
                }
                let evict = NearlineChange::Evict {
                    file: file.id,
                    pool: pool.name.clone(),
                    at: self.believed_now(),
                };
                match self.change(evict).await {
                    Ok(_) => {
                        freed += file.size.0;
                        files += 1;
                    }
                    Err(why) => tracing::debug!(file = %file.id, %why, "a copy on disk stays"),
                }
            }
        }
        if files > 0 {
            self.context.reaper.look_again_in(&pool.name);
            tracing::info!(pool = %pool.name, files, bytes = freed, "let go of copies of files that are on tape");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_much_is_missing_as_makes_the_free_part_what_it_shall_be() {
        let for_file =
            |used, available, file| missing(Bytes(used), Bytes(available), 100, Some(Bytes(file)));
        assert_eq!(for_file(900, 100, 300), Some(200), "a file waits for room");
        assert_eq!(
            for_file(900, 100, 1_500),
            Some(900),
            "it may do with half of that"
        );
        assert_eq!(for_file(900, 100, 3_000), None, "it never fits here");
        let missing = |used, available| missing(Bytes(used), Bytes(available), 100, None);
        assert_eq!(missing(950, 50), Some(50));
        assert_eq!(missing(900, 100), None);
        assert_eq!(missing(0, 0), None);
        assert_eq!(
            missing(u64::MAX, 0).map(|bytes| bytes / 1_000_000_000_000_000_000),
            Some(1)
        );
    }
}
