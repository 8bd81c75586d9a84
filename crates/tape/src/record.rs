//! What the request engine persists before it acts. All that it knows is made of these, in their order.

use crate::data_set::{DataSetName, HintVerdict};
use crate::drive_pool::{DownReason, DriveActivity, DriveClass, DriveFault, MountPurpose};
use crate::live_set::{LibraryPause, LiveSet};
use crate::request::{
    ArchiveRequest, DriveName, FamilyName, FileId, LibraryId, LibraryName, RecallRequest,
    RequestId, RequestOutcome, TapeErrorScope, TapeName,
};
use crate::stored_kind::StoredKind;
use crate::tape_care::{CareStep, UnreadableCopy};
use serde::de::{EnumAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A tape as its library knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tape {
    pub library: LibraryName,
    /// The kind of drives that take it.
    pub kind: String,
    /// Whose files are written to it; none yet on a new tape.
    pub family: Option<FamilyName>,
    /// As its label says.
    pub capacity_bytes: u64,
    /// Where it ended sooner. `None`: it has not.
    #[serde(default)]
    pub ended_bytes: Option<u64>,
    /// How much of it is written.
    pub written_bytes: u64,
    /// How much of that is safe, as far as is known.
    #[serde(default)]
    pub synced_bytes: u64,
    pub state: TapeState,
    /// Why it is broken; older records do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<TapeFault>,
    /// Where its wraps end, if that was read from it.
    pub wrap_ends_bytes: Option<Vec<u64>>,
}

impl Tape {
    /// One that nobody knows anything of but what its label says.
    pub fn new(library: LibraryName, kind: String, capacity_bytes: u64) -> Tape {
        Tape {
            library,
            kind,
            family: None,
            capacity_bytes,
            ended_bytes: None,
            written_bytes: 0,
            synced_bytes: 0,
            state: TapeState::Active,
            fault: None,
            wrap_ends_bytes: None,
        }
    }

    /// What it holds when it is full.
    pub fn holds_bytes(&self) -> u64 {
        let ended = self.ended_bytes.unwrap_or(u64::MAX);
        ended.min(self.capacity_bytes)
    }

    /// What can still be written.
    pub fn free_bytes(&self) -> u64 {
        self.holds_bytes().saturating_sub(self.written_bytes)
    }

    /// Which drives take it.
    pub fn class(&self) -> DriveClass {
        DriveClass {
            library: self.library.clone(),
            kind: self.kind.clone(),
        }
    }
}

/// Whether a tape is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TapeState {
    Active,
    /// Read, and not written to: its files move to others, or shall.
    ReadOnly,
    /// By an operator; its files wait.
    Disabled,
    /// By an error that concerned all of it.
    Broken,
}

/// What was found of a tape that is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeFault {
    /// In which drive.
    pub drive: DriveName,
    pub finding: TapeFinding,
}

/// What showed that a tape is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TapeFinding {
    /// An error that the drive reported as one of the tape. While it mounts, the label cannot be read.
    Error(DriveActivity),
    /// Data ends before what was safe.
    DataLost { end_bytes: u64, synced_bytes: u64 },
}

/// One thing that has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub enum Record {
    /// Something was begun or ended in a drive. Stored as if its kinds were kinds of this.
    #[serde(skip)]
    Drive(DriveRecord),
    /// All that the records before it made up: they are no longer needed.
    Snapshot(Box<LiveSet>),
    /// A library was opened, and this is the one whose tapes are meant.
    LibraryKnown {
        library: LibraryName,
        id: LibraryId,
    },
    DriveAdded {
        drive: DriveName,
        library: LibraryName,
        kind: String,
    },
    TapeAdded {
        tape: TapeName,
        facts: Tape,
    },
    TapeChanged {
        tape: TapeName,
        state: TapeState,
        /// Why it is broken.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<TapeFault>,
    },
    /// A tape is no longer configured.
    TapeRetired {
        tape: TapeName,
    },
    /// It is configured again.
    TapeReturned {
        tape: TapeName,
    },
    /// A drive has told where the wraps of a tape end.
    TapeMeasured {
        tape: TapeName,
        wrap_ends_bytes: Vec<u64>,
    },
    /// A drive has told where data ends on a tape: what is written there next goes behind it.
    TapeFound {
        tape: TapeName,
        end_bytes: u64,
    },
    /// The label of a tape says something else than it did.
    TapeCapacity {
        tape: TapeName,
        capacity_bytes: u64,
    },
    RecallAsked {
        at_ns: i64,
        request: RecallRequest,
    },
    ArchiveAsked {
        at_ns: i64,
        request: ArchiveRequest,
    },
    /// A file that waits to be written is wanted in another way than it was, such as with another number of copies.
    ArchiveChanged {
        at_ns: i64,
        request: ArchiveRequest,
    },
    LeaseRenewed {
        request: RequestId,
        lease_ns: i64,
    },
    /// How a request ends is certain. It has not been told, or that is not known.
    RequestSettled {
        request: RequestId,
        outcome: RequestOutcome,
    },
    /// It has been told.
    RequestEnded {
        request: RequestId,
        /// In records of before, which settled it by this, and took it as told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<RequestOutcome>,
    },
    /// A copy cannot be read; the next one takes its place.
    CopyFailed {
        file: FileId,
        tape: TapeName,
        scope: TapeErrorScope,
    },
    /// Another copy of a file can be read sooner than the one that was to be.
    CopyPreferred {
        file: FileId,
        tape: TapeName,
    },
    /// All files of a data set that came are done, and no more are waited for.
    DataSetClosed {
        family: FamilyName,
        data_set: DataSetName,
        verdict: HintVerdict,
    },
    /// Nothing that counts is on the tape: all of it is given up, and it is used when that is done.
    RelabelBegun {
        at_ns: i64,
        tape: TapeName,
    },
    RelabelEnded {
        tape: TapeName,
    },
    /// What is done for a tape that nobody waits for has come a step further.
    Care {
        at_ns: i64,
        tape: TapeName,
        step: CareStep,
    },
    /// A copy cannot be read, whoever has found it.
    CopyUnreadable {
        file: FileId,
        copy: UnreadableCopy,
    },
    /// A copy that could not be read was read, has another place, or is needed no more.
    CopyMended {
        file: FileId,
        /// `None` in records of versions that knew one such copy of each file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        copy: Option<UnreadableCopy>,
    },
    /// All files have been compared with what classes want of them, as these words tell it, and have it.
    ClassesCompared {
        classes: String,
    },
    /// Background work rests until then.
    BackgroundHeld {
        until_ns: i64,
    },
    /// Copies on a tape that cannot be read any more count for no file that is still to be written: they are written again elsewhere.
    CopiesGivenUp {
        tape: TapeName,
    },
    /// A tape has ended before its capacity: nothing more is written to it.
    TapeFilled {
        tape: TapeName,
    },
    /// No tape is mounted in this library before `probe_ns`, and then one to see whether it works again.
    LibraryPaused {
        library: LibraryName,
        #[serde(flatten)]
        pause: LibraryPause,
    },
    LibraryResumed {
        library: LibraryName,
    },
    /// A library takes no data before `probe_ns`; what lies there is read.
    WritingPaused {
        library: LibraryName,
        #[serde(flatten)]
        pause: LibraryPause,
    },
    WritingResumed {
        library: LibraryName,
    },
}

/// One thing that was begun or ended in a drive, or has become of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriveRecord {
    MountBegun {
        at_ns: i64,
        drive: DriveName,
        tape: TapeName,
        purpose: MountPurpose,
    },
    MountReady {
        at_ns: i64,
        drive: DriveName,
    },
    ReadBegun {
        /// What lies before the file and is read over, since that is sooner than a locate.
        #[serde(default)]
        over_bytes: u64,
        /// What is being read goes to disk, or is only compared.
        #[serde(default)]
        is_compared: bool,
        /// 0 in records of earlier versions, as of all that begins in a drive.
        #[serde(default)]
        at_ns: i64,
        drive: DriveName,
        file: FileId,
    },
    /// The file is on disk. Those who asked for it have ended before.
    ReadEnded {
        at_ns: i64,
        drive: DriveName,
        file: FileId,
        /// How long the drive located before it, if it told.
        #[serde(default)]
        located_ns: Option<i64>,
    },
    WriteBegun {
        #[serde(default)]
        at_ns: i64,
        drive: DriveName,
        file: FileId,
    },
    /// The file is in the drive, and not safe yet.
    WriteEnded {
        at_ns: i64,
        drive: DriveName,
        file: FileId,
    },
    /// Small files are written as one object. Until that is safe each is as if it were queued.
    AggregateBegun {
        at_ns: i64,
        drive: DriveName,
        members: Vec<FileId>,
    },
    /// The aggregate is in the drive, and not safe yet.
    AggregateEnded {
        at_ns: i64,
        drive: DriveName,
    },
    SyncBegun {
        #[serde(default)]
        at_ns: i64,
        drive: DriveName,
    },
    /// All that was written is safe. Those who asked for it have ended before.
    SyncEnded {
        at_ns: i64,
        drive: DriveName,
    },
    /// What was begun in a drive and is not safe is to be done again.
    WorkReturned {
        at_ns: i64,
        drive: DriveName,
    },
    /// The disk cannot take or give the file of a drive now. What the drive has written before stays.
    WorkGivenUp {
        at_ns: i64,
        drive: DriveName,
    },
    DismountBegun {
        at_ns: i64,
        drive: DriveName,
    },
    DriveFreed {
        #[serde(default)]
        at_ns: i64,
        drive: DriveName,
    },
    DriveDown {
        #[serde(default)]
        at_ns: i64,
        drive: DriveName,
        #[serde(default)]
        why: DownReason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<DriveFault>,
    },
    /// A drive is no longer configured.
    DriveRemoved {
        at_ns: i64,
        drive: DriveName,
    },
}

impl From<DriveRecord> for Record {
    fn from(record: DriveRecord) -> Record {
        Record::Drive(record)
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Record::Drive(record) = self {
            return record.serialize(serializer);
        }
        Record::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Record, D::Error> {
        deserializer.deserialize_enum("Record", &[], RecordVisitor)
    }
}

struct RecordVisitor;

impl<'de> Visitor<'de> for RecordVisitor {
    type Value = Record;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a record of the request engine")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Record, A::Error> {
        let stored = StoredKind::of(access)?;
        if let Some(read) = stored.read(DriveRecord::deserialize) {
            return read.map(Record::Drive);
        }
        let read = stored.read(Record::deserialize);
        read.unwrap_or_else(|| Err(stored.unknown()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Asker, ReadPurpose, TapeCopy, VoName};

    /// One of each kind that concerns a drive, as versions before `DriveRecord` wrote them.
    const OF_DRIVES: [&str; 16] = [
        r#"{"MountBegun":{"at_ns":1,"drive":"d","tape":"t","purpose":{"Archive":"raw"}}}"#,
        r#"{"MountReady":{"at_ns":2,"drive":"d"}}"#,
        r#"{"ReadBegun":{"over_bytes":3,"is_compared":true,"at_ns":3,"drive":"d","file":7}}"#,
        r#"{"ReadEnded":{"at_ns":4,"drive":"d","file":7,"located_ns":5}}"#,
        r#"{"WriteBegun":{"at_ns":5,"drive":"d","file":7}}"#,
        r#"{"WriteEnded":{"at_ns":6,"drive":"d","file":7}}"#,
        r#"{"AggregateBegun":{"at_ns":7,"drive":"d","members":[7,8]}}"#,
        r#"{"AggregateEnded":{"at_ns":8,"drive":"d"}}"#,
        r#"{"SyncBegun":{"at_ns":9,"drive":"d"}}"#,
        r#"{"SyncEnded":{"at_ns":10,"drive":"d"}}"#,
        r#"{"WorkReturned":{"at_ns":11,"drive":"d"}}"#,
        r#"{"WorkGivenUp":{"at_ns":12,"drive":"d"}}"#,
        r#"{"DismountBegun":{"at_ns":13,"drive":"d"}}"#,
        r#"{"DriveFreed":{"at_ns":14,"drive":"d"}}"#,
        r#"{"DriveDown":{"at_ns":15,"drive":"d","why":"Operator"}}"#,
        r#"{"DriveRemoved":{"at_ns":16,"drive":"d"}}"#,
    ];
    /// Others.
    const OF_OTHERS: [&str; 6] = [
        r#"{"LibraryPaused":{"library":"l","since_ns":1,"probe_ns":2,"pause_ns":3}}"#,
        r#"{"TapeFilled":{"tape":"t"}}"#,
        r#"{"RequestSettled":{"request":7,"outcome":"Recalled"}}"#,
        r#"{"RequestEnded":{"request":7}}"#,
        r#"{"RequestEnded":{"request":7,"outcome":"Recalled"}}"#,
        r#"{"BackgroundHeld":{"until_ns":4}}"#,
    ];

    #[test]
    fn records_are_stored_as_they_always_were_whichever_enum_has_their_kind() {
        for line in OF_DRIVES.into_iter().chain(OF_OTHERS) {
            let read: Record = serde_json::from_str(line).expect(line);
            let is_of_drive = matches!(read, Record::Drive(_));
            assert_eq!(is_of_drive, OF_DRIVES.contains(&line), "{line}");
            assert_eq!(serde_json::to_string(&read).expect("plain data"), line);
        }
        // What the first versions did not tell.
        let line = r#"{"WriteBegun":{"drive":"d","file":7}}"#;
        let begun = DriveRecord::WriteBegun {
            at_ns: 0,
            drive: DriveName("d".into()),
            file: FileId(7),
        };
        let read: Record = serde_json::from_str(line).expect("a record");
        assert_eq!(read, Record::Drive(begun));
    }

    #[test]
    fn a_snapshot_is_read_whose_maps_have_numbers_as_keys() {
        let asked = Record::RecallAsked {
            at_ns: 1,
            request: RecallRequest {
                request: RequestId(1),
                file: FileId(7),
                size_bytes: 10,
                copies: vec![TapeCopy {
                    tape: TapeName("t".into()),
                    begin_bytes: 0,
                    aggregate: None,
                }],
                asker: Asker {
                    vo: VoName("atlas".into()),
                    priority: 3,
                    deadline_ns: None,
                    lease_ns: i64::MAX,
                },
                activity: None,
                challenge: None,
                purpose: ReadPurpose::Users,
            },
        };
        let live = LiveSet::of([&asked]);
        assert!(live.recalls.contains_key(&FileId(7)));
        let snapshot = Record::Snapshot(Box::new(live));
        let line = serde_json::to_string(&snapshot).expect("plain data");
        let read: Record = serde_json::from_str(&line).expect("a record");
        assert_eq!(read, snapshot);
    }

    #[test]
    fn unreadable_copies_are_read_as_versions_stored_them_that_knew_one_of_each_file() {
        let of = |line: &str| serde_json::from_str::<Record>(line).expect(line);
        let snapshot = of(r#"{"Snapshot":{"unreadable":{"7":{"tape":"t","begin_bytes":5}}}}"#);
        let further = of(r#"{"CopyUnreadable":{"file":7,"copy":{"tape":"u","begin_bytes":9}}}"#);
        let known = |records: &[&Record]| {
            let live = LiveSet::of(records.iter().copied());
            let tapes = live
                .unreadable
                .copies()
                .map(|(_, copy)| copy.tape.0.to_string());
            tapes.collect::<Vec<_>>()
        };
        assert_eq!(known(&[&snapshot]), ["t"]);
        assert_eq!(known(&[&snapshot, &further]), ["t", "u"]);
        let all = LiveSet::of([&snapshot, &further]);
        let line = serde_json::to_string(&Record::Snapshot(Box::new(all))).expect("plain data");
        assert_eq!(known(&[&of(&line)]), ["t", "u"]);
        let mended = of(r#"{"CopyMended":{"file":7,"copy":{"tape":"t","begin_bytes":5}}}"#);
        assert_eq!(known(&[&snapshot, &further, &mended]), ["u"]);
        // The one that such a version knew.
        let mended = of(r#"{"CopyMended":{"file":7}}"#);
        assert!(known(&[&snapshot, &further, &mended]).is_empty());
    }

    #[test]
    fn a_record_that_nobody_knows_is_an_error_that_names_it() {
        let line = r#"{"DriveSold":{"drive":"d"}}"#;
        let why = serde_json::from_str::<Record>(line).expect_err("unknown");
        assert!(why.to_string().contains("DriveSold is no record"), "{why}");
        let line = r#"{"MountReady":{"at_ns":2}}"#;
        let why = serde_json::from_str::<Record>(line).expect_err("too little");
        assert!(why.to_string().contains("missing field `drive`"), "{why}");
    }
}
