//! Keeps history as long as configured, and removes it then while the service runs.
//!
//! Decides with `decide::history`, has the journal's thread remove a little at a time between its commits, and tells
//! how much history there is and who holds it back.

use crate::run::Batch;
use crate::service::Service;
use parking_lot::Mutex;
use penstock_decide::history::{
    Follows, Held, Oldest, Retention, StepPace, what_is_held, what_may_go,
};
use penstock_journal::{HistoryFacts, JournalError, PruneStep, Pruned};
use penstock_model::Timestamp;
use penstock_protocol::exposition::{Counter, Histogram, Page};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The wait before the first look: those who follow the record say how far they are.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// Between two looks while nothing may go.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Microseconds of a step.
const STEP_BOUNDS: [u64; 8] = [250, 500, 1_000, 2_000, 4_000, 8_000, 32_000, 250_000];
/// Says that somebody has not yet said how far he is.
const UNKNOWN: u64 = u64::MAX;

/// Who follows the record, and how far each has come.
#[derive(Debug, Default)]
pub(crate) struct Followers(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

/// How far one of them has come.
#[derive(Debug, Clone)]
pub(crate) struct Mark(Arc<AtomicU64>);

impl Followers {
    /// From now on nothing goes that this one has not taken.
    pub(crate) fn join(&self, name: &str) -> Mark {
        let mut all = self.0.lock();
        let mark = all.entry(name.to_owned());
        Mark(mark.or_insert_with(|| Arc::new(UNKNOWN.into())).clone())
    }

    fn list(&self) -> Vec<Follows> {
        let all = self.0.lock();
        let follows = |(name, mark): (&String, &Arc<AtomicU64>)| Follows {
            name: name.clone(),
            taken: Some(mark.load(Ordering::Relaxed)).filter(|at| *at != UNKNOWN),
        };
        all.iter().map(follows).collect()
    }
}

impl Mark {
    /// Everything up to this entry is taken.
    pub(crate) fn taken(&self, sequence: u64) {
        self.0.store(sequence, Ordering::Relaxed);
    }
}

/// What is told of history.
#[derive(Debug)]
pub(crate) struct HistoryMeters {
    jobs: Counter,
    transfers: Counter,
    entries: Counter,
    samples: Counter,
    untaken: Counter,
    step_us: Histogram,
    seen: Mutex<Seen>,
}

/// As of the last look.
#[derive(Debug, Clone, Default)]
struct Seen {
    facts: HistoryFacts,
    held: Option<Held>,
}

impl Default for HistoryMeters {
    fn default() -> HistoryMeters {
        HistoryMeters {
            jobs: Counter::default(),
            transfers: Counter::default(),
            entries: Counter::default(),
            samples: Counter::default(),
            untaken: Counter::default(),
            step_us: Histogram::of_microseconds(&STEP_BOUNDS),
            seen: Mutex::default(),
        }
    }
}

impl HistoryMeters {
    fn count(&self, pruned: &Pruned, took: Duration) {
        self.jobs.add(pruned.jobs);
        self.transfers.add(pruned.transfers);
        self.entries.add(pruned.entries);
        self.samples.add(pruned.samples);
        self.untaken.add(pruned.untaken);
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.step_us.observe(took);
    }

    fn see(&self, seen: Seen) {
        *self.seen.lock() = seen;
    }

    fn seen(&self) -> Seen {
        let seen = self.seen.lock();
        seen.clone()
    }

    pub(crate) fn write(&self, page: &mut Page) {
        let Seen { facts, held } = self.seen();
        let mut family = page.gauge(
            "penstock_history_bytes",
            "What the journal takes on its disk, and how much of that is free for new records.",
        );
        family.sample(&[("part", "all")], facts.size_bytes);
        if let Some(free_bytes) = facts.free_bytes {
            family.sample(&[("part", "free")], free_bytes);
        }
        let mut family = page.gauge(
            "penstock_history_held_seconds",
            "For how long history has outlived its time because a sink has not taken it; 0: none has.",
        );
        family.sample(&[], held.map_or(0, |held| held.since.as_secs()));
        let mut family = page.counter(
            "penstock_history_removed_total",
            "What was removed because its time was over.",
        );
        for (kind, count) in [
            ("jobs", &self.jobs),
            ("transfers", &self.transfers),
            ("entries", &self.entries),
            ("samples", &self.samples),
        ] {
            family.sample(&[("kind", kind)], count.read());
        }
        let mut family = page.counter(
            "penstock_history_untaken_total",
            "Jobs that were removed before every sink had taken their messages.",
        );
        family.sample(&[], self.untaken.read());
        page.histogram(
            "penstock_history_step_seconds",
            "How long the journal's writer was at removing history, each time.",
        )
        .distribution(&[], &self.step_us);
    }
}

impl Service {
    /// Starts to remove what is older than `retention` says, until the shutdown signal. To be called when all who
    /// follow the record have been started.
    pub fn keep_history(
        self: &Arc<Self>,
        retention: watch::Receiver<Retention>,
        shutdown: watch::Receiver<bool>,
    ) {
        let keeper = Keeper {
            service: self.clone(),
            retention,
            told: None,
        };
        tokio::spawn(keeper.run(shutdown));
    }

    /// Of jobs that ended up to this time not all are kept any more.
    pub(crate) fn history_removed_until(&self) -> Option<Timestamp> {
        self.node.metrics.history.seen().facts.pruned.until
    }
}

struct Keeper {
    service: Arc<Service>,
    retention: watch::Receiver<Retention>,
    /// Who was said to hold history back, so that it is said once.
    told: Option<Vec<String>>,
}

impl Keeper {
    async fn run(mut self, mut shutdown: watch::Receiver<bool>) {
        let mut pace = StepPace::default();
        let mut wait = FIRST_LOOK;
        self.look().await;
        loop {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = shutdown.wait_for(|stop| *stop) => return,
            }
            match self.step(pace).await {
                Ok(Some((pruned, took))) => {
                    if pruned.rows() > 0 {
                        pace = pace.after(took);
                    }
                    wait = match pruned.has_more {
                        true => pace.pause,
                        false => LOOK_EVERY,
                    };
                }
                // The journal's thread has ended, or is not this process's.
                Ok(None) => wait = LOOK_EVERY,
                Err(error) => {
                    tracing::warn!(%error, "history could not be removed; it is tried again");
                    wait = LOOK_EVERY;
                }
            }
            if wait == LOOK_EVERY {
                self.look().await;
            }
        }
    }

    /// Has the journal's thread remove a little. `None` when there is no such thread.
    async fn step(&self, pace: StepPace) -> Result<Option<(Pruned, Duration)>, JournalError> {
        if !self.service.node.agents.tokens.clock().is_credible() {
            return Ok(None);
        }
        let retention = *self.retention.borrow();
        let followers = self.service.followers.list();
        let may_go = what_may_go(penstock_clock::wall_clock(), &retention, &followers);
        let step = PruneStep {
            ended_before: may_go.ended_before,
            taken_by_all: may_go.taken_by_all,
            ended_long_before: may_go.ended_long_before,
            samples_before: may_go.samples_before,
            audit_before: may_go.audit_before,
            rows_max: pace.rows,
        };
        let (batch, answered) = Batch::of_prune(step);
        let Some(batches) = self.service.batches() else {
            return Ok(None);
        };
        if batches.send(batch).await.is_err() {
            return Ok(None);
        }
        // It must not keep the journal's thread alive while it waits.
        drop(batches);
        let Ok(answer) = answered.await else {
            return Ok(None);
        };
        let (pruned, took) = answer?;
        let metrics = &self.service.node.metrics;
        metrics.history.count(&pruned, took);
        if pruned.untaken > 0 {
            tracing::warn!(
                jobs = pruned.untaken,
                "history was removed before every sink had taken it: transfer.history_held_max is over"
            );
        }
        Ok(Some((pruned, took)))
    }

    async fn look(&mut self) {
        let reader = self.service.reader().clone();
        let read = tokio::task::spawn_blocking(move || reader.history()).await;
        let facts = match read {
            Ok(Ok(facts)) => facts,
            Ok(Err(error)) => {
                return tracing::warn!(%error, "how much history there is cannot be read");
            }
            Err(_) => return,
        };
        let followers = self.service.followers.list();
        let oldest = facts.ended_oldest.map(|oldest| Oldest {
            ended: oldest.at,
            sequence: oldest.sequence,
        });
        let retention = *self.retention.borrow();
        let held = what_is_held(penstock_clock::wall_clock(), &retention, &followers, oldest);
        let by = held.as_ref().map(|held| held.by.clone());
        if by != self.told {
            match &held {
                Some(held) => tracing::warn!(
                    sinks = held.by.join(", "),
                    hours_left = held.left.as_secs() / 3600,
                    "history is kept longer because sinks have not taken it; then it goes all the same"
                ),
                None => tracing::info!("no sink holds history back any more"),
            }
            self.told = by;
        }
        self.service.node.metrics.history.see(Seen { facts, held });
    }
}

/// A step in the journal's thread, with how long it took.
pub(crate) fn perform(
    journal: &mut dyn penstock_journal::Journal,
    step: &PruneStep,
) -> Result<(Pruned, Duration), JournalError> {
    let begun = Instant::now();
    let pruned = journal.prune(step)?;
    Ok((pruned, begun.elapsed()))
}
