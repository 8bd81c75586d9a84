//! The one thread that writes. It takes whatever waits, makes it in one transaction, commits, tells the directory logs, then
//! answers everyone. The next transaction waits for that: begun at once, it would hold few changes, because those who are
//! not answered yet ask for nothing.

use super::change::{Batch, BatchOutcome, CausedChange, Change, ChangeReport, KnownDirectories};
use super::change_error::ChangeError;
use super::connection::stored;
use super::directory_log::DirectoryRecord;
use super::entry_cache::{ChangedEntries, EntryCache};
use super::log_keeper::{LogWait, Logs};
use super::{NamespaceError, open_writer, schema};
use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Changes that may wait. Beyond, callers are told to try again rather than pile up.
const QUEUE_MAX: usize = 16_384;
/// Changes in one transaction: enough to make the `fsync` cheap, few enough to answer within some
/// milliseconds.
const BATCH_MAX: usize = 512;
/// The same by the rows that they change. A change that is larger is the last of its transaction.
const BATCH_WEIGHT_MAX: usize = 2_000;
/// Ids are reserved this far ahead, so that few commits have to write the mark.
const IDS_AHEAD: u64 = 10_000;
/// Between two attempts to go on after a failed commit.
const SETTLE_INTERVAL: Duration = Duration::from_secs(1);
/// Prepared statements that the writer keeps.
const STATEMENTS_KEPT: usize = 64;

pub(super) type Reply = Box<dyn FnOnce(Result<ChangeReport, ChangeError>) + Send>;

struct Request {
    change: CausedChange,
    /// When it began to wait.
    since: Instant,
    reply: Reply,
}

/// What the writer has done since the start.
#[derive(Debug, Default)]
pub(super) struct WriterCounters {
    submitted: AtomicU64,
    answered: AtomicU64,
    batches: AtomicU64,
    /// From its request to its answer, of all changes together.
    change_us: AtomicU64,
    /// In transactions.
    batch_us: AtomicU64,
    /// The database refuses what it should take.
    refuses: AtomicBool,
    /// When the transaction that is being made was begun.
    writes_since: Mutex<Option<Instant>>,
}

impl WriterCounters {
    fn set_writes_since(&self, since: Option<Instant>) {
        *self.writes_since.lock() = since;
    }

    /// Counts a transaction that lasted so long, and its changes.
    fn count(&self, batch: &[Request], lasted: Duration) {
        let microseconds = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let waited = batch
            .iter()
            .map(|request| microseconds(request.since.elapsed()));
        let waited = waited.fold(0, u64::saturating_add);
        self.change_us.fetch_add(waited, Ordering::Relaxed);
        self.batch_us
            .fetch_add(microseconds(lasted), Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.answered
            .fetch_add(batch.len() as u64, Ordering::Release);
    }

    fn counts(&self) -> WriterCounts {
        // In this order, so that what waits is never fewer than none.
        let changes = self.answered.load(Ordering::Acquire);
        let submitted = self.submitted.load(Ordering::Relaxed);
        let time = |counter: &AtomicU64| Duration::from_micros(counter.load(Ordering::Relaxed));
        let since = *self.writes_since.lock();
        WriterCounts {
            changes,
            batches: self.batches.load(Ordering::Relaxed),
            change_time: time(&self.change_us),
            batch_time: time(&self.batch_us),
            queued: submitted.saturating_sub(changes),
            refuses: self.refuses.load(Ordering::Relaxed),
            writes_for: since.map(|since| since.elapsed()),
        }
    }
}

/// Reads what a writer has done, also after the end of its namespace, which it does not keep open.
#[derive(Debug, Clone)]
pub struct WriterMeter(Arc<WriterCounters>);

impl WriterMeter {
    pub fn counts(&self) -> WriterCounts {
        self.0.counts()
    }
}

/// What a namespace's writer has done since the start, and what waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterCounts {
    /// Changes that were made or refused.
    pub changes: u64,
    /// Transactions that they shared.
    pub batches: u64,
    /// From its request to its answer, of all changes together.
    pub change_time: Duration,
    /// In transactions.
    pub batch_time: Duration,
    /// Changes that wait or are being made.
    pub queued: u64,
    /// The database has refused a change for what its disk does, and none was made since.
    pub refuses: bool,
    /// For how long the transaction that is being made has lasted; `None`: none is.
    pub writes_for: Option<Duration>,
}

/// The door to the writer's thread. Dropping it ends the thread after the last queued change.
pub(super) struct Writer {
    queue: Option<SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
    done: Arc<WriterCounters>,
}

impl Writer {
    pub(super) fn start(committing: CommitThread) -> io::Result<Writer> {
        let (queue, requests) = sync_channel(QUEUE_MAX);
        let done = Arc::new(WriterCounters::default());
        let counted = Arc::clone(&done);
        let thread = std::thread::Builder::new()
            .name("namespace-writer".to_owned())
            .spawn(move || run(committing, &requests, &counted))?;
        Ok(Writer {
            queue: Some(queue),
            thread: Some(thread),
            done,
        })
    }

    pub(super) fn is_alive(&self) -> bool {
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| !thread.is_finished())
    }

    pub(super) fn counts(&self) -> WriterCounts {
        self.done.counts()
    }

    pub(super) fn meter(&self) -> WriterMeter {
        WriterMeter(Arc::clone(&self.done))
    }

    pub(super) fn submit(&self, change: CausedChange, reply: Reply) {
        let request = Request {
            change,
            since: Instant::now(),
            reply,
        };
        self.done.submitted.fetch_add(1, Ordering::Relaxed);
        let (request, error) = match &self.queue {
            None => (request, ChangeError::Stopped),
            Some(queue) => match queue.try_send(request) {
                Ok(()) => return,
                Err(TrySendError::Full(request)) => (request, ChangeError::Busy),
                Err(TrySendError::Disconnected(request)) => (request, ChangeError::Stopped),
            },
        };
        self.done.submitted.fetch_sub(1, Ordering::Relaxed);
        (request.reply)(Err(error));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        // A panicked writer has answered nobody it should not have; its callers see `Stopped`.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What each transaction goes on counting.
pub(super) struct Counters {
    /// The next id to be given out.
    pub next_id: Arc<AtomicU64>,
    /// Ids below are set aside, durably.
    pub ids_reserved: Arc<AtomicU64>,
    /// The last number of the directory logs.
    pub log_sequence: u64,
}

/// Who is told of what a transaction changes.
pub(super) struct Observers {
    /// Hears of each row.
    pub changed: ChangedEntries,
    /// Must not hold them any longer.
    pub entries: Arc<EntryCache>,
    pub logs: Arc<Logs>,
}

/// What the thread owns.
pub(super) struct CommitThread {
    /// `None`: it was closed after a failed commit and could not be opened again yet.
    connection: Option<Connection>,
    path: PathBuf,
    counters: Counters,
    observers: Observers,
    /// What the directory logs have been told and may not have written.
    log_wait: Option<LogWait>,
    directories: KnownDirectories,
    /// What the directory logs were to be told of a commit that failed. Nothing was committed since: the database's log
    /// may hold what a restart would take for committed.
    doubtful: Option<Vec<DirectoryRecord>>,
    /// When it was last tried to settle that.
    tried: Option<Instant>,
}

/// Why a transaction did not end well.
enum Failure {
    /// Nothing was kept.
    Before(ChangeError),
    /// Its commit failed. What would have been answered, and told to the directory logs.
    AtCommit(
        rusqlite::Error,
        Vec<Result<ChangeReport, ChangeError>>,
        Vec<DirectoryRecord>,
    ),
}

fn run(mut committing: CommitThread, requests: &Receiver<Request>, done: &WriterCounters) {
    while let Some(first) = next(&mut committing, requests, done) {
        let mut weight = first.change.change.weight();
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && weight < BATCH_WEIGHT_MAX
            && let Ok(request) = requests.try_recv()
        {
            weight += request.change.change.weight();
            batch.push(request);
        }
        let changes: Vec<&CausedChange> = batch.iter().map(|request| &request.change).collect();
        let begun = Instant::now();
        done.set_writes_since(Some(begun));
        let results = committing.make(&changes);
        done.set_writes_since(None);
        let lasted = begun.elapsed();
        if results
            .iter()
            .any(|result| result.as_ref().is_err_and(ChangeError::is_of_disk))
        {
            done.refuses.store(true, Ordering::Relaxed);
        } else if results.iter().any(Result::is_ok) {
            done.refuses.store(false, Ordering::Relaxed);
        }
        done.count(&batch, lasted);
        for (request, result) in batch.into_iter().zip(results) {
            (request.reply)(result);
        }
        // Meanwhile those who were answered ask again, so that the next transaction holds many changes.
        committing.wait_for_logs();
    }
}

/// Waits for a request. While the database refuses, it is tried meanwhile, so that it is known when it is well again;
/// `None`: there are no more.
fn next(
    committing: &mut CommitThread,
    requests: &Receiver<Request>,
    done: &WriterCounters,
) -> Option<Request> {
    while done.refuses.load(Ordering::Relaxed) {
        match requests.recv_timeout(SETTLE_INTERVAL) {
            Ok(request) => return Some(request),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        done.set_writes_since(Some(Instant::now()));
        let is_settled = committing.settle();
        done.set_writes_since(None);
        if is_settled {
            done.refuses.store(false, Ordering::Relaxed);
        }
    }
    requests.recv().ok()
}

impl CommitThread {
    pub(super) fn new(
        connection: Connection,
        path: PathBuf,
        counters: Counters,
        observers: Observers,
    ) -> CommitThread {
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        CommitThread {
            connection: Some(connection),
            path,
            counters,
            observers,
            log_wait: None,
            directories: KnownDirectories::default(),
            doubtful: None,
            tried: None,
        }
    }

    /// Makes all changes, and says of each what became of it.
    fn make(&mut self, changes: &[&CausedChange]) -> Vec<Result<ChangeReport, ChangeError>> {
        let is_open = self.connection.is_some() && self.doubtful.is_none();
        if !is_open && !self.settle() {
            return refuse(changes, &ChangeError::Unsettled);
        }
        match self.commit(changes) {
            Ok(results) => results,
            // One change broke the transaction of all. Alone, each shows whether it was the one.
            Err(Failure::Before(_)) if changes.len() > 1 => {
                let alone = |change: &&CausedChange| self.make(&[*change]).swap_remove(0);
                changes.iter().map(alone).collect()
            }
            Err(Failure::Before(error)) => vec![Err(error)],
            Err(Failure::AtCommit(error, results, records)) => {
                self.doubtful = Some(records);
                self.after_failed_commit(changes, error, results)
            }
        }
    }

    /// Makes all changes in one transaction, then tells the directory logs. A refused change is one of the results.
    fn commit(
        &mut self,
        changes: &[&CausedChange],
    ) -> Result<Vec<Result<ChangeReport, ChangeError>>, Failure> {
        let before = |error: rusqlite::Error| Failure::Before(error.into());
        let connection = self.connection.as_ref();
        let connection = connection.ok_or(Failure::Before(ChangeError::Unsettled))?;
        // Of a transaction that was rolled back, or of one that the opening has made.
        self.observers.changed.take();
        // Dropped without commit, it rolls back.
        let transaction = connection.unchecked_transaction().map_err(before)?;
        // Given back only after the commit: what a transaction has made may be rolled back.
        let directories = std::mem::take(&mut self.directories);
        let mut batch = Batch::new(&transaction, &self.counters.next_id, directories);
        let mut results = Vec::with_capacity(changes.len());
        for change in changes {
            match batch.make(change) {
                Err(ChangeError::Database(error)) => {
                    return Err(Failure::Before(ChangeError::Database(error)));
                }
                result => results.push(result),
            }
        }
        let BatchOutcome {
            id_max,
            records,
            directories,
        } = batch.finish().map_err(before)?;
        let mut reserved = self.counters.ids_reserved.load(Ordering::Relaxed);
        if id_max >= reserved {
            // Ids that were given out meanwhile for files still being written lie below the new mark, too.
            let next = self.counters.next_id.load(Ordering::Relaxed);
            reserved = id_max.max(next) + IDS_AHEAD;
            let set = schema::set_meta(&transaction, "ids_below", &reserved.to_string());
            set.map_err(before)?;
        }
        if !records.is_empty() {
            let sequence = self.counters.log_sequence + records.len() as u64;
            schema::set_log_sequence(&transaction, sequence).map_err(before)?;
        }
        let entries = &self.observers.entries;
        entries.begin_commit(self.observers.changed.take());
        match transaction.commit() {
            Ok(()) => entries.end_commit(),
            // The last page, which makes all others count, was not written.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                entries.end_commit();
                return Err(before(error));
            }
            Err(error) => {
                entries.doubt();
                return Err(Failure::AtCommit(error, results, records));
            }
        }
        self.counters
            .ids_reserved
            .store(reserved, Ordering::Release);
        self.directories = directories;
        self.tell_logs(&records);
        Ok(results)
    }

    /// Tells the directory logs of what was committed.
    fn tell_logs(&mut self, records: &[DirectoryRecord]) {
        let first = self.counters.log_sequence + 1;
        self.counters.log_sequence += records.len() as u64;
        self.wait_for_logs();
        self.log_wait = self.observers.logs.append(first, records);
    }

    /// Waits until the directory logs that keep up have what they were told.
    fn wait_for_logs(&mut self) {
        if let Some(wait) = self.log_wait.take() {
            wait.finish();
        }
    }

    /// The log may hold all pages of the transaction, among them the last, although they are not known to be on the
    /// disk: a restart would take them for committed. So nobody is told anything before that is settled.
    fn after_failed_commit(
        &mut self,
        changes: &[&CausedChange],
        error: rusqlite::Error,
        results: Vec<Result<ChangeReport, ChangeError>>,
    ) -> Vec<Result<ChangeReport, ChangeError>> {
        tracing::error!(%error, "a commit of the namespace failed; its database is opened again");
        self.tried = None;
        let error = Arc::new(error);
        if !self.settle() {
            tracing::error!(
                "the namespace takes no changes until its database can be written again"
            );
            return refuse(changes, &ChangeError::Doubtful(error));
        }
        match self.holds_any(changes, &results) {
            Some(true) => results,
            Some(false) => refuse(changes, &ChangeError::Database(error)),
            None => refuse(changes, &ChangeError::Doubtful(error)),
        }
    }

    /// Opens the database again and commits something small. It takes the place of what the failed commit left in the
    /// log, unless opening has found that to be committed. True when it is settled.
    fn settle(&mut self) -> bool {
        if self
            .tried
            .is_some_and(|tried| tried.elapsed() < SETTLE_INTERVAL)
        {
            return false;
        }
        self.tried = Some(Instant::now());
        // Closed before the next is opened.
        self.connection = None;
        match reopen(&self.path, &self.observers.changed) {
            Ok((connection, log_sequence)) => {
                self.connection = Some(connection);
                let records = self.doubtful.take().unwrap_or_default();
                // Then it was committed after all.
                if log_sequence > self.counters.log_sequence {
                    self.tell_logs(&records);
                }
                self.observers.entries.trust();
                tracing::warn!("the namespace takes changes again");
                true
            }
            Err(why) => {
                tracing::error!(%why, "the namespace still takes no changes");
                false
            }
        }
    }

    /// Whether a transaction is there, by the files that it would have published; `None`: it published none.
    fn holds_any(
        &self,
        changes: &[&CausedChange],
        results: &[Result<ChangeReport, ChangeError>],
    ) -> Option<bool> {
        let published = changes.iter().zip(results).find_map(|pair| match pair {
            (caused, Ok(_)) => match &caused.change {
                Change::Publish(file) => Some(file.id),
                _ => None,
            },
            (_, Err(_)) => None,
        })?;
        let found = self.connection.as_ref()?.query_row(
            "SELECT count(*) FROM entry WHERE id = ?1",
            [stored(published)],
            |row| row.get::<_, i64>(0),
        );
        Some(found.ok()? > 0)
    }
}

fn refuse(changes: &[&CausedChange], why: &ChangeError) -> Vec<Result<ChangeReport, ChangeError>> {
    changes.iter().map(|_| Err(why.clone())).collect()
}

/// The connection, and the last number of the directory logs.
fn reopen(path: &Path, changed: &ChangedEntries) -> Result<(Connection, u64), NamespaceError> {
    let fail = |source| NamespaceError::Database {
        path: path.to_owned(),
        source,
    };
    let connection = open_writer(path, changed).map_err(fail)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    let identity = schema::prepare(&connection, path)?;
    let transaction = connection.unchecked_transaction().map_err(fail)?;
    schema::set_meta(&transaction, "settled", &Uuid::new_v4().to_string()).map_err(fail)?;
    transaction.commit().map_err(fail)?;
    // What the log holds of before was perhaps never synced; from here it is in the database. Readers may keep the
    // log from being emptied, which is no error.
    let checkpoint = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    checkpoint.map_err(fail)?;
    Ok((connection, identity.log_sequence))
}
