//! `penstock tape calibrate`: the coefficients of a drive, and the wraps of its tapes, from locates that were observed.

use crate::args::TapeCalibrateArgs;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_model::text::plural;
use penstock_tape::calibration::{CartridgeLocates, ObservedLocate, calibrate};
use penstock_tape::drive::DriveModel;
use penstock_tape::drive_kind::DriveKind;
use penstock_tape::geometry::Geometry;
use penstock_tape::locate::{LocateModel, SECOND_NS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What is known of a drive and of tapes: the part of a calibration that others read.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct KnownDrive {
    pub drive: DriveModel,
    #[serde(default)]
    pub wrap_ends_bytes: BTreeMap<String, Vec<u64>>,
}

impl KnownDrive {
    pub(super) fn of(drive: DriveModel) -> KnownDrive {
        KnownDrive {
            drive,
            wrap_ends_bytes: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Serialize)]
struct CalibrationReport {
    drive: DriveModel,
    /// The standard error of each coefficient of `drive.locate`.
    errors: LocateModel,
    /// What the drive was taken to be like.
    before: LocateModel,
    observed: usize,
    used: usize,
    /// Short moves in which the drive may have read on, and locates that took far too long.
    left_out: usize,
    /// How far a locate usually is from what is computed: a standard deviation.
    residual_seconds: f64,
    /// Where the wraps of each tape end, measured or found.
    wrap_ends_bytes: BTreeMap<String, Vec<u64>>,
}

/// The first line of observed locates.
const HEADER: &str = "tape,from_bytes,to_bytes,seconds";
/// No locate takes longer.
const SECONDS_MAX: f64 = 86_400.0;

/// A drive by its name or by the file of a calibration.
pub(super) fn known_drive(name: &str) -> Result<KnownDrive, CommandError> {
    if let Some(kind) = DriveKind::named(name) {
        return Ok(KnownDrive::of(kind.model));
    }
    let path = Path::new(name);
    if !path.exists() {
        return Err(CommandError::Usage(format!(
            "--model '{name}': there are {}, and linear of `tape order`, and no such file",
            DriveKind::NAMES.join(", ")
        )));
    }
    read_json(path)
}

fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, CommandError> {
    let told = path.display();
    let text = fs::read(path).map_err(|why| CommandError::local(&told, why))?;
    serde_json::from_slice(&text).map_err(|why| CommandError::Usage(format!("{told}: {why}")))
}

fn observed(path: &Path) -> Result<BTreeMap<String, Vec<ObservedLocate>>, CommandError> {
    let told = path.display();
    let text = fs::read_to_string(path).map_err(|why| CommandError::local(&told, why))?;
    let wrong = |line: usize, why: &str| {
        CommandError::Usage(format!(
            "{told}, line {line}: {why}; see `penstock tape calibrate --help`"
        ))
    };
    let mut lines = text.lines().map(str::trim).zip(1..);
    if lines.next().map(|(line, _)| line) != Some(HEADER) {
        return Err(wrong(1, &format!("it must be {HEADER}")));
    }
    let mut locates: BTreeMap<String, Vec<ObservedLocate>> = BTreeMap::new();
    for (line, number) in lines.filter(|(line, _)| !line.is_empty()) {
        let columns: Vec<&str> = line.split(',').map(str::trim).collect();
        let [tape, from, to, seconds] = columns[..] else {
            return Err(wrong(number, "a line has four columns"));
        };
        let (Ok(from_bytes), Ok(to_bytes)) = (from.parse(), to.parse()) else {
            return Err(wrong(number, "from_bytes and to_bytes are whole numbers"));
        };
        let seconds: f64 = seconds.parse().unwrap_or(-1.0);
        if !(0.0..=SECONDS_MAX).contains(&seconds) {
            return Err(wrong(number, "seconds are a number from 0 to a day"));
        }
        locates
            .entry(tape.to_owned())
            .or_default()
            .push(ObservedLocate {
                from_bytes,
                to_bytes,
                took_ns: (seconds * SECOND_NS as f64).round() as i64,
            });
    }
    match locates.is_empty() {
        true => Err(wrong(2, "no locate was observed")),
        false => Ok(locates),
    }
}

pub(super) fn run(args: &TapeCalibrateArgs, output: Output) -> Result<(), CommandError> {
    let known = known_drive(&args.model)?;
    let locates = observed(&args.file)?;
    let measured: BTreeMap<String, Vec<u64>> = match &args.wrap_ends {
        Some(path) => read_json(path)?,
        None => BTreeMap::new(),
    };
    let geometry = |tape: &String| {
        let mut geometry = known.drive.geometry();
        let ends = measured.get(tape).or(known.wrap_ends_bytes.get(tape));
        if let Some(ends) = ends {
            geometry.wrap_ends_bytes.clone_from(ends);
        }
        geometry
    };
    let geometries: Vec<Geometry> = locates.keys().map(geometry).collect();
    let cartridges: Vec<CartridgeLocates<'_>> = locates
        .iter()
        .zip(&geometries)
        .map(|((tape, locates), geometry)| CartridgeLocates {
            geometry,
            is_measured: measured.contains_key(tape),
            locates,
        })
        .collect();
    let found = calibrate(&known.drive, &cartridges);
    let ends = found.geometries.into_iter().map(|one| one.wrap_ends_bytes);
    if found.fit.used == 0 {
        return Err(CommandError::Usage(format!(
            "{}: all {} were left out, so nothing is known of the drive; measure locates over the whole tape that are longer \
             than a few records",
            args.file.display(),
            plural(found.fit.left_out as u64, "locate")
        )));
    }
    let report = CalibrationReport {
        drive: DriveModel {
            locate: found.fit.model,
            ..known.drive
        },
        errors: found.fit.errors,
        before: known.drive.locate,
        observed: locates.values().map(Vec::len).sum(),
        used: found.fit.used,
        left_out: found.fit.left_out,
        residual_seconds: seconds(found.fit.residual_ns),
        wrap_ends_bytes: locates.keys().cloned().zip(ends).collect(),
    };
    output.show(&report, || table(&report));
    Ok(())
}

fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / SECOND_NS as f64
}

fn table(report: &CalibrationReport) -> String {
    let (min, max) = report.drive.longitudinal_range;
    let whole = f64::from(max - min);
    let row = |name: &str, of: fn(&LocateModel) -> i64, times: f64| {
        let figure = |model: &LocateModel| seconds(of(model)) * times;
        format!(
            "{name:32} {:8.2} ± {:5.2}   {:8.2}\n",
            figure(&report.drive.locate),
            figure(&report.errors),
            figure(&report.before)
        )
    };
    let mut text = format!(
        "{:32} {:>8}   {:>5}   {:>8}\n",
        "", "found s", "", "before s"
    );
    text += &row("each locate", |model| model.base_ns, 1.0);
    text += &row("to another wrap", |model| model.wrap_ns, 1.0);
    text += &row("to another band", |model| model.band_ns, 1.0);
    text += &row("to the other half of the tape", |model| model.half_ns, 1.0);
    text += &row("to the other direction", |model| model.direction_ns, 1.0);
    text += &row("back on the same wrap", |model| model.back_ns, 1.0);
    text += &row("along the whole tape", |model| model.longitudinal_ns, whole);
    text += &format!(
        "{} locates on {} tapes, {} left out; a locate is usually within {:.1} s of what is computed\n",
        report.observed,
        report.wrap_ends_bytes.len(),
        report.left_out,
        report.residual_seconds
    );
    text
}
