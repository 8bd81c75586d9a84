//! What is configured at a start, and what is found in drives.

use super::*;

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
    Inventory {
        libraries: BTreeMap::new(),
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
    let before = lab.records.len();
    let again = lab.restart(inventory(&[("d0", Some("t")), ("d1", None)], &["t", "u"]));
    assert!(has_read(&again, 1));
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
