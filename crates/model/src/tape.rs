//! Files on tape: where a file is, what a job wants to happen with it there, and how far a recall is.

use crate::failure::Failure;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Seconds that a staging job leaves to its tape system when it does not say: FTS's week.
pub const STAGING_SECONDS_DEFAULT: u64 = 604_800;

/// Files that one call of gfal2 may be about.
pub const GFAL_FILES_MAX: usize = 100;

/// The name that a tape system gave to a stage request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StageRequestId(String);

impl StageRequestId {
    /// As the tape system wrote it.
    pub fn new(text: impl Into<String>) -> StageRequestId {
        StageRequestId(text.into())
    }

    /// As the tape system wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StageRequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// That a job's files come from tape: how long that may take, and how long they shall stay on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staging {
    /// Seconds until a file must be on disk (`bring_online`).
    pub within_seconds: u64,
    /// Seconds that it shall stay there (`copy_pin_lifetime`). `None`: as the tape system thinks best.
    pub pin_seconds: Option<u64>,
}

impl Staging {
    /// Until a file must be on disk that waits for its tape system.
    pub fn deadline(&self, recall: &Recall) -> Timestamp {
        recall.since + Duration::from_secs(self.within_seconds)
    }
}

/// What a client wants its tape systems to be told of a file. They are objects, and pass through unread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TapeNotes {
    /// By site name, with a stage request (`staging_metadata`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<Value>,
    /// With the copy to the destination (`archive_metadata`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<Value>,
}

/// How far the way of a file from tape to disk is, and what there was before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recall {
    /// Since when it waits for its tape system.
    pub since: Timestamp,
    /// Times that the tape system failed to bring it, of those that used up a retry.
    pub failures: u32,
    /// Stage requests that it was part of.
    pub requests: u32,
    /// Why it was not brought the last time, or why the last copy failed.
    pub last: Option<Failure>,
    /// Copies started before.
    pub attempts: u32,
    /// Copies that used up a retry.
    pub copy_failures: u32,
    /// See [`crate::TransferState::Submitted`].
    pub unsettled: bool,
}

impl Recall {
    /// As it begins.
    pub fn begun(at: Timestamp) -> Recall {
        Recall {
            since: at,
            failures: 0,
            requests: 0,
            last: None,
            attempts: 0,
            copy_failures: 0,
            unsettled: false,
        }
    }
}

/// How far one file of a stage request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileProgress {
    /// The tape system is at it.
    Pending,
    /// It can be read.
    OnDisk,
    /// It will not come; why, in the words of its tape system.
    Failed(String),
    /// It will not come, for a reason that is understood.
    Refused(Failure),
}

/// Where a file of a storage element with tape is. Names as in the WLCG Tape REST API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Locality {
    /// On disk, not on tape (yet).
    Disk,
    /// On tape: it has to be brought to disk before it can be read.
    Tape,
    /// On both.
    DiskAndTape,
    /// Known, and nowhere.
    Lost,
    /// It has no bytes, so it is nowhere.
    None,
    /// Where it is cannot be reached at the moment.
    Unavailable,
}

/// Whether a file goes to tape, and whether it is there. The words are dCache's for copies on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Archival {
    /// Its path asks for no copy on tape.
    #[default]
    DiskOnly,
    /// It is to be put on tape, and its copy on disk must stay until it is there.
    Precious,
    /// It is on tape. Its copy on disk, if there is one, may go.
    Cached,
}

impl Archival {
    /// Every one.
    pub const ALL: [Archival; 3] = [Archival::DiskOnly, Archival::Precious, Archival::Cached];

    /// A file of some bytes is nowhere else than here: on disk when `is_on_disk`, and on tape as this tells.
    pub fn locality(self, is_on_disk: bool) -> Locality {
        match (self, is_on_disk) {
            (Archival::Cached, true) => Locality::DiskAndTape,
            (Archival::Cached, false) => Locality::Tape,
            (Archival::DiskOnly | Archival::Precious, true) => Locality::Disk,
            (Archival::DiskOnly | Archival::Precious, false) => Locality::Lost,
        }
    }
}

/// Where a tape system says that a file is, or what it says instead.
pub type ToldPlace = Result<Locality, String>;

impl Locality {
    /// Every one.
    pub const ALL: [Locality; 6] = [
        Locality::Disk,
        Locality::Tape,
        Locality::DiskAndTape,
        Locality::Lost,
        Locality::None,
        Locality::Unavailable,
    ];

    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Locality::Disk => "DISK",
            Locality::Tape => "TAPE",
            Locality::DiskAndTape => "DISK_AND_TAPE",
            Locality::Lost => "LOST",
            Locality::None => "NONE",
            Locality::Unavailable => "UNAVAILABLE",
        }
    }

    /// As SRM and the servers that came from it call it.
    pub const fn srm_name(self) -> &'static str {
        match self {
            Locality::Disk => "ONLINE",
            Locality::Tape => "NEARLINE",
            Locality::DiskAndTape => "ONLINE_AND_NEARLINE",
            Locality::Lost => "LOST",
            Locality::None => "NONE",
            Locality::Unavailable => "UNAVAILABLE",
        }
    }

    /// The locality of that name.
    pub fn parse(name: &str) -> Option<Locality> {
        Locality::ALL.into_iter().find(|one| one.name() == name)
    }

    /// The locality that SRM gives this name.
    pub fn parse_srm(name: &str) -> Option<Locality> {
        Locality::ALL.into_iter().find(|one| one.srm_name() == name)
    }

    /// Whether a copy is on tape.
    pub fn is_on_tape(self) -> bool {
        match self {
            Locality::Tape | Locality::DiskAndTape => true,
            Locality::Disk | Locality::Lost | Locality::None | Locality::Unavailable => false,
        }
    }

    /// Whether a copy is on disk.
    pub fn is_on_disk(self) -> bool {
        match self {
            Locality::Disk | Locality::DiskAndTape => true,
            Locality::Tape | Locality::Lost | Locality::None | Locality::Unavailable => false,
        }
    }
}

impl fmt::Display for Locality {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// One file of a stage request.
#[derive(Debug, Clone, PartialEq)]
pub struct StageFile {
    /// Its path at the storage element.
    pub path: String,
    /// Seconds for which it shall stay on disk.
    pub pin_seconds: Option<u64>,
    /// Seconds for which anybody waits for it.
    pub within_seconds: u64,
    /// What sites are told of it, by their names.
    pub targeted_metadata: Option<Value>,
}

/// The path by which a tape system knows the file of a URL: decoded, with single slashes.
pub fn path_of(url: &url::Url) -> String {
    let decoded = percent_decoded(url.path());
    with_single_slashes(&decoded)
}

/// With single slashes, as servers write paths back.
pub fn with_single_slashes(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.fold(String::new(), |path, part| path + "/" + part)
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |digit: u8| char::from(digit).to_digit(16);
        let pair = match tail {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match pair {
            Some((high, low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    // A name that is not UTF-8 cannot be written in JSON; as it stands in the URL it is at least told.
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}
