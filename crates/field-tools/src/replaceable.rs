//! What a new file may take the place of.

use serde::{Deserialize, Serialize};

/// What a new file may take the place of; `V` is what tells one version of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replaceable<V> {
    Nothing,
    /// The file with this version, which was looked at before, and no other.
    Version(V),
    /// Whatever file stands there by then.
    Anything,
}
