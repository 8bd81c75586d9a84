//! The tape challenge of October 2021: `cargo run --release -p penstock-sim --example tape_challenge -- MODE [write]`
//!
//! `part` makes the tables of an eighth of the site, `seeds` the ranges of several seeds of it, `whole` the tables of all of it (some
//! minutes). Each prints them and fails unless what should come of it does and `docs/tape/challenge-2021.md` says the same; with
//! `write` it writes them there.

use penstock_sim::made_page::{Block, renewed};
use penstock_sim::tape::challenge_2021::{Challenge, Part, SEEDS, SeedRuns, contradictions};
use std::error::Error;
use std::path::Path;

/// What is written on the page, and what should come out and does not.
type Outcome = (Vec<Block>, Vec<String>);

fn run(mode: &str) -> Result<Outcome, Box<dyn Error>> {
    let seed = SEEDS[0];
    Ok(match mode {
        "part" => {
            let part = Challenge::run(Part::EIGHTH, seed)?;
            (vec![part.block(), contradictions()], part.shortfalls())
        }
        "seeds" => {
            let runs = SeedRuns::run(Part::EIGHTH, &SEEDS)?;
            (vec![runs.block()], runs.shortfalls())
        }
        "whole" => {
            let whole = Challenge::run(Part::WHOLE, seed)?;
            (vec![whole.block()], whole.shortfalls())
        }
        _ => return Err("say part, seeds or whole".into()),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let is_written = match arguments.next().as_deref() {
        None => false,
        Some("write") => true,
        Some(other) => return Err(format!("'{other}' is not write").into()),
    };
    let (blocks, mut shortfalls) = run(&mode)?;
    for block in &blocks {
        println!("{}", block.text);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tape/challenge-2021.md");
    let page = std::fs::read_to_string(&path)?;
    let now = renewed(&page, &blocks)?;
    if is_written {
        std::fs::write(&path, now)?;
    } else if now != page {
        shortfalls.push(format!(
            "the page says otherwise: write it anew with '{mode} write'"
        ));
    }
    match shortfalls.as_slice() {
        [] => Ok(()),
        found => Err(found.join("\n").into()),
    }
}
