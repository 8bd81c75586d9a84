//! The loop around the engine: takes inputs, lets the engine decide, persists, then acts.
//!
//! One task owns the engine; one thread owns the journal. The task decides ahead while the thread commits: whatever
//! has piled up by then goes into one transaction (group commit), and only what is durable is acted upon. When the
//! journal cannot be written (a full disk), nothing is acted upon and nothing is dropped: it tries again until it can,
//! or until the service has been asked to end and its last chance is over. What is dropped then nobody was told of.

use crate::agent::{AgentSetup, Progress, StopSignal};
use crate::api::Banned;
use crate::engine::{
    Action, Answer, Assignment, Effects, Engine, EngineConfig, Input, LinkNotice, Now, Outcome,
    ReplyId, TapeCall, TapeErrand, TapeOutcome,
};
use crate::metrics::TransferMetrics;
use crate::overview::{Meters, Overview};
use crate::submission::NewJob;
use penstock_decide::settings::{Asker, Wish};
use penstock_model::{
    Attempt, Ban, BanTarget, Bytes, CredentialId, Failure, JobId, LinkId, Priority, Settings,
    Timestamp, TransferId, UserName, VoName, WaitReason,
};
use penstock_persistence::journal::{Journal, JournalError, Record, RenewedToken};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot, watch};

/// How many inputs may wait for the engine; senders wait beyond.
const INPUTS_MAX: usize = 16_384;
/// How many inputs the engine takes before their effects go to the journal.
const INPUTS_PER_BATCH: usize = 1024;
/// How many batches may wait for the journal; the engine waits beyond.
const BATCHES_MAX: usize = 16;
/// How many records go into one transaction at most.
const RECORDS_PER_COMMIT: usize = 20_000;
/// How long to wait before writing to a full journal again.
const JOURNAL_RETRY: Duration = Duration::from_millis(500);
/// How much longer it tries once the service has been asked to end; the grace for running transfers, if that is shorter.
const JOURNAL_LAST_CHANCE: Duration = Duration::from_secs(10);
/// How often links are sampled.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// What the loop takes: engine inputs with the channel for their answer, and questions that change nothing.
#[derive(Debug)]
pub(crate) enum Message {
    Submit {
        job: Box<NewJob>,
        answer: oneshot::Sender<Answer>,
    },
    Cancel {
        job: JobId,
        transfers: Option<Vec<TransferId>>,
        reason: String,
        answer: oneshot::Sender<Answer>,
    },
    CancelAll {
        vo: Option<VoName>,
        reason: String,
        answer: oneshot::Sender<Answer>,
    },
    Reprioritise {
        job: JobId,
        priority: Priority,
        answer: oneshot::Sender<Answer>,
    },
    Set {
        wish: Box<Wish>,
        asker: Asker,
        user: UserName,
        answer: oneshot::Sender<Answer>,
    },
    Ban {
        ban: Box<Ban>,
        answer: oneshot::Sender<Answer>,
    },
    Lift {
        target: BanTarget,
        by: UserName,
        answer: oneshot::Sender<Answer>,
    },
    KeepToken {
        id: CredentialId,
        renewed: RenewedToken,
        answer: oneshot::Sender<Answer>,
    },
    TokenReady {
        id: CredentialId,
    },
    TokenRefused {
        id: CredentialId,
        failure: Box<Failure>,
    },
    Agent(AgentReport),
    TapeAnswered {
        number: u64,
        outcome: TapeOutcome,
    },
    Configure(Box<EngineConfig>),
    WhyWaiting {
        transfers: Vec<TransferId>,
        answer: oneshot::Sender<Vec<Option<WaitReason>>>,
    },
}

/// What agents tell the engine.
#[derive(Debug)]
pub(crate) enum AgentReport {
    Prepared {
        transfer: TransferId,
        attempt: Attempt,
        size: Option<Bytes>,
        checksum: Option<penstock_model::Checksum>,
        replaces: bool,
    },
    Ended {
        transfer: TransferId,
        attempt: Attempt,
        outcome: Outcome,
    },
}

/// What the journal thread does once a batch is durable.
enum Act {
    Tape(Box<TapeCall>),
    Start(
        Box<Assignment>,
        Arc<Progress>,
        oneshot::Receiver<()>,
        StopSignal,
    ),
    Answer(oneshot::Sender<Answer>, Answer),
    PrepareToken(CredentialId),
    Publish(Arc<Settings>),
    LockOut(BTreeSet<String>),
    Proceed(oneshot::Sender<()>),
    Stop(watch::Sender<bool>),
}

pub(crate) struct Batch {
    records: Vec<Record>,
    acts: Vec<Act>,
}

/// How an agent is reached while it runs.
struct AgentHandle {
    attempt: Attempt,
    proceed: Option<oneshot::Sender<()>>,
    stop: watch::Sender<bool>,
    progress: Arc<Progress>,
}

/// The wall clock and the process's own clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn now(self) -> Now {
        Now {
            at: wall_clock(),
            monotonic_us: self.0.elapsed().as_micros() as u64,
        }
    }
}

/// For the site's operators.
fn tell(link: &LinkId, notice: &LinkNotice) {
    match notice {
        LinkNotice::Halted(halt) => {
            let (failures, last) = (halt.failures, &halt.last);
            let until = halt.until.to_fts();
            tracing::warn!(%link, failures, %last, %until, "a link is halted; one transfer is tried then");
        }
        LinkNotice::Reopened => tracing::info!(%link, "a halted link works again"),
    }
}

/// The wall clock.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(since.as_millis() as i64)
}

/// What the outside holds of a running loop.
pub(crate) struct Loop {
    pub(crate) inputs: mpsc::Sender<Message>,
    /// To see how many wait; it keeps nothing alive.
    pub(crate) batches: mpsc::WeakSender<Batch>,
    pub(crate) overview: watch::Receiver<Arc<Overview>>,
    pub(crate) committed: watch::Receiver<u64>,
    pub(crate) journal_writable: Arc<AtomicBool>,
    /// Set to have the journal's secrets sealed anew; the journal's thread takes it back.
    pub(crate) sealing_due: Arc<AtomicBool>,
    pub(crate) task: tokio::task::JoinHandle<()>,
    /// How the journal's thread ended: with its last batch committed, or without.
    pub(crate) last_commit: oneshot::Receiver<Result<(), JournalError>>,
}

/// Everything the loop is made of.
pub(crate) struct Parts {
    pub(crate) engine: Engine,
    pub(crate) first: Effects,
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) agents: Arc<AgentSetup>,
    /// Told what is set, as soon as it is durable.
    pub(crate) settings: watch::Sender<Arc<Settings>>,
    pub(crate) site: String,
    pub(crate) metrics: Arc<TransferMetrics>,
    pub(crate) banned: Banned,
    pub(crate) clock: Clock,
    pub(crate) shutdown: watch::Receiver<bool>,
    pub(crate) drain_grace: Duration,
}

/// Starts the loop and the journal's thread. It ends, drained, after `shutdown` turns true.
pub(crate) fn start(parts: Parts) -> std::io::Result<Loop> {
    let Parts {
        engine,
        first,
        journal,
        agents,
        settings,
        site,
        metrics,
        banned,
        clock,
        shutdown,
        drain_grace,
    } = parts;
    let (inputs, received) = mpsc::channel(INPUTS_MAX);
    agents.tokens.persist_through(&inputs);
    let (batches, queued) = mpsc::channel(BATCHES_MAX);
    let (committed_out, committed) = watch::channel(0);
    let journal_writable = Arc::new(AtomicBool::new(true));
    let sealing_due = Arc::new(AtomicBool::new(false));
    let committer = Committer {
        journal,
        agents,
        banned,
        reports: inputs.clone(),
        committed: committed_out,
        settings,
        writable: journal_writable.clone(),
        sealing_due: sealing_due.clone(),
        metrics: metrics.clone(),
        runtime: tokio::runtime::Handle::current(),
        shutdown: shutdown.clone(),
        last_chance: drain_grace.min(JOURNAL_LAST_CHANCE),
        gives_up_at: None,
    };
    let (done, last_commit) = oneshot::channel();
    std::thread::Builder::new()
        .name("journal".to_owned())
        .spawn(move || {
            // The service may have gone without waiting.
            let _ = done.send(committer.run(queued));
        })?;
    let (overview_out, overview) = watch::channel(Arc::new(Overview::default()));
    let weak_batches = batches.downgrade();
    let driver = Driver {
        engine,
        clock,
        batches,
        replies: HashMap::new(),
        reply_next: 0,
        running: HashMap::new(),
        stagings: BTreeSet::new(),
        sealing_due: sealing_due.clone(),
        meters: Meters::new(site),
        metrics,
        overview: overview_out,
    };
    let task = tokio::spawn(driver.run(first, received, shutdown, drain_grace));
    Ok(Loop {
        inputs,
        batches: weak_batches,
        overview,
        committed,
        journal_writable,
        sealing_due,
        task,
        last_commit,
    })
}

struct Driver {
    engine: Engine,
    clock: Clock,
    batches: mpsc::Sender<Batch>,
    replies: HashMap<ReplyId, oneshot::Sender<Answer>>,
    reply_next: u64,
    running: HashMap<TransferId, AgentHandle>,
    /// Calls that ask for files on tape: their answers are worth waiting for, because they name the requests.
    stagings: BTreeSet<u64>,
    sealing_due: Arc<AtomicBool>,
    meters: Meters,
    metrics: Arc<TransferMetrics>,
    overview: watch::Sender<Arc<Overview>>,
}

impl Driver {
    async fn run(
        mut self,
        first: Effects,
        mut received: mpsc::Receiver<Message>,
        mut shutdown: watch::Receiver<bool>,
        drain_grace: Duration,
    ) {
        let mut batch = Batch {
            records: Vec::new(),
            acts: Vec::new(),
        };
        self.take_effects(first, &mut batch);
        if !self.hand_over(batch).await {
            return;
        }
        let mut messages = Vec::with_capacity(INPUTS_PER_BATCH);
        let mut sampling = tokio::time::interval(SAMPLE_EVERY);
        sampling.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut ends_at: Option<tokio::time::Instant> = None;
        loop {
            let mut batch = Batch {
                records: Vec::new(),
                acts: Vec::new(),
            };
            let due = self.next_tick();
            tokio::select! {
                count = received.recv_many(&mut messages, INPUTS_PER_BATCH) => {
                    if count == 0 { return; }
                    for message in messages.drain(..) {
                        self.take_message(message, &mut batch);
                    }
                }
                _ = sampling.tick() => self.sample(&mut batch),
                () = tokio::time::sleep(due) => self.feed(Input::Tick, &mut batch),
                changed = shutdown.changed(), if ends_at.is_none() => {
                    if changed.is_err() || *shutdown.borrow() {
                        self.feed(Input::Drain, &mut batch);
                        ends_at = Some(tokio::time::Instant::now() + drain_grace);
                    }
                }
            }
            if let Some(ends_at) = ends_at {
                let is_over = tokio::time::Instant::now() >= ends_at;
                if self.running.is_empty() && (self.stagings.is_empty() || is_over) {
                    self.hand_over(batch).await;
                    return;
                }
                if is_over {
                    // The grace is over: agents stop, their attempts are recorded as lost and start anew later.
                    self.running.values().for_each(|agent| {
                        agent.stop.send_replace(true);
                    });
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
        let is_needed = !is_empty || self.sealing_due.load(Ordering::Relaxed);
        !is_needed || self.batches.send(batch).await.is_ok()
    }

    fn take_message(&mut self, message: Message, batch: &mut Batch) {
        let input = match message {
            Message::Submit { job, answer } => Input::Submit {
                job,
                reply: self.owe(answer),
            },
            Message::Cancel {
                job,
                transfers,
                reason,
                answer,
            } => Input::Cancel {
                job,
                transfers,
                reason,
                reply: self.owe(answer),
            },
            Message::CancelAll { vo, reason, answer } => Input::CancelAll {
                vo,
                reason,
                reply: self.owe(answer),
            },
            Message::Reprioritise {
                job,
                priority,
                answer,
            } => Input::Reprioritise {
                job,
                priority,
                reply: self.owe(answer),
            },
            Message::Set {
                wish,
                asker,
                user,
                answer,
            } => Input::Set {
                wish,
                asker,
                user,
                reply: self.owe(answer),
            },
            Message::Ban { ban, answer } => Input::Ban {
                ban,
                reply: self.owe(answer),
            },
            Message::Lift { target, by, answer } => Input::Lift {
                target,
                by,
                reply: self.owe(answer),
            },
            Message::KeepToken {
                id,
                renewed,
                answer,
            } => Input::TokenRenewed {
                id,
                renewed,
                reply: self.owe(answer),
            },
            Message::TokenReady { id } => Input::TokenReady { id },
            Message::TokenRefused { id, failure } => Input::TokenRefused { id, failure },
            Message::TapeAnswered { number, outcome } => {
                self.stagings.remove(&number);
                Input::TapeAnswered { number, outcome }
            }
            Message::Configure(config) => Input::Configure(*config),
            Message::Agent(AgentReport::Prepared {
                transfer,
                attempt,
                size,
                checksum,
                replaces,
            }) => Input::Prepared {
                transfer,
                attempt,
                size,
                checksum,
                replaces,
            },
            Message::Agent(AgentReport::Ended {
                transfer,
                attempt,
                outcome,
            }) => {
                self.forget_agent(transfer, attempt, &outcome);
                Input::Ended {
                    transfer,
                    attempt,
                    outcome,
                }
            }
            Message::WhyWaiting { transfers, answer } => {
                let now = wall_clock();
                let why = transfers
                    .into_iter()
                    .map(|id| self.engine.why_waiting(id, now))
                    .collect();
                // Whoever asked may have gone.
                let _ = answer.send(why);
                return;
            }
        };
        self.feed(input, batch);
    }

    fn owe(&mut self, answer: oneshot::Sender<Answer>) -> ReplyId {
        self.reply_next += 1;
        self.replies.insert(ReplyId(self.reply_next), answer);
        ReplyId(self.reply_next)
    }

    fn forget_agent(&mut self, transfer: TransferId, attempt: Attempt, outcome: &Outcome) {
        if self
            .running
            .get(&transfer)
            .is_some_and(|agent| agent.attempt == attempt)
            && let Some(agent) = self.running.remove(&transfer)
        {
            self.meters.attempt_ended(&agent.progress, outcome);
        }
    }

    fn feed(&mut self, input: Input, batch: &mut Batch) {
        let effects = self.engine.handle(self.clock.now(), input);
        self.take_effects(effects, batch);
    }

    fn take_effects(&mut self, effects: Effects, batch: &mut Batch) {
        for record in &effects.records {
            self.meters.count(record);
            self.metrics.count(record);
        }
        batch.records.extend(effects.records);
        for action in effects.actions {
            match action {
                Action::Start(assignment) => batch.acts.push(self.prepare_start(assignment)),
                Action::Proceed { transfer, .. } => {
                    let proceed = self
                        .running
                        .get_mut(&transfer)
                        .and_then(|agent| agent.proceed.take());
                    batch.acts.extend(proceed.map(Act::Proceed));
                }
                Action::Stop { transfer } => {
                    let stop = self.running.get(&transfer).map(|agent| agent.stop.clone());
                    batch.acts.extend(stop.map(Act::Stop));
                }
                Action::PrepareToken(id) => batch.acts.push(Act::PrepareToken(id)),
                Action::Tape(call) => {
                    if matches!(call.errand, TapeErrand::Stage(_)) {
                        self.stagings.insert(call.number);
                    }
                    batch.acts.push(Act::Tape(Box::new(call)));
                }
                Action::LockOut(users) => batch.acts.push(Act::LockOut(users)),
                Action::Tell { link, notice } => tell(&link, &notice),
                Action::Publish(settings) => batch.acts.push(Act::Publish(settings)),
                Action::Answer { reply, answer } => {
                    batch.acts.extend(
                        self.replies
                            .remove(&reply)
                            .map(|to| Act::Answer(to, answer)),
                    );
                }
            }
        }
    }

    fn prepare_start(&mut self, assignment: Assignment) -> Act {
        let (proceed, may_proceed) = oneshot::channel();
        let (stop, stopped) = watch::channel(false);
        let progress = Arc::new(Progress::new(&assignment, Instant::now()));
        let handle = AgentHandle {
            attempt: assignment.attempt,
            proceed: Some(proceed),
            stop,
            progress: progress.clone(),
        };
        self.running.insert(assignment.request.id, handle);
        Act::Start(
            Box::new(assignment),
            progress,
            may_proceed,
            StopSignal::new(stopped),
        )
    }

    fn sample(&mut self, batch: &mut Batch) {
        let running: Vec<Arc<Progress>> = self
            .running
            .values()
            .map(|agent| agent.progress.clone())
            .collect();
        let (overview, samples) = self.meters.sample(&self.engine, &running, wall_clock());
        batch
            .records
            .extend(samples.into_iter().map(Record::Sampled));
        self.overview.send_replace(Arc::new(overview));
    }
}

/// Owns the journal. A thread, because a commit blocks.
struct Committer {
    journal: Box<dyn Journal>,
    agents: Arc<AgentSetup>,
    banned: Banned,
    reports: mpsc::Sender<Message>,
    committed: watch::Sender<u64>,
    settings: watch::Sender<Arc<Settings>>,
    writable: Arc<AtomicBool>,
    sealing_due: Arc<AtomicBool>,
    metrics: Arc<TransferMetrics>,
    runtime: tokio::runtime::Handle,
    shutdown: watch::Receiver<bool>,
    last_chance: Duration,
    /// Known once the service has been asked to end while the journal could not be written.
    gives_up_at: Option<Instant>,
}

impl Committer {
    /// Errors: the journal could not be written until the end. Who waits for an answer gets none.
    fn run(mut self, mut queued: mpsc::Receiver<Batch>) -> Result<(), JournalError> {
        while let Some(first) = queued.blocking_recv() {
            let (mut records, mut acts) = (first.records, first.acts);
            while records.len() < RECORDS_PER_COMMIT
                && let Ok(next) = queued.try_recv()
            {
                records.extend(next.records);
                acts.extend(next.acts);
            }
            for act in &acts {
                if let Act::Start(assignment, ..) = act {
                    self.agents.remember(assignment);
                }
            }
            if !records.is_empty() {
                let sequence = self.append(&records)?;
                self.committed.send_replace(sequence);
            }
            acts.into_iter().for_each(|act| self.act(act));
            if self.sealing_due.load(Ordering::Relaxed) {
                self.seal_some_anew();
            }
        }
        Ok(())
    }

    /// A few secrets after each batch, so that nobody waits for all of them.
    fn seal_some_anew(&mut self) {
        // Taken back first: should the key change again meanwhile, another pass is due.
        self.sealing_due.store(false, Ordering::Relaxed);
        match self.journal.seal_some_anew() {
            Ok(true) => tracing::info!("the journal's secrets are sealed with the newest key"),
            Ok(false) => self.sealing_due.store(true, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!(%error, "secrets could not be sealed anew; it is tried again");
                self.sealing_due.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns when the records are durable, or when it is too late for them.
    fn append(&mut self, records: &[Record]) -> Result<u64, JournalError> {
        loop {
            let begun = Instant::now();
            match self.journal.append(records) {
                Ok(sequence) => {
                    self.metrics.batch_records.observe(records.len() as u64);
                    let took = begun.elapsed().as_micros();
                    let took = u64::try_from(took).unwrap_or(u64::MAX);
                    self.metrics.commit_us.observe(took);
                    if !self.writable.swap(true, Ordering::Relaxed) {
                        tracing::info!("the journal can be written again");
                    }
                    return Ok(sequence);
                }
                // Another node leads: what is not recorded yet, that one finds out for itself.
                Err(error @ JournalError::Deposed { .. }) => return Err(error),
                Err(error) if self.gives_up() => return Err(error),
                Err(error) => {
                    if self.writable.swap(false, Ordering::Relaxed) {
                        tracing::error!(%error, "nothing starts or ends until the journal can be written");
                    }
                    std::thread::sleep(JOURNAL_RETRY);
                }
            }
        }
    }

    fn gives_up(&mut self) -> bool {
        let asked_to_end = *self.shutdown.borrow() || self.shutdown.has_changed().is_err();
        if !asked_to_end {
            return false;
        }
        let last_chance = self.last_chance;
        let until = self
            .gives_up_at
            .get_or_insert_with(|| Instant::now() + last_chance);
        Instant::now() >= *until
    }

    fn act(&self, act: Act) {
        match act {
            Act::Start(assignment, progress, may_proceed, stop) => {
                let agent = self.agents.clone().agent(
                    *assignment,
                    progress,
                    may_proceed,
                    stop,
                    self.reports.clone(),
                );
                self.runtime.spawn(agent);
            }
            Act::Tape(call) => {
                let calling = self.agents.clone().call_tape(*call, self.reports.clone());
                self.runtime.spawn(calling);
            }
            // In each case the other side may have gone meanwhile, which is its right.
            Act::Answer(to, answer) => drop(to.send(answer)),
            Act::LockOut(users) => self.banned.replace_imposed(users),
            Act::Proceed(proceed) => drop(proceed.send(())),
            Act::PrepareToken(id) => {
                self.runtime.spawn(self.agents.tokens.clone().prepare(id));
            }
            Act::Publish(settings) => {
                self.settings.send_replace(settings);
            }
            Act::Stop(stop) => {
                stop.send_replace(true);
            }
        }
    }
}
