//! A file's data while nobody can see it: first in `incoming/`, then at its final place until its entry
//! is committed. Whatever goes wrong, dropping it removes the data and gives the promised space back.

use crate::crash::{Step, reached};
use crate::pool::{Pool, Reservation, UncommittedStage};
use crate::reaper::ReaperHandle;
use penstock_model::Bytes;
use penstock_persistence::namespace::EntryId;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Data without an entry.
pub(crate) struct UncommittedFile {
    pub id: EntryId,
    pub pool: Arc<Pool>,
    pub file: File,
    /// Present until the data is kept or handed over for removal.
    reservation: Option<Reservation>,
    place: UncommittedStage,
    reaper: ReaperHandle,
}

impl UncommittedFile {
    /// Makes the file. Blocks. The reservation is given back on failure.
    pub(crate) fn create(
        id: EntryId,
        reservation: Reservation,
        pool: Arc<Pool>,
        reaper: ReaperHandle,
    ) -> io::Result<UncommittedFile> {
        let file = reaper.with_space(&pool, || pool.create_incoming(id))?;
        reached(Step::Created);
        Ok(UncommittedFile {
            id,
            pool,
            file,
            reservation: Some(reservation),
            place: UncommittedStage::Incoming,
            reaper,
        })
    }

    /// Takes a file that is in `incoming/` already, with all its bytes.
    pub(crate) fn written(
        id: EntryId,
        reservation: Reservation,
        pool: Arc<Pool>,
        file: File,
        reaper: ReaperHandle,
    ) -> UncommittedFile {
        UncommittedFile {
            id,
            pool,
            file,
            reservation: Some(reservation),
            place: UncommittedStage::Incoming,
            reaper,
        }
    }

    /// The promised space, to make it grow.
    pub(crate) fn reservation(&mut self) -> &mut Reservation {
        self.reservation
            .as_mut()
            .expect("taken only by keep and drop")
    }

    /// Does what its disk may refuse for want of room; trash gives way to it. Blocks.
    pub(crate) fn with_space<T>(
        &self,
        mut attempt: impl FnMut(&File) -> io::Result<T>,
    ) -> io::Result<T> {
        self.reaper.with_space(&self.pool, || attempt(&self.file))
    }

    /// Moves the data to its final place, unless it is there.
    pub(crate) fn adopt(&mut self) -> io::Result<()> {
        if let UncommittedStage::Data = self.place {
            return Ok(());
        }
        self.with_space(|_| self.pool.adopt(self.id))?;
        self.place = UncommittedStage::Data;
        reached(Step::Adopted);
        Ok(())
    }

    /// Its entry is committed: the data stays.
    pub(crate) fn keep(mut self, size: Bytes) {
        self.place = UncommittedStage::Kept;
        if let Some(reservation) = self.reservation.take() {
            reservation.keep(size);
        }
    }
}

impl UncommittedFile {
    /// It is not known whether its entry is committed, and nobody is left to learn it: the data stays for the next start
    /// to judge.
    pub(crate) fn leave(mut self) {
        self.place = UncommittedStage::Kept;
        let (pool, file) = (&self.pool.name, self.id);
        tracing::warn!(%pool, %file, "a file's data stays for the next start, because it is not known whether the namespace has it");
    }
}

impl Drop for UncommittedFile {
    fn drop(&mut self) {
        let path = match self.place {
            UncommittedStage::Incoming => self.pool.incoming_path(self.id),
            UncommittedStage::Data => self.pool.data_path(self.id),
            UncommittedStage::Kept => return,
        };
        let reservation = self.reservation.take();
        drop(self.reaper.discard(&self.pool, vec![path], reservation));
    }
}
