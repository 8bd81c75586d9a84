//! What is done for tapes that nobody waits for: their files are read and compared now and then, and tapes are emptied so that
//! they can be written anew.

use crate::relabel::RelabelOrder;
use crate::request::TapeName;
use serde::{Deserialize, Serialize};

/// What is known of the care for one tape.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TapeCare {
    pub verification: Verification,
    /// It is to be emptied, and then written anew.
    pub repack: Option<RepackTask>,
    /// Since when it has been out of use. `None`: it is in use, or nobody has looked yet.
    pub out_of_use_ns: Option<i64>,
}

/// How far the verification of a tape is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verification {
    /// When its files are to be read next. `None`: nobody has said so yet.
    pub due_ns: Option<i64>,
    /// While they are: what begins before this byte has been.
    pub reached_bytes: Option<u64>,
    /// When all of them had been read last.
    pub ended_ns: Option<i64>,
    /// Since the tape was verified for the first time.
    pub read_files: u64,
    pub read_bytes: u64,
    pub unreadable_files: u64,
}

/// A tape that is to be emptied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepackTask {
    pub since_ns: i64,
    /// Who wants it: what the site wants by itself is bounded in a day.
    pub order: RelabelOrder,
    /// Files and directories of which each is written together, in this order.
    #[serde(default)]
    pub together: Vec<String>,
}

/// One step of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CareStep {
    /// Its files are to be read then.
    VerificationDue { due_ns: i64 },
    /// What begins before this byte has been read.
    VerificationReached { to_bytes: u64 },
    /// All of it has been.
    VerificationEnded { due_ns: i64 },
    /// It is to be emptied.
    RepackBegun {
        order: RelabelOrder,
        together: Vec<String>,
    },
    /// It is empty, or stays as it is.
    RepackEnded,
    /// It was found out of use: broken, disabled, or not configured any more.
    OutOfUse,
    /// It was found in use again.
    InUse,
}

impl TapeCare {
    pub(crate) fn take(&mut self, at_ns: i64, step: &CareStep) {
        match step {
            CareStep::VerificationDue { due_ns } => self.verification.due_ns = Some(*due_ns),
            CareStep::VerificationReached { to_bytes } => {
                self.verification.reached_bytes = Some(*to_bytes);
            }
            CareStep::VerificationEnded { due_ns } => {
                self.verification.due_ns = Some(*due_ns);
                self.verification.reached_bytes = None;
                self.verification.ended_ns = Some(at_ns);
            }
            CareStep::RepackBegun { order, together } => {
                self.repack = Some(RepackTask {
                    since_ns: at_ns,
                    order: *order,
                    together: together.clone(),
                });
            }
            CareStep::RepackEnded => self.repack = None,
            CareStep::OutOfUse => self.out_of_use_ns = Some(at_ns),
            CareStep::InUse => self.out_of_use_ns = None,
        }
    }
}

/// A copy of a file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableCopy {
    pub tape: TapeName,
    pub begin_bytes: u64,
}
