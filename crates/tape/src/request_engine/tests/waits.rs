//! Why files wait for a tape.

use super::*;
use crate::drive_pool::{DriveActivity, DriveFault};
use crate::mount_decision::MountWait;
use crate::record::{TapeFault, TapeFinding};

fn recall_wait(lab: &Lab, tape: &str) -> Option<QueueWait> {
    let waits = lab.engine.recall_waits(lab.now_ns);
    waits.get(&tape_name(tape)).cloned()
}

fn archive_wait(lab: &Lab) -> Option<QueueWait> {
    let waits = lab.engine.archive_waits();
    waits.get(&FamilyName("raw".into())).cloned()
}

#[test]
fn files_that_are_not_worth_a_mount_say_until_when_they_wait() {
    let mut policy = policy();
    policy.mount.age_ns = HOUR_NS;
    policy.mount.archive_age_ns = Some(2 * HOUR_NS);
    let mut lab = Lab::new(policy, 2, &["t", "u"]);
    lab.now_ns = MINUTE_NS;
    lab.give(Input::Recall(vec![recall(1, 1, &[("t", 5)])]));
    lab.give(Input::Archive(vec![archive(2, 10)]));
    let not_worth = |gigabytes: u64, until_ns| QueueWait::Mount {
        wait: MountWait::NotWorthIt {
            bytes: gigabytes * GB,
            files: 1,
            age_ns: 0,
            until_ns,
        },
        vo: VoName("atlas".into()),
    };
    let read = not_worth(2, MINUTE_NS + HOUR_NS);
    let written = not_worth(10, MINUTE_NS + 2 * HOUR_NS);
    assert_eq!(recall_wait(&lab, "t"), Some(read));
    assert_eq!(archive_wait(&lab), Some(written));
    lab.now_ns += HOUR_NS;
    lab.give(Input::Tick);
    assert_eq!(recall_wait(&lab, "t"), None, "it is being mounted");
}

#[test]
fn bounds_and_drives_in_use_are_told_as_what_they_are() {
    let mut bounded = policy();
    bounded.mount.vo_drives_max = BTreeMap::from([(VoName("atlas".into()), 1)]);
    let mut lab = Lab::new(bounded, 3, &["t", "u", "v"]);
    let other = |request, file, tape| {
        let mut other = recall(request, file, &[(tape, 5)]);
        other.asker.vo = VoName("cms".into());
        other
    };
    lab.give(Input::Recall(vec![
        recall(1, 1, &[("t", 5)]),
        recall(2, 2, &[("u", 5)]),
    ]));
    let wait = MountWait::VoBusy { max: 1 };
    let vo = VoName("atlas".into());
    assert_eq!(recall_wait(&lab, "u"), Some(QueueWait::Mount { wait, vo }));
    let mut lab = Lab::new(policy(), 1, &["t", "u", "v"]);
    lab.give(Input::Recall(vec![other(1, 1, "t"), other(2, 2, "u")]));
    assert_eq!(recall_wait(&lab, "u"), Some(QueueWait::NoFreeDrive));
    lab.give(Input::Archive(vec![archive(3, 10)]));
    assert_eq!(archive_wait(&lab), Some(QueueWait::NoFreeDrive));
}

#[test]
fn what_does_not_work_is_named() {
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    lab.give(Input::Recall(vec![recall(1, 1, &[("t", 5)])]));
    lab.report("d0", DriveReport::Failed(TapeErrorScope::Library));
    let paused = recall_wait(&lab, "t");
    assert!(matches!(paused, Some(QueueWait::LibraryPaused { probe_ns }) if probe_ns > lab.now_ns));
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    lab.give(Input::Recall(vec![
        recall(1, 1, &[("t", 5)]),
        recall(2, 2, &[("u", 5)]),
    ]));
    let tape = tape_name("u");
    let state = TapeState::Disabled;
    lab.give(Input::TapeChanged { tape, state });
    assert_eq!(recall_wait(&lab, "u"), Some(QueueWait::TapeNotInUse));
    // The tape that is on its way stays in the drive that fails.
    lab.report("d0", DriveReport::Failed(TapeErrorScope::Drive));
    let down = QueueWait::DriveDown(drive_name("d0"));
    assert_eq!(recall_wait(&lab, "t"), Some(down));
    lab.give(Input::Recall(vec![recall(3, 3, &[("u", 9)])]));
    let mut lab = Lab::new(policy(), 0, &["t"]);
    lab.give(Input::Recall(vec![recall(1, 1, &[("t", 5)])]));
    assert_eq!(recall_wait(&lab, "t"), Some(QueueWait::NoDrive));
    let mut lab = Lab::new(policy(), 1, &[]);
    lab.give(Input::Archive(vec![archive(1, 10)]));
    assert_eq!(archive_wait(&lab), Some(QueueWait::NoTapeLeft));
    let mut lab = Lab::new(policy(), 1, &["t"]);
    lab.give(Input::DriveDown(drive_name("d0")));
    lab.give(Input::Archive(vec![archive(1, 10)]));
    assert_eq!(archive_wait(&lab), Some(QueueWait::NoDrive));
}

#[test]
fn a_tape_for_which_no_drive_works_is_a_tape_all_the_same() {
    let mut lab = archives::two_libraries(policy());
    lab.report("e0", DriveReport::Failed(TapeErrorScope::Drive));
    lab.give(Input::DriveDown(drive_name("e0")));
    let asked = lab.give(Input::Archive(vec![archives::copies_wanted(1, 2)]));
    let is_lost = |effect: &Effect| matches!(effect, Effect::Open(TapeIncident::NoTapeLeft(_)));
    assert!(!asked.iter().any(is_lost), "{asked:?}");
    lab.perform(asked);
    // The drive of the first copy is free again.
    lab.now_ns += HOUR_NS;
    let dismounts = lab.give(Input::Tick);
    lab.perform(dismounts);
    assert_eq!(archive_wait(&lab), Some(QueueWait::NoDrive));
    assert!(!lab.effects.iter().any(is_lost), "{:?}", lab.effects);
}

#[test]
fn what_showed_a_fault_is_kept_with_it() {
    let mut lab = Lab::new(policy(), 1, &["t", "u"]);
    let fault = |lab: &Lab, tape| lab.engine.live().tapes[&tape_name(tape)].fault.clone();
    lab.give(Input::Recall(vec![recall(1, 1, &[("t", 5)])]));
    lab.report("d0", DriveReport::Failed(TapeErrorScope::Tape));
    let finding = TapeFinding::Error(DriveActivity::Mount);
    let drive = drive_name("d0");
    assert_eq!(fault(&lab, "t"), Some(TapeFault { drive, finding }));
    let (tape, state) = (tape_name("t"), TapeState::Active);
    lab.give(Input::TapeChanged { tape, state });
    assert_eq!(fault(&lab, "t"), None);
    lab.report("d0", DriveReport::Dismounted);
    let down = |lab: &Lab| match lab.engine.state(&drive_name("d0")) {
        Some(DriveState::Down { fault, .. }) => *fault,
        other => panic!("{other:?}"),
    };
    let given_up = |activity, is_silent| DriveFault {
        activity,
        is_silent,
    };
    lab.give(Input::Recall(vec![recall(2, 2, &[("u", 5)])]));
    lab.now_ns += HOUR_NS;
    lab.give(Input::Tick);
    assert_eq!(down(&lab), Some(given_up(DriveActivity::Mount, true)));
    lab.give(Input::DriveUp(drive_name("d0")));
    lab.report("d0", DriveReport::Mounted);
    lab.report("d0", DriveReport::Failed(TapeErrorScope::Drive));
    assert_eq!(down(&lab), Some(given_up(DriveActivity::Read, false)));
}

#[test]
fn no_end_is_foretold_of_what_no_drive_can_bring() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    let mut asked = recall(1, 1, &[("t", 5)]);
    asked.asker.lease_ns = i64::MAX;
    lab.give(Input::Recall(vec![asked]));
    let times = ForecastTimes { carry_ns: 0 };
    let ends = |lab: &Lab| lab.engine.forecast(lab.now_ns, times).ends_ns;
    assert!(ends(&lab).contains_key(&RequestId(1)));
    lab.give(Input::DriveDown(drive_name("d0")));
    assert_eq!(ends(&lab), BTreeMap::new());
}

#[test]
fn a_family_that_waits_for_its_data_set_says_so() {
    let mut lab = Lab::new(policy(), 1, &["t"]);
    let mut of_set = archive(1, 1);
    of_set.wishes.data_set = Some(data_set("odd", 4));
    lab.give(Input::Archive(vec![of_set]));
    let until_ns = policy().data_set_wait_ns;
    assert_eq!(archive_wait(&lab), Some(QueueWait::Collecting { until_ns }));
}

#[test]
fn background_work_says_what_holds_it() {
    let mut lab = Lab::new(policy(), 3, &["t", "u"]);
    lab.give(Input::HoldBackground { until_ns: HOUR_NS });
    let mut verification = recall(1, 1, &[("t", 5)]);
    verification.purpose = ReadPurpose::Verification;
    let mut other = verification.clone();
    (other.request, other.file) = (RequestId(2), FileId(2));
    other.copies = recall(2, 2, &[("u", 5)]).copies;
    lab.give(Input::Recall(vec![verification, other]));
    let until_ns = HOUR_NS;
    let held = QueueWait::BackgroundHeld { until_ns };
    assert_eq!(recall_wait(&lab, "t"), Some(held));
    lab.now_ns = HOUR_NS;
    lab.give(Input::Tick);
    let waits = lab.engine.recall_waits(lab.now_ns);
    let busy = QueueWait::BackgroundBusy { max: 1 };
    assert!(
        waits.values().all(|wait| *wait == busy) && waits.len() == 1,
        "{waits:?}"
    );
}
