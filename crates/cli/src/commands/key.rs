//! `penstock key`: the keys of a site in the course of time.
//!
//! A running `penstock serve` sees the files change; nobody needs to restart it.

use crate::args::{KeyCommand, KeyListArgs, KeyRotateArgs, RotatedKey};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::config::{DatabasePlace, Transfer};
use crate::site::directory::SiteDirectory;
use crate::site::keys::RingFiles;
use crate::site::store;
use penstock_clock::wall_clock;
use penstock_model::text::plural;
use penstock_persistence::resealing::{keys_in_use, keys_in_use_of};
use penstock_persistence::sealing::SealingKeys;
use penstock_protocol::macaroon::RootKeys;
use penstock_protocol::token::KeyState;
use serde::Serialize;
use std::collections::BTreeMap;

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
    let site = SiteDirectory::to_change(&args.dir)?;
    let config = site.config()?;
    let said = match args.key {
        RotatedKey::Token => {
            let issuer = config.issuer.as_ref().ok_or_else(|| {
                CommandError::Usage("the site has no [issuer], so it signs no tokens".into())
            })?;
            let ring = RingFiles::of(&site, issuer).rotate(args.now)?;
            let newest = ring.keys().last().expect("a ring has a key");
            format!(
                "key {} is published and will sign from {}Z; tokens of the old key stay valid until they expire",
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
                "the new root key is used for macaroons within seconds; older macaroons stay valid until they expire \
                 (removed {})",
                plural(removed as u64, "unused key")
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
                "the new key encrypts credentials within seconds, and the running service re-encrypts stored ones; \
                 older keys are kept while they are in use (removed {})",
                plural(removed as u64, "unused key")
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
    let failed = "cannot find out which keys are in use";
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
                KeyState::Coming => Some(format!("signs {}Z", key.signs_from.to_fts())),
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
