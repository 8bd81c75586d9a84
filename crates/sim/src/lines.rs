//! In which order the files of one user may start, kept apart from the scheduler: by the time of submission, less six hours
//! for each step of priority. So no file is passed by others of its user that came more than a day after it.

use penstock_decide::scheduler::PRIORITY_HEAD_START_MS;
use penstock_model::{Job, JobId, Priority, TransferId, TransferRequest, TransferState};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What shares a line: the same link, VO, activity and user.
type LineName = (String, String, String, String);

/// A place in a line; the lowest goes first.
type Place = (i64, TransferId);

/// A transfer that may be in a line.
#[derive(Debug, Clone, Copy)]
struct Member {
    line: usize,
    since_ms: i64,
    place: Place,
}

#[derive(Debug, Default)]
pub(crate) struct Lines {
    numbers: BTreeMap<LineName, usize>,
    waiting: Vec<BTreeSet<Place>>,
    members: HashMap<TransferId, Member>,
    jobs: HashMap<JobId, Vec<TransferId>>,
}

fn from_ms(since_ms: i64, priority: Priority) -> i64 {
    since_ms - i64::from(priority.get()) * PRIORITY_HEAD_START_MS
}

impl Lines {
    /// A job was accepted.
    pub(crate) fn accept(&mut self, job: &Job) {
        let since_ms = job.submitted_at.0;
        let from = from_ms(since_ms, job.parameters.priority);
        for request in &job.transfers {
            let line = self.line_of(job, request);
            let place = (from, request.id);
            let member = Member {
                line,
                since_ms,
                place,
            };
            self.members.insert(request.id, member);
            self.waiting[line].insert(place);
        }
        let transfers = job.transfers.iter().map(|request| request.id);
        self.jobs.insert(job.id, transfers.collect());
    }

    fn line_of(&mut self, job: &Job, request: &TransferRequest) -> usize {
        let name = (
            request.link().to_string(),
            job.vo.as_str().to_owned(),
            request.activity.as_str().to_owned(),
            job.user.as_str().to_owned(),
        );
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        self.waiting.push(BTreeSet::new());
        self.numbers.insert(name, self.waiting.len() - 1);
        self.waiting.len() - 1
    }

    /// A job has another priority.
    pub(crate) fn prioritise(&mut self, job: JobId, priority: Priority) {
        for transfer in self.jobs.get(&job).into_iter().flatten() {
            let Some(member) = self.members.get_mut(transfer) else {
                continue;
            };
            let waiting = &mut self.waiting[member.line];
            let waits = waiting.remove(&member.place);
            member.place.0 = from_ms(member.since_ms, priority);
            if waits {
                waiting.insert(member.place);
            }
        }
    }

    /// A job has ended.
    pub(crate) fn close(&mut self, job: JobId) {
        for transfer in self.jobs.remove(&job).into_iter().flatten() {
            if let Some(member) = self.members.remove(&transfer) {
                self.waiting[member.line].remove(&member.place);
            }
        }
    }

    /// A transfer stands somewhere else now.
    pub(crate) fn follow(&mut self, transfer: TransferId, state: &TransferState) {
        let Some(member) = self.members.get(&transfer) else {
            return;
        };
        let waiting = &mut self.waiting[member.line];
        match state {
            TransferState::Submitted { .. } => waiting.insert(member.place),
            _ => waiting.remove(&member.place),
        };
    }

    /// Those that wait before it, the first one first.
    pub(crate) fn before(&self, transfer: TransferId) -> impl Iterator<Item = TransferId> + '_ {
        let member = self.members.get(&transfer);
        let before = member.map(|member| self.waiting[member.line].range(..member.place));
        before.into_iter().flatten().map(|(_, transfer)| *transfer)
    }
}
