//! Following redirects without carrying secrets to strangers.

use super::connect::Endpoint;
use super::{Client, ClientError, ClientRequest, ClientResponse, UploadStart};
use http::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, LOCATION, RANGE, USER_AGENT,
};
use http::{Method, StatusCode};
use penstock_model::url::redact;
use url::Url;

/// Redirects followed for one request.
const REDIRECTS_MAX: usize = 5;
/// Body bytes of a redirect that are read to keep its connection.
const BODY_BYTES_MAX: u64 = 16 << 10;

/// Where a redirect may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RedirectScope {
    Anywhere,
    /// The same host and port, or the same host with TLS.
    SameServer,
}

impl RedirectScope {
    fn check(self, from: &Url, to: &Url) -> Result<(), ClientError> {
        let (here, there) = (Endpoint::of(from)?, Endpoint::of(to)?);
        let gains_tls = !here.tls && there.tls && here.host == there.host;
        if self == RedirectScope::Anywhere || here == there || gains_tls {
            return Ok(());
        }
        let to = redact(to.as_str());
        Err(ClientError::BadRedirect {
            url: redact(from.as_str()),
            why: format!("it leads to another server, '{to}'"),
        })
    }
}

impl Client {
    /// Sends a request without a body and follows up to five redirects. On the way to another scheme, host
    /// or port the identity and every header that could be a secret are dropped, unless [`super::Reach`] lets them
    /// follow.
    pub async fn send_following(
        &self,
        request: ClientRequest,
    ) -> Result<ClientResponse, ClientError> {
        self.follow(request, RedirectScope::Anywhere).await
    }

    /// The same for a request that changes something at the server that was meant: a redirect to another server is an
    /// error, so that no server sends it on to one that only this machine can reach.
    pub async fn send_following_here(
        &self,
        request: ClientRequest,
    ) -> Result<ClientResponse, ClientError> {
        self.follow(request, RedirectScope::SameServer).await
    }

    async fn follow(
        &self,
        mut request: ClientRequest,
        scope: RedirectScope,
    ) -> Result<ClientResponse, ClientError> {
        let began_at = redact(request.url.as_str());
        for _ in 0..=REDIRECTS_MAX {
            let mut response = self.send(request.clone()).await?;
            let Some(location) = response.redirect()? else {
                return Ok(response);
            };
            scope.check(&request.url, &location)?;
            request = self.redirected(request, response.status, location)?;
            // Read to its end, the connection can be used again; a failure here matters to nobody.
            let _ = response.read_all(BODY_BYTES_MAX).await;
        }
        Err(ClientError::TooManyRedirects {
            url: began_at,
            limit: REDIRECTS_MAX,
        })
    }

    /// Begins an upload and follows up to five redirects: the server is asked before any byte is sent.
    /// Secrets are dropped as in [`Client::send_following`].
    pub async fn start_upload_following(
        &self,
        mut request: ClientRequest,
        length: Option<u64>,
    ) -> Result<UploadStart, ClientError> {
        let began_at = redact(request.url.as_str());
        for _ in 0..=REDIRECTS_MAX {
            let mut response = match self.start_upload(request.clone(), length, true).await? {
                UploadStart::Answered(response) => response,
                UploadStart::Ready(upload) => return Ok(UploadStart::Ready(upload)),
            };
            let Some(location) = response.redirect()? else {
                return Ok(UploadStart::Answered(response));
            };
            request = self.redirected(request, response.status, location)?;
            let _ = response.read_all(BODY_BYTES_MAX).await;
        }
        Err(ClientError::TooManyRedirects {
            url: began_at,
            limit: REDIRECTS_MAX,
        })
    }
}

impl ClientResponse {
    /// Where this response redirects to; `None` when it does not. Errors: a redirect without a usable
    /// `Location`.
    pub fn redirect(&self) -> Result<Option<Url>, ClientError> {
        match self.status {
            StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT => {}
            _ => return Ok(None),
        }
        let from = self.final_url();
        let refuse = |why: String| ClientError::BadRedirect {
            url: redact(from.as_str()),
            why,
        };
        let location = self
            .headers
            .get(LOCATION)
            .ok_or_else(|| refuse("no Location header".into()))?;
        let location = std::str::from_utf8(location.as_bytes());
        let location = location.map_err(|_| refuse("the Location is not UTF-8".into()))?;
        let mut to = from
            .join(location)
            .map_err(|why| refuse(format!("'{}': {why}", redact(location))))?;
        to.set_fragment(None);
        Ok(Some(to))
    }
}

impl ClientRequest {
    /// The same request for another place, as a redirect with `status` asks for, without its secrets when the place
    /// is another one. Errors: a place that cannot be sent to.
    pub(super) fn redirected(
        mut self,
        status: StatusCode,
        to: Url,
    ) -> Result<ClientRequest, ClientError> {
        if Endpoint::of(&self.url)? != Endpoint::of(&to)? {
            self.headers = without_secrets(&self.headers);
            self.identity = None;
        }
        self.redirected_with_secrets(status, to)
    }

    /// The same, and everything goes along.
    pub(super) fn redirected_with_secrets(
        mut self,
        status: StatusCode,
        to: Url,
    ) -> Result<ClientRequest, ClientError> {
        Endpoint::of(&to)?;
        // RFC 9110 §15.4.4. All other redirects keep the method, as WebDAV clients do.
        if status == StatusCode::SEE_OTHER && self.method != Method::HEAD {
            self.method = Method::GET;
        }
        self.url = to;
        Ok(self)
    }
}

/// Headers that say what is wanted and hold no secret. Any other may be one, whatever its name: clients choose some
/// of them (HTTP-TPC, `TransferHeader…`).
const HARMLESS: [HeaderName; 13] = [
    ACCEPT,
    CONTENT_TYPE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    RANGE,
    USER_AGENT,
    HeaderName::from_static("depth"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("overwrite"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("want-digest"),
];

/// What a COPY says beside that (HTTP-TPC). Source and destination are URLs: with a query, they may hold a secret.
const HARMLESS_OF_COPY: [HeaderName; 8] = [
    HeaderName::from_static("clientinfo"),
    HeaderName::from_static("credential"),
    HeaderName::from_static("destination"),
    HeaderName::from_static("requirechecksumverification"),
    HeaderName::from_static("scitag"),
    HeaderName::from_static("source"),
    HeaderName::from_static("want-repr-digest"),
    HeaderName::from_static("x-number-of-streams"),
];

fn without_secrets(headers: &HeaderMap) -> HeaderMap {
    let is_url = |name: &HeaderName| ["source", "destination"].contains(&name.as_str());
    // A fragment may hold a token, too.
    let has_query = |value: &HeaderValue| value.as_bytes().iter().any(|byte| b"?#".contains(byte));
    let harmless = |(name, value): &(&HeaderName, &HeaderValue)| {
        let is_listed = HARMLESS.contains(*name) || HARMLESS_OF_COPY.contains(*name);
        is_listed && !value.is_sensitive() && !(is_url(name) && has_query(value))
    };
    let kept = headers.iter().filter(harmless);
    let mut out = HeaderMap::new();
    kept.for_each(|(name, value)| {
        out.append(name.clone(), value.clone());
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_stays_at_the_server_that_was_meant() {
        let check = |from: &str, to: &str, expected: bool| {
            let [from, to] = [from, to].map(|text| Url::parse(text).expect("a URL"));
            let followed = RedirectScope::SameServer.check(&from, &to);
            assert_eq!(followed.is_ok(), expected, "{from} {to}");
            RedirectScope::Anywhere.check(&from, &to).expect("anywhere");
        };
        check("https://se/f", "https://SE:443/g", true);
        check("http://se:8080/f", "https://se:8443/f", true);
        check("https://se/f", "http://se/f", false);
        check("https://se/f", "https://se:9200/f", false);
        check("https://se/f", "https://10.1.2.3/f", false);
        check("http://se/f", "https://other/f", false);
    }
}
