//! On what, from which commit and how the figures were made.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

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
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    penstock_model::Timestamp(i64::try_from(since.as_millis()).unwrap_or_default()).to_fts()
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
