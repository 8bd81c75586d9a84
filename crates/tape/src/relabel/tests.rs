use super::*;
use crate::drive_pool::MountPurpose;
use crate::record::{DriveRecord, Record, Tape};
use crate::request::{
    Asker, FileId, LibraryName, ReadPurpose, RecallRequest, RequestId, TapeCopy, VoName,
};

const GB: u64 = 1_000_000_000;

fn name(name: &str) -> TapeName {
    TapeName(name.into())
}

fn tape(of: &str, written_bytes: u64, state: TapeState) -> Record {
    Record::TapeAdded {
        tape: name(of),
        facts: Tape {
            library: LibraryName("l".into()),
            kind: "LTO-8".to_owned(),
            family: None,
            capacity_bytes: 12_000 * GB,
            written_bytes,
            state,
            fault: None,
            wrap_ends_bytes: None,
            ended_bytes: None,
            synced_bytes: 0,
        },
    }
}

fn ask(
    live: &LiveSet,
    of: &str,
    live_files: u64,
    order: RelabelOrder,
) -> Result<(), RelabelRefusal> {
    let found = TapeUse {
        live_files,
        live_bytes: live_files * GB,
    };
    may_relabel(live, &name(of), found, (10 * DAY_NS, order, 2))
}

#[test]
fn a_tape_with_anything_that_counts_is_not_relabeled_whoever_orders_it() {
    let records = [
        tape("empty", 9 * GB, TapeState::ReadOnly),
        tape("active", 9 * GB, TapeState::Active),
        tape("broken", 9 * GB, TapeState::Broken),
        tape("asked", 9 * GB, TapeState::ReadOnly),
        tape("mounted", 9 * GB, TapeState::ReadOnly),
        Record::DriveAdded {
            drive: DriveName("d".into()),
            library: LibraryName("l".into()),
            kind: "LTO-8".to_owned(),
        },
        Record::Drive(DriveRecord::MountBegun {
            at_ns: 0,
            drive: DriveName("d".into()),
            tape: name("mounted"),
            purpose: MountPurpose::Recall,
        }),
        Record::RecallAsked {
            at_ns: 0,
            request: RecallRequest {
                request: RequestId(1),
                file: FileId(1),
                size_bytes: GB,
                copies: vec![TapeCopy::alone(name("asked"), 0)],
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
        },
    ];
    let live = LiveSet::of(&records);
    for order in [RelabelOrder::Operator, RelabelOrder::Automatic] {
        let ask = |of: &str, files| ask(&live, of, files, order);
        assert_eq!(ask("empty", 0), Ok(()));
        let (files, bytes) = (1, GB);
        let living = RelabelRefusal::LiveFiles { files, bytes };
        assert_eq!(ask("empty", 1), Err(living.clone()));
        let state = TapeState::Active;
        assert_eq!(ask("active", 0), Err(RelabelRefusal::InUse { state }));
        let state = TapeState::Broken;
        assert_eq!(ask("broken", 0), Err(RelabelRefusal::InUse { state }));
        assert_eq!(ask("broken", 1), Err(living));
        let drive = DriveName("d".into());
        assert_eq!(ask("mounted", 0), Err(RelabelRefusal::InDrive { drive }));
        assert_eq!(
            ask("asked", 0),
            Err(RelabelRefusal::RecallsOpen { files: 1 })
        );
        assert_eq!(ask("none", 0), Err(RelabelRefusal::Unknown));
    }
}

#[test]
fn only_an_operator_has_more_tapes_relabeled_in_a_day_than_may_be() {
    let begun = |of: &str, at_ns| Record::RelabelBegun {
        at_ns,
        tape: name(of),
    };
    let now_ns = 10 * DAY_NS;
    let mut records = vec![
        tape("a", 9 * GB, TapeState::ReadOnly),
        tape("b", 9 * GB, TapeState::ReadOnly),
        tape("c", 9 * GB, TapeState::ReadOnly),
        begun("a", now_ns - DAY_NS + 5),
    ];
    let ask = |records: &[Record], order| ask(&LiveSet::of(records), "c", 0, order);
    assert_eq!(ask(&records, RelabelOrder::Automatic), Ok(()));
    records.push(begun("b", now_ns - 3));
    let full = RelabelRefusal::DayIsFull {
        max: 2,
        free_ns: now_ns + 5,
    };
    assert_eq!(ask(&records, RelabelOrder::Automatic), Err(full));
    assert_eq!(ask(&records, RelabelOrder::Operator), Ok(()));
    // One that is being given up is not given up once more, and is written anew when that is done.
    records.push(begun("c", now_ns));
    let state = TapeState::ReadOnly;
    let again = ask(&records, RelabelOrder::Operator);
    assert_eq!(again, Err(RelabelRefusal::InUse { state }));
    records.push(Record::RelabelEnded { tape: name("c") });
    let live = LiveSet::of(&records);
    let facts = &live.tapes[&name("c")];
    assert_eq!((facts.written_bytes, facts.state), (0, TapeState::Active));
    assert!(live.is_writable(&name("c")) && !live.is_readable(&name("a")));
}

#[test]
fn the_emptiest_of_closed_tapes_are_repacked_first() {
    let records = [
        tape("open", 6_000 * GB, TapeState::Active),
        tape("full", 11_990 * GB, TapeState::Active),
        tape("holes", 11_990 * GB, TapeState::Active),
        tape("read-only", 100 * GB, TapeState::ReadOnly),
        tape("unwritten", 0, TapeState::ReadOnly),
        tape("broken", 11_990 * GB, TapeState::Broken),
    ];
    let live = LiveSet::of(&records);
    let found = |of: &str, gb: u64| {
        let live_bytes = gb * GB;
        let live_files = gb;
        (
            name(of),
            TapeUse {
                live_files,
                live_bytes,
            },
        )
    };
    let uses = [
        found("open", 0),
        found("full", 11_000),
        found("holes", 3_000),
        found("read-only", 10),
        found("unwritten", 0),
        found("broken", 1),
        found("none", 1),
    ];
    let chosen = choose_repacks(&live, uses, 400);
    assert_eq!(chosen, [name("read-only"), name("holes")]);
}
