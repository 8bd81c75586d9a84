//! `[storage.tape.library]`: a tape library that keeps its cartridges in a directory.

use penstock_model::quantity::{Size, Span};
use penstock_storage_element::LibraryConfig;
use penstock_tape::drive_fault::FaultRates;
use penstock_tape::drive_kind::DriveKind;
use penstock_tape::library::LibraryModel;
use penstock_tape::request::{DriveName, LibraryName, TapeName};
use penstock_tape_library::{LibraryDefinition, TapeDefinition};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor, value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Drives and tapes of one library at most, so that a slip of the pen makes no million files.
const DRIVES_MAX: u32 = 1_000;
const TAPES_MAX: u32 = 50_000;

/// A library.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeLibrary {
    /// Its name, with which those of its drives and tapes begin. It is part of where a file lies, so it stays.
    #[serde(default = "TapeLibrary::default_name")]
    pub name: String,
    /// Where its cartridges are.
    pub directory: PathBuf,
    /// Its drives.
    pub drives: Vec<LibraryDrives>,
    /// Its tapes.
    pub tapes: Vec<LibraryTapes>,
    /// What carries tapes between slots and drives.
    #[serde(default)]
    pub robot: LibraryRobot,
}

/// Drives of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryDrives {
    /// `LTO-8`, for example: docs/tape/simulate.md has all.
    pub kind: String,
    /// How many.
    pub count: u32,
}

/// Tapes for one kind of drive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryTapes {
    /// The kind of drive that writes them.
    pub kind: String,
    /// How many.
    pub count: u32,
    /// The capacity of one tape. Unset: that of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Size>,
}

/// What carries tapes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LibraryRobot {
    /// Tapes that it carries at the same time.
    pub arms: u32,
    /// How long it takes to carry one.
    pub move_time: Span,
    /// Tapes that it carries in an hour at most.
    pub moves_per_hour_max: u32,
}

impl Default for LibraryRobot {
    fn default() -> LibraryRobot {
        LibraryRobot {
            arms: 2,
            move_time: Span(Duration::from_secs(15)),
            moves_per_hour_max: 300,
        }
    }
}

/// `[storage.tape.library]`, or several `[[storage.tape.library]]`.
pub(super) fn one_or_many<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<TapeLibrary>, D::Error> {
    struct OneOrMany;
    impl<'de> Visitor<'de> for OneOrMany {
        type Value = Vec<TapeLibrary>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a library, or several")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<TapeLibrary>, A::Error> {
            let one = TapeLibrary::deserialize(value::MapAccessDeserializer::new(map))?;
            Ok(vec![one])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, many: A) -> Result<Vec<TapeLibrary>, A::Error> {
            Vec::deserialize(value::SeqAccessDeserializer::new(many))
        }
    }
    deserializer.deserialize_any(OneOrMany)
}

/// What does not go together.
pub(super) fn problems(libraries: &[TapeLibrary], problems: &mut Vec<String>) {
    for (number, library) in libraries.iter().enumerate() {
        let name = &library.name;
        if !is_name(name) {
            problems.push(format!(
                "storage.tape.library: '{name}' is not a valid name; letters, digits, '-', '_' and '.' are allowed"
            ));
        }
        let before = &libraries[..number];
        if before.iter().any(|other| other.name == *name) {
            problems.push(format!(
                "two [[storage.tape.library]] have the name '{name}'; give each its own (name)"
            ));
        }
        if before
            .iter()
            .any(|other| other.directory == library.directory)
        {
            problems.push(format!(
                "two [[storage.tape.library]] have the directory {}; give each its own",
                library.directory.display()
            ));
        }
        let problem = |text: String| format!("storage.tape.library {name}: {text}");
        problems.extend(library.own_problems().into_iter().map(problem));
    }
}

fn is_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.bytes().all(is_good) && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

impl TapeLibrary {
    fn default_name() -> String {
        "library".to_owned()
    }

    fn own_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let drives = self.drives.iter().map(|drives| &drives.kind);
        let tapes = self.tapes.iter().map(|tapes| &tapes.kind);
        for kind in drives.chain(tapes) {
            if DriveKind::named(kind).is_none() {
                problems.push(format!(
                    "'{kind}' is not a kind of drive; there are {}",
                    DriveKind::NAMES.join(", ")
                ));
            }
        }
        let drives: u64 = self
            .drives
            .iter()
            .map(|drives| u64::from(drives.count))
            .sum();
        let tapes: u64 = self.tapes.iter().map(|tapes| u64::from(tapes.count)).sum();
        match drives {
            0 => problems.push("it has no drive; set drives".to_owned()),
            _ if drives > u64::from(DRIVES_MAX) => {
                problems.push(format!("it has more than {DRIVES_MAX} drives"));
            }
            _ => {}
        }
        match tapes {
            0 => problems.push("it has no tape; set tapes".to_owned()),
            _ if tapes > u64::from(TAPES_MAX) => {
                problems.push(format!("it has more than {TAPES_MAX} tapes"));
            }
            _ => {}
        }
        for LibraryTapes { kind, capacity, .. } in &self.tapes {
            let mut taking = self.drives.iter();
            if !taking.any(|drives| drives.kind == *kind && drives.count > 0) {
                problems.push(format!("no drive takes its tapes of kind {kind}"));
            }
            if capacity.is_some_and(|capacity| capacity.0 == 0) {
                problems.push("the capacity of a tape is 0".to_owned());
            }
        }
        for (name, number) in [
            ("arms", self.robot.arms),
            ("moves_per_hour_max", self.robot.moves_per_hour_max),
        ] {
            if number == 0 {
                problems.push(format!("robot.{name} is 0; it must be 1 or more"));
            }
        }
        problems
    }

    /// The library as the storage element opens it. Kinds that are none have been told before.
    pub(super) fn library(&self, resolve: impl Fn(&Path) -> PathBuf) -> LibraryConfig {
        let mut kinds = BTreeMap::new();
        let (mut drives, mut tapes) = (BTreeMap::new(), BTreeMap::new());
        let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
        for LibraryDrives { kind, count } in &self.drives {
            kinds.extend(DriveKind::named(kind).map(|known| (kind.clone(), known)));
            for _ in 0..*count {
                let number = numbers.entry(kind).or_default();
                *number += 1;
                let name = format!("{}-{kind}-{number}", self.name);
                drives.insert(DriveName(name.into()), kind.clone());
            }
        }
        let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
        for LibraryTapes {
            kind,
            count,
            capacity,
        } in &self.tapes
        {
            let known = DriveKind::named(kind);
            let usual = known.map_or(0, |known| known.model.capacity_bytes);
            let capacity_bytes = capacity.map_or(usual, |capacity| capacity.0);
            for _ in 0..*count {
                let number = numbers.entry(kind).or_default();
                *number += 1;
                let name = format!("{}-{kind}-{number:04}", self.name);
                let kind = kind.clone();
                let tape = TapeDefinition {
                    kind,
                    capacity_bytes,
                };
                tapes.insert(TapeName(name.into()), tape);
            }
        }
        let definition = LibraryDefinition {
            name: LibraryName(self.name.as_str().into()),
            model: LibraryModel {
                slots: u32::try_from(tapes.len()).unwrap_or(u32::MAX),
                arms: self.robot.arms,
                move_ns: super::nanoseconds(self.robot.move_time),
                moves_per_hour_max: self.robot.moves_per_hour_max,
            },
            kinds,
            drives,
            tapes,
            faults: FaultRates::default(),
            seed: 1,
        };
        LibraryConfig {
            directory: resolve(&self.directory),
            definition,
        }
    }
}
