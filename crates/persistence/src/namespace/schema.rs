//! The stored form of a namespace, versioned, and what a run learns from it when it starts.

use super::NamespaceError;
use super::connection::{signed, unsigned};
use crate::writing::settle_log;
use penstock_clock::wall_clock;
use rusqlite::{Connection, OptionalExtension, params};
use std::ops::Range;
use std::path::Path;
use uuid::Uuid;

/// The stored form that this program writes. Raise it with a migration and a test with an old database.
pub(super) const SCHEMA_VERSION: u32 = 13;

/// Begins the name of what the `meta` table says of a pool.
pub(super) const POOL_KEY: &str = "pool.";

/// The first version. `kind` is 0 for a directory and 1 for a file. `parent` of the root is 0, which is no entry.
const TABLES: &str = "
CREATE TABLE entry (
    id INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    modified_ms INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    owner TEXT,
    pool TEXT,
    UNIQUE (parent, name)
);
CREATE TABLE checksum (
    entry INTEGER NOT NULL,
    algorithm TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (entry, algorithm)
) WITHOUT ROWID;
CREATE TABLE trash (
    file_id INTEGER PRIMARY KEY,
    pool TEXT NOT NULL,
    size_bytes INTEGER NOT NULL
);
CREATE TABLE pool_usage (
    pool TEXT PRIMARY KEY,
    files INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE mover_record (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    peer TEXT NOT NULL,
    user TEXT,
    vo TEXT,
    pool TEXT,
    moved_bytes INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    stages TEXT NOT NULL,
    tcp TEXT,
    selection TEXT NOT NULL,
    outcome TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
";

/// From version 1 to 2: properties of clients, and locks. `properties` is 1 for an entry that has any.
const SECOND_VERSION: &str = "
ALTER TABLE entry ADD COLUMN properties INTEGER NOT NULL DEFAULT 0;
CREATE TABLE property (
    entry INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    element TEXT NOT NULL,
    PRIMARY KEY (entry, namespace, name)
) WITHOUT ROWID;
CREATE TABLE lock (
    token TEXT PRIMARY KEY,
    path TEXT NOT NULL,
    tree INTEGER NOT NULL,
    exclusive INTEGER NOT NULL,
    user TEXT NOT NULL,
    owner TEXT NOT NULL,
    expires_ms INTEGER NOT NULL
) WITHOUT ROWID;
";

/// From version 2 to 3: with which macaroon a lock was taken. Locks of before count as taken without one.
const THIRD_VERSION: &str = "
ALTER TABLE lock ADD COLUMN macaroon TEXT;
";

/// From version 3 to 4: whether the label of a file's data tells where the file is; trash that can be made visible again;
/// the last number of the directory logs. Labels of before tell a path that may have changed since.
const FOURTH_VERSION: &str = "
ALTER TABLE entry ADD COLUMN labelled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trash ADD COLUMN removed_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trash ADD COLUMN path TEXT;
ALTER TABLE trash ADD COLUMN owner TEXT;
ALTER TABLE trash ADD COLUMN details TEXT;
CREATE INDEX trash_by_time ON trash (removed_ms, file_id);
INSERT INTO meta VALUES ('log_sequence', '0');
";

/// From version 4 to 5: the trash of one pool is found by its age, and counted, without reading its rows.
const FIFTH_VERSION: &str = "
CREATE INDEX trash_by_pool ON trash (pool, removed_ms, file_id, size_bytes);
";

/// From version 5 to 6: the trash of all pools is listed by that of each. One index less is written with each removal.
const SIXTH_VERSION: &str = "
DROP INDEX trash_by_time;
";

/// From version 6 to 7: trash in the order in which it was removed, so that a removal adds to the end of the table; with
/// ids of files in front, rows of files removed in another order than they were written filled four pages instead of one.
/// Details have a shorter form, which programs of before do not read; that of before is still read. What nearly each
/// transaction counts stands in one table, so that it writes one page for all of it. Movers tell their copy and the
/// size of the file.
const SEVENTH_VERSION: &str = "
ALTER TABLE trash RENAME TO trash_before;
CREATE TABLE trash (
    place INTEGER PRIMARY KEY,
    file_id INTEGER NOT NULL UNIQUE,
    pool TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    removed_ms INTEGER NOT NULL,
    path TEXT,
    owner TEXT,
    details TEXT
);
INSERT INTO trash SELECT NULL, * FROM trash_before ORDER BY removed_ms, file_id;
DROP TABLE trash_before;
CREATE INDEX trash_by_pool ON trash (pool, removed_ms, file_id, size_bytes);
CREATE TABLE counter (name TEXT NOT NULL, pool TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (name, pool)) WITHOUT ROWID;
INSERT INTO counter SELECT 'files', pool, files FROM pool_usage UNION ALL SELECT 'bytes', pool, size_bytes FROM pool_usage;
INSERT INTO counter SELECT key, '', CAST(value AS INTEGER) FROM meta WHERE key = 'log_sequence';
DELETE FROM meta WHERE key = 'log_sequence';
DROP TABLE pool_usage;
ALTER TABLE mover_record ADD COLUMN copy TEXT;
ALTER TABLE mover_record ADD COLUMN file_bytes INTEGER;
";

/// From version 7 to 8: the ledger. `sequence` is the number of the last of the things that a row holds.
const EIGHTH_VERSION: &str = "
CREATE TABLE ledger (
    sequence INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    records INTEGER NOT NULL,
    packed BLOB NOT NULL
);
INSERT INTO counter VALUES ('ledger_records', '', 0);
ALTER TABLE mover_record ADD COLUMN challenge TEXT;
";

/// From version 8 to 9: what the pools did in each minute.
const NINTH_VERSION: &str = "
CREATE TABLE pool_minute (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    from_ms INTEGER NOT NULL,
    to_ms INTEGER NOT NULL,
    pools TEXT NOT NULL
);
CREATE INDEX pool_minute_by_time ON pool_minute (from_ms);
";

/// From version 9 to 10: files on tape. `archival` is the place in `Archival::ALL`; a file without a pool is on tape only.
const TENTH_VERSION: &str = "
ALTER TABLE entry ADD COLUMN archival INTEGER NOT NULL DEFAULT 0;
CREATE INDEX precious_entry ON entry (id) WHERE archival = 1;
CREATE TABLE tape_copy (
    entry INTEGER NOT NULL,
    number INTEGER NOT NULL,
    uri TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (entry, number)
) WITHOUT ROWID;
CREATE INDEX tape_copy_by_uri ON tape_copy (uri);
CREATE TABLE tape_removal (
    uri TEXT PRIMARY KEY,
    not_before_ms INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    file TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX tape_removal_by_time ON tape_removal (not_before_ms);
CREATE TABLE tape_journal (sequence INTEGER PRIMARY KEY AUTOINCREMENT, record TEXT NOT NULL);
CREATE TABLE stage_request (
    id TEXT PRIMARY KEY,
    user TEXT,
    vo TEXT,
    created_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE stage_file (
    request TEXT NOT NULL,
    number INTEGER NOT NULL,
    path TEXT NOT NULL,
    entry INTEGER,
    pin_until_ms INTEGER,
    pin_ms INTEGER NOT NULL,
    state INTEGER NOT NULL,
    error TEXT,
    started_ms INTEGER,
    finished_ms INTEGER,
    PRIMARY KEY (request, number)
) WITHOUT ROWID;
CREATE INDEX stage_file_by_entry ON stage_file (entry, state, pin_until_ms);
CREATE INDEX stage_file_waiting ON stage_file (entry) WHERE state < 2;
CREATE INDEX stage_request_by_time ON stage_request (created_ms);
CREATE INDEX stage_request_by_user ON stage_request (user);
";

/// From version 10 to 11: what stage requests keep on disk, by user (`kind` 0) and VO (1). A file is held while it waits or is
/// pinned, once for all requests of a holder.
const ELEVENTH_VERSION: &str = "
ALTER TABLE stage_file ADD COLUMN code TEXT;
CREATE INDEX stage_file_by_pin_end ON stage_file (pin_until_ms) WHERE pin_until_ms IS NOT NULL;
CREATE TABLE held_file (
    kind INTEGER NOT NULL,
    holder TEXT NOT NULL,
    entry INTEGER NOT NULL,
    times INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    PRIMARY KEY (kind, holder, entry)
) WITHOUT ROWID;
CREATE TABLE held_sum (
    kind INTEGER NOT NULL,
    holder TEXT NOT NULL,
    files INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    PRIMARY KEY (kind, holder)
) WITHOUT ROWID;
INSERT INTO held_file
    SELECT 0, user, stage_file.entry, count(*), size_bytes
    FROM stage_file JOIN stage_request ON stage_request.id = request JOIN entry ON entry.id = stage_file.entry
    WHERE user IS NOT NULL AND (state < 2 OR pin_until_ms IS NOT NULL) GROUP BY user, stage_file.entry;
INSERT INTO held_file
    SELECT 1, vo, stage_file.entry, count(*), size_bytes
    FROM stage_file JOIN stage_request ON stage_request.id = request JOIN entry ON entry.id = stage_file.entry
    WHERE vo IS NOT NULL AND (state < 2 OR pin_until_ms IS NOT NULL) GROUP BY vo, stage_file.entry;
INSERT INTO held_sum SELECT kind, holder, count(*), sum(size_bytes) FROM held_file GROUP BY kind, holder;
";

/// From version 11 to 12: data sets of files on tape, what clients said of them, and for what files are asked from tape.
const TWELFTH_VERSION: &str = "
CREATE TABLE archive_word (
    entry INTEGER PRIMARY KEY,
    metadata TEXT,
    submission TEXT,
    challenge TEXT
);
CREATE INDEX archive_word_by_submission ON archive_word (submission) WHERE submission IS NOT NULL;
CREATE TABLE data_set (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    family TEXT NOT NULL,
    levels TEXT NOT NULL,
    source TEXT NOT NULL,
    expected_files INTEGER,
    expected_bytes INTEGER,
    first_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    UNIQUE (family, levels)
);
CREATE INDEX data_set_by_time ON data_set (last_ms, id);
CREATE TABLE data_set_file (
    entry INTEGER PRIMARY KEY,
    data_set INTEGER NOT NULL,
    activity TEXT,
    challenge TEXT
);
CREATE INDEX data_set_file_by_set ON data_set_file (data_set);
CREATE TABLE hint_count (
    sender TEXT NOT NULL,
    hint TEXT NOT NULL,
    files INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    PRIMARY KEY (sender, hint)
) WITHOUT ROWID;
ALTER TABLE stage_file ADD COLUMN activity TEXT;
ALTER TABLE stage_request ADD COLUMN challenge TEXT;
";

/// From version 12 to 13: what stage requests take to be kept, and of each how many of its files are held; what is held by all
/// together (`kind` 2); and an index that tells what files for tape take on disk.
const THIRTEENTH_VERSION: &str = "
ALTER TABLE stage_request ADD COLUMN files INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stage_request ADD COLUMN text_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stage_request ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stage_request ADD COLUMN is_of_reader INTEGER NOT NULL DEFAULT 0;
UPDATE stage_request SET
    files = (SELECT count(*) FROM stage_file WHERE request = id),
    text_bytes = (SELECT coalesce(sum(length(CAST(path AS BLOB))), 0) FROM stage_file WHERE request = id),
    held = (SELECT count(*) FROM stage_file
            WHERE request = id AND entry IS NOT NULL AND (state < 2 OR pin_until_ms IS NOT NULL));
CREATE INDEX tape_file_on_disk ON entry (size_bytes) WHERE archival > 0 AND pool IS NOT NULL;
DROP INDEX stage_request_by_time;
DROP INDEX stage_request_by_user;
CREATE INDEX stage_request_over ON stage_request (created_ms) WHERE held = 0;
CREATE INDEX stage_request_of_user_over ON stage_request (user, created_ms) WHERE held = 0;
CREATE TABLE stage_kept (
    user TEXT PRIMARY KEY,
    requests INTEGER NOT NULL,
    files INTEGER NOT NULL,
    text_bytes INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO stage_kept SELECT user, count(*), sum(files), sum(text_bytes) FROM stage_request
    WHERE user IS NOT NULL GROUP BY user;
INSERT INTO held_file
    SELECT 2, '', stage_file.entry, count(*), size_bytes
    FROM stage_file JOIN entry ON entry.id = stage_file.entry
    WHERE state < 2 OR pin_until_ms IS NOT NULL GROUP BY stage_file.entry;
INSERT INTO held_sum SELECT kind, holder, count(*), sum(size_bytes) FROM held_file WHERE kind = 2 GROUP BY kind, holder;
";

/// From each version to the next.
const STEPS: [&str; 12] = [
    SECOND_VERSION,
    THIRD_VERSION,
    FOURTH_VERSION,
    FIFTH_VERSION,
    SIXTH_VERSION,
    SEVENTH_VERSION,
    EIGHTH_VERSION,
    NINTH_VERSION,
    TENTH_VERSION,
    ELEVENTH_VERSION,
    TWELFTH_VERSION,
    THIRTEENTH_VERSION,
];

/// What a namespace says of itself.
pub(super) struct Identity {
    pub uuid: Uuid,
    /// See [`super::Namespace::low_water`].
    pub low_water: u64,
    /// Every id that was ever committed is smaller than this.
    pub ids_below: u64,
    /// The last number of the directory logs.
    pub log_sequence: u64,
    /// Since it was restored from a backup: ids that files may have got of which it does not know.
    pub restored_ids: Option<Range<u64>>,
    /// Which restore that was.
    pub restore_id: Option<Uuid>,
}

/// Sets the connection up for durable group commits, makes missing tables, and reads the identity.
pub(super) fn prepare(connection: &Connection, path: &Path) -> Result<Identity, NamespaceError> {
    let fail = |source| NamespaceError::Database {
        path: path.to_owned(),
        source,
    };
    // FULL: a commit is on the disk before it is answered. A larger checkpoint interval makes commits
    // cheaper; the log stays below some 64 MiB.
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000;
             PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY;",
        )
        .map_err(fail)?;
    settle_log(connection).map_err(fail)?;
    let version: u32 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(fail)?;
    match version {
        0 => create(connection).map_err(fail)?,
        1..SCHEMA_VERSION => raise(connection, &STEPS[version as usize - 1..]).map_err(fail)?,
        SCHEMA_VERSION => {}
        found => {
            return Err(NamespaceError::Newer {
                path: path.to_owned(),
                found,
                known: SCHEMA_VERSION,
            });
        }
    }
    identity(connection, path)
}

/// Brings an older version up to date, as a whole or not at all. Costs no more than its trash is large.
fn raise(connection: &Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    for step in steps {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    let now = wall_clock();
    let transaction = connection.unchecked_transaction()?;
    transaction.execute_batch(TABLES)?;
    for step in STEPS {
        transaction.execute_batch(step)?;
    }
    transaction.execute(
        "INSERT INTO entry VALUES (1, 0, '', 0, 0, ?1, ?1, NULL, NULL, 0, 0, 0)",
        params![now.0],
    )?;
    let uuid = Uuid::new_v4().to_string();
    for (key, value) in [
        ("uuid", uuid.as_str()),
        ("low_water", "2"),
        ("ids_below", "2"),
    ] {
        set_meta(&transaction, key, value)?;
    }
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}

fn identity(connection: &Connection, path: &Path) -> Result<Identity, NamespaceError> {
    let text = |key: &str| {
        connection
            .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| {
                row.get::<_, String>(0)
            })
            .optional()
            .map_err(|source| NamespaceError::Database {
                path: path.to_owned(),
                source,
            })
    };
    let corrupt = |what: &str| NamespaceError::Corrupt {
        path: path.to_owned(),
        what: format!("meta '{what}'"),
    };
    let number = |key: &'static str| {
        text(key)?
            .and_then(|value| value.parse::<u64>().ok())
            .ok_or_else(|| corrupt(key))
    };
    Ok(Identity {
        uuid: text("uuid")?
            .and_then(|value| Uuid::parse_str(&value).ok())
            .ok_or_else(|| corrupt("uuid"))?,
        low_water: number("low_water")?,
        ids_below: number("ids_below")?,
        log_sequence: log_sequence(connection).map_err(|source| NamespaceError::Database {
            path: path.to_owned(),
            source,
        })?,
        restored_ids: match text(RESTORED_FROM)? {
            Some(_) => Some(number(RESTORED_FROM)?..number(RESTORED_BELOW)?),
            None => None,
        },
        restore_id: match text(RESTORE_ID)? {
            Some(id) => Some(Uuid::parse_str(&id).map_err(|_| corrupt(RESTORE_ID))?),
            None => None,
        },
    })
}

/// The keys of [`Identity::restored_ids`], which a restore writes.
const RESTORED_FROM: &str = "restored_from";
const RESTORED_BELOW: &str = "restored_below";
/// The key of [`Identity::restore_id`]. Namespaces that earlier versions restored lack it.
const RESTORE_ID: &str = "restore_id";
/// The last number of the directory logs.
pub(super) fn log_sequence(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT value FROM counter WHERE name = 'log_sequence'";
    let value: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(unsigned(value))
}

/// Writes it.
pub(super) fn set_log_sequence(connection: &Connection, value: u64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE counter SET value = ?1 WHERE name = 'log_sequence'")?
        .execute([signed(value)])?;
    Ok(())
}

/// Adds to what a pool holds.
pub(super) fn add_to_pool(
    connection: &Connection,
    pool: &str,
    files: i64,
    bytes: i64,
) -> rusqlite::Result<()> {
    let mut add = connection.prepare_cached(
        "INSERT INTO counter VALUES (?1, ?2, ?3) ON CONFLICT (name, pool) DO UPDATE SET value = value + ?3",
    )?;
    add.execute(params!["files", pool, files])?;
    add.execute(params!["bytes", pool, bytes])?;
    Ok(())
}

/// What each pool holds that ever held a file.
pub(super) const POOL_USAGE: &str = "
SELECT files.pool, files.value, bytes.value FROM counter AS files JOIN counter AS bytes USING (pool)
WHERE files.name = 'files' AND bytes.name = 'bytes'
";

/// Counts anew what each pool holds.
pub(super) const COUNT_POOLS: &str = "
DELETE FROM counter WHERE name IN ('files', 'bytes');
INSERT INTO counter SELECT 'files', pool, count(*) FROM entry WHERE kind = 1 AND pool IS NOT NULL GROUP BY pool;
INSERT INTO counter SELECT 'bytes', pool, sum(size_bytes) FROM entry WHERE kind = 1 AND pool IS NOT NULL GROUP BY pool;
";

/// Writes one value of the `meta` table.
pub(super) fn set_meta(connection: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)")?
        .execute([key, value])?;
    Ok(())
}
