//! Bounds, turns and reasons of the scheduler.

mod fairness;
mod forgetting;
mod rates;

use super::*;
use penstock_model::{ActivityShares, Setting, Settings, VoShare, Weight};
use proptest::prelude::*;
use std::collections::HashSet;
use std::ops::{Deref, DerefMut};

/// A scheduler that keeps the slots of what it started. Transfers take what was predicted, unless it is said.
struct Tried {
    scheduler: Scheduler,
    all_taken: Vec<(TransferId, TakenSlots)>,
}

impl Tried {
    fn new(limits: SlotLimits) -> Tried {
        Tried {
            scheduler: Scheduler::new(limits),
            all_taken: Vec::new(),
        }
    }

    fn start_next(&mut self) -> Option<TransferId> {
        let DispatchedTransfer { transfer, taken } = self.scheduler.start_next()?;
        self.all_taken.push((transfer, taken));
        Some(transfer)
    }

    /// One that runs on this link ends.
    fn release(&mut self, link: &LinkId) {
        let on_link =
            |(_, taken): &(TransferId, TakenSlots)| self.scheduler.links[taken.link].id == *link;
        let at = self.all_taken.iter().position(on_link).expect("one runs");
        let (_, taken) = self.all_taken.remove(at);
        let took = Duration::from_millis(taken.turn.expected_ms);
        self.scheduler.release(
            taken,
            SlotTime {
                took,
                brought: None,
                is_own_fault: false,
            },
        );
    }

    /// This one ends after such a time.
    fn end(&mut self, transfer: TransferId, took: Duration, brought: Option<Bytes>) {
        let at = self.all_taken.iter().position(|(id, _)| *id == transfer);
        let (_, taken) = self.all_taken.swap_remove(at.expect("it runs"));
        let is_own_fault = false;
        let held = SlotTime {
            took,
            brought,
            is_own_fault,
        };
        self.scheduler.release(taken, held);
    }

    /// Slots that stay empty for links that need another kind as well.
    fn kept(&self) -> u32 {
        let places = self.scheduler.storages.values();
        let places = places.map(|storage| storage.outbound.kept + storage.inbound.kept);
        places.sum::<u32>() + self.scheduler.agents.kept + self.scheduler.gfal.kept
    }
}

impl Deref for Tried {
    type Target = Scheduler;

    fn deref(&self) -> &Scheduler {
        &self.scheduler
    }
}

impl DerefMut for Tried {
    fn deref_mut(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }
}

fn link(name: &str) -> LinkId {
    let (source, destination) = name.split_once('→').expect("a→b");
    LinkId {
        source: StorageId::new(source),
        destination: StorageId::new(destination),
    }
}

fn waiting(id: u64, on: &str, vo: &str, priority: i64) -> QueueEntry {
    QueueEntry {
        transfer: TransferId(id),
        link: link(on),
        vo: VoName::new(vo),
        activity: Activity::new("default"),
        user: UserName::new("alice"),
        priority: Priority::clamped(priority),
        since: Timestamp(0),
        size: None,
    }
}

/// Weights of VOs on links (`a→b cms 3`), and of activities inside VOs (`cms: Production 5`).
fn shares(lines: &[&str]) -> Shares {
    let mut settings = Settings::default();
    let mut activities: BTreeMap<VoName, BTreeMap<Activity, Weight>> = BTreeMap::new();
    for line in lines {
        let parts: Vec<&str> = line.split(' ').collect();
        let [ends, name, weight] = parts.as_slice() else {
            panic!("three words")
        };
        let weight = Weight::from_number(weight.parse().expect("a number")).expect("in range");
        match ends.strip_suffix(':') {
            Some(vo) => {
                let of_vo = activities.entry(VoName::new(vo)).or_default();
                of_vo.insert(Activity::new(*name), weight);
            }
            None => settings.put(Setting::VoShare(VoShare {
                ends: link(ends),
                vo: VoName::new(*name),
                weight,
            })),
        }
    }
    for (vo, weights) in activities {
        settings.put(Setting::ActivityShares(ActivityShares {
            vo,
            weights,
            is_active: true,
        }));
    }
    Shares::of(&settings)
}

fn set(scheduler: &mut Tried, lines: &[&str]) {
    scheduler.set_shares(shares(lines), |_| Activity::new("default"));
}

/// A scheduler in which each flow (`link vo activity`) always has more to do: how many of `starts` it gets.
fn starts_of(scheduler: &mut Tried, flows: &[&str], starts: usize) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut of: BTreeMap<u64, (usize, LinkId)> = BTreeMap::new();
    let mut running: VecDeque<u64> = VecDeque::new();
    let mut number = 0;
    let mut feed = |scheduler: &mut Tried, of: &mut BTreeMap<u64, (usize, LinkId)>, flow: usize| {
        let parts: Vec<&str> = flows[flow].split(' ').collect();
        number += 1;
        let mut one = waiting(number, parts[0], parts[1], 3);
        if let Some(activity) = parts.get(2) {
            one.activity = Activity::new(*activity);
        }
        of.insert(number, (flow, one.link.clone()));
        scheduler.enqueue(one);
    };
    for flow in 0..flows.len() {
        (0..3).for_each(|_| feed(scheduler, &mut of, flow));
    }
    for _ in 0..starts {
        let next = loop {
            match scheduler.start_next() {
                Some(next) => break next.0,
                None => {
                    // As in life, what ends is not always the oldest.
                    let at = (of.len() * 7919) % running.len();
                    let ended = running.remove(at).expect("in range");
                    scheduler.release(&of[&ended].1);
                }
            }
        };
        running.push_back(next);
        let flow = of[&next].0;
        *counts.entry(flows[flow].to_owned()).or_default() += 1;
        feed(scheduler, &mut of, flow);
    }
    counts
}

#[test]
fn vos_get_slots_of_a_link_by_weight_and_public_is_shared_by_the_others() {
    let mut scheduler = Tried::new(limits(4, 100, 100));
    set(
        &mut scheduler,
        &["*→* atlas 9", "a→b cms 6", "a→b atlas 2", "a→b public 2"],
    );
    let flows = ["a→b cms", "a→b atlas", "a→b dteam", "a→b ops"];
    let counts = starts_of(&mut scheduler, &flows, 1000);
    assert_eq!(
        counts.values().copied().collect::<Vec<_>>(),
        [200, 600, 100, 100],
        "{counts:?}"
    );
}

#[test]
fn activities_of_a_vo_get_its_slots_by_weight_whatever_their_capitals() {
    let mut scheduler = Tried::new(limits(4, 100, 100));
    set(
        &mut scheduler,
        &["cms: production 0.7", "cms: DEFAULT 0.1", "cms: user 0.2"],
    );
    let flows = [
        "a→b cms Production",
        "a→b cms User",
        "a→b cms debug",
        "a→b cms other",
        "a→b atlas Production",
    ];
    let counts = starts_of(&mut scheduler, &flows, 2000);
    let of = |name: &str| counts[name];
    assert_eq!(
        of("a→b atlas Production"),
        1000,
        "VOs without shares are equal"
    );
    assert_eq!(of("a→b cms Production"), 700);
    assert_eq!(of("a→b cms User"), 200);
    assert_eq!(of("a→b cms debug") + of("a→b cms other"), 100, "{counts:?}");
}

#[test]
fn slots_of_a_destination_go_by_weight_over_all_links_into_it() {
    let mut scheduler = Tried::new(limits(50, 8, 100));
    set(&mut scheduler, &["*→d cms 3", "*→d atlas 1"]);
    let flows = ["a→d cms", "b→d atlas", "c→d atlas", "e→d atlas"];
    let counts = starts_of(&mut scheduler, &flows, 4000);
    assert!((2960..=3040).contains(&counts["a→d cms"]), "{counts:?}");
    let atlas = ["b→d atlas", "c→d atlas", "e→d atlas"].map(|flow| counts[flow]);
    assert!(
        atlas.iter().all(|count| (310..=350).contains(count)),
        "links take turns: {atlas:?}"
    );
}

#[test]
fn what_one_vo_does_not_use_goes_to_the_others() {
    let mut scheduler = Tried::new(limits(3, 100, 100));
    set(
        &mut scheduler,
        &["*→* cms 1000", "*→* atlas 0.001", "*→* public 1"],
    );
    let counts = starts_of(&mut scheduler, &["a→b atlas"], 100);
    assert_eq!(counts["a→b atlas"], 100);
}

#[test]
fn shares_that_are_changed_act_on_what_waits() {
    let mut scheduler = Tried::new(limits(1, 100, 100));
    for id in 1..=10 {
        scheduler.enqueue(waiting(id, "a→b", "cms", 3));
        scheduler.enqueue(waiting(100 + id, "a→b", "atlas", 3));
    }
    assert_eq!(started(&mut scheduler), [101]);
    set(&mut scheduler, &["*→* cms 4", "*→* atlas 1"]);
    let mut order = Vec::new();
    for _ in 0..10 {
        scheduler.release(&link("a→b"));
        order.extend(started(&mut scheduler));
    }
    assert_eq!(order.iter().filter(|id| **id < 100).count(), 8, "{order:?}");
    set(&mut scheduler, &[]);
    scheduler.release(&link("a→b"));
    assert_eq!(started(&mut scheduler).len(), 1, "nothing was lost");
}

#[test]
fn a_vo_with_no_share_of_a_link_may_not_use_it() {
    let given = shares(&[
        "a→b cms 1",
        "a→b ops 0",
        "*→c atlas 1",
        "*→c public 1",
        "*→* public 0",
    ]);
    let allow = |ends: &str, vo: &str| given.allow(&link(ends), &VoName::new(vo));
    assert!(allow("a→b", "cms") && allow("x→c", "ops"));
    assert!(!allow("a→b", "ops") && !allow("a→b", "atlas") && !allow("x→y", "cms"));
    assert!(Shares::default().allow(&link("a→b"), &VoName::new("anybody")));
}

#[test]
fn who_waits_is_told_their_share() {
    let mut scheduler = Tried::new(limits(1, 100, 100));
    let given = [
        "a→b cms 3",
        "a→b atlas 1",
        "cms: production 9",
        "cms: default 1",
    ];
    set(&mut scheduler, &given);
    let mut one = waiting(1, "a→b", "cms", 3);
    one.activity = Activity::new("Production");
    scheduler.enqueue(waiting(2, "a→b", "cms", 3));
    scheduler.enqueue(waiting(3, "a→b", "atlas", 3));
    scheduler.enqueue(waiting(9, "a→b", "atlas", 3));
    scheduler.enqueue(one.clone());
    for id in 4..8 {
        scheduler.enqueue(waiting(id, "a→b", "cms", 3));
    }
    started(&mut scheduler);
    let text = crate::wording::wait_reason(
        &scheduler.why_this_waits(&one),
        penstock_model::Timestamp(0),
    );
    assert_eq!(
        text,
        "the link runs 1 of 1 transfers allowed at once; cms gets 75 % of the next slots, and 'production' 90 % of those"
    );
}

fn limits(link: u32, storage: u32, agents: u32) -> SlotLimits {
    SlotLimits {
        link: Slots(link),
        storage_outbound: Slots(storage),
        storage_inbound: Slots(storage),
        agents: Slots(agents),
        ..SlotLimits::default()
    }
}

fn started(scheduler: &mut Tried) -> Vec<u64> {
    std::iter::from_fn(|| scheduler.start_next())
        .map(|id| id.0)
        .collect()
}

fn full(place: SlotPlace, slots: u32) -> WaitReason {
    let (active, limit) = (Slots(slots), Slots(slots));
    let because = SlotBound::Limit { active, limit };
    WaitReason::NoSlot(NoSlot { place, because })
}

#[test]
fn a_link_never_runs_more_than_its_limit_and_says_so() {
    let mut scheduler = Tried::new(limits(2, 10, 10));
    for id in 1..=3 {
        scheduler.enqueue(waiting(id, "a→b", "cms", 3));
    }
    assert_eq!(started(&mut scheduler), [1, 2]);
    let reason = scheduler.why_waiting(&link("a→b"));
    assert_eq!(reason, full(SlotPlace::Link, 2));
    scheduler.release(&link("a→b"));
    assert_eq!(started(&mut scheduler), [3]);
}

#[test]
fn links_that_share_a_destination_take_turns() {
    let mut scheduler = Tried::new(limits(10, 2, 100));
    for id in 1..=4 {
        scheduler.enqueue(waiting(id, "a→d", "cms", 3));
        scheduler.enqueue(waiting(id + 10, "x→d", "cms", 3));
    }
    assert_eq!(started(&mut scheduler), [1, 11]);
    let reason = scheduler.why_waiting(&link("x→d"));
    let storage = StorageId::new("d");
    assert_eq!(reason, full(SlotPlace::Destination { storage }, 2));
    scheduler.release(&link("a→d"));
    scheduler.release(&link("x→d"));
    let mut next = started(&mut scheduler);
    next.sort();
    assert_eq!(next, [2, 12]);
}

#[test]
fn a_full_link_does_not_hold_back_another_one_that_waits_for_the_same_storage() {
    let mut scheduler = Tried::new(limits(1, 2, 100));
    for id in 1..=3 {
        scheduler.enqueue(waiting(id, "a→d", "cms", 3));
        scheduler.enqueue(waiting(id + 10, "b→d", "cms", 3));
        scheduler.enqueue(waiting(id + 20, "c→d", "cms", 3));
    }
    assert_eq!(started(&mut scheduler), [1, 11]);
    scheduler.release(&link("a→d"));
    assert_eq!(started(&mut scheduler).len(), 1);
    scheduler.release(&link("b→d"));
    assert_eq!(started(&mut scheduler).len(), 1);
}

#[test]
fn vos_take_turns_however_much_one_of_them_queues() {
    let mut scheduler = Tried::new(limits(10, 10, 10));
    for id in 0..100 {
        scheduler.enqueue(waiting(id, "a→b", "atlas", 3));
    }
    for id in 200..205 {
        scheduler.enqueue(waiting(id, "a→b", "cms", 3));
    }
    let cms = started(&mut scheduler)
        .iter()
        .filter(|id| **id >= 200)
        .count();
    assert_eq!(cms, 5);
}

#[test]
fn a_raised_limit_takes_effect_at_once() {
    let mut scheduler = Tried::new(limits(1, 10, 10));
    for id in 1..=4 {
        scheduler.enqueue(waiting(id, "a→b", "cms", 3));
    }
    assert_eq!(started(&mut scheduler), [1]);
    scheduler.set_limits(limits(3, 10, 10));
    assert_eq!(started(&mut scheduler), [2, 3]);
}

#[test]
fn a_halted_link_starts_nothing_but_the_one_that_may_pass() {
    let mut scheduler = Tried::new(limits(2, 10, 10));
    for id in 1..=5 {
        scheduler.enqueue(waiting(id, "a→b", "cms", 3));
    }
    for id in 6..=7 {
        scheduler.enqueue(waiting(id, "a→c", "cms", 3));
    }
    scheduler.halt(&link("a→b"), WaitReason::Draining);
    assert_eq!(started(&mut scheduler), [6, 7], "other links go on");
    assert_eq!(scheduler.why_waiting(&link("a→b")), WaitReason::Draining);
    scheduler.let_one_pass(&link("a→b"), None);
    assert_eq!(started(&mut scheduler), [1]);
    scheduler.release(&link("a→b"));
    assert!(started(&mut scheduler).is_empty());
    scheduler.reopen(&link("a→b"));
    assert_eq!(started(&mut scheduler), [2, 3]);
    let reason = scheduler.why_waiting(&link("a→b"));
    assert_eq!(reason, full(SlotPlace::Link, 2));
}

#[test]
fn a_trial_goes_to_another_vo_than_the_last_failure_or_else_to_another_user() {
    let party = |vo, user| TransferOwner {
        vo: VoName::new(vo),
        user: UserName::new(user),
    };
    let of = |id, vo, user| QueueEntry {
        user: UserName::new(user),
        ..waiting(id, "a→b", vo, 3)
    };
    let mut scheduler = Tried::new(limits(5, 10, 10));
    scheduler.halt(&link("a→b"), WaitReason::Draining);
    for id in 1..=9 {
        scheduler.enqueue(of(id, "cms", "alice"));
    }
    scheduler.enqueue(of(10, "cms", "bob"));
    scheduler.enqueue(of(11, "lab", "carol"));
    let after = party("cms", "alice");
    let mut tried = Vec::new();
    for _ in 0..4 {
        scheduler.let_one_pass(&link("a→b"), Some(&after));
        tried.extend(started(&mut scheduler));
    }
    assert_eq!(tried, [11, 10, 1, 2]);
}

#[test]
fn it_is_known_who_else_uses_a_link() {
    let alice = TransferOwner {
        vo: VoName::new("cms"),
        user: UserName::new("alice"),
    };
    let mut scheduler = Tried::new(limits(5, 10, 10));
    let number = scheduler.number(&link("a→b"));
    scheduler.enqueue(waiting(1, "a→b", "cms", 3));
    assert_eq!(scheduler.company(number, &alice), LinkCotenants::None);
    scheduler.enqueue(QueueEntry {
        user: UserName::new("bob"),
        ..waiting(2, "a→b", "cms", 3)
    });
    assert_eq!(scheduler.company(number, &alice), LinkCotenants::SameVo);
    scheduler.enqueue(waiting(3, "a→b", "lab", 3));
    assert_eq!(scheduler.company(number, &alice), LinkCotenants::OtherVos);
    assert_eq!(started(&mut scheduler).len(), 3);
    assert_eq!(scheduler.company(number, &alice), LinkCotenants::OtherVos);
    for id in [3, 2] {
        scheduler.end(TransferId(id), Duration::ZERO, None);
    }
    assert_eq!(scheduler.company(number, &alice), LinkCotenants::None);
}

#[test]
fn failing_fast_buys_no_more_turns_than_files_that_arrive() {
    let mut scheduler = Tried::new(limits(1, 10, 10));
    for id in 1..=200 {
        let user = if id <= 100 { "hopeless" } else { "alice" };
        scheduler.enqueue(QueueEntry {
            user: UserName::new(user),
            size: Some(Bytes(1_000_000_000)),
            ..waiting(id, "a→b", "cms", 3)
        });
    }
    let mut starts = [0, 0];
    for _ in 0..40 {
        let TransferId(id) = scheduler.start_next().expect("a slot is free");
        let (_, taken) = scheduler.all_taken.pop().expect("it runs");
        let is_hopeless = id <= 100;
        starts[usize::from(is_hopeless)] += 1;
        scheduler.scheduler.release(
            taken,
            SlotTime {
                took: Duration::from_secs(if is_hopeless { 0 } else { 51 }),
                brought: None,
                is_own_fault: is_hopeless,
            },
        );
    }
    assert_eq!(starts, [20, 20]);
}

#[test]
fn a_link_that_is_halted_while_it_waits_for_a_storage_leaves_the_slot_to_others() {
    let mut scheduler = Tried::new(limits(10, 1, 10));
    scheduler.enqueue(waiting(1, "a→d", "cms", 3));
    assert_eq!(started(&mut scheduler), [1]);
    scheduler.enqueue(waiting(2, "b→d", "cms", 3));
    scheduler.enqueue(waiting(3, "c→d", "cms", 3));
    assert!(started(&mut scheduler).is_empty());
    scheduler.halt(&link("b→d"), WaitReason::Draining);
    scheduler.release(&link("a→d"));
    assert_eq!(started(&mut scheduler), [3]);
    scheduler.reopen(&link("b→d"));
    scheduler.release(&link("c→d"));
    assert_eq!(started(&mut scheduler), [2]);
}

#[derive(Debug, Clone)]
enum Step {
    Enqueue(u8, u8, u8),
    Release(usize),
    Remove(usize),
    Limits(u8, u8, u8),
    Shares(u8),
    /// All links that nothing uses, but for so many.
    Forget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4u8, 0..4u8, 1..6u8).prop_map(|(s, d, p)| Step::Enqueue(s, d, p)),
        3 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => (0..4u8, 0..6u8, 0..9u8).prop_map(|(l, s, a)| Step::Limits(l, s, a)),
        1 => (0..5u8).prop_map(Step::Shares),
        1 => (0..4usize).prop_map(Step::Forget),
    ]
}

/// Nothing, links, destinations, everything, and activities.
const SHARES: [&[&str]; 5] = [
    &[],
    &["s0→d0 x 5", "s0→d0 public 1", "s1→d1 y 0.5"],
    &["*→d0 x 3", "*→d0 y 1", "*→d1 public 2"],
    &["*→* x 1", "*→* y 1000"],
    &["x: default 0.1", "x: other 5", "*→d2 y 2"],
];

proptest! {
    /// Bounds hold after every step, and no transfer waits while every slot it needs is free.
    #[test]
    fn bounds_hold_and_no_slot_stays_empty_while_something_could_use_it(
        steps in proptest::collection::vec(step(), 1..200)
    ) {
        let mut now = limits(2, 3, 5);
        let mut scheduler = Tried::new(now.clone());
        let (mut running, mut queued) = (Vec::<QueueEntry>::new(), Vec::<QueueEntry>::new());
        for (id, step) in steps.into_iter().enumerate() {
            match step {
                Step::Enqueue(s, d, p) => {
                    let one = waiting(id as u64, &format!("s{s}→d{d}"), ["x", "y"][usize::from(p) % 2], p.into());
                    scheduler.enqueue(one.clone());
                    queued.push(one);
                }
                Step::Release(at) if !running.is_empty() => {
                    let one = running.swap_remove(at % running.len());
                    scheduler.release(&one.link);
                }
                Step::Remove(at) if !queued.is_empty() => {
                    let one = queued.swap_remove(at % queued.len());
                    prop_assert!(scheduler.remove(&one));
                }
                Step::Limits(l, s, a) => {
                    now = limits(l.into(), s.into(), a.into());
                    scheduler.set_limits(now.clone());
                }
                Step::Shares(which) => set(&mut scheduler, SHARES[usize::from(which)]),
                Step::Forget(unused_max) => {
                    scheduler.forget_unused(&HashSet::new(), unused_max);
                    let used: BTreeSet<&LinkId> = running.iter().chain(&queued).map(|one| &one.link).collect();
                    prop_assert!(used.iter().all(|link| scheduler.knows(link)));
                    prop_assert!(scheduler.links_known() <= used.len() + unused_max);
                }
                Step::Release(_) | Step::Remove(_) => {}
            }
            let before = running.len();
            while let Some(transfer) = scheduler.start_next() {
                let at = queued.iter().position(|one| one.transfer == transfer).expect("was queued");
                running.push(queued.remove(at));
            }
            let count = |test: &dyn Fn(&QueueEntry) -> bool| running.iter().filter(|one| test(one)).count() as u32;
            if running.len() > before {
                prop_assert!(running.len() as u32 <= now.agents.0);
            }
            for one in &queued {
                let free = count(&|r| r.link == one.link) < now.link.0
                    && count(&|r| r.link.source == one.link.source) < now.storage_outbound.0
                    && count(&|r| r.link.destination == one.link.destination) < now.storage_inbound.0
                    && (running.len() as u32) < now.agents.0;
                prop_assert!(!free || scheduler.kept() > 0, "{one:?} waits though all its slots are free");
                prop_assert!(scheduler.why_waiting(&one.link) != WaitReason::Starting);
            }
        }
    }

    /// However weights, limits and links are, in the long run each VO gets its share of what there is too little of.
    #[test]
    fn shares_hold_in_the_long_run(
        weights in proptest::collection::vec(1..50u32, 2..6), slots in 1..10u32, one_link in any::<bool>(),
    ) {
        let mut scheduler = match one_link {
            true => Tried::new(limits(slots, 1000, 1000)),
            false => Tried::new(limits(1000, slots, 1000)),
        };
        let vo = |number: usize| format!("vo{number}");
        let lines = weights.iter().enumerate().map(|(number, weight)| format!("*→d {} {weight}", vo(number)));
        let lines: Vec<String> = lines.collect();
        set(&mut scheduler, &lines.iter().map(String::as_str).collect::<Vec<_>>());
        let flow = |number: usize| match one_link {
            true => format!("s→d {}", vo(number)),
            false => format!("s{number}→d {}", vo(number)),
        };
        let flows: Vec<String> = (0..weights.len()).map(flow).collect();
        let names: Vec<&str> = flows.iter().map(String::as_str).collect();
        let starts = 3000;
        let counts = starts_of(&mut scheduler, &names, starts);
        let sum: u32 = weights.iter().sum();
        for (flow, weight) in flows.iter().zip(&weights) {
            let due = f64::from(*weight) / f64::from(sum) * starts as f64;
            let got = counts.get(flow).copied().unwrap_or(0) as f64;
            // What runs at the end is not settled.
            let unsettled = f64::from(slots.max(3));
            prop_assert!((got - due).abs() <= unsettled + due * 0.02, "{flow}: {got} of {due}, {counts:?}");
        }
    }
}

#[test]
fn links_that_need_gfal_share_slots_of_their_own_and_hold_nobody_else_back() {
    let mut scheduler = Tried::new(SlotLimits {
        gfal: Slots(2),
        ..limits(10, 10, 100)
    });
    for id in 1..=2 {
        scheduler.enqueue(waiting(id, "gsiftp://a→https://b", "cms", 3));
        scheduler.enqueue(waiting(id + 10, "root://c→root://d", "cms", 3));
        scheduler.enqueue(waiting(id + 20, "https://a→https://b", "cms", 3));
    }
    assert_eq!(started(&mut scheduler), [1, 11, 21, 22]);
    let reason = scheduler.why_waiting(&link("root://c→root://d"));
    assert_eq!(reason, full(SlotPlace::Gfal, 2));
    scheduler.release(&link("root://c→root://d"));
    assert_eq!(started(&mut scheduler).len(), 1);
    scheduler.set_limits(SlotLimits {
        gfal: Slots(3),
        ..limits(10, 10, 100)
    });
    assert_eq!(started(&mut scheduler).len(), 1);
}

#[test]
fn what_is_tuned_binds_below_what_operators_allow_and_says_so() {
    let mut scheduler = Tried::new(limits(3, 10, 10));
    for id in 1..=9 {
        scheduler.enqueue(waiting(id, "a→b", "cms", 3));
    }
    scheduler.set_tuned(&TunedPlace::Link(link("a→b")), Some(Slots(2)));
    assert_eq!(started(&mut scheduler), [1, 2]);
    let reason = |scheduler: &Tried| {
        crate::wording::wait_reason(
            &scheduler.why_waiting(&link("a→b")),
            penstock_model::Timestamp(0),
        )
    };
    assert_eq!(
        reason(&scheduler),
        "the link runs 2 transfers at once, the number measured as fastest (limit 3)"
    );
    scheduler.set_tuned(&TunedPlace::Link(link("a→b")), Some(Slots(7)));
    assert_eq!(started(&mut scheduler), [3]);
    assert_eq!(
        reason(&scheduler),
        "the link runs 3 of 3 transfers allowed at once"
    );
    scheduler.set_tuned(
        &TunedPlace::Inbound {
            storage: StorageId::new("b"),
        },
        Some(Slots(3)),
    );
    scheduler.set_limits(limits(5, 10, 10));
    assert!(started(&mut scheduler).is_empty());
    assert_eq!(
        reason(&scheduler),
        "b receives 3 files at once, the number measured as fastest (limit 10)"
    );
    scheduler.set_tuned(
        &TunedPlace::Inbound {
            storage: StorageId::new("b"),
        },
        None,
    );
    assert_eq!(started(&mut scheduler), [4, 5]);
}
