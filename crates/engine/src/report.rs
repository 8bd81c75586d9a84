//! What agents tell, in one form from the agent to the engine. Nodes send it to their leader so.

use crate::AttemptOutcome;
use penstock_model::{Attempt, Bytes, Checksum, TransferId};
use serde::{Deserialize, Serialize};

/// One attempt of one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptKey {
    pub transfer: TransferId,
    pub attempt: Attempt,
}

/// What an agent tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentReport {
    /// It has looked at both ends, and asks to move bytes.
    Prepared {
        transfer: TransferId,
        attempt: Attempt,
        #[serde(rename = "looked")]
        preflight: Preflight,
    },
    /// It has ended, whatever the outcome; its slot is free.
    Ended {
        transfer: TransferId,
        attempt: Attempt,
        outcome: AttemptOutcome,
    },
    /// How far some of them are: bytes moved, and the size if it is known.
    Moved(Vec<(TransferId, Attempt, u64, Option<u64>)>),
}

/// What an agent has found at both ends before it moves bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Preflight {
    /// Size at the source, when it told one.
    pub size: Option<Bytes>,
    /// Checksum at the source.
    pub checksum: Option<Checksum>,
    /// A destination existed and may be replaced.
    pub replaces: bool,
}
