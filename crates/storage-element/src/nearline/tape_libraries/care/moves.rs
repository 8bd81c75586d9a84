//! Files on tape that are written there once more: all of a tape, so that it can be written anew, those whose copy on it cannot be
//! read, or those that have too few copies.

use super::super::copy_uri::CopyUri;
use super::super::disk_side::DiskSide;
use super::super::request_kind::RequestKind;
use super::listing::ListedFile;
use crate::config::ArchiveClasses;
use crate::nearline::wording::why_it_stays;
use crate::pool::Pool;
use crate::reaper::Pools;
use penstock_model::text::plural;
use penstock_model::{Archival, NamespacePath, PoolName};
use penstock_persistence::namespace::{EntryId, Namespace, NamespaceError, TapeFile};
use penstock_tape::copy_count::{CopyNeed, FurtherCopy, KnownCopy, copy_need};
use penstock_tape::data_set::{DataSet, DataSetName, HintSource};
use penstock_tape::live_set::LiveSet;
use penstock_tape::repack::{
    DiskComparison, DiskCopy, LiveFile, MoveWork, Repack, RepackOrder, RepackStep,
};
use penstock_tape::request::{
    Asker, FamilyName, FileId, RequestId, RequestOutcome, TapeCopy, TapeName, VoName,
};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Files that are looked up, and in the request engine, at once.
const BATCH_FILES: usize = 1_000;

/// What of a file has to be known to move it.
pub(super) struct MoveContext<'a> {
    pub namespace: &'a Namespace,
    pub pools: &'a Pools,
    pub classes: &'a ArchiveClasses,
    pub part_bytes: u64,
    pub live: &'a LiveSet,
    /// Each can have one copy of a file.
    pub libraries: usize,
    pub now_ns: i64,
    /// How long a copy counts whose tape is out of use.
    pub copies_wait_ns: i64,
}

/// Why files are written once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MoveGoal {
    /// All of the tape, so that it is empty. Files that one of these names lie beside each other.
    Empty {
        tape: TapeName,
        together: Vec<String>,
    },
    /// Their copies on the tape cannot be read.
    Mend(TapeName),
    /// They have fewer copies than their class wants.
    Copy,
}

impl MoveGoal {
    /// Where their old copies are, if they are on one tape.
    pub(super) fn tape(&self) -> Option<&TapeName> {
        match self {
            MoveGoal::Empty { tape, .. } | MoveGoal::Mend(tape) => Some(tape),
            MoveGoal::Copy => None,
        }
    }
}

/// How far some files are.
pub(super) struct TapeMoves {
    pub goal: MoveGoal,
    /// Not looked up yet.
    left: VecDeque<ListedFile>,
    batch: Repack,
    pub moved_files: u64,
    /// They stay as they are, for now, and may be moved later.
    pub failed_files: u64,
    pub stays: Stays,
}

/// Files that were to be moved and could not be: why, how many, and one of them.
#[derive(Debug, Default)]
pub(super) struct Stays(BTreeMap<&'static str, (u64, FileId)>);

impl Stays {
    fn add(&mut self, why: &'static str, added: u64, first: FileId) {
        let (files, _) = self.0.entry(why).or_insert((0, first));
        *files += added;
    }

    pub(super) fn extend(&mut self, others: &Stays) {
        for (why, (files, first)) in &others.0 {
            self.add(why, *files, *first);
        }
    }

    /// For people; `None`: there are none.
    pub(super) fn text(&self) -> Option<String> {
        let told = self.0.iter().map(|(why, (files, first))| {
            let files = plural(*files, "file");
            format!("{files} (such as file {}): {why}", EntryId(first.0))
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

/// What is to be done for a file, as it is found when it is looked up.
enum MoveDecision {
    Move(Box<LiveFile>),
    /// It has no copy there any more, needs none, or is not in the tree.
    Gone,
    /// It needs a copy, and a tape that is away has one to make it from.
    TapeAway,
    /// The same; this pool does, which is away for a while.
    PoolAway(PoolName),
    /// There is nothing to make a copy from.
    Hopeless,
    /// There is no copy left that counts.
    Lost(LostFile),
}

/// A file without a copy that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LostFile {
    pub file: FileId,
    pub path: NamespacePath,
    /// One that has a copy of it.
    pub tape: TapeName,
}

/// What may be done now.
#[derive(Default)]
pub(super) struct NextMoves {
    pub orders: Vec<RepackOrder>,
    /// Files without a copy on the tape any more, or not in the tree: in the trash they have it still.
    pub gone: Vec<FileId>,
    /// Files of which there is nothing but copies that cannot be read.
    pub hopeless: Vec<FileId>,
    /// Files without a copy that counts.
    pub lost: Vec<LostFile>,
    /// Pools that are away, and have files that are to be copied.
    pub away_pools: BTreeSet<PoolName>,
}

impl TapeMoves {
    pub(super) fn new(goal: MoveGoal, files: Vec<ListedFile>) -> TapeMoves {
        TapeMoves {
            goal,
            batch: Repack::new(asker(), 0, []),
            left: files.into(),
            moved_files: 0,
            failed_files: 0,
            stays: Stays::default(),
        }
    }

    /// Nothing is left that could be moved now.
    pub(super) fn is_done(&self) -> bool {
        self.left.is_empty() && self.batch.is_done()
    }

    /// Files that were not looked up yet, or are being moved.
    pub(super) fn left_files(&self) -> u64 {
        (self.left.len() + self.batch.left_files()) as u64
    }

    /// Files that are being moved.
    pub(super) fn open_files(&self) -> impl Iterator<Item = FileId> {
        self.batch.files()
    }

    /// Whether the copy of a file on disk is needed for it.
    pub(super) fn holds(&self, file: FileId) -> bool {
        self.batch.files().any(|held| held == file)
    }

    /// What may be asked for now. Some files are passed over.
    pub(super) fn next(
        &mut self,
        context: &MoveContext<'_>,
        is_skipped: impl Fn(FileId) -> bool,
    ) -> Result<NextMoves, NamespaceError> {
        let mut next = NextMoves::default();
        while self.batch.is_done() && !self.left.is_empty() {
            let (mut listed, mut ids) = (Vec::new(), Vec::new());
            while let Some(one) = self.left.pop_front() {
                if is_skipped(one.file) {
                    // It is moved for another reason already, which may leave it with too few copies.
                    self.failed_files += 1;
                } else {
                    ids.push(EntryId(one.file.0));
                    listed.push(one);
                }
                if ids.len() >= BATCH_FILES {
                    break;
                }
            }
            let found = match context.namespace.tape_files_of(&ids) {
                Ok(found) => found,
                Err(why) => {
                    listed
                        .into_iter()
                        .rev()
                        .for_each(|one| self.left.push_front(one));
                    return Err(why);
                }
            };
            let mut files = Vec::new();
            for (one, found) in listed.into_iter().zip(found) {
                match self.look_up(context, &one, found.as_ref()) {
                    MoveDecision::Move(live) => files.push(*live),
                    MoveDecision::Gone => next.gone.push(one.file),
                    MoveDecision::TapeAway => self.failed_files += 1,
                    MoveDecision::PoolAway(pool) => {
                        self.failed_files += 1;
                        next.away_pools.insert(pool);
                    }
                    MoveDecision::Hopeless => {
                        self.failed_files += 1;
                        next.hopeless.push(one.file);
                    }
                    MoveDecision::Lost(lost) => {
                        self.failed_files += 1;
                        next.lost.push(lost);
                    }
                }
            }
            self.batch = Repack::new(asker(), context.part_bytes, files);
        }
        next.orders = self.batch.next(|work, file| {
            let kind = match work {
                MoveWork::Read => RequestKind::MoveRead,
                MoveWork::Write => RequestKind::MoveWrite,
            };
            kind.of_file(file)
        });
        Ok(next)
    }

    fn look_up(
        &self,
        context: &MoveContext<'_>,
        listed: &ListedFile,
        found: Option<&TapeFile>,
    ) -> MoveDecision {
        let Some(found) = found.filter(|found| found.archival == Archival::Cached) else {
            return MoveDecision::Gone;
        };
        let uris = found.copies.iter();
        let uris: Vec<CopyUri> = uris.filter_map(|copy| CopyUri::parse(&copy.uri)).collect();
        match &self.goal {
            MoveGoal::Empty { tape, together } => {
                let hint = together.get(listed.hint).map(|hint| data_set(hint));
                let live = moved_file(context, (listed, found), uris, tape);
                live.map_or(MoveDecision::Gone, |live| {
                    let data_set = hint;
                    MoveDecision::Move(Box::new(LiveFile { data_set, ..live }))
                })
            }
            MoveGoal::Mend(tape) => match moved_file(context, (listed, found), uris, tape) {
                None => MoveDecision::Gone,
                Some(live) => {
                    let unreadable = &context.live.unreadable;
                    let is_source = |copy: &TapeCopy| !unreadable.contains(live.file, copy);
                    if live.disk == DiskCopy::Absent && !live.copies.iter().any(is_source) {
                        return MoveDecision::Hopeless;
                    }
                    MoveDecision::Move(Box::new(LiveFile {
                        is_unreadable: true,
                        ..live
                    }))
                }
            },
            MoveGoal::Copy => copied_file(context, (listed.file, found), uris),
        }
    }

    pub(super) fn told(
        &mut self,
        request: RequestId,
        outcome: &RequestOutcome,
    ) -> Option<RepackStep> {
        let step = self.batch.told(request, outcome);
        self.count(step)
    }

    /// `is_good` tells copies that can be read.
    pub(super) fn compared(
        &mut self,
        file: FileId,
        comparison: DiskComparison,
        is_good: impl Fn(&TapeCopy) -> bool,
    ) -> Option<RepackStep> {
        let step = self.batch.compared(file, comparison, is_good);
        self.count(step)
    }

    fn count(&mut self, step: Option<RepackStep>) -> Option<RepackStep> {
        match &step {
            Some(RepackStep::Written { .. }) => self.moved_files += 1,
            Some(RepackStep::Stays { file, why }) => {
                self.failed_files += 1;
                self.stays.add(why_it_stays(why), 1, *file);
            }
            Some(RepackStep::OnDisk(_) | RepackStep::Damaged(_)) | None => {}
        }
        step
    }
}

/// A file that leaves its place on a tape; `None`: it has no copy there any more.
fn moved_file(
    context: &MoveContext<'_>,
    (listed, found): (&ListedFile, &TapeFile),
    uris: Vec<CopyUri>,
    tape: &TapeName,
) -> Option<LiveFile> {
    let uris = uris.into_iter();
    let (here, elsewhere): (Vec<CopyUri>, Vec<CopyUri>) =
        uris.partition(|uri| uri.copy.tape == *tape);
    let old = here.first()?.copy.clone();
    if old.begin_bytes != listed.begin_bytes {
        return None;
    }
    let further = FurtherCopy {
        instead_of: Some(old),
        not_in: elsewhere.iter().map(|uri| uri.library.clone()).collect(),
        sources: { here.into_iter().chain(elsewhere) }
            .map(|uri| uri.copy)
            .collect(),
    };
    Some(live_file(context, (listed.file, found), further))
}

/// A file that may have too few copies.
fn copied_file(
    context: &MoveContext<'_>,
    (file, found): (FileId, &TapeFile),
    uris: Vec<CopyUri>,
) -> MoveDecision {
    let times = (context.now_ns, context.copies_wait_ns);
    let Some(tape) = tape_of_lost(context.live, &uris, times) else {
        return MoveDecision::Gone;
    };
    let known = uris.into_iter().map(|uri| KnownCopy {
        state: context.live.copy_state(file, &uri.copy, times),
        library: uri.library,
        copy: uri.copy,
    });
    let known: Vec<KnownCopy> = known.collect();
    let class = context.classes.class_of(&found.path, found.size);
    let libraries = u32::try_from(context.libraries).unwrap_or(u32::MAX);
    let wanted = class.map_or(1, |class| class.copies).min(libraries);
    match copy_need(&known, wanted, is_on_disk(context, found)) {
        CopyNeed::Nothing => MoveDecision::Gone,
        CopyNeed::Wait => match pool_of(context, found) {
            Some(pool) => MoveDecision::PoolAway(pool.name.clone()),
            None => MoveDecision::TapeAway,
        },
        CopyNeed::OneMore(further) => {
            MoveDecision::Move(Box::new(live_file(context, (file, found), further)))
        }
        CopyNeed::NoGoodCopy => match pool_of(context, found) {
            Some(pool) => MoveDecision::PoolAway(pool.name.clone()),
            None => MoveDecision::Lost(LostFile {
                file,
                path: found.path.clone(),
                tape,
            }),
        },
    }
}

/// The tape that a file without a good copy counts for: the first that is lost, if one is.
pub(super) fn tape_of_lost(
    live: &LiveSet,
    uris: &[CopyUri],
    times: (i64, i64),
) -> Option<TapeName> {
    let mut tapes = uris.iter().map(|uri| &uri.copy.tape);
    let lost = tapes.clone().find(|tape| live.is_lost(tape, times));
    lost.or_else(|| tapes.next()).cloned()
}

fn live_file(
    context: &MoveContext<'_>,
    (file, found): (FileId, &TapeFile),
    further: FurtherCopy,
) -> LiveFile {
    let class = context.classes.class_of(&found.path, found.size);
    LiveFile {
        file,
        size_bytes: found.size.0,
        copies: further.sources,
        instead_of: further.instead_of,
        not_in: further.not_in,
        family: FamilyName(context.classes.family_of(&found.path, found.size).into()),
        is_packed: class.is_some_and(|class| found.size < class.packed_below),
        data_set: None,
        disk: match is_on_disk(context, found) {
            true => DiskCopy::Present,
            false => DiskCopy::Absent,
        },
        is_unreadable: false,
    }
}

fn is_on_disk(context: &MoveContext<'_>, found: &TapeFile) -> bool {
    pool_of(context, found).is_some_and(|pool| pool.is_in_reach())
}

/// The pool that has it, if that is configured.
fn pool_of<'a>(context: &MoveContext<'a>, found: &TapeFile) -> Option<&'a Arc<Pool>> {
    found.pool.as_ref().and_then(|pool| context.pools.get(pool))
}

/// Files that a hint names lie beside each other.
fn data_set(hint: &str) -> DataSet {
    DataSet {
        name: DataSetName(vec![hint.into()]),
        expected_files: None,
        expected_bytes: None,
        source: HintSource::Path,
        has_blank_hints: false,
    }
}

pub(super) fn asker() -> Asker {
    Asker {
        vo: VoName("site".into()),
        priority: 0,
        deadline_ns: None,
        // It is canceled at the next start.
        lease_ns: i64::MAX,
    }
}

/// Compares the copy of a file on disk with what is known of the file. Blocks.
pub(super) fn compare_on_disk(disk: &DiskSide, file: FileId) -> DiskComparison {
    comparison_of(file, disk.read_as_written(file))
}

/// What the end of reading a file on disk tells of it.
pub(super) fn comparison_of(file: FileId, read: io::Result<()>) -> DiskComparison {
    let Err(why) = read else {
        return DiskComparison::Same;
    };
    // Its sectors cannot be read, the file system finds them or its own structure damaged, or its data is not there.
    let is_unreadable = [
        Errno::IO,
        Errno::NODATA,
        Errno::BADMSG,
        Errno::UCLEAN,
        Errno::NOENT,
    ];
    let is_unreadable = is_unreadable.map(Errno::raw_os_error);
    let is_unreadable = why
        .raw_os_error()
        .is_some_and(|code| is_unreadable.contains(&code));
    if is_unreadable || why.kind() == ErrorKind::InvalidData {
        tracing::error!(file = file.0, %why, "the copy on disk of a file that is on tape is damaged");
        return DiskComparison::Differs;
    }
    tracing::warn!(file = file.0, %why, "the copy on disk of a file cannot be compared now");
    DiskComparison::Unknown
}
