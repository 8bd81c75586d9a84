use super::*;
use crate::drive::DriveModel;
use crate::locate::SECOND_NS;
use crate::record::{Record, Tape};
use crate::request::{
    ArchiveRequest, ArchiveWishes, Asker, FamilyName, ReadPurpose, RecallRequest, RequestId,
    TapeCopy,
};

const GB: u64 = 1_000_000_000;

fn drive() -> DriveName {
    DriveName("d".into())
}

fn asker(vo: &str) -> Asker {
    Asker {
        vo: VoName(vo.into()),
        priority: 3,
        deadline_ns: None,
        lease_ns: i64::MAX,
    }
}

fn recall(file: u64, vo: &str) -> Record {
    Record::RecallAsked {
        at_ns: 0,
        request: RecallRequest {
            request: RequestId(file),
            file: FileId(file),
            size_bytes: GB * file,
            copies: vec![TapeCopy::alone(TapeName("t".into()), 0)],
            asker: asker(vo),
            activity: Some(ActivityName("challenge".into())),
            challenge: Some(ChallengeName("dc27".into())),
            purpose: ReadPurpose::Users,
        },
    }
}

fn archive(file: u64, vo: &str) -> Record {
    Record::ArchiveAsked {
        at_ns: 0,
        request: ArchiveRequest {
            request: RequestId(file),
            file: FileId(file),
            size_bytes: GB * file,
            family: FamilyName("raw".into()),
            asker: asker(vo),
            wishes: ArchiveWishes::default(),
        },
    }
}

fn site() -> Vec<Record> {
    let library = LibraryName("l".into());
    let kind = "LTO-8".to_owned();
    let facts = Tape::new(
        library.clone(),
        kind.clone(),
        DriveModel::LTO_8.capacity_bytes,
    );
    let tape = TapeName("t".into());
    vec![
        Record::DriveAdded {
            drive: drive(),
            library,
            kind,
        },
        Record::TapeAdded { tape, facts },
    ]
}

fn seconds(seconds: i64) -> i64 {
    seconds * SECOND_NS
}

fn mount(at: i64, purpose: MountPurpose) -> [Record; 2] {
    [
        Record::Drive(DriveRecord::MountBegun {
            at_ns: seconds(at),
            drive: drive(),
            tape: TapeName("t".into()),
            purpose,
        }),
        Record::Drive(DriveRecord::MountReady {
            at_ns: seconds(at + 50),
            drive: drive(),
        }),
    ]
}

fn read(file: u64, begin: i64, end: i64, located: i64) -> [Record; 2] {
    [
        Record::Drive(DriveRecord::ReadBegun {
            over_bytes: 0,
            is_compared: false,
            at_ns: seconds(begin),
            drive: drive(),
            file: FileId(file),
        }),
        Record::Drive(DriveRecord::ReadEnded {
            at_ns: seconds(end),
            drive: drive(),
            file: FileId(file),
            located_ns: Some(seconds(located)),
        }),
    ]
}

fn dismount(begin: i64, end: i64) -> [Record; 2] {
    [
        Record::Drive(DriveRecord::DismountBegun {
            at_ns: seconds(begin),
            drive: drive(),
        }),
        Record::Drive(DriveRecord::DriveFreed {
            at_ns: seconds(end),
            drive: drive(),
        }),
    ]
}

#[test]
fn phases_of_a_mount_are_all_of_its_time_and_users_share_it() {
    let mut records = site();
    records.extend([recall(1, "atlas"), recall(3, "cms")]);
    records.extend(mount(100, MountPurpose::Recall));
    records.extend(read(1, 150, 180, 20));
    // It tells of more than the time that was.
    records.extend(read(3, 190, 220, 99));
    records.extend(dismount(300, 380));
    let live = LiveSet::of(&records);
    let account = live.mounts.closed().next().expect("closed");
    let phases = MountPhase::ALL.map(|phase| account.phase_ns(phase) / SECOND_NS);
    assert_eq!(phases, [50, 50, 10, 0, 0, 90, 0, 80]);
    assert_eq!(phases.iter().sum::<i64>(), 280);
    assert_eq!(account.wall_ns(), seconds(280));
    assert_eq!(account.payload_bytes(), 4 * GB);
    assert_eq!(account.amplification(), Some(1.0));
    let times = account.time_by_user();
    let of = |vo: &str| {
        let user = DriveUser {
            vo: Some(VoName(vo.into())),
            activity: Some(ActivityName("challenge".into())),
            challenge: Some(ChallengeName("dc27".into())),
        };
        times[&user]
    };
    // Both were worked on for as long.
    assert_eq!((of("atlas"), of("cms")), (seconds(140), seconds(140)));
    let all: i64 = live
        .mounts
        .times()
        .0
        .values()
        .map(|time| time.occupied_ns)
        .sum();
    assert_eq!(all, seconds(280));
}

#[test]
fn what_is_written_again_counts_as_moved_and_not_as_payload() {
    let mut records = site();
    records.push(archive(2, "cms"));
    records.extend(mount(0, MountPurpose::Archive(FamilyName("raw".into()))));
    let write = |begin: i64, end: i64| {
        [
            Record::Drive(DriveRecord::WriteBegun {
                at_ns: seconds(begin),
                drive: drive(),
                file: FileId(2),
            }),
            Record::Drive(DriveRecord::WriteEnded {
                at_ns: seconds(end),
                drive: drive(),
                file: FileId(2),
            }),
        ]
    };
    records.extend(write(50, 60));
    records.push(Record::Drive(DriveRecord::SyncBegun {
        at_ns: seconds(60),
        drive: drive(),
    }));
    records.push(Record::Drive(DriveRecord::WorkReturned {
        at_ns: seconds(63),
        drive: drive(),
    }));
    records.extend(write(70, 80));
    records.push(Record::Drive(DriveRecord::SyncBegun {
        at_ns: seconds(80),
        drive: drive(),
    }));
    records.push(Record::Drive(DriveRecord::SyncEnded {
        at_ns: seconds(83),
        drive: drive(),
    }));
    records.extend(dismount(83, 100));
    let live = LiveSet::of(&records);
    let account = live.mounts.closed().next().expect("closed");
    assert_eq!(
        (account.payload_bytes(), account.moved_bytes),
        (2 * GB, 4 * GB)
    );
    assert_eq!(account.amplification(), Some(2.0));
    assert_eq!(account.phase_ns(MountPhase::Lost), seconds(3));
    assert_eq!(account.phases_ns.values().sum::<i64>(), account.wall_ns());
    assert!((account.drive_rate() - 0.2 * GB as f64).abs() < 1.0);
    assert!((account.payload_rate() - 0.02 * GB as f64).abs() < 1.0);
}

#[test]
fn the_agreed_metrics_count_the_last_day() {
    let mut records = site();
    let day = 24 * 3_600;
    for (number, at) in [0, 1_000, day, day + 1_000].into_iter().enumerate() {
        let file = number as u64 + 1;
        records.push(recall(file, "atlas"));
        records.extend(mount(at, MountPurpose::Recall));
        records.extend(read(file, at + 60, at + 100, 10));
        records.extend(dismount(at + 100, at + 200));
    }
    let live = LiveSet::of(&records);
    let atlas = VoName("atlas".into());
    let usage = VoTapeUsage {
        used_bytes: 5_000 * GB + 499_999_999,
        occupied_bytes: 5_999 * GB + 500_000_000,
    };
    let usage = BTreeMap::from([(atlas.clone(), usage)]);
    let now_ns = seconds(day + 1_200);
    let metrics = tape_metrics(&live.mounts, &usage, now_ns)[&atlas];
    let expected = TapeMetrics {
        usedsize: 5_000 * GB,
        occupiedsize: 6_000 * GB,
        readbytes24h: 7 * GB,
        writebytes24h: 0,
        avgtaperemounts: 2.0,
        totalmounts24h: 2,
        uniquemounts24h: 1,
    };
    assert_eq!(metrics, expected);
    // The third mount had two of the same tape in the day before it, the fourth one of them and the third.
    let before: Vec<u64> = live.mounts.closed().map(|one| one.mounts_before).collect();
    assert_eq!(before, [0, 1, 2, 2]);
}

#[test]
fn drive_time_since_a_moment_is_exact_while_mounts_are_kept_and_by_whole_days_after_that() {
    let mut records = site();
    let day = 24 * 3_600;
    let mut mounted = |number: u64, at: i64| {
        records.push(recall(1, "atlas"));
        records.extend(mount(at, MountPurpose::Recall));
        records.extend(read(1, at + 60, at + 100, 10));
        records.extend(dismount(at + 100, at + 200));
        (number, LiveSet::of(&records))
    };
    let (_, few) = mounted(0, 10);
    mounted(1, 5_000);
    let occupied = |live: &LiveSet, since: i64| {
        let since = live.mounts.times_since(seconds(since));
        let mounts: u64 = since.sums.0.values().map(|time| time.mounts).sum();
        (since.from_ns / SECOND_NS, mounts)
    };
    assert_eq!(occupied(&few, 100), (100, 1));
    assert_eq!(occupied(&few, 211), (211, 0));
    let mut last = few;
    for number in 2..2 + CLOSED_MIN as u64 {
        last = mounted(number, 2 * day + number as i64 * 1_000).1;
    }
    // The first two are no longer kept one by one.
    assert_eq!(last.mounts.closed().count(), CLOSED_MIN);
    assert_eq!(occupied(&last, 300), (0, 2 + CLOSED_MIN as u64));
    assert_eq!(occupied(&last, day), (day, CLOSED_MIN as u64));
    assert_eq!(occupied(&last, 2 * day + 3_000).1, CLOSED_MIN as u64 - 1);
}

#[test]
fn a_drive_that_fails_closes_its_mount_and_clocks_that_go_back_take_nothing_away() {
    let mut records = site();
    records.push(recall(1, "atlas"));
    records.extend(mount(100, MountPurpose::Recall));
    let [begun, _] = read(1, 40, 0, 0);
    records.push(begun);
    for record in [
        Record::Drive(DriveRecord::WorkReturned {
            at_ns: seconds(200),
            drive: drive(),
        }),
        Record::Drive(DriveRecord::DriveDown {
            at_ns: seconds(200),
            drive: drive(),
            why: crate::drive_pool::DownReason::Failed,
            fault: None,
        }),
    ] {
        records.push(record);
    }
    let live = LiveSet::of(&records);
    let account = live.mounts.closed().next().expect("closed");
    assert_eq!(account.phase_ns(MountPhase::Lost), seconds(50));
    assert_eq!(account.phases_ns.values().sum::<i64>(), seconds(100));
    assert_eq!(account.amplification(), None);
    assert_eq!(
        account.time_by_user(),
        BTreeMap::from([(DriveUser::default(), seconds(100))])
    );
}
