//! The delegations in a database of SQLite of their own, beside the journal.

use super::store::{NewDelegation, NewRequest, Request, Store};
use super::{
    CloudUpload, DELEGATIONS_PER_USER, Delegation, DelegationError, REQUESTS_MAX, REQUESTS_PER_USER,
};
use crate::resealing::{Pass, SealedColumn};
use crate::sealing::SealingKeys;
use crate::sql_integer::from_sql;
use crate::writing::{settle_log, waits_for_its_turn};
use parking_lot::{Mutex, MutexGuard};
use penstock_model::{Timestamp, TransferId, UserName};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SCHEMA_VERSION: u32 = 2;
/// Each raises the version by one.
const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [SCHEMA, CLOUD_TABLES];
pub(super) const SCHEMA: &str = "CREATE TABLE request (
        delegation_id   TEXT PRIMARY KEY,
        user            TEXT NOT NULL,
        made_ms         INTEGER NOT NULL,
        answered        INTEGER NOT NULL DEFAULT 0,
        sealed_key      BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX request_user ON request (user, made_ms);
    CREATE INDEX request_made ON request (made_ms);
    CREATE TABLE delegation (
        delegation_id   TEXT PRIMARY KEY,
        user            TEXT NOT NULL,
        serial          INTEGER NOT NULL,
        made_ms         INTEGER NOT NULL,
        expires_ms      INTEGER NOT NULL,
        attributes      TEXT NOT NULL,
        sealed_proxy    BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX delegation_user ON delegation (user, expires_ms);
    CREATE INDEX delegation_expires ON delegation (expires_ms);";

/// The tables, which schema 2 added.
const CLOUD_TABLES: &str = "CREATE TABLE cloud_key (
        secret_id       TEXT PRIMARY KEY,
        made_ms         INTEGER NOT NULL,
        sealed_key      BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE cloud_upload (
        transfer_id     INTEGER NOT NULL,
        upload_id       TEXT NOT NULL,
        url             TEXT NOT NULL,
        begun_ms        INTEGER NOT NULL,
        PRIMARY KEY (transfer_id, upload_id)
    ) WITHOUT ROWID;";

#[derive(Debug)]
pub(super) struct SqliteStore {
    connection: Mutex<Connection>,
    path: PathBuf,
}

impl SqliteStore {
    pub(super) fn open(path: &Path) -> Result<SqliteStore, DelegationError> {
        let failed = |source| DelegationError::Sqlite {
            path: path.display().to_string(),
            source,
        };
        // SQLite would create it with the process's umask.
        let created = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path);
        created.map_err(|why| failed(rusqlite::Error::ToSqlConversionFailure(Box::new(why))))?;
        let mut connection = Connection::open(path).map_err(failed)?;
        configure(&mut connection).map_err(failed)?;
        let migrated = migrate(&mut connection).map_err(failed)?;
        migrated.map_err(|found| DelegationError::TooNew {
            path: path.display().to_string(),
            found,
        })?;
        Ok(SqliteStore {
            connection: Mutex::new(connection),
            path: path.to_owned(),
        })
    }

    fn write<T>(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, DelegationError> {
        let mut connection = self.lock();
        let done = connection.transaction().and_then(|transaction| {
            let value = change(&transaction)?;
            transaction.commit()?;
            Ok(value)
        });
        done.map_err(|why| self.failed(why))
    }

    fn read<T>(
        &self,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DelegationError> {
        question(&self.lock()).map_err(|why| self.failed(why))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Connection> {
        // Whoever panicked left a transaction that was rolled back.
        self.connection.lock()
    }

    fn failed(&self, source: rusqlite::Error) -> DelegationError {
        DelegationError::Sqlite {
            path: self.path.display().to_string(),
            source,
        }
    }
}

impl Store for SqliteStore {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn request(&self, id: &str, begun_ms: i64) -> Result<Option<Request>, DelegationError> {
        let sql =
            "SELECT sealed_key, answered FROM request WHERE delegation_id = ?1 AND made_ms > ?2";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let found = statement.query_row(params![id, begun_ms], |row| {
                Ok(Request {
                    sealed_key: row.get(0)?,
                    is_answered: row.get(1)?,
                })
            });
            found.optional()
        })
    }

    fn keep_request(&self, new: NewRequest) -> Result<(), DelegationError> {
        self.write(|transaction| {
            transaction.execute("DELETE FROM request WHERE made_ms <= ?1", [new.begun_ms])?;
            transaction.execute(
                "INSERT OR REPLACE INTO request (delegation_id, user, made_ms, sealed_key) VALUES (?1, ?2, ?3, ?4)",
                params![new.id, new.user, new.made_ms, new.sealed_key],
            )?;
            transaction.execute(
                "DELETE FROM request WHERE user = ?1 AND delegation_id IN (SELECT delegation_id FROM request
                 WHERE user = ?1 ORDER BY made_ms DESC LIMIT -1 OFFSET ?2)",
                params![new.user, REQUESTS_PER_USER],
            )?;
            transaction.execute(
                "DELETE FROM request WHERE delegation_id IN (SELECT delegation_id FROM request
                 ORDER BY made_ms DESC LIMIT -1 OFFSET ?1)",
                [REQUESTS_MAX],
            )?;
            Ok(())
        })
    }

    fn keep_proxy(&self, new: NewDelegation) -> Result<(), DelegationError> {
        let is_kept = self.write(|transaction| {
            transaction.execute("DELETE FROM delegation WHERE expires_ms <= ?1", [new.ended_ms])?;
            // The clock may stand still or go back; the serial must not.
            let kept = transaction.execute(
                "INSERT INTO delegation (delegation_id, user, serial, made_ms, expires_ms, attributes, sealed_proxy)
                 VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6)
                 ON CONFLICT (delegation_id) DO UPDATE SET serial = max(serial + 1, excluded.serial),
                 made_ms = excluded.made_ms, expires_ms = excluded.expires_ms,
                 attributes = excluded.attributes, sealed_proxy = excluded.sealed_proxy
                 WHERE delegation.user = excluded.user",
                params![new.id, new.user, new.made_ms, new.expires_ms, new.attributes, new.sealed_proxy],
            )?;
            transaction.execute(
                "DELETE FROM delegation WHERE user = ?1 AND delegation_id IN (SELECT delegation_id FROM delegation
                 WHERE user = ?1 AND delegation_id <> ?3 ORDER BY expires_ms DESC LIMIT -1 OFFSET ?2)",
                params![new.user, DELEGATIONS_PER_USER - 1, new.id],
            )?;
            transaction.execute("UPDATE request SET answered = 1 WHERE delegation_id = ?1", [&new.id])?;
            Ok(kept > 0)
        })?;
        match is_kept {
            true => Ok(()),
            false => Err(DelegationError::OtherUser { id: new.id }),
        }
    }

    fn delegation(&self, id: &str) -> Result<Option<(Delegation, Vec<u8>)>, DelegationError> {
        let sql = "SELECT serial, expires_ms, attributes, user, sealed_proxy FROM delegation WHERE delegation_id = ?1";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let found = statement.query_row([id], |row| Ok((described(row)?, row.get(4)?)));
            found.optional()
        })
    }

    fn forget(&self, id: &str) -> Result<bool, DelegationError> {
        self.write(|transaction| {
            transaction.execute("DELETE FROM request WHERE delegation_id = ?1", [id])?;
            let sql = "DELETE FROM delegation WHERE delegation_id = ?1";
            Ok(transaction.execute(sql, [id])? > 0)
        })
    }

    fn sweep(&self, begun_ms: i64, ended_ms: i64) -> Result<(), DelegationError> {
        self.write(|transaction| {
            transaction.execute("DELETE FROM request WHERE made_ms <= ?1", [begun_ms])?;
            transaction.execute("DELETE FROM delegation WHERE expires_ms <= ?1", [ended_ms])?;
            Ok(())
        })
    }

    fn seal_some_anew(
        &self,
        keys: &SealingKeys,
        mut pass: Pass,
        place: SealedColumn,
    ) -> Result<Pass, DelegationError> {
        self.write(|transaction| {
            pass.advance(transaction, keys, place)?;
            Ok(pass)
        })
    }

    fn keep_cloud_secret(
        &self,
        id: &str,
        made_ms: i64,
        sealed: Vec<u8>,
    ) -> Result<(), DelegationError> {
        self.write(|transaction| {
            let sql = "INSERT INTO cloud_key (secret_id, made_ms, sealed_key) VALUES (?1, ?2, ?3)";
            transaction.execute(sql, params![id, made_ms, sealed])?;
            Ok(())
        })
    }

    fn cloud_secret(&self, id: &str) -> Result<Option<Vec<u8>>, DelegationError> {
        self.read(|connection| {
            let sql = "SELECT sealed_key FROM cloud_key WHERE secret_id = ?1";
            connection.query_row(sql, [id], |row| row.get(0)).optional()
        })
    }

    fn cloud_secrets_until(&self, made_ms: i64) -> Result<Vec<String>, DelegationError> {
        self.read(|connection| {
            let sql = "SELECT secret_id FROM cloud_key WHERE made_ms <= ?1";
            let mut select = connection.prepare_cached(sql)?;
            let rows = select.query_map([made_ms], |row| row.get(0))?;
            rows.collect()
        })
    }

    fn forget_cloud_secrets(&self, ids: Vec<String>) -> Result<(), DelegationError> {
        self.write(|transaction| {
            for id in ids {
                transaction.execute("DELETE FROM cloud_key WHERE secret_id = ?1", [id])?;
            }
            Ok(())
        })
    }

    fn note_upload(&self, upload: CloudUpload) -> Result<(), DelegationError> {
        self.write(|transaction| {
            let sql = "INSERT OR REPLACE INTO cloud_upload (transfer_id, upload_id, url, begun_ms)
                       VALUES (?1, ?2, ?3, ?4)";
            let (transfer, begun_ms) = (upload.transfer.0, upload.begun.0);
            transaction.execute(sql, params![transfer, upload.upload, upload.url, begun_ms])?;
            Ok(())
        })
    }

    fn forget_upload(&self, transfer: TransferId, upload: &str) -> Result<(), DelegationError> {
        self.write(|transaction| {
            let sql = "DELETE FROM cloud_upload WHERE transfer_id = ?1 AND upload_id = ?2";
            transaction.execute(sql, params![transfer.0, upload])?;
            Ok(())
        })
    }

    fn uploads(
        &self,
        transfer: Option<TransferId>,
        limit: usize,
    ) -> Result<Vec<CloudUpload>, DelegationError> {
        let sql = "SELECT transfer_id, upload_id, url, begun_ms FROM cloud_upload
                   WHERE ?1 IS NULL OR transfer_id = ?1 ORDER BY begun_ms LIMIT ?2";
        self.read(|connection| {
            let mut select = connection.prepare_cached(sql)?;
            let transfer = transfer.map(|transfer| transfer.0);
            let rows = select.query_map(params![transfer, limit as i64], |row| {
                Ok(CloudUpload {
                    transfer: TransferId(row.get(0)?),
                    upload: row.get(1)?,
                    url: row.get(2)?,
                    begun: Timestamp(row.get(3)?),
                })
            })?;
            rows.collect()
        })
    }
}

/// From the columns serial, expires_ms and attributes, which come first.
fn described(row: &Row<'_>) -> rusqlite::Result<Delegation> {
    Ok(Delegation {
        serial: from_sql(row.get(0)?),
        expires: Timestamp(row.get(1)?),
        attributes: serde_json::from_str(&row.get::<_, String>(2)?).unwrap_or_default(),
        user: UserName::new(row.get::<_, String>(3)?),
    })
}

fn configure(connection: &mut Connection) -> rusqlite::Result<()> {
    waits_for_its_turn(connection);
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "secure_delete", "ON")?;
    connection.set_prepared_statement_cache_capacity(16);
    connection.busy_timeout(Duration::from_secs(10))?;
    settle_log(connection)
}

/// Makes the tables in a database that is not theirs alone. Returns their schema.
pub(crate) fn make_tables(connection: &Connection) -> rusqlite::Result<i64> {
    for step in MIGRATIONS {
        connection.execute_batch(step)?;
    }
    Ok(i64::from(SCHEMA_VERSION))
}

fn migrate(connection: &mut Connection) -> rusqlite::Result<Result<(), u32>> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > SCHEMA_VERSION {
        return Ok(Err(found));
    }
    for version in found..SCHEMA_VERSION {
        let step = connection.transaction()?;
        step.execute_batch(MIGRATIONS[version as usize])?;
        step.pragma_update(None, "user_version", version + 1)?;
        step.commit()?;
    }
    Ok(Ok(()))
}
