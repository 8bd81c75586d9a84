//! The steps of writing and removing a file, named so that tests can kill the process after each of them.

/// A step after which the process may die without losing an acknowledged file or showing an unfinished one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The file exists in `incoming/`.
    Created,
    /// It has all its bytes.
    Written,
    /// It describes itself.
    Labelled,
    /// Its bytes are durable.
    Synced,
    /// It is at its final place.
    Adopted,
    /// Its final place is durable.
    DirectorySynced,
    /// It is visible, what it replaced is trash, and nobody knows yet.
    Committed,
    /// The data of a removed file is gone, its trash entry is not.
    DataRemoved,
    /// The trash entry is gone, too.
    TrashForgotten,
}

/// Does nothing outside tests.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn reached(_step: Step) {}

#[cfg(test)]
pub(crate) use kill::{KILL_AT, reached};

#[cfg(test)]
mod kill {
    use super::Step;
    use std::sync::OnceLock;

    /// Set in the child process of a crash test.
    pub(crate) static KILL_AT: OnceLock<Step> = OnceLock::new();

    pub(crate) fn reached(step: Step) {
        if KILL_AT.get() == Some(&step) {
            // Not `exit`: nothing may be cleaned up, as after SIGKILL.
            std::process::abort();
        }
    }
}
