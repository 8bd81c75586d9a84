//! Seeds that every change has to endure; `make soak` takes a thousand.

use super::*;
use crate::simulate;

#[test]
fn nothing_breaks_whatever_happens() {
    match endure(0..40, &mut |_| {}) {
        Ok(endured) => assert!(endured.losses > 30 && endured.failures > 500, "{endured:?}"),
        Err((seed, broken)) => panic!(
            "{}\n{broken}\nto see it again: penstock simulate --trouble {seed}",
            broken.before.join("\n")
        ),
    }
}

#[test]
fn good_files_are_not_held_up_by_a_thousand_hopeless_ones_on_their_link() {
    for seed in 0..12 {
        if let Err(broken) = mistakes::endure(seed) {
            panic!("seed {seed}: {broken}");
        }
    }
}

#[test]
fn files_that_are_held_up_are_found_out() {
    let plan = mistakes::plan(0);
    let alone = simulate(&mistakes::alone(&plan), &mut |_| {}).expect("nothing is wrong");
    let mut slow = plan.clone();
    slow.loads[1].size *= 2.0;
    let beside = simulate(&slow, &mut |_| {}).expect("nothing is wrong");
    let broken = mistakes::check(&plan, &alone, &beside).expect_err("they took twice as long");
    assert!(broken.what.contains("good files took"), "{broken}");
}

#[test]
fn a_service_that_does_not_know_the_shares_is_found_out() {
    for seed in 0..4 {
        let plan = shares::plan(seed);
        let mut without = plan.clone();
        without.vos.iter_mut().for_each(|vo| vo.share = None);
        let report = simulate(&without, &mut |_| {}).expect("nothing else is wrong");
        let broken = shares::check(&plan, &report).expect_err("shares were not kept");
        assert!(broken.what.contains("are its share"), "{broken}");
    }
}
