//! Copies many files up or down, several at once, each verified end to end by its checksum.
//!
//! The checksum of an upload is computed from the bytes as they are read and compared with what the storage
//! element computed; that of a download from the bytes as they are written. A file that is there already with
//! the same size and checksum is skipped, so an interrupted copy is restarted by running it again.

mod blocks;
mod download;
mod upload;

use crate::progress::Progress;
use crate::remote::Remote;
use crate::remote_error::RemoteError;
use penstock_model::{Bytes, Checksum, ChecksumAlgorithm};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

pub use blocks::Source;
pub use download::Download;
pub use upload::Upload;

/// How often one file is tried.
const ATTEMPTS_MAX: u32 = 3;
/// The wait before the second attempt; twice as long before the third.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How a bulk copy behaves.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Files at once.
    pub parallel: usize,
    /// What happens to a copy that is there already.
    pub existing: ExistingCopy,
    /// What is compared.
    pub algorithm: ChecksumAlgorithm,
}

/// What happens to a copy that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingCopy {
    /// Skip it when it has the same content; else it is an error.
    Keep,
    /// Write it anew.
    Replace,
}

/// A file that is now where it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOutcome {
    pub size: Bytes,
    /// Its checksum, the same at both ends.
    pub checksum: Checksum,
    /// Whether it was there before.
    pub how: CopyResult,
}

/// How a file came to be where it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyResult {
    Copied,
    /// It was there already with the same content.
    Skipped,
}

/// The outcome of each file, in the order in which they were given.
pub type Outcomes = Vec<Result<FileOutcome, RemoteError>>;

/// Copies local files to a storage element. Their directories must exist.
pub async fn upload_all(
    remote: &Remote,
    files: Vec<Upload>,
    options: Options,
    progress: &Arc<Progress>,
) -> Outcomes {
    progress.expect(
        files.len() as u64,
        Bytes(files.iter().map(|file| file.size.0).sum()),
    );
    let (remote, progress) = (remote.clone(), Arc::clone(progress));
    each_of(files, options.parallel, move |file| {
        let (remote, progress) = (remote.clone(), Arc::clone(&progress));
        async move { upload::run(&remote, &file, options, &progress).await }
    })
    .await
}

/// Copies files of a storage element to local ones. Missing directories are made.
pub async fn download_all(
    remote: &Remote,
    files: Vec<Download>,
    options: Options,
    progress: &Arc<Progress>,
) -> Outcomes {
    progress.expect(
        files.len() as u64,
        Bytes(
            files
                .iter()
                .filter_map(|file| file.size)
                .map(|size| size.0)
                .sum(),
        ),
    );
    let (remote, progress) = (remote.clone(), Arc::clone(progress));
    each_of(files, options.parallel, move |file| {
        let (remote, progress) = (remote.clone(), Arc::clone(&progress));
        async move { download::run(&remote, &file, options, &progress).await }
    })
    .await
}

/// Does something to each item, `parallel` of them at once; answers in the order of the items. Dropped in the
/// middle, everything that runs is stopped.
pub async fn each_of<T, A, F>(items: Vec<T>, parallel: usize, act: impl Fn(T) -> F) -> Vec<A>
where
    A: Send + 'static,
    F: Future<Output = A> + Send + 'static,
{
    let mut answers: Vec<Option<A>> = items.iter().map(|_| None).collect();
    let mut running = JoinSet::new();
    let mut waiting = items.into_iter().enumerate();
    loop {
        while running.len() < parallel.max(1)
            && let Some((index, item)) = waiting.next()
        {
            let acting = act(item);
            running.spawn(async move { (index, acting.await) });
        }
        match running.join_next().await {
            None => break,
            Some(Ok((index, answer))) => answers[index] = Some(answer),
            Some(Err(why)) => match why.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => unreachable!("nobody cancels the tasks while their set is awaited"),
            },
        }
    }
    answers
        .into_iter()
        .map(|answer| answer.expect("each item was acted on"))
        .collect()
}

/// One file: what is there already counts unless it shall be replaced; else it is copied, again if need be.
async fn keep_or_copy<F>(
    existing: ExistingCopy,
    progress: &Progress,
    find: impl Future<Output = Result<Option<FileOutcome>, RemoteError>>,
    copy: impl FnMut() -> F,
) -> Result<FileOutcome, RemoteError>
where
    F: Future<Output = Result<FileOutcome, RemoteError>>,
{
    let found = match existing {
        ExistingCopy::Replace => Ok(None),
        ExistingCopy::Keep => find.await,
    };
    let outcome = match found {
        Ok(Some(arrived)) => {
            progress.moved(arrived.size.0);
            Ok(arrived)
        }
        Ok(None) => with_retries(copy).await,
        Err(why) => Err(why),
    };
    progress.file_ended();
    outcome
}

/// Tries again what may succeed in a moment.
async fn with_retries<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, RemoteError>
where
    F: Future<Output = Result<T, RemoteError>>,
{
    let mut delay = RETRY_DELAY;
    for _ in 1..ATTEMPTS_MAX {
        match attempt().await {
            Err(why) if why.is_transient() => {
                tracing::debug!(%why, "trying again");
                tokio::time::sleep(delay).await;
                delay *= 2;
            }
            outcome => return outcome,
        }
    }
    attempt().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn as_many_run_at_once_as_may_and_answers_keep_their_order() {
        let running = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let answers = each_of((0..50u64).collect(), 7, |n| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(50 - n)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                n * 2
            }
        })
        .await;
        assert_eq!(answers, (0..50).map(|n| n * 2).collect::<Vec<u64>>());
        assert_eq!(most.load(Ordering::SeqCst), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_may_succeed_in_a_moment_is_tried_again() {
        let refused = |status: u16| RemoteError::Refused {
            url: "https://se/f".into(),
            status: http::StatusCode::from_u16(status).expect("a status"),
            detail: String::new(),
            told: None,
        };
        for (status, attempts) in [(503, 3), (507, 1)] {
            let mut tries = 0;
            let outcome: Result<(), _> = with_retries(|| {
                tries += 1;
                async { Err(refused(status)) }
            })
            .await;
            assert!(outcome.is_err());
            assert_eq!(tries, attempts, "{status}");
        }
    }
}
