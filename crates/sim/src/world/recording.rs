//! What the simulated service records, as rows that any site can fill.

use super::{BEGIN_MS, World};
use penstock_model::observation::{
    Attempt, Observation, Operation, Outcome, Sample, SubjectKind, Text, View,
};
use penstock_model::{Bytes, Record, Timestamp, TransferEvent, TransferId, VoName};
use std::collections::HashMap;

/// The source that rows name.
const SOURCE: &str = "penstock-simulate";

/// Who takes the rows, and the attempts that have begun.
pub(super) struct Recording<'a> {
    take: &'a mut dyn FnMut(Observation),
    begun: HashMap<TransferId, BegunAttempt>,
    source: Text,
    rows: u64,
}

#[derive(Debug, Clone, Copy)]
struct BegunAttempt {
    number: u32,
    at: Timestamp,
    prepared: Option<Timestamp>,
}

impl<'a> Recording<'a> {
    pub(super) fn new(take: &'a mut dyn FnMut(Observation)) -> Recording<'a> {
        Recording {
            take,
            begun: HashMap::new(),
            source: SOURCE.into(),
            rows: 0,
        }
    }

    fn give(&mut self, row: Observation) {
        self.rows += 1;
        (self.take)(row.with_origin(&self.source, self.rows));
    }
}

impl World<'_> {
    /// Takes a record of a transfer, before it is counted as ended.
    pub(super) fn record_attempt(&mut self, record: &Record) {
        let (
            Some(recording),
            Record::Happened {
                at,
                transfer,
                event,
                ..
            },
        ) = (&mut self.recording, record)
        else {
            return;
        };
        let outcome = match event {
            TransferEvent::Started { attempt, .. } => {
                let begun = BegunAttempt {
                    number: attempt.0,
                    at: *at,
                    prepared: None,
                };
                recording.begun.insert(*transfer, begun);
                return;
            }
            TransferEvent::Prepared { .. } => {
                if let Some(begun) = recording.begun.get_mut(transfer) {
                    begun.prepared = Some(*at);
                }
                return;
            }
            TransferEvent::Landed { .. } => Outcome::Success,
            TransferEvent::AttemptFailed { .. } | TransferEvent::AttemptLost { .. } => {
                Outcome::Failure
            }
            TransferEvent::Canceled { .. } => Outcome::Abort,
            _ => return,
        };
        let (Some(begun), Some(open)) = (
            recording.begun.remove(transfer),
            self.books.open.get(transfer),
        ) else {
            return;
        };
        let (from, to) = self.links[open.link].ends;
        let host = |storage: usize| -> Text { self.plan.storage_id(storage).as_str().into() };
        let prepared = begun.prepared.map(|prepared| prepared.since(begun.at));
        let mut row = Attempt {
            at: *at,
            view: View::Vo,
            operation: Operation::Copy,
            transfer: Some(transfer.to_string().into()),
            attempt_number: Some(begun.number),
            source_host: Some(host(from)),
            destination_host: Some(host(to)),
            vo: Some(VoName::new(self.vos[open.vo].as_str())),
            file_bytes: Some(Bytes(open.bytes as u64)),
            started: Some(begun.at),
            ended: Some(*at),
            prepare_us: prepared.map(|span| span.as_micros() as u64),
            outcome: Some(outcome),
            ..Attempt::default()
        };
        if begun.number == 1 {
            let since_begin = (open.submitted * 1000.0) as i64;
            row.submitted = Some(Timestamp(BEGIN_MS + since_begin));
        }
        match event {
            TransferEvent::Landed { size, .. } => row.bytes_moved = Some(*size),
            TransferEvent::AttemptFailed { failure, .. } => {
                row.side = Some(failure.side);
                row.phase = Some(failure.phase);
                row.error_code = Some(i64::from(failure.errno.0));
                row.detail = Some(failure.detail.as_str().into());
            }
            _ => {}
        }
        recording.give(row.into());
    }

    /// Takes what each link does, once a second.
    pub(super) fn record_samples(&mut self) {
        let (Some(recording), Some(engine)) = (&mut self.recording, self.service.engine()) else {
            return;
        };
        let at = Timestamp(BEGIN_MS + (self.now * 1000.0) as i64);
        for view in engine.links() {
            if view.active.0 == 0 && view.queued == 0 {
                continue;
            }
            let row = Sample {
                at,
                view: View::Vo,
                subject_kind: SubjectKind::Link,
                subject: view.link.to_string().into(),
                source_host: Some(view.link.source.as_str().into()),
                destination_host: Some(view.link.destination.as_str().into()),
                interval_ms: Some(1000),
                active: Some(view.active.0.into()),
                limit: Some(view.limit.0.into()),
                queued: Some(view.queued),
                ..Sample::default()
            };
            recording.give(row.into());
        }
    }
}
