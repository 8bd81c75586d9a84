//! How each change to the tree is made: what stands at the place, what that forbids, then what is written.
//! Long because each kind of change has its steps.

use super::super::connection::{signed, stored, unsigned};
use super::super::data_sets::keep_word;
use super::super::directory_log::{DirectoryEntry, DirectoryRecord, FileEntry, TrashedFile};
use super::super::property::{self, DeadProperty};
use super::super::read::{
    archival_of, below_with_names, by_name, checksum_of_row, checksums_of, find, stored_archival,
};
use super::super::{Entry, EntryId, EntryKind};
use super::long_path::{bytes_of, has_long_path};
use super::{
    Batch, ChangeError, ChangeRefusal, ChangeReport, NewFile, Outcome, Replace, ToldEntry,
    TrashedData,
};
use penstock_model::observation::{EntryChange, EntryChangeReason};
use penstock_model::{Bytes, Checksum, NamespacePath, PoolName, Timestamp, UserName};
use rusqlite::params;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Who removes something, and when.
#[derive(Clone, Copy)]
pub(super) struct Removal<'a> {
    pub(super) by: Option<&'a UserName>,
    pub(super) at: Timestamp,
}

/// A file that is about to be removed, with where it was.
struct RemovedEntry<'a> {
    entry: &'a Entry,
    parent: EntryId,
    path: NamespacePath,
    /// Its properties when they have gone to another entry already.
    properties: Option<Vec<DeadProperty>>,
    act: Removal<'a>,
    /// Why it goes, where nobody asked for just that.
    reason: Option<EntryChangeReason>,
}

/// A new path for an entry.
pub(super) struct Rename<'a> {
    pub(super) from: &'a NamespacePath,
    /// Only if it is this entry.
    pub(super) only: Option<EntryId>,
    pub(super) to: &'a NamespacePath,
    /// What becomes of an entry that is there.
    pub(super) replace: Replace,
    /// Entries that may be removed with it.
    pub(super) entries_max: usize,
}

impl Batch<'_> {
    /// Makes a file visible, with the directories above it.
    pub(super) fn publish(&mut self, file: &NewFile) -> Outcome {
        self.publish_as(EntryChange::Creation, file)
    }

    /// The same; the ledger calls it so, unless another entry gives way to the file. Long because what stands at the path is looked at once, and each
    /// of its kinds has its arm.
    pub(super) fn publish_as(&mut self, kind: EntryChange, file: &NewFile) -> Outcome {
        let Some((name, parents)) = file.path.names().split_last() else {
            return Err(ChangeRefusal::IsDirectory(file.path.clone()).into());
        };
        let (mut parent, existing) = self.deepest_directory(&file.path, parents)?;
        let mut changed = ChangeReport::default();
        let mut inherits = false;
        let act = Removal {
            by: file.owner.as_ref(),
            at: file.at,
        };
        if existing == parents.len() {
            match by_name(self.connection, stored(parent), name)? {
                None if only_of(file.replace).is_some() => {
                    return Err(ChangeRefusal::Changed(file.path.clone()).into());
                }
                None => {}
                Some(entry) if entry.is_directory() => {
                    let Replace::Tree(entries_max) = file.replace else {
                        return Err(ChangeRefusal::IsDirectory(file.path.clone()).into());
                    };
                    changed.replaced = true;
                    let leaving = RemovedEntry {
                        entry: &entry,
                        parent,
                        path: file.path.clone(),
                        properties: None,
                        act,
                        reason: Some(EntryChangeReason::Replaced),
                    };
                    self.discard_all(leaving, entries_max, &mut changed.trashed)?;
                }
                Some(_) if file.replace == Replace::Refused => {
                    return Err(ChangeRefusal::Exists(file.path.clone()).into());
                }
                Some(entry) => {
                    refuse_other(only_of(file.replace), &entry, &file.path)?;
                    changed.replaced = true;
                    // RFC 4918 §9.7.1: a new content does not cost a file its properties.
                    inherits = entry.has_properties && file.properties_of.is_none();
                    let properties = match inherits {
                        true => Some(property::load(self.connection, entry.id)?),
                        false => None,
                    };
                    if inherits {
                        property::hand_over(self.connection, entry.id, file.id)?;
                    }
                    let leaving = RemovedEntry {
                        entry: &entry,
                        parent,
                        path: file.path.clone(),
                        properties,
                        act,
                        reason: Some(EntryChangeReason::Replaced),
                    };
                    self.discard(leaving, &mut changed.trashed)?;
                }
            }
        } else if only_of(file.replace).is_some() {
            return Err(ChangeRefusal::Changed(file.path.clone()).into());
        }
        for (depth, name) in parents.iter().enumerate().skip(existing) {
            parent = self.insert_directory(parent, name, file.owner.as_ref(), file.at)?;
            self.tell_parent(parent, &first(&file.path, depth + 1));
        }
        self.insert_file(parent, name, file)?;
        let kind = match (kind, changed.replaced) {
            (EntryChange::Creation, true) => EntryChange::Replacement,
            _ => kind,
        };
        self.tell_ledger(ToldEntry::of_file(kind, file));
        match changed.replaced {
            // Of two files with labels of one place it is the one that counts.
            true if file.labelled_in == Some(parent) => {
                let (id, at) = (file.id, file.at);
                self.records.push(DirectoryRecord::Published { id, at });
            }
            _ => {}
        }
        let has_properties = match file.properties_of {
            Some(other) => property::copy(self.connection, other, file.id)?,
            None if inherits => property::flag(self.connection, file.id, true).map(|()| true)?,
            None => false,
        };
        if has_properties {
            self.tell_properties(file.id)?;
        }
        Ok(changed)
    }

    /// Tells the ledger of a directory that was made for what is below it.
    pub(in super::super) fn tell_parent(&mut self, id: EntryId, path: &NamespacePath) {
        let made = ToldEntry::new(EntryChange::DirectoryCreation, id, path);
        self.tell_ledger(made.because(Some(EntryChangeReason::ParentMissing)));
    }

    /// The list of entries of a directory changed.
    pub(in super::super) fn touch(&mut self, directory: EntryId, at: Timestamp) {
        let last = self.touched.entry(directory).or_insert(at);
        *last = (*last).max(at);
    }

    /// Tells the directory logs all properties of an entry.
    pub(super) fn tell_properties(&mut self, id: EntryId) -> rusqlite::Result<()> {
        let properties = property::load(self.connection, id)?;
        self.records
            .push(DirectoryRecord::Properties { id, properties });
        Ok(())
    }

    pub(in super::super) fn insert_file(
        &mut self,
        parent: EntryId,
        name: &str,
        file: &NewFile,
    ) -> rusqlite::Result<()> {
        let is_labelled = file.labelled_in == Some(parent);
        let archival = self.archival_as_told(file.id, file.archival)?;
        if !is_labelled {
            self.records.push(DirectoryRecord::File(FileEntry {
                id: file.id,
                parent,
                name: name.to_owned(),
                size: file.size,
                checksums: file.checksums.clone(),
                owner: file.owner.clone(),
                created: file.at,
                at: file.at,
                properties: Vec::new(),
                archival,
            }));
        }
        self.connection
            .prepare_cached(
                "INSERT INTO entry VALUES (?1, ?2, ?3, 1, ?4, ?5, ?5, ?6, ?7, 0, ?8, ?9)",
            )?
            .execute(params![
                stored(file.id),
                stored(parent),
                name,
                signed(file.size.0),
                file.at.0,
                file.owner.as_ref().map(UserName::as_str),
                file.pool.as_str(),
                is_labelled,
                stored_archival(archival),
            ])?;
        self.insert_checksums(file.id, &file.checksums)?;
        if let Some(word) = &file.archive_word {
            keep_word(self.connection, file.id, word)?;
        }
        self.count_in_pool(&file.pool, 1, signed(file.size.0));
        self.touch(parent, file.at);
        self.id_max = self.id_max.max(file.id.0);
        Ok(())
    }

    /// Counts files and bytes that a pool has got (+) or lost (-).
    pub(in super::super) fn count_in_pool(&mut self, pool: &PoolName, files: i64, bytes: i64) {
        let usage = self.usage.entry(pool.clone()).or_default();
        usage.0 += files;
        usage.1 += bytes;
    }

    /// Tells the directory logs all that the label of a file's data does not tell.
    pub(in super::super) fn tell_file(&mut self, id: EntryId) -> rusqlite::Result<()> {
        let file = self.file_entry(id)?;
        self.records.push(DirectoryRecord::File(file));
        Ok(())
    }

    /// A file with all that directory logs tell of one.
    pub(in super::super) fn file_entry(&self, id: EntryId) -> rusqlite::Result<FileEntry> {
        let row = self
            .connection
            .prepare_cached(
                "SELECT parent, name, size_bytes, owner, created_ms, properties, archival FROM entry WHERE id = ?1",
            )?
            .query_row([stored(id)], |row| {
                let file = FileEntry {
                    id,
                    parent: EntryId(unsigned(row.get(0)?)),
                    name: row.get(1)?,
                    size: Bytes(unsigned(row.get(2)?)),
                    checksums: Vec::new(),
                    owner: row.get::<_, Option<String>>(3)?.map(UserName::new),
                    created: Timestamp(row.get(4)?),
                    at: Timestamp(row.get(4)?),
                    properties: Vec::new(),
                    archival: archival_of(row.get(6)?),
                };
                Ok((file, row.get::<_, bool>(5)?))
            });
        let (mut file, has_properties) = row?;
        file.checksums = checksums_of(self.connection, id)?;
        if has_properties {
            file.properties = property::load(self.connection, id)?;
        }
        Ok(file)
    }

    pub(in super::super) fn insert_directory(
        &mut self,
        parent: EntryId,
        name: &str,
        owner: Option<&UserName>,
        at: Timestamp,
    ) -> rusqlite::Result<EntryId> {
        let id = EntryId(self.next_id.fetch_add(1, Ordering::Relaxed));
        self.connection
            .prepare_cached(
                "INSERT INTO entry VALUES (?1, ?2, ?3, 0, 0, ?4, ?4, ?5, NULL, 0, 0, 0)",
            )?
            .execute(params![
                stored(id),
                stored(parent),
                name,
                at.0,
                owner.map(UserName::as_str)
            ])?;
        self.touch(parent, at);
        self.id_max = self.id_max.max(id.0);
        self.records
            .push(DirectoryRecord::Directory(DirectoryEntry {
                id,
                parent,
                name: name.to_owned(),
                owner: owner.cloned(),
                created: at,
                modified: at,
                properties: Vec::new(),
            }));
        Ok(id)
    }

    pub(super) fn remove(
        &mut self,
        path: &NamespacePath,
        only: Option<EntryId>,
        entries_max: usize,
        act: Removal<'_>,
    ) -> Outcome {
        if path.is_root() {
            return Err(ChangeRefusal::Root.into());
        }
        let (parent, name) = self.place(path)?;
        let entry = by_name(self.connection, stored(parent), name)?
            .ok_or_else(|| ChangeRefusal::NotFound(path.clone()))?;
        refuse_other(only, &entry, path)?;
        let mut changed = ChangeReport::default();
        let leaving = RemovedEntry {
            entry: &entry,
            parent,
            path: path.clone(),
            properties: None,
            act,
            reason: None,
        };
        self.discard_all(leaving, entries_max, &mut changed.trashed)?;
        self.touch(parent, act.at);
        Ok(changed)
    }

    pub(super) fn rename(
        &mut self,
        Rename {
            from,
            only,
            to,
            replace,
            entries_max,
        }: Rename<'_>,
        act: Removal<'_>,
    ) -> Outcome {
        let at = act.at;
        if from.is_root() || to.is_root() {
            return Err(ChangeRefusal::Root.into());
        }
        // A destination that holds the source would be removed with it; one below the source would be cut
        // off.
        if to.is_within(from) || from.is_within(to) {
            return Err(ChangeRefusal::IntoItself(from.clone()).into());
        }
        let (old_parent, old_name) = self.place(from).map_err(|refusal| match refusal {
            ChangeError::Refused(_) => ChangeRefusal::NotFound(from.clone()).into(),
            other => other,
        })?;
        let entry = by_name(self.connection, stored(old_parent), old_name)?
            .ok_or_else(|| ChangeRefusal::NotFound(from.clone()))?;
        refuse_other(only, &entry, from)?;
        let (parent, name) = self.place(to)?;
        let longer = bytes_of(to).saturating_sub(bytes_of(from));
        if entry.is_directory()
            && longer > 0
            && has_long_path(self.connection, entry.id, bytes_of(to))?
        {
            return Err(ChangeRefusal::TooLongBelow(to.clone()).into());
        }
        let mut changed = ChangeReport::default();
        let old = by_name(self.connection, stored(parent), name)?;
        if old.is_none() && only_of(replace).is_some() {
            return Err(ChangeRefusal::Changed(to.clone()).into());
        }
        if let Some(old) = old {
            if replace == Replace::Refused {
                return Err(ChangeRefusal::Exists(to.clone()).into());
            }
            refuse_other(only_of(replace), &old, to)?;
            changed.replaced = true;
            let leaving = RemovedEntry {
                entry: &old,
                parent,
                path: to.clone(),
                properties: None,
                act,
                reason: Some(EntryChangeReason::Replaced),
            };
            self.discard_all(leaving, entries_max, &mut changed.trashed)?;
        }
        self.connection
            .prepare_cached("UPDATE entry SET parent = ?2, name = ?3, labelled = 0 WHERE id = ?1")?
            .execute(params![stored(entry.id), stored(parent), name])?;
        self.records.push(DirectoryRecord::Moved {
            id: entry.id,
            from: old_parent,
            to: parent,
            name: name.to_owned(),
            at,
        });
        self.touch(old_parent, at);
        self.touch(parent, at);
        if entry.is_directory() {
            self.directories.forget();
        }
        let told = ToldEntry::new(EntryChange::Rename, entry.id, from).renamed_to(to);
        self.tell_ledger(match &entry.kind {
            EntryKind::File { size, pool, .. } => told.with_data(*size, pool.as_ref()),
            EntryKind::Directory => told,
        });
        Ok(changed)
    }

    pub(super) fn add_checksums(&mut self, file: EntryId, checksums: &[Checksum]) -> Outcome {
        let exists = self
            .connection
            .prepare_cached("SELECT 1 FROM entry WHERE id = ?1 AND kind = 1")?
            .exists([stored(file)])?;
        if exists {
            self.insert_checksums(file, checksums)?;
            self.connection
                .prepare_cached("UPDATE entry SET labelled = 0 WHERE id = ?1")?
                .execute([stored(file)])?;
            self.records.push(DirectoryRecord::Checksums {
                id: file,
                checksums: checksums.to_vec(),
            });
        }
        Ok(ChangeReport::default())
    }

    pub(in super::super) fn insert_checksums(
        &self,
        file: EntryId,
        checksums: &[Checksum],
    ) -> rusqlite::Result<()> {
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
        leaving: RemovedEntry<'_>,
        entries_max: usize,
        trashed: &mut Vec<TrashedData>,
    ) -> Result<(), ChangeError> {
        let (entry, path) = (leaving.entry, &leaving.path);
        let inner = match &entry.kind {
            EntryKind::Directory => below_with_names(self.connection, entry.id, entries_max)?,
            EntryKind::File { .. } => Vec::new(),
        };
        if inner.len() >= entries_max {
            return Err(ChangeRefusal::TooManyEntries {
                path: path.clone(),
                entries_max,
            }
            .into());
        }
        let mut parents: BTreeMap<&[String], EntryId> = BTreeMap::new();
        for (names, entry) in inner.iter().filter(|(_, entry)| entry.is_directory()) {
            parents.insert(names, entry.id);
        }
        for (names, inside) in &inner {
            let above = &names[..names.len() - 1];
            let inside = RemovedEntry {
                entry: inside,
                parent: parents.get(above).copied().unwrap_or(entry.id),
                path: names
                    .iter()
                    .fold(path.clone(), |path, name| path.child(name).unwrap_or(path)),
                properties: None,
                act: leaving.act,
                reason: leaving.reason.or(Some(EntryChangeReason::DirectoryRemoved)),
            };
            self.discard(inside, trashed)?;
        }
        self.discard(leaving, trashed)?;
        Ok(())
    }

    /// Removes one row; a file's data becomes trash.
    fn discard(
        &mut self,
        leaving: RemovedEntry<'_>,
        trashed: &mut Vec<TrashedData>,
    ) -> rusqlite::Result<()> {
        let RemovedEntry {
            entry,
            parent,
            path,
            properties,
            act: Removal { by, at },
            reason,
        } = leaving;
        let id = stored(entry.id);
        self.connection
            .prepare_cached("DELETE FROM entry WHERE id = ?1")?
            .execute([id])?;
        self.touched.remove(&entry.id);
        let EntryKind::File {
            size,
            pool,
            archival,
        } = &entry.kind
        else {
            self.directories.forget();
            property::forget(self.connection, entry)?;
            let id = entry.id;
            let told = ToldEntry::new(EntryChange::DirectoryRemoval, id, &path);
            self.tell_ledger(told.because(reason));
            self.records
                .push(DirectoryRecord::Removed { id, parent, at });
            return Ok(());
        };
        let properties = match (properties, entry.has_properties) {
            (Some(properties), _) => properties,
            (None, true) => property::load(self.connection, entry.id)?,
            (None, false) => Vec::new(),
        };
        property::forget(self.connection, entry)?;
        let told = ToldEntry::new(EntryChange::Removal, entry.id, &path);
        self.tell_ledger(told.with_data(*size, pool.as_ref()).because(reason));
        let Some(pool) = pool else {
            self.take_checksums(entry.id)?;
            self.owe_tape_removal(entry.id, &path, *size, at)?;
            let id = entry.id;
            self.records
                .push(DirectoryRecord::Removed { id, parent, at });
            return Ok(());
        };
        let file = TrashedFile {
            archival: *archival,
            file: entry.id,
            pool: pool.clone(),
            size: *size,
            path,
            owner: entry.owner.clone(),
            created: entry.created,
            removed: at,
            by: by.cloned(),
            checksums: self.take_checksums(entry.id)?,
            properties,
        };
        self.count_in_pool(pool, -1, -signed(size.0));
        trashed.push(TrashedData {
            file: entry.id,
            pool: pool.clone(),
            size: *size,
        });
        self.records.push(DirectoryRecord::Trashed {
            parent,
            file,
            copies: Vec::new(),
        });
        Ok(())
    }

    /// Removes the checksums of a file and gives them back.
    fn take_checksums(&self, file: EntryId) -> rusqlite::Result<Vec<Checksum>> {
        // Not by RETURNING, for which SQLite opens a table of its own each time.
        let mut select = self
            .connection
            .prepare_cached("SELECT algorithm, value FROM checksum WHERE entry = ?1")?;
        let rows = select.query_map([stored(file)], checksum_of_row)?;
        let known: rusqlite::Result<Vec<Checksum>> = rows.filter_map(Result::transpose).collect();
        let mut taken = known?;
        self.connection
            .prepare_cached("DELETE FROM checksum WHERE entry = ?1")?
            .execute([stored(file)])?;
        taken.sort_by_key(Checksum::algorithm);
        Ok(taken)
    }

    /// What stands at a path.
    pub(in super::super) fn existing(&self, path: &NamespacePath) -> Result<Entry, ChangeError> {
        let entry = find(self.connection, path)?;
        entry.ok_or_else(|| ChangeRefusal::NotFound(path.clone()).into())
    }

    /// The directory that holds (or would hold) a path, and the path's last name.
    pub(super) fn place<'p>(
        &mut self,
        path: &'p NamespacePath,
    ) -> Result<(EntryId, &'p str), ChangeError> {
        let (Some(name), Some(parent)) = (path.name(), path.parent()) else {
            // Only the root has no name; making it again is the one thing that can be asked of it here.
            return Err(ChangeRefusal::Exists(path.clone()).into());
        };
        if let Some(known) = self.directories.get(parent.names()) {
            return Ok((known, name));
        }
        match find(self.connection, &parent)? {
            Some(entry) if entry.is_directory() => {
                self.directories.add(parent.names(), entry.id);
                Ok((entry.id, name))
            }
            Some(_) => Err(ChangeRefusal::ParentIsFile(parent).into()),
            None => Err(ChangeRefusal::ParentMissing(parent).into()),
        }
    }

    /// The last directory above `path` that exists, and how many of the names of its parents lead there.
    pub(in super::super) fn deepest_directory(
        &mut self,
        path: &NamespacePath,
        parents: &[String],
    ) -> Result<(EntryId, usize), ChangeError> {
        if let Some(known) = self.directories.get(parents) {
            return Ok((known, parents.len()));
        }
        let mut directory = EntryId::ROOT;
        for (depth, name) in parents.iter().enumerate() {
            match by_name(self.connection, stored(directory), name)? {
                Some(entry) if entry.is_directory() => directory = entry.id,
                Some(_) => return Err(ChangeRefusal::ParentIsFile(first(path, depth + 1)).into()),
                None => return Ok((directory, depth)),
            }
        }
        self.directories.add(parents, directory);
        Ok((directory, parents.len()))
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
pub(super) fn refuse_other(
    only: Option<EntryId>,
    entry: &Entry,
    path: &NamespacePath,
) -> Result<(), ChangeRefusal> {
    match only {
        Some(id) if id != entry.id => Err(ChangeRefusal::Changed(path.clone())),
        Some(_) | None => Ok(()),
    }
}

/// The first `count` names of a path.
pub(in super::super) fn first(path: &NamespacePath, count: usize) -> NamespacePath {
    let names = path.names();
    // In one step: a path has up to two thousand names, and this is asked for each of them.
    let cut = names[..count.min(names.len())].join("/");
    NamespacePath::parse(&format!("/{cut}")).expect("the first names of a path make one")
}
