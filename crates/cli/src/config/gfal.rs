//! `[transfer.gfal]`: transfers from and to storage elements that speak GridFTP, XRootD, SRM or SFTP. Each has a process
//! of its own, which works with the system's gfal2 library.

use crate::quantity::Size;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How gfal2 is used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gfal {
    /// Transfers at once that need gfal2, each with a process of some 20 MB of its own.
    pub active_max: u32,
    /// Processes that are started ahead, once the first such transfer has come.
    pub ahead: usize,
    /// Address space of each process.
    pub memory_max: Size,
    /// Variables for the libraries in these processes, beside those that the service sets.
    pub environment: BTreeMap<String, String>,
    /// Accounts at `sftp` servers.
    pub sftp: Vec<SftpAccount>,
    /// For tests: take files of gfal2's `mock` plug-in, which do not exist.
    pub mock: bool,
}

/// An account at an `sftp` server. Such servers know neither proxies nor tokens, so the site's own account is used, and
/// only for the VO that is named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SftpAccount {
    /// The server, as in URLs.
    pub host: String,
    /// The account there.
    pub user: String,
    /// A file with its private key, of which nobody else may read.
    pub key: PathBuf,
    /// The VO whose transfers may use it.
    pub vo: String,
}

impl Default for Gfal {
    fn default() -> Gfal {
        Gfal {
            active_max: 50,
            ahead: 2,
            memory_max: Size(4 << 30),
            environment: BTreeMap::new(),
            sftp: Vec::new(),
            mock: false,
        }
    }
}

impl Gfal {
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.active_max == 0 {
            problems.push("transfer.gfal.active_max is 0, so nothing would ever move".to_owned());
        }
        if self.memory_max.0 < 2 << 30 {
            problems.push(
                "transfer.gfal.memory_max is below 2 GiB, with which the libraries do not start"
                    .to_owned(),
            );
        }
        for name in self.environment.keys() {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if name.is_empty() || !name.bytes().all(is_name) {
                problems.push(format!(
                    "transfer.gfal.environment: '{name}' is no name of a variable"
                ));
            }
            // These would load other code, or show other credentials.
            if name.starts_with("LD_") || ["X509_USER_PROXY", "BEARER_TOKEN"].contains(&&**name) {
                problems.push(format!(
                    "transfer.gfal.environment: '{name}' may not be set"
                ));
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        for account in &self.sftp {
            if !seen.insert((account.host.to_ascii_lowercase(), &account.vo)) {
                problems.push(format!(
                    "transfer.gfal.sftp: '{}' is there twice for the VO '{}'",
                    account.host, account.vo
                ));
            }
        }
        problems
    }
}
