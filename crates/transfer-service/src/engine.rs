//! The transfer engine: takes one input at a time and says what to persist and what to do, in that order.
//!
//! No I/O, no clock, no randomness. It holds everything that has not ended in memory and knows nothing of how
//! bytes move or where events are stored. The driver persists the records of a call before it performs its actions.

mod bans;
mod choosing;
mod destinations;
mod halting;
mod interface;
mod nodes;
mod restoring;
mod setting;
mod tape;
#[cfg(test)]
mod tests;
mod tokens;

pub use interface::{
    Action, Answer, Assignment, Effects, EngineConfig, Input, LinkNotice, Now, Outcome, ReplyId,
    Stopped, TapeCall, TapeErrand, TapeOutcome, TapePlace, Task,
};

pub(crate) use nodes::this_process;
pub use nodes::{AssignedTo, Claim, Leading, Looked, NodeJoined, NodeView};
pub use restoring::{Restoring, continue_from};

use crate::submission::NewJob;
use bans::Bans;
use choosing::History;
use destinations::Destinations;
use halting::Halting;
use nodes::Nodes;
use penstock_decide::Decision;
use penstock_decide::retry::{FailedAttempt, RetryReason, next_retry};
use penstock_decide::scheduler::{LinkView, Scheduler, StorageView, Waiting};
use penstock_decide::settings::defaults_in_effect;
use penstock_model::url::FilePlace;
use penstock_model::{
    Attempt, CredentialId, Failure, Job, JobId, JobKind, JobParameters, JobState, LinkId, NodeId,
    Overwrite, Priority, Settings, Slots, Timestamp, TransferEvent, TransferId, TransferRequest,
    TransferState, UserName, VoName, WaitReason, advance, job_state,
};
use penstock_model::{Errno, Phase, Retry, Side};
use penstock_persistence::journal::Record;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tape::Tape;
use tokens::AwaitedTokens;

/// How many transfers are stopped in one go when everything is, but for the last job's.
const STOPPED_AT_ONCE: u64 = 10_000;

struct JobEntry {
    user: UserName,
    vo: VoName,
    parameters: Arc<JobParameters>,
    /// Transfers that wait or run.
    open: BTreeSet<TransferId>,
    /// Replicas and hops whose turn has not come.
    unused: BTreeSet<TransferId>,
    /// It has waited for too long: nothing more of it begins.
    is_expired: bool,
    /// One state for each way in which transfers of this job have ended: enough for the roll-up.
    ended: Vec<TransferState>,
}

struct TransferEntry {
    job: JobId,
    request: Arc<TransferRequest>,
    link: LinkId,
    destination: FilePlace,
    state: TransferState,
}

/// An agent at work.
struct Running {
    attempt: Attempt,
    holds: Holds,
    /// What to do at the destination when it has ended, because the transfer was canceled.
    then: Option<Box<Assignment>>,
    node: NodeId,
}

enum Holds {
    /// The slots of a copy on this link.
    Slots(LinkId),
    /// None: it tidies up after a transfer that has ended.
    Nothing,
}

/// All transfers that have not ended, and the decisions about them.
pub struct Engine {
    config: EngineConfig,
    scheduler: Scheduler,
    jobs: HashMap<JobId, JobEntry>,
    transfers: HashMap<TransferId, TransferEntry>,
    /// Attempts that hold slots. An agent may outlive its transfer's end (a cancel) for a moment.
    running: HashMap<TransferId, Running>,
    destinations: Destinations,
    /// Transfers whose turn came while another held their destination.
    held_back: BTreeSet<TransferId>,
    /// Transfers that wait for the end of their back-off, by time.
    delayed: BinaryHeap<Reverse<(Timestamp, TransferId)>>,
    /// Jobs that may not wait forever, by time.
    expiring: BinaryHeap<Reverse<(Timestamp, JobId)>>,
    halting: Halting,
    bans: Bans,
    tokens: AwaitedTokens,
    /// Transfers for which nothing is left but to fail, because their VO has no share of their link.
    without_share: BTreeSet<TransferId>,
    history: History,
    tape: Tape,
    nodes: Nodes,
    /// Failures by link since the start of this process.
    last_failure: BTreeMap<LinkId, Failure>,
    transfer_id_next: u64,
    settings: Arc<Settings>,
}

impl Engine {
    /// Takes one input. The driver persists the records, then performs the actions.
    pub fn handle(&mut self, now: Now, input: Input) -> Effects {
        let mut effects = Effects::default();
        self.take(now, input, &mut effects);
        self.lose_silent(now, &mut effects);
        self.wake_delayed(now);
        self.try_halted(now, &mut effects);
        self.expire(now, &mut effects);
        self.end_patience(now, &mut effects);
        self.attend_to_tape(now, &mut effects);
        self.fail_without_share(now, &mut effects);
        self.start_what_may(now, &mut effects);
        effects
    }

    fn take(&mut self, now: Now, input: Input, effects: &mut Effects) {
        match input {
            Input::Submit { job, reply } => self.submit(now, *job, reply, effects),
            Input::Cancel {
                job,
                transfers,
                reason,
                reply,
            } => {
                let answer = self.cancel(now, job, transfers, &reason, effects);
                effects.actions.push(Action::Answer { reply, answer });
            }
            Input::CancelAll { vo, reason, reply } => {
                let stopped = self.cancel_some(now, vo.as_ref(), &reason, effects);
                let answer = Answer::Canceled(stopped);
                effects.actions.push(Action::Answer { reply, answer });
            }
            Input::Reprioritise {
                job,
                priority,
                reply,
            } => {
                let answer = self.reprioritise(job, priority, effects);
                effects.actions.push(Action::Answer { reply, answer });
            }
            Input::Prepared {
                transfer,
                attempt,
                size,
                checksum,
                replaces,
            } => {
                // A transfer that was canceled meanwhile has had its Stop; nothing moves for it.
                let event = TransferEvent::Prepared {
                    attempt,
                    size,
                    checksum,
                    replaces,
                };
                if self.happen(now, transfer, event, effects) {
                    effects.actions.push(Action::Proceed { transfer, attempt });
                }
            }
            Input::Ended {
                transfer,
                attempt,
                outcome,
            } => {
                self.ended(now, transfer, attempt, outcome, effects);
            }
            Input::Set {
                wish,
                asker,
                user,
                reply,
            } => {
                let answer = self.set(now, &wish, &asker, user, effects);
                effects.actions.push(Action::Answer { reply, answer });
            }
            Input::Ban { ban, reply } => {
                let answer = self.ban(now, *ban, effects);
                effects.actions.push(Action::Answer { reply, answer });
            }
            Input::Lift { target, by, reply } => {
                let answer = self.lift(now, &target, by, effects);
                effects.actions.push(Action::Answer { reply, answer });
            }
            Input::TokenRenewed { id, renewed, reply } => {
                effects.records.push(Record::TokenRenewed { id, renewed });
                let answer = Answer::Done;
                effects.actions.push(Action::Answer { reply, answer });
            }
            Input::TokenReady { id } => self.token_ready(now, &id),
            Input::TokenRefused { id, failure } => {
                self.token_refused(now, &id, &failure, effects);
            }
            Input::TapeAnswered { number, outcome } => {
                self.tape_answered(now, number, outcome, effects);
            }
            Input::NodeJoined(joined) => self.node_joined(now, *joined, effects),
            Input::NodeGone {
                node,
                session,
                heard_us,
            } => self.node_gone(&node, session, heard_us),
            Input::NodeLeaves { node, session } => self.node_leaves(&node, session),
            Input::Configure(config) => {
                self.config = config;
                self.follow_settings(now);
            }
            Input::Drain => self.scheduler.drain(),
            Input::Tick => {}
        }
    }

    /// When the engine wants its next `Tick` at the latest; `None`: nothing is due.
    pub fn wake_at(&self) -> Option<Timestamp> {
        let delayed = self.delayed.peek().map(|Reverse((at, _))| *at);
        let expiring = self.expiring.peek().map(|Reverse((at, _))| *at);
        let trial = self.halting.wake_at();
        let ban = self.bans.wake_at();
        delayed
            .into_iter()
            .chain(expiring)
            .chain(trial)
            .chain(ban)
            .chain(self.tape.wake_at())
            .chain(self.nodes.wake_at())
            .min()
    }

    /// Why an open transfer waits; `None` when it runs or is not open.
    pub fn why_waiting(&self, transfer: TransferId, now: Timestamp) -> Option<WaitReason> {
        let entry = self.transfers.get(&transfer)?;
        match &entry.state {
            TransferState::Submitted {
                not_before: Some(until),
                failures,
                last: Some(last),
                ..
            } if *until > now => Some(WaitReason::BackingOff {
                until: *until,
                failures: *failures,
                last: last.clone(),
            }),
            TransferState::Staging {
                not_before: Some(until),
                recall,
            } if *until > now => recall.last.clone().map(|last| WaitReason::BackingOff {
                until: *until,
                failures: recall.failures.max(1),
                last,
            }),
            TransferState::Staging { .. } => {
                let token = self.tokens.why(transfer, &entry.request);
                let held = token.or_else(|| self.why_banned(transfer));
                let drained = || self.scheduler.why_nothing_begins();
                held.or_else(drained).or_else(|| self.why_at_tape(transfer))
            }
            TransferState::Submitted { .. } if self.held_back.contains(&transfer) => self
                .destinations
                .first_at(entry.destination)
                .map(|before| WaitReason::SameDestination { before }),
            TransferState::Submitted { .. } => {
                let token = self.tokens.why(transfer, &entry.request);
                let held = token.or_else(|| self.why_banned(transfer));
                held.or_else(|| {
                    let waiting = self.waiting(transfer)?;
                    Some(self.scheduler.why_this_waits(&waiting))
                })
            }
            TransferState::Recalling { .. } | TransferState::Archiving { .. } => {
                self.why_at_tape(transfer)
            }
            _ => None,
        }
    }

    /// All links that were seen since the start.
    pub fn links(&self) -> impl Iterator<Item = LinkView> + '_ {
        self.scheduler.links()
    }

    /// All storage elements that were seen since the start.
    pub fn storages(&self) -> impl Iterator<Item = StorageView> + '_ {
        self.scheduler.storages()
    }

    /// Attempts that hold a slot, and how many may.
    pub fn agents(&self) -> (Slots, Slots) {
        self.scheduler.agents()
    }

    /// Transfers that wait until a time after a failure, with the number of them.
    pub fn backing_off(&self) -> usize {
        self.delayed.len()
    }

    /// Transfers that wait for another one to the same destination.
    pub fn held_back(&self) -> usize {
        self.held_back.len()
    }

    /// Transfers that wait for the end of a ban.
    pub fn held_by_bans(&self) -> usize {
        self.bans.held()
    }

    /// Transfers that wait for what their tokens are renewed with.
    pub fn held_by_tokens(&self) -> usize {
        self.tokens.held()
    }

    /// The latest failure on a link since the start.
    pub fn last_failure(&self, link: &LinkId) -> Option<&Failure> {
        self.last_failure.get(link)
    }

    /// What operators have set.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Transfers that have not ended.
    pub fn open_transfers(&self) -> usize {
        self.transfers.len()
    }

    fn submit(&mut self, now: Now, new: NewJob, reply: ReplyId, effects: &mut Effects) {
        if let Some(storage) = self.refused_by_ban(&new) {
            let answer = Answer::StorageBanned(storage);
            effects.actions.push(Action::Answer { reply, answer });
            return;
        }
        let open = self.open_transfers();
        if open.saturating_add(new.transfers.len()) > self.config.open_max {
            let answer = Answer::NoRoom(open);
            effects.actions.push(Action::Answer { reply, answer });
            return;
        }
        let first = self.transfer_id_next;
        self.transfer_id_next += new.transfers.len() as u64;
        let (mut job, tokens) = new.into_job(first, now.at);
        let id = job.id;
        self.bound_its_wait(&mut job);
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
        effects.actions.push(Action::Answer {
            reply,
            answer: Answer::Accepted(id),
        });
    }

    fn admit(&mut self, now: Now, job: Job, ended: Vec<TransferState>, states: Vec<TransferState>) {
        let parameters = Arc::new(job.parameters);
        if let Some(expires) = parameters.expires_at {
            self.expiring.push(Reverse((expires, job.id)));
        }
        self.jobs.insert(
            job.id,
            JobEntry {
                user: job.user,
                vo: job.vo,
                parameters,
                open: BTreeSet::new(),
                unused: BTreeSet::new(),
                is_expired: false,
                ended,
            },
        );
        for (request, state) in job.transfers.into_iter().zip(states) {
            let (id, link) = (request.id, request.link());
            let destination = request.destination.place();
            let entry = TransferEntry {
                job: job.id,
                request: Arc::new(request),
                link,
                destination,
                state: state.clone(),
            };
            let job = self.jobs.get_mut(&job.id).expect("inserted above");
            if state == TransferState::NotUsed {
                job.unused.insert(id);
            } else {
                job.open.insert(id);
                let is_there = matches!(state, TransferState::Archiving { .. });
                match (may_have_written(&state), is_there || entry.request.stays()) {
                    // It writes nothing (any more).
                    (_, true) => {}
                    (true, false) => self.destinations.enter_first(destination, id),
                    (false, false) => self.destinations.enter(destination, id),
                }
            }
            if matches!(state, TransferState::Submitted { .. }) {
                self.history
                    .count_waiting(&entry.link, entry.request.size, true);
            }
            self.transfers.insert(id, entry);
            self.follow_to_tape(now, id, &TransferState::NotUsed, None);
            self.make_wait(now, id, &state);
        }
    }

    /// Puts a transfer that may start into the queue, now or when its back-off ends.
    fn make_wait(&mut self, now: Now, transfer: TransferId, state: &TransferState) {
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
    fn let_wait(&mut self, now: Now, transfer: TransferId) {
        let Some(entry) = self.transfers.get(&transfer) else {
            return;
        };
        let is_on_tape = matches!(entry.state, TransferState::Staging { .. });
        let Some(waiting) = self.waiting(transfer) else {
            return;
        };
        match is_on_tape {
            false => self.queue(waiting),
            true if self.holds_back(&waiting) => {}
            true => self.gather(now.at, transfer),
        }
    }

    fn waiting(&self, transfer: TransferId) -> Option<Waiting> {
        let entry = self.transfers.get(&transfer)?;
        let job = self.jobs.get(&entry.job)?;
        let (link, vo) = (entry.link.clone(), job.vo.clone());
        Some(Waiting {
            transfer,
            link,
            vo,
            activity: entry.request.activity.clone(),
            priority: job.parameters.priority,
        })
    }

    fn wake_delayed(&mut self, now: Now) {
        while let Some(Reverse((until, transfer))) = self.delayed.peek().copied() {
            if until > now.at {
                return;
            }
            self.delayed.pop();
            self.let_wait(now, transfer);
        }
    }

    fn expire(&mut self, now: Now, effects: &mut Effects) {
        while let Some(Reverse((expires, job))) = self.expiring.peek().copied() {
            if expires > now.at {
                return;
            }
            self.expiring.pop();
            let Some(entry) = self.jobs.get_mut(&job) else {
                continue;
            };
            entry.is_expired = true;
            let open: Vec<TransferId> = entry.open.iter().copied().collect();
            for transfer in open {
                if matches!(
                    self.transfers[&transfer].state,
                    TransferState::Submitted { .. } | TransferState::Staging { .. }
                ) {
                    let failure = waited_too_long();
                    self.give_up(now, transfer, TransferEvent::Expired { failure }, effects);
                }
            }
        }
    }

    /// Ends a transfer that nobody waits for any more. Its place before the destination is kept until its agent has
    /// ended, and what an attempt of unknown outcome may have left there has been looked after.
    fn give_up(
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

    fn tidy_up(&mut self, mut tidying: Assignment, effects: &mut Effects) {
        let Some(to) = self.nodes.own() else {
            // A leader is a node itself, but for the moment in which it comes to lead.
            self.leave_destination(tidying.request.id);
            return;
        };
        tidying.to = to;
        let running = Running {
            attempt: tidying.attempt,
            holds: Holds::Nothing,
            then: None,
            node: tidying.to.node.clone(),
        };
        self.running.insert(tidying.request.id, running);
        effects.actions.push(Action::Start(tidying));
    }

    /// For an agent that tidies up after this transfer, if an attempt of unknown outcome may have left something.
    fn tidying_after(&self, transfer: TransferId) -> Option<Assignment> {
        let entry = self.transfers.get(&transfer)?;
        let attempt = match entry.state {
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
            TransferState::Staging { ref recall, .. }
            | TransferState::Recalling { ref recall, .. }
                if recall.unsettled =>
            {
                Attempt(recall.attempts + 1)
            }
            _ => return None,
        };
        if self.destinations.first_at(entry.destination) != Some(transfer) {
            return None;
        }
        let job = &self.jobs[&entry.job];
        Some(Assignment {
            to: self.nodes.own()?,
            job: entry.job,
            vo: job.vo.clone(),
            request: entry.request.clone(),
            parameters: parameters_of(job),
            attempt,
            unsettled: true,
            task: Task::TidyUp,
        })
    }

    /// A transfer has ended, and so has its agent: the next one to its destination may start.
    fn leave_destination(&mut self, transfer: TransferId) {
        if let Some(next) = self.destinations.leave(transfer)
            && self.held_back.remove(&next)
            && let Some(waiting) = self.waiting(next)
        {
            self.queue(waiting);
        }
    }

    fn start_what_may(&mut self, now: Now, effects: &mut Effects) {
        if self.nodes.gather(now) {
            return;
        }
        while let Some(transfer) = self.scheduler.start_next() {
            let entry = self
                .transfers
                .get(&transfer)
                .expect("only open transfers are queued");
            let (link, job, destination) = (entry.link.clone(), entry.job, entry.destination);
            if self.destinations.first_at(destination) != Some(transfer) {
                self.held_back.insert(transfer);
                self.scheduler.release(&link);
                self.pass_unused(now, (transfer, &link), effects);
                continue;
            }
            let TransferState::Submitted {
                attempts,
                unsettled,
                ..
            } = entry.state
            else {
                unreachable!("a queued transfer is submitted: every other state leaves the queue");
            };
            let attempt = Attempt(attempts + 1);
            let request = entry.request.clone();
            let (vo, parameters) = {
                let entry = &self.jobs[&job];
                (entry.vo.clone(), parameters_of(entry))
            };
            let to = self.nodes.place();
            let to = to.expect("the scheduler knows how many agents there are on all nodes");
            let running = Running {
                attempt,
                holds: Holds::Slots(link),
                then: None,
                node: to.node.clone(),
            };
            self.running.insert(transfer, running);
            let node = self.nodes.recorded(&to.node);
            let started = TransferEvent::Started { attempt, node };
            self.happen(now, transfer, started, effects);
            let assignment = Assignment {
                to,
                job,
                vo,
                request,
                parameters,
                attempt,
                unsettled,
                task: Task::Copy,
            };
            effects.actions.push(Action::Start(assignment));
        }
    }

    fn ended(
        &mut self,
        now: Now,
        transfer: TransferId,
        attempt: Attempt,
        outcome: Outcome,
        effects: &mut Effects,
    ) {
        let stopped = "the service stopped while it ran";
        self.account(now, (transfer, attempt), outcome, stopped, effects);
    }

    /// An attempt has ended; `stopped` says why when it was stopped without a cancel.
    fn account(
        &mut self,
        now: Now,
        (transfer, attempt): (TransferId, Attempt),
        outcome: Outcome,
        stopped: &str,
        effects: &mut Effects,
    ) {
        match self.running.get(&transfer) {
            Some(running) if running.attempt == attempt => {}
            // Already accounted for: an agent reports once, a late duplicate changes nothing.
            _ => return,
        }
        let ended = self.running.remove(&transfer).expect("found a line ago");
        let Holds::Slots(link) = ended.holds else {
            self.leave_destination(transfer);
            return;
        };
        self.scheduler.release(&link);
        self.give_back(&ended.node);
        let halted = self.learn(now, &link, (transfer, &outcome), effects);
        let Some(entry) = self.transfers.get(&transfer) else {
            match ended.then {
                Some(tidying) => self.tidy_up(*tidying, effects),
                None => self.leave_destination(transfer),
            }
            return;
        };
        let (failures, since, was_staged) = match &entry.state {
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
        let event = match outcome {
            Outcome::Landed { size, mode, report } => TransferEvent::Landed {
                attempt,
                size,
                mode,
                report,
                archives,
            },
            Outcome::Failed { failure, cleaned } => {
                let decision = self.next_retry(transfer, attempt, failures, &failure, halted);
                self.last_failure.insert(link, failure.clone());
                TransferEvent::AttemptFailed {
                    attempt,
                    // As in FTS: what took too long to come may be on tape only again.
                    stages: was_staged && failure.errno == Errno::ETIMEDOUT,
                    failure,
                    retry_at: decision.choice.map(|wait| now.at + wait),
                    cleaned,
                    excused: decision.because.contains(&RetryReason::Excused),
                }
            }
            // Asked to stop without having been canceled: the service itself is ending.
            Outcome::Stopped => TransferEvent::AttemptLost {
                attempt,
                reason: stopped.to_owned(),
            },
        };
        self.happen(now, transfer, event, effects);
    }

    fn next_retry(
        &self,
        transfer: TransferId,
        attempt: Attempt,
        failures_before: u32,
        failure: &Failure,
        excused: bool,
    ) -> Decision<Option<Duration>, RetryReason> {
        let (retries_max, delay) = self.retries_of(self.transfers[&transfer].job);
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

    /// How many retries what is tried of a job now has, and how long the first one waits.
    fn retries_of(&self, job: JobId) -> (u32, Duration) {
        let job = &self.jobs[&job];
        let parameters = &job.parameters;
        // While other replicas are left, they are what is tried next.
        let has_others = matches!(parameters.kind, JobKind::Replicas(_)) && !job.unused.is_empty();
        let retries_max = match has_others {
            true => 0,
            false => parameters
                .retries_max
                .or(defaults_in_effect(&self.settings, &job.vo).retries_max)
                .unwrap_or(self.config.retries_max),
        };
        let delay = parameters
            .retry_delay_seconds
            .map_or(self.config.retry_delay, Duration::from_secs);
        (retries_max, delay)
    }

    /// Whether what arrives now for a job has to be on tape, too: what goes to its last destination.
    fn archives(&self, job: JobId) -> bool {
        let job = &self.jobs[&job];
        let is_last = job.parameters.kind != JobKind::Hops || job.unused.is_empty();
        job.parameters.archive_seconds.is_some() && is_last
    }

    fn cancel(
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
        let unused = entry.unused.iter();
        let open: Vec<TransferId> = unused.chain(&entry.open).copied().filter(asked).collect();
        for transfer in open {
            let reason = reason.to_owned();
            self.give_up(now, transfer, TransferEvent::Canceled { reason }, effects);
        }
        Answer::Done
    }

    /// Cancels the oldest jobs, until [`STOPPED_AT_ONCE`] transfers are stopped: one transaction must not hold all.
    fn cancel_some(
        &mut self,
        now: Now,
        vo: Option<&VoName>,
        reason: &str,
        effects: &mut Effects,
    ) -> Stopped {
        let wanted = self.jobs.iter();
        let mut wanted: Vec<JobId> = wanted
            .filter(|(_, job)| vo.is_none_or(|vo| *vo == job.vo))
            .map(|(id, _)| *id)
            .collect();
        wanted.sort_unstable();
        let mut stopped = Stopped::default();
        for job in wanted {
            if stopped.transfers >= STOPPED_AT_ONCE {
                break;
            }
            let entry = &self.jobs[&job];
            let transfers = entry.open.len() + entry.unused.len();
            self.cancel(now, job, None, reason, effects);
            stopped.jobs += 1;
            stopped.transfers += transfers as u64;
        }
        stopped
    }

    fn reprioritise(&mut self, job: JobId, priority: Priority, effects: &mut Effects) -> Answer {
        let Some(entry) = self.jobs.get(&job) else {
            return Answer::NotOpen;
        };
        let open: Vec<TransferId> = entry.open.iter().copied().collect();
        let queued: Vec<Waiting> = open.into_iter().filter_map(|id| self.waiting(id)).collect();
        let queued: Vec<Waiting> = queued
            .into_iter()
            .filter(|waiting| self.scheduler.remove(waiting))
            .collect();
        let entry = self.jobs.get_mut(&job).expect("found above");
        Arc::make_mut(&mut entry.parameters).priority = priority;
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

    /// Applies an event to a transfer and records it. False, without any record, when it does not fit its state.
    fn happen(
        &mut self,
        now: Now,
        transfer: TransferId,
        event: TransferEvent,
        effects: &mut Effects,
    ) -> bool {
        let Some(entry) = self.transfers.get_mut(&transfer) else {
            return false;
        };
        let Ok(state) = advance(&entry.state, now.at, &event) else {
            return false;
        };
        let waits = |state: &TransferState| matches!(state, TransferState::Submitted { .. });
        if waits(&entry.state) != waits(&state) {
            self.history
                .count_waiting(&entry.link, entry.request.size, waits(&state));
        }
        let before = std::mem::replace(&mut entry.state, state.clone());
        let job = entry.job;
        self.follow_to_tape(now, transfer, &before, Some(&event));
        let record = Record::Happened {
            at: now.at,
            monotonic_us: now.monotonic_us,
            job,
            transfer,
            event,
            state: state.clone(),
        };
        effects.records.push(record);
        if state.is_terminal() {
            if let Some(waiting) = self.waiting(transfer) {
                self.scheduler.remove(&waiting);
            }
            let gone = self.transfers.remove(&transfer).expect("found above");
            self.held_back.remove(&transfer);
            self.bans.let_go(transfer);
            self.tokens.let_go(transfer, &gone.request);
            if !self.running.contains_key(&transfer) {
                self.leave_destination(transfer);
            }
            self.close(now, job, &gone.request, state, effects);
        } else if matches!(state, TransferState::Archiving { .. }) {
            // Its copy is whole: whoever comes next may see to it.
            self.leave_destination(transfer);
        } else {
            self.make_wait(now, transfer, &state);
        }
        true
    }

    fn close(
        &mut self,
        now: Now,
        job: JobId,
        request: &TransferRequest,
        state: TransferState,
        effects: &mut Effects,
    ) {
        let entry = self
            .jobs
            .get_mut(&job)
            .expect("a job outlives its open transfers");
        entry.open.remove(&request.id);
        entry.unused.remove(&request.id);
        if !entry
            .ended
            .iter()
            .any(|seen| seen.fts_name() == state.fts_name())
        {
            entry.ended.push(state.clone());
        }
        if entry.open.is_empty() && !self.choose_next(now, job, (request, &state), effects) {
            let entry = self.jobs.remove(&job).expect("found above");
            for unused in &entry.unused {
                self.transfers.remove(unused);
                effects.records.push(Record::Happened {
                    at: now.at,
                    monotonic_us: now.monotonic_us,
                    job,
                    transfer: *unused,
                    event: TransferEvent::NotNeeded,
                    state: TransferState::NotUsed,
                });
            }
            let state = job_state(entry.parameters.kind, &entry.ended);
            effects.records.push(Record::JobEnded {
                job,
                at: now.at,
                state,
            });
        }
    }

    /// A crash between a last transfer's end and its job's end cannot happen in one transaction, but an older
    /// version may have left such a job.
    fn close_empty_jobs(&mut self, now: Now, effects: &mut Effects) {
        let empty = self.jobs.iter().filter(|(_, job)| job.open.is_empty());
        let mut empty: Vec<(JobId, JobState)> = empty
            .map(|(id, job)| (*id, job_state(job.parameters.kind, &job.ended)))
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

/// What holds for the transfer of a job that starts now.
fn parameters_of(job: &JobEntry) -> Arc<JobParameters> {
    let is_last = job.unused.is_empty();
    let overwrite = match (job.parameters.overwrite, is_last) {
        (Overwrite::Never | Overwrite::Always | Overwrite::OnRetry | Overwrite::OnlyOnDisk, _) => {
            return job.parameters.clone();
        }
        (Overwrite::IntermediateHops | Overwrite::IntermediateHopsAndOnlyOnDisk, false) => {
            Overwrite::Always
        }
        (Overwrite::IntermediateHops, true) => Overwrite::Never,
        (Overwrite::IntermediateHopsAndOnlyOnDisk, true) => Overwrite::OnlyOnDisk,
    };
    Arc::new(JobParameters {
        overwrite,
        ..JobParameters::clone(&job.parameters)
    })
}

/// Whether what is at the destination may be this transfer's.
fn may_have_written(state: &TransferState) -> bool {
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

fn waited_too_long() -> Failure {
    Failure {
        side: Side::Service,
        retry: Retry::Never,
        phase: Phase::Service,
        errno: Errno::ETIMEDOUT,
        detail: "the job waited in the queue for longer than max_time_in_queue allows".to_owned(),
        found: None,
    }
}
