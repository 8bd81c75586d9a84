//! A file that comes from tape: where it goes, and how it becomes durable.
//!
//! The tape system writes to a file in `incoming/` of the pool, under a number of its own, so that what one try has left is never
//! taken for the data of another one. Its bytes are compared while they pass into a second file, which no program of an HSM has
//! ever opened: one that was left running, and still writes, changes nothing of what was accepted. File systems that share
//! blocks between files (XFS, btrfs) make the second file at once; others write the bytes again. That file gets the final name
//! by a second link.

use super::NearlineContext;
use super::driver_task::{LocalError, RecallEnd};
use crate::file_label::{LABEL_VERSION, Label, label_again};
use crate::pool::{Pool, sync_directory};
use crate::reaper::{remove_if_there, with_room};
use crate::uncommitted_file::UncommittedFile;
use penstock_decide::pool_selection::{PlacementRequest, PoolView, choose_pool};
use penstock_model::{Bytes, Checksum, PoolName};
use penstock_persistence::namespace::{EntryId, NamespaceError, TapeFile};
use penstock_protocol::checksum::Hasher;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ioctl_ficlone};
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
    // The removal of data of this name would take the new data with it.
    let others = context.pools.values().filter(|pool| {
        let mut taken = file
            .pool
            .iter()
            .chain(before.iter().map(|before| &before.pool));
        !taken.any(|taken| *taken == pool.name)
    });
    let views: Vec<PoolView> = others.map(|pool| pool.view()).collect();
    if views.is_empty() {
        return Err(match file.pool {
            Some(_) => LocalError::PoolAway,
            None => LocalError::Removing,
        });
    }
    let placement = |size| PlacementRequest {
        size: Some(size),
        draw: file.id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15),
    };
    // One that has room for both files before one that may do with room for one.
    let chosen = choose_pool(&views, &placement(room_for_recall(file.size))).choice;
    let chosen = chosen.or_else(|_| choose_pool(&views, &placement(file.size)).choice);
    let pool = chosen.ok().and_then(|name| context.pools.get(&name));
    let pool = Arc::clone(pool.ok_or(LocalError::NoRoom)?);
    let mut reservation = pool.reserve();
    let promise = || reservation.cover(file.size.0, Some(file.size.0));
    let covered = with_room(&context.reaper, &pool, promise).await;
    covered.map_err(|_| LocalError::NoRoom)?;
    let (scratch_id, accepted_id) = (context.namespace.allocate(), context.namespace.allocate());
    let (at, id, reaper) = (Arc::clone(&pool), file.id, context.reaper.clone());
    let made = tokio::task::spawn_blocking(move || {
        // A process that was killed may have left data of this name; or it is the file's own, which was not seen for a moment. It goes
        // out of the way, and not away: what comes from tape may be none.
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
        let covered = with_room(&context.reaper, &pool, promise).await;
        covered.map_err(|_| LocalError::NoRoom)?;
    }
    Ok(PlacedRecall {
        target: file.clone(),
        pool,
        scratch,
        accepted,
        shares_blocks,
    })
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
                RecallEnd::NotTaken(LocalError::NoRoom)
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
