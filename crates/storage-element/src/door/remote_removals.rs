//! Removals at other servers. Each goes on to its end, which its own bounds make sure of, also when the request that
//! caused it was given up: its user was banned, its client has gone, or the door stops.

use parking_lot::{Mutex, MutexGuard};
use std::future::Future;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The removals of one door. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Removals(Arc<Mutex<JoinSet<()>>>);

impl Removals {
    /// Begins one. For use on the runtime, also while a future is dropped.
    pub(super) fn begin(&self, removal: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.lock();
        while let Some(ended) = running.try_join_next() {
            report_panic(ended);
        }
        running.spawn(removal);
    }

    /// Waits until none is left.
    pub(super) async fn wait_for_all(&self) {
        loop {
            let mut running = std::mem::take(&mut *self.lock());
            if running.is_empty() {
                return;
            }
            while let Some(ended) = running.join_next().await {
                report_panic(ended);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.lock()
    }
}

/// Tells the log of a task that ended in a panic.
pub(super) fn report_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(why) = ended
        && why.is_panic()
    {
        tracing::error!(%why, "a task of the door ended in a panic");
    }
}
