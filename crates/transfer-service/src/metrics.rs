//! What the transfer service counts for monitors. Labels are states, sides and phases; links have labels as well, but
//! only the first so many, because users choose them. A page costs the same however many transfers wait.

mod history_removal;

pub(crate) use history_removal::{HistoryMeters, HistoryView};

use crate::overview::{LinkRow, Overview};
use parking_lot::Mutex;
use penstock_model::{Failure, Phase, Record, Side, TransferEvent};
use penstock_protocol::exposition::{Counter, Family, Histogram, Number, Page};
use std::collections::BTreeSet;

/// Links with series of their own; further ones are shown together as `other`.
const LINKS_MAX: usize = 200;
/// Records in a transaction.
const BATCH_BOUNDS: [u64; 9] = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536];
/// Microseconds of a transaction.
const COMMIT_BOUNDS: [u64; 9] = [
    500, 1_000, 2_000, 5_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000,
];
const SIDES: [&str; 4] = ["source", "destination", "network", "service"];
const PHASES: [&str; 6] = [
    "preparation",
    "transfer",
    "finalization",
    "service",
    "staging",
    "archiving",
];

/// Counters of one transfer service since its start.
#[derive(Debug)]
pub(crate) struct TransferMetrics {
    submitted: Counter,
    started: Counter,
    /// By side and phase.
    failures: [[Counter; 6]; 4],
    lost: Counter,
    finished: Counter,
    failed: Counter,
    canceled: Counter,
    not_used: Counter,
    /// Decisions about the number of transfers.
    tuned: Counter,
    pub(crate) records_refused: Counter,
    /// Records in each of the journal's transactions.
    pub(crate) batch_records: Histogram,
    /// How long each took, in microseconds.
    pub(crate) commit_us: Histogram,
    /// What was removed of history.
    pub(crate) history: HistoryMeters,
    /// Links that have series of their own.
    labelled: Mutex<BTreeSet<(String, String)>>,
}

impl Default for TransferMetrics {
    fn default() -> TransferMetrics {
        TransferMetrics {
            submitted: Counter::default(),
            started: Counter::default(),
            failures: Default::default(),
            lost: Counter::default(),
            finished: Counter::default(),
            failed: Counter::default(),
            canceled: Counter::default(),
            not_used: Counter::default(),
            tuned: Counter::default(),
            records_refused: Counter::default(),
            batch_records: Histogram::of_counts(&BATCH_BOUNDS),
            commit_us: Histogram::of_microseconds(&COMMIT_BOUNDS),
            history: HistoryMeters::default(),
            labelled: Mutex::default(),
        }
    }
}

impl TransferMetrics {
    /// Counts what a record says.
    pub(crate) fn count(&self, record: &Record) {
        if let Record::Tuned(_) = record {
            self.tuned.increment();
        }
        let Record::Happened { event, state, .. } = record else {
            return;
        };
        match event {
            TransferEvent::Submitted => self.submitted.increment(),
            TransferEvent::Started { .. } => self.started.increment(),
            TransferEvent::Landed { .. }
            | TransferEvent::Staged { .. }
            | TransferEvent::Archived { .. } => {
                if state.is_terminal() {
                    self.finished.increment();
                }
            }
            TransferEvent::AttemptFailed { failure, .. }
            | TransferEvent::StageFailed { failure, .. }
            | TransferEvent::ArchiveFailed { failure } => {
                self.count_failure(failure);
                if state.is_terminal() {
                    self.failed.increment();
                }
            }
            TransferEvent::Expired { failure } | TransferEvent::Refused { failure } => {
                self.count_failure(failure);
                self.failed.increment();
            }
            TransferEvent::AttemptLost { .. } => self.lost.increment(),
            TransferEvent::Canceled { .. } => self.canceled.increment(),
            TransferEvent::NotNeeded => self.not_used.increment(),
            TransferEvent::Chosen { .. }
            | TransferEvent::Replaced { .. }
            | TransferEvent::StageRequested { .. }
            | TransferEvent::Prepared { .. } => {}
        }
    }

    fn count_failure(&self, failure: &Failure) {
        let side = match failure.side {
            Side::Source => 0,
            Side::Destination => 1,
            Side::Network => 2,
            Side::Service => 3,
        };
        let phase = match failure.phase {
            Phase::Preparation => 0,
            Phase::Transfer => 1,
            Phase::Finalization => 2,
            Phase::Service => 3,
            Phase::Staging => 4,
            Phase::Archiving => 5,
        };
        self.failures[side][phase].increment();
    }

    /// Links with series of their own, and all others together.
    pub(crate) fn write_links(&self, page: &mut Page, overview: &Overview) {
        write_links(page, &self.rows(overview));
    }

    pub(crate) fn write_transfers(&self, page: &mut Page) {
        let mut family = page.counter(
            "penstock_transfers_submitted_total",
            "Files of accepted jobs.",
        );
        family.sample(&[], self.submitted.read());
        let mut family = page.counter(
            "penstock_journal_refusals_total",
            "Records that the journal refused for good; each is left out and told in the log.",
        );
        family.sample(&[], self.records_refused.read());
        let mut family = page.counter(
            "penstock_tuning_decisions_total",
            "Decisions about how many transfers run on a link or at a storage element.",
        );
        family.sample(&[], self.tuned.read());
        let mut family = page.counter(
            "penstock_transfers_ended_total",
            "Transfers that ended, by state; not_used are replicas and hops that were not needed.",
        );
        for (state, count) in [
            ("finished", &self.finished),
            ("failed", &self.failed),
            ("canceled", &self.canceled),
            ("not_used", &self.not_used),
        ] {
            family.sample(&[("state", state)], count.read());
        }
        let mut family = page.counter(
            "penstock_attempts_started_total",
            "Attempts to move a file.",
        );
        family.sample(&[], self.started.read());
        let mut family = page.counter(
            "penstock_attempts_failed_total",
            "Attempts that failed, and transfers that expired, by where the fault lay and when it showed.",
        );
        for (side, phases) in SIDES.iter().zip(&self.failures) {
            for (phase, count) in PHASES.iter().zip(phases) {
                family.sample(&[("side", side), ("phase", phase)], count.read());
            }
        }
        let mut family = page.counter(
            "penstock_attempts_lost_total",
            "Attempts whose outcome is unknown because a process ended.",
        );
        family.sample(&[], self.lost.read());
    }

    /// Links with labels of their own, and the others together, also those that are known no more. Which are which never
    /// changes, so that no counter falls, but for that of a link that is named again after it was forgotten: it begins anew.
    fn rows(&self, overview: &Overview) -> Vec<LinkSum> {
        let mut labelled = self.labelled.lock();
        let mut rows = Vec::new();
        let totals = &overview.totals;
        // What links have counted goes on being counted in the totals.
        let mut other = LinkSum {
            source: "other".to_owned(),
            destination: "other".to_owned(),
            finished: totals.finished,
            failed_attempts: totals.failed_attempts,
            moved_bytes: totals.moved_bytes,
            ..LinkSum::default()
        };
        let mut is_shown = false;
        for link in &overview.links {
            let key = (link.source.clone(), link.destination.clone());
            if labelled.contains(&key) || labelled.len() < LINKS_MAX {
                let mut row = LinkSum {
                    source: key.0.clone(),
                    destination: key.1.clone(),
                    ..LinkSum::default()
                };
                row.add(link);
                other.finished = other.finished.saturating_sub(row.finished);
                other.failed_attempts = other.failed_attempts.saturating_sub(row.failed_attempts);
                other.moved_bytes = other.moved_bytes.saturating_sub(row.moved_bytes);
                rows.push(row);
                labelled.insert(key);
            } else {
                is_shown = true;
                other.active += u64::from(link.active);
                other.limit += u64::from(link.limit);
                other.queued += link.queued;
                other.staging += link.staging;
            }
        }
        let counted = other.finished + other.failed_attempts + other.moved_bytes;
        rows.extend((is_shown || counted > 0).then_some(other));
        rows
    }
}

/// What is shown of one link, or of several together.
#[derive(Debug, Default, PartialEq, Eq)]
struct LinkSum {
    source: String,
    destination: String,
    active: u64,
    limit: u64,
    queued: u64,
    staging: u64,
    finished: u64,
    failed_attempts: u64,
    moved_bytes: u64,
}

impl LinkSum {
    fn add(&mut self, link: &LinkRow) {
        self.active += u64::from(link.active);
        self.limit += u64::from(link.limit);
        self.queued += link.queued;
        self.staging += link.staging;
        self.finished += link.finished;
        self.failed_attempts += link.failed_attempts;
        self.moved_bytes += link.moved_bytes;
    }

    fn show(&self, family: &mut Family<'_>, more: Option<(&str, &str)>, value: impl Into<Number>) {
        let link = [
            ("source", &*self.source),
            ("destination", &*self.destination),
        ];
        let labels: Vec<(&str, &str)> = link.into_iter().chain(more).collect();
        family.sample(&labels, value);
    }
}

pub(crate) fn write_totals(page: &mut Page, overview: &Overview) {
    let totals = &overview.totals;
    let mut family = page.gauge(
        "penstock_transfers",
        "Transfers that have not ended: submitted ones wait, for whatever reason.",
    );
    family.sample(&[("state", "submitted")], totals.submitted);
    family.sample(&[("state", "active")], totals.active);
    family.sample(&[("state", "staging")], totals.staging);
    family.sample(&[("state", "archiving")], totals.archiving);
    let mut family = page.gauge(
        "penstock_transfers_waiting",
        "Transfers that wait, by the reason that holds up their link; absent reasons hold up none.",
    );
    for row in &overview.waiting {
        family.sample(&[("reason", &row.reason)], row.transfers);
    }
    let mut family = page.gauge(
        "penstock_transfers_active_max",
        "Transfers that may run at once in this service.",
    );
    family.sample(&[], overview.agents.limit);
    let mut family = page.gauge(
        "penstock_transfer_removals_owed",
        "Destinations of ended transfers at which something may be left, and where its removal is tried again.",
    );
    family.sample(&[], totals.removals_owed);
    let mut family = page.counter(
        "penstock_transfer_removals_given_over_total",
        "Destinations of ended transfers at which something may be left that could not be removed; the log names them.",
    );
    family.sample(&[], totals.removals_given_over);
    let mut family = page.counter(
        "penstock_transfer_moved_bytes_total",
        "Bytes that transfers moved, those of failed attempts among them.",
    );
    family.sample(&[], totals.moved_bytes);
}

fn write_links(page: &mut Page, rows: &[LinkSum]) {
    let mut family = page.gauge("penstock_link_transfers", "Transfers of a link, by state.");
    for row in rows {
        row.show(&mut family, Some(("state", "submitted")), row.queued);
        row.show(&mut family, Some(("state", "active")), row.active);
        row.show(&mut family, Some(("state", "staging")), row.staging);
    }
    let mut family = page.gauge(
        "penstock_link_active_max",
        "Transfers that may run at once on a link.",
    );
    for row in rows {
        row.show(&mut family, None, row.limit);
    }
    let mut family = page.counter(
        "penstock_link_attempts_total",
        "Attempts on a link that landed or failed.",
    );
    for row in rows {
        row.show(&mut family, Some(("outcome", "landed")), row.finished);
        row.show(
            &mut family,
            Some(("outcome", "failed")),
            row.failed_attempts,
        );
    }
    let mut family = page.counter("penstock_link_moved_bytes_total", "Bytes moved on a link.");
    for row in rows {
        row.show(&mut family, None, row.moved_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{TuningPolicy, TuningSeen};

    fn link(number: usize) -> LinkRow {
        LinkRow {
            source: format!("https://s{number}"),
            destination: "https://d".to_owned(),
            active: 1,
            limit: 2,
            limit_max: 2,
            tuning: TuningPolicy::Fixed,
            limit_because: None,
            streams: None,
            seen: TuningSeen::default(),
            queued: 3,
            staging: 4,
            rate_bytes_per_second: 0,
            moved_bytes: 5,
            finished: 7,
            failed: 0,
            failed_attempts: 0,
            waiting_because: None,
            last_failure: None,
        }
    }

    /// What is shown when so many links have done what each of these has, some of which are known no more.
    fn rows(metrics: &TransferMetrics, links: &[LinkRow], ever: u64) -> Vec<LinkSum> {
        let mut overview = Overview {
            links: links.to_vec(),
            ..Overview::default()
        };
        overview.totals.finished = 7 * ever;
        overview.totals.moved_bytes = 5 * ever;
        metrics.rows(&overview)
    }

    #[test]
    fn users_who_invent_links_make_no_more_series() {
        let metrics = TransferMetrics::default();
        let mut links: Vec<LinkRow> = (0..LINKS_MAX).map(link).collect();
        let shown = rows(&metrics, &links, LINKS_MAX as u64);
        assert_eq!(shown.len(), LINKS_MAX);
        // In whatever order they come later, those that were shown stay shown.
        links.splice(0..0, (1000..3000).map(link));
        let ever = links.len() as u64;
        // What was counted stays counted when links are forgotten.
        for forgotten in [0, 1999, 2000, 2001] {
            let shown = rows(&metrics, &links[forgotten..], ever);
            let is_shown = shown.iter().any(|row| row.source == "https://s0");
            assert_eq!(
                (is_shown, shown.len() <= LINKS_MAX + 1),
                (forgotten <= 2000, true)
            );
            let finished: u64 = shown.iter().map(|row| row.finished).sum();
            let moved: u64 = shown.iter().map(|row| row.moved_bytes).sum();
            assert_eq!((finished, moved), (7 * ever, 5 * ever), "{forgotten}");
        }
        let shown = rows(&metrics, &links, ever);
        let other = shown.last().expect("rows");
        assert_eq!(
            (other.source.as_str(), other.finished, other.moved_bytes),
            ("other", 14_000, 10_000)
        );
    }
}
