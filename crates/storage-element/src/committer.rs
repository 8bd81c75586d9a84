//! The last steps of a write, shared by many files: final place, durable directory, namespace entry.
//!
//! Files that finish together share one `fsync` per directory here and one commit in the namespace. Each pool has a
//! thread for this, so that a disk that hangs holds up no other.

use crate::crash::{Step, reached};
use crate::pending_publication::PendingPublication;
use crate::pool::{DiskThread, Pool, sync_directory};
use crate::reaper::{Pools, ReaperHandle};
use crate::timed_join::end_thread;
use crate::uncommitted_file::UncommittedFile;
use crate::write_error::{CommitError, WriteError};
use parking_lot::Mutex;
use penstock_model::PoolName;
use penstock_persistence::namespace::{
    Change, ChangeError, ChangeReport, Namespace, NewFile, RequestOrigin,
};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Files that may wait. Writers wait beyond.
const QUEUE_MAX: usize = 4096;
/// Files that share their directories' `fsync`.
const BATCH_MAX: usize = 512;

/// How long an end waits for a disk.
const END_WAIT: Duration = Duration::from_secs(10);

/// A complete, synced file.
pub(crate) struct CompleteFile {
    pub scratch: UncommittedFile,
    pub entry: NewFile,
    /// What the ledger tells of the request.
    pub origin: RequestOrigin,
    pub reply: oneshot::Sender<Result<ChangeReport, WriteError>>,
    /// Holds the path until the entry is there, so that no second writer comes between.
    pub publication: Arc<PendingPublication>,
}

/// The threads of all pools. Dropping them finishes what is queued.
pub(crate) struct Committers(BTreeMap<PoolName, Committer>);

impl Committers {
    pub(crate) fn start(
        namespace: &Arc<Namespace>,
        pools: &Pools,
        reaper: &ReaperHandle,
    ) -> io::Result<Committers> {
        let start = |pool: &Arc<Pool>| {
            let committer = Committer::start(Arc::clone(namespace), pool, reaper.clone())?;
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
    ) -> io::Result<Committer> {
        let (queue, finished) = sync_channel(QUEUE_MAX);
        let name = pool.name.clone();
        let pool = Arc::clone(pool);
        let thread = std::thread::Builder::new()
            .name(format!("committer-{name}"))
            .spawn(move || run(&namespace, &pool, &reaper, &finished))?;
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
    finished: &Receiver<CompleteFile>,
) {
    while let Ok(first) = finished.recv() {
        let batch = std::iter::once(first).chain(finished.try_iter().take(BATCH_MAX - 1));
        commit(namespace, pool, reaper, batch.collect());
    }
}

fn commit(namespace: &Namespace, pool: &Pool, reaper: &ReaperHandle, batch: Vec<CompleteFile>) {
    let mut by_directory: BTreeMap<PathBuf, Vec<CompleteFile>> = BTreeMap::new();
    for mut file in batch {
        if file.publication.is_given_up() {
            refuse(file, io::ErrorKind::TimedOut.into());
            continue;
        }
        match file.scratch.adopt() {
            Ok(()) => {
                let directory = pool.data_directory(file.scratch.id);
                by_directory.entry(directory).or_default().push(file);
            }
            Err(source) => refuse(file, source),
        }
    }
    for (directory, files) in by_directory {
        let synced = pool
            .health
            .during(DiskThread::Commit, || sync_directory(&directory));
        if let Err(why) = synced {
            pool.health.write_failed(&pool.name, &why);
            for file in files {
                refuse(file, io::Error::new(why.kind(), why.to_string()));
            }
            continue;
        }
        reached(Step::DirectorySynced);
        for file in files {
            publish(namespace, reaper.clone(), file);
        }
    }
}

fn publish(namespace: &Namespace, reaper: ReaperHandle, file: CompleteFile) {
    let CompleteFile {
        scratch,
        entry,
        origin,
        reply,
        publication,
    } = file;
    let Some(claim) = publication.publish() else {
        // Who waited for it was told that it will not be there.
        return;
    };
    let size = entry.size;
    let change = Change::Publish(entry).asked_by(Arc::new(origin));
    namespace.submit(change, move |result| {
        let result = match result {
            Ok(changed) => {
                reached(Step::Committed);
                scratch.pool.recent_files.note(scratch.id);
                scratch.keep(size);
                reaper.bury(&changed.trashed);
                Ok(changed)
            }
            Err(why) => {
                let error = WriteError::Commit(CommitError::from(&why));
                discard(scratch, &why);
                Err(error)
            }
        };
        drop(claim);
        // The client may have gone; the file is there all the same.
        let _ = reply.send(result);
    });
}

/// The data of a file without an entry goes, unless a restart may find that it has one.
fn discard(scratch: UncommittedFile, why: &ChangeError) {
    match why {
        ChangeError::Doubtful(_) => scratch.leave(),
        ChangeError::Refused(_)
        | ChangeError::Busy
        | ChangeError::Stopped
        | ChangeError::Database(_)
        | ChangeError::Unsettled => drop(scratch),
    }
}

fn refuse(file: CompleteFile, source: io::Error) {
    let error = file.scratch.pool.write_failed(source);
    drop(file.scratch);
    // As above.
    let _ = file.reply.send(Err(error));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

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
