//! What memory there is: `/proc/meminfo` (proc_meminfo(5)).

use super::proc_text::{FormatError, lines};
use serde::{Deserialize, Serialize};

/// Memory of the host, in bytes. Of an interval: the worst that was seen in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memory {
    pub total_bytes: u64,
    /// What programs can still have without swapping: the least that was seen.
    pub available_bytes: u64,
    /// Pages that have still to be written to disks: the most that was seen.
    pub dirty_bytes: u64,
    /// Pages that are being written: the most that was seen.
    pub writeback_bytes: u64,
    /// Swapped out: the most that was seen.
    pub swapped_bytes: u64,
}

impl Memory {
    /// The worse of both, value by value.
    pub fn worse(self, other: Memory) -> Memory {
        Memory {
            total_bytes: self.total_bytes.max(other.total_bytes),
            available_bytes: self.available_bytes.min(other.available_bytes),
            dirty_bytes: self.dirty_bytes.max(other.dirty_bytes),
            writeback_bytes: self.writeback_bytes.max(other.writeback_bytes),
            swapped_bytes: self.swapped_bytes.max(other.swapped_bytes),
        }
    }
}

/// `/proc/meminfo`. Kernels before 3.14 do not tell what is available; then it is what is free or cached.
pub fn parse(bytes: &[u8]) -> Result<Memory, FormatError> {
    let mut found = MemoryFields::default();
    for line in lines(bytes) {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.split_ascii_whitespace().next();
        let bytes = value
            .and_then(|text| text.parse::<u64>().ok())
            .map(|kibibytes| kibibytes.saturating_mul(1024));
        match name {
            "MemTotal" => found.total = bytes,
            "MemFree" => found.free = bytes,
            "MemAvailable" => found.available = bytes,
            "Cached" => found.cached = bytes,
            "Dirty" => found.dirty = bytes,
            "Writeback" => found.writeback = bytes,
            "SwapTotal" => found.swap_total = bytes,
            "SwapFree" => found.swap_free = bytes,
            _ => {}
        }
    }
    let missing = |expected| FormatError {
        file: "/proc/meminfo",
        expected,
    };
    let guess = || Some(found.free?.saturating_add(found.cached.unwrap_or(0)));
    let available = found.available.or_else(guess);
    let swapped = found.swap_total.zip(found.swap_free);
    Ok(Memory {
        total_bytes: found.total.ok_or(missing("MemTotal"))?,
        available_bytes: available.ok_or(missing("MemAvailable or MemFree"))?,
        dirty_bytes: found.dirty.unwrap_or(0),
        writeback_bytes: found.writeback.unwrap_or(0),
        swapped_bytes: swapped.map_or(0, |(total, free)| total.saturating_sub(free)),
    })
}

#[derive(Default)]
struct MemoryFields {
    total: Option<u64>,
    free: Option<u64>,
    available: Option<u64>,
    cached: Option<u64>,
    dirty: Option<u64>,
    writeback: Option<u64>,
    swap_total: Option<u64>,
    swap_free: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::proc_text::tests::endures;

    const INFO: &[u8] = b"MemTotal:       24684084 kB\nMemFree:        12334460 kB\nMemAvailable:   18000000 kB\n\
        Buffers:           10000 kB\nCached:          5000000 kB\nSwapTotal:       2000 kB\nSwapFree:        1500 kB\n\
        Dirty:              7000 kB\nWriteback:            12 kB\nHugePages_Total:       0\n";

    #[test]
    fn kibibytes_become_bytes_and_swap_is_what_is_used() {
        let read = parse(INFO).expect("a real file");
        assert_eq!(read.total_bytes, 24_684_084 * 1024);
        assert_eq!(read.available_bytes, 18_000_000 * 1024);
        assert_eq!(
            (read.dirty_bytes, read.swapped_bytes),
            (7000 * 1024, 500 * 1024)
        );
        let old = b"MemTotal: 10 kB\nMemFree: 3 kB\nCached: 4 kB\n";
        assert_eq!(parse(old).expect("valid").available_bytes, 7 * 1024);
        assert!(parse(b"MemTotal: 10 kB\n").is_err());
    }

    #[test]
    fn of_an_interval_the_worst_stands() {
        let read = parse(INFO).expect("a real file");
        let later = Memory {
            available_bytes: 1,
            dirty_bytes: 2,
            ..read
        };
        let worst = read.worse(later);
        assert_eq!((worst.available_bytes, worst.dirty_bytes), (1, 7000 * 1024));
    }

    #[test]
    fn damaged_text_is_read_or_refused() {
        endures(INFO, parse);
    }
}
