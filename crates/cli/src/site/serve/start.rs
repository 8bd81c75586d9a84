//! Starts the roles of a process: opens what they keep, then their doors.

use super::alerts::Alerting;
use super::issuer;
use super::roles::{self, TrustedIssuers};
use super::{
    IDLE_PER_HOST, RoleEnd, RunningRoles, RunningTransfer, documents, explain, host, live, sinks,
};
use crate::args::BackupPart;
use crate::exit::CommandError;
use crate::site::backup;
use crate::site::config::{BackupPlan, Config, Transfer};
use crate::site::directory::SiteDirectory;
use crate::site::element_record::ElementRecord;
use crate::site::store;
use penstock_clock::wall_clock;
use penstock_observe::host::databases::DatabaseKind;
use penstock_observe::host::sampler::Sampler;
use penstock_persistence::access_links::AccessLinks;
use penstock_persistence::sealing::SealingKeys;
use penstock_protocol::http1::client::{Client, ClientConfig};
use penstock_protocol::http1::tally::RequestTally;
use penstock_protocol::tls::PeerTls;
use penstock_protocol::token::Verifier;
use penstock_storage_element::{DoorConfig, DoorThreads, Storage};
use penstock_transfer_service::api;
use penstock_transfer_service::messages::{self, MessagesConfig, Positions};
use penstock_transfer_service::{Service, ServiceConfig, StoreBackend};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The interface of the transfer service, ready to be served.
struct TransferApi {
    router: axum::Router,
    requests: Arc<RequestTally>,
}

impl RunningRoles {
    pub(super) async fn start_storage(
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
        let threads = DoorThreads::start(Arc::clone(&storage));
        let threads = threads.map_err(|why| CommandError::local("threads of the doors", why))?;
        let door = DoorConfig {
            listener: blocking("storage.listen", listener)?,
            tls: Some(self.server_tls.clone()),
            monitor: Some(self.monitor.clone()),
            tls_only: plain.is_none(),
        };
        self.open_door("the storage door", &threads, door, stopping);
        let url = config.door_url().unwrap_or_default();
        self.doors.push(("storage", format!("{url}/")));
        if let Some((listener, address)) = plain {
            let door = DoorConfig {
                listener: blocking("storage.plain_listen", listener)?,
                tls: None,
                monitor: Some(self.monitor.clone()),
                tls_only: false,
            };
            self.open_door("the plain storage door", &threads, door, stopping);
            let (host, port) = (config.url_host(), address.port());
            self.doors.push(("plain", format!("http://{host}:{port}/")));
        }
        if let Some(plan) = role.backup.clone() {
            self.keep_backing_up(site, config, BackupPart::Namespace, plan, stopping);
        }
        if let Some(sampler) = &self.sampler {
            let meter = storage.namespace().writer_meter();
            let read = move || host::namespace_totals(&meter);
            sampler.host().watch_database(DatabaseKind::Namespace, read);
        }
        self.storage = Some(storage);
        self.door_threads = Some(threads);
        Ok(())
    }

    fn open_door(
        &mut self,
        name: &'static str,
        threads: &DoorThreads,
        door: DoorConfig,
        stopping: &watch::Receiver<bool>,
    ) {
        let serving = threads.serve(door, stopping.clone());
        self.tasks.spawn(async move { end_of(name, serving.await) });
    }

    fn keep_backing_up(
        &self,
        site: &SiteDirectory,
        config: &Config,
        part: BackupPart,
        plan: BackupPlan,
        stopping: &watch::Receiver<bool>,
    ) {
        let pass_file = match part {
            BackupPart::Transfer => self.process.database_passwords.clone(),
            BackupPart::Namespace => None,
        };
        let backups = backup::Schedule {
            site: site.clone(),
            config: config.clone(),
            part,
            plan,
            pass_file,
            meter: self.monitor.joined_by_backups(),
        };
        tokio::spawn(backups.keep_backing_up(stopping.clone()));
    }

    /// Starts the transfer service. Long because what it needs is opened in one order.
    pub(super) async fn start_transfer(
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
        let (keys, peers) = sealing_keys(site, role, &store, stopping).await?;
        // What is wrong with it is known before anything starts.
        let access_links = AccessLinks::open(&site.resolve(&role.access_links), wall_clock());
        let access_links = access_links.map_err(|why| CommandError::Local(why.to_string()))?;
        let access_links = Arc::new(access_links);
        let element = self.element_record(site, config);
        let alerting = Alerting::of(site, config, &self.client_tls, element);
        let alerting = alerting.map_err(CommandError::Usage)?;
        let service_config = ServiceConfig {
            site: config.site.name.clone(),
            sampling: roles::link_sampling(config),
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
        self.sample_journal(&service);
        let messages = messages_config(site, config, role, &store)?;
        messages::start(messages, &service, &self.client_tls, stopping)
            .await
            .map_err(|why| CommandError::Local(format!("positions of messages: {why}")))?;
        if let Some(alerting) = alerting {
            alerting.start(&service, &self.suppressed, stopping);
        }
        let retention = watch::Sender::new(role.retention());
        service.keep_history(retention.subscribe(), stopping.clone());
        if let Some(plan) = role.backup.clone() {
            self.keep_backing_up(site, config, BackupPart::Transfer, plan, stopping);
        }
        let api = self.api((site, config), role, &service, (&verifier, &access_links));
        self.serve_api(config, api, listener, stopping);
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

    /// Has the sampler of the host read how long commits take.
    fn sample_journal(&self, service: &Service) {
        if let Some(sampler) = &self.sampler {
            let meter = service.journal_meter();
            let read = move || host::journal_totals(&meter);
            sampler.host().watch_database(DatabaseKind::Journal, read);
        }
    }

    fn element_record(&self, site: &SiteDirectory, config: &Config) -> ElementRecord {
        let host = self.sampler.as_ref().map(Sampler::host);
        ElementRecord::running(site, config, self.storage.as_ref(), host)
    }

    /// The interface of the transfer service, with what this process shows beside it.
    fn api(
        &mut self,
        (site, config): (&SiteDirectory, &Config),
        role: &Transfer,
        service: &Arc<Service>,
        (verifier, access_links): (&Verifier, &Arc<AccessLinks>),
    ) -> TransferApi {
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
            suppressed: self.suppressed.clone(),
            access_links: Arc::clone(access_links),
            host: config.url_host(),
        };
        let mut router = api::router(service.clone(), api_config.clone())
            .merge(issuer::router(self.published.clone()))
            .merge(documents::router());
        if let Some(sampler) = &self.sampler {
            let view = Arc::new(host::View(sampler.host()));
            router = router.merge(api::host::routes(service.clone(), api_config.clone(), view));
        }
        let view = Arc::new(explain::View {
            record: Arc::new(service.reader().clone()),
            element: self.element_record(site, config),
        });
        router = router.merge(api::explain::routes(
            service.clone(),
            api_config.clone(),
            view,
        ));
        let url = config.service_url().unwrap_or_default();
        self.doors.push(("transfer", format!("{url}/")));
        if config.observe.live_page {
            router = router.merge(live::router(service, &api_config));
            self.doors.push(("live page", format!("{url}/live/")));
        }
        let requests = Arc::new(RequestTally::default());
        self.monitor.joined_by_transfer(service, &requests);
        TransferApi { router, requests }
    }

    fn serve_api(
        &mut self,
        config: &Config,
        api: TransferApi,
        listener: TcpListener,
        stopping: &watch::Receiver<bool>,
    ) {
        let (tls, stopping_api) = (self.server_tls.clone(), stopping.clone());
        let limits = api::ServeLimits {
            connections: self.process.connections.clone(),
            head_timeout: config.limits.head_timeout.0,
            stall_timeout: config.limits.stall_timeout.0,
            body_pace: roles::body_pace(config),
            requests: api.requests,
        };
        self.tasks.spawn(async move {
            api::serve(listener, tls, api.router, limits, stopping_api).await;
            Ok("the transfer service's interface")
        });
    }
}

/// Where brokers and files are told what happens to transfers.
fn messages_config(
    site: &SiteDirectory,
    config: &Config,
    role: &Transfer,
    store: &StoreBackend,
) -> Result<MessagesConfig, CommandError> {
    let sinks: Result<_, String> = role
        .messages
        .iter()
        .map(|sink| sinks::resolve(sink, site))
        .collect();
    Ok(MessagesConfig {
        endpoint: config.url_host(),
        positions: match store {
            StoreBackend::Files { .. } => {
                Positions::Directory(site.resolve(&role.message_positions))
            }
            StoreBackend::Postgres(nodes) => Positions::Database(Box::new(nodes.database.clone())),
        },
        sinks: sinks.map_err(CommandError::Usage)?,
    })
}

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

fn blocking(key: &str, listener: TcpListener) -> Result<std::net::TcpListener, CommandError> {
    let listener = listener.into_std();
    listener.map_err(|why| CommandError::local(key, why))
}

/// The keys that seal credentials, and what other nodes are shown where there are any.
async fn sealing_keys(
    site: &SiteDirectory,
    role: &Transfer,
    store: &StoreBackend,
    stopping: &watch::Receiver<bool>,
) -> Result<(SealingKeys, Option<PeerTls>), CommandError> {
    match store {
        StoreBackend::Files { .. } => {
            let keys = SealingKeys::load_or_create(&site.resolve(&role.credential_keys));
            let keys = keys.map_err(|why| CommandError::Usage(why.to_string()))?;
            Ok((keys, None))
        }
        StoreBackend::Postgres(nodes) => {
            let keys = nodes.obtain_keys(stopping.clone()).await;
            let keys = keys.map_err(|why| CommandError::Local(why.to_string()))?;
            Ok((keys, Some(nodes.tls.clone())))
        }
    }
}
