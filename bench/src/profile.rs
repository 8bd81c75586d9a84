//! Where the CPU time goes: `perf` beside an extra phase that is not counted, its text report beside the
//! results.

use crate::error::{BenchError, doing};
use crate::process::cpu_used;
use crate::work_directory::run;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Samples per second and CPU.
const FREQUENCY: &str = "499";
/// Rows of each table.
const ROWS_MAX: usize = 70;
/// Per process: title, order, what makes a row.
const TABLES: [(&str, &str, &str); 3] = [
    ("by thread", "--no-children", "comm"),
    ("by function, itself", "--no-children", "dso,symbol"),
    ("by function, with what it called", "--children", "symbol"),
];

/// Running `perf record`s, one for each process: a common one would mix equal functions of different
/// processes.
pub struct Profiler(Vec<Recorder>);

struct Recorder {
    name: &'static str,
    process: u32,
    used_before: Duration,
    child: Child,
    data: PathBuf,
}

impl Profiler {
    /// Begins to sample processes; the samples lie in `dir`.
    pub fn start(
        processes: &[(&'static str, u32)],
        dir: &Path,
        cell: &str,
    ) -> Result<Profiler, BenchError> {
        let mut recorders = Vec::new();
        for (name, process) in processes {
            let data = dir.join(format!("{cell}-{process}.perf"));
            let child = Command::new("perf")
                .args([
                    "record",
                    "-q",
                    "-g",
                    "-F",
                    FREQUENCY,
                    "-p",
                    &process.to_string(),
                    "-o",
                ])
                .arg(&data)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .or_else(doing("perf (Debian: apt-get install linux-perf)"))?;
            recorders.push(Recorder {
                name,
                process: *process,
                used_before: cpu_used(&[*process]),
                child,
                data,
            });
        }
        Ok(Profiler(recorders))
    }

    /// Ends sampling and writes tables for each process to `report`.
    pub fn finish(self, report: &Path) -> Result<(), BenchError> {
        let mut text = String::new();
        for recorder in self.0 {
            text += &recorder.finish()?;
        }
        std::fs::write(report, text).or_else(doing(format!("{}", report.display())))
    }
}

impl Recorder {
    fn finish(mut self) -> Result<String, BenchError> {
        let used = cpu_used(&[self.process]).saturating_sub(self.used_before);
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::INT)
                .map_err(std::io::Error::from)
                .or_else(doing("perf cannot be told to end"))?;
        }
        self.child.wait().or_else(doing("perf"))?;
        let mut text = format!("# {}: {:.2} CPU seconds\n\n", self.name, used.as_secs_f64());
        for (title, order, key) in TABLES {
            let mut command = Command::new("perf");
            command.args(["report", "--stdio", "-g", "none", "--percent-limit", "0.5"]);
            command.args(["--sort", key, order, "-i"]).arg(&self.data);
            let table = run(&mut command)?;
            let rows = table
                .lines()
                .filter(|line| !line.starts_with('#') && !line.is_empty());
            let rows: Vec<&str> = rows.map(str::trim_end).take(ROWS_MAX).collect();
            text += &format!("## {}: {title}\n{}\n\n", self.name, rows.join("\n"));
        }
        Ok(text)
    }
}
