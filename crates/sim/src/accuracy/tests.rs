//! Each fault that is not held out, with a few seeds.

use super::*;

const SEEDS: std::ops::Range<u64> = 0..2;
/// Right answers of a hundred that the guard asks for; promises are of a thousand seeds.
const RIGHT_PERCENT_MIN: usize = 95;

#[test]
fn faults_are_found_and_their_causes_are_named() {
    let trials = SEEDS.flat_map(|seed| {
        Fault::OPEN.map(|fault| Trial {
            fault,
            strength: Strength::of_seed(seed),
            seed,
        })
    });
    let named: Vec<(Trial, Option<Cause>)> = trials
        .map(|trial| {
            let change = trial.change().expect("nothing else is wrong");
            (trial, change.and_then(|change| change.first_cause()))
        })
        .collect();
    let is_wrong = |(trial, named): &&(Trial, Option<Cause>)| *named != Some(trial.fault.cause());
    let wrong: Vec<_> = named.iter().filter(is_wrong).collect();
    let right = named.len() - wrong.len();
    assert!(right * 100 >= named.len() * RIGHT_PERCENT_MIN, "{wrong:#?}");
}

#[test]
fn quiet_days_have_no_explanations() {
    let outcome = quiet_days(0, 2, &mut |_| {}).expect("nothing is wrong");
    assert_eq!(outcome.days, 2);
    assert!(outcome.links >= 4);
    let told = &outcome.false_drops;
    assert!(outcome.explained_max() <= 1, "{told:#?}");
}
