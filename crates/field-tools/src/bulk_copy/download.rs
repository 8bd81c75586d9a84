//! One file down: into a part beside its place, compared, then renamed into place. Of a large file only what is missing is
//! asked for, as long as it is still the same.

use super::blocks::{BLOCK_BYTES, Source, checksums_of};
use super::part::{Origin, Part};
use super::upload::{modified_of, not_computed};
use super::{
    Compared, Context, CopyResult, Existing, FileOutcome, keep_or_copy, while_it_advances,
    with_retries,
};
use crate::remote::{Wanted, strong_etag};
use crate::remote_error::RemoteError;
use http::StatusCode;
use penstock_model::{Bytes, Checksum};
use penstock_protocol::checksum::Hasher;
use penstock_protocol::digest;
use penstock_protocol::http1::client::ClientResponse;
use penstock_protocol::ranges::content_range;
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

pub(super) async fn run(context: &Context, file: &Download) -> Result<FileOutcome, RemoteError> {
    let copy = |_| async move {
        let reached = AtomicU64::new(0);
        while_it_advances(
            || reached.load(Ordering::Relaxed),
            RemoteError::is_transient,
            || fetch(context, file, &reached),
        )
        .await
    };
    keep_or_copy(context, || find(context, file), copy).await
}

/// What is here already.
pub(super) async fn find(context: &Context, file: &Download) -> Result<Existing, RemoteError> {
    let checksums = context.options.checksums;
    let here = match std::fs::metadata(&file.destination) {
        Ok(here) => here,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Existing::Nothing),
        Err(why) => return Err(RemoteError::local(&file.destination)(why)),
    };
    let other = || Existing::Other(file.destination.display().to_string());
    let size = Bytes(here.len());
    if !here.is_file() || file.size.is_some_and(|there| there != size) {
        return Ok(other());
    }
    let seen = with_retries(|| context.remote.head_with_checksum(&file.source, checksums)).await?;
    let seen = seen.ok_or_else(|| RemoteError::not_found(file.source.to_string()))?;
    if seen.size.is_some_and(|there| there != size) {
        return Ok(other());
    }
    let copy = checksums_of(Source::File(file.destination.clone()), size.0, checksums).await;
    let copy = copy.map_err(RemoteError::local(&file.destination))?;
    let compared = Compared {
        checksums,
        original: &seen.checksums,
        original_modified: seen.modified,
        copy: &copy,
        copy_modified: modified_of(&here),
    };
    Ok(match compared.same() {
        Some(checksum) => Existing::Same(FileOutcome {
            size,
            checksum,
            how: CopyResult::Skipped,
        }),
        None => other(),
    })
}

/// What an attempt has brought.
enum Fetched {
    Whole(FileOutcome),
    /// What an earlier one had left is no part of this file.
    Stale,
}

/// What an attempt has told the progress.
#[derive(Default)]
struct Counted {
    found: u64,
    moved: u64,
    /// It stays here also when the attempt has failed.
    is_kept: bool,
}

/// One attempt. `reached` is told how many bytes are kept here.
async fn fetch(
    context: &Context,
    file: &Download,
    reached: &AtomicU64,
) -> Result<FileOutcome, RemoteError> {
    for _ in 0..2 {
        let mut counted = Counted::default();
        let fetched = receive(context, file, &mut counted).await;
        if !matches!(fetched, Ok(Fetched::Whole(_))) {
            context.progress.take_back(counted.moved);
            context.progress.lose(counted.found);
        }
        if counted.is_kept {
            reached.store(counted.found + counted.moved, Ordering::Relaxed);
        }
        match fetched? {
            Fetched::Whole(outcome) => return Ok(outcome),
            Fetched::Stale => tracing::debug!(path = %file.destination.display(), "begins anew"),
        }
    }
    let detail = "it changed while it was read";
    Err(RemoteError::nonsense(&file.source, detail))
}

async fn receive(
    context: &Context,
    file: &Download,
    counted: &mut Counted,
) -> Result<Fetched, RemoteError> {
    let (checksums, destination) = (context.options.checksums, &file.destination);
    let mut part = Part::open(destination).map_err(RemoteError::local(destination))?;
    let path = part.path.clone();
    let here = || RemoteError::local(&path);
    let known = part.origin(&file.source);
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
            let origin = size.map(|size| Origin::new(&file.source, etag, size));
            part.begin(origin.as_ref()).map_err(here())?;
        }
        (Some((origin, length)), answer) => {
            let is_other = |answer| !brings_rest(answer, *length, origin);
            if answer.as_ref().is_some_and(is_other) {
                part.discard();
                return Ok(Fetched::Stale);
            }
            (part, hasher) = went_on(part, *length, hasher).await?;
            counted.found = *length;
            context.progress.found(*length);
        }
        (None, _) => {
            let detail = "the server sent a part of the file when asked for the whole file";
            return Err(RemoteError::nonsense(&file.source, detail));
        }
    }
    counted.is_kept = part.is_kept();
    if let Some(answer) = answer {
        let kept = part.is_kept().then(|| context.progress.keeping());
        let writing = part.file.try_clone().map_err(here())?;
        let written = write_body(context, answer, writing, hasher, &mut counted.moved).await;
        drop(kept);
        hasher = written.map_err(|why| why.into_error(&path))?;
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
        counted.is_kept = false;
        let name = destination.display().to_string();
        return match counted.found {
            0 => Err(RemoteError::differs(&name, &expected, &checksum)),
            _ => Ok(Fetched::Stale),
        };
    }
    part.put_in_place(destination)
        .map_err(RemoteError::local(destination))?;
    Ok(Fetched::Whole(FileOutcome {
        size: Bytes(counted.found + counted.moved),
        checksum,
        how: CopyResult::behind(counted.found),
    }))
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

/// Reads what is here already, off the async threads.
async fn went_on(
    mut part: Part,
    length: u64,
    mut hasher: Hasher,
) -> Result<(Part, Hasher), RemoteError> {
    let path = part.path.clone();
    let reading = spawn_blocking(move || {
        let read = part.go_on(length, &mut hasher);
        read.map(|()| (part, hasher))
    });
    let read = reading
        .await
        .map_err(io::Error::other)
        .and_then(|read| read);
    read.map_err(RemoteError::local(&path))
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
