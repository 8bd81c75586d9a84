//! Where a service may be sent on somebody's behalf: which addresses it connects to, and to whom credentials may
//! follow a redirect.
//!
//! The address that is judged is the one that is connected to: a name is resolved once, so it cannot lead elsewhere in
//! between. Each connection is judged, also those that redirects ask for.

use super::connect::{Endpoint, allowed, resolve};
use super::{Client, ClientError, Outgoing, ResolvedCheck};
use crate::hosts::HostPattern;
use crate::network::{Network, why_not_public};
use http::StatusCode;
use penstock_model::IpVersion;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use url::Url;

/// The rules in effect. Cheap to clone; all clones see a replacement.
#[derive(Clone, Default)]
pub struct Reach(Arc<RwLock<ReachRules>>);

/// What a site allows.
#[derive(Debug, Clone, Default)]
pub struct ReachRules {
    /// Networks that are not public and may be connected to all the same.
    pub private: Vec<Network>,
    /// Hosts to which credentials follow a redirect, over TLS. To others they do not.
    pub credentials_follow: Vec<HostPattern>,
}

impl Reach {
    /// With these rules.
    pub fn new(rules: ReachRules) -> Reach {
        Reach(Arc::new(RwLock::new(rules)))
    }

    /// From now on these rules. Connections that are open and idle may still be used for some seconds.
    pub fn replace(&self, rules: ReachRules) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// Whether an address may be connected to; the reason otherwise.
    pub fn judge(&self, address: IpAddr) -> Result<(), String> {
        let Some(kind) = why_not_public(address) else {
            return Ok(());
        };
        let rules = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match rules
            .private
            .iter()
            .any(|network| network.contains(address))
        {
            true => Ok(()),
            false => Err(format!(
                "{address} is {kind}, and the site's trust.private_addresses does not list it"
            )),
        }
    }

    /// Whether credentials may go along to where a redirect leads.
    fn takes_credentials(&self, to: &Url) -> bool {
        let rules = self.0.read().unwrap_or_else(PoisonError::into_inner);
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
        let check: ResolvedCheck = Arc::new(move |_, address| judge.judge(address));
        Client {
            reach: Some(reach.clone()),
            ..self.with_resolved_check(check)
        }
    }

    /// A client that connects by one version of the Internet protocol only, wherever the rules allow. Starts without
    /// connections.
    pub fn with_ip_version(&self, version: IpVersion) -> Client {
        let judge = self.check.clone();
        let check: ResolvedCheck = Arc::new(move |host, address: IpAddr| {
            if address.is_ipv4() != (version == IpVersion::V4) {
                let wanted = version.name();
                return Err(format!(
                    "{address} is no {wanted} address, and the job asks for {wanted}"
                ));
            }
            judge.as_ref().map_or(Ok(()), |judge| judge(host, address))
        });
        self.with_resolved_check(check)
    }

    /// Whether another program may connect to a host on somebody's behalf. It resolves the name anew, so this keeps
    /// out who is named plainly, not who changes a name in between.
    ///
    /// Errors: the name has no address; one of its addresses is off limits.
    pub async fn may_reach(&self, host: &str) -> Result<(), ClientError> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let endpoint = Endpoint {
            tls: false,
            host: host.to_owned(),
            // Any: only addresses are judged.
            port: 0,
        };
        let addresses = resolve(&endpoint).await?;
        for address in addresses {
            allowed(&endpoint, vec![address], self.check.as_ref())?;
        }
        Ok(())
    }

    /// The same request for another place, as a redirect with `status` asks for. On the way to another scheme,
    /// host or port secrets are dropped, except where the rules let them follow. Errors: a place that cannot be
    /// sent to.
    pub fn redirected(
        &self,
        request: Outgoing,
        status: StatusCode,
        to: Url,
    ) -> Result<Outgoing, ClientError> {
        let trusted = self.reach.as_ref();
        match trusted.is_some_and(|reach| reach.takes_credentials(&to)) {
            true => request.redirected_with_secrets(status, to),
            false => request.redirected(status, to),
        }
    }
}
