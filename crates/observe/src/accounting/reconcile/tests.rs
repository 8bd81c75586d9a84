use super::super::tests::{BEGIN, GB, HOUR, copy, failed};
use super::*;
use penstock_model::observation::View;
use penstock_model::{Bytes, VoName};

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

/// Rows that each view has of one path alone; the site's begins so long after the end of the VO's, in milliseconds.
fn of_one_path(gap: i64) -> Week {
    let mut week = Week::new((0, 10), (0, 10));
    let (mut of_vo, mut of_site) = week.row("atlas", HOUR, 4);
    (of_vo.copy, of_site.copy) = (None, None);
    of_site.started = Some(Timestamp(of_vo.at.0 + gap));
    of_site.at = Timestamp(of_vo.at.0 + gap + 20_000);
    week.vo.take(&of_vo);
    week.site.take(&of_site);
    week
}

#[test]
fn a_path_joins_two_rows_only_when_their_copies_touch_in_time() {
    let gb = i128::from(GB);
    let matched = |week: &Week| reconcile(&week.vo, &week.site).all.matched;
    let slack = 10 * 60_000;
    for gap in [-slack, 0, slack] {
        let week = of_one_path(gap);
        assert_eq!(
            (matched(&week), terms_of(&week)),
            (1, (Terms::default(), vec![]))
        );
    }
    // The row that only the site has is no retry of what the VO saw long before.
    let week = of_one_path(slack + 1);
    assert_eq!(matched(&week), 0);
    let result = reconcile(&week.vo, &week.site);
    assert_eq!((result.all.terms.retries, result.all.terms.residue), (0, 0));
    let mut told: Vec<_> = result.residue.iter().map(|item| item.bytes / gb).collect();
    told.sort_unstable();
    assert_eq!(told, [-4, 4]);
    assert!(result.has_residue());
}

#[test]
fn a_session_that_moved_several_files_joins_none_of_them_with_another() {
    let mut week = Week::new((0, 10), (0, 10));
    let (mut first, _) = week.row("atlas", HOUR, 3);
    let (_, mut other) = week.row("atlas", HOUR, 5);
    for row in [&mut first, &mut other] {
        row.copy = None;
        row.session = Some("door:D:17".into());
    }
    week.vo.take(&first);
    week.site.take(&other);
    assert_eq!(reconcile(&week.vo, &week.site).all.matched, 0);
    // What one session wrote at one path is one copy, however far apart the clocks are.
    other.destination_path = first.destination_path.clone();
    other.at = Timestamp(first.at.0 + 5 * HOUR);
    other.started = None;
    let mut week = Week::new((0, 10), (0, 10));
    week.vo.take(&first);
    week.site.take(&other);
    assert_eq!(reconcile(&week.vo, &week.site).all.matched, 1);
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
        (expected, vec!["the second view has no size"])
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
fn a_view_of_too_many_attempts_is_known_to_be_cut() {
    let mut week = Week::new((0, 10), (0, 10));
    week.vo.items_max = 2;
    for hour in 0..2 {
        week.both("atlas", hour * HOUR, 1);
    }
    assert!(!week.vo.is_cut() && !week.site.is_cut());
    week.both("atlas", 3 * HOUR, 1);
    assert!(week.vo.is_cut() && !week.site.is_cut());
    assert_eq!(week.vo.items.len(), 2);
}
