//! How long a drive takes from one place of a tape to another.
//!
//! The form and the numbers are those that CERN fitted for LTO drives (CTA, recommended access order for LTO; IT-Note-2020-001).

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

/// Coefficients of a locate.
pub(crate) const TERMS: usize = 7;

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
    pub(crate) fn terms(from: Position, to: Position) -> [i64; TERMS] {
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

    /// From coefficients in the order of the fields.
    pub(crate) fn of_coefficients(coefficients: [i64; TERMS]) -> LocateModel {
        let [
            base_ns,
            wrap_ns,
            band_ns,
            half_ns,
            direction_ns,
            back_ns,
            longitudinal_ns,
        ] = coefficients;
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

    /// In the order of the fields.
    pub(crate) fn coefficients(&self) -> [i64; TERMS] {
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
}
