//! What nodes have their agents do, in one form from the engine to the node that does it. Leaders send it to nodes so.

use crate::Assignment;
use penstock_model::{Attempt, TransferId};
use serde::{Deserialize, Serialize};

/// What a leader has a node do. Each may be repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Run an attempt.
    Start(Box<Assignment>),
    /// Let one that has looked at both ends move bytes.
    Proceed {
        transfer: TransferId,
        attempt: Attempt,
    },
    /// Stop it; it cleans up and tells its end.
    Stop {
        transfer: TransferId,
        attempt: Attempt,
    },
    /// Drop it where it stands, without a further report: what it does at the destination is another one's now.
    Abandon {
        transfer: TransferId,
        attempt: Attempt,
    },
    /// Its end is durable. The driver adds this one, which answers the session that reported the end.
    Forget {
        transfer: TransferId,
        attempt: Attempt,
    },
}
