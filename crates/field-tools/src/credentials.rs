//! Which token each server is shown. Whoever is shown a token can use it wherever it counts, so one server's token is
//! no other's, and none crosses a line that is not encrypted unless somebody said so.

use crate::remote_error::RemoteError;
use http::HeaderValue;
use url::Url;

/// What a request shows of its sender.
#[derive(Clone, PartialEq, Eq)]
pub enum ShownCredentials {
    /// This bearer token.
    Token(String),
    /// Nothing, because there is no token for that server.
    Nothing,
    /// Nothing, although there is a token: the connection is not encrypted.
    Withheld,
}

/// What each request shows. Asked anew for each, so that a long command can go on with a fresh token.
pub trait Credentials: Send + Sync {
    /// What is shown at a URL.
    fn at(&self, url: &Url) -> Result<ShownCredentials, RemoteError>;
}

impl ShownCredentials {
    /// The token as a header (RFC 6750 §2.1).
    pub fn header(&self, url: &Url) -> Result<Option<HeaderValue>, RemoteError> {
        let ShownCredentials::Token(token) = self else {
            return Ok(None);
        };
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
            RemoteError::nonsense(url, "the token has characters that no header can carry")
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

impl std::fmt::Debug for ShownCredentials {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            ShownCredentials::Token(_) => "Token",
            ShownCredentials::Nothing => "Nothing",
            ShownCredentials::Withheld => "Withheld",
        })
    }
}

/// One token for every server, or none. For those who know whom they speak to.
#[derive(Clone)]
pub struct OneToken(pub Option<String>);

impl Credentials for OneToken {
    fn at(&self, _: &Url) -> Result<ShownCredentials, RemoteError> {
        Ok(self
            .0
            .clone()
            .map_or(ShownCredentials::Nothing, ShownCredentials::Token))
    }
}
