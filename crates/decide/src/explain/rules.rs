//! One rule for each cause, as a table: what it needs, which factors it lowers, its test, and what comes of it.
//!
//! A rule whose inputs were not measured is not tested; its inputs are told as missing. Thresholds are those of the
//! field, named where they are used.

mod host;
mod movers;
mod network;
mod service;
mod storage;
mod tape;

use super::answer::{Cause, Evidence, Measure as M};
use super::rule_input::RuleInput;
use super::split::Factor as F;

/// What a test found.
pub struct Finding {
    /// The part of the fall of the rule's factors that it makes, 0 to 1.
    pub explains: f64,
    /// How that is known, the strongest first.
    pub evidence: Vec<Evidence>,
}

impl Finding {
    /// It makes all of it.
    pub(super) fn whole(evidence: Vec<Evidence>) -> Option<Finding> {
        Some(Finding {
            explains: 1.0,
            evidence,
        })
    }
}

pub struct Rule {
    /// What it finds.
    pub cause: Cause,
    /// Its inputs: of each group at least one must be known.
    pub needs: &'static [&'static [M]],
    /// The factors that it lowers; none: it is told as a remark.
    pub factors: &'static [F],
    /// What may come of it, and is then not a cause of its own.
    pub leads_to: &'static [Cause],
    pub test: fn(&RuleInput<'_>) -> Option<Finding>,
}

const FILL: &[Cause] = &[
    Cause::PoolFull,
    Cause::OutOfSpace,
    Cause::Drain,
    Cause::ServerSkew,
    Cause::DestinationErrors,
];
const RATE: &[F] = &[F::StageRate];
const STORAGE: &[F] = &[F::StageRate, F::MovingShare, F::Fed, F::Success];
/// What suffers when files wait for few servers or pools.
const QUEUES: &[F] = &[F::StageRate, F::MovingShare];
const OPERATIONS: &[F] = &[F::MovingShare, F::Fed];
/// A latency of so many times the usual one is an overload.
const LATENCY_RATIO_MIN: f64 = 3.0;
/// Processors, interfaces, disks and threads are full from here on.
const USE_SHARE_MIN: f64 = 0.95;

/// All rules. Of two that explain the same fall as well, the earlier one is named.
pub const RULES: &[Rule] = &[
    Rule {
        cause: Cause::ControlPlane,
        needs: &[&[M::Dispatches, M::ApiProbe, M::FileProfile], &[M::Queued]],
        factors: &[F::Fed],
        leads_to: &[Cause::NotFed, Cause::ServiceShare],
        test: service::control_plane,
    },
    Rule {
        cause: Cause::DatabaseLoad,
        needs: &[&[M::DatabaseLatency, M::NamespaceLatency]],
        factors: STORAGE,
        leads_to: &[
            Cause::UndersizedHost,
            Cause::NotFed,
            Cause::ControlPlane,
            Cause::NamespaceThreads,
        ],
        test: host::database_load,
    },
    Rule {
        cause: Cause::ServiceShare,
        needs: &[&[M::ServiceSlots], &[M::Active], &[M::Queued]],
        factors: &[F::Fed],
        leads_to: &[],
        test: service::service_share,
    },
    Rule {
        cause: Cause::Drain,
        needs: &[],
        factors: &[F::Limit, F::Fed, F::StageRate],
        leads_to: &[
            Cause::ControlPlane,
            Cause::NotFed,
            Cause::ServerSkew,
            Cause::Crash,
        ],
        test: service::drain,
    },
    Rule {
        cause: Cause::RateLimit,
        needs: &[],
        factors: &[F::Limit, F::Fed, F::StageRate],
        leads_to: &[Cause::NotFed, Cause::SlotLimit],
        test: service::rate_limit,
    },
    Rule {
        cause: Cause::SourceErrors,
        needs: &[&[M::FinishedFiles], &[M::FailedAttempts]],
        factors: &[F::Success, F::Fed, F::MovingShare],
        leads_to: &[Cause::NotFed],
        test: service::source_errors,
    },
    Rule {
        cause: Cause::OutOfSpace,
        needs: &[&[M::PoolFree, M::FailedAttempts]],
        factors: STORAGE,
        leads_to: &[Cause::DestinationErrors, Cause::NotFed, Cause::PoolFull],
        test: storage::out_of_space,
    },
    Rule {
        cause: Cause::DestinationErrors,
        needs: &[&[M::FinishedFiles], &[M::FailedAttempts]],
        factors: &[F::Success, F::Fed, F::MovingShare],
        leads_to: &[Cause::NotFed],
        test: service::destination_errors,
    },
    Rule {
        cause: Cause::NotFed,
        needs: &[&[M::Active], &[M::Limit], &[M::Queued]],
        factors: &[F::Fed],
        leads_to: &[],
        test: service::not_fed,
    },
    Rule {
        cause: Cause::SlotLimit,
        needs: &[&[M::Limit]],
        factors: &[F::Limit, F::Fed],
        leads_to: &[],
        test: service::slot_limit,
    },
    Rule {
        cause: Cause::TapeBufferFull,
        needs: &[&[M::TapeBuffer]],
        factors: STORAGE,
        leads_to: FILL,
        test: tape::buffer_full,
    },
    Rule {
        cause: Cause::TapeWriteStopped,
        needs: &[&[M::TapeWritten], &[M::TapeUnwritten]],
        factors: STORAGE,
        leads_to: FILL,
        test: tape::write_stopped,
    },
    Rule {
        cause: Cause::TapeDrives,
        needs: &[&[M::TapeDrives], &[M::Recalls]],
        factors: &[F::Fed, F::StageRate],
        leads_to: &[Cause::FewerSubmissions],
        test: tape::drives,
    },
    Rule {
        cause: Cause::ScatteredFiles,
        needs: &[&[M::FilesPerMount], &[M::Recalls]],
        factors: &[F::Fed, F::StageRate],
        leads_to: &[Cause::TapeDrives, Cause::FewerSubmissions],
        test: tape::scattered_files,
    },
    Rule {
        cause: Cause::AggregateRead,
        needs: &[&[M::ReadAmplification], &[M::Recalls]],
        factors: &[F::Fed, F::StageRate],
        leads_to: &[Cause::TapeDrives, Cause::FewerSubmissions],
        test: tape::aggregate_read,
    },
    Rule {
        cause: Cause::FewerSubmissions,
        needs: &[&[M::Queued]],
        factors: &[F::Fed],
        leads_to: &[],
        test: service::fewer_submissions,
    },
    Rule {
        cause: Cause::StalledMover,
        needs: &[&[M::MoverProgress, M::Active]],
        factors: STORAGE,
        leads_to: &[Cause::PoolFull, Cause::ServerSkew, Cause::NotFed],
        test: movers::stalled_mover,
    },
    Rule {
        cause: Cause::Crash,
        needs: &[&[M::ServerUp, M::FailedAttempts]],
        factors: STORAGE,
        leads_to: &[
            Cause::StalledMover,
            Cause::ServerSkew,
            Cause::DestinationErrors,
            Cause::SourceErrors,
        ],
        test: storage::crash,
    },
    Rule {
        cause: Cause::PoolFull,
        needs: &[&[M::PoolFree]],
        factors: STORAGE,
        leads_to: &[Cause::ServerSkew],
        test: storage::pool_full,
    },
    Rule {
        cause: Cause::ServerSkew,
        needs: &[&[M::ServersUsed]],
        factors: QUEUES,
        leads_to: &[],
        test: storage::server_skew,
    },
    Rule {
        cause: Cause::DescriptorLeak,
        needs: &[&[M::Descriptors]],
        factors: STORAGE,
        leads_to: &[
            Cause::SourceErrors,
            Cause::DestinationErrors,
            Cause::NotFed,
            Cause::Crash,
            Cause::StalledMover,
        ],
        test: host::descriptor_leak,
    },
    Rule {
        cause: Cause::SmallFiles,
        needs: &[&[M::FileSize], &[M::Overhead]],
        factors: &[F::MovingShare],
        leads_to: &[Cause::NamespaceThreads],
        test: service::small_files,
    },
    Rule {
        cause: Cause::BatchDelay,
        needs: &[&[M::BatchWait]],
        factors: OPERATIONS,
        leads_to: &[],
        test: storage::batch_delay,
    },
    Rule {
        cause: Cause::NamespaceThreads,
        needs: &[&[M::NamespaceThreads], &[M::NamespaceQueue]],
        factors: OPERATIONS,
        leads_to: &[],
        test: host::namespace_threads,
    },
    Rule {
        cause: Cause::TooManyStreams,
        needs: &[&[M::Streams]],
        factors: RATE,
        leads_to: &[
            Cause::RandomWrites,
            Cause::DiskController,
            Cause::UndersizedHost,
        ],
        test: network::too_many_streams,
    },
    Rule {
        cause: Cause::TcpWindow,
        needs: &[&[M::TcpTimes], &[M::TcpWindow, M::Retransmissions]],
        factors: RATE,
        leads_to: &[],
        test: network::tcp_window,
    },
    Rule {
        cause: Cause::WindowUnopened,
        needs: &[
            &[M::TcpWindow],
            &[M::TcpBuffer],
            &[M::RoundTrip],
            &[M::Streams],
        ],
        factors: RATE,
        leads_to: &[],
        test: network::window_unopened,
    },
    Rule {
        cause: Cause::IdleStreams,
        needs: &[&[M::TcpIdle], &[M::TcpWindow], &[M::Streams]],
        factors: RATE,
        leads_to: &[],
        test: network::idle_streams,
    },
    Rule {
        cause: Cause::SiteNetwork,
        needs: &[&[M::FileProfile], &[M::StageTimes, M::TcpTimes]],
        factors: RATE,
        leads_to: &[Cause::NetworkPath, Cause::CompetingLoad],
        test: network::site_network,
    },
    Rule {
        cause: Cause::NetworkPath,
        needs: &[&[M::Retransmissions, M::OutOfOrder, M::RoundTrip]],
        factors: RATE,
        leads_to: &[],
        test: network::network_path,
    },
    Rule {
        cause: Cause::Multipath,
        needs: &[&[M::DevicePaths]],
        factors: RATE,
        leads_to: &[Cause::DiskController],
        test: storage::multipath,
    },
    Rule {
        cause: Cause::StartBurst,
        needs: &[&[M::ServerStarts], &[M::IoStall], &[M::ServerTransfers]],
        factors: RATE,
        leads_to: &[
            Cause::DiskController,
            Cause::UndersizedHost,
            Cause::RandomWrites,
        ],
        test: storage::start_burst,
    },
    Rule {
        cause: Cause::RandomWrites,
        needs: &[&[M::RandomWrites]],
        factors: RATE,
        leads_to: &[Cause::DiskController],
        test: storage::random_writes,
    },
    Rule {
        cause: Cause::DiskController,
        needs: &[
            &[M::DeviceUse, M::StageTimes, M::ReadWait],
            &[M::DeviceBytes, M::StageTimes, M::ReadWait],
        ],
        factors: RATE,
        leads_to: &[],
        test: storage::disk_controller,
    },
    Rule {
        cause: Cause::Relay,
        needs: &[&[M::RelayedBytes], &[M::ServerBytes]],
        factors: RATE,
        leads_to: &[Cause::UndersizedHost],
        test: host::relay,
    },
    Rule {
        cause: Cause::UndersizedHost,
        needs: &[&[M::MemoryPressure, M::Processors, M::Interface]],
        factors: STORAGE,
        leads_to: &[],
        test: host::undersized_host,
    },
    Rule {
        cause: Cause::CompetingLoad,
        needs: &[&[M::OtherLinksBytes, M::ClientsBytes]],
        factors: RATE,
        // What others put on a way fills it, and may overflow it.
        leads_to: &[Cause::NetworkPath],
        test: network::competing_load,
    },
    Rule {
        cause: Cause::Accounting,
        needs: &[&[M::AccountingDifference]],
        factors: &[],
        leads_to: &[],
        test: storage::accounting,
    },
];

/// The rule of a cause.
pub fn rule_of(cause: Cause) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.cause == cause)
}

/// Of the inputs of a rule, those of which nothing is known: of each group that is unknown as a whole, the first.
pub fn missing(rule: &Rule, input: &RuleInput<'_>) -> Vec<M> {
    let unknown = rule
        .needs
        .iter()
        .filter(|group| !group.iter().any(|measure| input.is_known(*measure)));
    unknown.filter_map(|group| group.first().copied()).collect()
}
