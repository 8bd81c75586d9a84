//! The links in memory, and in a database of SQLite that holds the same.

use super::secret::{SealedGrant, SecretDigest};
use super::{AccessLink, AccessLinkError, AccessLinkId, AccessLinkKind, LinkState, failed};
use crate::writing::{settle_log, waits_for_its_turn};
use openssl::error::ErrorStack;
use openssl::rand::rand_bytes;
use penstock_model::Timestamp;
use penstock_model::text::hex;
use rusqlite::{Connection, Row, params};
use std::collections::HashMap;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

const SCHEMA_VERSION: u32 = 1;
const SCHEMA: &str = "CREATE TABLE access_link (
        id              TEXT PRIMARY KEY,
        kind            TEXT NOT NULL,
        secret_digest   BLOB NOT NULL UNIQUE,
        sealed_grant    BLOB NOT NULL,
        owner           TEXT NOT NULL,
        user            TEXT NOT NULL,
        opens           TEXT NOT NULL,
        access          TEXT NOT NULL,
        created_ms      INTEGER NOT NULL,
        expires_ms      INTEGER NOT NULL,
        first_used_ms   INTEGER,
        last_used_ms    INTEGER,
        used_up_ms      INTEGER,
        revoked_ms      INTEGER,
        revoked_by      TEXT
    ) WITHOUT ROWID;";

/// The end of a link in SQL: the same as [`AccessLink::ends`].
const ENDED: &str =
    "min(expires_ms, ifnull(used_up_ms, expires_ms), ifnull(revoked_ms, expires_ms)) < ?1";

/// How many links somebody has.
#[derive(Debug, Default)]
pub(super) struct OwnedLinks {
    pub(super) kept: usize,
    /// Of these, those that still open something.
    pub(super) valid: usize,
}

/// The links in memory.
#[derive(Debug, Default)]
pub(super) struct Rows {
    by_digest: HashMap<SecretDigest, (AccessLink, SealedGrant)>,
    digests: HashMap<AccessLinkId, SecretDigest>,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.by_digest.len()
    }

    pub(super) fn find(&self, digest: &SecretDigest) -> Option<(AccessLink, SealedGrant)> {
        self.by_digest.get(digest).cloned()
    }

    pub(super) fn by_id(&self, id: &AccessLinkId) -> Option<(SecretDigest, AccessLink)> {
        let digest = self.digests.get(id)?;
        let (link, _) = self.by_digest.get(digest)?;
        Some((*digest, link.clone()))
    }

    pub(super) fn links(&self) -> impl Iterator<Item = AccessLink> {
        self.by_digest.values().map(|(link, _)| link.clone())
    }

    pub(super) fn put(&mut self, digest: SecretDigest, link: AccessLink, sealed: SealedGrant) {
        self.digests.insert(link.id.clone(), digest);
        self.by_digest.insert(digest, (link, sealed));
    }

    pub(super) fn replace(&mut self, digest: &SecretDigest, link: AccessLink) {
        if let Some((known, _)) = self.by_digest.get_mut(digest) {
            *known = link;
        }
    }

    /// How many links somebody has.
    pub(super) fn owned(&self, owner: &str, now: Timestamp) -> OwnedLinks {
        let links = self.by_digest.values().map(|(link, _)| link);
        let mut owned = OwnedLinks::default();
        for link in links.filter(|link| link.owner == owner) {
            owned.kept += 1;
            owned.valid += usize::from(link.end(now).is_none());
        }
        owned
    }

    /// An id that no link has.
    pub(super) fn unused_id(&self) -> Result<String, ErrorStack> {
        loop {
            let mut bytes = [0; 6];
            rand_bytes(&mut bytes)?;
            let id = hex(&bytes);
            if !self.digests.contains_key(&AccessLinkId(id.clone())) {
                return Ok(id);
            }
        }
    }

    pub(super) fn has_ended_before(&self, before: Timestamp) -> bool {
        self.by_digest
            .values()
            .any(|(link, _)| link.ends() < before)
    }

    pub(super) fn forget(&mut self, before: Timestamp) {
        self.by_digest.retain(|_, (link, _)| link.ends() >= before);
        let known = &self.by_digest;
        self.digests.retain(|_, digest| known.contains_key(digest));
    }
}

/// The links in the database.
#[derive(Debug)]
pub(super) struct Table(Connection);

impl Table {
    pub(super) fn open(path: &Path) -> Result<Table, AccessLinkError> {
        let failed = |source| failed(path, source);
        // SQLite would create it with the process's umask.
        let created = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path);
        created.map_err(|why| failed(rusqlite::Error::ToSqlConversionFailure(Box::new(why))))?;
        let mut connection = Connection::open(path).map_err(failed)?;
        configure(&mut connection).map_err(failed)?;
        let found = connection.pragma_query_value(None, "user_version", |row| row.get(0));
        let found: u32 = found.map_err(failed)?;
        if found > SCHEMA_VERSION {
            let path = path.display().to_string();
            return Err(AccessLinkError::TooNew { path, found });
        }
        if found == 0 {
            make_table(&mut connection).map_err(failed)?;
        }
        Ok(Table(connection))
    }

    pub(super) fn load(&self) -> rusqlite::Result<Rows> {
        let mut rows = Rows::default();
        let mut all = self.0.prepare("SELECT * FROM access_link")?;
        let mut found = all.query([])?;
        while let Some(row) = found.next()? {
            let digest: [u8; 32] = row.get("secret_digest")?;
            let sealed = SealedGrant(row.get("sealed_grant")?);
            // A kind that this version does not know opens nothing here.
            if let Some(link) = link_of(row)? {
                rows.put(SecretDigest(digest), link, sealed);
            }
        }
        Ok(rows)
    }

    pub(super) fn insert(
        &mut self,
        link: &AccessLink,
        digest: &SecretDigest,
        sealed: &SealedGrant,
    ) -> rusqlite::Result<()> {
        let sql = "INSERT INTO access_link (id, kind, secret_digest, sealed_grant, owner, user, opens, access, created_ms, \
                   expires_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        let values = params![
            link.id.0,
            link.kind.name(),
            digest.0,
            sealed.0,
            link.owner,
            link.user,
            link.opens,
            link.access,
            link.created.0,
            link.expires.0,
        ];
        self.0.execute(sql, values).map(drop)
    }

    /// Writes what can change of a link.
    pub(super) fn update(&mut self, link: &AccessLink) -> rusqlite::Result<()> {
        let (used_up, revoked, by) = match &link.state {
            LinkState::Valid => (None, None, None),
            LinkState::Used { at } => (Some(at.0), None, None),
            LinkState::Revoked { at, by } => (None, Some(at.0), Some(by)),
        };
        let sql = "UPDATE access_link SET first_used_ms = ?2, last_used_ms = ?3, used_up_ms = ?4, revoked_ms = ?5, \
                   revoked_by = ?6 WHERE id = ?1";
        let (first, last) = (
            link.first_used.map(|at| at.0),
            link.last_used.map(|at| at.0),
        );
        self.0
            .execute(sql, params![link.id.0, first, last, used_up, revoked, by])
            .map(drop)
    }

    /// Removes what ended before a time.
    pub(super) fn forget(&mut self, before: Timestamp) -> rusqlite::Result<()> {
        let sql = format!("DELETE FROM access_link WHERE {ENDED}");
        self.0.execute(&sql, [before.0]).map(drop)
    }
}

fn configure(connection: &mut Connection) -> rusqlite::Result<()> {
    waits_for_its_turn(connection);
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.busy_timeout(Duration::from_secs(10))?;
    settle_log(connection)
}

fn make_table(connection: &mut Connection) -> rusqlite::Result<()> {
    let step = connection.transaction()?;
    step.execute_batch(SCHEMA)?;
    step.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    step.commit()
}

fn link_of(row: &Row<'_>) -> rusqlite::Result<Option<AccessLink>> {
    let time =
        |name: &str| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(name)?.map(Timestamp));
    let kind: String = row.get("kind")?;
    let Some(kind) = AccessLinkKind::of_name(&kind) else {
        return Ok(None);
    };
    let state = match (time("revoked_ms")?, time("used_up_ms")?) {
        (Some(at), _) => LinkState::Revoked {
            at,
            by: row
                .get::<_, Option<String>>("revoked_by")?
                .unwrap_or_default(),
        },
        (None, Some(at)) => LinkState::Used { at },
        (None, None) => LinkState::Valid,
    };
    Ok(Some(AccessLink {
        id: AccessLinkId(row.get("id")?),
        kind,
        owner: row.get("owner")?,
        user: row.get("user")?,
        opens: row.get("opens")?,
        access: row.get("access")?,
        created: Timestamp(row.get("created_ms")?),
        expires: Timestamp(row.get("expires_ms")?),
        first_used: time("first_used_ms")?,
        last_used: time("last_used_ms")?,
        state,
    }))
}
