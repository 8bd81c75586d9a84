//! Reading the one record: the entries of the ledger by sequence number, and the samples by time.
//!
//! [`Record`] is what a reader must offer; the journal of a site implements it, and [`MemoryRecord`] for
//! tests and short-lived runs. Calls block (a reader asks its database): call them off the async threads.

use crate::facts::{TransferEnding, TransferFacts, gather};
use crate::report::{BandwidthReport, ReportInput, window_of};
use parking_lot::RwLock;
use penstock_journal::{JournalError, JournalReader};
use penstock_model::{
    BanChange, JobId, LedgerEntry, LinkChange, LinkId, LinkSample, MinuteSamples, SettingChange,
    Timestamp, TransferId, TransferRequest, VoName,
};
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Entries read in one go.
const BATCH: usize = 5000;
/// Entries looked at in one step of [`Follower::catch_up`], and per transfer in [`facts_of`].
const ENTRIES_MAX: u64 = 200_000;
const ENTRIES_PER_TRANSFER_MAX: usize = 1000;
/// Transfers whose facts a [`Follower`] keeps: about 50 MB.
const TRANSFERS_MAX: usize = 100_000;
/// How far back a [`Follower`] remembers transfers that have ended.
pub const FOLLOWED: Duration = Duration::from_secs(900);
/// Samples are read in pieces of this length, so that a report of a week needs no more memory than one of an
/// hour.
pub(crate) const SAMPLES_AT_ONCE: Duration = Duration::from_secs(1800);

/// Why the record could not be read.
#[derive(Debug, Error)]
#[error("the record of transfers cannot be read: {0}")]
pub struct RecordError(#[from] pub Box<dyn std::error::Error + Send + Sync>);

impl From<JournalError> for RecordError {
    fn from(error: JournalError) -> RecordError {
        RecordError(Box::new(error))
    }
}

/// A reader of the one record. Never writes.
pub trait Record: Send + Sync + 'static {
    /// The sequence number of the last entry; 0 when there is none.
    fn last_sequence(&self) -> Result<u64, RecordError>;
    /// At most `limit` entries with a sequence number above `sequence`, in order.
    fn entries_after(&self, sequence: u64, limit: usize) -> Result<Vec<LedgerEntry>, RecordError>;
    /// At most `limit` entries of one transfer, in order.
    fn entries_of(
        &self,
        transfer: TransferId,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, RecordError>;
    /// The samples with `from <= at < to`, in the order of time.
    fn samples_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<LinkSample>, RecordError>;
    /// Minutes that begin in `from <= begin < to`, oldest first; of one minute there may be several parts.
    fn minutes_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<MinuteSamples>, RecordError>;
    /// What was asked for; `None` when the transfer is unknown or no longer recorded.
    fn transfer_request(&self, id: TransferId) -> Result<Option<TransferRequest>, RecordError>;
    /// On whose behalf a job runs; `None` when it is unknown or no longer recorded.
    fn job_vo(&self, job: JobId) -> Result<Option<VoName>, RecordError>;
    /// What became of a link in `from <= at <= to`, oldest first; of more than `limit`, the latest.
    fn link_changes(
        &self,
        link: &LinkId,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Vec<LinkChange>, RecordError>;
    /// The latest changes of settings, at most `limit`.
    fn setting_changes(&self, limit: usize) -> Result<Vec<SettingChange>, RecordError>;
    /// The latest changes of bans, at most `limit`.
    fn ban_changes(&self, limit: usize) -> Result<Vec<BanChange>, RecordError>;
}

impl Record for Arc<dyn JournalReader> {
    fn last_sequence(&self) -> Result<u64, RecordError> {
        Ok(self.as_ref().last_sequence()?)
    }

    fn entries_after(&self, sequence: u64, limit: usize) -> Result<Vec<LedgerEntry>, RecordError> {
        Ok(self.as_ref().entries_after(sequence, limit)?)
    }

    fn entries_of(
        &self,
        transfer: TransferId,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, RecordError> {
        Ok(self.as_ref().entries_of(transfer, limit)?)
    }

    fn samples_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<LinkSample>, RecordError> {
        Ok(self.as_ref().samples_between(from, to)?)
    }

    fn minutes_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<MinuteSamples>, RecordError> {
        Ok(self.as_ref().minutes_between(from, to)?)
    }

    fn transfer_request(&self, id: TransferId) -> Result<Option<TransferRequest>, RecordError> {
        Ok(self.as_ref().transfer(id)?.map(|row| row.request))
    }

    fn job_vo(&self, job: JobId) -> Result<Option<VoName>, RecordError> {
        Ok(self.as_ref().job(job)?.map(|row| row.vo))
    }

    fn link_changes(
        &self,
        link: &LinkId,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Vec<LinkChange>, RecordError> {
        Ok(self.as_ref().link_changes(link, from, to, limit)?)
    }

    fn setting_changes(&self, limit: usize) -> Result<Vec<SettingChange>, RecordError> {
        Ok(self.as_ref().setting_changes(limit)?)
    }

    fn ban_changes(&self, limit: usize) -> Result<Vec<BanChange>, RecordError> {
        Ok(self.as_ref().ban_changes(limit)?)
    }
}

/// The report of some transfers, for instance those of a job, from the first start to the last end.
pub fn report_of(
    record: &dyn Record,
    population: &str,
    transfers: &[TransferId],
) -> Result<BandwidthReport, RecordError> {
    let facts = facts_of(record, transfers)?;
    let input = ReportInput {
        population: population.to_owned(),
        transfers: facts.iter().collect(),
        window: None,
    };
    report_with_samples(record, &input)
}

/// The report of `input` with the samples of its window.
pub fn report_with_samples(
    record: &dyn Record,
    input: &ReportInput<'_>,
) -> Result<BandwidthReport, RecordError> {
    let window = window_of(input);
    // The second that ends after the window still tells of its last moments.
    let end = window.to + Duration::from_secs(1);
    let mut failed = None;
    let mut from = window.from;
    let pieces = std::iter::from_fn(|| {
        if from >= end || failed.is_some() {
            return None;
        }
        let to = (from + SAMPLES_AT_ONCE).min(end);
        let piece = record.samples_between(from, to);
        from = to;
        piece.map_err(|error| failed = Some(error)).ok()
    });
    let report = BandwidthReport::of(input, pieces.flatten());
    match failed {
        Some(error) => Err(error),
        None => Ok(report),
    }
}

/// The facts of some transfers.
pub fn facts_of(
    record: &dyn Record,
    transfers: &[TransferId],
) -> Result<Vec<TransferFacts>, RecordError> {
    let mut facts = Vec::with_capacity(transfers.len());
    for transfer in transfers {
        let entries = record.entries_of(*transfer, ENTRIES_PER_TRANSFER_MAX)?;
        let link = link_of(record, *transfer)?;
        facts.extend(gather(&entries, |_| link.clone()));
    }
    Ok(facts)
}

fn link_of(record: &dyn Record, transfer: TransferId) -> Result<Option<LinkId>, RecordError> {
    Ok(record
        .transfer_request(transfer)?
        .map(|request| request.link()))
}

/// Follows the ledger and keeps the facts of the transfers of the last [`FOLLOWED`]. Each entry is read once.
#[derive(Debug, Default)]
pub struct Follower {
    /// The last entry taken; `None` before the first reading.
    position: Option<u64>,
    facts: BTreeMap<TransferId, TransferFacts>,
    /// Of earlier events not all are known.
    complete_since: Timestamp,
}

impl Follower {
    /// Has read nothing yet.
    pub fn new() -> Follower {
        Follower::default()
    }

    /// Takes what is in the record. The first time, it begins [`FOLLOWED`] before `now`, also with what another process
    /// has written.
    pub fn catch_up(&mut self, record: &dyn Record, now: Timestamp) -> Result<(), RecordError> {
        let last = record.last_sequence()?;
        let oldest = Timestamp(now.0.saturating_sub(FOLLOWED.as_millis() as i64));
        let mut position = match self.position {
            Some(position) => position,
            None => sequence_before(record, last, oldest)?,
        };
        let (latest, _) = latest_entries(record, (position, last), ENTRIES_MAX)?;
        if latest > position {
            position = latest;
            self.complete_since = now;
        }
        while position < last {
            let wanted = usize::try_from(last - position).map_or(BATCH, |left| left.min(BATCH));
            let batch = record.entries_after(position, wanted)?;
            let Some(end) = batch.last().map(|entry| entry.sequence) else {
                // Numbers that no entry has.
                position = last;
                break;
            };
            for entry in &batch {
                self.take(record, entry)?;
                // What follows may fail, and is read again then.
                self.position = Some(entry.sequence);
            }
            position = end;
        }
        self.position = Some(position);
        self.forget(oldest, now);
        Ok(())
    }

    /// The transfers with an event after `from`, and since when they are all, if that is later.
    pub fn transfers_since(&self, from: Timestamp) -> (Vec<&TransferFacts>, Option<Timestamp>) {
        let recent = self.facts.values().filter(|facts| facts.last_event > from);
        let later = Some(self.complete_since).filter(|since| *since > from);
        (recent.collect(), later)
    }

    fn take(&mut self, record: &dyn Record, entry: &LedgerEntry) -> Result<(), RecordError> {
        let facts = match self.facts.entry(entry.transfer) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let link = link_of(record, entry.transfer)?;
                unknown.insert(TransferFacts::new(
                    entry.transfer,
                    entry.job,
                    link,
                    entry.at,
                ))
            }
        };
        facts.take(entry.at, &entry.event);
        Ok(())
    }

    /// Drops what is old, but not what runs; and, when there are still too many, what has not begun to run:
    /// it will be known again from its start on.
    fn forget(&mut self, oldest: Timestamp, now: Timestamp) {
        let runs = |facts: &TransferFacts| {
            facts.ending == TransferEnding::Open
                && facts.runs.last().is_some_and(|run| run.to.is_none())
        };
        self.facts
            .retain(|_, facts| facts.last_event > oldest || runs(facts));
        if self.facts.len() > TRANSFERS_MAX {
            self.complete_since = now;
            self.facts
                .retain(|_, facts| facts.ending != TransferEnding::Open || !facts.runs.is_empty());
        }
        while self.facts.len() > TRANSFERS_MAX {
            self.facts.pop_first();
        }
    }
}

/// The sequence number after which the entries later than `from` begin, by bisection: the ledger may be long,
/// and is ordered by time but for steps of the wall clock.
pub(crate) fn sequence_before(
    record: &dyn Record,
    last: u64,
    from: Timestamp,
) -> Result<u64, RecordError> {
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

/// Of the entries with numbers above `begin` and at most `end`, the number before the latest `entries_max`, and how many
/// entries there are at most after it. Numbers that no entry has do not count: a backup that was put back, and a journal
/// that lost its last batches, go on with numbers far beyond.
pub(crate) fn latest_entries(
    record: &dyn Record,
    (begin, end): (u64, u64),
    entries_max: u64,
) -> Result<(u64, u64), RecordError> {
    let next = |number: u64| -> Result<Option<u64>, RecordError> {
        let entries = record.entries_after(number, 1)?;
        let next = entries.first().map(|entry| entry.sequence);
        Ok(next.filter(|next| *next <= end))
    };
    let (mut upper, mut room) = (end, entries_max);
    loop {
        let candidate = upper.saturating_sub(room);
        if candidate <= begin {
            return Ok((begin, entries_max - room + upper.saturating_sub(begin)));
        }
        let first = next(candidate)?;
        // The gap around the candidate, if there is one, begins at the lowest number with the same next entry.
        let (mut low, mut high) = (begin, candidate);
        while low < high {
            let middle = low + (high - low) / 2;
            match next(middle)? == first {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        if low == candidate {
            return Ok((candidate, entries_max));
        }
        room -= first.map_or(0, |first| upper - first + 1);
        upper = low;
    }
}

/// A record in memory, for simulations and tests.
#[derive(Debug, Default)]
pub struct MemoryRecord {
    kept: RwLock<MemoryState>,
}

#[derive(Debug, Default)]
struct MemoryState {
    entries: Vec<LedgerEntry>,
    samples: Vec<LinkSample>,
    minutes: Vec<MinuteSamples>,
    requests: BTreeMap<TransferId, TransferRequest>,
    vos: BTreeMap<JobId, VoName>,
    link_changes: Vec<LinkChange>,
    setting_changes: Vec<SettingChange>,
    ban_changes: Vec<BanChange>,
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

    /// Appends a minute; times must not descend.
    pub fn push_minute(&self, minute: MinuteSamples) {
        self.write().minutes.push(minute);
    }

    /// Appends a sample; times must not descend.
    pub fn push_sample(&self, sample: LinkSample) {
        self.write().samples.push(sample);
    }

    /// Remembers what was asked for.
    pub fn put_request(&self, request: TransferRequest) {
        self.write().requests.insert(request.id, request);
    }

    /// Remembers on whose behalf a job runs.
    pub fn put_vo(&self, job: JobId, vo: VoName) {
        self.write().vos.insert(job, vo);
    }

    /// Appends what became of a link; times must not descend.
    pub fn push_link_change(&self, change: LinkChange) {
        self.write().link_changes.push(change);
    }

    /// Appends a change of a setting; times must not descend.
    pub fn push_setting_change(&self, change: SettingChange) {
        self.write().setting_changes.push(change);
    }

    /// Appends a change of a ban; times must not descend.
    pub fn push_ban_change(&self, change: BanChange) {
        self.write().ban_changes.push(change);
    }

    fn write(&self) -> parking_lot::RwLockWriteGuard<'_, MemoryState> {
        // A writer that panicked in between leaves whole elements behind, hence going on is right.
        self.kept.write()
    }

    fn read(&self) -> parking_lot::RwLockReadGuard<'_, MemoryState> {
        self.kept.read()
    }
}

impl Record for MemoryRecord {
    fn last_sequence(&self) -> Result<u64, RecordError> {
        Ok(self.read().entries.last().map_or(0, |entry| entry.sequence))
    }

    fn entries_after(&self, sequence: u64, limit: usize) -> Result<Vec<LedgerEntry>, RecordError> {
        let kept = self.read();
        let start = kept
            .entries
            .partition_point(|entry| entry.sequence <= sequence);
        Ok(kept.entries[start..].iter().take(limit).cloned().collect())
    }

    fn entries_of(
        &self,
        transfer: TransferId,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, RecordError> {
        let kept = self.read();
        let its = kept
            .entries
            .iter()
            .filter(|entry| entry.transfer == transfer);
        Ok(its.take(limit).cloned().collect())
    }

    fn samples_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<LinkSample>, RecordError> {
        let kept = self.read();
        let start = kept.samples.partition_point(|sample| sample.at < from);
        let end = kept.samples.partition_point(|sample| sample.at < to);
        Ok(kept.samples.get(start..end).unwrap_or_default().to_vec())
    }

    fn minutes_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<MinuteSamples>, RecordError> {
        let kept = self.read();
        let start = kept.minutes.partition_point(|minute| minute.from < from);
        let end = kept.minutes.partition_point(|minute| minute.from < to);
        Ok(kept.minutes.get(start..end).unwrap_or_default().to_vec())
    }

    fn transfer_request(&self, id: TransferId) -> Result<Option<TransferRequest>, RecordError> {
        Ok(self.read().requests.get(&id).cloned())
    }

    fn job_vo(&self, job: JobId) -> Result<Option<VoName>, RecordError> {
        Ok(self.read().vos.get(&job).cloned())
    }

    fn link_changes(
        &self,
        link: &LinkId,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Vec<LinkChange>, RecordError> {
        let kept = self.read();
        let mut within: Vec<LinkChange> = kept
            .link_changes
            .iter()
            .filter(|change| change.link == *link && (from..=to).contains(&change.at))
            .cloned()
            .collect();
        within.drain(..within.len().saturating_sub(limit));
        Ok(within)
    }

    fn setting_changes(&self, limit: usize) -> Result<Vec<SettingChange>, RecordError> {
        let kept = self.read();
        let first = kept.setting_changes.len().saturating_sub(limit);
        Ok(kept.setting_changes[first..].to_vec())
    }

    fn ban_changes(&self, limit: usize) -> Result<Vec<BanChange>, RecordError> {
        let kept = self.read();
        let first = kept.ban_changes.len().saturating_sub(limit);
        Ok(kept.ban_changes[first..].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::TransferEvent;

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
                let mut follower = Follower::new();
                let now = Timestamp(from) + FOLLOWED;
                follower.catch_up(&record, now).expect("in memory");
                let expected = (1..=length).filter(|n| *n as i64 * 10 > from).count();
                assert_eq!(
                    follower.facts.len(),
                    expected,
                    "length {length}, from {from}"
                );
                assert_eq!(follower.transfers_since(Timestamp(from)).0.len(), expected);
            }
        }
    }

    #[test]
    fn each_entry_is_taken_once_and_the_past_is_forgotten() {
        let (record, written) = (MemoryRecord::new(), ledger(100));
        let written = written.entries_after(0, 100).expect("in memory");
        let mut follower = Follower::new();
        let mut from = 0;
        for last in [10, 10, 60, 100] {
            for entry in &written[from..last] {
                record.push_entry(entry.clone());
            }
            from = last;
            follower
                .catch_up(&record, Timestamp(1000))
                .expect("in memory");
            assert_eq!(follower.facts.len(), last);
        }
        follower
            .catch_up(&record, Timestamp(505) + FOLLOWED)
            .expect("in memory");
        assert_eq!(follower.transfers_since(Timestamp(0)).0.len(), 50);
    }

    #[test]
    fn a_running_transfer_is_remembered_however_long_ago_it_started() {
        let record = ledger(1);
        let started = TransferEvent::Started {
            attempt: penstock_model::Attempt(1),
            node: None,
        };
        record.push_entry(LedgerEntry {
            sequence: 2,
            event: started,
            ..record.entries_after(0, 1).expect("in memory")[0].clone()
        });
        let mut follower = Follower::new();
        for later in [Duration::ZERO, FOLLOWED * 5] {
            follower
                .catch_up(&record, Timestamp(20) + later)
                .expect("in memory");
        }
        assert_eq!(follower.facts.len(), 1);
    }

    #[test]
    fn numbers_that_no_entry_has_are_not_counted_as_entries() {
        const LEAP: u64 = 1_000_000_000;
        let entry = ledger(1).entries_after(0, 1).expect("in memory").remove(0);
        let numbers = (1..=10).chain(LEAP + 11..=LEAP + 15);
        let record = MemoryRecord::new();
        for sequence in numbers.chain(2 * LEAP + 16..=2 * LEAP + 17) {
            record.push_entry(LedgerEntry {
                sequence,
                ..entry.clone()
            });
        }
        let last = 2 * LEAP + 17;
        let latest = |begin: u64, end: u64, entries_max: u64| {
            latest_entries(&record, (begin, end), entries_max).expect("in memory")
        };
        assert_eq!(latest(0, last, 100), (0, 17));
        assert_eq!(latest(0, last, 17), (0, 17));
        assert_eq!(latest(0, last, 11), (6, 11));
        assert_eq!(latest(8, last, 100), (8, 9));
        assert_eq!(latest(0, last, 1), (last - 1, 1));
        assert_eq!(latest(0, LEAP + 13, 4), (9, 4));
        // The number was raised, and nothing happened since.
        assert_eq!(latest(0, 3 * LEAP, 4), (LEAP + 13, 4));
        assert_eq!(latest(0, 0, 4), (0, 0));
    }

    #[test]
    fn what_happened_before_the_numbers_were_raised_is_still_told() {
        let record = ledger(10);
        let last = record.entries_after(9, 1).expect("in memory").remove(0);
        record.push_entry(LedgerEntry {
            sequence: 1_000_000_011,
            transfer: TransferId(11),
            ..last
        });
        let mut follower = Follower::new();
        follower
            .catch_up(&record, Timestamp(200))
            .expect("in memory");
        let (transfers, later) = follower.transfers_since(Timestamp(0));
        assert_eq!((transfers.len(), later), (11, None));
    }

    /// A record whose database is away at some of the questions.
    struct Flaky {
        record: MemoryRecord,
        asked: std::sync::atomic::AtomicU32,
        fails_at: Vec<u32>,
    }

    impl Flaky {
        fn ask(&self) -> Result<&MemoryRecord, RecordError> {
            let number = self
                .asked
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            match self.fails_at.contains(&number) {
                true => Err(RecordError("the database is away".into())),
                false => Ok(&self.record),
            }
        }
    }

    impl Record for Flaky {
        fn last_sequence(&self) -> Result<u64, RecordError> {
            self.ask()?.last_sequence()
        }

        fn entries_after(
            &self,
            sequence: u64,
            limit: usize,
        ) -> Result<Vec<LedgerEntry>, RecordError> {
            self.ask()?.entries_after(sequence, limit)
        }

        fn entries_of(
            &self,
            transfer: TransferId,
            limit: usize,
        ) -> Result<Vec<LedgerEntry>, RecordError> {
            self.ask()?.entries_of(transfer, limit)
        }

        fn samples_between(
            &self,
            from: Timestamp,
            to: Timestamp,
        ) -> Result<Vec<LinkSample>, RecordError> {
            self.ask()?.samples_between(from, to)
        }

        fn minutes_between(
            &self,
            from: Timestamp,
            to: Timestamp,
        ) -> Result<Vec<MinuteSamples>, RecordError> {
            self.ask()?.minutes_between(from, to)
        }

        fn transfer_request(&self, id: TransferId) -> Result<Option<TransferRequest>, RecordError> {
            self.ask()?.transfer_request(id)
        }

        fn job_vo(&self, job: JobId) -> Result<Option<VoName>, RecordError> {
            self.ask()?.job_vo(job)
        }

        fn link_changes(
            &self,
            link: &LinkId,
            from: Timestamp,
            to: Timestamp,
            limit: usize,
        ) -> Result<Vec<LinkChange>, RecordError> {
            self.ask()?.link_changes(link, from, to, limit)
        }

        fn setting_changes(&self, limit: usize) -> Result<Vec<SettingChange>, RecordError> {
            self.ask()?.setting_changes(limit)
        }

        fn ban_changes(&self, limit: usize) -> Result<Vec<BanChange>, RecordError> {
            self.ask()?.ban_changes(limit)
        }
    }

    #[test]
    fn a_record_that_is_away_for_a_moment_is_followed_from_where_it_was_and_nothing_counts_twice() {
        let started = || {
            let record = MemoryRecord::new();
            for sequence in 1..=12 {
                record.push_entry(LedgerEntry {
                    sequence,
                    at: Timestamp(sequence as i64 * 10),
                    monotonic_us: sequence,
                    job: JobId(uuid::Uuid::nil()),
                    transfer: TransferId(sequence % 4 + 1),
                    event: TransferEvent::Started {
                        attempt: penstock_model::Attempt(1),
                        node: None,
                    },
                });
            }
            record
        };
        let mut expected = Follower::new();
        expected
            .catch_up(&started(), Timestamp(200))
            .expect("in memory");
        for fails_at in 0..12 {
            let record = Flaky {
                record: started(),
                asked: Default::default(),
                fails_at: vec![fails_at, fails_at + 3],
            };
            let mut follower = Follower::new();
            let mut failures = 0;
            while let Err(why) = follower.catch_up(&record, Timestamp(200)) {
                assert!(why.to_string().contains("away"), "{why}");
                failures += 1;
                assert!(failures < 3);
            }
            assert_eq!(follower.facts, expected.facts, "failing at {fails_at}");
        }
    }
}
