//! The shape of every answer in this crate: what was chosen, with the reasons in the order in which they counted.

use serde::{Deserialize, Serialize};

/// A choice and why it was made. Reasons are typed values that hold the numbers that mattered; nothing recomputes
/// them later, so what a person is told is what the code did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision<T, R> {
    /// What to do.
    pub choice: T,
    /// Why, the decisive reason first.
    pub because: Vec<R>,
}

impl<T, R> Decision<T, R> {
    /// A choice that has one reason.
    pub fn new(choice: T, because: R) -> Decision<T, R> {
        Decision {
            choice,
            because: vec![because],
        }
    }
}
