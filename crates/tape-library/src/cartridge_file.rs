//! The bytes of one cartridge, as one file that only grows.
//!
//! It begins with a label. Blocks of data, file marks and sync marks follow. What lies behind the last sync mark is the tail: it can
//! be dropped, and is dropped when something is written in its place. A sync writes the tail to disk, then its mark, then the mark to
//! disk, so that a mark never stands behind data that is not there. Beside the file lies an index, which saves reading all headers
//! when a cartridge is opened; without it, or with an old one, headers tell.

mod scan;

use crate::block::{BlockHeader, BlockKind, HEADER_BYTES, PAYLOAD_MAX, stored_bytes};
use penstock_durable_file::replace_private;
use penstock_tape::request::{FileId, TapeName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// A file on a cartridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredFile {
    pub file: FileId,
    /// Where it begins on the tape.
    pub begin_bytes: u64,
    pub size_bytes: u64,
    /// Of all its bytes.
    pub crc32c: u32,
    /// Where its first block begins in the cartridge's file.
    offset: u64,
}

impl StoredFile {
    fn end_bytes(&self) -> u64 {
        self.begin_bytes.saturating_add(self.size_bytes)
    }
}

/// An open cartridge.
#[derive(Debug)]
pub(crate) struct CartridgeFile {
    path: PathBuf,
    medium: File,
    /// Which headers are of this cartridge, and not of one whose bytes were written to it as a file.
    sign: u32,
    /// Files that a sync covers, by begin and size.
    files: BTreeMap<(u64, u64), StoredFile>,
    /// Bytes of the medium up to the last sync mark, and where data ends on the tape there.
    synced_length: u64,
    synced_end: u64,
    tail: Vec<StoredFile>,
    tail_length: u64,
    has_lost_tail: bool,
    /// Whether the medium holds nothing behind the tail but blocks of writes that were stopped.
    is_cut: bool,
}

/// Why a cartridge cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LabelError {
    #[error("{0}")]
    Medium(#[from] io::Error),
    #[error("its label says something else")]
    Label,
}

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("the source cannot be read: {0}")]
    Source(io::Error),
    #[error("{0}")]
    Medium(io::Error),
    /// Data that a sync covers is not overwritten.
    #[error("there is data already")]
    Occupied,
    #[error("stopped")]
    Stopped,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("no such file lies there")]
    Missing,
    #[error("its bytes are damaged")]
    Damaged,
    #[error("{0}")]
    Medium(io::Error),
    #[error("the destination cannot be written: {0}")]
    Destination(io::Error),
    #[error("stopped")]
    Stopped,
}

#[derive(Debug, Serialize, Deserialize)]
struct Index {
    synced_length: u64,
    synced_end: u64,
    files: Vec<StoredFile>,
}

impl Index {
    /// Its checksum, and behind it what it says.
    fn encode(&self) -> io::Result<Vec<u8>> {
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        let mut bytes = format!("{:08x}\n", crc32c::crc32c(&text)).into_bytes();
        bytes.extend(text);
        Ok(bytes)
    }

    /// `None`: it is damaged, or of an earlier version.
    fn decode(bytes: &[u8]) -> Option<Index> {
        let (checksum, text) = bytes.split_at_checked(9)?;
        let is_whole = checksum == format!("{:08x}\n", crc32c::crc32c(text)).as_bytes();
        is_whole.then(|| serde_json::from_slice(text).ok())?
    }
}

/// The first bytes of a cartridge's file; the name of the tape follows, and at the end the sign of its headers: 0 on cartridges of
/// earlier versions.
const LABEL_MAGIC: &[u8; 16] = b"PENSTOCK-TAPE-1\n";
const LABEL_BYTES: usize = 256;
const SIGN_OFFSET: usize = LABEL_BYTES - 4;

fn label(tape: &TapeName, sign: u32) -> [u8; LABEL_BYTES] {
    let mut label = [0; LABEL_BYTES];
    label[..16].copy_from_slice(LABEL_MAGIC);
    let name = tape.0.as_bytes();
    let length = name.len().min(SIGN_OFFSET - 16);
    label[16..16 + length].copy_from_slice(&name[..length]);
    label[SIGN_OFFSET..].copy_from_slice(&sign.to_le_bytes());
    label
}

/// One that no file can foresee.
fn new_sign() -> u32 {
    // The last bytes of such a number are chance.
    Uuid::new_v4().as_u128() as u32
}

/// Where a cartridge lies in the directory of its library.
pub(crate) fn path_in(directory: &Path, tape: &TapeName) -> PathBuf {
    let name = format!("{}.tape", tape.0);
    directory.join("cartridges").join(name)
}

/// A cartridge without data. One that exists is left as it is.
pub(crate) fn make(path: &Path, tape: &TapeName) -> io::Result<()> {
    if path.try_exists()? {
        return Ok(());
    }
    replace_private(path, &label(tape, new_sign()))
}

/// All data of a cartridge is given up.
pub(crate) fn relabel(path: &Path, tape: &TapeName) -> io::Result<()> {
    match std::fs::remove_file(index_path(path)) {
        Err(why) if why.kind() != ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    replace_private(path, &label(tape, new_sign()))
}

fn index_path(path: &Path) -> PathBuf {
    path.with_extension("index")
}

impl CartridgeFile {
    /// Opens a cartridge and finds the end of its data. What no sync covers is no longer read.
    pub(crate) fn open(path: &Path, tape: &TapeName) -> Result<CartridgeFile, LabelError> {
        let mut options = OpenOptions::new();
        let medium = options.read(true).write(true).mode(0o600).open(path)?;
        let mut found = [0; LABEL_BYTES];
        match medium.read_exact_at(&mut found, 0) {
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => return Err(LabelError::Label),
            read => read?,
        }
        let sign = found[SIGN_OFFSET..].try_into();
        let sign = sign.map_or(0, u32::from_le_bytes);
        if found != label(tape, sign) {
            return Err(LabelError::Label);
        }
        let mut cartridge = CartridgeFile {
            path: path.to_owned(),
            medium,
            sign,
            files: BTreeMap::new(),
            synced_length: LABEL_BYTES as u64,
            synced_end: 0,
            tail: Vec::new(),
            tail_length: 0,
            has_lost_tail: false,
            is_cut: false,
        };
        cartridge.take_index()?;
        cartridge.scan()?;
        let length = cartridge.medium.metadata()?.len();
        cartridge.has_lost_tail = length > cartridge.synced_length;
        Ok(cartridge)
    }

    /// Whether data was found that no sync covered.
    pub(crate) fn has_lost_tail(&self) -> bool {
        self.has_lost_tail
    }

    /// Where data ends on the tape, with what no sync covers yet.
    pub(crate) fn end_bytes(&self) -> u64 {
        self.tail
            .last()
            .map_or(self.synced_end, StoredFile::end_bytes)
    }

    /// An index counts when there is a sync mark where it says.
    fn take_index(&mut self) -> io::Result<()> {
        let text = match std::fs::read(index_path(&self.path)) {
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(()),
            read => read?,
        };
        let Some(index) = Index::decode(&text) else {
            return Ok(());
        };
        let Some(mark) = index.synced_length.checked_sub(HEADER_BYTES as u64) else {
            return Ok(());
        };
        let is_current = self.header(mark)?.is_some_and(|header| {
            header.kind == BlockKind::SyncMark && header.address == index.synced_end
        });
        if is_current {
            self.synced_length = index.synced_length;
            self.synced_end = index.synced_end;
            let files = index.files.into_iter();
            let files = files.map(|one| ((one.begin_bytes, one.size_bytes), one));
            self.files = files.collect();
        }
        Ok(())
    }

    fn write_index(&self) -> io::Result<()> {
        let index = Index {
            synced_length: self.synced_length,
            synced_end: self.synced_end,
            files: self.files.values().copied().collect(),
        };
        replace_private(&index_path(&self.path), &index.encode()?)
    }

    /// Where the next block goes.
    fn tail_offset(&self) -> u64 {
        self.synced_length + self.tail_length
    }

    /// What was lost before the cartridge was opened is cut off, before anything is written in its place: never for a read.
    fn cut(&mut self) -> Result<(), WriteError> {
        if !self.is_cut {
            let cut = self.medium.set_len(self.synced_length);
            cut.map_err(WriteError::Medium)?;
            self.is_cut = true;
        }
        Ok(())
    }

    /// Files of the tail that lie at this place or behind it are given up: the tape was moved back, and is written anew from there.
    fn cut_tail(&mut self, begin_bytes: u64) {
        let kept = self.tail.iter();
        let kept = kept
            .take_while(|one| one.end_bytes() <= begin_bytes)
            .count();
        if let Some(first) = self.tail.get(kept) {
            self.tail_length = first.offset - self.synced_length;
            self.tail.truncate(kept);
        }
    }

    /// Writes a file behind the data. It can be lost until the next sync.
    pub(crate) fn append(
        &mut self,
        address: (FileId, u64, u64),
        source: &mut impl Read,
        goes_on: impl FnMut(u64) -> bool,
    ) -> Result<(), WriteError> {
        let written = self.write_file(address, source, goes_on);
        if let Err(WriteError::Medium(_)) = &written {
            // Room for what others write, and for the mark of what was written before. The next sync cuts it off in any case.
            let _ = self.medium.set_len(self.tail_offset());
        }
        written
    }

    fn write_file(
        &mut self,
        (file, begin_bytes, size_bytes): (FileId, u64, u64),
        source: &mut impl Read,
        mut goes_on: impl FnMut(u64) -> bool,
    ) -> Result<(), WriteError> {
        if begin_bytes < self.synced_end {
            return Err(WriteError::Occupied);
        }
        self.cut_tail(begin_bytes);
        self.cut()?;
        let first = self.tail_offset();
        let (mut offset, mut moved, mut crc) = (first, 0_u64, 0_u32);
        let mut buffer = vec![0; HEADER_BYTES + PAYLOAD_MAX];
        while moved < size_bytes {
            if !goes_on(moved) {
                return Err(WriteError::Stopped);
            }
            let length = (size_bytes - moved).min(PAYLOAD_MAX as u64) as usize;
            let block = &mut buffer[..HEADER_BYTES + length];
            let payload = &mut block[HEADER_BYTES..];
            source.read_exact(payload).map_err(WriteError::Source)?;
            crc = crc32c::crc32c_append(crc, payload);
            let header = BlockHeader {
                kind: BlockKind::Data,
                file: file.0,
                address: begin_bytes + moved,
                length: length as u32,
                crc32c: crc32c::crc32c(payload),
            };
            block[..HEADER_BYTES].copy_from_slice(&header.encode(self.sign));
            let written = self.medium.write_all_at(block, offset);
            written.map_err(WriteError::Medium)?;
            offset += block.len() as u64;
            moved += length as u64;
        }
        let mut payload = [0; 12];
        payload[..8].copy_from_slice(&size_bytes.to_le_bytes());
        payload[8..].copy_from_slice(&crc.to_le_bytes());
        let mark = BlockHeader {
            kind: BlockKind::FileMark,
            file: file.0,
            address: begin_bytes,
            length: 12,
            crc32c: crc32c::crc32c(&payload),
        };
        let mut block = mark.encode(self.sign).to_vec();
        block.extend(payload);
        let written = self.medium.write_all_at(&block, offset);
        written.map_err(WriteError::Medium)?;
        offset += block.len() as u64;
        self.tail.push(StoredFile {
            file,
            begin_bytes,
            size_bytes,
            crc32c: crc,
            offset: first,
        });
        self.tail_length = offset - self.synced_length;
        Ok(())
    }

    /// All that was written is on tape when this has returned. After an error, nothing of it is.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.tail.is_empty() {
            return Ok(());
        }
        let synced = self.write_mark();
        if synced.is_err() {
            // What the disk holds is not known after a failed flush.
            let _ = self.drop_tail();
            return synced;
        }
        self.synced_length = self.tail_offset() + HEADER_BYTES as u64;
        self.synced_end = self.end_bytes();
        self.tail_length = 0;
        let synced = self.tail.drain(..);
        let synced = synced.map(|one| ((one.begin_bytes, one.size_bytes), one));
        self.files.extend(synced);
        Ok(())
    }

    fn write_mark(&self) -> io::Result<()> {
        // Blocks of a write that was stopped lie behind the tail.
        self.medium.set_len(self.tail_offset())?;
        self.medium.sync_data()?;
        let mark = BlockHeader {
            kind: BlockKind::SyncMark,
            file: 0,
            address: self.end_bytes(),
            length: 0,
            crc32c: 0,
        };
        self.medium
            .write_all_at(&mark.encode(self.sign), self.tail_offset())?;
        self.medium.sync_data()
    }

    /// What no sync covers is lost.
    pub(crate) fn drop_tail(&mut self) -> io::Result<()> {
        self.tail.clear();
        self.tail_length = 0;
        match self.is_cut {
            true => self.medium.set_len(self.synced_length),
            false => Ok(()),
        }
    }

    /// The cartridge leaves its drive: what no sync covers is lost, and the index is written.
    pub(crate) fn close(mut self) -> io::Result<()> {
        self.drop_tail()?;
        self.write_index()
    }

    /// The file at an address, or the one that holds it.
    fn find(&self, begin_bytes: u64, size_bytes: u64) -> Option<&StoredFile> {
        let of_tail =
            |one: &&StoredFile| (one.begin_bytes, one.size_bytes) == (begin_bytes, size_bytes);
        if let Some(exact) = self.files.get(&(begin_bytes, size_bytes)) {
            return Some(exact);
        }
        if let Some(exact) = self.tail.iter().find(of_tail) {
            return Some(exact);
        }
        let mut before = self.files.range(..=(begin_bytes, u64::MAX));
        let (_, last) = before.next_back()?;
        (last.end_bytes() >= begin_bytes.saturating_add(size_bytes)).then_some(last)
    }

    /// Reads a stretch of one file, most often all of it. Each block, and a whole file, is compared with its checksum. Returns the
    /// CRC-32C of what was read.
    pub(crate) fn read(
        &self,
        (begin_bytes, size_bytes): (u64, u64),
        destination: &mut impl Write,
        mut goes_on: impl FnMut(u64) -> bool,
    ) -> Result<u32, ReadError> {
        let stored = self.find(begin_bytes, size_bytes);
        let stored = stored.ok_or(ReadError::Missing)?;
        let (skip, mut moved, mut crc) = (begin_bytes - stored.begin_bytes, 0_u64, 0_u32);
        let mut payload = Vec::new();
        while moved < size_bytes {
            if !goes_on(moved) {
                return Err(ReadError::Stopped);
            }
            let at = skip + moved;
            let block = at / PAYLOAD_MAX as u64;
            self.read_block(stored, block, &mut payload)?;
            let from = (at % PAYLOAD_MAX as u64) as usize;
            let left = usize::try_from(size_bytes - moved).unwrap_or(usize::MAX);
            let part = &payload[from..];
            let part = &part[..part.len().min(left)];
            crc = crc32c::crc32c_append(crc, part);
            destination
                .write_all(part)
                .map_err(ReadError::Destination)?;
            moved += part.len() as u64;
        }
        let is_whole = size_bytes == stored.size_bytes;
        if is_whole && crc != stored.crc32c {
            return Err(ReadError::Damaged);
        }
        Ok(crc)
    }

    fn read_block(
        &self,
        stored: &StoredFile,
        block: u64,
        payload: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let before = block * PAYLOAD_MAX as u64;
        let length = (stored.size_bytes - before).min(PAYLOAD_MAX as u64);
        let offset = stored.offset + stored_bytes(before);
        let header = self.header(offset).map_err(ReadError::Medium)?;
        let expected = |header: &BlockHeader| {
            header.kind == BlockKind::Data
                && header.address == stored.begin_bytes + before
                && u64::from(header.length) == length
        };
        let header = header.filter(expected).ok_or(ReadError::Damaged)?;
        payload.resize(header.length as usize, 0);
        let read = self
            .medium
            .read_exact_at(payload, offset + HEADER_BYTES as u64);
        match read {
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => Err(ReadError::Damaged),
            Err(why) => Err(ReadError::Medium(why)),
            Ok(()) if crc32c::crc32c(payload) != header.crc32c => Err(ReadError::Damaged),
            Ok(()) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
