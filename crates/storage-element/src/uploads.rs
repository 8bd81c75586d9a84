//! Uploads that come in several requests and survive what is between them: lost connections, restarts, kills.
//!
//! Bytes lie in `partial/<id>` of a pool, beside a record that says how many of them are durable and what shall
//! become of them. Knows nothing of HTTP; who may do what is for the door to decide.

mod finish;
mod record;

pub(crate) use finish::Finish;
pub(crate) use record::{Plan, Record};

use crate::clock::now;
use crate::pool::{Pool, Reservation, sync_directory};
use crate::reaper::Pools;
use crate::write_error::WriteError;
use penstock_model::{ChecksumAlgorithm, Timestamp, UserName};
use penstock_persistence::namespace::{EntryId, Namespace};
use penstock_protocol::checksum::Hasher;
use record::{data_path, directory, each_record, remove_files};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, watch};
use uuid::Uuid;

/// Bytes after which a running append makes durable what it has: a kill costs no more than that.
pub(crate) const CHECKPOINT_BYTES: u64 = 64 << 20;
/// How long a finished upload can be asked about by a client that lost the answer.
const FINISHED_KEPT: Duration = Duration::from_secs(600);
/// How long a new request waits until the one before it has let go.
const TURN_WAIT: Duration = Duration::from_secs(10);

/// All uploads that have begun and are not forgotten.
#[derive(Default)]
pub(crate) struct Uploads(Mutex<BTreeMap<Uuid, Arc<Upload>>>);

/// One upload.
pub(crate) struct Upload {
    pub id: Uuid,
    pub pool: Arc<Pool>,
    pub plan: Plan,
    /// Counted against its user.
    bytes: AtomicU64,
    is_finished: AtomicBool,
    /// Rises when somebody else wants to go on with it.
    wanted: watch::Sender<u64>,
    progress: Arc<Turn<Progress>>,
}

/// How far an upload is. Whoever holds it is the only one who touches the files.
pub(crate) struct Progress {
    record: Record,
    /// `None`: the file is opened again, as far as it is recorded.
    disk: Option<Disk>,
    reservation: Option<Reservation>,
    is_gone: bool,
}

/// The open file. Travels to blocking threads and back; one that is lost on the way is opened again.
struct Disk {
    file: File,
    offset: u64,
    hasher: Hasher,
    algorithms: Vec<ChecksumAlgorithm>,
    hashed: u64,
}

/// What one user has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Begun {
    pub uploads: usize,
    pub bytes: u64,
}

impl Uploads {
    /// Finds what the last run left. Blocks.
    pub(crate) fn restore(namespace: &Namespace, pools: &Pools) -> io::Result<Uploads> {
        let uploads = Uploads::default();
        for pool in pools.values() {
            std::fs::create_dir_all(directory(pool))?;
            sync_directory(&pool.directory)?;
            each_record(pool, |id, record| {
                if let Some(upload) = restored(namespace, pool, id, record)? {
                    uploads.open().insert(id, upload);
                } else {
                    remove_files(pool, id)?;
                }
                Ok(())
            })?;
        }
        Ok(uploads)
    }

    /// Begins one in the place that was found for it. Blocks.
    pub(crate) fn begin(
        &self,
        plan: Plan,
        pool: Arc<Pool>,
        reservation: Reservation,
        expires: Timestamp,
    ) -> Result<Arc<Upload>, WriteError> {
        let id = Uuid::new_v4();
        let fail = |source| WriteError::of_io(pool.name.clone(), source);
        let path = data_path(&pool, id);
        let mut options = OpenOptions::new();
        let file = options.write(true).read(true).create_new(true).open(&path);
        drop(file.map_err(fail)?);
        let record = Record::new(plan.clone(), expires);
        if let Err(why) = record.write(&pool, id) {
            // What cannot be removed now is found by the next start.
            let _ = remove_files(&pool, id);
            return Err(fail(why));
        }
        let upload = Arc::new(Upload::new(
            id,
            Arc::clone(&pool),
            record,
            Some(reservation),
        ));
        self.open().insert(id, Arc::clone(&upload));
        Ok(upload)
    }

    pub(crate) fn get(&self, id: Uuid) -> Option<Arc<Upload>> {
        self.open().get(&id).cloned()
    }

    /// All that were begun and are remembered.
    pub(crate) fn count(&self) -> usize {
        self.open().len()
    }

    /// What a user has begun and not finished.
    pub(crate) fn of(&self, holder: Option<&UserName>) -> Begun {
        let open = self.open();
        let theirs = open
            .values()
            .filter(|upload| upload.plan.whose() == holder && !upload.is_finished());
        theirs.fold(Begun::default(), |begun, upload| Begun {
            uploads: begun.uploads + 1,
            bytes: begun.bytes.saturating_add(upload.bytes()),
        })
    }

    /// Forgets an upload and removes its bytes. Blocks.
    pub(crate) fn discard(&self, upload: &Upload, progress: &mut Progress) -> io::Result<()> {
        progress.is_gone = true;
        progress.disk = None;
        progress.reservation = None;
        self.open().remove(&upload.id);
        remove_files(&upload.pool, upload.id)
    }

    /// Discards what has expired, unless somebody is at it. Blocks.
    pub(crate) fn sweep(&self, now: Timestamp) {
        let all: Vec<Arc<Upload>> = self.open().values().cloned().collect();
        for upload in all {
            let Ok(mut progress) = upload.progress.try_lock() else {
                continue;
            };
            if progress.record.expires > now {
                continue;
            }
            let (id, path, offset) = (upload.id, &upload.plan.path, progress.record.offset);
            match self.discard(&upload, &mut progress) {
                Ok(()) => tracing::info!(%id, %path, offset, "an upload expired"),
                Err(why) => tracing::error!(%id, %why, "an expired upload's bytes stay"),
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<Uuid, Arc<Upload>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An upload of the last run, as far as its record goes; `None` when it is to be removed.
fn restored(
    namespace: &Namespace,
    pool: &Arc<Pool>,
    id: Uuid,
    record: Option<Record>,
) -> io::Result<Option<Arc<Upload>>> {
    let Some(mut record) = record.filter(|record| record.expires > now()) else {
        return Ok(None);
    };
    if let Some(file) = record.finished {
        let known = namespace.holds_file(file, &pool.name);
        if known.map_err(io::Error::other)? {
            let upload = Arc::new(Upload::new(id, Arc::clone(pool), record, None));
            upload.tidy();
            return Ok(Some(upload));
        }
        // It was killed before the file became visible; its client asks again.
        record.finished = None;
    }
    let length = std::fs::metadata(data_path(pool, id)).map(|metadata| metadata.len());
    if length
        .as_ref()
        .ok()
        .is_none_or(|length| *length < record.offset)
    {
        let (pool, offset) = (&pool.name, record.offset);
        tracing::error!(%id, %pool, offset, ?length, "an upload has lost bytes and is removed");
        return Ok(None);
    }
    let reservation = pool.reserve_again(record.offset, record.plan.length);
    let upload = Upload::new(id, Arc::clone(pool), record, Some(reservation));
    Ok(Some(Arc::new(upload)))
}

impl Upload {
    fn new(id: Uuid, pool: Arc<Pool>, record: Record, reservation: Option<Reservation>) -> Upload {
        let plan = record.plan.clone();
        Upload {
            id,
            pool,
            bytes: AtomicU64::new(plan.length.unwrap_or(record.offset)),
            plan,
            is_finished: AtomicBool::new(record.finished.is_some()),
            wanted: watch::Sender::new(0),
            progress: Arc::new(Turn::new(Progress {
                record,
                disk: None,
                reservation,
                is_gone: false,
            })),
        }
    }

    /// Bytes that are announced, or have come.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Relaxed)
    }

    /// The turn of one request; asks the one before it to stop. `None`: it does not, or the upload is gone.
    pub(crate) async fn take(&self) -> Option<OwnedMutexGuard<Progress>> {
        self.wanted.send_modify(|count| *count += 1);
        let turn = Arc::clone(&self.progress).lock_owned();
        let progress = tokio::time::timeout(TURN_WAIT, turn).await.ok()?;
        (!progress.is_gone).then_some(progress)
    }

    /// Tells when somebody else wants the turn; to be asked by its holder.
    pub(crate) fn wanted(&self) -> watch::Receiver<u64> {
        self.wanted.subscribe()
    }

    /// Appends bytes. They are acknowledged only after [`Upload::checkpoint`].
    pub(crate) async fn append(
        &self,
        progress: &mut Progress,
        algorithms: &[ChecksumAlgorithm],
        buffer: Vec<u8>,
        filled: usize,
    ) -> Result<Vec<u8>, WriteError> {
        let end = progress.offset() + filled as u64;
        if let Some(expected) = self.plan.length
            && end > expected
        {
            return Err(WriteError::WrongSize { expected, got: end });
        }
        let pool = self.pool.name.clone();
        if let Some(reservation) = &mut progress.reservation {
            let grown = reservation.grow_to(end);
            grown.map_err(|_| WriteError::NoSpace { pool: pool.clone() })?;
        }
        self.bytes.fetch_max(end, Ordering::Relaxed);
        let disk = progress.disk.take();
        let (path, recorded) = (data_path(&self.pool, self.id), progress.record.offset);
        let algorithms = algorithms.to_vec();
        let written = tokio::task::spawn_blocking(move || {
            let mut disk = match disk {
                Some(disk) => disk,
                None => Disk::open(&path, recorded, algorithms)?,
            };
            disk.assert_unshared()?;
            disk.append(&buffer[..filled])?;
            Ok((disk, buffer))
        });
        let written = written
            .await
            .unwrap_or_else(|why| Err(io::Error::other(why)));
        let (disk, buffer) = written.map_err(|source| WriteError::of_io(pool, source))?;
        if let Some(reservation) = &mut progress.reservation {
            reservation.allocated_to(disk.offset);
        }
        progress.disk = Some(disk);
        Ok(buffer)
    }

    /// Makes everything that was appended durable, and the record that says so. The upload expires this long after.
    pub(crate) async fn checkpoint(
        &self,
        progress: &mut Progress,
        expiry: Duration,
    ) -> Result<(), WriteError> {
        let Some(disk) = progress.disk.take() else {
            return Ok(());
        };
        let record = Record {
            offset: disk.offset,
            expires: now() + expiry,
            ..progress.record.clone()
        };
        let (pool, id) = (Arc::clone(&self.pool), self.id);
        let synced = tokio::task::spawn_blocking(move || {
            disk.file.sync_data()?;
            record.write(&pool, id)?;
            Ok((disk, record))
        });
        let synced = synced
            .await
            .unwrap_or_else(|why| Err(io::Error::other(why)));
        let failed = |source| WriteError::of_io(self.pool.name.clone(), source);
        let (disk, record) = synced.map_err(failed)?;
        progress.disk = Some(disk);
        progress.record = record;
        Ok(())
    }
}

impl Progress {
    /// Bytes that are there; after a checkpoint, durable ones.
    pub(crate) fn offset(&self) -> u64 {
        let recorded = self.record.offset;
        self.disk.as_ref().map_or(recorded, |disk| disk.offset)
    }

    /// Bytes that a kill would cost now.
    pub(crate) fn at_risk(&self) -> u64 {
        self.offset() - self.record.offset
    }

    /// The file that it has become.
    pub(crate) fn finished(&self) -> Option<EntryId> {
        self.record.finished
    }

    pub(crate) fn expires(&self) -> Timestamp {
        self.record.expires
    }
}

impl Disk {
    /// Opens the file as far as it is known to be durable; what lies behind was never acknowledged.
    fn open(
        path: &std::path::Path,
        recorded: u64,
        algorithms: Vec<ChecksumAlgorithm>,
    ) -> io::Result<Disk> {
        let file = OpenOptions::new().write(true).read(true).open(path)?;
        if file.metadata()?.len() != recorded {
            file.set_len(recorded)?;
        }
        Ok(Disk {
            file,
            offset: recorded,
            hasher: Hasher::new(&algorithms),
            algorithms,
            hashed: 0,
        })
    }

    /// While an earlier attempt to finish may have made a file of these very bytes, none are added to them.
    fn assert_unshared(&self) -> io::Result<()> {
        match self.file.metadata()?.nlink() == 1 {
            true => Ok(()),
            false => Err(io::Error::other("the upload is being finished; ask again")),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.offset)?;
        if self.hashed == self.offset {
            self.hasher.update(bytes);
            self.hashed += bytes.len() as u64;
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }
}
