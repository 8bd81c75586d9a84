//! From a URL to a connection: names, addresses, rules about addresses, TLS.

use super::{ClientConfig, ClientError, NearEnd};
use crate::stream::Stream;
use crate::tls::ClientIdentity;
use penstock_model::TimeSpan;
use penstock_model::url::redact;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

/// Gives a reason not to connect to an address and port to which a host's name leads.
pub type ResolvedCheck = Arc<dyn Fn(&str, SocketAddr) -> Result<(), String> + Send + Sync>;

/// A server: what connections are kept for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Endpoint {
    pub(super) tls: bool,
    /// A name, or an address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Endpoint {
    pub(super) fn of(url: &Url) -> Result<Endpoint, ClientError> {
        let refuse = |why: &str| ClientError::InvalidUrl {
            url: redact(url.as_str()),
            why: why.to_owned(),
        };
        let (tls, default_port) = match url.scheme() {
            "https" | "davs" => (true, 443),
            "http" | "dav" => (false, 80),
            _ => return Err(refuse("its scheme is none of https, davs, http, dav")),
        };
        let host = url
            .host_str()
            .filter(|host| !host.is_empty())
            .ok_or_else(|| refuse("it names no host"))?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let port = url.port().unwrap_or(default_port);
        Ok(Endpoint {
            tls,
            host: host.to_ascii_lowercase(),
            port,
        })
    }

    /// The `Host` header: the port only where it is not the usual one (RFC 9110 §7.2).
    pub(super) fn host_header(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    fn shown(&self) -> String {
        format!("{} port {}", self.host, self.port)
    }
}

/// A server, and who we are there.
#[derive(Clone, Copy)]
pub(super) struct ConnectTarget<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) identity: Option<&'a ClientIdentity>,
}

/// Connects to the first address of the endpoint that answers and that the check allows.
pub(super) async fn connect(
    to: ConnectTarget<'_>,
    config: &ClientConfig,
    check: Option<&ResolvedCheck>,
) -> Result<(Stream, NearEnd), ClientError> {
    let ConnectTarget { endpoint, identity } = to;
    let limit = config.connect_timeout;
    let too_slow = |phase| ClientError::Timeout {
        url: endpoint.shown(),
        phase,
        limit,
    };
    let addresses = timeout(limit, resolve(endpoint))
        .await
        .map_err(|_| too_slow("resolving its name"))??;
    let addresses = allowed(endpoint, addresses, check)?;

    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let mut connected = None;
    for address in addresses {
        match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => {
                connected = Some(tcp);
                break;
            }
            Ok(Err(why)) => last = why,
            Err(_) => {
                let text = format!("no answer from {address} within {}", TimeSpan(limit));
                last = io::Error::new(io::ErrorKind::TimedOut, text);
            }
        }
    }
    let Some(tcp) = connected else {
        return Err(ClientError::Connect {
            host: endpoint.shown(),
            why: last,
        });
    };
    let broken = |why| ClientError::Connect {
        host: endpoint.shown(),
        why,
    };
    let near_end = config.near_ends.add(tcp.local_addr().map_err(broken)?);
    if !endpoint.tls {
        return Ok((Stream::plain(tcp), near_end));
    }
    let shaking = config.tls.connect_as(&endpoint.host, tcp, identity);
    match timeout(limit, shaking).await {
        Ok(stream) => Ok((stream?, near_end)),
        Err(_) => Err(too_slow("shaking hands")),
    }
}

pub(super) async fn resolve(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, ClientError> {
    if let Ok(address) = endpoint.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, endpoint.port)]);
    }
    let failed = |why: String| ClientError::Resolve {
        host: endpoint.host.clone(),
        why,
    };
    let found = tokio::net::lookup_host((endpoint.host.as_str(), endpoint.port)).await;
    let found: Vec<SocketAddr> = found.map_err(|why| failed(why.to_string()))?.collect();
    match found.is_empty() {
        true => Err(failed("it has no address".into())),
        false => Ok(found),
    }
}

/// The addresses that may be tried; an error with the first reason when there are none.
pub(super) fn allowed(
    endpoint: &Endpoint,
    mut addresses: Vec<SocketAddr>,
    check: Option<&ResolvedCheck>,
) -> Result<Vec<SocketAddr>, ClientError> {
    let Some(check) = check else {
        return Ok(addresses);
    };
    let mut reason = None;
    // An IPv4 address in IPv6 clothes must not pass rules that were written for IPv4.
    addresses.retain(|address| {
        let canonical = SocketAddr::new(address.ip().to_canonical(), address.port());
        match check(&endpoint.host, canonical) {
            Ok(()) => true,
            Err(why) => {
                reason.get_or_insert(why);
                false
            }
        }
    });
    match reason {
        Some(why) if addresses.is_empty() => Err(ClientError::Forbidden {
            host: endpoint.host.clone(),
            why,
        }),
        Some(_) | None => Ok(addresses),
    }
}
