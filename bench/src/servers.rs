//! The servers that are measured: each sets itself up in a directory of its own, on loopback and free ports.

pub mod nginx;
pub mod penstock;
pub mod xrootd;

use crate::error::{BenchError, doing};
use crate::stub::grid_hosts;
use http::HeaderValue;
use penstock_protocol::http1::client::{Client, ClientConfig};
use penstock_protocol::pki;
use penstock_protocol::tls::ClientTls;
use std::path::{Path, PathBuf};
use url::Url;

/// A certificate authority and one host certificate for `localhost`, 127.0.0.1 and the addresses of stubs,
/// with keys of the kind that Penstock's own sites have: TLS costs all servers the same.
#[derive(Debug)]
pub struct Certificates {
    /// PEM.
    pub certificate: PathBuf,
    /// PEM.
    pub key: PathBuf,
    /// PEM: the authority.
    pub authority: PathBuf,
    /// Hashed directory.
    pub trusted: PathBuf,
    /// PEM: certificate and key for the many storage elements of the grid of stubs.
    pub grid: (PathBuf, PathBuf),
}

impl Certificates {
    /// Makes them in `dir`, which must be empty.
    pub fn make(dir: &Path) -> Result<Certificates, BenchError> {
        let trusted = dir.join("certificates");
        std::fs::create_dir_all(&trusted).or_else(doing(format!("{}", trusted.display())))?;
        let authority = pki::create_ca(dir, "bench peers")?;
        let mut hosts = vec!["localhost".to_owned()];
        hosts.extend((1..10).map(|last| format!("127.0.0.{last}")));
        pki::issue_host_certificate(&authority, &hosts, pki::HOST_LIFETIME, dir)?;
        // One of their own: so many names would make everybody's handshakes longer.
        let grid = dir.join("grid");
        std::fs::create_dir_all(&grid).or_else(doing(format!("{}", grid.display())))?;
        let hosts: Vec<String> = grid_hosts().map(|host| host.to_string()).collect();
        pki::issue_host_certificate(&authority, &hosts, pki::HOST_LIFETIME, &grid)?;
        pki::install_ca(&dir.join("ca.pem"), &trusted)?;
        Ok(Certificates {
            certificate: dir.join("cert.pem"),
            key: dir.join("key.pem"),
            authority: dir.join("ca.pem"),
            trusted,
            grid: (grid.join("cert.pem"), grid.join("key.pem")),
        })
    }
}

/// A server as the load generator sees it.
#[derive(Clone)]
pub struct Target {
    /// For tables.
    pub name: &'static str,
    /// Where files may be made. Ends with `/`.
    pub base: Url,
    /// The token as other servers must show it.
    pub authorization: Option<HeaderValue>,
    /// Trusts this server.
    pub client: Client,
    /// The processes whose CPU time is this server's.
    pub processes: Vec<u32>,
}

/// A client that trusts a directory of certificates and keeps enough connections for every cell.
pub fn client_trusting(certificates: &Path) -> Result<Client, BenchError> {
    let mut config = ClientConfig::new(ClientTls::from_ca_directory(certificates)?);
    config.idle_per_host = 512;
    config.user_agent = concat!("penstock-bench/", env!("CARGO_PKG_VERSION")).to_owned();
    Ok(Client::new(config))
}

fn parse_url(text: &str) -> Result<Url, BenchError> {
    Url::parse(text).map_err(|why| BenchError::failed(format!("{text}: {why}")))
}

/// The path of a program; `None` when it is not installed.
pub fn find_program(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.is_file())
}
