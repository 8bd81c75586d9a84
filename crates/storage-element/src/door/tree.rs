//! MKCOL, DELETE and MOVE: changes to the tree that move no data.

use super::answer::{Problem, Reply, Response};
use super::caller::Caller;
use super::conditions;
use super::destination::{destination, overwrite};
use super::handler_context::{Call, Door};
use super::lock_conditions::touched_by_removal;
use crate::reserved_names::is_reserved;
use http::StatusCode;
use penstock_decide::authorization::PathOperation;
use penstock_decide::locking::WriteScope;
use penstock_model::{NamespacePath, ProblemCode};
use penstock_persistence::namespace::{Change, ChangeError, ChangeRefusal, Entry, Replace};
use penstock_protocol::deletion::{Deletable, deletable};
use penstock_protocol::http1::server::BodyLength;

pub(super) async fn make_directory(door: &Door, call: &Call<'_>) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    door.permit(caller, &PathOperation::MakeDirectory, path)?;
    if !matches!(request.body, BodyLength::Empty | BodyLength::Fixed(0)) {
        // RFC 4918 §9.3: a body that is not understood must not be ignored.
        return Err(Problem::new(
            ProblemCode::MediaTypeUnsupported,
            "MKCOL takes no body",
        ));
    }
    let tokens = door.check_if(call)?;
    let intent = door.storage.claims.intend(path);
    let parent = path.parent().map(WriteScope::Itself);
    door.check_locks(&intent, call, &tokens, || Ok(parent.into_iter().collect()))?;
    let change = Change::MakeDirectory {
        path: path.clone(),
        owner: caller.holder(),
        at: door.storage.clock.recorded(),
    };
    let change = change.asked_by(caller.origin().into());
    let made = door.storage.change(change).await;
    // RFC 4918 §9.3.1: MKCOL on something that exists.
    made.map_err(|error| Problem::of_change(&error, StatusCode::METHOD_NOT_ALLOWED))?;
    Ok(Response::new(StatusCode::CREATED).into())
}

/// Removes a file, or a directory with everything below it, at once or not at all. A directory with more
/// entries than one transaction should hold is refused (409): clients such as gfal-rm empty it first
/// anyway. With `Penstock-Delete: empty-directory` only a directory goes in which nothing is when it goes.
pub(super) async fn delete(door: &Door, call: &Call<'_>) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    door.permit(caller, &PathOperation::Delete, path)?;
    let entry = door.entry(path)?;
    door.permit_removal_of_parts(caller, path)?;
    conditions::evaluate(&request.method, &request.headers, Some(&entry))?;
    let deletable =
        deletable(&request.headers).map_err(|why| Problem::bad_request(why.to_string()))?;
    let (only, entries_max) = match deletable {
        Deletable::Everything => (
            conditions::only_entry(&request.headers, Some(entry.id)),
            door.storage.settings().limits.remove_entries_max,
        ),
        Deletable::EmptyDirectory if !entry.is_directory() => return Err(not_empty_directory()),
        // Another entry may stand there when it is removed, and a directory counts itself.
        Deletable::EmptyDirectory => (Some(entry.id), 1),
    };
    let tokens = door.check_if(call)?;
    let intent = door.storage.claims.intend(path);
    refuse_while_written(door, path)?;
    door.check_locks(&intent, call, &tokens, || Ok(touched_by_removal(path)))?;
    let change = Change::Remove {
        path: path.clone(),
        only,
        entries_max,
        by: caller.holder(),
        at: door.storage.clock.recorded(),
    };
    let change = change.asked_by(caller.origin().into());
    let removed = door.storage.change(change).await;
    removed.map_err(|error| match (&error, deletable) {
        (ChangeError::Refused(ChangeRefusal::TooManyEntries { .. }), Deletable::EmptyDirectory) => {
            not_empty_directory()
        }
        _ => Problem::of_change(&error, StatusCode::CONFLICT),
    })?;
    door.release_within(path).await?;
    Ok(Response::new(StatusCode::NO_CONTENT).into())
}

/// `Penstock-Delete: empty-directory` does not hold.
fn not_empty_directory() -> Problem {
    let text =
        "it is not an empty directory, and 'Penstock-Delete' allows nothing else to be removed";
    Problem::new(ProblemCode::PreconditionFailed, text)
}

pub(super) async fn rename(door: &Door, call: &Call<'_>) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path: from,
    } = *call;
    let to = destination(door, &request.headers)?;
    let overwrite = overwrite(&request.headers)?;
    let operation = PathOperation::Rename { to: to.clone() };
    door.permit(caller, &operation, from)?;
    let entry = door.entry(from)?;
    let right = right_to_leave(door, caller, from, &entry)?;
    door.permit_move_of_parts(caller, from, &to)?;
    conditions::evaluate(&request.method, &request.headers, Some(&entry))?;
    let tokens = door.check_if(call)?;
    let only = door.only_file_at(call, &to)?;
    let existing = door.storage.namespace.lookup(&to)?;
    if existing.is_some() && overwrite {
        door.permit(caller, &PathOperation::Modify, &to)?;
        door.permit_removal_of_parts(caller, &to)?;
    }
    let intents = [
        door.storage.claims.intend(from),
        door.storage.claims.intend(&to),
    ];
    refuse_while_written(door, from)?;
    refuse_while_written(door, &to)?;
    door.check_locks(&intents, call, &tokens, || {
        touched_by_move(door, from, &to, existing.is_some())
    })?;
    // Something may appear at the destination meanwhile; only who may modify may replace it then.
    let may_replace = overwrite && door.allows(caller, &PathOperation::Modify, &to);
    let change = Change::Rename {
        from: from.clone(),
        only: match right {
            LeaveRight::Path => conditions::only_entry(&request.headers, Some(entry.id)),
            LeaveRight::OwnFile => Some(entry.id),
        },
        to: to.clone(),
        replace: match (may_replace, only) {
            (true, Some(id)) => Replace::Only(id),
            (true, None) => Replace::Allowed,
            (false, _) => Replace::Refused,
        },
        entries_max: door.storage.settings().limits.remove_entries_max,
        by: caller.holder(),
        at: door.storage.clock.recorded(),
    };
    let change = change.asked_by(caller.origin().into());
    let moved = door.storage.change(change).await;
    // RFC 4918 §9.9.4.
    let moved =
        moved.map_err(|error| Problem::of_change(&error, StatusCode::PRECONDITION_FAILED))?;
    // RFC 4918 §7.6: a lock stays behind, and what it locked is no longer there.
    door.release_within(from).await?;
    door.release_below(&to).await?;
    let status = match moved.replaced {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::CREATED,
    };
    Ok(Response::new(status).into())
}

/// By what a caller may take something out of its place.
enum LeaveRight {
    /// Whatever stands there by then.
    Path,
    /// It is a file that the caller has made, and that one only: another user's may stand there meanwhile.
    OwnFile,
}

/// WLCG profile 1.3 lets `storage.create` rename files, for uploads under a temporary name. It does not let it remove what
/// others made, and out of its place is as good as removed.
fn right_to_leave(
    door: &Door,
    caller: &Caller,
    from: &NamespacePath,
    entry: &Entry,
) -> Result<LeaveRight, Problem> {
    let leave = match is_reserved(&PathOperation::Modify, from) {
        // Nothing is written under a name of the door, but what stands there may go away.
        true => PathOperation::Delete,
        false => PathOperation::Modify,
    };
    let holder = caller.holder();
    let is_own_file = !entry.is_directory() && holder.is_some() && entry.owner == holder;
    if is_own_file && !door.allows(caller, &leave, from) {
        return Ok(LeaveRight::OwnFile);
    }
    door.permit(caller, &leave, from)?;
    Ok(LeaveRight::Path)
}

/// RFC 4918 §9.6, §9.9: what goes away is touched with all that is below it, and so is what gives way to it.
fn touched_by_move(
    door: &Door,
    from: &NamespacePath,
    to: &NamespacePath,
    exists: bool,
) -> Result<Vec<WriteScope>, Problem> {
    let mut touched = touched_by_removal(from);
    touched.extend(door.touched_by_replacing(to, exists)?);
    Ok(touched)
}

/// A write that has begun would end after this change, and undo a part of it.
fn refuse_while_written(door: &Door, path: &NamespacePath) -> Result<(), Problem> {
    match door.storage.claims.written_within(path) {
        Some(written) => Err(Problem::being_written(&written)),
        None => Ok(()),
    }
}
