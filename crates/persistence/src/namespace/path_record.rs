//! What a namespace tells of one path: what stands there, and what its ledger and its ended movers hold of it.

use super::connection::unsigned;
use super::ledger::{self, ElementEvent, ElementRecord};
use super::{Entry, LedgerReader, MoverRecord, NamespaceError, read, record};
use penstock_model::{Checksum, NamespacePath, TimeWindow, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

/// One path in a window of time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PathRecord {
    /// What stands there now.
    pub entry: Option<Entry>,
    /// Of a file.
    pub checksums: Vec<Checksum>,
    /// Changes and refusals, the latest first.
    pub events: Vec<ElementRecord>,
    /// Earlier ones of the window, for which there was no room.
    pub events_left_out: u64,
    /// Ended movers, the latest first.
    pub movers: Vec<MoverRecord>,
    /// Earlier ones of the window, for which there was no room.
    pub movers_left_out: u64,
    /// The oldest thing that the ledger holds.
    pub oldest: Option<Timestamp>,
}

impl LedgerReader {
    /// What is known of a path: at most `limit` events and as many movers. Reads the ledger of the window.
    pub fn path_record(
        &self,
        path: &NamespacePath,
        window: TimeWindow,
        limit: usize,
    ) -> Result<PathRecord, NamespaceError> {
        let mut found = self.query(|connection| state_of(connection, path))?;
        self.query(|connection| add_movers(connection, path, window, limit, &mut found))?;
        self.query(|connection| {
            each_ledger_row(connection, path, window.from, |row| {
                for record in ledger::unpacked(row, self.path())?.into_iter().rev() {
                    if window.has(record.at) && is_of(&record, path) {
                        found.take(record, limit);
                    }
                }
                Ok(())
            })
        })??;
        Ok(found)
    }
}

impl PathRecord {
    fn take(&mut self, record: ElementRecord, limit: usize) {
        match self.events.len() < limit {
            true => self.events.push(record),
            false => self.events_left_out += 1,
        }
    }
}

fn state_of(connection: &Connection, path: &NamespacePath) -> rusqlite::Result<PathRecord> {
    let entry = read::find(connection, path)?;
    let checksums = match &entry {
        Some(entry) => read::checksums_of(connection, entry.id)?,
        None => Vec::new(),
    };
    let oldest = "SELECT at_ms FROM ledger ORDER BY sequence LIMIT 1";
    let oldest = connection.query_row(oldest, [], |row| row.get(0).map(Timestamp));
    Ok(PathRecord {
        entry,
        checksums,
        oldest: oldest.optional()?,
        ..PathRecord::default()
    })
}

/// The number of the last row of a table before a time: what comes after it is looked at. Rows are in the order of time.
fn last_before(connection: &Connection, table: &str, at: Timestamp) -> rusqlite::Result<i64> {
    let sql =
        format!("SELECT sequence FROM {table} WHERE at_ms < ?1 ORDER BY sequence DESC LIMIT 1");
    let last = connection.query_row(&sql, [at.0], |row| row.get(0));
    Ok(last.optional()?.unwrap_or(0))
}

fn add_movers(
    connection: &Connection,
    path: &NamespacePath,
    window: TimeWindow,
    limit: usize,
    found: &mut PathRecord,
) -> rusqlite::Result<()> {
    let first = last_before(connection, "mover_record", window.from)?;
    let wanted = "FROM mover_record WHERE sequence > ?1 AND path = ?2 AND at_ms < ?3";
    let sql = format!(
        "SELECT {} {wanted} ORDER BY sequence DESC LIMIT ?4",
        record::COLUMNS
    );
    let text = path.to_string();
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut query = connection.prepare_cached(&sql)?;
    let rows = query.query_map(params![first, text, window.to.0, most], record::of_row)?;
    for row in rows {
        found.movers.push(row?.1);
    }
    if found.movers.len() == limit {
        let sql = format!("SELECT count(*) {wanted}");
        let all = connection.query_row(&sql, params![first, text, window.to.0], |row| row.get(0));
        found.movers_left_out = unsigned(all?).saturating_sub(limit as u64);
    }
    Ok(())
}

/// Hands each row of the ledger to `take`, in which the last name of a path stands, the latest first. Names stand in them as
/// they are.
fn each_ledger_row(
    connection: &Connection,
    path: &NamespacePath,
    from: Timestamp,
    mut take: impl FnMut(&ledger::PackedRow) -> Result<(), NamespaceError>,
) -> rusqlite::Result<Result<(), NamespaceError>> {
    // A row is as old as the latest thing that it holds.
    let first = last_before(connection, "ledger", from)?;
    let sql = "SELECT sequence, at_ms, records, packed FROM ledger WHERE sequence > ?1 AND instr(packed, ?2) > 0 \
               ORDER BY sequence DESC";
    let name = path.name().unwrap_or_default().as_bytes();
    let mut query = connection.prepare_cached(sql)?;
    for row in query.query_map(params![first, name], ledger::PackedRow::of)? {
        if let Err(why) = take(&row?) {
            return Ok(Err(why));
        }
    }
    Ok(Ok(()))
}

fn is_of(record: &ElementRecord, path: &NamespacePath) -> bool {
    match &record.event {
        ElementEvent::Changed(changed) => {
            changed.path.as_ref() == Some(path) || changed.new_path.as_ref() == Some(path)
        }
        ElementEvent::Refused(refusal) => refusal.path.as_ref() == Some(path),
        ElementEvent::Gap(_) => false,
    }
}
