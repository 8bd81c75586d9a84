//! Write locks that survive a restart. Which of them forbid what is decided elsewhere; here they are rows.

use penstock_model::{Lock, LockReach, LockScope, LockToken, NamespacePath, Timestamp, UserName};
use rusqlite::{Connection, params};

pub(super) fn keep(connection: &Connection, lock: &Lock) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO lock VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?
        .execute(params![
            lock.token.to_string(),
            lock.root.to_string(),
            lock.reach == LockReach::Tree,
            lock.scope == LockScope::Exclusive,
            lock.user.as_str(),
            lock.owner,
            lock.expires.0,
            lock.macaroon,
        ])?;
    Ok(())
}

pub(super) fn drop_all(connection: &Connection, tokens: &[LockToken]) -> rusqlite::Result<()> {
    let mut delete = connection.prepare_cached("DELETE FROM lock WHERE token = ?1")?;
    for token in tokens {
        delete.execute([token.to_string()])?;
    }
    Ok(())
}

/// All locks. One that makes no sense is left out: what it locked is free, which its user is told.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<Vec<Lock>> {
    let mut query = connection.prepare(
        "SELECT token, path, tree, exclusive, user, owner, expires_ms, macaroon FROM lock",
    )?;
    let rows = query.query_map([], |row| {
        let token = LockToken::parse(&row.get::<_, String>(0)?);
        let root = NamespacePath::parse(&row.get::<_, String>(1)?).ok();
        let (Some(token), Some(root)) = (token, root) else {
            return Ok(None);
        };
        Ok(Some(Lock {
            token,
            root,
            reach: match row.get(2)? {
                true => LockReach::Tree,
                false => LockReach::Itself,
            },
            scope: match row.get(3)? {
                true => LockScope::Exclusive,
                false => LockScope::Shared,
            },
            user: UserName::new(row.get::<_, String>(4)?),
            macaroon: row.get(7)?,
            owner: row.get(5)?,
            expires: Timestamp(row.get(6)?),
        }))
    })?;
    rows.filter_map(Result::transpose).collect()
}
