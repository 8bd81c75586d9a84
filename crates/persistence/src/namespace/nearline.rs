//! Files on tape, as rows: which file has which copies there, what of it is owed, and who waits for which file.
//!
//! The namespace is the truth about both ends: a file is on tape when its row says so, and whoever drives the tape system
//! finds in these rows all that it owes after a crash. Long because each kind of change has its steps.

mod budget;
mod held;
mod stage_begin;
mod stage_columns;
mod staging;

pub use staging::{FileAwaiter, RememberedFailure, StoredStageRequest};

use super::change::{Batch, ChangeReport, Outcome, ToldEntry, TrashedData};
use super::connection::{bounded, signed, stored, unsigned};
use super::data_sets;
use super::directory_log::{DirectoryRecord, FileEntry, TrashedFile};
use super::inspection::path_or_directory_of;
use super::nearline_change::NearlineChange;
use super::read::{CACHED, DISK_ONLY, PRECIOUS, archival_of, checksums_of, stored_archival};
use super::{
    ChangeError, ChangeRefusal, DeadProperty, EntryId, Namespace, NamespaceError, property,
};
use penstock_model::observation::{EntryChange, EntryChangeReason};
use penstock_model::{Archival, Bytes, Checksum, NamespacePath, PoolName, Timestamp, UserName};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long the copies on tape of a removed file usually stay, so that an operator can still bring it back. Whoever has them removed may
/// wait for longer, or not so long.
pub const TAPE_REMOVAL_USUAL: Duration = Duration::from_secs(7 * 24 * 3_600);

/// A copy on tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeCopyUri {
    /// As the tape system names it.
    pub uri: String,
    pub at: Timestamp,
}

/// A file on tape as the directory logs tell it, wherever it stands in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOnTape {
    pub id: EntryId,
    pub size: Bytes,
    pub checksums: Vec<Checksum>,
    pub owner: Option<UserName>,
    pub created: Timestamp,
    pub properties: Vec<DeadProperty>,
    pub copies: Vec<TapeCopyUri>,
}

impl FileOnTape {
    pub(super) fn new(told: &FileEntry, copies: Vec<TapeCopyUri>) -> FileOnTape {
        FileOnTape {
            id: told.id,
            size: told.size,
            checksums: told.checksums.clone(),
            owner: told.owner.clone(),
            created: told.created,
            properties: told.properties.clone(),
            copies,
        }
    }

    /// When its last copy was.
    pub(super) fn archived(&self) -> Option<Timestamp> {
        self.copies.iter().map(|copy| copy.at).max()
    }
}

/// What a tape system needs to know of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapeFile {
    pub id: EntryId,
    /// Where a path is too long, the directory above, as deep as one can be named.
    pub path: NamespacePath,
    pub size: Bytes,
    pub owner: Option<UserName>,
    pub created: Timestamp,
    /// Of its bytes, in the order of [`penstock_model::ChecksumAlgorithm::ALL`].
    pub checksums: Vec<Checksum>,
    /// Where it is on disk.
    pub pool: Option<PoolName>,
    pub archival: Archival,
    pub copies: Vec<TapeCopyUri>,
}

/// A file, and who waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecallState {
    pub id: EntryId,
    /// One of those who wait for it; `None`: nobody waits.
    pub awaited: Option<FileAwaiter>,
    /// `None`: it is gone.
    pub file: Option<RecallFacts>,
}

/// What of a file decides whether it is to be brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecallFacts {
    pub size: Bytes,
    /// Where it is on disk.
    pub pool: Option<PoolName>,
    pub archival: Archival,
    /// Its copies on tape.
    pub uris: Vec<String>,
}

/// A copy on tape that nobody needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeRemoval {
    pub uri: String,
    pub size: Bytes,
    /// Where its file was.
    pub path: NamespacePath,
    pub file: EntryId,
}

impl Batch<'_> {
    /// Makes one of these changes. Long because each kind has its arm.
    pub(super) fn make_nearline(&mut self, change: &NearlineChange) -> Outcome {
        match change {
            NearlineChange::JoinDataSets { joins, at } => {
                data_sets::join(self.connection, joins, *at)?;
                Ok(ChangeReport::default())
            }
            NearlineChange::Archived { file, uris, at } => self.archived(*file, uris, *at),
            NearlineChange::CopyMade {
                file,
                uri,
                instead_of,
                at,
            } => self.copy_made(*file, (uri, instead_of.as_deref()), *at),
            NearlineChange::ReenterOnTape { file, to, at } => self.reenter_on_tape(file, to, *at),
            NearlineChange::Evict { file, pool, at } => self.evict(*file, pool, *at),
            NearlineChange::LoseDiskCopy { file, pool, at } => self.lose(*file, pool, *at),
            NearlineChange::LoseCopiesInTrash { file, uris } => {
                self.lose_copies_in_trash(*file, uris)
            }
            NearlineChange::OnDisk { files, at } => {
                for file in files {
                    staging::complete(self.connection, *file, *at)?;
                }
                Ok(ChangeReport::default())
            }
            NearlineChange::Recalled {
                file,
                pool,
                instead_of,
                at,
            } => self.recalled(*file, pool, instead_of.as_ref(), *at),
            NearlineChange::RecallFailed { file, problem, at } => {
                staging::fail(self.connection, *file, problem, *at)?;
                Ok(ChangeReport::default())
            }
            NearlineChange::RecallStarted { file, at } => {
                staging::start(self.connection, *file, *at)?;
                Ok(ChangeReport::default())
            }
            NearlineChange::RecallDelayed { files, problem } => {
                for file in files {
                    staging::delay(self.connection, *file, problem)?;
                }
                Ok(ChangeReport::default())
            }
            NearlineChange::Stage(request) => {
                staging::make_place(self.connection, request)?;
                staging::insert(self.connection, request)?;
                Ok(ChangeReport::default())
            }
            NearlineChange::ReleaseStaged { request, files, at } => Ok(ChangeReport {
                released: staging::release(self.connection, request, files, *at)?,
                ..ChangeReport::default()
            }),
            NearlineChange::ReleaseOfUser { user, files, at } => {
                let (released, is_more) =
                    staging::release_of_user(self.connection, user, files, *at)?;
                Ok(ChangeReport {
                    released,
                    is_more,
                    ..ChangeReport::default()
                })
            }
            NearlineChange::ForgetStage(request) => {
                let forgotten = staging::forget(self.connection, request)?;
                Ok(ChangeReport {
                    is_more: forgotten.is_more,
                    released: forgotten.released,
                    ..ChangeReport::default()
                })
            }
            NearlineChange::PruneStages { before, at } => {
                let has_more_pins = staging::end_pins(self.connection, *at)?;
                let (pruned, is_more) = staging::prune(self.connection, *before)?;
                Ok(ChangeReport {
                    pruned,
                    is_more: is_more || has_more_pins,
                    ..ChangeReport::default()
                })
            }
            NearlineChange::AppendJournal(records) => self.append_tape_journal(records),
            NearlineChange::ReplaceJournal(records) => {
                self.connection.execute("DELETE FROM tape_journal", [])?;
                self.append_tape_journal(records)
            }
            NearlineChange::ForgetRemovals(uris) => {
                let mut delete = self
                    .connection
                    .prepare_cached("DELETE FROM tape_removal WHERE uri = ?1")?;
                for uri in uris {
                    delete.execute([uri])?;
                }
                Ok(ChangeReport::default())
            }
        }
    }

    fn append_tape_journal(&self, records: &[String]) -> Outcome {
        let mut insert = self
            .connection
            .prepare_cached("INSERT INTO tape_journal (record) VALUES (?1)")?;
        for record in records {
            insert.execute([record])?;
        }
        Ok(ChangeReport::default())
    }

    fn archived(&mut self, file: EntryId, uris: &[String], at: Timestamp) -> Outcome {
        let Some(found) = tape_file(self.connection, file)? else {
            return self.archived_in_vain(file, uris, at);
        };
        let copies = uris.iter().cloned().map(|uri| TapeCopyUri { uri, at });
        self.insert_copies(file, &copies.collect::<Vec<_>>())?;
        self.connection
            .prepare_cached("UPDATE entry SET archival = ?2 WHERE id = ?1")?
            .execute(params![stored(file), stored_archival(Archival::Cached)])?;
        let told = ToldEntry::new(EntryChange::Archiving, file, &found.path);
        self.tell_ledger(told.with_data(found.size, found.pool.as_ref()).made_at(at));
        // A namespace that is made again learns by this what is on no disk any more.
        let file_entry = self.file_entry(file)?;
        let copies = copies_of(self.connection, file)?;
        self.records.push(DirectoryRecord::OnTape {
            file: file_entry,
            copies,
        });
        Ok(ChangeReport::default())
    }

    /// Refused when another file has one of them: at most one of the two is there.
    fn insert_copies(&self, file: EntryId, copies: &[TapeCopyUri]) -> Result<(), ChangeError> {
        for TapeCopyUri { uri, .. } in copies {
            if let Some(other) = self.other_file_with(uri, file)? {
                let uri = uri.clone();
                return Err(ChangeRefusal::CopyOfAnother { uri, other }.into());
            }
        }
        let mut insert = self
            .connection
            .prepare_cached("INSERT OR REPLACE INTO tape_copy VALUES (?1, ?2, ?3, ?4)")?;
        let mut needed = self
            .connection
            .prepare_cached("DELETE FROM tape_removal WHERE uri = ?1")?;
        for (number, copy) in (0_i64..).zip(copies) {
            insert.execute(params![stored(file), number, copy.uri, copy.at.0])?;
            needed.execute([&copy.uri])?;
        }
        Ok(())
    }

    /// A file that is on tape, and of which nothing else is known any more.
    fn reenter_on_tape(&mut self, file: &FileOnTape, to: &NamespacePath, at: Timestamp) -> Outcome {
        self.write_trash()?;
        if file.copies.is_empty()
            || self.is_visible(file.id)?
            || super::trash::find(self.connection, file.id)?.is_some()
        {
            return Err(ChangeRefusal::CopyElsewhere(file.id).into());
        }
        let (parent, name) = self.free_place(to, file.owner.as_ref(), at)?;
        self.insert_copies(file.id, &file.copies)?;
        self.connection
            .prepare_cached(
                "INSERT INTO entry (id, parent, name, kind, size_bytes, modified_ms, created_ms, owner, archival)
                 VALUES (?1, ?2, ?3, 1, ?4, ?5, ?5, ?6, ?7)",
            )?
            .execute(params![
                stored(file.id),
                stored(parent),
                name,
                signed(file.size.0),
                file.created.0,
                file.owner.as_ref().map(UserName::as_str),
                stored_archival(Archival::Cached),
            ])?;
        self.insert_checksums(file.id, &file.checksums)?;
        property::insert(self.connection, file.id, &file.properties)?;
        self.touch(parent, at);
        self.id_max = self.id_max.max(file.id.0);
        let told = ToldEntry::new(EntryChange::Recovery, file.id, to);
        self.tell_ledger(told.with_data(file.size, None).made_at(at));
        let entry = self.file_entry(file.id)?;
        self.records.push(DirectoryRecord::OnTape {
            file: entry,
            copies: file.copies.clone(),
        });
        Ok(ChangeReport::default())
    }

    /// The file is in the trash, or gone. In the trash it keeps its copies; gone, they go as well.
    fn archived_in_vain(&mut self, file: EntryId, uris: &[String], at: Timestamp) -> Outcome {
        self.write_trash()?;
        let in_trash = super::trash::find(self.connection, file)?;
        let mut copy = self
            .connection
            .prepare_cached("INSERT OR REPLACE INTO tape_copy VALUES (?1, ?2, ?3, ?4)")?;
        for (number, uri) in (0_i64..).zip(uris) {
            // What another file needs is not that of this one, and must stay when this one goes.
            if self.other_file_with(uri, file)?.is_none() {
                copy.execute(params![stored(file), number, uri, at.0])?;
            }
        }
        if in_trash.is_none() {
            self.owe_tape_removal(file, &NamespacePath::root(), Bytes(0), at)?;
        }
        Ok(ChangeReport::default())
    }

    /// The copy of before is forgotten, not removed: whoever has moved it knows that its tape is emptied, or cannot be read.
    fn copy_made(
        &mut self,
        file: EntryId,
        (uri, instead_of): (&str, Option<&str>),
        at: Timestamp,
    ) -> Outcome {
        let found = tape_file(self.connection, file)?;
        let has = |uri: &str| {
            let copies = found.as_ref().map_or(&[][..], |found| &found.copies);
            copies.iter().any(|copy| copy.uri == uri)
        };
        if has(uri) {
            return Ok(ChangeReport::default());
        }
        let is_needed = |found: &&TapeFile| match instead_of {
            Some(old) => has(old),
            None => found.archival == Archival::Cached,
        };
        let Some(found) = found.as_ref().filter(is_needed) else {
            self.owe_removal_of(uri, (file, &NamespacePath::root(), Bytes(0)), at)?;
            return Ok(ChangeReport::default());
        };
        let make = match instead_of {
            Some(_) => "UPDATE tape_copy SET uri = ?3, at_ms = ?4 WHERE entry = ?1 AND uri = ?2",
            None => {
                "INSERT INTO tape_copy (entry, number, uri, at_ms)
                 SELECT ?1, coalesce(MAX(number) + 1, 0), ?3, ?4 FROM tape_copy WHERE entry = ?1"
            }
        };
        self.connection.prepare_cached(make)?.execute(params![
            stored(file),
            instead_of,
            uri,
            at.0
        ])?;
        self.connection
            .prepare_cached("DELETE FROM tape_removal WHERE uri = ?1")?
            .execute([uri])?;
        let told = ToldEntry::new(EntryChange::Archiving, file, &found.path);
        self.tell_ledger(told.with_data(found.size, found.pool.as_ref()).made_at(at));
        let file_entry = self.file_entry(file)?;
        let copies = copies_of(self.connection, file)?;
        self.records.push(DirectoryRecord::OnTape {
            file: file_entry,
            copies,
        });
        Ok(ChangeReport::default())
    }

    /// Another file than this one, in the tree or in the trash, whose copy on tape has this name.
    fn other_file_with(&self, uri: &str, file: EntryId) -> rusqlite::Result<Option<EntryId>> {
        self.connection
            .prepare_cached("SELECT entry FROM tape_copy WHERE uri = ?1 AND entry <> ?2")?
            .query_row(params![uri, stored(file)], |row| {
                row.get(0).map(|id| EntryId(unsigned(id)))
            })
            .optional()
    }

    /// A file is on tape only when the name of a copy there is known. Whatever else tells that it is, its label or the record of its
    /// removal, it is to be put there.
    pub(super) fn archival_as_told(
        &self,
        file: EntryId,
        told: Archival,
    ) -> rusqlite::Result<Archival> {
        match told {
            Archival::DiskOnly | Archival::Precious => Ok(told),
            Archival::Cached => Ok(match copies_of(self.connection, file)?.is_empty() {
                true => Archival::Precious,
                false => Archival::Cached,
            }),
        }
    }

    /// A file that is on tape and has its copy on disk in this pool.
    fn cached_in(&self, file: EntryId, pool: &PoolName) -> Result<TapeFile, ChangeError> {
        let found = tape_file(self.connection, file)?;
        let found = found.filter(|found| {
            let is_on_tape = found.archival == Archival::Cached && !found.copies.is_empty();
            is_on_tape && found.pool.as_ref() == Some(pool)
        });
        Ok(found.ok_or(ChangeRefusal::KeptOnDisk(file))?)
    }

    fn lose(&mut self, file: EntryId, pool: &PoolName, at: Timestamp) -> Outcome {
        let found = self.cached_in(file, pool)?;
        self.connection
            .prepare_cached("UPDATE entry SET pool = NULL WHERE id = ?1")?
            .execute([stored(file)])?;
        self.count_in_pool(pool, -1, -signed(found.size.0));
        staging::wait_again(self.connection, file, at)?;
        let told = ToldEntry::new(EntryChange::Eviction, file, &found.path);
        let told = told.because(Some(EntryChangeReason::Repair));
        self.tell_ledger(told.with_data(found.size, Some(pool)).made_at(at));
        Ok(ChangeReport::default())
    }

    /// Its other copies stay: with one of them it is on tape still.
    fn lose_copies_in_trash(&mut self, file: EntryId, uris: &[String]) -> Outcome {
        self.write_trash()?;
        let in_trash = super::trash::find(self.connection, file)?;
        let copies = copies_of(self.connection, file)?;
        let has_one = copies.iter().any(|copy| uris.contains(&copy.uri));
        let Some(kept) = in_trash.filter(|kept| has_one && !kept.is_evicted()) else {
            return Ok(ChangeReport::default());
        };
        if self.is_visible(file)? {
            return Ok(ChangeReport::default());
        }
        let mut lose = self
            .connection
            .prepare_cached("DELETE FROM tape_copy WHERE entry = ?1 AND uri = ?2")?;
        for uri in uris {
            lose.execute(params![stored(file), uri])?;
        }
        let left = copies_of(self.connection, file)?;
        if left.is_empty() {
            data_sets::forget(self.connection, file)?;
        }
        // A namespace that is made again is not to believe in them: the tape may be written anew by then.
        let names = kept.path.names();
        let told = FileEntry {
            id: file,
            parent: EntryId(0),
            name: names.last().cloned().unwrap_or_default(),
            size: kept.size,
            checksums: kept.checksums.clone(),
            owner: kept.owner.clone(),
            created: kept.created,
            at: kept.removed,
            properties: kept.properties.clone(),
            archival: kept.archival,
        };
        self.records.push(DirectoryRecord::OnTape {
            file: told,
            copies: left,
        });
        self.records.push(DirectoryRecord::Trashed {
            parent: EntryId(0),
            file: kept,
            copies: Vec::new(),
        });
        // Its row is there.
        self.records_with_trash_written = self.records.len();
        Ok(ChangeReport::default())
    }

    fn evict(&mut self, file: EntryId, pool: &PoolName, at: Timestamp) -> Outcome {
        let found = self.cached_in(file, pool)?;
        self.write_trash()?;
        // Data of before may still be in another pool.
        let is_kept = staging::is_pinned(self.connection, file, at)?
            || super::trash::find(self.connection, file)?.is_some();
        match is_kept {
            true => Err(ChangeRefusal::KeptOnDisk(file).into()),
            false => self.let_disk_copy_go(found, pool, at),
        }
    }

    /// The data in this pool becomes trash that is over its time.
    fn let_disk_copy_go(&mut self, found: TapeFile, pool: &PoolName, at: Timestamp) -> Outcome {
        let file = found.id;
        self.connection
            .prepare_cached("UPDATE entry SET pool = NULL WHERE id = ?1")?
            .execute([stored(file)])?;
        self.count_in_pool(pool, -1, -signed(found.size.0));
        let told = ToldEntry::new(EntryChange::Eviction, file, &found.path);
        self.tell_ledger(told.with_data(found.size, Some(pool)).made_at(at));
        self.records.push(DirectoryRecord::Trashed {
            parent: EntryId(0),
            file: TrashedFile {
                owner: found.owner,
                created: found.created,
                checksums: found.checksums,
                ..TrashedFile::evicted(file, pool.clone(), found.size)
            },
            copies: Vec::new(),
        });
        self.write_trash()?;
        Ok(ChangeReport {
            trashed: vec![TrashedData {
                file,
                pool: pool.clone(),
                size: found.size,
            }],
            ..ChangeReport::default()
        })
    }

    fn recalled(
        &mut self,
        file: EntryId,
        pool: &PoolName,
        instead_of: Option<&PoolName>,
        at: Timestamp,
    ) -> Outcome {
        self.write_trash()?;
        // Data of this name that is still to be removed would take the new data with it. The trash has one place for a file.
        let before = super::trash::find(self.connection, file)?;
        if before.is_some_and(|before| before.pool == *pool || instead_of.is_some()) {
            return Err(ChangeRefusal::KeptOnDisk(file).into());
        }
        let found = tape_file(self.connection, file)?;
        let found = found.filter(|found| found.pool.as_ref() == instead_of);
        let found = found.ok_or(ChangeRefusal::CopyElsewhere(file))?;
        let report = match instead_of {
            Some(away) if away == pool => return Err(ChangeRefusal::CopyElsewhere(file).into()),
            Some(away) => {
                let found = self.cached_in(file, away)?;
                self.let_disk_copy_go(found, away, at)?
            }
            None => ChangeReport::default(),
        };
        self.connection
            .prepare_cached("UPDATE entry SET pool = ?2, labelled = 0 WHERE id = ?1")?
            .execute(params![stored(file), pool.as_str()])?;
        self.count_in_pool(pool, 1, signed(found.size.0));
        staging::complete(self.connection, file, at)?;
        let told = ToldEntry::new(EntryChange::Recall, file, &found.path);
        self.tell_ledger(told.with_data(found.size, Some(pool)).made_at(at));
        self.tell_file(file)?;
        Ok(report)
    }

    /// The copies on tape of a file that is gone are to be removed after a while.
    pub(super) fn owe_tape_removal(
        &self,
        file: EntryId,
        path: &NamespacePath,
        size: Bytes,
        at: Timestamp,
    ) -> rusqlite::Result<()> {
        for copy in copies_of(self.connection, file)? {
            self.owe_removal_of(&copy.uri, (file, path, size), at)?;
        }
        self.connection
            .prepare_cached("DELETE FROM tape_copy WHERE entry = ?1")?
            .execute([stored(file)])?;
        data_sets::forget(self.connection, file)
    }

    fn owe_removal_of(
        &self,
        uri: &str,
        (file, path, size): (EntryId, &NamespacePath, Bytes),
        at: Timestamp,
    ) -> rusqlite::Result<()> {
        let removal = TapeRemoval {
            uri: uri.to_owned(),
            size,
            path: path.clone(),
            file,
        };
        let told = serde_json::to_string(&removal).unwrap_or_default();
        let not_before = at + TAPE_REMOVAL_USUAL;
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO tape_removal VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![uri, not_before.0, signed(size.0), told])?;
        Ok(())
    }

    /// There is an entry with this number.
    pub(super) fn is_visible(&self, file: EntryId) -> rusqlite::Result<bool> {
        self.connection
            .prepare_cached("SELECT 1 FROM entry WHERE id = ?1")?
            .exists([stored(file)])
    }
}

/// Takes id, size, owner, created, pool and archival.
fn file_of_row(connection: &Connection, row: &Row<'_>) -> rusqlite::Result<TapeFile> {
    let id = EntryId(unsigned(row.get(0)?));
    Ok(TapeFile {
        id,
        path: path_or_directory_of(connection, id)?,
        size: Bytes(unsigned(row.get(1)?)),
        owner: row.get::<_, Option<String>>(2)?.map(UserName::new),
        created: Timestamp(row.get(3)?),
        checksums: checksums_of(connection, id)?,
        pool: row.get::<_, Option<String>>(4)?.map(PoolName::new),
        archival: archival_of(row.get(5)?),
        copies: copies_of(connection, id)?,
    })
}

const FILE_COLUMNS: &str = "id, size_bytes, owner, created_ms, pool, archival";

fn tape_file(connection: &Connection, file: EntryId) -> rusqlite::Result<Option<TapeFile>> {
    let sql = format!("SELECT {FILE_COLUMNS} FROM entry WHERE id = ?1 AND kind = 1");
    connection
        .prepare_cached(&sql)?
        .query_row([stored(file)], |row| file_of_row(connection, row))
        .optional()
}

pub(super) fn copies_of(
    connection: &Connection,
    file: EntryId,
) -> rusqlite::Result<Vec<TapeCopyUri>> {
    let mut query = connection
        .prepare_cached("SELECT uri, at_ms FROM tape_copy WHERE entry = ?1 ORDER BY number")?;
    let rows = query.query_map([stored(file)], |row| {
        Ok(TapeCopyUri {
            uri: row.get(0)?,
            at: Timestamp(row.get(1)?),
        })
    })?;
    rows.collect()
}

impl Namespace {
    /// A file with its copies on tape; `None`: there is no file of this number.
    pub fn tape_file(&self, file: EntryId) -> Result<Option<TapeFile>, NamespaceError> {
        self.readers.with(|connection| tape_file(connection, file))
    }

    /// The same of many files, in their order, as they are at one time.
    pub fn tape_files_of(
        &self,
        files: &[EntryId],
    ) -> Result<Vec<Option<TapeFile>>, NamespaceError> {
        self.readers.with(|connection| {
            let files = files.iter().map(|file| tape_file(connection, *file));
            files.collect()
        })
    }

    /// The copies of a file on tape, in the tree or in the trash.
    pub fn tape_copies_of(&self, file: EntryId) -> Result<Vec<TapeCopyUri>, NamespaceError> {
        self.readers.with(|connection| copies_of(connection, file))
    }

    /// What decides whether each of these files is to be brought, in their order, as it is at one time.
    pub fn recall_states(&self, files: &[EntryId]) -> Result<Vec<RecallState>, NamespaceError> {
        self.readers.with(|connection| {
            let mut awaited = connection.prepare_cached(&staging::awaited_by_sql())?;
            let mut find = connection.prepare_cached(
                "SELECT size_bytes, pool, archival FROM entry WHERE id = ?1 AND kind = 1",
            )?;
            let state = |id: &EntryId| {
                let awaiter = awaited.query_row([stored(*id)], staging::awaiter_of_row);
                let file = find.query_row([stored(*id)], |row| {
                    Ok(RecallFacts {
                        size: Bytes(unsigned(row.get(0)?)),
                        pool: row.get::<_, Option<String>>(1)?.map(PoolName::new),
                        archival: archival_of(row.get(2)?),
                        uris: copies_of(connection, *id)?
                            .into_iter()
                            .map(|copy| copy.uri)
                            .collect(),
                    })
                });
                Ok(RecallState {
                    id: *id,
                    awaited: awaiter.optional()?,
                    file: file.optional()?,
                })
            };
            files.iter().map(state).collect()
        })
    }

    /// Files that are to be put on tape, by their numbers, after this one.
    pub fn precious_files(
        &self,
        after: EntryId,
        limit: usize,
    ) -> Result<Vec<TapeFile>, NamespaceError> {
        let sql = format!(
            "SELECT {FILE_COLUMNS} FROM entry WHERE archival = {PRECIOUS} AND id > ?1 ORDER BY id LIMIT ?2"
        );
        self.tape_files(&sql, params![stored(after), bounded(limit)])
    }

    /// Files of a pool whose copy on disk may go, after this one: on tape, and pinned by nobody.
    pub fn evictable_files(
        &self,
        pool: &PoolName,
        after: EntryId,
        at: Timestamp,
        limit: usize,
    ) -> Result<Vec<TapeFile>, NamespaceError> {
        let sql = format!(
            "SELECT {FILE_COLUMNS} FROM entry WHERE pool = ?1 AND archival = {CACHED} AND id > ?2
             AND NOT EXISTS (SELECT 1 FROM stage_file WHERE stage_file.entry = entry.id AND pin_until_ms > ?3)
             ORDER BY id LIMIT ?4"
        );
        let values = params![pool.as_str(), stored(after), at.0, bounded(limit)];
        self.tape_files(&sql, values)
    }

    fn tape_files(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<TapeFile>, NamespaceError> {
        self.readers.with(|connection| {
            let mut query = connection.prepare_cached(sql)?;
            let rows = query.query_map(values, |row| file_of_row(connection, row))?;
            rows.collect()
        })
    }

    /// The number that its directory logs have come to.
    pub fn log_sequence(&self) -> Result<u64, NamespaceError> {
        self.readers.with(super::schema::log_sequence)
    }

    /// Bytes on disk of files that are on tape, or are to be put there. Reads as many rows of an index as there are such files.
    pub fn tape_bytes_on_disk(&self) -> Result<Bytes, NamespaceError> {
        self.readers.with(|connection| {
            let sql = format!(
                "SELECT coalesce(sum(size_bytes), 0) FROM entry INDEXED BY tape_file_on_disk
                 WHERE archival > {DISK_ONLY} AND pool IS NOT NULL"
            );
            let bytes = connection.query_row(&sql, [], |row| row.get(0))?;
            Ok(Bytes(unsigned(bytes)))
        })
    }

    /// What whoever drives the tape system has recorded, in its order.
    pub fn tape_journal(&self) -> Result<Vec<String>, NamespaceError> {
        self.readers.with(|connection| {
            let mut query =
                connection.prepare("SELECT record FROM tape_journal ORDER BY sequence")?;
            query.query_map([], |row| row.get(0))?.collect()
        })
    }

    /// Whether a file that is there, or in the trash, has this copy on tape.
    pub fn needs_tape_copy(&self, uri: &str) -> Result<bool, NamespaceError> {
        self.readers.with(|connection| {
            connection
                .prepare_cached("SELECT 1 FROM tape_copy WHERE uri = ?1")?
                .exists([uri])
        })
    }

    /// Files with the names of their copies on tape, by their numbers, after this one. Those in the trash are among them.
    pub fn tape_copies(
        &self,
        after: EntryId,
        limit: usize,
    ) -> Result<Vec<(EntryId, Vec<String>)>, NamespaceError> {
        self.readers.with(|connection| {
            // All copies of the last file, however many files there are.
            let mut query = connection.prepare_cached(
                "SELECT entry, uri FROM tape_copy WHERE entry > ?1 AND entry <= (SELECT MAX(entry) FROM
                     (SELECT DISTINCT entry FROM tape_copy WHERE entry > ?1 ORDER BY entry LIMIT ?2))
                 ORDER BY entry, number",
            )?;
            let rows = query.query_map(params![stored(after), bounded(limit)], |row| {
                Ok((EntryId(unsigned(row.get(0)?)), row.get::<_, String>(1)?))
            })?;
            let mut files: Vec<(EntryId, Vec<String>)> = Vec::new();
            for row in rows {
                let (file, uri) = row?;
                match files.last_mut() {
                    Some((last, uris)) if *last == file => uris.push(uri),
                    _ => files.push((file, vec![uri])),
                }
            }
            Ok(files)
        })
    }

    /// Copies on tape whose names begin so, with their files, by their names, after this one. Those of files in the trash are among
    /// them.
    pub fn tape_copies_with(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(EntryId, String)>, NamespaceError> {
        let behind = format!("{prefix}\u{10FFFF}");
        self.readers.with(|connection| {
            let mut query = connection.prepare_cached(
                "SELECT entry, uri FROM tape_copy WHERE uri >= ?1 AND uri < ?2 AND uri > ?3
                 ORDER BY uri LIMIT ?4",
            )?;
            let rows = query.query_map(params![prefix, behind, after, bounded(limit)], |row| {
                Ok((EntryId(unsigned(row.get(0)?)), row.get(1)?))
            })?;
            rows.collect()
        })
    }

    /// When the last of the copies whose names begin so is to be removed, which files have left; `None`: none is.
    pub fn tape_removal_with(&self, prefix: &str) -> Result<Option<Timestamp>, NamespaceError> {
        let behind = format!("{prefix}\u{10FFFF}");
        self.readers.with(|connection| {
            let mut query = connection.prepare_cached(
                "SELECT MAX(not_before_ms) FROM tape_removal WHERE uri >= ?1 AND uri < ?2",
            )?;
            let last: Option<i64> = query.query_row([prefix, &behind], |row| row.get(0))?;
            Ok(last.map(Timestamp))
        })
    }

    /// Names of copies on tape that are to be removed, now or later, after this one.
    pub fn owed_tape_removals(
        &self,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, NamespaceError> {
        self.readers.with(|connection| {
            let mut query = connection.prepare_cached(
                "SELECT uri FROM tape_removal WHERE uri > ?1 ORDER BY uri LIMIT ?2",
            )?;
            let rows = query.query_map(params![after, bounded(limit)], |row| row.get(0))?;
            rows.collect()
        })
    }

    /// A copy on tape whose name begins so, if there is one.
    pub fn tape_copy_with(&self, prefix: &str) -> Result<Option<String>, NamespaceError> {
        let sql = "SELECT uri FROM tape_copy WHERE uri >= ?1 AND uri < ?2 LIMIT 1";
        self.tape_copy(sql, prefix)
    }

    /// A copy on tape whose name begins otherwise, if there is one.
    pub fn tape_copy_without(&self, prefix: &str) -> Result<Option<String>, NamespaceError> {
        let sql = "SELECT uri FROM tape_copy WHERE uri < ?1 UNION ALL
                   SELECT uri FROM tape_copy WHERE uri >= ?2 LIMIT 1";
        self.tape_copy(sql, prefix)
    }

    fn tape_copy(&self, sql: &str, prefix: &str) -> Result<Option<String>, NamespaceError> {
        // Behind all names that begin so: no name of a copy holds this sign.
        let behind = format!("{prefix}\u{10FFFF}");
        self.readers.with(|connection| {
            let mut query = connection.prepare_cached(sql)?;
            query
                .query_row(params![prefix, behind], |row| row.get(0))
                .optional()
        })
    }

    /// Copies on tape that are to be removed by now, those whose time came first before others.
    pub fn tape_removals(
        &self,
        at: Timestamp,
        limit: usize,
    ) -> Result<Vec<TapeRemoval>, NamespaceError> {
        self.readers.with(|connection| {
            let mut query = connection.prepare_cached(
                "SELECT file FROM tape_removal WHERE not_before_ms <= ?1
                 AND NOT EXISTS (SELECT 1 FROM tape_copy WHERE tape_copy.uri = tape_removal.uri)
                 ORDER BY not_before_ms LIMIT ?2",
            )?;
            let rows =
                query.query_map(params![at.0, bounded(limit)], |row| row.get::<_, String>(0))?;
            let rows: rusqlite::Result<Vec<String>> = rows.collect();
            let rows = rows?.into_iter();
            Ok(rows
                .filter_map(|told| serde_json::from_str(&told).ok())
                .collect())
        })
    }
}
