//! Directories that the writer has found lately, by their paths: most changes are made in few of them.

use super::super::EntryId;
use std::collections::HashMap;

/// Directories that are remembered. Beyond, all are looked for again.
const KNOWN_MAX: usize = 1024;

/// Only of transactions that were committed, and until a directory moves or goes.
#[derive(Default)]
pub(in super::super) struct KnownDirectories(HashMap<Vec<String>, EntryId>);

impl KnownDirectories {
    /// The directory whose path has these names; `None`: it is not known whether there is one.
    pub(super) fn get(&self, names: &[String]) -> Option<EntryId> {
        match names {
            [] => Some(EntryId::ROOT),
            names => self.0.get(names).copied(),
        }
    }

    pub(super) fn add(&mut self, names: &[String], directory: EntryId) {
        if self.0.len() >= KNOWN_MAX {
            self.0.clear();
        }
        self.0.insert(names.to_vec(), directory);
    }

    /// A directory has moved or is gone, and with it all paths below.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}
