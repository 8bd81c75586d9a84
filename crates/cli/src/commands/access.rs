//! How commands reach servers: which certificates they trust and which token they show.
//!
//! A token that a command signs itself is for one server, for what the command does there, and for minutes: it is renewed
//! while the command runs. Only what a transfer service keeps for a job lives for hours.

use crate::args::{AccessArgs, DoorArgs};
use crate::environment::{ContextToken, Environment};
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::config::in_url;
use crate::site::directory::SiteDirectory;
use crate::site::issuer::{Grant, SiteIssuer};
use parking_lot::Mutex;
use penstock_field_tools::credentials::{Credentials, ShownCredentials};
use penstock_field_tools::remote::path_of;
use penstock_field_tools::remote_error::RemoteError;
use penstock_model::NamespacePath;
use penstock_protocol::http1::client::{Client, ClientConfig};
use penstock_protocol::tls::ClientTls;
use penstock_protocol::token::ADMIN_SCOPE;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use url::Url;

/// The door of a storage element, for what its administrators ask there.
pub struct AdministratorsDoor {
    pub client: Client,
    pub door: Url,
    pub credentials: Arc<dyn Credentials>,
}

impl AdministratorsDoor {
    /// The door that is meant, and the token of an administrator for it, which is shown to the site's own door alone.
    pub fn of(
        args: &DoorArgs,
        environment: &Environment,
        what: &str,
    ) -> Result<AdministratorsDoor, CommandError> {
        let access = Access::open(&args.access, environment, 1)?;
        let config = match &args.access.dir {
            Some(dir) => Some(SiteDirectory::at(dir)?.config()?),
            None => None,
        };
        let parsed = |url: Option<String>| url.and_then(|url| Url::parse(&url).ok());
        let own = parsed(config.as_ref().and_then(|config| config.door_url()));
        let service = parsed(config.as_ref().and_then(|config| config.service_url()));
        let door = args.door.as_ref().or(own.as_ref()).cloned();
        let door = door.ok_or_else(|| {
            CommandError::Usage(
                "name the storage element: --dir of a site with [storage], or --door URL with --token-file".to_owned(),
            )
        })?;
        let is_at = |url: &Option<Url>| url.as_ref().map(Server::of) == Some(Server::of(&door));
        if is_at(&service) && !is_at(&own) {
            let own = own.map(|own| format!("; the door of its storage element is {own}"));
            return Err(CommandError::Usage(format!(
                "{door} is the transfer service of the site in --dir, which has no {what}{}",
                own.unwrap_or_default()
            )));
        }
        let need = match &own {
            _ if !access.mints() => None,
            Some(own) if Server::of(own) == Server::of(&door) => Some(Need {
                scope: ADMIN_SCOPE.to_owned(),
                audiences: vec![own.as_str().trim_end_matches('/').to_owned()],
            }),
            Some(_) | None => {
                return Err(CommandError::Usage(format!(
                    "{door} is not the door of the site in --dir, and the administrator's token is not sent to other servers; \
                     use the --dir of its own site, or --token-file with a token that it accepts"
                )));
            }
        };
        let credentials = access.credentials(need.map(|need| (Server::of(&door), need)));
        Ok(AdministratorsDoor {
            client: access.client,
            door,
            credentials,
        })
    }
}

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
/// Tokens longer than this are no tokens: the HTTP head that carries one is bounded too.
const TOKEN_FILE_BYTES_MAX: u64 = 32 << 10;
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

/// The token of a context, and who gets it.
struct TokenOfContext {
    token: String,
    servers: BTreeMap<Server, Vec<String>>,
    /// Others of which it was said that they do not.
    said: Mutex<BTreeSet<String>>,
}

impl TokenOfContext {
    fn of(found: &ContextToken) -> Result<TokenOfContext, CommandError> {
        let servers = found.servers.iter();
        let servers = servers.map(|url| (Server::of(url), audiences_of(url)));
        Ok(TokenOfContext {
            token: bearer_token(&read_token(&found.file)?, &found.file.display().to_string())?,
            servers: servers.collect(),
            said: Mutex::default(),
        })
    }

    fn at(&self, server: &Server) -> Option<&str> {
        self.token_if(self.servers.contains_key(server), &server.0)
    }

    /// For a server that is known by its names alone.
    fn for_audiences(&self, audiences: &[String]) -> Option<&str> {
        let is_own = self.servers.values().any(|known| known == audiences);
        self.token_if(is_own, audiences.first().map_or("", String::as_str))
    }

    /// An error where the transfer service would show it to another server.
    fn refuse_other(&self, server: &Server) -> Result<(), CommandError> {
        match self.servers.contains_key(server) {
            true => Ok(()),
            false => Err(CommandError::Usage(format!(
                "{} is no server of the context, and the transfer service would show it the context's token; type \
                 --token-file to let it, give --source-token-file and --destination-token-file, or add the server to the \
                 context with --token-for",
                server.0
            ))),
        }
    }

    /// Says once of each server that it does not get it.
    fn token_if(&self, is_own: bool, server: &str) -> Option<&str> {
        if !is_own && self.said.lock().insert(server.to_owned()) {
            Output::error(&format!(
                "{server} is no server of the context, so the context's token is not sent there; if it should be, type \
                 --token-file, or add the server to the context with --token-for"
            ));
        }
        is_own.then_some(self.token.as_str())
    }
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
        return given(token, "--token");
    }
    if let Some(path) = &args.token_file {
        return given(&read_token(path)?, &path.display().to_string());
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
    // A link that leads nowhere is there, too: it is told, not passed over.
    match places
        .map(|dir| dir.join(&name))
        .find(|path| path.symlink_metadata().is_ok())
    {
        Some(path) => given(&read_discovered_token(&path)?, &path.display().to_string()),
        None => Ok(Credential::Anonymous),
    }
}

/// Reads a file that holds one token.
pub fn read_token(path: &Path) -> Result<String, CommandError> {
    let file = File::open(path).map_err(|why| unusable(path, &why))?;
    token_of(file, path)
}

/// The same of a file that nobody has named. Everybody may put one into /tmp, so it counts only when it is a file of whoever
/// runs the command, or of root, and nobody else may read or write it.
fn read_discovered_token(path: &Path) -> Result<String, CommandError> {
    // A pipe is opened without waiting for who writes it.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let file = file.map_err(|why| match Errno::from_io_error(&why) {
        Some(Errno::LOOP) => doubtful(path, "it is a symbolic link"),
        _ => unusable(path, &why),
    })?;
    let metadata = file.metadata().map_err(|why| unusable(path, &why))?;
    if !metadata.is_file() {
        return Err(doubtful(path, "it is not a regular file"));
    }
    let (owner, own) = (metadata.uid(), rustix::process::getuid().as_raw());
    if let Some(why) = access_of_others(owner, metadata.mode(), own) {
        return Err(doubtful(path, &why));
    }
    token_of(file, path)
}

/// How others than `own` and root could have written a file, or could read it.
fn access_of_others(owner: u32, mode: u32, own: u32) -> Option<String> {
    if owner != own && owner != 0 {
        return Some(format!("it belongs to another user (uid {owner})"));
    }
    let others = mode & 0o077;
    (others != 0).then(|| {
        let mode = mode & 0o7777;
        format!(
            "users other than its owner have access to it (mode {mode:04o}); run `chmod 600` on it"
        )
    })
}

fn token_of(file: File, path: &Path) -> Result<String, CommandError> {
    let mut text = String::new();
    let read = file
        .take(TOKEN_FILE_BYTES_MAX + 1)
        .read_to_string(&mut text);
    read.map_err(|why| unusable(path, &why))?;
    match text.len() as u64 > TOKEN_FILE_BYTES_MAX {
        true => Err(unusable(
            path,
            &format!("it has more than {TOKEN_FILE_BYTES_MAX} bytes, too many for a token"),
        )),
        false => Ok(text),
    }
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> CommandError {
    CommandError::Usage(format!("token file {}: {why}", path.display()))
}

fn doubtful(path: &Path, why: &str) -> CommandError {
    let remedy = "it was found in a default place and is not used for this reason: remove it, or name a token with \
                  --token-file or BEARER_TOKEN_FILE";
    unusable(path, &format!("{why}; {remedy}"))
}

fn given(text: &str, origin: &str) -> Result<Credential, CommandError> {
    bearer_token(text, origin).map(Credential::Given)
}

fn bearer_token(text: &str, origin: &str) -> Result<String, CommandError> {
    let token = text.trim();
    // RFC 6750 §2.1: the characters of a bearer token. Anything else would end or split the header.
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    match !token.is_empty() && token.bytes().all(valid) {
        true => Ok(token.to_owned()),
        false => Err(CommandError::Usage(format!(
            "{origin} does not contain a bearer token"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn discovered(environment: &Environment) -> String {
        match discover_token(environment) {
            Ok(Credential::Given(token)) => token,
            Ok(Credential::Anonymous) => "none".into(),
            Ok(Credential::OfContext(_) | Credential::Minted(_)) => "another".into(),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn tokens_are_discovered_in_the_order_of_the_profile() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            write_private(&path, text);
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
            "BEARER_TOKEN does not contain a bearer token"
        );
    }

    fn write_private(path: &Path, text: &str) {
        std::fs::write(path, text).expect("written");
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).expect("set");
    }

    #[test]
    fn a_token_that_was_found_counts_only_when_nobody_else_could_have_put_it_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().join("bt_u4000000001");
        let environment = Environment {
            uid: 4_000_000_001,
            runtime_dir: Some(dir.path().to_owned()),
            ..Environment::default()
        };
        let check = |expected: &str| {
            let told = discovered(&environment);
            assert!(told.contains(expected), "{expected}: {told}");
        };
        let elsewhere = dir.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, &place).expect("linked");
        check("it is a symbolic link; ");
        write_private(&elsewhere, "of-somebody");
        check("it is a symbolic link; ");
        std::fs::remove_file(&place).expect("removed");
        std::fs::create_dir(&place).expect("made");
        check("it is not a regular file; ");
        std::fs::remove_dir(&place).expect("removed");
        write_private(&place, "own");
        check("own");
        for mode in [0o604, 0o602, 0o640, 0o620] {
            std::fs::set_permissions(&place, Permissions::from_mode(mode)).expect("set");
            check("users other than its owner have access to it (mode 06");
        }
        assert_eq!(access_of_others(1000, 0o100_600, 1000), None);
        assert_eq!(access_of_others(0, 0o100_600, 1000), None, "root's");
        let foreign = access_of_others(1001, 0o100_600, 1000);
        assert!(foreign.is_some_and(|why| why.contains("uid 1001")));
    }

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
        write_private(&file, "secret\n");
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
