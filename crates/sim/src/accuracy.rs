//! How often the explainer is right: faults are injected into simulated grids, and what `penstock explain` says of the record
//! that the simulated service keeps is compared with what was injected.
//!
//! Seeds draw grids, places, times and strengths. The explainer reads the record as it reads that of a stopped site; nothing
//! of the simulation reaches it by another way.

mod faults;
mod grid;
pub mod page;
mod quiet;
mod tally;
#[cfg(test)]
mod tests;

use faults::FaultTime;
pub use faults::{Fault, Strength};
pub use quiet::{QuietOutcome, quiet_days};
pub use tally::{Tally, TallyRow};

use crate::plan::Plan;
use crate::random::Random;
use crate::world::{BEGIN_MS, BrokenInvariant, RecordLine, simulate_with_record};
use grid::{Grid, within};
use penstock_decide::explain::{Cause, RateChange, RateChangeKind};
use penstock_model::{LinkId, Timestamp};
use penstock_observe::explanations::reading::{ExplainWindow, PopulationChoice, read_record};
use penstock_observe::follow::{MemoryRecord, Record, RecordError};
use thiserror::Error;

/// Seconds before a fault at least, in which the usual rate is seen.
const USUAL: f64 = 2400.0;
/// Seconds by which faults begin later, by chance.
const LATER: f64 = 600.0;
/// Seconds after a fault that are looked at, too.
const AFTER: f64 = 600.0;
/// A change of the rate that begins so much before a fault is not its.
const EARLY_MS: i64 = 120_000;
/// How long after its begin a fault is looked for at most, in minutes.
const LOOKS_MAX: i64 = 90;

/// A fault of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// What goes wrong.
    pub fault: Fault,
    /// How much.
    pub strength: Strength,
    /// Of chance.
    pub seed: u64,
}

/// What the explainer made of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialOutcome {
    /// A change of the victim's rate was found.
    pub is_found: bool,
    /// The first cause that was named.
    pub named: Option<Cause>,
    /// Seconds from the fault's begin until a window that ended then showed the change.
    pub found_after: Option<f64>,
    /// Bytes per second that the first fix was told to bring, and that it brings.
    pub gain: Option<(f64, f64)>,
}

/// Why a trial came to no end.
#[derive(Debug, Error)]
pub enum TrialError {
    /// The simulated service did what it must never do.
    #[error("the simulated service did what it must never do: {0}")]
    Broken(#[from] BrokenInvariant),
    /// The record could not be read.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// A grid with its fault, and the same grid without.
struct Case {
    plan: Plan,
    without: Plan,
    victim: LinkId,
    /// Seconds.
    at: f64,
    until: f64,
}

impl Trial {
    fn case(&self) -> Case {
        let number = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((self.fault as u64 + 1) << 8);
        let mut random = Random::new(number ^ self.strength as u64);
        let at = USUAL + within(&mut random, 0.0, LATER);
        let lasts = self.fault.lasts(self.strength, &mut random);
        let until = at + lasts;
        let mut grid = Grid::draw(&mut random, self.seed, until + AFTER);
        self.fault.prepare(&mut grid);
        let victim = random.below(grid.links.len());
        let loads = grid.plan.loads.len();
        let fault = self.fault;
        fault.inject(
            &mut grid,
            victim,
            FaultTime { at, lasts },
            self.strength,
            &mut random,
        );
        let mut without = grid.plan.clone();
        without.events.retain(|event| event.at < at);
        without.loads.truncate(loads);
        Case {
            victim: grid.plan.link_id(grid.links[victim].ends),
            plan: grid.plan,
            without,
            at,
            until,
        }
    }

    /// Simulates the fault, and tells the first cause that is named.
    ///
    /// Errors: the simulated service broke an invariant, or its record cannot be read.
    pub fn first_cause(&self) -> Result<Option<Cause>, TrialError> {
        let case = self.case();
        let record = record_of(&case.plan)?;
        let found = case.change_in(&record, time(case.plan.seconds))?;
        Ok(found.and_then(|change| change.first_cause()))
    }

    /// Simulates the fault, and compares all that is told with what happens.
    ///
    /// Errors: the simulated service broke an invariant, or its record cannot be read.
    pub fn run(&self) -> Result<TrialOutcome, TrialError> {
        let case = self.case();
        let record = record_of(&case.plan)?;
        let end = time(case.plan.seconds);
        let found = case.change_in(&record, end)?;
        let Some(change) = found else {
            return Ok(TrialOutcome {
                is_found: false,
                named: None,
                found_after: None,
                gain: None,
            });
        };
        Ok(TrialOutcome {
            is_found: true,
            named: change.first_cause(),
            found_after: case.found_after(&record)?,
            gain: case.gain(&change)?,
        })
    }
}

impl Case {
    /// The longest change of the victim's rate that began with the fault or during it, as a window to a time shows it.
    fn change_in(
        &self,
        record: &dyn Record,
        to: Timestamp,
    ) -> Result<Option<RateChange>, RecordError> {
        let window = ExplainWindow::new(Timestamp(BEGIN_MS), to, None);
        let wanted = PopulationChoice::Link(self.victim.to_string());
        let changes = read_record(record, window, &wanted)?.changes();
        let (from, until) = (time(self.at).0 - EARLY_MS, time(self.until).0);
        let is_its = |change: &RateChange| {
            let begin = change.explanation.from.0;
            change.kind != RateChangeKind::Rise && from <= begin && begin < until
        };
        let length = |change: &RateChange| change.explanation.to.0 - change.explanation.from.0;
        let its = changes.into_iter().filter(is_its);
        Ok(its.max_by_key(length))
    }

    fn found_after(&self, record: &dyn Record) -> Result<Option<f64>, RecordError> {
        let begin = time(self.at).0.div_euclid(60_000) * 60_000;
        for minute in 1..=LOOKS_MAX {
            let to = Timestamp(begin + minute * 60_000);
            if to > time(self.until + AFTER) {
                break;
            }
            if self.change_in(record, to)?.is_some() {
                return Ok(Some((to.0 - time(self.at).0) as f64 / 1000.0));
            }
        }
        Ok(None)
    }

    /// What the first fix was told to bring, and what the same window moves without the fault.
    fn gain(&self, change: &RateChange) -> Result<Option<(f64, f64)>, TrialError> {
        let told = &change.explanation;
        let Some(first) = told.causes.first() else {
            return Ok(None);
        };
        let (from, to) = (told.from, told.to);
        let mut bytes = 0;
        simulate_with_record(&self.without, &mut |line| {
            if let RecordLine::Sample(sample) = line
                && sample.link == self.victim
                && from < sample.at
                && sample.at <= to
            {
                bytes += sample.moved.0;
            }
        })?;
        let seconds = to.since(from).as_secs_f64();
        let rate = bytes as f64 / seconds.max(1.0);
        Ok(Some((
            first.rate_without - told.low.rate,
            rate - told.low.rate,
        )))
    }
}

fn time(second: f64) -> Timestamp {
    Timestamp(BEGIN_MS + (second * 1000.0) as i64)
}

fn record_of(plan: &Plan) -> Result<MemoryRecord, BrokenInvariant> {
    let record = MemoryRecord::new();
    simulate_with_record(plan, &mut |line| keep(&record, line))?;
    Ok(record)
}

fn keep(record: &MemoryRecord, line: RecordLine) {
    match line {
        RecordLine::Job(job) => {
            record.put_vo(job.id, job.vo.clone());
            for request in job.transfers {
                record.put_request(request);
            }
        }
        RecordLine::Entry(entry) => record.push_entry(entry),
        RecordLine::Sample(sample) => record.push_sample(sample),
        RecordLine::Second { .. } => {}
        RecordLine::Link(change) => record.push_link_change(change),
        RecordLine::Setting(change) => record.push_setting_change(change),
        RecordLine::Ban(change) => record.push_ban_change(change),
    }
}
