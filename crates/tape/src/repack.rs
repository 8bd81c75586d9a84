//! Moves the files that live on a tape to others: each is recalled to disk as any file, and archived again; the namespace then has
//! its new place in the place of the old one. A part of them is on disk at a time.
//!
//! What it knows is not kept. After a restart it is made anew from what the namespace says still lives on the tape: a file that was
//! moved and not told lies on two tapes until then, and on none at no time.

use crate::data_set::DataSet;
use crate::request::{
    ArchiveRequest, ArchiveWishes, Asker, FamilyName, FileId, ReadPurpose, RecallRequest,
    RequestId, RequestOutcome, TapeCopy, TapeName,
};
use std::collections::{BTreeMap, VecDeque};

/// A file that lives on the tape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFile {
    pub file: FileId,
    pub size_bytes: u64,
    /// All its copies; the one on the tape is among them.
    pub copies: Vec<TapeCopy>,
    pub family: FamilyName,
    pub is_packed: bool,
    /// What it should lie beside from now on.
    pub data_set: Option<DataSet>,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepackOrder {
    Recall(RecallRequest),
    Archive(ArchiveRequest),
}

/// What has become of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepackStep {
    /// It is on disk, and to be archived.
    OnDisk(FileId),
    /// It is safe at its new place: the namespace is to be told, then the old one is dead.
    Moved {
        file: FileId,
        from: TapeCopy,
        to: TapeCopy,
    },
    /// It stays where it is.
    Stays { file: FileId, why: RequestOutcome },
}

/// A tape whose files are moved.
#[derive(Debug, Clone)]
pub struct Repack {
    tape: TapeName,
    asker: Asker,
    /// Bytes that may be on disk for it at a time; one file always may.
    window_bytes: u64,
    waiting: VecDeque<LiveFile>,
    reading: BTreeMap<RequestId, LiveFile>,
    on_disk: VecDeque<LiveFile>,
    writing: BTreeMap<RequestId, LiveFile>,
}

impl Repack {
    /// Files are moved in the order in which they are given: that of a list of hints, so that what belongs together lies together.
    /// Those without a copy on the tape are passed over.
    pub fn new(
        tape: TapeName,
        asker: Asker,
        window_bytes: u64,
        files: impl IntoIterator<Item = LiveFile>,
    ) -> Repack {
        let files = files.into_iter();
        let waiting = files.filter(|file| file.copies.iter().any(|copy| copy.tape == tape));
        Repack {
            waiting: waiting.collect(),
            tape,
            asker,
            window_bytes,
            reading: BTreeMap::new(),
            on_disk: VecDeque::new(),
            writing: BTreeMap::new(),
        }
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.on_disk.is_empty() && self.open() == 0
    }

    fn open(&self) -> usize {
        self.reading.len() + self.writing.len()
    }

    fn bytes_on_disk(&self) -> u64 {
        let requests = self.reading.values().chain(self.writing.values());
        let files = requests.chain(&self.on_disk);
        files.map(|file| file.size_bytes).sum()
    }

    /// What may be asked for now. Each request has a number of its own.
    pub fn next(&mut self, mut number: impl FnMut() -> RequestId) -> Vec<RepackOrder> {
        let mut orders = Vec::new();
        while let Some(file) = self.on_disk.pop_front() {
            let request = number();
            orders.push(RepackOrder::Archive(ArchiveRequest {
                request,
                file: file.file,
                size_bytes: file.size_bytes,
                family: file.family.clone(),
                asker: self.asker.clone(),
                wishes: ArchiveWishes {
                    is_packed: file.is_packed,
                    data_set: file.data_set.clone(),
                    is_background: true,
                    ..ArchiveWishes::default()
                },
            }));
            self.writing.insert(request, file);
        }
        let mut bytes = self.bytes_on_disk();
        while let Some(file) = self.waiting.front() {
            bytes = bytes.saturating_add(file.size_bytes);
            if bytes > self.window_bytes && self.open() > 0 {
                break;
            }
            let Some(file) = self.waiting.pop_front() else {
                break;
            };
            let request = number();
            // From the tape itself first, since it is in a drive for the others anyway.
            let mut copies = file.copies.clone();
            copies.sort_by_key(|copy| copy.tape != self.tape);
            orders.push(RepackOrder::Recall(RecallRequest {
                request,
                file: file.file,
                size_bytes: file.size_bytes,
                copies,
                asker: self.asker.clone(),
                activity: None,
                challenge: None,
                purpose: ReadPurpose::Repack,
            }));
            self.reading.insert(request, file);
        }
        orders
    }

    /// Takes the end of a request; `None` when it is none of this tape's.
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
        let from = file.copies.iter().find(|copy| copy.tape == self.tape);
        Some(match (outcome, from) {
            // What came back to the same tape would go with it.
            (RequestOutcome::Archived(to), Some(from)) if to.tape != self.tape => {
                RepackStep::Moved {
                    file: file.file,
                    from: from.clone(),
                    to: to.clone(),
                }
            }
            _ => RepackStep::Stays {
                file: file.file,
                why: outcome.clone(),
            },
        })
    }
}

#[cfg(test)]
mod tests;
