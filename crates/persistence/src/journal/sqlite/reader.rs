//! Questions to the journal, on connections that only read.

use super::minutes::{self, TakenMinutes};
use super::reading::{RecordQueries, TRANSFER_COLUMNS};
use super::{at, bans, history, links, search, settings, tunings};
use crate::sealing::SealingKeys;
use crate::sql_integer::to_sql;
use parking_lot::{Condvar, Mutex, MutexGuard};
use penstock_journal::{
    FoundPage, HistoryFacts, JobFilter, JobName, JobRow, JournalError, JournalReader,
    TransferFilter, TransferRow, TuningFilter,
};
use penstock_model::{
    Ban, BanChange, CredentialId, JobId, LedgerEntry, LinkChange, LinkId, LinkSample,
    MinuteSamples, SettingChange, StoredToken, Timestamp, TransferId, TuningDecision,
};
use rusqlite::{Connection, OpenFlags, params};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Reads beside the writer, on a few read-only connections.
#[derive(Debug)]
pub struct SqliteReader {
    idle: Idle,
    path: PathBuf,
    keys: Option<SealingKeys>,
}

impl SqliteReader {
    /// Opens `connections` read-only connections to a journal that exists.
    pub fn open(path: &Path, connections: usize) -> Result<SqliteReader, JournalError> {
        let open = || {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags)?;
            connection.set_prepared_statement_cache_capacity(64);
            connection.busy_timeout(Duration::from_secs(10))?;
            Ok(connection)
        };
        let connections: rusqlite::Result<Vec<_>> =
            (0..connections.max(1)).map(|_| open()).collect();
        Ok(SqliteReader {
            idle: Idle {
                connections: Mutex::new(connections.map_err(at(path))?),
                freed: Condvar::new(),
            },
            path: path.to_owned(),
            keys: None,
        })
    }

    /// Also opens tokens, with these keys. Without, there seem to be none.
    pub fn with_keys(self, keys: SealingKeys) -> SqliteReader {
        SqliteReader {
            keys: Some(keys),
            ..self
        }
    }

    /// The number of the last row with a minute; 0 when there is none.
    pub fn last_minute(&self) -> Result<u64, JournalError> {
        self.read(minutes::last)
    }

    /// At most `limit` of the minutes that were not taken, of the rows with numbers above `above`, each with its own.
    pub fn minutes_not_taken(
        &self,
        taken: TakenMinutes,
        above: u64,
        limit: usize,
    ) -> Result<Vec<(u64, MinuteSamples)>, JournalError> {
        self.read(|reading| minutes::not_taken(reading, taken, above, limit))
    }

    pub(super) fn read<T>(
        &self,
        question: impl FnOnce(&RecordQueries<'_>) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let lent = self.idle.take();
        // One transaction, so that all rows of an answer are of one instant.
        let snapshot = lent.unchecked_transaction().map_err(at(&self.path))?;
        question(&RecordQueries {
            connection: &snapshot,
            path: &self.path,
        })
    }
}

/// Connections that answer nothing at the moment.
#[derive(Debug)]
struct Idle {
    connections: Mutex<Vec<Connection>>,
    freed: Condvar,
}

impl Idle {
    /// The one that was given back last, whose pages are in memory; waits until there is one.
    fn take(&self) -> LentConnection<'_> {
        let mut connections = self.lock();
        loop {
            if let Some(connection) = connections.pop() {
                let connection = Some(connection);
                return LentConnection {
                    connection,
                    to: self,
                };
            }
            self.freed.wait(&mut connections);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        // It is changed in one step, so that a panic leaves nothing half done.
        self.connections.lock()
    }
}

/// A connection that goes back when it is dropped, also by a panic: reads change nothing.
struct LentConnection<'a> {
    /// `None` only while it is dropped.
    connection: Option<Connection>,
    to: &'a Idle,
}

impl Deref for LentConnection<'_> {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("there until it is dropped")
    }
}

impl Drop for LentConnection<'_> {
    fn drop(&mut self) {
        self.to.lock().extend(self.connection.take());
        self.to.freed.notify_one();
    }
}

impl JournalReader for SqliteReader {
    fn job(&self, id: JobId) -> Result<Option<JobRow>, JournalError> {
        self.read(|reading| reading.job(id))
    }

    fn transfers(&self, job: JobId) -> Result<Vec<TransferRow>, JournalError> {
        self.read(|reading| reading.transfers(job))
    }

    fn transfers_after(
        &self,
        job: JobId,
        after: TransferId,
        limit: usize,
    ) -> Result<Vec<TransferRow>, JournalError> {
        let sql = format!(
            "{TRANSFER_COLUMNS} WHERE job_id = ?1 AND transfer_id > ?2 ORDER BY transfer_id LIMIT ?3"
        );
        let parameters = params![job.to_string(), to_sql(after.0), limit as i64];
        self.read(|reading| reading.transfer_rows(&sql, parameters))
    }

    fn state_counts(&self, job: JobId) -> Result<Vec<(String, u64)>, JournalError> {
        self.read(|reading| reading.state_counts(job))
    }

    fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, JournalError> {
        self.read(|reading| reading.jobs(filter))
    }

    fn last_sequence(&self) -> Result<u64, JournalError> {
        self.read(|reading| {
            // Also when the entries are no longer kept.
            let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'ledger'";
            let last = reading
                .connection
                .query_row(sql, [], |row| row.get::<_, i64>(0));
            Ok(last.map_err(at(reading.path))? as u64)
        })
    }

    fn entries_after(&self, sequence: u64, limit: usize) -> Result<Vec<LedgerEntry>, JournalError> {
        let sql = "SELECT sequence, at_ms, monotonic_us, job_id, transfer_id, event FROM ledger
                   WHERE sequence > ?1 ORDER BY sequence LIMIT ?2";
        self.read(|reading| reading.entries(sql, sequence as i64, limit as i64))
    }

    fn entries_of(
        &self,
        transfer: TransferId,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, JournalError> {
        let sql = "SELECT sequence, at_ms, monotonic_us, job_id, transfer_id, event FROM ledger
                   WHERE transfer_id = ?1 ORDER BY sequence LIMIT ?2";
        self.read(|reading| reading.entries(sql, to_sql(transfer.0), limit as i64))
    }

    fn samples_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<LinkSample>, JournalError> {
        self.read(|reading| reading.samples(from, to))
    }

    fn minutes_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<MinuteSamples>, JournalError> {
        self.read(|reading| minutes::between(reading, from, to))
    }

    fn setting_changes(&self, limit: usize) -> Result<Vec<SettingChange>, JournalError> {
        self.read(|reading| settings::changes(reading, limit))
    }

    fn bans(&self) -> Result<Vec<Ban>, JournalError> {
        self.read(bans::load)
    }

    fn ban_changes(&self, limit: usize) -> Result<Vec<BanChange>, JournalError> {
        self.read(|reading| bans::changes(reading, limit))
    }

    fn transfer(&self, id: TransferId) -> Result<Option<TransferRow>, JournalError> {
        self.read(|reading| {
            let sql = format!("{TRANSFER_COLUMNS} WHERE transfer_id = ?1");
            Ok(reading.transfer_rows(&sql, params![to_sql(id.0)])?.pop())
        })
    }

    fn history(&self) -> Result<HistoryFacts, JournalError> {
        self.read(history::facts)
    }

    fn token(&self, id: &CredentialId) -> Result<Option<StoredToken>, JournalError> {
        let Some(keys) = &self.keys else {
            return Ok(None);
        };
        self.read(|reading| reading.token(id, keys))
    }

    fn find(&self, filter: &TransferFilter) -> Result<FoundPage, JournalError> {
        self.read(|reading| search::find(reading, filter))
    }

    fn recent_names(&self, name: JobName) -> Result<Vec<String>, JournalError> {
        self.read(|reading| search::recent_names(reading, name))
    }

    fn link_changes(
        &self,
        link: &LinkId,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Vec<LinkChange>, JournalError> {
        self.read(|reading| links::changes(reading, link, from, to, limit))
    }

    fn tunings(&self, filter: &TuningFilter) -> Result<Vec<TuningDecision>, JournalError> {
        self.read(|reading| tunings::find(reading, filter))
    }
}
