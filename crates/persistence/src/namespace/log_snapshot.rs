//! The snapshot with which a directory log begins: all directories, all files that are on tape, and of the files of its pool those
//! whose label is out of date, those that have properties, and its trash.

use super::connection::unsigned;
use super::directory_log::{DirectoryEntry, DirectoryRecord, FileEntry, LOG_VERSION, write_line};
use super::nearline::copies_of;
use super::read::{CACHED, archival_of, checksums_of};
use super::{EntryId, property, schema, trash};
use penstock_model::{Archival, Bytes, PoolName, Timestamp, UserName};
use rusqlite::{Connection, OpenFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Where snapshots come from and go to.
#[derive(Clone)]
pub(super) struct Snapshots {
    pub database: PathBuf,
    pub namespace: Uuid,
    pub pool: PoolName,
    /// The log.
    pub path: PathBuf,
}

/// What a snapshot is made for. Each has its own place until it is whole, because both may be made at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SnapshotUse {
    /// The log begins with it.
    Beginning,
    /// It replaces what has become long.
    Compaction,
}

/// A snapshot that is not in place yet; durable.
pub(super) struct NewSnapshot {
    pub part: PathBuf,
    pub file: File,
    pub sequence: u64,
    pub bytes: u64,
}

impl Snapshots {
    /// Where one is until it is whole.
    fn part(path: &Path, wanted: SnapshotUse) -> PathBuf {
        path.with_extension(match wanted {
            SnapshotUse::Beginning => "log.new",
            SnapshotUse::Compaction => "log.compact",
        })
    }

    /// The last number that the namespace has counted.
    pub(super) fn sequence(&self) -> io::Result<u64> {
        let connection = self.open().map_err(io::Error::other)?;
        schema::log_sequence(&connection).map_err(io::Error::other)
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Connection::open_with_flags(&self.database, flags)
    }

    /// Makes one beside the log.
    pub(super) fn take(&self, wanted: SnapshotUse) -> io::Result<NewSnapshot> {
        let connection = self.open().map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let part = Snapshots::part(&self.path, wanted);
        let file = options.open(&part)?;
        file.set_len(0)?;
        let mut out = SnapshotWriter {
            file: BufWriter::with_capacity(1 << 20, file),
            line: String::new(),
            sequence: 0,
            records: 0,
            bytes: 0,
            failure: None,
        };
        let read = self.write(&connection, &mut out);
        if let Some(why) = out.failure.take() {
            return Err(why);
        }
        read.map_err(io::Error::other)?;
        let file = out.file.into_inner().map_err(|why| why.into_error())?;
        file.sync_data()?;
        Ok(NewSnapshot {
            part,
            file,
            sequence: out.sequence,
            bytes: out.bytes,
        })
    }

    fn write(&self, connection: &Connection, out: &mut SnapshotWriter) -> rusqlite::Result<()> {
        let snapshot = connection.unchecked_transaction()?;
        out.sequence = schema::log_sequence(&snapshot)?;
        out.write(&DirectoryRecord::Snapshot {
            version: LOG_VERSION,
            namespace: self.namespace,
            pool: self.pool.clone(),
        });
        out.records = 0;
        let mut query = snapshot.prepare(
            &format!("SELECT id, parent, name, kind, size_bytes, modified_ms, created_ms, owner, properties, labelled, archival
             FROM entry WHERE kind = 0 OR archival = {CACHED} OR (pool = ?1 AND (labelled = 0 OR properties = 1))"),
        )?;
        let mut rows = query.query([self.pool.as_str()])?;
        while let Some(row) = rows.next()? {
            let id = EntryId(unsigned(row.get(0)?));
            let properties = match row.get::<_, bool>(8)? {
                true => property::load(&snapshot, id)?,
                false => Vec::new(),
            };
            let (parent, name) = (EntryId(unsigned(row.get(1)?)), row.get(2)?);
            let owner = row.get::<_, Option<String>>(7)?.map(UserName::new);
            let (modified, created) = (Timestamp(row.get(5)?), Timestamp(row.get(6)?));
            let archival = archival_of(row.get(10)?);
            let (is_directory, is_labelled) = (row.get::<_, i64>(3)? == 0, row.get::<_, bool>(9)?);
            if is_directory {
                out.write(&DirectoryRecord::Directory(DirectoryEntry {
                    id,
                    parent,
                    name,
                    owner,
                    created,
                    modified,
                    properties,
                }));
                continue;
            }
            let is_on_tape = archival == Archival::Cached;
            if is_labelled && !is_on_tape {
                out.write(&DirectoryRecord::Properties { id, properties });
                continue;
            }
            let file = FileEntry {
                id,
                parent,
                name,
                size: Bytes(unsigned(row.get(4)?)),
                checksums: checksums_of(&snapshot, id)?,
                owner,
                created,
                at: created,
                properties,
                archival,
            };
            out.write(&match is_on_tape {
                true => DirectoryRecord::OnTape {
                    file,
                    copies: copies_of(&snapshot, id)?,
                },
                false => DirectoryRecord::File(file),
            });
        }
        trash::each_of_pool(&snapshot, &self.pool, |file| {
            let parent = EntryId(0);
            let copies = copies_of(&snapshot, file.file)?;
            out.write(&DirectoryRecord::Trashed {
                parent,
                file,
                copies,
            });
            Ok(())
        })?;
        let records = out.records;
        out.write(&DirectoryRecord::SnapshotEnd { records });
        Ok(())
    }
}

struct SnapshotWriter {
    file: BufWriter<File>,
    line: String,
    sequence: u64,
    records: u64,
    bytes: u64,
    failure: Option<io::Error>,
}

impl SnapshotWriter {
    fn write(&mut self, record: &DirectoryRecord) {
        self.line.clear();
        write_line(&mut self.line, self.sequence, record);
        self.bytes += self.line.len() as u64;
        self.records += 1;
        if self.failure.is_none() {
            self.failure = self.file.write_all(self.line.as_bytes()).err();
        }
    }
}
