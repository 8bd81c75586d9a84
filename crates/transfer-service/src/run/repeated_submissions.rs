//! Which jobs were accepted last.

use penstock_model::JobId;
use std::collections::{HashSet, VecDeque};

/// How many jobs are known to have been accepted when they are submitted again.
const ACCEPTED_MAX: usize = 16_384;

/// The ids of the latest jobs that were accepted, for questions that are asked again.
#[derive(Default)]
pub(super) struct AcceptedJobs {
    order: VecDeque<JobId>,
    pub(super) ids: HashSet<JobId>,
}

impl AcceptedJobs {
    pub(super) fn note(&mut self, job: JobId) {
        if self.ids.insert(job) {
            self.order.push_back(job);
        }
        if self.order.len() > ACCEPTED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}
