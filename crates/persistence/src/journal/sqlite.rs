//! The journal in SQLite: one writer in WAL mode with `synchronous=FULL`, so a commit survives a power cut, and
//! read-only connections that see whole transactions only.

mod appending;
mod bans;
mod history;
mod links;
mod minutes;
mod reader;
mod reading;
pub(crate) mod schema;
mod search;
mod settings;
mod tidyings;
mod tokens;
mod tunings;
mod unfinished;

pub use minutes::TakenMinutes;
pub use reader::SqliteReader;
#[cfg(test)]
pub(super) use schema::make_old_schema;

use super::SqliteFailure;
use super::rows::with_priority;
use crate::resealing::{OF_JOURNAL, Pass};
use crate::sealing::SealingKeys;
use crate::writing::{settle_log, waits_for_its_turn};
use appending::{insert_event, insert_job, insert_sample, update_transfer};
use penstock_journal::{Journal, JournalError, PruneReport, PruneStep};
use penstock_model::{
    CredentialId, JobId, Priority, Record, RestartFacts, StoredToken, UnfinishedJob,
};
use reading::RecordQueries;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use schema::SCHEMA_VERSION;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The writer. There is one per database.
#[derive(Debug)]
pub struct SqliteJournal {
    connection: Connection,
    path: PathBuf,
    keys: SealingKeys,
    /// Over each kind of secret, when the newest key is another than that which sealed them.
    passes: [Pass; OF_JOURNAL.len()],
}

impl SqliteJournal {
    /// Opens or creates the database (mode 0600) and brings its schema up to date. Tokens are sealed with `keys`; what
    /// an older key had sealed is sealed anew.
    pub fn open(path: &Path, keys: SealingKeys) -> Result<SqliteJournal, JournalError> {
        // SQLite would create it with the process's umask.
        let created = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path);
        created.map_err(|why| SqliteFailure {
            path: path.display().to_string(),
            why: rusqlite::Error::ToSqlConversionFailure(Box::new(why)),
        })?;
        let mut connection = Connection::open(path).map_err(at(path))?;
        configure(&mut connection).map_err(at(path))?;
        schema::migrate(&mut connection, &keys)
            .map_err(at(path))?
            .map_err(|found| JournalError::TooNew {
                path: path.display().to_string(),
                found,
                known: SCHEMA_VERSION,
            })?;
        let mut journal = SqliteJournal {
            connection,
            path: path.to_owned(),
            keys,
            passes: Default::default(),
        };
        while !journal.seal_some_anew()? {}
        Ok(journal)
    }
}

fn configure(connection: &mut Connection) -> rusqlite::Result<()> {
    waits_for_its_turn(connection);
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Not more: a commit that has split a node of an index looks through all pages in the cache.
    connection.pragma_update(None, "cache_size", -16_000)?;
    connection.pragma_update(None, "secure_delete", "ON")?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.busy_timeout(Duration::from_secs(10))?;
    settle_log(connection)
}

/// Names the database in an error. Only then: this is said of each column that is read.
fn at(path: &Path) -> impl FnOnce(rusqlite::Error) -> JournalError + '_ {
    |why| {
        let path = path.display().to_string();
        SqliteFailure { path, why }.into()
    }
}

impl Journal for SqliteJournal {
    fn append(&mut self, records: &[Record]) -> Result<u64, JournalError> {
        append_all(&mut self.connection, &self.keys, records).map_err(at(&self.path))
    }

    fn seal_some_anew(&mut self) -> Result<bool, JournalError> {
        let failed = at(&self.path);
        let advanced = self.connection.transaction().and_then(|transaction| {
            for (pass, place) in self.passes.iter_mut().zip(OF_JOURNAL) {
                if !pass.is_done {
                    pass.advance(&transaction, &self.keys, place)?;
                }
            }
            transaction.commit()
        });
        if let Err(why) = advanced {
            // What was rolled back is looked at again.
            self.passes = Default::default();
            return Err(failed(why));
        }
        if !self.passes.iter().all(|pass| pass.is_done) {
            return Ok(false);
        }
        let passes = std::mem::take(&mut self.passes);
        let unreadable: usize = passes.iter().map(|pass| pass.unreadable).sum();
        if unreadable > 0 {
            tracing::warn!(
                count = unreadable,
                "tokens of open jobs are sealed with a key that is not there; put its line back"
            );
        }
        Ok(true)
    }

    fn prune(&mut self, step: &PruneStep) -> Result<PruneReport, JournalError> {
        history::prune(&mut self.connection, step).map_err(at(&self.path))
    }

    fn load_standing(&mut self) -> Result<RestartFacts, JournalError> {
        let reading = RecordQueries {
            connection: &self.connection,
            path: &self.path,
        };
        unfinished::standing(&reading)
    }

    fn load_unfinished(&mut self, take: &mut dyn FnMut(UnfinishedJob)) -> Result<(), JournalError> {
        let reading = RecordQueries {
            connection: &self.connection,
            path: &self.path,
        };
        unfinished::for_each(&reading, take)
    }

    fn token(&mut self, id: &CredentialId) -> Result<Option<StoredToken>, JournalError> {
        RecordQueries {
            connection: &self.connection,
            path: &self.path,
        }
        .token(id, &self.keys)
    }
}

fn append_all(
    connection: &mut Connection,
    keys: &SealingKeys,
    records: &[Record],
) -> rusqlite::Result<u64> {
    let transaction = connection.transaction()?;
    for record in records {
        match record {
            Record::JobAccepted {
                job,
                tokens: brought,
            } => {
                insert_job(&transaction, job)?;
                tokens::insert(&transaction, keys, job.id, brought)?;
            }
            Record::Happened {
                at,
                monotonic_us,
                job,
                transfer,
                event,
                state,
            } => {
                insert_event(&transaction, *at, *monotonic_us, *job, *transfer, event)?;
                update_transfer(&transaction, *at, *transfer, event, state)?;
            }
            Record::JobEnded { job, at, state } => {
                let sql = "UPDATE job SET finished_ms = ?2, final_state = ?3, ended_sequence =
                           (SELECT seq FROM sqlite_sequence WHERE name = 'ledger') WHERE job_id = ?1";
                transaction.prepare_cached(sql)?.execute(params![
                    job.to_string(),
                    at.0,
                    state.name()
                ])?;
                tokens::remove(&transaction, &job.to_string())?;
            }
            Record::TokenRenewed { id, renewed } => {
                tokens::renew(&transaction, keys, id, renewed)?;
            }
            Record::Reprioritised { job, priority } => {
                reprioritise(&transaction, *job, *priority)?;
            }
            Record::Configured(change) => settings::record(&transaction, change)?,
            Record::Banned(change) => bans::record(&transaction, change)?,
            Record::LinkChanged(change) => links::record(&transaction, change)?,
            Record::Tuned(decision) => tunings::record(&transaction, decision)?,
            Record::TidyingOwed(tidying) => tidyings::owe(&transaction, tidying)?,
            Record::TidiedUp { transfer } => tidyings::end(&transaction, *transfer)?,
            Record::Sampled(sample) => insert_sample(&transaction, sample)?,
            Record::MinuteSampled(minute) => minutes::insert(&transaction, minute)?,
        }
    }
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'ledger'";
    let sequence: Option<i64> = transaction
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))
        .optional()?;
    transaction.commit()?;
    Ok(sequence.unwrap_or(0) as u64)
}

fn reprioritise(
    transaction: &Transaction<'_>,
    job: JobId,
    priority: Priority,
) -> rusqlite::Result<()> {
    let id = job.to_string();
    let mut select = transaction.prepare_cached("SELECT parameters FROM job WHERE job_id = ?1")?;
    let found: Option<String> = select.query_row([&id], |row| row.get(0)).optional()?;
    let Some(found) = found else {
        return Ok(());
    };
    let changed = with_priority(&found, priority)
        .map_err(|why| rusqlite::Error::ToSqlConversionFailure(Box::new(why)))?;
    let sql = "UPDATE job SET priority = ?2, parameters = ?3 WHERE job_id = ?1";
    let mut update = transaction.prepare_cached(sql)?;
    update.execute(params![id, priority.get(), changed])?;
    Ok(())
}

fn json<T: serde::Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|why| rusqlite::Error::ToSqlConversionFailure(Box::new(why)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::failing_sync;

    #[test]
    fn removing_history_is_flushed_like_all_that_is_written_after_it() {
        failing_sync::install();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let keys = SealingKeys::of_this_process().expect("OpenSSL works");
        let path = directory.path().join("transfer.sqlite");
        let mut journal = SqliteJournal::open(&path, keys).expect("opens");
        let old = "INSERT INTO pruned_job (job_id) VALUES ('gone')";
        journal.connection.execute(old, []).expect("written");
        let step = PruneStep {
            ended_before: None,
            taken_by_all: 0,
            ended_long_before: None,
            samples_before: None,
            minutes_before: None,
            audit_before: None,
            rows_max: 10,
        };
        failing_sync::fail_syncs(&path, 1);
        let failed = journal.prune(&step);
        assert!(failed.is_err(), "its flush failed: {failed:?}");
        journal.prune(&step).expect("once more");
    }
}
