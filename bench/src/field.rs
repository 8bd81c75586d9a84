//! Everything that a run needs, started once: the work directory, the servers that the chosen cells use, the
//! stub.

use crate::cell::{Beside, Cell, Kind, Peer, Scale};
use crate::contest::{self, Contender};
use crate::disk;
use crate::error::BenchError;
use crate::load::Bound;
use crate::profile::Profiler;
use crate::report::Report;
use crate::servers::nginx::Nginx;
use crate::servers::penstock::Sites;
use crate::servers::xrootd::XrootdPair;
use crate::servers::{Certificates, find_program, nginx, penstock, xrootd};
use crate::service;
use crate::stub::Stub;
use crate::work_directory::WorkDirectory;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// No cell takes longer than this.
const CELL_TIMEOUT: Duration = Duration::from_secs(900);
const PROFILE_TIME: Duration = Duration::from_secs(5);

/// All that runs.
pub struct Field {
    /// Of servers, for the page.
    pub versions: Vec<String>,
    missing: Vec<String>,
    // Servers end before their files go: fields are dropped in this order.
    penstock: Option<Sites>,
    nginx: Option<Nginx>,
    xrootd: Option<XrootdPair>,
    stub: Option<Stub>,
    /// Where their data lies.
    pub work: WorkDirectory,
}

impl Field {
    /// Starts what the cells need and what is installed.
    pub async fn set_up(parent: &Path, binary: &Path, cells: &[Cell]) -> Result<Field, BenchError> {
        let work = WorkDirectory::make(parent)?;
        let certificates = Certificates::make(&work.directory("peers")?)?;
        let needs = |wanted: &dyn Fn(&Cell) -> bool| cells.iter().any(wanted);
        let needs_peer =
            |peer: Peer| needs(&|cell| matches!(cell, Cell::Beside(beside) if beside.peer == peer));
        let mut field = Field {
            versions: Vec::new(),
            missing: Vec::new(),
            penstock: None,
            nginx: None,
            xrootd: None,
            stub: None,
            work,
        };
        if needs(&|cell| !matches!(cell, Cell::Disk(_))) {
            field.start_penstock(binary, &certificates)?;
        }
        if needs_peer(Peer::NginxHttps) || needs_peer(Peer::NginxHttp) {
            field.nginx = nginx::start(&field.work.directory("nginx")?, &certificates)?;
            field.learn_version("nginx", field.nginx.is_some());
        }
        if needs_peer(Peer::XrootdHttps) {
            field.xrootd = xrootd::start(&field.work.directory("xrootd")?, &certificates)?;
            field.learn_version("xrootd", field.xrootd.is_some());
        }
        if needs(&|cell| matches!(cell, Cell::ServiceStub | Cell::ServiceMemory)) {
            field.stub = Some(Stub::start(&certificates).await?);
        }
        Ok(field)
    }

    fn start_penstock(
        &mut self,
        binary: &Path,
        certificates: &Certificates,
    ) -> Result<(), BenchError> {
        if !binary.is_file() {
            self.missing
                .push(format!("{} (make build)", binary.display()));
            return Ok(());
        }
        let binary =
            std::path::absolute(binary).map_err(|why| BenchError::failed(why.to_string()))?;
        let sites = penstock::start(&binary, &self.work.directory("sites")?, certificates)?;
        self.versions.push(sites.version.clone());
        self.penstock = Some(sites);
        Ok(())
    }

    fn learn_version(&mut self, program: &str, is_there: bool) {
        let output =
            find_program(program).and_then(|path| Command::new(path).arg("-v").output().ok());
        match output {
            // Both write it to standard error.
            Some(output) if is_there => {
                let text = String::from_utf8_lossy(&output.stderr);
                let line = text.lines().next().unwrap_or_default().trim().to_owned();
                self.versions.push(if line.contains(program) {
                    line
                } else {
                    format!("{program} {line}")
                });
            }
            _ => self.missing.push(format!("{program} (make setup)")),
        }
    }

    /// Tells which columns will be empty.
    pub fn note_what_is_missing(&self) {
        for what in &self.missing {
            eprintln!("not there, so left out: {what}");
        }
    }

    /// Measures a cell into the report. Gives its row.
    pub async fn measure(
        &self,
        cell: &Cell,
        scale: Scale,
        report: &mut Report,
    ) -> Result<String, BenchError> {
        let measured =
            tokio::time::timeout(CELL_TIMEOUT, self.measure_unbounded(cell, scale, report)).await;
        measured.unwrap_or_else(|_| {
            Err(BenchError::failed(format!(
                "took longer than {} s",
                CELL_TIMEOUT.as_secs()
            )))
        })
    }

    async fn measure_unbounded(
        &self,
        cell: &Cell,
        scale: Scale,
        report: &mut Report,
    ) -> Result<String, BenchError> {
        match cell {
            Cell::Disk(threads) => {
                let time = scale.disk_time();
                let dir = self.work.directory(&cell.name())?;
                let rate = disk::durable_creates_per_second(&dir, *threads, time)?;
                Ok(report.disk(*threads, rate))
            }
            Cell::Beside(beside) => {
                let (ours, peer) = (self.ours(beside), self.peer(beside));
                let outcome = contest::run(beside, scale, ours.as_ref(), peer.as_ref()).await?;
                Ok(report.beside(beside, &outcome))
            }
            Cell::ServiceSites => {
                let sites = self.sites()?;
                let (runs, files) = scale.service();
                let sources = service::make_sources(sites, files, "service-source").await?;
                let mut measured = Vec::new();
                for run in 0..runs {
                    measured.push(service::run_sites(sites, &sources, files, run).await?);
                }
                Ok(report.service("two Penstock sites", &measured))
            }
            Cell::ServiceStub => {
                let (runs, files) = scale.service();
                let mut measured = Vec::new();
                for run in 0..runs {
                    let service = &self.sites()?.service;
                    measured.push(service::run_stub(service, self.stub()?, files, run).await?);
                }
                Ok(report.service("stubs that take no time", &measured))
            }
            Cell::ServiceMemory => {
                let run = service::run_memory(&self.sites()?.service, self.stub()?, scale).await?;
                Ok(report.memory(&run))
            }
        }
    }

    /// Runs a cell once more under perf, Penstock alone.
    pub async fn profile(
        &self,
        cell: &Cell,
        scale: Scale,
        report: &Path,
    ) -> Result<(), BenchError> {
        let Some(sites) = &self.penstock else {
            return Ok(());
        };
        let dir = self.work.directory("profiles")?;
        let processes = service::processes(sites);
        match cell {
            Cell::Disk(_) | Cell::ServiceMemory => return Ok(()),
            Cell::Beside(beside) => {
                let Some(ours) = self.ours(beside) else {
                    return Ok(());
                };
                let profiler = Profiler::start(&processes, &dir, &cell.name())?;
                let bound = Bound {
                    operations: beside.bound(scale).operations.saturating_mul(2),
                    time: PROFILE_TIME,
                };
                let phase = contest::run_once(beside, scale, &ours, bound).await;
                profiler.finish(report)?;
                phase?;
            }
            Cell::ServiceSites => {
                let (runs, files) = scale.service();
                let sources = service::make_sources(sites, files, "profile-source").await?;
                let profiler = Profiler::start(&processes, &dir, &cell.name())?;
                let run = service::run_sites(sites, &sources, files, runs).await;
                profiler.finish(report)?;
                run?;
            }
            Cell::ServiceStub => {
                let (runs, files) = scale.service();
                let profiler = Profiler::start(&processes[..1], &dir, &cell.name())?;
                let run = service::run_stub(&sites.service, self.stub()?, files, runs).await;
                profiler.finish(report)?;
                run?;
            }
        }
        eprintln!("profile: {}", report.display());
        Ok(())
    }

    fn sites(&self) -> Result<&Sites, BenchError> {
        self.penstock
            .as_ref()
            .ok_or_else(|| BenchError::failed("the penstock binary is missing"))
    }

    fn stub(&self) -> Result<&Stub, BenchError> {
        self.stub
            .as_ref()
            .ok_or_else(|| BenchError::failed("no stub was started"))
    }

    fn ours(&self, cell: &Beside) -> Option<Contender> {
        let sites = self.penstock.as_ref()?;
        let source = match cell.peer {
            Peer::NginxHttps | Peer::XrootdHttps => sites.source.clone(),
            Peer::NginxHttp => sites.source_plain.clone(),
        };
        Some(Contender {
            source,
            destination: (cell.kind == Kind::Copy).then(|| sites.destination.clone()),
        })
    }

    fn peer(&self, cell: &Beside) -> Option<Contender> {
        let source = match cell.peer {
            Peer::NginxHttps => self.nginx.as_ref()?.https.clone(),
            Peer::NginxHttp => self.nginx.as_ref()?.http.clone(),
            Peer::XrootdHttps => self.xrootd.as_ref()?.source.clone(),
        };
        let destination = match cell.kind {
            Kind::Put | Kind::Get => None,
            Kind::Copy => Some(self.xrootd.as_ref()?.destination.clone()),
        };
        Some(Contender {
            source,
            destination,
        })
    }
}
