//! One file down: into a part beside its place, compared, then renamed into place. Of a large file only what is missing is
//! asked for, as long as it is still the same.

use super::blocks::{BLOCK_BYTES, Blocks, OpenedFile};
use super::part::Part;
use super::upload::not_computed;
use super::{
    Compared, Context, CopyResult, Existing, FileOutcome, keep_or_copy, while_it_advances,
    with_retries,
};
use crate::local_place::{FileVersion, LocalPlace, MissingDirectories, Replaceable};
use crate::local_source::modified_of;
use crate::remote::{Wanted, strong_etag};
use crate::remote_error::RemoteError;
use crate::unfinished_downloads::Origin;
use http::StatusCode;
use penstock_model::{Bytes, Checksum};
use penstock_protocol::checksum::Hasher;
use penstock_protocol::digest;
use penstock_protocol::http1::client::ClientResponse;
use penstock_protocol::ranges::content_range;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use url::Url;

/// A file to copy from a storage element.
#[derive(Debug, Clone)]
pub struct Download {
    pub source: Url,
    /// Its size, when a listing told it.
    pub size: Option<Bytes>,
    /// Where it goes.
    pub destination: LocalPlace,
}

/// A file on its way.
struct Receiving<'a> {
    context: &'a Context,
    file: &'a Download,
    replaceable: Replaceable<FileVersion>,
    /// From the first attempt on, unless an attempt has it.
    part: Mutex<Option<Part>>,
    /// Bytes of it that are kept here.
    reached: AtomicU64,
}

pub(super) async fn run(context: Context, file: Download) -> Result<FileOutcome, RemoteError> {
    let (context, file) = (&context, &file);
    let copy = |replaceable| async move {
        let receiving = Receiving {
            context,
            file,
            replaceable,
            part: Mutex::new(None),
            reached: AtomicU64::new(0),
        };
        while_it_advances(
            || receiving.reached.load(Ordering::Relaxed),
            RemoteError::is_transient,
            || receiving.fetch(),
        )
        .await
    };
    keep_or_copy(context, || find(context, file), copy).await
}

/// What is here already.
pub(super) async fn find(
    context: &Context,
    file: &Download,
) -> Result<Existing<FileVersion>, RemoteError> {
    let checksums = context.options.checksums;
    let path = file.destination.path();
    let here = || RemoteError::local(path);
    let Some(found) = file.destination.look().map_err(here())? else {
        return Ok(Existing::Nothing);
    };
    if found.is_dir() {
        return Err(here()(io::ErrorKind::IsADirectory.into()));
    }
    let other = |version| Existing::Other {
        name: path.display().to_string(),
        version,
    };
    let size = Bytes(found.len());
    if !found.is_file() || file.size.is_some_and(|there| there != size) {
        return Ok(other(FileVersion::of(&found)));
    }
    let seen = with_retries(|| context.remote.head_with_checksum(&file.source, checksums)).await?;
    let seen = seen.ok_or_else(|| RemoteError::not_found(file.source.to_string()))?;
    if seen.size.is_some_and(|there| there != size) {
        return Ok(other(FileVersion::of(&found)));
    }
    let opened = open_existing(&file.destination).map_err(here())?;
    let version = opened.version;
    let size = Bytes(version.size);
    let blocks = Blocks::behind(0, opened, checksums).await.map_err(here())?;
    let copy = blocks.checksums().await.map_err(here())?;
    let compared = Compared {
        checksums,
        original: &seen.checksums,
        original_modified: seen.modified,
        copy: &copy,
        copy_modified: modified_of(&found),
    };
    let Some(checksum) = compared.same() else {
        return Ok(other(version));
    };
    let kept = context.local_copies.keep(&file.destination, &found);
    kept.map_err(here())?;
    Ok(Existing::Same(FileOutcome {
        size,
        checksum,
        how: CopyResult::Skipped,
    }))
}

fn open_existing(place: &LocalPlace) -> io::Result<OpenedFile> {
    let directory = place.directory(MissingDirectories::Refused)?;
    OpenedFile::of(directory.open_file(place.name())?)
}

/// What an attempt has brought.
enum Fetched {
    Whole(FileOutcome),
    /// What an earlier one had left is no part of this file.
    Stale,
}

/// Bytes that an attempt has told the progress.
#[derive(Default)]
struct AttemptBytes {
    found: u64,
    moved: u64,
}

impl Receiving<'_> {
    /// One attempt. The part stays open between attempts, so that no other command gets it.
    async fn fetch(&self) -> Result<FileOutcome, RemoteError> {
        let kept = self.part.lock().await.take();
        let mut part = match kept {
            Some(part) => part,
            None => self.open()?,
        };
        let outcome = self.fetch_into(&mut part).await;
        *self.part.lock().await = Some(part);
        outcome
    }

    fn open(&self) -> Result<Part, RemoteError> {
        let (place, source) = (&self.file.destination, &self.file.source);
        let notes = self.context.options.unfinished_downloads.as_ref();
        Part::open(place, source, notes).map_err(self.here())
    }

    fn here(&self) -> impl Fn(io::Error) -> RemoteError {
        RemoteError::local(self.file.destination.path())
    }

    async fn fetch_into(&self, part: &mut Part) -> Result<FileOutcome, RemoteError> {
        let (context, file) = (self.context, self.file);
        for _ in 0..2 {
            let mut bytes = AttemptBytes::default();
            let fetched = self.receive(part, &mut bytes).await;
            if !matches!(fetched, Ok(Fetched::Whole(_))) {
                context.progress.take_back(bytes.moved);
                context.progress.lose(bytes.found);
            }
            if part.can_go_on() {
                let reached = bytes.found + bytes.moved;
                self.reached.store(reached, Ordering::Relaxed);
            }
            match fetched? {
                Fetched::Whole(outcome) => return Ok(outcome),
                Fetched::Stale => {
                    tracing::debug!(path = %file.destination.path().display(), "begins anew");
                }
            }
        }
        let detail = "it changed while it was read";
        Err(RemoteError::nonsense(&file.source, detail))
    }

    async fn receive(
        &self,
        part: &mut Part,
        bytes: &mut AttemptBytes,
    ) -> Result<Fetched, RemoteError> {
        let (context, file) = (self.context, self.file);
        let checksums = context.options.checksums;
        let known = part.origin();
        let mut hasher = Hasher::new(checksums.algorithms());
        let answer = match ask(context, file, known.as_ref()).await {
            Err(why) if why.status() == Some(StatusCode::RANGE_NOT_SATISFIABLE) => {
                part.discard();
                return Ok(Fetched::Stale);
            }
            answer => answer?,
        };
        let told = match &answer {
            Some(answer) => told_checksum(context, file, answer)?,
            None => None,
        };
        match (&known, &answer) {
            (_, Some(answer)) if answer.status != StatusCode::PARTIAL_CONTENT => {
                let etag = strong_etag(&answer.headers);
                let size = answer.content_length().map(Bytes);
                let origin = size.map(|size| Origin { etag, size });
                part.begin(origin).map_err(self.here())?;
            }
            (Some((origin, length)), answer) => {
                let is_other = |answer| !brings_rest(answer, *length, origin);
                if answer.as_ref().is_some_and(is_other) {
                    part.discard();
                    return Ok(Fetched::Stale);
                }
                let read = read_beginning(&part.file, *length, hasher).await;
                hasher = read.map_err(self.here())?;
                bytes.found = *length;
                context.progress.found(*length);
            }
            (None, _) => {
                let detail = "the server sent a part of the file when asked for the whole file";
                return Err(RemoteError::nonsense(&file.source, detail));
            }
        }
        if let Some(answer) = answer {
            let kept = part.is_kept().then(|| context.progress.keeping());
            let writing = part.file.try_clone().map_err(self.here())?;
            let written = write_body(context, answer, writing, hasher, &mut bytes.moved).await;
            drop(kept);
            hasher = written.map_err(|why| why.into_error(file.destination.path()))?;
        }
        let expected = match told {
            Some(told) => told,
            // A server may tell checksums to HEAD only.
            None => context.remote.checksum(&file.source, checksums).await?,
        };
        let mut computed = hasher.finish().into_iter();
        let checksum = computed.find(|computed| computed.algorithm() == expected.algorithm());
        let checksum = checksum.ok_or_else(|| not_computed(&file.source, expected.algorithm()))?;
        if expected != checksum {
            part.discard();
            let name = file.destination.path().display().to_string();
            return match bytes.found {
                0 => Err(RemoteError::differs(&name, &expected, &checksum)),
                _ => Ok(Fetched::Stale),
            };
        }
        let size = Bytes(bytes.found + bytes.moved);
        self.put_in_place(part, size)?;
        Ok(Fetched::Whole(FileOutcome {
            size,
            checksum,
            how: CopyResult::behind(bytes.found),
        }))
    }

    fn put_in_place(&self, part: &mut Part, size: Bytes) -> Result<(), RemoteError> {
        let path = self.file.destination.path();
        let put = part.put_in_place(size.0, self.replaceable, &self.context.local_copies);
        put.map_err(|why| match why.kind() {
            io::ErrorKind::AlreadyExists => RemoteError::Exists(path.display().to_string()),
            _ => self.here()(why),
        })
    }
}

/// Asks for what is missing; `None`: nothing is, but the comparison.
async fn ask(
    context: &Context,
    file: &Download,
    known: Option<&(Origin, u64)>,
) -> Result<Option<ClientResponse>, RemoteError> {
    let wanted = match known {
        Some((origin, length)) if *length == origin.size.0 => return Ok(None),
        Some((origin, length)) => Wanted::From {
            offset: *length,
            etag: origin.etag.as_deref(),
        },
        None => Wanted::Whole,
    };
    let checksums = context.options.checksums;
    let answer = context.remote.get(&file.source, checksums, wanted).await?;
    Ok(Some(answer))
}

/// Whether an answer brings what is missing of a file, and that is the file of which the beginning is here.
fn brings_rest(answer: &ClientResponse, length: u64, origin: &Origin) -> bool {
    content_range(&answer.headers).is_some_and(|range| {
        let is_same_size = range.size.is_none_or(|size| size == origin.size.0);
        range.first == length && range.end == origin.size.0 && is_same_size
    })
}

fn told_checksum(
    context: &Context,
    file: &Download,
    answer: &ClientResponse,
) -> Result<Option<Checksum>, RemoteError> {
    let told = digest::parse(&answer.headers)
        .map_err(|why| RemoteError::nonsense(&file.source, why.to_string()))?;
    Ok(context.options.checksums.best_of(&told))
}

/// Reads what is here already, off the async threads, and leaves the file behind it.
async fn read_beginning(file: &File, length: u64, mut hasher: Hasher) -> io::Result<Hasher> {
    let mut file = file.try_clone()?;
    let reading = spawn_blocking(move || {
        file.rewind()?;
        let mut block = vec![0; BLOCK_BYTES];
        let mut left = length;
        while left > 0 {
            let wanted = usize::try_from(left).map_or(BLOCK_BYTES, |left| left.min(BLOCK_BYTES));
            file.read_exact(&mut block[..wanted])?;
            hasher.update(&block[..wanted]);
            left -= wanted as u64;
        }
        file.seek(SeekFrom::Start(length))?;
        Ok(hasher)
    });
    reading.await.map_err(io::Error::other)?
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
            CopyError::Here(why) => RemoteError::local(path)(why),
        }
    }
}

/// Writes the body of an answer while the next block of it is read. Gives the hasher back.
async fn write_body(
    context: &Context,
    mut answer: ClientResponse,
    mut file: File,
    mut hasher: Hasher,
    moved: &mut u64,
) -> Result<Hasher, CopyError> {
    let (mut block, mut spare) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    let mut length = fill(context, &mut answer, &mut block).await?;
    while length > 0 {
        let writing = spawn_blocking(move || {
            hasher.update(&block[..length]);
            let written = file.write_all(&block[..length]);
            (written, file, hasher, block)
        });
        let next = fill(context, &mut answer, &mut spare).await;
        let written = writing
            .await
            .map_err(|why| CopyError::Here(io::Error::other(why)))?;
        written.0.map_err(CopyError::Here)?;
        (file, hasher) = (written.1, written.2);
        *moved += length as u64;
        context.progress.moved(length as u64);
        block = std::mem::replace(&mut spare, written.3);
        length = next?;
    }
    Ok(hasher)
}

/// Reads until the block is full or the body ends.
async fn fill(
    context: &Context,
    answer: &mut ClientResponse,
    block: &mut [u8],
) -> Result<usize, CopyError> {
    let bandwidth = &context.options.bandwidth;
    let mut length = 0;
    while length < block.len() {
        let wanted = bandwidth.piece(block.len() - length).max(1);
        match answer.read(&mut block[length..length + wanted]).await {
            Ok(0) => break,
            Ok(count) => {
                length += count;
                bandwidth.pass(count).await;
            }
            Err(why) => return Err(CopyError::There(why.into())),
        }
    }
    Ok(length)
}
