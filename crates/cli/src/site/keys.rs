//! The files of a site's signing keys. Rotating one costs no outage: the new key is known before it is used, the old one as
//! long as something made with it still counts.

use crate::exit::CommandError;
use crate::site::config::Issuer;
use crate::site::directory::SiteDirectory;
use penstock_clock::timestamp;
use penstock_clock::wall_clock;
use penstock_durable_file::replace_private;
use penstock_model::Timestamp;
use penstock_protocol::pki;
use penstock_protocol::token::{KeyRing, RingKey, SIGNS_AFTER, SIGNS_SOON, Signer};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Ends of tokens are recorded by the day, so that most signatures write nothing.
const DAY_MS: i64 = 86_400_000;

/// The files of a site's signing keys: private keys, and beside the configured one a list of them all.
pub struct RingFiles {
    configured: PathBuf,
    /// How long tokens of the site may live: what is made for longer keeps no key.
    life_max: Duration,
}

impl RingFiles {
    /// Of the site's own issuer.
    pub fn of(site: &SiteDirectory, issuer: &Issuer) -> RingFiles {
        RingFiles {
            configured: site.resolve(&issuer.signing_key),
            life_max: issuer.token_life_max.0,
        }
    }

    /// The list: `keys/token-signing.json` beside `keys/token-signing.pem`.
    pub fn list(&self) -> PathBuf {
        self.configured.with_extension("json")
    }

    /// Where a key is.
    pub fn path(&self, key: &RingKey) -> PathBuf {
        self.configured.with_file_name(&key.file)
    }

    /// The ring; of a site without a list, that of its one key.
    pub fn load(&self) -> Result<KeyRing, CommandError> {
        let list = self.list();
        match std::fs::read_to_string(&list) {
            Ok(text) => {
                let mut ring = KeyRing::parse(&text).map_err(|why| {
                    CommandError::Usage(format!(
                        "{}: {why}; put the file back from a copy",
                        list.display()
                    ))
                })?;
                ring.bound(self.life_max);
                Ok(ring)
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                let made = std::fs::metadata(&self.configured).and_then(|found| found.modified());
                let made = made.map_or(Timestamp(0), timestamp);
                Ok(KeyRing::of(self.describe(
                    &self.configured,
                    made,
                    wall_clock() + self.life_max,
                )?))
            }
            Err(why) => Err(CommandError::local(list.display(), why)),
        }
    }

    /// Writes the list of a site that was just made.
    pub fn create(&self) -> Result<(), CommandError> {
        let now = wall_clock();
        self.save(&KeyRing::of(self.describe(&self.configured, now, now)?))
    }

    fn describe(
        &self,
        path: &Path,
        made: Timestamp,
        tokens_until: Timestamp,
    ) -> Result<RingKey, CommandError> {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        Ok(RingKey {
            kid: load_signer(path)?.kid().to_owned(),
            file: name.unwrap_or_default(),
            published: made,
            signs_from: made,
            tokens_until,
        })
    }

    fn save(&self, ring: &KeyRing) -> Result<(), CommandError> {
        let list = self.list();
        replace_private(&list, &ring.to_text())
            .map_err(|why| CommandError::local(list.display(), why))
    }

    /// Records that a key signed a token, when that is news.
    pub fn note_token(&self, kid: &str, ends: Timestamp) -> Result<(), CommandError> {
        let by_the_day = Timestamp((ends.0 / DAY_MS).saturating_add(1).saturating_mul(DAY_MS));
        let news = |ring: &mut KeyRing| {
            let known = ring.keys().iter().find(|key| key.kid == kid);
            known.is_some_and(|key| key.tokens_until < ends) && ring.note_token(kid, by_the_day)
        };
        if !self.list().exists() || !news(&mut self.load()?) {
            return Ok(());
        }
        let _lock = self.lock()?;
        let mut ring = self.load()?;
        match news(&mut ring) {
            true => self.save(&ring),
            false => Ok(()),
        }
    }

    /// So that two commands do not write at once. The kernel releases it however the process ends.
    fn lock(&self) -> Result<File, CommandError> {
        let path = self.configured.with_extension("lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let file = file.map_err(|why| CommandError::local(path.display(), why))?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|why| CommandError::local(path.display(), why))?;
        Ok(file)
    }

    /// Makes a key, or hastens one that is coming already, and removes what nothing needs any more.
    pub fn rotate(&self, at_once: bool) -> Result<KeyRing, CommandError> {
        let _lock = self.lock()?;
        let mut ring = self.load()?;
        let now = wall_clock();
        let from = now + if at_once { SIGNS_SOON } else { SIGNS_AFTER };
        if !(at_once && ring.hasten(now, from)) {
            let ended = ring.drop_ended(now);
            // The list goes first: a key that it names must have its file.
            self.save(&ring)?;
            for path in ended.iter().map(|key| self.path(key)) {
                std::fs::remove_file(&path)
                    .map_err(|why| CommandError::local(path.display(), why))?;
            }
            let path = self
                .configured
                .with_file_name(new_name(&self.configured, now));
            pki::create_signing_key(&path)
                .map_err(|why| CommandError::local("cannot create the token signing key", why))?;
            let key = RingKey {
                signs_from: from,
                ..self.describe(&path, now, now)?
            };
            if let Err(why) = ring.add(key, now) {
                let _ = std::fs::remove_file(&path);
                return Err(CommandError::Usage(why.to_string()));
            }
        }
        self.save(&ring)?;
        Ok(ring)
    }
}

/// Reads a private key.
pub fn load_signer(path: &Path) -> Result<Signer, CommandError> {
    Signer::load(path)
        .map_err(|why| CommandError::Usage(format!("{why}; put the file back from a copy")))
}

fn new_name(configured: &Path, now: Timestamp) -> String {
    let stem = configured.file_stem().unwrap_or_default().to_string_lossy();
    let digits: String = now.to_fts().chars().filter(char::is_ascii_digit).collect();
    format!("{stem}-{digits}-{:03}.pem", now.0.rem_euclid(1000))
}
