//! Threads of their own for the doors of a storage element. They look into the namespace themselves, because that takes
//! microseconds; when its disk hangs, they hang with it. Then another thread answers in their stead: monitors hear how it
//! is, everybody else is asked to come again, and the rest of the process goes on.

use crate::door::{self, DoorConfig, FallbackPort};
use crate::storage::Storage;
use penstock_model::TimeSpan;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Between two looks whether the threads answer.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Threads that are silent for longer do not work: what they do takes milliseconds at most.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The threads. Dropping them ends them; one that waits for a disk is left behind.
pub struct DoorThreads {
    storage: Arc<Storage>,
    /// Taken by `drop` only.
    runtime: Option<Runtime>,
    /// Whether they do not answer.
    silence: Arc<watch::Sender<bool>>,
    /// Finds that out, for all doors.
    watching: JoinHandle<()>,
}

impl DoorThreads {
    /// Starts one for each core, and watches them on the runtime of the caller.
    ///
    /// Errors: the system has no more threads.
    pub fn start(storage: Arc<Storage>) -> io::Result<DoorThreads> {
        let runtime = Builder::new_multi_thread()
            .thread_name("storage")
            .enable_all()
            .build()?;
        let silence = Arc::new(watch::Sender::new(false));
        let threads = runtime.handle().clone();
        let watching = watch_threads(threads, Arc::clone(&storage), Arc::clone(&silence));
        Ok(DoorThreads {
            storage,
            runtime: Some(runtime),
            silence,
            watching: tokio::spawn(watching),
        })
    }

    /// Serves a door on these threads, as [`door::serve`] does, and in their stead on those of the caller while they do
    /// not answer.
    ///
    /// Errors: the listener cannot be used.
    pub fn serve(
        &self,
        config: DoorConfig,
        shutdown: watch::Receiver<bool>,
    ) -> impl Future<Output = io::Result<()>> + use<> {
        let stand_in = FallbackPort::of(&config);
        let (storage, silence) = (Arc::clone(&self.storage), Arc::clone(&self.silence));
        let serving = door::serve(Arc::clone(&storage), config, shutdown.clone());
        let serving = self.threads().spawn(serving);
        async move {
            let ended = tokio::select! {
                ended = serving => ended,
                why = stand_in?.serve(&storage, silence.subscribe(), shutdown) => return Err(why),
            };
            ended.unwrap_or_else(|why| Err(io::Error::other(why)))
        }
    }

    fn threads(&self) -> &Handle {
        let runtime = self.runtime.as_ref();
        runtime.expect("taken by `drop` only").handle()
    }
}

impl Drop for DoorThreads {
    fn drop(&mut self) {
        self.watching.abort();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Finds out for as long as it runs whether the threads answer.
async fn watch_threads(threads: Handle, storage: Arc<Storage>, silence: Arc<watch::Sender<bool>>) {
    let mut since = Instant::now();
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let answers = tokio::time::timeout(SILENCE_MAX, threads.spawn(async {})).await;
        let is_silent = answers.is_err();
        storage.set_doors_silent(is_silent);
        if silence.send_if_modified(|was| std::mem::replace(was, is_silent) != is_silent) {
            match is_silent {
                true => {
                    since = Instant::now();
                    tracing::error!(
                        "the doors have not answered for {}: the disk of the namespace hangs. New requests are \
                         refused until it answers; look at that disk",
                        TimeSpan(SILENCE_MAX)
                    );
                }
                false => {
                    let seconds = since.elapsed().as_secs();
                    tracing::info!(seconds, "the doors answer again");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::tests::open_with;
    use std::net::TcpListener;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tracing::span;

    #[derive(Clone, Default)]
    struct ErrorCount(Arc<AtomicUsize>);

    impl tracing::Subscriber for ErrorCount {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            *metadata.level() == tracing::Level::ERROR
        }
        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[tokio::test]
    async fn threads_of_two_doors_that_hang_are_told_once() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let storage = open_with(directory.path(), &["p"], Default::default());
        let threads = DoorThreads::start(storage).expect("threads");
        let stopping = watch::Sender::new(false);
        for _ in 0..2 {
            let config = DoorConfig {
                listener: TcpListener::bind("127.0.0.1:0").expect("a port"),
                tls: None,
                monitor: None,
                tls_only: false,
            };
            tokio::spawn(threads.serve(config, stopping.subscribe()));
        }
        let workers = threads.threads().metrics().num_workers();
        let barrier = Arc::new(Barrier::new(workers + 1));
        for _ in 0..workers {
            let barrier = Arc::clone(&barrier);
            threads.threads().spawn(async move {
                barrier.wait();
                // As a disk that hangs.
                barrier.wait();
            });
        }
        barrier.wait();
        let errors = ErrorCount::default();
        let _subscriber = tracing::subscriber::set_default(errors.clone());
        tokio::time::pause();
        let mut silent = threads.silence.subscribe();
        silent.wait_for(|is_silent| *is_silent).await.expect("told");
        // Each door has had the time to tell it.
        tokio::time::sleep(2 * (LOOK_INTERVAL + SILENCE_MAX)).await;
        assert_eq!(errors.0.load(Ordering::Relaxed), 1);
        barrier.wait();
    }
}
