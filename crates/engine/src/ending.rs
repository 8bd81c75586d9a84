//! How transfers and jobs end, and what is looked after then.

use super::running::{
    EndedAgent, HeldSlots, PendingTidying, RunningAgent, give_start, parameters_of,
};
use super::*;
use penstock_decide::destination::{OwedRemoval, next_removal};
use penstock_model::Tidying;
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
        let then = self.tidying_after(transfer);
        match (self.running.get_mut(&transfer), then) {
            (Some(running), then) => {
                running.then = then;
                self.stop(transfer, effects);
                self.owe(transfer, effects);
                self.apply(now, transfer, event, effects);
            }
            (None, None) => {
                self.apply(now, transfer, event, effects);
            }
            (None, Some(then)) => {
                self.tidy_up(then, effects);
                self.apply(now, transfer, event, effects);
            }
        }
    }

    /// Has an agent tidy up at the destination of a transfer that has ended, or is about to.
    pub(super) fn tidy_up(&mut self, mut then: PendingTidying, effects: &mut Effects) {
        then.tidying.to = self.nodes.own();
        then.is_due = true;
        then.tidying.clock = Some(self.record_clock());
        let tidying = Assignment::clone(&then.tidying);
        let transfer = tidying.request.id;
        let running = RunningAgent {
            attempt: tidying.attempt,
            holds: HeldSlots::Nothing,
            destination: tidying.request.destination.place(),
            then: Some(then),
            node: tidying.to.node.clone(),
            session: tidying.to.session,
        };
        self.running.insert(transfer, running);
        self.owe(transfer, effects);
        // A leader that has not joined itself yet finds then that nobody does it.
        if self.nodes.has_own() {
            give_start(tidying, effects);
        }
    }

    /// Records the clean-up that remains after the end of a transfer, so that the next process does it.
    fn owe(&self, transfer: TransferId, effects: &mut Effects) {
        let Some(running) = self.running.get(&transfer) else {
            return;
        };
        let Some(then) = &running.then else {
            return;
        };
        let owed = Tidying {
            attempt: running.attempt,
            node: self.nodes.recorded(&running.node),
            copies: !matches!(running.holds, HeldSlots::Nothing),
            ..owed_by(then)
        };
        effects.records.push(Record::TidyingOwed(Box::new(owed)));
    }

    /// Goes on with what a process before owed: it is done by who was at it, or anew when nobody is.
    pub(super) fn adopt_tidyings(&mut self, now: Now, owed: Vec<Tidying>, effects: &mut Effects) {
        for owed in owed {
            let transfer = owed.request.id;
            let place = owed.request.destination.place();
            let first = self.destinations.first_at(place);
            if self.transfers.contains_key(&transfer)
                || first.is_some_and(|first| self.works(first))
            {
                // Whoever writes there looks first.
                effects.records.push(Record::TidiedUp { transfer });
                continue;
            }
            self.destinations.enter_first(place, transfer);
            let tidying = Assignment {
                to: self.nodes.own(),
                job: owed.job,
                vo: owed.vo,
                request: Arc::new(owed.request),
                parameters: Arc::new(owed.parameters),
                attempt: Attempt(owed.attempt.0 + 1),
                streams: None,
                unsettled: true,
                ended: owed.ended,
                clock: Some(self.record_clock()),
                task: Task::TidyUp,
            };
            let then = PendingTidying {
                since: owed.since,
                tries: owed.tries,
                ..PendingTidying::of(tidying, owed.is_due)
            };
            if let Some(next_at) = owed.next_at {
                self.owing.wait(transfer, next_at, then);
                continue;
            }
            let Some(node) = self.nodes.await_claims(now, owed.node.as_ref()) else {
                self.tidy_up(then, effects);
                continue;
            };
            let running = RunningAgent {
                attempt: owed.attempt,
                holds: match owed.copies {
                    true => HeldSlots::Unknown,
                    false => HeldSlots::Nothing,
                },
                destination: place,
                then: Some(then),
                node,
                // Told when it joins.
                session: 0,
            };
            self.running.insert(transfer, running);
        }
    }

    /// Whether an agent works at the destination of this transfer, or will before anybody else may.
    pub(super) fn works(&self, transfer: TransferId) -> bool {
        self.running.contains_key(&transfer) || self.owing.holds(transfer)
    }

    /// The copy of a transfer that had ended before has ended, too.
    pub(super) fn look_after(
        &mut self,
        now: Now,
        agent: EndedAgent,
        outcome: &AttemptOutcome,
        effects: &mut Effects,
    ) {
        let (transfer, place) = (agent.transfer, agent.destination);
        // Also what has arrived in the last moment: nobody waits for it.
        let (has_left_something, ended) = match outcome {
            AttemptOutcome::Dropped => (true, None),
            AttemptOutcome::Landed { .. }
            | AttemptOutcome::Blocked { .. }
            | AttemptOutcome::Unsettled => (true, Some(now.at)),
            AttemptOutcome::Failed { cleaned, .. } => (!cleaned, Some(now.at)),
            AttemptOutcome::Stopped | AttemptOutcome::Tidied | AttemptOutcome::Untidied { .. } => {
                (false, Some(now.at))
            }
        };
        match agent.then {
            Some(mut then) if then.is_due || has_left_something => {
                then.tidying.ended = ended;
                self.tidy_up(then, effects);
            }
            Some(_) => self.end_tidying(transfer, place, effects),
            None => self.leave_destination(place, transfer),
        }
    }

    /// Whoever tidied up has ended.
    pub(super) fn tidying_ended(
        &mut self,
        now: Now,
        agent: EndedAgent,
        outcome: AttemptOutcome,
        effects: &mut Effects,
    ) {
        let (transfer, place) = (agent.transfer, agent.destination);
        let Some(mut then) = agent.then else {
            self.leave_destination(place, transfer);
            return;
        };
        match outcome {
            AttemptOutcome::Tidied | AttemptOutcome::Landed { .. } => {
                self.end_tidying(transfer, place, effects);
            }
            AttemptOutcome::Untidied { failure }
            | AttemptOutcome::Failed { failure, .. }
            | AttemptOutcome::Blocked { failure, .. } => {
                self.postpone_tidying(now, place, then, &failure, effects);
            }
            // This process is ending: the next one does it.
            AttemptOutcome::Stopped | AttemptOutcome::Unsettled
                if self.nodes.is_own(&agent.node) =>
            {
                self.leave_destination(place, transfer);
            }
            AttemptOutcome::Stopped | AttemptOutcome::Unsettled | AttemptOutcome::Dropped => {
                then.tidying.attempt = Attempt(then.tidying.attempt.0 + 1);
                self.tidy_up(then, effects);
            }
        }
    }

    fn end_tidying(&mut self, transfer: TransferId, place: FilePlace, effects: &mut Effects) {
        effects.records.push(Record::TidiedUp { transfer });
        self.leave_destination(place, transfer);
    }

    /// Tidying up has not succeeded: it is tried again after a time that grows, or given over to people.
    fn postpone_tidying(
        &mut self,
        now: Now,
        place: FilePlace,
        mut then: PendingTidying,
        failure: &Failure,
        effects: &mut Effects,
    ) {
        let transfer = then.tidying.request.id;
        let since = *then.since.get_or_insert(now.at);
        then.tries += 1;
        let owed = OwedRemoval {
            transfer,
            // It is given over to nobody on the word of a clock that is not believed.
            since: match self.clock_is_credible {
                true => since,
                false => now.at,
            },
            tries: then.tries - 1,
            is_denied: matches!(failure.errno, Errno::EACCES | Errno::EPERM),
        };
        let Some(wait) = next_removal(&owed, now.at) else {
            self.end_tidying(transfer, place, effects);
            self.owing.count_given_over();
            let request = then.tidying.request.clone();
            let (job, failure) = (then.tidying.job, Box::new(failure.clone()));
            let given_over = Action::GiveOver {
                job,
                request,
                failure,
            };
            effects.actions.push(given_over);
            return;
        };
        let next_at = now.at + wait;
        let owed = Tidying {
            next_at: Some(next_at),
            ..owed_by(&then)
        };
        effects.records.push(Record::TidyingOwed(Box::new(owed)));
        then.tidying.attempt = Attempt(then.tidying.attempt.0 + 1);
        self.owing.wait(transfer, next_at, then);
    }

    /// Has agents tidy up where it is time to try again.
    pub(super) fn try_owed(&mut self, now: Now, effects: &mut Effects) {
        // A leader that has not joined itself yet has nobody to do it.
        if !self.nodes.has_own() {
            return;
        }
        while let Some(then) = self.owing.next_due(now.at) {
            self.tidy_up(then, effects);
        }
    }

    /// What to do after this transfer, if an attempt of unknown outcome may have left something, or the one that is to
    /// stop now may not get around to cleaning up.
    fn tidying_after(&self, transfer: TransferId) -> Option<PendingTidying> {
        let entry = self.transfers.get(&transfer)?;
        let (attempt, is_due) = match entry.state() {
            TransferState::Submitted {
                unsettled: true,
                attempts,
                ..
            } => (Attempt(attempts + 1), true),
            TransferState::Active {
                attempt,
                prepared,
                unsettled,
                ..
            } if *prepared || *unsettled => (Attempt(attempt.0 + 1), *unsettled),
            TransferState::Staging { recall, .. } | TransferState::Recalling { recall, .. }
                if recall.unsettled =>
            {
                (Attempt(recall.attempts + 1), true)
            }
            _ => return None,
        };
        Some(PendingTidying::of(self.tidying(transfer, attempt)?, is_due))
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
            to: self.nodes.own(),
            job: entry.job,
            vo: job.vo().clone(),
            request: Arc::new(entry.request(transfer, self.scheduler.link(entry.link))),
            parameters: parameters_of(job),
            attempt,
            streams: None,
            unsettled: true,
            ended: None,
            clock: Some(self.record_clock()),
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
    ) -> Reply {
        let Some(entry) = self.jobs.get(&job) else {
            return Reply::NotOpen;
        };
        let asked = |id: &TransferId| transfers.as_ref().is_none_or(|wanted| wanted.contains(id));
        // What is kept in reserve first, so that it does not take the place of what is stopped.
        let (unused, open) = (entry.unused().iter(), entry.open.iter());
        let open: Vec<TransferId> = unused.chain(open).filter(asked).collect();
        for transfer in open {
            let reason = reason.to_owned();
            self.give_up(now, transfer, TransferEvent::Canceled { reason }, effects);
        }
        Reply::Done
    }

    /// Cancels the oldest jobs, until [`STOPPED_AT_ONCE`] transfers are stopped: one transaction must not hold all.
    pub(super) fn cancel_some(
        &mut self,
        now: Now,
        vo: Option<&VoName>,
        reason: &str,
        effects: &mut Effects,
    ) -> StoppedCount {
        let wanted = self.jobs.iter();
        let mut wanted: Vec<JobId> = wanted
            .filter(|(_, job)| vo.is_none_or(|vo| vo == job.vo()))
            .map(|(id, _)| *id)
            .collect();
        wanted.sort_unstable();
        let mut stopped = StoppedCount::default();
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
    ) -> Reply {
        let Some(entry) = self.jobs.get(&job) else {
            return Reply::NotOpen;
        };
        let open: Vec<TransferId> = entry.open.iter().collect();
        let queued: Vec<QueueEntry> = open.into_iter().filter_map(|id| self.waiting(id)).collect();
        let queued: Vec<QueueEntry> = queued
            .into_iter()
            .filter(|waiting| self.unqueue(waiting))
            .collect();
        let entry = self.jobs.get_mut(&job).expect("found above");
        let parameters = JobParameters {
            priority,
            ..JobParameters::clone(entry.parameters())
        };
        let (user, vo) = (entry.user().clone(), entry.vo().clone());
        entry.shared = self.sharing.share(user, vo, parameters);
        for waiting in queued {
            self.queue(QueueEntry {
                priority,
                ..waiting
            });
        }
        let record = Record::Reprioritised { job, priority };
        effects.records.push(record);
        Reply::Done
    }

    pub(super) fn close(
        &mut self,
        now: Now,
        transfer: TransferId,
        gone: &TransferEntry,
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
        if entry.open.is_empty() && !self.choose_next(now, transfer, gone, &state, effects) {
            let unused: Vec<TransferId> = self.jobs[&job].unused().iter().collect();
            for unused in unused {
                self.remove_transfer(unused);
                effects.records.push(Record::Happened {
                    at: now.at,
                    monotonic_us: now.monotonic_us,
                    job,
                    transfer: unused,
                    event: TransferEvent::NotNeeded,
                    state: TransferState::NotUsed,
                });
            }
            let entry = self.jobs.remove(&job).expect("found above");
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

/// As the journal keeps it while nobody works at it.
fn owed_by(then: &PendingTidying) -> Tidying {
    let tidying = &then.tidying;
    Tidying {
        job: tidying.job,
        vo: tidying.vo.clone(),
        request: TransferRequest::clone(&tidying.request),
        parameters: JobParameters::clone(&tidying.parameters),
        attempt: tidying.attempt,
        node: None,
        copies: false,
        is_due: then.is_due,
        ended: tidying.ended,
        since: then.since,
        tries: then.tries,
        next_at: None,
    }
}
