//! The one place that reads the process environment. Everything else is handed the part that it needs.

use std::path::PathBuf;
use url::Url;

/// What the environment says that matters to commands.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `BEARER_TOKEN`: a token.
    pub bearer_token: Option<String>,
    /// `BEARER_TOKEN_FILE`: a file with a token.
    pub bearer_token_file: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`: where `bt_u$UID` may lie.
    pub runtime_dir: Option<PathBuf>,
    /// `X509_CERT_DIR`: a hashed CA directory.
    pub certificates: Option<PathBuf>,
    /// `PENSTOCK_DIR`: the site directory.
    pub site_directory: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`, or `.config` below `HOME`: where a user's own settings lie.
    pub config_home: Option<PathBuf>,
    /// `PENSTOCK_SERVICE`: the transfer service's URL.
    pub service: Option<String>,
    /// `PGPASSFILE`: passwords of databases.
    pub database_passwords: Option<PathBuf>,
    /// `USER`: the name of who runs this.
    pub user: Option<String>,
    /// `XDG_STATE_HOME`, or `.local/state` in `HOME`: what commands remember of earlier ones. `None`: there is no such place.
    pub state: Option<PathBuf>,
    /// `TMPDIR`: where temporary directories go.
    pub temporary: PathBuf,
    /// The numeric user id.
    pub uid: u32,
    /// The token of the context that counts, found by what is typed and by the rest.
    pub context_token: Option<ContextToken>,
}

/// The token of a context: nobody has typed it, so it goes only where the context says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextToken {
    /// Where it is.
    pub file: PathBuf,
    /// The directory of the context: beside another one that is typed the token does not count.
    pub dir: Option<PathBuf>,
    /// Who gets it.
    pub servers: Vec<Url>,
}

impl Environment {
    /// On whose behalf tokens are signed, unless something else is asked for.
    pub fn subject(&self) -> String {
        self.user
            .clone()
            .unwrap_or_else(|| format!("uid-{}", self.uid))
    }

    /// Reads it once, at the start. Empty variables count as unset.
    #[allow(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn read() -> Environment {
        let text = |name: &str| {
            std::env::var(name)
                .ok()
                .filter(|value| !value.trim().is_empty())
        };
        let path = |name: &str| text(name).map(PathBuf::from);
        Environment {
            bearer_token: text("BEARER_TOKEN"),
            bearer_token_file: path("BEARER_TOKEN_FILE"),
            runtime_dir: path("XDG_RUNTIME_DIR"),
            certificates: path("X509_CERT_DIR"),
            site_directory: path("PENSTOCK_DIR"),
            config_home: path("XDG_CONFIG_HOME")
                .filter(|path| path.is_absolute())
                .or_else(|| Some(path("HOME")?.join(".config"))),
            service: text("PENSTOCK_SERVICE"),
            database_passwords: path("PGPASSFILE"),
            user: text("USER"),
            state: path("XDG_STATE_HOME")
                .filter(|path| path.is_absolute())
                .or_else(|| {
                    // A home that is not there is not made.
                    let home = path("HOME").filter(|home| home.is_dir());
                    home.map(|home| home.join(".local/state"))
                }),
            temporary: std::env::temp_dir(),
            uid: rustix::process::getuid().as_raw(),
            context_token: None,
        }
    }
}
