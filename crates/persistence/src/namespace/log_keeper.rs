//! Keeps the directory logs of all pools, one thread for each, so that a disk that hangs holds up nobody's change for long and
//! other pools not at all.
//!
//! The namespace's writer hands each batch to all of them after its commit, answers, and begins the next when they have
//! written it. A log that cannot be written, has missed a batch, or was found behind at the start is made anew from a
//! snapshot of the namespace; until then nothing waits for it. Nothing here is flushed before an answer: a flush follows within a second.

use super::directory_log::{DIRECTORY_LOG, DirectoryRecord, LOG_VERSION, read_log, write_line};
use super::log_snapshot::{NewSnapshot, SnapshotUse, Snapshots};
use parking_lot::{Condvar, Mutex};
use penstock_clock::wall_clock;
use penstock_durable_file::put_in_place;
use penstock_model::PoolName;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Batches that may wait for one pool. A pool that is further behind misses some and gets a snapshot later.
const QUEUE_MAX: usize = 1024;
/// How long a batch waits for a pool that does not answer. From then on the pool is not waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the start waits until a log is as it should be.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// A written log is flushed within this time.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// A log that could not be written is tried again after this time.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// A log may become so long, and so many times as long as its snapshot, before it is made anew.
const LOG_BYTES_MIN: u64 = 16 << 20;
const SNAPSHOTS_MAX: u64 = 4;
/// Numbers by which a namespace leaps when it is put back or made again: a log so far behind is kept aside.
pub(super) const SEQUENCE_LEAP: u64 = 1_000_000_000;

/// All logs. Dropping it ends their threads.
#[derive(Default)]
pub(super) struct Logs {
    pools: Mutex<Vec<PoolLog>>,
}

struct PoolLog {
    pool: PoolName,
    queue: SyncSender<Task>,
    standing: Arc<KeeperStatus>,
}

#[derive(Default)]
struct KeeperStatus {
    /// It has all that was committed.
    is_current: AtomicBool,
    /// Nothing takes its place any more.
    is_over: AtomicBool,
    /// A flush has failed: what was written before it may be lost, whatever later flushes say.
    has_lost_lines: AtomicBool,
}

enum Task {
    Batch(Batch),
    /// A snapshot for a log that has become long.
    Compacted(io::Result<NewSnapshot>),
    /// The log is to be closed.
    End,
}

/// The records of one transaction, as lines.
struct Batch {
    first: u64,
    last: u64,
    lines: Arc<str>,
    /// Whoever waits for it, and the place of this log there.
    awaited: Option<(Arc<Countdown>, usize)>,
}

impl Drop for Batch {
    /// Also when it could not be written: whoever waits goes on.
    fn drop(&mut self) {
        if let Some((awaited, place)) = &self.awaited {
            awaited.take_off(*place);
        }
    }
}

/// The logs that have not written a batch, by their places in the list of pools.
struct Countdown {
    left: Mutex<BTreeSet<usize>>,
    written: Condvar,
}

impl Countdown {
    fn take_off(&self, place: usize) {
        let mut left = self.left.lock();
        left.remove(&place);
        if left.is_empty() {
            self.written.notify_all();
        }
    }

    /// Waits until none is left, or until that time; gives those that are left.
    fn wait(&self, until: Instant) -> BTreeSet<usize> {
        let mut left = self.left.lock();
        while !left.is_empty() && !self.written.wait_until(&mut left, until).timed_out() {}
        left.clone()
    }
}

/// A batch that the logs are writing.
pub(super) struct LogWait {
    countdown: Arc<Countdown>,
    /// Of all logs, by their places.
    standings: Vec<Arc<KeeperStatus>>,
    until: Instant,
}

impl LogWait {
    /// Waits until those that keep up have written it. The others come back when they have; nobody waits for them before.
    pub(super) fn finish(self) {
        for place in self.countdown.wait(self.until) {
            let standing = &self.standings[place];
            standing.is_current.store(false, Ordering::Release);
        }
    }
}

impl Logs {
    /// Hands the records of a committed transaction to all pools. `None`: there is nothing to be waited for.
    pub(super) fn append(&self, first: u64, records: &[DirectoryRecord]) -> Option<LogWait> {
        let pools = self.pools.lock();
        if pools.is_empty() || records.is_empty() {
            return None;
        }
        let mut lines = String::with_capacity(records.len() * 160);
        for (sequence, record) in (first..).zip(records) {
            write_line(&mut lines, sequence, record);
        }
        let lines: Arc<str> = lines.into();
        let is_current = |place: &usize| pools[*place].standing.is_current.load(Ordering::Acquire);
        let current: BTreeSet<usize> = (0..pools.len()).filter(is_current).collect();
        let countdown = Arc::new(Countdown {
            left: Mutex::new(current.clone()),
            written: Condvar::new(),
        });
        for (place, log) in pools.iter().enumerate() {
            let is_current = current.contains(&place);
            let batch = Batch {
                first,
                last: first + records.len() as u64 - 1,
                lines: Arc::clone(&lines),
                awaited: is_current.then(|| (Arc::clone(&countdown), place)),
            };
            // One that has no room is dropped here; its thread notices by the numbers.
            if log.queue.try_send(Task::Batch(batch)).is_err() {
                log.standing.is_current.store(false, Ordering::Release);
            }
        }
        Some(LogWait {
            countdown,
            standings: pools.iter().map(|log| Arc::clone(&log.standing)).collect(),
            until: Instant::now() + PATIENCE,
        })
    }

    /// Begins to keep the log of a pool, and waits a moment until it is as it should be.
    pub(super) fn keep(
        &self,
        database: &Path,
        namespace: Uuid,
        pool: PoolName,
        directory: &Path,
    ) -> io::Result<()> {
        let (queue, tasks) = sync_channel(QUEUE_MAX);
        let standing = Arc::new(KeeperStatus::default());
        let keeper = Keeper {
            standing: Arc::clone(&standing),
            snapshots: Snapshots {
                database: database.to_owned(),
                namespace,
                pool: pool.clone(),
                path: directory.join(DIRECTORY_LOG),
            },
            path: directory.join(DIRECTORY_LOG),
            open: None,
            compaction: None,
            is_compacting: false,
            retry_at: None,
            is_syncing: Arc::default(),
        };
        let log = PoolLog {
            pool: pool.clone(),
            queue: queue.clone(),
            standing: Arc::clone(&standing),
        };
        // Before its thread looks at the namespace, so that nothing is committed in between unheard.
        let mut pools = self.pools.lock();
        pools.retain(|other| other.pool != pool);
        pools.push(log);
        drop(pools);
        let own_queue = queue;
        std::thread::Builder::new()
            .name("directory-log".to_owned())
            .spawn(move || keeper.run(&tasks, own_queue))?;
        let until = Instant::now() + START_PATIENCE;
        while !standing.is_current.load(Ordering::Acquire) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Logs {
    /// Ends the log of a pool.
    pub(super) fn leave(&self, pool: &PoolName) {
        let mut pools = self.pools.lock();
        pools.retain(|log| log.pool != *pool);
    }
}

impl Drop for PoolLog {
    fn drop(&mut self) {
        self.standing.is_over.store(true, Ordering::Release);
        // With a full queue it looks when it has written the next.
        let _ = self.queue.try_send(Task::End);
    }
}

/// One pool's thread.
struct Keeper {
    standing: Arc<KeeperStatus>,
    snapshots: Snapshots,
    path: PathBuf,
    open: Option<OpenLog>,
    /// A snapshot is being made: where the log ended when that began.
    compaction: Option<u64>,
    /// Also one that is not wanted any more, because the log was made anew meanwhile.
    is_compacting: bool,
    /// When a log that could not be made is tried again.
    retry_at: Option<Instant>,
    is_syncing: Arc<AtomicBool>,
}

struct OpenLog {
    file: File,
    sequence: u64,
    bytes: u64,
    snapshot_bytes: u64,
    is_unsynced: bool,
}

impl Keeper {
    fn run(mut self, tasks: &Receiver<Task>, queue: SyncSender<Task>) {
        // Only to be handed on: this thread's own must not keep it alive.
        let mut queue = Some(queue);
        self.begin();
        loop {
            let task = tasks.recv_timeout(SYNC_INTERVAL);
            if self.standing.is_over.load(Ordering::Acquire) {
                return;
            }
            match task {
                Ok(Task::Batch(batch)) => self.take(&batch),
                Ok(Task::Compacted(fresh)) => self.compacted(fresh),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Task::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
            let has_lost_lines = self.standing.has_lost_lines.swap(false, Ordering::AcqRel);
            let is_due = self.retry_at.is_some_and(|at| Instant::now() >= at);
            if has_lost_lines || is_due {
                self.begin_anew();
            }
            self.sync_soon();
            if let Some(queue) = &mut queue {
                self.compact_when_long(queue);
            }
        }
    }

    fn begin(&mut self) {
        match self.existing() {
            Ok(Some(open)) => self.be_current(open),
            Ok(None) => self.begin_anew(),
            Err(why) => {
                let (pool, path) = (&self.snapshots.pool, self.path.display());
                tracing::warn!(%pool, %path, %why, "the directory log cannot be read; it is rebuilt");
                self.begin_anew();
            }
        }
    }

    fn be_current(&mut self, open: OpenLog) {
        self.open = Some(open);
        self.standing.is_current.store(true, Ordering::Release);
    }

    /// The log that is there, if it tells all that the namespace knows.
    fn existing(&self) -> io::Result<Option<OpenLog>> {
        let condition = match read_log(&self.path, |_, _, _| ()) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            condition => condition?,
        };
        let known = self.snapshots.sequence()?;
        let ours = (self.snapshots.namespace, self.snapshots.pool.clone());
        // The snapshot of an older form lacks something.
        let is_of_now = condition.version == LOG_VERSION && condition.sequence == known;
        if condition.of == Some(ours) && condition.is_sound() && is_of_now {
            let mut file = OpenOptions::new().append(true).open(&self.path)?;
            let bytes = file.seek(SeekFrom::End(0))?;
            return Ok(Some(OpenLog {
                file,
                sequence: condition.sequence,
                bytes,
                snapshot_bytes: condition.snapshot_bytes,
                is_unsynced: false,
            }));
        }
        let is_of_another_time =
            condition.sequence > known || known - condition.sequence >= SEQUENCE_LEAP / 2;
        if is_of_another_time && condition.of.is_some() {
            // Of a namespace that was put back or made again: what it tells may still be wanted.
            self.set_aside(wall_clock().0 / 1000)?;
        }
        Ok(None)
    }

    /// Keeps the log under a number that no other has: seconds, or the next that is free.
    fn set_aside(&self, seconds: i64) -> io::Result<()> {
        let place = |number: i64| self.path.with_extension(format!("log.before-{number}"));
        let mut number = seconds;
        while place(number).try_exists()? {
            number += 1;
        }
        std::fs::rename(&self.path, place(number))
    }

    /// Makes the log from a snapshot.
    fn begin_anew(&mut self) {
        self.standing.is_current.store(false, Ordering::Release);
        (self.open, self.compaction, self.retry_at) = (None, None, None);
        let fresh = self.snapshots.take(SnapshotUse::Beginning);
        let placed = fresh.and_then(|fresh| self.put_in_place(fresh, None));
        match placed {
            Ok(open) => self.be_current(open),
            Err(why) => {
                self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
                let (pool, path) = (&self.snapshots.pool, self.path.display());
                tracing::error!(
                    %pool, %path, %why,
                    "the directory log cannot be written; the namespace could not be rebuilt from this pool alone"
                );
            }
        }
    }

    fn put_in_place(&self, fresh: NewSnapshot, tail: Option<(&Path, u64)>) -> io::Result<OpenLog> {
        let NewSnapshot {
            part,
            mut file,
            mut sequence,
            bytes: snapshot_bytes,
        } = fresh;
        let mut bytes = snapshot_bytes;
        if let Some((old, from)) = tail {
            // What was written meanwhile, apart from what the snapshot has.
            let mut old = File::open(old)?;
            old.seek(SeekFrom::Start(from))?;
            for line in BufReader::new(old).split(b'\n') {
                let line = line?;
                let number = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
                let number = std::str::from_utf8(number)
                    .ok()
                    .and_then(|text| text.parse().ok());
                let Some(number) = number.filter(|number: &u64| *number > sequence) else {
                    continue;
                };
                let line = [&line[..], b"\n"].concat();
                file.write_all(&line)?;
                bytes += line.len() as u64;
                sequence = number;
            }
        }
        if self.standing.is_over.load(Ordering::Acquire) {
            return Err(io::Error::other("the namespace was closed"));
        }
        if bytes > snapshot_bytes {
            // These lines are durable in the log that it replaces.
            file.sync_data()?;
        }
        put_in_place(&part, &self.path)?;
        Ok(OpenLog {
            file,
            sequence,
            bytes,
            snapshot_bytes,
            is_unsynced: true,
        })
    }

    fn take(&mut self, batch: &Batch) {
        if self.open.is_none() {
            // It is tried again in time, and has all of this then.
            return;
        }
        let open = self.open.as_mut().expect("looked at before");
        if batch.last <= open.sequence {
            return;
        }
        if batch.first != open.sequence + 1 {
            return self.begin_anew();
        }
        match open.file.write_all(batch.lines.as_bytes()) {
            Ok(()) => {
                open.sequence = batch.last;
                open.bytes += batch.lines.len() as u64;
                open.is_unsynced = true;
                self.standing.is_current.store(true, Ordering::Release);
            }
            Err(why) => {
                let (pool, path) = (&self.snapshots.pool, self.path.display());
                tracing::error!(%pool, %path, %why, "the directory log cannot be written; it will be rebuilt as soon as possible");
                self.standing.is_current.store(false, Ordering::Release);
                self.open = None;
                self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
            }
        }
    }

    /// Flushes on a thread of its own: no batch waits for the disk.
    fn sync_soon(&mut self) {
        let Some(open) = self.open.as_mut().filter(|open| open.is_unsynced) else {
            return;
        };
        if self.is_syncing.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_syncing = Arc::clone(&self.is_syncing);
        let Ok(file) = open.file.try_clone() else {
            is_syncing.store(false, Ordering::Release);
            return;
        };
        open.is_unsynced = false;
        let syncing = std::thread::Builder::new().name("log-sync".to_owned());
        let spawned = syncing.spawn({
            let is_syncing = Arc::clone(&is_syncing);
            let standing = Arc::clone(&self.standing);
            let path = self.path.clone();
            move || {
                if let Err(why) = file.sync_data() {
                    let path = path.display();
                    tracing::error!(%path, %why, "the directory log could not be flushed; it is rebuilt");
                    standing.has_lost_lines.store(true, Ordering::Release);
                }
                // Not more often than this.
                std::thread::sleep(SYNC_INTERVAL / 2);
                is_syncing.store(false, Ordering::Release);
            }
        });
        if spawned.is_err() {
            open.is_unsynced = true;
            is_syncing.store(false, Ordering::Release);
        }
    }

    /// Has a snapshot made beside the log that has become long.
    fn compact_when_long(&mut self, queue: &mut SyncSender<Task>) {
        let Some(open) = &self.open else {
            return;
        };
        let long = LOG_BYTES_MIN.max(open.snapshot_bytes * SNAPSHOTS_MAX);
        if self.is_compacting || open.bytes <= long {
            return;
        }
        (self.compaction, self.is_compacting) = (Some(open.bytes), true);
        let (snapshots, queue) = (self.snapshots.clone(), queue.clone());
        let making = std::thread::Builder::new().name("log-snapshot".to_owned());
        let made = making.spawn(move || {
            // A closed queue: nobody wants it any more.
            let _ = queue.send(Task::Compacted(snapshots.take(SnapshotUse::Compaction)));
        });
        if made.is_err() {
            (self.compaction, self.is_compacting) = (None, false);
        }
    }

    fn compacted(&mut self, fresh: io::Result<NewSnapshot>) {
        self.is_compacting = false;
        let Some(from) = self.compaction.take() else {
            return;
        };
        let pool = self.snapshots.pool.clone();
        let fresh = match fresh {
            Ok(fresh) => fresh,
            Err(why) => {
                tracing::warn!(%pool, %why, "a long directory log could not be compacted; it continues to grow");
                if let Some(open) = &mut self.open {
                    // Tried again when it is twice as long.
                    open.snapshot_bytes = open.bytes / 2;
                }
                return;
            }
        };
        match self.put_in_place(fresh, Some((&self.path, from))) {
            Ok(open) => self.open = Some(open),
            // Which of the two has the name, and whether it stays so, is not known: what is written to the one that is
            // open may be lost.
            Err(why) => {
                tracing::warn!(%pool, %why, "a directory log could not be replaced by a shorter one; it is rebuilt");
                self.begin_anew();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Namespace;

    fn keeper(directory: &Path) -> Keeper {
        let database = directory.join("namespace.sqlite");
        let namespace = Namespace::open(&database).expect("a namespace").uuid();
        let path = directory.join(DIRECTORY_LOG);
        Keeper {
            standing: Arc::default(),
            snapshots: Snapshots {
                database,
                namespace,
                pool: PoolName::new("a"),
                path: path.clone(),
            },
            path,
            open: None,
            compaction: None,
            is_compacting: false,
            retry_at: None,
            is_syncing: Arc::default(),
        }
    }

    #[test]
    fn a_log_made_anew_is_not_touched_by_a_compaction_that_was_begun_before() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut keeper = keeper(directory.path());
        keeper.begin_anew();
        keeper.compaction = Some(0);
        keeper.is_compacting = true;
        // Its thread has begun to write when the log is made anew, and goes on afterwards.
        let mut fresh = keeper
            .snapshots
            .take(SnapshotUse::Compaction)
            .expect("taken");
        keeper.begin_anew();
        fresh
            .file
            .write_all(b"more of the snapshot\n")
            .expect("written");
        let condition = read_log(&keeper.path, |_, _, _| ()).expect("a log");
        assert!(condition.is_sound());
        // Nor does its end count as that of another.
        let (queue, _tasks) = sync_channel(1);
        keeper.open.as_mut().expect("made").bytes = u64::MAX / 8;
        keeper.compact_when_long(&mut queue.clone());
        assert_eq!(keeper.compaction, None);
        keeper.compacted(Ok(fresh));
        let condition = read_log(&keeper.path, |_, _, _| ()).expect("a log");
        assert!(condition.is_sound() && !keeper.is_compacting);
    }

    #[test]
    fn a_log_that_could_not_be_replaced_is_not_written_any_more() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut keeper = keeper(directory.path());
        keeper.begin_anew();
        keeper.compaction = Some(0);
        let fresh = keeper.snapshots.take(SnapshotUse::Compaction);
        // What has its name cannot be replaced.
        std::fs::remove_file(&keeper.path).expect("removed");
        std::fs::create_dir_all(keeper.path.join("full")).expect("made");
        keeper.compaction = Some(0);
        keeper.compacted(fresh);
        assert!(keeper.open.is_none() && !keeper.standing.is_current.load(Ordering::Acquire));
        std::fs::remove_dir_all(&keeper.path).expect("removed");
        keeper.begin_anew();
        let condition = read_log(&keeper.path, |_, _, _| ()).expect("a log");
        assert!(condition.is_sound() && keeper.open.is_some());
    }

    #[test]
    fn logs_that_are_set_aside_in_one_second_are_all_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let keeper = keeper(directory.path());
        for text in ["first", "second", "third"] {
            std::fs::write(&keeper.path, text).expect("written");
            keeper.set_aside(5).expect("kept");
        }
        let kept = [5, 6, 7].map(|number| {
            let path = keeper.path.with_extension(format!("log.before-{number}"));
            std::fs::read_to_string(path).expect("kept")
        });
        assert_eq!(kept, ["first", "second", "third"]);
    }

    #[test]
    fn only_a_log_that_has_not_written_a_batch_is_waited_for_no_more() {
        let countdown = Arc::new(Countdown {
            left: Mutex::new(BTreeSet::from([0, 2])),
            written: Condvar::new(),
        });
        let batch = |place| Batch {
            first: 1,
            last: 1,
            lines: "".into(),
            awaited: Some((Arc::clone(&countdown), place)),
        };
        let hung = batch(2);
        drop(batch(0));
        let until = Instant::now() + Duration::from_millis(20);
        assert_eq!(countdown.wait(until), BTreeSet::from([2]));
        drop(hung);
        let until = Instant::now() + Duration::from_secs(60);
        assert!(countdown.wait(until).is_empty());
    }
}
