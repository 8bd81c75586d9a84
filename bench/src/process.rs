//! Server processes: started with their output in a file, watched until they listen, measured, and ended by
//! id.

use crate::error::{BenchError, doing};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};
use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to listen, and to end after it was asked to.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a server's output that are shown when it does not start.
const LOG_TAIL_BYTES: usize = 2000;

/// A server that this program started. Dropped, it is ended, and nothing else is.
#[derive(Debug)]
pub struct ServerProcess {
    name: String,
    child: Child,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts a command whose output goes to `log`, and waits until it accepts connections at each address.
    pub fn start(
        name: &str,
        mut command: Command,
        log: &Path,
        listens: &[SocketAddr],
    ) -> Result<ServerProcess, BenchError> {
        let output = File::create(log).or_else(doing(format!("{}", log.display())))?;
        let errors = output
            .try_clone()
            .or_else(doing(format!("{}", log.display())))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .or_else(doing(format!("cannot start {name}")))?;
        let mut server = ServerProcess {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        };
        let deadline = Instant::now() + START_TIMEOUT;
        for address in listens {
            server.wait_until_listening(*address, deadline)?;
        }
        Ok(server)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it without asking.
    pub fn kill(mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn wait_until_listening(
        &mut self,
        address: SocketAddr,
        deadline: Instant,
    ) -> Result<(), BenchError> {
        while TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err() {
            let ended = self
                .child
                .try_wait()
                .or_else(doing("cannot look after a child"))?;
            if ended.is_some() || Instant::now() > deadline {
                let what = match ended {
                    Some(status) => format!("ended ({status})"),
                    None => format!("does not listen on {address}"),
                };
                let tail = tail_of(&self.log);
                return Err(BenchError::failed(format!("{} {what}:\n{tail}", self.name)));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended already; then there is nothing to end.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                eprintln!("{} does not end, so it is killed", self.name);
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn tail_of(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&text[text.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned()
}

/// A port of `host` such that it and those at the given distances above it are free now.
pub fn free_port(host: std::net::IpAddr, also: &[u16]) -> Result<u16, BenchError> {
    for _ in 0..100 {
        let listener =
            TcpListener::bind((host, 0)).or_else(doing(format!("no port is free on {host}")))?;
        let port = listener
            .local_addr()
            .or_else(doing("a socket without address"))?
            .port();
        let is_free = |distance: &u16| {
            port.checked_add(*distance)
                .is_some_and(|port| TcpListener::bind((host, port)).is_ok())
        };
        if also.iter().all(is_free) {
            return Ok(port);
        }
    }
    Err(BenchError::failed(format!(
        "no range of free ports on {host}"
    )))
}

/// CPU time used so far by processes and all that descend from them, in user and system mode (10 ms ticks).
pub fn cpu_used(roots: &[u32]) -> Duration {
    let stats = all_stats();
    let mut ticks = 0;
    let mut waiting: Vec<u32> = roots.to_vec();
    while let Some(pid) = waiting.pop() {
        for stat in &stats {
            if stat.pid == pid {
                ticks += stat.ticks;
            }
            if stat.parent == pid {
                waiting.push(stat.pid);
            }
        }
    }
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// CPU time of this very process.
pub fn own_cpu_used() -> Duration {
    let own = std::process::id();
    let ticks = all_stats()
        .iter()
        .find(|stat| stat.pid == own)
        .map_or(0, |stat| stat.ticks);
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// CPU time that one process has used so far; `None` when it has gone.
pub fn cpu_used_by(pid: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = parse_stat(pid, &text)?.ticks as f64;
    let seconds = ticks / rustix::param::clock_ticks_per_second() as f64;
    Some(Duration::from_secs_f64(seconds))
}

/// Resident memory of one process, in bytes; `None` when it has gone.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    status_bytes(pid, "VmRSS:")
}

fn status_bytes(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The most memory that a process has had resident so far, in bytes; `None` when it has gone.
pub fn resident_bytes_most(pid: u32) -> Option<u64> {
    status_bytes(pid, "VmHWM:")
}

/// Lets this process and those that it starts open as many files as it may: thousands of connections are held.
pub fn allow_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(why) = setrlimit(Resource::Nofile, limit) {
        eprintln!("the limit of open files stays as it is: {why}");
    }
}

struct Stat {
    pid: u32,
    parent: u32,
    /// Of the process and of its children that it has waited for.
    ticks: u64,
}

fn all_stats() -> Vec<Stat> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| {
            parse_stat(
                pid,
                &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?,
            )
        })
        .collect()
}

/// proc(5): fields after the command, which may hold blanks and brackets itself: 3 state, 4 ppid, 14 utime,
/// 15 stime, 16 cutime, 17 cstime.
fn parse_stat(pid: u32, text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        pid,
        parent: u32::try_from(number(4)?).ok()?,
        ticks: number(14)? + number(15)? + number(16)? + number(17)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_blanks_and_brackets_does_not_shift_the_fields() {
        let text = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 5 6 7";
        let stat = parse_stat(42, text).expect("valid");
        assert_eq!((stat.parent, stat.ticks), (7, 127));
    }

    #[test]
    fn children_count_with_their_parent() {
        let mut child = Command::new("sleep").arg("5").spawn().expect("sleep runs");
        let own = std::process::id();
        let stats = all_stats();
        assert!(
            stats
                .iter()
                .any(|stat| stat.pid == child.id() && stat.parent == own)
        );
        assert!(resident_bytes(own).is_some_and(|bytes| bytes > 100_000));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
}
