//! Reading the tree by ids and pools, for tools that compare it with what lies in the pools.

use super::connection::{signed, stored, unsigned};
use super::read::{archival_of, checksum_of_row, usage_by_pool};
use super::{EntryId, Namespace, NamespaceError, PoolUsage};
use penstock_model::{Archival, Bytes, Checksum, NamespacePath, PoolName, Timestamp, UserName};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::{BTreeMap, BTreeSet};

/// A visible file as its row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Its identity.
    pub id: EntryId,
    /// The directory that holds it.
    pub parent: EntryId,
    pub name: String,
    pub size: Bytes,
    /// When it was written.
    pub created: Timestamp,
    /// Who wrote it.
    pub owner: Option<UserName>,
    /// Its checksums, in the order of their algorithms.
    pub checksums: Vec<Checksum>,
    /// The label of its data tells where it is.
    pub is_labelled: bool,
    /// Whether it goes to tape.
    pub archival: Archival,
}

impl Namespace {
    /// The files of a pool with ids from `from` on and below `end`, in the order of their ids.
    pub fn files_of_pool(
        &self,
        pool: &PoolName,
        from: EntryId,
        end: EntryId,
    ) -> Result<Vec<StoredFile>, NamespaceError> {
        self.readers.with(|connection| {
            let mut query = connection.prepare_cached(
                "SELECT id, parent, name, size_bytes, created_ms, owner, labelled, archival FROM entry
                 WHERE id >= ?1 AND id < ?2 AND pool = ?3 ORDER BY id",
            )?;
            let range = params![stored(from), stored(end), pool.as_str()];
            let rows = query.query_map(range, |row| {
                Ok(StoredFile {
                    id: EntryId(unsigned(row.get(0)?)),
                    parent: EntryId(unsigned(row.get(1)?)),
                    name: row.get(2)?,
                    size: Bytes(unsigned(row.get(3)?)),
                    created: Timestamp(row.get(4)?),
                    owner: row.get::<_, Option<String>>(5)?.map(UserName::new),
                    checksums: Vec::new(),
                    is_labelled: row.get(6)?,
                    archival: archival_of(row.get(7)?),
                })
            })?;
            let mut files: Vec<StoredFile> = rows.collect::<rusqlite::Result<_>>()?;
            let mut checksums = checksums_between(connection, from, end)?;
            for file in &mut files {
                file.checksums = checksums.remove(&file.id).unwrap_or_default();
            }
            Ok(files)
        })
    }

    /// The trash of a pool in the same range.
    pub fn trash_of_pool(
        &self,
        pool: &PoolName,
        from: EntryId,
        end: EntryId,
    ) -> Result<BTreeSet<EntryId>, NamespaceError> {
        self.readers.with(|connection| {
            let mut query = connection.prepare_cached(
                "SELECT file_id FROM trash WHERE file_id >= ?1 AND file_id < ?2 AND pool = ?3",
            )?;
            let range = params![stored(from), stored(end), pool.as_str()];
            let rows = query.query_map(range, |row| Ok(EntryId(unsigned(row.get(0)?))))?;
            rows.collect()
        })
    }

    /// The numbers of all groups of `size` consecutive ids of which a pool has a file or trash, in order.
    pub fn id_groups(&self, pool: &PoolName, size: u64) -> Result<BTreeSet<u64>, NamespaceError> {
        self.readers.with(|connection| {
            let mut query = connection.prepare(
                "SELECT DISTINCT id / ?2 FROM entry WHERE pool = ?1
                 UNION SELECT DISTINCT file_id / ?2 FROM trash WHERE pool = ?1",
            )?;
            let rows = query.query_map(params![pool.as_str(), signed(size)], |row| {
                row.get(0).map(unsigned)
            })?;
            rows.collect()
        })
    }

    /// Where an entry is; `None`: there is none, or nothing leads to it.
    pub fn path_of(&self, entry: EntryId) -> Result<Option<NamespacePath>, NamespaceError> {
        self.readers.with(|connection| path_of(connection, entry))
    }

    /// What every pool holds, counted file by file.
    pub fn counted_usage(&self) -> Result<BTreeMap<PoolName, PoolUsage>, NamespaceError> {
        self.readers.with(|connection| {
            usage_by_pool(
                connection,
                "SELECT pool, count(*), sum(size_bytes) FROM entry WHERE kind = 1 AND pool IS NOT NULL GROUP BY pool",
                [],
            )
        })
    }
}

pub(super) fn path_of(
    connection: &Connection,
    entry: EntryId,
) -> rusqlite::Result<Option<NamespacePath>> {
    let Some(names) = names_of(connection, entry)? else {
        return Ok(None);
    };
    let path = names
        .iter()
        .try_fold(NamespacePath::root(), |path, name| path.child(name));
    Ok(path.ok())
}

/// The same for what needs no more than to know about where: of a path that is longer than any may be the directory above, as
/// deep as one can be named. An entry that hangs in no tree is told to be in the root.
pub(super) fn path_or_directory_of(
    connection: &Connection,
    entry: EntryId,
) -> rusqlite::Result<NamespacePath> {
    let mut path = NamespacePath::root();
    for name in names_of(connection, entry)?.unwrap_or_default() {
        match path.child(&name) {
            Ok(longer) => path = longer,
            Err(_) => break,
        }
    }
    Ok(path)
}

/// The names from the root down to an entry; `None`: it hangs in no tree.
fn names_of(connection: &Connection, entry: EntryId) -> rusqlite::Result<Option<Vec<String>>> {
    let mut names: Vec<String> = Vec::new();
    let mut id = stored(entry);
    let mut query = connection.prepare_cached("SELECT parent, name FROM entry WHERE id = ?1")?;
    while id != stored(EntryId::ROOT) {
        let row = query.query_row([id], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)));
        let Some((parent, name)) = row.optional()? else {
            return Ok(None);
        };
        // No path has so many names; only damage makes a ring.
        if names.len() > 10_000 {
            return Ok(None);
        }
        names.push(name);
        id = parent;
    }
    names.reverse();
    Ok(Some(names))
}

/// The checksums of files with ids from `from` on and below `end`.
fn checksums_between(
    connection: &Connection,
    from: EntryId,
    end: EntryId,
) -> rusqlite::Result<BTreeMap<EntryId, Vec<Checksum>>> {
    let mut query = connection.prepare_cached(
        "SELECT algorithm, value, entry FROM checksum WHERE entry >= ?1 AND entry < ?2",
    )?;
    let rows = query.query_map(params![stored(from), stored(end)], |row| {
        Ok((EntryId(unsigned(row.get(2)?)), checksum_of_row(row)?))
    })?;
    let mut found: BTreeMap<EntryId, Vec<Checksum>> = BTreeMap::new();
    for row in rows {
        let (file, checksum) = row?;
        found.entry(file).or_default().extend(checksum);
    }
    for checksums in found.values_mut() {
        checksums.sort_by_key(Checksum::algorithm);
    }
    Ok(found)
}
