//! The loop around the engine: takes inputs, lets the engine decide, persists, then acts.
//!
//! One task owns the engine; one thread owns the journal. The task decides ahead while the thread commits: whatever
//! has piled up by then goes into one transaction (group commit), and only what is durable is acted upon. When the
//! journal cannot be written (a full disk), nothing is acted upon and nothing is dropped: it tries again until it can,
//! or until the service has been asked to end and its last chance is over; one of several nodes gives the lead back
//! before long. Nothing
//! dropped then was ever acknowledged. What the journal refuses for good is left out (`refused_batch`).
//!
//! Long because the loop is read in one place from its inputs to what is acted upon.

mod committing;
mod notices;
mod refused_batch;
mod repeated_submissions;

use crate::agent::Progress;
use crate::loop_message::{Message, UntoldEnd};
use crate::node::wire::LeaderMessage;
use crate::node::{Node, ReportSink};
use crate::overview::Meters;
use committing::Committer;
use notices::{tell, tell_of, tell_of_leftover};
use penstock_clock::wall_clock;
use penstock_engine::command::{Command, Reply, Submit};
use penstock_engine::{
    Action, AgentReport, Assignment, AttemptKey, AttemptOutcome, Effects, Engine, Input,
    LeadershipMode, NodeJoined, Order, ReplyId, TapeCall, TapeErrand,
};
use penstock_journal::{Journal, JournalError, PruneReport, PruneStep};
use penstock_model::{
    Attempt, Bytes, CredentialId, MinuteSamples, NodeId, Record, Settings, Slots, Tenure,
    Timestamp, TransferId,
};
use repeated_submissions::AcceptedJobs;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// How many inputs may wait for the engine; senders wait beyond.
const INPUTS_MAX: usize = 16_384;
/// How many inputs the engine takes before their effects go to the journal.
const INPUTS_PER_BATCH: usize = 1024;
/// How many batches may wait for the journal; the engine waits beyond.
const BATCHES_MAX: usize = 16;
/// How much longer it tries once the service has been asked to end; the grace for running transfers, if that is shorter.
const JOURNAL_LAST_CHANCE: Duration = Duration::from_secs(10);
/// How often links are sampled.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// What the journal thread does once a batch is durable.
enum Act {
    Tape(Box<TapeCall>),
    RemoveSource(u64, Box<Assignment>),
    Order {
        node: NodeId,
        session: u64,
        order: Order,
        progress: Option<Arc<Progress>>,
    },
    Reply(oneshot::Sender<Reply>, Reply),
    RenewAtIssuer(CredentialId, oneshot::Sender<Reply>),
    PrepareToken(CredentialId),
    Publish(Arc<Settings>),
    LockOut(BTreeSet<String>),
    Prune(PruneStep, oneshot::Sender<PruneAnswer>),
}

/// How many records and acts of a batch there are up to the end of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InputEnd {
    records: usize,
    acts: usize,
}

type PruneAnswer = Result<(PruneReport, Duration), JournalError>;

/// What one or several inputs have led to.
#[derive(Default)]
pub(crate) struct Batch {
    records: Vec<Record>,
    acts: Vec<Act>,
    /// Of each input that has led to something.
    ends: Vec<InputEnd>,
}

impl Batch {
    /// What comes next is of another input.
    fn end_of_input(&mut self) {
        let end = InputEnd {
            records: self.records.len(),
            acts: self.acts.len(),
        };
        if self.ends.last() != Some(&end) {
            self.ends.push(end);
        }
    }

    fn add_minutes(&mut self, minutes: Vec<MinuteSamples>) {
        let minutes = minutes.into_iter().map(Box::new);
        self.records.extend(minutes.map(Record::MinuteSampled));
        self.end_of_input();
    }

    fn append(&mut self, next: Batch) {
        self.end_of_input();
        let (records, acts) = (self.records.len(), self.acts.len());
        let ends = next.ends.iter().map(|end| InputEnd {
            records: records + end.records,
            acts: acts + end.acts,
        });
        self.ends.extend(ends);
        self.records.extend(next.records);
        self.acts.extend(next.acts);
    }

    /// Has the journal's thread remove some history.
    pub(crate) fn of_prune(step: PruneStep) -> (Batch, oneshot::Receiver<PruneAnswer>) {
        let (answer, answered) = oneshot::channel();
        let batch = Batch {
            acts: vec![Act::Prune(step, answer)],
            ..Batch::default()
        };
        (batch, answered)
    }
}

/// Where an attempt runs, and how far it is.
struct AgentHandle {
    attempt: Attempt,
    node: NodeId,
    progress: Arc<Progress>,
}

/// What the outside holds of a running loop.
pub(crate) struct LoopHandle {
    pub(crate) inputs: mpsc::Sender<Message>,
    /// To see how many wait; it keeps nothing alive.
    pub(crate) batches: mpsc::WeakSender<Batch>,
    /// Set to have the journal's secrets sealed anew; the journal's thread takes it back.
    pub(crate) sealing_due: Arc<AtomicBool>,
    /// Set when another node leads: nothing more is written or done.
    pub(crate) over: Arc<AtomicBool>,
    pub(crate) task: tokio::task::JoinHandle<()>,
    /// How the journal's thread ended, and the journal for its successor.
    pub(crate) last_commit: oneshot::Receiver<(LoopEnd, Box<dyn Journal>)>,
}

#[derive(Debug)]
pub(crate) enum LoopEnd {
    /// Its last record is durable, or another node leads.
    Done,
    /// The journal could not be written until the end.
    Unwritten(JournalError),
    /// The engine's state differs from the stored one: the next leader has to read the journal anew.
    ReadAnew(JournalError),
}

/// Everything the loop is made of.
pub(crate) struct Parts {
    pub(crate) engine: Engine,
    pub(crate) first: Effects,
    pub(crate) leading: LeadershipMode,
    /// How many attempts this node may run.
    pub(crate) slots: Slots,
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) node: Arc<Node>,
    pub(crate) shutdown: watch::Receiver<bool>,
    pub(crate) drain_grace: Duration,
}

/// Starts the loop and the journal's thread. It ends, drained, after `shutdown` turns true.
pub(crate) fn start(parts: Parts) -> std::io::Result<LoopHandle> {
    let Parts {
        engine,
        first,
        leading,
        slots,
        journal,
        node,
        shutdown,
        drain_grace,
    } = parts;
    let (tenure, slots) = match &leading {
        LeadershipMode::Alone => (Tenure::default(), None),
        LeadershipMode::Among { tenure, .. } => (*tenure, Some(slots)),
    };
    if engine.open_transfers() > 0 {
        let transfers = engine.open_transfers();
        tracing::info!(transfers, "continuing what has not ended");
    }
    node.published.show_settings(engine.settings().clone());
    let (inputs, received) = mpsc::channel(INPUTS_MAX);
    let (batches, queued) = mpsc::channel(BATCHES_MAX);
    let sealing_due = Arc::new(AtomicBool::new(false));
    let over = Arc::new(AtomicBool::new(false));
    node.published.set_writable(true);
    let committer = Committer {
        journal,
        node: node.clone(),
        reports: inputs.clone(),
        sealing_due: sealing_due.clone(),
        over: over.clone(),
        runtime: tokio::runtime::Handle::current(),
        shutdown: shutdown.clone(),
        last_chance: drain_grace.min(JOURNAL_LAST_CHANCE),
        gives_up_at: None,
        resigns: matches!(leading, LeadershipMode::Among { .. }),
    };
    let (done, last_commit) = oneshot::channel();
    std::thread::Builder::new()
        .name("journal".to_owned())
        .spawn(move || {
            // The service may have gone without waiting.
            let _ = done.send(committer.run(queued));
        })?;
    let weak_batches = batches.downgrade();
    let session = node.followers.next_session();
    let reports = ReportSink::Here {
        inputs: inputs.clone(),
        node: node.id.clone(),
        session,
    };
    let own = node.host.join(reports, tenure);
    let own = slots.map(|slots| own.joins(node.id.clone(), session, slots));
    let driver = Driver {
        clock_told: None,
        engine,
        batches,
        replies: HashMap::new(),
        reply_next: 0,
        running: HashMap::new(),
        stagings: BTreeSet::new(),
        accepted: AcceptedJobs::default(),
        sealing_due: sealing_due.clone(),
        meters: Meters::new(node.site.clone(), wall_clock(), node.sampling),
        node,
    };
    let task = tokio::spawn(driver.run(first, own, received, shutdown, drain_grace));
    Ok(LoopHandle {
        inputs,
        batches: weak_batches,
        sealing_due,
        over,
        task,
        last_commit,
    })
}

struct Driver {
    engine: Engine,
    batches: mpsc::Sender<Batch>,
    replies: HashMap<ReplyId, oneshot::Sender<Reply>>,
    reply_next: u64,
    running: HashMap<TransferId, AgentHandle>,
    /// Calls that ask for files on tape: their answers are worth waiting for, because they name the requests.
    stagings: BTreeSet<u64>,
    accepted: AcceptedJobs,
    sealing_due: Arc<AtomicBool>,
    meters: Meters,
    /// What the engine knows of the clock.
    clock_told: Option<bool>,
    node: Arc<Node>,
}

impl Driver {
    async fn run(
        mut self,
        first: Effects,
        own: Option<Message>,
        mut received: mpsc::Receiver<Message>,
        mut shutdown: watch::Receiver<bool>,
        drain_grace: Duration,
    ) {
        let mut batch = Batch::default();
        self.look_at_clock(&mut batch);
        self.take_effects(first, &mut batch);
        batch.end_of_input();
        if let Some(own) = own {
            self.take_message(own, &mut batch);
        }
        if !self.hand_over(batch).await {
            return;
        }
        let mut messages = Vec::with_capacity(INPUTS_PER_BATCH);
        let mut sampling = tokio::time::interval(SAMPLE_EVERY);
        sampling.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut ends_at: Option<tokio::time::Instant> = None;
        loop {
            let mut batch = Batch::default();
            let due = self.next_tick();
            tokio::select! {
                count = received.recv_many(&mut messages, INPUTS_PER_BATCH) => {
                    if count == 0 { return; }
                    for message in messages.drain(..) {
                        self.take_message(message, &mut batch);
                        batch.end_of_input();
                    }
                }
                _ = sampling.tick() => self.sample(&mut batch),
                () = tokio::time::sleep(due) => self.feed(Input::Tick, &mut batch),
                changed = shutdown.changed(), if ends_at.is_none() => {
                    if changed.is_err() || *shutdown.borrow() {
                        if self.node.followers.count() > 0 {
                            // One of the others leads from now on, and goes on with what runs here.
                            batch.add_minutes(self.meters.end(wall_clock()));
                            self.hand_over(batch).await;
                            return;
                        }
                        let (running, seconds) = (self.running.len(), drain_grace.as_secs());
                        tracing::info!(running, seconds, "stopping: no transfer starts any more, running ones may end in this time");
                        self.feed(Input::Drain, &mut batch);
                        ends_at = Some(tokio::time::Instant::now() + drain_grace);
                    }
                }
            }
            if let Some(ends_at) = ends_at {
                let is_over = tokio::time::Instant::now() >= ends_at;
                if self.running.is_empty() && (self.stagings.is_empty() || is_over) {
                    // What moved last is in the record as well.
                    self.sample(&mut batch);
                    batch.add_minutes(self.meters.end(wall_clock()));
                    self.hand_over(batch).await;
                    return;
                }
                if is_over {
                    tracing::info!(
                        running = self.running.len(),
                        "the time for running transfers is over; they start anew later"
                    );
                    // The grace is over: agents stop, their attempts are recorded as lost and start anew later.
                    self.node.host.stop_all();
                }
            }
            if !self.hand_over(batch).await {
                return;
            }
        }
    }

    fn next_tick(&self) -> Duration {
        let until = |at: Timestamp| at.since(wall_clock());
        self.engine
            .wake_at()
            .map_or(Duration::from_secs(60), until)
            .clamp(Duration::from_millis(1), SAMPLE_EVERY)
    }

    /// False when the journal's thread has given up.
    async fn hand_over(&mut self, batch: Batch) -> bool {
        let is_empty = batch.records.is_empty() && batch.acts.is_empty();
        // An empty one lets the journal's thread go on sealing.
        if is_empty && !self.sealing_due.load(Ordering::Relaxed) {
            return true;
        }
        let batches = self.batches.clone();
        let soon = tokio::time::Instant::now() + SAMPLE_EVERY;
        let mut telling = tokio::time::interval_at(soon, SAMPLE_EVERY);
        let handed = batches.send(batch);
        tokio::pin!(handed);
        loop {
            tokio::select! {
                biased;
                sent = &mut handed => return sent.is_ok(),
                // The journal may stand still for long: the other nodes hear of it meanwhile.
                _ = telling.tick() => self.tell_standing(),
            }
        }
    }

    fn tell_standing(&self) {
        let published = &self.node.published;
        if self.node.followers.count() > 0 {
            self.node.followers.tell_all(LeaderMessage::Shown {
                overview: Box::new(published.overview.borrow().as_ref().clone()),
                committed: *published.committed.borrow(),
                writable: published.is_writable(),
            });
        }
    }

    fn take_message(&mut self, message: Message, batch: &mut Batch) {
        let input = match message {
            Message::Command { command, again, to } => {
                return self.take_command(command, again, to, batch);
            }
            Message::Reported {
                node,
                session,
                report,
            } => return self.take_report(node, session, report, batch),
            Message::Joined { joined, ends } => return self.take_node(*joined, ends, batch),
            Message::Gone {
                node,
                session,
                heard,
            } => Input::NodeGone {
                node,
                session,
                heard_us: self.node.clock.monotonic_us(heard),
            },
            Message::Leaves { node, session } => Input::NodeLeaves { node, session },
            Message::TokenReady { id } => Input::TokenReady { id },
            Message::TokenRefused { id, failure } => Input::TokenRefused { id, failure },
            Message::TapeAnswered { number, outcome } => {
                self.stagings.remove(&number);
                Input::TapeAnswered { number, outcome }
            }
            Message::Configure(config) => Input::Configure(config),
        };
        self.feed(input, batch);
    }

    fn take_command(
        &mut self,
        command: Command,
        again: bool,
        to: oneshot::Sender<Reply>,
        batch: &mut Batch,
    ) {
        if let Command::Submit(Submit(job)) = &command
            && (self.engine.holds_job(job.id) || self.accepted.ids.contains(&job.id))
        {
            let known = match again {
                true => Reply::Accepted(job.id),
                false => Reply::Taken,
            };
            // After the batch in which it was accepted, if that is not durable yet.
            return batch.acts.push(Act::Reply(to, known));
        }
        let reply = self.owe(to);
        self.feed(Input::Command { command, reply }, batch);
    }

    fn take_report(&mut self, node: NodeId, session: u64, report: AgentReport, batch: &mut Batch) {
        match report {
            AgentReport::Prepared { .. } => self.feed(Input::Agent(report), batch),
            AgentReport::Ended {
                transfer,
                attempt,
                outcome,
            } => {
                let key = AttemptKey { transfer, attempt };
                let end = UntoldEnd { key, outcome };
                self.take_end(node, session, end, batch);
            }
            AgentReport::Moved(all) => {
                for (transfer, attempt, moved, size) in all {
                    if let Some(agent) = self.running.get(&transfer)
                        && (&agent.node, agent.attempt) == (&node, attempt)
                    {
                        agent.progress.follow(moved, size);
                    }
                }
            }
        }
    }

    fn take_end(
        &mut self,
        node: NodeId,
        session: u64,
        UntoldEnd { key, outcome }: UntoldEnd,
        batch: &mut Batch,
    ) {
        let AttemptKey { transfer, attempt } = key;
        self.forget_agent(transfer, attempt, &outcome);
        let input = Input::Agent(AgentReport::Ended {
            transfer,
            attempt,
            outcome,
        });
        self.feed(input, batch);
        batch.acts.push(Act::Order {
            node,
            session,
            order: Order::Forget { transfer, attempt },
            progress: None,
        });
    }

    fn take_node(&mut self, joined: NodeJoined, ends: Vec<UntoldEnd>, batch: &mut Batch) {
        let (node, session) = (joined.node.clone(), joined.session);
        if self.engine.knows_later_session(&node, session) {
            // Two connections were made one after the other; this is what the node told with the first.
            return;
        }
        for end in ends {
            self.take_end(node.clone(), session, end, batch);
        }
        for claim in &joined.claims {
            let assignment = &claim.assignment;
            let AttemptKey { transfer, attempt } = assignment.key();
            let here = match node == self.node.id {
                true => self.node.host.progress(transfer, attempt),
                false => None,
            };
            let begun = || Arc::new(Progress::new(assignment, Instant::now()));
            // Of two attempts one is abandoned, and that is this one.
            self.running.entry(transfer).or_insert_with(|| AgentHandle {
                attempt,
                node: node.clone(),
                progress: here.unwrap_or_else(begun),
            });
        }
        self.feed(Input::NodeJoined(Box::new(joined)), batch);
    }

    fn owe(&mut self, to: oneshot::Sender<Reply>) -> ReplyId {
        self.reply_next += 1;
        self.replies.insert(ReplyId(self.reply_next), to);
        ReplyId(self.reply_next)
    }

    fn forget_agent(&mut self, transfer: TransferId, attempt: Attempt, outcome: &AttemptOutcome) {
        if self
            .running
            .get(&transfer)
            .is_some_and(|agent| agent.attempt == attempt)
            && let Some(agent) = self.running.remove(&transfer)
        {
            self.meters
                .attempt_ended(&agent.progress, outcome, wall_clock());
        }
    }

    fn feed(&mut self, input: Input, batch: &mut Batch) {
        let effects = self.engine.handle(self.node.now(), input);
        self.take_effects(effects, batch);
    }

    fn take_effects(&mut self, effects: Effects, batch: &mut Batch) {
        self.meters.count(&effects);
        for record in &effects.records {
            self.node.metrics.count(record);
            tell_of(record);
        }
        batch.records.extend(effects.records);
        for action in effects.actions {
            match action {
                Action::Order {
                    node,
                    session,
                    order,
                } => {
                    let progress = self.follow_agent(&node, &order);
                    batch.acts.push(Act::Order {
                        node,
                        session,
                        order,
                        progress,
                    });
                }
                Action::Lost { transfer, attempt } => {
                    self.forget_agent(transfer, attempt, &AttemptOutcome::Stopped);
                }
                Action::PrepareToken(id) => batch.acts.push(Act::PrepareToken(id)),
                Action::Tape(call) => {
                    if matches!(call.errand, TapeErrand::Stage(_)) {
                        self.stagings.insert(call.number);
                    }
                    batch.acts.push(Act::Tape(Box::new(call)));
                }
                Action::RemoveSource { number, assignment } => {
                    batch.acts.push(Act::RemoveSource(number, assignment));
                }
                Action::LockOut(users) => batch.acts.push(Act::LockOut(users)),
                Action::Tell { link, notice } => tell(&link, &notice),
                Action::GiveOver {
                    job,
                    request,
                    failure,
                } => tell_of_leftover(job, &request, &failure),
                Action::Publish(settings) => batch.acts.push(Act::Publish(settings)),
                Action::RenewAtIssuer { id, to } => {
                    let to = self.replies.remove(&to);
                    batch.acts.extend(to.map(|to| Act::RenewAtIssuer(id, to)));
                }
                Action::Reply { to, reply } => {
                    if let Reply::Accepted(job) = &reply {
                        self.accepted.note(*job);
                    }
                    let to = self.replies.remove(&to);
                    batch.acts.extend(to.map(|to| Act::Reply(to, reply)));
                }
            }
        }
        for (to, reply) in effects.replies {
            if let Some(to) = self.replies.remove(&to) {
                // Whoever asked may have gone.
                let _ = to.send(reply);
            }
        }
    }

    /// Notes what runs where after an order. Gives back the progress of an attempt that begins.
    fn follow_agent(&mut self, node: &NodeId, order: &Order) -> Option<Arc<Progress>> {
        match order {
            Order::Start(assignment) => {
                let progress = Arc::new(Progress::new(assignment, Instant::now()));
                let handle = AgentHandle {
                    attempt: assignment.attempt,
                    node: node.clone(),
                    progress: progress.clone(),
                };
                self.running.insert(assignment.request.id, handle);
                Some(progress)
            }
            Order::Abandon { transfer, attempt } => {
                let is_it = |agent: &AgentHandle| (&agent.node, agent.attempt) == (node, *attempt);
                if self.running.get(transfer).is_some_and(is_it) {
                    self.running.remove(transfer);
                }
                None
            }
            Order::Proceed { .. } | Order::Stop { .. } | Order::Forget { .. } => None,
        }
    }

    /// Lets the engine know whether it may go by the clock.
    fn look_at_clock(&mut self, batch: &mut Batch) {
        let is_credible = self.node.agents.tokens.clock().is_credible();
        if self.clock_told.replace(is_credible) != Some(is_credible) {
            self.feed(Input::Clock { is_credible }, batch);
            batch.end_of_input();
        }
    }

    fn sample(&mut self, batch: &mut Batch) {
        self.look_at_clock(batch);
        let running: Vec<Arc<Progress>> = self
            .running
            .values()
            .map(|agent| agent.progress.clone())
            .collect();
        let at = wall_clock();
        let seen = self.meters.look(&running, at);
        self.feed(Input::Seen(seen), batch);
        let (overview, samples, minutes) = self.meters.sample(&self.engine, &running, at);
        let running = Arc::new(running.iter().map(Arc::downgrade).collect());
        self.node.published.running.send_replace(running);
        let running = self.running.iter();
        let moved = running.map(|(transfer, agent)| (*transfer, Bytes(agent.progress.moved())));
        let moved = moved.collect();
        self.feed(Input::Measured { moved }, batch);
        batch.end_of_input();
        batch
            .records
            .extend(samples.into_iter().map(Record::Sampled));
        batch.end_of_input();
        batch.add_minutes(minutes);
        self.node
            .published
            .overview
            .send_replace(Arc::new(overview));
        self.tell_standing();
    }
}
