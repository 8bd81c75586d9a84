//! A file that comes from tape: where it goes, and how it becomes durable.
//!
//! The tape system writes to a file in `incoming/` of the pool, under a number of its own, so that what one try has left is never
//! taken for the data of another one. Its bytes are compared while they pass into a second file, which no program of an HSM has
//! ever opened: one that was left running, and still writes, changes nothing of what was accepted. File systems that share
//! blocks between files (XFS, btrfs) make the second file at once; others write the bytes again. That file gets the final name
//! by a second link.

use super::NearlineContext;
use super::driver_task::{LocalError, RecallEnd, RoomLack};
use crate::file_label::{LABEL_VERSION, Label, label_again};
use crate::pool::{Pool, sync_directory};
use crate::reaper::{remove_if_there, with_room};
use crate::uncommitted_file::UncommittedFile;
use penstock_decide::pool_selection::{
    PlacementRefusal, PlacementRequest, PoolReason, PoolView, choose_pool,
};
use penstock_model::{Bytes, Checksum, PoolName};
use penstock_persistence::namespace::{EntryId, NamespaceError, TapeFile};
use penstock_protocol::checksum::Hasher;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ioctl_ficlone};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// After so many bytes it is told how far the look is.
const TOLD_BYTES: u64 = 256 << 20;
/// How long a disk may take to make a file.
const DISK_WAIT: Duration = Duration::from_secs(10);
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// A file on its way from tape to a pool. Dropping it removes what has come.
pub(super) struct PlacedRecall {
    target: TapeFile,
    pool: Arc<Pool>,
    /// What the tape system writes to.
    scratch: UncommittedFile,
    /// What becomes the file.
    accepted: UncommittedFile,
    shares_blocks: bool,
}

/// The room that a recall needs where the file system does not share blocks between files.
pub(super) fn room_for_recall(size: Bytes) -> Bytes {
    Bytes(size.0.saturating_mul(2))
}

/// Makes a place for a file in the pool that suits it best.
pub(super) async fn place(
    context: &NearlineContext,
    file: &TapeFile,
) -> Result<PlacedRecall, LocalError> {
    let unreadable = |why: NamespaceError| LocalError::Namespace(why.to_string());
    let before = context.namespace.trashed(file.id).map_err(unreadable)?;
    if before.is_some() && file.pool.is_some() {
        // The copy in the pool that is away becomes trash with the recall, and the trash has one place for a file.
        return Err(LocalError::Removing);
    }
    let mut search = PoolSearch {
        file: file.id,
        size: file.size,
        own: file.pool.clone(),
        trash: before.map(|before| before.pool),
        full: BTreeSet::new(),
    };
    loop {
        let views: Vec<PoolView> = context.pools.values().map(|pool| pool.view()).collect();
        let name = search.choose(&views)?;
        let Some(pool) = context.pools.get(&name) else {
            return Err(LocalError::NoRoom(RoomLack::OutOfService));
        };
        if let Some(placed) = place_in(context, file, pool).await? {
            return Ok(placed);
        }
        // It has less room than it seemed to have.
        search.full.insert(name);
    }
}

/// Which pool takes a file that comes from tape.
struct PoolSearch {
    file: EntryId,
    size: Bytes,
    /// The pool that has it and is away.
    own: Option<PoolName>,
    /// The removal of data of this name from this pool would take the new data with it.
    trash: Option<PoolName>,
    /// They have been tried in vain.
    full: BTreeSet<PoolName>,
}

impl PoolSearch {
    /// Errors: [`LocalError::NoRoom`] only where no pool takes any file as large.
    fn choose(&self, views: &[PoolView]) -> Result<PoolName, LocalError> {
        let views = views.iter().filter(|view| !self.full.contains(&view.pool));
        let views: Vec<PoolView> = views.cloned().collect();
        let is_own = |view: &PoolView| Some(&view.pool) == self.own.as_ref();
        let is_trash = |view: &PoolView| Some(&view.pool) == self.trash.as_ref();
        let others = views.iter().filter(|view| !is_own(view) && !is_trash(view));
        let others: Vec<PoolView> = others.cloned().collect();
        let placement = |size| PlacementRequest {
            size: Some(size),
            draw: self.file.0.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        };
        // One that has room for both files before one that may do with room for one.
        let chosen = choose_pool(&others, &placement(room_for_recall(self.size))).choice;
        if let Ok(name) = chosen {
            return Ok(name);
        }
        if let Ok(name) = choose_pool(&others, &placement(self.size)).choice {
            return Ok(name);
        }
        let of_any = choose_pool(&views, &placement(self.size));
        let mut reasons = of_any.because.iter();
        let is_full = reasons.any(|reason| {
            matches!(
                reason,
                PoolReason::Full { .. } | PoolReason::OutOfFiles { .. }
            )
        });
        let is_full = is_full || !self.full.is_empty();
        Err(match of_any.choice {
            Ok(name) if self.own.as_ref() == Some(&name) => LocalError::PoolAway,
            Ok(_) => LocalError::Removing,
            Err(PlacementRefusal::QueuesFull) => LocalError::PoolsBusy,
            Err(_) if is_full => LocalError::NoRoom(RoomLack::Full),
            Err(_) => LocalError::NoRoom(RoomLack::OutOfService),
        })
    }
}

/// Makes a place in this pool. `None`: it has no room for it.
async fn place_in(
    context: &NearlineContext,
    file: &TapeFile,
    pool: &Arc<Pool>,
) -> Result<Option<PlacedRecall>, LocalError> {
    let mut reservation = pool.reserve();
    let promise = || reservation.cover(file.size.0, Some(file.size.0));
    if with_room(&context.reaper, pool, promise).await.is_err() {
        return Ok(None);
    }
    let (scratch_id, accepted_id) = (context.namespace.allocate(), context.namespace.allocate());
    let (at, id, reaper) = (Arc::clone(pool), file.id, context.reaper.clone());
    let made = tokio::task::spawn_blocking(move || {
        // A process that was killed may have left data of this name; or it is the file's own, which was not seen for a moment, or was
        // found damaged. It goes out of the way, and not away: what comes from tape may be none.
        at.put_before_recall(id)?;
        let scratch =
            UncommittedFile::create(scratch_id, reservation, Arc::clone(&at), reaper.clone())?;
        let accepted = UncommittedFile::create(accepted_id, at.reserve(), at, reaper)?;
        let shares_blocks = ioctl_ficlone(&accepted.file, &scratch.file).is_ok();
        Ok::<_, io::Error>((scratch, accepted, shares_blocks))
    });
    let made = tokio::time::timeout(DISK_WAIT, made).await;
    let silent = || {
        io::Error::new(
            io::ErrorKind::TimedOut,
            "the disk of its pool does not answer",
        )
    };
    let made = made.map_err(|_| silent())?.map_err(io::Error::other)?;
    let (scratch, mut accepted, shares_blocks) = made?;
    if !shares_blocks {
        let second = accepted.reservation();
        let promise = || second.cover(file.size.0, Some(file.size.0));
        if with_room(&context.reaper, pool, promise).await.is_err() {
            return Ok(None);
        }
    }
    Ok(Some(PlacedRecall {
        target: file.clone(),
        pool: Arc::clone(pool),
        scratch,
        accepted,
        shares_blocks,
    }))
}

impl PlacedRecall {
    /// Where the tape system writes it.
    pub(super) fn path(&self) -> PathBuf {
        self.pool.incoming_path(self.scratch.id)
    }

    pub(super) fn target(&self) -> &TapeFile {
        &self.target
    }

    pub(super) fn file(&self) -> EntryId {
        self.target.id
    }

    pub(super) fn pool(&self) -> &PoolName {
        &self.pool.name
    }

    /// Looks at the bytes and makes them durable under their final name, on another thread.
    /// `reading` hears now and then how far that is, in bytes beyond those of the file.
    pub(super) fn check(
        &self,
        reading: impl Fn(u64) + Send + 'static,
        tell: impl FnOnce(RecallEnd) + Send + 'static,
    ) {
        let (target, pool, path) = (self.target.clone(), Arc::clone(&self.pool), self.path());
        let (accepted, shares_blocks) = (self.accepted.file.try_clone(), self.shares_blocks);
        tokio::task::spawn_blocking(move || {
            let looked = accepted.map_err(ArrivalError::Disk).and_then(|accepted| {
                let arrived = ArrivedFile {
                    path: &path,
                    accepted: &accepted,
                    shares_blocks,
                };
                accept(&target, &arrived, &reading)?;
                Ok(settle(&target, &pool, &accepted)?)
            });
            tell(match looked {
                Ok(()) => RecallEnd::Brought,
                Err(why) => why.into_end(&pool),
            });
        });
    }

    /// Its entry is committed: the data stays.
    pub(super) fn keep(self) {
        let path = self.pool.incoming_path(self.accepted.id);
        self.accepted.keep(self.target.size);
        if let Err(why) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %why, "the second name of a recalled file stays until the next start");
        }
        drop_before_recall(&self.pool, self.target.id);
    }

    /// There is no file to which the data belongs.
    pub(super) fn withdraw(self) {
        if let Err(why) = remove_if_there(&self.pool.data_path(self.target.id)) {
            tracing::warn!(file = %self.target.id, %why, "the data of a file that is gone stays in its pool");
        }
        drop_before_recall(&self.pool, self.target.id);
    }

    /// It is not known whether its entry is committed: the next start finds out.
    pub(super) fn leave(self) {
        self.accepted.leave();
    }
}

fn drop_before_recall(pool: &Pool, file: EntryId) {
    if let Err(why) = pool.drop_before_recall(file) {
        let path = pool.before_recall_path(file);
        tracing::warn!(path = %path.display(), %why, "data that was put out of the way of a recall stays until the next start");
    }
}

/// A file that was brought, and the empty one that takes its bytes.
struct ArrivedFile<'a> {
    path: &'a Path,
    accepted: &'a File,
    shares_blocks: bool,
}

/// Why what has come is not kept.
#[derive(Debug, Error)]
enum ArrivalError {
    #[error("{0}")]
    WrongData(String),
    #[error("{0}")]
    Disk(#[from] io::Error),
}

impl ArrivalError {
    fn into_end(self, pool: &Pool) -> RecallEnd {
        match self {
            ArrivalError::WrongData(text) => RecallEnd::WrongData(text),
            ArrivalError::Disk(why) if why.kind() == io::ErrorKind::StorageFull => {
                // Others may have room. What this one has the next try is to know.
                if let Err(why) = pool.look_at_free_space() {
                    tracing::warn!(pool = %pool.name, %why, "free space is not known");
                }
                RecallEnd::NotTaken(why.into())
            }
            ArrivalError::Disk(why) => {
                pool.health.read_failed(why.to_string());
                RecallEnd::NotTaken(why.into())
            }
        }
    }
}

/// Gives the accepted file the bytes that have come, and looks at what it has got.
fn accept(
    target: &TapeFile,
    arrived: &ArrivedFile<'_>,
    reading: &dyn Fn(u64),
) -> Result<(), ArrivalError> {
    // By name, and no symbolic link: the program may have put another file there.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let found = rustix::fs::open(arrived.path, flags, Mode::empty()).map_err(io::Error::from)?;
    let found = File::from(found);
    let mut accepted = arrived.accepted;
    let is_shared = arrived.shares_blocks && ioctl_ficlone(accepted, &found).is_ok();
    let size = target.size.0;
    // One byte more shows that there are more.
    let mut bytes: Box<dyn Read + '_> = match is_shared {
        true => Box::new(accepted.take(size + 1)),
        false => Box::new((&found).take(size + 1)),
    };
    let algorithms: Vec<_> = target.checksums.iter().map(Checksum::algorithm).collect();
    let mut hasher = Hasher::new(&algorithms);
    let mut buffer = vec![0; READ_BYTES];
    let (mut read, mut told) = (0_u64, 0_u64);
    loop {
        let count = bytes.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        if !is_shared {
            accepted.write_all(&buffer[..count])?;
        }
        read += count as u64;
        if read - told >= TOLD_BYTES {
            told = read;
            reading(size.saturating_add(read));
        }
    }
    if read != size {
        let come = found.metadata()?.len();
        let text = format!("the tape system has brought {come} bytes instead of {size}");
        return Err(ArrivalError::WrongData(text));
    }
    let sums = hasher.finish();
    match sums.iter().find(|sum| !target.checksums.contains(sum)) {
        None => Ok(()),
        Some(sum) => Err(ArrivalError::WrongData(format!(
            "the tape system has brought other bytes: their checksum is {sum}, and was another one when the file was written"
        ))),
    }
}

/// Makes it durable under its final name.
fn settle(target: &TapeFile, pool: &Arc<Pool>, file: &File) -> io::Result<()> {
    let label = Label {
        version: LABEL_VERSION,
        id: Some(target.id),
        parent: None,
        path: target.path.clone(),
        size: target.size,
        checksums: target.checksums.clone(),
        owner: target.owner.clone(),
        created: target.created,
        archival: target.archival,
    };
    label_again(file, label)?;
    file.sync_all()?;
    let directory = pool.data_directory(target.id);
    std::fs::create_dir_all(&directory)?;
    // Of the open file, whatever its name means by now.
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    let place = pool.data_path(target.id);
    rustix::fs::linkat(CWD, open, CWD, place, AtFlags::SYMLINK_FOLLOW)?;
    sync_directory(&directory)?;
    sync_directory(&pool.data_root())
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_decide::pool_condition::PoolCondition;
    use penstock_decide::pool_selection::PoolMode;

    fn pool(name: &str, free: u64) -> PoolView {
        PoolView {
            pool: PoolName::new(name),
            mode: PoolMode::Enabled,
            condition: PoolCondition::Sound,
            free: Bytes(free),
            trash: Bytes(0),
            files_left: None,
            writers: 0,
            queue_full: false,
        }
    }

    fn drained(name: &str, free: u64) -> PoolView {
        PoolView {
            mode: PoolMode::Drained,
            ..pool(name, free)
        }
    }

    fn search() -> PoolSearch {
        PoolSearch {
            file: EntryId(7),
            size: Bytes(100),
            own: None,
            trash: None,
            full: BTreeSet::new(),
        }
    }

    fn refused(search: &PoolSearch, views: &[PoolView]) -> LocalError {
        search.choose(views).expect_err("no pool takes it")
    }

    #[test]
    fn others_are_held_back_only_where_no_pool_at_all_takes_a_file_as_large() {
        use LocalError as E;
        let chosen = search().choose(&[pool("a", 99), pool("b", 100)]);
        assert_eq!(chosen.expect("chosen"), PoolName::new("b"));
        // Its data of before is in the one pool with room: that is this file's own trouble.
        let own = PoolSearch {
            trash: Some(PoolName::new("a")),
            ..search()
        };
        let free = pool("a", 1_000_000);
        for other in [pool("b", 5), drained("b", 1_000)] {
            let why = refused(&own, &[free.clone(), other]);
            assert!(matches!(why, E::Removing), "{why}");
        }
        let why = refused(&own, &[pool("a", 5), pool("b", 5)]);
        assert!(matches!(why, E::NoRoom(RoomLack::Full)), "{why}");
        let why = refused(&search(), &[pool("a", 5), drained("b", 1_000)]);
        assert!(matches!(why, E::NoRoom(RoomLack::Full)), "{why}");
        let why = refused(&search(), &[drained("b", 1_000)]);
        assert!(matches!(why, E::NoRoom(RoomLack::OutOfService)), "{why}");
        let busy = PoolView {
            queue_full: true,
            ..pool("a", 1_000)
        };
        let why = refused(&search(), &[busy, pool("b", 5)]);
        assert!(matches!(why, E::PoolsBusy), "{why}");
    }

    #[test]
    fn a_pool_with_less_room_than_it_seemed_to_have_is_not_tried_twice() {
        let mut search = search();
        let views = [pool("a", 1_000), pool("b", 1_000)];
        for _ in &views {
            let name = search.choose(&views).expect("chosen");
            assert!(search.full.insert(name), "another one");
        }
        let why = refused(&search, &views);
        assert!(matches!(why, LocalError::NoRoom(RoomLack::Full)), "{why}");
    }
}
