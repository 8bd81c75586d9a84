//! The parts of the ledger and of the samples: made by the writer in the transaction that needs them, dropped whole when
//! nobody wants their history any more.

use crate::postgres::DatabaseError;
use crate::postgres::session::OpenTransaction;
use std::collections::BTreeSet;

/// Entries in one part of the ledger: about 3 GB.
pub(crate) const LEDGER_ENTRIES: i64 = 10_000_000;
/// A part of the samples holds those of so many milliseconds: a day.
pub(crate) const SAMPLES_MS: i64 = 86_400_000;
/// Parts that are remembered before all is forgotten: a wrong clock may lead anywhere.
const KNOWN_MAX: usize = 1000;

/// Which parts are known to be there. To be forgotten when a transaction fails that may have made one.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    ledger: BTreeSet<i64>,
    samples: BTreeSet<i64>,
}

impl Partitions {
    /// Makes the parts that hold the sequence numbers from `first` to `last`.
    pub(crate) fn of_ledger(
        &mut self,
        open: &mut OpenTransaction<'_>,
        first: i64,
        last: i64,
    ) -> Result<(), DatabaseError> {
        let numbers = first / LEDGER_ENTRIES..=last / LEDGER_ENTRIES;
        for number in numbers {
            if is_new(&mut self.ledger, number) {
                make(open, "ledger", number, LEDGER_ENTRIES)?;
            }
        }
        Ok(())
    }

    /// Makes the parts that hold these times.
    pub(crate) fn of_samples(
        &mut self,
        open: &mut OpenTransaction<'_>,
        times: &[i64],
    ) -> Result<(), DatabaseError> {
        let days: BTreeSet<i64> = times.iter().map(|at| at.div_euclid(SAMPLES_MS)).collect();
        for day in days {
            if is_new(&mut self.samples, day) {
                make(open, "link_sample", day, SAMPLES_MS)?;
            }
        }
        Ok(())
    }
}

/// A part of a table that is there.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) name: String,
    /// The first key that is no longer in it.
    pub(super) end: i64,
}

/// The parts of a table, in the order of their keys.
pub(super) fn parts(
    open: &mut OpenTransaction<'_>,
    table: &str,
) -> Result<Vec<Partition>, DatabaseError> {
    let sql = "SELECT child.relname FROM pg_inherits JOIN pg_class AS child ON child.oid = inhrelid
               WHERE inhparent = to_regclass($1)";
    let rows = open.query(sql, &[&table])?;
    let width = match table {
        "ledger" => LEDGER_ENTRIES,
        _ => SAMPLES_MS,
    };
    let read = |name: &str| {
        let number = name.strip_prefix(table)?.strip_prefix("_p")?;
        let number: i64 = match number.strip_prefix('m') {
            Some(number) => -number.parse::<i64>().ok()?,
            None => number.parse().ok()?,
        };
        Some(Partition {
            name: name.to_owned(),
            end: number.saturating_add(1).saturating_mul(width),
        })
    };
    // What somebody else has attached is not ours to drop.
    let mut parts: Vec<Partition> = rows.iter().filter_map(|row| read(row.get(0))).collect();
    parts.sort_by_key(|part| part.end);
    Ok(parts)
}

/// Others wait for so long at most, when the table is in use.
const IMPATIENT: &str = "SET LOCAL lock_timeout = '100ms'";

/// Drops a part with all that is in it.
pub(super) fn drop_part(
    open: &mut OpenTransaction<'_>,
    table: &str,
    part: &Partition,
) -> Result<(), DatabaseError> {
    let name = &part.name;
    open.execute_all(&format!(
        "{IMPATIENT}; ALTER TABLE {table} DETACH PARTITION {name}; DROP TABLE {name}"
    ))
}

/// Makes the parts that will be needed soon, so that no batch of the writer waits until they can be made.
pub(super) fn make_ahead(
    open: &mut OpenTransaction<'_>,
    last_sequence: i64,
) -> Result<(), DatabaseError> {
    open.execute_all(IMPATIENT)?;
    let number = (last_sequence + LEDGER_ENTRIES / 2) / LEDGER_ENTRIES;
    make(open, "ledger", number, LEDGER_ENTRIES)?;
    let day = "SELECT (extract(epoch FROM now()) * 1000)::bigint";
    let now: i64 = open.query_opt(day, &[])?.map_or(0, |row| row.get(0));
    for ahead in [0, 1] {
        make(
            open,
            "link_sample",
            now.div_euclid(SAMPLES_MS) + ahead,
            SAMPLES_MS,
        )?;
    }
    Ok(())
}

fn is_new(known: &mut BTreeSet<i64>, number: i64) -> bool {
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(number)
}

/// `TABLE_pNUMBER` holds the keys from `number * width` on, `width` of them.
fn make(
    open: &mut OpenTransaction<'_>,
    table: &str,
    number: i64,
    width: i64,
) -> Result<(), DatabaseError> {
    let name = match number < 0 {
        true => format!("{table}_pm{}", number.unsigned_abs()),
        false => format!("{table}_p{number}"),
    };
    let (from, to) = (
        number.saturating_mul(width),
        number.saturating_add(1).saturating_mul(width),
    );
    open.execute_all(&format!(
        "CREATE TABLE IF NOT EXISTS {name} PARTITION OF {table} FOR VALUES FROM ({from}) TO ({to})"
    ))
}
