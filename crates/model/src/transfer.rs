//! The life of one transfer: its states, and the only function that moves it from one to the next.

use crate::failure::Failure;
use crate::ids::{JobId, TransferId};
use crate::ledger::{AfterStaging, TransferEvent};
use crate::node::NodeId;
use crate::stages::CopySummary;
use crate::tape::{Recall, StageRequestId};
use crate::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The number of an attempt, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(pub u32);

impl Attempt {
    /// The name of the copy that this attempt of a transfer makes, which both ends are told and record. No other service
    /// gives the same one.
    pub fn copy_name(self, job: JobId, transfer: TransferId) -> String {
        format!("{job}-{transfer}-{}", self.0)
    }
}

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
    /// Waits until its tape system is asked to bring the file to disk, or asked again.
    Staging {
        /// Not asked before this time (a retry backs off). `None`: may be asked at once.
        not_before: Option<Timestamp>,
        /// How far it is.
        recall: Box<Recall>,
    },
    /// Its tape system has accepted to bring the file to disk (FTS: STARTED).
    Recalling {
        /// As the tape system names the request, of which other files may be part.
        request: StageRequestId,
        /// When it was accepted.
        asked_at: Timestamp,
        /// How far it is.
        recall: Box<Recall>,
    },
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
        /// The stage request by which the source was brought to disk, to be released when it has been copied.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        staged: Option<StageRequestId>,
    },
    /// An attempt runs.
    Active {
        attempt: Attempt,
        /// When it started.
        since: Timestamp,
        /// Attempts that used up a retry before this one.
        failures: u32,
        /// The destination was found absent, or may be replaced, before any byte moved: what is there is ours.
        prepared: bool,
        /// Carried over from the attempt before; see `Submitted`.
        unsettled: bool,
        /// See `Submitted`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        staged: Option<StageRequestId>,
        /// Where it runs; `None`: in the one process of the service.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NodeId>,
    },
    /// It arrived and was verified as far as asked, and waits until it is on tape.
    Archiving {
        /// When it arrived.
        since: Timestamp,
        /// When the attempt that succeeded started.
        started_at: Timestamp,
        /// Which attempt succeeded.
        attempt: Attempt,
        /// Size of the file.
        size: Bytes,
        /// Which way the bytes went. `None`: found to have arrived already.
        mode: Option<CopyMode>,
        /// What of the mover's report goes with the state.
        report: Box<CopySummary>,
    },
    /// It arrived and was verified as far as asked; or it is on disk, when that was all.
    Finished {
        at: Timestamp,
        /// When the attempt that succeeded started; when it began to wait for its tape system, if that was all.
        started_at: Timestamp,
        /// Which attempt succeeded; 0 when there was nothing to copy.
        attempt: Attempt,
        /// Size of the file.
        size: Bytes,
        /// Which way the bytes went. `None`: found to have arrived already.
        mode: Option<CopyMode>,
        /// What of the mover's report goes with the state.
        report: Box<CopySummary>,
    },
    /// It will not be tried again.
    Failed {
        at: Timestamp,
        /// Attempts started.
        attempts: u32,
        failure: Failure,
    },
    /// Somebody asked to stop it.
    Canceled {
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
            staged: None,
        }
    }

    /// As it begins when its file is on tape.
    pub fn staging(recall: Recall) -> TransferState {
        TransferState::Staging {
            not_before: None,
            recall: Box::new(recall),
        }
    }

    /// The stage request that keeps its source on disk.
    pub fn staged(&self) -> Option<&StageRequestId> {
        match self {
            TransferState::Submitted { staged, .. } | TransferState::Active { staged, .. } => {
                staged.as_ref()
            }
            TransferState::NotUsed
            | TransferState::Staging { .. }
            | TransferState::Recalling { .. }
            | TransferState::Archiving { .. }
            | TransferState::Finished { .. }
            | TransferState::Failed { .. }
            | TransferState::Canceled { .. } => None,
        }
    }

    /// True when it will never change again.
    pub fn is_terminal(&self) -> bool {
        match self {
            TransferState::NotUsed
            | TransferState::Staging { .. }
            | TransferState::Recalling { .. }
            | TransferState::Submitted { .. }
            | TransferState::Active { .. }
            | TransferState::Archiving { .. } => false,
            TransferState::Finished { .. }
            | TransferState::Failed { .. }
            | TransferState::Canceled { .. } => true,
        }
    }

    /// The words that [`TransferState::fts_name`] has, in the order of a transfer's life.
    pub const FTS_NAMES: [&str; 9] = [
        "NOT_USED",
        "STAGING",
        "STARTED",
        "SUBMITTED",
        "ACTIVE",
        "ARCHIVING",
        "FINISHED",
        "FAILED",
        "CANCELED",
    ];

    /// FTS's word for it on the wire.
    pub fn fts_name(&self) -> &'static str {
        match self {
            TransferState::NotUsed => "NOT_USED",
            TransferState::Staging { .. } => "STAGING",
            TransferState::Recalling { .. } => "STARTED",
            TransferState::Submitted { .. } => "SUBMITTED",
            TransferState::Active { .. } => "ACTIVE",
            TransferState::Archiving { .. } => "ARCHIVING",
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
    let refused = || InvalidTransition {
        from: state.fts_name(),
        event: Box::new(event.clone()),
    };
    match (state, event) {
        (state, E::Canceled { reason }) if !state.is_terminal() => Ok(S::Canceled {
            at,
            reason: reason.clone(),
        }),
        (S::NotUsed, E::Chosen { stages, .. }) => Ok(match stages {
            true => S::staging(Recall::begun(at)),
            false => S::submitted(),
        }),
        (S::NotUsed, E::NotNeeded) => Ok(S::NotUsed),
        (
            S::Staging { .. } | S::Recalling { .. },
            E::StageRequested { .. }
            | E::Staged { .. }
            | E::StageFailed { .. }
            | E::Replaced { .. }
            | E::Expired { .. }
            | E::Refused { .. },
        ) => advance_recall(state, at, event).ok_or_else(refused),
        (S::Submitted { attempts, .. }, E::Expired { failure } | E::Refused { failure }) => {
            Ok(S::Failed {
                at,
                attempts: *attempts,
                failure: failure.clone(),
            })
        }
        (
            S::Submitted {
                attempts,
                failures,
                unsettled,
                staged,
                ..
            },
            E::Started { attempt, node },
        ) if attempt.0 == attempts + 1 => Ok(S::Active {
            attempt: *attempt,
            since: at,
            failures: *failures,
            prepared: false,
            unsettled: *unsettled,
            staged: staged.clone(),
            node: node.clone(),
        }),
        (S::Active { attempt, .. }, event) if event.attempt() == Some(*attempt) => {
            advance_attempt(state, at, event).ok_or_else(refused)
        }
        (S::Archiving { .. }, E::Archived { .. } | E::ArchiveFailed { .. }) => {
            advance_archiving(state, at, event).ok_or_else(refused)
        }
        _ => Err(refused()),
    }
}

/// What becomes of a file that is to be brought to disk; `None` when the event does not fit.
fn advance_recall(
    state: &TransferState,
    at: Timestamp,
    event: &TransferEvent,
) -> Option<TransferState> {
    use TransferEvent as E;
    use TransferState as S;
    let (recall, request) = match state {
        S::Staging { recall, .. } => (recall, None),
        S::Recalling {
            recall, request, ..
        } => (recall, Some(request)),
        _ => return None,
    };
    match (request, event) {
        (None, E::StageRequested { request }) => Some(S::Recalling {
            request: request.clone(),
            asked_at: at,
            recall: Box::new(Recall {
                requests: recall.requests + 1,
                ..Recall::clone(recall)
            }),
        }),
        (Some(request), E::Staged { then }) => Some(match then {
            AfterStaging::Copy => S::Submitted {
                not_before: None,
                failures: recall.copy_failures,
                attempts: recall.attempts,
                last: None,
                unsettled: recall.unsettled,
                staged: Some(request.clone()),
            },
            AfterStaging::Nothing => S::Finished {
                at,
                started_at: recall.since,
                attempt: Attempt(0),
                size: Bytes(0),
                mode: None,
                report: Box::default(),
            },
        }),
        (
            _,
            E::StageFailed {
                failure,
                retry_at,
                excused,
            },
        ) => Some(match retry_at {
            Some(not_before) => S::Staging {
                not_before: Some(*not_before),
                recall: Box::new(Recall {
                    failures: recall.failures + u32::from(!excused),
                    last: Some(failure.clone()),
                    ..Recall::clone(recall)
                }),
            },
            None => S::Failed {
                at,
                attempts: recall.attempts,
                failure: failure.clone(),
            },
        }),
        // What an attempt may have left at the destination is remembered by its own transfer alone.
        (_, E::Replaced { .. }) if recall.attempts == 0 => Some(S::NotUsed),
        (_, E::Expired { failure } | E::Refused { failure }) => Some(S::Failed {
            at,
            attempts: recall.attempts,
            failure: failure.clone(),
        }),
        _ => None,
    }
}

/// What becomes of a transfer whose current attempt tells something; `None` when the event does not fit.
/// Long because each pair of a state and an event that is allowed has one arm.
fn advance_attempt(
    state: &TransferState,
    at: Timestamp,
    event: &TransferEvent,
) -> Option<TransferState> {
    use TransferEvent as E;
    use TransferState as S;
    let S::Active {
        attempt,
        since,
        failures,
        prepared,
        unsettled,
        staged,
        node,
    } = state
    else {
        return None;
    };
    Some(match event {
        E::Prepared { .. } => S::Active {
            attempt: *attempt,
            since: *since,
            failures: *failures,
            prepared: true,
            unsettled: *unsettled,
            staged: staged.clone(),
            node: node.clone(),
        },
        E::Landed {
            size,
            mode,
            report,
            archives,
            ..
        } => match archives {
            true => S::Archiving {
                since: at,
                started_at: *since,
                attempt: *attempt,
                size: *size,
                mode: *mode,
                report: Box::new(report.summary()),
            },
            false => S::Finished {
                at,
                started_at: *since,
                attempt: *attempt,
                size: *size,
                mode: *mode,
                report: Box::new(report.summary()),
            },
        },
        E::AttemptFailed {
            failure,
            retry_at,
            cleaned,
            excused,
            stages,
            ..
        } => {
            let failures = failures + u32::from(!excused);
            let unsettled = (*prepared || *unsettled) && !cleaned;
            match (retry_at, stages) {
                (Some(not_before), false) => S::Submitted {
                    not_before: Some(*not_before),
                    failures,
                    attempts: attempt.0,
                    last: Some(failure.clone()),
                    unsettled,
                    staged: staged.clone(),
                },
                (Some(not_before), true) => S::Staging {
                    not_before: Some(*not_before),
                    recall: Box::new(Recall {
                        last: Some(failure.clone()),
                        attempts: attempt.0,
                        copy_failures: failures,
                        unsettled,
                        ..Recall::begun(at)
                    }),
                },
                (None, _) => S::Failed {
                    at,
                    attempts: attempt.0,
                    failure: failure.clone(),
                },
            }
        }
        E::AttemptLost { .. } => S::Submitted {
            not_before: None,
            failures: *failures,
            attempts: attempt.0,
            last: None,
            unsettled: *prepared || *unsettled,
            staged: staged.clone(),
        },
        _ => return None,
    })
}

/// What becomes of a copy that waits to be on tape; `None` when the event does not fit.
fn advance_archiving(
    state: &TransferState,
    at: Timestamp,
    event: &TransferEvent,
) -> Option<TransferState> {
    use TransferState as S;
    let S::Archiving {
        started_at,
        attempt,
        size,
        mode,
        report,
        ..
    } = state
    else {
        return None;
    };
    match event {
        TransferEvent::Archived { .. } => Some(S::Finished {
            at,
            started_at: *started_at,
            attempt: *attempt,
            size: *size,
            mode: *mode,
            report: report.clone(),
        }),
        TransferEvent::ArchiveFailed { failure } => Some(S::Failed {
            at,
            attempts: attempt.0,
            failure: failure.clone(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Concern, Errno, Phase};
    use crate::problem::{Retry, Side};

    fn failure() -> Failure {
        Failure {
            side: Side::Source,
            retry: Retry::Later,
            concern: Concern::Link,
            phase: Phase::Transfer,
            errno: Errno::EIO,
            detail: "the source hung up".into(),
            found: None,
            busy: None,
            code: None,
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
            archives: false,
        }
    }

    fn started(attempt: u32) -> TransferEvent {
        TransferEvent::Started {
            attempt: Attempt(attempt),
            node: None,
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
            stages: false,
            moved: None,
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

    fn requested(name: &str) -> TransferEvent {
        TransferEvent::StageRequested {
            request: StageRequestId::new(name),
        }
    }

    fn recalled(events: &[TransferEvent]) -> Result<TransferState, InvalidTransition> {
        let first = TransferState::staging(Recall::begun(Timestamp(1)));
        events
            .iter()
            .try_fold(first, |state, event| advance(&state, Timestamp(7), event))
    }

    #[test]
    fn a_file_on_tape_is_asked_for_before_it_is_on_disk_and_on_disk_before_it_is_copied() {
        let staged = TransferEvent::Staged {
            then: AfterStaging::Copy,
        };
        assert!(recalled(&[started(1)]).is_err());
        assert!(recalled(std::slice::from_ref(&staged)).is_err());
        assert!(recalled(&[requested("r"), requested("s")]).is_err());
        let state = recalled(&[requested("r"), staged.clone(), started(1)]).expect("valid");
        assert_eq!(state.staged(), Some(&StageRequestId::new("r")));
        let state = recalled(&[requested("r"), staged, started(1), landed(1)]).expect("valid");
        assert_eq!((state.fts_name(), state.staged()), ("FINISHED", None));
    }

    #[test]
    fn a_copy_that_has_to_be_staged_again_keeps_its_count_of_attempts() {
        let staged = TransferEvent::Staged {
            then: AfterStaging::Copy,
        };
        let timed_out = TransferEvent::AttemptFailed {
            attempt: Attempt(1),
            failure: failure(),
            retry_at: Some(Timestamp(9)),
            cleaned: false,
            excused: false,
            stages: true,
            moved: None,
        };
        let prepared = TransferEvent::Prepared {
            attempt: Attempt(1),
            size: None,
            checksum: None,
            replaces: false,
        };
        let again = [
            requested("r"),
            staged.clone(),
            started(1),
            prepared,
            timed_out,
        ];
        assert_eq!(recalled(&again).expect("valid").fts_name(), "STAGING");
        let again: Vec<_> = again
            .into_iter()
            .chain([requested("s"), staged, started(2)])
            .collect();
        let state = recalled(&again).expect("valid");
        assert!(
            matches!(
                state,
                TransferState::Active {
                    failures: 1,
                    unsettled: true,
                    ..
                }
            ),
            "{state:?}"
        );
    }

    #[test]
    fn what_an_older_version_stored_is_read() {
        let old = r#"{"state":"submitted","not_before":null,"failures":0,"attempts":2,"last":null,"unsettled":true}"#;
        let read: TransferState = serde_json::from_str(old).expect("readable");
        assert_eq!(read.staged(), None);
        let stored = serde_json::to_string(&landed(1)).expect("serializable");
        assert!(!stored.contains("archives"), "{stored}");
        assert_eq!(serde_json::from_str(&stored).ok(), Some(landed(1)));
        let old = r#"{"event":"started","attempt":1}"#;
        assert_eq!(serde_json::from_str(old).ok(), Some(started(1)));
        assert_eq!(
            serde_json::to_string(&started(1)).ok().as_deref(),
            Some(old)
        );
    }
}
