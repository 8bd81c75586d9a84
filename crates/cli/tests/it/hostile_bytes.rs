//! The fuzz targets, for a moment each at every change: their seeds, and a fixed number of seeds that were damaged. The
//! fuzzer itself (`make fuzz`) looks further, with coverage and for minutes.

#[path = "../../../../fuzz/src/targets/mod.rs"]
mod targets;

#[path = "../../../../fuzz/src/damage.rs"]
mod damage;

use damage::{Draw, damage};
use std::time::{Duration, Instant};

/// Whatever comes first ends it, so that a busy machine does not make it slow.
const EXECUTIONS: usize = 20_000;
const TIME: Duration = Duration::from_secs(1);

fn hold(target: &targets::Target) {
    let seeds = (target.seeds)();
    for seed in &seeds {
        (target.check)(seed);
    }
    let mut draw = Draw(7);
    let begun = Instant::now();
    for number in 0..EXECUTIONS {
        let input = damage(&mut draw, &seeds);
        let tried = std::panic::catch_unwind(|| (target.check)(&input));
        assert!(
            tried.is_ok(),
            "{} does not hold for input {number}: {:?}",
            target.name,
            String::from_utf8_lossy(&input)
        );
        if begun.elapsed() > TIME {
            break;
        }
    }
}

#[test]
fn what_parsers_promise_holds_for_damaged_input() {
    // One after the other in a few threads: most of them are fast.
    std::thread::scope(|scope| {
        for half in targets::ALL.chunks(targets::ALL.len().div_ceil(2)) {
            scope.spawn(|| half.iter().for_each(hold));
        }
    });
}
