//! Storage elements seen through HTTP and WebDAV: look, list, make, delete, read, write.
//!
//! One request per method, more only where the protocol demands it. What a whole copy needs is in
//! `bulk_copy`; listings and uploads in several requests are below.

mod listing;
mod pieces;

pub use listing::{Info, Listing, UnusableEntry};
pub use pieces::{Rest, UploadState};

use crate::checksum_choice::ChecksumChoice;
use crate::credentials::Credentials;
use crate::remote_error::RemoteError;
use crate::replaceable::Replaceable;
use http::header::{AUTHORIZATION, ETAG, IF_MATCH, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use penstock_model::url::redact;
use penstock_model::{Bytes, Checksum, NamespacePath, Timestamp};
use penstock_protocol::deletion::{EMPTY_DIRECTORY, PENSTOCK_DELETE};
use penstock_protocol::digest;
use penstock_protocol::http1::client::{
    Client, ClientRequest, ClientResponse, Upload, UploadStart,
};
use penstock_protocol::storage_id::StorageId;
use penstock_protocol::webdav::{self, ETAG_BYTES_MAX};
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::Mutex;
use url::Url;

/// Bytes of an answer that is read only for its text.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// RFC 4918 §10.1, §10.3, §10.4, §10.6.
const DAV: HeaderName = HeaderName::from_static("dav");
const DESTINATION: HeaderName = HeaderName::from_static("destination");
const IF: HeaderName = HeaderName::from_static("if");
const OVERWRITE: HeaderName = HeaderName::from_static("overwrite");
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
    /// Whoever holds it reads a listing that is long.
    long_listing: Arc<Mutex<()>>,
    /// What is asked of an entry, as the body of a PROPFIND.
    question: &'static str,
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

impl Remote {
    /// Speaks to any storage element that there are credentials for.
    pub fn new(client: Client, credentials: Arc<dyn Credentials>) -> Remote {
        Remote {
            client,
            credentials,
            long_listing: Arc::default(),
            question: webdav::STAT_BODY,
        }
    }

    /// The same, and asks also where the bytes of each file are.
    pub fn with_locality(self) -> Remote {
        Remote {
            question: webdav::STAT_WITH_LOCALITY_BODY,
            ..self
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

    /// How much room there is where a path is, as far as the server tells (RFC 4331).
    pub async fn quota(&self, url: &Url) -> Result<Quota, RemoteError> {
        let found = self.propfind(url, "0", QUOTA_BODY).await?;
        let told = found.entries.first();
        Ok(Quota {
            used_bytes: told.and_then(|entry| entry.quota_used),
            available_bytes: told.and_then(|entry| entry.quota_available),
        })
    }

    /// Gives a file or directory another name at the same server, by MOVE (RFC 4918 §9.9). Only a server that
    /// [evaluates conditions](Self::evaluates_if) knows a version that is the only one to be replaced.
    pub async fn rename(
        &self,
        from: &Url,
        to: &Url,
        replaceable: &Replaceable<String>,
    ) -> Result<(), RemoteError> {
        let mut request = self.request(method("MOVE"), from)?;
        // The server must not see what its own URLs may hold as credentials a second time.
        let mut destination = to.clone();
        destination.set_query(None);
        let valid = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| RemoteError::nonsense(to, "it is not valid in a header"))
        };
        let headers = &mut request.headers;
        headers.insert(DESTINATION, valid(destination.as_str())?);
        let overwrite = match replaceable {
            Replaceable::Nothing => "F",
            Replaceable::Version(_) | Replaceable::Anything => "T",
        };
        headers.insert(OVERWRITE, HeaderValue::from_static(overwrite));
        if let Replaceable::Version(etag) = replaceable {
            // RFC 4918 §10.4.3: `If-Match` would speak of what is moved.
            headers.insert(IF, valid(&format!("<{destination}> ([{etag}])"))?);
        }
        let answer = self.client.send_following_here(request).await?;
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
            .send_following_here(self.request(method("MKCOL"), url)?)
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
            request.headers.insert(IF_MATCH, etag_value(url, etag)?);
        }
        let answer = self.client.send_following_here(request).await?;
        self.expect_success(url, answer).await.map(drop)
    }

    /// Whether the server says that it removes a directory only if it is empty, when it is asked to.
    pub async fn removes_only_empty(&self, url: &Url) -> Result<bool, RemoteError> {
        let told = self.options(url).await?;
        Ok(told.get(PENSTOCK_DELETE) == Some(&EMPTY_DIRECTORY))
    }

    /// Whether the server says that it knows locks: then it evaluates the `If` header, without which there are none
    /// (RFC 4918 §10.4, §18.2).
    pub async fn evaluates_if(&self, url: &Url) -> Result<bool, RemoteError> {
        let told = self.options(url).await?;
        let classes = told
            .get_all(DAV)
            .iter()
            .filter_map(|value| value.to_str().ok());
        let mut classes = classes.flat_map(|value| value.split(','));
        Ok(classes.any(|class| class.trim() == "2"))
    }

    /// The storage that the server says that it belongs to; one of ours does.
    pub async fn storage_id(&self, url: &Url) -> Result<Option<StorageId>, RemoteError> {
        Ok(StorageId::told(&self.options(url).await?))
    }

    /// What a server tells of itself; nothing where it does not answer this with success.
    async fn options(&self, url: &Url) -> Result<HeaderMap, RemoteError> {
        let request = self.request(Method::OPTIONS, url)?;
        let answer = self.client.send(request).await?;
        match answer.status.is_success() {
            true => Ok(answer.headers),
            false => Ok(HeaderMap::new()),
        }
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
        replaceable: &Replaceable<String>,
    ) -> Result<Upload, RemoteError> {
        let mut request = self.request(Method::PUT, url)?;
        request.headers.insert(WANT_DIGEST, checksums.wanted());
        replaceable.demand(url, &mut request.headers)?;
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

impl Replaceable<String> {
    /// What is to be replaced, as a condition of the request that writes it (RFC 9110 §13.1).
    fn demand(&self, url: &Url, headers: &mut HeaderMap) -> Result<(), RemoteError> {
        match self {
            Replaceable::Nothing => {
                headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
            }
            Replaceable::Version(etag) => {
                headers.insert(IF_MATCH, etag_value(url, etag)?);
            }
            Replaceable::Anything => {}
        }
        Ok(())
    }
}

fn etag_value(url: &Url, etag: &str) -> Result<HeaderValue, RemoteError> {
    HeaderValue::from_str(etag)
        .map_err(|_| RemoteError::nonsense(url, "its ETag is not valid in a header"))
}

fn method(name: &'static str) -> Method {
    Method::from_bytes(name.as_bytes()).expect("a token of letters")
}

fn told_checksums(url: &Url, headers: &HeaderMap) -> Result<Vec<Checksum>, RemoteError> {
    digest::parse(headers).map_err(|why| RemoteError::nonsense(url, why.to_string()))
}

/// The version of a file, when it is a strong one: only that says that bytes are the same (RFC 9110 §8.8.1).
pub fn strong_etag(headers: &HeaderMap) -> Option<String> {
    let etag = headers.get(ETAG)?.to_str().ok()?.trim();
    is_strong(etag).then(|| etag.to_owned())
}

fn is_strong(etag: &str) -> bool {
    let opaque = etag
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    etag.len() <= ETAG_BYTES_MAX && opaque.is_some_and(|opaque| !opaque.contains('"'))
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

/// The URL of another name in the same directory.
pub fn beside(url: &Url, name: &str) -> Result<Url, RemoteError> {
    let invalid = |why| RemoteError::InvalidPath {
        what: name.to_owned(),
        why,
    };
    let above = path_of(url)?.parent().unwrap_or_else(NamespacePath::root);
    Ok(at_path(url, &above.child(name).map_err(invalid)?))
}

/// The directory above; `None` for the root.
pub fn parent(url: &Url) -> Option<Url> {
    let above = path_of(url).ok()?.parent()?;
    (!above.is_root()).then(|| at_path(url, &above))
}

pub(crate) fn at_path(url: &Url, path: &NamespacePath) -> Url {
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
    async fn what_changes_something_is_not_sent_on_to_another_server() {
        let inner = TestServer::start(|_| TestReply::status(204)).await;
        let target = inner.url("/index").to_string();
        let outer = TestServer::start(move |request| {
            let here = request.path.strip_prefix("/here");
            let location = here.map_or(target.clone(), str::to_owned);
            match request.path.as_str() {
                "/d" => TestReply::status(204),
                _ => TestReply::status(307).with("location", location),
            }
        })
        .await;
        let remote = outer.remote();
        let away = outer.url("/pub/x");
        let nothing = Replaceable::Nothing;
        for refused in [
            remote.delete(&away).await,
            remote.make_directory(&away).await.map(drop),
            remote.rename(&away, &outer.url("/y"), &nothing).await,
        ] {
            let why = refused.expect_err("not followed").to_string();
            assert!(why.contains("leads to another server"), "{why}");
        }
        for method in ["DELETE", "MKCOL", "MOVE"] {
            assert!(inner.asked(method).is_empty(), "{method}");
        }
        remote.delete(&outer.url("/here/d")).await.expect("here");
        assert_eq!(outer.asked("DELETE"), ["/pub/x", "/here/d", "/d"]);
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
}
