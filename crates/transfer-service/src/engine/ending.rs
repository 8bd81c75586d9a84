//! How transfers and jobs end, and what is looked after then.

use super::running::{Holds, Running, parameters_of};
use super::*;
use penstock_model::url::FilePlace;

impl Engine {
    /// Ends a transfer that nobody waits for any more. Its place before the destination is kept until its agent has
    /// ended, and what an attempt of unknown outcome may have left there has been looked after.
    pub(super) fn give_up(
        &mut self,
        now: Now,
        transfer: TransferId,
        event: TransferEvent,
        effects: &mut Effects,
    ) {
        let tidying = self.tidying_after(transfer);
        match (self.running.get_mut(&transfer), tidying) {
            (Some(running), tidying) => {
                running.then = tidying.map(Box::new);
                effects.actions.push(Action::Stop { transfer });
                self.happen(now, transfer, event, effects);
            }
            (None, None) => {
                self.happen(now, transfer, event, effects);
            }
            (None, Some(tidying)) => {
                self.tidy_up(tidying, effects);
                self.happen(now, transfer, event, effects);
            }
        }
    }

    pub(super) fn tidy_up(&mut self, mut tidying: Assignment, effects: &mut Effects) {
        let place = tidying.request.destination.place();
        let Some(to) = self.nodes.own() else {
            // A leader is a node itself, but for the moment in which it comes to lead.
            self.leave_destination(place, tidying.request.id);
            return;
        };
        tidying.to = to;
        let running = Running {
            attempt: tidying.attempt,
            holds: Holds::Nothing,
            destination: place,
            then: None,
            node: tidying.to.node.clone(),
        };
        self.running.insert(tidying.request.id, running);
        effects.actions.push(Action::Start(tidying));
    }

    /// For an agent that tidies up after this transfer, if an attempt of unknown outcome may have left something.
    pub(super) fn tidying_after(&self, transfer: TransferId) -> Option<Assignment> {
        let entry = self.transfers.get(&transfer)?;
        let attempt = match entry.state() {
            TransferState::Submitted {
                unsettled: true,
                attempts,
                ..
            } => Attempt(attempts + 1),
            TransferState::Active {
                unsettled: true,
                attempt,
                ..
            } => Attempt(attempt.0 + 1),
            TransferState::Staging { recall, .. } | TransferState::Recalling { recall, .. }
                if recall.unsettled =>
            {
                Attempt(recall.attempts + 1)
            }
            _ => return None,
        };
        self.tidying(transfer, attempt)
    }

    /// For an agent that tidies up after an attempt that failed for good and left what it could not remove, or an
    /// earlier one of unknown outcome did.
    pub(super) fn tidying_after_failure(&self, transfer: TransferId) -> Option<Assignment> {
        match self.transfers.get(&transfer)?.state() {
            TransferState::Active {
                attempt,
                prepared,
                unsettled,
                ..
            } if *prepared || *unsettled => self.tidying(transfer, Attempt(attempt.0 + 1)),
            _ => None,
        }
    }

    fn tidying(&self, transfer: TransferId, attempt: Attempt) -> Option<Assignment> {
        let entry = self.transfers.get(&transfer)?;
        if self.destinations.first_at(entry.destination) != Some(transfer) {
            return None;
        }
        let job = &self.jobs[&entry.job];
        Some(Assignment {
            to: self.nodes.own()?,
            job: entry.job,
            vo: job.vo().clone(),
            request: Arc::new(entry.request(transfer, self.scheduler.link(entry.link))),
            parameters: parameters_of(job),
            attempt,
            streams: None,
            unsettled: true,
            task: Task::TidyUp,
        })
    }

    /// A transfer has ended, and so has its agent: the next one to its destination may start.
    pub(super) fn leave_destination(&mut self, place: FilePlace, transfer: TransferId) {
        if let Some(next) = self.destinations.leave(place, transfer)
            && self.held_back.remove(&next)
            && let Some(waiting) = self.waiting(next)
        {
            self.queue(waiting);
        }
    }

    pub(super) fn cancel(
        &mut self,
        now: Now,
        job: JobId,
        transfers: Option<Vec<TransferId>>,
        reason: &str,
        effects: &mut Effects,
    ) -> Answer {
        let Some(entry) = self.jobs.get(&job) else {
            return Answer::NotOpen;
        };
        let asked = |id: &TransferId| transfers.as_ref().is_none_or(|wanted| wanted.contains(id));
        // What is kept in reserve first, so that it does not take the place of what is stopped.
        let (unused, open) = (entry.unused().iter(), entry.open.iter());
        let open: Vec<TransferId> = unused.chain(open).filter(asked).collect();
        for transfer in open {
            let reason = reason.to_owned();
            self.give_up(now, transfer, TransferEvent::Canceled { reason }, effects);
        }
        Answer::Done
    }

    /// Cancels the oldest jobs, until [`STOPPED_AT_ONCE`] transfers are stopped: one transaction must not hold all.
    pub(super) fn cancel_some(
        &mut self,
        now: Now,
        vo: Option<&VoName>,
        reason: &str,
        effects: &mut Effects,
    ) -> Stopped {
        let wanted = self.jobs.iter();
        let mut wanted: Vec<JobId> = wanted
            .filter(|(_, job)| vo.is_none_or(|vo| vo == job.vo()))
            .map(|(id, _)| *id)
            .collect();
        wanted.sort_unstable();
        let mut stopped = Stopped::default();
        for job in wanted {
            if stopped.transfers >= STOPPED_AT_ONCE {
                break;
            }
            let entry = &self.jobs[&job];
            let transfers = entry.open.len() + entry.unused().len();
            self.cancel(now, job, None, reason, effects);
            stopped.jobs += 1;
            stopped.transfers += transfers as u64;
        }
        stopped
    }

    pub(super) fn reprioritise(
        &mut self,
        job: JobId,
        priority: Priority,
        effects: &mut Effects,
    ) -> Answer {
        let Some(entry) = self.jobs.get(&job) else {
            return Answer::NotOpen;
        };
        let open: Vec<TransferId> = entry.open.iter().collect();
        let queued: Vec<Waiting> = open.into_iter().filter_map(|id| self.waiting(id)).collect();
        let queued: Vec<Waiting> = queued
            .into_iter()
            .filter(|waiting| self.scheduler.remove(waiting))
            .collect();
        let entry = self.jobs.get_mut(&job).expect("found above");
        let parameters = JobParameters {
            priority,
            ..JobParameters::clone(entry.parameters())
        };
        let (user, vo) = (entry.user().clone(), entry.vo().clone());
        entry.shared = self.sharing.share(user, vo, parameters);
        for waiting in queued {
            self.queue(Waiting {
                priority,
                ..waiting
            });
        }
        let record = Record::Reprioritised { job, priority };
        effects.records.push(record);
        Answer::Done
    }

    pub(super) fn close(
        &mut self,
        now: Now,
        (transfer, gone): (TransferId, &TransferEntry),
        state: TransferState,
        effects: &mut Effects,
    ) {
        let job = gone.job;
        let entry = self
            .jobs
            .get_mut(&job)
            .expect("a job outlives its open transfers");
        entry.open.remove(transfer);
        entry.remove_unused(transfer);
        entry.add_ended(state.clone());
        if entry.open.is_empty() && !self.choose_next(now, (transfer, gone), &state, effects) {
            let entry = self.jobs.remove(&job).expect("found above");
            for unused in entry.unused().iter() {
                self.transfers.remove(&unused);
                effects.records.push(Record::Happened {
                    at: now.at,
                    monotonic_us: now.monotonic_us,
                    job,
                    transfer: unused,
                    event: TransferEvent::NotNeeded,
                    state: TransferState::NotUsed,
                });
            }
            let state = job_state(entry.parameters().kind, entry.ended());
            effects.records.push(Record::JobEnded {
                job,
                at: now.at,
                state,
            });
        }
    }

    /// A crash between a last transfer's end and its job's end cannot happen in one transaction, but an older
    /// version may have left such a job.
    pub(super) fn close_empty_jobs(&mut self, now: Now, effects: &mut Effects) {
        let empty = self.jobs.iter().filter(|(_, job)| job.open.is_empty());
        let mut empty: Vec<(JobId, JobState)> = empty
            .map(|(id, job)| (*id, job_state(job.parameters().kind, job.ended())))
            .collect();
        empty.sort_by_key(|(id, _)| *id);
        for (job, state) in empty {
            self.jobs.remove(&job);
            effects.records.push(Record::JobEnded {
                job,
                at: now.at,
                state,
            });
        }
    }
}
