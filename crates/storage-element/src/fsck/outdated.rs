//! Entries of an older copy of a namespace that the directory logs, or newer data, prove to be out of date: what was removed,
//! replaced or moved since. They make room for what was acknowledged later; their data goes to the trash.

use super::{Check, FsckFailure, OutdatedEntry};
use crate::pool_files::PoolRoot;
use penstock_clock::wall_clock;
use penstock_model::{NamespacePath, Timestamp, UserName};
use penstock_persistence::namespace::{Change, Entry, EntryId, EntryKind, LastWord, Replace};
use std::collections::BTreeSet;

impl Check<'_> {
    /// Brings the tree to where the logs say that it was: directories first, because files are told by them.
    pub(super) fn follow_logs(&mut self) -> Result<(), FsckFailure> {
        let directories: Vec<Move> = self
            .words
            .directories_since()
            .into_iter()
            .map(|(id, parent, name)| Move::new(id, parent, name))
            .collect();
        self.follow_moves(directories)?;
        let mut moves = Vec::new();
        for id in self.words.files_since() {
            let Some(path) = self.namespace.path_of(id)? else {
                continue;
            };
            match self.words.since(id) {
                Some(LastWord::Trashed(trashed)) => {
                    let by = trashed.by.clone();
                    self.follow_removal(&path, id, by)?;
                }
                Some(LastWord::Removed { .. }) => self.follow_removal(&path, id, None)?,
                Some(LastWord::Visible {
                    place: Some((parent, name)),
                    ..
                }) => moves.push(Move::new(id, *parent, name)),
                Some(LastWord::Visible { place: None, .. }) | None => {}
            }
        }
        self.follow_moves(moves)
    }

    fn follow_removal(
        &mut self,
        path: &NamespacePath,
        id: EntryId,
        by: Option<UserName>,
    ) -> Result<(), FsckFailure> {
        let Some(entry) = self.namespace.lookup(path)? else {
            return Ok(());
        };
        let EntryKind::File { pool, .. } = &entry.kind else {
            return Ok(());
        };
        let pool = self
            .pools
            .iter()
            .find(|one| Some(&one.name) == pool.as_ref());
        let is_gone = pool.is_some() && !self.has_data(id);
        if self.repair.mends {
            // Counted from now, so that it stays as long as anything that is removed.
            self.mend(Change::Remove {
                path: path.clone(),
                only: Some(id),
                entries_max: 1,
                by,
                at: wall_clock(),
            })?;
            if is_gone {
                self.mend(Change::ForgetTrash {
                    files: vec![id],
                    at: wall_clock(),
                })?;
            }
        }
        self.settled.insert(id);
        let why = match is_gone {
            true => "it was removed or replaced after this copy of the namespace was made",
            false => {
                "it was removed or replaced after this copy of the namespace was made; its data goes to the trash"
            }
        };
        self.tell_outdated(path, &entry, None, why);
        Ok(())
    }

    /// A place may be taken by what moves later itself, so this goes on as long as anything moves.
    fn follow_moves(&mut self, mut moves: Vec<Move>) -> Result<(), FsckFailure> {
        loop {
            let before = moves.len();
            let mut waiting = Vec::new();
            for one in moves {
                if !self.follow_move(&one)? {
                    waiting.push(one);
                }
            }
            if waiting.is_empty() || waiting.len() == before || !self.repair.mends {
                return Ok(());
            }
            moves = waiting;
        }
    }

    /// False: its place is not free.
    fn follow_move(&mut self, one: &Move) -> Result<bool, FsckFailure> {
        let Some(from) = self.namespace.path_of(one.id)? else {
            return Ok(true);
        };
        let Some(to) = self.path_in(one.parent, &one.name)? else {
            return Ok(true);
        };
        if from == to {
            return Ok(true);
        }
        let Some(entry) = self.namespace.lookup(&from)? else {
            return Ok(true);
        };
        if self.namespace.lookup(&to)?.is_some() || to.is_within(&from) || from.is_within(&to) {
            return Ok(false);
        }
        if self.repair.mends {
            if !self.make_parents(&to)? {
                return Ok(false);
            }
            self.mend(Change::Rename {
                from: from.clone(),
                only: Some(one.id),
                to: to.clone(),
                replace: Replace::Refused,
                entries_max: 1,
                by: None,
                at: wall_clock(),
            })?;
        }
        let why = "it was moved after this copy of the namespace was made";
        self.tell_outdated(&from, &entry, Some(&to), why);
        Ok(true)
    }

    /// False: a file is in the way.
    fn make_parents(&self, of: &NamespacePath) -> Result<bool, FsckFailure> {
        let mut path = NamespacePath::root();
        let names = of.names();
        for name in &names[..names.len().saturating_sub(1)] {
            let Ok(next) = path.child(name) else {
                return Ok(false);
            };
            path = next;
            match self.namespace.lookup(&path)? {
                Some(entry) if entry.is_directory() => {}
                Some(_) => return Ok(false),
                None => {
                    self.mend(Change::MakeDirectory {
                        path: path.clone(),
                        owner: None,
                        at: wall_clock(),
                    })?;
                }
            }
        }
        Ok(true)
    }

    /// What stands at a path when it is to make room for later data: its own data is in no pool. Of a pool that is not
    /// configured nobody knows what is in it.
    pub(super) fn giving_way(
        &self,
        path: &NamespacePath,
        later: Timestamp,
    ) -> Result<Option<Entry>, FsckFailure> {
        let occupant = self.namespace.lookup(path)?.filter(|entry| {
            let EntryKind::File { pool, .. } = &entry.kind else {
                return false;
            };
            let is_known = self
                .pools
                .iter()
                .any(|one| Some(&one.name) == pool.as_ref());
            is_known && entry.created < later && !self.has_data(entry.id)
        });
        Ok(occupant)
    }

    /// Ids in the quarantines count, too: what is there may be the rest of a file. So does what a disk does not tell.
    fn has_data(&self, id: EntryId) -> bool {
        let is_there = |pool: &PoolRoot| pool.place_of(id).try_exists().unwrap_or(true);
        self.quarantined.contains(&id) || self.pools.iter().any(is_there)
    }

    pub(super) fn tell_outdated(
        &mut self,
        path: &NamespacePath,
        entry: &Entry,
        to: Option<&NamespacePath>,
        why: &str,
    ) {
        let finding = OutdatedEntry {
            path: path.to_string(),
            id: entry.id.to_string(),
            size: entry.size().map(|size| size.0),
            to: to.map(ToString::to_string),
            why: why.to_owned(),
        };
        self.report.outdated.add(finding, self.repair.mends);
    }
}

/// Where an entry belongs.
struct Move {
    id: EntryId,
    parent: EntryId,
    name: String,
}

impl Move {
    fn new(id: EntryId, parent: EntryId, name: &str) -> Move {
        Move {
            id,
            parent,
            name: name.to_owned(),
        }
    }
}

/// What is left in the quarantines of all pools.
pub(super) fn quarantined_ids(pools: &[PoolRoot]) -> Result<BTreeSet<EntryId>, FsckFailure> {
    let mut ids = BTreeSet::new();
    for pool in pools {
        ids.extend(pool.quarantined()?.into_iter().map(|file| file.id));
    }
    Ok(ids)
}
