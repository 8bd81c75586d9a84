//! Files on tape in a namespace that is made again: the directory logs tell them, and where their copies are.

use super::super::connection::stored;
use super::super::directory_log::{FileEntry, TrashedFile};
use super::super::{EntryId, trash};
use super::{FilePlacement, FileState, FoundFile, FoundFileFate, Rebuild, RebuildError, entry_of};
use penstock_model::{Archival, Bytes, PoolName, Timestamp};
use rusqlite::params;

impl Rebuild {
    pub(super) fn is_placed(&self, file: EntryId) -> rusqlite::Result<bool> {
        self.connection
            .prepare_cached("SELECT 1 FROM entry WHERE id = ?1")?
            .exists([stored(file)])
    }

    /// A second copy of the data of a file: one of a pool that was away while the file was brought from tape to another one.
    /// It goes as it would have gone.
    pub(super) fn add_again(
        &mut self,
        pool: &PoolName,
        found: &FoundFile,
    ) -> Result<FoundFileFate, RebuildError> {
        if trash::find(&self.connection, found.id)?.is_none() {
            let evicted = TrashedFile::evicted(found.id, pool.clone(), found.size);
            trash::insert(&self.connection, &evicted)?;
        }
        self.report.trash += 1;
        Ok(FoundFileFate::Trash)
    }

    /// Where its copies on tape are not known, it is to be put there again.
    pub(super) fn archival_of(&self, file: &FileEntry) -> Archival {
        let is_known = self.tape_copies.contains_key(&file.id);
        match file.archival {
            _ if is_known => Archival::Cached,
            Archival::DiskOnly => Archival::DiskOnly,
            Archival::Precious | Archival::Cached => Archival::Precious,
        }
    }

    pub(super) fn insert_copies(&self, file: EntryId) -> rusqlite::Result<()> {
        let copies = self.tape_copies.get(&file);
        for (number, copy) in (0_i64..).zip(copies.into_iter().flatten()) {
            self.connection
                .prepare_cached("INSERT OR REPLACE INTO tape_copy VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![stored(file), number, copy.uri, copy.at.0])?;
        }
        Ok(())
    }

    /// Takes the files that are on tape, and were met in no pool.
    pub(super) fn place_files_on_tape(&mut self) -> Result<(), RebuildError> {
        let mut left: Vec<(EntryId, FileState)> = std::mem::take(&mut self.on_tape)
            .into_iter()
            .filter(|(_, state)| state.told.is_some())
            .collect();
        // In an order that is the same each time.
        left.sort_by_key(|(id, _)| *id);
        for (id, state) in left {
            let found = FoundFile {
                id,
                size: Bytes(0),
                modified: Timestamp(0),
                label: None,
            };
            let (file, path) = entry_of(&found, &state);
            self.report.tape_only += 1;
            self.place(FilePlacement {
                pool: None,
                file,
                path,
                is_labelled: false,
                confirmed: state.confirmed,
            })?;
        }
        Ok(())
    }
}
