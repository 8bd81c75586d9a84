//! The storage element's section.

use super::tape::TapeConfig;
use super::{BackupPlan, Keep};
use penstock_model::capability::Right;
use penstock_model::quantity::{Size, Span};
use penstock_model::{ChecksumAlgorithm, NamespacePath};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

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
    /// Shared links. Not in a backup.
    #[serde(default = "Storage::default_shares")]
    pub shares: PathBuf,
    /// Prefixes that anybody may read without a token.
    #[serde(default)]
    pub anonymous_read: Vec<NamespacePath>,
    /// Checksums computed for each file as it arrives. The first is the one told when a client does not ask.
    #[serde(default = "Storage::default_checksums")]
    pub checksums: Vec<ChecksumAlgorithm>,
    /// Root keys of macaroons, one a line, the newest first. Without this file none are issued.
    #[serde(default = "Storage::default_macaroon_keys")]
    pub macaroon_keys: PathBuf,
    /// How long a macaroon or a share may live; requests for more are cut to it.
    #[serde(default = "Storage::default_macaroon_validity")]
    pub macaroon_validity_max: Span,
    /// How long an upload in several requests may rest before its bytes are removed.
    #[serde(default = "Storage::default_upload_expiry")]
    pub upload_expiry: Span,
    /// How long files are kept that a start found in a pool and that the namespace does not know.
    #[serde(default = "Storage::default_quarantine")]
    pub quarantine: Span,
    /// How long removed and replaced files are kept, if no new file needs their room. 0s: not at all.
    #[serde(default = "Storage::default_trash")]
    pub trash: Span,
    /// How long the storage element's ledger tells what happened: changes, refusals, movers.
    #[serde(default = "Storage::default_keep_ledger")]
    pub keep_ledger: Keep,
    /// Changes, refusals and gaps that the ledger tells at most; the oldest go first.
    #[serde(default = "Storage::default_ledger_records_max")]
    pub ledger_records_max: u64,
    /// Uploads in several requests that one user may have begun and not finished.
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
    pub outbound: OutboundRules,
    /// What members of groups may do, when their token names groups and grants nothing by itself.
    #[serde(default, rename = "group")]
    pub groups: Vec<GroupRule>,
    /// What owners of certificates may do.
    #[serde(default, rename = "user")]
    pub users: Vec<UserRule>,
    /// Backups of the namespace that it makes by itself. Unset: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupPlan>,
    /// Files that go to tape. Unset: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tape: Option<TapeConfig>,
    /// The file systems that keep the files.
    #[serde(default, rename = "pool")]
    pub pools: Vec<Pool>,
}

impl Storage {
    fn default_namespace() -> PathBuf {
        "state/namespace.sqlite".into()
    }
    fn default_shares() -> PathBuf {
        "state/shares.sqlite".into()
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
    fn default_quarantine() -> Span {
        Span(Duration::from_secs(30 * 24 * 3600))
    }
    fn default_trash() -> Span {
        Span(Duration::from_secs(24 * 3600))
    }
    fn default_keep_ledger() -> Keep {
        Keep(Some(Duration::from_secs(90 * 24 * 3600)))
    }
    fn default_ledger_records_max() -> u64 {
        10_000_000
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
pub struct OutboundRules {
    /// Servers: `se.example.org:8443`, `*.example.org:20000-25000`, `http://…` for one without TLS. Others are refused,
    /// so that nobody uses the site to reach what only it can reach.
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
    /// Who must have signed the certificate, such as `/DC=lab/CN=Lab CA`. Unset: any authority that is trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
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
    /// Of `movers_max`, how many one user may have at once. Unset: three quarters.
    pub movers_per_user_max: Option<u32>,
    /// Of `movers_max`, how many all anonymous clients together may have. Unset: a quarter.
    pub movers_anonymous_max: Option<u32>,
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

impl Storage {
    /// Everything that is wrong with it, each as one sentence.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(tape) = &self.tape {
            tape.problems(&mut problems);
        }
        if self.pools.is_empty() {
            problems
                .push("storage has no pool; add [[storage.pool]] with name and path".to_owned());
        }
        if self.checksums.is_empty() {
            problems.push("storage.checksums is empty; keep at least \"adler32\"".to_owned());
        }
        for user in self.users.iter().filter(|user| !user.dn.starts_with('/')) {
            problems.push(format!(
                "storage.user '{}' is not a subject in slash form, such as /DC=org/CN=Alice",
                user.dn
            ));
        }
        for (dn, ca) in self
            .users
            .iter()
            .filter_map(|user| Some((&user.dn, user.ca.as_ref()?)))
        {
            if !ca.starts_with('/') {
                problems.push(format!(
                    "storage.user '{dn}': the ca '{ca}' is not a subject in slash form, such as /DC=org/CN=Lab CA"
                ));
            }
        }
        let plans = self.backup.iter();
        problems.extend(plans.flat_map(|plan| plan.problems("storage")));
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
                    "pool '{}' has movers_max 0, so no file can ever move",
                    pool.name
                ));
            }
            for (key, most) in [
                ("movers_per_user_max", pool.movers_per_user_max),
                ("movers_anonymous_max", pool.movers_anonymous_max),
            ] {
                if most == Some(0) {
                    problems.push(format!(
                        "pool '{}' has {key} 0, so their files wait forever",
                        pool.name
                    ));
                }
            }
        }
        problems
    }
}
