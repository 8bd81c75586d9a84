//! What a kind of drive does: how fast it reads and writes, how it finds places, how long mounts take.

use crate::geometry::Geometry;
use crate::locate::{LocateModel, SECOND_NS};
use serde::{Deserialize, Serialize};

/// A kind of drive with its usual cartridge. Figures of LTO are those of IBM's manuals of LTO drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveModel {
    /// Bytes per second that it streams, without compression.
    pub native_rate: u64,
    /// Bytes of one cartridge.
    pub capacity_bytes: u64,
    /// Wraps of one cartridge.
    pub wraps: u32,
    /// Where wraps begin and end along the tape, in the drive's units.
    pub longitudinal_range: (u32, u32),
    /// How it finds places.
    pub locate: LocateModel,
    /// From the cartridge in the drive until it can be read.
    pub load_ns: i64,
    /// Rewind from the middle of the tape.
    pub rewind_ns: i64,
    /// From the beginning of the tape until the cartridge may be taken.
    pub unload_ns: i64,
    /// A turn at the end of a wrap.
    pub turn_ns: i64,
}

impl DriveModel {
    /// LTO-7: 6 TB, 300 MB/s.
    pub const LTO_7: DriveModel = DriveModel {
        native_rate: 300_000_000,
        capacity_bytes: 6_000_000_000_000,
        wraps: 112,
        longitudinal_range: (2_696, 171_097),
        locate: LocateModel::LTO,
        load_ns: 15 * SECOND_NS,
        rewind_ns: 60 * SECOND_NS,
        unload_ns: 20 * SECOND_NS,
        turn_ns: SECOND_NS * 3 / 2,
    };
    /// LTO-8: 12 TB, 360 MB/s.
    pub const LTO_8: DriveModel = DriveModel {
        native_rate: 360_000_000,
        capacity_bytes: 12_000_000_000_000,
        wraps: 208,
        rewind_ns: 59 * SECOND_NS,
        unload_ns: 24 * SECOND_NS,
        ..DriveModel::LTO_7
    };
    /// LTO-9: 18 TB, 400 MB/s, a tape of 1035 m instead of 960 m.
    pub const LTO_9: DriveModel = DriveModel {
        native_rate: 400_000_000,
        capacity_bytes: 18_000_000_000_000,
        wraps: 280,
        longitudinal_range: (2_696, 184_254),
        load_ns: 16 * SECOND_NS,
        rewind_ns: 62 * SECOND_NS,
        unload_ns: 56 * SECOND_NS,
        ..DriveModel::LTO_7
    };

    /// A cartridge whose wraps are equally long.
    pub fn geometry(&self) -> Geometry {
        {
            let (min, max) = self.longitudinal_range;
            Geometry::even(self.capacity_bytes, self.wraps, min, max)
        }
    }

    /// How long it reads a stretch of a tape.
    pub fn read_ns(&self, geometry: &Geometry, begin: u64, end: u64) -> i64 {
        let bytes = u128::from(end.saturating_sub(begin));
        let stream = bytes * SECOND_NS as u128 / u128::from(self.native_rate.max(1));
        let turns = i64::try_from(geometry.turns(begin, end)).unwrap_or(i64::MAX);
        i64::try_from(stream)
            .unwrap_or(i64::MAX)
            .saturating_add(turns.saturating_mul(self.turn_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_lto_8_is_read_in_nine_hours_and_its_turns() {
        let drive = DriveModel::LTO_8;
        let seconds = drive.read_ns(&drive.geometry(), 0, drive.capacity_bytes) / SECOND_NS;
        assert_eq!(seconds, 12_000_000 / 360 + 207 * 3 / 2);
    }
}
