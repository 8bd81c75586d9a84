//! What remains to be done at destinations of transfers that have ended, and was tried in vain: it waits for its next try.

use super::clock_set_back::bring_forward_set;
use super::running::PendingTidying;
use penstock_model::{Timestamp, TransferId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// All of it. The journal has it too.
#[derive(Default)]
pub(super) struct OwedTidyings {
    waiting: BTreeMap<TransferId, PendingTidying>,
    by_time: BTreeSet<(Timestamp, TransferId)>,
    given_over: u64,
}

impl OwedTidyings {
    /// It is tried again then.
    pub(super) fn wait(&mut self, transfer: TransferId, until: Timestamp, then: PendingTidying) {
        self.waiting.insert(transfer, then);
        self.by_time.insert((until, transfer));
    }

    /// Nobody else may write where this transfer did.
    pub(super) fn holds(&self, transfer: TransferId) -> bool {
        self.waiting.contains_key(&transfer)
    }

    /// The next one whose time has come; it waits no more.
    pub(super) fn next_due(&mut self, now: Timestamp) -> Option<PendingTidying> {
        let (at, transfer) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.by_time.pop_first();
        self.waiting.remove(&transfer)
    }

    /// The clock was set back by this much.
    pub(super) fn bring_forward(&mut self, by: Duration) {
        bring_forward_set(&mut self.by_time, by);
    }

    /// When the next one is due.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn count_given_over(&mut self) {
        self.given_over += 1;
    }

    /// Since the start of this process.
    pub(super) fn given_over(&self) -> u64 {
        self.given_over
    }
}
