//! What block devices did: `/proc/diskstats` (kernel: admin-guide/iostats.rst).

use super::part::Part;
use super::proc_text::{FormatError, lines, numbers};
use serde::{Deserialize, Serialize};

/// The kernel counts in sectors of this size, whatever the disk's own.
const SECTOR_BYTES: u64 = 512;

/// What one device did: totals since the boot, or of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskActivity {
    /// Reads that ended.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Time of all reads together, in milliseconds.
    pub read_ms: u64,
    /// Writes that ended.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Time of all writes together, in milliseconds.
    pub write_ms: u64,
    /// Time with at least one request under way, in milliseconds.
    pub busy_ms: u64,
    /// Requests under way, integrated over time: divided by the interval, the mean length of the queue.
    pub queued_ms: u64,
}

impl DiskActivity {
    /// What came on top of an earlier total; 0 where the totals began anew.
    pub fn since(self, earlier: DiskActivity) -> DiskActivity {
        self.with(earlier, u64::saturating_sub)
    }

    /// Both together.
    pub fn plus(self, other: DiskActivity) -> DiskActivity {
        self.with(other, u64::saturating_add)
    }

    /// So much of it as a part of its time is of all.
    pub(super) fn part(self, part: Part) -> DiskActivity {
        self.with(self, |count, _| part.of(count))
    }

    fn with(self, other: DiskActivity, join: impl Fn(u64, u64) -> u64) -> DiskActivity {
        DiskActivity {
            reads: join(self.reads, other.reads),
            read_bytes: join(self.read_bytes, other.read_bytes),
            read_ms: join(self.read_ms, other.read_ms),
            writes: join(self.writes, other.writes),
            written_bytes: join(self.written_bytes, other.written_bytes),
            write_ms: join(self.write_ms, other.write_ms),
            busy_ms: join(self.busy_ms, other.busy_ms),
            queued_ms: join(self.queued_ms, other.queued_ms),
        }
    }
}

/// A device by its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// Of the driver.
    pub major: u32,
    /// Of the device.
    pub minor: u32,
}

impl DeviceNumber {
    /// From text such as `254:0`.
    pub fn parse(text: &str) -> Option<DeviceNumber> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(DeviceNumber {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }
}

impl std::fmt::Display for DeviceNumber {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{}:{}", self.major, self.minor)
    }
}

/// A line of `/proc/diskstats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskLine<'a> {
    pub device: DeviceNumber,
    /// Its name, such as `sda` or `dm-3`.
    pub name: &'a str,
    /// What it did since the boot.
    pub activity: DiskActivity,
}

/// All devices of `/proc/diskstats`, in its order. A host without any has an empty file.
pub fn parse(bytes: &[u8]) -> Result<Vec<DiskLine<'_>>, FormatError> {
    let lines = lines(bytes).filter(|line| !line.trim().is_empty());
    let read = lines.map(|line| {
        parse_line(line).ok_or(FormatError {
            file: "/proc/diskstats",
            expected: "numbers, a name and at least 11 counters",
        })
    });
    read.collect()
}

fn parse_line(line: &str) -> Option<DiskLine<'_>> {
    let mut words = line.split_ascii_whitespace();
    let major = words.next()?.parse().ok()?;
    let minor = words.next()?.parse().ok()?;
    let name = words.next()?;
    let mut counters = [0; 11];
    let mut found = numbers(words);
    for counter in &mut counters {
        *counter = found.next()?;
    }
    let [
        reads,
        _,
        read,
        read_ms,
        writes,
        _,
        written,
        write_ms,
        _,
        busy_ms,
        queued_ms,
    ] = counters;
    Some(DiskLine {
        device: DeviceNumber { major, minor },
        name,
        activity: DiskActivity {
            reads,
            read_bytes: read.saturating_mul(SECTOR_BYTES),
            read_ms,
            writes,
            written_bytes: written.saturating_mul(SECTOR_BYTES),
            write_ms,
            busy_ms,
            queued_ms,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::proc_text::tests::endures;

    const STATS: &[u8] = b"   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n \
        254       0 vda 1573 20 89234 401 2210 980 61440 803 2 1500 1300 0 0 0 0 12 96\n   \
        8       1 sda1 1 2 3 4 5 6 7 8 9 10 11\n";

    #[test]
    fn sectors_become_bytes_and_old_kernels_tell_fewer_counters() {
        let read = parse(STATS).expect("a real file");
        assert_eq!(read.len(), 3);
        let disk = read[1];
        assert_eq!(
            (disk.name, disk.device.to_string().as_str()),
            ("vda", "254:0")
        );
        assert_eq!(disk.activity.read_bytes, 89_234 * 512);
        assert_eq!(disk.activity.written_bytes, 61_440 * 512);
        assert_eq!(
            (disk.activity.busy_ms, disk.activity.queued_ms),
            (1500, 1300)
        );
        assert_eq!(read[2].activity.queued_ms, 11);
        assert_eq!(parse(b"").expect("no disks"), []);
        assert!(parse(b"8 0 sda 1 2 3\n").is_err());
    }

    #[test]
    fn an_interval_is_a_difference_and_a_new_boot_is_no_huge_number() {
        let read = parse(STATS).expect("a real file");
        let (small, large) = (read[2].activity, read[1].activity);
        assert_eq!(large.since(small).plus(small), large);
        assert_eq!(small.since(large).reads, 0);
    }

    #[test]
    fn device_numbers_are_read_as_they_are_written() {
        let device = DeviceNumber::parse("254:16\n").expect("valid");
        assert_eq!(DeviceNumber::parse(&device.to_string()), Some(device));
        assert_eq!(DeviceNumber::parse("254"), None);
    }

    #[test]
    fn damaged_text_is_read_or_refused() {
        endures(STATS, |text| parse(text).map(|lines| lines.len()));
    }
}
