//! Room for new files: the oldest trash of a pool gives way before a file is refused.

use super::{Order, Reaper, ReaperHandle};
use crate::pool::{NoRoom, Pool};
use penstock_model::Bytes;
use penstock_persistence::namespace::TrashQuery;
use std::time::Duration;

/// How long a writer waits for the removal of trash. A disk that takes longer takes no files.
const ROOM_WAIT: Duration = Duration::from_secs(60);
/// Files of the trash that are looked at in one piece.
const PIECE_MAX: usize = 100;

/// Asks for a promise of space again and again, while that fails for trash that can give way.
pub(crate) async fn with_room(
    reaper: &ReaperHandle,
    pool: &Pool,
    mut promise: impl FnMut() -> Result<(), NoRoom>,
) -> Result<(), NoRoom> {
    loop {
        let Err(why) = promise() else {
            return Ok(());
        };
        // Others may have taken what was made free for this one.
        match why.wanted {
            Some(wanted) if reaper.make_room(pool, wanted).await => {}
            Some(_) | None => return Err(why),
        }
    }
}

impl ReaperHandle {
    /// Has the oldest trash of a pool removed until so much is free. False: none could be removed.
    async fn make_room(&self, pool: &Pool, wanted: Bytes) -> bool {
        let order = |reply| Order::MakeRoom { wanted, reply };
        let made = self.ask(&pool.name, ROOM_WAIT, order).await;
        made.unwrap_or(false)
    }
}

impl Reaper {
    /// Removes the oldest trash until so much is free. Gives back whether there is more room than there was.
    pub(super) fn make_room(&mut self, wanted: Bytes) -> bool {
        let mut query = TrashQuery {
            pool: Some(self.pool.name.clone()),
            ..TrashQuery::default()
        };
        let (mut files, mut bytes) = (0, 0);
        while self.pool.view().free < wanted && self.pool.can_remove() {
            let oldest = match self.shared.namespace.trash(&query, PIECE_MAX) {
                Ok(oldest) => oldest,
                Err(why) => {
                    tracing::error!(%why, "the trash cannot be read, so it makes no room");
                    break;
                }
            };
            let missing = wanted.0.saturating_sub(self.pool.view().free.0);
            let mut sum = 0;
            let enough = oldest.iter().position(|file| {
                sum += file.size.0;
                sum >= missing
            });
            let given_up = &oldest[..enough.map_or(oldest.len(), |last| last + 1)];
            let Some(last) = given_up.last() else {
                break;
            };
            query.after = Some((last.removed, last.file));
            let Some(gone) = self.remove(given_up) else {
                break;
            };
            files += gone.files;
            bytes += gone.bytes.0;
        }
        if files > 0 {
            self.pool.trash_evicted.add(files);
            let (pool, bytes) = (&self.pool.name, Bytes(bytes));
            tracing::info!(%pool, files, %bytes, "removed the oldest trash to make room for new files");
        }
        files > 0 || self.pool.view().free >= wanted
    }
}
