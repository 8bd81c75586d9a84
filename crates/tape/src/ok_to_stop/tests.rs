use super::*;
use crate::drive_pool::{DownReason, MountPurpose};
use crate::live_set::LibraryPause;
use crate::record::{DriveRecord, Record, TapeState};
use crate::request::{
    ArchiveRequest, ArchiveWishes, Asker, ReadPurpose, RecallRequest, RequestId, VoName,
};

const GB: u64 = 1_000_000_000;

fn drive(name: &str, library: &str) -> Record {
    Record::DriveAdded {
        drive: DriveName(name.into()),
        library: LibraryName(library.into()),
        kind: "LTO-8".to_owned(),
    }
}

fn tape(name: &str, library: &str) -> Record {
    Record::TapeAdded {
        tape: TapeName(name.into()),
        facts: Tape::new(LibraryName(library.into()), "LTO-8".to_owned(), 12_000 * GB),
    }
}

fn asker() -> Asker {
    Asker {
        vo: VoName("atlas".into()),
        priority: 3,
        deadline_ns: None,
        lease_ns: i64::MAX,
    }
}

fn copies(tapes: &[&str]) -> Vec<TapeCopy> {
    let copy = |tape: &&str| TapeCopy {
        tape: TapeName((*tape).into()),
        begin_bytes: 0,
        aggregate: None,
    };
    tapes.iter().map(copy).collect()
}

fn recall(file: u64, tapes: &[&str]) -> Record {
    Record::RecallAsked {
        at_ns: 0,
        request: RecallRequest {
            request: RequestId(file),
            file: FileId(file),
            size_bytes: GB,
            copies: copies(tapes),
            asker: asker(),
            activity: None,
            challenge: None,
            purpose: ReadPurpose::Users,
        },
    }
}

/// Two libraries: two drives and a tape `a` in the first, a drive and a tape `b` in the second.
fn site(more: impl IntoIterator<Item = Record>) -> LiveSet {
    let mut records = vec![
        drive("d0", "one"),
        drive("d1", "one"),
        drive("d2", "two"),
        tape("a", "one"),
        tape("b", "two"),
    ];
    records.extend(more);
    LiveSet::of(&records)
}

fn stop(live: &LiveSet, target: StopTarget) -> StopAnswer {
    ok_to_stop(live, &target, [])
}

fn library(name: &str) -> StopTarget {
    StopTarget::Library(LibraryName(name.into()))
}

fn a_drive(name: &str) -> StopTarget {
    StopTarget::Drive(DriveName(name.into()))
}

fn a_tape(name: &str) -> StopTarget {
    StopTarget::Tape(TapeName(name.into()))
}

fn waits(files: u64, tape: &str) -> StopReason {
    StopReason::RecallsWait {
        files,
        bytes: files * GB,
        tapes: [TapeName(tape.into())].into(),
    }
}

#[test]
fn one_of_two_drives_may_stop_and_the_last_one_may_not() {
    let live = site([recall(1, &["a"])]);
    assert!(stop(&live, a_drive("d0")).is_ok);
    assert!(stop(&live, a_drive("d2")).is_ok);
    let down = Record::Drive(DriveRecord::DriveDown {
        at_ns: 0,
        drive: DriveName("d1".into()),
        why: DownReason::Failed,
        fault: None,
    });
    let live = site([recall(1, &["a"]), down]);
    let answer = stop(&live, a_drive("d0"));
    assert_eq!((answer.is_ok, answer.because), (false, vec![waits(1, "a")]));
}

#[test]
fn a_library_may_stop_when_all_that_is_asked_for_has_a_copy_elsewhere() {
    let live = site([recall(1, &["a", "b"])]);
    assert!(stop(&live, library("one")).is_ok);
    assert!(stop(&live, a_tape("a")).is_ok);
    let live = site([recall(1, &["a", "b"]), recall(2, &["a"]), recall(3, &["b"])]);
    for target in [library("one"), a_tape("a")] {
        assert_eq!(stop(&live, target).because, [waits(1, "a")]);
    }
    // The other copy does not help while its library is paused.
    let paused = Record::LibraryPaused {
        library: LibraryName("two".into()),
        pause: LibraryPause {
            since_ns: 0,
            probe_ns: 60,
            pause_ns: 60,
        },
    };
    let live = site([recall(1, &["a", "b"]), paused]);
    assert_eq!(stop(&live, library("one")).because, [waits(1, "a")]);
}

#[test]
fn files_that_nobody_asks_for_count_when_the_catalogue_names_them() {
    let live = site([]);
    let catalogue = || {
        (0..30).map(|file| CataloguedFile {
            file: FileId(file),
            size_bytes: GB,
            copies: copies(if file < 5 { &["a", "b"] } else { &["a"] }),
        })
    };
    let answer = ok_to_stop(&live, &library("one"), catalogue());
    let first: Vec<FileId> = (5..25).map(FileId).collect();
    let alone = StopReason::NoOtherCopy {
        files: 25,
        bytes: 25 * GB,
        first,
    };
    assert_eq!((answer.is_ok, answer.because), (false, vec![alone]));
    assert!(ok_to_stop(&live, &library("two"), catalogue()).is_ok);
}

#[test]
fn what_is_written_waits_only_when_no_tape_is_left_and_work_is_told() {
    let family = FamilyName("raw".into());
    let archive = |file: u64| Record::ArchiveAsked {
        at_ns: 0,
        request: ArchiveRequest {
            request: RequestId(file),
            file: FileId(file),
            size_bytes: GB,
            family: family.clone(),
            asker: asker(),
            wishes: ArchiveWishes::default(),
        },
    };
    let live = site([archive(1), archive(2)]);
    assert!(stop(&live, library("two")).is_ok);
    let full = Record::TapeChanged {
        tape: TapeName("b".into()),
        state: TapeState::Disabled,
        fault: None,
    };
    let live = site([archive(1), archive(2), full]);
    let waiting = StopReason::ArchivesWait {
        family: family.clone(),
        files: 2,
    };
    assert_eq!(stop(&live, library("one")).because, [waiting]);
    // A drive that writes may stop while others can; that its files are written again is told.
    let drive = DriveName("d0".into());
    let live = site([
        archive(1),
        archive(2),
        Record::Drive(DriveRecord::MountBegun {
            at_ns: 0,
            drive: drive.clone(),
            tape: TapeName("a".into()),
            purpose: MountPurpose::Archive(family),
        }),
        Record::Drive(DriveRecord::MountReady {
            at_ns: 0,
            drive: drive.clone(),
        }),
        Record::Drive(DriveRecord::WriteBegun {
            at_ns: 0,
            drive: drive.clone(),
            file: FileId(1),
        }),
        Record::Drive(DriveRecord::WriteEnded {
            at_ns: 0,
            drive: drive.clone(),
            file: FileId(1),
        }),
    ]);
    let again = StopReason::WorkDoneAgain {
        drive,
        reading: None,
        unsynced_files: 1,
        unsynced_bytes: GB,
    };
    let answer = stop(&live, a_drive("d0"));
    assert_eq!((answer.is_ok, answer.because), (true, vec![again]));
}

#[test]
fn what_is_not_known_may_not_be_stopped() {
    let live = site([]);
    for target in [a_drive("x"), library("x"), a_tape("x")] {
        let answer = stop(&live, target);
        assert_eq!(
            (answer.is_ok, answer.because),
            (false, vec![StopReason::Unknown])
        );
    }
}
