//! Which attempts run, folded from the events of transfers, and what each event adds to what is counted.
//!
//! The minutes of a running service and the signals of a recorded window are both made by this fold, so that they count
//! alike. It does not know of times or places in which something is counted: a label comes back with each attempt.

use penstock_model::{
    Attempt, Bytes, FailedStep, Failure, FinishedCopy, Timestamp, TransferEvent, TransferId,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Attempts that are remembered. Of further ones nothing is known of the time in which they prepare.
const OPEN_ATTEMPTS_MAX: usize = 100_000;

/// The attempts that have not ended: one of a transfer at most.
#[derive(Debug)]
pub struct OpenAttempts<L> {
    open: BTreeMap<TransferId, OpenAttempt<L>>,
}

#[derive(Debug)]
struct OpenAttempt<L> {
    attempt: Attempt,
    label: L,
    started: Timestamp,
    /// When both ends had been looked at: until then its slot moves nothing.
    prepared: Option<Timestamp>,
}

/// What an event adds to what is counted.
#[derive(Debug, Clone)]
pub enum CountedEvent<'a> {
    Submitted,
    Started,
    Landed(Box<FinishedCopy>),
    Failed {
        failure: &'a Failure,
        step: FailedStep,
        lost: LostWork,
    },
    /// Nothing.
    Uncounted,
}

/// What a failed attempt had done, which came to nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LostWork {
    pub moved: Bytes,
    /// How long it ran; zero when its begin is not known.
    pub ran: Duration,
}

/// A time in which the slot of an attempt waited for an answer of both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preparation<L> {
    pub label: L,
    pub from: Timestamp,
    pub to: Timestamp,
}

impl<L> Default for OpenAttempts<L> {
    fn default() -> OpenAttempts<L> {
        OpenAttempts {
            open: BTreeMap::new(),
        }
    }
}

impl<L: Clone> OpenAttempts<L> {
    /// Takes an event, with the label that an attempt keeps which it starts. Tells the preparation that it ended, too.
    /// Long because each event has one arm.
    pub fn take<'a>(
        &mut self,
        at: Timestamp,
        transfer: TransferId,
        label: &L,
        event: &'a TransferEvent,
    ) -> (CountedEvent<'a>, Option<Preparation<L>>) {
        match event {
            TransferEvent::Submitted => (CountedEvent::Submitted, None),
            TransferEvent::Started { attempt, .. } => {
                if self.open.len() < OPEN_ATTEMPTS_MAX {
                    let open = OpenAttempt {
                        attempt: *attempt,
                        label: label.clone(),
                        started: at,
                        prepared: None,
                    };
                    self.open.insert(transfer, open);
                }
                (CountedEvent::Started, None)
            }
            TransferEvent::Prepared { attempt, .. } => {
                let open = self.open.get_mut(&transfer);
                let preparing =
                    open.filter(|open| open.attempt == *attempt && open.prepared.is_none());
                let preparation = preparing.map(|open| {
                    let preparation = open.preparation(at);
                    open.prepared = Some(at);
                    preparation
                });
                (CountedEvent::Uncounted, preparation)
            }
            TransferEvent::Landed {
                attempt,
                size,
                report,
                ..
            } => {
                let open = self.open.remove(&transfer);
                let open = open.filter(|open| open.attempt == *attempt);
                let prepared_in =
                    (open.as_ref()).and_then(|open| Some(open.prepared?.since(open.started)));
                let copy = FinishedCopy::of(*size, report, prepared_in);
                (
                    CountedEvent::Landed(Box::new(copy)),
                    unfinished_preparation(open, at),
                )
            }
            TransferEvent::AttemptFailed {
                attempt,
                failure,
                moved,
                ..
            } => {
                let open = self.open.remove(&transfer);
                let begun = open.as_ref().filter(|open| open.attempt == *attempt);
                let lost = LostWork {
                    moved: moved.unwrap_or_default(),
                    ran: begun.map_or(Duration::ZERO, |open| at.since(open.started)),
                };
                let step = FailedStep::Attempt;
                let counted = CountedEvent::Failed {
                    failure,
                    step,
                    lost,
                };
                (counted, unfinished_preparation(open, at))
            }
            TransferEvent::AttemptLost { .. } | TransferEvent::Canceled { .. } => {
                let ended = unfinished_preparation(self.open.remove(&transfer), at);
                (CountedEvent::Uncounted, ended)
            }
            TransferEvent::StageFailed { failure, .. }
            | TransferEvent::ArchiveFailed { failure } => {
                let counted = CountedEvent::Failed {
                    failure,
                    step: FailedStep::TapeCall,
                    lost: LostWork::default(),
                };
                (counted, None)
            }
            TransferEvent::Chosen { .. }
            | TransferEvent::StageRequested { .. }
            | TransferEvent::Staged { .. }
            | TransferEvent::Replaced { .. }
            | TransferEvent::NotNeeded
            | TransferEvent::Archived { .. }
            | TransferEvent::Expired { .. }
            | TransferEvent::Refused { .. } => (CountedEvent::Uncounted, None),
        }
    }

    /// Of attempts that have not ended, the preparations that go on at a time.
    pub fn preparations(self, at: Timestamp) -> impl Iterator<Item = Preparation<L>> {
        let open = self.open.into_values();
        open.filter_map(move |open| unfinished_preparation(Some(open), at))
    }
}

impl<L: Clone> OpenAttempt<L> {
    fn preparation(&self, to: Timestamp) -> Preparation<L> {
        Preparation {
            label: self.label.clone(),
            from: self.started,
            to,
        }
    }
}

/// An attempt that ends before both ends had answered was preparing until then.
fn unfinished_preparation<L: Clone>(
    open: Option<OpenAttempt<L>>,
    at: Timestamp,
) -> Option<Preparation<L>> {
    let preparing = open.filter(|open| open.prepared.is_none());
    preparing.map(|open| open.preparation(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TransferId = TransferId(1);

    fn started(attempt: u32) -> TransferEvent {
        TransferEvent::Started {
            attempt: Attempt(attempt),
            node: None,
        }
    }

    fn prepared(attempt: u32) -> TransferEvent {
        TransferEvent::Prepared {
            attempt: Attempt(attempt),
            size: None,
            checksum: None,
            replaces: false,
        }
    }

    /// Seconds of each preparation that these events end, and of those that go on at the end.
    fn preparations(events: &[(i64, TransferEvent)]) -> Vec<(i64, i64)> {
        let mut attempts = OpenAttempts::default();
        let mut told = Vec::new();
        for (second, event) in events {
            let (_, ended) = attempts.take(Timestamp(second * 1000), ONE, &(), event);
            told.extend(ended);
        }
        told.extend(attempts.preparations(Timestamp(100_000)));
        let seconds = |one: Preparation<()>| (one.from.0 / 1000, one.to.0 / 1000);
        told.into_iter().map(seconds).collect()
    }

    #[test]
    fn an_attempt_prepares_until_both_ends_have_answered_or_until_it_ends() {
        let lost = TransferEvent::AttemptLost {
            attempt: Attempt(1),
            reason: "the service restarted".into(),
        };
        assert_eq!(preparations(&[(1, started(1)), (3, prepared(1))]), [(1, 3)]);
        assert_eq!(preparations(&[(1, started(1)), (7, lost)]), [(1, 7)]);
        assert_eq!(preparations(&[(1, started(1))]), [(1, 100)]);
    }

    #[test]
    fn the_answer_for_an_earlier_attempt_ends_no_preparation() {
        let events = [(1, started(1)), (5, started(2)), (6, prepared(1))];
        assert_eq!(preparations(&events), [(5, 100)]);
    }
}
