//! Cloud storages: which there are, and who may use which keys there. The secrets themselves are kept apart, sealed.

use crate::ids::{CredentialId, UserName, VoName};
use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

/// Names a cloud storage as FTS does: its kind, and its host in capitals without port, such as
/// `S3:S3.EXAMPLE.ORG`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CloudName(String);

/// Why a name is none of a cloud storage.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidCloudName {
    /// Of a kind that is not reached here.
    #[error(
        "cloud storages of the kind '{0}' are not offered by this service; write S3:HOST, or GCLOUD:HOST"
    )]
    Kind(String),
    /// No host, or more than one.
    #[error(
        "'{0}' names no cloud storage: write S3:HOST, with the host of its URLs, without port and bucket"
    )]
    Host(String),
}

impl CloudName {
    /// Kinds whose storages are reached: both speak S3.
    pub const KINDS: [&'static str; 2] = ["S3", "GCLOUD"];

    /// Reads a name in any case.
    pub fn parse(text: &str) -> Result<CloudName, InvalidCloudName> {
        let text = text.trim().to_ascii_uppercase();
        let (kind, host) = text.split_once(':').unwrap_or((text.as_str(), ""));
        if !CloudName::KINDS.contains(&kind) {
            return Err(InvalidCloudName::Kind(kind.chars().take(64).collect()));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_v6 = host.starts_with('[')
            && host.ends_with(']')
            && host[1..host.len() - 1]
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b':');
        let is_host = !host.is_empty() && host.len() <= 253 && host.bytes().all(is_plain);
        match is_host || (is_v6 && host.len() <= 64) {
            true => Ok(CloudName(text)),
            false => Err(InvalidCloudName::Host(text.chars().take(300).collect())),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CloudName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl TryFrom<String> for CloudName {
    type Error = InvalidCloudName;
    fn try_from(text: String) -> Result<Self, InvalidCloudName> {
        CloudName::parse(&text)
    }
}

impl From<CloudName> for String {
    fn from(name: CloudName) -> String {
        name.0
    }
}

/// A cloud storage that may be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudStorage {
    pub name: CloudName,
    /// The region for which requests are signed. `None`: as the host's name or the server tells.
    pub region: Option<String>,
}

/// Who may use keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloudHolder {
    /// One user: the subject of a certificate, or `issuer#subject` of a token.
    User(UserName),
    /// All of a VO who have no keys of their own.
    Vo(VoName),
}

impl CloudHolder {
    /// The name alone.
    pub fn name(&self) -> &str {
        match self {
            CloudHolder::User(user) => user.as_str(),
            CloudHolder::Vo(vo) => vo.as_str(),
        }
    }
}

impl fmt::Display for CloudHolder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloudHolder::User(user) => write!(out, "user {user}"),
            CloudHolder::Vo(vo) => write!(out, "VO {vo}"),
        }
    }
}

/// Somebody may use a key there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudKey {
    pub storage: CloudName,
    pub holder: CloudHolder,
    /// The key's public part.
    pub access_key: String,
    /// Names the secret part, which is stored sealed. Another one for each secret that was ever set.
    pub secret: CredentialId,
    /// A session token goes with it: the keys end by themselves.
    pub is_temporary: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_kind_and_a_host() {
        let check = |text: &str, expected: &str| {
            let got = match CloudName::parse(text) {
                Ok(name) => name.to_string(),
                Err(why) => why.to_string(),
            };
            assert_eq!(got, expected);
        };
        check("s3:s3.Example.org", "S3:S3.EXAMPLE.ORG");
        check("S3:[::1]", "S3:[::1]");
        check(
            "gcloud:storage.googleapis.com",
            "GCLOUD:STORAGE.GOOGLEAPIS.COM",
        );
        let host = "names no cloud storage: write S3:HOST, with the host of its URLs, without port and bucket";
        for text in [
            "S3:",
            "S3",
            "S3:A/B",
            "S3:A:9000",
            "S3:A B",
            "S3:[A/]",
            "S3:[",
        ] {
            check(text, &format!("'{text}' {host}"));
        }
        check(
            "DROPBOX",
            "cloud storages of the kind 'DROPBOX' are not offered by this service; write S3:HOST, or GCLOUD:HOST",
        );
    }
}
