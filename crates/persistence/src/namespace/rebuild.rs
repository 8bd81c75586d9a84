//! A namespace made again from its pools: from the directory logs, and from the label of each file's data.
//!
//! Nothing that is found is dropped: a file whose place is not known, or taken by one that is known to belong there, goes below
//! `/lost+found`. No id is given to anything else than before, and new ones are larger than any that was ever given.

mod on_tape;

use super::connection::{signed, stored, unsigned};
use super::directory_log::{DirectoryEntry, FileEntry};
use super::log_keeper::SEQUENCE_LEAP;
use super::read::{by_name, stored_archival};
pub use super::replay::PoolLogs;
use super::replay::{FileState, FileStates};
use super::schema::POOL_KEY;
use super::{EntryId, GapCause, TapeCopyUri, property, schema, trash};
use penstock_clock::wall_clock;
use penstock_model::{Archival, Bytes, Checksum, NamespacePath, PoolName, Timestamp, UserName};
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;
use uuid::Uuid;

/// Where what has no other place goes.
const LOST_AND_FOUND: &str = "lost+found";
/// Of files without a place, how many are named.
const NAMED_MAX: usize = 1000;

/// Why a namespace could not be made again. There is none then.
#[derive(Debug, Error)]
pub enum RebuildError {
    /// The new database could not be written.
    #[error("the new namespace could not be written: {0}; check the disk on which it lies")]
    Database(#[from] rusqlite::Error),
    /// A file could not be read or written.
    #[error("{0}")]
    File(#[from] std::io::Error),
}

/// A file's data as it lies in a pool.
#[derive(Debug, Clone)]
pub struct FoundFile {
    /// By its name.
    pub id: EntryId,
    pub size: Bytes,
    /// When it was last written.
    pub modified: Timestamp,
    /// What its label says; `None`: it has none that can be read.
    pub label: Option<FoundLabel>,
}

/// What a label says.
#[derive(Debug, Clone)]
pub struct FoundLabel {
    /// Directory and name; `None` in labels of the first version, and where there was no room for it.
    pub place: Option<(EntryId, String)>,
    /// The path when it was written; the root: not told.
    pub path: NamespacePath,
    /// Bytes of data.
    pub size: Bytes,
    /// Of the data.
    pub checksums: Vec<Checksum>,
    /// Who wrote it.
    pub owner: Option<UserName>,
    /// When it became visible.
    pub created: Timestamp,
    /// Whether it was to go to tape.
    pub archival: Archival,
}

/// What became of a found file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundFileFate {
    InPlace,
    /// It is below `/lost+found`.
    Lost,
    Trash,
}

/// What a namespace that was made again holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Directories, the root among them.
    pub directories: u64,
    /// Visible files, those without a place among them.
    pub files: u64,
    pub bytes: Bytes,
    /// Of the visible files, those that are on no disk, but on tape.
    pub tape_only: u64,
    /// Files of the trash.
    pub trash: u64,
    /// Files and directories whose place is not known.
    pub lost: u64,
    /// The first of them: where they are now, and why.
    pub lost_named: Vec<(NamespacePath, String)>,
    /// Files of which another number of bytes is there than should be.
    pub wrong_size: Vec<NamespacePath>,
}

/// A namespace in the making.
pub struct Rebuild {
    connection: Connection,
    pools: BTreeMap<PoolName, FileStates>,
    /// What logs tell of files on tape that were not met in a pool yet.
    on_tape: HashMap<EntryId, FileState>,
    tape_copies: HashMap<EntryId, Vec<TapeCopyUri>>,
    /// Directories that are in place.
    directories: HashSet<EntryId>,
    /// Files of which a record says that they are where they are: which record.
    confirmed: HashMap<EntryId, u64>,
    /// Files whose data is of another size than their labels or records tell.
    wrong_size: HashSet<EntryId>,
    /// There was a log, so that a directory that it does not name is gone.
    knows_directories: bool,
    next_id: u64,
    sequence: u64,
    report: Rebuilt,
}

impl Rebuild {
    /// Begins with the directories. `to` must not exist; `id_max` is the largest id in any pool.
    pub fn begin(
        to: &Path,
        namespace: Uuid,
        logs: PoolLogs,
        id_max: u64,
    ) -> Result<Rebuild, RebuildError> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(to)?;
        let connection = Connection::open(to)?;
        // What happens to it until it is whole does not matter.
        connection.execute_batch(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY;",
        )?;
        connection.set_prepared_statement_cache_capacity(64);
        schema::create(&connection)?;
        schema::set_meta(&connection, "uuid", &namespace.to_string())?;
        connection.execute_batch("BEGIN")?;
        let next_id = logs.id_max().max(id_max).max(1) + SEQUENCE_LEAP;
        let mut rebuild = Rebuild {
            connection,
            pools: logs.pools,
            on_tape: logs.on_tape,
            tape_copies: logs.tape_copies,
            directories: HashSet::from([EntryId::ROOT]),
            confirmed: HashMap::new(),
            wrong_size: HashSet::new(),
            knows_directories: logs.directories.is_some(),
            next_id,
            sequence: logs.sequence,
            report: Rebuilt::default(),
        };
        rebuild.place_directories(logs.directories.unwrap_or_default())?;
        Ok(rebuild)
    }

    fn place_directories(
        &mut self,
        mut told: BTreeMap<EntryId, DirectoryEntry>,
    ) -> Result<(), RebuildError> {
        if let Some(root) = told.remove(&EntryId::ROOT) {
            let sql = "UPDATE entry SET created_ms = ?1, modified_ms = ?2 WHERE id = 1";
            self.connection
                .execute(sql, [root.created.0, root.modified.0])?;
            property::insert(&self.connection, EntryId::ROOT, &root.properties)?;
        }
        let mut below: BTreeMap<EntryId, Vec<EntryId>> = BTreeMap::new();
        for directory in told.values() {
            below
                .entry(directory.parent)
                .or_default()
                .push(directory.id);
        }
        let mut open = vec![EntryId::ROOT];
        loop {
            while let Some(parent) = open.pop() {
                for id in below.remove(&parent).unwrap_or_default() {
                    let directory = told.remove(&id).expect("named once");
                    if self.insert_directory(&directory)? {
                        open.push(id);
                    } else {
                        self.lose_directory(directory, "another one has its name")?;
                        open.push(id);
                    }
                }
            }
            // What hangs on nothing: the uppermost of it first.
            let Some(id) = told.values().find(|one| !told.contains_key(&one.parent)) else {
                break;
            };
            let id = id.id;
            let directory = told.remove(&id).expect("just found");
            if let Some(siblings) = below.get_mut(&directory.parent) {
                siblings.retain(|sibling| *sibling != id);
            }
            self.lose_directory(directory, "the directory that held it is not known")?;
            open.push(id);
        }
        // A ring hangs on nothing and has no uppermost; only damage makes one.
        for (_, directory) in told {
            self.lose_directory(directory, "it is recorded as its own parent")?;
        }
        Ok(())
    }

    fn insert_directory(&mut self, directory: &DirectoryEntry) -> rusqlite::Result<bool> {
        let made = self
            .connection
            .prepare_cached(
                "INSERT OR IGNORE INTO entry VALUES (?1, ?2, ?3, 0, 0, ?4, ?5, ?6, NULL, 0, 0, 0)",
            )?
            .execute(params![
                stored(directory.id),
                stored(directory.parent),
                directory.name,
                directory.modified.0,
                directory.created.0,
                directory.owner.as_ref().map(UserName::as_str),
            ])?;
        if made == 0 {
            return Ok(false);
        }
        self.directories.insert(directory.id);
        property::insert(&self.connection, directory.id, &directory.properties)?;
        Ok(true)
    }

    fn lose_directory(&mut self, directory: DirectoryEntry, why: &str) -> Result<(), RebuildError> {
        let parent = self.make_path(&[LOST_AND_FOUND.to_owned()], directory.modified)?;
        let name = self.free_name(parent, &directory.name, directory.id)?;
        let path = lost_path(&[LOST_AND_FOUND.to_owned(), name.clone()]);
        self.note_lost(path, why);
        self.insert_directory(&DirectoryEntry {
            parent,
            name,
            ..directory
        })?;
        Ok(())
    }

    /// Its files are all taken.
    pub fn know_pool(&self, pool: &PoolName) -> Result<(), RebuildError> {
        let key = format!("{POOL_KEY}{pool}");
        Ok(schema::set_meta(&self.connection, &key, "made")?)
    }

    /// Takes a file that lies in a pool.
    pub fn add(
        &mut self,
        pool: &PoolName,
        found: FoundFile,
    ) -> Result<FoundFileFate, RebuildError> {
        let states = self.pools.entry(pool.clone()).or_default();
        if let Some(trashed) = states.trash.remove(&found.id) {
            trash::insert(&self.connection, &trashed)?;
            self.insert_copies(found.id)?;
            self.report.trash += 1;
            return Ok(FoundFileFate::Trash);
        }
        if self.is_placed(found.id)? {
            return self.add_again(pool, &found);
        }
        let states = self.pools.entry(pool.clone()).or_default();
        let state = states.files.remove(&found.id);
        let state = state.or_else(|| self.on_tape.remove(&found.id));
        let state = state.unwrap_or_default();
        let (file, path) = entry_of(&found, &state);
        let is_labelled = state.told.is_none()
            && state.moved.is_none()
            && state.checksums.is_empty()
            && found
                .label
                .as_ref()
                .is_some_and(|label| label.place.is_some());
        let confirmed = state.confirmed;
        let wrong_size = file.size != found.size;
        if wrong_size {
            self.wrong_size.insert(found.id);
        }
        let incoming = FilePlacement {
            pool: Some(pool),
            file,
            path,
            is_labelled,
            confirmed,
        };
        let (path, placed) = self.place(incoming)?;
        if wrong_size && self.report.wrong_size.len() < NAMED_MAX {
            self.report.wrong_size.push(path);
        }
        Ok(placed)
    }

    fn place(
        &mut self,
        mut new: FilePlacement<'_>,
    ) -> Result<(NamespacePath, FoundFileFate), RebuildError> {
        let parent = match new.file.parent {
            // Not told by id.
            EntryId(0) => self.parent_by_path(&new.path, new.file.created)?,
            parent => Some(parent).filter(|parent| self.directories.contains(parent)),
        };
        let Some(parent) = parent else {
            let why = match new.path.is_root() {
                true => "its place is not known",
                false => "its directory is gone",
            };
            let path = self.lose(new, why)?;
            return Ok((path, FoundFileFate::Lost));
        };
        new.file.parent = parent;
        let there = by_name(&self.connection, stored(parent), &new.file.name)?;
        let Some(there) = there else {
            self.insert(&new)?;
            return Ok((new.path, FoundFileFate::InPlace));
        };
        if there.is_directory() {
            let path = self.lose(new, "a directory is in its place")?;
            return Ok((path, FoundFileFate::Lost));
        }
        // Who was told to be there by the later record is. Without any, the older one: of the younger one nobody was told.
        // Without any log it is the younger one: the other has been moved away since. Before that, one that is not
        // whole gives way: its writing was never completed.
        let older_counts = self.knows_directories;
        let theirs = self.confirmed.get(&there.id).copied().unwrap_or(0);
        let rank = |confirmed: u64, id: EntryId| {
            let is_whole = !self.wrong_size.contains(&id);
            let age = match older_counts {
                true => u64::MAX - id.0,
                false => id.0,
            };
            (confirmed, is_whole, age)
        };
        if rank(theirs, there.id) >= rank(new.confirmed, new.file.id) {
            let path = self.lose(new, "another file is in its place")?;
            return Ok((path, FoundFileFate::Lost));
        }
        self.give_way(there.id, &new.path)?;
        self.insert(&new)?;
        Ok((new.path, FoundFileFate::InPlace))
    }

    /// The directory of a path, made when nothing is known of directories.
    fn parent_by_path(
        &mut self,
        path: &NamespacePath,
        at: Timestamp,
    ) -> Result<Option<EntryId>, RebuildError> {
        let Some((_, parents)) = path.names().split_last() else {
            return Ok(None);
        };
        if !self.knows_directories {
            return Ok(Some(self.make_path(parents, at)?));
        }
        let mut parent = EntryId::ROOT;
        for name in parents {
            match by_name(&self.connection, stored(parent), name)? {
                Some(entry) if entry.is_directory() => parent = entry.id,
                Some(_) | None => return Ok(None),
            }
        }
        Ok(Some(parent))
    }

    /// Makes what is missing of a path; where a file stands in the way, under another name.
    fn make_path(&mut self, names: &[String], at: Timestamp) -> Result<EntryId, RebuildError> {
        let mut parent = EntryId::ROOT;
        for name in names {
            let id = EntryId(self.next_id);
            let mut name = name.clone();
            match by_name(&self.connection, stored(parent), &name)? {
                Some(entry) if entry.is_directory() => {
                    parent = entry.id;
                    continue;
                }
                Some(_) => name = self.free_name(parent, &name, id)?,
                None => {}
            }
            self.next_id += 1;
            self.insert_directory(&DirectoryEntry {
                id,
                parent,
                name,
                owner: None,
                created: at,
                modified: at,
                properties: Vec::new(),
            })?;
            parent = id;
        }
        Ok(parent)
    }

    /// The name, or one with the id when it is taken.
    fn free_name(&self, parent: EntryId, name: &str, id: EntryId) -> rusqlite::Result<String> {
        let name = match name.is_empty() {
            true => id.to_string(),
            false => name.to_owned(),
        };
        match by_name(&self.connection, stored(parent), &name)? {
            None => Ok(name),
            Some(_) => Ok(format!("{name}.{id}")),
        }
    }

    fn lose(
        &mut self,
        mut new: FilePlacement<'_>,
        why: &str,
    ) -> Result<NamespacePath, RebuildError> {
        let mut names = vec![LOST_AND_FOUND.to_owned()];
        if let Some((_, parents)) = new.path.names().split_last() {
            names.extend_from_slice(parents);
        }
        new.file.parent = self.make_path(&names, new.file.created)?;
        new.file.name = self.free_name(new.file.parent, &new.file.name, new.file.id)?;
        new.is_labelled = false;
        names.push(new.file.name.clone());
        let path = lost_path(&names);
        self.note_lost(path.clone(), why);
        self.insert(&new)?;
        Ok(path)
    }

    /// Takes a file that was placed before out of the way.
    fn give_way(&mut self, id: EntryId, path: &NamespacePath) -> Result<(), RebuildError> {
        let mut names = vec![LOST_AND_FOUND.to_owned()];
        names.extend_from_slice(path.parent().unwrap_or_else(NamespacePath::root).names());
        let parent = self.make_path(&names, Timestamp(0))?;
        let name = self.free_name(parent, path.name().unwrap_or_default(), id)?;
        self.connection.execute(
            "UPDATE entry SET parent = ?2, name = ?3, labelled = 0 WHERE id = ?1",
            params![stored(id), stored(parent), name],
        )?;
        names.push(name);
        self.note_lost(lost_path(&names), "another file is in its place");
        Ok(())
    }

    fn note_lost(&mut self, path: NamespacePath, why: &str) {
        self.report.lost += 1;
        if self.report.lost_named.len() < NAMED_MAX {
            self.report.lost_named.push((path, why.to_owned()));
        }
    }

    fn insert(&mut self, new: &FilePlacement<'_>) -> rusqlite::Result<()> {
        let file = &new.file;
        self.connection
            .prepare_cached(
                "INSERT INTO entry VALUES (?1, ?2, ?3, 1, ?4, ?5, ?5, ?6, ?7, 0, ?8, ?9)",
            )?
            .execute(params![
                stored(file.id),
                stored(file.parent),
                file.name,
                signed(file.size.0),
                file.created.0,
                file.owner.as_ref().map(UserName::as_str),
                new.pool.map(PoolName::as_str),
                new.is_labelled,
                stored_archival(self.archival_of(file)),
            ])?;
        self.insert_copies(file.id)?;
        for checksum in &file.checksums {
            self.connection
                .prepare_cached("INSERT OR REPLACE INTO checksum VALUES (?1, ?2, ?3)")?
                .execute(params![
                    stored(file.id),
                    checksum.algorithm().name(),
                    checksum.hex()
                ])?;
        }
        property::insert(&self.connection, file.id, &file.properties)?;
        if new.confirmed > 0 {
            self.confirmed.insert(file.id, new.confirmed);
        }
        Ok(())
    }

    /// Ends it: the database is whole and durable. `records_seen` is how many movers any pool has seen.
    pub fn finish(mut self, to: &Path, records_seen: u64) -> Result<Rebuilt, RebuildError> {
        self.place_files_on_tape()?;
        let Rebuild {
            connection,
            mut report,
            next_id,
            sequence,
            ..
        } = self;
        connection.execute_batch(
            "UPDATE entry SET modified_ms = max(modified_ms, coalesce(
                 (SELECT max(created_ms) FROM entry AS file WHERE file.parent = entry.id AND file.kind = 1), 0))
             WHERE kind = 0;",
        )?;
        connection.execute_batch(schema::COUNT_POOLS)?;
        let ids_below = (next_id + 1).to_string();
        schema::set_meta(&connection, "ids_below", &ids_below)?;
        schema::set_meta(&connection, "low_water", &ids_below)?;
        // So far ahead that the logs of before are kept aside, not gone on with.
        schema::set_log_sequence(&connection, sequence + SEQUENCE_LEAP)?;
        let records = signed(records_seen + SEQUENCE_LEAP);
        connection.execute(
            "DELETE FROM sqlite_sequence WHERE name = 'mover_record'",
            [],
        )?;
        connection.execute(
            "INSERT INTO sqlite_sequence (name, seq) VALUES ('mover_record', ?1)",
            [records],
        )?;
        // The ledger is lost; its numbers go on where none was ever given.
        schema::set_meta(&connection, "ledger_lost", GapCause::Rebuilt.word())?;
        let least = wall_clock().0.saturating_mul(1000);
        schema::set_meta(&connection, "ledger_least", &least.to_string())?;
        // So are the minutes of pools.
        let numbers = "INSERT INTO sqlite_sequence (name, seq) VALUES ('pool_minute', ?1)";
        connection.execute(numbers, [least])?;
        connection.execute_batch("COMMIT")?;
        let counts = "SELECT count(*) FILTER (WHERE kind = 0), count(*) FILTER (WHERE kind = 1),
                      coalesce(sum(size_bytes), 0) FROM entry";
        (report.directories, report.files, report.bytes) =
            connection.query_row(counts, [], |row| {
                let number = |column| row.get(column).map(unsigned);
                Ok((number(0)?, number(1)?, Bytes(number(2)?)))
            })?;
        connection.close().map_err(|(_, why)| why)?;
        File::open(to)?.sync_all()?;
        Ok(report)
    }
}

/// Gives a new database its name, in one step; the one before is kept under another name, which is given back.
pub fn take_place(part: &Path, database: &Path, at: Timestamp) -> std::io::Result<Option<PathBuf>> {
    let aside = crate::backup::put_aside(database, at)?;
    penstock_durable_file::put_in_place(part, database)?;
    Ok(aside)
}

/// A file that is to be placed.
struct FilePlacement<'a> {
    /// `None`: it is on tape only.
    pool: Option<&'a PoolName>,
    file: FileEntry,
    /// Where it was, as far as that is known.
    path: NamespacePath,
    is_labelled: bool,
    confirmed: u64,
}

/// All that is known of a file, and where it was last known to be.
fn entry_of(found: &FoundFile, state: &FileState) -> (FileEntry, NamespacePath) {
    let path = found.label.as_ref().map(|label| label.path.clone());
    let path = path.unwrap_or_else(NamespacePath::root);
    let last = || path.name().unwrap_or_default().to_owned();
    let mut file = match (&state.told, &found.label) {
        (Some(told), _) => told.clone(),
        (None, Some(label)) => {
            let place = label.place.clone();
            let (parent, name) = place.unwrap_or_else(|| (EntryId(0), last()));
            FileEntry {
                id: found.id,
                parent,
                name,
                size: label.size,
                checksums: label.checksums.clone(),
                owner: label.owner.clone(),
                created: label.created,
                at: label.created,
                properties: Vec::new(),
                archival: label.archival,
            }
        }
        (None, None) => FileEntry {
            id: found.id,
            parent: EntryId(0),
            name: String::new(),
            size: found.size,
            checksums: Vec::new(),
            owner: None,
            created: found.modified,
            at: found.modified,
            properties: Vec::new(),
            archival: Archival::DiskOnly,
        },
    };
    if let Some((parent, name)) = &state.moved {
        (file.parent, file.name) = (*parent, name.clone());
    }
    if let Some(properties) = &state.properties {
        file.properties.clone_from(properties);
    }
    file.checksums.extend(state.checksums.iter().cloned());
    (file, path)
}

fn lost_path(names: &[String]) -> NamespacePath {
    let root = NamespacePath::root();
    names
        .iter()
        .fold(root, |path, name| path.child(name).unwrap_or(path))
}

#[cfg(test)]
mod tests;
