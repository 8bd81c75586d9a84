//! The loop of this process while it leads: how it begins, what is known of it outside, and how it ends.

use super::Node;
use super::desk::{Question, Seat};
use crate::engine::{EngineConfig, Leading, continue_from};
use crate::run::{self, Batch, Loop};
use crate::service::ServiceError;
use penstock_persistence::journal::{Journal, JournalError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Who leads, and what it takes to do so.
pub(crate) struct Lead {
    seat: watch::Sender<Seat>,
    drain_grace: Duration,
    state: Mutex<State>,
}

struct State {
    config: EngineConfig,
    batches: Option<mpsc::WeakSender<Batch>>,
    sealing_due: Option<Arc<AtomicBool>>,
}

impl Lead {
    pub(crate) fn new(config: EngineConfig, drain_grace: Duration) -> Lead {
        Lead {
            seat: watch::Sender::default(),
            drain_grace,
            state: Mutex::new(State {
                config,
                batches: None,
                sealing_due: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who leads.
    pub(crate) fn seat(&self) -> watch::Receiver<Seat> {
        self.seat.subscribe()
    }

    /// Somebody else leads, or nobody.
    pub(crate) fn take_seat(&self, seat: Seat) {
        self.seat.send_replace(seat);
    }

    /// The connection whose seat this is has ended. Whoever has come since stays.
    pub(crate) fn leave_seat(&self, of: &mpsc::Sender<Question>) {
        self.seat.send_if_modified(|seat| match seat {
            Seat::There(questions) if questions.same_channel(of) => {
                *seat = Seat::Vacant;
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

    /// Reads what is open, and begins to decide.
    pub(crate) fn begin(
        &self,
        node: &Arc<Node>,
        leading: Leading,
        mut journal: Box<dyn Journal>,
        shutdown: watch::Receiver<bool>,
    ) -> Result<Loop, ServiceError> {
        let (engine, first) = continue_from(
            &mut *journal,
            self.config(),
            leading.clone(),
            node.clock.now(),
        )?;
        let begun = run::start(run::Parts {
            engine,
            first,
            leading,
            slots: self.config().slots.agents,
            journal,
            node: node.clone(),
            shutdown,
            drain_grace: self.drain_grace,
        })?;
        let mut state = self.state();
        state.batches = Some(begun.batches.clone());
        state.sealing_due = Some(begun.sealing_due.clone());
        drop(state);
        self.take_seat(Seat::Here(begun.inputs.clone()));
        Ok(begun)
    }

    /// The one process of a service leads until its end. What is returned ends with it.
    pub(crate) fn alone(
        self: &Arc<Self>,
        node: &Arc<Node>,
        journal: Box<dyn Journal>,
        shutdown: watch::Receiver<bool>,
    ) -> Result<impl Future<Output = Result<(), ServiceError>> + use<>, ServiceError> {
        let begun = self.begin(node, Leading::Alone, journal, shutdown)?;
        let lead = self.clone();
        Ok(async move {
            let ended = end_of(begun).await;
            lead.take_seat(Seat::Closed);
            ended.map_err(ServiceError::Unwritten)
        })
    }
}

/// Waits until a loop has ended, and its last record is durable. Errors: the journal could not be written.
pub(crate) async fn end_of(ending: Loop) -> Result<(), JournalError> {
    // Whoever asks meanwhile gets no answer, rather than one that waits for ever.
    let Loop {
        task, last_commit, ..
    } = ending;
    if let Err(error) = task.await
        && !error.is_cancelled()
    {
        tracing::error!(%error, "the engine's task ended unexpectedly");
    }
    // A thread that panicked was told of.
    last_commit.await.unwrap_or(Ok(()))
}
