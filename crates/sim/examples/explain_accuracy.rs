//! Measures how often the explainer is right: `cargo run --release -p penstock-sim --example explain_accuracy -- SEEDS QUIET_DAYS`
//! prints tables by cause and by fault. Of the open faults only with a third argument `open`; `held-out` likewise;
//! a fourth one names the first seed.

use penstock_sim::accuracy::{Fault, Strength, Tally, Trial, page, quiet_days};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, otherwise: u64| match arguments.get(at) {
        Some(text) => text.parse(),
        None => Ok(otherwise),
    };
    let (seeds, days, first) = (number(0, 1000)?, number(1, 30)?, number(3, 0)?);
    let faults: Vec<Fault> = match arguments.get(2).map(String::as_str) {
        Some("open") => Fault::OPEN.to_vec(),
        Some("held-out") => Fault::HELD_OUT.to_vec(),
        _ => Fault::OPEN.into_iter().chain(Fault::HELD_OUT).collect(),
    };
    let begun = Instant::now();
    let mut tally = Tally::default();
    for seed in first..first + seeds {
        for fault in &faults {
            for strength in Strength::ALL {
                let trial = Trial {
                    fault: *fault,
                    strength,
                    seed,
                };
                tally.add(&trial, &trial.run()?);
            }
        }
        eprintln!("seed {seed}: {:.0} s", begun.elapsed().as_secs_f64());
    }
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
