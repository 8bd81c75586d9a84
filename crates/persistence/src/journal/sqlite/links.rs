//! What became of links: when they were halted, tried and opened again.

use super::reading::RecordQueries;
use super::{at, json};
use penstock_journal::JournalError;
use penstock_model::ledger::LINK_EVENT_VERSION;
use penstock_model::{LinkChange, LinkId, Timestamp};
use rusqlite::{Transaction, params};

pub(super) fn record(transaction: &Transaction<'_>, change: &LinkChange) -> rusqlite::Result<()> {
    let sql = "INSERT INTO link_event (at_ms, source, destination, version, event) VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = transaction.prepare_cached(sql)?;
    insert.execute(params![
        change.at.0,
        change.link.source.as_str(),
        change.link.destination.as_str(),
        LINK_EVENT_VERSION,
        json(&change.event)?
    ])?;
    Ok(())
}

/// What became of a link in `from <= at <= to`, oldest first; of more than `limit`, the latest.
pub(super) fn changes(
    reading: &RecordQueries<'_>,
    link: &LinkId,
    from: Timestamp,
    to: Timestamp,
    limit: usize,
) -> Result<Vec<LinkChange>, JournalError> {
    let sql = "SELECT at_ms, event FROM link_event WHERE source = ?1 AND destination = ?2
               AND at_ms >= ?3 AND at_ms <= ?4 ORDER BY sequence DESC LIMIT ?5";
    let failed = || at(reading.path);
    let statement = reading.connection.prepare_cached(sql);
    let mut statement = statement.map_err(failed())?;
    let (source, destination) = (link.source.as_str(), link.destination.as_str());
    let wanted = params![source, destination, from.0, to.0, limit as i64];
    let mut rows = statement.query(wanted).map_err(failed())?;
    let mut changes = Vec::new();
    while let Some(row) = rows.next().map_err(failed())? {
        changes.push(LinkChange {
            at: Timestamp(reading.get(row, 0)?),
            link: link.clone(),
            event: reading.decode("link event", &reading.get::<String>(row, 1)?)?,
        });
    }
    changes.reverse();
    Ok(changes)
}
