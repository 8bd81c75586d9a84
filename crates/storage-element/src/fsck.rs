//! Compares a namespace with its pools, both ways, and mends what can be mended. Never removes data.

mod labels;
mod live_trash;
mod report;

pub use report::{
    FieldDifference, Findings, FsckReport, LabelDifference, LiveTrashEntry, MissingData, RightSide,
    UnknownData, WrongCounter, WrongSize,
};

use crate::file_label::Label;
use crate::pool::{IDS_PER_DIRECTORY, move_aside, sync_directory};
use crate::pool_files::{CommonIdentity, OnDisk, PoolFilesError, PoolRoot, lock_pools, marks};
use penstock_clock::wall_clock;
use penstock_model::observation::EntryChangeReason;
use penstock_model::{Bytes, Checksum, NamespacePath, PoolName, Timestamp};
use penstock_persistence::namespace::{
    Change, ChangeError, ChangeRefusal, ChangeReport, EntryId, LastWord, LastWords, Namespace,
    NamespaceError, NewFile, PoolUsage, Replace, StoredFile,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use thiserror::Error;
use uuid::Uuid;

/// Ids that an older copy of a namespace leaps over.
const IDS_LEAP: u64 = 1_000_000_000;
/// Where files go whose place is not known or taken.
const LOST_AND_FOUND: &str = "lost+found";

/// What is to be compared, and what may be done about it.
#[derive(Debug, Clone)]
pub struct FsckRequest {
    /// The database.
    pub namespace: PathBuf,
    /// All pools.
    pub pools: Vec<PoolRoot>,
    /// What may be changed.
    pub repair: Repair,
}

/// What may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repair {
    /// Files without an entry get one, counters and labels are corrected.
    pub mends: bool,
    /// Entries whose data is missing are removed.
    pub removes_missing: bool,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsckProgress {
    /// Groups of files that were compared.
    pub done: u64,
    /// Of how many.
    pub total: u64,
}

/// Why they could not be compared, or not be mended.
#[derive(Debug, Error)]
pub enum FsckFailure {
    /// The namespace cannot be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A change was refused.
    #[error("the namespace could not be changed: {0}")]
    Change(#[from] ChangeError),
    /// A pool cannot be read.
    #[error(transparent)]
    Pool(#[from] PoolFilesError),
    /// The directory logs cannot be read.
    #[error("the directory logs of the pools cannot be read: {0}")]
    Log(io::Error),
    /// A file in a pool cannot be moved.
    #[error("{path} cannot be used: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The pools belong to another namespace.
    #[error(
        "the pools belong to namespace {of_pools}, not to this one ({ours}); if that one was lost and this one was made by a \
         start since then, `penstock rebuild --dir D --replace` makes it again from the pools; otherwise correct the \
         configuration"
    )]
    OtherNamespace {
        /// The namespace that was opened.
        ours: Uuid,
        /// The namespace in `pool.json`.
        of_pools: Uuid,
    },
    /// There is no namespace.
    #[error(
        "{path} does not exist: `penstock rebuild --dir D` makes it from the pools, `penstock restore FILE --dir D` puts a \
         backup back",
        path = .0.display()
    )]
    Absent(PathBuf),
}

/// Compares, and mends what the order allows. Blocks; no service may use the namespace.
pub fn check(
    order: &FsckRequest,
    progress: impl Fn(FsckProgress),
) -> Result<FsckReport, FsckFailure> {
    if !order.namespace.exists() {
        return Err(FsckFailure::Absent(order.namespace.clone()));
    }
    let CommonIdentity {
        namespace: of_pools,
        ids_below,
        ..
    } = marks(&order.pools)?;
    let _locks = lock_pools(&order.pools)?;
    let namespace = Namespace::open(&order.namespace)?;
    if namespace.uuid() != of_pools {
        return Err(FsckFailure::OtherNamespace {
            ours: namespace.uuid(),
            of_pools,
        });
    }
    if EntryId(ids_below) > namespace.first_id() {
        // An older copy. Directories have got ids since, of which no pool tells.
        namespace.skip_ids(EntryId(ids_below + IDS_LEAP));
    }
    for pool in order.pools.iter().filter(|_| order.repair.mends) {
        let kept = namespace.keep_directory_log(&pool.name, &pool.directory);
        kept.map_err(|source| FsckFailure::File {
            path: pool.directory.clone(),
            source,
        })?;
    }
    let directories: Vec<PathBuf> = order
        .pools
        .iter()
        .map(|pool| pool.directory.clone())
        .collect();
    let mut check = Check {
        namespace: &namespace,
        repair: order.repair,
        words: LastWords::read(&directories).map_err(FsckFailure::Log)?,
        report: FsckReport::default(),
    };
    check.look_at_counters(&order.pools)?;
    let mut groups = Vec::new();
    for pool in &order.pools {
        let on_disk = pool.data_directories()?.into_iter();
        let known = namespace.id_groups(&pool.name, IDS_PER_DIRECTORY)?;
        let all: BTreeSet<u64> = on_disk.chain(known).collect();
        groups.push((pool, all));
    }
    let total = groups.iter().map(|(_, all)| all.len() as u64).sum();
    let mut done = 0;
    for (pool, all) in groups {
        // First: some of it may be what an entry misses.
        for file in pool.quarantined()? {
            check.look_at_quarantined(pool, &file)?;
        }
        for group in all {
            check.compare(pool, group)?;
            done += 1;
            progress(FsckProgress { done, total });
        }
    }
    Ok(check.report)
}

struct Check<'a> {
    namespace: &'a Namespace,
    repair: Repair,
    /// What the pools' logs tell.
    words: LastWords,
    report: FsckReport,
}

impl Check<'_> {
    fn look_at_counters(&mut self, pools: &[PoolRoot]) -> Result<(), FsckFailure> {
        let (noted, counted) = (
            self.namespace.pool_usage()?,
            self.namespace.counted_usage()?,
        );
        let names: BTreeSet<&PoolName> = noted.keys().chain(counted.keys()).collect();
        for name in names {
            let noted: PoolUsage = noted.get(name).copied().unwrap_or_default();
            let counted = counted.get(name).copied().unwrap_or_default();
            if counted.files > 0 && !pools.iter().any(|pool| pool.name == *name) {
                let unknown = &mut self.report.pools_unknown;
                unknown.insert(name.to_string(), counted.files);
            }
            if noted != counted {
                self.report.counters.push(WrongCounter {
                    pool: name.to_string(),
                    files_noted: noted.files,
                    files: counted.files,
                    bytes_noted: noted.bytes.0,
                    bytes: counted.bytes.0,
                    is_mended: self.repair.mends,
                });
            }
        }
        if self.repair.mends && !self.report.counters.is_empty() {
            self.namespace.apply(Change::RecountPools)?;
        }
        Ok(())
    }

    /// Compares the files of one data directory.
    fn compare(&mut self, pool: &PoolRoot, group: u64) -> Result<(), FsckFailure> {
        let from = EntryId(group * IDS_PER_DIRECTORY);
        let end = EntryId(from.0 + IDS_PER_DIRECTORY);
        let on_disk: BTreeMap<EntryId, OnDisk> = pool
            .files_of(group)?
            .into_iter()
            .map(|file| (file.id, file))
            .collect();
        let known = self.namespace.files_of_pool(&pool.name, from, end)?;
        let trash = self.namespace.trash_of_pool(&pool.name, from, end)?;
        let ids: HashSet<EntryId> = known.iter().map(|file| file.id).collect();
        for file in known {
            self.report.files += 1;
            self.report.bytes += file.size.0;
            match on_disk.get(&file.id) {
                None => self.miss(pool, &file)?,
                Some(data) => self.look_at(pool, &file, data)?,
            }
        }
        for (id, data) in &on_disk {
            if !ids.contains(id) && !trash.contains(id) {
                self.enter(pool, data)?;
            }
        }
        for id in trash {
            self.look_at_trash(pool, id, on_disk.get(&id))?;
        }
        Ok(())
    }

    fn shown(&self, file: &StoredFile) -> Result<String, FsckFailure> {
        let path = self.namespace.path_of(file.id)?;
        Ok(path.map_or_else(|| file.name.clone(), |path| path.to_string()))
    }

    fn miss(&mut self, pool: &PoolRoot, file: &StoredFile) -> Result<(), FsckFailure> {
        let path = self.namespace.path_of(file.id)?;
        let is_mended = match &path {
            Some(path) if self.repair.removes_missing => {
                self.mend(Change::Remove {
                    path: path.clone(),
                    only: Some(file.id),
                    entries_max: 1,
                    by: None,
                    at: wall_clock(),
                })?;
                self.mend(Change::ForgetTrash(vec![file.id]))?;
                true
            }
            Some(_) | None => false,
        };
        let finding = MissingData {
            path: path.map_or_else(|| file.name.clone(), |path| path.to_string()),
            id: file.id.to_string(),
            pool: pool.name.to_string(),
            size: file.size.0,
        };
        self.report.missing.add(finding, is_mended);
        Ok(())
    }

    fn look_at(
        &mut self,
        pool: &PoolRoot,
        file: &StoredFile,
        data: &OnDisk,
    ) -> Result<(), FsckFailure> {
        let at = |source| FsckFailure::File {
            path: data.path.clone(),
            source,
        };
        let (size, _) = data.look().map_err(at)?;
        if size != file.size {
            let finding = WrongSize {
                path: self.shown(file)?,
                id: file.id.to_string(),
                pool: pool.name.to_string(),
                expected: file.size.0,
                found: size.0,
            };
            self.report.wrong_size.add(finding, false);
        }
        self.compare_label(pool, file, data, size)
    }

    /// What a start has put aside: data of an entry that misses it, or data without an entry.
    fn look_at_quarantined(&mut self, pool: &PoolRoot, data: &OnDisk) -> Result<(), FsckFailure> {
        let end = EntryId(data.id.0 + 1);
        let known = self.namespace.files_of_pool(&pool.name, data.id, end)?;
        let Some(entry) = known.first() else {
            return self.enter(pool, data);
        };
        let at = |source| FsckFailure::File {
            path: data.path.clone(),
            source,
        };
        let (size, _) = data.look().map_err(at)?;
        let is_missed = !pool.place_of(data.id).exists() && size == entry.size;
        let is_mended = is_missed && self.repair.mends;
        if is_mended {
            self.put_in_data(pool, data)?;
        }
        let path = self.shown(entry)?;
        let finding = UnknownData {
            file: data.path.display().to_string(),
            pool: pool.name.to_string(),
            size: size.0,
            is_trash: false,
            in_quarantine: !is_mended,
            entered: is_mended.then(|| path.clone()),
            path: Some(path),
            why: (!is_missed).then(|| "its entry has other data; this is not entered".to_owned()),
        };
        self.report.unknown.add(finding, is_mended);
        Ok(())
    }

    /// Gives data without an entry one, where its label says; never in another one's place.
    fn enter(&mut self, pool: &PoolRoot, data: &OnDisk) -> Result<(), FsckFailure> {
        let at = |source| FsckFailure::File {
            path: data.path.clone(),
            source,
        };
        let (size, modified) = data.look().map_err(at)?;
        let label = data.label().map_err(at)?;
        let path = self.place_of(label.as_ref())?;
        let mut finding = UnknownData {
            file: data.path.display().to_string(),
            pool: pool.name.to_string(),
            size: size.0,
            is_trash: false,
            in_quarantine: data.path != pool.place_of(data.id),
            path: path.as_ref().map(ToString::to_string),
            entered: None,
            why: None,
        };
        let damage = label.as_ref().filter(|label| label.size != size);
        if let Some(label) = damage {
            let expected = label.size.0;
            finding.why = Some(format!(
                "its label says {expected} bytes; what is there may be a part, and is not entered"
            ));
            self.put_aside(pool, data, "damaged", &mut finding)?;
        } else if let Some(LastWord::Trashed(trashed)) = self.words.on(data.id) {
            let why = "it was removed before the namespace was lost, so it belongs to the trash";
            finding.why = Some(why.to_owned());
            // What was put aside has a time of its own there.
            finding.is_trash = !finding.in_quarantine;
            if finding.is_trash && self.repair.mends {
                self.mend(Change::ReenterTrash(trashed.clone()))?;
            }
        } else if self.repair.mends {
            let facts = Facts {
                size,
                checksums: label.as_ref().map(|label| label.checksums.clone()),
                created: label.as_ref().map_or(modified, |label| label.created),
                label: label.as_ref(),
            };
            self.put_in_data(pool, data)?;
            let (entered, why) = self.publish(pool, data.id, path, facts)?;
            finding.entered = Some(entered.to_string());
            finding.why = why;
        }
        let is_mended = finding.entered.is_some() || (finding.is_trash && self.repair.mends);
        self.report.unknown.add(finding, is_mended);
        Ok(())
    }

    /// The directory that the label names may have another path by now.
    fn place_of(&self, label: Option<&Label>) -> Result<Option<NamespacePath>, FsckFailure> {
        let Some(label) = label.filter(|label| !label.path.is_root()) else {
            return Ok(None);
        };
        let parent = match label.parent {
            Some(parent) => self.namespace.path_of(parent)?,
            None => None,
        };
        let name = label.path.name().unwrap_or_default();
        let now = parent.and_then(|parent| parent.child(name).ok());
        Ok(Some(now.unwrap_or_else(|| label.path.clone())))
    }

    /// Into quarantine what is not entered, so that a start does not miss its entry. Without a time it stays there until
    /// somebody removes it.
    fn put_aside(
        &self,
        pool: &PoolRoot,
        data: &OnDisk,
        since: &str,
        finding: &mut UnknownData,
    ) -> Result<(), FsckFailure> {
        if !self.repair.mends || finding.in_quarantine {
            return Ok(());
        }
        let root = pool.directory.join("quarantine");
        let at = |path: &PathBuf| {
            let path = path.clone();
            move |source| FsckFailure::File { path, source }
        };
        let mut options = DirBuilder::new();
        options.recursive(true).mode(0o700);
        options.create(&root).map_err(at(&root))?;
        let to = root.join(format!("{}-{since}", data.id));
        move_aside(&data.path, &to).map_err(at(&to))?;
        sync_directory(&root).map_err(at(&root))?;
        (finding.file, finding.in_quarantine) = (to.display().to_string(), true);
        Ok(())
    }

    /// Out of quarantine.
    fn put_in_data(&self, pool: &PoolRoot, data: &OnDisk) -> Result<(), FsckFailure> {
        let at = |path: &PathBuf| {
            let path = path.clone();
            move |source| FsckFailure::File { path, source }
        };
        let place = pool.place_of(data.id);
        if place == data.path {
            return Ok(());
        }
        let root = pool.directory.join("data");
        let directory = place.parent().unwrap_or(&root).to_owned();
        std::fs::create_dir_all(&directory).map_err(at(&directory))?;
        // Never over another file of that id.
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        let here = rustix::fs::CWD;
        rustix::fs::renameat_with(here, &data.path, here, &place, flags)
            .map_err(|why| at(&place)(why.into()))?;
        sync_directory(&directory).map_err(at(&directory))?;
        sync_directory(&root).map_err(at(&root))
    }

    fn publish(
        &self,
        pool: &PoolRoot,
        id: EntryId,
        path: Option<NamespacePath>,
        facts: Facts<'_>,
    ) -> Result<(NamespacePath, Option<String>), FsckFailure> {
        let mut why = None;
        for place in places(id, path) {
            let parent = place.parent().unwrap_or_else(NamespacePath::root);
            let parent = self.namespace.lookup(&parent)?.map(|parent| parent.id);
            let told = facts.label.and_then(|label| label.parent);
            let file = NewFile {
                id,
                path: place.clone(),
                size: facts.size,
                checksums: facts.checksums.clone().unwrap_or_default(),
                pool: pool.name.clone(),
                owner: facts.label.and_then(|label| label.owner.clone()),
                at: facts.created,
                replace: Replace::Refused,
                properties_of: None,
                labelled_in: parent.filter(|parent| {
                    let name = facts.label.and_then(|label| label.path.name());
                    told == Some(*parent) && name == place.name()
                }),
            };
            match self.take_place(Change::Reenter {
                file,
                at: wall_clock(),
            })? {
                None => return Ok((place, why)),
                Some(taken) => why = why.or(Some(taken)),
            }
        }
        Err(no_place())
    }

    /// Makes a change, of which the ledger tells that a check made it.
    fn mend(&self, change: Change) -> Result<ChangeReport, ChangeError> {
        let change = change.because(EntryChangeReason::Repair);
        self.namespace.apply(change)
    }

    /// Makes a change that gives a file its place. Gives back why it cannot be there; `None`: it is.
    fn take_place(&self, change: Change) -> Result<Option<String>, FsckFailure> {
        match self.mend(change) {
            Ok(_) => Ok(None),
            Err(ChangeError::Refused(
                refusal @ (ChangeRefusal::Exists(_)
                | ChangeRefusal::IsDirectory(_)
                | ChangeRefusal::ParentIsFile(_)),
            )) => Ok(Some(refusal.to_string())),
            Err(other) => Err(other.into()),
        }
    }
}

/// Where a file may be entered: where it belongs, or else below [`LOST_AND_FOUND`].
fn places(id: EntryId, path: Option<NamespacePath>) -> impl Iterator<Item = NamespacePath> {
    let lost = lost_and_found();
    let below_lost = match &path {
        Some(path) => lost.join(path),
        None => lost.child(&id.to_string()).unwrap_or_else(|_| lost.clone()),
    };
    let named = below_lost.name().map(|name| format!("{name}.{id}"));
    let beside = below_lost.parent().zip(named);
    let beside = beside.and_then(|(parent, name)| parent.child(&name).ok());
    let by_id = lost.child(&format!("{id}")).ok();
    path.into_iter()
        .chain([below_lost])
        .chain(beside)
        .chain(by_id)
}

fn lost_and_found() -> NamespacePath {
    let root = NamespacePath::root();
    root.child(LOST_AND_FOUND).unwrap_or(root)
}

/// All places are taken.
fn no_place() -> FsckFailure {
    FsckFailure::Change(ChangeError::Refused(
        ChangeRefusal::Exists(lost_and_found()),
    ))
}

/// What is known of data without an entry.
struct Facts<'a> {
    size: Bytes,
    checksums: Option<Vec<Checksum>>,
    created: Timestamp,
    label: Option<&'a Label>,
}
