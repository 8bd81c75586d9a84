//! Uploads that come in several requests and survive what is between them: lost connections, restarts, kills.
//!
//! Bytes lie in `partial/<id>` of a pool, beside a record that says how many of them are durable and what shall
//! become of them. Knows nothing of HTTP; who may do what is for the door to decide.

mod record;

pub(crate) use record::{Plan, Record, data_path};

use crate::clock::BelievedClock;
use crate::pool::{NoRoom, Pool, Reservation, sync_directory};
use crate::reaper::{ReaperHandle, remove_if_there, with_room};
use crate::write_error::WriteError;
use parking_lot::{Mutex, MutexGuard};
use penstock_model::{ChecksumAlgorithm, Timestamp, UserName};
use penstock_persistence::namespace::{EntryId, Namespace};
use penstock_protocol::checksum::Hasher;
use record::{FoundRecord, directory, each_record, remove_files};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, oneshot, watch};
use uuid::Uuid;

/// Bytes after which a running append makes durable what it has: a kill costs no more than that.
pub(crate) const CHECKPOINT_BYTES: u64 = 64 << 20;
/// One part in so many of an announced length may come before space is promised for the whole of it: whoever announces
/// and sends little keeps little, whoever has sent more can always finish.
const UNPROMISED_PARTS: u64 = 8;
/// How long a finished upload can be asked about by a client that lost the answer.
pub(crate) const FINISHED_KEPT: Duration = Duration::from_secs(600);
/// How long a new request waits until the one before it has let go.
const TURN_WAIT: Duration = Duration::from_secs(10);

/// All uploads that have begun and are not forgotten.
#[derive(Default)]
pub(crate) struct Uploads(Mutex<BTreeMap<Uuid, Arc<Upload>>>);

pub(crate) struct Upload {
    pub id: Uuid,
    pub pool: Arc<Pool>,
    pub plan: Plan,
    /// Counted against its user.
    pub(crate) bytes: AtomicU64,
    pub(crate) is_finished: AtomicBool,
    /// Its files are gone. A checkpoint whose request was given up may still be on its way to write the record.
    pub(crate) is_discarded: Arc<AtomicBool>,
    /// Rises when somebody else wants to go on with it.
    pub(crate) wanted: watch::Sender<u64>,
    pub(crate) progress: Arc<Turn<Progress>>,
    /// Held by whatever works on its files, also when its request was given up.
    disk: Arc<Turn<()>>,
}

/// The right to work on the files of an upload; goes with the work to its end.
pub(crate) type DiskTurn = OwnedMutexGuard<()>;

/// How far an upload is. Whoever holds it is the only one who touches the files.
pub(crate) struct Progress {
    pub(crate) record: Record,
    /// `None`: the file is opened again, as far as it is recorded.
    pub(crate) disk: Option<OpenUploadFile>,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) is_gone: bool,
}

/// The open file. Travels to blocking threads and back; one that is lost on the way is opened again.
pub(crate) struct OpenUploadFile {
    pub(crate) file: File,
    pub(crate) offset: u64,
    pub(crate) hasher: Hasher,
    pub(crate) algorithms: Vec<ChecksumAlgorithm>,
    pub(crate) hashed: u64,
}

/// What one user has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UserUploads {
    pub uploads: usize,
    pub bytes: u64,
}

impl Uploads {
    /// Finds what earlier runs left in a pool. What has expired is removed; what cannot be understood is kept aside. Blocks.
    pub(crate) fn restore(
        &self,
        namespace: &Namespace,
        pool: &Arc<Pool>,
        clock: &BelievedClock,
    ) -> io::Result<()> {
        let (believed, at) = (clock.now(), directory(pool));
        DirBuilder::new().recursive(true).mode(0o700).create(at)?;
        sync_directory(&pool.directory)?;
        let mut left = 0;
        each_record(pool, |id, found| {
            if self.get(id).is_some() {
                return Ok(());
            }
            match remnant_of(namespace, pool, id, found, believed)? {
                UploadRemnant::Open(upload) => drop(self.open().insert(id, upload)),
                UploadRemnant::Over => remove_files(pool, id)?,
                UploadRemnant::Damaged => record::quarantine_files(pool, id, clock.recorded())?,
                UploadRemnant::Unreadable => left += 1,
            }
            Ok(())
        })?;
        pool.quarantine.uploads_left.store(left, Ordering::Relaxed);
        self.promise_again(pool);
        Ok(())
    }

    /// Begins one in the place that was found for it. Blocks.
    pub(crate) fn begin(
        &self,
        plan: Plan,
        pool: Arc<Pool>,
        reservation: Reservation,
        expires: Timestamp,
        reaper: &ReaperHandle,
    ) -> Result<Arc<Upload>, WriteError> {
        let id = Uuid::new_v4();
        let fail = |source| pool.write_failed(source);
        let path = data_path(&pool, id);
        let mut options = OpenOptions::new();
        options.write(true).read(true).create_new(true).mode(0o600);
        let file = reaper.with_space(&pool, || options.open(&path));
        drop(file.map_err(fail)?);
        let record = Record::new(plan.clone(), expires);
        if let Err(why) = reaper.with_space(&pool, || record.write(&pool, id)) {
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
    pub(crate) fn of(&self, holder: Option<&UserName>) -> UserUploads {
        let open = self.open();
        let theirs = open
            .values()
            .filter(|upload| upload.plan.whose() == holder && !upload.is_finished());
        theirs.fold(UserUploads::default(), |begun, upload| UserUploads {
            uploads: begun.uploads + 1,
            bytes: begun.bytes.saturating_add(upload.bytes()),
        })
    }

    /// Forgets an upload and has its bytes removed by its pool's own thread. The answer comes when they are gone.
    pub(crate) fn discard(
        &self,
        upload: &Upload,
        progress: &mut Progress,
        reaper: &ReaperHandle,
    ) -> oneshot::Receiver<io::Result<()>> {
        progress.is_gone = true;
        upload.is_discarded.store(true, Ordering::SeqCst);
        progress.disk = None;
        self.open().remove(&upload.id);
        let (pool, paths) = (&upload.pool, record::paths(&upload.pool, upload.id));
        reaper.discard(pool, paths.to_vec(), progress.reservation.take())
    }

    /// The same for one that no client knows of, so that nobody else can be at it.
    pub(crate) fn discard_unannounced(&self, upload: &Upload, reaper: &ReaperHandle) {
        // Otherwise it expires.
        if let Ok(mut progress) = upload.progress.try_lock() {
            drop(self.discard(upload, &mut progress, reaper));
        }
    }

    /// Discards what has expired, unless somebody is at it.
    pub(crate) fn sweep(&self, now: Timestamp, reaper: &ReaperHandle) {
        let all: Vec<Arc<Upload>> = self.open().values().cloned().collect();
        for upload in all {
            let Ok(mut progress) = upload.progress.try_lock() else {
                continue;
            };
            if progress.record.expires > now {
                continue;
            }
            let (id, path, offset) = (upload.id, &upload.plan.path, progress.record.offset);
            tracing::info!(%id, %path, offset, "an upload expired");
            drop(self.discard(&upload, &mut progress, reaper));
        }
    }

    /// What was promised before the last run ended, now that all that has come is counted. It fits, unless there is less
    /// space than there was; then the smallest come first, and the others are told when they go on.
    fn promise_again(&self, pool: &Arc<Pool>) {
        let mut all: Vec<Arc<Upload>> = self.open().values().cloned().collect();
        all.retain(|upload| Arc::ptr_eq(&upload.pool, pool));
        all.sort_by_key(|upload| upload.bytes());
        for upload in all {
            let Ok(mut progress) = upload.progress.try_lock() else {
                continue;
            };
            let come = progress.offset();
            if come > 0 && upload.promise(&mut progress, come).is_err() {
                let (id, path, pool) = (upload.id, &upload.plan.path, &upload.pool.name);
                tracing::warn!(%id, %path, %pool, come, "an upload has no room to go on");
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<Uuid, Arc<Upload>>> {
        self.0.lock()
    }
}

/// What is found of an upload.
enum UploadRemnant {
    /// It can go on, or be asked about.
    Open(Arc<Upload>),
    /// Its time is over, or nothing of it was ever acknowledged.
    Over,
    /// Nobody can go on with it; its bytes may be worth something.
    Damaged,
    /// Its record cannot be read now, or only by a newer program.
    Unreadable,
}

/// An upload of an earlier run, as far as its record goes.
fn remnant_of(
    namespace: &Namespace,
    pool: &Arc<Pool>,
    id: Uuid,
    found: FoundRecord,
    believed: Timestamp,
) -> io::Result<UploadRemnant> {
    let mut record = match found {
        FoundRecord::Record(record) if record.expires > believed => record,
        FoundRecord::Record(_) => return Ok(UploadRemnant::Over),
        FoundRecord::Missing => {
            // The record is there before the first byte is.
            let length = std::fs::metadata(data_path(pool, id)).map(|metadata| metadata.len());
            return Ok(match length {
                Ok(0) => UploadRemnant::Over,
                _ => UploadRemnant::Damaged,
            });
        }
        FoundRecord::Garbage => return Ok(UploadRemnant::Damaged),
        FoundRecord::Unreadable => return Ok(UploadRemnant::Unreadable),
    };
    if let Some(file) = record.finished {
        if namespace.has_file(file).map_err(io::Error::other)? {
            record.expires = record.expires.min(believed + FINISHED_KEPT);
            let upload = Arc::new(Upload::new(id, Arc::clone(pool), record, None));
            upload.tidy();
            return Ok(UploadRemnant::Open(upload));
        }
        if !data_path(pool, id).try_exists()? {
            // The file was removed since.
            return Ok(UploadRemnant::Over);
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
        tracing::error!(%id, %pool, offset, ?length, "an upload has lost bytes; what is left of it is in quarantine");
        return Ok(UploadRemnant::Damaged);
    }
    let reservation = pool.reserve_again(record.offset);
    let upload = Upload::new(id, Arc::clone(pool), record, Some(reservation));
    Ok(UploadRemnant::Open(Arc::new(upload)))
}

impl Upload {
    /// Removes the second name of a finished upload's bytes; what was acknowledged is in the file now. Blocks.
    pub(crate) fn tidy(&self) {
        if let Err(why) = remove_if_there(&data_path(&self.pool, self.id)) {
            tracing::error!(id = %self.id, %why, "a finished upload keeps its second name until the next start");
        }
    }

    fn new(id: Uuid, pool: Arc<Pool>, record: Record, reservation: Option<Reservation>) -> Upload {
        let plan = record.plan.clone();
        Upload {
            id,
            pool,
            bytes: AtomicU64::new(plan.length.unwrap_or(record.offset)),
            plan,
            is_finished: AtomicBool::new(record.finished.is_some()),
            is_discarded: Arc::default(),
            wanted: watch::Sender::new(0),
            progress: Arc::new(Turn::new(Progress {
                record,
                disk: None,
                reservation,
                is_gone: false,
            })),
            disk: Arc::default(),
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
        // What a request that was given up has begun on the disk must have ended.
        drop(
            tokio::time::timeout(TURN_WAIT, self.disk_turn())
                .await
                .ok()?,
        );
        (!progress.is_gone).then_some(progress)
    }

    /// Waits until nothing works on the files. At once for whoever has taken the turn of a request.
    pub(crate) async fn disk_turn(&self) -> DiskTurn {
        Arc::clone(&self.disk).lock_owned().await
    }

    /// Tells when somebody else wants the turn; to be asked by its holder.
    pub(crate) fn wanted(&self) -> watch::Receiver<u64> {
        self.wanted.subscribe()
    }

    /// Has room promised for the next bytes. Trash gives way to them.
    pub(crate) async fn cover(
        &self,
        progress: &mut Progress,
        filled: usize,
        reaper: &ReaperHandle,
    ) -> Result<(), WriteError> {
        let end = progress.offset() + filled as u64;
        if let Some(expected) = self.plan.length
            && end > expected
        {
            return Err(WriteError::WrongSize { expected, got: end });
        }
        if !self.pool.condition().takes_files() {
            let pool = self.pool.name.clone();
            return Err(WriteError::PoolFailing { pool });
        }
        let promised = with_room(reaper, &self.pool, || self.promise(progress, end)).await;
        promised.map_err(|_| WriteError::NoSpace {
            pool: self.pool.name.clone(),
        })
    }

    /// Appends bytes for which there is room. They are acknowledged only after [`Upload::checkpoint`].
    pub(crate) async fn append(
        &self,
        progress: &mut Progress,
        algorithms: &[ChecksumAlgorithm],
        buffer: Vec<u8>,
        filled: usize,
        reaper: ReaperHandle,
    ) -> Result<Vec<u8>, WriteError> {
        let pool = Arc::clone(&self.pool);
        let on = Arc::clone(&self.pool);
        let end = progress.offset() + filled as u64;
        self.bytes.fetch_max(end, Ordering::Relaxed);
        let disk = progress.disk.take();
        let (path, recorded) = (data_path(&self.pool, self.id), progress.record.offset);
        let algorithms = algorithms.to_vec();
        let disk_turn = self.disk_turn().await;
        let written = tokio::task::spawn_blocking(move || {
            let _disk_turn = disk_turn;
            let mut disk = match disk {
                Some(disk) => disk,
                None => OpenUploadFile::open(&path, recorded, algorithms)?,
            };
            disk.assert_unshared()?;
            reaper.with_space(&on, || disk.append(&buffer[..filled]))?;
            Ok((disk, buffer))
        });
        let written = written
            .await
            .unwrap_or_else(|why| Err(io::Error::other(why)));
        let (disk, buffer) = written.map_err(|source| pool.write_failed(source))?;
        if let Some(reservation) = &mut progress.reservation {
            reservation.allocated_to(disk.offset);
        }
        progress.disk = Some(disk);
        Ok(buffer)
    }

    /// Promises space for the first `end` bytes. Of an announced length only a small part is taken without a promise of
    /// the whole, and only while the whole would fit: so the last of several that share a pool could always go on.
    fn promise(&self, progress: &mut Progress, end: u64) -> Result<(), NoRoom> {
        let Some(reservation) = &mut progress.reservation else {
            return Ok(());
        };
        match self.plan.length {
            Some(length) if end > length / UNPROMISED_PARTS => {
                reservation.cover(length.max(end), None)
            }
            Some(length) => reservation.cover_if_fits(end, length),
            None => reservation.cover(end, None),
        }
    }

    /// Makes everything that was appended durable, and the record that says so. The upload expires then,
    /// unless nothing came: who cannot go on does not stay for it.
    pub(crate) async fn checkpoint(
        &self,
        progress: &mut Progress,
        expires: Timestamp,
        reaper: ReaperHandle,
    ) -> Result<(), WriteError> {
        if progress.at_risk() == 0 {
            return Ok(());
        }
        let Some(disk) = progress.disk.take() else {
            return Ok(());
        };
        let record = Record {
            offset: disk.offset,
            expires,
            ..progress.record.clone()
        };
        let (pool, id) = (Arc::clone(&self.pool), self.id);
        let is_discarded = Arc::clone(&self.is_discarded);
        let disk_turn = self.disk_turn().await;
        let synced = tokio::task::spawn_blocking(move || {
            let _disk_turn = disk_turn;
            disk.file.sync_data()?;
            reaper.with_space(&pool, || record.write(&pool, id))?;
            if is_discarded.load(Ordering::SeqCst) {
                remove_files(&pool, id)?;
            }
            Ok((disk, record))
        });
        let synced = synced
            .await
            .unwrap_or_else(|why| Err(io::Error::other(why)));
        let failed = |source| self.pool.write_failed(source);
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
    pub(crate) fn finished_file(&self) -> Option<EntryId> {
        self.record.finished
    }

    pub(crate) fn expires(&self) -> Timestamp {
        self.record.expires
    }
}

impl OpenUploadFile {
    /// Opens the file as far as it is known to be durable; what lies behind was never acknowledged.
    pub(crate) fn open(
        path: &std::path::Path,
        recorded: u64,
        algorithms: Vec<ChecksumAlgorithm>,
    ) -> io::Result<OpenUploadFile> {
        let file = OpenOptions::new().write(true).read(true).open(path)?;
        if file.metadata()?.len() != recorded {
            file.set_len(recorded)?;
        }
        Ok(OpenUploadFile {
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
