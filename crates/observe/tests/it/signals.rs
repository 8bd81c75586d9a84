//! The record of a link, explained.

use crate::stories::{self, START, Story};
use penstock_decide::explain::signals::Signals;
use penstock_decide::explain::{Cause, Explanation, Measure, explain};
use penstock_model::{
    LinkId, MinuteKey, MinuteRow, MinuteSamples, MinuteSums, MoverReport, StageClocks, Timestamp,
    TransferEvent,
};
use penstock_observe::signals::RecordSignals;

const MINUTES: i64 = 120;

/// Two hours at 10 of 10 files and 20 MB/s each, with what the second half hour looked like instead.
fn two_hours(moved: u64, slots: (u32, u32, u64), failures: bool) -> Vec<Explanation> {
    let mut story = Story::default();
    let link = stories::link("cern.example", "in2p3.example");
    for second in 1..=MINUTES * 60 {
        let is_other = (1801..=3600).contains(&second);
        let (moved, slots) = if is_other {
            (moved, slots)
        } else {
            (200_000_000, (10, 10, 5))
        };
        story.sample(second * 1000, link.clone(), moved, slots);
        let transfer = second as u64;
        if second % 5 == 0 {
            story.tell(second * 1000 - 2, transfer, stories::started(1));
            match is_other && failures {
                true => story.tell(
                    second * 1000 - 1,
                    transfer,
                    stories::failed(1, "no space left", None),
                ),
                false => story.tell(
                    second * 1000 - 1,
                    transfer,
                    stories::landed(1, 1_000_000_000, Default::default()),
                ),
            }
        }
    }
    let mut signals = RecordSignals::new(Timestamp(START), 60, MINUTES as usize);
    story
        .samples
        .iter()
        .for_each(|sample| signals.take_sample(sample));
    story
        .entries
        .iter()
        .for_each(|entry| signals.take_entry(entry, &link));
    explain(&signals.finish(), &[link])
}

#[test]
fn a_link_that_was_not_fed_is_explained_from_its_record() {
    let told = two_hours(100_000_000, (5, 10, 40), false);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (told[0].from, told[0].to),
        (Timestamp(START + 1_800_000), Timestamp(START + 3_600_000))
    );
    assert_eq!(told[0].causes[0].cause, Cause::NotFed);
    assert_eq!(told[0].causes[0].share.0, 1000);
    assert!((told[0].causes[0].rate_without - 200e6).abs() < 1e6);
}

#[test]
fn what_the_record_does_not_hold_is_called_missing() {
    let told = two_hours(60_000_000, (10, 10, 40), false);
    assert_eq!(
        (told[0].causes.len(), told[0].unexplained.0),
        (0, 1000),
        "{told:?}"
    );
    assert!(
        told[0].missing.contains(&Measure::PoolFree),
        "{:?}",
        told[0].missing
    );
}

#[test]
fn a_full_destination_is_named_by_its_failures() {
    let told = two_hours(20_000_000, (10, 10, 40), true);
    assert_eq!(told[0].causes[0].cause, Cause::OutOfSpace, "{told:?}");
    assert_eq!(
        (told[0].failures.len(), told[0].failures[0].attempts),
        (1, 360)
    );
}

#[test]
fn a_time_without_any_sample_is_unknown() {
    let signals = RecordSignals::new(Timestamp(START), 60, 5).finish();
    assert_eq!(signals.links.len(), 0);
    assert_eq!(explain(&signals, &[stories::link("a", "b")]), []);
}

#[test]
fn a_time_in_which_the_service_did_not_run_is_told_apart_from_one_without_work() {
    let told = |queued: u64, runs: bool| {
        let link = stories::link("a", "b");
        let mut story = Story::default();
        for second in (1..=3600).filter(|second| !(1801..=2400).contains(second)) {
            story.sample(second * 1000, link.clone(), 200_000_000, (10, 10, queued));
        }
        for second in (5..3600).step_by(5) {
            if runs || !(1800..2400).contains(&second) {
                story.tell(second * 1000, second as u64, stories::started(1));
            }
        }
        let mut signals = RecordSignals::new(Timestamp(START), 60, 60);
        let samples = story.samples.iter();
        samples.for_each(|sample| signals.take_sample(sample));
        let entries = story.entries.iter();
        entries.for_each(|entry| signals.take_entry(entry, &link));
        let told = explain(&signals.finish(), &[link]);
        let first = |told: &Explanation| told.causes.first().map(|named| named.cause);
        told.iter().map(first).collect::<Vec<_>>()
    };
    assert_eq!(told(40, false), [Some(Cause::ControlPlane)]);
    // Nothing to do, or samples that were lost.
    assert_eq!(told(0, false), []);
    assert_eq!(told(40, true), []);
}

#[test]
fn bytes_that_come_to_nothing_are_no_rate_of_copies() {
    let link = stories::link("a", "b");
    let mut story = Story::default();
    for second in 1..=3600 {
        story.sample(second * 1000, link.clone(), 200_000_000, (10, 10, 40));
    }
    // A file in ten seconds; for half an hour two of three fail when all of their bytes have moved.
    for (number, second) in (0..3590).step_by(10).enumerate() {
        let (transfer, end) = (number as u64, second * 1000 + 9_900);
        let fails = (1200..3000).contains(&second) && number % 3 > 0;
        story.tell(second * 1000, transfer, stories::started(1));
        let event = match fails {
            true => stories::failed_on_disk(1, 2_000_000_000),
            false => stories::landed(1, 2_000_000_000, MoverReport::default()),
        };
        story.tell(end, transfer, event);
    }
    let mut signals = RecordSignals::new(Timestamp(START), 60, 60);
    let samples = story.samples.iter();
    samples.for_each(|sample| signals.take_sample(sample));
    let entries = story.entries.iter();
    entries.for_each(|entry| signals.take_entry(entry, &link));
    let signals = signals.finish();
    let of_link = &signals.links[&link];
    assert_eq!(of_link.failed_bytes.at(10), Some(0.0));
    assert_eq!(of_link.failed_bytes.at(30), Some(8_000_000_000.0));
    let moved = of_link.moved_bytes();
    assert!((0..60).all(|bin| moved.at(bin) == Some(12_000_000_000.0)));
    let told = explain(&signals, &[link]);
    let causes: Vec<Cause> = told[0].causes.iter().map(|named| named.cause).collect();
    assert_eq!(causes, [Cause::DestinationErrors], "{told:?}");
}

#[test]
fn bytes_of_a_failed_attempt_are_taken_out_of_the_time_in_which_it_ran() {
    let link = stories::link("a", "b");
    let mut story = Story::default();
    // From the half of the second minute to the end of the fourth.
    story.tell(90_000, 1, stories::started(1));
    story.tell(239_999, 1, stories::failed_on_disk(1, 1_500_000));
    for second in 1..=300 {
        story.sample(second * 1000, link.clone(), 20_000, (2, 10, 0));
    }
    let told = five_minutes(&story, None);
    let of_link = &told.links[&link];
    let failed = |bin| of_link.failed_bytes.at(bin).expect("known").round();
    let all: Vec<f64> = (0..5).map(failed).collect();
    assert_eq!(all, [0.0, 500_000.0, 500_000.0, 500_000.0, 0.0]);
    assert_eq!(of_link.copied_bytes.at(2), Some(700_000.0));
    // What is said of more than moved takes no more than that.
    story.tell(290_000, 2, stories::started(1));
    story.tell(299_000, 2, stories::failed_on_disk(1, 9_000_000));
    let told = five_minutes(&story, None);
    let of_link = &told.links[&link];
    assert_eq!(of_link.copied_bytes.at(4), Some(0.0));
    assert_eq!(of_link.failed_bytes.at(4), Some(1_200_000.0));
}

#[test]
fn failed_bytes_of_minutes_that_do_not_tell_how_long_attempts_ran_are_left_where_they_are() {
    let link = stories::link("a", "b");
    let told = |failed_byte_seconds| {
        let mut signals = RecordSignals::new(Timestamp(START), 60, 5);
        for minute in 0..5 {
            let from = START + minute * 60_000;
            let fails = minute == 3;
            let sums = MinuteSums {
                samples: 60,
                moved_bytes: 6_000,
                failed_bytes: if fails { 5_000 } else { 0 },
                failed_byte_seconds: if fails { failed_byte_seconds } else { 0 },
                ..MinuteSums::default()
            };
            let row = MinuteRow {
                key: MinuteKey::Link(link.clone()),
                sums,
                failures: Vec::new(),
            };
            let minute = MinuteSamples {
                from: Timestamp(from),
                to: Timestamp(from + 60_000),
                rows: vec![row],
            };
            signals.take_minute(&minute, |_, _| true);
        }
        signals.finish().links[&link].copied_bytes.at(3)
    };
    assert_eq!(told(0), Some(6_000.0));
    // Less than a minute of running.
    assert_eq!(told(50_000), Some(1_000.0));
}

#[test]
fn a_service_that_stopped_within_the_first_second_of_a_minute_is_told_apart_too() {
    let links = ["b", "c", "d"].map(|end| stories::link("a", end));
    let mut signals = RecordSignals::new(Timestamp(START), 60, 60);
    for link in &links {
        let mut story = Story::default();
        for second in (1..=3600).filter(|second| !(1801..=2400).contains(second)) {
            story.sample(second * 1000, link.clone(), 200_000_000, (10, 10, 40));
        }
        // The minute that began when it stopped has an entry and no sample.
        let starts = (5..3600).step_by(5);
        for second in starts.filter(|second| !(1801..=2400).contains(second)) {
            story.tell(second * 1000 + 300, second as u64, stories::started(1));
        }
        for sample in &story.samples {
            signals.take_sample(sample);
        }
        for entry in &story.entries {
            signals.take_entry(entry, link);
        }
    }
    let told = explain(&signals.finish(), &links);
    let first = |told: &Explanation| told.causes.first().map(|named| named.cause);
    let causes: Vec<_> = told.iter().map(first).collect();
    // One for all three.
    assert_eq!(causes, [Some(Cause::ControlPlane)]);
}

#[test]
fn slots_of_the_service_are_those_of_all_links_however_few_are_looked_at() {
    let links: Vec<LinkId> = (0..100)
        .map(|n| stories::link("a", &format!("b{n}")))
        .collect();
    let mut signals = RecordSignals::new(Timestamp(START), 60, 60);
    for minute in 0..60 {
        let row = |key, active: u64, queued: u64, limit: u64| MinuteRow {
            key,
            sums: MinuteSums {
                samples: 60,
                active: active * 60,
                queued: queued * 60,
                unfed: limit.saturating_sub(active) * 60,
                limit: limit * 60,
                moved_bytes: active * 60_000_000,
                ..MinuteSums::default()
            },
            failures: Vec::new(),
        };
        // For half an hour the first link has a third of its slots, and the others have the rest.
        let is_low = (20..50).contains(&minute);
        let of_link = |(number, link): (usize, &LinkId)| {
            let active = match (number, is_low) {
                (0, true) => 3,
                (0, false) => 10,
                _ => 10,
            };
            row(MinuteKey::Link(link.clone()), active, 20, 30)
        };
        let mut rows: Vec<MinuteRow> = links.iter().enumerate().map(of_link).collect();
        if is_low {
            rows[99].sums.active = 17 * 60;
        }
        rows.push(row(MinuteKey::Service, 1000, 0, 1000));
        let from = START + minute * 60_000;
        let minute = MinuteSamples {
            from: Timestamp(from),
            to: Timestamp(from + 60_000),
            rows,
        };
        signals.take_minute(&minute, |_, link| links[..44].contains(link));
    }
    let told = signals.finish();
    assert_eq!(told.service.slots_used.at(30), Some(1000.0));
    let told = explain(&told, &links[..1]);
    assert_eq!(told[0].causes[0].cause, Cause::ServiceShare, "{told:?}");
}

/// Of one link over five minutes, with these entries.
fn five_minutes(story: &Story, entries_since: Option<i64>) -> Signals {
    let mut signals = RecordSignals::new(Timestamp(START), 60, 5);
    let link = stories::link("a", "b");
    story
        .samples
        .iter()
        .for_each(|sample| signals.take_sample(sample));
    story
        .entries
        .iter()
        .for_each(|entry| signals.take_entry(entry, &link));
    if let Some(ms) = entries_since {
        signals.entries_left_out(Timestamp(START), Timestamp(START + ms));
    }
    signals.finish()
}

#[test]
fn the_overhead_of_a_file_is_told_where_it_landed() {
    let report = |wait_us| MoverReport {
        stages: StageClocks {
            wait_us,
            commit_us: 500_000,
            ..StageClocks::default()
        },
        ..MoverReport::default()
    };
    let mut story = Story::default();
    for (transfer, landed) in [(1, Some(50_000)), (2, Some(130_000)), (3, None)] {
        story.tell(1_000, transfer, stories::started(1));
        story.tell(3_000, transfer, stories::prepared(1));
        if let Some(ms) = landed {
            let wait_us = transfer * 1_000_000;
            story.tell(ms, transfer, stories::landed(1, 7, report(wait_us)));
        }
    }
    // Nobody knows when this one began.
    story.tell(200_000, 4, stories::landed(1, 7, report(9_000_000)));
    let signals = five_minutes(&story, None);
    let overhead = &signals.links[&stories::link("a", "b")].overhead_seconds;
    assert_eq!(overhead.0, [Some(3.5), None, Some(4.5), None, None]);
}

#[test]
fn what_lies_before_the_part_of_the_ledger_that_was_read_is_unknown() {
    let mut story = Story::default();
    story.sample(60_000, stories::link("a", "b"), 10, (1, 1, 0));
    for (transfer, ms) in [(1, 90_000), (2, 130_000)] {
        story.tell(ms, transfer, TransferEvent::Submitted);
        story.tell(ms, transfer, stories::started(1));
        story.tell(ms + 1, transfer, stories::failed(1, "no", None));
        story.tell(ms + 2, transfer, stories::started(2));
        story.tell(
            ms + 3,
            transfer,
            stories::landed(2, 7, MoverReport::default()),
        );
    }
    let link = stories::link("a", "b");
    let check = |since: Option<i64>, expected: [Option<f64>; 5]| {
        let signals = five_minutes(&story, since);
        let of_link = &signals.links[&link];
        assert_eq!(of_link.finished_files.0, expected);
        assert_eq!(signals.service.submissions[&link].0, expected);
        assert_eq!(of_link.failed_attempts().0, expected);
        let twice = expected.map(|value| value.map(|value| value * 2.0));
        assert_eq!(signals.service.dispatches.0, twice);
    };
    let (none, one) = (Some(0.0), Some(1.0));
    check(None, [none, one, one, none, none]);
    check(Some(85_000), [None, None, one, none, none]);
    check(Some(120_000), [None, None, one, none, none]);
}

#[test]
fn the_time_until_both_ends_have_answered_is_told_apart() {
    let link = stories::link("a", "b");
    let mut signals = RecordSignals::new(Timestamp(START), 1, 10);
    let mut story = Story::default();
    for second in 1..=10 {
        story.sample(second * 1000, link.clone(), 0, (2, 2, 0));
    }
    // One waits from the second to the middle of the fourth second, one from the fifth on and still does at the end.
    for (at, transfer, event) in [
        (2_000, 1, stories::started(1)),
        (4_500, 1, stories::prepared(1)),
        (5_000, 2, stories::started(1)),
    ] {
        story.tell(at, transfer, event);
    }
    let samples = story.samples.iter();
    samples.for_each(|sample| signals.take_sample(sample));
    let entries = story.entries.iter();
    entries.for_each(|entry| signals.take_entry(entry, &link));
    let told = signals.finish();
    let preparing = &told.links[&link].preparing;
    let told: Vec<f64> = (0..10).filter_map(|bin| preparing.at(bin)).collect();
    assert_eq!(told, [0.0, 0.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0]);
}
