//! What observed locates tell of a kind of drive and of a cartridge.
//!
//! A locate costs what `locate.rs` says, with coefficients that differ from drive to drive and wraps that differ from cartridge
//! to cartridge. Least squares find both; each unknown is held to what the model says as firmly as its usual spread asks for, so
//! few observations change little. A locate that took unusually long counts less, or not at all (Huber, 1964). The same
//! observations give the same figures on every machine: only sums, products, quotients and square roots are taken.

mod least_squares;
#[cfg(test)]
mod tests;

use crate::drive::DriveModel;
use crate::geometry::{Geometry, Position};
use crate::locate::{LocateModel, SECOND_NS, TERMS};
use least_squares::Normal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One locate as a drive has made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedLocate {
    /// The byte at which the head stood.
    pub from_bytes: u64,
    /// The byte that it was told to go to.
    pub to_bytes: u64,
    /// How long that took.
    pub took_ns: i64,
}

/// Locates on one cartridge.
#[derive(Debug, Clone, Copy)]
pub struct CartridgeLocates<'a> {
    /// Its wraps as they are known.
    pub geometry: &'a Geometry,
    /// Whether that was measured. If not, locates tell.
    pub is_measured: bool,
    pub locates: &'a [ObservedLocate],
}

/// The coefficients of a kind of drive, as found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocateFit {
    pub model: LocateModel,
    /// The standard error of each coefficient.
    pub errors: LocateModel,
    /// Observations that counted.
    pub used: usize,
    /// Those that did not: moves so short that the drive may have read on, and those that took far too long or too short.
    pub left_out: usize,
    /// The usual difference (the median, as a standard deviation) between observed and computed.
    pub residual_ns: i64,
}

/// Coefficients of a kind, and the wraps of each of its cartridges.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    pub fit: LocateFit,
    /// In the order of the cartridges that were given.
    pub geometries: Vec<Geometry>,
    /// How far the ends of wraps are from where they were thought: a standard deviation, in parts of a wrap.
    pub wrap_spread: f64,
}

/// How far a coefficient of a drive may be from the model's: a standard deviation of a fourth, and half a second at least.
const SPREAD: f64 = 0.25;
const SPREAD_MIN_SECONDS: f64 = 0.5;
/// What a locate differs by from one time to the next, at least.
const NOISE_MIN_SECONDS: f64 = 1.0;
/// And usually.
const NOISE_SECONDS: f64 = 1.5;
/// Differences beyond so many deviations count less, and beyond so many not at all.
const DEVIATIONS_FULL: f64 = 2.0;
const DEVIATIONS_MAX: f64 = 6.0;
/// The spread of ends of wraps, in parts of a wrap.
const WRAP_SPREAD_MIN: f64 = 0.005;
const WRAP_SPREAD_MAX: f64 = 0.08;
/// Moves shorter than so many spreads tell nothing of wraps.
const SHORT_SPREADS: f64 = 3.0;
/// An end of a wrap moves by less than half of one.
const WRAP_SHIFT_MAX: f64 = 0.4;
/// Units along the tape that make up one step of the fit, so that all unknowns are some seconds.
const LONGITUDINAL_STEP: f64 = 100_000.0;
/// A median difference times this is a standard deviation.
const MEDIAN_TO_SIGMA: f64 = 1.4826;
const ROUNDS: usize = 8;
const WRAP_ROUNDS: usize = 4;
/// Cartridges with fewer locates say nothing of their wraps.
const WRAP_LOCATES_MIN: usize = 16;

fn seconds(time_ns: i64) -> f64 {
    time_ns as f64 / SECOND_NS as f64
}

fn nanoseconds(seconds: f64) -> i64 {
    (seconds * SECOND_NS as f64).round() as i64
}

/// The terms of a locate as the fit takes them.
fn features(from: Position, to: Position) -> [f64; TERMS] {
    let mut features = LocateModel::terms(from, to).map(|term| term as f64);
    features[TERMS - 1] /= LONGITUDINAL_STEP;
    features
}

fn scaled(model: &LocateModel) -> [f64; TERMS] {
    let mut scaled = model.coefficients().map(seconds);
    scaled[TERMS - 1] *= LONGITUDINAL_STEP;
    scaled
}

fn unscaled(mut coefficients: [f64; TERMS]) -> LocateModel {
    coefficients[TERMS - 1] /= LONGITUDINAL_STEP;
    LocateModel::of_coefficients(coefficients.map(nanoseconds))
}

/// Whether a move tells how the drive locates. Where reading on is about as fast, it may have read on.
fn is_telling(drive: &DriveModel, geometry: &Geometry, locate: &ObservedLocate) -> bool {
    let (from, to) = (locate.from_bytes, locate.to_bytes);
    if from == to || locate.took_ns < 0 {
        return false;
    }
    let places = (geometry.position(from), geometry.position(to));
    let located = drive.locate.cost_ns(places.0, places.1);
    to < from || drive.read_ns(geometry, from, to) > located.saturating_mul(3) / 2 + 5 * SECOND_NS
}

/// How much a difference counts.
fn weight(residual: f64, sigma: f64) -> f64 {
    let deviations = residual.abs() / sigma;
    if deviations > DEVIATIONS_MAX {
        0.0
    } else if deviations > DEVIATIONS_FULL {
        DEVIATIONS_FULL / deviations
    } else {
        1.0
    }
}

/// A standard deviation that a few wild differences do not change.
fn robust_sigma(residuals: &[f64]) -> f64 {
    let mut sizes: Vec<f64> = residuals.iter().map(|residual| residual.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let median = sizes.get(sizes.len() / 2).copied().unwrap_or(0.0);
    (median * MEDIAN_TO_SIGMA).max(NOISE_MIN_SECONDS)
}

/// Locates that tell something, before anything is fitted to them.
const LOCATES_MIN: usize = 10;

/// The coefficients that suit observations best, held to those of the drive's model.
pub fn fit_locates(drive: &DriveModel, cartridges: &[CartridgeLocates<'_>]) -> LocateFit {
    let mut rows: Vec<([f64; TERMS], f64)> = Vec::new();
    let mut observed = 0;
    for cartridge in cartridges {
        let geometry = cartridge.geometry;
        observed += cartridge.locates.len();
        let telling = cartridge.locates.iter();
        let telling = telling.filter(|locate| is_telling(drive, geometry, locate));
        rows.extend(telling.map(|locate| {
            let from = geometry.position(locate.from_bytes);
            let to = geometry.position(locate.to_bytes);
            (features(from, to), seconds(locate.took_ns))
        }));
    }
    let usual = scaled(&drive.locate);
    let mut found = usual;
    let mut errors = [0.0; TERMS];
    let (mut sigma, mut used) = (NOISE_MIN_SECONDS, 0);
    let rounds = match rows.len() {
        // Of so few the wild one is not known.
        0..LOCATES_MIN => 0,
        _ => ROUNDS,
    };
    for _ in 0..rounds {
        let residual = |(terms, took): &([f64; TERMS], f64)| took - product(terms, &found);
        let residuals: Vec<f64> = rows.iter().map(residual).collect();
        sigma = robust_sigma(&residuals);
        let mut normal = Normal::new(TERMS);
        for (place, usual) in usual.iter().enumerate() {
            normal.hold(
                place,
                *usual,
                (usual.abs() * SPREAD).max(SPREAD_MIN_SECONDS),
            );
        }
        used = 0;
        for ((terms, took), residual) in rows.iter().zip(&residuals) {
            let weight = weight(*residual, sigma) / (sigma * sigma);
            used += usize::from(weight > 0.0);
            let terms = terms.iter().copied().enumerate();
            normal.add(&terms.collect::<Vec<_>>(), *took, weight);
        }
        let Some((solution, deviations)) = normal.solve() else {
            break;
        };
        found.copy_from_slice(&solution);
        errors.copy_from_slice(&deviations);
        // Along the tape it never takes less than a part of the usual.
        found[TERMS - 1] = found[TERMS - 1].max(usual[TERMS - 1] / 4.0);
    }
    LocateFit {
        model: unscaled(found),
        errors: unscaled(errors),
        used,
        left_out: observed - used,
        residual_ns: if rows.is_empty() {
            0
        } else {
            nanoseconds(sigma)
        },
    }
}

fn product(terms: &[f64; TERMS], coefficients: &[f64; TERMS]) -> f64 {
    let products = terms.iter().zip(coefficients);
    products.map(|(term, each)| term * each).sum()
}

/// A place in parts of its wrap, and what each end of a wrap moves it by, along the tape.
struct Lever {
    position: Position,
    /// The end of a wrap, by its number, and units along the tape for a shift by a whole wrap.
    shifts: Vec<(usize, f64)>,
}

fn lever(geometry: &Geometry, byte: u64) -> Lever {
    let position = geometry.position(byte);
    let wrap = position.wrap as usize;
    let range = f64::from(geometry.longitudinal_max - geometry.longitudinal_min);
    let way = if wrap.is_multiple_of(2) { 1.0 } else { -1.0 };
    let along = match wrap.is_multiple_of(2) {
        true => position.longitudinal - geometry.longitudinal_min,
        false => geometry.longitudinal_max - position.longitudinal,
    };
    let part = f64::from(along) / range;
    let last = geometry.wrap_ends_bytes.len().saturating_sub(1);
    let mut shifts = Vec::with_capacity(2);
    if wrap < last {
        shifts.push((wrap, -way * range * part));
    }
    if wrap > 0 {
        shifts.push((wrap - 1, -way * range * (1.0 - part)));
    }
    Lever { position, shifts }
}

/// Where the wraps of a cartridge end, as its locates tell. `geometry` is what is known without them; the capacity stays.
pub fn fit_wraps(
    drive: &DriveModel,
    geometry: &Geometry,
    locates: &[ObservedLocate],
    spread: f64,
) -> Geometry {
    // Of a short move nobody knows which way it went, when both of its places are uncertain.
    let (min, max) = (geometry.longitudinal_min, geometry.longitudinal_max);
    let short = f64::from(max - min) * spread * SHORT_SPREADS;
    let is_long = |locate: &&ObservedLocate| {
        let from = geometry.position(locate.from_bytes).longitudinal;
        let to = geometry.position(locate.to_bytes).longitudinal;
        f64::from(from.abs_diff(to)) > short
    };
    let telling = locates.iter().filter(is_long);
    let telling: Vec<&ObservedLocate> = telling
        .filter(|locate| is_telling(drive, geometry, locate))
        .collect();
    let ends = geometry.wrap_ends_bytes.len();
    if telling.len() < WRAP_LOCATES_MIN || ends < 2 {
        return geometry.clone();
    }
    let rate = seconds(drive.locate.longitudinal_ns);
    let coefficients = scaled(&drive.locate);
    let mut shifts = vec![0.0; ends - 1];
    let mut found = geometry.clone();
    for _ in 0..WRAP_ROUNDS {
        let mut rows: Vec<(Vec<(usize, f64)>, f64)> = Vec::with_capacity(telling.len());
        for locate in &telling {
            let (from, to) = (
                lever(&found, locate.from_bytes),
                lever(&found, locate.to_bytes),
            );
            let computed = product(&features(from.position, to.position), &coefficients);
            let residual = seconds(locate.took_ns) - computed;
            let way = match to.position.longitudinal >= from.position.longitudinal {
                true => rate,
                false => -rate,
            };
            let moved = to.shifts.iter().map(|(end, by)| (*end, by * way));
            let left = from.shifts.iter().map(|(end, by)| (*end, -by * way));
            rows.push((moved.chain(left).collect(), residual));
        }
        let residuals: Vec<f64> = rows.iter().map(|(_, residual)| *residual).collect();
        let sigma = robust_sigma(&residuals);
        // Only ends that some locate depends on are unknowns.
        let touched = rows.iter().flat_map(|(terms, _)| terms);
        let touched: BTreeSet<usize> = touched.map(|(end, _)| *end).collect();
        let touched: Vec<usize> = touched.into_iter().collect();
        let mut normal = Normal::new(touched.len());
        for unknown in 0..touched.len() {
            normal.hold(unknown, 0.0, spread);
        }
        for (terms, residual) in &mut rows {
            let now: f64 = terms.iter().map(|(end, by)| by * shifts[*end]).sum();
            for (end, _) in terms.iter_mut() {
                *end = touched.binary_search(end).unwrap_or(0);
            }
            let counts = weight(*residual, sigma.max(4.0 * NOISE_MIN_SECONDS));
            normal.add(
                terms,
                *residual + now,
                counts / (NOISE_SECONDS * NOISE_SECONDS),
            );
        }
        let Some((solution, _)) = normal.solve() else {
            break;
        };
        shifts.fill(0.0);
        for (end, shift) in touched.into_iter().zip(solution) {
            shifts[end] = shift.clamp(-WRAP_SHIFT_MAX, WRAP_SHIFT_MAX);
        }
        found = shifted(geometry, &shifts);
    }
    found
}

/// Each end of a wrap moves by a part of its wrap.
fn shifted(geometry: &Geometry, shifts: &[f64]) -> Geometry {
    let mut moved = geometry.clone();
    let mut begin = 0;
    for (end, shift) in moved.wrap_ends_bytes.iter_mut().zip(shifts) {
        let length = *end - begin;
        begin = *end;
        let by = (length as f64 * shift).round() as i64;
        *end = end.saturating_add_signed(by);
    }
    moved
}

/// How far ends of wraps are from where they are thought, in parts of a wrap, by what locates differ from the model.
fn wrap_spread(drive: &DriveModel, fit: &LocateFit) -> f64 {
    let noise = NOISE_SECONDS;
    let residual = seconds(fit.residual_ns);
    let of_wraps = (residual * residual - noise * noise).max(0.0);
    let (min, max) = drive.longitudinal_range;
    let length = seconds(fit.model.longitudinal_ns) * f64::from(max - min);
    // Two places, each moved by the two ends of its wrap: four thirds of the variance of one end.
    ((of_wraps * 0.75).sqrt() / length).clamp(WRAP_SPREAD_MIN, WRAP_SPREAD_MAX)
}

/// Coefficients and wraps together: where wraps were not measured, each is found with the other in turn.
pub fn calibrate(drive: &DriveModel, cartridges: &[CartridgeLocates<'_>]) -> Calibration {
    let mut geometries: Vec<Geometry> = cartridges.iter().map(|one| one.geometry.clone()).collect();
    let mut fit = fit_locates(drive, cartridges);
    let spread = wrap_spread(drive, &fit);
    for _ in 0..2 {
        let fitted = DriveModel {
            locate: fit.model,
            ..*drive
        };
        let wraps = cartridges.iter().map(|one| match one.is_measured {
            true => one.geometry.clone(),
            false => fit_wraps(&fitted, one.geometry, one.locates, spread),
        });
        geometries = wraps.collect();
        let known: Vec<CartridgeLocates<'_>> = cartridges
            .iter()
            .zip(&geometries)
            .map(|(one, geometry)| CartridgeLocates { geometry, ..*one })
            .collect();
        fit = fit_locates(drive, &known);
    }
    Calibration {
        fit,
        geometries,
        wrap_spread: spread,
    }
}
