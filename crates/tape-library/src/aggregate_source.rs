//! The bytes of an aggregate: its members from disk, one behind the other, and the index.

use crate::exchange::FileExchange;
use penstock_tape::aggregate::{AggregateMember, IndexEntry, aggregate_bytes, encode_index};
use penstock_tape::request::FileId;
use std::io::{self, ErrorKind, Read};

/// Opens one member after the other.
pub(crate) struct AggregateSource<'a> {
    exchange: &'a dyn FileExchange,
    members: &'a [AggregateMember],
    /// Of the members that have been begun.
    entries: Vec<IndexEntry>,
    open: Option<(Box<dyn Read + Send>, u64)>,
    index: Option<io::Cursor<Vec<u8>>>,
    offset_bytes: u64,
}

impl<'a> AggregateSource<'a> {
    pub(crate) fn new(exchange: &'a dyn FileExchange, members: &'a [AggregateMember]) -> Self {
        AggregateSource {
            exchange,
            members,
            entries: Vec::with_capacity(members.len()),
            open: None,
            index: None,
            offset_bytes: 0,
        }
    }

    /// All bytes that it gives.
    pub(crate) fn size_bytes(members: &[AggregateMember]) -> u64 {
        aggregate_bytes(members.iter().map(|member| member.size_bytes))
    }

    /// The member that is being read: after an error, the one that it concerns.
    pub(crate) fn member(&self) -> Option<FileId> {
        self.entries.last().map(|entry| entry.file)
    }

    fn open_next(&mut self, member: AggregateMember) -> io::Result<()> {
        self.entries.push(IndexEntry {
            file: member.file,
            offset_bytes: self.offset_bytes,
            size_bytes: member.size_bytes,
            crc32c: 0,
        });
        let source = self.exchange.source(member.file)?;
        self.open = Some((source, member.size_bytes));
        self.offset_bytes += member.size_bytes;
        Ok(())
    }
}

impl Read for AggregateSource<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some((source, left)) = &mut self.open {
                if *left > 0 {
                    let most = buffer
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let read = source.read(&mut buffer[..most])?;
                    if read == 0 {
                        let why = "the file is shorter than it was";
                        return Err(io::Error::new(ErrorKind::UnexpectedEof, why));
                    }
                    *left -= read as u64;
                    if let Some(entry) = self.entries.last_mut() {
                        entry.crc32c = crc32c::crc32c_append(entry.crc32c, &buffer[..read]);
                    }
                    return Ok(read);
                }
                self.open = None;
            }
            if let Some(index) = &mut self.index {
                return index.read(buffer);
            }
            match self.members.get(self.entries.len()).copied() {
                Some(member) => self.open_next(member)?,
                None => self.index = Some(io::Cursor::new(encode_index(&self.entries))),
            }
        }
    }
}
