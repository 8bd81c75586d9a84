//! What the bearer of a token may do, and where: the capabilities of the WLCG token profile.
//!
//! Knows neither how a scope is spelt (`protocol::token`) nor which operation needs what
//! (`decide::authorization`).

use crate::path::NamespacePath;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A right of the WLCG token profile 1.3. None implies another here; what an operation needs is decided
/// elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// Read data that is on disk.
    Read,
    /// Make new files and directories; nothing that exists is changed.
    Create,
    /// All of create, and rename, overwrite and delete.
    Modify,
    /// Bring files from tape to disk, and let them go again.
    Stage,
    /// Ask where a file is: on disk, on tape.
    Poll,
}

impl Right {
    pub const ALL: [Right; 5] = [
        Right::Read,
        Right::Create,
        Right::Modify,
        Right::Stage,
        Right::Poll,
    ];

    /// The word for it in configurations.
    pub fn word(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Create => "create",
            Right::Modify => "modify",
            Right::Stage => "stage",
            Right::Poll => "poll",
        }
    }

    /// The name of the scope that grants it.
    pub fn scope_name(self) -> &'static str {
        match self {
            Right::Read => "storage.read",
            Right::Create => "storage.create",
            Right::Modify => "storage.modify",
            Right::Stage => "storage.stage",
            Right::Poll => "storage.poll",
        }
    }

    /// The right that a scope name stands for; `None` for any other scope.
    pub fn from_scope_name(name: &str) -> Option<Right> {
        Right::ALL
            .into_iter()
            .find(|right| right.scope_name() == name)
    }

    /// What is left of it where no more than these rights can be granted; `None`: nothing.
    pub fn within(self, rights: &[Right]) -> Option<Right> {
        let is_granted = |right: Right| rights.contains(&right);
        match self {
            right if is_granted(right) => Some(right),
            // The greater one of a pair has all of the smaller one.
            Right::Create if is_granted(Right::Modify) => Some(Right::Create),
            Right::Poll if is_granted(Right::Stage) => Some(Right::Poll),
            Right::Modify if is_granted(Right::Create) => Some(Right::Create),
            Right::Stage if is_granted(Right::Poll) => Some(Right::Poll),
            Right::Read | Right::Create | Right::Modify | Right::Stage | Right::Poll => None,
        }
    }
}

/// One right on one path and everything below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Capability {
    /// What may be done.
    pub right: Right,
    /// Where: this path of the namespace, or below.
    pub path: NamespacePath,
    /// The scope ended with `/`: `path` itself is covered only as a directory, never as a file.
    pub directory_only: bool,
}

impl Capability {
    /// What is left of it where no more than these rights can be granted; `None`: nothing.
    pub fn within(self, rights: &[Right]) -> Option<Capability> {
        let right = self.right.within(rights)?;
        Some(Capability { right, ..self })
    }
}

impl fmt::Display for Capability {
    /// The form of a scope, in terms of this site's namespace.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.directory_only && !self.path.is_root() {
            "/"
        } else {
            ""
        };
        write!(out, "{}:{}{slash}", self.right.scope_name(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_beyond_the_rights_that_can_be_granted() {
        let check = |held: Right, rights: &[Right], expected: Option<Right>| {
            let capability = Capability {
                right: held,
                path: NamespacePath::root(),
                directory_only: true,
            };
            let left = capability.within(rights).map(|left| left.right);
            assert_eq!(left, expected, "{held:?} {rights:?}");
        };
        for right in Right::ALL {
            check(right, &Right::ALL, Some(right));
            check(right, &[], None);
            check(right, &[right], Some(right));
        }
        check(Right::Modify, &[Right::Read], None);
        check(Right::Read, &[Right::Modify], None);
        check(Right::Modify, &[Right::Create], Some(Right::Create));
        check(Right::Create, &[Right::Modify], Some(Right::Create));
        check(Right::Stage, &[Right::Poll], Some(Right::Poll));
        check(Right::Poll, &[Right::Stage], Some(Right::Poll));
    }
}
