//! Seeds that every change has to endure; `make soak` takes a thousand.

use super::*;

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
