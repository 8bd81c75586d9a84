//! Storage elements seen through HTTP and WebDAV: look, list, make, delete, read, write.
//!
//! One request per method, more only where the protocol demands it. What a whole copy needs is in
//! `bulk_copy`; uploads in several requests are below.

mod pieces;

pub use pieces::{Rest, UploadState};

use crate::credentials::Credentials;
use crate::remote_error::RemoteError;
use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use penstock_model::url::redact;
use penstock_model::{Bytes, Checksum, ChecksumAlgorithm, NamespacePath, Timestamp};
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
}

/// What is in a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by name.
    pub entries: Vec<Info>,
    /// As the server wrote them: what it lists and no path can name.
    pub unnameable: Vec<String>,
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
    /// Something of that name was there.
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
        wanted: ChecksumAlgorithm,
    ) -> Result<Option<Head>, RemoteError> {
        let mut request = self.request(Method::HEAD, url)?;
        request.headers.insert(
            HeaderName::from_static("want-digest"),
            HeaderValue::from_static(wanted.name()),
        );
        let answer = self.client.send_following(request).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let answer = self.expect_success(url, answer).await?;
        Ok(Some(Head {
            size: answer.content_length().map(Bytes),
            checksums: told_checksums(url, &answer.headers)?,
        }))
    }

    /// The checksum that the storage element tells. An error when it tells none of that algorithm.
    pub async fn checksum(
        &self,
        url: &Url,
        wanted: ChecksumAlgorithm,
    ) -> Result<Checksum, RemoteError> {
        let head = self
            .head(url, wanted)
            .await?
            .ok_or_else(|| RemoteError::not_found(redact(url.as_str())))?;
        let told = head
            .checksums
            .into_iter()
            .find(|checksum| checksum.algorithm() == wanted);
        told.ok_or_else(|| {
            RemoteError::nonsense(
                url,
                format!("the storage element reports no {wanted} checksum"),
            )
        })
    }

    /// One entry, by PROPFIND of depth 0. Its name is the one that was asked for, never one that the server chooses.
    pub async fn stat(&self, url: &Url) -> Result<Info, RemoteError> {
        let found = self.propfind(url, "0", webdav::STAT_BODY).await?;
        entry_of(url, &found)
    }

    /// What is in a directory, by PROPFIND of depth 1. A file gives itself.
    pub async fn list(&self, url: &Url) -> Result<Listing, RemoteError> {
        let own = path_of(url)?;
        let found = self.propfind(url, "1", webdav::STAT_BODY).await?;
        let mut listing = Listing::default();
        for entry in &found {
            match info_of(url, entry) {
                Some(info) => listing.entries.push(info),
                None => listing.unnameable.push(entry.href.clone()),
            }
        }
        let is_own = |info: &Info| {
            Url::parse(&info.url).is_ok_and(|url| path_of(&url).is_ok_and(|path| path == own))
        };
        let entries = &mut listing.entries;
        if !entries
            .iter()
            .any(|info| is_own(info) && !info.is_directory)
        {
            entries.retain(|info| !is_own(info));
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listing)
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
        // RFC 4918 §9.3.1: 405 means that the URL is mapped already.
        if answer.status == StatusCode::METHOD_NOT_ALLOWED {
            return Ok(DirectoryOutcome::Before);
        }
        self.expect_success(url, answer)
            .await
            .map(|_| DirectoryOutcome::New)
    }

    /// Makes a directory and what is missing above it.
    pub async fn make_directories(&self, url: &Url) -> Result<(), RemoteError> {
        let mut missing = vec![url.clone()];
        loop {
            let Some(next) = missing.last() else {
                return Ok(());
            };
            match self.make_directory(next).await {
                Ok(_) => {
                    missing.pop();
                }
                // RFC 4918 §9.3.1: 409 means that a parent is missing.
                Err(RemoteError::Refused {
                    status: StatusCode::CONFLICT,
                    url: shown,
                    detail,
                    told,
                }) => match parent(next) {
                    Some(above) => missing.push(above),
                    None => {
                        return Err(RemoteError::Refused {
                            url: shown,
                            status: StatusCode::CONFLICT,
                            detail,
                            told,
                        });
                    }
                },
                Err(why) => return Err(why),
            }
        }
    }

    /// Deletes a file, or a directory with all that is in it.
    pub async fn delete(&self, url: &Url) -> Result<(), RemoteError> {
        let answer = self
            .client
            .send_following(self.request(Method::DELETE, url)?)
            .await?;
        self.expect_success(url, answer).await.map(drop)
    }

    /// Opens a file for reading; its checksum is asked for.
    pub async fn get(
        &self,
        url: &Url,
        algorithm: ChecksumAlgorithm,
        wanted: Wanted<'_>,
    ) -> Result<ClientResponse, RemoteError> {
        let mut request = self.request(Method::GET, url)?;
        request.headers.insert(
            HeaderName::from_static("want-digest"),
            HeaderValue::from_static(algorithm.name()),
        );
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
        algorithm: ChecksumAlgorithm,
        occupied: Occupied,
    ) -> Result<Upload, RemoteError> {
        let mut request = self.request(Method::PUT, url)?;
        request.headers.insert(
            HeaderName::from_static("want-digest"),
            HeaderValue::from_static(algorithm.name()),
        );
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

    /// Ends an upload: the file is there when this succeeds. Gives back the checksums that the answer tells.
    pub async fn finish(&self, url: &Url, upload: Upload) -> Result<Vec<Checksum>, RemoteError> {
        let answer = self.expect_success(url, upload.finish().await?).await?;
        told_checksums(url, &answer.headers)
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
    let own = listed
        .iter()
        .find(|entry| entry.path.as_ref() == Some(&path));
    let info = own.and_then(|entry| info_of(asked, entry));
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

/// `None`: it has no path that could be asked for.
fn info_of(asked: &Url, entry: &PropfindEntry) -> Option<Info> {
    let path = entry.path.as_ref()?;
    Some(Info {
        url: at_path(asked, path).to_string(),
        name: path.name().unwrap_or("/").to_owned(),
        is_directory: entry.is_directory,
        size_bytes: entry.size.filter(|_| !entry.is_directory),
        modified: entry.modified,
    })
}

/// The version of a file, when it is a strong one: only that says that bytes are the same (RFC 9110 §8.8.1).
pub fn strong_etag(headers: &HeaderMap) -> Option<String> {
    let etag = headers.get(ETAG)?.to_str().ok()?.trim();
    let is_strong = etag.len() >= 2 && etag.starts_with('"') && etag.ends_with('"');
    is_strong.then(|| etag.to_owned())
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

    #[test]
    fn a_server_does_not_choose_the_name_of_what_was_asked_for() {
        let asked = Url::parse("https://se/pub/read%20me/").expect("a URL");
        let listed = |hrefs: &[&str]| {
            let response =
                |href: &&str| format!("<D:response><D:href>{href}</D:href></D:response>");
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
