//! What all writers of SQLite files have in common.

use rusqlite::{Connection, TransactionBehavior};

/// Lets every transaction take the right to write when it begins, and wait for it. One that asks for it later, having read,
/// is refused at once when another connection has it; and a reader that finds the log's index half written takes it for
/// a moment.
pub(crate) fn waits_for_its_turn(connection: &mut Connection) {
    connection.set_transaction_behavior(TransactionBehavior::Immediate);
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
