//! The loop of this process while it leads: how it begins, what is known of it outside, and how it ends.

use crate::error::ServiceError;
use crate::leader_requests::{ForwardedCommand, LeaderSeat};
use crate::node::Node;
use crate::restore::continue_from;
use crate::run::{self, Batch, LoopEnd, LoopHandle};
use parking_lot::{Mutex, MutexGuard};
use penstock_engine::{EngineConfig, LeadershipMode};
use penstock_journal::Journal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The wait before what is stored is read anew.
const BEGIN_ANEW_PAUSE: Duration = Duration::from_millis(500);

/// Who leads, and what it takes to do so.
pub(crate) struct LeaderLoop {
    seat: watch::Sender<LeaderSeat>,
    drain_grace: Duration,
    state: Mutex<LeaderLoopState>,
}

struct LeaderLoopState {
    config: EngineConfig,
    batches: Option<mpsc::WeakSender<Batch>>,
    sealing_due: Option<Arc<AtomicBool>>,
}

impl LeaderLoop {
    pub(crate) fn new(config: EngineConfig, drain_grace: Duration) -> LeaderLoop {
        LeaderLoop {
            seat: watch::Sender::default(),
            drain_grace,
            state: Mutex::new(LeaderLoopState {
                config,
                batches: None,
                sealing_due: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, LeaderLoopState> {
        self.state.lock()
    }

    /// Who leads.
    pub(crate) fn seat(&self) -> watch::Receiver<LeaderSeat> {
        self.seat.subscribe()
    }

    /// Somebody else leads, or nobody.
    pub(crate) fn take_seat(&self, seat: LeaderSeat) {
        self.seat.send_replace(seat);
    }

    /// The connection whose seat this is has ended. Whoever has come since stays.
    pub(crate) fn leave_seat(&self, of: &mpsc::Sender<ForwardedCommand>) {
        self.seat.send_if_modified(|seat| match seat {
            LeaderSeat::There(commands) if commands.same_channel(of) => {
                *seat = LeaderSeat::Vacant;
                true
            }
            _ => false,
        });
    }

    /// Other limits and retry rules, from the next leadership of this process on.
    pub(crate) fn configure(&self, config: EngineConfig) {
        self.state().config = config;
    }

    /// What the engine is configured with here.
    pub(crate) fn config(&self) -> EngineConfig {
        self.state().config.clone()
    }

    /// Has the journal's secrets sealed anew, while this process leads.
    pub(crate) fn seal_anew(&self) {
        if let Some(due) = &self.state().sealing_due {
            due.store(true, Ordering::Relaxed);
        }
    }

    /// The queue of the journal's thread, while there is one.
    pub(crate) fn batches(&self) -> Option<mpsc::Sender<Batch>> {
        self.state().batches.as_ref()?.upgrade()
    }

    /// Reads what is open, and begins to decide. Errors: with the journal, for the next try.
    pub(crate) fn begin(
        &self,
        node: &Arc<Node>,
        leading: LeadershipMode,
        mut journal: Box<dyn Journal>,
        shutdown: watch::Receiver<bool>,
    ) -> Result<LoopHandle, (ServiceError, Option<Box<dyn Journal>>)> {
        compare_clock(node);
        let now = node.now();
        let continued = continue_from(&mut *journal, self.config(), leading.clone(), now);
        let (engine, first) = match continued {
            Ok(continued) => continued,
            Err(why) => return Err((why.into(), Some(journal))),
        };
        let begun = run::start(run::Parts {
            engine,
            first,
            leading,
            slots: self.config().slots.agents,
            journal,
            node: node.clone(),
            shutdown,
            drain_grace: self.drain_grace,
        });
        let begun = begun.map_err(|why| (why.into(), None))?;
        let mut state = self.state();
        state.batches = Some(begun.batches.clone());
        state.sealing_due = Some(begun.sealing_due.clone());
        drop(state);
        self.take_seat(LeaderSeat::Here(begun.inputs.clone()));
        Ok(begun)
    }

    /// The one process of a service leads until its end. What is returned ends with it.
    pub(crate) fn alone(
        self: &Arc<Self>,
        node: &Arc<Node>,
        journal: Box<dyn Journal>,
        shutdown: watch::Receiver<bool>,
    ) -> Result<impl Future<Output = Result<(), ServiceError>> + use<>, ServiceError> {
        let begun = self.begin(node, LeadershipMode::Alone, journal, shutdown.clone());
        let mut begun = begun.map_err(|(why, _)| why)?;
        let (leader_loop, node) = (self.clone(), node.clone());
        Ok(async move {
            let ended = loop {
                match end_of(begun).await {
                    (LoopEnd::Done, _) => break Ok(()),
                    (LoopEnd::Unwritten(why), _) => break Err(ServiceError::Unwritten(why)),
                    (LoopEnd::ReadAnew(why), None) => break Err(ServiceError::Unwritten(why)),
                    (LoopEnd::ReadAnew(why), Some(journal)) => {
                        if *shutdown.borrow() {
                            break Err(ServiceError::Unwritten(why));
                        }
                        match leader_loop.begin_anew(&node, journal, &shutdown).await {
                            Ok(anew) => begun = anew,
                            Err(why) => break Err(why),
                        }
                    }
                }
            };
            leader_loop.take_seat(LeaderSeat::Closed);
            ended
        })
    }

    /// As after a restart, but that the process stays.
    async fn begin_anew(
        self: &Arc<Self>,
        node: &Arc<Node>,
        journal: Box<dyn Journal>,
        shutdown: &watch::Receiver<bool>,
    ) -> Result<LoopHandle, ServiceError> {
        self.take_seat(LeaderSeat::Vacant);
        node.host.drop_all().await;
        let mut kept = Some(journal);
        loop {
            // A record that is refused again and again must not take the whole machine.
            tokio::time::sleep(BEGIN_ANEW_PAUSE).await;
            let Some(journal) = kept.take() else {
                return Err(ServiceError::ShuttingDown);
            };
            let (leader_loop, node, stop) = (self.clone(), node.clone(), shutdown.clone());
            let begun = move || leader_loop.begin(&node, LeadershipMode::Alone, journal, stop);
            match tokio::task::spawn_blocking(begun).await {
                Ok(Ok(begun)) => return Ok(begun),
                Ok(Err((why, _))) if *shutdown.borrow() => return Err(why),
                Ok(Err((why, journal))) => {
                    tracing::error!(%why, "open transfers cannot be read; retrying");
                    kept = journal;
                }
                Err(_) => return Err(ServiceError::ShuttingDown),
            }
        }
    }
}

/// Lets the clock be compared with what was recorded last.
fn compare_clock(node: &Node) {
    let reader = &node.agents.reader;
    let newest = reader
        .last_sequence()
        .and_then(|last| reader.entries_after(last.saturating_sub(1), 1));
    match newest.as_deref() {
        Ok([newest, ..]) => node.agents.tokens.clock().compare_with_record(newest.at),
        Ok([]) => {}
        Err(why) => tracing::debug!(%why, "the newest record cannot be read"),
    }
}

/// Waits until a loop has ended, and its last record is durable. Gives back the journal, unless its thread panicked.
pub(crate) async fn end_of(ending: LoopHandle) -> (LoopEnd, Option<Box<dyn Journal>>) {
    // Whoever asks meanwhile gets no answer, rather than one that waits for ever.
    let LoopHandle {
        task, last_commit, ..
    } = ending;
    if let Err(error) = task.await
        && !error.is_cancelled()
    {
        tracing::error!(%error, "the engine's task ended unexpectedly");
    }
    match last_commit.await {
        Ok((end, journal)) => (end, Some(journal)),
        // A thread that panicked was told of.
        Err(_) => (LoopEnd::Done, None),
    }
}
