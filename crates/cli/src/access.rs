//! How commands reach servers: which certificates they trust and which token they show.

use crate::args::AccessArgs;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::site::SiteDirectory;
use crate::token::{Grant, SiteIssuer};
use penstock_protocol::http1::client::{Client, ClientConfig};
use penstock_protocol::tls::ClientTls;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where sites of the grid keep their CA certificates.
const GRID_CERTIFICATES: &str = "/etc/grid-security/certificates";
/// Tokens longer than this are no tokens: the HTTP head that carries one is bounded too.
const TOKEN_FILE_BYTES_MAX: u64 = 32 << 10;
/// How long a token lives that is made for one command. Long copies and queued jobs must be able to end.
const MINTED_LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// An HTTP client with its trust, and what is needed to show a token.
pub struct Access {
    /// The client.
    pub client: Client,
    credential: Credential,
}

enum Credential {
    Given(String),
    Minted {
        issuer: Box<SiteIssuer>,
        subject: String,
    },
    Anonymous,
}

impl Access {
    /// Decides, from what was typed and the environment, whom to trust and how to identify.
    pub fn open(
        args: &AccessArgs,
        environment: &Environment,
        idle_per_host: usize,
    ) -> Result<Access, CommandError> {
        let tls = client_tls(args, environment)?;
        let config = ClientConfig {
            idle_per_host,
            ..ClientConfig::new(tls)
        };
        Ok(Access {
            client: Client::new(config),
            credential: find_credential(args, environment)?,
        })
    }

    /// A token that allows `scope`: the given one as it is, or a new one when the command signs its own.
    /// `None`: nothing was given, the request goes without.
    pub fn token(&self, scope: &str) -> Result<Option<String>, CommandError> {
        self.token_lasting(scope, MINTED_LIFETIME)
    }

    /// The same; a new one lives this long.
    pub fn token_lasting(
        &self,
        scope: &str,
        lifetime: Duration,
    ) -> Result<Option<String>, CommandError> {
        match &self.credential {
            Credential::Given(token) => Ok(Some(token.clone())),
            Credential::Anonymous => Ok(None),
            Credential::Minted { issuer, subject } => issuer
                .mint(&Grant {
                    subject: subject.clone(),
                    scope: scope.to_owned(),
                    audiences: Vec::new(),
                    groups: Vec::new(),
                    lifetime,
                })
                .map(Some),
        }
    }
}

/// What was typed outranks the environment, which outranks the machine's defaults.
fn client_tls(args: &AccessArgs, environment: &Environment) -> Result<ClientTls, CommandError> {
    let of_site = match &args.dir {
        Some(dir) if args.capath.is_none() => {
            let site = SiteDirectory::at(dir)?;
            Some(site.resolve(&site.config()?.trust.certificates))
        }
        _ => None,
    };
    let grid = Some(PathBuf::from(GRID_CERTIFICATES)).filter(|path| path.is_dir());
    let chosen = args
        .capath
        .clone()
        .or(of_site)
        .or(environment.certificates.clone())
        .or(grid);
    let tls = match &chosen {
        Some(dir) => ClientTls::from_ca_directory(dir),
        None => ClientTls::system(),
    };
    tls.map_err(|why| CommandError::Usage(format!("cannot load CA certificates: {why}")))
}

fn find_credential(
    args: &AccessArgs,
    environment: &Environment,
) -> Result<Credential, CommandError> {
    if let Some(token) = &args.token {
        return given(token, "--token");
    }
    if let Some(path) = &args.token_file {
        return given(&read_token(path)?, &path.display().to_string());
    }
    if let Some(dir) = &args.dir {
        let subject = environment.subject();
        let issuer = Box::new(SiteIssuer::of(&SiteDirectory::at(dir)?)?);
        return Ok(Credential::Minted { issuer, subject });
    }
    discover_token(environment)
}

/// WLCG Bearer Token Discovery 1.0: the first place that exists is used, a bad one there is an error.
fn discover_token(environment: &Environment) -> Result<Credential, CommandError> {
    if let Some(token) = &environment.bearer_token {
        return given(token, "BEARER_TOKEN");
    }
    if let Some(path) = &environment.bearer_token_file {
        return given(&read_token(path)?, &path.display().to_string());
    }
    let name = format!("bt_u{}", environment.uid);
    let places = environment
        .runtime_dir
        .iter()
        .map(PathBuf::as_path)
        .chain([Path::new("/tmp")]);
    match places
        .map(|dir| dir.join(&name))
        .find(|path| path.is_file())
    {
        Some(path) => given(&read_token(&path)?, &path.display().to_string()),
        None => Ok(Credential::Anonymous),
    }
}

/// Reads a file that holds one token.
pub fn read_token(path: &Path) -> Result<String, CommandError> {
    let unusable = |why: &dyn std::fmt::Display| {
        CommandError::Usage(format!("token file {}: {why}", path.display()))
    };
    let size = std::fs::metadata(path).map_err(|why| unusable(&why))?.len();
    if size > TOKEN_FILE_BYTES_MAX {
        return Err(unusable(&format!("{size} bytes are no token")));
    }
    std::fs::read_to_string(path).map_err(|why| unusable(&why))
}

fn given(text: &str, origin: &str) -> Result<Credential, CommandError> {
    let token = text.trim();
    // RFC 6750 §2.1: the characters of a bearer token. Anything else would end or split the header.
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    match !token.is_empty() && token.bytes().all(valid) {
        true => Ok(Credential::Given(token.to_owned())),
        false => Err(CommandError::Usage(format!(
            "{origin} holds no bearer token"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discovered(environment: &Environment) -> String {
        match discover_token(environment) {
            Ok(Credential::Given(token)) => token,
            Ok(Credential::Anonymous) => "none".into(),
            Ok(Credential::Minted { .. }) => "minted".into(),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn tokens_are_discovered_in_the_order_of_the_profile() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        // A user id that nobody has, so that /tmp cannot interfere.
        let mut environment = Environment {
            uid: 4_000_000_001,
            ..Environment::default()
        };
        assert_eq!(discovered(&environment), "none");
        write("bt_u4000000001", "from-runtime-dir\n");
        environment.runtime_dir = Some(dir.path().to_owned());
        assert_eq!(discovered(&environment), "from-runtime-dir");
        environment.bearer_token_file = Some(write("other", "from-file"));
        assert_eq!(discovered(&environment), "from-file");
        environment.bearer_token = Some(" from-variable ".into());
        assert_eq!(discovered(&environment), "from-variable");
        environment.bearer_token = Some("two words".into());
        assert_eq!(
            discovered(&environment),
            "BEARER_TOKEN holds no bearer token"
        );
    }
}
