//! What goes wrong, and what it concerns.

use crate::site::*;
use penstock_tape::drive_fault::MountFault;
use penstock_tape::drive_pool::DriveState;
use penstock_tape::request::{RequestOutcome, TapeErrorScope};
use penstock_tape::request_engine::{DriveReport, Input, TapeIncident};
use penstock_tape_library::{InjectedFault, LibraryError, LibraryTime};

const VIRTUAL: LibraryTime = LibraryTime::Virtual { origin_ns: 0 };

fn site(directory: &tempfile::TempDir, drives: usize, tapes: usize) -> Site {
    Site::new(
        directory.path(),
        definition(drives, tapes),
        VIRTUAL,
        policy(),
    )
}

fn failed(scope: TapeErrorScope) -> impl Fn(&DriveReport) -> bool {
    move |report| *report == DriveReport::Failed(scope)
}

#[test]
fn a_media_error_concerns_one_file() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = site(&directory, 1, 1);
    site.archive((1..=10).map(|file| (file, 100_000)), "raw");
    site.run();
    let copy = site.copies()[&penstock_tape::request::FileId(4)].clone();
    let unreadable = TapeIncident::FilesUnreadable(copy.tape.clone());
    let fault = InjectedFault::MediaError {
        tape: copy.tape,
        begin_bytes: copy.begin_bytes + 5,
        end_bytes: copy.begin_bytes + 6,
    };
    site.library.inject(fault).expect("taken");
    site.recall((1..=10).map(|file| (file, 100_000)));
    site.run();
    assert_eq!(site.outcomes(is_recalled), 9);
    let lost = RequestOutcome::NoCopyLeft(TapeErrorScope::File);
    assert_eq!(site.outcomes(|outcome| *outcome == lost), 1);
    assert_eq!(site.incidents, [unreadable]);
    site.check_recalled(5, 100_000);
}

#[test]
fn damaged_bytes_of_a_cartridge_are_never_handed_on() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = site(&directory, 1, 1);
    site.archive([(1, 50_000), (2, 50_000)], "raw");
    site.run();
    let records = site.records.clone();
    drop(site);
    let path = directory.path().join("library/cartridges/A00000.tape");
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[10_000] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let mut site = Site::restored(
        directory.path(),
        definition(1, 1),
        VIRTUAL,
        policy(),
        records,
    );
    site.recall([(1, 50_000), (2, 50_000)]);
    site.run();
    assert_eq!(site.outcomes(is_recalled), 1);
    site.check_recalled(2, 50_000);
}

#[test]
fn a_drive_that_fails_loses_what_it_has_not_synced_and_the_files_are_written_again() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = site(&directory, 2, 3);
    site.archive((1..=30).map(|file| (file, 1_000_000)), "raw");
    // Twenty are safe, and some of the rest are written.
    site.run_to(|report| *report == DriveReport::Synced);
    for _ in 0..4 {
        site.run_to(|report| matches!(report, DriveReport::FileWritten(_)));
    }
    assert_eq!(site.outcomes(is_archived), 20);
    let drives = &site.engine.live().drives.0;
    let mut mounted = drives.iter();
    let (drive, _) = mounted
        .find(|(_, drive)| matches!(drive.state, DriveState::Mounted(_)))
        .expect("one writes");
    let drive = drive.clone();
    let fault = InjectedFault::DriveFailure {
        drive: drive.clone(),
    };
    site.library.inject(fault).expect("taken");
    site.run();
    assert_eq!(site.outcomes(is_archived), 30);
    assert!(
        site.incidents
            .contains(&TapeIncident::DriveDown(drive.clone()))
    );
    site.library.mend_drive(&drive).expect("mended");
    site.give(Input::DriveUp(drive.clone()));
    site.recall((1..=30).map(|file| (file, 1_000_000)));
    site.run();
    for file in 1..=30 {
        site.check_recalled(file, 1_000_000);
    }
}

#[test]
fn a_hung_mount_is_ended_and_its_tape_is_free_when_somebody_has_taken_it_out() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = site(&directory, 1, 1);
    let (drive, fault) = (drive_name(0), MountFault::Hung);
    site.library
        .inject(InjectedFault::Mount { drive, fault })
        .expect("taken");
    site.archive([(1, 1_000)], "raw");
    while site.incidents.is_empty() {
        site.step();
    }
    assert_eq!(site.incidents, [TapeIncident::DriveDown(drive_name(0))]);
    assert!(site.library.now_ns() >= 600_000_000_000);
    site.library.mend_drive(&drive_name(0)).expect("mended");
    site.give(Input::DriveUp(drive_name(0)));
    site.run();
    assert_eq!(site.outcomes(is_archived), 1);
}

#[test]
fn a_tape_that_is_not_recognised_is_broken_and_another_is_written() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = site(&directory, 1, 2);
    let (drive, fault) = (drive_name(0), MountFault::TapeUnreadable);
    site.library
        .inject(InjectedFault::Mount { drive, fault })
        .expect("taken");
    site.archive([(1, 1_000)], "raw");
    site.run();
    assert_eq!(site.outcomes(is_archived), 1);
    assert!(matches!(
        site.incidents.as_slice(),
        [TapeIncident::TapeBroken(_)]
    ));
    // The same of a cartridge with another label.
    let label = directory.path().join("library/cartridges/A00000.tape");
    let other = directory.path().join("library/cartridges/A00001.tape");
    assert_ne!(
        std::fs::read(label).expect("read"),
        std::fs::read(other).expect("read")
    );
}

#[test]
fn a_robot_that_does_not_move_is_one_incident_and_nothing_fails() {
    for fault in [InjectedFault::RobotStuck, InjectedFault::RobotAway] {
        let directory = tempfile::tempdir().expect("made");
        let mut site = site(&directory, 2, 4);
        site.library.inject(fault.clone()).expect("taken");
        site.archive([(1, 1_000)], "raw");
        site.archive([(2, 1_000)], "sim");
        site.run_to(failed(TapeErrorScope::Library));
        site.run_to(failed(TapeErrorScope::Library));
        // After the pauses it is tried again, in vain.
        site.run_to(failed(TapeErrorScope::Library));
        assert_eq!(site.incidents.len(), 1, "{fault:?}");
        assert_eq!(site.told.len(), 0);
        site.library.mend_library().expect("mended");
        site.run();
        assert_eq!(site.outcomes(is_archived), 2, "{fault:?}");
    }
}

#[test]
fn a_directory_that_is_away_is_one_incident_and_breaks_no_tape() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = site(&directory, 2, 4);
    site.archive([(1, 1_000)], "raw");
    site.archive([(2, 1_000)], "sim");
    site.run();
    for _ in 0..2 {
        site.run_to(|report| *report == DriveReport::Dismounted);
    }
    // As when its disk is no longer mounted: an empty directory is there.
    let (library, away) = (
        directory.path().join("library"),
        directory.path().join("away"),
    );
    std::fs::rename(&library, &away).expect("renamed");
    std::fs::create_dir(&library).expect("made");
    site.recall([(1, 1_000), (2, 1_000)]);
    site.archive([(3, 1_000)], "raw");
    for _ in 0..4 {
        site.run_to(failed(TapeErrorScope::Library));
    }
    let paused = TapeIncident::LibraryPaused(site.library.definition().name.clone());
    assert_eq!(site.incidents, [paused]);
    assert_eq!(site.outcomes(|_| true), 2, "what was archived before");
    std::fs::remove_dir_all(&library).expect("removed");
    std::fs::rename(&away, &library).expect("renamed");
    site.run();
    assert_eq!(site.outcomes(is_recalled), 2);
    assert_eq!(site.outcomes(is_archived), 3);
    assert!(site.engine.live().libraries.is_empty());
    assert_eq!(site.incidents.len(), 1);
    site.check_recalled(1, 1_000);
    site.check_recalled(2, 1_000);
}

#[test]
fn a_full_disk_takes_no_drive_and_no_tape_out_of_use_and_files_are_read() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = site(&directory, 2, 4);
    site.archive([(1, 1_000)], "raw");
    site.run();
    site.library
        .inject(InjectedFault::LibraryFull)
        .expect("taken");
    site.archive([(2, 1_000)], "raw");
    site.archive([(3, 1_000)], "sim");
    site.run_to(|report| *report == DriveReport::LibraryFull);
    site.recall([(1, 1_000)]);
    site.run_to(|report| matches!(report, DriveReport::FileRead(_)));
    site.check_recalled(1, 1_000);
    // After the pauses it is tried again, in vain.
    for _ in 0..3 {
        site.run_to(|report| *report == DriveReport::LibraryFull);
    }
    let full = TapeIncident::LibraryFull(site.library.definition().name.clone());
    assert_eq!(site.incidents, [full]);
    assert_eq!(site.outcomes(is_archived), 1);
    site.library.mend_library().expect("mended");
    site.run();
    assert_eq!(site.outcomes(is_archived), 3);
    assert!(site.engine.live().full_libraries.is_empty());
    let tapes = site.engine.live().tapes.values();
    assert!(tapes.clone().all(|tape| tape.ended_bytes.is_none()));
}

#[test]
fn a_dismount_waits_for_the_robot() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = site(&directory, 1, 2);
    site.archive([(1, 1_000)], "raw");
    site.run();
    site.library
        .inject(InjectedFault::RobotAway)
        .expect("taken");
    // Nobody needs the tape: it is dismounted after a while, which does not end.
    let is_on_its_way = |site: &Site| {
        let drive = &site.engine.live().drives.0[&drive_name(0)];
        matches!(drive.state, DriveState::Dismounting { .. })
    };
    while !is_on_its_way(&site) {
        site.step();
    }
    site.library.mend_library().expect("mended");
    site.archive([(2, 1_000)], "sim");
    site.run();
    assert_eq!(site.outcomes(is_archived), 2);
}

#[test]
fn a_tape_is_relabeled_in_its_slot_only() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = site(&directory, 1, 1);
    site.archive([(1, 1_000)], "raw");
    site.run();
    let in_drive = site.library.relabel(&tape_name(0));
    assert!(matches!(in_drive, Err(LibraryError::InDrive { .. })));
    site.run_to(|report| *report == DriveReport::Dismounted);
    site.library.relabel(&tape_name(0)).expect("relabeled");
    let unknown = site.library.relabel(&tape_name(9));
    assert!(matches!(unknown, Err(LibraryError::UnknownTape { .. })));
    // What was there is gone.
    site.recall([(1, 1_000)]);
    site.run();
    assert_eq!(site.outcomes(is_recalled), 0);
}

#[test]
fn disks_that_fail_are_no_error_of_a_tape() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = site(&directory, 1, 1);
    site.archive([(1, 1_000), (2, 1_000)], "raw");
    // Before it is written, somebody removes a file: that one has an end.
    std::fs::remove_file(directory.path().join("disk/2")).expect("removed");
    site.run();
    assert_eq!(site.outcomes(is_archived), 1);
    let refused = |outcome: &RequestOutcome| *outcome == RequestOutcome::NotTaken;
    assert_eq!(site.outcomes(refused), 1);
    // A full disk: whoever asked is told, and may ask again.
    let recalled = directory.path().join("recalled");
    std::fs::remove_dir(&recalled).expect("removed");
    site.recall([(1, 1_000)]);
    site.run();
    assert_eq!(site.outcomes(refused), 2);
    assert_eq!(site.incidents.len(), 0);
    std::fs::create_dir(&recalled).expect("made");
    site.recall([(1, 1_000)]);
    site.run();
    assert_eq!(site.outcomes(is_recalled), 1);
    site.check_recalled(1, 1_000);
}
