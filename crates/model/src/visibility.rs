//! Whose transfers somebody sees in detail.

use crate::ids::VoName;

/// Whose transfers somebody may look at. What is only counted, such as the rate of a link, everybody sees who is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visibility {
    /// Everybody's.
    Everything,
    Vo(VoName),
}
