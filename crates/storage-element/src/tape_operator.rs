//! What an operator wants of drives and tapes of libraries, and what is replied.

use crate::drive_account::DriveAccount;
use penstock_model::Timestamp;
use penstock_tape::mount_account::{TapeMetrics, VoTapeUsage};
use penstock_tape::ok_to_stop::StopAnswer;
use penstock_tape::record::TapeState;
use penstock_tape::request::{DriveName, TapeName, VoName};
use std::collections::BTreeMap;
use thiserror::Error;
use tokio::sync::oneshot;

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
    /// Nothing: what drives did since then; `None`: ever.
    Account(Option<Timestamp>),
    /// Nothing: what WLCG collects, of VOs that have so much on tape.
    Metrics(BTreeMap<VoName, VoTapeUsage>),
}

/// What has become of it.
#[derive(Debug, Clone)]
pub(crate) enum OperatorReply {
    Done,
    Answer(StopAnswer),
    Account(Box<DriveAccount>),
    Metrics(BTreeMap<VoName, TapeMetrics>),
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
