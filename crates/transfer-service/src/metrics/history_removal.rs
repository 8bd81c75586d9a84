//! What is counted of history and of its removal.

use parking_lot::Mutex;
use penstock_decide::history::OverdueHistory;
use penstock_journal::{HistoryFacts, PruneReport};
use penstock_protocol::exposition::{Counter, Histogram, Page};
use std::time::Duration;

/// Microseconds of a step.
const STEP_BOUNDS: [u64; 8] = [250, 500, 1_000, 2_000, 4_000, 8_000, 32_000, 250_000];

/// What is told of history.
#[derive(Debug)]
pub(crate) struct HistoryMeters {
    jobs: Counter,
    transfers: Counter,
    entries: Counter,
    samples: Counter,
    minutes: Counter,
    untaken: Counter,
    step_us: Histogram,
    seen: Mutex<HistoryView>,
}

/// As of the last look.
#[derive(Debug, Clone, Default)]
pub(crate) struct HistoryView {
    pub(crate) facts: HistoryFacts,
    pub(crate) held: Option<OverdueHistory>,
}

impl Default for HistoryMeters {
    fn default() -> HistoryMeters {
        HistoryMeters {
            jobs: Counter::default(),
            transfers: Counter::default(),
            entries: Counter::default(),
            samples: Counter::default(),
            minutes: Counter::default(),
            untaken: Counter::default(),
            step_us: Histogram::of_microseconds(&STEP_BOUNDS),
            seen: Mutex::default(),
        }
    }
}

impl HistoryMeters {
    pub(crate) fn count(&self, pruned: &PruneReport, took: Duration) {
        self.jobs.add(pruned.jobs);
        self.transfers.add(pruned.transfers);
        self.entries.add(pruned.entries);
        self.samples.add(pruned.samples);
        self.minutes.add(pruned.minutes);
        self.untaken.add(pruned.untaken);
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.step_us.observe(took);
    }

    pub(crate) fn see(&self, seen: HistoryView) {
        *self.seen.lock() = seen;
    }

    pub(crate) fn seen(&self) -> HistoryView {
        let seen = self.seen.lock();
        seen.clone()
    }

    pub(crate) fn write(&self, page: &mut Page) {
        let HistoryView { facts, held } = self.seen();
        let mut family = page.gauge(
            "penstock_history_bytes",
            "What the journal takes on its disk, and how much of that is free for new records.",
        );
        family.sample(&[("part", "all")], facts.size_bytes);
        if let Some(free_bytes) = facts.free_bytes {
            family.sample(&[("part", "free")], free_bytes);
        }
        let mut family = page.gauge(
            "penstock_history_held_seconds",
            "For how long history has outlived its time because a sink has not taken it; 0: none has.",
        );
        family.sample(&[], held.map_or(0, |held| held.since.as_secs()));
        let mut family = page.counter(
            "penstock_history_removed_total",
            "What was removed because its time was over.",
        );
        for (kind, count) in [
            ("jobs", &self.jobs),
            ("transfers", &self.transfers),
            ("entries", &self.entries),
            ("samples", &self.samples),
            ("minutes", &self.minutes),
        ] {
            family.sample(&[("kind", kind)], count.read());
        }
        let mut family = page.counter(
            "penstock_history_untaken_total",
            "Jobs that were removed before every sink had taken their messages.",
        );
        family.sample(&[], self.untaken.read());
        page.histogram(
            "penstock_history_step_seconds",
            "How long the journal's writer was at removing history, each time.",
        )
        .distribution(&[], &self.step_us);
    }
}
