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

    /// Has trash removed that could not be removed until now.
    pub(crate) fn look_again(&self) {
        self.overflowed.store(true, Ordering::Relaxed);
        // A queue that is full is worked on.
        let _ = self.queue.try_send(Task::Trash(Vec::new()));
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
            if !pool.can_remove() {
                // It is trash until the pool is back.
                continue;
            }
            match pool.remove(trashed.file) {
                Ok(()) => {
                    reached(Step::DataRemoved);
                    gone.push((pool, trashed));
                }
                Err(why) => {
                    let (pool, file) = (&pool.name, trashed.file);
                    tracing::error!(%pool, %file, %why, "a removed file's data stays on its disk");
                }
            }
        }
        let files = gone.iter().map(|(_, trashed)| trashed.file).collect();
        match namespace.apply(Change::ForgetTrash(files)) {
            Ok(mut changed) => {
                forgotten += changed.forgotten.len() as u64;
                for (pool, trashed) in gone {
                    // What was found in the namespace after the queue had been full may come twice.
                    if changed.forgotten.remove(&trashed.file) {
                        pool.release(trashed.size);
                    }
                }
            }
            Err(why) => {
                tracing::warn!(%why, "removed trash could not be forgotten; the next start does it");
            }
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
    const SIZE: Bytes = Bytes(4);
    /// What other files of the pool have.
    const OTHERS: Bytes = Bytes(1000);

    /// Publishes files with data, then removes them from the tree. What the namespace put into its trash.
    fn removed_files(namespace: &Namespace, pool: &Pool) -> Vec<Trashed> {
        let path = |text: &str| NamespacePath::parse(text).expect("valid path");
        for number in 0..FILES {
            let id = namespace.allocate();
            std::fs::create_dir_all(pool.data_directory(id)).expect("made");
            std::fs::write(pool.data_path(id), [0; SIZE.0 as usize]).expect("written");
            let file = NewFile {
                id,
                path: path(&format!("/d/f{number}")),
                size: SIZE,
                checksums: Vec::new(),
                pool: pool.name.clone(),
                owner: None,
                at: Timestamp(0),
                replace: Replace::Refused,
                properties_of: None,
                labelled_in: None,
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
        namespace.apply(remove).expect("removed").trashed
    }

    /// A namespace and a pool of it, with files whose data is there and has been removed from the tree.
    struct Lab {
        _directory: tempfile::TempDir,
        namespace: Namespace,
        pool: Arc<Pool>,
        trash: Vec<Trashed>,
    }

    impl Lab {
        fn new() -> Lab {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let file = directory.path().join("namespace.sqlite");
            let namespace = Namespace::open(&file).expect("opens");
            let config = PoolConfig {
                name: PoolName::new("p1"),
                directory: directory.path().join("p1"),
                capacity: None,
                mode: PoolMode::Enabled,
                movers: QueueLimits {
                    movers_max: 1,
                    queue_max: 1,
                    ..QueueLimits::default()
                },
            };
            let used = Bytes(SIZE.0 * FILES as u64 + OTHERS.0);
            let pool = Arc::new(Pool::new(&config, used, Bytes(0)));
            let trash = removed_files(&namespace, &pool);
            assert_eq!(trash.len(), FILES);
            Lab {
                _directory: directory,
                namespace,
                pool,
                trash,
            }
        }

        /// Has the thread's work done on tasks that are queued.
        fn run(&self, queued: Vec<Task>) {
            let (queue, tasks) = sync_channel(queued.len() + 1);
            for task in queued.into_iter().chain([Task::Stop]) {
                queue.send(task).expect("room");
            }
            let pools = Pools::from([(self.pool.name.clone(), Arc::clone(&self.pool))]);
            run(&self.namespace, &pools, &tasks, &AtomicBool::new(false));
            assert!(self.namespace.trash(FILES).expect("readable").is_empty());
            for trashed in &self.trash {
                assert!(!self.pool.data_path(trashed.file).exists());
            }
            assert_eq!(self.pool.filling().0, OTHERS);
        }

        fn one_by_one(&self) -> Vec<Task> {
            let one = |trashed: &Trashed| Task::Trash(vec![trashed.clone()]);
            self.trash.iter().map(one).collect()
        }
    }

    #[test]
    fn trash_that_has_piled_up_is_forgotten_in_one_change() {
        let lab = Lab::new();
        let data = lab.pool.data_path(lab.trash[0].file);
        assert!(data.exists());
        let before = lab.namespace.writer_counts().changes;
        lab.run(lab.one_by_one());
        assert_eq!(lab.namespace.writer_counts().changes - before, 1);
    }

    #[test]
    fn room_of_trash_that_is_found_twice_is_given_back_once() {
        let lab = Lab::new();
        let all = Task::Trash(lab.trash.clone());
        lab.run(lab.one_by_one().into_iter().chain([all]).collect());
    }
}
