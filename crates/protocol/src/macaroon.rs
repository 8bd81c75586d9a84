//! Macaroons: bearer credentials that anybody can narrow and nobody can widen, as dCache and XRootD issue them.
//!
//! What the requester held when a macaroon was made is written into its identifier, which the root key signs,
//! so nothing is stored. Caveats of the first party only; one that is not understood spoils the macaroon. Says
//! what a macaroon carries; whether that suffices is decided by `decide::attenuation`.

mod caveat;
mod chain;
mod request;
mod root_keys;
mod wire;

pub use caveat::{Caveat, InvalidCaveat};
pub use request::{
    InvalidRequest, REQUEST_BYTES_MAX, RequestedMacaroon, parse_request, parse_token_form,
};
pub use root_keys::{RootKeyError, RootKeys};

use crate::identity::{Identity, Method};
use crate::token::{TOKEN_BYTES_MAX, capabilities};
use chain::Macaroon;
use penstock_model::text::hex;
use penstock_model::{
    Attenuation, Capability, CredentialId, NamespacePath, ProblemCode, Timestamp, UserName, VoName,
};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use thiserror::Error;

/// Caveats that a macaroon may have.
const CAVEATS_MAX: usize = 64;
/// The version of [`Bearer`]. Another one is refused, not guessed.
const IDENTIFIER_VERSION: u32 = 1;

/// What a macaroon is made from.
#[derive(Debug, Clone)]
pub struct Grant<'a> {
    /// Who asks, and what they hold at this moment.
    pub identity: &'a Identity,
    /// Added in this order. When the request itself came with a macaroon, that one's caveats come first.
    pub caveats: &'a [Caveat],
    /// From then on it is worth nothing. The caller bounds it by the requester's own credential.
    pub expires: Timestamp,
}

/// A macaroon that is genuine, alive, and used from where it may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedMacaroon {
    /// Who asked for it, and what they held then. `expires` is the earliest of its `before:` caveats.
    pub identity: Identity,
    /// What its caveats leave of that.
    pub attenuation: Attenuation,
    /// All of them, for a macaroon made from this one.
    pub caveats: Vec<Caveat>,
    /// Tells it from all others that were issued. Whoever narrows it does not change that.
    pub nonce: String,
}

/// Why a macaroon is not accepted: 401. Texts never hold the macaroon.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MacaroonError {
    /// Longer than [`TOKEN_BYTES_MAX`], or more than 64 caveats.
    #[error(
        "the macaroon is longer than {TOKEN_BYTES_MAX} bytes or has more than {CAVEATS_MAX} caveats"
    )]
    TooLong,
    /// Not base64 of version 1 or 2 of the format.
    #[error("the macaroon is malformed: {0}")]
    Malformed(&'static str),
    /// Not made here, changed on the way, or made with a root key that is no longer kept.
    #[error("the macaroon's signature is not valid here; ask for a new one")]
    Signature,
    /// Signed by our key, but with an identifier that we do not write.
    #[error("the macaroon's identifier is not understood; ask for a new one")]
    Identifier,
    /// A caveat that cannot be checked cannot be said to hold.
    #[error("the macaroon has a caveat that is not understood: {0}")]
    Caveat(#[from] InvalidCaveat),
    /// No `before:` caveat.
    #[error("the macaroon never ends, so it is not accepted; ask for a new one")]
    Endless,
    /// It has ended.
    #[error("the macaroon expired at {}Z; get a new one", .0.to_fts())]
    Expired(Timestamp),
    /// An `ip:` caveat does not name the client.
    #[error("a caveat of the macaroon forbids its use from {0}")]
    Address(IpAddr),
    /// A `name:` caveat names somebody else.
    #[error("a caveat of the macaroon names another user")]
    Name,
}

impl MacaroonError {
    /// The cause as users are told it.
    pub fn code(&self) -> ProblemCode {
        match self {
            MacaroonError::TooLong
            | MacaroonError::Malformed(_)
            | MacaroonError::Signature
            | MacaroonError::Identifier
            | MacaroonError::Caveat(_)
            | MacaroonError::Endless
            | MacaroonError::Address(_)
            | MacaroonError::Name => ProblemCode::TokenInvalid,
            MacaroonError::Expired(_) => ProblemCode::TokenExpired,
        }
    }
}

/// Why no macaroon was made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IssueError {
    /// Too many caveats or capabilities for a header.
    #[error(
        "the macaroon would be longer than {TOKEN_BYTES_MAX} bytes or have more than {CAVEATS_MAX} caveats"
    )]
    TooLong,
    /// OpenSSL gave no random bytes.
    #[error("no random bytes could be had: {0}")]
    Random(String),
}

/// The identifier: who asked, and what they held. Signed by the root key, readable by whoever holds the
/// macaroon.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bearer {
    v: u32,
    /// Makes every macaroon another one.
    nonce: String,
    user: String,
    issuer: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    vo: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    groups: Vec<String>,
    /// Spelt as scopes of this site's whole namespace.
    scope: String,
    delegation: String,
    /// What sort of name `user` is, which decides whose rules are the user's.
    #[serde(default)]
    method: Method,
}

/// True when a bearer credential can only be a macaroon: a WLCG token has dots and base64 has none.
pub fn looks_like_one(credential: &str) -> bool {
    !credential.contains('.')
}

/// Makes a macaroon with the newest root key. `location` is a hint for its user, for example the site's URL.
pub fn issue(keys: &RootKeys, location: &str, grant: &Grant<'_>) -> Result<String, IssueError> {
    let mut nonce = [0_u8; 16];
    openssl::rand::rand_bytes(&mut nonce).map_err(|why| IssueError::Random(why.to_string()))?;
    let identity = grant.identity;
    let bearer = Bearer {
        v: IDENTIFIER_VERSION,
        nonce: hex(&nonce),
        user: identity.user.to_string(),
        issuer: identity.issuer.clone(),
        vo: identity.vo.as_ref().map(ToString::to_string),
        groups: identity.groups.clone(),
        scope: scope_text(&identity.capabilities),
        delegation: identity.delegation.to_string(),
        method: identity.method,
    };
    let identifier = serde_json::to_vec(&bearer).expect("texts can be written as JSON");
    let mut macaroon = Macaroon::mint(keys.newest(), location, identifier);
    let own = [
        Caveat::Name(identity.user.to_string()),
        Caveat::Before(grant.expires),
    ];
    for caveat in grant.caveats.iter().chain(&own) {
        macaroon.narrow(caveat.to_string().into_bytes());
    }
    let text = wire::to_text(&macaroon).filter(|text| text.len() <= TOKEN_BYTES_MAX);
    match macaroon.caveats.len() <= CAVEATS_MAX {
        true => text.ok_or(IssueError::TooLong),
        false => Err(IssueError::TooLong),
    }
}

/// What a macaroon carries, or why it is not accepted from `peer` at `now`.
pub fn verify(
    keys: &RootKeys,
    text: &str,
    peer: IpAddr,
    now: Timestamp,
) -> Result<VerifiedMacaroon, MacaroonError> {
    if text.len() > TOKEN_BYTES_MAX {
        return Err(MacaroonError::TooLong);
    }
    let macaroon = wire::from_text(text)?;
    if macaroon.caveats.len() > CAVEATS_MAX {
        return Err(MacaroonError::TooLong);
    }
    // Nothing in it is looked at before it is known to be ours.
    if !keys.all().any(|key| macaroon.is_signed_by(key)) {
        return Err(MacaroonError::Signature);
    }
    let caveats = macaroon
        .caveats
        .iter()
        .map(|caveat| Caveat::parse(caveat))
        .collect::<Result<Vec<Caveat>, InvalidCaveat>>()?;
    let bearer = read_identifier(&macaroon.identifier)?;
    let mut attenuation = Attenuation::default();
    let mut expires: Option<Timestamp> = None;
    for caveat in &caveats {
        match caveat {
            Caveat::Path(path) => attenuation.paths.push(path.clone()),
            Caveat::Activities(activities) => attenuation.narrow_to(activities),
            Caveat::Before(end) => expires = Some(expires.map_or(*end, |known| known.min(*end))),
            Caveat::Addresses(networks) => {
                if !networks.iter().any(|network| network.contains(peer)) {
                    return Err(MacaroonError::Address(peer));
                }
            }
            Caveat::Name(name) if *name != bearer.user => return Err(MacaroonError::Name),
            Caveat::Name(_) => {}
        }
    }
    let expires = expires.ok_or(MacaroonError::Endless)?;
    if now >= expires {
        return Err(MacaroonError::Expired(expires));
    }
    Ok(VerifiedMacaroon {
        nonce: bearer.nonce.clone(),
        identity: identity(bearer, expires)?,
        attenuation,
        caveats,
    })
}

fn read_identifier(bytes: &[u8]) -> Result<Bearer, MacaroonError> {
    let bearer: Bearer = serde_json::from_slice(bytes).map_err(|_| MacaroonError::Identifier)?;
    match bearer.v {
        IDENTIFIER_VERSION => Ok(bearer),
        _ => Err(MacaroonError::Identifier),
    }
}

fn identity(bearer: Bearer, expires: Timestamp) -> Result<Identity, MacaroonError> {
    let capabilities = capabilities(&bearer.scope, &NamespacePath::root())
        .map_err(|_| MacaroonError::Identifier)?;
    Ok(Identity {
        method: bearer.method,
        user: UserName::new(bearer.user),
        issuer: bearer.issuer,
        vo: bearer.vo.map(VoName::new),
        fqans: Vec::new(),
        groups: bearer.groups,
        capabilities,
        expires,
        delegation: CredentialId::new(bearer.delegation),
        scope: bearer.scope,
    })
}

/// Capabilities as the scopes that [`capabilities`] reads back, percent-encoded.
fn scope_text(held: &[Capability]) -> String {
    let scope = |capability: &Capability| {
        let is_below_root = capability.directory_only && !capability.path.is_root();
        let slash = if is_below_root { "/" } else { "" };
        let path = capability.path.to_encoded();
        format!("{}:{path}{slash}", capability.right.scope_name())
    };
    held.iter().map(scope).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
