//! What users have delegated to the service: keys that wait for their proxy, and proxies with their keys, sealed.
//!
//! A database of its own beside the journal: small, written by the REST interface, read when a transfer starts. Each
//! call is one transaction, durable when it returns. Blocks for milliseconds.

mod cloud;

pub use cloud::CloudUpload;

use crate::resealing::{CLOUD_KEYS, PROXIES, Pass, REQUEST_KEYS};
use crate::sealing::{SealingError, SealingKeys, SecretKind};
use penstock_model::{CredentialId, Timestamp, UserName};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thiserror::Error;

/// How long a request waits for its proxy.
const REQUEST_LIFETIME: Duration = Duration::from_secs(3600);
/// Requests of one user that may wait at once: one for each set of VOMS attributes.
const REQUESTS_PER_USER: i64 = 16;
/// Requests of all users that may wait at once; the oldest goes.
const REQUESTS_MAX: i64 = 10_000;
/// Delegations of one user that are kept; the one that ends first goes.
const DELEGATIONS_PER_USER: i64 = 64;
const SCHEMA_VERSION: u32 = 2;
/// Each raises the version by one.
const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [SCHEMA, cloud::TABLES];
const SCHEMA: &str = "CREATE TABLE request (
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

/// Why a delegation could not be read or kept.
#[derive(Debug, Error)]
pub enum DelegationError {
    /// SQLite says so; a full disk arrives here.
    #[error("the delegations {path} cannot be used: {source}")]
    Sqlite {
        /// The database file.
        path: String,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// A secret cannot be sealed or opened.
    #[error("a delegated credential in {path} cannot be used: {source}")]
    Sealed {
        /// The database file.
        path: String,
        /// Why.
        #[source]
        source: SealingError,
    },
    /// Written by a later version.
    #[error("the delegations {path} were written by a later version (schema {found}): upgrade")]
    TooNew {
        /// The database file.
        path: String,
        /// Its schema.
        found: u32,
    },
}

/// Whose delegation it is.
#[derive(Debug, Clone, Copy)]
pub struct Delegator<'a> {
    /// Names the identity with its attributes.
    pub id: &'a CredentialId,
    /// The end entity's subject.
    pub user: &'a UserName,
}

/// A delegated credential without its secret part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    /// Raised by each new proxy of this id.
    pub serial: u64,
    /// When the first certificate of its chain ends.
    pub expires: Timestamp,
    /// VOMS attributes (FQANs) that it carries.
    pub attributes: Vec<String>,
}

/// A proxy to be kept.
#[derive(Debug, Clone)]
pub struct NewProxy<'a> {
    /// The chain and the private key, in a form that the caller reads again.
    pub secret: &'a [u8],
    /// When it ends.
    pub expires: Timestamp,
    /// VOMS attributes.
    pub attributes: &'a [String],
}

/// The store. One per service.
#[derive(Debug)]
pub struct Delegations {
    connection: Mutex<Connection>,
    keys: SealingKeys,
    path: PathBuf,
}

impl Delegations {
    /// Opens or creates the database (mode 0600), and seals anew what an older key had sealed.
    pub fn open(path: &Path, keys: SealingKeys) -> Result<Delegations, DelegationError> {
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
        configure(&connection).map_err(failed)?;
        migrate(&mut connection)
            .map_err(failed)?
            .map_err(|found| DelegationError::TooNew {
                path: path.display().to_string(),
                found,
            })?;
        let store = Delegations {
            connection: Mutex::new(connection),
            keys,
            path: path.to_owned(),
        };
        store.seal_anew()?;
        Ok(store)
    }

    /// The key of the request that waits for this identity, unless its proxy came already: then a new request is due.
    pub fn open_request(
        &self,
        id: &CredentialId,
        now: Timestamp,
    ) -> Result<Option<Vec<u8>>, DelegationError> {
        self.request("AND answered = 0", id, now)
    }

    /// The key of this identity's latest request, whether or not a proxy came for it: of two clients that asked at
    /// the same time, both may deliver.
    pub fn request_key(
        &self,
        id: &CredentialId,
        now: Timestamp,
    ) -> Result<Option<Vec<u8>>, DelegationError> {
        self.request("", id, now)
    }

    fn request(
        &self,
        and: &str,
        id: &CredentialId,
        now: Timestamp,
    ) -> Result<Option<Vec<u8>>, DelegationError> {
        let sql = format!(
            "SELECT sealed_key FROM request WHERE delegation_id = ?1 AND made_ms > ?2 {and}"
        );
        let begun = now.0 - REQUEST_LIFETIME.as_millis() as i64;
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached(&sql)
            .map_err(|why| self.failed(why))?;
        let sealed: Option<Vec<u8>> = statement
            .query_row(params![id.as_str(), begun], |row| row.get(0))
            .optional()
            .map_err(|why| self.failed(why))?;
        let open = |sealed: Vec<u8>| self.keys.open(SecretKind::RequestKey, id.as_str(), &sealed);
        sealed.map(open).transpose().map_err(|why| self.sealed(why))
    }

    /// Keeps the key of a new request in the place of any before. Requests that have waited too long go, and the
    /// oldest of a user, or of all, who have too many.
    pub fn keep_request(
        &self,
        of: Delegator<'_>,
        key: &[u8],
        now: Timestamp,
    ) -> Result<(), DelegationError> {
        let sealed = self.keys.seal(SecretKind::RequestKey, of.id.as_str(), key);
        let sealed = sealed.map_err(|why| self.sealed(why))?;
        let begun = now.0 - REQUEST_LIFETIME.as_millis() as i64;
        self.write(|transaction| {
            transaction.execute("DELETE FROM request WHERE made_ms <= ?1", [begun])?;
            transaction.execute(
                "INSERT OR REPLACE INTO request (delegation_id, user, made_ms, sealed_key) VALUES (?1, ?2, ?3, ?4)",
                params![of.id.as_str(), of.user.as_str(), now.0, sealed],
            )?;
            transaction.execute(
                "DELETE FROM request WHERE user = ?1 AND delegation_id IN (SELECT delegation_id FROM request
                 WHERE user = ?1 ORDER BY made_ms DESC LIMIT -1 OFFSET ?2)",
                params![of.user.as_str(), REQUESTS_PER_USER],
            )?;
            transaction.execute(
                "DELETE FROM request WHERE delegation_id IN (SELECT delegation_id FROM request
                 ORDER BY made_ms DESC LIMIT -1 OFFSET ?1)",
                [REQUESTS_MAX],
            )?;
            Ok(())
        })
    }

    /// Keeps a proxy in the place of any before. Those that have ended go.
    pub fn keep_proxy(
        &self,
        of: Delegator<'_>,
        proxy: &NewProxy<'_>,
        now: Timestamp,
    ) -> Result<(), DelegationError> {
        let sealed = self
            .keys
            .seal(SecretKind::Proxy, of.id.as_str(), proxy.secret);
        let sealed = sealed.map_err(|why| self.sealed(why))?;
        let attributes = serde_json::Value::from(proxy.attributes.to_vec()).to_string();
        self.write(|transaction| {
            transaction.execute("DELETE FROM delegation WHERE expires_ms <= ?1", [now.0 - ENDED_KEPT_MS])?;
            // The clock may stand still or go back; the serial must not.
            transaction.execute(
                "INSERT INTO delegation (delegation_id, user, serial, made_ms, expires_ms, attributes, sealed_proxy)
                 VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6)
                 ON CONFLICT (delegation_id) DO UPDATE SET serial = max(serial + 1, excluded.serial),
                 user = excluded.user, made_ms = excluded.made_ms, expires_ms = excluded.expires_ms,
                 attributes = excluded.attributes, sealed_proxy = excluded.sealed_proxy",
                params![of.id.as_str(), of.user.as_str(), now.0, proxy.expires.0, attributes, sealed],
            )?;
            transaction.execute(
                "DELETE FROM delegation WHERE user = ?1 AND delegation_id IN (SELECT delegation_id FROM delegation
                 WHERE user = ?1 AND delegation_id <> ?3 ORDER BY expires_ms DESC LIMIT -1 OFFSET ?2)",
                params![of.user.as_str(), DELEGATIONS_PER_USER - 1, of.id.as_str()],
            )?;
            transaction.execute("UPDATE request SET answered = 1 WHERE delegation_id = ?1", [of.id.as_str()])?;
            Ok(())
        })
    }

    /// What an identity has delegated, also when it has ended.
    pub fn delegation(&self, id: &CredentialId) -> Result<Option<Delegation>, DelegationError> {
        let sql = "SELECT serial, expires_ms, attributes FROM delegation WHERE delegation_id = ?1";
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached(sql)
            .map_err(|why| self.failed(why))?;
        let found = statement.query_row([id.as_str()], described);
        found.optional().map_err(|why| self.failed(why))
    }

    /// The secret of an identity's newest proxy, with what is known of it.
    pub fn proxy(
        &self,
        id: &CredentialId,
    ) -> Result<Option<(Delegation, Vec<u8>)>, DelegationError> {
        let sql = "SELECT serial, expires_ms, attributes, sealed_proxy FROM delegation WHERE delegation_id = ?1";
        let found = {
            let connection = self.lock();
            let mut statement = connection
                .prepare_cached(sql)
                .map_err(|why| self.failed(why))?;
            let found = statement.query_row([id.as_str()], |row| {
                Ok((described(row)?, row.get::<_, Vec<u8>>(3)?))
            });
            found.optional().map_err(|why| self.failed(why))?
        };
        let Some((delegation, sealed)) = found else {
            return Ok(None);
        };
        let secret = self.keys.open(SecretKind::Proxy, id.as_str(), &sealed);
        Ok(Some((delegation, secret.map_err(|why| self.sealed(why))?)))
    }

    /// Forgets what an identity has delegated, and any request. False when there was nothing.
    pub fn forget(&self, id: &CredentialId) -> Result<bool, DelegationError> {
        self.write(|transaction| {
            transaction.execute(
                "DELETE FROM request WHERE delegation_id = ?1",
                [id.as_str()],
            )?;
            let gone = transaction.execute(
                "DELETE FROM delegation WHERE delegation_id = ?1",
                [id.as_str()],
            )?;
            Ok(gone > 0)
        })
    }

    /// Removes requests that have waited too long and proxies that have long ended. Bounded by what has ended.
    pub fn sweep(&self, now: Timestamp) -> Result<(), DelegationError> {
        let begun = now.0 - REQUEST_LIFETIME.as_millis() as i64;
        self.write(|transaction| {
            transaction.execute("DELETE FROM request WHERE made_ms <= ?1", [begun])?;
            transaction.execute(
                "DELETE FROM delegation WHERE expires_ms <= ?1",
                [now.0 - ENDED_KEPT_MS],
            )?;
            Ok(())
        })
    }

    /// Seals with the newest key what another one had sealed, some rows at a time. Blocks.
    pub fn seal_anew(&self) -> Result<(), DelegationError> {
        for place in [REQUEST_KEYS, PROXIES, CLOUD_KEYS] {
            let mut pass = Pass::default();
            while !pass.is_done {
                self.write(|transaction| pass.advance(transaction, &self.keys, place))?;
            }
            if pass.unreadable > 0 {
                tracing::warn!(
                    path = %self.path.display(), table = place.table, count = pass.unreadable,
                    "credentials are sealed with a key that is not there; put its line back, or have them delegated again"
                );
            }
        }
        Ok(())
    }

    fn write<T>(
        &self,
        change: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, DelegationError> {
        let mut connection = self.lock();
        let done = connection.transaction().and_then(|transaction| {
            let value = change(&transaction)?;
            transaction.commit()?;
            Ok(value)
        });
        done.map_err(|why| self.failed(why))
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // Whoever panicked left a transaction that was rolled back.
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, source: rusqlite::Error) -> DelegationError {
        DelegationError::Sqlite {
            path: self.path.display().to_string(),
            source,
        }
    }

    fn sealed(&self, source: SealingError) -> DelegationError {
        DelegationError::Sealed {
            path: self.path.display().to_string(),
            source,
        }
    }
}

/// How long a proxy that has ended is kept, so that its owner is told when it ended: a week.
const ENDED_KEPT_MS: i64 = 7 * 86_400_000;

/// From the columns serial, expires_ms and attributes, which come first.
fn described(row: &Row<'_>) -> rusqlite::Result<Delegation> {
    Ok(Delegation {
        serial: row.get::<_, i64>(0)? as u64,
        expires: Timestamp(row.get(1)?),
        attributes: serde_json::from_str(&row.get::<_, String>(2)?).unwrap_or_default(),
    })
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "secure_delete", "ON")?;
    connection.set_prepared_statement_cache_capacity(16);
    connection.busy_timeout(Duration::from_secs(10))
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const HOUR: i64 = 3_600_000;

    struct Lab {
        _directory: tempfile::TempDir,
        path: PathBuf,
        keys: PathBuf,
    }

    fn lab() -> Lab {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Lab {
            path: directory.path().join("delegations.sqlite"),
            keys: directory.path().join("keys"),
            _directory: directory,
        }
    }

    impl Lab {
        fn open(&self) -> Delegations {
            let keys = SealingKeys::load_or_create(&self.keys).expect("keys");
            Delegations::open(&self.path, keys).expect("opens")
        }
    }

    fn after(milliseconds: i64) -> Timestamp {
        Timestamp(NOW.0 + milliseconds)
    }

    fn keep(store: &Delegations, id: &str, secret: &[u8], expires: Timestamp) {
        let (id, user) = (CredentialId::new(id), UserName::new("/CN=Alice"));
        let of = Delegator {
            id: &id,
            user: &user,
        };
        let proxy = NewProxy {
            secret,
            expires,
            attributes: &["/dteam".to_owned()],
        };
        store.keep_proxy(of, &proxy, NOW).expect("kept");
    }

    fn ask(store: &Delegations, id: &str, key: &[u8], at: Timestamp) {
        let (id, user) = (CredentialId::new(id), UserName::new("/CN=Alice"));
        store
            .keep_request(
                Delegator {
                    id: &id,
                    user: &user,
                },
                key,
                at,
            )
            .expect("kept");
    }

    #[test]
    fn a_request_survives_a_restart_and_ends_with_time() {
        let lab = lab();
        let id = CredentialId::new("a");
        ask(&lab.open(), "a", b"key", NOW);
        let store = lab.open();
        assert_eq!(
            store
                .open_request(&id, after(1))
                .expect("readable")
                .as_deref(),
            Some(b"key".as_slice())
        );
        assert_eq!(store.request_key(&id, after(HOUR)).expect("readable"), None);
        store.sweep(after(HOUR)).expect("swept");
        let rows: i64 = store
            .lock()
            .query_row("SELECT count(*) FROM request", [], |row| row.get(0))
            .expect("counted");
        assert_eq!(rows, 0);
    }

    #[test]
    fn a_new_proxy_takes_the_place_of_the_old_and_its_request_is_answered() {
        let lab = lab();
        let store = lab.open();
        let id = CredentialId::new("a");
        ask(&store, "a", b"key", NOW);
        keep(&store, "a", b"old", after(HOUR));
        let (first, _) = store.proxy(&id).expect("readable").expect("kept");
        assert_eq!(store.open_request(&id, after(1)).expect("readable"), None);
        assert!(
            store
                .request_key(&id, after(1))
                .expect("readable")
                .is_some(),
            "a second client may still deliver"
        );
        keep(&store, "a", b"new", after(2 * HOUR));
        let (second, secret) = lab.open().proxy(&id).expect("readable").expect("kept");
        assert_eq!(secret, b"new");
        assert!(second.serial > first.serial);
        assert_eq!(
            (second.expires, second.attributes),
            (after(2 * HOUR), vec!["/dteam".to_owned()])
        );
        assert!(store.forget(&id).expect("forgotten"));
        assert!(!store.forget(&id).expect("nothing left"));
    }

    #[test]
    fn one_user_cannot_fill_the_store() {
        let lab = lab();
        let store = lab.open();
        for number in 0..100 {
            ask(&store, &format!("r{number}"), b"key", after(number));
            keep(
                &store,
                &format!("d{number}"),
                b"proxy",
                after(HOUR + number),
            );
        }
        let count = |table: &str| -> i64 {
            let sql = format!("SELECT count(*) FROM {table}");
            store
                .lock()
                .query_row(&sql, [], |row| row.get(0))
                .expect("counted")
        };
        assert_eq!(
            (count("request"), count("delegation")),
            (REQUESTS_PER_USER, DELEGATIONS_PER_USER)
        );
        assert!(
            store
                .delegation(&CredentialId::new("d99"))
                .expect("readable")
                .is_some(),
            "the newest stays"
        );
        assert!(
            store
                .open_request(&CredentialId::new("r99"), after(99))
                .expect("readable")
                .is_some()
        );
    }

    #[test]
    fn what_an_old_key_sealed_is_sealed_anew_at_the_next_start() {
        let lab = lab();
        keep(&lab.open(), "a", b"proxy", after(HOUR));
        let old = std::fs::read_to_string(&lab.keys).expect("readable");
        let new = "5a".repeat(32);
        std::fs::write(&lab.keys, format!("{new}\n{old}")).expect("written");
        drop(lab.open());
        std::fs::write(&lab.keys, format!("{new}\n")).expect("written");
        let found = lab
            .open()
            .proxy(&CredentialId::new("a"))
            .expect("opens with the new key alone");
        assert_eq!(found.expect("kept").1, b"proxy");
    }

    #[test]
    fn no_secret_is_in_the_files() {
        let lab = lab();
        let store = lab.open();
        ask(&store, "a", b"-----the request's key-----", NOW);
        keep(&store, "a", b"-----the proxy's key-----", after(HOUR));
        for entry in std::fs::read_dir(lab.path.parent().expect("a directory")).expect("readable") {
            let path = entry.expect("readable").path();
            let bytes = std::fs::read(&path).expect("readable");
            assert!(
                !bytes.windows(10).any(|part| part == b"s key-----"),
                "{}",
                path.display()
            );
        }
    }
}
