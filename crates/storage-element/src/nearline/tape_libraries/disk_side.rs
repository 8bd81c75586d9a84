//! Where drives find the files that they write to tape, and where they put those that they read.

use crate::clock::BelievedClock;
use crate::nearline::NearlineContext;
use crate::nearline::put_faults::PutFaults;
use crate::nearline::put_source::PutSource;
use crate::reaper::Pools;
use parking_lot::Mutex;
use penstock_persistence::namespace::{EntryId, Namespace, TapeFile, TrashedFile};
use penstock_tape::request::FileId;
use penstock_tape_library::FileExchange;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Shared by the drives of all libraries.
#[derive(Clone)]
pub(super) struct DiskSide {
    namespace: Arc<Namespace>,
    pools: Arc<Pools>,
    clock: Arc<BelievedClock>,
    put_faults: Arc<PutFaults>,
    /// Places that were made for files that are being read.
    expected: Arc<Mutex<BTreeMap<FileId, PathBuf>>>,
}

impl DiskSide {
    pub(super) fn new(context: &NearlineContext) -> DiskSide {
        DiskSide {
            namespace: Arc::clone(&context.namespace),
            pools: Arc::new(context.pools.clone()),
            clock: Arc::clone(&context.clock),
            put_faults: Arc::clone(&context.put_faults),
            expected: Arc::default(),
        }
    }

    /// This file is to be put there, by whichever drive reads it next.
    pub(super) fn expect(&self, file: FileId, path: &Path) {
        self.expected.lock().insert(file, path.to_owned());
    }

    pub(super) fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Reads the copy of a file on disk to its end. Errors of the kind `InvalidData`: it is not what was written. Blocks.
    pub(super) fn read_as_written(&self, file: FileId) -> io::Result<()> {
        let mut data = self.source(file)?;
        let mut buffer = vec![0; READ_BYTES];
        while data.read(&mut buffer)? > 0 {}
        Ok(())
    }

    /// The same of a file in the trash. Errors: of the kind `Interrupted` when it is over before.
    pub(super) fn read_trashed_as_written(
        &self,
        trashed: &TrashedFile,
        is_over: impl Fn() -> bool,
    ) -> io::Result<()> {
        let pool = self.pools.get(&trashed.pool);
        let pool = pool.filter(|pool| pool.is_in_reach() && pool.is_laid_out());
        let pool = pool.ok_or_else(pool_away)?;
        let target = TapeFile {
            id: trashed.file,
            path: trashed.path.clone(),
            size: trashed.size,
            owner: None,
            created: trashed.created,
            checksums: trashed.checksums.clone(),
            pool: Some(trashed.pool.clone()),
            archival: trashed.archival,
            copies: Vec::new(),
        };
        let mut source = PutSource::open(&target, &pool.data_path(trashed.file))?;
        let mut buffer = vec![0; READ_BYTES];
        while source.read(&mut buffer)? > 0 {
            if is_over() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        Ok(())
    }

    fn note(&self, file: EntryId, why: &io::Error) {
        if why.kind() == io::ErrorKind::InvalidData {
            let now = self.clock.recorded();
            self.put_faults.note(file, why.to_string(), now);
        }
    }

    pub(super) fn forget(&self, file: FileId) {
        self.expected.lock().remove(&file);
    }
}

/// Tells people of a file that is not what was written.
struct NotedSource {
    disk: DiskSide,
    file: EntryId,
    source: PutSource,
}

impl Read for NotedSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer);
        read.inspect_err(|why| self.disk.note(self.file, why))
    }
}

/// By name, which is no symbolic link.
fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(File::from(opened))
}

fn pool_away() -> io::Error {
    unknown("its pool is out of service")
}

fn unknown(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, what)
}

impl FileExchange for DiskSide {
    /// Of exactly the bytes that the namespace knows: nothing else is put on tape.
    fn source(&self, file: FileId) -> io::Result<Box<dyn Read + Send>> {
        let id = EntryId(file.0);
        let found = self.namespace.tape_file(id).map_err(io::Error::other)?;
        let found = found.ok_or_else(|| unknown("the file was removed"))?;
        let pool = found.pool.as_ref().and_then(|pool| self.pools.get(pool));
        let pool = pool.filter(|pool| pool.is_in_reach());
        let pool = pool.ok_or_else(pool_away)?;
        let source = PutSource::open(&found, &pool.data_path(id));
        let source = source.inspect_err(|why| self.note(id, why))?;
        Ok(Box::new(NotedSource {
            disk: self.clone(),
            file: id,
            source,
        }))
    }

    fn destination(&self, file: FileId) -> io::Result<File> {
        let path = self.expected.lock().get(&file).cloned();
        let path = path.ok_or_else(|| unknown("nobody waits for it"))?;
        open(&path, OFlags::WRONLY | OFlags::TRUNC)
    }

    /// What has come is looked at, and made durable, by whoever waits for it.
    fn received(&self, _file: FileId, _destination: File, _crc32c: u32) -> io::Result<()> {
        Ok(())
    }
}
