use super::*;
use crate::request::LibraryName;

const MINUTE_NS: i64 = 60 * SECOND_NS;
const NOW_NS: i64 = 1_000 * MINUTE_NS;
const TB: u64 = 1_000_000_000_000;

fn class() -> DriveClass {
    DriveClass {
        library: LibraryName("l".into()),
        kind: "TS1160".to_owned(),
    }
}

fn tape(name: &str, vo: &str, bytes: u64, age_minutes: i64) -> MountCandidate {
    MountCandidate {
        is_background: false,
        target: MountTarget::Recall(TapeName(name.into())),
        class: class(),
        bytes,
        files: 1 + bytes / 2_000_000_000,
        oldest_ns: NOW_NS - age_minutes * MINUTE_NS,
        deadline_ns: None,
        priority: 3,
        vo: VoName(vo.into()),
        mounts: 0,
        last_read_ns: None,
    }
}

/// Decisions as text, one word for each tape.
fn decide(policy: &MountPolicy, drives: usize, candidates: &[MountCandidate]) -> Vec<String> {
    let names = (0..drives).map(|drive| DriveName(format!("d{drive}").into()));
    let supply = DriveSupply {
        free: [(class(), names.collect())].into(),
        ..DriveSupply::default()
    };
    let told = |decision: &MountDecision| {
        let name = match &decision.target {
            MountTarget::Recall(tape) | MountTarget::Archive(_, tape) => &tape.0,
        };
        let why = match &decision.choice {
            Ok((_, MountReason::Deadline { .. })) => "deadline",
            Ok((_, MountReason::Bytes { .. })) => "bytes",
            Ok((_, MountReason::Files { .. })) => "files",
            Ok((_, MountReason::Age { .. })) => "age",
            Err(MountWait::NotWorthIt { .. }) => "not-worth-it",
            Err(MountWait::NoFreeDrive) => "no-free-drive",
            Err(MountWait::ClassBusy { .. }) => "class-busy",
            Err(MountWait::VoBusy { .. }) => "vo-busy",
            Err(MountWait::FamilyBusy { .. }) => "family-busy",
            Err(MountWait::BackgroundBusy) => "background-busy",
            Ok((_, MountReason::Cycle { .. })) => "cycle",
            Ok((_, MountReason::Background)) => "background",
        };
        format!("{name}:{why}")
    };
    let decided = decide_mounts(NOW_NS, policy, candidates, supply);
    assert_eq!(decided.len(), candidates.len(), "each has an answer");
    decided.iter().map(told).collect()
}

#[test]
fn bytes_files_age_and_deadlines_are_worth_a_mount() {
    let mut due = tape("due", "a", 1, 1);
    due.deadline_ns = Some(NOW_NS + 20 * MINUTE_NS);
    let mut many = tape("many", "a", 1, 2);
    many.files = 10_000;
    let candidates = [
        tape("small", "a", TB / 100, 14),
        tape("large", "a", TB / 2, 3),
        many,
        due,
        tape("old", "a", 1, 15),
    ];
    let decided = decide(&MountPolicy::usual(), 9, &candidates);
    let expected = [
        "small:not-worth-it",
        "due:deadline",
        "old:age",
        "large:bytes",
        "many:files",
    ];
    assert_eq!(decided, expected);
}

#[test]
fn scarce_drives_go_by_deadline_then_priority_then_share_then_age() {
    let mut urgent = tape("urgent", "a", TB, 1);
    urgent.priority = 5;
    let mut due = tape("due", "a", 1, 1);
    due.deadline_ns = Some(NOW_NS - MINUTE_NS);
    let candidates = [
        tape("a1", "a", TB, 90),
        tape("a2", "a", TB, 80),
        tape("b1", "b", TB, 10),
        urgent,
        due,
    ];
    let decided = decide(&MountPolicy::usual(), 3, &candidates);
    let expected = ["due:deadline", "urgent:bytes", "b1:bytes"];
    assert_eq!(decided[..3], expected);
    // With three times the share, the first VO may have three drives before the other has its second.
    let mut policy = MountPolicy::usual();
    policy.vo_shares.insert(VoName("a".into()), 3);
    let same = |name: &str, vo| tape(name, vo, TB, 10);
    let candidates = ["a1", "a2", "a3", "a4", "b1", "b2"].map(|name| same(name, &name[..1]));
    let decided = decide(&policy, 4, &candidates);
    assert_eq!(
        decided[..4],
        ["a1:bytes", "b1:bytes", "a2:bytes", "a3:bytes"]
    );
}

#[test]
fn no_class_vo_or_family_has_more_drives_than_it_may() {
    let mut policy = MountPolicy::usual();
    let bounds = DrivesMax {
        recall: 2,
        archive: 9,
    };
    policy.drives_max.insert("TS1160".to_owned(), bounds);
    policy.vo_drives_max.insert(VoName("a".into()), 1);
    policy.family_drives_max = 1;
    let mut written = tape("w", "b", TB, 10);
    written.target = MountTarget::Archive(FamilyName("f".into()), TapeName("w".into()));
    written.mounts = 1;
    let candidates = [
        tape("a1", "a", TB, 50),
        tape("a2", "a", TB, 40),
        tape("b1", "b", TB, 30),
        tape("b2", "b", TB, 20),
        written,
    ];
    let decided = decide(&policy, 9, &candidates);
    let expected = [
        "w:family-busy",
        "a1:bytes",
        "a2:vo-busy",
        "b1:bytes",
        "b2:class-busy",
    ];
    assert_eq!(decided, expected);
}

#[test]
fn a_second_drive_for_a_family_needs_a_backlog_for_two() {
    let mut family = tape("w", "a", TB * 9 / 10, 100);
    family.mounts = 1;
    assert_eq!(
        decide(&MountPolicy::usual(), 9, &[family.clone()]),
        ["w:not-worth-it"]
    );
    family.bytes = TB;
    assert_eq!(decide(&MountPolicy::usual(), 9, &[family]), ["w:bytes"]);
}

#[test]
fn a_tape_is_mounted_again_on_the_same_day_for_a_deadline_or_much_data_only() {
    let mut policy = MountPolicy::usual();
    policy.remount_ns = 20 * 60 * MINUTE_NS;
    let read = |mut candidate: MountCandidate, minutes: i64| {
        candidate.last_read_ns = Some(NOW_NS - minutes * MINUTE_NS);
        candidate
    };
    let mut due = read(tape("due", "a", 1, 1), 10);
    due.deadline_ns = Some(NOW_NS + 10 * MINUTE_NS);
    let candidates = [
        due,
        read(tape("much", "a", TB, 1), 10),
        read(tape("soon", "a", 1, 100), 700),
        read(tape("yesterday", "a", 1, 100), 1_300),
        tape("new", "a", 1, 100),
    ];
    let mut decided = decide(&policy, 9, &candidates);
    decided.sort();
    let expected = [
        "due:deadline",
        "much:bytes",
        "new:age",
        "soon:not-worth-it",
        "yesterday:age",
    ];
    assert_eq!(decided, expected);
    let at_ns = worth_at_ns(&policy, &candidates[2]);
    assert_eq!(at_ns, NOW_NS + 500 * MINUTE_NS);
}

#[test]
fn a_second_drive_writes_what_is_late_and_not_what_is_only_due_soon() {
    let mut family = tape("t2", "a", 1, 1);
    family.target = MountTarget::Archive(FamilyName("raw".into()), TapeName("t2".into()));
    family.deadline_ns = Some(NOW_NS + MINUTE_NS);
    let decided =
        |family: &MountCandidate| decide(&MountPolicy::usual(), 1, std::slice::from_ref(family));
    assert_eq!(decided(&family), ["t2:deadline"]);
    family.mounts = 1;
    assert_eq!(decided(&family), ["t2:not-worth-it"]);
    family.deadline_ns = Some(NOW_NS);
    assert_eq!(decided(&family), ["t2:deadline"]);
}
