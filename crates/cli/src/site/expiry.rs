//! What of a site ends, and when: its host certificate, the authorities that it trusts and their revocation lists, its
//! signing keys. Read from the directory, for `penstock check`, the health report and the metrics alike.

use crate::site::config::Config;
use crate::site::directory::SiteDirectory;
use crate::site::keys::RingFiles;
use penstock_decide::expiry::{Ending, ExpiryState, KEY_AGE_MAX, days_left, standing};
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
    /// What it is.
    pub what: Ending,
    /// Its file.
    pub path: PathBuf,
    /// How it stands.
    pub standing: ExpiryState,
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
        what: Ending,
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
                    standing: ExpiryState::Over,
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
            (ExpiryState::Good, _) => None,
            (_, Ending::SigningKey) => Some(format!(
                "{shown} has signed tokens for more than {} days; {remedy}",
                KEY_AGE_MAX.as_secs() / 86_400
            )),
            (ExpiryState::Soon, _) => Some(format!(
                "{shown} expires in {days} day(s), at {told}; {remedy}"
            )),
            (ExpiryState::Over, _) => Some(format!("{shown} expired at {told}; {remedy}")),
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

fn remedy(what: Ending) -> &'static str {
    match what {
        Ending::HostCertificate => {
            "replace it by a new one; a running site takes it over by itself"
        }
        Ending::Authority => "install the CA's new certificate",
        Ending::RevocationList => {
            "fetch it again: when it is out of date the door is closed to all of that CA"
        }
        Ending::SigningKey => "penstock key rotate token",
    }
}

/// Everything of a site that ends, in a fixed order. Blocks on files.
pub fn of_site(site: &SiteDirectory, config: &Config, now: Timestamp) -> Vec<Expiry> {
    let host = site.resolve(&config.tls.certificate);
    let mut found = vec![Expiry::of(
        Ending::HostCertificate,
        &host,
        pki::life(&host),
        now,
    )];
    for (what, path) in trusted_files(&site.resolve(&config.trust.certificates)) {
        let life = match what {
            Ending::RevocationList => match pki::revocation_list_life(&path) {
                // Without an end it is good until it is replaced.
                Ok((_, None)) => continue,
                Ok((begins, Some(ends))) => Ok((begins, ends)),
                Err(why) => Err(why),
            },
            Ending::HostCertificate | Ending::Authority | Ending::SigningKey => pki::life(&path),
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
                Ending::SigningKey,
                &files.path(key),
                Ok(life),
                now,
            ));
        }
    }
    found
}

/// `<hash>.<n>` and `<hash>.r<n>` of a hashed directory.
fn trusted_files(directory: &Path) -> Vec<(Ending, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let kind = |path: PathBuf| {
        let ending = path.extension()?.to_str()?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        match ending.strip_prefix('r') {
            Some(number) if digits(number) => Some((Ending::RevocationList, path)),
            None if digits(ending) => Some((Ending::Authority, path)),
            Some(_) | None => None,
        }
    };
    let files = entries.filter_map(|entry| kind(entry.ok()?.path()));
    let mut files: Vec<_> = files.take(FILES_MAX).collect();
    files.sort();
    files
}
