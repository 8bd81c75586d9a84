//! The site's configuration: `penstock.toml` as typed values, a section per role, with their defaults.
//!
//! Reading is strict: a key that nothing reads is an error, because a misspelt limit that silently does
//! nothing is found on the day it was needed. Nothing here touches the file system beyond reading that one
//! file.

mod administrators;
mod backup;
mod database;
mod gfal;
mod history;
mod limits;
mod membership;
mod messages;
mod staging;

pub use administrators::Administrator;
pub use backup::BackupPlan;
pub use database::DatabasePlace;
pub use gfal::Gfal;
pub use history::Keep;
pub use limits::Limits;
pub use membership::{Account, Member};
pub use messages::MessageSink;
pub use staging::StagingLimits;

use crate::quantity::{Size, Span};
use penstock_model::capability::Right;
use penstock_model::{ChecksumAlgorithm, NamespacePath, TuningPolicy};
use penstock_protocol::hosts::HostPattern;
use penstock_protocol::http1::client::ReachRules;
use penstock_protocol::network::Network;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;
use url::Url;

/// Everything that `penstock.toml` may say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Who this site is.
    pub site: Site,
    /// The certificate that its doors show.
    #[serde(default)]
    pub tls: Tls,
    /// The site's own tokens. Without this section it issues none.
    pub issuer: Option<Issuer>,
    /// Whom it trusts.
    #[serde(default)]
    pub trust: Trust,
    /// The transfer service. Without this section it does not run.
    pub transfer: Option<Transfer>,
    /// The storage element. Without this section it does not run.
    pub storage: Option<Storage>,
    /// What clients may do to all ports together.
    #[serde(default)]
    pub limits: Limits,
    /// What is shown of the past and the present.
    #[serde(default)]
    pub observe: Observe,
}

/// Who this site is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// For people, and the name of its certification authority.
    pub name: String,
    /// The names and addresses by which others reach it. The first stands in URLs.
    pub hosts: Vec<String>,
}

/// The certificate that the doors show. Paths are relative to the site directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// PEM: the host certificate, then the chain.
    pub certificate: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
}

impl Default for Tls {
    fn default() -> Tls {
        Tls {
            certificate: "host/cert.pem".into(),
            key: "host/key.pem".into(),
        }
    }
}

/// The site's own tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The issuer's URL: where `/.well-known/openid-configuration` is served.
    pub url: String,
    /// PEM: the key that signs (EC P-256).
    #[serde(default = "default_signing_key")]
    pub signing_key: PathBuf,
    /// The VO that its tokens stand for.
    pub vo: String,
}

fn default_signing_key() -> PathBuf {
    "keys/token-signing.pem".into()
}

/// Whom the site trusts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trust {
    /// A hashed directory of CA certificates, as `X509_CERT_DIR`.
    pub certificates: PathBuf,
    /// VOMS servers whose attributes count, as `X509_VOMS_DIR`: `<vo>/<host>.lsc`. Without the directory,
    /// proxies have none.
    pub vomsdir: PathBuf,
    /// A grid-map file: lines of `"subject" account`.
    pub gridmap: Option<PathBuf>,
    /// What VOs the accounts of the grid-map file stand for.
    #[serde(rename = "account")]
    pub accounts: Vec<Account>,
    /// Members of VOs whose proxies do not say so.
    #[serde(rename = "member")]
    pub members: Vec<Member>,
    /// Token issuers of others. The site's own issuer is trusted without being named here.
    #[serde(rename = "issuer")]
    pub issuers: Vec<ForeignIssuer>,
    /// Users who may do nothing here, whatever they hold: subjects of certificates in slash form, or of tokens.
    pub banned: Vec<String>,
    /// Addresses and networks that are not public and may be connected to all the same, by copies and for the
    /// keys of issuers: `10.0.0.0/8`. Without them nobody can send the site to what only it can reach.
    pub private_addresses: Vec<String>,
}

impl Default for Trust {
    fn default() -> Trust {
        Trust {
            certificates: "certificates".into(),
            vomsdir: "vomsdir".into(),
            gridmap: None,
            accounts: Vec::new(),
            members: Vec::new(),
            issuers: Vec::new(),
            banned: Vec::new(),
            private_addresses: Vec::new(),
        }
    }
}

/// A token issuer of somebody else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignIssuer {
    /// Its URL, exactly as in the `iss` claim.
    pub issuer: String,
    /// The part of the namespace that its tokens can reach; their paths are relative to it.
    #[serde(default = "NamespacePath::root")]
    pub prefix: NamespacePath,
    /// The VO that its tokens stand for.
    pub vo: Option<String>,
    /// By what it knows this service as its client: then tokens of jobs with the scope `offline_access` are exchanged
    /// and refreshed there.
    pub client_id: Option<String>,
    /// A file that holds the client's secret on its first line.
    pub client_secret_file: Option<PathBuf>,
}

/// Where nodes of a transfer service listen for each other.
const NODES_PORT: u16 = 8447;

/// The transfer service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Address and port of the FTS REST interface.
    pub listen: SocketAddr,
    /// Its record: jobs, and everything that happened to them. A file, or `postgres://user@host:5432/name`.
    #[serde(default = "Transfer::default_database")]
    pub database: DatabasePlace,
    /// Address and port where the other nodes of the service reach this one, when the record is in PostgreSQL. Default:
    /// the address of `listen`, port 8447.
    pub nodes: Option<SocketAddr>,
    /// A file that holds nothing but the password of PostgreSQL's user.
    pub database_password_file: Option<PathBuf>,
    /// What users have delegated: proxies with their keys, sealed. In PostgreSQL when the record is there.
    #[serde(default = "Transfer::default_delegations")]
    pub delegations: PathBuf,
    /// Keys that seal stored tokens and proxies, one a line, the newest first; made when absent.
    #[serde(default = "Transfer::default_credential_keys")]
    pub credential_keys: PathBuf,
    /// Transfers that may run at once on one link (an ordered pair of storage elements).
    #[serde(default = "Transfer::default_link_max")]
    pub active_max_per_link: u32,
    /// Who decides how many of these run: `measured` (the service finds out what moves most), `fts3` (FTS3's rules)
    /// or `fixed` (all that may).
    #[serde(default)]
    pub tuning: TuningPolicy,
    /// Transfers that may run at once out of, and again into, one storage element.
    #[serde(default = "Transfer::default_storage_max")]
    pub active_max_per_storage: u32,
    /// Transfers that may run at once in this service.
    #[serde(default = "Transfer::default_active_max")]
    pub active_max: u32,
    /// Transfers that may be open at once, waiting ones included. Each takes some 2.5 kB of memory.
    #[serde(default = "Transfer::default_open_max")]
    pub open_max: u32,
    /// How often a failed transfer is tried again, when its job does not say.
    #[serde(default = "Transfer::default_retries")]
    pub retries: u32,
    /// The wait before the first retry; later ones wait longer.
    #[serde(default = "Transfer::default_retry_delay")]
    pub retry_delay: Span,
    /// A link is halted after so many failures of one kind in a row, and tried with one transfer now and then.
    /// 0: never.
    #[serde(default = "Transfer::default_halt_after")]
    pub halt_after: u32,
    /// The wait before the first such trial; later ones wait longer, up to ten minutes.
    #[serde(default = "Transfer::default_halt_delay")]
    pub halt_delay: Span,
    /// Further audiences that submitted tokens may name, besides this service's own URL.
    #[serde(default)]
    pub audience: Vec<String>,
    /// A scope that submitted tokens must have, such as `fts`. Unset: any trusted token may submit.
    pub required_scope: Option<String>,
    /// Hosts to which the credentials of a file follow a redirect of its storage element, over TLS.
    #[serde(default)]
    pub credentials_follow: Vec<String>,
    /// Who may see and stop the jobs of others, ban and configure.
    #[serde(default, rename = "administrator")]
    pub administrators: Vec<Administrator>,
    /// Transfers that need gfal2.
    #[serde(default)]
    pub gfal: Gfal,
    /// Links with a limit of their own.
    #[serde(default, rename = "link")]
    pub links: Vec<LinkLimit>,
    /// Directory that remembers how far each sink of messages was told, when the record is a file.
    #[serde(default = "Transfer::default_message_positions")]
    pub message_positions: PathBuf,
    /// For how long jobs are kept after their end, with all that happened to their files; `forever`: nothing goes.
    #[serde(default = "Transfer::default_keep_history")]
    pub keep_history: Keep,
    /// For how long what links did each second.
    #[serde(default = "Transfer::default_keep_samples")]
    pub keep_samples: Keep,
    /// For how long who changed which setting or ban.
    #[serde(default = "Transfer::default_keep_audit")]
    pub keep_audit: Keep,
    /// For how much longer a sink of messages that has not taken it can hold history back.
    #[serde(default = "Transfer::default_history_held_max")]
    pub history_held_max: Span,
    /// Backups that it makes of itself. Unset: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupPlan>,
    /// How tape systems are treated.
    #[serde(default)]
    pub staging: StagingLimits,
    /// Whom it tells what happens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageSink>,
}

impl Transfer {
    /// Where the other nodes reach this one.
    pub fn nodes_address(&self) -> SocketAddr {
        let default = SocketAddr::new(self.listen.ip(), NODES_PORT);
        self.nodes.unwrap_or(default)
    }

    fn default_message_positions() -> PathBuf {
        "state/messages".into()
    }
    fn default_database() -> DatabasePlace {
        DatabasePlace::File("state/transfer.sqlite".into())
    }
    fn default_delegations() -> PathBuf {
        "state/delegations.sqlite".into()
    }
    fn default_credential_keys() -> PathBuf {
        "keys/credential-encryption".into()
    }
    fn default_link_max() -> u32 {
        50
    }
    fn default_storage_max() -> u32 {
        200
    }
    fn default_active_max() -> u32 {
        500
    }
    fn default_open_max() -> u32 {
        1_000_000
    }
    fn default_retries() -> u32 {
        3
    }
    fn default_halt_after() -> u32 {
        20
    }
    fn default_halt_delay() -> Span {
        Span(Duration::from_secs(30))
    }
    fn default_retry_delay() -> Span {
        Span(Duration::from_secs(30))
    }
}

/// A link with a limit of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkLimit {
    /// The source as FTS names it: scheme and host without port, such as `https://se.example.org`.
    pub source: String,
    /// The destination likewise.
    pub destination: String,
    /// Transfers that may run at once between them.
    pub active_max: u32,
}

/// The storage element.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// Address and port of the WebDAV door (TLS).
    pub listen: SocketAddr,
    /// Address and port of a door without TLS. Tokens cross it in the clear: for trusted networks only.
    pub plain_listen: Option<SocketAddr>,
    /// The namespace: directories, files, sizes, checksums.
    #[serde(default = "Storage::default_namespace")]
    pub namespace: PathBuf,
    /// Prefixes that anybody may read without a token.
    #[serde(default)]
    pub anonymous_read: Vec<NamespacePath>,
    /// Checksums computed for each file as it arrives. The first is the one told when a client does not ask.
    #[serde(default = "Storage::default_checksums")]
    pub checksums: Vec<ChecksumAlgorithm>,
    /// Root keys of macaroons, one a line, the newest first. Without this file none are issued.
    #[serde(default = "Storage::default_macaroon_keys")]
    pub macaroon_keys: PathBuf,
    /// How long a macaroon may live; requests for more are cut to it.
    #[serde(default = "Storage::default_macaroon_validity")]
    pub macaroon_validity_max: Span,
    /// How long an upload in several requests may rest before its bytes are removed.
    #[serde(default = "Storage::default_upload_expiry")]
    pub upload_expiry: Span,
    /// Such uploads that one user may have begun and not finished.
    #[serde(default = "Storage::default_uploads_per_user")]
    pub uploads_per_user_max: usize,
    /// Bytes of them, announced or come.
    #[serde(default = "Storage::default_upload_bytes_per_user")]
    pub upload_bytes_per_user_max: Size,
    /// Connections to the source that one third-party copy may use. 1: never more than one.
    #[serde(default = "Storage::default_streams_max")]
    pub streams_max: u32,
    /// Memory that all copies with several connections may take together; those that find none left use one.
    #[serde(default = "Storage::default_streams_memory")]
    pub streams_memory: Size,
    /// Where third-party copies may go to or come from.
    #[serde(default)]
    pub outbound: Outbound,
    /// What members of groups may do, when their token names groups and grants nothing by itself.
    #[serde(default, rename = "group")]
    pub groups: Vec<GroupRule>,
    /// What owners of certificates may do.
    #[serde(default, rename = "user")]
    pub users: Vec<UserRule>,
    /// The file systems that keep the files.
    #[serde(default, rename = "pool")]
    pub pools: Vec<Pool>,
}

impl Storage {
    fn default_namespace() -> PathBuf {
        "state/namespace.sqlite".into()
    }
    fn default_macaroon_keys() -> PathBuf {
        "keys/macaroon-root".into()
    }
    fn default_macaroon_validity() -> Span {
        Span(Duration::from_secs(12 * 3600))
    }
    fn default_upload_expiry() -> Span {
        Span(Duration::from_secs(24 * 3600))
    }
    fn default_uploads_per_user() -> usize {
        100
    }
    fn default_upload_bytes_per_user() -> Size {
        Size(1_000_000_000_000)
    }
    fn default_streams_max() -> u32 {
        10
    }
    fn default_streams_memory() -> Size {
        Size(1 << 30)
    }
    fn default_checksums() -> Vec<ChecksumAlgorithm> {
        vec![ChecksumAlgorithm::Adler32]
    }
}

/// Where third-party copies may go to or come from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Outbound {
    /// Host names and addresses. Others are refused, so that nobody uses the site to reach what only it can
    /// reach.
    pub allow: Vec<String>,
    /// Hosts to which the credentials of a copy follow a redirect, over TLS: data servers behind a storage
    /// element that expects its clients' tokens there, too.
    pub credentials_follow: Vec<String>,
}

/// What members of a group may do below a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRule {
    /// The group as tokens write it, such as `/dteam`. `/cms/uscms` does not imply `/cms`.
    pub group: String,
    /// Where. Of several rules for one group, those with the longest path count.
    pub path: NamespacePath,
    /// What: read, create, modify, stage, poll.
    pub rights: Vec<Right>,
}

/// What the owner of a certificate may do below a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserRule {
    /// The subject without what proxies append, such as `/DC=lab/OU=Users/CN=Alice`.
    pub dn: String,
    /// Where. Of several rules for one user, those with the longest path count.
    pub path: NamespacePath,
    /// What: read, create, modify, stage, poll.
    pub rights: Vec<Right>,
}

/// One file system that keeps files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Its name in reports.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// The most it may hold. Unset: what its file system has.
    pub capacity: Option<Size>,
    /// Whether it takes new files, or gives any.
    #[serde(default)]
    pub mode: PoolMode,
    /// Files that may move in or out at once; others wait their turn.
    #[serde(default = "Pool::default_movers_max")]
    pub movers_max: u32,
    /// Files that may wait their turn; more are refused with `Retry-After`.
    #[serde(default = "Pool::default_queue_max")]
    pub queue_max: u32,
}

/// What a pool is good for at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolMode {
    /// Takes and gives files.
    #[default]
    Enabled,
    /// Gives files and takes none, for example before its disk is replaced.
    Drained,
    /// Neither takes nor gives files.
    Disabled,
}

impl Pool {
    /// How many files a pool moves at once unless told otherwise.
    pub fn default_movers_max() -> u32 {
        100
    }

    /// How many may wait unless told otherwise.
    pub fn default_queue_max() -> u32 {
        1000
    }
}

/// What is shown of the past and the present.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Observe {
    /// Serve the live page under `/live/` on the port of the transfer service.
    pub live_page: bool,
    /// Addresses and networks from which `/metrics`, and the reasons of `/health`, can be seen without a credential.
    pub monitor_addresses: Vec<String>,
    /// Subjects of certificates that may see them from anywhere, such as `/DC=org/CN=prometheus.example.org`.
    pub monitors: Vec<String>,
}

impl Default for Observe {
    fn default() -> Observe {
        Observe {
            live_page: true,
            monitor_addresses: vec!["127.0.0.0/8".to_owned(), "::1".to_owned()],
            monitors: Vec::new(),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// No file, or it cannot be read.
    #[error(
        "cannot read {path}: {why}; is this a site directory? `penstock init --dir DIR` makes one"
    )]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        why: std::io::Error,
    },
    /// Not TOML, an unknown key, or a value of the wrong kind. The text names line and key.
    #[error("{path}: {why}")]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// What is wrong, with its place.
        why: Box<toml::de::Error>,
    },
    /// Each value is fine by itself, but not together.
    #[error("{path}: {}", problems.join("; "))]
    Inconsistent {
        /// Which file.
        path: PathBuf,
        /// All that was found, at once.
        problems: Vec<String>,
    },
}

/// A host as it stands in a URL: an IPv6 address in brackets (RFC 3986 §3.2.2), anything else as it is.
pub fn in_url(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        Ok(IpAddr::V4(_)) | Err(_) => host.to_owned(),
    }
}

impl Config {
    /// Reads and validates one file.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|why| ConfigError::Unreadable {
            path: path.to_owned(),
            why,
        })?;
        let config = Config::parse(&text).map_err(|why| ConfigError::Syntax {
            path: path.to_owned(),
            why: Box::new(why),
        })?;
        match config.problems() {
            problems if problems.is_empty() => Ok(config),
            problems => Err(ConfigError::Inconsistent {
                path: path.to_owned(),
                problems,
            }),
        }
    }

    /// Reads the text of a file, without looking at whether its values fit each other.
    pub fn parse(text: &str) -> Result<Config, toml::de::Error> {
        toml::from_str(text)
    }

    /// The host that stands in this site's URLs, in brackets when it is an IPv6 address.
    pub fn url_host(&self) -> String {
        in_url(self.site.hosts.first().map_or("localhost", String::as_str))
    }

    /// The door's URL, without a path: `https://host:8443`.
    pub fn door_url(&self) -> Option<String> {
        let storage = self.storage.as_ref()?;
        Some(format!(
            "https://{}:{}",
            self.url_host(),
            storage.listen.port()
        ))
    }

    /// The transfer service's URL, without a path: `https://host:8446`.
    pub fn service_url(&self) -> Option<String> {
        let transfer = self.transfer.as_ref()?;
        Some(format!(
            "https://{}:{}",
            self.url_host(),
            transfer.listen.port()
        ))
    }

    /// Everything that is wrong with the values together, each as one sentence that names the key.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, text: String| {
            if !holds {
                problems.push(text);
            }
        };
        require(
            !self.site.hosts.is_empty(),
            "site.hosts is empty; name the host or address".into(),
        );
        require(
            self.transfer.is_some() || self.storage.is_some(),
            "neither [transfer] nor [storage] is there, so there is nothing to serve".into(),
        );
        let issuers = self
            .trust
            .issuers
            .iter()
            .map(|issuer| issuer.issuer.as_str());
        let mut seen = BTreeSet::new();
        for url in issuers.chain(self.issuer.iter().map(|issuer| issuer.url.as_str())) {
            let https =
                Url::parse(url).is_ok_and(|url| url.scheme() == "https" && url.host().is_some());
            require(https, format!("issuer '{url}' must be an https:// URL"));
            require(seen.insert(url), format!("issuer '{url}' is named twice"));
        }
        for issuer in &self.trust.issuers {
            require(
                issuer.client_id.is_some() == issuer.client_secret_file.is_some(),
                format!(
                    "issuer '{}': client_id and client_secret_file belong together",
                    issuer.issuer
                ),
            );
        }
        for problem in membership::problems(&self.trust.members, &self.trust.accounts) {
            require(false, problem);
        }
        if let Some(transfer) = &self.transfer {
            let mut names = BTreeSet::new();
            for sink in &transfer.messages {
                let name = &sink.name;
                require(
                    names.insert(name),
                    format!("transfer.messages '{name}' is there twice"),
                );
                for problem in sink.problems() {
                    require(false, problem);
                }
            }
            for problem in transfer.gfal.problems() {
                require(false, problem);
            }
            for (key, value) in [
                ("active_max_per_link", transfer.active_max_per_link),
                ("active_max_per_storage", transfer.active_max_per_storage),
                ("active_max", transfer.active_max),
                ("open_max", transfer.open_max),
            ] {
                require(
                    value > 0,
                    format!("transfer.{key} is 0, so nothing would ever move"),
                );
            }
        }
        if let (Some(transfer), Some(storage)) = (&self.transfer, &self.storage) {
            let clash =
                transfer.listen == storage.listen || storage.plain_listen == Some(transfer.listen);
            require(
                !clash,
                format!(
                    "[transfer] and [storage] both listen on {}",
                    transfer.listen
                ),
            );
        }
        for address in &self.trust.private_addresses {
            if Network::parse(address).is_none() {
                problems.push(format!(
                    "trust.private_addresses: '{address}' is no address or network, such as 10.0.0.0/8"
                ));
            }
        }
        for address in &self.observe.monitor_addresses {
            if Network::parse(address).is_none() {
                problems.push(format!(
                    "observe.monitor_addresses: '{address}' is no address or network, such as 10.0.0.0/8"
                ));
            }
        }
        for subject in &self.observe.monitors {
            if !subject.starts_with('/') {
                problems.push(format!(
                    "observe.monitors: '{subject}' is no subject in slash form, such as /DC=org/CN=prometheus"
                ));
            }
        }
        let follow = |key: &str, hosts: &[String]| {
            let wrong = |host: &String| {
                match HostPattern::parse(host) {
                Err(why) => Some(format!("{key}: {why}")),
                // Whoever has any name there would get users' credentials.
                Ok(pattern) => pattern.domain().filter(|domain| !domain.contains('.')).map(|_| {
                    format!("{key}: '{host}' is too wide; name hosts, or a domain of your own such as '*.se.example.org'")
                }),
            }
            };
            hosts.iter().filter_map(wrong).collect::<Vec<_>>()
        };
        if let Some(transfer) = &self.transfer {
            let grants = transfer.administrators.iter().map(Administrator::grant);
            problems.extend(grants.filter_map(Result::err));
            problems.extend(transfer.history_problems());
            problems.extend(transfer.backup.iter().flat_map(BackupPlan::problems));
            problems.extend(follow(
                "transfer.credentials_follow",
                &transfer.credentials_follow,
            ));
        }
        if let Some(storage) = &self.storage {
            let hosts = &storage.outbound.credentials_follow;
            problems.extend(follow("storage.outbound.credentials_follow", hosts));
            problems.extend(storage.problems());
        }
        problems.extend(self.limits.problems());
        problems
    }

    /// Where the services may be sent; `credentials_follow` is that of the service. What is no address or host
    /// was refused when the file was read.
    pub fn reach(&self, credentials_follow: &[String]) -> ReachRules {
        let private = self.trust.private_addresses.iter();
        let hosts = credentials_follow.iter();
        ReachRules {
            private: private.filter_map(|text| Network::parse(text)).collect(),
            credentials_follow: hosts
                .filter_map(|host| HostPattern::parse(host).ok())
                .collect(),
        }
    }
}

impl Storage {
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.pools.is_empty() {
            problems
                .push("storage has no pool; add [[storage.pool]] with name and path".to_owned());
        }
        if self.checksums.is_empty() {
            problems.push("storage.checksums is empty; keep at least \"adler32\"".to_owned());
        }
        for user in self.users.iter().filter(|user| !user.dn.starts_with('/')) {
            problems.push(format!(
                "storage.user '{}' is no subject in slash form, such as /DC=org/CN=Alice",
                user.dn
            ));
        }
        let mut names = BTreeSet::new();
        let mut paths = BTreeSet::new();
        for pool in &self.pools {
            if pool.name.is_empty()
                || !pool
                    .name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
            {
                problems.push(format!(
                    "pool name '{}' may have letters, digits, '-', '_' and '.' only",
                    pool.name
                ));
            }
            if !names.insert(&pool.name) {
                problems.push(format!("pool '{}' is named twice", pool.name));
            }
            if !paths.insert(&pool.path) {
                problems.push(format!("two pools use {}", pool.path.display()));
            }
            if pool.movers_max == 0 {
                problems.push(format!(
                    "pool '{}' has movers_max 0, so nothing would ever move",
                    pool.name
                ));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLEST: &str = r#"
        [site]
        name = "here"
        hosts = ["127.0.0.2"]
        [storage]
        listen = "127.0.0.2:8443"
        [[storage.pool]]
        name = "disk1"
        path = "pools/disk1"
    "#;

    #[test]
    fn a_misspelt_key_is_an_error_that_names_it() {
        for (section, key) in [
            ("site", "nam"),
            ("storage", "movers"),
            ("transfer", "active"),
            ("observe", "page"),
            ("limits", "connections"),
        ] {
            let text = match SMALLEST.contains(&format!("[{section}]")) {
                true => {
                    SMALLEST.replace(&format!("[{section}]"), &format!("[{section}]\n{key} = 1"))
                }
                false => format!("{SMALLEST}\n[{section}]\n{key} = 1"),
            };
            let error = Config::parse(&text).expect_err(section).to_string();
            assert!(error.contains(&format!("unknown field `{key}`")), "{error}");
        }
    }

    #[test]
    fn defaults_fill_what_is_not_said() {
        let config = Config::parse(SMALLEST).expect("valid");
        assert_eq!(config.problems(), [""; 0]);
        assert_eq!(config.tls, Tls::default());
        let storage = config.storage.clone().expect("present");
        assert_eq!(storage.checksums, [ChecksumAlgorithm::Adler32]);
        assert_eq!(
            (storage.pools[0].movers_max, storage.pools[0].capacity),
            (100, None)
        );
        assert_eq!(config.door_url().as_deref(), Some("https://127.0.0.2:8443"));
        assert_eq!(config.service_url(), None);
    }

    #[test]
    fn effective_values_read_back_as_themselves() {
        let text = format!(
            "{SMALLEST}capacity = \"10 GB\"\n[transfer]\nlisten = \"[::1]:8446\"\nretry_delay = \"1h30m\"\n\
             [[trust.issuer]]\nissuer = \"https://other:8443\"\nprefix = \"/data\""
        );
        let config = Config::parse(&text).expect("valid");
        let written = toml::to_string(&config).expect("serialisable");
        assert_eq!(Config::parse(&written).expect(&written), config);
        assert_eq!(
            config.storage.expect("present").pools[0].capacity,
            Some(Size(10_000_000_000))
        );
        assert_eq!(
            config.transfer.expect("present").retry_delay.0.as_secs(),
            5400
        );
    }

    #[test]
    fn every_contradiction_is_told_at_once() {
        let text = SMALLEST.replace("[\"127.0.0.2\"]", "[]")
            + "[[storage.pool]]\nname = \"disk1\"\npath = \"pools/disk1\"\nmovers_max = 0\n\
               [[storage.user]]\ndn = \"CN=Alice\"\npath = \"/\"\nrights = [\"read\"]\n\
               [[trust.issuer]]\nissuer = \"http://plain\"";
        let problems = Config::parse(&text).expect("well formed").problems();
        assert_eq!(
            problems,
            [
                "site.hosts is empty; name the host or address",
                "issuer 'http://plain' must be an https:// URL",
                "storage.user 'CN=Alice' is no subject in slash form, such as /DC=org/CN=Alice",
                "pool 'disk1' is named twice",
                "two pools use pools/disk1",
                "pool 'disk1' has movers_max 0, so nothing would ever move",
            ]
        );
    }
}
