//! What this site tells others of itself: made of its configuration and its host certificate.

use crate::site::config::Config;
use crate::site::directory::SiteDirectory;
use openssl::x509::X509;
use penstock_protocol::pki::ForeignAuthority;
use penstock_protocol::site_document::{DescribedIssuer, SiteDocument, StoragePorts, TransferPort};
use penstock_protocol::tls::authority_of;
use penstock_protocol::token::key_fingerprints;
use serde_json::Value;

/// What a site tells, with the keys that its issuer publishes. What cannot be found out is left out: `penstock check` says why.
pub fn of(site: &SiteDirectory, config: &Config, jwks: Option<&Value>) -> SiteDocument {
    let certificates = host_certificates(site, config);
    let authority = authority(site, config, &certificates);
    let authority = authority.and_then(|authority| authority.pem().ok());
    SiteDocument {
        authorities: authority.into_iter().collect(),
        ..of_configuration(config, jwks)
    }
}

/// The part of it that stands in the configuration.
pub fn of_configuration(config: &Config, jwks: Option<&Value>) -> SiteDocument {
    let issuer = config.issuer.as_ref();
    let storage = config.storage.as_ref();
    SiteDocument {
        storage: storage.map(|role| StoragePorts {
            port: role.listen.port(),
            plain_port: role.plain_listen.map(|plain| plain.port()),
        }),
        transfer: config.transfer.as_ref().map(|role| TransferPort {
            port: role.listen.port(),
        }),
        issuer: issuer.map(|issuer| DescribedIssuer {
            url: issuer.url.clone(),
            key_fingerprints: jwks.map(key_fingerprints).unwrap_or_default(),
        }),
        ..SiteDocument::new(&config.site.name, &config.site.hosts)
    }
}

fn host_certificates(site: &SiteDirectory, config: &Config) -> Vec<X509> {
    let pem = std::fs::read(site.resolve(&config.tls.certificate));
    let read = pem.ok().and_then(|pem| X509::stack_from_pem(&pem).ok());
    read.unwrap_or_default()
}

/// By which others can believe the host certificate, if it is one that this site trusts itself.
fn authority(
    site: &SiteDirectory,
    config: &Config,
    certificates: &[X509],
) -> Option<ForeignAuthority> {
    let host = config.site.hosts.first()?;
    let trusted = site.resolve(&config.trust.certificates);
    authority_of(certificates, &trusted, host).ok().flatten()
}
