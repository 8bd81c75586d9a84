//! A file on its way in: bytes arrive in large buffers, are checksummed and written in order on blocking
//! threads while the next buffer fills, then become durable and, last of all, visible.

use crate::claims::LockCheckedClaim;
use crate::clock::{BelievedClock, microseconds};
use crate::committer::CompleteFile;
use crate::crash::{Step, reached};
use crate::file_label::label;
use crate::pending_publication::PendingPublication;
use crate::pool::{Pool, Reservation, allocate};
use crate::pool_messages::{DiskWriteCounts, FinishWrite, OpenWrite, StoredFile};
use crate::reaper::{ReaperHandle, with_room};
use crate::uncommitted_file::UncommittedFile;
use crate::write_error::WriteError;
use penstock_model::{Bytes, Checksum};
use penstock_persistence::namespace::{ChangeReport, EntryId, NewFile};
use penstock_protocol::checksum::Hasher;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The largest buffer. Two of them exist per running writer.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;
/// Bytes of another file that are taken at once.
pub(crate) const PIECE_BYTES: u64 = 8 << 20;

/// Who completes a file, or removes it.
pub(crate) struct WriteFinisher {
    pub reaper: ReaperHandle,
    pub committer: SyncSender<CompleteFile>,
    pub clock: Arc<BelievedClock>,
    /// How long its last steps may take.
    pub finish_timeout: Duration,
}

/// A file on its way into a pool of this process. Dropping it gives it up: what has been written is removed, and the
/// path is free.
pub(crate) struct PoolWrite {
    order: OpenWrite,
    claim: LockCheckedClaim,
    pool: Arc<Pool>,
    reaper: ReaperHandle,
    committer: SyncSender<CompleteFile>,
    clock: Arc<BelievedClock>,
    finish_timeout: Duration,
    disk: DiskState,
    spare: Option<Vec<u8>>,
    /// Bytes taken so far.
    taken: u64,
}

/// How it was written, and where the last write ended.
#[derive(Default)]
struct WriteCount {
    writes: DiskWriteCounts,
    end: u64,
}

impl WriteCount {
    fn note(&mut self, offset: u64, length: usize) {
        self.writes.count += 1;
        self.writes.elsewhere += u64::from(offset != self.end);
        self.end = offset + length as u64;
    }
}

/// What the blocking threads need. Travels to them and back.
struct Disk {
    place: DiskPlace,
    hasher: Hasher,
    offset: u64,
    /// Where the space that the file system has set aside ends.
    allocated: u64,
    writes: WriteCount,
    write_us: u64,
    checksum_us: u64,
}

enum DiskPlace {
    /// Nothing on the disk yet, only promised space.
    Promised(Reservation),
    /// A file in `incoming/`.
    File(UncommittedFile),
}

enum DiskState {
    Idle(Disk),
    /// One buffer that is the whole file: written, synced and handed over in one step.
    Held(Disk, Vec<u8>),
    Busy(JoinHandle<io::Result<(Disk, Vec<u8>)>>),
    /// A write failed; nothing is left.
    Failed,
}

impl PoolWrite {
    pub(crate) fn new(
        order: OpenWrite,
        claim: LockCheckedClaim,
        pool: Arc<Pool>,
        completion: WriteFinisher,
    ) -> PoolWrite {
        let WriteFinisher {
            reaper,
            committer,
            clock,
            finish_timeout,
        } = completion;
        let disk = Disk {
            place: DiskPlace::Promised(pool.reserve()),
            hasher: Hasher::new(&order.algorithms),
            offset: 0,
            allocated: 0,
            writes: WriteCount::default(),
            write_us: 0,
            checksum_us: 0,
        };
        PoolWrite {
            order,
            claim,
            pool,
            reaper,
            committer,
            clock,
            finish_timeout,
            disk: DiskState::Idle(disk),
            spare: None,
            taken: 0,
        }
    }

    /// A buffer to be filled, of the size that the next bytes need.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        // One byte more than the rest, so that a sender of too much is noticed.
        let rest = self.order.size.map_or(u64::MAX, |size| {
            size.saturating_sub(self.taken).saturating_add(1)
        });
        vec![0; usize::try_from(rest).map_or(BUFFER_BYTES, |rest| rest.min(BUFFER_BYTES))]
    }

    /// Takes the first `filled` bytes of a buffer as the next bytes of the file. Returns when the write
    /// before this one has ended; the bytes themselves are written meanwhile. A disk that needs longer than `stall` for
    /// that has failed; the write may go on in the kernel.
    pub(crate) async fn append(
        &mut self,
        buffer: Vec<u8>,
        filled: usize,
        stall: Duration,
    ) -> Result<(), WriteError> {
        let write = tokio::time::timeout(stall, self.write(buffer, filled)).await;
        write.unwrap_or_else(|_| Err(self.pool.write_stalled(stall)))
    }

    async fn write(&mut self, buffer: Vec<u8>, filled: usize) -> Result<(), WriteError> {
        let first = self.taken == 0;
        // One that waited for its slot may find that the pool has failed meanwhile.
        let may_be_kept = match first {
            true => self.pool.condition().takes_files(),
            false => self.pool.condition().gives_files(),
        };
        if !may_be_kept {
            let pool = self.pool.name.clone();
            return Err(WriteError::PoolFailing { pool });
        }
        self.taken += filled as u64;
        if let Some(expected) = self.order.size
            && self.taken > expected
        {
            return Err(WriteError::WrongSize {
                expected,
                got: self.taken,
            });
        }
        let mut disk = self.settle().await?;
        self.cover(&mut disk).await?;
        if first && self.order.size == Some(self.taken) {
            let mut buffer = buffer;
            buffer.truncate(filled);
            self.disk = DiskState::Held(disk, buffer);
            return Ok(());
        }
        let (id, pool, reaper) = (self.id(), Arc::clone(&self.pool), self.reaper.clone());
        let size = self.order.size;
        self.disk = DiskState::Busy(tokio::task::spawn_blocking(move || {
            let mut disk = disk.on_file(id, pool, reaper)?;
            disk.allocate_promised(size)?;
            disk.append(&buffer[..filled])?;
            Ok((disk, buffer))
        }));
        Ok(())
    }

    /// Takes the next `length` bytes, at most [`PIECE_BYTES`], from the same place of another file. Where the file system
    /// can, both share them on the disk. For `stall` see [`PoolWrite::append`].
    pub(crate) async fn append_from(
        &mut self,
        source: &Arc<File>,
        length: u64,
        stall: Duration,
    ) -> Result<(), WriteError> {
        let taken = tokio::time::timeout(stall, self.take_from(source, length)).await;
        taken.unwrap_or_else(|_| Err(self.pool.write_stalled(stall)))
    }

    async fn take_from(&mut self, source: &Arc<File>, length: u64) -> Result<(), WriteError> {
        self.taken += length;
        let mut disk = self.settle().await?;
        self.cover(&mut disk).await?;
        let (id, pool, reaper) = (self.id(), Arc::clone(&self.pool), self.reaper.clone());
        let (size, source) = (self.order.size, Arc::clone(source));
        let (from, target) = (disk.offset, Arc::clone(&self.pool));
        let taken = tokio::task::spawn_blocking(move || {
            let failed = |why| target.write_failed(why);
            let mut disk = disk.on_file(id, pool, reaper).map_err(failed)?;
            disk.allocate_promised(size).map_err(failed)?;
            disk.take_from(&source, length).map_err(|why| {
                match is_readable(&source, from..from + length) {
                    true => failed(why),
                    // No fault of the pool that takes it.
                    false => WriteError::of_io(target.name.clone(), why),
                }
            })?;
            Ok(disk)
        });
        let lost = |why| WriteError::of_io(self.pool.name.clone(), io::Error::other(why));
        self.disk = DiskState::Idle(taken.await.map_err(lost)??);
        Ok(())
    }

    /// Makes the file durable and visible, if its bytes are the expected ones. One that takes too long is given up, and
    /// does not become visible later.
    pub(crate) async fn finish(mut self, end: FinishWrite) -> Result<StoredFile, WriteError> {
        let FinishWrite { expected } = end;
        if let Some(size) = self.order.size
            && size != self.taken
        {
            return Err(WriteError::WrongSize {
                expected: size,
                got: self.taken,
            });
        }
        let (mut disk, held) = match std::mem::replace(&mut self.disk, DiskState::Failed) {
            DiskState::Held(disk, buffer) => (disk, buffer),
            state => {
                self.disk = state;
                (self.settle().await?, Vec::new())
            }
        };
        if self.taken == 0 {
            self.cover(&mut disk).await?;
        }
        let (reply, answer) = oneshot::channel();
        let size = Bytes(self.taken);
        let (pool, limit) = (Arc::clone(&self.pool), self.finish_timeout);
        let publication = Arc::new(PendingPublication::new(self.claim.into_claim()));
        let completion = FileCompletion {
            order: self.order,
            publication: Arc::clone(&publication),
            pool: self.pool,
            reaper: self.reaper,
            committer: self.committer,
            clock: self.clock,
            size,
        };
        let _interest = publication.given_up_on_drop();
        let finished = async {
            let hand_over = move || completion.hand_over(disk, &held, &expected, reply);
            let handed = tokio::task::spawn_blocking(hand_over)
                .await
                .map_err(|why| WriteError::of_io(pool.name.clone(), io::Error::other(why)))??;
            let changed = answer.await.map_err(|_| WriteError::Stopping)??;
            Ok((handed, changed))
        };
        let (handed, changed) = within(limit, &pool, &publication, || 0, finished).await?;
        Ok(StoredFile {
            id: handed.id,
            size,
            writes: handed.writes,
            checksums: handed.checksums,
            replaced: changed.replaced,
            write_us: handed.write_us,
            checksum_us: handed.checksum_us,
            commit_us: microseconds(handed.since.elapsed()),
        })
    }

    fn id(&self) -> EntryId {
        self.order.write.file
    }

    /// Waits for the write in progress.
    async fn settle(&mut self) -> Result<Disk, WriteError> {
        let pool = Arc::clone(&self.pool);
        let broken = |source| pool.write_failed(source);
        match std::mem::replace(&mut self.disk, DiskState::Failed) {
            DiskState::Idle(disk) => Ok(disk),
            DiskState::Busy(write) => {
                let (disk, buffer) = write
                    .await
                    .unwrap_or_else(|why| Err(io::Error::other(why)))
                    .map_err(broken)?;
                self.spare = Some(buffer);
                Ok(disk)
            }
            DiskState::Held(disk, _) => Ok(disk),
            DiskState::Failed => Err(WriteError::Stopping),
        }
    }

    /// Has room promised for what has come. Trash gives way to it.
    async fn cover(&self, disk: &mut Disk) -> Result<(), WriteError> {
        let reservation = disk.reservation();
        let promise = || reservation.cover(self.taken, self.order.size);
        let covered = with_room(&self.reaper, &self.pool, promise).await;
        covered.map_err(|_| WriteError::NoSpace {
            pool: self.pool.name.clone(),
        })
    }
}

/// Waits for the end of a file. One that was not given to the namespace yet is given up when nothing of it has moved for
/// the time limit; for the namespace's word on others it is waited as long again. `bytes_read` counts what is read again
/// of a file whose checksum is not known.
pub(crate) async fn within<T>(
    limit: Duration,
    pool: &Pool,
    publication: &PendingPublication,
    bytes_read: impl Fn() -> u64,
    finished: impl Future<Output = Result<T, WriteError>>,
) -> Result<T, WriteError> {
    let mut finished = pin!(finished);
    loop {
        let before = bytes_read();
        if let Ok(done) = tokio::time::timeout(limit, &mut finished).await {
            return done;
        }
        if bytes_read() == before {
            break;
        }
    }
    if publication.give_up() {
        pool.health.stalled(&pool.name, limit);
        return Err(WriteError::DiskStalled {
            pool: pool.name.clone(),
            after: limit,
        });
    }
    match tokio::time::timeout(limit, finished).await {
        Ok(done) => done,
        Err(_) => Err(WriteError::Unanswered { after: limit }),
    }
}

/// What is left to be done of a file that has all its bytes.
struct FileCompletion {
    order: OpenWrite,
    publication: Arc<PendingPublication>,
    pool: Arc<Pool>,
    reaper: ReaperHandle,
    committer: SyncSender<CompleteFile>,
    clock: Arc<BelievedClock>,
    size: Bytes,
}

impl FileCompletion {
    /// The blocking part of [`PoolWrite::finish`]: last bytes, verification, label, `fsync`.
    fn hand_over(
        self,
        disk: Disk,
        held: &[u8],
        expected: &[Checksum],
        reply: oneshot::Sender<Result<ChangeReport, WriteError>>,
    ) -> Result<CommitHandOver, WriteError> {
        let pool = Arc::clone(&self.pool);
        let fail = |source| pool.write_failed(source);
        let id = self.order.write.file;
        let is_made_at_once = matches!(disk.place, DiskPlace::Promised(_));
        let disk = disk.on_file(id, Arc::clone(&pool), self.reaper);
        let mut disk = disk.map_err(fail)?;
        disk.append(held).map_err(fail)?;
        reached(Step::Written);
        let since = Instant::now();
        let checksums = disk.hasher.finish();
        verify(&checksums, expected)?;
        let DiskPlace::File(mut file) = disk.place else {
            return Err(WriteError::Stopping);
        };
        let (archival, archive_word) = self.order.tape.of_file(self.size);
        let mut entry = NewFile {
            id,
            path: self.order.path,
            size: self.size,
            checksums: checksums.clone(),
            pool: self.order.write.pool,
            archival,
            archive_word,
            owner: self.order.owner,
            at: self.clock.recorded(),
            replace: self.order.replace,
            properties_of: self.order.properties_of,
            labelled_in: None,
        };
        label(&file, &mut entry, self.order.parent).map_err(fail)?;
        reached(Step::Labelled);
        if is_made_at_once {
            // So that one commit of the file system's journal holds its bytes and its final name. Should the power fail before,
            // its label tells that bytes are missing.
            file.adopt().map_err(fail)?;
        }
        file.file.sync_all().map_err(fail)?;
        reached(Step::Synced);
        let finished = CompleteFile {
            file,
            entry,
            origin: self.order.origin,
            reply,
            publication: self.publication,
        };
        self.committer
            .send(finished)
            .map_err(|_| WriteError::Stopping)?;
        Ok(CommitHandOver {
            id,
            writes: disk.writes.writes,
            checksums,
            write_us: disk.write_us,
            checksum_us: disk.checksum_us,
            since,
        })
    }
}

struct CommitHandOver {
    id: EntryId,
    writes: DiskWriteCounts,
    checksums: Vec<Checksum>,
    write_us: u64,
    checksum_us: u64,
    since: Instant,
}

impl Disk {
    fn reservation(&mut self) -> &mut Reservation {
        match &mut self.place {
            DiskPlace::Promised(reservation) => reservation,
            DiskPlace::File(file) => file.reservation(),
        }
    }

    /// Makes the file, unless it exists.
    fn on_file(self, id: EntryId, pool: Arc<Pool>, reaper: ReaperHandle) -> io::Result<Disk> {
        let started = Instant::now();
        let place = match self.place {
            DiskPlace::Promised(reservation) => {
                DiskPlace::File(UncommittedFile::create(id, reservation, pool, reaper)?)
            }
            place => place,
        };
        Ok(Disk {
            place,
            write_us: self.write_us + microseconds(started.elapsed()),
            ..self
        })
    }

    /// Sets aside on the disk what is promised of a file whose size is known.
    fn allocate_promised(&mut self, size: Option<u64>) -> io::Result<()> {
        // Small files fit into what a file system gives in one piece anyway.
        if size.is_none_or(|size| size <= BUFFER_BYTES as u64) {
            return Ok(());
        }
        let started = Instant::now();
        if let DiskPlace::File(file) = &mut self.place {
            let promised = file.reservation().bytes();
            if promised > self.allocated {
                let more = promised - self.allocated;
                file.with_space(|data| allocate(data, self.allocated, more))?;
                file.reservation().allocated_to(promised);
                self.allocated = promised;
            }
        }
        self.write_us += microseconds(started.elapsed());
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let started = Instant::now();
        self.hasher.update(bytes);
        let hashed = Instant::now();
        self.checksum_us += microseconds(hashed - started);
        if let DiskPlace::File(file) = &mut self.place {
            file.with_space(|data| data.write_all_at(bytes, self.offset))?;
            self.writes.note(self.offset, bytes.len());
            self.offset += bytes.len() as u64;
            file.reservation().allocated_to(self.offset);
        }
        self.write_us += microseconds(hashed.elapsed());
        Ok(())
    }
}

impl Disk {
    /// Copies bytes inside the kernel, then reads what is there now: the checksums are those of the copy.
    fn take_from(&mut self, source: &File, length: u64) -> io::Result<()> {
        let started = Instant::now();
        let DiskPlace::File(file) = &mut self.place else {
            return Err(io::Error::other("the file was not made"));
        };
        let end = self.offset + length;
        file.with_space(|data| copy_range(source, data, self.offset..end))?;
        file.reservation().allocated_to(end);
        let copied = Instant::now();
        self.write_us += microseconds(copied - started);
        let mut buffer = vec![0; BUFFER_BYTES];
        while self.offset < end {
            let want = (end - self.offset).min(BUFFER_BYTES as u64) as usize;
            let piece = &mut buffer[..want];
            file.file.read_exact_at(piece, self.offset)?;
            self.hasher.update(piece);
            self.offset += want as u64;
        }
        self.checksum_us += microseconds(copied.elapsed());
        Ok(())
    }
}

/// Whether a range of a file is there and its disk gives it.
fn is_readable(file: &File, range: std::ops::Range<u64>) -> bool {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut at = range.start;
    while at < range.end {
        let want = (range.end - at).min(BUFFER_BYTES as u64) as usize;
        if file.read_exact_at(&mut buffer[..want], at).is_err() {
            return false;
        }
        at += want as u64;
    }
    true
}

/// Copies a range of one file to the same place of another.
fn copy_range(source: &File, target: &File, range: std::ops::Range<u64>) -> io::Result<()> {
    use rustix::io::Errno;
    let mut at = range.start;
    while at < range.end {
        let want = (range.end - at).min(PIECE_BYTES) as usize;
        let (mut from, mut to) = (at, at);
        match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), want) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => at += count as u64,
            Err(Errno::INTR) => {}
            // Not between these two file systems: then by way of memory.
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                let mut buffer = vec![0; want.min(BUFFER_BYTES)];
                source.read_exact_at(&mut buffer, at)?;
                target.write_all_at(&buffer, at)?;
                at += buffer.len() as u64;
            }
            Err(why) => return Err(why.into()),
        }
    }
    Ok(())
}

/// Every expected value was computed and is equal.
pub(crate) fn verify(computed: &[Checksum], expected: &[Checksum]) -> Result<(), WriteError> {
    for expected in expected {
        let algorithm = expected.algorithm();
        let got = computed.iter().find(|sum| sum.algorithm() == algorithm);
        match got {
            Some(got) if got == expected => {}
            Some(got) => {
                return Err(WriteError::ChecksumMismatch {
                    expected: expected.clone(),
                    got: got.clone(),
                });
            }
            None => return Err(WriteError::ChecksumUnavailable(algorithm)),
        }
    }
    Ok(())
}
