//! What is to be simulated, as people write it in JSON.

use penstock_tape::aggregate::AggregatePolicy;
use penstock_tape::drive_fault::FaultRates;
use penstock_tape::drive_kind::{DriveKind, DriveKindDocument};
use penstock_tape::library::LibraryModel;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::mount_decision::MountPolicy;
use penstock_tape::request_engine::{ReadOrder, TapePolicy, TricklePolicy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A library, its drives, and a time of demand.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapePlan {
    /// For people.
    pub name: String,
    /// Of chance.
    #[serde(default)]
    pub seed: u64,
    /// The simulation ends when all is done, and after so many hours at most.
    pub hours_max: f64,
    pub library: LibraryPlan,
    /// Kinds of drives that are none of those that everybody has.
    #[serde(default)]
    pub kinds: Vec<DriveKindDocument>,
    pub drives: Vec<DrivePlan>,
    #[serde(default)]
    pub recalls: Vec<RecallLoad>,
    #[serde(default)]
    pub archives: Vec<ArchiveLoad>,
    #[serde(default)]
    pub faults: FaultRates,
    /// How long a drive is down after a failure.
    #[serde(default = "two")]
    pub repair_hours: f64,
    /// When mounts are worth it, under `serpentine`. Default: 500 GB, 10 000 files, a quarter of an hour.
    pub mount: Option<MountPolicy>,
    /// When small files are written as one object. Default: 10 GB, 20 000 files, a quarter of an hour.
    pub aggregate: Option<AggregatePolicy>,
    /// When a mount is ended that is written to only now and then. Default: fed for less than 40 % of five minutes.
    pub trickle: Option<TricklePolicy>,
    /// How long a tape stays in a drive that nobody needs, under `serpentine`.
    #[serde(default = "five_minutes")]
    pub dismount_delay_seconds: f64,
}

/// The library.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryPlan {
    pub slots: u32,
    pub arms: u32,
    pub move_seconds: f64,
    pub moves_per_hour_max: u32,
    /// So many equal libraries: drives and tapes are dealt out among them.
    #[serde(default = "one_library")]
    pub count: u32,
    /// When one of them is away: its mounts fail.
    #[serde(default)]
    pub outages: Vec<OutagePlan>,
}

/// A library is away.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutagePlan {
    /// Its number, from 0.
    pub library: u32,
    pub begin_hours: f64,
    pub end_hours: f64,
}

/// Drives of one kind.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrivePlan {
    pub kind: String,
    pub count: u32,
}

/// Who recalls what.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecallLoad {
    pub vo: String,
    /// The kind of drives and tapes.
    pub kind: String,
    pub files: u64,
    pub file_bytes: u64,
    /// Tapes over which the VO's files lie.
    pub tapes: u32,
    /// Files are asked for in so many bulks, evenly over the time.
    pub bulks: u64,
    /// Tapes over which the files of one bulk lie. Default: all.
    pub tapes_per_bulk: Option<u32>,
    /// Files that lie behind one another and are asked for together.
    #[serde(default = "one")]
    pub run_files: u64,
    pub begin_hours: f64,
    pub end_hours: f64,
    #[serde(default = "three")]
    pub priority: u8,
    /// From the request on.
    pub deadline_hours: Option<f64>,
    /// Copies of each file, in libraries of their own.
    #[serde(default = "one_library")]
    pub copies: u32,
    /// Each file is asked for once. Default: as chance has it.
    #[serde(default)]
    pub distinct: bool,
}

/// Who archives what.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveLoad {
    pub vo: String,
    pub family: String,
    pub kind: String,
    pub files: u64,
    pub file_bytes: u64,
    pub bulks: u64,
    pub begin_hours: f64,
    pub end_hours: f64,
    /// Copies of each file, in libraries of their own.
    #[serde(default = "one_library")]
    pub copies: u32,
    /// Whether files are written together with others as one object.
    #[serde(default)]
    pub pack: bool,
}

fn one_library() -> u32 {
    1
}

fn one() -> u64 {
    1
}

fn two() -> f64 {
    2.0
}

fn three() -> u8 {
    3
}

fn five_minutes() -> f64 {
    30.0
}

/// Why a plan cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum TapePlanError {
    /// It is not of the form of a plan.
    #[error("{0}")]
    Form(#[from] serde_json::Error),
    /// A figure that makes no sense, by its key.
    #[error("{key}: {why}")]
    Figure { key: String, why: String },
}

/// Figures that a plan may have at most.
const FILES_MAX: u64 = 5_000_000;
const DRIVES_MAX: u32 = 2_000;
const LIBRARIES_MAX: u32 = 100;
const HOURS_MAX: f64 = 24.0 * 366.0;

/// By which rules tapes are mounted and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadPolicy {
    /// A mount for each request, in the order of requests.
    Fifo,
    /// Requests gather for four minutes; a tape is read from where the head is to its end, then from its beginning, as TREQS does.
    Position,
    /// What the request engine does: mounts that are worth it, and files as the drive reaches them soonest.
    Serpentine,
}

impl ReadPolicy {
    /// All, the simplest first.
    pub const ALL: [ReadPolicy; 3] = [
        ReadPolicy::Fifo,
        ReadPolicy::Position,
        ReadPolicy::Serpentine,
    ];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            ReadPolicy::Fifo => "fifo",
            ReadPolicy::Position => "position",
            ReadPolicy::Serpentine => "serpentine",
        }
    }

    /// The rules for the engine.
    pub(super) fn rules(self, plan: &TapePlan) -> TapePolicy {
        let mut rules = TapePolicy::usual();
        rules.mount = plan.mount.clone().unwrap_or_else(MountPolicy::usual);
        rules.dismount_delay_ns = seconds_ns(plan.dismount_delay_seconds);
        rules.aggregate = plan.aggregate.unwrap_or(rules.aggregate);
        rules.trickle = plan.trickle.unwrap_or(rules.trickle);
        // An order for each mount of a week has to be found soon; more effort gains some per cent.
        rules.order_effort.0 = 100_000;
        match self {
            ReadPolicy::Serpentine => {}
            ReadPolicy::Position => {
                rules.read_order = ReadOrder::FromHead;
                rules.mount.bytes_min = u64::MAX;
                rules.mount.files_min = u64::MAX;
                rules.mount.age_ns = 240 * SECOND_NS;
                rules.dismount_delay_ns = 0;
            }
            ReadPolicy::Fifo => {
                rules.read_order = ReadOrder::Fifo;
                rules.mount.age_ns = 0;
                rules.files_per_mount_max = Some(1);
                rules.dismount_delay_ns = 0;
            }
        }
        rules
    }
}

impl fmt::Display for ReadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ReadPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<ReadPolicy, String> {
        let found = ReadPolicy::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| format!("'{text}' is none of fifo, position and serpentine"))
    }
}

pub(super) fn seconds_ns(seconds: f64) -> i64 {
    (seconds * SECOND_NS as f64) as i64
}

pub(super) fn hours_ns(hours: f64) -> i64 {
    seconds_ns(hours * 3_600.0)
}

pub(super) fn wrong(key: impl Into<String>, why: impl Into<String>) -> TapePlanError {
    TapePlanError::Figure {
        key: key.into(),
        why: why.into(),
    }
}

impl TapePlan {
    /// Reads a plan.
    pub fn parse(text: &str) -> Result<TapePlan, TapePlanError> {
        let plan: TapePlan = serde_json::from_str(text)?;
        plan.check()?;
        Ok(plan)
    }

    /// Long because each figure has its bounds.
    fn check(&self) -> Result<(), TapePlanError> {
        let is_time = |hours: f64| (0.0..=HOURS_MAX).contains(&hours);
        if !is_time(self.hours_max) || !is_time(self.repair_hours) {
            return Err(wrong("hours_max, repair_hours", "must be from 0 to a year"));
        }
        let positive = [
            ("library.move_seconds", self.library.move_seconds),
            ("dismount_delay_seconds", self.dismount_delay_seconds),
        ];
        for (key, figure) in positive {
            if !(0.0..=86_400.0).contains(&figure) {
                return Err(wrong(key, "must be from 0 to a day"));
            }
        }
        let drives: u64 = self
            .drives
            .iter()
            .map(|drives| u64::from(drives.count))
            .sum();
        if drives == 0 || drives > u64::from(DRIVES_MAX) {
            return Err(wrong("drives", format!("there must be 1 to {DRIVES_MAX}")));
        }
        let libraries = self.library.count;
        if !(1..=LIBRARIES_MAX).contains(&libraries) {
            return Err(wrong(
                "library.count",
                format!("must be from 1 to {LIBRARIES_MAX}"),
            ));
        }
        for outage in &self.library.outages {
            let is_moment = is_time(outage.begin_hours) && is_time(outage.end_hours);
            if !is_moment || outage.begin_hours > outage.end_hours || outage.library >= libraries {
                return Err(wrong(
                    "library.outages",
                    "needs the number of a library, from 0, and a begin before its end",
                ));
            }
        }
        let copies = self.recalls.iter().map(|load| load.copies);
        let mut copies = copies.chain(self.archives.iter().map(|load| load.copies));
        if copies.any(|copies| !(1..=libraries).contains(&copies)) {
            return Err(wrong(
                "copies",
                "each copy needs a library of its own: see library.count",
            ));
        }
        let recalls = self.recalls.iter().map(|load| {
            (
                "recalls",
                load.files,
                load.file_bytes,
                load.bulks,
                (load.begin_hours, load.end_hours),
            )
        });
        let archives = self.archives.iter().map(|load| {
            (
                "archives",
                load.files,
                load.file_bytes,
                load.bulks,
                (load.begin_hours, load.end_hours),
            )
        });
        let mut all = 0_u64;
        for (key, files, file_bytes, bulks, (begin, end)) in recalls.chain(archives) {
            if !is_time(begin) || !is_time(end) || begin > end {
                return Err(wrong(key, "begin_hours must not be after end_hours"));
            }
            if file_bytes == 0 || bulks == 0 {
                return Err(wrong(key, "file_bytes and bulks must be at least 1"));
            }
            all = all.saturating_add(files);
        }
        if all > FILES_MAX {
            return Err(wrong(
                "files",
                format!("{all} files; there may be {FILES_MAX}"),
            ));
        }
        self.kinds().map(drop)
    }

    /// All kinds of drives that are named, by their names.
    pub(super) fn kinds(&self) -> Result<BTreeMap<String, DriveKind>, TapePlanError> {
        let mut kinds = BTreeMap::new();
        for name in DriveKind::NAMES {
            kinds.extend(DriveKind::named(name).map(|kind| (name.to_owned(), kind)));
        }
        for document in &self.kinds {
            let name = document.name.clone();
            let kind = DriveKind::from_document(document.clone());
            let kind = kind.map_err(|why| wrong(format!("kinds: {name}"), why.to_string()))?;
            kinds.insert(name, kind);
        }
        let recalls = self.recalls.iter().map(|load| ("recalls", &load.kind));
        let archives = self.archives.iter().map(|load| ("archives", &load.kind));
        let drives = self.drives.iter().map(|drives| ("drives", &drives.kind));
        for (key, kind) in drives.chain(recalls).chain(archives) {
            if !kinds.contains_key(kind) {
                let known: Vec<&str> = kinds.keys().map(String::as_str).collect();
                let why = format!(
                    "no kind of drive is '{kind}'; there are {}",
                    known.join(", ")
                );
                return Err(wrong(key, why));
            }
        }
        Ok(kinds)
    }

    pub(super) fn library(&self) -> LibraryModel {
        LibraryModel {
            slots: self.library.slots,
            arms: self.library.arms,
            move_ns: seconds_ns(self.library.move_seconds),
            moves_per_hour_max: self.library.moves_per_hour_max,
        }
    }
}
