//! What was decided about the number of transfers on links and at storage elements. The latest decisions of each place
//! are kept.

use super::reading::Reading;
use super::{at, json};
use crate::journal::tunings::{KEPT, ends};
use crate::journal::{JournalError, TuningFilter};
use penstock_model::TuningDecision;
use penstock_model::tuning::TUNING_VERSION;
use rusqlite::{Transaction, params};

pub(super) fn record(
    transaction: &Transaction<'_>,
    decision: &TuningDecision,
) -> rusqlite::Result<()> {
    let (source, destination) = ends(&decision.place);
    let sql = "INSERT INTO tuning (at_ms, source, destination, version, decision) VALUES (?1, ?2, ?3, ?4, ?5)";
    transaction.prepare_cached(sql)?.execute(params![
        decision.at.0,
        source,
        destination,
        TUNING_VERSION,
        json(decision)?
    ])?;
    let sql = "DELETE FROM tuning WHERE source = ?1 AND destination = ?2 AND sequence <= (
                   SELECT sequence FROM tuning WHERE source = ?1 AND destination = ?2
                   ORDER BY sequence DESC LIMIT 1 OFFSET ?3)";
    let mut remove = transaction.prepare_cached(sql)?;
    remove.execute(params![source, destination, KEPT])?;
    Ok(())
}

/// The last decision about each place.
pub(super) fn latest(reading: &Reading<'_>) -> Result<Vec<TuningDecision>, JournalError> {
    let sql = "SELECT decision FROM tuning WHERE sequence IN (
                   SELECT max(sequence) FROM tuning GROUP BY source, destination) ORDER BY sequence";
    read(reading, sql, params![])
}

/// Decisions as a question wants them, newest first.
pub(super) fn find(
    reading: &Reading<'_>,
    filter: &TuningFilter,
) -> Result<Vec<TuningDecision>, JournalError> {
    let source = filter.source.as_ref().map(|storage| storage.as_str());
    let destination = filter.destination.as_ref().map(|storage| storage.as_str());
    let sql = "SELECT decision FROM tuning WHERE (?1 IS NULL OR source = ?1)
               AND (?2 IS NULL OR destination = ?2) AND (?3 OR (source <> '' AND destination <> ''))
               ORDER BY sequence DESC LIMIT ?4";
    let wanted = params![source, destination, !filter.links_only, filter.limit as i64];
    read(reading, sql, wanted)
}

fn read(
    reading: &Reading<'_>,
    sql: &str,
    wanted: &[&dyn rusqlite::ToSql],
) -> Result<Vec<TuningDecision>, JournalError> {
    let failed = || at(reading.path);
    let statement = reading.connection.prepare_cached(sql);
    let mut statement = statement.map_err(failed())?;
    let mut rows = statement.query(wanted).map_err(failed())?;
    let mut decisions = Vec::new();
    while let Some(row) = rows.next().map_err(failed())? {
        decisions.push(reading.decode("tuning decision", &reading.get::<String>(row, 0)?)?);
    }
    Ok(decisions)
}
