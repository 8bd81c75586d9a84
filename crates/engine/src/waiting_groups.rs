//! How many transfers wait on each link, by VO and activity: for samples, which tell more than the scheduler needs.

use super::*;
use penstock_decide::minute_meter::TransferGroup;
use penstock_decide::scheduler::DispatchedTransfer;

/// Counts by group; of those only in which something waits.
#[derive(Debug, Default)]
pub(super) struct WaitingGroups(BTreeMap<TransferGroup, u64>);

impl WaitingGroups {
    fn add(&mut self, group: TransferGroup) {
        *self.0.entry(group).or_default() += 1;
    }

    fn take(&mut self, group: &TransferGroup) {
        if let Some(count) = self.0.get_mut(group) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(group);
            }
        }
    }
}

impl Engine {
    /// How many transfers wait and may start, by group.
    pub fn waiting_groups(&self) -> impl Iterator<Item = (&TransferGroup, u64)> {
        self.waiting_groups
            .0
            .iter()
            .map(|(group, count)| (group, *count))
    }

    /// The group of an open transfer.
    pub(super) fn group_of(&self, entry: &TransferEntry) -> TransferGroup {
        let job = self.jobs.get(&entry.job);
        let job = job.expect("a job outlives its open transfers");
        TransferGroup {
            link: self.scheduler.link(entry.link).clone(),
            vo: job.vo().clone(),
            activity: entry.activity(),
        }
    }

    pub(super) fn enqueue(&mut self, waiting: QueueEntry) {
        let group = group_of_entry(&waiting);
        if self.scheduler.enqueue(waiting) {
            self.waiting_groups.add(group);
        }
    }

    /// Takes a waiting transfer out of its queue. False when it was in none.
    pub(super) fn unqueue(&mut self, waiting: &QueueEntry) -> bool {
        let was_queued = self.scheduler.remove(waiting);
        if was_queued {
            self.waiting_groups.take(&group_of_entry(waiting));
        }
        was_queued
    }

    /// The next transfer that may begin.
    pub(super) fn dispatch(&mut self) -> Option<DispatchedTransfer> {
        let dispatched = self.scheduler.start_next()?;
        let entry = self.transfers.get(&dispatched.transfer);
        let group = self.group_of(entry.expect("only open transfers are queued"));
        self.waiting_groups.take(&group);
        Some(dispatched)
    }
}

fn group_of_entry(waiting: &QueueEntry) -> TransferGroup {
    TransferGroup {
        link: waiting.link.clone(),
        vo: waiting.vo.clone(),
        activity: waiting.activity.clone(),
    }
}
