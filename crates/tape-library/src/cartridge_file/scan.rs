//! What headers tell of a cartridge, damaged ones left out: a block tells by itself what it is, so that whatever lies behind a
//! damaged place is found.

use super::{CartridgeFile, StoredFile};
use crate::block::{BlockHeader, BlockKind, HEADER_BYTES, stored_bytes};
use penstock_tape::request::FileId;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

/// Bytes that are looked through at once for the next header.
const WINDOW_BYTES: usize = 1 << 20;
/// Data of a file mark.
const FILE_MARK_BYTES: usize = 12;

impl CartridgeFile {
    /// The header at a place; `None` when there is none, or a damaged one.
    pub(super) fn header(&self, offset: u64) -> io::Result<Option<BlockHeader>> {
        let mut bytes = [0; HEADER_BYTES];
        match self.medium.read_exact_at(&mut bytes, offset) {
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(why) => Err(why),
            Ok(()) => Ok(BlockHeader::decode(&bytes, self.sign)),
        }
    }

    /// Reads headers from the last known sync mark on. What lies before the last sync mark is synced, whatever is damaged there.
    pub(super) fn scan(&mut self) -> io::Result<()> {
        let mut offset = self.synced_length;
        let mut tail = Tail::default();
        loop {
            let Some(header) = self.header(offset)? else {
                match self.next_header(offset)? {
                    Some(next) => offset = next,
                    None => break,
                }
                continue;
            };
            let behind = offset + HEADER_BYTES as u64;
            match header.kind {
                BlockKind::Data => tail.add_block(offset, &header),
                BlockKind::FileMark => match self.file_mark(offset, &header)? {
                    Some(file) => tail.end_file(file),
                    None => tail.end_blocks(),
                },
                BlockKind::SyncMark => self.take_synced(&mut tail, behind, header.address),
            }
            offset = behind + u64::from(header.length);
        }
        // A damaged header behind a whole file, at the very end, is the last sync mark: what it covers was on disk before it.
        let behind = offset + HEADER_BYTES as u64;
        let is_last = self.medium.metadata()?.len() == behind && tail.block.is_none();
        let before = tail.files.last().filter(|last| {
            let mark = last.offset + stored_bytes(last.size_bytes);
            mark + (HEADER_BYTES + FILE_MARK_BYTES) as u64 == offset
        });
        if is_last && let Some(before) = before {
            let end_bytes = before.end_bytes();
            self.take_synced(&mut tail, behind, end_bytes);
        }
        Ok(())
    }

    fn take_synced(&mut self, tail: &mut Tail, behind: u64, end_bytes: u64) {
        tail.end_blocks();
        let synced = tail.files.drain(..);
        let synced = synced.map(|one| ((one.begin_bytes, one.size_bytes), one));
        self.files.extend(synced);
        self.synced_length = behind;
        self.synced_end = end_bytes;
    }

    /// What a file mark tells; `None` when its data are damaged. Its blocks lie before it, whatever became of their headers.
    fn file_mark(&self, offset: u64, header: &BlockHeader) -> io::Result<Option<StoredFile>> {
        let mut payload = [0; FILE_MARK_BYTES];
        let behind = offset + HEADER_BYTES as u64;
        match self.medium.read_exact_at(&mut payload, behind) {
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        if header.length as usize != FILE_MARK_BYTES || crc32c::crc32c(&payload) != header.crc32c {
            return Ok(None);
        }
        let (size, crc32c) = payload.split_at(8);
        let size_bytes = size.try_into().map_or(0, u64::from_le_bytes);
        let first = offset.checked_sub(stored_bytes(size_bytes));
        Ok(first.map(|first| StoredFile {
            file: FileId(header.file),
            begin_bytes: header.address,
            size_bytes,
            crc32c: crc32c.try_into().map_or(0, u32::from_le_bytes),
            offset: first,
        }))
    }

    /// Where the next header lies behind a damaged one.
    fn next_header(&self, damaged: u64) -> io::Result<Option<u64>> {
        let mut window = vec![0; WINDOW_BYTES];
        let mut begin = damaged + 1;
        loop {
            let mut filled = 0;
            while filled < window.len() {
                match self
                    .medium
                    .read_at(&mut window[filled..], begin + filled as u64)?
                {
                    0 => break,
                    read => filled += read,
                }
            }
            let places = window[..filled].windows(HEADER_BYTES).enumerate();
            for (at, bytes) in places.filter(|(_, bytes)| BlockHeader::may_begin(bytes)) {
                let header = bytes.try_into().ok();
                if header.is_some_and(|header| BlockHeader::decode(header, self.sign).is_some()) {
                    return Ok(Some(begin + at as u64));
                }
            }
            if filled < window.len() {
                return Ok(None);
            }
            // A header may lie over the end of the window.
            begin += (filled - HEADER_BYTES + 1) as u64;
        }
    }
}

/// What was found since the last sync mark.
#[derive(Default)]
struct Tail {
    files: Vec<StoredFile>,
    /// Blocks of one file that lie behind one another and whose mark has not come.
    block: Option<StoredFile>,
}

impl Tail {
    fn add_block(&mut self, offset: u64, header: &BlockHeader) {
        let length = u64::from(header.length);
        let goes_on = |blocks: &&mut StoredFile| {
            blocks.file == FileId(header.file)
                && blocks.end_bytes() == header.address
                && blocks.offset + stored_bytes(blocks.size_bytes) == offset
        };
        if let Some(blocks) = self.block.as_mut().filter(goes_on) {
            blocks.size_bytes += length;
            blocks.crc32c =
                crc32c::crc32c_combine(blocks.crc32c, header.crc32c, header.length as usize);
            return;
        }
        self.end_blocks();
        self.block = Some(StoredFile {
            file: FileId(header.file),
            begin_bytes: header.address,
            size_bytes: length,
            crc32c: header.crc32c,
            offset,
        });
    }

    fn end_file(&mut self, file: StoredFile) {
        self.block = None;
        self.files.push(file);
    }

    /// Blocks whose file mark is damaged are as good as a file.
    fn end_blocks(&mut self) {
        self.files.extend(self.block.take());
    }
}
