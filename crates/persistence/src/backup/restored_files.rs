//! A backup that is being put back, as files: a copy to work on, what the backup carries beside its database, and what
//! stood in its place before. What is in the database is known elsewhere.

use super::{BoxedError, with_suffix};
use penstock_model::Timestamp;
use rusqlite::Connection;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A copy of a backup that can be written to, at a path that nothing else uses.
pub(super) fn copy_of(backup: &Path, to: &Path) -> Result<Connection, BoxedError> {
    io::copy(&mut File::open(backup)?, &mut create(to)?)?;
    Ok(Connection::open(to)?)
}

pub(super) fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)
}

/// Under another name, with its log if that cannot be written into place because the database is damaged.
pub(crate) fn put_aside(old: &Path, at: Timestamp) -> io::Result<Option<PathBuf>> {
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

/// The files that a backup carries, each with its name.
pub(super) fn files_of(backup: &Connection) -> rusqlite::Result<Vec<(String, Vec<u8>)>> {
    let mut select = backup.prepare("SELECT name, content FROM backup_file ORDER BY name")?;
    let files = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    files.collect()
}

/// How far each sink of messages had read.
pub(super) fn positions_of(backup: &Connection) -> rusqlite::Result<Vec<(String, u64)>> {
    let mut select = backup.prepare("SELECT sink, sequence FROM backup_position ORDER BY sink")?;
    let positions = select.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
    positions.collect()
}
