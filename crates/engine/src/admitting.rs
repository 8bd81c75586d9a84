//! Jobs that are new, or that a restart found, and what becomes of them until they start: they are queued, back off, or
//! wait for too long.

use super::*;
use penstock_decide::retry::DELAY_MAX;

/// Longer than any wait, with its jitter.
const WAIT_MAX: Duration = DELAY_MAX.saturating_mul(2);

impl Engine {
    pub(super) fn submit(&mut self, now: Now, new: NewJob, effects: &mut Effects) -> Reply {
        if let Some(storage) = self.refused_by_ban(&new) {
            return Reply::StorageBanned(storage);
        }
        let open = self.open_transfers();
        if open.saturating_add(new.transfers.len()) > self.config.open_max {
            return Reply::NoRoom(open);
        }
        let (transfers, open_max) = (new.transfers.len(), self.config.open_max);
        let full = self
            .open_counts
            .full_share(&new.vo, &new.user, transfers, open, open_max);
        if let Some(full) = full {
            return Reply::ShareFull(full);
        }
        let first = self.transfer_id_next;
        self.transfer_id_next += new.transfers.len() as u64;
        let (mut job, tokens) = new.into_job(first, now.at);
        let id = job.id;
        self.cap_queue_time(&mut job);
        let renewed = tokens.iter().filter(|token| token.renewal.is_some());
        let renewed: Vec<CredentialId> = renewed.map(|token| token.id.clone()).collect();
        effects.records.push(Record::JobAccepted {
            job: Box::new(job.clone()),
            tokens,
        });
        self.await_tokens(now, renewed, effects);
        let state = job.parameters.first_state(now.at);
        for request in &job.transfers {
            effects.records.push(Record::Happened {
                at: now.at,
                monotonic_us: now.monotonic_us,
                job: id,
                transfer: request.id,
                event: TransferEvent::Submitted,
                state: state.clone(),
            });
        }
        let states = vec![state; job.transfers.len()];
        self.admit(now, job, Vec::new(), states);
        self.choose_first(now, id, effects);
        self.forget_unused_links();
        Reply::Accepted(id)
    }

    pub(super) fn admit(
        &mut self,
        now: Now,
        job: Job,
        ended: Vec<TransferState>,
        states: Vec<TransferState>,
    ) {
        if let Some(expires) = job.parameters.expires_at {
            self.expiring.push(Reverse((expires, job.id)));
        }
        let shared = self.sharing.share(job.user, job.vo, job.parameters);
        let mut entry = JobEntry::new(shared, job.submitted_at);
        ended.into_iter().for_each(|state| entry.add_ended(state));
        self.jobs.insert(job.id, entry);
        for (request, state) in job.transfers.into_iter().zip(states) {
            self.admit_transfer(now, job.id, &request, state);
        }
    }

    fn admit_transfer(
        &mut self,
        now: Now,
        job: JobId,
        request: &TransferRequest,
        state: TransferState,
    ) {
        let (id, link) = (request.id, request.link());
        let number = self.scheduler.number(&link);
        let entry = TransferEntry::new(job, request, number, &link, state.clone());
        let in_job = self.jobs.get_mut(&job).expect("inserted by the caller");
        self.open_counts.add(in_job.vo(), in_job.user());
        if state == TransferState::NotUsed {
            in_job.add_unused(id);
        } else {
            in_job.open.insert(id);
            let is_there = matches!(state, TransferState::Archiving { .. });
            match (may_have_written(&state), is_there || request.stays()) {
                // It writes nothing (any more).
                (_, true) => {}
                (true, false) => self.destinations.enter_first(entry.destination, id),
                (false, false) => self.destinations.enter(entry.destination, id),
            }
        }
        if matches!(state, TransferState::Submitted { .. }) {
            self.history.count_waiting(&link, request.size, true);
        }
        self.transfers.insert(id, entry);
        self.follow_to_tape(now, id, &TransferState::NotUsed, None);
        self.make_wait(now, id, &state);
    }

    /// Puts a transfer that may start into the queue, now or when its back-off ends.
    pub(super) fn make_wait(&mut self, now: Now, transfer: TransferId, state: &TransferState) {
        match state {
            TransferState::Submitted {
                not_before: Some(until),
                ..
            }
            | TransferState::Staging {
                not_before: Some(until),
                ..
            } => {
                self.delayed.push(Reverse((*until, transfer)));
            }
            TransferState::Submitted {
                not_before: None, ..
            }
            | TransferState::Staging {
                not_before: None, ..
            } => self.let_wait(now, transfer),
            _ => {}
        }
    }

    /// Puts a transfer into the queue, or lets it gather with others for its tape system, unless it is held back.
    pub(super) fn let_wait(&mut self, now: Now, transfer: TransferId) {
        let Some(entry) = self.transfers.get(&transfer) else {
            return;
        };
        let is_on_tape = match entry.state() {
            TransferState::Staging { .. } => true,
            // Another replica has taken its place while it waited for a back-off to end.
            TransferState::NotUsed => return,
            _ => false,
        };
        let Some(waiting) = self.waiting(transfer) else {
            return;
        };
        match is_on_tape {
            false => self.queue(waiting),
            true if self.holds_back(&waiting) => {}
            true => self.gather(now.at, transfer),
        }
    }

    pub(super) fn waiting(&self, transfer: TransferId) -> Option<QueueEntry> {
        let entry = self.transfers.get(&transfer)?;
        let job = self.jobs.get(&entry.job)?;
        Some(QueueEntry {
            transfer,
            link: self.scheduler.link(entry.link).clone(),
            vo: job.vo().clone(),
            activity: entry.activity(),
            user: job.user().clone(),
            priority: job.parameters().priority,
            since: job.submitted_at,
            size: entry.size(),
        })
    }

    pub(super) fn wake_delayed(&mut self, now: Now) {
        while let Some(Reverse((until, transfer))) = self.delayed.peek().copied() {
            // One that is farther away than any wait was set before the clock went back.
            if until > now.at && until.since(now.at) <= WAIT_MAX {
                return;
            }
            self.delayed.pop();
            self.let_wait(now, transfer);
        }
    }

    pub(super) fn expire(&mut self, now: Now, effects: &mut Effects) {
        if !self.clock_is_credible {
            return;
        }
        while let Some(Reverse((expires, job))) = self.expiring.peek().copied() {
            if expires > now.at {
                return;
            }
            self.expiring.pop();
            let Some(entry) = self.jobs.get_mut(&job) else {
                continue;
            };
            entry.expire();
            let open: Vec<TransferId> = entry.open.iter().collect();
            for transfer in open {
                if matches!(
                    self.transfers[&transfer].state(),
                    TransferState::Submitted { .. } | TransferState::Staging { .. }
                ) {
                    let failure = waited_too_long();
                    self.give_up(now, transfer, TransferEvent::Expired { failure }, effects);
                }
            }
        }
    }
}

/// Whether what is at the destination may be this transfer's.
pub(super) fn may_have_written(state: &TransferState) -> bool {
    match state {
        TransferState::Active { .. } => true,
        TransferState::Submitted { unsettled, .. } => *unsettled,
        TransferState::Staging { recall, .. } | TransferState::Recalling { recall, .. } => {
            recall.unsettled
        }
        TransferState::NotUsed
        | TransferState::Archiving { .. }
        | TransferState::Finished { .. }
        | TransferState::Failed { .. }
        | TransferState::Canceled { .. } => false,
    }
}

pub(super) fn waited_too_long() -> Failure {
    Failure {
        side: Side::Service,
        retry: Retry::Never,
        concern: Concern::Service,
        phase: Phase::Service,
        errno: Errno::ETIMEDOUT,
        detail: "the job waited in the queue for longer than max_time_in_queue allows".to_owned(),
        found: None,
        busy: None,
        code: None,
    }
}
