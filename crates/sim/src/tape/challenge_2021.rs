//! The tape challenge of October 2021 at CC-IN2P3: its printed files and volumes as demand on a library as it had, first with
//! rules like those of its scheduler (TREQS), then with those of the request engine.
//!
//! One number is not printed and is fitted: the scatter, bytes of tape over which a byte that is asked for is spread. It is
//! fitted on ATLAS, and what comes of it for CMS is a prediction.

mod page;
#[cfg(test)]
mod tests;

pub use page::blocks;

use super::plan::{
    ArchiveLoad, DrivePlan, LibraryPlan, ReadPolicy, RecallLoad, TapePlan, TapePlanError,
};
use super::report::TapeReport;
use super::simulate_tape;
use super::usage::Activity;
use crate::stories::tables_2021;
use penstock_observe::accounting::figures::{PublishedRow, PublishedTable};
use penstock_tape::drive_fault::FaultRates;
use penstock_tape::drive_kind::DriveKind;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::mount_decision::{DrivesMax, MountPolicy};
use std::collections::BTreeMap;
use std::ops::Range;

/// Drives of which more were wanted than there were, and most of ATLAS's files.
const JAGUAR: &str = "TS1160";
/// Drives that only staged, and had most of the files of CMS.
const T10KD: &str = "T10000D";
/// Native rates as the talk states them.
const JAGUAR_RATE: u64 = 450_000_000;
const T10KD_RATE: u64 = 240_000_000;
/// Of the drives that stage and archive, the most that the scheduler of recalls asks for, and what that leaves.
const JAGUAR_DRIVES: u32 = 46;
const JAGUAR_RECALLS_MAX: u32 = 32;
const T10KD_DRIVES: u32 = 48;
/// Hours from 11 October 2021, 10:00 CEST, in which each VO took data and in which it read back.
const DATA_TAKING: [(&str, f64); 4] = [("ATLAS", 48.0), ("CMS", 36.0), ("LHCB", 61.0), ("ALICE", 104.0)];
const ATLAS_READS_BACK: Range<usize> = 48..103;
const CMS_READS_BACK: Range<usize> = 36..96;
/// The challenge, to 15 October, 17:00.
const CHALLENGE_HOURS: f64 = 103.0;
/// "More concentrated especially during last day of A-DT."
const CMS_LAST_DAY_HOURS: (f64, f64) = (72.0, 96.0);
/// What ATLAS staged, by its printed volume and rate, took so long.
const ATLAS_STAGING_HOURS: f64 = 125.0;
/// Migration begins anew so often.
const MIGRATION_CYCLE_HOURS: f64 = 6.0;
/// Chosen: files that are asked for together. IN2P3 wishes 1,000 to 100,000.
const BULK_FILES: u64 = 4_000;
/// Chosen: after so long a client gives up.
const DEADLINE_HOURS: f64 = 24.0;
/// Targets in bytes per second: of archiving while data were taken, and of recalls after that.
const WRITE_TARGETS: [(&str, f64); 4] = [("ATLAS", 1.4e9), ("CMS", 0.9e9), ("LHCB", 1.26e9), ("ALICE", 0.4e9)];
const READ_TARGETS: [(&str, f64); 2] = [("ATLAS", 1.2e9), ("CMS", 1.5e9)];

/// How much of the site is simulated: one of so many drives, files and tapes. Rates are told as of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part(pub u32);

impl Part {
    /// What every test run can afford.
    pub const EIGHTH: Part = Part(8);
    pub const WHOLE: Part = Part(1);

    fn of(self, count: u32) -> u32 {
        (count / self.0).max(1)
    }

    fn files(self, count: u64) -> u64 {
        count / u64::from(self.0)
    }
}

/// Whose demand is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Demand {
    /// What was printed, of those whose files lie where ATLAS's do.
    PrintedOnJaguar,
    Printed,
    /// Each target times its window.
    Targets,
}

/// What was asked for, and what came of it.
pub struct Challenge {
    pub part: Part,
    /// Bytes of tape for a byte that is asked for.
    pub scatter: f64,
    /// With rules like those of TREQS.
    pub as_it_was: TapeReport,
    /// The same demand with the rules of the request engine.
    pub ours: TapeReport,
    /// Demand of each target times its window, with the rules of the request engine.
    pub targets: TapeReport,
}

impl Challenge {
    /// Fits the scatter, and runs all three.
    pub fn run(part: Part) -> Result<Challenge, TapePlanError> {
        let scatter = fitted_scatter(part)?;
        Challenge::with_scatter(part, scatter)
    }

    fn with_scatter(part: Part, scatter: f64) -> Result<Challenge, TapePlanError> {
        let run = |demand, policy| simulate_tape(&plan(part, scatter, demand), None, policy);
        Ok(Challenge {
            part,
            scatter,
            as_it_was: run(Demand::Printed, ReadPolicy::Position)?,
            ours: run(Demand::Printed, ReadPolicy::Serpentine)?,
            targets: run(Demand::Targets, ReadPolicy::Serpentine)?,
        })
    }
}

/// Scatters between which the fitted one is looked for.
const SCATTER_MIN: f64 = 1.0;
const SCATTER_MAX: f64 = 400.0;
/// Halvings of the logarithm of that range.
const FIT_STEPS: u32 = 7;

/// The scatter with which ATLAS's files come back in the time that its printed volume and rate imply.
fn fitted_scatter(part: Part) -> Result<f64, TapePlanError> {
    let (mut low, mut high) = (SCATTER_MIN.ln(), SCATTER_MAX.ln());
    for _ in 0..FIT_STEPS {
        let middle = f64::midpoint(low, high);
        let plan = plan(part, middle.exp(), Demand::PrintedOnJaguar);
        let report = simulate_tape(&plan, None, ReadPolicy::Position)?;
        let usage = report.usage_of("ATLAS", Activity::Recall);
        let hours = usage.map_or(0, |usage| usage.hourly_bytes.len());
        match hours as f64 > ATLAS_STAGING_HOURS {
            true => high = middle,
            false => low = middle,
        }
    }
    Ok(f64::midpoint(low, high).exp())
}

fn row<'a>(table: &'a PublishedTable, name: &str) -> Option<&'a PublishedRow> {
    table.parts.iter().find(|row| row.name == name)
}

/// Recalls of one VO.
struct Recalls<'a> {
    vo: &'a str,
    kind: &'a str,
    files: u64,
    bytes: f64,
    hours: (f64, f64),
}

impl Recalls<'_> {
    fn load(&self, part: Part, scatter: f64) -> RecallLoad {
        let capacity = kind_of(self.kind).map_or(1, |kind| kind.model.capacity_bytes);
        let file_bytes = (self.bytes / self.files as f64) as u64;
        let files = part.files(self.files).max(1);
        // All of a tape is not more than it holds.
        let tapes = (files * file_bytes) as f64 * scatter / (capacity as f64 * 0.95);
        let tapes = (tapes.ceil() as u32).max(1);
        let bulks = (self.files / BULK_FILES).max(1);
        let of_bulk = (f64::from(tapes) / bulks as f64).ceil() as u32;
        RecallLoad {
            vo: self.vo.to_owned(),
            kind: self.kind.to_owned(),
            files,
            file_bytes,
            tapes,
            bulks,
            tapes_per_bulk: Some(of_bulk.max(1)),
            run_files: 1,
            begin_hours: self.hours.0,
            end_hours: self.hours.1,
            priority: 3,
            deadline_hours: Some(DEADLINE_HOURS),
        }
    }
}

fn kind_of(name: &str) -> Option<DriveKind> {
    DriveKind::named(name)
}

fn archive(part: Part, vo: &str, files: u64, bytes: f64, (hours, bulks): (f64, u64)) -> ArchiveLoad {
    ArchiveLoad {
        vo: vo.to_owned(),
        family: vo.to_lowercase(),
        kind: JAGUAR.to_owned(),
        files: part.files(files).max(1),
        file_bytes: (bytes / files as f64) as u64,
        bulks,
        begin_hours: 0.0,
        end_hours: hours,
    }
}
