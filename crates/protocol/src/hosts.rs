//! Hosts as configurations list them: by name, by address, or all below a domain.

use std::fmt;
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
#[error("'{0}' is no host; write a name, an address, or '*.domain' (no scheme, no port)")]
pub struct InvalidHostPattern(String);

impl HostPattern {
    /// Reads `se.example.org`, `127.0.0.3`, `::1` or `*.example.org`.
    pub fn parse(text: &str) -> Result<HostPattern, InvalidHostPattern> {
        let lower = text.trim().to_ascii_lowercase();
        let (host, below) = match lower.strip_prefix("*.") {
            Some(domain) => (domain, true),
            None => (lower.as_str(), false),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        let is_name = is_possible_name(host);
        if (is_address && !below) || is_name {
            Ok(HostPattern {
                host: host.to_owned(),
                below,
            })
        } else {
            Err(InvalidHostPattern(text.to_owned()))
        }
    }

    /// The URL's host is meant.
    pub fn matches(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else {
            return false;
        };
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_ascii_lowercase();
        let host = host.trim_end_matches('.');
        match self.below {
            false => host == self.host,
            true => host
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

#[cfg(test)]
mod tests {
    use super::*;

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
