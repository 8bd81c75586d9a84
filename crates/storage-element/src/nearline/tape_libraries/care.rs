//! The care for tapes that nobody waits for: files are read and compared now and then; those that cannot be read are written again
//! from another copy; those with too few copies get further ones; tapes are emptied and written anew.
//!
//! What is to be done is recorded by the request engine; how far it is follows from the namespace, so that a restart begins anew with
//! what is left. The namespace is told of a file's new place before its old one counts for nothing.

mod emptying;
mod few_copies;
mod further_copies;
mod listing;
mod moves;
mod moving;
mod status;
mod verification;
mod verifying;

pub(crate) use status::{CareStatus, UnreadableStatus};
pub(super) use status::{VerificationStatus, care_status, lost_files};

use super::TapeLibraries;
use super::catalogue::LiveBytes;
use super::request_kind::RequestKind;
use crate::config::{ArchiveClasses, TapeCareConfig};
use crate::nearline::tape_libraries::LibraryTask;
use emptying::RepackRest;
use few_copies::FewCopies;
use further_copies::FurtherCopies;
use listing::{ListedFile, list, prefix_of};
use moves::{MoveGoal, TapeMoves};
use moving::{MoveKind, StaysTold};
use penstock_model::{PoolName, Timestamp};
use penstock_persistence::namespace::{NamespaceError, TAPE_REMOVAL_USUAL};
use penstock_tape::locate::SECOND_NS;
use penstock_tape::relabel::RelabelRefusal;
use penstock_tape::repack::{DiskComparison, RepackStep};
use penstock_tape::request::{FileId, RequestId, RequestOutcome, TapeCopy, TapeName};
use penstock_tape::request_engine::Input;
use penstock_tape::tape_care::CareStep;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use verification::VerificationPass;

/// Between two looks, in the time of the libraries, at what of tapes is needed.
const USES_INTERVAL_NS: i64 = 3_600 * SECOND_NS;

/// What other threads have found out.
#[derive(Debug)]
pub(in crate::nearline) enum CareNews {
    Listed(ListPurpose, TapeName, Option<Vec<ListedFile>>),
    Uses(Option<BTreeMap<TapeName, LiveBytes>>),
    Compared {
        file: FileId,
        comparison: DiskComparison,
    },
    FewCopies(Option<FewCopies>),
}

/// What the files of a tape are listed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::nearline) enum ListPurpose {
    Verification,
    Repack,
}

/// One tape at a time.
enum Stage<T> {
    Listing,
    Running(T),
}

/// What is being done.
pub(super) struct Care {
    config: TapeCareConfig,
    classes: ArchiveClasses,
    sender: mpsc::UnboundedSender<CareNews>,
    pub(super) news: mpsc::UnboundedReceiver<CareNews>,
    mending: Option<TapeMoves>,
    further_copies: FurtherCopies,
    repack: Option<(TapeName, Stage<TapeMoves>)>,
    verification: Option<(TapeName, Stage<VerificationPass>)>,
    /// Files that could not be mended, and until when they are left alone.
    unmended: BTreeMap<FileId, i64>,
    /// Tapes whose repack waits.
    resting: BTreeMap<TapeName, RepackRest>,
    uses_due_ns: i64,
    /// Requests that have ended.
    pub(super) ended: VecDeque<(RequestId, RequestOutcome)>,
    /// How long copies of removed files stay.
    removed_kept: Duration,
    /// Why the last relabel was refused.
    pub(super) refusal: Option<RelabelRefusal>,
    stays_told: StaysTold,
    /// Something may be asked for at once.
    is_due: bool,
}

impl Care {
    pub(super) fn new(
        config: TapeCareConfig,
        classes: ArchiveClasses,
        removed_kept: Duration,
    ) -> Care {
        let (sender, news) = mpsc::unbounded_channel();
        Care {
            config,
            classes,
            sender,
            news,
            mending: None,
            further_copies: FurtherCopies::default(),
            repack: None,
            verification: None,
            unmended: BTreeMap::new(),
            resting: BTreeMap::new(),
            uses_due_ns: 0,
            ended: VecDeque::new(),
            removed_kept,
            refusal: None,
            stays_told: StaysTold::new(),
            is_due: true,
        }
    }

    /// When a copy is removed of which the namespace knows when that usually is.
    fn removal_of(&self, usual: Timestamp) -> Timestamp {
        let removed = Timestamp(usual.0.saturating_sub(milliseconds(TAPE_REMOVAL_USUAL)));
        removed + self.removed_kept
    }

    /// Whether the copy of a file on disk is needed.
    pub(super) fn holds(&self, file: FileId) -> bool {
        self.moves().any(|moves| moves.holds(file))
    }

    /// What waits is looked at now.
    pub(super) fn hasten(&mut self) {
        self.is_due = true;
        self.unmended.clear();
        self.resting.clear();
        self.further_copies.hasten();
    }

    /// A file has come back from the trash, perhaps with too few copies.
    pub(super) fn look_at_copies(&mut self) {
        self.is_due = true;
        self.further_copies.hasten();
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    fn moves_of(&self, kind: MoveKind) -> Option<&TapeMoves> {
        match kind {
            MoveKind::Mending => self.mending.as_ref(),
            MoveKind::FurtherCopy => self.further_copies.moves(),
            MoveKind::Repack => match &self.repack {
                Some((_, Stage::Running(moves))) => Some(moves),
                Some((_, Stage::Listing)) | None => None,
            },
        }
    }

    fn moves(&self) -> impl Iterator<Item = &TapeMoves> {
        let kinds = MoveKind::ALL.into_iter();
        kinds.filter_map(|kind| self.moves_of(kind))
    }

    /// Files that are written once more for another reason than this: a file has one request at a time.
    fn held_for_others(&self, than: MoveKind) -> BTreeSet<FileId> {
        let others = MoveKind::ALL.into_iter().filter(|kind| *kind != than);
        let moves = others.filter_map(|kind| self.moves_of(kind));
        moves.flat_map(TapeMoves::open_files).collect()
    }

    /// What has become of a file, of those who have asked for that.
    fn steps(&mut self, step: impl FnMut(&mut TapeMoves) -> Option<RepackStep>) -> Vec<RepackStep> {
        let (mending, further) = (self.mending.as_mut(), self.further_copies.moves_mut());
        let moves = [mending, further, running(&mut self.repack)];
        moves.into_iter().flatten().filter_map(step).collect()
    }
}

/// The files of the tape that is being emptied, when they are known.
fn running(repack: &mut Option<(TapeName, Stage<TapeMoves>)>) -> Option<&mut TapeMoves> {
    match repack {
        Some((_, Stage::Running(moves))) => Some(moves),
        Some((_, Stage::Listing)) | None => None,
    }
}

fn blocking<T: Send + 'static>(
    sender: &mpsc::UnboundedSender<CareNews>,
    find: impl FnOnce() -> T + Send + 'static,
    news: impl FnOnce(T) -> CareNews + Send + 'static,
) {
    let sender = sender.clone();
    tokio::task::spawn_blocking(move || {
        // Nobody listens when the storage element ends.
        let _ = sender.send(news(find()));
    });
}

fn logged<T>(what: &str, found: Result<T, NamespaceError>) -> Option<T> {
    found
        .inspect_err(|why| tracing::error!(%why, "{what}"))
        .ok()
}

impl TapeLibraries {
    /// Begins what is due, and goes on with what is begun.
    pub(super) fn begin_care(&mut self) -> Vec<LibraryTask> {
        self.care.is_due = false;
        let mut orders = self.relabel_again();
        orders.extend(self.note_use_of_tapes());
        let now_ns = self.now_ns();
        if self.engine.live().is_background_held(now_ns) {
            return orders;
        }
        let pools = self.disk.pools();
        let is_in_reach = |pool: &PoolName| pools.get(pool).is_some_and(|pool| pool.is_in_reach());
        self.care.further_copies.look_at_away_pools(is_in_reach);
        self.find_uses(now_ns);
        self.begin_mending(now_ns);
        self.begin_repack(now_ns);
        self.begin_copy_pass(now_ns);
        orders.extend(self.begin_verification(now_ns));
        orders.extend(self.go_on_moving(now_ns));
        orders.extend(self.go_on_verifying(now_ns));
        orders
    }

    pub(super) fn care_step(&mut self, tape: TapeName, step: CareStep) -> Vec<LibraryTask> {
        self.input(Input::Care { tape, step })
    }

    pub(super) fn take_care_news(&mut self, news: CareNews) -> Vec<LibraryTask> {
        let now_ns = self.now_ns();
        let mut orders = match news {
            CareNews::Uses(uses) => {
                self.care.uses_due_ns = now_ns.saturating_add(USES_INTERVAL_NS);
                uses.map_or_else(Vec::new, |uses| self.reclaim(uses))
            }
            CareNews::Listed(purpose, tape, files) => {
                if files.is_none() {
                    // It is tried again when time has passed.
                    self.take_listing(purpose, tape, files);
                    return Vec::new();
                }
                self.take_listing(purpose, tape, files);
                Vec::new()
            }
            CareNews::Compared { file, comparison } => {
                if comparison == DiskComparison::Differs {
                    self.note_damaged(file);
                }
                let live = self.engine.live();
                let is_good = |copy: &TapeCopy| live.is_good(file, copy);
                let compare = |moves: &mut TapeMoves| moves.compared(file, comparison, is_good);
                let steps = self.care.steps(compare);
                self.take_steps(steps)
            }
            CareNews::FewCopies(found) => self.take_few_copies(found),
        };
        orders.extend(self.begin_care());
        orders
    }

    fn list(&self, purpose: ListPurpose, tape: &TapeName, together: Vec<String>) {
        let Some(facts) = self.engine.live().tapes.get(tape) else {
            return;
        };
        let prefix = prefix_of(&facts.library, tape);
        let (namespace, tape) = (Arc::clone(&self.namespace), tape.clone());
        let what = "the files of a tape cannot be listed";
        blocking(
            &self.care.sender,
            move || logged(what, list(&namespace, &prefix, &together)),
            move |files| CareNews::Listed(purpose, tape, files),
        );
    }

    fn take_listing(
        &mut self,
        purpose: ListPurpose,
        tape: TapeName,
        files: Option<Vec<ListedFile>>,
    ) {
        let care = self.engine.live().care.get(&tape);
        match purpose {
            ListPurpose::Repack => {
                let Some((of, Stage::Listing)) = &self.care.repack else {
                    return;
                };
                let task = care.and_then(|care| care.repack.as_ref());
                let (Some(files), Some(task), true) = (files, task, *of == tape) else {
                    self.care.repack = None;
                    return;
                };
                let together = task.together.clone();
                let goal = MoveGoal::Empty {
                    tape: tape.clone(),
                    together,
                };
                let moves = TapeMoves::new(goal, files);
                self.care.repack = Some((tape, Stage::Running(moves)));
            }
            ListPurpose::Verification => {
                let Some((of, Stage::Listing)) = &self.care.verification else {
                    return;
                };
                let reached = care.and_then(|care| care.verification.reached_bytes);
                let (Some(files), Some(reached), true) = (files, reached, *of == tape) else {
                    self.care.verification = None;
                    return;
                };
                let pass = VerificationPass::new(files, reached);
                self.care.verification = Some((tape, Stage::Running(pass)));
            }
        }
    }

    /// What has become of requests that nobody waits for. The engine has finished what it was told, since it may be told more here.
    pub(super) fn take_ended(&mut self) -> Vec<LibraryTask> {
        let mut steps = Vec::new();
        while let Some((request, outcome)) = self.care.ended.pop_front() {
            steps.extend(self.take_end(request, &outcome));
        }
        self.take_steps(steps)
    }

    fn take_end(&mut self, request: RequestId, outcome: &RequestOutcome) -> Vec<RepackStep> {
        self.care.is_due = true;
        let (kind, file) = RequestKind::parse(request);
        if kind == RequestKind::Verification {
            if let Some((_, Stage::Running(pass))) = &mut self.care.verification {
                pass.ended(FileId(file.0));
            }
            return Vec::new();
        }
        let steps = self.care.steps(|moves| moves.told(request, outcome));
        match (kind, outcome) {
            // It was written before a restart, and is told only now.
            (RequestKind::MoveWrite, RequestOutcome::Archived(copies)) if steps.is_empty() => {
                let step = self.written_before(FileId(file.0), copies);
                step.into_iter().collect()
            }
            _ => steps,
        }
    }
}

fn milliseconds(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
