//! Trash: files that were removed or replaced, while their data is still there. Each row holds all that is needed to make
//! the file visible again as it was.

use super::change::{Batch, Outcome, ToldEntry, first};
use super::connection::{signed, stored, unsigned};
use super::directory_log::{DirectoryRecord, TrashedFile};
use super::read::{by_name, usage_by_pool};
use super::{
    ChangeError, ChangeRefusal, ChangeReport, DeadProperty, EntryId, Namespace, NamespaceError,
    NewFile, PoolUsage, Replace, property,
};
use penstock_model::observation::EntryChange;
use penstock_model::{Archival, Bytes, Checksum, NamespacePath, PoolName, Timestamp, UserName};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a row holds as JSON. Its names are short because each removal writes a row: rows of half the size fill half as many
/// pages of the database. The longer names are those of schema 6 and before.
#[derive(Default, Serialize, Deserialize)]
struct Details {
    #[serde(rename = "c", alias = "created")]
    created: Option<Timestamp>,
    #[serde(
        rename = "s",
        alias = "checksums",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    checksums: Vec<StoredChecksum>,
    #[serde(
        rename = "p",
        alias = "properties",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    properties: Vec<DeadProperty>,
    #[serde(
        rename = "b",
        alias = "by",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    by: Option<Remover>,
    /// Whether it goes to tape.
    #[serde(rename = "a", default, skip_serializing_if = "is_disk_only")]
    archival: Archival,
}

fn is_disk_only(archival: &Archival) -> bool {
    *archival == Archival::DiskOnly
}

/// A checksum as `algorithm:hex`, or in the form of schema 6.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredChecksum {
    Text(String),
    Structure(Checksum),
}

impl StoredChecksum {
    fn value(self) -> Option<Checksum> {
        match self {
            StoredChecksum::Text(text) => Checksum::parse(&text),
            StoredChecksum::Structure(checksum) => Some(checksum),
        }
    }
}

/// Who removed a file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Remover {
    /// `1`: its owner.
    Owner(u8),
    /// Another user, or the owner in the form of schema 6.
    User(UserName),
}

impl Details {
    fn of(file: &TrashedFile) -> Details {
        let checksums = file.checksums.iter();
        Details {
            created: Some(file.created),
            checksums: checksums
                .map(|checksum| StoredChecksum::Text(checksum.to_string()))
                .collect(),
            properties: file.properties.clone(),
            archival: file.archival,
            by: match &file.by {
                by if by.is_some() && *by == file.owner => Some(Remover::Owner(1)),
                by => by.clone().map(Remover::User),
            },
        }
    }
}

/// Columns in the order in which [`of_row`] takes them.
const COLUMNS: &str = "file_id, pool, size_bytes, removed_ms, path, owner, details";

/// The same columns: each removal needs it, so it is not put together each time.
const INSERT: &str =
    "INSERT INTO trash (file_id, pool, size_bytes, removed_ms, path, owner, details)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

pub(super) fn insert(connection: &Connection, file: &TrashedFile) -> rusqlite::Result<()> {
    connection.prepare_cached(INSERT)?.execute(params![
        stored(file.file),
        file.pool.as_str(),
        signed(file.size.0),
        file.removed.0,
        file.path.to_string(),
        file.owner.as_ref().map(UserName::as_str),
        serde_json::to_string(&Details::of(file)).unwrap_or_default(),
    ])?;
    Ok(())
}

/// One file of it.
pub(super) fn find(
    connection: &Connection,
    file: EntryId,
) -> rusqlite::Result<Option<TrashedFile>> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM trash WHERE file_id = ?1"))?
        .query_row([stored(file)], of_row)
        .optional()
}

/// Calls `visit` for each of one pool's.
pub(super) fn each_of_pool(
    connection: &Connection,
    pool: &PoolName,
    mut visit: impl FnMut(TrashedFile) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let sql = format!("SELECT {COLUMNS} FROM trash WHERE pool = ?1");
    let mut query = connection.prepare(&sql)?;
    let mut rows = query.query([pool.as_str()])?;
    while let Some(row) = rows.next()? {
        visit(of_row(row)?)?;
    }
    Ok(())
}

fn of_row(row: &Row<'_>) -> rusqlite::Result<TrashedFile> {
    let path = row.get::<_, Option<String>>(4)?;
    let details = row.get::<_, Option<String>>(6)?;
    let details: Details = details
        .and_then(|details| serde_json::from_str(&details).ok())
        .unwrap_or_default();
    let removed = Timestamp(row.get(3)?);
    let owner = row.get::<_, Option<String>>(5)?.map(UserName::new);
    Ok(TrashedFile {
        file: EntryId(unsigned(row.get(0)?)),
        pool: PoolName::new(row.get::<_, String>(1)?),
        size: Bytes(unsigned(row.get(2)?)),
        path: path
            .and_then(|path| NamespacePath::parse(&path).ok())
            .unwrap_or_else(NamespacePath::root),
        by: match details.by {
            None => None,
            Some(Remover::Owner(_)) => owner.clone(),
            Some(Remover::User(user)) => Some(user),
        },
        owner,
        created: details.created.unwrap_or(removed),
        removed,
        checksums: details
            .checksums
            .into_iter()
            .filter_map(StoredChecksum::value)
            .collect(),
        properties: details.properties,
        archival: details.archival,
    })
}

/// Which files of the trash are meant. By default all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrashQuery {
    /// Those whose data is in this pool.
    pub pool: Option<PoolName>,
    /// Those that were at this path, or below it.
    pub within: Option<NamespacePath>,
    /// Those that were removed before.
    pub before: Option<Timestamp>,
    /// Those that come after this one in their order.
    pub after: Option<(Timestamp, EntryId)>,
}

/// A value by the name that SQL has for it.
type NamedValue = (&'static str, Value);

impl TrashQuery {
    /// As SQL that takes named values, and these.
    fn condition(&self) -> (String, Vec<NamedValue>) {
        let mut conditions = Vec::new();
        let mut values: Vec<NamedValue> = Vec::new();
        if let Some(pool) = &self.pool {
            conditions.push("pool = :pool");
            values.push((":pool", Value::from(pool.to_string())));
        }
        if let Some(path) = self.within.as_ref().filter(|path| !path.is_root()) {
            conditions.push("(path = :path OR substr(path, 1, length(:path) + 1) = :path || '/')");
            values.push((":path", Value::from(path.to_string())));
        }
        if let Some(before) = self.before {
            conditions.push("removed_ms < :before");
            values.push((":before", Value::from(before.0)));
        }
        if let Some((removed, file)) = self.after {
            conditions.push("(removed_ms, file_id) > (:removed, :file)");
            values.push((":removed", Value::from(removed.0)));
            values.push((":file", Value::from(stored(file))));
        }
        let condition = match conditions.is_empty() {
            true => String::new(),
            false => format!("WHERE {}", conditions.join(" AND ")),
        };
        (condition, values)
    }
}

/// By an index, one step for each.
fn pools_with_trash(connection: &Connection) -> rusqlite::Result<Vec<PoolName>> {
    let mut next = connection.prepare_cached("SELECT min(pool) FROM trash WHERE pool > ?1")?;
    let mut pools: Vec<PoolName> = Vec::new();
    loop {
        let last = pools.last().map_or("", PoolName::as_str);
        match next.query_row([last], |row| row.get::<_, Option<String>>(0))? {
            Some(pool) => pools.push(PoolName::new(pool)),
            None => return Ok(pools),
        }
    }
}

/// The files of one pool that were removed first.
fn oldest(
    connection: &Connection,
    query: &TrashQuery,
    limit: usize,
) -> rusqlite::Result<Vec<TrashedFile>> {
    let (condition, mut values) = query.condition();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    values.push((":limit", Value::from(limit)));
    let sql = format!(
        "SELECT {COLUMNS} FROM trash {condition} ORDER BY removed_ms, file_id LIMIT :limit"
    );
    let mut query = connection.prepare_cached(&sql)?;
    let rows = query.query_map(named(&values).as_slice(), of_row)?;
    rows.collect()
}

fn named(values: &[NamedValue]) -> Vec<(&str, &dyn ToSql)> {
    let named = values.iter().map(|(name, value)| (*name, value as _));
    named.collect()
}

impl Namespace {
    /// Files of the trash, those that were removed first before others, at most `limit`. Costs what is given back, for
    /// each pool that has trash.
    pub fn trash(
        &self,
        query: &TrashQuery,
        limit: usize,
    ) -> Result<Vec<TrashedFile>, NamespaceError> {
        self.readers.with(|connection| {
            let pools = match &query.pool {
                Some(pool) => vec![pool.clone()],
                None => pools_with_trash(connection)?,
            };
            let mut all = Vec::new();
            for pool in pools {
                let of_pool = TrashQuery {
                    pool: Some(pool),
                    ..query.clone()
                };
                all.extend(oldest(connection, &of_pool, limit)?);
            }
            all.sort_by_key(|file| (file.removed, file.file));
            all.truncate(limit);
            Ok(all)
        })
    }

    /// One file of the trash.
    pub fn trashed(&self, file: EntryId) -> Result<Option<TrashedFile>, NamespaceError> {
        self.readers.with(|connection| find(connection, file))
    }

    /// How much of every pool is such trash. Unless it is asked by path this reads an index, not the rows.
    pub fn trash_usage(
        &self,
        query: &TrashQuery,
    ) -> Result<BTreeMap<PoolName, PoolUsage>, NamespaceError> {
        let (condition, values) = query.condition();
        let sql =
            format!("SELECT pool, count(*), sum(size_bytes) FROM trash {condition} GROUP BY pool");
        self.readers
            .with(|connection| usage_by_pool(connection, &sql, named(&values).as_slice()))
    }
}

impl Batch<'_> {
    /// Writes the rows of what became trash since this was called last. In the order of the index by pool and time, which then
    /// grows at its end: rows inserted there out of order split its pages again and again.
    pub(super) fn write_trash(&mut self) -> rusqlite::Result<()> {
        let new = self.records[self.records_with_trash_written..].iter();
        let mut files: Vec<&TrashedFile> = new
            .filter_map(|record| match record {
                DirectoryRecord::Trashed { file, .. } => Some(file),
                _ => None,
            })
            .collect();
        files.sort_by_key(|file| (&file.pool, file.removed, file.file));
        for file in files {
            insert(self.connection, file)?;
        }
        self.records_with_trash_written = self.records.len();
        Ok(())
    }

    /// Forgets trash whose data is gone.
    pub(super) fn forget_trash(&mut self, files: &[EntryId], at: Timestamp) -> Outcome {
        self.write_trash()?;
        let mut delete = self
            .connection
            .prepare_cached("DELETE FROM trash WHERE place = ?1")?;
        let mut changed = ChangeReport::default();
        let mut select = self
            .connection
            .prepare_cached("SELECT path, size_bytes, pool, place FROM trash WHERE file_id = ?1")?;
        for file in files {
            let known = select.query_row([stored(*file)], |row| {
                let (pool, place): (String, i64) = (row.get(2)?, row.get(3)?);
                Ok((row.get::<_, Option<String>>(0)?, row.get(1)?, pool, place))
            });
            let Some((path, size, pool, place)) = known.optional()? else {
                continue;
            };
            delete.execute([place])?;
            changed.forgotten.insert(*file);
            let size = Bytes(unsigned(size));
            let path = path.and_then(|path| NamespacePath::parse(&path).ok());
            let path = path.unwrap_or_else(NamespacePath::root);
            // Unless the file itself is there, and only its copy on disk went.
            if !self.is_visible(*file)? {
                self.owe_tape_removal(*file, &path, size, at)?;
            }
            let told = ToldEntry::new(EntryChange::Purge, *file, &path).without_root();
            self.tell_ledger(told.with_data(size, Some(&PoolName::new(pool))));
        }
        Ok(changed)
    }

    /// Takes a removed file into the trash again.
    pub(super) fn reenter_trash(&mut self, file: &TrashedFile) -> Outcome {
        self.records.push(DirectoryRecord::Trashed {
            parent: EntryId(0),
            file: file.clone(),
            copies: Vec::new(),
        });
        self.write_trash()?;
        let told = ToldEntry::new(EntryChange::Recovery, file.file, &file.path).without_root();
        self.tell_ledger(told.with_data(file.size, Some(&file.pool)));
        Ok(ChangeReport::default())
    }

    /// Puts a file of the trash back into the tree.
    pub(super) fn restore_trash(
        &mut self,
        file: EntryId,
        to: &NamespacePath,
        at: Timestamp,
    ) -> Outcome {
        self.write_trash()?;
        let kept = find(self.connection, file)?.ok_or(ChangeRefusal::NotTrash(file))?;
        if self.is_visible(file)? || kept.is_evicted() {
            // Its copy on disk is on its way out; the file itself is on tape, or was removed after that.
            return Err(ChangeRefusal::NotTrash(file).into());
        }
        let (parent, name) = self.free_place(to, kept.owner.as_ref(), at)?;
        self.connection
            .prepare_cached("DELETE FROM trash WHERE file_id = ?1")?
            .execute([stored(file)])?;
        let restored = NewFile {
            id: file,
            path: to.clone(),
            size: kept.size,
            checksums: kept.checksums.clone(),
            pool: kept.pool.clone(),
            archival: kept.archival,
            owner: kept.owner.clone(),
            at: kept.created,
            replace: Replace::Refused,
            properties_of: None,
            archive_word: None,
            labelled_in: None,
        };
        self.insert_file(parent, name, &restored)?;
        self.tell_ledger(ToldEntry::of_file(EntryChange::Restoration, &restored));
        if let Some(DirectoryRecord::File(told)) = self.records.last_mut() {
            (told.at, told.properties) = (at, kept.properties.clone());
        }
        property::insert(self.connection, file, &kept.properties)?;
        self.touch(parent, at);
        Ok(ChangeReport::default())
    }

    /// The directory of a path at which nothing stands, and the name there. Missing directories are made.
    pub(super) fn free_place<'a>(
        &mut self,
        to: &'a NamespacePath,
        owner: Option<&UserName>,
        at: Timestamp,
    ) -> Result<(EntryId, &'a str), ChangeError> {
        let Some((name, parents)) = to.names().split_last() else {
            return Err(ChangeRefusal::IsDirectory(to.clone()).into());
        };
        let (mut parent, existing) = self.deepest_directory(to, parents)?;
        let is_taken =
            existing == parents.len() && by_name(self.connection, stored(parent), name)?.is_some();
        if is_taken {
            return Err(ChangeRefusal::Exists(to.clone()).into());
        }
        for (depth, name) in parents.iter().enumerate().skip(existing) {
            parent = self.insert_directory(parent, name, owner, at)?;
            self.tell_parent(parent, &first(to, depth + 1));
        }
        Ok((parent, name))
    }
}
