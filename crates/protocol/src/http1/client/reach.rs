//! Where a service may be sent on somebody's behalf: which addresses it connects to, and to whom credentials may
//! follow a redirect.
//!
//! The address that is judged is the one that is connected to: a name is resolved once, so it cannot lead elsewhere in
//! between. Each connection is judged, also those that redirects ask for.

use super::connect::{Endpoint, allowed, resolve};
use super::{Client, ClientError, ClientRequest, ResolvedCheck};
use crate::hosts::HostPattern;
use crate::network::{NetworkPorts, Ports, is_of_this_machine, is_usual_with_tls, why_not_public};
use http::StatusCode;
use parking_lot::RwLock;
use penstock_model::IpVersion;
use std::net::SocketAddr;
use std::sync::Arc;
use thiserror::Error;
use url::Url;

/// The rules in effect. Cheap to clone; all clones see a replacement.
#[derive(Clone, Default)]
pub struct Reach(Arc<RwLock<ReachRules>>);

/// What a site allows.
#[derive(Debug, Clone, Default)]
pub struct ReachRules {
    /// Servers at addresses that are not public, or are this machine's, that may be connected to all the same.
    pub private: Vec<NetworkPorts>,
    /// Ports of the site's own storage doors and of the issuers that it trusts. Where `private` names no port they count
    /// like those that storage elements usually have.
    pub known_ports: Vec<u16>,
    /// Where this process listens for something else than files. Nothing that others say leads there, whatever else is
    /// allowed: these ports are for clients, and some of them believe who comes from this machine.
    pub own_services: Vec<SocketAddr>,
    /// Hosts to which credentials follow a redirect, over TLS. To others they do not.
    pub credentials_follow: Vec<HostPattern>,
}

/// Why an address may not be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OffLimits {
    /// It is a port of this process that is no storage door.
    #[error("{} port {} is a port of this site that is not for files", .0.ip(), .0.port())]
    OwnService(SocketAddr),
    /// It is not public, or this machine's, and not listed.
    #[error(
        "{} is {kind}, and the site's trust.private_addresses does not list it with port {} (\"{server}\")",
        .server.ip(), .server.port()
    )]
    NotListed {
        server: SocketAddr,
        /// What kind of address it is.
        kind: &'static str,
    },
}

impl ReachRules {
    fn judge(&self, server: SocketAddr) -> Result<(), OffLimits> {
        let address = server.ip().to_canonical();
        let server = SocketAddr::new(address, server.port());
        let is_own_service = |own: &SocketAddr| {
            let own_address = own.ip().to_canonical();
            own.port() == server.port()
                && (own_address == address
                    // Sending to the unspecified address means this machine.
                    || address.is_unspecified()
                    || (own_address.is_unspecified() && is_of_this_machine(address)))
        };
        if self.own_services.iter().any(is_own_service) {
            return Err(OffLimits::OwnService(server));
        }
        let kind = match why_not_public(address) {
            Some(kind) => kind,
            None if is_of_this_machine(address) => "an address of this machine",
            None => return Ok(()),
        };
        // Beside a storage element, administration pages of a machine like to have the ports of doors without TLS.
        let is_public_door = why_not_public(address).is_none()
            && (is_usual_with_tls(server.port()) || self.known_ports.contains(&server.port()));
        match self.lists(server) || is_public_door {
            true => Ok(()),
            false => Err(OffLimits::NotListed { server, kind }),
        }
    }

    /// An entry of the list means this server.
    fn lists(&self, server: SocketAddr) -> bool {
        self.private.iter().any(|entry| {
            entry.network.contains(server.ip()) && self.is_known(entry.ports, server.port())
        })
    }

    fn is_known(&self, ports: Ports, port: u16) -> bool {
        ports.contain(port) || (ports == Ports::Usual && self.known_ports.contains(&port))
    }
}

impl Reach {
    pub fn new(rules: ReachRules) -> Reach {
        Reach(Arc::new(RwLock::new(rules)))
    }

    /// From now on these rules. Connections that are open and idle may still be used for some seconds.
    pub fn replace(&self, rules: ReachRules) {
        *self.0.write() = rules;
    }

    /// Whether a connection may be made on somebody's behalf. What a name leads to is to be judged by the very address
    /// that is connected to then, each time.
    pub fn may_connect(&self, server: SocketAddr) -> Result<(), OffLimits> {
        let rules = self.0.read();
        rules.judge(server)
    }

    /// What a server answers may be shown to who sent us there: it is public, or listed by its port.
    pub(super) fn is_known_server(&self, server: SocketAddr) -> bool {
        let address = server.ip().to_canonical();
        let rules = self.0.read();
        let names_it = |entry: &NetworkPorts| {
            entry.ports != Ports::Any
                && entry.network.contains(address)
                && rules.is_known(entry.ports, server.port())
        };
        why_not_public(address).is_none() || rules.private.iter().any(names_it)
    }

    /// Whether credentials may go along to where a redirect leads.
    fn takes_credentials(&self, to: &Url) -> bool {
        let rules = self.0.read();
        ["https", "davs"].contains(&to.scheme())
            && rules.credentials_follow.iter().any(|host| host.matches(to))
    }
}

impl Client {
    /// Whether what one server announces as another address of its own may be given the credentials that are for it:
    /// on its own host, or where credentials follow redirects; and never without TLS when it has TLS itself.
    pub fn may_take_credentials(&self, from: &Url, to: &Url) -> bool {
        let has_tls = |url: &Url| ["https", "davs"].contains(&url.scheme());
        let is_own = from.host_str().is_some() && from.host_str() == to.host_str();
        (is_own && (has_tls(to) || !has_tls(from)))
            || self
                .reach
                .as_ref()
                .is_some_and(|reach| reach.takes_credentials(to))
    }

    /// A client that goes only where the rules allow. Starts without connections, because those made before
    /// were not judged.
    pub fn with_reach(&self, reach: &Reach) -> Client {
        let judge = reach.clone();
        let check: ResolvedCheck = Arc::new(move |_, server| {
            let judged = judge.may_connect(server);
            judged.map_err(|why| why.to_string())
        });
        Client {
            reach: Some(reach.clone()),
            ..self.with_resolved_check(check)
        }
    }

    /// A client that connects by one version of the Internet protocol only, wherever the rules allow. Starts without
    /// connections.
    pub fn with_ip_version(&self, version: IpVersion) -> Client {
        let judge = self.check.clone();
        let check: ResolvedCheck = Arc::new(move |host, server: SocketAddr| {
            let address = server.ip();
            if address.is_ipv4() != (version == IpVersion::V4) {
                let wanted = version.name();
                return Err(format!(
                    "{address} is no {wanted} address, and the job asks for {wanted}"
                ));
            }
            judge.as_ref().map_or(Ok(()), |judge| judge(host, server))
        });
        self.with_resolved_check(check)
    }

    /// Whether another program may connect to a host on somebody's behalf. It resolves the name anew, so this keeps
    /// out who is named plainly, not who changes a name in between.
    ///
    /// Errors: the name has no address; one of its addresses is off limits at this port.
    pub async fn may_reach(&self, host: &str, port: u16) -> Result<(), ClientError> {
        let endpoint = Endpoint {
            tls: false,
            host: host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
            port,
        };
        let addresses = resolve(&endpoint).await?;
        for address in addresses {
            allowed(&endpoint, vec![address], self.check.as_ref())?;
        }
        Ok(())
    }

    /// Whether another program may connect to an address that some server has named to it.
    ///
    /// Errors: why not.
    pub fn may_connect(&self, address: SocketAddr) -> Result<(), String> {
        match &self.check {
            Some(check) => check(&address.ip().to_string(), address),
            None => Ok(()),
        }
    }

    /// The same request for another place, as a redirect with `status` asks for. On the way to another scheme,
    /// host or port secrets are dropped, except where the rules let them follow. Errors: a place that cannot be
    /// sent to.
    pub fn redirected(
        &self,
        request: ClientRequest,
        status: StatusCode,
        to: Url,
    ) -> Result<ClientRequest, ClientError> {
        let trusted = self.reach.as_ref();
        match trusted.is_some_and(|reach| reach.takes_credentials(&to)) {
            true => request.redirected_with_secrets(status, to),
            false => request.redirected(status, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(private: &[&str], own_services: &[&str]) -> Reach {
        let entry = |text: &&str| NetworkPorts::parse(text).expect("valid");
        Reach::new(ReachRules {
            private: private.iter().map(entry).collect(),
            known_ports: vec![19443],
            own_services: own_services
                .iter()
                .map(|text| text.parse().expect("valid"))
                .collect(),
            ..ReachRules::default()
        })
    }

    fn may(reach: &Reach, server: &str) -> bool {
        reach.may_connect(server.parse().expect("valid")).is_ok()
    }

    #[test]
    fn addresses_that_are_not_public_are_reached_at_listed_ports_and_public_ones_at_any() {
        let reach = reach(&["10.0.0.0/8", "127.0.0.5:9911", "[::1]:9911"], &[]);
        for (server, expected) in [
            ("128.142.1.1:1", true),
            ("[2001:1458:d00::1]:9911", true),
            ("10.1.2.3:8443", true),
            ("10.1.2.3:19443", true),
            ("10.1.2.3:9911", false),
            ("10.1.2.3:80", true),
            ("10.1.2.3:8080", true),
            ("10.1.2.3:8085", true),
            ("127.0.0.5:80", false),
            ("192.168.1.1:8443", false),
            ("127.0.0.5:9911", true),
            ("127.0.0.5:9912", false),
            ("[::ffff:127.0.0.5]:9911", true),
            ("[::ffff:127.0.0.5]:9912", false),
            ("[::1]:9911", true),
            ("[::1]:8443", false),
            ("[64:ff9b::7f00:5]:9911", false),
        ] {
            assert_eq!(may(&reach, server), expected, "{server}");
        }
    }

    #[test]
    fn the_ports_of_the_own_service_are_off_limits_whatever_is_listed() {
        let everything = ["0.0.0.0/0:*", "[::/0]:*"];
        let one = reach(&everything, &["127.0.0.2:8446"]);
        for server in ["127.0.0.2:8446", "[::ffff:127.0.0.2]:8446", "0.0.0.0:8446"] {
            let refused = one.may_connect(server.parse().expect("valid"));
            assert!(matches!(refused, Err(OffLimits::OwnService(_))), "{server}");
        }
        assert!(may(&one, "127.0.0.3:8446") && may(&one, "127.0.0.2:8443"));
        let all = reach(&everything, &["[::]:8446"]);
        for server in ["127.0.0.2:8446", "[::1]:8446", "0.0.0.0:8446", "[::]:8446"] {
            assert!(!may(&all, server), "{server}");
        }
        assert!(may(&all, "128.142.1.1:8446"));
    }

    #[test]
    fn a_reason_names_what_would_have_to_be_listed() {
        let refused = reach(&[], &[]).may_connect("[::1]:9911".parse().expect("valid"));
        let text = refused.expect_err("loopback").to_string();
        assert!(
            text.contains("trust.private_addresses does not list it with port 9911"),
            "{text}"
        );
        assert!(text.contains("\"[::1]:9911\""), "{text}");
    }
}
