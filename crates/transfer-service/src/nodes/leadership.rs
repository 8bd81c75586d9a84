//! How a node of several comes to lead, and what it does until then.
//!
//! It asks for the lease all the time that it does not lead, and follows whoever has it. While it leads it renews the
//! lease; what it was certain of ends with the term that it asked for, counted from before it asked.

use super::leader_loop::end_of;
use super::membership::{LEASE, Membership, NODE_TERM};
use super::{LeaderLoop, follow, serve};
use crate::error::ServiceError;
use crate::leader_requests::LeaderSeat;
use crate::node::Node;
use crate::run::{LoopEnd, LoopHandle};
use penstock_engine::LeadershipMode;
use penstock_journal::{Journal, JournalError};
use penstock_model::{NodeId, Tenure};
use penstock_persistence::cluster::Leadership;
use penstock_persistence::journal::PostgresJournal;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often it is renewed, and how often a follower looks who leads.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// How often a follower looks that is not connected.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The wait after the database did not answer.
const RETRY: Duration = Duration::from_millis(300);
/// A node that told so within this time is expected to join a new leader.
const FRESH: Duration = Duration::from_secs(12);
/// How much longer a leader waits until it gives what they did to others: they have stopped by then.
const MARGIN: Duration = Duration::from_secs(5);
/// How long a leader that was deposed waits for its journal's thread.
const DEPOSED_GRACE: Duration = Duration::from_secs(1);
/// How long a node that ends waits until a leader has made durable what its agents told.
const LAST_WORDS: Duration = Duration::from_secs(8);

impl Membership {
    /// Leads and follows in turn, until the shutdown signal and what follows it. Errors: what this node decided last
    /// could not be recorded.
    pub(crate) async fn run(
        self: Arc<Self>,
        node: Arc<Node>,
        leader_loop: Arc<LeaderLoop>,
        shutdown: watch::Receiver<bool>,
    ) -> Result<(), ServiceError> {
        let meeting = tokio::spawn(self.clone().keep_meeting(leader_loop.clone()));
        let door = tokio::spawn(serve::serve(
            self.clone(),
            node.clone(),
            leader_loop.clone(),
            self.listener.clone(),
        ));
        let ending = tokio::spawn(self.clone().end(node.clone(), shutdown.clone()));
        let mut ending = std::pin::pin!(ending);
        let mut following: Option<LeaderConnection> = None;
        let mut result = Ok(());
        loop {
            let asked_at = Instant::now();
            let pause = match self.try_lead().await {
                Ok(Leadership::Leading(tenure)) => {
                    let epoch = tenure.epoch;
                    if let Some(following) = following.take() {
                        following.end().await;
                    }
                    self.known.send_replace((tenure, Some(self.id.clone())));
                    tracing::info!(%epoch, "this node leads");
                    result = self
                        .lead(&node, &leader_loop, tenure, asked_at, &shutdown)
                        .await;
                    leader_loop.take_seat(LeaderSeat::Vacant);
                    node.followers.dismiss();
                    self.be_certain(None);
                    tracing::info!(%epoch, "this node leads no more");
                    Duration::ZERO
                }
                Ok(Leadership::Following {
                    leader,
                    tenure,
                    remaining,
                }) => {
                    self.known.send_replace((tenure, leader.clone()));
                    self.keep_following(&node, &leader_loop, &mut following, leader, tenure)
                        .await;
                    let is_connected = following
                        .as_ref()
                        .is_some_and(LeaderConnection::is_going_on);
                    match is_connected {
                        true => remaining.clamp(Duration::from_millis(20), RENEW_EVERY),
                        false => remaining.clamp(Duration::from_millis(20), LOOK_EVERY),
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "who leads is not known");
                    RETRY
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.disconnected.notified() => tokio::time::sleep(LOOK_EVERY).await,
                _ = &mut ending => break,
            }
        }
        meeting.abort();
        door.abort();
        if let Some(following) = following.take() {
            following.end().await;
        }
        leader_loop.take_seat(LeaderSeat::Closed);
        result
    }

    /// After the shutdown signal: returns when no agent runs, and a leader knows what they told last.
    async fn end(self: Arc<Self>, node: Arc<Node>, mut shutdown: watch::Receiver<bool>) {
        // A sender that is gone will not say it any more: that is the signal, too.
        let _ = shutdown.wait_for(|stop| *stop).await;
        self.leaving.send_replace(true);
        if tokio::time::timeout(self.drain_grace, node.host.idle())
            .await
            .is_ok()
        {
            return;
        }
        node.host.stop_all();
        if tokio::time::timeout(LAST_WORDS, node.host.idle())
            .await
            .is_err()
        {
            tracing::warn!("no leader took notice of what ended last; it is looked after as lost");
        }
    }

    async fn keep_following(
        self: &Arc<Self>,
        node: &Arc<Node>,
        leader_loop: &Arc<LeaderLoop>,
        following: &mut Option<LeaderConnection>,
        leader: Option<NodeId>,
        tenure: Tenure,
    ) {
        let Some(leader) = leader.filter(|leader| *leader != self.id) else {
            return;
        };
        if let Some(known) = &*following
            && known.is_going_on()
            && (&known.leader, known.tenure) == (&leader, tenure)
        {
            return;
        }
        if let Some(other) = following.take() {
            other.end().await;
        }
        let (membership, node, leader_loop) = (self.clone(), node.clone(), leader_loop.clone());
        let whom = leader.clone();
        let task = tokio::spawn(async move {
            if let Err(why) = follow::follow(&membership, &node, &leader_loop, &whom, tenure).await
            {
                tracing::info!(leader = %whom, epoch = %tenure.epoch, %why, "not connected to the leader");
            }
            membership.disconnected.notify_one();
        });
        *following = Some(LeaderConnection {
            leader,
            tenure,
            task,
        });
    }

    /// Leads until somebody else does, or the shutdown signal. Errors: what was decided last could not be recorded.
    async fn lead(
        self: &Arc<Self>,
        node: &Arc<Node>,
        leader_loop: &Arc<LeaderLoop>,
        tenure: Tenure,
        taken_at: Instant,
        shutdown: &watch::Receiver<bool>,
    ) -> Result<(), ServiceError> {
        self.be_certain(Some(taken_at + LEASE));
        node.host.hear(taken_at);
        let deposed = watch::Sender::new(false);
        let renewing = tokio::spawn(self.clone().renew(node.clone(), tenure, deposed.clone()));
        let begun = self
            .begin(node, leader_loop, tenure, shutdown, deposed.subscribe())
            .await;
        let ended = match begun {
            Ok(Some(begun)) => until_over(begun, deposed.subscribe()).await,
            Ok(None) => Ok(()),
            Err(why) => {
                tracing::error!(%why, "this node cannot lead");
                tokio::time::sleep(RENEW_EVERY).await;
                Ok(())
            }
        };
        renewing.abort();
        if !*deposed.borrow() {
            let cluster = self.cluster.clone();
            let resigned = tokio::task::spawn_blocking(move || cluster.resign(tenure)).await;
            if let Ok(Err(error)) = resigned {
                tracing::warn!(%error, "the lease was not given back; it ends by itself");
            }
        }
        ended.map_err(ServiceError::Unwritten)
    }

    async fn renew(self: Arc<Self>, node: Arc<Node>, tenure: Tenure, deposed: watch::Sender<bool>) {
        let epoch = tenure.epoch;
        let mut due = tokio::time::Instant::now() + RENEW_EVERY;
        loop {
            tokio::time::sleep_until(due).await;
            let (cluster, asked_at) = (self.cluster.clone(), Instant::now());
            let renewed = tokio::task::spawn_blocking(move || cluster.renew(tenure, LEASE)).await;
            match renewed {
                Ok(Ok(true)) => {
                    self.be_certain(Some(asked_at + LEASE));
                    node.host.hear(asked_at);
                    due = tokio::time::Instant::from_std(asked_at) + RENEW_EVERY;
                }
                Ok(Ok(false)) => {
                    tracing::warn!(%epoch, "another node has come to lead");
                    deposed.send_replace(true);
                    return;
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the lease could not be renewed; retrying");
                    due = tokio::time::Instant::now() + RETRY;
                }
                Err(_) => due = tokio::time::Instant::now() + RETRY,
            }
        }
    }

    /// Reads what is open and begins to decide. `None`: somebody else leads already.
    async fn begin(
        &self,
        node: &Arc<Node>,
        leader_loop: &Arc<LeaderLoop>,
        tenure: Tenure,
        shutdown: &watch::Receiver<bool>,
        deposed: watch::Receiver<bool>,
    ) -> Result<Option<LoopHandle>, ServiceError> {
        loop {
            let (database, keys) = (self.database.clone(), self.keys.clone());
            let (cluster, own) = (self.cluster.clone(), self.id.clone());
            let (node, leader_loop, shutdown) =
                (node.clone(), leader_loop.clone(), shutdown.clone());
            let known = *node.published.committed.borrow();
            let begun = tokio::task::spawn_blocking(move || {
                let journal: Box<dyn Journal> =
                    Box::new(PostgresJournal::open(&database, keys, tenure, known)?);
                let seen = cluster.nodes().map_err(JournalError::from)?;
                let fresh = seen.into_iter().filter(|seen| seen.age < FRESH);
                let mut awaited: BTreeSet<NodeId> = fresh.map(|seen| seen.node.id).collect();
                awaited.insert(own.clone());
                let leading = LeadershipMode::Among {
                    node: own,
                    tenure,
                    silence: NODE_TERM + MARGIN,
                    awaited,
                };
                let begun = leader_loop.begin(&node, leading, journal, shutdown);
                begun.map_err(|(why, _)| why)
            });
            match begun.await {
                Ok(Ok(begun)) => return Ok(Some(begun)),
                Ok(Err(ServiceError::Journal(
                    JournalError::Deposed { .. } | JournalError::Overtaken { .. },
                ))) => return Ok(None),
                _ if *deposed.borrow() => return Ok(None),
                Ok(Err(ServiceError::Journal(error @ JournalError::Backend { .. }))) => {
                    tracing::warn!(%error, "what is open cannot be read yet");
                    tokio::time::sleep(RETRY).await;
                }
                Ok(Err(why)) => return Err(why),
                Err(_) => return Err(ServiceError::ShuttingDown),
            }
        }
    }
}

/// Until the loop ends by itself, or another node leads: then nothing more of it is done.
async fn until_over(
    begun: LoopHandle,
    mut deposed: watch::Receiver<bool>,
) -> Result<(), JournalError> {
    let (over, task) = (begun.over.clone(), begun.task.abort_handle());
    let mut ended = std::pin::pin!(end_of(begun));
    tokio::select! {
        (end, _) = &mut ended => match end {
            LoopEnd::Done => Ok(()),
            LoopEnd::ReadAnew(why) => {
                tracing::warn!(%why, "this node gives the lead back");
                Ok(())
            }
            LoopEnd::Unwritten(why) => Err(why),
        },
        () = follow::turns_true(&mut deposed) => {
            over.store(true, Ordering::Relaxed);
            task.abort();
            // What it could not write any more nobody was told of. Its thread may wait for the database for long: it
            // does nothing more when that answers.
            drop(tokio::time::timeout(DEPOSED_GRACE, ended).await);
            Ok(())
        }
    }
}

/// A connection to a leader.
struct LeaderConnection {
    leader: NodeId,
    tenure: Tenure,
    task: JoinHandle<()>,
}

impl LeaderConnection {
    fn is_going_on(&self) -> bool {
        !self.task.is_finished()
    }

    /// Nothing more comes of it when this returns.
    async fn end(self) {
        self.task.abort();
        // Whether it was aborted or had ended is the same.
        let _ = self.task.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use tokio::sync::{mpsc, oneshot};

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_was_deposed_does_not_wait_for_a_journal_that_does_not_answer() {
        let (inputs, _taken) = mpsc::channel(1);
        let (batches, _written) = mpsc::channel(1);
        let (_never, last_commit) = oneshot::channel();
        let over = Arc::new(AtomicBool::new(false));
        let begun = LoopHandle {
            inputs,
            batches: batches.downgrade(),
            sealing_due: Arc::default(),
            over: over.clone(),
            task: tokio::spawn(std::future::pending()),
            last_commit,
        };
        let (depose, deposed) = watch::channel(false);
        let ended = tokio::spawn(until_over(begun, deposed));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!ended.is_finished() && !over.load(Ordering::Relaxed));
        depose.send(true).expect("it listens");
        let ended = tokio::time::timeout(DEPOSED_GRACE * 2, ended).await;
        let ended = ended.expect("it follows soon").expect("no panic");
        assert!(ended.is_ok() && over.load(Ordering::Relaxed));
    }
}
