//! Tokens from a storage element's OAuth token endpoint, for a delegated proxy: as StoRM gives them, and XRootD macaroons.
//!
//! Asked only where a macaroon cannot be had by POST to the file. The endpoint must be on the storage element's own
//! scheme, host and port: what a document says never sends the proxy elsewhere.

use super::AgentSetup;
use super::proxy::ProxyCredential;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method};
use penstock_protocol::http1::client::ClientRequest;
use serde::Deserialize;
use std::time::Duration;
use url::Url;

/// Bytes of an answer; discovery documents have a few thousand.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// RFC 8414 §3, and OpenID Connect Discovery 1.0 §4, which older servers have alone.
const DISCOVERY: [&str; 2] = [
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
];

/// What a token endpoint gave.
pub(super) struct AccessToken {
    pub(super) text: String,
    /// Seconds.
    pub(super) expires_in: Option<f64>,
}

impl AgentSetup {
    /// A token for some activities below a path. Errors: why there is none.
    pub(super) async fn access_token(
        &self,
        place: &Url,
        activities: &str,
        validity: Duration,
        proxy: &ProxyCredential,
    ) -> Result<AccessToken, String> {
        let endpoint = self.token_endpoint(place, proxy).await?;
        let scope: Vec<String> = activities
            .split(',')
            .map(|activity| format!("{activity}:{}", place.path()))
            .collect();
        // RFC 6749 §4.4.2; `expire_in` is XRootD's.
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "client_credentials")
            .append_pair("expire_in", &validity.as_secs().max(60).to_string())
            .append_pair("scope", &scope.join(" "))
            .finish();
        let mut request = outgoing(Method::POST, endpoint, proxy);
        let media_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers.insert(CONTENT_TYPE, media_type);
        let sent = self.client.send_bytes(request, form.as_bytes()).await;
        let mut answer = sent.map_err(|why| format!("its token endpoint: {why}"))?;
        let status = answer.status.as_u16();
        if status != 200 {
            return Err(format!("its token endpoint answered {status}"));
        }
        let body = answer.read_all(ANSWER_BYTES_MAX).await;
        let body = body.map_err(|why| format!("its token endpoint: {why}"))?;
        parse_token(&body).ok_or_else(|| "its token endpoint gave no token".to_owned())
    }

    async fn token_endpoint(&self, place: &Url, proxy: &ProxyCredential) -> Result<Url, String> {
        for path in DISCOVERY {
            let mut url = place.clone();
            url.set_path(path);
            url.set_query(None);
            let Ok(mut answer) = self.client.send(outgoing(Method::GET, url, proxy)).await else {
                continue;
            };
            if answer.status.as_u16() != 200 {
                continue;
            }
            if let Ok(body) = answer.read_all(ANSWER_BYTES_MAX).await
                && let Some(endpoint) = parse_discovery(&body, place)
            {
                return Ok(endpoint);
            }
        }
        Err("it names no token endpoint".to_owned())
    }
}

fn outgoing(method: Method, url: Url, proxy: &ProxyCredential) -> ClientRequest {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    ClientRequest {
        method,
        url,
        headers,
        identity: Some(proxy.identity.clone()),
    }
}

/// The endpoint, unless it is on another server.
fn parse_discovery(body: &[u8], place: &Url) -> Option<Url> {
    #[derive(Deserialize)]
    struct Document {
        token_endpoint: String,
    }
    let document: Document = serde_json::from_slice(body).ok()?;
    let endpoint = Url::parse(&document.token_endpoint).ok()?;
    let server = |url: &Url| {
        let port = url.port().unwrap_or(443);
        (url.host_str().map(str::to_owned), port)
    };
    // `davs` is https with another name.
    let is_own = endpoint.scheme() == "https" && server(&endpoint) == server(place);
    is_own.then_some(endpoint)
}

fn parse_token(body: &[u8]) -> Option<AccessToken> {
    #[derive(Deserialize)]
    struct Document {
        access_token: String,
        expires_in: Option<f64>,
    }
    let document: Document = serde_json::from_slice(body).ok()?;
    Some(AccessToken {
        text: document.access_token,
        expires_in: document.expires_in,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_on_another_server_is_not_asked() {
        let check = |endpoint: &str, expected: bool| {
            let place = Url::parse("https://se.org:8443/data").expect("a URL");
            let body = format!("{{\"token_endpoint\":\"{endpoint}\",\"issuer\":\"x\"}}");
            let found = parse_discovery(body.as_bytes(), &place);
            assert_eq!(found.is_some(), expected, "{endpoint}");
        };
        check("https://se.org:8443/oauth/token", true);
        check("https://se.org/oauth/token", false);
        check("https://evil.org:8443/oauth/token", false);
        check("http://se.org:8443/oauth/token", false);
        check("/oauth/token", false);
    }
}
