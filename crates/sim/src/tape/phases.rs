//! What the time of a mount is spent on. The phases of a mount are all of its time.

use serde::Serialize;

/// A part of the time for which a drive has a tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// For an arm of the robot, twice.
    RobotWait,
    /// From the slot to the drive and back.
    Carry,
    /// Loading and threading.
    Load,
    /// The first load of a new cartridge of some kinds.
    Initialisation,
    Locate,
    /// Bytes are read or written.
    Stream,
    /// Turns at ends of wraps.
    Turn,
    /// The host was too slow.
    Backhitch,
    /// File marks and syncs.
    Mark,
    /// Nothing was asked of it.
    Idle,
    Rewind,
    Unload,
    /// It hung, until the watchdog saw that.
    Lost,
}

impl Phase {
    /// All, in the order of a mount.
    pub const ALL: [(Phase, &'static str); 13] = [
        (Phase::RobotWait, "robot-wait"),
        (Phase::Carry, "carry"),
        (Phase::Load, "load"),
        (Phase::Initialisation, "initialisation"),
        (Phase::Locate, "locate"),
        (Phase::Stream, "stream"),
        (Phase::Turn, "turn"),
        (Phase::Backhitch, "backhitch"),
        (Phase::Mark, "mark"),
        (Phase::Idle, "idle"),
        (Phase::Rewind, "rewind"),
        (Phase::Unload, "unload"),
        (Phase::Lost, "lost"),
    ];
}

/// Times of all phases, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PhaseTimes([i64; Phase::ALL.len()]);

impl PhaseTimes {
    pub(super) fn add(&mut self, phase: Phase, time_ns: i64) {
        self.0[phase as usize] += time_ns;
    }

    pub(super) fn add_all(&mut self, other: &PhaseTimes) {
        for (time, more) in self.0.iter_mut().zip(other.0) {
            *time += more;
        }
    }

    /// Of one phase.
    pub fn of(&self, phase: Phase) -> i64 {
        self.0[phase as usize]
    }

    /// Of all phases together.
    pub fn total_ns(&self) -> i64 {
        self.0.iter().sum()
    }
}
