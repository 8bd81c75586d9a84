//! The namespace of a storage element: a tree of directories and files in SQLite, with checksums, trash, the ledger
//! and the record of ended movers.
//!
//! One thread writes, in group commits: many changes share one transaction and one `fsync`, and a change
//! is answered after its commit, never before. Readers use read-only connections on the calling thread.
//! File data is not known here: a file is an id, a size and the name of its pool.

mod change;
mod change_error;
mod connection;
mod data_sets;
mod directory_log;
mod entry_cache;
#[cfg(test)]
pub(crate) mod failing_sync;
mod inspection;
mod last_word;
mod ledger;
mod ledger_reader;
mod lock;
mod log_keeper;
mod log_snapshot;
mod nearline;
mod nearline_change;
mod path_record;
mod pool_minutes;
mod property;
mod read;
mod rebuild;
mod record;
mod replay;
mod schema;
#[cfg(test)]
mod tests;
mod trash;
mod writer;

pub use change::{CausedChange, Change, ChangeReport, NewFile, Replace, TrashedData};
pub use change_error::{ChangeError, ChangeRefusal, PROPERTIES_BYTES_MAX, PROPERTIES_MAX};
pub use data_sets::{
    ArchiveWord, DataSetFacts, DataSetJoin, DataSetMember, HintCount, StoredDataSet,
};
pub use directory_log::{LogCondition, TrashedFile};
pub use inspection::StoredFile;
pub use last_word::{LastWord, LastWords};
pub use ledger::{
    ChangedEntry, ElementEvent, ElementRecord, GapCause, LedgerBound, LedgerGap, Refusal,
    RequestOrigin,
};
pub use ledger_reader::LedgerReader;
pub use nearline::{
    FileAwaiter, FileOnTape, RecallFacts, RecallState, RememberedFailure, StoredStageRequest,
    TAPE_REMOVAL_USUAL, TapeCopyUri, TapeFile, TapeRemoval,
};
pub use nearline_change::{
    NearlineChange, NewStageRequest, PinQuota, RequestedFile, StageProblem, StageProgress,
    StagedFile,
};
pub use path_record::PathRecord;
pub use property::{DeadProperty, PropertyUpdate};
pub use rebuild::{
    FoundFile, FoundFileFate, FoundLabel, PoolLogs, Rebuild, RebuildError, Rebuilt, take_place,
};
pub use record::{MoverKind, MoverOutcome, MoverRecord};
pub use trash::TrashQuery;
pub use writer::{WriterCounts, WriterMeter};

use crate::writing::waits_for_its_turn;
use entry_cache::{ChangedEntries, EntryCache};
use log_keeper::Logs;
use penstock_model::{Archival, Bytes, PoolName, Timestamp, UserName};
use read::Readers;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, TryLockError};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;
use uuid::Uuid;
use writer::{CommitThread, Counters, Observers, Writer};

/// Names a directory or file for ever: ids are given once and never again, so they also serve as `ETag`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EntryId(pub u64);

impl EntryId {
    /// The root directory.
    pub const ROOT: EntryId = EntryId(1);
    /// No entry: the parent of the root.
    const NONE: EntryId = EntryId(0);
}

impl fmt::Display for EntryId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:x}", self.0)
    }
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its identity.
    pub id: EntryId,
    /// The last name of its path; empty for the root.
    pub name: String,
    /// Directory or file.
    pub kind: EntryKind,
    /// A file: when it became visible. A directory: when an entry was last added or removed.
    pub modified: Timestamp,
    /// When it became visible.
    pub created: Timestamp,
    /// Who wrote it; `None` when nobody was authenticated or the server made it.
    pub owner: Option<UserName>,
    /// Clients keep properties with it ([`Namespace::properties`]).
    pub has_properties: bool,
}

/// Directory or file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// Holds other entries.
    Directory,
    /// Holds bytes.
    File {
        size: Bytes,
        /// The pool that keeps them on disk; `None`: they are on tape only.
        pool: Option<PoolName>,
        archival: Archival,
    },
}

impl Entry {
    /// True for a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == EntryKind::Directory
    }

    /// Bytes of a file; `None` for a directory.
    pub fn size(&self) -> Option<Bytes> {
        match &self.kind {
            EntryKind::Directory => None,
            EntryKind::File { size, .. } => Some(*size),
        }
    }
}

/// What a pool holds according to the namespace: of visible files, or of its trash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PoolUsage {
    pub files: u64,
    pub bytes: Bytes,
}

/// Why a namespace cannot be opened or read.
#[derive(Debug, Error)]
pub enum NamespaceError {
    /// SQLite failed.
    #[error(
        "the namespace database {path} failed: {source}; check its disk, then start again",
        path = path.display()
    )]
    Database {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file system failed.
    #[error("{path} cannot be used: {source}", path = path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another process has it open.
    #[error("the namespace {path} is open in another process; stop that one first", path = .0.display())]
    InUse(PathBuf),
    /// Written by an earlier version, and only to be read here.
    #[error("the namespace {path} is of an earlier version; start its site once with this program", path = .0.display())]
    Older(PathBuf),
    /// Written by a later version.
    #[error(
        "the namespace {path} has schema version {found}, this program knows {known}; use a newer program",
        path = path.display()
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// A stored value is not what this program ever wrote.
    #[error(
        "the namespace {path} holds a value that makes no sense: {what}; restore it from a backup",
        path = path.display()
    )]
    Corrupt {
        /// The database file.
        path: PathBuf,
        /// Which value.
        what: String,
    },
}

/// An open namespace. Dropping it finishes the queued changes and closes the database.
pub struct Namespace {
    path: PathBuf,
    readers: Readers,
    entries: Arc<EntryCache>,
    writer: Writer,
    /// After the writer, which tells them what it has committed.
    logs: Arc<Logs>,
    identity: schema::Identity,
    next_id: Arc<AtomicU64>,
    ids_reserved: Arc<AtomicU64>,
    /// Held so that no second process opens the same database.
    _lock: File,
}

impl Namespace {
    /// Opens the database at `path`, or makes it with an empty root directory.
    pub fn open(path: &Path) -> Result<Namespace, NamespaceError> {
        let lock = lock(path)?;
        let fail = |source| NamespaceError::Database {
            path: path.to_owned(),
            source,
        };
        // SQLite would create it with the process's umask.
        let mut options = std::fs::OpenOptions::new();
        let created = options.create(true).append(true).mode(0o600).open(path);
        created.map_err(|source| NamespaceError::File {
            path: path.to_owned(),
            source,
        })?;
        let changed = ChangedEntries::default();
        let connection = open_writer(path, &changed).map_err(fail)?;
        let identity = schema::prepare(&connection, path)?;
        let readers = Readers::new(path.to_owned());
        let entries = Arc::new(EntryCache::default());
        let next_id = Arc::new(AtomicU64::new(identity.ids_below));
        let ids_reserved = Arc::new(AtomicU64::new(identity.ids_below));
        let logs = Arc::new(Logs::default());
        let counters = Counters {
            next_id: Arc::clone(&next_id),
            ids_reserved: Arc::clone(&ids_reserved),
            log_sequence: identity.log_sequence,
        };
        let committing = CommitThread::new(
            connection,
            path.to_owned(),
            counters,
            Observers {
                changed,
                entries: Arc::clone(&entries),
                logs: Arc::clone(&logs),
            },
        );
        let writer = Writer::start(committing);
        let writer = writer.map_err(|source| NamespaceError::File {
            path: path.to_owned(),
            source,
        })?;
        Ok(Namespace {
            path: path.to_owned(),
            readers,
            entries,
            writer,
            logs,
            next_id,
            ids_reserved,
            identity,
            _lock: lock,
        })
    }

    /// Names this namespace for ever. Pools carry it, so that a pool is never served with a foreign
    /// namespace.
    pub fn uuid(&self) -> Uuid {
        self.identity.uuid
    }

    /// Ids from here on were given out in the run before this one, or in this one. File data with such an
    /// id and without an entry was never acknowledged to anyone; data with a smaller id must have an
    /// entry or be trash.
    pub fn low_water(&self) -> EntryId {
        EntryId(self.identity.low_water)
    }

    /// The first id that this run gives out. It becomes the next run's [`Namespace::low_water`] with
    /// [`Change::RaiseLowWater`].
    pub fn first_id(&self) -> EntryId {
        EntryId(self.identity.ids_below)
    }

    /// Ids that files may have got of which this namespace does not know, because it was restored from a backup since.
    pub fn restored_ids(&self) -> Option<Range<EntryId>> {
        let ids = self.identity.restored_ids.clone()?;
        Some(EntryId(ids.start)..EntryId(ids.end))
    }

    /// Which restore that was; `None` also when an earlier version restored it.
    pub fn restore_id(&self) -> Option<Uuid> {
        self.identity.restore_id
    }

    /// Every id below this is set aside for this namespace, durably.
    pub fn ids_reserved(&self) -> EntryId {
        EntryId(self.ids_reserved.load(Ordering::Acquire))
    }

    /// Gives out no id below this one any more: others have used them.
    pub fn skip_ids(&self, below: EntryId) {
        self.next_id.fetch_max(below.0, Ordering::Relaxed);
    }

    /// Its writer's thread runs. Once it does not, no change is ever made again.
    pub fn is_alive(&self) -> bool {
        self.writer.is_alive()
    }

    /// A new id, not used by any visible entry, past or present.
    pub fn allocate(&self) -> EntryId {
        EntryId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Keeps the directory log of a pool in its directory from now on, in step with what is committed. One that is
    /// missing, behind or damaged is made anew. Blocks until it is as it should be, for some seconds at most.
    pub fn keep_directory_log(&self, pool: &PoolName, directory: &Path) -> std::io::Result<()> {
        self.logs
            .keep(&self.path, self.identity.uuid, pool.clone(), directory)
    }

    /// Keeps it no longer, and closes it. Does not wait for its disk.
    pub fn leave_directory_log(&self, pool: &PoolName) {
        self.logs.leave(pool);
    }

    /// What its writer has done since the start, and what waits for it.
    pub fn writer_counts(&self) -> WriterCounts {
        self.writer.counts()
    }

    /// The same, for whoever looks again and again.
    pub fn writer_meter(&self) -> WriterMeter {
        self.writer.meter()
    }

    /// Queues a change. `reply` is called on the writer's thread after the commit (or after the refusal),
    /// so it must be short and must not call back into the namespace. When the queue is full it is called
    /// at once with [`ChangeError::Busy`].
    pub fn submit(
        &self,
        change: impl Into<CausedChange>,
        reply: impl FnOnce(Result<ChangeReport, ChangeError>) + Send + 'static,
    ) {
        self.writer.submit(change.into(), Box::new(reply));
    }

    /// Makes a change and waits for its commit. For tests, recovery and tools; doors use
    /// [`Namespace::submit`].
    pub fn apply(&self, change: impl Into<CausedChange>) -> Result<ChangeReport, ChangeError> {
        let (sender, answer) = std::sync::mpsc::sync_channel(1);
        self.submit(change, move |result| {
            // The receiver waits below, so it cannot be gone.
            let _ = sender.send(result);
        });
        answer.recv().unwrap_or(Err(ChangeError::Stopped))
    }
}

/// The connection that writes. It tells which entries it changes.
fn open_writer(path: &Path, changed: &ChangedEntries) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open(path)?;
    waits_for_its_turn(&mut connection);
    changed.watch(&mut connection)?;
    Ok(connection)
}

/// Keeps every other process from a database, whether or not it exists. Dropping it gives it free.
#[derive(Debug)]
pub struct NamespaceLock {
    _file: File,
}

impl NamespaceLock {
    /// Takes it, or says who is in the way.
    pub fn take(path: &Path) -> Result<NamespaceLock, NamespaceError> {
        Ok(NamespaceLock { _file: lock(path)? })
    }
}

/// Takes the lock file beside the database, and makes the directory if there is none.
fn lock(path: &Path) -> Result<File, NamespaceError> {
    let fail = |path: &Path, source| NamespaceError::File {
        path: path.to_owned(),
        source,
    };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(|source| fail(directory, source))?;
    }
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock_path = PathBuf::from(lock_path);
    let file = File::create(&lock_path).map_err(|source| fail(&lock_path, source))?;
    match penstock_durable_file::take_lock(&file) {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(NamespaceError::InUse(path.to_owned())),
        Err(TryLockError::Error(source)) => Err(fail(&lock_path, source)),
    }
}
