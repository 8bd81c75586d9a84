//! How the namespace's database is opened to be read, and how its integers are ours.

use super::EntryId;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;

/// A connection that can only read.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // Not mapped: a page that the disk cannot read would be a signal that ends the process, not an error.
    connection.execute_batch("PRAGMA cache_size = -16384; PRAGMA mmap_size = 0;")?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

/// An id as SQLite keeps it.
pub(super) fn stored(id: EntryId) -> i64 {
    signed(id.0)
}

/// SQLite knows signed integers only. Ids and sizes stay far below 2^63.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// See [`signed`].
pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// A number of rows as SQL takes it.
pub(super) fn bounded(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
