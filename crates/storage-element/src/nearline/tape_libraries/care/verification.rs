//! One tape whose files are read and compared.

use super::listing::ListedFile;
use penstock_tape::request::FileId;
use std::collections::{BTreeSet, VecDeque};

/// Files, and their bytes, that are asked for at once: what a drive reads in some minutes.
const PART_FILES: usize = 500;
const PART_BYTES: u64 = 100_000_000_000;

/// How far it is.
pub(super) struct VerificationPass {
    left: VecDeque<ListedFile>,
    open: BTreeSet<FileId>,
}

impl VerificationPass {
    /// Of the files of a tape, by their places, from this byte on.
    pub(super) fn new(files: Vec<ListedFile>, from_bytes: u64) -> VerificationPass {
        let left = files.into_iter();
        VerificationPass {
            left: left.filter(|file| file.begin_bytes >= from_bytes).collect(),
            open: BTreeSet::new(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn left_files(&self) -> u64 {
        (self.left.len() + self.open.len()) as u64
    }

    /// Where the first file begins that was not asked for.
    pub(super) fn reached_bytes(&self) -> Option<u64> {
        self.left.front().map(|file| file.begin_bytes)
    }

    /// The next part, when the one before is done.
    pub(super) fn next(&mut self) -> Vec<ListedFile> {
        let (mut part, mut bytes) = (Vec::new(), 0_u64);
        while let Some(file) = self.left.front() {
            bytes = bytes.saturating_add(file.size_bytes);
            if !part.is_empty() && (part.len() >= PART_FILES || bytes > PART_BYTES) {
                break;
            }
            part.extend(self.left.pop_front());
        }
        part
    }

    pub(super) fn asked(&mut self, file: FileId) {
        self.open.insert(file);
    }

    /// Whether it is one of these.
    pub(super) fn ended(&mut self, file: FileId) -> bool {
        self.open.remove(&file)
    }
}
