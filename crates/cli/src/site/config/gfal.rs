//! `[transfer.gfal]`: transfers from and to storage elements that speak GridFTP, XRootD, SRM or SFTP. Each has a process
//! of its own, which works with the system's gfal2 library.

use penstock_model::quantity::Size;
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
    /// `required`: these processes open no files but those of the system that the libraries need, and connect only where
    /// the service itself may; where the kernel cannot do that, gfal2 is not used. `off`: they are not confined.
    pub confinement: Confinement,
    /// The account that these processes work as. Unset: that of the service. Only a service of root can change it.
    pub user: Option<String>,
    /// Further files and directories that the libraries may read, as for a gfal2 outside `/usr`.
    pub readable: Vec<PathBuf>,
    /// For tests: take files of gfal2's `mock` plug-in, which do not exist.
    pub mock: bool,
}

/// Whether processes that work with gfal2 are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confinement {
    /// Without it gfal2 is not used.
    Required,
    /// They may do what the service may do.
    Off,
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

/// Variables that the service alone sets.
const NOT_SET_BY_OPERATORS: [&str; 5] = [
    "X509_USER_PROXY",
    "BEARER_TOKEN",
    "XRD_METALINKPROCESSING",
    "XRD_LOCALMETALINKFILE",
    "RES_OPTIONS",
];

impl Default for Gfal {
    fn default() -> Gfal {
        Gfal {
            active_max: 50,
            ahead: 2,
            memory_max: Size(4 << 30),
            environment: BTreeMap::new(),
            sftp: Vec::new(),
            confinement: Confinement::Required,
            user: None,
            readable: Vec::new(),
            mock: false,
        }
    }
}

impl Gfal {
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.active_max == 0 {
            problems.push("transfer.gfal.active_max is 0, so no file can ever move".to_owned());
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
                    "transfer.gfal.environment: '{name}' is not a valid variable name"
                ));
            }
            // These would load other code, show other credentials, or undo how processes are confined.
            if name.starts_with("LD_") || NOT_SET_BY_OPERATORS.contains(&&**name) {
                problems.push(format!(
                    "transfer.gfal.environment: '{name}' may not be set"
                ));
            }
        }
        for path in self.readable.iter().filter(|path| !path.is_absolute()) {
            problems.push(format!(
                "transfer.gfal.readable: '{}' is not an absolute path",
                path.display()
            ));
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
