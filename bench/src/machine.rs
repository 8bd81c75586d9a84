//! On what, from which commit and how the figures were made.

use std::path::Path;
use std::process::Command;

/// What stands above every result.
#[derive(Debug)]
pub struct Circumstances {
    /// As typed.
    pub command: String,
    /// Short hash, with a mark when the tree was changed.
    pub commit: String,
    /// UTC.
    pub date: String,
    /// Cores, processor, memory, kernel.
    pub machine: String,
    /// Load average of the last minute before the start.
    pub load: String,
}

impl Circumstances {
    /// Of this moment.
    pub fn now() -> Circumstances {
        Circumstances {
            command: std::env::args().collect::<Vec<_>>().join(" "),
            commit: commit(),
            date: date(),
            machine: machine(),
            load: first_word("/proc/loadavg"),
        }
    }
}

/// What the cores of a virtual machine have done since it started, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostClock {
    all: u64,
    /// Its host gave them to others, while something here wanted to run.
    stolen: u64,
}

impl HostClock {
    /// As of now; `None` where the kernel does not tell.
    pub fn now() -> Option<HostClock> {
        parse_host(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// Which part of the time since then the host gave to others, from 0 to 1.
    pub fn stolen_since(self, then: HostClock) -> f64 {
        let all = self.all.saturating_sub(then.all);
        self.stolen.saturating_sub(then.stolen) as f64 / all.max(1) as f64
    }
}

/// proc(5), /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. What follows is counted in the first two.
fn parse_host(text: &str) -> Option<HostClock> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .map_while(|ticks| ticks.parse().ok())
        .take(8)
        .collect();
    Some(HostClock {
        all: ticks.iter().sum(),
        stolen: *ticks.get(7)?,
    })
}

fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(hash) = git(&["rev-parse", "--short=10", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => hash,
        _ => format!("{hash} with local changes"),
    }
}

fn date() -> String {
    penstock_clock::wall_clock().to_fts()
}

fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |text| {
        text.trim_start_matches([' ', '\t', ':'])
    });
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|text| text.trim().strip_suffix("kB")?.trim().parse().ok())
        .unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = first_word("/proc/sys/kernel/osrelease");
    format!(
        "{cores} cores ({model}), {} GB memory, Linux {kernel}",
        kibibytes * 1024 / 1_000_000_000
    )
}

fn first_word(path: &str) -> String {
    let text = std::fs::read_to_string(Path::new(path)).unwrap_or_default();
    text.split_whitespace()
        .next()
        .unwrap_or("unknown")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_took_is_a_part_of_all_time() {
        let clock = |stolen: u64| {
            let text = format!("cpu  10 0 20 60 5 0 5 {stolen} 7 0\ncpu0 1 2 3\n");
            parse_host(&text).expect("valid")
        };
        let (then, now) = (clock(0), clock(25));
        assert_eq!((then.all, now.all), (100, 125));
        assert_eq!(now.stolen_since(then), 1.0);
        assert_eq!(then.stolen_since(then), 0.0);
        assert_eq!(parse_host("intr 5"), None);
        assert!(HostClock::now().is_some());
    }
}
