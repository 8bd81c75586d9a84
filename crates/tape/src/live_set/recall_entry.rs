//! One file of the live set, and how requests for it come together.

use super::{LiveSet, RequestTarget};
use crate::request::{
    ActivityName, Asker, DriveName, FileId, RecallRequest, RequestId, TapeCopy, TapeName, VoName,
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
    /// Of the first who asked, for accounting.
    pub vo: Option<VoName>,
    pub activity: Option<ActivityName>,
}

impl RecallEntry {
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
        if let Some(entry) = self.recalls.get_mut(file) {
            entry.askers.insert(*id, asker.clone());
            if let Some(tape) = entry.tape().cloned() {
                self.touch(&tape);
            }
            return;
        }
        let mut copies: Vec<TapeCopy> = request
            .copies
            .iter()
            .filter(|copy| self.is_active(&copy.tape))
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
            vo: Some(asker.vo.clone()),
            activity: request.activity.clone(),
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
