//! How many transfers and connections the service finds best for a link or a storage element, and why.

use crate::ids::{LinkId, StorageId};
use crate::units::{Bytes, Rate, Slots, Timestamp};
use serde::{Deserialize, Serialize};

/// Version of the stored form of [`TuningDecision`].
pub const TUNING_VERSION: u32 = 1;

/// Who decides how many of the transfers that operators allow run at once.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum TuningPolicy {
    /// The service finds out what moves most.
    #[default]
    Measured,
    /// FTS3's published rules, once a minute.
    Fts3,
    /// Nobody: as many as operators allow.
    Fixed,
}

impl TuningPolicy {
    pub const ALL: [TuningPolicy; 3] = [
        TuningPolicy::Measured,
        TuningPolicy::Fts3,
        TuningPolicy::Fixed,
    ];

    /// The word in configuration files, records and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            TuningPolicy::Measured => "measured",
            TuningPolicy::Fts3 => "fts3",
            TuningPolicy::Fixed => "fixed",
        }
    }

    /// The policy of this name.
    pub fn parse(name: &str) -> Option<TuningPolicy> {
        let mut all = TuningPolicy::ALL.into_iter();
        all.find(|policy| policy.name() == name)
    }
}

/// How far tuning may go on a link: FTS's `optimizer_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TuningMode {
    /// 0: not at all.
    Disabled,
    /// 1: never more than wait; one connection per copy.
    Conservative,
    /// 2.
    Normal,
    /// 3: also for little gain.
    Aggressive,
}

impl TuningMode {
    /// FTS's number.
    pub fn number(self) -> u8 {
        match self {
            TuningMode::Disabled => 0,
            TuningMode::Conservative => 1,
            TuningMode::Normal => 2,
            TuningMode::Aggressive => 3,
        }
    }

    /// The mode of FTS's number.
    pub fn from_number(number: u64) -> Option<TuningMode> {
        match number {
            0 => Some(TuningMode::Disabled),
            1 => Some(TuningMode::Conservative),
            2 => Some(TuningMode::Normal),
            3 => Some(TuningMode::Aggressive),
            _ => None,
        }
    }
}

/// Where the service may find fewer slots better than operators allow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub enum TunedPlace {
    Link(LinkId),
    /// Out of a storage element, over all its links.
    Outbound {
        storage: StorageId,
    },
    /// Into a storage element, over all its links.
    Inbound {
        storage: StorageId,
    },
}

/// What a number of transfers at once has given.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TrialResult {
    /// How many ran, on average.
    pub active: f64,
    /// The natural logarithm of work per second: bytes, and a megabyte for each file.
    pub ln: f64,
    /// Its standard error.
    pub error: f64,
}

impl TrialResult {
    /// Work per second.
    pub fn work(self) -> f64 {
        self.ln.exp()
    }
}

/// Why a number was changed, or kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum TuneReason {
    /// Nothing is known yet.
    Begins,
    /// It continues with what was found before.
    Remembers,
    /// The larger number is worth it.
    Pays {
        /// At the smaller number.
        before: TrialResult,
        /// At the larger one.
        now: TrialResult,
    },
    /// The larger number is not worth it.
    DoesNotPay {
        /// At the smaller number.
        before: TrialResult,
        /// At the larger one.
        now: TrialResult,
    },
    /// The best of what was tried is kept.
    Keeps {
        /// What it gave.
        best: TrialResult,
    },
    /// A little more or less is tried, because things may have changed.
    Probes,
    /// The rate is another than it was at the same number.
    Changed {
        /// Then.
        was: TrialResult,
        now: TrialResult,
    },
    /// A storage element said that it is overloaded.
    PushedBack,
    /// Of what runs, so many wait for their turn at a storage element.
    QueuedThere { waiting: u32 },
    /// Somebody else changed what is allowed.
    Bounded,
    /// Several links compete for a storage element, and this one gets its part of what the storage element does best.
    SharesStorage {
        /// Links that compete.
        links: u32,
    },
    /// It runs what waits, and no more.
    FollowsQueue,
    /// Connections are held back by their windows, and nothing is lost on the way.
    WindowLimited {
        /// Of the time in which there was something to send, in percent.
        percent: u8,
    },
    /// More connections did not help.
    StreamsDoNotHelp,
    /// Segments get lost: more connections would lose more.
    SegmentsLost { per_million: u32 },
    /// By FTS3's rules.
    Fts3(Fts3Reason),
}

/// FTS3's reasons, in the order in which its rules are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fts3Reason {
    /// There is no value yet.
    NoInformation,
    /// Fewer succeed.
    BadEfficiency,
    /// Fewer than wanted succeed, but more than before.
    Improving,
    /// Nothing moved.
    NoThroughput,
    /// Fewer wait than may run.
    QueueEmptying,
    /// The rate fell with the size of files.
    SmallerFiles,
    /// The rate fell by an order of magnitude.
    WorseThroughput,
    /// The rate fell a little.
    SmallDeterioration,
    /// All is well.
    Good,
}

/// What a decision went by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TuningSeen {
    /// Bytes per second, lately.
    pub rate: Rate,
    /// The same, smoothed as FTS does.
    pub rate_smoothed: Rate,
    /// Files that arrived per second, lately.
    pub files_per_second: f64,
    /// Running.
    pub active: Slots,
    /// Waiting and allowed to start.
    pub queued: u64,
    /// Percent of the attempts that ended well; failures that no retry helps do not count.
    pub success_percent: f64,
    /// Attempts that failed and are tried again.
    pub retried: u64,
    /// Seconds that a transfer takes for a megabyte of work, lately: latency, whatever the sizes of files are.
    pub seconds_per_megabyte: Option<f64>,
    /// Mean size of the files that arrived.
    pub size_mean: Bytes,
    /// Its standard deviation.
    pub size_deviation: Bytes,
    /// Seconds that a transfer takes, on average.
    pub duration_mean: f64,
    /// How often storage elements have said that they are overloaded.
    pub pushed_back: u32,
    /// Running transfers that wait for their turn at a storage element.
    pub queued_there: u32,
}

/// One number that might have been chosen, and what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TuningCandidate {
    /// The number.
    pub slots: Slots,
    /// What it gave, work per second.
    pub work: f64,
    /// The standard error of its logarithm.
    pub error: f64,
    /// What it is worth: the logarithm of the work, less the cost of the number.
    pub utility: f64,
}

/// A number that holds from now on, with everything that it was decided by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuningDecision {
    pub at: Timestamp,
    pub place: TunedPlace,
    /// By which rules.
    pub policy: TuningPolicy,
    /// What held before.
    pub slots_before: Slots,
    /// Transfers at once.
    pub slots: Slots,
    /// Connections of one copy; `None`: as its client or the storage element says.
    pub streams: Option<u32>,
    pub seen: TuningSeen,
    /// What was compared.
    pub candidates: Vec<TuningCandidate>,
    pub because: TuneReason,
}
