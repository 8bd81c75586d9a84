//! What is known of how well tapes can be read.

use super::{LiveSet, RequestTarget};
use crate::request::{ReadPurpose, RequestId, RequestOutcome, TapeName};

impl LiveSet {
    /// Before a request ends: whether it has told something of its tape.
    pub(super) fn note_verification(&mut self, request: RequestId, outcome: &RequestOutcome) {
        let Some(RequestTarget::Recall(file)) = self.requests.get(&request) else {
            return;
        };
        let Some(entry) = self.recalls.get(file) else {
            return;
        };
        let Some(tape) = entry.tape().cloned() else {
            return;
        };
        if entry.background.get(&request) != Some(&ReadPurpose::Verification) {
            return;
        }
        let size_bytes = entry.size_bytes;
        let verification = &mut self.care.entry(tape).or_default().verification;
        match outcome {
            RequestOutcome::Verified => {
                verification.read_files += 1;
                verification.read_bytes = verification.read_bytes.saturating_add(size_bytes);
            }
            RequestOutcome::NoCopyLeft(_) => verification.unreadable_files += 1,
            RequestOutcome::Recalled
            | RequestOutcome::Archived(_)
            | RequestOutcome::NoTape
            | RequestOutcome::NotTaken
            | RequestOutcome::Canceled
            | RequestOutcome::Expired => {}
        }
    }

    /// Whether files on this tape cannot be read.
    pub fn has_unreadable(&self, tape: &TapeName) -> bool {
        let mut copies = self.unreadable.copies();
        copies.any(|(_, copy)| copy.tape == *tape)
    }
}
