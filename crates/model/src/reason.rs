//! Why a transfer waits. Typed, with the numbers that mattered; `decide::wording` makes the sentence.

use crate::failure::Failure;
use crate::ids::{Activity, StorageId, TransferId, VoName};
use crate::job::Selection;
use crate::units::{Slots, Timestamp};
use serde::{Deserialize, Serialize};

/// Why a transfer has not been started. Every waiting transfer has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum WaitReason {
    /// The link runs as many transfers as it may.
    LinkFull {
        /// Running on the link.
        active: Slots,
        /// Its limit.
        limit: Slots,
    },
    /// The source gives as many files at once as it may, over all its links.
    SourceFull {
        /// Which storage element.
        storage: StorageId,
        /// Running out of it.
        active: Slots,
        /// Its limit.
        limit: Slots,
    },
    /// The destination takes as many files at once as it may, over all its links.
    DestinationFull {
        /// Which storage element.
        storage: StorageId,
        /// Running into it.
        active: Slots,
        /// Its limit.
        limit: Slots,
    },
    /// The agents of this service run as many transfers as they may.
    AgentsFull {
        /// Running in all.
        active: Slots,
        /// The limit.
        limit: Slots,
    },
    /// As many transfers as may have a gfal process. Its link needs one.
    GfalFull {
        /// Running with such a process.
        active: Slots,
        /// The limit.
        limit: Slots,
    },
    /// The latest transfers on the link all failed in one way; it is tried with one transfer now and then.
    LinkHalted {
        /// When the next one is tried.
        until: Timestamp,
        /// Failures of one kind in a row.
        failures: u32,
        /// The last of them.
        last: Failure,
    },
    /// The last attempt failed; the next one may not start yet.
    BackingOff {
        /// When it may start.
        until: Timestamp,
        /// Failures so far.
        failures: u32,
        /// The last of them.
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
        /// Since when.
        since: Timestamp,
        /// When it is canceled if the ban still holds; `None`: it waits on.
        cancel_at: Option<Timestamp>,
        /// What the operators say of it.
        message: String,
    },
    /// The issuer of a token of it is being asked for what the token is renewed with.
    TokenExchange {
        /// Since when.
        since: Timestamp,
    },
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
    /// A slot is free and this transfer will be started in the current pass.
    Starting,
    /// The service drains before it stops; it continues after the restart.
    Draining,
    /// An operator drained the service; it continues when that is taken back.
    Drained,
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
}
