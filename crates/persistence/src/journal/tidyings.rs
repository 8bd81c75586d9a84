//! What has to be looked after at destinations although the transfers have ended: it outlives the process that owes it,
//! and what it takes to do it (the destination's token) outlives the job.

use penstock_model::{Attempt, JobId, JobParameters, NodeId, Timestamp, TransferRequest, VoName};
use serde::{Deserialize, Serialize};

/// The version of the stored form.
pub(super) const TIDYING_VERSION: u32 = 2;

/// An attempt of a transfer that has ended may have left something at its destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tidying {
    /// The job that the transfer was of.
    pub job: JobId,
    /// Whose it was.
    pub vo: VoName,
    /// What had been asked for.
    pub request: TransferRequest,
    /// What held for it.
    pub parameters: JobParameters,
    /// Who works at that destination: an attempt that was told to stop, or the one that tidies up.
    pub attempt: Attempt,
    /// Where it works; `None`: in the one process of the service.
    pub node: Option<NodeId>,
    /// It is the copy, which was told to stop; else it tidies up.
    pub copies: bool,
    /// Somebody has to tidy up also when the copy has cleaned up after itself.
    pub is_due: bool,
    /// When the agent of the last attempt closed its connections; `None`: it is not known that it did.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// When it was first tried in vain.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// How often it was tried in vain.
    #[serde(default)]
    pub tries: u32,
    /// Nobody works at it until then.
    #[serde(default)]
    pub next_at: Option<Timestamp>,
}
