//! Room for new files: the oldest trash of a pool gives way before a file is refused.

use super::{Order, Reaper, ReaperHandle};
use crate::pool::{NoRoom, Pool, is_no_space};
use penstock_model::{Bytes, Timestamp};
use penstock_persistence::namespace::{EntryId, PoolUsage, TrashQuery, TrashedFile};
use std::io;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long a writer waits for the removal of trash. A disk that takes longer takes no files.
const ROOM_WAIT: Duration = Duration::from_secs(60);
/// Files of the trash that are looked at in one piece.
const PIECE_MAX: usize = 100;
/// What goes at once, at most, where the disk says that it is full and nobody knows by how much.
const BLIND_PIECE: Bytes = Bytes(64 << 20);
/// How often that is tried. What a disk refuses then, it refuses for another reason.
const BLIND_PIECES_MAX: usize = 3;

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
    /// Does what the disk may refuse for want of room, again after some of the oldest trash has gone: free space is
    /// counted from time to time only, and others use it, too. Blocks.
    pub(crate) fn with_space<T>(
        &self,
        pool: &Pool,
        attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        self.with_space_where(pool, is_no_space, attempt)
    }

    /// The same for errors of another type, of which `is_full` tells what they say.
    pub(crate) fn with_space_where<T, E>(
        &self,
        pool: &Pool,
        is_full: impl Fn(&E) -> bool,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        for _ in 0..BLIND_PIECES_MAX {
            match attempt() {
                Err(why) if is_full(&why) => {
                    if !self.give_way(pool) {
                        return Err(why);
                    }
                }
                done => return done,
            }
        }
        attempt()
    }

    /// Has some of the oldest trash of a pool removed, whatever was counted. False: there is none that can be. Blocks.
    fn give_way(&self, pool: &Pool) -> bool {
        let (reply, answer) = sync_channel(1);
        self.order(&pool.name, Order::GiveWay(reply));
        answer.recv_timeout(ROOM_WAIT).unwrap_or(false)
    }

    /// Has the oldest trash of a pool removed until so much is free. False: none could be removed.
    async fn make_room(&self, pool: &Pool, wanted: Bytes) -> bool {
        let order = |reply| Order::MakeRoom { wanted, reply };
        let made = self.ask(&pool.name, ROOM_WAIT, order).await;
        made.unwrap_or(false)
    }
}

impl Reaper {
    /// Removes some of the oldest trash. Gives back whether any is gone.
    pub(super) fn give_way(&mut self) -> bool {
        if !self.pool.can_remove() {
            return false;
        }
        let oldest = self.oldest(None);
        let given_up = up_to(&oldest, BLIND_PIECE.0);
        let gone = self.remove(given_up).unwrap_or_default();
        self.tell_given_up(gone);
        gone.files > 0
    }

    /// Removes the oldest trash until so much is free. Gives back whether there is more room than there was.
    pub(super) fn make_room(&mut self, wanted: Bytes) -> bool {
        let (mut after, mut all) = (None, PoolUsage::default());
        while self.pool.view().free < wanted && self.pool.can_remove() {
            let oldest = self.oldest(after);
            let missing = wanted.0.saturating_sub(self.pool.view().free.0);
            let given_up = up_to(&oldest, missing);
            let Some(last) = given_up.last() else {
                break;
            };
            after = Some((last.removed, last.file));
            let Some(gone) = self.remove(given_up) else {
                break;
            };
            all.files += gone.files;
            all.bytes = Bytes(all.bytes.0 + gone.bytes.0);
        }
        self.tell_given_up(all);
        all.files > 0 || self.pool.view().free >= wanted
    }

    /// Some of the trash, that first which was removed first.
    fn oldest(&self, after: Option<(Timestamp, EntryId)>) -> Vec<TrashedFile> {
        let query = TrashQuery {
            pool: Some(self.pool.name.clone()),
            after,
            ..TrashQuery::default()
        };
        let oldest = self.shared.namespace.trash(&query, PIECE_MAX);
        oldest.unwrap_or_else(|why| {
            tracing::error!(%why, "the trash cannot be read, so it makes no room");
            Vec::new()
        })
    }

    fn tell_given_up(&self, gone: PoolUsage) {
        if gone.files > 0 {
            self.pool.trash_evicted.add(gone.files);
            let (pool, files, bytes) = (&self.pool.name, gone.files, gone.bytes);
            tracing::info!(%pool, files, %bytes, "removed the oldest trash to make room for new files");
        }
    }
}

/// The first of them that have so many bytes together, or all.
fn up_to(trash: &[TrashedFile], bytes: u64) -> &[TrashedFile] {
    let mut sum = 0;
    let enough = trash.iter().position(|file| {
        sum += file.size.0;
        sum >= bytes
    });
    &trash[..enough.map_or(trash.len(), |last| last + 1)]
}
