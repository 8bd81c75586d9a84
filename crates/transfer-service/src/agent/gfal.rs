//! Gfal processes: how many there may be, how they are started, and whether this machine has gfal2 at all.
//!
//! Each serves one attempt, or one call of a tape system, and ends. Some are started ahead, with the library loaded and nothing done, so that an
//! attempt need not wait for that. They are started by one thread that lives as long as the service, because the kernel
//! ends them with the thread that started them.

mod attempt;
mod process;
mod tape;

pub(super) use attempt::LockedProcess;
pub(super) use process::Process;

use penstock_model::{FileUrl, StorageId, TimeSpan, VoName};
use penstock_protocol::gfal::gate::RequestAuthorizer;
use penstock_protocol::gfal::{Account, ReadablePaths, Report};
use penstock_protocol::http1::client::Client;
use penstock_protocol::network::is_of_this_machine;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, Semaphore, oneshot};
use url::Url;

/// How long a process may take to load the library.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// After so long it is looked again whether gfal2 has been installed.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Processes beside those of running transfers: for what tidies up.
const BESIDE: usize = super::TIDYING_MAX;

/// How gfal processes are run.
#[derive(Debug, Clone)]
pub struct GfalConfig {
    /// The program to start, with its first arguments. It runs `penstock_protocol::gfal::child`.
    pub program: PathBuf,
    /// What stands before the arguments that say whom it serves.
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: BTreeMap<String, OsString>,
    /// Processes at once.
    pub processes_max: usize,
    /// Of these, how many are started ahead.
    pub ahead: usize,
    /// Bytes of address space for each.
    pub memory_bytes_max: u64,
    /// Accounts at `sftp` servers, which know neither proxies nor tokens.
    pub sftp: Vec<SftpAccount>,
    /// Files of `mock` servers, which do not exist, are moved, too.
    pub mock: bool,
    /// What processes may open. `None`: they are not confined, neither in that nor in their connections.
    pub readable: Option<ReadablePaths>,
    /// The account that processes work as. `None`: that of the service.
    pub account: Option<Account>,
    /// This site's storage doors. No gfal process connects there: they do not speak what gfal2 speaks. To the site's
    /// other ports nobody is sent.
    pub doors: Vec<SocketAddr>,
}

/// An account at an `sftp` server, and for whom it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SftpAccount {
    /// The server, as in URLs.
    pub host: String,
    /// The account.
    pub user: String,
    /// The file with its private key.
    pub key: PathBuf,
    /// The VO whose transfers may use it.
    pub vo: VoName,
}

impl SftpAccount {
    fn is_same_login(&self, other: &SftpAccount) -> bool {
        (&self.user, &self.key) == (&other.user, &other.key)
    }
}

/// The gfal processes of one service.
pub(crate) struct Gfal {
    config: GfalConfig,
    places: Arc<Semaphore>,
    ahead: Mutex<VecDeque<Process>>,
    known: Mutex<Option<GfalInstallation>>,
    starter: mpsc::Sender<oneshot::Sender<std::io::Result<Child>>>,
}

/// What is known of this machine's gfal2.
struct GfalInstallation {
    since: Instant,
    plugins: Result<Vec<String>, String>,
}

impl Gfal {
    /// Starts nothing yet but the thread that will. Errors: the system refuses a thread.
    pub(crate) fn new(config: GfalConfig) -> std::io::Result<Gfal> {
        let (starter, asked) = mpsc::channel::<oneshot::Sender<std::io::Result<Child>>>();
        let (runtime, of_process) = (tokio::runtime::Handle::current(), config.clone());
        let start = move || {
            let _in_runtime = runtime.enter();
            while let Ok(answer) = asked.recv() {
                // Who asked may have gone: then the process is dropped, and killed with that.
                let _ = answer.send(command(&of_process).spawn());
            }
        };
        std::thread::Builder::new()
            .name("gfal-starter".into())
            .spawn(start)?;
        Ok(Gfal {
            places: Arc::new(Semaphore::new(config.processes_max + BESIDE)),
            config,
            ahead: Mutex::default(),
            known: Mutex::default(),
            starter,
        })
    }

    /// Whether files of this kind can be reached on this machine. Errors: why not, with the remedy.
    pub(crate) async fn reaches(&self, url: &FileUrl, vo: &VoName) -> Result<(), String> {
        let scheme = url.scheme();
        if scheme == "mock" && !self.config.mock {
            return Err("mock: such files exist in tests only (transfer.gfal.mock)".to_owned());
        }
        let (plugin, package) = plugin_for(&scheme);
        match self.plugins().await {
            Ok(plugins) if plugins.iter().any(|known| known == plugin) => {}
            Ok(_) => {
                return Err(format!(
                    "{scheme}: gfal2 has no plug-in for it here; install {package}"
                ));
            }
            Err(why) => return Err(format!("{scheme}: {why}")),
        }
        match scheme == "sftp" && self.sftp_account(url, vo).is_none() {
            true => Err(no_account(&url.storage(), vo)),
            false => Ok(()),
        }
    }

    /// The account by which a VO's transfers reach an `sftp` server.
    pub(super) fn sftp_account(&self, url: &FileUrl, vo: &VoName) -> Option<&SftpAccount> {
        let mut accounts = self.config.sftp.iter();
        accounts.find(|account| account.host.eq_ignore_ascii_case(url.host()) && account.vo == *vo)
    }

    /// Where a process may connect: as the service itself, but not to the site's storage doors.
    pub(super) fn judge(&self, client: &Client) -> RequestAuthorizer {
        let (client, doors) = (client.clone(), self.config.doors.clone());
        Arc::new(
            move |address| match doors.iter().any(|door| is_at(address, *door)) {
                true => Err("it is a storage door of this site".to_owned()),
                false => client.may_connect(address),
            },
        )
    }

    /// The plug-ins that this machine has. Errors: gfal2 is not there, or cannot be started.
    pub(crate) async fn plugins(&self) -> Result<Vec<String>, String> {
        let mut known = self.known.lock().await;
        let is_settled =
            |known: &GfalInstallation| known.plugins.is_ok() || known.since.elapsed() < LOOK_AGAIN;
        if let Some(known) = known.as_ref().filter(|known| is_settled(known)) {
            return known.plugins.clone();
        }
        let started = self.start().await;
        let plugins = match started {
            Ok((process, plugins)) => {
                self.keep(process).await;
                Ok(plugins)
            }
            Err(why) => Err(why),
        };
        *known = Some(GfalInstallation {
            since: Instant::now(),
            plugins: plugins.clone(),
        });
        plugins
    }

    /// A process for one attempt. Waits while there are as many as may be. Errors: none can be started.
    pub(super) async fn take(self: &Arc<Self>) -> Result<Process, String> {
        let place = self.places.clone().acquire_owned().await;
        let place = place.map_err(|why| why.to_string())?;
        let mut process = loop {
            let ready = self.ahead.lock().await.pop_front();
            match ready {
                // Somebody may have killed it meanwhile.
                Some(mut ready) => {
                    if ready.is_alive() {
                        break ready;
                    }
                }
                None => break self.start().await?.0,
            }
        };
        process.hold(place);
        let gfal = self.clone();
        tokio::spawn(async move { gfal.start_ahead().await });
        Ok(process)
    }

    /// What a process says first, once it is known where it connects.
    async fn first_report(&self, process: &mut Process) -> Result<Report, NoReport> {
        let mut report = process.report().await.map_err(|_| NoReport::Ended)?;
        if let Report::Confined { listener, openable } = report {
            let supervised = process.supervise(listener, openable).await;
            supervised.map_err(NoReport::Refused)?;
            report = process.report().await.map_err(|_| NoReport::Ended)?;
        }
        let is_expected = process.is_supervised() == self.config.readable.is_some();
        match report {
            Report::Ready { .. } if !is_expected => {
                Err(NoReport::Refused("it is not confined".to_owned()))
            }
            report => Ok(report),
        }
    }

    async fn start_ahead(&self) {
        if self.ahead.lock().await.len() >= self.config.ahead {
            return;
        }
        match self.start().await {
            Ok((process, _)) => self.keep(process).await,
            // The next attempt tries again, and tells its transfer.
            Err(why) => tracing::debug!(%why, "no gfal process could be started ahead"),
        }
    }

    async fn keep(&self, process: Process) {
        let mut ahead = self.ahead.lock().await;
        if ahead.len() < self.config.ahead {
            ahead.push_back(process);
            return;
        }
        drop(ahead);
        process.end().await;
    }

    /// Starts one and waits until it has loaded the library.
    async fn start(&self) -> Result<(Process, Vec<String>), String> {
        let failed = |why: String| format!("a gfal process cannot be started: {why}");
        let (answer, started) = oneshot::channel();
        let gone = || failed("the service is ending".to_owned());
        self.starter.send(answer).map_err(|_| gone())?;
        let child = started.await.map_err(|_| gone())?;
        let child = child.map_err(|why| failed(why.to_string()))?;
        let mut process = Process::of(child).map_err(|why| failed(why.to_owned()))?;
        let first = tokio::time::timeout(START_TIMEOUT, self.first_report(&mut process)).await;
        let first = match first {
            Ok(Err(NoReport::Refused(why))) => {
                process.kill().await;
                return Err(failed(why));
            }
            Ok(Err(NoReport::Ended)) => Ok(Err(())),
            Ok(Ok(report)) => Ok(Ok(report)),
            Err(elapsed) => Err(elapsed),
        };
        match first {
            Ok(Ok(Report::Ready { plugins, .. })) => Ok((process, plugins)),
            Ok(Ok(Report::Unusable { why })) => {
                process.end().await;
                Err(why)
            }
            Ok(Ok(_)) => {
                process.kill().await;
                Err(failed("it does not begin as expected".to_owned()))
            }
            Ok(Err(_)) => Err(failed(process.how_it_died().await)),
            Err(_) => {
                process.kill().await;
                let limit = TimeSpan(START_TIMEOUT);
                Err(failed(format!("it is not ready after {limit}")))
            }
        }
    }
}

/// The port that a URL means, by the registered one of its scheme where it names none. `None`: nothing is connected to,
/// as for files of `mock`.
pub(super) fn port_of(url: &Url) -> Option<u16> {
    let usual = match url.scheme() {
        "gsiftp" => 2811,
        "root" | "roots" | "xroot" | "xroots" => 1094,
        "sftp" => 22,
        "srm" => 8443,
        _ => return url.port_or_known_default(),
    };
    Some(url.port().unwrap_or(usual))
}

/// Why a process did not begin.
enum NoReport {
    /// It said nothing and ended.
    Ended,
    /// It must not be used.
    Refused(String),
}

/// Whether a door listens at an address.
fn is_at(address: SocketAddr, door: SocketAddr) -> bool {
    let (ip, own) = (address.ip().to_canonical(), door.ip().to_canonical());
    address.port() == door.port() && (own == ip || (own.is_unspecified() && is_of_this_machine(ip)))
}

/// The plug-ins of this machine's gfal2, by a process that is started for that and ended. Errors: there is none.
pub async fn gfal_plugins(config: GfalConfig) -> Result<Vec<String>, String> {
    let gfal = Gfal::new(config).map_err(|why| why.to_string())?;
    let (process, plugins) = gfal.start().await?;
    process.end().await;
    Ok(plugins)
}

/// What is said where no account is configured.
fn no_account(storage: &StorageId, vo: &VoName) -> String {
    format!(
        "{storage}: the site has no account there for transfers of {vo}; operators add one as [[transfer.gfal.sftp]]"
    )
}

/// The plug-in for a scheme, and Debian's package of it.
fn plugin_for(scheme: &str) -> (&'static str, &'static str) {
    match scheme {
        "gsiftp" => ("gridftp", "gfal2-plugin-gridftp"),
        "srm" => ("srm", "gfal2-plugin-srm"),
        "sftp" => ("sftp", "gfal2-plugin-sftp"),
        "mock" => ("mock", "gfal2-plugin-mock"),
        _ => ("xrootd", "gfal2-plugin-xrootd"),
    }
}

fn confinement(config: &GfalConfig) -> Vec<OsString> {
    let mut arguments = Vec::new();
    if let Some(account) = config.account {
        arguments.push("--account".into());
        arguments.push(format!("{}:{}", account.user, account.group).into());
    }
    let Some(readable) = &config.readable else {
        arguments.push("--unconfined".into());
        return arguments;
    };
    for (option, paths) in [
        ("--readable", &readable.paths),
        ("--trusted", &readable.trusted),
    ] {
        for path in paths {
            arguments.push(option.into());
            arguments.push(path.into());
        }
    }
    arguments
}

fn command(config: &GfalConfig) -> Command {
    let mut command = Command::new(&config.program);
    command
        .arg0("penstock")
        .args(&config.arguments)
        .args(["--service", &std::process::id().to_string()])
        .args(["--memory", &config.memory_bytes_max.to_string()])
        .args(confinement(config))
        .env_clear()
        .envs(&config.environment)
        .current_dir("/")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}
