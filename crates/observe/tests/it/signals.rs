//! The record of a link, explained.

use crate::stories::{self, START, Story};
use penstock_decide::explain::{Cause, Explanation, Measure, explain};
use penstock_model::Timestamp;
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
        (told[0].incidents.len(), told[0].incidents[0].attempts),
        (1, 360)
    );
}

#[test]
fn a_time_without_any_sample_is_unknown() {
    let signals = RecordSignals::new(Timestamp(START), 60, 5).finish();
    assert_eq!(signals.links.len(), 0);
    assert_eq!(explain(&signals, &[stories::link("a", "b")]), []);
}
