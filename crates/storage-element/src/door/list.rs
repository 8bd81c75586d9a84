//! PROPFIND, and a directory as a page for people. Directories are read and written page by page, so that
//! one of any size costs little memory.

use super::answer::{Problem, Reply, Response};
use super::caller::shown_owner;
use super::conditions::etag;
use super::document_body::read_body;
use super::handler_context::{Call, Door};
use super::html;
use super::locality::locality;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use penstock_decide::authorization::PathOperation;
use penstock_model::{Bytes, NamespacePath, ProblemCode, Timestamp};
use penstock_persistence::namespace::{DeadProperty, Entry, EntryId, Namespace, NamespaceError};
use penstock_protocol::http1::server::Connection;
use penstock_protocol::webdav::{
    self, Depth, KeptProperty, PROPFIND_BYTES_MAX, Properties, PropertyName, Propfind, Quota,
};
use std::io;
use std::sync::Arc;

/// Entries read and written at once.
pub(super) const PAGE_ENTRIES: usize = 1000;
/// Bytes of a listing that are collected before they are sent.
const CHUNK_BYTES: usize = 1 << 20;
/// A listing has links and nothing that acts.
const LISTING_POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Entries shown to people.
const HTML_ENTRIES_MAX: usize = 10_000;

pub(super) async fn propfind(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    door.permit(caller, &PathOperation::Stat, path)?;
    let depth =
        Depth::parse(&request.headers).map_err(|why| Problem::bad_request(why.to_string()))?;
    let body = read_body(connection, "PROPFIND", PROPFIND_BYTES_MAX).await?;
    let asked = Propfind::parse(&body).map_err(|why| Problem::bad_request(why.to_string()))?;
    let entry = door.entry(path)?;
    // RFC 4918 §10.2: without the header the client means everything below, which is refused. A file has nothing below.
    match depth {
        Some(Depth::Zero | Depth::One) => {}
        Some(Depth::Infinity) | None if entry.is_directory() => return Err(infinite()),
        Some(Depth::Infinity) | None => {}
    }
    let mut out = Vec::with_capacity(1024);
    webdav::begin_multistatus(&mut out);
    let listing = Listing::new(door, asked);
    listing.write(&mut out, path, &entry);
    let mut headers = HeaderMap::new();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/xml; charset=\"utf-8\""),
    );
    if depth == Some(Depth::One) && entry.is_directory() {
        door.permit(caller, &PathOperation::List, path)?;
        let begun = StartedListing {
            path,
            directory: entry.id,
            out,
            page: next_page(door, entry.id, None).await?,
        };
        return Ok(Reply::Sent(
            stream(door, connection, headers, &listing, begun).await,
        ));
    }
    webdav::end_multistatus(&mut out);
    Ok(Reply::Response(Response {
        status: StatusCode::MULTI_STATUS,
        headers,
        body: out,
    }))
}

/// A listing of which the directory itself is written and the first page is read.
struct StartedListing<'a> {
    path: &'a NamespacePath,
    directory: EntryId,
    out: Vec<u8>,
    page: Vec<Entry>,
}

/// Sends the entries of a directory: in one piece when there are few, else page by page.
async fn stream(
    door: &Door,
    connection: &mut Connection,
    headers: HeaderMap,
    listing: &Listing<'_>,
    begun: StartedListing<'_>,
) -> io::Result<()> {
    let StartedListing {
        path,
        directory,
        mut out,
        mut page,
    } = begun;
    let mut started = false;
    loop {
        for entry in &page {
            // Names in the namespace are valid, so the path is.
            if let Ok(child) = path.child(&entry.name) {
                listing.write(&mut out, &child, entry);
            }
            // Clients may keep so much with each entry that a page of them is large.
            if out.len() >= CHUNK_BYTES {
                send_piece(connection, &headers, &mut started, &mut out).await?;
            }
        }
        if page.len() < PAGE_ENTRIES {
            break;
        }
        send_piece(connection, &headers, &mut started, &mut out).await?;
        let last = page.last().map(|entry| entry.name.clone());
        page = match next_page(door, directory, last).await {
            Ok(page) => page,
            // The answer has begun; only breaking it off tells the client that it is not whole.
            Err(problem) => return Err(io::Error::other(problem.cause.message)),
        };
    }
    webdav::end_multistatus(&mut out);
    if started {
        connection.write_chunk(&out).await?;
        connection.end_chunks().await
    } else {
        connection
            .respond(StatusCode::MULTI_STATUS, headers, &out)
            .await
    }
}

/// Sends what has been collected; with the first piece the answer begins.
async fn send_piece(
    connection: &mut Connection,
    headers: &HeaderMap,
    started: &mut bool,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    if !std::mem::replace(started, true) {
        connection
            .start_chunked(StatusCode::MULTI_STATUS, headers.clone())
            .await?;
    }
    connection.write_chunk(out).await?;
    out.clear();
    Ok(())
}

/// What a PROPFIND asks for, and what that needs to be looked up.
struct Listing<'a> {
    door: &'a Door,
    namespace: &'a Namespace,
    asked: Propfind,
    checksums: bool,
    tells_locality: bool,
    locks: bool,
    quota: Option<Quota>,
    now: Timestamp,
}

impl<'a> Listing<'a> {
    fn new(door: &'a Door, asked: Propfind) -> Listing<'a> {
        let names: &[PropertyName] = match &asked {
            Propfind::Named(names) | Propfind::AllAnd(names) => names,
            Propfind::AllProperties | Propfind::Names => &[],
        };
        let checksums = names.iter().any(|name| name.namespace == webdav::DCACHE);
        let tells_locality = names.iter().any(|name| name.namespace == webdav::SRM);
        let quota = names.iter().any(|name| name.local.starts_with("quota"));
        let locks = names
            .iter()
            .any(|name| name.is(webdav::DAV, "lockdiscovery"));
        Listing {
            door,
            locks,
            now: door.storage.clock.recorded(),
            namespace: &door.storage.namespace,
            checksums,
            tells_locality,
            quota: quota.then(|| door.quota()),
            asked,
        }
    }

    fn write(&self, out: &mut Vec<u8>, path: &NamespacePath, entry: &Entry) {
        let is_directory = entry.is_directory();
        let checksums = match self.checksums && !is_directory {
            // A property that cannot be read is left out, as if it were not known.
            true => self.namespace.checksums(entry.id).unwrap_or_default(),
            false => Vec::new(),
        };
        let properties = Properties {
            path: path.clone(),
            is_directory,
            size: entry.size().unwrap_or_default(),
            modified: entry.modified,
            created: Some(entry.created),
            etag: (!is_directory)
                .then(|| etag(entry.id))
                .and_then(|tag| tag.to_str().map(str::to_owned).ok()),
            content_type: (!is_directory).then(|| "application/octet-stream".to_owned()),
            owner: entry
                .owner
                .as_ref()
                .map(|owner| shown_owner(owner).to_owned()),
            group: None,
            checksums,
            locality: self
                .tells_locality
                .then(|| locality(self.door, &entry.kind))
                .filter(|_| !is_directory && self.door.storage.nearline().is_some()),
            quota: self.quota.filter(|_| is_directory).map(|quota| Quota {
                // RFC 4331 §4 would allow it elsewhere, but clients show it as the directory's own size.
                used: quota.used.filter(|_| path.is_root()),
                ..quota
            }),
            locks: match self.locks {
                true => self.door.locks_of(path),
                false => Vec::new(),
            },
            now: self.now,
            dead: self.kept(entry),
        };
        webdav::write_entry(out, &self.asked, &properties);
    }
}

impl Listing<'_> {
    /// What clients keep with an entry. One that cannot be read is left out, as if it were not known.
    fn kept(&self, entry: &Entry) -> Vec<KeptProperty> {
        if !entry.has_properties {
            return Vec::new();
        }
        let kept = self.namespace.properties(entry.id).unwrap_or_default();
        let property = |kept: DeadProperty| KeptProperty {
            name: PropertyName {
                namespace: kept.namespace,
                local: kept.name,
            },
            element: kept.element,
        };
        kept.into_iter().map(property).collect()
    }
}

impl Door {
    /// Bytes used and free, over all pools.
    fn quota(&self) -> Quota {
        let pools = self.storage.pools();
        Quota {
            used: Some(Bytes(pools.map(|pool| pool.used_by_files().0).sum())),
            available: self.storage.free(),
        }
    }
}

pub(super) async fn next_page(
    door: &Door,
    directory: EntryId,
    after: Option<String>,
) -> Result<Vec<Entry>, Problem> {
    let namespace = Arc::clone(&door.storage.namespace);
    let page: Result<_, NamespaceError> = tokio::task::spawn_blocking(move || {
        namespace.list(directory, after.as_deref(), PAGE_ENTRIES)
    })
    .await
    .map_err(unread)?;
    Ok(page?)
}

/// The thread that read it has ended.
pub(super) fn unread(why: tokio::task::JoinError) -> Problem {
    tracing::error!(%why, "a directory could not be read");
    Problem::new(
        ProblemCode::NamespaceFailed,
        "the directory cannot be read; contact the site",
    )
}

/// RFC 4918 §9.1.1.
fn infinite() -> Problem {
    Problem::new(
        ProblemCode::ListingUnbounded,
        "PROPFIND needs 'Depth: 0' or 'Depth: 1'; whole trees are not listed (propfind-finite-depth)",
    )
}

/// A directory for people.
pub(super) async fn page(
    door: &Door,
    path: &NamespacePath,
    directory: &Entry,
) -> Result<Reply, Problem> {
    let title = html::text(&path.to_string());
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title></head>\n\
         <body><h1>{title}</h1>\n<table>\n"
    );
    if let Some(parent) = path.parent() {
        let href = parent.to_encoded();
        page.push_str(&format!("<tr><td><a href=\"{href}\">..</a></td></tr>\n"));
    }
    let mut shown = 0;
    let mut after = None;
    loop {
        let entries = next_page(door, directory.id, after).await?;
        for entry in &entries {
            page.push_str(&row(path, entry));
        }
        shown += entries.len();
        if entries.len() < PAGE_ENTRIES {
            break;
        }
        if shown >= HTML_ENTRIES_MAX {
            page.push_str("<tr><td>… and more; list it with a WebDAV client</td></tr>\n");
            break;
        }
        after = entries.last().map(|entry| entry.name.clone());
    }
    page.push_str("</table></body></html>\n");
    Ok(html::html(StatusCode::OK, LISTING_POLICY, page).into())
}

fn row(path: &NamespacePath, entry: &Entry) -> String {
    let Ok(child) = path.child(&entry.name) else {
        return String::new();
    };
    let slash = if entry.is_directory() { "/" } else { "" };
    let size = entry
        .size()
        .map(|size| size.to_string())
        .unwrap_or_default();
    format!(
        "<tr><td><a href=\"{}{slash}\">{}{slash}</a></td><td>{size}</td><td>{}</td></tr>\n",
        child.to_encoded(),
        html::text(&entry.name),
        webdav::format_http_date(entry.modified),
    )
}
