//! GET and HEAD: a file or a part of it, its checksums, or a listing that a browser shows.

use super::answer::{Answer, Problem, Reply};
use super::conditions::{self, Verdict, etag};
use super::{Call, Door, byteranges, list, pages, wait_for_slot};
use crate::clock::microseconds;
use crate::mover::{Mover, MoverRequest};
use crate::pool::Pool;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use penstock_decide::authorization::Operation;
use penstock_decide::pool_selection::PoolMode;
use penstock_model::{Checksum, ChecksumAlgorithm, NamespacePath};
use penstock_persistence::namespace::{Entry, EntryId, EntryKind, MoverKind, MoverOutcome};
use penstock_protocol::http1::server::{Connection, Request};
use penstock_protocol::{checksum, digest, webdav};
use serde_json::Value;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// RFC 3230 §4.3.2.
pub(super) const DIGEST: HeaderName = HeaderName::from_static("digest");
/// Endings of files that browsers may run, or show with what they run.
const ACTIVE: [&str; 18] = [
    "html", "htm", "xhtml", "xht", "shtml", "mhtml", "mht", "svg", "svgz", "xml", "xsl", "xslt",
    "js", "mjs", "css", "wasm", "pdf", "swf",
];
/// RFC 9530 §3.
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// The checksum that a client wants to be told, and in which header. One that asks in both ways gets
/// `Digest`, as from XRootD.
#[derive(Debug, Clone, Copy)]
pub(super) enum WantedDigest {
    /// RFC 3230.
    Digest(ChecksumAlgorithm),
    /// RFC 9530.
    ReprDigest(ChecksumAlgorithm),
}

impl WantedDigest {
    /// The first that the client likes and we know.
    pub(super) fn of(headers: &HeaderMap) -> Option<WantedDigest> {
        let first = |wanted: Vec<ChecksumAlgorithm>| wanted.into_iter().next();
        let digest = first(digest::wanted(headers)).map(WantedDigest::Digest);
        digest.or_else(|| first(digest::wanted_repr(headers)).map(WantedDigest::ReprDigest))
    }

    pub(super) fn algorithm(self) -> ChecksumAlgorithm {
        match self {
            WantedDigest::Digest(algorithm) | WantedDigest::ReprDigest(algorithm) => algorithm,
        }
    }

    /// The header that tells it.
    pub(super) fn header(self, sum: &Checksum) -> (HeaderName, HeaderValue) {
        let sum = std::slice::from_ref(sum);
        match self {
            WantedDigest::Digest(_) => (DIGEST, digest::header_value(sum)),
            WantedDigest::ReprDigest(_) => (REPR_DIGEST, digest::repr_header_value(sum)),
        }
    }
}

/// A file, looked up.
pub(crate) struct Found {
    pub id: EntryId,
    pub size: u64,
    pub pool: Arc<Pool>,
    pub entry: Entry,
}

pub(super) async fn read(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    let entry = door.storage.namespace.lookup(path)?;
    let is_directory = entry.as_ref().is_some_and(Entry::is_directory);
    // Judged before a missing file is told from a present one.
    let operation = match (request.method == Method::HEAD, is_directory) {
        (true, _) => Operation::Stat,
        (false, true) => Operation::List,
        (false, false) => Operation::Read,
    };
    door.permit(caller, &operation, path)?;
    let entry = entry.ok_or_else(|| missing(path))?;
    let Some(found) = door.found(&entry)? else {
        return match request.method == Method::HEAD {
            true => Ok(Answer::new(StatusCode::OK).into()),
            false => list::page(door, path, &entry).await,
        };
    };
    let mut headers = file_headers(&found);
    contain(request, path, &mut headers);
    if conditions::evaluate(&request.method, &request.headers, Some(&entry))?
        == Verdict::NotModified
    {
        return Ok(Answer {
            status: StatusCode::NOT_MODIFIED,
            headers,
            body: Vec::new(),
        }
        .into());
    }
    add_digests(door, request, &found, &mut headers).await?;
    if request.method == Method::HEAD {
        let sent = connection.respond_head_only(StatusCode::OK, headers, found.size);
        return Ok(Reply::Sent(sent.await));
    }
    give(door, connection, call, &found, headers).await
}

/// Answers a GET with a file or a part of it.
async fn give(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
    found: &Found,
    mut headers: HeaderMap,
) -> Result<Reply, Problem> {
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
    let mut mover = door.storage.arrive(MoverRequest {
        kind: MoverKind::Get,
        path: path.clone(),
        peer: connection.peer_addr().to_string(),
        user: caller.user(),
        vo: caller.vo(),
        pool: Arc::clone(&found.pool),
        selection: Value::Null,
    })?;
    wait_for_slot(door, &mut mover, Some(connection)).await?;
    if range.is_empty() {
        let sent = connection.respond(status, headers, &[]).await;
        mover.tcp = connection.tcp_info();
        mover.end(outcome(&sent));
        return Ok(Reply::Sent(sent));
    }
    let file = match open(door, path, found).await {
        Ok(file) => file,
        Err(problem) => {
            mover.end(MoverOutcome::Failed(problem.text.clone()));
            return Err(problem);
        }
    };
    if !parts.is_empty() {
        let sent =
            byteranges::send(connection, &mut mover, headers, file, &parts, found.size).await;
        mover.tcp = connection.tcp_info();
        mover.end(outcome(&sent));
        return Ok(Reply::Sent(sent));
    }
    send(connection, mover, status, headers, &file, range).await
}

async fn send(
    connection: &mut Connection,
    mut mover: Mover,
    status: StatusCode,
    headers: HeaderMap,
    file: &File,
    range: std::ops::Range<u64>,
) -> Result<Reply, Problem> {
    let sent = connection
        .send_file_watched(status, headers, file, range, &|bytes| mover.moved(bytes))
        .await;
    mover.tcp = connection.tcp_info();
    if let Ok(sent) = &sent {
        mover.clocks.source_read_us += microseconds(sent.read_time);
        mover.clocks.network_us += microseconds(sent.network_time);
    }
    let sent = sent.map(|_| ());
    mover.end(outcome(&sent));
    match sent {
        Err(why) if connection.can_answer() => {
            tracing::error!(%why, "a file's data is shorter than its entry says");
            Err(Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the data of this file is damaged; tell the site",
            ))
        }
        sent => Ok(Reply::Sent(sent)),
    }
}

/// A client that takes nothing more is gone, as far as a record is concerned; a file that ends early is
/// our fault.
fn outcome(sent: &io::Result<()>) -> MoverOutcome {
    match sent {
        Ok(()) => MoverOutcome::Done,
        Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => MoverOutcome::Failed(format!(
            "the file in the pool is shorter than its entry: {why}"
        )),
        Err(why) => MoverOutcome::Aborted(format!("the client stopped reading: {why}")),
    }
}

fn file_headers(found: &Found) -> HeaderMap {
    let modified = webdav::format_http_date(found.entry.modified);
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(ETAG, etag(found.id));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Ok(value) = HeaderValue::from_str(&modified) {
        headers.insert(LAST_MODIFIED, value);
    }
    headers
}

/// Keeps what users wrote from acting in the door's name: a browser shows nothing of it with a script, takes no
/// type but ours, and saves what other types could make it run.
fn contain(request: &Request, path: &NamespacePath, headers: &mut HeaderMap) {
    pages::harmless(headers);
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; sandbox"),
    );
    let extension = path.name().and_then(|name| name.rsplit_once('.'));
    let extension = extension.map(|(_, extension)| extension.to_ascii_lowercase());
    if extension.is_some_and(|extension| ACTIVE.contains(&extension.as_str())) {
        headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    }
    if pages::authorisation(request).is_some() {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private"));
    }
}

/// Opens a file's data. A file that was replaced between lookup and opening is looked up again once.
pub(super) async fn open(
    door: &Door,
    path: &NamespacePath,
    found: &Found,
) -> Result<File, Problem> {
    match open_data(&found.pool, found.id).await {
        Ok(file) => return Ok(file),
        Err(why) if why.kind() == io::ErrorKind::NotFound => {}
        Err(why) => return Err(unreadable(path, found, &why)),
    }
    let entry = door.entry(path)?;
    if entry.id == found.id {
        let why = io::ErrorKind::NotFound.into();
        return Err(unreadable(path, found, &why));
    }
    Err(replaced_meanwhile())
}

async fn open_data(pool: &Arc<Pool>, id: EntryId) -> io::Result<File> {
    let pool = Arc::clone(pool);
    tokio::task::spawn_blocking(move || pool.open(id))
        .await
        .unwrap_or_else(|why| Err(io::Error::other(why)))
}

fn unreadable(path: &NamespacePath, found: &Found, why: &io::Error) -> Problem {
    let pool = &found.pool.name;
    tracing::error!(%path, %pool, file = %found.id, %why, "a file's data cannot be opened");
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("the data of {path} cannot be read from pool {pool}; tell the site"),
    )
}

/// Adds `Digest` or `Repr-Digest` when the client wants one, computing what is not known yet.
async fn add_digests(
    door: &Door,
    request: &Request,
    found: &Found,
    headers: &mut HeaderMap,
) -> Result<(), Problem> {
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
    found: &Found,
    algorithm: ChecksumAlgorithm,
) -> Result<Checksum, Problem> {
    let known = door.storage.namespace.checksums(found.id)?;
    if let Some(sum) = known.iter().find(|sum| sum.algorithm() == algorithm) {
        return Ok(sum.clone());
    }
    let failed = |why: &dyn std::fmt::Display| {
        tracing::error!(file = %found.id, pool = %found.pool.name, %why, "a checksum cannot be computed");
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the {algorithm} checksum cannot be computed; tell the site"),
        )
    };
    let _turn = door
        .storage
        .checksum_turns
        .acquire()
        .await
        .map_err(|why| failed(&why))?;
    let (pool, id, size) = (Arc::clone(&found.pool), found.id, found.size);
    let computed = tokio::task::spawn_blocking(move || {
        sound_checksum(&pool.open(id)?, size, algorithm, &known)
    })
    .await
    .unwrap_or_else(|why| Err(io::Error::other(why)));
    let sum = match computed {
        Ok(sum) => sum,
        // Its name was given to another file, or removed, after it was looked up.
        Err(why)
            if why.kind() == io::ErrorKind::NotFound
                && !door.storage.namespace.holds_file(id, &found.pool.name)? =>
        {
            return Err(replaced_meanwhile());
        }
        Err(why) => return Err(failed(&why)),
    };
    door.storage.remember_checksums(found.id, vec![sum.clone()]);
    Ok(sum)
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

/// Size and tag that were looked up fit no file any more.
fn replaced_meanwhile() -> Problem {
    Problem::busy(
        "the file was replaced or removed while it was being looked at; ask again",
        1,
    )
}

fn missing(path: &NamespacePath) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("{path} does not exist"))
}

impl Door {
    /// What stands at a path, or 404.
    pub(super) fn entry(&self, path: &NamespacePath) -> Result<Entry, Problem> {
        let entry = self.storage.namespace.lookup(path)?;
        entry.ok_or_else(|| missing(path))
    }

    /// The file that an entry is, with its pool; `None` for a directory.
    pub(super) fn found(&self, entry: &Entry) -> Result<Option<Found>, Problem> {
        let EntryKind::File { size, pool } = &entry.kind else {
            return Ok(None);
        };
        let usable = self
            .storage
            .pool(pool)
            .filter(|pool| pool.mode() != PoolMode::Disabled);
        let Some(pool) = usable else {
            return Err(Problem::busy(
                format!("pool {pool}, which keeps this file, is out of service; try again later"),
                60,
            ));
        };
        Ok(Some(Found {
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
