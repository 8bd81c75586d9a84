//! LOCK and UNLOCK (RFC 4918 §9.10, §9.11): write locks, exclusive and shared, on files, directories and names that are
//! still free.

use super::answer::{Problem, Reply, Response, xml};
use super::conditions;
use super::document_body::read_body;
use super::handler_context::{Call, Door};
use super::lock_conditions::ValidLockTokens;
use super::write_ticket::{AbsenceDemand, WriteConditions, WritePurpose, WriteRequest, WriteRight};
use crate::locks::LockError;
use crate::write_error::{CommitError, WriteError};
use http::{HeaderName, HeaderValue, StatusCode};
use penstock_decide::authorization::PathOperation;
use penstock_decide::locking::LockRefusal;
use penstock_model::{Lock, LockReach, LockToken, NamespacePath, ProblemCode, Timestamp};
use penstock_persistence::namespace::ChangeRefusal;
use penstock_protocol::http1::server::Connection;
use penstock_protocol::webdav::{
    self, Depth, LOCK_BYTES_MAX, LockInfo, lock_timeout, lock_token, write_lock_answer,
};
use uuid::Uuid;

/// RFC 4918 §10.5.
const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");

pub(super) async fn lock(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    let write = WriteRequest {
        door,
        caller,
        path,
        encoded: Some(request.path()),
        purpose: WritePurpose::Lock,
        absence: AbsenceDemand::NotDemanded,
    };
    let right = write.authorize()?;
    let body = read_body(connection, "LOCK", LOCK_BYTES_MAX).await?;
    let asked = LockInfo::parse(&body).map_err(|why| Problem::bad_request(why.to_string()))?;
    match asked {
        None => {
            conditions::evaluate(&request.method, &request.headers, right.current())?;
            refresh(door, call, &door.check_if(call)?).await
        }
        Some(asked) => take(door, call, right, asked).await,
    }
}

async fn take(
    door: &Door,
    call: &Call<'_>,
    right: WriteRight<'_>,
    asked: LockInfo,
) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    let depth =
        Depth::parse(&request.headers).map_err(|why| Problem::bad_request(why.to_string()))?;
    let reach = match depth {
        Some(Depth::Zero) => LockReach::Itself,
        // RFC 4918 §9.10.3: without the header, everything.
        Some(Depth::Infinity) | None => LockReach::Tree,
        Some(Depth::One) => {
            return Err(Problem::bad_request(
                "LOCK takes 'Depth: 0' or 'Depth: infinity'",
            ));
        }
    };
    if reach == LockReach::Tree {
        // Whoever may not write in a part of it must not keep others from it.
        door.permit_parts(caller, &PathOperation::Modify, path)?;
    }
    let user = caller
        .holder()
        .ok_or_else(|| caller.unknown("a lock needs a user".to_owned()))?;
    let limits = door.storage.settings().limits.clone();
    let lasts = lock_timeout(
        &request.headers,
        limits.lock_timeout,
        limits.lock_timeout_max,
    );
    let lock = Lock {
        token: LockToken(Uuid::new_v4()),
        root: path.clone(),
        reach,
        scope: asked.scope,
        user,
        macaroon: caller.macaroon().map(str::to_owned),
        owner: asked.owner,
        expires: door.storage.clock.recorded() + lasts,
    };
    let created = match right.current() {
        Some(_) => {
            conditions::evaluate(&request.method, &request.headers, right.current())?;
            door.check_if(call)?;
            false
        }
        None => make_empty(door, call, right, &lock).await?,
    };
    let token = lock.token;
    let taken = door.storage.take_lock(lock).await;
    taken.map_err(|error| lock_problem(door, path, &error))?;
    tracing::debug!(%path, %token, "locked");
    let status = match created {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    let token = HeaderValue::from_str(&format!("<{token}>")).expect("a token is visible ASCII");
    Ok(lock_answer(door, path, status)
        .with(LOCK_TOKEN, token)
        .into())
}

/// RFC 4918 §7.3: to lock a free name makes an empty file. False when one has appeared meanwhile.
async fn make_empty(
    door: &Door,
    call: &Call<'_>,
    right: WriteRight<'_>,
    lock: &Lock,
) -> Result<bool, Problem> {
    let terms = right.target()?.conditions(WriteConditions::Request(call))?;
    let claim = terms.claim()?;
    // A lock that is refused leaves no file behind. RFC 4918 §9.10.6 has its own words for a lock in the way of another.
    let granted = door.storage.check_lock(lock);
    granted.map_err(|why| lock_problem(door, call.path, &why.into()))?;
    let ticket = claim.locks(call)?;
    let absence = ticket.absence();
    match ticket.pool(Some(0))?.store_empty().await {
        Ok(_) => Ok(true),
        Err(WriteError::Commit(CommitError::Refused(ChangeRefusal::Exists(_)))) => Ok(false),
        Err(error) => Err(absence.write_problem(&error)),
    }
}

/// RFC 4918 §9.10.2: the lock is named in the `If` header.
async fn refresh(door: &Door, call: &Call<'_>, tokens: &ValidLockTokens) -> Result<Reply, Problem> {
    let [token] = tokens.0.as_slice() else {
        return Err(Problem::bad_request(
            "LOCK without a body refreshes a lock; name exactly one in an 'If' header",
        ));
    };
    check_ownership(door, call, *token, StatusCode::PRECONDITION_FAILED)?;
    let limits = door.storage.settings().limits.clone();
    let headers = &call.request.headers;
    let lasts = lock_timeout(headers, limits.lock_timeout, limits.lock_timeout_max);
    let expires = door.storage.clock.recorded() + lasts;
    let refreshed = door.storage.refresh_lock(*token, expires).await;
    let refreshed = refreshed.map_err(|error| Problem::of_change(&error, StatusCode::CONFLICT))?;
    match refreshed {
        Some(_) => Ok(lock_answer(door, call.path, StatusCode::OK).into()),
        None => Err(Problem::new(
            ProblemCode::PreconditionFailed,
            "the lock has ended; take it again",
        )),
    }
}

pub(super) async fn unlock(door: &Door, call: &Call<'_>) -> Result<Reply, Problem> {
    let text = lock_token(&call.request.headers)
        .ok_or_else(|| Problem::bad_request("UNLOCK needs a 'Lock-Token' header: '<token>'"))?;
    let token =
        LockToken::parse(text).ok_or_else(|| no_such_lock(call.path, StatusCode::CONFLICT))?;
    check_ownership(door, call, token, StatusCode::CONFLICT)?;
    let released = door.storage.release_locks(|table| {
        table
            .release(token)
            .map(|lock| lock.token)
            .into_iter()
            .collect()
    });
    released
        .await
        .map_err(|error| Problem::of_change(&error, StatusCode::CONFLICT))?;
    tracing::debug!(path = %call.path, %token, "unlocked");
    Ok(Response::new(StatusCode::NO_CONTENT).into())
}

/// The lock is on this path and the caller's own.
fn check_ownership(
    door: &Door,
    call: &Call<'_>,
    token: LockToken,
    elsewhere: StatusCode,
) -> Result<(), Problem> {
    let Some(user) = call.caller.holder() else {
        return Err(call
            .caller
            .unknown("a lock belongs to a user; say who you are".to_owned()));
    };
    let lock = door.storage.with_locks(|table| table.get(token).cloned());
    match lock.filter(|lock| lock.covers(call.path)) {
        None => Err(no_such_lock(call.path, elsewhere)),
        Some(lock) if !lock.is_usable_by(&user, call.caller.macaroon()) => {
            let root = &lock.root;
            let text = match lock.user == user {
                true => format!("the lock on {root} was not taken with this macaroon"),
                false => format!("the lock on {root} belongs to another user"),
            };
            let text = format!("{text}; it expires by itself");
            Err(Problem::new(ProblemCode::PermissionDenied, text))
        }
        // A credential of the user that merely reads is tokens around.
        Some(lock) => door.permit(call.caller, &PathOperation::Create, &lock.root),
    }
}

/// RFC 4918 §9.11.1.
fn no_such_lock(path: &NamespacePath, status: StatusCode) -> Problem {
    let text = format!("no lock with this token is on {path}; it may have ended");
    let body = webdav::write_condition("lock-token-matches-request-uri", &[], &text);
    Problem::new(ProblemCode::PreconditionFailed, text)
        .with_status(status)
        .with_xml(body)
}

/// RFC 4918 §9.10.6, §9.10.9.
fn lock_problem(door: &Door, path: &NamespacePath, error: &LockError) -> Problem {
    match error {
        LockError::Refused(LockRefusal::Conflict(roots)) => {
            let above = roots.iter().any(|root| path.is_within(root));
            if !above {
                let named = Some((path, StatusCode::FAILED_DEPENDENCY));
                return door.failed_members(roots, StatusCode::LOCKED, named);
            }
            let text = error.to_string();
            let body = webdav::write_condition("no-conflicting-lock", roots, &text);
            Problem::new(ProblemCode::PathLocked, text).with_xml(body)
        }
        LockError::Refused(LockRefusal::TooManyOfUser { .. } | LockRefusal::TooMany(_)) => {
            Problem::new(ProblemCode::LocksExhausted, error.to_string())
        }
        LockError::Busy(_) => Problem::conflict_for_now(error.to_string()),
        LockError::Namespace(why) => Problem::of_change(why, StatusCode::CONFLICT),
    }
}

/// An answer that tells the locks of a path.
fn lock_answer(door: &Door, path: &NamespacePath, status: StatusCode) -> Response {
    let at: Timestamp = door.storage.clock.recorded();
    let locks: Vec<Lock> = door.locks_of(path);
    xml(status, write_lock_answer(&locks, at))
}

impl Door {
    /// The locks that writing at a path needs.
    pub(super) fn locks_of(&self, path: &NamespacePath) -> Vec<Lock> {
        match self.storage.locks.is_empty() {
            true => Vec::new(),
            false => self
                .storage
                .with_locks(|table| table.covering(path).into_iter().cloned().collect()),
        }
    }
}
