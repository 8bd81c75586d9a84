//! Entries that were looked up lately, as the database has them: a path that is asked for again and again needs no query.
//!
//! The cache is exact at each instant. The writer's connection tells the id of each row of `entry` that a transaction
//! changes, whichever statement does it. Before the commit these rows are dropped from the cache, and nobody may put them
//! back before the commit has ended: meanwhile they are read from the database, which alone knows what counts. So a row
//! that is found here is changed by no transaction that is being committed, and the database says the same of it. All rows
//! of a path are found under one lock, so they are of one instant, too.
//!
//! A path with no entry is not remembered.

use super::connection::unsigned;
use super::{Entry, EntryId};
use parking_lot::{Mutex, RwLock};
use penstock_model::NamespacePath;
use rusqlite::Connection;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory for entries: some hundred thousand of usual names.
const BYTES_MAX: usize = 32 << 20;
/// Of one entry beside its texts: its slot, and its places in the two maps.
const ENTRY_BYTES: usize = size_of::<Option<CachedEntry>>() + 96;

/// See the module.
pub(super) struct EntryCache {
    state: RwLock<CacheState>,
    bytes_max: usize,
}

#[derive(Default)]
struct CacheState {
    slots: Vec<Option<CachedEntry>>,
    free: Vec<usize>,
    /// Slots by directory and name.
    places: HashMap<EntryId, HashMap<String, usize>>,
    ids: HashMap<EntryId, usize>,
    bytes: usize,
    /// The slot that is looked at next when room is needed.
    hand: usize,
    /// Rows that the transaction changes which is being committed.
    uncommitted: HashSet<EntryId>,
    /// Commits that have changed entries. What was read before the latest is not put here.
    commits: u64,
    /// A commit has failed and may count after all: only the database is asked.
    is_doubtful: bool,
}

struct CachedEntry {
    parent: EntryId,
    entry: Entry,
    /// It was asked for since the hand passed it.
    is_used: AtomicBool,
}

/// What was read from the database with this is put into the cache only if no commit has come between.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadMark(u64);

impl Default for EntryCache {
    fn default() -> EntryCache {
        EntryCache::bounded(BYTES_MAX)
    }
}

impl EntryCache {
    pub(super) fn bounded(bytes_max: usize) -> EntryCache {
        EntryCache {
            state: RwLock::default(),
            bytes_max,
        }
    }

    /// All that it holds, each with its parent.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<(EntryId, Entry)> {
        let state = self.state.read();
        let cached = state.slots.iter().flatten();
        cached
            .map(|cached| (cached.parent, cached.entry.clone()))
            .collect()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.state.read().bytes
    }

    /// What stands at a path, or the mark with which it is to be read from the database.
    pub(super) fn find(&self, path: &NamespacePath) -> Result<Entry, ReadMark> {
        let state = self.state.read();
        let found = state.find(path.names()).cloned();
        found.ok_or(ReadMark(state.commits))
    }

    /// Remembers the entries of a path, each with its parent, that were read after the mark was given.
    pub(super) fn keep(&self, mark: ReadMark, way: Vec<(EntryId, Entry)>) {
        let mut state = self.state.write();
        if state.is_doubtful || state.commits != mark.0 {
            return;
        }
        for (parent, entry) in way {
            if !state.uncommitted.contains(&entry.id) {
                state.keep(parent, entry);
            }
        }
        state.make_room(self.bytes_max);
    }

    /// A transaction that changes these rows is about to be committed.
    pub(super) fn begin_commit(&self, changed: HashSet<EntryId>) {
        if changed.is_empty() {
            return;
        }
        let mut state = self.state.write();
        for id in &changed {
            state.forget(*id);
        }
        state.uncommitted = changed;
    }

    /// It was committed, or rolled back.
    pub(super) fn end_commit(&self) {
        let mut state = self.state.write();
        if !state.uncommitted.is_empty() {
            state.uncommitted.clear();
            state.commits += 1;
        }
    }

    /// Its commit failed, and it is not known whether it counts.
    pub(super) fn doubt(&self) {
        let mut state = self.state.write();
        *state = CacheState {
            commits: state.commits + 1,
            is_doubtful: true,
            ..CacheState::default()
        };
    }

    /// That is known again.
    pub(super) fn trust(&self) {
        let mut state = self.state.write();
        if state.is_doubtful {
            state.is_doubtful = false;
            state.commits += 1;
        }
    }
}

impl CacheState {
    /// As `read::find`.
    fn find(&self, names: &[String]) -> Option<&Entry> {
        let Some((last, parents)) = names.split_last() else {
            return self.at(EntryId::NONE, "");
        };
        let mut directory = EntryId::ROOT;
        for name in parents {
            directory = self.at(directory, name)?.id;
        }
        self.at(directory, last)
    }

    fn at(&self, parent: EntryId, name: &str) -> Option<&Entry> {
        let slot = *self.places.get(&parent)?.get(name)?;
        let cached = self.slots.get(slot)?.as_ref()?;
        // Not written each time: all cores that read share it.
        if !cached.is_used.load(Ordering::Relaxed) {
            cached.is_used.store(true, Ordering::Relaxed);
        }
        Some(&cached.entry)
    }

    fn keep(&mut self, parent: EntryId, entry: Entry) {
        self.forget(entry.id);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.bytes += bytes_of(&entry);
        self.ids.insert(entry.id, slot);
        let directory = self.places.entry(parent).or_default();
        directory.insert(entry.name.clone(), slot);
        self.slots[slot] = Some(CachedEntry {
            parent,
            entry,
            is_used: AtomicBool::new(false),
        });
    }

    fn forget(&mut self, id: EntryId) {
        let Some(slot) = self.ids.remove(&id) else {
            return;
        };
        let Some(CachedEntry { parent, entry, .. }) = self.slots[slot].take() else {
            return;
        };
        self.free.push(slot);
        self.bytes -= bytes_of(&entry);
        if let Some(directory) = self.places.get_mut(&parent) {
            directory.remove(&entry.name);
            if directory.is_empty() {
                self.places.remove(&parent);
            }
        }
    }

    /// Drops what was not asked for since the hand passed it last.
    fn make_room(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            self.hand = (self.hand + 1) % self.slots.len();
            if let Some(cached) = &mut self.slots[self.hand]
                && !std::mem::take(cached.is_used.get_mut())
            {
                let id = cached.entry.id;
                self.forget(id);
            }
        }
    }
}

fn bytes_of(entry: &Entry) -> usize {
    let owner = entry.owner.as_ref().map_or(0, |owner| owner.as_str().len());
    // In the entry, and as a key.
    ENTRY_BYTES + 2 * entry.name.len() + owner
}

/// The rows of `entry` that the open transaction of the writer's connection has changed so far.
#[derive(Clone, Default)]
pub(super) struct ChangedEntries(Arc<Mutex<HashSet<EntryId>>>);

impl ChangedEntries {
    /// Learns of each from now on. `entry` has a row id, and no statement on it says `OR REPLACE`: of rows that this removes
    /// SQLite would not tell.
    pub(super) fn watch(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let changed = self.clone();
        let hook = move |_, _: &str, table: &str, row: i64| {
            if table == "entry" {
                changed.0.lock().insert(EntryId(unsigned(row)));
            }
        };
        connection.update_hook(Some(hook))
    }

    /// All since the last time.
    pub(super) fn take(&self) -> HashSet<EntryId> {
        std::mem::take(&mut *self.0.lock())
    }
}
