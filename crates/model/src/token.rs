//! Tokens that open jobs refer to: kept as long as a job needs them, and renewed at their issuers.
//!
//! A token is named after its first text, and keeps that name when a newer one takes its place.

use crate::{CredentialId, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A token, or the query of a URL that holds credentials, that transfers of a job refer to.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobToken {
    /// Under which they do.
    pub id: CredentialId,
    /// The token or query.
    pub text: String,
    /// How it is renewed. `None`: it is used as it is until it ends.
    pub renewal: Option<Renewal>,
}

/// What is asked of an issuer when a token is to be renewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The issuer, as the token names it.
    pub issuer: String,
    /// The scopes that the next one must have.
    pub scope: String,
    /// For whom the next one must be meant; several are separated by blanks.
    pub audience: String,
    /// When a newer one takes the place of the present one: some time before that ends.
    pub renew_at: Timestamp,
}

/// What an issuer gave for a token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewedToken {
    /// A newer one and when it is to be renewed itself. `None`: the present one stays.
    pub access: Option<(String, Timestamp)>,
    /// With which the next one is got.
    pub refresh: String,
}

/// A token as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredToken {
    /// The newest.
    pub text: String,
    /// How it is renewed, and with what; nothing of that before the issuer was asked for the first time.
    pub renewal: Option<(Renewal, Option<String>)>,
}

impl fmt::Debug for JobToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("JobToken");
        shown.field("id", &self.id).field("renewal", &self.renewal);
        shown.finish_non_exhaustive()
    }
}

impl fmt::Debug for RenewedToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let renew_at = self.access.as_ref().map(|(_, renew_at)| renew_at);
        let mut shown = out.debug_struct("RenewedToken");
        shown.field("renew_at", &renew_at);
        shown.finish_non_exhaustive()
    }
}

impl fmt::Debug for StoredToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let renewal = self.renewal.as_ref().map(|(renewal, _)| renewal);
        let mut shown = out.debug_struct("StoredToken");
        shown.field("renewal", &renewal);
        shown.finish_non_exhaustive()
    }
}
