use super::*;
use crate::request::{TapeErrorScope, TapeName, VoName};

const GB: u64 = 1_000_000_000;

fn name(name: &str) -> TapeName {
    TapeName(name.into())
}

fn live(file: u64, size_gb: u64, tape: &str) -> LiveFile {
    LiveFile {
        file: FileId(file),
        size_bytes: size_gb * GB,
        copies: vec![
            TapeCopy::alone(name("other"), 7),
            TapeCopy::alone(name(tape), file * 100 * GB),
        ],
        instead_of: Some(TapeCopy::alone(name(tape), file * 100 * GB)),
        family: FamilyName("raw".into()),
        is_packed: false,
        data_set: None,
        not_in: BTreeSet::new(),
        disk: DiskCopy::Absent,
        is_unreadable: false,
    }
}

fn repack(files: Vec<LiveFile>) -> Repack {
    let asker = Asker {
        vo: VoName("site".into()),
        priority: 0,
        deadline_ns: None,
        lease_ns: i64::MAX,
    };
    Repack::new(asker, 10 * GB, files)
}

fn asked(repack: &mut Repack, next: &mut u64) -> Vec<(char, u64, u64)> {
    let orders = repack.next(|_, _| {
        *next += 1;
        RequestId(*next)
    });
    let told = orders.into_iter().map(|order| match order {
        RepackOrder::CompareDisk(file) => ('c', 0, file.0),
        RepackOrder::Recall(request) => {
            assert_eq!(request.copies[0].tape, name("old"));
            assert_eq!(request.purpose, ReadPurpose::Repack);
            ('r', request.request.0, request.file.0)
        }
        RepackOrder::Archive(request) => {
            assert!(request.wishes.is_background);
            ('w', request.request.0, request.file.0)
        }
    });
    told.collect()
}

#[test]
fn files_move_in_their_order_and_few_are_on_disk_at_a_time() {
    let files = vec![live(3, 6, "old"), live(1, 4, "old"), live(2, 5, "old")];
    let mut repack = repack(files);
    let mut next = 0;
    assert_eq!(asked(&mut repack, &mut next), [('r', 1, 3), ('r', 2, 1)]);
    assert_eq!(asked(&mut repack, &mut next), []);
    let on_disk = repack.told(RequestId(1), &RequestOutcome::Recalled);
    assert_eq!(on_disk, Some(RepackStep::OnDisk(FileId(3))));
    assert_eq!(asked(&mut repack, &mut next), [], "the part is read first");
    repack.told(RequestId(2), &RequestOutcome::Recalled);
    // Their room is free only when they are on tape again.
    let written = [('w', 3, 3), ('w', 4, 1)];
    assert_eq!(asked(&mut repack, &mut next), written);
    let to = TapeCopy::alone(name("new"), 5);
    let moved = RepackStep::Written {
        file: FileId(3),
        instead_of: Some(TapeCopy::alone(name("old"), 300 * GB)),
        to: to.clone(),
        is_brought: true,
    };
    let archived = RequestOutcome::Archived(vec![to]);
    assert_eq!(repack.told(RequestId(3), &archived), Some(moved));
    assert_eq!(asked(&mut repack, &mut next), []);
    repack.told(RequestId(4), &archived);
    assert_eq!(asked(&mut repack, &mut next), [('r', 5, 2)]);
    assert!(!repack.is_done());
}

#[test]
fn what_cannot_be_moved_stays_and_nothing_waits_for_it() {
    let mut repack = repack(vec![live(1, 50, "old"), live(2, 1, "old")]);
    let mut next = 0;
    // One that is larger than all that may be on disk goes alone.
    assert_eq!(asked(&mut repack, &mut next), [('r', 1, 1)]);
    let lost = RequestOutcome::NoCopyLeft(TapeErrorScope::File);
    let why = lost.clone();
    let stays = |file, why| {
        Some(RepackStep::Stays {
            file: FileId(file),
            why,
        })
    };
    assert_eq!(repack.told(RequestId(1), &lost), stays(1, why));
    assert_eq!(asked(&mut repack, &mut next), [('r', 2, 2)]);
    repack.told(RequestId(2), &RequestOutcome::Recalled);
    assert_eq!(asked(&mut repack, &mut next), [('w', 3, 2)]);
    // On the tape that is to be given up it is not moved.
    let same = RequestOutcome::Archived(vec![TapeCopy::alone(name("old"), 900 * GB)]);
    assert_eq!(repack.told(RequestId(3), &same), stays(2, same.clone()));
    assert_eq!(repack.told(RequestId(9), &same), None);
    assert!(repack.is_done());
}

#[test]
fn a_copy_on_disk_is_compared_before_it_is_used_and_one_that_cannot_be_read_is_tried_last() {
    let on_disk = |file, is_unreadable| LiveFile {
        disk: DiskCopy::Present,
        is_unreadable,
        ..live(file, 1, "old")
    };
    let mut moves = repack(vec![on_disk(1, false), on_disk(2, true)]);
    let mut next = 0;
    let compared = [('c', 0, 1), ('c', 0, 2)];
    assert_eq!(asked(&mut moves, &mut next), compared);
    let is_good = |_: &TapeCopy| true;
    let stays = moves.compared(FileId(1), DiskComparison::Unknown, is_good);
    assert!(matches!(stays, Some(RepackStep::Stays { .. })));
    let same = moves.compared(FileId(2), DiskComparison::Same, is_good);
    assert_eq!(same, Some(RepackStep::OnDisk(FileId(2))));
    assert_eq!(asked(&mut moves, &mut next), [('w', 1, 2)]);
    // Only its place was bad, so the same tape takes it at another one.
    let to = RequestOutcome::Archived(vec![TapeCopy::alone(name("old"), 900 * GB)]);
    let moved = moves.told(RequestId(1), &to);
    assert!(matches!(
        moved,
        Some(RepackStep::Written {
            is_brought: false,
            ..
        })
    ));
    let unreadable = LiveFile {
        is_unreadable: true,
        ..live(3, 1, "old")
    };
    let orders = repack(vec![unreadable]).next(|_, _| RequestId(9));
    let RepackOrder::Recall(request) = &orders[0] else {
        panic!("{orders:?}");
    };
    assert_eq!(request.copies[0].tape, name("other"));
}

#[test]
fn a_file_whose_copy_on_disk_is_damaged_comes_from_a_tape_that_has_a_good_one() {
    let on_disk = |file| LiveFile {
        disk: DiskCopy::Present,
        ..live(file, 1, "old")
    };
    let mut moves = repack(vec![on_disk(1), on_disk(2)]);
    let mut next = 0;
    asked(&mut moves, &mut next);
    let differs = DiskComparison::Differs;
    let damaged = moves.compared(FileId(1), differs, |copy| copy.tape == name("old"));
    assert_eq!(damaged, Some(RepackStep::Damaged(FileId(1))));
    assert_eq!(asked(&mut moves, &mut next), [], "the others first");
    let stays = moves.compared(FileId(2), differs, |_| false);
    assert!(matches!(stays, Some(RepackStep::Stays { .. })));
    assert_eq!(asked(&mut moves, &mut next), [('r', 1, 1)]);
    moves.told(RequestId(1), &RequestOutcome::Recalled);
    assert_eq!(asked(&mut moves, &mut next), [('w', 2, 1)]);
    let to = RequestOutcome::Archived(vec![TapeCopy::alone(name("new"), 5)]);
    let written = moves.told(RequestId(2), &to);
    let Some(RepackStep::Written { is_brought, .. }) = written else {
        panic!("{written:?}");
    };
    assert!(!is_brought, "it was on disk before, and stays there");
}

#[test]
fn a_further_copy_comes_beside_the_others() {
    let mut not_in = BTreeSet::new();
    not_in.insert(LibraryName("a".into()));
    let further = LiveFile {
        copies: vec![TapeCopy::alone(name("old"), 7)],
        instead_of: None,
        not_in: not_in.clone(),
        ..live(1, 1, "old")
    };
    let mut moves = repack(vec![further]);
    let mut next = 0;
    assert_eq!(asked(&mut moves, &mut next), [('r', 1, 1)]);
    moves.told(RequestId(1), &RequestOutcome::Recalled);
    let orders = moves.next(|_, _| RequestId(2));
    let RepackOrder::Archive(request) = &orders[0] else {
        panic!("{orders:?}");
    };
    assert_eq!(
        (request.wishes.copies, &request.wishes.not_in),
        (1, &not_in)
    );
    let to = TapeCopy::alone(name("new"), 5);
    let written = RepackStep::Written {
        file: FileId(1),
        instead_of: None,
        to: to.clone(),
        is_brought: true,
    };
    let archived = RequestOutcome::Archived(vec![to]);
    assert_eq!(moves.told(RequestId(2), &archived), Some(written));
    assert!(moves.is_done());
}
