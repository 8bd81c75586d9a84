//! A pool: one directory on one file system that keeps file data by id.
//!
//! Layout: `pool.json` (whose namespace this is), `pool.lock` (held by the process that uses it), `incoming/<id>` (being
//! written, worthless after a crash), `data/<id / 4096>/<id>` (durable), `quarantine/<id>-<unix seconds>` (found after a
//! crash, in no namespace), ids in hexadecimal. Each file carries a label, and beside them lies `directory.log` with what
//! labels do not tell, so that a namespace can be rebuilt from its pools.

mod file_system;
mod health;
mod identity;
mod quarantine;
mod recent_size_checks;
mod reservation;

use crate::disk_full::is_no_space;
pub(crate) use file_system::FileSystem;
use file_system::{FreeSpace, is_on_local_disk};
pub(crate) use health::{DiskHealth, DiskThread};
pub(crate) use identity::{IdentityWriter, PoolIdentity, identity_path, lock_pool, marks_of};
pub(crate) use penstock_durable_file::sync_directory;
pub(crate) use quarantine::Quarantine;
pub(crate) use recent_size_checks::RecentSizeChecks;
pub(crate) use reservation::Reservation;

use crate::config::PoolConfig;
use crate::gate::Gate;
use crate::write_error::WriteError;
use parking_lot::{Mutex, MutexGuard};
use penstock_decide::admission::Requester;
use penstock_decide::pool_condition::PoolCondition;
use penstock_decide::pool_selection::{PoolMode, PoolView};
use penstock_model::{Bytes, PoolName};
use penstock_persistence::namespace::{EntryId, PoolUsage};
use penstock_protocol::exposition::Counter;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The version of the stored form [`PoolIdentity`].
pub(crate) const POOL_VERSION: u32 = 1;
/// Ids per data directory.
pub(crate) const IDS_PER_DIRECTORY: u64 = 4096;
/// Looks at files that may wait for one pool's disk at once, beside its movers.
const LOOKS_MAX: usize = 16;
/// Trash that gives way ahead of the bytes of an announced file, at most.
const EVICTED_AHEAD_MAX: u64 = 64 << 20;
/// Whole files of one pool that are read at once only to compute a checksum.
const CHECKSUM_TURNS: usize = 4;

/// One lock for each file that is in work.
#[derive(Default)]
pub(crate) struct ChecksumLocks(Mutex<HashMap<EntryId, Arc<tokio::sync::Mutex<()>>>>);

impl ChecksumLocks {
    /// Waits until nobody computes a checksum of this file.
    pub(crate) async fn lock(&self, file: EntryId) -> tokio::sync::OwnedMutexGuard<()> {
        let own = {
            let mut files = self.0.lock();
            files.retain(|_, used| Arc::strong_count(used) > 1);
            Arc::clone(files.entry(file).or_default())
        };
        own.lock_owned().await
    }
}

pub(crate) struct Pool {
    pub name: PoolName,
    pub directory: PathBuf,
    pub gate: Arc<Gate>,
    /// How its disk does, and what was counted of it.
    pub health: DiskHealth,
    /// Files that are in no namespace.
    pub quarantine: Quarantine,
    /// Keeps `pool.json` up to date; absent until the pool was made ready.
    pub marker: OnceLock<IdentityWriter>,
    /// Its directory was found to be a pool of this namespace, and no other process has it.
    is_ours: AtomicBool,
    /// A file whose name the system has in memory is opened without waiting for anything.
    opens_at_once: AtomicBool,
    /// Turns of those who look at files here and are no movers, so that a disk that hangs holds few threads.
    pub looks: Arc<Semaphore>,
    /// Files whose data was found as it should be.
    pub recent_files: RecentSizeChecks,
    /// Turns of those who read whole files for their checksums.
    pub checksum_turns: Arc<Semaphore>,
    /// Files whose checksums are being computed: who wants the same waits for that.
    pub summed_files: ChecksumLocks,
    /// Files of the trash that were removed because their time was over, to make room, or by an administrator.
    pub trash_expired: Counter,
    pub trash_evicted: Counter,
    pub trash_emptied: Counter,
    free_reserve: Bytes,
    space: Mutex<Space>,
}

struct Space {
    mode: PoolMode,
    capacity: Option<Bytes>,
    /// Files, visible or trash.
    used: u64,
    /// Bytes and files of the trash among them. Below zero for a moment when a file is removed before it was counted.
    trash: (i64, i64),
    /// Promised to running writers.
    reserved: u64,
    /// Of the promised, not on the disk yet.
    unallocated: u64,
    /// Shared with other pools on it.
    file_system: Arc<FileSystem>,
    /// What the directory had free at the last look.
    seen: FreeSpace,
}

/// No room for that many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom {
    pub free: Bytes,
    /// How much should be free, and would be if trash gave way. `None`: there is not enough of it.
    pub wanted: Option<Bytes>,
}

impl Pool {
    pub(crate) fn new(config: &PoolConfig, used: Bytes, free_reserve: Bytes) -> Pool {
        Pool {
            name: config.name.clone(),
            directory: config.directory.clone(),
            gate: Arc::new(Gate::new(config.movers)),
            health: DiskHealth::default(),
            quarantine: Quarantine::default(),
            marker: OnceLock::new(),
            is_ours: AtomicBool::new(false),
            opens_at_once: AtomicBool::new(false),
            recent_files: RecentSizeChecks::default(),
            looks: Arc::new(Semaphore::new(LOOKS_MAX)),
            checksum_turns: Arc::new(Semaphore::new(CHECKSUM_TURNS)),
            summed_files: ChecksumLocks::default(),
            trash_expired: Counter::default(),
            trash_evicted: Counter::default(),
            trash_emptied: Counter::default(),
            free_reserve,
            space: Mutex::new(Space {
                mode: config.mode,
                capacity: config.capacity,
                used: used.0,
                trash: (0, 0),
                reserved: 0,
                unallocated: 0,
                file_system: Arc::default(),
                seen: FreeSpace::default(),
            }),
        }
    }

    /// What an operator should know of its disk.
    pub(crate) fn condition(&self) -> PoolCondition {
        self.health.condition()
    }

    /// It takes new files, if there is room.
    pub(crate) fn takes_new_files(&self) -> bool {
        self.mode().takes_new_files() && self.condition().takes_files()
    }

    /// Its disk may be used.
    pub(crate) fn is_in_reach(&self) -> bool {
        self.mode() != PoolMode::Disabled && self.condition().gives_files()
    }

    /// Files may be removed from its disk, which answers. One that takes no files may only be full, even too full to be
    /// made ready: what is removed there makes room.
    pub(crate) fn can_remove(&self) -> bool {
        let is_usable = match self.condition() {
            PoolCondition::Sound => true,
            PoolCondition::ReadOnly { .. } => self.is_ours.load(Ordering::Acquire),
            PoolCondition::Silent { .. } | PoolCondition::Away { .. } => false,
        };
        self.mode() != PoolMode::Disabled && is_usable
    }

    /// Whether its directory is a pool of this namespace, which no other process has.
    pub(crate) fn set_ours(&self, is_ours: bool) {
        self.is_ours.store(is_ours, Ordering::Release);
    }

    /// What a failed write means for its client; the pool remembers it.
    pub(crate) fn write_failed(&self, source: io::Error) -> WriteError {
        self.health.write_failed(&self.name, &source);
        WriteError::of_io(self.name.clone(), source)
    }

    /// The same for one that took too long.
    pub(crate) fn write_stalled(&self, after: Duration) -> WriteError {
        self.health.stalled(&self.name, after);
        WriteError::DiskStalled {
            pool: self.name.clone(),
            after,
        }
    }

    /// Its file system, which others may be on, too.
    pub(crate) fn file_system(&self) -> Arc<FileSystem> {
        Arc::clone(&self.space().file_system)
    }

    /// Finds out what its directory has free. Blocks.
    pub(crate) fn look_at_free_space(&self) -> io::Result<()> {
        let seen = self.file_system().look(&self.directory)?;
        self.space().seen = seen;
        let is_local = is_on_local_disk(&self.directory)?;
        self.opens_at_once.store(is_local, Ordering::Relaxed);
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn set_free(&self, free: u64) {
        self.set_free_for(free, None);
    }

    #[cfg(test)]
    pub(crate) fn set_free_for(&self, free: u64, files: Option<u64>) {
        let mut space = self.space();
        space.seen = space.file_system.with_free(free, files);
    }

    /// What its file system has free for it, whatever its capacity.
    pub(crate) fn free_on_disk(&self) -> u64 {
        let space = self.space();
        space.file_system.free(space.seen)
    }

    /// From now on it shares what is promised on this file system.
    pub(crate) fn is_on(&self, file_system: Arc<FileSystem>) {
        let mut space = self.space();
        space.file_system.allocated(space.unallocated);
        file_system.promise(space.unallocated);
        space.file_system = file_system;
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
        let full = self.gate.load().full;
        self.view_with(full)
    }

    /// The same for a file of theirs.
    pub(crate) fn view_for(&self, requester: &Requester) -> PoolView {
        self.view_with(self.gate.refuses(requester))
    }

    fn view_with(&self, queue_full: bool) -> PoolView {
        let load = self.gate.load();
        let space = self.space();
        let free = self.free(&space);
        PoolView {
            pool: self.name.clone(),
            mode: space.mode,
            condition: self.condition(),
            free,
            // Other pools on the file system may take and give meanwhile.
            trash: Bytes(self.available(&space).0.saturating_sub(free.0)),
            files_left: self.files_left(&space),
            writers: load.active + load.queued,
            queue_full,
        }
    }

    /// Used, promised and configured capacity.
    pub(crate) fn filling(&self) -> (Bytes, Bytes, Option<Bytes>) {
        let space = self.space();
        (Bytes(space.used), Bytes(space.reserved), space.capacity)
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock()
    }

    /// Bytes of visible files.
    pub(crate) fn used_by_files(&self) -> Bytes {
        let space = self.space();
        Bytes(space.used.saturating_sub(space.trash().bytes.0))
    }

    /// Bytes and files of the trash.
    pub(crate) fn trash(&self) -> PoolUsage {
        self.space().trash()
    }

    /// How many files its file system can still take from it. `None`: as many as there is room for.
    fn files_left(&self, space: &Space) -> Option<u64> {
        space.file_system.files_left(space.seen)
    }

    /// What new files may have at once.
    fn free(&self, space: &Space) -> Bytes {
        self.room(space, PoolUsage::default())
    }

    /// What new files may have when all trash gives way.
    fn available(&self, space: &Space) -> Bytes {
        self.room(space, space.trash())
    }

    /// What there is room for once so much was removed: nothing where no file can be made.
    fn room(&self, space: &Space, removed: PoolUsage) -> Bytes {
        if self.files_left(space) == Some(0) && removed.files == 0 {
            return Bytes(0);
        }
        let removed = removed.bytes.0;
        let by_disk = space.file_system.free(space.seen).saturating_add(removed);
        let by_disk = by_disk.saturating_sub(self.free_reserve.0);
        let by_capacity = space.capacity.map_or(u64::MAX, |capacity| {
            capacity
                .0
                .saturating_add(removed)
                .saturating_sub(space.used)
                .saturating_sub(space.reserved)
        });
        Bytes(by_disk.min(by_capacity))
    }

    /// Why so many bytes cannot be promised; `ahead`: how many more the writer will need.
    fn no_room(&self, space: &Space, needed: u64, ahead: u64) -> NoRoom {
        let available = self.available(space).0;
        let wanted = needed.saturating_add(ahead.min(EVICTED_AHEAD_MAX));
        NoRoom {
            free: self.free(space),
            wanted: (needed <= available).then_some(Bytes(wanted.min(available))),
        }
    }

    /// The promise to a writer, of nothing yet.
    pub(crate) fn reserve(self: &Arc<Self>) -> Reservation {
        self.reserve_again(0)
    }

    /// The promise for a file of which so many bytes are on the disk already, whether or not there is room.
    pub(crate) fn reserve_again(self: &Arc<Self>, written: u64) -> Reservation {
        self.space().reserved += written;
        Reservation::of(Arc::clone(self), written)
    }

    /// A file of this size fits now, if trash gives way. Promises nothing.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        let space = self.space();
        self.available(&space).0 >= bytes
    }

    /// Trash of earlier runs, which is not counted among the files.
    pub(crate) fn occupy(&self, trash: PoolUsage) {
        let mut space = self.space();
        space.used += trash.bytes.0;
        space.count_trash(trash.bytes, 1, trash.files);
    }

    /// One of its files is trash now.
    pub(crate) fn bury(&self, size: Bytes) {
        self.space().count_trash(size, 1, 1);
    }

    /// One of its trash is a file again.
    pub(crate) fn unbury(&self, size: Bytes) {
        self.space().count_trash(size, -1, 1);
    }

    /// The data of one of its trash is gone.
    pub(crate) fn release(&self, size: Bytes) {
        let mut space = self.space();
        space.used = space.used.saturating_sub(size.0);
        space.count_trash(size, -1, 1);
        space.file_system.gave_back(size.0);
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

    /// What makes a directory this pool is there, as far as names tell: files that are missed now are not only not mounted.
    pub(crate) fn is_laid_out(&self) -> bool {
        let places = [identity_path(&self.directory), self.data_root()];
        places.iter().all(|place| place.exists())
    }

    pub(crate) fn data_root(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Opens a file's data for reading. May wait for the disk.
    pub(crate) fn open(&self, id: EntryId) -> io::Result<File> {
        File::open(self.data_path(id))
    }

    /// The same when the system has all in memory that leads to it. `None`: it has not, or there is no such file.
    pub(crate) fn open_at_once(&self, id: EntryId) -> Option<File> {
        self.find_at_once(id, OFlags::RDONLY)
    }

    /// The bytes of a file's data, when the system has that in memory.
    pub(crate) fn size_at_once(&self, id: EntryId) -> Option<u64> {
        let found = self.find_at_once(id, OFlags::PATH)?;
        Some(found.metadata().ok()?.len())
    }

    fn find_at_once(&self, id: EntryId, how: OFlags) -> Option<File> {
        if !self.opens_at_once.load(Ordering::Relaxed) {
            return None;
        }
        let (path, flags) = (self.data_path(id), how | OFlags::CLOEXEC);
        let cached = ResolveFlags::CACHED;
        let found = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), cached);
        found.ok().map(File::from)
    }

    /// Removes a file's data. Data that is gone already is no error, as long as the pool itself is there.
    pub(crate) fn remove(&self, id: EntryId) -> io::Result<()> {
        match std::fs::remove_file(self.data_path(id)) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                std::fs::metadata(identity_path(&self.directory)).map(drop)
            }
            done => done,
        }
    }

    /// Makes the file that a writer fills.
    pub(crate) fn create_incoming(&self, id: EntryId) -> io::Result<File> {
        self.cover_id(id)?;
        let mut options = OpenOptions::new();
        options.write(true).read(true).create_new(true).mode(0o600);
        options.open(self.incoming_path(id))
    }

    /// Sees to it that `pool.json` tells of this id before a file has it. A pool in which that cannot be written takes no
    /// files.
    pub(crate) fn cover_id(&self, id: EntryId) -> io::Result<()> {
        let Some(marker) = self.marker.get() else {
            return Ok(());
        };
        marker.cover(id).inspect_err(|why| {
            // One that is full is no worse than that: trash gives way first.
            if self.condition().takes_files() && !is_no_space(why) {
                let why = format!("pool.json: {why}");
                self.health.unprepared(&self.name, why);
            }
        })
    }

    /// Gives a file its final place, where nothing may be. Durable when its directory is synced, and the directory above that.
    pub(crate) fn adopt(&self, id: EntryId) -> io::Result<()> {
        let (from, to) = (self.incoming_path(id), self.data_path(id));
        match move_aside(&from, &to) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                // Never more than the last one: the disk may be gone, and its mount point is no pool.
                match std::fs::create_dir(self.data_directory(id)) {
                    Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(why),
                    Ok(()) | Err(_) => {}
                }
                move_aside(&from, &to)
            }
            done => done,
        }
    }

    /// Removes from `incoming/` what runs before this one have left: files with ids below theirs, and what is no file of
    /// a writer. Gives back how many files that were.
    pub(crate) fn clear_incoming(&self, below: Option<EntryId>) -> io::Result<u64> {
        let mut removed = 0;
        for entry in std::fs::read_dir(self.directory.join("incoming"))? {
            let entry = entry?;
            let id = parse_id(&entry.file_name());
            let is_of_this_run = below.is_some_and(|below| id.is_some_and(|id| id >= below));
            if !is_of_this_run {
                tolerate_missing(std::fs::remove_file(entry.path()))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Calls `visit` for each file with an id at or above `from`.
    pub(crate) fn each_file(
        &self,
        from: EntryId,
        mut visit: impl FnMut(EntryId) -> io::Result<()>,
    ) -> io::Result<()> {
        for directory in std::fs::read_dir(self.data_root())? {
            let directory = directory?;
            let Some(EntryId(index)) = parse_id(&directory.file_name()) else {
                continue;
            };
            if index < from.0 / IDS_PER_DIRECTORY {
                continue;
            }
            for file in std::fs::read_dir(directory.path())? {
                if let Some(id) = parse_id(&file?.file_name())
                    && id >= from
                {
                    visit(id)?;
                }
            }
        }
        Ok(())
    }
}

/// The id that a name in a pool stands for.
fn parse_id(name: &std::ffi::OsStr) -> Option<EntryId> {
    u64::from_str_radix(name.to_str()?, 16).ok().map(EntryId)
}

/// Renames a file, unless something has the new name: that is never replaced.
pub(crate) fn move_aside(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system that does not know the flag knows second names, which replace nothing either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        done => Ok(done?),
    }
}

/// Takes disk space for a part of a file, where the file system can.
pub(crate) fn allocate(file: &File, from: u64, length: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), from, length) {
        // Not every file system can; the writes will show whether there is room.
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

fn tolerate_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UncommittedStage {
    Incoming,
    Data,
    Kept,
}

impl Space {
    /// Bytes and files of the trash.
    fn trash(&self) -> PoolUsage {
        let (bytes, files) = self.trash;
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        PoolUsage {
            files: count(files),
            bytes: Bytes(count(bytes)),
        }
    }

    /// So many files of the trash more (`sign` 1) or less (-1), of so many bytes together.
    fn count_trash(&mut self, bytes: Bytes, sign: i64, files: u64) {
        let signed = |count: u64| sign * i64::try_from(count).unwrap_or(i64::MAX);
        self.trash.0 = self.trash.0.saturating_add(signed(bytes.0));
        self.trash.1 = self.trash.1.saturating_add(signed(files));
    }

    fn promise(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.unallocated += bytes;
        self.file_system.promise(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(capacity: u64) -> Arc<Pool> {
        pool_at(std::env::temp_dir(), capacity)
    }

    fn pool_at(directory: PathBuf, capacity: u64) -> Arc<Pool> {
        let config = PoolConfig {
            name: PoolName::new("p"),
            directory,
            capacity: Some(Bytes(capacity)),
            mode: PoolMode::Enabled,
            movers: Default::default(),
        };
        let pool = Pool::new(&config, Bytes(10), Bytes(0));
        pool.set_free(u64::MAX / 2);
        Arc::new(pool)
    }

    #[test]
    fn bytes_on_the_disk_count_while_its_free_space_is_remembered() {
        let pool = pool(u64::MAX);
        pool.set_free(100);
        let mut reservation = pool.reserve();
        reservation.cover(60, None).expect("room");
        assert_eq!(pool.view().free, Bytes(40));
        reservation.allocated_to(60);
        reservation.keep(Bytes(60));
        assert_eq!(pool.view().free, Bytes(40));
    }

    #[test]
    fn a_file_never_takes_the_place_of_another() {
        let directory = tempfile::tempdir().expect("made");
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("new"), b"new").expect("written");
        std::fs::write(at("old"), b"old").expect("written");
        let refused = move_aside(&at("new"), &at("old")).expect_err("taken");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(at("old")).expect("there"), b"old");
        move_aside(&at("new"), &at("free")).expect("moved");
        assert!(at("free").exists() && !at("new").exists());
    }

    #[test]
    fn a_file_that_is_complete_never_takes_the_place_of_one_with_its_id() {
        let directory = tempfile::tempdir().expect("made");
        let pool = pool_at(directory.path().to_owned(), u64::MAX);
        for name in ["incoming", "data"] {
            std::fs::create_dir(directory.path().join(name)).expect("made");
        }
        let (taken, free) = (EntryId(1), EntryId(IDS_PER_DIRECTORY + 1));
        std::fs::write(pool.incoming_path(taken), b"old").expect("written");
        pool.adopt(taken).expect("the directory is made");
        for id in [taken, free] {
            std::fs::write(pool.incoming_path(id), b"new").expect("written");
        }
        let refused = pool.adopt(taken).expect_err("its place is taken");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        let read = |path| std::fs::read(path).expect("there");
        assert_eq!(read(pool.data_path(taken)), b"old");
        assert_eq!(read(pool.incoming_path(taken)), b"new");
        pool.adopt(free).expect("moved");
        assert_eq!(read(pool.data_path(free)), b"new");
    }

    #[test]
    fn pools_on_one_file_system_share_what_is_promised_there() {
        let (first, second) = (pool(u64::MAX), pool(u64::MAX));
        second.is_on(first.file_system());
        first.set_free(100);
        second.set_free(100);
        let mut reservation = first.reserve();
        reservation.cover(60, None).expect("room");
        assert_eq!(second.view().free, Bytes(40));
        reservation.allocated_to(60);
        assert_eq!(second.view().free, Bytes(40));
        drop(reservation);
        assert_eq!(second.view().free, Bytes(40), "until it is looked at again");
        second.release(Bytes(60));
        assert_eq!(first.view().free, Bytes(100));
    }

    #[test]
    fn a_pool_can_be_looked_at_while_another_one_takes_and_gives_on_its_file_system() {
        let (looked_at, busy) = (pool(u64::MAX), pool(u64::MAX));
        busy.is_on(looked_at.file_system());
        looked_at.set_free(1 << 20);
        busy.set_free(1 << 20);
        std::thread::scope(|scope| {
            let looks = || (0..20_000).for_each(|_| drop(looked_at.view()));
            let looking = scope.spawn(looks);
            while !looking.is_finished() {
                let mut reservation = busy.reserve();
                reservation.cover(1000, None).expect("room");
            }
        });
        assert_eq!(looked_at.view().trash, Bytes(0));
    }

    #[test]
    fn a_quota_of_one_directory_says_nothing_of_the_others_there() {
        let (first, second) = (pool(u64::MAX), pool(u64::MAX));
        second.is_on(first.file_system());
        first.set_free(100);
        second.set_free(0);
        assert_eq!(
            (first.view().free, second.view().free),
            (Bytes(100), Bytes(0))
        );
    }

    #[test]
    fn promised_space_is_given_once_and_comes_back() {
        let pool = pool(100);
        let reserve = |bytes| {
            let mut reservation = pool.reserve();
            reservation.cover(bytes, None).map(|()| reservation)
        };
        let mut first = reserve(60).expect("room");
        assert!(matches!(
            reserve(31),
            Err(NoRoom {
                free: Bytes(30),
                wanted: None
            })
        ));
        assert_eq!(first.cover(90, None), Ok(()));
        assert!(first.cover(91, None).is_err());
        first.allocated_to(50);
        drop(first);
        let kept = reserve(90).expect("room again");
        kept.keep(Bytes(80));
        assert_eq!(pool.filling(), (Bytes(90), Bytes(0), Some(Bytes(100))));
        pool.release(Bytes(80));
        assert!(reserve(90).is_ok());
    }

    #[test]
    fn a_file_system_that_can_hold_no_more_files_has_room_when_trash_gives_way() {
        let pool = pool(u64::MAX);
        pool.set_free_for(1000, Some(2));
        for _ in 0..2 {
            pool.reserve().keep(Bytes(0));
        }
        assert_eq!(pool.view().free, Bytes(0));
        let empty = |pool: &Arc<Pool>| pool.reserve().cover(0, Some(0));
        let wanted = empty(&pool).expect_err("no place").wanted;
        assert_eq!(wanted, None, "there is no trash");
        pool.bury(Bytes(0));
        assert!(pool.view().trash.0 > 0);
        let wanted = empty(&pool).expect_err("no place").wanted;
        assert_eq!(wanted, Some(Bytes(1)));
        pool.release(Bytes(0));
        assert_eq!(empty(&pool), Ok(()));
        assert_eq!(pool.view().free, Bytes(1000));
    }

    #[test]
    fn trash_takes_room_that_new_files_may_have_when_it_gives_way() {
        let pool = pool(100);
        pool.occupy(PoolUsage {
            files: 2,
            bytes: Bytes(50),
        });
        let view = pool.view();
        assert_eq!((view.free, view.trash), (Bytes(40), Bytes(50)));
        assert!(pool.has_room_for(90) && !pool.has_room_for(91));
        let mut reservation = pool.reserve();
        let refused = |wanted| {
            Err(NoRoom {
                free: Bytes(40),
                wanted,
            })
        };
        assert_eq!(reservation.cover(91, None), refused(None));
        assert_eq!(reservation.cover(41, None), refused(Some(Bytes(41))));
        assert_eq!(reservation.cover(41, Some(60)), refused(Some(Bytes(60))));
        assert_eq!(reservation.cover_if_fits(41, 91), refused(None));
        pool.release(Bytes(30));
        assert_eq!(reservation.cover(41, None), Ok(()));
        drop(reservation);
        // What comes back is used as before, and gives way no more.
        pool.unbury(Bytes(20));
        let view = pool.view();
        assert_eq!((view.free, view.trash), (Bytes(70), Bytes(0)));
        pool.bury(Bytes(20));
        assert_eq!(
            (pool.filling().0, pool.trash().bytes),
            (Bytes(30), Bytes(20))
        );
    }

    #[test]
    fn of_what_is_only_announced_little_is_promised() {
        let pool = pool(1_000_000_000);
        let mut writers: Vec<_> = (0..100).map(|_| pool.reserve()).collect();
        for writer in &mut writers {
            assert_eq!(writer.cover(1000, Some(900_000_000)), Ok(()));
            assert!(writer.bytes() > 1000 && writer.bytes() < 5_100_000);
        }
        assert!(pool.has_room_for(500_000_000));
        // What has come is promised whatever else was announced, to the last byte.
        drop(writers);
        let mut last = pool.reserve();
        let free = pool.view().free.0;
        assert_eq!(last.cover(free, Some(u64::MAX)), Ok(()));
        assert_eq!(pool.view().free, Bytes(0));
    }
}
