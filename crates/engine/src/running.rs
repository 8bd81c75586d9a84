//! Attempts: how they begin, and what their ends mean for their transfers.

use super::*;
use crate::halting::EndedAttempt;
use crate::report::AttemptKey;
use penstock_decide::scheduler::{DispatchedTransfer, SlotTime, TakenSlots};
use penstock_model::NodeId;
use penstock_model::url::FilePlace;

/// Which retries what is tried of a job now has.
pub(super) struct RetryRule {
    pub(super) retries_max: u32,
    /// How long the first one waits.
    pub(super) delay: Duration,
}

/// An agent at work.
pub(super) struct RunningAgent {
    pub(super) attempt: Attempt,
    pub(super) holds: HeldSlots,
    /// Where it writes.
    pub(super) destination: FilePlace,
    /// What to do at the destination when it has ended, because its transfer has.
    pub(super) then: Option<PendingTidying>,
    pub(super) node: NodeId,
    /// In which session its node last said that it runs, or was told to run it.
    pub(super) session: u64,
}

/// What remains to be done at a destination after the end of a transfer. The journal knows of it.
pub(super) struct PendingTidying {
    pub(super) tidying: Box<Assignment>,
    /// Also when the agent that is there has cleaned up after itself.
    pub(super) is_due: bool,
    /// When it was first tried in vain.
    pub(super) since: Option<Timestamp>,
    /// How often it was tried in vain.
    pub(super) tries: u32,
}

impl PendingTidying {
    pub(super) fn of(tidying: Assignment, is_due: bool) -> PendingTidying {
        PendingTidying {
            tidying: Box::new(tidying),
            is_due,
            since: None,
            tries: 0,
        }
    }
}

pub(super) enum HeldSlots {
    /// The slots of a copy, since this time of the engine's clock that never goes back.
    Slots(TakenSlots, Duration),
    /// None: it tidies up after a transfer that has ended.
    Nothing,
    /// Those of a copy of a transfer that has ended, if it runs still: its node will say so.
    Unknown,
}

impl RunningAgent {
    /// The slots of a copy.
    pub(super) fn taken(&self) -> Option<&TakenSlots> {
        match &self.holds {
            HeldSlots::Slots(taken, _) => Some(taken),
            HeldSlots::Nothing | HeldSlots::Unknown => None,
        }
    }
}

/// Has the node of an assignment run it.
pub(super) fn give_start(assignment: Assignment, effects: &mut Effects) {
    effects.actions.push(Action::Order {
        node: assignment.to.node.clone(),
        session: assignment.to.session,
        order: Order::Start(Box::new(assignment)),
    });
}

/// An agent that has ended.
pub(super) struct EndedAgent {
    pub(super) transfer: TransferId,
    pub(super) destination: FilePlace,
    /// What is to be done at the destination now.
    pub(super) then: Option<PendingTidying>,
    pub(super) node: NodeId,
}

impl Engine {
    pub(super) fn start_ready(&mut self, now: Now, effects: &mut Effects) {
        if self.nodes.gather(now) {
            return;
        }
        while let Some(DispatchedTransfer { transfer, taken }) = self.dispatch() {
            let entry = self
                .transfers
                .get(&transfer)
                .expect("only open transfers are queued");
            let (job, destination) = (entry.job, entry.destination);
            let link = self.scheduler.link(entry.link).clone();
            if self.destinations.first_at(destination) != Some(transfer) {
                self.held_back.insert(transfer);
                self.scheduler.release(taken, SlotTime::NOT);
                self.pass_unused(now, transfer, &link, effects);
                continue;
            }
            let TransferState::Submitted {
                attempts,
                unsettled,
                ..
            } = entry.state()
            else {
                unreachable!("a queued transfer is submitted: every other state leaves the queue");
            };
            let (attempt, unsettled) = (Attempt(attempts + 1), *unsettled);
            let request = Arc::new(entry.request(transfer, &link));
            let (vo, parameters) = {
                let entry = &self.jobs[&job];
                (entry.vo().clone(), parameters_of(entry))
            };
            let streams = self.tuning.streams(&link);
            let to = self.nodes.place();
            let to = to.expect("the scheduler knows how many agents there are on all nodes");
            let running = RunningAgent {
                attempt,
                holds: HeldSlots::Slots(taken, now.running()),
                destination,
                then: None,
                node: to.node.clone(),
                session: to.session,
            };
            self.running.insert(transfer, running);
            let node = self.nodes.recorded(&to.node);
            let started = TransferEvent::Started { attempt, node };
            self.apply(now, transfer, started, effects);
            let assignment = Assignment {
                to,
                job,
                vo,
                request,
                parameters,
                attempt,
                streams,
                unsettled,
                ended: None,
                clock: Some(self.record_clock()),
                task: Task::Copy,
            };
            give_start(assignment, effects);
        }
    }

    /// Lets an attempt that has looked at both ends move bytes.
    pub(super) fn proceed(&self, transfer: TransferId, attempt: Attempt, effects: &mut Effects) {
        self.order(transfer, Order::Proceed { transfer, attempt }, effects);
    }

    /// Stops what runs for a transfer. It answers with `Ended`.
    pub(super) fn stop(&self, transfer: TransferId, effects: &mut Effects) {
        if let Some(running) = self.running.get(&transfer) {
            let attempt = running.attempt;
            self.order(transfer, Order::Stop { transfer, attempt }, effects);
        }
    }

    /// For the node that runs a transfer's attempt.
    fn order(&self, transfer: TransferId, order: Order, effects: &mut Effects) {
        if let Some(running) = self.running.get(&transfer) {
            effects.actions.push(Action::Order {
                node: running.node.clone(),
                session: running.session,
                order,
            });
        }
    }

    pub(super) fn ended(
        &mut self,
        now: Now,
        transfer: TransferId,
        attempt: Attempt,
        outcome: AttemptOutcome,
        effects: &mut Effects,
    ) {
        let node = self.running.get(&transfer).map(|running| &running.node);
        let stopped = match node.filter(|node| self.nodes.recorded(node).is_some()) {
            Some(node) if outcome == AttemptOutcome::Dropped => {
                format!("{node} does not go on with it")
            }
            _ if outcome == AttemptOutcome::Dropped => {
                "the service does not go on with it".to_owned()
            }
            _ => "the service stopped while it ran".to_owned(),
        };
        let key = AttemptKey { transfer, attempt };
        self.account(now, key, outcome, &stopped, effects);
    }

    /// An attempt has ended; `stopped` says why when it was stopped without a cancel.
    /// Long because each outcome of an attempt has one arm, and all of them share the facts gathered above.
    pub(super) fn account(
        &mut self,
        now: Now,
        AttemptKey { transfer, attempt }: AttemptKey,
        outcome: AttemptOutcome,
        stopped: &str,
        effects: &mut Effects,
    ) {
        match self.running.get(&transfer) {
            Some(running) if running.attempt == attempt => {}
            // Already accounted for: an agent reports once, a late duplicate changes nothing.
            _ => return,
        }
        let running = self.running.remove(&transfer).expect("found a line ago");
        let ended = EndedAgent {
            transfer,
            destination: running.destination,
            then: running.then,
            node: running.node,
        };
        let (taken, began) = match running.holds {
            HeldSlots::Slots(taken, began) => (taken, began),
            HeldSlots::Nothing => return self.tidying_ended(now, ended, outcome, effects),
            HeldSlots::Unknown => return self.look_after(now, ended, &outcome, effects),
        };
        let (number, party) = (taken.link(), taken.party());
        let link = self.scheduler.link(number).clone();
        let brought = match &outcome {
            AttemptOutcome::Landed {
                size,
                mode: Some(_),
                ..
            } => Some(*size),
            AttemptOutcome::Landed { mode: None, .. }
            | AttemptOutcome::Failed { .. }
            | AttemptOutcome::Blocked { .. }
            | AttemptOutcome::Stopped
            | AttemptOutcome::Unsettled
            | AttemptOutcome::Dropped
            | AttemptOutcome::Tidied
            | AttemptOutcome::Untidied { .. } => None,
        };
        let took = now.running().saturating_sub(began);
        let is_own_fault = match &outcome {
            AttemptOutcome::Failed { failure, .. } => match failure.concern {
                Concern::Request | Concern::Credential => true,
                Concern::StorageElement | Concern::Link | Concern::Service => false,
            },
            AttemptOutcome::Landed { .. }
            | AttemptOutcome::Blocked { .. }
            | AttemptOutcome::Stopped
            | AttemptOutcome::Unsettled
            | AttemptOutcome::Dropped
            | AttemptOutcome::Tidied
            | AttemptOutcome::Untidied { .. } => false,
        };
        let held = SlotTime {
            took,
            brought,
            is_own_fault,
        };
        self.scheduler.release(taken, held);
        self.give_back(&ended.node);
        let attempt_end = EndedAttempt {
            transfer,
            link: &link,
            number,
            party: &party,
            outcome: &outcome,
        };
        let excused = self.learn(now, attempt_end, effects);
        let Some(entry) = self.transfers.get(&transfer) else {
            self.look_after(now, ended, &outcome, effects);
            return;
        };
        let (failures, since, was_staged) = match entry.state() {
            TransferState::Active {
                failures,
                since,
                staged,
                ..
            } => (*failures, *since, staged.is_some()),
            _ => return,
        };
        let archives = self.archives(entry.job);
        let beside = self.scheduler.active(&link).0;
        self.history
            .attempt_ended(&link, &outcome, since, now.at, beside);
        self.tune_by(now, &link, &outcome, since, effects);
        let event = match outcome {
            AttemptOutcome::Landed { size, mode, report } => TransferEvent::Landed {
                attempt,
                size,
                mode,
                report,
                archives,
            },
            AttemptOutcome::Failed {
                failure,
                cleaned,
                moved,
            } => {
                let decision = self.next_retry(transfer, attempt, failures, &failure, excused);
                self.last_failure.insert(link, failure.clone());
                TransferEvent::AttemptFailed {
                    attempt,
                    // As in FTS: what took too long to come may be on tape only again.
                    stages: was_staged && failure.errno == Errno::ETIMEDOUT,
                    failure,
                    retry_at: decision.choice.map(|wait| now.at + wait),
                    cleaned,
                    excused: decision.because.contains(&RetryReason::Excused),
                    moved: Some(moved),
                }
            }
            AttemptOutcome::Blocked {
                failure,
                until,
                moved,
            } => {
                let RetryRule { retries_max, delay } =
                    self.retries_of(self.transfers[&transfer].job);
                let failed = FailedAttempt {
                    transfer,
                    attempt,
                    failure: &failure,
                    failures_before: failures,
                    excused: false,
                    retries_max,
                    delay,
                };
                let wait = wait_for_own_copy(&failed, now.at, until);
                let excused = wait.is_some();
                let retry = wait.or_else(|| next_retry(&failed).choice);
                TransferEvent::AttemptFailed {
                    attempt,
                    stages: false,
                    failure,
                    retry_at: retry.map(|wait| now.at + wait),
                    cleaned: false,
                    excused,
                    moved: Some(moved),
                }
            }
            // Asked to stop without having been canceled: the service itself is ending.
            AttemptOutcome::Stopped
            | AttemptOutcome::Unsettled
            | AttemptOutcome::Dropped
            | AttemptOutcome::Tidied
            | AttemptOutcome::Untidied { .. } => TransferEvent::AttemptLost {
                attempt,
                reason: stopped.to_owned(),
            },
        };
        if let TransferEvent::AttemptFailed {
            retry_at: None,
            cleaned: false,
            ..
        } = event
            && let Some(tidying) = self.tidying_after_failure(transfer)
        {
            self.tidy_up(PendingTidying::of(tidying, true), effects);
        }
        self.apply(now, transfer, event, effects);
    }

    pub(super) fn next_retry(
        &self,
        transfer: TransferId,
        attempt: Attempt,
        failures_before: u32,
        failure: &Failure,
        excused: bool,
    ) -> Decision<Option<Duration>, RetryReason> {
        let RetryRule { retries_max, delay } = self.retries_of(self.transfers[&transfer].job);
        next_retry(&FailedAttempt {
            transfer,
            attempt,
            failure,
            failures_before,
            excused,
            retries_max,
            delay,
        })
    }

    /// Which retries what is tried of a job now has.
    pub(super) fn retries_of(&self, job: JobId) -> RetryRule {
        let job = &self.jobs[&job];
        let parameters = job.parameters();
        // While other replicas are left, they are what is tried next.
        let has_others =
            matches!(parameters.kind, JobKind::Replicas(_)) && !job.unused().is_empty();
        let retries_max = match has_others {
            true => 0,
            false => parameters
                .retries_max
                .or(defaults_in_effect(&self.settings, job.vo()).retries_max)
                .unwrap_or(self.config.retries_max),
        };
        let delay = parameters
            .retry_delay_seconds
            .map_or(self.config.retry_delay, Duration::from_secs);
        RetryRule { retries_max, delay }
    }

    /// Whether what arrives now for a job has to be on tape, too: what goes to its last destination.
    pub(super) fn archives(&self, job: JobId) -> bool {
        let job = &self.jobs[&job];
        let is_last = job.parameters().kind != JobKind::Hops || job.unused().is_empty();
        job.parameters().archive_seconds.is_some() && is_last
    }
}

/// What holds for the transfer of a job that starts now.
pub(super) fn parameters_of(job: &JobEntry) -> Arc<JobParameters> {
    let is_last = job.unused().is_empty();
    let parameters = job.parameters();
    let overwrite = match (parameters.overwrite, is_last) {
        (Overwrite::Never | Overwrite::Always | Overwrite::OnRetry | Overwrite::OnlyOnDisk, _) => {
            return parameters.clone();
        }
        (Overwrite::IntermediateHops | Overwrite::IntermediateHopsAndOnlyOnDisk, false) => {
            Overwrite::Always
        }
        (Overwrite::IntermediateHops, true) => Overwrite::Never,
        (Overwrite::IntermediateHopsAndOnlyOnDisk, true) => Overwrite::OnlyOnDisk,
    };
    Arc::new(JobParameters {
        overwrite,
        ..JobParameters::clone(parameters)
    })
}
