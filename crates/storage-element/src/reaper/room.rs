//! Room for new files: the oldest trash of a pool gives way before a file is refused.

use super::trash::RemovalCause;
use super::{Order, Reaper, ReaperHandle};
use crate::disk_full::{Fullness, fullness};
use crate::pool::{NoRoom, Pool};
use penstock_model::{Bytes, Timestamp};
use penstock_persistence::namespace::{EntryId, PoolUsage, TrashQuery, TrashedFile};
use std::io;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// How long a writer waits for the removal of trash. A disk that takes longer takes no files.
const ROOM_WAIT: Duration = Duration::from_secs(60);
/// Files of the trash that are looked at in one piece.
const PIECE_MAX: usize = 100;
/// What goes at once, at most, where the disk says that it is full and nobody knows by how much.
const BLIND_PIECE: Bytes = Bytes(64 << 20);
/// With so much free, more than is taken in one piece, a disk is not full.
const PLENTY: Bytes = Bytes(512 << 20);
/// Where what was removed made no room, nothing more is removed for so long.
const IN_VAIN_KEPT: Duration = Duration::from_secs(60);
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
        self.with_space_where(pool, fullness, attempt)
    }

    /// The same for errors of another type, of which `full_by` tells whether they say so.
    pub(crate) fn with_space_where<T, E>(
        &self,
        pool: &Pool,
        full_by: impl Fn(&E) -> Option<Fullness>,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        for _ in 0..BLIND_PIECES_MAX {
            let done = attempt();
            let Some(full) = done.as_ref().err().and_then(&full_by) else {
                return done;
            };
            if !self.give_way(pool, full) {
                return done;
            }
        }
        attempt()
    }

    /// Has some of the oldest trash of a pool removed, whatever was counted. False: there is none that can be. Blocks.
    fn give_way(&self, pool: &Pool, full: Fullness) -> bool {
        let (reply, answer) = sync_channel(1);
        self.order(&pool.name, Order::GiveWay { full, reply });
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
    /// Removes some of the oldest trash. Gives back whether any is gone, or nothing had to. A disk that refuses for another
    /// reason than the want of room, or on which removals make none, costs a piece of it in a minute at most.
    pub(super) fn give_way(&mut self, full: Fullness) -> bool {
        let is_in_vain = self
            .in_vain
            .is_some_and(|since| since.elapsed() < IN_VAIN_KEPT);
        if is_in_vain || !self.pool.can_remove() {
            return false;
        }
        let Some(before) = self.room_left() else {
            return false;
        };
        if full == Fullness::Disk && before.bytes.0 >= PLENTY.0 && before.files > 0 {
            return true;
        }
        let oldest = self.oldest(None);
        let given_up = up_to(&oldest, BLIND_PIECE.0);
        let gone = self
            .remove(given_up, RemovalCause::Space)
            .unwrap_or_default();
        self.tell_given_up(gone);
        let after = self.room_left().unwrap_or_default();
        // Snapshots, shared extents and readers keep what was removed.
        let has_helped = after.bytes.0 >= before.bytes.0.saturating_add(gone.bytes.0 / 2)
            && (gone.bytes.0 > 0 || after.files > before.files);
        self.in_vain = (gone.files > 0 && !has_helped).then(Instant::now);
        gone.files > 0
    }

    /// What the disk has free now. `None`: it does not tell.
    fn room_left(&self) -> Option<PoolUsage> {
        if let Err(why) = self.pool.look_at_free_space() {
            tracing::error!(pool = %self.pool.name, %why, "free space is not known, so no trash gives way");
            return None;
        }
        Some(PoolUsage {
            files: self.pool.view().files_left.unwrap_or(u64::MAX),
            bytes: Bytes(self.pool.free_on_disk()),
        })
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
            let Some(gone) = self.remove(given_up, RemovalCause::Space) else {
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
