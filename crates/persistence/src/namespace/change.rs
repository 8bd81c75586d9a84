//! Changes to the tree as values, and how each is made inside the writer's transaction.
//!
//! Every change decides first and writes after, so a refused change leaves nothing behind in the
//! transaction that it shares with others. What a destination looks like is decided here and nowhere
//! earlier: a door's own look at the namespace may be out of date by the time its change is made.

mod caused;
mod known_directories;
mod long_path;
mod steps;

pub use caused::CausedChange;
pub(super) use caused::ToldEntry;
pub(super) use known_directories::KnownDirectories;
pub(super) use steps::first;

use super::change_error::{ChangeError, ChangeRefusal};
use super::connection::stored;
use super::directory_log::{DirectoryRecord, TrashedFile};
use super::ledger::{self, ElementRecord, LedgerBound};
use super::nearline_change::NearlineChange;
use super::property::{self, PropertyUpdate};
use super::read::by_name;
use super::schema::POOL_KEY;
use super::{ArchiveWord, EntryId, MoverRecord, lock, pool_minutes, record, schema};
use caused::Cause;
use penstock_model::observation::EntryChange;
use penstock_model::{
    Archival, Bytes, Checksum, Lock, LockToken, NamespacePath, PoolName, PoolSamples, Timestamp,
    UserName,
};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use steps::{Removal, Rename, refuse_other};

/// What may happen to a file that stands at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replace {
    /// It goes to the trash in the same transaction.
    Allowed,
    /// The change is refused with [`ChangeRefusal::Exists`].
    Refused,
    /// As `Allowed` when it is this one; the change is refused with [`ChangeRefusal::Changed`] when another one stands
    /// there by now, or none.
    Only(EntryId),
    /// As `Allowed`, and a directory goes as well, with what is below it, unless that is so many entries or more.
    Tree(usize),
}

/// A file whose data is durable in its pool and that shall become visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFile {
    /// From [`super::Namespace::allocate`].
    pub id: EntryId,
    /// Where. Missing parents are made, owned by the file's owner.
    pub path: NamespacePath,
    /// Bytes of data.
    pub size: Bytes,
    /// Computed while the bytes passed.
    pub checksums: Vec<Checksum>,
    /// The pool that keeps the data.
    pub pool: PoolName,
    /// Whether it goes to tape.
    pub archival: Archival,
    /// What its request has said for that.
    pub archive_word: Option<ArchiveWord>,
    /// Who wrote it.
    pub owner: Option<UserName>,
    pub at: Timestamp,
    /// When the path is taken.
    pub replace: Replace,
    /// The entry whose properties it gets; `None`: it keeps those of the file that it replaces.
    pub properties_of: Option<EntryId>,
    /// The directory of which the label of its data says that it is in there; `None`: the label does not tell all of it.
    pub labelled_in: Option<EntryId>,
}

/// Something to be written.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Makes a file visible.
    Publish(NewFile),
    /// Makes one directory; its parent must exist.
    MakeDirectory {
        path: NamespacePath,
        owner: Option<UserName>,
        at: Timestamp,
    },
    /// Removes a file, or a directory with everything below it; files go to the trash.
    Remove {
        path: NamespacePath,
        /// The entry that must stand there; `None`: any.
        only: Option<EntryId>,
        /// Entries, itself included, beyond which a directory is refused, because one transaction holds
        /// up all others.
        entries_max: usize,
        by: Option<UserName>,
        at: Timestamp,
    },
    /// Gives an entry another path. A directory moves with all that is below it, at the price of one row.
    Rename {
        from: NamespacePath,
        /// The entry that must stand there; `None`: any.
        only: Option<EntryId>,
        /// To. Its parent must exist.
        to: NamespacePath,
        /// When `to` is taken.
        replace: Replace,
        /// As in [`Change::Remove`], for a directory at `to`.
        entries_max: usize,
        by: Option<UserName>,
        at: Timestamp,
    },
    /// Changes the properties that clients keep with an entry: all that is asked, or nothing.
    UpdateProperties {
        path: NamespacePath,
        /// The entry that must stand there; `None`: any.
        only: Option<EntryId>,
        /// What to do, in this order.
        updates: Vec<PropertyUpdate>,
    },
    /// Gives what stands at a path the properties of another entry as well.
    CopyProperties { from: EntryId, to: NamespacePath },
    /// Keeps a lock, or its new end, until it is dropped.
    KeepLock(Lock),
    /// Drops locks that were released or have expired.
    DropLocks(Vec<LockToken>),
    /// Adds checksums that were computed later. Nothing happens when the file is gone.
    AddChecksums {
        file: EntryId,
        checksums: Vec<Checksum>,
    },
    /// Forgets trash whose data has been removed.
    ForgetTrash {
        files: Vec<EntryId>,
        /// Their copies on tape stay for a while from then on.
        at: Timestamp,
    },
    /// Takes a removed file into the trash of which the namespace knew nothing any more.
    ReenterTrash(TrashedFile),
    /// Makes a file of the trash visible again, as it was. Missing parents are made, owned by the file's owner.
    RestoreTrash {
        file: EntryId,
        /// Where. Nothing may stand there.
        to: NamespacePath,
        at: Timestamp,
    },
    /// The label of a file's data has been written again and tells where the file is: in this directory.
    Relabelled {
        file: EntryId,
        /// The directory.
        parent: EntryId,
        name: String,
    },
    /// Makes a file visible of which the namespace knew nothing any more. Its time is that of before; its directory has
    /// changed now.
    Reenter { file: NewFile, at: Timestamp },
    /// Counts anew what each pool holds.
    RecountPools,
    /// Records ended movers.
    RecordMovers(Vec<MoverRecord>),
    /// Records what the pools did in a minute, or in a part of one.
    RecordPoolMinute(PoolSamples),
    /// Adds to the ledger what is no change.
    AppendLedger(Vec<ElementRecord>),
    /// A run of the storage element begins. When the one before did not end by itself, the ledger has a gap.
    BeginLedger(Timestamp),
    /// It ends, and all was written.
    EndLedger,
    /// Removes some of what is kept no longer, if there is any.
    PruneLedger(LedgerBound),
    /// After recovery: every id below this has an entry or is trash.
    RaiseLowWater(EntryId),
    /// Sets ids aside, this one among them, so that whoever knows how far they reach can tell an old copy.
    ReserveIds(EntryId),
    /// What concerns files on tape.
    Nearline(NearlineChange),
    /// These pools exist: a directory of theirs that is empty has lost its files, or its disk is not mounted.
    RecordPools(Vec<PoolName>),
}

impl Change {
    /// About how many rows it may change: how long it keeps others waiting.
    pub(super) fn weight(&self) -> usize {
        if let Change::Nearline(change) = self {
            change.weight()
        } else {
            1
        }
    }
}

/// What a change did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeReport {
    /// Something stood at the destination before.
    pub replaced: bool,
    /// Files that were put into the trash: their data is to be removed some day, then [`Change::ForgetTrash`].
    pub trashed: Vec<TrashedData>,
    /// Of the trash that was to be forgotten, what was there until now.
    pub forgotten: BTreeSet<EntryId>,
    /// Things that the ledger tells no more.
    pub pruned: u64,
    /// Files that a stage request no longer keeps or waits for.
    pub released: Vec<EntryId>,
    /// Only a part was done, so that others have their turn: the same change goes on with the rest.
    pub is_more: bool,
}

/// A file that is no longer visible and whose data has not been removed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrashedData {
    pub file: EntryId,
    /// Where its data is.
    pub pool: PoolName,
    /// How much.
    pub size: Bytes,
}

pub(super) type Outcome = Result<ChangeReport, ChangeError>;

/// One open transaction, with what is written once at its end however many changes it holds.
pub(super) struct Batch<'a> {
    pub(super) connection: &'a Connection,
    next_id: &'a AtomicU64,
    /// Files and bytes that came (+) or went (-), per pool.
    usage: BTreeMap<PoolName, (i64, i64)>,
    /// Directories whose list of entries changed.
    touched: BTreeMap<EntryId, Timestamp>,
    /// The largest id that was written.
    pub(super) id_max: u64,
    /// What the directory logs are told.
    pub(super) records: Vec<DirectoryRecord>,
    /// So many of them have their rows of trash, if any.
    pub(super) records_with_trash_written: usize,
    /// What the ledger is told.
    ledger: Vec<ElementRecord>,
    /// Of the change that is being made.
    cause: Cause,
    directories: KnownDirectories,
}

/// What a batch leaves to be done with its commit, and after it.
pub(super) struct BatchOutcome {
    /// The largest id that was written.
    pub id_max: u64,
    /// What the directory logs are told.
    pub records: Vec<DirectoryRecord>,
    /// To be handed to the next batch once this one is committed.
    pub directories: KnownDirectories,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        next_id: &'a AtomicU64,
        directories: KnownDirectories,
    ) -> Batch<'a> {
        Batch {
            connection,
            next_id,
            usage: BTreeMap::new(),
            touched: BTreeMap::new(),
            id_max: 0,
            records: Vec::new(),
            records_with_trash_written: 0,
            ledger: Vec::new(),
            cause: Cause::default(),
            directories,
        }
    }

    /// Makes one change. After [`ChangeError::Database`] the transaction must be rolled back.
    pub(super) fn make(&mut self, caused: &CausedChange) -> Outcome {
        let told = self.ledger.len();
        self.cause = Cause::of(caused);
        let made = self.make_one(&caused.change);
        if made.is_err() {
            self.ledger.truncate(told);
        }
        made
    }

    /// The same, for the cause that is known. Long because each kind of change has one arm.
    fn make_one(&mut self, change: &Change) -> Outcome {
        match change {
            Change::Publish(file) => self.publish(file),
            Change::MakeDirectory { path, owner, at } => {
                let (parent, name) = self.place(path)?;
                if by_name(self.connection, stored(parent), name)?.is_some() {
                    return Err(ChangeRefusal::Exists(path.clone()).into());
                }
                let id = self.insert_directory(parent, name, owner.as_ref(), *at)?;
                self.tell_ledger(ToldEntry::new(EntryChange::DirectoryCreation, id, path));
                Ok(ChangeReport::default())
            }
            Change::Remove {
                path,
                only,
                entries_max,
                by,
                at,
            } => {
                let by = by.as_ref();
                let at = *at;
                self.remove(path, *only, *entries_max, Removal { by, at })
            }
            Change::Rename {
                from,
                only,
                to,
                replace,
                entries_max,
                by,
                at,
            } => {
                let by = by.as_ref();
                let at = *at;
                let rename = Rename {
                    from,
                    only: *only,
                    to,
                    replace: *replace,
                    entries_max: *entries_max,
                };
                self.rename(rename, Removal { by, at })
            }
            Change::UpdateProperties {
                path,
                only,
                updates,
            } => {
                let entry = self.existing(path)?;
                refuse_other(*only, &entry, path)?;
                property::update(self.connection, path, &entry, updates)?;
                self.tell_properties(entry.id)?;
                self.tell_ledger(ToldEntry::new(EntryChange::PropertyUpdate, entry.id, path));
                Ok(ChangeReport::default())
            }
            Change::CopyProperties { from, to } => {
                let entry = self.existing(to)?;
                if property::copy(self.connection, *from, entry.id)? {
                    self.tell_properties(entry.id)?;
                    self.tell_ledger(ToldEntry::new(EntryChange::PropertyUpdate, entry.id, to));
                }
                Ok(ChangeReport::default())
            }
            Change::KeepLock(kept) => {
                lock::keep(self.connection, kept)?;
                Ok(ChangeReport::default())
            }
            Change::DropLocks(tokens) => {
                lock::drop_all(self.connection, tokens)?;
                Ok(ChangeReport::default())
            }
            Change::AddChecksums { file, checksums } => self.add_checksums(*file, checksums),
            Change::ForgetTrash { files, at } => self.forget_trash(files, *at),
            Change::ReenterTrash(file) => self.reenter_trash(file),
            Change::RestoreTrash { file, to, at } => self.restore_trash(*file, to, *at),
            Change::Relabelled { file, parent, name } => {
                self.connection
                    .prepare_cached(
                        "UPDATE entry SET labelled = 1 WHERE id = ?1 AND parent = ?2 AND name = ?3",
                    )?
                    .execute(params![stored(*file), stored(*parent), name])?;
                Ok(ChangeReport::default())
            }
            Change::Reenter { file, at } => {
                let changed = self.publish_as(EntryChange::Recovery, file)?;
                let parent = file.path.parent().unwrap_or_else(NamespacePath::root);
                let parent = self.existing(&parent)?;
                self.touch(parent.id, *at);
                Ok(changed)
            }
            Change::RecountPools => {
                // What this transaction has counted so far is in the entries.
                self.usage.clear();
                self.connection.execute_batch(schema::COUNT_POOLS)?;
                Ok(ChangeReport::default())
            }
            Change::RecordMovers(records) => {
                for record in records {
                    record::insert(self.connection, record)?;
                }
                record::prune(self.connection)?;
                Ok(ChangeReport::default())
            }
            Change::RecordPoolMinute(minute) => {
                pool_minutes::insert(self.connection, minute)?;
                Ok(ChangeReport::default())
            }
            Change::AppendLedger(records) => {
                self.ledger.extend_from_slice(records);
                Ok(ChangeReport::default())
            }
            Change::BeginLedger(at) => {
                ledger::begin(self.connection, *at)?;
                Ok(ChangeReport::default())
            }
            Change::EndLedger => {
                ledger::end(self.connection)?;
                Ok(ChangeReport::default())
            }
            Change::PruneLedger(bound) => {
                let minutes = pool_minutes::prune(self.connection, bound)?;
                let pruned = minutes + ledger::prune(self.connection, bound)?;
                Ok(ChangeReport {
                    pruned,
                    ..ChangeReport::default()
                })
            }
            Change::RaiseLowWater(id) => {
                schema::set_meta(self.connection, "low_water", &id.0.to_string())?;
                Ok(ChangeReport::default())
            }
            Change::ReserveIds(id) => {
                self.id_max = self.id_max.max(id.0);
                Ok(ChangeReport::default())
            }
            Change::Nearline(change) => self.make_nearline(change),
            Change::RecordPools(pools) => {
                for pool in pools {
                    let key = format!("{POOL_KEY}{pool}");
                    schema::set_meta(self.connection, &key, "made")?;
                }
                Ok(ChangeReport::default())
            }
        }
    }

    /// Writes what is kept once per transaction; to be called before the commit.
    pub(super) fn finish(mut self) -> rusqlite::Result<BatchOutcome> {
        self.write_trash()?;
        ledger::append(self.connection, &self.ledger)?;
        for (pool, (files, bytes)) in &self.usage {
            schema::add_to_pool(self.connection, pool.as_str(), *files, *bytes)?;
        }
        for (directory, at) in &self.touched {
            self.connection
                // Changes are committed in nearly, not quite, the order of their times. A clock that was set back counts.
                .prepare_cached(
                    "UPDATE entry SET modified_ms = ?2 WHERE id = ?1 AND modified_ms NOT BETWEEN ?2 AND ?2 + 60000",
                )?
                .execute(params![stored(*directory), at.0])?;
        }
        Ok(BatchOutcome {
            id_max: self.id_max,
            records: self.records,
            directories: self.directories,
        })
    }
}
