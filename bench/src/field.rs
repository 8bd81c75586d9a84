//! Everything that a run needs, started once: the work directory, the servers that the chosen cells use, the
//! stub.

use crate::backups::{self, Ends};
use crate::cell::{Beside, Between, Cell, Kind, Peer, Scale};
use crate::contest::{self, Contender};
use crate::disk;
use crate::error::BenchError;
use crate::load::Bound;
use crate::profile::Profiler;
use crate::report::{Report, Table};
use crate::servers::nginx::Nginx;
use crate::servers::penstock::{Limits, OwnService, SiteFiles, Sites};
use crate::servers::xrootd::XrootdPair;
use crate::servers::{Certificates, find_program, nginx, penstock, xrootd};
use crate::stub::Stub;
use crate::work_directory::WorkDirectory;
use crate::{
    clients, explanations, hopeless, in_flight, interface, queue, records, service, starts,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PROFILE_TIME: Duration = Duration::from_secs(5);

/// All that runs.
pub struct Field {
    /// Of servers, for the page.
    pub versions: Vec<String>,
    missing: Vec<String>,
    /// Of Penstock, when it is there.
    binary: Option<PathBuf>,
    certificates: Certificates,
    // Servers end before their files go: fields are dropped in this order.
    penstock: Option<Sites>,
    /// Those of an earlier binary.
    earlier: Option<Sites>,
    nginx: Option<Nginx>,
    xrootd: Option<XrootdPair>,
    stub: Option<Stub>,
    /// Of the cell about records.
    events: u64,
    /// Where their data lies.
    pub work: WorkDirectory,
}

impl Field {
    /// Starts what the cells need and what is installed.
    pub async fn set_up(
        parent: &Path,
        binary: &Path,
        earlier: Option<&Path>,
        (cells, events): (&[Cell], u64),
    ) -> Result<Field, BenchError> {
        let work = WorkDirectory::make(parent)?;
        let certificates = Certificates::make(&work.directory("peers")?)?;
        let needs = |wanted: &dyn Fn(&Cell) -> bool| cells.iter().any(wanted);
        let needs_peer =
            |peer: Peer| needs(&|cell| matches!(cell, Cell::Beside(beside) if beside.peer == peer));
        let mut field = Field {
            versions: Vec::new(),
            missing: Vec::new(),
            binary: None,
            certificates,
            penstock: None,
            earlier: None,
            nginx: None,
            xrootd: None,
            stub: None,
            events,
            work,
        };
        if needs(&|cell| !matches!(cell, Cell::Disk(_))) {
            field.find_penstock(binary)?;
        }
        if needs(&Cell::needs_sites) {
            field.start_sites()?;
        }
        if let (true, Some(binary)) = (needs(&Cell::needs_earlier), earlier) {
            field.start_earlier_sites(binary)?;
        }
        let is_read_slowly = needs(&|cell| *cell == Cell::Hopeless);
        if needs_peer(Peer::NginxHttps) || needs_peer(Peer::NginxHttp) || is_read_slowly {
            field.nginx = nginx::start(&field.work.directory("nginx")?, &field.certificates)?;
            field.learn_version("nginx", field.nginx.is_some());
        }
        if needs_peer(Peer::XrootdHttps) {
            field.xrootd = xrootd::start(&field.work.directory("xrootd")?, &field.certificates)?;
            field.learn_version("xrootd", field.xrootd.is_some());
        }
        if needs(&Cell::needs_stub) {
            field.stub = Some(Stub::start(&field.certificates).await?);
        }
        Ok(field)
    }

    fn find_penstock(&mut self, binary: &Path) -> Result<(), BenchError> {
        if !binary.is_file() {
            self.missing
                .push(format!("{} (make build)", binary.display()));
            return Ok(());
        }
        let binary =
            std::path::absolute(binary).map_err(|why| BenchError::failed(why.to_string()))?;
        self.versions.push(penstock::version(&binary)?);
        self.binary = Some(binary);
        Ok(())
    }

    fn start_sites(&mut self) -> Result<(), BenchError> {
        let Some(binary) = &self.binary else {
            return Ok(());
        };
        let dir = self.work.directory("sites")?;
        self.penstock = Some(penstock::start(binary, &dir, &self.certificates)?);
        Ok(())
    }

    fn start_earlier_sites(&mut self, binary: &Path) -> Result<(), BenchError> {
        let binary =
            std::path::absolute(binary).map_err(|why| BenchError::failed(why.to_string()))?;
        let version = penstock::version(&binary)?;
        self.versions
            .push(format!("earlier: {} ({})", version, binary.display()));
        let dir = self.work.directory("earlier-sites")?;
        self.earlier = Some(penstock::start_between_sites(&binary, &dir)?);
        Ok(())
    }

    /// A transfer service that only this cell uses, and that trusts these sites.
    fn own_service(
        &self,
        name: &str,
        limits: &Limits,
        peers: &[&SiteFiles],
    ) -> Result<OwnService, BenchError> {
        let binary = self.binary()?;
        let dir = self.work.directory("services")?;
        penstock::start_service(binary, &dir, &self.certificates, (name, limits), peers)
    }

    fn binary(&self) -> Result<&Path, BenchError> {
        let binary = self.binary.as_deref();
        binary.ok_or_else(|| BenchError::failed("the penstock binary is missing"))
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
            tokio::time::timeout(cell.timeout(), self.measure_unbounded(cell, scale, report)).await;
        measured.unwrap_or_else(|_| {
            Err(BenchError::failed(format!(
                "took longer than {} s",
                cell.timeout().as_secs()
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
            Cell::ServiceSitesEarlier => {
                let both = [self.sites()?, self.earlier_sites()?];
                let row = service::run_in_turns(both, scale).await?;
                Ok(report.rows(&service::IN_TURNS, &[row]))
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
            Cell::Client(cell) => {
                let directory = self.work.directory(cell.name())?;
                let server = self.server_of_clients(&directory)?;
                let (table, rows) =
                    tokio::task::block_in_place(|| cell.measure(&server, &directory, scale))?;
                Ok(report.rows(table, &rows))
            }
            Cell::Relay(cell) => {
                let directory = self.work.directory(cell.name())?;
                let (table, rows) = cell.measure(self.binary()?, &directory, scale).await?;
                Ok(report.rows(table, &rows))
            }
            Cell::Records => {
                let directory = self.work.directory(&cell.name())?;
                let binary = self.binary()?;
                let rows = tokio::task::block_in_place(|| {
                    records::run(binary, &directory, self.events, scale)
                })?;
                Ok(report.rows(&records::RECORDS, &rows))
            }
            Cell::ServiceMemory => {
                let run = service::run_memory(&self.sites()?.service, self.stub()?, scale).await?;
                Ok(report.memory(&run))
            }
            Cell::ServiceSubmit(_)
            | Cell::ServiceStatus
            | Cell::ServiceStartIdle
            | Cell::ServiceStartBacklog
            | Cell::ServiceInFlight
            | Cell::RecordInFlight
            | Cell::QueueMillion
            | Cell::Hopeless
            | Cell::ServiceBackup(_)
            | Cell::Explanations => {
                let (table, rows) = self.measure_alone(cell, scale, None).await?;
                Ok(report.rows(table, &rows))
            }
        }
    }

    /// Measures a cell with a service of its own, under perf if a report is asked for.
    async fn measure_alone(
        &self,
        cell: &Cell,
        scale: Scale,
        profile: Option<&Path>,
    ) -> Result<(&'static Table, Vec<Vec<String>>), BenchError> {
        let (table, limits) = match cell {
            Cell::ServiceSubmit(_) => (&interface::SUBMISSIONS, interface::limits_of_keeping()),
            Cell::ServiceStatus => (&interface::QUESTIONS, interface::limits_of_questions()),
            Cell::ServiceStartIdle => (&starts::STARTS, starts::limits()),
            Cell::ServiceStartBacklog => (&starts::STARTS, starts::limits_of_backlog()),
            Cell::ServiceInFlight => (&in_flight::IN_FLIGHT, in_flight::limits(scale)),
            Cell::RecordInFlight => (&in_flight::RECORD_COST, in_flight::limits_of_record(false)),
            Cell::QueueMillion => (&queue::QUEUED, queue::limits()),
            Cell::Hopeless => (&hopeless::HOPELESS, hopeless::limits()),
            Cell::ServiceBackup(_) => (&backups::BACKUPS, backups::limits()),
            Cell::Explanations => (&explanations::EXPLANATIONS, explanations::limits()),
            Cell::Disk(_)
            | Cell::Beside(_)
            | Cell::ServiceSites
            | Cell::ServiceSitesEarlier
            | Cell::ServiceStub
            | Cell::ServiceMemory
            | Cell::Records
            | Cell::Client(_)
            | Cell::Relay(_) => {
                return Err(BenchError::failed("a cell without a service of its own"));
            }
        };
        let stub = self.stub()?;
        let peers = match cell {
            Cell::Hopeless | Cell::ServiceBackup(Between::Sites) => {
                self.sites()?.storage_sites().to_vec()
            }
            _ => Vec::new(),
        };
        let mut own = self.own_service(&cell.name(), &limits, &peers)?;
        let profiler = match profile {
            Some(_) => {
                let processes = [("service", own.service.process)];
                let dir = self.work.directory("profiles")?;
                Some(Profiler::start(&processes, &dir, &cell.name())?)
            }
            None => None,
        };
        let rows = match cell {
            Cell::ServiceSubmit(files) => interface::submissions(&own, stub, *files, scale).await,
            Cell::ServiceStatus => interface::questions(&own, stub, scale).await,
            Cell::ServiceStartIdle => starts::idle(&own, stub, scale).await,
            Cell::ServiceStartBacklog => starts::backlog(&own, stub, scale).await,
            Cell::QueueMillion => {
                let beside = self.own_service("queue-empty", &limits, &[])?;
                queue::run(&mut own, &beside, stub, scale).await
            }
            Cell::RecordInFlight => {
                let limits = in_flight::limits_of_record(true);
                let beside = self.own_service("unrecorded", &limits, &[])?;
                in_flight::run_record([&own, &beside], stub, scale).await
            }
            Cell::Hopeless => {
                let nginx = self.nginx.as_ref();
                let nginx = nginx.ok_or_else(|| BenchError::failed("nginx is missing"))?;
                hopeless::run(&own, self.binary()?, (self.sites()?, nginx), scale).await
            }
            Cell::ServiceBackup(between) => {
                let ends = match between {
                    Between::Sites => Ends::Sites(self.sites()?),
                    Between::Stubs => Ends::Stubs(stub),
                };
                backups::run(&own, ends, scale).await
            }
            Cell::Explanations => {
                explanations::await_journal(&own).await?;
                let work = self.work.directory("explain")?;
                tokio::task::block_in_place(|| {
                    explanations::run(&own, self.binary()?, &work, scale)
                })
            }
            _ => in_flight::run(&own, stub, scale).await,
        };
        if let Some((profiler, report)) = profiler.zip(profile) {
            profiler.finish(report)?;
        }
        Ok((table, rows?))
    }

    /// Runs a cell once more under perf, Penstock alone.
    pub async fn profile(
        &self,
        cell: &Cell,
        scale: Scale,
        report: &Path,
    ) -> Result<(), BenchError> {
        if self.binary.is_none() {
            return Ok(());
        }
        let dir = self.work.directory("profiles")?;
        let begin =
            |processes: &[(&'static str, u32)]| Profiler::start(processes, &dir, &cell.name());
        match cell {
            Cell::Disk(_)
            | Cell::ServiceMemory
            | Cell::ServiceSitesEarlier
            | Cell::Records
            | Cell::Client(_)
            | Cell::Relay(_) => {
                return Ok(());
            }
            Cell::Beside(beside) => {
                let Some(ours) = self.ours(beside) else {
                    return Ok(());
                };
                let profiler = begin(&service::processes(self.sites()?))?;
                let bound = Bound {
                    operations: beside.bound(scale).operations.saturating_mul(2),
                    time: PROFILE_TIME,
                };
                let phase = contest::run_once(beside, scale, &ours, bound).await;
                profiler.finish(report)?;
                phase?;
            }
            Cell::ServiceSites => {
                let (sites, (runs, files)) = (self.sites()?, scale.service());
                let sources = service::make_sources(sites, files, "profile-source").await?;
                let profiler = begin(&service::processes(sites))?;
                let run = service::run_sites(sites, &sources, files, runs).await;
                profiler.finish(report)?;
                run?;
            }
            Cell::ServiceStub => {
                let (runs, files) = scale.service();
                let service = &self.sites()?.service;
                let profiler = begin(&[("service", service.process)])?;
                let run = service::run_stub(service, self.stub()?, files, runs).await;
                profiler.finish(report)?;
                run?;
            }
            Cell::ServiceSubmit(_)
            | Cell::ServiceStatus
            | Cell::ServiceStartIdle
            | Cell::ServiceStartBacklog
            | Cell::ServiceInFlight
            | Cell::RecordInFlight
            | Cell::QueueMillion
            | Cell::Hopeless
            | Cell::ServiceBackup(_)
            | Cell::Explanations => {
                self.measure_alone(cell, scale, Some(report)).await?;
            }
        }
        eprintln!("profile: {}", report.display());
        Ok(())
    }

    /// The first storage site, as command-line clients use it.
    fn server_of_clients(&self, home: &Path) -> Result<clients::Server<'_>, BenchError> {
        let (sites, binary) = (self.sites()?, self.binary()?);
        let [files, _] = sites.storage_sites();
        Ok(clients::Server {
            target: &sites.source,
            binary,
            trusted: files.certificates(),
            token: files.storage_token(binary)?,
            home: home.to_owned(),
        })
    }

    fn sites(&self) -> Result<&Sites, BenchError> {
        self.penstock
            .as_ref()
            .ok_or_else(|| BenchError::failed("the penstock binary is missing"))
    }

    fn earlier_sites(&self) -> Result<&Sites, BenchError> {
        self.earlier
            .as_ref()
            .ok_or_else(|| BenchError::failed("no earlier binary is given (--earlier)"))
    }

    fn stub(&self) -> Result<&Stub, BenchError> {
        self.stub
            .as_ref()
            .ok_or_else(|| BenchError::failed("no stub was started"))
    }

    fn ours(&self, cell: &Beside) -> Option<Contender> {
        let sites = self.penstock.as_ref()?;
        let source = match cell.peer {
            Peer::NginxHttps | Peer::XrootdHttps | Peer::Earlier => sites.source.clone(),
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
            Peer::Earlier => self.earlier.as_ref()?.source.clone(),
        };
        let destination = match (cell.kind, cell.peer) {
            (Kind::Copy, Peer::Earlier) => Some(self.earlier.as_ref()?.destination.clone()),
            (Kind::Copy, _) => Some(self.xrootd.as_ref()?.destination.clone()),
            _ => None,
        };
        Some(Contender {
            source,
            destination,
        })
    }
}
