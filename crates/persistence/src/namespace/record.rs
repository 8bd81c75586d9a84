//! The storage element's record of what happened: one line for each mover that has ended, well or not.

use super::NamespaceError;
use super::connection::{open_reader, signed, unsigned};
use super::schema::SCHEMA_VERSION;
use penstock_model::{
    Bytes, NamespacePath, PoolName, StageClocks, TcpSummary, Timestamp, UserName, VoName,
};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Ordering;
use std::path::{Path, PathBuf};

/// Lines that are kept; older ones are dropped. Some 400 bytes each.
const RECORDS_MAX: i64 = 1_000_000;

/// Which way the bytes went, and who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoverKind {
    /// A client read a file.
    Get,
    /// A client wrote a file.
    Put,
    /// This storage element fetched a file from another.
    Pull,
    /// This storage element sent a file to another.
    Push,
    /// COPY within this storage element.
    Copy,
}

/// How a mover ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoverOutcome {
    /// All bytes arrived and, for writes, are durable.
    Done,
    /// It went wrong, with one line for people.
    Failed(String),
    /// The client left or this server stopped, with one line for people.
    Aborted(String),
}

/// One ended mover.
#[derive(Debug, Clone, PartialEq)]
pub struct MoverRecord {
    /// When it ended.
    pub at: Timestamp,
    /// What it did.
    pub kind: MoverKind,
    /// The file here.
    pub path: NamespacePath,
    /// The other end: a client's address or a URL without secrets.
    pub peer: String,
    /// The copy that it is part of, as whoever asked names it (`X-Request-ID`); the other end records the same name.
    pub copy: Option<String>,
    /// Size of the file, where it was known before.
    pub file_size: Option<Bytes>,
    /// Who asked; `None` for anonymous readers.
    pub user: Option<UserName>,
    /// On whose behalf.
    pub vo: Option<VoName>,
    /// The pool that took or gave the bytes; `None` when none could be chosen.
    pub pool: Option<PoolName>,
    /// Bytes of file data that passed.
    pub moved: Bytes,
    /// From the request to its end.
    pub duration_us: u64,
    /// Where the time went.
    pub stages: StageClocks,
    /// The data socket at the end.
    pub tcp: Option<TcpSummary>,
    /// Why this pool was chosen, as `decide::pool_selection` gave it; `Null` for reads.
    pub selection: Value,
    /// How it ended.
    pub outcome: MoverOutcome,
}

/// Reads the ended movers of a namespace that another process may have open. Never writes.
pub struct MoverRecordReader {
    connection: Connection,
    path: PathBuf,
}

impl MoverRecordReader {
    /// Opens a namespace that exists. Errors: it is of another version than this program writes.
    pub fn open(path: &Path) -> Result<MoverRecordReader, NamespaceError> {
        let path = path.to_owned();
        let failed = |source| NamespaceError::Database {
            path: path.clone(),
            source,
        };
        let connection = open_reader(&path).map_err(failed)?;
        let found: u32 = connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(failed)?;
        match found.cmp(&SCHEMA_VERSION) {
            Ordering::Equal => Ok(MoverRecordReader { connection, path }),
            Ordering::Greater => Err(NamespaceError::Newer {
                path,
                found,
                known: SCHEMA_VERSION,
            }),
            Ordering::Less => Err(NamespaceError::Older(path)),
        }
    }

    /// Which namespace it is.
    pub fn namespace_id(&self) -> Result<String, NamespaceError> {
        let sql = "SELECT value FROM meta WHERE key = 'uuid'";
        let id = self.connection.query_row(sql, [], |row| row.get(0));
        id.map_err(|source| self.failed(source))
    }

    /// The sequence number of the last one that was ever recorded; 0 when there was none.
    pub fn last(&self) -> Result<u64, NamespaceError> {
        let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'mover_record'";
        let last = self.connection.query_row(sql, [], |row| row.get(0));
        last.map(unsigned).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: rusqlite::Error) -> NamespaceError {
        NamespaceError::Database {
            path: self.path.clone(),
            source,
        }
    }

    /// At most `limit` of them, oldest first, with their sequence numbers, which are above `sequence`.
    pub fn after(
        &self,
        sequence: u64,
        limit: usize,
    ) -> Result<Vec<(u64, MoverRecord)>, NamespaceError> {
        load(&self.connection, sequence, limit).map_err(|source| self.failed(source))
    }
}

pub(super) fn insert(connection: &Connection, record: &MoverRecord) -> rusqlite::Result<()> {
    let (outcome, detail) = match &record.outcome {
        MoverOutcome::Done => ("done", ""),
        MoverOutcome::Failed(detail) => ("failed", detail.as_str()),
        MoverOutcome::Aborted(detail) => ("aborted", detail.as_str()),
    };
    connection
        .prepare_cached(
            "INSERT INTO mover_record (at_ms, kind, path, peer, user, vo, pool, moved_bytes, duration_us,
             stages, tcp, selection, outcome, detail, copy, file_bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?
        .execute(params![
            record.at.0,
            kind_name(record.kind),
            record.path.to_string(),
            record.peer,
            record.user.as_ref().map(UserName::as_str),
            record.vo.as_ref().map(VoName::as_str),
            record.pool.as_ref().map(PoolName::as_str),
            signed(record.moved.0),
            signed(record.duration_us),
            serde_json::to_string(&record.stages).unwrap_or_default(),
            record.tcp.as_ref().and_then(|tcp| serde_json::to_string(tcp).ok()),
            record.selection.to_string(),
            outcome,
            detail,
            record.copy,
            record.file_size.map(|size| signed(size.0)),
        ])?;
    Ok(())
}

/// Drops the oldest lines beyond [`RECORDS_MAX`].
pub(super) fn prune(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "DELETE FROM mover_record WHERE sequence <= (SELECT max(sequence) FROM mover_record) - ?1",
        )?
        .execute([RECORDS_MAX])?;
    Ok(())
}

pub(super) fn load(
    connection: &Connection,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<(u64, MoverRecord)>> {
    let mut query = connection.prepare_cached(
        "SELECT sequence, at_ms, kind, path, peer, user, vo, pool, moved_bytes, duration_us, stages, tcp,
         selection, outcome, detail, copy, file_bytes FROM mover_record WHERE sequence > ?1 ORDER BY sequence LIMIT ?2",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = query.query_map(params![signed(after), limit], |row| {
        let text = |index: usize| row.get::<_, String>(index);
        let detail = text(14)?;
        let record = MoverRecord {
            at: Timestamp(row.get(1)?),
            kind: parse_kind(&text(2)?),
            path: NamespacePath::parse(&text(3)?).unwrap_or_else(|_| NamespacePath::root()),
            peer: text(4)?,
            copy: row.get(15)?,
            file_size: row
                .get::<_, Option<i64>>(16)?
                .map(|size| Bytes(unsigned(size))),
            user: row.get::<_, Option<String>>(5)?.map(UserName::new),
            vo: row.get::<_, Option<String>>(6)?.map(VoName::new),
            pool: row.get::<_, Option<String>>(7)?.map(PoolName::new),
            moved: Bytes(unsigned(row.get(8)?)),
            duration_us: unsigned(row.get(9)?),
            stages: serde_json::from_str(&text(10)?).unwrap_or_default(),
            tcp: row
                .get::<_, Option<String>>(11)?
                .and_then(|tcp| serde_json::from_str(&tcp).ok()),
            selection: serde_json::from_str(&text(12)?).unwrap_or(Value::Null),
            outcome: match text(13)?.as_str() {
                "done" => MoverOutcome::Done,
                "aborted" => MoverOutcome::Aborted(detail),
                _ => MoverOutcome::Failed(detail),
            },
        };
        Ok((unsigned(row.get(0)?), record))
    })?;
    rows.collect()
}

/// The word in the database and in reports.
fn kind_name(kind: MoverKind) -> &'static str {
    match kind {
        MoverKind::Get => "get",
        MoverKind::Put => "put",
        MoverKind::Pull => "pull",
        MoverKind::Push => "push",
        MoverKind::Copy => "copy",
    }
}

fn parse_kind(name: &str) -> MoverKind {
    match name {
        "put" => MoverKind::Put,
        "pull" => MoverKind::Pull,
        "push" => MoverKind::Push,
        "copy" => MoverKind::Copy,
        _ => MoverKind::Get,
    }
}
