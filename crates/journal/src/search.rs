//! Finding transfers among all that ever were, newest first, a page at a time. What no index narrows is looked at row
//! by row, but never more than so many rows for one page: who wants more asks for the next.

use crate::FoundTransfer;
use penstock_model::{JobId, StorageId, Timestamp, TransferId, VoName};

/// Which transfers somebody looks for. `None` and empty mean: any.
#[derive(Debug, Clone, Default)]
pub struct TransferFilter {
    pub job: Option<JobId>,
    /// On behalf of.
    pub vo: Option<VoName>,
    /// States as on the wire.
    pub states: Vec<String>,
    /// Only what has not ended, or ended at or after this time.
    pub ended_since: Option<Timestamp>,
    /// Submitted at or after this time.
    pub submitted_since: Option<Timestamp>,
    /// Out of this storage element.
    pub source: Option<StorageId>,
    /// Into this storage element.
    pub destination: Option<StorageId>,
    /// At one of its ends, whatever the scheme and the port.
    pub host: Option<String>,
    /// To this very URL.
    pub destination_url: Option<String>,
    /// Each of these is a part of the source's or the destination's URL, in capitals or not.
    pub parts: Vec<String>,
    /// Only numbers below this one: the page after another.
    pub before: Option<TransferId>,
    /// At most this many.
    pub limit: usize,
    /// At most this many are looked at.
    pub examined_max: usize,
}

/// A page of what was found.
#[derive(Debug, Default)]
pub struct FoundPage {
    /// Newest first.
    pub transfers: Vec<FoundTransfer>,
    /// Where the next page begins; `None`: there is nothing further.
    pub before: Option<TransferId>,
    /// Rows that were looked at.
    pub examined: usize,
}

/// A name that jobs have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobName {
    /// Who submitted.
    User,
    /// On whose behalf.
    Vo,
}
