//! Small files that are written as one object: a file mark for each would cost more than the file. Behind the members lies an
//! index, so that a tape tells by itself what is in it. Each member has an address of its own and is read without the others.

use crate::locate::SECOND_NS;
use crate::request::FileId;
use serde::{Deserialize, Serialize};

/// When an aggregate is closed: when it has so many bytes or files, or when its oldest member has waited for so long. Until then
/// its members are queued like other files, so nothing of it can be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregatePolicy {
    pub bytes_max: u64,
    pub files_max: usize,
    pub age_ns: i64,
}

/// An aggregate takes this part of a tape at most.
const TAPE_PERCENT_MAX: u64 = 10;

impl AggregatePolicy {
    /// 10 GB are read in half a minute, about what a locate and a file mark cost.
    pub fn usual() -> AggregatePolicy {
        AggregatePolicy {
            bytes_max: 10_000_000_000,
            files_max: 20_000,
            age_ns: 900 * SECOND_NS,
        }
    }

    /// The most bytes of an aggregate on a tape of this capacity.
    pub fn bytes_max_on(&self, capacity_bytes: u64) -> u64 {
        self.bytes_max.min(capacity_bytes / 100 * TAPE_PERCENT_MAX)
    }
}

/// A member, in the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregateMember {
    pub file: FileId,
    pub size_bytes: u64,
}

/// A member as the index tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    pub file: FileId,
    /// From the beginning of the aggregate.
    pub offset_bytes: u64,
    pub size_bytes: u64,
    pub crc32c: u32,
}

const ENTRY_BYTES: usize = 28;
/// The last bytes of an index, before the number of its entries.
const MAGIC: [u8; 8] = *b"PTAGGR1\n";
const TRAILER_BYTES: usize = 16;

/// Bytes of an index of so many members.
pub fn index_bytes(members: usize) -> u64 {
    (members * ENTRY_BYTES + TRAILER_BYTES) as u64
}

/// Bytes of an aggregate with its index.
pub fn aggregate_bytes(sizes: impl IntoIterator<Item = u64>) -> u64 {
    let (mut members, mut bytes) = (0, 0_u64);
    for size in sizes {
        members += 1;
        bytes = bytes.saturating_add(size);
    }
    bytes.saturating_add(index_bytes(members))
}

/// An index as it is written. Numbers are stored with the least byte first.
pub fn encode_index(entries: &[IndexEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * ENTRY_BYTES + TRAILER_BYTES);
    for entry in entries {
        bytes.extend(entry.file.0.to_le_bytes());
        bytes.extend(entry.offset_bytes.to_le_bytes());
        bytes.extend(entry.size_bytes.to_le_bytes());
        bytes.extend(entry.crc32c.to_le_bytes());
    }
    bytes.extend(MAGIC);
    bytes.extend((entries.len() as u64).to_le_bytes());
    bytes
}

/// The index at the end of these bytes; `None` when there is none.
pub fn decode_index(bytes: &[u8]) -> Option<Vec<IndexEntry>> {
    let (before, trailer) = bytes.split_at_checked(bytes.len().checked_sub(TRAILER_BYTES)?)?;
    let (magic, count) = trailer.split_at(MAGIC.len());
    if magic != MAGIC {
        return None;
    }
    let count = usize::try_from(u64::from_le_bytes(count.try_into().ok()?)).ok()?;
    let length = count.checked_mul(ENTRY_BYTES)?;
    let (_, entries) = before.split_at_checked(before.len().checked_sub(length)?)?;
    let eight = |part: &[u8]| Some(u64::from_le_bytes(part.try_into().ok()?));
    let entries = entries.chunks_exact(ENTRY_BYTES).map(|entry| {
        Some(IndexEntry {
            file: FileId(eight(&entry[..8])?),
            offset_bytes: eight(&entry[8..16])?,
            size_bytes: eight(&entry[16..24])?,
            crc32c: u32::from_le_bytes(entry[24..].try_into().ok()?),
        })
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_read_as_written_and_other_bytes_are_none() {
        let entry = |number: u64| IndexEntry {
            file: FileId(number),
            offset_bytes: number * 1_000,
            size_bytes: 900,
            crc32c: 7,
        };
        let entries: Vec<IndexEntry> = (0..5).map(entry).collect();
        let index = encode_index(&entries);
        assert_eq!(index.len() as u64, index_bytes(5));
        let with_data = [vec![9; 77], index.clone()].concat();
        assert_eq!(decode_index(&with_data), Some(entries));
        for wrong in [&index[1..], &index[..index.len() - 1], b"", &[0; 40]] {
            assert_eq!(decode_index(wrong), None);
        }
        // A number of entries that cannot be.
        let mut huge = index;
        let end = huge.len();
        huge[end - 8..].fill(0xff);
        assert_eq!(decode_index(&huge), None);
        assert_eq!(decode_index(&encode_index(&[])), Some(Vec::new()));
    }

    #[test]
    fn an_aggregate_takes_a_tenth_of_a_tape_at_most() {
        let policy = AggregatePolicy::usual();
        assert_eq!(policy.bytes_max_on(12_000_000_000_000), 10_000_000_000);
        assert_eq!(policy.bytes_max_on(2_000_000_000), 200_000_000);
        assert_eq!(aggregate_bytes([10, 20]), 30 + index_bytes(2));
    }
}
