//! The last steps of a write, shared by many files: final place, durable directory, namespace entry.
//!
//! Files that finish together share one `fsync` per directory here and one commit in the namespace. Each pool has a
//! thread for this, so that a disk that hangs holds up no other.

use crate::claims::Claim;
use crate::crash::{Step, reached};
use crate::nearline_inbox::NearlineInbox;
use crate::pending_publication::PendingPublication;
use crate::pool::{DiskThread, Pool, sync_directory};
use crate::reaper::{Pools, ReaperHandle};
use crate::timed_join::end_thread;
use crate::uncommitted_file::UncommittedFile;
use crate::write_error::{CommitError, WriteError};
use parking_lot::Mutex;
use penstock_model::{Archival, Bytes, PoolName};
use penstock_persistence::namespace::{
    Change, ChangeError, ChangeReport, Namespace, NewFile, RequestOrigin,
};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Files that may wait. Writers wait beyond.
const QUEUE_MAX: usize = 4096;
/// Files that share their directories' `fsync`.
const BATCH_MAX: usize = 512;

/// Directories whose names are remembered to be on the disk. Files of one time share few of them.
const DIRECTORIES_KNOWN_MAX: usize = 64;

/// Between two looks whether the namespace knows again what became of its last commit.
const DOUBT_INTERVAL: Duration = Duration::from_secs(1);

/// How long an end waits for a disk.
const END_WAIT: Duration = Duration::from_secs(10);

/// A complete, synced file.
pub(crate) struct CompleteFile {
    pub file: UncommittedFile,
    pub entry: NewFile,
    /// What the ledger tells of the request.
    pub origin: RequestOrigin,
    pub reply: oneshot::Sender<Result<ChangeReport, WriteError>>,
    /// Holds the path until the entry is there, so that no second writer comes between.
    pub publication: Arc<PendingPublication>,
}

/// A file of which the namespace does not know whether it has its entry. Its path stays claimed until that is known.
struct DoubtfulFile {
    file: UncommittedFile,
    size: Bytes,
    _claim: Option<Claim>,
}

/// Those of one pool.
type DoubtfulFiles = Arc<Mutex<Vec<DoubtfulFile>>>;

/// The threads of all pools. Dropping them finishes what is queued.
pub(crate) struct Committers(BTreeMap<PoolName, Committer>);

impl Committers {
    pub(crate) fn start(
        namespace: &Arc<Namespace>,
        pools: &Pools,
        reaper: &ReaperHandle,
        nearline: Option<&NearlineInbox>,
    ) -> io::Result<Committers> {
        let start = |pool: &Arc<Pool>| {
            let committer = Committer::start(
                Arc::clone(namespace),
                pool,
                reaper.clone(),
                nearline.cloned(),
            )?;
            Ok((pool.name.clone(), committer))
        };
        pools
            .values()
            .map(start)
            .collect::<io::Result<_>>()
            .map(Committers)
    }

    /// Where finished files of a pool are handed in; sending blocks while the queue is full.
    pub(crate) fn queue(&self, pool: &PoolName) -> SyncSender<CompleteFile> {
        self.0.get(pool).expect("every pool has one").queue()
    }

    /// Threads that have ended by themselves.
    pub(crate) fn dead(&self) -> Vec<String> {
        let dead = self.0.iter().filter(|(_, committer)| !committer.is_alive());
        dead.map(|(pool, _)| format!("committer-{pool}")).collect()
    }
}

/// The thread of one pool.
struct Committer {
    pool: PoolName,
    queue: Option<SyncSender<CompleteFile>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Committer {
    fn start(
        namespace: Arc<Namespace>,
        pool: &Arc<Pool>,
        reaper: ReaperHandle,
        nearline: Option<NearlineInbox>,
    ) -> io::Result<Committer> {
        let (queue, finished) = sync_channel(QUEUE_MAX);
        let name = pool.name.clone();
        let pool = Arc::clone(pool);
        let thread = std::thread::Builder::new()
            .name(format!("committer-{name}"))
            .spawn(move || run(&namespace, &pool, &reaper, nearline.as_ref(), &finished))?;
        Ok(Committer {
            pool: name,
            queue: Some(queue),
            thread: Mutex::new(Some(thread)),
        })
    }

    fn queue(&self) -> SyncSender<CompleteFile> {
        self.queue.clone().expect("present until drop")
    }

    fn is_alive(&self) -> bool {
        let thread = self.thread.lock();
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.queue = None;
        let thread = self.thread.get_mut();
        if let Some(thread) = thread.take() {
            end_thread(thread, Instant::now() + END_WAIT, self.pool.as_str());
        }
    }
}

fn run(
    namespace: &Namespace,
    pool: &Pool,
    reaper: &ReaperHandle,
    nearline: Option<&NearlineInbox>,
    finished: &Receiver<CompleteFile>,
) {
    let doubtful = DoubtfulFiles::default();
    let mut directories = DurableDirectories::default();
    loop {
        let is_certain = doubtful.lock().is_empty();
        let first = match is_certain {
            true => finished.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => finished.recv_timeout(DOUBT_INTERVAL),
        };
        match first {
            Ok(first) => {
                let batch = std::iter::once(first).chain(finished.try_iter().take(BATCH_MAX - 1));
                let complete = adopt(pool, batch);
                let durable = directories.make_durable(pool, complete);
                for complete in durable {
                    publish(
                        namespace,
                        reaper.clone(),
                        nearline.cloned(),
                        Arc::clone(&doubtful),
                        complete,
                    );
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if !is_certain {
            judge_doubtful(namespace, pool, nearline, &doubtful);
        }
    }
    for doubted in doubtful.lock().drain(..) {
        doubted.file.leave();
    }
}

/// Keeps the data of files that have their entry after all, and removes that of the others, once the namespace knows.
fn judge_doubtful(
    namespace: &Namespace,
    pool: &Pool,
    nearline: Option<&NearlineInbox>,
    doubtful: &DoubtfulFiles,
) {
    if namespace.writer_counts().refuses {
        return;
    }
    let files = std::mem::take(&mut *doubtful.lock());
    let mut unknown = Vec::new();
    for doubted in files {
        let id = doubted.file.id;
        match namespace.holds_file(id, &pool.name) {
            Ok(true) => {
                doubted.file.keep(doubted.size);
                if let Some(nearline) = nearline {
                    nearline.precious(id);
                }
            }
            Ok(false) => {
                tracing::warn!(pool = %pool.name, file = %id, "the namespace has no entry of a file whose commit failed; its data is removed");
                drop(doubted.file);
            }
            Err(why) => {
                tracing::error!(pool = %pool.name, file = %id, %why, "it is not known yet whether the namespace has a file");
                unknown.push(doubted);
            }
        }
    }
    doubtful.lock().append(&mut unknown);
}

/// Has each file at its final place.
fn adopt(
    pool: &Pool,
    batch: impl Iterator<Item = CompleteFile>,
) -> BTreeMap<PathBuf, Vec<CompleteFile>> {
    let mut by_directory: BTreeMap<PathBuf, Vec<CompleteFile>> = BTreeMap::new();
    for mut complete in batch {
        if complete.publication.is_given_up() {
            refuse(complete, io::ErrorKind::TimedOut.into());
            continue;
        }
        let adopted = pool
            .health
            .during(DiskThread::Commit, || complete.file.adopt());
        match adopted {
            Ok(()) => {
                let directory = pool.data_directory(complete.file.id);
                by_directory.entry(directory).or_default().push(complete);
            }
            Err(source) => refuse(complete, source),
        }
    }
    by_directory
}

/// Directories of a pool's data whose own names are known to be on the disk.
#[derive(Default)]
struct DurableDirectories(VecDeque<PathBuf>);

impl DurableDirectories {
    /// Makes names of files durable, and those of their directories. Gives back the files whose names are.
    fn make_durable(
        &mut self,
        pool: &Pool,
        by_directory: BTreeMap<PathBuf, Vec<CompleteFile>>,
    ) -> Vec<CompleteFile> {
        let mut durable = Vec::new();
        for (directory, files) in by_directory {
            let synced = pool.health.during(DiskThread::Commit, || {
                self.sync(&pool.data_root(), &directory)
            });
            match synced {
                Ok(()) => {
                    reached(Step::DirectorySynced);
                    durable.extend(files);
                }
                Err(why) => {
                    pool.health.write_failed(&pool.name, &why);
                    for complete in files {
                        refuse(complete, io::Error::new(why.kind(), why.to_string()));
                    }
                }
            }
        }
        durable
    }

    fn sync(&mut self, root: &Path, directory: &Path) -> io::Result<()> {
        if !self.0.iter().any(|known| known == directory) {
            sync_directory(root)?;
            self.0.truncate(DIRECTORIES_KNOWN_MAX - 1);
            self.0.push_front(directory.to_owned());
        }
        sync_directory(directory)
    }
}

fn publish(
    namespace: &Namespace,
    reaper: ReaperHandle,
    nearline: Option<NearlineInbox>,
    doubtful: DoubtfulFiles,
    complete: CompleteFile,
) {
    let CompleteFile {
        file,
        entry,
        origin,
        reply,
        publication,
    } = complete;
    let mut claim = publication.publish();
    if claim.is_none() {
        // Who waited for it was told that it will not be there.
        return;
    }
    let size = entry.size;
    let nearline = nearline.filter(|_| entry.archival == Archival::Precious);
    let change = Change::Publish(entry).asked_by(Arc::new(origin));
    namespace.submit(change, move |result| {
        let result = match result {
            Ok(changed) => {
                reached(Step::Committed);
                file.pool.recent_files.note(file.id);
                if let Some(nearline) = nearline {
                    nearline.precious(file.id);
                }
                file.keep(size);
                reaper.bury(&changed.trashed);
                Ok(changed)
            }
            Err(why) => {
                let error = WriteError::Commit(CommitError::from(&why));
                if let ChangeError::Doubtful(_) = why {
                    doubtful.lock().push(DoubtfulFile {
                        file,
                        size,
                        _claim: claim.take(),
                    });
                }
                Err(error)
            }
        };
        drop(claim);
        // The client may have gone; the file is there all the same.
        let _ = reply.send(result);
    });
}

fn refuse(complete: CompleteFile, source: io::Error) {
    let error = complete.file.pool.write_failed(source);
    drop(complete.file);
    // As above.
    let _ = complete.reply.send(Err(error));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Claims;
    use crate::clock::BelievedClock;
    use crate::config::PoolConfig;
    use crate::reaper::Reapers;
    use penstock_decide::admission::QueueLimits;
    use penstock_decide::pool_selection::PoolMode;
    use penstock_model::NamespacePath;
    use penstock_persistence::namespace::Replace;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn files_of_a_doubtful_commit_are_kept_or_removed_once_the_namespace_knows() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("namespace.sqlite");
        let namespace = Arc::new(Namespace::open(&file).expect("opens"));
        let config = PoolConfig {
            name: PoolName::new("p1"),
            directory: directory.path().join("p1"),
            capacity: Some(Bytes(1000)),
            mode: PoolMode::Enabled,
            movers: QueueLimits::default(),
        };
        let pool = Arc::new(Pool::new(&config, Bytes(0), Bytes(0)));
        pool.set_free(u64::MAX / 2);
        let pools = Pools::from([(pool.name.clone(), Arc::clone(&pool))]);
        let clock = Arc::new(BelievedClock::start(None));
        let reapers = Reapers::start(&namespace, &clock, &pools, Duration::ZERO).expect("started");
        let claims: Arc<Claims> = Arc::default();
        let paths = ["/kept", "/gone"].map(|at| NamespacePath::parse(at).expect("valid"));
        let doubtful = DoubtfulFiles::default();
        let mut places = Vec::new();
        for path in &paths {
            let id = namespace.allocate();
            std::fs::create_dir_all(pool.data_directory(id)).expect("made");
            std::fs::create_dir_all(pool.incoming_path(id).parent().expect("below the pool"))
                .expect("made");
            let reservation = pool.reserve();
            let made =
                UncommittedFile::create(id, reservation, Arc::clone(&pool), reapers.handle());
            let mut file = made.expect("made");
            file.adopt().expect("adopted");
            doubtful.lock().push(DoubtfulFile {
                file,
                size: Bytes(0),
                _claim: claims.claim(path).ok(),
            });
            places.push((id, pool.data_path(id)));
        }
        // The commit of the first was found in the database's log.
        let committed = NewFile {
            id: places[0].0,
            path: paths[0].clone(),
            size: Bytes(0),
            checksums: Vec::new(),
            pool: pool.name.clone(),
            archival: penstock_model::Archival::DiskOnly,
            owner: None,
            at: penstock_clock::wall_clock(),
            replace: Replace::Refused,
            properties_of: None,
            archive_word: None,
            labelled_in: None,
        };
        namespace
            .apply(Change::Publish(committed))
            .expect("published");
        assert!(paths.iter().all(|path| claims.is_written(path)));
        judge_doubtful(&namespace, &pool, None, &doubtful);
        drop(reapers);
        assert!(doubtful.lock().is_empty());
        assert_eq!([places[0].1.exists(), places[1].1.exists()], [true, false]);
        assert!(!paths.iter().any(|path| claims.is_written(path)));
    }

    #[test]
    fn a_thread_that_has_ended_by_itself_is_told() {
        let committer = |name: &str, thread: JoinHandle<()>| {
            let pool = PoolName::new(name);
            let committer = Committer {
                pool: pool.clone(),
                queue: None,
                thread: Mutex::new(Some(thread)),
            };
            (pool, committer)
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let works = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let panics = std::thread::spawn(|| panic!("a defect that the test asks for"));
        let until = Instant::now() + Duration::from_secs(20);
        while !panics.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let committers = Committers([committer("p1", works), committer("p2", panics)].into());
        assert_eq!(committers.dead(), ["committer-p2"]);
        is_over.store(true, Ordering::Relaxed);
    }
}
