//! Measures how often the explainer is right: `cargo run --release -p penstock-sim --example explain_accuracy -- SEEDS QUIET_DAYS`
//! prints tables by cause and by fault. Of the open faults only with a third argument `open`; `held-out` likewise, or a fault
//! such as `SourceUplink`; a fourth one names the first seed, a fifth one the minutes after which no further seed is begun. Each trial that went wrong is told on the error output.
//! `… -- trial FAULT SEED` prints what is said of one.

use penstock_sim::accuracy::{Fault, Strength, Tally, Trial, page, quiet_days};
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, fault, seed] = &arguments[..]
        && mode == "trial"
    {
        return print_trial(fault, seed.parse()?);
    }
    let number = |at: usize, otherwise: u64| match arguments.get(at) {
        Some(text) => text.parse(),
        None => Ok(otherwise),
    };
    let (seeds, days, first) = (number(0, 1000)?, number(1, 30)?, number(3, 0)?);
    let faults = faults_called(arguments.get(2).map_or("all", String::as_str))?;
    let minutes_max = number(4, u64::MAX / 60)?;
    let time_max = Duration::from_secs(60 * minutes_max);
    let tally = run_trials(&faults, first..first + seeds, time_max)?;
    for of in [&Fault::OPEN[..], &Fault::HELD_OUT[..]] {
        let of: Vec<Fault> = of
            .iter()
            .filter(|fault| faults.contains(fault))
            .copied()
            .collect();
        if !of.is_empty() && seeds > 0 {
            println!(
                "{}\n{}",
                page::causes(&tally, &of),
                page::table(&tally, &of)
            );
        }
    }
    if days > 0 {
        let outcome = quiet_days(first, u32::try_from(days)?, &mut |day| {
            eprintln!("day {day}")
        })?;
        println!("{}", page::quiet(&outcome));
        for (link, at, cause) in &outcome.false_drops {
            println!("{link} {} {:?}", at.0, cause.map(|cause| cause.code()));
        }
    }
    Ok(())
}

fn faults_called(name: &str) -> Result<Vec<Fault>, String> {
    let all = || Fault::OPEN.into_iter().chain(Fault::HELD_OUT);
    match name {
        "all" => Ok(all().collect()),
        "open" => Ok(Fault::OPEN.to_vec()),
        "held-out" => Ok(Fault::HELD_OUT.to_vec()),
        name => match all().find(|fault| format!("{fault:?}") == name) {
            Some(fault) => Ok(vec![fault]),
            None => Err(format!(
                "no fault is called {name}; all: {:?}",
                all().collect::<Vec<_>>()
            )),
        },
    }
}

fn trial(fault: Fault, seed: u64) -> Trial {
    Trial {
        fault,
        strength: Strength::of_seed(seed),
        seed,
    }
}

fn run_trials(
    faults: &[Fault],
    seeds: std::ops::Range<u64>,
    time_max: Duration,
) -> Result<Tally, Box<dyn Error>> {
    let begun = Instant::now();
    let mut tally = Tally::default();
    for seed in seeds {
        if begun.elapsed() >= time_max {
            break;
        }
        for fault in faults {
            let trial = trial(*fault, seed);
            let outcome = trial.run()?;
            tally.add(&trial, &outcome);
            if outcome.named != Some(fault.cause()) {
                let named = outcome.named.map(|cause| cause.code());
                let of_nothing = match outcome.is_without_loss {
                    true => ", and nothing is lost",
                    false => "",
                };
                eprintln!("trial {fault:?} {seed}: {named:?} is named{of_nothing}");
            }
        }
        eprintln!("seed {seed}: {:.0} s", begun.elapsed().as_secs_f64());
    }
    Ok(tally)
}

fn print_trial(fault: &str, seed: u64) -> Result<(), Box<dyn Error>> {
    for fault in faults_called(fault)? {
        let trial = trial(fault, seed);
        for (minute, [bytes, active, limit, queued]) in trial.minutes()?.into_iter().enumerate() {
            println!(
                "{minute:4} {bytes:10.3?} bytes, {active:.1?} of {limit:.1?} slots, {queued:.1?} queued"
            );
        }
        println!("{trial:?}\n{:#?}\n{:#?}", trial.change()?, trial.run()?);
    }
    Ok(())
}
