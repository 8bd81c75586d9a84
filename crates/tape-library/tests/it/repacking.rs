//! Verification, repack, reclaim and relabel, with real bytes.

use crate::site::*;
use penstock_tape::aggregate::AggregatePolicy;
use penstock_tape::chance::Chance;
use penstock_tape::data_set::{DataSet, DataSetName, HintSource};
use penstock_tape::record::TapeState;
use penstock_tape::relabel::{RelabelOrder, RelabelRefusal, TapeUse, choose_repacks};
use penstock_tape::repack::{DiskCopy, LiveFile, Repack, RepackOrder, RepackStep};
use penstock_tape::request::{
    ArchiveWishes, FamilyName, FileId, ReadPurpose, RecallRequest, RequestOutcome, TapeCopy,
    TapeErrorScope, TapeName,
};
use penstock_tape::request_engine::{Input, TapePolicy};
use penstock_tape_library::{InjectedFault, LibraryTime};
use std::collections::{BTreeMap, BTreeSet};

const VIRTUAL: LibraryTime = LibraryTime::Virtual { origin_ns: 0 };
const FILE_BYTES: usize = 300_000;

fn packing() -> TapePolicy {
    let mut policy = policy();
    policy.aggregate = AggregatePolicy {
        bytes_max: 2 * MB,
        files_max: 40,
        age_ns: 0,
    };
    policy
}

fn verify(site: &mut Site, file: u64, copy: &TapeCopy) {
    let request = RecallRequest {
        request: site.request(),
        file: FileId(file),
        size_bytes: FILE_BYTES as u64,
        copies: vec![copy.clone()],
        asker: asker(),
        activity: None,
        challenge: None,
        purpose: ReadPurpose::Verification,
    };
    site.give(Input::Recall(vec![request]));
}

#[test]
fn verification_finds_what_is_damaged_and_puts_nothing_on_disk() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = Site::new(directory.path(), definition(1, 1), VIRTUAL, packing());
    let packed = ArchiveWishes {
        is_packed: true,
        ..ArchiveWishes::default()
    };
    site.archive_as((1..=10).map(|file| (file, FILE_BYTES)), "raw", &packed);
    site.archive((11..=20).map(|file| (file, FILE_BYTES)), "raw");
    site.run();
    let copies = site.copies();
    for damaged in [4, 15] {
        let copy = &copies[&FileId(damaged)];
        let fault = InjectedFault::MediaError {
            tape: copy.tape.clone(),
            begin_bytes: copy.begin_bytes + 9,
            end_bytes: copy.begin_bytes + 10,
        };
        site.library.inject(fault).expect("taken");
    }
    for (file, copy) in &copies {
        verify(&mut site, file.0, copy);
    }
    // During a challenge nothing is read that nobody waits for.
    let mounts = site.mounts;
    let until_ns = site.library.now_ns() + 24 * HOUR_NS;
    site.give(Input::HoldBackground { until_ns });
    // A user's file of the same tape is read meanwhile, and delivered.
    site.recall([(7, FILE_BYTES)]);
    while site.outcomes(is_recalled) == 0 {
        site.step();
    }
    assert!(site.library.now_ns() < until_ns);
    site.check_recalled(7, FILE_BYTES);
    let verified = |outcome: &RequestOutcome| *outcome == RequestOutcome::Verified;
    assert!(site.outcomes(verified) <= 2, "{}", site.outcomes(verified));
    site.run();
    assert!(site.library.now_ns() >= until_ns && site.mounts <= mounts + 3);
    let bad = RequestOutcome::NoCopyLeft(TapeErrorScope::File);
    assert_eq!(site.outcomes(verified), 18);
    assert_eq!(site.outcomes(|outcome| *outcome == bad), 2);
    let recalled = std::fs::read_dir(directory.path().join("recalled")).expect("read");
    assert_eq!(recalled.count(), 1, "only what a user asked for");
}

/// What a namespace knows: where each file lies.
type Catalogue = BTreeMap<FileId, TapeCopy>;

fn found_on(catalogue: &Catalogue, tape: &TapeName) -> TapeUse {
    let files = catalogue.values().filter(|copy| copy.tape == *tape);
    let live_files = files.count() as u64;
    TapeUse {
        live_files,
        live_bytes: live_files * FILE_BYTES as u64,
    }
}

fn live_files(catalogue: &Catalogue, tape: &TapeName, is_packed: bool) -> Vec<LiveFile> {
    let live = |(file, copy): (&FileId, &TapeCopy)| LiveFile {
        file: *file,
        size_bytes: FILE_BYTES as u64,
        copies: vec![copy.clone()],
        instead_of: Some(copy.clone()),
        family: FamilyName("raw".into()),
        is_packed,
        not_in: BTreeSet::new(),
        disk: DiskCopy::Absent,
        is_unreadable: false,
        // The hint: files of one remainder belong together.
        data_set: Some(DataSet {
            name: DataSetName(vec![format!("set-{}", file.0 % 3).into()]),
            expected_files: None,
            expected_bytes: None,
            source: HintSource::Path,
            has_blank_hints: false,
        }),
    };
    let on_tape = catalogue.iter().filter(|(_, copy)| copy.tape == *tape);
    let mut files: Vec<LiveFile> = on_tape.map(live).collect();
    files.sort_by_key(|file| (file.file.0 % 3, file.file));
    files
}

fn repack_of(catalogue: &Catalogue, tape: &TapeName, is_packed: bool) -> Repack {
    let window = 12 * FILE_BYTES as u64;
    Repack::new(asker(), window, live_files(catalogue, tape, is_packed))
}

/// One turn of whoever drives a repack: what was told is taken, the namespace changed, and what comes next is asked for.
fn turn(site: &mut Site, repack: &mut Repack, catalogue: &mut Catalogue) -> usize {
    let mut moved = 0;
    for (request, outcome) in site.told.clone() {
        match repack.told(request, &outcome) {
            Some(RepackStep::OnDisk(file)) => {
                let (from, to) = (format!("recalled/{}", file.0), format!("disk/{}", file.0));
                let directory = site.directory.clone();
                std::fs::copy(directory.join(from), directory.join(to)).expect("on disk");
            }
            Some(RepackStep::Written {
                file,
                instead_of,
                to,
                ..
            }) => {
                assert_eq!(catalogue.insert(file, to), instead_of);
                moved += 1;
            }
            Some(RepackStep::Damaged(_) | RepackStep::Stays { .. }) | None => {}
        }
    }
    let mut next = site.next_request;
    let orders = repack.next(|_, _| {
        next += 1;
        penstock_tape::request::RequestId(next)
    });
    site.next_request = next;
    let mut archives = Vec::new();
    for order in orders {
        match order {
            RepackOrder::Recall(request) => site.give(Input::Recall(vec![request])),
            RepackOrder::Archive(request) => archives.push(request),
            RepackOrder::CompareDisk(_) => {}
        }
    }
    if !archives.is_empty() {
        site.give(Input::Archive(archives));
    }
    moved
}

fn clear_disk(site: &Site) {
    for place in ["disk", "recalled"] {
        for entry in std::fs::read_dir(site.directory.join(place)).expect("read") {
            std::fs::remove_file(entry.expect("read").path()).expect("removed");
        }
    }
}

fn check_all(site: &mut Site, catalogue: &Catalogue) {
    clear_disk(site);
    let mut requests = Vec::new();
    for (file, copy) in catalogue {
        requests.push(RecallRequest {
            request: site.request(),
            file: *file,
            size_bytes: FILE_BYTES as u64,
            copies: vec![copy.clone()],
            asker: asker(),
            activity: None,
            challenge: None,
            purpose: ReadPurpose::Users,
        });
    }
    site.give(Input::Recall(requests));
    site.run();
    for file in catalogue.keys() {
        site.check_recalled(file.0, FILE_BYTES);
    }
}

#[test]
fn a_tape_is_repacked_by_a_hint_list_reclaimed_and_written_anew() {
    let directory = tempfile::tempdir().expect("made");
    let mut site = Site::new(directory.path(), definition(2, 3), VIRTUAL, packing());
    site.archive((1..=60).map(|file| (file, FILE_BYTES)), "raw");
    site.run();
    let mut catalogue = site.copies();
    let old = catalogue[&FileId(1)].tape.clone();
    // Two thirds of the files are removed by their owners.
    catalogue.retain(|file, _| file.0 <= 20 || file.0 % 10 == 0);
    let on_old = catalogue.values().filter(|copy| copy.tape == old).count();
    let state = TapeState::ReadOnly;
    let tape = old.clone();
    site.give(Input::TapeChanged { tape, state });
    let uses = [(old.clone(), found_on(&catalogue, &old))];
    assert_eq!(
        choose_repacks(site.engine.live(), uses, 500),
        std::slice::from_ref(&old)
    );
    clear_disk(&site);
    // The brake: files live on it.
    let order = RelabelOrder::Operator;
    let ask = |site: &mut Site, catalogue: &Catalogue, order| {
        let (tape, found) = (old.clone(), found_on(catalogue, &old));
        site.give(Input::Relabel { tape, found, order });
    };
    ask(&mut site, &catalogue, order);
    let refused = site.refused.pop();
    assert!(
        matches!(
            refused,
            Some(RelabelRefusal::InDrive { .. } | RelabelRefusal::LiveFiles { .. })
        ),
        "{refused:?}"
    );
    let mut repack = repack_of(&catalogue, &old, false);
    let mut moved = 0;
    for _ in 0..10_000 {
        moved += turn(&mut site, &mut repack, &mut catalogue);
        if repack.is_done() {
            break;
        }
        site.step();
    }
    assert_eq!((moved, repack.is_done()), (on_old, true));
    assert!(catalogue.values().all(|copy| copy.tape != old));
    // What belongs together by the hints lies together now.
    let mut order_on_tape: Vec<(TapeName, u64, u64)> = catalogue
        .iter()
        .map(|(file, copy)| (copy.tape.clone(), copy.begin_bytes, file.0 % 3))
        .collect();
    order_on_tape.sort();
    let breaks = order_on_tape
        .windows(2)
        .filter(|pair| pair[0].2 != pair[1].2);
    let breaks = breaks.count();
    println!("{moved} files moved, {breaks} changes of data set on the new tape");
    assert!(breaks <= 8, "{breaks}");
    // When the tape has left its drive and nothing lives on it, it is given up and written anew.
    while site.engine.live().drives.drive_of(&old).is_some() {
        site.step();
    }
    ask(&mut site, &catalogue, RelabelOrder::Automatic);
    assert_eq!(site.refused, []);
    let facts = &site.engine.live().tapes[&old];
    assert_eq!((facts.written_bytes, facts.state), (0, TapeState::Active));
    check_all(&mut site, &catalogue);
    site.archive((100..=105).map(|file| (file, FILE_BYTES)), "other");
    site.run();
    let again = site.copies()[&FileId(100)].clone();
    assert_eq!(
        (again.begin_bytes, again.tape == old),
        (0, true),
        "{again:?}"
    );
    site.recall([(100, FILE_BYTES)]);
    site.run();
    site.check_recalled(100, FILE_BYTES);
}

/// The library and the engine end at instants of no meaning while a tape is repacked; the namespace and records are what is left.
#[test]
fn power_cuts_during_a_repack_lose_no_file() {
    for seed in 0..3 {
        let directory = tempfile::tempdir().expect("made");
        let mut chance = Chance::new(seed);
        let mut site = Site::new(directory.path(), definition(2, 3), VIRTUAL, packing());
        site.archive((1..=30).map(|file| (file, FILE_BYTES)), "raw");
        site.run();
        let mut catalogue = site.copies();
        let olds: BTreeSet<TapeName> = catalogue.values().map(|copy| copy.tape.clone()).collect();
        let old = olds.first().expect("a tape").clone();
        let (tape, state) = (old.clone(), TapeState::ReadOnly);
        site.give(Input::TapeChanged { tape, state });
        let mut repack = repack_of(&catalogue, &old, seed % 2 == 0);
        let mut cuts = 0;
        for _ in 0..4_000 {
            turn(&mut site, &mut repack, &mut catalogue);
            if found_on(&catalogue, &old).live_files == 0 {
                break;
            }
            if chance.below(12) == 0 {
                let (records, now_ns) = (site.records.clone(), site.library.now_ns());
                let next_request = site.next_request;
                drop(site);
                cuts += 1;
                let time = LibraryTime::Virtual { origin_ns: now_ns };
                site = Site::restored(directory.path(), definition(2, 3), time, packing(), records);
                site.next_request = next_request + 1_000;
                // What it knew is lost; the namespace says what still lives there.
                repack = repack_of(&catalogue, &old, seed % 2 == 0);
                // Nor is anything relabeled that still has files.
                let (tape, found) = (old.clone(), found_on(&catalogue, &old));
                let order = RelabelOrder::Operator;
                site.give(Input::Relabel { tape, found, order });
                assert_eq!(site.engine.live().relabels_ns.len(), 0);
            } else {
                site.step();
            }
        }
        assert!(cuts > 2, "seed {seed}: {cuts} cuts");
        assert_eq!(found_on(&catalogue, &old).live_files, 0, "seed {seed}");
        site.run();
        check_all(&mut site, &catalogue);
        println!("seed {seed}: {cuts} cuts, 30 files are where the namespace says");
    }
}
