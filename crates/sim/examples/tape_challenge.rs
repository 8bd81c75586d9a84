//! The tape challenge of October 2021: `cargo run --release -p penstock-sim --example tape_challenge -- MODE`
//!
//! `part` prints the tables of an eighth of the site, `whole` those of all of it (many minutes), and both fail unless what should
//! come of it does; `write` writes the tables into `docs/tape/challenge-2021.md`.

use penstock_sim::made_page::renewed;
use penstock_sim::tape::challenge_2021::{Challenge, Part, contradictions};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let part = match mode.as_str() {
        "part" | "write" => Part::EIGHTH,
        "whole" => Part::WHOLE,
        _ => return Err("say part, whole or write".into()),
    };
    let seed = std::env::args()
        .nth(2)
        .map_or(Ok(2021), |seed| seed.parse())?;
    let challenge = Challenge::run(part, seed)?;
    if mode == "write" {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tape/challenge-2021.md");
        let page = std::fs::read_to_string(&path)?;
        let now = renewed(&page, &[challenge.block(), contradictions()])?;
        return Ok(std::fs::write(&path, now)?);
    }
    println!("{}", challenge.block().text);
    match challenge.shortfalls().as_slice() {
        [] => Ok(()),
        found => Err(found.join("\n").into()),
    }
}
