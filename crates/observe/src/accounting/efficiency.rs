//! The matrix of efficiencies: how well attempts went from each source to each destination, or from cloud to cloud.

use super::clouds::Clouds;
use super::names::NameNumbers;
use super::{
    EVENT, NAMES_MAX, OTHERS, PublishedRate, SUCCESS_RULE, Statement, UNKNOWN, arrived_of, bytes,
    efficiency_percent,
};
use crate::rate::Window;
use penstock_model::Bytes;
use penstock_model::observation::{Attempt, Operation, Outcome, View};
use serde::Serialize;
use std::collections::BTreeMap;

/// Source × destination, in one view and operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EfficiencyMatrix {
    pub view: View,
    pub operation: Operation,
    /// `None`: nobody named a time and no record tells one.
    pub statement: Option<Statement>,
    /// Cells in which something ended.
    pub cells: Vec<EfficiencyCell>,
}

/// From one source to one destination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EfficiencyCell {
    /// Storage element, or cloud.
    pub source: String,
    /// The same.
    pub destination: String,
    /// Attempts that ended well.
    pub succeeded: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were stopped by who had asked for them: not in the efficiency.
    pub aborted: u64,
    /// Successes in percent of successes and failures. `None`: all were stopped.
    pub efficiency_percent: Option<f64>,
    /// Bytes of files that arrived, as far as they are told.
    pub arrived: Bytes,
    /// The same over the window.
    pub rate: Option<PublishedRate>,
}

#[derive(Debug, Default)]
struct Sum {
    succeeded: u64,
    failed: u64,
    aborted: u64,
    arrived: u128,
}

/// Takes attempts of which an end is told.
#[derive(Debug, Default)]
pub(super) struct EfficiencySums {
    names: NameNumbers,
    /// By the numbers of source and destination.
    sums: BTreeMap<(View, Operation), BTreeMap<(u32, u32), Sum>>,
    has_clouds: bool,
}

impl EfficiencySums {
    pub(super) fn take(&mut self, row: &Attempt, outcome: Outcome, clouds: &Clouds) {
        if row.source_host.is_none() && row.destination_host.is_none() {
            return;
        }
        self.has_clouds |= !clouds.is_empty();
        let cloud = |host| Option::map_or(host, UNKNOWN, |host| clouds.name_of(host));
        let source = cloud(row.source_host.as_deref());
        let destination = cloud(row.destination_host.as_deref());
        let cells = self.sums.entry((row.view, row.operation)).or_default();
        let names = &mut self.names;
        let ends = if cells.len() >= NAMES_MAX {
            let known = names.known(source).zip(names.known(destination));
            let others = names.number(OTHERS);
            let known = known.filter(|ends| cells.contains_key(ends));
            known.unwrap_or((others, others))
        } else {
            (names.number(source), names.number(destination))
        };
        let sum = cells.entry(ends).or_default();
        match outcome {
            Outcome::Success => {
                sum.succeeded += 1;
                sum.arrived += arrived_of(row).map_or(0, |arrived| u128::from(arrived.0));
            }
            Outcome::Failure => sum.failed += 1,
            Outcome::Abort => sum.aborted += 1,
        }
    }

    pub(super) fn matrices(self, window: Option<Window>) -> Vec<EfficiencyMatrix> {
        let ends = match self.has_clouds {
            true => "clouds",
            false => "storage elements",
        };
        let names = &self.names;
        let name = |number: u32| names.name(number).to_owned();
        let matrices = self.sums.into_iter().map(|((view, operation), cells)| {
            let cells = cells.into_iter();
            let cells = cells.map(|((source, destination), sum)| ((name(source), name(destination)), sum));
            let cells: BTreeMap<(String, String), Sum> = cells.collect();
            let cells = cells.into_iter().map(|((source, destination), sum)| {
                let population = format!(
                    "{} attempts from {source} to {destination} that arrived",
                    operation.word()
                );
                let arrived = bytes(sum.arrived);
                EfficiencyCell {
                    source,
                    destination,
                    succeeded: sum.succeeded,
                    failed: sum.failed,
                    aborted: sum.aborted,
                    efficiency_percent: efficiency_percent(sum.succeeded, sum.failed),
                    arrived,
                    rate: window.and_then(|window| {
                        PublishedRate::of_arrived(view, window, arrived, population)
                    }),
                }
            });
            EfficiencyMatrix {
                view,
                operation,
                statement: window.map(|window| Statement {
                    population: format!(
                        "{} attempts that succeeded or failed, by {ends}; attempts that were stopped are left out",
                        operation.word()
                    ),
                    window,
                    event: EVENT,
                    unit: "successes in percent of successes and failures",
                    success_rule: SUCCESS_RULE,
                    view,
                }),
                cells: cells.collect(),
            }
        });
        matrices.collect()
    }
}
