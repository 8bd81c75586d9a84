//! MKCOL, DELETE and MOVE: changes to the tree that move no data.

use super::access::Caller;
use super::answer::{Answer, Problem, Reply};
use super::conditions;
use super::guard::touched_by_removal;
use super::{Call, Door};
use crate::reserved_names::is_reserved;
use http::header::HOST;
use http::{HeaderMap, StatusCode};
use penstock_decide::authorization::Operation;
use penstock_decide::locking::Touched;
use penstock_model::NamespacePath;
use penstock_persistence::namespace::{Change, Entry, Refusal, Replace};
use penstock_protocol::http1::server::BodyLength;

pub(super) async fn make_directory(door: &Door, call: &Call<'_>) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    door.permit(caller, &Operation::MakeDirectory, path)?;
    if !matches!(request.body, BodyLength::Empty | BodyLength::Fixed(0)) {
        // RFC 4918 §9.3: a body that is not understood must not be ignored.
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "MKCOL takes no body",
        ));
    }
    let shown = door.check_if(call)?;
    let _intent = door.storage.claims.intend(path);
    let parent = path.parent().map(Touched::Itself);
    door.check_locks(call, &shown, || Ok(parent.into_iter().collect()))?;
    let change = Change::MakeDirectory {
        path: path.clone(),
        owner: caller.holder(),
        at: door.storage.clock.recorded(),
    };
    let made = door.storage.change(change).await;
    // RFC 4918 §9.3.1: MKCOL on something that exists.
    made.map_err(|error| Problem::of_change(&error, StatusCode::METHOD_NOT_ALLOWED))?;
    Ok(Answer::new(StatusCode::CREATED).into())
}

/// Removes a file, or a directory with everything below it, at once or not at all. A directory with more
/// entries than one transaction should hold is refused (409): clients such as gfal-rm empty it first
/// anyway.
pub(super) async fn delete(door: &Door, call: &Call<'_>) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    door.permit(caller, &Operation::Delete, path)?;
    let entry = door.entry(path)?;
    door.permit_removal_of_parts(caller, path)?;
    conditions::evaluate(&request.method, &request.headers, Some(&entry))?;
    let shown = door.check_if(call)?;
    let _intent = door.storage.claims.intend(path);
    refuse_while_written(door, path)?;
    door.check_locks(call, &shown, || Ok(touched_by_removal(path)))?;
    let change = Change::Remove {
        path: path.clone(),
        only: conditions::pinned(&request.headers, Some(entry.id)),
        entries_max: door.storage.settings().limits.remove_entries_max,
        by: caller.holder(),
        at: door.storage.clock.recorded(),
    };
    let removed = door.storage.change(change).await;
    removed.map_err(|error| Problem::of_change(&error, StatusCode::CONFLICT))?;
    door.release_within(path).await?;
    Ok(Answer::new(StatusCode::NO_CONTENT).into())
}

pub(super) async fn rename(door: &Door, call: &Call<'_>) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path: from,
    } = *call;
    let to = destination(door, &request.headers)?;
    let overwrite = overwrite(&request.headers)?;
    let operation = Operation::Rename { to: to.clone() };
    door.permit(caller, &operation, from)?;
    let entry = door.entry(from)?;
    if !is_own_file(&entry, caller) {
        // WLCG profile 1.3 lets `storage.create` rename files, for uploads under a temporary name. It does not let it
        // remove what others made, and out of its place is as good as removed.
        let leave = match is_reserved(&Operation::Modify, from) {
            // Nothing is written under a name of the door, but what stands there may go away.
            true => Operation::Delete,
            false => Operation::Modify,
        };
        door.permit(caller, &leave, from)?;
    }
    door.permit_move_of_parts(caller, from, &to)?;
    conditions::evaluate(&request.method, &request.headers, Some(&entry))?;
    let shown = door.check_if(call)?;
    let existing = door.storage.namespace.lookup(&to)?;
    if existing.is_some() && overwrite {
        door.permit(caller, &Operation::Modify, &to)?;
        door.permit_removal_of_parts(caller, &to)?;
    }
    let _intents = [
        door.storage.claims.intend(from),
        door.storage.claims.intend(&to),
    ];
    refuse_while_written(door, from)?;
    refuse_while_written(door, &to)?;
    door.check_locks(call, &shown, || {
        touched_by_move(door, from, &to, existing.is_some())
    })?;
    // Something may appear at the destination meanwhile; only who may modify may replace it then.
    let may_replace = overwrite && door.allows(caller, &Operation::Modify, &to);
    let change = Change::Rename {
        from: from.clone(),
        only: conditions::pinned(&request.headers, Some(entry.id)),
        to: to.clone(),
        replace: match may_replace {
            true => Replace::Allowed,
            false => Replace::Refused,
        },
        entries_max: door.storage.settings().limits.remove_entries_max,
        by: caller.holder(),
        at: door.storage.clock.recorded(),
    };
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
    Ok(Answer::new(status).into())
}

/// A file that the caller has made.
fn is_own_file(entry: &Entry, caller: &Caller) -> bool {
    let holder = caller.holder();
    !entry.is_directory() && holder.is_some() && entry.owner == holder
}

/// RFC 4918 §9.6, §9.9: what goes away is touched with all that is below it, and so is what gives way to it.
fn touched_by_move(
    door: &Door,
    from: &NamespacePath,
    to: &NamespacePath,
    exists: bool,
) -> Result<Vec<Touched>, Problem> {
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

/// 409 unless the directory that shall hold the path exists.
pub(super) fn missing_parent(door: &Door, path: &NamespacePath) -> Result<(), Problem> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    let refusal = match door.storage.namespace.lookup(&parent)? {
        Some(entry) if entry.is_directory() => return Ok(()),
        Some(_) => Refusal::ParentIsFile(parent),
        None => Refusal::ParentMissing(parent),
    };
    Err(Problem::of_change(&refusal.into(), StatusCode::CONFLICT))
}

/// The local path in a `Destination` header (RFC 4918 §10.3): a URL of this site, or a path.
pub(super) fn destination(door: &Door, headers: &HeaderMap) -> Result<NamespacePath, Problem> {
    let value = headers
        .get("destination")
        .ok_or_else(|| Problem::bad_request("a 'Destination' header is missing"))?;
    let text = value.to_str().map_err(|_| invalid("is not ASCII"))?.trim();
    local_path(door, headers, text)?.ok_or_else(|| {
        // RFC 4918 §9.9.4: another server would have to take it.
        Problem::new(
            StatusCode::BAD_GATEWAY,
            format!(
                "{} is another server; use COPY to reach it",
                penstock_model::url::redact(text)
            ),
        )
    })
}

fn invalid(why: &str) -> Problem {
    Problem::bad_request(format!("the 'Destination' header {why}"))
}

/// The path of a URL of this site, or of a bare path; `None` for the URL of another one.
pub(super) fn local_path(
    door: &Door,
    headers: &HeaderMap,
    text: &str,
) -> Result<Option<NamespacePath>, Problem> {
    let settings = door.storage.settings();
    let audiences = settings.access.audiences.iter().map(String::as_str);
    path_here(text, headers, audiences)
}

/// This site is whom the request was sent to, by its `Host` header, or one of the URLs that tokens name it by.
fn path_here<'a>(
    text: &str,
    headers: &HeaderMap,
    mut names: impl Iterator<Item = &'a str>,
) -> Result<Option<NamespacePath>, Problem> {
    let encoded = match text.split_once("://") {
        None => text,
        Some((_, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = headers.get(HOST).and_then(|host| host.to_str().ok());
            let is_ours = host.is_some_and(|host| same_authority(authority, host))
                || names.any(|name| {
                    let own = name.split_once("://").map(|(_, rest)| rest);
                    own.is_some_and(|own| same_authority(authority, own.trim_end_matches('/')))
                });
            if !is_ours {
                return Ok(None);
            }
            path
        }
    };
    let path = encoded.split(['?', '#']).next().unwrap_or_default();
    let path = NamespacePath::from_encoded(path)
        .map_err(|why| invalid(&format!("is not usable: {why}")))?;
    Ok(Some(path))
}

/// Host and port are the same; a default port may be left out.
fn same_authority(one: &str, other: &str) -> bool {
    let plain = |authority: &str| {
        let lower = authority.trim().to_ascii_lowercase();
        let stripped = lower
            .strip_suffix(":443")
            .or_else(|| lower.strip_suffix(":80"));
        stripped.map(str::to_owned).unwrap_or(lower)
    };
    plain(one) == plain(other)
}

/// RFC 4918 §10.6: true unless the client says `F`.
pub(super) fn overwrite(headers: &HeaderMap) -> Result<bool, Problem> {
    match headers
        .get("overwrite")
        .map(|value| value.as_bytes().trim_ascii())
    {
        None | Some(b"T" | b"t") => Ok(true),
        Some(b"F" | b"f") => Ok(false),
        Some(_) => Err(Problem::bad_request(
            "the 'Overwrite' header must be 'T' or 'F'",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn check(destination: &str, expected: Result<Option<&str>, u16>) {
        let host = HeaderValue::from_static("se.example.org:8443");
        let headers = HeaderMap::from_iter([(HOST, host)]);
        let names = [
            "https://alias.example.org:8443",
            "https://wlcg.cern.ch/jwt/v1/any",
        ];
        let got = path_here(destination, &headers, names.into_iter())
            .map(|path| path.map(|path| path.to_string()))
            .map_err(|problem| problem.status.as_u16());
        let got = got.as_ref().map(Option::as_deref).map_err(|status| *status);
        assert_eq!(got, expected, "{destination}");
    }

    #[test]
    fn a_destination_is_a_path_or_a_url_of_this_server() {
        check("https://se.example.org:8443/a/b%20c", Ok(Some("/a/b c")));
        check("davs://SE.example.org:8443/a?x=1", Ok(Some("/a")));
        check("/a/b/", Ok(Some("/a/b")));
        check("https://se.example.org:8444/a", Ok(None));
        check("https://other.example.org:8443/a", Ok(None));
        check("https://ALIAS.example.org:8443/a", Ok(Some("/a")));
        check("https://wlcg.cern.ch/a", Ok(None));
        check("a/b", Err(400));
        check("https://se.example.org:8443/a/../b", Err(400));
    }
}
