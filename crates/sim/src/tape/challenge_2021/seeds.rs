//! The same challenge with several seeds: how much of what a table says is chance.

use super::{Challenge, JAGUAR, Part, T10KD};
use crate::made_page::Block;
use crate::tape::plan::TapePlanError;
use crate::tape::report::TapeReport;
use crate::tape::usage::Activity;
use std::fmt::Write;

/// A figure of one run, and how it is written.
type Figure = (&'static str, usize, fn(&Challenge) -> f64);

/// What is compared.
const FIGURES: [Figure; 15] = [
    ("scatter, fitted on ATLAS", 1, |run| run.scatter),
    (
        "ATLAS, GB/s over all hours (printed: 0.89, 1.02)",
        2,
        |run| run.read_back_of("ATLAS").wall_clock / 1e9,
    ),
    ("ATLAS, GB/s in hours with bytes", 2, |run| {
        run.read_back_of("ATLAS").active / 1e9
    }),
    ("ATLAS, GB/s in the busiest hour (2.63, 2.7)", 2, |run| {
        run.read_back_of("ATLAS").busiest / 1e9
    }),
    ("CMS, GB/s over all hours (1.22)", 2, |run| {
        run.read_back_of("CMS").wall_clock / 1e9
    }),
    ("CMS, GB/s in hours with bytes (3.20)", 2, |run| {
        run.read_back_of("CMS").active / 1e9
    }),
    ("CMS, GB/s in the busiest hour (6.73, 5.0)", 2, |run| {
        run.read_back_of("CMS").busiest / 1e9
    }),
    ("T10KD drives that stage at once (48)", 0, |run| {
        f64::from(run.recall_peak(T10KD))
    }),
    ("Jaguar-E drives that stage at once (below 36)", 0, |run| {
        f64::from(run.recall_peak(JAGUAR))
    }),
    ("ATLAS, % of native, rules of 2021", 1, |run| {
        percent(&run.as_it_was, "ATLAS")
    }),
    ("ATLAS, % of native, our rules", 1, |run| {
        percent(&run.ours, "ATLAS")
    }),
    ("ATLAS, gain", 2, |run| run.gain("ATLAS").unwrap_or(0.0)),
    (
        "% of recalls beyond their deadline, rules of 2021",
        1,
        |run| 100.0 * run.as_it_was.late.all as f64 / run.as_it_was.recalled.max(1) as f64,
    ),
    ("recalls beyond their deadline, our rules", 0, |run| {
        (run.ours.late.all + run.targets.late.all) as f64
    }),
    ("targets that are missed, of six", 0, |run| {
        let missed = run.outcomes().into_iter().filter(|one| !one.is_met());
        missed.count() as f64
    }),
];

fn percent(report: &TapeReport, vo: &str) -> f64 {
    let usage = report.usage_of(vo, Activity::Recall);
    usage.map_or(0.0, |usage| usage.efficiency * 100.0)
}

/// Runs that differ in their seeds alone.
pub struct SeedRuns(Vec<Challenge>);

/// Seeds of the table of an eighth: enough to see a range.
pub const SEEDS: [u64; 5] = [2021, 2022, 2023, 2024, 2025];

impl SeedRuns {
    pub fn run(part: Part, seeds: &[u64]) -> Result<SeedRuns, TapePlanError> {
        let runs = seeds.iter().map(|seed| Challenge::run(part, *seed));
        Ok(SeedRuns(runs.collect::<Result<_, _>>()?))
    }

    /// Mean, least and most of each figure.
    pub fn block(&self) -> Block {
        let mut text = format!(
            "| figure, of {} seeds (printed: VOs, site) | mean | least | most |\n|---|---:|---:|---:|\n",
            self.0.len()
        );
        for (name, digits, of) in FIGURES {
            let values: Vec<f64> = self.0.iter().map(of).collect();
            let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let _ = writeln!(
                text,
                "| {name} | {mean:.digits$} | {least:.digits$} | {most:.digits$} |"
            );
        }
        Block {
            name: "seeds",
            text,
        }
    }

    /// What does not come out of a run that should, with its seed.
    pub fn shortfalls(&self) -> Vec<String> {
        let of = |run: &Challenge| {
            let found = run.shortfalls().into_iter();
            found
                .map(|one| format!("seed {}: {one}", run.seed))
                .collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }
}
