//! `penstock simulate`: runs a plan of storages, networks and users in virtual time, under one policy or several.

mod tape;

use super::records::{local, open};
use crate::args::{SimulateArgs, SimulateCommand};
use crate::exit::CommandError;
use crate::output::Output;
use indicatif::{ProgressBar, ProgressStyle};
use penstock_observe::store::Store;
use penstock_sim::report::{page, words};
use penstock_sim::trouble;
use penstock_sim::{Plan, Policy, Progress, Report, simulate, simulate_recorded};
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};

const LOG_EVERY: Duration = Duration::from_secs(5);

/// `penstock simulate`.
pub fn run(args: &SimulateArgs, output: Output) -> Result<(), CommandError> {
    if let Some(SimulateCommand::Tape(args)) = &args.command {
        return tape::run(args, output);
    }
    if let Some(name) = &args.example {
        let found = penstock_sim::plan::EXAMPLES
            .iter()
            .find(|(known, _)| known == name);
        let (_, text) = found.ok_or_else(|| CommandError::Usage(unknown_example(name)))?;
        output.show(text, || (*text).to_owned());
        return Ok(());
    }
    if let Some(seed) = args.trouble {
        return endure(seed, args.seeds, output);
    }
    let path = args.plan.as_deref().ok_or_else(|| {
        let what = "name a plan, or create one: penstock simulate --example > plan.toml";
        CommandError::Usage(what.to_owned())
    })?;
    let mut plan = read(path)?;
    if let Some(seed) = args.seed {
        plan.seed = seed;
    }
    if let Some(length) = args.length {
        plan.seconds = length.0.as_secs_f64().clamp(1.0, plan.seconds);
    }
    let policies = match args.policies.is_empty() {
        true => vec![plan.service.policy],
        false => args.policies.clone(),
    };
    let mut store = match &args.records {
        Some(_) if policies.len() > 1 => {
            let what = "--records stores the records of one run; name one policy";
            return Err(CommandError::Usage(what.to_owned()));
        }
        Some(directory) => Some(open(directory)?),
        None => None,
    };
    let mut reports = Vec::new();
    for policy in policies {
        reports.push(run_one(&plan, policy, path, store.as_mut(), output)?);
    }
    if let Some(directory) = &args.out {
        write(directory, &reports)?;
        output.say(format!(
            "wrote the page with plots: {}",
            directory.join("report.html").display()
        ));
    }
    output.show(&reports, || match reports.as_slice() {
        [one] => words::told(one),
        several => words::compared(several),
    });
    Ok(())
}

/// Random trouble, seed by seed.
fn endure(first: u64, seeds: u64, output: Output) -> Result<(), CommandError> {
    let mut told = Instant::now();
    let mut tell = |seed: u64| {
        if !output.json && told.elapsed() >= LOG_EVERY {
            told = Instant::now();
            eprintln!("{} of {seeds} seeds passed", seed - first + 1);
        }
    };
    let endured = trouble::endure(first..first.saturating_add(seeds), &mut tell);
    let endured = endured.map_err(|(seed, broken)| {
        CommandError::Verification(format!(
            "{}\nthe service did what it must never do, at {broken}\nThis is a defect of it. To see it again: \
             penstock simulate --trouble {seed}",
            broken.before.join("\n")
        ))
    })?;
    output.show(&endured, || {
        format!(
            "{} seeds from {first}: {} transfers, {} failed attempts, {} lost with a leader, {} inputs; all \
             invariants held\n",
            endured.seeds, endured.transfers, endured.failures, endured.losses, endured.inputs
        )
    });
    Ok(())
}

fn unknown_example(name: &str) -> String {
    let known = penstock_sim::plan::EXAMPLES.iter().map(|(name, _)| *name);
    let known: Vec<&str> = known.collect();
    format!(
        "there is no example '{name}'; the examples are {}",
        known.join(", ")
    )
}

fn read(path: &Path) -> Result<Plan, CommandError> {
    let failed = |why: &dyn Display| CommandError::Usage(format!("{}: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|why| failed(&why))?.len();
    let most = penstock_sim::plan::limits::TEXT as u64;
    if size > most {
        return Err(failed(&format!(
            "it has {size} bytes; the limit for a plan is {most}"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|why| failed(&why))?;
    Plan::parse(&text).map_err(|why| failed(&why))
}

fn run_one(
    plan: &Plan,
    policy: Policy,
    path: &Path,
    store: Option<&mut Store>,
    output: Output,
) -> Result<Report, CommandError> {
    let mut plan = plan.clone();
    plan.service.policy = policy;
    let mut display = RunProgress::new(output, policy);
    let mut tell = |progress| display.show(progress);
    let outcome = match store {
        None => simulate(&plan, &mut tell),
        Some(store) => {
            let mut written = Ok(());
            let outcome = simulate_recorded(&plan, &mut tell, &mut |row| {
                if written.is_ok() {
                    written = store.append(&row);
                }
            });
            written.and_then(|()| store.flush()).map_err(local)?;
            outcome
        }
    };
    display.clear();
    outcome.map_err(|broken| {
        CommandError::Verification(format!(
            "the service did what it must never do, at {broken}\nThis is a defect of it. To see it again: \
             penstock simulate {} --seed {} --policy {policy}",
            path.display(),
            plan.seed
        ))
    })
}

fn write(directory: &Path, reports: &[Report]) -> Result<(), CommandError> {
    let failed = |why: std::io::Error| CommandError::local(directory.display(), why);
    std::fs::create_dir_all(directory).map_err(failed)?;
    std::fs::write(directory.join("report.html"), page::page(reports)).map_err(failed)?;
    let json = serde_json::to_string(reports).expect("plain data serialises");
    std::fs::write(directory.join("report.json"), json).map_err(failed)
}

/// How far a run is: a bar for a person who watches, a line now and then in a log.
enum RunProgress {
    Bar(ProgressBar, Policy),
    Lines(Instant, Policy),
    Silent,
}

impl RunProgress {
    fn new(output: Output, policy: Policy) -> RunProgress {
        if output.json {
            return RunProgress::Silent;
        }
        if !output.is_watched() {
            return RunProgress::Lines(Instant::now(), policy);
        }
        let style = ProgressStyle::with_template("{wide_bar} {msg}").expect("a valid template");
        RunProgress::Bar(ProgressBar::new(1).with_style(style), policy)
    }

    fn show(&mut self, progress: Progress) {
        let text = |policy: &Policy| {
            let (now, end) = progress.seconds;
            let (done, all) = progress.files;
            format!(
                "{policy}: {:.1} of at most {:.1} h, {done} of {all} files finished",
                now / 3600.0,
                end / 3600.0
            )
        };
        match self {
            RunProgress::Silent => {}
            RunProgress::Bar(bar, policy) => {
                bar.set_length(progress.files.1.max(1));
                bar.set_position(progress.files.0);
                bar.set_message(text(policy));
            }
            RunProgress::Lines(last, policy) => {
                if last.elapsed() >= LOG_EVERY {
                    *last = Instant::now();
                    eprintln!("{}", text(policy));
                }
            }
        }
    }

    fn clear(&self) {
        if let RunProgress::Bar(bar, _) = self {
            bar.finish_and_clear();
        }
    }
}
