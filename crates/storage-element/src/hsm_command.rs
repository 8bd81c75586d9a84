//! Runs one command of an HSM, by the interface that sites with dCache have: `put`, `get` and `remove`, each a process of a
//! program that the site has written.
//!
//! Source: the dCache book, chapter "The dCache Tertiary Storage System Interface"
//! (`docs/TheBook/src/main/markdown/config-hsm.md` of dCache/dcache): arguments, storage information, URI and exit codes. It
//! does not decide which command runs: that is [`penstock_tape::hsm_queue`].

mod call;
mod output;
mod runner;

pub use call::{HsmCall, HsmStorageInfo};
pub use runner::HsmRunner;

use output::{KeptHead, KeptTail};
use penstock_tape::hsm_queue::{HsmCommandEnd, HsmKind, HsmUri};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

/// Bytes of standard output that are looked at; whatever comes behind them is read and thrown away.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of standard error that are kept: the last ones.
const ERRORS_BYTES_MAX: usize = 2 * 1024;
/// Bytes of standard output that are told when they are no URI.
const TOLD_BYTES_MAX: usize = 500;
/// How long the pipes of a process that has ended are read: somebody who left its group may hold them.
const PIPES_PATIENCE: Duration = Duration::from_secs(2);
/// A program that is just being replaced is tried again for so long, this often.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// How commands of an HSM are run.
#[derive(Debug, Clone)]
pub struct HsmCommandConfig {
    /// The program that the site has written: a script or a binary.
    pub program: PathBuf,
    /// Options behind those of the interface, each given as `-key=value`.
    pub options: BTreeMap<String, String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, OsString>,
    /// Its working directory.
    pub directory: PathBuf,
    pub put_timeout: Duration,
    pub get_timeout: Duration,
    pub remove_timeout: Duration,
    /// From `SIGTERM` to `SIGKILL`.
    pub stop_grace: Duration,
    /// How often the size of a file that is fetched is looked at.
    pub progress_interval: Duration,
}

impl HsmCommandConfig {
    /// What suits most programs: the time limits that sites with dCache have, and no environment but a `PATH`.
    pub fn usual(program: PathBuf, directory: PathBuf) -> HsmCommandConfig {
        let path = ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".into());
        HsmCommandConfig {
            program,
            options: BTreeMap::new(),
            environment: BTreeMap::from([path]),
            directory,
            put_timeout: Duration::from_secs(14_400),
            get_timeout: Duration::from_secs(86_400),
            remove_timeout: Duration::from_secs(3_600),
            stop_grace: Duration::from_secs(30),
            progress_interval: Duration::from_secs(1),
        }
    }

    fn timeout(&self, kind: HsmKind) -> Duration {
        match kind {
            HsmKind::Put => self.put_timeout,
            HsmKind::Get => self.get_timeout,
            HsmKind::Remove => self.remove_timeout,
        }
    }
}

/// Runs a command to its end. It has no file that this process has opened; what this process was started with by somebody who
/// left it open passes on, as by any program. `stop` ends it: `SIGTERM` to all its processes, `SIGKILL` after the grace. Whatever of its
/// process group is left when the program itself has ended is killed. If this is dropped, all of it is killed.
pub async fn run_hsm_command(
    config: &HsmCommandConfig,
    call: &HsmCall,
    stop: oneshot::Receiver<()>,
) -> HsmCommandEnd {
    let mut child = match spawn(config, call).await {
        Ok(child) => child,
        Err(why) => {
            let text = format!("{}: {why}", config.program.display());
            return HsmCommandEnd::NotStarted { text };
        }
    };
    let group = ProcessGroup::of(&child);
    let output = KeptHead::read(child.stdout.take(), OUTPUT_BYTES_MAX);
    let errors = KeptTail::read(child.stderr.take(), ERRORS_BYTES_MAX);
    let (status, cause) = wait(config, call, &mut child, &group, stop).await;
    // What the program has left behind would go on without anybody who knows.
    drop(group);
    let until = Instant::now() + PIPES_PATIENCE;
    let output = output.end(until).await;
    let errors = errors.end(until).await;
    match status {
        Ok(status) if status.success() => succeeded(call, &output, errors).await,
        Ok(status) => failed(status, cause, errors),
        Err(why) => HsmCommandEnd::NotStarted {
            text: format!("its end is unknown: {why}"),
        },
    }
}

/// What has ended a command.
enum EndCause {
    Itself,
    StopOrder,
    TimeLimit,
}

async fn spawn(config: &HsmCommandConfig, call: &HsmCall) -> std::io::Result<Child> {
    let mut command = Command::new(&config.program);
    command
        .args(call.arguments(config))
        .env_clear()
        .envs(&config.environment)
        .current_dir(&config.directory)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let until = Instant::now() + BUSY_PATIENCE;
    loop {
        match command.spawn() {
            Err(why) if why.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < until => {
                sleep(BUSY_PAUSE).await;
            }
            spawned => return spawned,
        }
    }
}

async fn wait(
    config: &HsmCommandConfig,
    call: &HsmCall,
    child: &mut Child,
    group: &ProcessGroup,
    stop: oneshot::Receiver<()>,
) -> (std::io::Result<ExitStatus>, EndCause) {
    let ordered = async {
        // Whoever could order it is gone: then nobody does.
        if stop.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let cause = tokio::select! {
        status = child.wait() => return (status, EndCause::Itself),
        () = ordered => EndCause::StopOrder,
        () = sleep(config.timeout(call.kind())) => EndCause::TimeLimit,
    };
    group.signal(Signal::TERM);
    // A stopped process takes no signal but this one and `SIGKILL`.
    group.signal(Signal::CONT);
    let status = match timeout(config.stop_grace, child.wait()).await {
        Ok(status) => status,
        Err(_) => {
            group.signal(Signal::KILL);
            child.wait().await
        }
    };
    (status, cause)
}

/// A program that says success is believed as far as it can be looked at.
async fn succeeded(call: &HsmCall, output: &[u8], errors: String) -> HsmCommandEnd {
    match call {
        HsmCall::Put { .. } => match uris_in(output) {
            Some(uris) => HsmCommandEnd::Succeeded { uris },
            None => HsmCommandEnd::WithoutUri {
                text: in_words(&output[..output.len().min(TOLD_BYTES_MAX)]),
            },
        },
        HsmCall::Get {
            path, size_bytes, ..
        } => match tokio::fs::metadata(path).await {
            Ok(found) if found.len() == *size_bytes => HsmCommandEnd::Succeeded { uris: vec![] },
            found => {
                let found = match found {
                    Ok(found) => format!("{} of {size_bytes} bytes are there", found.len()),
                    Err(why) => why.to_string(),
                };
                let text = format!("success without the file: {found} {errors}");
                HsmCommandEnd::Exited { code: 0, text }
            }
        },
        HsmCall::Remove { .. } => HsmCommandEnd::Succeeded { uris: vec![] },
    }
}

fn failed(status: ExitStatus, cause: EndCause, errors: String) -> HsmCommandEnd {
    match (cause, status.code(), status.signal()) {
        (EndCause::StopOrder, _, _) => HsmCommandEnd::Stopped,
        (EndCause::TimeLimit, _, _) => HsmCommandEnd::TimedOut { text: errors },
        (EndCause::Itself, Some(code), _) => HsmCommandEnd::Exited { code, text: errors },
        (EndCause::Itself, None, signal) => HsmCommandEnd::Signaled {
            signal: signal.unwrap_or(0),
            text: errors,
        },
    }
}

/// The URIs that a put has printed, one a line. `None`: there is none, or something else beside them.
fn uris_in(output: &[u8]) -> Option<Vec<HsmUri>> {
    if output.len() >= OUTPUT_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(output).ok()?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let uris: Option<Vec<HsmUri>> = lines.map(HsmUri::parse).collect();
    uris.filter(|uris| !uris.is_empty())
}

/// What a program has printed, as one line of text.
fn in_words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.replace(|letter: char| letter.is_control(), " ");
    text.trim().to_owned()
}

/// The processes of a command. Those that are left when it is dropped are killed.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &Child) -> ProcessGroup {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        ProcessGroup(id.and_then(Pid::from_raw))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // All of it may have ended.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

#[cfg(test)]
mod tests;
