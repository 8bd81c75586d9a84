use super::figures::{PeriodRate, PublishedRow, PublishedTable};
use super::reading::Advice;
use super::reconcile::{Terms, ViewRows, reconcile};
use super::*;
use penstock_model::observation::Text;
use penstock_model::{Activity, PoolName, VoName};

const HOUR: i64 = 3_600_000;
const GB: u64 = 1_000_000_000;
/// 11 October 2021, 8:00 UTC: 10:00 of the challenge's clock.
const BEGIN: i64 = 1_633_939_200_000;

fn copy(at: i64, vo: &str, gigabytes: u64) -> Attempt {
    Attempt {
        at: Timestamp(at),
        started: Some(Timestamp(at - 10_000)),
        view: View::Vo,
        vo: Some(VoName::new(vo)),
        activity: Some(Activity::new("T0 Export")),
        source_host: Some("https://a".into()),
        destination_host: Some("https://b".into()),
        bytes_moved: Some(Bytes(gigabytes * GB)),
        file_bytes: Some(Bytes(gigabytes * GB)),
        outcome: Some(Outcome::Success),
        ..Attempt::default()
    }
}

fn failed(mut row: Attempt, fingerprint: &str) -> Attempt {
    row.outcome = Some(Outcome::Failure);
    row.fingerprint = Some(fingerprint.into());
    row
}

fn account(by: AccountKey, rows: &[Attempt]) -> Account {
    let mut accountant = Accountant::new(by);
    for row in rows {
        accountant.take(row);
    }
    accountant.account(Some(TimeWindow {
        from: Timestamp(BEGIN),
        to: Timestamp(BEGIN + 10 * HOUR),
    }))
}

#[test]
fn each_rate_says_what_it_counts() {
    let rows = [
        copy(BEGIN + HOUR, "atlas", 9),
        copy(BEGIN + 2 * HOUR, "atlas", 9),
        failed(copy(BEGIN + 2 * HOUR, "atlas", 1), "disk full"),
        failed(copy(BEGIN + 3 * HOUR, "atlas", 1), "disk full"),
        Attempt {
            outcome: None,
            ..copy(BEGIN, "atlas", 5)
        },
    ];
    let account = account(AccountKey::Vo, &rows);
    let [line] = account.lines.as_slice() else {
        panic!("one line: {:?}", account.lines);
    };
    assert_eq!((line.succeeded, line.failed, line.incidents), (2, 2, 1));
    assert_eq!(line.efficiency_percent, Some(50.0));
    assert_eq!((line.arrived, line.moved), (Bytes(18 * GB), Bytes(20 * GB)));
    let rate = line.rate.as_ref().expect("time passed");
    assert_eq!(rate.rate.megabits_per_second, 4.0);
    assert_eq!(
        rate.rate.population,
        "copy attempts of VO atlas that arrived"
    );
    assert_eq!((rate.event, rate.success_rule), (EVENT, SUCCESS_RULE));
    assert_eq!(rate.rate.view, crate::rate::View::TransferService);
    assert_eq!(account.open, 1);
    assert_eq!(account.days[0].cumulative, Bytes(18 * GB));
    assert!(account.text().contains("50.0 %"), "{}", account.text());
}

#[test]
fn efficiencies_are_those_of_the_dashboard() {
    // Successes and transfer errors of the matrix of 2011, in thousands, and what was printed.
    for (succeeded, errors, printed) in [(948, 52, 94.8), (802, 198, 80.2), (1, 0, 100.0)] {
        let mut rows = vec![copy(BEGIN + HOUR, "atlas", 1); succeeded];
        rows.extend(vec![failed(copy(BEGIN + HOUR, "atlas", 0), "x"); errors]);
        let account = account(AccountKey::Link, &rows);
        let efficiency = account.lines[0]
            .efficiency_percent
            .expect("something ended");
        assert!((efficiency - printed).abs() < 0.05, "{efficiency}");
        assert_eq!(account.lines[0].name, "https://a → https://b");
    }
}

#[test]
fn views_are_never_added() {
    let site = Attempt {
        view: View::Site,
        operation: Operation::Write,
        pool: Some(PoolName::new("p1")),
        ..copy(BEGIN + HOUR, "atlas", 9)
    };
    let account = account(AccountKey::Vo, &[copy(BEGIN + HOUR, "atlas", 9), site]);
    assert_eq!(account.lines.len(), 2);
    assert!(
        account
            .lines
            .iter()
            .all(|line| line.arrived == Bytes(9 * GB))
    );
    assert_eq!(account.servers[0].written, Bytes(9 * GB));
}

#[test]
fn an_account_of_no_records_says_so_and_names_no_time_that_nobody_asked_for() {
    let none = || Accountant::new(AccountKey::Vo);
    let told = none().account(None);
    assert_eq!(
        (told.window, told.text().as_str()),
        (None, "There are no records of ended attempts.\n")
    );
    let asked = none().account(Some(TimeWindow {
        from: Timestamp(BEGIN),
        to: Timestamp(BEGIN + HOUR),
    }));
    let text = asked.text();
    assert!(
        text.ends_with("There are no records of ended attempts in this window.\n"),
        "{text}"
    );
}

#[test]
fn a_capacity_that_changes_counts_while_it_holds() {
    let sample = |at: i64, capacity: u64, carried: u64| Sample {
        at: Timestamp(BEGIN + at),
        subject_kind: SubjectKind::Interface,
        subject: "eth0".into(),
        server: Some("pool1".into()),
        interval_ms: Some(1000),
        bytes_in: Some(Bytes(carried)),
        capacity_bytes_per_second: Some(capacity),
        ..Sample::default()
    };
    let mut accountant = Accountant::new(AccountKey::Server);
    accountant.take_sample(&sample(1000, 1000, 500));
    accountant.take_sample(&sample(2000, 3000, 500));
    accountant.take_sample(&sample(3000, 1000, 2000));
    let account = accountant.account(None);
    assert_eq!(account.servers[0].utilisation_percent, Some(60.0));
    assert_eq!(account.impossible[0].what, "more was carried than could be");
}

#[test]
fn what_is_relayed_inside_a_site_is_told() {
    let local = Attempt {
        view: View::Site,
        operation: Operation::PoolCopy,
        server: Some("door1".into()),
        ..copy(BEGIN, "atlas", 4)
    };
    let remote = Attempt {
        view: View::Site,
        operation: Operation::Write,
        server: Some("door1".into()),
        ..copy(BEGIN, "atlas", 8)
    };
    let account = account(AccountKey::Server, &[local, remote]);
    assert_eq!(account.servers[0].relay_ratio, Some(0.5));
}

#[test]
fn files_of_which_little_is_read_are_read_directly() {
    let read = |path: &str, client: &str, gigabytes: u64| Attempt {
        view: View::Site,
        operation: Operation::Read,
        source_path: Some(path.into()),
        client: Some(client.into()),
        bytes_read: Some(Bytes(gigabytes * GB)),
        ..copy(BEGIN, "atlas", 10)
    };
    let rows = [
        read("/much", "c1", 10),
        read("/much", "c1", 8),
        read("/little", "c1", 1),
        read("/little", "c2", 3),
    ];
    let readings = account(AccountKey::Vo, &rows).readings;
    let told: Vec<_> = readings
        .iter()
        .map(|file| (&*file.file, file.read_percent, file.clients, file.advice))
        .collect();
    assert_eq!(
        told,
        [
            ("/much", 90.0, 1, Advice::Copy),
            ("/little", 20.0, 2, Advice::Direct)
        ]
    );
}

#[test]
fn rows_that_cannot_be_true_are_told_with_their_arithmetic() {
    let backwards = Attempt {
        ended: Some(Timestamp(BEGIN - 20_000)),
        ..copy(BEGIN, "atlas", 1)
    };
    let short = Attempt {
        bytes_moved: Some(Bytes(5)),
        ..copy(BEGIN, "atlas", 1)
    };
    let limited = Attempt {
        busy_us: Some(5),
        receiver_limited_us: Some(7),
        ..copy(BEGIN, "cms", 1)
    };
    let found = account(AccountKey::Vo, &[backwards, short, limited]).impossible;
    let told: Vec<&str> = found.iter().map(|row| &*row.what).collect();
    assert_eq!(
        told,
        [
            "a total is below its part",
            "a whole file arrived of which fewer bytes moved",
            "an attempt ended before it began"
        ]
    );
    assert!(found[1].examples[0].contains("5 of 1000000000 bytes"));
}

/// The tables of the tape challenge of October 2021 as they were printed, in files, TB, GB/s and GB.
fn published(rows: &[(&str, u64, f64, f64, f64)]) -> PublishedTable {
    let row = |(name, files, terabytes, rate, size): &(&str, u64, f64, f64, f64)| PublishedRow {
        name: (*name).to_owned(),
        files: *files,
        volume: Bytes((terabytes * 1e12) as u64),
        rate: rate * 1e9,
        mean_size: size * 1e9,
    };
    PublishedTable {
        total: row(&rows[0]),
        parts: rows[1..].iter().map(row).collect(),
        seconds: rows[0].2 * 1e12 / (rows[0].3 * 1e9),
        rates: Vec::new(),
    }
}

#[test]
fn each_row_of_the_printed_tables_that_cannot_be_true_is_told() {
    let migration = published(&[
        ("ALL", 277_035, 1068.0, 2.31, 3.85),
        ("ALICE", 111_412, 233.0, 0.622, 2.097),
        ("ATLAS", 58_313, 307.0, 1.77, 5.29),
        ("CMS", 21_947, 235.0, 1.8, 1.074),
        ("LHCB", 44_798, 216.0, 0.983, 4.83),
        ("Others", 40_565, 77.0, 0.205, 1.91),
    ]);
    let told = migration.contradictions();
    let names: Vec<&str> = told.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["ALICE", "ATLAS", "CMS", "CMS", "LHCB", "Others", "ALL"]
    );
    assert_eq!(
        told[2].1,
        "235.0 TB / 21947 files = 10.708 GB, not 1.074 GB (factor 10.0)"
    );
    assert_eq!(
        told[3].1,
        "1.800 GB/s × 128.4 h = 832 TB, not 235 TB: the rate is over 36.3 h"
    );
    assert_eq!(
        told[6].1,
        "rates of the parts add up to 5.38 GB/s, not 2.31 GB/s: they are over different windows"
    );
    let staging = published(&[
        ("ALL", 495_755, 808.954, 1.79, 1.6),
        ("ALICE", 867, 1.37, 0.010_23, 1.5),
        ("ATLAS", 415_704, 550.028, 1.222, 1.3),
        ("CMS", 16_190, 156.609, 1.061, 9.6),
        ("LHCB", 23_810, 51.439, 1.33, 2.16),
        ("Others", 39_184, 49.508, 0.112_65, 1.2),
    ]);
    let told = staging.contradictions();
    let windows = told
        .iter()
        .filter(|(_, what)| what.contains("the rate is over"));
    let windows: Vec<&str> = windows.map(|(name, _)| name.as_str()).collect();
    assert_eq!(windows, ["ALICE", "CMS", "LHCB"]);
    let below = PublishedTable {
        total: PublishedRow {
            files: 22_973,
            ..staging.parts[1].clone()
        },
        parts: vec![PublishedRow {
            files: 44_674,
            ..staging.parts[1].clone()
        }],
        seconds: staging.seconds,
        rates: Vec::new(),
    };
    assert!(
        below
            .contradictions()
            .iter()
            .any(|(_, what)| what.contains("is above its total"))
    );
}

#[test]
fn rates_of_periods_beyond_the_volume_of_the_week_are_told() {
    let hours = 3600.0;
    let rate = |name: &str, of: &str, over: f64, gigabytes: f64| PeriodRate {
        name: name.to_owned(),
        of: of.to_owned(),
        seconds: over * hours,
        rate: gigabytes * 1e9,
    };
    let mut staging = published(&[
        ("ALL", 495_755, 808.954, 1.79, 1.6),
        ("ATLAS", 415_704, 550.028, 1.222, 1.3),
        ("CMS", 16_190, 156.609, 1.061, 9.6),
    ]);
    let before = staging.contradictions().len();
    staging.rates = vec![
        rate("ATLAS A-DT, site", "ATLAS", 55.0, 1.02),
        rate("CMS A-DT, site", "CMS", 60.0, 3.2),
        rate("of nobody", "LHCB", 60.0, 9.0),
    ];
    let told = staging.contradictions();
    let expected = "3.200 GB/s × 60.0 h = 691 TB, more than the 157 TB of all of the window";
    assert_eq!(
        told[before..],
        [("CMS A-DT, site".to_owned(), expected.to_owned())]
    );
}

#[test]
fn the_difference_of_two_rates_is_split_into_sizes_and_files_without_a_rest() {
    let table = published(&[
        ("ALL", 495_755, 808.954, 1.79, 1.6),
        ("ATLAS", 415_704, 550.028, 1.222, 1.3),
        ("CMS", 16_190, 156.609, 1.061, 9.6),
    ]);
    let split = table.compare("ATLAS", "CMS").expect("both are there");
    let sum: f64 = split.parts.iter().map(|part| part.change).sum();
    assert!((sum - (1.061e9 - 1.222e9)).abs() < 1.0, "{split:?}");
    let [sizes, files] = split.parts.as_slice() else {
        panic!("two factors: {split:?}");
    };
    assert!(sizes.change > 2e9 && files.change < -2e9, "{split:?}");
    assert_eq!(table.compare("ATLAS", "nobody"), None);
    let text = split.text();
    assert!(text.ends_with("sum: -0.161 GB/s\n"), "{text}");
}

/// A week in which a VO and a site saw the same files, and why their volumes differ.
struct Week {
    vo: ViewRows,
    site: ViewRows,
    line: u64,
}

impl Week {
    /// The site counts the whole week, the VO its own period.
    fn new(vo_hours: (i64, i64), site_hours: (i64, i64)) -> Week {
        let window = |(from, to): (i64, i64)| TimeWindow {
            from: Timestamp(BEGIN + from * HOUR),
            to: Timestamp(BEGIN + to * HOUR),
        };
        Week {
            vo: ViewRows::new(window(vo_hours)),
            site: ViewRows::new(window(site_hours)),
            line: 0,
        }
    }

    fn row(&mut self, vo: &str, at: i64, gigabytes: u64) -> (Attempt, Attempt) {
        self.line += 1;
        let name: Text = format!("copy-{}", self.line).into();
        let of_vo = Attempt {
            copy: Some(name),
            line: self.line,
            source: "fts".into(),
            destination_path: Some(format!("/tape/f{}", self.line).into()),
            ..copy(BEGIN + at, vo, gigabytes)
        };
        let of_site = Attempt {
            view: View::Site,
            operation: Operation::Write,
            source: "dcache".into(),
            vo: None,
            ..of_vo.clone()
        };
        (of_vo, of_site)
    }

    fn both(&mut self, vo: &str, at: i64, gigabytes: u64) {
        let (of_vo, of_site) = self.row(vo, at, gigabytes);
        self.vo.take(&of_vo);
        self.site.take(&of_site);
    }

    fn site_only(&mut self, vo: &str, (at, gigabytes): (i64, u64), change: impl Fn(&mut Attempt)) {
        let (_, mut row) = self.row(vo, at, gigabytes);
        row.vo = Some(VoName::new(vo));
        change(&mut row);
        self.site.take(&row);
    }
}

#[test]
fn the_bridge_of_the_week_sums_exactly_and_leaves_nothing() {
    // The VO's after-data-taking period is hours 36 to 96; the site tells from 30 to 128.
    let mut week = Week::new((36, 96), (30, 128));
    for hour in 36..96 {
        week.both("atlas", hour * HOUR + 5, 190);
        week.both("cms", hour * HOUR + 7, 260);
    }
    // Before and after the VO's period: most of CMS came on the last day.
    week.both("atlas", 31 * HOUR, 500);
    for hour in 96..128 {
        week.both("cms", hour * HOUR + 9, 900);
    }
    // Failed after half of the bytes; arrived at the second attempt.
    for hour in 40..60 {
        let (mut of_vo, mut of_site) = week.row("cms", hour * HOUR, 70);
        of_vo.attempt_number = Some(1);
        of_vo.bytes_moved = None;
        of_site.attempt_number = Some(1);
        week.vo.take(&failed(of_vo.clone(), "timeout"));
        week.site.take(&failed(of_site.clone(), "timeout"));
        for row in [&mut of_vo, &mut of_site] {
            row.attempt_number = Some(2);
            row.bytes_moved = row.file_bytes;
        }
        week.vo.take(&of_vo);
        week.site.take(&of_site);
    }
    // Written a second time although it had arrived.
    let (of_vo, of_site) = week.row("atlas", 50 * HOUR, 33);
    week.vo.take(&of_vo);
    week.site.take(&of_site);
    week.site.take(&of_site);
    // By the site's clock, 90 s late, it is outside of its window.
    let (mut of_vo, mut of_site) = week.row("atlas", 96 * HOUR - 30_000, 21);
    of_vo.at = Timestamp(BEGIN + 36 * HOUR);
    of_site.at = Timestamp(BEGIN + 128 * HOUR + 60_000);
    week.vo.take(&of_vo);
    week.site.take(&of_site);
    week.site_only("cms", (70 * HOUR, 400), |row| {
        row.operation = Operation::Recall
    });
    week.site_only("atlas", (71 * HOUR, 55), |row| {
        row.operation = Operation::Read;
        row.is_local = Some(true);
    });
    let result = reconcile(&week.vo, &week.site);
    let (atlas, cms) = (&result.by_vo["atlas"], &result.by_vo["cms"]);
    let gb = i128::from(GB);
    assert_eq!(
        atlas.terms,
        Terms {
            retries: 33 * gb,
            windows: 500 * gb,
            clocks: -21 * gb,
            local_reads: 55 * gb,
            ..Terms::default()
        }
    );
    assert_eq!(
        cms.terms,
        Terms {
            failed_attempts: 20 * 70 * gb,
            windows: 32 * 900 * gb,
            staging: 400 * gb,
            ..Terms::default()
        }
    );
    for bridge in [&result.all, atlas, cms] {
        assert!(bridge.is_exact(), "{bridge:?}");
        assert_eq!(bridge.terms.residue, 0);
    }
    assert_eq!(result.residue, []);
    assert_eq!((cms.first, cms.second), (17_000 * gb, 47_600 * gb));
    // ATLAS by 5 %, CMS by 2.8 times: a site that counts the week beside a VO that counts its own period.
    let ratio = |second: i128, first: i128| second as f64 / first as f64;
    assert!(ratio(cms.second, cms.first) > 2.5 && ratio(atlas.second, atlas.first) < 1.1);
}

#[test]
fn what_nothing_explains_is_residue_item_by_item() {
    let mut week = Week::new((0, 10), (0, 10));
    week.both("atlas", HOUR, 5);
    week.site_only("atlas", (HOUR, 3), |_| {});
    let (of_vo, _) = week.row("cms", HOUR, 7);
    week.vo.take(&of_vo);
    let (of_vo, mut of_site) = week.row("cms", HOUR, 9);
    of_site.bytes_moved = Some(Bytes(8 * GB));
    week.vo.take(&of_vo);
    week.site.take(&of_site);
    let result = reconcile(&week.vo, &week.site);
    assert!(result.all.is_exact());
    let gb = i128::from(GB);
    assert_eq!(
        (result.all.terms.residue, result.all.terms.sizes),
        (-4 * gb, -gb)
    );
    let told: Vec<_> = result
        .residue
        .iter()
        .map(|item| (&*item.row, item.bytes / gb))
        .collect();
    assert_eq!(told, [("fts line 3", -7), ("dcache line 2", 3)]);
    assert!(
        result
            .text()
            .contains("residue: fts line 3 (cms), -7000000000 bytes")
    );
}

/// The bridge of rows that each view takes on its own.
fn terms_of(week: &Week) -> (Terms, Vec<&'static str>) {
    let result = reconcile(&week.vo, &week.site);
    assert!(result.all.is_exact(), "{:?}", result.all);
    let why = result.residue.iter().map(|item| item.why).collect();
    (result.all.terms, why)
}

#[test]
fn a_row_of_one_view_outside_of_the_window_of_the_other_is_a_term_of_windows() {
    let gb = i128::from(GB);
    let mut week = Week::new((0, 10), (5, 20));
    let (of_vo, _) = week.row("atlas", HOUR, 3);
    week.vo.take(&of_vo);
    week.site_only("atlas", (12 * HOUR, 8), |_| {});
    let expected = Terms {
        windows: 5 * gb,
        ..Terms::default()
    };
    assert_eq!(terms_of(&week), (expected, vec![]));
}

#[test]
fn a_path_that_was_written_twice_is_joined_with_the_nearest_in_time() {
    let gb = i128::from(GB);
    let mut week = Week::new((0, 10), (0, 20));
    let (mut of_vo, mut of_site) = week.row("atlas", HOUR, 4);
    (of_vo.copy, of_site.copy) = (None, None);
    let mut later = of_site.clone();
    later.at = Timestamp(BEGIN + 15 * HOUR);
    later.bytes_moved = Some(Bytes(6 * GB));
    week.site.take(&later);
    week.site.take(&of_site);
    week.vo.take(&of_vo);
    let expected = Terms {
        windows: 6 * gb,
        ..Terms::default()
    };
    assert_eq!(terms_of(&week), (expected, vec![]));
}

#[test]
fn an_attempt_that_ended_differently_in_the_two_views_is_one_attempt() {
    let gb = i128::from(GB);
    for (vo_fails, gigabytes, why) in [
        (
            true,
            7,
            "it failed in the first view and arrived in the second",
        ),
        (
            false,
            -7,
            "it arrived in the first view and failed in the second",
        ),
    ] {
        let mut week = Week::new((0, 10), (0, 10));
        let (mut of_vo, mut of_site) = week.row("atlas", HOUR, 7);
        of_vo.attempt = Some("attempt-1".into());
        of_site.attempt = of_vo.attempt.clone();
        match vo_fails {
            true => of_vo = failed(of_vo, "timeout"),
            false => {
                of_site = failed(of_site, "timeout");
                of_site.bytes_moved = Some(Bytes(0));
            }
        }
        week.vo.take(&of_vo);
        week.site.take(&of_site);
        let expected = Terms {
            residue: gigabytes * gb,
            ..Terms::default()
        };
        assert_eq!(terms_of(&week), (expected, vec![why]));
        let all = reconcile(&week.vo, &week.site).all;
        assert_eq!((all.matched, all.first_only, all.second_only), (1, 0, 0));
    }
}

#[test]
fn a_size_that_a_view_does_not_tell_is_no_difference_of_sizes() {
    let gb = i128::from(GB);
    let mut week = Week::new((0, 10), (0, 10));
    let (of_vo, mut of_site) = week.row("atlas", HOUR, 2);
    (of_site.bytes_moved, of_site.file_bytes) = (None, None);
    week.vo.take(&of_vo);
    week.site.take(&of_site);
    let expected = Terms {
        residue: -2 * gb,
        ..Terms::default()
    };
    assert_eq!(
        terms_of(&week),
        (expected, vec!["the second view tells no size"])
    );
}

#[test]
fn a_read_at_the_source_of_a_copy_is_no_retry() {
    let gb = i128::from(GB);
    let mut week = Week::new((0, 10), (0, 10));
    let (of_vo, of_site) = week.row("atlas", HOUR, 2);
    let at_source = Attempt {
        operation: Operation::Read,
        is_local: Some(false),
        destination_path: None,
        ..of_site.clone()
    };
    week.vo.take(&of_vo);
    week.site.take(&of_site);
    week.site.take(&at_source);
    let (terms, why) = terms_of(&week);
    assert_eq!((terms.retries, terms.residue), (0, 2 * gb));
    assert_eq!(
        why,
        ["a read at the source of a copy that the first view has"]
    );
}

#[test]
fn a_name_of_others_forges_no_line() {
    let lines = |name: &str| {
        let mut row = copy(1, "atlas", 1);
        row.server = Some(name.into());
        account(AccountKey::Server, &[row]).text().lines().count()
    };
    assert_eq!(lines("evil\nsite copy se 9"), lines("plain"));
}
