//! `penstock serve`: every role of one site in one process, from the lock on its directory to the last
//! drained transfer.
//!
//! Starts, stops and reloads; what the roles do is theirs. They meet only over the wire, as if each had a
//! machine.

mod alerts;
mod documents;
pub mod explain;
mod files;
mod fixed;
pub mod host;
mod issuer;
mod live;
mod monitor;
mod process;
pub mod roles;
mod sinks;
mod start;

use crate::args::ServeArgs;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::{LogOutput, Output};
use crate::site::config::Config;
use crate::site::directory::SiteDirectory;
use crate::site::expiry;
use crate::site::reload;
use files::{LOOK_EVERY, WatchedFiles};
use fixed::Reloadable;
use issuer::{Published, PublishedDocuments};
use monitor::SiteMonitor;
use penstock_clock::wall_clock;
use penstock_decide::history::Retention;
use penstock_observe::host::sampler::Sampler;
use penstock_protocol::connections::Connections;
use penstock_protocol::http1::client::{NearEnds, Reach};
use penstock_protocol::tls::{ClientTls, PeerTls, ServerTls};
use penstock_protocol::token::Verifier;
use penstock_protocol::x509::ClientCertificates;
use penstock_storage_element::{DoorThreads, Storage};
use penstock_transfer_service::Banned;
use penstock_transfer_service::api::{Administrators, SuppressedAlerts};
use penstock_transfer_service::{Service, TokenClients};
use roles::TrustedIssuers;
use rustix::fs::Mode;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask,
};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tracing_subscriber::EnvFilter;

/// Idle connections kept to each other server at least.
const IDLE_PER_HOST: usize = 64;
/// How much longer than the drain itself the process waits for everything to end.
const END_GRACE: Duration = Duration::from_secs(10);

/// `penstock serve`.
pub async fn run(
    args: ServeArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    start_log(&args.log)?;
    keep_to_itself();
    let site = SiteDirectory::to_change(&args.dir)?;
    let config = site.config()?;
    let _lock = site.lock()?;
    let process = Process {
        drain: args.drain.0,
        files_max: raise_file_limit(),
        connections: Connections::default(),
        near_ends: NearEnds::default(),
        database_passwords: environment.database_passwords.clone(),
    };
    let mut signals = Signals::listen()?;
    let (stop, stopping) = watch::channel(false);
    let mut running = tokio::select! {
        started = RunningRoles::start(&site, &config, process, &stopping) => started?,
        // Such as while a node waits for its service's leader.
        () = signals.stop() => return Ok(()),
    };
    running.announce(output);
    let ended_early = running.until_stopped(&site, &config, &mut signals).await;
    running.monitor.stops();
    let _ = stop.send(true);
    let unwell = running.end(args.drain.0 + END_GRACE, &mut signals).await;
    // Its end waits for a disk.
    let _ = tokio::task::spawn_blocking(move || drop(running.sampler.take())).await;
    match (ended_early, unwell) {
        (None, None) => Ok(()),
        (None, Some(why)) => Err(CommandError::Local(why)),
        (Some(name), _) => Err(CommandError::Local(format!(
            "{name} ended unexpectedly; see the log above"
        ))),
    }
}

fn start_log(levels: &str) -> Result<(), CommandError> {
    let filter = EnvFilter::try_new(levels)
        .map_err(|why| CommandError::Usage(format!("--log '{levels}': {why}")))?;
    let is_coloured = std::io::stderr().is_terminal();
    let to_standard_error = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_coloured)
        .with_writer(move || LogOutput { is_coloured });
    to_standard_error
        .try_init()
        .map_err(|why| CommandError::local("cannot start the log", why))
}

/// Other users of the machine see nothing of this process: files that it makes are its own, its memory is in no core
/// dump, and no process of its user, such as a child that a transfer has taken over, can trace it.
fn keep_to_itself() {
    umask(Mode::from_raw_mode(0o077));
    // 1, not 0: the kernel gives a core to a program that catches dumps unless the limit is just this (core(5)).
    let core = Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    if let Err(why) = setrlimit(Resource::Core, core) {
        tracing::warn!(%why, "core dumps cannot be disabled; they can contain keys");
    }
    if let Err(why) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%why, "the process cannot be kept from being traced");
    }
}

/// Each connection and each open file is a descriptor; the soft limit is a default of 1024 for programs that
/// use `select`, which this one does not. Gives back how many there may be.
fn raise_file_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(why) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%why, "the limit of open files cannot be raised");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    reload: Signal,
}

impl Signals {
    fn listen() -> Result<Signals, CommandError> {
        let listen = |kind| {
            signal(kind).map_err(|why| CommandError::local("cannot listen for signals", why))
        };
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            reload: listen(SignalKind::hangup())?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// What all roles of the process share.
pub struct Process {
    drain: Duration,
    /// Files that may be open at once, connections among them.
    files_max: u64,
    connections: Connections,
    /// Of what this process connects to itself.
    near_ends: NearEnds,
    /// Passwords of databases.
    database_passwords: Option<PathBuf>,
}

/// The roles that run, and what can be reloaded of them.
struct RunningRoles {
    tasks: JoinSet<RoleEnd>,
    doors: Vec<(&'static str, String)>,
    server_tls: ServerTls,
    clients: ClientCertificates,
    client_tls: ClientTls,
    storage: Option<Arc<Storage>>,
    /// What serves its doors.
    door_threads: Option<DoorThreads>,
    transfer: Option<RunningTransfer>,
    banned: Banned,
    administrators: Administrators,
    token_clients: TokenClients,
    /// Where agents and the service's look at issuers' keys may lead.
    reach: Reach,
    published: Published,
    monitor: Arc<SiteMonitor>,
    /// What mutes have held back.
    suppressed: SuppressedAlerts,
    /// `None`: the host is not sampled.
    sampler: Option<Sampler>,
    /// What is in effect: as the process started, or as of the last reload.
    config: Config,
    watched: WatchedFiles,
    process: Process,
}

/// The transfer service, and what can be reloaded of it.
struct RunningTransfer {
    service: Arc<Service>,
    verifier: Verifier,
    /// What other nodes are shown.
    peers: Option<PeerTls>,
    retention: watch::Sender<Retention>,
}

impl RunningRoles {
    async fn start(
        site: &SiteDirectory,
        config: &Config,
        process: Process,
        stopping: &watch::Receiver<bool>,
    ) -> Result<RunningRoles, CommandError> {
        let usage = |why: &dyn std::fmt::Display| CommandError::Usage(why.to_string());
        process
            .connections
            .configure(roles::connection_limits(config, process.files_max));
        let certificates = site.resolve(&config.trust.certificates);
        let clients = roles::client_certificates(site, config);
        let server_tls = ServerTls::load_asking(
            &site.resolve(&config.tls.certificate),
            &site.resolve(&config.tls.key),
            clients.clone(),
        )
        .map_err(|why| usage(&why))?;
        let client_tls = ClientTls::from_ca_directory(&certificates).map_err(|why| usage(&why))?;
        let trusted = TrustedIssuers::of(site, config)?;
        let mut running = RunningRoles {
            tasks: JoinSet::new(),
            doors: Vec::new(),
            server_tls,
            clients,
            client_tls,
            storage: None,
            door_threads: None,
            transfer: None,
            banned: Banned::default(),
            administrators: Administrators::default(),
            token_clients: TokenClients::default(),
            reach: Reach::default(),
            published: Published::default(),
            monitor: Arc::new(SiteMonitor::new(
                config,
                process.connections.clone(),
                process.near_ends.clone(),
            )),
            suppressed: SuppressedAlerts::default(),
            sampler: host::start(site, config),
            config: config.clone(),
            watched: WatchedFiles::of(site, config),
            process,
        };
        if let Some(sampler) = &running.sampler {
            running.monitor.joined_by_host(&sampler.host());
        }
        running.publish(site, config, &trusted);
        running.look_at_endings(site, config).await;
        running
            .start_storage(site, config, &trusted, stopping)
            .await?;
        running
            .start_transfer(site, config, &trusted, stopping)
            .await?;
        Ok(running)
    }

    fn announce(&self, output: Output) {
        match output.json {
            true => {
                let doors: serde_json::Map<_, _> = self
                    .doors
                    .iter()
                    .map(|(name, url)| ((*name).to_owned(), url.clone().into()))
                    .collect();
                output.line(&serde_json::json!({ "doors": doors, "ready": true }).to_string());
            }
            false => {
                for (name, url) in &self.doors {
                    output.line(&format!("{name:9} {url}"));
                }
                output.line("ready");
            }
        }
    }

    /// Serves until a signal asks to stop, or gives back the name of a role that ended by itself.
    async fn until_stopped(
        &mut self,
        site: &SiteDirectory,
        started_with: &Config,
        signals: &mut Signals,
    ) -> Option<&'static str> {
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = signals.terminate.recv() => return None,
                _ = signals.interrupt.recv() => return None,
                _ = signals.reload.recv() => self.reload(site, started_with).await,
                _ = look.tick() => self.renew(site).await,
                Some(ended) = self.tasks.join_next() => {
                    return Some(ended.ok().and_then(Result::ok).unwrap_or("a role"));
                }
            }
        }
    }

    /// Takes over what may change while running. What is wrong is logged, and the old values stay.
    async fn reload(&mut self, site: &SiteDirectory, started_with: &Config) {
        let reloaded = match site.config() {
            Err(why) => Err(why.into()),
            Ok(read) => {
                let Reloadable { config, waiting } =
                    Reloadable::of(started_with, &self.config, read);
                for change in waiting {
                    tracing::warn!(%change, "a change needs a restart");
                }
                self.take_over(site, &config).await.map(|()| config)
            }
        };
        let error = match reloaded {
            Ok(config) => {
                self.monitor.configure(&config);
                self.look_at_endings(site, &config).await;
                self.config = config;
                tracing::info!("reloaded limits, certificates and trust");
                None
            }
            Err(why) => {
                tracing::error!(%why, "the reload stopped here; the previous values stay in effect");
                Some(why.to_string())
            }
        };
        let site = site.clone();
        // A command may wait for it.
        let left = tokio::task::spawn_blocking(move || reload::leave(&site, error)).await;
        if let Err(why) = left {
            tracing::error!(%why, "cannot store the outcome of the reload");
        }
    }

    /// Takes over keys and certificates whose files have changed, and forgets keys that have ended. The
    /// configuration stays as it is.
    async fn renew(&mut self, site: &SiteDirectory) {
        if !self.watched.is_due() {
            return;
        }
        let changed = self.watched.has_changed();
        let config = self.config.clone();
        // Before the files are read: what changes meanwhile is seen next time.
        self.watched = WatchedFiles::of(site, &config);
        self.look_at_endings(site, &config).await;
        match self.take_over(site, &config).await {
            Ok(()) if changed => tracing::info!("loaded changed keys or certificates"),
            Ok(()) => {}
            Err(why) => {
                tracing::error!(%why, "changed keys or certificates cannot be used; the previous ones stay in effect")
            }
        }
    }

    /// Looks at what ends, for monitors.
    async fn look_at_endings(&self, site: &SiteDirectory, config: &Config) {
        let (site, config) = (site.clone(), config.clone());
        let look = move || expiry::of_site(&site, &config, wall_clock());
        match tokio::task::spawn_blocking(look).await {
            Ok(found) => self.monitor.replace_endings(found),
            Err(why) => tracing::error!(%why, "the expiry dates could not be read"),
        }
    }

    fn publish(&self, site: &SiteDirectory, config: &Config, trusted: &TrustedIssuers) {
        let (openid_configuration, jwks) = trusted.published().unwrap_or_default();
        self.published.replace(PublishedDocuments {
            site: roles::site_document(site, config, trusted),
            openid_configuration,
            jwks,
        });
    }

    async fn take_over(&self, site: &SiteDirectory, config: &Config) -> Result<(), CommandError> {
        let usage = |why: &dyn std::fmt::Display| CommandError::Usage(why.to_string());
        let trusted = TrustedIssuers::of(site, config)?;
        self.server_tls.reload().map_err(|why| usage(&why))?;
        self.client_tls.reload().map_err(|why| usage(&why))?;
        self.publish(site, config, &trusted);
        self.clients
            .replace_members(roles::member_rules(site, config));
        self.process
            .connections
            .configure(roles::connection_limits(config, self.process.files_max));
        if let (Some(storage), Some(role)) = (&self.storage, &config.storage) {
            let (storage, role) = (
                storage.clone(),
                roles::storage_config(site, config, role, &trusted, &self.process)?,
            );
            let reloaded = tokio::task::spawn_blocking(move || storage.reload(role)).await;
            reloaded
                .map_err(|why| usage(&why))?
                .map_err(|why| usage(&why))?;
        }
        if let (Some(running), Some(role)) = (&self.transfer, &config.transfer) {
            if let Some(peers) = &running.peers {
                peers.reload().map_err(|why| usage(&why))?;
            }
            let keys = site.resolve(&role.credential_keys);
            let taken_over = running.service.take_over_keys(&keys).await;
            taken_over.map_err(|why| usage(&why))?;
            trusted.renew(&running.verifier, roles::service_audiences(config, role));
            self.banned.replace(config.trust.banned.iter().cloned());
            self.administrators.replace(roles::administrators(role));
            running.retention.send_replace(role.retention());
            let clients = roles::token_clients(site, config).map_err(|why| usage(&why))?;
            self.token_clients.replace(clients);
            self.reach.replace(config.reach(&role.credentials_follow));
            running
                .service
                .configure(roles::engine_config(role))
                .await
                .map_err(|why| usage(&why))?;
        }
        Ok(())
    }

    /// Waits until every role has ended; a second signal, or the end of patience, ends the wait. Gives back why a role
    /// did not end well; the log was told.
    async fn end(&mut self, patience: Duration, signals: &mut Signals) -> Option<String> {
        let mut unwell = None;
        let ended = async {
            while let Some(ended) = self.tasks.join_next().await {
                if let Ok(Err(why)) = ended {
                    unwell = Some(why);
                }
            }
        };
        tokio::select! {
            _ = ended => tracing::info!("stopped"),
            _ = tokio::time::sleep(patience) => {
                tracing::warn!("some work did not finish in time; it continues after the next start");
            },
            _ = signals.stop() => tracing::warn!("second stop signal; stopping immediately"),
        }
        unwell
    }
}

/// The role that has ended, or why it did not end well.
type RoleEnd = Result<&'static str, String>;
