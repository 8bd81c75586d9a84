//! Keys of cloud storages: which of them a submitter may use, and the form of their secret part.
//!
//! The public part is a setting; the secret is stored sealed under the name that the setting tells.

use penstock_decide::cloud::{KeyChoice, KeyRequest, NoKey, choose_key};
use penstock_model::{CredentialId, FileUrl, Settings, UserName, VoName};
use penstock_protocol::s3::record_names;
use penstock_protocol::token::delegation_id;
use serde::{Deserialize, Serialize};

/// Between the issuer and the subject of a token's user.
const ISSUER_END: char = '#';

/// Who submitted a job, as far as keys are chosen by it.
#[derive(Debug, Clone)]
pub(crate) struct CloudUser {
    /// The subject of a certificate or of a token.
    pub(crate) user: UserName,
    /// Names a token's issuer and subject.
    pub(crate) delegation: CredentialId,
    /// A certificate proved who it is.
    pub(crate) is_by_certificate: bool,
    pub(crate) vo: VoName,
}

impl CloudUser {
    /// The name under which keys are granted: a certificate's begins with a slash; a token's subject counts only with
    /// its issuer, because any issuer may call anybody anything.
    fn is(&self, name: &UserName) -> bool {
        match name.as_str().split_once(ISSUER_END) {
            Some((issuer, subject)) if !name.as_str().starts_with('/') => {
                !self.is_by_certificate && delegation_id(issuer, subject) == self.delegation
            }
            _ => self.is_by_certificate && *name == self.user,
        }
    }

    /// The key by which a cloud storage is reached for this user.
    pub(crate) fn key<'a>(
        &self,
        settings: &'a Settings,
        url: &FileUrl,
        path_style: bool,
    ) -> Result<KeyChoice<'a>, NoKey> {
        let names = record_names(url, path_style);
        let wanted = KeyRequest {
            names: &names,
            vo: &self.vo,
            is_submitter: &|name| self.is(name),
        };
        choose_key(settings, &wanted)
    }
}

/// What is sealed of a key.
#[derive(Serialize, Deserialize)]
pub(crate) struct KeySecret {
    pub(crate) secret_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session_token: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_users_only_as_it_was_proved() {
        let by_certificate = CloudUser {
            user: UserName::new("/DC=ch/CN=Alice#1"),
            delegation: CredentialId::new("0123456789abcdef"),
            is_by_certificate: true,
            vo: VoName::new("dteam"),
        };
        let by_token = CloudUser {
            user: UserName::new("/DC=ch/CN=Alice#1"),
            delegation: delegation_id("https://iam.example.org/", "/DC=ch/CN=Alice#1"),
            is_by_certificate: false,
            ..by_certificate.clone()
        };
        let check = |who: &CloudUser, name: &str, expected: bool| {
            assert_eq!(who.is(&UserName::new(name)), expected, "{name}");
        };
        check(&by_certificate, "/DC=ch/CN=Alice#1", true);
        check(&by_certificate, "/DC=ch/CN=Alice", false);
        check(&by_token, "/DC=ch/CN=Alice#1", false);
        check(
            &by_token,
            "https://iam.example.org/#/DC=ch/CN=Alice#1",
            true,
        );
        check(
            &by_token,
            "https://evil.example.org/#/DC=ch/CN=Alice#1",
            false,
        );
        check(
            &by_certificate,
            "https://iam.example.org/#/DC=ch/CN=Alice#1",
            false,
        );
    }
}
