//! The end of an upload: its bytes become a file by the same steps as those of a PUT.
//!
//! The bytes stay in `partial/` under a second name until the file is visible, so that a kill in between costs
//! nothing that was acknowledged.

use super::Storage;
use crate::claims::LockCheckedClaim;
use crate::clock::microseconds;
use crate::committer::CompleteFile;
use crate::file_label::label;
use crate::pending_publication::PendingPublication;
use crate::pool_messages::{DiskWriteCounts, FinishUpload, StoredFile};
use crate::pool_write::{WriteFinisher, verify, within};
use crate::uncommitted_file::UncommittedFile;
use crate::uploads::{
    DiskTurn, FINISHED_KEPT, OpenUploadFile, Progress, Record, Upload, data_path,
};
use crate::write_error::WriteError;
use penstock_model::{Bytes, Checksum, ChecksumAlgorithm};
use penstock_persistence::namespace::{ChangeReport, NewFile};
use penstock_protocol::checksum::Hasher;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::oneshot;

/// Bytes that are read again at once.
const READ_BYTES: usize = 1 << 20;

impl Upload {
    /// Makes the file visible. Bytes that were not checksummed as they came, because the server was restarted since,
    /// are read again. After an error the upload can be finished later, unless its bytes are the wrong ones.
    pub(crate) async fn finish(
        self: &Arc<Self>,
        storage: &Arc<Storage>,
        progress: &mut Progress,
        claim: LockCheckedClaim,
        order: FinishUpload,
    ) -> Result<StoredFile, WriteError> {
        let got = progress.offset();
        if let Some(expected) = self.plan.length
            && expected != got
        {
            return Err(WriteError::WrongSize { expected, got });
        }
        let reservation = progress.reservation.take();
        let reservation = reservation.unwrap_or_else(|| self.pool.reserve_again(got));
        let publication = Arc::new(PendingPublication::new(claim.into_claim()));
        let bytes_read = Arc::new(AtomicU64::new(0));
        let disk_turn = self.disk_turn().await;
        let limit = storage.settings().limits.finish_timeout;
        let completion = UploadCompletion {
            upload: Arc::clone(self),
            storage: Arc::clone(storage),
            disk: progress.disk.take(),
            record: progress.record.clone(),
            publication: Arc::clone(&publication),
            bytes_read: Arc::clone(&bytes_read),
            disk_turn,
            order,
        };
        let since = Instant::now();
        let (reply, answer) = oneshot::channel();
        let finished = async {
            let handed =
                tokio::task::spawn_blocking(move || completion.hand_over(reservation, reply));
            let (record, checksums) = handed.await.unwrap_or_else(|why| {
                let why = io::Error::other(why);
                Err(WriteError::of_io(self.pool.name.clone(), why))
            })?;
            let changed = answer.await.unwrap_or(Err(WriteError::Stopping))?;
            Ok((record, checksums, changed))
        };
        let bytes_read = || bytes_read.load(Ordering::Relaxed);
        match within(limit, &self.pool, &publication, bytes_read, finished).await {
            Ok((record, checksums, changed)) => {
                let id = record.finished.expect("set before the file is handed over");
                self.is_finished.store(true, Ordering::Relaxed);
                // On the disk it expires as before: had the file not become visible, its bytes would be waited for.
                progress.record = Record {
                    expires: storage.clock.recorded() + FINISHED_KEPT,
                    ..record
                };
                let upload = Arc::clone(self);
                // The file is there; what this leaves behind at worst is removed by the next start.
                let _ = tokio::task::spawn_blocking(move || upload.tidy()).await;
                Ok(StoredFile {
                    id,
                    size: Bytes(got),
                    // In order, by requests that have ended.
                    writes: DiskWriteCounts::default(),
                    checksums,
                    replaced: changed.replaced,
                    write_us: 0,
                    checksum_us: 0,
                    commit_us: microseconds(since.elapsed()),
                })
            }
            Err(why) => {
                progress.reservation = Some(self.pool.reserve_again(got));
                Err(why)
            }
        }
    }
}

/// Everything that the blocking part needs.
struct UploadCompletion {
    upload: Arc<Upload>,
    storage: Arc<Storage>,
    disk: Option<OpenUploadFile>,
    record: Record,
    publication: Arc<PendingPublication>,
    /// What was read again of bytes that were not checksummed as they came.
    bytes_read: Arc<AtomicU64>,
    disk_turn: DiskTurn,
    order: FinishUpload,
}

impl UploadCompletion {
    fn hand_over(
        self,
        reservation: crate::pool::Reservation,
        reply: oneshot::Sender<Result<ChangeReport, WriteError>>,
    ) -> Result<(Record, Vec<Checksum>), WriteError> {
        let UploadCompletion {
            upload,
            storage,
            disk,
            record,
            publication,
            bytes_read,
            disk_turn: _disk_turn,
            order,
        } = self;
        let FinishUpload {
            write,
            parent,
            origin,
            replace,
            algorithms,
            expected,
            tape,
        } = order;
        let id = write.file;
        let pool = Arc::clone(&upload.pool);
        let fail = |source| pool.write_failed(source);
        let path = data_path(&pool, upload.id);
        let mut disk = match disk {
            Some(disk) => disk,
            None => OpenUploadFile::open(&path, record.offset, algorithms.clone()).map_err(fail)?,
        };
        let checksums = disk.checksums(&algorithms, &bytes_read).map_err(fail)?;
        verify(&checksums, &expected)?;
        disk.file.sync_data().map_err(fail)?;
        let record = Record {
            offset: disk.offset,
            finished: Some(id),
            ..record
        };
        let WriteFinisher {
            reaper, committer, ..
        } = storage.completion(&pool);
        let noted = reaper.with_space(&pool, || record.write(&pool, upload.id));
        noted.map_err(fail)?;
        let covered = reaper.with_space(&pool, || pool.cover_id(id));
        covered.map_err(fail)?;
        let linked = reaper.with_space(&pool, || std::fs::hard_link(&path, pool.incoming_path(id)));
        linked.map_err(fail)?;
        let size = Bytes(disk.offset);
        let file = UncommittedFile::written(id, reservation, Arc::clone(&pool), disk.file, reaper);
        let (archival, archive_word) = tape.of_file(size);
        let mut entry = NewFile {
            id,
            path: record.plan.path.clone(),
            size,
            checksums: checksums.clone(),
            pool: write.pool,
            archival,
            archive_word,
            owner: record.plan.whose().cloned(),
            at: storage.clock.recorded(),
            replace,
            properties_of: None,
            labelled_in: None,
        };
        label(&file, &mut entry, parent).map_err(fail)?;
        file.file.sync_all().map_err(fail)?;
        let finished = CompleteFile {
            file,
            entry,
            origin,
            reply,
            publication,
        };
        committer.send(finished).map_err(|_| WriteError::Stopping)?;
        Ok((record, checksums))
    }
}

impl OpenUploadFile {
    /// Of the whole file; reads again what was not hashed as it came.
    fn checksums(
        &mut self,
        algorithms: &[ChecksumAlgorithm],
        bytes_read: &AtomicU64,
    ) -> io::Result<Vec<Checksum>> {
        let covered = algorithms
            .iter()
            .all(|algorithm| self.algorithms.contains(algorithm));
        if !covered {
            self.hasher = Hasher::new(algorithms);
            self.hashed = 0;
        }
        let mut buffer = vec![0; READ_BYTES];
        while self.hashed < self.offset {
            let rest = usize::try_from(self.offset - self.hashed).unwrap_or(READ_BYTES);
            let piece = &mut buffer[..rest.min(READ_BYTES)];
            self.file.read_exact_at(piece, self.hashed)?;
            self.hasher.update(piece);
            self.hashed += piece.len() as u64;
            bytes_read.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        let spent = std::mem::replace(&mut self.hasher, Hasher::new(&[]));
        Ok(spent.finish())
    }
}
