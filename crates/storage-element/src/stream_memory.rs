//! The memory in which parts of files wait for their turn, shared by all pulls with several connections. Nobody
//! waits for it: a copy that gets none goes on with one connection.

use penstock_model::Bytes;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What one permit stands for. Coarse, because a semaphore counts to 2^29 only where pointers have 32 bits.
const UNIT_BYTES: u64 = 64 << 10;

pub(crate) struct StreamMemory(Arc<Semaphore>);

/// A part of it, given back on drop.
pub(crate) struct MemoryShare {
    _permit: OwnedSemaphorePermit,
}

impl StreamMemory {
    pub(crate) fn new(total: Bytes) -> StreamMemory {
        let units = usize::try_from(total.0 / UNIT_BYTES).unwrap_or(usize::MAX);
        StreamMemory(Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))))
    }

    pub(crate) fn free(&self) -> Bytes {
        Bytes(self.0.available_permits() as u64 * UNIT_BYTES)
    }

    /// `None`: others were faster.
    pub(crate) fn take(&self, wanted: Bytes) -> Option<MemoryShare> {
        let units = u32::try_from(wanted.0.div_ceil(UNIT_BYTES)).ok()?;
        let permit = Arc::clone(&self.0).try_acquire_many_owned(units).ok()?;
        Some(MemoryShare { _permit: permit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_lent_once_and_comes_back() {
        let memory = StreamMemory::new(Bytes(1 << 20));
        let share = memory.take(Bytes(700_000)).expect("there is enough");
        assert!(memory.take(Bytes(700_000)).is_none());
        assert!(memory.free().0 < (1 << 20) - 700_000);
        drop(share);
        assert_eq!(memory.free(), Bytes(1 << 20));
    }
}
