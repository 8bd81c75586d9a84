//! The agents of one node: what they run, and what their leader has not taken notice of yet.
//!
//! They go on while leaders change. An end is kept until a leader has made it durable. A node that has heard of no
//! leader for its term drops its agents where they stand, and takes no new ones: whoever leads then may give their
//! transfers to others. What it drops or does not take it tells as dropped, because its leader may be the same as before.

use crate::agent::{AgentSetup, Progress, StopSignal};
use crate::loop_message::Message;
use parking_lot::{Mutex, MutexGuard};
use penstock_engine::{
    AgentReport, Assignment, AttemptOutcome, Claim, NodeJoined, Order, Preflight,
};
use penstock_model::{Attempt, NodeId, Slots, Tenure, TransferId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::AbortHandle;

/// Reports of agents that may wait for the host.
const REPORTS_MAX: usize = 4096;
/// How often a node looks whether it has heard of its leader.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What is not run holds its slot for so long: told at once it would come again at once.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// All that a node has to tell a leader that knows nothing of it.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// What it runs.
    pub(crate) claims: Vec<Claim>,
    /// What has ended, and is not known to be durable.
    pub(crate) ends: Vec<(TransferId, Attempt, AttemptOutcome)>,
}

impl Snapshot {
    /// As its leader's loop takes it.
    pub(crate) fn joins(self, node: NodeId, session: u64, slots: Slots) -> Message {
        Message::Joined {
            joined: Box::new(NodeJoined {
                node,
                session,
                slots,
                claims: self.claims,
            }),
            ends: self.ends,
        }
    }
}

/// Whom a node tells what its agents report.
#[derive(Debug, Clone)]
pub(crate) enum ReportSink {
    /// The loop of this process.
    Here {
        inputs: mpsc::Sender<Message>,
        node: NodeId,
        session: u64,
    },
    /// Another node, by this connection.
    There(mpsc::Sender<AgentReport>),
}

impl ReportSink {
    /// What cannot be told is told in the next session.
    async fn tell(&self, report: AgentReport) {
        match self {
            ReportSink::Here {
                inputs,
                node,
                session,
            } => {
                let message = Message::Reported {
                    node: node.clone(),
                    session: *session,
                    report,
                };
                let _ = inputs.send(message).await;
            }
            ReportSink::There(connection) => {
                let _ = connection.send(report).await;
            }
        }
    }
}

/// One agent at work.
struct HostedAgent {
    assignment: Box<Assignment>,
    progress: Arc<Progress>,
    proceed: Option<oneshot::Sender<()>>,
    waits: Option<Preflight>,
    stop: watch::Sender<bool>,
    task: AbortHandle,
    /// It is being dropped for want of a leader. Its end is told when nothing of it runs any more.
    is_orphan: bool,
}

type Key = (TransferId, Attempt);

#[derive(Default)]
struct HostState {
    /// The leadership that is followed.
    tenure: Tenure,
    agents: BTreeMap<Key, HostedAgent>,
    untold: BTreeMap<Key, AttemptOutcome>,
    reports: Option<ReportSink>,
    /// When a leader was certain to lead last.
    heard: Option<Instant>,
}

/// The agents of this node.
pub(crate) struct AgentHost {
    setup: Arc<AgentSetup>,
    runtime: tokio::runtime::Handle,
    reports: mpsc::Sender<AgentReport>,
    held: Mutex<HostState>,
    changed: Notify,
    /// How long agents go on without a leader; `None`: this process always leads.
    term: Option<Duration>,
    started: Instant,
}

impl AgentHost {
    /// Starts to take reports. To be called in the runtime in which agents are to run.
    pub(crate) fn start(setup: Arc<AgentSetup>, term: Option<Duration>) -> Arc<AgentHost> {
        let (reports, reported) = mpsc::channel(REPORTS_MAX);
        let host = Arc::new(AgentHost {
            setup,
            runtime: tokio::runtime::Handle::current(),
            reports,
            held: Mutex::default(),
            changed: Notify::new(),
            term,
            started: Instant::now(),
        });
        tokio::spawn(pass_on(Arc::downgrade(&host), reported));
        if term.is_some() {
            tokio::spawn(watch_over(Arc::downgrade(&host)));
        }
        host
    }

    fn held(&self) -> MutexGuard<'_, HostState> {
        self.held.lock()
    }

    /// From now on this leader is told, which the database has named. What others still send is refused; also that of a
    /// higher epoch, since a database that was restored counts on from a lower one.
    pub(crate) fn join(&self, reports: ReportSink, tenure: Tenure) -> Snapshot {
        let mut held = self.held();
        held.tenure = tenure;
        held.reports = Some(reports);
        let claims = held.agents.values().map(|hosted| Claim {
            assignment: Assignment::clone(&hosted.assignment),
            waits: hosted.waits.clone(),
        });
        let ends = held.untold.iter();
        Snapshot {
            claims: claims.collect(),
            ends: ends
                .map(|((transfer, attempt), outcome)| (*transfer, *attempt, outcome.clone()))
                .collect(),
        }
    }

    /// A leader was certain to lead at this time.
    pub(crate) fn hear(&self, at: Instant) {
        let mut held = self.held();
        held.heard = held.heard.max(Some(at));
    }

    /// For how long no leader has been certain to lead; `None`: this process always leads.
    pub(crate) fn leaderless_for(&self) -> Option<Duration> {
        self.term?;
        let heard = self.held().heard;
        Some(heard.unwrap_or(self.started).elapsed())
    }

    fn has_leader(&self, held: &HostState) -> bool {
        let Some(term) = self.term else {
            return true;
        };
        held.heard.is_some_and(|heard| heard.elapsed() < term)
    }

    /// Does what the leader says.
    pub(crate) fn take(self: &Arc<Self>, order: Order, progress: Option<Arc<Progress>>) {
        let mut held = self.held();
        match order {
            Order::Start(assignment) => match self.refusal(&held, &assignment) {
                None => self.run(&mut held, assignment, progress),
                Some(why) => self.refuse(&mut held, &assignment, why),
            },
            Order::Proceed { transfer, attempt } => {
                let is_led = self.has_leader(&held);
                if let Some(hosted) = held.agents.get_mut(&(transfer, attempt)) {
                    if !is_led {
                        // Others may have been given it, and no byte may move any more.
                        hosted.is_orphan = true;
                        hosted.task.abort();
                        return;
                    }
                    hosted.waits = None;
                    // The agent may have been stopped meanwhile.
                    hosted.proceed.take().map(|proceed| proceed.send(()));
                }
            }
            Order::Stop { transfer, attempt } => {
                if let Some(hosted) = held.agents.get(&(transfer, attempt)) {
                    hosted.stop.send_replace(true);
                }
            }
            Order::Abandon { transfer, attempt } => {
                if let Some(hosted) = held.agents.remove(&(transfer, attempt)) {
                    hosted.task.abort();
                }
                self.changed.notify_waiters();
            }
            Order::Forget { transfer, attempt } => {
                held.untold.remove(&(transfer, attempt));
                self.changed.notify_waiters();
            }
        }
    }

    /// Why an attempt is not run, if it is not.
    fn refusal(&self, held: &HostState, assignment: &Assignment) -> Option<&'static str> {
        if !assignment.to.tenure.is_that_of(&held.tenure) {
            return Some("another node has come to lead");
        }
        let is_led = self.has_leader(held);
        (!is_led).then_some("whether its leader still leads is not known here")
    }

    /// Tells that an attempt is not run. Without a word its leader would take it for running as long as both live.
    fn refuse(&self, held: &mut HostState, assignment: &Assignment, why: &str) {
        let (transfer, attempt) = (assignment.request.id, assignment.attempt);
        let key = (transfer, attempt);
        if held.agents.contains_key(&key) || held.untold.contains_key(&key) {
            return;
        }
        let (epoch, known) = (assignment.to.tenure.epoch, held.tenure.epoch);
        tracing::info!(transfer = transfer.0, %epoch, %known, why, "an attempt is not run here");
        held.untold.insert(key, AttemptOutcome::Dropped);
        let (reports, report) = (
            self.reports.clone(),
            AgentReport::Ended {
                transfer,
                attempt,
                outcome: AttemptOutcome::Dropped,
            },
        );
        // Whoever gives the order does not wait. What cannot be told then is told to the next leader.
        self.runtime.spawn(async move {
            tokio::time::sleep(REFUSED_FOR).await;
            drop(reports.send(report).await);
        });
    }

    fn run(
        self: &Arc<Self>,
        held: &mut HostState,
        assignment: Box<Assignment>,
        progress: Option<Arc<Progress>>,
    ) {
        let key = (assignment.request.id, assignment.attempt);
        if held.agents.contains_key(&key) || held.untold.contains_key(&key) {
            return;
        }
        let begun = || Arc::new(Progress::new(&assignment, Instant::now()));
        let progress = progress.unwrap_or_else(begun);
        let (proceed, may_proceed) = oneshot::channel();
        let (stop, stopped) = watch::channel(false);
        let agent = self.setup.clone().agent(
            Assignment::clone(&assignment),
            progress.clone(),
            may_proceed,
            StopSignal::new(stopped),
            self.reports.clone(),
        );
        let hosted = HostedAgent {
            assignment,
            progress,
            proceed: Some(proceed),
            waits: None,
            stop,
            task: self.runtime.spawn(agent).abort_handle(),
            is_orphan: false,
        };
        held.agents.insert(key, hosted);
    }

    /// Notes what an agent reports, and tells whom it is to be told to. `None`: the agent was dropped before.
    fn note(&self, report: &mut AgentReport) -> Option<ReportSink> {
        let mut held = self.held();
        match report {
            AgentReport::Prepared {
                transfer,
                attempt,
                preflight,
            } => {
                let hosted = held.agents.get_mut(&(*transfer, *attempt))?;
                hosted.waits = Some(preflight.clone());
            }
            AgentReport::Ended {
                transfer,
                attempt,
                outcome,
            } => {
                let key = (*transfer, *attempt);
                match held.agents.remove(&key) {
                    Some(hosted) if hosted.is_orphan => match outcome {
                        // It had been quicker.
                        AttemptOutcome::Landed { .. }
                        | AttemptOutcome::Stopped
                        | AttemptOutcome::Tidied => {}
                        AttemptOutcome::Failed { .. }
                        | AttemptOutcome::Blocked { .. }
                        | AttemptOutcome::Unsettled
                        | AttemptOutcome::Dropped
                        | AttemptOutcome::Untidied { .. } => *outcome = AttemptOutcome::Dropped,
                    },
                    Some(_) => {}
                    // One that was not taken.
                    None if held.untold.contains_key(&key) => {}
                    None => return None,
                }
                held.untold.insert(key, outcome.clone());
                self.changed.notify_waiters();
            }
            AgentReport::Moved(_) => {}
        }
        held.reports.clone()
    }

    /// How far each agent is.
    pub(crate) fn moved(&self) -> AgentReport {
        let held = self.held();
        let moved = held.agents.iter().map(|((transfer, attempt), hosted)| {
            let (moved, size) = hosted.progress.told();
            (*transfer, *attempt, moved, size)
        });
        AgentReport::Moved(moved.collect())
    }

    /// How far one agent is.
    pub(crate) fn progress(&self, transfer: TransferId, attempt: Attempt) -> Option<Arc<Progress>> {
        let held = self.held();
        let hosted = held.agents.get(&(transfer, attempt))?;
        Some(hosted.progress.clone())
    }

    /// Drops all agents where they stand, because their leader is about to read anew what was recorded of them. Returns
    /// when nothing of them runs any more.
    pub(crate) async fn drop_all(&self) {
        let tasks: Vec<AbortHandle> = {
            let mut held = self.held();
            (held.reports, held.untold) = (None, BTreeMap::new());
            let agents = std::mem::take(&mut held.agents);
            agents.into_values().map(|hosted| hosted.task).collect()
        };
        tasks.iter().for_each(AbortHandle::abort);
        while tasks.iter().any(|task| !task.is_finished()) {
            tokio::time::sleep(LOOK_EVERY / 10).await;
        }
        self.changed.notify_waiters();
    }

    /// Asks all agents to stop.
    pub(crate) fn stop_all(&self) {
        for hosted in self.held().agents.values() {
            hosted.stop.send_replace(true);
        }
    }

    /// Returns when no agent runs, and a leader has made all ends durable.
    pub(crate) async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let held = self.held();
                if held.agents.is_empty() && held.untold.is_empty() {
                    return;
                }
            }
            changed.await;
        }
    }

    fn drop_orphans(&self) {
        let mut held = self.held();
        if self.has_leader(&held) {
            return;
        }
        let mut attempts = 0;
        let orphans = held.agents.values_mut();
        for hosted in orphans.filter(|hosted| !hosted.is_orphan) {
            hosted.is_orphan = true;
            // It reports its end when it is gone.
            hosted.task.abort();
            attempts += 1;
        }
        if attempts > 0 {
            tracing::warn!(
                attempts,
                "no leader was heard of for too long: all attempts are dropped"
            );
        }
    }
}

async fn pass_on(host: std::sync::Weak<AgentHost>, mut reported: mpsc::Receiver<AgentReport>) {
    while let Some(mut report) = reported.recv().await {
        let Some(host) = host.upgrade() else {
            return;
        };
        if let Some(reports) = host.note(&mut report) {
            reports.tell(report).await;
        }
    }
}

async fn watch_over(host: std::sync::Weak<AgentHost>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        match host.upgrade() {
            Some(host) => host.drop_orphans(),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests;
