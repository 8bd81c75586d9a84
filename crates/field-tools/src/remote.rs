//! Storage elements seen through HTTP and WebDAV: look, list, make, delete, read, write.
//!
//! One request per method, more only where the protocol demands it. What a whole copy needs is in
//! `bulk_copy`; uploads in several requests are below.

mod pieces;

pub use pieces::{Rest, UploadState};

use crate::checksum_choice::ChecksumChoice;
use crate::credentials::Credentials;
use crate::remote_error::RemoteError;
use http::header::{
    AUTHORIZATION, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use penstock_model::url::redact;
use penstock_model::{Bytes, Checksum, NamespacePath, Timestamp};
use penstock_protocol::deletion::{EMPTY_DIRECTORY, PENSTOCK_DELETE};
use penstock_protocol::digest;
use penstock_protocol::http1::client::{
    Client, ClientRequest, ClientResponse, Upload, UploadStart,
};
use penstock_protocol::webdav::{self, PropfindEntry};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Bytes of one directory listing: about 200,000 entries.
const LISTING_BYTES_MAX: u64 = 128 << 20;
/// Bytes of an answer that is read only for its text.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// RFC 3230 §4.3.1.
const WANT_DIGEST: HeaderName = HeaderName::from_static("want-digest");
/// Asks for room (RFC 4331).
const QUOTA_BODY: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <D:propfind xmlns:D=\"DAV:\"><D:prop><D:quota-used-bytes/><D:quota-available-bytes/></D:prop></D:propfind>";

/// Storage elements, and what they are shown. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
    client: Client,
    credentials: Arc<dyn Credentials>,
}

/// What a file's headers say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub size: Option<Bytes>,
    /// Its checksums, of those asked for.
    pub checksums: Vec<Checksum>,
    /// Its version, when that is a strong one.
    pub etag: Option<String>,
    /// Last change.
    pub modified: Option<Timestamp>,
}

/// What a server told of a file that it has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub checksums: Vec<Checksum>,
    /// Its version, when that is a strong one.
    pub etag: Option<String>,
}

/// An entry of the namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Info {
    pub url: String,
    /// Its last name; `/` for the root.
    pub name: String,
    /// Directory or file.
    pub is_directory: bool,
    /// Size of a file.
    pub size_bytes: Option<Bytes>,
    /// Last change.
    pub modified: Option<Timestamp>,
    /// The version of a file, when it is a strong one.
    #[serde(skip)]
    pub etag: Option<String>,
}

/// An entry of a listing that is neither known to be a file nor a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableEntry {
    /// As the server wrote it.
    pub href: String,
    pub why: String,
}

impl UnusableEntry {
    /// As an error of the directory in which it is listed.
    pub fn problem(&self, directory: &Url) -> RemoteError {
        let UnusableEntry { href, why } = self;
        RemoteError::nonsense(directory, format!("it lists '{href}', {why}"))
    }
}

/// What is in a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by name.
    pub entries: Vec<Info>,
    /// What the server lists and nothing can be said of.
    pub unusable: Vec<UnusableEntry>,
}

/// Which bytes of a file are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    Whole,
    /// Those from an offset on, as long as the file is the one with this version; else the whole of the new one.
    From {
        offset: u64,
        /// A strong one (RFC 9110 §8.8.1). Without it nothing tells that the file is still the same.
        etag: Option<&'a str>,
    },
}

/// What a new file may do to one that has its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupied {
    /// It is refused.
    Refused,
    Replaced,
}

/// Bytes of a storage element, as far as it tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Quota {
    pub used_bytes: Option<Bytes>,
    pub available_bytes: Option<Bytes>,
}

/// What became of a wish to make a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryOutcome {
    /// It was made.
    New,
    /// Something of that name was there: a directory or a file.
    Before,
}

/// What servers answer to a request for a macaroon.
#[derive(Deserialize)]
struct MacaroonAnswer {
    macaroon: String,
    expires_in: Option<u64>,
}

impl Remote {
    /// Speaks to any storage element that there are credentials for.
    pub fn new(client: Client, credentials: Arc<dyn Credentials>) -> Remote {
        Remote {
            client,
            credentials,
        }
    }

    /// A file's size and checksum, by HEAD (RFC 3230 for the checksum). `None`: there is no such file.
    pub async fn head(
        &self,
        url: &Url,
        wanted: impl Into<ChecksumChoice>,
    ) -> Result<Option<Head>, RemoteError> {
        let mut request = self.request(Method::HEAD, url)?;
        request.headers.insert(WANT_DIGEST, wanted.into().wanted());
        let answer = self.client.send_following(request).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let answer = self.expect_success(url, answer).await?;
        Ok(Some(Head {
            size: answer.content_length().map(Bytes),
            checksums: told_checksums(url, &answer.headers)?,
            etag: strong_etag(&answer.headers),
            modified: last_modified(&answer.headers),
        }))
    }

    /// The same, and where a server tells none of several checksums, it is asked for each alone: not every one reads lists.
    pub async fn head_with_checksum(
        &self,
        url: &Url,
        wanted: ChecksumChoice,
    ) -> Result<Option<Head>, RemoteError> {
        let found = self.head(url, wanted).await?;
        let Some(head) = found else {
            return Ok(None);
        };
        if wanted.best_of(&head.checksums).is_some() || wanted.algorithms().len() == 1 {
            return Ok(Some(head));
        }
        for algorithm in wanted.algorithms() {
            match self.head(url, *algorithm).await? {
                Some(alone) if wanted.best_of(&alone.checksums).is_none() => {}
                found => return Ok(found),
            }
        }
        Ok(Some(head))
    }

    /// The checksum that the storage element tells, the best of those wanted. An error when it tells none of them.
    pub async fn checksum(
        &self,
        url: &Url,
        wanted: impl Into<ChecksumChoice>,
    ) -> Result<Checksum, RemoteError> {
        let wanted = wanted.into();
        let head = self.head_with_checksum(url, wanted).await?;
        let head = head.ok_or_else(|| RemoteError::not_found(redact(url.as_str())))?;
        wanted
            .best_of(&head.checksums)
            .ok_or_else(|| no_checksum(url, wanted))
    }

    /// One entry, by PROPFIND of depth 0. Its name is the one that was asked for, never one that the server chooses.
    pub async fn stat(&self, url: &Url) -> Result<Info, RemoteError> {
        let found = self.propfind(url, "0", webdav::STAT_BODY).await?;
        entry_of(url, &found)
    }

    /// What is in a directory, by PROPFIND of depth 1. A file gives itself.
    ///
    /// Errors: the listing does not have the directory itself, so that nobody knows whether it is whole.
    pub async fn list(&self, url: &Url) -> Result<Listing, RemoteError> {
        let found = self.propfind(url, "1", webdav::STAT_BODY).await?;
        listing_of(url, &found)
    }

    /// How much room there is where a path is, as far as the server tells (RFC 4331).
    pub async fn quota(&self, url: &Url) -> Result<Quota, RemoteError> {
        let found = self.propfind(url, "0", QUOTA_BODY).await?;
        let told = found.first();
        Ok(Quota {
            used_bytes: told.and_then(|entry| entry.quota_used),
            available_bytes: told.and_then(|entry| entry.quota_available),
        })
    }

    /// Gives a file or directory another name at the same server, by MOVE (RFC 4918 §9.9).
    pub async fn rename(
        &self,
        from: &Url,
        to: &Url,
        occupied: Occupied,
    ) -> Result<(), RemoteError> {
        let mut request = self.request(method("MOVE"), from)?;
        // The server must not see what its own URLs may hold as credentials a second time.
        let mut destination = to.clone();
        destination.set_query(None);
        let value = HeaderValue::from_str(destination.as_str())
            .map_err(|_| RemoteError::nonsense(to, "it is not valid in a header"))?;
        request
            .headers
            .insert(HeaderName::from_static("destination"), value);
        let overwrite = match occupied {
            Occupied::Refused => "F",
            Occupied::Replaced => "T",
        };
        request.headers.insert(
            HeaderName::from_static("overwrite"),
            HeaderValue::from_static(overwrite),
        );
        let answer = self.client.send_following(request).await?;
        // RFC 4918 §9.9.4: a directory of which something could not be moved.
        if answer.status == StatusCode::MULTI_STATUS {
            let detail = "only a part of it was moved; check both places".to_owned();
            return Err(RemoteError::nonsense(from, detail));
        }
        self.expect_success(from, answer).await.map(drop)
    }

    /// Makes one directory; its parent must exist.
    pub async fn make_directory(&self, url: &Url) -> Result<DirectoryOutcome, RemoteError> {
        let answer = self
            .client
            .send_following(self.request(method("MKCOL"), url)?)
            .await?;
        // RFC 4918 §9.3.1: 405 means that the URL is mapped already, to whatever.
        if answer.status == StatusCode::METHOD_NOT_ALLOWED {
            return Ok(DirectoryOutcome::Before);
        }
        self.expect_success(url, answer)
            .await
            .map(|_| DirectoryOutcome::New)
    }

    /// Makes one directory where none is; its parent must exist. An error when a file stands there.
    pub async fn ensure_directory(&self, url: &Url) -> Result<(), RemoteError> {
        if self.make_directory(url).await? == DirectoryOutcome::New {
            return Ok(());
        }
        match self.stat(url).await {
            Ok(found) if found.is_directory => Ok(()),
            Ok(_) => Err(RemoteError::IsFile(redact(url.as_str()))),
            // A token for writing need not allow looking, and not every server knows directories or PROPFIND; then the
            // files tell.
            Err(RemoteError::NotAuthorised { .. } | RemoteError::NotFound { .. }) => Ok(()),
            Err(RemoteError::Refused {
                status: StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED,
                ..
            }) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// Makes a directory and what is missing above it.
    pub async fn make_directories(&self, url: &Url) -> Result<(), RemoteError> {
        let mut missing = vec![url.clone()];
        // On the way up each is asked for once, and once more on the way down, when what is above it exists.
        let mut is_descending = false;
        while let Some(next) = missing.last() {
            match self.ensure_directory(next).await {
                Ok(()) => {
                    missing.pop();
                    is_descending = true;
                }
                // RFC 4918 §9.3.1: 409 means that a parent is missing.
                Err(why) if why.status() == Some(StatusCode::CONFLICT) && !is_descending => {
                    match parent(next) {
                        Some(above) => missing.push(above),
                        None => return Err(why),
                    }
                }
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Deletes a file, or a directory with all that is in it.
    pub async fn delete(&self, url: &Url) -> Result<(), RemoteError> {
        self.delete_version(url, None).await
    }

    /// The same, as long as it is one version (RFC 9110 §13.1.1). `None`: the server tells none that could be demanded.
    pub async fn delete_version(&self, url: &Url, etag: Option<&str>) -> Result<(), RemoteError> {
        let mut request = self.request(Method::DELETE, url)?;
        if let Some(etag) = etag {
            let value = HeaderValue::from_str(etag)
                .map_err(|_| RemoteError::nonsense(url, "its ETag is not valid in a header"))?;
            request.headers.insert(IF_MATCH, value);
        }
        let answer = self.client.send_following(request).await?;
        self.expect_success(url, answer).await.map(drop)
    }

    /// Whether the server says that it removes a directory only if it is empty, when it is asked to.
    pub async fn removes_only_empty(&self, url: &Url) -> Result<bool, RemoteError> {
        let request = self.request(Method::OPTIONS, url)?;
        let answer = self.client.send(request).await?;
        let told = answer.headers.get(PENSTOCK_DELETE);
        Ok(answer.status.is_success() && told == Some(&EMPTY_DIRECTORY))
    }

    /// Deletes a directory when it is empty; gives back whether it was. Only for servers of which `removes_only_empty` is
    /// true: any other would delete all that is in it.
    pub async fn delete_empty_directory(&self, url: &Url) -> Result<bool, RemoteError> {
        let mut request = self.request(Method::DELETE, url)?;
        request.headers.insert(PENSTOCK_DELETE, EMPTY_DIRECTORY);
        // Where a redirect leads nobody has asked what the header means.
        let answer = self.client.send(request).await?;
        if answer.status == StatusCode::PRECONDITION_FAILED {
            return Ok(false);
        }
        self.expect_success(url, answer).await.map(|_| true)
    }

    /// Opens a file for reading; its checksum is asked for.
    pub async fn get(
        &self,
        url: &Url,
        checksums: impl Into<ChecksumChoice>,
        wanted: Wanted<'_>,
    ) -> Result<ClientResponse, RemoteError> {
        let mut request = self.request(Method::GET, url)?;
        let checksums = checksums.into();
        request.headers.insert(WANT_DIGEST, checksums.wanted());
        if let Wanted::From { offset, etag } = wanted {
            let range = HeaderValue::from_str(&format!("bytes={offset}-"));
            request
                .headers
                .insert(RANGE, range.expect("digits are visible ASCII"));
            if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
                request.headers.insert(IF_RANGE, etag);
            }
        }
        let answer = self.client.send_following(request).await?;
        self.expect_success(url, answer).await
    }

    /// Opens a file of known size for writing; its checksum is asked for. The server is asked before any byte is sent.
    pub async fn put(
        &self,
        url: &Url,
        size: Bytes,
        checksums: ChecksumChoice,
        occupied: Occupied,
    ) -> Result<Upload, RemoteError> {
        let mut request = self.request(Method::PUT, url)?;
        request.headers.insert(WANT_DIGEST, checksums.wanted());
        if occupied == Occupied::Refused {
            let any = HeaderValue::from_static("*");
            request.headers.insert(IF_NONE_MATCH, any);
        }
        self.start(url, request, size.0).await
    }

    async fn start(
        &self,
        url: &Url,
        request: ClientRequest,
        length: u64,
    ) -> Result<Upload, RemoteError> {
        match self
            .client
            .start_upload_following(request, Some(length))
            .await?
        {
            UploadStart::Ready(upload) => Ok(upload),
            UploadStart::Answered(answer) => {
                let answer = self.expect_success(url, answer).await?;
                let detail = format!("answered {} without taking the content", answer.status);
                Err(RemoteError::nonsense(url, detail))
            }
        }
    }

    /// Ends an upload: the file is there when this succeeds. Gives back what the answer tells of it.
    pub async fn finish(&self, url: &Url, upload: Upload) -> Result<Written, RemoteError> {
        let answer = self.expect_success(url, upload.finish().await?).await?;
        Ok(Written {
            checksums: told_checksums(url, &answer.headers)?,
            etag: strong_etag(&answer.headers),
        })
    }

    /// A macaroon for what stands at a URL and below it, for some activities, separated by commas. The server may cut
    /// its time; what is left of it comes back.
    pub async fn macaroon(
        &self,
        url: &Url,
        activities: &str,
        validity: Duration,
    ) -> Result<(String, Duration), RemoteError> {
        let mut request = self.request(Method::POST, url)?;
        let media_type = HeaderValue::from_static("application/macaroon-request");
        request.headers.insert(CONTENT_TYPE, media_type);
        let wanted = serde_json::json!({
            "caveats": [format!("activity:{activities}")],
            "validity": format!("PT{}S", validity.as_secs()),
        });
        let body = wanted.to_string();
        let answer = self.client.send_bytes(request, body.as_bytes()).await?;
        let mut answer = self.expect_success(url, answer).await?;
        let body = answer.read_all(ANSWER_BYTES_MAX).await?;
        let made: Option<MacaroonAnswer> = serde_json::from_slice(&body).ok();
        let made = made.ok_or_else(|| {
            RemoteError::nonsense(
                url,
                "the response contains no macaroon; does this server issue them?".to_owned(),
            )
        })?;
        // dCache does not tell how long it made it.
        let seconds = made.expires_in.map_or(validity, Duration::from_secs);
        Ok((made.macaroon, seconds))
    }

    async fn propfind(
        &self,
        url: &Url,
        depth: &'static str,
        question: &str,
    ) -> Result<Vec<PropfindEntry>, RemoteError> {
        let mut request = self.request(method("PROPFIND"), url)?;
        request.headers.insert(
            HeaderName::from_static("depth"),
            HeaderValue::from_static(depth),
        );
        request
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        let answer = self.client.send_bytes(request, question.as_bytes()).await?;
        let mut answer = self.expect_success(url, answer).await?;
        let body = answer.read_all(LISTING_BYTES_MAX).await?;
        webdav::parse_multistatus(&body).map_err(|why| RemoteError::nonsense(url, why.to_string()))
    }

    fn request(&self, method: Method, url: &Url) -> Result<ClientRequest, RemoteError> {
        let mut headers = HeaderMap::new();
        if let Some(token) = self.credentials.at(url)?.header(url)? {
            headers.insert(AUTHORIZATION, token);
        }
        Ok(ClientRequest {
            method,
            url: url.clone(),
            headers,
            identity: None,
        })
    }

    /// Passes a success on; reads what any other answer says.
    async fn expect_success(
        &self,
        url: &Url,
        mut answer: ClientResponse,
    ) -> Result<ClientResponse, RemoteError> {
        if answer.status.is_success() {
            return Ok(answer);
        }
        // The text is a courtesy: without it, the status speaks for itself.
        let body = answer.read_all(ANSWER_BYTES_MAX).await.unwrap_or_default();
        Err(RemoteError::of_status(
            url,
            answer.status,
            &self.credentials.at(url)?,
            &answer.headers,
            &body,
        ))
    }
}

fn method(name: &'static str) -> Method {
    Method::from_bytes(name.as_bytes()).expect("a token of letters")
}

fn told_checksums(url: &Url, headers: &HeaderMap) -> Result<Vec<Checksum>, RemoteError> {
    digest::parse(headers).map_err(|why| RemoteError::nonsense(url, why.to_string()))
}

/// What a listing tells of the path that was asked for.
fn entry_of(asked: &Url, listed: &[PropfindEntry]) -> Result<Info, RemoteError> {
    let path = path_of(asked)?;
    let mut own = listed
        .iter()
        .filter(|entry| entry.path.as_ref() == Some(&path));
    let info = match own.next() {
        Some(entry) => match failure_of(entry) {
            Some(why) => return Err(own_failure(asked, &why)),
            None => info_of(asked, entry),
        },
        None => None,
    };
    info.ok_or_else(|| {
        let detail = match listed.first() {
            Some(other) => format!(
                "the listing names '{}' and not what was asked for",
                other.href
            ),
            None => "the listing has no entry".to_owned(),
        };
        RemoteError::nonsense(asked, detail)
    })
}

fn listing_of(asked: &Url, listed: &[PropfindEntry]) -> Result<Listing, RemoteError> {
    let own = path_of(asked)?;
    let mut listing = Listing::default();
    let mut has_own = false;
    for entry in listed {
        let is_own = entry.path.as_ref() == Some(&own);
        let found = match (failure_of(entry), info_of(asked, entry)) {
            (Some(why), _) if is_own => return Err(own_failure(asked, &why)),
            (Some(why), _) => Err(format!("of which it says: {why}")),
            (None, None) => Err("which is not a valid path".to_owned()),
            (None, Some(info)) => Ok(info),
        };
        has_own |= is_own;
        match found {
            Ok(info) if is_own && info.is_directory => {}
            Ok(info) => listing.entries.push(info),
            Err(why) => {
                let href = entry.href.clone();
                listing.unusable.push(UnusableEntry { href, why });
            }
        }
    }
    if !has_own {
        let detail = "the listing does not have the directory itself, so it may not be complete";
        return Err(RemoteError::nonsense(asked, detail));
    }
    listing.entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listing)
}

/// Why nothing is known of an entry (RFC 4918 §9.1, §14.24).
fn failure_of(entry: &PropfindEntry) -> Option<String> {
    match entry.status {
        Some(status) if !(200..300).contains(&status) => Some(format!("status {status}")),
        _ if !entry.has_properties => Some("no properties".to_owned()),
        _ => None,
    }
}

fn own_failure(asked: &Url, why: &str) -> RemoteError {
    RemoteError::nonsense(asked, format!("its own entry in the listing has {why}"))
}

/// `None`: it has no path that could be asked for.
fn info_of(asked: &Url, entry: &PropfindEntry) -> Option<Info> {
    let path = entry.path.as_ref()?;
    Some(Info {
        url: at_path(asked, path).to_string(),
        name: path.name().unwrap_or("/").to_owned(),
        is_directory: entry.is_directory,
        size_bytes: entry.size.filter(|_| !entry.is_directory),
        modified: entry.modified,
        etag: entry.etag.clone().filter(|etag| is_strong(etag)),
    })
}

/// The version of a file, when it is a strong one: only that says that bytes are the same (RFC 9110 §8.8.1).
pub fn strong_etag(headers: &HeaderMap) -> Option<String> {
    let etag = headers.get(ETAG)?.to_str().ok()?.trim();
    is_strong(etag).then(|| etag.to_owned())
}

fn is_strong(etag: &str) -> bool {
    etag.len() >= 2 && etag.starts_with('"') && etag.ends_with('"')
}

fn last_modified(headers: &HeaderMap) -> Option<Timestamp> {
    webdav::parse_http_date(headers.get(LAST_MODIFIED)?.to_str().ok()?)
}

pub(crate) fn no_checksum(url: &Url, wanted: ChecksumChoice) -> RemoteError {
    let names = wanted.algorithms().iter().map(|algorithm| algorithm.name());
    let names = names.collect::<Vec<_>>().join(" or ");
    RemoteError::nonsense(
        url,
        format!("the storage element reports no {names} checksum"),
    )
}

/// The path that a URL names, decoded.
pub fn path_of(url: &Url) -> Result<NamespacePath, RemoteError> {
    NamespacePath::from_encoded(url.path()).map_err(|why| RemoteError::InvalidPath {
        what: redact(url.as_str()),
        why,
    })
}

/// The URL of an entry below a directory.
pub fn below(directory: &Url, names: &[String]) -> Result<Url, RemoteError> {
    let mut path = path_of(directory)?;
    for name in names {
        path = path.child(name).map_err(|why| RemoteError::InvalidPath {
            what: names.join("/"),
            why,
        })?;
    }
    Ok(at_path(directory, &path))
}

/// The directory above; `None` for the root.
pub fn parent(url: &Url) -> Option<Url> {
    let above = path_of(url).ok()?.parent()?;
    (!above.is_root()).then(|| at_path(url, &above))
}

fn at_path(url: &Url, path: &NamespacePath) -> Url {
    let mut url = url.clone();
    url.set_path(&path.to_encoded());
    url.set_query(None);
    url
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::{TestReply, TestServer};
    use std::time::Duration;

    #[tokio::test]
    async fn a_directory_below_a_file_is_an_error_and_no_endless_question() {
        let server =
            TestServer::start(
                |request| match (request.method.as_str(), request.path.as_str()) {
                    ("MKCOL", "/f") => TestReply::status(405),
                    ("MKCOL", _) => TestReply::status(409),
                    _ => TestReply::listing(["/f"]),
                },
            )
            .await;
        let remote = server.remote();
        let url = server.url("/f/sub/deep");
        let making = tokio::time::timeout(Duration::from_secs(20), remote.make_directories(&url));
        let why = making.await.expect("it ends").expect_err("refused");
        assert!(matches!(why, RemoteError::IsFile(_)), "{why}");
        assert_eq!(server.asked("MKCOL"), ["/f/sub/deep", "/f/sub", "/f"]);
        let why = remote.ensure_directory(&server.url("/f")).await;
        assert!(matches!(why, Err(RemoteError::IsFile(_))), "{why:?}");
    }

    #[tokio::test]
    async fn a_parent_is_made_once_whatever_the_server_says_then() {
        let server = TestServer::start(|request| match request.path.as_str() {
            "/a" => TestReply::status(201),
            _ => TestReply::status(409),
        })
        .await;
        let made = server.remote().make_directories(&server.url("/a/b")).await;
        assert_eq!(
            made.expect_err("refused").status(),
            Some(StatusCode::CONFLICT)
        );
        assert_eq!(server.asked("MKCOL"), ["/a/b", "/a", "/a/b"]);
    }

    #[tokio::test]
    async fn a_directory_is_removed_only_by_a_server_that_leaves_what_is_in_it() {
        let server = TestServer::start(|request| match request.method.as_str() {
            "OPTIONS" if request.path == "/ours/" => {
                TestReply::status(200).with("penstock-delete", "empty-directory")
            }
            "OPTIONS" => TestReply::status(200).with("allow", "DELETE"),
            _ => match request.header("penstock-delete") {
                "empty-directory" => TestReply::status(412),
                _ => TestReply::status(204),
            },
        })
        .await;
        let remote = server.remote();
        let knows = async |path| remote.removes_only_empty(&server.url(path)).await;
        assert!(knows("/ours/").await.expect("told") && !knows("/other/").await.expect("told"));
        let removed = remote.delete_empty_directory(&server.url("/ours/")).await;
        assert!(!removed.expect("told"), "it was not empty");
    }

    #[test]
    fn a_listing_is_whole_with_the_directory_itself_and_knows_what_it_lists() {
        let asked = Url::parse("https://se/d/").expect("a URL");
        let known = |href: &str, kind: &str| {
            format!(
                "<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype>{kind}</D:resourcetype></D:prop>\
                 <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
            )
        };
        let own = known("/d", "<D:collection/>");
        let listed = |responses: &str| {
            let text = format!("<D:multistatus xmlns:D=\"DAV:\">{responses}</D:multistatus>");
            let entries = webdav::parse_multistatus(text.as_bytes()).expect("readable");
            listing_of(&asked, &entries).map(|listing| {
                let names = listing.entries.into_iter().map(|info| info.name);
                (names.collect::<Vec<_>>(), listing.unusable.len())
            })
        };
        let whole = own.clone() + &known("/d/f", "");
        assert_eq!(listed(&whole).expect("whole"), (vec!["f".to_owned()], 0));
        assert_eq!(listed(&known("/d", "")).expect("a file").0, ["d"]);
        for nothing in ["", &known("/d/f", "")] {
            let why = listed(nothing).expect_err("who knows").to_string();
            assert!(why.contains("not have the directory itself"), "{why}");
        }
        let status = "<D:status>HTTP/1.1 500 Error</D:status>";
        let failed = format!("<D:response><D:href>/d/sub</D:href>{status}</D:response>");
        let denied = format!(
            "<D:response><D:href>/d/sub</D:href><D:propstat><D:prop><D:resourcetype/></D:prop>{status}</D:propstat>\
             </D:response>"
        );
        for unknown in [failed, denied] {
            assert_eq!(listed(&(own.clone() + &unknown)).expect("told").1, 1);
            let itself = unknown.replace("/d/sub", "/d");
            let why = listed(&itself).expect_err("no directory").to_string();
            assert!(why.contains("its own entry"), "{why}");
        }
    }

    #[test]
    fn a_server_does_not_choose_the_name_of_what_was_asked_for() {
        let asked = Url::parse("https://se/pub/read%20me/").expect("a URL");
        let listed = |hrefs: &[&str]| {
            let response = |href: &&str| {
                format!("<D:response><D:href>{href}</D:href><D:propstat/></D:response>")
            };
            let responses: String = hrefs.iter().map(response).collect();
            let text = format!("<D:multistatus xmlns:D=\"DAV:\">{responses}</D:multistatus>");
            let entries = webdav::parse_multistatus(text.as_bytes()).expect("readable");
            entry_of(&asked, &entries).map(|info| info.name)
        };
        for own in [
            &["/pub/read%20me"] as &[&str],
            &["https://se/pub/read%20me/"],
            &["/pub/read%20me/x", "/pub/read%20me"],
        ] {
            assert_eq!(listed(own).expect("it is there"), "read me");
        }
        for (other, told) in [
            (
                &["/pub/.bash_profile"] as &[&str],
                "names '/pub/.bash_profile' and not what",
            ),
            (&["/pub/"], "names '/pub/' and not what"),
            (&[], "has no entry"),
        ] {
            let why = listed(other).expect_err("another name").to_string();
            assert!(why.contains(told), "{why}");
        }
    }
}
