//! What an operator wants of drives and tapes of libraries, and what is replied.

use crate::drive_account::DriveAccount;
use penstock_model::Timestamp;
use penstock_tape::mount_account::{TapeMetrics, VoTapeUsage};
use penstock_tape::ok_to_stop::StopAnswer;
use penstock_tape::record::TapeState;
use penstock_tape::request::{DriveName, TapeName, VoName};
use std::collections::BTreeMap;
use std::time::Duration;
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
    /// All that lives on it is moved to other tapes, and then it is written anew. What `together` names, files and directories, is
    /// written beside each other, in this order.
    Repack {
        tape: TapeName,
        together: Vec<String>,
    },
    /// It stays as it is, and is written to again.
    StopRepack(TapeName),
    /// All of its files are read and compared, as soon as a drive is free.
    Verify(TapeName),
    /// All of it is given up, if nothing lives on it.
    Relabel(TapeName),
    /// What nobody waits for rests for so long. Zero: it goes on.
    HoldBackground(Duration),
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
    #[error("the drive is busy; try again later")]
    Busy,
    #[error("the tape system does not answer; try again later")]
    Silent,
    #[error("tape {} is {state}: {remedy}", .tape.0)]
    TapeState {
        tape: TapeName,
        state: &'static str,
        remedy: &'static str,
    },
    #[error("tape {} is not relabeled: {why}", .tape.0)]
    Kept { tape: TapeName, why: String },
    #[error("the namespace cannot be asked: {0}")]
    Namespace(String),
}

/// With where the reply goes.
#[derive(Debug)]
pub(crate) struct OperatorRequest {
    pub order: OperatorOrder,
    pub reply: ReplySender,
}

/// Where it goes.
pub(crate) type ReplySender = oneshot::Sender<Result<OperatorReply, OperatorError>>;
