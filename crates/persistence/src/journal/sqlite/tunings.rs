//! What was decided about the number of transfers on links and at storage elements. The latest decisions of each place
//! are kept.

use super::reading::RecordQueries;
use super::{at, json};
use crate::journal::rows::unless_unreadable;
use crate::journal::tunings::{KEPT, PLACES_MAX, ends};
use penstock_journal::{JournalError, TuningFilter};
use penstock_model::TuningDecision;
use penstock_model::tuning::TUNING_VERSION;
use rusqlite::{Transaction, params};

/// In errors.
const WHAT: &str = "tuning decision";

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

/// The last decision about each of the latest places, as far as it can be read.
pub(super) fn latest(reading: &RecordQueries<'_>) -> Result<Vec<TuningDecision>, JournalError> {
    let sql = "SELECT sequence, decision FROM tuning WHERE sequence IN (
                   SELECT max(sequence) AS last FROM tuning GROUP BY source, destination
                   ORDER BY last DESC LIMIT ?1) ORDER BY sequence";
    let failed = || at(reading.path);
    let mut statement = reading.connection.prepare_cached(sql).map_err(failed())?;
    let mut rows = statement.query([PLACES_MAX]).map_err(failed())?;
    let mut decisions = Vec::new();
    while let Some(row) = rows.next().map_err(failed())? {
        let sequence: i64 = reading.get(row, 0)?;
        let text = reading.text(row, 1);
        let read = text.and_then(|text| reading.decode(WHAT, text));
        decisions.extend(unless_unreadable("tuning", &sequence, read)?);
    }
    Ok(decisions)
}

/// Decisions as a question wants them, newest first.
pub(super) fn find(
    reading: &RecordQueries<'_>,
    filter: &TuningFilter,
) -> Result<Vec<TuningDecision>, JournalError> {
    let source = filter.source.as_ref().map(|storage| storage.as_str());
    let destination = filter.destination.as_ref().map(|storage| storage.as_str());
    let sql = "SELECT decision FROM tuning WHERE (?1 IS NULL OR source = ?1)
               AND (?2 IS NULL OR destination = ?2) AND (?3 OR (source <> '' AND destination <> ''))
               ORDER BY sequence DESC LIMIT ?4";
    let wanted = params![source, destination, !filter.links_only, filter.limit as i64];
    let failed = || at(reading.path);
    let mut statement = reading.connection.prepare_cached(sql).map_err(failed())?;
    let mut rows = statement.query(wanted).map_err(failed())?;
    let mut decisions = Vec::new();
    while let Some(row) = rows.next().map_err(failed())? {
        decisions.push(reading.decode(WHAT, reading.text(row, 0)?)?);
    }
    Ok(decisions)
}
