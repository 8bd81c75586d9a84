//! The gate of a pool: movers pass it one by one, up to the pool's limit, and give their slot back when
//! they end, however they end. Who goes next, and who ends for somebody else, is decided by `decide::admission`.

use crate::meter::Meter;
use crate::traffic::Traffic;
use parking_lot::{Mutex, MutexGuard};
use penstock_decide::admission::{
    Admission, AdmissionReason, MoverNumber, MoverQueue, PreemptionReason, QueueLimits, Requester,
};
use penstock_protocol::exposition::Counter;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// How often somebody who waits looks whether a slow mover should end for them. Each mover's pace is its mean over at
/// least so long, so it is the second look that can end one.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The gate of one pool.
pub(crate) struct Gate {
    state: Mutex<GateState>,
    look_interval: Duration,
    pub(crate) meter: Meter,
    /// What passes, by work and VO.
    pub(crate) traffic: Traffic,
    /// Movers that got a slot.
    pub(crate) started: Counter,
    /// Microseconds for which movers that have ended waited until the disk had read.
    pub(crate) read_wait_us: Counter,
    /// Movers that were ended for others.
    pub(crate) preempted: Counter,
}

struct GateState {
    queue: MoverQueue,
    running: BTreeMap<MoverNumber, Arc<Progress>>,
    waiters: HashMap<MoverNumber, Waiter>,
    next_mover: u64,
    /// A moving average of how long movers ran.
    mean_duration: Duration,
    /// How much each running mover had moved at a look.
    last_look: Option<(Instant, BTreeMap<MoverNumber, u64>)>,
}

struct Waiter {
    turn: oneshot::Sender<WaitOutcome>,
    progress: Arc<Progress>,
}

/// How waiting ends.
enum WaitOutcome {
    /// With a slot.
    Started,
    /// Without one: the queue is full, and somebody who waits less often has the place.
    Displaced { retry_after_seconds: u64 },
}

/// How far a mover is, as its gate sees it, and the word that it must end.
pub(crate) struct Progress {
    moved: AtomicU64,
    /// Its last byte has passed: what remains is brief, and could not be undone by ending it.
    is_past_last_byte: AtomicBool,
    preempted: watch::Sender<Option<PreemptionReason>>,
}

/// What a mover meets at the gate.
pub(crate) enum Arrival {
    /// A slot is its own.
    Started(Permit),
    /// It must wait.
    Waiting(QueuePlace),
    /// It must go away.
    Refused(SlotRefusal),
}

/// Why a mover gets no slot, and when to come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotRefusal {
    pub retry_after_seconds: u64,
    pub reason: AdmissionReason,
}

/// A slot. Dropping it gives the slot to the next one.
pub(crate) struct Permit {
    gate: Arc<Gate>,
    mover: MoverNumber,
    started: Instant,
}

/// A place in the queue. Dropping it gives the place up.
pub(crate) struct QueuePlace {
    gate: Arc<Gate>,
    mover: MoverNumber,
    requester: Requester,
    turn: oneshot::Receiver<WaitOutcome>,
    next_look: tokio::time::Instant,
    reason: AdmissionReason,
    /// The mover that was told to end for this one.
    ending: Option<MoverNumber>,
    is_over: bool,
}

/// How busy a gate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub active: u32,
    pub queued: u32,
    pub limits: QueueLimits,
    pub full: bool,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            moved: AtomicU64::new(0),
            is_past_last_byte: AtomicBool::new(false),
            preempted: watch::Sender::new(None),
        }
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// From now on the mover ends for nobody.
    pub(crate) fn pass_last_byte(&self) {
        self.is_past_last_byte.store(true, Ordering::Relaxed);
    }

    /// Resolves when the mover must end for somebody else; never after its last byte. For use beside its work; loses
    /// nothing when dropped.
    pub(crate) async fn preempted(&self) -> PreemptionReason {
        let mut told = self.preempted.subscribe();
        let reason = told.wait_for(Option::is_some).await;
        let reason = reason.expect("the sender is borrowed").clone();
        if self.is_past_last_byte.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        reason.expect("waited for it")
    }

    fn is_endable(&self) -> bool {
        !self.is_past_last_byte.load(Ordering::Relaxed) && self.preempted.borrow().is_none()
    }
}

impl Gate {
    pub(crate) fn new(limits: QueueLimits) -> Gate {
        Gate {
            state: Mutex::new(GateState {
                queue: MoverQueue::new(limits),
                running: BTreeMap::new(),
                waiters: HashMap::new(),
                next_mover: 0,
                mean_duration: Duration::from_secs(1),
                last_look: None,
            }),
            look_interval: LOOK_INTERVAL,
            meter: Meter::new(),
            traffic: Traffic::default(),
            started: Counter::default(),
            read_wait_us: Counter::default(),
            preempted: Counter::default(),
        }
    }

    pub(crate) fn arrive(
        self: &Arc<Self>,
        requester: &Requester,
        progress: &Arc<Progress>,
    ) -> Arrival {
        let mut state = self.lock();
        let mover = MoverNumber(state.next_mover);
        state.next_mover += 1;
        let mean = state.mean_duration;
        let decision = state.queue.arrive(mover, requester, mean);
        let reason = decision.because.into_iter().next();
        let reason = reason.expect("an admission has a reason");
        match decision.choice {
            Admission::Start => {
                state.running.insert(mover, Arc::clone(progress));
                drop(state);
                Arrival::Started(self.permit(mover))
            }
            Admission::Wait { displaced } => {
                let (sender, turn) = oneshot::channel();
                let waiter = Waiter {
                    turn: sender,
                    progress: Arc::clone(progress),
                };
                state.waiters.insert(mover, waiter);
                let displaced = displaced.and_then(|other| state.waiters.remove(&other));
                if let Some(waiter) = displaced {
                    let retry_after_seconds = mean.as_secs().clamp(1, 60);
                    // One that has gone meanwhile needs no word.
                    let _ = waiter.turn.send(WaitOutcome::Displaced {
                        retry_after_seconds,
                    });
                }
                drop(state);
                Arrival::Waiting(QueuePlace {
                    gate: Arc::clone(self),
                    mover,
                    requester: requester.clone(),
                    turn,
                    next_look: tokio::time::Instant::now() + self.look_interval,
                    reason,
                    ending: None,
                    is_over: false,
                })
            }
            Admission::Refuse {
                retry_after_seconds,
            } => Arrival::Refused(SlotRefusal {
                retry_after_seconds,
                reason,
            }),
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

    /// A mover of theirs would be refused now.
    pub(crate) fn refuses(&self, requester: &Requester) -> bool {
        self.lock().queue.refuses(requester)
    }

    pub(crate) fn set_limits(&self, limits: QueueLimits) {
        let mut state = self.lock();
        let started = state.queue.set_limits(limits);
        state.wake(started);
    }

    fn permit(self: &Arc<Self>, mover: MoverNumber) -> Permit {
        self.started.increment();
        Permit {
            gate: Arc::clone(self),
            mover,
            started: Instant::now(),
        }
    }

    /// Counts and logs a mover that ends for another.
    pub(crate) fn note_preempted(&self, reason: &PreemptionReason) {
        tracing::info!(%reason, "a mover is ended for another");
        self.preempted.increment();
    }

    /// Somebody has waited for a while: tells a slow mover to end for them, if that is what should be done. `ending` was
    /// told so before; while it runs, no other is.
    fn look(&self, waiting: &Requester, ending: Option<MoverNumber>) -> Option<MoverNumber> {
        let mut state = self.lock();
        if let Some(ending) = ending
            && state.running.contains_key(&ending)
        {
            return Some(ending);
        }
        if state.queue.has_mover(waiting) {
            return None;
        }
        let now = Instant::now();
        let paces = state.paces(now, self.look_interval)?;
        let decision = state.queue.choose_preemption(waiting, &paces)?;
        state.note_look(now);
        let reason = decision.because.into_iter().next();
        let reason = reason.expect("a preemption has a reason");
        state.queue.mark_ending(decision.choice);
        let progress = state.running.get(&decision.choice)?;
        progress.preempted.send_replace(Some(reason));
        Some(decision.choice)
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock()
    }
}

impl GateState {
    fn wake(&mut self, started: Vec<MoverNumber>) {
        for mover in started {
            if let Some(waiter) = self.waiters.remove(&mover) {
                self.running.insert(mover, waiter.progress);
                // One that has gone meanwhile leaves again when its `QueuePlace` is dropped.
                let _ = waiter.turn.send(WaitOutcome::Started);
            }
        }
    }

    fn leave(&mut self, mover: MoverNumber) {
        self.running.remove(&mover);
        let started = self.queue.leave(mover);
        self.wake(started);
    }

    /// Bytes per second of the movers that ran at the last look and can be ended. `None`: the last look was a moment ago,
    /// or too long ago to mean anything; then this is one.
    fn paces(&mut self, now: Instant, interval: Duration) -> Option<BTreeMap<MoverNumber, u64>> {
        let age = self.last_look.as_ref().map(|(at, _)| now - *at);
        let Some(age) = age.filter(|age| *age < interval * 3) else {
            self.note_look(now);
            return None;
        };
        // Looks of several who wait fall between those of each of them.
        if age < interval * 9 / 10 {
            return None;
        }
        let (_, before) = self.last_look.as_ref()?;
        let pace = |(mover, progress): (&MoverNumber, &Arc<Progress>)| {
            let moved = progress.moved().saturating_sub(*before.get(mover)?);
            let millis = u64::try_from(age.as_millis()).unwrap_or(u64::MAX).max(1);
            let pace = moved.saturating_mul(1000) / millis;
            progress.is_endable().then_some((*mover, pace))
        };
        Some(self.running.iter().filter_map(pace).collect())
    }

    fn note_look(&mut self, now: Instant) {
        let moved = |(mover, progress): (&MoverNumber, &Arc<Progress>)| (*mover, progress.moved());
        self.last_look = Some((now, self.running.iter().map(moved).collect()));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let ran = self.started.elapsed();
        let mut state = self.gate.lock();
        state.mean_duration = (state.mean_duration * 7 + ran) / 8;
        state.leave(self.mover);
    }
}

impl QueuePlace {
    /// Waits for the slot. May be dropped and called again. Errors: somebody who waits less often has the place in the
    /// queue.
    pub(crate) async fn started(&mut self) -> Result<Permit, SlotRefusal> {
        let turn = loop {
            tokio::select! {
                biased;
                turn = &mut self.turn => break turn,
                () = tokio::time::sleep_until(self.next_look) => {
                    self.next_look = tokio::time::Instant::now() + self.gate.look_interval;
                    self.ending = self.gate.look(&self.requester, self.ending);
                }
            }
        };
        self.is_over = true;
        match turn {
            Ok(WaitOutcome::Displaced {
                retry_after_seconds,
            }) => {
                let limits = self.gate.load().limits;
                Err(SlotRefusal {
                    retry_after_seconds,
                    reason: AdmissionReason::QueueFull {
                        queued: limits.queue_max,
                        queue_max: limits.queue_max,
                    },
                })
            }
            // The sender is dropped only after it was used, because the gate outlives its queue.
            Ok(WaitOutcome::Started) | Err(_) => Ok(self.gate.permit(self.mover)),
        }
    }

    /// Why it had to wait when it came.
    pub(crate) fn reason(&self) -> &AdmissionReason {
        &self.reason
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.gate.lock();
        if state.waiters.remove(&self.mover).is_some() {
            state.queue.withdraw(self.mover);
        } else {
            // Its turn had come and nobody was there to take it, or its place was taken.
            state.leave(self.mover);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::UserName;
    use std::net::Ipv4Addr;

    fn gate(movers_max: u32, queue_max: u32) -> Arc<Gate> {
        Arc::new(Gate {
            look_interval: Duration::from_millis(20),
            ..Gate::new(QueueLimits {
                movers_max,
                queue_max,
                ..QueueLimits::default()
            })
        })
    }

    fn of(user: &str) -> Requester {
        Requester {
            vo: None,
            user: Some(UserName::new(user)),
            address: Ipv4Addr::LOCALHOST.into(),
        }
    }

    fn arrive(gate: &Arc<Gate>, user: &str) -> (Arrival, Arc<Progress>) {
        let progress = Arc::new(Progress::new());
        (gate.arrive(&of(user), &progress), progress)
    }

    fn start(gate: &Arc<Gate>) -> Permit {
        match arrive(gate, "alice").0 {
            Arrival::Started(permit) => permit,
            Arrival::Waiting(_) | Arrival::Refused(_) => panic!("a slot is free"),
        }
    }

    fn wait(gate: &Arc<Gate>, user: &str) -> QueuePlace {
        match arrive(gate, user).0 {
            Arrival::Waiting(waiting) => waiting,
            Arrival::Started(_) | Arrival::Refused(_) => panic!("the slots are taken"),
        }
    }

    #[tokio::test]
    async fn a_dropped_permit_starts_the_next_in_the_queue() {
        let gate = gate(1, 2);
        let first = start(&gate);
        let mut second = wait(&gate, "alice");
        drop(first);
        let permit = second.started().await.expect("its turn");
        drop(second);
        assert_eq!(gate.load().active, 1);
        drop(permit);
        assert_eq!((gate.load().active, gate.load().queued), (0, 0));
        assert_eq!(gate.started.read(), 2);
    }

    #[tokio::test]
    async fn one_that_leaves_the_moment_its_turn_comes_frees_the_slot() {
        let gate = gate(1, 2);
        let first = start(&gate);
        let second = wait(&gate, "alice");
        let third = wait(&gate, "alice");
        drop(third);
        drop(first);
        assert_eq!((gate.load().active, gate.load().queued), (1, 0));
        drop(second);
        assert_eq!((gate.load().active, gate.load().queued), (0, 0));
    }

    #[tokio::test]
    async fn a_full_queue_refuses() {
        let gate = gate(1, 0);
        let _first = start(&gate);
        assert!(gate.load().full && gate.refuses(&of("alice")));
        assert!(matches!(arrive(&gate, "alice").0, Arrival::Refused(_)));
    }

    #[tokio::test]
    async fn who_waits_most_often_is_told_when_the_place_is_somebody_elses() {
        let gate = gate(1, 2);
        let _first = start(&gate);
        let (_second, mut third) = (wait(&gate, "alice"), wait(&gate, "alice"));
        let fourth = wait(&gate, "bob");
        let refusal = third.started().await.err().expect("displaced");
        assert_eq!(
            refusal.reason.to_string(),
            "2 of 2 movers wait; try again later"
        );
        drop(third);
        assert_eq!((gate.load().active, gate.load().queued), (1, 2));
        drop(fourth);
        assert_eq!(gate.load().queued, 1);
    }

    #[tokio::test]
    async fn a_slow_mover_of_a_crowd_ends_for_somebody_who_has_none() {
        let gate = gate(2, 9);
        let (first, fast) = arrive(&gate, "alice");
        let (second, slow) = arrive(&gate, "alice");
        let mut other = wait(&gate, "bob");
        fast.add(1 << 40);
        let moving = async {
            loop {
                fast.add(1 << 30);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let ended = async {
            slow.preempted().await;
            drop(second);
        };
        let permit = tokio::select! {
            (permit, ()) = async { tokio::join!(other.started(), ended) } => permit,
            () = moving => unreachable!("it goes on for ever"),
            () = tokio::time::sleep(Duration::from_secs(20)) => panic!("nobody ended"),
        };
        assert!(permit.is_ok() && fast.preempted.borrow().is_none());
        assert_eq!(gate.load().active, 2);
        drop(first);
    }

    #[tokio::test]
    async fn a_mover_past_its_last_byte_ends_for_nobody() {
        let gate = gate(2, 9);
        let (_first, one) = arrive(&gate, "alice");
        let (_second, other) = arrive(&gate, "alice");
        one.pass_last_byte();
        other.pass_last_byte();
        let mut waiting = wait(&gate, "bob");
        let long = gate.look_interval * 6;
        assert!(tokio::time::timeout(long, waiting.started()).await.is_err());
        assert!(one.preempted.borrow().is_none() && other.preempted.borrow().is_none());
    }

    #[tokio::test]
    async fn while_one_is_told_to_end_for_a_waiter_no_other_is() {
        let gate = gate(4, 9);
        let running: Vec<_> = (0..3).map(|_| arrive(&gate, "alice")).collect();
        let _last = arrive(&gate, "carol");
        let mut waiting = wait(&gate, "bob");
        let long = gate.look_interval * 12;
        assert!(tokio::time::timeout(long, waiting.started()).await.is_err());
        let told = running
            .iter()
            .filter(|(_, progress)| !progress.is_endable());
        assert_eq!(told.count(), 1);
    }
}
