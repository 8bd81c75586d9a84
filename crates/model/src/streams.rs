//! How many connections carried a file: what was asked for, what was in effect, and why the two differ.

use crate::transfer::CopyMode;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// The connections of one copy, as its mover used them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamUse {
    /// How many the client asked for. `None`: it left that to the storage element.
    pub asked: Option<u32>,
    /// How many carried file data.
    pub used: u32,
    /// Bytes of file data that the mover might hold in memory.
    pub buffer: Bytes,
    /// Pieces written to the disk. 0: the mover wrote none, or did not tell.
    pub writes: u64,
    /// Of these, pieces that did not begin where the one before ended.
    pub writes_elsewhere: u64,
    /// Parts of the file that were asked for once more, because their connection broke or stood still.
    pub ranges_again: u64,
    /// Why `used` is what it is, in the order in which it was found.
    pub because: Vec<StreamsReason>,
}

/// Why a copy used so many connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamsReason {
    /// The client asked for so many.
    AsAsked,
    /// The client left it open, and the transfer service asked for so many because they were found to help.
    Tuned,
    /// The client left it to the storage element.
    LeftToUs,
    /// The storage element's limit.
    SiteLimit,
    /// The sending side pushes, which is one request.
    Push,
    /// The file is too small to be cut into more parts.
    SmallFile,
    /// The source gives whole files only.
    NoRanges,
    /// The source does not tell the file's size.
    SizeUnknown,
    /// The source tells neither a version nor a checksum, so parts of two versions could be mixed.
    NoVersion,
    /// The storage element's memory for parts of files is in use.
    NoMemory,
    /// The source refused or did not answer further connections.
    SourceBusy,
    /// The bytes passed through the transfer service.
    ThroughService,
}

impl StreamsReason {
    const ALL: [StreamsReason; 12] = [
        StreamsReason::AsAsked,
        StreamsReason::Tuned,
        StreamsReason::LeftToUs,
        StreamsReason::SiteLimit,
        StreamsReason::Push,
        StreamsReason::SmallFile,
        StreamsReason::NoRanges,
        StreamsReason::SizeUnknown,
        StreamsReason::NoVersion,
        StreamsReason::NoMemory,
        StreamsReason::SourceBusy,
        StreamsReason::ThroughService,
    ];

    /// The word in records and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            StreamsReason::AsAsked => "as_asked",
            StreamsReason::Tuned => "tuned",
            StreamsReason::LeftToUs => "left_to_us",
            StreamsReason::SiteLimit => "site_limit",
            StreamsReason::Push => "push",
            StreamsReason::SmallFile => "small_file",
            StreamsReason::NoRanges => "no_ranges",
            StreamsReason::SizeUnknown => "size_unknown",
            StreamsReason::NoVersion => "no_version",
            StreamsReason::NoMemory => "no_memory",
            StreamsReason::SourceBusy => "source_busy",
            StreamsReason::ThroughService => "through_service",
        }
    }

    /// The reason with this name; `None` for a word of a later version.
    pub fn parse(name: &str) -> Option<StreamsReason> {
        StreamsReason::ALL
            .into_iter()
            .find(|reason| reason.name() == name)
    }
}

/// A way of copying that was tried before the one that worked, and was not offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayNotOffered {
    /// Which way.
    pub mode: CopyMode,
    /// What the storage element said, in one line.
    pub why: String,
}
