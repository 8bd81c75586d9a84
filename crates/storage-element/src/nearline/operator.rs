//! What an operator wants of drives and tapes of libraries.

use super::Nearline;
use super::tape_libraries::{LiveBytes, live_bytes};
use crate::nearline_inbox::NearlineMessage;
use penstock_persistence::namespace::{Namespace, NamespaceError};
use penstock_tape::ok_to_stop::StopAnswer;
use penstock_tape::record::TapeState;
use penstock_tape::request::{DriveName, TapeName};
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::oneshot;

/// How long the driver may take to answer: it may be waiting for a disk.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OperatorOrder {
    /// The drive is empty and works. Its tape was put back into its slot.
    DriveUp(DriveName),
    /// The drive is taken out of use, now; what it has not synced is written again elsewhere.
    DriveDown(DriveName),
    Tape(TapeName, TapeState),
    /// Nothing: what would happen if a drive, a library or a tape of this name were stopped.
    MayStop(String),
}

/// What has become of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OperatorReply {
    Done,
    Answer(StopAnswer),
}

/// Why nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum OperatorError {
    #[error("there is no {0} of this name; `penstock tape status` lists them")]
    Unknown(&'static str),
    #[error(
        "this storage element drives the program of an HSM, which has its drives and tapes to itself"
    )]
    NoLibraries,
    #[error("the drive does not stop what it does; try again later")]
    Busy,
    #[error("the tape system does not answer; try again later")]
    Silent,
    #[error("the namespace cannot be asked: {0}")]
    Namespace(String),
}

/// With where the reply goes.
#[derive(Debug)]
pub(crate) struct OperatorRequest {
    pub order: OperatorOrder,
    pub reply: oneshot::Sender<Result<OperatorReply, OperatorError>>,
}

impl Nearline {
    /// Has the driver do it.
    pub(crate) async fn operate(
        &self,
        order: OperatorOrder,
    ) -> Result<OperatorReply, OperatorError> {
        let (reply, answer) = oneshot::channel();
        let request = OperatorRequest { order, reply };
        self.inbox.send(NearlineMessage::Operator(request));
        let answer = tokio::time::timeout(ANSWER_WAIT, answer).await;
        let answer = answer.map_err(|_| OperatorError::Silent)?;
        answer.map_err(|_| OperatorError::Silent)?
    }

    /// What of each tape is needed. Blocks.
    pub(crate) fn live_bytes(
        namespace: &Namespace,
    ) -> Result<BTreeMap<TapeName, LiveBytes>, NamespaceError> {
        live_bytes(namespace)
    }
}
