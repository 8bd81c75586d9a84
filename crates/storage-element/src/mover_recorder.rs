//! Writes the record of ended movers, a few times a second and off everyone's way. What a killed process
//! had not written yet is lost: at most the last quarter of a second, and never a file.

use crate::clock::BelievedClock;
use parking_lot::Mutex;
use penstock_persistence::namespace::{Change, MoverRecord, Namespace};
use penstock_protocol::told::RepeatedErrors;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Records that may wait. More are counted and dropped: movers come first.
const QUEUE_MAX: usize = 65_536;
/// Records in one change.
const BATCH_MAX: usize = 1000;
/// How long a record may wait.
const DELAY: Duration = Duration::from_millis(250);

/// The thread. Dropping it writes what is queued.
pub(crate) struct MoverRecorder {
    queue: Option<SyncSender<MoverRecord>>,
    /// Tells when they end. The next start takes the newest of them for the least that a clock may say.
    pub clock: Arc<BelievedClock>,
    dropped: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl MoverRecorder {
    pub(crate) fn start(
        namespace: Arc<Namespace>,
        clock: &Arc<BelievedClock>,
    ) -> io::Result<MoverRecorder> {
        let (queue, records) = sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("mover-recorder".to_owned())
            .spawn(move || run(&namespace, &records))?;
        Ok(MoverRecorder {
            queue: Some(queue),
            clock: Arc::clone(clock),
            dropped: AtomicU64::new(0),
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(crate) fn record(&self, record: MoverRecord) {
        let taken = self
            .queue
            .as_ref()
            .is_some_and(|queue| queue.try_send(record).is_ok());
        if !taken {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        let thread = self.thread.lock();
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Records that found the queue full since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for MoverRecorder {
    fn drop(&mut self) {
        self.queue = None;
        let thread = self.thread.get_mut();
        // A panicked recorder has lost records, nothing else.
        let _ = thread.take().map(JoinHandle::join);
    }
}

/// Waits without looking at the queue, so that nobody who ends has to wake it.
fn run(namespace: &Namespace, records: &Receiver<MoverRecord>) {
    let told = RepeatedErrors::default();
    while let Ok(first) = records.recv() {
        std::thread::sleep(DELAY);
        let mut batch = vec![first];
        loop {
            batch.extend(records.try_iter().take(BATCH_MAX - batch.len()));
            let is_full = batch.len() == BATCH_MAX;
            write(namespace, std::mem::take(&mut batch), &told);
            if !is_full {
                break;
            }
        }
    }
}

fn write(namespace: &Namespace, batch: Vec<MoverRecord>, told: &RepeatedErrors) {
    let count = batch.len();
    if count == 0 {
        return;
    }
    if let Err(why) = namespace.apply(Change::RecordMovers(batch))
        && let Some(passed_over) = told.tells(&why.to_string())
    {
        tracing::error!(%why, count, passed_over, "ended movers could not be recorded");
    }
}
