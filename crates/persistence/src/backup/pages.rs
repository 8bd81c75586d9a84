//! The pages of the journal's file, copied as of one snapshot, at a pace that suits the service beside it.
//!
//! They are read through SQLite's `sqlite_dbpage` (<https://sqlite.org/dbpage.html>), so that a page is what the snapshot
//! says, wherever it lies, and are written past the page cache where the file system can do that: what is written once
//! and not read again would only take memory from the service, and a flush of it would hold up the flushes of its journal.

use super::{BackupOf, FLUSH_EVERY, Failed};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes that are written at once: no flush of the journal waits for more.
const BLOCK: usize = 256 << 10;
/// What the memory and the places of unbuffered writes are multiples of.
const ALIGNMENT: usize = 4096;
/// The journal's log may become so long before the copy does not pause any more.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// Between two looks at the log.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Where the first page says by which ways of logging the file may be written and read, and the way that needs no second
/// file (<https://sqlite.org/fileformat2.html>, section 1.3.3).
const LOGGING: std::ops::Range<usize> = 18..20;
const LOGGING_PLAIN: u8 = 1;

/// Copies all pages. The connection has a transaction open, which is the snapshot.
pub(super) fn copy(
    journal: &Connection,
    log: &Log,
    to: &Path,
    of: &BackupOf,
) -> Result<(), Failed> {
    let number = |name: &str| journal.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
    let (page_bytes, count) = (number("page_size")?, number("page_count")?);
    let mut blocks = Blocks::create(to)?;
    let mut pace = Pace::new(log, page_bytes, page_bytes * count, of);
    let mut pages = journal.prepare("SELECT data FROM sqlite_dbpage")?;
    let mut rows = pages.query([])?;
    while let Some(row) = rows.next()? {
        let page = row.get_ref(0)?.as_blob()?;
        if blocks.bytes() > 0 {
            blocks.add(page)?;
        } else {
            let mut first = page.to_vec();
            first[LOGGING].fill(LOGGING_PLAIN);
            blocks.add(&first)?;
        }
        pace.keep(blocks.bytes())?;
    }
    blocks.finish()
}

/// A file that is written from its beginning to its end.
struct Blocks {
    file: File,
    is_direct: bool,
    /// From `begin` on its address is a multiple of [`ALIGNMENT`].
    memory: Vec<u8>,
    begin: usize,
    filled: usize,
    written: u64,
    flushed: u64,
}

impl Blocks {
    fn create(path: &Path) -> io::Result<Blocks> {
        let memory = vec![0; BLOCK + ALIGNMENT];
        let begin = memory.as_ptr().align_offset(ALIGNMENT);
        let open = |flags: OFlags| {
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(true).mode(0o600);
            options.custom_flags(flags.bits() as i32).open(path)
        };
        let (file, is_direct) = match open(OFlags::DIRECT) {
            Err(why) if is_unfit(&why) => (open(OFlags::empty())?, false),
            file => (file?, true),
        };
        Ok(Blocks {
            file,
            is_direct,
            memory,
            begin,
            filled: 0,
            written: 0,
            flushed: 0,
        })
    }

    /// So many were added.
    fn bytes(&self) -> u64 {
        self.written + self.filled as u64
    }

    fn add(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            let at = self.begin + self.filled;
            self.memory[at..at + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == BLOCK {
                self.write()?;
            }
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let block = &self.memory[self.begin..self.begin + self.filled];
        match self.file.write_all_at(block, self.written) {
            // The last block of small pages, or a file system that notices only now.
            Err(why) if self.is_direct && is_unfit(&why) => {
                rustix::fs::fcntl_setfl(&self.file, OFlags::empty())?;
                self.is_direct = false;
                self.file.write_all_at(block, self.written)?;
            }
            done => done?,
        }
        self.written += self.filled as u64;
        self.filled = 0;
        if !self.is_direct && self.written >= self.flushed + FLUSH_EVERY {
            self.file.sync_data()?;
            self.flushed = self.written;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), Failed> {
        Ok(self.write()?)
    }
}

/// Whether something was wrong with how, and not with what, was to be written.
fn is_unfit(why: &io::Error) -> bool {
    Errno::from_io_error(why) == Some(Errno::INVAL)
}

/// Pauses, so that the copy takes as long as it may.
struct Pace<'a> {
    of: &'a BackupOf,
    total: u64,
    page_bytes: u64,
    begun: Instant,
    /// Of the copy, since its begin: when so much of it is due.
    due: Duration,
    kept: u64,
    /// Bytes per second; `None`: as fast as possible.
    rate: Option<f64>,
    log: &'a Log,
    log_at_begin: u64,
    looked: Instant,
}

impl Pace<'_> {
    fn new<'a>(log: &'a Log, page_bytes: u64, total: u64, of: &'a BackupOf) -> Pace<'a> {
        let now = Instant::now();
        Pace {
            of,
            total,
            page_bytes,
            begun: now,
            due: Duration::ZERO,
            kept: 0,
            rate: Some(of.bytes_per_second.max(1) as f64),
            log,
            log_at_begin: log.pages() * page_bytes,
            looked: now,
        }
    }

    /// So many bytes were copied.
    fn keep(&mut self, bytes: u64) -> Result<(), Failed> {
        if self.of.stopped.load(Ordering::Relaxed) {
            return Err("it was asked to stop".into());
        }
        if bytes < self.kept + BLOCK as u64 {
            return Ok(());
        }
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            self.rate = self.rate_now(bytes);
        }
        let piece = std::mem::replace(&mut self.kept, bytes);
        let taken = self.begun.elapsed();
        let Some(rate) = self.rate else {
            self.due = taken;
            return Ok(());
        };
        self.due += Duration::from_secs_f64((bytes - piece) as f64 / rate);
        // What was missed is not made up for at once.
        self.due = self.due.max(taken.saturating_sub(LOOK_EVERY));
        std::thread::sleep(self.due.saturating_sub(taken));
        Ok(())
    }

    /// As fast as was asked for, or so fast that the copy is whole when the log is as long as it may become.
    fn rate_now(&self, bytes: u64) -> Option<f64> {
        let log = self.log.pages() * self.page_bytes;
        let room = LOG_BYTES_MAX.checked_sub(log).filter(|room| *room > 0)?;
        let growth =
            log.saturating_sub(self.log_at_begin) as f64 / self.begun.elapsed().as_secs_f64();
        let left = self.total.saturating_sub(bytes) as f64;
        let needed = left * growth / room as f64;
        Some(needed.max(self.of.bytes_per_second as f64))
    }
}

/// The journal's log, as far as this process may write it into place.
pub(super) struct Log(Option<Connection>);

impl Log {
    pub(super) fn of(journal_file: &Path) -> Log {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let log = Connection::open_with_flags(journal_file, flags);
        if let Err(why) = &log {
            tracing::debug!(%why, "how long the journal's log becomes is not known, and it stays until the next commit");
        }
        Log(log.ok())
    }

    /// Writes into place what no snapshot keeps from it. Gives the pages that are left: of them the file's length says
    /// nothing, because that is kept for the next time.
    fn pages(&self) -> u64 {
        let Some(log) = &self.0 else {
            return 0;
        };
        let frames = log.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        if let Err(why) = &frames {
            tracing::debug!(%why, "the journal's log stays as long as it is until the next commit");
        }
        let (in_log, in_file) = frames.unwrap_or_default();
        (in_log - in_file).max(0) as u64
    }

    pub(super) fn write_into_place(self) {
        self.pages();
    }
}
