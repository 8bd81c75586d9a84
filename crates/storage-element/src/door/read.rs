//! GET and HEAD: a file or a part of it, its checksums, or a listing that a browser shows. Long because all ways to read a file
//! share their looks at it.

use super::answer::{Problem, Reply, Response};
use super::conditions::{self, Verdict, etag};
use super::handler_context::{Call, Door};
use super::locality::locality;
use super::slot::wait_for_slot;
use super::wanted_digest::WantedDigest;
use super::{byteranges, html, list, reserved, tape};
use crate::clock::microseconds;
use crate::mover::{Mover, MoverRequest};
use crate::pool::Pool;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use penstock_decide::admission::PreemptionReason;
use penstock_decide::authorization::PathOperation;
use penstock_model::{Bytes, Checksum, ChecksumAlgorithm, NamespacePath, ProblemCode};
use penstock_persistence::namespace::{Entry, EntryId, EntryKind, MoverKind, MoverOutcome};
use penstock_protocol::http1::server::{Connection, Request};
use penstock_protocol::stream::{FileStalled, is_of_file};
use penstock_protocol::told::RepeatedErrors;
use penstock_protocol::{checksum, webdav};
use serde_json::Value;
use std::fs::File;
use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Endings of files that browsers may run, or show with what they run.
const ACTIVE: [&str; 18] = [
    "html", "htm", "xhtml", "xht", "shtml", "mhtml", "mht", "svg", "svgz", "xml", "xsl", "xslt",
    "js", "mjs", "css", "wasm", "pdf", "swf",
];
/// How long a look at a file's data may take.
const LOOK_WAIT: Duration = Duration::from_secs(2);
/// How often a file is looked at that others replace at the same time.
const LOOKS_MAX: u32 = 5;
/// A file, looked up.
pub(crate) struct ReadableFile {
    pub id: EntryId,
    pub size: u64,
    pub pool: Arc<Pool>,
    pub entry: Entry,
}

impl ReadableFile {
    /// Whether an entry is this file, and on disk where it was looked up.
    fn is_still(&self, entry: &Entry) -> bool {
        let EntryKind::File { pool, .. } = &entry.kind else {
            return false;
        };
        entry.id == self.id && pool.as_ref() == Some(&self.pool.name)
    }
}

/// A file that is replaced between the look at its entry and that at its data is looked at again: many clients do not
/// ask twice.
pub(super) async fn read(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    let mut looks = 1;
    loop {
        match look(door, connection, call).await {
            Err(ReadError::Replaced) if looks < LOOKS_MAX && connection.can_answer() => looks += 1,
            Err(ReadError::Replaced) => return Err(replaced_meanwhile()),
            Err(ReadError::Told(problem)) => return Err(problem),
            Ok(reply) => return Ok(reply),
        }
    }
}

/// Why a look at a file came to nothing.
pub(super) enum ReadError {
    /// Size and tag that were looked up fit no file any more.
    Replaced,
    /// As the client is told.
    Told(Problem),
}

impl From<Problem> for ReadError {
    fn from(problem: Problem) -> ReadError {
        ReadError::Told(problem)
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Problem {
        match error {
            ReadError::Replaced => replaced_meanwhile(),
            ReadError::Told(problem) => problem,
        }
    }
}

/// In answers to HEAD: where the bytes are, in the words of the Tape REST API.
const LOCALITY: HeaderName = HeaderName::from_static("penstock-locality");

async fn look(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
) -> Result<Reply, ReadError> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    let entry = door.storage.namespace.lookup(path).map_err(Problem::from)?;
    let entry = entry.filter(|_| !reserved::is_hidden(path));
    let is_directory = entry.as_ref().is_some_and(Entry::is_directory);
    // Judged before a missing file is told from a present one.
    let operation = match (request.method == Method::HEAD, is_directory) {
        (true, _) => PathOperation::Stat,
        (false, true) => PathOperation::List,
        (false, false) => PathOperation::Read,
    };
    door.permit(caller, &operation, path)?;
    let entry = entry.ok_or_else(|| door.missing(path))?;
    if let EntryKind::File {
        size, pool: None, ..
    } = entry.kind
    {
        return match request.method == Method::HEAD {
            true => head_of_tape(door, connection, call, &entry, size.0).await,
            false => Err(tape::on_tape(door, call, &entry).await.into()),
        };
    }
    let Some(found) = door.found(path, &entry)? else {
        return match request.method == Method::HEAD {
            true => Ok(directory().into()),
            false => Ok(list::page(door, path, &entry).await?),
        };
    };
    let mut headers = file_headers(&found.entry);
    contain(request, path, &mut headers);
    if conditions::evaluate(&request.method, &request.headers, Some(&entry))?
        == Verdict::NotModified
    {
        return Ok(Response {
            status: StatusCode::NOT_MODIFIED,
            headers,
            body: Vec::new(),
        }
        .into());
    }
    add_digests(door, request, &found, &mut headers).await?;
    if request.method == Method::HEAD {
        add_locality(door, &found.entry, &mut headers);
        check_data(door, path, &found).await?;
        let sent = connection.respond_head_only(StatusCode::OK, headers, found.size);
        return Ok(Reply::Sent(sent.await));
    }
    Box::pin(give(door, connection, call, &found, headers)).await
}

/// Answers a HEAD for a file that is on tape only: all is known but its bytes.
async fn head_of_tape(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
    entry: &Entry,
    size: u64,
) -> Result<Reply, ReadError> {
    let Call { request, path, .. } = *call;
    let mut headers = file_headers(entry);
    contain(request, path, &mut headers);
    if conditions::evaluate(&request.method, &request.headers, Some(entry))? == Verdict::NotModified
    {
        return Ok(Response {
            status: StatusCode::NOT_MODIFIED,
            headers,
            body: Vec::new(),
        }
        .into());
    }
    if let Some(wanted) = WantedDigest::of(&request.headers) {
        let known = door.storage.namespace.checksums(entry.id);
        let known = known.map_err(Problem::from)?;
        let sum = known
            .iter()
            .find(|sum| sum.algorithm() == wanted.algorithm());
        if let Some(sum) = sum {
            let (name, value) = wanted.header(sum);
            headers.insert(name, value);
        }
    }
    add_locality(door, entry, &mut headers);
    let sent = connection.respond_head_only(StatusCode::OK, headers, size);
    Ok(Reply::Sent(sent.await))
}

/// Tells where the bytes of a file are, where there is a tape system.
fn add_locality(door: &Door, entry: &Entry, headers: &mut HeaderMap) {
    if door.storage.nearline().is_some() {
        let locality = locality(door, &entry.kind).name();
        headers.insert(LOCALITY, HeaderValue::from_static(locality));
    }
}

/// Answers a HEAD for a directory. By its type, which other servers also give their directories, clients that expect a
/// file can tell.
fn directory() -> Response {
    let mut answer = Response::new(StatusCode::OK);
    let value = HeaderValue::from_static(webdav::DIRECTORY_TYPE);
    answer.headers.insert(CONTENT_TYPE, value);
    answer
}

/// Answers a GET with a file or a part of it.
async fn give(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
    found: &ReadableFile,
    mut headers: HeaderMap,
) -> Result<Reply, ReadError> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    let mut ranges = conditions::ranges(&request.headers, found.id, found.size)?;
    let parts = if ranges.len() > 1 {
        std::mem::take(&mut ranges)
    } else {
        Vec::new()
    };
    let (status, range) = match ranges.pop() {
        None => (StatusCode::OK, 0..found.size),
        Some(range) => {
            let value = byteranges::content_range(&range, found.size);
            headers.insert(CONTENT_RANGE, value);
            (StatusCode::PARTIAL_CONTENT, range)
        }
    };
    let mover = door.storage.arrive(MoverRequest {
        kind: MoverKind::Get,
        path: path.clone(),
        peer: connection.peer_addr().to_string(),
        copy: caller.copy.clone(),
        challenge: caller.challenge.clone(),
        file_size: Some(Bytes(found.size)),
        user: caller.user(),
        requester: caller.requester(),
        pool: found.pool.name.clone(),
        selection: Value::Null,
    });
    let mut mover = mover.map_err(Problem::from)?;
    wait_for_slot(door, &mut mover, Some(connection)).await?;
    if range.is_empty() {
        let sent = connection.respond(status, headers, &[]).await;
        mover.tcp = connection.tcp_info();
        mover.end(outcome(path, found, &sent));
        return Ok(Reply::Sent(sent));
    }
    let file = match open(door, path, found).await {
        Ok(file) => file,
        Err(ReadError::Replaced) => {
            mover.end(MoverOutcome::Failed("the file was replaced".to_owned()));
            return Err(ReadError::Replaced);
        }
        Err(ReadError::Told(problem)) => {
            mover.end(MoverOutcome::Failed(problem.cause.message.clone()));
            return Err(problem.into());
        }
    };
    if !parts.is_empty() {
        let view = mover.view();
        let sent = tokio::select! {
            biased;
            sent = byteranges::send(connection, &mut mover, headers, file, &parts, found.size) => sent,
            why = view.preempted() => return Ok(preempted(mover, &why)),
        };
        mover.tcp = connection.tcp_info();
        mover.end(outcome(path, found, &sent));
        return Ok(Reply::Sent(sent));
    }
    let body = Body {
        status,
        headers,
        file,
        range,
    };
    Ok(send(connection, mover, path, found, body).await?)
}

/// What a client gets of a file.
struct Body {
    status: StatusCode,
    headers: HeaderMap,
    file: File,
    range: std::ops::Range<u64>,
}

async fn send(
    connection: &mut Connection,
    mut mover: Mover,
    path: &NamespacePath,
    found: &ReadableFile,
    body: Body,
) -> Result<Reply, Problem> {
    let Body {
        status,
        headers,
        file,
        range,
    } = body;
    let view = mover.view();
    let count = |bytes| view.count(bytes);
    let sent = tokio::select! {
        biased;
        sent = connection.send_file_watched(status, headers, &file, range, &count) => sent,
        why = view.preempted() => return Ok(preempted(mover, &why)),
    };
    mover.tcp = connection.tcp_info();
    if let Ok(sent) = &sent {
        mover.clocks.source_read_us += microseconds(sent.read_time);
        mover.clocks.network_us += microseconds(sent.network_time);
    }
    let sent = sent.map(|_| ());
    mover.end(outcome(path, found, &sent));
    match sent {
        Err(_) if connection.can_answer() => Err(Problem::new(
            ProblemCode::FileUnreadable,
            "the data of this file is damaged; contact the site",
        )),
        sent => Ok(Reply::Sent(sent)),
    }
}

/// The answer has begun; only breaking it off tells the client that it is not whole.
fn preempted(mover: Mover, why: &PreemptionReason) -> Reply {
    mover.end(MoverOutcome::Aborted(why.to_string()));
    Reply::Sent(Err(io::Error::other(why.to_string())))
}

/// A client that takes nothing more is gone, as far as a record is concerned; a file that ends early or cannot be read
/// is our fault, and known to the pool from here on.
fn outcome(path: &NamespacePath, found: &ReadableFile, sent: &io::Result<()>) -> MoverOutcome {
    let Err(why) = sent else {
        return MoverOutcome::Done;
    };
    match read_failure(why) {
        None => MoverOutcome::Aborted(format!("the client stopped reading: {why}")),
        Some(what) => {
            found.read_failed(path, &what);
            MoverOutcome::Failed(what)
        }
    }
}

/// What an error says of the file in its pool; `None`: it speaks of the other end.
pub(super) fn read_failure(why: &io::Error) -> Option<String> {
    if why.kind() == io::ErrorKind::UnexpectedEof {
        return Some(format!(
            "the file in the pool is shorter than its entry: {why}"
        ));
    }
    is_of_file(why).then(|| format!("the file in the pool cannot be read: {why}"))
}

impl ReadableFile {
    /// Tells the log and the pool that the file's bytes are not to be had. Of a disk that fails, the log names one file a
    /// minute; the record of movers has each.
    pub(super) fn read_failed(&self, path: &NamespacePath, why: &str) {
        static TOLD: LazyLock<RepeatedErrors> = LazyLock::new(RepeatedErrors::default);
        let pool = &self.pool.name;
        if let Some(passed_over) = TOLD.tells(&format!("{pool}: {why}")) {
            tracing::error!(%path, %pool, file = %self.id, why, passed_over, "a file's data cannot be read");
        }
        self.pool.health.read_failed(why.to_owned());
    }
}

/// Whether a file's data is there, with its size, as far as one look at its name tells. A pool whose disk is slow to
/// answer, or asked by too many, is believed.
async fn check_data(
    door: &Door,
    path: &NamespacePath,
    found: &ReadableFile,
) -> Result<(), ReadError> {
    if !found.pool.recent_files.is_due(found.id) {
        return Ok(());
    }
    if found.pool.size_at_once(found.id) == Some(found.size) {
        found.pool.recent_files.note(found.id);
        return Ok(());
    }
    let Ok(turn) = Arc::clone(&found.pool.looks).try_acquire_owned() else {
        return Ok(());
    };
    let data = found.pool.data_path(found.id);
    let look = tokio::task::spawn_blocking(move || {
        let found = std::fs::metadata(data);
        drop(turn);
        found
    });
    let Ok(Ok(looked)) = tokio::time::timeout(LOOK_WAIT, look).await else {
        return Ok(());
    };
    let length = match looked {
        Ok(metadata) => metadata.len(),
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return match found.is_still(&door.entry(path)?) {
                true => Err(unreadable(path, found, &why).into()),
                false => Err(ReadError::Replaced),
            };
        }
        Err(why) => return Err(unreadable(path, found, &why).into()),
    };
    if length != found.size {
        let why = format!("it has {length} bytes instead of {}", found.size);
        return Err(unreadable(path, found, &io::Error::other(why)).into());
    }
    found.pool.recent_files.note(found.id);
    Ok(())
}

fn file_headers(entry: &Entry) -> HeaderMap {
    let modified = webdav::format_http_date(entry.modified);
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(ETAG, etag(entry.id));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Ok(value) = HeaderValue::from_str(&modified) {
        headers.insert(LAST_MODIFIED, value);
    }
    headers
}

/// Keeps what users wrote from acting in the door's name: a browser shows nothing of it with a script, takes no
/// type but ours, and saves what other types could make it run.
fn contain(request: &Request, path: &NamespacePath, headers: &mut HeaderMap) {
    html::harmless(headers);
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; sandbox"),
    );
    let extension = path.name().and_then(|name| name.rsplit_once('.'));
    let extension = extension.map(|(_, extension)| extension.to_ascii_lowercase());
    if extension.is_some_and(|extension| ACTIVE.contains(&extension.as_str())) {
        headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    }
    if html::authorisation(request).is_some() {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private"));
    }
}

/// Opens a file's data, or finds that the file was replaced since it was looked up.
pub(super) async fn open(
    door: &Door,
    path: &NamespacePath,
    found: &ReadableFile,
) -> Result<File, ReadError> {
    if let Some(file) = found.pool.open_at_once(found.id) {
        return Ok(file);
    }
    let limit = door.storage.settings().limits.stall_timeout;
    let opened = tokio::time::timeout(limit, open_data(&found.pool, found.id)).await;
    let opened =
        opened.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, FileStalled(limit))));
    match opened {
        Ok(file) => return Ok(file),
        Err(why) if why.kind() == io::ErrorKind::NotFound => {}
        Err(why) => return Err(unreadable(path, found, &why).into()),
    }
    if found.is_still(&door.entry(path)?) {
        let why = io::ErrorKind::NotFound.into();
        return Err(unreadable(path, found, &why).into());
    }
    Err(ReadError::Replaced)
}

async fn open_data(pool: &Arc<Pool>, id: EntryId) -> io::Result<File> {
    let pool = Arc::clone(pool);
    tokio::task::spawn_blocking(move || pool.open(id))
        .await
        .unwrap_or_else(|why| Err(io::Error::other(why)))
}

fn unreadable(path: &NamespacePath, found: &ReadableFile, why: &io::Error) -> Problem {
    let pool = &found.pool.name;
    found.read_failed(path, &why.to_string());
    if why.kind() == io::ErrorKind::TimedOut || !found.pool.is_in_reach() {
        let text = format!("pool {pool}, which keeps {path}, does not answer; try again later");
        return Problem::busy(ProblemCode::PoolOffline, text, 60);
    }
    Problem::new(
        ProblemCode::FileUnreadable,
        format!("the data of {path} cannot be read from pool {pool}; contact the site"),
    )
}

/// Adds `Digest` or `Repr-Digest` when the client wants one, computing what is not known yet.
async fn add_digests(
    door: &Door,
    request: &Request,
    found: &ReadableFile,
    headers: &mut HeaderMap,
) -> Result<(), ReadError> {
    let Some(wanted) = WantedDigest::of(&request.headers) else {
        return Ok(());
    };
    let sum = checksum_of(door, found, wanted.algorithm()).await?;
    let (name, value) = wanted.header(&sum);
    headers.insert(name, value);
    Ok(())
}

/// A file's checksum, from the namespace or from its bytes.
pub(super) async fn checksum_of(
    door: &Door,
    found: &ReadableFile,
    algorithm: ChecksumAlgorithm,
) -> Result<Checksum, ReadError> {
    let of = |known: &[Checksum]| {
        let mut known = known.iter();
        known.find(|sum| sum.algorithm() == algorithm).cloned()
    };
    let known = || door.storage.namespace.checksums(found.id);
    if let Some(sum) = of(&known().map_err(Problem::from)?) {
        return Ok(sum);
    }
    let failed = |why: &dyn std::fmt::Display| {
        static TOLD: LazyLock<RepeatedErrors> = LazyLock::new(RepeatedErrors::default);
        let pool = &found.pool.name;
        if let Some(passed_over) = TOLD.tells(&format!("{pool}: {why}")) {
            tracing::error!(file = %found.id, %pool, %why, passed_over, "a checksum cannot be computed");
        }
        found.pool.health.read_failed(why.to_string());
        Problem::new(
            ProblemCode::FileUnreadable,
            format!("the {algorithm} checksum cannot be computed; contact the site"),
        )
    };
    let of_file = found.pool.summed_files.lock(found.id).await;
    let turn = Arc::clone(&found.pool.checksum_turns).acquire_owned().await;
    let turn = turn.map_err(|why| failed(&why))?;
    // Another request may have had it computed meanwhile.
    let known = known().map_err(Problem::from)?;
    if let Some(sum) = of(&known) {
        return Ok(sum);
    }
    let (pool, id, size) = (Arc::clone(&found.pool), found.id, found.size);
    let storage = Arc::clone(&door.storage);
    // The work holds the turn, and its result is kept, also when who asked has left.
    let computed = tokio::task::spawn_blocking(move || {
        let sum = sound_checksum(&pool.open(id)?, size, algorithm, &known)?;
        storage.remember_checksums(id, vec![sum.clone()], (of_file, turn));
        Ok(sum)
    })
    .await
    .unwrap_or_else(|why| Err(io::Error::other(why)));
    match computed {
        Ok(sum) => Ok(sum),
        // Its name was given to another file, or removed, after it was looked up.
        Err(why) if why.kind() == io::ErrorKind::NotFound && !holds_file(door, found)? => {
            Err(ReadError::Replaced)
        }
        Err(why) => Err(failed(&why).into()),
    }
}

fn holds_file(door: &Door, found: &ReadableFile) -> Result<bool, Problem> {
    let namespace = &door.storage.namespace;
    Ok(namespace.holds_file(found.id, &found.pool.name)?)
}

/// The checksum of a file whose bytes are still those that came: with another size, or without the checksums that
/// were computed then, a new one would only certify the damage.
fn sound_checksum(
    file: &File,
    size: u64,
    wanted: ChecksumAlgorithm,
    known: &[Checksum],
) -> io::Result<Checksum> {
    let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let length = file.metadata()?.len();
    if length != size {
        return Err(damaged(format!(
            "the file has {length} bytes instead of {size}"
        )));
    }
    let algorithms: Vec<_> = known
        .iter()
        .map(Checksum::algorithm)
        .chain([wanted])
        .collect();
    let mut computed = checksum::of_file(file, &algorithms)?;
    if let Some(lost) = known.iter().find(|sum| !computed.contains(sum)) {
        return Err(damaged(format!("the file's bytes no longer have {lost}")));
    }
    let at = computed.iter().position(|sum| sum.algorithm() == wanted);
    at.map(|at| computed.swap_remove(at))
        .ok_or_else(|| io::Error::other("the algorithm is not available"))
}

/// It was replaced at each look.
fn replaced_meanwhile() -> Problem {
    Problem::busy(
        ProblemCode::ResourceBusy,
        "the file was replaced or removed during the request; try again",
        1,
    )
}

impl Door {
    /// Nothing is there. Whoever looks for what is left of a copy has to know that one may still come.
    fn missing(&self, path: &NamespacePath) -> Problem {
        match self.storage.claims.is_written(path) {
            true => Problem::new(
                ProblemCode::PathNotThereYet,
                format!("{path} does not exist yet: it is being written"),
            ),
            false => Problem::new(ProblemCode::PathNotFound, format!("{path} does not exist")),
        }
    }

    /// What stands at a path, or 404.
    pub(super) fn entry(&self, path: &NamespacePath) -> Result<Entry, Problem> {
        let entry = self.storage.namespace.lookup(path)?;
        entry.ok_or_else(|| self.missing(path))
    }

    /// The file that the entry at a path is, with its pool; `None` for a directory. One that is on tape only is refused: copies
    /// have nothing brought.
    pub(super) fn found(
        &self,
        path: &NamespacePath,
        entry: &Entry,
    ) -> Result<Option<ReadableFile>, Problem> {
        let EntryKind::File { size, pool, .. } = &entry.kind else {
            return Ok(None);
        };
        let Some(pool) = pool else {
            return Err(tape::unreadable(self, path, entry.id));
        };
        let usable = self.storage.pool(pool).filter(|pool| pool.is_in_reach());
        let Some(pool) = usable else {
            return Err(Problem::busy(
                ProblemCode::PoolOffline,
                format!("pool {pool}, which keeps this file, is out of service; try again later"),
                60,
            ));
        };
        Ok(Some(ReadableFile {
            id: entry.id,
            size: size.0,
            pool: Arc::clone(pool),
            entry: entry.clone(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn damaged_bytes_get_no_new_checksum() {
        let adler = |hex: &str| Checksum::from_hex(ChecksumAlgorithm::Adler32, hex).expect("valid");
        let (known, other) = ([adler("024d0127")], [adler("024d0128")]);
        let mut file = tempfile::tempfile().expect("made");
        file.write_all(b"abc").expect("written");
        let md5 = |size, known: &[Checksum]| {
            sound_checksum(&file, size, ChecksumAlgorithm::Md5, known)
                .map(|sum| sum.hex().to_owned())
        };
        assert_eq!(
            md5(3, &known).expect("sound"),
            "900150983cd24fb0d6963f7d28e17f72"
        );
        assert!(md5(4, &known).is_err(), "cut short");
        assert!(md5(3, &other).is_err(), "changed");
    }
}
