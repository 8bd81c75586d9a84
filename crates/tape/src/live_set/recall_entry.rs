//! One file of the live set, and how requests for it come together.

use super::{LiveSet, RequestTarget};
use crate::request::{
    ActivityName, Asker, ChallengeName, DriveName, FileId, ReadPurpose, RecallRequest, RequestId,
    TapeCopy, TapeName, VoName,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A file that is to be read, whoever asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecallEntry {
    pub size_bytes: u64,
    /// Copies that may still be read; the first is the one that is.
    pub copies: Vec<TapeCopy>,
    pub askers: BTreeMap<RequestId, Asker>,
    /// When the first of them asked.
    pub since_ns: i64,
    pub read_by: Option<DriveName>,
    /// Whether what is being read goes nowhere.
    pub is_compared: bool,
    /// Of askers, those who do not wait for it, and why it is read for them.
    pub background: BTreeMap<RequestId, ReadPurpose>,
    /// Of the first who asked, for accounting.
    pub vo: Option<VoName>,
    pub activity: Option<ActivityName>,
    pub challenge: Option<ChallengeName>,
}

fn purpose_of(request: &RecallRequest) -> Option<(RequestId, ReadPurpose)> {
    let is_background = request.purpose != ReadPurpose::Users;
    is_background.then_some((request.request, request.purpose))
}

impl RecallEntry {
    /// Whether nobody waits for it.
    pub fn is_background(&self) -> bool {
        self.background.len() == self.askers.len()
    }

    /// Askers who want it compared only.
    pub fn verifiers(&self) -> Vec<RequestId> {
        let purposes = self.background.iter();
        let verifiers = purposes.filter(|(_, purpose)| **purpose == ReadPurpose::Verification);
        verifiers.map(|(request, _)| *request).collect()
    }

    /// The tape that it is read from.
    pub fn tape(&self) -> Option<&TapeName> {
        self.copies.first().map(|copy| &copy.tape)
    }

    /// The byte behind its last one.
    pub fn end_bytes(&self) -> Option<u64> {
        let copy = self.copies.first()?;
        Some(copy.begin_bytes.saturating_add(self.size_bytes))
    }
}

impl LiveSet {
    pub(super) fn add_recall(&mut self, at_ns: i64, request: &RecallRequest) {
        let RecallRequest {
            request: id,
            file,
            asker,
            ..
        } = request;
        self.requests.insert(*id, RequestTarget::Recall(*file));
        self.leases.insert((asker.lease_ns, *id));
        let inactive = |tape: &TapeName| !self.is_readable(tape);
        let copies = request.copies.iter().map(|copy| &copy.tape);
        let unusable: Vec<TapeName> = copies.filter(|tape| inactive(tape)).cloned().collect();
        if let Some(entry) = self.recalls.get_mut(file) {
            entry.askers.insert(*id, asker.clone());
            entry.background.extend(purpose_of(request));
            // Whoever asks may know of copies that nobody knew of before.
            let mut more = request.copies.clone();
            more.retain(|copy| !unusable.contains(&copy.tape));
            more.retain(|copy| !entry.copies.iter().any(|one| one.tape == copy.tape));
            if request.purpose != ReadPurpose::Verification {
                entry.copies.extend(more);
            }
            if let Some(tape) = entry.tape().cloned() {
                self.touch(&tape);
            }
            return;
        }
        let mut copies: Vec<TapeCopy> = request
            .copies
            .iter()
            .filter(|copy| self.is_readable(&copy.tape))
            .cloned()
            .collect();
        // A tape that is read anyway, or that most others are asked for from, saves a mount.
        if copies.len() > 1 {
            copies.sort_by_key(|copy| {
                let queued = self
                    .queues
                    .get(&copy.tape)
                    .map_or(0, |queue| queue.files.len());
                let is_mounted = self.drives.drive_of(&copy.tape).is_some();
                std::cmp::Reverse((is_mounted && queued > 0, queued))
            });
        }
        let entry = RecallEntry {
            size_bytes: request.size_bytes,
            copies,
            askers: BTreeMap::from([(*id, asker.clone())]),
            since_ns: at_ns,
            read_by: None,
            is_compared: false,
            background: purpose_of(request).into_iter().collect(),
            vo: Some(asker.vo.clone()),
            activity: request.activity.clone(),
            challenge: request.challenge.clone(),
        };
        self.recalls.insert(*file, entry);
        self.queue(*file);
    }

    /// Passes over to the next copy. Without one the file stays, in no queue, until its requests have ended.
    pub(super) fn fail_copy(&mut self, file: FileId, tape: &TapeName) {
        self.unqueue(file);
        if let Some(entry) = self.recalls.get_mut(&file) {
            entry.copies.retain(|copy| copy.tape != *tape);
            entry.read_by = None;
        }
        self.queue(file);
    }

    /// Another copy is to be read first.
    pub(super) fn prefer_copy(&mut self, file: FileId, tape: &TapeName) {
        self.unqueue(file);
        if let Some(entry) = self.recalls.get_mut(&file) {
            // Stable: the others stay in their order.
            entry.copies.sort_by_key(|copy| copy.tape != *tape);
        }
        self.queue(file);
    }
}
