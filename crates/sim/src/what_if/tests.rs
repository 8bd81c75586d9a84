//! Sites with known limits are simulated, recorded, replayed and changed: what is told of them has to be true.

use super::*;
use crate::plan::{self, Plan};
use crate::world::simulate_recorded;
use penstock_decide::explain::PopulationChoice;
use penstock_model::observation::Observation;
use penstock_model::{LinkId, Rate, TimeWindow};
use penstock_observe::RecordView;
use penstock_observe::recorded::{RateLimit, RecordedLink, WindowFold};
use std::time::Duration;

/// One link with a queue. One transfer reaches 100 MB/s at most, in a tenth of a second after it began.
const LINK: &str = "
    length = '12h'
    [[storage]]
    name = 'a'
    read = '10 GB/s'
    write = '10 GB/s'
    [[storage]]
    name = 'b'
    read = '10 GB/s'
    write = 'WRITE'
    [[network]]
    from = 'a'
    to = 'b'
    bandwidth = '100 Gb/s'
    rtt = '20ms'
    window = '2 MB'
    [[load]]
    from = 'a'
    to = 'b'
    files = 1200
    size = '1 GB'
    spread = 0.5
    job = 100
    begin = '2s'
    over = '1m'
";

fn plan(write: &str, limits: &[(u32, u32)]) -> Plan {
    let mut text = LINK.replace("WRITE", write);
    for (minute, max) in limits {
        text += &format!(
            "[[event]]\nat = '{minute}m'\nwhat = 'link-max'\nfrom = 'a'\nto = 'b'\nmax = {max}\n"
        );
    }
    Plan::parse(&text).unwrap_or_else(|why| panic!("{why}"))
}

/// The window of a whole run, and the rate in it.
fn recorded(plan: &Plan) -> (RecordedWindow, f64) {
    let (mut attempts, mut samples) = (Vec::new(), Vec::new());
    let mut take = |row: Observation| match row {
        Observation::Attempt(row) => attempts.push(row),
        Observation::Sample(row) => samples.push(row),
        Observation::Change(_) | Observation::Incident(_) | Observation::NamespaceChange(_) => {}
    };
    let report = simulate_recorded(plan, &mut |_| {}, &mut take).expect("nothing breaks");
    let first = attempts.iter().filter_map(|row| row.submitted).min();
    let window = TimeWindow {
        from: first.expect("something was submitted"),
        to: attempts.last().expect("something ended").at + Duration::from_secs(1),
    };
    let view = RecordView::default();
    let mut fold = WindowFold::new(window, &view, &PopulationChoice::Links);
    attempts.iter().for_each(|row| fold.take_attempt(row));
    fold.narrow();
    samples.iter().for_each(|row| fold.take_sample(row));
    (fold.finish(), report.bytes / report.work_seconds)
}

fn asked(window: &RecordedWindow, changes: &[&str]) -> WhatIf {
    let parsed = changes.iter().map(|text| text.parse());
    let alternatives: Vec<Alternative> = parsed.collect::<Result<_, _>>().expect("changes");
    let answer = what_if(window, &LimitsInForce::default(), &alternatives, 1);
    answer.unwrap_or_else(|why| panic!("{why}"))
}

/// What is told of a change is true of the simulated site: within a quarter of the gain, or five points.
fn check_gain(told: f64, truth: f64) {
    let most = f64::max(0.25 * truth.abs(), 5.0);
    assert!(
        (told - truth).abs() <= most,
        "{told} % instead of {truth} %"
    );
}

const VARIED: [(u32, u32); 4] = [(0, 8), (4, 5), (8, 12), (12, 8)];

fn limits(change: impl Fn(u32) -> u32) -> Vec<(u32, u32)> {
    let varied = VARIED.iter();
    varied.map(|(at, limit)| (*at, change(*limit))).collect()
}

#[test]
fn more_slots_bring_what_they_bring_where_each_transfer_is_limited_by_itself() {
    let (window, before) = recorded(&plan("10 GB/s", &VARIED));
    let answer = asked(
        &window,
        &[
            "link a b active=x2",
            "link a-b active=-2",
            "storage b rate=x2",
        ],
    );
    assert!(answer.error_percent < 6.0, "{answer:?}");
    let (_, doubled) = recorded(&plan("10 GB/s", &limits(|limit| 2 * limit)));
    let (_, fewer) = recorded(&plan("10 GB/s", &limits(|limit| limit - 2)));
    let [more, less, storage] = answer.alternatives.as_slice() else {
        panic!("{answer:?}");
    };
    check_gain(more.gain_percent, 100.0 * (doubled / before - 1.0));
    assert!(more.gain_percent > 60.0 && more.links[0].is_beyond_record);
    check_gain(less.gain_percent, 100.0 * (fewer / before - 1.0));
    check_gain(storage.gain_percent_max, 0.0);
    assert_eq!(answer.links[0].limiting.slots, SlotBound::Link);
    assert_eq!(answer.links[0].limiting.rate, RateBound::EachTransfer);
}

#[test]
fn more_slots_bring_nothing_where_transfers_share_what_is_full_and_a_faster_part_does() {
    let (window, before) = recorded(&plan("400 MB/s", &VARIED));
    let answer = asked(&window, &["link a b active=x2", "link a b rate=x1.5"]);
    assert!(answer.error_percent < 6.0, "{answer:?}");
    assert_ne!(answer.links[0].limiting.rate, RateBound::EachTransfer);
    let [more, faster] = answer.alternatives.as_slice() else {
        panic!("{answer:?}");
    };
    let (_, doubled) = recorded(&plan("400 MB/s", &limits(|limit| 2 * limit)));
    check_gain(more.gain_percent_max, 100.0 * (doubled / before - 1.0));
    let (_, truth) = recorded(&plan("600 MB/s", &VARIED));
    let truth = 100.0 * (truth / before - 1.0);
    assert!(truth > 30.0, "{truth}");
    check_gain(faster.gain_percent, truth);
}

#[test]
fn more_slots_make_disks_slower_that_have_too_many_files_at_once() {
    let disks = |limits: &[(u32, u32)]| {
        let mut made = plan("800 MB/s", limits);
        made.storages[1].halved_at = Some(8.0);
        made
    };
    let (window, before) = recorded(&disks(&VARIED));
    let answer = asked(&window, &["link a b active=x1.5", "link a b active=-3"]);
    assert!(answer.error_percent < 10.0, "{answer:?}");
    let truth = |change: &dyn Fn(u32) -> u32| {
        let (_, after) = recorded(&disks(&limits(change)));
        100.0 * (after / before - 1.0)
    };
    let [more, fewer] = answer.alternatives.as_slice() else {
        panic!("{answer:?}");
    };
    let slower = truth(&|limit| (f64::from(limit) * 1.5).round() as u32);
    assert!(slower < -20.0, "{slower}");
    check_gain(more.gain_percent, slower);
    let faster = truth(&|limit| limit - 3);
    assert!(faster > 10.0, "{faster}");
    assert!(fewer.gain_percent_max > faster - 5.0, "{fewer:?}");
}

#[test]
fn where_the_number_at_once_never_changed_a_gain_has_two_ends_and_the_truth_lies_between() {
    for write in ["10 GB/s", "400 MB/s"] {
        let (window, before) = recorded(&plan(write, &[(0, 6)]));
        let answer = asked(&window, &["link a b active=9"]);
        let (_, after) = recorded(&plan(write, &[(0, 9)]));
        let truth = 100.0 * (after / before - 1.0);
        let [more] = answer.alternatives.as_slice() else {
            panic!("{answer:?}");
        };
        let ends = more.gain_percent - 5.0..=more.gain_percent_max + 5.0;
        assert!(ends.contains(&truth), "{truth}: {answer:?}");
        assert!(
            more.gain_percent_max - more.gain_percent > 20.0,
            "{answer:?}"
        );
        let text = words::told(&answer);
        assert!(text.contains("A gain is given as a range"), "{text}");
    }
}

#[test]
fn equal_questions_have_equal_answers() {
    let (window, _) = recorded(&plan("400 MB/s", &VARIED));
    let ask = || asked(&window, &["link * b active=+4", "service active=6"]);
    assert_eq!(ask(), ask());
    let [_, fewer] = ask().alternatives.try_into().expect("two");
    assert_eq!(
        fewer.links[0].limiting.slots,
        SlotBound::Service,
        "{fewer:?}"
    );
}

#[test]
fn a_plan_has_each_transfer_when_it_came_and_the_limits_that_held() {
    let (window, _) = recorded(&plan("400 MB/s", &VARIED));
    let field = MeasuredField::of(&window, &LimitsInForce::default(), Assumption::Cautious);
    let made = replay::plan_of(&window, &field, 7);
    assert_eq!((made.loads.len(), made.files(), made.seed), (1200, 1200, 7));
    let bytes: f64 = made.loads.iter().map(|load| load.size).sum();
    assert_eq!(
        bytes as u64,
        window.transfers.iter().map(|one| one.bytes).sum::<u64>()
    );
    assert!(
        made.loads
            .windows(2)
            .all(|two| two[0].begin <= two[1].begin)
    );
    let limits: Vec<(f64, u32)> = made
        .events
        .iter()
        .filter_map(|event| match event.what {
            plan::Change::LinkMax(0, 1, max) => Some((event.at, max)),
            _ => None,
        })
        .collect();
    let told: Vec<u32> = limits.iter().map(|(_, max)| *max).collect();
    assert_eq!(told, [8, 5, 12, 8]);
    assert!((limits[2].0 - 480.0).abs() < 5.0, "{limits:?}");
}

#[test]
fn too_few_transfers_and_unknown_names_are_refused_with_what_there_is() {
    let (window, _) = recorded(&plan("400 MB/s", &VARIED));
    let ask = |window: &RecordedWindow, change: &str| {
        let alternative = change.parse().expect("a change");
        let answer = what_if(window, &LimitsInForce::default(), &[alternative], 1);
        answer.expect_err("refused").to_string()
    };
    let told = ask(&window, "link a-c active=1");
    assert!(told.contains("there are a-b"), "{told}");
    let told = ask(&window, "storage b pools=+1");
    assert!(told.contains("the number of pools of"), "{told}");
    let told = ask(&window, "storage b active=+1");
    assert!(told.contains("active=50"), "{told}");
    let few = RecordedWindow {
        transfers: window.transfers[..TRANSFERS_MIN - 1].to_vec(),
        ..window.clone()
    };
    let told = ask(&few, "link a b active=1");
    assert!(
        told.starts_with("19 transfers") && told.contains("longer window"),
        "{told}"
    );
}

#[test]
fn a_window_that_cannot_be_replayed_is_unfit() {
    let (mut window, _) = recorded(&plan("400 MB/s", &VARIED));
    // Nothing ran for a long time although much was queued: something else held it up.
    let half = window.transfers.len() / 2;
    let hours = Duration::from_secs(3 * 3600);
    for transfer in &mut window.transfers[half..] {
        transfer.started = transfer.started + hours;
        transfer.ended = transfer.ended + hours;
    }
    window.window.to = window.window.to + hours;
    let answer = what_if(&window, &LimitsInForce::default(), &[], 1);
    assert!(
        matches!(answer, Err(WhatIfError::Unfit { .. })),
        "{answer:?}"
    );
}

#[test]
fn changes_are_read_as_they_are_written() {
    for text in [
        "link se-1.cern.ch-se-2.in2p3.fr active=12",
        "link https://a https://b rate=500 MB/s",
        "storage b active=+4, storage b rate=x2",
        "storage * failures=0",
        "service active=x1.5",
    ] {
        let read: Alternative = text.parse().unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(read.to_string(), text);
    }
    for (text, part) in [
        ("", "is not a change"),
        ("link a b", "is not a change"),
        ("disk a rate=x2", "is not a change"),
        ("link a b pools=+1", "cannot be changed"),
        ("service rate=x2", "cannot be changed"),
        ("link a b active=0", "is not a number"),
        ("link a b active=x0", "is not a number"),
        ("storage b rate=fast", "is not a rate"),
        ("storage b failures=2", "from 0 to 1"),
    ] {
        let refused = text.parse::<Alternative>().expect_err(text);
        assert!(refused.contains(part), "{text}: {refused}");
    }
}

#[test]
fn storages_with_limits_of_their_own_and_links_both_ways_are_kept_apart() {
    let (window, _) = recorded(&plan("400 MB/s", &VARIED));
    let mut both = window.clone();
    let back = LinkId {
        source: window.links[0].link.destination.clone(),
        destination: window.links[0].link.source.clone(),
    };
    let mut of_back = window.links[0].clone();
    of_back.link = back;
    both.links.push(of_back);
    let mirrored = window.transfers.iter().map(|one| {
        let mut one = one.clone();
        one.link = 1;
        one.bytes /= 4;
        one
    });
    both.transfers.extend(mirrored.collect::<Vec<_>>());
    both.transfers
        .sort_by_key(|one| (one.submitted, one.started));
    let own = StorageSlotLimits {
        outbound: Some(Slots(3)),
        inbound: None,
    };
    let limits = LimitsInForce {
        storage: StorageSlotLimits {
            outbound: Some(Slots(100)),
            inbound: Some(Slots(100)),
        },
        storages: [(window.links[0].link.destination.clone(), own)].into(),
        agents: Some(Slots(500)),
        rates: Vec::new(),
    };
    let field = MeasuredField::of(&both, &limits, Assumption::Cautious);
    assert_eq!(field.storages[0].outbound, Some(100));
    assert_eq!(
        (field.storages[1].outbound, field.storages[1].inbound),
        (Some(3), Some(100))
    );
    let answer = what_if(&both, &LimitsInForce::default(), &[], 1).expect("fit");
    let rates = answer
        .links
        .iter()
        .map(|link| link.replayed_bytes_per_second);
    let [there, back] = rates.collect::<Vec<_>>()[..] else {
        panic!("{answer:?}");
    };
    assert!((3.0..5.0).contains(&(there / back)), "{there} {back}");
}

/// Three sources of different speeds send into one storage element, with failures and files of all sizes.
fn shared(write: &str, limits: &[(u32, u32)]) -> Plan {
    let mut text = "
    length = '12h'
    [[storage]]
    name = ['a', 'b', 'c']
    read = '5 GB/s'
    write = '5 GB/s'
    [[storage]]
    name = 'd'
    read = '5 GB/s'
    write = 'WRITE'
    failures = 0.03
    [[network]]
    from = ['a', 'b']
    to = 'd'
    bandwidth = '10 Gb/s'
    rtt = '20ms'
    window = '2 MB'
    [[network]]
    from = 'c'
    to = 'd'
    bandwidth = '10 Gb/s'
    rtt = '100ms'
    window = '3 MB'
    [[load]]
    vo = 'atlas'
    from = ['a', 'b', 'c']
    to = 'd'
    files = 2400
    size = '500 MB'
    spread = 0.4
    job = 20
    begin = '2s'
    over = '10m'
"
    .replace("WRITE", write);
    for (minute, max) in limits {
        for from in ["a", "b", "c"] {
            text += &format!(
                "[[event]]\nat = '{minute}m'\nwhat = 'link-max'\nfrom = '{from}'\nto = 'd'\nmax = {max}\n"
            );
        }
    }
    Plan::parse(&text).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn links_that_share_a_storage_element_gain_what_it_lets_them() {
    for write in ["5 GB/s", "800 MB/s"] {
        let (window, before) = recorded(&shared(write, &VARIED));
        let answer = asked(&window, &["link * d active=x2", "storage d rate=x2"]);
        let truth = |limits: &[(u32, u32)], write: &str| {
            let (_, after) = recorded(&shared(write, limits));
            100.0 * (after / before - 1.0)
        };
        let doubled = truth(&limits(|limit| 2 * limit), write);
        let faster = truth(&VARIED, &write.replace("800 MB", "1600 MB"));
        let [more, storage] = answer.alternatives.as_slice() else {
            panic!("{answer:?}");
        };
        assert!(answer.error_percent < 10.0, "{answer:?}");
        check_gain(more.gain_percent, doubled);
        check_gain(storage.gain_percent, faster);
        assert_eq!(answer.links.len(), 3);
    }
}

#[test]
fn as_many_may_run_as_did_while_files_waited() {
    let transfers = (0..100).map(|number| RecordedTransfer {
        link: 0,
        vo: None,
        submitted: Timestamp(0),
        started: Timestamp(number / 4 * 10_000),
        ended: Timestamp(number / 4 * 10_000 + 10_000),
        bytes: 1_000_000_000,
        overhead: Duration::ZERO,
        stages: None,
    });
    let link = RecordedLink {
        link: LinkId {
            source: StorageId::new("https://a"),
            destination: StorageId::new("https://b"),
        },
        limits: vec![(Timestamp(0), 10)],
        attempts: 100,
        failures: (0, 0),
    };
    let window = RecordedWindow {
        window: TimeWindow {
            from: Timestamp(0),
            to: Timestamp(250_000),
        },
        links: vec![link],
        transfers: transfers.collect(),
        pools: BTreeMap::new(),
        is_shortened: false,
        passed_over: 0,
    };
    let told = |inbound: Option<Slots>| {
        let mut limits = LimitsInForce::default();
        limits.storage.inbound = inbound;
        let field = MeasuredField::of(&window, &limits, Assumption::Cautious);
        field.links[0].limits.clone()
    };
    // Something that no sample tells lets four run, until nothing waits.
    assert_eq!(told(None), [(0.0, 4), (240.0, 10)]);
    assert_eq!(told(Some(Slots(200))), [(0.0, 4), (240.0, 10)]);
    // The limit of the destination is known, and is replayed by itself.
    assert_eq!(told(Some(Slots(4))), [(0.0, 10)]);
}

#[test]
fn numbers_that_the_service_found_itself_are_replayed() {
    let mut tuned = shared("800 MB/s", &[]);
    tuned.service.policy = plan::Policy::Measured;
    let (window, _) = recorded(&tuned);
    let answer = asked(&window, &[]);
    assert!(answer.error_percent < 15.0, "{answer:?}");
}

#[test]
fn a_window_in_which_a_rate_limit_held_is_refused() {
    let window = RecordedWindow {
        window: TimeWindow {
            from: Timestamp(0),
            to: Timestamp(60_000),
        },
        links: Vec::new(),
        transfers: Vec::new(),
        pools: BTreeMap::new(),
        is_shortened: false,
        passed_over: 0,
    };
    let limits = LimitsInForce {
        rates: vec![RateLimit {
            rate: Rate(2_000_000),
            place: "into https://b".into(),
        }],
        ..LimitsInForce::default()
    };
    let refused = what_if(&window, &limits, &[], 1).expect_err("is refused");
    assert!(
        refused.to_string().starts_with(
            "a rate limit of 2.0 MB/s into https://b was in force in this window, and rate limits cannot be replayed"
        ),
        "{refused}"
    );
}
