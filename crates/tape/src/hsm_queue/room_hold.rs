//! No pool had room for a file, nor for any other as large: gets of files as large, or larger, are not tried one after the other in
//! vain. After a pause one at a time is, until there is room for one. Made anew after a restart, by the first get that finds no room.

use super::HsmQueue;
use super::entry::HsmRun;
use super::work::{HsmCommandId, HsmKind, HsmTarget};

/// Gets that are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RoomHold {
    /// Of the smallest file for which there was no room.
    bytes_min: u64,
    /// When it was found last that there is no room.
    since_ns: i64,
    /// None is tried before.
    until_ns: i64,
}

impl HsmQueue {
    /// There was no room for a file.
    pub(super) fn hold_gets(&mut self, now_ns: i64, target: &HsmTarget) {
        let Some(entry) = self.live.entries.get(target) else {
            return;
        };
        let bytes = entry.work.size_bytes();
        let known = self.room_hold.map_or(bytes, |hold| hold.bytes_min);
        self.room_hold = Some(RoomHold {
            bytes_min: known.min(bytes),
            since_ns: now_ns,
            until_ns: now_ns.saturating_add(self.policy.retry_first_ns),
        });
    }

    /// From which size on gets are held back now; `None`: none are.
    pub(super) fn held_bytes_min(&self, now_ns: i64) -> Option<u64> {
        let hold = self.room_hold?;
        // A pause that would last longer than it is long began while the clock was ahead.
        let left_ns = hold.until_ns.saturating_sub(now_ns);
        let is_paused = left_ns > 0 && left_ns <= self.policy.retry_first_ns;
        let mut gets = self.live.runs_of(HsmKind::Get);
        let is_tried = gets.any(|run| self.tries_room(run));
        (is_paused || is_tried).then_some(hold.bytes_min)
    }

    /// Whether a command shows that there is room again. One that began before had its room then.
    fn tries_room(&self, run: &HsmRun) -> bool {
        let entry = self.live.entries.get(&run.target);
        let bytes = entry.map_or(0, |entry| entry.work.size_bytes());
        let is_held = |hold: RoomHold| bytes >= hold.bytes_min && run.begun_ns > hold.since_ns;
        run.target.kind() == HsmKind::Get && self.room_hold.is_some_and(is_held)
    }

    /// A pool has taken a file: there is room again.
    pub(super) fn found_room(&mut self, command: HsmCommandId) {
        let run = self.live.runs.get(&command);
        if run.is_some_and(|run| self.tries_room(run)) {
            self.room_hold = None;
        }
    }

    /// When the next one may be tried that was held back.
    pub(super) fn room_hold_ends_ns(&self, now_ns: i64) -> Option<i64> {
        let hold = self.room_hold?;
        (hold.until_ns > now_ns).then_some(hold.until_ns)
    }
}
