//! The last word of the pools' directory logs on files: whether each was removed, or put where it is.
//!
//! It is for tools that meet a namespace which may be an older copy than the logs. A log goes on from another number after a
//! namespace was put back, so what two logs say is compared by time; within one log the later line counts.

use super::directory_log::{DIRECTORY_LOG, DirectoryRecord, FileEntry, TrashedFile, read_log};
use super::{EntryId, FileOnTape};
use penstock_model::{NamespacePath, Timestamp};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What logs say last of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LastWord {
    /// It was removed or replaced.
    Trashed(TrashedFile),
    Visible {
        /// Since then, or earlier.
        at: Timestamp,
        /// Its directory and its name there, where a log tells them.
        place: Option<(EntryId, String)>,
    },
    /// It was on no disk, and was removed.
    Removed { at: Timestamp },
}

impl LastWord {
    fn at(&self) -> Timestamp {
        match self {
            LastWord::Trashed(file) => file.removed,
            LastWord::Visible { at, .. } | LastWord::Removed { at } => *at,
        }
    }

    fn is_after(&self, other: &LastWord) -> bool {
        let is_removed = |word: &LastWord| !matches!(word, LastWord::Visible { .. });
        (self.at(), is_removed(self)) > (other.at(), is_removed(other))
    }
}

/// What the logs of pools, also those that were kept aside, say last of the files that they speak of.
#[derive(Default)]
pub struct LastWords {
    files: HashMap<EntryId, LastWord>,
    directories: HashMap<EntryId, DirectoryWord>,
    /// What they tell of files on tape, wherever these are now.
    on_tape: HashMap<EntryId, FileOnTape>,
    /// The logs in use begin with all that the namespace held then: older words of logs that were kept aside count no more.
    /// `None`: no log is in use.
    horizon: Option<Timestamp>,
}

/// What logs say last of a directory's place.
struct DirectoryWord {
    parent: EntryId,
    name: String,
    at: Timestamp,
}

impl LastWords {
    /// Reads all logs in the directories of pools, for a namespace that has come to this number of them. Errors: one cannot be read
    /// at all.
    pub fn read(directories: &[PathBuf], sequence: u64) -> io::Result<LastWords> {
        let mut words = LastWords::default();
        for directory in directories {
            for log in logs_in(directory)? {
                let of_log = Listener::read(&log)?;
                if log.ends_with(DIRECTORY_LOG) {
                    // What the log of a later namespace begins with, an older copy has still to hear.
                    let is_ahead = of_log.snapshot > sequence;
                    let newest = of_log.newest_of_snapshot.0;
                    let newest = newest.saturating_sub(i64::from(is_ahead));
                    words.horizon = words.horizon.max(Some(Timestamp(newest)));
                }
                for (id, told) in of_log.on_tape {
                    let known = words.on_tape.get(&id);
                    if known.is_none_or(|known| told.archived() >= known.archived()) {
                        words.on_tape.insert(id, told);
                    }
                }
                for (id, word) in of_log.directories {
                    let known = words.directories.get(&id);
                    if known.is_none_or(|known| word.at >= known.at) {
                        words.directories.insert(id, word);
                    }
                }
                for (id, word) in of_log.files {
                    let known = words.files.get(&id);
                    if known.is_none_or(|known| word.is_after(known)) {
                        words.files.insert(id, word);
                    }
                }
            }
        }
        Ok(words)
    }

    /// The last word on a file.
    pub fn on(&self, file: EntryId) -> Option<&LastWord> {
        self.files.get(&file)
    }

    /// The last word on a file, if it is later than all that the logs in use began with. A namespace that contradicts it is
    /// an older copy.
    pub fn since(&self, file: EntryId) -> Option<&LastWord> {
        self.on(file).filter(|word| self.is_later(word.at()))
    }

    fn is_later(&self, at: Timestamp) -> bool {
        self.horizon.is_some_and(|horizon| at > horizon)
    }

    /// All files with such a word, the earliest word first.
    pub fn files_since(&self) -> Vec<EntryId> {
        let words = self.files.iter();
        let later = words.filter(|(_, word)| self.is_later(word.at()));
        let mut files: Vec<(Timestamp, EntryId)> =
            later.map(|(id, word)| (word.at(), *id)).collect();
        files.sort();
        files.into_iter().map(|(_, id)| id).collect()
    }

    /// All files that are on tape by such a word, with their directories and their names there, as far as these are told.
    pub fn files_on_tape_since(&self) -> Vec<(&FileOnTape, Option<(EntryId, &str)>)> {
        let files = self.files_since().into_iter();
        let on_tape = files.filter_map(|id| match self.on(id)? {
            LastWord::Visible { place, .. } => {
                let place = place.as_ref().map(|(parent, name)| (*parent, &**name));
                Some((self.on_tape.get(&id)?, place))
            }
            LastWord::Trashed(_) | LastWord::Removed { .. } => None,
        });
        on_tape.collect()
    }

    /// What logs tell of a file on tape, however old that is.
    pub fn file_on_tape(&self, file: EntryId) -> Option<&FileOnTape> {
        self.on_tape.get(&file)
    }

    /// All directories that got their place so late, with what holds them and their names there, the earliest first.
    pub fn directories_since(&self) -> Vec<(EntryId, EntryId, &str)> {
        let words = self.directories.iter();
        let mut later: Vec<_> = words.filter(|(_, word)| self.is_later(word.at)).collect();
        later.sort_by_key(|(id, word)| (word.at, **id));
        let later = later.into_iter();
        later
            .map(|(id, word)| (*id, word.parent, &*word.name))
            .collect()
    }

    /// A file of the trash that was restored after it was removed at that time: a namespace that has it as trash is an older
    /// copy. Gives back where it was then, if that is told.
    pub fn restored(&self, trashed: &TrashedFile) -> Option<Option<(EntryId, &str)>> {
        match self.on(trashed.file)? {
            LastWord::Visible { at, place } if *at > trashed.removed => {
                Some(place.as_ref().map(|(parent, name)| (*parent, &**name)))
            }
            LastWord::Visible { .. } | LastWord::Trashed(_) | LastWord::Removed { .. } => None,
        }
    }

    /// Where a directory is, as far as logs tell.
    pub fn path_of(&self, directory: EntryId) -> Option<NamespacePath> {
        let mut names = Vec::new();
        let mut id = directory;
        while id != EntryId::ROOT {
            let DirectoryWord { parent, name, .. } = self.directories.get(&id)?;
            // Logs of different times could make a ring.
            if names.len() > 10_000 {
                return None;
            }
            names.push(name);
            id = *parent;
        }
        let mut names = names.into_iter().rev();
        let path = names.try_fold(NamespacePath::root(), |path, name| path.child(name));
        path.ok()
    }
}

/// The logs in a pool's directory: those that were kept aside in the order in which that was done, then the one in use.
fn logs_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        if name == DIRECTORY_LOG || name.starts_with(&format!("{DIRECTORY_LOG}.before-")) {
            logs.push(name.to_owned());
        }
    }
    logs.sort_by_key(|name| (name == DIRECTORY_LOG, name.len(), name.clone()));
    Ok(logs.into_iter().map(|name| directory.join(name)).collect())
}

/// What one log says.
#[derive(Default)]
struct Listener {
    files: HashMap<EntryId, LastWord>,
    directories: HashMap<EntryId, DirectoryWord>,
    on_tape: HashMap<EntryId, FileOnTape>,
    /// The number as of which its snapshot is.
    snapshot: u64,
    /// Files of the snapshot. It has no time of its own, but is later than all times in it.
    of_snapshot: Vec<EntryId>,
    newest: Timestamp,
    newest_of_snapshot: Timestamp,
    is_in_snapshot: bool,
}

impl Listener {
    fn read(log: &Path) -> io::Result<Listener> {
        let mut listener = Listener {
            is_in_snapshot: true,
            ..Listener::default()
        };
        let condition = read_log(log, |_, is_of_snapshot, record| {
            if !is_of_snapshot {
                listener.end_snapshot();
            }
            listener.hear(is_of_snapshot, record);
        })?;
        listener.snapshot = condition.snapshot;
        listener.end_snapshot();
        Ok(listener)
    }

    fn end_snapshot(&mut self) {
        if !std::mem::take(&mut self.is_in_snapshot) {
            return;
        }
        let newest = self.newest;
        self.newest_of_snapshot = newest;
        for id in std::mem::take(&mut self.of_snapshot) {
            if let Some(LastWord::Visible { at, .. }) = self.files.get_mut(&id) {
                *at = newest.max(*at);
            }
        }
        for directory in self.directories.values_mut() {
            directory.at = newest;
        }
    }

    fn hear(&mut self, is_of_snapshot: bool, record: DirectoryRecord) {
        match record {
            DirectoryRecord::Trashed { file, .. } if file.is_evicted() => {}
            DirectoryRecord::Trashed { file, .. } => {
                self.files.insert(file.file, LastWord::Trashed(file));
            }
            DirectoryRecord::OnTape { file, copies } => {
                let told = FileOnTape::new(&file, copies);
                // Its copies came later than the file itself.
                let at = told.archived().map_or(file.at, |at| at.max(file.at));
                self.on_tape.insert(file.id, told);
                self.hear(
                    is_of_snapshot,
                    DirectoryRecord::File(FileEntry { at, ..file }),
                );
            }
            DirectoryRecord::File(file) => {
                if is_of_snapshot {
                    self.of_snapshot.push(file.id);
                }
                self.see(file.id, file.at, Some((file.parent, file.name)));
            }
            DirectoryRecord::Removed { id, at, .. } => {
                if self.directories.remove(&id).is_none() {
                    let at = self.later_than_before(id, at);
                    self.files.insert(id, LastWord::Removed { at });
                }
            }
            DirectoryRecord::Published { id, at } => self.see(id, at, None),
            DirectoryRecord::Moved {
                id, to, name, at, ..
            } => match self.directories.get_mut(&id) {
                Some(directory) => {
                    let at = at.max(directory.at + Duration::from_millis(1));
                    (directory.parent, directory.name, directory.at) = (to, name, at);
                }
                None => self.see(id, at, Some((to, name))),
            },
            DirectoryRecord::Directory(made) => {
                self.newest = self.newest.max(made.created).max(made.modified);
                let word = DirectoryWord {
                    parent: made.parent,
                    name: made.name,
                    at: made.created,
                };
                self.directories.insert(made.id, word);
            }
            DirectoryRecord::Snapshot { .. }
            | DirectoryRecord::SnapshotEnd { .. }
            | DirectoryRecord::Properties { .. }
            | DirectoryRecord::Checksums { .. } => {}
        }
    }

    fn see(&mut self, id: EntryId, at: Timestamp, place: Option<(EntryId, String)>) {
        let at = self.later_than_before(id, at);
        self.files.insert(id, LastWord::Visible { at, place });
    }

    /// A later line is later, whatever the clock said.
    fn later_than_before(&self, id: EntryId, at: Timestamp) -> Timestamp {
        let before = self.files.get(&id);
        let least = before.map(|word| word.at() + Duration::from_millis(1));
        least.map_or(at, |least| at.max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::super::directory_log::{DirectoryEntry, LOG_VERSION, write_line};
    use super::*;
    use penstock_model::{Bytes, PoolName};
    use uuid::Uuid;

    const FILE: EntryId = EntryId(9);

    fn removed(at: i64) -> TrashedFile {
        TrashedFile {
            file: FILE,
            pool: PoolName::new("p"),
            size: Bytes(1),
            path: NamespacePath::parse("/d/f").expect("valid"),
            owner: None,
            created: Timestamp(1),
            removed: Timestamp(at),
            by: None,
            checksums: Vec::new(),
            properties: Vec::new(),
            archival: penstock_model::Archival::DiskOnly,
        }
    }

    fn trashed(at: i64) -> DirectoryRecord {
        DirectoryRecord::Trashed {
            parent: EntryId(2),
            file: removed(at),
            copies: Vec::new(),
        }
    }

    fn visible(at: i64) -> DirectoryRecord {
        DirectoryRecord::File(FileEntry {
            id: FILE,
            parent: EntryId(2),
            name: "f".to_owned(),
            size: Bytes(1),
            checksums: Vec::new(),
            owner: None,
            created: Timestamp(1),
            at: Timestamp(at),
            properties: Vec::new(),
            archival: penstock_model::Archival::DiskOnly,
        })
    }

    fn directory(modified: i64) -> DirectoryRecord {
        DirectoryRecord::Directory(DirectoryEntry {
            id: EntryId(2),
            parent: EntryId::ROOT,
            name: "d".to_owned(),
            owner: None,
            created: Timestamp(1),
            modified: Timestamp(modified),
            properties: Vec::new(),
        })
    }

    /// A log with a snapshot and what follows it.
    fn log(snapshot: &[DirectoryRecord], tail: &[DirectoryRecord]) -> String {
        let mut text = String::new();
        let first = DirectoryRecord::Snapshot {
            version: LOG_VERSION,
            namespace: Uuid::nil(),
            pool: PoolName::new("p"),
        };
        write_line(&mut text, 7, &first);
        for record in snapshot {
            write_line(&mut text, 7, record);
        }
        let records = snapshot.len() as u64;
        write_line(&mut text, 7, &DirectoryRecord::SnapshotEnd { records });
        for (sequence, record) in (8..).zip(tail) {
            write_line(&mut text, sequence, record);
        }
        text
    }

    fn is_restored(logs: &[(&str, String)], removed_at: i64) -> bool {
        let pool = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in logs {
            std::fs::write(pool.path().join(name), text).expect("written");
        }
        let words = LastWords::read(&[pool.path().to_owned()], 7).expect("readable");
        let trashed = removed(removed_at);
        let restored = words.restored(&trashed);
        if let Some(place) = restored {
            assert_eq!(place, Some((EntryId(2), "f")));
            let path = words.path_of(EntryId(2)).expect("told");
            assert_eq!(path.to_string(), "/d");
        }
        restored.is_some()
    }

    #[test]
    fn a_file_that_came_out_of_the_trash_after_its_removal_is_told_apart_from_one_that_stays_there()
    {
        let (now, aside) = (DIRECTORY_LOG, "directory.log.before-5");
        let tail = |records: &[DirectoryRecord]| log(&[directory(1)], records);
        let both = tail(&[trashed(10), visible(20)]);
        assert!(is_restored(&[(now, both.clone())], 10));
        assert!(
            is_restored(&[(now, tail(&[trashed(10), visible(3)]))], 10),
            "a clock that was set back"
        );
        assert!(is_restored(
            &[(aside, both.clone()), (now, tail(&[trashed(10)]))],
            10
        ));
        let removed_again = tail(&[trashed(10), visible(20), trashed(30)]);
        assert!(!is_restored(&[(now, removed_again)], 10));
        assert!(
            !is_restored(&[(aside, both), (now, tail(&[trashed(30)]))], 30),
            "mended, and removed again since"
        );
        // A log that has missed the removal.
        assert!(!is_restored(&[(now, tail(&[visible(5)]))], 10));
        // A snapshot tells no time of a file, but was made after all changes of directories in it.
        assert!(is_restored(
            &[(now, log(&[visible(1), directory(20)], &[]))],
            10
        ));
        assert!(!is_restored(
            &[(now, log(&[visible(1), directory(9)], &[]))],
            10
        ));
    }
}
