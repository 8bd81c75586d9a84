//! Writes what happened and is no change of the namespace: ended movers and refused requests, a few times a second and off
//! everyone's way. What a killed process had not written yet is lost: at most the last second, and never a file. The next
//! start records it as a gap, and so is recorded what found no room here.
//!
//! The same thread removes what the ledger keeps no longer, in steps between the writes.

mod allowance;

use crate::clock::BelievedClock;
use crate::config::StorageLimits;
use allowance::Allowance;
use parking_lot::Mutex;
use penstock_decide::trash::kept_since;
use penstock_model::Timestamp;
use penstock_persistence::namespace::{
    Change, ElementEvent, ElementRecord, GapCause, LedgerBound, LedgerGap, MoverRecord, Namespace,
    Refusal, RequestOrigin,
};
use penstock_protocol::told::RepeatedErrors;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What may wait. More is counted and dropped: movers come first.
const QUEUE_MAX: usize = 65_536;
/// What is written at once.
const BATCH_MAX: usize = 1000;
/// How long something may wait.
const DELAY: Duration = Duration::from_millis(250);
/// Between two looks at what is kept no longer, while nothing is.
const PRUNE_INTERVAL: Duration = Duration::from_secs(10);
/// After a step of removal its time is left to others so often.
const PRUNE_PAUSES: u32 = 20;
/// The shortest pause between two steps.
const PRUNE_PAUSE_MIN: Duration = Duration::from_millis(50);
/// Letters of a refusal's line that are kept.
const DETAIL_CHARS_MAX: usize = 300;
/// Letters of its method.
const METHOD_CHARS_MAX: usize = 32;
/// Bytes of its path: of a longer one the directories at the front are kept. Anybody can name a path.
const PATH_BYTES_MAX: usize = 300;
/// Between two gaps that tell what was lost: while too much happens there is one a second.
const GAP_INTERVAL: Duration = Duration::from_secs(1);

/// How much of the ledger is kept. Both can be replaced while running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LedgerRetention {
    /// For how long; `None`: for ever.
    pub keep: Option<Duration>,
    /// How much at most.
    pub records_max: u64,
}

impl LedgerRetention {
    pub(crate) fn of(limits: &StorageLimits) -> LedgerRetention {
        LedgerRetention {
            keep: limits.ledger,
            records_max: limits.ledger_records_max,
        }
    }
}

/// Something to be written.
enum Note {
    Mover(Box<MoverRecord>),
    Refusal(ElementRecord),
}

/// What is written at once.
#[derive(Default)]
struct NotedBatch {
    movers: Vec<MoverRecord>,
    refusals: Vec<ElementRecord>,
    /// From then on some are missing, should they not be written.
    oldest_mover: Option<Timestamp>,
    oldest_refusal: Option<Timestamp>,
}

impl NotedBatch {
    fn of(notes: Vec<Note>) -> NotedBatch {
        let mut batch = NotedBatch::default();
        let earlier =
            |oldest: Option<Timestamp>, at| Some(oldest.map_or(at, |known| known.min(at)));
        for note in notes {
            match note {
                Note::Mover(mover) => {
                    batch.oldest_mover = earlier(batch.oldest_mover, mover.at);
                    batch.movers.push(*mover);
                }
                Note::Refusal(record) => {
                    batch.oldest_refusal = earlier(batch.oldest_refusal, record.at);
                    batch.refusals.push(record);
                }
            }
        }
        batch
    }
}

/// The thread. Dropping it writes what is queued.
pub(crate) struct Recorder {
    queue: Option<SyncSender<Note>>,
    /// Tells when something happened. The next start takes the newest of it for the least that a clock may say.
    pub clock: Arc<BelievedClock>,
    movers_dropped: AtomicU64,
    refusals: Mutex<Allowance>,
    shared: Arc<RecorderContext>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct RecorderContext {
    namespace: Arc<Namespace>,
    clock: Arc<BelievedClock>,
    retention: Mutex<LedgerRetention>,
    /// What was lost and is not told yet.
    losses: Mutex<Losses>,
    /// Keeps a full disk from filling the log.
    told: RepeatedErrors,
}

/// What was lost and is not told yet: one thing for each cause.
#[derive(Default)]
struct Losses {
    all: Vec<Loss>,
    /// When the last of it was told.
    told: Option<Instant>,
}

impl Losses {
    fn is_due(&self) -> bool {
        self.told.is_none_or(|told| told.elapsed() >= GAP_INTERVAL)
    }

    /// What is to be told now.
    fn take(&mut self) -> Vec<Loss> {
        if !self.all.is_empty() {
            self.told = Some(Instant::now());
        }
        std::mem::take(&mut self.all)
    }
}

/// Things that are not in the ledger.
struct Loss {
    cause: GapCause,
    from: Timestamp,
    count: u64,
}

impl Recorder {
    pub(crate) fn start(
        namespace: Arc<Namespace>,
        clock: &Arc<BelievedClock>,
        retention: LedgerRetention,
    ) -> io::Result<Recorder> {
        let (queue, notes) = sync_channel(QUEUE_MAX);
        let shared = Arc::new(RecorderContext {
            namespace,
            clock: Arc::clone(clock),
            retention: Mutex::new(retention),
            losses: Mutex::default(),
            told: RepeatedErrors::default(),
        });
        let context = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || context.run(&notes))?;
        Ok(Recorder {
            queue: Some(queue),
            clock: Arc::clone(clock),
            movers_dropped: AtomicU64::new(0),
            refusals: Mutex::new(Allowance::full(Instant::now())),
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Records an ended mover. Never blocks.
    pub(crate) fn record(&self, record: MoverRecord) {
        if !self.queued(Note::Mover(Box::new(record))) {
            self.movers_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records a refused request. Never blocks. Whoever is refused all the time fills no disk by that: beyond some a second
    /// they are only counted.
    pub(crate) fn refuse(&self, origin: RequestOrigin, refusal: Refusal) {
        let at = self.clock.recorded();
        if !self.refusals.lock().takes(Instant::now()) {
            self.shared.lost(GapCause::Overload, at, 1);
            return;
        }
        self.queued(Note::Refusal(ElementRecord {
            at,
            origin: Arc::new(origin),
            event: ElementEvent::Refused(shortened(refusal)),
        }));
    }

    fn queued(&self, note: Note) -> bool {
        let queue = self.queue.as_ref();
        let is_taken = queue.is_some_and(|queue| queue.try_send(note).is_ok());
        if !is_taken {
            let at = self.clock.recorded();
            self.shared.lost(GapCause::Overload, at, 1);
        }
        is_taken
    }

    /// From now on so much is kept.
    pub(crate) fn keep(&self, retention: LedgerRetention) {
        *self.shared.retention.lock() = retention;
    }

    pub(crate) fn is_alive(&self) -> bool {
        let thread = self.thread.lock();
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ended movers that found the queue full since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.movers_dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.queue = None;
        let thread = self.thread.get_mut();
        // A panicked recorder has lost records, nothing else.
        let _ = thread.take().map(JoinHandle::join);
    }
}

impl RecorderContext {
    /// Waits without looking at the queue, so that nobody who ends has to wake it.
    fn run(&self, notes: &Receiver<Note>) {
        let mut next_step = Instant::now() + PRUNE_INTERVAL;
        loop {
            let wait = next_step.saturating_duration_since(Instant::now());
            let wait = match self.losses.lock().all.is_empty() {
                true => wait.min(PRUNE_INTERVAL),
                false => wait.min(GAP_INTERVAL),
            };
            match notes.recv_timeout(wait) {
                Ok(first) => {
                    std::thread::sleep(DELAY);
                    self.write_all(first, notes);
                }
                Err(RecvTimeoutError::Timeout) => self.write(Vec::new()),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= next_step {
                next_step = Instant::now() + self.prune_some();
            }
        }
        self.losses.lock().told = None;
        self.write(Vec::new());
        // Otherwise the next start takes this end for a crash, and tells a gap.
        if self.losses.lock().all.is_empty()
            && let Err(why) = self.namespace.apply(Change::EndLedger)
        {
            tracing::warn!(%why, "the end of the ledger could not be recorded");
        }
    }

    fn write_all(&self, first: Note, notes: &Receiver<Note>) {
        let mut batch = vec![first];
        loop {
            batch.extend(notes.try_iter().take(BATCH_MAX - batch.len()));
            let is_full = batch.len() == BATCH_MAX;
            self.write(std::mem::take(&mut batch));
            if !is_full {
                return;
            }
        }
    }

    /// Writes these, and what was lost before.
    fn write(&self, batch: Vec<Note>) {
        let NotedBatch {
            movers,
            refusals: mut records,
            oldest_mover,
            oldest_refusal,
        } = NotedBatch::of(batch);
        let losses = {
            let mut losses = self.losses.lock();
            match losses.is_due() {
                true => losses.take(),
                false => Vec::new(),
            }
        };
        let at = self.clock.recorded();
        records.extend(losses.iter().map(|loss| loss.gap(at)));
        let (refusals, ended) = (records.len() - losses.len(), movers.len());
        if records.is_empty() && movers.is_empty() {
            return;
        }
        // One transaction holds both, as a rule.
        let (reply, answer) = sync_channel(1);
        let wrote = move |written| drop(reply.send(written));
        self.namespace.submit(Change::AppendLedger(records), wrote);
        if ended > 0
            && let Err(why) = self.namespace.apply(Change::RecordMovers(movers))
        {
            if let Some(passed_over) = self.told.tells(&why.to_string()) {
                tracing::error!(%why, count = ended, passed_over, "ended movers could not be recorded");
            }
            self.lost(
                GapCause::Unwritten,
                oldest_mover.unwrap_or(at),
                ended as u64,
            );
        }
        if let Ok(Err(why)) = answer.recv() {
            if let Some(passed_over) = self.told.tells(&why.to_string()) {
                tracing::error!(%why, count = refusals, passed_over, "refusals could not be recorded");
            }
            for loss in losses {
                self.lost(loss.cause, loss.from, loss.count);
            }
            if let Some(oldest) = oldest_refusal {
                self.lost(GapCause::Unwritten, oldest, refusals as u64);
            }
        }
    }

    /// Notes that something is not in the ledger.
    fn lost(&self, cause: GapCause, at: Timestamp, count: u64) {
        let mut losses = self.losses.lock();
        match losses.all.iter_mut().find(|loss| loss.cause == cause) {
            Some(loss) => {
                loss.from = loss.from.min(at);
                loss.count += count;
            }
            None => losses.all.push(Loss {
                cause,
                from: at,
                count,
            }),
        }
    }

    /// Removes some of what is kept no longer. Gives the time until the next step.
    fn prune_some(&self) -> Duration {
        let LedgerRetention { keep, records_max } = *self.retention.lock();
        let (now, standing) = (self.clock.now(), self.clock.standing());
        let bound = LedgerBound {
            before: keep.and_then(|keep| kept_since(keep, now, standing)),
            records_max,
        };
        let since = Instant::now();
        match self.namespace.apply(Change::PruneLedger(bound)) {
            Ok(changed) if changed.pruned > 0 => {
                (since.elapsed() * PRUNE_PAUSES).max(PRUNE_PAUSE_MIN)
            }
            Ok(_) => PRUNE_INTERVAL,
            Err(why) => {
                tracing::warn!(%why, "nothing was removed from the ledger");
                PRUNE_INTERVAL
            }
        }
    }
}

/// A refusal as it is kept: whoever is refused decides how long its texts are, not how much of them is written.
fn shortened(refusal: Refusal) -> Refusal {
    let detail = refusal.detail.chars().take(DETAIL_CHARS_MAX).collect();
    let method = refusal.method.chars().take(METHOD_CHARS_MAX).collect();
    let mut path = refusal.path;
    while let Some(long) = path.as_ref()
        && long.to_string().len() > PATH_BYTES_MAX
    {
        path = long.parent();
    }
    Refusal {
        method,
        path,
        detail,
        ..refusal
    }
}

impl Loss {
    fn gap(&self, at: Timestamp) -> ElementRecord {
        ElementRecord {
            at,
            origin: Arc::default(),
            event: ElementEvent::Gap(LedgerGap {
                from: Some(self.from.min(at)),
                cause: self.cause,
                lost: Some(self.count),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::NamespacePath;

    #[test]
    fn whoever_is_refused_fills_no_disk_with_long_texts() {
        let long = format!("/d/{}/{}/f", "é".repeat(100), "n".repeat(200));
        let refused = |path: &str| {
            shortened(Refusal {
                method: "M".repeat(8_000),
                path: Some(NamespacePath::parse(path).expect("valid")),
                status: 401,
                code: "authentication".to_owned(),
                detail: "é".repeat(5_000),
            })
        };
        let kept = refused(&long);
        assert_eq!(kept.method.len(), METHOD_CHARS_MAX);
        assert_eq!(kept.detail.chars().count(), DETAIL_CHARS_MAX);
        let front = format!("/d/{}", "é".repeat(100));
        assert_eq!(kept.path, NamespacePath::parse(&front).ok());
        assert_eq!(refused("/d/f").path, NamespacePath::parse("/d/f").ok());
    }

    #[test]
    fn what_could_not_be_written_is_missing_from_the_oldest_of_it_on() {
        let refused = |at: i64| {
            let refusal = Refusal {
                method: "GET".to_owned(),
                path: None,
                status: 401,
                code: "authentication".to_owned(),
                detail: String::new(),
            };
            Note::Refusal(ElementRecord {
                at: Timestamp(at),
                origin: Arc::default(),
                event: ElementEvent::Refused(refusal),
            })
        };
        let batch = NotedBatch::of(vec![refused(7_000), refused(5_000), refused(9_000)]);
        assert_eq!(batch.refusals.len(), 3);
        assert_eq!(batch.oldest_refusal, Some(Timestamp(5_000)));
        assert_eq!(batch.oldest_mover, None);
    }

    #[test]
    fn what_is_lost_is_told_once_in_a_while_and_added_up_until_then() {
        let mut losses = Losses::default();
        assert!(losses.is_due() && losses.take().is_empty() && losses.is_due());
        losses.all.push(Loss {
            cause: GapCause::Overload,
            from: Timestamp(0),
            count: 1,
        });
        assert_eq!(losses.take().len(), 1);
        losses.told = Some(Instant::now() + GAP_INTERVAL);
        assert!(!losses.is_due());
    }
}
