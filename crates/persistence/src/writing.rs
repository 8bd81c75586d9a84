//! What all writers of SQLite files have in common.

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

/// Lets every transaction take the right to write when it begins, and wait for it. One that asks for it later, having read,
/// is refused at once when another connection has it; and a reader that finds the log's index half written takes it for
/// a moment.
pub(crate) fn waits_for_its_turn(connection: &mut Connection) {
    connection.set_transaction_behavior(TransactionBehavior::Immediate);
}

/// Brings all that the log holds into the database, flushed. To be called before anything is written: a process before may
/// have ended after a flush of the log that failed. What is read of the log then is perhaps in the page cache alone, and no
/// later flush writes it: after a loss of power the log would end there, before all that was acknowledged since.
///
/// On a disk that is full the log stays as it is: what it holds was there before.
pub(crate) fn settle_log(connection: &Connection) -> rusqlite::Result<()> {
    let settled = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
    match settled {
        Ok(0_i64) => Ok(()),
        Ok(_) => Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
            Some("another process reads it for long".to_owned()),
        )),
        Err(why) if why.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
            tracing::warn!(%why, "the log of a database stays long until its disk has room");
            Ok(())
        }
        Err(why) => Err(why),
    }
}

/// Has another connection hold the right to write while something is done.
#[cfg(test)]
pub(crate) fn beside_another_writer<T>(path: &std::path::Path, done: impl FnOnce() -> T) -> T {
    let other = Connection::open(path).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("has it");
    let gives_back = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        other.execute_batch("ROLLBACK").expect("gives it back");
    });
    let what = done();
    gives_back.join().expect("no panic");
    what
}
