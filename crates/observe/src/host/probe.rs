//! Reads what the kernel counts, with few calls: files stay open and are read anew from their beginning.

use super::disks::DiskActivity;
use super::interfaces::InterfaceTraffic;
use super::machine::Machine;
use super::proc_text::FormatError;
use super::sample::{HostTotals, Pressures, ProcessUse};
use super::{disks, interfaces, memory, pressure, process, processor, tcp};
use penstock_clock::wall_clock;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// A file of the kernel that stays open.
struct KernelFile {
    path: PathBuf,
    name: &'static str,
    file: Option<File>,
}

/// Reads totals, with as few calls of the system as there are pages to read.
pub struct Probe {
    root: PathBuf,
    files: Vec<KernelFile>,
    buffer: Vec<u8>,
    begun: Instant,
    tick_us: u64,
    page_bytes: u64,
    disks: Vec<Arc<str>>,
    interfaces: Vec<Arc<str>>,
    can_count_files: bool,
    failed: BTreeSet<&'static str>,
    calls: u64,
}

const STAT: usize = 0;
const MEMINFO: usize = 1;
const PRESSURE_CPU: usize = 2;
const PRESSURE_MEMORY: usize = 3;
const PRESSURE_IO: usize = 4;
const DISKSTATS: usize = 5;
const NET_DEV: usize = 6;
const SNMP: usize = 7;
const NETSTAT: usize = 8;
const SELF_STAT: usize = 9;
const SCHEDSTAT: usize = 10;
const FILES: [&str; 11] = [
    "proc/stat",
    "proc/meminfo",
    "proc/pressure/cpu",
    "proc/pressure/memory",
    "proc/pressure/io",
    "proc/diskstats",
    "proc/net/dev",
    "proc/net/snmp",
    "proc/net/netstat",
    "proc/self/stat",
    "proc/thread-self/schedstat",
];

impl Probe {
    /// Files below `root` are opened when they are first read.
    pub fn new(root: &Path) -> Probe {
        let files = FILES.into_iter().map(|name| KernelFile {
            path: root.join(name),
            name,
            file: None,
        });
        Probe {
            root: root.to_owned(),
            files: files.collect(),
            buffer: vec![0; 16 << 10],
            begun: Instant::now(),
            tick_us: 1_000_000 / rustix::param::clock_ticks_per_second().max(1),
            page_bytes: rustix::param::page_size() as u64,
            disks: Vec::new(),
            interfaces: Vec::new(),
            can_count_files: true,
            failed: BTreeSet::new(),
            calls: 0,
        }
    }

    /// From now on these disks and interfaces; files that could not be read are tried again.
    pub fn follow(&mut self, machine: &Machine) {
        let disks = machine.disks.iter();
        self.disks = disks.map(|disk| disk.name.as_str().into()).collect();
        let interfaces = machine.interfaces.iter();
        self.interfaces = interfaces.map(|one| one.name.as_str().into()).collect();
        self.failed.clear();
    }

    /// Calls of the system so far.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Files that could not be read since they were last tried.
    pub fn unreadable(&self) -> impl Iterator<Item = String> {
        self.failed.iter().map(|name| format!("/{name}"))
    }

    /// The totals as they stand.
    pub fn read(&mut self) -> HostTotals {
        let (at, uptime) = (wall_clock(), self.begun.elapsed());
        HostTotals {
            at,
            uptime,
            processor: self.parsed(STAT, processor::parse).map(|stat| stat.time),
            memory: self.parsed(MEMINFO, memory::parse),
            pressure: Pressures {
                cpu: self.parsed(PRESSURE_CPU, pressure::parse),
                memory: self.parsed(PRESSURE_MEMORY, pressure::parse),
                io: self.parsed(PRESSURE_IO, pressure::parse),
            },
            disks: self.disks(),
            interfaces: self.interfaces(),
            process: self.process(),
            tcp: self.tcp(),
            databases: Vec::new(),
        }
    }

    fn disks(&mut self) -> Vec<(Arc<str>, DiskActivity)> {
        let wanted = std::mem::take(&mut self.disks);
        let found = self.parsed(DISKSTATS, |text| {
            let lines = disks::parse(text)?;
            let of = |name: &Arc<str>| {
                let line = lines.iter().find(|line| line.name == &**name)?;
                Some((name.clone(), line.activity))
            };
            Ok(wanted.iter().filter_map(of).collect())
        });
        self.disks = wanted;
        found.unwrap_or_default()
    }

    fn interfaces(&mut self) -> Vec<(Arc<str>, InterfaceTraffic)> {
        let wanted = std::mem::take(&mut self.interfaces);
        let found = self.parsed(NET_DEV, |text| {
            let rows = interfaces::parse(text)?;
            let of = |name: &Arc<str>| {
                let row = rows.iter().find(|(one, _)| *one == &**name)?;
                Some((name.clone(), row.1))
            };
            Ok(wanted.iter().filter_map(of).collect())
        });
        self.interfaces = wanted;
        found.unwrap_or_default()
    }

    fn process(&mut self) -> Option<ProcessUse> {
        let stat = self.parsed(SELF_STAT, process::parse_stat)?;
        Some(ProcessUse {
            processor_us: stat.ticks.saturating_mul(self.tick_us),
            resident_bytes: stat.resident_pages.saturating_mul(self.page_bytes),
            threads: stat.threads,
            open_files: self.open_files(),
            open_files_max: getrlimit(Resource::Nofile).current,
        })
    }

    /// Linux tells their number as the directory's size, since 6.2. To count them would take as long as there are many.
    fn open_files(&mut self) -> Option<u64> {
        if !self.can_count_files {
            return None;
        }
        self.calls += 1;
        let size = std::fs::metadata(self.root.join("proc/self/fd")).map(|found| found.len());
        let count = size.ok().filter(|count| *count > 0);
        self.can_count_files = count.is_some();
        count
    }

    fn tcp(&mut self) -> Option<tcp::TcpActivity> {
        let segments = self.parsed(SNMP, tcp::parse_snmp)?;
        let others = self.parsed(NETSTAT, tcp::parse_netstat);
        Some(segments.plus(others.unwrap_or_default()))
    }

    /// Processor time of this thread so far, in nanoseconds.
    pub fn processor_ns(&mut self) -> Option<u64> {
        self.parsed(SCHEDSTAT, |text| {
            let text = String::from_utf8_lossy(text);
            let first = text.split_ascii_whitespace().next();
            first.and_then(|word| word.parse().ok()).ok_or(FormatError {
                file: "/proc/thread-self/schedstat",
                expected: "a number first",
            })
        })
    }

    /// What a file says; one that failed is left alone until it is tried again.
    fn parsed<T>(
        &mut self,
        at: usize,
        parse: impl Fn(&[u8]) -> Result<T, FormatError>,
    ) -> Option<T> {
        let name = self.files[at].name;
        if self.failed.contains(name) {
            return None;
        }
        let length = self.fill(at);
        let parsed =
            length.and_then(|length| parse(&self.buffer[..length]).map_err(io::Error::other));
        match parsed {
            Ok(value) => Some(value),
            Err(why) => {
                tracing::debug!(%why, name, "a file of the kernel cannot be read");
                self.files[at].file = None;
                self.failed.insert(name);
                None
            }
        }
    }

    /// Reads a whole file into the buffer. The kernel gives a page or so for each call, and nothing at the end.
    fn fill(&mut self, at: usize) -> io::Result<usize> {
        let kernel_file = &mut self.files[at];
        let file = match kernel_file.file.take() {
            Some(file) => file,
            None => {
                self.calls += 1;
                File::open(&kernel_file.path)?
            }
        };
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                self.buffer.resize(length * 2, 0);
            }
            self.calls += 1;
            match file.read_at(&mut self.buffer[length..], length as u64)? {
                0 => break,
                read => length += read,
            }
        }
        self.files[at].file = Some(file);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{declared, host};
    use super::super::machine::{self, HostDeclaration};
    use super::super::rings::Seconds;
    use super::*;
    use std::fs;
    use std::time::Duration;

    /// Two calls for each file, and three for those whose tables fill more than a page here.
    const CALLS_PER_TICK_MAX: u64 = 36;
    /// 0.2 % of a processor.
    const TICK_MAX: Duration = Duration::from_millis(2);

    fn own_processor_time() -> Duration {
        let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
        let spent = text
            .split_ascii_whitespace()
            .next()
            .and_then(|word| word.parse().ok());
        Duration::from_nanos(spent.expect("a number"))
    }

    #[test]
    fn a_tick_takes_few_calls_and_little_time() {
        let mut probe = Probe::new(Path::new("/"));
        probe.follow(&machine::look(Path::new("/"), &HostDeclaration::default()));
        let mut last = probe.read();
        let mut ring = Seconds::default();
        let (calls, spent) = (probe.calls(), own_processor_time());
        let ticks = 200;
        for _ in 0..ticks {
            let reading = probe.read();
            ring.push(reading.since(&last));
            last = reading;
        }
        let calls = (probe.calls() - calls) / u64::from(ticks);
        let spent = (own_processor_time() - spent) / ticks;
        println!("{calls} calls and {spent:?} of a processor for each tick");
        assert!(calls <= CALLS_PER_TICK_MAX, "{calls} calls");
        assert!(spent < TICK_MAX, "{spent:?}");
    }

    #[test]
    fn a_file_that_is_missing_is_tried_again_after_the_next_look_only() {
        let root = host();
        let mut probe = Probe::new(root.path());
        let machine = machine::look(root.path(), &declared(&[]));
        probe.follow(&machine);
        let first = probe.read();
        assert_eq!((first.pressure.io, first.disks.len()), (None, 2));
        let unreadable: Vec<String> = probe.unreadable().collect();
        assert!(
            unreadable.contains(&"/proc/pressure/io".to_owned()),
            "{unreadable:?}"
        );
        fs::create_dir_all(root.path().join("proc/pressure")).expect("made");
        fs::write(root.path().join("proc/pressure/io"), "some total=5\n").expect("written");
        assert_eq!(probe.read().pressure.io, None);
        probe.follow(&machine);
        assert_eq!(probe.read().pressure.io.map(|io| io.some_us), Some(5));
    }
}
