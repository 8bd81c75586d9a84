//! The last steps of a write, shared by many files: final place, durable directory, namespace entry.
//!
//! Files that finish together share one `fsync` per directory here and one commit in the namespace.

use crate::claims::Claim;
use crate::crash::{Step, reached};
use crate::pool::sync_directory;
use crate::reaper::ReaperHandle;
use crate::scratch::Scratch;
use crate::write_error::WriteError;
use penstock_model::PoolName;
use penstock_persistence::namespace::{Change, Changed, Namespace, NewFile};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Files that may wait. Writers wait beyond.
const QUEUE_MAX: usize = 4096;
/// Files that share their directories' `fsync`.
const BATCH_MAX: usize = 512;

/// A complete, synced file.
pub(crate) struct Finished {
    pub scratch: Scratch,
    pub entry: NewFile,
    pub reply: oneshot::Sender<Result<Changed, WriteError>>,
    /// Held until the entry is there, so that no second writer of the path comes between.
    pub claim: Claim,
}

/// The thread. Dropping it finishes what is queued.
pub(crate) struct Committer {
    queue: Option<SyncSender<Finished>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Committer {
    pub(crate) fn start(namespace: Arc<Namespace>, reaper: ReaperHandle) -> io::Result<Committer> {
        let (queue, finished) = sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("committer".to_owned())
            .spawn(move || run(&namespace, &reaper, &finished))?;
        Ok(Committer {
            queue: Some(queue),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Where finished files are handed in; sending blocks while the queue is full.
    pub(crate) fn queue(&self) -> SyncSender<Finished> {
        self.queue.clone().expect("present until drop")
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.queue = None;
        let thread = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        // A panicked committer acknowledged nothing.
        let _ = thread.take().map(JoinHandle::join);
    }
}

fn run(namespace: &Namespace, reaper: &ReaperHandle, finished: &Receiver<Finished>) {
    while let Ok(first) = finished.recv() {
        let batch = std::iter::once(first).chain(finished.try_iter().take(BATCH_MAX - 1));
        commit(namespace, reaper, batch.collect());
    }
}

fn commit(namespace: &Namespace, reaper: &ReaperHandle, batch: Vec<Finished>) {
    let mut by_directory: BTreeMap<(PoolName, PathBuf), Vec<Finished>> = BTreeMap::new();
    for mut file in batch {
        match file.scratch.adopt() {
            Ok(()) => {
                let pool = &file.scratch.pool;
                let directory = pool.data_directory(file.scratch.id);
                let key = (pool.name.clone(), directory);
                by_directory.entry(key).or_default().push(file);
            }
            Err(source) => refuse(file, source),
        }
    }
    for ((_, directory), files) in by_directory {
        if let Err(why) = sync_directory(&directory) {
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

fn publish(namespace: &Namespace, reaper: ReaperHandle, file: Finished) {
    let Finished {
        scratch,
        entry,
        reply,
        claim,
    } = file;
    let size = entry.size;
    namespace.submit(Change::Publish(entry), move |result| {
        let result = match result {
            Ok(changed) => {
                reached(Step::Committed);
                scratch.keep(size);
                reaper.bury(changed.trashed.clone());
                Ok(changed)
            }
            Err(why) => {
                drop(scratch);
                Err(WriteError::Namespace(why))
            }
        };
        drop(claim);
        // The client may have gone; the file is there all the same.
        let _ = reply.send(result);
    });
}

fn refuse(file: Finished, source: io::Error) {
    let pool = file.scratch.pool.name.clone();
    drop(file.scratch);
    // As above.
    let _ = file.reply.send(Err(WriteError::of_io(pool, source)));
}
