//! The tape challenge of October 2021 at CC-IN2P3: its printed files and volumes as demand on a library as it had, first with
//! rules like those of its scheduler (TREQS), then with those of the request engine.
//!
//! One number is not printed and is fitted: the scatter, bytes of tape over which a byte that is asked for is spread. It is
//! fitted on ATLAS, and what comes of it for CMS is a prediction.

mod page;
mod seeds;
#[cfg(test)]
mod tests;

pub use page::{ReadBack, TargetOutcome, contradictions};
pub use seeds::{SEEDS, SeedRuns};

use super::plan::{
    ArchiveLoad, DrivePlan, LibraryPlan, ReadPolicy, RecallLoad, TapePlan, TapePlanError,
};
use super::report::TapeReport;
use super::usage::Activity;
use super::{Forecasts, run};
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
const DATA_TAKING: [(&str, f64); 4] = [
    ("ATLAS", 48.0),
    ("CMS", 36.0),
    ("LHCB", 61.0),
    ("ALICE", 104.0),
];
const ATLAS_READS_BACK: Range<usize> = 48..103;
const CMS_READS_BACK: Range<usize> = 36..96;
/// The challenge, to 15 October, 17:00.
const CHALLENGE_HOURS: f64 = 103.0;
/// "More concentrated especially during last day of A-DT."
const CMS_LAST_DAY_HOURS: (f64, f64) = (72.0, 96.0);
/// Migration begins anew so often.
const MIGRATION_CYCLE_HOURS: f64 = 6.0;
/// Chosen: files that are asked for together. IN2P3 wishes 1,000 to 100,000.
const BULK_FILES: u64 = 4_000;
const HOUR_NS: i64 = 3_600 * SECOND_NS;
/// Chosen: after so long a client gives up.
const DEADLINE_HOURS: f64 = 24.0;
/// Targets in bytes per second: of archiving while data were taken, and of recalls after that.
const WRITE_TARGETS: [(&str, f64); 4] = [
    ("ATLAS", 1.4e9),
    ("CMS", 0.9e9),
    ("LHCB", 1.26e9),
    ("ALICE", 0.4e9),
];
const READ_TARGETS: [(&str, f64); 2] = [("ATLAS", 1.2e9), ("CMS", 1.5e9)];

/// How much of the site is simulated: one of so many drives, files and tapes. Rates are told as of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part(pub u32);

impl Part {
    /// What every test run can afford.
    pub const EIGHTH: Part = Part(8);
    pub const WHOLE: Part = Part(1);

    fn of(self, count: u32) -> u32 {
        ((count + self.0 / 2) / self.0).max(1)
    }

    fn files(self, count: u64) -> u64 {
        count / u64::from(self.0)
    }

    /// What the whole has, of what was simulated.
    fn whole(self, figure: f64) -> f64 {
        figure * f64::from(self.0)
    }
}

/// The most of a VO's recalls in an hour, in GB/s, as the VOs and as the site have printed it.
const BUSIEST: [(&str, f64, f64); 2] = [("ATLAS", 2.63, 2.7), ("CMS", 6.73, 5.0)];

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
    /// Of where files lie, and of all else that is drawn.
    pub seed: u64,
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
    pub fn run(part: Part, seed: u64) -> Result<Challenge, TapePlanError> {
        let scatter = fitted_scatter(part, seed)?;
        let run = |demand, policy| run_plan(&plan((part, seed), scatter, demand), policy);
        Ok(Challenge {
            part,
            seed,
            scatter,
            as_it_was: run(Demand::Printed, ReadPolicy::Position)?,
            ours: run(Demand::Printed, ReadPolicy::Serpentine)?,
            targets: run(Demand::Targets, ReadPolicy::Serpentine)?,
        })
    }
}

fn run_plan(plan: &TapePlan, policy: ReadPolicy) -> Result<TapeReport, TapePlanError> {
    run(plan, None, (policy, Forecasts::None))
}

/// Scatters between which the fitted one is looked for.
const SCATTER_MIN: f64 = 8.0;
const SCATTER_MAX: f64 = 128.0;
/// Halvings of the logarithm of that range.
const FIT_STEPS: u32 = 6;

/// The scatter with which ATLAS reads back as fast as the site has printed, when files wait all the time.
fn fitted_scatter(part: Part, seed: u64) -> Result<f64, TapePlanError> {
    let staging = tables_2021::staging();
    let name = "ATLAS A-DT, site's view";
    let printed = staging.rates.iter().find(|rate| rate.name == name);
    let wanted = printed.map_or(0.0, |printed| printed.rate);
    let (mut low, mut high) = (SCATTER_MIN.ln(), SCATTER_MAX.ln());
    for _ in 0..FIT_STEPS {
        let middle = f64::midpoint(low, high);
        let mut plan = plan((part, seed), middle.exp(), Demand::PrintedOnJaguar);
        // What happens after the hours that are looked at changes nothing.
        plan.hours_max = ATLAS_READS_BACK.end as f64;
        let report = run_plan(&plan, ReadPolicy::Position)?;
        let usage = report.usage_of("ATLAS", Activity::Recall);
        let rate = usage.map_or(0.0, |usage| usage.wall_clock_rate(ATLAS_READS_BACK));
        match part.whole(rate) > wanted {
            true => low = middle,
            false => high = middle,
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
            copies: 1,
            distinct: true,
        }
    }
}

fn kind_of(name: &str) -> Option<DriveKind> {
    DriveKind::named(name)
}

fn archive(
    part: Part,
    vo: &str,
    files: u64,
    bytes: f64,
    (hours, bulks): (f64, u64),
) -> ArchiveLoad {
    ArchiveLoad {
        vo: vo.to_owned(),
        family: vo.to_lowercase(),
        kind: JAGUAR.to_owned(),
        files: part.files(files).max(1),
        file_bytes: (bytes / files as f64) as u64,
        bulks,
        begin_hours: 0.0,
        end_hours: hours,
        copies: 1,
        pack: false,
    }
}

/// The plan of a demand.
fn plan((part, seed): (Part, u64), scatter: f64, demand: Demand) -> TapePlan {
    let recalls = recalls(demand).into_iter();
    let archives = archives(part, demand).into_iter();
    let kind = |name: &str, rate: u64| {
        let like = serde_json::json!({"name": name, "like": name, "native_rate": rate});
        serde_json::from_value(like)
    };
    let kinds = [kind(JAGUAR, JAGUAR_RATE), kind(T10KD, T10KD_RATE)];
    let drives = |kind: &str, count| DrivePlan {
        kind: kind.to_owned(),
        count: part.of(count),
    };
    TapePlan {
        name: "tape challenge of October 2021".to_owned(),
        seed,
        hours_max: 400.0,
        library: LibraryPlan {
            slots: 100_000,
            arms: part.of(8),
            move_seconds: 15.0,
            moves_per_hour_max: part.of(2_400),
            count: 1,
            outages: Vec::new(),
        },
        kinds: kinds.into_iter().filter_map(Result::ok).collect(),
        drives: vec![drives(JAGUAR, JAGUAR_DRIVES), drives(T10KD, T10KD_DRIVES)],
        recalls: recalls.map(|one| one.load(part, scatter)).collect(),
        archives: archives.collect(),
        faults: FaultRates::default(),
        repair_hours: 2.0,
        mount: Some(mount_policy(part)),
        aggregate: None,
        trickle: None,
        dismount_delay_seconds: 30.0,
    }
}

/// What was printed of recalls, or the targets of those who read back.
fn recalls(demand: Demand) -> Vec<Recalls<'static>> {
    let staging = tables_2021::staging();
    let printed = |vo, kind, hours| {
        let row = row(&staging, vo)?;
        Some(Recalls {
            vo,
            kind,
            files: row.files,
            bytes: row.volume.0 as f64,
            hours,
        })
    };
    let whole = (0.0, CHALLENGE_HOURS);
    let all = match demand {
        Demand::PrintedOnJaguar => vec![
            printed("ATLAS", JAGUAR, whole),
            printed("Others", JAGUAR, whole),
        ],
        Demand::Printed => vec![
            printed("ATLAS", JAGUAR, whole),
            printed("Others", JAGUAR, whole),
            printed("CMS", T10KD, CMS_LAST_DAY_HOURS),
            printed("LHCB", T10KD, whole),
            printed("ALICE", T10KD, whole),
        ],
        Demand::Targets => {
            let scaled = |(vo, target): (&'static str, f64)| {
                let (kind, window) = match vo {
                    "ATLAS" => (JAGUAR, ATLAS_READS_BACK),
                    _ => (T10KD, CMS_READS_BACK),
                };
                let bytes = target * window.len() as f64 * 3_600.0;
                let of_printed = printed(vo, kind, demand_hours(&window))?;
                let files = of_printed.files as f64 * bytes / of_printed.bytes;
                Some(Recalls {
                    files: files as u64,
                    bytes,
                    ..of_printed
                })
            };
            READ_TARGETS.into_iter().map(scaled).collect()
        }
    };
    all.into_iter().flatten().collect()
}

/// What went to tape, or the targets of those who took data.
fn archives(part: Part, demand: Demand) -> Vec<ArchiveLoad> {
    let migration = tables_2021::migration();
    let hours_of = |vo: &str| {
        let hours = DATA_TAKING.iter().find(|(of, _)| *of == vo);
        hours.map_or(CHALLENGE_HOURS, |(_, hours)| *hours)
    };
    let of_row = |row: &PublishedRow| {
        let hours = hours_of(&row.name);
        let bytes = row.volume.0 as f64;
        match demand {
            Demand::PrintedOnJaguar | Demand::Printed => {
                let cycles = (hours / MIGRATION_CYCLE_HOURS).ceil() as u64;
                Some(archive(part, &row.name, row.files, bytes, (hours, cycles)))
            }
            Demand::Targets => {
                let (_, target) = WRITE_TARGETS.iter().find(|(vo, _)| *vo == row.name)?;
                let wanted = target * hours * 3_600.0;
                let files = (row.files as f64 * wanted / bytes) as u64;
                // Files come all the time, and are archived as they come.
                let when = (hours * DEMAND_SHARE, (hours * 6.0) as u64);
                Some(archive(part, &row.name, files, wanted, when))
            }
        }
    };
    migration.parts.iter().filter_map(of_row).collect()
}

/// All that a target asks for is asked for within this part of its window.
const DEMAND_SHARE: f64 = 0.85;

fn demand_hours(window: &Range<usize>) -> (f64, f64) {
    let (begin, length) = (window.start as f64, window.len() as f64);
    (begin, begin + length * DEMAND_SHARE)
}

fn mount_policy(part: Part) -> MountPolicy {
    let most = |recall, archive| DrivesMax { recall, archive };
    let jaguar = most(
        part.of(JAGUAR_RECALLS_MAX),
        part.of(JAGUAR_DRIVES - JAGUAR_RECALLS_MAX),
    );
    let t10kd = most(part.of(T10KD_DRIVES), 0);
    let drives_max = [(JAGUAR.to_owned(), jaguar), (T10KD.to_owned(), t10kd)];
    MountPolicy {
        bytes_min: 4_000_000_000_000,
        age_ns: 2 * HOUR_NS,
        deadline_lead_ns: 4 * HOUR_NS,
        remount_ns: 8 * HOUR_NS,
        drives_max: BTreeMap::from(drives_max),
        family_drives_max: part.of(6),
        ..MountPolicy::usual()
    }
}
