//! Links that nothing uses are forgotten, and nothing else changes.

use super::*;
use std::collections::HashSet;

const MB: u64 = 1_000_000;

fn forget_all_unused(scheduler: &mut Tried) -> ForgottenPlaces {
    scheduler.forget_unused(&HashSet::new(), 0)
}

fn known(scheduler: &Tried) -> Vec<String> {
    let mut links: Vec<String> = scheduler
        .links()
        .map(|view| format!("{}→{}", view.link.source, view.link.destination))
        .collect();
    links.sort();
    links
}

#[test]
fn only_links_that_nothing_uses_are_forgotten() {
    let mut scheduler = Tried::new(limits(1, 10, 10));
    for (id, on) in [(1, "a→b"), (2, "a→b"), (3, "c→b"), (4, "a→d"), (5, "e→f")] {
        scheduler.enqueue(waiting(id, on, "cms", 3));
    }
    scheduler.remove(&waiting(5, "e→f", "cms", 3));
    assert_eq!(started(&mut scheduler), [1, 3, 4]);
    scheduler.release(&link("c→b"));
    scheduler.release(&link("a→d"));
    let halted = WaitReason::Draining;
    scheduler.halt(&link("c→b"), halted);
    let kept = scheduler.number(&link("g→h"));
    let forgotten = scheduler.forget_unused(&HashSet::from([kept]), 0);
    let gone = |names: &[&str]| names.iter().map(|name| StorageId::new(*name)).collect();
    assert_eq!(
        forgotten,
        ForgottenPlaces {
            links: ["c→b", "a→d", "e→f"].map(link).into(),
            storages: gone(&["c", "d", "e", "f"]),
        }
    );
    assert_eq!(known(&scheduler), ["a→b", "g→h"]);
    let storages: Vec<String> = scheduler
        .storages()
        .map(|view| view.storage.to_string())
        .collect();
    assert_eq!(storages, ["a", "b", "g", "h"]);
    assert!(scheduler.knows(&link("a→b")) && !scheduler.knows(&link("c→b")));
    assert_eq!(scheduler.links_known(), 2);
    // What waits goes on, who has a number has it still, and what is named again is new and not halted.
    assert_eq!(*scheduler.scheduler.link(kept), link("g→h"));
    scheduler.release(&link("a→b"));
    scheduler.enqueue(waiting(6, "c→b", "cms", 3));
    scheduler.enqueue(waiting(7, "x→y", "cms", 3));
    assert_eq!(started(&mut scheduler), [2, 6, 7]);
    assert!(
        scheduler.scheduler.links.numbers().into_iter().max() < Some(5),
        "numbers are given again"
    );
}

#[test]
fn links_that_were_used_last_stay_known() {
    let mut scheduler = Tried::new(limits(1, 10, 10));
    for on in ["a→b", "c→d", "e→f", "a→b"] {
        scheduler.number(&link(on));
    }
    let forgotten = scheduler.forget_unused(&HashSet::new(), 2);
    assert_eq!(forgotten.links, [link("c→d")]);
    assert_eq!(known(&scheduler), ["a→b", "e→f"]);
}

#[test]
fn a_link_is_known_as_long_as_what_moved_there_counts_below_its_cap() {
    let mut limits = limits(10, 10, 10);
    let cap = penstock_model::Rate(MB);
    limits.rates.links.insert(link("a→b"), cap);
    limits.rates.inbound.insert(StorageId::new("d"), cap);
    let mut scheduler = Tried::new(limits);
    for (id, on) in [(1, "a→b"), (2, "c→d")] {
        let size = Some(Bytes(5 * MB));
        scheduler.enqueue(QueueEntry {
            size,
            ..waiting(id, on, "cms", 3)
        });
    }
    assert_eq!(started(&mut scheduler).len(), 2);
    for id in [1, 2] {
        scheduler.end(TransferId(id), Duration::from_secs(1), Some(Bytes(5 * MB)));
    }
    scheduler.advance(Duration::from_secs(9));
    let forgotten = forget_all_unused(&mut scheduler);
    assert_eq!(forgotten.links, [link("c→d")], "it has no cap of its own");
    assert_eq!(forgotten.storages, [StorageId::new("c")]);
    scheduler.advance(Duration::from_secs(20));
    let forgotten = forget_all_unused(&mut scheduler);
    assert_eq!(forgotten.links, [link("a→b")]);
    assert_eq!(scheduler.storages().count(), 0);
}

#[test]
fn a_slot_that_was_kept_for_what_waits_no_more_is_free() {
    let mut scheduler = Tried::new(limits(10, 1, 10));
    // A link between two places that others always fill.
    scheduler.enqueue(waiting(0, "a→b", "cms", 3));
    let mut id = 0;
    let mut kept = 0;
    while kept == 0 && id < 1_000 {
        for on in ["a→c", "d→b"] {
            id += 1;
            scheduler.enqueue(waiting(id, on, "cms", 3));
        }
        started(&mut scheduler);
        kept = scheduler.kept();
        if let Some((transfer, _)) = scheduler.all_taken.first() {
            let transfer = *transfer;
            scheduler.end(transfer, Duration::from_secs(1), None);
        }
        if scheduler.queued(&link("a→b")) == 0 {
            scheduler.enqueue(waiting(0, "a→b", "cms", 3));
        }
    }
    assert!(kept > 0, "{id}");
    assert!(scheduler.remove(&waiting(0, "a→b", "cms", 3)));
    assert_eq!(scheduler.kept(), 0);
}

proptest! {
    /// When all is over and forgotten, nothing tells a scheduler from a new one.
    #[test]
    fn links_that_are_named_again_begin_as_new_ones(
        steps in proptest::collection::vec(step(), 1..100),
        again in proptest::collection::vec((0..4u8, 0..4u8, 1..6u8), 1..60),
    ) {
        let mut scheduler = Tried::new(limits(2, 3, 5));
        let mut queued = Vec::<QueueEntry>::new();
        for (id, step) in steps.into_iter().enumerate() {
            match step {
                Step::Enqueue(s, d, p) => {
                    let one = waiting(id as u64, &format!("s{s}→d{d}"), "x", p.into());
                    scheduler.enqueue(one.clone());
                    queued.push(one);
                }
                Step::Release(at) if !scheduler.all_taken.is_empty() => {
                    let (transfer, _) = scheduler.all_taken[at % scheduler.all_taken.len()];
                    scheduler.end(transfer, Duration::from_secs(at as u64 % 100), Some(Bytes(MB)));
                }
                Step::Remove(at) if !queued.is_empty() => {
                    let one = queued.swap_remove(at % queued.len());
                    prop_assert!(scheduler.remove(&one));
                }
                Step::Forget(unused_max) => drop(scheduler.forget_unused(&HashSet::new(), unused_max)),
                Step::Release(_) | Step::Remove(_) | Step::Limits(..) | Step::Shares(_) => {}
            }
            for transfer in started(&mut scheduler) {
                queued.retain(|one| one.transfer.0 != transfer);
            }
        }
        for one in &queued {
            prop_assert!(scheduler.remove(one));
        }
        while let Some((transfer, _)) = scheduler.all_taken.first() {
            let transfer = *transfer;
            scheduler.end(transfer, Duration::from_secs(1), None);
        }
        started(&mut scheduler);
        forget_all_unused(&mut scheduler);
        prop_assert_eq!((scheduler.links_known(), scheduler.storages().count()), (0, 0));
        let plan = |scheduler: &mut Tried| {
            let mut order = Vec::new();
            for (id, (s, d, p)) in again.iter().enumerate() {
                scheduler.enqueue(waiting(id as u64, &format!("s{s}→d{d}"), "x", i64::from(*p)));
                order.extend(started(scheduler));
                if id % 3 == 0 && let Some((transfer, _)) = scheduler.all_taken.first() {
                    let transfer = *transfer;
                    scheduler.end(transfer, Duration::from_secs(2), Some(Bytes(MB)));
                }
            }
            order
        };
        prop_assert_eq!(plan(&mut scheduler), plan(&mut Tried::new(limits(2, 3, 5))));
    }
}
