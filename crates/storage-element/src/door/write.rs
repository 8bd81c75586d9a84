//! PUT: a file from the client.

use super::access::Caller;
use super::answer::{Answer, Problem, Reply};
use super::conditions::{self, etag};
use super::read::WantedDigest;
use super::{Call, Door, NoMover, mover_for_body};
use crate::incoming::{Landed, Order};
use crate::mover::{Mover, MoverRequest};
use crate::receive::{Patience, ReceiveError, receive};
use crate::storage::Placed;
use http::header::{CONTENT_RANGE, ETAG};
use http::{HeaderMap, StatusCode};
use penstock_decide::authorization::Operation;
use penstock_model::{Checksum, NamespacePath};
use penstock_persistence::namespace::{Entry, EntryId, MoverKind, MoverOutcome, Refusal, Replace};
use penstock_protocol::digest;
use penstock_protocol::http1::server::{BodyError, BodyLength, Connection};
use penstock_protocol::pace::PaceLimit;
use std::sync::Arc;

/// Pools that are tried for one file.
const PLACES_MAX: u32 = 3;

/// How a caller may write a path.
pub(super) struct WritePermit {
    pub replace: Replace,
    /// The status when the destination turns out to exist and may not be replaced.
    pub exists: StatusCode,
}

pub(super) async fn put(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    let current = door.storage.namespace.lookup(path)?;
    let absent = conditions::demands_absence(&request.headers);
    let mut permit = may_write(door, caller, path, current.as_ref(), absent)?;
    let current_id = current.as_ref().map(|entry| entry.id);
    conditions::evaluate(&request.method, &request.headers, current.as_ref())?;
    let shown = door.check_if(call)?;
    permit.pin(conditions::pinned(&request.headers, current_id));
    check_target(door, request.path(), path, current.as_ref())?;
    if request.headers.contains_key(CONTENT_RANGE) {
        // RFC 9110 §14.5: a server that does not do partial PUTs must not take one for a whole.
        let text = "PUT with 'Content-Range' is not supported; send the whole file";
        return Err(Problem::bad_request(text));
    }
    let expected =
        digest::parse(&request.headers).map_err(|why| Problem::bad_request(why.to_string()))?;
    let size = match request.body {
        BodyLength::Empty => Some(0),
        BodyLength::Fixed(size) => Some(size),
        BodyLength::Chunked => None,
    };
    let refused = |error| Problem::of_write(&error, permit.exists);
    let claim = door.storage.claims.claim(path).map_err(refused)?;
    door.check_locks(call, &shown, || {
        door.touched_by_writing(path, current.is_some())
    })?;
    let placing = Placing {
        size,
        likely: size.or_else(|| announced(&request.headers)),
        path,
        caller,
    };
    let (placed, mut mover) = place(door, connection, &placing).await?;
    let more = expected.iter().map(Checksum::algorithm);
    let wanted = WantedDigest::of(&request.headers);
    let sum = wanted.map(WantedDigest::algorithm);
    let order = Order {
        claim,
        owner: caller.holder(),
        replace: permit.replace,
        size,
        algorithms: door.storage.algorithms(more.chain(sum)),
        properties_of: None,
    };
    let incoming = door
        .storage
        .incoming(order, placed.pool, placed.reservation);
    let patience = Patience {
        stall: door.storage.settings().limits.stall_timeout,
        // The connection judges its client itself.
        pace: PaceLimit::NONE,
    };
    let landed = receive(connection, incoming, &mut mover, patience, expected).await;
    mover.tcp = connection.tcp_info();
    answer(mover, landed, wanted, permit.exists)
}

/// A file that needs a pool.
struct Placing<'a> {
    /// As the client announced it.
    size: Option<u64>,
    /// What is said of it otherwise.
    likely: Option<u64>,
    path: &'a NamespacePath,
    caller: &'a Caller,
}

/// Finds a pool and a mover there for a body of which nothing was read. When the disk of the pool fails while the mover
/// was waited for, another pool takes the file.
async fn place(
    door: &Door,
    connection: &mut Connection,
    placing: &Placing<'_>,
) -> Result<(Placed, Mover), Problem> {
    let requester = placing.caller.requester();
    let mut places = 1;
    loop {
        let placed = door.storage.place(placing.likely, &requester);
        let placed = placed.map_err(|why| Problem::of_placement(why, placing.size))?;
        let wanted_mover = MoverRequest {
            kind: MoverKind::Put,
            path: placing.path.clone(),
            peer: connection.peer_addr().to_string(),
            user: placing.caller.user(),
            requester: requester.clone(),
            pool: Arc::clone(&placed.pool),
            selection: serde_json::to_value(&placed.because).unwrap_or_default(),
        };
        let mover = mover_for_body(door, connection, wanted_mover).await;
        let mover = mover.map_err(|why| match why {
            NoMover::Body(why) => not_come(why),
            NoMover::Refused(problem) => problem,
        })?;
        if placed.pool.takes_new_files() || places == PLACES_MAX {
            return Ok((placed, mover));
        }
        places += 1;
        let pool = &placed.pool.name;
        mover.end(MoverOutcome::Aborted(format!(
            "pool {pool} takes no files any more; another one takes this file"
        )));
    }
}

/// What the client of macOS says of the length of a body that it sends in chunks. It is believed only as far as the pool
/// is chosen by it.
fn announced(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get("x-expected-entity-length")?;
    value.to_str().ok()?.trim().parse().ok()
}

/// Ends the mover and tells the client how it went.
fn answer(
    mover: Mover,
    landed: Result<Landed, ReceiveError<BodyError>>,
    wanted: Option<WantedDigest>,
    exists: StatusCode,
) -> Result<Reply, Problem> {
    match landed {
        Ok(landed) => {
            mover.end(MoverOutcome::Done);
            let status = match landed.replaced {
                true => StatusCode::NO_CONTENT,
                false => StatusCode::CREATED,
            };
            let mut answer = Answer::new(status).with(ETAG, etag(landed.id));
            if let Some(wanted) = wanted {
                let mut sums = landed.checksums.iter();
                if let Some(sum) = sums.find(|sum| sum.algorithm() == wanted.algorithm()) {
                    let (name, value) = wanted.header(sum);
                    answer.headers.insert(name, value);
                }
            }
            Ok(answer.into())
        }
        Err(ReceiveError::Write(error)) => {
            mover.end(MoverOutcome::Failed(error.to_string()));
            Err(Problem::of_write(&error, exists))
        }
        Err(ReceiveError::Source(error)) => {
            let problem = not_come(error);
            mover.end(MoverOutcome::Aborted(problem.text.clone()));
            Err(problem)
        }
        Err(ReceiveError::Slow(why)) => {
            let problem = not_come(BodyError::TooSlow(why));
            mover.end(MoverOutcome::Aborted(problem.text.clone()));
            Err(problem)
        }
        Err(ReceiveError::Preempted(why)) => {
            let problem = Problem::preempted(&why);
            mover.end(MoverOutcome::Aborted(problem.text.clone()));
            Err(problem)
        }
    }
}

/// The body did not come as it should.
fn not_come(error: BodyError) -> Problem {
    let text = format!("{error}; the partial file was removed");
    Problem::new(body_status(&error), text)
}

impl WritePermit {
    /// Narrows it to one file, which the client has named.
    pub(super) fn pin(&mut self, only: Option<EntryId>) {
        if let (Replace::Allowed, Some(id)) = (self.replace, only) {
            self.replace = Replace::Only(id);
        }
    }
}

/// Whether the caller may write here, and over what.
pub(super) fn may_write(
    door: &Door,
    caller: &Caller,
    path: &NamespacePath,
    current: Option<&Entry>,
    must_be_absent: bool,
) -> Result<WritePermit, Problem> {
    if current.is_some() {
        // A client that forbids replacing needs no right to replace: it is told that the file exists.
        match must_be_absent {
            true => door.permit(caller, &Operation::Create, path)?,
            false => door.permit(caller, &Operation::Modify, path)?,
        }
    } else {
        door.permit(caller, &Operation::Create, path)?;
    }
    if must_be_absent {
        return Ok(WritePermit {
            replace: Replace::Refused,
            exists: StatusCode::PRECONDITION_FAILED,
        });
    }
    // A file may appear between this look and the commit; only who may modify may replace it then.
    let replace = match current.is_some() || door.allows(caller, &Operation::Modify, path) {
        true => Replace::Allowed,
        false => Replace::Refused,
    };
    Ok(WritePermit {
        replace,
        exists: StatusCode::FORBIDDEN,
    })
}

/// Finds out what would be refused at the end anyway: a directory cannot be written, nor a name that says
/// it is one, nor anything below a file.
pub(super) fn check_target(
    door: &Door,
    raw_path: &str,
    path: &NamespacePath,
    current: Option<&Entry>,
) -> Result<(), Problem> {
    let is_directory = current.is_some_and(Entry::is_directory);
    if is_directory || raw_path.ends_with('/') {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            format!("{path} is a directory, or its URL ends with '/'; name a file"),
        ));
    }
    let mut above = path.parent().filter(|_| current.is_none());
    while let Some(directory) = above {
        match door.storage.namespace.lookup(&directory)? {
            Some(entry) if entry.is_directory() => break,
            Some(_) => {
                let refusal = Refusal::ParentIsFile(directory).into();
                return Err(Problem::of_change(&refusal, StatusCode::CONFLICT));
            }
            None => above = directory.parent(),
        }
    }
    Ok(())
}

pub(super) fn body_status(error: &BodyError) -> StatusCode {
    match error {
        BodyError::Stalled { .. } | BodyError::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
        BodyError::TooShort { .. } | BodyError::Malformed(_) | BodyError::Io(_) => {
            StatusCode::BAD_REQUEST
        }
    }
}
