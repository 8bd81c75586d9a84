//! Threads of their own for the doors of a storage element. They look into the namespace themselves, because that takes
//! microseconds; when its disk hangs, they hang with it. Then another thread answers in their stead: monitors hear how it
//! is, everybody else is asked to come again, and the rest of the process goes on.

use crate::door::{self, DoorConfig, FallbackPort};
use crate::storage::Storage;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;

/// Between two looks whether the threads answer.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Threads that are silent for longer do not work: what they do takes milliseconds at most.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The threads. Dropping them ends them; one that waits for a disk is left behind.
pub struct DoorThreads(Option<Runtime>);

impl DoorThreads {
    /// Starts one for each core.
    ///
    /// Errors: the system has no more threads.
    pub fn start() -> io::Result<DoorThreads> {
        let runtime = Builder::new_multi_thread()
            .thread_name("storage")
            .enable_all()
            .build()?;
        Ok(DoorThreads(Some(runtime)))
    }

    /// Serves a door on these threads, as [`door::serve`] does, and in their stead on those of the caller while they do
    /// not answer.
    ///
    /// Errors: the listener cannot be used.
    pub fn serve(
        &self,
        storage: Arc<Storage>,
        config: DoorConfig,
        shutdown: watch::Receiver<bool>,
    ) -> impl Future<Output = io::Result<()>> + use<> {
        let stand_in = FallbackPort::of(&config);
        let runtime = self.0.as_ref().expect("taken only by `drop`").handle();
        let threads = runtime.clone();
        let serving = runtime.spawn(door::serve(storage.clone(), config, shutdown.clone()));
        async move {
            let (silence, silent) = watch::channel(false);
            let ended = tokio::select! {
                ended = serving => ended,
                () = watch_threads(&threads, &storage, &silence) => unreachable!("it never ends"),
                why = stand_in?.serve(&storage, silent, shutdown) => return Err(why),
            };
            ended.unwrap_or_else(|why| Err(io::Error::other(why)))
        }
    }
}

impl Drop for DoorThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Finds out for as long as it runs whether the threads answer.
async fn watch_threads(threads: &Handle, storage: &Storage, silence: &watch::Sender<bool>) {
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
                        "the doors have not answered for {} s: the disk of the namespace hangs. New requests are \
                         refused until it answers; look at that disk",
                        SILENCE_MAX.as_secs()
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
