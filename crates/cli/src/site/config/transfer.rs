//! The transfer service's section.

use super::{Administrator, BackupPlan, DatabasePlace, Gfal, Keep, MessageSink, StagingLimits};
use penstock_model::TuningPolicy;
use penstock_model::quantity::Span;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

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
    /// Login links, their sessions and view links, which this node alone knows. Not in a backup.
    #[serde(default = "Transfer::default_access_links")]
    pub access_links: PathBuf,
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
    /// A link is halted after so many failures of one kind in a row that speak of its storage elements or network, of several
    /// users where several use it, and tried with one transfer now and then. 0: never.
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
    /// Hosts that are shown tokens also by `http` and `root`, where others can read them.
    #[serde(default)]
    pub tokens_unencrypted: Vec<String>,
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
    /// For how long what links, VOs and activities did each minute.
    #[serde(default = "Transfer::default_keep_minutes")]
    pub keep_minutes: Keep,
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
    fn default_access_links() -> PathBuf {
        "state/access-links.sqlite".into()
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
