//! What the tape system has taken becomes what the namespace tells: after a look whether what it took is what was written.

use super::asking::Lookup;
use super::{Driver, ROOM_DELAY};
use crate::nearline::put_source::PutSource;
use crate::nearline::tape_system::TapeSystem;
use crate::nearline::{COMPARED_PER_POOL, NearlineContext};
use penstock_model::{Archival, PoolName};
use penstock_persistence::namespace::{
    ChangeError, ChangeRefusal, EntryId, NearlineChange, TapeFile, TapeRemoval,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};

/// How long the end of the service may be held up by reading one file.
const LAST_LOOK: Duration = Duration::from_secs(5);
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// A put that a program has told, and how its file on disk looks.
pub(super) struct Comparison {
    file: Box<TapeFile>,
    uris: Vec<String>,
    outcome: io::Result<()>,
}

/// Puts that are being compared.
pub(super) struct Comparisons {
    files: BTreeSet<EntryId>,
    slots: BTreeMap<PoolName, Arc<Semaphore>>,
    sender: mpsc::UnboundedSender<Comparison>,
    pub(super) ended: mpsc::UnboundedReceiver<Comparison>,
    is_over: Arc<AtomicBool>,
}

impl Default for Comparisons {
    fn default() -> Self {
        let (sender, ended) = mpsc::unbounded_channel();
        Comparisons {
            files: BTreeSet::new(),
            slots: BTreeMap::new(),
            sender,
            ended,
            is_over: Arc::default(),
        }
    }
}

impl Drop for Comparisons {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Comparisons {
    /// It is on tape as far as the tape system says.
    pub(super) fn holds(&self, file: EntryId) -> bool {
        self.files.contains(&file)
    }

    /// Reads the file on another thread.
    fn begin(&mut self, pool: &PoolName, data: PathBuf, file: Box<TapeFile>, uris: Vec<String>) {
        self.files.insert(file.id);
        let slots = self.slots.entry(pool.clone());
        let slots = slots.or_insert_with(|| Arc::new(Semaphore::new(COMPARED_PER_POOL)));
        let (slots, sender) = (Arc::clone(slots), self.sender.clone());
        let is_over = Arc::clone(&self.is_over);
        tokio::spawn(async move {
            let Ok(_slot) = slots.acquire_owned().await else {
                return;
            };
            let target = file.clone();
            let read = tokio::task::spawn_blocking(move || read_all(&target, &data, &is_over));
            let outcome = read.await.unwrap_or_else(|why| Err(io::Error::other(why)));
            // Nobody hears it once the driver has ended: the next start puts the file again.
            let _ = sender.send(Comparison {
                file,
                uris,
                outcome,
            });
        });
    }
}

fn read_all(target: &TapeFile, data: &Path, is_over: &AtomicBool) -> io::Result<()> {
    let mut source = PutSource::open(target, data)?;
    let mut buffer = vec![0; READ_BYTES];
    while source.read(&mut buffer)? > 0 {
        if is_over.load(Ordering::Relaxed) {
            return Err(ErrorKind::Interrupted.into());
        }
    }
    Ok(())
}

/// Whether the data of a file is what was written, as far as that can be told at once.
pub(super) async fn is_as_written(context: &NearlineContext, id: EntryId) -> bool {
    let Ok(Some(file)) = context.namespace.tape_file(id) else {
        return false;
    };
    let pool = file.pool.as_ref().and_then(|pool| context.pools.get(pool));
    let Some(pool) = pool.filter(|pool| pool.is_in_reach()) else {
        return false;
    };
    let (data, is_over) = (pool.data_path(id), Arc::new(AtomicBool::new(false)));
    let is_late = Arc::clone(&is_over);
    let read = tokio::task::spawn_blocking(move || read_all(&file, &data, &is_over));
    let read = tokio::time::timeout(LAST_LOOK, read).await;
    is_late.store(true, Ordering::Relaxed);
    matches!(read, Ok(Ok(Ok(()))))
}

impl<S: TapeSystem> Driver<S> {
    /// The tape system has taken a file. Drives of libraries compare while they read; what a program has read nobody saw.
    pub(super) async fn archived(&mut self, id: EntryId, uris: Vec<String>) {
        if self.system.compares_puts() {
            return self.keep_archived(id, uris).await;
        }
        let file = match self.tape_file(id) {
            Lookup::File(file) if file.archival == Archival::Precious => file,
            // It is gone, or was told before.
            Lookup::File(_) | Lookup::Gone => return self.keep_archived(id, uris).await,
            Lookup::Unknown => return self.retries.add(id, None),
        };
        let name = file.pool.clone();
        let pool = name.and_then(|name| self.context.pools.get(&name)).cloned();
        match pool.filter(|pool| pool.is_in_reach()) {
            Some(pool) => {
                let data = pool.data_path(id);
                self.comparisons.begin(&pool.name, data, file, uris);
            }
            None => {
                tracing::warn!(file = %id, "the pool of a file that was put on tape is away, so that it is put again");
                self.ask_known_later(&file);
            }
        }
    }

    pub(super) async fn take_comparison(&mut self, comparison: Comparison) {
        let Comparison {
            file,
            uris,
            outcome,
        } = comparison;
        self.comparisons.files.remove(&file.id);
        match outcome {
            Ok(()) => self.keep_archived(file.id, uris).await,
            Err(why) if why.kind() == ErrorKind::InvalidData => {
                let what = format!("{why}; what the tape system has taken is removed there");
                self.refuse_put(file.id, what);
                let removal = |uri| TapeRemoval {
                    uri,
                    size: file.size,
                    path: file.path.clone(),
                    file: file.id,
                };
                let removals = uris.into_iter().map(removal).collect();
                let orders = self.system.ask_removals(removals);
                self.perform(orders).await;
            }
            Err(why) => {
                tracing::warn!(file = %file.id, %why, "a file that was put on tape cannot be compared, so that it is put again");
                self.ask_known_later(&file);
            }
        }
    }

    fn refuse_put(&mut self, file: EntryId, what: String) {
        self.context.put_faults.note(file, what, self.recorded());
        self.ask_later(file);
    }

    async fn keep_archived(&mut self, file: EntryId, uris: Vec<String>) {
        let at = self.recorded();
        match self
            .change_for_sure(NearlineChange::Archived { file, uris, at })
            .await
        {
            Ok(_) => {
                self.context.put_faults.forget(file);
                self.retries.forget(file);
                self.meter_written(file);
                let due = Instant::now() + ROOM_DELAY;
                self.room_due.get_or_insert(due);
            }
            Err(ChangeError::Refused(why @ ChangeRefusal::CopyOfAnother { .. })) => {
                let what = format!(
                    "file {file} stays on disk only: {why}; the tape system must give each file a unique name"
                );
                self.refuse_put(file, what);
            }
            Err(_) => {}
        }
    }
}
