//! A thread for each pool that alone waits for its disk: it opens the pool, asks for its free space, notices when the
//! disk is gone or fails, tries whether it works again, and keeps `pool.json` up to date. A disk that hangs holds up its
//! own thread and no other.

use crate::clock::BelievedClock;
use crate::config::StorageLimits;
use crate::disk_full::{Fullness, fullness};
use crate::open_error::OpenError;
use crate::pool::{DiskThread, FileSystem, Pool, identity_path};
use crate::pool_opening::{self, Leftovers, OwnPool, PoolRefusal, directory_error};
use crate::reaper::{Pools, ReaperHandle};
use crate::timed_join::end_thread;
use crate::uploads::Uploads;
use parking_lot::Mutex;
use penstock_decide::pool_condition::{PoolCondition, probe_interval};
use penstock_decide::pool_selection::PoolMode;
use penstock_model::PoolName;
use penstock_persistence::namespace::Namespace;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often free space is looked at that files depend on, and otherwise.
const SPACE_AGE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));
/// How often the pool is looked at when nothing fails, and its mark written.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// How often the quarantine is looked at.
const QUARANTINE_INTERVAL: Duration = Duration::from_secs(3600);
/// How long a start waits for a disk. One that takes longer comes when it comes.
const START_WAIT: Duration = Duration::from_secs(120);
/// How long an end waits for one.
const END_WAIT: Duration = Duration::from_secs(10);
/// Bytes of a test file.
const TEST_BYTES: usize = 4096;

/// The threads. Dropping it writes the last marks.
pub(crate) struct Upkeep {
    pools: Pools,
    keepers: Vec<UpkeepThread>,
    shared: Arc<UpkeepContext>,
}

/// What all threads use.
pub(crate) struct UpkeepContext {
    pub namespace: Arc<Namespace>,
    pub uploads: Arc<Uploads>,
    pub clock: Arc<BelievedClock>,
    pub limits: UpkeepLimits,
    /// Pools that the namespace knows to have been made.
    pub known: BTreeSet<PoolName>,
    pub reaper: OnceLock<ReaperHandle>,
    pub file_systems: Mutex<BTreeMap<u64, Arc<FileSystem>>>,
}

/// Times of upkeep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpkeepLimits {
    /// Until a pool that has failed is tried again.
    pub probe_interval: Duration,
    /// How long files stay in quarantine.
    pub quarantine: Duration,
}

impl UpkeepLimits {
    pub(crate) fn of(limits: &StorageLimits) -> UpkeepLimits {
        UpkeepLimits {
            probe_interval: limits.probe_interval,
            quarantine: limits.quarantine,
        }
    }
}

struct UpkeepThread {
    pool: PoolName,
    commands: Sender<Command>,
    thread: Option<JoinHandle<()>>,
}

enum Command {
    Inspect(SyncSender<Result<(), OpenError>>),
    Prepare(SyncSender<Result<Leftovers, OpenError>>),
    Stop,
}

impl Upkeep {
    pub(crate) fn start(pools: Pools, shared: UpkeepContext) -> Result<Upkeep, OpenError> {
        let shared = Arc::new(shared);
        let mut keepers = Vec::with_capacity(pools.len());
        for pool in pools.values() {
            pool.health.begin();
            let (commands, orders) = channel();
            let work = PoolUpkeep {
                pool: Arc::clone(pool),
                shared: Arc::clone(&shared),
                stage: Stage::Closed,
                next_probe: Instant::now(),
                next_look: Instant::now(),
                next_mark: Instant::now() + LOOK_INTERVAL,
                next_sweep: Instant::now(),
            };
            let thread = std::thread::Builder::new().name(format!("pool-{}", pool.name));
            let thread = thread.spawn(move || run(work, &orders));
            keepers.push(UpkeepThread {
                pool: pool.name.clone(),
                commands,
                thread: Some(thread.map_err(OpenError::Thread)?),
            });
        }
        Ok(Upkeep {
            pools,
            keepers,
            shared,
        })
    }

    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Where the trash of a pool that comes back is removed.
    pub(crate) fn joined_by(&self, reaper: ReaperHandle) {
        let _ = self.shared.reaper.set(reaper);
    }

    /// Looks at every pool. Errors: something is wrong that no disk can mend.
    pub(crate) fn inspect_all(&self) -> Result<(), OpenError> {
        for answer in self.ask(Command::Inspect) {
            answer?;
        }
        Ok(())
    }

    /// Makes every pool ready that can be used.
    pub(crate) fn prepare_all(&self) -> Result<Leftovers, OpenError> {
        let mut all = Leftovers::default();
        for answer in self.ask(Command::Prepare) {
            let found = answer?;
            all.unfinished += found.unfinished;
            all.quarantined += found.quarantined;
        }
        Ok(all)
    }

    /// The answers of those that answer in time.
    fn ask<T>(&self, command: impl Fn(SyncSender<T>) -> Command) -> Vec<T> {
        let until = Instant::now() + START_WAIT;
        let asked: Vec<(&UpkeepThread, Receiver<T>)> = self
            .keepers
            .iter()
            .map(|keeper| {
                let (reply, answer) = sync_channel(1);
                // One that has ended does not answer.
                let _ = keeper.commands.send(command(reply));
                (keeper, answer)
            })
            .collect();
        let answered = |(keeper, answer): (&UpkeepThread, Receiver<T>)| {
            let left = until.saturating_duration_since(Instant::now());
            let answer = answer.recv_timeout(left).ok();
            if answer.is_none() {
                let pool = &keeper.pool;
                tracing::error!(%pool, "the pool's disk does not answer; starting without it");
            }
            answer
        };
        asked.into_iter().filter_map(answered).collect()
    }

    /// Threads that have ended by themselves.
    pub(crate) fn dead(&self) -> Vec<String> {
        let dead =
            |keeper: &&UpkeepThread| keeper.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let dead = self.keepers.iter().filter(dead);
        dead.map(|keeper| format!("pool-{}", keeper.pool)).collect()
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        for keeper in &self.keepers {
            let _ = keeper.commands.send(Command::Stop);
        }
        let until = Instant::now() + END_WAIT;
        for keeper in &mut self.keepers {
            if let Some(thread) = keeper.thread.take() {
                end_thread(thread, until, keeper.pool.as_str());
            }
        }
    }
}

/// How far a pool is.
enum Stage {
    /// Not in use.
    Closed,
    /// It belongs to this namespace and gives files; it could not be made ready for new ones yet.
    Opened(OwnPool),
    /// It takes and gives files. Held for its lock.
    Ready { _opened: OwnPool },
}

struct PoolUpkeep {
    pool: Arc<Pool>,
    shared: Arc<UpkeepContext>,
    stage: Stage,
    next_probe: Instant,
    next_look: Instant,
    next_mark: Instant,
    next_sweep: Instant,
}

fn run(mut work: PoolUpkeep, orders: &Receiver<Command>) {
    let mut is_started = false;
    loop {
        // Until it was asked for the first time, nothing may be changed.
        let tick = match is_started {
            true => work.tick(),
            false => LOOK_INTERVAL,
        };
        match orders.recv_timeout(tick) {
            Ok(Command::Inspect(reply)) => {
                let _ = reply.send(work.inspect().map(drop));
            }
            Ok(Command::Prepare(reply)) => {
                let _ = reply.send(work.prepare());
                is_started = true;
            }
            Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => {
                work.stop();
                return;
            }
            Err(RecvTimeoutError::Timeout) if is_started => work.turn(),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

impl PoolUpkeep {
    /// How long nothing needs to be done.
    fn tick(&self) -> Duration {
        let (often, seldom) = SPACE_AGE;
        let is_wanted = self.pool.file_system().take_wanted();
        let tick = if is_wanted { often } else { seldom };
        tick.min(self.shared.limits.probe_interval)
    }

    /// One look at everything that is due.
    fn turn(&mut self) {
        let pool = Arc::clone(&self.pool);
        if pool.mode() == PoolMode::Disabled {
            self.close("it is disabled".to_owned());
            return;
        }
        let now = Instant::now();
        match &self.stage {
            Stage::Closed if now >= self.next_probe => self.take_up(),
            Stage::Opened(_) if now >= self.next_probe => {
                self.look();
                if matches!(self.stage, Stage::Opened(_)) {
                    self.take_up();
                }
            }
            Stage::Closed | Stage::Opened(_) => {}
            Stage::Ready { .. } => self.keep(now),
        }
    }

    /// What a pool in use needs.
    fn keep(&mut self, now: Instant) {
        let pool = Arc::clone(&self.pool);
        let health = &pool.health;
        let looked = health.during(DiskThread::Upkeep, || pool.look_at_free_space());
        if let Err(why) = looked
            && pool.condition().takes_files()
        {
            health.unprepared(&pool.name, format!("its free space is not known: {why}"));
        }
        if health.take_suspicion() {
            health.judge_no_room(&pool.name, pool.view().free.0 > 0);
            self.next_look = now;
        }
        if now >= self.next_look {
            self.next_look = now + LOOK_INTERVAL;
            self.look();
        }
        match pool.condition() {
            PoolCondition::ReadOnly { .. } if now >= self.next_probe => self.probe(),
            PoolCondition::ReadOnly { .. } | PoolCondition::Away { .. } => return,
            PoolCondition::Sound | PoolCondition::Silent { .. } => {
                self.next_probe = now + self.probe_interval();
            }
        }
        if now >= self.next_mark
            && let Some(marker) = pool.marker.get()
            && let Err(why) = self.with_space(|| marker.refresh())
        {
            health.unprepared(&pool.name, format!("pool.json: {why}"));
        }
        if now >= self.next_mark {
            self.next_mark = now + LOOK_INTERVAL;
        }
        if now >= self.next_sweep {
            self.next_sweep = now + QUARANTINE_INTERVAL;
            let (kept, now) = (self.shared.limits.quarantine, self.shared.clock.now());
            let swept = health.during(DiskThread::Upkeep, || pool.expire_quarantine(kept, now));
            if let Err(why) = swept {
                tracing::error!(pool = %pool.name, %why, "the quarantine cannot be read");
            }
        }
    }

    fn probe_interval(&self) -> Duration {
        let relapses = self.pool.health.relapses();
        probe_interval(self.shared.limits.probe_interval, relapses)
    }

    /// Opens the pool; `false`: it is not to be had now.
    fn inspect(&mut self) -> Result<bool, OpenError> {
        let pool = Arc::clone(&self.pool);
        self.next_probe = Instant::now() + self.shared.limits.probe_interval;
        if pool.mode() == PoolMode::Disabled {
            self.close("it is disabled".to_owned());
            return Ok(false);
        }
        let is_known = self.shared.known.contains(&pool.name) || pool.marker.get().is_some();
        let inspected = pool.health.during(DiskThread::Upkeep, || {
            let opened = pool_opening::inspect(&self.shared.namespace, &pool, is_known)?;
            if !opened.is_new() {
                self.place()
                    .map_err(|why| PoolRefusal::Away(why.to_string()))?;
            }
            Ok(opened)
        });
        match inspected {
            Ok(opened) => {
                pool.set_ours(!opened.is_new());
                self.stage = Stage::Opened(opened);
                Ok(true)
            }
            Err(PoolRefusal::Away(why)) => {
                self.close(why);
                Ok(false)
            }
            Err(PoolRefusal::Wrong(why)) => {
                self.close(why.to_string());
                Err(why)
            }
        }
    }

    /// Makes a pool that was opened ready. Errors: something is wrong that no disk can mend.
    fn prepare(&mut self) -> Result<Leftovers, OpenError> {
        let Stage::Opened(mut opened) = std::mem::replace(&mut self.stage, Stage::Closed) else {
            return Ok(Leftovers::default());
        };
        let (pool, shared) = (Arc::clone(&self.pool), Arc::clone(&self.shared));
        let was_new = opened.is_new();
        let mut attempt = || {
            let now = shared.clock.recorded();
            let leftovers = pool_opening::prepare(&shared.namespace, &pool, &mut opened, now)?;
            self.place()?;
            let uploads = &shared.uploads;
            let restored = uploads.restore(&shared.namespace, &pool, &shared.clock);
            restored.map_err(|why| directory_error(&pool, pool.directory.join("partial"), why))?;
            let namespace = &shared.namespace;
            let kept = namespace.keep_directory_log(&pool.name, &pool.directory);
            kept.map_err(OpenError::Thread)?;
            Ok(leftovers)
        };
        let mut attempt = || pool.health.during(DiskThread::Upkeep, &mut attempt);
        let prepared = match shared.reaper.get() {
            Some(reaper) => reaper.with_space_where(&pool, full_by, &mut attempt),
            None => attempt(),
        };
        match prepared {
            Ok(leftovers) => {
                pool.set_ours(true);
                self.stage = Stage::Ready { _opened: opened };
                pool.health.set(&pool.name, PoolCondition::Sound);
                Ok(leftovers)
            }
            Err(why @ OpenError::PoolDirectory { .. }) if !was_new => {
                self.stage = Stage::Opened(opened);
                pool.health.unprepared(&pool.name, why.to_string());
                if full_by(&why).is_some() && shared.reaper.get().is_none() {
                    // At a start nothing can give way yet.
                    self.next_probe = Instant::now();
                }
                Ok(Leftovers::default())
            }
            Err(why) => {
                self.close(why.to_string());
                Err(why)
            }
        }
    }

    /// Does what the disk may refuse for want of room; trash gives way to it.
    fn with_space(&self, attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        let (pool, mut attempt) = (&self.pool, attempt);
        let mut attempt = || pool.health.during(DiskThread::Upkeep, &mut attempt);
        match self.shared.reaper.get() {
            Some(reaper) => reaper.with_space(pool, attempt),
            None => attempt(),
        }
    }

    /// Finds out on which file system the pool is, and what that has free.
    fn place(&self) -> Result<(), OpenError> {
        let pool = &self.pool;
        let device = std::fs::metadata(&pool.directory)
            .map_err(|why| directory_error(pool, pool.directory.clone(), why))?
            .dev();
        let mut known = self.shared.file_systems.lock();
        let file_system = Arc::clone(known.entry(device).or_default());
        drop(known);
        pool.is_on(file_system);
        pool.look_at_free_space()
            .map_err(|why| directory_error(pool, pool.directory.clone(), why))
    }

    /// Tries to use a pool that was away, or could not be made ready.
    fn take_up(&mut self) {
        let is_there = match &self.stage {
            Stage::Opened(_) => Ok(true),
            Stage::Closed | Stage::Ready { .. } => self.inspect(),
        };
        self.next_probe = Instant::now() + self.shared.limits.probe_interval;
        // What is wrong is in the pool's condition.
        if let Ok(true) = is_there
            && let Ok(_) = self.prepare()
            && let Some(reaper) = self.shared.reaper.get()
        {
            reaper.look_again();
        }
    }

    /// Looks whether the pool is still there.
    fn look(&mut self) {
        let pool = Arc::clone(&self.pool);
        let there = |path: &std::path::Path| {
            let found = pool
                .health
                .during(DiskThread::Upkeep, || std::fs::metadata(path));
            found.map(drop)
        };
        let identity = identity_path(&pool.directory);
        if let Err(why) = there(&identity) {
            let identity = identity.display();
            self.close(match why.kind() {
                io::ErrorKind::NotFound => {
                    format!("{identity} is missing; is its disk mounted?")
                }
                _ => format!("{identity} cannot be read: {why}"),
            });
            return;
        }
        for path in [pool.directory.join("incoming"), pool.data_root()] {
            if let Err(why) = there(&path)
                && pool.condition().takes_files()
            {
                let why = format!("{}: {why}", path.display());
                pool.health.unprepared(&pool.name, why);
            }
        }
    }

    /// Tries whether files can be written.
    fn probe(&mut self) {
        let pool = Arc::clone(&self.pool);
        match self.with_space(|| write_test_file(&pool)) {
            Ok(()) => {
                pool.health.set(&pool.name, PoolCondition::Sound);
                if let Some(reaper) = self.shared.reaper.get() {
                    reaper.look_again();
                }
            }
            Err(why) => {
                tracing::warn!(pool = %pool.name, %why, "the pool cannot be written yet");
            }
        }
        self.next_probe = Instant::now() + self.probe_interval();
    }

    fn close(&mut self, why: String) {
        if !matches!(self.stage, Stage::Closed) {
            self.shared.namespace.leave_directory_log(&self.pool.name);
        }
        self.pool.set_ours(false);
        self.stage = Stage::Closed;
        let condition = PoolCondition::Away { why };
        self.pool.health.set(&self.pool.name, condition);
    }

    /// Leaves the last mark.
    fn stop(&mut self) {
        if matches!(self.stage, Stage::Ready { .. })
            && let Some(marker) = self.pool.marker.get()
            && let Err(why) = marker.refresh()
        {
            tracing::warn!(pool = %self.pool.name, %why, "the pool's last mark could not be written");
        }
    }
}

/// Whether a pool is in order but full, and why.
fn full_by(why: &OpenError) -> Option<Fullness> {
    match why {
        OpenError::PoolDirectory { source, .. } => fullness(source),
        _ => None,
    }
}

/// Writes, syncs, places and reads a small file, by the same steps as any other.
fn write_test_file(pool: &Pool) -> io::Result<()> {
    pool_opening::make_layout(pool, false)?;
    if let Some(marker) = pool.marker.get() {
        marker.write()?;
    }
    let incoming = pool.directory.join("incoming").join("write-test");
    let placed = pool.data_root().join("write-test");
    let bytes = [0xA5; TEST_BYTES];
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    let mut file = options.open(&incoming)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(&incoming, &placed)?;
    crate::pool::sync_directory(&pool.data_root())?;
    let mut read = [0; TEST_BYTES];
    File::open(&placed)?.read_exact_at(&mut read, 0)?;
    std::fs::remove_file(&placed)?;
    match read == bytes {
        true => Ok(()),
        false => Err(io::Error::other(
            "a test file has other bytes than were written",
        )),
    }
}
