//! Small files as one object, with real bytes.

use crate::site::*;
use penstock_tape::aggregate::{AggregatePolicy, decode_index};
use penstock_tape::chance::Chance;
use penstock_tape::locate::SECOND_NS;
use penstock_tape::request::{ArchiveWishes, FileId, RequestOutcome};
use penstock_tape::request_engine::TapePolicy;
use penstock_tape_library::LibraryTime;
use std::collections::BTreeSet;

const VIRTUAL: LibraryTime = LibraryTime::Virtual { origin_ns: 0 };

fn packing() -> TapePolicy {
    let mut policy = policy();
    policy.aggregate = AggregatePolicy {
        bytes_max: 2 * MB,
        files_max: 40,
        age_ns: 60 * SECOND_NS,
    };
    policy
}

fn packed() -> ArchiveWishes {
    ArchiveWishes {
        is_packed: true,
        ..ArchiveWishes::default()
    }
}

fn sizes(files: std::ops::RangeInclusive<u64>) -> Vec<(u64, usize)> {
    let size = |file: u64| match file % 17 {
        0 => 0,
        1 => 1_300_000,
        _ => 1 + (file as usize * 7_919) % 90_000,
    };
    files.map(|file| (file, size(file))).collect()
}

#[test]
fn members_of_aggregates_come_back_byte_by_byte_alone_and_together() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = Site::new(directory.path(), definition(2, 3), VIRTUAL, packing());
    let files = sizes(1..=300);
    site.archive_as(files.clone(), "raw", &packed());
    site.run();
    assert_eq!(site.outcomes(is_archived), 300);
    let copies = site.copies();
    let extents = copies.values().filter_map(|copy| {
        let extent = copy.aggregate?;
        Some((
            copy.tape.0.to_string(),
            extent.begin_bytes,
            extent.size_bytes,
        ))
    });
    let aggregates: BTreeSet<_> = extents.collect();
    println!("{} files in {} aggregates", files.len(), aggregates.len());
    assert!((8..=40).contains(&aggregates.len()));
    // One member alone first, then all that are left, two of one aggregate among them.
    site.recall([files[4]]);
    site.run();
    site.check_recalled(files[4].0, files[4].1);
    let others: Vec<_> = files
        .iter()
        .copied()
        .filter(|file| *file != files[4])
        .collect();
    site.recall(others.clone());
    site.run();
    assert_eq!(site.outcomes(is_recalled), 300);
    for (file, size) in others {
        site.check_recalled(file, size);
    }
}

#[test]
fn a_tape_tells_by_itself_what_is_in_its_aggregates() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = Site::new(directory.path(), definition(1, 1), VIRTUAL, packing());
    site.archive_as((1..=5).map(|file| (file, 1_000)), "raw", &packed());
    site.run();
    let copies = site.copies();
    drop(site);
    let tape =
        std::fs::read(directory.path().join("library/cartridges/A00000.tape")).expect("read");
    // The index ends where the data of the one object end: before its file mark and the sync mark.
    let magic = b"PTAGGR1\n";
    let mut windows = tape.windows(magic.len());
    let at = windows.position(|bytes| bytes == magic).expect("an index");
    let entries = decode_index(&tape[..at + 16]).expect("whole");
    for entry in &entries {
        let copy = &copies[&entry.file];
        assert_eq!(copy.offset_bytes(), Some(entry.offset_bytes));
        let bytes = content(entry.file.0, 1_000);
        assert_eq!(
            (entry.size_bytes, entry.crc32c),
            (1_000, crc32c::crc32c(&bytes))
        );
    }
    assert_eq!(entries.len(), 5);
}

#[test]
fn a_member_that_has_left_the_disk_or_shrunk_fails_alone() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = Site::new(directory.path(), definition(1, 1), VIRTUAL, packing());
    site.archive_as((1..=10).map(|file| (file, 5_000)), "raw", &packed());
    std::fs::remove_file(directory.path().join("disk/3")).expect("removed");
    std::fs::write(directory.path().join("disk/7"), b"short").expect("written");
    site.run();
    let refused = |outcome: &RequestOutcome| *outcome == RequestOutcome::NotTaken;
    assert_eq!(site.outcomes(refused), 2);
    assert_eq!(site.outcomes(is_archived), 8);
    let copies = site.copies();
    assert!(!copies.contains_key(&FileId(3)) && !copies.contains_key(&FileId(7)));
    assert_eq!(site.incidents, []);
    site.recall(
        copies
            .keys()
            .map(|file| (file.0, 5_000))
            .collect::<Vec<_>>(),
    );
    site.run();
    assert_eq!(site.outcomes(is_recalled), 8);
}

/// The library and the engine end at instants of no meaning while aggregates are collected, written and synced.
#[test]
fn power_cuts_while_aggregates_are_written_lose_nothing_that_was_told() {
    for seed in 0..3 {
        let directory = tempfile::tempdir().expect("made");
        let mut chance = Chance::new(seed);
        let mut site = Site::new(directory.path(), definition(2, 3), VIRTUAL, packing());
        let mut cuts = 0;
        for part in 0..4 {
            let files = sizes(part * 60 + 1..=part * 60 + 60);
            site.archive_as(files, "raw", &packed());
            for _ in 0..8 {
                for _ in 0..1 + chance.below(7) {
                    if !site.engine.live().requests.is_empty() {
                        site.step();
                    }
                }
                let told = site.copies();
                let (records, now_ns) = (site.records.clone(), site.library.now_ns());
                drop(site);
                cuts += 1;
                let time = LibraryTime::Virtual { origin_ns: now_ns };
                site = Site::restored(directory.path(), definition(2, 3), time, packing(), records);
                // What was told is on tape now, whatever comes later.
                let sized = sizes(1..=240);
                for file in told.keys().filter(|_| chance.below(20) == 0) {
                    site.recall([sized[file.0 as usize - 1]]);
                }
            }
        }
        site.run();
        let lost = site.outcomes(|outcome| matches!(outcome, RequestOutcome::NoCopyLeft(_)));
        assert_eq!(
            (site.copies().len(), lost),
            (240, 0),
            "seed {seed}, {cuts} cuts"
        );
        site.recall(sizes(1..=240));
        site.run();
        for (file, size) in sizes(1..=240) {
            site.check_recalled(file, size);
        }
    }
}
