//! Putting a backup back. What was open when it was made may have ended since, so its jobs are marked: a file that is at
//! its destination, whole, counts as arrived. Numbers that were given since then are leapt over.

use super::restored_files::{copy_of, create, files_of, positions_of, put_aside};
use super::rows::{self, PreparedJournal};
use super::{
    BackupContent, BackupError, BackupFacts, BoxedError, DELEGATION_TABLES, JournalLocation,
    OWN_TABLES, RecordFacts, copy_tables, namespace, read_only, verify, with_suffix,
};
use crate::journal::{LOST_NUMBERS_MAX, sqlite_schema};
use crate::postgres::Database;
use crate::sealing::SealingKeys;
use penstock_durable_file::put_in_place;
use penstock_model::Timestamp;
use rusqlite::{Connection, Transaction, params};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Where a backup is put.
#[derive(Debug, Clone)]
pub struct RestoreTo {
    /// What the service will keep its record in.
    pub kept: JournalLocation,
    /// Files that are there already are kept under other names; otherwise nothing is done when a journal is there.
    pub replaces: bool,
    /// A directory with room for the journal until it is in its database.
    pub scratch: PathBuf,
    pub at: Timestamp,
}

/// What was put back, and what is left to whoever called.
#[derive(Debug, Clone)]
pub struct RestoredBackup {
    /// What the backup holds.
    pub facts: BackupFacts,
    /// Its small files by name.
    pub files: Vec<(String, Vec<u8>)>,
    /// How far each sink of messages was told.
    pub positions: Vec<(String, u64)>,
    /// What was there before, under its new names.
    pub set_aside: Vec<PathBuf>,
}

/// Verifies a backup and puts it back. No service may run on it. When it is interrupted there is no journal yet, and it
/// can be begun again.
pub fn restore(from: &Path, to: &RestoreTo) -> Result<RestoredBackup, BackupError> {
    let facts = verify(from)?;
    let unusable = |why: BoxedError| BackupError::Unusable {
        path: from.display().to_string(),
        why: why.to_string(),
    };
    let of_something_else = |found, wanted| BackupError::OfSomethingElse {
        path: from.display().to_string(),
        found,
        wanted,
    };
    let refuse_existing = |path: &Path| match path.exists() && !to.replaces {
        true => Err(BackupError::Exists {
            path: path.display().to_string(),
        }),
        false => Ok(()),
    };
    match (&to.kept, facts.content) {
        (
            JournalLocation::Files {
                journal,
                delegations,
            },
            BackupContent::Record(record),
        ) => {
            refuse_existing(journal)?;
            put_back(from, journal, delegations, to.at, facts, record).map_err(unusable)
        }
        (JournalLocation::Postgres(database), BackupContent::Record(record)) => {
            put_into(from, database, to, facts, record)
        }
        (JournalLocation::Namespace(database), BackupContent::Namespace(_)) => {
            refuse_existing(database)?;
            namespace::put_back(from, database, to.at, facts).map_err(unusable)
        }
        (JournalLocation::Namespace(_), BackupContent::Record(_)) => {
            Err(of_something_else("a transfer service", "a namespace"))
        }
        (
            JournalLocation::Files { .. } | JournalLocation::Postgres(_),
            BackupContent::Namespace(_),
        ) => Err(of_something_else("a namespace", "a transfer service")),
    }
}

/// Into a database that is empty.
fn put_into(
    from: &Path,
    database: &Database,
    to: &RestoreTo,
    facts: BackupFacts,
    record: RecordFacts,
) -> Result<RestoredBackup, BackupError> {
    let scratch = to.scratch.join("restoring.sqlite");
    let put = on_a_thread(|| {
        let backup = read_only(from)?;
        let (files, positions) = (files_of(&backup)?, positions_of(&backup)?);
        let mut journal = copy_of(from, &scratch)?;
        prepare(&mut journal, to.at, record.sequence)?;
        let keys = SealingKeys::of_this_process()?;
        let newer =
            |found| format!("its journal has schema {found}, newer than this version knows");
        sqlite_schema::migrate(&mut journal, &keys)?.map_err(newer)?;
        let prepared = PreparedJournal {
            journal: &journal,
            backup: &backup,
            positions: &positions,
        };
        rows::write(database, &prepared)?;
        Ok((files, positions))
    });
    let _ = std::fs::remove_file(&scratch);
    let (files, positions) = put.map_err(|why| BackupError::NotTaken {
        database: database.shown().to_string(),
        why: why.to_string(),
    })?;
    Ok(RestoredBackup {
        facts,
        files,
        positions,
        set_aside: Vec::new(),
    })
}

/// The client library of PostgreSQL must not run inside an async runtime: on a thread of its own it cannot.
fn on_a_thread<T: Send>(
    work: impl FnOnce() -> Result<T, BoxedError> + Send,
) -> Result<T, BoxedError> {
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        let done = working.join();
        done.unwrap_or_else(|_| Err("its thread ended unexpectedly".into()))
    })
}

fn put_back(
    from: &Path,
    journal_file: &Path,
    delegations_file: &Path,
    at: Timestamp,
    facts: BackupFacts,
    record: RecordFacts,
) -> Result<RestoredBackup, BoxedError> {
    let backup = read_only(from)?;
    let (files, positions) = (files_of(&backup)?, positions_of(&backup)?);
    let delegations = with_suffix(delegations_file, ".restoring");
    let journal = with_suffix(journal_file, ".restoring");
    let sql = "SELECT value FROM backup WHERE name = 'delegations_schema'";
    let schema: Option<i64> = backup.query_row(sql, [], |row| row.get(0)).ok();
    if let Some(schema) = schema {
        create(&delegations)?;
        let mut made = Connection::open(&delegations)?;
        let add = made.transaction()?;
        copy_tables(&backup, &add, &DELEGATION_TABLES)?;
        add.commit()?;
        made.pragma_update(None, "user_version", schema)?;
        made.close().map_err(|(_, why)| why)?;
        File::open(&delegations)?.sync_all()?;
    }
    drop(backup);
    let mut made = copy_of(from, &journal)?;
    prepare(&mut made, at, record.sequence)?;
    made.close().map_err(|(_, why)| why)?;
    File::open(&journal)?.sync_all()?;
    let mut set_aside = Vec::new();
    for old in [journal_file, delegations_file] {
        set_aside.extend(put_aside(old, at)?);
    }
    if schema.is_some() {
        put_in_place(&delegations, delegations_file)?;
    }
    // Last: what has a journal is whole.
    put_in_place(&journal, journal_file)?;
    Ok(RestoredBackup {
        facts,
        files,
        positions,
        set_aside,
    })
}

/// Makes a journal of the copy of a backup.
fn prepare(journal: &mut Connection, at: Timestamp, sequence: u64) -> rusqlite::Result<()> {
    let change = journal.transaction()?;
    for table in OWN_TABLES.iter().chain(&DELEGATION_TABLES) {
        change.execute_batch(&format!("DROP TABLE IF EXISTS {table}"))?;
    }
    let sql = "UPDATE job SET parameters = json_set(parameters, '$.restored_at', ?1) WHERE finished_ms IS NULL";
    change.execute(sql, [at.0])?;
    forget_tidyings(&change)?;
    change.execute("DELETE FROM sqlite_sequence WHERE name = 'ledger'", [])?;
    let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES ('ledger', ?1)";
    change.execute(sql, [sequence as i64 + LOST_NUMBERS_MAX])?;
    let sql = "INSERT INTO history (name, value)
               SELECT 'transfer_id_max', ?1 + max(coalesce((SELECT max(transfer_id) FROM transfer), 0),
                   coalesce((SELECT value FROM history WHERE name = 'transfer_id_max'), 0))
               WHERE true ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    change.execute(sql, params![LOST_NUMBERS_MAX])?;
    change.commit()
}

/// Nothing is removed anywhere on the word of what was owed then.
fn forget_tidyings(change: &Transaction<'_>) -> rusqlite::Result<()> {
    // A backup of an earlier version has no such table.
    let sql = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'tidying'";
    if change.query_row(sql, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(());
    }
    change.execute_batch(
        "DELETE FROM tidying;
         DELETE FROM credential_use WHERE job_id LIKE 'tidying %';
         DELETE FROM sealed_credential WHERE credential_id NOT IN (SELECT credential_id FROM credential_use);
         DELETE FROM token_renewal WHERE credential_id NOT IN (SELECT credential_id FROM credential_use)",
    )
}

/// The small files in a backup, by name.
pub fn files(backup: &Path) -> Result<Vec<(String, Vec<u8>)>, BackupError> {
    let read = read_only(backup).and_then(|connection| files_of(&connection));
    read.map_err(|why| BackupError::Unusable {
        path: backup.display().to_string(),
        why: why.to_string(),
    })
}
