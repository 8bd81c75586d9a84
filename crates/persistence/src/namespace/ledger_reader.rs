//! Reading what happened from outside of the storage element.

use super::connection::{open_reader, unsigned};
use super::ledger::{self, ElementRecord};
use super::schema::SCHEMA_VERSION;
use super::{MoverRecord, NamespaceError, pool_minutes, read, record};
use penstock_model::{PoolName, PoolSamples, Timestamp};
use rusqlite::Connection;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Reads the ledger of a namespace, with its ended movers, while another process may have it open. Never writes.
pub struct LedgerReader {
    connection: Connection,
    path: PathBuf,
}

impl LedgerReader {
    /// Opens a namespace that exists. Errors: it is of another version than this program writes.
    pub fn open(path: &Path) -> Result<LedgerReader, NamespaceError> {
        let path = path.to_owned();
        let failed = |source| NamespaceError::Database {
            path: path.clone(),
            source,
        };
        let connection = open_reader(&path).map_err(failed)?;
        let found: u32 = connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(failed)?;
        match found.cmp(&SCHEMA_VERSION) {
            Ordering::Equal => Ok(LedgerReader { connection, path }),
            Ordering::Greater => Err(NamespaceError::Newer {
                path,
                found,
                known: SCHEMA_VERSION,
            }),
            Ordering::Less => Err(NamespaceError::Older(path)),
        }
    }

    /// Which namespace it is.
    pub fn namespace_id(&self) -> Result<String, NamespaceError> {
        let sql = "SELECT value FROM meta WHERE key = 'uuid'";
        let id = self.connection.query_row(sql, [], |row| row.get(0));
        id.map_err(|source| self.failed(source))
    }

    /// All pools that were ever made, or held a file.
    pub fn pools_ever(&self) -> Result<BTreeSet<PoolName>, NamespaceError> {
        self.query(read::pools_ever)
    }

    /// The number of the last mover that was ever recorded; 0 when there was none.
    pub fn last_mover(&self) -> Result<u64, NamespaceError> {
        let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'mover_record'";
        let last = self.connection.query_row(sql, [], |row| row.get(0));
        last.map(unsigned).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: rusqlite::Error) -> NamespaceError {
        NamespaceError::Database {
            path: self.path.clone(),
            source,
        }
    }

    /// Where the namespace is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn query<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, NamespaceError> {
        query(&self.connection).map_err(|source| self.failed(source))
    }

    /// The number of the last thing in the ledger; 0 when there is none.
    pub fn last_record(&self) -> Result<u64, NamespaceError> {
        ledger::last(&self.connection).map_err(|source| self.failed(source))
    }

    /// Some of the things after a number, oldest first, each with its own; none: there are no more.
    pub fn records_after(&self, number: u64) -> Result<Vec<(u64, ElementRecord)>, NamespaceError> {
        ledger::after(&self.connection, &self.path, number)
    }

    /// The number of the last minute of the pools; 0 when there was none.
    pub fn last_pool_minute(&self) -> Result<u64, NamespaceError> {
        pool_minutes::last(&self.connection).map_err(|source| self.failed(source))
    }

    /// At most `limit` minutes of the pools with numbers above this one, oldest first, each with its own.
    pub fn pool_minutes_after(
        &self,
        number: u64,
        limit: usize,
    ) -> Result<Vec<(u64, PoolSamples)>, NamespaceError> {
        pool_minutes::after(&self.connection, number, limit).map_err(|source| self.failed(source))
    }

    /// Minutes of the pools that begin in `from <= begin < to`, oldest first.
    pub fn pool_minutes_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<PoolSamples>, NamespaceError> {
        pool_minutes::between(&self.connection, from, to).map_err(|source| self.failed(source))
    }

    /// At most `limit` ended movers, oldest first, with their numbers, which are above `sequence`.
    pub fn movers_after(
        &self,
        sequence: u64,
        limit: usize,
    ) -> Result<Vec<(u64, MoverRecord)>, NamespaceError> {
        record::load(&self.connection, sequence, limit).map_err(|source| self.failed(source))
    }
}
