//! What was counted in each minute, in SQLite: a row for each, packed.

use super::at;
use super::reading::RecordQueries;
use penstock_journal::JournalError;
use penstock_model::minute::MINUTE_VERSION;
use penstock_model::{MinuteSamples, Timestamp};
use rusqlite::{Row, Transaction, params};

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

/// How far minutes were taken: the number of the last row, and the end of the latest minute. A clock that was ahead makes
/// minutes that come later end earlier, and after a restore numbers are given again: what is behind either was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TakenMinutes {
    pub number: u64,
    /// Its end.
    pub until: Timestamp,
}

/// The number of the last row; 0 when there is none.
pub(super) fn last(reading: &RecordQueries<'_>) -> Result<u64, JournalError> {
    let sql = "SELECT coalesce(max(rowid), 0) FROM minute_sample";
    let connection = reading.connection;
    let last = connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    last.map(i64::unsigned_abs).map_err(at(reading.path))
}

/// At most `limit` of those that were not taken, of the rows with numbers above `above`, each with its own.
pub(super) fn not_taken(
    reading: &RecordQueries<'_>,
    taken: TakenMinutes,
    above: u64,
    limit: usize,
) -> Result<Vec<(u64, MinuteSamples)>, JournalError> {
    let sql = "SELECT at_ms, until_ms, version, packed, rowid FROM minute_sample
               WHERE rowid > ?1 AND (rowid > ?2 OR until_ms > ?3) ORDER BY rowid LIMIT ?4";
    let connection = reading.connection;
    let mut select = connection.prepare_cached(sql).map_err(at(reading.path))?;
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let bounds = params![signed(above), signed(taken.number), taken.until.0, limit];
    let mut rows = select.query(bounds).map_err(at(reading.path))?;
    let mut minutes = Vec::new();
    while let Some(row) = rows.next().map_err(at(reading.path))? {
        let number: i64 = reading.get(row, 4)?;
        minutes.push((number.unsigned_abs(), minute_of(reading, row)?));
    }
    Ok(minutes)
}

fn minute_of(reading: &RecordQueries<'_>, row: &Row<'_>) -> Result<MinuteSamples, JournalError> {
    let (from, to) = (
        Timestamp(reading.get(row, 0)?),
        Timestamp(reading.get(row, 1)?),
    );
    let packed: Vec<u8> = reading.get(row, 3)?;
    let minute = MinuteSamples::unpack(from, to, reading.get(row, 2)?, &packed);
    minute.map_err(|why| reading.corrupt("minute", why.to_string()))
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
        minutes.push(minute_of(reading, row)?);
    }
    Ok(minutes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{SqliteJournal, SqliteReader};
    use crate::sealing::SealingKeys;
    use penstock_journal::Journal;
    use penstock_model::Record;

    const HOUR: i64 = 3_600_000;

    fn counted(journal: &mut SqliteJournal, begins: &[i64]) {
        let minutes = begins.iter().map(|from| {
            Record::MinuteSampled(Box::new(MinuteSamples {
                from: Timestamp(*from),
                to: Timestamp(from + 60_000),
                rows: Vec::new(),
            }))
        });
        let minutes: Vec<Record> = minutes.collect();
        journal.append(&minutes).expect("stored");
    }

    /// Takes what was not taken, one row at a time; tells the begins.
    fn take(reader: &SqliteReader, taken: &mut TakenMinutes) -> Vec<i64> {
        let (mut begins, mut above) = (Vec::new(), 0);
        let mut until = taken.until;
        loop {
            let found = reader.minutes_not_taken(*taken, above, 1);
            let found = found.expect("readable");
            let [(number, minute)] = found.as_slice() else {
                break;
            };
            above = *number;
            until = until.max(minute.to);
            begins.push(minute.from.0);
        }
        let number = reader.last_minute().expect("readable");
        *taken = TakenMinutes { number, until };
        begins
    }

    #[test]
    fn each_minute_is_taken_once_after_a_clock_was_ahead_and_after_a_restore() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("transfer.sqlite");
        let keys = SealingKeys::of_this_process().expect("OpenSSL works");
        let mut journal = SqliteJournal::open(&path, keys).expect("opens");
        let reader = SqliteReader::open(&path, 1).expect("opens");
        let mut taken = TakenMinutes::default();
        counted(&mut journal, &[11 * HOUR, 13 * HOUR]);
        assert_eq!(take(&reader, &mut taken), [11 * HOUR, 13 * HOUR]);
        // An hour is taken back.
        counted(&mut journal, &[12 * HOUR]);
        assert_eq!(take(&reader, &mut taken), [12 * HOUR]);
        assert_eq!(take(&reader, &mut taken), [0_i64; 0]);
        // As an earlier version noted it: by the end alone.
        let mut old = TakenMinutes {
            number: 13 * HOUR as u64 + 60_000,
            until: Timestamp(13 * HOUR + 60_000),
        };
        counted(&mut journal, &[14 * HOUR]);
        assert_eq!(take(&reader, &mut old), [14 * HOUR]);
        // A backup has fewer rows, and those that come after it have numbers that others had.
        let cut = "DELETE FROM minute_sample WHERE rowid > 2";
        let restored = rusqlite::Connection::open(&path).expect("opens");
        restored.execute(cut, []).expect("removed");
        taken = old;
        counted(&mut journal, &[15 * HOUR, 16 * HOUR]);
        assert_eq!(take(&reader, &mut taken), [15 * HOUR, 16 * HOUR]);
    }
}
