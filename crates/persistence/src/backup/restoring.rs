//! Putting a backup back. What was open when it was made may have ended since, so its jobs are marked: a file that is at
//! its destination, whole, counts as arrived. Numbers that were given since then are leapt over.

use super::{
    BackupError, BackupFacts, DELEGATION_TABLES, Failed, OWN_TABLES, copy_tables, put_in_place,
    read_only, verify, with_suffix,
};
use penstock_model::Timestamp;
use rusqlite::{Connection, params};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Numbers of transfers and of entries that may have been given since the backup was made.
const GAP: i64 = 1_000_000_000;

/// Where a backup is put.
#[derive(Debug, Clone)]
pub struct RestoreTo {
    /// The journal's database.
    pub journal: PathBuf,
    /// The database of what users have delegated.
    pub delegations: PathBuf,
    /// What is there already is kept under another name; otherwise nothing is done when a journal is there.
    pub replaces: bool,
    /// Now.
    pub at: Timestamp,
}

/// What was put back, and what is left to whoever called.
#[derive(Debug, Clone)]
pub struct Restored {
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
pub fn restore(from: &Path, to: &RestoreTo) -> Result<Restored, BackupError> {
    let facts = verify(from)?;
    if to.journal.exists() && !to.replaces {
        return Err(BackupError::Exists {
            path: to.journal.display().to_string(),
        });
    }
    put_back(from, to, facts).map_err(|why| BackupError::Unusable {
        path: from.display().to_string(),
        why: why.to_string(),
    })
}

fn put_back(from: &Path, to: &RestoreTo, facts: BackupFacts) -> Result<Restored, Failed> {
    let backup = read_only(from)?;
    let (files, positions) = (files_of(&backup)?, positions_of(&backup)?);
    let delegations = with_suffix(&to.delegations, ".restoring");
    let journal = with_suffix(&to.journal, ".restoring");
    let sql = "SELECT value FROM backup WHERE name = 'delegations_schema'";
    let schema: Option<i64> = backup.query_row(sql, [], |row| row.get(0)).ok();
    if let Some(schema) = schema {
        create(&delegations)?;
        let made = Connection::open(&delegations)?;
        copy_tables(&backup, &made, &DELEGATION_TABLES)?;
        made.pragma_update(None, "user_version", schema)?;
        made.close().map_err(|(_, why)| why)?;
        File::open(&delegations)?.sync_all()?;
    }
    drop(backup);
    let mut source = File::open(from)?;
    io::copy(&mut source, &mut create(&journal)?)?;
    let mut made = Connection::open(&journal)?;
    prepare(&mut made, to.at, facts.sequence)?;
    made.close().map_err(|(_, why)| why)?;
    File::open(&journal)?.sync_all()?;
    let mut set_aside = Vec::new();
    for old in [&to.journal, &to.delegations] {
        set_aside.extend(put_aside(old, to.at)?);
    }
    if schema.is_some() {
        put_in_place(&delegations, &to.delegations)?;
    }
    // Last: what has a journal is whole.
    put_in_place(&journal, &to.journal)?;
    Ok(Restored {
        facts,
        files,
        positions,
        set_aside,
    })
}

/// Under another name, with its log if that cannot be written into place because the database is damaged.
fn put_aside(old: &Path, at: Timestamp) -> io::Result<Option<PathBuf>> {
    if !old.exists() {
        return Ok(None);
    }
    let whole = Connection::open(old)
        .and_then(|old| old.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
    if let Err(why) = whole {
        tracing::debug!(%why, "what is set aside keeps its log");
    }
    let aside = with_suffix(old, &format!(".before-{}", at.0));
    // SQLite finds a log by the name of its database.
    for suffix in ["-wal", "-shm", ""] {
        let part = with_suffix(old, suffix);
        if part.exists() {
            std::fs::rename(&part, with_suffix(&aside, suffix))?;
        }
    }
    Ok(Some(aside))
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)
}

/// Makes a journal of the copy of a backup.
fn prepare(journal: &mut Connection, at: Timestamp, sequence: u64) -> rusqlite::Result<()> {
    let change = journal.transaction()?;
    for table in OWN_TABLES.iter().chain(&DELEGATION_TABLES) {
        change.execute_batch(&format!("DROP TABLE IF EXISTS {table}"))?;
    }
    let sql = "UPDATE job SET parameters = json_set(parameters, '$.restored_at', ?1) WHERE finished_ms IS NULL";
    change.execute(sql, [at.0])?;
    change.execute("DELETE FROM sqlite_sequence WHERE name = 'ledger'", [])?;
    let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES ('ledger', ?1)";
    change.execute(sql, [sequence as i64 + GAP])?;
    let sql = "INSERT INTO history (name, value)
               SELECT 'transfer_id_max', ?1 + max(coalesce((SELECT max(transfer_id) FROM transfer), 0),
                   coalesce((SELECT value FROM history WHERE name = 'transfer_id_max'), 0))
               WHERE true ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    change.execute(sql, params![GAP])?;
    change.commit()
}

/// The small files in a backup, by name.
pub fn files(backup: &Path) -> Result<Vec<(String, Vec<u8>)>, BackupError> {
    let read = read_only(backup).and_then(|connection| files_of(&connection));
    read.map_err(|why| BackupError::Unusable {
        path: backup.display().to_string(),
        why: why.to_string(),
    })
}

fn files_of(backup: &Connection) -> rusqlite::Result<Vec<(String, Vec<u8>)>> {
    let mut select = backup.prepare("SELECT name, content FROM backup_file ORDER BY name")?;
    let files = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    files.collect()
}

fn positions_of(backup: &Connection) -> rusqlite::Result<Vec<(String, u64)>> {
    let mut select = backup.prepare("SELECT sink, sequence FROM backup_position ORDER BY sink")?;
    let positions = select.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
    positions.collect()
}
