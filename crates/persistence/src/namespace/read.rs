//! Reading the tree, on the calling thread. A lookup takes some microseconds per name of the path.

use super::connection::{open_reader, stored, unsigned};
use super::schema::POOL_KEY;
use super::{Entry, EntryId, EntryKind, Namespace, NamespaceError, PoolUsage, schema};
use parking_lot::{Condvar, Mutex};
use penstock_model::{
    Archival, Bytes, Checksum, ChecksumAlgorithm, NamespacePath, PoolName, Timestamp, UserName,
};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Read-only connections. More than the cores that read gain nothing.
const CONNECTIONS_MAX: usize = 8;

macro_rules! columns {
    () => {
        "id, name, kind, size_bytes, modified_ms, created_ms, owner, pool, properties, archival"
    };
}

/// Columns of `entry` in the order in which [`entry_of_row`] takes them.
const COLUMNS: &str = columns!();

/// Each request needs it, so it is not put together each time.
const BY_NAME: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM entry WHERE parent = ?1 AND name = ?2"
);

/// A bounded set of read-only connections, opened when first needed.
pub(super) struct Readers {
    path: PathBuf,
    state: Mutex<IdleReaders>,
    returned: Condvar,
}

#[derive(Default)]
struct IdleReaders {
    idle: Vec<Connection>,
    opened: usize,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Readers {
        Readers {
            path,
            state: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// Runs queries on a connection of the set. All see the same state.
    pub(super) fn with<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, NamespaceError> {
        let fail = |source| NamespaceError::Database {
            path: self.path.clone(),
            source,
        };
        let connection = self.take().map_err(fail)?;
        let answer = in_one_transaction(&connection, query).map_err(fail);
        let mut state = self.lock();
        match connection.is_autocommit() {
            true => state.idle.push(connection),
            // It would show everyone after this one what was.
            false => state.opened -= 1,
        }
        drop(state);
        self.returned.notify_one();
        answer
    }

    fn take(&self) -> rusqlite::Result<Connection> {
        let mut state = self.lock();
        loop {
            if let Some(connection) = state.idle.pop() {
                return Ok(connection);
            }
            if state.opened < CONNECTIONS_MAX {
                break;
            }
            self.returned.wait(&mut state);
        }
        state.opened += 1;
        drop(state);
        let opened = open_reader(&self.path);
        if opened.is_err() {
            self.lock().opened -= 1;
            self.returned.notify_one();
        }
        opened
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, IdleReaders> {
        // A panic while a connection was out leaves the list valid.
        self.state.lock()
    }
}

/// Takes the locks of the file once for all that a query asks: they cost more than the look at a name.
fn in_one_transaction<T>(
    connection: &Connection,
    query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    connection.prepare_cached("BEGIN")?.execute([])?;
    let answer = query(connection);
    // After some errors of a disk SQLite has ended it already.
    if !connection.is_autocommit() {
        connection.prepare_cached("COMMIT")?.execute([])?;
    }
    answer
}

impl Namespace {
    /// What stands at a path.
    pub fn lookup(&self, path: &NamespacePath) -> Result<Option<Entry>, NamespaceError> {
        let mark = match self.entries.find(path) {
            Ok(entry) => return Ok(Some(entry)),
            Err(mark) => mark,
        };
        let mut way = Vec::with_capacity(path.names().len());
        let read = |connection: &Connection| find_along(connection, path, &mut way);
        let found = self.readers.with(read)?;
        if let Some((parent, entry)) = &found {
            way.push((*parent, entry.clone()));
        }
        self.entries.keep(mark, way);
        Ok(found.map(|(_, entry)| entry))
    }

    /// The entries of a directory in the order of their names, at most `limit`, from the first name after
    /// `after`. A file or an unknown id has none.
    pub fn list(
        &self,
        directory: EntryId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Entry>, NamespaceError> {
        self.readers.with(|connection| {
            let mut query = connection.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM entry WHERE parent = ?1 AND name > ?2 ORDER BY name LIMIT ?3"
            ))?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            // Names are never empty, so the empty text comes before all of them.
            let rows = query.query_map(
                params![stored(directory), after.unwrap_or(""), limit],
                entry_of_row,
            )?;
            rows.collect()
        })
    }

    /// The last `limit` entries before the name `before`, in the order of their names: the page before one that
    /// [`Namespace::list`] gave.
    pub fn list_before(
        &self,
        directory: EntryId,
        before: &str,
        limit: usize,
    ) -> Result<Vec<Entry>, NamespaceError> {
        let mut entries: Vec<Entry> = self.readers.with(|connection| {
            let mut query = connection.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM entry WHERE parent = ?1 AND name < ?2 ORDER BY name DESC LIMIT ?3"
            ))?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = query.query_map(params![stored(directory), before, limit], entry_of_row)?;
            rows.collect()
        })?;
        entries.reverse();
        Ok(entries)
    }

    /// The checksums that are known of a file, in the order of [`ChecksumAlgorithm::ALL`].
    pub fn checksums(&self, file: EntryId) -> Result<Vec<Checksum>, NamespaceError> {
        self.readers
            .with(|connection| checksums_of(connection, file))
    }

    /// The properties that clients keep with an entry, by name.
    pub fn properties(&self, entry: EntryId) -> Result<Vec<super::DeadProperty>, NamespaceError> {
        self.readers
            .with(|connection| super::property::load(connection, entry))
    }

    /// All write locks, also those that have expired and were not dropped yet.
    pub fn locks(&self) -> Result<Vec<penstock_model::Lock>, NamespaceError> {
        self.readers.with(super::lock::load)
    }

    /// All entries below a directory, itself excluded, each with its path below it, directories before what they
    /// hold. At most `limit`.
    pub fn below(
        &self,
        directory: EntryId,
        limit: usize,
    ) -> Result<Vec<(Vec<String>, Entry)>, NamespaceError> {
        self.readers
            .with(|connection| below_with_names(connection, directory, limit))
    }

    /// The namespace holds this file, in this pool.
    pub fn holds_file(&self, file: EntryId, pool: &PoolName) -> Result<bool, NamespaceError> {
        self.readers.with(|connection| {
            let found = connection
                .prepare_cached("SELECT 1 FROM entry WHERE id = ?1 AND pool = ?2")?
                .query_row(params![stored(file), pool.as_str()], |_| Ok(()))
                .optional()?;
            Ok(found.is_some())
        })
    }

    /// A file that became visible, and was not removed for good. Its data may be on tape only.
    pub fn has_file(&self, file: EntryId) -> Result<bool, NamespaceError> {
        self.readers.with(|connection| {
            let known =
                "SELECT 1 FROM entry WHERE id = ?1 UNION SELECT 1 FROM trash WHERE file_id = ?1";
            let found = connection
                .prepare_cached(known)?
                .query_row([stored(file)], |_| Ok(()))
                .optional()?;
            Ok(found.is_some())
        })
    }

    /// This file was removed and its data may still be there.
    pub fn is_trash(&self, file: EntryId) -> Result<bool, NamespaceError> {
        self.readers.with(|connection| {
            let found = connection
                .prepare_cached("SELECT 1 FROM trash WHERE file_id = ?1")?
                .query_row([stored(file)], |_| Ok(()))
                .optional()?;
            Ok(found.is_some())
        })
    }

    /// All pools that were ever made, or held a file.
    pub fn pools_ever(&self) -> Result<BTreeSet<PoolName>, NamespaceError> {
        self.readers.with(pools_ever)
    }

    /// When the last mover was recorded, or, before any was, the last entry made: the clock has been there. Movers are
    /// recorded a moment after they end, entries at once.
    pub fn newest_record(&self) -> Result<Option<Timestamp>, NamespaceError> {
        self.readers.with(|connection| {
            let newest = [
                "SELECT at_ms FROM mover_record ORDER BY sequence DESC LIMIT 1",
                // A rebuild makes directories of which nothing tells when they were made.
                "SELECT created_ms FROM entry WHERE created_ms > 0 ORDER BY id DESC LIMIT 1",
            ];
            let newest = newest.iter().map(|query| {
                connection
                    .prepare_cached(query)?
                    .query_row([], |row| row.get(0).map(Timestamp))
                    .optional()
            });
            let mut newest = newest.filter_map(Result::transpose);
            newest.next().transpose()
        })
    }

    /// What every pool holds that ever held a file.
    pub fn pool_usage(&self) -> Result<BTreeMap<PoolName, PoolUsage>, NamespaceError> {
        self.readers
            .with(|connection| usage_by_pool(connection, schema::POOL_USAGE, []))
    }

    /// How many ended movers were ever recorded. It only grows, so it tells an old copy of a namespace from a newer one.
    pub fn records_ever(&self) -> Result<u64, NamespaceError> {
        self.readers.with(|connection| {
            let count: Option<i64> = connection
                .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'mover_record'")?
                .query_row([], |row| row.get(0))
                .optional()?;
            Ok(count.map_or(0, unsigned))
        })
    }

    /// What the ledger tells after a number, oldest first, each thing with its own number; some of it, and nothing when there
    /// is no more.
    pub fn ledger_after(
        &self,
        number: u64,
    ) -> Result<Vec<(u64, super::ElementRecord)>, NamespaceError> {
        let path = self.path.clone();
        let read = |connection: &Connection| Ok(super::ledger::after(connection, &path, number));
        self.readers.with(read)?
    }

    /// Ended movers, oldest first, from the first after `after`, with their sequence numbers.
    pub fn mover_records(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, super::MoverRecord)>, NamespaceError> {
        self.readers
            .with(|connection| super::record::load(connection, after, limit))
    }
}

/// See [`Namespace::checksums`].
pub(super) fn checksums_of(
    connection: &Connection,
    file: EntryId,
) -> rusqlite::Result<Vec<Checksum>> {
    let mut query =
        connection.prepare_cached("SELECT algorithm, value FROM checksum WHERE entry = ?1")?;
    let rows = query.query_map([stored(file)], checksum_of_row)?;
    let known: rusqlite::Result<Vec<Checksum>> = rows.filter_map(Result::transpose).collect();
    let mut found = known?;
    found.sort_by_key(Checksum::algorithm);
    Ok(found)
}

/// Takes algorithm and value.
pub(super) fn checksum_of_row(row: &Row<'_>) -> rusqlite::Result<Option<Checksum>> {
    let (name, hex) = (row.get::<_, String>(0)?, row.get::<_, String>(1)?);
    Ok(ChecksumAlgorithm::parse(&name).and_then(|algorithm| Checksum::from_hex(algorithm, &hex)))
}

/// Follows a path from the root. A file on the way ends it: nothing is below a file.
pub(super) fn find(
    connection: &Connection,
    path: &NamespacePath,
) -> rusqlite::Result<Option<Entry>> {
    let found = find_along(connection, path, &mut Vec::new())?;
    Ok(found.map(|(_, entry)| entry))
}

/// The same with the id of the parent; `way` gets what stands on the way there, each with its own parent.
fn find_along(
    connection: &Connection,
    path: &NamespacePath,
    way: &mut Vec<(EntryId, Entry)>,
) -> rusqlite::Result<Option<(EntryId, Entry)>> {
    let Some((last, parents)) = path.names().split_last() else {
        let root = by_name(connection, stored(EntryId::NONE), "")?;
        return Ok(root.map(|root| (EntryId::NONE, root)));
    };
    let mut directory = EntryId::ROOT;
    for name in parents {
        match by_name(connection, stored(directory), name)? {
            Some(next) => {
                let parent = std::mem::replace(&mut directory, next.id);
                way.push((parent, next));
            }
            None => return Ok(None),
        }
    }
    let found = by_name(connection, stored(directory), last)?;
    Ok(found.map(|entry| (directory, entry)))
}

/// The entry with this name in this directory.
pub(super) fn by_name(
    connection: &Connection,
    parent: i64,
    name: &str,
) -> rusqlite::Result<Option<Entry>> {
    connection
        .prepare_cached(BY_NAME)?
        .query_row(params![parent, name], entry_of_row)
        .optional()
}

/// By its place in [`Archival::ALL`].
pub(super) fn archival_of(place: i64) -> Archival {
    let place = usize::try_from(place).unwrap_or(0);
    Archival::ALL.get(place).copied().unwrap_or_default()
}

/// What [`stored_archival`] says, for SQL.
pub(super) const DISK_ONLY: i64 = 0;
pub(super) const PRECIOUS: i64 = 1;
pub(super) const CACHED: i64 = 2;

/// In SQL: somebody waits for the file of a row of `stage_file`. As the index of such rows has it.
pub(super) const IS_AWAITED: &str = "state < 2";

/// See [`archival_of`].
pub(super) fn stored_archival(archival: Archival) -> i64 {
    let place = Archival::ALL.iter().position(|one| *one == archival);
    place
        .and_then(|place| i64::try_from(place).ok())
        .unwrap_or(0)
}

/// Takes [`COLUMNS`].
pub(super) fn entry_of_row(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let kind = match row.get::<_, i64>(2)? {
        0 => EntryKind::Directory,
        _ => EntryKind::File {
            size: Bytes(unsigned(row.get(3)?)),
            pool: row.get::<_, Option<String>>(7)?.map(PoolName::new),
            archival: archival_of(row.get(9)?),
        },
    };
    Ok(Entry {
        id: EntryId(unsigned(row.get(0)?)),
        name: row.get(1)?,
        kind,
        modified: Timestamp(row.get(4)?),
        created: Timestamp(row.get(5)?),
        owner: row.get::<_, Option<String>>(6)?.map(UserName::new),
        has_properties: row.get(8)?,
    })
}

/// All entries below a directory, itself excluded, at most `limit`, each with the names that lead to it. What a directory
/// holds comes after it.
pub(super) fn below_with_names(
    connection: &Connection,
    directory: EntryId,
    limit: usize,
) -> rusqlite::Result<Vec<(Vec<String>, Entry)>> {
    let mut found: Vec<(Vec<String>, Entry)> = Vec::new();
    let mut open = vec![(Vec::new(), directory)];
    let mut query = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM entry WHERE parent = ?1 LIMIT ?2"
    ))?;
    while let Some((names, directory)) = open.pop() {
        let room = i64::try_from(limit.saturating_sub(found.len())).unwrap_or(i64::MAX);
        let rows = query.query_map(params![stored(directory), room], entry_of_row)?;
        for entry in rows {
            let entry = entry?;
            let mut names: Vec<String> = names.clone();
            names.push(entry.name.clone());
            if entry.is_directory() {
                open.push((names.clone(), entry.id));
            }
            found.push((names, entry));
        }
        if found.len() >= limit {
            break;
        }
    }
    Ok(found)
}

/// All pools that were ever made, or held a file.
pub(super) fn pools_ever(connection: &Connection) -> rusqlite::Result<BTreeSet<PoolName>> {
    let mut query = connection.prepare(
        "SELECT substr(key, length(?1) + 1) FROM meta WHERE substr(key, 1, length(?1)) = ?1
         UNION SELECT pool FROM counter WHERE pool <> '' UNION SELECT pool FROM trash",
    )?;
    let rows = query.query_map([POOL_KEY], |row| row.get::<_, String>(0))?;
    rows.map(|row| row.map(PoolName::new)).collect()
}

/// Pools with their files and bytes, in the order in which `query` selects them.
pub(super) fn usage_by_pool(
    connection: &Connection,
    query: &str,
    values: impl Params,
) -> rusqlite::Result<BTreeMap<PoolName, PoolUsage>> {
    let mut query = connection.prepare_cached(query)?;
    let rows = query.query_map(values, |row| {
        let usage = PoolUsage {
            files: unsigned(row.get(1)?),
            bytes: Bytes(unsigned(row.get(2)?)),
        };
        Ok((PoolName::new(row.get::<_, String>(0)?), usage))
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Namespace;

    #[test]
    fn numbers_in_sql_are_those_of_the_column() {
        let all = [Archival::DiskOnly, Archival::Precious, Archival::Cached];
        assert_eq!(all.map(stored_archival), [DISK_ONLY, PRECIOUS, CACHED]);
        assert_eq!(all.map(|one| archival_of(stored_archival(one))), all);
        assert_eq!(Archival::ALL.len(), all.len());
    }

    #[test]
    fn a_page_that_the_disk_cannot_read_is_an_error_and_no_signal() {
        let directory = tempfile::tempdir().expect("made");
        let path = directory.path().join("namespace.sqlite");
        let _namespace = Namespace::open(&path).expect("opens");
        let reader = open_reader(&path).expect("opens");
        let mapped: i64 = reader
            .pragma_query_value(None, "mmap_size", |row| row.get(0))
            .expect("told");
        assert_eq!(mapped, 0);
    }
}
