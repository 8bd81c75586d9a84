//! What is known of drives and cartridges beyond their model: coefficients of a kind from the locates of its drives, and where the
//! wraps of a tape end, as its drive tells or as locates on it show. Found anew from what records hold, so a restart keeps it.

use super::{RequestEngine, Turnout};
use crate::calibration::{CartridgeLocates, ObservedLocate, calibrate, fit_locates, fit_wraps};
use crate::drive::DriveModel;
use crate::drive_pool::{DriveState, DriveWork};
use crate::geometry::Geometry;
use crate::locate::LocateModel;
use crate::record::Record;
use crate::request::{DriveName, TapeName};
use std::collections::{BTreeMap, BTreeSet};

/// After so many new locates of a tape its wraps are found anew; the coefficients of a kind after so many, and after a fourth
/// more than there were.
const KIND_LOCATES: usize = 32;
const TAPE_LOCATES: usize = 16;
/// So many locates on tapes with known wraps are enough for a kind, and so many are taken at most.
const MEASURED_LOCATES_MIN: usize = 100;
const MEASURED_LOCATES_MAX: usize = 2_000;
/// Tapes with unknown wraps that are taken for a kind: those with most locates.
const UNMEASURED_TAPES_MAX: usize = 8;
/// The spread of wraps when locates on tapes with known wraps tell nothing of it, in parts of a wrap.
const WRAP_SPREAD_USUAL: f64 = 0.03;

/// Figures that have been found.
#[derive(Debug, Clone, Default)]
pub(super) struct Calibrations {
    kinds: BTreeMap<String, KindFigures>,
    tapes: BTreeMap<TapeName, (Geometry, usize)>,
    /// How long the locate of the read that is going on took.
    located: BTreeMap<DriveName, i64>,
    /// Drives that were told a read twice, so that nobody knows from where they located.
    doubted: BTreeSet<DriveName>,
    /// Nothing is found anew.
    is_resting: bool,
}

#[derive(Debug, Clone, Copy)]
struct KindFigures {
    locate: LocateModel,
    wrap_spread: f64,
    /// Locates of the kind up to the last time, and since.
    total: usize,
    new: usize,
}

impl Calibrations {
    /// From now on what has been found is taken as it is.
    pub(super) fn rest(&mut self) {
        self.is_resting = true;
    }

    /// A drive is told again what it may have done already.
    pub(super) fn doubt(&mut self, drive: &DriveName) {
        self.doubted.insert(drive.clone());
    }

    /// The tape has left its drive.
    pub(super) fn forget(&mut self, drive: &DriveName, tape: &TapeName) {
        self.tapes.remove(tape);
        self.located.remove(drive);
        self.doubted.remove(drive);
    }
}

impl RequestEngine {
    pub(super) fn located(&mut self, drive: &DriveName, took_ns: i64) {
        let is_reading = matches!(self.work_of(drive), Some(DriveWork::Reading(_)));
        if is_reading && !self.calibrations.doubted.contains(drive) {
            self.calibrations.located.insert(drive.clone(), took_ns);
        }
    }

    /// The locate of a read that has ended, if it tells something.
    pub(super) fn take_located(&mut self, drive: &DriveName) -> Option<i64> {
        self.calibrations.doubted.remove(drive);
        let located = self.calibrations.located.remove(drive)?;
        let tape = &self.live.mount(drive)?.tape;
        if let Some((_, new)) = self.calibrations.tapes.get_mut(tape) {
            *new += 1;
        }
        let kind = self.live.tapes.get(tape).map(|facts| &facts.kind);
        if let Some(figures) = kind.and_then(|kind| self.calibrations.kinds.get_mut(kind)) {
            figures.new += 1;
        }
        Some(located)
    }

    /// A drive tells where the wraps of its tape end. What cannot be is passed over.
    pub(super) fn measured(&mut self, drive: &DriveName, ends: Vec<u64>, out: &mut Turnout) {
        let state = self.state(drive);
        let Some(tape) = state.and_then(DriveState::tape).cloned() else {
            return;
        };
        let is_rising = ends.windows(2).all(|pair| pair[0] < pair[1]);
        let is_possible = is_rising && ends.first().is_some_and(|first| *first > 0);
        let known = self.live.tapes.get(&tape);
        let is_new = known.is_some_and(|facts| facts.wrap_ends_bytes.as_ref() != Some(&ends));
        if is_possible && is_new {
            self.calibrations.tapes.remove(&tape);
            self.orders.remove(drive);
            let wrap_ends_bytes = ends;
            self.keep(
                out,
                Record::TapeMeasured {
                    tape,
                    wrap_ends_bytes,
                },
            );
        }
    }

    /// What is known of a tape and of the drives that take it, with what was observed since the last time.
    pub(super) fn tape_model(&mut self, tape: &TapeName) -> (DriveModel, Geometry) {
        if self.calibrations.is_resting {
            return self.known_tape_model(tape);
        }
        let (kind, model) = self.kind_of(tape);
        let figures = self.kind_figures(&kind, &model);
        let is_measured = self.measured_ends(tape).is_some();
        let known = self.calibrations.tapes.get(tape);
        if !is_measured && known.is_none_or(|(_, new)| *new >= TAPE_LOCATES) {
            let mut geometry = model.geometry();
            if let (Some(figures), Some(locates)) = (figures, self.live.locates.get(tape)) {
                let mut model = model;
                model.locate = figures.locate;
                let locates: Vec<ObservedLocate> = locates.iter().copied().collect();
                geometry = fit_wraps(&model, &geometry, &locates, figures.wrap_spread);
            }
            self.calibrations.tapes.insert(tape.clone(), (geometry, 0));
        }
        self.known_tape_model(tape)
    }

    /// The same as it was found the last time. It costs little, and changes nothing.
    pub(super) fn known_tape_model(&self, tape: &TapeName) -> (DriveModel, Geometry) {
        let (kind, mut model) = self.kind_of(tape);
        let mut geometry = model.geometry();
        if let Some(figures) = self.calibrations.kinds.get(&kind) {
            model.locate = figures.locate;
        }
        if let Some(ends) = self.measured_ends(tape) {
            geometry.wrap_ends_bytes.clone_from(ends);
        } else if let Some((known, _)) = self.calibrations.tapes.get(tape) {
            geometry = known.clone();
        }
        (model, geometry)
    }

    fn measured_ends(&self, tape: &TapeName) -> Option<&Vec<u64>> {
        self.live.tapes.get(tape)?.wrap_ends_bytes.as_ref()
    }

    fn kind_of(&self, tape: &TapeName) -> (String, DriveModel) {
        let facts = self.live.tapes.get(tape);
        let kind = facts.map_or_else(String::new, |facts| facts.kind.clone());
        let model = self.kinds.get(&kind).copied();
        (kind, model.unwrap_or(DriveModel::LTO_8))
    }

    fn kind_figures(&mut self, kind: &str, model: &DriveModel) -> Option<KindFigures> {
        match self.calibrations.kinds.get(kind) {
            Some(figures) if figures.new < KIND_LOCATES.max(figures.total / 4) => {
                return Some(*figures);
            }
            _ => {}
        }
        let before = self.calibrations.kinds.get(kind);
        let before = before.map_or(0, |figures| figures.total + figures.new);
        let mut figures = self.fitted(kind, model)?;
        figures.total = figures.total.max(before);
        self.calibrations.kinds.insert(kind.to_owned(), figures);
        Some(figures)
    }

    fn fitted(&self, kind: &str, model: &DriveModel) -> Option<KindFigures> {
        let even = model.geometry();
        let (mut measured, mut unmeasured, mut observed) = (Vec::new(), Vec::new(), 0);
        for (tape, locates) in &self.live.locates {
            let Some(facts) = self.live.tapes.get(tape).filter(|facts| facts.kind == kind) else {
                continue;
            };
            let locates: Vec<ObservedLocate> = locates.iter().copied().collect();
            match &facts.wrap_ends_bytes {
                Some(ends) if observed < MEASURED_LOCATES_MAX => {
                    observed += locates.len();
                    let mut geometry = even.clone();
                    geometry.wrap_ends_bytes.clone_from(ends);
                    measured.push((geometry, true, locates));
                }
                Some(_) => {}
                None => unmeasured.push((even.clone(), false, locates)),
            }
        }
        if observed >= MEASURED_LOCATES_MIN {
            let fit = fit_locates(model, &given(&measured));
            return Some(KindFigures {
                locate: fit.model,
                wrap_spread: WRAP_SPREAD_USUAL,
                total: observed,
                new: 0,
            });
        }
        unmeasured.sort_by_key(|(_, _, locates)| std::cmp::Reverse(locates.len()));
        unmeasured.truncate(UNMEASURED_TAPES_MAX);
        if unmeasured.is_empty() && measured.is_empty() {
            return None;
        }
        unmeasured.extend(measured);
        let found = calibrate(model, &given(&unmeasured));
        Some(KindFigures {
            locate: found.fit.model,
            wrap_spread: found.wrap_spread,
            total: found.fit.used + found.fit.left_out,
            new: 0,
        })
    }
}

/// Wraps, whether they were measured, and locates.
type KnownCartridge = (Geometry, bool, Vec<ObservedLocate>);

fn given(known: &[KnownCartridge]) -> Vec<CartridgeLocates<'_>> {
    let known = known.iter();
    let known = known.map(|(geometry, is_measured, locates)| CartridgeLocates {
        geometry,
        is_measured: *is_measured,
        locates,
    });
    known.collect()
}
