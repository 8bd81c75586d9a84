//! What a host did in an interval, and how intervals are put together: seconds to minutes, minutes to a window.
//!
//! What is counted adds up; of what goes up and down the worst stands, because that is what explains a drop.

use super::databases::{DatabaseKind, DatabaseSample, DatabaseTotals};
use super::disks::DiskActivity;
use super::interfaces::InterfaceTraffic;
use super::memory::Memory;
use super::part::Part;
use super::pressure::Pressure;
use super::processor::ProcessorTime;
use super::tcp::TcpActivity;
use penstock_model::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Totals as they stood at a moment. What could not be read is not there.
#[derive(Debug, Clone, Default)]
pub struct HostTotals {
    /// By the wall clock.
    pub at: Timestamp,
    /// By a clock that does not leap.
    pub uptime: Duration,
    pub processor: Option<ProcessorTime>,
    pub memory: Option<Memory>,
    /// Of processors, memory and disks.
    pub pressure: Pressures,
    /// By name.
    pub disks: Vec<(Arc<str>, DiskActivity)>,
    /// By name.
    pub interfaces: Vec<(Arc<str>, InterfaceTraffic)>,
    pub process: Option<ProcessUse>,
    /// Of the whole host.
    pub tcp: Option<TcpActivity>,
    /// Of the process that samples.
    pub databases: Vec<(DatabaseKind, DatabaseTotals)>,
}

/// Pressure on the three resources of which the kernel tells it; what it does not tell is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pressures {
    /// On processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Pressure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Pressure>,
    /// On disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<Pressure>,
}

impl Pressures {
    fn with(self, other: Pressures, join: fn(Pressure, Pressure) -> Pressure) -> Pressures {
        Pressures {
            cpu: joined(self.cpu, other.cpu, join),
            memory: joined(self.memory, other.memory, join),
            io: joined(self.io, other.io, join),
        }
    }

    fn since(self, earlier: Pressures) -> Pressures {
        let both = |now: Option<Pressure>, then: Option<Pressure>| Some(now?.since(then?));
        Pressures {
            cpu: both(self.cpu, earlier.cpu),
            memory: both(self.memory, earlier.memory),
            io: both(self.io, earlier.io),
        }
    }
}

/// What the process used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessUse {
    /// Processor time of all threads, in microseconds.
    pub processor_us: u64,
    /// Memory: the most that was seen.
    pub resident_bytes: u64,
    /// Threads: the most that were seen.
    pub threads: u64,
    /// Open files, connections among them: the most that were seen. `None` where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// How many might be open: the least that was seen. `None` where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files_max: Option<u64>,
}

impl ProcessUse {
    fn plus(self, other: ProcessUse) -> ProcessUse {
        ProcessUse {
            processor_us: self.processor_us.saturating_add(other.processor_us),
            resident_bytes: self.resident_bytes.max(other.resident_bytes),
            threads: self.threads.max(other.threads),
            open_files: self.open_files.max(other.open_files),
            open_files_max: joined(self.open_files_max, other.open_files_max, u64::min),
        }
    }
}

/// A disk in an interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSample {
    /// As the kernel names it.
    pub name: Arc<str>,
    /// What it did.
    pub activity: DiskActivity,
}

/// An interface in an interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceSample {
    /// As the kernel names it.
    pub name: Arc<str>,
    /// What it carried.
    pub traffic: InterfaceTraffic,
    /// Bytes that came in the fullest second.
    pub received_bytes_per_second_max: u64,
    /// Bytes that went in the fullest second.
    pub sent_bytes_per_second_max: u64,
}

/// What a host did in an interval.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostSample {
    /// When the interval began.
    pub from: Timestamp,
    /// How much of it was sampled, in microseconds: what all sums are of.
    pub covered_us: u64,
    /// Of all processors, in ticks of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<ProcessorTime>,
    /// The worst of the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// For how long tasks stood still.
    #[serde(default)]
    pub pressure: Pressures,
    /// By name.
    #[serde(default)]
    pub disks: Vec<DiskSample>,
    /// By name.
    #[serde(default)]
    pub interfaces: Vec<InterfaceSample>,
    /// Of the process that samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessUse>,
    /// Of the whole host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpActivity>,
    /// Of the process that samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<DatabaseSample>,
}

/// Both where both are known, the known one otherwise.
fn joined<T>(one: Option<T>, other: Option<T>, join: impl Fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(join(one, other)),
        (one, other) => one.or(other),
    }
}

impl HostTotals {
    /// What happened since an earlier reading. What is missing in either is not in the sample; a disk or interface that
    /// has come meanwhile is in the next one.
    pub fn since(&self, earlier: &HostTotals) -> HostSample {
        let covered = self.uptime.saturating_sub(earlier.uptime);
        let covered_us = u64::try_from(covered.as_micros()).unwrap_or(u64::MAX);
        let per_second = |bytes: u64| {
            let rate = u128::from(bytes) * 1_000_000 / u128::from(covered_us.max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let disks = self.disks.iter().filter_map(|(name, now)| {
            Some(DiskSample {
                name: name.clone(),
                activity: now.since(*named(&earlier.disks, name)?),
            })
        });
        let interfaces = self.interfaces.iter().filter_map(|(name, now)| {
            let traffic = now.since(*named(&earlier.interfaces, name)?);
            Some(InterfaceSample {
                name: name.clone(),
                traffic,
                received_bytes_per_second_max: per_second(traffic.received_bytes),
                sent_bytes_per_second_max: per_second(traffic.sent_bytes),
            })
        });
        let databases = self.databases.iter().filter_map(|(kind, now)| {
            let earlier = earlier.databases.iter().find(|(one, _)| one == kind)?;
            Some(DatabaseSample {
                kind: *kind,
                activity: now.since(earlier.1, covered_us),
            })
        });
        let both =
            |now: Option<ProcessorTime>, then: Option<ProcessorTime>| Some(now?.since(then?));
        HostSample {
            from: earlier.at,
            covered_us,
            processor: both(self.processor, earlier.processor),
            memory: self.memory,
            pressure: self.pressure.since(earlier.pressure),
            disks: disks.collect(),
            interfaces: interfaces.collect(),
            process: self
                .process
                .zip(earlier.process)
                .map(|(now, then)| ProcessUse {
                    processor_us: now.processor_us.saturating_sub(then.processor_us),
                    ..now
                }),
            tcp: self.tcp.zip(earlier.tcp).map(|(now, then)| now.since(then)),
            databases: databases.collect(),
        }
    }
}

fn named<'a, T>(all: &'a [(Arc<str>, T)], name: &str) -> Option<&'a T> {
    let found = all.iter().find(|(one, _)| **one == *name);
    found.map(|(_, value)| value)
}

impl HostSample {
    /// When it ends, if nothing of it is missing.
    pub fn until(&self) -> Timestamp {
        self.from + self.covered()
    }

    /// How much time it speaks of.
    pub fn covered(&self) -> Duration {
        Duration::from_micros(self.covered_us)
    }

    /// What lies before a moment, and what is left. What is counted is taken to be spread evenly: after readings that were
    /// missed an interval is long, and a part of it belongs to the minute before. `None`: all of it lies on one side.
    pub fn split_at(&self, at: Timestamp) -> Option<(HostSample, HostSample)> {
        let before_us = u64::try_from(at.0.checked_sub(self.from.0)?)
            .ok()?
            .checked_mul(1000)?;
        if before_us == 0 || before_us >= self.covered_us {
            return None;
        }
        let before = self.part(self.from, before_us);
        let mut after = self.part(at, self.covered_us - before_us);
        // What rounding took from one is in the other.
        after.subtract_from(self, &before);
        Some((before, after))
    }

    fn part(&self, from: Timestamp, us: u64) -> HostSample {
        let part = Part {
            us,
            of_us: self.covered_us,
        };
        let mut of = self.clone();
        of.from = from;
        of.covered_us = us;
        of.processor = of.processor.map(|time| time.part(part));
        let pressure = |of: Option<Pressure>| of.map(|pressure| pressure.part(part));
        of.pressure = Pressures {
            cpu: pressure(of.pressure.cpu),
            memory: pressure(of.pressure.memory),
            io: pressure(of.pressure.io),
        };
        for disk in &mut of.disks {
            disk.activity = disk.activity.part(part);
        }
        for interface in &mut of.interfaces {
            interface.traffic = interface.traffic.part(part);
        }
        if let Some(process) = &mut of.process {
            process.processor_us = part.of(process.processor_us);
        }
        of.tcp = of.tcp.map(|tcp| tcp.part(part));
        for database in &mut of.databases {
            database.activity = database.activity.part(part);
        }
        of
    }

    /// Makes this what is left of a whole when a part of it is taken away.
    fn subtract_from(&mut self, whole: &HostSample, part: &HostSample) {
        let processors = whole.processor.zip(part.processor);
        self.processor = processors.map(|(all, part)| all.since(part));
        self.pressure = whole.pressure.since(part.pressure);
        for (own, (all, part)) in self
            .disks
            .iter_mut()
            .zip(whole.disks.iter().zip(&part.disks))
        {
            own.activity = all.activity.since(part.activity);
        }
        let both = whole.interfaces.iter().zip(&part.interfaces);
        for (own, (all, part)) in self.interfaces.iter_mut().zip(both) {
            own.traffic = all.traffic.since(part.traffic);
        }
        if let (Some(own), Some(all), Some(part)) = (&mut self.process, whole.process, part.process)
        {
            own.processor_us = all.processor_us.saturating_sub(part.processor_us);
        }
        self.tcp = whole.tcp.zip(part.tcp).map(|(all, part)| all.since(part));
        let both = whole.databases.iter().zip(&part.databases);
        for (own, (all, part)) in self.databases.iter_mut().zip(both) {
            own.activity = all.activity.without(part.activity);
        }
    }

    /// Adds another interval, whichever came first.
    pub fn add(&mut self, other: &HostSample) {
        if self.covered_us == 0 || other.from < self.from {
            self.from = other.from;
        }
        self.covered_us = self.covered_us.saturating_add(other.covered_us);
        self.processor = joined(self.processor, other.processor, ProcessorTime::plus);
        self.memory = joined(self.memory, other.memory, Memory::worse);
        self.pressure = self.pressure.with(other.pressure, Pressure::plus);
        self.process = joined(self.process, other.process, ProcessUse::plus);
        self.tcp = joined(self.tcp, other.tcp, TcpActivity::plus);
        for disk in &other.disks {
            match self.disks.iter_mut().find(|one| one.name == disk.name) {
                Some(known) => known.activity = known.activity.plus(disk.activity),
                None => self.disks.push(disk.clone()),
            }
        }
        for new in &other.databases {
            match self.databases.iter_mut().find(|one| one.kind == new.kind) {
                Some(known) => known.activity = known.activity.plus(new.activity),
                None => self.databases.push(*new),
            }
        }
        for new in &other.interfaces {
            match self.interfaces.iter_mut().find(|one| one.name == new.name) {
                Some(known) => known.add(new),
                None => self.interfaces.push(new.clone()),
            }
        }
    }

    /// The share of a time in what was sampled, 0 to 1.
    pub fn share_of(&self, microseconds: u64) -> f64 {
        (microseconds as f64 / self.covered_us.max(1) as f64).min(1.0)
    }

    /// How much of something there was per second.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 * 1e6 / self.covered_us.max(1) as f64
    }
}

impl InterfaceSample {
    fn add(&mut self, other: &InterfaceSample) {
        self.traffic = self.traffic.plus(other.traffic);
        let received = other.received_bytes_per_second_max;
        self.received_bytes_per_second_max = self.received_bytes_per_second_max.max(received);
        let sent = other.sent_bytes_per_second_max;
        self.sent_bytes_per_second_max = self.sent_bytes_per_second_max.max(sent);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A second of one disk and one interface.
    pub fn second(at: i64, bytes: u64) -> HostSample {
        reading_with(at + 1000, 7 + bytes, bytes).since(&reading_with(at, 7, bytes))
    }

    /// What stood at a moment of one disk and one interface.
    pub fn reading(at: i64, total: u64) -> HostTotals {
        reading_with(at, total, 0)
    }

    fn reading_with(at: i64, total: u64, taken_memory: u64) -> HostTotals {
        HostTotals {
            at: Timestamp(at),
            uptime: Duration::from_millis(at.unsigned_abs()),
            pressure: Pressures {
                io: Some(Pressure {
                    some_us: total,
                    full_us: 0,
                }),
                ..Pressures::default()
            },
            memory: Some(Memory {
                total_bytes: 1000,
                available_bytes: 1000 - taken_memory.min(1000),
                ..Memory::default()
            }),
            disks: vec![(
                "vda".into(),
                DiskActivity {
                    written_bytes: total,
                    ..DiskActivity::default()
                },
            )],
            interfaces: vec![(
                "eth0".into(),
                InterfaceTraffic {
                    received_bytes: total,
                    ..InterfaceTraffic::default()
                },
            )],
            ..HostTotals::default()
        }
    }

    #[test]
    fn both_parts_of_an_interval_are_all_of_it() {
        let whole = second(59_700, 1001);
        let (before, after) = whole
            .split_at(Timestamp(60_000))
            .expect("it lies on both sides");
        assert_eq!((before.from.0, before.covered_us), (59_700, 300_000));
        assert_eq!((after.from.0, after.covered_us), (60_000, 700_000));
        assert_eq!(before.disks[0].activity.written_bytes, 300);
        assert_eq!(after.interfaces[0].traffic.received_bytes, 701);
        let mut both = before;
        both.add(&after);
        assert_eq!(both, whole);
        for outside in [0, 59_700, 60_700, 90_000] {
            assert_eq!(whole.split_at(Timestamp(outside)), None, "{outside}");
        }
    }

    #[test]
    fn seconds_add_up_and_the_fullest_one_and_the_worst_stand() {
        let mut minute = HostSample::default();
        minute.add(&second(62_000, 300));
        minute.add(&second(61_000, 500));
        assert_eq!((minute.from.0, minute.covered_us), (61_000, 2_000_000));
        assert_eq!(minute.disks[0].activity.written_bytes, 800);
        assert_eq!(minute.interfaces[0].traffic.received_bytes, 800);
        assert_eq!(minute.interfaces[0].received_bytes_per_second_max, 500);
        assert_eq!(minute.memory.expect("read").available_bytes, 500);
        assert_eq!(minute.share_of(800), 0.0004);
        assert_eq!(minute.processor, None);
    }

    #[test]
    fn what_came_between_two_readings_is_in_no_sample_yet() {
        let old = HostTotals::default();
        let new = HostTotals {
            uptime: Duration::from_secs(1),
            disks: vec![("vdb".into(), DiskActivity::default())],
            ..HostTotals::default()
        };
        assert_eq!(new.since(&old).disks, []);
        assert_eq!(new.since(&new).disks.len(), 1);
    }

    #[test]
    fn a_sample_is_read_as_it_was_written() {
        let sample = second(1000, 5);
        let text = serde_json::to_string(&sample).expect("serialisable");
        let read: HostSample = serde_json::from_str(&text).expect("readable");
        assert_eq!(read, sample);
        let smallest: HostSample =
            serde_json::from_str(r#"{"from":1,"covered_us":2}"#).expect("readable");
        assert_eq!(smallest.until(), Timestamp(1));
    }
}
