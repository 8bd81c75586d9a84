//! What is configured at a start, and what is found in drives.

use super::*;
use crate::request::LibraryId;

const TWO: [&str; 2] = ["d0", "d1"];

fn inventory(drives: &[(&str, Option<&str>)], tapes: &[&str]) -> Inventory {
    let drive = |(name, tape): &(&str, Option<&str>)| {
        let found = FoundDrive {
            library: LibraryName("l".into()),
            kind: "LTO-8".to_owned(),
            tape: tape.map(tape_name),
        };
        (drive_name(name), found)
    };
    let id = LibraryId("one".into());
    Inventory {
        libraries: BTreeMap::from([(LibraryName("l".into()), id)]),
        drives: drives.iter().map(drive).collect(),
        tapes: tapes
            .iter()
            .map(|tape| (tape_name(tape), tape_facts()))
            .collect(),
    }
}

impl Lab {
    /// A start with what is configured then.
    fn restart(&mut self, inventory: Inventory) -> Vec<Effect> {
        let (policy, kinds) = (self.engine.policy.clone(), self.engine.kinds.clone());
        self.engine = RequestEngine::restore(policy, kinds, &self.records);
        let mut acts = Vec::new();
        let taken = self.engine.take_inventory(self.now_ns, inventory);
        let resumed = self.engine.resume(self.now_ns);
        for effect in taken.into_iter().chain(resumed) {
            match effect {
                Effect::Persist(records) => self.records.extend(records),
                effect => acts.push(effect),
            }
        }
        assert_eq!(LiveSet::of(&self.records), *self.engine.live());
        self.effects.extend(acts.clone());
        acts
    }

    fn state(&self, drive: &str) -> Option<&DriveState> {
        self.engine.state(&drive_name(drive))
    }
}

#[test]
fn what_is_configured_as_before_changes_nothing() {
    let mut lab = Lab::new(policy(), 2, &["t", "u"]);
    let asked = lab.give(Input::Recall(vec![recall(1, 1, &[("t", 5)])]));
    assert_eq!(lab.count(is_mount), 1);
    drop(asked);
    lab.report("d0", DriveReport::Mounted);
    let as_before = || inventory(&[("d0", Some("t")), ("d1", None)], &["t", "u"]);
    assert!(has_read(&lab.restart(as_before()), 1));
    let before = lab.records.len();
    assert!(has_read(&lab.restart(as_before()), 1));
    assert_eq!(lab.records.len(), before);
}

#[test]
fn a_tape_in_a_drive_that_is_no_longer_configured_is_used_in_another() {
    let mut lab = Lab::new(policy(), 2, &["t", "u"]);
    lab.give(Input::Recall(vec![
        recall(1, 1, &[("t", 5)]),
        recall(2, 2, &[("u", 5)]),
    ]));
    for drive in TWO {
        lab.report(drive, DriveReport::Mounted);
    }
    // Its cartridge is back in its slot.
    let again = lab.restart(inventory(&[("d0", Some("t"))], &["t", "u"]));
    assert_eq!(lab.state("d1"), None);
    assert_eq!(lab.count(|effect| matches!(effect, Effect::Open(_))), 0);
    let mut read = lab.perform(again);
    read.sort_unstable();
    assert_eq!(read, [1, 2]);
    // One that is down is gone as well.
    lab.report("d0", DriveReport::Failed(TapeErrorScope::Drive));
    lab.restart(inventory(&[("d1", None)], &["t", "u"]));
    assert_eq!(
        (lab.state("d0"), lab.state("d1")),
        (None, Some(&DriveState::Free))
    );
}

#[test]
fn a_tape_that_is_no_longer_configured_is_not_waited_for_and_returns_by_itself() {
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    let both = vec![
        recall(1, 1, &[("t", 5)]),
        recall(2, 2, &[("t", 50), ("u", 50)]),
    ];
    lab.give(Input::Recall(both));
    let again = lab.restart(inventory(&[("d0", None)], &["u"]));
    assert_eq!(lab.told(), [(1, RequestOutcome::NoTape)]);
    assert_eq!(lab.perform(again), [2]);
    lab.give(Input::Recall(vec![recall(3, 1, &[("t", 5)])]));
    assert_eq!(lab.told().last(), Some(&(3, RequestOutcome::NoTape)));
    assert_eq!(lab.count(|effect| matches!(effect, Effect::Open(_))), 0);
    let (tape, found) = (tape_name("t"), TapeUse::default());
    let order = RelabelOrder::Operator;
    let refused = lab.give(Input::Relabel { tape, found, order });
    assert!(matches!(
        refused[..],
        [Effect::RelabelRefused {
            because: RelabelRefusal::Retired,
            ..
        }]
    ));
    lab.restart(inventory(&[("d0", None)], &["t", "u"]));
    let asked = lab.give(Input::Recall(vec![recall(4, 1, &[("t", 5)])]));
    assert_eq!(lab.perform(asked), [1]);
}

#[test]
fn a_mount_of_a_tape_that_was_taken_out_of_the_configuration_is_given_up() {
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    lab.give(Input::Archive(vec![archive(1, 10)]));
    assert!(
        matches!(lab.state("d0"), Some(DriveState::Mounting { tape, .. }) if tape.0.as_ref() == "t")
    );
    let again = lab.restart(inventory(&[("d0", Some("t"))], &["u"]));
    assert!(matches!(again[0], Effect::Dismount { .. }));
    assert_eq!(lab.perform(again), [1]);
    let on_u = RequestOutcome::Archived(vec![TapeCopy::alone(tape_name("u"), 0)]);
    assert_eq!(lab.told(), [(1, on_u)]);
}

#[test]
fn a_drive_that_holds_another_tape_than_was_recorded_is_free() {
    let mut lab = Lab::new(policy(), 2, &["t", "u"]);
    lab.give(Input::Recall(vec![recall(1, 1, &[("t", 5)])]));
    lab.report("d0", DriveReport::Mounted);
    lab.give(Input::DriveDown(drive_name("d1")));
    // As with records of an older backup: its library knows better.
    let again = lab.restart(inventory(&[("d0", None), ("d1", None)], &["t", "u"]));
    assert_eq!(lab.perform(again), [1]);
    assert!(matches!(lab.state("d1"), Some(DriveState::Down { .. })));
}

#[test]
fn a_drive_that_an_operator_takes_out_of_use_is_no_incident() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    lab.give(Input::Recall(vec![recall(1, 1, &[("t", 5)])]));
    lab.report("d0", DriveReport::Mounted);
    let down = lab.give(Input::DriveDown(drive_name("d0")));
    let drive = drive_name("d0");
    assert!(down.contains(&Effect::Abort { drive }));
    assert_eq!(lab.count(|effect| matches!(effect, Effect::Open(_))), 0);
    // What it still says is nothing new.
    lab.report("d0", DriveReport::Failed(TapeErrorScope::Drive));
    assert_eq!(lab.count(|effect| matches!(effect, Effect::Open(_))), 0);
    let up = lab.give(Input::DriveUp(drive_name("d0")));
    assert!(!up.iter().any(|effect| matches!(effect, Effect::Close(_))));
    assert_eq!(lab.perform(up), [1]);
}

fn ends(lab: &mut Lab, drive: &str, end_bytes: u64) -> Vec<Effect> {
    lab.report(drive, DriveReport::DataEnds { end_bytes })
}

#[test]
fn a_tape_that_holds_more_than_is_recorded_is_written_on_behind_it() {
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    lab.give(Input::Archive(vec![archive(1, 10)]));
    ends(&mut lab, "d0", 70 * GB);
    let written = lab.report("d0", DriveReport::Mounted);
    lab.perform(written);
    let behind = RequestOutcome::Archived(vec![TapeCopy::alone(tape_name("t"), 70 * GB)]);
    assert_eq!(lab.told(), [(1, behind)]);
    let tape = &lab.engine.live().tapes[&tape_name("t")];
    assert_eq!((tape.written_bytes, tape.synced_bytes), (80 * GB, 80 * GB));
}

#[test]
fn a_tape_that_has_lost_what_was_safe_is_broken_and_one_that_lost_a_tail_is_written_on() {
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    let first = lab.give(Input::Archive(vec![archive(1, 10)]));
    lab.perform(first);
    lab.give(Input::Archive(vec![archive(2, 5)]));
    lab.report("d0", DriveReport::FileWritten(FileId(2)));
    lab.report("d0", DriveReport::Failed(TapeErrorScope::Drive));
    // The second is not there: it was never safe.
    lab.give(Input::DriveUp(drive_name("d0")));
    ends(&mut lab, "d0", 10 * GB);
    let again = lab.report("d0", DriveReport::Mounted);
    lab.perform(again);
    let second = RequestOutcome::Archived(vec![TapeCopy::alone(tape_name("t"), 10 * GB)]);
    assert_eq!(lab.told()[1], (2, second));
    lab.now_ns += HOUR_NS;
    let idle = lab.give(Input::Tick);
    lab.perform(idle);
    // An older copy of the tape, or another one.
    lab.give(Input::Archive(vec![archive(3, 5)]));
    let lost = ends(&mut lab, "d0", 10 * GB);
    let broken = TapeIncident::TapeBroken(tape_name("t"));
    assert!(lost.contains(&Effect::Open(broken)), "{lost:?}");
    assert_eq!(lab.perform(lost), [3]);
    let third = RequestOutcome::Archived(vec![TapeCopy::alone(tape_name("u"), 0)]);
    assert_eq!(lab.told()[2], (3, third));
    // An operator takes it as it is.
    lab.now_ns += HOUR_NS;
    let idle = lab.give(Input::Tick);
    lab.perform(idle);
    let (tape, state) = (tape_name("t"), TapeState::Active);
    lab.give(Input::TapeChanged { tape, state });
    lab.give(Input::Recall(vec![recall(4, 1, &[("t", 0)])]));
    ends(&mut lab, "d0", 10 * GB);
    let read = lab.report("d0", DriveReport::Mounted);
    assert_eq!(lab.perform(read), [1]);
}

#[test]
fn a_tape_that_ended_early_is_as_long_as_its_label_says_when_it_is_written_anew() {
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    let first = lab.give(Input::Archive(vec![archive(1, 10)]));
    lab.perform(first);
    lab.give(Input::Archive(vec![archive(2, 5)]));
    lab.report("d0", DriveReport::TapeFull);
    lab.now_ns += HOUR_NS;
    let other = lab.give(Input::Tick);
    lab.perform(other);
    let on_u = RequestOutcome::Archived(vec![TapeCopy::alone(tape_name("u"), 0)]);
    assert_eq!(lab.told()[1], (2, on_u));
    let tape = |lab: &Lab| lab.engine.live().tapes[&tape_name("t")].clone();
    assert_eq!(tape(&lab).free_bytes(), 0);
    assert_eq!(tape(&lab).capacity_bytes, 12_000 * GB);
    // A shorter one is configured.
    let mut shorter = inventory(&[("d0", None)], &["t", "u"]);
    let facts = shorter.tapes.get_mut(&tape_name("t")).expect("there");
    facts.capacity_bytes = 1_000 * GB;
    lab.restart(shorter);
    assert_eq!(
        (tape(&lab).capacity_bytes, tape(&lab).written_bytes),
        (1_000 * GB, 10 * GB)
    );
    let state = TapeState::ReadOnly;
    lab.give(Input::TapeChanged {
        tape: tape_name("t"),
        state,
    });
    let (found, order) = (TapeUse::default(), RelabelOrder::Operator);
    lab.give(Input::Relabel {
        tape: tape_name("t"),
        found,
        order,
    });
    lab.give(Input::Relabeled(tape_name("t")));
    assert_eq!(tape(&lab).free_bytes(), 1_000 * GB);
}

#[test]
fn a_library_that_is_no_longer_configured_is_not_paused() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    lab.give(Input::Archive(vec![archive(1, 10)]));
    lab.report("d0", DriveReport::Mounted);
    lab.report("d0", DriveReport::LibraryFull);
    lab.report("d0", DriveReport::Failed(TapeErrorScope::Library));
    let live = lab.engine.live();
    assert_eq!((live.libraries.len(), live.full_libraries.len()), (1, 1));
    lab.restart(inventory(&[("d0", Some("t"))], &["t"]));
    assert_eq!(lab.engine.live().full_libraries.len(), 1);
    lab.restart(Inventory::default());
    let live = lab.engine.live();
    assert!(live.libraries.is_empty() && live.full_libraries.is_empty());
    assert!(live.drives.0.is_empty());
}
