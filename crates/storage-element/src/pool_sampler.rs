//! Looks at all pools and at the tape part once a second, on a thread of its own: keeps the seconds of the last hours in memory, and records a
//! row for each minute. It asks no disk: what a pool's own thread saw last is what it takes.
//!
//! A minute that the namespace does not take is told in the log and recorded later; it holds nobody up.

mod minute_queue;

use crate::clock::BelievedClock;
use crate::pool::Pool;
use crate::reaper::Pools;
use crate::tape_meter::TapeMeter;
use crate::traffic::Traffic;
use minute_queue::MinuteQueue;
use parking_lot::Mutex;
use penstock_decide::pool_selection::PoolMode;
use penstock_model::{PoolName, PoolSample, PoolSamples, PoolTraffic, Timestamp};
use penstock_persistence::namespace::{Change, ChangeError, Namespace};
use penstock_protocol::exposition::Counter;
use penstock_protocol::told::RepeatedErrors;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_secs(1);
/// Seconds that are kept at most: two hours.
const SECONDS_MAX: usize = 7200;
/// Pools in all these seconds together at most, some 100 MB: with more than 27 pools fewer seconds are kept.
const POOL_SECONDS_MAX: usize = 200_000;
const MINUTE_MS: i64 = 60_000;

/// The thread. Dropping it records the minute that has begun.
pub(crate) struct PoolSampler {
    seconds: Arc<Mutex<SecondRing>>,
    stop: Option<Sender<()>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl PoolSampler {
    pub(crate) fn start(
        namespace: &Arc<Namespace>,
        clock: &Arc<BelievedClock>,
        pools: &Pools,
        tape: Option<Arc<TapeMeter>>,
    ) -> io::Result<PoolSampler> {
        let seconds = Arc::new(Mutex::new(SecondRing::default()));
        let (stop, stopping) = channel();
        let work = SamplerThread {
            namespace: Arc::clone(namespace),
            clock: Arc::clone(clock),
            pools: pools.values().cloned().collect(),
            tape,
            seconds: Arc::clone(&seconds),
            last: clock.recorded(),
            totals: BTreeMap::new(),
            waiting: Arc::default(),
            told: Arc::default(),
        };
        let thread = std::thread::Builder::new()
            .name("pool-sampler".to_owned())
            .spawn(move || work.run(&stopping))?;
        Ok(PoolSampler {
            seconds,
            stop: Some(stop),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// From when on seconds are in memory, and those that begin in `from <= begin < to`.
    pub(crate) fn seconds(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> (Option<Timestamp>, Vec<PoolSamples>) {
        let ring = self.seconds.lock();
        let within = |second: &&PoolSamples| second.from >= from && second.from < to;
        let seconds = ring.seconds.iter().filter(within).cloned();
        (ring.since(), seconds.collect())
    }

    pub(crate) fn is_alive(&self) -> bool {
        let thread = self.thread.lock();
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for PoolSampler {
    fn drop(&mut self) {
        drop(self.stop.take());
        let thread = self.thread.get_mut();
        // A panicked sampler has lost samples, nothing else.
        let _ = thread.take().map(JoinHandle::join);
    }
}

struct SamplerThread {
    namespace: Arc<Namespace>,
    clock: Arc<BelievedClock>,
    pools: Vec<Arc<Pool>>,
    /// Of the tape part, if there is one.
    tape: Option<Arc<TapeMeter>>,
    seconds: Arc<Mutex<SecondRing>>,
    /// When it looked last, and what had passed until then.
    last: Timestamp,
    totals: BTreeMap<PoolName, PoolTotals>,
    /// Minutes that are not recorded yet.
    waiting: Arc<Mutex<MinuteQueue>>,
    /// Keeps a full disk from filling the log.
    told: Arc<RepeatedErrors>,
}

impl SamplerThread {
    fn run(mut self, stopping: &Receiver<()>) {
        let mut next = Instant::now() + TICK;
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            let is_over = !matches!(stopping.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
            self.look();
            if is_over {
                break;
            }
            // After a standstill one long interval is better than several short ones, in which a rate means nothing.
            next = (next + TICK).max(Instant::now() + TICK / 2);
        }
        let begun = self.seconds.lock().minute.take();
        let mut waiting = self.waiting.lock();
        begun.into_iter().for_each(|minute| waiting.push(minute));
        let left = waiting.take_rest();
        drop(waiting);
        let minutes = left.len();
        for minute in left {
            if let Err(why) = self.namespace.apply(Change::RecordPoolMinute(minute)) {
                tracing::warn!(%why, minutes, "the last minutes of the pools could not be recorded");
                break;
            }
        }
    }

    fn look(&mut self) {
        let now = self.clock.recorded();
        let totals = &mut self.totals;
        let looked = self.pools.iter().map(|pool| look(pool, totals));
        let second = PoolSamples {
            from: self.last,
            to: now,
            pools: looked.collect(),
            tape: self.tape.as_ref().and_then(|tape| tape.look(now)),
        };
        self.last = now;
        let ended = self.seconds.lock().push(second);
        let mut waiting = self.waiting.lock();
        ended.into_iter().for_each(|minute| waiting.push(minute));
        let next = waiting.begin_next();
        drop(waiting);
        if let Some(minute) = next {
            self.record(minute);
        }
    }

    /// Hands the oldest waiting minute over. Never waits: a disk that hangs holds up minutes, never seconds.
    fn record(&self, minute: PoolSamples) {
        let (told, waiting) = (Arc::clone(&self.told), Arc::clone(&self.waiting));
        let change = Change::RecordPoolMinute(minute);
        self.namespace.submit(change, move |recorded| {
            let Err(why) = recorded else {
                return waiting.lock().recorded();
            };
            match why {
                // It may be there: told twice it would count twice.
                ChangeError::Doubtful(_) => waiting.lock().recorded(),
                ChangeError::Refused(_)
                | ChangeError::Busy
                | ChangeError::Stopped
                | ChangeError::Database(_)
                | ChangeError::Unsettled => waiting.lock().refused(),
            }
            if let Some(passed_over) = told.tells(&why.to_string()) {
                tracing::warn!(%why, passed_over, "a minute of the pools could not be recorded yet");
            }
        });
    }
}

/// What passed one pool since the start.
#[derive(Default)]
struct PoolTotals {
    traffic: Vec<PoolTraffic>,
    started: u64,
    read_wait_us: u64,
}

/// One pool now, and what passed it since these totals.
fn look(pool: &Pool, totals: &mut BTreeMap<PoolName, PoolTotals>) -> PoolSample {
    let view = pool.view();
    let load = pool.gate.load();
    let of_pool = totals.entry(pool.name.clone()).or_default();
    let since = |counter: &Counter, last: &mut u64| {
        let now = counter.read();
        now.saturating_sub(std::mem::replace(last, now))
    };
    PoolSample {
        looks: 1,
        reachable: u64::from(view.condition.gives_files()),
        accepting: u64::from(pool.takes_new_files()),
        drained: u64::from(view.mode != PoolMode::Enabled),
        free_bytes: view.available().0,
        active: u64::from(load.active),
        queued: u64::from(load.queued),
        limit: u64::from(load.limits.movers_max),
        started: Some(since(&pool.gate.started, &mut of_pool.started)),
        read_wait_us: Some(since(&pool.gate.read_wait_us, &mut of_pool.read_wait_us)),
        traffic: passed(&pool.gate.traffic, &mut of_pool.traffic),
        ..PoolSample::new(pool.name.clone())
    }
}

/// What was counted since these totals, which become those of now.
fn passed(traffic: &Traffic, totals: &mut Vec<PoolTraffic>) -> Vec<PoolTraffic> {
    let now = traffic.totals();
    let since = |one: &PoolTraffic| {
        let mut earlier = totals.iter();
        let earlier = earlier.find(|it| it.operation == one.operation && it.vo == one.vo);
        let passed = earlier.map_or_else(|| one.clone(), |earlier| one.since(earlier));
        (!passed.is_empty()).then_some(passed)
    };
    let passed = now.iter().filter_map(since).collect();
    *totals = now;
    passed
}

/// The seconds of the last hours, and the minute that has begun.
#[derive(Default)]
struct SecondRing {
    seconds: VecDeque<PoolSamples>,
    has_forgotten: bool,
    minute: Option<PoolSamples>,
}

impl SecondRing {
    /// Adds the next second. Gives back the minute before when this one begins another.
    fn push(&mut self, second: PoolSamples) -> Option<PoolSamples> {
        let ended = match &mut self.minute {
            Some(minute) if minute_of(minute.from) == minute_of(second.from) => {
                minute.add(&second);
                None
            }
            begun => begun.replace(second.clone()),
        };
        let most = SECONDS_MAX.min(POOL_SECONDS_MAX / second.pools.len().max(1));
        while self.seconds.len() >= most.max(1) {
            self.seconds.pop_front();
            self.has_forgotten = true;
        }
        self.seconds.push_back(second);
        ended
    }

    /// From when on seconds tell everything; what was before is told by minutes. `None` before the first.
    fn since(&self) -> Option<Timestamp> {
        let oldest = self.seconds.front()?.from;
        Some(match self.has_forgotten {
            // The minute that it lies in has lost its beginning.
            true => Timestamp((minute_of(oldest) + 1) * MINUTE_MS),
            false => oldest,
        })
    }
}

fn minute_of(at: Timestamp) -> i64 {
    at.0.div_euclid(MINUTE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Work;
    use penstock_model::observation::Operation;

    fn second(at: i64) -> PoolSamples {
        PoolSamples {
            from: Timestamp(at),
            to: Timestamp(at + 1000),
            pools: vec![PoolSample {
                looks: 1,
                active: 3,
                ..PoolSample::new(PoolName::new("a"))
            }],
            tape: None,
        }
    }

    #[test]
    fn a_minute_is_the_sum_of_its_seconds_and_ends_with_the_next_one() {
        let mut ring = SecondRing::default();
        let ended: Vec<PoolSamples> = (0..130)
            .filter_map(|n| ring.push(second(n * 1000)))
            .collect();
        let told: Vec<_> = ended
            .iter()
            .map(|minute| (minute.from.0, minute.to.0, minute.pools[0].active))
            .collect();
        assert_eq!(told, [(0, 60_000, 180), (60_000, 120_000, 180)]);
        assert_eq!(ring.since(), Some(Timestamp(0)));
    }

    #[test]
    fn the_ring_is_bounded_by_seconds_and_by_pools_and_says_from_when_on_it_tells_all() {
        let mut ring = SecondRing::default();
        for n in 0..SECONDS_MAX as i64 + 90 {
            ring.push(second(n * 1000));
        }
        assert_eq!(ring.seconds.len(), SECONDS_MAX);
        assert_eq!(ring.since(), Some(Timestamp(120_000)));
        let mut ring = SecondRing::default();
        for n in 0..1100 {
            let mut many = second(n * 1000);
            many.pools = vec![many.pools[0].clone(); 200];
            ring.push(many);
        }
        assert_eq!(ring.seconds.len(), POOL_SECONDS_MAX / 200);
    }

    #[test]
    fn what_passed_is_told_once() {
        let (traffic, mut totals) = (Traffic::default(), Vec::new());
        let of_nobody = traffic.of(None);
        of_nobody.moved(Work::Write, 7);
        let told = passed(&traffic, &mut totals);
        assert_eq!((told[0].operation, told[0].bytes_in), (Operation::Write, 7));
        assert_eq!(passed(&traffic, &mut totals), []);
        of_nobody.moved(Work::Write, 1);
        assert_eq!(passed(&traffic, &mut totals)[0].bytes_in, 1);
    }
}
