//! Why a transfer waits.

use super::*;

impl Engine {
    /// Why an open transfer waits; `None` when it runs or is not open.
    pub fn why_waiting(&self, transfer: TransferId, now: Timestamp) -> Option<WaitReason> {
        let entry = self.transfers.get(&transfer)?;
        match entry.state() {
            TransferState::Submitted {
                not_before: Some(until),
                failures,
                last: Some(last),
                ..
            } if *until > now => Some(WaitReason::BackingOff {
                until: *until,
                failures: *failures,
                last: last.clone(),
            }),
            TransferState::Staging {
                not_before: Some(until),
                recall,
            } if *until > now => recall.last.clone().map(|last| WaitReason::BackingOff {
                until: *until,
                failures: recall.failures.max(1),
                last,
            }),
            TransferState::Staging { .. } => {
                let token = self.tokens.why(transfer);
                let held = token.or_else(|| self.why_banned(transfer));
                let drained = || self.scheduler.why_nothing_begins();
                held.or_else(drained).or_else(|| self.why_at_tape(transfer))
            }
            TransferState::Submitted { .. } if self.held_back.contains(&transfer) => self
                .destinations
                .first_at(entry.destination)
                .map(|before| WaitReason::SameDestination { before }),
            TransferState::Submitted { .. } => {
                let token = self.tokens.why(transfer);
                let held = token.or_else(|| self.why_banned(transfer));
                held.or_else(|| {
                    let waiting = self.waiting(transfer)?;
                    Some(self.scheduler.why_this_waits(&waiting))
                })
            }
            TransferState::Recalling { .. } | TransferState::Archiving { .. } => {
                self.why_at_tape(transfer)
            }
            _ => None,
        }
    }
}
