//! A pool: one directory on one file system that keeps file data by id.
//!
//! Layout: `pool.json` (whose namespace this is), `incoming/<id>` (being written, worthless after a
//! crash), `data/<id / 4096>/<id>` (durable), all in hexadecimal. Each file carries its path at the time
//! of writing, its size and its checksums in the extended attribute `user.penstock`, so that a namespace
//! can be rebuilt from its pools.

use crate::config::PoolConfig;
use crate::gate::Gate;
use penstock_decide::pool_selection::{PoolMode, PoolView};
use penstock_model::{Bytes, Checksum, NamespacePath, PoolName, Timestamp, UserName};
use penstock_persistence::namespace::EntryId;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The version of the stored forms [`PoolIdentity`] and [`Label`].
pub(crate) const POOL_VERSION: u32 = 1;
/// Ids per data directory.
const IDS_PER_DIRECTORY: u64 = 4096;
/// How long a look at the file system's free space is believed.
const SPACE_AGE_MAX: Duration = Duration::from_millis(200);
/// The extended attribute that describes a file.
const LABEL_NAME: &str = "user.penstock";

/// One pool.
pub(crate) struct Pool {
    pub name: PoolName,
    pub directory: PathBuf,
    pub gate: Arc<Gate>,
    free_reserve: Bytes,
    space: Mutex<Space>,
}

struct Space {
    mode: PoolMode,
    capacity: Option<Bytes>,
    /// Files, visible or trash.
    used: u64,
    /// Promised to running writers.
    reserved: u64,
    /// Of the promised, not on the disk yet.
    unallocated: u64,
    /// What the file system had free, and when it was asked.
    file_system: Option<(Instant, u64)>,
}

/// What `pool.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolIdentity {
    pub version: u32,
    pub pool: PoolName,
    /// The namespace that knows the files in here.
    pub namespace: uuid::Uuid,
    /// That namespace's first id when it last started. A namespace that started less often is an old copy.
    pub low_water: EntryId,
    /// How many movers that namespace had recorded when this was written, some seconds ago at most while it runs. A
    /// namespace that knows fewer is an old copy, and must not judge which files were never acknowledged.
    #[serde(default)]
    pub records_seen: u64,
}

/// What a file's extended attribute says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Label {
    pub version: u32,
    /// Where it was written to. A later MOVE does not change it. The root: too long for the file system to keep.
    pub path: NamespacePath,
    pub size: Bytes,
    pub checksums: Vec<Checksum>,
    pub owner: Option<UserName>,
    pub created: Timestamp,
}

/// No room for that many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom {
    pub free: Bytes,
}

impl Pool {
    pub(crate) fn new(config: &PoolConfig, used: Bytes, free_reserve: Bytes) -> Pool {
        Pool {
            name: config.name.clone(),
            directory: config.directory.clone(),
            gate: Arc::new(Gate::new(config.movers)),
            free_reserve,
            space: Mutex::new(Space {
                mode: config.mode,
                capacity: config.capacity,
                used: used.0,
                reserved: 0,
                unallocated: 0,
                file_system: None,
            }),
        }
    }

    /// Takes what an operator may change while the pool is in use.
    pub(crate) fn reconfigure(&self, config: &PoolConfig) {
        self.gate.set_limits(config.movers);
        let mut space = self.space();
        space.mode = config.mode;
        space.capacity = config.capacity;
    }

    pub(crate) fn mode(&self) -> PoolMode {
        self.space().mode
    }

    pub(crate) fn view(&self) -> PoolView {
        let load = self.gate.load();
        let mut space = self.space();
        PoolView {
            pool: self.name.clone(),
            mode: space.mode,
            free: self.free(&mut space),
            writers: load.active + load.queued,
            queue_full: load.full,
        }
    }

    /// Used, promised and configured capacity.
    pub(crate) fn filling(&self) -> (Bytes, Bytes, Option<Bytes>) {
        let space = self.space();
        (Bytes(space.used), Bytes(space.reserved), space.capacity)
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What new files may have.
    fn free(&self, space: &mut Space) -> Bytes {
        let on_disk = match space.file_system {
            Some((at, free)) if at.elapsed() < SPACE_AGE_MAX => free,
            Some(_) | None => {
                // A file system that does not answer takes no files.
                let free = rustix::fs::statvfs(&self.directory)
                    .map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
                space.file_system = Some((Instant::now(), free));
                free
            }
        };
        let by_disk = on_disk
            .saturating_sub(space.unallocated)
            .saturating_sub(self.free_reserve.0);
        let by_capacity = space.capacity.map_or(u64::MAX, |capacity| {
            capacity
                .0
                .saturating_sub(space.used)
                .saturating_sub(space.reserved)
        });
        Bytes(by_disk.min(by_capacity))
    }

    /// Promises `bytes` to a writer.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation, NoRoom> {
        let mut reservation = Reservation {
            pool: Arc::clone(self),
            bytes: 0,
            unallocated: 0,
        };
        reservation.grow_to(bytes)?;
        Ok(reservation)
    }

    /// The promise of an earlier run for a file of which `written` bytes are on the disk, kept whether or not there is
    /// room: those bytes are there.
    pub(crate) fn reserve_again(
        self: &Arc<Self>,
        written: u64,
        length: Option<u64>,
    ) -> Reservation {
        let bytes = length.unwrap_or(written).max(written);
        let unallocated = bytes - written;
        let mut space = self.space();
        space.reserved += bytes;
        space.unallocated += unallocated;
        Reservation {
            pool: Arc::clone(self),
            bytes,
            unallocated,
        }
    }

    /// Data of a removed file that is still there.
    pub(crate) fn occupy(&self, size: Bytes) {
        self.space().used += size.0;
    }

    /// The data of a removed file is gone.
    pub(crate) fn release(&self, size: Bytes) {
        let mut space = self.space();
        space.used = space.used.saturating_sub(size.0);
        space.file_system = None;
    }

    pub(crate) fn incoming_path(&self, id: EntryId) -> PathBuf {
        self.directory.join("incoming").join(id.to_string())
    }

    pub(crate) fn data_directory(&self, id: EntryId) -> PathBuf {
        self.data_root()
            .join(format!("{:x}", id.0 / IDS_PER_DIRECTORY))
    }

    pub(crate) fn data_path(&self, id: EntryId) -> PathBuf {
        self.data_directory(id).join(id.to_string())
    }

    pub(crate) fn data_root(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Opens a file's data for reading.
    pub(crate) fn open(&self, id: EntryId) -> io::Result<File> {
        File::open(self.data_path(id))
    }

    /// Removes a file's data. Data that is gone already is no error.
    pub(crate) fn remove(&self, id: EntryId) -> io::Result<()> {
        tolerate_missing(std::fs::remove_file(self.data_path(id)))
    }

    /// Makes the file that a writer fills. `length` reserves disk space where the file system can.
    pub(crate) fn create_incoming(&self, id: EntryId, length: Option<u64>) -> io::Result<File> {
        let path = self.incoming_path(id);
        let file = OpenOptions::new()
            .write(true)
            .read(true)
            .create_new(true)
            .open(&path)?;
        if let Some(length) = length {
            match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length) {
                // Not every file system can; the writes will show whether there is room.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(why) => {
                    tolerate_missing(std::fs::remove_file(&path))?;
                    return Err(why.into());
                }
            }
        }
        Ok(file)
    }

    /// Gives a complete, synced file its final place. Durable after [`sync_directory`] of its directory.
    pub(crate) fn adopt(&self, id: EntryId) -> io::Result<()> {
        let (from, to) = (self.incoming_path(id), self.data_path(id));
        match std::fs::rename(&from, &to) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(self.data_directory(id))?;
                sync_directory(&self.data_root())?;
                std::fs::rename(&from, &to)
            }
            done => done,
        }
    }

    /// Writes `pool.json`, replacing it in one step.
    pub(crate) fn write_identity(&self, identity: &PoolIdentity) -> io::Result<()> {
        let new = self.directory.join("pool.json.new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec_pretty(identity)?)?;
        file.sync_all()?;
        std::fs::rename(&new, identity_path(&self.directory))?;
        sync_directory(&self.directory)
    }

    /// Removes everything in `incoming/`; gives back how many files that were.
    pub(crate) fn clear_incoming(&self) -> io::Result<u64> {
        let mut removed = 0;
        for entry in std::fs::read_dir(self.directory.join("incoming"))? {
            tolerate_missing(std::fs::remove_file(entry?.path()))?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Calls `visit` for each file with an id at or above `from`.
    pub(crate) fn each_file(
        &self,
        from: EntryId,
        mut visit: impl FnMut(EntryId) -> io::Result<()>,
    ) -> io::Result<()> {
        let parse = |name: std::ffi::OsString| u64::from_str_radix(name.to_str()?, 16).ok();
        for directory in std::fs::read_dir(self.data_root())? {
            let directory = directory?;
            let Some(index) = parse(directory.file_name()) else {
                continue;
            };
            if index < from.0 / IDS_PER_DIRECTORY {
                continue;
            }
            for file in std::fs::read_dir(directory.path())? {
                if let Some(id) = parse(file?.file_name())
                    && id >= from.0
                {
                    visit(EntryId(id))?;
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn identity_path(directory: &Path) -> PathBuf {
    directory.join("pool.json")
}

/// Describes a file inside itself. Errors: `Unsupported` where the file system has no extended attributes.
pub(crate) fn write_label(file: &File, label: &Label) -> io::Result<()> {
    let json = serde_json::to_vec(label)?;
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::fsetxattr(file, LABEL_NAME, &json, flags).map_err(|why| match why {
        rustix::io::Errno::OPNOTSUPP => io::ErrorKind::Unsupported.into(),
        why => why.into(),
    })
}

/// Reads what [`write_label`] wrote.
#[cfg(test)]
pub(crate) fn read_label(file: &File) -> io::Result<Label> {
    let mut value = vec![0; 64 << 10];
    let length = rustix::fs::fgetxattr(file, LABEL_NAME, &mut value[..])?;
    Ok(serde_json::from_slice(&value[..length])?)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn tolerate_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Space promised to one writer. Dropping it gives the space back.
pub(crate) struct Reservation {
    pool: Arc<Pool>,
    bytes: u64,
    unallocated: u64,
}

impl Reservation {
    /// Promises more, up to `bytes` in all.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), NoRoom> {
        let more = bytes.saturating_sub(self.bytes);
        let mut space = self.pool.space();
        if more > 0 {
            let free = self.pool.free(&mut space);
            if free.0 < more {
                return Err(NoRoom { free });
            }
        }
        space.reserved += more;
        space.unallocated += more;
        self.bytes += more;
        self.unallocated += more;
        Ok(())
    }

    /// The disk has the first `bytes` now, so the file system counts them itself.
    pub(crate) fn allocated_to(&mut self, bytes: u64) {
        let still = self.bytes.saturating_sub(bytes).min(self.unallocated);
        let allocated = self.unallocated - still;
        let mut space = self.pool.space();
        space.unallocated -= allocated;
        // What is remembered of the file system is from before these bytes.
        if let Some((_, free)) = &mut space.file_system {
            *free = free.saturating_sub(allocated);
        }
        self.unallocated = still;
    }

    /// The file stays, with this size.
    pub(crate) fn keep(self, size: Bytes) {
        self.pool.space().used += size.0;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut space = self.pool.space();
        space.reserved -= self.bytes;
        space.unallocated -= self.unallocated;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(capacity: u64) -> Arc<Pool> {
        let config = PoolConfig {
            name: PoolName::new("p"),
            directory: std::env::temp_dir(),
            capacity: Some(Bytes(capacity)),
            mode: PoolMode::Enabled,
            movers: Default::default(),
        };
        Arc::new(Pool::new(&config, Bytes(10), Bytes(0)))
    }

    #[test]
    fn bytes_on_the_disk_count_while_its_free_space_is_remembered() {
        let pool = pool(u64::MAX);
        let fresh_for_long = Instant::now() + Duration::from_secs(3600);
        pool.space().file_system = Some((fresh_for_long, 100));
        let mut reservation = pool.reserve(60).expect("room");
        assert_eq!(pool.view().free, Bytes(40));
        reservation.allocated_to(60);
        reservation.keep(Bytes(60));
        assert_eq!(pool.view().free, Bytes(40));
    }

    #[test]
    fn promised_space_is_given_once_and_comes_back() {
        let pool = pool(100);
        let mut first = pool.reserve(60).expect("room");
        assert!(matches!(pool.reserve(31), Err(NoRoom { free: Bytes(30) })));
        assert_eq!(first.grow_to(90), Ok(()));
        assert!(first.grow_to(91).is_err());
        first.allocated_to(50);
        drop(first);
        let kept = pool.reserve(90).expect("room again");
        kept.keep(Bytes(80));
        assert_eq!(pool.filling(), (Bytes(90), Bytes(0), Some(Bytes(100))));
        pool.release(Bytes(80));
        assert!(pool.reserve(90).is_ok());
    }
}
