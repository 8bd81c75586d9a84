//! OAuth 2.0 as a client of a token issuer: exchanging a user's token for a refresh token (RFC 8693) and refreshing
//! (RFC 6749 §6). Texts made here never hold a token or a secret.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use std::fmt;
use std::time::Duration;
use thiserror::Error;
use url::Url;

/// Bytes of an answer; discovery documents have a few thousand, tokens up to 16 KiB each.
pub const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Characters of an issuer's own explanation that are shown.
const EXPLANATION_MAX: usize = 200;
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const REFRESH_TOKEN: &str = "urn:ietf:params:oauth:token-type:refresh_token";

/// By what an issuer knows its client.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCredentials {
    /// Its name there.
    pub id: String,
    /// What only the two know.
    pub secret: String,
}

impl fmt::Debug for ClientCredentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ClientCredentials({})", self.id)
    }
}

impl ClientCredentials {
    /// For the header `Authorization` (RFC 6749 §2.3.1). It is never printed.
    pub fn basic(&self) -> HeaderValue {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let both = format!("{}:{}", encoded(&self.id), encoded(&self.secret));
        let value = format!("Basic {}", STANDARD.encode(both));
        let mut value = HeaderValue::try_from(value).expect("base64 is printable ASCII");
        value.set_sensitive(true);
        value
    }
}

/// What a token endpoint is asked for.
#[derive(Clone, Copy)]
pub enum Grant<'a> {
    /// A refresh token for this access token.
    Exchange(&'a str),
    /// A newer access token for this refresh token.
    Refresh(&'a str),
}

impl Grant<'_> {
    /// The request's body, `application/x-www-form-urlencoded`. `scope` and `audience` are what the next access token
    /// must have; an empty audience is left to the issuer.
    pub fn form(&self, scope: &str, audience: &str) -> String {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        match self {
            Grant::Exchange(token) => {
                form.append_pair("grant_type", EXCHANGE);
                form.append_pair("requested_token_type", REFRESH_TOKEN);
                form.append_pair("subject_token_type", ACCESS_TOKEN);
                form.append_pair("subject_token", token);
            }
            Grant::Refresh(token) => {
                form.append_pair("grant_type", "refresh_token");
                form.append_pair("refresh_token", token);
            }
        }
        form.append_pair("scope", scope);
        if !audience.is_empty() {
            form.append_pair("audience", audience);
        }
        form.finish()
    }

    fn token(&self) -> &str {
        match self {
            Grant::Exchange(token) | Grant::Refresh(token) => token,
        }
    }

    /// Reads the answer to it.
    pub fn parse(&self, status: u16, body: &[u8]) -> Result<IssuedTokens, TokenRefusal> {
        if status != 200 {
            return Err(TokenRefusal::read(status, body, self.token()));
        }
        let told: TokenDocument = serde_json::from_slice(body).map_err(|_| TokenRefusal {
            status,
            error: "no answer of a token endpoint".to_owned(),
            explanation: String::new(),
        })?;
        let is_refresh = told.issued_token_type.as_deref() == Some(REFRESH_TOKEN);
        let given = match self {
            // RFC 8693 §2.2.1: the key of what was issued is `access_token`, whatever it is.
            Grant::Exchange(_) if is_refresh && told.refresh_token.is_none() => IssuedTokens {
                access: None,
                refresh: told.access_token,
                expires_in: None,
            },
            Grant::Exchange(_) | Grant::Refresh(_) => IssuedTokens {
                access: told.access_token,
                refresh: told.refresh_token,
                expires_in: told
                    .expires_in
                    .filter(|seconds| (0.0..1e9).contains(seconds))
                    .map(Duration::from_secs_f64),
            },
        };
        Ok(given)
    }
}

#[derive(Deserialize)]
struct TokenDocument {
    access_token: Option<String>,
    refresh_token: Option<String>,
    issued_token_type: Option<String>,
    expires_in: Option<f64>,
}

/// What a token endpoint gave.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedTokens {
    /// A newer access token.
    pub access: Option<String>,
    /// A newer refresh token; the old one may be worth nothing from now on.
    pub refresh: Option<String>,
    /// How long the access token lives.
    pub expires_in: Option<Duration>,
}

impl fmt::Debug for IssuedTokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("IssuedTokens");
        shown.field("access", &self.access.is_some());
        shown.field("refresh", &self.refresh.is_some());
        shown.field("expires_in", &self.expires_in).finish()
    }
}

/// Why a token endpoint gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("its token endpoint answered {status} {error}{explanation}")]
pub struct TokenRefusal {
    /// Of HTTP.
    pub status: u16,
    /// The code of RFC 6749 §5.2, such as `invalid_grant`; empty when there is none.
    pub error: String,
    /// What it says to people, in brackets, with a blank before it; or empty.
    explanation: String,
}

impl TokenRefusal {
    /// `sent` is the token that the issuer was asked about.
    fn read(status: u16, body: &[u8], sent: &str) -> TokenRefusal {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct ErrorReply {
            error: String,
            error_description: String,
        }
        let told: ErrorReply = serde_json::from_slice(body).unwrap_or_default();
        // An issuer that repeats what it was sent must not bring a token into our texts, in no field.
        let plain = |text: &str| {
            let printable: String = text.chars().filter(|c| !c.is_control()).collect();
            match printable.contains("eyJ") || (!sent.is_empty() && printable.contains(sent)) {
                true => String::new(),
                false => printable.chars().take(EXPLANATION_MAX).collect(),
            }
        };
        let explanation = match plain(&told.error_description) {
            text if text.is_empty() => String::new(),
            text => format!(" ({text})"),
        };
        TokenRefusal {
            status,
            error: plain(&told.error),
            explanation,
        }
    }
}

/// The token endpoint that an issuer's discovery document names (RFC 8414 §2). Errors: for people.
pub fn token_endpoint(issuer: &str, document: &[u8]) -> Result<Url, String> {
    #[derive(Deserialize)]
    struct DiscoveryDocument {
        issuer: String,
        token_endpoint: String,
    }
    let document: DiscoveryDocument = serde_json::from_slice(document)
        .map_err(|why| format!("its configuration is not understood: {why}"))?;
    // RFC 8414 §3.3: a document of somebody else must not be used.
    if document.issuer != issuer {
        return Err("its configuration is another issuer's".to_owned());
    }
    let endpoint = Url::parse(&document.token_endpoint).ok();
    endpoint
        .filter(|url| url.scheme() == "https")
        .ok_or_else(|| "its token endpoint is not an https:// URL".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_asks_for_a_refresh_token_with_the_same_rights() {
        let form = Grant::Exchange("eyJ.a.b").form("offline_access storage.read:/", "se.org");
        let pairs: Vec<(String, String)> = url::form_urlencoded::parse(form.as_bytes())
            .into_owned()
            .collect();
        let of = |key: &str| {
            let found = pairs.iter().find(|(name, _)| name == key);
            found.map_or("", |(_, value)| value.as_str())
        };
        assert_eq!(of("grant_type"), EXCHANGE);
        assert_eq!(of("requested_token_type"), REFRESH_TOKEN);
        assert_eq!(of("subject_token"), "eyJ.a.b");
        assert_eq!(of("scope"), "offline_access storage.read:/");
        assert_eq!(of("audience"), "se.org");
        assert!(!Grant::Refresh("r").form("s", "").contains("audience"));
    }

    #[test]
    fn both_ways_to_give_a_refresh_token_are_read() {
        let read = |grant: Grant<'_>, body: &str| grant.parse(200, body.as_bytes());
        let issued = format!(
            "{{\"access_token\":\"r1\",\"issued_token_type\":\"{REFRESH_TOKEN}\",\"token_type\":\"N_A\"}}"
        );
        let given = read(Grant::Exchange("t"), &issued).expect("given");
        assert_eq!((given.access, given.refresh.as_deref()), (None, Some("r1")));
        let both = r#"{"access_token":"a","refresh_token":"r2","expires_in":3600}"#;
        let given = read(Grant::Exchange("t"), both).expect("given");
        assert_eq!(
            (given.access.as_deref(), given.refresh.as_deref()),
            (Some("a"), Some("r2"))
        );
        let given = read(Grant::Refresh("r"), both).expect("given");
        assert_eq!(given.expires_in, Some(Duration::from_secs(3600)));
        assert!(read(Grant::Refresh("r"), "<html>").is_err());
        let odd = r#"{"access_token":"a","expires_in":-1e300}"#;
        assert_eq!(
            read(Grant::Refresh("r"), odd).expect("given").expires_in,
            None
        );
    }

    #[test]
    fn a_refusal_is_told_without_what_was_sent() {
        let read = |status, body: &str| {
            let refused = Grant::Refresh("opaque-7d1f").parse(status, body.as_bytes());
            refused.expect_err("refused").to_string()
        };
        assert_eq!(
            read(
                400,
                r#"{"error":"invalid_grant","error_description":"used\nbefore"}"#
            ),
            "its token endpoint answered 400 invalid_grant (usedbefore)"
        );
        let echoing = r#"{"error":"invalid_grant","error_description":"bad token eyJhbGciOi"}"#;
        assert!(!read(400, echoing).contains("eyJ"));
        for echoing in [
            r#"{"error":"bad token eyJhbGciOi"}"#,
            r#"{"error":"unknown opaque-7d1f"}"#,
            r#"{"error":"invalid_grant","error_description":"opaque-7d1f was used"}"#,
        ] {
            let told = read(400, echoing);
            assert!(!told.contains("eyJ") && !told.contains("7d1f"), "{told}");
        }
        assert_eq!(read(502, "<html>"), "its token endpoint answered 502 ");
    }

    #[test]
    fn client_credentials_are_encoded_and_never_shown() {
        let client = ClientCredentials {
            id: "pen:stock".to_owned(),
            secret: "ü %".to_owned(),
        };
        let expected = STANDARD.encode("pen%3Astock:%C3%BC%20%25");
        assert_eq!(
            client.basic().as_bytes(),
            format!("Basic {expected}").as_bytes()
        );
        assert_eq!(
            format!("{:?} {:?}", client, client.basic()),
            "ClientCredentials(pen:stock) Sensitive"
        );
    }

    #[test]
    fn only_the_issuers_own_document_tells_its_endpoint() {
        let check = |issuer: &str, endpoint: &str, expected: bool| {
            let body = format!("{{\"issuer\":\"{issuer}\",\"token_endpoint\":\"{endpoint}\"}}");
            let found = token_endpoint("https://iam/", body.as_bytes());
            assert_eq!(found.is_ok(), expected, "{issuer} {endpoint}: {found:?}");
        };
        check("https://iam/", "https://iam/token", true);
        check("https://iam", "https://iam/token", false);
        check("https://iam/", "http://iam/token", false);
        check("https://iam/", "token", false);
        assert!(token_endpoint("https://iam/", b"[").is_err());
    }
}
