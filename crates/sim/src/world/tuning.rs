//! Tuning beside the best number that anybody could have set, on fields of which that number is known by trying.

use crate::plan::{Change, Event, Load, Network, Plan, Policy, Service, Storage};
use crate::report::{Report, jain};
use crate::simulate;

const MB: f64 = 1e6;

fn storage(name: &str, rate: f64, halved_at: Option<f64>) -> Storage {
    Storage {
        name: name.to_owned(),
        pools: 1,
        read: rate * MB,
        write: rate * MB,
        halved_at,
        uplink: None,
        latency: 0.01,
        failures: 0.0,
    }
}

fn network(from: usize, to: usize, bandwidth: f64, per_transfer: f64) -> Network {
    Network {
        from,
        to,
        bandwidth: bandwidth * MB,
        per_transfer: per_transfer * MB,
        rtt: 0.001,
        opening: None,
        others: 0.0,
        others_swing: 0.0,
    }
}

/// More than can be moved in all the time.
fn load(from: usize, to: usize, megabytes: f64, begin: f64) -> Load {
    Load {
        pairs: vec![(from, to)],
        vo: "vo".to_owned(),
        users: 1,
        activity: "default".to_owned(),
        files: (120_000.0 / megabytes).clamp(1200.0, 80_000.0) as u64,
        size: megabytes * MB,
        spread: 0.3,
        job: 10_000,
        begin,
        over: 0.0,
        daily: 0.0,
        priority: 3,
        hopeless: None,
    }
}

fn plan(storages: Vec<Storage>, networks: Vec<Network>, loads: Vec<Load>) -> Plan {
    Plan {
        name: String::new(),
        seconds: 100.0,
        seed: 1,
        service: Service {
            link_max: 200,
            storage_max: 800,
            agents_max: 5000,
            ..Service::default()
        },
        storages,
        networks,
        vos: Vec::new(),
        loads,
        events: Vec::new(),
        malice: Default::default(),
    }
}

fn pair(rate: f64, halved_at: Option<f64>, way: (f64, f64), megabytes: f64) -> Plan {
    plan(
        vec![storage("a", rate, None), storage("b", rate, halved_at)],
        vec![network(0, 1, way.0, way.1)],
        vec![load(0, 1, megabytes, 0.0)],
    )
}

/// Four sources, one destination.
fn four(rate: f64, halved_at: Option<f64>, per_transfer: f64, begins: [f64; 4]) -> Plan {
    let mut storages = vec![storage("d", rate, halved_at)];
    let (mut networks, mut loads) = (Vec::new(), Vec::new());
    for (number, begin) in (1..).zip(begins) {
        storages.push(storage(&format!("s{number}"), 5000.0, None));
        networks.push(network(number, 0, 5000.0, per_transfer));
        loads.push(load(number, 0, 100.0, begin));
    }
    plan(storages, networks, loads)
}

fn run(plan: &Plan, policy: Policy, seed: u64) -> Report {
    let mut plan = plan.clone();
    plan.seed = seed;
    plan.service.policy = policy;
    simulate(&plan, &mut |_| {}).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"))
}

/// Megabytes that each link moved in these seconds.
fn moved(report: &Report, (from, to): (usize, usize)) -> Vec<f64> {
    assert!(report.series.step == 1.0, "a point for each second");
    let points = report.series.points.iter().take(to).skip(from);
    let mut sums = vec![0.0; report.links.len()];
    for point in points {
        for (sum, link) in sums.iter_mut().zip(&point.links) {
            *sum += link.bytes / MB;
        }
    }
    sums
}

/// Megabytes a second over all links.
fn rate(report: &Report, window: (usize, usize)) -> f64 {
    moved(report, window).iter().sum::<f64>() / (window.1 - window.0) as f64
}

/// The best of these fixed numbers, alike on all links.
fn best(plan: &Plan, numbers: &[u32], window: (usize, usize)) -> f64 {
    let each = numbers.iter();
    each.map(|number| rate(&run(plan, Policy::Fixed(*number), 1), window))
        .fold(0.0, f64::max)
}

/// After half a minute, at least 95 % of the best.
fn check(name: &str, plan: &Plan, numbers: &[u32]) {
    let window = (30, 100);
    let best = best(plan, numbers, window);
    for seed in 1..=2 {
        let tuned = rate(&run(plan, Policy::Measured, seed), window);
        let seen = format!("{name}, seed {seed}: {tuned:.0} of {best:.0} MB/s");
        println!("{seen}");
        assert!(tuned >= 0.95 * best, "{seen}");
    }
}

#[test]
fn one_link_finds_its_best_number() {
    let short = pair(1000.0, None, (1000.0, 200.0), 200.0);
    check("a short way", &short, &[5, 6, 10]);
    let long = pair(5000.0, None, (1000.0, 10.0), 100.0);
    check("a long way", &long, &[50, 100, 120, 150]);
    let degrades = pair(1000.0, Some(30.0), (9000.0, 100.0), 100.0);
    check("a storage that degrades", &degrades, &[7, 10, 13, 20]);
    let early = pair(1000.0, Some(6.0), (9000.0, 400.0), 100.0);
    check("one that degrades early", &early, &[2, 3, 4, 5]);
}

#[test]
fn small_files_run_in_such_numbers_as_hide_their_latency() {
    let mut plan = pair(1000.0, None, (1000.0, 100.0), 0.2);
    plan.storages.iter_mut().for_each(|one| one.latency = 0.2);
    check("small files", &plan, &[100, 200]);
}

#[test]
fn four_links_that_compete_for_a_storage_get_its_best_in_equal_parts() {
    for (name, plan, begin) in [
        ("at once", four(1000.0, None, 20.0, [0.0; 4]), 30),
        ("degrading", four(1000.0, Some(40.0), 50.0, [0.0; 4]), 30),
        (
            "one after the other",
            four(1000.0, Some(40.0), 50.0, [0.0, 10.0, 20.0, 25.0]),
            55,
        ),
    ] {
        let window = (begin, 100);
        let best = best(&plan, &[4, 5, 6, 13, 15], window);
        for seed in 1..=2 {
            let report = run(&plan, Policy::Measured, seed);
            let tuned = rate(&report, window);
            let fair = jain(moved(&report, window).into_iter());
            let seen = format!("{name}, seed {seed}: {tuned:.0} of {best:.0} MB/s, Jain {fair:.3}");
            println!("{seen}");
            assert!(tuned >= 0.95 * best && fair >= 0.95, "{seen}");
        }
    }
}

#[test]
fn a_link_that_loses_half_is_followed_within_fifteen_seconds() {
    let mut plan = pair(5000.0, Some(150.0), (1000.0, 20.0), 100.0);
    plan.events.push(Event {
        at: 60.0,
        lasts: None,
        what: Change::NetworkSpeed(0, 0.5),
    });
    let window = (75, 100);
    let best = best(&plan, &[20, 25, 30, 50], window);
    for seed in 1..=2 {
        let after = rate(&run(&plan, Policy::Measured, seed), window);
        assert!(
            after >= 0.95 * best,
            "seed {seed}: {after:.0} of {best:.0} MB/s"
        );
    }
}

#[test]
fn a_link_that_is_idle_most_of_the_time_keeps_what_it_has_found() {
    let mut plan = pair(5000.0, None, (1000.0, 10.0), 100.0);
    let burst = |begin| Load {
        files: 200,
        ..load(0, 1, 100.0, begin)
    };
    plan.loads = vec![burst(0.0), burst(60.0)];
    let report = run(&plan, Policy::Measured, 1);
    let (first, second) = (rate(&report, (0, 20)), rate(&report, (60, 80)));
    assert!(second > first, "{first:.0} then {second:.0} MB/s");
}

#[test]
fn ftss_rules_need_longer() {
    let plan = pair(5000.0, None, (1000.0, 5.0), 100.0);
    let measured = rate(&run(&plan, Policy::Measured, 1), (30, 100));
    let fts3 = rate(&run(&plan, Policy::Fts3, 1), (30, 100));
    assert!(measured > 1.5 * fts3, "{measured:.0} and {fts3:.0} MB/s");
}
