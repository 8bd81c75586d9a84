//! A library: slots, and a robot whose arms carry cartridges. One arm carries one cartridge at a time, and the robot as a whole
//! makes so many moves in an hour.

use crate::locate::SECOND_NS;
use serde::{Deserialize, Serialize};

const HOUR_NS: i64 = 3_600 * SECOND_NS;

/// What a library is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryModel {
    /// Places for cartridges beside those in drives.
    pub slots: u32,
    /// Arms that work at the same time.
    pub arms: u32,
    /// One cartridge from a slot to a drive, or back.
    pub move_ns: i64,
    /// Moves of all arms together.
    pub moves_per_hour_max: u32,
}

/// When an arm carries a cartridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RobotMove {
    pub begin_ns: i64,
    pub end_ns: i64,
}

/// The robot of a library, with all moves that it has been asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Robot {
    model: LibraryModel,
    /// When each arm has made its last move.
    free_ns: Vec<i64>,
    /// When the next move may begin by the rate of moves.
    next_ns: i64,
}

impl Robot {
    /// A robot at rest.
    pub fn new(model: LibraryModel) -> Robot {
        let arms = usize::try_from(model.arms.max(1)).unwrap_or(1);
        Robot {
            model,
            free_ns: vec![i64::MIN; arms],
            next_ns: i64::MIN,
        }
    }

    /// The next move; it begins as soon as an arm is free and the rate of moves allows.
    pub fn carry(&mut self, now_ns: i64) -> RobotMove {
        let spacing = HOUR_NS / i64::from(self.model.moves_per_hour_max.max(1));
        let arm = self.free_ns.iter_mut().min();
        let free = arm.as_deref().copied().unwrap_or(i64::MIN);
        let begin_ns = now_ns.max(free).max(self.next_ns);
        let end_ns = begin_ns + self.model.move_ns;
        if let Some(arm) = arm {
            *arm = end_ns;
        }
        self.next_ns = begin_ns + spacing;
        RobotMove { begin_ns, end_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(model: LibraryModel, moves: usize) -> Vec<i64> {
        let mut robot = Robot::new(model);
        let end = |_| robot.carry(0).end_ns / SECOND_NS;
        (0..moves).map(end).collect()
    }

    #[test]
    fn arms_work_at_the_same_time_and_the_rate_of_moves_holds() {
        let model = LibraryModel {
            slots: 100,
            arms: 2,
            move_ns: 20 * SECOND_NS,
            moves_per_hour_max: 3_600,
        };
        // Two at a time, the second a second after the first.
        assert_eq!(ends(model.clone(), 4), [20, 21, 40, 41]);
        // IBM's Diamondback makes 270 mounts an hour, one each 13.3 s.
        let slower = LibraryModel {
            moves_per_hour_max: 270,
            arms: 9,
            ..model
        };
        let all = ends(slower, 271);
        assert!((3_599..=3_600).contains(&(all[270] - all[0])));
    }
}
