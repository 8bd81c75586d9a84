//! What the tape part of a storage element did in each bin of a window.

use penstock_decide::explain::signals::{Series, TapeSignals};
use penstock_model::TapeSample;

/// Of one bin.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TapeBin {
    looks: f64,
    written_bytes: f64,
    unwritten_bytes: f64,
    recalled_files: f64,
    recalled_bytes: f64,
    read_bytes: f64,
    mounts: f64,
    recalls_queued: f64,
    recall_age_seconds: f64,
    started: f64,
    wait_seconds: f64,
    drives_busy: f64,
    drives_max: f64,
    buffer_used: f64,
    /// Looks at which each of these was known.
    read_looks: f64,
    mount_looks: f64,
    buffer_looks: f64,
    cycle_seconds: Option<f64>,
}

impl TapeBin {
    /// Adds this part of an interval.
    pub(super) fn add(&mut self, tape: &TapeSample, part: f64) {
        let of = |sum: u64| sum as f64 * part;
        let looks = of(tape.looks);
        self.looks += looks;
        self.written_bytes += of(tape.written_bytes);
        self.unwritten_bytes += of(tape.unwritten_bytes);
        self.recalled_files += of(tape.recalled_files);
        self.recalled_bytes += of(tape.recalled_bytes);
        self.recalls_queued += of(tape.recalls_queued);
        self.recall_age_seconds = self.recall_age_seconds.max(tape.recall_age_seconds as f64);
        self.started += of(tape.recalls_started);
        self.wait_seconds += of(tape.recall_wait_ms) / 1e3;
        self.drives_busy += of(tape.drives_busy);
        self.drives_max += of(tape.drives_max);
        for (known, sum, its_looks) in [
            (tape.read_bytes, &mut self.read_bytes, &mut self.read_looks),
            (tape.mounts, &mut self.mounts, &mut self.mount_looks),
            (
                tape.buffer_used_permille,
                &mut self.buffer_used,
                &mut self.buffer_looks,
            ),
        ] {
            if let Some(known) = known {
                *sum += of(known);
                *its_looks += looks;
            }
        }
        let cycle = tape.write_cycle_seconds.map(|seconds| seconds as f64);
        self.cycle_seconds = cycle.or(self.cycle_seconds);
    }
}

fn series(bins: &[TapeBin], value: impl Fn(&TapeBin) -> Option<f64>) -> Series {
    Series(bins.iter().map(value).collect())
}

/// Of all bins. What is unknown stays unknown.
pub(super) fn tape_signals(bins: &[TapeBin]) -> TapeSignals {
    let sum =
        |value: fn(&TapeBin) -> f64| series(bins, |bin| (bin.looks > 0.0).then(|| value(bin)));
    let mean = |value: fn(&TapeBin) -> f64| {
        series(bins, |bin| {
            (bin.looks > 0.0).then(|| value(bin) / bin.looks)
        })
    };
    TapeSignals {
        drives_busy: mean(|bin| bin.drives_busy),
        drives_cap: mean(|bin| bin.drives_max),
        mounts: series(bins, |bin| (bin.mount_looks > 0.0).then_some(bin.mounts)),
        recalled_files: sum(|bin| bin.recalled_files),
        recalled_bytes: sum(|bin| bin.recalled_bytes),
        read_bytes: series(bins, |bin| (bin.read_looks > 0.0).then_some(bin.read_bytes)),
        recalls_queued: mean(|bin| bin.recalls_queued),
        recall_age_seconds: sum(|bin| bin.recall_age_seconds),
        written_bytes: sum(|bin| bin.written_bytes),
        unwritten_bytes: mean(|bin| bin.unwritten_bytes),
        buffer_used: series(bins, |bin| {
            let used = bin.buffer_used / bin.buffer_looks / 1000.0;
            (bin.buffer_looks > 0.0).then_some(used)
        }),
        write_cycle_seconds: bins.iter().rev().find_map(|bin| bin.cycle_seconds),
    }
}

/// How long a recall had waited when it began, where some began.
pub(super) fn waits(bins: &[TapeBin]) -> Series {
    series(bins, |bin| {
        (bin.started > 0.0).then(|| bin.wait_seconds / bin.started)
    })
}
