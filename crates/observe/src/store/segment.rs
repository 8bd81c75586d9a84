//! One file of rows: a head, then blocks, each with its length, its checksum and the times of its rows.
//!
//! ```text
//! file   "PNSKROWS", version u32, family u32
//! frame  length of the block u32, CRC-32C of all that follows u32, first time i64, last time i64, rows u32, block
//! ```

use super::block::BlockBuilder;
use super::flushed_length::{self, NOTE_EVERY_BYTES};
use super::{FILE_MODE, SEGMENT_BYTES_MAX, StoreError, sync_directory};
use penstock_model::observation::{Column, Family, Row};
use penstock_model::{Bytes, Timestamp};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) const HEAD_BYTES: u64 = 16;
pub(super) const FRAME_HEAD_BYTES: usize = 28;
const MAGIC: &[u8; 8] = b"PNSKROWS";
const VERSION: u32 = 1;
/// A block that claims to be longer is damage.
const BLOCK_BYTES_MAX: u32 = 1 << 30;
const ENDING: &str = ".rows";
const PIECE_BYTES: usize = 1 << 20;

/// What a crash had torn off a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub path: PathBuf,
    /// Bytes that were no whole block. Nothing of them had been acknowledged.
    pub bytes: Bytes,
}

/// A file of a store, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SegmentFile {
    pub(super) family: Family,
    /// Days since 1970.
    pub(super) day: i64,
    pub(super) number: u32,
    pub(super) path: PathBuf,
}

/// The files of a store, in the order of families, days and numbers.
pub(super) fn files(directory: &Path) -> Result<Vec<SegmentFile>, StoreError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(StoreError::disk(directory))? {
        let path = entry.map_err(StoreError::disk(directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some((family, day, number)) = name.and_then(parse_name) {
            found.push(SegmentFile {
                family,
                day,
                number,
                path,
            });
        }
    }
    found.sort();
    Ok(found)
}

/// `attempt-2026-11-24-1.rows`.
fn name_of(family: Family, day: i64, number: u32) -> String {
    let at = Timestamp(day.saturating_mul(86_400_000));
    let (year, month, day, _) = at.civil();
    format!(
        "{}-{year:04}-{month:02}-{day:02}-{number}{ENDING}",
        family.word()
    )
}

pub(super) fn parse_name(name: &str) -> Option<(Family, i64, u32)> {
    let (rest, number) = name.strip_suffix(ENDING)?.rsplit_once('-')?;
    let (family, date) = rest.split_once('-')?;
    let date = crate::times::Date::parse(date)?;
    Some((
        Family::from_word(family)?,
        date.days(),
        number.parse().ok()?,
    ))
}

/// The rows of one family and day that are being written.
#[derive(Debug)]
pub(super) struct Segment {
    family: Family,
    day: i64,
    builder: BlockBuilder,
    times: Option<(Timestamp, Timestamp)>,
    open: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    file: File,
    length: u64,
    is_dirty: bool,
    /// Bytes that are noted as flushed.
    noted: u64,
}

impl Segment {
    pub(super) fn new(family: Family, day: i64, columns: &'static [Column]) -> Segment {
        Segment {
            family,
            day,
            builder: BlockBuilder::new(columns),
            times: None,
            open: None,
        }
    }

    pub(super) fn push<R: Row>(&mut self, row: &R) {
        let at = row.at();
        let (first, last) = self.times.unwrap_or((at, at));
        self.times = Some((first.min(at), last.max(at)));
        self.builder.push(row);
    }

    pub(super) fn buffered_rows(&self) -> u32 {
        self.builder.rows()
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Opens the file of the next block. Tells what it had to cut before.
    pub(super) fn open_for_block(
        &mut self,
        directory: &Path,
    ) -> Result<Option<TornTail>, StoreError> {
        let is_long = |open: &OpenFile| open.length >= SEGMENT_BYTES_MAX;
        if !self.open.as_ref().is_none_or(is_long) {
            return Ok(None);
        }
        self.sync()?;
        let (open, torn) = self.open_last(directory)?;
        self.open = Some(open);
        Ok(torn)
    }

    /// The file of the next block, and its length.
    pub(super) fn open_file(&self) -> Option<(&Path, u64)> {
        let open = self.open.as_ref()?;
        Some((&open.path, open.length))
    }

    /// Writes what is gathered as a block into the file that is open.
    pub(super) fn write_block(&mut self) -> Result<(), StoreError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let (first, last) = self.times.take().unwrap_or_default();
        let rows = self.builder.rows();
        let frame = frame(&self.builder.take(), first, last, rows);
        open.is_dirty = true;
        let written = open.file.write_all(&frame);
        written.map_err(StoreError::disk(&open.path))?;
        open.length += frame.len() as u64;
        Ok(())
    }

    /// Makes durable what was written, and closes the file.
    pub(super) fn close(&mut self) -> Result<(), StoreError> {
        self.sync()?;
        self.open = None;
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        if let Some(open) = &mut self.open
            && open.is_dirty
        {
            open.sync()?;
        }
        Ok(())
    }

    fn open_last(&self, directory: &Path) -> Result<(OpenFile, Option<TornTail>), StoreError> {
        let path_of = |number| directory.join(name_of(self.family, self.day, number));
        let mut number = 1;
        while path_of(number + 1).exists() {
            number += 1;
        }
        let path = path_of(number);
        if !path.exists() {
            let new = OpenFile::new(directory, self.family, self.day, number)?;
            return Ok((new, None));
        }
        let (mut open, torn) = OpenFile::existing(path, self.family)?;
        if open.length < SEGMENT_BYTES_MAX {
            return Ok((open, torn));
        }
        // What was written again of it is covered by no flush of the next.
        open.sync()?;
        let next = OpenFile::new(directory, self.family, self.day, number + 1)?;
        Ok((next, torn))
    }
}

impl OpenFile {
    /// Makes durable what was written, and notes how much that is when it has become much more.
    fn sync(&mut self) -> Result<(), StoreError> {
        self.file
            .sync_data()
            .map_err(StoreError::disk(&self.path))?;
        self.is_dirty = false;
        if self.length >= self.noted + NOTE_EVERY_BYTES {
            flushed_length::note(&self.path, &self.file, self.length)?;
            self.noted = self.length;
        }
        Ok(())
    }

    fn new(
        directory: &Path,
        family: Family,
        day: i64,
        number: u32,
    ) -> Result<OpenFile, StoreError> {
        let path = directory.join(name_of(family, day, number));
        flushed_length::forget(&path)?;
        let file = File::options()
            .create_new(true)
            .write(true)
            .mode(FILE_MODE)
            .open(&path);
        let mut file = file.map_err(StoreError::disk(&path))?;
        file.write_all(&head(family))
            .map_err(StoreError::disk(&path))?;
        sync_directory(directory)?;
        Ok(OpenFile {
            path,
            file,
            length: HEAD_BYTES,
            is_dirty: true,
            noted: 0,
        })
    }

    /// Reads all of it once, because a power cut can tear blocks of which no part was acknowledged.
    fn existing(path: PathBuf, family: Family) -> Result<(OpenFile, Option<TornTail>), StoreError> {
        let file = File::options().read(true).write(true).open(&path);
        let mut file = file.map_err(StoreError::disk(&path))?;
        let size = file.metadata().map_err(StoreError::disk(&path))?.len();
        let whole = if size < HEAD_BYTES {
            flushed_length::forget(&path)?;
            file.set_len(0).map_err(StoreError::disk(&path))?;
            file.write_all(&head(family))
                .map_err(StoreError::disk(&path))?;
            HEAD_BYTES
        } else {
            match check_head(&mut file, &path, family)? {
                true => whole_length(&mut file).map_err(StoreError::disk(&path))?,
                false => 0,
            }
        };
        let flushed = flushed_bytes(&path, &mut file, whole)?;
        let torn = (size > whole).then(|| TornTail {
            path: path.clone(),
            bytes: Bytes(size - whole),
        });
        if size > whole {
            cut(&mut file, &path, whole).map_err(StoreError::disk(&path))?;
        }
        let whole = match whole {
            0 => {
                file.rewind().map_err(StoreError::disk(&path))?;
                let written = file.write_all(&head(family));
                written.map_err(StoreError::disk(&path))?;
                HEAD_BYTES
            }
            whole => {
                write_again(&mut file, flushed..whole).map_err(StoreError::disk(&path))?;
                whole
            }
        };
        file.seek(SeekFrom::End(0))
            .map_err(StoreError::disk(&path))?;
        let open = OpenFile {
            path,
            file,
            length: whole,
            is_dirty: true,
            noted: flushed,
        };
        Ok((open, torn))
    }
}

fn head(family: Family) -> [u8; HEAD_BYTES as usize] {
    let mut head = [0; HEAD_BYTES as usize];
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[12..].copy_from_slice(&family_code(family).to_le_bytes());
    head
}

fn family_code(family: Family) -> u32 {
    match family {
        Family::Attempt => 1,
        Family::Sample => 2,
        Family::Change => 3,
        Family::Incident => 4,
        Family::NamespaceChange => 5,
    }
}

/// Bytes at the beginning of a file that need not be written once more.
pub(super) fn flushed_bytes(path: &Path, file: &mut File, whole: u64) -> Result<u64, StoreError> {
    if let Some(noted) = flushed_length::noted(path, file)?
        && noted <= whole
        && ends_block(file, noted).map_err(StoreError::disk(path))?
    {
        return Ok(noted);
    }
    flushed_length::forget(path)?;
    Ok(0)
}

/// Whether a block ends there.
fn ends_block(file: &mut File, end: u64) -> io::Result<bool> {
    let mut at = HEAD_BYTES;
    while at < end {
        file.seek(SeekFrom::Start(at))?;
        let Some(head) = FrameHead::read(file)? else {
            return Ok(false);
        };
        at += FRAME_HEAD_BYTES as u64 + u64::from(head.block_bytes);
    }
    Ok(at == end)
}

/// Writes a part of what is there once more, so that the next flush covers it. After a flush that failed, what is read may
/// be in the page cache alone, and no later flush would write it.
fn write_again(file: &mut File, part: Range<u64>) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = part.start;
    while at < part.end {
        let count = (part.end - at).min(PIECE_BYTES as u64) as usize;
        file.read_exact_at(&mut piece[..count], at)?;
        file.write_all_at(&piece[..count], at)?;
        at += count as u64;
    }
    Ok(())
}

/// False: a power cut has taken the head, of which nothing was acknowledged then. The file is left behind it.
pub(super) fn check_head(file: &mut File, path: &Path, family: Family) -> Result<bool, StoreError> {
    let mut found = [0; HEAD_BYTES as usize];
    file.read_exact(&mut found)
        .map_err(StoreError::disk(path))?;
    if found == head(family) {
        return Ok(true);
    }
    if found == [0; HEAD_BYTES as usize] {
        return Ok(false);
    }
    let what = match found[..8] == *MAGIC {
        true => "its rows are of another family or a later version",
        false => "it holds no rows",
    };
    Err(StoreError::Foreign {
        path: path.to_owned(),
        what: what.to_owned(),
    })
}

fn frame(block: &[u8], first: Timestamp, last: Timestamp, rows: u32) -> Vec<u8> {
    let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + block.len());
    frame.extend((block.len() as u32).to_le_bytes());
    frame.extend([0; 4]);
    frame.extend(first.0.to_le_bytes());
    frame.extend(last.0.to_le_bytes());
    frame.extend(rows.to_le_bytes());
    frame.extend(block);
    let check = crc32c::crc32c(&frame[8..]);
    frame[4..8].copy_from_slice(&check.to_le_bytes());
    frame
}

/// What stands before a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameHead {
    pub(super) block_bytes: u32,
    pub(super) check: u32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) rows: u32,
    bytes: [u8; FRAME_HEAD_BYTES],
}

impl FrameHead {
    /// `None`: the file ends before, or no block begins here.
    pub(super) fn read(file: &mut File) -> io::Result<Option<FrameHead>> {
        let mut bytes = [0; FRAME_HEAD_BYTES];
        match file.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(why) => return Err(why),
        }
        let four = |at: usize| {
            let mut number = [0; 4];
            number.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(number)
        };
        let eight = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            Timestamp(i64::from_le_bytes(number))
        };
        let head = FrameHead {
            block_bytes: four(0),
            check: four(4),
            first: eight(8),
            last: eight(16),
            rows: four(24),
            bytes,
        };
        Ok((head.block_bytes <= BLOCK_BYTES_MAX && head.rows > 0).then_some(head))
    }

    /// Whether this is the block that was written.
    pub(super) fn fits(&self, block: &[u8]) -> bool {
        crc32c::crc32c_append(crc32c::crc32c(&self.bytes[8..]), block) == self.check
    }
}

/// Bytes up to the end of the last whole block. A damaged one before it stays: what was acknowledged behind it is whole.
/// The file is behind its head.
fn whole_length(file: &mut File) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let (mut whole, mut at) = (HEAD_BYTES, HEAD_BYTES);
    let mut block = Vec::new();
    while let Some(head) = FrameHead::read(file)? {
        at += FRAME_HEAD_BYTES as u64 + u64::from(head.block_bytes);
        if at > size {
            break;
        }
        block.resize(head.block_bytes as usize, 0);
        file.read_exact(&mut block)?;
        if head.fits(&block) {
            whole = at;
        }
    }
    Ok(whole)
}

/// Where what is cut off a file is kept: should a disk have damaged the chain of blocks, whole ones may be in it.
pub(super) fn torn_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".torn");
    name.into()
}

/// Moves what is behind `whole` out of the file.
fn cut(file: &mut File, path: &Path, whole: u64) -> io::Result<()> {
    let torn = File::options()
        .create(true)
        .append(true)
        .mode(FILE_MODE)
        .open(torn_path(path));
    let mut torn = torn?;
    file.seek(SeekFrom::Start(whole))?;
    io::copy(file, &mut torn)?;
    torn.sync_all()?;
    file.set_len(whole)?;
    file.sync_all()
}
