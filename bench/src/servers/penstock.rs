//! Penstock: two storage sites and one transfer service, each a process of its own, made and served by the
//! binary as anybody would.

use super::{Certificates, Target, client_trusting, parse_url};
use crate::error::{BenchError, doing};
use crate::process::{ServerProcess, free_port};
use crate::work_directory::run;
use http::HeaderValue;
use penstock_protocol::http1::client::Client;
use penstock_protocol::pki;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, value};
use url::Url;

/// Distances from the first port to the others of a site: plain door, transfer service.
const PORTS: [u16; 2] = [1, SERVICE_PORT];
/// From the first port of a site to that of its transfer service.
pub const SERVICE_PORT: u16 = 3;
const ANY_AUDIENCE: &str = "https://wlcg.cern.ch/jwt/v1/any";
/// What the load generator does.
const STORAGE_SCOPE: &str = "storage.read:/ storage.create:/ storage.modify:/";

/// Addresses that [`crate::stub`] answers on, as storage elements of their own.
pub const STUB_SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 5));
/// Takes files at once.
pub const STUB_QUICK: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 6));
/// Holds files until it is told to let them go.
pub const STUB_HELD: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));

/// Transfers at once on a link: as many as FTS3 was pinned at when it was measured.
pub const LINK_SLOTS: u32 = 200;
/// Transfers at once on the link to the stub that holds them.
pub const HELD_SLOTS: u32 = 500;

/// Transfers that a service may hold: more than any cell queues.
const OPEN_MAX: i64 = 2_000_000;

/// What a transfer service may do at once.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// Transfers on a link.
    pub link: u32,
    /// Transfers out of, and into, a storage element.
    pub storage: u32,
    /// Transfers in all.
    pub active: u32,
    /// Links with a limit of their own: source, destination, transfers.
    pub links: Vec<(IpAddr, IpAddr, u32)>,
    /// All that may run does: no number of transfers is tried out. Storage that holds files tells of no rate to go by.
    pub is_fixed: bool,
    /// Nothing is recorded of links.
    pub is_unrecorded: bool,
}

impl Limits {
    /// So many transfers on a link, at a storage element and in all.
    pub fn of_each(slots: u32) -> Limits {
        Limits {
            link: slots,
            storage: slots,
            active: slots,
            ..Limits::default()
        }
    }
}

/// Two sites and a service, running.
pub struct Sites {
    /// Over TLS: PUT, GET, source of copies.
    pub source: Target,
    /// The same without TLS.
    pub source_plain: Target,
    /// Destination of copies.
    pub destination: Target,
    /// The transfer service.
    pub service: Service,
    files: [SiteFiles; 2],
    _processes: [ServerProcess; 3],
}

/// A transfer service as its users see it.
#[derive(Clone)]
pub struct Service {
    /// Its REST interface.
    pub url: Url,
    /// Trusts it.
    pub client: Client,
    /// May submit.
    pub token: String,
    /// Of its process.
    pub process: u32,
}

/// What the binary calls itself.
pub fn version(binary: &Path) -> Result<String, BenchError> {
    run(Command::new(binary).arg("--version"))
}

/// Makes and serves the sites below `dir`. The service reaches the stubs too.
pub fn start(binary: &Path, dir: &Path, certificates: &Certificates) -> Result<Sites, BenchError> {
    make_and_serve(binary, dir, Some(certificates))
}

/// Makes and serves the sites below `dir`, the service for these alone: what earlier binaries know too.
pub fn start_between_sites(binary: &Path, dir: &Path) -> Result<Sites, BenchError> {
    make_and_serve(binary, dir, None)
}

fn make_and_serve(
    binary: &Path,
    dir: &Path,
    stubs: Option<&Certificates>,
) -> Result<Sites, BenchError> {
    let site = |last: u8, name: &str, peers: &[&SiteFiles]| {
        let host = Ipv4Addr::new(127, 0, 0, last);
        let port = free_port(IpAddr::V4(host), &PORTS)?;
        SiteFiles::make(binary, dir, name, (host, port), peers)
    };
    let a = site(2, "a", &[])?;
    let b = site(3, "b", &[&a])?;
    let c = site(4, "c", &[&a, &b])?;
    a.edit(storage_only)?;
    b.edit(storage_only)?;
    c.edit(|document, _| service_only(document, &limits_of_cells()))?;
    if let Some(certificates) = stubs {
        c.edit(|document, _| reach_stubs(document))?;
        pki::install_ca(&certificates.authority, &c.root.join("certificates"))?;
    }
    let processes = [
        a.serve(Command::new(binary), &[0, PORTS[0]])?,
        b.serve(Command::new(binary), &[0])?,
        c.serve(Command::new(binary), &[SERVICE_PORT])?,
    ];
    let service = c.service(binary, &processes[2])?;
    Ok(Sites {
        source: a.target(binary, "https", 0, &processes[0])?,
        source_plain: a.target(binary, "http", PORTS[0], &processes[0])?,
        destination: b.target(binary, "https", 0, &processes[1])?,
        service,
        files: [a, b],
        _processes: processes,
    })
}

impl Sites {
    /// Directories of the two storage sites.
    pub fn storage_sites(&self) -> [&SiteFiles; 2] {
        self.files.each_ref()
    }
}

/// A transfer service for one cell alone, so that no cell measures what others left behind.
pub struct OwnService {
    /// As its users see it.
    pub service: Service,
    binary: PathBuf,
    files: SiteFiles,
    /// `None` once it is being dropped.
    process: Option<ServerProcess>,
}

/// Makes and serves a transfer service in the directory `name` of `dir`, which must not exist. It trusts these sites.
pub fn start_service(
    binary: &Path,
    dir: &Path,
    certificates: &Certificates,
    (name, limits): (&str, &Limits),
    peers: &[&SiteFiles],
) -> Result<OwnService, BenchError> {
    let host = Ipv4Addr::new(127, 0, 0, 4);
    let port = free_port(IpAddr::V4(host), &PORTS)?;
    let files = SiteFiles::make(binary, dir, name, (host, port), peers)?;
    files.edit(|document, _| service_only(document, limits))?;
    files.edit(|document, _| reach_stubs(document))?;
    pki::install_ca(&certificates.authority, &files.root.join("certificates"))?;
    let process = files.serve(Command::new(binary), &[SERVICE_PORT])?;
    Ok(OwnService {
        service: files.service(binary, &process)?,
        binary: binary.to_owned(),
        files,
        process: Some(process),
    })
}

impl OwnService {
    /// A command of the binary on its directory.
    pub fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg(name).arg("--dir").arg(&self.files.root);
        command
    }

    /// Its site directory.
    pub fn directory(&self) -> &Path {
        &self.files.root
    }

    /// Its database.
    pub fn journal(&self) -> PathBuf {
        self.files.root.join("state/transfer.sqlite")
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Serves it again, and waits until it listens.
    pub fn start_again(&mut self) -> Result<(), BenchError> {
        let process = self
            .files
            .serve(Command::new(&self.binary), &[SERVICE_PORT])?;
        self.service.process = process.id();
        self.process = Some(process);
        Ok(())
    }

    /// Where a backup of it goes.
    pub fn backup_file(&self) -> PathBuf {
        self.files.root.join("service.backup")
    }
}

impl Drop for OwnService {
    fn drop(&mut self) {
        self.process = None;
        // The journals of several cells would fill the file system; what is left goes with the work directory.
        let _ = std::fs::remove_dir_all(&self.files.root);
    }
}

/// A site's directory, and where it listens.
pub struct SiteFiles {
    name: String,
    root: PathBuf,
    host: Ipv4Addr,
    port: u16,
}

impl SiteFiles {
    /// Makes it, with the first of its ports.
    pub fn make(
        binary: &Path,
        dir: &Path,
        name: &str,
        (host, port): (Ipv4Addr, u16),
        peers: &[&SiteFiles],
    ) -> Result<SiteFiles, BenchError> {
        let site = SiteFiles {
            name: name.to_owned(),
            root: dir.join(name),
            host,
            port,
        };
        let mut command = Command::new(binary);
        command.arg("init").arg("--dir").arg(&site.root);
        command.args(["--host", &host.to_string(), "--ports", &port.to_string()]);
        for peer in peers {
            command.arg("--peer").arg(&peer.root);
        }
        run(&mut command)?;
        Ok(site)
    }

    /// Changes its configuration.
    pub fn edit(
        &self,
        change: impl FnOnce(&mut DocumentMut, &SiteFiles),
    ) -> Result<(), BenchError> {
        let path = self.root.join("penstock.toml");
        let text = std::fs::read_to_string(&path).or_else(doing(format!("{}", path.display())))?;
        let mut document: DocumentMut = text
            .parse()
            .map_err(|why| BenchError::failed(format!("{}: {why}", path.display())))?;
        change(&mut document, self);
        std::fs::write(&path, document.to_string()).or_else(doing(format!("{}", path.display())))
    }

    /// Serves it by a command that is the binary, and waits for these of its ports.
    pub fn serve(
        &self,
        mut command: Command,
        distances: &[u16],
    ) -> Result<ServerProcess, BenchError> {
        command.arg("serve").arg("--dir").arg(&self.root);
        command.args(["--log", "warn", "--drain", "1s"]);
        let listens: Vec<SocketAddr> = distances
            .iter()
            .map(|distance| SocketAddr::new(IpAddr::V4(self.host), self.port + distance))
            .collect();
        let log = self.root.with_extension("log");
        ServerProcess::start(&format!("penstock {}", self.name), command, &log, &listens)
    }

    /// Whom its clients trust.
    pub fn certificates(&self) -> PathBuf {
        self.root.join("certificates")
    }

    /// A token for all that clients do with files.
    pub fn storage_token(&self, binary: &Path) -> Result<String, BenchError> {
        self.token(binary, STORAGE_SCOPE)
    }

    /// A token of this site.
    pub fn token(&self, binary: &Path, scope: &str) -> Result<String, BenchError> {
        // Storage tokens are shown to both sites of a copy; an administrator's is for this site alone.
        self.token_for(
            binary,
            scope,
            (scope == STORAGE_SCOPE).then_some(ANY_AUDIENCE),
        )
    }

    /// The same for another audience than this site itself.
    pub fn token_for(
        &self,
        binary: &Path,
        scope: &str,
        audience: Option<&str>,
    ) -> Result<String, BenchError> {
        let mut command = Command::new(binary);
        command.arg("token").arg("--dir").arg(&self.root);
        if let Some(audience) = audience {
            command.args(["--audience", audience]);
        }
        run(command.args(["--scope", scope, "--lifetime", "6h", "--subject", "bench"]))
    }

    /// Its transfer service, as its users see it.
    pub fn service(&self, binary: &Path, process: &ServerProcess) -> Result<Service, BenchError> {
        Ok(Service {
            url: parse_url(&format!(
                "https://{}:{}/",
                self.host,
                self.port + SERVICE_PORT
            ))?,
            client: client_trusting(&self.certificates())?,
            token: self.token(binary, "penstock.admin fts")?,
            process: process.id(),
        })
    }

    /// Its storage, as the load generator sees it.
    pub fn target(
        &self,
        binary: &Path,
        scheme: &str,
        distance: u16,
        process: &ServerProcess,
    ) -> Result<Target, BenchError> {
        let token = self.storage_token(binary)?;
        let mut authorization = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| BenchError::failed("`penstock token` printed what is no header"))?;
        authorization.set_sensitive(true);
        Ok(Target {
            name: "Penstock",
            base: parse_url(&format!(
                "{scheme}://{}:{}/",
                self.host,
                self.port + distance
            ))?,
            authorization: Some(authorization),
            client: client_trusting(&self.certificates())?,
            processes: vec![process.id()],
        })
    }
}

/// Nothing but storage.
pub fn storage_only(document: &mut DocumentMut, site: &SiteFiles) {
    document.remove("transfer");
    if site.name == "a"
        && let Some(storage) = document.get_mut("storage")
    {
        storage["plain_listen"] = value(format!("{}:{}", site.host, site.port + PORTS[0]));
    }
}

/// Of the service that the cells share.
fn limits_of_cells() -> Limits {
    Limits {
        link: LINK_SLOTS,
        storage: HELD_SLOTS,
        active: HELD_SLOTS,
        links: vec![(STUB_SOURCE, STUB_HELD, HELD_SLOTS)],
        ..Limits::default()
    }
}

/// Lets a service reach the stubs, at whatever ports.
fn reach_stubs(document: &mut DocumentMut) {
    let mut private = Array::new();
    private.push("127.0.0.0/8:1-65535");
    document["trust"]["private_addresses"] = value(private);
}

fn service_only(document: &mut DocumentMut, limits: &Limits) {
    document.remove("storage");
    let transfer = &mut document["transfer"];
    transfer["active_max_per_link"] = value(i64::from(limits.link));
    transfer["active_max_per_storage"] = value(i64::from(limits.storage));
    transfer["active_max"] = value(i64::from(limits.active));
    transfer["open_max"] = value(OPEN_MAX);
    if limits.is_fixed {
        transfer["tuning"] = value("fixed");
    }
    if limits.is_unrecorded {
        document["observe"]["sample_links"] = value(false);
    }
    let transfer = &mut document["transfer"];
    let mut links = ArrayOfTables::new();
    for (source, destination, active) in &limits.links {
        let mut link = Table::new();
        link["source"] = value(format!("https://{source}"));
        link["destination"] = value(format!("https://{destination}"));
        link["active_max"] = value(i64::from(*active));
        links.push(link);
    }
    if !links.is_empty() {
        transfer["link"] = Item::ArrayOfTables(links);
    }
}
