//! What access links give: who they speak for, and what is told when they give nothing.

use super::ApiError;
use penstock_clock::wall_clock;
use penstock_model::{CredentialId, ProblemCode, Timestamp, UserName, VoName};
use penstock_persistence::access_links::{
    AccessLink, AccessLinkError, AccessLinkKind, AccessLinks, LinkEnd, LinkSecret, OpenedLink,
};
use penstock_protocol::identity::{Identity, Method};
use penstock_protocol::token::key_id;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Who a link speaks for, as it is kept with the link.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LinkGrant {
    method: Method,
    user: UserName,
    issuer: String,
    vo: Option<VoName>,
    fqans: Vec<String>,
    groups: Vec<String>,
    /// When the credential ends with which the link was made.
    pub(super) expires: Timestamp,
    delegation: CredentialId,
    scope: String,
    /// The key that has signed the token with which the link was made. `None`: it was made with a certificate.
    key: Option<String>,
    /// Of a login link: how long its session lasts.
    #[serde(default)]
    pub(super) session_seconds: u64,
}

impl LinkGrant {
    /// `token`: the one that has proved who the maker is, if one has.
    pub(super) fn of(identity: &Identity, token: Option<&str>, session: Duration) -> LinkGrant {
        LinkGrant {
            method: identity.method,
            user: identity.user.clone(),
            issuer: identity.issuer.clone(),
            vo: identity.vo.clone(),
            fqans: identity.fqans.clone(),
            groups: identity.groups.clone(),
            expires: identity.expires,
            delegation: identity.delegation.clone(),
            scope: identity.scope.clone(),
            key: token.and_then(key_id),
            session_seconds: session.as_secs(),
        }
    }

    pub(super) fn read(opened: &OpenedLink) -> Result<LinkGrant, ApiError> {
        serde_json::from_slice(&opened.grant).map_err(|error| {
            tracing::error!(id = %opened.link.id, %error, "what an access link gives cannot be read");
            ApiError::new(ProblemCode::InternalError, "the link cannot be read; ask for a new one")
        })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("all keys are text")
    }

    /// The issuer of the maker's token, and which of its keys has signed it.
    pub(super) fn signer(&self) -> Option<(&str, &str)> {
        Some((self.issuer.as_str(), self.key.as_deref()?))
    }

    /// The maker, until the link ends. It holds no rights on files.
    pub(super) fn identity(self, expires: Timestamp) -> Identity {
        Identity {
            method: self.method,
            user: self.user,
            issuer: self.issuer,
            vo: self.vo,
            fqans: self.fqans,
            groups: self.groups,
            capabilities: Vec::new(),
            expires,
            delegation: self.delegation,
            scope: self.scope,
        }
    }
}

/// What a session gives, and until when; `None`: the token is none of a session.
pub(super) async fn grant_of_session(
    links: &Arc<AccessLinks>,
    token: &str,
) -> Result<Option<(LinkGrant, Timestamp)>, ApiError> {
    let Some(secret) = LinkSecret::parse(AccessLinkKind::Session, token) else {
        return Ok(None);
    };
    let opened = links
        .find(AccessLinkKind::Session, &secret, wall_clock())
        .map_err(|end| {
            tracing::info!(%end, "refused a session");
            of_bearer(end).told()
        })?;
    note_use(links, &opened.link).await;
    Ok(Some((LinkGrant::read(&opened)?, opened.link.expires)))
}

/// Writes that a link is used, where that is due; a disk that fails keeps nobody from reading.
pub(super) async fn note_use(links: &Arc<AccessLinks>, link: &AccessLink) {
    let now = wall_clock();
    if !links.is_use_due(link, now) {
        return;
    }
    let (links, id) = (Arc::clone(links), link.id.clone());
    let noted = tokio::task::spawn_blocking(move || links.note_use(&id, now)).await;
    let (id, kind, user) = (&link.id, link.kind.name(), &link.user);
    match noted {
        Ok(Ok(true)) => {
            tracing::info!(%id, kind, %user, "an access link is used for the first time")
        }
        Ok(Ok(false)) => {}
        Ok(Err(error)) => tracing::warn!(%id, %error, "the use of an access link is not recorded"),
        Err(error) => tracing::error!(%id, %error, "recording the use of an access link failed"),
    }
}

/// A session or view that gives nothing (any more).
pub(super) fn of_bearer(end: LinkEnd) -> ApiError {
    let code = match end {
        LinkEnd::Unknown => ProblemCode::TokenInvalid,
        LinkEnd::Expired(_) | LinkEnd::Used(_) | LinkEnd::Revoked(_) => ProblemCode::TokenExpired,
    };
    ApiError::new(code, end.to_string())
}

impl From<AccessLinkError> for ApiError {
    fn from(error: AccessLinkError) -> ApiError {
        match error {
            AccessLinkError::Ended(end) => of_bearer(end),
            AccessLinkError::TooManyOfOwner
            | AccessLinkError::TooManyKeptOfOwner
            | AccessLinkError::TooMany => {
                ApiError::new(ProblemCode::AccessLinksTooMany, error.to_string())
            }
            AccessLinkError::Sqlite { .. }
            | AccessLinkError::TooNew { .. }
            | AccessLinkError::OpenSsl(_) => {
                tracing::error!(%error, "the access links cannot be changed");
                let text =
                    "the link cannot be stored now; try again, or ask the site's administrators";
                ApiError::new(ProblemCode::JournalFailed, text)
            }
        }
    }
}
