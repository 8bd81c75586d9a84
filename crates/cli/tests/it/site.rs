//! A real site for tests: made by `penstock init` on an address and ports of its own, served by the built
//! binary, killed when the test ends however it ends.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take before a test gives up.
pub const DEADLINE: Duration = Duration::from_secs(60);

static NEXT_SITE: AtomicU32 = AtomicU32::new(0);

/// The built binary, free of the caller's environment.
pub fn penstock() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    for name in [
        "BEARER_TOKEN",
        "BEARER_TOKEN_FILE",
        "XDG_RUNTIME_DIR",
        "X509_CERT_DIR",
        "PENSTOCK_SERVICE",
    ] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn run(args: &[&str]) -> Output {
    penstock().args(args).output().expect("the binary starts")
}

/// Runs a command that must succeed; gives back what it printed.
pub fn succeed(args: &[&str]) -> String {
    let output = run(args);
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "penstock {args:?}: {}\n{printed}\n{said}",
        output.status
    );
    printed
}

/// Runs a command that must end with `code`; gives back what it said on standard error.
pub fn fail(code: i32, args: &[&str]) -> String {
    let output = run(args);
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(code),
        "penstock {args:?}\n{printed}\n{said}"
    );
    said
}

/// What a process printed.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A site that was made and may be served.
pub struct Site {
    root: TempDir,
    /// Its address, one that no other site of this test process has.
    pub address: Ipv4Addr,
    /// Port of the WebDAV door; the transfer service has the one three above.
    pub port: u16,
    process: Option<Child>,
}

impl Site {
    /// Makes a site that knows `peers`, and does not serve it yet.
    pub fn make(peers: &[&Site]) -> Site {
        // Addresses differ per process and site, because FTS tells storage elements apart by host.
        let number = NEXT_SITE.fetch_add(1, Ordering::Relaxed) + 2;
        let process = std::process::id();
        let address = Ipv4Addr::new(
            127,
            (process >> 8) as u8 & 0x7f | 1,
            process as u8,
            number as u8,
        );
        let root = tempfile::tempdir().expect("a temporary directory");
        let port = free_ports(address);
        let mut command = penstock();
        command
            .arg("init")
            .arg("--dir")
            .arg(root.path().join("site"));
        command.args([
            "--site",
            &format!("site{number}"),
            "--host",
            &address.to_string(),
        ]);
        command.args(["--ports", &port.to_string()]);
        for peer in peers {
            command.arg("--peer").arg(peer.dir());
        }
        let output = command.output().expect("the binary starts");
        assert!(output.status.success(), "init: {}", text(&output.stderr));
        Site {
            root,
            address,
            port,
            process: None,
        }
    }

    /// Makes and serves a site.
    pub fn start(peers: &[&Site]) -> Site {
        let mut site = Site::make(peers);
        site.serve();
        site
    }

    /// The site directory.
    pub fn dir(&self) -> PathBuf {
        self.root.path().join("site")
    }

    /// The site directory as an argument.
    pub fn dir_arg(&self) -> String {
        self.dir().display().to_string()
    }

    /// A place for other files of the test.
    pub fn scratch(&self) -> &Path {
        self.root.path()
    }

    /// The URL of a path at the door.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}:{}{path}", self.address, self.port)
    }

    /// The URL of the transfer service.
    pub fn service(&self) -> String {
        format!("https://{}:{}", self.address, self.port + 3)
    }

    /// The process id of the running site.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it is served").id()
    }

    /// Serves until `stop` or the end of the test. Returns when it says `ready`; gives back what it printed
    /// before.
    pub fn serve(&mut self) -> Vec<String> {
        let log = std::fs::File::create(self.root.path().join("serve.log")).expect("a log file");
        let mut process = penstock()
            .arg("serve")
            .arg("--dir")
            .arg(self.dir())
            .args(["--log", "debug"])
            .stdout(Stdio::piped())
            .stderr(log)
            // A group of its own, so that Ctrl-C in the terminal of the tests ends them in order.
            .process_group(0)
            .spawn()
            .expect("the binary starts");
        let printed = process.stdout.take().expect("piped");
        self.process = Some(process);
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(printed).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let started = Instant::now();
        let mut lines = Vec::new();
        loop {
            let left = DEADLINE.saturating_sub(started.elapsed());
            match receive.recv_timeout(left) {
                Ok(line) if line == "ready" => return lines,
                Ok(line) => lines.push(line),
                Err(why) => panic!("the site is not ready ({why}):\n{}", self.log()),
            }
        }
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.root.path().join("serve.log")).unwrap_or_default()
    }

    /// Sends a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.pid().to_string())
            .status();
        assert!(sent.expect("kill starts").success(), "kill -{name}");
    }

    /// Ends it without a chance to do anything.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("it is served");
        process.kill().expect("our own child");
        process.wait().expect("our own child");
    }

    /// Asks it to end, and waits; gives back its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.signal("TERM");
        let process = self.process.as_mut().expect("it is served");
        let started = Instant::now();
        while started.elapsed() < DEADLINE {
            if let Some(status) = process.try_wait().expect("a child") {
                self.process = None;
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it did not end");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            eprintln!(
                "--- log of the site at {} ---\n{}",
                self.address,
                self.log()
            );
        }
    }
}

/// Waits for a condition; panics when it does not hold in time.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(
            started.elapsed() < DEADLINE,
            "{what}: not within {DEADLINE:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn free_ports(address: Ipv4Addr) -> u16 {
    for _ in 0..100 {
        let probe = TcpListener::bind((address, 0)).expect("a loopback address");
        let base = probe.local_addr().expect("bound").port();
        if base < 65_530
            && [1, 3]
                .iter()
                .all(|offset| TcpListener::bind((address, base + offset)).is_ok())
        {
            return base;
        }
    }
    panic!("no free ports on {address}");
}
