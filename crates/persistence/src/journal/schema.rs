//! The journal's tables and their migrations. Stored forms are versioned; old versions stay readable.

use rusqlite::{Connection, Transaction};

/// The newest schema this code knows. Each migration raises it by one.
pub(super) const SCHEMA_VERSION: u32 = 1;

const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [
    // 1: the first schema.
    "CREATE TABLE job (
        job_id          TEXT PRIMARY KEY,
        user            TEXT NOT NULL,
        vo              TEXT NOT NULL,
        delegation      TEXT NOT NULL,
        submitted_ms    INTEGER NOT NULL,
        finished_ms     INTEGER,
        final_state     TEXT,
        priority        INTEGER NOT NULL,
        parameters      TEXT NOT NULL,
        source_se       TEXT NOT NULL,
        destination_se  TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX job_open ON job (submitted_ms) WHERE finished_ms IS NULL;
    CREATE INDEX job_ended ON job (finished_ms) WHERE finished_ms IS NOT NULL;
    CREATE TABLE transfer (
        transfer_id     INTEGER PRIMARY KEY,
        job_id          TEXT NOT NULL,
        request         TEXT NOT NULL,
        state_name      TEXT NOT NULL,
        state           TEXT NOT NULL,
        size_bytes      INTEGER,
        started_ms      INTEGER,
        finished_ms     INTEGER
    );
    CREATE INDEX transfer_job ON transfer (job_id);
    CREATE INDEX transfer_open ON transfer (transfer_id) WHERE finished_ms IS NULL;
    CREATE TABLE ledger (
        sequence        INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms           INTEGER NOT NULL,
        monotonic_us    INTEGER NOT NULL,
        job_id          TEXT NOT NULL,
        transfer_id     INTEGER NOT NULL,
        version         INTEGER NOT NULL,
        event           TEXT NOT NULL
    );
    CREATE INDEX ledger_transfer ON ledger (transfer_id);
    CREATE TABLE link_sample (
        at_ms           INTEGER NOT NULL,
        source          TEXT NOT NULL,
        destination     TEXT NOT NULL,
        moved_bytes     INTEGER NOT NULL,
        active          INTEGER NOT NULL,
        slots_limit     INTEGER NOT NULL,
        queued          INTEGER NOT NULL
    );
    CREATE INDEX link_sample_at ON link_sample (at_ms);
    CREATE TABLE credential (
        credential_id   TEXT PRIMARY KEY,
        token           TEXT NOT NULL
    ) WITHOUT ROWID;",
];

/// Brings a database to the newest schema. Returns the version found when it is newer than this code.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<Result<(), u32>> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > SCHEMA_VERSION {
        return Ok(Err(found));
    }
    for version in found..SCHEMA_VERSION {
        let step = connection.transaction()?;
        apply(&step, version)?;
        step.commit()?;
    }
    Ok(Ok(()))
}

fn apply(step: &Transaction<'_>, version: u32) -> rusqlite::Result<()> {
    step.execute_batch(MIGRATIONS[version as usize])?;
    step.pragma_update(None, "user_version", version + 1)
}
