//! What people are told of the care for tapes.

use super::super::TapeLibraries;
use super::super::library_clock::LibraryClock;
use super::Stage;
use penstock_model::Timestamp;
use penstock_tape::relabel::RelabelOrder;
use penstock_tape::tape_care::{UnreadableCopies, UnreadableCopy, Verification};
use serde::Serialize;

/// Files that are told of by name.
const NAMED_MAX: usize = 100;

/// What is done for tapes that nobody waits for.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct CareStatus {
    /// It rests until then.
    pub held_until: Option<Timestamp>,
    /// The tape whose files are read and compared.
    pub verifying: Option<VerifyingStatus>,
    pub repacks: Vec<RepackStatus>,
    /// Files that had too few copies on tape and get further ones.
    pub copying: Option<FurtherCopiesStatus>,
    /// Files without a copy that can be read.
    pub without_copy_files: u64,
    /// The first of them.
    pub without_copy: Vec<LostStatus>,
    /// Files of which a copy cannot be read, and has not been written again.
    pub unreadable_files: u64,
    /// Those copies, of the first of them.
    pub unreadable: Vec<UnreadableStatus>,
}

/// A tape whose files are read and compared.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct VerifyingStatus {
    pub tape: String,
    /// `None`: they are being listed.
    pub left_files: Option<u64>,
}

/// A tape that is to be emptied.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RepackStatus {
    pub tape: String,
    pub since: Timestamp,
    /// An operator wants it, or the site by itself.
    pub order: RelabelOrder,
    /// Of the pass that runs.
    pub moved_files: u64,
    /// `None`: no pass runs.
    pub left_files: Option<u64>,
    /// Why it is not written anew yet.
    pub waits_for: Option<String>,
}

/// Files that get further copies on tape.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FurtherCopiesStatus {
    /// Since the look began that found them.
    pub copied_files: u64,
    /// That were found and have no further copy yet.
    pub left_files: u64,
}

/// A file that is on no disk and on no tape that is in use.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LostStatus {
    pub file: u64,
    pub path: String,
    /// One that has a copy of it.
    pub tape: String,
}

/// A copy of a file that cannot be read.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct UnreadableStatus {
    pub file: u64,
    /// Whoever asks finds it out from the namespace.
    pub path: Option<String>,
    pub tape: String,
    #[serde(skip)]
    pub copy: UnreadableCopy,
    /// The file is on disk, or has a copy on tape that is not one of these: it is written again. The same holds of this.
    pub has_other_copy: Option<bool>,
}

/// How well a tape is known to be readable.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct VerificationStatus {
    /// When it is read next; `None`: when an operator says so.
    pub due: Option<Timestamp>,
    /// When all of it had been read last.
    pub ended: Option<Timestamp>,
    pub is_running: bool,
    /// Since it was verified for the first time.
    pub read_files: u64,
    pub read_bytes: u64,
    pub unreadable_files: u64,
}

impl VerificationStatus {
    pub(in super::super) fn of(known: &Verification, times: &LibraryClock) -> VerificationStatus {
        let due_ns = known.due_ns.filter(|due_ns| *due_ns < i64::MAX);
        VerificationStatus {
            due: due_ns.map(|due_ns| times.wall(due_ns)),
            ended: known.ended_ns.map(|ended_ns| times.wall(ended_ns)),
            is_running: known.reached_bytes.is_some(),
            read_files: known.read_files,
            read_bytes: known.read_bytes,
            unreadable_files: known.unreadable_files,
        }
    }
}

pub(in super::super) fn care_status(libraries: &TapeLibraries, times: &LibraryClock) -> CareStatus {
    let (live, care) = (libraries.engine.live(), &libraries.care);
    let now_ns = libraries.now_ns();
    let held_ns = live
        .background_held_ns
        .filter(|until_ns| *until_ns > now_ns);
    let verifying = care
        .verification
        .as_ref()
        .map(|(tape, stage)| VerifyingStatus {
            tape: tape.0.to_string(),
            left_files: match stage {
                Stage::Listing => None,
                Stage::Running(pass) => Some(pass.left_files()),
            },
        });
    let tasks = live.care.iter();
    let repacks = tasks.filter_map(|(tape, known)| {
        let task = known.repack.as_ref()?;
        let running = match &care.repack {
            Some((of, Stage::Running(moves))) if of == tape => Some(moves),
            Some(_) | None => None,
        };
        let rest = care.resting.get(tape);
        Some(RepackStatus {
            tape: tape.0.to_string(),
            since: times.wall(task.since_ns),
            order: task.order,
            moved_files: running.map_or(0, |moves| moves.moved_files),
            left_files: running.map(|moves| moves.left_files()),
            waits_for: rest.map(|rest| rest.why.clone()),
        })
    });
    let copying = care.further_copies.progress();
    let lost = care.further_copies.lost.values();
    let named = lost.clone().flat_map(|lost| &lost.named);
    CareStatus {
        copying: copying.map(|(copied_files, left_files)| FurtherCopiesStatus {
            copied_files,
            left_files,
        }),
        without_copy_files: lost.map(|lost| lost.files).sum(),
        without_copy: named
            .take(NAMED_MAX)
            .map(|lost| LostStatus {
                file: lost.file.0,
                path: lost.path.to_string(),
                tape: lost.tape.0.to_string(),
            })
            .collect(),
        held_until: held_ns.map(|until_ns| times.wall(until_ns)),
        verifying,
        repacks: repacks.collect(),
        unreadable_files: live.unreadable.file_count() as u64,
        unreadable: unreadable_copies(&live.unreadable),
    }
}

/// Of the first files, all copies of each.
fn unreadable_copies(unreadable: &UnreadableCopies) -> Vec<UnreadableStatus> {
    let mut named = Vec::new();
    for (file, copies) in unreadable.files() {
        if named.len() + copies.len() > NAMED_MAX {
            break;
        }
        named.extend(copies.iter().map(|copy| UnreadableStatus {
            file: file.0,
            path: None,
            tape: copy.tape.0.to_string(),
            copy: copy.clone(),
            has_other_copy: None,
        }));
    }
    named
}

/// Files of which no copy can be read: since when, and what people are told of those of one tape.
pub(in super::super) fn lost_files(
    libraries: &TapeLibraries,
) -> impl Iterator<Item = (i64, String)> {
    libraries.care.further_copies.incidents()
}
