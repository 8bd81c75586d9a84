//! Whom a request comes from, however that was proved: by a token or by a certificate.

use openssl::hash::{MessageDigest, hash};
use penstock_model::{Capability, CredentialId, Timestamp, UserName, VoName};
use serde::{Deserialize, Serialize};

/// Whom a credential speaks of, and what it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// How it was proved.
    pub method: Method,
    /// A token's subject, unique only together with the issuer; a certificate's subject in slash form.
    pub user: UserName,
    /// Who vouches for it: a token's issuer, or the subject of the CA.
    pub issuer: String,
    /// As configured for a token's issuer, else the first part of the first group, else the issuer's host.
    /// A certificate's is that of its VOMS attributes, or the site's list of members tells it.
    pub vo: Option<VoName>,
    /// VOMS attributes as they came, such as `/dteam/Role=NULL/Capability=NULL`.
    pub fqans: Vec<String>,
    /// Groups that may be used to authorise. Empty when a token carries a capability of the WLCG profile,
    /// because groups must be ignored then. VOMS attributes stand
    /// here in plain form: `/dteam`, `/dteam/Role=production`.
    pub groups: Vec<String>,
    /// What a token allows, in terms of this site's namespace.
    pub capabilities: Vec<Capability>,
    /// When the token, or the first certificate of the chain, ends.
    pub expires: Timestamp,
    /// The same for every credential of this subject: first 16 hex digits of SHA-1 over issuer and subject
    /// of a token, over the subject and the VOMS attributes of a certificate.
    pub delegation: CredentialId,
    /// All scopes as they came, also those that mean nothing to a storage element.
    pub scope: String,
}

/// How somebody proved who they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// A bearer token.
    #[default]
    Token,
    /// An X.509 certificate or a proxy of one.
    Certificate,
}

impl Identity {
    /// True when the token carries this scope, spelt exactly so (`fts`, `penstock.admin`).
    pub fn has_scope(&self, name: &str) -> bool {
        self.scope
            .split_ascii_whitespace()
            .any(|scope| scope == name)
    }
}

/// The first 16 hex digits of a SHA-1, by which FTS names credentials and their owners.
pub(crate) fn sha1_prefix(bytes: &[u8]) -> String {
    let digest = hash(MessageDigest::sha1(), bytes).expect("OpenSSL always has SHA-1 for naming");
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
