//! The process ends at any instant: what a sync covers is there.

use crate::site::*;
use penstock_tape::drive_pool::MountPurpose;
use penstock_tape::request::{DriveName, FamilyName, FileId, TapeErrorScope, TapeName};
use penstock_tape::request_engine::{DriveReport, Effect};
use penstock_tape_library::{EmulatedLibrary, LibraryTime};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const VIRTUAL: LibraryTime = LibraryTime::Virtual { origin_ns: 0 };
/// Names the directory to the process that is to be killed.
const CHILD: &str = "PENSTOCK_TAPE_LIBRARY_CHILD";
const FILE_BYTES: usize = 300_000;

#[test]
fn the_engine_and_the_library_end_between_write_and_sync_and_nothing_is_lost() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = Site::new(directory.path(), definition(2, 3), VIRTUAL, policy());
    site.archive((1..=50).map(|file| (file, 10_000)), "raw");
    let mut rounds = 0;
    // Each time after a few more files; records are all that is left.
    while !site.engine.live().requests.is_empty() {
        for _ in 0..13 + rounds {
            if !site.engine.live().requests.is_empty() {
                site.step();
            }
        }
        let (records, now_ns) = (site.records.clone(), site.library.now_ns());
        drop(site);
        let time = LibraryTime::Virtual { origin_ns: now_ns };
        site = Site::restored(directory.path(), definition(2, 3), time, policy(), records);
        rounds += 1;
        assert!(rounds < 200);
    }
    println!("{rounds} restarts");
    assert!(rounds > 3);
    let copies = site.copies();
    assert_eq!(copies.len(), 50);
    site.recall((1..=50).map(|file| (file, 10_000)));
    site.run();
    for file in 1..=50 {
        site.check_recalled(file, 10_000);
    }
}

fn wait(library: &EmulatedLibrary, is_it: impl Fn(&DriveReport) -> bool) -> DriveReport {
    loop {
        let message = library.next_report(i64::MAX).expect("a report");
        if is_it(&message.report) {
            return message.report;
        }
    }
}

fn mount(library: &EmulatedLibrary, drive: &DriveName, tape: &TapeName) {
    let purpose = MountPurpose::Archive(FamilyName("raw".into()));
    let (drive, tape) = (drive.clone(), tape.clone());
    let effect = Effect::Mount {
        drive,
        tape,
        purpose,
    };
    library.perform(&effect).expect("ordered");
}

fn write(library: &EmulatedLibrary, file: u64) {
    let effect = Effect::Write {
        drive: drive_name(0),
        file: FileId(file),
        begin_bytes: file * FILE_BYTES as u64,
        size_bytes: FILE_BYTES as u64,
    };
    library.perform(&effect).expect("ordered");
}

fn sync(library: &EmulatedLibrary) {
    let drive = drive_name(0);
    library.perform(&Effect::Sync { drive }).expect("ordered");
}

/// What the process that is killed does: it writes, syncs, and says what is safe.
fn write_until_killed(directory: &Path, first: u64) {
    let library = open_library(directory, definition(1, 1), VIRTUAL);
    mount(&library, &drive_name(0), &tape_name(0));
    wait(&library, |report| *report == DriveReport::Mounted);
    for file in first.. {
        let path = directory.join(format!("disk/{file}"));
        std::fs::write(path, content(file, FILE_BYTES)).expect("written");
        write(&library, file);
        wait(&library, |report| {
            *report == DriveReport::FileWritten(FileId(file))
        });
        if file % 3 == 0 {
            sync(&library);
            wait(&library, |report| *report == DriveReport::Synced);
            println!("safe {file}");
        }
    }
}

#[test]
fn a_process_to_be_killed() {
    // Without the variable this is a test like others, which has nothing to do.
    if let Some(given) = std::env::var_os(CHILD) {
        let given = given.to_string_lossy().into_owned();
        let (first, directory) = given.split_once(':').expect("first file, directory");
        write_until_killed(Path::new(directory), first.parse().expect("a number"));
    }
}

#[test]
fn a_kill_at_any_instant_leaves_all_that_a_sync_covers() {
    let directory = tempfile::tempdir().expect("made");
    let (mut safe, mut first) = (Vec::new(), 0);
    for round in 0..8 {
        let program = std::env::current_exe().expect("this test");
        let mut child = Command::new(program)
            .args(["--exact", "crash::a_process_to_be_killed", "--nocapture"])
            .env(CHILD, format!("{first}:{}", directory.path().display()))
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut lines = output.lines().map(|line| line.expect("read"));
        let is_safe = |line: &String| line.contains("safe ");
        // A few are safe, then an instant of no meaning.
        let seen: Vec<String> = lines.by_ref().filter(is_safe).take(2).collect();
        std::thread::sleep(Duration::from_millis(3 + 7 * round));
        child.kill().expect("killed");
        let rest = lines.filter(is_safe);
        for line in seen.into_iter().chain(rest) {
            let last = line
                .split("safe ")
                .nth(1)
                .and_then(|last| last.trim().parse::<u64>().ok());
            let last = last.expect("a number");
            safe.extend(first..=last);
            first = last + 1;
        }
        child.wait().expect("ended");
        // A hole for what was lost, so that no address is used twice.
        first += 30;
        let library = open_library(directory.path(), definition(1, 1), VIRTUAL);
        // The cartridge is still in the drive, and the drive knows that it has lost something, or has lost nothing.
        for file in &safe {
            let effect = Effect::Read {
                drive: drive_name(0),
                file: FileId(*file),
                begin_bytes: file * FILE_BYTES as u64,
                size_bytes: FILE_BYTES as u64,
            };
            library.perform(&effect).expect("ordered");
            let report = wait(&library, |report| {
                matches!(report, DriveReport::FileRead(_) | DriveReport::Failed(_))
            });
            assert_eq!(
                report,
                DriveReport::FileRead(FileId(*file)),
                "round {round}"
            );
            let recalled = directory.path().join(format!("recalled/{file}"));
            assert!(std::fs::read(recalled).expect("read") == content(*file, FILE_BYTES));
        }
        library.mend_drive(&drive_name(0)).expect("emptied");
    }
    assert!(safe.len() >= 8 * 4, "{}", safe.len());
}

#[test]
fn a_drive_that_has_lost_something_says_so_before_it_syncs() {
    let directory = tempfile::tempdir().expect("made");
    std::fs::create_dir_all(directory.path().join("disk")).expect("made");
    std::fs::write(directory.path().join("disk/1"), content(1, FILE_BYTES)).expect("written");
    let library = open_library(directory.path(), definition(1, 1), VIRTUAL);
    mount(&library, &drive_name(0), &tape_name(0));
    wait(&library, |report| *report == DriveReport::Mounted);
    write(&library, 1);
    wait(&library, |report| {
        *report == DriveReport::FileWritten(FileId(1))
    });
    drop(library);
    let library = open_library(directory.path(), definition(1, 1), VIRTUAL);
    sync(&library);
    let failed = wait(&library, |_| true);
    assert_eq!(failed, DriveReport::Failed(TapeErrorScope::Drive));
}

#[test]
fn an_aborted_drive_says_nothing_more() {
    let directory = tempfile::tempdir().expect("made");
    let library = open_library(directory.path(), definition(1, 1), VIRTUAL);
    mount(&library, &drive_name(0), &tape_name(0));
    let drive = drive_name(0);
    library.perform(&Effect::Abort { drive }).expect("ordered");
    assert_eq!(library.next_report(i64::MAX), None);
    library.close();
    assert_eq!(library.next_report(i64::MAX), None);
}
