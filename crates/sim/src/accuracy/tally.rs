//! Outcomes of many trials, by fault and strength.

use super::{Fault, Strength, Trial, TrialOutcome};
use penstock_decide::explain::Cause;
use std::collections::BTreeMap;

/// What counts as found at once, in seconds.
pub const FOUND_WITHIN: f64 = 180.0;
/// What a fix may bring of what was told.
pub const GAIN_PARTS: std::ops::RangeInclusive<f64> = 0.75..=1.25;

/// All outcomes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    pub rows: BTreeMap<(Fault, Strength), TallyRow>,
}

/// Trials of one fault.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TallyRow {
    /// In which the fault took something from the link.
    pub trials: u32,
    /// Further ones, in which it took nothing and nothing was told.
    pub without_loss: u32,
    /// In which a change was found.
    pub found: u32,
    /// In which the first cause is the one that was injected.
    pub right: u32,
    /// Seconds until the right cause was named, of each that was.
    pub delays: Vec<f64>,
    /// Explanations with a gain, and those of which the fix brings what was told.
    pub gains: (u32, u32),
    /// What was named first instead; `None`: nothing.
    pub others: BTreeMap<Option<Cause>, u32>,
}

impl Tally {
    pub fn add(&mut self, trial: &Trial, outcome: &TrialOutcome) {
        let row = self.rows.entry((trial.fault, trial.strength)).or_default();
        if outcome.is_without_loss {
            row.without_loss += 1;
            return;
        }
        row.trials += 1;
        row.found += u32::from(outcome.is_found);
        match outcome.named == Some(trial.fault.cause()) {
            true => row.right += 1,
            false => *row.others.entry(outcome.named).or_default() += 1,
        }
        row.delays.extend(outcome.named_after);
        if let Some(gain) = outcome.gain {
            row.gains.0 += 1;
            row.gains.1 += u32::from(GAIN_PARTS.contains(&(gain.simulated / gain.predicted)));
        }
    }

    /// The rows of some faults as one.
    pub fn of(&self, wanted: impl Fn(Fault) -> bool) -> TallyRow {
        let mut all = TallyRow::default();
        for row in self.rows.iter().filter(|((fault, _), _)| wanted(*fault)) {
            all.plus(row.1);
        }
        all
    }
}

impl TallyRow {
    fn plus(&mut self, other: &TallyRow) {
        self.trials += other.trials;
        self.without_loss += other.without_loss;
        self.found += other.found;
        self.right += other.right;
        self.delays.extend(&other.delays);
        self.gains.0 += other.gains.0;
        self.gains.1 += other.gains.1;
        for (named, count) in &other.others {
            *self.others.entry(*named).or_default() += count;
        }
    }

    /// Trials in which the right cause was named at once.
    pub fn prompt(&self) -> u32 {
        let prompt = self.delays.iter().filter(|delay| **delay <= FOUND_WITHIN);
        prompt.count() as u32
    }

    /// The delay that this part of those found does not exceed.
    pub fn delay(&self, quantile: f64) -> Option<f64> {
        let mut delays = self.delays.clone();
        delays.sort_by(f64::total_cmp);
        let last = delays.len().checked_sub(1)?;
        delays
            .get((last as f64 * quantile).round() as usize)
            .copied()
    }
}
