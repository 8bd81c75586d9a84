//! Days in which nothing is wrong: each drop that is explained there is a false explanation.

use super::TrialError;
use super::grid::Grid;
use super::record::RecordKeeper;
use crate::random::Random;
use crate::world::{BEGIN_MS, RecordLine, simulate_with_record};
use penstock_decide::explain::PopulationChoice;
use penstock_decide::explain::{Cause, RateChange, RateChangeKind};
use penstock_model::{LinkId, Timestamp};
use penstock_observe::explanations::reading::{ExplainWindow, read_record};
use penstock_observe::follow::MemoryRecord;

const DAY: f64 = 86_400.0;
const DAY_MS: i64 = 86_400_000;
/// Links with less to do than they could: the part that comes, and how much that swings over a day.
const IDLE_PART: f64 = 0.7;
const DAILY: f64 = 0.3;
/// By how much users of busy links submit more than moves, over all days.
const SURPLUS: f64 = 1.02;

/// What was explained although nothing was wrong.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QuietOutcome {
    /// Simulated days.
    pub days: u32,
    /// Links that were looked at.
    pub links: usize,
    /// On which link, when, and what was named; `None`: a drop without a cause.
    pub false_drops: Vec<(LinkId, Timestamp, Option<Cause>)>,
}

impl QuietOutcome {
    /// Drops with a cause, of the link that has most.
    pub fn explained_max(&self) -> usize {
        let named = || self.false_drops.iter().filter(|drop| drop.2.is_some());
        let of_link = |link: &LinkId| named().filter(|drop| drop.0 == *link).count();
        named().map(|drop| of_link(&drop.0)).max().unwrap_or(0)
    }
}

/// Simulates days of a grid, each explained by itself as `penstock explain` does it. `tell` hears of each day.
///
/// Errors: the simulated service broke an invariant, or its record cannot be read.
pub fn quiet_days(
    seed: u64,
    days: u32,
    tell: &mut dyn FnMut(u32),
) -> Result<QuietOutcome, TrialError> {
    let mut random = Random::new(seed ^ 0x9d1e7);
    let seconds = f64::from(days) * DAY;
    // A day is over with the next one's first second.
    let mut grid = Grid::draw(&mut random, seed, seconds + 2.0);
    for (number, pair) in grid.plan.loads.chunks_mut(2).enumerate() {
        let load = &mut pair[0];
        let part = match number % 2 {
            0 => SURPLUS,
            _ => IDLE_PART,
        };
        load.daily = if number % 2 == 0 { 0.0 } else { DAILY };
        let rate = grid.links[number].rate();
        load.files = (rate / load.size * part * seconds).ceil() as u64;
    }
    let links: Vec<LinkId> = (grid.links.iter())
        .map(|link| grid.plan.link_id(link.ends))
        .collect();
    let mut outcome = QuietOutcome {
        days,
        links: links.len(),
        false_drops: Vec::new(),
    };
    let mut day = DayRecord {
        number: 0,
        keeper: RecordKeeper::new(),
    };
    let mut failed = None;
    simulate_with_record(&grid.plan, &mut |line| {
        if let Some(finished) = day.take(line) {
            tell(finished.0);
            if let Err(why) = look_at(finished.0, finished.1, &mut outcome) {
                failed.get_or_insert(why);
            }
        }
    })?;
    match failed {
        Some(why) => Err(why),
        None => Ok(outcome),
    }
}

/// The record of the day that runs.
struct DayRecord {
    number: u32,
    keeper: RecordKeeper,
}

impl DayRecord {
    /// Gives the day that has ended with this line.
    fn take(&mut self, line: RecordLine) -> Option<(u32, MemoryRecord)> {
        let mut finished = None;
        if let RecordLine::Sample(sample) = &line
            && sample.at.0 > BEGIN_MS + i64::from(self.number + 1) * DAY_MS
        {
            finished = Some((self.number, self.keeper.cut()));
            self.number += 1;
        }
        self.keeper.take(line);
        finished
    }
}

fn look_at(
    number: u32,
    record: MemoryRecord,
    outcome: &mut QuietOutcome,
) -> Result<(), TrialError> {
    let from = Timestamp(BEGIN_MS + i64::from(number) * DAY_MS);
    let window = ExplainWindow::new(from, Timestamp(from.0 + DAY_MS), None);
    let changes = read_record(&record, window, &PopulationChoice::Links)?.changes();
    let drops = changes
        .iter()
        .filter(|it| it.kind() == RateChangeKind::Drop);
    outcome.false_drops.extend(drops.map(|change: &RateChange| {
        let told = &change.explanation;
        (told.links[0].clone(), told.from, change.first_cause())
    }));
    Ok(())
}
