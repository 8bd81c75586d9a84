//! Small fields whose outcome can be reckoned.

use super::*;
use std::collections::BTreeMap;

fn run(text: &str) -> Report {
    let plan = Plan::parse(text).unwrap_or_else(|why| panic!("{why}"));
    simulate(&plan, &mut |_| {}).unwrap_or_else(|broken| panic!("seed {}: {broken}", plan.seed))
}

const TWO: &str = "
    length = '27h'
    [[storage]]
    name = 'a'
    read = '1 GB/s'
    write = '1 GB/s'
    [[storage]]
    name = 'b'
    read = '1 GB/s'
    write = '500 MB/s'
    [[network]]
    from = 'a'
    to = 'b'
    bandwidth = '2 GB/s'
    rtt = '100ms'
    window = '10 MB'
";

fn load(files: u64) -> String {
    format!("{TWO}\n[[load]]\nfrom = 'a'\nto = 'b'\nfiles = {files}\nsize = '1 GB'\n")
}

fn check_seconds(report: &Report, expected: std::ops::Range<f64>) {
    assert!(expected.contains(&report.seconds), "{} s", report.seconds);
}

#[test]
fn a_file_takes_as_long_as_the_narrowest_part_says() {
    let report = run(&load(1));
    assert_eq!(report.in_state("FINISHED"), 1);
    check_seconds(&report, 10.0..13.0);
    let report = run(&load(100));
    assert_eq!(report.in_state("FINISHED"), 100);
    check_seconds(&report, 200.0..210.0);
    assert_eq!(report.links[0].active_max, 50, "as many as may");
    assert_eq!(report.bytes, 1e11);
    assert!(
        (report.links[0].bytes / 1e11 - 1.0).abs() < 1e-6,
        "{}",
        report.links[0].bytes
    );
}

#[test]
fn files_over_pools_use_all_of_them() {
    let report = run(&load(400).replace("write = '500 MB/s'", "write = '500 MB/s'\npools = 4"));
    // Chance leaves now one pool, now another with less to do.
    check_seconds(&report, 800.0..1000.0);
}

#[test]
fn what_a_disk_reads_it_cannot_write() {
    let back = "[[load]]\nfrom = 'b'\nto = 'a'\nfiles = 100\nsize = '1 GB'\n";
    let report = run(&(load(100) + back));
    // Each gigabyte takes b two seconds to write, and one to read.
    check_seconds(&report, 295.0..330.0);
}

#[test]
fn a_network_leaves_what_others_do_not_take() {
    let others = load(100).replace("window = '10 MB'", "window = '10 MB'\nothers = '1900 MB/s'");
    check_seconds(&run(&others), 1000.0..1020.0);
}

#[test]
fn a_network_of_its_own_holds_one_way_only_and_says_how_long_a_file_takes_to_open() {
    let back = "[[load]]\nfrom = 'b'\nto = 'a'\nfiles = 20\nsize = '100 MB'\n";
    let mut plan = Plan::parse(&(load(20) + back)).expect("a plan");
    let slow = crate::plan::Network {
        from: 1,
        to: 0,
        per_transfer: 1e6,
        opening: Some(30.0),
        ..plan.networks[0].clone()
    };
    plan.networks.push(slow);
    let report = simulate(&plan, &mut |_| {}).expect("nothing breaks");
    let work: Vec<f64> = report.links.iter().map(|link| link.work_seconds).collect();
    assert!(work[0] < 60.0 && work[1] > 100.0, "{work:?}");
    assert!(report.work_seconds >= work[1] && report.work_seconds <= report.seconds);
}

#[test]
fn what_the_service_records_is_told_as_rows() {
    use penstock_model::observation::Observation;
    let plan = Plan::parse(&load(100)).expect("a plan");
    let (mut landed, mut bytes, mut samples) = (0, 0, 0);
    let mut take = |row: Observation| match row {
        Observation::Attempt(row) => {
            assert!(row.submitted <= row.started && row.started < row.ended);
            assert!(row.prepare_us > Some(0), "{row:?}");
            landed += 1;
            bytes += row.bytes_moved.map_or(0, |bytes| bytes.0);
        }
        Observation::Sample(row) => {
            assert!(row.active <= row.limit, "{row:?}");
            samples += 1;
        }
        Observation::Change(_) | Observation::Incident(_) | Observation::NamespaceChange(_) => {}
    };
    let told = simulate_recorded(&plan, &mut |_| {}, &mut take).expect("nothing breaks");
    assert_eq!((landed, bytes as f64), (100, told.bytes));
    assert!(samples + 2 >= told.seconds as u64, "{samples}");
    let alone = simulate(&plan, &mut |_| {}).expect("nothing breaks");
    assert_eq!(told, alone, "to tell changes nothing");
}

#[test]
fn equal_plans_give_equal_runs_and_seeds_differ() {
    let text = |seed: u64| format!("seed = {seed}\n{}spread = 1.0\nover = '1m'", load(300));
    assert_eq!(run(&text(1)), run(&text(1)));
    assert_ne!(run(&text(1)), run(&text(2)));
}

#[test]
fn four_links_into_one_storage_share_it_alike() {
    let text = "length = '10m'\n[[storage]]\nname = 'd'\nread = '1 GB/s'\nwrite = '1 GB/s'\n\
        [[storage]]\nname = ['r', 's', 't', 'u']\nread = '1 GB/s'\nwrite = '1 GB/s'\n\
        [[load]]\nfrom = ['r', 's', 't', 'u']\nto = 'd'\nfiles = 20000\nsize = '100 MB'\n";
    let report = run(text);
    assert!(report.fairness.links > 0.99, "{:?}", report.fairness);
    assert!((5.5e11..6.1e11).contains(&report.bytes), "{}", report.bytes);
}

#[test]
fn a_storage_that_stands_still_costs_the_time_until_its_agents_give_up() {
    let event =
        "[[event]]\nat = '50s'\nlasts = '100s'\nwhat = 'storage-slow'\nstorage = 'b'\nspeed = 0\n";
    let report = run(&(load(100) + "[service]\nretries = 9\nstall = '60s'\n" + event));
    assert_eq!(report.in_state("FINISHED"), 100);
    assert!(report.failures >= 50, "{}", report.failures);
    assert!(report.slot_seconds.failed > 50.0 * 60.0);
    check_seconds(&report, 300.0..800.0);
}

#[test]
fn events_are_over_after_their_time_and_their_waits_are_told() {
    let check = |event: &str, reason: &str| {
        let event = format!("[[event]]\nat = '20s'\nlasts = '100s'\n{event}");
        let report = run(&(load(100) + "[service]\nretries = 9\n" + &event));
        assert_eq!(report.in_state("FINISHED"), 100, "{event}");
        assert!(
            report.waiting_seconds.contains_key(reason),
            "{:?}",
            report.waiting_seconds
        );
        report
    };
    let report = check("what = 'drain'", "drained");
    check_seconds(&report, 220.0..320.0);
    check("what = 'ban'\nstorage = 'b'", "a banned storage");
    check("what = 'storage-down'\nstorage = 'a'", "the link is halted");
    let report = check(
        "what = 'link-max'\nfrom = 'a'\nto = 'b'\nmax = 1",
        "the link is full",
    );
    assert!(
        report
            .series
            .points
            .iter()
            .any(|point| point.links[0].limit == 1.0)
    );
    check(
        "what = 'storage-max'\nstorage = 'b'\nmax = 1",
        "the destination is full",
    );
    check("what = 'clock'\nby = '-10m'", "the link is full");
    let report = check("what = 'leader-lost'", "the link is full");
    assert_eq!(report.losses, 50);
    let report = run(&(load(100) + "[[event]]\nat = '20s'\nwhat = 'cancel'\npart = 1.0\n"));
    assert_eq!(
        report.in_state("CANCELED") + report.in_state("FINISHED"),
        100
    );
}

#[test]
fn points_stay_few_however_long_a_plan_runs() {
    let report = run(&(load(1000) + "over = '24h'"));
    let points = &report.series.points;
    assert!((200..500).contains(&points.len()), "{}", points.len());
    let bytes: f64 = points.iter().map(|point| point.bytes).sum();
    // All but what came after the last point.
    assert!(bytes / report.bytes > 0.8, "{bytes} of {}", report.bytes);
}

#[test]
fn an_hour_of_the_day_of_the_grid_runs() {
    let (_, text) = crate::plan::EXAMPLES[1];
    let mut plan = Plan::parse(text).expect("a valid plan");
    plan.seconds = 3600.0;
    let report = simulate(&plan, &mut |_| {}).expect("nothing breaks");
    assert_eq!(report.links.len(), 150);
    assert!(report.in_state("FINISHED") > 80_000, "{:?}", report.states);
}

#[test]
fn the_final_state_of_each_of_100_000_transfers_is_rebuilt_from_its_events_alone() {
    use penstock_model::{JobId, TransferEvent, TransferId, TransferState, advance};
    use penstock_observe::{TransferEnding, TransferFacts};
    const TRANSFERS: u64 = 100_000;
    let events = "[[event]]\nat = '60s'\nwhat = 'leader-lost'\nlasts = '20s'\n\
        [[event]]\nat = '120s'\nwhat = 'cancel'\npart = 0.3\n\
        [[event]]\nat = '300s'\nwhat = 'leader-lost'\nlasts = '20s'\n";
    let text = load(TRANSFERS)
        .replace(
            "size = '1 GB'",
            "size = '10 MB'\nspread = 1.0\nover = '10m'",
        )
        .replace("write = '500 MB/s'", "write = '4 GB/s'\nfailures = 0.2")
        .replace("bandwidth = '2 GB/s'", "bandwidth = '20 GB/s'");
    let plan = Plan::parse(&(text + "[service]\nretries = 1\nretry_delay = '30s'\n" + events));
    let plan = plan.expect("a plan");
    let mut world = World::new(&plan);
    world.begin().expect("a leader");
    world.run(&mut |_| {}).expect("nothing breaks");
    let journal = world.service.journal();
    let mut rebuilt: BTreeMap<TransferId, (TransferState, TransferFacts)> = BTreeMap::new();
    for (at, transfer, event) in journal.ledger() {
        // As it is kept and sent: text, and nothing beside it.
        let kept = serde_json::to_string(event).expect("plain data serialises");
        let event: TransferEvent = serde_json::from_str(&kept).expect("it is read again");
        let facts = || TransferFacts::new(*transfer, JobId(Default::default()), None, *at);
        let (state, facts) = rebuilt
            .entry(*transfer)
            .or_insert_with(|| (TransferState::submitted(), facts()));
        if event != TransferEvent::Submitted {
            *state = advance(state, *at, &event).unwrap_or_else(|why| panic!("{transfer}: {why}"));
        }
        facts.take(*at, &event);
    }
    assert_eq!(rebuilt.len() as u64, TRANSFERS);
    let mut ended: BTreeMap<&str, u64> = BTreeMap::new();
    for (transfer, (state, facts)) in &rebuilt {
        assert_eq!(Some(state), journal.state(*transfer), "{transfer}");
        assert!(state.is_terminal(), "{transfer}: {state:?}");
        // What reports and accounts are made of says the same.
        let told = match &facts.ending {
            TransferEnding::Open => "open",
            TransferEnding::Finished { .. } => "FINISHED",
            TransferEnding::Failed { .. } => "FAILED",
            TransferEnding::Canceled { .. } => "CANCELED",
            TransferEnding::NotNeeded { .. } => "NOT_USED",
        };
        assert_eq!(told, state.fts_name(), "{transfer}");
        *ended.entry(told).or_default() += 1;
    }
    // Each kind of end is there, and attempts that were lost with a leader.
    for end in ["FINISHED", "FAILED", "CANCELED"] {
        assert!(ended.get(end) >= Some(&1_000), "{ended:?}");
    }
    let is_lost = |event: &TransferEvent| matches!(event, TransferEvent::AttemptLost { .. });
    let lost = journal
        .ledger()
        .iter()
        .filter(|(_, _, event)| is_lost(event));
    assert!(lost.count() > 0);
}
