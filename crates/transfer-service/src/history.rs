//! Keeps history as long as configured, and removes it then while the service runs.
//!
//! Decides with `decide::history`, has the journal's thread remove a little at a time between its commits, and tells
//! how much history there is and who holds it back.

use crate::metrics::HistoryView;
use crate::run::Batch;
use crate::service::Service;
use penstock_decide::history::{Oldest, Retention, StepPace, what_is_held, what_may_go};
use penstock_journal::{JournalError, PruneReport, PruneStep};
use penstock_model::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The wait before the first look: those who follow the record say how far they are.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// Between two looks while nothing may go.
const LOOK_EVERY: Duration = Duration::from_secs(30);

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
                    tracing::warn!(%error, "history could not be removed; retrying");
                    wait = LOOK_EVERY;
                }
            }
            if wait == LOOK_EVERY {
                self.look().await;
            }
        }
    }

    /// Has the journal's thread remove a little. `None` when there is no such thread.
    async fn step(&self, pace: StepPace) -> Result<Option<(PruneReport, Duration)>, JournalError> {
        if !self.service.node.agents.tokens.clock().is_credible() {
            return Ok(None);
        }
        let retention = *self.retention.borrow();
        let followers = self.service.ledger_followers.list();
        let may_go = what_may_go(penstock_clock::wall_clock(), &retention, &followers);
        let step = PruneStep {
            ended_before: may_go.ended_before,
            taken_by_all: may_go.taken_by_all,
            ended_long_before: may_go.ended_long_before,
            samples_before: may_go.samples_before,
            minutes_before: may_go.minutes_before,
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
        let followers = self.service.ledger_followers.list();
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
                None => tracing::info!("no sink delays the cleanup of history any longer"),
            }
            self.told = by;
        }
        self.service
            .node
            .metrics
            .history
            .see(HistoryView { facts, held });
    }
}
