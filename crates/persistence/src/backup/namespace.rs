//! The namespace of a storage element in a backup: copied as it lies there, below a snapshot, and put back so that no id is
//! given twice and no file that was stored since then counts as one that nobody was told of.

use super::restored_files::{copy_of, files_of, put_aside};
use super::{BackupFacts, BackupOf, BoxedError, Log, OWN_TABLES, RestoredBackup, pages};
use penstock_durable_file::put_in_place;

use super::{read_only, with_suffix, writable};
use crate::journal::LOST_NUMBERS_MAX;
use penstock_model::{Bytes, Timestamp};
use rusqlite::{Connection, OptionalExtension};
use std::fs::File;
use std::path::Path;
use uuid::Uuid;

/// What tells a backup of a namespace from one of a transfer service: the schema of its tables.
pub(super) const SCHEMA_FACT: &str = "namespace_schema";
/// Entries, but for the root, that no directory holds.
pub(super) const WITHOUT_DIRECTORY: &str =
    "SELECT count(*) FROM entry AS inner WHERE inner.parent <> 0
    AND NOT EXISTS (SELECT 1 FROM entry WHERE entry.id = inner.parent AND entry.kind = 0)";

/// What a backup of a namespace holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// The namespace's identity, which its pools carry.
    pub namespace: Uuid,
    /// Directories, the root among them.
    pub directories: u64,
    /// Visible files.
    pub files: u64,
    /// Their bytes. The data itself is in the pools.
    pub bytes: Bytes,
}

/// Copies the database. Returns the copy and its schema.
pub(super) fn copy(
    database: &Path,
    part: &Path,
    of: &BackupOf,
) -> Result<(Connection, i64), BoxedError> {
    let namespace = read_only(database)?;
    namespace.execute_batch("BEGIN")?;
    // The snapshot begins with the first thing that is read.
    let schema = namespace.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if schema == 0 {
        return Err(format!("{} holds no namespace", database.display()).into());
    }
    let log = Log::of(database);
    pages::copy(&namespace, database, &log, part, of)?;
    namespace.execute_batch("COMMIT")?;
    log.write_into_place();
    Ok((writable(part)?, schema))
}

pub(super) fn look(backup: &Connection) -> rusqlite::Result<NamespaceFacts> {
    let uuid = "SELECT value FROM meta WHERE key = 'uuid'";
    let uuid: Option<String> = backup.query_row(uuid, [], |row| row.get(0)).optional()?;
    let counts = "SELECT count(*) FILTER (WHERE kind = 0), count(*) FILTER (WHERE kind = 1),
                  coalesce(sum(size_bytes), 0) FROM entry";
    backup.query_row(counts, [], |row| {
        let number = |column| Ok::<_, rusqlite::Error>(row.get::<_, i64>(column)?.unsigned_abs());
        Ok(NamespaceFacts {
            namespace: uuid
                .and_then(|uuid| Uuid::parse_str(&uuid).ok())
                .unwrap_or_default(),
            directories: number(0)?,
            files: number(1)?,
            bytes: Bytes(number(2)?),
        })
    })
}

/// Puts it where the storage element looks for it. Until the last step there is the one before, or none.
pub(super) fn put_back(
    from: &Path,
    database: &Path,
    at: Timestamp,
    facts: BackupFacts,
) -> Result<RestoredBackup, BoxedError> {
    let files = files_of(&read_only(from)?)?;
    let part = with_suffix(database, ".restoring");
    let mut made = copy_of(from, &part)?;
    leap(&mut made, at)?;
    keep_trash(&made, at)?;
    made.close().map_err(|(_, why)| why)?;
    File::open(&part)?.sync_all()?;
    let set_aside = put_aside(database, at)?.into_iter().collect();
    put_in_place(&part, database)?;
    Ok(RestoredBackup {
        facts,
        files,
        positions: Vec::new(),
        set_aside,
    })
}

/// What came back from the trash since then is trash again: there is time to look before it goes for good.
fn keep_trash(namespace: &Connection, at: Timestamp) -> rusqlite::Result<()> {
    // A backup of an earlier version does not tell when.
    let sql = "SELECT count(*) FROM pragma_table_info('trash') WHERE name = 'removed_ms'";
    if namespace.query_row(sql, [], |row| row.get::<_, i64>(0))? > 0 {
        namespace.execute("UPDATE trash SET removed_ms = max(removed_ms, ?1)", [at.0])?;
    }
    Ok(())
}

/// Numbers of directory logs that pass in a millisecond between two restores: many more than a namespace gives.
const LOG_NUMBERS_PER_MS: i64 = 100_000;

/// Files have been stored since. Their ids are not given again, and noted: a start looks for such files and refuses to go on
/// without them, instead of taking them for the rest of interrupted writes.
fn leap(namespace: &mut Connection, at: Timestamp) -> rusqlite::Result<()> {
    let change = namespace.transaction()?;
    for table in OWN_TABLES {
        change.execute_batch(&format!("DROP TABLE IF EXISTS {table}"))?;
    }
    // Pools tell by it whether they were in use since this restore, or since another one of the same backup.
    let restore = "INSERT OR REPLACE INTO meta VALUES ('restore_id', ?1)";
    change.execute(restore, [uuid::Uuid::new_v4().to_string()])?;
    let leap = "UPDATE meta SET value = CAST(CAST(value AS INTEGER) + ?1 AS TEXT) WHERE key = ?2";
    // Of a namespace that was restored before, all that was not known then may still not be.
    let from = "INSERT OR IGNORE INTO meta SELECT 'restored_from', value FROM meta WHERE key = 'low_water'";
    change.execute(from, [])?;
    change.execute(leap, rusqlite::params![LOST_NUMBERS_MAX, "ids_below"])?;
    // A log that goes on from an earlier restore of the same backup is behind this one, too. A backup of an earlier version keeps
    // the last number in `meta`.
    let least = at.0.saturating_mul(LOG_NUMBERS_PER_MS);
    let log_leap = "max(CAST(value AS INTEGER) + ?1, ?2)";
    let of_meta =
        format!("UPDATE meta SET value = CAST({log_leap} AS TEXT) WHERE key = 'log_sequence'");
    change.execute(&of_meta, [LOST_NUMBERS_MAX, least])?;
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'counter'";
    if change.query_row(sql, [], |row| row.get::<_, i64>(0))? > 0 {
        let of_counter =
            format!("UPDATE counter SET value = {log_leap} WHERE name = 'log_sequence'");
        change.execute(&of_counter, [LOST_NUMBERS_MAX, least])?;
    }
    let raise = "UPDATE meta SET value = (SELECT value FROM meta WHERE key = 'ids_below') WHERE key = 'low_water'";
    change.execute(raise, [])?;
    let below = "INSERT OR REPLACE INTO meta SELECT 'restored_below', value FROM meta WHERE key = 'ids_below'";
    change.execute(below, [])?;
    // Pools know how many movers were recorded when they were last marked, and whoever collects records, which of these and
    // which minutes of pools came already.
    for table in ["mover_record", "pool_minute"] {
        let first = "INSERT INTO sqlite_sequence (name, seq) SELECT ?1, 0
                     WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?1)";
        change.execute(first, [table])?;
        let leap = "UPDATE sqlite_sequence SET seq = seq + ?1 WHERE name = ?2";
        change.execute(leap, rusqlite::params![LOST_NUMBERS_MAX, table])?;
    }
    // Nobody knows how far the ledger went since: its numbers go on where none was ever given.
    let least = at.0.saturating_mul(1000).to_string();
    let lost = "DELETE FROM meta WHERE key = 'ledger_running_since'";
    change.execute(lost, [])?;
    let lost =
        "INSERT OR REPLACE INTO meta VALUES ('ledger_lost', 'restored'), ('ledger_least', ?1)";
    change.execute(lost, [least])?;
    change.commit()
}
