//! Where the CPU time goes: `perf` beside an extra phase that is not counted, its text report beside the results.

use crate::error::{BenchError, doing};
use crate::work_directory::run;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Samples per second and CPU.
const FREQUENCY: &str = "499";

/// A running `perf record`.
pub struct Profiler {
    recorder: Child,
    data: PathBuf,
}

impl Profiler {
    /// Begins to sample processes; the samples lie in `dir`.
    pub fn start(processes: &[u32], dir: &Path, name: &str) -> Result<Profiler, BenchError> {
        let data = dir.join(format!("{name}.perf"));
        let ids: Vec<String> = processes.iter().map(u32::to_string).collect();
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
        Ok(Profiler { recorder, data })
    }

    /// Ends sampling and writes two tables to `report`: by symbol itself, and with what it called.
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
        for (title, order) in [
            ("Itself", "--no-children"),
            ("With what it called", "--children"),
        ] {
            let mut command = Command::new("perf");
            command.args(["report", "--stdio", "-g", "none", "--percent-limit", "0.4"]);
            command
                .args(["--sort", "comm,dso,symbol", order, "-i"])
                .arg(&self.data);
            text += &format!("## {title}\n{}\n\n", run(&mut command)?);
        }
        std::fs::write(report, text).or_else(doing(format!("{}", report.display())))
    }
}
