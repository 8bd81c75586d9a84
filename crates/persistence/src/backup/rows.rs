//! Between a PostgreSQL and a backup: row by row, because the backup is a file of SQLite whatever the service keeps its
//! record in.
//!
//! Reading, all questions see one exported snapshot, and each transaction is over after some thousand rows: no lock is
//! held that the writer may need for the next part of a table. Only dead rows stay for as long as the snapshot does.
//! Writing, everything happens in one transaction of an empty database.

use super::{BackupOf, BoxedError, DELEGATION_TABLES, FLUSH_EVERY};
use crate::journal::partitions::{self, Partitions};
use crate::journal::sqlite_schema;
use crate::postgres::session::{OpenTransaction, Purpose, Session};
use crate::postgres::{Database, schema, text};
use crate::sealing::SealingKeys;
use ::postgres::Row;
use ::postgres::types::Type;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params_from_iter};
use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Rows that are read at once.
const ROWS_AT_ONCE: usize = 2000;
/// Reading goes on for at most this part of the time: somebody else needs the processors.
const IDLE_FOR_BUSY: u32 = 3;
/// Bytes that a value counts besides its text.
const VALUE_BYTES: u64 = 4;

/// The tables of the journal, each with the column that it is read along. `history` says different things in both
/// and comes last.
pub(super) const JOURNAL_TABLES: [(&str, &str); 15] = [
    ("job", "job_id"),
    ("transfer", "transfer_id"),
    ("ledger", "sequence"),
    ("link_sample", "at_ms"),
    ("minute_sample", "at_ms"),
    ("link_event", "sequence"),
    ("tuning", "sequence"),
    ("sealed_credential", "credential_id"),
    ("credential_use", "job_id"),
    ("token_renewal", "credential_id"),
    ("setting", "setting_key"),
    ("setting_change", "sequence"),
    ("ban", "kind"),
    ("ban_change", "sequence"),
    ("pruned_job", "job_id"),
];
const DELEGATION_KEYS: [&str; DELEGATION_TABLES.len()] =
    ["delegation_id", "delegation_id", "secret_id", "transfer_id"];
/// Tables whose numbers PostgreSQL gives.
const NUMBERED: [&str; 4] = ["link_event", "tuning", "setting_change", "ban_change"];
/// In SQLite this is a row of `history`, in PostgreSQL a column.
const TRANSFER_ID_MAX: &str = "transfer_id_max";

/// What was read besides rows.
pub(super) struct ReadState {
    /// The last entry of the ledger.
    pub(super) sequence: i64,
    pub(super) positions: Vec<(String, u64)>,
    /// The schema of the tables of delegations that were made.
    pub(super) delegations_schema: i64,
}

/// Fills a new file of SQLite with all that a service keeps in a PostgreSQL, as of one instant, at the pace asked for.
/// Not from inside an async runtime.
pub(super) fn read(
    database: &Database,
    copy: &mut Connection,
    file: &File,
    of: &BackupOf,
) -> Result<ReadState, BoxedError> {
    let mut keeper = Session::new(database.clone(), Purpose::Read);
    let mut kept = keeper.begin()?;
    let known = schema::version(&mut kept)?.ok_or("the database has no tables yet")?;
    schema::check(&kept, known)?;
    kept.execute_all("SET LOCAL idle_in_transaction_session_timeout = 0")?;
    let row = one(&mut kept, "SELECT pg_export_snapshot()")?;
    let mut reader = Reader {
        session: Session::new(database.clone(), Purpose::Read),
        snapshot: format!("SET TRANSACTION SNAPSHOT '{}'", row.get::<_, &str>(0)),
        pace: Pace::new(file, of),
    };
    // No row is in a new file that a key could be for.
    let keys = SealingKeys::of_this_process()?;
    sqlite_schema::migrate(copy, &keys)?.map_err(|_| "the new file is not empty")?;
    let delegations_schema = crate::delegations::make_sqlite_tables(copy)?;
    let journal = JOURNAL_TABLES.into_iter();
    for (table, key) in journal.chain(DELEGATION_TABLES.into_iter().zip(DELEGATION_KEYS)) {
        reader.copy(table, key, copy)?;
    }
    let row = one(
        &mut kept,
        "SELECT last_sequence, transfer_id_max FROM journal_writer",
    )?;
    let (sequence, transfer_id_max): (i64, i64) = (row.get(0), row.get(1));
    copy.execute_batch("DELETE FROM history; DELETE FROM sqlite_sequence WHERE name = 'ledger'")?;
    for row in kept.query("SELECT name, value FROM history", &[])? {
        let sql = "INSERT INTO history (name, value) VALUES (?1, ?2)";
        copy.execute(sql, (row.get::<_, &str>(0), row.get::<_, i64>(1)))?;
    }
    let sql = "INSERT OR REPLACE INTO history (name, value) VALUES (?1, ?2)";
    copy.execute(sql, (TRANSFER_ID_MAX, transfer_id_max))?;
    let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES ('ledger', ?1)";
    copy.execute(sql, [sequence])?;
    let positions = kept.query(
        "SELECT sink, sequence FROM sink_position ORDER BY sink",
        &[],
    )?;
    let position = |row: &Row| (row.get(0), row.get::<_, i64>(1) as u64);
    let positions = positions.iter().map(position).collect();
    kept.commit()?;
    Ok(ReadState {
        sequence,
        positions,
        delegations_schema,
    })
}

fn one(open: &mut OpenTransaction<'_>, sql: &str) -> Result<Row, BoxedError> {
    let row = open.query_opt(sql, &[])?;
    row.ok_or_else(|| format!("no row answers {sql}").into())
}

/// Reads tables through a snapshot that another connection keeps.
struct Reader<'a> {
    session: Session,
    snapshot: String,
    pace: Pace<'a>,
}

impl Reader<'_> {
    fn copy(&mut self, table: &str, key: &str, copy: &mut Connection) -> Result<(), BoxedError> {
        let columns = columns(copy, table)?;
        let names: Vec<&str> = columns.iter().map(|name| in_postgres(name)).collect();
        let place = names.iter().position(|name| *name == key);
        let place = place.ok_or_else(|| format!("{table} has no column {key}"))?;
        let select = format!("SELECT {} FROM {table}", names.join(", "));
        // Keys that several rows have are not torn apart.
        let piece = format!("ORDER BY {key} FETCH FIRST {ROWS_AT_ONCE} ROWS WITH TIES");
        let (first, next) = (
            format!("{select} {piece}"),
            format!("{select} WHERE {key} > $1 {piece}"),
        );
        let places: Vec<String> = (1..=columns.len())
            .map(|place| format!("?{place}"))
            .collect();
        let insert = format!(
            "INSERT INTO {table} ({}) VALUES ({})",
            quoted(&columns),
            places.join(", ")
        );
        let mut after: Option<Key> = None;
        loop {
            let begun = Instant::now();
            let mut open = self.session.begin()?;
            open.execute_all(&self.snapshot)?;
            let rows = match &after {
                None => open.query(&first, &[])?,
                Some(Key::Number(number)) => open.query(&next, &[number])?,
                Some(Key::Text(text)) => open.query(&next, &[text])?,
                Some(Key::Id(id)) => open.query(&next, &[id])?,
            };
            open.commit()?;
            let mut bytes = 0;
            let add = copy.transaction()?;
            let mut into = add.prepare_cached(&insert)?;
            for row in &rows {
                let values = (0..columns.len()).map(|column| value(row, column));
                let values: Result<Vec<Value>, BoxedError> = values.collect();
                let values = values?;
                bytes += values.iter().map(size).sum::<u64>();
                into.execute(params_from_iter(values))?;
            }
            drop(into);
            add.commit()?;
            self.pace.keep(bytes, begun)?;
            let Some(last) = rows.last().filter(|_| rows.len() >= ROWS_AT_ONCE) else {
                return Ok(());
            };
            after = Some(key_of(last, place)?);
        }
    }
}

/// Where a table is read on.
enum Key {
    Number(i64),
    Text(String),
    Id(Uuid),
}

fn key_of(row: &Row, place: usize) -> Result<Key, BoxedError> {
    match *row.columns()[place].type_() {
        Type::INT8 => Ok(Key::Number(row.try_get(place)?)),
        Type::UUID => Ok(Key::Id(row.try_get(place)?)),
        _ => Ok(Key::Text(row.try_get(place)?)),
    }
}

fn value(row: &Row, place: usize) -> Result<Value, BoxedError> {
    fn integer(number: Option<i64>) -> Value {
        number.map_or(Value::Null, Value::Integer)
    }
    Ok(match *row.columns()[place].type_() {
        Type::INT8 => integer(row.try_get(place)?),
        Type::INT4 => integer(row.try_get::<_, Option<i32>>(place)?.map(i64::from)),
        Type::BOOL => integer(row.try_get::<_, Option<bool>>(place)?.map(i64::from)),
        Type::BYTEA => row
            .try_get(place)
            .map(|bytes: Option<_>| bytes.map_or(Value::Null, Value::Blob))?,
        Type::UUID => {
            let id: Option<Uuid> = row.try_get(place)?;
            id.map_or(Value::Null, |id| Value::Text(id.to_string()))
        }
        _ => row
            .try_get(place)
            .map(|text: Option<_>| text.map_or(Value::Null, Value::Text))?,
    })
}

fn size(value: &Value) -> u64 {
    VALUE_BYTES
        + match value {
            Value::Text(text) => text.len() as u64,
            Value::Blob(bytes) => bytes.len() as u64,
            _ => 0,
        }
}

/// How fast it goes.
struct Pace<'a> {
    of: &'a BackupOf,
    file: &'a File,
    begun: Instant,
    copied: u64,
    flushed: u64,
}

impl<'a> Pace<'a> {
    fn new(file: &'a File, of: &'a BackupOf) -> Pace<'a> {
        Pace {
            of,
            file,
            begun: Instant::now(),
            copied: 0,
            flushed: 0,
        }
    }

    /// Waits after a piece for as long as its bytes and the time it took ask for.
    fn keep(&mut self, bytes: u64, piece_begun: Instant) -> Result<(), BoxedError> {
        if self.of.stopped.load(Ordering::Relaxed) {
            return Err("it was asked to stop".into());
        }
        self.copied += bytes;
        if self.copied >= self.flushed + FLUSH_EVERY {
            self.file.sync_data()?;
            self.flushed = self.copied;
        }
        if self.of.bytes_per_second == u64::MAX {
            return Ok(());
        }
        let due =
            Duration::from_secs_f64(self.copied as f64 / self.of.bytes_per_second.max(1) as f64);
        let early = due.saturating_sub(self.begun.elapsed());
        std::thread::sleep(early.max(piece_begun.elapsed() * IDLE_FOR_BUSY));
        Ok(())
    }
}

/// A journal that was made ready to be put back, and what goes beside it.
pub(super) struct PreparedJournal<'a> {
    /// With the tables of the newest schema.
    pub(super) journal: &'a Connection,
    /// The backup, which has the tables of the delegations.
    pub(super) backup: &'a Connection,
    pub(super) positions: &'a [(String, u64)],
}

/// Puts a journal into an empty database that nobody leads.
pub(super) fn write(database: &Database, prepared: &PreparedJournal<'_>) -> Result<(), BoxedError> {
    let mut session = Session::new(database.clone(), Purpose::Restore);
    schema::migrate(&mut session)?;
    let mut open = session.begin()?;
    must_be_free(&mut open)?;
    let mut parts = Partitions::default();
    let numbers = |sql: String| -> rusqlite::Result<Vec<i64>> {
        let mut select = prepared.journal.prepare(&sql)?;
        select.query_map([], |row| row.get(0))?.collect()
    };
    let entries = partitions::LEDGER_ENTRIES;
    for part in numbers(format!("SELECT DISTINCT sequence / {entries} FROM ledger"))? {
        parts.of_ledger(&mut open, part * entries, part * entries)?;
    }
    let day = partitions::SAMPLES_MS;
    let days = numbers(format!(
        "SELECT DISTINCT at_ms / {day} * {day} FROM link_sample"
    ))?;
    parts.of_samples(&mut open, &days)?;
    for (table, _) in JOURNAL_TABLES {
        put_table(&mut open, prepared.journal, table)?;
    }
    for table in DELEGATION_TABLES {
        put_table(&mut open, prepared.backup, table)?;
    }
    let told = |sql: &str| -> rusqlite::Result<i64> {
        prepared.journal.query_row(sql, [], |row| row.get(0))
    };
    let sequence = told("SELECT seq FROM sqlite_sequence WHERE name = 'ledger'")?;
    let highest = told("SELECT value FROM history WHERE name = 'transfer_id_max'")?;
    open.execute(
        "UPDATE journal_writer SET batch = 0, last_sequence = $1, transfer_id_max = $2",
        &[&sequence, &highest],
    )?;
    open.execute("DELETE FROM history", &[])?;
    let mut select = prepared
        .journal
        .prepare("SELECT name, value FROM history WHERE name NOT IN (?1, 'server', 'timeline')")?;
    let mut rows = select.query([TRANSFER_ID_MAX])?;
    while let Some(row) = rows.next()? {
        let (name, value): (String, i64) = (row.get(0)?, row.get(1)?);
        let sql = "INSERT INTO history (name, value) VALUES ($1, $2)";
        open.execute(sql, &[&name, &value])?;
    }
    for (sink, sequence) in prepared.positions {
        let sql = "INSERT INTO sink_position (sink, sequence) VALUES ($1, $2)";
        open.execute(sql, &[&text(sink), &(*sequence as i64)])?;
    }
    for table in NUMBERED {
        open.execute_all(&format!(
            "SELECT setval(pg_get_serial_sequence('{table}', 'sequence'),
                           coalesce((SELECT max(sequence) FROM {table}), 0) + 1, false)"
        ))?;
    }
    Ok(open.commit()?)
}

/// Nobody leads, and nobody can begin to until the transaction ends; nothing is there that could be overwritten.
fn must_be_free(open: &mut OpenTransaction<'_>) -> Result<(), BoxedError> {
    let sql = "SELECT leader, expires_at > clock_timestamp() FROM lease WHERE lease = 'transfer' FOR UPDATE";
    let row = open.query_opt(sql, &[])?;
    if let Some(row) = row.filter(|row| row.get(1)) {
        let leader: &str = row.get(0);
        return Err(
            format!("the service runs on it, led by {leader}: stop all its nodes first").into(),
        );
    }
    let sql = "SELECT EXISTS (SELECT 1 FROM job) OR EXISTS (SELECT 1 FROM ledger) OR EXISTS (SELECT 1 FROM setting)
               OR EXISTS (SELECT 1 FROM ban) OR EXISTS (SELECT 1 FROM delegation)";
    match one(open, sql)?.get(0) {
        true => Err("it is not empty: create another database for the restore".into()),
        false => Ok(()),
    }
}

/// All rows of a table, as far as the backup has it: an earlier version may not have known it.
fn put_table(
    open: &mut OpenTransaction<'_>,
    from: &Connection,
    table: &str,
) -> Result<(), BoxedError> {
    let columns = columns(from, table)?;
    if columns.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = columns.iter().map(|name| in_postgres(name)).collect();
    let sql = format!("COPY {table} ({}) FROM STDIN", names.join(", "));
    let select = format!("SELECT {} FROM {table}", quoted(&columns));
    let mut select = from.prepare(&select)?;
    let mut rows = select.query([])?;
    open.copy_in(&sql, |into| {
        while let Some(row) = rows.next()? {
            for place in 0..columns.len() {
                if place > 0 {
                    into.write_all(b"\t")?;
                }
                write_value(into, row.get_ref(place)?)?;
            }
            into.write_all(b"\n")?;
        }
        Ok(())
    })
}

/// The text format of COPY.
fn write_value(into: &mut dyn Write, value: ValueRef<'_>) -> io::Result<()> {
    match value {
        ValueRef::Null => into.write_all(b"\\N"),
        ValueRef::Integer(number) => write!(into, "{number}"),
        ValueRef::Real(number) => write!(into, "{number}"),
        ValueRef::Text(bytes) => {
            for part in
                String::from_utf8_lossy(bytes).split_inclusive(['\\', '\t', '\n', '\r', '\0'])
            {
                let plain = part.trim_end_matches(['\\', '\t', '\n', '\r', '\0']);
                into.write_all(plain.as_bytes())?;
                into.write_all(match part.as_bytes().last() {
                    Some(b'\\') => b"\\\\",
                    Some(b'\t') => b"\\t",
                    Some(b'\n') => b"\\n",
                    Some(b'\r') => b"\\r",
                    // It knows none.
                    Some(b'\0') => "\u{fffd}".as_bytes(),
                    _ => b"",
                })?;
            }
            Ok(())
        }
        ValueRef::Blob(bytes) => {
            into.write_all(b"\\\\x")?;
            bytes.iter().try_for_each(|byte| write!(into, "{byte:02x}"))
        }
    }
}

fn columns(of: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut select = of.prepare_cached("SELECT name FROM pragma_table_info(?1) ORDER BY cid")?;
    select.query_map([table], |row| row.get(0))?.collect()
}

/// `user` is a word of SQL that PostgreSQL keeps for itself.
fn in_postgres(column: &str) -> &str {
    match column {
        "user" => "username",
        other => other,
    }
}

fn quoted(columns: &[String]) -> String {
    let quoted: Vec<String> = columns.iter().map(|name| format!("\"{name}\"")).collect();
    quoted.join(", ")
}
