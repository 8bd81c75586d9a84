//! What agents ask of storage elements over HTTP, and how answers and errors become observations.

use super::AgentSetup;
use super::cloud::CloudAccess;
use super::proxy::ProxyAccess;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method};
use penstock_decide::classify::{Observed, classify};
use penstock_model::{
    Access, Busy, Bytes, Checksum, ChecksumAlgorithm, Failure, FileUrl, Phase, Side,
};
use penstock_protocol::digest;
use penstock_protocol::http1::client::{ClientError, Incoming, Outgoing};
use penstock_protocol::tls::{ClientIdentity, TlsError};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Bytes of an error answer that are shown.
const ERROR_TEXT_MAX: usize = 300;

/// Seconds for which a storage element is left alone that does not say for how long, and at most.
const BUSY_SECONDS: u32 = 10;
const BUSY_SECONDS_MAX: u32 = 3600;

/// One end of a transfer: where it is, by what it is reached, and whose fault errors there are.
#[derive(Clone)]
pub(super) struct End {
    pub(super) url: FileUrl,
    pub(super) parsed: Url,
    /// The submitter's token for it, or a macaroon that it gave for the proxy.
    pub(super) token: Option<Arc<str>>,
    /// The delegated proxy, when there is no token of the submitter's.
    pub(super) proxy: Option<ProxyAccess>,
    /// It is in a cloud storage, and reached by requests that are signed.
    pub(super) cloud: Option<Arc<CloudAccess>>,
    pub(super) side: Side,
}

/// How an end is spoken to, with what is needed for it.
pub(super) enum Way<'a> {
    Http,
    Cloud(&'a CloudAccess),
    Gfal,
}

/// What a storage element says of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) size: Option<Bytes>,
    pub(super) checksum: Option<Checksum>,
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
    pub(super) fn way(&self) -> Way<'_> {
        match (&self.cloud, self.url.access()) {
            (Some(access), _) => Way::Cloud(access),
            (None, Access::Http | Access::Cloud) => Way::Http,
            (None, Access::Gfal) => Way::Gfal,
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
            classify(self.side, Phase::Preparation, &Observed::Forbidden, detail)
        })?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// A failure at this end.
    pub(super) fn failure(
        &self,
        phase: Phase,
        observed: &Observed,
        detail: impl Into<String>,
    ) -> Failure {
        classify(self.side, phase, observed, detail.into())
    }

    /// A failure to speak with this end.
    pub(super) fn client_failure(&self, phase: Phase, error: &ClientError) -> Failure {
        classify(self.side, phase, &observe(error), error.to_string())
    }

    /// A failure that this end answered, with the text it gave.
    pub(super) async fn refused(&self, phase: Phase, what: &str, answer: Incoming) -> Failure {
        let status = answer.status;
        let busy = busy_of(&answer, self.side);
        let text = short_text(answer).await;
        let detail = format!("{} answered {what} with {status}{text}", self.url);
        // A missing file is what FTS clients search for by this text.
        let detail = if status.as_u16() == 404 {
            format!("No such file or directory: {detail}")
        } else {
            detail
        };
        let failure = self.failure(phase, &Observed::Status(status.as_u16()), detail);
        Failure { busy, ..failure }
    }
}

/// What an answer says of how much its storage element has to do (RFC 9110 §10.2.3, RFC 6585 §4).
fn busy_of(answer: &Incoming, by: Side) -> Option<Busy> {
    let status = answer.status.as_u16();
    let said = answer.headers.get(RETRY_AFTER);
    let seconds = said.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    // A 503 without it may be a server that is being restarted.
    match (status, seconds) {
        (429, None) => Some(BUSY_SECONDS),
        (429 | 503, seconds) => seconds.map(|seconds: u32| seconds.min(BUSY_SECONDS_MAX)),
        _ => None,
    }
    .map(|seconds| Busy { by, seconds })
}

/// Up to [`ERROR_TEXT_MAX`] bytes of an answer's body on one line, with a colon before it; empty when there is none.
async fn short_text(mut answer: Incoming) -> String {
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

/// What a client error tells about the other side.
pub(super) fn observe(error: &ClientError) -> Observed {
    match error {
        ClientError::Resolve { .. } => Observed::NameUnknown,
        ClientError::Connect { .. } => Observed::Refused,
        ClientError::Tls(TlsError::NotTrusted { .. }) => Observed::Untrusted,
        ClientError::Tls(TlsError::Timeout { .. }) => Observed::TimedOut,
        // A server that is being restarted resets the connection in the middle of a handshake.
        ClientError::Tls(TlsError::Handshake { .. }) => Observed::Broken,
        ClientError::Tls(TlsError::Load { .. } | TlsError::Setup(_)) => Observed::Malformed,
        ClientError::Timeout { .. } => Observed::TimedOut,
        ClientError::Forbidden { .. } | ClientError::TooManyRedirects { .. } => Observed::Forbidden,
        ClientError::Closed { .. } | ClientError::TooShort { .. } | ClientError::Io { .. } => {
            Observed::Broken
        }
        ClientError::EarlyAnswer { status, .. } => Observed::Status(status.as_u16()),
        _ => Observed::Malformed,
    }
}

impl AgentSetup {
    /// HEAD with `Want-Digest`: size and checksum of a file; `None` when it does not exist.
    pub(super) async fn stat(
        &self,
        end: &End,
        algorithm: ChecksumAlgorithm,
        phase: Phase,
    ) -> Result<Option<Stat>, Failure> {
        let mut headers = end.headers()?;
        let wanted = HeaderValue::from_static(algorithm.name());
        headers.insert(HeaderName::from_static("want-digest"), wanted);
        let request = Outgoing {
            method: Method::HEAD,
            url: end.parsed.clone(),
            headers,
            identity: end.identity(),
        };
        let answer = self
            .client
            .send_following(request)
            .await
            .map_err(|why| end.client_failure(phase, &why))?;
        if answer.status.as_u16() == 404 {
            return Ok(None);
        }
        if !answer.status.is_success() {
            return Err(end.refused(phase, "HEAD", answer).await);
        }
        let size = answer
            .headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok());
        // A digest that is not understood is as good as none: sizes are still compared.
        let digests = digest::parse(&answer.headers).unwrap_or_default();
        let checksum = digests
            .into_iter()
            .find(|digest| digest.algorithm() == algorithm);
        Ok(Some(Stat {
            size: size.map(Bytes),
            checksum,
        }))
    }

    /// DELETE; true when the file is known to be gone.
    pub(super) async fn remove(&self, end: &End) -> bool {
        let Ok(headers) = end.headers() else {
            return false;
        };
        let request = Outgoing {
            method: Method::DELETE,
            url: end.parsed.clone(),
            headers,
            identity: end.identity(),
        };
        match self.client.send(request).await {
            Ok(answer) => answer.status.is_success() || answer.status.as_u16() == 404,
            Err(_) => false,
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
        let request = Outgoing {
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
    fn only_a_certificate_that_does_not_verify_is_a_matter_of_trust() {
        let (peer, why) = (
            "127.0.0.3".to_owned(),
            "Connection reset by peer".to_owned(),
        );
        let reset = ClientError::Tls(TlsError::Handshake { peer, why });
        assert_eq!(observe(&reset), Observed::Broken);
        let (host, why, remedy) = ("se".to_owned(), "self-signed".to_owned(), String::new());
        let rogue = ClientError::Tls(TlsError::NotTrusted { host, why, remedy });
        assert_eq!(observe(&rogue), Observed::Untrusted);
    }
}
