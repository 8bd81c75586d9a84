//! Bearer tokens of the WLCG token profile 1.3: signing our own, verifying those of trusted issuers, and
//! reading what they allow.
//!
//! Says *who* and *what they carry*; whether that suffices for an operation is decided by
//! `decide::authorization`. Texts made here never hold a token, because they end up in logs.

mod contents;
mod keys;
mod ring;
mod scope;
mod signature;
mod signer;
mod thumbprint;
mod verifier;

#[cfg(test)]
mod tests;

pub use contents::{Contents, contents};
pub use keys::{DocumentFetch, FetchDocument};
pub use ring::{KeyRing, KeyState, RingError, RingKey, SIGNS_AFTER, SIGNS_SOON};
pub use scope::{InvalidScope, capabilities};
pub use signer::{Signer, SignerError};
pub use thumbprint::{key_fingerprints, thumbprint};
pub use verifier::{IssuerVos, TokenOrigin, TrustedIssuer, Verifier, key_id};

use crate::identity::NameSource;
use openssl::sha::sha256;
use penstock_model::text::hex;
use penstock_model::url::InvalidUrl;
use penstock_model::{CredentialId, FileUrl, JobToken, ProblemCode, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thiserror::Error;

/// Bytes that a token may have; HTTP servers of the field bound all headers at 16 to 64 KiB.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// The audience that every relying party of the profile accepts.
pub const ANY_AUDIENCE: &str = "https://wlcg.cern.ch/jwt/v1/any";

/// The scope by which a token of the site's own issuer administers its transfer service. Never with [`ANY_AUDIENCE`]:
/// whoever is shown such a token could use it here.
pub const ADMIN_SCOPE: &str = "penstock.admin";

/// How long tokens of an issuer may live, where a site says nothing else. WLCG profile 1.3 recommends 20 minutes for
/// access tokens and allows six hours; those of robots are made for days or weeks. Whoever gets hold of a token has it
/// for as long.
pub const LIFE_MAX: Duration = Duration::from_secs(30 * 86_400);

/// What a token says, with the claim names of the profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Who issued it: a URL, compared as text.
    pub iss: String,
    /// Whom it speaks of, unique within the issuer.
    pub sub: String,
    pub aud: Vec<String>,
    /// Seconds since 1970 from which on it is worth nothing.
    pub exp: i64,
    /// Seconds since 1970 before which it is worth nothing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nbf: Option<i64>,
    /// Seconds since 1970 when it was made.
    pub iat: i64,
    /// Unique within the issuer.
    pub jti: String,
    /// Scopes, separated by blanks.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub scope: String,
    /// Version of the profile; `1.0` for tokens that we make.
    #[serde(rename = "wlcg.ver")]
    pub wlcg_ver: String,
    /// Groups, each beginning with `/`.
    #[serde(rename = "wlcg.groups", skip_serializing_if = "Vec::is_empty", default)]
    pub wlcg_groups: Vec<String>,
    /// The OAuth client to which it was given.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_id: Option<String>,
}

/// Why a token is not accepted. All of them are answered 401 with `WWW-Authenticate: Bearer`, except
/// [`TokenError::KeysUnavailable`], which is our trouble and not the client's (503).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TokenError {
    /// Longer than [`TOKEN_BYTES_MAX`].
    #[error("the token is longer than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    /// Not three parts of base64url with JSON objects in the first two.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// Signed in a way that the profile forbids, or not signed.
    #[error("the token's signature algorithm '{0}' is not accepted; use RS256 or ES256")]
    Algorithm(String),
    /// A claim that the profile requires is absent or of the wrong type.
    #[error("the token has no valid claim '{0}', which the WLCG profile requires")]
    Claim(&'static str),
    /// The issuer is not in the trust list.
    #[error("the token's issuer '{0}' is not trusted here; ask the site to add it")]
    Issuer(String),
    /// The issuer publishes no key of that name.
    #[error("the issuer '{issuer}' publishes no usable key '{kid}'")]
    UnknownKey {
        issuer: String,
        /// The key's name as the token gives it, shortened.
        kid: String,
    },
    /// The keys of the issuer could not be fetched and none are remembered.
    #[error("the keys of '{issuer}' cannot be fetched: {why}; try again later")]
    KeysUnavailable {
        issuer: String,
        /// What went wrong.
        why: String,
    },
    /// The signature does not fit the key and the text.
    #[error("the token's signature is not valid")]
    Signature,
    /// It has ended.
    #[error("the token expired at {}Z; get a new one", .0.to_fts())]
    Expired(Timestamp),
    /// An administrator's token that has ended.
    #[error("the administrator's token expired at {}Z; make a new one on the site's machine: {RENEW_ADMIN}", .0.to_fts())]
    AdminExpired(Timestamp),
    /// An administrator's token that every server to which it is shown could use.
    #[error(
        "a token with the scope {ADMIN_SCOPE} must name the service that it is for as its audience, and this one is for any; \
             make a new one on the site's machine: {RENEW_ADMIN}"
    )]
    AdminForAny,
    /// It lives longer than the site lets tokens of its issuer live.
    #[error("the token is made for {} days, and this site takes tokens of '{issuer}' for {} days at most \
             (token_life_max); get one with a shorter life", life.as_secs().div_ceil(86_400), days(*max))]
    Life {
        issuer: String,
        /// How long it lives.
        life: Duration,
        /// How long it may.
        max: Duration,
    },
    /// It has not begun, even allowing for skewed clocks.
    #[error("the token is not valid before {}Z; check the clocks", .0.to_fts())]
    NotYetValid(Timestamp),
    /// Made for somebody else.
    #[error(
        "the token is meant for another audience ({named}); ask for one with an audience of this service: {accepted}"
    )]
    Audience { named: String, accepted: String },
    /// A version of the profile that we do not know.
    #[error("the token follows version '{0}' of the WLCG profile; only 1.x is known")]
    ProfileVersion(String),
    /// A storage scope that cannot be understood must not be guessed.
    #[error("the token carries an invalid scope: {0}")]
    Scope(#[from] InvalidScope),
}

impl TokenError {
    /// The cause as users are told it.
    pub fn code(&self) -> ProblemCode {
        match self {
            TokenError::TooLong
            | TokenError::Malformed(_)
            | TokenError::Algorithm(_)
            | TokenError::Claim(_)
            | TokenError::UnknownKey { .. }
            | TokenError::Signature
            | TokenError::Life { .. }
            | TokenError::ProfileVersion(_)
            | TokenError::Scope(_) => ProblemCode::TokenInvalid,
            TokenError::Issuer(_) => ProblemCode::IssuerUntrusted,
            TokenError::KeysUnavailable { .. } => ProblemCode::IssuerUnreachable,
            TokenError::Expired(_) | TokenError::AdminExpired(_) | TokenError::NotYetValid(_) => {
                ProblemCode::TokenExpired
            }
            TokenError::AdminForAny | TokenError::Audience { .. } => {
                ProblemCode::TokenAudienceWrong
            }
        }
    }
}

/// The command that makes a new token for a site's owner.
const RENEW_ADMIN: &str = "penstock token --admin --dir SITE";

/// A span in days, as people write it.
fn days(span: Duration) -> String {
    let tenths = span.as_secs() / 8640;
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        tenth => format!("{}.{tenth}", tenths / 10),
    }
}

/// A stranger's text as it may be shown: printable, and not long enough to hold a secret.
fn shown(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { '?' } else { c });
    let short: String = printable.clone().take(120).collect();
    match printable.count() > 120 {
        true => format!("{short}…"),
        false => short,
    }
}

/// Names a token without revealing it: half of its SHA-256 in hex. Tokens of two users must not share a name, and one
/// of them may be made for that, so FTS's 16 digits of SHA-1 are too few.
pub fn credential_id(token: &str) -> CredentialId {
    CredentialId::new(hex(&sha256(token.as_bytes())[..16]))
}

/// Names a token of a job without revealing it. Each submitter's has a name of its own: what an issuer gives for a token
/// that one of them may have renewed is not for others who have got hold of its text.
pub fn job_token_id(submitter: &CredentialId, token: &str) -> CredentialId {
    // A submitter's name holds no line end, so that no two pairs have one text.
    credential_id(&[submitter.as_str(), "\n", token].concat())
}

/// Takes the credentials out of a URL. Gives the URL as it is kept and shown, and its query where that holds some, to
/// be kept with the job's tokens: sealed, and for as long as the job needs it.
///
/// Errors: without them the URL names no file.
pub fn without_credentials(url: FileUrl) -> Result<(FileUrl, Option<JobToken>), InvalidUrl> {
    let (url, query) = url.split_credentials()?;
    let query = query.map(|text| JobToken {
        id: credential_id(&text),
        text,
        renewal: None,
    });
    Ok((url, query))
}

/// Where an issuer tells what it offers (OpenID Connect Discovery 1.0 §4).
pub fn configuration_address(issuer: &str) -> String {
    let base = issuer.trim_end_matches('/');
    format!("{base}/.well-known/openid-configuration")
}

/// What `GET /.well-known/openid-configuration` answers for our own issuer (OpenID Connect Discovery 1.0 §3).
pub fn openid_configuration(issuer: &str) -> serde_json::Value {
    let base = issuer.trim_end_matches('/');
    serde_json::json!({
        "issuer": issuer,
        "jwks_uri": format!("{base}/jwks"),
        "scopes_supported": ["storage.read", "storage.create", "storage.modify", "storage.stage",
                             "storage.poll", "wlcg.groups", "fts"],
        "response_types_supported": ["token"],
        "grant_types_supported": ["client_credentials"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
        "claims_supported": ["sub", "iss", "aud", "exp", "nbf", "iat", "jti", "scope", "wlcg.ver",
                             "wlcg.groups"],
    })
}

/// The stable name of a subject: the same for all its tokens, so that jobs can be found again with a newer
/// one.
pub fn delegation_id(issuer: &str, subject: &str) -> CredentialId {
    crate::identity::delegation_id(NameSource::TokenSubject, &[issuer, subject])
}
