//! Compares a namespace with its pools, both ways, and mends what can be mended. Never removes data.

mod labels;
mod live_trash;
mod lost_pools;
mod on_tape;
mod outdated;
mod places;
mod report;

pub use report::{
    FieldDifference, Findings, FsckReport, LabelDifference, LiveTrashEntry, MissingData,
    OutdatedEntry, PoolState, RightSide, UnknownData, UnknownOnTape, WrongCounter, WrongSize,
};

use self::lost_pools::in_reach;
use self::outdated::quarantined_ids;
use self::places::Facts;
use crate::file_label::Label;
use crate::pool::{IDS_PER_DIRECTORY, move_aside, sync_directory};
use crate::pool_files::{CommonIdentity, OnDisk, PoolFilesError, PoolRoot, lock_pools, marks};
use penstock_clock::wall_clock;
use penstock_model::observation::EntryChangeReason;
use penstock_model::{Archival, NamespacePath, PoolName};
use penstock_persistence::namespace::{
    Change, ChangeError, ChangeReport, EntryId, LastWord, LastWords, Namespace, NamespaceError,
    NearlineChange, PoolUsage, StoredFile,
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

/// What is to be compared, and what may be done about it.
#[derive(Debug, Clone)]
pub struct FsckRequest {
    /// The database.
    pub namespace: PathBuf,
    pub pools: Vec<PoolRoot>,
    /// What may be changed.
    pub repair: Repair,
    /// The pool of which entries may be removed, also when it is out of reach. `None`: the pools that are in reach.
    pub only_pool: Option<PoolName>,
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
    let (pools, away) = in_reach(&order.pools)?;
    let CommonIdentity {
        namespace: of_pools,
        ids_below,
        ..
    } = marks(&pools)?;
    let _locks = lock_pools(&pools)?;
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
    for pool in pools.iter().filter(|_| order.repair.mends) {
        let kept = namespace.keep_directory_log(&pool.name, &pool.directory);
        kept.map_err(|source| FsckFailure::File {
            path: pool.directory.clone(),
            source,
        })?;
    }
    let directories: Vec<PathBuf> = pools.iter().map(|pool| pool.directory.clone()).collect();
    let mut check = Check {
        namespace: &namespace,
        repair: order.repair,
        pools: &pools,
        only_pool: order.only_pool.as_ref(),
        words: LastWords::read(&directories, namespace.log_sequence()?)
            .map_err(FsckFailure::Log)?,
        quarantined: BTreeSet::new(),
        settled: HashSet::new(),
        told_on_tape: HashSet::new(),
        report: FsckReport::default(),
    };
    let with_files = check.look_at_counters(&order.pools)?;
    check.compare_all(progress)?;
    check.look_at_lost_pools(&with_files, &away)?;
    Ok(check.report)
}

struct Check<'a> {
    namespace: &'a Namespace,
    repair: Repair,
    /// Those in reach.
    pools: &'a [PoolRoot],
    only_pool: Option<&'a PoolName>,
    /// What the pools' logs tell.
    words: LastWords,
    /// What is left in the quarantines.
    quarantined: BTreeSet<EntryId>,
    /// Entries of which all is told already: files that got one, entries that are to be removed.
    settled: HashSet<EntryId>,
    /// Entries of which it is told that they are on tape.
    told_on_tape: HashSet<EntryId>,
    report: FsckReport,
}

impl Check<'_> {
    /// Gives back the pools that have files.
    fn look_at_counters(&mut self, pools: &[PoolRoot]) -> Result<BTreeSet<PoolName>, FsckFailure> {
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
                let is_removed = self.only_pool == Some(name) && self.repair.removes_missing;
                if !is_removed {
                    unknown.insert(name.to_string(), counted.files);
                }
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
            self.mend(Change::RecountPools)?;
        }
        Ok(counted.into_keys().collect())
    }

    /// What is in quarantine first: some of it may be what an entry misses. Then all that shows an entry to be out of date, in
    /// all pools, before any entry is called wrong.
    fn compare_all(&mut self, progress: impl Fn(FsckProgress)) -> Result<(), FsckFailure> {
        let mut groups = BTreeMap::<u64, Vec<&PoolRoot>>::new();
        for pool in self.pools {
            let on_disk = pool.data_directories()?.into_iter();
            let known = self.namespace.id_groups(&pool.name, IDS_PER_DIRECTORY)?;
            for group in on_disk.chain(known).collect::<BTreeSet<u64>>() {
                groups.entry(group).or_default().push(pool);
            }
        }
        let mut strangers = Vec::new();
        for pool in self.pools {
            for file in pool.quarantined()? {
                if let Some(stranger) = self.look_at_quarantined(pool, file)? {
                    strangers.push((pool, stranger));
                }
            }
        }
        self.quarantined = quarantined_ids(self.pools)?;
        self.follow_logs()?;
        self.find_files_on_tape()?;
        let total = 2 * groups.values().map(|pools| pools.len() as u64).sum::<u64>();
        let mut done = 0;
        // The latest first: of several that belong to one place it is the one that counts.
        strangers.sort_by_key(|(_, file)| file.id);
        for (group, pools) in groups.iter().rev() {
            let from = EntryId(group * IDS_PER_DIRECTORY);
            while strangers
                .last()
                .is_some_and(|(_, file)| file.id.0 >= from.0 + IDS_PER_DIRECTORY)
            {
                if let Some((pool, file)) = strangers.pop() {
                    self.enter(pool, &file)?;
                }
            }
            let own = strangers.partition_point(|(_, file)| file.id < from);
            let mut unknown = strangers.split_off(own);
            for pool in pools {
                let files = self.unknown_files(pool, *group)?;
                unknown.extend(files.into_iter().map(|file| (*pool, file)));
            }
            unknown.sort_by_key(|(_, file)| file.id);
            for (pool, file) in unknown.iter().rev() {
                self.enter(pool, file)?;
            }
            done += pools.len() as u64;
            progress(FsckProgress { done, total });
        }
        while let Some((pool, file)) = strangers.pop() {
            self.enter(pool, &file)?;
        }
        for (group, pools) in groups {
            for pool in pools {
                self.compare(pool, group)?;
                done += 1;
                progress(FsckProgress { done, total });
            }
        }
        Ok(())
    }

    /// Files of a data directory without an entry, in the trash or in the tree.
    fn unknown_files(&self, pool: &PoolRoot, group: u64) -> Result<Vec<OnDisk>, FsckFailure> {
        let mut files = pool.files_of(group)?;
        let from = EntryId(group * IDS_PER_DIRECTORY);
        let end = EntryId(from.0 + IDS_PER_DIRECTORY);
        let known = self.namespace.files_of_pool(&pool.name, from, end)?;
        let mut ids: HashSet<EntryId> = known.iter().map(|file| file.id).collect();
        ids.extend(self.namespace.trash_of_pool(&pool.name, from, end)?);
        files.retain(|file| !ids.contains(&file.id));
        Ok(files)
    }

    /// Compares the entries of one data directory with its files.
    fn compare(&mut self, pool: &PoolRoot, group: u64) -> Result<(), FsckFailure> {
        let from = EntryId(group * IDS_PER_DIRECTORY);
        let end = EntryId(from.0 + IDS_PER_DIRECTORY);
        let on_disk: BTreeMap<EntryId, OnDisk> = pool
            .files_of(group)?
            .into_iter()
            .map(|file| (file.id, file))
            .collect();
        let mut known = self.namespace.files_of_pool(&pool.name, from, end)?;
        known.retain(|file| !self.settled.contains(&file.id));
        for file in known {
            self.report.files += 1;
            self.report.bytes += file.size.0;
            match on_disk.get(&file.id) {
                None => self.miss(&pool.name, PoolState::InReach, &file)?,
                Some(data) => self.look_at(pool, &file, data)?,
            }
        }
        for id in self.namespace.trash_of_pool(&pool.name, from, end)? {
            self.look_at_trash(pool, id, on_disk.get(&id))?;
        }
        Ok(())
    }

    /// Makes a change, of which the ledger tells that a check made it.
    fn mend(&self, change: Change) -> Result<ChangeReport, ChangeError> {
        let change = change.because(EntryChangeReason::Repair);
        self.namespace.apply(change)
    }

    fn shown(&self, file: &StoredFile) -> Result<String, FsckFailure> {
        let path = self.namespace.path_of(file.id)?;
        Ok(path.map_or_else(|| file.name.clone(), |path| path.to_string()))
    }

    /// The tape system has the file, so that it can be brought back.
    fn is_on_tape(&self, file: EntryId) -> Result<bool, FsckFailure> {
        let known = self.namespace.tape_file(file)?;
        Ok(known
            .is_some_and(|known| known.archival == Archival::Cached && !known.copies.is_empty()))
    }

    fn miss(
        &mut self,
        pool: &PoolName,
        state: PoolState,
        file: &StoredFile,
    ) -> Result<(), FsckFailure> {
        if state == PoolState::InReach {
            self.look_on_tape(file.id)?;
        }
        let path = self.namespace.path_of(file.id)?;
        let is_mended = match &path {
            // Nothing is lost by that, whatever a repair may remove.
            Some(_) if self.may_lose(pool, state) && self.is_on_tape(file.id)? => {
                self.mend(Change::Nearline(NearlineChange::LoseDiskCopy {
                    file: file.id,
                    pool: pool.clone(),
                    at: wall_clock(),
                }))?;
                true
            }
            Some(path) if self.may_remove(pool, state) => {
                self.mend(Change::Remove {
                    path: path.clone(),
                    only: Some(file.id),
                    entries_max: 1,
                    by: None,
                    at: wall_clock(),
                })?;
                self.mend(Change::ForgetTrash {
                    files: vec![file.id],
                    at: wall_clock(),
                })?;
                true
            }
            Some(_) | None => false,
        };
        let finding = MissingData {
            path: path.map_or_else(|| file.name.clone(), |path| path.to_string()),
            id: file.id.to_string(),
            pool: pool.to_string(),
            pool_state: state,
            size: file.size.0,
        };
        self.tell_missing(finding, is_mended);
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
    /// Gives the latter back.
    fn look_at_quarantined(
        &mut self,
        pool: &PoolRoot,
        data: OnDisk,
    ) -> Result<Option<OnDisk>, FsckFailure> {
        let end = EntryId(data.id.0 + 1);
        let known = self.namespace.files_of_pool(&pool.name, data.id, end)?;
        let Some(entry) = known.first() else {
            return Ok(Some(data));
        };
        let at = |source| FsckFailure::File {
            path: data.path.clone(),
            source,
        };
        let (size, _) = data.look().map_err(at)?;
        let is_missed = !pool.place_of(data.id).exists() && size == entry.size;
        let is_mended = is_missed && self.repair.mends;
        if is_mended {
            self.put_in_data(pool, &data)?;
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
        Ok(None)
    }

    /// Gives data without an entry one, where its label says; never in another one's place.
    fn enter(&mut self, pool: &PoolRoot, data: &OnDisk) -> Result<(), FsckFailure> {
        let at = |source| FsckFailure::File {
            path: data.path.clone(),
            source,
        };
        let (size, modified) = data.look().map_err(at)?;
        let label = data.label().map_err(at)?;
        let path = self.place_of(data.id, label.as_ref())?;
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
                "its label says {expected} bytes; the file may be incomplete, and no entry is added"
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
        } else if let Some(known) = self
            .namespace
            .tape_file(data.id)?
            .filter(|known| known.pool.is_none())
        {
            finding.why = Some(
                "it is the data of a file that is on tape only as far as the namespace knows"
                    .to_owned(),
            );
            if self.repair.mends && known.size == size {
                self.put_in_data(pool, data)?;
                self.mend(Change::Nearline(NearlineChange::Recalled {
                    file: data.id,
                    pool: pool.name.clone(),
                    instead_of: None,
                    at: wall_clock(),
                }))?;
                self.settled.insert(data.id);
                finding.entered = Some(known.path.to_string());
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
            self.settled.insert(data.id);
            finding.entered = Some(entered.to_string());
            finding.why = why;
        }
        let is_mended = finding.entered.is_some() || (finding.is_trash && self.repair.mends);
        self.report.unknown.add(finding, is_mended);
        Ok(())
    }

    /// The logs know of moves that the label does not tell. The directory that it names may have another path by now.
    fn place_of(
        &self,
        id: EntryId,
        label: Option<&Label>,
    ) -> Result<Option<NamespacePath>, FsckFailure> {
        if let Some(LastWord::Visible {
            place: Some((parent, name)),
            ..
        }) = self.words.since(id)
            && let Some(path) = self.path_in(*parent, name)?
        {
            return Ok(Some(path));
        }
        let Some(label) = label.filter(|label| !label.path.is_root()) else {
            return Ok(None);
        };
        let name = label.path.name().unwrap_or_default();
        let now = match label.parent {
            Some(parent) => self.path_in(parent, name)?,
            None => None,
        };
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
}
