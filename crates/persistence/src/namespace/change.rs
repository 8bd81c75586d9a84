//! Changes to the tree as values, and how each is made inside the writer's transaction.
//!
//! Every change decides first and writes after, so a refused change leaves nothing behind in the
//! transaction that it shares with others. What a destination looks like is decided here and nowhere
//! earlier: a door's own look at the namespace may be out of date by the time its change is made.

use super::property::{self, PROPERTIES_BYTES_MAX, PROPERTIES_MAX, PropertyUpdate};
use super::read::{below, by_name, find, signed, stored};
use super::{Entry, EntryId, EntryKind, MoverRecord, lock, record, schema};
use penstock_model::{
    Bytes, Checksum, Lock, LockToken, NamespacePath, PoolName, Timestamp, UserName,
};
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

/// What may happen to a file that stands at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// It goes to the trash in the same transaction.
    Allowed,
    /// The change is refused with [`Refusal::Exists`].
    Refused,
    /// As `Allowed` when it is this one; the change is refused with [`Refusal::Changed`] when another one stands
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
    /// Who wrote it.
    pub owner: Option<UserName>,
    /// Now.
    pub at: Timestamp,
    /// When the path is taken.
    pub replace: Replace,
    /// The entry whose properties it gets; `None`: it keeps those of the file that it replaces.
    pub properties_of: Option<EntryId>,
}

/// Something to be written.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Makes a file visible.
    Publish(NewFile),
    /// Makes one directory; its parent must exist.
    MakeDirectory {
        /// Where.
        path: NamespacePath,
        /// Who asked.
        owner: Option<UserName>,
        /// Now.
        at: Timestamp,
    },
    /// Removes a file, or a directory with everything below it; files go to the trash.
    Remove {
        /// What.
        path: NamespacePath,
        /// The entry that must stand there; `None`: any.
        only: Option<EntryId>,
        /// Entries, itself included, beyond which a directory is refused, because one transaction holds
        /// up all others.
        entries_max: usize,
        /// Now.
        at: Timestamp,
    },
    /// Gives an entry another path. A directory moves with all that is below it, at the price of one row.
    Rename {
        /// From.
        from: NamespacePath,
        /// The entry that must stand there; `None`: any.
        only: Option<EntryId>,
        /// To. Its parent must exist.
        to: NamespacePath,
        /// When `to` is taken.
        replace: Replace,
        /// As in [`Change::Remove`], for a directory at `to`.
        entries_max: usize,
        /// Now.
        at: Timestamp,
    },
    /// Changes the properties that clients keep with an entry: all that is asked, or nothing.
    UpdateProperties {
        /// Of what.
        path: NamespacePath,
        /// The entry that must stand there; `None`: any.
        only: Option<EntryId>,
        /// What to do, in this order.
        updates: Vec<PropertyUpdate>,
    },
    /// Gives what stands at a path the properties of another entry as well.
    CopyProperties {
        /// Whose.
        from: EntryId,
        /// To what.
        to: NamespacePath,
    },
    /// Keeps a lock, or its new end, until it is dropped.
    KeepLock(Lock),
    /// Drops locks that were released or have expired.
    DropLocks(Vec<LockToken>),
    /// Adds checksums that were computed later. Nothing happens when the file is gone.
    AddChecksums {
        /// Whose.
        file: EntryId,
        /// Which.
        checksums: Vec<Checksum>,
    },
    /// Forgets trash whose data has been removed.
    ForgetTrash(Vec<EntryId>),
    /// Records ended movers.
    RecordMovers(Vec<MoverRecord>),
    /// After recovery: every id below this has an entry or is trash.
    RaiseLowWater(EntryId),
}

/// What a change did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changed {
    /// Something stood at the destination before.
    pub replaced: bool,
    /// Files that were put into the trash: their data is to be removed, then [`Change::ForgetTrash`].
    pub trashed: Vec<Trashed>,
    /// Of the trash that was to be forgotten, what was there until now.
    pub forgotten: BTreeSet<EntryId>,
}

/// A file that is no longer visible and whose data has not been removed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trashed {
    /// Which file.
    pub file: EntryId,
    /// Where its data is.
    pub pool: PoolName,
    /// How much.
    pub size: Bytes,
}

/// Why the tree does not allow a change.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The destination exists and may not be replaced.
    #[error("{0} exists")]
    Exists(NamespacePath),
    /// Another entry than the expected one stands there, or none.
    #[error("{0} has changed since the request began")]
    Changed(NamespacePath),
    /// A file was expected, a directory stands there.
    #[error("{0} is a directory")]
    IsDirectory(NamespacePath),
    /// Nothing stands there.
    #[error("{0} does not exist")]
    NotFound(NamespacePath),
    /// The directory that should hold it does not exist.
    #[error("the directory {0} does not exist; make it first")]
    ParentMissing(NamespacePath),
    /// A file stands where a directory is needed.
    #[error("{0} is a file, so nothing can be below it")]
    ParentIsFile(NamespacePath),
    /// A directory cannot be moved into itself, and nothing onto itself.
    #[error("{0} cannot be moved onto or below itself")]
    IntoItself(NamespacePath),
    /// The root stays.
    #[error("the root directory can be neither removed nor moved nor replaced")]
    Root,
    /// More properties than one entry should have.
    #[error(
        "{0} would have more than {PROPERTIES_MAX} properties, or more than {PROPERTIES_BYTES_MAX} bytes of them; \
         remove some"
    )]
    TooManyProperties(NamespacePath),
    /// More entries than one transaction should remove.
    #[error("{path} holds {entries_max} entries or more; remove what is below it first")]
    TooManyEntries {
        /// The directory.
        path: NamespacePath,
        /// The bound.
        entries_max: usize,
    },
}

/// Why a change was not made. Nothing of it is stored then.
#[derive(Debug, Clone, Error)]
pub enum ChangeError {
    /// The tree does not allow it.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// Too many changes wait; try again.
    #[error("the namespace is overloaded; try again in some seconds")]
    Busy,
    /// The namespace is being closed.
    #[error("the namespace is closing; try again after the restart")]
    Stopped,
    /// SQLite failed.
    #[error("the namespace database failed: {0}; an operator must check its disk")]
    Database(Arc<rusqlite::Error>),
}

impl ChangeError {
    /// The database's own disk has no room left.
    pub fn is_disk_full(&self) -> bool {
        match self {
            ChangeError::Database(error) => {
                error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
            }
            ChangeError::Refused(_) | ChangeError::Busy | ChangeError::Stopped => false,
        }
    }
}

impl From<rusqlite::Error> for ChangeError {
    fn from(error: rusqlite::Error) -> Self {
        ChangeError::Database(Arc::new(error))
    }
}

type Outcome = Result<Changed, ChangeError>;

/// One open transaction, with what is written once at its end however many changes it holds.
pub(super) struct Batch<'a> {
    connection: &'a Connection,
    next_id: &'a AtomicU64,
    /// Files and bytes that came (+) or went (-), per pool.
    usage: BTreeMap<PoolName, (i64, i64)>,
    /// Directories whose list of entries changed.
    touched: BTreeMap<EntryId, Timestamp>,
    /// The largest id that was written.
    id_max: u64,
}

impl<'a> Batch<'a> {
    pub(super) fn new(connection: &'a Connection, next_id: &'a AtomicU64) -> Batch<'a> {
        Batch {
            connection,
            next_id,
            usage: BTreeMap::new(),
            touched: BTreeMap::new(),
            id_max: 0,
        }
    }

    /// Makes one change. After [`ChangeError::Database`] the transaction must be rolled back.
    pub(super) fn make(&mut self, change: &Change) -> Outcome {
        match change {
            Change::Publish(file) => self.publish(file),
            Change::MakeDirectory { path, owner, at } => {
                let (parent, name) = self.place(path)?;
                if by_name(self.connection, stored(parent), name)?.is_some() {
                    return Err(Refusal::Exists(path.clone()).into());
                }
                self.insert_directory(parent, name, owner.as_ref(), *at)?;
                Ok(Changed::default())
            }
            Change::Remove {
                path,
                only,
                entries_max,
                at,
            } => self.remove(path, *only, *entries_max, *at),
            Change::Rename {
                from,
                only,
                to,
                replace,
                entries_max,
                at,
            } => self.rename((from, *only), to, *replace, *entries_max, *at),
            Change::UpdateProperties {
                path,
                only,
                updates,
            } => {
                let entry = self.existing(path)?;
                refuse_other(*only, &entry, path)?;
                property::update(self.connection, path, &entry, updates)?;
                Ok(Changed::default())
            }
            Change::CopyProperties { from, to } => {
                let entry = self.existing(to)?;
                property::copy(self.connection, *from, entry.id)?;
                Ok(Changed::default())
            }
            Change::KeepLock(kept) => {
                lock::keep(self.connection, kept)?;
                Ok(Changed::default())
            }
            Change::DropLocks(tokens) => {
                lock::drop_all(self.connection, tokens)?;
                Ok(Changed::default())
            }
            Change::AddChecksums { file, checksums } => self.add_checksums(*file, checksums),
            Change::ForgetTrash(files) => {
                let mut delete = self
                    .connection
                    .prepare_cached("DELETE FROM trash WHERE file_id = ?1")?;
                let mut changed = Changed::default();
                for file in files {
                    if delete.execute([stored(*file)])? > 0 {
                        changed.forgotten.insert(*file);
                    }
                }
                Ok(changed)
            }
            Change::RecordMovers(records) => {
                for record in records {
                    record::insert(self.connection, record)?;
                }
                record::prune(self.connection)?;
                Ok(Changed::default())
            }
            Change::RaiseLowWater(id) => {
                schema::set_meta(self.connection, "low_water", &id.0.to_string())?;
                Ok(Changed::default())
            }
        }
    }

    /// Writes what is kept once per transaction; to be called before the commit. Gives back the largest
    /// id written.
    pub(super) fn finish(self) -> rusqlite::Result<u64> {
        for (pool, (files, bytes)) in &self.usage {
            self.connection
                .prepare_cached(
                    "INSERT INTO pool_usage VALUES (?1, ?2, ?3) ON CONFLICT (pool) DO UPDATE
                     SET files = files + ?2, size_bytes = size_bytes + ?3",
                )?
                .execute(params![pool.as_str(), files, bytes])?;
        }
        for (directory, at) in &self.touched {
            self.connection
                .prepare_cached("UPDATE entry SET modified_ms = ?2 WHERE id = ?1")?
                .execute(params![stored(*directory), at.0])?;
        }
        Ok(self.id_max)
    }

    fn publish(&mut self, file: &NewFile) -> Outcome {
        let Some((name, parents)) = file.path.names().split_last() else {
            return Err(Refusal::IsDirectory(file.path.clone()).into());
        };
        // Where the path leaves what exists.
        let mut parent = EntryId::ROOT;
        let mut existing = 0;
        for name in parents {
            match by_name(self.connection, stored(parent), name)? {
                Some(entry) if entry.is_directory() => parent = entry.id,
                Some(_) => {
                    return Err(Refusal::ParentIsFile(first(&file.path, existing + 1)).into());
                }
                None => break,
            }
            existing += 1;
        }
        let mut changed = Changed::default();
        let mut inherits = false;
        if existing == parents.len() {
            match by_name(self.connection, stored(parent), name)? {
                None if only_of(file.replace).is_some() => {
                    return Err(Refusal::Changed(file.path.clone()).into());
                }
                None => {}
                Some(entry) if entry.is_directory() => {
                    let Replace::Tree(entries_max) = file.replace else {
                        return Err(Refusal::IsDirectory(file.path.clone()).into());
                    };
                    changed.replaced = true;
                    self.discard_all(&file.path, &entry, entries_max, &mut changed.trashed)?;
                }
                Some(_) if file.replace == Replace::Refused => {
                    return Err(Refusal::Exists(file.path.clone()).into());
                }
                Some(entry) => {
                    refuse_other(only_of(file.replace), &entry, &file.path)?;
                    changed.replaced = true;
                    // RFC 4918 §9.7.1: a new content does not cost a file its properties.
                    inherits = entry.has_properties && file.properties_of.is_none();
                    if inherits {
                        property::hand_over(self.connection, entry.id, file.id)?;
                    }
                    self.discard(&entry, &mut changed.trashed)?;
                }
            }
        } else if only_of(file.replace).is_some() {
            return Err(Refusal::Changed(file.path.clone()).into());
        }
        for name in &parents[existing..] {
            parent = self.insert_directory(parent, name, file.owner.as_ref(), file.at)?;
        }
        self.insert_file(parent, name, file)?;
        match file.properties_of {
            Some(other) => property::copy(self.connection, other, file.id)?,
            None if inherits => property::flag(self.connection, file.id, true)?,
            None => {}
        }
        Ok(changed)
    }

    fn insert_file(&mut self, parent: EntryId, name: &str, file: &NewFile) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("INSERT INTO entry VALUES (?1, ?2, ?3, 1, ?4, ?5, ?5, ?6, ?7, 0)")?
            .execute(params![
                stored(file.id),
                stored(parent),
                name,
                signed(file.size.0),
                file.at.0,
                file.owner.as_ref().map(UserName::as_str),
                file.pool.as_str(),
            ])?;
        self.insert_checksums(file.id, &file.checksums)?;
        let usage = self.usage.entry(file.pool.clone()).or_default();
        usage.0 += 1;
        usage.1 += signed(file.size.0);
        self.touched.insert(parent, file.at);
        self.id_max = self.id_max.max(file.id.0);
        Ok(())
    }

    fn insert_directory(
        &mut self,
        parent: EntryId,
        name: &str,
        owner: Option<&UserName>,
        at: Timestamp,
    ) -> rusqlite::Result<EntryId> {
        let id = EntryId(self.next_id.fetch_add(1, Ordering::Relaxed));
        self.connection
            .prepare_cached("INSERT INTO entry VALUES (?1, ?2, ?3, 0, 0, ?4, ?4, ?5, NULL, 0)")?
            .execute(params![
                stored(id),
                stored(parent),
                name,
                at.0,
                owner.map(UserName::as_str)
            ])?;
        self.touched.insert(parent, at);
        self.id_max = self.id_max.max(id.0);
        Ok(id)
    }

    fn remove(
        &mut self,
        path: &NamespacePath,
        only: Option<EntryId>,
        entries_max: usize,
        at: Timestamp,
    ) -> Outcome {
        if path.is_root() {
            return Err(Refusal::Root.into());
        }
        let (parent, name) = self.place(path)?;
        let entry = by_name(self.connection, stored(parent), name)?
            .ok_or_else(|| Refusal::NotFound(path.clone()))?;
        refuse_other(only, &entry, path)?;
        let mut changed = Changed::default();
        self.discard_all(path, &entry, entries_max, &mut changed.trashed)?;
        self.touched.insert(parent, at);
        Ok(changed)
    }

    fn rename(
        &mut self,
        (from, only): (&NamespacePath, Option<EntryId>),
        to: &NamespacePath,
        replace: Replace,
        entries_max: usize,
        at: Timestamp,
    ) -> Outcome {
        if from.is_root() || to.is_root() {
            return Err(Refusal::Root.into());
        }
        // A destination that holds the source would be removed with it; one below the source would be cut
        // off.
        if to.is_within(from) || from.is_within(to) {
            return Err(Refusal::IntoItself(from.clone()).into());
        }
        let (old_parent, old_name) = self.place(from).map_err(|refusal| match refusal {
            ChangeError::Refused(_) => Refusal::NotFound(from.clone()).into(),
            other => other,
        })?;
        let entry = by_name(self.connection, stored(old_parent), old_name)?
            .ok_or_else(|| Refusal::NotFound(from.clone()))?;
        refuse_other(only, &entry, from)?;
        let (parent, name) = self.place(to)?;
        let mut changed = Changed::default();
        if let Some(old) = by_name(self.connection, stored(parent), name)? {
            if replace == Replace::Refused {
                return Err(Refusal::Exists(to.clone()).into());
            }
            refuse_other(only_of(replace), &old, to)?;
            changed.replaced = true;
            self.discard_all(to, &old, entries_max, &mut changed.trashed)?;
        }
        self.connection
            .prepare_cached("UPDATE entry SET parent = ?2, name = ?3 WHERE id = ?1")?
            .execute(params![stored(entry.id), stored(parent), name])?;
        self.touched.insert(old_parent, at);
        self.touched.insert(parent, at);
        Ok(changed)
    }

    fn add_checksums(&mut self, file: EntryId, checksums: &[Checksum]) -> Outcome {
        let exists = self
            .connection
            .prepare_cached("SELECT 1 FROM entry WHERE id = ?1 AND kind = 1")?
            .exists([stored(file)])?;
        if exists {
            self.insert_checksums(file, checksums)?;
        }
        Ok(Changed::default())
    }

    fn insert_checksums(&self, file: EntryId, checksums: &[Checksum]) -> rusqlite::Result<()> {
        for checksum in checksums {
            self.connection
                .prepare_cached("INSERT OR REPLACE INTO checksum VALUES (?1, ?2, ?3)")?
                .execute(params![
                    stored(file),
                    checksum.algorithm().name(),
                    checksum.hex()
                ])?;
        }
        Ok(())
    }

    /// Removes an entry with all that is below it, unless that is too much for one transaction.
    fn discard_all(
        &mut self,
        path: &NamespacePath,
        entry: &Entry,
        entries_max: usize,
        trashed: &mut Vec<Trashed>,
    ) -> Result<(), ChangeError> {
        let inner = match &entry.kind {
            EntryKind::Directory => below(self.connection, entry.id, entries_max)?,
            EntryKind::File { .. } => Vec::new(),
        };
        if inner.len() >= entries_max {
            return Err(Refusal::TooManyEntries {
                path: path.clone(),
                entries_max,
            }
            .into());
        }
        for entry in inner.iter().chain([entry]) {
            self.discard(entry, trashed)?;
        }
        Ok(())
    }

    /// Removes one row; a file's data becomes trash.
    fn discard(&mut self, entry: &Entry, trashed: &mut Vec<Trashed>) -> rusqlite::Result<()> {
        let id = stored(entry.id);
        self.connection
            .prepare_cached("DELETE FROM entry WHERE id = ?1")?
            .execute([id])?;
        self.touched.remove(&entry.id);
        property::forget(self.connection, entry)?;
        if let EntryKind::File { size, pool } = &entry.kind {
            self.connection
                .prepare_cached("DELETE FROM checksum WHERE entry = ?1")?
                .execute([id])?;
            self.connection
                .prepare_cached("INSERT INTO trash VALUES (?1, ?2, ?3)")?
                .execute(params![id, pool.as_str(), signed(size.0)])?;
            let usage = self.usage.entry(pool.clone()).or_default();
            usage.0 -= 1;
            usage.1 -= signed(size.0);
            trashed.push(Trashed {
                file: entry.id,
                pool: pool.clone(),
                size: *size,
            });
        }
        Ok(())
    }

    /// What stands at a path.
    fn existing(&self, path: &NamespacePath) -> Result<Entry, ChangeError> {
        let entry = find(self.connection, path)?;
        entry.ok_or_else(|| Refusal::NotFound(path.clone()).into())
    }

    /// The directory that holds (or would hold) a path, and the path's last name.
    fn place<'p>(&self, path: &'p NamespacePath) -> Result<(EntryId, &'p str), ChangeError> {
        let (Some(name), Some(parent)) = (path.name(), path.parent()) else {
            // Only the root has no name; making it again is the one thing that can be asked of it here.
            return Err(Refusal::Exists(path.clone()).into());
        };
        match find(self.connection, &parent)? {
            Some(entry) if entry.is_directory() => Ok((entry.id, name)),
            Some(_) => Err(Refusal::ParentIsFile(parent).into()),
            None => Err(Refusal::ParentMissing(parent).into()),
        }
    }
}

/// The one entry that may be replaced, when only one may.
fn only_of(replace: Replace) -> Option<EntryId> {
    match replace {
        Replace::Only(id) => Some(id),
        Replace::Allowed | Replace::Refused | Replace::Tree(_) => None,
    }
}

/// Refuses to touch another entry than the expected one.
fn refuse_other(only: Option<EntryId>, entry: &Entry, path: &NamespacePath) -> Result<(), Refusal> {
    match only {
        Some(id) if id != entry.id => Err(Refusal::Changed(path.clone())),
        Some(_) | None => Ok(()),
    }
}

/// The first `count` names of a path.
fn first(path: &NamespacePath, count: usize) -> NamespacePath {
    let mut cut = path.clone();
    while cut.names().len() > count {
        cut = cut.parent().unwrap_or_else(NamespacePath::root);
    }
    cut
}
