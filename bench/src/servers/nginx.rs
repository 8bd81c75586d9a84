//! nginx with its DAV module, https and plain, as fast as it is usually set up: sendfile, no access log.

use super::{Certificates, Target, client_trusting, find_program, parse_url};
use crate::error::{BenchError, doing};
use crate::process::{ServerProcess, free_port};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use url::Url;

/// What each transfer of a file in [`SLOW`] gets.
pub const SLOW_BYTES_PER_SECOND: u64 = 100_000;
/// The directory of files that are given slowly.
const SLOW: &str = "slow";

/// A running nginx.
pub struct Nginx {
    /// Over TLS.
    pub https: Target,
    /// Without.
    pub http: Target,
    files: PathBuf,
    _process: ServerProcess,
}

impl Nginx {
    /// Makes a file that is given slowly.
    pub fn offer_slowly(&self, name: &str, bytes: u64) -> Result<Url, BenchError> {
        let directory = self.files.join(SLOW);
        let path = directory.join(name);
        std::fs::create_dir_all(&directory)
            .and_then(|()| std::fs::File::create(&path)?.set_len(bytes))
            .or_else(doing(format!("{}", path.display())))?;
        parse_url(&format!("{}{SLOW}/{name}", self.https.base))
    }
}

/// Starts it with its files below `dir`; `None` when it is not installed.
pub fn start(dir: &Path, certificates: &Certificates) -> Result<Option<Nginx>, BenchError> {
    let Some(program) = find_program("nginx") else {
        return Ok(None);
    };
    let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let (https, http) = (free_port(host, &[])?, free_port(host, &[])?);
    for part in ["files", "tmp"] {
        std::fs::create_dir_all(dir.join(part)).or_else(doing(format!("{}", dir.display())))?;
    }
    let config = dir.join("nginx.conf");
    std::fs::write(&config, configuration(dir, certificates, https, http))
        .or_else(doing(format!("{}", config.display())))?;
    let mut command = Command::new(program);
    command
        .arg("-c")
        .arg(&config)
        .arg("-p")
        .arg(dir)
        .arg("-e")
        .arg(dir.join("error.log"));
    let listens = [https, http].map(|port| SocketAddr::new(host, port));
    let process = ServerProcess::start("nginx", command, &dir.join("output.log"), &listens)?;
    let client = client_trusting(&certificates.trusted)?;
    let target = |name, scheme: &str, port: u16| {
        Ok::<_, BenchError>(Target {
            name,
            base: parse_url(&format!("{scheme}://127.0.0.1:{port}/"))?,
            authorization: None,
            client: client.clone(),
            processes: vec![process.id()],
        })
    };
    Ok(Some(Nginx {
        https: target("nginx", "https", https)?,
        http: target("nginx", "http", http)?,
        files: dir.join("files"),
        _process: process,
    }))
}

fn configuration(dir: &Path, certificates: &Certificates, https: u16, http: u16) -> String {
    let (dir, certificate, key) = (
        dir.display(),
        certificates.certificate.display(),
        certificates.key.display(),
    );
    // As root, the workers stay root like Penstock; else the line has no effect but a warning.
    format!(
        "user root;
daemon off;
worker_processes 2;
pid {dir}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  error_log {dir}/error.log;
  client_body_temp_path {dir}/tmp/body;
  proxy_temp_path {dir}/tmp/proxy;
  fastcgi_temp_path {dir}/tmp/fastcgi;
  uwsgi_temp_path {dir}/tmp/uwsgi;
  scgi_temp_path {dir}/tmp/scgi;
  client_max_body_size 0;
  keepalive_requests 100000000;
  sendfile on;
  tcp_nopush on;
  server {{
    listen 127.0.0.1:{https} ssl;
    listen 127.0.0.1:{http};
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_session_cache shared:bench:10m;
    root {dir}/files;
    create_full_put_path on;
    dav_methods PUT DELETE MKCOL;
    location /{SLOW}/ {{ limit_rate {SLOW_BYTES_PER_SECOND}; }}
  }}
}}
"
    )
}
