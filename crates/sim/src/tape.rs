//! A tape library with its demand, in virtual time: the request engine that drives a library, around it drives and robots that
//! take as long as the time model says. Equal plans with equal seeds give equal runs.

pub mod challenge_2021;
mod demand;
#[cfg(test)]
mod explained;
mod library_world;
mod phases;
mod plan;
mod report;
#[cfg(test)]
mod tests;
mod usage;

pub use demand::{LogError, RecallLog};
pub use phases::{Phase, PhaseTimes};
pub use plan::{ReadPolicy, TapePlan, TapePlanError};
pub use report::TapeReport;
pub use usage::{Activity, DrivePeak, LateRecalls, VoUsage};

use library_world::LibraryWorld;

/// A plan to begin with: a week of recalls as CC-IN2P3 had them in October 2021, scaled down to a tenth.
pub const EXAMPLE: &str = include_str!("../plans/tape-week.json");

/// Runs a plan under one policy. Recalls of a log take the place of the plan's.
pub fn simulate_tape(
    plan: &TapePlan,
    log: Option<&RecallLog>,
    policy: ReadPolicy,
) -> Result<TapeReport, TapePlanError> {
    let forecasts = match policy {
        ReadPolicy::Serpentine => Forecasts::OfSomeBulks,
        // Nobody is told forecasts by other rules, and with long queues each costs as much as the run.
        ReadPolicy::Position | ReadPolicy::Fifo => Forecasts::None,
    };
    run(plan, log, (policy, forecasts))
}

/// Whether it is foretold when requests will have their end, which costs as much as the run itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forecasts {
    OfSomeBulks,
    None,
}

fn run(
    plan: &TapePlan,
    log: Option<&RecallLog>,
    (policy, forecasts): (ReadPolicy, Forecasts),
) -> Result<TapeReport, TapePlanError> {
    let demand = demand::Demand::new(plan, log)?;
    let mut world = LibraryWorld::new(plan, &demand, (policy, forecasts))?;
    world.run();
    Ok(world.report(policy))
}
