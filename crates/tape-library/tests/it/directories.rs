//! Something else lies where the library was, or it cannot be opened now: nothing is told as safe, and no tape is blamed for it.

use crate::site::*;
use penstock_tape::record::TapeState;
use penstock_tape::request::{FileId, TapeErrorScope};
use penstock_tape::request_engine::{DriveReport, TapeIncident};
use penstock_tape_library::{EmulatedLibrary, KnownLibrary, LibraryError, LibraryTime};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const VIRTUAL: LibraryTime = LibraryTime::Virtual { origin_ns: 0 };
const PAUSED: DriveReport = DriveReport::Failed(TapeErrorScope::Library);
/// Tells the process that is to run out of descriptors which directory it has.
const CHILD: &str = "PENSTOCK_TAPE_LIBRARY_SHORT";

/// Two tapes with a file each, which are in their slots.
fn begin(directory: &Path) -> Site {
    let mut site = Site::new(directory, definition(2, 4), VIRTUAL, policy());
    site.archive([(1, 1_000)], "raw");
    site.archive([(2, 1_000)], "sim");
    site.run();
    for _ in 0..2 {
        site.run_to(|report| *report == DriveReport::Dismounted);
    }
    site
}

fn library(directory: &Path) -> PathBuf {
    directory.join("library")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("made");
    for entry in fs::read_dir(from).expect("listed") {
        let entry = entry.expect("read");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("known").is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("copied")),
        }
    }
}

fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("listed") {
        let path = entry.expect("read").path();
        match path.is_dir() {
            true => found.append(&mut contents(&path)),
            false => drop(found.insert(path.clone(), fs::read(path).expect("read"))),
        }
    }
    found
}

/// A library with the same tapes. They are blank.
fn other_library(directory: &Path, owner: &str) {
    let known = KnownLibrary {
        owner: owner.to_owned(),
        ..KnownLibrary::default()
    };
    let definition = (definition(2, 4), &known);
    let disk = directory.to_owned();
    let nowhere = move |_, _| disk.join("nowhere");
    EmulatedLibrary::open(directory, definition, VIRTUAL, nowhere).expect("opened");
}

fn is_any_broken(site: &Site) -> bool {
    let mut tapes = site.engine.live().tapes.values();
    tapes.any(|tape| tape.state == TapeState::Broken)
}

/// What is read and written meanwhile waits, and nothing is changed there.
fn check_that_it_waits(mut site: Site, other: &Path) {
    let home = site.directory.clone();
    let away = home.join("away");
    let what = other.file_name().expect("a name").display();
    fs::rename(library(&home), &away).expect("renamed");
    fs::rename(other, library(&home)).expect("renamed");
    let before = contents(&library(&home));
    let told = site.told.clone();
    site.recall([(1, 1_000), (2, 1_000)]);
    site.archive([(3, 1_000)], "raw");
    site.archive([(4, 1_000)], "new");
    for _ in 0..4 {
        site.run_to(|report| {
            let is_done = matches!(report, DriveReport::Mounted | DriveReport::Synced);
            assert!(!is_done, "{what}: {report:?}");
            *report == PAUSED
        });
    }
    let paused = TapeIncident::LibraryPaused(site.library.definition().name.clone());
    assert_eq!(site.incidents, [paused], "{what}");
    assert_eq!(site.told, told, "{what}: no request has an end");
    assert!(!is_any_broken(&site), "{what}");
    let relabeled = site.library.relabel(&tape_name(3));
    assert!(
        matches!(relabeled, Err(LibraryError::Identity(_))),
        "{what}: {relabeled:?}"
    );
    assert!(contents(&library(&home)) == before, "{what}");
    fs::rename(library(&home), other).expect("renamed");
    fs::rename(&away, library(&home)).expect("renamed");
    site.run();
    assert_eq!(site.outcomes(is_recalled), 2, "{what}");
    assert_eq!(site.copies().len(), 4, "{what}");
    assert_eq!(site.incidents.len(), 1, "{what}");
    site.recall([(3, 1_000), (4, 1_000)]);
    site.run();
    for file in 1..=4 {
        site.check_recalled(file, 1_000);
    }
}

#[test]
fn nothing_is_done_in_the_directory_of_another_library() {
    for owner in ["", "another storage element"] {
        let directory = tempfile::tempdir().expect("made");
        let site = begin(directory.path());
        let other = directory.path().join(format!("of '{owner}'"));
        other_library(&other, owner);
        check_that_it_waits(site, &other);
    }
}

#[test]
fn nothing_is_done_in_an_older_copy_of_a_library() {
    let directory = tempfile::tempdir().expect("made");
    let site = begin(directory.path());
    let records = site.records.clone();
    drop(site);
    // As when it is moved to a new disk, which is then mounted over what was there.
    let older = directory.path().join("older");
    copy(&library(directory.path()), &older);
    let site = Site::restored(
        directory.path(),
        definition(2, 4),
        VIRTUAL,
        policy(),
        records,
    );
    check_that_it_waits(site, &older);
}

#[test]
fn half_a_library_is_away() {
    for has_directory in [false, true] {
        let directory = tempfile::tempdir().expect("made");
        let site = begin(directory.path());
        let half = directory.path().join(format!("half {has_directory}"));
        copy(&library(directory.path()), &half);
        fs::remove_dir_all(half.join("cartridges")).expect("removed");
        if has_directory {
            fs::create_dir(half.join("cartridges")).expect("made");
        }
        check_that_it_waits(site, &half);
    }
}

#[test]
fn a_library_without_its_cartridges_is_not_opened() {
    let directory = tempfile::tempdir().expect("made");
    drop(begin(directory.path()));
    let cartridges = library(directory.path()).join("cartridges");
    fs::remove_dir_all(&cartridges).expect("removed");
    let definition = (definition(2, 4), &KnownLibrary::default());
    let nowhere = |_, _| PathBuf::from("nowhere");
    let refused = EmulatedLibrary::open(&library(directory.path()), definition, VIRTUAL, nowhere);
    let refused = refused.err().expect("refused").to_string();
    assert!(refused.contains("none of its cartridges"), "{refused}");
    assert!(!cartridges.exists(), "nothing was made");
}

#[test]
fn nothing_is_safe_when_the_directory_was_changed_before_the_sync() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = Site::new(directory.path(), definition(1, 2), VIRTUAL, policy());
    site.archive((1..=3).map(|file| (file, 1_000)), "raw");
    site.run_to(|report| matches!(report, DriveReport::FileWritten(_)));
    let (home, away) = (library(directory.path()), directory.path().join("away"));
    fs::rename(&home, &away).expect("renamed");
    other_library(&home, "");
    site.run_to(|report| *report == PAUSED);
    // It leaves its drive, and is tried in vain.
    site.run_to(|report| *report == PAUSED);
    assert_eq!(site.told.len(), 0);
    assert!(!is_any_broken(&site));
    fs::remove_dir_all(&home).expect("removed");
    fs::rename(&away, &home).expect("renamed");
    site.run();
    assert_eq!(site.outcomes(is_archived), 3);
    site.recall((1..=3).map(|file| (file, 1_000)));
    site.run();
    for file in 1..=3 {
        site.check_recalled(file, 1_000);
    }
}

#[test]
fn a_cartridge_that_cannot_be_opened_now_is_not_broken_and_one_that_is_gone_is() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = begin(directory.path());
    let copies = site.copies();
    let tape = &copies[&FileId(1)].tape;
    let cartridges = library(directory.path()).join("cartridges");
    let cartridge = cartridges.join(format!("{}.tape", tape.0));
    let aside = directory.path().join("aside");
    fs::rename(&cartridge, &aside).expect("renamed");
    // It can be opened by nobody, whatever he may do.
    symlink(&cartridge, &cartridge).expect("made");
    site.recall([(1, 1_000)]);
    for _ in 0..3 {
        site.run_to(|report| *report == PAUSED);
    }
    assert!(!is_any_broken(&site));
    fs::rename(&aside, &cartridge).expect("renamed");
    site.run();
    site.check_recalled(1, 1_000);
    site.run_to(|report| *report == DriveReport::Dismounted);
    fs::remove_file(&cartridge).expect("removed");
    site.recall([(1, 1_000)]);
    site.run();
    assert!(is_any_broken(&site));
}

#[test]
fn a_process_that_runs_out_of_descriptors() {
    // Without the variable this is a test like others, which has nothing to do.
    let Some(directory) = std::env::var_os(CHILD) else {
        return;
    };
    let mut site = begin(Path::new(&directory));
    let mut open = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        open.push(file);
    }
    site.recall([(1, 1_000), (2, 1_000)]);
    for _ in 0..3 {
        site.run_to(|report| *report == PAUSED);
    }
    // One is left, and is taken for what is looked at first.
    open.pop();
    for _ in 0..3 {
        site.run_to(|report| *report == PAUSED);
    }
    assert!(!is_any_broken(&site));
    drop(open);
    site.run();
    assert_eq!(site.outcomes(is_recalled), 2);
    println!("all is well");
}

#[test]
fn a_lack_of_descriptors_breaks_no_tape() {
    let directory = tempfile::tempdir().expect("made");
    let program = std::env::current_exe().expect("this test");
    let child = Command::new("sh")
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
        .arg(program)
        .args([
            "--exact",
            "directories::a_process_that_runs_out_of_descriptors",
        ])
        .arg("--nocapture")
        .env(CHILD, directory.path())
        .output()
        .expect("started");
    let told = String::from_utf8_lossy(&child.stdout);
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(told.contains("all is well"), "{told}{errors}");
}
