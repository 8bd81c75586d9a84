//! When files that are to be brought will be on disk, found out now and then on another thread.

use crate::nearline::tape_system::TapeSystem;
use penstock_model::Timestamp;
use penstock_persistence::namespace::EntryId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinHandle;

/// After a forecast there is none for so many times as long as it took.
const PAUSE_FACTOR: u32 = 20;

type Expected = BTreeMap<EntryId, Timestamp>;

/// The last forecast, and the next one while it is being made.
#[derive(Debug, Default)]
pub(super) struct Forecasts {
    expected: Arc<Expected>,
    coming: Option<Coming>,
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct Coming {
    since: Instant,
    made: JoinHandle<Expected>,
}

impl Forecasts {
    pub(super) fn expected(&self) -> Arc<Expected> {
        Arc::clone(&self.expected)
    }

    /// Begins the next one, unless one is being made, or was made a moment ago.
    pub(super) fn begin(&mut self, system: &impl TapeSystem) {
        let since = Instant::now();
        let is_early = self.not_before.is_some_and(|due| since < due);
        if self.coming.is_some() || is_early {
            return;
        }
        match system.forecast() {
            Some(forecast) => {
                let made = tokio::task::spawn_blocking(forecast);
                self.coming = Some(Coming { since, made });
            }
            None => self.expected = Arc::default(),
        }
    }

    /// Comes to its end when the one that is being made has been taken.
    pub(super) async fn made(&mut self) {
        let Some(coming) = &mut self.coming else {
            return std::future::pending().await;
        };
        let made = (&mut coming.made).await;
        self.not_before = Some(Instant::now() + coming.since.elapsed() * PAUSE_FACTOR);
        self.coming = None;
        // A thread that has panicked has said so itself.
        self.expected = Arc::new(made.unwrap_or_default());
    }
}
