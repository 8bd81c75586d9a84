//! What was decided about the number of transfers on links and at storage elements.

use super::reading::decode;
use crate::journal::rows::unless_unreadable;
use crate::journal::tunings::{KEPT, PLACES_MAX, ends};
use crate::postgres::session::{OpenTransaction, Parameter};
use crate::postgres::{DatabaseError, text};
use penstock_journal::{JournalError, TuningFilter};
use penstock_model::TuningDecision;
use penstock_model::tuning::TUNING_VERSION;

/// In errors.
const WHAT: &str = "tuning decision";

pub(super) fn record(
    open: &mut OpenTransaction<'_>,
    decision: &TuningDecision,
    json: &str,
) -> Result<(), DatabaseError> {
    let (source, destination) = ends(&decision.place);
    let (source, destination) = (text(source), text(destination));
    open.execute(
        "INSERT INTO tuning (at_ms, source, destination, version, decision) VALUES ($1, $2, $3, $4, $5)",
        &[
            &decision.at.0,
            &source,
            &destination,
            &(TUNING_VERSION as i32),
            &json,
        ],
    )?;
    open.execute(
        "DELETE FROM tuning WHERE source = $1 AND destination = $2 AND sequence <= (
             SELECT sequence FROM tuning WHERE source = $1 AND destination = $2
             ORDER BY sequence DESC LIMIT 1 OFFSET $3)",
        &[&source, &destination, &i64::from(KEPT)],
    )?;
    Ok(())
}

/// The last decision about each of the latest places, as far as it can be read.
pub(super) fn latest(open: &mut OpenTransaction<'_>) -> Result<Vec<TuningDecision>, JournalError> {
    let sql = "SELECT sequence, decision FROM tuning WHERE sequence IN (
                   SELECT max(sequence) AS last FROM tuning GROUP BY source, destination
                   ORDER BY last DESC LIMIT $1) ORDER BY sequence";
    let mut decisions = Vec::new();
    for row in open.query(sql, &[&i64::from(PLACES_MAX)])? {
        let sequence: i64 = row.get(0);
        let read = decode(open.database(), WHAT, row.get(1));
        decisions.extend(unless_unreadable("tuning", &sequence, read)?);
    }
    Ok(decisions)
}

/// Decisions as a question wants them, newest first.
pub(super) fn find(
    open: &mut OpenTransaction<'_>,
    filter: &TuningFilter,
) -> Result<Vec<TuningDecision>, JournalError> {
    let source = filter.source.as_ref().map(|storage| text(storage.as_str()));
    let destination = filter.destination.as_ref();
    let destination = destination.map(|storage| text(storage.as_str()));
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
    let sql = "SELECT decision FROM tuning WHERE ($1::text IS NULL OR source = $1)
               AND ($2::text IS NULL OR destination = $2) AND ($3 OR (source <> '' AND destination <> ''))
               ORDER BY sequence DESC LIMIT $4";
    let wanted: [Parameter<'_>; 4] = [&source, &destination, &!filter.links_only, &limit];
    let rows = open.query(sql, &wanted)?;
    let decoded = rows
        .iter()
        .map(|row| decode(open.database(), WHAT, row.get(0)));
    decoded.collect()
}
