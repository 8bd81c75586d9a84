//! What each role is started with, worked out from the configuration.
//! Long because each part of a role's configuration is turned into the role's own by a function of its own.

use super::Process;
use crate::exit::CommandError;
use crate::site::config::{
    Config, Confinement, ForeignIssuer, Pool, PoolMode as ConfiguredMode, StagingLimits, Storage,
    Transfer, in_url,
};
use crate::site::directory::SiteDirectory;
use crate::site::issuer::SiteIssuer;
use crate::site::own_document;
use penstock_decide::admission::QueueLimits;
use penstock_decide::authorization::{GroupRule, SubjectRule};
use penstock_decide::halting::HaltPolicy;
use penstock_decide::pool_selection::PoolMode;
use penstock_decide::scheduler::SlotLimits;
use penstock_decide::service_rights::ServiceGrant;
use penstock_decide::staging::StagingPolicy;
use penstock_engine::EngineConfig;
use penstock_model::{Bytes, LinkId, NamespacePath, PoolName, Right, Slots, StorageId, VoName};
use penstock_protocol::connections::ConnectionLimits;
use penstock_protocol::gfal::{Account, ReadablePaths, system_paths};
use penstock_protocol::hosts::HostPattern;
use penstock_protocol::http1::client::Client;
use penstock_protocol::macaroon::RootKeys;
use penstock_protocol::membership::{ListedMember, MemberRules};
use penstock_protocol::oauth::ClientCredentials;
use penstock_protocol::pace::PaceLimit;
use penstock_protocol::token::{IssuerVos, TrustedIssuer, Verifier, openid_configuration};
use penstock_protocol::voms::VomsServers;
use penstock_protocol::x509::ClientCertificates;
use penstock_storage_element::{
    AccessConfig, MacaroonConfig, NearlineConfig, OutboundConfig, OwnIssuer, PoolConfig,
    StorageConfig, StorageLimits, StreamsLimits, TrustedIssuerConfig,
};
use penstock_transfer_service::AgentConfig;
use penstock_transfer_service::{GfalConfig, LinkSampling, SftpAccount};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Connections at once, where nothing else is said.
const CONNECTIONS_MAX: usize = 20_000;

/// Whose tokens the site believes.
pub struct TrustedIssuers {
    own: Option<OwnKeys>,
    foreign: Vec<TrustedIssuer>,
}

struct OwnKeys {
    issuer: TrustedIssuer,
    jwks: Value,
}

impl TrustedIssuers {
    /// As configured; the site's own issuer is trusted for the whole namespace.
    pub fn of(site: &SiteDirectory, config: &Config) -> Result<TrustedIssuers, CommandError> {
        let own = config.issuer.as_ref().map(|issuer| {
            Ok::<_, CommandError>(OwnKeys {
                jwks: SiteIssuer::load(site, issuer)?.jwks(),
                issuer: TrustedIssuer {
                    issuer: issuer.url.clone(),
                    prefix: NamespacePath::root(),
                    vos: IssuerVos::One(VoName::new(issuer.vo.as_str())),
                    life_max: issuer.token_life_max.0,
                    rights: Right::ALL.to_vec(),
                },
            })
        });
        let foreign = config.trust.issuers.iter().map(|issuer| TrustedIssuer {
            issuer: issuer.issuer.clone(),
            prefix: issuer.prefix.clone(),
            vos: vos_of(issuer),
            life_max: issuer.token_life_max.0,
            rights: issuer.rights.clone(),
        });
        Ok(TrustedIssuers {
            own: own.transpose()?,
            foreign: foreign.collect(),
        })
    }

    pub fn issuers(&self) -> Vec<TrustedIssuer> {
        let own = self.own.iter().map(|own| own.issuer.clone());
        own.chain(self.foreign.iter().cloned()).collect()
    }

    /// What the site's own issuer publishes: its configuration and its keys.
    pub fn published(&self) -> Option<(Value, Value)> {
        let own = self.own.as_ref()?;
        Some((openid_configuration(&own.issuer.issuer), own.jwks.clone()))
    }

    /// Gives a verifier the keys of the site's own issuer as they are now, and whom to trust.
    pub fn renew(&self, verifier: &Verifier, audiences: Vec<String>) {
        if let Some(own) = &self.own {
            // All clones share their keys.
            drop(
                verifier
                    .clone()
                    .with_local_keys(&own.issuer.issuer, &own.jwks),
            );
        }
        verifier.replace_trust(self.issuers(), audiences);
    }

    /// Verifies tokens that are meant for one of `audiences`.
    pub fn verifier(&self, audiences: Vec<String>, client: Client) -> Verifier {
        let verifier = Verifier::new(self.issuers(), audiences, client);
        match &self.own {
            Some(own) => verifier.with_local_keys(&own.issuer.issuer, &own.jwks),
            None => verifier,
        }
    }
}

/// Whose certificates the site believes, and what VOs they are of.
pub fn client_certificates(site: &SiteDirectory, config: &Config) -> ClientCertificates {
    let trust = &config.trust;
    let servers = VomsServers::new(&site.resolve(&trust.vomsdir), &config.site.hosts);
    let clients = ClientCertificates::with_voms(&site.resolve(&trust.certificates), servers);
    clients.replace_members(member_rules(site, config));
    clients
}

/// Members of VOs whose certificates do not say so.
pub fn member_rules(site: &SiteDirectory, config: &Config) -> MemberRules {
    let trust = &config.trust;
    let members = trust.members.iter();
    let accounts = trust.accounts.iter();
    MemberRules {
        members: members
            .map(|member| {
                let (vo, ca) = (VoName::new(member.vo.as_str()), member.ca.clone());
                (member.dn.clone(), ListedMember { vo, ca })
            })
            .collect(),
        accounts: accounts
            .map(|account| (account.name.clone(), VoName::new(account.vo.as_str())))
            .collect(),
        gridmap: trust.gridmap.as_deref().map(|path| site.resolve(path)),
    }
}

/// Of which VOs an issuer's users can be.
pub fn vos_of(issuer: &ForeignIssuer) -> IssuerVos {
    match (&issuer.vo, &issuer.vos) {
        (Some(vo), _) => IssuerVos::One(VoName::new(vo.as_str())),
        (None, Some(vos)) => {
            IssuerVos::Listed(vos.iter().map(|vo| VoName::new(vo.as_str())).collect())
        }
        (None, None) => IssuerVos::Unlisted,
    }
}

fn configured(issuer: &TrustedIssuer) -> TrustedIssuerConfig {
    TrustedIssuerConfig {
        issuer: issuer.issuer.clone(),
        prefix: issuer.prefix.clone(),
        vos: issuer.vos.clone(),
        life_max: issuer.life_max,
        rights: issuer.rights.clone(),
    }
}

/// What tokens may call a port of this site: each of its hosts as URL, with the port and without, and by its bare
/// name, which is how Rucio asks its issuer for tokens.
fn audiences(config: &Config, port: u16) -> Vec<String> {
    let named = |host: &String| {
        let authority = in_url(host);
        [
            format!("https://{authority}:{port}"),
            format!("https://{authority}"),
            host.clone(),
        ]
    };
    config.site.hosts.iter().flat_map(named).collect()
}

/// What tokens may call the transfer service.
pub fn service_audiences(config: &Config, role: &Transfer) -> Vec<String> {
    let mut audiences = audiences(config, role.listen.port());
    audiences.extend(role.audience.iter().cloned());
    audiences
}

/// The issuers of which the transfer service is a client. Errors: a secret cannot be read.
pub fn token_clients(
    site: &SiteDirectory,
    config: &Config,
) -> Result<BTreeMap<String, ClientCredentials>, CommandError> {
    let mut clients = BTreeMap::new();
    for issuer in &config.trust.issuers {
        let (Some(id), Some(file)) = (&issuer.client_id, &issuer.client_secret_file) else {
            continue;
        };
        let path = site.resolve(file);
        let unusable = |why: String| {
            let (issuer, path) = (&issuer.issuer, path.display());
            CommandError::Usage(format!("issuer {issuer}: client_secret_file {path}: {why}"))
        };
        let text = std::fs::read_to_string(&path).map_err(|why| unusable(why.to_string()))?;
        let secret = text.lines().next().unwrap_or_default().trim();
        if secret.is_empty() {
            return Err(unusable("its first line is empty".to_owned()));
        }
        let client = ClientCredentials {
            id: id.clone(),
            secret: secret.to_owned(),
        };
        clients.insert(issuer.issuer.clone(), client);
    }
    Ok(clients)
}

/// What it does with tape.
fn nearline(site: &SiteDirectory, config: &Config, role: &Storage) -> Option<NearlineConfig> {
    let tape = role.tape.as_ref()?;
    Some(tape.nearline(&config.site.name, |path| site.resolve(path)))
}

/// What the storage element is started with.
pub fn storage_config(
    site: &SiteDirectory,
    config: &Config,
    role: &Storage,
    trusted: &TrustedIssuers,
    process: &Process,
) -> Result<StorageConfig, CommandError> {
    Ok(StorageConfig {
        namespace: site.resolve(&role.namespace),
        shares: site.resolve(&role.shares),
        pools: role
            .pools
            .iter()
            .map(|pool| pool_config(site, pool))
            .collect(),
        checksums: role.checksums.clone(),
        access: access_config(config, role, trusted),
        issuer: own_issuer(trusted),
        site_document: Some(site_document(site, config, trusted)),
        macaroons: macaroon_config(site, role)?,
        outbound: OutboundConfig {
            allow: config.allowed_servers(),
            near_ends: process.near_ends.clone(),
            reach: config.reach(&role.outbound.credentials_follow),
            certificates: Some(site.resolve(&config.trust.certificates)),
        },
        nearline: nearline(site, config, role),
        limits: StorageLimits {
            connections: process.connections.clone(),
            body_pace: body_pace(config),
            stall_timeout: config.limits.stall_timeout.0,
            head_timeout: config.limits.head_timeout.0,
            idle_timeout: config.limits.idle_timeout.0,
            shutdown_grace: process.drain,
            upload_expiry: role.upload_expiry.0,
            quarantine: role.quarantine.0,
            trash: role.trash.0,
            ledger: role.keep_ledger.0,
            ledger_records_max: role.ledger_records_max,
            uploads_per_user_max: role.uploads_per_user_max,
            upload_bytes_per_user_max: Bytes(role.upload_bytes_per_user_max.0),
            streams: StreamsLimits {
                streams_max: role.streams_max,
                ..StreamsLimits::default()
            },
            streams_memory: Bytes(role.streams_memory.0),
            ..StorageLimits::default()
        },
    })
}

/// Whom the storage element believes, and what it lets them do.
pub fn access_config(config: &Config, role: &Storage, trusted: &TrustedIssuers) -> AccessConfig {
    AccessConfig {
        issuers: trusted.foreign.iter().map(configured).collect(),
        audiences: audiences(config, role.listen.port()),
        group_rules: role.groups.iter().map(group_rule).collect(),
        subject_rules: role.users.iter().map(subject_rule).collect(),
        banned: config.trust.banned.clone(),
        anonymous_read: role.anonymous_read.clone(),
    }
}

/// The site's own issuer, with what the door publishes of it.
pub fn own_issuer(trusted: &TrustedIssuers) -> Option<OwnIssuer> {
    let (openid_configuration, jwks) = trusted.published()?;
    Some(OwnIssuer {
        trust: configured(&trusted.own.as_ref()?.issuer),
        openid_configuration,
        jwks,
    })
}

/// What the site tells others of itself.
pub fn site_document(site: &SiteDirectory, config: &Config, trusted: &TrustedIssuers) -> Value {
    let jwks = trusted.published().map(|(_, jwks)| jwks);
    let document = own_document::of(site, config, jwks.as_ref());
    serde_json::to_value(document).expect("plain data serialises")
}

/// How slowly clients may send or take a body.
pub fn body_pace(config: &Config) -> PaceLimit {
    PaceLimit {
        bytes_per_second_min: config.limits.rate_min.0,
        interval: config.limits.rate_interval.0,
    }
}

/// How many connections there may be when the process may have `files_max` files open.
pub fn connection_limits(config: &Config, files_max: u64) -> ConnectionLimits {
    // The last quarter is for the files that are served, and for connections to others.
    let most = usize::try_from(files_max / 4 * 3).unwrap_or(usize::MAX);
    ConnectionLimits {
        connections_max: config
            .limits
            .connections_max
            .unwrap_or(CONNECTIONS_MAX)
            .min(most),
        per_client_max: config.limits.connections_per_client_max,
        handshakes_max: config.limits.handshakes_max,
    }
}

/// Macaroons are a part of the site only when it has a root key: sites made before there were any go on as
/// they were.
pub fn macaroon_config(
    site: &SiteDirectory,
    role: &Storage,
) -> Result<Option<MacaroonConfig>, CommandError> {
    let path = site.resolve(&role.macaroon_keys);
    let keys = RootKeys::load(&path).map_err(|why| CommandError::Usage(why.to_string()))?;
    if keys.is_none() {
        tracing::info!(
            "no macaroons are issued: {} does not exist; `openssl rand -hex 32 > FILE` with mode 600 makes it",
            path.display()
        );
    }
    Ok(keys.map(|keys| MacaroonConfig {
        keys,
        validity_max: role.macaroon_validity_max.0,
    }))
}

fn group_rule(rule: &crate::site::config::GroupRule) -> GroupRule {
    GroupRule {
        group: rule.group.clone(),
        path: rule.path.clone(),
        rights: rule.rights.clone(),
    }
}

fn subject_rule(rule: &crate::site::config::UserRule) -> SubjectRule {
    SubjectRule {
        subject: rule.dn.clone(),
        ca: rule.ca.clone(),
        path: rule.path.clone(),
        rights: rule.rights.clone(),
    }
}

fn pool_config(site: &SiteDirectory, pool: &Pool) -> PoolConfig {
    PoolConfig {
        name: PoolName::new(pool.name.as_str()),
        directory: site.resolve(&pool.path),
        capacity: pool.capacity.map(|capacity| Bytes(capacity.0)),
        mode: match pool.mode {
            ConfiguredMode::Enabled => PoolMode::Enabled,
            ConfiguredMode::Drained => PoolMode::Drained,
            ConfiguredMode::Disabled => PoolMode::Disabled,
        },
        movers: QueueLimits {
            movers_max: pool.movers_max,
            queue_max: pool.queue_max,
            movers_per_user_max: pool.movers_per_user_max,
            movers_anonymous_max: pool.movers_anonymous_max,
        },
    }
}

/// Limits and retry rules of the transfer service.
pub fn engine_config(role: &Transfer) -> EngineConfig {
    let links = role.links.iter().map(|link| {
        let id = LinkId {
            source: StorageId::new(link.source.to_ascii_lowercase()),
            destination: StorageId::new(link.destination.to_ascii_lowercase()),
        };
        (id, Slots(link.active_max))
    });
    EngineConfig {
        slots: SlotLimits {
            link: Slots(role.active_max_per_link),
            storage_outbound: Slots(role.active_max_per_storage),
            storage_inbound: Slots(role.active_max_per_storage),
            agents: Slots(role.active_max),
            gfal: Slots(role.gfal.active_max),
            links: links.collect(),
            ..SlotLimits::default()
        },
        retries_max: role.retries,
        retry_delay: role.retry_delay.0,
        halting: HaltPolicy {
            failures: role.halt_after,
            wait: role.halt_delay.0,
        },
        open_max: usize::try_from(role.open_max).unwrap_or(usize::MAX),
        tuning: role.tuning,
        tape: tape_policy(&role.staging),
    }
}

fn tape_policy(limits: &StagingLimits) -> StagingPolicy {
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    StagingPolicy {
        bulk_files_max: count(limits.files_per_request_max),
        quiet: limits.quiet.0,
        fill_max: limits.fill_max.0,
        requests_max: count(limits.requests_max),
        calls_max: count(limits.calls_max),
        poll_min: limits.poll_min.0,
        poll_max: limits.poll_max.0,
        replica_interval: limits.replica_interval.0,
    }
}

/// Whether it records what links do.
pub fn link_sampling(config: &Config) -> LinkSampling {
    match config.observe.sample_links {
        true => LinkSampling::Recorded,
        false => LinkSampling::Off,
    }
}

/// How long agents wait for what.
pub fn agent_config(role: &Transfer) -> AgentConfig {
    let unencrypted = role.tokens_unencrypted.iter();
    AgentConfig {
        tape_timeout: role.staging.timeout.0,
        // What is no host was refused when the file was read.
        tokens_unencrypted: unencrypted
            .filter_map(|host| HostPattern::parse(host).ok())
            .collect(),
        ..AgentConfig::default()
    }
}

/// How processes that work with gfal2 are run: this program, with an environment of their own.
pub fn gfal_config(
    site: &SiteDirectory,
    config: &Config,
    role: &Transfer,
) -> Result<GfalConfig, CommandError> {
    let place = |path: &Path| {
        std::path::absolute(site.resolve(path))
            .map_err(|why| CommandError::local(path.display(), why))
    };
    let trust = &config.trust;
    // Libraries find trust where the site has it, nobody's home, and in a server that does not answer no reason to
    // wait for the quarter of an hour that XRootD's client would.
    let mut environment: BTreeMap<String, OsString> = [
        ("X509_CERT_DIR", place(&trust.certificates)?.into()),
        ("X509_VOMS_DIR", place(&trust.vomsdir)?.into()),
        ("HOME", "/nonexistent".into()),
        ("LANG", "C".into()),
        ("XRD_CONNECTIONWINDOW", "30".into()),
        ("XRD_CONNECTIONRETRY", "2".into()),
        ("XRD_REQUESTTIMEOUT", "120".into()),
        ("XRD_STREAMTIMEOUT", "60".into()),
        // Not by the name of the account that the service runs under.
        ("XrdSecPROTOCOL", "gsi,ztn".into()),
        // Files that name other files, also of this machine.
        ("XRD_METALINKPROCESSING", "0".into()),
        ("XRD_LOCALMETALINKFILE", "0".into()),
        // Names are asked for over TCP: a process that can send datagrams can send them anywhere.
        ("RES_OPTIONS", "use-vc".into()),
    ]
    .into_iter()
    .map(|(name, value): (&str, OsString)| (name.to_owned(), value))
    .collect();
    let further = role.gfal.environment.iter();
    environment.extend(further.map(|(name, value)| (name.clone(), value.into())));
    let sftp = role.gfal.sftp.iter().map(|account| {
        Ok(SftpAccount {
            host: account.host.clone(),
            user: account.user.clone(),
            key: place(&account.key)?,
            vo: VoName::new(account.vo.as_str()),
        })
    });
    let account = role.gfal.user.as_deref().map(|name| {
        let failed = |why| CommandError::local(format!("transfer.gfal.user: '{name}'"), why);
        Account::named(name).map_err(failed)
    });
    let readable = match role.gfal.confinement {
        Confinement::Required => Some(readable_by_gfal(site, config, role, &environment)?),
        Confinement::Off => None,
    };
    Ok(GfalConfig {
        // This very program, also when its file has been replaced meanwhile.
        program: "/proc/self/exe".into(),
        arguments: vec!["gfal-agent".into()],
        environment,
        processes_max: usize::try_from(role.gfal.active_max).unwrap_or(usize::MAX),
        ahead: role.gfal.ahead,
        memory_bytes_max: role.gfal.memory_max.0,
        sftp: sftp.collect::<Result<_, CommandError>>()?,
        mock: role.gfal.mock,
        readable,
        account: account.transpose()?,
        doors: doors(config),
    })
}

/// Variables by which operators say where libraries find their own files.
const PLACES_OF_LIBRARIES: [&str; 3] = ["GFAL_PLUGIN_DIR", "GFAL_CONFIG_DIR", "XRD_PLUGINCONFDIR"];

/// What processes that work with gfal2 may read. Errors: the site's own keys would be among it.
fn readable_by_gfal(
    site: &SiteDirectory,
    config: &Config,
    role: &Transfer,
    environment: &BTreeMap<String, OsString>,
) -> Result<ReadablePaths, CommandError> {
    let named = PLACES_OF_LIBRARIES.iter();
    let named = named.filter_map(|name| environment.get(*name).map(PathBuf::from));
    let paths: Vec<PathBuf> = system_paths()
        .chain(named)
        .chain(role.gfal.readable.iter().cloned())
        .collect();
    let trusted = ["X509_CERT_DIR", "X509_VOMS_DIR"];
    let trusted = trusted.iter().filter_map(|name| environment.get(*name));
    let trusted: Vec<PathBuf> = trusted.map(PathBuf::from).collect();
    let mut secret = vec![
        site.resolve(&config.tls.key),
        site.resolve(&role.credential_keys),
        site.resolve(&role.delegations),
        site.resolve(&role.access_links),
        site.config_file(),
        site.ca().join("ca.key"),
        site.admin_token(),
    ];
    let issuers = config.trust.issuers.iter();
    let sinks = role.messages.iter();
    let files = config.issuer.iter().map(|issuer| &issuer.signing_key);
    let files = files.chain(config.storage.iter().map(|storage| &storage.macaroon_keys));
    let files = files.chain(issuers.filter_map(|issuer| issuer.client_secret_file.as_ref()));
    let files = files.chain(sinks.filter_map(|sink| sink.password_file.as_ref()));
    let files = files.chain(config.observe.secrets());
    let files = files.chain(&role.database_password_file);
    let files = files.chain(role.gfal.sftp.iter().map(|account| &account.key));
    secret.extend(files.map(|path| site.resolve(path)));
    let real = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
    for secret in secret.iter().filter_map(|path| real(path).ok()) {
        let within = |path: &&PathBuf| real(path).is_ok_and(|path| secret.starts_with(path));
        if let Some(path) = paths.iter().chain(&trusted).find(within) {
            let why = format!(
                "gfal2 may read files below {}, so a storage element could make it read this file; move one of them",
                path.display()
            );
            return Err(CommandError::local(secret.display(), why));
        }
    }
    Ok(ReadablePaths { paths, trusted })
}

/// Where the storage element of this configuration listens.
fn doors(config: &Config) -> Vec<SocketAddr> {
    let storage = config.storage.iter();
    let doors = storage.flat_map(|role| [Some(role.listen), role.plain_listen]);
    doors.flatten().collect()
}

/// Who administers the transfer service. What names nobody was refused when the file was read.
pub fn administrators(role: &Transfer) -> Vec<ServiceGrant> {
    let named = role.administrators.iter();
    named.filter_map(|named| named.grant().ok()).collect()
}
