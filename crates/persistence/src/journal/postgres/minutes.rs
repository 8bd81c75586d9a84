//! What was counted in each minute, in PostgreSQL: a row for each, packed.

use super::batch::Minutes;
use crate::postgres::DatabaseError;
use crate::postgres::session::OpenTransaction;
use penstock_journal::JournalError;
use penstock_model::minute::MINUTE_VERSION;
use penstock_model::{MinuteSamples, Timestamp};

pub(super) fn insert(
    open: &mut OpenTransaction<'_>,
    minutes: &Minutes,
) -> Result<(), DatabaseError> {
    if minutes.at.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO minute_sample (at_ms, until_ms, packed, version)
               SELECT *, $4 FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])";
    let version = MINUTE_VERSION as i32;
    open.execute(
        sql,
        &[&minutes.at, &minutes.until, &minutes.packed, &version],
    )?;
    Ok(())
}

pub(super) fn between(
    open: &mut OpenTransaction<'_>,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<MinuteSamples>, JournalError> {
    let sql = "SELECT at_ms, until_ms, version, packed FROM minute_sample
               WHERE at_ms >= $1 AND at_ms < $2 ORDER BY at_ms, sequence";
    let rows = open.query(sql, &[&from.0, &to.0])?;
    let read = |row: &::postgres::Row| {
        let (from, to) = (Timestamp(row.get(0)), Timestamp(row.get(1)));
        let version = row.get::<_, i32>(2) as u32;
        let minute = MinuteSamples::unpack(from, to, version, row.get(3));
        minute.map_err(|why| JournalError::Corrupt {
            path: open.database().to_string(),
            what: "minute",
            detail: why.to_string(),
        })
    };
    rows.iter().map(read).collect()
}
