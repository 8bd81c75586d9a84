//! What a storage element counts for monitors. Labels are pools, kinds and methods, never users, paths or peers; a page
//! costs the same however many files and requests there are.

use penstock_decide::clock::ClockTrust;
use penstock_decide::health::Writability;
use penstock_persistence::namespace::{MoverKind, MoverOutcome};
use penstock_protocol::exposition::{Counter, Family};
use penstock_protocol::http1::tally::RequestTally;
use std::sync::Arc;

/// Counters of one storage element since its start.
#[derive(Debug, Default)]
pub struct StorageMetrics {
    /// Requests at the doors, with and without TLS.
    pub requests: RequestTally,
    /// Movers that ended, by what they did and how.
    pub(crate) movers: Arc<EndedMovers>,
    /// Requests that found all places of a pool's queue taken.
    pub(crate) movers_refused: Arc<Counter>,
}

/// What a health report needs to know of a storage element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageHealthInput {
    /// The namespace can be read.
    pub namespace_readable: bool,
    /// Whether the namespace takes changes.
    pub namespace: Writability,
    /// Pools that take new files, if they have room.
    pub pools_enabled: usize,
    /// Why pools are left out that should take new files, and what else a person should look at.
    pub alarms: Vec<String>,
    /// Threads that have ended and must not.
    pub dead_threads: Vec<String>,
    /// Whether the wall clock is believed.
    pub clock: ClockTrust,
}

/// How many movers ended, by what they did and how.
#[derive(Debug, Default)]
pub(crate) struct EndedMovers([[Counter; 3]; 5]);

impl EndedMovers {
    pub(crate) fn count(&self, kind: MoverKind, outcome: &MoverOutcome) {
        let kind = match kind {
            MoverKind::Get => 0,
            MoverKind::Put => 1,
            MoverKind::Pull => 2,
            MoverKind::Push => 3,
            MoverKind::Copy => 4,
        };
        let outcome = match outcome {
            MoverOutcome::Done => 0,
            MoverOutcome::Failed(_) => 1,
            MoverOutcome::Aborted(_) => 2,
        };
        self.0[kind][outcome].increment();
    }

    /// Shows each count with its names.
    pub(crate) fn each(&self, mut show: impl FnMut(&'static str, &'static str, u64)) {
        for (kind, counts) in ["get", "put", "pull", "push", "copy"].iter().zip(&self.0) {
            for (outcome, count) in ["done", "failed", "aborted"].iter().zip(counts) {
                show(kind, outcome, count.read());
            }
        }
    }
}

impl EndedMovers {
    pub(crate) fn write(&self, family: &mut Family<'_>) {
        self.each(|kind, outcome, count| {
            family.sample(&[("kind", kind), ("outcome", outcome)], count);
        });
    }
}
