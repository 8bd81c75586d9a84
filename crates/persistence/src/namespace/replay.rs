//! What the directory logs of all pools tell together: the state of the namespace apart from what labels tell.
//!
//! Each log has all directories and all files on tape; of the others it has those of its own pool in its snapshot, and those of all
//! pools in what follows. So a log that ends early is gone on with from the one that goes furthest, and directories and files on
//! tape are taken from one of which nothing is missing.

use super::directory_log::{
    DIRECTORY_LOG, DirectoryEntry, DirectoryRecord, FileEntry, LogCondition, TrashedFile, read_log,
};
use super::{DeadProperty, EntryId, TapeCopyUri};
use penstock_model::{Checksum, PoolName, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// The logs of all pools of one namespace.
#[derive(Default)]
pub struct PoolLogs {
    /// What each pool's log was found to be; `None`: there is none that can be used, and why.
    pub conditions: BTreeMap<PoolName, Result<LogCondition, String>>,
    /// The number up to which changes are known.
    pub sequence: u64,
    pub(super) directories: Option<BTreeMap<EntryId, DirectoryEntry>>,
    /// Files on tape, whichever pool has them on disk.
    pub(super) on_tape: HashMap<EntryId, FileState>,
    /// Copies on tape, those of trash included.
    pub(super) tape_copies: HashMap<EntryId, Vec<TapeCopyUri>>,
    pub(super) pools: BTreeMap<PoolName, FileStates>,
}

/// What logs tell of the files of a pool.
#[derive(Default)]
pub(super) struct FileStates {
    pub files: HashMap<EntryId, FileState>,
    pub trash: HashMap<EntryId, TrashedFile>,
}

/// What logs tell of one file.
#[derive(Default)]
pub(super) struct FileState {
    pub told: Option<FileEntry>,
    pub moved: Option<(EntryId, String)>,
    /// All of them; `None`: not told.
    pub properties: Option<Vec<DeadProperty>>,
    /// Beside those of its label.
    pub checksums: Vec<Checksum>,
    /// The last record that says that it is where it is; 0: none does.
    pub confirmed: u64,
}

#[derive(Default)]
struct ReplayState {
    directories: BTreeMap<EntryId, DirectoryEntry>,
    files: FileStates,
    tape_copies: HashMap<EntryId, Vec<TapeCopyUri>>,
}

impl ReplayState {
    /// The states of files on tape, apart from those of the others.
    fn take_on_tape(&mut self) -> HashMap<EntryId, FileState> {
        let files = &mut self.files.files;
        let ids = self.tape_copies.keys();
        ids.filter_map(|id| Some((*id, files.remove(id)?)))
            .collect()
    }
}

impl PoolLogs {
    /// Reads the logs in the directories of pools. Errors: one cannot be read at all.
    pub fn read(namespace: Uuid, pools: &[(PoolName, PathBuf)]) -> io::Result<PoolLogs> {
        let mut logs = PoolLogs::default();
        for (pool, directory) in pools {
            let found = condition(namespace, pool, &directory.join(DIRECTORY_LOG))?;
            logs.conditions.insert(pool.clone(), found);
        }
        let usable = |pool: &PoolName| logs.conditions.get(pool)?.as_ref().ok();
        let furthest = pools
            .iter()
            .filter_map(|(pool, directory)| Some((usable(pool)?, pool, directory)))
            .max_by_key(|(condition, pool, _)| {
                let is_complete = condition.is_complete();
                (condition.is_whole, condition.sequence, is_complete, *pool)
            });
        let Some((furthest, furthest_pool, furthest_directory)) = furthest else {
            return Ok(logs);
        };
        let sequence = furthest.sequence;
        let furthest_log = furthest_directory.join(DIRECTORY_LOG);
        // What the furthest one has lost before the end of another one, that one tells.
        let complete = pools.iter().filter_map(|(pool, _)| {
            let condition = usable(pool)?;
            let is_gone_on_with = condition.sequence >= furthest.snapshot;
            (condition.is_complete() && is_gone_on_with).then_some((condition.sequence, pool))
        });
        let base_pool = complete.max().map_or(furthest_pool, |(_, pool)| pool);
        let mut states = BTreeMap::new();
        let (mut directories, mut on_tape, mut tape_copies) =
            (None, HashMap::new(), HashMap::new());
        let mut copies_of_trash = HashMap::new();
        for (pool, directory) in pools {
            let mut state = ReplayState::default();
            let mut known = 0;
            if let Some(condition) = usable(pool) {
                read_log(
                    &directory.join(DIRECTORY_LOG),
                    |sequence, is_old, record| {
                        state.apply(sequence, is_old, record);
                    },
                )?;
                known = condition.sequence;
            }
            if known < sequence {
                read_log(&furthest_log, |sequence, is_old, record| {
                    if !is_old && sequence > known {
                        state.apply(sequence, is_old, record);
                    }
                })?;
            }
            let tape_states = state.take_on_tape();
            // Its snapshot alone tells of its trash.
            for id in state.files.trash.keys() {
                if let Some(copies) = state.tape_copies.get(id) {
                    copies_of_trash.insert(*id, copies.clone());
                }
            }
            if pool == base_pool {
                directories = Some(state.directories);
                (on_tape, tape_copies) = (tape_states, state.tape_copies);
            }
            states.insert(pool.clone(), state.files);
        }
        tape_copies.extend(copies_of_trash);
        Ok(PoolLogs {
            sequence,
            directories,
            on_tape,
            tape_copies,
            pools: states,
            ..logs
        })
    }

    /// The largest id in them.
    pub fn id_max(&self) -> u64 {
        let directories = self.directories.iter().flatten().map(|(id, _)| id.0);
        let files = self.pools.values().flat_map(|states| {
            let files = states.files.keys();
            files.chain(states.trash.keys()).map(|id| id.0)
        });
        let on_tape = self.tape_copies.keys().map(|id| id.0);
        directories.chain(files).chain(on_tape).max().unwrap_or(0)
    }
}

fn condition(
    namespace: Uuid,
    pool: &PoolName,
    path: &Path,
) -> io::Result<Result<LogCondition, String>> {
    let condition = match read_log(path, |_, _, _| ()) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return Ok(Err("there is none".to_owned()));
        }
        condition => condition?,
    };
    Ok(match &condition.of {
        None => Err("its first line is damaged".to_owned()),
        Some((other, _)) if *other != namespace => Err(format!("it is of namespace {other}")),
        Some((_, other)) if other != pool => Err(format!("it is of pool {other}")),
        Some(_) => Ok(condition),
    })
}

impl ReplayState {
    fn apply(&mut self, sequence: u64, is_of_snapshot: bool, record: DirectoryRecord) {
        let touch = |state: &mut ReplayState, directory: EntryId, at: Timestamp| {
            if let Some(found) = state.directories.get_mut(&directory)
                && !is_of_snapshot
            {
                found.modified = found.modified.max(at);
            }
        };
        let files = &mut self.files.files;
        match record {
            DirectoryRecord::Snapshot { .. } | DirectoryRecord::SnapshotEnd { .. } => {}
            DirectoryRecord::Directory(made) => {
                let (parent, at) = (made.parent, made.created);
                self.directories.insert(made.id, made);
                touch(self, parent, at);
            }
            DirectoryRecord::OnTape { file, copies } => {
                self.tape_copies.insert(file.id, copies);
                self.apply(sequence, is_of_snapshot, DirectoryRecord::File(file));
            }
            DirectoryRecord::File(told) => {
                self.files.trash.remove(&told.id);
                let (parent, at) = (told.parent, told.at);
                let state = files.entry(told.id).or_default();
                state.properties = Some(told.properties.clone());
                state.checksums.clear();
                state.moved = None;
                state.confirmed = sequence;
                state.told = Some(told);
                touch(self, parent, at);
            }
            DirectoryRecord::Published { id, .. } => {
                files.entry(id).or_default().confirmed = sequence;
            }
            DirectoryRecord::Moved {
                id,
                from,
                to,
                name,
                at,
            } => {
                match self.directories.get_mut(&id) {
                    Some(directory) => (directory.parent, directory.name) = (to, name),
                    None => {
                        let state = files.entry(id).or_default();
                        (state.moved, state.confirmed) = (Some((to, name)), sequence);
                    }
                }
                touch(self, from, at);
                touch(self, to, at);
            }
            DirectoryRecord::Removed { id, parent, at } => {
                self.directories.remove(&id);
                files.remove(&id);
                self.tape_copies.remove(&id);
                touch(self, parent, at);
            }
            // While its data is there it is as good as any.
            DirectoryRecord::Trashed { file, .. } if file.is_evicted() => {}
            DirectoryRecord::Trashed {
                parent,
                file,
                copies,
            } => {
                let at = file.removed;
                if !copies.is_empty() {
                    self.tape_copies.insert(file.file, copies);
                }
                files.remove(&file.file);
                self.files.trash.insert(file.file, file);
                touch(self, parent, at);
            }
            DirectoryRecord::Properties { id, properties } => match self.directories.get_mut(&id) {
                Some(directory) => directory.properties = properties,
                None => files.entry(id).or_default().properties = Some(properties),
            },
            DirectoryRecord::Checksums { id, checksums } => {
                files.entry(id).or_default().checksums.extend(checksums);
            }
        }
    }
}
