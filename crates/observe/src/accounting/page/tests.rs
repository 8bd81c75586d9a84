//! The page as people and browsers get it.

use super::super::{AccountKey, Accountant};
use super::page;
use penstock_model::observation::{Attempt, Operation, Outcome, Sample, SubjectKind, View};
use penstock_model::{Activity, Bytes, PoolName, TimeWindow, Timestamp, VoName};

/// 15 October 2021, 0:00 UTC.
const BEGIN: i64 = 1_634_256_000_000;
const HOUR: i64 = 3_600_000;
const HOSTILE: &str = "\"><script>alert(1)</script><img src=x onerror=alert('2')>\u{202e}";

fn copy(at: i64, vo: &str) -> Attempt {
    Attempt {
        at: Timestamp(BEGIN + at),
        started: Some(Timestamp(BEGIN + at - HOUR / 2)),
        vo: Some(VoName::new(vo)),
        activity: Some(Activity::new("T0 Export")),
        source_host: Some("https://a".into()),
        destination_host: Some("https://b".into()),
        bytes_moved: Some(Bytes(9_000_000_000)),
        file_bytes: Some(Bytes(9_000_000_000)),
        outcome: Some(Outcome::Success),
        ..Attempt::default()
    }
}

fn told(by: AccountKey, rows: &[Attempt], samples: &[Sample]) -> String {
    let mut accountant = Accountant::since(by, Timestamp(BEGIN)).complete();
    rows.iter().for_each(|row| accountant.take(row));
    samples.iter().for_each(|row| accountant.take_sample(row));
    let window = TimeWindow {
        from: Timestamp(BEGIN),
        to: Timestamp(BEGIN + 48 * HOUR),
    };
    page(&accountant.account(Some(window)), 7)
}

/// All that a page can show, with hostile names everywhere.
fn full() -> String {
    let mut rows: Vec<Attempt> = (1..48).map(|hour| copy(hour * HOUR, "atlas")).collect();
    let failed = Attempt {
        outcome: Some(Outcome::Failure),
        fingerprint: Some(HOSTILE.into()),
        vo: Some(VoName::new(HOSTILE)),
        activity: Some(Activity::new(HOSTILE)),
        source_host: Some(HOSTILE.into()),
        destination_host: Some(HOSTILE.into()),
        ..copy(5 * HOUR, "atlas")
    };
    let arrived = Attempt {
        outcome: Some(Outcome::Success),
        ..failed.clone()
    };
    let read = Attempt {
        view: View::Site,
        operation: Operation::Read,
        source_path: Some(HOSTILE.into()),
        server: Some(HOSTILE.into()),
        is_local: Some(true),
        bytes_read: Some(Bytes(1_000_000_000)),
        ..copy(6 * HOUR, "cms")
    };
    let pool = Attempt {
        pool: Some(PoolName::new("p1")),
        server: None,
        is_local: Some(false),
        ended: Some(Timestamp(0)),
        source: HOSTILE.into(),
        ..read.clone()
    };
    rows.extend([failed, arrived, read, pool]);
    let sample = Sample {
        at: Timestamp(BEGIN + HOUR),
        view: View::Network,
        subject_kind: SubjectKind::Interface,
        subject: HOSTILE.into(),
        server: Some("s2".into()),
        interval_ms: Some(60_000),
        bytes_in: Some(Bytes(5)),
        capacity_bytes_per_second: Some(100),
        ..Sample::default()
    };
    told(AccountKey::Vo, &rows, &[sample])
}

#[test]
fn each_figure_of_the_page_says_what_it_counts() {
    let page = full();
    let figures =
        page.matches("<figure>").count() + page.matches("<div class=\"part\"><h3>").count();
    for word in [
        "Population",
        "Window",
        "Event",
        "Unit",
        "Success rule",
        "View",
    ] {
        let said = page.matches(&format!("<b>{word}:</b>")).count();
        // The cards of each of both parts say it as well.
        assert_eq!(said, figures + 2, "{word}");
    }
    for part in [
        "Rate by VO",
        "Rate by activity",
        "Rate by source",
        "Rate by destination",
        "Cumulative volume by VO",
        "Daily averages by VO",
        "Volumes by link",
        "Efficiency, source",
        "Quality in errors and in incidents",
        "relay ratio",
        "Utilisation of interface s2",
        "read it directly",
        "7 bytes of the records could not be read",
        "Cannot be true",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn the_page_needs_nothing_else_and_takes_no_markup_from_names() {
    let page = full();
    for part in [
        "<script",
        "<img",
        "http-equiv=\"refresh",
        "url(",
        "\u{202e}",
        "NaN",
        "inf%",
    ] {
        assert!(!page.contains(part), "{part}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("default-src 'none'"));
    let open = |tag: &str| {
        page.matches(&format!("<{tag}")).count() - page.matches(&format!("</{tag}>")).count()
    };
    for tag in ["table", "tr", "td", "div", "figure", "svg", "h2", "ul"] {
        assert_eq!(open(tag), 0, "{tag}");
    }
}

#[test]
fn a_page_of_nothing_says_so() {
    let empty = page(&Accountant::new(AccountKey::Vo).complete().account(None), 0);
    assert!(empty.contains("There are no records of ended attempts.") && !empty.contains("<h2>"));
    assert!(told(AccountKey::Day, &[], &[]).contains("in this window"));
}

#[test]
fn what_moved_before_the_window_is_in_no_rate_over_time() {
    let rows = [copy(HOUR / 4, "atlas")];
    let mut accountant = Accountant::since(AccountKey::Vo, Timestamp(BEGIN));
    accountant.take(&rows[0]);
    let window = TimeWindow {
        from: Timestamp(BEGIN),
        to: Timestamp(BEGIN + HOUR),
    };
    let account = accountant.account(Some(window));
    // All of it ended inside, half of it moved inside.
    assert_eq!(account.table.lines[0].arrived, Bytes(9_000_000_000));
    let curve = &account.table.over_time[0].curves[0];
    assert_eq!(curve.cumulative.last(), Some(&Bytes(4_500_000_000)));
}
