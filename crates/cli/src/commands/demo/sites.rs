//! The two sites of a demo: made in a temporary directory, run as processes of this same binary, and ended
//! with it.

use crate::args::InitArgs;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::site::init;
use rustix::process::{Pid, Signal, kill_process};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// How long a site may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long its running transfers may go on then.
const DRAIN: &str = "3s";
/// How long it may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// How often free ports are looked for.
const PORT_TRIES: usize = 100;

/// Both sites.
pub struct DemoSites {
    /// Where the data starts, and whose transfer service moves it.
    pub north: DemoSite,
    /// Where the data goes.
    pub south: DemoSite,
    directory: DemoDirectory,
}

enum DemoDirectory {
    Temporary(TempDir),
    Kept(PathBuf),
}

pub struct DemoSite {
    pub name: &'static str,
    pub directory: PathBuf,
    /// URL of its WebDAV door, without a path.
    pub door: String,
    process: Option<Child>,
}

impl DemoSites {
    /// Makes both site directories, which know each other.
    pub fn make(environment: &Environment, keep: bool) -> Result<DemoSites, CommandError> {
        let directory = tempfile::Builder::new()
            .prefix("penstock-demo-")
            .tempdir_in(&environment.temporary)
            .map_err(|why| CommandError::local(environment.temporary.display(), why))?;
        let root = directory.path().to_owned();
        let north = DemoSite::make("north", &root, Ipv4Addr::new(127, 0, 0, 2), None)?;
        let south = DemoSite::make(
            "south",
            &root,
            Ipv4Addr::new(127, 0, 0, 3),
            Some(&north.directory),
        )?;
        let directory = match keep {
            true => DemoDirectory::Kept(directory.keep()),
            false => DemoDirectory::Temporary(directory),
        };
        Ok(DemoSites {
            north,
            south,
            directory,
        })
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        match &self.directory {
            DemoDirectory::Temporary(directory) => directory.path(),
            DemoDirectory::Kept(directory) => directory,
        }
    }

    /// Starts both and waits until they are ready.
    pub async fn start(&mut self) -> Result<(), CommandError> {
        self.north.start().await?;
        self.south.start().await
    }

    /// Returns when one has ended by itself, with what to tell of it.
    pub async fn one_ended(&mut self) -> String {
        tokio::select! {
            () = self.north.ended() => self.north.end_told(),
            () = self.south.ended() => self.south.end_told(),
        }
    }

    /// Ends both; their directories go with this value unless they are kept.
    pub async fn stop(&mut self) {
        tokio::join!(self.north.stop(), self.south.stop());
    }
}

impl DemoSite {
    fn make(
        name: &'static str,
        root: &Path,
        address: Ipv4Addr,
        peer: Option<&Path>,
    ) -> Result<DemoSite, CommandError> {
        let directory = root.join(name);
        let made = init::create(&InitArgs {
            dir: directory.clone(),
            site: Some(name.to_owned()),
            hosts: vec![address.to_string()],
            ports_base: free_ports(address)?,
            pools: vec!["pools/disk1".into(), "pools/disk2".into()],
            peers: peer.map(Path::to_owned).into_iter().collect(),
            ca: None,
        })?;
        Ok(DemoSite {
            name,
            directory,
            door: made.door,
            process: None,
        })
    }

    /// As FTS names its storage element: without a port.
    pub fn storage_id(&self) -> &str {
        self.door
            .rsplit_once(':')
            .map_or(&self.door, |(host, _)| host)
    }

    /// Returns when its process has ended.
    async fn ended(&mut self) {
        match &mut self.process {
            Some(process) => drop(process.wait().await),
            None => std::future::pending().await,
        }
    }

    fn end_told(&self) -> String {
        format!(
            "the {} site ended unexpectedly:\n{}",
            self.name,
            self.last_words()
        )
    }

    fn log(&self) -> PathBuf {
        self.directory.join("serve.log")
    }

    async fn start(&mut self) -> Result<(), CommandError> {
        let failed = |why: &dyn std::fmt::Display| {
            CommandError::local(format_args!("cannot start the {} site", self.name), why)
        };
        let binary = std::env::current_exe().map_err(|why| failed(&why))?;
        let log = std::fs::File::create(self.log()).map_err(|why| failed(&why))?;
        let mut process = Command::new(binary)
            .args(["serve", "--log", "info", "--drain", DRAIN, "--dir"])
            .arg(&self.directory)
            // Ctrl-C is for the demo, which then ends its sites.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(|why| failed(&why))?;
        let printed = process
            .stdout
            .take()
            .ok_or_else(|| failed(&"its output is not connected"))?;
        self.process = Some(process);
        match tokio::time::timeout(READY_TIMEOUT, says_ready(printed)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(CommandError::Local(format!(
                "the {} site ended at once:\n{}",
                self.name,
                self.last_words()
            ))),
            Err(_) => Err(CommandError::Local(format!(
                "the {} site is not ready after {READY_TIMEOUT:?}",
                self.name
            ))),
        }
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    async fn stop(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        let id = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(id) = id
            && kill_process(id, Signal::TERM).is_ok()
            && tokio::time::timeout(STOP_TIMEOUT, process.wait())
                .await
                .is_ok()
        {
            return;
        }
        // It had its chance; a process that stays would keep its ports and files.
        let _ = process.kill().await;
    }
}

/// Reads on after the line, so that the site never waits for a reader.
async fn says_ready(printed: tokio::process::ChildStdout) -> bool {
    let mut lines = BufReader::new(printed).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line == "ready" {
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return true;
        }
    }
    false
}

/// A base such that the ports of a site are free on `address`.
fn free_ports(address: Ipv4Addr) -> Result<u16, CommandError> {
    let unusable = |why: &dyn std::fmt::Display| {
        CommandError::local(
            format_args!("{address} cannot be used (Linux has it by default)"),
            why,
        )
    };
    for _ in 0..PORT_TRIES {
        let probe = TcpListener::bind((address, 0)).map_err(|why| unusable(&why))?;
        let base = probe.local_addr().map_err(|why| unusable(&why))?.port();
        if base <= 65_532
            && [1, 3]
                .iter()
                .all(|offset| TcpListener::bind((address, base + offset)).is_ok())
        {
            return Ok(base);
        }
    }
    Err(unusable(&"no free ports"))
}
