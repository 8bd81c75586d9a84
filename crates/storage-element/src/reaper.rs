//! Removes data that nobody can see any more, on a thread of its own, because removing a large file takes
//! a while.
//!
//! Trash is in the namespace until its data is gone, so nothing here must survive a crash.

use crate::crash::{Step, reached};
use crate::pool::{Pool, Reservation};
use crate::scratch::Place;
use penstock_model::PoolName;
use penstock_persistence::namespace::{Change, EntryId, Namespace, Trashed};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Removals that may wait in memory. Trash beyond is found again in the namespace.
const QUEUE_MAX: usize = 65_536;
/// Trash entries forgotten in one change.
const FORGET_MAX: usize = 1000;

/// The pools of a storage element.
pub(crate) type Pools = BTreeMap<PoolName, Arc<Pool>>;

enum Task {
    Trash(Vec<Trashed>),
    Discard(Discard),
    Stop,
}

struct Discard {
    pool: Arc<Pool>,
    id: EntryId,
    place: Place,
    /// Given back when the data is gone.
    _reservation: Option<Reservation>,
}

/// The thread. Dropping it finishes what is queued.
pub(crate) struct Reaper {
    handle: ReaperHandle,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Where removals are ordered.
#[derive(Clone)]
pub(crate) struct ReaperHandle {
    queue: SyncSender<Task>,
    overflowed: Arc<AtomicBool>,
}

impl Reaper {
    pub(crate) fn start(namespace: Arc<Namespace>, pools: Pools) -> io::Result<Reaper> {
        let (queue, tasks) = sync_channel(QUEUE_MAX);
        let handle = ReaperHandle {
            queue,
            overflowed: Arc::default(),
        };
        let overflowed = Arc::clone(&handle.overflowed);
        let thread = std::thread::Builder::new()
            .name("reaper".to_owned())
            .spawn(move || run(&namespace, &pools, &tasks, &overflowed))?;
        Ok(Reaper {
            handle,
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(crate) fn handle(&self) -> ReaperHandle {
        self.handle.clone()
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // A thread that is gone already has nothing left to do.
        let _ = self.handle.queue.send(Task::Stop);
        let thread = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let _ = thread.take().map(JoinHandle::join);
    }
}

impl ReaperHandle {
    /// Orders the removal of trash. Never blocks.
    pub(crate) fn bury(&self, trashed: Vec<Trashed>) {
        if !trashed.is_empty() && self.queue.try_send(Task::Trash(trashed)).is_err() {
            self.overflowed.store(true, Ordering::Relaxed);
        }
    }

    /// Orders the removal of data without an entry. Blocks only when the queue is full: then it does it
    /// itself.
    pub(crate) fn discard(
        &self,
        pool: Arc<Pool>,
        id: EntryId,
        place: Place,
        reservation: Option<Reservation>,
    ) {
        use std::sync::mpsc::TrySendError;
        let order = Task::Discard(Discard {
            pool,
            id,
            place,
            _reservation: reservation,
        });
        match self.queue.try_send(order) {
            Ok(()) => {}
            Err(
                TrySendError::Full(Task::Discard(order))
                | TrySendError::Disconnected(Task::Discard(order)),
            ) => discard(&order),
            Err(_) => {}
        }
    }
}

fn run(namespace: &Namespace, pools: &Pools, tasks: &Receiver<Task>, overflowed: &AtomicBool) {
    while let Ok(first) = tasks.recv() {
        let (mut trash, mut is_over) = (Vec::new(), false);
        // What has piled up is forgotten in one change. One for each file would wait for the disk as often, and fall behind
        // where many files are replaced.
        for task in std::iter::once(first).chain(tasks.try_iter().take(FORGET_MAX - 1)) {
            match task {
                Task::Trash(trashed) => trash.extend(trashed),
                Task::Discard(order) => discard(&order),
                Task::Stop => {
                    is_over = true;
                    break;
                }
            }
        }
        bury(namespace, pools, &trash);
        if is_over {
            return;
        }
        if overflowed.swap(false, Ordering::Relaxed) {
            replay(namespace, pools);
        }
    }
}

/// Removes all trash that the namespace knows of. Gives back how many files that were.
pub(crate) fn replay(namespace: &Namespace, pools: &Pools) -> u64 {
    let mut removed = 0;
    loop {
        let trashed = match namespace.trash(FORGET_MAX) {
            Ok(trashed) => trashed,
            Err(why) => {
                tracing::error!(%why, "trash cannot be read; its data stays until the next start");
                return removed;
            }
        };
        let buried = bury(namespace, pools, &trashed);
        removed += buried;
        // Files that cannot be removed stay trash; reading them again would not end.
        if trashed.len() < FORGET_MAX || buried == 0 {
            return removed;
        }
    }
}

/// Removes the data of trash, then the trash. Gives back how many files are forgotten.
fn bury(namespace: &Namespace, pools: &Pools, trashed: &[Trashed]) -> u64 {
    let mut forgotten = 0;
    for chunk in trashed.chunks(FORGET_MAX) {
        let mut gone = Vec::with_capacity(chunk.len());
        for trashed in chunk {
            let Some(pool) = pools.get(&trashed.pool) else {
                let (pool, file) = (&trashed.pool, trashed.file);
                tracing::warn!(%pool, %file, "trash in a pool that is not configured stays");
                continue;
            };
            match pool.remove(trashed.file) {
                Ok(()) => {
                    reached(Step::DataRemoved);
                    pool.release(trashed.size);
                    gone.push(trashed.file);
                }
                Err(why) => {
                    let (pool, file) = (&pool.name, trashed.file);
                    tracing::error!(%pool, %file, %why, "a removed file's data stays on its disk");
                }
            }
        }
        forgotten += gone.len() as u64;
        if let Err(why) = namespace.apply(Change::ForgetTrash(gone)) {
            tracing::warn!(%why, "removed trash could not be forgotten; the next start does it");
        }
        reached(Step::TrashForgotten);
    }
    forgotten
}

fn discard(order: &Discard) {
    let Discard {
        pool, id, place, ..
    } = order;
    let path = match place {
        Place::Incoming => pool.incoming_path(*id),
        Place::Data => pool.data_path(*id),
        Place::Kept => return,
    };
    match std::fs::remove_file(&path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => {
            let path = path.display();
            tracing::error!(%path, %why, "unfinished data stays until the next start");
        }
        Ok(()) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PoolConfig;
    use penstock_decide::admission::QueueLimits;
    use penstock_decide::pool_selection::PoolMode;
    use penstock_model::{Bytes, NamespacePath, Timestamp};
    use penstock_persistence::namespace::{NewFile, Replace};

    const FILES: usize = 300;

    /// Publishes files with data, then removes them from the tree. What the namespace put into its trash.
    fn removed_files(namespace: &Namespace, pool: &Pool) -> Vec<Trashed> {
        let path = |text: &str| NamespacePath::parse(text).expect("valid path");
        for number in 0..FILES {
            let id = namespace.allocate();
            std::fs::create_dir_all(pool.data_directory(id)).expect("made");
            std::fs::write(pool.data_path(id), b"data").expect("written");
            let file = NewFile {
                id,
                path: path(&format!("/d/f{number}")),
                size: Bytes(4),
                checksums: Vec::new(),
                pool: pool.name.clone(),
                owner: None,
                at: Timestamp(0),
                replace: Replace::Refused,
                properties_of: None,
            };
            namespace.submit(Change::Publish(file), |published| {
                published.expect("published");
            });
        }
        let remove = Change::Remove {
            path: path("/d"),
            only: None,
            entries_max: FILES + 1,
            at: Timestamp(0),
        };
        namespace.apply(remove).expect("removed").trashed.clone()
    }

    #[test]
    fn trash_that_has_piled_up_is_forgotten_in_few_changes() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let namespace = Namespace::open(&directory.path().join("namespace.sqlite")).expect("opens");
        let config = PoolConfig {
            name: PoolName::new("p1"),
            directory: directory.path().join("p1"),
            capacity: None,
            mode: PoolMode::Enabled,
            movers: QueueLimits {
                movers_max: 1,
                queue_max: 1,
            },
        };
        let pool = Arc::new(Pool::new(&config, Bytes(4 * FILES as u64), Bytes(0)));
        let trash = removed_files(&namespace, &pool);
        assert_eq!(trash.len(), FILES);
        let data: Vec<_> = trash
            .iter()
            .map(|trashed| pool.data_path(trashed.file))
            .collect();
        assert!(data.iter().all(|path| path.exists()));

        let (queue, tasks) = sync_channel(FILES + 1);
        for trashed in trash {
            queue.send(Task::Trash(vec![trashed])).expect("room");
        }
        queue.send(Task::Stop).expect("room");
        let before = namespace.writer_counts().changes;
        let pools = Pools::from([(pool.name.clone(), pool)]);
        run(&namespace, &pools, &tasks, &AtomicBool::new(false));

        assert_eq!(namespace.writer_counts().changes - before, 1);
        assert!(!data.iter().any(|path| path.exists()));
        assert!(namespace.trash(FILES).expect("readable").is_empty());
    }
}
