//! Which data set a file on tape belongs to: what its client said of that when it was written, and what whoever drives the tape
//! system has made of it. Counts of a data set are sums over the rows of its files, so that none disagrees with a listing.

use super::connection::{bounded, signed, stored, unsigned};
use super::read::{IS_AWAITED, archival_of};
use super::{EntryId, Namespace, NamespaceError};
use penstock_model::{Archival, Bytes, Timestamp, UserName};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

/// Who sends hints is counted for so many; the others are counted together.
const SENDERS_MAX: i64 = 1_000;
/// As which others are counted, and files that nobody owns.
const OTHER_SENDERS: &str = "others";
const NO_SENDER: &str = "nobody";

/// What the request that wrote a file has said that matters for tape.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveWord {
    /// Its archive metadata, as JSON; empty: it could not be read.
    pub metadata: Option<String>,
    /// With which other files it was submitted.
    pub submission: Option<String>,
    /// The data challenge or activity that it is part of.
    pub challenge: Option<String>,
}

impl ArchiveWord {
    fn is_empty(&self) -> bool {
        *self == ArchiveWord::default()
    }
}

/// What of a file decides which data set it belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataSetFacts {
    pub word: ArchiveWord,
    /// Another file was submitted with it.
    pub has_companion: bool,
    /// It has been decided before.
    pub member: Option<DataSetMember>,
}

/// The data set of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSetMember {
    pub levels: Vec<String>,
    /// The name of what told so.
    pub source: String,
    pub expected_files: Option<u64>,
    pub expected_bytes: Option<u64>,
    pub activity: Option<String>,
    pub challenge: Option<String>,
}

/// A file joins a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSetJoin {
    pub file: EntryId,
    pub family: String,
    pub member: DataSetMember,
    /// Who wrote the file, and what the hints were worth, by its name.
    pub sender: Option<UserName>,
    pub hint: String,
}

/// A data set, with sums over its files that are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDataSet {
    pub id: u64,
    pub family: String,
    pub levels: Vec<String>,
    pub source: String,
    pub expected_files: Option<u64>,
    pub expected_bytes: Option<u64>,
    /// When its first and its last file joined.
    pub first: Timestamp,
    pub last: Timestamp,
    pub files: u64,
    pub bytes: Bytes,
    pub on_tape_files: u64,
    pub on_tape_bytes: Bytes,
    pub on_disk_files: u64,
    /// Those that somebody waits for.
    pub awaited_files: u64,
    /// When the last of its files that are on tape got there.
    pub archived: Option<Timestamp>,
}

/// What the hints of one sender were worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintCount {
    pub sender: String,
    pub hint: String,
    pub files: u64,
    pub last: Timestamp,
}

/// Keeps what was said of a new file.
pub(super) fn keep_word(
    connection: &Connection,
    file: EntryId,
    word: &ArchiveWord,
) -> rusqlite::Result<()> {
    if !word.is_empty() {
        connection
            .prepare_cached("INSERT OR REPLACE INTO archive_word VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![
                stored(file),
                word.metadata,
                word.submission,
                word.challenge
            ])?;
    }
    Ok(())
}

/// The file is gone for good.
pub(super) fn forget(connection: &Connection, file: EntryId) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM archive_word WHERE entry = ?1")?
        .execute([stored(file)])?;
    let set = connection
        .prepare_cached("DELETE FROM data_set_file WHERE entry = ?1 RETURNING data_set")?
        .query_row([stored(file)], |row| row.get::<_, i64>(0))
        .optional()?;
    if let Some(set) = set {
        connection
            .prepare_cached(
                "DELETE FROM data_set WHERE id = ?1
                 AND NOT EXISTS (SELECT 1 FROM data_set_file WHERE data_set = ?1)",
            )?
            .execute([set])?;
    }
    Ok(())
}

pub(super) fn join(
    connection: &Connection,
    joins: &[DataSetJoin],
    at: Timestamp,
) -> rusqlite::Result<()> {
    for join in joins {
        join_one(connection, join, at)?;
    }
    Ok(())
}

fn join_one(connection: &Connection, join: &DataSetJoin, at: Timestamp) -> rusqlite::Result<()> {
    let is_known = connection
        .prepare_cached("SELECT 1 FROM data_set_file WHERE entry = ?1")?
        .exists([stored(join.file)])?;
    if is_known {
        return Ok(());
    }
    let member = &join.member;
    let levels = serde_json::to_string(&member.levels).unwrap_or_default();
    let set: i64 = connection
        .prepare_cached(
            "INSERT INTO data_set (family, levels, source, expected_files, expected_bytes, first_ms, last_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6) ON CONFLICT (family, levels) DO UPDATE SET
                 expected_files = max(ifnull(expected_files, excluded.expected_files), ifnull(excluded.expected_files, expected_files)),
                 expected_bytes = max(ifnull(expected_bytes, excluded.expected_bytes), ifnull(excluded.expected_bytes, expected_bytes)),
                 last_ms = excluded.last_ms
             RETURNING id",
        )?
        .query_row(
            params![
                join.family,
                levels,
                member.source,
                member.expected_files.map(signed),
                member.expected_bytes.map(signed),
                at.0
            ],
            |row| row.get(0),
        )?;
    connection
        .prepare_cached("INSERT INTO data_set_file VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![
            stored(join.file),
            set,
            member.activity,
            member.challenge
        ])?;
    // All of it that counts later is with the data set now, but for what finds its companions.
    connection
        .prepare_cached(
            "UPDATE archive_word SET metadata = NULL, challenge = NULL WHERE entry = ?1",
        )?
        .execute([stored(join.file)])?;
    count_hint(connection, join, at)
}

fn count_hint(connection: &Connection, join: &DataSetJoin, at: Timestamp) -> rusqlite::Result<()> {
    let sender = join.sender.as_ref().map_or(NO_SENDER, UserName::as_str);
    let is_known = connection
        .prepare_cached("SELECT 1 FROM hint_count WHERE sender = ?1")?
        .exists([sender])?;
    let senders: i64 = match is_known {
        true => 0,
        false => connection
            .prepare_cached("SELECT count(DISTINCT sender) FROM hint_count")?
            .query_row([], |row| row.get(0))?,
    };
    let sender = match senders < SENDERS_MAX {
        true => sender,
        false => OTHER_SENDERS,
    };
    connection
        .prepare_cached(
            "INSERT INTO hint_count VALUES (?1, ?2, 1, ?3)
             ON CONFLICT (sender, hint) DO UPDATE SET files = files + 1, last_ms = ?3",
        )?
        .execute(params![sender, join.hint, at.0])?;
    Ok(())
}

fn facts(connection: &Connection, file: EntryId) -> rusqlite::Result<DataSetFacts> {
    let member = member_of(connection, file)?;
    let word = connection
        .prepare_cached(
            "SELECT metadata, submission, challenge FROM archive_word WHERE entry = ?1",
        )?
        .query_row([stored(file)], |row| {
            Ok(ArchiveWord {
                metadata: row.get(0)?,
                submission: row.get(1)?,
                challenge: row.get(2)?,
            })
        });
    let word = word.optional()?.unwrap_or_default();
    let has_companion = match &word.submission {
        Some(submission) => connection
            .prepare_cached(
                "SELECT 1 FROM archive_word WHERE submission = ?1 AND entry <> ?2 LIMIT 1",
            )?
            .exists(params![submission, stored(file)])?,
        None => false,
    };
    Ok(DataSetFacts {
        word,
        has_companion,
        member,
    })
}

fn member_of(connection: &Connection, file: EntryId) -> rusqlite::Result<Option<DataSetMember>> {
    let found = connection
        .prepare_cached(
            "SELECT levels, source, expected_files, expected_bytes, activity, challenge
             FROM data_set_file JOIN data_set ON data_set.id = data_set WHERE entry = ?1",
        )?
        .query_row([stored(file)], |row| {
            Ok(DataSetMember {
                levels: levels_of(row, 0)?,
                source: row.get(1)?,
                expected_files: row.get::<_, Option<i64>>(2)?.map(unsigned),
                expected_bytes: row.get::<_, Option<i64>>(3)?.map(unsigned),
                activity: row.get(4)?,
                challenge: row.get(5)?,
            })
        });
    found.optional()
}

fn levels_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<String>> {
    let text: String = row.get(column)?;
    Ok(serde_json::from_str(&text).unwrap_or_else(|_| vec![text]))
}

impl Namespace {
    /// What decides to which data set each of these files belongs, in their order.
    pub fn data_set_facts(&self, files: &[EntryId]) -> Result<Vec<DataSetFacts>, NamespaceError> {
        self.readers.with(|connection| {
            let files = files.iter().map(|file| facts(connection, *file));
            files.collect()
        })
    }

    /// The data sets that files joined last, those first; of a name when one is given: a whole name, or a level of it.
    pub fn data_sets(
        &self,
        named: Option<&str>,
        limit: usize,
    ) -> Result<Vec<StoredDataSet>, NamespaceError> {
        self.readers.with(|connection| {
            // A data set whose files are all gone tells nothing.
            let mut query = connection.prepare_cached(
                "SELECT id, family, levels, source, expected_files, expected_bytes, first_ms, last_ms FROM data_set
                 WHERE (?1 IS NULL OR EXISTS (SELECT 1 FROM json_each(levels) WHERE value = ?1))
                   AND EXISTS (SELECT 1 FROM data_set_file JOIN entry ON entry.id = entry WHERE data_set = data_set.id)
                 ORDER BY last_ms DESC, id DESC LIMIT ?2",
            )?;
            let rows = query.query_map(params![named, bounded(limit)], |row| {
                Ok(StoredDataSet {
                    id: unsigned(row.get(0)?),
                    family: row.get(1)?,
                    levels: levels_of(row, 2)?,
                    source: row.get(3)?,
                    expected_files: row.get::<_, Option<i64>>(4)?.map(unsigned),
                    expected_bytes: row.get::<_, Option<i64>>(5)?.map(unsigned),
                    first: Timestamp(row.get(6)?),
                    last: Timestamp(row.get(7)?),
                    files: 0,
                    bytes: Bytes(0),
                    on_tape_files: 0,
                    on_tape_bytes: Bytes(0),
                    on_disk_files: 0,
                    awaited_files: 0,
                    archived: None,
                })
            })?;
            let sets: rusqlite::Result<Vec<StoredDataSet>> = rows.collect();
            let mut sets = sets?;
            for set in &mut sets {
                sum_up(connection, set)?;
            }
            Ok(sets)
        })
    }

    /// To which data set each of these files belongs, by its number, in their order.
    pub fn data_sets_of(&self, files: &[EntryId]) -> Result<Vec<Option<u64>>, NamespaceError> {
        self.readers.with(|connection| {
            let mut find =
                connection.prepare_cached("SELECT data_set FROM data_set_file WHERE entry = ?1")?;
            let set = |file: &EntryId| {
                let found = find.query_row([stored(*file)], |row| row.get::<_, i64>(0));
                Ok(found.optional()?.map(unsigned))
            };
            files.iter().map(set).collect()
        })
    }

    /// What the hints of each sender were worth.
    pub fn hint_counts(&self) -> Result<Vec<HintCount>, NamespaceError> {
        self.readers.with(|connection| {
            let mut query = connection.prepare_cached(
                "SELECT sender, hint, files, last_ms FROM hint_count ORDER BY sender, hint",
            )?;
            let rows = query.query_map([], |row| {
                Ok(HintCount {
                    sender: row.get(0)?,
                    hint: row.get(1)?,
                    files: unsigned(row.get(2)?),
                    last: Timestamp(row.get(3)?),
                })
            })?;
            rows.collect()
        })
    }
}

fn sum_up(connection: &Connection, set: &mut StoredDataSet) -> rusqlite::Result<()> {
    let mut query = connection.prepare_cached(
        &format!("SELECT archival, count(*), sum(size_bytes), count(pool),
                max((SELECT max(at_ms) FROM tape_copy WHERE tape_copy.entry = entry.id)),
                sum(EXISTS (SELECT 1 FROM stage_file WHERE stage_file.entry = entry.id AND {IS_AWAITED}))
         FROM data_set_file JOIN entry ON entry.id = data_set_file.entry WHERE data_set = ?1 GROUP BY archival"),
    )?;
    let mut rows = query.query([signed(set.id)])?;
    while let Some(row) = rows.next()? {
        let (files, bytes) = (unsigned(row.get(1)?), unsigned(row.get(2)?));
        set.files += files;
        set.bytes.0 = set.bytes.0.saturating_add(bytes);
        set.on_disk_files += unsigned(row.get(3)?);
        set.awaited_files += unsigned(row.get(5)?);
        if archival_of(row.get(0)?) == Archival::Cached {
            set.on_tape_files += files;
            set.on_tape_bytes.0 = set.on_tape_bytes.0.saturating_add(bytes);
            set.archived = row.get::<_, Option<i64>>(4)?.map(Timestamp);
        }
    }
    Ok(())
}
