//! The directory log of a pool: what the labels of its files do not tell of the namespace. It is a text file beside the data,
//! one record a line, written right after each commit, so that a lost namespace can be made again.
//!
//! It begins with a snapshot: all directories, and of the files of its pool those whose label is out of date. Each further
//! record has the next number of a sequence that the namespace counts in its transactions, so that a log that has missed
//! something is known by its last number. Every line carries a checksum; the last one may be torn.

use super::{DeadProperty, EntryId, TapeCopyUri};
use penstock_model::{Archival, Bytes, Checksum, NamespacePath, PoolName, Timestamp, UserName};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use uuid::Uuid;

/// The form of a log that this version writes and the newest that it reads. Version 1 did not know which files are on tape.
pub(super) const LOG_VERSION: u32 = 2;
/// The name of a pool's log.
pub(super) const DIRECTORY_LOG: &str = "directory.log";

/// One line of a directory log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(super) enum DirectoryRecord {
    /// The first line: a snapshot follows.
    Snapshot {
        version: u32,
        namespace: Uuid,
        pool: PoolName,
    },
    /// The snapshot ends; it had so many records.
    SnapshotEnd {
        records: u64,
    },
    Directory(DirectoryEntry),
    /// There is a file whose label does not tell all this.
    File(FileEntry),
    /// There is a file on tape, whether or not it is on disk, too.
    OnTape {
        file: FileEntry,
        copies: Vec<TapeCopyUri>,
    },
    /// The file with the right label has taken the place of another one.
    Published {
        id: EntryId,
        at: Timestamp,
    },
    /// An entry was given another place.
    Moved {
        id: EntryId,
        from: EntryId,
        to: EntryId,
        name: String,
        at: Timestamp,
    },
    /// A directory is gone, or a file that was on tape only.
    Removed {
        id: EntryId,
        parent: EntryId,
        at: Timestamp,
    },
    /// A file is gone from a directory; its data is there until it is no longer trash.
    Trashed {
        parent: EntryId,
        file: TrashedFile,
        /// Those on tape, as a snapshot tells them; of a file that has become trash since the records before tell them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        copies: Vec<TapeCopyUri>,
    },
    /// All properties that clients keep with an entry.
    Properties {
        id: EntryId,
        properties: Vec<DeadProperty>,
    },
    /// More checksums of a file.
    Checksums {
        id: EntryId,
        checksums: Vec<Checksum>,
    },
}

/// A directory as a log tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct DirectoryEntry {
    pub id: EntryId,
    pub parent: EntryId,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserName>,
    pub created: Timestamp,
    pub modified: Timestamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<DeadProperty>,
}

/// A visible file as a log or a label tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its identity.
    pub id: EntryId,
    /// The directory that holds it.
    pub parent: EntryId,
    pub name: String,
    pub size: Bytes,
    /// Of its data.
    pub checksums: Vec<Checksum>,
    /// Who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserName>,
    /// When it became visible.
    pub created: Timestamp,
    /// When the directory got it; the same as `created` unless it was out of sight before.
    pub at: Timestamp,
    /// What clients keep with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<DeadProperty>,
    /// Whether it goes to tape.
    #[serde(default)]
    pub archival: Archival,
}

/// A file that was removed or replaced and whose data is still there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrashedFile {
    pub file: EntryId,
    /// Where its data is.
    pub pool: PoolName,
    pub size: Bytes,
    /// Where it was. The root: not known, because an earlier version removed it.
    pub path: NamespacePath,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserName>,
    /// When it became visible.
    pub created: Timestamp,
    pub removed: Timestamp,
    /// Who removed or replaced it; `None`: nobody known, or the server itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<UserName>,
    /// Of its data.
    pub checksums: Vec<Checksum>,
    /// What clients kept with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub properties: Vec<DeadProperty>,
    /// Whether it goes to tape.
    #[serde(default)]
    pub archival: Archival,
}

impl TrashedFile {
    /// The copy on disk of a file that is on tape, whose data may go at once.
    pub(super) fn evicted(file: EntryId, pool: PoolName, size: Bytes) -> TrashedFile {
        TrashedFile {
            file,
            pool,
            size,
            path: NamespacePath::root(),
            owner: None,
            created: Timestamp(0),
            // Over its time, whatever that is.
            removed: Timestamp(0),
            by: None,
            checksums: Vec::new(),
            properties: Vec::new(),
            archival: Archival::Cached,
        }
    }

    /// No removed file: the copy on disk of one that is on tape, which is over its time.
    pub fn is_evicted(&self) -> bool {
        self.removed == Timestamp(0) && self.archival == Archival::Cached
    }
}

/// Appends one record as a line.
pub(super) fn write_line(out: &mut String, sequence: u64, record: &DirectoryRecord) {
    let json = serde_json::to_string(record).expect("plain data serialises");
    let rest = format!("{sequence} {json}");
    out.push_str(&format!("{:08x} {rest}\n", crc32c(rest.as_bytes())));
}

fn parse_line(line: &[u8]) -> Option<(u64, DirectoryRecord)> {
    let text = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (sum, rest) = text.split_once(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32c(rest.as_bytes()) {
        return None;
    }
    let (sequence, json) = rest.split_once(' ')?;
    Some((sequence.parse().ok()?, serde_json::from_str(json).ok()?))
}

/// What a log was found to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogCondition {
    /// In which form it was begun.
    pub version: u32,
    /// Whose it is; `None`: its first line cannot be read.
    pub of: Option<(Uuid, PoolName)>,
    /// The last number in it.
    pub sequence: u64,
    /// The number as of which its snapshot is.
    pub snapshot: u64,
    /// All of the snapshot is there.
    pub is_whole: bool,
    /// Lines that cannot be read, apart from a torn last one.
    pub lines_damaged: u64,
    /// The last line is torn.
    pub is_torn: bool,
    /// Numbers that are missing between two lines.
    pub numbers_missing: u64,
    pub snapshot_bytes: u64,
    pub bytes: u64,
}

impl LogCondition {
    /// It can be gone on with.
    pub(super) fn is_sound(&self) -> bool {
        self.is_complete() && !self.is_torn
    }

    /// It tells all up to its last number.
    pub(super) fn is_complete(&self) -> bool {
        self.is_whole && self.lines_damaged == 0 && self.numbers_missing == 0
    }
}

/// Reads a log and gives each readable record, with its number and whether it is one of the snapshot. A log that is not
/// there is an error of the kind `NotFound`.
pub(super) fn read_log(
    path: &Path,
    mut visit: impl FnMut(u64, bool, DirectoryRecord),
) -> io::Result<LogCondition> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut condition = LogCondition::default();
    let mut records = 0;
    let mut bad_before = 0_u64;
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        condition.bytes += line.len() as u64;
        let Some((sequence, record)) = parse_line(&line) else {
            bad_before += 1;
            continue;
        };
        condition.lines_damaged += std::mem::take(&mut bad_before);
        match record {
            DirectoryRecord::Snapshot {
                version,
                namespace,
                pool,
            } => {
                if version > LOG_VERSION {
                    let why = format!("its form {version} is newer than this program");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
                condition.version = version;
                condition.of = Some((namespace, pool));
                (condition.snapshot, condition.sequence) = (sequence, sequence);
            }
            DirectoryRecord::SnapshotEnd { records: expected } => {
                condition.is_whole = expected == records;
                condition.snapshot_bytes = condition.bytes;
            }
            record => {
                let in_snapshot = sequence <= condition.snapshot;
                records += u64::from(in_snapshot);
                if !in_snapshot {
                    let missing = sequence.saturating_sub(condition.sequence + 1);
                    condition.numbers_missing += missing;
                    condition.sequence = condition.sequence.max(sequence);
                }
                visit(sequence, in_snapshot, record);
            }
        }
    }
    // What is unreadable at the end is what a power cut leaves.
    condition.is_torn = bad_before > 0;
    condition.lines_damaged += bad_before.saturating_sub(1);
    Ok(condition)
}

/// CRC-32C (Castagnoli, RFC 3720 §B.4).
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut value = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                value = match value & 1 {
                    1 => (value >> 1) ^ 0x82F6_3B78,
                    _ => value >> 1,
                };
                bit += 1;
            }
            table[byte] = value;
            byte += 1;
        }
        table
    };
    let step = |sum: u32, byte: &u8| (sum >> 8) ^ TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize];
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(id: u64) -> DirectoryRecord {
        DirectoryRecord::Moved {
            id: EntryId(id),
            from: EntryId(1),
            to: EntryId(2),
            name: "new\nname".to_owned(),
            at: Timestamp(5),
        }
    }

    fn log(records: &[(u64, DirectoryRecord)]) -> String {
        let mut text = String::new();
        let first = DirectoryRecord::Snapshot {
            version: LOG_VERSION,
            namespace: Uuid::nil(),
            pool: PoolName::new("p"),
        };
        write_line(&mut text, 7, &first);
        write_line(&mut text, 7, &DirectoryRecord::SnapshotEnd { records: 0 });
        for (sequence, record) in records {
            write_line(&mut text, *sequence, record);
        }
        text
    }

    fn read(text: &[u8]) -> (LogCondition, Vec<u64>) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("log");
        std::fs::write(&path, text).expect("written");
        let mut seen = Vec::new();
        let condition = read_log(&path, |sequence, _, record| {
            assert_eq!(record, moved(sequence));
            seen.push(sequence);
        });
        (condition.expect("readable"), seen)
    }

    #[test]
    fn a_stored_line_reads_as_ever() {
        let mut line = String::new();
        write_line(&mut line, 8, &moved(8));
        assert_eq!(
            line,
            "14e3e910 8 {\"record\":\"moved\",\"id\":8,\"from\":1,\"to\":2,\"name\":\"new\\nname\",\"at\":5}\n"
        );
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn a_torn_end_costs_the_last_line_and_nothing_else() {
        let text = log(&[(8, moved(8)), (9, moved(9))]);
        let (condition, seen) = read(text.as_bytes());
        assert!(condition.is_sound() && condition.sequence == 9);
        assert_eq!(seen, [8, 9]);
        let (condition, seen) = read(&text.as_bytes()[..text.len() - 5]);
        assert!(!condition.is_sound() && condition.is_torn && condition.lines_damaged == 0);
        assert_eq!((seen, condition.sequence), (vec![8], 8));
    }

    #[test]
    fn damage_and_missing_numbers_are_counted_and_the_rest_is_read() {
        let text = log(&[(8, moved(8)), (9, moved(9)), (10, moved(10))]);
        let damaged = text.replacen("9 {\"record\"", "9 {\"rekord\"", 1);
        let (condition, seen) = read(damaged.as_bytes());
        assert_eq!((condition.lines_damaged, condition.numbers_missing), (1, 1));
        assert_eq!((seen, condition.is_sound()), (vec![8, 10], false));
    }
}
