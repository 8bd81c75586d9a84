//! The answer: what took from the rate, by how much, how that is known, and what would help.

use super::dimension::Carrier;
use super::signals::{Change, DataPathStage, FailureGroup, Maintenance};
use super::split::{Factors, Part};
use penstock_model::{LinkId, Phase, Timestamp};
use serde::{Deserialize, Serialize};

/// Causes that are named; what others took is in the unexplained part.
pub const CAUSES_MAX: usize = 3;
/// Facts of hosts that are told beside the causes.
pub const FACTS_MAX: usize = 3;
/// A cause with a smaller part is not named.
pub const SHARE_MIN: Permille = Permille(50);

/// A part of a whole, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct Permille(pub u16);

impl Permille {
    /// The whole.
    pub const WHOLE: Permille = Permille(1000);

    /// Of a fraction, rounded.
    pub fn of(part: f64) -> Permille {
        Permille((part.clamp(0.0, 1.0) * 1000.0).round() as u16)
    }
}

macro_rules! causes {
    ($($name:ident $code:literal $doc:literal,)*) => {
        /// Why a rate is low.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Cause { $(#[doc = $doc] $name,)* }

        impl Cause {
            /// All of them.
            pub const ALL: &'static [Cause] = &[$(Cause::$name,)*];

            /// The short code.
            pub fn code(self) -> &'static str {
                match self { $(Cause::$name => $code,)* }
            }
        }
    };
}

causes! {
    ControlPlane "CTRL" "The transfer service starts nothing on any link.",
    NotFed "FEED" "The service leaves slots free although files are queued.",
    FewerSubmissions "GEN" "Fewer files were submitted.",
    ServiceShare "SHARE" "Other links use the slots of the service.",
    SlotLimit "SLOTS" "Fewer transfers may run at once.",
    RateLimit "RATE" "Operators limited the rate.",
    Drain "DRAIN" "Operators drained or banned a part.",
    SourceErrors "SRCERR" "Attempts fail at the source.",
    DestinationErrors "DSTERR" "Attempts fail at the destination.",
    StalledMover "MOVER" "Movers hold slots and move nothing.",
    PoolFull "FULL" "Some pools are full.",
    OutOfSpace "SPACE" "The destination has no space left.",
    ServerSkew "SKEW" "Few servers do all the work.",
    Crash "CRASH" "A server is down.",
    TapeWriteStopped "HSMSTUCK" "Nothing is written to tape.",
    TapeBufferFull "HSMFULL" "The buffer of the tape system is full.",
    DatabaseLoad "DBLOAD" "A database or its disk is overloaded.",
    UndersizedHost "HOST" "A server is short of memory, processors or network.",
    SmallFiles "SMALLF" "Files are smaller.",
    NamespaceThreads "NSTHR" "All threads of the namespace are busy.",
    BatchDelay "BATCHQ" "Requests wait in a batch system.",
    TooManyStreams "STREAMS" "More connections per file make them slower.",
    TcpWindow "TCPWIN" "Windows of connections are too small for the way.",
    WindowUnopened "TCPOPEN" "Windows of connections stay small although the buffers may grow.",
    IdleStreams "TCPIDLE" "Some connections of each file have nothing to send.",
    NetworkPath "NETPATH" "The way loses packets, is congested or became longer.",
    SiteNetwork "NETSITE" "The network of a site limits all its links.",
    RandomWrites "RANDIO" "Files are written out of order.",
    Relay "RELAY" "Bytes take another hop inside the site.",
    DiskController "RAID" "A disk array does less at full use.",
    Multipath "MPATH" "A disk array is reached over a wrong path.",
    StartBurst "BROWN" "Too many transfers began at once.",
    TapeDrives "DRIVE" "All tape drives are busy.",
    ScatteredFiles "SCATTER" "Files are spread over many tapes.",
    AggregateRead "AGGREAD" "Drives read more than was asked for.",
    CompetingLoad "LOAD" "Other links or clients use the storage or the way.",
    DescriptorLeak "FDLEAK" "A server runs out of file descriptors.",
    Accounting "ACCT" "Storage and catalogue count differently.",
}

/// What was measured. Its words and its unit are in `wording`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    MovedBytes,
    Active,
    Limit,
    Queued,
    ServiceSlots,
    Submissions,
    Dispatches,
    DatabaseLatency,
    ApiProbe,
    FailedAttempts,
    FinishedFiles,
    FileSize,
    Overhead,
    StageTimes,
    Streams,
    TcpTimes,
    TcpWindow,
    TcpBuffer,
    TcpIdle,
    Retransmissions,
    OutOfOrder,
    RoundTrip,
    ServerBytes,
    ServersUsed,
    ServerUp,
    PoolFree,
    MoverProgress,
    StalledMovers,
    TapeWritten,
    TapeUnwritten,
    TapeBuffer,
    IoPressure,
    IoStall,
    MemoryPressure,
    Processors,
    Interface,
    NamespaceLatency,
    NamespaceThreads,
    NamespaceQueue,
    BatchWait,
    RandomWrites,
    RelayedBytes,
    DeviceUse,
    DeviceBytes,
    DevicePaths,
    OtherPathBytes,
    /// Part of the time of copies in which a disk of the source is waited for.
    ReadWait,
    ServerStarts,
    ServerTransfers,
    TapeDrives,
    Recalls,
    /// How long the file has waited for tape that waits longest.
    RecallAge,
    FilesPerMount,
    ReadAmplification,
    Descriptors,
    /// How many may be open.
    DescriptorLimit,
    AccountingDifference,
    OtherLinksBytes,
    ClientsBytes,
    FileProfile,
}

/// How a cause is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "evidence")]
pub enum Evidence {
    /// A value, and what it is usually.
    Value {
        /// What was measured.
        measure: Measure,
        /// Of which server, pool or storage element.
        place: Option<String>,
        /// At the usual rate; `None`: there was no such time, or it is not known.
        usual: Option<f64>,
        /// At the low rate.
        value: f64,
    },
    /// A setting changed.
    Change(Change),
    /// Planned work went on.
    Maintenance(Maintenance),
    /// It comes again and again.
    Recurrence {
        /// Each so many seconds.
        period_seconds: u64,
    },
    /// Failures of one kind.
    Failures {
        /// As the failure text says, without particulars.
        fingerprint: String,
        /// Attempts.
        attempts: u64,
    },
    /// A part of the copies is the slowest.
    Bottleneck {
        /// Which.
        stage: DataPathStage,
    },
    /// Links of the same service or site that fell, too.
    Links {
        /// Of which site's storage element; `None`: of the service.
        place: Option<String>,
        /// So many.
        fallen: usize,
        /// Of so many.
        of: usize,
    },
}

/// One cause of a low rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NamedCause {
    /// Which.
    pub cause: Cause,
    /// Its part of all that took from the rate.
    pub share: Permille,
    /// How it is known.
    pub evidence: Vec<Evidence>,
    /// What came of it, in order.
    pub followers: Vec<Cause>,
    /// The rate without it, in bytes per second.
    pub rate_without: f64,
}

/// The place of a cause in an answer; lower is first. Fields compare top to bottom.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CauseRank {
    /// 1000 less the share, so that the largest is first.
    pub rest: u16,
    /// What is equal otherwise has the order of the table.
    pub cause: Cause,
}

/// Failures of one kind in the window: one line, however many attempts they hit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureTally {
    /// The failure's text without particulars.
    pub fingerprint: String,
    /// When in an attempt.
    pub phase: Phase,
    /// Attempts.
    pub attempts: u64,
}

impl FailureTally {
    pub(super) fn new(group: &FailureGroup, attempts: u64) -> FailureTally {
        FailureTally {
            fingerprint: group.fingerprint.clone(),
            phase: group.phase,
            attempts,
        }
    }
}

/// What a rate did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateChangeKind {
    /// It fell although there was work.
    Drop,
    /// It rose beyond what was usual.
    Rise,
    /// There was less work: nothing was queued.
    Lull,
}

/// Why a rate was low in a window, or higher than before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// Of these links together.
    pub links: Vec<LinkId>,
    /// Where it began.
    pub from: Timestamp,
    /// Where it ended.
    pub to: Timestamp,
    /// What the rate did. Of a rise, what is named held it down before.
    pub kind: RateChangeKind,
    /// The higher rate and its factors.
    pub usual: Factors,
    /// The lower one.
    pub low: Factors,
    /// What the difference is made of, exactly.
    pub parts: Vec<Part>,
    /// The slowest part of the copies in the low stretch.
    pub stage: Option<DataPathStage>,
    /// Where the difference lies.
    pub carriers: Vec<Carrier>,
    /// At most [`CAUSES_MAX`], the largest first.
    pub causes: Vec<NamedCause>,
    /// What no rule explains. With the causes' shares it adds up to the whole.
    pub unexplained: Permille,
    /// What was not measured and might explain it.
    pub missing: Vec<Measure>,
    /// Facts of hosts at both ends that changed about when it began, and are no evidence of a cause. At most [`FACTS_MAX`].
    pub facts: Vec<Change>,
    /// What is wrong as well and takes nothing from the rate, as far as is known.
    pub remarks: Vec<(Cause, Vec<Evidence>)>,
    /// It comes again each so many seconds.
    pub period_seconds: Option<u64>,
    /// The failures of the window, by kind, the most frequent first.
    pub failures: Vec<FailureTally>,
}

impl Explanation {
    /// By which part of the low rate the rate would be higher without a cause; `None`: nothing moved.
    pub fn gain(&self, named: &NamedCause) -> Option<f64> {
        (self.low.rate > 0.0).then(|| named.rate_without / self.low.rate - 1.0)
    }
}
