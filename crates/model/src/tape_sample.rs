//! What the tape part of a storage element did in an interval: a second, or a minute that is made of seconds.
//!
//! It knows neither who counts nor what is behind it: a program of an HSM or drives of its own. What a back end cannot tell is
//! unknown. What is counted adds up; what is a state is summed over the looks.

/// The tape part of one storage element in one interval.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TapeSample {
    /// How often it was looked at, about once a second: sums of states are of so many looks.
    pub looks: u64,
    /// Files that came to be on tape, safely, and their bytes.
    pub written_files: u64,
    pub written_bytes: u64,
    /// Bytes that are to be on tape and are not yet, summed over the looks.
    pub unwritten_bytes: u64,
    /// Files that came back from tape, and their bytes.
    pub recalled_files: u64,
    pub recalled_bytes: u64,
    /// Bytes that drives read for these files, told with them. `None`: the back end does not see drives.
    pub read_bytes: Option<u64>,
    /// Tapes that were mounted to read from. `None`: likewise.
    pub mounts: Option<u64>,
    /// Files that wait to be read, summed over the looks. Of an HSM, until its command gives the first of them.
    pub recalls_queued: u64,
    /// How long the oldest of them has waited, in seconds: the most that was seen.
    pub recall_age_seconds: u64,
    /// Recalls that began, and the milliseconds that they had waited until then.
    pub recalls_started: u64,
    pub recall_wait_ms: u64,
    /// Drives that read, or commands that do, and how many may: summed over the looks.
    pub drives_busy: u64,
    pub drives_max: u64,
    /// Used part of the buffer before the tapes in thousandths, summed over the looks. `None`: there is none, or nobody sees it.
    pub buffer_used_permille: Option<u64>,
    /// Writing begins anew at least each so many seconds. `None`: whenever there is something.
    pub write_cycle_seconds: Option<u64>,
}

impl TapeSample {
    /// Adds a later interval.
    pub fn add(&mut self, later: &TapeSample) {
        let sum = |one: Option<u64>, more: Option<u64>| Some(one?.saturating_add(more?));
        let is_first = self.looks == 0;
        self.looks += later.looks;
        self.written_files += later.written_files;
        self.written_bytes = self.written_bytes.saturating_add(later.written_bytes);
        self.unwritten_bytes = self.unwritten_bytes.saturating_add(later.unwritten_bytes);
        self.recalled_files += later.recalled_files;
        self.recalled_bytes = self.recalled_bytes.saturating_add(later.recalled_bytes);
        self.recalls_queued = self.recalls_queued.saturating_add(later.recalls_queued);
        self.recall_age_seconds = self.recall_age_seconds.max(later.recall_age_seconds);
        self.recalls_started += later.recalls_started;
        self.recall_wait_ms = self.recall_wait_ms.saturating_add(later.recall_wait_ms);
        self.drives_busy = self.drives_busy.saturating_add(later.drives_busy);
        self.drives_max = self.drives_max.saturating_add(later.drives_max);
        self.write_cycle_seconds = later.write_cycle_seconds;
        if is_first {
            self.read_bytes = later.read_bytes;
            self.mounts = later.mounts;
            self.buffer_used_permille = later.buffer_used_permille;
        } else {
            self.read_bytes = sum(self.read_bytes, later.read_bytes);
            self.mounts = sum(self.mounts, later.mounts);
            self.buffer_used_permille = sum(self.buffer_used_permille, later.buffer_used_permille);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_add_up_and_what_is_unknown_in_one_is_unknown_in_all() {
        let second = |age, mounts| TapeSample {
            looks: 1,
            written_bytes: 5,
            unwritten_bytes: 7,
            recall_age_seconds: age,
            drives_busy: 2,
            drives_max: 3,
            read_bytes: Some(4),
            mounts,
            write_cycle_seconds: Some(60),
            ..TapeSample::default()
        };
        let mut minute = TapeSample::default();
        minute.add(&second(9, Some(1)));
        minute.add(&second(3, None));
        let sums = (minute.looks, minute.written_bytes, minute.unwritten_bytes);
        assert_eq!(sums, (2, 10, 14));
        assert_eq!((minute.recall_age_seconds, minute.drives_max), (9, 6));
        assert_eq!((minute.read_bytes, minute.mounts), (Some(8), None));
        assert_eq!(minute.write_cycle_seconds, Some(60));
    }
}
