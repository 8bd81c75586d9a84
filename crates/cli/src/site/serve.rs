//! `penstock serve`: every role of one site in one process, from the lock on its directory to the last
//! drained transfer.
//!
//! Starts, stops and reloads; what the roles do is theirs. They meet only over the wire, as if each had a
//! machine.

mod documents;
mod files;
pub mod host;
mod issuer;
mod live;
mod monitor;
mod process;
pub mod roles;
mod sinks;

use crate::args::{BackupPart, ServeArgs};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::{LogOutput, Output};
use crate::site::backup;
use crate::site::config::{Config, Transfer};
use crate::site::directory::SiteDirectory;
use crate::site::expiry;
use crate::site::store;
use files::{LOOK_EVERY, WatchedFiles};
use issuer::PublishedKeys;
use monitor::SiteMonitor;
use penstock_clock::wall_clock;
use penstock_decide::history::Retention;
use penstock_observe::host::sampler::Sampler;
use penstock_persistence::sealing::SealingKeys;
use penstock_protocol::connections::Connections;
use penstock_protocol::http1::client::{Client, ClientConfig, NearEnds, Reach};
use penstock_protocol::http1::tally::RequestTally;
use penstock_protocol::tls::{ClientTls, PeerTls, ServerTls};
use penstock_protocol::token::Verifier;
use penstock_protocol::x509::ClientCertificates;
use penstock_storage_element::{self as storage_element, DoorConfig, Storage};
use penstock_transfer_service::Banned;
use penstock_transfer_service::api::{self, Administrators};
use penstock_transfer_service::messages::{self, MessagesConfig, Positions};
use penstock_transfer_service::{Service, ServiceConfig, Store, TokenClients};
use roles::TrustedIssuers;
use rustix::fs::Mode;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask,
};
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
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
    let site = SiteDirectory::at(&args.dir)?;
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
        tracing::warn!(%why, "core dumps cannot be forbidden; they would hold keys");
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
    transfer: Option<RunningTransfer>,
    banned: Banned,
    administrators: Administrators,
    token_clients: TokenClients,
    /// Where agents and the service's look at issuers' keys may lead.
    reach: Reach,
    published: PublishedKeys,
    monitor: Arc<SiteMonitor>,
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
            transfer: None,
            banned: Banned::default(),
            administrators: Administrators::default(),
            token_clients: TokenClients::default(),
            reach: Reach::default(),
            published: PublishedKeys::default(),
            monitor: Arc::new(SiteMonitor::new(
                config,
                process.connections.clone(),
                process.near_ends.clone(),
            )),
            sampler: host::start(site, config),
            config: config.clone(),
            watched: WatchedFiles::of(site, config),
            process,
        };
        if let Some(sampler) = &running.sampler {
            running.monitor.joined_by_host(&sampler.host());
        }
        running.published.replace(&trusted);
        running.look_at_endings(site, config).await;
        running
            .start_storage(site, config, &trusted, stopping)
            .await?;
        running
            .start_transfer(site, config, &trusted, stopping)
            .await?;
        Ok(running)
    }

    async fn start_storage(
        &mut self,
        site: &SiteDirectory,
        config: &Config,
        trusted: &TrustedIssuers,
        stopping: &watch::Receiver<bool>,
    ) -> Result<(), CommandError> {
        let Some(role) = &config.storage else {
            return Ok(());
        };
        // Ports first: that one is taken is known in a millisecond, recovery of a large pool takes longer.
        let listener = listen("storage.listen", role.listen).await?;
        let plain = match role.plain_listen {
            Some(address) => Some((listen("storage.plain_listen", address).await?, address)),
            None => None,
        };
        let storage_config = roles::storage_config(site, config, role, trusted, &self.process)?;
        let opened = tokio::task::spawn_blocking(move || Storage::open(storage_config)).await;
        let storage = opened
            .map_err(|why| CommandError::local("opening the storage", why))?
            .map_err(|why| CommandError::Local(why.to_string()))?;
        self.monitor.joined_by_storage(&storage);
        let (door_storage, stopping_door) = (storage.clone(), stopping.clone());
        let door = DoorConfig {
            listener: listener
                .into_std()
                .map_err(|why| CommandError::local("storage.listen", why))?,
            tls: Some(self.server_tls.clone()),
            monitor: Some(self.monitor.clone()),
            tls_only: plain.is_none(),
        };
        self.tasks.spawn(async move {
            let ended = storage_element::serve(door_storage, door, stopping_door).await;
            end_of("the storage door", ended)
        });
        self.doors.push((
            "storage",
            format!("{}/", config.door_url().unwrap_or_default()),
        ));
        if let Some((listener, address)) = plain {
            let (door_storage, stopping_door) = (storage.clone(), stopping.clone());
            let door = DoorConfig {
                listener: listener
                    .into_std()
                    .map_err(|why| CommandError::local("storage.plain_listen", why))?,
                tls: None,
                monitor: Some(self.monitor.clone()),
                tls_only: false,
            };
            self.tasks.spawn(async move {
                let ended = storage_element::serve(door_storage, door, stopping_door).await;
                end_of("the plain storage door", ended)
            });
            self.doors.push((
                "plain",
                format!("http://{}:{}/", config.url_host(), address.port()),
            ));
        }
        if let Some(plan) = role.backup.clone() {
            let backups = backup::Schedule {
                site: site.clone(),
                config: config.clone(),
                part: BackupPart::Namespace,
                plan,
                pass_file: None,
                meter: self.monitor.joined_by_backups(),
            };
            tokio::spawn(backups.keep_backing_up(stopping.clone()));
        }
        self.storage = Some(storage);
        Ok(())
    }

    async fn start_transfer(
        &mut self,
        site: &SiteDirectory,
        config: &Config,
        trusted: &TrustedIssuers,
        stopping: &watch::Receiver<bool>,
    ) -> Result<(), CommandError> {
        let Some(role) = &config.transfer else {
            return Ok(());
        };
        let listener = listen("transfer.listen", role.listen).await?;
        self.banned.replace(config.trust.banned.iter().cloned());
        self.administrators.replace(roles::administrators(role));
        self.token_clients
            .replace(roles::token_clients(site, config)?);
        // One for each transfer that may run at a storage element: those of many come back at once, and each that was
        // closed would cost a handshake, which is more than all other work on a small file.
        let at_once = usize::try_from(role.active_max_per_storage).unwrap_or(usize::MAX);
        let client = Client::new(ClientConfig {
            idle_per_host: IDLE_PER_HOST.max(at_once),
            near_ends: self.process.near_ends.clone(),
            ..ClientConfig::new(self.client_tls.clone())
        })
        .with_reach(&self.reach);
        self.reach.replace(config.reach(&role.credentials_follow));
        let verifier = trusted.verifier(roles::service_audiences(config, role), client.clone());
        let pass_file = self.process.database_passwords.as_deref();
        let store = store::of(site, config, role, pass_file).await?;
        let (keys, peers) = match &store {
            Store::Files { .. } => {
                let keys = SealingKeys::load_or_create(&site.resolve(&role.credential_keys));
                (
                    keys.map_err(|why| CommandError::Usage(why.to_string()))?,
                    None,
                )
            }
            Store::Postgres(nodes) => {
                let keys = nodes.obtain_keys(stopping.clone()).await;
                let keys = keys.map_err(|why| CommandError::Local(why.to_string()))?;
                (keys, Some(nodes.tls.clone()))
            }
        };
        let service_config = ServiceConfig {
            site: config.site.name.clone(),
            store: store.clone(),
            keys,
            engine: roles::engine_config(role),
            agents: roles::agent_config(role),
            gfal: Some(roles::gfal_config(site, config, role)?),
            token_clients: self.token_clients.clone(),
            banned: self.banned.clone(),
            drain_grace: self.process.drain,
        };
        let service = Service::start(service_config, client, stopping.clone())
            .await
            .map_err(|why| CommandError::Local(why.to_string()))?;
        self.tell(site, config, role, (&service, &store), stopping)
            .await?;
        let retention = watch::Sender::new(role.retention());
        service.keep_history(retention.subscribe(), stopping.clone());
        if let Some(plan) = role.backup.clone() {
            let backups = backup::Schedule {
                site: site.clone(),
                config: config.clone(),
                part: BackupPart::Transfer,
                plan,
                pass_file: self.process.database_passwords.clone(),
                meter: self.monitor.joined_by_backups(),
            };
            tokio::spawn(backups.keep_backing_up(stopping.clone()));
        }
        let api_config = api::ApiConfig {
            verifier: verifier.clone(),
            own_issuer: config
                .issuer
                .as_ref()
                .map(|issuer| issuer.url.clone())
                .unwrap_or_default(),
            required_scope: role.required_scope.clone(),
            certificates: self.clients.clone(),
            banned: self.banned.clone(),
            administrators: self.administrators.clone(),
            token_clients: self.token_clients.clone(),
            monitor: Some(self.monitor.clone()),
            host: config.url_host(),
        };
        let mut router = api::router(service.clone(), api_config.clone())
            .merge(issuer::router(self.published.clone()))
            .merge(documents::router());
        if let Some(sampler) = &self.sampler {
            let view = Arc::new(host::View(sampler.host()));
            router = router.merge(api::host::routes(service.clone(), api_config.clone(), view));
        }
        let url = config.service_url().unwrap_or_default();
        self.doors.push(("transfer", format!("{url}/")));
        if config.observe.live_page {
            router = router.merge(live::router(&service, &api_config));
            self.doors.push(("live page", format!("{url}/live/")));
        }
        let requests = Arc::new(RequestTally::default());
        self.monitor.joined_by_transfer(&service, &requests);
        let (tls, stopping_api) = (self.server_tls.clone(), stopping.clone());
        let limits = api::ServeLimits {
            connections: self.process.connections.clone(),
            head_timeout: config.limits.head_timeout.0,
            stall_timeout: config.limits.stall_timeout.0,
            body_pace: roles::body_pace(config),
            requests,
        };
        self.tasks.spawn(async move {
            api::serve(listener, tls, router, limits, stopping_api).await;
            Ok("the transfer service's interface")
        });
        let engine = service.clone();
        self.tasks.spawn(async move {
            match engine.ended().await {
                Ok(()) => Ok("the transfer engine"),
                Err(why) => {
                    tracing::error!(%why, "the transfer engine ended with an error");
                    Err(why.to_string())
                }
            }
        });
        self.transfer = Some(RunningTransfer {
            service,
            verifier,
            peers,
            retention,
        });
        Ok(())
    }

    /// Lets brokers and files know what happens to transfers.
    async fn tell(
        &self,
        site: &SiteDirectory,
        config: &Config,
        role: &Transfer,
        (service, store): (&Arc<Service>, &Store),
        stopping: &watch::Receiver<bool>,
    ) -> Result<(), CommandError> {
        let sinks: Result<_, String> = role
            .messages
            .iter()
            .map(|sink| sinks::resolve(sink, site))
            .collect();
        let messages = MessagesConfig {
            endpoint: config.url_host(),
            positions: match store {
                Store::Files { .. } => Positions::Directory(site.resolve(&role.message_positions)),
                Store::Postgres(nodes) => Positions::Database(Box::new(nodes.database.clone())),
            },
            sinks: sinks.map_err(CommandError::Usage)?,
        };
        messages::start(messages, service, &self.client_tls, stopping)
            .await
            .map_err(|why| CommandError::Local(format!("positions of messages: {why}")))
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
            Ok(config) => {
                for change in roles::needs_restart(started_with, &config) {
                    tracing::warn!(%change, "a change needs a restart");
                }
                self.take_over(site, &config).await.map(|()| config)
            }
        };
        match reloaded {
            Ok(config) => {
                self.monitor.configure(&config);
                self.look_at_endings(site, &config).await;
                self.config = config;
                tracing::info!("reloaded limits, certificates and trust");
            }
            Err(why) => {
                tracing::error!(%why, "nothing more was reloaded; the values before stay in effect")
            }
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
            Ok(()) if changed => tracing::info!("took over changed keys or certificates"),
            Ok(()) => {}
            Err(why) => {
                tracing::error!(%why, "changed keys or certificates cannot be used; those before stay in effect")
            }
        }
    }

    /// Looks at what ends, for monitors.
    async fn look_at_endings(&self, site: &SiteDirectory, config: &Config) {
        let (site, config) = (site.clone(), config.clone());
        let look = move || expiry::of_site(&site, &config, wall_clock());
        match tokio::task::spawn_blocking(look).await {
            Ok(found) => self.monitor.replace_endings(found),
            Err(why) => tracing::error!(%why, "what expires when could not be found out"),
        }
    }

    async fn take_over(&self, site: &SiteDirectory, config: &Config) -> Result<(), CommandError> {
        let usage = |why: &dyn std::fmt::Display| CommandError::Usage(why.to_string());
        let trusted = TrustedIssuers::of(site, config)?;
        self.server_tls.reload().map_err(|why| usage(&why))?;
        self.client_tls.reload().map_err(|why| usage(&why))?;
        self.published.replace(&trusted);
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
            _ = ended => tracing::info!("everything has ended"),
            _ = tokio::time::sleep(patience) => {
                tracing::warn!("some work did not end in time; it continues after the next start");
            },
            _ = signals.stop() => tracing::warn!("asked again to stop; ending at once"),
        }
        unwell
    }
}

/// The role that has ended, or why it did not end well.
type RoleEnd = Result<&'static str, String>;

fn end_of(name: &'static str, ended: std::io::Result<()>) -> RoleEnd {
    if let Err(why) = ended {
        tracing::error!(%why, name, "a role ended with an error");
    }
    Ok(name)
}

async fn listen(key: &str, address: SocketAddr) -> Result<TcpListener, CommandError> {
    TcpListener::bind(address)
        .await
        .map_err(|why| match why.kind() {
            std::io::ErrorKind::AddrInUse => CommandError::Local(format!(
                "{key}: {address} is taken by another process; stop it or choose another port"
            )),
            _ => CommandError::local(format_args!("{key}: cannot listen on {address}"), why),
        })
}
