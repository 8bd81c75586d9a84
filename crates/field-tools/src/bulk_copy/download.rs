//! One file down: into a temporary file beside its place, compared, then renamed into place.

use super::blocks::{BLOCK_BYTES, Source, checksum_of};
use super::{CopyResult, FileOutcome, Options, keep_or_copy, with_retries};
use crate::progress::Progress;
use crate::remote::Remote;
use crate::remote_error::RemoteError;
use penstock_model::{Bytes, Checksum};
use penstock_protocol::checksum::Hasher;
use penstock_protocol::digest;
use penstock_protocol::http1::client::ClientResponse;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::spawn_blocking;
use url::Url;

/// A file to copy from a storage element.
#[derive(Debug, Clone)]
pub struct Download {
    pub source: Url,
    /// Its size, when a listing told it.
    pub size: Option<Bytes>,
    /// Where it goes.
    pub destination: PathBuf,
}

pub(super) async fn run(
    remote: &Remote,
    file: &Download,
    options: Options,
    progress: &Progress,
) -> Result<FileOutcome, RemoteError> {
    let find = find_existing(remote, file, options);
    let copy = || fetch(remote, file, options, progress);
    keep_or_copy(options.existing, progress, find, copy).await
}

/// The file as it is here already; `None` when there is none. An error when its content is another.
async fn find_existing(
    remote: &Remote,
    file: &Download,
    options: Options,
) -> Result<Option<FileOutcome>, RemoteError> {
    let Ok(here) = std::fs::metadata(&file.destination) else {
        return Ok(None);
    };
    let exists = || RemoteError::Exists(file.destination.display().to_string());
    let seen = with_retries(|| remote.head(&file.source, options.algorithm)).await?;
    let seen = seen.ok_or_else(|| RemoteError::not_found(file.source.to_string()))?;
    let size = Bytes(here.len());
    if !here.is_file() || seen.size.is_some_and(|there| there != size) {
        return Err(exists());
    }
    let checksum = checksum_of(
        Source::File(file.destination.clone()),
        size.0,
        options.algorithm,
    )
    .await
    .map_err(at(&file.destination))?;
    match seen.checksums.contains(&checksum) {
        true => Ok(Some(FileOutcome {
            size,
            checksum,
            how: CopyResult::Skipped,
        })),
        false => Err(exists()),
    }
}

async fn fetch(
    remote: &Remote,
    file: &Download,
    options: Options,
    progress: &Progress,
) -> Result<FileOutcome, RemoteError> {
    let mut got = 0;
    let outcome = receive(remote, file, options, |bytes| {
        got += bytes;
        progress.moved(bytes);
    })
    .await;
    if outcome.is_err() {
        progress.take_back(got);
    }
    outcome
}

async fn receive(
    remote: &Remote,
    file: &Download,
    options: Options,
    moved: impl FnMut(u64),
) -> Result<FileOutcome, RemoteError> {
    let answer = remote.get(&file.source, options.algorithm).await?;
    let told = digest::parse(&answer.headers)
        .map_err(|why| RemoteError::nonsense(&file.source, why.to_string()))?
        .into_iter()
        .find(|told| told.algorithm() == options.algorithm);
    let name = file.destination.display().to_string();
    let part = PartialFile::create(&file.destination).map_err(at(&file.destination))?;
    let (size, checksum) = write_body(
        answer,
        part.file.try_clone().map_err(at(&part.path))?,
        options,
        moved,
    )
    .await
    .map_err(|why| why.into_error(&part.path))?;
    let expected = match told {
        Some(told) => told,
        // A server may tell checksums to HEAD only.
        None => remote.checksum(&file.source, options.algorithm).await?,
    };
    if expected != checksum {
        return Err(RemoteError::differs(&name, &expected, &checksum));
    }
    part.put_in_place(&file.destination)
        .map_err(at(&file.destination))?;
    Ok(FileOutcome {
        size,
        checksum,
        how: CopyResult::Copied,
    })
}

/// Trouble on either side of a copy.
enum CopyError {
    There(RemoteError),
    Here(io::Error),
}

impl CopyError {
    fn into_error(self, path: &Path) -> RemoteError {
        match self {
            CopyError::There(why) => why,
            CopyError::Here(why) => at(path)(why),
        }
    }
}

/// Writes the body of an answer while the next block of it is read.
async fn write_body(
    mut answer: ClientResponse,
    mut file: File,
    options: Options,
    mut moved: impl FnMut(u64),
) -> Result<(Bytes, Checksum), CopyError> {
    let mut hasher = Hasher::new(&[options.algorithm]);
    let (mut block, mut spare) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    let mut size = 0;
    let mut length = fill(&mut answer, &mut block).await?;
    while length > 0 {
        let writing = spawn_blocking(move || {
            hasher.update(&block[..length]);
            let written = file.write_all(&block[..length]);
            (written, file, hasher, block)
        });
        let next = fill(&mut answer, &mut spare).await;
        let written = writing
            .await
            .map_err(|why| CopyError::Here(io::Error::other(why)))?;
        written.0.map_err(CopyError::Here)?;
        (file, hasher) = (written.1, written.2);
        moved(length as u64);
        size += length as u64;
        block = std::mem::replace(&mut spare, written.3);
        length = next?;
    }
    let checksum = hasher.finish().swap_remove(0);
    Ok((Bytes(size), checksum))
}

/// Reads until the block is full or the body ends.
async fn fill(answer: &mut ClientResponse, block: &mut [u8]) -> Result<usize, CopyError> {
    let mut length = 0;
    while length < block.len() {
        match answer.read(&mut block[length..]).await {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(why) => return Err(CopyError::There(why.into())),
        }
    }
    Ok(length)
}

static NEXT_PART: AtomicU64 = AtomicU64::new(0);

/// A file that is being written, removed unless it is put in place.
struct PartialFile {
    file: File,
    path: PathBuf,
}

impl PartialFile {
    fn create(destination: &Path) -> io::Result<PartialFile> {
        let directory = destination.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory)?;
        // The name of the destination may be as long as names can be, so it cannot be part of this one.
        let number = NEXT_PART.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".penstock-{}-{number}.part", std::process::id()));
        let file = File::create(&path)?;
        Ok(PartialFile { file, path })
    }

    /// Durable first, then visible.
    fn put_in_place(self, destination: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.path, destination)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After the rename there is nothing left to remove.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> RemoteError {
    move |why| RemoteError::Local {
        path: path.to_owned(),
        why,
    }
}
