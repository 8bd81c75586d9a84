//! Each fault that is not held out, with one seed.

use super::*;

/// The guard asks for so many right answers of one seed; promises are of a thousand.
const RIGHT_MIN: usize = 12;

#[test]
fn faults_are_found_and_their_causes_are_named() {
    let named = Fault::OPEN.map(|fault| {
        let trial = Trial {
            fault,
            strength: Strength::Strong,
            seed: 0,
        };
        let named = trial.first_cause().expect("nothing else is wrong");
        (fault, named)
    });
    let right = named
        .iter()
        .filter(|(fault, named)| *named == Some(fault.cause()));
    assert!(right.count() >= RIGHT_MIN, "{named:#?}");
}
