//! What can be typed about simulations of other things than grids.

use clap::{Args, Subcommand};
use penstock_sim::tape::ReadPolicy;
use std::path::PathBuf;

/// What can be simulated beside a grid.
#[derive(Debug, Subcommand)]
pub enum SimulateCommand {
    /// Simulate a tape library: replay days of recalls and archiving in seconds, under several rules side by side.
    ///
    /// Drives, robot and cartridges take as long as a model of their times says (loads, locates over wraps and bands, rewinds,
    /// file marks, turns); the engine that decides about mounts and orders is the one that is to drive a real library.
    ///
    /// The plan is JSON: `library`, `drives`, `recalls`, `archives`, `faults`. docs/tape/simulate.md describes every key.
    /// Kinds of drives are 9940B, T10000D, TS1160, LTO-7, LTO-8, LTO-9 and LTO-10; `kinds` describes others.
    ///
    /// Rules: `fifo` mounts for each request, `position` gathers for four minutes and reads from where the head is to the end of
    /// the tape, then from its beginning, as TREQS does, `serpentine` mounts what is worth it and reads in the order in which the drive reaches files soonest.
    ///
    /// A log of recalls has the columns seconds,vo,kind,tape,begin_bytes,size_bytes, named in its first line; `seconds` count from
    /// the begin of the simulation.
    ///
    /// Examples:
    ///
    ///   penstock simulate tape --example > week.json         # a plan to begin with
    ///   penstock simulate tape week.json                     # all rules side by side
    ///   penstock simulate tape week.json --policy serpentine --json
    ///   penstock simulate tape week.json --log recalls.csv   # what a site was asked for, on the plan's library
    #[command(verbatim_doc_comment)]
    Tape(SimulateTapeArgs),
}

/// Options of `simulate tape`.
#[derive(Debug, Args)]
pub struct SimulateTapeArgs {
    /// The plan, in JSON.
    #[arg(required_unless_present = "example")]
    pub plan: Option<PathBuf>,
    /// Print a plan to begin with instead.
    #[arg(long, conflicts_with = "plan")]
    pub example: bool,
    /// Recalls from this log instead of those of the plan.
    #[arg(long, value_name = "CSV", conflicts_with = "example")]
    pub log: Option<PathBuf>,
    /// By which rules: fifo, position or serpentine. Repeat it to compare. Default: all.
    #[arg(long = "policy", value_name = "POLICY")]
    pub policies: Vec<ReadPolicy>,
    /// Another seed of chance than the plan's.
    #[arg(long)]
    pub seed: Option<u64>,
}
