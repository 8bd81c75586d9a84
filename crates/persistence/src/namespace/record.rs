//! The record of ended movers: one line for each, well or not.

use super::connection::{signed, unsigned};
use penstock_model::{
    Bytes, NamespacePath, PoolName, StageClocks, TcpSummary, Timestamp, UserName, VoName,
};
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// The data challenge or activity that it is part of, as the request tells it.
    pub challenge: Option<String>,
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

pub(super) fn insert(connection: &Connection, record: &MoverRecord) -> rusqlite::Result<()> {
    let (outcome, detail) = match &record.outcome {
        MoverOutcome::Done => ("done", ""),
        MoverOutcome::Failed(detail) => ("failed", detail.as_str()),
        MoverOutcome::Aborted(detail) => ("aborted", detail.as_str()),
    };
    connection
        .prepare_cached(
            "INSERT INTO mover_record (at_ms, kind, path, peer, user, vo, pool, moved_bytes, duration_us,
             stages, tcp, selection, outcome, detail, copy, file_bytes, challenge)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
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
            record.challenge,
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

/// In the order in which [`of_row`] takes them.
pub(super) const COLUMNS: &str =
    "sequence, at_ms, kind, path, peer, user, vo, pool, moved_bytes, duration_us, stages, tcp,
     selection, outcome, detail, copy, file_bytes, challenge";

pub(super) fn load(
    connection: &Connection,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<(u64, MoverRecord)>> {
    let mut query = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM mover_record WHERE sequence > ?1 ORDER BY sequence LIMIT ?2"
    ))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = query.query_map(params![signed(after), limit], of_row)?;
    rows.collect()
}

/// A mover with its number.
pub(super) fn of_row(row: &Row<'_>) -> rusqlite::Result<(u64, MoverRecord)> {
    let text = |index: usize| row.get::<_, String>(index);
    let detail = text(14)?;
    let record = MoverRecord {
        at: Timestamp(row.get(1)?),
        kind: parse_kind(&text(2)?),
        path: NamespacePath::parse(&text(3)?).unwrap_or_else(|_| NamespacePath::root()),
        peer: text(4)?,
        copy: row.get(15)?,
        challenge: row.get(17)?,
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
