//! What is done for tapes that nobody waits for: their files are read and compared now and then, and tapes are emptied so that
//! they can be written anew.

use crate::relabel::RelabelOrder;
use crate::request::{FileId, TapeCopy, TapeName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of the care for one tape.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TapeCare {
    pub verification: Verification,
    /// It is to be emptied, and then written anew.
    pub repack: Option<RepackTask>,
    /// Since when it has been out of use. `None`: it is in use, or nobody has looked yet.
    pub out_of_use_ns: Option<i64>,
}

/// How far the verification of a tape is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verification {
    /// When its files are to be read next. `None`: nobody has said so yet.
    pub due_ns: Option<i64>,
    /// While they are: what begins before this byte has been.
    pub reached_bytes: Option<u64>,
    /// When all of them had been read last.
    pub ended_ns: Option<i64>,
    /// Since the tape was verified for the first time.
    pub read_files: u64,
    pub read_bytes: u64,
    pub unreadable_files: u64,
}

/// A tape that is to be emptied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepackTask {
    pub since_ns: i64,
    /// Who wants it: what the site wants by itself is bounded in a day.
    pub order: RelabelOrder,
    /// Files and directories of which each is written together, in this order.
    #[serde(default)]
    pub together: Vec<String>,
}

/// One step of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CareStep {
    /// Its files are to be read then.
    VerificationDue { due_ns: i64 },
    /// What begins before this byte has been read.
    VerificationReached { to_bytes: u64 },
    /// All of it has been.
    VerificationEnded { due_ns: i64 },
    /// It is to be emptied.
    RepackBegun {
        order: RelabelOrder,
        together: Vec<String>,
    },
    /// It is empty, or stays as it is.
    RepackEnded,
    /// It was found out of use: broken, disabled, or not configured any more.
    OutOfUse,
    /// It was found in use again.
    InUse,
}

impl TapeCare {
    pub(crate) fn take(&mut self, at_ns: i64, step: &CareStep) {
        match step {
            CareStep::VerificationDue { due_ns } => self.verification.due_ns = Some(*due_ns),
            CareStep::VerificationReached { to_bytes } => {
                self.verification.reached_bytes = Some(*to_bytes);
            }
            CareStep::VerificationEnded { due_ns } => {
                self.verification.due_ns = Some(*due_ns);
                self.verification.reached_bytes = None;
                self.verification.ended_ns = Some(at_ns);
            }
            CareStep::RepackBegun { order, together } => {
                self.repack = Some(RepackTask {
                    since_ns: at_ns,
                    order: *order,
                    together: together.clone(),
                });
            }
            CareStep::RepackEnded => self.repack = None,
            CareStep::OutOfUse => self.out_of_use_ns = Some(at_ns),
            CareStep::InUse => self.out_of_use_ns = None,
        }
    }
}

/// A copy of a file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnreadableCopy {
    pub tape: TapeName,
    pub begin_bytes: u64,
}

impl UnreadableCopy {
    pub fn of(copy: &TapeCopy) -> UnreadableCopy {
        UnreadableCopy {
            tape: copy.tape.clone(),
            begin_bytes: copy.begin_bytes,
        }
    }

    /// Whether the copy is this one.
    pub fn is(&self, copy: &TapeCopy) -> bool {
        self.tape == copy.tape && self.begin_bytes == copy.begin_bytes
    }
}

/// Files with copies that could not be read and are not mended. No file is without such a copy. Of so many files at most; others are
/// found again by the next verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<FileId, StoredCopies>")]
pub struct UnreadableCopies(BTreeMap<FileId, BTreeSet<UnreadableCopy>>);

const UNREADABLE_FILES_MAX: usize = 100_000;

/// As they are stored. Versions that knew one copy of each file stored that alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredCopies {
    All(BTreeSet<UnreadableCopy>),
    One(UnreadableCopy),
}

impl From<BTreeMap<FileId, StoredCopies>> for UnreadableCopies {
    fn from(stored: BTreeMap<FileId, StoredCopies>) -> UnreadableCopies {
        let files = stored.into_iter().map(|(file, copies)| match copies {
            StoredCopies::All(copies) => (file, copies),
            StoredCopies::One(copy) => (file, BTreeSet::from([copy])),
        });
        UnreadableCopies(files.collect())
    }
}

impl UnreadableCopies {
    pub(crate) fn insert(&mut self, file: FileId, copy: UnreadableCopy) {
        if self.0.len() < UNREADABLE_FILES_MAX || self.0.contains_key(&file) {
            self.0.entry(file).or_default().insert(copy);
        }
    }

    pub(crate) fn remove(&mut self, file: FileId, copy: &UnreadableCopy) {
        let Some(copies) = self.0.get_mut(&file) else {
            return;
        };
        copies.remove(copy);
        if copies.is_empty() {
            self.0.remove(&file);
        }
    }

    pub(crate) fn remove_file(&mut self, file: FileId) {
        self.0.remove(&file);
    }

    pub(crate) fn remove_tape(&mut self, tape: &TapeName) {
        self.0.retain(|_, copies| {
            copies.retain(|copy| copy.tape != *tape);
            !copies.is_empty()
        });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Files, however many copies of each.
    pub fn file_count(&self) -> usize {
        self.0.len()
    }

    pub fn has_file(&self, file: FileId) -> bool {
        self.0.contains_key(&file)
    }

    pub fn contains(&self, file: FileId, copy: &TapeCopy) -> bool {
        self.of(file).any(|known| known.is(copy))
    }

    /// Those of one file.
    pub fn of(&self, file: FileId) -> impl Iterator<Item = &UnreadableCopy> {
        self.0.get(&file).into_iter().flatten()
    }

    /// Those of each file.
    pub fn files(&self) -> impl Iterator<Item = (FileId, &BTreeSet<UnreadableCopy>)> {
        self.0.iter().map(|(file, copies)| (*file, copies))
    }

    pub fn copies(&self) -> impl Iterator<Item = (FileId, &UnreadableCopy)> {
        let files = self.files();
        files.flat_map(|(file, copies)| copies.iter().map(move |copy| (file, copy)))
    }
}
