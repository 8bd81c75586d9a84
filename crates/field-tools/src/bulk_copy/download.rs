//! One file down: into a part beside its place, compared, then renamed into place. Of a large file only what is missing is
//! asked for, as long as it is still the same.

use super::blocks::{BLOCK_BYTES, Blocks, OpenedFile};
use super::part::Part;
use super::upload::not_computed;
use super::{
    Compared, Context, CopyResult, Existing, FileOutcome, keep_or_copy, while_it_advances,
    with_retries,
};
use crate::local_place::{FileVersion, LocalPlace, MissingDirectories};
use crate::local_source::modified_of;
use crate::remote::{Wanted, strong_etag};
use crate::remote_error::RemoteError;
use crate::replaceable::Replaceable;
use crate::unfinished_downloads::Origin;
use http::StatusCode;
use penstock_model::{Bytes, Checksum};
use penstock_protocol::checksum::Hasher;
use penstock_protocol::digest;
use penstock_protocol::http1::client::ClientResponse;
use penstock_protocol::ranges::content_range;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use url::Url;

/// Bytes of a file of which the server tells no size, neither in a listing nor with its content.
const UNTOLD_BYTES_MAX: u64 = 16 << 30;

/// A file to copy from a storage element.
#[derive(Debug, Clone)]
pub struct Download {
    pub source: Url,
    /// Its size, when a listing told it. A file of another size is not copied.
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
        version: Some(version),
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
        let is_listed = |origin: &Origin| file.size.is_none_or(|size| size == origin.size);
        let known = part.origin().filter(|(origin, _)| is_listed(origin));
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
                self.refuse_other_size(size)?;
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
            let size = match &known {
                Some((origin, length)) if bytes.found > 0 => Some(Bytes(origin.size.0 - length)),
                Some(_) | None => self.told_size(&answer).await?,
            };
            let body = Body { answer, size };
            hasher = self.take_body(part, body, hasher, &mut bytes.moved).await?;
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

    /// Writes what is sent to its end. What is longer or shorter than it should be is not kept.
    async fn take_body(
        &self,
        part: &mut Part,
        body: Body,
        hasher: Hasher,
        moved: &mut u64,
    ) -> Result<Hasher, RemoteError> {
        let context = self.context;
        let size = body.size;
        let kept = part.is_kept().then(|| context.progress.keeping());
        let writing = part.file.try_clone().map_err(self.here())?;
        let written = write_body(context, body, writing, hasher, moved).await;
        drop(kept);
        match (written, size) {
            (Ok(_), Some(size)) if *moved != size.0 => {
                part.discard();
                Err(self.other_size(size, &Bytes(*moved).to_string()))
            }
            (Ok(hasher), _) => Ok(hasher),
            (Err(CopyError::TooLong), size) => {
                part.discard();
                Err(match size {
                    Some(size) => self.other_size(size, "more"),
                    None => self.too_long(),
                })
            }
            (Err(CopyError::There(why)), _) => Err(why),
            (Err(CopyError::Here(why)), _) => Err(self.here()(why)),
        }
    }

    /// How long a file is of which all is sent: as it was listed, else as the server says now.
    async fn told_size(&self, answer: &ClientResponse) -> Result<Option<Bytes>, RemoteError> {
        let file = self.file;
        if let Some(size) = file.size.or(answer.content_length().map(Bytes)) {
            return Ok(Some(size));
        }
        let checksums = self.context.options.checksums;
        let head = self.context.remote.head(&file.source, checksums).await?;
        Ok(head.and_then(|head| head.size))
    }

    fn refuse_other_size(&self, told: Option<Bytes>) -> Result<(), RemoteError> {
        match (self.file.size, told) {
            (Some(listed), Some(told)) if listed != told => {
                Err(self.other_size(listed, &told.to_string()))
            }
            (_, _) => Ok(()),
        }
    }

    fn other_size(&self, expected: Bytes, came: &str) -> RemoteError {
        let detail = format!(
            "the server sent {came}, and {expected} was expected; if the file has changed since it was listed, run the same command \
             again"
        );
        RemoteError::nonsense(&self.file.source, detail)
    }

    fn too_long(&self) -> RemoteError {
        let bytes_max = Bytes(UNTOLD_BYTES_MAX);
        let detail = format!("the server reports no size and sent more than {bytes_max}");
        RemoteError::nonsense(&self.file.source, detail)
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
    /// More came than may.
    TooLong,
}

/// What a server sends of a file.
struct Body {
    answer: ClientResponse,
    /// How much that is, as far as it is known before. Nothing beyond it is written.
    size: Option<Bytes>,
}

/// Writes the body of an answer while the next block of it is read. Gives the hasher back.
async fn write_body(
    context: &Context,
    Body { mut answer, size }: Body,
    mut file: File,
    mut hasher: Hasher,
    moved: &mut u64,
) -> Result<Hasher, CopyError> {
    let bytes_max = size.map_or(UNTOLD_BYTES_MAX, |size| size.0);
    let (mut block, mut spare) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    let mut length = fill(context, &mut answer, &mut block).await?;
    while length > 0 {
        if *moved + length as u64 > bytes_max {
            return Err(CopyError::TooLong);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk_copy::{ExistingCopy, Options, download_all};
    use crate::checksum_choice::ChecksumChoice;
    use crate::progress::Progress;
    use crate::test_server::{TestReply, TestServer};
    use penstock_model::ChecksumAlgorithm;
    use std::fs;
    use std::sync::Arc;

    fn told(mut reply: TestReply, content: &[u8]) -> TestReply {
        let mut hasher = Hasher::new(&[ChecksumAlgorithm::Crc32c]);
        hasher.update(content);
        let value = digest::header_value(&hasher.finish());
        reply.body = content.to_vec();
        reply.with("digest", value.to_str().expect("visible"))
    }

    /// What of a file that is sent without a length.
    fn chunked(content: &[u8]) -> TestReply {
        let mut reply = told(TestReply::status(200), content);
        reply.body = format!("{:x}\r\n", content.len()).into_bytes();
        reply.body.extend_from_slice(content);
        reply.body.extend_from_slice(b"\r\n0\r\n\r\n");
        reply.with("transfer-encoding", "chunked")
    }

    /// What comes of a listed size, and which files are left.
    async fn copied(
        listed: Option<u64>,
        get: TestReply,
        head: TestReply,
    ) -> (Result<FileOutcome, RemoteError>, usize) {
        let server = TestServer::start(move |request| match request.method.as_str() {
            "HEAD" => head.clone(),
            _ => get.clone(),
        })
        .await;
        let directory = tempfile::tempdir().expect("made");
        let place = LocalPlace::at(&directory.path().join("f"));
        let file = Download {
            source: server.url("/f"),
            size: listed.map(Bytes),
            destination: place.expect("a place"),
        };
        let options = Options::new(1, ExistingCopy::Keep, ChecksumChoice::Strongest);
        let progress = Arc::new(Progress::new());
        let mut outcomes = download_all(&server.remote(), vec![file], options, &progress).await;
        let left = fs::read_dir(directory.path()).expect("there").count();
        (outcomes.remove(0), left)
    }

    #[tokio::test]
    async fn a_file_is_as_long_as_the_server_has_said_before() {
        let unknown = || TestReply::status(404);
        let head = |length: &str| TestReply::status(200).with("content-length", length);
        let whole = || told(TestReply::status(200), b"12345");
        for (listed, get, head) in [
            (Some(5), whole(), unknown()),
            (Some(5), chunked(b"12345"), unknown()),
            (None, whole(), unknown()),
            (None, chunked(b"12345"), head("5")),
            (None, chunked(b"12345"), unknown()),
        ] {
            let (outcome, left) = copied(listed, get, head).await;
            assert_eq!(outcome.map(|file| file.size).ok(), Some(Bytes(5)));
            assert_eq!(left, 1);
        }
        for (listed, get, head) in [
            (Some(4), whole(), unknown()),
            (Some(4), chunked(b"12345"), unknown()),
            (Some(6), chunked(b"12345"), unknown()),
            (None, chunked(b"12345"), head("4")),
        ] {
            let (outcome, left) = copied(listed, get, head).await;
            let why = outcome.expect_err("another size").to_string();
            assert!(why.contains("was expected"), "{why}");
            assert_eq!(left, 0);
        }
    }
}
