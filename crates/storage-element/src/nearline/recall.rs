//! A file that comes from tape: where it goes, and how it becomes durable.
//!
//! The tape system writes to a file in `incoming/` of the pool, under a number of its own, so that what one try has left is never
//! taken for the data of another one. Once its bytes are known to be the right ones it gets its final name by a second link.

use super::NearlineContext;
use super::tape_system::RecallEnd;
use crate::file_label::{LABEL_VERSION, Label, label_again};
use crate::pool::{Pool, sync_directory};
use crate::reaper::{remove_if_there, with_room};
use crate::uncommitted_file::UncommittedFile;
use penstock_decide::pool_selection::{PlacementRequest, PoolView, choose_pool};
use penstock_model::{Checksum, PoolName};
use penstock_persistence::namespace::{EntryId, NamespaceError, TapeFile};
use penstock_protocol::checksum::Hasher;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Begins what is said of data that is not that of the file.
pub(super) const WRONG_DATA: &str = "the tape system has brought";
/// After so many bytes it is told how far the look is.
const TOLD_BYTES: u64 = 256 << 20;
/// How long a disk may take to make a file.
const DISK_WAIT: Duration = Duration::from_secs(10);
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Why a file cannot be brought now.
#[derive(Debug, Error)]
pub(super) enum RecallError {
    #[error("no pool has room for it")]
    NoRoom,
    #[error("its data of before is still being removed from its disk")]
    Removing,
    #[error("the pool of the file is out of service")]
    PoolAway,
    #[error("what comes from tape cannot be kept: {0}")]
    Disk(#[from] io::Error),
    #[error("the namespace cannot be asked: {0}")]
    Namespace(String),
}

/// A file on its way from tape to a pool. Dropping it removes what has come.
pub(super) struct PlacedRecall {
    target: TapeFile,
    pool: Arc<Pool>,
    scratch: UncommittedFile,
}

/// Makes a place for a file in the pool that suits it best.
pub(super) async fn place(
    context: &NearlineContext,
    file: &TapeFile,
) -> Result<PlacedRecall, RecallError> {
    let unreadable = |why: NamespaceError| RecallError::Namespace(why.to_string());
    let before = context.namespace.trashed(file.id).map_err(unreadable)?;
    // The removal of data of this name would take the new data with it.
    let others = context.pools.values().filter(|pool| {
        let is_removing = before
            .as_ref()
            .is_some_and(|before| before.pool == pool.name);
        !is_removing
    });
    let views: Vec<PoolView> = others.map(|pool| pool.view()).collect();
    if views.is_empty() {
        return Err(RecallError::Removing);
    }
    let placement = PlacementRequest {
        size: Some(file.size),
        draw: file.id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15),
    };
    let chosen = choose_pool(&views, &placement).choice;
    let pool = chosen.ok().and_then(|name| context.pools.get(&name));
    let pool = Arc::clone(pool.ok_or(RecallError::NoRoom)?);
    let mut reservation = pool.reserve();
    let promise = || reservation.cover(file.size.0, Some(file.size.0));
    let covered = with_room(&context.reaper, &pool, promise).await;
    covered.map_err(|_| RecallError::NoRoom)?;
    let scratch_id = context.namespace.allocate();
    let (at, left, reaper) = (
        Arc::clone(&pool),
        pool.data_path(file.id),
        context.reaper.clone(),
    );
    let made = tokio::task::spawn_blocking(move || {
        // A process that was killed may have left data of this name, which nobody knows: the file has no pool.
        remove_if_there(&left)?;
        UncommittedFile::create(scratch_id, reservation, at, reaper)
    });
    let made = tokio::time::timeout(DISK_WAIT, made).await;
    let silent = || {
        io::Error::new(
            io::ErrorKind::TimedOut,
            "the disk of its pool does not answer",
        )
    };
    let made = made.map_err(|_| silent())?.map_err(io::Error::other)?;
    Ok(PlacedRecall {
        target: file.clone(),
        pool,
        scratch: made?,
    })
}

impl PlacedRecall {
    /// Where the tape system writes it.
    pub(super) fn path(&self) -> PathBuf {
        self.pool.incoming_path(self.scratch.id)
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
        tokio::task::spawn_blocking(move || tell(checked(&target, &pool, &path, &reading)));
    }

    /// Its entry is committed: the data stays.
    pub(super) fn keep(self) {
        let path = self.path();
        self.scratch.keep(self.target.size);
        if let Err(why) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %why, "the second name of a recalled file stays until the next start");
        }
    }

    /// There is no file to which the data belongs.
    pub(super) fn withdraw(self) {
        if let Err(why) = remove_if_there(&self.pool.data_path(self.target.id)) {
            tracing::warn!(file = %self.target.id, %why, "the data of a file that is gone stays in its pool");
        }
    }

    /// It is not known whether its entry is committed: the next start finds out.
    pub(super) fn leave(self) {
        self.scratch.leave();
    }
}

fn checked(target: &TapeFile, pool: &Arc<Pool>, path: &Path, reading: &dyn Fn(u64)) -> RecallEnd {
    let failed = |why: io::Error| {
        pool.health.read_failed(why.to_string());
        RecallEnd::NotTaken(why.into())
    };
    // One look by name, which follows no symbolic link: what is read is what is kept.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(why) => return failed(why.into()),
    };
    match compare(target, &mut file, reading) {
        Ok(None) => {}
        Ok(Some(text)) => return RecallEnd::WrongData(text),
        Err(why) => return failed(why),
    }
    match settle(target, pool, &file) {
        Ok(()) => RecallEnd::Brought,
        Err(why) => failed(why),
    }
}

/// What is wrong with the bytes that have come, if anything.
fn compare(
    target: &TapeFile,
    file: &mut File,
    reading: &dyn Fn(u64),
) -> io::Result<Option<String>> {
    let size = file.metadata()?.len();
    if size != target.size.0 {
        let expected = target.size.0;
        return Ok(Some(format!(
            "{WRONG_DATA} {size} bytes instead of {expected}"
        )));
    }
    let algorithms: Vec<_> = target.checksums.iter().map(Checksum::algorithm).collect();
    let mut hasher = Hasher::new(&algorithms);
    let mut buffer = vec![0; READ_BYTES];
    let (mut read, mut told) = (0_u64, 0_u64);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => {
                hasher.update(&buffer[..count]);
                read += count as u64;
            }
        }
        if read - told >= TOLD_BYTES {
            told = read;
            reading(size.saturating_add(read));
        }
    }
    let found = hasher.finish();
    let differs = found.iter().find(|sum| !target.checksums.contains(sum));
    Ok(differs.map(|sum| {
        format!("{WRONG_DATA} other bytes: their checksum is {sum}, and was another one when the file was written")
    }))
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
