//! The one record of what happened. Engines persist these events; everything else is derived from them.

use crate::checksum::Checksum;
use crate::failure::Failure;
use crate::ids::{JobId, LinkId, TransferId};
use crate::node::NodeId;
use crate::reason::ChoiceReason;
use crate::stages::MoverReport;
use crate::tape::StageRequestId;
use crate::transfer::{Attempt, CopyMode};
use crate::units::{Bytes, Slots, Timestamp};
use serde::{Deserialize, Serialize};

/// The version of the stored form of [`TransferEvent`]. Raise it with a migration and a test with old bytes.
pub const LEDGER_VERSION: u32 = 1;

/// Something that happened to one transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum TransferEvent {
    /// Accepted: it will move, fail or be canceled, but not be forgotten.
    Submitted,
    /// The turn of this replica or hop has come.
    Chosen {
        /// Why now, and why this one.
        because: ChoiceReason,
        /// Its file is brought to disk first.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stages: bool,
    },
    /// Its tape system has been asked for it, together with others, and has accepted that.
    StageRequested {
        /// As the tape system names the request.
        request: StageRequestId,
    },
    /// The file is on disk.
    Staged {
        /// What follows.
        then: AfterStaging,
    },
    /// The file was not brought to disk.
    StageFailed {
        failure: Failure,
        /// When it is asked for again. `None`: never, the transfer failed.
        retry_at: Option<Timestamp>,
        /// It costs no retry: the tape system has forgotten the request.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        excused: bool,
    },
    /// It no longer waits for its tape system: another replica was found on disk and is tried instead. Its turn may come again.
    Replaced {
        /// The transfer of that replica.
        by: TransferId,
    },
    /// Its job ended before the turn of this replica or hop came.
    NotNeeded,
    /// An attempt was given to an agent.
    Started {
        /// Which attempt, from 1.
        attempt: Attempt,
        /// Where it runs; `None`: in the one process of the service.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NodeId>,
    },
    /// Both ends were looked at; bytes may move now.
    Prepared {
        attempt: Attempt,
        /// Size at the source, when it told one.
        size: Option<Bytes>,
        /// Checksum at the source, when it told one.
        checksum: Option<Checksum>,
        /// A destination existed and may be replaced.
        replaces: bool,
    },
    /// The file arrived, verified as far as was asked.
    Landed {
        attempt: Attempt,
        /// Size of the file.
        size: Bytes,
        /// Which way the bytes went. `None`: an earlier attempt of unknown outcome had brought it.
        mode: Option<CopyMode>,
        /// What the mover measured.
        report: Box<MoverReport>,
        /// It has not ended: it waits until the file is on tape, too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        archives: bool,
    },
    /// The copy at the destination is on tape.
    Archived {
        /// What became of the source, where the job wanted it removed then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<SourceRemoval>,
    },
    /// It did not come to be on tape, or not in time.
    ArchiveFailed { failure: Failure },
    /// The attempt did not succeed.
    AttemptFailed {
        attempt: Attempt,
        failure: Failure,
        /// When it is tried again. `None`: never, the transfer failed.
        retry_at: Option<Timestamp>,
        /// Whatever the attempt had made at the destination is known to be gone.
        cleaned: bool,
        /// It costs no retry: the link was halted, and this failure only told that it still is; or it met nothing but a
        /// copy of an earlier attempt of its transfer.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        excused: bool,
        /// The file is brought to disk again before the next attempt.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stages: bool,
        /// What it had moved, which came to nothing. `None`: that is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        moved: Option<Bytes>,
    },
    /// The attempt's outcome is unknown, because the process that ran it is gone.
    AttemptLost {
        attempt: Attempt,
        /// For people.
        reason: String,
    },
    /// It waited longer than its job allows.
    Expired {
        /// What the client is told.
        failure: Failure,
    },
    /// It was found before an attempt that it cannot be done.
    Refused {
        /// What the client is told.
        failure: Failure,
    },
    /// Somebody asked to stop it.
    Canceled {
        /// For people.
        reason: String,
    },
}

impl TransferEvent {
    /// The attempt that it is about.
    pub fn attempt(&self) -> Option<Attempt> {
        match self {
            TransferEvent::Started { attempt, .. }
            | TransferEvent::Prepared { attempt, .. }
            | TransferEvent::Landed { attempt, .. }
            | TransferEvent::AttemptFailed { attempt, .. }
            | TransferEvent::AttemptLost { attempt, .. } => Some(*attempt),
            TransferEvent::Submitted
            | TransferEvent::Chosen { .. }
            | TransferEvent::Replaced { .. }
            | TransferEvent::NotNeeded
            | TransferEvent::StageRequested { .. }
            | TransferEvent::Staged { .. }
            | TransferEvent::StageFailed { .. }
            | TransferEvent::Archived { .. }
            | TransferEvent::ArchiveFailed { .. }
            | TransferEvent::Expired { .. }
            | TransferEvent::Refused { .. }
            | TransferEvent::Canceled { .. } => None,
        }
    }
}

/// What became of a source that was to be removed when its copy was on tape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceRemoval {
    /// It is gone.
    Removed,
    /// It is still there, because of this.
    Kept(Failure),
}

/// What follows when a file is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterStaging {
    /// It is copied.
    Copy,
    Nothing,
}

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Position in this node's ledger, from 1, without gaps.
    pub sequence: u64,
    /// Wall clock.
    pub at: Timestamp,
    /// Monotonic clock of the process that wrote it, in microseconds since that process started: orders and
    /// measures even when the wall clock steps.
    pub monotonic_us: u64,
    pub job: JobId,
    pub transfer: TransferId,
    #[serde(flatten)]
    pub event: TransferEvent,
}

/// The version of the stored form of [`LinkEvent`].
pub const LINK_EVENT_VERSION: u32 = 1;

/// Something that happened to a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum LinkEvent {
    /// From now on, or for longer, nothing starts but trials.
    Halted {
        /// The transfer whose failure was the last of them.
        by: TransferId,
        /// When one transfer is tried.
        until: Timestamp,
        /// Failures of one kind in a row.
        failures: u32,
        last: Failure,
    },
    /// One transfer may pass.
    Tried,
    /// A transfer arrived: all may start again.
    Reopened { by: TransferId },
}

/// An event of a link, as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkChange {
    pub at: Timestamp,
    pub link: LinkId,
    #[serde(flatten)]
    pub event: LinkEvent,
}

/// What one link did in one interval of about a second, from markers and landings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSample {
    /// End of the interval.
    pub at: Timestamp,
    pub link: LinkId,
    /// Bytes that moved in the interval.
    pub moved: Bytes,
    /// Running at its end.
    pub active: Slots,
    /// How many may run.
    pub limit: Slots,
    /// Waiting at its end; where a ban holds back all that wait, those.
    pub queued: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_on_tape_is_recorded_as_before_where_its_source_stays() {
        let before = r#"{"event":"archived"}"#;
        let event: TransferEvent = serde_json::from_str(before).expect("an old record");
        assert_eq!(event, TransferEvent::Archived { source: None });
        assert_eq!(serde_json::to_string(&event).expect("JSON"), before);
    }
}
