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
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};
use url::Url;

/// Distances from the first port to the others of a site: plain door, transfer service.
const PORTS: [u16; 2] = [1, 3];
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
    /// What the binary calls itself.
    pub version: String,
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

/// Makes and serves the sites below `dir`.
pub fn start(binary: &Path, dir: &Path, certificates: &Certificates) -> Result<Sites, BenchError> {
    let version = run(Command::new(binary).arg("--version"))?;
    let site = |last: u8, name: &str, peers: &[&SiteFiles]| {
        SiteFiles::make(binary, dir, name, Ipv4Addr::new(127, 0, 0, last), peers)
    };
    let a = site(2, "a", &[])?;
    let b = site(3, "b", &[&a])?;
    let c = site(4, "c", &[&a, &b])?;
    a.edit(storage_only)?;
    b.edit(storage_only)?;
    c.edit(service_only)?;
    pki::install_ca(&certificates.authority, &c.root.join("certificates"))?;
    let processes = [
        a.serve(binary, &[0, PORTS[0]])?,
        b.serve(binary, &[0])?,
        c.serve(binary, &[PORTS[1]])?,
    ];
    let service = Service {
        url: parse_url(&format!("https://{}:{}/", c.host, c.port + PORTS[1]))?,
        client: client_trusting(&c.root.join("certificates"))?,
        token: c.token(binary, "penstock.admin fts")?,
        process: processes[2].id(),
    };
    Ok(Sites {
        source: a.target(binary, "https", 0, &processes[0])?,
        source_plain: a.target(binary, "http", PORTS[0], &processes[0])?,
        destination: b.target(binary, "https", 0, &processes[1])?,
        service,
        version,
        _processes: processes,
    })
}

struct SiteFiles {
    name: String,
    root: PathBuf,
    host: Ipv4Addr,
    port: u16,
}

impl SiteFiles {
    fn make(
        binary: &Path,
        dir: &Path,
        name: &str,
        host: Ipv4Addr,
        peers: &[&SiteFiles],
    ) -> Result<SiteFiles, BenchError> {
        let port = free_port(IpAddr::V4(host), &PORTS)?;
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

    fn edit(&self, change: fn(&mut DocumentMut, &SiteFiles)) -> Result<(), BenchError> {
        let path = self.root.join("penstock.toml");
        let text = std::fs::read_to_string(&path).or_else(doing(format!("{}", path.display())))?;
        let mut document: DocumentMut = text
            .parse()
            .map_err(|why| BenchError::failed(format!("{}: {why}", path.display())))?;
        change(&mut document, self);
        std::fs::write(&path, document.to_string()).or_else(doing(format!("{}", path.display())))
    }

    fn serve(&self, binary: &Path, distances: &[u16]) -> Result<ServerProcess, BenchError> {
        let mut command = Command::new(binary);
        command.arg("serve").arg("--dir").arg(&self.root);
        command.args(["--log", "warn", "--drain", "1s"]);
        let listens: Vec<SocketAddr> = distances
            .iter()
            .map(|distance| SocketAddr::new(IpAddr::V4(self.host), self.port + distance))
            .collect();
        let log = self.root.with_extension("log");
        ServerProcess::start(&format!("penstock {}", self.name), command, &log, &listens)
    }

    fn token(&self, binary: &Path, scope: &str) -> Result<String, BenchError> {
        let mut command = Command::new(binary);
        command.arg("token").arg("--dir").arg(&self.root);
        run(command.args(["--scope", scope, "--lifetime", "6h", "--subject", "bench"]))
    }

    fn target(
        &self,
        binary: &Path,
        scheme: &str,
        distance: u16,
        process: &ServerProcess,
    ) -> Result<Target, BenchError> {
        let token = self.token(binary, STORAGE_SCOPE)?;
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
            client: client_trusting(&self.root.join("certificates"))?,
            processes: vec![process.id()],
        })
    }
}

fn storage_only(document: &mut DocumentMut, site: &SiteFiles) {
    document.remove("transfer");
    if site.name == "a"
        && let Some(storage) = document.get_mut("storage")
    {
        storage["plain_listen"] = value(format!("{}:{}", site.host, site.port + PORTS[0]));
    }
}

fn service_only(document: &mut DocumentMut, _: &SiteFiles) {
    document.remove("storage");
    let transfer = &mut document["transfer"];
    transfer["active_max_per_link"] = value(i64::from(LINK_SLOTS));
    transfer["active_max_per_storage"] = value(i64::from(HELD_SLOTS));
    transfer["active_max"] = value(i64::from(HELD_SLOTS));
    let mut held = Table::new();
    held["source"] = value(format!("https://{STUB_SOURCE}"));
    held["destination"] = value(format!("https://{STUB_HELD}"));
    held["active_max"] = value(i64::from(HELD_SLOTS));
    let mut links = ArrayOfTables::new();
    links.push(held);
    transfer["link"] = Item::ArrayOfTables(links);
}
