//! Trouble that a test or an exercise asks for.

use penstock_tape::drive_fault::MountFault;
use penstock_tape::request::{DriveName, TapeName};
use std::collections::BTreeMap;

/// What is to go wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InjectedFault {
    /// With the next mount in this drive.
    Mount { drive: DriveName, fault: MountFault },
    /// A drive fails now, whatever it does. What it has written and not synced is lost.
    DriveFailure { drive: DriveName },
    /// A stretch of a tape cannot be read, from now on.
    MediaError {
        tape: TapeName,
        begin_bytes: u64,
        end_bytes: u64,
    },
    /// The robot is stuck with a cartridge: mounts fail after minutes, and dismounts do not end, until it is mended.
    RobotStuck,
    /// The robot does not answer: mounts fail at once, and dismounts do not end, until it is mended.
    RobotAway,
    /// The disk below the library is full: nothing is written until it is mended.
    LibraryFull,
}

/// Trouble of all of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LibraryFault {
    RobotStuck,
    RobotAway,
    Full,
}

/// What goes wrong now.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub mounts: BTreeMap<DriveName, MountFault>,
    pub library: Option<LibraryFault>,
    pub media: Vec<(TapeName, u64, u64)>,
    /// Drives whose cartridge waits for the robot to take it.
    pub held: Vec<(DriveName, u64)>,
}

impl Faults {
    /// Whether nothing is carried.
    pub fn is_robot_down(&self) -> bool {
        matches!(
            self.library,
            Some(LibraryFault::RobotStuck | LibraryFault::RobotAway)
        )
    }

    pub fn is_bad(&self, tape: &TapeName, begin: u64, end: u64) -> bool {
        let mut media = self.media.iter();
        media.any(|(of, from, to)| of == tape && begin < *to && end > *from)
    }
}
