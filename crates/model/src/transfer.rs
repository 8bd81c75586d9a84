//! The life of one transfer: its states, and the only function that moves it from one to the next.

use crate::failure::Failure;
use crate::ledger::TransferEvent;
use crate::stages::MoverReport;
use crate::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The number of an attempt, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(pub u32);

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyMode {
    /// The destination fetches from the source.
    Pull,
    /// The source sends to the destination.
    Push,
    /// Through an agent of this service.
    Streamed,
}

impl CopyMode {
    /// The word for people and records.
    pub fn name(self) -> &'static str {
        match self {
            CopyMode::Pull => "pull",
            CopyMode::Push => "push",
            CopyMode::Streamed => "streamed",
        }
    }
}

/// Where a transfer stands. Each variant carries exactly what is true while in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum TransferState {
    /// One of several replicas or hops, whose turn has not come. It stays so when it is not needed.
    NotUsed,
    /// Waits for a slot, or for its next attempt.
    Submitted {
        /// Not started before this time (a retry backs off). `None`: may start at once.
        not_before: Option<Timestamp>,
        /// Attempts that used up a retry.
        failures: u32,
        /// Attempts started so far, lost ones included.
        attempts: u32,
        /// Why the last attempt did not succeed.
        last: Option<Failure>,
        /// The last attempt ended without a known outcome after the destination was found absent: what is there
        /// now can only be ours.
        unsettled: bool,
    },
    /// An attempt runs.
    Active {
        /// Which attempt.
        attempt: Attempt,
        /// When it started.
        since: Timestamp,
        /// Attempts that used up a retry before this one.
        failures: u32,
        /// The destination was found absent, or may be replaced, before any byte moved: what is there is ours.
        prepared: bool,
        /// Carried over from the attempt before; see `Submitted`.
        unsettled: bool,
    },
    /// It arrived and was verified as far as asked.
    Finished {
        /// When.
        at: Timestamp,
        /// When the attempt that succeeded started.
        started_at: Timestamp,
        /// Which attempt succeeded.
        attempt: Attempt,
        /// Size of the file.
        size: Bytes,
        /// Which way the bytes went. `None`: found to have arrived already.
        mode: Option<CopyMode>,
        /// What the mover measured.
        report: Box<MoverReport>,
    },
    /// It will not be tried again.
    Failed {
        /// When.
        at: Timestamp,
        /// Attempts started.
        attempts: u32,
        /// Why.
        failure: Failure,
    },
    /// Somebody asked to stop it.
    Canceled {
        /// When.
        at: Timestamp,
        /// Why, for people.
        reason: String,
    },
}

impl TransferState {
    /// As it begins.
    pub fn submitted() -> TransferState {
        TransferState::Submitted {
            not_before: None,
            failures: 0,
            attempts: 0,
            last: None,
            unsettled: false,
        }
    }

    /// True when it will never change again.
    pub fn is_terminal(&self) -> bool {
        match self {
            TransferState::NotUsed
            | TransferState::Submitted { .. }
            | TransferState::Active { .. } => false,
            TransferState::Finished { .. }
            | TransferState::Failed { .. }
            | TransferState::Canceled { .. } => true,
        }
    }

    /// FTS's word for it on the wire.
    pub fn fts_name(&self) -> &'static str {
        match self {
            TransferState::NotUsed => "NOT_USED",
            TransferState::Submitted { .. } => "SUBMITTED",
            TransferState::Active { .. } => "ACTIVE",
            TransferState::Finished { .. } => "FINISHED",
            TransferState::Failed { .. } => "FAILED",
            TransferState::Canceled { .. } => "CANCELED",
        }
    }
}

/// An event that does not fit the state it met. A value, never silence.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("a transfer that is {from} cannot take the event {event:?}")]
pub struct InvalidTransition {
    /// The state's name.
    pub from: &'static str,
    /// What was refused.
    pub event: Box<TransferEvent>,
}

/// The only way a transfer changes state. Events of an attempt are refused unless it is the current one.
pub fn advance(
    state: &TransferState,
    at: Timestamp,
    event: &TransferEvent,
) -> Result<TransferState, InvalidTransition> {
    use TransferEvent as E;
    use TransferState as S;
    match (state, event) {
        (
            S::Submitted {
                attempts,
                failures,
                unsettled,
                ..
            },
            E::Started { attempt, .. },
        ) if attempt.0 == attempts + 1 => Ok(S::Active {
            attempt: *attempt,
            since: at,
            failures: *failures,
            prepared: false,
            unsettled: *unsettled,
        }),
        (
            S::Active {
                attempt,
                since,
                failures,
                unsettled,
                ..
            },
            E::Prepared { attempt: of, .. },
        ) if attempt == of => Ok(S::Active {
            attempt: *attempt,
            since: *since,
            failures: *failures,
            prepared: true,
            unsettled: *unsettled,
        }),
        (
            S::Active { attempt, since, .. },
            E::Landed {
                attempt: of,
                size,
                mode,
                report,
            },
        ) if attempt == of => Ok(S::Finished {
            at,
            started_at: *since,
            attempt: *attempt,
            size: *size,
            mode: *mode,
            report: report.clone(),
        }),
        (
            S::Active {
                attempt,
                failures,
                prepared,
                unsettled,
                ..
            },
            E::AttemptFailed {
                attempt: of,
                failure,
                retry_at,
                cleaned,
                excused,
            },
        ) if attempt == of => Ok(match retry_at {
            Some(not_before) => S::Submitted {
                not_before: Some(*not_before),
                failures: failures + u32::from(!excused),
                attempts: attempt.0,
                last: Some(failure.clone()),
                unsettled: (*prepared || *unsettled) && !cleaned,
            },
            None => S::Failed {
                at,
                attempts: attempt.0,
                failure: failure.clone(),
            },
        }),
        (
            S::Active {
                attempt,
                failures,
                prepared,
                unsettled,
                ..
            },
            E::AttemptLost { attempt: of, .. },
        ) if attempt == of => Ok(S::Submitted {
            not_before: None,
            failures: *failures,
            attempts: attempt.0,
            last: None,
            unsettled: *prepared || *unsettled,
        }),
        (S::NotUsed, E::Chosen { .. }) => Ok(S::submitted()),
        (S::NotUsed, E::NotNeeded) => Ok(S::NotUsed),
        (S::Submitted { .. }, E::Expired { failure } | E::Refused { failure }) => {
            let S::Submitted { attempts, .. } = state else {
                unreachable!("matched above")
            };
            Ok(S::Failed {
                at,
                attempts: *attempts,
                failure: failure.clone(),
            })
        }
        (S::NotUsed | S::Submitted { .. } | S::Active { .. }, E::Canceled { reason }) => {
            Ok(S::Canceled {
                at,
                reason: reason.clone(),
            })
        }
        (from, event) => Err(InvalidTransition {
            from: from.fts_name(),
            event: Box::new(event.clone()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Errno, Phase, Retry, Side};

    fn failure() -> Failure {
        Failure {
            side: Side::Source,
            retry: Retry::Later,
            phase: Phase::Transfer,
            errno: Errno::EIO,
            detail: "the source hung up".into(),
            found: None,
        }
    }

    fn run(events: &[TransferEvent]) -> Result<TransferState, InvalidTransition> {
        events
            .iter()
            .try_fold(TransferState::submitted(), |state, event| {
                advance(&state, Timestamp(7), event)
            })
    }

    fn landed(attempt: u32) -> TransferEvent {
        TransferEvent::Landed {
            attempt: Attempt(attempt),
            size: Bytes(1),
            mode: Some(CopyMode::Pull),
            report: Box::default(),
        }
    }

    fn started(attempt: u32) -> TransferEvent {
        TransferEvent::Started {
            attempt: Attempt(attempt),
        }
    }

    #[test]
    fn a_landed_transfer_cannot_start_again() {
        let error = run(&[started(1), landed(1), started(2)]).expect_err("terminal");
        assert_eq!(error.from, "FINISHED");
    }

    #[test]
    fn a_late_answer_of_an_earlier_attempt_changes_nothing() {
        let retry = TransferEvent::AttemptFailed {
            attempt: Attempt(1),
            failure: failure(),
            retry_at: Some(Timestamp(9)),
            cleaned: true,
            excused: false,
        };
        assert!(run(&[started(1), retry.clone(), landed(1)]).is_err());
        assert!(run(&[started(1), retry, started(2), landed(1)]).is_err());
    }

    #[test]
    fn a_lost_attempt_costs_no_retry_and_remembers_what_it_may_have_left() {
        let prepared = TransferEvent::Prepared {
            attempt: Attempt(1),
            size: Some(Bytes(1)),
            checksum: None,
            replaces: false,
        };
        let lost = TransferEvent::AttemptLost {
            attempt: Attempt(1),
            reason: "the service restarted".into(),
        };
        let state = run(&[started(1), prepared, lost]).expect("valid");
        let TransferState::Submitted {
            failures,
            attempts,
            unsettled,
            ..
        } = state
        else {
            panic!("{state:?}")
        };
        assert_eq!((failures, attempts, unsettled), (0, 1, true));
    }
}
