//! XRootD over https with third-party copy: two servers, open to everybody, with the authorisation layers
//! loaded that a grid site has.

use super::{Certificates, Target, client_trusting, find_program, parse_url};
use crate::error::{BenchError, doing};
use crate::process::{ServerProcess, free_port};
use crate::work_directory::run;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The account that XRootD gives itself when root starts it, which it refuses to stay.
const ACCOUNT: &str = "xrootd";

/// Two running servers that may copy from each other.
pub struct XrootdPair {
    /// The one for PUT and GET; source of copies.
    pub source: Target,
    /// Destination of copies.
    pub destination: Target,
    _processes: [ServerProcess; 2],
}

/// Starts both below `dir`; `None` when XRootD is not installed.
pub fn start(dir: &Path, certificates: &Certificates) -> Result<Option<XrootdPair>, BenchError> {
    let Some(program) = find_program("xrootd") else {
        return Ok(None);
    };
    let shim = build_shim(dir)?;
    let one = |name: &str| {
        let place = dir.join(name);
        let server = Server {
            program: &program,
            shim: &shim,
            name,
            dir: &place,
            certificates,
        };
        server.start()
    };
    let (source, first) = one("a")?;
    let (destination, second) = one("b")?;
    Ok(Some(XrootdPair {
        source,
        destination,
        _processes: [first, second],
    }))
}

fn build_shim(dir: &Path) -> Result<PathBuf, BenchError> {
    std::fs::create_dir_all(dir).or_else(doing(format!("{}", dir.display())))?;
    let (source, library) = (dir.join("loopback.c"), dir.join("loopback.so"));
    std::fs::write(&source, include_str!("../loopback.c"))
        .or_else(doing(format!("{}", source.display())))?;
    run(Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&source)
        .arg("-ldl"))?;
    Ok(library)
}

struct Server<'a> {
    program: &'a Path,
    shim: &'a Path,
    name: &'a str,
    dir: &'a Path,
    certificates: &'a Certificates,
}

impl Server<'_> {
    fn start(&self) -> Result<(Target, ServerProcess), BenchError> {
        let dir = self.dir;
        let host = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (https, root) = (free_port(host, &[])?, free_port(host, &[])?);
        for part in ["files/data", "admin", "run", "tls", "home"] {
            std::fs::create_dir_all(dir.join(part)).or_else(doing(format!("{}", dir.display())))?;
        }
        let put = |name: &str, text: &[u8]| {
            std::fs::write(dir.join(name), text)
                .or_else(doing(format!("{name} in {}", dir.display())))
        };
        let copy = |from: &Path, name: &str| {
            let bytes = std::fs::read(from).or_else(doing(format!("{}", from.display())))?;
            put(name, &bytes)
        };
        copy(&self.certificates.certificate, "tls/cert.pem")?;
        copy(&self.certificates.key, "tls/key.pem")?;
        put("authdb", b"u * /data a\n")?;
        put(
            "macaroon.key",
            b"YmVuY2ggYmVuY2ggYmVuY2ggYmVuY2ggYmVuY2ggYmVuY2ggYmVuY2ggYmVuY2g=\n",
        )?;
        put("xrootd.cfg", self.configuration(https, root).as_bytes())?;
        run(Command::new("chmod")
            .arg("400")
            .arg(dir.join("tls/key.pem"))
            .arg(dir.join("macaroon.key")))?;
        let mut command = Command::new(self.program);
        command
            .current_dir(dir)
            .env("LD_PRELOAD", self.shim)
            .env("X509_CERT_DIR", &self.certificates.trusted)
            .env("HOME", dir.join("home"))
            .args(["-n", self.name, "-I", "v4", "-c"])
            .arg(dir.join("xrootd.cfg"))
            .arg("-l")
            .arg(dir.join("xrootd.log"));
        if rustix::process::geteuid().is_root() {
            run(Command::new("chown").args(["-R", ACCOUNT]).arg(dir))?;
            command.args(["-R", ACCOUNT]);
        }
        let listens = [https, root].map(|port| SocketAddr::new(host, port));
        let name = format!("xrootd {}", self.name);
        let process = ServerProcess::start(&name, command, &dir.join("output.log"), &listens)?;
        let target = Target {
            name: "XRootD",
            base: parse_url(&format!("https://127.0.0.1:{https}/data/"))?,
            authorization: None,
            client: client_trusting(&self.certificates.trusted)?,
            processes: vec![process.id()],
        };
        Ok((target, process))
    }

    fn configuration(&self, https: u16, root: u16) -> String {
        let (dir, trusted) = (self.dir.display(), self.certificates.trusted.display());
        format!(
            "all.role server
all.export /data
all.sitename BENCH
all.adminpath {dir}/admin
all.pidpath {dir}/run
oss.localroot {dir}/files
xrd.port {root}
xrd.network nodnr
xrd.protocol XrdHttp:{https} libXrdHttp.so
xrd.tls {dir}/tls/cert.pem {dir}/tls/key.pem
xrd.tlsca certdir {trusted}
xrootd.chksum max 2 adler32 crc32c
xrootd.seclib libXrdSec.so
sec.protocol unix
http.selfhttps2http no
http.exthandler xrdtpc libXrdHttpTPC.so
http.exthandler xrdmacaroons libXrdMacaroons.so
http.header2cgi Authorization authz
macaroons.secretkey {dir}/macaroon.key
ofs.authorize 1
ofs.authlib ++ libXrdMacaroons.so
acc.authdb {dir}/authdb
"
        )
    }
}
