//! What the queue of an HSM persists before it acts. All that it knows is made of these, in their order.

use super::entry::{HsmEntry, HsmOutage, HsmRun};
use super::work::{
    HsmCommandId, HsmFault, HsmGet, HsmKind, HsmOutcome, HsmPut, HsmRemove, HsmStop, HsmTarget,
};
use crate::request::{FamilyName, RequestId};
use serde::{Deserialize, Serialize};

/// One thing that has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmRecord {
    PutAsked {
        at_ns: i64,
        put: HsmPut,
    },
    GetAsked {
        at_ns: i64,
        get: HsmGet,
    },
    RemoveAsked {
        at_ns: i64,
        remove: HsmRemove,
    },
    LeaseRenewed {
        request: RequestId,
        lease_ns: i64,
    },
    /// How a request ends is certain. It has not been told, or that is not known.
    RequestSettled {
        request: RequestId,
        outcome: HsmOutcome,
    },
    /// It has been told.
    RequestEnded {
        request: RequestId,
    },
    /// The files of a family that have waited for more of it go.
    BatchReleased {
        at_ns: i64,
        family: FamilyName,
    },
    CommandBegun {
        at_ns: i64,
        command: HsmCommandId,
        target: HsmTarget,
        /// It tries whether the HSM works again.
        is_canary: bool,
    },
    StopOrdered {
        at_ns: i64,
        command: HsmCommandId,
        why: HsmStop,
    },
    /// Its slot is free. What becomes of its target follows.
    CommandEnded {
        command: HsmCommandId,
    },
    /// It did not end when it was stopped. Its slot is free.
    CommandLost {
        at_ns: i64,
        command: HsmCommandId,
    },
    /// A lost command has ended, or cannot be known any more.
    LostCommandGone {
        command: HsmCommandId,
    },
    /// To be run as soon as there is a slot, with so many tries behind it.
    Requeued {
        target: HsmTarget,
        tries: u32,
    },
    /// To be run again then.
    Delayed {
        target: HsmTarget,
        until_ns: i64,
        tries: u32,
        fault: HsmFault,
    },
    /// Nothing more is to be done for it. Those who asked have been settled before.
    Done {
        target: HsmTarget,
    },
    /// No command of this kind is started but a canary, at `probe_ns` or later.
    Paused {
        at_ns: i64,
        kind: HsmKind,
        probe_ns: i64,
        pause_ns: i64,
        fault: HsmFault,
    },
    CanaryFailed {
        kind: HsmKind,
        target: HsmTarget,
        probe_ns: i64,
        pause_ns: i64,
    },
    /// Commands of this kind are started again. So many files had waited for it.
    Resumed {
        kind: HsmKind,
        files: u64,
        bytes: u64,
    },
    /// In place of all records before it, with the ones that follow: the number of the next command.
    Numbered {
        next_command: HsmCommandId,
    },
    EntryKept {
        entry: HsmEntry,
    },
    RunKept {
        command: HsmCommandId,
        run: HsmRun,
    },
    LostKept {
        command: HsmCommandId,
        since_ns: i64,
    },
    OutageKept {
        outage: HsmOutage,
    },
}
