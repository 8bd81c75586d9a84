//! What a rule looks at: a window, in it the bins of the usual and of the low rate, and the links that are explained.
//!
//! Usual and low say which of the two rates something is of, whichever came first: of a rise the low rate did.

use super::answer::{Evidence, Measure};
use super::signals::{
    Change, DataPathStage, FailureGroup, LinkSignals, PoolSignals, Series, ServerKind, ServerName,
    ServerSignals, Setting, Signals, StorageSignals,
};
use super::split::{Factor, Factors, Part};
use penstock_model::{LinkEnd, LinkId, PoolName, StorageId};
use std::collections::BTreeSet;
use std::ops::Range;

/// A change belongs to a stretch when it was made at most so many seconds before its begin.
const CHANGE_SECONDS: usize = 600;

/// A disk server or a pool, at one end of the links.
pub struct StorageUnit<'a> {
    pub name: &'a str,
    /// That it took, or gave at a source.
    pub bytes: &'a Series,
    /// 1 while it answers, 0 while not.
    pub up: &'a Series,
}

/// Which of the two rates that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComparedRate {
    Usual,
    Low,
}

/// The facts of one stretch.
pub struct RuleInput<'a> {
    /// All that is known.
    pub signals: &'a Signals,
    /// Which links are explained.
    pub links: &'a [LinkId],
    /// These together.
    pub link: &'a LinkSignals,
    /// The bins of the usual rate; empty when a window is explained by itself.
    pub usual_bins: &'a [Range<usize>],
    /// The bins of the low rate.
    pub low_bins: &'a [Range<usize>],
    /// The factors of the usual rate.
    pub usual: Factors,
    /// The factors of the low rate.
    pub low: Factors,
    /// The parts of the difference.
    pub parts: &'a [Part],
    /// The slowest stage.
    pub stage: Option<DataPathStage>,
    /// It recurs with this period.
    pub period_seconds: Option<u64>,
}

impl RuleInput<'_> {
    /// The bins of one of the two rates.
    pub fn bins(&self, rate: ComparedRate) -> &[Range<usize>] {
        match rate {
            ComparedRate::Usual => self.usual_bins,
            ComparedRate::Low => self.low_bins,
        }
    }

    /// The mean while the rate was low.
    pub fn low_mean(&self, series: &Series) -> Option<f64> {
        series.mean(self.low_bins)
    }

    /// The mean while it was usual.
    pub fn usual_mean(&self, series: &Series) -> Option<f64> {
        series.mean(self.usual_bins)
    }

    /// The low mean over the usual one.
    pub fn ratio(&self, series: &Series) -> Option<f64> {
        let usual = self.usual_mean(series).filter(|usual| *usual > 0.0)?;
        Some(self.low_mean(series)? / usual)
    }

    /// In which part of the stretch a value is at least so many times what it was before. What is high for some minutes of
    /// many hours has a high mean, and is no cause of them.
    pub fn high_share(&self, series: &Series, ratio: f64) -> f64 {
        let bound = self.usual_mean(series).unwrap_or(0.0) * ratio;
        let known = series.values(self.low_bins).count().max(1);
        let high = series.values(self.low_bins).filter(|value| *value >= bound);
        high.count() as f64 / known as f64
    }

    /// Whether it rose by more than this factor; true without a time before, in which only bounds count.
    pub fn rose(&self, series: &Series, factor: f64) -> bool {
        match (self.low_mean(series), self.usual_mean(series)) {
            (Some(low), Some(usual)) => low > usual * factor,
            (Some(_), None) => self.usual_bins.is_empty(),
            (None, _) => false,
        }
    }

    /// Whether it fell below this part; true without a time before.
    pub fn fell(&self, series: &Series, part: f64) -> bool {
        match (self.low_mean(series), self.usual_mean(series)) {
            (Some(low), Some(usual)) => low < usual * part,
            (Some(_), None) => self.usual_bins.is_empty(),
            (None, _) => false,
        }
    }

    /// A value and what it was, as evidence.
    pub fn value(&self, measure: Measure, series: &Series) -> Evidence {
        self.value_at(measure, None, series)
    }

    /// The same of a server, pool or storage element.
    pub fn value_at(&self, measure: Measure, place: Option<&str>, series: &Series) -> Evidence {
        Evidence::Value {
            measure,
            place: place.map(str::to_owned),
            usual: self.usual_mean(series),
            value: self.low_mean(series).unwrap_or(0.0),
        }
    }

    /// ln of the fall of a factor; of a merged factor, of the whole. 0 when it did not fall.
    pub fn log_fall(&self, factor: Factor) -> f64 {
        let part = self
            .parts
            .iter()
            .find(|part| part.factors.contains(&factor));
        part.filter(|part| part.from > 0.0).map_or(0.0, |part| {
            (part.from / part.to.max(part.from * 1e-9)).ln().max(0.0)
        })
    }

    /// What part of a factor's fall a change of something by this ratio makes.
    pub fn explains(&self, ratio: f64, factor: Factor) -> f64 {
        let fall = self.log_fall(factor);
        if fall <= 0.0 {
            0.0
        } else {
            (-ratio.max(1e-9).ln() / fall).clamp(0.0, 1.0)
        }
    }

    /// The same of whichever it makes more of: the fall of the rate of a file, or that of these factors together.
    pub fn explains_most(&self, ratio: f64, factors: &[Factor]) -> f64 {
        let is_concerned = |part: &&Part| part.factors.iter().any(|one| factors.contains(one));
        let concerned = self.parts.iter().filter(is_concerned);
        let fall: f64 = concerned
            .filter_map(|part| part.factors.first())
            .map(|factor| self.log_fall(*factor))
            .sum();
        let together = match fall > 0.0 {
            true => (-ratio.max(1e-9).ln() / fall).clamp(0.0, 1.0),
            false => 0.0,
        };
        together.max(self.explains(ratio, Factor::StageRate))
    }

    /// For how long a copy runs in the stretch, from the transfers that run and the files that arrive.
    pub fn copy_seconds(&self) -> Option<f64> {
        let files = self.low_mean(&self.link.finished_files);
        let files = files.filter(|files| *files > 0.0)?;
        Some(self.low_mean(&self.link.active)? * f64::from(self.signals.bin_seconds) / files)
    }

    /// Both ends of the links.
    pub fn ends(&self) -> BTreeSet<&StorageId> {
        self.links
            .iter()
            .flat_map(|link| [&link.source, &link.destination])
            .collect()
    }

    /// The storage elements at both ends of which something is known.
    pub fn storages(&self) -> impl Iterator<Item = (&StorageId, &StorageSignals)> {
        let ends = self.ends();
        self.signals
            .storages
            .iter()
            .filter(move |(id, _)| ends.contains(id))
    }

    /// The servers at both ends.
    pub fn servers(&self) -> impl Iterator<Item = (&ServerName, &ServerSignals)> {
        let ends = self.ends();
        let is_of_end = move |server: &ServerSignals| {
            server
                .storage
                .as_ref()
                .is_some_and(|storage| ends.contains(storage))
        };
        self.signals
            .servers
            .iter()
            .filter(move |(_, server)| is_of_end(server))
    }

    /// Those with pools, of the destinations, or of the sources.
    pub fn disk_servers(&self, end: LinkEnd) -> Vec<(&ServerName, &ServerSignals)> {
        let ids = self.ids(end);
        self.servers()
            .filter(|(_, server)| server.role == ServerKind::Disk)
            .filter(|(_, server)| server.storage.as_ref().is_some_and(|id| ids.contains(id)))
            .collect()
    }

    /// Failures of these kinds in the stretch, the most frequent first.
    pub fn failures(&self, is_meant: impl Fn(&FailureGroup) -> bool) -> Vec<Evidence> {
        let kinds = self.link.failures.iter();
        let kinds = kinds.filter(|(group, _)| is_meant(group));
        let mut kinds: Vec<(u64, &FailureGroup)> = kinds
            .filter_map(|(group, attempts)| {
                Some((attempts.sum(self.low_bins)?.round() as u64, group))
            })
            .filter(|(attempts, _)| *attempts > 0)
            .collect();
        kinds.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let evidence = kinds
            .into_iter()
            .map(|(attempts, group)| Evidence::Failures {
                fingerprint: group.fingerprint.clone(),
                attempts,
            });
        evidence.collect()
    }

    /// The destinations, or the sources.
    pub fn ids(&self, end: LinkEnd) -> BTreeSet<&StorageId> {
        self.links.iter().map(|link| link.end(end)).collect()
    }

    /// The pools of the destinations.
    pub fn pools(&self) -> Vec<(&PoolName, &PoolSignals)> {
        self.pools_of(LinkEnd::Destination)
    }

    /// The pools of the destinations, or of the sources. A storage element is one whatever the scheme of its URLs.
    pub fn pools_of(&self, end: LinkEnd) -> Vec<(&PoolName, &PoolSignals)> {
        let ids = self.ids(end);
        let is_end = |storage: &StorageId| ids.iter().any(|id| id.host() == storage.host());
        let pools = self.signals.pools.iter();
        pools
            .filter(|(_, pool)| pool.storage.as_ref().is_some_and(is_end))
            .collect()
    }

    /// Who carries the bytes of an end: its disk servers, or its pools where fewer than two servers are told apart.
    pub fn units(&self, end: LinkEnd) -> Vec<StorageUnit<'_>> {
        let servers = self.disk_servers(end).into_iter();
        let servers: Vec<StorageUnit<'_>> = servers
            .map(|(name, server)| StorageUnit {
                name: &name.0,
                bytes: server.bytes_at(end),
                up: &server.up,
            })
            .collect();
        if servers.len() >= 2 {
            return servers;
        }
        let pools = self.pools_of(end).into_iter();
        let pools: Vec<StorageUnit<'_>> = pools
            .map(|(name, pool)| StorageUnit {
                name: name.as_str(),
                bytes: pool.bytes_at(end),
                up: match end {
                    LinkEnd::Source => &pool.up,
                    LinkEnd::Destination => &pool.writable,
                },
            })
            .collect();
        match pools.is_empty() {
            true => servers,
            false => pools,
        }
    }

    /// Whether this stage may be the slowest: it is, or none is known to be.
    pub fn may_be(&self, stages: &[DataPathStage]) -> bool {
        self.stage.is_none_or(|stage| stages.contains(&stage))
    }

    /// Whether a factor that is measured by itself fell, or one that is not.
    pub fn fell_factor(&self, factor: Factor) -> bool {
        self.log_fall(factor) > 0.05
    }

    /// Changes of a setting around the begin of the stretch.
    pub fn changes<'a>(&'a self, settings: &'a [Setting]) -> impl Iterator<Item = &'a Change> + 'a {
        let (earliest, begin) = self.boundary();
        let slack = self.slack();
        let reach = earliest.saturating_sub(slack)..begin + slack;
        self.changes_in(settings, reach)
    }

    /// Facts of hosts that changed around the begin of the stretch, of which the name contains one of these.
    pub fn fact_changes<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = Evidence> + 'a {
        let facts = self.changes(&[Setting::Fact]);
        let named = facts.filter(|change| names.iter().any(|name| change.place.contains(name)));
        named.cloned().map(Evidence::Change)
    }

    /// What was set around the begin of the stretch, at the latest when it began, and was not taken back before half of the
    /// stretch was over. Of a rise, what was taken back around it.
    pub fn in_force<'a>(&'a self, settings: &'a [Setting]) -> Vec<&'a Change> {
        let (earliest, begin) = self.boundary();
        let slack = self.slack();
        let start = self.low_bins.first().map_or(0, |span| span.start);
        let end = self.low_bins.last().map_or(start, |span| span.end);
        let middle = self.signals.begin_of(start + (end - start) / 2);
        let lift_of = |set: &Change| {
            let later = self.signals.changes.iter().filter(|lift| {
                let is_same = lift.setting == set.setting && lift.place == set.place;
                is_same && lift.at > set.at && lift.new.is_none()
            });
            later.min_by_key(|lift| lift.at)
        };
        let is_set = |change: &&Change| {
            change.new.is_some() && lift_of(change).is_none_or(|lift| lift.at >= middle)
        };
        if self.is_rise() {
            let near = earliest.saturating_sub(slack)..begin + slack;
            let lifts = self.changes_in(settings, near);
            return lifts.filter(|change| change.new.is_none()).collect();
        }
        // The first bin of a stretch is known to a bin only.
        let reach = earliest.saturating_sub(slack)..begin + 2;
        self.changes_in(settings, reach).filter(is_set).collect()
    }

    fn slack(&self) -> usize {
        (CHANGE_SECONDS / self.signals.bin_seconds.max(1) as usize).max(2)
    }

    /// The higher rate comes after the lower one.
    pub fn is_rise(&self) -> bool {
        let start = |spans: &[Range<usize>]| spans.first().map_or(0, |span| span.start);
        start(self.usual_bins) > start(self.low_bins)
    }

    /// Where the first of the two rates ends, at the latest where the second begins; and where that is.
    fn boundary(&self) -> (usize, usize) {
        let (first, second) = match self.is_rise() {
            true => (self.low_bins, self.usual_bins),
            false => (self.usual_bins, self.low_bins),
        };
        let begin = second.first().map_or(0, |span| span.start);
        (
            first.last().map_or(begin, |span| span.end).min(begin),
            begin,
        )
    }

    fn changes_in<'a>(
        &'a self,
        settings: &'a [Setting],
        reach: Range<usize>,
    ) -> impl Iterator<Item = &'a Change> + 'a {
        self.signals.changes.iter().filter(move |change| {
            let bin = self.signals.bin_of(change.at);
            let is_near = bin.is_some_and(|bin| reach.contains(&bin));
            let is_of_links = concerns(self.signals, self.links, &change.place);
            settings.contains(&change.setting) && is_near && is_of_links
        })
    }

    /// Attempts that failed at a side, of all that ended: usually, and while the rate was low.
    pub fn failed_part(
        &self,
        test: impl Fn(&super::signals::FailureGroup) -> bool,
    ) -> (Option<f64>, Option<f64>) {
        let part = |spans: &[Range<usize>]| {
            let finished = self.link.finished_files.sum(spans)?;
            let sum = |all: bool| -> f64 {
                let kinds = self
                    .link
                    .failures
                    .iter()
                    .filter(|(group, _)| all || test(group));
                kinds.filter_map(|(_, attempts)| attempts.sum(spans)).sum()
            };
            let ended = finished + sum(true);
            (ended > 0.0).then(|| sum(false) / ended)
        };
        (part(self.usual_bins), part(self.low_bins))
    }

    /// Whether all slots of the service are in use; `None`: not known.
    pub fn is_service_full(&self) -> Option<bool> {
        let used = self.low_mean(&self.signals.service.slots_used)?;
        Some(used >= 0.95 * self.low_mean(&self.signals.service.slots_cap)?)
    }

    /// Whether this input is known in the stretch. Long because each measure has one arm.
    pub fn is_known(&self, measure: Measure) -> bool {
        use Measure as M;
        let known = |series: &Series| self.low_mean(series).is_some();
        let any_server = |column: fn(&ServerSignals) -> &Series| {
            self.servers().any(|(_, server)| known(column(server)))
        };
        let any_storage = |column: fn(&StorageSignals) -> &Series| {
            self.storages().any(|(_, storage)| known(column(storage)))
        };
        let any_pool = |column: fn(&PoolSignals) -> &Series| {
            self.pools().iter().any(|(_, pool)| known(column(pool)))
        };
        let any_unit = |column: for<'b> fn(&StorageUnit<'b>) -> &'b Series| {
            let mut units = (LinkEnd::BOTH.into_iter()).flat_map(|end| self.units(end));
            units.any(|unit| known(column(&unit)))
        };
        let (link, service) = (self.link, &self.signals.service);
        match measure {
            M::MovedBytes => known(&link.copied_bytes),
            M::Active => known(&link.active),
            M::Limit => known(&link.limit),
            M::Queued => known(&link.queued),
            M::ServiceSlots => known(&service.slots_used) && known(&service.slots_cap),
            M::Submissions => self
                .links
                .iter()
                .any(|link| service.submissions.get(link).is_some_and(known)),
            M::Dispatches => known(&service.dispatches),
            M::DatabaseLatency => {
                known(&service.database_seconds) || known(&service.journal_seconds)
            }
            M::ApiProbe => known(&service.probe),
            M::FailedAttempts => known(&link.finished_files),
            M::FinishedFiles => known(&link.finished_files),
            M::FileSize => known(&link.file_bytes),
            M::Overhead => known(&link.overhead_seconds) && self.low.moving_share.is_some(),
            M::StageTimes => link.stages.values().any(|stage| known(&stage.busy)),
            M::Streams => known(&link.streams_used),
            M::TcpTimes => known(&link.tcp.window_limited) || known(&link.tcp.buffer_limited),
            M::TcpWindow => known(&link.tcp.window_bytes),
            M::TcpBuffer => known(&link.tcp.buffer_max_bytes),
            M::TcpIdle => known(&link.tcp.idle),
            M::Retransmissions => known(&link.tcp.retransmitted),
            M::OutOfOrder => known(&link.tcp.out_of_order),
            M::RoundTrip => known(&link.tcp.rtt_seconds) && known(&link.tcp.rtt_min_seconds),
            M::ServerBytes => any_server(|server| &server.bytes_in),
            M::ServersUsed => any_unit(|unit| unit.bytes),
            M::ServerUp => any_unit(|unit| unit.up),
            M::PoolFree => {
                any_pool(|pool| &pool.free_bytes) && any_pool(|pool| &pool.reserve_bytes)
            }
            M::MoverProgress | M::StalledMovers => {
                any_pool(|pool| &pool.movers_stalled)
                    || any_pool(|pool| &pool.progress_age_seconds)
                    || known(&link.progress_age_seconds)
            }
            M::TapeWritten => {
                any_storage(|storage| &storage.tape.written_bytes)
                    || any_pool(|pool| &pool.tape_written_bytes)
            }
            M::TapeUnwritten => {
                any_storage(|storage| &storage.tape.unwritten_bytes)
                    || any_pool(|pool| &pool.tape_unwritten_bytes)
            }
            M::TapeBuffer => any_storage(|storage| &storage.tape.buffer_used),
            M::IoPressure => any_server(|server| &server.io_some),
            M::IoStall => any_server(|server| &server.io_full),
            M::MemoryPressure => any_server(|server| &server.memory_full),
            M::Processors => any_server(|server| &server.cpu),
            M::Interface => any_server(|server| &server.interface),
            M::NamespaceLatency => any_storage(|storage| &storage.namespace_seconds),
            M::NamespaceThreads => {
                any_storage(|storage| &storage.namespace_busy)
                    && any_storage(|storage| &storage.namespace_cap)
            }
            M::NamespaceQueue => any_storage(|storage| &storage.namespace_queued),
            M::BatchWait => any_storage(|storage| &storage.batch_seconds),
            M::RandomWrites => any_server(|server| &server.random_writes),
            M::RelayedBytes => any_server(|server| &server.relayed_bytes),
            M::DeviceUse => self.servers().any(|(_, server)| {
                server
                    .devices
                    .values()
                    .any(|device| known(&device.utilisation))
            }),
            M::DeviceBytes => self
                .servers()
                .any(|(_, server)| server.devices.values().any(|device| known(&device.bytes))),
            M::DevicePaths => self.servers().any(|(_, server)| {
                server
                    .devices
                    .values()
                    .any(|device| known(&device.path_switches) || known(&device.other_path_bytes))
            }),
            M::OtherPathBytes => self.servers().any(|(_, server)| {
                let mut devices = server.devices.values();
                devices.any(|device| known(&device.other_path_bytes))
            }),
            M::ReadWait => {
                let pools = self.pools_of(LinkEnd::Source);
                pools.iter().any(|(_, pool)| known(&pool.read_wait_seconds))
            }
            M::ServerStarts => any_server(|server| &server.starts),
            M::ServerTransfers => any_server(|server| &server.in_flight),
            M::TapeDrives => {
                any_storage(|storage| &storage.tape.drives_busy)
                    && any_storage(|storage| &storage.tape.drives_cap)
            }
            M::Recalls => any_storage(|storage| &storage.tape.recalls_queued),
            M::RecallAge => any_storage(|storage| &storage.tape.recall_age_seconds),
            M::FilesPerMount => {
                any_storage(|storage| &storage.tape.mounts)
                    && any_storage(|storage| &storage.tape.recalled_files)
            }
            M::ReadAmplification => {
                any_storage(|storage| &storage.tape.read_bytes)
                    && any_storage(|storage| &storage.tape.recalled_bytes)
            }
            M::Descriptors => any_server(|server| &server.descriptors),
            M::DescriptorLimit => any_server(|server| &server.descriptors_limit),
            M::AccountingDifference => {
                any_storage(|storage| &storage.used_bytes)
                    && any_storage(|storage| &storage.catalogue_bytes)
            }
            M::ClientsBytes => any_pool(|pool| &pool.bytes_in),
            M::OtherLinksBytes | M::FileProfile => self.signals.links.len() > self.links.len(),
        }
    }
}

/// Whether what was set at a place may matter for these links. What is known to be another link's, or of a storage
/// element at neither end, does not; a URL names a storage element, also one on no link.
pub(super) fn concerns(signals: &Signals, links: &[LinkId], place: &str) -> bool {
    let is_end = |id: &StorageId| {
        links
            .iter()
            .any(|link| link.source == *id || link.destination == *id)
    };
    let is_ours = |storage: &Option<StorageId>| storage.as_ref().is_none_or(is_end);
    if let Some(other) = signals.links.keys().find(|link| link.to_string() == place) {
        return links.contains(other);
    }
    let mut ends = signals
        .links
        .keys()
        .flat_map(|link| [&link.source, &link.destination]);
    let host = StorageId::new(place);
    if ends.any(|id| id.host() == host.host()) {
        return links
            .iter()
            .flat_map(|link| [&link.source, &link.destination])
            .any(|id| id.host() == host.host());
    }
    if place.contains("://") {
        return false;
    }
    // A fact of a host has the place `HOST FACT`.
    let host = place.split(' ').next().unwrap_or_default();
    let server = signals.servers.iter().find(|(name, _)| name.0 == host);
    let pool = signals
        .pools
        .iter()
        .find(|(name, _)| name.as_str() == place);
    let storage = server.map(|(_, server)| &server.storage);
    let storage = storage.or_else(|| pool.map(|(_, pool)| &pool.storage));
    storage.is_none_or(is_ours)
}
