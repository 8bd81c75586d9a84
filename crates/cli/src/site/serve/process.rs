//! The process itself, under the names that every Prometheus client library uses.

use penstock_model::Timestamp;
use penstock_protocol::exposition::Page;
use rustix::process::{Resource, getrlimit};
use std::os::unix::fs::MetadataExt;

/// Adds what Linux tells of this process; what it does not tell is left out.
pub fn write(page: &mut Page, started: Timestamp) {
    let mut family = page.gauge("process_start_time_seconds", "When it started, since 1970.");
    family.sample(&[], started.0 as f64 / 1000.0);
    if let Some(seen) = ProcessUsage::look() {
        let mut family = page.counter(
            "process_cpu_seconds_total",
            "Processor time, of user and system.",
        );
        family.sample(&[], seen.cpu_seconds);
        let mut family = page.gauge("process_resident_memory_bytes", "Memory in use.");
        family.sample(&[], seen.resident_bytes);
        let mut family = page.gauge("process_threads", "Threads.");
        family.sample(&[], seen.threads);
    }
    // Linux tells their number as the directory's size, since 6.2.
    let open = std::fs::metadata("/proc/self/fd").map(|found| found.size());
    if let Some(open) = open.ok().filter(|open| *open > 0) {
        let mut family = page.gauge("process_open_fds", "Open files, connections among them.");
        family.sample(&[], open);
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        let mut family = page.gauge("process_max_fds", "Their maximum number.");
        family.sample(&[], most);
    }
}

struct ProcessUsage {
    cpu_seconds: f64,
    threads: u64,
    resident_bytes: u64,
}

impl ProcessUsage {
    fn look() -> Option<ProcessUsage> {
        ProcessUsage::parse(&std::fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// proc_pid_stat(5). The name, in parentheses, may hold anything.
    fn parse(stat: &str) -> Option<ProcessUsage> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        // Counted from the third, which is the first after the name.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        Some(ProcessUsage {
            cpu_seconds: (field(14)? + field(15)?) as f64 / ticks as f64,
            threads: field(20)?,
            resident_bytes: field(24)?.saturating_mul(rustix::param::page_size() as u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 11 0 100 1000 3 18446744073709551615";
        let seen = ProcessUsage::parse(stat).expect("parsed");
        assert_eq!((seen.threads, seen.resident_bytes % 3), (11, 0));
        assert!(seen.cpu_seconds > 0.0);
        assert!(ProcessUsage::parse("7 (a) S 1").is_none());
        assert!(ProcessUsage::look().is_some_and(|seen| seen.resident_bytes > 1 << 20));
    }
}
