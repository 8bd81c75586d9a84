//! Pages for people with a browser: directories, the details of a file, and why there is neither.
//!
//! The server renders them, so that looking and downloading work without a script. Whoever does not ask for HTML
//! in so many words never sees them. A link that carries an authorisation hands it on to the links of its page.

mod markup;

use super::answer::{Problem, Reply, Response};
use super::handler_context::{Call, Door};
use super::html::{authorisation, html};
use super::{list, read};
use http::header::{ACCEPT, HOST};
use http::{Method, StatusCode};
use markup::{Details, Directory, Frame, RefusedPage};
use penstock_decide::authorization::PathOperation;
use penstock_model::NamespacePath;
use penstock_persistence::namespace::{Entry, EntryId};
use penstock_protocol::http1::server::{Connection, Request};

/// The page may use its own script and style and ask its own door, nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Whether a browser asks: it names HTML in `Accept`. Programs send `*/*` or nothing.
pub(super) fn wants_page(request: &Request) -> bool {
    let values = request.headers.get_all(ACCEPT).iter();
    let mut ranges = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','));
    request.method == Method::GET
        && ranges.any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_html = parts
                .next()
                .is_some_and(|media| media.eq_ignore_ascii_case("text/html"));
            is_html && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
        })
}

/// GET of a browser: the page of a directory, or of a file's details; else as for everybody.
pub(super) async fn get(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    let entry = door.storage.namespace.lookup(call.path)?;
    match entry {
        Some(entry) if entry.is_directory() => {
            directory(door, call, connection.is_tls(), &entry).await
        }
        Some(entry) if parameter(call.request, "details").is_some() => {
            details(door, call, connection.is_tls(), entry).await
        }
        Some(_) | None => read::read(door, connection, call).await,
    }
}

/// Where a page of a directory begins or ends.
enum Position {
    After(Option<String>),
    Before(String),
}

async fn directory(
    door: &Door,
    call: &Call<'_>,
    is_tls: bool,
    entry: &Entry,
) -> Result<Reply, Problem> {
    door.permit(call.caller, &PathOperation::List, call.path)?;
    let position = match parameter(call.request, "before") {
        Some(before) => Position::Before(before),
        None => Position::After(parameter(call.request, "after").filter(|name| !name.is_empty())),
    };
    let (entries, earlier, later) = match position {
        Position::After(after) => {
            let earlier = after.is_some();
            let entries = list::next_page(door, entry.id, after).await?;
            let later = entries.len() == list::PAGE_ENTRIES;
            (entries, earlier, later)
        }
        Position::Before(before) => {
            let entries = page_before(door, entry.id, before).await?;
            let earlier = entries.len() == list::PAGE_ENTRIES;
            (entries, earlier, true)
        }
    };
    let frame = frame(door, call, is_tls);
    let body = markup::directory(&Directory {
        frame,
        entries: &entries,
        earlier,
        later,
    });
    Ok(page(StatusCode::OK, call.request, body).into())
}

async fn page_before(door: &Door, id: EntryId, before: String) -> Result<Vec<Entry>, Problem> {
    let namespace = std::sync::Arc::clone(&door.storage.namespace);
    let read = move || namespace.list_before(id, &before, list::PAGE_ENTRIES);
    Ok(tokio::task::spawn_blocking(read)
        .await
        .map_err(list::unread)??)
}

async fn details(
    door: &Door,
    call: &Call<'_>,
    is_tls: bool,
    entry: Entry,
) -> Result<Reply, Problem> {
    door.permit(call.caller, &PathOperation::Stat, call.path)?;
    let checksums = door.storage.namespace.checksums(entry.id)?;
    let frame = frame(door, call, is_tls);
    let readable = door.allows(call.caller, &PathOperation::Read, call.path);
    let body = markup::details(&Details {
        frame,
        entry: &entry,
        checksums: &checksums,
        readable,
    });
    Ok(page(StatusCode::OK, call.request, body).into())
}

/// A problem as a page, with a way to sign in where that may help.
pub(super) fn problem(request: &Request, problem: Problem) -> Response {
    let path = NamespacePath::from_encoded(request.path()).ok();
    let body = markup::refusal(&RefusedPage {
        host: host(request),
        path: path.as_ref(),
        authorisation: authorisation(request),
        status: problem.status,
        text: problem.text(),
    });
    let mut answer = page(problem.status, request, body);
    answer.headers.extend(
        problem
            .told_headers()
            .into_iter()
            .map(|(name, value)| (Some(name), value)),
    );
    answer.headers.extend(
        problem
            .headers
            .into_iter()
            .map(|(name, value)| (Some(name), value)),
    );
    answer
}

/// What all pages of a path show.
fn frame<'a>(door: &'a Door, call: &Call<'a>, is_tls: bool) -> Frame<'a> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    // What may be done with any name below is asked of one that stands for all.
    let below = path.child("name").unwrap_or_else(|_| path.clone());
    let other = path.child("other").unwrap_or_else(|_| path.clone());
    let renaming = PathOperation::Rename { to: other };
    let macaroons = is_tls && door.storage.settings().macaroons.is_some();
    let shareable = macaroons && caller.identity().is_some() && caller.macaroon().is_none();
    let may = |operation: &PathOperation| door.allows(caller, operation, &below);
    let words = [
        ("create", may(&PathOperation::Create)),
        ("replace", may(&PathOperation::Modify)),
        ("mkdir", may(&PathOperation::MakeDirectory)),
        ("delete", may(&PathOperation::Delete)),
        // Without it only own files can be renamed, which the page of a directory does not tell apart.
        ("rename", may(&renaming) && may(&PathOperation::Modify)),
        ("share", shareable),
    ];
    Frame {
        host: host(request),
        path,
        user: caller.user(),
        can: words
            .iter()
            .filter_map(|(word, may)| may.then_some(*word))
            .collect(),
        authorisation: authorisation(request),
    }
}

/// The door as its reader calls it; shown only.
fn host(request: &Request) -> &str {
    let value = request.headers.get(HOST);
    value.and_then(|host| host.to_str().ok()).unwrap_or("")
}

fn page(status: StatusCode, request: &Request, body: String) -> Response {
    debug_assert!(!body.is_empty(), "{}", request.method);
    html(status, POLICY, body)
}

/// The value of a parameter of the query, decoded; `None` when it is not there, or no text.
fn parameter(request: &Request, name: &str) -> Option<String> {
    let pairs = request.query()?.split('&');
    let value = pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .find_map(|(key, value)| (key == name).then_some(value))?;
    // A form writes blanks so.
    let value = value.replace('+', " ");
    let decoded = percent_encoding::percent_decode_str(&value).decode_utf8();
    decoded.ok().map(|text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue};
    use penstock_protocol::http1::server::BodyLength;

    fn request(target: &str, accept: &str) -> Request {
        let value = HeaderValue::from_str(accept).expect("visible");
        Request {
            method: Method::GET,
            target: target.to_owned(),
            headers: HeaderMap::from_iter([(ACCEPT, value)]),
            body: BodyLength::Empty,
        }
    }

    fn check(accept: &str, expected: bool) {
        assert_eq!(wants_page(&request("/", accept)), expected, "{accept}");
    }

    #[test]
    fn pages_are_for_those_who_name_html() {
        check(
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            true,
        );
        check("*/*", false);
        check("", false);
        check("application/json, Text/HTML;q=0.1", true);
        check("text/html;q=0, */*", false);
        check("text/*", false);
    }

    #[test]
    fn only_a_harmless_authorisation_goes_into_links() {
        let given = |target: &str| authorisation(&request(target, "")).map(str::to_owned);
        assert_eq!(given("/d?after=x&authz=abc-_%3D"), Some("abc-_%3D".into()));
        assert_eq!(given("/d?authz=a\"onclick"), None);
        assert_eq!(given("/d?authz="), None);
        assert_eq!(given("/d"), None);
        assert_eq!(
            parameter(&request("/d?after=a%20b+c", ""), "after"),
            Some("a b c".into())
        );
    }
}
