//! Writes files that are on tape to tape once more: each is recalled to disk as any file, unless it is there, and archived again; the
//! namespace then has its new place in the place of an old one, or beside those that it has. So a tape is emptied, and so files come
//! to copies that they lack. They are written in parts, since all of them may not fit on disk.
//!
//! What it knows is not kept. After a restart it is made anew from what the namespace says of the files: one that was written and not
//! told lies on one more tape until then, and on one fewer at no time.

use crate::data_set::DataSet;
use crate::request::{
    ArchiveRequest, ArchiveWishes, Asker, FamilyName, FileId, LibraryName, ReadPurpose,
    RecallRequest, RequestId, RequestOutcome, TapeCopy,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A file that is to be written once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFile {
    pub file: FileId,
    pub size_bytes: u64,
    /// Copies from which it can be read.
    pub copies: Vec<TapeCopy>,
    /// The copy in whose place the new one comes; `None`: beside those that there are.
    pub instead_of: Option<TapeCopy>,
    /// Libraries that have another copy of it.
    pub not_in: BTreeSet<LibraryName>,
    pub family: FamilyName,
    pub is_packed: bool,
    /// What it should lie beside from now on.
    pub data_set: Option<DataSet>,
    pub disk: DiskCopy,
    /// The copy in whose place the new one comes cannot be read: others are tried before it, and the new place may be on the same tape.
    pub is_unreadable: bool,
}

/// The copy of a file on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskCopy {
    /// There is none.
    Absent,
    /// It is compared before it is used.
    Present,
    /// It is not the file: one is brought from tape in its place.
    Damaged,
}

/// What a comparison of the copy on disk with what is known of the file has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskComparison {
    Same,
    /// It is not the file, or nobody can read it.
    Differs,
    /// It could not be compared now.
    Unknown,
}

/// What a request does for a file that is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveWork {
    Read,
    Write,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepackOrder {
    /// The copy on disk is to be compared with what is known of the file.
    CompareDisk(FileId),
    Recall(RecallRequest),
    Archive(ArchiveRequest),
}

/// What has become of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepackStep {
    /// It is on disk, and to be archived.
    OnDisk(FileId),
    /// Its copy on disk counts no more, since one comes from tape.
    Damaged(FileId),
    /// It is safe at its new place: the namespace is to be told, then the old one is dead.
    Written {
        file: FileId,
        instead_of: Option<TapeCopy>,
        to: TapeCopy,
        /// It was not on disk before, and need not be any more.
        is_brought: bool,
    },
    /// It stays where it is.
    Stays { file: FileId, why: RequestOutcome },
}

/// Files that are written once more.
#[derive(Debug, Clone)]
pub struct Repack {
    asker: Asker,
    /// Bytes of one part, which are on disk at a time; one file always may be.
    part_bytes: u64,
    waiting: VecDeque<LiveFile>,
    comparing: BTreeMap<FileId, LiveFile>,
    reading: BTreeMap<RequestId, LiveFile>,
    on_disk: VecDeque<LiveFile>,
    writing: BTreeMap<RequestId, LiveFile>,
}

impl Repack {
    /// Files are written in the order in which they are given: that of a list of hints, so that what belongs together lies together.
    pub fn new(asker: Asker, part_bytes: u64, files: impl IntoIterator<Item = LiveFile>) -> Repack {
        Repack {
            waiting: files.into_iter().collect(),
            asker,
            part_bytes,
            comparing: BTreeMap::new(),
            reading: BTreeMap::new(),
            on_disk: VecDeque::new(),
            writing: BTreeMap::new(),
        }
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.on_disk.is_empty() && !self.is_part_open()
    }

    fn is_part_open(&self) -> bool {
        !(self.comparing.is_empty() && self.reading.is_empty() && self.writing.is_empty())
    }

    /// Files that are on disk for it, or on their way there: their copies on disk are needed.
    pub fn files(&self) -> impl Iterator<Item = FileId> {
        let comparing = self.comparing.values();
        let open = comparing.chain(self.reading.values()).chain(&self.on_disk);
        open.chain(self.writing.values()).map(|file| file.file)
    }

    /// Files that were not written yet.
    pub fn left_files(&self) -> usize {
        self.waiting.len() + self.files().count()
    }

    /// What may be asked for now: a part is read, and written when all of it is on disk. `number` names each request.
    pub fn next(
        &mut self,
        mut number: impl FnMut(MoveWork, FileId) -> RequestId,
    ) -> Vec<RepackOrder> {
        if self.is_part_open() {
            return Vec::new();
        }
        let mut orders = Vec::new();
        for file in std::mem::take(&mut self.on_disk) {
            let request = number(MoveWork::Write, file.file);
            orders.push(RepackOrder::Archive(self.archive_of(request, &file)));
            self.writing.insert(request, file);
        }
        if !orders.is_empty() {
            return orders;
        }
        let mut bytes = 0_u64;
        while let Some(file) = self.waiting.pop_front() {
            bytes = bytes.saturating_add(file.size_bytes);
            if bytes > self.part_bytes && self.is_part_open() {
                self.waiting.push_front(file);
                break;
            }
            match file.disk {
                DiskCopy::Present => {
                    orders.push(RepackOrder::CompareDisk(file.file));
                    self.comparing.insert(file.file, file);
                }
                DiskCopy::Absent | DiskCopy::Damaged => {
                    let request = number(MoveWork::Read, file.file);
                    orders.push(RepackOrder::Recall(self.recall_of(request, &file)));
                    self.reading.insert(request, file);
                }
            }
        }
        orders
    }

    fn archive_of(&self, request: RequestId, file: &LiveFile) -> ArchiveRequest {
        ArchiveRequest {
            request,
            file: file.file,
            size_bytes: file.size_bytes,
            family: file.family.clone(),
            asker: self.asker.clone(),
            wishes: ArchiveWishes {
                is_packed: file.is_packed,
                data_set: file.data_set.clone(),
                is_background: true,
                not_in: file.not_in.clone(),
                ..ArchiveWishes::default()
            },
        }
    }

    fn recall_of(&self, request: RequestId, file: &LiveFile) -> RecallRequest {
        // From the tape that is emptied first, since it is in a drive for the others anyway.
        let old = file.instead_of.as_ref().map(|copy| &copy.tape);
        let mut copies = file.copies.clone();
        copies.sort_by_key(|copy| (Some(&copy.tape) == old) == file.is_unreadable);
        RecallRequest {
            request,
            file: file.file,
            size_bytes: file.size_bytes,
            copies,
            asker: self.asker.clone(),
            activity: None,
            challenge: None,
            purpose: ReadPurpose::Repack,
        }
    }

    /// Takes the end of a comparison; `None` when it is none of these files'. `is_good` tells copies that can be read: from such a
    /// one a file comes whose copy on disk is damaged.
    pub fn compared(
        &mut self,
        file: FileId,
        comparison: DiskComparison,
        is_good: impl Fn(&TapeCopy) -> bool,
    ) -> Option<RepackStep> {
        let found = self.comparing.remove(&file)?;
        Some(match comparison {
            DiskComparison::Same => {
                self.on_disk.push_back(found);
                RepackStep::OnDisk(file)
            }
            DiskComparison::Differs if found.copies.iter().any(is_good) => {
                let disk = DiskCopy::Damaged;
                self.waiting.push_front(LiveFile { disk, ..found });
                RepackStep::Damaged(file)
            }
            DiskComparison::Differs | DiskComparison::Unknown => RepackStep::Stays {
                file,
                why: RequestOutcome::NotTaken,
            },
        })
    }

    /// Takes the end of a request; `None` when it is none of these files'.
    pub fn told(&mut self, request: RequestId, outcome: &RequestOutcome) -> Option<RepackStep> {
        if let Some(file) = self.reading.remove(&request) {
            let id = file.file;
            if *outcome == RequestOutcome::Recalled {
                self.on_disk.push_back(file);
                return Some(RepackStep::OnDisk(id));
            }
            let why = outcome.clone();
            return Some(RepackStep::Stays { file: id, why });
        }
        let file = self.writing.remove(&request)?;
        let written = match outcome {
            RequestOutcome::Archived(copies) => copies.as_slice(),
            _ => &[],
        };
        // What came back to the same tape would go with it, unless only its place was bad.
        let old = file.instead_of.as_ref().map(|copy| &copy.tape);
        let mut written = written.iter();
        let to = written.find(|to| Some(&to.tape) != old || file.is_unreadable);
        Some(match to {
            Some(to) => RepackStep::Written {
                file: file.file,
                to: to.clone(),
                is_brought: file.disk == DiskCopy::Absent,
                instead_of: file.instead_of,
            },
            None => RepackStep::Stays {
                file: file.file,
                why: outcome.clone(),
            },
        })
    }
}

#[cfg(test)]
mod tests;
