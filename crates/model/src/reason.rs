//! Why a transfer waits. Typed, with the numbers that mattered; `decide::wording` makes the sentence.

mod stored;

use crate::failure::Failure;
use crate::ids::{Activity, StorageId, TransferId, VoName};
use crate::job::Selection;
use crate::tape::StageRequestId;
use crate::units::{Rate, Slots, Timestamp};
use serde::{Deserialize, Serialize};
use stored::StoredNoSlot;

/// Why a transfer has not been started. Every waiting transfer has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum WaitReason {
    /// The latest transfers on the link all failed in one way; it is tried with one transfer now and then.
    LinkHalted {
        /// When the next one is tried.
        until: Timestamp,
        /// Failures of one kind in a row.
        failures: u32,
        last: Failure,
    },
    /// The last attempt failed; the next one may not start yet.
    BackingOff {
        /// When it may start.
        until: Timestamp,
        /// Failures so far.
        failures: u32,
        last: Failure,
    },
    /// Another transfer to the same destination was submitted before and has not ended.
    SameDestination {
        /// The one that comes first.
        before: TransferId,
    },
    /// Operators have banned an end of it for now.
    StorageBanned {
        /// Which storage element.
        storage: StorageId,
        since: Timestamp,
        /// When it is canceled if the ban still holds; `None`: it waits on.
        cancel_at: Option<Timestamp>,
        /// What the operators say of it.
        message: String,
    },
    /// The issuer of a token of it is being asked for what the token is renewed with.
    TokenExchange { since: Timestamp },
    /// It waits for a slot as others do, and these slots go by shares.
    ByShare {
        /// What there is none of at the moment.
        because: Box<WaitReason>,
        /// On whose behalf it waits.
        vo: VoName,
        /// How much of the next slots the VO gets, among those that wait now. `None`: the VOs have no shares here.
        vo_percent: Option<u8>,
        /// How much of that the transfer's activity gets, and which that is. `None`: the VO's activities have no shares.
        activity_percent: Option<(Activity, u8)>,
    },
    /// It waits for a tape system.
    Tape(TapeWait),
    /// A slot is free and this transfer will be started in the current pass.
    Starting,
    /// The service drains before it stops; it continues after the restart.
    Draining,
    /// An operator drained the service; it continues when that is taken back.
    Drained,
    /// A slot that it needs is not free.
    #[serde(untagged)]
    NoSlot(NoSlot),
}

/// A slot that a transfer needs, and why it cannot have one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredNoSlot", into = "StoredNoSlot")]
pub struct NoSlot {
    pub place: SlotPlace,
    pub because: SlotBound,
}

/// A place whose slots are counted and limited, seen from a transfer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlotPlace {
    Link,
    /// Out of the source, over all its links.
    Source {
        /// Which storage element.
        storage: StorageId,
    },
    /// Into the destination, over all its links.
    Destination {
        /// Which storage element.
        storage: StorageId,
    },
    /// An end of the link, in either direction.
    Storage {
        /// Which storage element.
        storage: StorageId,
    },
    /// All agents of this service.
    Agents,
    /// Agents with a gfal process, which the link needs.
    Gfal,
}

impl SlotPlace {
    /// The storage element, if it is a place of one.
    pub fn storage(&self) -> Option<&StorageId> {
        match self {
            SlotPlace::Source { storage }
            | SlotPlace::Destination { storage }
            | SlotPlace::Storage { storage } => Some(storage),
            SlotPlace::Link | SlotPlace::Agents | SlotPlace::Gfal => None,
        }
    }
}

/// Why a place gives no further slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotBound {
    /// As many transfers run as operators allow.
    Limit {
        /// Running there.
        active: Slots,
        limit: Slots,
    },
    /// As many transfers run as the service finds best, which is fewer than operators allow.
    Tuned {
        /// Running there.
        active: Slots,
        /// The number that the service finds best.
        tuned: Slots,
        /// The operators' limit.
        limit: Slots,
    },
    /// The free slots are kept for a link whose turn it is and that waits for a slot at another place as well.
    Kept {
        /// Running there.
        active: Slots,
        /// Kept for such links.
        kept: Slots,
        limit: Slots,
    },
    /// As many bytes per second move as operators allow.
    Rate {
        /// Moving, or expected to move, there.
        rate: Rate,
        /// The limit.
        cap: Rate,
    },
    /// An operator drains the place: running transfers may end, nothing begins.
    Draining,
}

/// Why a transfer waits for a tape system, and for which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "tape")]
pub enum TapeWait {
    /// Its file is on tape, and in a moment will be asked for together with others.
    Gathering {
        /// Which tape system.
        storage: StorageId,
        /// That will be asked for with it, itself among them.
        files: u64,
    },
    /// Its file is on tape, and no more may be asked for at the moment.
    Full {
        /// Which tape system.
        storage: StorageId,
        /// Stage requests for the VO that are open there.
        requests: u64,
        files: u64,
    },
    /// Its file is on tape, and the tape system was asked in vain.
    Failing {
        /// Which tape system.
        storage: StorageId,
        /// When it is asked again.
        until: Timestamp,
        /// Calls in a row that failed.
        failures: u32,
        last: Failure,
    },
    /// The tape system brings its file to disk.
    Recalling {
        /// Which tape system.
        storage: StorageId,
        /// As the tape system names the request.
        request: StageRequestId,
        /// Files in it that are on disk.
        on_disk: u64,
        files: u64,
        since: Timestamp,
        /// When it is looked at again.
        look_at: Timestamp,
    },
    /// It has arrived, and the tape system has not yet put it on tape.
    Archiving {
        /// Which tape system.
        storage: StorageId,
        /// When it arrived.
        since: Timestamp,
        /// When it fails if it is not on tape.
        until: Timestamp,
        /// When it is looked at again.
        look_at: Timestamp,
    },
    /// It is on tape, and its source is to be deleted before it has ended.
    RemovingSource {
        /// Where the source is.
        storage: StorageId,
        /// How often that was tried in vain.
        failures: u32,
    },
}

/// Why a replica or a hop was the next one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum ChoiceReason {
    /// The way leads over it.
    Hop {
        /// From 1.
        number: u32,
    },
    /// The job's strategy puts it first among those that were left.
    Replica {
        /// The strategy.
        by: Selection,
        /// What it compared, in the strategy's unit: files, bytes, bytes per second, seconds, or a fraction.
        /// `None`: nothing is known of the link yet, or the order of the submission decided.
        value: Option<f64>,
        /// How many were left, this one included.
        of: u32,
    },
    /// Its file was found on disk while another replica waited for its tape system.
    OnDisk {
        /// The transfer of the replica that waited.
        instead_of: TransferId,
    },
}
