//! Keeps of a simulated service what explanations are made from, as a real one keeps it: minutes, and what was set. It does
//! not keep single transfers.

use crate::world::{BEGIN_MS, RecordLine};
use penstock_decide::minute_meter::{MinuteMeter, Standings, TransferGroup};
use penstock_model::{LedgerEntry, Timestamp, TransferEvent, TransferId};
use penstock_observe::follow::MemoryRecord;
use std::collections::HashMap;

/// Takes the lines of a record in order.
pub(super) struct RecordKeeper {
    record: MemoryRecord,
    meter: MinuteMeter,
    /// Of transfers that have not ended.
    groups: HashMap<TransferId, TransferGroup>,
}

impl RecordKeeper {
    pub(super) fn new() -> RecordKeeper {
        RecordKeeper {
            record: MemoryRecord::new(),
            meter: MinuteMeter::new(Timestamp(BEGIN_MS)),
            groups: HashMap::new(),
        }
    }

    pub(super) fn take(&mut self, line: RecordLine) {
        match line {
            RecordLine::Job(job) => {
                for request in &job.transfers {
                    let group = TransferGroup::of(request, &job.vo);
                    self.meter.take_submission(job.submitted_at, &group);
                    self.groups.insert(request.id, group);
                }
            }
            RecordLine::Entry(entry) => self.take_entry(&entry),
            RecordLine::Sample(sample) => {
                let standings = Standings::default();
                self.meter.take_second(sample.at, &[sample], &standings);
            }
            RecordLine::Second { .. } => {}
            RecordLine::Link(change) => self.record.push_link_change(change),
            RecordLine::Setting(change) => self.record.push_setting_change(change),
            RecordLine::Ban(change) => self.record.push_ban_change(change),
        }
    }

    fn take_entry(&mut self, entry: &LedgerEntry) {
        let is_counted = !matches!(
            entry.event,
            TransferEvent::Submitted | TransferEvent::NotNeeded
        );
        let group = self.groups.get(&entry.transfer).filter(|_| is_counted);
        if let Some(group) = group {
            self.meter
                .take_event(entry.at, entry.transfer, group, &entry.event);
        }
        if matches!(entry.event, TransferEvent::Landed { .. }) {
            self.groups.remove(&entry.transfer);
        }
    }

    /// The record until now; what comes next is kept in a new one.
    pub(super) fn cut(&mut self) -> MemoryRecord {
        for minute in self.meter.take_over() {
            self.record.push_minute(minute);
        }
        std::mem::take(&mut self.record)
    }
}
