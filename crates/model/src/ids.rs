//! Names and numbers that identify things. Parse once at the edge; inside, a value is already valid.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Takes the text as it is.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                $type(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A storage element as FTS clients know it: `scheme://host`, without port.
    StorageId
);
name!(
    /// A virtual organisation: the collaboration on whose behalf data moves.
    VoName
);
name!(
    /// A share label inside a VO, such as `default` or `Data Consolidation`.
    Activity
);
name!(
    /// Who asked: the subject of a token, or the DN of a certificate.
    UserName
);
name!(
    /// A pool: one file system that keeps files for a storage element.
    PoolName
);
name!(
    /// Names a stored bearer token, or whose delegation it is, without revealing anything of it: digits of a digest in hex.
    CredentialId
);

impl VoName {
    /// Stands in the names that are derived from somebody's credential where nobody has given a VO a name, and in no
    /// name that somebody has given. Neither DNS names, which VOs have, nor URLs need an escape for it.
    pub const DERIVED_MARK: char = '~';

    /// Whether it was derived from a credential.
    pub fn is_derived(&self) -> bool {
        self.as_str().contains(VoName::DERIVED_MARK)
    }
}

impl StorageId {
    /// The host alone, by which it is one storage element for every scheme.
    pub fn host(&self) -> &str {
        let text = self.as_str();
        text.split_once("://").map_or(text, |(_, host)| host)
    }

    /// Whether people may call it so: by its host or with its scheme, in small letters.
    pub fn is_called(&self, name: &str) -> bool {
        name == self.as_str() || name == self.host()
    }
}

/// A job: what one submission created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub Uuid);

impl fmt::Display for JobId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// One file of a job: the `file_id` of the FTS interface. Unique in one service, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TransferId(pub u64);

impl fmt::Display for TransferId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The name that stands for every storage element or VO without a setting of its own.
pub const ANY: &str = "*";

/// A link: an ordered pair of storage elements between which files move.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkId {
    /// Where bytes come from.
    pub source: StorageId,
    /// Where bytes go.
    pub destination: StorageId,
}

/// One of the two ends of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkEnd {
    /// Where bytes come from.
    Source,
    /// Where bytes go.
    Destination,
}

impl LinkEnd {
    pub const BOTH: [LinkEnd; 2] = [LinkEnd::Source, LinkEnd::Destination];
}

impl LinkId {
    /// The storage element at an end.
    pub fn end(&self, end: LinkEnd) -> &StorageId {
        match end {
            LinkEnd::Source => &self.source,
            LinkEnd::Destination => &self.destination,
        }
    }

    /// What people write between the two ends.
    const BETWEEN: [&str; 4] = ["-", "->", " -> ", " → "];

    /// Whether some link may be called so: the text has two ends.
    pub fn is_name(text: &str) -> bool {
        let text = text.trim();
        Self::BETWEEN.iter().any(|between| {
            text.split_once(between)
                .is_some_and(|(source, destination)| !source.is_empty() && !destination.is_empty())
        })
    }

    /// Whether people may call it so: `SOURCE-DESTINATION`, each by its host, with its scheme, or `*`. Hosts have dashes
    /// in them, so all that the link may be called is held against the text: a long text costs no more than a short one.
    pub fn is_called(&self, text: &str) -> bool {
        let text = text.trim();
        Self::names(&self.source).into_iter().any(|source| {
            let behind = text
                .get(..source.len())
                .filter(|begin| begin.eq_ignore_ascii_case(source))
                .map(|begin| &text[begin.len()..]);
            let rests = Self::BETWEEN.iter();
            let mut rests = rests.filter_map(|between| behind?.strip_prefix(between));
            rests.any(|rest| {
                let names = Self::names(&self.destination);
                names.iter().any(|name| rest.eq_ignore_ascii_case(name))
            })
        })
    }

    /// What an end of a link may be called.
    fn names(id: &StorageId) -> [&str; 3] {
        [id.as_str(), id.host(), ANY]
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} → {}", self.source, self.destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> LinkId {
        LinkId {
            source: StorageId::new("https://se-1.cern.ch"),
            destination: StorageId::new("davs://dc-2.in2p3.fr"),
        }
    }

    #[test]
    fn a_link_is_named_by_hosts_with_dashes_too() {
        for text in [
            "se-1.cern.ch-dc-2.in2p3.fr",
            "SE-1.cern.ch -> dc-2.in2p3.fr",
            "https://se-1.cern.ch-davs://dc-2.in2p3.fr",
            "https://se-1.cern.ch → davs://dc-2.in2p3.fr",
            "*-dc-2.in2p3.fr",
            "se-1.cern.ch-*",
        ] {
            assert!(link().is_called(text) && LinkId::is_name(text), "{text}");
        }
        for text in [
            "",
            "-",
            "se-1.cern.ch",
            "dc-2.in2p3.fr-se-1.cern.ch",
            "1.cern.ch-*",
            "*-dc-2.in2p3.fr-*",
            "é-*",
        ] {
            assert!(!link().is_called(text), "{text}");
        }
        for text in ["", "-", "foo", "foo-", "-foo", "se.cern.ch"] {
            assert!(!LinkId::is_name(text), "{text}");
        }
    }
}
