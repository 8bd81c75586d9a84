//! The clients: how each is told to copy, and their processes.

use crate::error::{BenchError, doing};
use crate::process::cpu_used_by;
use crate::servers::{Target, find_program};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Between two looks at a process.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// No client takes longer.
const TIMEOUT: Duration = Duration::from_secs(1200);
/// Bytes of a client's output that are shown when it fails.
const OUTPUT_SHOWN: usize = 600;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    Penstock,
    Rclone,
    Gfal,
}

/// From here to the server, or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Up,
    Down,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::Up => "up",
            Way::Down => "down",
        }
    }
}

/// What is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    File,
    Tree,
}

impl Client {
    /// Those that this machine has.
    pub fn installed() -> Vec<Client> {
        let mut clients = vec![Client::Penstock];
        for (client, program) in [(Client::Rclone, "rclone"), (Client::Gfal, "gfal-copy")] {
            match find_program(program) {
                Some(_) => clients.push(client),
                None => eprintln!("not there, so left out: {program} (make setup)"),
            }
        }
        clients
    }

    pub fn name(self) -> &'static str {
        match self {
            Client::Penstock => "penstock copy",
            Client::Rclone => "rclone copy",
            Client::Gfal => "gfal-copy",
        }
    }
}

/// The storage element that all of them use.
pub struct Server<'a> {
    pub target: &'a Target,
    pub binary: &'a Path,
    /// Its hashed directory of authorities.
    pub trusted: PathBuf,
    pub token: String,
    /// Where clients keep what they keep, and their output goes.
    pub home: PathBuf,
}

impl Server<'_> {
    /// Starts a copy between a local path and a place of the server. Everything below a directory goes below another directory.
    pub fn copy(
        &self,
        client: Client,
        (way, what): (Way, What),
        local: &Path,
        place: &str,
    ) -> Result<ClientProcess, BenchError> {
        let (local, url) = (path_text(local)?, self.url(place, client));
        let (here, there) = match client {
            Client::Penstock => match what {
                What::Tree => (local, format!("{url}/")),
                What::File => (local, url),
            },
            Client::Rclone => (local, format!(":webdav:{}", in_url(place))),
            Client::Gfal => (format!("file://{local}"), url),
        };
        let ends = match way {
            Way::Up => [here, there],
            Way::Down => [there, here],
        };
        self.start(match (client, what) {
            (Client::Penstock, _) => self.penstock(ends),
            (Client::Rclone, What::Tree) => self.rclone("copy", ends)?,
            (Client::Rclone, What::File) => self.rclone("copyto", ends)?,
            (Client::Gfal, What::Tree) => self.gfal(&["-r", "-p"], ends),
            (Client::Gfal, What::File) => self.gfal(&[], ends),
        })
    }

    /// Removes a file or a tree, if it is there.
    pub fn remove(&self, place: &str) -> Result<(), BenchError> {
        let mut command = Command::new(self.binary);
        command.args(["rm", "--recursive"]);
        self.known(&mut command);
        command.arg(self.url(place, Client::Penstock));
        self.start(command)?.end()?;
        Ok(())
    }

    /// Bytes that this machine has received over its networks, of which only loopback is used here.
    pub fn moved_bytes(&self) -> Result<u64, BenchError> {
        let [process] = self.target.processes.as_slice() else {
            return Err(BenchError::failed("one process serves the storage element"));
        };
        let figures = std::fs::read_to_string(format!("/proc/{process}/net/netstat"));
        let text = figures.or_else(doing("the network's figures"))?;
        let value = ip_octets(&text);
        value.ok_or_else(|| BenchError::failed("no IpExt InOctets in netstat"))
    }

    fn url(&self, place: &str, client: Client) -> String {
        let base = self.target.base.as_str();
        let base = match client {
            Client::Gfal => base.replacen("https", "davs", 1),
            Client::Penstock | Client::Rclone => base.to_owned(),
        };
        format!("{base}{}", in_url(place))
    }

    fn penstock(&self, ends: [String; 2]) -> Command {
        let mut command = Command::new(self.binary);
        command.arg("copy");
        self.known(&mut command);
        command.args(ends);
        command
    }

    fn known(&self, command: &mut Command) {
        command.arg("--capath").arg(&self.trusted);
    }

    fn rclone(&self, verb: &str, ends: [String; 2]) -> Result<Command, BenchError> {
        let authority = authority_in(&self.trusted)?;
        let mut command = Command::new("rclone");
        command.args([verb, "--config", "/dev/null", "--webdav-vendor", "other"]);
        command.args(["--webdav-url", self.target.base.as_str()]);
        command.env("RCLONE_WEBDAV_BEARER_TOKEN", &self.token);
        command.arg("--ca-cert").arg(authority).args(ends);
        Ok(command)
    }

    fn gfal(&self, options: &[&str], ends: [String; 2]) -> Command {
        let mut command = Command::new("gfal-copy");
        command.env("X509_CERT_DIR", &self.trusted);
        command.args(options).args(ends);
        command
    }

    fn start(&self, mut command: Command) -> Result<ClientProcess, BenchError> {
        command
            .env("HOME", &self.home)
            .env("XDG_STATE_HOME", self.home.join("state"));
        command.env("BEARER_TOKEN", &self.token);
        ClientProcess::start(command, &self.home)
    }
}

/// A blank in a name of ours.
fn in_url(place: &str) -> String {
    place.replace(' ', "-")
}

fn path_text(path: &Path) -> Result<String, BenchError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| BenchError::failed(format!("{} is not UTF-8", path.display())))
}

/// A certificate in a directory of authorities: rclone wants one file.
fn authority_in(directory: &Path) -> Result<PathBuf, BenchError> {
    let entries =
        std::fs::read_dir(directory).or_else(doing(format!("{}", directory.display())))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let found = paths.find(|path| path.extension().is_some_and(|extension| extension == "0"));
    found.ok_or_else(|| BenchError::failed(format!("no authority in {}", directory.display())))
}

/// `IpExt` of netstat(8): names in one line, values in the next.
fn ip_octets(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names
        .split_whitespace()
        .position(|name| name == "InOctets")?;
    values.split_whitespace().nth(at)?.parse().ok()
}

/// A client that runs.
pub struct ClientProcess {
    child: Child,
    begun: Instant,
    shown: String,
    output: PathBuf,
}

/// How one ended.
#[derive(Debug)]
pub struct Ended {
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// 255: by a signal.
    pub code: i32,
    shown: String,
    output: PathBuf,
}

impl ClientProcess {
    pub fn start(mut command: Command, home: &Path) -> Result<ClientProcess, BenchError> {
        let shown = format!("{:?} {:?}", command.get_program(), command.get_args());
        let output = home.join("client-output");
        let file = File::create(&output).or_else(doing(format!("{}", output.display())))?;
        let errors = file.try_clone().or_else(doing(shown.clone()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors);
        Ok(ClientProcess {
            child: child.spawn().or_else(doing(shown.clone()))?,
            begun: Instant::now(),
            shown,
            output,
        })
    }

    /// Waits until it ends.
    pub fn end(mut self) -> Result<Ended, BenchError> {
        let mut cpu = Duration::ZERO;
        let status = loop {
            cpu = cpu.max(cpu_used_by(self.child.id()).unwrap_or_default());
            if let Some(status) = self.child.try_wait().or_else(doing(self.shown.clone()))? {
                break status;
            }
            if self.begun.elapsed() > TIMEOUT {
                return Err(BenchError::failed(format!("{} does not end", self.shown)));
            }
            std::thread::sleep(LOOK_INTERVAL);
        };
        Ok(Ended {
            seconds: self.begun.elapsed().as_secs_f64(),
            cpu_seconds: cpu.as_secs_f64(),
            code: status.code().unwrap_or(255),
            shown: self.shown.clone(),
            output: self.output.clone(),
        })
    }

    /// Ends it by SIGKILL once it has read or written so many bytes.
    ///
    /// Errors: it ended before.
    pub fn kill_after(mut self, bytes: u64, of_written: bool) -> Result<(), BenchError> {
        let field = match of_written {
            true => "wchar:",
            false => "rchar:",
        };
        loop {
            if self
                .child
                .try_wait()
                .or_else(doing(self.shown.clone()))?
                .is_some()
            {
                return Err(BenchError::failed(format!(
                    "{} ended before half of it",
                    self.shown
                )));
            }
            let figures = std::fs::read_to_string(format!("/proc/{}/io", self.child.id()))
                .unwrap_or_default();
            let moved = figures
                .lines()
                .find_map(|line| line.strip_prefix(field)?.trim().parse::<u64>().ok());
            if moved.unwrap_or(0) >= bytes {
                self.child.kill().or_else(doing(self.shown.clone()))?;
                self.child.wait().or_else(doing(self.shown.clone()))?;
                return Ok(());
            }
            if self.begun.elapsed() > TIMEOUT {
                return Err(BenchError::failed(format!("{} does not move", self.shown)));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // It may end at this moment; then there is nothing to end.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Ended {
    /// Errors: it did not end well.
    pub fn expect_success(&self) -> Result<(), BenchError> {
        if self.code == 0 {
            return Ok(());
        }
        let output = std::fs::read(&self.output).unwrap_or_default();
        let tail = String::from_utf8_lossy(&output[output.len().saturating_sub(OUTPUT_SHOWN)..])
            .into_owned();
        Err(BenchError::failed(format!(
            "{}: exit code {}: {tail}",
            self.shown, self.code
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_stand_below_their_name() {
        let text =
            "TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 77 88\n";
        assert_eq!(ip_octets(text), Some(77));
        assert_eq!(ip_octets("TcpExt: A\nTcpExt: 1\n"), None);
    }
}
