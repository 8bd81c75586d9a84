//! What is told of a trusted site, whichever command tells it.

use super::{AuthorityRow, utc, with_colons};
use crate::site::trusted_site::TrustedSite;
use serde::Serialize;

/// The facts of one site.
#[derive(Debug, Serialize)]
pub struct SiteFacts {
    pub name: String,
    /// What it calls itself.
    pub site_name: String,
    pub url: String,
    pub since: String,
    /// Put among the trusted ones for it. Empty: its authority was trusted already.
    pub authorities: Vec<AuthorityRow>,
    /// That certified its connection when it was trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certified_by: Option<AuthorityRow>,
    pub issuer: Option<String>,
    pub key_fingerprints: Vec<String>,
    pub rights: &'static str,
    pub prefix: Option<String>,
    pub vo: Option<String>,
    pub servers: Vec<String>,
    pub private_addresses: Vec<String>,
}

impl SiteFacts {
    pub fn of(site: &TrustedSite) -> SiteFacts {
        let keys = site.key_fingerprints.iter();
        SiteFacts {
            name: site.name.to_string(),
            site_name: site.site_name.clone(),
            url: site.url.clone(),
            since: utc(site.added_at),
            authorities: site.authorities.iter().map(AuthorityRow::of).collect(),
            certified_by: site.certified_by.as_ref().map(AuthorityRow::of),
            issuer: site.issuer.clone(),
            key_fingerprints: keys.map(|key| with_colons(key)).collect(),
            rights: site.rights.word(),
            prefix: site.prefix.as_ref().map(ToString::to_string),
            vo: site.vo.clone(),
            servers: site.servers.clone(),
            private_addresses: site.private_addresses.clone(),
        }
    }

    /// What its tokens can do.
    pub fn grant_line(&self) -> String {
        match (&self.prefix, &self.vo) {
            (Some(prefix), Some(vo)) => format!(
                "  tokens     its tokens allow '{}' below {prefix}, within their scopes, and submitting jobs here, as \
                 members of the VO {vo}\n",
                self.rights
            ),
            _ => "  tokens     its tokens allow nothing here\n".to_owned(),
        }
    }

    pub fn servers_line(&self) -> String {
        match self.servers.is_empty() {
            true => "  copies     it has no storage element\n".to_owned(),
            false => format!("  copies     to and from {}\n", self.servers.join(", ")),
        }
    }
}
