//! What is recorded of one site that this one trusts: what was meant, and what of it was there before.

use crate::args::{SiteName, SiteRights};
use crate::exit::CommandError;
use crate::site::acquaintance::Acquaintance;
use crate::site::config::ForeignIssuer;
use penstock_model::text::hex;
use penstock_model::{NamespacePath, Timestamp};
use penstock_protocol::pki::{ForeignAuthority, PkiError};
use penstock_protocol::site_document::canonical_host;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use url::Url;

/// Bytes of a file about one: authorities in PEM are most of it.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// The authority of a site's host certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedAuthority {
    /// SHA-256 of the certificate, hexadecimal.
    pub fingerprint: String,
    /// In slash form.
    pub subject: String,
    pub ends_at: Timestamp,
    pub pem: String,
}

impl TrustedAuthority {
    pub fn of(authority: &ForeignAuthority) -> Result<TrustedAuthority, PkiError> {
        Ok(TrustedAuthority {
            fingerprint: hex(&authority.fingerprint()),
            subject: authority.subject().to_owned(),
            ends_at: authority.ends(),
            pem: authority.pem()?,
        })
    }
}

/// What was there before by hand, and stays when the site is not trusted any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeforeTrust {
    pub issuer: bool,
    pub servers: BTreeSet<String>,
    pub private_addresses: BTreeSet<String>,
    /// By their fingerprints.
    pub authorities: BTreeSet<String>,
}

/// One site that is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedSite {
    /// Under which it is kept here.
    pub name: SiteName,
    /// What it calls itself.
    pub site_name: String,
    /// Where it tells of itself: a port of it, without a path.
    pub url: String,
    /// Since when.
    pub added_at: Timestamp,
    /// Put among the trusted ones for it: that of its host certificate. Empty: it was trusted already.
    pub authorities: Vec<TrustedAuthority>,
    /// By which its connection was certified when it was trusted. `None`: nobody has recorded it.
    #[serde(default)]
    pub certified_by: Option<TrustedAuthority>,
    /// Of the subject of its host certificate, for the signing policy of the authorities.
    pub host_subject: String,
    /// Its token issuer, when its tokens can do something here.
    pub issuer: Option<String>,
    /// Thumbprints of the issuer's keys as they were then.
    pub key_fingerprints: Vec<String>,
    pub rights: SiteRights,
    /// Below which directory its tokens can do that.
    pub prefix: Option<NamespacePath>,
    /// As members of which VO.
    pub vo: Option<String>,
    /// Where copies may go to and come from.
    pub servers: Vec<String>,
    /// Addresses of these that are not public.
    pub private_addresses: Vec<String>,
    pub before: BeforeTrust,
}

impl TrustedSite {
    /// What it needs in the configuration.
    pub fn acquaintance(&self) -> Acquaintance {
        let issuer = self.issuer.as_ref().map(|issuer| {
            let prefix = self.prefix.clone().unwrap_or_else(NamespacePath::root);
            let vo = self.vo.clone();
            ForeignIssuer::limited(issuer, prefix, vo, self.rights.rights())
        });
        Acquaintance {
            issuer,
            servers: self.servers.clone(),
            private_addresses: self.private_addresses.clone(),
        }
    }

    /// One of these must certify its connection. Empty: nobody knows which.
    pub fn certifiers(&self) -> &[TrustedAuthority] {
        match &self.certified_by {
            Some(recorded) => std::slice::from_ref(recorded),
            None => &self.authorities,
        }
    }

    /// Whether its connection may be certified by this authority.
    pub fn is_certified_by(&self, fingerprint: &str) -> bool {
        let mut certifiers = self.certifiers().iter();
        certifiers.any(|certifier| certifier.fingerprint == fingerprint)
    }

    pub fn has_authority(&self, fingerprint: &str) -> bool {
        let mut own = self.authorities.iter();
        own.any(|own| own.fingerprint == fingerprint)
    }

    /// The hosts of its servers.
    pub fn hosts(&self) -> BTreeSet<String> {
        let urls = self.servers.iter().map(|server| {
            let server = server.trim_start_matches("http://");
            Url::parse(&format!("https://{server}"))
        });
        let hosts = urls.filter_map(|url| canonical_host(url.ok()?.host_str()?));
        hosts.collect()
    }
}

/// What a site has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BroughtKind {
    Authority,
    Issuer,
    Server,
    PrivateAddress,
}

impl BroughtKind {
    /// For people.
    pub fn noun(self) -> &'static str {
        match self {
            BroughtKind::Authority => "the authority",
            BroughtKind::Issuer => "the token issuer",
            BroughtKind::Server => "the server",
            BroughtKind::PrivateAddress => "the address",
        }
    }

    /// As long as it is there somebody is believed.
    pub fn is_trust(self) -> bool {
        matches!(self, BroughtKind::Authority | BroughtKind::Issuer)
    }
}

/// Something of a site that stays when the site is not trusted any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StayingItem {
    pub kind: BroughtKind,
    /// As the configuration names it; of an authority the fingerprint.
    pub value: String,
    /// Other sites that need it. Empty: it was there before the site was trusted.
    pub needed_by: Vec<SiteName>,
}

/// Reads the file of one, which has its name.
pub fn read(path: &Path) -> Result<TrustedSite, CommandError> {
    let unusable = |why: &dyn fmt::Display| {
        CommandError::Configuration(format!(
            "{} is not readable: {why}; move it away to continue without it",
            path.display()
        ))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|why| unusable(&why))?;
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|why| unusable(&why))?;
    let site: TrustedSite = serde_json::from_str(&text).map_err(|why| unusable(&why))?;
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    match stem == Some(site.name.as_str()) {
        true => Ok(site),
        false => Err(unusable(&format_args!(
            "it describes the site '{}' but has another file name",
            site.name
        ))),
    }
}

/// Trouble with a certificate or the directory of trusted ones.
pub fn of_pki(why: PkiError) -> CommandError {
    match why {
        PkiError::File { path, why } => CommandError::local(path.display(), why),
        other => CommandError::Usage(other.to_string()),
    }
}

#[cfg(test)]
impl TrustedAuthority {
    pub fn example(byte: &str) -> TrustedAuthority {
        TrustedAuthority {
            fingerprint: byte.repeat(32),
            subject: "/CN=CA".to_owned(),
            ends_at: Timestamp(1),
            pem: String::new(),
        }
    }
}

#[cfg(test)]
impl TrustedSite {
    pub fn example(name: &str) -> TrustedSite {
        TrustedSite {
            name: name.parse().expect("a name"),
            site_name: name.to_owned(),
            url: format!("https://{name}:8443"),
            added_at: Timestamp(1),
            authorities: Vec::new(),
            certified_by: None,
            host_subject: String::new(),
            issuer: Some(format!("https://{name}:8443")),
            key_fingerprints: Vec::new(),
            rights: SiteRights::Read,
            prefix: Some(NamespacePath::root()),
            vo: Some(name.to_owned()),
            servers: vec![format!("{name}:8443")],
            private_addresses: vec!["10.0.0.1:8443".to_owned()],
            before: BeforeTrust::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_record_are_found_in_its_servers() {
        let servers = ["one:8443", "[2001:db8::1]:8443", "http://SE.example.org:80"];
        let known = TrustedSite {
            servers: servers.map(str::to_owned).to_vec(),
            ..TrustedSite::example("one")
        };
        let hosts: Vec<String> = known.hosts().into_iter().collect();
        assert_eq!(hosts, ["2001:db8::1", "one", "se.example.org"]);
    }

    #[test]
    fn a_record_of_an_earlier_version_names_its_certifiers_too() {
        let authority = TrustedAuthority::example("ab");
        let site = TrustedSite {
            authorities: vec![authority.clone()],
            ..TrustedSite::example("one")
        };
        let mut written = serde_json::to_value(&site).expect("plain data serialises");
        written
            .as_object_mut()
            .expect("an object")
            .remove("certified_by");
        let read: TrustedSite = serde_json::from_value(written).expect("readable");
        assert_eq!(read.certifiers(), [authority]);
        let seen = TrustedSite {
            certified_by: Some(TrustedAuthority::example("cd")),
            ..read
        };
        assert_eq!(seen.certifiers(), [TrustedAuthority::example("cd")]);
        assert_eq!(TrustedSite::example("one").certifiers(), []);
    }
}
