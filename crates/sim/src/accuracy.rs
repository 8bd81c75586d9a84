//! How often the explainer is right: faults are injected into simulated grids, and what `penstock explain` says of the record
//! that the simulated service keeps is compared with what was injected.
//!
//! Seeds draw grids, places, times and strengths. The explainer reads the record as it reads that of a stopped site; nothing
//! of the simulation reaches it by another way.

mod faults;
mod grid;
pub mod page;
mod quiet;
mod record;
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
use penstock_decide::explain::PopulationChoice;
use penstock_decide::explain::{Cause, RateChange, RateChangeKind};
use penstock_model::{LinkId, Timestamp};
use penstock_observe::explanations::reading::{ExplainWindow, read_record};
use penstock_observe::follow::{MemoryRecord, Record, RecordError};
use record::RecordKeeper;
use thiserror::Error;

/// Seconds before a fault at least, in which the usual rate is seen.
const USUAL: f64 = 900.0;
/// Seconds by which faults begin later, by chance.
const LATER: f64 = 300.0;
/// Seconds after a fault that are looked at, too.
const AFTER: f64 = 300.0;
/// A change of the rate that begins so much before a fault is not its.
const EARLY_MS: i64 = 120_000;
/// How long after its begin a fault is looked for at most, in minutes.
const LOOKS_MAX: i64 = 90;
/// A fault takes something from a link when it moves less than this part of what it moves without the fault, while the fault lasts.
const LEFT_PART_MAX: f64 = 0.9;
/// Of so many seeds two tell what the first fix brings, one of each strength: it takes a simulation of its own.
const GAIN_OF_SEEDS: u64 = 8;

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
    /// None was found, and there is none: the fault took less than a tenth of what the link moves without it. The queue of before may
    /// have lasted longer than the fault, or other links may have left it their room.
    pub is_without_loss: bool,
    /// The first cause that was named.
    pub named: Option<Cause>,
    /// Seconds from the fault's begin until a window that ended then named the injected cause first; `None` when the
    /// whole window names another.
    pub named_after: Option<f64>,
    /// Of the first fix, unless it was told to bring nothing; of a quarter of the seeds.
    pub gain: Option<Gain>,
}

/// Bytes per second that a fix brings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gain {
    pub predicted: f64,
    /// By a simulation without the fault; nothing when the fix is that of another cause.
    pub simulated: f64,
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
        let drawn = random.below(grid.links.len());
        let victim = self.fault.victim(&grid, drawn);
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

    /// Simulates the fault, and tells the change of the rate that it made, as it is explained.
    ///
    /// Errors: the simulated service broke an invariant, or its record cannot be read.
    pub fn change(&self) -> Result<Option<RateChange>, TrialError> {
        let case = self.case();
        let record = record_of(&case.plan)?;
        Ok(case.change_in(&record, time(case.plan.seconds))?)
    }

    /// What the record tells of the link, minute by minute: bytes, running, allowed and queued files.
    ///
    /// Errors: the simulated service broke an invariant, or its record cannot be read.
    pub fn minutes(&self) -> Result<Vec<[Option<f64>; 4]>, TrialError> {
        let case = self.case();
        let record = record_of(&case.plan)?;
        let end = time(case.plan.seconds);
        let window = ExplainWindow::new(Timestamp(BEGIN_MS), end, None);
        let read = read_record(&record, window, &PopulationChoice::Links)?;
        let Some(link) = read.signals.links.get(&case.victim) else {
            return Ok(Vec::new());
        };
        let columns = [&link.copied_bytes, &link.active, &link.limit, &link.queued];
        let row = |minute| columns.map(|column| column.at(minute));
        Ok((0..read.signals.bins).map(row).collect())
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
                is_without_loss: case.is_without_loss()?,
                named: None,
                named_after: None,
                gain: None,
            });
        };
        let named = change.first_cause();
        let is_right = named == Some(self.fault.cause());
        let named_after = match is_right {
            true => case.named_after(&record, self.fault.cause())?,
            false => None,
        };
        Ok(TrialOutcome {
            is_found: true,
            is_without_loss: false,
            named,
            named_after,
            gain: match self.seed % GAIN_OF_SEEDS < 2 {
                true => case.gain(&change, is_right)?,
                false => None,
            },
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
            change.kind() != RateChangeKind::Rise && from <= begin && begin < until
        };
        let length = |change: &RateChange| change.explanation.to.0 - change.explanation.from.0;
        let its = changes.into_iter().filter(is_its);
        Ok(its.max_by_key(length))
    }

    fn named_after(&self, record: &dyn Record, cause: Cause) -> Result<Option<f64>, RecordError> {
        let begin = time(self.at).0.div_euclid(60_000) * 60_000;
        for minute in 1..=LOOKS_MAX {
            let to = Timestamp(begin + minute * 60_000);
            if to > time(self.until + AFTER) {
                break;
            }
            let change = self.change_in(record, to)?;
            if change.and_then(|change| change.first_cause()) == Some(cause) {
                return Ok(Some((to.0 - time(self.at).0) as f64 / 1000.0));
            }
        }
        Ok(None)
    }

    /// What the first fix was told to bring, and what the same window moves without the fault.
    fn gain(&self, change: &RateChange, is_right: bool) -> Result<Option<Gain>, TrialError> {
        let told = &change.explanation;
        let predicted = (told.causes.first()).map(|first| first.rate_without - told.low.rate);
        let Some(predicted) = predicted.filter(|predicted| *predicted > 0.0) else {
            return Ok(None);
        };
        let simulated = match is_right {
            true => self.rate_without(told.from, told.to)? - told.low.rate,
            false => 0.0,
        };
        Ok(Some(Gain {
            predicted,
            simulated,
        }))
    }

    fn rate_without(&self, from: Timestamp, to: Timestamp) -> Result<f64, BrokenInvariant> {
        let bytes = self.bytes_in(&self.without, from, to)?;
        Ok(bytes as f64 / to.since(from).as_secs_f64().max(1.0))
    }

    /// The fault took next to nothing from the victim while it lasted.
    fn is_without_loss(&self) -> Result<bool, BrokenInvariant> {
        let (from, to) = (time(self.at), time(self.until));
        let with = self.bytes_in(&self.plan, from, to)?;
        let without = self.bytes_in(&self.without, from, to)?;
        Ok(with as f64 >= LEFT_PART_MAX * without as f64)
    }

    /// Bytes that the victim moves in a stretch of a plan.
    fn bytes_in(
        &self,
        plan: &Plan,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<u64, BrokenInvariant> {
        let mut bytes = 0;
        let until = (to.0 - BEGIN_MS) as f64 / 1000.0 + 1.0;
        let plan = Plan {
            seconds: until.min(plan.seconds),
            ..plan.clone()
        };
        simulate_with_record(&plan, &mut |line| {
            if let RecordLine::Sample(sample) = line
                && sample.link == self.victim
                && from < sample.at
                && sample.at <= to
            {
                bytes += sample.moved.0;
            }
        })?;
        Ok(bytes)
    }
}

fn time(second: f64) -> Timestamp {
    Timestamp(BEGIN_MS + (second * 1000.0) as i64)
}

fn record_of(plan: &Plan) -> Result<MemoryRecord, BrokenInvariant> {
    let mut keeper = RecordKeeper::new();
    simulate_with_record(plan, &mut |line| keeper.take(line))?;
    Ok(keeper.cut())
}
