//! The parts of the ledger and of the samples: made by the writer in the transaction that needs them, dropped whole when
//! nobody wants their history any more.

use crate::postgres::DatabaseError;
use crate::postgres::session::Open;
use std::collections::BTreeSet;

/// Entries in one part of the ledger: about 3 GB.
const LEDGER_ENTRIES: i64 = 10_000_000;
/// A part of the samples holds those of so many milliseconds: a day.
const SAMPLES_MS: i64 = 86_400_000;
/// Parts that are remembered before all is forgotten: a wrong clock may lead anywhere.
const KNOWN_MAX: usize = 1000;

/// Which parts are known to be there. To be forgotten when a transaction fails that may have made one.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    ledger: BTreeSet<i64>,
    samples: BTreeSet<i64>,
}

impl Partitions {
    /// Makes the parts that hold the sequence numbers from `first` to `last`.
    pub(super) fn of_ledger(
        &mut self,
        open: &mut Open<'_>,
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
    pub(super) fn of_samples(
        &mut self,
        open: &mut Open<'_>,
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

fn is_new(known: &mut BTreeSet<i64>, number: i64) -> bool {
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(number)
}

/// `TABLE_pNUMBER` holds the keys from `number * width` on, `width` of them.
fn make(open: &mut Open<'_>, table: &str, number: i64, width: i64) -> Result<(), DatabaseError> {
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
