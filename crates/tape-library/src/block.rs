//! Blocks of a cartridge's file: a header with checksums, and up to a mebibyte of data.

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 40;
/// Data of one block.
pub(crate) const PAYLOAD_MAX: usize = 1 << 20;
/// The first bytes of each header.
const MAGIC: [u8; 4] = *b"PTB1";

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Data,
    /// The end of a file; its data are its size and its checksum.
    FileMark,
    /// All before it is on tape.
    SyncMark,
}

/// A header. All numbers are stored with the least byte first. Behind its checksum lies the sign of its cartridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub kind: BlockKind,
    pub file: u64,
    /// Of data, where its first byte lies on the tape; of a file mark, where the file begins; of a sync mark, the end of data.
    pub address: u64,
    /// Bytes of data behind the header.
    pub length: u32,
    /// CRC-32C of the data.
    pub crc32c: u32,
}

impl BlockHeader {
    pub(crate) fn encode(&self, sign: u32) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = match self.kind {
            BlockKind::Data => 1,
            BlockKind::FileMark => 2,
            BlockKind::SyncMark => 3,
        };
        bytes[8..16].copy_from_slice(&self.file.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.address.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.crc32c.to_le_bytes());
        let crc32c = crc32c::crc32c(&bytes[..32]);
        bytes[32..36].copy_from_slice(&crc32c.to_le_bytes());
        bytes[36..].copy_from_slice(&sign.to_le_bytes());
        bytes
    }

    /// Whether a header may begin with these bytes.
    pub(crate) fn may_begin(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// `None` when it is no header of this cartridge, or damaged.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES], sign: u32) -> Option<BlockHeader> {
        let four = |at: usize| {
            let bytes = bytes[at..at + 4].try_into().ok()?;
            Some(u32::from_le_bytes(bytes))
        };
        let eight = |at: usize| {
            let bytes = bytes[at..at + 8].try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let is_whole = four(32)? == crc32c::crc32c(&bytes[..32]);
        if !BlockHeader::may_begin(bytes) || !is_whole || four(36)? != sign {
            return None;
        }
        let kind = match bytes[4] {
            1 => BlockKind::Data,
            2 => BlockKind::FileMark,
            3 => BlockKind::SyncMark,
            _ => return None,
        };
        let header = BlockHeader {
            kind,
            file: eight(8)?,
            address: eight(16)?,
            length: four(24)?,
            crc32c: four(28)?,
        };
        (header.length as usize <= PAYLOAD_MAX).then_some(header)
    }
}

/// Where the blocks of a file of this size end, from its first block on, without its mark.
pub(crate) fn stored_bytes(size_bytes: u64) -> u64 {
    let blocks = size_bytes.div_ceil(PAYLOAD_MAX as u64);
    size_bytes + blocks * HEADER_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_written_and_a_damaged_one_is_none() {
        let header = BlockHeader {
            kind: BlockKind::FileMark,
            file: 7,
            address: 1 << 41,
            length: 12,
            crc32c: 0xdead_beef,
        };
        let bytes = header.encode(9);
        assert_eq!(BlockHeader::decode(&bytes, 9), Some(header));
        assert_eq!(BlockHeader::decode(&bytes, 8), None, "of another cartridge");
        for place in 0..HEADER_BYTES {
            let mut damaged = bytes;
            damaged[place] ^= 0x10;
            assert_eq!(BlockHeader::decode(&damaged, 9), None, "byte {place}");
        }
    }
}
