//! What a site tells anybody of itself, so that others can be set up to exchange data with it: one document at a well-known
//! place of each of its ports with TLS, the same for everybody, made when the site starts or reloads.
//!
//! Nothing in it is believed because it is said. Whoever reads it takes each value as that of a stranger (`parse` bounds them
//! all), and a person compares the fingerprints of its authorities with those that the other site has told by another way.

use crate::hosts::HostPattern;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use url::Url;

/// Where it stands.
pub const WELL_KNOWN: &str = "/.well-known/penstock-site";
/// Bytes that are read of one.
pub const DOCUMENT_BYTES_MAX: u64 = 64 << 10;

/// The form that is described here. A later one that older programs would misread has another number.
const VERSION: u32 = 1;
const NAME_CHARS_MAX: usize = 64;
const HOSTS_MAX: usize = 16;
const AUTHORITIES_MAX: usize = 4;
const AUTHORITY_BYTES_MAX: usize = 16 << 10;
const URL_BYTES_MAX: usize = 512;
const KEYS_MAX: usize = 16;

/// A site by its own words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteDocument {
    /// Of this form.
    pub penstock_site: u32,
    /// For people.
    pub name: String,
    /// Names and addresses by which it is reached. The first stands in its URLs.
    pub hosts: Vec<String>,
    /// Its storage door.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StoragePorts>,
    /// Its transfer service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<TransferPort>,
    /// Its token issuer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<DescribedIssuer>,
    /// The authority of its host certificate, PEM. Empty where the site does not know it.
    #[serde(default)]
    pub authorities: Vec<String>,
}

/// The ports of a storage element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoragePorts {
    /// With TLS.
    pub port: u16,
    /// Without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_port: Option<u16>,
}

/// The port of a transfer service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferPort {
    pub port: u16,
}

/// A token issuer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedIssuer {
    /// As in the `iss` claim of its tokens.
    pub url: String,
    /// SHA-256 thumbprints (RFC 7638, hexadecimal) of the keys that it publishes.
    #[serde(default)]
    pub key_fingerprints: Vec<String>,
}

/// Why something is no such document.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidSiteDocument(String);

impl SiteDocument {
    /// One of the form that is described here, that says nothing more than who it is.
    pub fn new(name: &str, hosts: &[String]) -> SiteDocument {
        SiteDocument {
            penstock_site: VERSION,
            name: name.to_owned(),
            hosts: hosts.to_vec(),
            storage: None,
            transfer: None,
            issuer: None,
            authorities: Vec::new(),
        }
    }

    /// Reads one of a stranger. Hosts are in their canonical form afterwards.
    pub fn parse(bytes: &[u8]) -> Result<SiteDocument, InvalidSiteDocument> {
        let wrong = |why: String| InvalidSiteDocument(why);
        if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
            return Err(wrong(format!(
                "it has more than {DOCUMENT_BYTES_MAX} bytes"
            )));
        }
        let mut document: SiteDocument =
            serde_json::from_slice(bytes).map_err(|why| wrong(why.to_string()))?;
        match document.why_refused() {
            Some(why) => Err(wrong(why)),
            None => {
                let hosts = document.hosts.iter();
                let hosts = hosts.filter_map(|host| canonical_host(host));
                document.hosts = hosts.collect();
                Ok(document)
            }
        }
    }

    fn why_refused(&self) -> Option<String> {
        if self.penstock_site != VERSION {
            return Some(format!(
                "it has form {}, and this program knows form {VERSION}; use programs of one version at both sites",
                self.penstock_site
            ));
        }
        let is_plain = |text: &str| !text.chars().any(char::is_control);
        if self.name.is_empty()
            || self.name.chars().count() > NAME_CHARS_MAX
            || !is_plain(&self.name)
        {
            return Some("its name is empty, too long, or not text".to_owned());
        }
        if self.hosts.is_empty() || self.hosts.len() > HOSTS_MAX {
            return Some(format!("it has no host names, or more than {HOSTS_MAX}"));
        }
        if let Some(bad) = self
            .hosts
            .iter()
            .find(|host| canonical_host(host).is_none())
        {
            return Some(format!("{bad:?} is neither a host name nor an address"));
        }
        let storage = self.storage.iter();
        let ports = storage.flat_map(|ports| [Some(ports.port), ports.plain_port]);
        let ports = ports.chain([self.transfer.map(|transfer| transfer.port)]);
        if ports.flatten().any(|port| port == 0) {
            return Some("0 is no port".to_owned());
        }
        if self.authorities.len() > AUTHORITIES_MAX
            || self
                .authorities
                .iter()
                .any(|pem| pem.len() > AUTHORITY_BYTES_MAX)
        {
            return Some("its authorities are too many or too long".to_owned());
        }
        self.issuer
            .as_ref()
            .and_then(|issuer| self.why_issuer_refused(issuer))
    }

    /// The issuer must be at a host of the site: a site cannot introduce somebody else's.
    fn why_issuer_refused(&self, issuer: &DescribedIssuer) -> Option<String> {
        let is_fingerprint =
            |text: &String| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if issuer.key_fingerprints.len() > KEYS_MAX
            || !issuer.key_fingerprints.iter().all(is_fingerprint)
        {
            return Some("it has no fingerprints of its issuer's keys, or too many".to_owned());
        }
        let url = match Url::parse(&issuer.url) {
            Ok(url) if issuer.url.len() <= URL_BYTES_MAX => url,
            Ok(_) | Err(_) => return Some("the URL of its token issuer is none".to_owned()),
        };
        let has_more = url.query().is_some()
            || url.fragment().is_some()
            || !url.username().is_empty()
            || url.password().is_some();
        if url.scheme() != "https" || has_more {
            return Some(format!(
                "'{}' cannot be a token issuer: it must be an https:// URL of a host",
                issuer.url
            ));
        }
        let host = url.host_str().and_then(canonical_host);
        let own: Vec<_> = self.hosts.iter().map(|host| canonical_host(host)).collect();
        (!own.contains(&host) || host.is_none()).then(|| {
            format!(
                "its token issuer '{}' is not at one of its own hosts, and a site cannot introduce others; add it by hand",
                issuer.url
            )
        })
    }
}

/// A host in the one form that all its spellings have; `None`: it is none.
pub fn canonical_host(text: &str) -> Option<String> {
    let pattern = HostPattern::parse(text).ok()?;
    pattern.host().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn document() -> Value {
        json!({
            "penstock_site": 1,
            "name": "north",
            "hosts": ["SE.Example.org", "192.0.2.7"],
            "storage": {"port": 8443},
            "transfer": {"port": 8446},
            "issuer": {"url": "https://se.example.org:8443", "key_fingerprints": ["ab".repeat(32)]},
            "authorities": ["-----BEGIN CERTIFICATE-----"],
            "of a later version": true,
        })
    }

    fn told(change: impl Fn(&mut Value)) -> String {
        let mut changed = document();
        change(&mut changed);
        match SiteDocument::parse(changed.to_string().as_bytes()) {
            Ok(_) => "read".to_owned(),
            Err(why) => why.to_string(),
        }
    }

    #[test]
    fn a_document_reads_back_as_it_was_written() {
        let read = SiteDocument::parse(document().to_string().as_bytes()).expect("valid");
        assert_eq!(read.hosts, ["se.example.org", "192.0.2.7"]);
        let written = serde_json::to_vec(&read).expect("JSON");
        assert_eq!(SiteDocument::parse(&written), Ok(read));
    }

    #[test]
    fn what_a_stranger_says_is_bounded() {
        assert_eq!(told(|_| ()), "read");
        let check = |expected: &str, key: &str, value: Value| {
            let told = told(|document| document[key] = value.clone());
            assert!(told.contains(expected), "{key}: {told}");
        };
        check("form 2", "penstock_site", json!(2));
        check("its name", "name", json!(""));
        check("its name", "name", json!("a\u{1b}[2J"));
        check("its name", "name", json!("a".repeat(65)));
        check("no host", "hosts", json!([]));
        check("more than 16", "hosts", json!(vec!["a.org"; 17]));
        for host in [
            "*.example.org",
            "../x",
            "a b",
            "",
            "se.example.org:8443",
            "http://x",
        ] {
            check("neither a host name", "hosts", json!([host]));
        }
        check("0 is no port", "storage", json!({"port": 0}));
        check("invalid value", "transfer", json!({"port": 65536}));
        check("too many", "authorities", json!(["a", "b", "c", "d", "e"]));
        check("too long", "authorities", json!(["x".repeat(20_000)]));
        for url in [
            "http://se.example.org:8443",
            "https://u:p@se.example.org",
            "https://se.example.org/?x=y",
        ] {
            check("https:// URL", "issuer", json!({"url": url}));
        }
        check(
            "own hosts",
            "issuer",
            json!({"url": "https://iam.example.org"}),
        );
        let keys = json!({"url": "https://192.0.2.7", "key_fingerprints": ["x"]});
        check("fingerprints", "issuer", keys);
        let long = vec![b' '; 70_000];
        assert!(SiteDocument::parse(&long).is_err());
        assert!(SiteDocument::parse(b"[]").is_err());
    }
}
