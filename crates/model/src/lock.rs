//! Write locks as WebDAV clients take them (RFC 4918 §6, §7): what a lock is, and how it is named on the wire.
//!
//! A lock belongs to a path, not to the file that happens to stand there, and to the user who took it.

use crate::{NamespacePath, Timestamp, UserName};
use std::fmt;
use uuid::Uuid;

/// The scheme of lock tokens (RFC 4918 §6.5, appendix C).
const SCHEME: &str = "opaquelocktoken:";

/// Names one lock for ever. Knowing it is not enough to use it: the user must be the one who took the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockToken(pub Uuid);

impl LockToken {
    /// Reads a token as this system writes it; `None` for a token of somebody else.
    pub fn parse(text: &str) -> Option<LockToken> {
        let uuid = text.strip_prefix(SCHEME)?;
        // Uuid reads several spellings; a token is an opaque text with one.
        let token = LockToken(Uuid::parse_str(uuid).ok()?);
        (token.to_string() == text).then_some(token)
    }
}

impl fmt::Display for LockToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{SCHEME}{}", self.0)
    }
}

/// Whether others may hold a lock on the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockScope {
    /// Nobody else.
    Exclusive,
    /// Others who also share; each of them may write.
    Shared,
}

/// How far down a lock reaches (its `Depth`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockReach {
    /// The file or directory itself; of a directory its list of members, not what the members hold.
    Itself,
    /// And everything below, also what will be made there.
    Tree,
}

/// One write lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// Its name.
    pub token: LockToken,
    /// The path that was locked.
    pub root: NamespacePath,
    /// How far down.
    pub reach: LockReach,
    /// Alone or shared.
    pub scope: LockScope,
    /// Who took it; only this user can use or release it.
    pub user: UserName,
    /// The macaroon with which it was taken, when it was one. Others of the user's macaroons, which may be in anybody's
    /// hands, cannot use or release it.
    pub macaroon: Option<String>,
    /// What the client says of its user: the content of the `owner` element, as XML. Empty: it said nothing.
    pub owner: String,
    /// When it ends unless it is refreshed.
    pub expires: Timestamp,
}

impl Lock {
    /// True when writing at this path needs the lock.
    pub fn covers(&self, path: &NamespacePath) -> bool {
        match self.reach {
            LockReach::Itself => self.root == *path,
            LockReach::Tree => path.is_within(&self.root),
        }
    }

    /// True for its user, and for who holds the macaroon with which it was taken.
    pub fn is_usable_by(&self, user: &UserName, macaroon: Option<&str>) -> bool {
        self.user == *user && (macaroon.is_none() || macaroon == self.macaroon.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_one_spelling() {
        let text = "opaquelocktoken:e71d4fae-5dec-22d6-fea5-00a0c91e6be4";
        let token = LockToken::parse(text).expect("a token");
        assert_eq!(token.to_string(), text);
        for other in [
            "opaquelocktoken:E71D4FAE-5DEC-22D6-FEA5-00A0C91E6BE4",
            "opaquelocktoken:{e71d4fae-5dec-22d6-fea5-00a0c91e6be4}",
            "urn:uuid:e71d4fae-5dec-22d6-fea5-00a0c91e6be4",
            "opaquelocktoken:",
            "DAV:no-lock",
        ] {
            assert_eq!(LockToken::parse(other), None, "{other}");
        }
    }
}
