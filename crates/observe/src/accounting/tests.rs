use super::figures::{PeriodRate, PublishedRow, PublishedTable};
use super::reading::Advice;
use super::*;
use crate::ended_copies::tests::{attempts_with_all_columns, stored};
use penstock_model::observation::{Outcome, SubjectKind};
use penstock_model::{Activity, PoolName, VoName};

pub(super) const HOUR: i64 = 3_600_000;
pub(super) const GB: u64 = 1_000_000_000;
/// 11 October 2021, 8:00 UTC: 10:00 of the challenge's clock.
pub(super) const BEGIN: i64 = 1_633_939_200_000;

pub(super) fn copy(at: i64, vo: &str, gigabytes: u64) -> Attempt {
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

pub(super) fn failed(mut row: Attempt, fingerprint: &str) -> Attempt {
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
    let [line] = account.table.lines.as_slice() else {
        panic!("one line: {:?}", account.table.lines);
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
    assert_eq!(rate.rate.view, View::Vo);
    assert_eq!(account.open, 1);
    assert_eq!(account.table.days[0].cumulative, Bytes(18 * GB));
    assert!(account.text().contains("50.0 %"), "{}", account.text());
}

#[test]
fn efficiencies_are_those_of_the_dashboard() {
    // Successes and transfer errors of the matrix of 2011, in thousands, and what was printed.
    for (succeeded, errors, printed) in [(948, 52, 94.8), (802, 198, 80.2), (1, 0, 100.0)] {
        let mut rows = vec![copy(BEGIN + HOUR, "atlas", 1); succeeded];
        rows.extend(vec![failed(copy(BEGIN + HOUR, "atlas", 0), "x"); errors]);
        let account = account(AccountKey::Link, &rows);
        let efficiency = account.table.lines[0]
            .efficiency_percent
            .expect("something ended");
        assert!((efficiency - printed).abs() < 0.05, "{efficiency}");
        assert_eq!(account.table.lines[0].name, "https://a → https://b");
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
    assert_eq!(account.table.lines.len(), 2);
    assert!(
        account
            .table
            .lines
            .iter()
            .all(|line| line.arrived == Bytes(9 * GB))
    );
    assert_eq!(account.servers[0].written, Bytes(9 * GB));
}

#[test]
fn what_both_views_tell_of_a_pool_is_not_added_and_interfaces_stand_beside_the_site() {
    let of_vo = Attempt {
        pool: Some(PoolName::new("p1")),
        ..copy(BEGIN + HOUR, "atlas", 9)
    };
    let of_site = Attempt {
        view: View::Site,
        operation: Operation::Write,
        ..of_vo.clone()
    };
    let interface = |server: &str| Sample {
        subject_kind: SubjectKind::Interface,
        subject: "eth0".into(),
        server: Some(server.into()),
        interval_ms: Some(1000),
        bytes_in: Some(Bytes(7)),
        ..Sample::default()
    };
    let mut accountant = Accountant::new(AccountKey::Server);
    accountant.take(&of_vo);
    accountant.take(&of_site);
    accountant.take_sample(&interface("p1"));
    accountant.take_sample(&interface("p2"));
    let told: Vec<_> = accountant
        .account(None)
        .servers
        .into_iter()
        .map(|line| {
            (
                line.server,
                line.view,
                line.written.0 / GB,
                line.interfaces_in,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("p1".to_owned(), View::Vo, 9, None),
            ("p1".to_owned(), View::Site, 9, Some(Bytes(7))),
            ("p2".to_owned(), View::Network, 0, Some(Bytes(7))),
        ]
    );
}

#[test]
fn days_and_their_rates_are_those_of_the_part_that_is_in_the_window() {
    // From 8:00 to 18:00 on the first day.
    let account = account(AccountKey::Vo, &[copy(BEGIN + HOUR, "atlas", 36)]);
    let rate = account.table.days[0].rate.as_ref().expect("time passed");
    assert_eq!(
        (rate.rate.seconds, rate.rate.megabits_per_second),
        (36_000.0, 8.0)
    );
    let mut accountant = Accountant::new(AccountKey::Day);
    for hour in [1, 30, 31] {
        accountant.take(&copy(BEGIN + hour * HOUR, "atlas", 1));
    }
    let account = accountant.account(None);
    let told: Vec<_> = account
        .table
        .days
        .iter()
        .map(|day| (&*day.name, &*day.day, day.cumulative.0 / GB))
        .collect();
    assert_eq!(
        told,
        [("(all)", "2021-10-11", 1), ("(all)", "2021-10-12", 3)]
    );
    assert_eq!(account.table.lines.len(), 2);
}

#[test]
fn errors_and_incidents_are_told_with_what_the_largest_incident_hides() {
    // The tape phase of 2006: 306 errors of 40,123, most of them one full disk.
    let mut rows = vec![copy(BEGIN + HOUR, "atlas", 1); 817];
    rows.extend(vec![
        failed(copy(BEGIN + HOUR, "atlas", 0), "disk full");
        298
    ]);
    rows.extend(vec![failed(copy(BEGIN + HOUR, "atlas", 0), "timeout"); 8]);
    let account = account(AccountKey::Vo, &rows);
    let [quality] = account.quality.as_slice() else {
        panic!("one part: {:?}", account.quality);
    };
    assert_eq!((quality.errors, quality.incidents), (306, 2));
    let percent = quality.error_percent_without_largest.expect("others ended");
    assert!((percent - 100.0 * 8.0 / 825.0).abs() < 1e-9, "{percent}");
    assert_eq!(
        (&*quality.kinds[0].fingerprint, quality.kinds[0].errors),
        ("disk full", 298)
    );
    let text = account.text();
    assert!(
        text.contains("306 errors of 1123 attempts (27.25 %), 2 incidents"),
        "{text}"
    );
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
fn a_copy_that_a_server_pushed_was_read_from_it() {
    let pulled = Attempt {
        view: View::Site,
        server: Some("se1".into()),
        destination_path: Some("/here".into()),
        ..copy(BEGIN, "atlas", 4)
    };
    let pushed = Attempt {
        source_path: Some("/here".into()),
        destination_path: None,
        ..copy(BEGIN, "atlas", 8)
    };
    let pushed = Attempt {
        view: View::Site,
        server: Some("se1".into()),
        ..pushed
    };
    let account = account(AccountKey::Server, &[pulled, pushed]);
    let line = &account.servers[0];
    assert_eq!((line.written, line.read), (Bytes(4 * GB), Bytes(8 * GB)));
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

#[test]
fn a_name_of_others_forges_no_line() {
    let lines = |name: &str| {
        let mut row = copy(1, "atlas", 1);
        row.server = Some(name.into());
        account(AccountKey::Server, &[row]).text().lines().count()
    };
    assert_eq!(lines("evil\nsite copy se 9"), lines("plain"));
}

#[test]
fn attempts_are_accounted_for_the_same_through_a_store_as_without_one() {
    let rows = attempts_with_all_columns();
    let keys = [
        AccountKey::Vo,
        AccountKey::Link,
        AccountKey::Server,
        AccountKey::Activity,
    ];
    for key in keys {
        let told = |accountant: Accountant| {
            let account = accountant.account(None);
            serde_json::to_value(account).expect("it is JSON")
        };
        let mut direct = Accountant::new(key).complete();
        rows.iter().for_each(|row| direct.take(row));
        let mut read = Accountant::new(key).complete();
        let (_directory, mut reader) = stored(&rows);
        let all = reader.each::<Attempt>(TimeWindow::ALL, &COLUMNS, |row| read.take(row));
        all.expect("readable");
        assert_eq!(told(read), told(direct), "{key:?}");
    }
}
