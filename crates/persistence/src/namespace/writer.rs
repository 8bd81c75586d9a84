//! The one thread that writes. It takes whatever waits, makes it in one transaction, commits, then
//! answers everyone.

use super::change::{Batch, Change, ChangeError, Changed};
use super::schema;
use rusqlite::Connection;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Changes that may wait. Beyond, callers are told to try again rather than pile up.
const QUEUE_MAX: usize = 16_384;
/// Changes in one transaction: enough to make the `fsync` cheap, few enough to answer within some
/// milliseconds.
const BATCH_MAX: usize = 512;
/// Ids are reserved this far ahead, so that few commits have to write the mark.
const IDS_AHEAD: u64 = 10_000;

pub(super) type Reply = Box<dyn FnOnce(Result<Changed, ChangeError>) + Send>;

struct Request {
    change: Change,
    reply: Reply,
}

/// What the writer has done since the start.
#[derive(Debug, Default)]
pub(super) struct Done {
    submitted: AtomicU64,
    answered: AtomicU64,
    batches: AtomicU64,
}

/// What a namespace's writer has done since the start, and what waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterCounts {
    /// Changes that were made or refused.
    pub changes: u64,
    /// Transactions that they shared.
    pub batches: u64,
    /// Changes that wait or are being made.
    pub queued: u64,
}

/// The door to the writer's thread. Dropping it ends the thread after the last queued change.
pub(super) struct Writer {
    queue: Option<SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
    done: Arc<Done>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        ids_below: u64,
        next_id: Arc<AtomicU64>,
    ) -> io::Result<Writer> {
        let (queue, requests) = sync_channel(QUEUE_MAX);
        connection.set_prepared_statement_cache_capacity(64);
        let done = Arc::new(Done::default());
        let counted = Arc::clone(&done);
        let thread = std::thread::Builder::new()
            .name("namespace-writer".to_owned())
            .spawn(move || run(&connection, &requests, ids_below, &next_id, &counted))?;
        Ok(Writer {
            queue: Some(queue),
            thread: Some(thread),
            done,
        })
    }

    pub(super) fn counts(&self) -> WriterCounts {
        // In this order, so that what waits is never fewer than none.
        let changes = self.done.answered.load(Ordering::Acquire);
        let submitted = self.done.submitted.load(Ordering::Relaxed);
        WriterCounts {
            changes,
            batches: self.done.batches.load(Ordering::Relaxed),
            queued: submitted.saturating_sub(changes),
        }
    }

    pub(super) fn submit(&self, change: Change, reply: Reply) {
        let request = Request { change, reply };
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

fn run(
    connection: &Connection,
    requests: &Receiver<Request>,
    mut ids_below: u64,
    next_id: &AtomicU64,
    done: &Done,
) {
    while let Ok(first) = requests.recv() {
        let mut batch = vec![first];
        batch.extend(requests.try_iter().take(BATCH_MAX - 1));
        let changes: Vec<&Change> = batch.iter().map(|request| &request.change).collect();
        let results = match commit(connection, &changes, &mut ids_below, next_id) {
            Ok(results) => results,
            // One change broke the transaction of all. Alone, each shows whether it was the one.
            Err(_) if batch.len() > 1 => batch
                .iter()
                .map(|request| {
                    commit(connection, &[&request.change], &mut ids_below, next_id)
                        .map_or_else(Err, |mut results| results.swap_remove(0))
                })
                .collect(),
            Err(error) => vec![Err(error)],
        };
        done.batches.fetch_add(1, Ordering::Relaxed);
        done.answered
            .fetch_add(batch.len() as u64, Ordering::Release);
        for (request, result) in batch.into_iter().zip(results) {
            (request.reply)(result);
        }
    }
}

/// Makes all changes in one transaction. A refused change is one of the results; an error means that
/// nothing was kept.
fn commit(
    connection: &Connection,
    changes: &[&Change],
    ids_below: &mut u64,
    next_id: &AtomicU64,
) -> Result<Vec<Result<Changed, ChangeError>>, ChangeError> {
    // Dropped without commit, it rolls back.
    let transaction = connection.unchecked_transaction()?;
    let mut batch = Batch::new(&transaction, next_id);
    let mut results = Vec::with_capacity(changes.len());
    for change in changes {
        match batch.make(change) {
            Err(ChangeError::Database(error)) => return Err(ChangeError::Database(error)),
            result => results.push(result),
        }
    }
    let id_max = batch.finish()?;
    let mut reserved = *ids_below;
    if id_max >= reserved {
        // Ids that were given out meanwhile for files still being written lie below the new mark, too.
        reserved = id_max.max(next_id.load(Ordering::Relaxed)) + IDS_AHEAD;
        schema::set_meta(&transaction, "ids_below", &reserved.to_string())?;
    }
    transaction.commit()?;
    *ids_below = reserved;
    Ok(results)
}
