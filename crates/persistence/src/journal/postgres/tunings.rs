//! What was decided about the number of transfers on links and at storage elements.

use super::reading::decode;
use crate::journal::tunings::{KEPT, ends};
use crate::journal::{JournalError, TuningFilter};
use crate::postgres::session::Open;
use crate::postgres::{DatabaseError, text};
use ::postgres::types::ToSql;
use penstock_model::TuningDecision;
use penstock_model::tuning::TUNING_VERSION;

pub(super) fn record(
    open: &mut Open<'_>,
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

/// The last decision about each place.
pub(super) fn latest(open: &mut Open<'_>) -> Result<Vec<TuningDecision>, JournalError> {
    let sql = "SELECT decision FROM tuning WHERE sequence IN (
                   SELECT max(sequence) FROM tuning GROUP BY source, destination) ORDER BY sequence";
    read(open, sql, &[])
}

/// Decisions as a question wants them, newest first.
pub(super) fn find(
    open: &mut Open<'_>,
    filter: &TuningFilter,
) -> Result<Vec<TuningDecision>, JournalError> {
    let source = filter.source.as_ref().map(|storage| text(storage.as_str()));
    let destination = filter.destination.as_ref();
    let destination = destination.map(|storage| text(storage.as_str()));
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
    let sql = "SELECT decision FROM tuning WHERE ($1::text IS NULL OR source = $1)
               AND ($2::text IS NULL OR destination = $2) AND ($3 OR (source <> '' AND destination <> ''))
               ORDER BY sequence DESC LIMIT $4";
    read(
        open,
        sql,
        &[&source, &destination, &!filter.links_only, &limit],
    )
}

fn read(
    open: &mut Open<'_>,
    sql: &str,
    wanted: &[&(dyn ToSql + Sync)],
) -> Result<Vec<TuningDecision>, JournalError> {
    let rows = open.query(sql, wanted)?;
    let decoded = rows
        .iter()
        .map(|row| decode(open.database(), "tuning decision", row.get(0)));
    decoded.collect()
}
