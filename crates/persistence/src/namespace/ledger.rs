//! The storage element's own ledger: which entries changed, what was refused at its doors, and where something is missing.
//!
//! What one transaction holds is one row of the database, packed, and commits with the changes that it tells of. Each thing
//! that happened has a number of its own; a row is found by the number of its last. Ended movers are in a table of their own.

mod packed;

use super::connection::{signed, unsigned};
use super::{EntryId, NamespaceError};
use penstock_model::observation::{EntryChange, EntryChangeReason};
use penstock_model::{Bytes, NamespacePath, PoolName, Timestamp, UserName, VoName};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// In the `meta` table while a storage element is running: when it was started.
const RUNNING_SINCE: &str = "ledger_running_since";
/// There after a restore or a rebuild, until the next run begins: why all that came since is lost.
const LOST: &str = "ledger_lost";
/// Reads, refusals and ended movers wait for their batch, and changes do not: when something was written last, what is up to so
/// much older may not have been.
const RECORD_WAIT_MAX: Duration = Duration::from_secs(5);
/// Rows that are removed in one step at most.
const STEP_ROWS: u32 = 64;
/// Ended movers that are removed in one step at most.
const STEP_MOVERS: u32 = 500;
/// Rows of the database that are read at once at most.
const PAGE_ROWS: i64 = 64;

/// Who asked for something, as far as the request tells it. Nothing is known of work of the storage element itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestOrigin {
    pub user: Option<UserName>,
    /// On whose behalf.
    pub vo: Option<VoName>,
    /// The client's address.
    pub client: Option<String>,
    /// The copy that it is part of, as whoever asks names it (`X-Request-ID`).
    pub copy: Option<String>,
    /// The data challenge or activity that it is part of, as the request tells it.
    pub challenge: Option<String>,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementRecord {
    /// When. Of a gap: when it ended.
    pub at: Timestamp,
    pub origin: Arc<RequestOrigin>,
    pub event: ElementEvent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElementEvent {
    /// An entry of the namespace changed.
    Changed(ChangedEntry),
    /// A door refused a request.
    Refused(Refusal),
    /// Something may have happened that is not in the ledger.
    Gap(LedgerGap),
}

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedEntry {
    pub kind: EntryChange,
    pub entry: EntryId,
    /// Where it is, or was before it was renamed or removed; `None`: not known.
    pub path: Option<NamespacePath>,
    /// Where a renamed entry is now.
    pub new_path: Option<NamespacePath>,
    /// Bytes of a file, where they are known.
    pub size: Option<Bytes>,
    /// The pool of a file, where it is known.
    pub pool: Option<PoolName>,
    /// Why, where the request alone does not tell it.
    pub reason: Option<EntryChangeReason>,
}

/// A request that was not fulfilled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The method of HTTP.
    pub method: String,
    pub path: Option<NamespacePath>,
    /// The status of HTTP.
    pub status: u16,
    /// The problem's code, as clients are told it.
    pub code: String,
    /// One line for people.
    pub detail: String,
}

/// Until [`ElementRecord::at`] something may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerGap {
    /// The last moment of which all is known; `None`: nothing is known.
    pub from: Option<Timestamp>,
    pub cause: GapCause,
    /// Things that are known to be missing; `None`: not counted.
    pub lost: Option<u64>,
}

/// Why something is missing in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapCause {
    /// The storage element did not end by itself: its last reads, refusals and reports of movers were not written. Changes
    /// are complete.
    Crash,
    /// More happened at once than is written.
    Overload,
    /// The database did not take them.
    Unwritten,
    /// The namespace was restored from a backup: what came after it is not known.
    Restored,
    /// The namespace was made anew from the pools.
    Rebuilt,
    /// A row of the ledger cannot be read.
    Damaged,
}

impl GapCause {
    const ALL: [GapCause; 6] = [
        GapCause::Crash,
        GapCause::Overload,
        GapCause::Unwritten,
        GapCause::Restored,
        GapCause::Rebuilt,
        GapCause::Damaged,
    ];

    pub fn word(self) -> &'static str {
        match self {
            GapCause::Crash => "crash",
            GapCause::Overload => "overload",
            GapCause::Unwritten => "unwritten",
            GapCause::Restored => "restored",
            GapCause::Rebuilt => "rebuilt",
            GapCause::Damaged => "damaged",
        }
    }

    fn from_word(word: &str) -> Option<GapCause> {
        GapCause::ALL.into_iter().find(|cause| cause.word() == word)
    }
}

/// How much of the ledger, and of the record of movers, is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerBound {
    /// What happened before goes; `None`: age alone removes nothing.
    pub before: Option<Timestamp>,
    /// Things in the ledger. The oldest go beyond.
    pub records_max: u64,
}

/// Adds what one transaction holds, as one row.
pub(super) fn append(connection: &Connection, records: &[ElementRecord]) -> rusqlite::Result<()> {
    let Some(newest) = records.iter().map(|record| record.at).max() else {
        return Ok(());
    };
    let count = signed(records.len() as u64);
    connection
        .prepare_cached(
            "INSERT INTO ledger (sequence, at_ms, records, packed) SELECT ?1 + max(
                 coalesce((SELECT max(sequence) FROM ledger), 0),
                 coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'ledger_least'), 0)
             ), ?2, ?1, ?3",
        )?
        .execute(params![count, newest.0, packed::pack(records)])?;
    add_to_count(connection, count)
}

fn add_to_count(connection: &Connection, records: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE counter SET value = value + ?1 WHERE name = 'ledger_records' AND pool = ''",
        )?
        .execute([records])?;
    Ok(())
}

/// Begins a run. What is missing since the one before is told as a gap: all that came after a backup, or, when that run did
/// not end by itself, what it had not written yet.
pub(super) fn begin(connection: &Connection, at: Timestamp) -> rusqlite::Result<()> {
    let last = last_written(connection)?.map(|last| last - RECORD_WAIT_MAX);
    let lost = meta(connection, LOST)?.and_then(|word| GapCause::from_word(&word));
    let since = meta(connection, RUNNING_SINCE)?.and_then(|value| value.parse().ok());
    let gap = match (lost, since.map(Timestamp)) {
        (Some(cause), _) => Some((last, cause)),
        (None, Some(since)) => Some((last.max(Some(since)), GapCause::Crash)),
        (None, None) => None,
    };
    if let Some((from, cause)) = gap {
        // A clock that was set back makes no gap of less than no time.
        let from = from.map(|from| from.min(at));
        let lost = None;
        append(
            connection,
            &[ElementRecord {
                at,
                origin: Arc::default(),
                event: ElementEvent::Gap(LedgerGap { from, cause, lost }),
            }],
        )?;
    }
    connection.execute("DELETE FROM meta WHERE key = ?1", [LOST])?;
    super::schema::set_meta(connection, RUNNING_SINCE, &at.0.to_string())
}

/// Ends it: all was written.
pub(super) fn end(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM meta WHERE key = ?1", [RUNNING_SINCE])?;
    Ok(())
}

fn meta(connection: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT value FROM meta WHERE key = ?1";
    connection
        .query_row(sql, [key], |row| row.get(0))
        .optional()
}

/// When the last of what is written happened.
fn last_written(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let newest = [
        "SELECT at_ms FROM ledger ORDER BY sequence DESC LIMIT 1",
        "SELECT at_ms FROM mover_record ORDER BY sequence DESC LIMIT 1",
    ];
    let mut last = None;
    for sql in newest {
        let at = connection.query_row(sql, [], |row| row.get(0).map(Timestamp));
        last = last.max(at.optional()?);
    }
    Ok(last)
}

/// Removes some of what is out of bounds, oldest first, and of the ended movers what is too old. The newest row stays: numbers
/// go on from it. Gives how much is gone.
pub(super) fn prune(connection: &Connection, bound: &LedgerBound) -> rusqlite::Result<u64> {
    let mut oldest = connection.prepare_cached(
        "SELECT sequence, at_ms, records FROM ledger
         WHERE sequence < (SELECT max(sequence) FROM ledger) ORDER BY sequence LIMIT ?1",
    )?;
    let sql = "SELECT value FROM counter WHERE name = 'ledger_records' AND pool = ''";
    let kept: i64 = connection
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))?;
    let (mut gone, mut last) = (0, None);
    let mut rows = oldest.query([STEP_ROWS])?;
    while let Some(row) = rows.next()? {
        let is_old = bound
            .before
            .is_some_and(|before| row.get(1).is_ok_and(|at: i64| at < before.0));
        if !is_old && unsigned(kept - gone) <= bound.records_max {
            break;
        }
        gone += row.get::<_, i64>(2)?;
        last = Some(row.get::<_, i64>(0)?);
    }
    if let Some(last) = last {
        let mut delete = connection.prepare_cached("DELETE FROM ledger WHERE sequence <= ?1")?;
        delete.execute([last])?;
        add_to_count(connection, -gone)?;
    }
    let movers = match bound.before {
        Some(before) => prune_movers(connection, before)?,
        None => 0,
    };
    Ok(unsigned(gone) + movers)
}

fn prune_movers(connection: &Connection, before: Timestamp) -> rusqlite::Result<u64> {
    let mut oldest = connection
        .prepare_cached("SELECT sequence, at_ms FROM mover_record ORDER BY sequence LIMIT ?1")?;
    let mut rows = oldest.query([STEP_MOVERS])?;
    let (mut gone, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(1)? >= before.0 {
            break;
        }
        gone += 1;
        last = Some(row.get::<_, i64>(0)?);
    }
    if let Some(last) = last {
        let mut delete =
            connection.prepare_cached("DELETE FROM mover_record WHERE sequence <= ?1")?;
        delete.execute([last])?;
    }
    Ok(gone)
}

/// The number of the last thing in the ledger; 0 when there is none.
pub(super) fn last(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce(max(sequence), 0) FROM ledger";
    connection.query_row(sql, [], |row| row.get(0).map(unsigned))
}

/// The things after a number, oldest first, each with its own. Some rows of the database at once, each whole: the number of
/// the last thing is one from which to go on. Empty: there are no more.
pub(super) fn after(
    connection: &Connection,
    path: &Path,
    number: u64,
) -> Result<Vec<(u64, ElementRecord)>, NamespaceError> {
    let fail = |source| NamespaceError::Database {
        path: path.to_owned(),
        source,
    };
    let sql = "SELECT sequence, at_ms, records, packed FROM ledger WHERE sequence > ?1 ORDER BY sequence LIMIT ?2";
    let mut query = connection.prepare_cached(sql).map_err(fail)?;
    let rows = query.query_map([signed(number), PAGE_ROWS], PackedRow::of);
    let mut found = Vec::new();
    for row in rows.map_err(fail)? {
        let row = row.map_err(fail)?;
        let records = unpacked(&row, path)?;
        let first = row.last.saturating_sub(records.len() as u64);
        let numbered = (first + 1..).zip(records);
        found.extend(numbered.filter(|(own, _)| *own > number));
    }
    Ok(found)
}

/// What a row holds, oldest first; of one that cannot be read, that it is damaged.
pub(super) fn unpacked(row: &PackedRow, path: &Path) -> Result<Vec<ElementRecord>, NamespaceError> {
    match packed::unpack(&row.bytes) {
        Ok(records) => Ok(records),
        Err(why @ packed::InvalidRow::Version) => Err(NamespaceError::Corrupt {
            path: path.to_owned(),
            what: format!("row {} of the ledger: {why}", row.last),
        }),
        Err(_) => Ok(vec![row.damage()]),
    }
}

/// A row of the database.
pub(super) struct PackedRow {
    last: u64,
    at: Timestamp,
    count: u64,
    bytes: Vec<u8>,
}

impl PackedRow {
    /// Takes number, time, count and bytes.
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<PackedRow> {
        Ok(PackedRow {
            last: unsigned(row.get(0)?),
            at: Timestamp(row.get(1)?),
            count: unsigned(row.get(2)?),
            bytes: row.get(3)?,
        })
    }

    /// What is told of it when it cannot be read: one bad row holds up nothing that comes after it.
    fn damage(&self) -> ElementRecord {
        ElementRecord {
            at: self.at,
            origin: Arc::default(),
            event: ElementEvent::Gap(LedgerGap {
                from: Some(self.at),
                cause: GapCause::Damaged,
                lost: Some(self.count),
            }),
        }
    }
}
