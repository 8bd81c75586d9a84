//! MKCOL, DELETE and MOVE: changes to the tree that move no data.

use super::answer::{Answer, Problem, Reply};
use super::conditions;
use super::{Call, Door};
use crate::clock::now;
use http::header::HOST;
use http::{HeaderMap, StatusCode};
use penstock_decide::authorization::Operation;
use penstock_model::NamespacePath;
use penstock_persistence::namespace::{Change, Replace};
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
    let change = Change::MakeDirectory {
        path: path.clone(),
        owner: caller.user(),
        at: now(),
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
    conditions::evaluate(&request.method, &request.headers, Some(entry.id))?;
    let change = Change::Remove {
        path: path.clone(),
        only: conditions::pinned(&request.headers, Some(entry.id)),
        entries_max: door.storage.settings().limits.remove_entries_max,
        at: now(),
    };
    let removed = door.storage.change(change).await;
    removed.map_err(|error| Problem::of_change(&error, StatusCode::CONFLICT))?;
    Ok(Answer::new(StatusCode::NO_CONTENT).into())
}

pub(super) async fn rename(door: &Door, call: &Call<'_>) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path: from,
    } = *call;
    let to = destination(&request.headers)?;
    let overwrite = overwrite(&request.headers)?;
    let operation = Operation::Rename { to: to.clone() };
    door.permit(caller, &operation, from)?;
    let entry = door.entry(from)?;
    conditions::evaluate(&request.method, &request.headers, Some(entry.id))?;
    let existing = door.storage.namespace.lookup(&to)?;
    if existing.is_some() && overwrite {
        door.permit(caller, &Operation::Modify, &to)?;
    }
    // Something may appear at the destination meanwhile; only who may modify may replace it then.
    let may_replace = overwrite && door.allows(caller, &Operation::Modify, &to);
    let change = Change::Rename {
        from: from.clone(),
        only: conditions::pinned(&request.headers, Some(entry.id)),
        to,
        replace: match may_replace {
            true => Replace::Allowed,
            false => Replace::Refused,
        },
        entries_max: door.storage.settings().limits.remove_entries_max,
        at: now(),
    };
    let moved = door.storage.change(change).await;
    // RFC 4918 §9.9.4.
    let moved =
        moved.map_err(|error| Problem::of_change(&error, StatusCode::PRECONDITION_FAILED))?;
    let status = match moved.replaced {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::CREATED,
    };
    Ok(Answer::new(status).into())
}

/// The local path in a `Destination` header (RFC 4918 §10.3): a URL of this host, or a path.
fn destination(headers: &HeaderMap) -> Result<NamespacePath, Problem> {
    let value = headers
        .get("destination")
        .ok_or_else(|| Problem::bad_request("MOVE needs a 'Destination' header"))?;
    let invalid = |why: &str| Problem::bad_request(format!("the 'Destination' header {why}"));
    let text = value.to_str().map_err(|_| invalid("is not ASCII"))?.trim();
    let encoded = match text.split_once("://") {
        None => text,
        Some((_, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = headers
                .get(HOST)
                .and_then(|host| host.to_str().ok())
                .unwrap_or_default();
            if !same_authority(authority, host) {
                // RFC 4918 §9.9.4: another server would have to take it.
                return Err(Problem::new(
                    StatusCode::BAD_GATEWAY,
                    format!("MOVE stays on this server ({host}); use COPY to reach {authority}"),
                ));
            }
            path
        }
    };
    let path = encoded.split(['?', '#']).next().unwrap_or_default();
    NamespacePath::from_encoded(path).map_err(|why| invalid(&format!("is not usable: {why}")))
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
fn overwrite(headers: &HeaderMap) -> Result<bool, Problem> {
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

    fn check(destination_header: &str, expected: Result<&str, u16>) {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("se.example.org:8443"));
        let value = HeaderValue::from_str(destination_header).expect("visible");
        headers.insert("destination", value);
        let got = destination(&headers)
            .map(|path| path.to_string())
            .map_err(|problem| problem.status.as_u16());
        assert_eq!(
            got.as_deref().map_err(|status| *status),
            expected,
            "{destination_header}"
        );
    }

    #[test]
    fn a_destination_is_a_path_or_a_url_of_this_server() {
        check("https://se.example.org:8443/a/b%20c", Ok("/a/b c"));
        check("davs://SE.example.org:8443/a?x=1", Ok("/a"));
        check("/a/b/", Ok("/a/b"));
        check("https://se.example.org:8444/a", Err(502));
        check("https://other.example.org:8443/a", Err(502));
        check("a/b", Err(400));
        check("https://se.example.org:8443/a/../b", Err(400));
    }
}
