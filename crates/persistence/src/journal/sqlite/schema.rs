//! The journal's tables and their migrations. Stored forms are versioned; old versions stay readable.

use crate::sealing::{SealingKeys, SecretKind};
use rusqlite::{Connection, Transaction};

/// The newest schema this code knows. Each migration raises it by one.
pub(super) const SCHEMA_VERSION: u32 = 11;

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
    // 2: tokens are sealed, and go with the last open job that refers to them. `seal_tokens` fills the tables.
    "CREATE TABLE sealed_credential (
        credential_id   TEXT PRIMARY KEY,
        sealed          BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE credential_use (
        job_id          TEXT NOT NULL,
        credential_id   TEXT NOT NULL,
        PRIMARY KEY (job_id, credential_id)
    ) WITHOUT ROWID;
    CREATE INDEX credential_use_credential ON credential_use (credential_id);",
    // 3: what operators have set, and each change of it.
    "CREATE TABLE setting (
        setting_key     TEXT PRIMARY KEY,
        version         INTEGER NOT NULL,
        setting         TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE setting_change (
        sequence        INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms           INTEGER NOT NULL,
        user            TEXT NOT NULL,
        action          TEXT NOT NULL,
        setting_key     TEXT NOT NULL,
        version         INTEGER NOT NULL,
        setting_before  TEXT,
        setting_after   TEXT
    );",
    // 4: bans, and each change of them.
    "CREATE TABLE ban (
        kind            TEXT NOT NULL,
        name            TEXT NOT NULL,
        vo              TEXT NOT NULL,
        version         INTEGER NOT NULL,
        ban             TEXT NOT NULL,
        PRIMARY KEY (kind, name, vo)
    ) WITHOUT ROWID;
    CREATE TABLE ban_change (
        sequence        INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms           INTEGER NOT NULL,
        user            TEXT NOT NULL,
        version         INTEGER NOT NULL,
        ban_before      TEXT,
        ban_after       TEXT
    );",
    // 5: what searches begin at, and what became of links.
    "CREATE INDEX job_submitted ON job (submitted_ms);
    CREATE INDEX transfer_failed ON transfer (transfer_id) WHERE state_name = 'FAILED';
    CREATE TABLE link_event (
        sequence        INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms           INTEGER NOT NULL,
        source          TEXT NOT NULL,
        destination     TEXT NOT NULL,
        version         INTEGER NOT NULL,
        event           TEXT NOT NULL
    );
    CREATE INDEX link_event_link ON link_event (source, destination, sequence);",
    // 6: tokens that are renewed at their issuers.
    "CREATE TABLE token_renewal (
        credential_id   TEXT PRIMARY KEY,
        issuer          TEXT NOT NULL,
        scope           TEXT NOT NULL,
        audience        TEXT NOT NULL,
        renew_ms        INTEGER NOT NULL,
        sealed_refresh  BLOB
    ) WITHOUT ROWID;",
    // 7: files on tape: the stage request, and when tape systems were at what.
    "ALTER TABLE transfer ADD COLUMN stage_request TEXT;
    ALTER TABLE transfer ADD COLUMN staging_started_ms INTEGER;
    ALTER TABLE transfer ADD COLUMN staging_finished_ms INTEGER;
    ALTER TABLE transfer ADD COLUMN archiving_started_ms INTEGER;
    ALTER TABLE transfer ADD COLUMN archiving_finished_ms INTEGER;",
    // 8: what history has lost, and up to which entry of the ledger an ended job goes. Of jobs that ended before, it is
    // only known that it is not later than `unknown_end`.
    "ALTER TABLE job ADD COLUMN ended_sequence INTEGER;
    CREATE TABLE history (
        name            TEXT PRIMARY KEY,
        value           INTEGER NOT NULL
    ) WITHOUT ROWID;
    INSERT INTO history (name, value)
        SELECT 'unknown_end', coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'ledger'), 0);
    CREATE TABLE pruned_job (
        job_id          TEXT PRIMARY KEY
    ) WITHOUT ROWID;",
    // 9: how many transfers run on links and at storage elements, as it was decided.
    "CREATE TABLE tuning (
        sequence        INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms           INTEGER NOT NULL,
        source          TEXT NOT NULL,
        destination     TEXT NOT NULL,
        version         INTEGER NOT NULL,
        decision        TEXT NOT NULL
    );
    CREATE INDEX tuning_place ON tuning (source, destination, sequence);",
    // 10: what has to be looked after at destinations of transfers that have ended.
    "CREATE TABLE tidying (
        transfer_id     INTEGER PRIMARY KEY,
        version         INTEGER NOT NULL,
        tidying         TEXT NOT NULL
    );",
    // 11: what was counted in each minute.
    "CREATE TABLE minute_sample (
        at_ms           INTEGER NOT NULL,
        until_ms        INTEGER NOT NULL,
        version         INTEGER NOT NULL,
        packed          BLOB NOT NULL
    );
    CREATE INDEX minute_sample_at ON minute_sample (at_ms);",
];
/// The version from which on no token is stored in clear.
const SEALED_SINCE: u32 = 2;

/// Brings a database to the newest schema. Returns the version found when it is newer than this code.
pub(crate) fn migrate(
    connection: &mut Connection,
    keys: &SealingKeys,
) -> rusqlite::Result<Result<(), u32>> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > SCHEMA_VERSION {
        return Ok(Err(found));
    }
    for version in found..SCHEMA_VERSION {
        let step = connection.transaction()?;
        apply(&step, version, keys)?;
        step.commit()?;
    }
    if (1..SEALED_SINCE).contains(&found) {
        wipe_free_pages(connection);
    }
    Ok(Ok(()))
}

/// Makes the tables of an earlier version. False when there was no such version.
#[cfg(test)]
pub(in crate::journal) fn make_old_schema(
    connection: &mut Connection,
    version: u32,
    keys: &SealingKeys,
) -> bool {
    if version > SCHEMA_VERSION {
        return false;
    }
    for before in 0..version {
        let step = connection.transaction().expect("begins");
        apply(&step, before, keys).expect("made");
        step.commit().expect("made");
    }
    true
}

fn apply(step: &Transaction<'_>, version: u32, keys: &SealingKeys) -> rusqlite::Result<()> {
    step.execute_batch(MIGRATIONS[version as usize])?;
    if version + 1 == SEALED_SINCE {
        seal_tokens(step, keys)?;
    }
    step.pragma_update(None, "user_version", version + 1)
}

/// Seals the tokens that open jobs refer to, and drops the others with the table that held them in clear.
fn seal_tokens(step: &Transaction<'_>, keys: &SealingKeys) -> rusqlite::Result<()> {
    for end in ["source_credential", "destination_credential"] {
        step.execute_batch(&format!(
            "INSERT OR IGNORE INTO credential_use (job_id, credential_id)
             SELECT job.job_id, json_extract(transfer.request, '$.{end}') FROM job JOIN transfer USING (job_id)
             WHERE job.finished_ms IS NULL AND json_extract(transfer.request, '$.{end}') IS NOT NULL"
        ))?;
    }
    let sql = "SELECT credential_id, token FROM credential
               WHERE credential_id IN (SELECT credential_id FROM credential_use)";
    let mut select = step.prepare(sql)?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (id, token): (String, String) = (row.get(0)?, row.get(1)?);
        let sealed = keys
            .seal(SecretKind::Token, &id, token.as_bytes())
            .map_err(|why| rusqlite::Error::ToSqlConversionFailure(Box::new(why)))?;
        let sql = "INSERT INTO sealed_credential (credential_id, sealed) VALUES (?1, ?2)";
        step.execute(sql, (id, sealed))?;
    }
    drop(rows);
    drop(select);
    step.execute_batch("DROP TABLE credential")
}

/// Writes the file anew, because pages that were freed before `secure_delete` was on still hold old tokens. Once in
/// the life of a database; a disk that has no room for it costs only this, and the tokens end by themselves.
fn wipe_free_pages(connection: &Connection) {
    let wiped = connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
    if let Err(why) = wiped {
        tracing::warn!(%why, "free pages of the journal may hold old tokens: `sqlite3 FILE VACUUM` wipes them");
    }
}
