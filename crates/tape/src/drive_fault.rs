//! Trouble of drives and libraries, for whoever imitates them.

use crate::chance::Chance;
use serde::{Deserialize, Serialize};

/// How often things go wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultRates {
    /// Of a million mounts, those that never end: a cartridge that is stuck, a process that hangs.
    pub hung_mounts_per_million: u32,
    /// Of a million mounts, those after which the drive is down.
    pub drive_failures_per_million: u32,
    /// Of a million mounts, those in which the tape is not recognised.
    pub unreadable_tapes_per_million: u32,
    /// Of a million reads of files, those that end in a media error, again each time.
    pub media_errors_per_million: u32,
}

/// How a mount goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountFault {
    /// It never ends.
    Hung,
    /// The drive is down.
    DriveDown,
    /// The tape is not recognised.
    TapeUnreadable,
}

impl FaultRates {
    /// What happens to a mount.
    pub fn mount_fault(&self, chance: &mut Chance) -> Option<MountFault> {
        let drawn = [
            (self.hung_mounts_per_million, MountFault::Hung),
            (self.drive_failures_per_million, MountFault::DriveDown),
            (
                self.unreadable_tapes_per_million,
                MountFault::TapeUnreadable,
            ),
        ];
        // All are drawn, so that another rate of one leaves the others as they were.
        let drawn = drawn.map(|(rate, fault)| chance.happens(rate).then_some(fault));
        drawn.into_iter().flatten().next()
    }

    /// Whether the place of a file cannot be read: the same answer each time.
    pub fn is_place_bad(&self, seed: u64, tape: u64, begin_bytes: u64) -> bool {
        let mut chance = Chance::of_part(seed ^ tape.rotate_left(17), begin_bytes);
        chance.happens(self.media_errors_per_million)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_as_frequent_as_said() {
        let rates = FaultRates {
            hung_mounts_per_million: 20_000,
            media_errors_per_million: 10_000,
            ..FaultRates::default()
        };
        let mut chance = Chance::new(1);
        let hung = (0..50_000).filter(|_| rates.mount_fault(&mut chance) == Some(MountFault::Hung));
        assert!((900..=1_100).contains(&hung.count()));
        let bad = |tape: u64| {
            (0..50_000)
                .filter(|place| rates.is_place_bad(1, tape, *place))
                .count()
        };
        assert!((400..=600).contains(&bad(1)));
        assert_eq!(bad(2), bad(2));
        assert_eq!(FaultRates::default().mount_fault(&mut chance), None);
    }
}
