//! Reading a file for a socket: bytes in the page cache are taken at once, bytes on a disk are waited for
//! on the threads for blocking work.

use penstock_model::TimeSpan;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

use rustix::io::{Errno, ReadWriteFlags};

/// Blocks of one file, in order; one is read ahead when the disk must be waited for.
pub(super) struct FileSource<'file> {
    file: &'file File,
    position: u64,
    end: u64,
    block_bytes: usize,
    ahead: Option<Ahead>,
    spare: Option<Vec<u8>>,
}

enum Ahead {
    Ready(Vec<u8>),
    Reading(JoinHandle<io::Result<Vec<u8>>>),
}

impl<'file> FileSource<'file> {
    pub(super) fn new(file: &'file File, offset: u64, length: u64, block_bytes: usize) -> Self {
        FileSource {
            file,
            position: offset,
            end: offset.saturating_add(length),
            block_bytes,
            ahead: None,
            spare: None,
        }
    }

    /// The next block, `None` after the last. Starts to read the one after it. Errors: `UnexpectedEof` when
    /// the file is shorter than was promised, [`FileStalled`] when its disk takes longer, or what the disk says.
    pub(super) async fn next_block(&mut self, limit: Duration) -> io::Result<Option<Vec<u8>>> {
        let ahead = match self.ahead.take() {
            Some(ahead) => ahead,
            None => match self.start()? {
                Some(ahead) => ahead,
                None => return Ok(None),
            },
        };
        let block = match ahead {
            Ahead::Ready(block) => block,
            Ahead::Reading(reading) => within(limit, reading).await?,
        };
        // Only a disk is worth reading ahead; the page cache answers at once, into the buffer given back.
        if !self.next_is_cached() {
            self.ahead = self.start()?;
        }
        Ok(Some(block))
    }

    /// Returns a block's memory for the next read.
    pub(super) fn give_back(&mut self, block: Vec<u8>) {
        self.spare = Some(block);
    }

    fn next_is_cached(&self) -> bool {
        self.position >= self.end || is_cached(self.file, self.position)
    }

    /// Begins the next read: at once from the page cache, else on a thread for blocking work.
    fn start(&mut self) -> io::Result<Option<Ahead>> {
        let count = (self.end - self.position).min(self.block_bytes as u64) as usize;
        if count == 0 {
            return Ok(None);
        }
        let mut block = self.spare.take().unwrap_or_default();
        block.resize(count, 0);
        let position = self.position;
        self.position += count as u64;
        let have = read_cached(self.file, &mut block, position);
        if have == count {
            return Ok(Some(Ahead::Ready(block)));
        }
        let file = self.file.try_clone()?;
        let reading = tokio::task::spawn_blocking(move || {
            read_fully(&file, &mut block[have..], position + have as u64)?;
            Ok(block)
        });
        Ok(Some(Ahead::Reading(reading)))
    }
}

/// Brings a piece of the file into the page cache unless it is there, so that `sendfile` need not wait for
/// the disk. A piece whose two ends are cached counts as cached: the disk may then be waited for in its middle,
/// which is rare and only slow.
pub(super) struct Prefetch(Option<JoinHandle<io::Result<()>>>);

impl Prefetch {
    /// Begins to read a piece of so many bytes. Errors: no descriptor left.
    pub(super) fn start(file: &File, position: u64, length: u64) -> io::Result<Prefetch> {
        let cached = |length| length == 0 || is_cached(file, position + length - 1);
        if cached(length) && cached(length.min(1)) {
            return Ok(Prefetch(None));
        }
        let file = file.try_clone()?;
        let reading = tokio::task::spawn_blocking(move || {
            let mut scratch = vec![0; 128 << 10];
            let mut at = position;
            while at < position + length {
                let count = (position + length - at).min(scratch.len() as u64) as usize;
                read_fully(&file, &mut scratch[..count], at)?;
                at += count as u64;
            }
            Ok(())
        });
        Ok(Prefetch(Some(reading)))
    }

    /// Waits until the piece is cached; gives back the time that took.
    pub(super) async fn wait(self, limit: Duration) -> io::Result<Duration> {
        let Some(reading) = self.0 else {
            return Ok(Duration::ZERO);
        };
        let started = Instant::now();
        within(limit, reading).await?;
        Ok(started.elapsed())
    }
}

/// What a file that ended before its promised size is called.
pub(super) fn shrunk(position: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!(
            "the file ended at byte {position}, before its announced size: it was cut while being sent"
        ),
    )
}

fn read_fully(file: &File, block: &mut [u8], position: u64) -> io::Result<()> {
    file.read_exact_at(block, position)
        .map_err(|why| match why.kind() {
            io::ErrorKind::UnexpectedEof => shrunk(position),
            _ => why,
        })
}

/// The file's disk does not answer.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the file's disk gave nothing for {}", TimeSpan(*.0))]
pub struct FileStalled(pub Duration);

/// Bounds one wait for a disk. The thread that waits for it goes on.
async fn within<T>(limit: Duration, reading: JoinHandle<io::Result<T>>) -> io::Result<T> {
    match tokio::time::timeout(limit, reading).await {
        Ok(read) => read.map_err(io::Error::other)?,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, FileStalled(limit))),
    }
}

/// Fills the end of a buffer, from `from` on, with bytes of the file: at once when they are in memory.
pub(crate) async fn fill(
    file: &File,
    mut buffer: Vec<u8>,
    from: usize,
    position: u64,
    limit: Duration,
) -> io::Result<Vec<u8>> {
    let have = from + read_cached(file, &mut buffer[from..], position);
    if have == buffer.len() {
        return Ok(buffer);
    }
    let position = position + (have - from) as u64;
    if is_in_memory(file) {
        file.read_exact_at(&mut buffer[have..], position)?;
        return Ok(buffer);
    }
    let file = file.try_clone()?;
    let reading = tokio::task::spawn_blocking(move || {
        file.read_exact_at(&mut buffer[have..], position)?;
        Ok(buffer)
    });
    within(limit, reading).await
}

/// Bytes that could be had without waiting for a disk; 0 when unknown.
fn read_cached(file: &File, block: &mut [u8], position: u64) -> usize {
    rustix::io::preadv2(
        file,
        &mut [IoSliceMut::new(block)],
        position,
        ReadWriteFlags::NOWAIT,
    )
    .unwrap_or(0)
}

fn is_cached(file: &File, position: u64) -> bool {
    let mut byte = [0];
    match rustix::io::preadv2(
        file,
        &mut [IoSliceMut::new(&mut byte)],
        position,
        ReadWriteFlags::NOWAIT,
    ) {
        Ok(_) => true,
        // Memory file systems cannot say, and never wait.
        Err(Errno::OPNOTSUPP) => is_in_memory(file),
        Err(_) => false,
    }
}

fn is_in_memory(file: &File) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == TMPFS_MAGIC)
}
