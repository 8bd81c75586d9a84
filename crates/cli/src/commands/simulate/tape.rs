//! `penstock simulate tape`.

use crate::args::SimulateTapeArgs;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_model::TimeSpan;
use penstock_sim::tape::{EXAMPLE, ReadPolicy, RecallLog, TapePlan, TapeReport, simulate_tape};
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

/// Bytes of a plan or a log at most.
const TEXT_MAX: u64 = 1_000_000_000;

pub(super) fn run(args: &SimulateTapeArgs, output: Output) -> Result<(), CommandError> {
    let Some(path) = args.plan.as_deref() else {
        output.show(&EXAMPLE, || EXAMPLE.to_owned());
        return Ok(());
    };
    let mut plan = TapePlan::parse(&read(path)?).map_err(|why| wrong(path, &why))?;
    if let Some(seed) = args.seed {
        plan.seed = seed;
    }
    let log = match args.log.as_deref() {
        None => None,
        Some(path) => Some(RecallLog::parse(&read(path)?).map_err(|why| wrong(path, &why))?),
    };
    let policies = match args.policies.as_slice() {
        [] => &ReadPolicy::ALL[..],
        some => some,
    };
    let mut reports = Vec::new();
    for policy in policies {
        let report = simulate_tape(&plan, log.as_ref(), *policy);
        reports.push(report.map_err(|why| wrong(path, &why))?);
    }
    output.show(&reports, || table(&plan.name, &reports));
    Ok(())
}

fn wrong(path: &Path, why: &dyn Display) -> CommandError {
    let path = path.display();
    CommandError::Usage(format!(
        "{path}: {why}; see `penstock simulate tape --help`"
    ))
}

fn read(path: &Path) -> Result<String, CommandError> {
    let failed = |why| CommandError::local(path.display(), why);
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > TEXT_MAX {
        return Err(wrong(path, &format!("it has more than {TEXT_MAX} bytes")));
    }
    std::fs::read_to_string(path).map_err(failed)
}

fn span(seconds: f64) -> String {
    let seconds = Duration::from_secs_f64(seconds.max(0.0).round());
    TimeSpan(seconds).to_string()
}

fn table(name: &str, reports: &[TapeReport]) -> String {
    let mut text = format!(
        "{name}\npolicy      recalled archived  failed    open  mounts  tapes  of native  wait p50       p95            \
         max\n"
    );
    for report in reports {
        let waits = &report.recall_waits;
        text += &format!(
            "{:<10} {:>9} {:>8} {:>7} {:>7} {:>7} {:>6} {:>8.1} %  {:<13}  {:<13}  {}\n",
            report.policy.name(),
            report.recalled,
            report.archived,
            report.failed,
            report.open,
            report.mounts,
            report.distinct_tapes,
            report.efficiency * 100.0,
            span(waits.p50_seconds),
            span(waits.p95_seconds),
            span(waits.max_seconds),
        );
    }
    text += "\nWaits are those of recalls. Of native: bytes moved, divided by the occupied time of drives at their native rate.\n\
             A mount takes, in seconds:\n";
    for report in reports {
        let mounts = report.mounts.max(1) as f64;
        let phases = report.phases.iter();
        let phases = phases.map(|one| format!("{} {:.1}", one.phase, one.seconds / mounts));
        let phases: Vec<String> = phases.collect();
        text += &format!(
            "{:<10} {:.1} = {}\n",
            report.policy.name(),
            report.occupied_seconds / mounts,
            phases.join(" + ")
        );
    }
    text
}
