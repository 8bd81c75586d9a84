//! One file on its way in or out: holds its slot, keeps its stage clocks, is visible while it runs and
//! leaves a record when it ends, however it ends.

use crate::clock::microseconds;
use crate::gate::{Arrival, Permit, Progress, QueuePlace, SlotRefusal};
use crate::meter::Direction;
use crate::metrics::{EndedMovers, StorageMetrics};
use crate::pool::Pool;
use crate::recorder::Recorder;
use crate::traffic::{MoverEnd, VoTraffic, Work};
use parking_lot::Mutex;
use penstock_clock::wall_clock;
use penstock_decide::admission::{AdmissionReason, PreemptionReason, Requester};
use penstock_model::{
    Bytes, NamespacePath, PoolName, StageClocks, TcpSummary, Timestamp, UserName, VoName,
};
use penstock_persistence::namespace::{MoverKind, MoverOutcome, MoverRecord};
use penstock_protocol::exposition::Counter;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// All movers that run or wait.
#[derive(Default)]
pub(crate) struct LiveMovers {
    next: AtomicU64,
    movers: Mutex<BTreeMap<u64, Arc<Facts>>>,
    ended: Arc<EndedMovers>,
    refused: Arc<Counter>,
}

/// What is known of a mover from the beginning, and its counters.
struct Facts {
    kind: MoverKind,
    path: NamespacePath,
    peer: String,
    copy: Option<String>,
    challenge: Option<String>,
    file_size: Option<Bytes>,
    user: Option<UserName>,
    vo: Option<VoName>,
    pool: Arc<Pool>,
    traffic: Arc<VoTraffic>,
    since: Timestamp,
    progress: Arc<Progress>,
    running: AtomicBool,
    remote: OnceLock<SocketAddr>,
}

impl Facts {
    fn work(&self) -> Work {
        Work::of(self.kind, self.copy.is_some())
    }

    fn count(&self, bytes: u64) {
        self.progress.add(bytes);
        self.traffic.moved(self.work(), bytes);
        let direction = match self.kind {
            MoverKind::Put | MoverKind::Pull | MoverKind::Copy => Direction::In,
            MoverKind::Get | MoverKind::Push => Direction::Out,
        };
        self.pool.gate.meter.add(direction, bytes);
    }
}

/// A mover as others may watch it.
#[derive(Clone)]
pub(crate) struct MoverHandle(Arc<Facts>);

impl MoverHandle {
    /// It has its slot.
    pub(crate) fn is_running(&self) -> bool {
        self.0.running.load(Ordering::Relaxed)
    }

    /// Counts bytes of file data that passed.
    pub(crate) fn count(&self, bytes: u64) {
        self.0.count(bytes);
    }

    /// Bytes that passed so far.
    pub(crate) fn moved(&self) -> Bytes {
        Bytes(self.0.progress.moved())
    }

    /// Resolves when the mover must end for somebody else, which it does then. For use beside its work.
    pub(crate) async fn preempted(&self) -> PreemptionReason {
        let reason = self.0.progress.preempted().await;
        self.0.pool.gate.note_preempted(&reason);
        reason
    }

    /// The other end of its data connection, once there is one.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.0.remote.get().copied()
    }
}

/// Who wants which file moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MoverRequest {
    pub kind: MoverKind,
    pub path: NamespacePath,
    /// A client's address or a URL without secrets.
    pub peer: String,
    /// The copy that it is part of, as whoever asks names it.
    pub copy: Option<String>,
    /// The data challenge or activity that it is part of, as whoever asks tells it.
    pub challenge: Option<String>,
    /// `None`: it is not known before its bytes have come.
    pub file_size: Option<Bytes>,
    pub user: Option<UserName>,
    /// To whom the slot is counted.
    pub requester: Requester,
    pub pool: PoolName,
    /// Why this pool; `Null` for reads.
    pub selection: Value,
}

/// A mover as a status page shows it.
#[derive(Debug, Clone, Serialize)]
pub struct MoverSnapshot {
    /// Which way, and who asked.
    pub kind: MoverKind,
    /// The file here.
    pub path: NamespacePath,
    /// The other end.
    pub peer: String,
    /// Who asked; `None` for anonymous readers.
    pub user: Option<UserName>,
    /// On whose behalf.
    pub vo: Option<VoName>,
    pub pool: PoolName,
    /// When it arrived.
    pub since: Timestamp,
    /// False while it waits for a slot.
    pub running: bool,
    /// Bytes of file data so far.
    pub moved: Bytes,
}

/// A running mover.
pub(crate) struct Mover {
    facts: Arc<Facts>,
    live: Arc<LiveMovers>,
    recorder: Arc<Recorder>,
    id: u64,
    started: Instant,
    selection: Value,
    /// Where its time goes. The owner adds to it.
    pub clocks: StageClocks,
    /// State of the data socket, when it was last looked at.
    pub tcp: Option<TcpSummary>,
    slot: Slot,
    outcome: Option<MoverOutcome>,
}

enum Slot {
    Waiting(QueuePlace),
    Running { _permit: Permit },
}

/// The pool's queue has no place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("pool {pool} is busy: {reason}")]
pub(crate) struct PoolQueueFull {
    pub pool: PoolName,
    pub reason: AdmissionReason,
    pub retry_after_seconds: u64,
}

impl PoolQueueFull {
    fn at(pool: &Pool, refusal: SlotRefusal) -> PoolQueueFull {
        PoolQueueFull {
            pool: pool.name.clone(),
            reason: refusal.reason,
            retry_after_seconds: refusal.retry_after_seconds,
        }
    }
}

impl LiveMovers {
    /// None yet; those that end are counted there.
    pub(crate) fn counted_in(metrics: &StorageMetrics) -> LiveMovers {
        LiveMovers {
            ended: Arc::clone(&metrics.movers),
            refused: Arc::clone(&metrics.movers_refused),
            ..LiveMovers::default()
        }
    }

    /// Takes a place at the gate of the pool that the request names.
    pub(crate) fn arrive(
        self: &Arc<Self>,
        recorder: &Arc<Recorder>,
        pool: &Arc<Pool>,
        request: MoverRequest,
    ) -> Result<Mover, PoolQueueFull> {
        let started = Instant::now();
        let progress = Arc::new(Progress::new());
        let slot = match pool.gate.arrive(&request.requester, &progress) {
            Arrival::Started(permit) => Slot::Running { _permit: permit },
            Arrival::Waiting(waiting) => Slot::Waiting(waiting),
            Arrival::Refused(refusal) => {
                self.refused.increment();
                return Err(PoolQueueFull::at(pool, refusal));
            }
        };
        let facts = Arc::new(Facts {
            kind: request.kind,
            path: request.path,
            peer: request.peer,
            copy: request.copy,
            challenge: request.challenge,
            file_size: request.file_size,
            user: request.user,
            traffic: pool.gate.traffic.of(request.requester.vo.as_ref()),
            vo: request.requester.vo,
            pool: Arc::clone(pool),
            since: wall_clock(),
            progress,
            running: matches!(slot, Slot::Running { .. }).into(),
            remote: OnceLock::new(),
        });
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(id, Arc::clone(&facts));
        Ok(Mover {
            facts,
            live: Arc::clone(self),
            recorder: Arc::clone(recorder),
            id,
            started,
            selection: request.selection,
            clocks: StageClocks::default(),
            tcp: None,
            slot,
            outcome: None,
        })
    }

    /// How many movers run or wait, and the oldest of them.
    pub(crate) fn snapshot(&self, limit: usize) -> (usize, Vec<MoverSnapshot>) {
        let movers = self.lock();
        let shown = movers.values().take(limit).map(|facts| MoverSnapshot {
            kind: facts.kind,
            path: facts.path.clone(),
            peer: facts.peer.clone(),
            user: facts.user.clone(),
            vo: facts.vo.clone(),
            pool: facts.pool.name.clone(),
            since: facts.since,
            running: facts.running.load(Ordering::Relaxed),
            moved: Bytes(facts.progress.moved()),
        });
        (movers.len(), shown.collect())
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, BTreeMap<u64, Arc<Facts>>> {
        self.movers.lock()
    }
}

impl Mover {
    /// It need not wait (any more).
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.slot, Slot::Running { .. })
    }

    /// Waits for the slot. May be dropped and called again. Errors: its place in the queue is somebody else's now.
    pub(crate) async fn wait(&mut self) -> Result<(), PoolQueueFull> {
        if let Slot::Waiting(waiting) = &mut self.slot {
            let started = waiting.started().await;
            let permit = match started {
                Ok(permit) => permit,
                Err(refusal) => {
                    self.live.refused.increment();
                    let busy = PoolQueueFull::at(&self.facts.pool, refusal);
                    self.record_refusal(busy.to_string());
                    return Err(busy);
                }
            };
            self.slot = Slot::Running { _permit: permit };
            self.facts.running.store(true, Ordering::Relaxed);
            self.clocks.wait_us = microseconds(self.started.elapsed());
        }
        Ok(())
    }

    /// Why it waits; `None` when it runs.
    pub(crate) fn waits_because(&self) -> Option<&AdmissionReason> {
        match &self.slot {
            Slot::Waiting(waiting) => Some(waiting.reason()),
            Slot::Running { .. } => None,
        }
    }

    /// For those who report on it.
    pub(crate) fn view(&self) -> MoverHandle {
        MoverHandle(Arc::clone(&self.facts))
    }

    /// The other end of the data connection is known. The first one counts.
    pub(crate) fn set_remote(&self, remote: Option<SocketAddr>) {
        if let Some(remote) = remote {
            let _ = self.facts.remote.set(remote);
        }
    }

    /// The pool that takes or gives the bytes.
    pub(crate) fn pool(&self) -> &PoolName {
        &self.facts.pool.name
    }

    /// Counts bytes of file data that passed.
    pub(crate) fn moved(&self, bytes: u64) {
        self.facts.count(bytes);
    }

    /// Bytes that passed so far.
    pub(crate) fn moved_so_far(&self) -> Bytes {
        Bytes(self.facts.progress.moved())
    }

    /// Its last byte has passed; from now on it ends for nobody.
    pub(crate) fn pass_last_byte(&self) {
        self.facts.progress.pass_last_byte();
    }

    /// It gets no slot. So it is recorded, unless it ends otherwise.
    pub(crate) fn record_refusal(&mut self, why: String) {
        self.outcome = Some(MoverOutcome::Failed(why));
    }

    /// Ends it. Dropping it without this or a refusal means that the client left.
    pub(crate) fn end(mut self, outcome: MoverOutcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.live.lock().remove(&self.id);
        let outcome = self.outcome.take().unwrap_or_else(|| {
            MoverOutcome::Aborted("the client left, or the server stopped".to_owned())
        });
        self.live.ended.count(self.facts.kind, &outcome);
        let moved_bytes = self.moved_so_far().0;
        let end = match &outcome {
            MoverOutcome::Done => MoverEnd::Done,
            MoverOutcome::Failed(_) => MoverEnd::Failed { moved_bytes },
            MoverOutcome::Aborted(_) => MoverEnd::Left { moved_bytes },
        };
        self.facts.traffic.ended(self.facts.work(), end);
        // Of a mover that takes a file it is the time of the other end.
        if let MoverKind::Get | MoverKind::Push = self.facts.kind {
            let gate = &self.facts.pool.gate;
            gate.read_wait_us.add(self.clocks.source_read_us);
        }
        self.recorder.record(MoverRecord {
            at: self.recorder.clock.recorded(),
            kind: self.facts.kind,
            path: self.facts.path.clone(),
            peer: self.facts.peer.clone(),
            copy: self.facts.copy.clone(),
            challenge: self.facts.challenge.clone(),
            file_size: self.facts.file_size,
            user: self.facts.user.clone(),
            vo: self.facts.vo.clone(),
            pool: Some(self.facts.pool.name.clone()),
            moved: self.moved_so_far(),
            duration_us: microseconds(self.started.elapsed()),
            stages: self.clocks,
            tcp: self.tcp,
            selection: std::mem::take(&mut self.selection),
            outcome,
        });
    }
}
