//! Where the site's own connections may go: what the lists of `penstock.toml` mean together.

use super::{Config, DatabasePlace};
use penstock_protocol::broker::Broker;
use penstock_protocol::hosts::{AllowedServers, HostPattern, ServerPattern};
use penstock_protocol::http1::client::ReachRules;
use penstock_protocol::network::{Network, NetworkPorts, Ports, why_not_public};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use url::Url;

/// Networks of addresses that are not public and hold fewer addresses than this are somebody's own choice of servers.
const WIDE_PREFIX_BITS_V4: u32 = 16;
const WIDE_PREFIX_BITS_V6: u32 = 48;
/// Where clouds tell machines their credentials, at a link-local address.
const METADATA_PORT: u16 = 80;

impl Config {
    /// Where third-party copies may go to or come from. What is no server was refused when the file was read.
    pub fn allowed_servers(&self) -> AllowedServers {
        let own = self.own_hosts();
        let listed = self.storage.iter().flat_map(|role| &role.outbound.allow);
        let listed = listed.filter_map(|text| ServerPattern::parse(text).ok());
        let allow = listed.flat_map(|entry| match entry.ports {
            Ports::Usual if own.contains(&entry.host) => self.own_doors(&entry),
            Ports::Usual => {
                let known = self.servers_of_issuers();
                let known = known.into_iter();
                let of_it = known.filter(|server| {
                    server.is_plain == entry.is_plain && entry.host.covers(&server.host)
                });
                let mut all: Vec<ServerPattern> = of_it.collect();
                all.push(entry);
                all
            }
            Ports::Any | Ports::Range { .. } => vec![entry],
        });
        AllowedServers {
            allow: allow.collect(),
            own,
        }
    }

    /// Where the services may be sent; `credentials_follow` is that of the service. What is no address or host was
    /// refused when the file was read.
    pub fn reach(&self, credentials_follow: &[String]) -> ReachRules {
        let private = self.trust.private_addresses.iter();
        let hosts = credentials_follow.iter();
        let doors = self.storage.iter().flat_map(|storage| {
            let plain = storage.plain_listen.map(|plain| plain.port());
            [Some(storage.listen.port()), plain]
        });
        let issuers = self.servers_of_issuers();
        let issuers = issuers.iter().filter_map(|server| match server.ports {
            Ports::Range { first, .. } => Some(first),
            Ports::Any | Ports::Usual => None,
        });
        ReachRules {
            private: private
                .filter_map(|text| NetworkPorts::parse(text))
                .collect(),
            known_ports: doors.flatten().chain(issuers).collect(),
            own_services: self.own_services(),
            credentials_follow: hosts
                .filter_map(|host| HostPattern::parse(host).ok())
                .collect(),
        }
    }

    /// Where the process listens for something else than files.
    fn own_services(&self) -> Vec<SocketAddr> {
        let service = self.transfer.iter();
        let ports = service.flat_map(|role| {
            let has_nodes = matches!(role.database, DatabasePlace::Postgres(_));
            [Some(role.listen), has_nodes.then(|| role.nodes_address())]
        });
        ports.flatten().collect()
    }

    /// The hosts that are this site.
    fn own_hosts(&self) -> Vec<HostPattern> {
        let doors = self.storage.iter().map(|storage| storage.listen.ip());
        let services = self.transfer.iter().map(|transfer| transfer.listen.ip());
        let listening = doors.chain(services).filter(|at| !at.is_unspecified());
        let listening = listening.map(|at: IpAddr| at.to_string());
        let names: BTreeSet<String> = self.site.hosts.iter().cloned().chain(listening).collect();
        let patterns = names
            .iter()
            .filter_map(|name| HostPattern::parse(name).ok());
        patterns.collect()
    }

    /// What an own host that is listed without a port means: the storage doors.
    fn own_doors(&self, entry: &ServerPattern) -> Vec<ServerPattern> {
        let doors = self
            .storage
            .iter()
            .flat_map(|storage| match entry.is_plain {
                true => storage.plain_listen,
                false => Some(storage.listen),
            });
        let door = |at: SocketAddr| ServerPattern {
            ports: Ports::one(at.port()),
            ..entry.clone()
        };
        doors.map(door).collect()
    }

    /// Other sites' issuers: those of sites like this one have the port of the storage door.
    fn servers_of_issuers(&self) -> Vec<ServerPattern> {
        let issuers = self.trust.issuers.iter();
        let urls = issuers.filter_map(|issuer| Url::parse(&issuer.issuer).ok());
        urls.filter_map(|url| ServerPattern::of(&url)).collect()
    }

    /// What cannot be right in these lists, each as one sentence that names the key.
    pub(super) fn outbound_problems(&self) -> Vec<String> {
        let allow = self.storage.iter().flat_map(|role| &role.outbound.allow);
        let allow = allow.filter_map(|text| {
            let why = ServerPattern::parse(text).err()?;
            Some(format!("storage.outbound.allow: {why}"))
        });
        let private = self.trust.private_addresses.iter();
        let private = private.filter(|text| NetworkPorts::parse(text).is_none());
        let private = private.map(|text| {
            format!(
                "trust.private_addresses: '{text}' is not an address or network, such as 10.0.0.0/8, 10.0.0.5:8443 or \
                 [fd00::/8]:8443"
            )
        });
        allow.chain(private).collect()
    }

    /// What lets others send the site where they should not, each as one sentence that says what an attacker could do.
    pub fn outbound_dangers(&self) -> Vec<String> {
        let allow = self.storage.iter().flat_map(|role| &role.outbound.allow);
        let own = self.own_hosts();
        let allow = allow.flat_map(|text| {
            let key = format!("storage.outbound.allow: '{text}'");
            let entry = ServerPattern::parse(text).ok();
            entry.map_or_else(Vec::new, |entry| allow_dangers(&key, &entry, &own))
        });
        let private = self.trust.private_addresses.iter().filter_map(|text| {
            let entry = NetworkPorts::parse(text)?;
            private_danger(&format!("trust.private_addresses: '{text}'"), &entry)
        });
        let monitors = self.observe.monitor_addresses.iter().filter_map(|text| {
            let network = Network::parse(text)?;
            let every = network.prefix_bits() == 0;
            every.then(|| {
                format!(
                    "observe.monitor_addresses: '{text}' means everybody, who can read the names of pools, files of keys \
                     and other sites in /metrics; list the addresses of your monitors"
                )
            })
        });
        let sinks = self.transfer.iter().flat_map(|role| &role.messages);
        let brokers = sinks.flat_map(|sink| {
            let with_password = sink.password_file.iter().flat_map(|_| &sink.brokers);
            let as_user = |url: &str| Broker::new(url, Some(Default::default()));
            let plain = with_password
                .filter(move |url| as_user(url).is_ok_and(|broker| broker.shows_password()));
            plain.map(move |url| {
                format!(
                    "transfer.messages '{}': {url} is without TLS, so anybody on the network path can read the password and what \
                     is told of transfers; write +tls",
                    sink.name
                )
            })
        });
        let dangers = allow.chain(private).chain(monitors);
        dangers.chain(brokers).collect()
    }
}

fn allow_dangers(key: &str, entry: &ServerPattern, own: &[HostPattern]) -> Vec<String> {
    let mut dangers = Vec::new();
    if let Some(domain) = entry.host.domain()
        && is_wide_domain(domain)
    {
        dangers.push(format!(
            "{key} means everybody who can get a name below {domain}, so users can send this site to servers that an \
             attacker has set up; name your partners' own domains"
        ));
    }
    if entry.ports == Ports::Any {
        dangers.push(format!(
            "{key} means every port, so users can reach whatever else runs on these hosts, such as administration \
             pages, from this site's address; name the ports of their storage doors"
        ));
    }
    if entry.ports == Ports::Usual && !own.contains(&entry.host) {
        dangers.push(format!(
            "{key} names no port and means all that storage elements usually have, so users can also reach other \
             services that run there on these ports; write it with the port of the storage door"
        ));
    }
    if entry.is_plain {
        dangers.push(format!(
            "{key} is without TLS, so anybody on the network path can read tokens and replace files; use https where the \
             server has it"
        ));
    }
    dangers
}

/// A top-level domain, or one like `ac.uk`.
fn is_wide_domain(domain: &str) -> bool {
    !domain.contains('.') || is_probably_shared(domain)
}

/// `ac.uk` and the like: two short parts, the last a country's.
pub fn is_probably_shared(domain: &str) -> bool {
    let parts: Vec<&str> = domain.split('.').collect();
    matches!(parts.as_slice(), [second, country] if second.len() <= 3 && country.len() == 2)
}

fn private_danger(key: &str, entry: &NetworkPorts) -> Option<String> {
    let network = entry.network;
    let is_v4 = network.address().is_ipv4();
    let wide = match is_v4 {
        true => WIDE_PREFIX_BITS_V4,
        false => WIDE_PREFIX_BITS_V6,
    };
    let advice = "list the storage elements that you use, with their ports";
    if network.prefix_bits() == 0 {
        return Some(format!(
            "{key} switches the rule off, so anybody who may submit a job can send this site to its own loopback addresses, \
             to metadata services and into private networks; {advice}"
        ));
    }
    if entry.ports == Ports::Any {
        return Some(format!(
            "{key} means every port there, so anybody who may submit a job can read from services that trust this machine's \
             network; {advice}"
        ));
    }
    let is_link_local = why_not_public(network.address()) == Some("a link-local address");
    if is_link_local && entry.ports.contain(METADATA_PORT) {
        return Some(format!(
            "{key} is link-local: in a cloud, anybody who may submit a job could read this machine's credentials from the \
             metadata service; {advice}"
        ));
    }
    (network.prefix_bits() < wide).then(|| {
        format!(
            "{key} is a wide network, so anybody who may submit a job can reach every server in it that has a port of storage \
             elements; {advice}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(hosts: &str, allow: &str, private: &str) -> Config {
        let text = format!(
            "[site]\nname = \"here\"\nhosts = {hosts}\n[trust]\nprivate_addresses = {private}\n\
             [[trust.issuer]]\nissuer = \"https://peer.org:19443\"\n\
             [transfer]\nlisten = \"127.0.0.2:8446\"\n[storage]\nlisten = \"127.0.0.2:18443\"\n\
             plain_listen = \"127.0.0.2:18444\"\n\
             [[storage.pool]]\nname = \"disk1\"\npath = \"pools/disk1\"\n[storage.outbound]\nallow = {allow}\n"
        );
        Config::parse(&text).expect(&text)
    }

    #[test]
    fn a_host_without_a_port_means_its_usual_ports_and_that_of_its_issuer_and_the_own_host_its_doors()
     {
        let servers = site(
            r#"["se.org"]"#,
            r#"["se.org", "http://se.org", "127.0.0.2", "peer.org", "*.wide.org"]"#,
            "[]",
        )
        .allowed_servers();
        for (url, expected) in [
            ("https://se.org:18443/f", true),
            ("http://se.org:18444/f", true),
            ("https://127.0.0.2:18443/f", true),
            ("https://se.org:8446/f", false),
            ("https://se.org:8447/f", false),
            ("https://se.org:8443/f", false),
            ("https://se.org/f", false),
            ("http://127.0.0.2:18444/f", false),
            ("https://peer.org:19443/f", true),
            ("https://peer.org:8443/f", true),
            ("https://peer.org:8446/f", false),
            ("http://peer.org:19443/f", false),
            ("https://a.wide.org:2880/f", true),
            ("https://a.wide.org:19443/f", false),
        ] {
            let judged = servers.judge(&Url::parse(url).expect("valid"));
            assert_eq!(judged.is_ok(), expected, "{url} {judged:?}");
        }
    }

    #[test]
    fn each_dangerous_entry_is_told_with_what_an_attacker_could_do() {
        let check = |allow: &str, private: &str, expected: &[&str]| {
            let config = site(r#"["se.org"]"#, allow, private);
            assert_eq!(config.outbound_problems(), [""; 0]);
            let told = config.outbound_dangers();
            assert_eq!(told.len(), expected.len(), "{told:?}");
            for (told, expected) in told.iter().zip(expected) {
                assert!(told.contains(expected), "{told}");
            }
        };
        check(
            r#"["se.org", "se.org:18443", "peer.org:8443", "*.peer.org:20000-25000"]"#,
            r#"["10.0.0.5:8443", "192.168.1.0/24"]"#,
            &[],
        );
        check(r#"["peer.org"]"#, "[]", &["names no port"]);
        check(r#"["*.org:8443"]"#, "[]", &["can get a name below org"]);
        check(r#"["*.ac.uk:8443"]"#, "[]", &["can get a name below ac.uk"]);
        check(r#"["peer.org:*"]"#, "[]", &["administration"]);
        check(
            r#"["http://peer.org:80"]"#,
            "[]",
            &["read tokens and replace files"],
        );
        for (private, expected) in [
            (r#"["0.0.0.0/0"]"#, "switches the rule off"),
            (r#"["::/0"]"#, "switches the rule off"),
            (r#"["127.0.0.0/8:*"]"#, "every port there"),
            (r#"["169.254.169.254:80"]"#, "metadata service"),
            (r#"["169.254.0.0/16"]"#, "metadata service"),
            (r#"["10.0.0.0/8"]"#, "a wide network"),
            (r#"["fd00::/8"]"#, "a wide network"),
        ] {
            check("[]", private, &[expected]);
        }
    }

    #[test]
    fn what_is_no_server_is_told_with_the_key() {
        let problems = site("[\"se.org\"]", r#"["se:8443/path"]"#, r#"["10.0.0.0/8:x"]"#);
        let problems = problems.problems();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("storage.outbound.allow: 'se:8443/path' is not a server"));
        assert!(
            problems[1].starts_with("trust.private_addresses: '10.0.0.0/8:x' is not an address")
        );
    }
}
