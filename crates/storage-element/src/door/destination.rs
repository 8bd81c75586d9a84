//! Where COPY and MOVE go: the `Destination` and `Overwrite` headers, and which URLs are of this site.

use super::answer::Problem;
use super::handler_context::Door;
use http::header::HOST;
use http::{HeaderMap, StatusCode};
use penstock_model::{NamespacePath, ProblemCode};
use penstock_persistence::namespace::ChangeRefusal;

/// The local path in a `Destination` header (RFC 4918 §10.3): a URL of this site, or a path.
pub(super) fn destination(door: &Door, headers: &HeaderMap) -> Result<NamespacePath, Problem> {
    let value = headers
        .get("destination")
        .ok_or_else(|| Problem::bad_request("a 'Destination' header is missing"))?;
    let text = value.to_str().map_err(|_| invalid("is not ASCII"))?.trim();
    local_path(door, headers, text)?.ok_or_else(|| {
        // RFC 4918 §9.9.4: another server would have to take it.
        Problem::new(
            ProblemCode::OtherServer,
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

/// 409 unless the directory that shall hold the path exists.
pub(super) fn missing_parent(door: &Door, path: &NamespacePath) -> Result<(), Problem> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    let refusal = match door.storage.namespace.lookup(&parent)? {
        Some(entry) if entry.is_directory() => return Ok(()),
        Some(_) => ChangeRefusal::ParentIsFile(parent),
        None => ChangeRefusal::ParentMissing(parent),
    };
    Err(Problem::of_change(&refusal.into(), StatusCode::CONFLICT))
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
