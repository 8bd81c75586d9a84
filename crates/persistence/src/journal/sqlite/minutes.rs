//! What was counted in each minute, in SQLite: a row for each, packed.

use super::at;
use super::reading::RecordQueries;
use penstock_journal::JournalError;
use penstock_model::minute::MINUTE_VERSION;
use penstock_model::{MinuteSamples, Timestamp};
use rusqlite::{Transaction, params};

pub(super) fn insert(
    transaction: &Transaction<'_>,
    minute: &MinuteSamples,
) -> rusqlite::Result<()> {
    let sql =
        "INSERT INTO minute_sample (at_ms, until_ms, version, packed) VALUES (?1, ?2, ?3, ?4)";
    let mut insert = transaction.prepare_cached(sql)?;
    let (from, to) = (minute.from.0, minute.to.0);
    insert.execute(params![from, to, MINUTE_VERSION, minute.packed()])?;
    Ok(())
}

pub(super) fn between(
    reading: &RecordQueries<'_>,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<MinuteSamples>, JournalError> {
    let sql = "SELECT at_ms, until_ms, version, packed FROM minute_sample
               WHERE at_ms >= ?1 AND at_ms < ?2 ORDER BY at_ms, rowid";
    let connection = reading.connection;
    let mut select = connection.prepare_cached(sql).map_err(at(reading.path))?;
    let mut rows = select.query([from.0, to.0]).map_err(at(reading.path))?;
    let mut minutes = Vec::new();
    while let Some(row) = rows.next().map_err(at(reading.path))? {
        let (from, to) = (
            Timestamp(reading.get(row, 0)?),
            Timestamp(reading.get(row, 1)?),
        );
        let packed: Vec<u8> = reading.get(row, 3)?;
        let minute = MinuteSamples::unpack(from, to, reading.get(row, 2)?, &packed);
        let minute = minute.map_err(|why| reading.corrupt("minute", why.to_string()))?;
        minutes.push(minute);
    }
    Ok(minutes)
}
