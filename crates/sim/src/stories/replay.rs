//! A plan as the record that a service would have kept of it, minute by minute, and that record as the explainer reads it.

use crate::plan::Plan;
use crate::world::{BEGIN_MS, BrokenInvariant, RecordLine, simulate_with_record};
use penstock_decide::explain::PopulationChoice;
use penstock_decide::explain::signals::Signals;
use penstock_decide::minute_meter::{MinuteMeter, Standings, TransferGroup};
use penstock_model::{
    BanChange, CopySums, LedgerEntry, LinkChange, LinkSample, MinuteSamples, SettingChange,
    Timestamp, TransferEvent, TransferId,
};
use penstock_observe::explanations::reading::{ExplainWindow, read_record};
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

/// A run, as it was recorded.
pub(super) struct Replay {
    /// When it begins.
    begin: Timestamp,
    seconds: f64,
    minutes: Vec<MinuteSamples>,
    changes: Changes,
}

/// What changed meanwhile.
#[derive(Default)]
struct Changes {
    links: Vec<LinkChange>,
    settings: Vec<SettingChange>,
    bans: Vec<BanChange>,
}

impl Replay {
    /// Runs a plan whose virtual midnight is at `begin`.
    pub(super) fn of(plan: &Plan, begin: Timestamp) -> Result<Replay, BrokenInvariant> {
        let mut keeper = Keeper::new(begin);
        simulate_with_record(plan, &mut |line| keeper.keep(&line, begin.0 - BEGIN_MS))?;
        let end = Timestamp(begin.0 + (plan.seconds * 1000.0) as i64);
        let (minutes, changes) = keeper.end(end);
        Ok(Replay {
            begin,
            seconds: plan.seconds,
            minutes,
            changes,
        })
    }

    /// What the explainer knows of it, when movers told so much.
    pub(super) fn signals(
        &self,
        reports: MoverReports,
        bin_seconds: u32,
    ) -> Result<Signals, RecordError> {
        let end = Timestamp(self.begin.0 + (self.seconds * 1000.0) as i64);
        let window = ExplainWindow::new(self.begin, end, Some(bin_seconds));
        let record = MemoryRecord::new();
        let changes = &self.changes;
        for change in &changes.links {
            record.push_link_change(change.clone());
        }
        for change in &changes.settings {
            record.push_setting_change(change.clone());
        }
        for change in &changes.bans {
            record.push_ban_change(change.clone());
        }
        for minute in &self.minutes {
            let mut minute = minute.clone();
            if reports == MoverReports::None {
                forget_reports(&mut minute);
            }
            record.push_minute(minute);
        }
        Ok(read_record(&record, window, &PopulationChoice::Links)?.signals)
    }
}

/// Leaves of the copies that ended well what the service knows itself: how many, of which sizes, and how long their slots
/// moved nothing.
fn forget_reports(minute: &mut MinuteSamples) {
    for row in &mut minute.rows {
        let copies = &row.sums.copies;
        row.sums.copies = CopySums {
            files: copies.files,
            sized: copies.sized,
            bytes: copies.bytes,
            overhead_us: copies.overhead_us,
            overheads: copies.overheads,
            ..CopySums::default()
        };
    }
}

/// Counts minutes of what happens, as a service does.
struct Keeper {
    meter: MinuteMeter,
    minutes: Vec<MinuteSamples>,
    changes: Changes,
    groups: HashMap<TransferId, TransferGroup>,
    second: Vec<LinkSample>,
}

impl Keeper {
    fn new(begin: Timestamp) -> Keeper {
        Keeper {
            minutes: Vec::new(),
            meter: MinuteMeter::new(begin),
            changes: Changes::default(),
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
                self.minutes.extend(self.meter.take_over());
            }
            RecordLine::Link(change) => {
                let mut change = change.clone();
                change.at = shifted(change.at);
                self.changes.links.push(change);
            }
            RecordLine::Setting(change) => {
                let mut change = change.clone();
                change.at = shifted(change.at);
                self.changes.settings.push(change);
            }
            RecordLine::Ban(change) => {
                let mut change = change.clone();
                change.at = shifted(change.at);
                self.changes.bans.push(change);
            }
        }
    }

    fn keep_entry(&mut self, entry: &LedgerEntry, at: Timestamp) {
        let Some(group) = self.groups.get(&entry.transfer) else {
            return;
        };
        match &entry.event {
            TransferEvent::Submitted | TransferEvent::NotNeeded => {}
            event => self.meter.take_event(at, entry.transfer, group, event),
        }
        if matches!(entry.event, TransferEvent::Landed { .. }) {
            self.groups.remove(&entry.transfer);
        }
    }

    fn end(mut self, at: Timestamp) -> (Vec<MinuteSamples>, Changes) {
        self.minutes.extend(self.meter.end(at));
        (self.minutes, self.changes)
    }
}
