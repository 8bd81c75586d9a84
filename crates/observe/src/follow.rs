//! Reading the one record: the entries of the ledger by sequence number, and the samples by time.
//!
//! [`Record`] is what a reader must offer; the journal of a site implements it, and [`MemoryRecord`] for tests and
//! short-lived runs. Calls block (a reader asks its database): call them off the async threads.

use crate::facts::{TransferFacts, gather};
use penstock_model::{LedgerEntry, LinkId, LinkSample, Timestamp, TransferId, TransferRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::RwLock;
use thiserror::Error;

/// Entries read in one go.
const BATCH: usize = 5000;

/// Why the record could not be read.
#[derive(Debug, Error)]
#[error("the record of transfers cannot be read: {0}")]
pub struct RecordError(pub Box<dyn std::error::Error + Send + Sync>);

/// A reader of the one record. Never writes.
pub trait Record: Send + Sync + 'static {
    /// At most `limit` entries with a sequence number above `sequence`, in order.
    fn entries_after(&self, sequence: u64, limit: usize) -> Result<Vec<LedgerEntry>, RecordError>;
    /// The samples with `from <= at <= to`, in the order of time.
    fn samples_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<LinkSample>, RecordError>;
    /// What was asked for; `None` when the transfer is unknown or no longer recorded.
    fn transfer_request(&self, id: TransferId) -> Result<Option<TransferRequest>, RecordError>;
}

/// The facts of every transfer with an event after `from`, and whether all such entries were read.
#[derive(Debug, Clone, PartialEq)]
pub struct RecentFacts {
    /// By transfer id.
    pub transfers: Vec<TransferFacts>,
    /// False when there were more than `entries_max`; then the earliest ones are missing.
    pub complete: bool,
}

/// Reads the facts of every transfer with an event after `from`. `last` is the last committed sequence number; at
/// most `entries_max` entries are read, the latest ones.
pub fn facts_since(
    record: &dyn Record,
    last: u64,
    from: Timestamp,
    entries_max: u64,
) -> Result<RecentFacts, RecordError> {
    let before = sequence_before(record, last, from)?;
    let start = before.max(last.saturating_sub(entries_max));
    let mut entries = Vec::new();
    let mut position = start;
    while position < last {
        let batch = record.entries_after(position, BATCH)?;
        let Some(end) = batch.last().map(|entry| entry.sequence) else {
            break;
        };
        position = end;
        entries.extend(batch.into_iter().filter(|entry| entry.sequence <= last));
    }
    let links = links_of(record, entries.iter().map(|entry| entry.transfer))?;
    Ok(RecentFacts {
        transfers: gather(&entries, |transfer| links.get(&transfer).cloned()),
        complete: start == before,
    })
}

/// The links of `transfers`, for those whose request is still recorded.
pub fn links_of(
    record: &dyn Record,
    transfers: impl IntoIterator<Item = TransferId>,
) -> Result<BTreeMap<TransferId, LinkId>, RecordError> {
    let wanted: BTreeSet<TransferId> = transfers.into_iter().collect();
    let mut links = BTreeMap::new();
    for transfer in wanted {
        if let Some(request) = record.transfer_request(transfer)? {
            links.insert(transfer, request.link());
        }
    }
    Ok(links)
}

/// The sequence number after which the entries later than `from` begin, by bisection: the ledger may be long, and
/// is ordered by time but for steps of the wall clock.
fn sequence_before(record: &dyn Record, last: u64, from: Timestamp) -> Result<u64, RecordError> {
    let (mut low, mut high) = (0, last);
    while low < high {
        let middle = low + (high - low) / 2;
        match record.entries_after(middle, 1)?.first() {
            Some(entry) if entry.at <= from => low = entry.sequence.max(middle + 1),
            Some(_) | None => high = middle,
        }
    }
    Ok(low.min(last))
}

/// A record in memory, for tests and for runs that end with their report.
#[derive(Debug, Default)]
pub struct MemoryRecord {
    kept: RwLock<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    entries: Vec<LedgerEntry>,
    samples: Vec<LinkSample>,
    requests: BTreeMap<TransferId, TransferRequest>,
}

impl MemoryRecord {
    /// Empty.
    pub fn new() -> MemoryRecord {
        MemoryRecord::default()
    }

    /// Appends an entry; sequence numbers must ascend.
    pub fn push_entry(&self, entry: LedgerEntry) {
        self.write().entries.push(entry);
    }

    /// Appends a sample; times must not descend.
    pub fn push_sample(&self, sample: LinkSample) {
        self.write().samples.push(sample);
    }

    /// Remembers what was asked for.
    pub fn put_request(&self, request: TransferRequest) {
        self.write().requests.insert(request.id, request);
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Kept> {
        // A writer that panicked in between leaves whole elements behind, hence going on is right.
        self.kept
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Kept> {
        self.kept
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Record for MemoryRecord {
    fn entries_after(&self, sequence: u64, limit: usize) -> Result<Vec<LedgerEntry>, RecordError> {
        let kept = self.read();
        let start = kept
            .entries
            .partition_point(|entry| entry.sequence <= sequence);
        Ok(kept.entries[start..].iter().take(limit).cloned().collect())
    }

    fn samples_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<LinkSample>, RecordError> {
        let kept = self.read();
        let start = kept.samples.partition_point(|sample| sample.at < from);
        let end = kept.samples.partition_point(|sample| sample.at <= to);
        Ok(kept.samples.get(start..end).unwrap_or_default().to_vec())
    }

    fn transfer_request(&self, id: TransferId) -> Result<Option<TransferRequest>, RecordError> {
        Ok(self.read().requests.get(&id).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{JobId, TransferEvent};

    fn ledger(length: u64) -> MemoryRecord {
        let record = MemoryRecord::new();
        for sequence in 1..=length {
            record.push_entry(LedgerEntry {
                sequence,
                at: Timestamp(sequence as i64 * 10),
                monotonic_us: sequence * 10_000,
                job: JobId(uuid::Uuid::nil()),
                transfer: TransferId(sequence),
                event: TransferEvent::Submitted,
            });
        }
        record
    }

    #[test]
    fn only_what_happened_after_the_given_time_is_read() {
        for length in [0, 1, 2, 7, 100] {
            let record = ledger(length);
            for from in [-1, 0, 9, 10, 11, 500, 999, 1000, 5000] {
                let facts = facts_since(&record, length, Timestamp(from), 1000).expect("in memory");
                let expected = (1..=length).filter(|n| *n as i64 * 10 > from).count();
                assert_eq!(
                    facts.transfers.len(),
                    expected,
                    "length {length}, from {from}"
                );
                assert!(facts.complete);
            }
        }
    }

    #[test]
    fn a_bound_on_entries_keeps_the_latest_and_says_so() {
        let facts = facts_since(&ledger(100), 100, Timestamp(0), 10).expect("in memory");
        assert_eq!(
            facts.transfers.first().map(|facts| facts.transfer),
            Some(TransferId(91))
        );
        assert!(!facts.complete);
    }
}
