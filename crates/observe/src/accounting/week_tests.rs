//! A week like that of the tape challenge of October 2021: a VO publishes what arrived in its own period, the site divides
//! what passed in the whole week by the length of that period, and both are right.

use super::reconcile::{Bridge, Terms, ViewRows, reconcile};
use super::{AccountKey, Accountant};
use penstock_model::observation::{Attempt, Operation, Outcome, Text, View};
use penstock_model::{Bytes, TimeWindow, Timestamp, VoName};
use proptest::prelude::*;

const HOUR: i64 = 3_600_000;
/// 11 October 2021, 8:00 UTC.
const BEGIN: i64 = 1_633_939_200_000;
const WEEK_HOURS: f64 = 128.4;
const FILES: u64 = 1_000;

/// A row of the tables: what the VO published, what the site did, both in GB/s over the VO's hours.
struct Row {
    vo: &'static str,
    activity: &'static str,
    hours: f64,
    by_vo: f64,
    by_site: f64,
}

/// Where rates are printed with two digits. The hours are those that volumes and rates of the site's table give.
const ROWS: [Row; 6] = [
    row("atlas", "data taking", 48.2, (1.52, 2.45)),
    row("atlas", "after data taking", 125.0, (0.89, 1.02)),
    row("cms", "data taking", 36.3, (0.57, 0.65)),
    row("cms", "after data taking", 41.0, (1.22, 3.2)),
    row("lhcb", "data taking", 61.0, (0.78, 1.0)),
    row("alice", "data taking", 104.1, (0.54, 0.59)),
];

const fn row(
    vo: &'static str,
    activity: &'static str,
    hours: f64,
    (by_vo, by_site): (f64, f64),
) -> Row {
    Row {
        vo,
        activity,
        hours,
        by_vo,
        by_site,
    }
}

fn window(hours: f64) -> TimeWindow {
    TimeWindow {
        from: Timestamp(BEGIN),
        to: Timestamp(BEGIN + (hours * HOUR as f64) as i64),
    }
}

fn bytes_of(row: &Row, rate: f64) -> u64 {
    (rate * 1e9 * row.hours * 3600.0).round() as u64
}

/// Sizes of files that are not alike, and add up.
fn sizes(total: u64, files: u64) -> Vec<u64> {
    let mut seed = total | 1;
    let mut left = total;
    let sizes = (0..files).map(|number| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mean = left / (files - number);
        let size = match number + 1 == files {
            true => left,
            false => mean / 2 + (seed >> 16) % mean.max(1),
        };
        left -= size.min(left);
        size
    });
    sizes.collect()
}

/// The rows of both views of one row of the tables.
struct Week {
    vo: Vec<Attempt>,
    site: Vec<Attempt>,
    files: u64,
}

impl Week {
    /// What the site wrote of a file.
    fn written(&mut self, row: &Row, at: i64, size: u64) -> Attempt {
        self.files += 1;
        let name = format!("{} {} {}", row.vo, row.activity, self.files);
        Attempt {
            at: Timestamp(BEGIN + at),
            started: Some(Timestamp(BEGIN + at - 60_000)),
            source: "dcache".into(),
            line: self.files,
            view: View::Site,
            operation: Operation::Write,
            copy: Some(Text::from(name.as_str())),
            destination_path: Some(format!("/tape/{name}").into()),
            vo: Some(VoName::new(row.vo)),
            bytes_moved: Some(Bytes(size)),
            file_bytes: Some(Bytes(size)),
            outcome: Some(Outcome::Success),
            ..Attempt::default()
        }
    }

    fn both(&mut self, of_site: Attempt, skew_ms: i64) {
        self.vo.push(Attempt {
            at: Timestamp(of_site.at.0 - skew_ms),
            source: "fts".into(),
            view: View::Vo,
            operation: Operation::Copy,
            ..of_site.clone()
        });
        self.site.push(of_site);
    }

    /// What the VO published came in its period; what the site has more is of four kinds.
    fn of(row: &Row) -> (Week, Terms) {
        let mut week = Week {
            vo: Vec::new(),
            site: Vec::new(),
            files: 0,
        };
        let period = (row.hours * HOUR as f64) as i64;
        let moment = |n: u64, from: i64, to: i64| from + (to - from) * (n as i64 + 1) / 1_001;
        for (n, size) in (0..).zip(sizes(bytes_of(row, row.by_vo), FILES)) {
            let at = moment(n, 180_000, period - 180_000);
            let of_site = week.written(row, at, size);
            week.both(of_site, 40_000);
        }
        let more = bytes_of(row, row.by_site) - bytes_of(row, row.by_vo);
        let (failed, again, staged) = (more / 5, more / 10, more / 8);
        let late = more - failed - again - staged;
        for (n, size) in (0..).zip(sizes(failed, 100)) {
            // The VO sees that it failed, the site also what moved until then.
            let at = moment(n * 10, 180_000, period - 180_000);
            let mut of_site = week.written(row, at, size);
            of_site.outcome = Some(Outcome::Failure);
            of_site.file_bytes = None;
            week.both(of_site, 40_000);
            let of_vo = week.vo.last_mut().expect("just added");
            of_vo.bytes_moved = None;
        }
        for (n, size) in (0..).zip(sizes(again, 20)) {
            // What a VO asks for again after its client lost the answer.
            let mut of_site = week.site[n * 7].clone();
            of_site.bytes_moved = Some(Bytes(size));
            of_site.file_bytes = of_site.bytes_moved;
            of_site.at = Timestamp(of_site.at.0 + 30_000);
            of_site.line += 1_000_000;
            week.site.push(of_site);
        }
        for (n, size) in (0..).zip(sizes(staged, 50)) {
            let at = moment(n * 20, 0, (WEEK_HOURS * HOUR as f64) as i64);
            let mut of_site = week.written(row, at, size);
            of_site.operation = Operation::Recall;
            week.site.push(of_site);
        }
        for (n, size) in (0..).zip(sizes(late, 300)) {
            // Before the challenge's period was over for the site, after it was over for the VO.
            let at = moment(n * 3, period + 180_000, (WEEK_HOURS * HOUR as f64) as i64);
            let of_site = week.written(row, at, size);
            week.both(of_site, 40_000);
        }
        let terms = Terms {
            failed_attempts: failed.into(),
            retries: again.into(),
            staging: staged.into(),
            windows: late.into(),
            ..Terms::default()
        };
        (week, terms)
    }
}

fn view(window: TimeWindow, rows: &[Attempt]) -> ViewRows {
    let mut view = ViewRows::new(window);
    rows.iter().for_each(|row| view.take(row));
    view
}

#[test]
fn the_disagreement_of_2021_is_reproduced_and_nothing_of_it_stays_unexplained() {
    for row in &ROWS {
        let (week, terms) = Week::of(row);
        let first = view(window(row.hours), &week.vo);
        let result = reconcile(&first, &view(window(WEEK_HOURS), &week.site));
        let what = format!("{} {}", row.vo, row.activity);
        let Bridge { first, second, .. } = result.all;
        // As both were printed: different volumes over the same hours.
        let printed = |volume: i128| volume as f64 / row.hours / 3600.0 / 1e9;
        let digits = |rate: f64| format!("{rate:.2}");
        assert_eq!(digits(printed(first)), digits(row.by_vo), "{what}");
        assert_eq!(digits(printed(second)), digits(row.by_site), "{what}");
        assert_eq!(result.all.terms, terms, "{what}");
        assert!(result.all.is_exact() && result.residue.is_empty(), "{what}");
        assert_eq!(result.all.terms.residue, 0, "{what}");
        assert_eq!(result.clock_skew_ms, Some(40_000), "{what}");
        assert_eq!(result.by_vo[row.vo], result.all, "{what}");
    }
}

#[test]
fn a_published_rate_of_the_site_is_over_the_window_that_it_states() {
    let cms = &ROWS[3];
    let (week, _) = Week::of(cms);
    let mut accountant = Accountant::new(AccountKey::Vo);
    let rows = week.site.iter();
    let written = rows.filter(|row| row.operation == Operation::Write);
    written.for_each(|row| accountant.take(row));
    let account = accountant.account(Some(window(WEEK_HOURS)));
    let rate = account.table.lines[0].rate.as_ref().expect("time passed");
    assert!((rate.rate.seconds - WEEK_HOURS * 3600.0).abs() < 0.01);
    let gigabytes = rate.rate.megabits_per_second / 8.0 / 1000.0;
    // Not the 3.2 GB/s that were printed: those divide the week's volume by 41 hours.
    assert!((0.6..0.95).contains(&gigabytes), "{gigabytes}");
}

#[test]
fn rows_of_either_view_that_cannot_be_true_are_told_beside_the_bridge() {
    let (mut week, _) = Week::of(&ROWS[0]);
    week.site[3].ended = Some(Timestamp(0));
    week.vo[4].bytes_moved = Some(Bytes(1));
    // Outside of the VO's window.
    let last = week.vo.last_mut().expect("there are rows");
    last.bytes_moved = Some(Bytes(1));
    let first = view(window(ROWS[0].hours), &week.vo);
    let result = reconcile(&first, &view(window(WEEK_HOURS), &week.site));
    let [short] = &result.impossible_in_first[..] else {
        panic!("one kind: {:?}", result.impossible_in_first);
    };
    assert_eq!(
        (&*short.what, short.count),
        ("a whole file arrived of which fewer bytes moved", 1)
    );
    assert_eq!(
        result.impossible_in_second[0].what,
        "an attempt ended before it began"
    );
    let text = result.text();
    assert!(
        text.contains("Cannot be true in the second view, 1 time: an attempt ended"),
        "{text}"
    );
}

/// What both views may tell of an attempt, or one of them.
fn any_row() -> impl Strategy<Value = (Option<Attempt>, Option<Attempt>)> {
    let vo = prop_oneof![Just(None), Just(Some("atlas")), Just(Some("cms"))];
    let operation = prop_oneof![
        Just(Operation::Copy),
        Just(Operation::Write),
        Just(Operation::Read),
        Just(Operation::Recall),
        Just(Operation::Migration),
        Just(Operation::PoolCopy),
    ];
    let outcome = prop_oneof![
        4 => Just(Some(Outcome::Success)),
        1 => Just(Some(Outcome::Failure)),
        1 => Just(Some(Outcome::Abort)),
        1 => Just(None),
    ];
    let bytes = || prop_oneof![1 => Just(None), 6 => (0..u64::MAX / 1000).prop_map(Some)];
    // Few names, so that several rows have one.
    let name = || prop_oneof![Just(None), (0u8..12).prop_map(Some)];
    let one = (
        (vo, operation, outcome.clone(), outcome),
        (bytes(), bytes(), bytes()),
        (name(), name(), name()),
        (0i64..30, -3i64..3, 0u32..3, any::<bool>(), 0u8..4),
    );
    one.prop_map(|((vo, operation, first, second), sizes, names, rest)| {
        let (hour, apart, number, is_local, seen_by) = rest;
        let text =
            |kind: &str, name: Option<u8>| name.map(|name| Text::from(format!("{kind}{name}")));
        let of_vo = Attempt {
            at: Timestamp(hour * HOUR),
            vo: vo.map(VoName::new),
            outcome: first,
            attempt: text("attempt", names.0),
            copy: text("copy", names.1),
            destination_path: text("/", names.2),
            attempt_number: (number > 0).then_some(number),
            bytes_moved: sizes.0.map(Bytes),
            file_bytes: sizes.1.map(Bytes),
            is_local: Some(is_local),
            ..Attempt::default()
        };
        let of_site = Attempt {
            at: Timestamp((hour + apart) * HOUR),
            view: View::Site,
            operation,
            outcome: second,
            bytes_moved: sizes.2.map(Bytes),
            ..of_vo.clone()
        };
        (
            (seen_by != 1).then_some(of_vo),
            (seen_by != 2).then_some(of_site),
        )
    })
}

proptest! {
    #[test]
    fn the_bridge_of_any_rows_sums_exactly(
        rows in proptest::collection::vec(any_row(), 0..50),
        windows in ((0i64..20, 0i64..20), (0i64..20, 0i64..20)),
    ) {
        let window = |(from, length): (i64, i64)| TimeWindow {
            from: Timestamp(from * HOUR),
            to: Timestamp((from + length) * HOUR),
        };
        let (mut first, mut second) = (ViewRows::new(window(windows.0)), ViewRows::new(window(windows.1)));
        for (of_vo, of_site) in &rows {
            of_vo.iter().for_each(|row| first.take(row));
            of_site.iter().for_each(|row| second.take(row));
        }
        let result = reconcile(&first, &second);
        prop_assert!(result.all.is_exact(), "{:?}", result.all);
        let mut sum = Bridge::default();
        for bridge in result.by_vo.values() {
            prop_assert!(bridge.is_exact(), "{:?}", bridge);
            sum.first += bridge.first;
            sum.second += bridge.second;
            sum.matched += bridge.matched;
            sum.terms.residue += bridge.terms.residue;
        }
        prop_assert_eq!((sum.first, sum.second), (result.all.first, result.all.second));
        prop_assert_eq!((sum.matched, sum.terms.residue), (result.all.matched, result.all.terms.residue));
        // What is told item by item is all of it, as long as it is not too much.
        let items: i128 = result.residue.iter().map(|item| item.bytes).sum();
        prop_assert_eq!(items, result.all.terms.residue);
    }
}
