//! Whom a request comes from, however that was proved: by a token or by a certificate.

use crate::vo;
use openssl::sha::Sha256;
use penstock_model::text::hex;
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
    /// A token's as configured for its issuer, or derived from the issuer and its first group. A certificate's is that
    /// of its VOMS attributes, or the site's list of members tells it. `None`: who belongs to no VO.
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
    /// The same for every credential of this subject: [`delegation_id`] of issuer and subject of a token, of the
    /// subject and the VOMS attributes of a certificate.
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

    /// Names the user, whatever their credential says of VOs: the delegation of a certificate is another for each set and
    /// order of its attributes, and whoever holds them makes as many as they like.
    pub fn user_id(&self) -> CredentialId {
        match self.method {
            Method::Token => self.delegation.clone(),
            Method::Certificate => {
                delegation_id(NameSource::CertificateSubject, &[self.user.as_str()])
            }
        }
    }

    /// Whether this user is the one who submitted a job, by the names that its record keeps.
    pub fn submitted(&self, user: &UserName, delegation: &CredentialId) -> bool {
        // A token's subject is unique only with its issuer, which no record names; the delegation stands for both.
        *user == self.user
            && match self.method {
                Method::Certificate => user.as_str().starts_with('/'),
                Method::Token => *delegation == self.delegation,
            }
    }

    /// The VO whose members share this user's jobs: for who belongs to none, one of which nobody else is.
    pub fn vo_or_private(&self) -> VoName {
        let user = self.user.as_str();
        self.vo.clone().unwrap_or_else(|| match self.method {
            Method::Token => vo::of_token_subject(&self.issuer, user),
            Method::Certificate => vo::of_certificate_subject(user),
        })
    }
}

/// Of whom a name derived from a credential speaks, so that no two kinds of them share a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameSource {
    TokenSubject,
    TokenGroup,
    CertificateSubject,
}

/// Names a subject with its attributes in 16 hex digits, the length that FTS clients know.
pub(crate) fn delegation_id(named: NameSource, parts: &[&str]) -> CredentialId {
    CredentialId::new(&digest(named, parts)[..16])
}

/// A SHA-256 in hex. Each part is preceded by its length, so that parts that only read alike when they are joined have
/// different digests.
pub(crate) fn digest(named: NameSource, parts: &[&str]) -> String {
    let kind: &[u8] = match named {
        NameSource::TokenSubject => b"token subject\0",
        NameSource::TokenGroup => b"token group\0",
        NameSource::CertificateSubject => b"certificate subject\0",
    };
    let mut sha = Sha256::new();
    sha.update(kind);
    for part in parts {
        sha.update(&(part.len() as u64).to_be_bytes());
        sha.update(part.as_bytes());
    }
    hex(&sha.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_the_same_whatever_attributes_a_proxy_shows_and_in_whatever_order() {
        let identity = |method, user: &str, delegation: &str| Identity {
            method,
            user: UserName::new(user),
            issuer: "/CN=CA".to_owned(),
            vo: None,
            fqans: Vec::new(),
            groups: Vec::new(),
            capabilities: Vec::new(),
            expires: Timestamp(0),
            delegation: CredentialId::new(delegation),
            scope: String::new(),
        };
        let [one, other] = ["0123456789abcdef", "fedcba9876543210"]
            .map(|proxy| identity(Method::Certificate, "/CN=alice", proxy).user_id());
        assert_eq!(one, other);
        let bob = identity(Method::Certificate, "/CN=bob", "0123456789abcdef");
        assert_ne!(bob.user_id(), one);
        // One subject of two issuers is two users; only the delegation of a token names both.
        let token = identity(Method::Token, "/CN=alice", "0123456789abcdef");
        assert_eq!(token.user_id(), token.delegation);
    }
}
