//! What the queue of an HSM persists before it acts. All that it knows is made of these, in their order.

use super::entry::{HsmEntry, HsmOutage, HsmRun};
use super::work::{
    HsmCommandId, HsmFault, HsmGet, HsmKind, HsmOutcome, HsmPut, HsmRemove, HsmStop, HsmTarget,
};
use crate::request::{FamilyName, RequestId};
use crate::stored_kind::StoredKind;
use serde::de::{EnumAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// One thing that has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum HsmRecord {
    /// Of a command. Stored as if its kinds were kinds of this.
    #[serde(skip)]
    Command(HsmCommandRecord),
    /// Of an outage. Stored in the same way.
    #[serde(skip)]
    Outage(HsmOutageRecord),
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
    /// In place of all records before it, with the ones that follow: the number of the next command.
    Numbered {
        next_command: HsmCommandId,
    },
    EntryKept {
        entry: HsmEntry,
    },
}

/// One thing that has happened to a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmCommandRecord {
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
    RunKept {
        command: HsmCommandId,
        run: HsmRun,
    },
    LostKept {
        command: HsmCommandId,
        since_ns: i64,
    },
}

/// One thing that concerns the HSM as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmOutageRecord {
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
    OutageKept {
        outage: HsmOutage,
    },
}

impl From<HsmCommandRecord> for HsmRecord {
    fn from(record: HsmCommandRecord) -> HsmRecord {
        HsmRecord::Command(record)
    }
}

impl From<HsmOutageRecord> for HsmRecord {
    fn from(record: HsmOutageRecord) -> HsmRecord {
        HsmRecord::Outage(record)
    }
}

impl Serialize for HsmRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let HsmRecord::Command(record) = self {
            return record.serialize(serializer);
        }
        if let HsmRecord::Outage(record) = self {
            return record.serialize(serializer);
        }
        HsmRecord::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for HsmRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HsmRecord, D::Error> {
        deserializer.deserialize_enum("HsmRecord", &[], RecordVisitor)
    }
}

struct RecordVisitor;

impl<'de> Visitor<'de> for RecordVisitor {
    type Value = HsmRecord;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a record of the queue of an HSM")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<HsmRecord, A::Error> {
        let stored = StoredKind::of(access)?;
        if let Some(read) = stored.read(HsmCommandRecord::deserialize) {
            return read.map(HsmRecord::Command);
        }
        if let Some(read) = stored.read(HsmOutageRecord::deserialize) {
            return read.map(HsmRecord::Outage);
        }
        let read = stored.read(HsmRecord::deserialize);
        read.unwrap_or_else(|| Err(stored.unknown()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As versions before `HsmCommandRecord` and `HsmOutageRecord` wrote them: of commands, of outages, others.
    const WRITTEN: [&[&str]; 3] = [
        &[
            r#"{"CommandBegun":{"at_ns":1,"command":2,"target":{"Put":7},"is_canary":false}}"#,
            r#"{"StopOrdered":{"at_ns":1,"command":2,"why":"TooLong"}}"#,
            r#"{"CommandEnded":{"command":2}}"#,
            r#"{"CommandLost":{"at_ns":1,"command":2}}"#,
            r#"{"LostCommandGone":{"command":2}}"#,
            r#"{"RunKept":{"command":2,"run":{"target":{"Get":7},"vo":"atlas","begun_ns":3,"is_canary":true,"stop":null}}}"#,
            r#"{"LostKept":{"command":2,"since_ns":3}}"#,
        ],
        &[
            r#"{"Paused":{"at_ns":1,"kind":"put","probe_ns":2,"pause_ns":3,"fault":{"source":"program","code":60,"text":"full"}}}"#,
            r#"{"CanaryFailed":{"kind":"get","target":{"Get":7},"probe_ns":2,"pause_ns":3}}"#,
            r#"{"Resumed":{"kind":"remove","files":1,"bytes":2}}"#,
            r#"{"OutageKept":{"outage":{"since_ns":1,"fault":{"source":"program","code":null,"text":"full"},"pauses":{},"files":0,"bytes":0}}}"#,
        ],
        &[
            r#"{"RequestEnded":{"request":7}}"#,
            r#"{"Done":{"target":{"Put":7}}}"#,
            r#"{"Numbered":{"next_command":9}}"#,
        ],
    ];

    #[test]
    fn records_are_stored_as_they_always_were_whichever_enum_has_their_kind() {
        for (place, lines) in WRITTEN.iter().enumerate() {
            for line in *lines {
                let read: HsmRecord = serde_json::from_str(line).expect(line);
                let expected = match read {
                    HsmRecord::Command(_) => 0,
                    HsmRecord::Outage(_) => 1,
                    _ => 2,
                };
                assert_eq!(place, expected, "{line}");
                assert_eq!(serde_json::to_string(&read).expect("plain data"), *line);
            }
        }
        let why = serde_json::from_str::<HsmRecord>(r#"{"Sold":{}}"#).expect_err("unknown");
        assert!(why.to_string().contains("Sold is no record"), "{why}");
    }
}
