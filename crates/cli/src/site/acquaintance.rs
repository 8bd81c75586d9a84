//! What a site's configuration says about another site, worked out from what that one tells of itself.

use crate::site::config::{ForeignIssuer, in_url};
use penstock_model::{NamespacePath, Right};
use penstock_protocol::network::why_not_public;
use penstock_protocol::site_document::SiteDocument;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use url::Url;

/// What one site learns about another.
#[derive(Debug, Clone, PartialEq)]
pub struct Acquaintance {
    /// Whose tokens to trust; `None`: they allow nothing.
    pub issuer: Option<ForeignIssuer>,
    /// Where copies may go to or come from.
    pub servers: Vec<String>,
    /// Addresses of these that are not public.
    pub private_addresses: Vec<String>,
}

/// What tokens of the other site can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenGrant {
    /// Below which directory.
    pub prefix: NamespacePath,
    /// As members of which VO.
    pub vo: String,
    pub rights: Vec<Right>,
}

/// Where the servers of a site are, as far as that counts here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownServers {
    /// Its hosts.
    pub hosts: Vec<String>,
    /// Addresses and ports of these that are not public.
    pub private_addresses: Vec<String>,
    /// Its storage door without TLS counts as well.
    pub with_plain_door: bool,
}

impl Acquaintance {
    /// With the site that tells this of itself, at these servers.
    pub fn with(
        document: &SiteDocument,
        known: KnownServers,
        grant: Option<TokenGrant>,
    ) -> Acquaintance {
        let hosts = &known.hosts;
        let door = document.storage.map(|storage| storage.port);
        let plain = document.storage.and_then(|storage| storage.plain_port);
        let plain = plain.filter(|_| known.with_plain_door);
        let with_tls = door.into_iter().flat_map(|port| servers("", hosts, port));
        let without = plain
            .into_iter()
            .flat_map(|port| servers("http://", hosts, port));
        let issuer = document.issuer.as_ref().zip(grant);
        let issuer = issuer.map(|(issuer, grant)| {
            ForeignIssuer::limited(&issuer.url, grant.prefix, Some(grant.vo), grant.rights)
        });
        Acquaintance {
            issuer,
            servers: with_tls.chain(without).collect(),
            private_addresses: known.private_addresses,
        }
    }
}

/// The ports at which a site says that this one will connect to it: doors, and where the keys of its issuer are.
pub fn ports_of(document: &SiteDocument) -> BTreeSet<u16> {
    let door = document.storage.map(|storage| storage.port);
    let plain = document.storage.and_then(|storage| storage.plain_port);
    // Keys are fetched there, also when it keeps no files.
    let keys = document.issuer.as_ref();
    let keys = keys.and_then(|issuer| Url::parse(&issuer.url).ok());
    let keys = keys.and_then(|url| url.port_or_known_default());
    [door, plain, keys].into_iter().flatten().collect()
}

/// A port of these hosts, as lists of servers name it.
pub fn servers(scheme: &str, hosts: &[String], port: u16) -> Vec<String> {
    let server = |host: &String| format!("{scheme}{}:{port}", in_url(host));
    hosts.iter().map(server).collect()
}

/// The addresses of hosts, as this machine resolves them.
pub fn addresses_of(hosts: &[String]) -> BTreeSet<IpAddr> {
    let resolved = hosts.iter().flat_map(|host| match host.parse() {
        Ok(address) => vec![address],
        Err(_) => {
            let found = (host.as_str(), 0).to_socket_addrs();
            found.map_or_else(|_| Vec::new(), |found| found.map(|at| at.ip()).collect())
        }
    });
    resolved.collect()
}

/// These ports at those of the addresses that are not public: nobody else would allow them.
pub fn private_addresses(addresses: &BTreeSet<IpAddr>, ports: &BTreeSet<u16>) -> Vec<String> {
    let private = addresses
        .iter()
        .filter(|at| !at.is_unspecified() && why_not_public(**at).is_some());
    let at_ports = private.flat_map(|address| {
        let of_port = move |port: &u16| SocketAddr::new(*address, *port).to_string();
        ports.iter().map(of_port)
    });
    at_ports.collect()
}
