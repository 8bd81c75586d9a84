//! What is asked of a library: files to be read from tape, and files to be put on tape.

use crate::data_set::DataSet;
use crate::recall::RecallFile;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The label of a cartridge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TapeName(pub Arc<str>);

/// A drive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DriveName(pub Arc<str>);

/// A library.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LibraryName(pub Arc<str>);

/// Which library it is, whatever its name: it has it from when it was set up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LibraryId(pub Arc<str>);

/// A VO.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VoName(pub Arc<str>);

/// Files that are written to tapes of their own: those of a VO, a data set, a size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FamilyName(pub Arc<str>);

/// A file, by the number that the namespace has given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId(pub u64);

/// A request, by a number that is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// What a transfer is for, in a VO's own words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ActivityName(pub Arc<str>);

/// The data challenge that a transfer is part of, as its client names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChallengeName(pub Arc<str>);

/// Where a file lies on a tape. Its address is begin and size: two files may begin at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeCopy {
    pub tape: TapeName,
    /// The first byte of the file itself, also when it lies in an aggregate.
    pub begin_bytes: u64,
    /// The aggregate that it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<AggregateExtent>,
}

impl TapeCopy {
    /// Of a file that lies by itself.
    pub fn alone(tape: TapeName, begin_bytes: u64) -> TapeCopy {
        TapeCopy {
            tape,
            begin_bytes,
            aggregate: None,
        }
    }

    /// Where the file begins in its aggregate, if it lies in one.
    pub fn offset_bytes(&self) -> Option<u64> {
        let aggregate = self.aggregate?;
        self.begin_bytes.checked_sub(aggregate.begin_bytes)
    }
}

/// Where an aggregate lies on its tape, its index included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AggregateExtent {
    pub begin_bytes: u64,
    pub size_bytes: u64,
}

/// The address of a file on the tape that is spoken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePlace {
    pub file: FileId,
    pub begin_bytes: u64,
    pub size_bytes: u64,
}

impl FilePlace {
    /// The byte behind its last one.
    pub(crate) fn end_bytes(self) -> u64 {
        self.begin_bytes.saturating_add(self.size_bytes)
    }

    pub(crate) fn to_recall(self) -> RecallFile {
        RecallFile {
            name: String::new(),
            begin_bytes: self.begin_bytes,
            size_bytes: self.size_bytes,
            requests: 1,
        }
    }
}

/// Who asks, until when, and how urgently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    pub vo: VoName,
    /// Higher goes first.
    pub priority: u8,
    /// When the file has to be on its way.
    pub deadline_ns: Option<i64>,
    /// A request that is not renewed by then is given up.
    pub lease_ns: i64,
}

/// A file is to be read from tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecallRequest {
    pub request: RequestId,
    pub file: FileId,
    pub size_bytes: u64,
    /// All copies, the preferred one first.
    pub copies: Vec<TapeCopy>,
    pub asker: Asker,
    /// For accounting.
    #[serde(default)]
    pub activity: Option<ActivityName>,
    #[serde(default)]
    pub challenge: Option<ChallengeName>,
    #[serde(default)]
    pub purpose: ReadPurpose,
}

/// What a file is read for. What no user waits for is background: it takes few drives, and none while it is held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadPurpose {
    #[default]
    Users,
    /// It is read and compared, and goes nowhere.
    Verification,
    /// It is to be written to another tape.
    Repack,
}

/// A file is to be put on tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveRequest {
    pub request: RequestId,
    pub file: FileId,
    pub size_bytes: u64,
    pub family: FamilyName,
    pub asker: Asker,
    #[serde(default)]
    pub wishes: ArchiveWishes,
}

/// How a file is to be put on tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveWishes {
    /// Each in another library; 0 is taken as 1.
    pub copies: u32,
    /// Whether it is written together with other small files of its family, as one object.
    pub is_packed: bool,
    /// Files that it should lie beside.
    pub data_set: Option<DataSet>,
    /// For accounting.
    pub activity: Option<ActivityName>,
    #[serde(default)]
    pub challenge: Option<ChallengeName>,
    /// Nobody waits for it: it was on tape before.
    #[serde(default)]
    pub is_background: bool,
    /// Libraries that have another copy of it, and take no second one.
    #[serde(default)]
    pub not_in: BTreeSet<LibraryName>,
}

impl Default for ArchiveWishes {
    /// One copy, by itself.
    fn default() -> ArchiveWishes {
        ArchiveWishes {
            copies: 1,
            is_packed: false,
            data_set: None,
            activity: None,
            challenge: None,
            is_background: false,
            not_in: BTreeSet::new(),
        }
    }
}

/// What an error is an error of. Who is not concerned goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TapeErrorScope {
    /// One place on one tape.
    File,
    /// All of a tape.
    Tape,
    /// A drive, whatever tape is in it.
    Drive,
    /// A library: its robot, its control, the system behind it.
    Library,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestOutcome {
    /// The file has been read.
    Recalled,
    /// The copy that was to be verified has been read, and is as it was written.
    Verified,
    /// The file is on tape in all copies that were asked for: the syncs that cover them have returned.
    #[serde(alias = "ArchivedCopies")]
    Archived(#[serde(deserialize_with = "one_or_more")] Vec<TapeCopy>),
    /// No copy is left that can be read; this was the last error.
    NoCopyLeft(TapeErrorScope),
    /// None of its tapes is known and in use.
    NoTape,
    /// The disk could not take or give it then: it may be asked for again.
    NotTaken,
    /// Whoever asked no longer wants it.
    Canceled,
    /// Its lease was not renewed.
    Expired,
}

/// Records of before have a single copy by itself.
fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<TapeCopy>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Copies {
        One(TapeCopy),
        More(Vec<TapeCopy>),
    }
    Ok(match Copies::deserialize(from)? {
        Copies::One(copy) => vec![copy],
        Copies::More(copies) => copies,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_of_before_are_read() {
        let copy = TapeCopy::alone(TapeName("t".into()), 5);
        let one = r#"{"Archived":{"tape":"t","begin_bytes":5}}"#;
        let more =
            r#"{"ArchivedCopies":[{"tape":"t","begin_bytes":5},{"tape":"t","begin_bytes":5}]}"#;
        let read = |text| serde_json::from_str::<RequestOutcome>(text).expect("an outcome");
        assert_eq!(read(one), RequestOutcome::Archived(vec![copy.clone()]));
        let both = RequestOutcome::Archived(vec![copy.clone(), copy]);
        assert_eq!(read(more), both);
        let text = serde_json::to_string(&both).expect("plain data");
        assert_eq!(read(&text), both);
    }
}
