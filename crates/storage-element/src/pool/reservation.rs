//! Room of a pool that is promised to one writer, as its bytes come.

use super::{NoRoom, Pool};
use penstock_decide::pool_selection::promised_ahead;
use penstock_model::Bytes;
use std::sync::Arc;

/// Space promised to one writer. Dropping it gives the space back.
pub(crate) struct Reservation {
    pool: Arc<Pool>,
    bytes: u64,
    unallocated: u64,
}

impl Reservation {
    /// For a file of which so many bytes are there; they are counted already.
    pub(super) fn of(pool: Arc<Pool>, bytes: u64) -> Reservation {
        Reservation {
            pool,
            bytes,
            unallocated: 0,
        }
    }

    /// Promises enough for the first `come` bytes; of an announced rest some more, so that the disk gets it in long
    /// pieces. What is promised ahead is little enough that all movers together leave room for others.
    pub(crate) fn cover(&mut self, come: u64, announced: Option<u64>) -> Result<(), NoRoom> {
        let needed = come.saturating_sub(self.bytes);
        if needed == 0 && self.bytes > 0 {
            return Ok(());
        }
        let movers_max = self.pool.gate.load().limits.movers_max;
        let mut space = self.pool.space();
        let free = self.pool.free(&space);
        let rest = announced.unwrap_or(come).saturating_sub(come);
        // An empty file needs its place in a directory all the same.
        if free.0 < needed.max(1) {
            return Err(self.pool.no_room(&space, needed.max(1), rest));
        }
        let ahead = promised_ahead(free, movers_max).0.min(rest);
        let more = (needed + ahead).min(free.0);
        space.promise(more);
        self.bytes += more;
        self.unallocated += more;
        Ok(())
    }

    /// Promises enough for the first `come` bytes, while there is room for `whole`, or would be without trash.
    pub(crate) fn cover_if_fits(&mut self, come: u64, whole: u64) -> Result<(), NoRoom> {
        let mut space = self.pool.space();
        let free = self.pool.free(&space);
        if self.pool.available(&space).0 < whole.max(come).saturating_sub(self.bytes) {
            return Err(NoRoom { free, wanted: None });
        }
        let more = come.saturating_sub(self.bytes);
        if free.0 < more {
            return Err(self.pool.no_room(&space, more, whole.saturating_sub(come)));
        }
        space.promise(more);
        self.bytes += more;
        self.unallocated += more;
        Ok(())
    }

    /// Bytes that are promised.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The disk has the first `bytes` now, so the file system counts them itself.
    pub(crate) fn allocated_to(&mut self, bytes: u64) {
        let still = self.bytes.saturating_sub(bytes).min(self.unallocated);
        let allocated = self.unallocated - still;
        let mut space = self.pool.space();
        space.unallocated -= allocated;
        // What is remembered of the file system is from before these bytes.
        space.file_system.allocated(allocated);
        space.file_system.took(allocated);
        self.unallocated = still;
    }

    /// The file stays, with this size.
    pub(crate) fn keep(self, size: Bytes) {
        let mut space = self.pool.space();
        space.used += size.0;
        space.file_system.took_file();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut space = self.pool.space();
        space.reserved -= self.bytes;
        space.unallocated -= self.unallocated;
        space.file_system.allocated(self.unallocated);
    }
}
