//! What agents ask of storage elements over HTTP, and how answers and errors become observations.

use super::AgentSetup;
use super::cloud_access::CloudAccess;
use super::proxy::ProxyCredential;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, HeaderName,
    HeaderValue, IF_MATCH, LAST_MODIFIED, RANGE, RETRY_AFTER,
};
use http::{HeaderMap, Method, StatusCode};
use penstock_clock::wall_clock;
use penstock_decide::classify::{ObservedFailure, classify, is_final};
use penstock_decide::destination::FileFacts;
use penstock_model::{
    Access, Busy, Bytes, Checksum, ChecksumAlgorithm, Failure, FileUrl, Phase, ProblemCode, Retry,
    Side, Timestamp,
};
use penstock_protocol::digest;
use penstock_protocol::http1::client::{ClientError, ClientRequest, ClientResponse};
use penstock_protocol::problem::told_code;
use penstock_protocol::tls::{ClientIdentity, TlsError};
use penstock_protocol::webdav::{
    DIRECTORY_TYPE, PropfindEntry, STAT_BODY, parse_http_date, parse_multistatus,
};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Bytes of an error answer that are shown.
const ERROR_TEXT_MAX: usize = 300;

/// Bytes of an answer to PROPFIND of one file.
const MULTISTATUS_BYTES_MAX: u64 = 1 << 20;

/// Seconds for which a storage element is left alone that does not say for how long, and at most.
const BUSY_SECONDS: u32 = 10;
const BUSY_SECONDS_MAX: u32 = 3600;

/// One end of a transfer: its URL, the credentials shown there, and the side that its errors count for.
#[derive(Clone)]
pub(super) struct End {
    pub(super) url: FileUrl,
    pub(super) parsed: Url,
    /// The submitter's token for it, or a macaroon that it gave for the proxy.
    pub(super) token: Option<Arc<str>>,
    /// The delegated proxy, when there is no token of the submitter's.
    pub(super) proxy: Option<ProxyCredential>,
    /// There is a token, and it is not shown because the line is not encrypted.
    pub(super) token_withheld: bool,
    /// It is in a cloud storage, and reached by requests that are signed.
    pub(super) cloud: Option<Arc<CloudAccess>>,
    pub(super) side: Side,
}

/// How an end is spoken to, with what is needed for it.
pub(super) enum AccessMethod<'a> {
    Http,
    Cloud(&'a CloudAccess),
    Gfal,
}

/// What a storage element says of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) size: Option<Bytes>,
    pub(super) checksum: Option<Checksum>,
    /// When it last changed: in a [`Sighting`] by the storage element's clock, then by that of the records.
    pub(super) modified: Option<Timestamp>,
    /// By what this version of it is told from every other one (RFC 9110 §8.8.3).
    pub(super) version: Option<HeaderValue>,
}

impl Stat {
    /// As decisions see it.
    pub(super) fn told(&self) -> FileFacts {
        FileFacts {
            size: self.size,
            checksum: self.checksum.clone(),
            modified: self.modified,
        }
    }
}

/// What a look at a place tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sighting {
    /// The file; `None`: it does not exist.
    pub(super) there: Option<Stat>,
    /// What the storage element's clock shows, where it tells.
    pub(super) date: Option<Timestamp>,
}

/// A removal that did not take place.
#[derive(Debug)]
pub(super) struct RemovalFailure {
    /// What is there is in use, or is not what was seen.
    pub(super) is_occupied: bool,
    pub(super) failure: Failure,
}

impl From<Failure> for RemovalFailure {
    fn from(failure: Failure) -> RemovalFailure {
        RemovalFailure {
            is_occupied: false,
            failure,
        }
    }
}

impl End {
    /// Headers with the token for this end.
    pub(super) fn headers(&self) -> Result<HeaderMap, Failure> {
        let mut headers = HeaderMap::new();
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, self.bearer(token)?);
        }
        Ok(headers)
    }

    /// What is shown in the TLS handshake. A token counts before a certificate, and servers that know nothing of
    /// proxies take tokens, so beside one nothing is shown.
    pub(super) fn identity(&self) -> Option<ClientIdentity> {
        match self.token {
            Some(_) => None,
            None => self.proxy.as_ref().map(|proxy| proxy.identity.clone()),
        }
    }

    /// Whether there is anything to show a proxy to.
    pub(super) fn speaks_tls(&self) -> bool {
        matches!(self.parsed.scheme(), "https" | "davs")
    }

    /// Why the other end cannot be let in here, if so: it can be given a macaroon, not the proxy.
    pub(super) fn admits_nobody_else(&self) -> Option<String> {
        let why = self.proxy.as_ref()?.no_macaroon.as_ref()?;
        Some(format!(
            "{} cannot be opened to the other end: {why}",
            self.url
        ))
    }

    /// How it is spoken to.
    pub(super) fn way(&self) -> AccessMethod<'_> {
        match (&self.cloud, self.url.access()) {
            (Some(access), _) => AccessMethod::Cloud(access),
            (None, Access::Http | Access::Cloud) => AccessMethod::Http,
            (None, Access::Gfal) => AccessMethod::Gfal,
        }
    }

    /// What the other end is told of this one, so that it can do `method` there: in a cloud storage a URL that is good
    /// for as long as an attempt may take.
    pub(super) fn address(&self, method: &Method, attempt: Duration) -> Url {
        match &self.cloud {
            Some(access) => access.presigned(method, attempt),
            None => self.parsed.clone(),
        }
    }

    /// `Bearer …` as a header value that is never printed.
    pub(super) fn bearer(&self, token: &str) -> Result<HeaderValue, Failure> {
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| {
            let detail = "the token holds characters that no HTTP header may have".to_owned();
            classify(
                self.side,
                Phase::Preparation,
                &ObservedFailure::Forbidden,
                detail,
            )
        })?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// A failure at this end.
    pub(super) fn failure(
        &self,
        phase: Phase,
        observed: &ObservedFailure,
        detail: impl Into<String>,
    ) -> Failure {
        classify(self.side, phase, observed, detail.into())
    }

    /// A failure to speak with this end.
    pub(super) fn client_failure(&self, phase: Phase, error: &ClientError) -> Failure {
        let failure = classify(self.side, phase, &observe(error), error.to_string());
        let told = match error {
            ClientError::EarlyAnswer { told, .. } => *told,
            _ => None,
        };
        Failure {
            busy: busy_amid_upload(error, self.side),
            code: told.or(failure.code),
            ..failure
        }
    }

    /// A failure that this end answered, with the text it gave.
    pub(super) async fn refused(
        &self,
        phase: Phase,
        what: &str,
        answer: ClientResponse,
    ) -> Failure {
        let observed = ObservedFailure::Status(answer.status.as_u16());
        self.refused_as(phase, what, answer, |_| observed).await
    }

    /// The same, where the text tells what the status means.
    pub(super) async fn refused_as(
        &self,
        phase: Phase,
        what: &str,
        answer: ClientResponse,
        meaning: impl FnOnce(&str) -> ObservedFailure,
    ) -> Failure {
        let status = answer.status;
        let said = header_text(&answer.headers, &RETRY_AFTER);
        let busy = busy_of(status, said.and_then(|text| text.parse().ok()), self.side);
        // A storage element of ours tells the cause itself.
        let code = told_code(&answer.headers);
        let text = short_text(answer).await;
        let observed = meaning(&text);
        let detail = format!("{} answered {what} with {status}{text}", self.url);
        // A missing file is what FTS clients search for by this text.
        let detail = if status.as_u16() == 404 {
            format!("No such file or directory: {detail}")
        } else {
            detail
        };
        let failure = self.failure(phase, &observed, detail);
        Failure {
            busy,
            code: code.or(failure.code),
            retry: match code.is_some_and(is_final) {
                true => Retry::Never,
                false => failure.retry,
            },
            ..failure
        }
    }
}

/// What an answer says of how much its storage element has to do (RFC 9110 §10.2.3, RFC 6585 §4).
fn busy_of(status: StatusCode, retry_after_seconds: Option<u64>, by: Side) -> Option<Busy> {
    // A 503 without it may be a server that is being restarted.
    match (status.as_u16(), retry_after_seconds) {
        (429, None) => Some(BUSY_SECONDS),
        (429 | 503, seconds) => seconds.map(|seconds| {
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            seconds.min(BUSY_SECONDS_MAX)
        }),
        _ => None,
    }
    .map(|seconds| Busy { by, seconds })
}

/// The same of a server that answered before it had the whole body.
fn busy_amid_upload(error: &ClientError, by: Side) -> Option<Busy> {
    match error {
        ClientError::EarlyAnswer {
            status,
            retry_after_seconds,
            ..
        } => busy_of(*status, *retry_after_seconds, by),
        _ => None,
    }
}

/// Up to [`ERROR_TEXT_MAX`] bytes of an answer's body on one line, with a colon before it; empty when there is none.
async fn short_text(mut answer: ClientResponse) -> String {
    if !answer.may_show_text() {
        return String::new();
    }
    let Ok(body) = answer.read_all(64 * 1024).await else {
        return String::new();
    };
    let text = String::from_utf8_lossy(&body);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = line.chars().take(ERROR_TEXT_MAX).collect();
    if short.is_empty() {
        short
    } else {
        format!(": {short}")
    }
}

fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// The length of the whole file of which a part was asked for: `bytes 0-0/1234`, `bytes */0` (RFC 9110 §14.4).
fn whole_length(headers: &HeaderMap) -> Option<u64> {
    let range = header_text(headers, &CONTENT_RANGE)?;
    let (_, whole) = range.strip_prefix("bytes ")?.split_once('/')?;
    whole.trim().parse().ok()
}

/// When what these headers are of last changed, by the server's clock.
pub(super) fn modified_of(headers: &HeaderMap) -> Option<Timestamp> {
    parse_http_date(header_text(headers, &LAST_MODIFIED)?)
}

/// What the server's clock showed when it answered.
pub(super) fn date_of(headers: &HeaderMap) -> Option<Timestamp> {
    parse_http_date(header_text(headers, &DATE)?)
}

/// A time of a server by the clock that shows `now`: that of the server may be wrong, and it tells it.
pub(super) fn by_our_clock(there: Timestamp, date: Option<Timestamp>, now: Timestamp) -> Timestamp {
    match date {
        Some(date) => Timestamp(there.0.saturating_add(now.0.saturating_sub(date.0))),
        None => there,
    }
}

/// A tag that stands for one version only.
fn version_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let tag = headers.get(ETAG)?;
    tag.as_bytes().starts_with(b"\"").then(|| tag.clone())
}

/// What a client error tells about the other side.
pub(super) fn observe(error: &ClientError) -> ObservedFailure {
    match error {
        ClientError::Resolve { .. } => ObservedFailure::NameUnknown,
        ClientError::Connect { .. } => ObservedFailure::Refused,
        ClientError::Tls(TlsError::NotTrusted { .. }) => ObservedFailure::Untrusted,
        ClientError::Tls(TlsError::Timeout { .. }) => ObservedFailure::TimedOut,
        // A server that is being restarted resets the connection in the middle of a handshake.
        ClientError::Tls(TlsError::Handshake { .. }) => ObservedFailure::Broken,
        ClientError::Tls(TlsError::Load { .. } | TlsError::Setup(_)) => ObservedFailure::Malformed,
        ClientError::Timeout { .. } => ObservedFailure::TimedOut,
        ClientError::Forbidden { .. } => ObservedFailure::Forbidden,
        ClientError::TooManyRedirects { .. } => ObservedFailure::TooManyRedirects,
        ClientError::Closed { .. } | ClientError::TooShort { .. } | ClientError::Io { .. } => {
            ObservedFailure::Broken
        }
        ClientError::EarlyAnswer { status, .. } => ObservedFailure::Status(status.as_u16()),
        _ => ObservedFailure::Malformed,
    }
}

fn directory(end: &End, phase: Phase) -> Failure {
    let detail = format!("{} is a directory, not a file", end.url);
    end.failure(phase, &ObservedFailure::IsDirectory, detail)
}

/// A storage element of ours tells a path at which nothing is from one at which a file is about to appear.
fn says_it_may_come(headers: &HeaderMap) -> bool {
    told_code(headers) == Some(ProblemCode::PathNotThereYet)
}

impl AgentSetup {
    /// HEAD with `Want-Digest`: size and checksum of a file.
    pub(super) async fn stat(
        &self,
        end: &End,
        algorithm: ChecksumAlgorithm,
        phase: Phase,
    ) -> Result<Sighting, Failure> {
        let head = self.look(end, Method::HEAD, algorithm, phase).await?;
        let (what, mut answer) = match head.status.as_u16() {
            // Some servers give files and know no HEAD.
            405 | 501 => {
                let get = self.look(end, Method::GET, algorithm, phase).await?;
                ("GET", get)
            }
            _ => ("HEAD", head),
        };
        let date = date_of(&answer.headers);
        let size = match answer.status.as_u16() {
            // What an earlier request has sent may be what comes there.
            404 if phase == Phase::Finalization && says_it_may_come(&answer.headers) => {
                let detail = format!("{} does not exist yet: it is being written", end.url);
                return Err(end.failure(phase, &ObservedFailure::Broken, detail));
            }
            404 => return Ok(Sighting { there: None, date }),
            // Only an empty file has no first byte (RFC 9110 §14.4).
            206 | 416 if what == "GET" => {
                // RFC 1864: this one is of the part.
                answer.headers.remove("content-md5");
                let whole = whole_length(&answer.headers);
                if answer.status.as_u16() == 416 && whole != Some(0) {
                    return Err(end.refused(phase, what, answer).await);
                }
                whole
            }
            // As XRootD answers who wants the checksum of a directory.
            409 if phase == Phase::Preparation && self.is_collection(end).await => {
                return Err(directory(end, phase));
            }
            _ if !answer.status.is_success() => {
                return Err(end.refused(phase, what, answer).await);
            }
            _ => header_text(&answer.headers, &CONTENT_LENGTH).and_then(|text| text.parse().ok()),
        };
        if self.is_directory(end, &answer.headers, size, phase).await {
            return Err(directory(end, phase));
        }
        // A digest that is not understood is as good as none: sizes are still compared.
        let digests = digest::parse(&answer.headers).unwrap_or_default();
        let checksum = digests
            .into_iter()
            .find(|digest| digest.algorithm() == algorithm);
        let there = Some(Stat {
            size: size.map(Bytes),
            checksum,
            modified: modified_of(&answer.headers),
            version: version_of(&answer.headers),
        });
        Ok(Sighting { there, date })
    }

    /// Asks for what is known of a file: with GET for its first byte.
    async fn look(
        &self,
        end: &End,
        method: Method,
        algorithm: ChecksumAlgorithm,
        phase: Phase,
    ) -> Result<ClientResponse, Failure> {
        let mut headers = end.headers()?;
        let wanted = HeaderValue::from_static(algorithm.name());
        headers.insert(HeaderName::from_static("want-digest"), wanted);
        if method == Method::GET {
            headers.insert(RANGE, HeaderValue::from_static("bytes=0-0"));
        }
        let request = ClientRequest {
            method,
            url: end.parsed.clone(),
            headers,
            identity: end.identity(),
        };
        let sent = self.client.send_following(request).await;
        sent.map_err(|why| end.client_failure(phase, &why))
    }

    /// Whether what was looked at is a directory. Its type may say so, or its name when a page is what stands there. What
    /// has nothing that a file has (a checksum, a length, a version) may be one: only then it is asked once more.
    async fn is_directory(
        &self,
        end: &End,
        headers: &HeaderMap,
        size: Option<u64>,
        phase: Phase,
    ) -> bool {
        let kind = header_text(headers, &CONTENT_TYPE);
        if kind.is_some_and(|kind| kind.starts_with(DIRECTORY_TYPE)) {
            return true;
        }
        if phase != Phase::Preparation {
            return false;
        }
        let has_digest = digest::parse(headers).is_ok_and(|digests| !digests.is_empty());
        let is_page = kind.is_some_and(|kind| kind.starts_with("text/html")) && !has_digest;
        let is_named = end.parsed.path().ends_with('/');
        if is_page && is_named {
            return true;
        }
        let is_bare = size.is_none_or(|size| size == 0)
            && !headers.contains_key(ETAG)
            && !headers.contains_key(LAST_MODIFIED);
        if !(is_page || is_named || is_bare) || has_digest {
            return false;
        }
        self.is_collection(end).await
    }

    async fn is_collection(&self, end: &End) -> bool {
        let properties = self.properties(end, wall_clock()).await;
        properties.is_some_and(|found| found.is_directory)
    }

    /// PROPFIND of depth 0 (RFC 4918 §9.1); `None` when it is not answered. Times are by the clock that shows `now`.
    pub(super) async fn properties(&self, end: &End, now: Timestamp) -> Option<PropfindEntry> {
        let mut headers = end.headers().ok()?;
        headers.insert(
            HeaderName::from_static("depth"),
            HeaderValue::from_static("0"),
        );
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        let request = ClientRequest {
            method: Method::from_bytes(b"PROPFIND").expect("a valid method name"),
            url: end.parsed.clone(),
            headers,
            identity: end.identity(),
        };
        let asked = self.client.send_bytes(request, STAT_BODY.as_bytes());
        let mut answer = asked.await.ok()?;
        if answer.status.as_u16() != 207 {
            return None;
        }
        let date = date_of(&answer.headers);
        let body = answer.read_all(MULTISTATUS_BYTES_MAX).await.ok()?;
        let mut found = parse_multistatus(&body).ok()?.into_iter().next()?;
        found.modified = found
            .modified
            .map(|modified| by_our_clock(modified, date, now));
        Some(found)
    }

    /// DELETE of the version that was seen, if the storage element tells versions apart.
    pub(super) async fn remove(
        &self,
        end: &End,
        version: Option<&HeaderValue>,
        phase: Phase,
    ) -> Result<(), RemovalFailure> {
        let mut headers = end.headers()?;
        if let Some(version) = version {
            headers.insert(IF_MATCH, version.clone());
        }
        let request = ClientRequest {
            method: Method::DELETE,
            url: end.parsed.clone(),
            headers,
            identity: end.identity(),
        };
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|why| end.client_failure(phase, &why))?;
        match answer.status.as_u16() {
            404 | 410 => Ok(()),
            _ if answer.status.is_success() => Ok(()),
            status => Err(RemovalFailure {
                is_occupied: matches!(status, 409 | 412 | 423),
                failure: end.refused(phase, "DELETE", answer).await,
            }),
        }
    }

    /// Makes the directories above a destination, unless they are known to exist. Errors are left to the copy that
    /// follows: many storage elements make directories themselves, and others hide them from a narrow token.
    pub(super) async fn make_directories(&self, end: &End) {
        let mut missing = Vec::new();
        let mut directory = end.parsed.clone();
        directory.set_query(None);
        while parent_of(&mut directory) && !self.memory.knows_directory(directory.as_str()) {
            match self.make_directory(end, &directory).await {
                // 405: it exists (RFC 4918 §9.3.1).
                Some(200 | 201 | 204 | 301 | 405) => {
                    self.memory.learn_directory(directory.as_str());
                    break;
                }
                // 409: its own parent is missing.
                Some(404 | 409) => missing.push(directory.clone()),
                _ => break,
            }
        }
        for directory in missing.into_iter().rev() {
            if matches!(
                self.make_directory(end, &directory).await,
                Some(200 | 201 | 204 | 405)
            ) {
                self.memory.learn_directory(directory.as_str());
            }
        }
    }

    async fn make_directory(&self, end: &End, directory: &Url) -> Option<u16> {
        let method = Method::from_bytes(b"MKCOL").expect("a valid method name");
        // A macaroon is for the directory of the file alone; what is above it is the proxy's to make.
        let (headers, identity) = match &end.proxy {
            Some(proxy) => (HeaderMap::new(), Some(proxy.identity.clone())),
            None => (end.headers().ok()?, None),
        };
        let request = ClientRequest {
            method,
            url: directory.clone(),
            headers,
            identity,
        };
        let answer = self.client.send(request).await.ok()?;
        Some(answer.status.as_u16())
    }
}

/// Moves a URL one directory up, ending in '/'. False at the root.
fn parent_of(url: &mut Url) -> bool {
    let path = url.path().trim_end_matches('/').to_owned();
    match path.rfind('/') {
        Some(at) if at > 0 => {
            url.set_path(&path[..=at]);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_tells_the_length_of_the_whole() {
        let length = |range: &'static str| {
            let value = HeaderValue::from_static(range);
            whole_length(&HeaderMap::from_iter([(CONTENT_RANGE, value)]))
        };
        assert_eq!(length("bytes 0-0/1234"), Some(1234));
        assert_eq!(length("bytes */0"), Some(0));
        assert_eq!(length("bytes 0-0/*"), None);
        assert_eq!(length("1234"), None);
    }

    #[test]
    fn who_answers_amid_an_upload_that_they_are_busy_is_believed() {
        let seconds = |status, retry_after_seconds| {
            let answer = ClientError::EarlyAnswer {
                url: "https://se/f".to_owned(),
                status: StatusCode::from_u16(status).expect("a status"),
                retry_after_seconds,
                told: None,
                detail: String::new(),
            };
            busy_amid_upload(&answer, Side::Destination).map(|busy| busy.seconds)
        };
        assert_eq!(seconds(503, Some(30)), Some(30));
        assert_eq!(seconds(503, Some(u64::MAX)), Some(BUSY_SECONDS_MAX));
        assert_eq!(seconds(429, None), Some(BUSY_SECONDS));
        assert_eq!((seconds(503, None), seconds(507, Some(30))), (None, None));
    }

    #[test]
    fn only_a_certificate_that_does_not_verify_is_a_matter_of_trust() {
        let (peer, why) = (
            "127.0.0.3".to_owned(),
            "Connection reset by peer".to_owned(),
        );
        let reset = ClientError::Tls(TlsError::Handshake { peer, why });
        assert_eq!(observe(&reset), ObservedFailure::Broken);
        let (host, why, remedy) = ("se".to_owned(), "self-signed".to_owned(), String::new());
        let rogue = ClientError::Tls(TlsError::NotTrusted { host, why, remedy });
        assert_eq!(observe(&rogue), ObservedFailure::Untrusted);
    }
}
