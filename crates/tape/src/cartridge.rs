//! Cartridges as they are, which software knows only in part: their wraps are not equally long.

use crate::chance::Chance;
use crate::drive_kind::DriveKind;
use crate::geometry::Geometry;

/// One cartridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cartridge {
    /// Where its wraps end.
    pub geometry: Geometry,
    /// Whether a drive has loaded it before. The first load of some kinds takes long.
    pub is_initialised: bool,
}

impl Cartridge {
    /// A cartridge of a kind; equal seeds give equal wraps.
    pub fn of_kind(kind: &DriveKind, seed: u64) -> Cartridge {
        let mut geometry = kind.model.geometry();
        jitter(&mut geometry, kind.wrap_jitter_permille, seed);
        Cartridge {
            geometry,
            is_initialised: kind.first_load.is_none(),
        }
    }
}

/// Moves the ends of wraps, so that each wrap is longer or shorter than the mean by so many thousandths at most. The capacity
/// stays.
pub fn jitter(geometry: &mut Geometry, permille: u32, seed: u64) {
    let mut chance = Chance::of_part(seed, 0x77_61_70);
    let permille = u64::from(permille.min(500));
    let last = geometry.wrap_ends_bytes.len().saturating_sub(1);
    let mut begin = 0;
    for end in &mut geometry.wrap_ends_bytes[..last] {
        let length = *end - begin;
        begin = *end;
        // An end that moves by half of the allowed changes two wraps by all of it, at most.
        let reach = length * permille / 2_000;
        *end = *end - reach + chance.below(2 * reach + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_differ_by_two_in_a_hundred_at_most_and_the_capacity_stays() {
        let kind = DriveKind::named("LTO-8").expect("a kind");
        let cartridge = Cartridge::of_kind(&kind, 5);
        let even = kind.model.geometry();
        assert_eq!(cartridge.geometry.capacity_bytes(), even.capacity_bytes());
        let mean = kind.model.capacity_bytes / 208;
        let ends = &cartridge.geometry.wrap_ends_bytes;
        let lengths = ends.windows(2).map(|pair| pair[1] - pair[0]);
        let furthest = lengths.map(|length| length.abs_diff(mean)).max();
        let furthest = furthest.expect("wraps");
        assert!(
            furthest > mean / 200 && furthest <= mean / 50 + 2,
            "{furthest}"
        );
        assert_eq!(cartridge, Cartridge::of_kind(&kind, 5));
        assert_ne!(cartridge, Cartridge::of_kind(&kind, 6));
    }
}
