//! The ids of directories that files were lately written to, for their labels. An id that is out of date costs a record in the
//! directory log, nothing else: what counts is decided when the file is committed.

use parking_lot::Mutex;
use penstock_model::NamespacePath;
use penstock_persistence::namespace::{EntryId, Namespace};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Directories that are remembered.
const KNOWN_MAX: usize = 1024;
/// For how long.
const AGE_MAX: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Default)]
pub(crate) struct DirectoryIdCache {
    known: Mutex<HashMap<NamespacePath, (EntryId, Instant)>>,
}

impl DirectoryIdCache {
    /// The directory that holds, or would hold, a path; `None`: there is none yet.
    pub(crate) fn parent_of(&self, namespace: &Namespace, path: &NamespacePath) -> Option<EntryId> {
        let parent = path.parent()?;
        if parent.is_root() {
            return Some(EntryId::ROOT);
        }
        let mut known = self.known.lock();
        if let Some((id, since)) = known.get(&parent)
            && since.elapsed() < AGE_MAX
        {
            return Some(*id);
        }
        // An entry that has gone from view has the same id, should it come back.
        let entry = namespace.lookup(&parent).ok().flatten()?;
        if !entry.is_directory() {
            return None;
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(parent, (entry.id, Instant::now()));
        Some(entry.id)
    }
}
