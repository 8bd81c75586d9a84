//! What can be typed about simulations of other things than grids.

use clap::{Args, Subcommand};
use penstock_sim::tape::ReadPolicy;
use std::path::PathBuf;

/// What can be simulated beside a grid.
#[derive(Debug, Subcommand)]
pub enum SimulateCommand {
    /// Simulate a tape library: replay days of recalls and archiving in seconds, under several rules side by side.
    ///
    /// Drives, robot and cartridges follow a time model (loads, locates over wraps and bands, rewinds, file marks, turns).
    /// Mounts and read orders are decided by the engine that also drives the tape libraries of a storage element.
    ///
    /// The plan is JSON: `library`, `drives`, `recalls`, `archives`, `faults`. docs/tape/simulate.md describes every key.
    /// Built-in kinds of drives are 9940B, T10000D, TS1160, LTO-7, LTO-8, LTO-9 and LTO-10; `kinds` describes others.
    ///
    /// Rules: `fifo` mounts a tape for each request; `position` collects requests for four minutes and reads from the head
    /// to the end of the tape, then from its beginning, as TReqS does; `serpentine` mounts a tape when it is worth it and
    /// reads in the order in which the drive reaches the files soonest.
    ///
    /// A log of recalls has the columns seconds,vo,kind,tape,begin_bytes,size_bytes, named in its first line; `seconds`
    /// counts from the start of the simulation.
    ///
    /// Examples:
    ///
    ///   penstock simulate tape --example > week.json         # an example plan
    ///   penstock simulate tape week.json                     # all rules side by side
    ///   penstock simulate tape week.json --policy serpentine --json
    ///   penstock simulate tape week.json --log recalls.csv   # a site's recalls, on the plan's library
    #[command(verbatim_doc_comment)]
    Tape(SimulateTapeArgs),
}

/// Options of `simulate tape`.
#[derive(Debug, Args)]
pub struct SimulateTapeArgs {
    /// The plan, in JSON.
    #[arg(required_unless_present = "example")]
    pub plan: Option<PathBuf>,
    /// Print an example plan instead.
    #[arg(long, conflicts_with = "plan")]
    pub example: bool,
    /// Use the recalls of this log instead of the plan's.
    #[arg(long, value_name = "CSV", conflicts_with = "example")]
    pub log: Option<PathBuf>,
    /// The rule: fifo, position or serpentine. Repeat it to compare. Default: all.
    #[arg(long = "policy", value_name = "POLICY")]
    pub policies: Vec<ReadPolicy>,
    /// The random seed. Default: the plan's.
    #[arg(long)]
    pub seed: Option<u64>,
}
