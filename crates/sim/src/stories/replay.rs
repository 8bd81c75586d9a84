//! A plan as the record that a service would have kept of it, minute by minute, and that record as the explainer reads it.

use crate::plan::Plan;
use crate::world::{BEGIN_MS, BrokenInvariant, RecordLine, simulate_with_record};
use penstock_decide::explain::signals::Signals;
use penstock_decide::minute_meter::{MinuteMeter, Standings, TransferGroup};
use penstock_model::{LedgerEntry, LinkSample, MoverReport, Timestamp, TransferEvent, TransferId};
use penstock_observe::explanations::reading::{ExplainWindow, PopulationChoice, read_record};
use penstock_observe::follow::{MemoryRecord, RecordError};
use std::collections::HashMap;
use thiserror::Error;

/// What movers told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoverReports {
    /// That a file arrived.
    None,
    /// Stages, sockets and connections, as Penstock's movers do.
    All,
}

/// Why a plan could not be replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The simulated service did what it must never do.
    #[error("the simulated service did what it must never do: {0}")]
    Broken(#[from] BrokenInvariant),
    /// The record could not be read.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// A run, as it was recorded with each kind of report.
pub(super) struct Replay {
    /// When it begins.
    begin: Timestamp,
    seconds: f64,
    records: Vec<(MoverReports, MemoryRecord)>,
}

impl Replay {
    /// Runs a plan whose virtual midnight is at `begin`.
    pub(super) fn of(
        plan: &Plan,
        begin: Timestamp,
        reports: &[MoverReports],
    ) -> Result<Replay, BrokenInvariant> {
        let mut keepers: Vec<Keeper> = reports
            .iter()
            .map(|kind| Keeper::new(*kind, begin))
            .collect();
        simulate_with_record(plan, &mut |line| {
            for keeper in &mut keepers {
                keeper.keep(&line, begin.0 - BEGIN_MS);
            }
        })?;
        let end = begin.0 + (plan.seconds * 1000.0) as i64;
        Ok(Replay {
            begin,
            seconds: plan.seconds,
            records: keepers
                .into_iter()
                .map(|keeper| (keeper.reports, keeper.end(Timestamp(end))))
                .collect(),
        })
    }

    /// What the explainer knows of it.
    pub(super) fn signals(
        &self,
        reports: MoverReports,
        bin_seconds: u32,
    ) -> Result<Signals, RecordError> {
        let end = Timestamp(self.begin.0 + (self.seconds * 1000.0) as i64);
        let window = ExplainWindow::new(self.begin, end, Some(bin_seconds));
        let record = self.records.iter().find(|(kind, _)| *kind == reports);
        let (_, record) = record.expect("a kind that was asked for");
        Ok(read_record(record, window, &PopulationChoice::Links)?.signals)
    }
}

/// Counts minutes of what happens, as a service does.
struct Keeper {
    reports: MoverReports,
    meter: MinuteMeter,
    record: MemoryRecord,
    groups: HashMap<TransferId, TransferGroup>,
    second: Vec<LinkSample>,
}

impl Keeper {
    fn new(reports: MoverReports, begin: Timestamp) -> Keeper {
        Keeper {
            reports,
            meter: MinuteMeter::new(begin),
            record: MemoryRecord::new(),
            groups: HashMap::new(),
            second: Vec::new(),
        }
    }

    fn keep(&mut self, line: &RecordLine, later_ms: i64) {
        let shifted = |at: Timestamp| Timestamp(at.0 + later_ms);
        match line {
            RecordLine::Job(job) => {
                for request in &job.transfers {
                    let group = TransferGroup::of(request, &job.vo);
                    self.meter
                        .take_submission(shifted(job.submitted_at), &group);
                    self.groups.insert(request.id, group);
                }
            }
            RecordLine::Entry(entry) => self.keep_entry(entry, shifted(entry.at)),
            RecordLine::Sample(sample) => self.second.push(LinkSample {
                at: shifted(sample.at),
                ..sample.clone()
            }),
            RecordLine::Second { at, slots } => {
                let standings = Standings {
                    service: Some(*slots),
                    ..Standings::default()
                };
                let samples = std::mem::take(&mut self.second);
                self.meter.take_second(shifted(*at), &samples, &standings);
                self.push_minutes();
            }
            RecordLine::Link(change) => {
                let mut change = change.clone();
                change.at = shifted(change.at);
                self.record.push_link_change(change);
            }
            RecordLine::Setting(change) => {
                let mut change = change.clone();
                change.at = shifted(change.at);
                self.record.push_setting_change(change);
            }
            RecordLine::Ban(change) => {
                let mut change = change.clone();
                change.at = shifted(change.at);
                self.record.push_ban_change(change);
            }
        }
    }

    fn keep_entry(&mut self, entry: &LedgerEntry, at: Timestamp) {
        let Some(group) = self.groups.get(&entry.transfer) else {
            return;
        };
        match &entry.event {
            TransferEvent::Submitted | TransferEvent::NotNeeded => {}
            TransferEvent::Landed {
                attempt,
                size,
                mode,
                archives,
                ..
            } if self.reports == MoverReports::None => {
                let event = TransferEvent::Landed {
                    attempt: *attempt,
                    size: *size,
                    mode: *mode,
                    report: Box::new(MoverReport::default()),
                    archives: *archives,
                };
                self.meter.take_event(at, entry.transfer, group, &event);
            }
            event => self.meter.take_event(at, entry.transfer, group, event),
        }
        if matches!(entry.event, TransferEvent::Landed { .. }) {
            self.groups.remove(&entry.transfer);
        }
    }

    fn push_minutes(&mut self) {
        for minute in self.meter.take_over() {
            self.record.push_minute(minute);
        }
    }

    fn end(mut self, at: Timestamp) -> MemoryRecord {
        for minute in self.meter.end(at) {
            self.record.push_minute(minute);
        }
        self.record
    }
}
