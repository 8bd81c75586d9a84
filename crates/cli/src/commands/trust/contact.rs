//! The first look at another site: what it tells of itself, fetched so that nothing counts that an authority has not vouched
//! for, and no more than is sensible. Whether that authority is the right one is for a person to say.

use crate::exit::CommandError;
use crate::site::trusted_site::of_pki;
use http::{Method, StatusCode};
use openssl::x509::X509;
use penstock_field_tools::remote_error::RemoteError;
use penstock_protocol::http1::client::{
    Client, ClientConfig, ClientError, ClientRequest, ClientResponse,
};
use penstock_protocol::pki::{ForeignAuthority, subject_of};
use penstock_protocol::site_document::{
    DOCUMENT_BYTES_MAX, SiteDocument, WELL_KNOWN, canonical_host,
};
use penstock_protocol::tls::{ClientTls, TlsError};
use penstock_protocol::token::{configuration_address, key_fingerprints};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use thiserror::Error;
use tokio::net::lookup_host;
use tokio::time::timeout;
use url::Url;

/// For each step of an exchange.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// For a whole exchange, however slowly it goes on.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of a document of an issuer.
const ISSUER_BYTES_MAX: u64 = 64 << 10;
/// Where sites listen that say nothing else: the storage door, the transfer service, and HTTPS.
const USUAL_PORTS: [u16; 3] = [8443, 8446, 443];

/// What is known of a site after the first look.
pub struct Contact {
    /// Where it answered: scheme, host and port.
    pub url: Url,
    /// The host in its one form.
    pub host: String,
    pub document: SiteDocument,
    /// Those of the document.
    pub hosts: Vec<ResolvedHost>,
    /// Who sent the document, over the connection that the authority certifies.
    pub sender: Sender,
    /// The root of the chain by which the certificate of the connection was verified.
    pub authority: ForeignAuthority,
    /// This site trusts its certificate already.
    pub is_trusted: bool,
    /// Thumbprints of the keys that its issuer publishes.
    pub key_fingerprints: Vec<String>,
}

/// A host of a site, as this machine resolves it.
#[derive(Debug)]
pub struct ResolvedHost {
    pub host: String,
    /// Empty: it was not found.
    pub addresses: BTreeSet<IpAddr>,
}

/// The other end of a connection, as the connection itself tells it.
pub struct Sender {
    /// Its address and port.
    pub address: SocketAddr,
    /// The subject of the certificate that it showed, in slash form. Empty: it has none that can be written.
    pub host_subject: String,
    /// The authority by which that certificate is believed, as PEM.
    authority: Option<String>,
}

impl Sender {
    fn authority(&self, url: &Url) -> Result<ForeignAuthority, CommandError> {
        let pem = self.authority.as_deref().ok_or_else(|| {
            CommandError::Unreachable(format!(
                "{url} does not say by which authority it is certified"
            ))
        })?;
        ForeignAuthority::parse(pem).map_err(|why| {
            CommandError::Unreachable(format!(
                "{url} is certified by an authority that cannot be used: {why}"
            ))
        })
    }
}

/// Why something was not fetched.
#[derive(Debug, Error)]
enum FetchError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{url} takes longer than {} s", EXCHANGE_TIMEOUT.as_secs())]
    TooSlow { url: Url },
    #[error("{url} answers {status}: {advice}")]
    Status {
        url: Url,
        status: StatusCode,
        advice: &'static str,
    },
    #[error("{url} returned an unusable document: {why}")]
    Content { url: Url, why: String },
}

impl FetchError {
    fn is_not_trusted(&self) -> bool {
        let tls = match self {
            FetchError::Client(ClientError::Tls(tls)) => tls,
            FetchError::Client(_)
            | FetchError::TooSlow { .. }
            | FetchError::Status { .. }
            | FetchError::Content { .. } => return false,
        };
        matches!(tls, TlsError::NotTrusted { .. })
    }

    /// Nobody listens there, so another port may be meant.
    fn is_nobody(&self) -> bool {
        matches!(self, FetchError::Client(ClientError::Connect { .. }))
    }
}

impl From<FetchError> for CommandError {
    fn from(why: FetchError) -> CommandError {
        match why {
            FetchError::Client(why) => RemoteError::Unreachable(why).into(),
            other => CommandError::Unreachable(other.to_string()),
        }
    }
}

/// The URL as a site's: host and port, nothing else.
pub fn site_url(typed: &Url) -> Result<Url, CommandError> {
    let has_more = !matches!(typed.path(), "" | "/")
        || typed.query().is_some()
        || typed.fragment().is_some()
        || !typed.username().is_empty()
        || typed.password().is_some();
    match typed.scheme() == "https" && typed.host_str().is_some() && !has_more {
        true => Ok(typed.clone()),
        false => Err(CommandError::Usage(format!(
            "'{typed}' is not the URL of a site: give https://HOST:PORT of its storage door or transfer service"
        ))),
    }
}

/// Looks at the site of this URL. `certificates`: those that this site trusts.
pub async fn look(typed: &Url, certificates: &Path) -> Result<Contact, CommandError> {
    let typed = site_url(typed)?;
    let mut candidates = vec![typed.clone()];
    if typed.port().is_none() {
        candidates = USUAL_PORTS.map(|port| with_port(&typed, port)).to_vec();
    }
    let mut failed = None;
    for url in candidates {
        match look_at(&url, certificates).await {
            Ok(contact) => return Ok(contact),
            Err(LookError::Fetch(why)) if why.is_nobody() => {
                failed.get_or_insert(why);
            }
            Err(why) => return Err(why.into()),
        }
    }
    let why = failed.map(CommandError::from);
    Err(why.unwrap_or_else(|| CommandError::Usage(format!("{typed} does not name a server"))))
}

fn with_port(url: &Url, port: u16) -> Url {
    let mut url = url.clone();
    // It has a host, so it takes one.
    let _ = url.set_port(Some(port));
    url
}

enum LookError {
    Fetch(FetchError),
    Other(CommandError),
}

impl From<FetchError> for LookError {
    fn from(why: FetchError) -> LookError {
        LookError::Fetch(why)
    }
}

impl From<CommandError> for LookError {
    fn from(why: CommandError) -> LookError {
        LookError::Other(why)
    }
}

impl From<LookError> for CommandError {
    fn from(why: LookError) -> CommandError {
        match why {
            LookError::Fetch(why) => why.into(),
            LookError::Other(why) => why,
        }
    }
}

async fn look_at(url: &Url, certificates: &Path) -> Result<Contact, LookError> {
    let trusting = client(ClientTls::from_ca_directory(certificates))?;
    let told = document_at(&trusting, url).await;
    let ((document, sender), client, is_trusted, _kept) = match told {
        Ok(told) => (told, trusting, true, None),
        Err(why) if why.is_not_trusted() => {
            let (told, client, kept) = first_contact(url).await?;
            (told, client, false, Some(kept))
        }
        Err(why) => return Err(why.into()),
    };
    let host = url.host_str().and_then(canonical_host).unwrap_or_default();
    if !document.hosts.contains(&host) {
        return Err(LookError::Other(CommandError::Usage(format!(
            "the site at {url} has the host names {}, but not {host}; use one of these in the URL, or have {host} added to \
             site.hosts there",
            document.hosts.join(", ")
        ))));
    }
    let key_fingerprints = match &document.issuer {
        Some(issuer) => issuer_keys(&client, &issuer.url).await?,
        None => Vec::new(),
    };
    Ok(Contact {
        url: url.clone(),
        host,
        hosts: resolved(&document.hosts).await,
        authority: sender.authority(url)?,
        document,
        sender,
        is_trusted,
        key_fingerprints,
    })
}

/// Why a site that was trusted tells nothing.
pub enum TellingError {
    /// Somebody answers whose certificate is not trusted.
    NotTrusted(String),
    Unreachable(String),
}

/// What a site tells that is trusted, and the authority that certifies it.
pub async fn told_by(
    url: &Url,
    certificates: &Path,
) -> Result<(SiteDocument, ForeignAuthority), TellingError> {
    let unreachable = |why: CommandError| TellingError::Unreachable(why.to_string());
    let client = client(ClientTls::from_ca_directory(certificates)).map_err(unreachable)?;
    let told = document_at(&client, url).await;
    let (document, sender) = told.map_err(|why| match why.is_not_trusted() {
        true => TellingError::NotTrusted(why.to_string()),
        false => TellingError::Unreachable(why.to_string()),
    })?;
    Ok((document, sender.authority(url).map_err(unreachable)?))
}

/// Hosts with their addresses, looked up all at once. A name that is not found in time has none.
async fn resolved(hosts: &[String]) -> Vec<ResolvedHost> {
    let asked = hosts.iter().cloned().map(|host| {
        tokio::spawn(async move {
            let found = timeout(STEP_TIMEOUT, lookup_host((host, 0_u16))).await;
            let found = found.ok().and_then(Result::ok).into_iter().flatten();
            found
                .map(|at| at.ip().to_canonical())
                .collect::<BTreeSet<IpAddr>>()
        })
    });
    let asked: Vec<_> = asked.collect();
    let mut resolved = Vec::new();
    for (host, asked) in hosts.iter().zip(asked) {
        resolved.push(ResolvedHost {
            host: host.clone(),
            addresses: asked.await.unwrap_or_default(),
        });
    }
    resolved
}

/// What a site tells that is not trusted as yet: taken from anybody, then taken again from whom the authorities that it names
/// vouch for. Gives a client that trusts these alone, and the directory that it needs.
async fn first_contact(
    url: &Url,
) -> Result<((SiteDocument, Sender), Client, tempfile::TempDir), LookError> {
    let anybody = client(ClientTls::for_first_contact())?;
    let (document, _) = document_at(&anybody, url).await?;
    let authorities = authorities_of(&document, url)?;
    if authorities.is_empty() {
        return Err(LookError::Other(CommandError::Unreachable(format!(
            "the certificate of {url} is not trusted, and its site document has no authority; copy the CA certificate into \
             trust.certificates by hand (`penstock check` there shows what is missing)"
        ))));
    }
    let kept = tempfile::tempdir()
        .map_err(|why| CommandError::local("cannot make a temporary directory", why))?;
    for authority in &authorities {
        authority.save_in(kept.path()).map_err(of_pki)?;
    }
    let trusting = client(ClientTls::from_ca_directory(kept.path()))?;
    let (again, sender) = document_at(&trusting, url).await?;
    refuse_further_authorities(&authorities, &sender.authority(url)?, url)?;
    match again == document {
        true => Ok(((document, sender), trusting, kept)),
        false => Err(LookError::Other(CommandError::Unreachable(format!(
            "{url} sent two different site documents, one after the other; try again, and if this persists, somebody \
             intercepts the connection"
        )))),
    }
}

/// Errors: an authority that certifies nothing of the site would be trusted for it.
fn refuse_further_authorities(
    named: &[ForeignAuthority],
    certifier: &ForeignAuthority,
    url: &Url,
) -> Result<(), CommandError> {
    let is_other = |named: &&ForeignAuthority| named.fingerprint() != certifier.fingerprint();
    match named.iter().find(is_other) {
        Some(other) => Err(CommandError::OtherSite(format!(
            "{url} names the authority {}, which does not certify it; nothing was changed",
            other.subject()
        ))),
        None => Ok(()),
    }
}

fn authorities_of(
    document: &SiteDocument,
    url: &Url,
) -> Result<Vec<ForeignAuthority>, CommandError> {
    let parsed = document.authorities.iter().map(|pem| {
        ForeignAuthority::parse(pem).map_err(|why| {
            CommandError::Unreachable(format!(
                "{url} names an authority that cannot be used: {why}"
            ))
        })
    });
    parsed.collect()
}

fn client(tls: Result<ClientTls, TlsError>) -> Result<Client, CommandError> {
    let tls =
        tls.map_err(|why| CommandError::Usage(format!("cannot load CA certificates: {why}")))?;
    Ok(Client::new(ClientConfig {
        connect_timeout: STEP_TIMEOUT,
        response_timeout: STEP_TIMEOUT,
        stall_timeout: STEP_TIMEOUT,
        idle_per_host: 1,
        ..ClientConfig::new(tls)
    }))
}

async fn document_at(client: &Client, site: &Url) -> Result<(SiteDocument, Sender), FetchError> {
    let mut url = site.clone();
    url.set_path(WELL_KNOWN);
    let (body, sender) = fetch(client, &url, DOCUMENT_BYTES_MAX).await?;
    let parsed = SiteDocument::parse(&body).map_err(|why| why.to_string());
    let told = parsed.and_then(|document| {
        let sender = sender.ok_or("its connection is gone already")?;
        Ok((document, sender))
    });
    told.map_err(|why| FetchError::Content { url, why })
}

/// Who answers, as long as the connection is there.
fn sender_of(answer: &ClientResponse) -> Option<Sender> {
    let address = answer.peer_addr()?;
    let shown = answer.peer_certificate_pem();
    let shown = shown.and_then(|pem| X509::from_pem(pem.as_bytes()).ok());
    let subject = shown.and_then(|certificate| subject_of(&certificate).ok());
    Some(Sender {
        address: SocketAddr::new(address.ip().to_canonical(), address.port()),
        host_subject: subject.unwrap_or_default(),
        authority: answer.peer_authority_pem(),
    })
}

/// Fetches a document that is there for anybody. Shows nothing, and follows nothing.
async fn fetch(
    client: &Client,
    url: &Url,
    bytes_max: u64,
) -> Result<(Vec<u8>, Option<Sender>), FetchError> {
    let exchange = async {
        let mut answer = client
            .send(ClientRequest::new(Method::GET, url.clone()))
            .await?;
        let advice = match answer.status {
            StatusCode::OK => {
                let sender = sender_of(&answer);
                return Ok((answer.read_all(bytes_max).await?, sender));
            }
            status if status.is_redirection() => {
                "redirects are not followed; give the URL of the site itself"
            }
            StatusCode::NOT_FOUND => {
                "it has no site document; check the port, and that it is a Penstock site of this version"
            }
            _ => "check the port, and that it is a Penstock site",
        };
        Err(FetchError::Status {
            url: url.clone(),
            status: answer.status,
            advice,
        })
    };
    match timeout(EXCHANGE_TIMEOUT, exchange).await {
        Ok(fetched) => fetched,
        Err(_) => Err(FetchError::TooSlow { url: url.clone() }),
    }
}

/// The thumbprints of an issuer's keys, fetched as services will fetch them.
async fn issuer_keys(client: &Client, issuer: &str) -> Result<Vec<String>, LookError> {
    let wrong = |url: &Url, why: String| {
        LookError::Fetch(FetchError::Content {
            url: url.clone(),
            why,
        })
    };
    let not_url =
        |text: &str| LookError::Other(CommandError::Unreachable(format!("'{text}' is not a URL")));
    let address = configuration_address(issuer);
    let url = Url::parse(&address).map_err(|_| not_url(&address))?;
    let (body, _) = fetch(client, &url, ISSUER_BYTES_MAX).await?;
    let offered: Value =
        serde_json::from_slice(&body).map_err(|why| wrong(&url, why.to_string()))?;
    // OpenID Connect Discovery §4.3: the issuer must be exactly the one asked for.
    if offered["issuer"] != issuer {
        return Err(wrong(
            &url,
            format!("it belongs to another issuer than {issuer}"),
        ));
    }
    let keys = offered["jwks_uri"].as_str().unwrap_or_default();
    let keys = Url::parse(keys).map_err(|_| not_url(keys))?;
    if keys.origin() != url.origin() {
        return Err(wrong(
            &url,
            format!("its keys are at another server ({keys})"),
        ));
    }
    let (body, _) = fetch(client, &keys, ISSUER_BYTES_MAX).await?;
    let jwks: Value = serde_json::from_slice(&body).map_err(|why| wrong(&keys, why.to_string()))?;
    match key_fingerprints(&jwks) {
        found if found.is_empty() => Err(wrong(&keys, "it contains no keys".to_owned())),
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_with_tls_is_a_site() {
        let check = |text: &str, expected: bool| {
            let url = Url::parse(text).expect("a URL");
            assert_eq!(site_url(&url).is_ok(), expected, "{text}");
        };
        check("https://se.example.org:8443", true);
        check("https://se.example.org/", true);
        check("https://[::1]:8443", true);
        check("http://se.example.org:8443", false);
        check("https://user@se.example.org", false);
        check("https://se.example.org/data", false);
        check("https://se.example.org/?a", false);
    }
}
