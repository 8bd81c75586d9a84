//! Where the bytes of a cartridge lie. A serpentine tape is written in wraps, there and back again; wraps lie in four
//! bands across the tape.

use serde::{Deserialize, Serialize};

/// A place on a tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// From 0. Even wraps run away from the beginning of the tape, odd ones back to it.
    pub wrap: u32,
    /// Along the tape, in the drive's units (some 5.7 mm on LTO).
    pub longitudinal: u32,
    /// Which of the bands its wrap lies in.
    pub band: u32,
    /// Whether it lies in the far half of the tape. Drives land in the near or the far half.
    pub is_far: bool,
}

/// The wraps of one cartridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// For each wrap the byte behind its last one. Wraps differ in length, since bad places are skipped.
    pub wrap_ends_bytes: Vec<u64>,
    /// Where wraps begin.
    pub longitudinal_min: u32,
    /// Where they end.
    pub longitudinal_max: u32,
    /// Bands across the tape.
    pub bands: u32,
}

impl Geometry {
    /// Wraps of equal length.
    pub fn even(
        capacity_bytes: u64,
        wraps: u32,
        longitudinal_min: u32,
        longitudinal_max: u32,
    ) -> Geometry {
        let end = |wrap: u32| {
            let share =
                u128::from(capacity_bytes) * u128::from(wrap + 1) / u128::from(wraps.max(1));
            u64::try_from(share).unwrap_or(capacity_bytes)
        };
        Geometry {
            wrap_ends_bytes: (0..wraps.max(1)).map(end).collect(),
            longitudinal_min,
            longitudinal_max,
            bands: 4,
        }
    }

    /// How many bytes it holds.
    pub fn capacity_bytes(&self) -> u64 {
        self.wrap_ends_bytes.last().copied().unwrap_or(0)
    }

    /// Where a byte lies; behind the end of the tape, its end.
    pub fn position(&self, byte: u64) -> Position {
        let byte = byte.min(self.capacity_bytes().saturating_sub(1));
        let wrap = self.wrap_ends_bytes.partition_point(|end| *end <= byte);
        let wrap = wrap.min(self.wrap_ends_bytes.len().saturating_sub(1));
        let end = self.wrap_ends_bytes.get(wrap).copied().unwrap_or(1);
        let begin = match wrap {
            0 => 0,
            _ => self.wrap_ends_bytes[wrap - 1],
        };
        let range = u128::from(self.longitudinal_max - self.longitudinal_min);
        let along = range * u128::from(byte - begin) / u128::from((end - begin).max(1));
        let along = u32::try_from(along).unwrap_or(u32::MAX);
        let wrap = u32::try_from(wrap).unwrap_or(u32::MAX);
        let longitudinal = match wrap.is_multiple_of(2) {
            true => self.longitudinal_min + along,
            false => self.longitudinal_max - along,
        };
        self.place(wrap, longitudinal)
    }

    /// A place by its wrap and where it is along the tape.
    pub fn place(&self, wrap: u32, longitudinal: u32) -> Position {
        let wraps = u32::try_from(self.wrap_ends_bytes.len()).unwrap_or(u32::MAX);
        let middle = u64::from(self.longitudinal_min) + u64::from(self.longitudinal_max);
        Position {
            wrap,
            longitudinal,
            band: wrap / (wraps / self.bands.max(1)).max(1),
            is_far: u64::from(longitudinal) * 2 > middle,
        }
    }

    /// Where a drive stands after a mount.
    pub fn begin_of_tape(&self) -> Position {
        self.place(0, self.longitudinal_min)
    }

    /// Turns at ends of wraps between two bytes.
    pub fn turns(&self, begin: u64, end: u64) -> u64 {
        let last = end.saturating_sub(1).max(begin);
        u64::from(self.position(last).wrap - self.position(begin).wrap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_run_there_and_back() {
        let tape = Geometry::even(1000, 4, 100, 200);
        let place = |byte| {
            let position = tape.position(byte);
            (position.wrap, position.longitudinal)
        };
        assert_eq!(place(0), (0, 100));
        assert_eq!(place(125), (0, 150));
        assert_eq!(place(249), (0, 199));
        assert_eq!(place(250), (1, 200));
        assert_eq!(place(375), (1, 150));
        assert_eq!(place(500), (2, 100));
        assert_eq!(place(5000), (3, 101));
        assert_eq!((tape.turns(0, 250), tape.turns(0, 251)), (0, 1));
        assert_eq!((tape.position(0).band, tape.position(999).band), (0, 3));
        assert!(!tape.place(0, 150).is_far && tape.place(0, 151).is_far);
    }
}
