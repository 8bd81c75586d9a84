//! Minutes: found by their time, whole, and gone with it.

use super::*;
use penstock_journal::PruneStep;

const MINUTE: i64 = 60_000;

fn minute(from: i64, to: i64, moved_bytes: u64) -> MinuteSamples {
    let mut sums = MinuteSums {
        samples: 60,
        moved_bytes,
        ..MinuteSums::default()
    };
    sums.copies.files = 3;
    let ends = rule(1).ends;
    let failures = vec![MinuteFailure {
        step: FailedStep::Attempt,
        side: Side::Destination,
        phase: Phase::Transfer,
        errno: Errno::ENOSPC,
        fingerprint: "no space left on pool #, \u{0} and ö".to_owned(),
        count: 2,
    }];
    let row = |key, failures| MinuteRow {
        key,
        sums: sums.clone(),
        failures,
    };
    let vo = VoName::new("cms");
    MinuteSamples {
        from: Timestamp(from),
        to: Timestamp(to),
        rows: vec![
            row(MinuteKey::Link(ends.clone()), failures),
            row(MinuteKey::VoOnLink(ends, vo), Vec::new()),
        ],
    }
}

fn stored(minute: &MinuteSamples) -> Record {
    Record::MinuteSampled(Box::new(minute.clone()))
}

pub(super) fn minutes_are_found_by_their_time_with_all_parts(lab: &Lab) {
    // One was counted by two leaders, and nothing was counted between them.
    let all = [
        minute(0, MINUTE, 1),
        minute(MINUTE, MINUTE + 20_000, 2),
        minute(MINUTE + 45_000, 2 * MINUTE, u64::MAX),
        MinuteSamples {
            rows: Vec::new(),
            ..minute(2 * MINUTE, 3 * MINUTE, 0)
        },
    ];
    let mut journal = lab.open();
    let records: Vec<Record> = all.iter().map(stored).collect();
    journal.append(&records).expect("stored");
    let between = |from, to| {
        let found = lab.reader().minutes_between(Timestamp(from), Timestamp(to));
        found.expect("readable")
    };
    assert_eq!(between(0, 3 * MINUTE), all);
    assert_eq!(between(MINUTE, 2 * MINUTE), all[1..3]);
    assert_eq!(between(3 * MINUTE, 9 * MINUTE), []);
}

pub(super) fn minutes_go_with_their_own_time(lab: &Lab) {
    let mut journal = lab.open();
    let records: Vec<Record> = (0..10)
        .map(|number| stored(&minute(number * MINUTE, (number + 1) * MINUTE, 1)))
        .collect();
    journal.append(&records).expect("stored");
    let step = |before: Option<i64>| PruneStep {
        ended_before: Some(Timestamp(i64::MAX)),
        taken_by_all: u64::MAX,
        ended_long_before: None,
        samples_before: Some(Timestamp(0)),
        minutes_before: before.map(Timestamp),
        audit_before: None,
        rows_max: 3,
    };
    assert_eq!(journal.prune(&step(None)).expect("pruned").rows(), 0);
    let pruned = journal.prune(&step(Some(5 * MINUTE))).expect("pruned");
    assert_eq!((pruned.minutes, pruned.has_more), (3, true));
    let pruned = journal.prune(&step(Some(5 * MINUTE))).expect("pruned");
    assert_eq!((pruned.minutes, pruned.has_more), (2, false));
    let facts = lab.reader().history().expect("readable");
    assert_eq!(facts.minute_oldest, Some(Timestamp(5 * MINUTE)));
    assert_eq!(facts.pruned.minutes, 5);
}
