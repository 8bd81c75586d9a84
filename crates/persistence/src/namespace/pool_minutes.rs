//! What the pools did in each minute: one row for all of them, some hundred bytes for each pool.
//!
//! A row is JSON of arrays, one for each pool: a later version adds at their ends, and reads those of before. Behind them is an
//! object with the array of the tape part, if there is one.

use super::connection::{signed, unsigned};
use super::ledger::LedgerBound;
use penstock_model::observation::Operation;
use penstock_model::{
    PoolName, PoolSample, PoolSamples, PoolTraffic, TapeSample, Timestamp, VoName,
};
use rusqlite::{Connection, Row, params};
use serde_json::{Value, json};

/// Minutes that are kept at most: some 400 days.
const MINUTES_MAX: i64 = 576_000;
/// Minutes that are removed in one step at most.
const STEP_MINUTES: u32 = 500;

pub(super) fn insert(connection: &Connection, minute: &PoolSamples) -> rusqlite::Result<()> {
    let sql = "INSERT INTO pool_minute (from_ms, to_ms, pools) VALUES (?1, ?2, ?3)";
    let tape = minute.tape.iter().map(packed_tape);
    let pools: Vec<Value> = minute.pools.iter().map(packed).chain(tape).collect();
    let text = Value::from(pools).to_string();
    let mut insert = connection.prepare_cached(sql)?;
    insert.execute(params![minute.from.0, minute.to.0, text])?;
    Ok(())
}

/// Removes some of the minutes that are too old or too many. Gives how many.
pub(super) fn prune(connection: &Connection, bound: &LedgerBound) -> rusqlite::Result<u64> {
    let sql = "DELETE FROM pool_minute WHERE sequence IN (SELECT sequence FROM pool_minute
               WHERE to_ms < ?1 OR sequence <= (SELECT max(sequence) FROM pool_minute) - ?2
               ORDER BY sequence LIMIT ?3)";
    let before = bound.before.map_or(i64::MIN, |before| before.0);
    let mut delete = connection.prepare_cached(sql)?;
    let gone = delete.execute(params![before, MINUTES_MAX, STEP_MINUTES])?;
    Ok(gone as u64)
}

/// The number of the last minute that was ever recorded; 0 when there was none.
pub(super) fn last(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'pool_minute'";
    connection.query_row(sql, [], |row| row.get(0).map(unsigned))
}

/// At most `limit` minutes with numbers above this one, oldest first, each with its own.
pub(super) fn after(
    connection: &Connection,
    number: u64,
    limit: usize,
) -> rusqlite::Result<Vec<(u64, PoolSamples)>> {
    let sql = "SELECT sequence, from_ms, to_ms, pools FROM pool_minute WHERE sequence > ?1 ORDER BY sequence LIMIT ?2";
    let mut query = connection.prepare_cached(sql)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    query
        .query_map(params![signed(number), limit], numbered)?
        .collect()
}

/// Minutes that begin in `from <= begin < to`, oldest first.
pub(super) fn between(
    connection: &Connection,
    from: Timestamp,
    to: Timestamp,
) -> rusqlite::Result<Vec<PoolSamples>> {
    let sql = "SELECT sequence, from_ms, to_ms, pools FROM pool_minute WHERE from_ms >= ?1 AND from_ms < ?2 ORDER BY from_ms";
    let mut query = connection.prepare_cached(sql)?;
    let minutes = query.query_map(params![from.0, to.0], |row| Ok(numbered(row)?.1))?;
    minutes.collect()
}

fn numbered(row: &Row<'_>) -> rusqlite::Result<(u64, PoolSamples)> {
    let text: String = row.get(3)?;
    // A row that is damaged tells nothing of its minute.
    let pools: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
    let samples = PoolSamples {
        from: Timestamp(row.get(1)?),
        to: Timestamp(row.get(2)?),
        tape: pools.last().and_then(unpacked_tape),
        pools: pools.iter().filter_map(unpacked).collect(),
    };
    Ok((unsigned(row.get(0)?), samples))
}

fn packed(pool: &PoolSample) -> Value {
    let traffic = pool.traffic.iter().map(|one| {
        json!([
            one.operation.word(),
            one.vo.as_ref().map(VoName::as_str),
            one.bytes_in,
            one.bytes_out,
            one.failed_bytes,
            one.ended,
            one.failed,
            one.left,
        ])
    });
    json!([
        pool.pool.as_str(),
        pool.looks,
        pool.reachable,
        pool.accepting,
        pool.drained,
        pool.free_bytes,
        pool.active,
        pool.queued,
        pool.limit,
        traffic.collect::<Vec<Value>>(),
        pool.started,
        pool.read_wait_us,
    ])
}

fn unpacked(value: &Value) -> Option<PoolSample> {
    let number = |place: usize| value.get(place)?.as_u64();
    let traffic = |one: &Value| {
        let number = |place: usize| one.get(place)?.as_u64();
        let vo = one.get(1)?.as_str().map(VoName::new);
        Some(PoolTraffic {
            bytes_in: number(2)?,
            bytes_out: number(3)?,
            failed_bytes: number(4)?,
            ended: number(5)?,
            failed: number(6)?,
            left: number(7)?,
            ..PoolTraffic::new(vo, Operation::from_word(one.get(0)?.as_str()?)?)
        })
    };
    Some(PoolSample {
        pool: PoolName::new(value.get(0)?.as_str()?),
        looks: number(1)?,
        reachable: number(2)?,
        accepting: number(3)?,
        drained: number(4)?,
        free_bytes: number(5)?,
        active: number(6)?,
        queued: number(7)?,
        limit: number(8)?,
        started: number(10),
        read_wait_us: number(11),
        traffic: value
            .get(9)?
            .as_array()?
            .iter()
            .filter_map(traffic)
            .collect(),
    })
}

const TAPE: &str = "tape";

fn packed_tape(tape: &TapeSample) -> Value {
    json!({ TAPE: [
        tape.looks,
        tape.written_files,
        tape.written_bytes,
        tape.unwritten_bytes,
        tape.recalled_files,
        tape.recalled_bytes,
        tape.read_bytes,
        tape.mounts,
        tape.recalls_queued,
        tape.recall_age_seconds,
        tape.recalls_started,
        tape.recall_wait_ms,
        tape.drives_busy,
        tape.drives_max,
        tape.buffer_used_permille,
        tape.write_cycle_seconds,
    ]})
}

fn unpacked_tape(value: &Value) -> Option<TapeSample> {
    let all = value.get(TAPE)?;
    let number = |place: usize| all.get(place)?.as_u64();
    Some(TapeSample {
        looks: number(0)?,
        written_files: number(1)?,
        written_bytes: number(2)?,
        unwritten_bytes: number(3)?,
        recalled_files: number(4)?,
        recalled_bytes: number(5)?,
        read_bytes: number(6),
        mounts: number(7),
        recalls_queued: number(8)?,
        recall_age_seconds: number(9)?,
        recalls_started: number(10)?,
        recall_wait_ms: number(11)?,
        drives_busy: number(12)?,
        drives_max: number(13)?,
        buffer_used_permille: number(14),
        write_cycle_seconds: number(15),
    })
}
