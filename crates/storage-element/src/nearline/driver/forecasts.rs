//! When files that are to be brought will be on disk, and why they wait, found out now and then on another thread.

use crate::nearline::driver_task::RecallOutlooks;
use crate::nearline::tape_system::TapeSystem;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinHandle;

/// After a forecast there is none for so many times as long as it took.
const PAUSE_FACTOR: u32 = 20;

/// The last forecast, and the next one while it is being made.
#[derive(Debug, Default)]
pub(super) struct Forecasts {
    outlooks: Arc<RecallOutlooks>,
    coming: Option<Coming>,
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct Coming {
    since: Instant,
    made: JoinHandle<RecallOutlooks>,
}

impl Forecasts {
    pub(super) fn outlooks(&self) -> Arc<RecallOutlooks> {
        Arc::clone(&self.outlooks)
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
            None => self.outlooks = Arc::default(),
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
        self.outlooks = Arc::new(made.unwrap_or_default());
    }
}
