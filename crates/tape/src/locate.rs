//! How long a drive takes from one place of a tape to another.
//!
//! The form and the numbers are those that CERN fitted for LTO drives (CTA, recommended access order for LTO; IT-Note-2020-001).
//! Coefficients of other drives are found from locates that were observed, by [`Calibration`].

use crate::geometry::Position;
use serde::{Deserialize, Serialize};

/// Nanoseconds in a second.
pub const SECOND_NS: i64 = 1_000_000_000;

/// What a locate costs, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocateModel {
    /// Each locate.
    pub base_ns: i64,
    /// To another wrap.
    pub wrap_ns: i64,
    /// To another band.
    pub band_ns: i64,
    /// To the other half of the tape; it is negative on LTO.
    pub half_ns: i64,
    /// To a wrap of the other direction.
    pub direction_ns: i64,
    /// Back on the same wrap.
    pub back_ns: i64,
    /// Each unit along the tape.
    pub longitudinal_ns: i64,
}

/// Terms of a locate beside the base.
pub const TERMS: usize = 7;

impl LocateModel {
    /// LTO, as CERN measured it on media of type M8.
    pub const LTO: LocateModel = LocateModel {
        base_ns: 4_290_000_000,
        wrap_ns: 6_690_000_000,
        band_ns: 3_200_000_000,
        half_ns: -6_040_000_000,
        direction_ns: 5_220_000_000,
        back_ns: 11_320_000_000,
        longitudinal_ns: 619_200,
    };

    /// How often each coefficient counts in a locate, in the order of the fields.
    pub fn terms(from: Position, to: Position) -> [i64; TERMS] {
        let is_same_wrap = from.wrap == to.wrap;
        let is_back = match to.wrap.is_multiple_of(2) {
            true => to.longitudinal < from.longitudinal,
            false => to.longitudinal > from.longitudinal,
        };
        [
            1,
            i64::from(!is_same_wrap),
            i64::from(from.band != to.band),
            i64::from(from.is_far != to.is_far),
            i64::from(from.wrap % 2 != to.wrap % 2),
            i64::from(is_same_wrap && is_back),
            i64::from(from.longitudinal.abs_diff(to.longitudinal)),
        ]
    }

    /// How long it takes. A drive that stands there already needs no time.
    pub fn cost_ns(&self, from: Position, to: Position) -> i64 {
        if from == to {
            return 0;
        }
        let terms = LocateModel::terms(from, to);
        let mut cost = 0;
        for (times, each) in terms.into_iter().zip(self.coefficients()) {
            cost += times * each;
        }
        cost.max(0)
    }

    fn coefficients(&self) -> [i64; TERMS] {
        [
            self.base_ns,
            self.wrap_ns,
            self.band_ns,
            self.half_ns,
            self.direction_ns,
            self.back_ns,
            self.longitudinal_ns,
        ]
    }

    fn of_coefficients(
        [
            base_ns,
            wrap_ns,
            band_ns,
            half_ns,
            direction_ns,
            back_ns,
            longitudinal_ns,
        ]: [i64; TERMS],
    ) -> LocateModel {
        LocateModel {
            base_ns,
            wrap_ns,
            band_ns,
            half_ns,
            direction_ns,
            back_ns,
            longitudinal_ns,
        }
    }
}

/// Finds the coefficients of a drive from locates that were observed: least squares, held to a prior model where locates
/// say little.
#[derive(Debug, Clone)]
pub struct Calibration {
    prior: LocateModel,
    /// How often each pair of terms came together.
    squares: [[f64; TERMS]; TERMS],
    /// The observed seconds above the prior, with each term.
    above: [f64; TERMS],
    observed: u64,
}

/// Weight of the prior: that of so many observations of each term.
const PRIOR_WEIGHT: f64 = 1.0;
/// Units of length that count as one term, so that all terms have a like size.
const LENGTH_SCALE: f64 = 50_000.0;

impl Calibration {
    /// Without observations it gives the prior back.
    pub fn new(prior: LocateModel) -> Calibration {
        let mut squares = [[0.0; TERMS]; TERMS];
        for (row, term) in squares.iter_mut().enumerate() {
            term[row] = PRIOR_WEIGHT;
        }
        Calibration {
            prior,
            squares,
            above: [0.0; TERMS],
            observed: 0,
        }
    }

    /// Takes one locate.
    pub fn observe(&mut self, from: Position, to: Position, took_ns: i64) {
        if from == to {
            return;
        }
        let terms = LocateModel::terms(from, to);
        let mut scaled = terms.map(|times| times as f64);
        scaled[TERMS - 1] /= LENGTH_SCALE;
        let above = (took_ns - self.prior.cost_ns(from, to)) as f64 / SECOND_NS as f64;
        for row in 0..TERMS {
            self.above[row] += scaled[row] * above;
            for (square, term) in self.squares[row].iter_mut().zip(scaled) {
                *square += scaled[row] * term;
            }
        }
        self.observed += 1;
    }

    /// Locates taken so far.
    pub fn observed(&self) -> u64 {
        self.observed
    }

    /// The model that fits best.
    pub fn model(&self) -> LocateModel {
        let mut change = solve(self.squares, self.above);
        change[TERMS - 1] /= LENGTH_SCALE;
        let mut coefficients = self.prior.coefficients();
        for (coefficient, change) in coefficients.iter_mut().zip(change) {
            *coefficient += (change * SECOND_NS as f64).round() as i64;
        }
        coefficients[TERMS - 1] = coefficients[TERMS - 1].max(0);
        LocateModel::of_coefficients(coefficients)
    }
}

/// Gauss's elimination with pivots. The matrix is positive definite by the prior.
fn solve(mut matrix: [[f64; TERMS]; TERMS], mut right: [f64; TERMS]) -> [f64; TERMS] {
    for column in 0..TERMS {
        let largest = |row: &usize| matrix[*row][column].abs();
        let pivot = (column..TERMS).max_by(|a, b| largest(a).total_cmp(&largest(b)));
        let pivot = pivot.unwrap_or(column);
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        for row in column + 1..TERMS {
            let factor = matrix[row][column] / matrix[column][column];
            let above = matrix[column];
            for (cell, above) in matrix[row].iter_mut().zip(above) {
                *cell -= factor * above;
            }
            right[row] -= factor * right[column];
        }
    }
    for column in (0..TERMS).rev() {
        let known: f64 = (column + 1..TERMS)
            .map(|other| matrix[column][other] * right[other])
            .sum();
        right[column] = (right[column] - known) / matrix[column][column];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::DriveModel;

    fn random(state: &mut u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    #[test]
    fn a_locate_over_the_whole_of_an_lto_8_takes_what_was_measured() {
        let drive = DriveModel::LTO_8;
        let tape = drive.geometry();
        let (begin, end) = (tape.place(0, 2_696), tape.place(0, 171_097));
        let seconds = drive.locate.cost_ns(begin, end) / SECOND_NS;
        assert!((100..=106).contains(&seconds), "{seconds} s");
        let mut state = 7;
        let mut sum = 0;
        for _ in 0..20_000 {
            let mut place = || tape.position(random(&mut state) % 12_000 * 1_000_000_000);
            sum += drive.locate.cost_ns(place(), place());
        }
        let mean = sum / 20_000 / SECOND_NS;
        assert!(
            (45..=50).contains(&mean),
            "{mean} s between two random places"
        );
        let place = tape.position(5_000_000_000);
        assert_eq!(drive.locate.cost_ns(place, place), 0);
    }

    #[test]
    fn two_hundred_locates_tell_the_coefficients_of_a_drive() {
        let tape = DriveModel::LTO_8.geometry();
        let hidden = LocateModel {
            base_ns: 5_000_000_000,
            wrap_ns: 5_500_000_000,
            band_ns: 3_800_000_000,
            half_ns: -5_000_000_000,
            direction_ns: 6_200_000_000,
            back_ns: 9_100_000_000,
            longitudinal_ns: 740_000,
        };
        let mut calibration = Calibration::new(LocateModel::LTO);
        assert_eq!(calibration.model(), LocateModel::LTO);
        let mut state = 11;
        let mut pairs = Vec::new();
        for _ in 0..400 {
            let from = tape.position(random(&mut state) % 12_000 * 1_000_000_000);
            let to = tape.position(random(&mut state) % 12_000 * 1_000_000_000);
            pairs.push((from, to));
        }
        for (from, to) in &pairs[..200] {
            // Noise of about a second.
            let noise = (random(&mut state) % 3_000) as i64 * 1_000_000 - 1_500_000_000;
            let took = hidden.cost_ns(*from, *to) + noise;
            calibration.observe(*from, *to, took);
        }
        let found = calibration.model();
        let error = |model: &LocateModel| {
            let of_pair = |(from, to): &(Position, Position)| {
                (model.cost_ns(*from, *to) - hidden.cost_ns(*from, *to)).abs()
            };
            pairs[200..].iter().map(of_pair).sum::<i64>() / 200
        };
        assert_eq!(calibration.observed(), 200);
        assert!(error(&LocateModel::LTO) > 3 * SECOND_NS);
        assert!(error(&found) < SECOND_NS / 2, "{found:?}");
    }
}
