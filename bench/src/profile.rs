//! Where the CPU time goes: `perf` beside an extra phase that is not counted, its text report beside the results.

use crate::error::{BenchError, doing};
use crate::work_directory::run;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Samples per second and CPU.
const FREQUENCY: &str = "499";

/// Rows of each table.
const ROWS_MAX: usize = 60;
/// Per process: title, order, what makes a row. Shares are of all samples, so processes can be compared.
const TABLES: [(&str, &str, &str); 3] = [
    ("by thread", "--no-children", "comm"),
    ("by function, itself", "--no-children", "dso,symbol"),
    ("by function, with what it called", "--children", "symbol"),
];

/// A running `perf record`.
pub struct Profiler {
    processes: Vec<(&'static str, u32)>,
    recorder: Child,
    data: PathBuf,
}

impl Profiler {
    /// Begins to sample processes; the samples lie in `dir`.
    pub fn start(
        processes: &[(&'static str, u32)],
        dir: &Path,
        name: &str,
    ) -> Result<Profiler, BenchError> {
        let data = dir.join(format!("{name}.perf"));
        let ids: Vec<String> = processes.iter().map(|(_, id)| id.to_string()).collect();
        let recorder = Command::new("perf")
            .args([
                "record",
                "-q",
                "-g",
                "-F",
                FREQUENCY,
                "-p",
                &ids.join(","),
                "-o",
            ])
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .or_else(doing("perf (Debian: apt-get install linux-perf)"))?;
        Ok(Profiler {
            processes: processes.to_vec(),
            recorder,
            data,
        })
    }

    /// Ends sampling and writes tables for each process to `report`.
    pub fn finish(mut self, report: &Path) -> Result<(), BenchError> {
        if let Some(pid) = i32::try_from(self.recorder.id())
            .ok()
            .and_then(Pid::from_raw)
        {
            kill_process(pid, Signal::INT)
                .map_err(std::io::Error::from)
                .or_else(doing("perf cannot be told to end"))?;
        }
        self.recorder.wait().or_else(doing("perf"))?;
        let mut text = String::new();
        for (name, id) in &self.processes {
            for (title, order, key) in TABLES {
                let mut command = Command::new("perf");
                command.args(["report", "--stdio", "-g", "none", "--percent-limit", "0.5"]);
                command.args(["--pid", &id.to_string(), "--sort", key, order, "-i"]);
                let table = run(command.arg(&self.data))?;
                let rows = table
                    .lines()
                    .filter(|line| !line.starts_with('#') && !line.is_empty());
                let rows: Vec<&str> = rows.map(str::trim_end).take(ROWS_MAX).collect();
                text += &format!("## {name}: {title}\n{}\n\n", rows.join("\n"));
            }
        }
        std::fs::write(report, text).or_else(doing(format!("{}", report.display())))
    }
}
