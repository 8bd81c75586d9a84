//! Copies in several libraries, aggregates, data sets.

use super::*;
use crate::aggregate::{aggregate_bytes, index_bytes};
use crate::copy_count::CopyState;
use crate::request::AggregateExtent;

const MB: u64 = 1_000_000;

pub(super) fn two_libraries(policy: TapePolicy) -> Lab {
    let one: (&str, &[&str], &[&str]) = ("one", &["d0"], &["a0", "a1"]);
    let two: (&str, &[&str], &[&str]) = ("two", &["e0"], &["b0", "b1"]);
    Lab::with_libraries(policy, &[one, two])
}

pub(super) fn copies_wanted(request: u64, copies: u32) -> ArchiveRequest {
    let mut request = archive(request, 10);
    request.wishes.copies = copies;
    request
}

fn small(request: u64, size_bytes: u64) -> ArchiveRequest {
    let mut request = archive(request, 1);
    request.size_bytes = size_bytes;
    request.wishes.is_packed = true;
    request
}

fn mounted(effects: &[Effect]) -> Vec<String> {
    let tapes = effects.iter().filter_map(|effect| match effect {
        Effect::Mount { tape, .. } => Some(tape.0.to_string()),
        _ => None,
    });
    tapes.collect()
}

#[test]
fn a_file_with_two_copies_is_archived_when_both_are_synced_in_two_libraries() {
    let mut lab = two_libraries(policy());
    let mounts = lab.give(Input::Archive(vec![copies_wanted(1, 2)]));
    assert_eq!(mounted(&mounts), ["a0", "b0"]);
    lab.report("d0", DriveReport::Mounted);
    lab.report("d0", DriveReport::FileWritten(FileId(1)));
    lab.report("d0", DriveReport::Synced);
    assert_eq!(lab.told(), [], "one copy is not enough");
    lab.report("e0", DriveReport::Mounted);
    lab.report("e0", DriveReport::FileWritten(FileId(1)));
    assert_eq!(lab.told(), []);
    lab.report("e0", DriveReport::Synced);
    let both = ["a0", "b0"].map(|tape| TapeCopy::alone(tape_name(tape), 0));
    let archived = RequestOutcome::Archived(both.to_vec());
    assert_eq!(lab.told(), [(1, archived)]);
    let live = lab.engine.live();
    assert!(live.archives.is_empty() && live.families.is_empty());
}

#[test]
fn each_copy_is_told_by_itself_when_the_policy_says_so() {
    let mut each = policy();
    each.copy_telling = CopyTelling::Each;
    let mut lab = two_libraries(each);
    lab.give(Input::Archive(vec![copies_wanted(1, 2)]));
    lab.report("d0", DriveReport::Mounted);
    lab.report("d0", DriveReport::FileWritten(FileId(1)));
    let first = lab.report("d0", DriveReport::Synced);
    let made = Effect::CopyMade {
        request: RequestId(1),
        copy: TapeCopy::alone(tape_name("a0"), 0),
    };
    assert!(first.contains(&made) && lab.told().is_empty());
    let mount = lab.report("e0", DriveReport::Mounted);
    lab.perform(mount);
    assert_eq!(lab.told().len(), 1);
}

#[test]
fn the_second_copy_is_written_again_when_its_drive_fails_and_the_first_stays() {
    let mut lab = two_libraries(policy());
    lab.give(Input::Archive(vec![copies_wanted(1, 2)]));
    let first = lab.report("d0", DriveReport::Mounted);
    lab.perform(first);
    lab.report("e0", DriveReport::Mounted);
    lab.report("e0", DriveReport::FileWritten(FileId(1)));
    lab.report("e0", DriveReport::Failed(TapeErrorScope::Drive));
    assert_eq!(lab.told(), []);
    let again = lab.give(Input::DriveUp(drive_name("e0")));
    assert_eq!(lab.perform(again), [1], "only in the second library");
    let copies = [("a0", 0), ("b0", 10 * GB)];
    let copies = copies.map(|(tape, begin)| TapeCopy::alone(tape_name(tape), begin));
    let archived = RequestOutcome::Archived(copies.to_vec());
    assert_eq!(lab.told(), [(1, archived)]);
}

#[test]
fn a_copy_whose_tape_breaks_before_the_others_are_safe_is_written_again_on_another_tape() {
    let mut lab = two_libraries(policy());
    let first = lab.give(Input::Archive(vec![copies_wanted(1, 2)]));
    assert_eq!(mounted(&first), ["a0", "b0"]);
    let first = lab.report("d0", DriveReport::Mounted);
    lab.perform(first);
    let (tape, state) = (tape_name("a0"), TapeState::Broken);
    let again = lab.give(Input::TapeChanged { tape, state });
    lab.report("e0", DriveReport::Mounted);
    lab.report("e0", DriveReport::FileWritten(FileId(1)));
    lab.report("e0", DriveReport::Synced);
    assert_eq!(lab.told(), [], "one of both cannot be read");
    lab.perform(again);
    let both = [("a1", 0), ("b0", 0)].map(|(tape, at)| TapeCopy::alone(tape_name(tape), at));
    let archived = RequestOutcome::Archived(both.to_vec());
    assert_eq!(lab.told(), [(1, archived)]);
}

#[test]
fn a_file_that_waits_is_written_as_its_class_says_now() {
    let mut lab = two_libraries(policy());
    let first = lab.give(Input::Archive(vec![
        copies_wanted(1, 2),
        copies_wanted(2, 1),
    ]));
    assert_eq!(mounted(&first), ["a0", "b0"]);
    lab.report("e0", DriveReport::Failed(TapeErrorScope::Library));
    let one = lab.report("d0", DriveReport::Mounted);
    // What needs no other library goes first.
    assert_eq!(lab.perform(one), [2, 1]);
    assert_eq!(lab.told().len(), 1, "the first waits for its second copy");
    // The same again is nothing new.
    let asked = |lab: &Lab| {
        let records = lab.records.iter();
        let asked = |one: &&Record| {
            matches!(
                one,
                Record::ArchiveAsked { .. } | Record::ArchiveChanged { .. }
            )
        };
        records.filter(asked).count()
    };
    let before = asked(&lab);
    lab.give(Input::Archive(vec![copies_wanted(1, 2)]));
    assert_eq!(asked(&lab), before);
    // One copy is enough, and is there.
    lab.give(Input::Archive(vec![copies_wanted(1, 1)]));
    let there = RequestOutcome::Archived(vec![TapeCopy::alone(tape_name("a0"), 10 * GB)]);
    assert_eq!(lab.told()[1], (1, there));
    assert!(lab.engine.live().archives.is_empty());
    // Another family, and two copies of what was to have one.
    lab.give(Input::DriveDown(drive_name("d0")));
    lab.give(Input::Archive(vec![copies_wanted(3, 1)]));
    let mut changed = copies_wanted(3, 2);
    changed.family = FamilyName("other".into());
    lab.give(Input::Archive(vec![changed]));
    let live = lab.engine.live();
    assert_eq!(live.families.len(), 1);
    let entry = &live.archives[&FileId(3)];
    assert_eq!((entry.missing(), &*entry.family.0), (2, "other"));
}

#[test]
fn an_archive_goes_to_the_other_library_while_one_is_paused() {
    let mut lab = two_libraries(policy());
    let first = lab.give(Input::Archive(vec![archive(1, 10)]));
    assert_eq!(mounted(&first), ["a0"]);
    let other = lab.report("d0", DriveReport::Failed(TapeErrorScope::Library));
    assert_eq!(mounted(&other), ["b0"]);
    lab.perform(other);
    let place = RequestOutcome::Archived(vec![TapeCopy::alone(tape_name("b0"), 0)]);
    assert_eq!(lab.told(), [(1, place)]);
    // Two copies cannot be made while one library is away: the file waits for the second.
    let more = lab.give(Input::Archive(vec![copies_wanted(2, 2)]));
    lab.perform(more);
    assert_eq!(lab.told().len(), 1);
    lab.now_ns += 2 * MINUTE_NS;
    let probe = lab.give(Input::Tick);
    assert_eq!(mounted(&probe), ["a0"]);
    lab.perform(probe);
    assert_eq!(lab.told().len(), 2);
}

#[test]
fn a_recall_takes_the_copy_in_a_library_that_works() {
    let mut lab = two_libraries(policy());
    let both = vec![
        recall(1, 1, &[("a0", 5), ("b0", 70)]),
        recall(2, 2, &[("a0", 9)]),
    ];
    let first = lab.give(Input::Recall(both));
    assert_eq!(mounted(&first), ["a0"]);
    // The library fails: what has a copy elsewhere is read there at once, the rest waits.
    let other = lab.report("d0", DriveReport::Failed(TapeErrorScope::Library));
    assert_eq!(mounted(&other), ["b0"]);
    assert_eq!(lab.perform(other), [1]);
    // The copy that was left is still known: a file is asked for, and now the other library is away.
    lab.now_ns += 2 * MINUTE_NS;
    let probe = lab.give(Input::Tick);
    assert_eq!(mounted(&probe), ["a0"]);
    assert_eq!(lab.perform(probe), [2]);
    lab.now_ns += 10 * MINUTE_NS;
    let out = lab.give(Input::Tick);
    lab.perform(out);
    let again = lab.give(Input::Recall(vec![recall(3, 3, &[("b0", 70), ("a0", 5)])]));
    assert_eq!(mounted(&again), ["b0"]);
    let other = lab.report("e0", DriveReport::Failed(TapeErrorScope::Library));
    assert_eq!(mounted(&other), ["a0"]);
    assert_eq!(lab.perform(other), [3]);
}

#[test]
fn a_recall_leaves_a_tape_that_is_stuck_in_a_drive() {
    let mut lab = Lab::new(policy(), 2, &["t", "u"]);
    lab.give(Input::Recall(vec![recall(1, 1, &[("t", 5), ("u", 3)])]));
    lab.now_ns = 10 * MINUTE_NS;
    let ended = lab.give(Input::Tick);
    assert_eq!(mounted(&ended), ["u"]);
    assert_eq!(lab.perform(ended), [1]);
}

#[test]
fn a_family_without_a_tape_is_an_incident() {
    let mut lab = Lab::new(policy(), 1, &[]);
    let lost = Effect::Open(TapeIncident::NoTapeLeft(FamilyName("raw".into())));
    let waits = lab.give(Input::Archive(vec![archive(1, 10)]));
    assert!(waits.contains(&lost), "{waits:?}");
    let tape = tape_name("t");
    lab.give(Input::TapeAdded {
        tape,
        facts: tape_facts(),
    });
    let mounts = lab.give(Input::Tick);
    let found = Effect::Close(TapeIncident::NoTapeLeft(FamilyName("raw".into())));
    assert!(mounts.contains(&found));
    assert_eq!(lab.perform(mounts), [1]);
}

fn packing(bytes_max: u64, files_max: usize, age_ns: i64) -> TapePolicy {
    let mut policy = policy();
    policy.aggregate = AggregatePolicy {
        bytes_max,
        files_max,
        age_ns,
    };
    policy
}

fn aggregates(effects: &[Effect]) -> Vec<(u64, Vec<u64>)> {
    let written = effects.iter().filter_map(|effect| match effect {
        Effect::WriteAggregate {
            begin_bytes,
            members,
            ..
        } => {
            let files = members.iter().map(|member| member.file.0);
            Some((*begin_bytes, files.collect()))
        }
        _ => None,
    });
    written.collect()
}

#[test]
fn small_files_are_written_as_one_object_and_each_has_a_place_of_its_own() {
    let mut lab = Lab::new(packing(100 * MB, 4, MINUTE_NS), 1, &["t"]);
    let files = (1..=6).map(|file| small(file, file * MB)).collect();
    lab.give(Input::Archive(files));
    lab.report("d0", DriveReport::Mounted);
    // Four fill an aggregate; two wait until they are old enough, as files that are queued.
    assert_eq!(aggregates(&lab.effects), [(0, vec![1, 2, 3, 4])]);
    lab.report("d0", DriveReport::AggregateWritten);
    assert_eq!(lab.told(), []);
    let synced = lab.report("d0", DriveReport::Synced);
    let extent = AggregateExtent {
        begin_bytes: 0,
        size_bytes: 10 * MB + index_bytes(4),
    };
    let member = |file: u64, offset: u64| {
        let copy = TapeCopy {
            tape: tape_name("t"),
            begin_bytes: offset * MB,
            aggregate: Some(extent),
        };
        (file, RequestOutcome::Archived(vec![copy]))
    };
    let first = [member(1, 0), member(2, 1), member(3, 3), member(4, 6)];
    assert_eq!(lab.told(), first);
    assert_eq!(aggregates(&synced), []);
    lab.now_ns += MINUTE_NS;
    let late = lab.give(Input::Tick);
    let written = aggregates(&lab.effects);
    assert_eq!(
        written.last(),
        Some(&(extent.size_bytes, vec![5, 6])),
        "{late:?}"
    );
    lab.perform(late);
    assert_eq!(lab.told().len(), 6);
    let end = extent.size_bytes + aggregate_bytes([5 * MB, 6 * MB]);
    assert_eq!(lab.engine.live().tapes[&tape_name("t")].written_bytes, end);
}

#[test]
fn an_aggregate_is_closed_by_bytes_and_by_age_and_wakes_for_that() {
    let mut waiting = packing(10 * MB, 1_000, 30 * MINUTE_NS);
    waiting.dismount_delay_ns = 0;
    let mut lab = Lab::new(waiting, 1, &["t"]);
    let waits = lab.give(Input::Archive(vec![small(1, 4 * MB)]));
    assert_eq!(waits, [Effect::WakeAt(30 * MINUTE_NS)]);
    let full = lab.give(Input::Archive(vec![small(2, 4 * MB), small(3, 4 * MB)]));
    assert_eq!(mounted(&full).len(), 1);
    lab.perform(full);
    // The third does not fit into the aggregate with its index, and waits for its age.
    assert_eq!(aggregates(&lab.effects), [(0, vec![1, 2])]);
    assert_eq!(lab.told().len(), 2);
    lab.now_ns = 31 * MINUTE_NS;
    let aged = lab.give(Input::Tick);
    lab.perform(aged);
    assert_eq!(lab.told().len(), 3);
}

#[test]
fn a_crash_while_an_aggregate_is_written_loses_nothing() {
    let mut lab = Lab::new(packing(100 * MB, 3, 0), 1, &["t"]);
    lab.give(Input::Archive(
        (1..=3).map(|file| small(file, MB)).collect(),
    ));
    lab.report("d0", DriveReport::Mounted);
    assert_eq!(aggregates(&lab.effects).len(), 1);
    let kinds = lab.engine.kinds.clone();
    let rules = packing(100 * MB, 3, 0);
    let mut restored = RequestEngine::restore(rules, kinds, &lab.records);
    let ordered = restored.resume(lab.now_ns);
    lab.engine = restored;
    let mut acts = Vec::new();
    for effect in ordered {
        match effect {
            Effect::Persist(records) => lab.records.extend(records),
            effect => acts.push(effect),
        }
    }
    assert!(lab.told().is_empty());
    assert_eq!(lab.perform(acts), [1, 2, 3]);
    assert_eq!(lab.told().len(), 3);
}

#[test]
fn a_member_that_cannot_be_read_from_disk_fails_alone() {
    let mut lab = Lab::new(packing(100 * MB, 3, 0), 1, &["t"]);
    lab.give(Input::Archive(
        (1..=3).map(|file| small(file, MB)).collect(),
    ));
    lab.report("d0", DriveReport::Mounted);
    let again = lab.report("d0", DriveReport::NotTaken(FileId(2)));
    assert_eq!(lab.told(), [(2, RequestOutcome::NotTaken)]);
    assert_eq!(lab.perform(again), [1, 3]);
    assert_eq!(lab.told().len(), 3);
}

/// TREQS kept requests by their place on tape, and lost the second of an aggregate.
#[test]
fn two_members_of_one_aggregate_that_are_asked_for_together_both_come() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    let extent = AggregateExtent {
        begin_bytes: 70 * GB,
        size_bytes: 10 * GB,
    };
    let member = |request: u64, offset: u64, size_bytes: u64| {
        let mut request = recall(request, request, &[("t", 70 + offset)]);
        request.copies[0].aggregate = Some(extent);
        request.size_bytes = size_bytes;
        request
    };
    // An empty one and the one behind it begin at the same place.
    let members = vec![member(1, 0, 0), member(2, 0, GB), member(3, 4, GB)];
    let mounts = lab.give(Input::Recall(members));
    let mut files = lab.perform(mounts);
    files.sort_unstable();
    assert_eq!(files, [1, 2, 3]);
    let recalled = |request| (request, RequestOutcome::Recalled);
    let mut told = lab.told();
    told.sort_by_key(|(request, _)| *request);
    assert_eq!(told, [recalled(1), recalled(2), recalled(3)]);
    // Nothing else of the aggregate was read.
    let read: u64 = lab
        .effects
        .iter()
        .map(|effect| match effect {
            Effect::Read { size_bytes, .. } => *size_bytes,
            _ => 0,
        })
        .sum();
    assert_eq!(read, 2 * GB);
}

fn of_set(request: u64, name: &str, expected: u64) -> ArchiveRequest {
    let mut request = archive(request, 1);
    request.wishes.data_set = Some(data_set(name, expected));
    request
}

#[test]
fn a_data_set_waits_until_it_is_complete_and_lies_together() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    // Files of two data sets come in turn.
    for pair in 0..3 {
        let files = vec![
            of_set(2 * pair + 1, "odd", 4),
            of_set(2 * pair + 2, "even", 4),
        ];
        let effects = lab.give(Input::Archive(files));
        assert_eq!(mounted(&effects).len(), 0);
    }
    let complete = lab.give(Input::Archive(vec![
        of_set(7, "odd", 4),
        of_set(8, "even", 4),
    ]));
    assert_eq!(lab.perform(complete), [2, 4, 6, 8, 1, 3, 5, 7]);
    lab.give(Input::Tick);
    let live = lab.engine.live();
    assert!(live.data_sets.is_empty());
    let held = (HintSource::ClientMetadata, HintVerdict::Held);
    assert_eq!(live.hint_verdicts, BTreeMap::from([(held, 2)]));
}

#[test]
fn a_file_that_is_asked_for_again_is_counted_once_in_its_data_set() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    let files = [1, 2].map(|file| of_set(file, "pair", 2));
    lab.give(Input::Archive(files.to_vec()));
    lab.report("d0", DriveReport::Mounted);
    let came = |lab: &Lab| {
        let sets = lab.engine.live().data_sets.values();
        sets.map(|set| (set.came_files, set.came_bytes))
            .collect::<Vec<_>>()
    };
    assert_eq!(came(&lab), [(2, 2 * GB)]);
    let other = lab.report("d0", DriveReport::NotTaken(FileId(1)));
    assert_eq!(lab.told(), [(1, RequestOutcome::NotTaken)]);
    assert_eq!(came(&lab), [(1, GB)]);
    lab.perform(other);
    let again = lab.give(Input::Archive(vec![of_set(1, "pair", 2)]));
    assert_eq!(came(&lab), [(2, 2 * GB)]);
    lab.perform(again);
    lab.give(Input::Tick);
    let live = lab.engine.live();
    assert!(live.data_sets.is_empty());
    let held = (HintSource::ClientMetadata, HintVerdict::Held);
    assert_eq!(live.hint_verdicts, BTreeMap::from([(held, 1)]));
}

#[test]
fn a_data_set_waits_no_longer_than_allowed_and_an_empty_hint_is_told() {
    let mut patient = policy();
    patient.data_set_wait_ns = 45 * HOUR_NS;
    let mut lab = Lab::new(patient, 1, &["t"]);
    let waits = lab.give(Input::Archive(vec![of_set(1, "short", 1_000)]));
    assert_eq!(waits, [Effect::WakeAt(45 * HOUR_NS)]);
    lab.now_ns = 45 * HOUR_NS;
    let given_up = lab.give(Input::Tick);
    assert_eq!(lab.perform(given_up), [1]);
    let told = |lab: &Lab| {
        let told = lab.effects.iter().filter_map(|effect| match effect {
            Effect::HintFailed {
                verdict,
                came_files,
                expected_files,
                ..
            } => Some((*verdict, *came_files, *expected_files)),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(told(&lab), [(HintVerdict::Short, 1, Some(1_000))]);
    // A hint that names one file alone, and one that names nothing.
    let mut alone = of_set(2, "alone", 0);
    let mut blank = of_set(3, "/atlas", 0);
    for (request, is_blank) in [(&mut alone, false), (&mut blank, true)] {
        let set = request.wishes.data_set.as_mut().expect("set");
        set.expected_files = None;
        set.has_blank_hints = is_blank;
    }
    let written = lab.give(Input::Archive(vec![alone, blank]));
    lab.perform(written);
    lab.now_ns += 46 * HOUR_NS;
    lab.give(Input::Tick);
    assert_eq!(told(&lab).len(), 3);
    let counts = |verdict| {
        let counts = lab.engine.live().hint_verdicts.iter();
        let counts = counts.filter(|((_, of), _)| *of == verdict);
        counts.map(|(_, count)| *count).sum::<u64>()
    };
    let all = [HintVerdict::Short, HintVerdict::Lone, HintVerdict::Blank].map(counts);
    assert_eq!(all, [1, 2, 1]);
}

#[test]
fn each_drive_of_a_family_writes_a_data_set_of_its_own() {
    let mut wide = policy();
    wide.mount.bytes_min = 2 * GB;
    wide.mount.age_ns = HOUR_NS;
    let mut lab = Lab::new(wide, 2, &["t", "u"]);
    let files = (1..=8).map(|file| of_set(file, ["a", "b"][file as usize % 2], 4));
    lab.give(Input::Archive(files.collect()));
    lab.give(Input::Tick);
    assert_eq!(lab.count(is_mount), 2);
    let open: Vec<Effect> = ["d0", "d1"]
        .iter()
        .flat_map(|drive| lab.report(drive, DriveReport::Mounted))
        .collect();
    lab.perform(open);
    let mut by_tape: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for (request, outcome) in lab.told() {
        let RequestOutcome::Archived(copies) = outcome else {
            panic!("{outcome:?}");
        };
        let sets = by_tape.entry(copies[0].tape.0.to_string()).or_default();
        sets.insert(request % 2);
    }
    assert_eq!(by_tape.len(), 2);
    assert!(by_tape.values().all(|sets| sets.len() == 1), "{by_tape:?}");
}

#[test]
fn a_queue_that_was_empty_is_summed_up_anew() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    let mut gathering = policy();
    gathering.mount.age_ns = 15 * MINUTE_NS;
    gathering.dismount_delay_ns = 0;
    lab.engine.policy = gathering;
    lab.give(Input::Recall(vec![recall(1, 1, &[("t", 5)])]));
    lab.now_ns = 15 * MINUTE_NS;
    let mounts = lab.give(Input::Tick);
    lab.perform(mounts);
    lab.give(Input::Tick);
    // The same number of changes as before: the age is that of the new request.
    let waits = lab.give(Input::Recall(vec![recall(2, 2, &[("t", 5)])]));
    assert_eq!(mounted(&waits).len(), 0, "{waits:?}");
}

#[test]
fn what_drives_have_begun_leaves_the_sum_of_its_group() {
    let mut policy = packing(4 * GB, 3, 0);
    policy.sync_files = 2;
    let mut lab = Lab::new(policy, 1, &["t"]);
    let family = FamilyName("raw".into());
    let asked = |request: u64| {
        // Those of one VO are empty.
        let mut one = archive(request, (request % 4) * (1 + request % 3));
        one.wishes.is_packed = request.is_multiple_of(2);
        one.asker.vo = VoName(format!("vo-{}", request % 4).into());
        one.asker.priority = (request % 5) as u8;
        one.asker.deadline_ns = (!request.is_multiple_of(3)).then_some(request as i64 * HOUR_NS);
        one
    };
    let mut open =
        std::collections::VecDeque::from(lab.give(Input::Archive((0..24).map(asked).collect())));
    let mut compared = 0;
    while let Some(effect) = open.pop_front() {
        let groups = lab.engine.live.families.get(&family);
        let groups: Vec<_> = groups
            .into_iter()
            .flat_map(|groups| groups.keys().cloned())
            .collect();
        for group in groups {
            let sum = lab.engine.group_sum(&family, &group);
            let mut anew = lab.engine.clone();
            anew.group_tallies.clear();
            assert_eq!(sum, anew.group_sum(&family, &group), "{group:?}");
            compared += 1;
        }
        let (drive, report) = match effect {
            Effect::Mount { drive, .. } => (drive, DriveReport::Mounted),
            Effect::Write { drive, file, .. } => (drive, DriveReport::FileWritten(file)),
            Effect::WriteAggregate { drive, .. } => (drive, DriveReport::AggregateWritten),
            Effect::Sync { drive } => (drive, DriveReport::Synced),
            _ => continue,
        };
        open.extend(lab.report(&drive.0, report));
        // One more comes while others are being written.
        if compared == 10 {
            open.extend(lab.give(Input::Archive(vec![asked(24)])));
        }
    }
    assert_eq!(lab.told().len(), 25);
    assert!(compared > 30, "{compared} sums");
}

/// Files of a gigabyte come every so many seconds, for so long: seconds for which the drive was occupied, mounts, and files that were
/// told. The engine alone, since comparing all records at each step takes long.
fn trickle(every_seconds: i64, hours: i64, policy: TapePolicy) -> (i64, usize, usize) {
    let mut engine = Lab::new(policy, 1, &["t"]).engine;
    let mut reports: BTreeMap<i64, DriveReport> = BTreeMap::new();
    let (mut request, mut next_file, mut wake) = (0, 0, None);
    let (mut occupied, mut mounted_at, mut mounts, mut told) = (0, 0, 0, 0);
    for _ in 0..100_000 {
        let file_at = (next_file < hours * 3_600).then_some(next_file);
        let report_at = reports.keys().next().copied();
        let Some(second) = [file_at, report_at, wake].into_iter().flatten().min() else {
            break;
        };
        let input = if report_at == Some(second) {
            let report = reports.remove(&second).expect("it is there");
            let drive = drive_name("d0");
            if report == DriveReport::Dismounted {
                occupied += second - mounted_at;
            }
            Input::Report { drive, report }
        } else if file_at == Some(second) {
            (request, next_file) = (request + 1, next_file + every_seconds);
            Input::Archive(vec![archive(request, 1)])
        } else {
            wake = None;
            Input::Tick
        };
        for effect in engine.handle(second * SECOND_NS, input) {
            let (took, report) = match effect {
                Effect::Mount { .. } => {
                    (mounts, mounted_at) = (mounts + 1, second);
                    (60, DriveReport::Mounted)
                }
                Effect::Write { file, .. } => (3, DriveReport::FileWritten(file)),
                Effect::Sync { .. } => (3, DriveReport::Synced),
                Effect::Dismount { .. } => (80, DriveReport::Dismounted),
                Effect::Tell { .. } => {
                    told += 1;
                    continue;
                }
                Effect::WakeAt(at_ns) => {
                    let at = (at_ns + SECOND_NS - 1) / SECOND_NS;
                    wake = Some(at).filter(|at| *at < (hours + 4) * 3_600);
                    continue;
                }
                _ => continue,
            };
            assert_eq!(
                reports.insert(second + took, report),
                None,
                "one thing at a time"
            );
        }
    }
    (occupied, mounts, told)
}

#[test]
fn a_mount_that_is_underfed_is_ended_and_files_gather() {
    let mut gathering = policy();
    gathering.mount.age_ns = 1_800 * SECOND_NS;
    let mut endless = gathering.clone();
    endless.trickle.fed_permille_min = 0;
    let (kept, _, all) = trickle(20, 6, endless);
    let (ended, mounts, told) = trickle(20, 6, gathering.clone());
    println!(
        "a file each 20 s for 6 h: a drive for {kept} s, with a watch for {ended} s, {mounts} mounts"
    );
    assert_eq!((all, told), (1_080, 1_080));
    assert!(ended * 2 < kept, "{ended} {kept}");
    assert!((6..=12).contains(&mounts), "{mounts}");
    // A drive that has enough to do is left alone.
    let (_, mounts, told) = trickle(4, 6, gathering);
    assert_eq!((mounts, told), (1, 5_400));
}

#[test]
fn archiving_by_cycles_takes_all_that_is_queued_when_one_ends() {
    let mut cyclic = policy();
    cyclic.mount.age_ns = 1_000 * HOUR_NS;
    cyclic.mount.cycle_ns = Some(6 * HOUR_NS);
    cyclic.mount.family_cycles_ns = BTreeMap::from([(FamilyName("quick".into()), HOUR_NS)]);
    let mut lab = Lab::new(cyclic, 2, &["t", "u"]);
    lab.now_ns = 7 * HOUR_NS + MINUTE_NS;
    let mut quick = archive(2, 1);
    quick.family = FamilyName("quick".into());
    let waits = lab.give(Input::Archive(vec![archive(1, 1), quick]));
    assert_eq!(waits, [Effect::WakeAt(8 * HOUR_NS)]);
    lab.now_ns = 8 * HOUR_NS;
    let first = lab.give(Input::Tick);
    assert_eq!(lab.perform(first), [2]);
    lab.now_ns = 11 * HOUR_NS;
    let idle = lab.give(Input::Tick);
    lab.perform(idle);
    lab.now_ns = 12 * HOUR_NS;
    let second = lab.give(Input::Tick);
    assert_eq!(lab.perform(second), [1]);
}

fn verification(request: u64, file: u64, copies: &[(&str, u64)]) -> RecallRequest {
    let mut request = recall(request, file, copies);
    request.purpose = ReadPurpose::Verification;
    request
}

#[test]
fn a_user_who_comes_while_a_file_is_verified_has_it_read_to_disk_after_that() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    lab.give(Input::Recall(vec![verification(1, 7, &[("t", 5)])]));
    let begun = lab.report("d0", DriveReport::Mounted);
    assert!(
        matches!(begun.as_slice(), [Effect::Verify { .. }, ..]),
        "{begun:?}"
    );
    lab.give(Input::Recall(vec![recall(2, 7, &[("t", 5)])]));
    let next = lab.report("d0", DriveReport::FileVerified(FileId(7)));
    assert_eq!(lab.told(), [(1, RequestOutcome::Verified)]);
    assert!(has_read(&next, 7), "{next:?}");
    // And whoever verifies what is read to disk anyway is served by that.
    lab.give(Input::Recall(vec![verification(3, 7, &[("t", 5)])]));
    lab.report("d0", DriveReport::FileRead(FileId(7)));
    let ended = [(2, RequestOutcome::Recalled), (3, RequestOutcome::Verified)];
    assert_eq!(lab.told()[1..], ended);
}

#[test]
fn a_copy_that_fails_its_verification_leaves_users_their_other_copy() {
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    lab.give(Input::Recall(vec![verification(1, 7, &[("t", 5)])]));
    lab.report("d0", DriveReport::Mounted);
    lab.give(Input::Recall(vec![recall(2, 7, &[("t", 5), ("u", 9)])]));
    // What is to be verified is another copy than the one that is read: not now.
    lab.give(Input::Recall(vec![verification(3, 7, &[("u", 9)])]));
    let next = lab.report("d0", DriveReport::Failed(TapeErrorScope::File));
    let bad = RequestOutcome::NoCopyLeft(TapeErrorScope::File);
    assert_eq!(lab.told(), [(3, RequestOutcome::NotTaken), (1, bad)]);
    assert_eq!(lab.perform(next), [7]);
    assert_eq!(lab.told().last(), Some(&(2, RequestOutcome::Recalled)));
}

#[test]
fn a_copy_that_cannot_be_read_is_one_incident_of_its_tape_until_it_is_mended() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    let files = [7, 8].map(|file| verification(file, file, &[("t", file * 5)]));
    lab.give(Input::Recall(files.to_vec()));
    lab.report("d0", DriveReport::Mounted);
    let incident = TapeIncident::FilesUnreadable(tape_name("t"));
    let opened = Effect::Open(incident.clone());
    let fail = |lab: &mut Lab| lab.report("d0", DriveReport::Failed(TapeErrorScope::File));
    assert!(fail(&mut lab).contains(&opened));
    assert!(!fail(&mut lab).contains(&opened), "it is told once");
    let verification = &lab.engine.live().care[&tape_name("t")].verification;
    assert_eq!(verification.unreadable_files, 2);
    // Nobody asks for them any more, and a restart knows them all the same.
    let records = lab.records.clone();
    assert_eq!(LiveSet::of(&records).unreadable.file_count(), 2);
    let closed = Effect::Close(incident);
    let mended = |file| Input::CopyMended {
        file: FileId(file),
        copy: unreadable("t", file * 5),
    };
    let first = lab.give(mended(7));
    assert!(!first.contains(&closed), "{first:?}");
    assert!(lab.give(mended(8)).contains(&closed));
    // What is read after all is mended as well.
    lab.give(Input::Recall(vec![recall(9, 9, &[("t", 700)])]));
    let next = fail(&mut lab);
    assert!(next.contains(&opened), "{next:?}");
    let again = lab.give(Input::Recall(vec![recall(10, 9, &[("t", 700)])]));
    assert_eq!(lab.perform(again), [9]);
    assert!(lab.engine.live().unreadable.is_empty());
}

fn unreadable(tape: &str, begin: u64) -> UnreadableCopy {
    UnreadableCopy {
        tape: tape_name(tape),
        begin_bytes: begin * GB,
    }
}

#[test]
fn each_copy_of_a_file_that_cannot_be_read_is_known_until_it_is_mended() {
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    let file = FileId(7);
    let copies = [("t", 5), ("u", 9)];
    let place = |(tape, begin): (&str, u64)| TapeCopy::alone(tape_name(tape), begin * GB);
    let states = |lab: &Lab| {
        let live = lab.engine.live();
        copies.map(|copy| live.copy_state(file, &place(copy), (0, i64::MAX)))
    };
    for (request, copy) in (1..).zip(copies) {
        lab.give(Input::Recall(vec![verification(request, 7, &[copy])]));
        lab.report("d0", DriveReport::Mounted);
        lab.report("d0", DriveReport::Failed(TapeErrorScope::File));
        lab.give(Input::Tick);
        lab.now_ns += HOUR_NS;
        lab.give(Input::Tick);
        lab.report("d0", DriveReport::Dismounted);
    }
    assert_eq!(states(&lab), [CopyState::Lost, CopyState::Lost]);
    // A user has it from one of them after all. That tells nothing of the other one.
    let asked = lab.give(Input::Recall(vec![recall(9, 7, &copies[..1])]));
    assert_eq!(lab.perform(asked), [7]);
    assert_eq!(states(&lab), [CopyState::Good, CopyState::Lost]);
    let at_another_place = unreadable("u", 8);
    lab.give(Input::CopyMended {
        file,
        copy: at_another_place,
    });
    assert_eq!(states(&lab), [CopyState::Good, CopyState::Lost]);
    let closed = Effect::Close(TapeIncident::FilesUnreadable(tape_name("u")));
    let copy = unreadable("u", 9);
    let mended = lab.give(Input::CopyMended { file, copy });
    assert!(mended.contains(&closed), "{mended:?}");
    assert_eq!(states(&lab), [CopyState::Good, CopyState::Good]);
}

#[test]
fn background_work_takes_few_drives_and_rests_while_it_is_held() {
    let mut lab = Lab::new(policy(), 3, &["t", "u", "v"]);
    lab.give(Input::HoldBackground { until_ns: HOUR_NS });
    let tapes = [(1, "t"), (2, "u"), (3, "v")];
    let all = tapes.map(|(file, tape)| verification(file, file, &[(tape, 5)]));
    let held = lab.give(Input::Recall(all.to_vec()));
    assert_eq!(
        (mounted(&held).len(), held.last()),
        (0, Some(&Effect::WakeAt(HOUR_NS)))
    );
    let user = lab.give(Input::Recall(vec![recall(9, 9, &[("t", 700)])]));
    assert_eq!(mounted(&user), ["t"]);
    assert_eq!(
        lab.perform(user),
        [9],
        "not even what lies on the same tape"
    );
    lab.now_ns = HOUR_NS;
    let one = lab.give(Input::Tick);
    let mounts = mounted(&one).len();
    assert!(mounts <= 1, "{one:?}");
    let mut open = one;
    for _ in 0..10 {
        lab.perform(open);
        lab.now_ns += MINUTE_NS;
        open = lab.give(Input::Tick);
    }
    let verified = |told: &&(u64, RequestOutcome)| told.1 == RequestOutcome::Verified;
    assert_eq!(lab.told().iter().filter(verified).count(), 3);
}

#[test]
fn a_relabel_goes_on_after_a_restart_until_it_is_done() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    let tape = tape_name("t");
    let order = RelabelOrder::Operator;
    let ask = |lab: &mut Lab| {
        let (tape, found) = (tape.clone(), TapeUse::default());
        lab.give(Input::Relabel { tape, found, order })
    };
    let refused = ask(&mut lab);
    assert!(
        matches!(refused.as_slice(), [Effect::RelabelRefused { .. }, ..]),
        "{refused:?}"
    );
    let state = TapeState::ReadOnly;
    lab.give(Input::TapeChanged {
        tape: tape.clone(),
        state,
    });
    let relabel = Effect::Relabel { tape: tape.clone() };
    assert!(ask(&mut lab).contains(&relabel));
    let kinds = lab.engine.kinds.clone();
    let mut restored = RequestEngine::restore(policy(), kinds, &lab.records);
    assert!(restored.resume(lab.now_ns).contains(&relabel));
    // Nothing is written to it before that is done.
    let waits = lab.give(Input::Archive(vec![archive(1, 1)]));
    assert_eq!(mounted(&waits).len(), 0);
    let written = lab.give(Input::Relabeled(tape));
    assert_eq!(lab.perform(written), [1]);
}
