//! Why a transfer waits. Typed, with the numbers that mattered; `decide::wording` makes the sentence.

use crate::failure::Failure;
use crate::ids::{Activity, StorageId, TransferId, VoName};
use crate::job::Selection;
use crate::tape::StageRequestId;
use crate::units::{Rate, Slots, Timestamp};
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
    /// What is free is kept for a link whose turn it is and that waits for a slot of another kind as well.
    SlotKept {
        /// At which storage element; `None`: an agent of this service.
        storage: Option<StorageId>,
        /// Running there.
        active: Slots,
        /// Kept for links that wait for another slot.
        kept: Slots,
        /// The limit.
        limit: Slots,
    },
    /// The link runs as many transfers as the service finds best for it, which is fewer than operators allow.
    LinkTuned {
        /// Running on the link.
        active: Slots,
        /// What the service finds best.
        tuned: Slots,
        /// What operators allow.
        limit: Slots,
    },
    /// The source gives as many files at once as the service finds best, over all its links.
    SourceTuned {
        /// Which storage element.
        storage: StorageId,
        /// Running out of it.
        active: Slots,
        /// What the service finds best.
        tuned: Slots,
        /// What operators allow.
        limit: Slots,
    },
    /// The destination takes as many files at once as the service finds best, over all its links.
    DestinationTuned {
        /// Which storage element.
        storage: StorageId,
        /// Running into it.
        active: Slots,
        /// What the service finds best.
        tuned: Slots,
        /// What operators allow.
        limit: Slots,
    },
    /// What runs there moves as many bytes per second as operators allow.
    RateCapped {
        /// Where.
        place: RatedPlace,
        /// What runs there moves, or will as far as that is known.
        rate: Rate,
        /// What is allowed.
        cap: Rate,
    },
    /// An operator drains the link: what runs may end, nothing begins.
    LinkDraining,
    /// An operator drains a storage element: what runs may end, nothing begins.
    StorageDraining {
        /// Which.
        storage: StorageId,
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
    /// It waits for a tape system.
    Tape(TapeWait),
    /// A slot is free and this transfer will be started in the current pass.
    Starting,
    /// The service drains before it stops; it continues after the restart.
    Draining,
    /// An operator drained the service; it continues when that is taken back.
    Drained,
}

/// Where bytes per second are counted and limited.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub enum RatedPlace {
    /// On the link.
    Link,
    /// Out of its source, over all links.
    Source {
        /// Which storage element.
        storage: StorageId,
    },
    /// Into its destination, over all links.
    Destination {
        /// Which storage element.
        storage: StorageId,
    },
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
        /// Files in them.
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
        /// The last of them.
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
        /// All files in it.
        files: u64,
        /// When it was asked.
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
