//! Storage elements seen through HTTP and WebDAV: look, list, make, delete, read, write.
//!
//! One request per method, more only where the protocol demands it. What a whole copy needs is in
//! `bulk_copy`.

use crate::credentials::Credentials;
use crate::remote_error::RemoteError;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
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

    /// One entry, by PROPFIND of depth 0.
    pub async fn stat(&self, url: &Url) -> Result<Info, RemoteError> {
        let mut entries = self.propfind(url, "0").await?;
        match entries.len() {
            0 => Err(RemoteError::nonsense(url, "the listing has no entry")),
            _ => Ok(entries.swap_remove(0)),
        }
    }

    /// What is in a directory, sorted by name, by PROPFIND of depth 1. A file gives itself.
    pub async fn list(&self, url: &Url) -> Result<Vec<Info>, RemoteError> {
        let own = path_of(url)?;
        let mut entries = self.propfind(url, "1").await?;
        let is_own = |info: &Info| {
            Url::parse(&info.url).is_ok_and(|url| path_of(&url).is_ok_and(|path| path == own))
        };
        if entries
            .iter()
            .any(|info| is_own(info) && !info.is_directory)
        {
            return Ok(entries);
        }
        entries.retain(|info| !is_own(info));
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
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
        wanted: ChecksumAlgorithm,
    ) -> Result<ClientResponse, RemoteError> {
        let mut request = self.request(Method::GET, url)?;
        request.headers.insert(
            HeaderName::from_static("want-digest"),
            HeaderValue::from_static(wanted.name()),
        );
        let answer = self.client.send_following(request).await?;
        self.expect_success(url, answer).await
    }

    /// Opens a file of known size for writing. The server is asked before any byte is sent.
    pub async fn put(&self, url: &Url, size: Bytes) -> Result<Upload, RemoteError> {
        let request = self.request(Method::PUT, url)?;
        match self
            .client
            .start_upload_following(request, Some(size.0))
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

    async fn propfind(&self, url: &Url, depth: &'static str) -> Result<Vec<Info>, RemoteError> {
        let mut request = self.request(method("PROPFIND"), url)?;
        request.headers.insert(
            HeaderName::from_static("depth"),
            HeaderValue::from_static(depth),
        );
        request
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        let answer = self
            .client
            .send_bytes(request, webdav::STAT_BODY.as_bytes())
            .await?;
        let mut answer = self.expect_success(url, answer).await?;
        let body = answer.read_all(LISTING_BYTES_MAX).await?;
        let found = webdav::parse_multistatus(&body)
            .map_err(|why| RemoteError::nonsense(url, why.to_string()))?;
        found.iter().map(|entry| info_of(url, entry)).collect()
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

fn info_of(asked: &Url, entry: &PropfindEntry) -> Result<Info, RemoteError> {
    let path = entry.path.as_ref();
    let path = path.ok_or_else(|| {
        RemoteError::nonsense(asked, format!("the listing names '{}'", entry.href))
    })?;
    Ok(Info {
        url: at_path(asked, path).to_string(),
        name: path.name().unwrap_or("/").to_owned(),
        is_directory: entry.is_directory,
        size_bytes: entry.size.filter(|_| !entry.is_directory),
        modified: entry.modified,
    })
}

/// The path that a URL names, decoded.
pub fn path_of(url: &Url) -> Result<NamespacePath, RemoteError> {
    NamespacePath::from_encoded(url.path())
        .map_err(|why| RemoteError::nonsense(url, why.to_string()))
}

/// The URL of an entry below a directory.
pub fn below(directory: &Url, names: &[String]) -> Result<Url, RemoteError> {
    let mut path = path_of(directory)?;
    for name in names {
        path = path
            .child(name)
            .map_err(|why| RemoteError::nonsense(directory, format!("'{name}': {why}")))?;
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
