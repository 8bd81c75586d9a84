//! What the host of a storage element tells of a window, as the explainer takes it.
//!
//! A sample tells of all of its time evenly: what is counted in it is spread over the bins in which it lies. Time that
//! nobody sampled stays unknown.

use crate::host::databases::{DatabaseActivity, DatabaseKind};
use crate::host::facts::FactChange;
use crate::host::interfaces::InterfaceRole;
use crate::host::pressure::Pressure;
use crate::host::report::{DiskInfo, InterfaceInfo};
use crate::host::sample::HostSample;
use crate::pool_signals::own_end;
use crate::window_bins::WindowBins;
use penstock_decide::explain::signals::{
    Change, DeviceSignals, Series, ServerName, ServerSignals, Setting, Signals, StorageSignals,
};
use penstock_model::StorageId;
use std::collections::BTreeMap;

/// Bins of all disks and interfaces together at most, some 50 MB.
const CELLS_MAX: usize = 1_000_000;
/// Changes of facts that are told at most: of more, the latest.
const CHANGES_MAX: usize = 200;
/// How `report` names a pool among what a disk holds.
pub(crate) const POOL: &str = "pool ";
/// It carries what stays on the host.
pub(crate) const LOOPBACK: &str = "lo";
/// Nothing tells who changed a fact.
const WHO: &str = "somebody on the host";

/// What there is in a host.
#[derive(Debug, Clone, Copy)]
pub struct HostEquipment<'a> {
    pub interfaces: &'a [InterfaceInfo],
    pub disks: &'a [DiskInfo],
}

/// A sum over the part of a bin of which it is known.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    sum: f64,
    ms: f64,
}

/// What one bin holds of a database.
#[derive(Debug, Clone, Copy, Default)]
struct DatabaseBin {
    operations: f64,
    operation_us: f64,
    transactions: f64,
    transaction_us: f64,
    busy_us: Tally,
    queued_us: Tally,
    running_us: f64,
}

/// What one bin holds of the host.
#[derive(Debug, Clone, Copy, Default)]
struct HostBin {
    processor_used: Tally,
    processor_ticks: f64,
    memory_full_us: Tally,
    io_some_us: Tally,
    io_full_us: Tally,
    open_files: Option<f64>,
    open_files_max: Option<f64>,
    journal: DatabaseBin,
    namespace: DatabaseBin,
}

/// What one bin holds of an interface, or of a disk: bytes that came and went, or both with the time in which it worked.
#[derive(Debug, Clone, Copy, Default)]
struct DeviceBin {
    bytes_in: Tally,
    bytes_out: Tally,
    busy_ms: Tally,
}

/// The fold: samples in the order of time.
#[derive(Debug)]
pub struct HostFold<'a> {
    bins: WindowBins,
    equipment: HostEquipment<'a>,
    host: Vec<HostBin>,
    interfaces: BTreeMap<String, Vec<DeviceBin>>,
    disks: BTreeMap<String, Vec<DeviceBin>>,
    is_sampled: bool,
}

impl<'a> HostFold<'a> {
    /// Of the window of these signals.
    pub fn of(signals: &Signals, equipment: HostEquipment<'a>) -> HostFold<'a> {
        let bins = WindowBins {
            begin: signals.begin,
            step_ms: i64::from(signals.bin_seconds.max(1)) * 1000,
            count: signals.bins,
        };
        let room = CELLS_MAX / bins.count.max(1);
        let empty = |name: &String| (name.clone(), vec![DeviceBin::default(); bins.count]);
        let interfaces = equipment.interfaces.iter().map(|one| &one.name);
        let interfaces = interfaces.filter(|name| *name != LOOPBACK).take(room / 2);
        let disks = equipment.disks.iter().filter(|disk| holds_pool(disk));
        let disks = disks.map(|disk| &disk.name).take(room / 2);
        HostFold {
            bins,
            equipment,
            host: vec![HostBin::default(); bins.count],
            interfaces: interfaces.map(empty).collect(),
            disks: disks.map(empty).collect(),
            is_sampled: false,
        }
    }

    /// Takes the next sample.
    pub fn take(&mut self, sample: &HostSample) {
        let (from, to) = (sample.from, sample.until().max(sample.from));
        let length = (to.0 - from.0).max(1) as f64;
        for (bin, ms) in self.bins.overlaps(from, to) {
            self.is_sampled = true;
            let part = Part {
                share: ms / length,
                ms,
            };
            self.host[bin].add(sample, part);
            for interface in &sample.interfaces {
                if let Some(bins) = self.interfaces.get_mut(&*interface.name) {
                    let traffic = interface.traffic;
                    part.add(&mut bins[bin].bytes_in, traffic.received_bytes);
                    part.add(&mut bins[bin].bytes_out, traffic.sent_bytes);
                }
            }
            for disk in &sample.disks {
                if let Some(bins) = self.disks.get_mut(&*disk.name) {
                    let done = disk.activity;
                    part.add(&mut bins[bin].bytes_in, done.written_bytes);
                    part.add(&mut bins[bin].bytes_out, done.read_bytes);
                    part.add(&mut bins[bin].busy_ms, done.busy_ms);
                }
            }
        }
    }

    /// Adds what was taken to the signals, after what is known of pools: as that of the storage element at whichever end of
    /// links has one of these hosts. How long commits of the journal take is told whatever the ends are.
    pub fn tell(self, hosts: &[String], changes: &[FactChange], signals: &mut Signals) {
        if !self.is_sampled {
            return;
        }
        let journal = self.series(|bin| bin.journal.operation_seconds());
        // Another host may have the journal.
        if journal.0.iter().any(Option::is_some) {
            signals.service.journal_seconds = journal;
        }
        let Some(own) = own_end(hosts, signals) else {
            return;
        };
        let storage = signals.storages.entry(own.clone()).or_default();
        self.tell_namespace(storage);
        let host = own.host().to_owned();
        let devices = self.devices(&own, signals);
        let server = signals.servers.entry(ServerName(host.clone()));
        let server = server.or_insert_with(|| ServerSignals {
            storage: Some(own),
            ..ServerSignals::default()
        });
        server.devices = devices;
        self.tell_machine(server);
        self.tell_interfaces(server);
        // One that cannot be read any more tells nothing of its value.
        let is_told = |fact: &&FactChange| {
            self.bins.of_time(fact.at).is_some() && fact.before.is_some() && fact.after.is_some()
        };
        let facts = changes.iter().rev().filter(is_told).take(CHANGES_MAX);
        signals.changes.extend(facts.map(|fact| Change {
            at: fact.at,
            who: WHO.to_owned(),
            place: format!("{host} {}", fact.name),
            setting: Setting::Fact,
            old: fact.before.clone(),
            new: fact.after.clone(),
        }));
        signals.changes.sort_by_key(|change| change.at);
    }

    fn series(&self, column: impl Fn(&HostBin) -> Option<f64>) -> Series {
        Series(self.host.iter().map(column).collect())
    }

    fn share(&self, column: impl Fn(&HostBin) -> Tally) -> Series {
        // Microseconds in a millisecond.
        self.series(|bin| Some(column(bin).per_ms(self.bins)? / 1000.0))
    }

    fn tell_machine(&self, server: &mut ServerSignals) {
        server.io_some = self.share(|bin| bin.io_some_us);
        server.io_full = self.share(|bin| bin.io_full_us);
        server.memory_full = self.share(|bin| bin.memory_full_us);
        server.cpu = self.series(|bin| {
            let used = bin.processor_used.known(self.bins)?;
            (bin.processor_ticks > 0.0).then(|| used / bin.processor_ticks)
        });
        server.descriptors = self.series(|bin| bin.open_files);
        server.descriptors_limit = self.series(|bin| bin.open_files_max);
    }

    /// The namespace of our storage element has one thread that changes it.
    fn tell_namespace(&self, storage: &mut StorageSignals) {
        storage.namespace_seconds = self.series(|bin| bin.namespace.operation_seconds());
        storage.namespace_work_seconds = self.series(|bin| bin.namespace.transaction_seconds());
        let busy = self.share(|bin| bin.namespace.busy_us);
        let cap = busy.0.iter().map(|busy| busy.map(|_| 1.0)).collect();
        storage.namespace_busy = busy;
        storage.namespace_cap = Series(cap);
        storage.namespace_queued = self.share(|bin| bin.namespace.queued_us);
    }

    /// Disks of the pools. A pool of which nobody knows the disk has one of which nothing is known.
    fn devices(&self, own: &StorageId, signals: &Signals) -> BTreeMap<String, DeviceSignals> {
        let known = self.disks.iter().map(|(name, bins)| {
            let of = |column: &dyn Fn(&DeviceBin) -> Option<f64>| {
                Series(bins.iter().map(column).collect())
            };
            let device = DeviceSignals {
                utilisation: of(&|bin| Some(bin.busy_ms.per_ms(self.bins)?.min(1.0))),
                bytes: of(&|bin| {
                    Some(bin.bytes_in.known(self.bins)? + bin.bytes_out.known(self.bins)?)
                }),
                ..DeviceSignals::default()
            };
            (name.clone(), device)
        });
        let pools = signals.pools.iter();
        let pools = pools.filter(|(_, pool)| pool.storage.as_ref() == Some(own));
        let names = pools.map(|(name, _)| format!("{POOL}{name}"));
        let is_unknown = |name: &String| {
            let mut disks = self.equipment.disks.iter();
            !disks.any(|disk| disk.holds.contains(name))
        };
        let unknown = names.filter(is_unknown);
        known
            .chain(unknown.map(|name| (name, DeviceSignals::default())))
            .collect()
    }

    /// The fullest interface; what passed those to other sites; and what passed these and those inside the site, of which
    /// so much was passed on that both carried it.
    fn tell_interfaces(&self, server: &mut ServerSignals) {
        let seconds = self.bins.step_ms as f64 / 1000.0;
        let use_of = |info: &InterfaceInfo, bin: usize| {
            let speed = info.speed_bytes_per_second.filter(|speed| *speed > 0)?;
            let traffic = self.interfaces.get(&info.name)?.get(bin)?;
            let most = traffic.bytes_in.per_ms(self.bins)?;
            let most = most.max(traffic.bytes_out.per_ms(self.bins)?);
            Some(most * 1000.0 / speed as f64)
        };
        let all = self.equipment.interfaces.iter();
        let bins = 0..self.bins.count;
        let fullest = |bin| {
            all.clone()
                .filter_map(|info| use_of(info, bin))
                .reduce(f64::max)
        };
        server.interface = Series(bins.clone().map(fullest).collect());
        let with_role = |role: InterfaceRole, bin: usize| {
            let its = all.clone().filter(|info| info.role == Some(role));
            let its = its.filter_map(|info| self.interfaces.get(&info.name)?.get(bin));
            let rates = its.filter_map(|traffic| {
                let came = traffic.bytes_in.per_ms(self.bins)?;
                Some((came, traffic.bytes_out.per_ms(self.bins)?))
            });
            let bytes = |per_ms: f64| per_ms * 1000.0 * seconds;
            rates
                .map(|(came, went)| (bytes(came), bytes(went)))
                .reduce(|all, one| (all.0 + one.0, all.1 + one.1))
        };
        let wan = |bin| with_role(InterfaceRole::Wan, bin);
        let of_wan: Vec<Option<(f64, f64)>> = bins.clone().map(wan).collect();
        server.bytes_in = Series(of_wan.iter().map(|wan| Some((*wan)?.0)).collect());
        server.bytes_out = Series(of_wan.iter().map(|wan| Some((*wan)?.1)).collect());
        let relayed = |bin: usize| {
            let (came, went) = of_wan.get(bin).copied().flatten()?;
            let (inside_in, inside_out) = with_role(InterfaceRole::Internal, bin)?;
            Some(came.min(inside_out) + went.min(inside_in))
        };
        server.relayed_bytes = Series(bins.map(relayed).collect());
    }
}

fn holds_pool(disk: &DiskInfo) -> bool {
    disk.holds.iter().any(|name| name.starts_with(POOL))
}

/// So much of a sample lies in a bin.
#[derive(Debug, Clone, Copy)]
struct Part {
    share: f64,
    ms: f64,
}

impl Part {
    fn of(self, count: u64) -> f64 {
        count as f64 * self.share
    }

    fn add(self, tally: &mut Tally, count: u64) {
        tally.sum += self.of(count);
        tally.ms += self.ms;
    }
}

impl Tally {
    /// The sum, where most of the bin is known: a part of a bin says little of it.
    fn known(self, bins: WindowBins) -> Option<f64> {
        (self.ms * 2.0 >= bins.step_ms as f64).then_some(self.sum)
    }

    /// By the milliseconds that are known.
    fn per_ms(self, bins: WindowBins) -> Option<f64> {
        Some(self.known(bins)? / self.ms)
    }
}

impl HostBin {
    fn add(&mut self, sample: &HostSample, part: Part) {
        if let Some(time) = sample.processor {
            let used = time.user.saturating_add(time.system);
            part.add(&mut self.processor_used, used.saturating_add(time.stolen));
            self.processor_ticks += part.of(time.total());
        }
        let add = |pressure: Option<Pressure>, some: Option<&mut Tally>, full: &mut Tally| {
            let Some(Pressure { some_us, full_us }) = pressure else {
                return;
            };
            if let Some(some) = some {
                part.add(some, some_us);
            }
            part.add(full, full_us);
        };
        let pressure = sample.pressure;
        add(pressure.memory, None, &mut self.memory_full_us);
        add(
            pressure.io,
            Some(&mut self.io_some_us),
            &mut self.io_full_us,
        );
        if let Some(process) = sample.process {
            let join = |one: Option<f64>, other: Option<u64>, join: fn(f64, f64) -> f64| {
                let other = other.map(|other| other as f64);
                one.into_iter().chain(other).reduce(join)
            };
            self.open_files = join(self.open_files, process.open_files, f64::max);
            self.open_files_max = join(self.open_files_max, process.open_files_max, f64::min);
        }
        for database in &sample.databases {
            let bin = match database.kind {
                DatabaseKind::Journal => &mut self.journal,
                DatabaseKind::Namespace => &mut self.namespace,
            };
            bin.add(&database.activity, part);
        }
    }
}

impl DatabaseBin {
    fn add(&mut self, done: &DatabaseActivity, part: Part) {
        self.operations += part.of(done.operations);
        self.operation_us += part.of(done.operation_us);
        self.transactions += part.of(done.transactions);
        self.transaction_us += part.of(done.transaction_us);
        // One that has not ended is counted when it does.
        let ms = part.ms / part.share.max(f64::MIN_POSITIVE);
        let running = (done.running_us as f64).min(ms * 1000.0);
        let busy = (done.transaction_us as f64).max(running).min(ms * 1000.0);
        self.busy_us.sum += busy * part.share;
        self.busy_us.ms += part.ms;
        part.add(&mut self.queued_us, done.queued_us);
        self.running_us = self.running_us.max(done.running_us as f64);
    }

    fn operation_seconds(&self) -> Option<f64> {
        self.seconds(self.operations, self.operation_us)
    }

    fn transaction_seconds(&self) -> Option<f64> {
        self.seconds(self.transactions, self.transaction_us)
    }

    /// The mean of those that ended; while none does, for how long one has lasted.
    fn seconds(&self, count: f64, us: f64) -> Option<f64> {
        match count > 0.0 {
            true => Some(us / count / 1e6),
            false => (self.running_us > 0.0).then_some(self.running_us / 1e6),
        }
    }
}

#[cfg(test)]
mod tests;
