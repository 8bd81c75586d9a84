//! Hosts as configurations list them: by name, by address, or all below a domain; and servers, which are hosts with
//! ports, with TLS unless `http://` stands before them.

use crate::network::Ports;
use std::fmt;
use std::net::IpAddr;
use thiserror::Error;
use url::Url;

/// A host name, an address, or `*.domain` for every host below a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    /// Lower case, without brackets, and without `*.` when `below` is set.
    host: String,
    /// The pattern was `*.host`.
    below: bool,
}

/// Why a text is no host pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{0}' is not a host; write a name, an address, or '*.domain' (no scheme, no port)")]
pub struct InvalidHostPattern(String);

impl HostPattern {
    /// Reads `se.example.org`, `127.0.0.3`, `::1` or `*.example.org`.
    pub fn parse(text: &str) -> Result<HostPattern, InvalidHostPattern> {
        let lower = text.trim().to_ascii_lowercase();
        let (host, below) = match lower.strip_prefix("*.") {
            Some(domain) => (domain, true),
            None => (lower.as_str(), false),
        };
        let host = canonical(host);
        // In its one form: a dot or a bracket too many leaves others, which nothing would match.
        let address = host.parse::<IpAddr>();
        let is_address = address.is_ok_and(|address| address.to_canonical().to_string() == host);
        if (is_address && !below) || is_possible_name(&host) {
            Ok(HostPattern { host, below })
        } else {
            Err(InvalidHostPattern(text.to_owned()))
        }
    }

    /// One host, as a URL names it.
    pub fn of(url: &Url) -> Option<HostPattern> {
        let host = canonical(&url.host_str()?.to_ascii_lowercase());
        Some(HostPattern { host, below: false })
    }

    /// The URL's host is meant.
    pub fn matches(&self, url: &Url) -> bool {
        HostPattern::of(url).is_some_and(|one| self.covers(&one))
    }

    /// Every host that the other one means is meant.
    pub fn covers(&self, other: &HostPattern) -> bool {
        match self.below {
            false => self == other,
            true if other.below && other.host == self.host => true,
            true => other
                .host
                .strip_suffix(&self.host)
                .is_some_and(|sub| sub.len() > 1 && sub.ends_with('.')),
        }
    }
}

impl HostPattern {
    /// The domain, when it means every host below one.
    pub fn domain(&self) -> Option<&str> {
        self.below.then_some(&*self.host)
    }

    /// The one host that is meant, when it is one.
    pub fn host(&self) -> Option<&str> {
        (!self.below).then_some(&*self.host)
    }
}

/// A name without its last dot; an address without brackets, in the one form that all its spellings have. An IPv4
/// address inside an IPv6 one is the IPv4 address.
fn canonical(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let host = bare.unwrap_or(host);
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => host.trim_end_matches('.').to_owned(),
    }
}

/// Whether a resolver could ever know a name (RFC 1123 §2.1: the last part of a name is no number, and what looks like
/// an address is one). Underscores are none of DNS's business and in use.
fn is_possible_name(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let is_number = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    let last = host.rsplit('.').next().unwrap_or_default();
    host.len() <= 253 && !is_number(last) && host.split('.').all(is_label)
}

impl fmt::Display for HostPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", if self.below { "*." } else { "" }, self.host)
    }
}

/// Servers of one or several hosts, as `storage.outbound.allow` lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerPattern {
    pub host: HostPattern,
    pub ports: Ports,
    /// `http://` stood before it: without TLS, and only so.
    pub is_plain: bool,
}

/// Why a text is no server pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "'{0}' is not a server; write 'se.example.org:8443', '[2001:db8::1]:8443', '*.example.org:20000-25000' or, without \
     TLS, 'http://se.example.org:8080'"
)]
pub struct InvalidServerPattern(String);

impl ServerPattern {
    /// Reads `se.example.org`, `se.example.org:8443`, `[::1]:8443`, `*.example.org:20000-25000`, `se.example.org:*`, each
    /// with `http://` before it when it is to be reached without TLS.
    pub fn parse(text: &str) -> Result<ServerPattern, InvalidServerPattern> {
        let invalid = || InvalidServerPattern(text.to_owned());
        let (is_plain, rest) = match text.trim().split_once("://") {
            None => (false, text.trim()),
            Some((scheme, rest)) => match scheme.to_ascii_lowercase().as_str() {
                "https" | "davs" => (false, rest),
                "http" | "dav" => (true, rest),
                _ => return Err(invalid()),
            },
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let is_bare_address = rest.parse::<IpAddr>().is_ok();
        let (host, ports) = match rest.rsplit_once(':') {
            Some((host, ports)) if !is_bare_address && !ports.ends_with(']') => {
                (host, Ports::parse(ports).ok_or_else(invalid)?)
            }
            Some(_) | None => (rest, Ports::Usual),
        };
        // What looks like an IPv6 address before a port must say where the address ends.
        if ports != Ports::Usual && host.contains(':') && !host.starts_with('[') {
            return Err(invalid());
        }
        Ok(ServerPattern {
            host: HostPattern::parse(host).map_err(|_| invalid())?,
            ports,
            is_plain,
        })
    }

    /// The one server that a URL leads to; `None` when it is none of HTTP.
    pub fn of(url: &Url) -> Option<ServerPattern> {
        let (is_plain, usual) = match url.scheme() {
            "https" | "davs" => (false, 443),
            "http" | "dav" => (true, 80),
            _ => return None,
        };
        Some(ServerPattern {
            host: HostPattern::of(url)?,
            ports: Ports::one(url.port().unwrap_or(usual)),
            is_plain,
        })
    }

    /// Every server that the other one means is meant.
    pub fn covers(&self, other: &ServerPattern) -> bool {
        self.is_plain == other.is_plain
            && self.host.covers(&other.host)
            && self.ports.cover(other.ports)
    }

    /// It names its hosts and ports itself, not as "all below" or "any".
    pub fn is_explicit(&self) -> bool {
        !self.host.below && self.ports != Ports::Any
    }
}

impl fmt::Display for ServerPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_plain {
            out.write_str("http://")?;
        }
        match (self.ports, self.host.host.contains(':')) {
            (Ports::Usual, _) => write!(out, "{}", self.host),
            (ports, true) => write!(out, "[{}]:{ports}", self.host),
            (ports, false) => write!(out, "{}:{ports}", self.host),
        }
    }
}

/// Where copies of a storage element may go to or come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedServers {
    /// What is listed.
    pub allow: Vec<ServerPattern>,
    /// The site's own hosts. There only ports that are listed for the host by name count, because beside the storage
    /// doors such a host has ports that are nobody's business: the transfer service, its nodes, and whatever else runs
    /// on the machine.
    pub own: Vec<HostPattern>,
}

/// How a server is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// By its own name and port: known as a storage element.
    Named,
    /// As one of many. What it answers is not shown to clients, because it may be anything.
    OneOfMany,
}

/// How a door begins to refuse a copy from or to a server that its site does not connect to. Its clients tell by these
/// words whether another way may work.
pub const SERVER_NOT_ALLOWED: &str = "this site does not copy to or from";

/// Why a server is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ServerRefusal {
    #[error("{SERVER_NOT_ALLOWED} {server}; ask it to add \"{server}\" to storage.outbound.allow")]
    NotListed {
        /// As it would be listed.
        server: String,
    },
    /// It is a port of the site itself that is not listed by name.
    #[error(
        "{SERVER_NOT_ALLOWED} {server}: of its own ports only those of its storage doors are for copies"
    )]
    OwnPort {
        /// As it would be listed.
        server: String,
    },
}

impl AllowedServers {
    /// Whether a URL may be gone to.
    pub fn judge(&self, url: &Url) -> Result<Listing, ServerRefusal> {
        let server = ServerPattern::of(url).ok_or_else(|| ServerRefusal::NotListed {
            server: url.host_str().unwrap_or_default().to_owned(),
        })?;
        let is_own = self.own.contains(&server.host);
        let by_name = |entry: &ServerPattern| matches!(entry.ports, Ports::Range { .. });
        let counts = |entry: &&ServerPattern| {
            entry.covers(&server) && (!is_own || (entry.host == server.host && by_name(entry)))
        };
        let entries: Vec<&ServerPattern> = self.allow.iter().filter(counts).collect();
        match entries.as_slice() {
            [] if is_own => Err(ServerRefusal::OwnPort {
                server: server.to_string(),
            }),
            [] => Err(ServerRefusal::NotListed {
                server: server.to_string(),
            }),
            entries if entries.iter().any(|entry| entry.is_explicit()) => Ok(Listing::Named),
            _ => Ok(Listing::OneOfMany),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(allow: &[&str], own: &[&str]) -> AllowedServers {
        let server = |text: &&str| ServerPattern::parse(text).expect("valid");
        let host = |text: &&str| HostPattern::parse(text).expect("valid");
        AllowedServers {
            allow: allow.iter().map(server).collect(),
            own: own.iter().map(host).collect(),
        }
    }

    fn may(servers: &AllowedServers, url: &str) -> bool {
        servers.judge(&Url::parse(url).expect("valid")).is_ok()
    }

    #[test]
    fn a_host_that_nothing_would_match_is_none() {
        for text in [
            "[::0.",
            "::0.",
            "[::1",
            "::1]",
            "[[::1]]",
            "[se]x",
            "*.[::1]",
            "192.0.2.256",
        ] {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
        for (text, host) in [
            ("[::1]", "::1"),
            ("0::0:1", "::1"),
            ("127.0.0.1.", "127.0.0.1"),
            ("SE.", "se"),
        ] {
            let host = HostPattern::parse(host).expect("valid");
            assert_eq!(HostPattern::parse(text), Ok(host), "{text}");
        }
    }

    #[test]
    fn a_server_is_a_host_with_a_port_and_with_tls_unless_it_is_listed_without() {
        for (entry, url, expected) in [
            ("se:8443", "https://se:8443/f", true),
            ("se:8443", "davs://se:8443/f", true),
            ("se:8443", "https://se/f", false),
            ("se:443", "https://se/f", true),
            ("se:8443", "http://se:8443/f", false),
            ("http://se:8080", "http://se:8080/f", true),
            ("http://se:8080", "dav://se:8080/f", true),
            ("http://se:8080", "https://se:8080/f", false),
            ("https://se:8443", "https://se:8443/f", true),
            ("se", "https://se:2880/f", true),
            ("se", "https://se:9911/f", false),
            ("se", "https://se:8446/f", false),
            ("se", "http://se:80/f", false),
            ("http://se", "http://se/f", true),
            ("http://se", "http://se:22/f", false),
            ("*.se:20000-25000", "https://pool.se:20001/f", true),
            ("*.se:20000-25000", "https://pool.se:8443/f", false),
            ("se:*", "https://se:9911/f", true),
            ("[::1]:8443", "https://[::1]:8443/f", true),
            ("[::1]:8443", "https://[0:0::1]:8443/f", true),
            ("[::1]:8443", "https://[::1]:8444/f", false),
            ("::1", "https://[::1]:8443/f", true),
            ("[::1]", "https://[::1]:8443/f", true),
            ("192.0.2.1:8443", "https://[::ffff:192.0.2.1]:8443/f", true),
            ("[::ffff:192.0.2.1]:8443", "https://192.0.2.1:8443/f", true),
        ] {
            assert_eq!(may(&servers(&[entry], &[]), url), expected, "{entry} {url}");
        }
    }

    #[test]
    fn of_the_sites_own_host_only_ports_that_are_listed_by_its_name_count() {
        let open = servers(
            &["se", "*.org:*", "se:*", "*.org", "a.org:8443"],
            &["se", "a.org"],
        );
        for url in [
            "https://se:8443/f",
            "https://se:8446/f",
            "https://a.org:8446/metrics",
            "https://a.org.:8446/metrics",
        ] {
            let refused = open.judge(&Url::parse(url).expect("valid"));
            assert!(
                matches!(refused, Err(ServerRefusal::OwnPort { .. })),
                "{url}"
            );
        }
        assert!(may(&open, "https://a.org:8443/f"));
        assert!(may(&open, "https://b.org:8446/f"));
    }

    #[test]
    fn only_a_server_that_is_listed_by_itself_is_known_as_a_storage_element() {
        let all = servers(&["se:8443", "bare", "*.org", "any:*", "any:8443"], &[]);
        for (url, expected) in [
            ("https://se:8443/f", Listing::Named),
            ("https://bare/f", Listing::Named),
            ("https://x.org/f", Listing::OneOfMany),
            ("https://any:1/f", Listing::OneOfMany),
            ("https://any:8443/f", Listing::Named),
        ] {
            let url = Url::parse(url).expect("valid");
            assert_eq!(all.judge(&url), Ok(expected), "{url}");
        }
        let refused = all.judge(&Url::parse("http://[::1]:9911/admin").expect("valid"));
        let text = refused.expect_err("not listed").to_string();
        assert!(text.contains("add \"http://[::1]:9911\" to"), "{text}");
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for bad in [
            "",
            "*",
            ":8443",
            "se:",
            "se:0",
            "se:65536",
            "se:9-8",
            "se:+8443",
            "se: 8443",
            "se:8443/path",
            "ftp://se",
            "https://",
            "fe80::1%lo",
            "[fe80::1%lo]:8443",
            "user@se:8443",
            "[::1",
            "se:https",
            "http://*:80",
            "1:2:8443",
        ] {
            assert!(ServerPattern::parse(bad).is_err(), "{bad}");
        }
        for good in [
            "se:8443",
            "http://se:8080",
            "[::1]:8443",
            "::1",
            "*.se.example.org:1-65535",
            "se:*",
        ] {
            let read = ServerPattern::parse(good).expect(good);
            assert_eq!(read.to_string(), good);
        }
    }

    fn check(pattern: &str, url: &str, expected: bool) {
        let pattern = HostPattern::parse(pattern).expect("valid pattern");
        let url = Url::parse(url).expect("valid URL");
        assert_eq!(pattern.matches(&url), expected, "{pattern} {url}");
    }

    #[test]
    fn a_domain_pattern_means_hosts_below_it_and_nothing_that_ends_alike() {
        check("*.example.org", "https://se.example.org:8443/f", true);
        check("*.example.org", "https://a.b.EXAMPLE.org/f", true);
        check("*.example.org", "https://example.org/f", false);
        check("*.example.org", "https://badexample.org/f", false);
        check("*.example.org", "https://example.org.evil.net/f", false);
    }

    #[test]
    fn names_and_addresses_match_whole() {
        check("127.0.0.3", "davs://127.0.0.3:8443/f", true);
        check("127.0.0.3", "https://127.0.0.30/f", false);
        check("::1", "https://[::1]:8443/f", true);
        check("se.example.org", "https://SE.example.org./f", true);
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for bad in [
            "",
            "*",
            "https://se",
            "se:8443",
            "*.",
            "a b",
            "*.127.0.0.1.x y",
            "256.1.1.1",
            "10.0.0",
            "*.0.0.1",
            "-se.example.org",
            "se-.example.org",
            "se..example.org",
        ] {
            assert!(HostPattern::parse(bad).is_err(), "{bad}");
        }
    }
}
