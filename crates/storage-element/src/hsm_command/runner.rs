//! Runs the commands that the queue of an HSM orders, and tells the queue what becomes of them.

use super::{HsmCall, HsmCommandConfig, run_hsm_command};
use penstock_tape::hsm_queue::{HsmCommandEnd, HsmCommandId, HsmInput};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// The commands that run now. It is used by one task, that of the queue.
#[derive(Debug)]
pub struct HsmRunner {
    config: Arc<HsmCommandConfig>,
    news: mpsc::Sender<HsmInput>,
    stops: BTreeMap<HsmCommandId, oneshot::Sender<()>>,
    tasks: JoinSet<HsmCommandId>,
}

impl HsmRunner {
    /// Runs nothing yet. `news` takes [`HsmInput::Progressed`] and [`HsmInput::Ended`]; commands wait while it is full, and
    /// lose their end when it is closed.
    pub fn new(config: HsmCommandConfig, news: mpsc::Sender<HsmInput>) -> HsmRunner {
        HsmRunner {
            config: Arc::new(config),
            news,
            stops: BTreeMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Starts a command. That it cannot be started is told as its end. Within a runtime only.
    pub fn start(&mut self, command: HsmCommandId, call: HsmCall) {
        self.forget_ended();
        let (order, stop) = oneshot::channel();
        self.stops.insert(command, order);
        let (config, news) = (self.config.clone(), self.news.clone());
        self.tasks.spawn(async move {
            let end = match &call {
                HsmCall::Get { path, .. } => {
                    let run = run_hsm_command(&config, &call, stop);
                    with_progress(&config, command, path, &news, run).await
                }
                HsmCall::Put { .. } | HsmCall::Remove { .. } => {
                    run_hsm_command(&config, &call, stop).await
                }
            };
            // The queue is gone: after its restart it takes the command as unknown.
            let _ = news.send(HsmInput::Ended { command, end }).await;
            command
        });
    }

    /// Stops a command, whose end is told as always. One that has ended is passed over.
    pub fn stop(&mut self, command: HsmCommandId) {
        if let Some(order) = self.stops.remove(&command) {
            // It may have ended just now.
            let _ = order.send(());
        }
    }

    /// Commands that have not ended.
    pub fn running(&mut self) -> usize {
        self.forget_ended();
        self.tasks.len()
    }

    /// Stops all commands and waits until they have ended, which takes little longer than the grace. Returns the news that
    /// came meanwhile: some may have succeeded all the same.
    pub async fn stop_all(&mut self, news: &mut mpsc::Receiver<HsmInput>) -> Vec<HsmInput> {
        for (_, order) in std::mem::take(&mut self.stops) {
            let _ = order.send(());
        }
        let mut last = Vec::new();
        while !self.tasks.is_empty() {
            tokio::select! {
                _ = self.tasks.join_next() => {}
                Some(input) = news.recv() => last.push(input),
            }
        }
        while let Ok(input) = news.try_recv() {
            last.push(input);
        }
        last
    }

    fn forget_ended(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            if let Ok(command) = ended {
                self.stops.remove(&command);
            }
        }
    }
}

/// Tells how large the file of a get is, as often as is configured, until the command has ended. A file in another place than
/// where it is to be in the end is not seen.
async fn with_progress(
    config: &HsmCommandConfig,
    command: HsmCommandId,
    path: &Path,
    news: &mpsc::Sender<HsmInput>,
    run: impl Future<Output = HsmCommandEnd>,
) -> HsmCommandEnd {
    let mut run = pin!(run);
    let mut ticks = interval(config.progress_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = 0;
    loop {
        tokio::select! {
            end = &mut run => return end,
            _ = ticks.tick() => {}
        }
        let found = tokio::fs::metadata(path).await;
        let bytes = found.map_or(0, |found| found.len());
        if bytes > told {
            told = bytes;
            // When there is no room others come later.
            let _ = news.try_send(HsmInput::Progressed { command, bytes });
        }
    }
}
