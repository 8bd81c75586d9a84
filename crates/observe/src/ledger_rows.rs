//! The ledger of a transfer service as rows that any site can fill: an attempt for each that has ended.

use crate::follow::{Record, RecordError};
use penstock_model::failure_text::fingerprint;
use penstock_model::observation::{Attempt, Operation, Outcome, Text, View};
use penstock_model::{
    CopyMode, Failure, FileUrl, JobId, LedgerEntry, MoverReport, Phase, Timestamp, TransferEvent,
    TransferId, TransferRequest, VoName,
};
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

/// Entries read in one go.
const BATCH: usize = 5_000;
/// Entries of one transfer that are looked at for the beginning of an attempt.
const ENTRIES_PER_TRANSFER_MAX: usize = 1_000;
/// Beginnings and jobs that are remembered. Beyond, they are read again when they are needed.
const REMEMBERED_MAX: usize = 100_000;

/// Calls `visit` with a row for each attempt that ended after an entry of the ledger. Gives the last entry that was read.
pub fn each_attempt<R: Record + ?Sized>(
    record: &R,
    source: &Text,
    after: u64,
    visit: impl FnMut(Attempt),
) -> Result<u64, RecordError> {
    attempts_between(record, source, after, u64::MAX, visit)
}

/// The same, of attempts that ended after one entry of the ledger and not after another one.
pub fn attempts_between<R: Record + ?Sized>(
    record: &R,
    source: &Text,
    after: u64,
    until: u64,
    mut visit: impl FnMut(Attempt),
) -> Result<u64, RecordError> {
    let mut beginnings: BTreeMap<TransferId, StartedAttempt> = BTreeMap::new();
    let mut submissions: BTreeMap<TransferId, Timestamp> = BTreeMap::new();
    let mut vos: BTreeMap<JobId, Option<VoName>> = BTreeMap::new();
    let mut last = after;
    loop {
        let mut entries = record.entries_after(last, BATCH)?;
        entries.retain(|entry| entry.sequence <= until);
        let Some(newest) = entries.last() else {
            return Ok(last);
        };
        last = newest.sequence;
        for entry in &entries {
            if lets_start(&entry.event) {
                remember(&mut submissions, entry.transfer, entry.at);
            }
            if let Some(beginning) = StartedAttempt::of(entry) {
                let submitted = submissions.remove(&entry.transfer);
                let beginning = StartedAttempt {
                    submitted,
                    ..beginning
                };
                remember(&mut beginnings, entry.transfer, beginning);
            }
            if let TransferEvent::Prepared { attempt, .. } = &entry.event
                && let Some(beginning) = beginnings.get_mut(&entry.transfer)
                && beginning.attempt == *attempt
            {
                beginning.prepared = Some(entry.at);
            }
            let Some(ending) = AttemptOutcome::of(&entry.event) else {
                continue;
            };
            let beginning = match beginnings.remove(&entry.transfer) {
                Some(beginning) if beginning.tells_all() => Some(beginning),
                _ => beginning_before(record, entry)?,
            };
            // Without one nothing was attempted: the transfer ended while it waited.
            let Some(beginning) = beginning else {
                continue;
            };
            if vos.len() >= REMEMBERED_MAX {
                vos.clear();
            }
            let vo = match vos.entry(entry.job) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(record.job_vo(entry.job)?),
            };
            let request = record.transfer_request(entry.transfer)?;
            let mut row = row_of(entry, &ending, &beginning, request.as_ref());
            row.source = source.clone();
            row.vo = vo.clone();
            visit(row);
        }
    }
}

/// Which attempt was started, and when.
#[derive(Debug, Clone, Copy)]
struct StartedAttempt {
    attempt: penstock_model::Attempt,
    at: Timestamp,
    /// When both ends had been looked at.
    prepared: Option<Timestamp>,
    /// Of a first attempt: from when on it might have started.
    submitted: Option<Timestamp>,
}

/// Whether a transfer may start from now on.
fn lets_start(event: &TransferEvent) -> bool {
    matches!(
        event,
        TransferEvent::Submitted | TransferEvent::Chosen { .. } | TransferEvent::Staged { .. }
    )
}

fn remember<T>(known: &mut BTreeMap<TransferId, T>, transfer: TransferId, value: T) {
    if known.len() >= REMEMBERED_MAX {
        known.clear();
    }
    known.insert(transfer, value);
}

impl StartedAttempt {
    fn of(entry: &LedgerEntry) -> Option<StartedAttempt> {
        match &entry.event {
            TransferEvent::Started { attempt, .. } => Some(StartedAttempt {
                attempt: *attempt,
                at: entry.at,
                prepared: None,
                submitted: None,
            }),
            _ => None,
        }
    }

    /// A first attempt's submission may lie before the entries that were read.
    fn tells_all(&self) -> bool {
        self.attempt.0 != 1 || self.submitted.is_some()
    }
}

/// The last attempt that began before an entry of its transfer, unless another entry tells that it has ended, too.
fn beginning_before<R: Record + ?Sized>(
    record: &R,
    entry: &LedgerEntry,
) -> Result<Option<StartedAttempt>, RecordError> {
    let entries = record.entries_of(entry.transfer, ENTRIES_PER_TRANSFER_MAX)?;
    let (mut running, mut submitted): (Option<StartedAttempt>, _) = (None, None);
    for earlier in &entries {
        if earlier.sequence >= entry.sequence {
            break;
        }
        if lets_start(&earlier.event) {
            submitted = Some(earlier.at);
        }
        if let (TransferEvent::Prepared { .. }, Some(running)) = (&earlier.event, &mut running) {
            running.prepared = Some(earlier.at);
        }
        running = match AttemptOutcome::of(&earlier.event) {
            Some(_) => None,
            None => StartedAttempt::of(earlier).or(running),
        };
    }
    Ok(running.map(|running| StartedAttempt {
        submitted: submitted.filter(|_| running.attempt.0 == 1),
        ..running
    }))
}

/// How an attempt ended.
enum AttemptOutcome<'a> {
    Landed(Option<CopyMode>, &'a MoverReport, penstock_model::Bytes),
    Failed(&'a Failure, Option<penstock_model::Bytes>),
    /// Its process is gone: it counts as failed, because whatever it did is done again.
    Lost(&'a str),
    Canceled(&'a str),
}

impl AttemptOutcome<'_> {
    fn of(event: &TransferEvent) -> Option<AttemptOutcome<'_>> {
        match event {
            TransferEvent::Landed {
                mode, report, size, ..
            } => Some(AttemptOutcome::Landed(*mode, report, *size)),
            TransferEvent::AttemptFailed { failure, moved, .. } => {
                Some(AttemptOutcome::Failed(failure, *moved))
            }
            TransferEvent::AttemptLost { reason, .. } => Some(AttemptOutcome::Lost(reason)),
            TransferEvent::Canceled { reason } => Some(AttemptOutcome::Canceled(reason)),
            _ => None,
        }
    }
}

fn row_of(
    entry: &LedgerEntry,
    ending: &AttemptOutcome<'_>,
    beginning: &StartedAttempt,
    request: Option<&TransferRequest>,
) -> Attempt {
    let name: Text = beginning
        .attempt
        .copy_name(entry.job, entry.transfer)
        .into();
    let mut row = Attempt {
        at: entry.at,
        line: entry.sequence,
        view: View::Vo,
        operation: Operation::Copy,
        job: Some(entry.job.to_string().into()),
        transfer: Some(entry.transfer.to_string().into()),
        attempt: Some(Arc::clone(&name)),
        copy: Some(name),
        attempt_number: Some(beginning.attempt.0),
        submitted: beginning.submitted,
        started: Some(beginning.at),
        ended: Some(entry.at),
        ..Attempt::default()
    };
    if let Some(prepared) = beginning.prepared {
        let us = prepared.since(beginning.at).as_micros();
        row.prepare_us = u64::try_from(us).ok();
    }
    if let Some(request) = request {
        (row.source_host, row.source_path) = place_of(&request.source);
        (row.destination_host, row.destination_path) = place_of(&request.destination);
        row.activity = Some(request.activity.clone());
        row.file_bytes = request.size;
    }
    match ending {
        AttemptOutcome::Landed(mode, report, size) => {
            row.outcome = Some(Outcome::Success);
            row.file_bytes = Some(*size);
            // Without one an attempt of before had brought the file, and this one moved nothing.
            row.bytes_moved = Some(mode.map_or_else(Default::default, |_| report.moved));
            row.pool = report.pool.clone();
            row = row.with_stages(&report.stages);
            if let Some(tcp) = &report.tcp {
                row = row.with_tcp(tcp);
            }
        }
        AttemptOutcome::Failed(failure, moved) => {
            row.outcome = Some(Outcome::Failure);
            row.bytes_moved = *moved;
            row.side = Some(failure.side);
            row.phase = Some(failure.phase);
            row.error_code = Some(i64::from(failure.errno.0));
            row.fingerprint = Some(fingerprint(failure).into());
            row.detail = Some(failure.detail.as_str().into());
        }
        AttemptOutcome::Lost(reason) => {
            row.outcome = Some(Outcome::Failure);
            row.phase = Some(Phase::Transfer);
            row.detail = Some((*reason).into());
        }
        AttemptOutcome::Canceled(reason) => {
            row.outcome = Some(Outcome::Abort);
            row.detail = Some((*reason).into());
        }
    }
    row
}

/// Scheme and host, and path.
fn place_of(url: &FileUrl) -> (Option<Text>, Option<Text>) {
    let text = url.public_text();
    let text = text.split_once('?').map_or(&*text, |(before, _)| before);
    let path = text
        .split_once("://")
        .and_then(|(_, rest)| Some(&rest[rest.find('/')?..]));
    (Some(url.storage().as_str().into()), path.map(Text::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::MemoryRecord;
    use penstock_model::{Bytes, Errno, Retry, Side, StageClocks};

    struct Lab {
        record: MemoryRecord,
        job: JobId,
        transfer: TransferId,
    }

    impl Lab {
        fn new() -> Lab {
            let lab = Lab {
                record: MemoryRecord::new(),
                job: JobId(uuid::Uuid::nil()),
                transfer: TransferId(9),
            };
            lab.record.put_vo(lab.job, VoName::new("atlas"));
            lab
        }

        fn tell(&self, sequence: u64, event: TransferEvent) {
            self.record.push_entry(LedgerEntry {
                sequence,
                at: Timestamp(sequence as i64 * 1_000),
                monotonic_us: 0,
                job: self.job,
                transfer: self.transfer,
                event,
            });
        }

        fn rows(&self, after: u64) -> (u64, Vec<Attempt>) {
            let mut rows = Vec::new();
            let last = each_attempt(&self.record, &"here".into(), after, |row| rows.push(row));
            (last.expect("readable"), rows)
        }
    }

    #[test]
    fn a_first_attempt_tells_when_it_was_asked_for_and_when_both_ends_had_been_looked_at() {
        let lab = Lab::new();
        let prepared = TransferEvent::Prepared {
            attempt: penstock_model::Attempt(1),
            size: None,
            checksum: None,
            replaces: false,
        };
        let events = [TransferEvent::Submitted, started(1), prepared, failed(1)];
        let events = events.into_iter().chain([started(2), landed(2)]);
        for (place, event) in events.enumerate() {
            lab.tell(place as u64 + 1, event);
        }
        // Also when the entries that are read begin later.
        for after in 0..3 {
            let (_, rows) = lab.rows(after);
            let told: Vec<_> = rows
                .iter()
                .map(|row| (row.submitted, row.prepare_us))
                .collect();
            let first = (Some(Timestamp(1_000)), Some(1_000_000));
            assert_eq!(told, [first, (None, None)], "{after}");
        }
        let mut rows = Vec::new();
        let last = attempts_between(&lab.record, &"here".into(), 0, 4, |row| rows.push(row));
        assert_eq!((last.expect("readable"), rows.len()), (4, 1));
    }

    fn started(attempt: u32) -> TransferEvent {
        TransferEvent::Started {
            attempt: penstock_model::Attempt(attempt),
            node: None,
        }
    }

    fn failed(attempt: u32) -> TransferEvent {
        TransferEvent::AttemptFailed {
            attempt: penstock_model::Attempt(attempt),
            failure: Failure {
                side: Side::Source,
                retry: Retry::Later,
                concern: Default::default(),
                phase: Phase::Transfer,
                errno: Errno::EIO,
                detail: "/f: read error".to_owned(),
                found: None,
                busy: None,
                code: None,
            },
            retry_at: Some(Timestamp(3_000)),
            cleaned: true,
            excused: false,
            stages: false,
            moved: None,
        }
    }

    fn landed(attempt: u32) -> TransferEvent {
        TransferEvent::Landed {
            attempt: penstock_model::Attempt(attempt),
            size: Bytes(10),
            mode: Some(CopyMode::Pull),
            report: Box::new(MoverReport {
                moved: Bytes(10),
                stages: StageClocks {
                    write_us: 5,
                    ..StageClocks::default()
                },
                ..MoverReport::default()
            }),
            archives: false,
        }
    }

    #[test]
    fn each_attempt_that_ended_has_a_row_with_its_beginning() {
        let lab = Lab::new();
        for (place, event) in [started(1), failed(1), started(2), landed(2)]
            .into_iter()
            .enumerate()
        {
            lab.tell(place as u64 + 1, event);
        }
        let (last, rows) = lab.rows(0);
        assert_eq!(last, 4);
        let told: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.copy.as_deref().map(str::to_owned),
                    row.started,
                    row.ended,
                    row.outcome,
                )
            })
            .collect();
        let at = |seconds: i64| Some(Timestamp(seconds * 1_000));
        let (failure, success) = (Some(Outcome::Failure), Some(Outcome::Success));
        assert_eq!(
            told,
            [
                (Some(format!("{}-9-1", lab.job)), at(1), at(2), failure),
                (Some(format!("{}-9-2", lab.job)), at(3), at(4), success)
            ]
        );
        assert_eq!(rows[0].side, Some(Side::Source));
        assert_eq!(
            (rows[1].bytes_moved, rows[1].write_us, rows[1].network_us),
            (Some(Bytes(10)), Some(5), None),
            "what was not measured is unknown"
        );
        assert!(rows.iter().all(|row| row.vo == Some(VoName::new("atlas"))));
    }

    #[test]
    fn an_attempt_that_began_before_the_entries_that_are_read_keeps_its_beginning() {
        let lab = Lab::new();
        for (place, event) in [started(1), failed(1), started(2), landed(2)]
            .into_iter()
            .enumerate()
        {
            lab.tell(place as u64 + 1, event);
        }
        let (_, rows) = lab.rows(3);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].started, Some(Timestamp(3_000)));
        assert_eq!(rows[0].attempt_number, Some(2));
    }

    #[test]
    fn a_transfer_that_ended_while_it_waited_has_no_row() {
        let lab = Lab::new();
        lab.tell(1, TransferEvent::Submitted);
        let reason = "by its user".to_owned();
        lab.tell(2, TransferEvent::Canceled { reason });
        assert_eq!(lab.rows(0), (2, Vec::new()));
    }
}
