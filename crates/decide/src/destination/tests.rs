use super::*;
use crate::record_clock::RecordClock;
use penstock_model::{Concern, Errno, Failure, Phase, Retry, Side};

const LIMIT: Duration = Duration::from_secs(600);

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1000)
}

fn exact(seconds: i64) -> RecordedTime {
    RecordedTime::exact(at(seconds))
}

fn started() -> TransferEvent {
    TransferEvent::Started {
        attempt: Attempt(1),
        node: None,
    }
}

fn prepared(replaces: bool) -> TransferEvent {
    TransferEvent::Prepared {
        attempt: Attempt(1),
        size: Some(Bytes(100)),
        checksum: None,
        replaces,
    }
}

fn lost() -> TransferEvent {
    TransferEvent::AttemptLost {
        attempt: Attempt(1),
        reason: "test".into(),
    }
}

fn failed(cleaned: bool) -> TransferEvent {
    TransferEvent::AttemptFailed {
        attempt: Attempt(1),
        failure: Failure {
            side: Side::Destination,
            retry: Retry::Later,
            concern: Concern::Link,
            phase: Phase::Transfer,
            errno: Errno::EIO,
            detail: String::new(),
            found: None,
            busy: None,
            code: None,
        },
        retry_at: None,
        cleaned,
        excused: false,
        stages: false,
        moved: None,
    }
}

fn attempts(events: &[(i64, TransferEvent)]) -> Attempts {
    let mut attempts = Attempts::default();
    for (seconds, event) in events {
        attempts.note(exact(*seconds), event, |_| LIMIT, true);
    }
    attempts
}

/// A copy that was let write at 1000 s and of which nobody knows the outcome.
fn one_lost() -> Attempts {
    attempts(&[
        (999, started()),
        (1000, prepared(false)),
        (1010, lost()),
        (1020, started()),
    ])
}

fn there(size: u64, modified: Option<i64>) -> FileFacts {
    FileFacts {
        size: Some(Bytes(size)),
        checksum: None,
        modified: modified.map(at),
    }
}

#[test]
fn doubt_lasts_as_long_as_a_copy_may_run() {
    let until = |events: &[(i64, TransferEvent)]| attempts(events).lost().map(|it| it.until);
    let begun = [(1, started()), (1000, prepared(false))];
    let with = |more: &[(i64, TransferEvent)]| until(&[&begun, more].concat());
    assert_eq!(with(&[]), None, "it writes");
    assert_eq!(with(&[(1010, lost())]), Some(at(1600)));
    assert_eq!(with(&[(1010, started())]), Some(at(1600)));
    assert_eq!(with(&[(1010, failed(false))]), Some(at(1040)));
    assert_eq!(with(&[(1599, failed(false))]), Some(at(1600)));
    assert_eq!(with(&[(1010, failed(true))]), None);
    assert_eq!(
        until(&[(1, started()), (5, lost())]),
        None,
        "it did not write"
    );
    let unprepared = attempts(&[(1, started()), (5, lost())]);
    assert!(unprepared.has_lost(), "the database may have forgotten");
    // The next one was let write while the first could still run, or when it could not any more.
    let again = [(1010, lost()), (1020, started()), (1100, prepared(false))];
    assert_eq!(with(&again), Some(at(1600)));
    let later = [(1010, lost()), (1020, started()), (1700, prepared(false))];
    assert_eq!(with(&later), None);
    assert!(attempts(&[&begun[..], &later[..]].concat()).has_lost());
}

/// The record of the service that began again while a clock showed `now`, `ahead` seconds more than it should; the storage
/// element's clock is right where it tells it.
fn begun_again(events: &[(i64, TransferEvent)], now: i64, ahead: i64, tells: bool) -> Attempts {
    let clock = RecordClock {
        at: at(now),
        steady_since: at(now - 10),
    };
    let witness = tells.then_some(at(now - ahead));
    let mut attempts = Attempts::default();
    for (seconds, event) in events {
        let time = clock.read(at(*seconds), witness);
        attempts.note(time, event, |_| LIMIT, true);
    }
    attempts
}

#[test]
fn a_copy_may_run_for_its_time_although_the_clock_has_leapt_ahead() {
    let begun = [(999, started()), (1000, prepared(false))];
    let until = |now, ahead, tells, more: &[(i64, TransferEvent)]| {
        let attempts = begun_again(&[&begun, more].concat(), now, ahead, tells);
        attempts.runs_until(at(now))
    };
    let lost = [(2211, lost())];
    // 21 minutes by the clock, one in truth.
    assert_eq!(until(2220, 1200, true, &lost), Some(at(2800)));
    // Without a witness it has run for as long as the service that began again at the most.
    assert_eq!(until(2220, 1200, false, &lost), Some(at(2810)));
    // It was down for so long.
    assert_eq!(until(2220, 0, true, &lost), None);
    // An attempt that met it, and a further start.
    let met = [
        (2211, lost[0].1.clone()),
        (2212, started()),
        (2213, prepared(false)),
        (2214, failed(false)),
    ];
    assert_eq!(until(2230, 1200, true, &met), Some(at(2800)));
    assert_eq!(until(2230, 0, true, &met), Some(at(2244)));
    // However wrong the other clock is.
    assert_eq!(until(2230, 1_000_000, true, &lost), Some(at(2820)));
}

#[test]
fn a_file_that_came_after_a_copys_time_is_foreign_although_the_clock_has_gone_back() {
    let events = [(999, started()), (1000, prepared(false)), (1010, lost())];
    // It came half an hour after the copy had begun; the clock shows twenty minutes less.
    let file = there(60, Some(1000 + 1800 - 1200));
    let right = begun_again(&events, 3000, 0, true);
    assert_eq!(own(&file, &right, at(3000)), Ok(()));
    let back = begun_again(&events, 1810, -1200, true);
    let modified = at(1600);
    assert_eq!(own(&file, &back, at(1810)), Err(Foreign::Time { modified }));
}

#[test]
fn attempts_that_only_meet_an_earlier_copy_do_not_prolong_the_time_for_which_it_is_waited_for() {
    let mut events = vec![(1, started()), (1000, prepared(false)), (1010, lost())];
    for second in (1020..1700).step_by(20) {
        events.push((second, started()));
        events.push((second + 1, prepared(false)));
        events.push((second + 2, failed(false)));
    }
    let folded = attempts(&events);
    let lost = folded.lost().expect("unsettled");
    assert!(lost.blocks_until <= at(1700), "{lost:?}");
    assert!(lost.was_absent);
}

#[test]
fn what_is_there_is_ones_own_only_by_evidence_that_holds_now() {
    let interrupted = one_lost();
    let check = |what: &FileFacts, now: i64, expected: Result<(), Foreign>| {
        assert_eq!(
            own(what, &interrupted, at(now)),
            expected,
            "{what:?} at {now}"
        );
    };
    check(&there(60, Some(1005)), 1030, Ok(()));
    check(&there(100, Some(1600)), 90_000, Ok(()));
    check(&there(101, Some(1005)), 1030, Err(Foreign::Size));
    let unknown = FileFacts {
        size: None,
        ..there(0, Some(1005))
    };
    check(&unknown, 1030, Err(Foreign::Size));
    // Clocks differ by a minute at most.
    check(&there(60, Some(940)), 1030, Ok(()));
    check(&there(60, Some(1660)), 1700, Ok(()));
    for modified in [939, 1661] {
        let foreign = Foreign::Time {
            modified: at(modified),
        };
        check(&there(60, Some(modified)), 1700, Err(foreign));
    }
    // Without a time only as long as nobody else is likely to have come.
    check(&there(60, None), 1660, Ok(()));
    let old = Foreign::OldEvidence { until: at(1600) };
    check(&there(60, None), 1661, Err(old));

    let known = attempts(&[(1, started())]);
    let nothing = own(&there(60, Some(1005)), &known, at(1030));
    assert_eq!(nothing, Err(Foreign::NothingLost));
    let replacing = attempts(&[(1, started()), (1000, prepared(true)), (1010, lost())]);
    let was_there = own(&there(60, Some(1005)), &replacing, at(1030));
    assert_eq!(was_there, Err(Foreign::WasThere));
    // With `strict_copy` nobody had looked.
    let mut strict = Attempts::default();
    for (seconds, event) in [(1000, prepared(false)), (1010, lost())] {
        strict.note(exact(seconds), &event, |_| LIMIT, false);
    }
    let unseen = own(&there(60, Some(1005)), &strict, at(1030));
    assert_eq!(unseen, Err(Foreign::WasThere));
}

fn check_course(
    what: Option<&FileFacts>,
    known: &Attempts,
    permission: Permission,
    now: i64,
    expected: DestinationPlan,
) {
    let source = FileFacts {
        checksum: Checksum::parse("adler32:00000001"),
        ..there(100, None)
    };
    let seen = EndsSeen {
        now: at(now),
        source: &source,
        there: what,
        attempts: known,
        was_restored: false,
        permission,
    };
    let decision = course(&seen);
    assert_eq!(decision.choice, expected, "{what:?}: {decision:?}");
}

#[test]
fn each_case_has_its_course() {
    use Permission::{Keep, Replace, ReplaceOnDisk};
    let (none, interrupted) = (Attempts::default(), one_lost());
    let same = FileFacts {
        checksum: Checksum::parse("adler32:00000001"),
        ..there(100, Some(1005))
    };
    let part = there(60, Some(1005));
    let foreign = there(60, Some(5000));
    for permission in [Keep, Replace, ReplaceOnDisk] {
        check_course(None, &none, permission, 1030, DestinationPlan::Write);
        check_course(None, &interrupted, permission, 1030, DestinationPlan::Write);
        check_course(
            Some(&part),
            &interrupted,
            permission,
            1030,
            DestinationPlan::RemoveFirst,
        );
        let arrived = DestinationPlan::Arrived(Bytes(100));
        // Also long after no copy can run any more, and when it was looked at since.
        check_course(Some(&same), &interrupted, permission, 90_000, arrived);
    }
    let settled = attempts(&[
        (1, started()),
        (1000, prepared(false)),
        (1010, lost()),
        (1020, started()),
        (1700, prepared(false)),
        (1710, failed(true)),
        (1720, started()),
    ]);
    check_course(
        Some(&same),
        &settled,
        Keep,
        1800,
        DestinationPlan::Arrived(Bytes(100)),
    );
    check_course(Some(&part), &settled, Keep, 1800, DestinationPlan::Refuse);
    check_course(Some(&same), &none, Keep, 1030, DestinationPlan::Refuse);
    for (what, known) in [(&foreign, &interrupted), (&part, &none)] {
        check_course(Some(what), known, Keep, 6000, DestinationPlan::Refuse);
        check_course(Some(what), known, Replace, 6000, DestinationPlan::Replace);
        check_course(
            Some(what),
            known,
            ReplaceOnDisk,
            6000,
            DestinationPlan::AskTape,
        );
    }
}

#[test]
fn what_may_yet_turn_out_to_be_ones_own_is_waited_for_as_long_as_a_copy_may_run() {
    use Permission::{Keep, Replace};
    let interrupted = one_lost();
    let unsized_part = FileFacts {
        size: None,
        ..there(0, Some(1005))
    };
    // A storage element whose clock is minutes off, and one that tells no size of what comes in.
    for what in [&there(60, Some(700)), &there(60, Some(5000)), &unsized_part] {
        check_course(Some(what), &interrupted, Keep, 1599, DestinationPlan::Wait);
        check_course(
            Some(what),
            &interrupted,
            Keep,
            1600,
            DestinationPlan::Refuse,
        );
        // Noted by a clock that was ahead.
        check_course(Some(what), &interrupted, Keep, 100, DestinationPlan::Refuse);
        check_course(
            Some(what),
            &interrupted,
            Replace,
            1599,
            DestinationPlan::Replace,
        );
    }
    // Larger than what was to come; there before; nothing was lost.
    let larger = there(101, Some(1005));
    check_course(
        Some(&larger),
        &interrupted,
        Keep,
        1030,
        DestinationPlan::Refuse,
    );
    let replacing = attempts(&[(1, started()), (1000, prepared(true)), (1010, lost())]);
    let part = there(60, Some(1005));
    check_course(Some(&part), &replacing, Keep, 1030, DestinationPlan::Refuse);
    check_course(
        Some(&part),
        &Attempts::default(),
        Keep,
        1030,
        DestinationPlan::Refuse,
    );
}

#[test]
fn overwriting_on_retry_spares_the_first_attempt() {
    let of = |overwrite, attempt| Permission::of(overwrite, Attempt(attempt));
    assert_eq!(of(Overwrite::OnRetry, 1), Permission::Keep);
    assert_eq!(of(Overwrite::OnRetry, 2), Permission::Replace);
    assert_eq!(of(Overwrite::Always, 1), Permission::Replace);
    assert_eq!(of(Overwrite::OnlyOnDisk, 2), Permission::ReplaceOnDisk);
    assert_eq!(of(Overwrite::Never, 2), Permission::Keep);
}

#[test]
fn an_end_is_definite_only_when_the_destination_says_so() {
    let check = |status, has_moved, expected| {
        assert_eq!(CopyEnd::of_status(status, has_moved), expected, "{status}");
    };
    for status in [409, 412, 423] {
        check(status, true, CopyEnd::Occupied);
    }
    for status in [400, 403, 404, 429, 501, 503, 507] {
        check(status, false, CopyEnd::Refused);
    }
    for status in [408, 500, 502, 504] {
        check(status, false, CopyEnd::Unknown);
    }
    check(503, true, CopyEnd::Unknown);
    for status in [400, 403, 404] {
        check(status, true, CopyEnd::Ended);
    }
    let of = CopyEnd::of_cause;
    assert_eq!(of(CopyCause::Unsettled, true), CopyEnd::Unsettled);
    assert_eq!(of(CopyCause::Unsettled, false), CopyEnd::Unsettled);
    assert_eq!(of(CopyCause::Unknown, true), CopyEnd::Ended);
    assert_eq!(of(CopyCause::Unknown, false), CopyEnd::Unknown);
    assert_eq!(of(CopyCause::Refused(409), false), CopyEnd::Occupied);
    assert_eq!(of(CopyCause::Refused(500), false), CopyEnd::Unknown);
    assert_eq!(of(CopyCause::Exists, false), CopyEnd::Occupied);
}

#[test]
fn what_the_destination_does_not_know_may_come_until_the_copys_time_is_over() {
    let mut attempts = attempts(&[(1, started()), (1000, prepared(false))]);
    let mut event = failed(false);
    if let TransferEvent::AttemptFailed { failure, .. } = &mut event {
        failure.detail = "it is not known whether the change was made".into();
    }
    attempts.note(exact(1010), &event, |_| LIMIT, true);
    assert_eq!(attempts.runs_until(at(1100)), Some(at(1000) + LIMIT));
}

#[test]
fn what_remains_is_looked_after_until_nothing_can_come() {
    let lost = one_lost();
    let of = |what: Option<&FileFacts>, now| remnant(what, &lost, at(now));
    let until = at(1600);
    assert_eq!(of(None, 1030), RemnantVerdict::MayCome { until });
    assert_eq!(of(None, 1600), RemnantVerdict::Nothing);
    assert_eq!(of(Some(&there(60, Some(1005))), 1030), RemnantVerdict::Own);
    let foreign = RemnantVerdict::Foreign(Foreign::Size);
    assert_eq!(of(Some(&there(160, Some(1005))), 1030), foreign);
    // What a copy has brought that said so is its own, whatever came.
    let mut arrived = Attempts::default();
    arrived.begin(exact(1000), Some(Bytes(100)), true, LIMIT);
    arrived.end(at(1010), CopyEnd::Arrived);
    let longer = there(160, Some(1005));
    assert_eq!(
        remnant(Some(&longer), &arrived, at(1010)),
        RemnantVerdict::Own
    );
    assert_eq!(remnant(None, &arrived, at(1010)), RemnantVerdict::Nothing);
    // One that was refused has left nothing.
    let mut refused = Attempts::default();
    refused.begin(exact(1000), Some(Bytes(100)), true, LIMIT);
    refused.end(at(1010), CopyEnd::Occupied);
    assert_eq!(refused.lost(), None);
}

#[test]
fn a_removal_that_is_owed_is_tried_more_and_more_seldom_and_not_for_ever() {
    let mut owed = OwedRemoval {
        transfer: TransferId(7),
        since: at(0),
        tries: 0,
        is_denied: false,
    };
    let (mut now, mut longest) = (at(0), Duration::ZERO);
    while let Some(wait) = next_removal(&owed, now) {
        assert!(owed.tries < 60, "a day holds few tries of an hour");
        longest = longest.max(wait);
        now = now + wait;
        owed.tries += 1;
    }
    assert!((20..60).contains(&owed.tries), "{owed:?}");
    assert!(longest >= Duration::from_secs(2700), "{longest:?}");
    assert!(now >= at(86_400) && now < at(95_000), "{now:?}");
    owed.is_denied = true;
    owed.tries = 3;
    assert!(next_removal(&owed, at(3599)).is_some());
    assert_eq!(next_removal(&owed, at(3600)), None);
}
