//! What the tape part does, counted by whoever drives it, taken once a second by the sampler of the pools, and told to monitors.
//!
//! It knows neither the HSM nor drives: a back end tells what it can, and leaves the rest unknown.

use crate::tape_counts::TapeCounts;
use parking_lot::Mutex;
use penstock_model::{TapeSample, Timestamp};
use penstock_tape::amount::TapeAmount;

/// What is so now, in the terms of any back end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MeterState {
    /// Bytes that are to be on tape and are not yet.
    pub unwritten_bytes: u64,
    /// Files that wait to be read, and since when the oldest does.
    pub recalls_queued: u64,
    pub oldest_recall: Option<Timestamp>,
    /// Drives that read, or commands that do, and how many may.
    pub drives_busy: u64,
    pub drives_max: u64,
    pub write_cycle_seconds: Option<u64>,
    /// Tapes that were mounted to read from, since the start. `None`: the back end does not see drives.
    pub mounts: Option<u64>,
    /// The same, to be written to.
    pub write_mounts: Option<u64>,
}

/// What was moved since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MovedTotals {
    pub written: TapeAmount,
    pub recalled: TapeAmount,
}

/// What a monitor is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MeterReading {
    pub moved: MovedTotals,
    pub read_mounts: Option<u64>,
    pub write_mounts: Option<u64>,
    /// Of the buffer of an HSM, as far as it is known.
    pub buffer_used_permille: Option<u64>,
}

impl MeterState {
    /// What waits by these counts; of drives nothing.
    pub(crate) fn of_counts(counts: &TapeCounts) -> MeterState {
        let archives = &counts.archives;
        MeterState {
            unwritten_bytes: archives.waiting().bytes + archives.running.bytes,
            recalls_queued: counts.recalls.waiting().files,
            oldest_recall: counts.recalls.oldest_waiting,
            ..MeterState::default()
        }
    }
}

#[derive(Debug, Default)]
struct Metered {
    /// `None`: nobody has told anything yet.
    state: Option<MeterState>,
    /// What was counted since the last look.
    counted: TapeSample,
    buffer_used_permille: Option<u64>,
    /// Mounts until the last look.
    mounts: u64,
    moved: MovedTotals,
}

/// The meter.
#[derive(Debug, Default)]
pub(crate) struct TapeMeter(Mutex<Metered>);

impl TapeMeter {
    pub(crate) fn set_state(&self, state: MeterState) {
        self.0.lock().state = Some(state);
    }

    pub(crate) fn set_buffer_used(&self, permille: Option<u64>) {
        self.0.lock().buffer_used_permille = permille;
    }

    /// A file of so many bytes came to be on tape, safely.
    pub(crate) fn written(&self, bytes: u64) {
        let mut metered = self.0.lock();
        metered.moved.written.add(bytes);
        let counted = &mut metered.counted;
        counted.written_files += 1;
        counted.written_bytes = counted.written_bytes.saturating_add(bytes);
    }

    /// A file of so many bytes came back from tape, for which a drive read so many. Both count at the same time, so that what is
    /// just being read is no excess.
    pub(crate) fn recalled(&self, bytes: u64, read_bytes: u64) {
        let mut metered = self.0.lock();
        metered.moved.recalled.add(bytes);
        let counted = &mut metered.counted;
        counted.recalled_files += 1;
        counted.recalled_bytes = counted.recalled_bytes.saturating_add(bytes);
        let read = counted.read_bytes.unwrap_or(0);
        counted.read_bytes = Some(read.saturating_add(read_bytes));
    }

    /// A recall begins that had waited for so long.
    pub(crate) fn recall_began(&self, waited_ms: u64) {
        let counted = &mut self.0.lock().counted;
        counted.recalls_started += 1;
        counted.recall_wait_ms = counted.recall_wait_ms.saturating_add(waited_ms);
    }

    /// Since the start, and now. Takes nothing from the next look.
    pub(crate) fn read(&self) -> MeterReading {
        let metered = self.0.lock();
        MeterReading {
            moved: metered.moved,
            read_mounts: metered.state.and_then(|state| state.mounts),
            write_mounts: metered.state.and_then(|state| state.write_mounts),
            buffer_used_permille: metered.buffer_used_permille,
        }
    }

    /// All of it since the last look. `None`: nobody has told anything yet.
    pub(crate) fn look(&self, now: Timestamp) -> Option<TapeSample> {
        let mut metered = self.0.lock();
        let state = metered.state?;
        let counted = std::mem::take(&mut metered.counted);
        let before = std::mem::replace(&mut metered.mounts, state.mounts.unwrap_or(0));
        let read_bytes = counted.read_bytes.unwrap_or(0);
        let age = state.oldest_recall.map(|since| now.since(since).as_secs());
        Some(TapeSample {
            looks: 1,
            unwritten_bytes: state.unwritten_bytes,
            recalls_queued: state.recalls_queued,
            recall_age_seconds: age.unwrap_or(0),
            drives_busy: state.drives_busy,
            drives_max: state.drives_max,
            buffer_used_permille: metered.buffer_used_permille,
            write_cycle_seconds: state.write_cycle_seconds,
            mounts: state.mounts.map(|mounts| mounts.saturating_sub(before)),
            read_bytes: state.mounts.map(|_| read_bytes),
            ..counted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_told_once_and_what_is_so_is_told_at_each_look() {
        let meter = TapeMeter::default();
        meter.written(5);
        assert_eq!(meter.look(Timestamp(0)), None, "nobody has told a state");
        meter.set_state(MeterState {
            unwritten_bytes: 7,
            oldest_recall: Some(Timestamp(1_000)),
            ..MeterState::default()
        });
        meter.recalled(3, 4);
        meter.recall_began(9);
        let first = meter.look(Timestamp(5_000)).expect("a look");
        assert_eq!((first.written_bytes, first.recalled_bytes), (5, 3));
        assert_eq!((first.recalls_started, first.recall_wait_ms), (1, 9));
        assert_eq!((first.unwritten_bytes, first.recall_age_seconds), (7, 4));
        assert_eq!((first.mounts, first.read_bytes), (None, None));
        let second = meter.look(Timestamp(6_000)).expect("a look");
        assert_eq!((second.written_bytes, second.unwritten_bytes), (0, 7));
        let moved = meter.read().moved;
        assert_eq!((moved.written.bytes, moved.recalled.bytes), (5, 3));
        assert_eq!((moved.written.files, moved.recalled.files), (1, 1));
    }

    #[test]
    fn what_drives_read_counts_with_the_file_that_it_was_read_for() {
        let meter = TapeMeter::default();
        let state = |mounts| MeterState {
            mounts: Some(mounts),
            ..MeterState::default()
        };
        meter.set_state(state(2));
        let known = |sample: TapeSample| (sample.mounts, sample.recalled_bytes, sample.read_bytes);
        let first = meter.look(Timestamp(1_000)).expect("a look");
        assert_eq!(known(first), (Some(2), 0, Some(0)));
        meter.recalled(3, 9);
        meter.set_state(state(3));
        let second = meter.look(Timestamp(2_000)).expect("a look");
        assert_eq!(known(second), (Some(1), 3, Some(9)));
    }
}
