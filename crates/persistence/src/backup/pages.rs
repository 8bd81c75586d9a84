//! The pages of the journal's file, copied as of one snapshot, at a pace that suits the service beside it.
//!
//! A snapshot keeps from the file whatever is newer, so that each page is there as the snapshot has it, or lies in the log as
//! well (<https://sqlite.org/wal.html>, section 2.2). So the file is read as it lies there, in large pieces, and those few
//! pages that the log has are asked of SQLite (`sqlite_dbpage`, <https://sqlite.org/dbpage.html>).
//!
//! The copy is written past the page cache where the file system can do that: what is written once and not read again
//! would only take memory from the service, and a flush of it would hold up the flushes of its journal.

use super::file::OpenFile;
use super::{BackupOf, BoxedError, FLUSH_EVERY, with_suffix};
use rusqlite::{CachedStatement, Connection, OpenFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes that are read and written at once: no flush of the journal waits for more. A multiple of the size of any page.
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

/// The log's header, that of each page in it, and where both have the number that is of this log and not of one before
/// (<https://sqlite.org/fileformat2.html>, section 4.1).
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
const SALT_OF_LOG: std::ops::Range<usize> = 16..24;
const SALT_OF_FRAME: std::ops::Range<usize> = 8..16;

/// Copies all pages. The connection has read in a transaction that is open, which is the snapshot.
pub(super) fn copy(
    journal: &Connection,
    journal_file: &Path,
    log: &Log,
    to: &Path,
    of: &BackupOf,
) -> Result<(), BoxedError> {
    let mut pages = Snapshot::of(journal, journal_file)?;
    let total = pages.page_bytes * pages.count;
    let mut copy = Copy::create(to)?;
    let mut pace = Pace::new(log, pages.page_bytes, total, of);
    while copy.written < total {
        let at = copy.written;
        let bytes = (total - at).min(BLOCK as u64) as usize;
        let block = copy.block(bytes);
        pages.read(at, block)?;
        if at == 0 {
            block[LOGGING].fill(LOGGING_PLAIN);
        }
        copy.write(bytes)?;
        pace.keep(copy.written)?;
    }
    Ok(())
}

/// The pages as of a snapshot.
struct Snapshot<'a> {
    file: OpenFile<'a>,
    page_bytes: u64,
    count: u64,
    /// Numbers of pages, from 1 on, whose place in the file may not have what the snapshot has. Sorted.
    in_log: Vec<u32>,
    page: CachedStatement<'a>,
}

impl Snapshot<'_> {
    fn of<'a>(journal: &'a Connection, journal_file: &Path) -> Result<Snapshot<'a>, BoxedError> {
        let number =
            |name: &str| journal.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
        let (page_bytes, count) = (number("page_size")?, number("page_count")?);
        Ok(Snapshot {
            file: OpenFile::of(journal)?,
            page_bytes,
            count,
            in_log: pages_in_log(journal_file, page_bytes)?,
            page: journal.prepare_cached("SELECT data FROM sqlite_dbpage WHERE pgno = ?1")?,
        })
    }

    /// Fills the block, which begins with a page.
    fn read(&mut self, at: u64, block: &mut [u8]) -> Result<(), BoxedError> {
        self.file.read(at, block)?;
        let first = at / self.page_bytes + 1;
        let end = first + block.len() as u64 / self.page_bytes;
        let begin = self.in_log.partition_point(|page| u64::from(*page) < first);
        let of_log = self.in_log[begin..].iter();
        for page in of_log.take_while(|page| u64::from(**page) < end) {
            let place = ((u64::from(*page) - first) * self.page_bytes) as usize;
            let place = &mut block[place..place + self.page_bytes as usize];
            self.page.query_row([page], |row| {
                place.copy_from_slice(row.get_ref(0)?.as_blob()?);
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// All pages in the log, whatever of it is in the file already. While there is a snapshot, none leaves it that the
/// snapshot needs: either the log does not begin anew, or all of the snapshot was in the file before.
pub(super) fn pages_in_log(journal_file: &Path, page_bytes: u64) -> io::Result<Vec<u32>> {
    let log = match File::open(with_suffix(journal_file, "-wal")) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        log => log?,
    };
    let mut pages = Vec::new();
    let mut header = [0; LOG_HEADER];
    let mut frame = [0; FRAME_HEADER];
    let mut at = LOG_HEADER as u64;
    let is_whole = |read: io::Result<()>| match read {
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    };
    if !is_whole(log.read_exact_at(&mut header, 0))? {
        return Ok(pages);
    }
    while is_whole(log.read_exact_at(&mut frame, at))?
        && frame[SALT_OF_FRAME] == header[SALT_OF_LOG]
    {
        pages.push(u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]));
        at += FRAME_HEADER as u64 + page_bytes;
    }
    pages.sort_unstable();
    pages.dedup();
    Ok(pages)
}

/// A file that is written from its beginning to its end.
struct Copy {
    file: File,
    is_direct: bool,
    /// From `begin` on its address is a multiple of [`ALIGNMENT`].
    memory: Vec<u8>,
    begin: usize,
    written: u64,
    flushed: u64,
}

impl Copy {
    fn create(path: &Path) -> io::Result<Copy> {
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
        Ok(Copy {
            file,
            is_direct,
            memory,
            begin,
            written: 0,
            flushed: 0,
        })
    }

    /// What is to be filled for [`Copy::write`].
    fn block(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + bytes]
    }

    fn write(&mut self, bytes: usize) -> io::Result<()> {
        let block = &self.memory[self.begin..self.begin + bytes];
        match self.file.write_all_at(block, self.written) {
            // The last block of small pages, or a file system that notices only now.
            Err(why) if self.is_direct && is_unfit(&why) => {
                rustix::fs::fcntl_setfl(&self.file, OFlags::empty())?;
                self.is_direct = false;
                self.file.write_all_at(block, self.written)?;
            }
            done => done?,
        }
        self.written += bytes as u64;
        if !self.is_direct && self.written >= self.flushed + FLUSH_EVERY {
            self.file.sync_data()?;
            self.flushed = self.written;
        }
        Ok(())
    }
}

/// True if the file system refuses `O_DIRECT`; the caller then writes through the page cache.
fn is_unfit(why: &io::Error) -> bool {
    Errno::from_io_error(why) == Some(Errno::INVAL)
}

/// Slows the copy down to the rate that it may have.
struct Pace<'a> {
    of: &'a BackupOf,
    total: u64,
    page_bytes: u64,
    begun: Instant,
    /// Time after the begin at which the bytes copied so far are due.
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
    fn keep(&mut self, bytes: u64) -> Result<(), BoxedError> {
        if self.of.stopped.load(Ordering::Relaxed) {
            return Err("it was asked to stop".into());
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
