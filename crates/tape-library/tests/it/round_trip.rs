//! Files to tape and back.

use crate::site::*;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::record::Record;
use penstock_tape::request_engine::DriveReport;
use penstock_tape_library::LibraryTime;
use std::collections::BTreeSet;
use std::time::Instant;

const VIRTUAL: LibraryTime = LibraryTime::Virtual { origin_ns: 0 };

fn sizes(files: u64) -> Vec<(u64, usize)> {
    let size = |file: u64| match file % 50 {
        0 => 0,
        1 => 3_000_000,
        _ => 1 + (file as usize * 7_919) % 60_000,
    };
    (1..=files).map(|file| (file, size(file))).collect()
}

#[test]
fn a_thousand_files_go_to_tape_and_come_back_byte_by_byte() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = Site::new(directory.path(), definition(3, 6), VIRTUAL, policy());
    let files = sizes(1_000);
    for (number, part) in files.chunks(250).enumerate() {
        site.archive(part.to_vec(), ["raw", "sim"][number % 2]);
    }
    site.run();
    assert_eq!(site.outcomes(is_archived), 1_000);
    let mounts = site.mounts;
    // From another process's view: the library is opened anew.
    let (records, definition) = (site.records.clone(), definition(3, 6));
    drop(site);
    let time = LibraryTime::Virtual {
        origin_ns: 100 * HOUR_NS,
    };
    let mut site = Site::restored(directory.path(), definition, time, policy(), records);
    let (some, others): (Vec<_>, Vec<_>) =
        files.iter().copied().partition(|(file, _)| file % 3 == 0);
    site.recall(some);
    site.run();
    site.recall(others);
    site.run();
    assert_eq!(site.outcomes(is_recalled), 1_000);
    for (file, size) in files {
        site.check_recalled(file, size);
    }
    let tapes: BTreeSet<_> = site.copies().into_values().map(|copy| copy.tape).collect();
    println!(
        "{mounts} mounts to write, {} to read {} tapes; {:.1} h",
        site.mounts,
        tapes.len(),
        site.library.now_ns() as f64 / HOUR_NS as f64 - 100.0
    );
    assert!(site.mounts <= 2 * tapes.len());
    // The drives told of their wraps and how long they located.
    let live = site.engine.live();
    assert!(live.locates.values().map(|one| one.len()).sum::<usize>() > 50);
    let measured = |record: &&Record| matches!(record, Record::TapeMeasured { .. });
    assert!(site.records.iter().filter(measured).count() >= tapes.len());
}

#[test]
fn time_runs_as_fast_as_asked_for() {
    // A mount with its dismount takes minutes, a thousandth of which is waited.
    let directory = tempfile::tempdir().expect("made");
    let time = LibraryTime::Scaled {
        factor: 1_000,
        origin_ns: 7 * HOUR_NS,
    };
    let begun = Instant::now();
    let mut site = Site::new(directory.path(), definition(1, 1), time, policy());
    site.archive([(1, 2_000_000), (2, 10)], "raw");
    site.run();
    let took_ns = site.library.now_ns() - 7 * HOUR_NS;
    let waited_ns = begun.elapsed().as_nanos() as i64;
    // 15 s of robot, 19 s of load, 2 s of data, 3 s of sync: at least.
    assert!(took_ns >= 39 * SECOND_NS, "{took_ns}");
    assert!(waited_ns * 1_000 >= took_ns, "{waited_ns} {took_ns}");
    assert_eq!(site.outcomes(is_archived), 2);
}

#[test]
fn real_time_is_that_of_the_wall() {
    let directory = tempfile::tempdir().expect("made");
    let library = open_library(directory.path(), definition(1, 1), LibraryTime::Real);
    let begun = Instant::now();
    let now_ns = library.now_ns();
    assert!(now_ns > 1_700_000_000 * SECOND_NS);
    assert_eq!(library.next_report(now_ns + SECOND_NS / 10), None);
    assert!(begun.elapsed().as_millis() >= 90);
}

#[test]
fn drives_work_at_the_same_time() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = Site::new(directory.path(), definition(4, 4), VIRTUAL, policy());
    for family in 0..4 {
        let files = (0..10).map(|file| (family * 10 + file + 1, 5_000_000));
        site.archive(files, &format!("family-{family}"));
    }
    site.run();
    assert_eq!(site.outcomes(is_archived), 40);
    // One after the other they would stream for 200 s alone.
    let took_ns = site.library.now_ns();
    assert!(took_ns < 200 * SECOND_NS, "{took_ns}");
    assert_eq!(site.mounts, 4);
    // Equal definitions give equal times.
    let again = tempfile::tempdir().expect("made");
    let mut other = Site::new(again.path(), definition(1, 1), VIRTUAL, policy());
    other.archive([(1, 500)], "raw");
    other.run();
    let first_ns = other.library.now_ns();
    let third = tempfile::tempdir().expect("made");
    let mut other = Site::new(third.path(), definition(1, 1), VIRTUAL, policy());
    other.archive([(1, 500)], "raw");
    other.run();
    assert_eq!(other.library.now_ns(), first_ns);
}

#[test]
fn a_tape_that_ends_early_is_left_and_the_rest_goes_to_another() {
    let directory = tempfile::tempdir().expect("made");
    let mut small = definition(1, 2);
    // Its label says 2 GB; it ends after 20 MB.
    small
        .tapes
        .get_mut(&tape_name(0))
        .expect("it is there")
        .capacity_bytes = 20 * MB;
    let mut site = Site::new(directory.path(), small, VIRTUAL, policy());
    site.archive((1..=12).map(|file| (file, 4_000_000)), "raw");
    site.run_to(|report| *report == DriveReport::TapeFull);
    site.run();
    assert_eq!(site.outcomes(is_archived), 12);
    let copies = site.copies();
    assert!(copies.values().any(|copy| copy.tape == tape_name(1)));
    site.recall((1..=12).map(|file| (file, 4_000_000)));
    site.run();
    for file in 1..=12 {
        site.check_recalled(file, 4_000_000);
    }
}
