//! Who gets the slots in the long run, in time: shares, starvation, the cost of decisions, caps, estimates.

use super::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const MB: u64 = 1_000_000;

/// What somebody always has more of to do: on a link, for a VO, an activity and a user, of this size.
#[derive(Clone)]
struct Flow {
    on: &'static str,
    vo: &'static str,
    activity: &'static str,
    user: &'static str,
    size_mb: u64,
    seconds: u64,
}

fn flow(on: &'static str, vo: &'static str, size_mb: u64, seconds: u64) -> Flow {
    Flow {
        on,
        vo,
        activity: "default",
        user: "alice",
        size_mb,
        seconds,
    }
}

/// Lets the flows run for so many seconds: the slot-seconds of each, counted from a tenth on.
fn slot_seconds(scheduler: &mut Tried, flows: &[Flow], until: u64) -> Vec<f64> {
    let mut ends: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let mut begun: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
    let mut held = vec![0.0; flows.len()];
    let (mut now, mut number) = (0, 0);
    let mut of = BTreeMap::new();
    let mut feed = |scheduler: &mut Tried, of: &mut BTreeMap<u64, usize>, at: usize, now: u64| {
        let flow = &flows[at];
        number += 1;
        of.insert(number, at);
        scheduler.enqueue(QueueEntry {
            activity: Activity::new(flow.activity),
            user: UserName::new(flow.user),
            since: Timestamp(now as i64),
            size: Some(Bytes(flow.size_mb * MB)),
            ..waiting(number, flow.on, flow.vo, 3)
        });
    };
    for at in 0..flows.len() {
        (0..50).for_each(|_| feed(scheduler, &mut of, at, 0));
    }
    while now < until {
        while let Some(TransferId(id)) = scheduler.start_next() {
            let at = of[&id];
            begun.insert(id, (at, now));
            ends.push(Reverse((now + flows[at].seconds, id)));
            feed(scheduler, &mut of, at, now);
        }
        let Some(Reverse((end, id))) = ends.pop() else {
            break;
        };
        now = end;
        let (at, since) = begun.remove(&id).expect("begun");
        let took = Duration::from_secs(now - since);
        scheduler.end(TransferId(id), took, Some(Bytes(flows[at].size_mb * MB)));
        if now > until / 10 {
            held[at] += (now - since.max(until / 10)) as f64;
        }
    }
    held
}

fn check_parts(held: &[f64], weights: &[f64]) {
    let (sum, all): (f64, f64) = (held.iter().sum(), weights.iter().sum());
    for (held, weight) in held.iter().zip(weights) {
        let (part, due) = (held / sum, weight / all);
        assert!((part / due - 1.0).abs() < 0.05, "{part} of {due}: {held:?}");
    }
}

#[test]
fn a_vo_of_small_files_and_one_of_large_ones_hold_a_link_by_their_shares() {
    let mut scheduler = Tried::new(limits(20, 1000, 1000));
    set(&mut scheduler, &["a→b cms 2", "a→b atlas 1"]);
    let flows = [flow("a→b", "cms", 1, 1), flow("a→b", "atlas", 5_000, 120)];
    check_parts(&slot_seconds(&mut scheduler, &flows, 30_000), &[2.0, 1.0]);
}

#[test]
fn small_and_large_files_of_two_links_hold_a_storage_element_alike() {
    let mut scheduler = Tried::new(limits(1000, 20, 1000));
    let flows = [
        flow("a→d", "cms", 1, 1),
        flow("b→d", "cms", 5_000, 100),
        flow("c→d", "atlas", 500, 15),
    ];
    check_parts(
        &slot_seconds(&mut scheduler, &flows, 30_000),
        &[1.0, 1.0, 2.0],
    );
}

#[test]
fn users_of_one_activity_hold_equal_parts_of_it() {
    let mut scheduler = Tried::new(limits(12, 1000, 1000));
    set(&mut scheduler, &["cms: production 3", "cms: default 1"]);
    let of = |activity, user, size_mb, seconds| Flow {
        activity,
        user,
        ..flow("a→b", "cms", size_mb, seconds)
    };
    let flows = [
        of("production", "alice", 2_000, 60),
        of("production", "bob", 10, 2),
        of("user", "carol", 100, 5),
    ];
    check_parts(
        &slot_seconds(&mut scheduler, &flows, 30_000),
        &[1.5, 1.5, 1.0],
    );
}

/// FTS-704: one link fills a storage element at which another one waits.
#[test]
fn a_small_link_does_not_starve_behind_a_storage_element_that_big_links_fill() {
    let mut scheduler = Tried::new(limits(1000, 10, 1000));
    let mut flows = vec![flow("a→d", "cms", 10, 2)];
    flows.extend(["x→d", "y→d", "z→d"].map(|on| flow(on, "cms", 20_000, 600)));
    let held = slot_seconds(&mut scheduler, &flows, 60_000);
    check_parts(&held, &[1.0, 1.0, 1.0, 1.0]);
}

#[test]
fn a_link_between_two_places_that_others_keep_full_gets_its_turns() {
    let mut scheduler = Tried::new(limits(1000, 5, 1000));
    let flows = [
        flow("s→d", "cms", 100, 7),
        flow("s→y", "cms", 100, 10),
        flow("x→d", "cms", 100, 11),
    ];
    let held = slot_seconds(&mut scheduler, &flows, 20_000);
    let all = 20_000.0 * 0.9 * 5.0;
    assert!(held[0] > all * 0.38, "{held:?}");
    assert!(
        held[0] + held[1] > all * 0.9,
        "little stays empty: {held:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever sizes, weights and numbers of slots: in the long run each VO holds its share of them in time.
    #[test]
    fn shares_are_of_time_whatever_the_sizes(
        parts in proptest::collection::vec((1..8u32, 1..40u64), 2..5),
        slots in 2..16u32,
        at_storage in any::<bool>(),
    ) {
        let mut scheduler = match at_storage {
            false => Tried::new(limits(slots, 1000, 1000)),
            true => Tried::new(limits(1000, slots, 1000)),
        };
        const VOS: [&str; 4] = ["v0", "v1", "v2", "v3"];
        const LINKS: [&str; 4] = ["a→d", "b→d", "c→d", "e→d"];
        let lines = parts.iter().zip(VOS).map(|((weight, _), vo)| format!("*→d {vo} {weight}"));
        let lines: Vec<String> = lines.collect();
        set(&mut scheduler, &lines.iter().map(String::as_str).collect::<Vec<_>>());
        let flows: Vec<Flow> = parts.iter().enumerate().map(|(at, (_, seconds))| {
            let on = if at_storage { LINKS[at] } else { "a→d" };
            flow(on, VOS[at], seconds * 20, *seconds)
        }).collect();
        let weights: Vec<f64> = parts.iter().map(|(weight, _)| f64::from(*weight)).collect();
        check_parts(&slot_seconds(&mut scheduler, &flows, 40_000), &weights);
    }

    /// A transfer of low priority is passed by nothing of its user that came more than all head starts after it.
    #[test]
    fn no_transfer_waits_for_others_that_came_a_day_after_it(
        others in proptest::collection::vec((1..6i64, 0..200u32), 1..300), priority in 1..6i64,
    ) {
        let mut scheduler = Tried::new(limits(1, 10, 10));
        let day = 4 * PRIORITY_HEAD_START_MS;
        let old = QueueEntry { since: Timestamp(day), ..waiting(0, "a→b", "cms", priority) };
        scheduler.enqueue(old);
        let hour = 3_600_000;
        let mut came = BTreeMap::new();
        for (number, (priority, hours)) in others.into_iter().enumerate() {
            let since = Timestamp(i64::from(hours) * hour / 2);
            let one = waiting(number as u64 + 1, "a→b", "cms", priority);
            came.insert(one.transfer, since);
            scheduler.enqueue(QueueEntry { since, ..one });
        }
        while let Some(next) = scheduler.start_next() {
            if next == TransferId(0) {
                break;
            }
            prop_assert!(came[&next].0 <= 2 * day, "{next} came after {}", came[&next].0);
            scheduler.release(&link("a→b"));
        }
    }

    /// Equal inputs give equal plans.
    #[test]
    fn equal_views_give_equal_plans(
        steps in proptest::collection::vec((0..4u8, 0..4u8, 1..6u8, any::<bool>()), 1..150),
    ) {
        let plan = || {
            let mut scheduler = Tried::new(limits(3, 4, 6));
            let mut order = Vec::new();
            for (id, (s, d, p, ends)) in steps.iter().enumerate() {
                let on = format!("s{s}→d{d}");
                scheduler.enqueue(waiting(id as u64, &on, ["x", "y"][usize::from(*p) % 2], i64::from(*p)));
                if *ends && let Some((transfer, _)) = scheduler.all_taken.first() {
                    let transfer = *transfer;
                    scheduler.end(transfer, Duration::from_secs(u64::from(*p)), Some(Bytes(MB)));
                }
                order.extend(started(&mut scheduler));
            }
            order
        };
        prop_assert_eq!(plan(), plan());
    }
}

/// How often links were looked at for each start, with so many queued on so many links.
fn steps_per_start(queued: u64, links: u64) -> f64 {
    let mut scheduler = Tried::new(limits(5, 20, 60));
    for id in 0..queued {
        let on = format!("s{}→d{}", id % links, id % links % 7);
        scheduler.enqueue(waiting(id, &on, ["x", "y", "z"][id as usize % 3], 3));
    }
    started(&mut scheduler);
    let before = scheduler.steps;
    let starts = 2_000;
    let mut begun = 0;
    while begun < starts {
        let (transfer, _) = scheduler.all_taken[begun % scheduler.all_taken.len()];
        scheduler.end(transfer, Duration::from_secs(10), None);
        begun += started(&mut scheduler).len();
    }
    (scheduler.steps - before) as f64 / begun as f64
}

#[test]
fn a_start_costs_the_same_whatever_is_queued() {
    for links in [1, 50] {
        let (few, many) = (
            steps_per_start(3_000, links),
            steps_per_start(60_000, links),
        );
        assert!(
            many < 1.2 * few + 1.0,
            "{links} links: {few} and {many} steps a start"
        );
        assert!(many < 20.0, "{links} links: {many} steps a start");
    }
}

fn draining(place: SlotPlace) -> WaitReason {
    let because = SlotBound::Draining;
    WaitReason::NoSlot(NoSlot { place, because })
}

#[test]
fn where_operators_drain_nothing_begins_and_what_runs_may_end() {
    let mut limits = limits(2, 10, 10);
    let mut scheduler = Tried::new(limits.clone());
    for id in 1..=5 {
        scheduler.enqueue(waiting(id, "a→b", "cms", 3));
    }
    assert_eq!(started(&mut scheduler), [1, 2]);
    limits.draining.storages.insert(StorageId::new("b"));
    scheduler.set_limits(limits.clone());
    scheduler.release(&link("a→b"));
    assert!(started(&mut scheduler).is_empty());
    let storage = StorageId::new("b");
    assert_eq!(
        scheduler.why_waiting(&link("a→b")),
        draining(SlotPlace::Storage { storage })
    );
    limits.draining = DrainedPlaces::default();
    limits.draining.links.insert(link("*→b"));
    scheduler.set_limits(limits.clone());
    assert!(started(&mut scheduler).is_empty());
    assert_eq!(
        scheduler.why_waiting(&link("a→b")),
        draining(SlotPlace::Link)
    );
    limits.draining = DrainedPlaces::default();
    scheduler.set_limits(limits);
    assert_eq!(started(&mut scheduler), [3]);
}

#[test]
fn who_waits_is_told_when_it_will_probably_start() {
    let mut scheduler = Tried::new(limits(4, 100, 100));
    let one = |id: u64| QueueEntry {
        size: Some(Bytes(100 * MB)),
        ..waiting(id, "a→b", "cms", 3)
    };
    for id in 0..1_000 {
        scheduler.enqueue(one(id));
    }
    assert_eq!(
        scheduler.when_this_starts(&one(999)),
        None,
        "nothing is known"
    );
    let mut running: VecDeque<u64> = started(&mut scheduler).into();
    let mut foreseen = None;
    for turn in 0.. {
        let ended = running.pop_front().expect("four run");
        // Four at once, ten seconds each.
        scheduler.end(
            TransferId(ended),
            Duration::from_secs(10),
            Some(Bytes(100 * MB)),
        );
        let begun = started(&mut scheduler);
        if turn == 100 {
            foreseen = scheduler.when_this_starts(&one(700));
        }
        running.extend(&begun);
        if begun.contains(&700) {
            let took = (turn - 100) as f64 * 10.0 / 4.0;
            let told = foreseen.expect("known by then").as_secs_f64();
            assert!(
                (told / took - 1.0).abs() < 0.1,
                "{told} s were foreseen, it took {took} s"
            );
            break;
        }
    }
    scheduler.set_drained(true);
    assert_eq!(scheduler.when_this_starts(&one(999)), None);
}
