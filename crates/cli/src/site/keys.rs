//! `penstock key`: the keys of a site in the course of time. Rotating one costs no outage: the new key is known before
//! it is used, the old one as long as something made with it still counts.
//!
//! A running `penstock serve` sees the files change; nobody needs to restart it.

use crate::args::{KeyCommand, KeyListArgs, KeyRotateArgs, RotatedKey};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::config::{DatabasePlace, Issuer, Transfer};
use crate::site::directory::SiteDirectory;
use crate::site::store;
use penstock_clock::timestamp;
use penstock_clock::wall_clock;
use penstock_model::Timestamp;
use penstock_persistence::resealing::{keys_in_use, keys_in_use_of};
use penstock_persistence::sealing::SealingKeys;
use penstock_protocol::macaroon::RootKeys;
use penstock_protocol::pki;
use penstock_protocol::token::{KeyRing, RingKey, SIGNS_AFTER, SIGNS_SOON, Signer};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
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
                let mut ring = KeyRing::parse(&text)
                    .map_err(|why| CommandError::Usage(format!("{}: {why}", list.display())))?;
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
        replace(&list, &ring.to_text()).map_err(|why| CommandError::local(list.display(), why))
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
    fn rotate(&self, at_once: bool) -> Result<KeyRing, CommandError> {
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
                .map_err(|why| CommandError::local("cannot make the token signing key", why))?;
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
    Signer::load(path).map_err(|why| CommandError::Usage(why.to_string()))
}

fn new_name(configured: &Path, now: Timestamp) -> String {
    let stem = configured.file_stem().unwrap_or_default().to_string_lossy();
    let digits: String = now.to_fts().chars().filter(char::is_ascii_digit).collect();
    format!("{stem}-{digits}-{:03}.pem", now.0.rem_euclid(1000))
}

/// In one step, readable by the owner only.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

/// One key as `penstock key list` tells it.
#[derive(Debug, Serialize)]
pub struct KeyRow {
    kind: &'static str,
    id: String,
    state: &'static str,
    /// Since when it is known; `None` for keys whose file does not tell.
    since: Option<String>,
    /// When it begins to sign, or its last token ends; of a credential key, how much it has sealed.
    until: Option<String>,
}

/// `penstock key`.
pub fn run(
    command: KeyCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    match command {
        KeyCommand::List(KeyListArgs { dir }) => {
            show(&SiteDirectory::at(&dir)?, environment, output, None)
        }
        KeyCommand::Rotate(args) => rotate(&args, environment, output),
    }
}

fn rotate(
    args: &KeyRotateArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let site = SiteDirectory::at(&args.dir)?;
    let config = site.config()?;
    let said = match args.key {
        RotatedKey::Token => {
            let issuer = config.issuer.as_ref().ok_or_else(|| {
                CommandError::Usage("the site has no [issuer], so it signs no tokens".into())
            })?;
            let ring = RingFiles::of(&site, issuer).rotate(args.now)?;
            let newest = ring.keys().last().expect("a ring has a key");
            format!(
                "the key {} is published and signs from {}Z on; tokens of the old key go on until they end",
                newest.kid,
                newest.signs_from.to_fts()
            )
        }
        RotatedKey::Macaroon => {
            let storage = config.storage.as_ref().ok_or_else(|| {
                CommandError::Usage("the site has no [storage], so it makes no macaroons".into())
            })?;
            let path = site.resolve(&storage.macaroon_keys);
            let removed = RootKeys::rotate(&path, wall_clock(), storage.macaroon_validity_max.0)
                .map_err(|why| CommandError::Usage(why.to_string()))?;
            format!(
                "a new root key makes macaroons within seconds; those of the old ones go on until they end \
                 ({removed} key(s) that nothing needed were removed)"
            )
        }
        RotatedKey::Credential => {
            let transfer = config.transfer.as_ref().ok_or_else(|| {
                CommandError::Usage(
                    "the site has no [transfer], so it stores no credentials".into(),
                )
            })?;
            let (path, used) = (
                site.resolve(&transfer.credential_keys),
                used(&site, transfer, environment)?,
            );
            let removed = SealingKeys::rotate(&path, wall_clock(), &used)
                .map_err(|why| CommandError::Usage(why.to_string()))?;
            format!(
                "a new key seals credentials within seconds, and what is stored is sealed anew by the running \
                 service; older keys stay until nothing needs them ({removed} removed)"
            )
        }
    };
    show(&site, environment, output, Some(&said))
}

/// How many stored secrets each key has sealed.
fn used(
    site: &SiteDirectory,
    transfer: &Transfer,
    environment: &Environment,
) -> Result<BTreeMap<String, u64>, CommandError> {
    let failed = "cannot find out which keys are needed";
    let pass_file = environment.database_passwords.as_deref();
    if let Some(database) = store::database(site, transfer, pass_file)? {
        return keys_in_use_of(&database).map_err(|why| CommandError::local(failed, why));
    }
    let DatabasePlace::File(journal) = &transfer.database else {
        return Ok(BTreeMap::new());
    };
    let (journal, delegations) = (site.resolve(journal), site.resolve(&transfer.delegations));
    keys_in_use(&journal, &delegations).map_err(|why| CommandError::local(failed, why))
}

fn show(
    site: &SiteDirectory,
    environment: &Environment,
    output: Output,
    said: Option<&str>,
) -> Result<(), CommandError> {
    let rows = rows(site, environment)?;
    output.show(&rows, || {
        let line = |row: &KeyRow| {
            let until = row.until.as_deref().unwrap_or("-");
            let since = row.since.as_deref().unwrap_or("-");
            format!(
                "{:10} {:9} since {since:20} {until:27} {}\n",
                row.kind, row.state, row.id
            )
        };
        let lines: String = rows.iter().map(line).collect();
        said.map_or_else(String::new, |said| format!("{said}\n")) + &lines
    });
    Ok(())
}

fn rows(site: &SiteDirectory, environment: &Environment) -> Result<Vec<KeyRow>, CommandError> {
    let config = site.config()?;
    let now = wall_clock();
    let mut rows = Vec::new();
    if let Some(issuer) = &config.issuer {
        let ring = RingFiles::of(site, issuer).load()?;
        rows.extend(ring.states(now).into_iter().map(|(key, state)| KeyRow {
            kind: "token",
            id: key.kid.clone(),
            state: state.name(),
            since: Some(format!("{}Z", key.published.to_fts())),
            until: match state {
                penstock_protocol::token::KeyState::Coming => {
                    Some(format!("signs {}Z", key.signs_from.to_fts()))
                }
                _ => Some(format!("until {}Z", key.tokens_until.to_fts())),
            },
        }));
    }
    if let Some(storage) = &config.storage {
        let path = site.resolve(&storage.macaroon_keys);
        let keys = RootKeys::load(&path).map_err(|why| CommandError::Usage(why.to_string()))?;
        let names = keys.map(|keys| keys.names()).unwrap_or_default();
        rows.extend(names.into_iter().enumerate().map(|(at, id)| KeyRow {
            kind: "macaroon",
            id,
            state: if at == 0 { "signing" } else { "retired" },
            since: None,
            until: None,
        }));
    }
    if let Some(transfer) = &config.transfer {
        let path = site.resolve(&transfer.credential_keys);
        let names = SealingKeys::names(&path);
        let names = names.map_err(|why| CommandError::Usage(why.to_string()))?;
        let used = used(site, transfer, environment)?;
        rows.extend(names.into_iter().enumerate().map(|(at, id)| KeyRow {
            kind: "credential",
            state: if at == 0 { "sealing" } else { "retired" },
            since: None,
            until: used.get(&id).map(|count| format!("has sealed {count}")),
            id,
        }));
    }
    Ok(rows)
}
