//! Why a transfer waits, and until when.

use super::*;
use penstock_model::{NoSlot, SlotBound};
use serde::{Deserialize, Serialize};

/// When a transfer that waits will start, as far as that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartEstimate {
    /// Then, when all goes on as it goes now.
    About(Timestamp),
    /// Not before that; when then is not known.
    NotBefore(Timestamp),
}

impl Engine {
    /// When a transfer will probably start; `None` when it does not wait, or nothing is known.
    pub fn when_it_starts(&self, transfer: TransferId, now: Timestamp) -> Option<StartEstimate> {
        match self.why_waiting(transfer, now)? {
            WaitReason::BackingOff { until, .. } | WaitReason::LinkHalted { until, .. } => {
                Some(StartEstimate::NotBefore(until.max(now)))
            }
            // It depends on what people do, or on others' systems.
            WaitReason::NoSlot(NoSlot {
                because: SlotBound::Draining,
                ..
            })
            | WaitReason::SameDestination { .. }
            | WaitReason::StorageBanned { .. }
            | WaitReason::TokenExchange { .. }
            | WaitReason::Tape(_)
            | WaitReason::Draining
            | WaitReason::Drained => None,
            WaitReason::NoSlot(_) | WaitReason::ByShare { .. } | WaitReason::Starting => {
                let waiting = self.waiting(transfer)?;
                let wait = self.scheduler.when_this_starts(&waiting)?;
                Some(StartEstimate::About(now + wait))
            }
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_read_the_words_that_they_know() {
        let words = |estimate| serde_json::to_string(&estimate).expect("written");
        assert_eq!(words(StartEstimate::About(Timestamp(7))), r#"{"about":7}"#);
        assert_eq!(
            words(StartEstimate::NotBefore(Timestamp(7))),
            r#"{"not_before":7}"#
        );
    }
}
