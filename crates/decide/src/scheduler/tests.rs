//! Bounds, turns and reasons of the scheduler.

use super::*;
use proptest::prelude::*;

fn link(name: &str) -> LinkId {
    let (source, destination) = name.split_once('→').expect("a→b");
    LinkId {
        source: StorageId::new(source),
        destination: StorageId::new(destination),
    }
}

fn waiting(id: u64, on: &str, vo: &str, priority: i64) -> Waiting {
    Waiting {
        transfer: TransferId(id),
        link: link(on),
        vo: VoName::new(vo),
        priority: Priority::clamped(priority),
    }
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

fn started(scheduler: &mut Scheduler) -> Vec<u64> {
    std::iter::from_fn(|| scheduler.start_next())
        .map(|id| id.0)
        .collect()
}

#[test]
fn a_link_never_runs_more_than_its_limit_and_says_so() {
    let mut scheduler = Scheduler::new(limits(2, 10, 10));
    (1..=3).for_each(|id| scheduler.enqueue(waiting(id, "a→b", "cms", 3)));
    assert_eq!(started(&mut scheduler), [1, 2]);
    let reason = scheduler.why_waiting(&link("a→b"));
    assert_eq!(
        reason,
        WaitReason::LinkFull {
            active: Slots(2),
            limit: Slots(2)
        }
    );
    scheduler.release(&link("a→b"));
    assert_eq!(started(&mut scheduler), [3]);
}

#[test]
fn links_that_share_a_destination_take_turns() {
    let mut scheduler = Scheduler::new(limits(10, 2, 100));
    for id in 1..=4 {
        scheduler.enqueue(waiting(id, "a→d", "cms", 3));
        scheduler.enqueue(waiting(id + 10, "x→d", "cms", 3));
    }
    assert_eq!(started(&mut scheduler), [1, 11]);
    let reason = scheduler.why_waiting(&link("x→d"));
    assert!(
        matches!(reason, WaitReason::DestinationFull { .. }),
        "{reason:?}"
    );
    scheduler.release(&link("a→d"));
    scheduler.release(&link("x→d"));
    let mut next = started(&mut scheduler);
    next.sort();
    assert_eq!(next, [2, 12]);
}

#[test]
fn a_full_link_does_not_hold_back_another_one_that_waits_for_the_same_storage() {
    let mut scheduler = Scheduler::new(limits(1, 2, 100));
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
fn urgent_files_go_first_but_none_starves() {
    let mut scheduler = Scheduler::new(limits(1000, 1000, 1000));
    for id in 0..200 {
        scheduler.enqueue(waiting(id, "a→b", "cms", 5));
        scheduler.enqueue(waiting(1000 + id, "a→b", "cms", 1));
    }
    let first: Vec<u64> = (0..34)
        .filter_map(|_| scheduler.start_next())
        .map(|id| id.0)
        .collect();
    let low = first.iter().filter(|id| **id >= 1000).count();
    assert_eq!(low, 2, "one in seventeen: {first:?}");
}

#[test]
fn vos_take_turns_however_much_one_of_them_queues() {
    let mut scheduler = Scheduler::new(limits(10, 10, 10));
    (0..100).for_each(|id| scheduler.enqueue(waiting(id, "a→b", "atlas", 3)));
    (200..205).for_each(|id| scheduler.enqueue(waiting(id, "a→b", "cms", 3)));
    let cms = started(&mut scheduler)
        .iter()
        .filter(|id| **id >= 200)
        .count();
    assert_eq!(cms, 5);
}

#[test]
fn a_raised_limit_takes_effect_at_once() {
    let mut scheduler = Scheduler::new(limits(1, 10, 10));
    (1..=4).for_each(|id| scheduler.enqueue(waiting(id, "a→b", "cms", 3)));
    assert_eq!(started(&mut scheduler), [1]);
    scheduler.set_limits(limits(3, 10, 10));
    assert_eq!(started(&mut scheduler), [2, 3]);
}

#[test]
fn a_halted_link_starts_nothing_but_the_one_that_may_pass() {
    let mut scheduler = Scheduler::new(limits(2, 10, 10));
    (1..=5).for_each(|id| scheduler.enqueue(waiting(id, "a→b", "cms", 3)));
    (6..=7).for_each(|id| scheduler.enqueue(waiting(id, "a→c", "cms", 3)));
    scheduler.halt(&link("a→b"), WaitReason::Draining);
    assert_eq!(started(&mut scheduler), [6, 7], "other links go on");
    assert_eq!(scheduler.why_waiting(&link("a→b")), WaitReason::Draining);
    scheduler.let_one_pass(&link("a→b"));
    assert_eq!(started(&mut scheduler), [1]);
    scheduler.release(&link("a→b"));
    assert!(started(&mut scheduler).is_empty());
    scheduler.reopen(&link("a→b"));
    assert_eq!(started(&mut scheduler), [2, 3]);
    let reason = scheduler.why_waiting(&link("a→b"));
    assert!(matches!(reason, WaitReason::LinkFull { .. }), "{reason:?}");
}

#[test]
fn a_link_that_is_halted_while_it_waits_for_a_storage_leaves_the_slot_to_others() {
    let mut scheduler = Scheduler::new(limits(10, 1, 10));
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
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4u8, 0..4u8, 1..6u8).prop_map(|(s, d, p)| Step::Enqueue(s, d, p)),
        3 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => (0..4u8, 0..6u8, 0..9u8).prop_map(|(l, s, a)| Step::Limits(l, s, a)),
    ]
}

proptest! {
    /// Bounds hold after every step, and no transfer waits while every slot it needs is free.
    #[test]
    fn bounds_hold_and_no_slot_stays_empty_while_something_could_use_it(
        steps in proptest::collection::vec(step(), 1..200)
    ) {
        let mut now = limits(2, 3, 5);
        let mut scheduler = Scheduler::new(now.clone());
        let (mut running, mut queued) = (Vec::<Waiting>::new(), Vec::<Waiting>::new());
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
                Step::Release(_) | Step::Remove(_) => {}
            }
            let before = running.len();
            while let Some(transfer) = scheduler.start_next() {
                let at = queued.iter().position(|one| one.transfer == transfer).expect("was queued");
                running.push(queued.remove(at));
            }
            let count = |test: &dyn Fn(&Waiting) -> bool| running.iter().filter(|one| test(one)).count() as u32;
            if running.len() > before {
                prop_assert!(running.len() as u32 <= now.agents.0);
            }
            for one in &queued {
                let free = count(&|r| r.link == one.link) < now.link.0
                    && count(&|r| r.link.source == one.link.source) < now.storage_outbound.0
                    && count(&|r| r.link.destination == one.link.destination) < now.storage_inbound.0
                    && (running.len() as u32) < now.agents.0;
                prop_assert!(!free, "{one:?} waits though all its slots are free");
                prop_assert!(scheduler.why_waiting(&one.link) != WaitReason::Starting);
            }
        }
    }
}
