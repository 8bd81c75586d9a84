//! Commands of the binary about records: what they print, how long they take, and the CPU time and most memory that they need.

use crate::error::{BenchError, doing};
use crate::process::{cpu_used_by, resident_bytes_most};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Between two looks at a process.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// No command takes longer.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A binary and a directory for what it prints.
#[derive(Debug, Clone, Copy)]
pub struct RecordCommands<'a> {
    pub binary: &'a Path,
    pub work: &'a Path,
}

/// What came of a command.
#[derive(Debug)]
pub struct CommandRun {
    pub seconds: f64,
    /// In user and system mode, of all its threads.
    pub cpu_seconds: f64,
    pub memory_bytes: u64,
    /// What it printed.
    pub told: Value,
}

/// A command that runs.
#[derive(Debug)]
pub struct Running {
    child: Child,
    begun: Instant,
    cpu: Duration,
    memory_bytes: u64,
    output: PathBuf,
    name: String,
}

impl RecordCommands<'_> {
    /// Runs a command to its end.
    pub fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Result<CommandRun, BenchError> {
        self.start(words)?.wait()
    }

    /// Begins one.
    pub fn start<S: AsRef<OsStr>>(&self, words: &[S]) -> Result<Running, BenchError> {
        let mut command = Command::new(self.binary);
        command.arg("--json").args(words);
        let name = format!("{command:?}");
        let output = self.work.join("printed.json");
        let file = File::create(&output).or_else(doing(format!("{}", output.display())))?;
        let child = command.stdin(Stdio::null()).stdout(file).spawn();
        Ok(Running {
            child: child.or_else(doing(name.clone()))?,
            begun: Instant::now(),
            cpu: Duration::ZERO,
            memory_bytes: 0,
            output,
            name,
        })
    }
}

impl Running {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The most memory that it has had so far.
    pub fn memory_bytes(&mut self) -> u64 {
        let now = resident_bytes_most(self.child.id()).unwrap_or(0);
        self.memory_bytes = self.memory_bytes.max(now);
        self.memory_bytes
    }

    fn cpu(&mut self) {
        // Of one that has ended and was not waited for, it is still told.
        self.cpu = self
            .cpu
            .max(cpu_used_by(self.child.id()).unwrap_or_default());
    }

    /// Waits until it ends.
    pub fn wait(mut self) -> Result<CommandRun, BenchError> {
        let status = loop {
            self.memory_bytes();
            self.cpu();
            if let Some(status) = self.child.try_wait().or_else(doing(self.name.clone()))? {
                break status;
            }
            if self.begun.elapsed() > TIMEOUT {
                return Err(BenchError::failed(format!("{} does not end", self.name)));
            }
            std::thread::sleep(LOOK_INTERVAL);
        };
        let seconds = self.begun.elapsed().as_secs_f64();
        let printed = std::fs::read(&self.output).or_else(doing(self.name.clone()))?;
        if !status.success() {
            let text = String::from_utf8_lossy(&printed[..printed.len().min(2_000)]).into_owned();
            return Err(BenchError::failed(format!(
                "{}: {status} {text}",
                self.name
            )));
        }
        let told = serde_json::from_slice(&printed)
            .map_err(|why| BenchError::failed(format!("{}: {why}", self.name)))?;
        Ok(CommandRun {
            seconds,
            cpu_seconds: self.cpu.as_secs_f64(),
            memory_bytes: self.memory_bytes,
            told,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // It may end at this moment; then there is nothing to end.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
