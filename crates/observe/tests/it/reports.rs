use crate::stories::{self, Story};
use penstock_model::{Bytes, LinkId, LinkSample, PoolName, TransferId};
use penstock_observe::report::FallenFactor;
use penstock_observe::{BandwidthReport, ReportInput, TransferEnding, TransferFacts, gather};
use proptest::prelude::*;
use std::path::Path;

fn report(
    population: &str,
    story: &Story,
    link_of: impl FnMut(TransferId) -> Option<LinkId>,
) -> BandwidthReport {
    let facts = gather(&story.entries, link_of);
    let input = ReportInput {
        population: population.to_owned(),
        transfers: facts.iter().collect(),
        window: None,
    };
    BandwidthReport::of(&input, &story.samples)
}

/// Compares with `golden/<name>.txt`. When a change is meant, put the text of the failure into that file.
fn check(name: &str, got: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/golden")
        .join(format!("{name}.txt"));
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        got == expected,
        "{} differs; it is now:\n{got}",
        path.display()
    );
    for line in got.lines() {
        assert!(line.chars().count() <= 80, "longer than 80 columns: {line}");
    }
}

#[test]
fn a_report_begins_as_bulk_testers_know_it_and_explains_itself() {
    let story = stories::fifty_files();
    let link = |_| Some(stories::link("gla.example", "ed.example"));
    let text = report("job list gla-ed.txt", &story, link).to_string();
    let first: Vec<&str> = text.lines().take(4).collect();
    assert_eq!(
        first,
        [
            "Transfer Bandwidth Report:",
            "  50/50 transferred in 1253.39 seconds",
            "  50000000000 bytes transferred.",
            "Bandwidth: 319.14 Mb/s",
        ]
    );
    check("fifty_files", &text);
}

#[test]
fn a_full_disk_is_many_errors_and_one_incident() {
    let report = report("job 7", &stories::a_full_disk(), stories::link_of);
    assert_eq!(
        (report.quality.errors, report.quality.incidents.len()),
        (9, 1)
    );
    check("a_full_disk", &report.to_string());
}

#[test]
fn a_report_of_nothing_says_so() {
    check(
        "nothing",
        &report("job 8", &Story::default(), |_| None).to_string(),
    );
}

#[test]
fn a_report_of_a_window_counts_only_what_arrived_inside() {
    let story = stories::fifty_files();
    let facts = gather(&story.entries, |_| None);
    let at = |ms: i64| penstock_model::Timestamp(stories::START + ms);
    let input = ReportInput {
        population: "all".into(),
        transfers: facts.iter().collect(),
        window: Some((at(0), at(300_000))),
    };
    let report = BandwidthReport::of(&input, &story.samples);
    assert_eq!(
        (report.transfers.finished, report.bytes, report.seconds),
        (10, Bytes(10_000_000_000), 300.0)
    );
}

#[test]
fn text_from_a_remote_server_cannot_steer_the_terminal() {
    let mut story = Story::default();
    story.tell(0, 1, stories::started(1));
    story.tell(
        9,
        1,
        stories::failed(1, "\u{1b}[2Jall is well\nBandwidth: 9 Mb/s", None),
    );
    let text = report("job \u{1b}]0;x\u{7}", &story, |_| None).to_string();
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "{text:?}"
    );
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("Bandwidth:"))
            .count(),
        1
    );
}

/// Ten minutes at 10 of 10 files and 20 MB/s each, with what the third to fifth minute looked like instead.
fn ten_minutes(moved: u64, slots: (u32, u32, u64)) -> BandwidthReport {
    let mut story = Story::default();
    let link = stories::link("cern.example", "in2p3.example");
    story.tell(0, 1, stories::started(1));
    story.tell(600_000, 1, stories::landed(1, 1, Default::default()));
    for second in 1..=600i64 {
        let (moved, slots) = match second {
            121..=300 => (moved, slots),
            _ => (200_000_000, (10, 10, 5)),
        };
        story.sample(second * 1000, link.clone(), moved, slots);
    }
    report("job 1", &story, |_| Some(link.clone()))
}

fn a_drop(moved: u64, slots: (u32, u32, u64)) -> (Vec<FallenFactor>, Vec<f64>) {
    let report = ten_minutes(moved, slots);
    assert_eq!(report.drops.len(), 1, "{:?}", report.drops);
    let drop = &report.drops[0];
    let at = |ms: i64| penstock_model::Timestamp(stories::START + ms);
    assert_eq!((drop.from, drop.to), (at(120_000), at(300_000)));
    let whole: f64 = drop.causes.iter().map(|cause| cause.share_percent).sum();
    assert!((whole - 100.0).abs() < 1e-6, "parts add up to {whole} %");
    let causes = drop.causes.iter();
    (
        causes.clone().map(|cause| cause.cause).collect(),
        causes.map(|cause| cause.share_percent).collect(),
    )
}

#[test]
fn a_drop_is_split_into_the_factors_that_fell() {
    // 10 April 2006: the rate halved, no errors, no network problem, "too few concurrent transfers".
    let (causes, shares) = a_drop(100_000_000, (5, 10, 40));
    assert_eq!(causes[0], FallenFactor::NotFed);
    assert!((shares[0] - 100.0).abs() < 1e-6);
    // The number of files on the channel was lowered.
    assert_eq!(
        a_drop(100_000_000, (5, 5, 40)).0[0],
        FallenFactor::LowerLimit
    );
    // Every night at 23:40 a database dump slowed everything down.
    assert_eq!(
        a_drop(60_000_000, (10, 10, 40)).0[0],
        FallenFactor::SlowerFiles
    );
    // Half of the files moved, each at half of its rate: two equal parts.
    let (_, shares) = a_drop(50_000_000, (5, 10, 40));
    assert!((shares[0] - 50.0).abs() < 1e-6 && (shares[1] - 50.0).abs() < 1e-6);
    // Nothing moved at all although ten files were on their way.
    assert_eq!(a_drop(0, (10, 10, 40)).0[0], FallenFactor::SlowerFiles);
}

#[test]
fn an_empty_queue_is_no_drop() {
    // 5 April 2006: the load generator had stopped, so nothing waited.
    assert_eq!(ten_minutes(100_000_000, (5, 10, 0)).drops, []);
    // The files that still moved did so faster.
    assert_eq!(ten_minutes(50_000_000, (1, 10, 0)).drops, []);
    // A slow file is one, also when it is the last.
    let slow = ten_minutes(1_000_000, (1, 10, 0)).drops;
    assert_eq!(
        slow[0].causes[0].cause,
        FallenFactor::SlowerFiles,
        "{slow:?}"
    );
}

#[test]
fn parts_of_a_drop_are_those_that_fell() {
    // Files were twice as fast, but a tenth of them moved: that is all of the drop, not 143 % of it.
    let (causes, shares) = a_drop(40_000_000, (1, 10, 40));
    assert_eq!(causes, [FallenFactor::NotFed]);
    assert!((shares[0] - 100.0).abs() < 1e-6, "{shares:?}");
}

#[test]
fn a_run_of_less_than_a_second_has_one_rate() {
    for (end, sampled_at) in [(600, 900), (600, 300), (2_400, 700), (2_400, 1_000)] {
        let mut story = Story::default();
        let link = stories::link("cern.example", "in2p3.example");
        story.tell(0, 1, stories::started(1));
        story.tell(end, 1, stories::landed(1, 300_000_000, Default::default()));
        // A steady rate, seen by a sampler that knows nothing of when files begin and end.
        let moved_by = |at: i64| 300_000_000 * at.clamp(0, end) as u64 / end as u64;
        let mut at = sampled_at;
        while moved_by(at - 1_000) < 300_000_000 {
            let moved = moved_by(at) - moved_by(at - 1_000);
            let active = u32::from(at < end);
            story.sample(at, link.clone(), moved, (active, 10, 0));
            at += 1_000;
        }
        let report = report("job 1", &story, |_| Some(link.clone()));
        let mean = report.bandwidth.expect("time passed").megabits_per_second;
        let bins = report.rate_over_time.expect("samples").megabits_per_second;
        for rate in bins {
            let rate = rate.expect("no gap");
            assert!(
                (rate / mean - 1.0).abs() < 0.05,
                "{end} {sampled_at}: {rate} of {mean} Mb/s"
            );
        }
    }
}

#[test]
fn a_link_that_had_no_work_half_of_the_time_did_not_lose_its_limit() {
    let mut story = Story::default();
    let link = stories::link("cern.example", "in2p3.example");
    story.tell(0, 1, stories::started(1));
    story.tell(600_000, 1, stories::landed(1, 1, Default::default()));
    for second in 1..=600i64 {
        // A link without work is not sampled.
        if second % 2 == 0 || !(121..=300).contains(&second) {
            story.sample(second * 1000, link.clone(), 200_000_000, (10, 10, 0));
        }
    }
    let report = report("job 1", &story, |_| Some(link.clone()));
    assert_eq!(report.drops, [], "there was no work, and no lower limit");
}

#[test]
fn a_slow_start_and_noise_are_no_drops() {
    let mut story = Story::default();
    let link = stories::link("cern.example", "in2p3.example");
    story.tell(0, 1, stories::started(1));
    story.tell(60_000, 1, stories::landed(1, 1, Default::default()));
    for second in 1..=60i64 {
        let moved = if second < 8 || second == 30 {
            1_000
        } else {
            200_000_000
        };
        story.sample(second * 1000, link.clone(), moved, (10, 10, 5));
    }
    assert_eq!(report("job 1", &story, |_| Some(link.clone())).drops, []);
}

fn any_facts() -> impl Strategy<Value = Vec<TransferFacts>> {
    let one = (
        0u64..4,
        proptest::option::of(0u64..3),
        proptest::option::of(0u64..1 << 40),
        0i64..100_000,
    );
    proptest::collection::vec(one, 0..40).prop_map(|rows| {
        let facts = |(n, (link, pool, size, ms)): (usize, (u64, Option<u64>, Option<u64>, i64))| {
            let at = penstock_model::Timestamp(stories::START + ms);
            let link = (link > 0).then(|| stories::link(&format!("se{link}"), "in2p3"));
            let job = penstock_model::JobId(uuid::Uuid::nil());
            let mut facts = TransferFacts::new(TransferId(n as u64), job, link, at);
            if let Some(size) = size {
                let report = penstock_model::MoverReport {
                    pool: pool.map(|n| PoolName::new(format!("pool{n}"))),
                    ..penstock_model::MoverReport::default()
                };
                facts.ending = TransferEnding::Finished {
                    at,
                    size: Bytes(size),
                    mode: None,
                    report: Box::new(report),
                };
            }
            facts
        };
        rows.into_iter().enumerate().map(facts).collect()
    })
}

proptest! {
    #[test]
    fn shares_add_up_to_the_total(transfers in any_facts()) {
        let transfers = transfers.iter().collect();
        let input = ReportInput { population: "any".into(), transfers, window: None };
        let report = BandwidthReport::of(&input, Vec::<LinkSample>::new());
        prop_assert_eq!(report.links.iter().map(|share| share.bytes.0).sum::<u64>(), report.bytes.0);
        prop_assert_eq!(report.pools.iter().map(|share| share.bytes.0).sum::<u64>(), report.bytes.0);
        let counts = report.transfers;
        prop_assert_eq!(report.links.iter().map(|share| share.finished).sum::<u64>(), counts.finished);
        prop_assert_eq!(counts.finished + counts.failed + counts.canceled + counts.open, counts.total);
        if report.bytes.0 > 0 {
            let percent: f64 = report.links.iter().filter_map(|share| share.share_percent).sum();
            prop_assert!((percent - 100.0).abs() < 1e-6, "{}", percent);
        }
    }

    #[test]
    fn the_order_of_entries_does_not_matter(seed in any::<u64>()) {
        let story = stories::a_full_disk();
        let mut shuffled = story.entries.clone();
        let mut state = seed | 1;
        for n in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.swap(n, (state >> 33) as usize % (n + 1));
        }
        prop_assert_eq!(gather(&shuffled, stories::link_of), gather(&story.entries, stories::link_of));
    }
}
