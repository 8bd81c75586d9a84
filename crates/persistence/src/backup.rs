//! A backup of what a role of a site keeps, made while it runs: one SQLite file. Of a transfer service it holds the journal
//! as of one entry of the ledger, what users have delegated (sealed as it was), and small files such as the configuration;
//! of a storage element the namespace as of one commit.
//!
//! Of a PostgreSQL, rows are copied ([`rows`]). Of files, pages are copied from a snapshot, at a bounded pace and flushed as they come, on a thread of its own: the
//! writer goes on meanwhile and never waits. What it writes lies in its log until the snapshot is given up; should that
//! grow too long, the copy hurries.

mod file;
mod manifest;
mod namespace;
mod pages;
mod restored_files;
mod restoring;
mod rows;

pub use manifest::Manifest;
pub use namespace::NamespaceFacts;
pub(crate) use restored_files::put_aside;
pub use restoring::{RestoreTo, RestoredBackup, files, restore};

use crate::postgres::Database;
use pages::Log;
use penstock_durable_file::put_in_place;
use penstock_model::Timestamp;
use restored_files::positions_of;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use thiserror::Error;

/// The form of a backup that this version writes and the newest that it reads.
const FORMAT: i64 = 1;
/// Bytes that are copied in a second unless an operator says otherwise. Below what a disk can do, so that others find it
/// free; and not far below, because the journal's log grows until the copy is whole.
pub const BACKUP_BYTES_PER_SECOND: u64 = 200_000_000;
/// Bytes after which what was copied is flushed, so that no flush of the journal waits for much of it.
const FLUSH_EVERY: u64 = 4 << 20;
/// How much less a backup counts than the service where both want a core: about a third (nice(2)). Not much less, because the
/// journal's log grows until it is done.
const NICENESS: i32 = 5;

/// Tables that a backup has besides those of the journal and of the delegations.
const TABLES: &str = "
    CREATE TABLE backup (
        name            TEXT PRIMARY KEY,
        value           INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE backup_file (
        name            TEXT PRIMARY KEY,
        content         BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE backup_position (
        sink            TEXT PRIMARY KEY,
        sequence        INTEGER NOT NULL
    ) WITHOUT ROWID;";
/// Their names.
const OWN_TABLES: [&str; 3] = ["backup", "backup_file", "backup_position"];
const DELEGATION_TABLES: [&str; 4] = ["request", "delegation", "cloud_key", "cloud_upload"];

/// What a service keeps its record in.
#[derive(Debug, Clone)]
pub enum JournalLocation {
    /// Two files of SQLite.
    Files {
        /// The journal's database.
        journal: PathBuf,
        /// The database of what users have delegated; it may be absent.
        delegations: PathBuf,
    },
    Postgres(Box<Database>),
    /// The namespace of a storage element.
    Namespace(PathBuf),
}

/// What goes into a backup.
#[derive(Debug, Clone)]
pub struct BackupOf {
    /// What the service keeps its record in.
    pub kept: JournalLocation,
    /// Small files by name.
    pub files: Vec<(String, Vec<u8>)>,
    /// How far each sink of messages was told, as far as the database does not know.
    pub positions: Vec<(String, u64)>,
    pub at: Timestamp,
    /// How fast it may be copied.
    pub bytes_per_second: u64,
    /// Set to have it given up.
    pub stopped: Arc<AtomicBool>,
}

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupFacts {
    /// When it was begun.
    pub at: Timestamp,
    pub content: BackupContent,
    /// Names of the small files in it.
    pub files: Vec<String>,
    pub size_bytes: u64,
    /// The SHA-256 of all of it, in hexadecimal digits.
    pub sha256: String,
}

/// Of what a backup is, with counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupContent {
    /// The record of a transfer service.
    Record(RecordFacts),
    /// The namespace of a storage element.
    Namespace(NamespaceFacts),
}

/// What a backup of a transfer service holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordFacts {
    /// The last entry of the ledger in it.
    pub sequence: u64,
    /// Jobs, those that are open among them.
    pub jobs: u64,
    pub jobs_open: u64,
    /// Files of jobs.
    pub transfers: u64,
    /// Credentials that users have delegated.
    pub delegations: u64,
}

/// Why a backup could not be made, read or restored.
#[derive(Debug, Error)]
pub enum BackupError {
    /// Reading or writing failed; a full disk arrives here. The service is not concerned.
    #[error(
        "the backup {path} failed: {why}; the running service is not affected, and an earlier backup of that name is unchanged"
    )]
    Failed {
        /// The backup.
        path: String,
        why: String,
    },
    /// The backup itself is whole.
    #[error("the backup is whole, but {path} could not be written: {why}; make the backup again")]
    ManifestNotWritten {
        /// The manifest.
        path: String,
        why: String,
    },
    /// It is no backup, or a damaged one.
    #[error("{path} is not a usable backup: {why}")]
    Unusable {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The database that was to get it cannot.
    #[error("{database} cannot take the backup: {why}; nothing was changed")]
    NotTaken {
        /// The database's address.
        database: String,
        /// What is in the way.
        why: String,
    },
    /// It holds something else than what was to be put back.
    #[error("{path} is a backup of {found}, not of {wanted}")]
    OfSomethingElse {
        /// The file.
        path: String,
        /// What it holds.
        found: &'static str,
        /// What was to be put back.
        wanted: &'static str,
    },
    /// What would be overwritten is there.
    #[error(
        "{path} exists: restore into an empty directory, or with --replace, which keeps it under another name"
    )]
    Exists { path: String },
}

/// Makes a file of a backup. It appears under its name when it is whole, verified and durable; until then, and after a
/// failure, what had that name stays. A manifest of what had that name goes with it; who has all files of the backup
/// writes the new one. Blocks for as long as its size and pace take.
pub fn back_up(of: &BackupOf, to: &Path) -> Result<BackupFacts, BackupError> {
    let failed = |why: String| BackupError::Failed {
        path: to.display().to_string(),
        why,
    };
    // A thread of its own, because who is not root cannot make one as important again as it was; and no async runtime,
    // inside which PostgreSQL's client library must not run, has anything to do with it.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("backup".to_owned());
        let making = thread.spawn_scoped(scope, || {
            // Where that is refused, it only costs the service a little.
            let _ = rustix::process::setpriority_process(None, NICENESS);
            make(of, to)
        });
        let making = making.map_err(|why| failed(why.to_string()))?;
        making
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn make(of: &BackupOf, to: &Path) -> Result<BackupFacts, BackupError> {
    let failed = |why: String| BackupError::Failed {
        path: to.display().to_string(),
        why,
    };
    let part = with_suffix(to, ".part");
    let made = copy_all(of, &part).map_err(|why| failed(why.to_string()));
    // One that is damaged takes no other one's place.
    let made = made.and_then(|()| verify(&part));
    let moved = made.and_then(|facts| {
        // That of the backup before would say that this one is damaged.
        match std::fs::remove_file(Manifest::path_of(to)) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => Err(why),
            Ok(()) | Err(_) => put_in_place(&part, to).map(|()| facts),
        }
        .map_err(|why| failed(why.to_string()))
    });
    if moved.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    moved
}

/// Reads all of a backup: every page, every index, and that what its parts say of each other holds.
pub fn verify(path: &Path) -> Result<BackupFacts, BackupError> {
    let unusable = |why: String| BackupError::Unusable {
        path: path.display().to_string(),
        why,
    };
    let facts = look(path)?;
    let connection = read_only(path).map_err(|why| unusable(why.to_string()))?;
    let told: String = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(|why| unusable(why.to_string()))?;
    if told != "ok" {
        return Err(unusable(told));
    }
    let number = |sql: &str| {
        let found = connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        found.map_err(|why| unusable(why.to_string()))
    };
    match facts.content {
        BackupContent::Record(record) => {
            if number("SELECT coalesce(max(sequence), 0) FROM ledger")? as u64 > record.sequence {
                return Err(unusable("its ledger goes further than it says".to_owned()));
            }
            let lost = "SELECT count(*) FROM job WHERE finished_ms IS NULL
                        AND NOT EXISTS (SELECT 1 FROM transfer WHERE transfer.job_id = job.job_id)";
            if number(lost)? > 0 {
                return Err(unusable("open jobs in it have no files".to_owned()));
            }
        }
        BackupContent::Namespace(_) => {
            if number(namespace::WITHOUT_DIRECTORY)? > 0 {
                return Err(unusable("files in it are in no directory".to_owned()));
            }
        }
    }
    // What this program makes has none; they would act in the service's name.
    if number("SELECT count(*) FROM sqlite_master WHERE type NOT IN ('table', 'index')")? > 0 {
        return Err(unusable("it holds triggers or views".to_owned()));
    }
    let positions = positions_of(&connection).map_err(|why| unusable(why.to_string()))?;
    match positions.iter().find(|(sink, _)| !is_plain(sink)) {
        Some((sink, _)) => Err(unusable(format!(
            "it names a message sink {sink:?}, which is not a valid name"
        ))),
        None => Ok(facts),
    }
}

/// A name that stays in the directory in which its file is made.
fn is_plain(sink: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    !sink.is_empty() && !sink.starts_with('.') && sink.chars().all(plain)
}

/// What it says of itself, with its counts and its digest.
fn look(path: &Path) -> Result<BackupFacts, BackupError> {
    let unusable = |why: String| BackupError::Unusable {
        path: path.display().to_string(),
        why,
    };
    let sha256 = manifest::sha256_of(path).map_err(|why| unusable(why.to_string()))?;
    let read = || -> rusqlite::Result<(Option<i64>, BackupFacts)> {
        let connection = read_only(path)?;
        let named = |name: &str| {
            let sql = "SELECT value FROM backup WHERE name = ?1";
            let value = connection.query_row(sql, [name], |row| row.get::<_, i64>(0));
            value.optional()
        };
        let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let mut names = connection.prepare("SELECT name FROM backup_file ORDER BY name")?;
        let files = names.query_map([], |row| row.get(0))?;
        let content = match named(namespace::SCHEMA_FACT)? {
            Some(_) => BackupContent::Namespace(namespace::look(&connection)?),
            None => BackupContent::Record(RecordFacts {
                sequence: named("sequence")?.unwrap_or_default() as u64,
                jobs: count("SELECT count(*) FROM job")? as u64,
                jobs_open: count("SELECT count(*) FROM job WHERE finished_ms IS NULL")? as u64,
                transfers: count("SELECT count(*) FROM transfer")? as u64,
                delegations: count("SELECT count(*) FROM delegation")? as u64,
            }),
        };
        let facts = BackupFacts {
            at: Timestamp(named("at_ms")?.unwrap_or_default()),
            content,
            files: files.collect::<rusqlite::Result<_>>()?,
            size_bytes: std::fs::metadata(path).map_or(0, |found| found.len()),
            sha256: sha256.clone(),
        };
        Ok((named("format")?, facts))
    };
    match read().map_err(|why| unusable(why.to_string()))? {
        (Some(FORMAT), facts) => Ok(facts),
        (found, _) => Err(unusable(format!(
            "it has form {}, this version knows {FORMAT}",
            found.unwrap_or(0)
        ))),
    }
}

fn read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    Ok(connection)
}

/// What went wrong, whatever it was.
type BoxedError = Box<dyn std::error::Error + Send + Sync>;

fn copy_all(of: &BackupOf, part: &Path) -> Result<(), BoxedError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(part)?;
    let (mut copy, own_facts, positions) = match &of.kept {
        JournalLocation::Files {
            journal,
            delegations,
        } => {
            let (copy, sequence, schema) = copy_files(journal, delegations, part, of)?;
            let facts = [("sequence", Some(sequence)), ("delegations_schema", schema)];
            (copy, facts, of.positions.clone())
        }
        JournalLocation::Postgres(database) => {
            let mut copy = writable(part)?;
            let read = rows::read(database, &mut copy, &file, of)?;
            let schema = Some(read.delegations_schema);
            let facts = [
                ("sequence", Some(read.sequence)),
                ("delegations_schema", schema),
            ];
            (copy, facts, read.positions)
        }
        JournalLocation::Namespace(database) => {
            let (copy, schema) = namespace::copy(database, part, of)?;
            let facts = [(namespace::SCHEMA_FACT, Some(schema)), ("sequence", None)];
            (copy, facts, Vec::new())
        }
    };
    let add = copy.transaction()?;
    add.execute_batch(TABLES)?;
    let facts = [("format", Some(FORMAT)), ("at_ms", Some(of.at.0))];
    for (name, value) in facts.into_iter().chain(own_facts) {
        let sql = "INSERT INTO backup (name, value) SELECT ?1, ?2 WHERE ?2 IS NOT NULL";
        add.execute(sql, params![name, value])?;
    }
    for (name, content) in &of.files {
        let sql = "INSERT INTO backup_file (name, content) VALUES (?1, ?2)";
        add.execute(sql, params![name, content])?;
    }
    for (sink, sequence) in &positions {
        let sql = "INSERT INTO backup_position (sink, sequence) VALUES (?1, ?2)";
        add.execute(sql, params![sink, *sequence as i64])?;
    }
    add.commit()?;
    copy.close().map_err(|(_, why)| why)?;
    file.sync_all()?;
    Ok(())
}

/// A backup that is being made: what happens to it until it is whole does not matter.
fn writable(part: &Path) -> rusqlite::Result<Connection> {
    let copy = Connection::open(part)?;
    copy.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -2048",
    )?;
    Ok(copy)
}

/// Copies both databases. Returns the copy, the last entry of the ledger and the schema of the delegations, if there are any.
fn copy_files(
    journal_file: &Path,
    delegations: &Path,
    part: &Path,
    of: &BackupOf,
) -> Result<(Connection, i64, Option<i64>), BoxedError> {
    let journal = read_only(journal_file)?;
    let delegations = delegations.exists().then(|| read_only(delegations));
    let delegations = delegations.transpose()?;
    // The snapshots, at the same instant as near as can be.
    journal.execute_batch("BEGIN")?;
    let sequence: Option<i64> = journal.query_row(
        "SELECT max(seq) FROM sqlite_sequence WHERE name = 'ledger'",
        [],
        |row| row.get(0),
    )?;
    let log = Log::of(journal_file);
    pages::copy(&journal, journal_file, &log, part, of)?;
    journal.execute_batch("COMMIT")?;
    // What has piled up is written into place here, and not by the next commit.
    log.write_into_place();
    let mut copy = writable(part)?;
    let schema = match &delegations {
        Some(delegations) => {
            let add = copy.transaction()?;
            copy_tables(delegations, &add, &DELEGATION_TABLES)?;
            add.commit()?;
            Some(delegations.pragma_query_value(None, "user_version", |row| row.get(0))?)
        }
        None => {
            copy.execute_batch("CREATE TABLE delegation (delegation_id TEXT PRIMARY KEY)")?;
            None
        }
    };
    Ok((copy, sequence.unwrap_or(0), schema))
}

/// Makes tables as they are in one database in another one, with all rows.
fn copy_tables(from: &Connection, to: &Connection, tables: &[&str]) -> rusqlite::Result<()> {
    let snapshot = from.unchecked_transaction()?;
    for table in tables {
        let sql = "SELECT sql FROM sqlite_master WHERE tbl_name = ?1 AND sql IS NOT NULL ORDER BY type DESC";
        let mut made = snapshot.prepare(sql)?;
        let statements = made.query_map([table], |row| row.get::<_, String>(0))?;
        for statement in statements {
            // A damaged one may hold more than one.
            to.execute(&statement?, [])?;
        }
        let mut select = snapshot.prepare(&format!("SELECT * FROM {table}"))?;
        let columns = select.column_count();
        let places: Vec<String> = (1..=columns).map(|number| format!("?{number}")).collect();
        let insert = format!("INSERT INTO {table} VALUES ({})", places.join(", "));
        let mut insert = to.prepare(&insert)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let values: rusqlite::Result<Vec<rusqlite::types::Value>> =
                (0..columns).map(|column| row.get(column)).collect();
            insert.execute(rusqlite::params_from_iter(values?))?;
        }
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests;
