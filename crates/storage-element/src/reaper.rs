//! Removes data that nobody can see any more, on a thread of its own for each pool: removing a large file takes a while,
//! and a disk that hangs holds up its own files only.
//!
//! Whatever is done with the trash of a pool is done by this thread, one thing after the other, so that no file comes back
//! whose data is just being removed. Trash is in the namespace until its data is gone: nothing here must survive a crash.

mod room;
#[cfg(test)]
mod tests;
mod trash;

pub(crate) use room::with_room;
use trash::RemovedTrash;
pub(crate) use trash::{REMOVAL_WAIT, RestoreError, RestoreOrder};

use crate::clock::BelievedClock;
use crate::disk_full::Fullness;
use crate::pool::{Pool, Reservation};
use crate::timed_join::end_thread;
use parking_lot::Mutex;
use penstock_decide::trash::kept_since;
use penstock_model::{Bytes, PoolName, Timestamp};
use penstock_persistence::namespace::{
    EntryId, Namespace, NamespaceError, RequestOrigin, TrashQuery, TrashedData,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Orders for one pool that may wait. Beyond, data without an entry waits apart, because nothing else knows of it; trash
/// is found again in the namespace.
const QUEUE_MAX: usize = 65_536;
/// Orders that are done between two looks at the trash.
const ORDERS_AT_ONCE: usize = 1000;
/// Between two looks at what is over its time, at least and at most.
const LOOK_INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long an end waits for a disk.
const END_WAIT: Duration = Duration::from_secs(10);

/// The pools of a storage element.
pub(crate) type Pools = BTreeMap<PoolName, Arc<Pool>>;

/// What the thread of a pool is asked to do.
enum Order {
    /// Trash has come that is over its time at once.
    Due,
    /// What could not be removed until now may be removed by now.
    LookAgain,
    Discard(Discard),
    MakeRoom {
        wanted: Bytes,
        /// Whether there is more room now.
        reply: oneshot::Sender<bool>,
    },
    /// The disk says that it is full, whatever was counted. The answer: whether some trash has gone.
    GiveWay {
        full: Fullness,
        reply: SyncSender<bool>,
    },
    Restore {
        order: RestoreOrder,
        reply: oneshot::Sender<Result<(), RestoreError>>,
    },
    Empty {
        query: TrashQuery,
        origin: Arc<RequestOrigin>,
        reply: oneshot::Sender<Result<RemovedTrash, NamespaceError>>,
    },
}

struct Discard {
    /// The files that hold it.
    paths: Vec<PathBuf>,
    /// Given back when the data is gone.
    _reservation: Option<Reservation>,
    /// How it went. Nobody need wait for it.
    reply: oneshot::Sender<io::Result<()>>,
}

/// The way to the thread of one pool.
struct PoolQueue {
    pool: Arc<Pool>,
    orders: SyncSender<Order>,
    /// Data without an entry that found the queue full: its disk hangs. Some hundred bytes for each file.
    overflow: Mutex<Vec<Discard>>,
}

/// The threads of all pools. Dropping them finishes what is queued.
pub(crate) struct Reapers {
    handle: ReaperHandle,
    threads: Mutex<BTreeMap<PoolName, JoinHandle<()>>>,
}

/// Where removals are ordered.
#[derive(Clone)]
pub(crate) struct ReaperHandle(Arc<ReaperContext>);

struct ReaperContext {
    namespace: Arc<Namespace>,
    clock: Arc<BelievedClock>,
    pools: BTreeMap<PoolName, PoolQueue>,
    /// How long trash is kept, in milliseconds.
    grace: AtomicU64,
    is_over: AtomicBool,
}

impl ReaperContext {
    fn grace(&self) -> Duration {
        Duration::from_millis(self.grace.load(Ordering::Relaxed))
    }
}

impl Reapers {
    /// `grace`: how long trash is kept.
    pub(crate) fn start(
        namespace: &Arc<Namespace>,
        clock: &Arc<BelievedClock>,
        pools: &Pools,
        grace: Duration,
    ) -> io::Result<Reapers> {
        let mut orders = BTreeMap::new();
        let mut queues = BTreeMap::new();
        for (name, pool) in pools {
            let (queue, waiting) = sync_channel(QUEUE_MAX);
            orders.insert(name, waiting);
            let queue = PoolQueue {
                pool: Arc::clone(pool),
                orders: queue,
                overflow: Mutex::default(),
            };
            queues.insert(name.clone(), queue);
        }
        let handle = ReaperHandle(Arc::new(ReaperContext {
            namespace: Arc::clone(namespace),
            clock: Arc::clone(clock),
            pools: queues,
            grace: AtomicU64::new(milliseconds(grace)),
            is_over: AtomicBool::new(false),
        }));
        let mut threads = BTreeMap::new();
        for (name, waiting) in orders {
            let mut reaper = Reaper {
                shared: Arc::clone(&handle.0),
                pool: Arc::clone(&pools[name]),
                cursor: None,
                is_due: false,
                in_vain: None,
                next_pass: Instant::now(),
            };
            let thread = std::thread::Builder::new().name(format!("reaper-{name}"));
            let thread = thread.spawn(move || reaper.run(&waiting))?;
            threads.insert(name.clone(), thread);
        }
        Ok(Reapers {
            handle,
            threads: Mutex::new(threads),
        })
    }

    pub(crate) fn handle(&self) -> ReaperHandle {
        self.handle.clone()
    }

    /// Threads that have ended by themselves.
    pub(crate) fn dead(&self) -> Vec<String> {
        let threads = self.threads.lock();
        let dead = threads.iter().filter(|(_, thread)| thread.is_finished());
        dead.map(|(pool, _)| format!("reaper-{pool}")).collect()
    }
}

impl Drop for Reapers {
    fn drop(&mut self) {
        self.handle.0.is_over.store(true, Ordering::SeqCst);
        self.handle.look_again();
        let threads = self.threads.get_mut();
        let until = Instant::now() + END_WAIT;
        for (pool, thread) in std::mem::take(threads) {
            end_thread(thread, until, pool.as_str());
        }
    }
}

impl ReaperHandle {
    /// Counts what was put into the trash, and has it removed when nothing is kept there. Never blocks.
    pub(crate) fn bury(&self, trashed: &[TrashedData]) {
        let mut pools = BTreeSet::new();
        for trashed in trashed {
            if let Some(queue) = self.0.pools.get(&trashed.pool) {
                queue.pool.bury(trashed.size);
                pools.insert(&trashed.pool);
            }
        }
        if self.0.grace().is_zero() {
            pools
                .into_iter()
                .for_each(|pool| self.order(pool, Order::Due));
        }
    }

    /// Has trash removed in all pools that could not be removed until now.
    pub(crate) fn look_again(&self) {
        let pools = self.0.pools.keys();
        pools.for_each(|pool| self.order(pool, Order::LookAgain));
    }

    /// The same in one pool.
    pub(crate) fn look_again_in(&self, pool: &PoolName) {
        self.order(pool, Order::LookAgain);
    }

    /// Never blocks.
    fn order(&self, pool: &PoolName, order: Order) {
        if let Some(queue) = self.0.pools.get(pool) {
            // With a full queue it is done by the next look at the trash.
            let _ = queue.orders.try_send(order);
        }
    }

    /// From now on trash is kept for so long, also what is there already.
    pub(crate) fn keep_trash_for(&self, grace: Duration) {
        self.0.grace.store(milliseconds(grace), Ordering::Relaxed);
        self.look_again();
    }

    /// Orders the removal of data without an entry. Never blocks. The answer tells how it went, as soon as the disk has
    /// answered.
    pub(crate) fn discard(
        &self,
        pool: &Pool,
        paths: Vec<PathBuf>,
        reservation: Option<Reservation>,
    ) -> oneshot::Receiver<io::Result<()>> {
        use std::sync::mpsc::TrySendError;
        let (reply, answer) = oneshot::channel();
        // Every pool has its queue from the start on; what is of none stays until the next start.
        let Some(queue) = self.0.pools.get(&pool.name) else {
            return answer;
        };
        let order = Discard {
            paths,
            _reservation: reservation,
            reply,
        };
        if let Err(
            TrySendError::Full(Order::Discard(order))
            | TrySendError::Disconnected(Order::Discard(order)),
        ) = queue.orders.try_send(Order::Discard(order))
        {
            queue.overflow.lock().push(order);
        }
        answer
    }

    /// Waits for an answer of a pool's thread. `None`: there is no such pool, or its disk does not answer.
    async fn ask<T>(
        &self,
        pool: &PoolName,
        limit: Duration,
        order: impl FnOnce(oneshot::Sender<T>) -> Order,
    ) -> Option<T> {
        let queue = self.0.pools.get(pool)?;
        let (reply, answer) = oneshot::channel();
        queue.orders.try_send(order(reply)).ok()?;
        tokio::time::timeout(limit, answer).await.ok()?.ok()
    }
}

/// What the thread of one pool works with.
struct Reaper {
    shared: Arc<ReaperContext>,
    pool: Arc<Pool>,
    /// How far the trash was looked at in this pass. What could not be removed stays until the next one.
    cursor: Option<(Timestamp, EntryId)>,
    /// There is more to be removed.
    is_due: bool,
    /// Since then it is known that removals make no room on this disk.
    in_vain: Option<Instant>,
    next_pass: Instant,
}

impl Reaper {
    fn run(&mut self, orders: &Receiver<Order>) {
        loop {
            let wait = match self.is_due {
                true => Duration::ZERO,
                false => self.next_pass.saturating_duration_since(Instant::now()),
            };
            match orders.recv_timeout(wait) {
                Ok(first) => {
                    let more = orders.try_iter().take(ORDERS_AT_ONCE - 1);
                    let all = std::iter::once(first).chain(more);
                    all.for_each(|order| self.perform(order));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.discard_overflow();
            if Instant::now() >= self.next_pass {
                self.next_pass = Instant::now() + self.interval();
                (self.cursor, self.is_due) = (None, true);
            }
            if self.is_due {
                self.is_due = self.expire_some();
            }
            if self.shared.is_over.load(Ordering::SeqCst) {
                // What came before the end is done.
                orders.try_iter().for_each(|order| self.perform(order));
                return;
            }
        }
    }

    /// Does what was ordered.
    fn perform(&mut self, order: Order) {
        match order {
            Order::Due => self.is_due = true,
            Order::LookAgain => self.next_pass = Instant::now(),
            Order::Discard(order) => discard(order),
            // Whoever asked has gone, and was told that it is not done.
            Order::MakeRoom { reply, .. } if reply.is_closed() => {}
            Order::Restore { reply, .. } if reply.is_closed() => {}
            Order::Empty { reply, .. } if reply.is_closed() => {}
            Order::MakeRoom { wanted, reply } => drop(reply.send(self.make_room(wanted))),
            // It may have been given up; then some trash has gone without need, at most a piece.
            Order::GiveWay { full, reply } => drop(reply.send(self.give_way(full))),
            Order::Restore { order, reply } => drop(reply.send(self.restore(&order))),
            Order::Empty {
                query,
                origin,
                reply,
            } => drop(reply.send(self.empty(query, origin))),
        }
    }

    /// Removes what found the queue full.
    fn discard_overflow(&self) {
        if let Some(queue) = self.shared.pools.get(&self.pool.name) {
            let overflow = std::mem::take(&mut *queue.overflow.lock());
            overflow.into_iter().for_each(discard);
        }
    }

    fn interval(&self) -> Duration {
        let (least, most) = LOOK_INTERVAL;
        match self.shared.grace() {
            // Each is ordered when it is due; only what could not be removed is left.
            Duration::ZERO => most,
            grace => (grace / 10).clamp(least, most),
        }
    }

    /// Until when trash must have been removed to be kept no longer; `None`: nothing goes now.
    fn kept_since(&self) -> Option<Timestamp> {
        let clock = &self.shared.clock;
        kept_since(self.shared.grace(), clock.now(), clock.standing())
    }
}

fn discard(order: Discard) {
    let mut removed = Ok(());
    for path in &order.paths {
        removed = removed.and(remove_if_there(path));
    }
    if let Err(why) = &removed {
        let paths = &order.paths;
        tracing::error!(?paths, %why, "data without an entry stays until the next start");
    }
    // Most do not wait for it.
    let _ = order.reply.send(removed);
}

pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
