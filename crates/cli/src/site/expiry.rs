//! What of a site ends, and when: its host certificate, the authorities that it trusts and their revocation lists, its
//! signing keys. Read from the directory, for `penstock check`, the health report and the metrics alike.

use crate::site::config::Config;
use crate::site::directory::SiteDirectory;
use crate::site::keys::RingFiles;
use penstock_decide::credential_expiry::{
    CredentialValidity, ExpiringItem, KEY_AGE_MAX, days_left, standing,
};
use penstock_model::Timestamp;
use penstock_protocol::pki::{self, PkiError};
use penstock_protocol::token::KeyState;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Authorities and revocation lists that are looked at.
const FILES_MAX: usize = 2000;

/// One thing that ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Expiry {
    pub what: ExpiringItem,
    /// Its file.
    pub path: PathBuf,
    pub standing: CredentialValidity,
    /// When it ends, in UTC; `None` when the file cannot be used, or names no end.
    pub ends_at: Option<String>,
    /// Whole days until then; negative when it is over.
    pub days_left: Option<i64>,
    /// The same in milliseconds since 1970.
    #[serde(skip)]
    pub ends: Option<Timestamp>,
    /// What is wrong and what to do; `None` when nothing is.
    pub advice: Option<String>,
}

impl Expiry {
    fn of(
        what: ExpiringItem,
        path: &Path,
        life: Result<(Timestamp, Timestamp), PkiError>,
        now: Timestamp,
    ) -> Expiry {
        let (begins, ends) = match life {
            Ok(life) => life,
            Err(why) => {
                return Expiry {
                    what,
                    path: path.to_owned(),
                    standing: CredentialValidity::Over,
                    ends_at: None,
                    days_left: None,
                    ends: None,
                    advice: Some(why.to_string()),
                };
            }
        };
        let standing = standing(what, begins, ends, now);
        let days = days_left(ends, now);
        let told = format!("{}Z", ends.to_fts());
        let (shown, remedy) = (path.display(), remedy(what));
        let advice = match (standing, what) {
            (CredentialValidity::Good, _) => None,
            (_, ExpiringItem::SigningKey) => Some(format!(
                "{shown} has signed tokens for more than {} days; {remedy}",
                KEY_AGE_MAX.as_secs() / 86_400
            )),
            (CredentialValidity::Soon, _) => Some(format!(
                "{shown} expires at {told}, days left: {days}; {remedy}"
            )),
            (CredentialValidity::Over, _) => Some(format!("{shown} expired at {told}; {remedy}")),
        };
        Expiry {
            what,
            path: path.to_owned(),
            standing,
            ends_at: Some(told),
            days_left: Some(days),
            ends: Some(ends),
            advice,
        }
    }

    /// The file's name, as it stands in labels.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

fn remedy(what: ExpiringItem) -> &'static str {
    match what {
        ExpiringItem::HostCertificate => {
            "replace it with a new one; a running site loads it automatically"
        }
        ExpiringItem::Authority => "install the CA's new certificate",
        ExpiringItem::RevocationList => {
            "fetch a new one: with an expired list, all certificates of that CA are refused"
        }
        ExpiringItem::SigningKey => "penstock key rotate token",
    }
}

/// Everything of a site that ends, in a fixed order. Blocks on files.
pub fn of_site(site: &SiteDirectory, config: &Config, now: Timestamp) -> Vec<Expiry> {
    let host = site.resolve(&config.tls.certificate);
    let mut found = vec![Expiry::of(
        ExpiringItem::HostCertificate,
        &host,
        pki::life(&host),
        now,
    )];
    for (what, path) in trusted_files(&site.resolve(&config.trust.certificates)) {
        let life = match what {
            ExpiringItem::RevocationList => match pki::revocation_list_life(&path) {
                // Without an end it is good until it is replaced.
                Ok((_, None)) => continue,
                Ok((begins, Some(ends))) => Ok((begins, ends)),
                Err(why) => Err(why),
            },
            ExpiringItem::HostCertificate | ExpiringItem::Authority | ExpiringItem::SigningKey => {
                pki::life(&path)
            }
        };
        found.push(Expiry::of(what, &path, life, now));
    }
    if let Some(issuer) = &config.issuer {
        let files = RingFiles::of(site, issuer);
        let ring = files.load().ok();
        let states = ring.iter().flat_map(|ring| ring.states(now));
        for (key, _) in states.filter(|(_, state)| *state == KeyState::Signing) {
            let life = (key.signs_from, key.signs_from + KEY_AGE_MAX);
            found.push(Expiry::of(
                ExpiringItem::SigningKey,
                &files.path(key),
                Ok(life),
                now,
            ));
        }
    }
    found
}

/// `<hash>.<n>` and `<hash>.r<n>` of a hashed directory.
fn trusted_files(directory: &Path) -> Vec<(ExpiringItem, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let kind = |path: PathBuf| {
        let ending = path.extension()?.to_str()?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match ending.strip_prefix('r') {
            Some(number) if digits(number) => Some((ExpiringItem::RevocationList, path)),
            None if digits(ending) => Some((ExpiringItem::Authority, path)),
            Some(_) | None => None,
        }
    };
    let files = entries.filter_map(|entry| kind(entry.ok()?.path()));
    let mut files: Vec<_> = files.take(FILES_MAX).collect();
    files.sort();
    files
}
