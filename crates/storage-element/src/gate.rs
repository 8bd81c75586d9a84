//! The gate of a pool: movers pass it one by one, up to the pool's limit, and give their slot back when
//! they end, however they end. Who goes next is decided by `decide::admission`.

use crate::meter::Meter;
use penstock_decide::admission::{Admission, AdmissionReason, MoverQueue, QueueLimits, Ticket};
use penstock_model::VoName;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The gate of one pool.
pub(crate) struct Gate {
    state: Mutex<State>,
    pub(crate) meter: Meter,
}

struct State {
    queue: MoverQueue,
    waiters: HashMap<Ticket, oneshot::Sender<()>>,
    next_ticket: u64,
    /// A moving average of how long movers ran.
    mean_duration: Duration,
}

/// What a mover meets at the gate.
pub(crate) enum Arrival {
    /// A slot is its own.
    Started(Permit),
    /// It must wait.
    Waiting(Waiting),
    /// It must go away.
    Refused {
        retry_after_seconds: u64,
        reason: AdmissionReason,
    },
}

/// A slot. Dropping it gives the slot to the next one.
pub(crate) struct Permit {
    gate: Arc<Gate>,
    started: Instant,
}

/// A place in the queue. Dropping it gives the place up.
pub(crate) struct Waiting {
    gate: Arc<Gate>,
    ticket: Ticket,
    turn: oneshot::Receiver<()>,
    claimed: bool,
}

/// How busy a gate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub active: u32,
    pub queued: u32,
    pub limits: QueueLimits,
    pub full: bool,
}

impl Gate {
    pub(crate) fn new(limits: QueueLimits) -> Gate {
        Gate {
            state: Mutex::new(State {
                queue: MoverQueue::new(limits),
                waiters: HashMap::new(),
                next_ticket: 0,
                mean_duration: Duration::from_secs(1),
            }),
            meter: Meter::new(),
        }
    }

    pub(crate) fn arrive(self: &Arc<Self>, vo: Option<&VoName>) -> Arrival {
        let mut state = self.lock();
        let ticket = Ticket(state.next_ticket);
        state.next_ticket += 1;
        let mean = state.mean_duration;
        let decision = state.queue.arrive(ticket, vo, mean);
        match decision.choice {
            Admission::Start => {
                drop(state);
                Arrival::Started(self.permit())
            }
            Admission::Wait => {
                let (sender, turn) = oneshot::channel();
                state.waiters.insert(ticket, sender);
                drop(state);
                Arrival::Waiting(Waiting {
                    gate: Arc::clone(self),
                    ticket,
                    turn,
                    claimed: false,
                })
            }
            Admission::Refuse {
                retry_after_seconds,
            } => Arrival::Refused {
                retry_after_seconds,
                reason: decision
                    .because
                    .into_iter()
                    .next()
                    .expect("a refusal has a reason"),
            },
        }
    }

    pub(crate) fn load(&self) -> Load {
        let state = self.lock();
        Load {
            active: state.queue.active(),
            queued: state.queue.queued(),
            limits: state.queue.limits(),
            full: state.queue.is_full(),
        }
    }

    pub(crate) fn set_limits(&self, limits: QueueLimits) {
        let mut state = self.lock();
        let started = state.queue.set_limits(limits);
        state.wake(started);
    }

    fn permit(self: &Arc<Self>) -> Permit {
        Permit {
            gate: Arc::clone(self),
            started: Instant::now(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake(&mut self, started: Vec<Ticket>) {
        for ticket in started {
            if let Some(waiter) = self.waiters.remove(&ticket) {
                // One that has gone meanwhile leaves again when its `Waiting` is dropped.
                let _ = waiter.send(());
            }
        }
    }

    fn leave(&mut self) {
        let started = self.queue.leave();
        self.wake(started);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let ran = self.started.elapsed();
        let mut state = self.gate.lock();
        state.mean_duration = (state.mean_duration * 7 + ran) / 8;
        state.leave();
    }
}

impl Waiting {
    /// Waits for the slot. May be dropped and called again.
    pub(crate) async fn started(&mut self) -> Permit {
        // The sender is dropped only after it was used, because the gate outlives its queue.
        let _ = (&mut self.turn).await;
        self.claimed = true;
        self.gate.permit()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.claimed {
            return;
        }
        let mut state = self.gate.lock();
        state.waiters.remove(&self.ticket);
        if !state.queue.withdraw(self.ticket) {
            // Its turn had come and nobody was there to take it.
            state.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(movers_max: u32, queue_max: u32) -> Arc<Gate> {
        Arc::new(Gate::new(QueueLimits {
            movers_max,
            queue_max,
        }))
    }

    fn start(gate: &Arc<Gate>) -> Permit {
        match gate.arrive(None) {
            Arrival::Started(permit) => permit,
            Arrival::Waiting(_) | Arrival::Refused { .. } => panic!("a slot is free"),
        }
    }

    fn wait(gate: &Arc<Gate>) -> Waiting {
        match gate.arrive(None) {
            Arrival::Waiting(waiting) => waiting,
            Arrival::Started(_) | Arrival::Refused { .. } => panic!("the slots are taken"),
        }
    }

    #[tokio::test]
    async fn a_dropped_permit_starts_the_next_in_the_queue() {
        let gate = gate(1, 2);
        let first = start(&gate);
        let mut second = wait(&gate);
        drop(first);
        let permit = second.started().await;
        drop(second);
        assert_eq!(gate.load().active, 1);
        drop(permit);
        assert_eq!((gate.load().active, gate.load().queued), (0, 0));
    }

    #[test]
    fn one_that_leaves_the_moment_its_turn_comes_frees_the_slot() {
        let gate = gate(1, 2);
        let first = start(&gate);
        let second = wait(&gate);
        let third = wait(&gate);
        drop(third);
        drop(first);
        assert_eq!((gate.load().active, gate.load().queued), (1, 0));
        drop(second);
        assert_eq!((gate.load().active, gate.load().queued), (0, 0));
    }

    #[test]
    fn a_full_queue_refuses() {
        let gate = gate(1, 0);
        let _first = start(&gate);
        assert!(gate.load().full);
        assert!(matches!(gate.arrive(None), Arrival::Refused { .. }));
    }
}
