//! What users have delegated to the service: keys that wait for their proxy, and proxies with their keys, sealed.
//!
//! Beside the journal and apart from it: small, written by the REST interface of any node, read when a transfer starts.
//! Each call is one transaction, durable when it returns. Blocks for milliseconds. Here is what is sealed and how long
//! things are kept; [`store`] says what a back end does.

mod cloud;
mod postgres;
mod sqlite;
mod store;

pub use cloud::CloudUpload;
pub(crate) use sqlite::make_tables as make_sqlite_tables;

use crate::postgres::{Database, DatabaseError};
use crate::resealing::{CLOUD_KEYS, PROXIES, Pass, REQUEST_KEYS};
use crate::sealing::{SealingError, SealingKeys, SecretKind};
use penstock_journal::Remedy;
use penstock_model::{CredentialId, Timestamp, UserName};
use std::path::Path;
use std::time::Duration;
use store::{NewDelegation, NewRequest, Store};
use thiserror::Error;

/// How long a request waits for its proxy.
const REQUEST_LIFETIME: Duration = Duration::from_secs(3600);
/// Requests of one user that may wait at once: one for each set of VOMS attributes.
const REQUESTS_PER_USER: i64 = 16;
/// Requests of all users that may wait at once; the oldest goes.
const REQUESTS_MAX: i64 = 10_000;
/// Delegations of one user that are kept; the one that ends first goes.
const DELEGATIONS_PER_USER: i64 = 64;
/// How long a proxy that has ended is kept, so that its owner is told when it ended: a week.
const ENDED_KEPT_MS: i64 = 7 * 86_400_000;

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
    /// PostgreSQL, or the way to it.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A secret cannot be sealed or opened.
    #[error("a delegated credential in {path} cannot be used: {source}")]
    Sealed {
        /// The database.
        path: String,
        #[source]
        source: SealingError,
    },
    /// Two users share a name of identities; what one of them has delegated is not given up to the other.
    #[error(
        "the name {id} of this delegation is another user's already; ask the site's administrators"
    )]
    OtherUser { id: String },
    /// Written by a later version.
    #[error("the delegations {path} were written by a later version (schema {found}): upgrade")]
    TooNew {
        /// The database file.
        path: String,
        /// Its schema.
        found: u32,
    },
}

impl DelegationError {
    /// The same may succeed a while later, when nothing else is done about it.
    pub fn may_pass(&self) -> bool {
        match self {
            DelegationError::Sqlite { source, .. } => {
                crate::journal::remedy_of_sqlite(source) == Remedy::Wait
            }
            DelegationError::Database(error) => error.may_pass(),
            // Another node may have the key.
            DelegationError::Sealed { source, .. } => matches!(source, SealingError::UnknownKey),
            DelegationError::OtherUser { .. } | DelegationError::TooNew { .. } => false,
        }
    }
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
    pub user: UserName,
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

/// The store. One per service, or one on each of its nodes over the same database.
#[derive(Debug)]
pub struct Delegations {
    store: Box<dyn Store>,
    keys: SealingKeys,
}

impl Delegations {
    /// Opens or creates a database of SQLite (mode 0600), and seals anew what an older key had sealed.
    pub fn open(path: &Path, keys: SealingKeys) -> Result<Delegations, DelegationError> {
        Delegations::of(Box::new(sqlite::SqliteStore::open(path)?), keys)
    }

    /// Uses PostgreSQL, brings its tables to the newest schema, and seals anew what an older key had sealed.
    pub fn in_postgres(
        database: &Database,
        keys: SealingKeys,
    ) -> Result<Delegations, DelegationError> {
        Delegations::of(Box::new(postgres::PostgresStore::open(database)?), keys)
    }

    fn of(store: Box<dyn Store>, keys: SealingKeys) -> Result<Delegations, DelegationError> {
        let store = Delegations { store, keys };
        store.seal_anew()?;
        Ok(store)
    }

    /// The key of the request that waits for this identity, unless its proxy came already: then a new request is due.
    pub fn open_request(
        &self,
        id: &CredentialId,
        now: Timestamp,
    ) -> Result<Option<Vec<u8>>, DelegationError> {
        let found = self.store.request(id.as_str(), begun(now))?;
        let waiting = found.filter(|request| !request.is_answered);
        self.opened(
            SecretKind::RequestKey,
            id,
            waiting.map(|request| request.sealed_key),
        )
    }

    /// The key of this identity's latest request, whether or not a proxy came for it: of two clients that asked at
    /// the same time, both may deliver.
    pub fn request_key(
        &self,
        id: &CredentialId,
        now: Timestamp,
    ) -> Result<Option<Vec<u8>>, DelegationError> {
        let found = self.store.request(id.as_str(), begun(now))?;
        self.opened(
            SecretKind::RequestKey,
            id,
            found.map(|request| request.sealed_key),
        )
    }

    /// Keeps the key of a new request in the place of any before. Requests that have waited too long go, and the
    /// oldest of a user, or of all, who have too many.
    pub fn keep_request(
        &self,
        of: Delegator<'_>,
        key: &[u8],
        now: Timestamp,
    ) -> Result<(), DelegationError> {
        self.store.keep_request(NewRequest {
            id: of.id.as_str().to_owned(),
            user: of.user.as_str().to_owned(),
            made_ms: now.0,
            sealed_key: self.sealed(SecretKind::RequestKey, of.id, key)?,
            begun_ms: begun(now),
        })
    }

    /// Keeps a proxy in the place of any before of the same user. Those that have ended go. Errors: another user's is
    /// there under this name, among others.
    pub fn keep_proxy(
        &self,
        of: Delegator<'_>,
        proxy: &NewProxy<'_>,
        now: Timestamp,
    ) -> Result<(), DelegationError> {
        self.store.keep_proxy(NewDelegation {
            id: of.id.as_str().to_owned(),
            user: of.user.as_str().to_owned(),
            made_ms: now.0,
            expires_ms: proxy.expires.0,
            attributes: serde_json::Value::from(proxy.attributes.to_vec()).to_string(),
            sealed_proxy: self.sealed(SecretKind::Proxy, of.id, proxy.secret)?,
            ended_ms: now.0 - ENDED_KEPT_MS,
        })
    }

    /// What an identity has delegated, also when it has ended.
    pub fn delegation(&self, id: &CredentialId) -> Result<Option<Delegation>, DelegationError> {
        Ok(self
            .store
            .delegation(id.as_str())?
            .map(|(delegation, _)| delegation))
    }

    /// The secret of an identity's newest proxy, with what is known of it.
    pub fn proxy(
        &self,
        id: &CredentialId,
    ) -> Result<Option<(Delegation, Vec<u8>)>, DelegationError> {
        let Some((delegation, sealed)) = self.store.delegation(id.as_str())? else {
            return Ok(None);
        };
        let secret = self.opened(SecretKind::Proxy, id, Some(sealed))?;
        Ok(secret.map(|secret| (delegation, secret)))
    }

    /// Forgets what an identity has delegated, and any request. False when there was nothing.
    pub fn forget(&self, id: &CredentialId) -> Result<bool, DelegationError> {
        self.store.forget(id.as_str())
    }

    /// Removes requests that have waited too long and proxies that have long ended. Bounded by what has ended.
    pub fn sweep(&self, now: Timestamp) -> Result<(), DelegationError> {
        self.store.sweep(begun(now), now.0 - ENDED_KEPT_MS)
    }

    /// Seals with the newest key what another one had sealed, some rows at a time. Blocks.
    pub fn seal_anew(&self) -> Result<(), DelegationError> {
        for place in [REQUEST_KEYS, PROXIES, CLOUD_KEYS] {
            let mut pass = Pass::default();
            while !pass.is_done {
                pass = self.store.seal_some_anew(&self.keys, pass, place)?;
            }
            if pass.unreadable > 0 {
                tracing::warn!(
                    path = %self.store.name(), table = place.table, count = pass.unreadable,
                    "credentials are sealed with a key that is not there; put its line back, or have them delegated again"
                );
            }
        }
        Ok(())
    }

    fn sealed(
        &self,
        kind: SecretKind,
        id: &CredentialId,
        secret: &[u8],
    ) -> Result<Vec<u8>, DelegationError> {
        let sealed = self.keys.seal(kind, id.as_str(), secret);
        sealed.map_err(|why| self.unusable(why))
    }

    fn opened(
        &self,
        kind: SecretKind,
        id: &CredentialId,
        sealed: Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, DelegationError> {
        let open = |sealed: Vec<u8>| self.keys.open(kind, id.as_str(), &sealed);
        sealed
            .map(open)
            .transpose()
            .map_err(|why| self.unusable(why))
    }

    fn unusable(&self, source: SealingError) -> DelegationError {
        DelegationError::Sealed {
            path: self.store.name(),
            source,
        }
    }
}

/// Requests that were made until then have waited too long.
fn begun(now: Timestamp) -> i64 {
    now.0 - REQUEST_LIFETIME.as_millis() as i64
}

#[cfg(test)]
mod tests;
