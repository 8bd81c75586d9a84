//! What is known of a window of time: one column of equal bins for each measured quantity.
//!
//! Where it comes from (a live service, a record, an import, a simulation) does not matter here. Unknown is `None`,
//! in a single bin or as an empty column, and never 0.

use penstock_model::{Errno, LinkEnd, LinkId, Phase, PoolName, Side, StorageId, Timestamp, VoName};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The usual length of a bin.
pub const BIN_SECONDS: u32 = 60;

/// The place of a [`Change`] of the transfer service as a whole.
pub const SERVICE_PLACE: &str = "the transfer service";

/// One quantity over time. Bins beyond its end are unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series(pub Vec<Option<f64>>);

impl Series {
    /// The same value in each bin.
    pub fn constant(value: f64, bins: usize) -> Series {
        Series(vec![Some(value); bins])
    }

    /// All bins known.
    pub fn known(values: impl IntoIterator<Item = f64>) -> Series {
        Series(values.into_iter().map(Some).collect())
    }

    /// The value of a bin.
    pub fn at(&self, bin: usize) -> Option<f64> {
        self.0
            .get(bin)
            .copied()
            .flatten()
            .filter(|value| value.is_finite())
    }

    /// The known values of some bins, in order.
    pub fn values<'a>(&'a self, spans: &'a [Range<usize>]) -> impl Iterator<Item = f64> + 'a {
        spans
            .iter()
            .flat_map(Range::clone)
            .filter_map(|bin| self.at(bin))
    }

    /// The mean of the known values; `None` when less than half of the bins are known: a mean of a few would speak
    /// for all.
    pub fn mean(&self, spans: &[Range<usize>]) -> Option<f64> {
        let known = self.values(spans).count();
        let bins: usize = spans.iter().map(ExactSizeIterator::len).sum();
        (known > 0 && known * 2 >= bins).then(|| self.values(spans).sum::<f64>() / known as f64)
    }

    /// The sum over some bins; bins that are not known count as the mean of the others.
    pub fn sum(&self, spans: &[Range<usize>]) -> Option<f64> {
        let bins: usize = spans.iter().map(ExactSizeIterator::len).sum();
        Some(self.mean(spans)? * bins as f64)
    }

    /// The greatest known value.
    pub fn max(&self, spans: &[Range<usize>]) -> Option<f64> {
        self.values(spans).reduce(f64::max)
    }

    /// The least known value.
    pub fn min(&self, spans: &[Range<usize>]) -> Option<f64> {
        self.values(spans).reduce(f64::min)
    }

    /// The part of the known bins for which `test` holds.
    pub fn part(&self, spans: &[Range<usize>], test: impl Fn(f64) -> bool) -> Option<f64> {
        let known = self.values(spans).count();
        let held = self.values(spans).filter(|value| test(*value)).count();
        (known > 0).then(|| held as f64 / known as f64)
    }

    /// Adds bin by bin. A bin is unknown when it is unknown in either.
    pub fn plus(&self, other: &Series) -> Series {
        let length = self.0.len().min(other.0.len());
        Series(
            (0..length)
                .map(|bin| Some(self.at(bin)? + other.at(bin)?))
                .collect(),
        )
    }

    fn sum_of<'a>(all: impl Iterator<Item = &'a Series>) -> Series {
        all.cloned()
            .reduce(|sum, one| sum.plus(&one))
            .unwrap_or_default()
    }

    /// The greatest of several that are known.
    fn greatest_of<'a>(all: impl Iterator<Item = &'a Series> + Clone) -> Series {
        let length = all.clone().map(|one| one.0.len()).max().unwrap_or(0);
        let greatest = |bin: usize| all.clone().filter_map(|one| one.at(bin)).reduce(f64::max);
        Series((0..length).map(greatest).collect())
    }

    /// The mean of several, weighted; a bin without a weight is unknown.
    fn mean_of<'a>(all: impl Iterator<Item = (&'a Series, &'a Series)> + Clone) -> Series {
        let length = all
            .clone()
            .map(|(value, _)| value.0.len())
            .max()
            .unwrap_or(0);
        let mean = |bin: usize| {
            let known = all
                .clone()
                .filter_map(|(value, weight)| Some((value.at(bin)?, weight.at(bin)?)));
            let (sum, weights) = known.fold((0.0, 0.0), |(sum, all), (value, weight)| {
                (sum + value * weight, all + weight)
            });
            (weights > 0.0).then(|| sum / weights)
        };
        Series((0..length).map(mean).collect())
    }
}

/// A window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Signals {
    /// Where the first bin begins.
    pub begin: Timestamp,
    /// Length of each bin.
    pub bin_seconds: u32,
    pub bins: usize,
    pub links: BTreeMap<LinkId, LinkSignals>,
    /// Of the transfer service as a whole.
    pub service: ServiceSignals,
    /// Per storage element.
    pub storages: BTreeMap<StorageId, StorageSignals>,
    /// Per server of a storage element.
    pub servers: BTreeMap<ServerName, ServerSignals>,
    pub pools: BTreeMap<PoolName, PoolSignals>,
    /// What was set differently from some time on, in order.
    pub changes: Vec<Change>,
    /// Work on a machine that was planned.
    pub maintenance: Vec<Maintenance>,
}

/// One link. Bytes, files and seconds are sums over a bin; the rest are means.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LinkSignals {
    /// Bytes of attempts that arrived, or may.
    pub copied_bytes: Series,
    /// Bytes of attempts that failed.
    pub failed_bytes: Series,
    /// Transfers that run.
    pub active: Series,
    /// How many may.
    pub limit: Series,
    /// Files queued.
    pub queued: Series,
    /// Slots that were free although files were queued.
    pub unfed: Series,
    /// Files that a tape system of the sources has to bring before they can be queued: its whole queue, where
    /// files of the link may be in it.
    pub recalls: Series,
    /// Transfers that run and wait for an answer of both ends: no byte of theirs can have moved.
    pub preparing: Series,
    /// Transfers that had moved bytes, and none for longer than allowed.
    pub stalled: Series,
    /// The longest time without progress of a transfer that had moved bytes.
    pub progress_age_seconds: Series,
    /// Files that arrived.
    pub finished_files: Series,
    /// Attempts that failed, of each kind.
    pub failures: BTreeMap<FailureGroup, Series>,
    /// Recalls from tape, and waiting for files to be on tape, that failed, of each kind. No attempts.
    pub tape_failures: BTreeMap<FailureGroup, Series>,
    /// Time of each stage of the copies.
    pub stages: BTreeMap<DataPathStage, StageSignals>,
    /// Seconds per file in which its slot moves no bytes: looking at both ends, opening, committing.
    pub overhead_seconds: Series,
    /// Mean size of a file.
    pub file_bytes: Series,
    /// Connections per file that were asked for.
    pub streams_asked: Series,
    /// Connections per file that were used.
    pub streams_used: Series,
    /// What the kernels say of the data sockets.
    pub tcp: TcpSignals,
    /// VOs for which files moved or should have moved.
    pub vos: BTreeSet<VoName>,
    pub vo_bytes: BTreeMap<VoName, Series>,
    pub protocol_bytes: BTreeMap<String, Series>,
}

/// Failures of one kind: equal side, phase, error and text without particulars.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailureGroup {
    /// Where the fault lies.
    pub side: Side,
    /// When in an attempt it happens.
    pub phase: Phase,
    /// The POSIX error.
    pub errno: Errno,
    /// The text without what differs from file to file.
    pub fingerprint: String,
}

impl FailureGroup {
    /// Of a failure with this fingerprint.
    pub fn new(side: Side, phase: Phase, errno: Errno, fingerprint: &str) -> FailureGroup {
        FailureGroup {
            side,
            phase,
            errno,
            fingerprint: fingerprint.to_owned(),
        }
    }
}

/// A stage of a copy, in the order in which bytes meet them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DataPathStage {
    /// Reading the file at the source.
    SourceRead,
    /// Through the network.
    Network,
    /// Computing checksums.
    Checksum,
    /// Writing the file at the destination.
    DestinationWrite,
    /// Making it durable and visible.
    Commit,
}

/// Where a stage's time went, in seconds summed over the movers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StageSignals {
    /// It worked.
    pub busy: Series,
    /// It waited for the stage before it.
    pub input_wait: Series,
    /// It waited for the stage after it.
    pub output_wait: Series,
}

/// The data sockets: what their sending ends tell, unless said otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TcpSignals {
    /// Part of the time with nothing to send.
    pub idle: Series,
    /// Part of the time limited by the congestion window or pacing.
    pub window_limited: Series,
    /// Part of the time limited by the receiver's window.
    pub receiver_limited: Series,
    /// Part of the time limited by the send buffer.
    pub buffer_limited: Series,
    /// Segments sent again, as a part of those sent.
    pub retransmitted: Series,
    /// At the receiving end: segments that came before one that was sent earlier, as a part of those received. Of one segment
    /// that was lost, all that follow within a round trip are.
    pub out_of_order: Series,
    /// Round trip, at either end.
    pub rtt_seconds: Series,
    /// Shortest round trip.
    pub rtt_min_seconds: Series,
    /// Congestion window of one connection.
    pub window_bytes: Series,
    /// How large the buffers of one connection may grow: what the hosts allow.
    pub buffer_max_bytes: Series,
}

/// The transfer service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceSignals {
    /// Slots in use, over all links.
    pub slots_used: Series,
    pub slots_cap: Series,
    /// Files submitted, per link.
    pub submissions: BTreeMap<LinkId, Series>,
    /// Transfers started.
    pub dispatches: Series,
    /// Seconds to commit one batch of the journal.
    pub journal_seconds: Series,
    /// Seconds of one query.
    pub database_seconds: Series,
    /// 1 when a request to its interface was answered, 0 when not.
    pub probe: Series,
}

/// A storage element.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StorageSignals {
    /// Seconds of one operation on the namespace, from its request to its answer.
    pub namespace_seconds: Series,
    /// Seconds that a thread works for one answer, without the wait for it.
    pub namespace_work_seconds: Series,
    /// Threads of the namespace that work.
    pub namespace_busy: Series,
    pub namespace_cap: Series,
    /// Operations that wait for a thread.
    pub namespace_queued: Series,
    /// Seconds between a request and its start in a batch system.
    pub batch_seconds: Series,
    /// Bytes used, as the storage element counts them.
    pub used_bytes: Series,
    /// Bytes used, as the catalogue counts them.
    pub catalogue_bytes: Series,
    /// Its tape system.
    pub tape: TapeSignals,
}

/// A tape system and the buffer before it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TapeSignals {
    /// Drives that work.
    pub drives_busy: Series,
    pub drives_cap: Series,
    /// Cartridges mounted.
    pub mounts: Series,
    /// Files read from tape.
    pub recalled_files: Series,
    /// Bytes of these files.
    pub recalled_bytes: Series,
    /// Bytes that drives read for them.
    pub read_bytes: Series,
    /// Files waiting to be read.
    pub recalls_queued: Series,
    /// Age of the oldest of them.
    pub recall_age_seconds: Series,
    /// Bytes written to tape.
    pub written_bytes: Series,
    /// Bytes on disk that are not on tape yet.
    pub unwritten_bytes: Series,
    /// The tape system's own buffer, used part.
    pub buffer_used: Series,
    /// Writing to tape begins anew each so many seconds.
    pub write_cycle_seconds: Option<f64>,
}

/// A server's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(pub String);

/// What a server is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ServerKind {
    /// It has pools.
    #[default]
    Disk,
    /// It has the namespace, databases and doors.
    Head,
}

/// A server of a storage element.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerSignals {
    /// Whose; `None`: of no storage element that is known.
    pub storage: Option<StorageId>,
    pub role: ServerKind,
    /// Bytes received.
    pub bytes_in: Series,
    /// Bytes sent.
    pub bytes_out: Series,
    /// Bytes passed on to another server of the same site.
    pub relayed_bytes: Series,
    /// 1 while it answers, 0 while not.
    pub up: Series,
    /// Transfers that run on it.
    pub in_flight: Series,
    /// Transfers that began.
    pub starts: Series,
    /// Part of the time in which some task waits for disks.
    pub io_some: Series,
    /// Part of the time in which all tasks wait for disks.
    pub io_full: Series,
    /// Part of the time in which all tasks wait for memory.
    pub memory_full: Series,
    /// Part of the writes that do not follow the one before.
    pub random_writes: Series,
    /// Part of the processors' time that is used.
    pub cpu: Series,
    /// Part of the network interface that is used.
    pub interface: Series,
    /// Open file descriptors.
    pub descriptors: Series,
    /// How many may be open.
    pub descriptors_limit: Series,
    /// Its disk arrays.
    pub devices: BTreeMap<String, DeviceSignals>,
}

/// A disk array as a server sees it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceSignals {
    /// Part of the time in which it works.
    pub utilisation: Series,
    /// Bytes read and written.
    pub bytes: Series,
    /// Times that the path to it changed.
    pub path_switches: Series,
    /// Bytes over a path that its controller does not prefer.
    pub other_path_bytes: Series,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct PoolSignals {
    /// Of which storage element.
    pub storage: Option<StorageId>,
    /// Bytes written.
    pub bytes_in: Series,
    /// Bytes read.
    pub bytes_out: Series,
    pub free_bytes: Series,
    /// Bytes of these that must stay free.
    pub reserve_bytes: Series,
    /// 1 while its files can be used, 0 while its disk is away or silent.
    pub up: Series,
    /// 1 while its disk takes new files, also while it is drained or full; 0 while it fails.
    pub writable: Series,
    /// Movers that failed there.
    pub failed: Series,
    /// Seconds for which movers waited until its disk had read, summed over movers, counted when they ended.
    pub read_wait_seconds: Series,
    /// Movers that hold a slot.
    pub movers: Series,
    /// How many may.
    pub movers_limit: Series,
    /// Movers waiting for a slot.
    pub movers_queued: Series,
    /// Movers that hold a slot and have moved nothing for longer than allowed.
    pub movers_stalled: Series,
    /// Since when the mover with the longest silence has moved nothing.
    pub progress_age_seconds: Series,
    /// Bytes written to tape.
    pub tape_written_bytes: Series,
    /// Bytes that are not on tape yet.
    pub tape_unwritten_bytes: Series,
}

/// Something was set differently.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Change {
    pub at: Timestamp,
    pub who: String,
    /// Of which thing: a link, a storage element, a server, the service.
    pub place: String,
    pub setting: Setting,
    /// What it was; `None`: it was not set, or that is not known.
    pub old: Option<String>,
    pub new: Option<String>,
}

/// What a change is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// How many may run at once.
    Limit,
    /// How many may run at once into a storage element.
    InboundLimit,
    /// How many may run at once out of it.
    OutboundLimit,
    /// What may be moved per second.
    RateLimit,
    /// Connections per file.
    Streams,
    /// Nothing new begins.
    Drain,
    /// Operators have banned it.
    Ban,
    /// The service halted the link after failures of one kind, or opened it.
    Halt,
    /// A fact about a host: a kernel setting, a firmware.
    Fact,
    /// Another setting.
    Other,
}

/// Planned work on a machine: a backup, an update.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Maintenance {
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
    /// On which machine.
    pub place: String,
    pub what: String,
}

impl ServerSignals {
    /// What it carries of the bytes of links that have it at this end.
    pub fn bytes_at(&self, end: LinkEnd) -> &Series {
        match end {
            LinkEnd::Source => &self.bytes_out,
            LinkEnd::Destination => &self.bytes_in,
        }
    }
}

impl PoolSignals {
    /// What it carries of the bytes of links that have it at this end.
    pub fn bytes_at(&self, end: LinkEnd) -> &Series {
        match end {
            LinkEnd::Source => &self.bytes_out,
            LinkEnd::Destination => &self.bytes_in,
        }
    }
}

impl Signals {
    /// A window about which nothing is known.
    pub fn unknown(begin: Timestamp, bin_seconds: u32, bins: usize) -> Signals {
        Signals {
            begin,
            bin_seconds: bin_seconds.max(1),
            bins,
            ..Signals::default()
        }
    }

    /// Where a bin begins.
    pub fn begin_of(&self, bin: usize) -> Timestamp {
        let offset = (bin as u64)
            .saturating_mul(u64::from(self.bin_seconds))
            .saturating_mul(1000);
        Timestamp(
            self.begin
                .0
                .saturating_add(i64::try_from(offset).unwrap_or(i64::MAX)),
        )
    }

    /// The bin of a moment; `None` outside.
    pub fn bin_of(&self, at: Timestamp) -> Option<usize> {
        let offset = u64::try_from(at.0.checked_sub(self.begin.0)?).ok()?;
        let bin = usize::try_from(offset / 1000 / u64::from(self.bin_seconds.max(1))).ok()?;
        (bin < self.bins).then_some(bin)
    }

    /// Several links as one. Counts are summed; means are weighted by running transfers.
    pub fn together(&self, links: &[&LinkId]) -> LinkSignals {
        let known = links.iter().filter_map(|link| self.links.get(link));
        let all: Vec<&LinkSignals> = known.collect();
        let together = match all.as_slice() {
            [] => return LinkSignals::default(),
            [one] => (*one).clone(),
            _ => LinkSignals::together(&all),
        };
        let recalls = links.iter().filter_map(|link| self.recalls_of(link));
        let recalls: Vec<Series> = recalls.collect();
        LinkSignals {
            // Links of one source have one queue.
            recalls: Series::greatest_of(recalls.iter()),
            ..together
        }
    }

    /// The queue of the source's tape system in bins in which files of the link may be in it: others of its files move, or none is
    /// queued or runs and more were submitted than have ended since another such bin. Files that were submitted before
    /// the first of these are seen only as they come.
    fn recalls_of(&self, id: &LinkId) -> Option<Series> {
        let link = self.links.get(id)?;
        let queue = &self.storages.get(&id.source)?.tape.recalls_queued;
        let submitted = self.service.submissions.get(id);
        let (mut open, mut least) = (0.0, f64::INFINITY);
        let recalls = (0..queue.0.len()).map(|bin| {
            let at = |series: &Series| series.at(bin).unwrap_or(0.0);
            let failed = link.failures.values().chain(link.tape_failures.values());
            let ended = at(&link.finished_files) + failed.map(at).sum::<f64>();
            open += submitted.map_or(0.0, at) - ended;
            let is_its = match at(&link.active) + at(&link.queued) > 0.0 {
                true => true,
                false => {
                    least = least.min(open);
                    open - least >= 1.0
                }
            };
            queue.at(bin).map(|files| if is_its { files } else { 0.0 })
        });
        Some(Series(recalls.collect()))
    }
}

impl LinkSignals {
    /// Bytes of all attempts. Failed bytes that are unknown are in the copied ones, as samples tell no difference.
    pub fn moved_bytes(&self) -> Series {
        match self.failed_bytes.0.is_empty() {
            true => self.copied_bytes.clone(),
            false => self.copied_bytes.plus(&self.failed_bytes),
        }
    }

    /// Attempts that failed, of all kinds.
    pub fn failed_attempts(&self) -> Series {
        Series::sum_of(self.failures.values())
    }

    fn together(all: &[&LinkSignals]) -> LinkSignals {
        type Column = fn(&LinkSignals) -> &Series;
        let sum = |column: Column| Series::sum_of(all.iter().map(|link| column(link)));
        let mean =
            |column: Column| Series::mean_of(all.iter().map(|link| (column(link), &link.active)));
        let mut together = LinkSignals {
            copied_bytes: sum(|link| &link.copied_bytes),
            failed_bytes: sum(|link| &link.failed_bytes),
            active: sum(|link| &link.active),
            limit: sum(|link| &link.limit),
            queued: sum(|link| &link.queued),
            unfed: sum(|link| &link.unfed),
            preparing: sum(|link| &link.preparing),
            stalled: sum(|link| &link.stalled),
            progress_age_seconds: Series::greatest_of(
                all.iter().map(|link| &link.progress_age_seconds),
            ),
            finished_files: sum(|link| &link.finished_files),
            overhead_seconds: mean(|link| &link.overhead_seconds),
            file_bytes: mean(|link| &link.file_bytes),
            streams_asked: mean(|link| &link.streams_asked),
            streams_used: mean(|link| &link.streams_used),
            tcp: TcpSignals {
                idle: mean(|link| &link.tcp.idle),
                window_limited: mean(|link| &link.tcp.window_limited),
                receiver_limited: mean(|link| &link.tcp.receiver_limited),
                buffer_limited: mean(|link| &link.tcp.buffer_limited),
                retransmitted: mean(|link| &link.tcp.retransmitted),
                out_of_order: mean(|link| &link.tcp.out_of_order),
                rtt_seconds: mean(|link| &link.tcp.rtt_seconds),
                rtt_min_seconds: mean(|link| &link.tcp.rtt_min_seconds),
                window_bytes: mean(|link| &link.tcp.window_bytes),
                buffer_max_bytes: mean(|link| &link.tcp.buffer_max_bytes),
            },
            ..LinkSignals::default()
        };
        for link in all {
            merge(&mut together.failures, &link.failures);
            merge(&mut together.vo_bytes, &link.vo_bytes);
            merge(&mut together.protocol_bytes, &link.protocol_bytes);
            for (stage, times) in &link.stages {
                let sums = together.stages.entry(*stage).or_default();
                add(&mut sums.busy, &times.busy);
                add(&mut sums.input_wait, &times.input_wait);
                add(&mut sums.output_wait, &times.output_wait);
            }
        }
        together
    }
}

fn merge<K: Ord + Clone>(sums: &mut BTreeMap<K, Series>, more: &BTreeMap<K, Series>) {
    for (key, series) in more {
        add(sums.entry(key.clone()).or_default(), series);
    }
}

fn add(sum: &mut Series, more: &Series) {
    *sum = match sum.0.is_empty() {
        true => more.clone(),
        false => sum.plus(more),
    };
}
