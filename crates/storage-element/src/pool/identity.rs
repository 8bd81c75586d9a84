//! `pool.json`: whose files a pool keeps, and how far their namespace had come. And `pool.lock`, which keeps a second
//! process away.
//!
//! The marks in it are written before files depend on them. So a namespace that has not come as far is an old copy, and
//! says nothing about which files were never acknowledged.

use super::POOL_VERSION;
use parking_lot::Mutex;
use penstock_durable_file::replace_private;
use penstock_model::PoolName;
use penstock_persistence::namespace::{Change, EntryId, Namespace, NamespaceError};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

/// What `pool.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolIdentity {
    pub version: u32,
    pub pool: PoolName,
    /// The namespace that knows the files in here.
    pub namespace: Uuid,
    /// That namespace's first id when it last started with this pool. One that started less often is an old copy.
    pub low_water: EntryId,
    /// Files here have ids below this. A namespace that has set fewer aside is an old copy. Absent in the first pools.
    #[serde(default = "no_id")]
    pub ids_below: EntryId,
    /// How many movers that namespace had recorded when this was written, some seconds ago at most while it runs. One
    /// that knows fewer is an old copy.
    #[serde(default)]
    pub records_seen: u64,
    /// Which restore that namespace came from. Another one may not know what was stored since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Uuid>,
}

fn no_id() -> EntryId {
    EntryId(0)
}

/// How far a namespace has come, to be compared with what a pool has seen of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamespaceProgress {
    pub low_water: EntryId,
    pub ids_below: EntryId,
    pub records: u64,
}

impl PoolIdentity {
    /// The pool has seen a newer state of its namespace than this one.
    pub(crate) fn is_ahead_of(&self, namespace: NamespaceProgress) -> bool {
        self.low_water > namespace.low_water
            || self.ids_below > namespace.ids_below
            || self.records_seen > namespace.records
    }
}

/// Writes `pool.json`.
pub(crate) struct IdentityWriter {
    directory: PathBuf,
    namespace: Arc<Namespace>,
    identity: Mutex<PoolIdentity>,
    /// As in the file.
    ids_below: AtomicU64,
}

impl IdentityWriter {
    /// Makes the pool this namespace's. Blocks, like all others here.
    pub(crate) fn begin(
        directory: &Path,
        pool: &PoolName,
        namespace: &Arc<Namespace>,
        is_new: bool,
    ) -> io::Result<IdentityWriter> {
        let marker = IdentityWriter {
            directory: directory.to_owned(),
            namespace: Arc::clone(namespace),
            identity: Mutex::new(PoolIdentity {
                version: POOL_VERSION,
                pool: pool.clone(),
                namespace: namespace.uuid(),
                low_water: namespace.first_id(),
                ids_below: no_id(),
                records_seen: 0,
                restore: namespace.restore_id(),
            }),
            ids_below: AtomicU64::new(0),
        };
        match is_new {
            true => marker.write_anywhere()?,
            false => marker.write()?,
        }
        Ok(marker)
    }

    /// Sees to it that the file tells of this id.
    pub(super) fn cover(&self, id: EntryId) -> io::Result<()> {
        if id.0 < self.ids_below.load(Ordering::Acquire) {
            return Ok(());
        }
        if id >= self.namespace.ids_reserved() {
            let reserved = self.namespace.apply(Change::ReserveIds(id));
            reserved.map_err(io::Error::other)?;
        }
        self.write()
    }

    /// Writes how far the namespace has come, unless that is known.
    pub(crate) fn refresh(&self) -> io::Result<()> {
        let known = self.read().records_seen;
        match self.namespace.records_ever().map_err(io::Error::other)? == known {
            true => Ok(()),
            false => self.write(),
        }
    }

    /// Writes it where it is. An empty mount point does not become a pool by this.
    pub(crate) fn write(&self) -> io::Result<()> {
        std::fs::metadata(identity_path(&self.directory))?;
        self.write_anywhere()
    }

    fn write_anywhere(&self) -> io::Result<()> {
        let mut identity = self.read();
        let new = PoolIdentity {
            ids_below: self.namespace.ids_reserved(),
            records_seen: self.namespace.records_ever().map_err(io::Error::other)?,
            ..identity.clone()
        };
        write_identity(&self.directory, &new)?;
        self.ids_below.store(new.ids_below.0, Ordering::Release);
        *identity = new;
        Ok(())
    }

    fn read(&self) -> parking_lot::MutexGuard<'_, PoolIdentity> {
        self.identity.lock()
    }
}

pub(crate) fn identity_path(directory: &Path) -> PathBuf {
    directory.join("pool.json")
}

/// Replaces `pool.json` in one step.
fn write_identity(directory: &Path, identity: &PoolIdentity) -> io::Result<()> {
    replace_private(
        &identity_path(directory),
        &serde_json::to_vec_pretty(identity)?,
    )
}

/// How far a namespace has come: as it was opened, or now.
pub(crate) fn marks_of(
    namespace: &Namespace,
    now: bool,
) -> Result<NamespaceProgress, NamespaceError> {
    Ok(NamespaceProgress {
        low_water: match now {
            true => namespace.first_id(),
            false => namespace.low_water(),
        },
        ids_below: match now {
            true => namespace.ids_reserved(),
            false => namespace.first_id(),
        },
        records: namespace.records_ever()?,
    })
}

/// Keeps other processes off a pool as long as the file is open. `None`: the file system takes no lock file, so nobody
/// writes there either.
///
/// Errors: `WouldBlock` when another process has it.
pub(crate) fn lock_pool(directory: &Path) -> io::Result<Option<File>> {
    let path = directory.join("pool.lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = match options.open(&path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::ReadOnlyFilesystem => match File::open(&path) {
            Ok(file) => file,
            Err(_) => return Ok(None),
        },
        Err(why) => return Err(why),
    };
    match penstock_durable_file::take_lock(&file) {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(why)) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{Bytes, NamespacePath, Timestamp};
    use penstock_persistence::namespace::{MoverKind, MoverOutcome, MoverRecord};

    #[test]
    fn an_identity_of_the_first_version_can_be_read() {
        let old = r#"{"version":1,"pool":"p1","namespace":"6a3f6a0e-0c55-4c9e-8d2a-0f1f6e1a2b3c","low_water":2}"#;
        let identity: PoolIdentity = serde_json::from_str(old).expect("understood");
        assert_eq!(identity.ids_below, EntryId(0));
        assert_eq!((identity.low_water, identity.records_seen), (EntryId(2), 0));
    }

    #[test]
    fn how_far_the_namespace_has_come_is_written_when_that_is_possible_again() {
        let directory = tempfile::tempdir().expect("made");
        let namespace = Namespace::open(&directory.path().join("namespace.sqlite"));
        let namespace = Arc::new(namespace.expect("opens"));
        let pool = directory.path().join("pool");
        std::fs::create_dir(&pool).expect("made");
        let marker = IdentityWriter::begin(&pool, &PoolName::new("p1"), &namespace, true);
        let marker = marker.expect("marked");
        let record = MoverRecord {
            at: Timestamp(1),
            kind: MoverKind::Get,
            path: NamespacePath::root(),
            peer: String::new(),
            copy: None,
            challenge: None,
            file_size: None,
            user: None,
            vo: None,
            pool: None,
            moved: Bytes(0),
            duration_us: 0,
            stages: Default::default(),
            tcp: None,
            selection: Default::default(),
            outcome: MoverOutcome::Done,
        };
        let recorded = namespace.apply(Change::RecordMovers(vec![record]));
        recorded.expect("recorded");
        let seen = || {
            let text = std::fs::read(identity_path(&pool)).expect("there");
            let identity: PoolIdentity = serde_json::from_slice(&text).expect("understood");
            identity.records_seen
        };
        let in_the_way = pool.join("pool.json.new");
        std::fs::create_dir(&in_the_way).expect("made");
        for _ in 0..2 {
            marker.refresh().expect_err("it cannot be written");
            assert_eq!(seen(), 0);
        }
        std::fs::remove_dir(&in_the_way).expect("removed");
        marker.refresh().expect("written");
        assert_eq!(seen(), 1);
    }

    #[test]
    fn a_namespace_that_has_not_come_as_far_in_any_way_is_an_old_copy() {
        let identity = PoolIdentity {
            version: 1,
            pool: PoolName::new("p1"),
            namespace: Uuid::nil(),
            low_water: EntryId(10),
            ids_below: EntryId(20),
            records_seen: 30,
            restore: None,
        };
        let check = |low_water, ids_below, records, expected| {
            let (low_water, ids_below) = (EntryId(low_water), EntryId(ids_below));
            let marks = NamespaceProgress {
                low_water,
                ids_below,
                records,
            };
            assert_eq!(identity.is_ahead_of(marks), expected, "{marks:?}");
        };
        check(10, 20, 30, false);
        check(11, 21, 31, false);
        check(9, 20, 30, true);
        check(10, 19, 30, true);
        check(10, 20, 29, true);
    }
}
