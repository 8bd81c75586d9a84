//! Processes of one service that share a database: what they are called, and whose tenure it is.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// One process of a service that runs on several machines, by the name that its operator gave it: 1 to 64 letters,
/// digits, `.`, `-` and `_`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(Arc<str>);

impl NodeId {
    const LENGTH_MAX: usize = 64;

    /// Errors: the text is not a name, with the rule that it breaks.
    pub fn parse(text: &str) -> Result<NodeId, InvalidNodeId> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        match !text.is_empty() && text.len() <= Self::LENGTH_MAX && text.bytes().all(is_plain) {
            true => Ok(NodeId(text.into())),
            false => Err(InvalidNodeId),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl TryFrom<String> for NodeId {
    type Error = InvalidNodeId;

    fn try_from(text: String) -> Result<NodeId, InvalidNodeId> {
        NodeId::parse(&text)
    }
}

impl From<NodeId> for String {
    fn from(node: NodeId) -> String {
        node.0.as_ref().to_owned()
    }
}

/// Why a text is not the name of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidNodeId;

impl fmt::Display for InvalidNodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a node's name has 1 to 64 letters, digits, '.', '-' and '_'")
    }
}

impl std::error::Error for InvalidNodeId {}

/// The number of a tenure: each new leader has a higher one, and nothing that carries a lower one is taken any more.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The time for which one node leads. The epoch orders tenures; the holder tells two tenures apart to which a database that has lost its
/// last commits gave the same epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Tenure {
    /// Higher than that of the tenure before, as far as the database knows.
    pub epoch: Epoch,
    /// A random number of this tenure; 0 when the leader is of a version that had none.
    #[serde(default)]
    pub holder: u64,
}

impl Tenure {
    /// Whether both are the same tenure, as far as that is known.
    pub fn is_that_of(&self, other: &Tenure) -> bool {
        let is_unknown = self.holder == 0 || other.holder == 0;
        self.epoch == other.epoch && (is_unknown || self.holder == other.holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain() {
        for good in ["a", "fts-01.cern.ch", &"n".repeat(64)] {
            assert_eq!(
                NodeId::parse(good).map(|node| node.to_string()),
                Ok(good.to_owned())
            );
        }
        for bad in ["", "a b", "a/b", "é", "a\n", &"n".repeat(65)] {
            assert!(NodeId::parse(bad).is_err(), "{bad:?}");
            let json = serde_json::to_string(bad).expect("a string");
            assert!(serde_json::from_str::<NodeId>(&json).is_err());
        }
    }
}
