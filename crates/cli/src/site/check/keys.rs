//! The keys and tokens of a site: keys that `penstock serve` can read and others cannot, tokens that are of little use to a
//! thief.

use super::Findings;
use crate::site::config::{Alerts, Config};
use crate::site::directory::SiteDirectory;
use crate::site::issuer::SiteIssuer;
use crate::site::keys::RingFiles;
use openssl::x509::X509;
use penstock_clock::wall_clock;
use penstock_model::quantity::Span;
use penstock_persistence::sealing::{SealingError, SealingKeys};
use penstock_protocol::macaroon::RootKeys;
use penstock_protocol::pki;
use penstock_protocol::tls::{ServerTls, why_refused};
use penstock_protocol::token::{ANY_AUDIENCE, contents};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A token that lives longer than this is worth a word.
const LONG_LIFE: Duration = Duration::from_secs(90 * 86_400);

/// Whether each key can be used. What does not exist and may be absent is no finding.
pub(super) fn check_contents(site: &SiteDirectory, config: &Config, findings: &mut Findings) {
    let signing = config.issuer.as_ref().and_then(|issuer| {
        let unusable = SiteIssuer::load(site, issuer).err()?;
        Some(unusable.to_string())
    });
    let macaroons = config.storage.as_ref().and_then(|role| {
        let unusable = RootKeys::load(&site.resolve(&role.macaroon_keys)).err()?;
        Some(format!(
            "{unusable}; put the file back from a copy, or make a new one, which ends all macaroons: \
             `openssl rand -hex 32 > FILE` with mode 600"
        ))
    });
    let credentials = config.transfer.as_ref().and_then(|role| {
        match SealingKeys::names(&site.resolve(&role.credential_keys)) {
            // Told with the other private files.
            Ok(_) | Err(SealingError::Open { .. }) => None,
            Err(unusable) => Some(format!(
                "{unusable}; put the file back from a copy, or move it away: the next start makes a new one, and users \
                 delegate again"
            )),
        }
    });
    for unusable in [signing, macaroons, credentials].into_iter().flatten() {
        findings.error(format!("{unusable}; `penstock serve` refuses it"));
    }
}

pub(super) fn check_certificate(site: &SiteDirectory, config: &Config, findings: &mut Findings) {
    let (certificate, key) = (
        site.resolve(&config.tls.certificate),
        site.resolve(&config.tls.key),
    );
    if let Err(why) = ServerTls::load(&certificate, &key) {
        findings.error(format!(
            "{why}; put a certificate (tls.certificate) and its key (tls.key) there, both PEM; `penstock serve` refuses it"
        ));
        return;
    }
    let chain = std::fs::read(&certificate)
        .ok()
        .and_then(|pem| X509::stack_from_pem(&pem).ok());
    let chain = chain.unwrap_or_default();
    let Some(own) = chain.first() else {
        return;
    };
    let trust = site.resolve(&config.trust.certificates);
    // What has ended is told as such.
    let is_valid =
        pki::life(&certificate).is_ok_and(|(begins, ends)| (begins..ends).contains(&wall_clock()));
    for host in &config.site.hosts {
        if !names(own, host) {
            findings.warning(format!(
                "{} does not name the host '{host}', so clients will refuse it under that name",
                certificate.display()
            ));
        } else if is_valid && let Ok(Some(why)) = why_refused(&chain, &trust, host) {
            findings.warning(format!(
                "{}: clients that trust the authorities of trust.certificates, this site's own among them, refuse it for \
                 the host '{host}': {why}",
                certificate.display()
            ));
        }
    }
}

fn names(certificate: &X509, host: &str) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    certificate.subject_alt_names().is_some_and(|names| {
        names
            .iter()
            .any(|name| match (address, name.ipaddress(), name.dnsname()) {
                (Some(IpAddr::V4(address)), Some(octets), _) => octets == address.octets(),
                (Some(IpAddr::V6(address)), Some(octets), _) => octets == address.octets(),
                (None, _, Some(dns)) => dns.eq_ignore_ascii_case(host),
                _ => false,
            })
    })
}

pub(super) fn check_private_files(site: &SiteDirectory, config: &Config, findings: &mut Findings) {
    let signing_keys = config.issuer.iter().flat_map(|issuer| {
        let files = RingFiles::of(site, issuer);
        let ring = files.load().ok();
        let keys = ring.iter().flat_map(|ring| ring.keys());
        keys.map(|key| files.path(key)).collect::<Vec<_>>()
    });
    let macaroon_keys = config
        .storage
        .as_ref()
        .map(|storage| site.resolve(&storage.macaroon_keys));
    let credential_keys = config
        .transfer
        .as_ref()
        .map(|transfer| site.resolve(&transfer.credential_keys));
    // A service does not start with these when others may read them.
    let refused = credential_keys
        .into_iter()
        .chain(database_password(site, config));
    refused.for_each(|path| {
        if let Some(why) = open_to_others(&path) {
            findings.error(format!("{why}; `penstock serve` refuses it"));
        }
    });
    let private = [
        Some(site.resolve(&config.tls.key)),
        macaroon_keys,
        Some(site.ca().join("ca.key")),
        Some(site.admin_token()),
    ];
    let sinks = config
        .transfer
        .iter()
        .flat_map(|transfer| &transfer.messages);
    let passwords = sinks.filter_map(|sink| Some(site.resolve(sink.password_file.as_ref()?)));
    let issuers = config.trust.issuers.iter();
    let secrets =
        issuers.filter_map(|issuer| Some(site.resolve(issuer.client_secret_file.as_ref()?)));
    let receivers = config.observe.secrets().map(|file| site.resolve(file));
    // Whoever knows the path of a receiver of alerts can post there.
    let addresses = config.observe.alerts.iter().flat_map(Alerts::receivers);
    let mut urls = addresses.map(|receiver| receiver.url);
    let holds_secret = urls.any(|url| url.path() != "/" || url.query().is_some());
    let own = holds_secret.then(|| site.config_file());
    private
        .into_iter()
        .flatten()
        .chain(signing_keys)
        .chain(passwords)
        .chain(secrets)
        .chain(receivers)
        .chain(own)
        .filter_map(|path| open_to_others(&path))
        .for_each(|why| findings.warning(why));
}

/// What is wrong with a file that others than its owner may read.
fn open_to_others(path: &Path) -> Option<String> {
    // What does not exist was removed on purpose, or is missed by the check of what needs it.
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let path = path.display();
    let why = format!("{path} can be read by others (mode {mode:03o}); chmod 600 {path}");
    (mode & 0o077 != 0).then_some(why)
}

fn database_password(site: &SiteDirectory, config: &Config) -> Option<PathBuf> {
    let file = config.transfer.as_ref()?.database_password_file.as_ref()?;
    Some(site.resolve(file))
}

/// Tokens that a thief could use for long, or far away.
pub(super) fn check_tokens(site: &SiteDirectory, config: &Config, findings: &mut Findings) {
    let path = site.admin_token();
    let owner = std::fs::read_to_string(&path).ok();
    if let Some(owner) = owner.as_deref().and_then(|text| contents(text.trim())) {
        let renew = format!(
            "make a new one: penstock token --admin --dir {}",
            site.root().display()
        );
        if owner.audience.iter().any(|name| name == ANY_AUDIENCE) {
            findings.warning(format!(
                "{} is for any service and so is refused here: each server that it was ever shown to could have written \
                 with it wherever this site's tokens count; {renew}",
                path.display()
            ));
        } else if owner.expires <= wall_clock() {
            findings.warning(format!(
                "{} expired at {}Z; {renew}",
                path.display(),
                owner.expires.to_fts()
            ));
        }
    }
    let own = config.issuer.iter();
    let own = own.map(|issuer| (issuer.url.as_str(), issuer.token_life_max.0));
    let foreign = config.trust.issuers.iter();
    let foreign = foreign.map(|issuer| (issuer.issuer.as_str(), issuer.token_life_max.0));
    for (issuer, life_max) in own.chain(foreign).filter(|(_, life)| *life > LONG_LIFE) {
        findings.warning(format!(
            "token_life_max of issuer {issuer} is {}: a stolen token stays valid for that long",
            Span(life_max)
        ));
    }
    let transfer = config.transfer.iter();
    for host in transfer.flat_map(|transfer| &transfer.tokens_unencrypted) {
        findings.warning(format!(
            "transfer.tokens_unencrypted: anybody who can read the traffic to {host} can steal and use users' tokens"
        ));
    }
}
