//! The transfer engine: takes one input at a time and says what to persist and what to do, in that order.
//!
//! No I/O, no clock, no randomness. It holds everything that has not ended in memory and knows nothing of how
//! bytes move or where events are stored. The driver persists the records of a call before it performs its actions.
#![forbid(unsafe_code)]

mod admitting;
mod bans;
pub mod checked_submission;
mod choosing;
mod clock_set_back;
pub mod command;
mod destinations;
mod ending;
mod explaining;
mod halting;
mod interface;
mod nodes;
mod order;
mod owing;
mod packed_request;
mod queue_rows;
mod report;
mod restoring;
mod room;
mod running;
mod setting;
mod tape;
#[cfg(test)]
mod tests;
mod tokens;
mod tuning;
mod unused_links;
mod waiting_groups;

pub use explaining::StartEstimate;
pub use interface::{
    Action, Assignment, AttemptOutcome, Effects, EngineConfig, Input, LinkNotice, LinkProgress,
    Now, ReplyId, StoppedCount, TapeCall, TapeErrand, TapeOutcome, TapePlace, Task,
};

pub use nodes::this_process;
pub use nodes::{AssignedNode, Claim, LeadershipMode, NodeJoined, NodeLoad};
pub use order::Order;
pub use report::{AgentReport, AttemptKey, Preflight};
pub use restoring::EngineBuilder;
pub use room::{FullShare, ShareHolder};

use crate::checked_submission::NewJob;
use bans::Bans;
use choosing::History;
use command::{
    Cancel, CancelAll, ChangeSetting, Command, EstimateStart, ExplainWaiting, ImposeBan, KeepToken,
    LiftBan, RenewAtIssuer, Reply, Reprioritise, Submit,
};
use destinations::Destinations;
use halting::LinkHalts;
use nodes::Nodes;
use owing::OwedTidyings;
use penstock_decide::Decision;
use penstock_decide::retry::{FailedAttempt, RetryReason, next_retry, wait_for_own_copy};
use penstock_decide::scheduler::{LinkView, QueueEntry, Scheduler, SlotUse, StorageView};
use penstock_decide::settings::defaults_in_effect;
use penstock_model::{
    Attempt, Bytes, Concern, CredentialId, Errno, Failure, Job, JobId, JobKind, JobParameters,
    JobState, LinkId, Overwrite, Phase, Priority, Record, Retry, Settings, Side, Timestamp,
    TransferEvent, TransferId, TransferRequest, TransferState, VoName, WaitReason, advance,
    job_state,
};
use queue_rows::{JobEntry, SharedFactsIndex, TransferEntry};
use room::OpenCounts;
use running::RunningAgent;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tape::TapeTransfers;
use tokens::AwaitedTokens;
use tuning::Tuning;
use unused_links::Forgetting;
use waiting_groups::WaitingGroups;

/// How many transfers are stopped in one go when everything is, but for the last job's.
const STOPPED_AT_ONCE: u64 = 10_000;

/// All transfers that have not ended, and the decisions about them.
pub struct Engine {
    config: EngineConfig,
    scheduler: Scheduler,
    jobs: HashMap<JobId, JobEntry>,
    transfers: HashMap<TransferId, TransferEntry>,
    /// How many these are, by VO and user.
    open_counts: OpenCounts,
    /// What jobs have in common.
    sharing: SharedFactsIndex,
    /// Attempts that hold slots. An agent may outlive its transfer's end (a cancel) for a moment.
    running: HashMap<TransferId, RunningAgent>,
    destinations: Destinations,
    /// Transfers whose turn came while another held their destination.
    held_back: BTreeSet<TransferId>,
    owing: OwedTidyings,
    /// Transfers that wait for the end of their back-off, by time.
    delayed: BinaryHeap<Reverse<(Timestamp, TransferId)>>,
    /// Jobs that may not wait forever, by time.
    expiring: BinaryHeap<Reverse<(Timestamp, JobId)>>,
    /// Nothing expires on the word of a clock that is not believed.
    clock_is_credible: bool,
    halting: LinkHalts,
    bans: Bans,
    tokens: AwaitedTokens,
    /// Transfers for which nothing is left but to fail, because their VO has no share of their link.
    without_share: BTreeSet<TransferId>,
    history: History,
    tape: TapeTransfers,
    tuning: Tuning,
    nodes: Nodes,
    /// What the clocks showed at the last input.
    looked_at: Now,
    /// Since when the wall clock has gone as time passes: at most since this process leads.
    steady_since: Now,
    /// When to look again at what a cap of bytes per second holds back.
    rates_wake_at: Option<Timestamp>,
    /// Failures by link since it is known to this process.
    last_failure: BTreeMap<LinkId, Failure>,
    /// Files that were given up, by link, since the same time.
    failed_files: BTreeMap<LinkId, u64>,
    forgetting: Forgetting,
    transfer_id_next: u64,
    settings: Arc<Settings>,
    waiting_groups: WaitingGroups,
}

impl Engine {
    /// Takes one input. The driver persists the records, then performs the actions.
    pub fn handle(&mut self, now: Now, input: Input) -> Effects {
        let mut effects = Effects::default();
        self.follow_clock(now);
        self.scheduler.advance(now.running());
        self.handle_input(now, input, &mut effects);
        self.lose_silent_nodes(now, &mut effects);
        self.wake_delayed(now);
        self.try_owed(now, &mut effects);
        self.try_halted(now, &mut effects);
        self.expire(now, &mut effects);
        self.cancel_overdue_bans(now, &mut effects);
        self.run_tape_agenda(now, &mut effects);
        self.fail_without_share(now, &mut effects);
        self.start_ready(now, &mut effects);
        self.rates_wake_at = self.scheduler.recheck_after().map(|after| now.at + after);
        effects
    }

    fn handle_input(&mut self, now: Now, input: Input, effects: &mut Effects) {
        match input {
            Input::Command { command, reply } => self.obey(now, command, reply, effects),
            Input::Agent(AgentReport::Prepared {
                transfer,
                attempt,
                preflight:
                    Preflight {
                        size,
                        checksum,
                        replaces,
                    },
            }) => {
                if let Some(taken) = self.running.get(&transfer).and_then(RunningAgent::taken) {
                    self.scheduler.prepared(taken, size);
                }
                // A transfer that was canceled meanwhile has had its Stop; nothing moves for it.
                let event = TransferEvent::Prepared {
                    attempt,
                    size,
                    checksum,
                    replaces,
                };
                if self.apply(now, transfer, event, effects) {
                    self.proceed(transfer, attempt, effects);
                }
            }
            Input::Agent(AgentReport::Ended {
                transfer,
                attempt,
                outcome,
            }) => {
                self.ended(now, transfer, attempt, outcome, effects);
            }
            Input::Agent(AgentReport::Moved(_)) => {}
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
            Input::Measured { moved } => {
                let running = &self.running;
                let of_ticket = |(transfer, bytes): &(TransferId, Bytes)| {
                    Some((running.get(transfer)?.taken()?, *bytes))
                };
                self.scheduler.measured(moved.iter().filter_map(of_ticket));
            }
            Input::Seen(links) => self.see_links(now, &links, effects),
            Input::Configure(config) => {
                self.config = *config;
                self.follow_settings(now);
            }
            Input::Drain => self.scheduler.drain(),
            Input::Tick => {}
            Input::Clock { is_credible } => self.clock_is_credible = is_credible,
        }
    }

    fn obey(&mut self, now: Now, command: Command, to: ReplyId, effects: &mut Effects) {
        let reply = match command {
            Command::Submit(Submit(job)) => self.submit(now, *job, effects),
            Command::Cancel(Cancel {
                job,
                transfers,
                reason,
            }) => self.cancel(now, job, transfers, &reason, effects),
            Command::CancelAll(CancelAll { vo, reason }) => {
                Reply::Canceled(self.cancel_some(now, vo.as_ref(), &reason, effects))
            }
            Command::Reprioritise(Reprioritise { job, priority }) => {
                self.reprioritise(job, priority, effects)
            }
            Command::ChangeSetting(ChangeSetting { wish, asker, user }) => {
                self.set(now, &wish, &asker, user, effects)
            }
            Command::ImposeBan(ImposeBan(ban)) => self.ban(now, *ban, effects),
            Command::LiftBan(LiftBan { target, by }) => self.lift(now, &target, by, effects),
            Command::KeepToken(KeepToken { id, renewed }) => {
                effects.records.push(Record::TokenRenewed { id, renewed });
                Reply::Done
            }
            Command::RenewAtIssuer(RenewAtIssuer(id)) => {
                effects.actions.push(Action::RenewAtIssuer { id, to });
                return;
            }
            Command::ExplainWaiting(ExplainWaiting(transfers)) => {
                let reasons = transfers.into_iter();
                let reasons = reasons.map(|transfer| self.why_waiting(transfer, now.at));
                effects
                    .replies
                    .push((to, Reply::Waiting(reasons.collect())));
                return;
            }
            Command::EstimateStart(EstimateStart(transfer)) => {
                let start = self.when_it_starts(transfer, now.at);
                effects.replies.push((to, Reply::Start(start)));
                return;
            }
        };
        effects.actions.push(Action::Reply { to, reply });
    }

    /// When the engine wants its next `Tick` at the latest; `None`: nothing is due.
    pub fn wake_at(&self) -> Option<Timestamp> {
        let delayed = self.delayed.peek().map(|Reverse((at, _))| *at);
        let expiring = self.expiring.peek().filter(|_| self.clock_is_credible);
        let expiring = expiring.map(|Reverse((at, _))| *at);
        let trial = self.halting.wake_at();
        let ban = self.bans.wake_at().filter(|_| self.clock_is_credible);
        delayed
            .into_iter()
            .chain(expiring)
            .chain(trial)
            .chain(ban)
            .chain(self.tape.wake_at())
            .chain(self.nodes.wake_at())
            .chain(self.owing.wake_at())
            .chain(self.rates_wake_at)
            .min()
    }

    /// All links that are known.
    pub fn links(&self) -> impl Iterator<Item = LinkView> + '_ {
        self.scheduler.links()
    }

    /// All storage elements that are part of a link that is known.
    pub fn storages(&self) -> impl Iterator<Item = StorageView> + '_ {
        self.scheduler.storages()
    }

    /// Slots of attempts.
    pub fn agents(&self) -> SlotUse {
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

    /// Removals at destinations of transfers that have ended, which are tried again.
    pub fn removals_owed(&self) -> usize {
        self.owing.len()
    }

    /// Removals that were given over to people since the start.
    pub fn removals_given_over(&self) -> u64 {
        self.owing.given_over()
    }

    /// Transfers that wait for the end of a ban.
    pub fn held_by_bans(&self) -> usize {
        self.bans.held()
    }

    /// Transfers that wait for what their tokens are renewed with.
    pub fn held_by_tokens(&self) -> usize {
        self.tokens.held()
    }

    /// The latest failure on a link since it is known.
    pub fn last_failure(&self, link: &LinkId) -> Option<&Failure> {
        self.last_failure.get(link)
    }

    /// Files of a link that were given up since it is known.
    pub fn failed_files(&self, link: &LinkId) -> u64 {
        self.failed_files.get(link).copied().unwrap_or(0)
    }

    /// What operators have set.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Transfers that have not ended.
    pub fn open_transfers(&self) -> usize {
        self.transfers.len()
    }

    /// What was asked for by an open transfer.
    fn request(&self, transfer: TransferId) -> Option<TransferRequest> {
        let entry = self.transfers.get(&transfer)?;
        Some(entry.request(transfer, self.scheduler.link(entry.link)))
    }

    /// A transfer's row, when nothing more happens to it. Its job is still there.
    fn remove_transfer(&mut self, transfer: TransferId) -> Option<TransferEntry> {
        let gone = self.transfers.remove(&transfer)?;
        let job = self.jobs.get(&gone.job);
        let job = job.expect("a job outlives its open transfers");
        self.open_counts.remove(job.vo(), job.user());
        Some(gone)
    }

    /// Applies an event to a transfer and records it. False, without any record, when it does not fit its state.
    fn apply(
        &mut self,
        now: Now,
        transfer: TransferId,
        event: TransferEvent,
        effects: &mut Effects,
    ) -> bool {
        let Some(entry) = self.transfers.get_mut(&transfer) else {
            return false;
        };
        let Ok(state) = advance(entry.state(), now.at, &event) else {
            return false;
        };
        let waits = |state: &TransferState| matches!(state, TransferState::Submitted { .. });
        if waits(entry.state()) != waits(&state) {
            let link = self.scheduler.link(entry.link);
            self.history
                .count_waiting(link, entry.size(), waits(&state));
        }
        let before = entry.state().clone();
        entry.set_state(state.clone());
        let (job, place) = (entry.job, entry.destination);
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
        effects
            .groups
            .push(self.group_of(&self.transfers[&transfer]));
        if state.is_terminal() {
            if let Some(waiting) = self.waiting(transfer) {
                self.unqueue(&waiting);
            }
            let gone = self.remove_transfer(transfer).expect("found above");
            if let TransferState::Failed { .. } = &state {
                let link = self.scheduler.link(gone.link).clone();
                *self.failed_files.entry(link).or_default() += 1;
            }
            self.held_back.remove(&transfer);
            self.bans.let_go(transfer);
            self.tokens.let_go(transfer);
            if !self.running.contains_key(&transfer) {
                self.leave_destination(place, transfer);
            }
            self.close(now, transfer, &gone, state, effects);
        } else if matches!(state, TransferState::Archiving { .. }) {
            // Its copy is whole: the next process may look after it.
            self.leave_destination(place, transfer);
        } else {
            self.make_wait(now, transfer, &state);
        }
        true
    }
}
