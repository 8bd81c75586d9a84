//! How commands reach servers: which certificates they trust and which token they show.
//!
//! A token that a command signs itself is for one server, for what the command does there, and for minutes: it is renewed
//! while the command runs. Only what a transfer service keeps for a job lives for hours.

mod administrators_door;
mod context_token;
mod token_discovery;

pub use administrators_door::{AdministratorsDoor, own_door};
pub use token_discovery::read_token;

use crate::args::AccessArgs;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::site::config::in_url;
use crate::site::directory::SiteDirectory;
use crate::site::issuer::{Grant, SiteIssuer};
use context_token::TokenOfContext;
use parking_lot::Mutex;
use penstock_field_tools::credentials::{Credentials, ShownCredentials};
use penstock_field_tools::remote::path_of;
use penstock_field_tools::remote_error::RemoteError;
use penstock_model::NamespacePath;
use penstock_protocol::http1::client::{Client, ClientConfig};
use penstock_protocol::tls::ClientTls;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use token_discovery::{bearer_token, discovered_token, token_in};
use url::Url;

/// What a command does to a path, as the scope of the token that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Look and read.
    Read,
    /// Make, write, delete.
    Modify,
}

impl Purpose {
    /// The scope for one path (WLCG profile 1.3, "Capability based authorization"), which may hold no blank.
    pub fn scope(self, path: &NamespacePath) -> String {
        let path = path.to_encoded();
        match self {
            Purpose::Read => format!("storage.read:{path}"),
            // Looking is part of changing: what is there decides what is done.
            Purpose::Modify => format!("storage.read:{path} storage.modify:{path}"),
        }
    }
}

/// Where sites of the grid keep their CA certificates.
const GRID_CERTIFICATES: &str = "/etc/grid-security/certificates";
/// How long a token lives that a command shows itself, as WLCG profile 1.3 recommends. A new one is made when half of it
/// is over, so clocks may differ by the other half.
const LIFETIME: Duration = Duration::from_secs(20 * 60);
/// How long a token lives that a transfer service keeps for a job, which may wait in its queue. Nobody renews it.
const JOB_LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// An HTTP client with its trust, and what is needed to show a token.
pub struct Access {
    pub client: Client,
    credential: Credential,
    over_http: bool,
}

#[derive(Clone)]
enum Credential {
    Given(String),
    /// Nobody has typed it, so that no server gets it that was typed only.
    OfContext(Arc<TokenOfContext>),
    Minted(Arc<Minter>),
    Anonymous,
}

struct Minter {
    issuer: SiteIssuer,
    subject: String,
}

impl Minter {
    fn mint(&self, need: &Need, lifetime: Duration) -> Result<String, CommandError> {
        self.issuer.mint(&Grant {
            subject: self.subject.clone(),
            scope: need.scope.clone(),
            audiences: need.audiences.clone(),
            groups: Vec::new(),
            lifetime: lifetime.min(self.issuer.life_max()),
        })
    }
}

/// What a command wants of one server, as the token that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// What it does there.
    pub scope: String,
    /// By what names a token may call the server.
    pub audiences: Vec<String>,
}

/// One server: host and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Server(String);

impl Server {
    /// The one that a URL leads to.
    pub fn of(url: &Url) -> Server {
        let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
        let usual = match url.scheme() {
            "davs" => Some(443),
            "dav" => Some(80),
            _ => url.port_or_known_default(),
        };
        let port = url.port().or(usual).unwrap_or_default();
        Server(format!("{host}:{port}"))
    }
}

/// By what names storage elements and services expect to be called in a token: as URL with the port and without, and by
/// the bare host.
pub fn audiences_of(url: &Url) -> Vec<String> {
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let named = in_url(bare);
    let with_port = url.port().map(|port| format!("https://{named}:{port}"));
    let without = [format!("https://{named}"), bare.to_owned()];
    with_port.into_iter().chain(without).collect()
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
            over_http: args.token_over_http,
        })
    }

    /// Whether the command signs its own tokens.
    pub fn mints(&self) -> bool {
        matches!(self.credential, Credential::Minted(_))
    }

    /// An error where the token of a context would go to a server that is none of the context, by way of a transfer service.
    pub fn refuse_outside_context(&self, end: &Url) -> Result<(), CommandError> {
        match &self.credential {
            Credential::OfContext(found) => found.refuse_other(&Server::of(end)),
            Credential::Given(_) | Credential::Minted(_) | Credential::Anonymous => Ok(()),
        }
    }

    /// What is shown to some servers, and to no others: the given token as it is, or one for each server.
    pub fn credentials(
        &self,
        needs: impl IntoIterator<Item = (Server, Need)>,
    ) -> Arc<dyn Credentials> {
        self.lasting(needs, LIFETIME)
    }

    /// The same; tokens that are made live this long.
    pub fn lasting(
        &self,
        needs: impl IntoIterator<Item = (Server, Need)>,
        lifetime: Duration,
    ) -> Arc<dyn Credentials> {
        Arc::new(Wallet {
            credential: self.credential.clone(),
            needs: needs.into_iter().collect(),
            over_http: self.over_http,
            lifetime,
            kept: Mutex::default(),
        })
    }

    /// What is shown for files.
    pub fn for_files(
        &self,
        files: &[(&Url, Purpose)],
    ) -> Result<Arc<dyn Credentials>, RemoteError> {
        self.for_files_lasting(files, LIFETIME)
    }

    /// The same; tokens that are made live this long.
    pub fn for_files_lasting(
        &self,
        files: &[(&Url, Purpose)],
        lifetime: Duration,
    ) -> Result<Arc<dyn Credentials>, RemoteError> {
        let mut needs: BTreeMap<Server, Need> = BTreeMap::new();
        for (url, purpose) in files {
            let need = needs.entry(Server::of(url)).or_insert_with(|| Need {
                scope: String::new(),
                audiences: audiences_of(url),
            });
            let scope = purpose.scope(&path_of(url)?);
            need.scope = format!("{} {scope}", need.scope).trim().to_owned();
        }
        Ok(self.lasting(needs, lifetime))
    }

    /// A token that a transfer service keeps for a job: the given one as it is, or a new one. `None`: there is none.
    pub fn job_token(&self, need: &Need) -> Result<Option<String>, CommandError> {
        match &self.credential {
            Credential::Given(token) => Ok(Some(token.clone())),
            Credential::OfContext(found) => {
                Ok(found.for_audiences(&need.audiences).map(str::to_owned))
            }
            Credential::Anonymous => Ok(None),
            Credential::Minted(minter) => minter.mint(need, JOB_LIFETIME).map(Some),
        }
    }

    /// Whether tokens may cross a line that is not encrypted.
    pub fn is_over_http(&self) -> bool {
        self.over_http
    }
}

/// What each server is shown while a command runs.
struct Wallet {
    credential: Credential,
    needs: BTreeMap<Server, Need>,
    over_http: bool,
    lifetime: Duration,
    /// Tokens that were made, and when.
    kept: Mutex<BTreeMap<Server, (String, Instant)>>,
}

impl Credentials for Wallet {
    fn at(&self, url: &Url) -> Result<ShownCredentials, RemoteError> {
        let server = Server::of(url);
        let withheld = !self.over_http && !matches!(url.scheme(), "https" | "davs");
        match (&self.credential, self.needs.get(&server)) {
            (Credential::Anonymous, _) | (Credential::Minted(_), None) => {
                Ok(ShownCredentials::Nothing)
            }
            (Credential::OfContext(found), _) if found.at(&server).is_none() => {
                Ok(ShownCredentials::Nothing)
            }
            _ if withheld => Ok(ShownCredentials::Withheld),
            (Credential::OfContext(found), _) => Ok(ShownCredentials::Token(found.token.clone())),
            (Credential::Given(token), _) => Ok(ShownCredentials::Token(token.clone())),
            (Credential::Minted(minter), Some(need)) => {
                let mut kept = self.kept.lock();
                if let Some((token, made)) = kept.get(&server)
                    && made.elapsed() < self.lifetime / 2
                {
                    return Ok(ShownCredentials::Token(token.clone()));
                }
                let token = minter
                    .mint(need, self.lifetime)
                    .map_err(|why| RemoteError::NoToken(why.to_string()))?;
                kept.insert(server, (token.clone(), Instant::now()));
                Ok(ShownCredentials::Token(token))
            }
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
        return bearer_token(token, "--token").map(Credential::Given);
    }
    if let Some(path) = &args.token_file {
        return token_in(path).map(Credential::Given);
    }
    if let Some(found) = &environment.context_token
        && (args.dir.is_none() || args.dir == found.dir)
    {
        return Ok(Credential::OfContext(Arc::new(TokenOfContext::of(found)?)));
    }
    if let Some(dir) = &args.dir {
        let subject = environment.subject();
        let issuer = SiteIssuer::of(&SiteDirectory::at(dir)?)?;
        return Ok(Credential::Minted(Arc::new(Minter { issuer, subject })));
    }
    let found = discovered_token(environment)?;
    Ok(found.map_or(Credential::Anonymous, Credential::Given))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::ContextToken;

    fn wallet(credential: Credential, over_http: bool) -> Wallet {
        Wallet {
            credential,
            needs: BTreeMap::new(),
            over_http,
            lifetime: LIFETIME,
            kept: Mutex::default(),
        }
    }

    #[test]
    fn a_token_crosses_an_unencrypted_line_only_when_that_was_said() {
        let given = || Credential::Given("t".to_owned());
        let check = |wallet: Wallet, url: &str, expected: &str| {
            let shown = wallet.at(&Url::parse(url).expect("a URL")).expect("known");
            assert_eq!(format!("{shown:?}"), expected, "{url}");
        };
        check(wallet(given(), false), "https://se/f", "Token");
        check(wallet(given(), false), "http://se/f", "Withheld");
        check(wallet(given(), true), "http://se/f", "Token");
        check(
            wallet(Credential::Anonymous, true),
            "http://se/f",
            "Nothing",
        );
    }

    #[test]
    fn the_token_of_a_context_goes_to_its_servers_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("token");
        std::fs::write(&file, "secret\n").expect("written");
        let url = |text: &str| Url::parse(text).expect("a URL");
        let environment = Environment {
            context_token: Some(ContextToken {
                file,
                dir: None,
                servers: vec![url("https://FTS.org:8446"), url("https://se.org")],
            }),
            uid: 4_000_000_001,
            ..Environment::default()
        };
        let access = |args: &AccessArgs| find_credential(args, &environment).expect("found");
        let found = access(&AccessArgs::default());
        let shown = |credential: &Credential, at: &str| {
            let shown = wallet(credential.clone(), false).at(&url(at));
            format!("{:?}", shown.expect("known"))
        };
        for own in [
            "https://fts.org:8446/jobs",
            "https://se.org/f",
            "davs://se.org:443/f",
        ] {
            assert_eq!(shown(&found, own), "Token", "{own}");
        }
        for other in [
            "https://evil.org:8446",
            "https://fts.org:8447",
            "https://fts.org",
            "https://se.org.evil.org",
            "http://se.org/f",
        ] {
            assert_eq!(shown(&found, other), "Nothing", "{other}");
        }
        let job_token = |at: &str| {
            let access = Access {
                client: Client::new(ClientConfig::new(ClientTls::system().expect("loaded"))),
                credential: found.clone(),
                over_http: false,
            };
            let need = Need {
                scope: "storage.read:/".to_owned(),
                audiences: audiences_of(&url(at)),
            };
            access.job_token(&need).expect("looked")
        };
        assert_eq!(job_token("https://se.org/f").as_deref(), Some("secret"));
        assert_eq!(job_token("https://evil.org/f"), None);
        let refused = |at: &str| {
            let access = Access {
                client: Client::new(ClientConfig::new(ClientTls::system().expect("loaded"))),
                credential: found.clone(),
                over_http: false,
            };
            access.refuse_outside_context(&url(at)).is_err()
        };
        assert!(!refused("davs://se.org/f") && refused("https://evil.org/f"));
        // What is typed goes wherever the command goes.
        let typed = AccessArgs {
            token: Some("typed".to_owned()),
            ..AccessArgs::default()
        };
        assert_eq!(shown(&access(&typed), "https://evil.org/f"), "Token");
    }

    #[test]
    fn a_server_is_called_as_it_may_expect() {
        let check = |url: &str, expected: &[&str]| {
            assert_eq!(audiences_of(&Url::parse(url).expect("a URL")), expected);
        };
        check(
            "https://SE.org:8443/f",
            &["https://se.org:8443", "https://se.org", "se.org"],
        );
        check("https://se.org:443/f", &["https://se.org", "se.org"]);
        check(
            "davs://[::1]:8443/f",
            &["https://[::1]:8443", "https://[::1]", "::1"],
        );
        check(
            "root://se.org:1094//f",
            &["https://se.org:1094", "https://se.org", "se.org"],
        );
    }
}
