//! Trash: files that were removed or replaced, while their data is still there. Each row holds all that is needed to make
//! the file visible again as it was.

use super::directory_log::TrashedFile;
use super::read::{signed, stored, unsigned};
use super::{DeadProperty, EntryId, Namespace, NamespaceError};
use penstock_model::{Bytes, Checksum, NamespacePath, PoolName, Timestamp, UserName};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

/// What a row holds as JSON.
#[derive(Default, Serialize, Deserialize)]
struct Details {
    created: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    checksums: Vec<Checksum>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    properties: Vec<DeadProperty>,
}

/// Columns in the order in which [`of_row`] takes them.
const COLUMNS: &str = "file_id, pool, size_bytes, removed_ms, path, owner, details";

pub(super) fn insert(connection: &Connection, file: &TrashedFile) -> rusqlite::Result<()> {
    let details = Details {
        created: Some(file.created),
        checksums: file.checksums.clone(),
        properties: file.properties.clone(),
    };
    connection
        .prepare_cached(&format!(
            "INSERT INTO trash ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        ))?
        .execute(params![
            stored(file.file),
            file.pool.as_str(),
            signed(file.size.0),
            file.removed.0,
            file.path.to_string(),
            file.owner.as_ref().map(UserName::as_str),
            serde_json::to_string(&details).unwrap_or_default(),
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

/// All of one pool's.
pub(super) fn of_pool(
    connection: &Connection,
    pool: &PoolName,
) -> rusqlite::Result<Vec<TrashedFile>> {
    let sql = format!("SELECT {COLUMNS} FROM trash WHERE pool = ?1 ORDER BY file_id");
    let mut query = connection.prepare(&sql)?;
    let rows = query.query_map([pool.as_str()], of_row)?;
    rows.collect()
}

fn of_row(row: &Row<'_>) -> rusqlite::Result<TrashedFile> {
    let path = row.get::<_, Option<String>>(4)?;
    let details = row.get::<_, Option<String>>(6)?;
    let details: Details = details
        .and_then(|details| serde_json::from_str(&details).ok())
        .unwrap_or_default();
    let removed = Timestamp(row.get(3)?);
    Ok(TrashedFile {
        file: EntryId(unsigned(row.get(0)?)),
        pool: PoolName::new(row.get::<_, String>(1)?),
        size: Bytes(unsigned(row.get(2)?)),
        path: path
            .and_then(|path| NamespacePath::parse(&path).ok())
            .unwrap_or_else(NamespacePath::root),
        owner: row.get::<_, Option<String>>(5)?.map(UserName::new),
        created: details.created.unwrap_or(removed),
        removed,
        checksums: details.checksums,
        properties: details.properties,
    })
}

impl Namespace {
    /// Trash that was removed before `until`, the oldest first, at most `limit`, from the first after the given one.
    pub fn trash_listing(
        &self,
        after: Option<(Timestamp, EntryId)>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<TrashedFile>, NamespaceError> {
        let (at, file) = after.map_or((i64::MIN, 0), |(at, file)| (at.0, stored(file)));
        self.readers.with(|connection| {
            let mut query = connection.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM trash WHERE (removed_ms, file_id) > (?1, ?2) AND removed_ms < ?3
                 ORDER BY removed_ms, file_id LIMIT ?4"
            ))?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = query.query_map(params![at, file, until.0, limit], of_row)?;
            rows.collect()
        })
    }

    /// One file of the trash.
    pub fn trashed(&self, file: EntryId) -> Result<Option<TrashedFile>, NamespaceError> {
        self.readers.with(|connection| find(connection, file))
    }
}
