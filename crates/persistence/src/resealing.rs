//! Sealing anew, with the newest key, what older keys had sealed: some rows at a time, so that nobody waits for it; and
//! which keys something is still sealed with.

use crate::postgres::{Database, DatabaseError};
use crate::sealing::{SealingKeys, SecretKind, key_name_of};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Rows that are looked at in one transaction.
pub(crate) const ROWS: usize = 500;

/// A column of sealed secrets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SealedColumn {
    pub(crate) table: &'static str,
    /// Under which the secret is stored, and to which it is bound.
    pub(crate) id: &'static str,
    pub(crate) secret: &'static str,
    pub(crate) kind: SecretKind,
}

/// Tokens of the journal.
pub(crate) const TOKENS: SealedColumn = SealedColumn {
    table: "sealed_credential",
    id: "credential_id",
    secret: "sealed",
    kind: SecretKind::Token,
};
/// With which newer ones are got.
pub(crate) const REFRESH_TOKENS: SealedColumn = SealedColumn {
    table: "token_renewal",
    id: "credential_id",
    secret: "sealed_refresh",
    kind: SecretKind::RefreshToken,
};
/// All that a journal holds.
pub(crate) const OF_JOURNAL: [SealedColumn; 2] = [TOKENS, REFRESH_TOKENS];
/// Keys of requests that wait for their proxy.
pub(crate) const REQUEST_KEYS: SealedColumn = SealedColumn {
    table: "request",
    id: "delegation_id",
    secret: "sealed_key",
    kind: SecretKind::RequestKey,
};
/// Delegated proxies.
pub(crate) const PROXIES: SealedColumn = SealedColumn {
    table: "delegation",
    id: "delegation_id",
    secret: "sealed_proxy",
    kind: SecretKind::Proxy,
};

/// Keys of cloud storages.
pub(crate) const CLOUD_KEYS: SealedColumn = SealedColumn {
    table: "cloud_key",
    id: "secret_id",
    secret: "sealed_key",
    kind: SecretKind::CloudKey,
};

/// How far a pass over one place has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) after: String,
    /// Every row was looked at.
    pub(crate) is_done: bool,
    /// Rows whose key is not there.
    pub(crate) unreadable: usize,
}

impl Pass {
    /// Looks at some more rows. The caller makes it a transaction.
    pub(crate) fn advance(
        &mut self,
        connection: &Connection,
        keys: &SealingKeys,
        place: SealedColumn,
    ) -> rusqlite::Result<()> {
        let SealedColumn {
            table, id, secret, ..
        } = place;
        let mut select = connection.prepare_cached(&format!(
            "SELECT {id}, {secret} FROM {table} WHERE {id} > ?1 AND {secret} IS NOT NULL ORDER BY {id} LIMIT ?2"
        ))?;
        let rows = select.query_map(params![self.after, ROWS], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
        })?;
        let rows: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
        let mut update = connection
            .prepare_cached(&format!("UPDATE {table} SET {secret} = ?2 WHERE {id} = ?1"))?;
        let mut unreadable = 0;
        for (id, sealed) in rows.iter().filter(|(_, sealed)| keys.is_stale(sealed)) {
            let Ok(opened) = keys.open(place.kind, id, sealed) else {
                unreadable += 1;
                continue;
            };
            let sealed = keys
                .seal(place.kind, id, &opened)
                .map_err(|why| rusqlite::Error::ToSqlConversionFailure(Box::new(why)))?;
            update.execute(params![id, sealed])?;
        }
        self.unreadable += unreadable;
        match rows.last() {
            Some((last, _)) if rows.len() == ROWS => self.after.clone_from(last),
            Some(_) | None => self.is_done = true,
        }
        Ok(())
    }
}

/// How many secrets each key has sealed that a journal and a store of delegations hold, by the key's name. Reads only;
/// databases that are not there hold none.
///
/// Errors: a database cannot be read.
pub fn keys_in_use(journal: &Path, delegations: &Path) -> rusqlite::Result<BTreeMap<String, u64>> {
    let mut used = BTreeMap::new();
    for (path, places) in [
        (journal, OF_JOURNAL.as_slice()),
        (delegations, [REQUEST_KEYS, PROXIES, CLOUD_KEYS].as_slice()),
    ] {
        if !path.exists() {
            continue;
        }
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        for place in places {
            count(&connection, *place, &mut used)?;
        }
    }
    Ok(used)
}

/// The same of PostgreSQL.
///
/// Errors: it cannot be read.
pub fn keys_in_use_of(database: &Database) -> Result<BTreeMap<String, u64>, DatabaseError> {
    crate::postgres::resealing::keys_in_use(
        database,
        &[TOKENS, REFRESH_TOKENS, REQUEST_KEYS, PROXIES, CLOUD_KEYS],
    )
}

fn count(
    connection: &Connection,
    place: SealedColumn,
    used: &mut BTreeMap<String, u64>,
) -> rusqlite::Result<()> {
    let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
    let known = connection
        .query_row(sql, [place.table], |_| Ok(()))
        .optional()?;
    // A site that has not been started since secrets are sealed has none.
    if known.is_none() {
        return Ok(());
    }
    let mut select = connection.prepare(&format!(
        "SELECT {secret} FROM {table} WHERE {secret} IS NOT NULL",
        secret = place.secret,
        table = place.table
    ))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let sealed: Vec<u8> = row.get(0)?;
        *used
            .entry(key_name_of(&sealed).unwrap_or_default())
            .or_default() += 1;
    }
    Ok(())
}
