//! The record that a service keeps of a run, entry by entry as its journal has it: jobs, the ledger, samples of links, and
//! what operators did.

use super::{BEGIN_MS, World};
use crate::random::Random;
use penstock_decide::scheduler::SlotUse;
use penstock_engine::LinkProgress;
use penstock_model::{
    BanChange, Bytes, Job, LedgerEntry, LinkChange, LinkSample, Record, SettingChange, Timestamp,
};
use std::collections::BTreeMap;

/// Keeps the chance of reports apart from that of the run.
const SEED: u64 = 0x5eed_0f4e_9047_5eed;

#[derive(Debug, Clone)]
pub(crate) enum RecordLine {
    /// A job was accepted.
    Job(Box<Job>),
    /// Something happened to a transfer.
    Entry(LedgerEntry),
    /// What a link did in a second.
    Sample(LinkSample),
    /// A second has ended, of which all samples were told: the slots of the service.
    Second { at: Timestamp, slots: SlotUse },
    /// A link was halted or opened.
    Link(LinkChange),
    /// An operator changed a setting.
    Setting(SettingChange),
    /// An operator banned a part, or lifted a ban.
    Ban(BanChange),
}

/// Who takes it.
pub(super) struct ServiceRecord<'a> {
    take: &'a mut dyn FnMut(RecordLine),
    sequence: u64,
    /// Of what movers report.
    pub(super) random: Random,
}

impl<'a> ServiceRecord<'a> {
    pub(super) fn new(seed: u64, take: &'a mut dyn FnMut(RecordLine)) -> ServiceRecord<'a> {
        ServiceRecord {
            take,
            sequence: 0,
            random: Random::new(seed ^ SEED),
        }
    }
}

impl World<'_> {
    pub(super) fn keep_in_record(&mut self, kept: &Record) {
        let Some(record) = &mut self.record else {
            return;
        };
        let line = match kept {
            Record::JobAccepted { job, .. } => RecordLine::Job(job.clone()),
            Record::Happened {
                at,
                monotonic_us,
                job,
                transfer,
                event,
                ..
            } => {
                record.sequence += 1;
                RecordLine::Entry(LedgerEntry {
                    sequence: record.sequence,
                    at: *at,
                    monotonic_us: *monotonic_us,
                    job: *job,
                    transfer: *transfer,
                    event: event.clone(),
                })
            }
            Record::LinkChanged(change) => RecordLine::Link((**change).clone()),
            Record::Configured(change) => RecordLine::Setting((**change).clone()),
            Record::Banned(change) => RecordLine::Ban((**change).clone()),
            _ => return,
        };
        (record.take)(line);
    }

    /// A sample of each link that does anything, as the service takes them once a second.
    pub(super) fn sample_links(&mut self, seen: &[LinkProgress]) {
        let (Some(record), Some(engine)) = (&mut self.record, self.service.engine()) else {
            return;
        };
        let at = Timestamp(BEGIN_MS + ((self.now + self.skew) * 1000.0) as i64);
        let moved: BTreeMap<_, Bytes> = seen.iter().map(|of| (&of.link, of.moved)).collect();
        for view in engine.links() {
            let moved = moved.get(&view.link).copied().unwrap_or_default();
            if moved.0 > 0 || view.active.0 > 0 || view.queued > 0 {
                (record.take)(RecordLine::Sample(LinkSample {
                    at,
                    link: view.link.clone(),
                    moved,
                    active: view.active,
                    limit: view.limit,
                    queued: view.queued,
                }));
            }
        }
        let slots = engine.agents();
        (record.take)(RecordLine::Second { at, slots });
    }
}
