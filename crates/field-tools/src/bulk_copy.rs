//! Copies many files up or down, several at once, each verified end to end by its checksum.
//!
//! The checksum of an upload is computed from the bytes as they are read and compared with what the storage
//! element computed; that of a download from the bytes as they are written. A file that is there already with
//! the same size and checksum is skipped (where only a weak checksum is told, unless the original is newer), and of a
//! large one what has arrived is kept when the copy ends before its time: an interrupted copy goes on when it is run
//! again.

mod blocks;
mod download;
mod local_copies;
mod part;
mod pieces;
mod upload;

use crate::bandwidth::Bandwidth;
use crate::checksum_choice::ChecksumChoice;
use crate::progress::Progress;
use crate::remote::{Head, Remote};
use crate::remote_error::RemoteError;
use crate::replaceable::Replaceable;
use crate::unfinished_downloads::UnfinishedDownloads;
use crate::unfinished_uploads::UnfinishedUploads;
use http::StatusCode;
use local_copies::LocalCopies;
use penstock_model::url::redact;
use penstock_model::{Bytes, Checksum, Timestamp};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use url::Url;

pub use blocks::Source;
pub use download::Download;
pub use upload::Upload;

/// How often one file is tried without any byte of it getting further.
const ATTEMPTS_MAX: u32 = 3;
/// The wait before the second attempt; twice as long before the third.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// From this size on what has arrived of a file is kept. Of smaller ones nothing much is lost.
pub const KEPT_FROM_BYTES: u64 = 16 << 20;

/// How a bulk copy behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// Files at once.
    pub parallel: usize,
    /// What happens to a copy that is there already.
    pub existing: ExistingCopy,
    /// What is compared.
    pub checksums: ChecksumChoice,
    /// Of all files together.
    pub bandwidth: Bandwidth,
    /// Where it is noted how uploads go on. `None`: they go on within one run only.
    pub unfinished: Option<UnfinishedUploads>,
    /// The same of downloads.
    pub unfinished_downloads: Option<UnfinishedDownloads>,
}

impl Options {
    /// Without bounds, and nothing is kept for another run.
    pub fn new(
        parallel: usize,
        existing: ExistingCopy,
        checksums: impl Into<ChecksumChoice>,
    ) -> Options {
        Options {
            parallel,
            existing,
            checksums: checksums.into(),
            bandwidth: Bandwidth::unlimited(),
            unfinished: None,
            unfinished_downloads: None,
        }
    }
}

/// What happens to a copy that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingCopy {
    /// Skip it when it has the same content; else it is an error.
    Keep,
    /// Skip it when it has the same content; else write it anew.
    Update,
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
    /// So many bytes of it were there from an earlier attempt; the rest was copied.
    Continued {
        before: Bytes,
    },
    /// It was there already with the same content.
    Skipped,
}

impl CopyResult {
    fn behind(before: u64) -> CopyResult {
        match before {
            0 => CopyResult::Copied,
            _ => CopyResult::Continued {
                before: Bytes(before),
            },
        }
    }
}

/// The outcome of each file, in the order in which they were given.
pub type Outcomes = Vec<Result<FileOutcome, RemoteError>>;

/// What a copy would do with one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intention {
    /// Nothing is there.
    Copy,
    /// Something else is there.
    Replace,
    /// It is there already.
    Skip,
}

/// What a comparison of a copy with its original finds.
struct Compared<'a> {
    checksums: ChecksumChoice,
    original: &'a [Checksum],
    /// When the original last changed.
    original_modified: Option<Timestamp>,
    copy: &'a [Checksum],
    /// When the copy last changed.
    copy_modified: Option<Timestamp>,
}

impl Compared<'_> {
    /// The checksum by which they are the same; `None`: they are not, or nothing tells.
    fn same(&self) -> Option<Checksum> {
        let found = self.checksums.compare(self.original, self.copy)?;
        let is_newer = match (self.original_modified, self.copy_modified) {
            (Some(original), Some(copy)) => original.unix_seconds() > copy.unix_seconds(),
            (None, _) | (_, None) => false,
        };
        let is_same = found.is_equal() && !(found.is_weak() && is_newer);
        is_same.then(|| found.copy.clone())
    }
}

/// What is in the place of a copy.
#[derive(Debug)]
enum Existing<V> {
    Nothing,
    /// The same content.
    Same(FileOutcome),
    /// Other content.
    Other {
        name: String,
        /// What tells it from another file that takes its place; `None`: nothing does.
        version: Option<V>,
    },
}

/// What all files of a copy have in common. Cheap to clone.
#[derive(Clone)]
struct Context {
    remote: Remote,
    options: Options,
    progress: Arc<Progress>,
    /// Which servers take uploads in pieces.
    take_pieces: Arc<Mutex<BTreeMap<String, bool>>>,
    local_copies: Arc<LocalCopies>,
}

impl Context {
    fn new(remote: &Remote, options: Options, progress: &Arc<Progress>) -> Context {
        Context {
            remote: remote.clone(),
            options,
            progress: Arc::clone(progress),
            take_pieces: Arc::default(),
            local_copies: Arc::default(),
        }
    }

    /// Asks each server once. One that does not answer this takes whole files.
    async fn takes_pieces(&self, url: &Url) -> bool {
        let server = url.origin().ascii_serialization();
        let mut known = self.take_pieces.lock().await;
        if let Some(takes) = known.get(&server) {
            return *takes;
        }
        let takes = self.remote.takes_pieces(url).await.unwrap_or(false);
        known.insert(server, takes);
        takes
    }
}

/// Copies local files to a storage element. Their directories must exist.
pub async fn upload_all(
    remote: &Remote,
    files: Vec<Upload>,
    options: Options,
    progress: &Arc<Progress>,
) -> Outcomes {
    let bytes = files.iter().map(|file| file.size.0).sum();
    progress.expect(files.len() as u64, Bytes(bytes));
    let context = Context::new(remote, options, progress);
    with_each(&context, files, upload_one).await
}

async fn upload_one(context: Context, file: Upload) -> Result<FileOutcome, RemoteError> {
    let (context, file) = (&context, &file);
    let copy = |replaceable: Replaceable<String>| async move {
        let replaceable = &replaceable;
        if let Source::File(source) = &file.source
            && file.size.0 >= KEPT_FROM_BYTES
            && context.takes_pieces(&file.destination).await
        {
            return pieces::run(context, file, source, replaceable).await;
        }
        with_retries(|| upload::write(context, file, replaceable)).await
    };
    keep_or_copy(context, || upload::find(context, file), copy).await
}

/// Copies files of a storage element to local ones. Missing directories are made.
pub async fn download_all(
    remote: &Remote,
    files: Vec<Download>,
    options: Options,
    progress: &Arc<Progress>,
) -> Outcomes {
    let sizes = files.iter().filter_map(|file| file.size);
    let bytes = sizes.map(|size| size.0).sum();
    progress.expect(files.len() as u64, Bytes(bytes));
    let context = Context::new(remote, options, progress);
    with_each(&context, files, download::run).await
}

/// What an upload of these files would do.
pub async fn look_at_uploads(
    remote: &Remote,
    files: Vec<Upload>,
    options: Options,
    progress: &Arc<Progress>,
) -> Vec<Result<Intention, RemoteError>> {
    let find = |context: Context, file: Upload| async move { upload::find(&context, &file).await };
    look_at(&Context::new(remote, options, progress), files, find).await
}

/// What a download of these files would do.
pub async fn look_at_downloads(
    remote: &Remote,
    files: Vec<Download>,
    options: Options,
    progress: &Arc<Progress>,
) -> Vec<Result<Intention, RemoteError>> {
    let find =
        |context: Context, file: Download| async move { download::find(&context, &file).await };
    look_at(&Context::new(remote, options, progress), files, find).await
}

async fn look_at<T, V, F>(
    context: &Context,
    files: Vec<T>,
    find: impl Fn(Context, T) -> F + Copy + Send + 'static,
) -> Vec<Result<Intention, RemoteError>>
where
    T: Send + 'static,
    V: Send + 'static,
    F: Future<Output = Result<Existing<V>, RemoteError>> + Send + 'static,
{
    context.progress.expect(files.len() as u64, Bytes(0));
    let look = move |context: Context, file| async move {
        let found = find(context.clone(), file).await;
        intention(&context, found)
    };
    with_each(context, files, look).await
}

/// Does something to each file, as many at once as the options say.
async fn with_each<T, A, F>(
    context: &Context,
    files: Vec<T>,
    act: impl Fn(Context, T) -> F,
) -> Vec<A>
where
    A: Send + 'static,
    F: Future<Output = A> + Send + 'static,
{
    let parallel = context.options.parallel;
    each_of(files, parallel, |file| act(context.clone(), file)).await
}

fn intention<V>(
    context: &Context,
    found: Result<Existing<V>, RemoteError>,
) -> Result<Intention, RemoteError> {
    context.progress.file_ended();
    match (found?, context.options.existing) {
        (Existing::Nothing, _) => Ok(Intention::Copy),
        (Existing::Same(_), ExistingCopy::Keep | ExistingCopy::Update) => Ok(Intention::Skip),
        (Existing::Other { name, .. }, ExistingCopy::Keep) => Err(RemoteError::Exists(name)),
        (Existing::Same(_) | Existing::Other { .. }, _) => Ok(Intention::Replace),
    }
}

/// What stands where a copy belongs, as the servers of both tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteCopy {
    Missing,
    /// The same content, of this size.
    Same(Bytes),
    Different,
}

/// Compares a file with what stands where its copy belongs, both at storage elements.
pub async fn look_at_remote_copy(
    remote: &Remote,
    (source, destination): (&Url, &Url),
    checksums: ChecksumChoice,
) -> Result<RemoteCopy, RemoteError> {
    let Some(copy) = remote.head(destination, checksums).await? else {
        return Ok(RemoteCopy::Missing);
    };
    let original = remote.head(source, checksums).await?;
    let original = original.ok_or_else(|| RemoteError::not_found(redact(source.as_str())))?;
    if copy.size != original.size {
        return Ok(RemoteCopy::Different);
    }
    let size = copy.size.unwrap_or_default();
    let state = |original: &Head, copy: &Head| {
        let compared = Compared {
            checksums,
            original: &original.checksums,
            original_modified: original.modified,
            copy: &copy.checksums,
            copy_modified: copy.modified,
        };
        match compared.same() {
            Some(_) => RemoteCopy::Same(size),
            None => RemoteCopy::Different,
        }
    };
    let are_comparable = |original: &Head, copy: &Head| {
        let found = checksums.compare(&original.checksums, &copy.checksums);
        found.is_some()
    };
    if are_comparable(&original, &copy) || checksums.algorithms().len() == 1 {
        return Ok(state(&original, &copy));
    }
    // Each has told the one that it likes best.
    for algorithm in checksums.algorithms() {
        let heads = (
            remote.head(source, *algorithm).await?,
            remote.head(destination, *algorithm).await?,
        );
        if let (Some(original), Some(copy)) = heads
            && are_comparable(&original, &copy)
        {
            return Ok(state(&original, &copy));
        }
    }
    Ok(RemoteCopy::Different)
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

/// One file: what is there already counts unless it shall be replaced; else it is copied. Where it is compared before, nothing but
/// that version is replaced.
async fn keep_or_copy<V, E, F>(
    context: &Context,
    find: impl Fn() -> E,
    copy: impl FnOnce(Replaceable<V>) -> F,
) -> Result<FileOutcome, RemoteError>
where
    V: Clone + PartialEq,
    E: Future<Output = Result<Existing<V>, RemoteError>>,
    F: Future<Output = Result<FileOutcome, RemoteError>>,
{
    let outcome = match context.options.existing {
        ExistingCopy::Replace => copy(Replaceable::Anything).await,
        ExistingCopy::Keep | ExistingCopy::Update => match find().await {
            Err(why) => Err(why),
            Ok(Existing::Same(outcome)) => {
                context.progress.found(outcome.size.0);
                Ok(outcome)
            }
            Ok(Existing::Other { name, .. }) if context.options.existing == ExistingCopy::Keep => {
                Err(RemoteError::Exists(name))
            }
            Ok(Existing::Other { version: None, .. }) => copy(Replaceable::Anything).await,
            Ok(Existing::Other {
                version: Some(compared),
                ..
            }) => copy_unless_taken(find, copy, Some(compared)).await,
            Ok(Existing::Nothing) => copy_unless_taken(find, copy, None).await,
        },
    };
    context.progress.file_ended();
    outcome
}

/// Copies to a place that was found empty, or over the version that was compared. Where that is refused, somebody was
/// faster; or we were, and the answer got lost.
async fn copy_unless_taken<V, E, F>(
    find: impl Fn() -> E,
    copy: impl FnOnce(Replaceable<V>) -> F,
    compared: Option<V>,
) -> Result<FileOutcome, RemoteError>
where
    V: Clone + PartialEq,
    E: Future<Output = Result<Existing<V>, RemoteError>>,
    F: Future<Output = Result<FileOutcome, RemoteError>>,
{
    let replaceable = compared
        .clone()
        .map_or(Replaceable::Nothing, Replaceable::Version);
    match copy(replaceable).await {
        Err(why) if is_taken(&why) => match find().await {
            Ok(Existing::Same(outcome)) => Ok(FileOutcome {
                how: CopyResult::Copied,
                ..outcome
            }),
            Ok(Existing::Other { name, version }) => Err(match compared {
                None => RemoteError::Exists(name),
                // Then it was refused for another reason.
                Some(_) if version == compared => why,
                Some(_) => RemoteError::Changed(name),
            }),
            Ok(Existing::Nothing) | Err(_) => Err(why),
        },
        outcome => outcome,
    }
}

/// Whether the place of a new file was found to be taken.
fn is_taken(why: &RemoteError) -> bool {
    let is_there = matches!(why, RemoteError::Exists(_));
    is_there || why.status() == Some(StatusCode::PRECONDITION_FAILED)
}

/// Tries again what may succeed in a moment.
async fn with_retries<T, F>(attempt: impl FnMut() -> F) -> Result<T, RemoteError>
where
    F: Future<Output = Result<T, RemoteError>>,
{
    while_it_advances(|| 0, RemoteError::is_transient, attempt).await
}

/// The same for what goes on where the last attempt has stopped: it ends when several attempts got no further.
async fn while_it_advances<T, F>(
    position: impl Fn() -> u64,
    may_pass: impl Fn(&RemoteError) -> bool,
    mut attempt: impl FnMut() -> F,
) -> Result<T, RemoteError>
where
    F: Future<Output = Result<T, RemoteError>>,
{
    let (mut failures, mut delay, mut reached) = (0, RETRY_DELAY, position());
    loop {
        let why = match attempt().await {
            Err(why) if may_pass(&why) => why,
            outcome => return outcome,
        };
        let now = position();
        if now > reached {
            (failures, delay, reached) = (0, RETRY_DELAY, now);
        }
        failures += 1;
        if failures >= ATTEMPTS_MAX {
            return Err(why);
        }
        tracing::debug!(%why, "trying again");
        tokio::time::sleep(delay).await;
        delay *= 2;
    }
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

    #[tokio::test(start_paused = true)]
    async fn what_gets_further_is_tried_as_often_as_it_takes() {
        let position = AtomicUsize::new(0);
        let lost = || RemoteError::Refused {
            url: "https://se/f".into(),
            status: http::StatusCode::SERVICE_UNAVAILABLE,
            detail: String::new(),
            told: None,
        };
        let check = async |steps: usize, ends_at: usize| {
            position.store(0, Ordering::SeqCst);
            let mut tries = 0;
            let outcome: Result<(), _> = while_it_advances(
                || position.load(Ordering::SeqCst) as u64,
                RemoteError::is_transient,
                || {
                    tries += 1;
                    if tries <= steps {
                        position.fetch_add(1, Ordering::SeqCst);
                    }
                    async { Err(lost()) }
                },
            )
            .await;
            assert!(outcome.is_err());
            assert_eq!(tries, ends_at, "{steps}");
        };
        check(0, 3).await;
        check(10, 12).await;
    }
}
