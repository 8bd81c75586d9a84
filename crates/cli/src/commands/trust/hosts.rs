//! Which of the hosts that another site names count here: none of this site or of a trusted one, and none that leads inside.

use super::contact::{Contact, ResolvedHost};
use crate::site::config::Config;
use crate::site::trusted_site::TrustedSite;
use penstock_protocol::network::{is_of_this_machine, why_not_public};
use penstock_protocol::site_document::canonical_host;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// What becomes of the hosts that a site names.
#[derive(Debug, PartialEq, Eq)]
pub struct HostPlan {
    /// Copies may go there.
    pub counting: Vec<String>,
    pub left_out: Vec<String>,
}

impl HostPlan {
    /// `allowed`: addresses of the site that somebody has allowed although they are not public.
    pub fn of(
        contact: &Contact,
        config: &Config,
        others: &[&TrustedSite],
        allowed: &[String],
    ) -> HostPlan {
        let mut taken = own_hosts(config);
        taken.extend(others.iter().flat_map(|site| site.hosts()));
        let allowed = allowed.iter().filter_map(|text| text.parse().ok());
        let allowed: BTreeSet<IpAddr> = allowed.map(|at: SocketAddr| at.ip()).collect();
        let is_harmless = |address: &IpAddr| {
            let is_public = why_not_public(*address).is_none() && !is_of_this_machine(*address);
            is_public || allowed.contains(&address.to_canonical())
        };
        plan(&contact.hosts, &contact.host, &taken, is_harmless)
    }
}

/// Hosts are judged by where they lead now. When a name leads elsewhere tomorrow, `trust.private_addresses` still limits what is
/// connected to.
fn plan(
    hosts: &[ResolvedHost],
    typed: &str,
    taken: &[String],
    is_harmless: impl Fn(&IpAddr) -> bool,
) -> HostPlan {
    let counts = |resolved: &&ResolvedHost| {
        let ResolvedHost { host, addresses } = resolved;
        let is_taken = taken.iter().any(|taken| taken.eq_ignore_ascii_case(host));
        let leads_outside = !addresses.is_empty() && addresses.iter().all(&is_harmless);
        host == typed || (!is_taken && leads_outside)
    };
    let (counting, left_out): (Vec<&ResolvedHost>, Vec<_>) = hosts.iter().partition(counts);
    let named = |hosts: Vec<&ResolvedHost>| hosts.into_iter().map(|one| one.host.clone()).collect();
    HostPlan {
        counting: named(counting),
        left_out: named(left_out),
    }
}

/// Names and addresses of this site, in their one form.
pub fn own_hosts(config: &Config) -> Vec<String> {
    let doors = config.storage.iter().map(|role| role.listen.ip());
    let services = config.transfer.iter().map(|role| role.listen.ip());
    let listening = doors.chain(services).filter(|at| !at.is_unspecified());
    let listening = listening.map(|at| at.to_string());
    let all = config.site.hosts.iter().cloned().chain(listening);
    all.filter_map(|host| canonical_host(&host)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_stranger_count_only_when_they_cannot_lead_inside() {
        let hosts = [
            ("10.0.0.5", "10.0.0.5"),
            ("se.other.org", "192.88.100.1"),
            ("inside.other.org", "10.0.0.6"),
            ("both.other.org", "192.88.100.1 10.0.0.6"),
            ("allowed.other.org", "192.88.100.1 10.0.0.7"),
            ("nowhere.other.org", ""),
            ("localhost", "127.0.0.1"),
            ("192.168.1.1", "192.168.1.1"),
            ("me.org", "192.88.100.2"),
        ];
        let hosts = hosts.map(|(host, texts)| ResolvedHost {
            host: host.to_owned(),
            addresses: texts
                .split_whitespace()
                .map(|text| text.parse().expect("an address"))
                .collect(),
        });
        let is_harmless = |address: &IpAddr| {
            address.to_string().starts_with("192.88.") || address.to_string() == "10.0.0.7"
        };
        let own = ["ME.org".to_owned()];
        let found = plan(&hosts, "10.0.0.5", &own, is_harmless);
        assert_eq!(
            found.counting,
            ["10.0.0.5", "se.other.org", "allowed.other.org"]
        );
        assert_eq!(
            found.left_out,
            [
                "inside.other.org",
                "both.other.org",
                "nowhere.other.org",
                "localhost",
                "192.168.1.1",
                "me.org"
            ]
        );
    }
}
