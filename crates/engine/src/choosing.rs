//! Whose turn it is among replicas and hops, and what is known of the links that they would take.

use super::admitting::waited_too_long;
use super::queue_rows::{IdSet, TransferEntry};
use super::{AttemptOutcome, Effects, Engine, Now};
use penstock_decide::replica::{Candidate, LinkFacts, choose};
use penstock_model::{
    Bytes, ChoiceReason, JobId, JobKind, LinkId, Retry, Selection, Side, Timestamp, TransferEvent,
    TransferId, TransferRequest, TransferState,
};
use std::collections::BTreeMap;

/// How much the latest attempt counts against all before it.
const WEIGHT: f64 = 0.1;

/// What the attempts on each link told since it is known.
#[derive(Default)]
pub(super) struct History {
    pub(super) links: BTreeMap<LinkId, LinkHistory>,
}

/// A file of a job that has ended, whatever came of it.
#[derive(Clone, Copy)]
struct EndedFile<'a> {
    request: &'a TransferRequest,
    state: &'a TransferState,
}

#[derive(Default)]
pub(super) struct LinkHistory {
    queued_bytes: u64,
    success: Option<f64>,
    rate: Option<f64>,
    file_rate: Option<f64>,
}

impl History {
    /// A transfer waits from now on, or no longer.
    pub(super) fn count_waiting(&mut self, link: &LinkId, size: Option<Bytes>, waits: bool) {
        let Some(size) = size else {
            return;
        };
        let link = self.links.entry(link.clone()).or_default();
        link.queued_bytes = match waits {
            true => link.queued_bytes.saturating_add(size.0),
            false => link.queued_bytes.saturating_sub(size.0),
        };
    }

    /// Nothing uses the link any more.
    pub(super) fn forget(&mut self, link: &LinkId) {
        self.links.remove(link);
    }

    /// An attempt has ended that ran since then, beside so many others.
    pub(super) fn attempt_ended(
        &mut self,
        link: &LinkId,
        outcome: &AttemptOutcome,
        since: Timestamp,
        now: Timestamp,
        beside: u32,
    ) {
        let link = self.links.entry(link.clone()).or_default();
        match outcome {
            AttemptOutcome::Landed { size, .. } => {
                let seconds = now.since(since).as_secs_f64().max(0.001);
                let file_rate = size.0 as f64 / seconds;
                average(&mut link.success, 1.0);
                average(&mut link.file_rate, file_rate);
                average(&mut link.rate, file_rate * f64::from(beside + 1));
            }
            AttemptOutcome::Failed { .. } => average(&mut link.success, 0.0),
            AttemptOutcome::Blocked { .. }
            | AttemptOutcome::Stopped
            | AttemptOutcome::Unsettled
            | AttemptOutcome::Dropped
            | AttemptOutcome::Tidied
            | AttemptOutcome::Untidied { .. } => {}
        }
    }
}

fn average(so_far: &mut Option<f64>, value: f64) {
    *so_far = Some(match *so_far {
        Some(before) => before + WEIGHT * (value - before),
        None => value,
    });
}

impl Engine {
    /// Lets the first replica or hop of a new job begin.
    pub(super) fn choose_first(&mut self, now: Now, job: JobId, effects: &mut Effects) {
        let Some((next, because)) = self.next_of(job, None) else {
            return;
        };
        self.take_turn(now, job, next, because, effects);
    }

    /// Lets the next replica or hop begin after one has ended. False when none follows.
    pub(super) fn choose_next(
        &mut self,
        now: Now,
        transfer: TransferId,
        gone: &TransferEntry,
        state: &TransferState,
        effects: &mut Effects,
    ) -> bool {
        let job = gone.job;
        if self
            .jobs
            .get(&job)
            .is_none_or(|job| job.unused().is_empty())
        {
            return false;
        }
        let request = gone.request(transfer, self.scheduler.link(gone.link));
        let next = self.next_of(
            job,
            Some(EndedFile {
                request: &request,
                state,
            }),
        );
        let follows = next.is_some();
        if let Some((next, because)) = next {
            self.take_turn(now, job, next, because, effects);
        }
        follows
    }

    pub(super) fn take_turn(
        &mut self,
        now: Now,
        job: JobId,
        next: TransferId,
        because: ChoiceReason,
        effects: &mut Effects,
    ) {
        let entry = self.jobs.get_mut(&job).expect("its transfer is unused");
        entry.remove_unused(next);
        entry.open.insert(next);
        let is_expired = entry.is_expired();
        let parameters = entry.parameters().clone();
        let is_first = self.request(next).is_some_and(|next| next.index == 0);
        // Of several hops, only the first begins on tape.
        let is_on_disk = matches!(because, ChoiceReason::OnDisk { .. });
        let stages = parameters.staging.is_some()
            && !is_on_disk
            && (parameters.kind != JobKind::Hops || is_first);
        let destination = self.transfers[&next].destination;
        self.destinations.enter(destination, next);
        self.apply(
            now,
            next,
            TransferEvent::Chosen { because, stages },
            effects,
        );
        if is_expired {
            let failure = waited_too_long();
            self.apply(now, next, TransferEvent::Expired { failure }, effects);
        }
    }

    fn next_of(
        &self,
        job: JobId,
        ended: Option<EndedFile<'_>>,
    ) -> Option<(TransferId, ChoiceReason)> {
        let entry = self.jobs.get(&job)?;
        match entry.parameters().kind {
            JobKind::Independent | JobKind::Session => None,
            JobKind::Hops => {
                let landed =
                    ended.is_none_or(|ended| matches!(ended.state, TransferState::Finished { .. }));
                let next = entry.unused().first().filter(|_| landed)?;
                let number = self.request(next)?.index + 1;
                Some((next, ChoiceReason::Hop { number }))
            }
            JobKind::Replicas(by) => match ended {
                Some(EndedFile {
                    state: TransferState::Finished { .. },
                    ..
                }) => None,
                _ if entry.is_expired() => None,
                ended => self.next_replica(entry.unused(), by, ended),
            },
        }
    }

    fn next_replica(
        &self,
        unused: &IdSet,
        by: Selection,
        ended: Option<EndedFile<'_>>,
    ) -> Option<(TransferId, ChoiceReason)> {
        let useful = unused.iter().filter_map(|id| {
            let request = self.request(id)?;
            (!ended.is_some_and(|ended| fails_likewise(&request, ended))).then_some((id, request))
        });
        let useful: Vec<(TransferId, TransferRequest)> = useful.collect();
        let candidates: Vec<Candidate> = useful
            .iter()
            .map(|(id, request)| Candidate {
                transfer: *id,
                link: self.link_facts(&request.link()),
            })
            .collect();
        let size = useful.first().and_then(|(_, request)| request.size);
        let decision = choose(&candidates, by, size)?;
        let because = decision.because.into_iter().next()?;
        Some((decision.choice, because))
    }

    fn link_facts(&self, link: &LinkId) -> LinkFacts {
        let queued = self.scheduler.queued(link);
        match self.history.links.get(link) {
            Some(known) => LinkFacts {
                queued,
                queued_bytes: known.queued_bytes,
                success: known.success,
                rate: known.rate,
                file_rate: known.file_rate,
            },
            None => LinkFacts {
                queued,
                ..LinkFacts::default()
            },
        }
    }
}

/// Whether another replica would meet what made this one fail: something at the destination that stays.
fn fails_likewise(request: &TransferRequest, ended: EndedFile<'_>) -> bool {
    let TransferState::Failed { failure, .. } = ended.state else {
        return false;
    };
    failure.side == Side::Destination
        && failure.retry == Retry::Never
        && ended.request.destination == request.destination
}
